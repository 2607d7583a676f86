"""Confidence intervals of scores and of paired differences that hold with few rows.

Accuracy: exact (Clopper–Pearson, McNemar). F1 of two classes: exact. Mean losses: the wider of Student's t
and the bootstrap-t. AUROC and Hand–Till: DeLong's variance with Satterthwaite's degrees of freedom on the
logit scale. Any other function: bias-corrected bootstrap. The coverage that was measured:
docs/results/verdict.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, betaincinv, stdtr, stdtrit

from mixtree.errors import DataError, InputError
from mixtree.metrics import (
    ABSOLUTE_LOSS,
    ACCURACY,
    AUROC,
    F1,
    HAND_TILL,
    LOG_LOSS,
    MAE,
    RMSE,
    SQUARED_LOSS,
    Metric,
    absent_classes,
    as_labels,
    f1_parts,
)
from mixtree.stats.delong import every_class_in, of_area, of_gap_of_areas, terms_of, within
from mixtree.stats.resampling import (
    LEVEL,
    RESAMPLES,
    Bounds,
    Floats,
    bias_corrected,
    of_gap_of_roots,
    of_mean,
)

Role: TypeAlias = Literal["test", "holdout", "nested", "joined", "cross-fitted", "validation", "trained"]
"""What the rows did before they scored: ``validation`` rows chose the model, ``trained`` rows made it; of
``joined`` ones each was predicted by models and weights that were made without it."""

FEW = 20
"""Rows below which the 95 % of an interval cannot be relied on."""

_FEWEST_RESAMPLES = 1.0 / (RESAMPLES + 1.0)  # the smallest p-value that resampling alone can give
_SMALLEST = 1e-12  # p-value that is ever claimed
_ROUNDING = 1e-12  # relative difference of two predictions that counts as none
_RARE, _IMAGINED = 10, 2  # rows of the rarest class below which so many more are imagined
_IMPOSSIBLE = 1e-6  # probability floor, so that one error cannot make the loss infinite
_TOGETHER = "a part of the rows lacks a class: what different models predict is ranked together"
_FEWEST = 3  # rows that can tell two models apart, and losses from one another
_SAME: tuple[str, Bounds, float] = ("identical", lambda alpha: (0.0, 0.0), 1.0)
_CHOSEN = ("cross-fitted", "validation", "trained")


@dataclass(frozen=True, slots=True)
class ScoreInterval:
    """A score with its 95 % interval.

    Attributes
    ----------
    value, low, high
        The score and its interval; NaN where there is none, and then ``notes`` says why.
    rows
        Rows that were scored.
    method
        How the interval was made.
    optimistic
        Whether these rows also chose or trained the model: the score is then too good.
    notes
        What a reader should know.
    role
        What the rows did before they scored, where it is known.
    """

    value: float
    low: float
    high: float
    rows: int
    method: str
    optimistic: bool
    notes: tuple[str, ...] = ()
    role: Role | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One model's score minus another's on the same rows, with its 95 % interval and p-value.

    The interval and the p-value never disagree: p ≤ 0.05 exactly where the interval leaves 0 out.

    Attributes
    ----------
    value, low, high
        The difference and its interval; NaN where there is none, and then ``notes`` says why.
    p
        p-value of "there is no difference".
    rows
        Rows that were compared.
    method
        How the interval was made.
    higher_is_better
        Whether a positive difference is good for the first model.
    notes
        What a reader should know.
    """

    value: float
    low: float
    high: float
    p: float
    rows: int
    method: str
    higher_is_better: bool
    notes: tuple[str, ...] = ()

    @property
    def outcome(self) -> Literal["better", "worse", "not distinguishable", "the same", "unknown"]:
        """What may be said of the first model."""
        if not np.isfinite(self.value):
            return "unknown"
        if self.value == self.low == self.high == 0.0:
            return "the same"
        if self.low <= 0.0 <= self.high:
            return "not distinguishable"
        return "better" if (self.value > 0.0) == self.higher_is_better else "worse"


def honest_score(
    metric: Metric,
    y: ArrayLike,
    predictions: ArrayLike,
    *,
    rows_role: Role,
    level: float = LEVEL,
    seed: int = 0,
) -> ScoreInterval:
    """The score of one model's predictions with an interval that is safe for few rows.

    Parameters
    ----------
    metric
        What scores.
    y
        Labels, (n,).
    predictions
        (n, classes) or (n,).
    rows_role
        What these rows did before: of "cross-fitted", "validation" and "trained" rows the score is
        optimistic.
    level
        Of the interval, at least 0.5.
    seed
        Draws bootstrap samples.

    Returns
    -------
    ScoreInterval
        The score, its interval and what to know about it.

    Examples
    --------
    >>> from mixtree.metrics import ACCURACY
    >>> labels = np.array([0, 1] * 15)
    >>> score = honest_score(ACCURACY, labels, np.eye(2)[labels], rows_role="test")
    >>> score.value, round(score.low, 3), score.high
    (1.0, 0.884, 1.0)
    """
    _check_level(level)
    labels, given = as_labels(y), _as_floats(predictions)
    optimistic = rows_role in _CHOSEN
    value, notes = _value(metric, labels, given)
    if not np.isfinite(value):
        return ScoreInterval(np.nan, np.nan, np.nan, len(labels), "none", optimistic, notes, rows_role)
    if len(labels) == 1 and not _is_accuracy(metric):
        notes = (*notes, *_few(1))
        return ScoreInterval(value, np.nan, np.nan, 1, "none", optimistic, notes, rows_role)
    method, bounds = _score_bounds(metric, labels, given, value, np.random.default_rng(seed))
    low, high = bounds(1.0 - level)
    if is_error(metric):
        low = max(low, 0.0)
    if _is_within_1(metric):
        low, high = max(low, 0.0), min(high, 1.0)
    if low == 0.0 < value and is_error(metric):
        squares = _is_root(metric) or metric.contributions is SQUARED_LOSS.contributions
        steadier = ": mae hangs less on them" if squares else ""
        notes = (
            *notes,
            f"so much of the {metric.name} is of a few rows that its interval reaches 0{steadier}",
        )
    if low == high:
        notes = (*notes, "all rows score the same: the interval knows nothing of rows that would not")
    notes = (*notes, *_few(len(labels)))
    low, high = min(low, value), max(high, value)
    return ScoreInterval(value, low, high, len(labels), method, optimistic, notes, rows_role)


def paired_difference(
    metric: Metric,
    y: ArrayLike,
    one: ArrayLike,
    two: ArrayLike,
    *,
    made_up: float = 0.0,
    folds: NDArray[np.intp] | None = None,
    wider: float = 1.0,
    further: float = 0.0,
    level: float = LEVEL,
    seed: int = 0,
) -> Difference:
    """The first model's score minus the second's, paired by row.

    Parameters
    ----------
    metric
        What scores.
    y
        Labels, (n,).
    one, two
        Both models' predictions.
    made_up
        Selection bias: by how much the first is expected to look better than it is, because these rows chose
        it (see :func:`mixtree.verdict.cross_fitted`). It is taken off, and the interval extended by it.
    folds
        A fold number for every row, where each fold was predicted by its own model: areas are compared
        within folds, because two models' predictions cannot be ranked together.
    wider
        Factor by which the interval is widened, for other differences between those models and the one that
        is meant.
    further
        Extra margin on the better side: by how much that one may be better still.
    level
        Of the interval, at least 0.5.
    seed
        Draws bootstrap samples.

    Returns
    -------
    Difference
        The difference, its interval and its p-value.

    Raises
    ------
    InputError
        If the predictions differ in shape.

    Examples
    --------
    >>> from mixtree.metrics import MAE
    >>> paired_difference(MAE, [1.0, 2.0, 3.0], [1.0, 2.0, 4.0], [1.0, 2.0, 4.0]).outcome
    'the same'
    """
    _check_level(level)
    labels, first, second = as_labels(y), _as_floats(one), _as_floats(two)
    if first.shape != second.shape:
        raise InputError(f"predictions of shapes {first.shape} and {second.shape} are not of the same rows")
    rows, higher = len(labels), metric.higher_is_better
    values, notes = _both_values(metric, labels, first, second)
    if not np.isfinite(values).all():
        return Difference(np.nan, np.nan, np.nan, np.nan, rows, "none", higher, notes)
    if rows < _FEWEST:
        notes = (*notes, f"{('one row', 'two rows')[rows - 1]} cannot tell two models apart")
        return Difference(np.nan, np.nan, np.nan, np.nan, rows, "none", higher, notes)
    if folds is not None and is_area(metric) and every_class_in(folds, labels):
        with absent_classes():
            values = tuple(within(metric, labels, each, folds) for each in (first, second))
    elif folds is not None:
        notes = (*notes, *((_TOGETHER,) if is_area(metric) else ()))
        folds = None
    off, raw = made_up if higher else -made_up, values[0] - values[1]
    gap = raw - off
    if np.allclose(first, second, rtol=_ROUNDING, atol=0.0):
        same = (*notes, "both models predict the same")
        return Difference(0.0, 0.0, 0.0, 1.0, rows, "identical", higher, same)
    rng = np.random.default_rng(seed)
    method, plain, least = _gap_bounds(metric, labels, (first, second), values, rng, folds)

    def bounds(alpha: float) -> tuple[float, float]:
        low, high = plain(alpha)
        low, high = raw - wider * (raw - low), raw + wider * (high - raw)
        low, high = low - max(off, 0.0), high - min(off, 0.0)
        return (low, high + further) if higher else (low - further, high)

    low, high = bounds(1.0 - level)
    if _is_within_1(metric):
        low, high, gap = max(low, -1.0), min(high, 1.0), min(max(gap, -1.0), 1.0)
    low, high = min(low, gap), max(high, gap)  # but for rounding they hold it
    p = max(_p_value(bounds), least)
    if p == least == _FEWEST_RESAMPLES:  # beyond all resamples: the tail of a t tells how far
        # An area depends on the rows of the rarest class, however many the others have.
        freedom = int(np.unique(labels, return_counts=True)[1].min()) - 1 if is_area(metric) else rows - 1
        p = min(p, _tail(gap, low, high, freedom, level))
    return _agreed(Difference(gap, low, high, p, rows, method, higher, (*notes, *_few(rows))), 1.0 - level)


@dataclass(frozen=True, eq=False, slots=True)
class Repeat:
    """What two algorithms' models of one repeat predict for its test rows."""

    y: NDArray[Any]
    one: NDArray[Any]
    two: NDArray[Any]
    rows: NDArray[np.intp]
    """A number for every test row, by which it is known in the other repeats."""


def repeated_difference(
    metric: Metric, repeats: Sequence[Repeat], *, level: float = LEVEL, seed: int = 0
) -> Difference:
    """The first algorithm's score minus the second's, the mean over repeats; paired by repeat and by row.

    Its variance is that between repeats / R plus that within rows / n. A row that several repeats test
    counts by its mean, so that shared rows are not counted R times. The part of the differences between
    repeats that rows alone explain is within the rows already. The interval is the wider of Satterthwaite's
    and of the two parts' own (Student's t with R − 1 degrees of freedom for the repeats) put together; two
    repeats, which tell little, take the second, with all that is between them. One repeat has the interval of
    its rows.

    Parameters
    ----------
    metric
        What scores.
    repeats
        Labels, both predictions and row numbers of each of the R repeats.
    level
        Of the interval, at least 0.5.
    seed
        Draws bootstrap samples.

    Returns
    -------
    Difference
        The mean difference, its interval and its p-value.
    """
    if len(repeats) == 1:
        (only,) = repeats
        return paired_difference(metric, only.y, only.one, only.two, level=level, seed=seed)
    _check_level(level)
    gaps, bounds, methods, all_notes, terms = [], list[Bounds](), [], list[str](), []
    least = _FEWEST_RESAMPLES
    for each in repeats:
        labels, one, two = as_labels(each.y), _as_floats(each.one), _as_floats(each.two)
        values, notes = _both_values(metric, labels, one, two)
        all_notes += notes
        if not np.isfinite(values).all() or len(labels) < _FEWEST:
            return paired_difference(metric, labels, one, two, level=level, seed=seed)
        gaps.append(values[0] - values[1])
        rng = np.random.default_rng(seed)
        same = np.allclose(one, two, rtol=_ROUNDING, atol=0.0)
        found = _SAME if same else _gap_bounds(metric, labels, (one, two), values, rng, None)
        methods.append(found[0])
        bounds.append(found[1])
        if found[0] == "sign test":
            least = max(least, found[2])
        terms.append(_row_terms(metric, labels, one, two))
    everywhere = np.unique(np.concatenate([each.rows for each in repeats]))
    rows, higher = len(everywhere), metric.higher_is_better
    notes = (*dict.fromkeys(all_notes), *_few(rows))
    if all(method == "identical" for method in methods):
        same_notes = (*notes, "both models predict the same")
        return Difference(0.0, 0.0, 0.0, 1.0, rows, "identical", higher, same_notes)
    gap, parts = float(np.mean(gaps)), _Parts.of(np.array(gaps), repeats, terms, everywhere)

    def of_rows(alpha: float) -> Floats:
        ends = np.array([each(alpha) for each in bounds])
        reaches = np.abs(ends - np.array(gaps)[:, None])
        found: Floats = np.sqrt(parts.shared * np.square(reaches).mean(axis=0))
        return found

    freedom = parts.freedom(of_rows(1.0 - LEVEL), rows)

    def both(alpha: float) -> tuple[float, float]:
        down, up = parts.reaches(of_rows(alpha), freedom, rows, alpha)
        return gap - down, gap + up

    low, high = both(1.0 - level)
    if is_share(metric):
        low, high = max(low, -1.0), min(high, 1.0)
    p = max(_p_value(both), least)
    if p == least == _FEWEST_RESAMPLES:
        p = min(p, _tail(gap, low, high, len(repeats) - 1 if parts.between > 0.0 else rows - 1, level))
    method = f"mean of {len(repeats)} repeats, {' / '.join(dict.fromkeys(methods))}"
    return _agreed(Difference(gap, low, high, p, rows, method, higher, notes), 1.0 - level)


@dataclass(frozen=True, eq=False, slots=True)
class _Parts:
    """Where the variance of a mean over repeats comes from."""

    repeats: int
    between: float
    """Of the mean, by what repeats differ in, beyond what rows alone make of them."""
    whole: float
    """The same with what rows make of them."""
    shared: float
    """The variance within rows of the mean over repeats, as a part of that of one repeat."""

    @classmethod
    def of(
        cls,
        gaps: Floats,
        repeats: Sequence[Repeat],
        terms: Sequence[Floats | None],
        everywhere: NDArray[np.intp],
    ) -> _Parts:
        count, whole = len(gaps), float(gaps.var(ddof=1)) / len(gaps)
        moved = np.zeros((count, len(everywhere)))
        for place, (each, own) in enumerate(zip(repeats, terms, strict=True)):
            if own is None:  # of a user's function: nothing is known of single rows, so nothing is taken off
                return cls(count, whole, whole, 1.0)
            np.add.at(moved[place], np.searchsorted(everywhere, each.rows), own)
        covariance = moved @ moved.T
        alone = float(np.trace(covariance)) / count
        if not alone > 0.0:
            return cls(count, whole, whole, 1.0)
        together = (float(covariance.sum()) - count * alone) / (count * (count - 1))
        made = (alone - together) / count
        # Two repeats say next to nothing of what is between them: all of it is kept.
        between = max(whole - made, 0.0) if count > 2 else whole
        if whole < _ROUNDING * alone:
            whole = between = 0.0
        shared = float(np.clip(covariance.sum() / count**2 / alone, 1.0 / count, 1.0))
        return cls(count, between, whole, shared)

    def freedom(self, of_rows: Floats, rows: int) -> Floats:
        """Satterthwaite's degrees of freedom down and up, by how far the rows' own interval goes."""
        within = np.square(of_rows / float(stdtrit(rows - 1, 0.5 + 0.5 * LEVEL)))
        total = self.whole**2 / (self.repeats - 1) + within**2 / (rows - 1)
        found: Floats = np.full(2, rows - 1.0)
        np.divide((within + self.between) ** 2, total, out=found, where=total > 0.0)
        return np.clip(found, 1.0, rows - 1.0)

    def reaches(self, of_rows: Floats, freedom: Floats, rows: int, alpha: float) -> Floats:
        """How far the interval goes down and up, by how far that of the rows does."""
        side = 1.0 - alpha / 2.0
        error, usual = np.sqrt(self.between), float(stdtrit(rows - 1, side))
        reach: Floats = np.hypot(of_rows, float(stdtrit(self.repeats - 1, side)) * error)
        if self.repeats > 2:
            reach = np.maximum(reach, stdtrit(freedom, side) / usual * np.hypot(of_rows, usual * error))
        return reach


def _row_terms(metric: Metric, labels: NDArray[Any], one: Floats, two: Floats) -> Floats | None:
    """By how much every row moves the difference, adding up to 0; None where that is not known."""
    if metric.contributions is None or (metric.by_class and not is_area(metric)):
        return None
    terms = terms_of(metric, labels, one) - terms_of(metric, labels, two)
    strata = labels.astype(np.intp) if is_area(metric) else np.zeros(len(labels), dtype=np.intp)
    sizes = np.bincount(strata)
    means = np.bincount(strata, weights=terms) / np.maximum(sizes, 1)
    moved: Floats = (terms - means[strata]) / sizes[strata]
    return moved


def _p_value(bounds: Bounds, *, floor: float = 1e-6) -> float:
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


def _tail(gap: float, low: float, high: float, freedom: int, level: float) -> float:
    """The p-value of a difference with this interval, as a t distribution continues it beyond 0."""
    reach, df = (gap - low if gap > 0.0 else high - gap), max(freedom, 1)
    if not reach > 0.0:
        return 1.0
    far = abs(gap) / reach * float(stdtrit(df, 0.5 + 0.5 * level))
    return max(float(2.0 * stdtr(df, -far)), _SMALLEST)


def corrected(differences: Sequence[Difference], *, level: float = LEVEL) -> tuple[Difference, ...]:
    """Holm's correction for looking several times: larger p-values, and intervals that agree with them.

    >>> one = Difference(0.1, 0.01, 0.19, 0.03, 100, "t", True)
    >>> [(each.p, each.low) for each in corrected([one, one])]
    [(0.06, 0.0), (0.06, 0.0)]
    """
    _check_level(level)
    ps = np.array([each.p for each in differences], dtype=np.float64)
    known = np.flatnonzero(np.isfinite(ps))
    order = known[np.argsort(ps[known], kind="stable")]
    adjusted = ps.copy()
    adjusted[order] = np.minimum(np.maximum.accumulate(ps[order] * np.arange(len(order), 0, -1)), 1.0)
    return tuple(
        _agreed(replace(each, p=float(p)), 1.0 - level) for each, p in zip(differences, adjusted, strict=True)
    )


def _agreed(difference: Difference, alpha: float) -> Difference:
    """The same with an interval that holds 0 if p is above alpha: wider is still honest."""
    if difference.p > alpha:
        low, high = min(difference.low, 0.0), max(difference.high, 0.0)
        return replace(difference, low=low, high=high)
    return difference


# ------------------------------------------------------------------------------------------- what is known


def _as_floats(predictions: ArrayLike) -> NDArray[Any]:
    return np.ascontiguousarray(predictions, dtype=np.float64)


def _value(
    metric: Metric, labels: NDArray[Any], predictions: NDArray[Any], whose: str = "the model"
) -> tuple[float, tuple[str, ...]]:
    """The score, or NaN and why there is none."""
    with absent_classes() as notes:
        try:
            value = metric(labels, predictions)
        except DataError as error:  # no rows, or one class only
            return np.nan, (str(error),)
    if not np.isfinite(value):
        return np.nan, (*notes, f"{whose}'s predictions are not finite: it diverged and has no score")
    return value, tuple(notes)


def _both_values(
    metric: Metric, labels: NDArray[Any], first: NDArray[Any], second: NDArray[Any]
) -> tuple[tuple[float, ...], tuple[str, ...]]:
    both = ((first, "the model"), (second, "the reference"))
    values, notes = zip(*(_value(metric, labels, each, whose) for each, whose in both), strict=True)
    return values, tuple(dict.fromkeys((*notes[0], *notes[1])))


def _few(rows: int) -> tuple[str, ...]:
    return (f"only {rows} rows: the interval's 95 % is not to be relied on",) if rows < FEW else ()


def _check_level(level: float) -> None:
    if not 0.5 <= level < 1.0:
        raise InputError(f"an interval's level must be at least 0.5 and below 1; got {level:g}")


def _is_accuracy(metric: Metric) -> bool:
    return metric.contributions is ACCURACY.contributions


def is_area(metric: Metric) -> bool:
    """Whether it is an area under the curve, AUROC or Hand–Till."""
    return any(metric.contributions is each.contributions for each in (AUROC, HAND_TILL))


def is_share(metric: Metric) -> bool:
    """Whether it lies between 0 and 1 and is best at 1: an accuracy, F1 or an area."""
    return _is_accuracy(metric) or is_area(metric) or _is_f1(metric)


def _is_within_1(metric: Metric) -> bool:
    """Whether it is a share, of all rows or of the worst group of them."""
    values: Any = metric.values
    return is_share(values.keywords["inner"] if isinstance(values, partial) and metric.column else metric)


def is_error(metric: Metric) -> bool:
    """Whether it is a mean of losses that cannot be negative, or the root of one."""
    given = metric.contributions
    rows = given.func if isinstance(given, partial) else given  # in other units it is still a loss
    losses = (LOG_LOSS, SQUARED_LOSS, ABSOLUTE_LOSS, MAE)
    return _is_root(metric) or any(rows is each.contributions for each in losses)


def _is_f1(metric: Metric) -> bool:
    return metric.contributions is F1.contributions


def _by_bootstrap(metric: Metric, rows: int) -> bool:
    if metric.contributions is None or (metric.by_class and not is_area(metric)):
        return True
    return rows < _FEWEST and not (_is_accuracy(metric) or is_area(metric))


def _is_root(metric: Metric) -> bool:
    return metric.contributions is RMSE.contributions


def _columns(metric: Metric, labels: NDArray[Any], predictions: NDArray[Any], value: float) -> Floats:
    """Losses of the rows; their mean is the score, or its square for the root of a mean."""
    terms = terms_of(metric, labels, predictions)
    if _is_root(metric):
        return terms * (2.0 * value)
    off = value - float(terms.mean())  # of a user's metric whose terms only follow its value
    return terms + off if abs(off) > 1e-9 * max(abs(value), float(np.abs(terms).max())) else terms


# -------------------------------------------------------------------------------------------------- one score


def _score_bounds(
    metric: Metric, labels: NDArray[Any], predictions: NDArray[Any], value: float, rng: np.random.Generator
) -> tuple[str, Bounds]:
    if _by_bootstrap(metric, len(labels)):
        return "bias-corrected bootstrap", _any_bounds(metric, labels, (predictions,), rng)
    if is_area(metric):
        return of_area(metric, labels, predictions, value)
    if _is_accuracy(metric):
        return "Clopper–Pearson", lambda alpha: _exact(round(value * len(labels)), len(labels), alpha)
    column = _columns(metric, labels, predictions, value)
    bounds = of_mean(column, rng)
    if _is_f1(metric):
        return _of_f1(labels, predictions, bounds)
    if (more := _more_rows(metric, labels, [predictions], [column])) is not None:
        bounds = _union(bounds, _students(np.append(column, [more[0]] * _IMAGINED)))
    if (mistake := _one_more_mistake(metric, labels, [predictions], [column])) is not None:
        bounds = _union(bounds, _students(np.append(column, mistake)))
    if _is_root(metric):

        def roots(alpha: float) -> tuple[float, float]:
            low, high = bounds(alpha)
            return float(np.sqrt(max(low, 0.0))), float(np.sqrt(max(high, 0.0)))

        return "root of Student's t and bootstrap-t", roots
    return "Student's t and bootstrap-t", bounds


def _more_rows(
    metric: Metric, labels: NDArray[Any], stacks: Sequence[NDArray[Any]], columns: Sequence[Floats]
) -> Floats | None:
    """What each model may be expected to lose on one more row of the rarest class; None if it has enough.

    A log-loss depends on how many of those rows there are, which two or three do not tell. What they lose is
    known from their own losses, and from what the others would lose if they were of that class. Of several
    classes that are equally rare the one counts on which most is lost, or that sets two models most apart.
    """
    if metric.contributions is not LOG_LOSS.contributions:
        return None
    counts = np.bincount(labels.astype(np.intp), minlength=stacks[0].shape[1])
    # A class that no row has may be one that there is nowhere, unless there are but two.
    known = counts > 0 if len(counts) > 2 else np.ones(len(counts), dtype=np.bool_)
    least = int(counts[known].min())
    if least >= _RARE:
        return None
    rarest, losses = np.flatnonzero(known & (counts == least)), []
    for predictions, column in zip(stacks, columns, strict=True):
        own = np.bincount(labels.astype(np.intp), weights=column, minlength=len(counts))[rarest]
        turned = -np.log(np.maximum(predictions[:, rarest], _IMPOSSIBLE)).mean(axis=0)
        losses.append((own + _IMAGINED * turned) / (least + _IMAGINED))
    most = np.abs(losses[0] - losses[1]) if len(losses) == 2 else losses[0]
    return np.array(losses)[:, int(most.argmax())]


def _one_more_mistake(
    metric: Metric, labels: NDArray[Any], stacks: Sequence[NDArray[Any]], columns: Sequence[Floats]
) -> float | None:
    """What a model may be expected to lose on one more row that it gets wrong; None if it has enough of them.

    A log-loss depends on how many those are. What they lose is known from their own losses, and from what
    the others would lose if they were of the model's second most probable class. Of two models: by how much
    such a row sets them apart, to either side.
    """
    if metric.contributions is not LOG_LOSS.contributions or stacks[0].shape[1] < 2:
        return None
    wrong = np.any([each.argmax(axis=1) != labels for each in stacks], axis=0)
    count = int(wrong.sum())
    if count >= _RARE:
        return None
    second = [np.partition(each[~wrong], -2, axis=1)[:, -2] for each in stacks]
    turned = [-np.log(np.maximum(each, _IMPOSSIBLE)) for each in second]
    lost, would = (
        parts[0] if len(parts) == 1 else np.abs(parts[0] - parts[1]) for parts in (columns, turned)
    )
    return float(lost[wrong].sum() + (would.mean() if len(would) else 0.0)) / (count + 1)


def _one_more_hit(
    _metric: Metric, labels: NDArray[Any], stacks: Sequence[NDArray[Any]], _columns: Sequence[Floats]
) -> float | None:
    """By how much two F1s are set apart by one more row that one model gets right and the other does not.

    None if there are enough rows on which one of them is wrong. Of several classes the rarest one counts.
    """
    predicted, _, size, shares = f1_parts(labels.astype(np.intp), np.stack(stacks))
    if int((predicted != labels).any(axis=0).sum()) >= _RARE:
        return None
    return float((2.0 * len(labels) * shares / np.maximum(size, 1.0)).max())


def _of_f1(labels: NDArray[Any], predictions: NDArray[Any], of_mean: Bounds) -> tuple[str, Bounds]:
    """F1 is 2·J/(1 + J), and J the share of hits among the rows that are or are said to be of the class.

    For two classes that is all. For more, the classes' own intervals are put together as if they were
    independent, and united with that of the mean, which is sharper but ignores rows that were not seen.
    """
    parts = f1_parts(labels.astype(np.intp), predictions[None])[1:]
    scores, size, shares = (part[0][parts[2][0] > 0.0] for part in parts)
    hits = np.rint(scores * size / 2.0)

    def bounds(alpha: float) -> tuple[float, float]:
        ends = [_exact(int(hit), int(rows), alpha) for hit, rows in zip(hits, size - hits, strict=True)]
        low, high = np.array([[2.0 * share / (1.0 + share) for share in each] for each in ends]).T
        value = float(scores @ shares)
        down, up = (float(np.linalg.norm(shares * (scores - each))) for each in (low, high))
        return value - down, value + up

    if len(scores) == 1:
        return "Clopper–Pearson", bounds
    return "Clopper–Pearson by class, Student's t and bootstrap-t", _union(bounds, of_mean)


def _students(column: Floats) -> Bounds:
    """Bounds of a mean by Student's t alone: resampling imagined rows would tell nothing."""
    mean, error = float(column.mean()), float(column.std(ddof=1)) / np.sqrt(len(column))

    def bounds(alpha: float) -> tuple[float, float]:
        reach = float(stdtrit(len(column) - 1, 1.0 - alpha / 2.0)) * error
        return mean - reach, mean + reach

    return bounds


def _union(one: Bounds, two: Bounds) -> Bounds:
    def bounds(alpha: float) -> tuple[float, float]:
        (low, high), (other_low, other_high) = one(alpha), two(alpha)
        return min(low, other_low), max(high, other_high)

    return bounds


def _exact(hits: int, rows: int, alpha: float) -> tuple[float, float]:
    low = float(betaincinv(hits, rows - hits + 1, alpha / 2.0)) if hits else 0.0
    high = float(betaincinv(hits + 1, rows - hits, 1.0 - alpha / 2.0)) if hits < rows else 1.0
    return low, high


# ------------------------------------------------------------------------------------------------ differences


def _gap_bounds(
    metric: Metric,
    labels: NDArray[Any],
    pair: tuple[NDArray[Any], NDArray[Any]],
    values: tuple[float, ...],
    rng: np.random.Generator,
    folds: NDArray[np.intp] | None,
) -> tuple[str, Bounds, float]:
    """Method, bounds, and the smallest p-value that it can give."""
    least = _FEWEST_RESAMPLES
    if _by_bootstrap(metric, len(labels)):
        return "bias-corrected bootstrap", _any_bounds(metric, labels, pair, rng), least
    if is_area(metric):
        return *of_gap_of_areas(metric, labels, pair, values, rng, folds), least
    if _is_accuracy(metric):
        return _mcnemar(*(terms_of(metric, labels, each) for each in pair))
    one, two = (_columns(metric, labels, each, value) for each, value in zip(pair, values, strict=True))
    if _is_root(metric):
        bounds = of_gap_of_roots(one, two, rng)
    else:
        bounds = of_mean(one - two, rng, size=float(max(np.abs(one).max(), np.abs(two).max())))
        if (more := _more_rows(metric, labels, pair, (one, two))) is not None:
            bounds = _union(bounds, _students(np.append(one - two, [more[0] - more[1]] * _IMAGINED)))
        apart = (_one_more_hit if _is_f1(metric) else _one_more_mistake)(metric, labels, pair, (one, two))
        if apart is not None:
            for either in (apart, -apart):
                bounds = _union(bounds, _students(np.append(one - two, either)))
    if bounds(0.5)[0] == bounds(0.5)[1] != 0.0:
        # One and the same difference on every row: a sign test is all there is.
        return "sign test", bounds, 0.5 ** (len(labels) - 1)
    return "Student's t and bootstrap-t, paired", bounds, least


def _mcnemar(one: Floats, two: Floats) -> tuple[str, Bounds, float]:
    """Bonett and Price's interval of a paired difference of shares, with McNemar's exact p-value."""
    n, won, lost = len(one), int(np.sum(one > two)), int(np.sum(one < two))
    gap = (won - lost) / n
    exact = 1.0 if won == lost else min(1.0, 2.0 * float(bdtr(min(won, lost), won + lost, 0.5)))
    shares = (won + 1.0) / (n + 2.0), (lost + 1.0) / (n + 2.0)
    centre = shares[0] - shares[1]
    error = np.sqrt((sum(shares) - centre**2) / (n + 2.0))

    def bounds(alpha: float) -> tuple[float, float]:
        reach = float(stdtrit(max(n - 1, 1), 1.0 - alpha / 2.0)) * error
        low, high = max(centre - reach, -1.0), min(centre + reach, 1.0)
        return min(low, gap), max(high, gap)

    return "McNemar exact, Bonett–Price", bounds, exact


def _any_bounds(
    metric: Metric, labels: NDArray[Any], stacks: tuple[NDArray[Any], ...], rng: np.random.Generator
) -> Bounds:
    def score(rows: NDArray[np.intp]) -> float:
        try:  # straight to the function: all rows were checked before
            values = [float(metric.values(labels[rows], each[None, rows])[0]) for each in stacks]
        except Exception:  # of a user's function, which all rows did not trouble: say, one class only
            return np.nan
        return values[0] if len(values) == 1 else values[0] - values[1]

    strata = labels.astype(np.intp) if stacks[0].ndim == 2 else None
    with absent_classes():
        return bias_corrected(score, strata, len(labels), rng)
