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
from mixtree.trainer import Job, Trainer, as_trainer
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
        """Expected time of a run.

        Parameters
        ----------
        steps, nodes
            How many of them are paid for.
        seen
            Steps that a model has seen in the end.

        Returns
        -------
        float
            Seconds.
        """
        return steps * (self.step_seconds + self.step_growth * seen / 2) + nodes * self.node_seconds

    def size(self, steps: int) -> int:
        """Bytes of a model that has taken so many steps."""
        return int(self.model_bytes + self.step_bytes * steps)


def measure(trainer: Trainer[Any], sources: int, *, seed: int = 0, seconds: float = 0.5) -> Pace:
    """Time real steps, two models at a time as siblings are, and a tiny stored study; all of it is discarded.

    Parameters
    ----------
    trainer
        What to time.
    sources
        K.
    seed
        Of the models and their batches.
    seconds
        About how long the timed steps take, besides warming up.

    Returns
    -------
    Pace
        Times and sizes of steps and nodes.
    """
    as_trainer(trainer).prepare(steps=None, seconds=None)
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
    # What a node of one step takes beyond that step, in a study that is stored as real ones are.
    search = TreeSearch(simplex_root(sources), bisect, budget=_NODES, steps=1, seed=seed)
    times: list[float] = []

    def listen(event: Event) -> None:
        if isinstance(event, StudyStarted | StudyFinished):
            times.append(time.perf_counter())

    with tempfile.TemporaryDirectory(prefix="mixtree-", ignore_cleanup_errors=True) as folder:
        result = run(search, trainer, seed=seed, storage=f"{folder}/study.db", listeners=[listen])
    trained = sum(result.spent.values()) * step
    node = max(0.0, times[-1] - times[0] - trained) / len(result.tree)
    peak = None
    if sys.platform != "win32":
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Pace(step, node, int(size - grows * count), grows, slower, peak)


def _bytes(arrays: dict[str, Any]) -> int:
    return sum(int(array.nbytes) for array in arrays.values())
