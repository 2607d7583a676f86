"""Rows that choose cannot also judge: a slice kept aside, cross-fitting where that is too small, optimism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid
from scipy.special import ndtr, ndtri

from mixtree.data.sources import Rows, Sources
from mixtree.errors import DataError, InputError
from mixtree.metrics import Metric, absent_classes
from mixtree.verdict.intervals import ScoreInterval, honest_score
from mixtree.verdict.resampling import Floats

LEAST_HELD = 50
"""Rows of the smallest slice worth keeping: the fewest for which the intervals' coverage was measured."""
MOST_SHARE = 1 / 3
"""Of the validation rows at most: the search has to choose with the others."""
USUAL_SHARE = 1 / 4
MOST_HELD = 2_000
"""Rows with which a score is known to about a hundredth; more would only be taken from the search."""

_BINS = 10  # strata of a regression's targets
_REPEATS = 10  # of splitting the rows: what another ten splits would change is a tenth of the score's error
_DRAWS = 200
_UNUSUAL = 3.0  # times as noisy as the median model
_GROUPS = 4_000  # of rows that vary together, where there are more rows
_BLOCK = 1 << 18  # numbers that are worth having as 64 bits at once: 2 MB


def holdout(sources: Sources, fraction: float | None = None, *, seed: int) -> tuple[Sources, Rows | None]:
    """The sources with fewer validation rows, and the rows kept aside before anything has seen them.

    Without a fraction: a quarter, at least 50 and at most 2,000 rows; none below 150 validation rows, where
    50 would be more than a third of them (then cross-fit the nodes' scores). Labels are stratified.

    >>> from mixtree.data.synthetic import synthetic
    >>> kept, held = holdout(synthetic(validation=200, test=1).sources, seed=0)
    >>> len(kept.validation), len(held)
    (150, 50)
    """
    count = len(sources.validation)
    wanted = _held_rows(count, fraction)
    if not wanted:
        return sources, None
    if wanted >= count:
        raise DataError(
            f"a holdout of {fraction:g} of {count} validation rows leaves none to choose with: lower it"
        )
    aside = _stratified(
        sources.validation.y, wanted, classes=sources.classes, rng=np.random.default_rng(seed)
    )
    if not aside.any():
        raise DataError(f"a holdout of {fraction:g} of {count} validation rows takes none of them: raise it")
    kept = replace(sources, validation=sources.validation.take(np.flatnonzero(~aside)))
    return kept, sources.validation.take(np.flatnonzero(aside))


def _held_rows(count: int, fraction: float | None) -> int:
    if fraction is not None:
        if not 0.0 <= fraction < 1.0:
            raise InputError(f"a holdout is a share of at least 0 and below 1; got {fraction}")
        return max(1, round(fraction * count)) if fraction else 0
    if count * MOST_SHARE < LEAST_HELD:
        return 0
    return min(max(LEAST_HELD, round(USUAL_SHARE * count)), MOST_HELD)


def _stratified(y: NDArray[Any], wanted: int, *, classes: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which rows are taken: about so many; a class of two or more rows has one on either side."""
    count = len(y)
    strata = y if classes else np.searchsorted(np.quantile(y, np.linspace(0, 1, _BINS + 1)[1:-1]), y)
    order = np.lexsort((rng.random(count), strata))
    ticks = np.floor((np.arange(count + 1) + rng.random()) * wanted / count)
    taken = np.zeros(count, dtype=np.bool_)
    taken[order] = np.diff(ticks) > 0
    for label in np.unique(y) if classes else ():
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
    """The returned node's score less what its choice made up, by choosing again on parts of the rows.

    ``naive`` is its score on the rows that chose it, ``optimism`` how much of that the choice is expected to
    have made up (0 or more, in the metric's own units); ``value`` is what is left.
    """

    value: float
    low: float
    high: float
    naive: float
    optimism: float
    queries: int
    rows: int
    notes: tuple[str, ...] = ()

    def moved(self, by: float) -> CrossFit:
        """All of it shifted: an area, which stays in [0, 1], is better taken within folds."""
        if not by or not isfinite(self.value):
            return self
        low, high = np.clip([self.low + by, self.high + by], 0.0, 1.0).tolist()
        return replace(self, value=self.value + by, naive=self.naive + by, low=low, high=high)

    def as_score(self) -> ScoreInterval:
        """The same as a score; cross-fitting leaves a part of the optimism in, so it is marked optimistic."""
        return ScoreInterval(self.value, self.low, self.high, self.rows, "cross-fitted", True, self.notes)


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

    ``values`` of nodes (smaller is better) leave out those that diverged and say which was best; ``chosen``
    is the node that was returned, ``objective`` the metric that chooses (else ``metric``). What is predicted
    for a row must not come from a model that was trained on it.

    The returned node's score is lowered by what the choice made up: how much better the best looks on all
    rows than what one half of them chooses is on the other half. Only rivals (``rivals`` of them are equal)
    are chosen from, unless told all nodes: a search that returns its last model never had the choice of an
    earlier one. Of several such choices the one that made up most, by the objective, counts: luck is
    inherited.
    """
    labels = np.asarray(y)
    choose = objective or metric
    names = [name for name in predictions if values is None or isfinite(values.get(name, np.nan))]
    known = {name: _numbers(predictions[name]) for name in names}
    known = {name: each for name, each in known.items() if all_finite(each)}
    names, models = list(known), list(known.values())
    if not names:
        note = "every model diverged: there is nothing to score"
        return CrossFit(np.nan, np.nan, np.nan, np.nan, np.nan, len(predictions), len(labels), (note,))
    if chosen is None or chosen not in names:
        chosen = _best(names, values, choose, labels, models)
    alone = honest_score(metric, labels, stacked([known[chosen]])[0], rows_role="validation", seed=seed)
    groups = _groups(names, rivals)
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
    elif len(groups[0]) == 1:  # nobody chose
        gap = 0.0
    else:
        seen = pick_by.scores(np.ones((1, len(labels)), dtype=np.bool_))[0]
        by_all = np.array([group[int(seen[group].argmax())] for group in groups])
        most = int((seen[by_all] - liked.mean(axis=0)).argmax())
        look = scores_of_picked(
            metric, labels, models, [np.ones(len(labels), dtype=np.bool_)], by_all[None, [most]]
        )
        gap = better * float(look[0, 0] - scores[:, most].mean())
    # Losses are never negative, nor are areas; what a metric of the user's may be is not known.
    floor = 0.0 if alone.low >= 0.0 and (not metric.higher_is_better or metric.by_class) else -np.inf
    return _lowered(alone, better * gap, len(predictions), made_up=max(0.0, gap), floor=floor)


def _lowered(alone: ScoreInterval, shift: float, queries: int, *, made_up: float, floor: float) -> CrossFit:
    """The score less what was made up; the interval's width is the returned node's own, extended by it."""
    value = max(alone.value - shift, floor)
    low, high = max(alone.low - max(shift, 0.0), floor), alone.high - min(shift, 0.0)
    return CrossFit(value, low, high, alone.value, made_up, queries, alone.rows, alone.notes)


def _groups(names: list[Any], rivals: Mapping[Any, Any] | None) -> list[list[int]]:
    """Positions of the nodes that were alternatives to each other; one node alone was no choice."""
    found: dict[Any, list[int]] = {}
    for place, name in enumerate(names):
        found.setdefault(rivals[name] if rivals is not None else None, []).append(place)
    return [group for group in found.values() if len(group) > 1] or [[0]]


def _best(
    names: list[Any],
    values: Mapping[Any, float] | None,
    choose: Metric,
    labels: NDArray[Any],
    models: Sequence[NDArray[Any]],
) -> Any:
    if values is not None:
        return min(names, key=lambda name: values[name])
    return names[Chooser(choose, labels, models)(np.arange(len(labels)))]


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

    Splits in which a fold lacks a class are left out.
    """
    if folds < 2:
        raise InputError(f"cross-fitting needs at least 2 folds; got {folds}")
    classes = models[0].ndim == 2
    codes = np.unique(labels, return_inverse=True)[1] if classes else np.zeros(len(labels), dtype=np.intp)
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
    """A fold number for every row; neighbours in the order of the labels go to different folds."""
    order = np.lexsort((rng.random(len(labels)), labels))
    fold = np.empty(len(labels), dtype=np.intp)
    groups = -(-len(labels) // folds)
    fold[order] = rng.random((groups, folds)).argsort(axis=1).ravel()[: len(labels)]
    return fold


def out_of_fold(
    metric: Metric,
    y: ArrayLike,
    predictions: Mapping[Any, ArrayLike],
    *,
    objective: Metric | None = None,
    folds: int = 2,
    seed: int = 0,
) -> Floats:
    """For every row the prediction of the node that the *other* folds' rows choose.

    Where the rows that chose the model have to compare it too, compare these predictions with the
    reference's: no row has chosen what is predicted for it. Few folds keep the two choices apart: with ten,
    one lucky node is chosen by all of them. NaN where every node diverged.
    """
    labels, choose = np.asarray(y), objective or metric
    stack = np.array([np.asarray(each, dtype=np.float64) for each in predictions.values()])
    if not len(stack):
        raise InputError("out-of-fold predictions need at least one node's predictions")
    finite = np.isfinite(stack.reshape(len(stack), -1)).all(axis=1)
    if not finite.any():
        return np.full(stack.shape[1:], np.nan)
    stack = stack[finite]
    pick_by = Chooser(choose, labels, stack)
    fold = label_folds(labels, min(folds, len(labels)), np.random.default_rng(seed))
    out = np.empty(stack.shape[1:])
    for number in np.unique(fold):
        held = fold == number
        rest = labels[~held]
        if not len(rest) or (stack.ndim == 3 and len(np.unique(rest)) < 2):
            out[held] = stack[:, held].mean(axis=0)  # nothing to choose by: no node is preferred
            continue
        out[held] = stack[pick_by(~held), held]
    return out


def _numbers(predictions: ArrayLike) -> NDArray[Any]:
    """What a model predicts, as it is stored if those are numbers."""
    given = np.asarray(predictions)
    return given if given.dtype.kind in "fiub" else given.astype(np.float64)


def all_finite(predictions: NDArray[Any]) -> bool:
    """Whether a model predicts numbers only. Their sum tells, unless it overflows."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(predictions.sum()) or np.isfinite(predictions).all())


def stacked(models: Sequence[NDArray[Any]]) -> Floats:
    """What some models predict, as one array of 64-bit numbers."""
    return np.asarray(models, dtype=np.float64)


def scores_of(metric: Metric, labels: NDArray[Any], stack: Floats) -> Floats:
    """The models' scores; a class that no row has was noted before and is not warned of again."""
    with absent_classes():
        return metric.batch(labels, stack)


class Chooser:
    """Says which model some of the rows choose; means over rows are not computed from scratch every time.

    Thousands of models' predictions stay as they are, of 32 bits mostly: only a few are looked at at a time.
    """

    def __init__(self, choose: Metric, labels: NDArray[Any], models: Sequence[NDArray[Any]]) -> None:
        self.metric, self._models = choose, models
        self._labels = labels.astype(np.intp) if models[0].ndim == 2 else labels
        self._terms: Floats | None = None
        if choose.contributions is not None and not choose.by_class and choose.adds_up:
            terms = _terms_of(choose, self._labels, models)
            self._terms = terms if choose.higher_is_better else -terms

    def __call__(self, rows: NDArray[Any]) -> int:
        """The number of the model that does best on these rows (positions or flags)."""
        if self._terms is not None:
            return int(self._terms[:, rows].mean(axis=1).argmax())
        return int(self._scores([rows])[0].argmax())

    def scores(self, parts: NDArray[np.bool_]) -> Floats:
        """How the models (columns) do on parts of the rows, one line of flags each; higher is better."""
        if self._terms is not None:
            return np.asarray(parts @ self._terms.T / parts.sum(axis=1, keepdims=True))
        return self._scores(list(parts))

    def _scores(self, parts: list[NDArray[Any]]) -> Floats:
        with absent_classes():
            # Straight to the metric's function: what it is given was checked before.
            found = [
                [self.metric.values(self._labels[part], some[:, part]) for part in parts]
                for some in map(stacked, _blocks(self._models))
            ]
        scores = np.concatenate([np.array(each) for each in found], axis=1)
        return scores if self.metric.higher_is_better else -scores


def _blocks(models: Sequence[NDArray[Any]]) -> Iterator[Sequence[NDArray[Any]]]:
    """A few models at a time."""
    some = max(1, _BLOCK // models[0].size)
    return (models[start : start + some] for start in range(0, len(models), some))


def _terms_of(metric: Metric, labels: NDArray[Any], models: Sequence[NDArray[Any]]) -> Floats:
    """The rows' contributions (models, rows).

    By predictions as they are stored, as the search computed its values: what a loss makes of a probability
    of 0 depends on their bits.
    """
    assert metric.contributions is not None
    parts = (np.asarray(some) for some in _blocks(models))
    floats = (part if part.dtype.kind == "f" else part.astype(np.float64) for part in parts)
    return np.concatenate([metric.contributions(labels, part) for part in floats])


def scores_of_picked(
    metric: Metric,
    labels: NDArray[Any],
    models: Sequence[NDArray[Any]],
    parts: list[NDArray[np.bool_]],
    picks: NDArray[Any],
) -> Floats:
    """The scores (parts, picks) of some of the models, those picked for a part of the rows, on that part."""
    known, scores = labels.astype(np.intp) if models[0].ndim == 2 else labels, np.empty(picks.shape)
    with absent_classes():
        for line, part, each in zip(scores, parts, picks.tolist(), strict=True):
            # Straight to the metric's function, which may be the user's and take its time: what it is given
            # was checked before.
            few = sorted(set(each))
            found = metric.values(known[part], stacked([models[model][part] for model in few]))
            line[:] = [found[few.index(model)] for model in each]
    return scores


def scores_by_terms(metric: Metric, labels: NDArray[Any], terms: Floats, parts: NDArray[np.bool_]) -> Floats:
    """Scores (parts, models) on parts of the rows, of a metric that adds up, by the rows' contributions.

    An area's are those of the row's rank among all rows, so this is right to first order, and of few rows may
    be beyond 1. By both classes of a pair together, less the area itself: how a model does on the other rows
    does not enter.
    """
    if not metric.by_class:
        return np.asarray(parts @ terms.T / parts.sum(axis=1, keepdims=True))
    whole = metric.from_terms(labels, terms)
    assert whole is not None
    counts = np.array([np.bincount(labels[part], minlength=int(labels.max()) + 1) for part in parts])
    shares = np.divide(parts, counts[:, labels], where=parts, out=np.zeros(parts.shape))
    return np.asarray(shares @ terms.T - whole)


# --------------------------------------------------------------------------------------------------- optimism


def optimism(queries: int, rows: int, *, spread: float = 1.0) -> float:
    """By how much the best of so many equal models is expected to look better than it is.

    ``spread`` is the standard deviation, over rows, of what sets two models apart (of their paired
    difference, over √2); E[the largest of q normal draws] is Blom's approximation.

    >>> optimism(1, 100)
    0.0
    >>> round(optimism(30, 100, spread=0.1), 4)
    0.0204
    """
    if queries < 1 or rows < 1:
        raise InputError(f"optimism needs at least one query and one row; got {queries} and {rows}")
    largest = float(ndtri((queries - 0.375) / (queries + 0.25))) if queries > 1 else 0.0
    return largest * spread / float(np.sqrt(rows))


def expected_optimism(
    metric: Metric,
    y: ArrayLike,
    predictions: Sequence[ArrayLike] | Floats,
    *,
    objective: Metric | None = None,
    seed: int = 0,
) -> float:
    """The optimism of choosing one of these models on these rows, by choosing again on resampled rows.

    In a resample the winner's score there less its score on all rows is what the choice made up. The metric
    itself chooses, or ``objective``. NaN for a metric whose rows' contributions are not known: use
    :func:`cross_fitted`.
    """
    labels, choose = np.asarray(y), objective or metric
    models = [each for each in map(_numbers, predictions) if all_finite(each)]
    if metric.contributions is None or choose.contributions is None or not len(predictions):
        return float("nan")
    if len(models) < 2 or len(labels) < 2:
        return 0.0 if models else float("nan")
    return chosen_again(metric, labels, models, choose=choose, seed=seed).optimism


def terms_and_scores(
    metric: Metric, labels: NDArray[Any], models: Sequence[NDArray[Any]]
) -> tuple[Floats, Floats]:
    """The rows' contributions (models, rows) and the scores of models with finite predictions."""
    known = labels.astype(np.intp) if models[0].ndim == 2 else labels
    terms = _terms_of(metric, known, models)
    scores = metric.from_terms(known, terms)
    return terms, scores_of(metric, labels, stacked(models)) if scores is None else scores


@dataclass(frozen=True, eq=False, slots=True)
class ChosenAgain:
    """The expected optimism; the models that other rows might have chosen, their rows' terms and scores."""

    optimism: float
    places: NDArray[np.intp]
    terms: Floats
    scores: Floats


def chosen_again(
    metric: Metric,
    labels: NDArray[Any],
    models: Sequence[NDArray[Any]],
    *,
    choose: Metric,
    seed: int = 0,
) -> ChosenAgain:
    """What choosing by ``choose`` on resampled rows makes up of the metric, of two and more models.

    Scored are only those that some resample chooses: of areas of many classes that takes most of the time.
    """
    terms, scores = terms_and_scores(choose, labels, models)
    resampled = _Resamples(labels, np.random.default_rng(seed))
    seen, moved = scores if choose.higher_is_better else -scores, resampled.moves(choose, terms)
    if not (np.isfinite(seen).all() and np.isfinite(moved).all()):
        return ChosenAgain(np.nan, np.empty(0, dtype=np.intp), terms[:0], scores[:0])
    true, moved = _pulled_together(seen, moved)
    winners, place = np.unique((true + moved).argmax(axis=1), return_inverse=True)
    if choose == metric:
        terms, scores = terms[winners], scores[winners]
    else:
        terms, scores = terms_and_scores(metric, labels, [models[k] for k in winners.tolist()])
    made_up = resampled.moves(metric, terms)[np.arange(_DRAWS), place].mean()
    return ChosenAgain(float(np.maximum(made_up, 0.0)), winners, terms, scores)


def _pulled_together(seen: Floats, moved: Floats) -> tuple[Floats, Floats]:
    """What the scores may truly be, and how they move, in units of their own; higher is better.

    They lie further apart than the truth does, by the noise in them, and are pulled together by as much. A
    model whose score hangs on a row or two (a sure mistake) does not say how noisy the others are, and stays.
    """
    unit = max(float(np.abs(seen).max()), float(np.abs(moved).max())) or 1.0  # else squares may vanish
    seen, moved = seen / unit, moved / unit
    own = moved.std(axis=0)
    usual = own <= _UNUSUAL * np.median(own)
    middle, apart = seen[usual].mean(), seen[usual].var()
    noise = moved[:, usual].var(axis=1).mean()
    share = np.sqrt(max(0.0, 1.0 - noise / apart)) if apart > 0.0 else 0.0
    return np.where(usual, middle + share * (seen - middle), seen), moved


class _Resamples:
    """Other draws of the rows: in each of them a row is there twice or not at all, by the toss of a coin.

    Means over the rows scatter as much as those of rows that are drawn with replacement.
    """

    def __init__(self, labels: NDArray[Any], rng: np.random.Generator) -> None:
        self._labels, rows = labels, len(labels)
        groups = min(rows, _GROUPS)
        self._order = rng.permutation(rows) if groups < rows else None
        self._starts = np.arange(groups) * rows // groups
        signs = 2.0 * rng.integers(2, size=(_DRAWS // 2, groups), dtype=np.int8) - 1.0
        # Each beside its contrary: over all draws a row is there once, and nobody gains without a choice.
        self._signs = np.concatenate([signs, -signs])
        sizes = np.diff(self._starts, append=rows)
        self._total = np.maximum(1.0 + self._signs @ sizes / rows, 1.0 / rows)  # rows, as a share of all

    def moves(self, metric: Metric, terms: Floats) -> Floats:
        """By how much (draws, models) the models' scores there are better than on the rows themselves."""
        labels = self._labels if metric.by_class else np.zeros(len(self._labels))
        _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        with np.errstate(over="ignore", invalid="ignore"):  # of models that are too bad
            sums = np.add.reduceat(terms[:, codes.argsort(kind="stable")], counts.cumsum() - counts, axis=1)
            gaps = (terms - (sums / counts)[:, codes]) / counts[codes]
            if self._order is not None:
                gaps = np.add.reduceat(gaps[:, self._order], self._starts, axis=1)
            moved = self._signs @ (gaps if metric.higher_is_better else -gaps).T
        # A mean is of the rows that are there; areas, within classes, are taken to first order.
        return moved if metric.by_class else moved / self._total[:, None]


def climbs(metric: Metric, y: ArrayLike, new: ArrayLike, best: ArrayLike, *, errors: float = 1.0) -> bool:
    """The ladder's rule: a new best must beat the old one by more than the difference's standard error."""
    gain = metric.signed(metric(y, best)) - metric.signed(metric(y, new))
    error = metric.paired_error(y, new, best)
    return bool(gain > errors * (error if isfinite(error) else 0.0)) and gain > 0.0


def ladder(
    values: Sequence[float], standard_errors: Sequence[float], *, errors: float = 1.0
) -> tuple[int, ...]:
    """The places at which a new best was accepted, from values in their order (smaller is better).

    >>> ladder([1.0, 0.99, 0.8, float("nan")], [0.05, 0.05, 0.05, 0.05])
    (0, 2)
    """
    accepted: list[int] = []
    for place, (value, error) in enumerate(zip(values, standard_errors, strict=True)):
        if not isfinite(value):
            continue
        margin = errors * error if isfinite(error) else 0.0
        if not accepted or value < values[accepted[-1]] - margin:
            accepted.append(place)
    return tuple(accepted)


# ------------------------------------------------------------------------------------------------- stop early


@dataclass(frozen=True, slots=True)
class Outlook:
    """What more nodes are expected to gain, beside the noise of the value that would have to show it."""

    gain: float
    noise: float

    @property
    def stop(self) -> bool:
        """Whether the gain would drown in the noise."""
        return isfinite(self.gain) and isfinite(self.noise) and self.gain < self.noise


def outlook(values: Sequence[float], standard_errors: Sequence[float], *, left: int) -> Outlook:
    """The expected gain of ``left`` more nodes like the later half so far (smaller values are better).

    Their values are taken as normal draws. NaN, hence no stop, before there are eight of them.

    >>> outlook([1.0] * 10, [0.1] * 10, left=20).stop
    True
    """
    finite = np.array([value for value in values if isfinite(value)])
    errors = np.array([error for error in standard_errors if isfinite(error)])
    noise = float(np.median(errors)) if len(errors) else float("nan")
    if len(finite) < 8:
        return Outlook(float("nan"), noise)
    best, recent = float(finite.min()), finite[len(finite) // 2 :]
    centre, deviation = float(recent.mean()), float(recent.std(ddof=1))
    if left < 1 or deviation <= 1e-15 * abs(centre):
        return Outlook(max(0.0, best - centre) if left >= 1 else 0.0, noise)
    grid = np.linspace(min(best, centre) - 8.0 * deviation, best, 2_000)
    # E[(best − smallest of q draws)+] is the integral of P(smallest ≤ v) up to the best.
    smallest = -np.expm1(left * np.log1p(-np.minimum(ndtr((grid - centre) / deviation), 1.0 - 1e-16)))
    return Outlook(float(trapezoid(smallest, grid)), noise)
