"""Bounds from resampled rows: studentised for means, bias-corrected for any other function of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri, stdtrit

Floats: TypeAlias = NDArray[np.float64]
Index: TypeAlias = NDArray[np.intp]
Bounds: TypeAlias = Callable[[float], tuple[float, float]]
"""Low and high for an error probability: 0.05 gives the 95 % interval."""

Linear: TypeAlias = Callable[..., tuple[Floats, Floats]]
"""Columns (…, n) of rows to a value (…) and terms (…, n) whose spread is the value's."""

RESAMPLES = 999
MANY = 20_000
"""Rows from which a mean's t statistic is normal enough: resampling so many would only cost time."""

_BLOCK = 1 << 15  # drawn rows at a time: what stays in a core's cache is quicker to go through again
_TAIL = 0.7  # of the tail is used: quantiles of resamples of few rows are too close to the middle
_SPARSE = 20
_GROUPS = 200  # for the jackknife of a user's function


def mean_of(column: Floats) -> tuple[Floats, Floats]:
    """The mean of one column."""
    return column.mean(axis=-1), column


def gap_of_means(one: Floats, two: Floats) -> tuple[Floats, Floats]:
    """The difference of two columns' means."""
    return mean_of(one - two)


def gap_of_roots(one: Floats, two: Floats) -> tuple[Floats, Floats]:
    """The difference of two columns' root means, by the slopes of the roots."""
    roots = [np.sqrt(column.mean(axis=-1)) for column in (one, two)]
    slopes = [0.5 / np.maximum(root, 1e-300)[..., None] for root in roots]
    return roots[0] - roots[1], one * slopes[0] - two * slopes[1]


def studentised(columns: tuple[Floats, ...], linear: Linear, rng: np.random.Generator) -> Bounds:
    """On either side the wider of Student's t and the bootstrap-t, so that skewed losses are covered too.

    Where few rows differ from all the others (a model that errs on three rows), two more such rows are
    imagined, one on either side: what was seen three times could as well have been seen seven times.
    """
    n = len(columns[0])
    value, terms = linear(*columns)
    centre = float(value)
    error = float(terms.std(ddof=1)) / np.sqrt(n)
    # Beside the losses themselves, which may be of any unit: less than this is rounding.
    size = max(float(np.abs(column).max()) for column in columns)
    size = float(np.sqrt(size)) if linear is gap_of_roots else size
    if not error > 1e-15 * size:
        return lambda alpha: (centre, centre)
    # Fewer differ than a bootstrap could make anything of.
    if len(terms) - np.unique(terms, return_counts=True)[1].max() < _SPARSE:
        far = np.abs(terms - np.median(terms)).max()
        error = max(error, float(np.sqrt((terms.var() * n + 2.0 * far**2) / (n * (n + 1.0)))))
        scores = np.zeros(1)
    else:
        scores = _t_scores(columns, linear, rng, least=1e-12 * size) if n <= MANY else np.zeros(1)

    def bounds(alpha: float) -> tuple[float, float]:
        down, up = reaches(scores, n - 1, alpha)
        return centre - error * down, centre + error * up

    return bounds


def _t_scores(
    columns: tuple[Floats, ...], linear: Linear, rng: np.random.Generator, *, least: float
) -> Floats:
    n, parts = len(columns[0]), []
    centre = linear(*columns)[0]
    block = max(1, _BLOCK // n)
    for start in range(0, RESAMPLES, block):
        rows = rng.integers(n, size=(min(block, RESAMPLES - start), n))
        value, terms = linear(*(column[rows] for column in columns))
        error = terms.std(axis=-1, ddof=1) / np.sqrt(n)
        varied = error > least  # a resample of one row n times says nothing
        parts.append((value[varied] - centre) / error[varied])
    return np.sort(np.concatenate([*parts, np.zeros(1)]))


def class_scores(parts: list[Floats], rng: np.random.Generator) -> Floats:
    """Bootstrap-t scores, sorted, of the sum of the classes' mean terms; ``parts`` are those terms."""
    moved, variance = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for terms in parts:
        n = len(terms)
        if not 2 <= n <= MANY:
            continue
        block = max(1, _BLOCK // n)
        for start in range(0, RESAMPLES, block):
            some = slice(start, min(start + block, RESAMPLES))
            drawn = terms[rng.integers(n, size=(some.stop - start, n))]
            moved[some] += drawn.mean(axis=1) - terms.mean()
            variance[some] += drawn.var(axis=1, ddof=1) / n
    varied = variance > 1e-20
    return np.sort(np.append(moved[varied] / np.sqrt(variance[varied]), 0.0))


def reaches(scores: Floats, freedom: float, alpha: float) -> tuple[float, float]:
    """Standard errors down and up: on either side the wider of Student's t and the bootstrap-t."""
    reach = float(stdtrit(freedom, 1.0 - alpha / 2.0))
    tail = _TAIL * alpha / 2.0
    below, above = np.quantile(scores, (tail, 1.0 - tail))
    return max(reach, float(above)), max(reach, -float(below))


def bias_corrected(
    score: Callable[[Index], float], strata: NDArray[np.intp] | None, n: int, rng: np.random.Generator
) -> Bounds:
    """BCa on resampled rows, widened for few rows, together with the jackknife's t: for any function of rows.

    ``strata`` are class labels: a resample that lost a class altogether is drawn again.
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
    draws = np.array([score(_resample(strata, n, rng)) for _ in range(RESAMPLES)])
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


def _resample(strata: NDArray[np.intp] | None, n: int, rng: np.random.Generator) -> Index:
    classes = 0 if strata is None else len(np.unique(strata))
    for _ in range(100):
        rows: Index = rng.integers(n, size=n)
        if strata is None or len(np.unique(strata[rows])) == classes:
            return rows
    return rows


def p_value(bounds: Bounds, *, floor: float = 1e-6) -> float:
    """The error probability at which the interval just reaches 0: 1 − p is the surest interval without it."""
    low, high = bounds(1.0 - 1e-9)
    if low <= 0.0 <= high:
        return 1.0
    least, most = np.log(floor), 0.0
    for _ in range(30):
        middle = 0.5 * (least + most)
        low, high = bounds(float(np.exp(middle)))
        least, most = (middle, most) if low <= 0.0 <= high else (least, middle)
    return float(np.exp(most))
