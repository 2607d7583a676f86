"""The obvious ways to spend a budget, each a Search: a chain of stages on fixed mixtures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mixtree.data.allocation import Allocation
from mixtree.errors import InputError, SearchError, TrainingError
from mixtree.ledger import Ledger, LedgerSearch
from mixtree.search import ALL_DIVERGED, SEGMENTS, check_budget, in_segments
from mixtree.simplex import NO_STEP, Mixture, as_mixture, capped, uniform_mixture
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Trial

DECAY_SHARE, DECAY_LR = 0.5, 0.1
TUNE_SHARE, TUNE_LR = 0.1, 0.3


@dataclass(frozen=True, eq=False, slots=True)
class Stage:
    """So many steps on one mixture."""

    mixture: Mixture
    steps: int
    lr_scale: float = 1.0
    phase: str = "train"


class Chain(LedgerSearch):
    """Stages one after the other, each continuing the model before it; returns the last finite stage's.

    Of a first stage that diverges it returns the last finite segment, if it was cut.
    """

    rule = "last"
    on_target = True
    starts_over = True
    """At a raised budget it goes on from its longest trained model: the stages' lengths are shares of it."""

    def __init__(
        self,
        stages: Sequence[Stage],
        *,
        budget: int | None = None,
        charged: Mapping[str, int] | None = None,
        segments: int = SEGMENTS,
    ) -> None:
        self.charged: Mapping[str, int] = charged or {}
        """Steps that were spent before the first stage, by what they were for."""
        total = sum(stage.steps for stage in stages) + sum(self.charged.values())
        self._ledger = Ledger(total if budget is None else budget)
        self._ledger.spent = sum(self.charged.values())
        self.stages = [stage for stage in stages if stage.steps > 0]
        if total > self._ledger.budget:
            raise InputError(f"the stages take {total} steps, more than the budget of {budget}")
        self._segments = segments
        self._trials: list[Trial] | None = None
        self._last: Node | None = None
        self._before: Node | None = None  # what the present stage went on from

    def within(self, caps: Mixture) -> Chain:
        """The same with no weight above its cap; shorter, if all caps together are too small."""
        stages = []
        for stage in self.stages:
            inside = stage.mixture > 0.0
            together = sum(each.steps for each in self.stages if (inside & (each.mixture > 0.0)).any())
            mixture, share = capped(stage.mixture, caps[: len(inside)] * (self.budget / together))
            stages.append(Stage(mixture, int(share * stage.steps), stage.lr_scale, stage.phase))
        if not any(stage.steps for stage in stages):
            raise InputError(NO_STEP)
        return Chain(stages, budget=self.budget, charged=self.charged, segments=self._segments)

    def ask(self) -> list[Trial]:
        self._ledger.check_ready()
        if self._trials is None:
            self._trials = self._coming()
        return self._ledger.hand_out([self._trials.pop(0)]) if self._trials else []

    def _coming(self) -> list[Trial]:
        """What is to be trained; at a raised budget, what is left of the stages after the adopted models.

        The model to go on from has gone through whole stages but the last, and through as much of that as
        it has now: a model with a decayed end is left behind. Its steps are missing in the first stage, not
        in the last ones, of which a slightly raised budget would leave next to nothing.
        """
        trials: list[Trial] = []
        path, done = self._stem()
        if self._ledger.adopted and not done:
            return []  # all of them diverged
        left, stream = self.budget - self.spent, path
        for number, stage in enumerate(self.stages):
            later = sum(each.steps for each in self.stages[number + 1 :])
            steps = max(0, min(stage.steps - done, left - later)) if self._ledger.adopted else stage.steps
            done = max(0, done - stage.steps)
            left -= steps
            if steps:
                stage_trial = Trial(path, stage.mixture, steps, lr_scale=stage.lr_scale, phase=stage.phase)
                trials += in_segments(stage_trial, self._segments, stream=stream)
                path, stream = (*trials[-1].path, 0), (*stream, 0)
        return trials

    def _stem(self) -> tuple[Path, int]:
        """The path of the first trial, and the steps of the model that it continues."""
        first = self.stages[0] if self.stages else None
        usable = [
            node
            for path, node in self._ledger.adopted.items()
            if first is not None
            and not node.diverged
            and all(
                each.phase == first.phase and each.lr_scale == first.lr_scale
                for each in self.tree.lineage(path)
            )
        ]
        if not usable:
            return (), 0
        steps = self.tree.steps_behind
        self._last = self._before = max(usable, key=lambda node: steps[node.path])
        index = 0
        while (*self._last.path, index) in self.tree:
            index += 1
        return (*self._last.path, index), steps[self._last.path]

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        for node in self._ledger.record(trial, evaluation):
            if node.diverged:
                self._trials = []  # a diverged model has nothing to continue
                self._last = self._before or self._last
            else:
                self._last = node
                self._before = self._before if node.unfinished else node

    def best(self) -> Node:
        if self._last is None:
            if self.tree:
                raise TrainingError(ALL_DIVERGED)
            raise SearchError("nothing has been evaluated yet: ask, train and tell first")
        return self._last

    def describe(self) -> dict[str, Any]:
        """The stages; not their lengths, which are shares of a budget that may be raised."""
        stages = [[each.mixture.tolist(), each.lr_scale, each.phase] for each in self.stages]
        return {"search": "chain", "stages": stages, "segments": self._segments}

    def needed(self, paths: Iterable[Path]) -> set[Path]:
        return set(paths).intersection([node.path for node in (self._last, self._before) if node is not None])


def fixed(mixture: ArrayLike, *, budget: int, decay: bool = False, segments: int = SEGMENTS) -> Chain:
    """SGD on one mixture for the whole budget; with ``decay`` the last half at step size × 0.1.

    >>> [trial.steps for trial in fixed([0.5, 0.5], budget=100, decay=True).ask()]
    [50]
    """
    alpha, budget = as_mixture(mixture), check_budget(budget)
    last = int(budget * DECAY_SHARE) if decay else 0
    stages = [Stage(alpha, budget - last), Stage(alpha, last, DECAY_LR, "decay")]
    return Chain(stages, budget=budget, segments=segments)


def uniform(sources: int, *, budget: int, decay: bool = False, segments: int = SEGMENTS) -> Chain:
    """1/K per source."""
    return fixed(uniform_mixture(sources), budget=budget, decay=decay, segments=segments)


def pooled(sizes: ArrayLike, *, budget: int, decay: bool = False, segments: int = SEGMENTS) -> Chain:
    """Every source in proportion to its number of rows."""
    counts = np.asarray(sizes, dtype=np.float64)
    if counts.ndim != 1 or counts.size == 0 or counts.min() < 1:
        raise InputError(f"source sizes must be row counts of at least 1, one per source; got {sizes!r}")
    return fixed(counts / counts.sum(), budget=budget, decay=decay, segments=segments)


def only(source: int, sources: int, *, budget: int, decay: bool = False, segments: int = SEGMENTS) -> Chain:
    """One source alone."""
    if not 0 <= source < sources:
        raise InputError(f"there is no source {source}: they are numbered 0 … {sources - 1}")
    return fixed(np.eye(sources)[source], budget=budget, decay=decay, segments=segments)


def validation(sources: int, *, budget: int, decay: bool = False, segments: int = SEGMENTS) -> Chain:
    """The target's validation rows alone: all weight on source K+1."""
    return fixed(Allocation.on_target(sources).mixture, budget=budget, decay=decay, segments=segments)


def genie(alpha: ArrayLike | None, *, budget: int, decay: bool = False, segments: int = SEGMENTS) -> Chain:
    """The target's true mixture, where it is known."""
    if alpha is None:
        raise InputError("genie trains on the target's true mixture, which is not known here; leave it out")
    return fixed(alpha, budget=budget, decay=decay, segments=segments)


def importance(
    sizes: ArrayLike, *, steps: int, budget: int, decay: bool = False, segments: int = SEGMENTS
) -> Chain:
    """All rows in proportion to their sources' sizes, weighted by a domain classifier that took ``steps``."""
    counts = np.asarray(sizes, dtype=np.float64)
    left = budget - steps
    last = int(left * DECAY_SHARE) if decay else 0
    alpha = counts / counts.sum()
    stages = [Stage(alpha, left - last), Stage(alpha, last, DECAY_LR, "decay")]
    return Chain(stages, budget=budget, charged={"classifier": steps}, segments=segments)


def fine_tune(sources: int, *, budget: int, segments: int = SEGMENTS) -> Chain:
    """Uniform, then the last tenth of the budget on the target's own rows at step size × 0.3."""
    last = int(budget * TUNE_SHARE)
    first, own = Allocation(uniform_mixture(sources), target=0.0), Allocation.on_target(sources)
    stages = [Stage(first.mixture, budget - last), Stage(own.mixture, last, TUNE_LR, "tune")]
    return Chain(stages, budget=budget, segments=segments)
