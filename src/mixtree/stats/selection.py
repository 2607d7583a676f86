"""Rows that choose cannot also judge: a slice kept aside, cross-fitting where that is too small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mixtree.errors import DataError, InputError
from mixtree.metrics import Metric, as_labels
from mixtree.stats.choosing import ROUNDING, Chooser, all_finite, numbers, scores_of_picked, stacked
from mixtree.stats.intervals import ScoreInterval, honest_score, is_share
from mixtree.stats.resampling import Floats

if TYPE_CHECKING:
    from mixtree.data.sources import Rows, Sources

LEAST_HELD = 50
"""Rows of the smallest slice worth keeping: the fewest for which the intervals' coverage was measured."""
MOST_SHARE = 1 / 3
"""Of the validation rows at most: the search has to choose with the others."""
USUAL_SHARE = 1 / 4
MOST_HELD = 2_000
"""Rows with which a score is known to about a hundredth; more would only be taken from the search."""

_NESTED, _TRIES = 5, 50  # folds of whole fits, and how often they are drawn until every one has all classes
_BINS = 10  # strata of a regression's targets
_REPEATS = 10  # of splitting the rows: what another ten splits would change is a tenth of the score's error


def holdout(
    sources: Sources, fraction: float | None = None, *, seed: int, metric: Metric | None = None
) -> tuple[Sources, Rows | None]:
    """The sources with fewer validation rows, and the rows kept aside before anything has seen them.

    Labels are stratified. A class of two or more rows has one on either side, unless there are many classes
    and the metric can do without: ensuring that makes rare classes too frequent among the rows that score.

    Parameters
    ----------
    sources
        Whose validation rows are split.
    fraction
        Share of the rows kept aside. By default a quarter, at least 50 and at most 2,000 rows; none below 150
        validation rows, where 50 would be more than a third of them (then cross-fit the nodes' scores).
    seed
        Draws the rows.
    metric
        What the rows will score; None if not known.

    Returns
    -------
    tuple
        The sources with the other rows; the rows kept aside, or None.

    Raises
    ------
    DataError
        If the fraction leaves too few rows on one side.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> kept, held = holdout(synthetic(validation=200, test=1).sources, seed=0)
    >>> len(kept.validation), len(held)
    (150, 50)
    """
    count = len(sources.validation)
    if fraction is None:
        wanted = min(max(LEAST_HELD, round(USUAL_SHARE * count)), MOST_HELD)
        wanted = 0 if count * MOST_SHARE < LEAST_HELD else wanted
    elif isinstance(fraction, int | float | np.number) and 0.0 <= fraction < 1.0:
        wanted = max(1, round(fraction * count)) if fraction else 0
    else:
        raise InputError(f"a holdout is a share of at least 0 and below 1; got {fraction!r}")
    if not wanted:
        return sources, None
    if wanted >= count:
        raise DataError(
            f"a holdout of {fraction:g} of {count} validation rows leaves none to choose with: lower it"
        )
    every = metric is None or metric.by_class or metric.contributions is None or sources.classes == 2
    aside = _stratified(
        sources.validation.y,
        wanted,
        classes=sources.classes,
        every=every,
        rng=np.random.default_rng(seed),
    )
    if np.count_nonzero(aside) < 2:
        if fraction is None:  # as many classes as rows
            return sources, None
        raise DataError(
            f"a holdout of {fraction:g} of {count} validation rows is too small to score anything: raise it"
        )
    kept = replace(sources, validation=sources.validation.take(np.flatnonzero(~aside)))
    return kept, sources.validation.take(np.flatnonzero(aside))


def _stratified(
    y: NDArray[Any], wanted: int, *, classes: int, every: bool, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which rows are taken: about so many; ``every`` class of two or more rows has one on either side."""
    count = len(y)
    strata = y if classes else np.searchsorted(np.quantile(y, np.linspace(0, 1, _BINS + 1)[1:-1]), y)
    order = np.lexsort((rng.random(count), strata))
    # From anywhere in the first step on: else the last class, often the rare one, had its share rounded up.
    ticks = np.floor(np.arange(count + 1) * (wanted / count) + rng.random())
    taken = np.zeros(count, dtype=np.bool_)
    taken[order] = np.diff(ticks) > 0
    for label in np.unique(y) if classes and every else ():
        mine = np.flatnonzero(y == label)
        if len(mine) > 1 and taken[mine].all():
            taken[mine[rng.integers(len(mine))]] = False
        elif len(mine) > 1 and not taken[mine].any() and wanted > 1:
            taken[mine[rng.integers(len(mine))]] = True
        elif len(mine) == 1:
            taken[mine] = False  # the search needs it more: it cannot be scored on its own anyway
    return taken


# ---------------------------------------------------------------------------------------------- cross-fitting


@dataclass(frozen=True, slots=True)
class CrossFit:
    """The returned node's score minus its selection bias, found by choosing again on parts of the rows.

    Attributes
    ----------
    value, low, high
        The corrected score and its 95 % interval.
    naive
        The score on the rows that chose the node.
    optimism
        The selection bias in it: 0 or more, in the metric's unit.
    queries
        Nodes that were compared.
    rows
        Rows that chose.
    notes
        What a reader should know.
    did
        What the rows did to the returned model.
    """

    value: float
    low: float
    high: float
    naive: float
    optimism: float
    queries: int
    rows: int
    notes: tuple[str, ...] = ()
    did: Literal["chose", "trained"] = "chose"
    """What the rows did to the returned model: of one that they trained, models of folds are scored."""

    def moved(self, by: float) -> CrossFit:
        """All of it shifted: an area, which stays in [0, 1], is better taken within folds."""
        if not by or not isfinite(self.value):
            return self
        ends = np.array([self.value, self.naive, self.low, self.high]) + by
        value, naive, low, high = np.clip(ends, 0.0, 1.0).tolist()
        return replace(self, value=value, naive=naive, low=low, high=high)

    def as_score(self) -> ScoreInterval:
        """The same as a score; cross-fitting leaves a part of the optimism in, so it is marked optimistic."""
        return ScoreInterval(
            self.value, self.low, self.high, self.rows, "cross-fitted", True, self.notes, "cross-fitted"
        )


def cross_fitted(
    metric: Metric,
    y: ArrayLike,
    predictions: Mapping[Any, ArrayLike],
    values: Mapping[Any, float] | None = None,
    *,
    chosen: Any = None,
    objective: Metric | None = None,
    rivals: Mapping[Any, Any] | None = None,
    folds: int = 2,
    seed: int = 0,
) -> CrossFit:
    """Choose the node on some folds and score it on the other, over the stored predictions of every node.

    The returned node's score is lowered by its selection bias: how much better the best looks on all rows
    than what one half of them chooses is on the other half. Of several choices (groups of rivals) the one
    with the largest bias counts, by the objective: later nodes inherit it.

    Parameters
    ----------
    metric
        What scores.
    y
        Labels, (n,).
    predictions
        By node; the prediction for a row must not come from a model that was trained on it.
    values
        Of the nodes, smaller is better: nodes without a finite one diverged, and the smallest is the best.
    chosen
        The node that was returned; by default the best.
    objective
        The metric that chooses; by default ``metric``.
    rivals
        By node, a label that alternatives to each other have in common: a search that returns its last model
        never had the choice of an earlier one. By default all nodes are.
    folds
        Parts that the rows are split into, ten times.
    seed
        Draws them.

    Returns
    -------
    CrossFit
        The corrected score with its interval.
    """
    labels = as_labels(y)
    choose = objective or metric
    names = [name for name in predictions if values is None or isfinite(values.get(name, np.nan))]
    known = {name: numbers(predictions[name]) for name in names}
    known = {name: each for name, each in known.items() if all_finite(each)}
    names, models = list(known), list(known.values())
    if not names or (chosen is not None and chosen not in known):
        which = "the returned model" if names else "every model"
        note = f"{which} diverged: there is nothing to score"
        return CrossFit(np.nan, np.nan, np.nan, np.nan, np.nan, len(predictions), len(labels), (note,))
    if metric.by_class and len(np.unique(labels)) < 2:
        alone = honest_score(metric, labels, stacked(models[:1])[0], rows_role="validation")
        if not isfinite(alone.value):  # nor can it choose
            return CrossFit(
                np.nan, np.nan, np.nan, np.nan, np.nan, len(predictions), len(labels), alone.notes
            )
    if chosen is None:
        if values is not None:
            chosen = min(names, key=lambda name: values[name])
        else:
            chosen = names[Chooser(choose, labels, models)(np.arange(len(labels)))]
    alone = honest_score(metric, labels, stacked([known[chosen]])[0], rows_role="validation", seed=seed)
    # Positions of the nodes that were alternatives to each other; one node alone was no choice.
    found: dict[Any, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(rivals[name] if rivals is not None else None, []).append(place)
    groups = [group for group in found.values() if len(group) > 1] or [[0]]
    if rivals is not None and len(groups[0]) == 1 and isfinite(alone.value):  # nobody chose
        return _lowered(metric, alone, 0.0, len(predictions))
    pick_by = Chooser(choose, labels, models)
    scores, liked = _fold_scores(metric, pick_by, labels, models, groups, folds, np.random.default_rng(seed))
    if not len(scores) or not isfinite(alone.value):
        notes = (*alone.notes, "too few rows of each class to choose on some and score on others")
        return CrossFit(
            alone.value, alone.low, alone.high, alone.value, np.nan, len(predictions), len(labels), notes
        )
    better = 1.0 if metric.higher_is_better else -1.0
    if rivals is None:
        gap = better * (alone.value - float(np.mean(scores)))
    else:
        seen = pick_by.scores(np.ones((1, len(labels)), dtype=np.bool_))[0]
        by_all = np.array([group[int(seen[group].argmax())] for group in groups])
        most = int((seen[by_all] - liked.mean(axis=0)).argmax())
        look = scores_of_picked(
            metric, labels, models, [np.ones(len(labels), dtype=np.bool_)], by_all[None, [most]]
        )
        gap = better * float(look[0, 0] - scores[:, most].mean())
    return _lowered(metric, alone, gap, len(predictions))


def _lowered(metric: Metric, alone: ScoreInterval, gap: float, queries: int) -> CrossFit:
    """The score minus its selection bias; the interval is the returned node's own, extended by the bias."""
    gap = 0.0 if abs(gap) < ROUNDING * abs(alone.value) else gap
    # Losses are never negative, nor are areas; what a metric of the user's may be is not known.
    floor, ceiling = (0.0, 1.0) if is_share(metric) else (-np.inf, np.inf)
    if alone.low >= 0.0 and not metric.higher_is_better:
        floor = 0.0
    shift = gap if metric.higher_is_better else -gap
    ends = alone.value - shift, alone.low - max(shift, 0.0), alone.high - min(shift, 0.0)
    value, low, high = np.clip(ends, floor, ceiling).tolist()
    return CrossFit(value, low, high, alone.value, max(0.0, gap), queries, alone.rows, alone.notes)


def _fold_scores(
    metric: Metric,
    pick_by: Chooser,
    labels: NDArray[Any],
    models: Sequence[NDArray[Any]],
    groups: list[list[int]],
    folds: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Scores (splits, groups) of the nodes that the other folds chose from each group; and by the objective.

    Splits in which a fold lacks a class are left out, but for means over rows, which need none.
    """
    if folds < 2:
        raise InputError(f"cross-fitting needs at least 2 folds; got {folds}")
    by_class = any(each.by_class or each.contributions is None for each in (metric, pick_by.metric))
    codes = np.unique(labels, return_inverse=True)[1]
    if models[0].ndim < 2 or not by_class:
        codes = np.zeros(len(labels), dtype=np.intp)
    counts = np.bincount(codes)
    held: list[NDArray[np.bool_]] = []
    for _ in range(_REPEATS if len(labels) >= 2 * folds else 0):
        fold = label_folds(labels, folds, rng)
        for part in (fold == number for number in range(folds)):
            mine = np.bincount(codes[part], minlength=len(counts))
            if (mine > 0).all() and (mine < counts).all():  # every class is on either side
                held.append(part)
    if not held:
        return np.empty(0), np.empty(0)
    chosen_by, scored_by = pick_by.scores(~np.array(held)), pick_by.scores(np.array(held))
    picks = np.stack([np.take(group, chosen_by[:, group].argmax(axis=1)) for group in groups], axis=1)
    scores = scores_of_picked(metric, labels, models, held, picks)  # mostly another metric has chosen
    finite = np.isfinite(scores).all(axis=1)
    return scores[finite], np.take_along_axis(scored_by, picks, axis=1)[finite]


def label_folds(labels: NDArray[Any], folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """A fold number for every row; neighbours in the order of the labels go to different folds.

    Parameters
    ----------
    labels
        (n,), classes or numbers.
    folds
        How many.
    rng
        Breaks ties and orders the folds.

    Returns
    -------
    array
        Fold numbers, (n,).

    Examples
    --------
    >>> folds = label_folds(np.array([0, 0, 1, 1]), 2, np.random.default_rng(0))
    >>> sorted(folds[:2].tolist()), sorted(folds[2:].tolist())
    ([0, 1], [0, 1])
    """
    order = np.lexsort((rng.random(len(labels)), labels))
    fold = np.empty(len(labels), dtype=np.intp)
    groups = -(-len(labels) // folds)
    fold[order] = rng.random((groups, folds)).argsort(axis=1).ravel()[: len(labels)]
    return fold


def nested_folds(rows: Rows, classes: int, seed: int) -> NDArray[np.intp] | None:
    """Fold numbers for whole fits, or None where a fold or the rest of it would lack a class.

    Parameters
    ----------
    rows
        The validation rows.
    classes
        How many there are; 0 in a regression.
    seed
        Draws the folds.

    Returns
    -------
    array or None
        Fold numbers, up to five folds.
    """
    present, counts = np.unique(rows.y, return_counts=True)
    folds = min(_NESTED, int(counts.min()) if classes else len(rows) // 2)
    rng = np.random.default_rng(seed)
    for _ in range(_TRIES if folds >= 2 else 0):
        found = label_folds(rows.y, folds, rng)
        held = [np.unique(rows.y[found == fold]) for fold in range(folds)]
        if not classes or all(len(labels) == len(present) for labels in held):
            return found  # a class in every fold is in every rest too
    return None


def out_of_fold(
    metric: Metric,
    y: ArrayLike,
    predictions: Mapping[Any, ArrayLike],
    *,
    objective: Metric | None = None,
    folds: int | NDArray[np.intp] = 2,
    seed: int = 0,
) -> Floats:
    """For every row the prediction of the node that the *other* folds' rows choose.

    Where the rows that chose the model also have to compare it, compare these predictions with the
    reference's: no row has chosen what is predicted for it. Compare areas within folds: two nodes'
    predictions cannot be ranked together.

    Parameters
    ----------
    metric
        What scores.
    y
        Labels, (n,).
    predictions
        By node.
    objective
        The metric that chooses; by default ``metric``.
    folds
        How many, or a fold number for every row. Few folds keep the choices apart: with ten, one lucky node
        is chosen by all of them.
    seed
        Draws folds.

    Returns
    -------
    array
        Predictions for all rows; NaN if every node diverged.
    """
    labels, choose = as_labels(y), objective or metric
    stack = np.array([np.asarray(each, dtype=np.float64) for each in predictions.values()])
    if not len(stack):
        raise InputError("out-of-fold predictions need at least one node's predictions")
    finite = np.isfinite(stack.reshape(len(stack), -1)).all(axis=1)
    if not finite.any():
        return np.full(stack.shape[1:], np.nan)
    stack = stack[finite]
    pick_by = Chooser(choose, labels, stack)
    fold = np.asarray(folds)
    if not fold.ndim:
        fold = label_folds(labels, min(int(fold), len(labels)), np.random.default_rng(seed))
    out = np.empty(stack.shape[1:])
    for number in np.unique(fold):
        held = fold == number
        rest = labels[~held]
        if not len(rest) or (stack.ndim == 3 and len(np.unique(rest)) < 2):
            out[held] = stack[:, held].mean(axis=0)  # nothing to choose by: no node is preferred
            continue
        out[held] = stack[pick_by(~held), held]
    return out
