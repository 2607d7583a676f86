"""What goes beyond the paper: ``auto``, the default policy, written as a script of rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import FOLD, Rows, Sources
from mixtree.errors import SearchError, TrainingError
from mixtree.metrics import Metric, default_metric, row_losses
from mixtree.search import ALL_DIVERGED, Ledger, Trial
from mixtree.simplex import Mixture, uniform_mixture
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Tree

FOLDS = 2
LEAST_TARGET_ROWS = 20
"""With fewer validation rows a benefit of training on them cannot be told from noise."""


@dataclass(frozen=True, eq=False, slots=True)
class Told:
    """A node with what was predicted for the validation rows."""

    node: Node
    predictions: NDArray[Any] | None


Script = Generator[list[Trial], dict[Path, Told], Node]


class Scripted(ABC):
    """A search written as a generator: it yields rounds and gets their outcomes back."""

    rule = "script"
    uses_predictions = True

    def __init__(self, budget: int) -> None:
        self._ledger = Ledger(budget)
        self._told: dict[Path, Evaluation] = {}
        self._script: Script | None = None
        self._result: Node | None = None
        self._done = False

    @abstractmethod
    def script(self) -> Script:
        """Yield rounds of trials; return the chosen node."""

    @property
    def budget(self) -> int:
        return self._ledger.budget

    @property
    def spent(self) -> int:
        return self._ledger.spent

    @property
    def left(self) -> int:
        """Steps that nobody has asked for yet."""
        return self.budget - self.spent

    @property
    def tree(self) -> Tree:
        return self._ledger.tree

    def ask(self) -> list[Trial]:
        self._ledger.check_ready()
        if self._done:
            return []
        try:
            if self._script is None:
                self._script = self.script()
                trials = next(self._script)
            else:
                told = {path: Told(self.tree[path], each.predictions) for path, each in self._told.items()}
                self._told = {}
                trials = self._script.send(told)
        except StopIteration as end:
            self._done, self._result = True, end.value
            return []
        return self._ledger.hand_out(trials)

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        self._told[trial.path] = evaluation
        self._ledger.record(trial, evaluation)

    def best(self) -> Node:
        if self._result is not None and not self._result.diverged:
            return self._result
        finite = [node for node in self.tree.values() if not node.diverged]
        if not finite:
            if self.tree:
                raise TrainingError(ALL_DIVERGED)
            raise SearchError("nothing has been evaluated yet: ask, train and tell first")
        return min(finite, key=lambda node: node.value)


@dataclass(frozen=True, eq=False, slots=True)
class AutoOptions:
    """The shares of the budget and the rules of ``auto``; every one was measured in the arena."""

    rates: tuple[float, ...] = (1.0, 0.3, 3.0)
    rate_errors: float = 4.0
    """Another step size than the given one must be better by this many standard errors: a short trial favours
    large steps, and a wrong step size costs more than a wrong mixture."""
    rate_share: float = 0.03
    """Of the budget, for each step size that is tried."""
    trunk_share: float = 0.25
    arm_share: float = 0.06
    decay_share: float = 0.5
    """Of what is left after the race, at a tenth of the step size."""
    target_share: float = 0.18
    target_pieces: int = 15
    """That share in equal pieces: two per round of folds, and as many again for the final tuning."""
    target_rate: float = 0.3
    errors: float = 0.5
    """A less simple mixture must be better by this many standard errors of the paired difference."""
    target_errors: float = 0.5
    """Training on the target's rows must be better by this many standard errors, cross-fitted."""


@dataclass(frozen=True, eq=False, slots=True)
class Arm:
    """A mixture in the race; earlier ones are simpler."""

    name: str
    mixture: Mixture


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
       validation rows. A less simple mixture must beat the simpler by a standard error, paired by row.
    3. The winner's mixture gets most of the budget, its last part at a tenth of the step size.
    4. The target's own rows: models tuned on one half of them are scored on the other half. Only if that
       helps by more than a standard error is the model tuned on all of them, for as long as it helped.
    """

    rule = "auto"

    def __init__(self, setting: AutoSetting) -> None:
        super().__init__(setting.budget)
        self.setting = setting
        self.options = setting.options
        self.notes: list[str] = []
        """What was decided on the way, in words."""
        self._sources = len(setting.sizes)
        self._scale = 1.0
        self._predictions: dict[Path, NDArray[Any]] = {}

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked."""
        plain = {name: getattr(self.options, name) for name in self.options.__dataclass_fields__}
        more = {
            "folds": self.setting.folds,
            "target": self.setting.use_target_rows,
            "seed": self.setting.seed,
        }
        metric = None if self.setting.metric is None else self.setting.metric.name
        return {"search": "auto", "options": plain, "metric": metric, **more}

    # -- the script ---------------------------------------------------------------------------------------

    def script(self) -> Script:
        if self.budget < 60:  # too little for any choice: train, with a decayed end
            return (yield from self._plain())
        reserve = self._target_reserve()
        trunk = yield from self._trunk()
        if trunk is None:
            return (yield from self._plain())
        winner, mixture = yield from self._race(trunk)
        model = yield from self._commit(winner, mixture, self.left - reserve)
        if reserve:
            model = yield from self._target_rows(model, mixture)
        return model

    def _plain(self) -> Script:
        last = self.left // 2
        mixture = uniform_mixture(self._sources)
        path = self._fresh()
        told = yield [self._trial(path, mixture, self.left - last, self._scale)]
        first = told[path].node
        if first.diverged or not last:
            return first
        told = yield [self._trial((*path, 0), mixture, last, 0.1 * self._scale, "decay")]
        second = told[(*path, 0)].node
        return first if second.diverged else second

    def _trunk(self) -> Generator[list[Trial], dict[Path, Told], Node | None]:
        """Step sizes from the initial model; the best goes on."""
        uniform = uniform_mixture(self._sources)
        steps = max(1, int(self.options.rate_share * self.budget))
        trials = [
            self._trial((number,), uniform, steps, rate, "step size")
            for number, rate in enumerate(self.options.rates)
        ]
        told = yield trials
        first = [told[trial.path] for trial in trials]
        pick = self._simplest(first, self.options.rate_errors)
        if pick is None:
            smaller = self._trial((len(trials),), uniform, steps, 0.1 * min(self.options.rates), "step size")
            told = yield [smaller]
            if told[smaller.path].node.diverged:
                return None
            self._scale, start = smaller.lr_scale, told[smaller.path].node
        else:
            self._scale, start = self.options.rates[pick], first[pick].node
        self.notes.append(f"step size × {self._scale:g}")
        more = max(1, int(self.options.trunk_share * self.budget) - steps)
        path = (*start.path, 0)
        told = yield [self._trial(path, uniform, more, self._scale, "trunk")]
        if told[path].node.diverged:  # it was too large after all
            self._scale *= 0.3
            return start
        return told[path].node

    def _race(self, trunk: Node) -> Generator[list[Trial], dict[Path, Told], tuple[Node, Mixture]]:
        arms = self._arms()
        if len(arms) == 1:
            return trunk, arms[0].mixture
        steps = max(1, int(self.options.arm_share * self.budget))
        trials = [
            self._trial((*trunk.path, number), arm.mixture, steps, self._scale, "race")
            for number, arm in enumerate(arms)
        ]
        told = yield trials
        outcomes = [told[trial.path] for trial in trials]
        pick = self._simplest(outcomes, self.options.errors)
        if pick is None:
            self._scale *= 0.3
            return trunk, arms[0].mixture
        self.notes.append(f"mixture: {arms[pick].name}")
        return outcomes[pick].node, arms[pick].mixture

    def _arms(self) -> list[Arm]:
        from mixtree.estimate import match_moments

        arms = [Arm("uniform", uniform_mixture(self._sources))]
        candidates = [Arm("pooled", self.setting.sizes / self.setting.sizes.sum())]
        if self.setting.data is not None and self._sources > 1:
            candidates.append(Arm("estimated", match_moments(self.setting.data).alpha))
        for candidate in candidates:
            if all(np.abs(candidate.mixture - arm.mixture).sum() > 0.1 for arm in arms):
                arms.append(candidate)
        return arms

    def _commit(self, start: Node, mixture: Mixture, steps: int) -> Script:
        last = int(self.options.decay_share * steps)
        node = start
        for number, (count, rate, phase) in enumerate(((steps - last, 1.0, "commit"), (last, 0.1, "decay"))):
            if count < 1:
                continue
            path = (*node.path, 10 + number)
            told = yield [self._trial(path, mixture, count, rate * self._scale, phase)]
            if told[path].node.diverged:
                self.notes.append(f"{phase} diverged: the model before it is kept")
                return node
            node = told[path].node
        return node

    # -- the target's own rows ----------------------------------------------------------------------------

    def _target_reserve(self) -> int:
        setting = self.setting
        if not setting.use_target_rows or setting.folds != FOLDS or setting.data is None:
            return 0
        if len(setting.data.validation) < LEAST_TARGET_ROWS:
            return 0
        return int(self.options.target_share * self.budget)

    def _target_rows(self, model: Node, mixture: Mixture) -> Script:
        """Tune on one fold, score on the other; go on while that improves; then tune on all rows as long."""
        held = self._held_rows()
        piece = max(1, self.left // self.options.target_pieces)
        rate = self.options.target_rate * self._scale
        start = [Told(model, self._predictions.get(model.path))] * FOLDS
        ends, latest, pieces = [model.path] * FOLDS, start, 0
        while self.left >= piece * (FOLDS + pieces + 1):
            trials = [
                self._trial((*ends[fold], 20 + fold), self._fold(fold), piece, rate, "target folds")
                for fold in range(FOLDS)
            ]
            told = yield trials
            now = [told[trial.path] for trial in trials]
            if self._gain(held, latest, now)[0] <= 0:
                break
            ends, latest, pieces = [trial.path for trial in trials], now, pieces + 1
        gain, error = self._gain(held, start, latest) if pieces else (0.0, 0.0)
        helps = gain > self.options.target_errors * error
        self.notes.append(f"target rows: gain {gain:.4f} ± {error:.4f}" if pieces else "target rows: no gain")
        if helps:
            path = (*model.path, 30)
            target = np.eye(self._width + 1)[-1]
            told = yield [self._trial(path, target, pieces * piece, rate, "target")]
            return model if told[path].node.diverged else told[path].node
        if self.left > 0:  # what the target rows did not need goes on as before
            path = (*model.path, 31)
            told = yield [self._trial(path, mixture, self.left, 0.1 * self._scale, "decay")]
            return model if told[path].node.diverged else told[path].node
        return model

    def _held_rows(self) -> list[NDArray[np.intp]]:
        assert self.setting.data is not None
        folds = fold_rows(self.setting.data.validation, self.setting.data.classes)
        everything = np.arange(len(self.setting.data.validation))
        return [np.setdiff1d(everything, rows) for rows in folds]

    def _gain(
        self, held: Sequence[NDArray[np.intp]], before: Sequence[Told], now: Sequence[Told]
    ) -> tuple[float, float]:
        """How much better the score is on rows that a fold's model did not see, and its standard error."""
        assert self.setting.data is not None
        y, classes = self.setting.data.validation.y, self.setting.data.classes
        metric = self.setting.metric or default_metric(classes)
        gains, errors = [], []
        for rows, old, new in zip(held, before, now, strict=True):
            one_class = classes and len(np.unique(y[rows])) < 2
            if old.predictions is None or new.predictions is None or new.node.diverged or one_class:
                return -inf, 0.0
            one, two = old.predictions[rows], new.predictions[rows]
            gains.append(metric.signed(metric(y[rows], one)) - metric.signed(metric(y[rows], two)))
            errors.append(metric.paired_error(y[rows], one, two))
        gain, error = float(np.mean(gains)), float(np.sqrt(np.sum(np.square(errors))) / len(errors))
        return (gain, error if isfinite(error) else 0.0) if isfinite(gain) else (-inf, 0.0)

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
            if gain > errors * self._paired_error(outcomes[pick], outcomes[place]):
                pick = place
        return pick

    def _paired_error(self, one: Told, two: Told) -> float:
        if one.predictions is None or two.predictions is None or self.setting.data is None:
            errors = [each.node.standard_error for each in (one, two)]
            return max((error for error in errors if isfinite(error)), default=0.0)
        y, classes = self.setting.data.validation.y, self.setting.data.classes
        gaps = row_losses(y, one.predictions, classes) - row_losses(y, two.predictions, classes)
        return float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else inf


def fold_rows(validation: Rows, classes: int) -> list[NDArray[np.intp]]:
    """The validation rows in two folds, alike in their labels: every other row in the order of the labels."""
    order = np.argsort(validation.y, kind="stable")
    return [np.sort(order[fold::FOLDS]) for fold in range(FOLDS)]


def with_folds(sources: Sources) -> Sources:
    """The sources with the folds of the target's rows behind them: sources that only ``auto`` draws from."""
    folds = fold_rows(sources.validation, sources.classes)
    names = tuple(f"{FOLD}{number + 1}" for number in range(FOLDS))
    parts = tuple(sources.validation.take(rows) for rows in folds)
    return replace(sources, names=(*sources.names, *names), rows=(*sources.rows, *parts))
