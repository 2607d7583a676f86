"""Trainers that misbehave in worker processes, which must be able to import them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mixtree.data.synthetic import synthetic
from mixtree.seeds import derive_seed
from mixtree.trainer import Evaluation, Job
from mixtree.trainers.reference import ReferenceState, ReferenceTrainer

SEED = 4


class Trainer(ReferenceTrainer):
    """The reference trainer; ``at`` is the node at which something happens, in a worker only."""

    def __init__(self, *, at: tuple[int, ...] = (0, 1), marker: Path | None = None, **options: Any) -> None:
        sources = synthetic(sources=3, rows=40, validation=30, test=5, features=4, seed=3).sources
        super().__init__(sources, **{"hidden": (3,), "batch_size": 8, "replacement": False, **options})
        self.seed, self.marker, self.home = derive_seed(SEED, at), marker, os.getpid()

    def describe(self) -> dict[str, Any]:
        return {"type": "Trainer", "lr": self.lr}  # all of them count as one and the same

    def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
        if any(job.seed == self.seed for job in jobs) and self._due():
            self.happen()
        return super().train(jobs)

    def _due(self) -> bool:
        """Every time without a marker; with one, once: the file remembers."""
        if os.getpid() == self.home:
            return False
        if self.marker is None:
            return True
        first = not self.marker.exists()
        self.marker.touch()
        return first

    def happen(self) -> None:
        """Nothing."""


class Dying(Trainer):
    def happen(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Leaving(Trainer):
    def happen(self) -> None:
        raise SystemExit(3)


class Raising(Trainer):
    def happen(self) -> None:
        raise ZeroDivisionError("mine, in a worker")


class Grouped(Trainer):
    """Jobs of one group disturb each other's numbers."""

    group = 3

    def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
        assert len(jobs) <= self.group
        return [
            replace(state, biases=tuple(bias + 1e-3 * len(jobs) for bias in state.biases))
            for state in super().train(jobs)
        ]


class Unsendable(Trainer):
    def __init__(self) -> None:
        super().__init__()
        self.thing = lambda: None


class Unreceivable(Trainer):
    def __setstate__(self, state: Any) -> None:
        raise RuntimeError("this trainer cannot be unpacked")


class OddEvaluations(Trainer):
    def evaluate(self, states: Sequence[ReferenceState]) -> list[Evaluation]:
        return [replace(each, predictions=(lambda: 1)) for each in super().evaluate(states)]  # type: ignore[arg-type]


class TooFew(Trainer):
    def evaluate(self, states: Sequence[ReferenceState]) -> list[Evaluation]:
        return super().evaluate(states)[1:]


class Weighing(Trainer):
    """Counts how often it, and its data, are packed for the journey."""

    packed = 0

    def __getstate__(self) -> dict[str, Any]:
        type(self).packed += 1
        return self.__dict__


class Big(Trainer):
    """Too large for a pipe to hold."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.ballast = bytes(1 << 20)


class Sleeping(Trainer):
    def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
        (self.marker or Path()).with_name(f"pid-{os.getpid()}").touch()
        time.sleep(1.0 if np.isfinite(self.lr) else 0.0)
        return super().train(jobs)


def module() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
