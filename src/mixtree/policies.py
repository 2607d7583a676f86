"""What goes beyond the paper: ``auto``, the default policy."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Sources
from mixtree.errors import TrainingError
from mixtree.folds import FOLDS, held_rows, put_together
from mixtree.metrics import Metric, default_metric, row_losses
from mixtree.scripted import Script, Scripted, Told
from mixtree.search import ALL_DIVERGED, STEP_SIZE, Trial
from mixtree.simplex import Mixture, uniform_mixture
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path

if TYPE_CHECKING:
    from mixtree.estimate.matching import Matching

DECAY_RATE = 0.1
MIXTURES = {
    "uniform": "uniform",
    "pooled": "by the sources' sizes",
    "estimated": "estimated from the target's rows",
}
ESTIMATE = 2
"""Which way of estimating it: a study does not go on with a mixture that another way has found."""
TARGET_PHASES = ("target folds", "target")
LEAST_BUDGET = 60
LEAST_TARGET_ROWS = 20
"""With fewer validation rows a benefit of training on them cannot be told from noise."""


@dataclass(frozen=True, eq=False, slots=True)
class AutoOptions:
    """The shares of the budget and the rules of ``auto``; every one was measured in the arena."""

    rates: tuple[float, ...] = (1.0, 0.3, 3.0)
    rate_errors: float = 4.0
    """Another step size than the given one must be better by this many standard errors: a short trial favours
    large steps, and a wrong step size costs more than a wrong mixture."""
    worse_errors: float = 1.0
    """Training with larger steps than the given ones is undone if it worsens the loss by this many."""
    rate_share: float = 0.015
    """Of the budget, for each step size that is tried."""
    rate_least: int = 20
    """That many steps at least, unless it were twice that share: a few steps say nothing."""
    further_rates: int = 2
    """How often a still smaller one is tried after the smallest was best. Never a larger one: a short trial
    cannot see what too large a step does in the long run."""
    trunk_share: float = 0.25
    arms: tuple[str, ...] = ("uniform", "pooled", "estimated")
    """The mixtures of the race, simpler ones first."""
    arm_share: float = 0.03
    """Of the budget, for each mixture in the race."""
    decay_share: float = 0.25
    """Of what is left after the race, at a tenth of the step size."""
    commit_errors: float = 2.0
    """The commit with its decayed end is taken back if it worsens the loss by this many standard errors."""
    target_grid: tuple[float, ...] = (0.005, 0.01, 0.02, 0.04, 0.07)
    """Of the budget: how long a model may be tuned on the target's rows. Each length is tried on folds."""
    target_errors: tuple[float, float] = (0.5, 1.5)
    """Tuning must lower the cross-fitted loss by this many standard errors: where the hull test finds that no
    mixture of the sources is like the target, and where it does not. By chance the best of some lengths is
    better by one standard error, and each tuning in vain costs a little."""
    target_level: float = 0.2
    """Of that hull test."""
    target_veto: float = 1.0
    """And it must not worsen the cross-fitted metric by more than this many."""


@dataclass(frozen=True, eq=False, slots=True)
class Arm:
    """A mixture in the race; earlier ones are simpler."""

    name: str
    mixture: Mixture


@dataclass(frozen=True, eq=False, slots=True)
class Benefit:
    """By how much tuning on the target's rows lowers the cross-fitted loss, with its standard error."""

    gain: float
    error: float


NO_BENEFIT = Benefit(-inf, 0.0)


@dataclass(frozen=True, eq=False, slots=True)
class AutoSetting:
    """What ``auto`` knows when it starts."""

    sizes: NDArray[Any]
    budget: int
    data: Sources | None
    """The sources as the user gave them, without folds."""
    folds: int
    """How many fold sources the trainer has behind the K sources."""
    metric: Metric | None = None
    use_target_rows: bool = True
    seed: int = 0
    options: AutoOptions = field(default_factory=AutoOptions)


class Auto(Scripted):
    """A shared trunk, a race of a few mixtures, a long commit with a decayed end, and the target's rows last.

    1. A few step sizes start from the initial model on the uniform mixture; the best goes on as the trunk.
    2. From the trunk, a race: uniform, pooled, and the mixture estimated from the joint (x, y) of the
       validation rows.
    3. The winner's mixture gets most of the budget, its last part at a tenth of the step size.
    4. The target's own rows: models tuned on one half of them are scored on the other half, for a growing
       number of steps. If that helps, the model is tuned on all of them for the number that helped most.
    """

    rule = "auto"
    starts_over = True
    """At a raised budget it goes on from its longest trained model: its shares are shares of the budget, so
    none of its earlier rounds would be asked for again."""

    def __init__(self, setting: AutoSetting) -> None:
        super().__init__(setting.budget)
        self.setting = setting
        self.options = setting.options
        self.notes: list[str] = []
        """What was decided on the way, in words."""
        self.unseen: NDArray[Any] | None = None
        """If the returned model was tuned on the validation rows: what its twins on the folds, tuned as long,
        predict for the rows that they were not tuned on."""
        self.matching: Matching | None = None
        """How the mixture was estimated, if it was: the verdict asks the same rows."""
        self._sources = len(setting.sizes)
        self._scale = 1.0
        self._predictions: dict[Path, NDArray[Any]] = {}
        self._adopted: dict[Path, Node] = {}

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked."""
        plain = {name: getattr(self.options, name) for name in self.options.__dataclass_fields__}
        more = {
            "folds": self.setting.folds,
            "target": self.setting.use_target_rows,
            "seed": self.setting.seed,
            "estimate": ESTIMATE,
        }
        metric = None if self.setting.metric is None else self.setting.metric.name
        return {"search": "auto", "options": plain, "metric": metric, **more}

    # -- the script ---------------------------------------------------------------------------------------

    def script(self) -> Script:
        if self.budget < LEAST_BUDGET:
            self.notes.append(f"below {LEAST_BUDGET} steps nothing is chosen: uniform, with a decayed end")
            return (yield from self._plain())
        if self._adopted:
            winner, mixture = self._longest_trained()
            steps = sum(node.steps for node in self.tree.lineage(winner.path))
            self.notes.append(f"goes on from the model that was trained for {steps} steps, on its mixture")
        else:
            trunk = yield from self._trunk()
            if trunk is None:
                return (yield from self._plain())
            winner, mixture = yield from self._race(trunk)
        reserve = min(self._target_reserve(), self.left // 2)
        model = yield from self._commit(winner, mixture, self.left - reserve)
        if reserve:
            model = yield from self._target_rows(model, mixture)
        return model

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Take over the nodes of an earlier run with a smaller budget: charged, and gone on from."""
        self._ledger.adopt(nodes)
        self._adopted |= {node.path: node for node in nodes}

    def may_return(self, node: Node) -> bool:
        # Trained on validation rows, a node's value says nothing; only the whole script knows if it is good.
        return node.phase not in TARGET_PHASES

    def _longest_trained(self) -> tuple[Node, Mixture]:
        """The adopted model with most steps behind it, none of them on the target's rows, and its mixture.

        What was tried on the target's rows was the model that the earlier run had kept. Where it did not come
        to that, values tell what it had undone: predictions are gone.
        """
        everything = self._adopted
        before = {path[:-1] for path, node in everything.items() if node.phase in TARGET_PHASES}
        kept = {path for path in before if path in everything and self.may_return(everything[path])}
        gone = {node.path[:-1] for node in everything.values() if self._taken_back(node)}
        usable = [
            node
            for node in everything.values()
            if self.may_return(node)
            and not node.diverged
            and (node.path in kept or (node.path not in gone and not self._ruined(node)))
        ]
        known = [
            node for node in usable if node.path in kept or (node.phase == "decay" and node.path[:-1] in kept)
        ]
        if not usable:
            raise TrainingError(ALL_DIVERGED)
        stem = max(known or usable, key=self._trained_and_good)
        self._scale = self._scale_after(stem)
        return stem, stem.mixture[: self._sources]

    def _trained_and_good(self, node: Node) -> tuple[int, bool, float]:
        """Steps behind a model; of as many the one that was committed to, then the better one, is more."""
        committed = any(
            node.path == each.path[:-1] for each in self._adopted.values() if each.phase == "commit"
        )
        return sum(each.steps for each in self.tree.lineage(node.path)), committed, -node.value

    def _scale_after(self, stem: Node) -> float:
        """The step size to go on with: the stem's, or a smaller one than commits had that were undone."""
        behind = {node.path for node in self.tree.lineage(stem.path)}
        undone = [
            node.lr_scale
            for node in self._adopted.values()
            if node.phase == "commit" and node.path[:-1] in behind and node.path not in behind
        ]
        return 0.3 * min(undone) if undone else settled_rate(self.tree.lineage(stem.path))

    def _ruined(self, node: Node) -> bool:
        """Whether an adopted model, or one before it, was undone, as far as values tell."""
        for before, now in pairwise(self.tree.lineage(node.path)):
            limit = _far(before.value)
            if _scale_of(now) > 1.0:
                limit = min(limit, self.options.worse_errors * _larger_error(before, now))
            if now.value - before.value > limit or self._taken_back(now):
                return True
        return False

    def _taken_back(self, node: Node) -> bool:
        """Whether it is the end of an adopted commit that made things worse."""
        last = self.tree.lineage(node.path)[-3:]
        if [each.phase for each in last[1:]] != ["commit", "decay"]:
            return False
        start, commit, end = last
        if end.diverged or end.value - commit.value > _far(commit.value):
            end = commit  # the decay was left out
        error = _larger_error(start, end)
        return error > 0.0 and end.value - start.value > self.options.commit_errors * error

    def _plain(self) -> Script:
        last = self.left // 2
        mixture = uniform_mixture(self._sources)
        path = self._fresh()
        told = yield [self._trial(path, mixture, self.left - last, self._scale)]
        first = told[path].node
        if first.diverged or not last:
            return first
        told = yield [self._trial((*path, 0), mixture, last, DECAY_RATE * self._scale, "decay")]
        second = told[(*path, 0)].node
        return first if second.diverged else second

    def _trunk(self) -> Generator[list[Trial], dict[Path, Told], Node | None]:
        """Step sizes from the initial model; the best goes on."""
        tried = yield from self._step_size()
        if not tried:
            return None
        start = tried[self._scale]
        trunk = yield from self._grown(start)
        if trunk is None:  # it was too large after all: the next smaller one, once
            self._scale = max([rate for rate in tried if rate < self._scale], default=0.3 * self._scale)
            start = tried.get(self._scale, start)
            trunk = yield from self._grown(start)
        if trunk is None:
            self._scale *= 0.3
            trunk = start.node
        size = "unchanged" if self._scale == 1 else f"{self._scale:g} × the usual one"
        self.notes.append(f"step size: {size}")
        return trunk

    def _grown(self, start: Told) -> Generator[list[Trial], dict[Path, Told], Node | None]:
        """On from a trial of this step size, or from the initial model; None if it blows up."""
        steps, path = int(self.options.trunk_share * self.budget), self._fresh()
        if start.node.lr_scale == self._scale:
            steps, path = steps - start.node.steps, self._child(start.node.path, 0)
        told = yield [self._trial(path, uniform_mixture(self._sources), max(1, steps), self._scale, "trunk")]
        return None if self._blown(told[path], start) else told[path].node

    def _step_size(self) -> Generator[list[Trial], dict[Path, Told], dict[float, Told]]:
        """Settles on the simplest step size that none beats, beyond the ends of the range as long as the end
        is best. What came of those that did not diverge, by step size.
        """
        share = self.options.rate_share * self.budget
        steps = max(1, int(max(share, min(self.options.rate_least, 2.0 * share))))
        rates, tried = list(self.options.rates), list[Told]()
        for _ in range(1 + self.options.further_rates):
            trials = [
                self._trial((number,), uniform_mixture(self._sources), steps, rates[number], STEP_SIZE)
                for number in range(len(tried), len(rates))
            ]
            told = yield trials
            tried += [told[trial.path] for trial in trials]
            pick = self._simplest(tried, self.options.rate_errors)
            if pick is None:
                rates.append(0.1 * min(rates))
            elif len(rates) > 1 and rates[pick] == min(rates):
                rates.append(0.3 * rates[pick])
            else:
                break
        if pick is None:
            return {}
        self._scale = rates[pick]
        return {rate: each for rate, each in zip(rates, tried, strict=False) if not each.node.diverged}

    def _race(self, trunk: Node) -> Generator[list[Trial], dict[Path, Told], tuple[Node, Mixture]]:
        arms = self._arms()
        if len(arms) == 1:
            return trunk, arms[0].mixture
        steps = max(1, int(self.options.arm_share * self.budget))
        told, paths = yield from self._settled(
            [(self._child(trunk.path, number), arm.mixture) for number, arm in enumerate(arms)], steps, "race"
        )
        outcomes = [told[path] for path in paths]
        pick = self._winner(outcomes)
        if pick is None:
            self._scale *= 0.3
            return trunk, arms[0].mixture
        self.notes.append(f"mixture: {MIXTURES[arms[pick].name]}, the best of {len(arms)} in a short race")
        return outcomes[pick].node, arms[pick].mixture

    def _settled(
        self, starts: Sequence[tuple[Path, Mixture]], steps: int, phase: str
    ) -> Generator[list[Trial], dict[Path, Told], tuple[dict[Path, Told], list[Path]]]:
        """Train these, the last third at a tenth of the step size; what came of it, and the last paths.

        Without the calm end models are told apart by the noise of their last few steps.
        """
        told: dict[Path, Told] = {}
        paths = [path for path, _ in starts]
        for number, (count, rate) in enumerate(settling(steps)):
            paths = [(*path, 0) for path in paths] if number else paths
            trials = [
                self._trial(path, mixture, count, rate * self._scale, phase)
                for path, (_, mixture) in zip(paths, starts, strict=True)
            ]
            told = yield trials
        return told, paths

    def _arms(self) -> list[Arm]:
        made = {
            "uniform": lambda: uniform_mixture(self._sources),
            "pooled": lambda: self.setting.sizes / self.setting.sizes.sum(),
            "estimated": self._estimated,
        }
        arms: list[Arm] = []
        for name in self.options.arms:
            mixture = made[name]()
            if all(np.abs(mixture - arm.mixture).sum() > 0.1 for arm in arms):
                arms.append(Arm(name, mixture))
        return arms

    def _estimated(self) -> Mixture:
        from mixtree.estimate.matching import Matching
        from mixtree.estimate.moments import MOST_SOURCES

        if self.setting.data is None or self._sources == 1:
            return uniform_mixture(self._sources)
        if self._sources > MOST_SOURCES:
            self.notes.append(f"no mixture was estimated: there are more than {MOST_SOURCES} sources")
            return uniform_mixture(self._sources)
        self.matching = Matching(self.setting.data)
        return self.matching.estimate.alpha

    def _commit(self, start: Node, mixture: Mixture, steps: int) -> Script:
        last = int(self.options.decay_share * steps)
        node = start
        for number, (count, rate, phase) in enumerate(
            ((steps - last, 1.0, "commit"), (last, DECAY_RATE, "decay"))
        ):
            if count < 1:
                continue
            path = self._child(node.path, 10 + number)
            told = yield [self._trial(path, mixture, count, rate * self._scale, phase)]
            if self._blown(told[path], self._known(node)):
                self.notes.append(f"{phase} made it much worse: the model before it is kept")
                self._scale *= 0.3
                if phase == "commit":  # what is left for the end is all there is now
                    return (yield from self._commit(start, mixture, last))
                continue
            node = told[path].node
        gap, error, _ = self._worsening(self._known(start), self._known(node))
        if error > 0.0 and gap > self.options.commit_errors * error:
            self.notes.append("the long training made it worse: the model before it is kept")
            return start
        return node

    # -- the target's own rows ----------------------------------------------------------------------------

    def _target_reserve(self) -> int:
        setting = self.setting
        if not setting.use_target_rows or setting.folds != FOLDS or setting.data is None:
            return 0
        if len(setting.data.validation) < LEAST_TARGET_ROWS:
            return 0
        trials = 2 * FOLDS * self._length(1) if self._scale < 1.0 else 0
        return (FOLDS + 1) * self._length(-1) + trials

    def _target_rows(self, model: Node, mixture: Mixture) -> Script:
        """Tune on one fold, score on the other, ever longer; then on all rows for as long as helped most."""
        assert self.setting.data is not None
        held = held_rows(self.setting.data)
        usual = self._scale
        if self._scale < 1.0 and (3 * FOLDS + 1) * self._length(1) <= self.left:
            yield from self._target_step_size(model, held)
        start = [self._known(model)] * FOLDS
        ends, best, done = [model.path] * FOLDS, Benefit(0.0, 0.0), 0
        pieces, helpful, twins = list[int](), 0, start
        for length in self._target_lengths():
            starts = [(self._child(end, 20 + fold), self._fold(fold)) for fold, end in enumerate(ends)]
            pieces.append(length - done)
            told, ends = yield from self._settled(starts, pieces[-1], "target folds")
            now, done = [told[end] for end in ends], length
            if any(each.node.diverged for each in now):
                break
            benefit = self._benefit(held, start, now)
            if benefit.gain > best.gain:
                best, helpful, twins = benefit, len(pieces), now
        if helpful and self._convincing(best):
            tuned = yield from self._tune(model, pieces[:helpful])
            # On the very rows that it was trained on it cannot be worse, unless its steps were too large.
            if self._worsening(self._known(model), self._known(tuned))[0] <= 0.0:
                more = "more did not help more"
                if helpful == len(pieces):
                    more = "no longer training was tried, and it may help more (policy validation, fine-tune)"
                self.notes.append(
                    f"target rows: trained on them for the last {sum(pieces[:helpful])} steps, which lowers "
                    f"the loss of target rows held back by {best.gain:.3g} ± {best.error:.2g}; {more}"
                )
                self.unseen = put_together(held, [twin.predictions for twin in twins])
                return tuned
            self.notes.append("target rows: training on all of them made the model worse; it was undone")
        elif helpful:
            self.notes.append(
                "target rows: not trained on; it lowers the loss of target rows held back by "
                f"{best.gain:.3g} ± {best.error:.2g}, which may be chance"
            )
        else:
            self.notes.append(
                "target rows: not trained on; it would not lower the loss of target rows held back"
            )
        self._scale = usual
        if self.left > 0:  # what the target rows did not need goes on as before
            path = self._child(model.path, 31)
            told = yield [self._trial(path, mixture, self.left, DECAY_RATE * self._scale, "decay")]
            return model if self._blown(told[path], self._known(model)) else told[path].node
        return model

    def _target_step_size(
        self, model: Node, held: Sequence[NDArray[np.intp]]
    ) -> Generator[list[Trial], dict[Path, Told], None]:
        """The usual step size for the target's rows, if it helps them more than the smaller one settled on.

        Small steps may have been best because the sources lead away from the target, not because larger ones
        blow up.
        """
        start, gains = [self._known(model)] * FOLDS, dict[float, float]()
        for scale in (self._scale, 1.0):
            self._scale = scale
            starts = [(self._child(model.path, 40 + fold), self._fold(fold)) for fold in range(FOLDS)]
            told, ends = yield from self._settled(starts, self._length(1), "target folds")
            now = [told[end] for end in ends]
            diverged = any(each.node.diverged for each in now)
            gains[scale] = (NO_BENEFIT if diverged else self._benefit(held, start, now)).gain
        self._scale = max(gains, key=lambda scale: gains[scale])
        if self._scale == 1.0:
            self.notes.append("step size on the target rows: the usual one, which helps them more")

    def _length(self, place: int) -> int:
        """Steps of one of the lengths of tuning on the target's rows."""
        return max(1, int(self.options.target_grid[place] * self.budget))

    def _target_lengths(self) -> list[int]:
        """Numbers of steps that grow, as far as the budget reaches: two folds and the tuning itself."""
        lengths = [self._length(place) for place in range(len(self.options.target_grid))]
        return [each for each in dict.fromkeys(lengths) if (FOLDS + 1) * each <= self.left]

    def _tune(self, model: Node, pieces: Sequence[int]) -> Script:
        """What helped the folds, on all target rows."""
        path = self._child(model.path, 30)
        for steps in pieces:
            target = np.eye(self._width + 1)[-1]
            told, (end,) = yield from self._settled([(path, target)], steps, "target")
            if told[end].node.diverged:
                break
            model, path = told[end].node, (*end, 0)
        return model

    def _benefit(
        self, held: Sequence[NDArray[np.intp]], before: Sequence[Told], now: Sequence[Told]
    ) -> Benefit:
        """How much lower the loss is on rows that a fold's model did not see; none if the metric is worse.

        The loss, since it tells small benefits from noise with few rows; the metric has a veto, since a loss
        may fall by better calibration alone.
        """
        gains = [self._gains(old, new, rows) for rows, old, new in zip(held, before, now, strict=True)]
        if any(each is None for each in gains):
            return NO_BENEFIT
        loss, loss_error, score, score_error = np.array(gains, dtype=np.float64).T
        worse = not isfinite(score.mean()) or score.mean() < -self.options.target_veto * _combined(
            score_error
        )
        if worse or not isfinite(loss.mean()):
            return NO_BENEFIT
        return Benefit(float(loss.mean()), _combined(loss_error))

    def _convincing(self, benefit: Benefit) -> bool:
        """Whether so much is no chance; where the target is unlike the sources less is enough."""
        few, many = (errors * benefit.error for errors in self.options.target_errors)
        return benefit.gain > many or (benefit.gain > few and self._outside())

    def _outside(self) -> bool:
        """Whether the target is unlike every mixture of the sources, as far as its rows can tell."""
        from mixtree.verdict.target import ROWS, about_target

        assert self.setting.data is not None
        level, known = self.options.target_level, self.matching
        hull, _ = about_target(
            self.setting.data, seed=0, matching=known, rows=ROWS, level=level, look_outside=False
        )
        return hull.inside is False

    def _gains(
        self, old: Told, new: Told, rows: NDArray[np.intp] | slice
    ) -> tuple[float, float, float, float] | None:
        """How much better the new model is on these rows, by loss and by metric, with standard errors."""
        if old.predictions is None or new.predictions is None or self.setting.data is None:
            return None
        y, classes = self.setting.data.validation.y[rows], self.setting.data.classes
        if len(y) < 2 or (classes and len(np.unique(y)) < 2):
            return None
        one, two = old.predictions[rows], new.predictions[rows]
        gaps = row_losses(y, one, classes) - row_losses(y, two, classes)
        metric = self.setting.metric or default_metric(classes)
        score = metric.signed(metric(y, one)) - metric.signed(metric(y, two))
        error = gaps.std(ddof=1) / np.sqrt(len(gaps))
        return float(gaps.mean()), float(error), score, metric.paired_error(y, one, two)

    def _fold(self, number: int) -> Mixture:
        chosen: Mixture = np.eye(self._width)[self._sources + number]
        return chosen

    # -- helpers ------------------------------------------------------------------------------------------

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        if evaluation.predictions is not None:
            self._predictions[trial.path] = evaluation.predictions
        super().tell(trial, evaluation)

    def _trial(self, path: Path, mixture: Mixture, steps: int, rate: float, phase: str = "train") -> Trial:
        padded = np.concatenate([mixture, np.zeros(max(0, self._width - len(mixture)))])
        return Trial(path, padded, min(steps, self.left), lr_scale=rate, phase=phase)

    def _child(self, path: Path, index: int) -> Path:
        """A path below this one that nothing has used."""
        while (*path, index) in self.tree:
            index += 100
        return (*path, index)

    def _known(self, node: Node) -> Told:
        return Told(node, self._predictions.get(node.path))

    def _blown(self, now: Told, before: Told) -> bool:
        """Whether training made a model worse, as too large steps do: several times as bad, or, with larger
        steps than usual, noticeably. Usual ones may do so where the target is unlike the sources."""
        if now.node.diverged:
            return True
        gap, error, start = self._worsening(before, now)
        limit = _far(start)
        if self._scale > 1.0:
            limit = min(limit, self.options.worse_errors * error)
        return gap > limit

    def _worsening(self, before: Told, now: Told) -> tuple[float, float, float]:
        """By how much the loss rose, with its standard error, and from what; of the value where it is all
        there is: a search may minimise a metric, of which ties and one row say little."""
        gains = self._gains(before, now, slice(None))
        if gains is None or before.predictions is None or self.setting.data is None:
            gap = now.node.value - before.node.value
            return gap, self._paired_error(before, now), before.node.value
        validation, classes = self.setting.data.validation, self.setting.data.classes
        start = float(row_losses(validation.y, before.predictions, classes).mean())
        return -gains[0], gains[1], start

    @property
    def _width(self) -> int:
        return self._sources + self.setting.folds

    def _fresh(self) -> Path:
        number = 0
        while (number,) in self.tree:
            number += 1
        return (number,)

    def _simplest(self, outcomes: Sequence[Told], errors: float) -> int | None:
        """The first outcome that no later one beats by so many standard errors of the paired difference."""
        finite = [place for place, each in enumerate(outcomes) if not each.node.diverged]
        if not finite:
            return None
        pick = finite[0]
        for place in finite[1:]:
            gain = outcomes[pick].node.value - outcomes[place].node.value
            sure = errors * self._paired_error(outcomes[pick], outcomes[place])
            if gain > min(sure, _far(outcomes[place].node.value)):
                pick = place
        return pick

    def _winner(self, outcomes: Sequence[Told]) -> int | None:
        """The outcome of smallest value; a less simple one must not have a worse metric either."""
        finite = [place for place, each in enumerate(outcomes) if not each.node.diverged]
        if not finite:
            return None
        pick = finite[0]
        for place in finite[1:]:
            gains = self._gains(outcomes[pick], outcomes[place], slice(None))
            no_worse = gains is None or gains[2] >= 0
            if outcomes[place].node.value < outcomes[pick].node.value and no_worse:
                pick = place
        return pick

    def _paired_error(self, one: Told, two: Told) -> float:
        gains = self._gains(one, two, slice(None))
        if gains is not None:
            return gains[1]
        errors = [each.node.standard_error for each in (one, two)]
        return max((error for error in errors if isfinite(error)), default=0.0)


def settling(steps: int) -> list[tuple[int, float]]:
    """So many steps, the last third of them at a tenth of the step size.

    >>> settling(10)
    [(7, 1.0), (3, 0.1)]
    """
    return [part for part in ((steps - steps // 3, 1.0), (steps // 3, DECAY_RATE)) if part[0]]


def settled_rate(lineage: Sequence[Node]) -> float:
    """× the step size that a model of auto was trained with at last; 1 if none was chosen for it."""
    calm = ("race", *TARGET_PHASES)  # their ends are decayed under the same name
    chosen = [node for node in lineage if node.phase not in calm]
    return round(_scale_of(chosen[-1]), 9) if chosen else 1.0  # rounded: 0.1 × 3 / 0.1 is not 3


def _scale_of(node: Node) -> float:
    """The step size of a node, before it was decayed."""
    return node.lr_scale / (DECAY_RATE if node.phase == "decay" else 1.0)


def _larger_error(one: Node, two: Node) -> float:
    """Of the two values; 0 where neither is known."""
    errors = (one.standard_error, two.standard_error)
    return max((error for error in errors if isfinite(error)), default=0.0)


def _far(value: float) -> float:
    """From this value to five times as bad a one."""
    return 4.0 * abs(value)


def _combined(errors: NDArray[np.float64]) -> float:
    """The standard error of a mean of independent figures; 0 where it is unknown."""
    error = float(np.sqrt(np.sum(np.square(errors))) / len(errors))
    return error if isfinite(error) else 0.0
