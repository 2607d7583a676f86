"""Models that are trained for the verdict alone, outside the study's budget, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtrit

from mixtree.data.allocation import Allocation
from mixtree.data.labelscale import LabelScale
from mixtree.data.sources import Rows, Sources
from mixtree.engine.loop import FINISHED
from mixtree.engine.study import Result, run
from mixtree.errors import DataError, TrainingError
from mixtree.estimate.uncertainty import NAMED, listed
from mixtree.events import Listener
from mixtree.metrics import Metric
from mixtree.policies.auto import Auto, EitherEnd, settled_rate
from mixtree.policies.fixed import Chain
from mixtree.policies.registry import make_search
from mixtree.policies.retries import AtRate, blew_up, smaller_rates
from mixtree.search import Search
from mixtree.seeds import derive_seed
from mixtree.simplex import Mixture, uniform_mixture
from mixtree.trainer import Job
from mixtree.verdict import (
    Difference,
    corrected,
    label_folds,
    out_of_fold,
    paired_difference,
    shapley,
    without_source,
)
from mixtree.verdict.sentences import VALIDATION, number

if TYPE_CHECKING:
    from mixtree.verdict.fitted import Fitted

Floats = NDArray[np.float64]

_MANY = {
    "the same": "of {count} sources each can be left out: without one of them nothing changes",
    "not distinguishable": "of {count} sources these rows cannot show whether one makes a difference",
}
REFERENCE_BUDGETS = 1.5
"""What training a reference takes: the last half of its steps is trained twice."""
_AGAIN = 4
"""How often the model of all sources is trained, to tell what a source is worth from what a seed is."""
TRUNK_SHARE, ARM_SHARE = 0.1, 0.1
"""Of the budget: the warm start of all sources together, and each model without some of them."""


class TimeIsUp(Exception):
    """The time limit of the study was reached: a model that was trained for less is no fair comparison."""

    words = "the time limit leaves no time"


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """What a study's time limit leaves to models that are trained beside it."""

    until: float
    """By the monotonic clock."""
    pace: float
    """Seconds that a step of the study took."""

    @classmethod
    def after(cls, result: Result[Any], started: float, seconds: float | None) -> TimeLimit | None:
        """Of a study that has just ended; None without a limit."""
        if seconds is None:
            return None
        took = time.monotonic() - started
        return cls(started + seconds, took / max(1, sum(result.spent.values())))

    def left(self, steps: int) -> float:
        """Seconds that are left; raises if so many steps will take longer."""
        left = self.until - time.monotonic()
        if left <= self.pace * steps:
            raise TimeIsUp
        return left


@dataclass(frozen=True, eq=False, slots=True)
class View:
    """The rows on which models are compared, and what they did before."""

    rows: Rows
    apart: bool
    """They neither chose nor trained anything; else they are the validation rows."""
    folds: NDArray[np.intp] | None = None
    """Nested folds: what is predicted for a fold was fitted without it."""
    parts: NDArray[np.intp] | None = None
    """Parts of the rows (the nested folds, or others) that different models predicted."""


class Rival(NamedTuple):
    """What an alternative predicts for the rows, and their parts if different models did."""

    predictions: Floats
    parts: NDArray[np.intp] | None


@dataclass(frozen=True, eq=False, slots=True)
class Reference:
    """What training on one mixture came to."""

    name: str
    """The algorithm whose model it is: "uniform", "uniform+decay"."""
    loss: float
    """On the validation rows; +inf if it diverged."""
    ends: dict[str, Floats]
    """What it predicts for the rows; where these have chosen its end, what the other end does too."""


@dataclass(frozen=True, eq=False, slots=True)
class Extra:
    """Trains beside a finished fit, with its model family and initial model, and counts the steps."""

    prepared: Fitted
    budget: int
    """The steps that the study itself took: a comparison is fair at the same budget only."""
    listeners: Sequence[Listener] = ()
    limit: TimeLimit | None = None
    spent: dict[str, int] = field(default_factory=dict)
    slowed: dict[str, float] = field(default_factory=dict)
    """Algorithms that diverged, and × what step size they were then trained."""

    @property
    def scale(self) -> LabelScale:
        """What brings labels and predictions back to their own units."""
        return self.prepared.scale

    def left(self, budgets: float = 1.0) -> float | None:
        """Seconds of the time limit; raises if they are too few to train as the study did, so many times."""
        return None if self.limit is None else self.limit.left(int(budgets * self.budget))

    def run(
        self, search: Search, trainer: Any, *, purpose: str, budgets: float = 1.0, **how: Any
    ) -> Result[Any]:
        """A whole study, charged; or TimeIsUp."""
        result = run(search, trainer, listeners=self.listeners, time_limit=self.left(budgets), **how)
        self.charge(purpose, sum(result.spent.values()))
        if result.reason != FINISHED:
            raise TimeIsUp
        return result

    @property
    def rate(self) -> float:
        """× the step size: what the study settled on, so that mixtures are compared and not step sizes."""
        return chosen_rate(self.prepared.search)

    def trained(
        self, algorithm: str, rows: Rows, *, purpose: str, sources: Sources | None = None
    ) -> Reference:
        """The better of a mixture's models, by their validation loss: with a decayed end, and without.

        Where the study settled on a step size of its own, the usual one is tried too: a reference must be
        beaten by more than its step size, and not suffer from one that suits it badly. If it diverges at
        all of them, smaller ones are tried, as a study does.
        """
        rates = dict.fromkeys([self.rate, 1.0])
        tried = [self._trained(algorithm, rows, rate, purpose, sources) for rate in rates]
        for rate in smaller_rates(self.prepared.setting.auto, than=min(rates)):
            if any(isfinite(each.loss) for each in tried):
                break
            tried.append(self._trained(algorithm, rows, rate, purpose, sources))
            if isfinite(tried[-1].loss):
                self.slowed[algorithm] = rate
        return min(tried, key=lambda each: each.loss)

    def _trained(
        self, algorithm: str, rows: Rows, rate: float, purpose: str, sources: Sources | None
    ) -> Reference:
        data = self.prepared.sources if sources is None else sources
        base, setting = self.prepared.seed, self.prepared.setting
        seed = derive_seed(base, (crc32(algorithm.encode()),))
        unbounded = replace(setting, budget=self.budget, data=data, minimum=None, maximum=None, caps=None)
        plain = make_search(algorithm, unbounded)
        assert isinstance(plain, Chain)
        search = EitherEnd(
            plain.stages[0].mixture,
            steps=sum(stage.steps for stage in plain.stages),
            data=data,
            metric=setting.metric,
            segments=setting.segments,
            watch=isinstance(self.prepared.search, Auto),  # which ends its own stages early too
        )
        trainer, nothing = self.prepared.trainer_for(data), self.nothing(rows)
        try:
            result = self.run(
                search if rate == 1.0 else AtRate(search, rate),
                trainer,
                seed=seed,
                init_seed=base,
                study=f"reference {algorithm}",
                purpose=purpose,
                budgets=REFERENCE_BUDGETS,
            )
        except TrainingError:  # it diverged: that is its score
            self.charge(purpose, search.spent)
            return Reference(algorithm, float("inf"), {algorithm: nothing})
        diverged = search.ends[search.better].diverged
        if diverged or blew_up(trainer, result.state, result.node.mixture, data, init_seed=base):
            return Reference(algorithm, float("inf"), {algorithm: nothing})
        name = algorithm + search.better
        ends = {name: self.own_units(trainer, result.state, rows)}
        if rows is data.validation:  # the rows that choose the end score it too: let others choose for them
            for end, told in search.ends.items():
                if told.predictions is not None and not told.diverged:
                    own = np.asarray(told.predictions, dtype=np.float64)
                    ends.setdefault(algorithm + end, self.scale.back(own))
        return Reference(name, result.value, ends)

    def own_units(self, trainer: Any, state: Any, rows: Rows) -> Floats:
        """A model's predictions in the label's own units."""
        return self.scale.back(np.asarray(trainer.predict(state, rows.x), dtype=np.float64))

    def nothing(self, rows: Rows) -> Floats:
        """The predictions of a model that diverged."""
        classes = self.prepared.sources.classes
        return np.full((len(rows), classes) if classes else len(rows), np.nan)

    def charge(self, purpose: str, steps: int) -> None:
        self.spent[purpose] = self.spent.get(purpose, 0) + steps


def chosen_rate(search: Search) -> float:
    """× the step size: that of a study that chose one, in its returned model's last phase; else 1.

    The rates of a tree search's commit or of a baseline's stages are part of them, and chosen by nothing.
    """
    if not isinstance(search, Auto) or not search.tree:
        return 1.0
    return settled_rate(search.tree.lineage(search.best().path))


# ------------------------------------------------------------------------------------------------- references


def references(extra: Extra, view: View, *, choose: Metric) -> tuple[dict[str, Rival], list[str]]:
    """What the obvious alternatives predict for the rows, by name, and what was left out and why.

    ``choose`` is the metric by which the best single source is chosen where the rows themselves have to.
    """
    if extra.prepared.reference == "none":
        return {}, []
    found, notes = _trained(extra, view, choose)
    slowed: dict[float, list[str]] = {}
    for algorithm, rate in extra.slowed.items():
        slowed.setdefault(rate, []).append(algorithm.replace("only:", "only ", 1))
    alike = [
        name for name in found if not any(name.removesuffix("+decay") in names for names in slowed.values())
    ]
    if alike and extra.rate != 1.0:
        at = f"{extra.rate:g} × the usual step size, at which the study ended, and at the usual one"
        notes.append(f"{_were(alike)} trained at {at}: the better one counts")
    for rate, names in slowed.items():
        notes.append(f"{_were(names)} trained at {rate:g} × the usual step size: larger ones diverged")
    return found, notes


def _were(names: Sequence[str]) -> str:
    return f"{listed(list(names))} {'was' if len(names) == 1 else 'were'}"


def _trained(extra: Extra, view: View, choose: Metric) -> tuple[dict[str, Rival], list[str]]:
    prepared = extra.prepared
    which, sources = prepared.reference, prepared.sources
    found: dict[str, Rival] = {}
    notes: list[str] = []

    def trained(name: str, train: Callable[[], tuple[str, Rival]]) -> None:
        try:
            told, rival = train()
            found[told] = rival
        except TimeIsUp as up:
            notes.append(f"not compared with {name}: {up.words}")

    def add(name: str) -> None:
        if name == "uniform" and len(sources) == 1:
            notes.append("not compared with uniform: there is one source, and no other mixture of it")
        elif prepared.policy in (name, f"{name}+decay"):
            notes.append(f"not compared with {name}: that is this policy itself")
        else:
            trained(name, lambda: _rival(extra, view, choose, [extra.trained(name, view.rows, purpose=name)]))

    add("uniform")
    if which == "uniform":
        return found, notes
    if len(sources) > 1:
        if len(set(sources.sizes.tolist())) > 1:
            add("pooled")
        else:
            notes.append("pooled is uniform here: all sources have as many rows")
        trained("the best single source", lambda: _best_single(extra, view, choose, notes))
    if view.apart:
        add(VALIDATION)
    elif view.folds is not None:
        rows, folds = view.rows, view.folds
        trained(VALIDATION, lambda: (VALIDATION, Rival(_validation_by_fold(extra, rows, folds), view.parts)))
    else:
        notes.append(
            "not compared with training on your own rows alone: they would score what they trained; give "
            "test rows, a holdout or nested folds"
        )
    return found, notes


def _best_single(extra: Extra, view: View, choose: Metric, notes: list[str]) -> tuple[str, Rival]:
    """The best of all sources alone: chosen by validation loss, where that is not on the same rows."""
    extra.left(REFERENCE_BUDGETS * len(extra.prepared.sources))
    tried = {
        name: extra.trained(f"only:{name}", view.rows, purpose="single sources")
        for name in extra.prepared.sources.names
    }
    if diverged := [name for name, each in tried.items() if not isfinite(each.loss)]:
        notes.append(f"trained on {listed(diverged)} alone the model diverged: no comparison with that")
    name, rival = _rival(extra, view, choose, list(tried.values()))
    name = name.replace("only:", "only ", 1)
    if view.apart:
        return name, rival
    if len(diverged) < len(tried):
        notes.append(
            f"the best single source by all of these rows: {name}; a part of them chooses for another"
        )
    return "the best single source", rival


def _rival(extra: Extra, view: View, choose: Metric, tried: Sequence[Reference]) -> tuple[str, Rival]:
    """The best of these models: by validation loss, where that is not on the same rows.

    Else every row is predicted by the model that the other rows choose, and the name is that of all rows'.
    """
    best = min(tried, key=lambda each: each.loss)
    predictions = {name: each for one in tried for name, each in one.ends.items()}
    if view.apart or len(predictions) == 1:
        return best.name, Rival(best.ends[best.name], view.parts)
    y, parts = extra.scale.back(view.rows.y), view.parts
    if parts is None:  # those of the same fold are predicted by one model
        parts = label_folds(y, min(2, len(y)), np.random.default_rng(0))
    mixed = out_of_fold(choose, y, predictions, folds=parts)
    for name, own in predictions.items():
        if np.array_equal(mixed, own):  # one model for all rows: nothing was put together
            return name, Rival(own, view.parts)
    return best.name, Rival(mixed, parts)


def _validation_by_fold(extra: Extra, rows: Rows, folds: NDArray[np.intp]) -> Floats:
    out = extra.nothing(rows)
    extra.left(REFERENCE_BUDGETS * len(np.unique(folds)))
    for fold in np.unique(folds):
        held = np.flatnonzero(folds == fold)
        kept = replace(extra.prepared.sources, validation=rows.take(np.flatnonzero(folds != fold)))
        tried = extra.trained(VALIDATION, rows.take(held), purpose=VALIDATION, sources=kept)
        out[held] = tried.ends[tried.name]
    return out


# ---------------------------------------------------------------------------------------------- nested folds


def nested_predictions(extra: Extra, folds: NDArray[np.intp]) -> Floats:
    """For every validation row the prediction of a whole fit that never saw it."""
    prepared, rows = extra.prepared, extra.prepared.sources.validation
    out = extra.nothing(rows)
    extra.left(len(np.unique(folds)))
    for fold in np.unique(folds):
        held = np.flatnonzero(folds == fold)
        kept = replace(prepared.sources, validation=rows.take(np.flatnonzero(folds != fold)))
        own = prepared.again(kept, budget=extra.budget)
        try:
            result = extra.run(
                own.search,
                own.trainer,
                seed=own.seed,
                objective=own.objective,
                study=f"nested fold {fold + 1}",
                purpose="nested folds",
            )
        except TrainingError:  # every model of this fold diverged: its rows have no prediction
            extra.charge("nested folds", extra.budget)
            continue
        out[held] = extra.own_units(own.trainer, result.state, rows.take(held))
    return out


# ------------------------------------------------------------------------------------------------ attribution


def attribution(extra: Extra, mixture: Mixture, view: View, metric: Metric) -> list[str]:
    """What each source is worth, in words with figures: short runs from one warm start, charged.

    The warm start is trained on all sources alike; from it one model goes on with the returned mixture,
    others with the mixture of some of its sources only.
    """
    prepared = extra.prepared
    names, how = prepared.sources.names, prepared.attribution
    if how is None:
        return []
    if len(names) == 1:
        return ["there is one source: all is its worth"]
    models = len(names) + _AGAIN if how == "loo" else 2 ** len(names)
    y, everyone = extra.scale.back(view.rows.y), frozenset(names)
    some = [everyone, *(everyone - {name} for name in names)] if how == "loo" else _subsets(names)[1:]
    for rate in (extra.rate, *smaller_rates(prepared.setting.auto, than=extra.rate)):
        try:
            extra.left(TRUNK_SHARE + ARM_SHARE * models)
        except TimeIsUp as up:
            return [f"no attribution: {up.words}"]
        arms = _Arms(extra, Allocation.of(mixture, len(names)).sources, view, rate)
        arms.train(some)
        if not arms.diverged:
            break
    why = "as the study ended" if arms.rate == extra.rate else "since larger ones diverged"
    at = "" if arms.rate == 1.0 else f" at {arms.rate:g} × the usual step size, {why}"
    notes = [
        f"attribution: runs of {arms.steps} steps from one warm start on all sources{at}, outside the budget"
    ]
    if how == "loo":
        luck = arms.luck(metric, y)
        alone = [
            _beyond(luck, paired_difference(metric, y, arms.of(everyone), arms.of(everyone - {name})))
            for name in names
        ]
        notes.append(f"by another seed such a score moves by {number(luck)}, which the intervals hold too")
        gaps = dict(zip(names, corrected(alone), strict=True))  # one look for each source
        for outcome, words in _MANY.items():
            alike = [name for name, gap in gaps.items() if gap.outcome == outcome]
            if len(alike) > NAMED:
                notes.append(words.format(count=len(alike)))
                gaps = {name: gap for name, gap in gaps.items() if name not in alike}
        weights = dict(zip(names, mixture, strict=False))
        return [
            *notes,
            *(without_source(metric, name, gap, weight=weights[name]) for name, gap in gaps.items()),
        ]
    try:
        worth = {some: -metric.signed(metric(y, arms.of(some))) for some in _subsets(names)}
    except DataError as error:  # of one class
        return [*notes, f"Shapley values could not be computed: {error}"]
    if not np.isfinite(list(worth.values())).all():
        return [*notes, "Shapley values could not be computed: a model without some of the sources diverged"]
    shares = shapley(names, lambda some: worth[some])
    told = ", ".join(f"{name} {number(share)}" for name, share in shares.items())
    return [*notes, f"Shapley values in {metric.name}, positive is better: {told}"]


def _beyond(luck: float, gap: Difference) -> Difference:
    """A difference with what another seed would have made of both models in its interval and its p-value."""
    if not isfinite(gap.p) or gap.value == gap.low == gap.high:
        return gap
    # Of two scores; how far such luck goes is known from few of them, as Student's t has it.
    reach = float(stdtrit(_AGAIN - 1, 0.975)) * np.sqrt(2.0) * luck
    down, up = np.hypot(gap.value - gap.low, reach), np.hypot(gap.high - gap.value, reach)
    low, high = gap.value - down, gap.value + up
    side = (gap.value - low if gap.value > 0.0 else high - gap.value) or np.inf
    p = float(2.0 * ndtr(-1.96 * abs(gap.value) / side))
    return replace(gap, low=float(low), high=float(high), p=max(gap.p, p))


class _Arms:
    """Models of subsets of the sources, all continued from one trunk."""

    def __init__(self, extra: Extra, mixture: Mixture, view: View, rate: float) -> None:
        self.extra, self.view, self.mixture, self.rate = extra, view, mixture, rate
        self.diverged = False
        self.trainer: Any = extra.prepared.trainer_for(extra.prepared.sources)
        self.names = extra.prepared.sources.names
        self.steps = max(1, int(ARM_SHARE * extra.budget))
        trunk, seed = max(1, int(TRUNK_SHARE * extra.budget)), extra.prepared.seed
        first, alike = self.trainer.init(seed), uniform_mixture(len(self.names))
        start = Job(first, alike, trunk, derive_seed(seed), rate)
        self.trunk = self.trainer.train([start])[0]
        extra.charge("attribution", trunk)
        # Without any source nothing more is trained.
        self.found = {frozenset[str](): extra.own_units(self.trainer, self.trunk, view.rows)}

    def train(self, some: Sequence[frozenset[str]]) -> None:
        base, sources = self.extra.prepared.seed, self.extra.prepared.sources
        seed = derive_seed(base, (1,))
        jobs = [Job(self.trunk, self._restricted(each), self.steps, seed, self.rate) for each in some]
        for each, job, state in zip(some, jobs, self.trainer.train(jobs), strict=True):
            self.found[each] = self.extra.own_units(self.trainer, state, self.view.rows)
            self.diverged |= blew_up(self.trainer, state, job.mixture, sources, init_seed=base)
        self.extra.charge("attribution", self.steps * len(jobs))

    def luck(self, metric: Metric, y: NDArray[Any]) -> float:
        """The standard deviation of a score over seeds, by training the model of all sources again."""
        everyone = frozenset(self.names)
        seeds = [derive_seed(self.extra.prepared.seed, (2, again)) for again in range(_AGAIN - 1)]
        mixture = self._restricted(everyone)
        states = self.trainer.train([Job(self.trunk, mixture, self.steps, seed, self.rate) for seed in seeds])
        self.extra.charge("attribution", self.steps * len(seeds))
        others = [self.extra.own_units(self.trainer, state, self.view.rows) for state in states]
        try:
            scores = np.array([metric(y, each) for each in (self.of(everyone), *others)])
        except DataError:  # of one class: there is no difference either
            return 0.0
        scores = scores[np.isfinite(scores)]
        return float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0

    def of(self, some: frozenset[str]) -> Floats:
        return self.found[some]

    def _restricted(self, some: frozenset[str]) -> Mixture:
        """The mixture of these sources only, in the returned proportions; alike if none had any weight."""
        inside = np.array([name in some for name in self.names], dtype=np.float64)
        kept = self.mixture * inside
        kept = kept if kept.sum() > 0 else inside
        restricted: Mixture = kept / kept.sum()
        return restricted


def _subsets(names: Sequence[str]) -> list[frozenset[str]]:
    return [
        frozenset(name for place, name in enumerate(names) if code >> place & 1)
        for code in range(2 ** len(names))
    ]
