"""Which rows may score a finished fit, and how: test rows, a holdout, nested folds, twins, cross-fitting."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from mixtree.data.allocation import Allocation
from mixtree.data.folds import fold_rows
from mixtree.data.labelscale import LabelScale
from mixtree.data.sources import Rows
from mixtree.engine.loop import FINISHED
from mixtree.engine.study import Result
from mixtree.metrics import LOG_LOSS, SQUARED_LOSS, Metric, absent_classes
from mixtree.policies.registry import chooses
from mixtree.search import STEP_SIZE
from mixtree.stats.delong import every_class_in, within
from mixtree.stats.intervals import is_area, is_error, is_share
from mixtree.stats.selection import nested_folds
from mixtree.tree import Node, Path, Tree
from mixtree.verdict import CrossFit, ScoreInterval, cross_fitted, honest_score
from mixtree.verdict.references import Extra, TimeIsUp, View, nested_predictions
from mixtree.verdict.sentences import number

if TYPE_CHECKING:
    from mixtree.verdict.fitted import Fitted

Floats = NDArray[np.float64]
_Interval = TypeVar("_Interval", bound=ScoreInterval | CrossFit)

_TUNED = "tuned on the target's rows"
_WIDER = 1.25  # nested: scores were measured to be off by up to 1.23 times what their rows explain
_GAPS_WIDER = 1.5  # the same of nested comparisons
_TAUGHT = 0.5  # of what half of the rows taught a model: all of them taught up to so much more
_NESTED_TAUGHT = 0.25  # of what four fifths of them taught: as much as any others, the last ones too
_TWINS_WIDER = 1.75  # the same of a regression's twins, tuned on half of the rows each: up to 1.8 times


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """A finished fit, its labels and predictions in the label's own units."""

    prepared: Fitted
    result: Result[Any]
    metric: Metric
    clean: dict[Path, Node] = field(init=False)
    """Nodes that were trained on the sources alone."""
    clean_predictions: dict[Path, NDArray[Any]] = field(init=False)
    """Of those that did not diverge, as they are stored: thousands of them as 64 bits would be gigabytes."""
    choices: dict[Path, Node] = field(init=False)
    """Those that were alternatives: segments inside a stage only if one of them was kept, not the last."""
    gained: float | None = field(init=False)
    """By how much training on the target's rows made the model better, by twins that saw half of them each.

    None where it was not trained on them, or has no twins.
    """

    def __post_init__(self) -> None:
        clean = untouched(self.result.tree, len(self.prepared.sources))
        kept = {
            path: self.scale.back(self.result.predictions[path])
            for path, node in clean.items()
            if path in self.result.predictions and not node.diverged
        }
        object.__setattr__(self, "clean", clean)
        choices = {
            path: node for path, node in clean.items() if not node.unfinished or path in self.chosen_from
        }
        object.__setattr__(self, "choices", choices)
        object.__setattr__(self, "clean_predictions", kept)
        object.__setattr__(self, "gained", self._gained())

    def _gained(self) -> float | None:
        unseen, before = self.unseen, self.predicted_by(self.mixed.path)
        if unseen is None or before is None or self.mixed.path == self.result.node.path:
            return None
        if self.metric.contributions is None:  # a user's function may fail on a part of the rows
            return None
        y, classes = self.y, self.prepared.sources.classes
        with absent_classes():
            gains = [
                self.metric.signed(self.metric(y[part], before[part]))
                - self.metric.signed(self.metric(y[part], unseen[part]))
                for part in fold_rows(self.prepared.sources.validation, classes)
                if not classes or len(np.unique(y[part])) > 1
            ]
        return float(np.mean(gains)) if gains else None

    @property
    def scale(self) -> LabelScale:
        """What brings labels and predictions back to their own units."""
        return self.prepared.scale

    @property
    def chosen_from(self) -> dict[Path, Path]:
        """Segments of stages that were ended by a look at the validation rows, and the stages."""
        return dict(self.prepared.search.chosen_from)

    @property
    def unseen(self) -> Floats | None:
        """What twins of a model trained on the target's rows predict for those that they did not see."""
        found = self.prepared.search.unseen
        return None if found is None else np.asarray(self.scale.back(found), dtype=np.float64)

    @property
    def y(self) -> NDArray[Any]:
        """Labels of the validation rows that chose."""
        return self.scale.back(self.prepared.sources.validation.y)

    @property
    def chooses(self) -> bool:
        return chooses(self.prepared.policy)

    @property
    def choose(self) -> Metric:
        """The metric that the search minimises."""
        if self.prepared.objective is not None:
            return self.metric
        return LOG_LOSS if self.prepared.sources.classes else SQUARED_LOSS

    @property
    def budget(self) -> int:
        """What a reference may spend: the budget, or as much as a study took that was ended before."""
        ended = self.result.reason != FINISHED or self.prepared.ends_early
        return max(1, sum(self.result.spent.values())) if ended else self.result.budget

    @property
    def lineage(self) -> list[Node]:
        """From the root to the returned model, as far as it was trained on the sources alone."""
        return [node for node in self.result.tree.lineage(self.result.node.path) if node.path in self.clean]

    @property
    def mixed(self) -> Node:
        """The returned node, or the last before it that was trained on the sources alone."""
        return self.lineage[-1] if self.lineage else self.result.node

    @property
    def complete(self) -> bool:
        """Whether every node's predictions are at hand."""
        return all(node.diverged or path in self.clean_predictions for path, node in self.clean.items())

    def predicted_by(self, path: Path) -> Floats | None:
        """What a node that was trained on the sources alone predicts for the rows that chose."""
        found = self.clean_predictions.get(path)
        return None if found is None else np.asarray(found, dtype=np.float64)

    @property
    def twins(self) -> dict[Path, Floats]:
        """What models tuned on one fold of the target's rows predict for the other, by how long they were.

        Named by the path of the first fold's, with every row's prediction by the model that never saw it.
        """
        rows, count = self.prepared.sources.validation, len(self.prepared.sources)
        ends: dict[int, list[Path]] = {}
        for path, node in self.result.tree.items():
            fold = Allocation.of(node.mixture, count).fold
            if fold is not None and (*path, 0) not in self.result.tree and not node.diverged:
                ends.setdefault(fold, []).append(path)
        folds = fold_rows(rows, self.prepared.sources.classes)
        found: dict[Path, Floats] = {}
        for pair in zip(*(sorted(ends.get(fold, []), key=len) for fold in range(len(folds))), strict=False):
            both = [self.result.predictions.get(path) for path in pair]
            if all(each is not None for each in both):
                mixed = np.array(both[0], dtype=np.float64)
                mixed[folds[0]] = np.asarray(both[1])[folds[0]]
                found[pair[0]] = np.asarray(self.scale.back(mixed), dtype=np.float64)
        return found

    def crossed(self, chosen: Path, mine: Floats | None = None) -> CrossFit:
        """The cross-fitted score of a node, or of its twins' predictions where it was trained on the rows.

        Rivals are nodes with as much training behind them, and the lengths of tuning on the target's rows
        that were tried, none of it among them. Trials of step sizes are none: noise does not decide them.
        """
        steps, stages = self.result.tree.steps_behind, self.chosen_from
        behind: dict[Any, Any] = {
            path: path if node.phase == STEP_SIZE else stages.get(path, (len(path), steps[path]))
            for path, node in self.clean.items()
        }
        given: dict[Any, NDArray[Any]] = dict(self.clean_predictions)
        for path, each in self.twins.items():
            given[path], behind[path] = each, _TUNED
        if len(given) > len(self.clean_predictions) and self.lineage:
            given["not tuned"], behind["not tuned"] = given[self.mixed.path], _TUNED
        if mine is not None:
            given["tuned"], behind["tuned"] = mine, "alone"
            chosen = cast(Path, "tuned")
        return cross_fitted(self.metric, self.y, given, chosen=chosen, objective=self.choose, rivals=behind)


def untouched(tree: Tree, sources: int) -> dict[Path, Node]:
    """The nodes whose models, and those they continue, never drew a row of the target."""
    touched: set[Path] = set()
    for path in sorted(tree, key=len):  # a model that an earlier run left may stand before its parent
        if path[:-1] in touched or Allocation.of(tree[path].mixture, sources).own > 0.0:
            touched.add(path)
    return {path: node for path, node in tree.items() if path not in touched}


@dataclass(frozen=True, eq=False, slots=True)
class Scored:
    """The score, and the predictions to compare with others' on the same rows."""

    score: ScoreInterval | CrossFit | None
    view: View
    mine: Floats | None
    instead: str = ""
    """Why the returned model has no score, where that of the model before it is given."""
    of: str = ""
    """Which models are scored, where it is neither the returned one nor the one before it."""
    wider: float = 1.0
    """By how much comparisons are widened for what sets those models apart from the returned one."""
    further: float = 0.0
    """By how much the returned model may be better than those that are scored, beyond their interval."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    needed: str = ""
    """What to do for a score that is worth more."""

    def selection_bias(self, expected: float) -> float:
        """By how much the predictions look better than they are, since the same rows chose them.

        By cross-fitting, or else what is ``expected`` of choosing so often; NaN if neither is known.
        """
        if isinstance(self.score, CrossFit):
            return self.score.optimism if isfinite(self.score.optimism) else expected
        return expected if self.score is not None and self.score.optimistic else 0.0

    @property
    def noise(self) -> float:
        """The standard error of the score, as its interval has it."""
        if self.score is None or not isfinite(self.score.high - self.score.low):
            return 0.0
        return (self.score.high - self.score.low) / 3.92


def scored_by_rows(case: Case, extra: Extra) -> Scored:
    prepared, state = case.prepared, case.result.state
    trainer: Any = prepared.trainer
    rows = prepared.sources.validation
    refused: tuple[str, ...]
    if trainer.predict is None:
        why = "its trainer gives a score only, no predictions that could be scored"
        needed = "give the trainer a predict method, so that its models can be scored and compared"
        return Scored(_no_score(len(rows), why), View(rows, False), None, needed=needed)
    if prepared.judges is not None:
        mine = extra.own_units(trainer, state, prepared.judges)
        y = case.scale.back(prepared.judges.y)
        score = honest_score(case.metric, y, mine, rows_role=prepared.role)
        refused = _too_few(prepared.given.validation) if prepared.nested else ()
        return Scored(score, View(prepared.judges, True), mine, warnings=refused)
    refused = ()
    if prepared.nested:
        folds = nested_folds(rows, prepared.sources.classes, prepared.seed)
        refused = _too_few(rows)
        if folds is not None:
            try:
                return _nested(case, extra, folds)
            except TimeIsUp as up:
                refused = (f"no nested folds: {up.words}",)
    if case.result.node.path not in case.clean:
        return _by_twins(case, refused) or _score_before(case, refused)
    if not case.chooses:
        known = case.predicted_by(case.result.node.path)
        mine = extra.own_units(trainer, state, rows) if known is None else known
        return Scored(honest_score(case.metric, case.y, mine, rows_role="test"), View(rows, False), mine)
    known = case.predicted_by(case.result.node.path)
    if known is None or not case.complete:
        mine = extra.own_units(trainer, state, rows)
        score = honest_score(case.metric, case.y, mine, rows_role="validation")
        return Scored(score, View(rows, False), mine, warnings=refused)
    return Scored(case.crossed(case.result.node.path), View(rows, False), known, warnings=refused)


def _too_few(rows: Rows) -> tuple[str, ...]:
    return (f"no nested folds: {len(rows)} rows, or those of a class, are too few to choose and to score",)


def _nested(case: Case, extra: Extra, folds: NDArray[np.intp]) -> Scored:
    rows, count = case.prepared.sources.validation, int(folds.max()) + 1
    mine = nested_predictions(extra, folds)
    score = _within_folds(
        honest_score(case.metric, case.y, mine, rows_role="nested"), case.metric, case.y, mine, folds
    )
    score = _wider(score, case.metric, _WIDER)
    note = (
        f"nested: {count} whole fits, each scored on the part of the rows that it never saw; the interval is "
        f"{_WIDER - 1:.0%} wider than the rows alone would make it (that of a difference "
        f"{_GAPS_WIDER - 1:.0%}), since those models are not the returned one"
    )
    gain, learnt = _taught(case, score.value), f"{1 - 1 / count:.0%} of the rows made them"
    further = _NESTED_TAUGHT * gain
    twins = case.gained or 0.0
    if (1.0 + _TAUGHT) * twins - gain > further:  # fits on fewer rows may have left them alone
        further = (1.0 + _TAUGHT) * twins - gain
        gain, learnt = twins, "half of the rows made twins of the returned model"
    further = min(further, _room(score.value, case.metric))
    if further > 0.0:
        note += f"; {learnt} {_may_be_better(gain, further)}"
    score = _reaching(score, case.metric, further)
    of = f"fits like the returned one, each on {1 - 1 / count:.0%} of the rows"
    view = View(rows, False, folds, folds)
    return Scored(score, view, mine, of=of, wider=_GAPS_WIDER, further=further, notes=(note,))


def _taught(case: Case, value: float) -> float:
    """By how much training on most of the target's rows has made models better than one that never saw them.

    That one is the model before it was trained on them; where there is none, one prediction for all rows.
    """
    if case.result.node.path in case.clean or case.metric.contributions is None or not isfinite(value):
        return 0.0
    before, classes = case.predicted_by(case.mixed.path), case.prepared.sources.classes
    known = constants(case.y, classes).values() if before is None else (before,)
    with absent_classes():
        best = min(case.metric.signed(case.metric(case.y, each)) for each in known)
    return max(best - case.metric.signed(value), 0.0) if isfinite(best) else 0.0


def constants(y: NDArray[Any], classes: int) -> dict[str, Floats]:
    """What predicts the same for every row: the shares of the classes, or a middle of the labels."""
    if classes:
        shares = np.bincount(y.astype(np.intp), minlength=classes) / len(y)
        return {"the shares of the classes": np.tile(shares, (len(y), 1))}
    middles = {"the mean": float(np.mean(y)), "the median": float(np.median(y))}
    return {name: np.full(len(y), middle) for name, middle in middles.items()}


def _may_be_better(gain: float, further: float) -> str:
    return (
        f"better by {number(gain)}, so all of them may make more of the model, and the intervals reach "
        f"{number(further)} further to the better side"
    )


def _within_folds(
    pooled: ScoreInterval, metric: Metric, y: NDArray[Any], mine: Floats, folds: NDArray[np.intp]
) -> ScoreInterval:
    """An area as the mean over the folds: rows of different folds are ranked by different models.

    Pooled they look worse than any of the models is. The interval keeps its width. Where a fold lacks a
    class its area is another one, and the pooled one stays.
    """
    if not is_area(metric) or not isfinite(pooled.value) or not every_class_in(folds, y):
        return pooled
    value = within(metric, y, mine, folds)
    move = value - pooled.value
    return replace(pooled, value=value, low=max(0.0, pooled.low + move), high=min(1.0, pooled.high + move))


def _wider(score: _Interval, metric: Metric, factor: float) -> _Interval:
    """The interval of other models' score for the returned one, whose own luck in training is added to it."""
    low = score.value - factor * (score.value - score.low)
    high = score.value + factor * (score.high - score.value)
    if is_share(metric):
        low, high = max(low, 0.0), min(high, 1.0)
    elif score.low >= 0.0:  # of losses, which are never negative
        low = max(low, 0.0)
    return replace(score, low=low, high=high)


def _by_twins(case: Case, refused: tuple[str, ...]) -> Scored | None:
    """Tuned on the rows that would score it, but its policy tuned twins of it on folds of them too."""
    mine = case.unseen
    if mine is None:
        return None
    rows, classes = case.prepared.sources.validation, case.prepared.sources.classes
    folds = np.zeros(len(rows), dtype=np.intp)
    for fold, held in enumerate(fold_rows(rows, classes)):
        folds[held] = fold
    pooled = honest_score(case.metric, case.y, mine, rows_role="cross-fitted")
    scored = _within_folds(pooled, case.metric, case.y, mine, folds)
    score: ScoreInterval | CrossFit = scored
    if case.complete and isfinite(pooled.value):
        crossed = case.crossed(case.result.node.path, mine)
        score = replace(crossed.moved(scored.value - pooled.value), did="trained")
    notes = []
    # All rows teach more than half of them: as much again as a part of what the first half taught.
    gain = max(case.gained or 0.0, 0.0)
    further = min(_TAUGHT * gain, _room(score.value, case.metric))
    if further > 0.0:
        notes.append(f"half of the rows made the twins {_may_be_better(gain, further)}")
    if not classes:
        score = _wider(score, case.metric, _TWINS_WIDER)
        notes.append(
            f"the intervals are {_TWINS_WIDER - 1:.0%} wider than the rows alone would make them, since the "
            "twins are not the returned model"
        )
    of = "twins of the returned model, each trained on one half of the rows"
    wider = 1.0 if classes else _TWINS_WIDER
    view = View(rows, False, parts=folds)
    score = _reaching(score, case.metric, further)
    return Scored(
        score, view, mine, of=of, wider=wider, further=further, notes=tuple(notes), warnings=refused
    )


def _room(value: float, metric: Metric) -> float:
    """How much better a score can be at the most; of a metric of the user's that is not known, so none."""
    if not isfinite(value):
        return 0.0
    return 1.0 - value if is_share(metric) else value if is_error(metric) else 0.0


def _reaching(score: _Interval, metric: Metric, further: float) -> _Interval:
    """The interval as much further to its better side, of a metric whose best is known."""
    if not further:
        return score
    if metric.higher_is_better:
        return replace(score, high=min(score.high + further, 1.0))
    return replace(score, low=max(score.low - further, 0.0))


def _score_before(case: Case, refused: tuple[str, ...]) -> Scored:
    """The returned model was trained on the rows that would score it: the one before that can be scored."""
    rows = case.prepared.sources.validation
    why = "it was trained on the rows that would score it"
    needed = "give test rows, a holdout or nested folds for an honest score"
    if not case.lineage or not case.complete:
        unscored = _no_score(len(rows), why)
        return Scored(unscored, View(rows, False), None, warnings=refused, needed=needed)
    score, mine = case.crossed(case.mixed.path), case.predicted_by(case.mixed.path)
    return Scored(score, View(rows, False), mine, instead=why, warnings=refused, needed=needed)


def _no_score(rows: int, why: str) -> ScoreInterval:
    return ScoreInterval(np.nan, np.nan, np.nan, rows, "none", True, (why,))
