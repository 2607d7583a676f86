"""What steps and nodes cost on this machine: timed on a few real ones, which are then discarded."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from mixtree.engine.study import run
from mixtree.events import Event, StudyFinished, StudyStarted
from mixtree.partition import bisect, simplex_root
from mixtree.seeds import INIT, derive_seed
from mixtree.simplex import uniform_mixture
from mixtree.trainer import Job, Trainer
from mixtree.tree_search import TreeSearch

_NODES = 13


@dataclass(frozen=True, slots=True)
class Pace:
    """What a trainer's steps and nodes cost here, as measured."""

    step_seconds: float
    node_seconds: float
    """Evaluating and storing one model."""
    model_bytes: int
    step_bytes: float = 0.0
    """What a model grows by with every step (boosting)."""
    step_growth: float = 0.0
    """Seconds by which a step becomes slower with every step that the model has seen (boosting)."""
    process_bytes: int | None = None
    """The most memory that this process has used, data included; None where the system does not say."""

    def seconds(self, steps: int, nodes: int, *, seen: int) -> float:
        """Expected time of so many steps and nodes, on models that end with so many steps each."""
        return steps * (self.step_seconds + self.step_growth * seen / 2) + nodes * self.node_seconds

    def size(self, steps: int) -> int:
        """Bytes of a model that has taken so many steps."""
        return int(self.model_bytes + self.step_bytes * steps)


def measure(trainer: Trainer[Any], sources: int, *, seed: int = 0, seconds: float = 0.5) -> Pace:
    """Time real steps, two models at a time as siblings are, and a tiny stored study; all of it is discarded.

    ``seconds`` is about what the steps take, beside warming up.
    """
    prepare = getattr(trainer, "prepare", None)
    if prepare is not None:
        prepare(steps=None, seconds=None)
    start = trainer.init(derive_seed(seed, (), INIT))
    mixture = uniform_mixture(sources)

    def train(steps: int, state: Any = start) -> tuple[float, list[Any]]:
        jobs = [Job(state, mixture, steps, derive_seed(seed, (index,))) for index in range(2)]
        began = time.perf_counter()
        states = trainer.train(jobs)
        return time.perf_counter() - began, states

    train(2)  # the first call loads and compiles
    some, _ = train(5)
    count = int(np.clip(5 * seconds / 3 / max(some, 1e-9), 5, 500))
    short, fresh = min((train(1) for _ in range(3)), key=itemgetter(0))
    runs = [train(count) for _ in range(3)]
    taken = statistics.median(run[0] for run in runs)
    slope = (taken - short) / (2 * (count - 1))
    step = slope if slope > 0 else taken / (2 * count)
    size = _bytes(trainer.save(runs[0][1][0]))
    grows = max(0.0, (size - _bytes(trainer.save(fresh[0]))) / (count - 1))
    later = train(count, runs[0][1][0])[0] if grows > 0 else taken
    slower = max(0.0, later - taken) / (2 * count**2)
    node = _node_seconds(trainer, sources, step, seed)
    return Pace(step, node, int(size - grows * count), grows, slower, _peak_memory())


def _node_seconds(trainer: Trainer[Any], sources: int, step: float, seed: int) -> float:
    """What a node of one step takes beyond that step in a study that is stored as real ones are."""
    search = TreeSearch(simplex_root(sources), bisect, budget=_NODES, steps=1, seed=seed)
    times: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, StudyStarted | StudyFinished):
            times.append(time.perf_counter())

    with tempfile.TemporaryDirectory(prefix="mixtree-", ignore_cleanup_errors=True) as folder:
        result = run(search, trainer, seed=seed, storage=f"{folder}/study.db", listeners=[listen])
    steps = sum(result.spent.values())
    return max(0.0, times[-1] - times[0] - steps * step) / len(result.tree)


def _bytes(arrays: dict[str, Any]) -> int:
    return sum(int(array.nbytes) for array in arrays.values())


def _peak_memory() -> int | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
