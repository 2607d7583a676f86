"""Bounds from resampled rows: studentised for means, bias-corrected for any other function of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

from mixtree._native import compiled

Floats: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]
Bounds: TypeAlias = Callable[[float], tuple[float, float]]
"""Low and high for an error probability: 0.05 gives the 95 % interval."""

LEVEL = 0.95
RESAMPLES = 999
MANY = 20_000
"""Rows from which a mean's t statistic is normal enough: resampling so many would only cost time."""

_BLOCK = 1 << 15  # drawn rows at a time: what stays in a core's cache is quicker to go through again
_EPSILON = float(np.finfo(np.float64).eps)
_TAIL = 0.7  # of the tail is used: quantiles of resamples of few rows are too close to the middle
_SPARSE = 20
_GROUPS = 200  # for the jackknife of a user's function


def of_mean(column: Floats, rng: np.random.Generator, *, size: float | None = None) -> Bounds:
    """Bounds of a mean: the wider of Student's t and the bootstrap-t.

    Parameters
    ----------
    column
        Numbers whose mean it is, (n,).
    rng
        Draws bootstrap samples.
    size
        Of the numbers that the column was made of, if they are larger: smaller spreads are rounding.

    Returns
    -------
    Bounds
        From an error probability to (low, high).

    Examples
    --------
    >>> low, high = of_mean(np.arange(100.0), np.random.default_rng(0))(0.05)
    >>> round(float(low), 1), round(float(high), 1)
    (42.9, 55.7)
    """
    largest = float(np.abs(column).max()) if size is None else size
    return _studentised(float(column.mean()), column, largest, lambda: _t_scores(*_of_means(column, rng)))


def of_gap_of_roots(one: Floats, two: Floats, rng: np.random.Generator) -> Bounds:
    """Bounds of √mean(one) − √mean(two), by the slopes of the roots.

    Parameters
    ----------
    one, two
        Squared errors of two models on the same rows, (n,) each.
    rng
        Draws bootstrap samples.

    Returns
    -------
    Bounds
        From an error probability to (low, high).
    """
    n, (slope, other) = len(one), (_slopes(column.mean()) for column in (one, two))
    gap = float(np.sqrt(one.mean()) - np.sqrt(two.mean()))

    def scores() -> Floats:
        # Of two models that are much alike, the difference and one of them: nothing cancels out.
        u, v = one - two, two - np.median(two)
        u -= np.median(one - two)
        sums = _resampled([u, u * u, v, v * v, u * v], rng)
        (moved_u, of_u), (moved_v, of_v) = (_mean_and_variance(sums[:, k : k + 2], n) for k in (0, 2))
        both = (sums[:, 4] - sums[:, 0] * sums[:, 2] / n) / ((n - 1.0) * n)
        mean_two = two.mean() + moved_v - v.mean()
        mean_one = one.mean() + moved_u - u.mean() + moved_v - v.mean()
        a, b = _slopes(mean_one), _slopes(mean_two)
        variance = a**2 * of_u + (a - b) ** 2 * of_v + 2.0 * a * (a - b) * both
        roots = np.sqrt(np.maximum(mean_one, 0.0)) - np.sqrt(np.maximum(mean_two, 0.0))
        return _t_scores(roots - gap, variance)

    size = float(np.sqrt(max(np.abs(one).max(), np.abs(two).max())))
    return _studentised(gap, one * slope - two * other, size, scores)


def _slopes(means: Floats | float) -> Floats:
    """Of the square root; 0 where a mean is 0, for then no row moves it."""
    roots = np.sqrt(np.maximum(means, 0.0))
    return np.divide(0.5, roots, out=np.zeros_like(roots), where=roots > 0.0)


def _studentised(value: float, terms: Floats, size: float, scores: Callable[[], Floats]) -> Bounds:
    """On either side the wider of Student's t and the bootstrap-t, so that skewed losses are covered too.

    Where few rows differ from all the others (a model that errs on three rows), two more such rows are
    imagined, one on either side: what was seen three times could as well have been seen seven times.
    """
    n = len(terms)
    error = float(terms.std(ddof=1)) / np.sqrt(n)
    # Beside the losses themselves, which may be of any unit: less than this is rounding.
    if not error > 1e-15 * size:
        same = value if abs(value) > 1e-12 * size else 0.0
        return lambda alpha: (same, same)
    found = np.zeros(1)
    # Fewer differ than a bootstrap could make anything of.
    if len(terms) - np.unique(terms, return_counts=True)[1].max() < _SPARSE:
        far = np.abs(terms - np.median(terms)).max()
        error = max(error, float(np.sqrt((terms.var() * n + 2.0 * far**2) / (n * (n + 1.0)))))
    elif n <= MANY:
        found = scores()

    def bounds(alpha: float) -> tuple[float, float]:
        down, up = reaches(found, n - 1, alpha)
        return value - error * down, value + error * up

    return bounds


def class_scores(parts: list[Floats], rng: np.random.Generator) -> Floats:
    """Bootstrap-t scores, sorted, of the sum of the classes' mean terms; ``parts`` are those terms."""
    moved, variance = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for terms in parts:
        if 2 <= len(terms) <= MANY:
            more = _of_means(terms, rng)
            moved, variance = moved + more[0], variance + more[1]
    return _t_scores(moved, variance, least=1e-20)


def _t_scores(moved: Floats, variance: Floats, *, least: float = 0.0) -> Floats:
    varied = variance > least  # a resample of one row n times says nothing
    return np.sort(np.append(moved[varied] / np.sqrt(variance[varied]), 0.0))


def _of_means(column: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """How far the means of resamples are off, and those means' variances."""
    # Around the median: what is around a mean that one row has moved away loses its digits.
    gaps = column - np.median(column)
    moved, variance = _mean_and_variance(_resampled([gaps, gaps * gaps], rng), len(gaps))
    return moved - gaps.mean(), variance


def _mean_and_variance(sums: Floats, n: int) -> tuple[Floats, Floats]:
    """Of resamples of n rows, by their sums and sums of squares: means and the means' variances."""
    spread = sums[:, 1] - sums[:, 0] ** 2 / n
    spread[spread <= 4.0 * n * _EPSILON * sums[:, 1]] = 0.0  # rounding
    return sums[:, 0] / n, spread / ((n - 1.0) * n)


def _resampled(columns: list[Floats], rng: np.random.Generator) -> Floats:
    """The columns' sums over as many of their rows, drawn with replacement: (resamples, columns)."""
    sums, key = np.zeros((RESAMPLES, len(columns))), int(rng.integers(2**63))
    table = np.column_stack(columns).astype(np.float64, copy=False)
    (compiled.add_resamples or _add_resamples)(table, len(columns), key, sums)
    return sums


def _add_resamples(table: Floats, columns: int, key: int, sums: Floats) -> None:
    """The compiled twin's way of drawing: two rows by the halves of every word of SplitMix64."""
    n, words, high = len(table), (len(table) + 1) // 2, np.uint64(32)
    block = max(1, _BLOCK // n)
    for start in range(0, len(sums), block):
        some = sums[start : start + block]
        word = np.arange(start * words + 1, (start + len(some)) * words + 1, dtype=np.uint64)
        word = np.uint64(key) + word * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ word >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ word >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        word ^= word >> np.uint64(31)
        pairs = np.stack([word & np.uint64(0xFFFFFFFF), word >> high], axis=1).reshape(len(some), -1)
        rows = pairs[:, :n] * np.uint64(n) >> high
        some += table.reshape(n, columns)[rows.astype(np.intp)].sum(axis=1)


def reaches(scores: Floats, freedom: float, alpha: float) -> tuple[float, float]:
    """Standard errors down and up: on either side the wider of Student's t and the bootstrap-t.

    Parameters
    ----------
    scores
        Bootstrap-t scores; a single 0 leaves Student's t alone.
    freedom
        Degrees of freedom.
    alpha
        Error probability of both sides together.

    Returns
    -------
    tuple
        Standard errors below and above the estimate.
    """
    reach = float(stdtrit(freedom, 1.0 - alpha / 2.0))
    tail = _TAIL * alpha / 2.0
    below, above = np.quantile(scores, (tail, 1.0 - tail))
    return max(reach, float(above)), max(reach, -float(below))


def bias_corrected(
    score: Callable[[Index], float], strata: NDArray[np.intp] | None, n: int, rng: np.random.Generator
) -> Bounds:
    """Bounds of any function of rows: BCa on resampled rows, widened for few rows, and the jackknife's t.

    Parameters
    ----------
    score
        The function of row numbers.
    strata
        Class labels: a resample that lost a class altogether is drawn again. None for a regression.
    n
        Rows.
    rng
        Draws resamples, and the jackknife's groups.

    Returns
    -------
    Bounds
        From an error probability to (low, high).

    References
    ----------
    Efron, Better Bootstrap Confidence Intervals, JASA 1987.
    """
    everything = np.arange(n)
    centre = score(everything)
    groups = np.array_split(rng.permutation(n), min(n, _GROUPS))
    left_out = (
        np.array([score(np.setdiff1d(everything, group)) for group in groups]) if n > 1 else np.zeros(1)
    )
    left_out = left_out[np.isfinite(left_out)]
    gaps = left_out.mean() - left_out if len(left_out) else np.zeros(1)
    size = max(len(gaps), 2)
    error = float(np.sqrt((size - 1) / size * np.square(gaps).sum()))
    cubes, squares = float((gaps**3).sum()), float(np.square(gaps).sum())
    acceleration = cubes / (6.0 * squares**1.5) if squares > 0 else 0.0
    classes, scores = 0 if strata is None else len(np.unique(strata)), []
    for _ in range(RESAMPLES):
        for _ in range(100):
            rows: Index = rng.integers(n, size=n)
            if strata is None or len(np.unique(strata[rows])) == classes:
                break
        scores.append(score(rows))
    draws = np.array(scores)
    draws = np.sort(draws[np.isfinite(draws)])
    if not len(draws):
        return lambda alpha: (-np.inf, np.inf)
    below = (np.count_nonzero(draws < centre) + 0.5 * np.count_nonzero(draws == centre)) / len(draws)
    bias = float(ndtri(np.clip(below, 0.5 / len(draws), 1.0 - 0.5 / len(draws))))

    def bounds(alpha: float) -> tuple[float, float]:
        reach = float(stdtrit(size - 1, 1.0 - alpha / 2.0))
        ends = np.array([-1.0, 1.0]) * reach * np.sqrt(n / max(n - 1.0, 1.0))
        shifted = bias + (bias + ends) / np.maximum(1.0 - acceleration * (bias + ends), 0.1)
        low, high = np.quantile(draws, ndtr(shifted))
        return min(float(low), centre - reach * error), max(float(high), centre + reach * error)

    return bounds
