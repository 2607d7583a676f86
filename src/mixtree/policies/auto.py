"""What goes beyond the paper: ``auto``, the default policy."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.allocation import FOLDS, Allocation
from mixtree.data.folds import held_rows, put_together
from mixtree.data.sources import Sources
from mixtree.errors import InputError, TrainingError
from mixtree.estimate.matching import Matching
from mixtree.estimate.moments import MOST_SOURCES
from mixtree.estimate.target import ROWS, about_target
from mixtree.metrics import Metric, default_metric, row_losses
from mixtree.policies.merging import BRANCH, CHOSEN, LOOKS, Branches, Start, alike, grow, tree_of_looks
from mixtree.policies.script import Script, Scripted
from mixtree.policies.setting import MANY_PASSES, Setting
from mixtree.search import ALL_DIVERGED, SEGMENTS, STEP_SIZE, in_segments
from mixtree.simplex import NO_STEP, Mixture, capped, uniform_mixture
from mixtree.trainer import Evaluation
from mixtree.tree import Merge, Node, Path, Trial

DECAY_RATE = 0.1
MIXTURES = {
    "uniform": "uniform",
    "pooled": "by the sources' sizes",
    "estimated": "estimated from the target's rows",
    "tree": "from the tree over merged models",
}
ESTIMATE = 2
"""Which way of estimating it: a study does not go on with a mixture that another way has found."""
TARGET_PHASES = ("target folds", "target")
END_PATHS = (11, 12)
"""Below the model that the commit has come to: its end, at the full step size and at a decayed one."""
GOES_ON = 31
"""Below a model whose target rows were tried: the training that goes on as before."""
LEAST_BUDGET = 60
LEAST_BRANCH = 25
"""Steps of a branch: shorter ones say less of their sources than the estimate from the target's rows."""
LEAST_TARGET_ROWS = 20
"""With fewer validation rows a benefit of training on them cannot be told from noise."""


@dataclass(frozen=True, eq=False, slots=True)
class Arm:
    """A mixture in the race; earlier ones are simpler."""

    name: str
    mixture: Mixture
    look: Node | None = None
    """The look at its merged model, from which it goes on."""


@dataclass(frozen=True, eq=False, slots=True)
class Benefit:
    """By how much tuning on the target's rows lowers the cross-fitted loss, with its standard error."""

    gain: float
    error: float


NO_BENEFIT = Benefit(-inf, 0.0)


PATIENCE, SURELY = 3, 2.0
"""Segments in a row before a stage is ended, each worse than the best one by so many standard errors."""


@dataclass(frozen=True, eq=False, slots=True)
class Stretch:
    """What came of a stage that was trained in segments."""

    last: Node
    kept: Node
    """The model to go on from: the last one, or the best one where the last is worse than that."""
    stopped: bool
    """More training made the model worse: the rest of the stage was not trained."""


class Measured(Scripted):
    """A script that compares its models row by row on the validation rows.

    ``data`` has the validation rows, ``metric`` is the user's; ``width`` is the number of weights that the
    trainer expects. Without ``watch`` no stage is ever ended early.
    """

    uses_predictions = True

    def __init__(
        self,
        budget: int,
        *,
        data: Sources | None,
        metric: Metric | None,
        width: int,
        segments: int = SEGMENTS,
        watch: bool = True,
    ) -> None:
        super().__init__(budget)
        self.notes: list[str] = []
        """What was decided on the way, in words."""
        self.chosen_from: dict[Path, Path] = {}
        """Segments of stages whose best one was kept, not the last, and the paths of the stages."""
        self._data, self._metric, self._width = data, metric, width
        self._segments, self._watch = segments, watch
        self._scale = 1.0
        """× the step size, of whatever is trained next."""
        self._predictions: dict[Path, NDArray[Any]] = {}

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        if evaluation.predictions is not None:
            self._predictions[trial.path] = evaluation.predictions
        super().tell(trial, evaluation)

    def _stage(
        self,
        path: Path,
        mixture: Mixture,
        steps: int,
        rate: float,
        phase: str,
        *,
        before: Node | None = None,
        merged: Merge | None = None,
    ) -> Generator[list[Trial], list[Node], Stretch]:
        """Train in segments until the validation rows say that more makes the model worse.

        A segment counts as worse if its loss is surely larger than that of the best model so far, ``before``
        among them: by two standard errors of their paired difference.
        """
        best, worse, stopped, looked = before, 0, False, list[Path]()
        whole = self._trial(path, mixture, steps, rate, phase, merged=merged)
        for trial in in_segments(whole, self._segments):
            (now,) = yield [trial]
            if trial.segment is not None and trial.segment.before and trial.path[:-1] != (best and best.path):
                self._useless.add(trial.path[:-1])
            if now.diverged:
                return Stretch(now, best or now, False)
            looked.append(trial.path)
            gap, error = (-1.0, 0.0) if best is None else self._worsening(best, now)[:2]
            worse = worse + 1 if gap > SURELY * error else 0
            if gap < 0.0:
                if best is not None and best is not before:
                    self._useless.add(best.path)
                best = now
            if self._watch and worse >= PATIENCE:
                stopped = True
                break
        if not self._watch or best is None or not worse:
            return Stretch(now, now, stopped)
        self._useless.add(now.path)
        self.chosen_from |= dict.fromkeys(looked, looked[0])
        return Stretch(now, best, stopped)

    def _gains(
        self, old: Node, new: Node, rows: NDArray[np.intp] | slice
    ) -> tuple[float, float, float, float] | None:
        """How much better the new model is on these rows, by loss and by metric, with standard errors."""
        if old.predictions is None or new.predictions is None or self._data is None:
            return None
        y, classes = self._data.validation.y[rows], self._data.classes
        if len(y) < 2 or (classes and len(np.unique(y)) < 2):
            return None
        one, two = old.predictions[rows], new.predictions[rows]
        gaps = row_losses(y, one, classes) - row_losses(y, two, classes)
        metric = self._metric or default_metric(classes)
        score = metric.signed(metric(y, one)) - metric.signed(metric(y, two))
        error = gaps.std(ddof=1) / np.sqrt(len(gaps))
        return float(gaps.mean()), float(error), score, metric.paired_error(y, one, two)

    def _trial(
        self,
        path: Path,
        mixture: Mixture,
        steps: int,
        rate: float,
        phase: str = "train",
        *,
        merged: Merge | None = None,
    ) -> Trial:
        if len(mixture) < self._width:  # of the sources alone, and the trainer has folds behind them
            mixture = Allocation(mixture, (0.0,) * (self._width - len(mixture))).mixture
        return Trial(path, mixture, min(steps, self.left), lr_scale=rate, phase=phase, merged=merged)

    def _child(self, path: Path, index: int) -> Path:
        """A path below this one that nothing has used."""
        while (*path, index) in self.tree:
            index += 100
        return (*path, index)

    def _known(self, node: Node) -> Node:
        return replace(node, predictions=self._predictions.get(node.path))

    def _worsening(self, before: Node, now: Node) -> tuple[float, float, float]:
        """By how much the loss rose, with its standard error, and from what; of the value where it is all
        there is: a search may minimise a metric, of which ties and one row say little."""
        gains = self._gains(before, now, slice(None))
        if gains is None or before.predictions is None or self._data is None:
            gap = now.value - before.value
            return gap, self._paired_error(before, now), before.value
        validation, classes = self._data.validation, self._data.classes
        start = float(row_losses(validation.y, before.predictions, classes).mean())
        return -gains[0], gains[1], start

    def _fresh(self) -> Path:
        number = 0
        while (number,) in self.tree:
            number += 1
        return (number,)

    def _paired_error(self, one: Node, two: Node) -> float:
        gains = self._gains(one, two, slice(None))
        if gains is not None:
            return gains[1]
        errors = [each.standard_error for each in (one, two)]
        return max((error for error in errors if isfinite(error)), default=0.0)

    def _settled(
        self,
        starts: Sequence[tuple[Path, Mixture]],
        steps: int,
        phase: str,
        *,
        merges: Sequence[Merge | None] = (),
    ) -> Generator[list[Trial], list[Node], list[Node]]:
        """Train these, the last third at a tenth of the step size; what came of it.

        Without the calm end models are told apart by the noise of their last few steps.
        """
        nodes: list[Node] = []
        paths = [path for path, _ in starts]
        for number, (count, rate) in enumerate(settling(steps)):
            paths = [(*path, 0) for path in paths] if number else paths
            begin = list(merges) if merges and not number else [None] * len(starts)
            trials = [
                self._trial(path, mixture, count, rate * self._scale, phase, merged=merged)
                for path, (_, mixture), merged in zip(paths, starts, begin, strict=True)
            ]
            nodes = yield trials
        return nodes

    def _equally_good(self, outcomes: Sequence[Node]) -> list[int]:
        """Those within a standard error of the smallest value: the one to take, then simpler ones first.

        Unless it is the simplest of all, that one must not have a worse metric than the simplest either.
        """
        finite = [place for place, each in enumerate(outcomes) if not each.diverged]
        fit = finite[:1]
        for place in finite[1:]:
            gains = self._gains(outcomes[finite[0]], outcomes[place], slice(None))
            if gains is None or gains[2] >= 0:
                fit.append(place)
        if not fit:
            return []
        best = outcomes[min(fit, key=lambda place: outcomes[place].value)]
        alike = [
            place
            for place in finite
            if outcomes[place].value - best.value <= self._paired_error(best, outcomes[place])
        ]
        return sorted(alike, key=lambda place: place not in fit)

    def _nearest_to_uniform(self, looks: Sequence[Node]) -> Node | None:
        """Of the looks within one standard error of the best the one nearest to the uniform mixture."""
        seen = [self._known(node) for node in looks if not node.diverged]
        if not seen:
            return None
        best, even = min(seen, key=lambda node: node.value), looks[0].mixture
        good = [node for node in seen if node.value - best.value <= self._paired_error(best, node)]
        return min(good, key=lambda node: float(np.abs(node.mixture - even).sum()))


class EitherEnd(Measured):
    """SGD on one mixture whose last half is trained twice: at the full step size, and at a tenth of it.

    It returns the better end by the value on the validation rows, and takes half as many steps again as its
    budget for that: what a policy has to beat must not be weak. Where training has not converged a decayed
    end is much worse than none; where it has, better. With ``watch`` stages are ended early, as ``auto``
    ends its own.
    """

    rule = "better end"

    def __init__(
        self,
        mixture: Mixture,
        *,
        steps: int,
        data: Sources | None = None,
        metric: Metric | None = None,
        segments: int = SEGMENTS,
        watch: bool = False,
    ) -> None:
        self._steps, self._last, self._mixture = steps, steps // 2, mixture
        width = len(mixture)
        super().__init__(
            steps + self._last, data=data, metric=metric, width=width, segments=segments, watch=watch
        )
        self.ends: dict[str, Node] = {}
        """By what is added to the mixture's name: nothing, or "+decay"."""

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked."""
        return {"search": "either end", "mixture": self._mixture.tolist(), "watch": self._watch}

    def script(self) -> Script:
        steps = self._steps - self._last
        first = yield from self._stage((), self._mixture, steps, 1.0, "train")
        self.ends[""] = _whole(first)
        if first.last.diverged or not self._last:
            return self.ends[""]
        for end, rate, phase in (("", 1.0, "train"), ("+decay", DECAY_RATE, "decay")):
            path = self._child(first.kept.path, 0)
            half = yield from self._stage(path, self._mixture, self._last, rate, phase, before=first.kept)
            self.ends[end] = _whole(half)
        return self.ends[self.better]

    @property
    def better(self) -> str:
        """What is added to the name of the end of smaller value; of two alike the one without a decay."""
        return min(self.ends, key=lambda name: self.ends[name].value)


class Auto(Measured):
    """A shared trunk, a race of a few mixtures, a long commit with a decayed end, and the target's rows last.

    1. A few step sizes start from the initial model on the uniform mixture; the best goes on as the trunk.
    2. From the trunk, a race: uniform, pooled, and the mixture estimated from the joint (x, y) of the
       validation rows.
    3. The winner's mixture gets most of the budget, its last part at a tenth of the step size.
    4. The target's own rows: models tuned on one half of them are scored on the other half, for a growing
       number of steps. If that helps, the model is tuned on all of them for the number that helped most.
    """

    rule = "auto"

    def __init__(self, setting: Setting, *, folds: int = 0) -> None:
        """``folds`` says how many fold sources the trainer has behind the K sources."""
        super().__init__(
            setting.budget,
            data=setting.data,
            metric=setting.metric,
            width=len(setting.sizes) + folds,
            segments=setting.segments,
        )
        self.setting, self.folds = setting, folds
        self.options = setting.auto
        self._reach = setting.budget
        """The budget that training can use: less where the trunk was stopped early, or rows are too few."""
        self._slope = 0.0
        """By how much a further step is expected to lower the loss, if the model is still improving."""
        self._end_rate = DECAY_RATE
        self.unseen: NDArray[Any] | None = None
        """If the returned model was tuned on the validation rows: what its twins on the folds, tuned as long,
        predict for the rows that they were not tuned on."""
        self.matching: Matching | None = None
        """How the mixture was estimated, if it was: the verdict asks the same rows."""
        self.equally_good: tuple[str, ...] = ()
        """The race's mixtures within one standard error of the best, in words."""
        self._sources = len(setting.sizes)
        self._uniform, share = self._within_caps(uniform_mixture(self._sources))
        self._reach = self._allowed = int(share * setting.budget)
        if self._allowed < 1:
            raise InputError(NO_STEP)
        self._adopted: dict[Path, Node] = {}

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked."""
        plain = {name: getattr(self.options, name) for name in self.options.__dataclass_fields__}
        more = {
            "folds": self.folds,
            "target": self.setting.use_target_rows,
            "seed": self.setting.seed,
            "estimate": ESTIMATE,
            "segments": self.setting.segments,
            "caps": None if self.setting.caps is None else self.setting.caps.tolist(),
        }
        metric = None if self.setting.metric is None else self.setting.metric.name
        return {"search": "auto", "options": plain, "metric": metric, **more}

    # -- the script ---------------------------------------------------------------------------------------

    def script(self) -> Script:
        if self._allowed < self.budget:
            self.notes.append(f"max_passes: the rows allow {self._allowed:,} of {self.budget:,} steps")
        if self._allowed < LEAST_BUDGET:
            self.notes.append(f"below {LEAST_BUDGET} steps no mixture is chosen: uniform")
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
        left = self._left
        reserve = min(self._target_reserve(), left // 2)
        model = yield from self._commit(winner, mixture, left - reserve)
        if reserve:
            model = yield from self._target_rows(model, mixture)
        if self._reach < self._allowed:
            unspent, of = self._allowed - self.spent, self._allowed
            self.notes.append(
                f"stopped early: {unspent:,} of {of:,} steps are unspent, since more training made the "
                "validation loss worse"
            )
        return model

    @property
    def _left(self) -> int:
        """Steps that training can still use."""
        return max(0, self._reach - self.spent)

    @property
    def _shared(self) -> int:
        """What the shares of the trials, the trunk and the race are of: no more than a model can use.

        Trials as long as shares of an absurd budget know all rows by heart before anything is chosen.
        """
        most = int(MANY_PASSES * self.setting.sizes.sum() / self.setting.batch_size)
        return min(self._reach, max(LEAST_BUDGET, most))

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Take over the nodes of an earlier run with a smaller budget: charged, and gone on from."""
        super().adopt(nodes)
        self._adopted |= {node.path: node for node in nodes}

    def may_return(self, node: Node) -> bool:
        # Trained on validation rows, a node's value says nothing; only the whole script knows if it is good.
        own = Allocation.of(node.mixture, self._sources).own
        return not own and node.phase != BRANCH and not node.look

    def _longest_trained(self) -> tuple[Node, Mixture]:
        """The adopted model with most steps behind it, none of them on the target's rows, and its mixture.

        What was tried on the target's rows was the model that the earlier run had kept. Where it did not come
        to that, values tell what it had undone: predictions are gone.
        """
        everything = self._adopted
        before = {path[:-1] for path, node in everything.items() if node.phase in TARGET_PHASES}
        kept = {path for path in before if path in everything and self.may_return(everything[path])}
        gone = {
            behind.path
            for node in everything.values()
            if self._taken_back(node)
            for behind in self.tree.lineage(node.path)
            if behind.phase == "commit"
        }
        usable = [
            node
            for node in everything.values()
            if self.may_return(node)
            and not node.diverged
            and (node.path in kept or (node.path not in gone and not self._ruined(node)))
        ]
        usable = [
            node
            for node in usable
            if node.path in kept
            # Inside a stage that did not end, after a better model of the same stage.
            or not (node.unfinished and any(each.value < node.value for each in self._stages(node)[-1]))
            and not self._left_behind(node)
        ]
        # Trained on as before after the target's rows had been tried on a kept one.
        known = [
            node
            for node in usable
            if node.path in kept
            or any(node.path[:at] in kept and node.path[at] % 100 == GOES_ON for at in range(node.height))
        ]
        if not usable:
            raise TrainingError(ALL_DIVERGED)
        committed = {node.path[:-1] for node in everything.values() if node.phase == "commit"}
        behind = self.tree.steps_behind
        # Of as many steps the one that was committed to, then the better one, counts for more.
        stem = max(known or usable, key=lambda node: (behind[node.path], node.path in committed, -node.value))
        led = {node.path for node in self.tree.lineage(stem.path)}
        undone = [
            node.lr_scale
            for node in everything.values()
            if node.phase == "commit" and node.path[:-1] in led and node.path not in led
        ]
        # The step size of the stem, or a smaller one than commits had that were undone.
        self._scale = 0.3 * min(undone) if undone else settled_rate(self.tree.lineage(stem.path))
        return stem, Allocation.of(stem.mixture, self._sources).sources

    def _ruined(self, node: Node) -> bool:
        """Whether an adopted model, or one before it, was undone, as far as values tell."""
        for before, now in pairwise(self._stages_behind(node)):
            limit = _far(before.value)
            if _scale_of(now) > 1.0:
                limit = min(limit, self.options.worse_errors * _larger_error(before, now))
            if now.value - before.value > limit or self._taken_back(now):
                return True
        return False

    def _stages_behind(self, node: Node) -> list[Node]:
        """The last node of every stage that led to this one."""
        return [each[-1] for each in self._stages(node)]

    def _stages(self, node: Node) -> list[list[Node]]:
        """The nodes of every stage that led to this one."""
        lineage = self.tree.lineage(node.path)
        return [list(each) for _, each in groupby(lineage, key=lambda node: node.phase)]

    def _left_behind(self, node: Node) -> bool:
        """Whether the script went on from an earlier model of its stage, or from the one before the stage."""
        *_, before, stage = [[], *self._stages(node)]
        passed = {each.path for each in (*before[-1:], *stage[:-1])}
        return any(
            each.path[:-1] in passed
            and (each.phase == "race" if node.phase == "trunk" else each.path[-1] % 100 in END_PATHS)
            for each in self._adopted.values()
            if node.phase in ("trunk", "commit") and each.path and each.phase != node.phase
        )

    def _taken_back(self, node: Node) -> bool:
        """Whether it is the end of an adopted commit that made things worse."""
        last = self._stages_behind(node)[-3:]
        if [each.phase for each in last[1:]] != ["commit", "decay"]:
            return False
        start, commit, end = last
        if end.diverged or end.value - commit.value > _far(commit.value):
            end = commit  # the decay was left out
        error = _larger_error(start, end)
        return error > 0.0 and end.value - start.value > self.options.commit_errors * error

    def _plain(self) -> Script:
        last, mixture = self._left // 4, self._uniform
        if last * self.options.end_share < 1.0:
            last = 0  # too few to measure whether a decayed end helps: such a model has not converged
        start = yield from self._stage(self._fresh(), mixture, self._left - last, self._scale, "train")
        if start.last.diverged or not last:
            return start.last
        return (yield from self._end(start.kept, mixture, last))

    def _trunk(self) -> Generator[list[Trial], list[Node], Node | None]:
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
            trunk = start
        size = "unchanged" if self._scale == 1 else f"{self._scale:g} × the usual one"
        self.notes.append(f"step size: {size}")
        return trunk

    def _grown(self, start: Node) -> Generator[list[Trial], list[Node], Node | None]:
        """On from a trial of this step size, or from the initial model; None if it blows up."""
        steps, path, before = int(self.options.trunk_share * self._shared), self._fresh(), None
        if start.lr_scale == self._scale:
            steps, path, before = steps - start.steps, self._child(start.path, 0), start
        trunk = yield from self._stage(
            path, self._uniform, max(1, steps), self._scale, "trunk", before=before
        )
        if self._blown(trunk.last, start):
            return None
        if trunk.stopped:
            self._reach = min(self._reach, int(self.spent / self.options.trunk_share))
        return trunk.kept

    def _step_size(self) -> Generator[list[Trial], list[Node], dict[float, Node]]:
        """Settles on the simplest step size that none beats, beyond the ends of the range as long as the end
        is best. What came of those that did not diverge, by step size.
        """
        share = self.options.rate_share * self._shared
        steps = max(1, int(max(share, min(self.options.rate_least, 2.0 * share))))
        rates, tried = list(self.options.rates), list[Node]()
        for _ in range(1 + self.options.further_rates):
            trials = [
                self._trial((number,), self._uniform, steps, rates[number], STEP_SIZE)
                for number in range(len(tried), len(rates))
            ]
            tried += yield trials
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
        return {rate: each for rate, each in zip(rates, tried, strict=False) if not each.diverged}

    def _race(self, trunk: Node) -> Generator[list[Trial], list[Node], tuple[Node, Mixture]]:
        arms = self._arms()
        if self.options.tree_share and self._sources > 1:
            arms = yield from self._with_tree(trunk, arms)
        if len(arms) == 1:
            return trunk, arms[0].mixture
        steps = max(1, int(self.options.arm_share * self._shared))
        paths = [
            self._child(trunk.path, number) if arm.look is None else (*arm.look.path, CHOSEN)
            for number, arm in enumerate(arms)
        ]
        merges = [None if arm.look is None else arm.look.merged for arm in arms]
        starts = [(path, arm.mixture) for path, arm in zip(paths, arms, strict=True)]
        outcomes = yield from self._settled(starts, steps, "race", merges=merges)
        alike_well = self._equally_good(outcomes)
        if not alike_well:
            self._scale *= 0.3
            return trunk, arms[0].mixture
        pick = alike_well[0]
        self.equally_good = tuple(MIXTURES[arms[place].name] for place in alike_well)
        alike = self.equally_good[1:]
        why = f", the best of {len(arms)} in a short race"
        if alike:
            why = f", the simplest of those that did equally well in a short race (also {', '.join(alike)})"
        self.notes.append(f"mixture: {MIXTURES[arms[pick].name]}{why}")
        return outcomes[pick], arms[pick].mixture

    def _with_tree(self, trunk: Node, arms: list[Arm]) -> Generator[list[Trial], list[Node], list[Arm]]:
        """The arms from their merged models, and the best of a tree over all merged models, if it differs."""
        start, count = Start(trunk.path), self._sources
        steps = int(self.options.tree_share * self._shared / count)
        if steps < LEAST_BRANCH:
            return arms
        whole = Branches(start, ((trunk.path,),) * count, (trunk,) * count, self._width)
        (probe,) = yield [whole.look((*trunk.path, LOOKS - 1), self._uniform)]
        if probe.diverged:
            self.notes.append("models cannot be merged here: no tree")
            return arms
        branches = yield from grow(
            start, sources=count, steps=steps, tail=2, rate=self._scale, width=self._width
        )
        if branches.diverged:
            return arms
        groups = alike(branches, self._known(trunk), most=8)
        looks = yield from tree_of_looks(branches, groups, looks=self.options.tree_looks, optimism=0.5)
        chosen = self._nearest_to_uniform(looks)
        mixture = self._uniform if chosen is None else self._within_caps(chosen.mixture[:count])[0]
        if all(np.abs(mixture - arm.mixture).sum() > 0.1 for arm in arms):
            arms = [*arms, Arm("tree", mixture)]
        seen = yield [
            branches.look((*trunk.path, LOOKS - 2 - number), arm.mixture) for number, arm in enumerate(arms)
        ]
        self.notes.append(f"tree: {len(looks)} mixtures looked at")
        return [
            arm if node.diverged else replace(arm, look=node) for arm, node in zip(arms, seen, strict=True)
        ]

    def _within_caps(self, mixture: Mixture) -> tuple[Mixture, float]:
        """The mixture within the caps, and the share of the budget that they allow."""
        caps = self.setting.caps
        return (
            (mixture, 1.0)
            if caps is None
            else capped(mixture, Allocation.of(caps, self._sources).sources, spill=True)
        )

    def _arms(self) -> list[Arm]:
        made = {
            "uniform": lambda: self._uniform,
            "pooled": lambda: self.setting.sizes / self.setting.sizes.sum(),
            "estimated": self._estimated,
        }
        arms: list[Arm] = []
        for name in self.options.arms:
            mixture, _ = self._within_caps(made[name]())
            if all(np.abs(mixture - arm.mixture).sum() > 0.1 for arm in arms):
                arms.append(Arm(name, mixture))
        return arms

    def _estimated(self) -> Mixture:
        if self.setting.data is None or self._sources == 1:
            return self._uniform
        if self._sources > MOST_SOURCES:
            self.notes.append(f"no mixture was estimated: there are more than {MOST_SOURCES} sources")
            return self._uniform
        self.matching = Matching(self.setting.data)
        return self.matching.estimate.alpha

    def _commit(self, start: Node, mixture: Mixture, steps: int) -> Script:
        last = int(self.options.decay_share * steps)
        before = self._known(start)
        path = self._child(start.path, 10)
        main = yield from self._stage(path, mixture, steps - last, self._scale, "commit", before=before)
        if self._blown(main.last, before):
            self._scale *= 0.3
            if not last:
                self.notes.append("the long training made it much worse: the model before it is kept")
                return start
            again = f"begun again at {self._scale:.3g} × the usual step size"
            self.notes.append(f"the long training made it much worse: {again}")
            # What was left for the end is all there is.
            return (yield from self._commit(start, mixture, last))
        if main.stopped:
            self.notes.append(
                "the long training was stopped early: more of it made the validation loss worse"
            )
            self._reach = min(self._reach, self.spent + last + self._target_reserve())
        end = yield from self._end(main.kept, mixture, last, probe=not main.stopped)
        gap, error, _ = self._worsening(before, end)
        if error > 0.0 and gap > self.options.commit_errors * error:
            self.notes.append("the long training made it worse: the model before it is kept")
            return start
        return end

    def _end(
        self, start: Node, mixture: Mixture, steps: int, *, probe: bool = True
    ) -> Generator[list[Trial], list[Node], Node]:
        """The last steps at a tenth of the step size, unless a trial of both says that the full one is
        better.

        A decayed trial gains at once, by calming the noise of the last steps, and little after that; at the
        full step size a model that still learns gains as much again. So the gain of the full one is carried
        forward to the end before the two are compared.
        """
        share = int(self.options.end_share * steps) if probe else 0
        rate, here, left = DECAY_RATE, start, steps
        if share:
            full, decayed = (self._child(start.path, index) for index in END_PATHS)
            as_before, calmed = yield [
                self._trial(full, mixture, share, self._scale, "end"),
                self._trial(decayed, mixture, share, DECAY_RATE * self._scale, "decay"),
            ]
            left -= 2 * share
            gap, error, _ = self._worsening(start, as_before)
            ahead = -gap * (1.0 + self.options.end_ahead * left / share)
            calm = -self._worsening(start, calmed)[0] - gap * DECAY_RATE * left / share
            here = calmed
            if -gap > error and ahead > calm and not self._blown(as_before, start):
                rate, here = 1.0, as_before
                self._slope = -self.options.end_ahead * gap / share
                self.notes.append("no decayed end: at the full step size the loss still falls faster")
            elif self._blown(calmed, start):
                here = start
        self._end_rate = rate
        if left < 1:
            return here
        path = self._child(here.path, 0 if share and here is not start else END_PATHS[0])
        phase = "commit" if rate == 1.0 else "decay"
        end = yield from self._stage(path, mixture, left, rate * self._scale, phase, before=here)
        if self._blown(end.last, here):
            self.notes.append("the end of the training made it much worse: the model before it is kept")
            self._scale *= 0.3
            return here
        return end.kept

    # -- the target's own rows ----------------------------------------------------------------------------

    def _target_reserve(self) -> int:
        setting = self.setting
        if not setting.use_target_rows or self.folds != FOLDS or setting.data is None:
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
            now = yield from self._settled(starts, pieces[-1], "target folds")
            ends, done = [each.path for each in now], length
            if any(each.diverged for each in now):
                break
            benefit = self._benefit(held, start, now)
            if benefit.gain > best.gain:
                best, helpful, twins = benefit, len(pieces), now
            if len(pieces) > 1 and not best.gain > self._slope * (FOLDS + 1) * length:
                break  # longer training would not help, or less than as many steps on the sources
        if helpful and self._convincing(best) and best.gain > self._slope * self.left:
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
        if self._left > 0:  # what the target rows did not need goes on as before
            before = self._known(model)
            rate, phase = self._end_rate * self._scale, "decay" if self._end_rate < 1.0 else "commit"
            further = yield from self._stage(
                self._child(model.path, GOES_ON), mixture, self._left, rate, phase, before=before
            )
            return model if self._blown(further.last, before) else further.kept
        return model

    def _target_step_size(
        self, model: Node, held: Sequence[NDArray[np.intp]]
    ) -> Generator[list[Trial], list[Node], None]:
        """The usual step size for the target's rows, if it helps them more than the smaller one settled on.

        Small steps may have been best because the sources lead away from the target, not because larger ones
        blow up.
        """
        start, gains = [self._known(model)] * FOLDS, dict[float, float]()
        for scale in (self._scale, 1.0):
            self._scale = scale
            starts = [(self._child(model.path, 40 + fold), self._fold(fold)) for fold in range(FOLDS)]
            now = yield from self._settled(starts, self._length(1), "target folds")
            diverged = any(each.diverged for each in now)
            gains[scale] = (NO_BENEFIT if diverged else self._benefit(held, start, now)).gain
        self._scale = max(gains, key=lambda scale: gains[scale])
        if self._scale == 1.0:
            self.notes.append("step size on the target rows: the usual one, which helps them more")

    def _length(self, place: int) -> int:
        """Steps of one of the lengths of tuning on the target's rows."""
        return max(1, int(self.options.target_grid[place] * self._shared))

    def _target_lengths(self) -> list[int]:
        """Numbers of steps that grow, as far as the budget reaches: two folds and the tuning itself."""
        lengths = [self._length(place) for place in range(len(self.options.target_grid))]
        most = self.left
        if self.setting.caps is not None:  # a fold has a part of the rows, and the caps hold for it too
            most = int(self.setting.caps[-1] * self.budget / FOLDS)
        return [each for each in dict.fromkeys(lengths) if (FOLDS + 1) * each <= self.left and each <= most]

    def _tune(self, model: Node, pieces: Sequence[int]) -> Script:
        """What helped the folds, on all target rows."""
        path = self._child(model.path, 30)
        for steps in pieces:
            target = Allocation.on_target(self._sources, folds=self.folds).mixture
            (tuned,) = yield from self._settled([(path, target)], steps, "target")
            if tuned.diverged:
                break
            model, path = tuned, (*tuned.path, 0)
        return model

    def _benefit(
        self, held: Sequence[NDArray[np.intp]], before: Sequence[Node], now: Sequence[Node]
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
        assert self.setting.data is not None
        level, known = self.options.target_level, self.matching
        hull, _ = about_target(
            self.setting.data, seed=0, matching=known, rows=ROWS, level=level, look_outside=False
        )
        return hull.inside is False

    def _fold(self, number: int) -> Mixture:
        return Allocation.on_fold(self._sources, number).mixture

    # -- helpers ------------------------------------------------------------------------------------------

    def _blown(self, now: Node, before: Node) -> bool:
        """Whether training made a model worse, as too large steps do: several times as bad, or, with larger
        steps than usual, noticeably. Usual ones may do so where the target is unlike the sources."""
        if now.diverged:
            return True
        gap, error, start = self._worsening(before, now)
        limit = _far(start)
        if self._scale > 1.0:
            limit = min(limit, self.options.worse_errors * error)
        return gap > limit

    def _simplest(self, outcomes: Sequence[Node], errors: float) -> int | None:
        """The first outcome that no later one beats by so many standard errors of the paired difference."""
        finite = [place for place, each in enumerate(outcomes) if not each.diverged]
        if not finite:
            return None
        pick = finite[0]
        for place in finite[1:]:
            gain = outcomes[pick].value - outcomes[place].value
            sure = errors * self._paired_error(outcomes[pick], outcomes[place])
            if gain > min(sure, _far(outcomes[place].value)):
                pick = place
        return pick


def _whole(stretch: Stretch) -> Node:
    """What came of a stage, if it did not diverge: what is left of one that did is no model of its length."""
    return stretch.last if stretch.last.diverged else stretch.kept


def settling(steps: int) -> list[tuple[int, float]]:
    """So many steps, the last third of them at a tenth of the step size.

    >>> settling(10)
    [(7, 1.0), (3, 0.1)]
    """
    return [part for part in ((steps - steps // 3, 1.0), (steps // 3, DECAY_RATE)) if part[0]]


def settled_rate(lineage: Sequence[Node]) -> float:
    """× the step size that a model of auto was trained with at last; 1 if none was chosen for it."""
    calm = ("race", *TARGET_PHASES)  # their ends are decayed under the same name
    chosen = [node for node in lineage if node.phase not in calm and not node.look]
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
