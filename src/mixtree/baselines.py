"""The obvious ways to spend a budget, each a Search: a chain of stages on fixed mixtures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mixtree.errors import InputError, SearchError, TrainingError
from mixtree.search import ALL_DIVERGED, Accounted, Ledger, Trial, check_budget
from mixtree.simplex import Mixture, as_mixture, uniform_mixture
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path

DECAY_SHARE, DECAY_LR = 0.5, 0.1
TUNE_SHARE, TUNE_LR = 0.1, 0.3


@dataclass(frozen=True, eq=False, slots=True)
class Stage:
    """So many steps on one mixture."""

    mixture: Mixture
    steps: int
    lr_scale: float = 1.0
    phase: str = "train"


class Chain(Accounted):
    """Stages one after the other, each continuing the model before it; returns the last finite one."""

    rule = "last"

    def __init__(
        self, stages: Sequence[Stage], *, budget: int | None = None, charged: dict[str, int] | None = None
    ) -> None:
        self.charged = charged or {}
        """Steps that were spent before the first stage, by what they were for."""
        total = sum(stage.steps for stage in stages) + sum(self.charged.values())
        self._ledger = Ledger(total if budget is None else budget)
        self._ledger.spent = sum(self.charged.values())
        self._stages = [stage for stage in stages if stage.steps > 0]
        if total > self._ledger.budget:
            raise InputError(f"the stages take {total} steps, more than the budget of {budget}")
        self._next = 0
        self._last: Node | None = None

    def ask(self) -> list[Trial]:
        self._ledger.check_ready()
        if self._next == len(self._stages):
            return []
        stage, path = self._stages[self._next], (0,) * self._next
        self._next += 1
        trial = Trial(path, stage.mixture, stage.steps, lr_scale=stage.lr_scale, phase=stage.phase)
        return self._ledger.hand_out([trial])

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        for node in self._ledger.record(trial, evaluation):
            if node.diverged:
                self._next = len(self._stages)  # a diverged model has nothing to continue
            else:
                self._last = node

    def best(self) -> Node:
        if self._last is None:
            if self.tree:
                raise TrainingError(ALL_DIVERGED)
            raise SearchError("nothing has been evaluated yet: ask, train and tell first")
        return self._last

    def describe(self) -> dict[str, Any]:
        """The stages, which decide everything."""
        stages = [[each.mixture.tolist(), each.steps, each.lr_scale, each.phase] for each in self._stages]
        return {"search": "chain", "stages": stages}

    def needed(self, paths: Iterable[Path]) -> set[Path]:
        return set(paths).intersection(() if self._last is None else (self._last.path,))


def fixed(mixture: ArrayLike, *, budget: int, decay: bool = False) -> Chain:
    """SGD on one mixture for the whole budget; with ``decay`` the last half at step size × 0.1.

    >>> [trial.steps for trial in fixed([0.5, 0.5], budget=100, decay=True).ask()]
    [50]
    """
    alpha, budget = as_mixture(mixture), check_budget(budget)
    last = int(budget * DECAY_SHARE) if decay else 0
    stages = [Stage(alpha, budget - last), Stage(alpha, last, DECAY_LR, "decay")]
    return Chain(stages, budget=budget)


def uniform(sources: int, *, budget: int, decay: bool = False) -> Chain:
    """1/K per source."""
    return fixed(uniform_mixture(sources), budget=budget, decay=decay)


def pooled(sizes: ArrayLike, *, budget: int, decay: bool = False) -> Chain:
    """Every source in proportion to its number of rows."""
    counts = np.asarray(sizes, dtype=np.float64)
    if counts.ndim != 1 or counts.size == 0 or counts.min() < 1:
        raise InputError(f"source sizes must be row counts of at least 1, one per source; got {sizes!r}")
    return fixed(counts / counts.sum(), budget=budget, decay=decay)


def only(source: int, sources: int, *, budget: int, decay: bool = False) -> Chain:
    """One source alone."""
    if not 0 <= source < sources:
        raise InputError(f"there is no source {source}: they are numbered 0 … {sources - 1}")
    return fixed(np.eye(sources)[source], budget=budget, decay=decay)


def validation(sources: int, *, budget: int, decay: bool = False) -> Chain:
    """The target's validation rows alone: all weight on source K+1."""
    return fixed(np.eye(sources + 1)[sources], budget=budget, decay=decay)


def genie(alpha: ArrayLike | None, *, budget: int, decay: bool = False) -> Chain:
    """The target's true mixture, where it is known."""
    if alpha is None:
        raise InputError("genie trains on the target's true mixture, which is not known here; leave it out")
    return fixed(alpha, budget=budget, decay=decay)


def importance(sizes: ArrayLike, *, steps: int, budget: int, decay: bool = False) -> Chain:
    """All rows in proportion to their sources' sizes, weighted by a domain classifier that took ``steps``."""
    counts = np.asarray(sizes, dtype=np.float64)
    left = budget - steps
    last = int(left * DECAY_SHARE) if decay else 0
    alpha = counts / counts.sum()
    stages = [Stage(alpha, left - last), Stage(alpha, last, DECAY_LR, "decay")]
    return Chain(stages, budget=budget, charged={"classifier": steps})


def fine_tune(sources: int, *, budget: int) -> Chain:
    """Uniform, then the last tenth of the budget on the target's own rows at step size × 0.3."""
    last = int(budget * TUNE_SHARE)
    first = np.append(uniform_mixture(sources), 0.0)
    stages = [Stage(first, budget - last), Stage(np.eye(sources + 1)[sources], last, TUNE_LR, "tune")]
    return Chain(stages, budget=budget)
