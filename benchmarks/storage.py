"""What it costs that a study survives: storage per node, the loop's own time, memory, worker processes.

    python benchmarks/storage.py [--full] [--json]

Every part runs in a process of its own. Figures stand beside their targets and are never asserted: a busy
machine is no bug.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Sources
from mixtree.engine.study import run
from mixtree.partition import PARTITIONS
from mixtree.simplex import uniform_mixture
from mixtree.storage.base import StudyRecord
from mixtree.storage.sql import SqlStorage
from mixtree.trainer import Evaluation, Job
from mixtree.tree import Node, Trial
from mixtree.tree_search import TreeSearch

WEIGHTS, STEPS, SOURCES = 50_000, 20, 4

Row = dict[str, Any]
Weights = NDArray[np.float32]


def row(name: str, value: float, target: float | None, *, more_is_better: bool = False) -> Row:
    met = None if target is None else value >= target if more_is_better else value <= target
    return {"name": name, "ratio": round(value, 4), "target": target, "met": met}


def make_search(nodes: int, *, width: int, **options: Any) -> TreeSearch:
    partitioning = PARTITIONS["bisect"]
    settings: dict[str, Any] = {
        "budget": nodes * STEPS,
        "steps": STEPS,
        "nu": 0.05,
        "width": width,
        **options,
    }
    return TreeSearch(partitioning.root(SOURCES), partitioning.split, **settings)


class CheapTrainer:
    """Models of 50,000 weights that learn nothing: only their keeping costs something."""

    def __init__(self, seconds: float = 0.0, *, waits: bool = False) -> None:
        self.goal = np.random.default_rng(0).dirichlet(np.ones(SOURCES))
        self.seconds, self.waits = seconds, waits

    def init(self, seed: int) -> Weights:
        return np.zeros(WEIGHTS, dtype=np.float32)

    def train(self, jobs: Sequence[Job[Weights]]) -> list[Weights]:
        states = []
        for job in jobs:
            if self.waits:
                time.sleep(self.seconds)
            ends = time.process_time() + (0.0 if self.waits else self.seconds)
            state = job.state + np.float32(job.mixture @ self.goal)
            while time.process_time() < ends:  # CPU time: a busy machine takes longer for the same work
                state = state * np.float32(1.0)
            states.append(state)
        return states

    def evaluate(self, states: Sequence[Weights]) -> list[Evaluation]:
        return [Evaluation(float(abs(state[0] - 0.3)), 0.1) for state in states]

    def save(self, state: Weights) -> dict[str, NDArray[Any]]:
        return {"weights": state}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> Weights:
        return np.array(arrays["weights"])


# ------------------------------------------------------------------------------------ storage per node


def storage_rows(rounds: int = 200) -> list[Row]:
    """Rows of rounds of 2 and of 8 nodes, written and finished; and the models beside them."""
    rows = []
    for size in (2, 8):
        with tempfile.TemporaryDirectory() as folder:
            storage = SqlStorage(Path(folder) / "study.db")
            storage.create(StudyRecord("study", 0, 0, 1))
            models = storage.checkpoints("study")
            assert models is not None
            for_rows, for_models = [], []
            for number in range(rounds):
                trials = [Trial((number, index), uniform_mixture(SOURCES), STEPS) for index in range(size)]
                done = [Node(trial.path, trial.mixture, trial.steps, 0.5, 0.1) for trial in trials]
                started = time.perf_counter()
                storage.begin_round("study", number, trials)
                storage.finish("study", done)
                for_rows.append(time.perf_counter() - started)
                state = {"weights": np.zeros(WEIGHTS, dtype=np.float32)}
                started = time.perf_counter()
                for trial in trials:
                    models.write(trial.path, state)
                for_models.append(time.perf_counter() - started)
            storage.close()
        name = f"SQLite, rounds of {size} nodes: ms a node"
        rows.append(row(name, statistics.median(for_rows) / size * 1e3, 1.0))
        name = f"a model of {WEIGHTS:,} weights to disk, rounds of {size}: ms a node"
        rows.append(row(name, statistics.median(for_models) / size * 1e3, None))
    return rows


# ------------------------------------------------------------------------------- the study's own share


def main_sources() -> Sources:
    """100 features, three classes, four sources of 5,000 rows."""
    random = np.random.default_rng(0)
    slopes = random.normal(size=(100, 3)) / 10

    def part(count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        x = random.normal(size=(count, 100)).astype(np.float32)
        return x, np.argmax(x @ slopes + random.gumbel(size=(count, 3)), axis=1)

    return Sources.from_dict({f"s{i}": part(5000) for i in range(SOURCES)}, part(400), classes=3)


def timed(trainer: Any) -> Any:
    """The trainer with a clock around training and evaluating.

    The clock is the cheapest there is: asking for a thread's CPU time takes two microseconds a node.
    """

    def clocked(work: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def run(given: Any) -> Any:
            started = time.perf_counter()
            done = work(given)
            trainer.busy += time.perf_counter() - started
            return done

        return run

    trainer.busy, trainer.train, trainer.evaluate = 0.0, clocked(trainer.train), clocked(trainer.evaluate)
    return trainer


def make_trainer(sources: Sources) -> tuple[str, Any]:
    try:
        from mixtree.trainers.mlp import MlpTrainer
    except ImportError:
        from mixtree.trainers.reference import ReferenceTrainer

        return "reference trainer", ReferenceTrainer(sources, hidden=(128, 128, 128))
    return "built-in MLP", MlpTrainer(sources, hidden=(128, 128, 128))


def share_rows(nodes: int = 800, repeats: int = 3) -> list[Row]:
    """The time of a study in memory that is neither training nor evaluating."""
    sources, rows = main_sources(), []
    shares: dict[int, list[float]] = {1: [], 4: []}
    for _ in range(repeats):
        for width, found in shares.items():  # interleaved: a busy moment hits both
            kind, trainer = make_trainer(sources)
            trainer = timed(trainer)
            search = make_search(nodes, width=width)
            started = time.perf_counter()
            result = run(search, trainer)
            total = time.perf_counter() - started
            found.append(100 * (total - trainer.busy) / total)
            del result  # not before: giving its models' memory back is no part of a study
    for width, found in shares.items():
        name = f"share of neither training nor evaluating, {kind}, width {width}: %"
        rows.append(row(name, statistics.median(found), 2.0))
    return rows


# ---------------------------------------------------------------------------------------------- memory


def memory_rows(nodes: int) -> list[Row]:
    """Peak memory of a study that holds half of its nodes' models as leaves."""
    result = run(make_search(nodes, width=4), CheapTrainer())
    made = len(result.tree)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    name = f"peak memory, {made:,} nodes of {WEIGHTS:,} weights: GB"
    return [row(name, peak / 1e9, 2.0)]


# --------------------------------------------------------------------------------------------- workers


BURN = "import time; end = time.process_time() + 2\nwhile time.process_time() < end: pass"


def plain_speedup() -> float:
    """What two plain processes get on this machine now: 2 if both cores are free, 1 if others share them."""
    took = []
    for count in (1, 2):
        started = time.perf_counter()
        for process in [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(count)]:
            process.wait()
        took.append((time.perf_counter() - started) / count)
    return took[0] / took[1]


def worker_rows(nodes: int = 24, seconds: float = 1.0, repeats: int = 1) -> list[Row]:
    """Wall-clock time of one worker over that of two, a second of training a node, starting included."""
    rows = []
    for waits, what in ((False, "training"), (True, "waiting, which needs no core,")):
        ratios = []
        for _ in range(repeats):
            took = []
            for workers in (1, 2):
                search = make_search(nodes, width=4, train_root=False)
                started = time.perf_counter()
                result = run(search, CheapTrainer(seconds, waits=waits), workers=workers)
                took.append(time.perf_counter() - started)
                assert len(result.tree) == nodes
            ratios.append(took[0] / took[1])
        name = f"two workers, {seconds:g} s of {what} a node: × one worker"
        rows.append(row(name, statistics.median(ratios), 1.8, more_is_better=True))
    return [*rows, row("two plain processes on this machine now: × one", plain_speedup(), None)]


PARTS: dict[str, Callable[[bool], list[Row]]] = {
    "storage": lambda full: storage_rows(),
    "share": lambda full: share_rows(),
    "memory": lambda full: memory_rows(100_000 if full else 10_000),
    "workers": lambda full: worker_rows(repeats=3 if full else 1),
}


def measure(*, full: bool = False) -> list[Row]:
    """One row {name, ratio, target, met} per figure; ``full`` makes 100,000 nodes and takes minutes."""
    rows: list[Row] = []
    for part in PARTS:
        command = [sys.executable, __file__, "--part", part, "--json", *(["--full"] if full else [])]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows += json.loads(answer.stdout)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs that a study survives.")
    parser.add_argument("--part", choices=list(PARTS), help="one part only")
    parser.add_argument("--full", action="store_true", help="100,000 nodes instead of 10,000; takes minutes")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    rows = PARTS[arguments.part](arguments.full) if arguments.part else measure(full=arguments.full)
    if arguments.json:
        print(json.dumps(rows))
        return
    for each in rows:
        met = {True: "met", False: "MISSED", None: ""}[each["met"]]
        print(f"{each['name']:<76}{each['ratio']:>10.4g}  target {each['target'] or '-':>5}  {met}")


if __name__ == "__main__":
    main()
