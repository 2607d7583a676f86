"""Workers of a Ray cluster against worker processes: what a trial costs beyond training, what two bring.

Both are measured alternately on one machine, so that what else it does hits both.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import closing
from typing import Any

import numpy as np

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.events import Event, NodeEvaluated, RoundAsked, StudyFinished
from mixtree.partition import bisect, simplex_root
from mixtree.planning.parallel import replay
from mixtree.storage.sql import open_storage
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree_search import TreeSearch


def seconds(trainer: Any, workers: int | str, *, trials: int, steps: int) -> float:
    """Per trial of the second half: until then workers may still be starting."""
    times: list[float] = []

    def told(event: Event) -> None:
        if isinstance(event, NodeEvaluated | StudyFinished):
            times.append(time.perf_counter())

    search = TreeSearch(simplex_root(3), bisect, budget=trials * steps, steps=steps, width=2)
    run(search, trainer, workers=workers, listeners=[told])
    skipped = len(times) // 2
    return (times[-1] - times[skipped]) / (len(times) - 1 - skipped)


def replayed(trainer: Any, workers: int | str, *, trials: int, steps: int) -> tuple[float, float]:
    """Seconds that a study took once its workers were there, and what its recorded trials make of them."""
    clock: dict[int, float] = {}

    def told(event: Event) -> None:
        if isinstance(event, RoundAsked):
            clock[event.number] = time.perf_counter()
        elif isinstance(event, StudyFinished):
            clock[0] = time.perf_counter()

    search = TreeSearch(simplex_root(3), bisect, budget=trials * steps, steps=steps, width=2)
    with tempfile.TemporaryDirectory() as folder, closing(open_storage(f"{folder}/s.db")) as storage:
        run(search, trainer, workers=workers, storage=storage, listeners=[told])
        rounds: dict[int, list[float]] = {}
        for node in storage.nodes("study"):
            rounds.setdefault(node.round, []).append(node.seconds or 0.0)
    late = [times for number, times in sorted(rounds.items()) if number >= 3]  # counted from 0 in the storage
    count = workers if isinstance(workers, int) else 2
    return clock[0] - clock[4], replay(late, count).seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--train-seconds", type=float, default=1.0)
    parser.add_argument("--validate", action="store_true", help="the simulation only")
    options = parser.parse_args()
    trainer = MlpTrainer(synthetic(sources=3, rows=2000, features=20).sources, hidden=(64,), batch_size=64)
    kinds: tuple[int | str, ...] = (1, 2, "ray?workers=1", "ray?workers=2")
    seconds(trainer, "ray?workers=2", trials=9, steps=1)  # Ray itself starts once
    began = time.process_time()
    seconds(trainer, 1, trials=3, steps=2000)
    per_step = (time.process_time() - began) / 6000
    long = max(1, int(options.train_seconds / per_step))
    found: dict[str, dict[str, float]] = {}
    if not options.validate:
        for name, steps, trials in (("overhead", 1, 121), ("long trials", long, 29)):
            runs: dict[str, list[float]] = {str(kind): [] for kind in kinds}
            for _ in range(options.repeats):
                for kind in kinds:
                    runs[str(kind)].append(seconds(trainer, kind, trials=trials, steps=steps))
            found[name] = {kind: min(each) for kind, each in runs.items()}
        times, short = found["long trials"], found["overhead"]
        found["ratios"] = {
            "two processes": times["1"] / times["2"],
            "two on ray": times["ray?workers=1"] / times["ray?workers=2"],
            "ms more than a process": 1e3 * (short["ray?workers=2"] - short["2"]),
        }
    found["simulated / measured"] = {}
    for kind in (1, 2, "ray?workers=2"):
        measured, simulated = replayed(trainer, kind, trials=25, steps=long)
        found["simulated / measured"][str(kind)] = simulated / measured
    print(
        json.dumps(
            {name: {k: float(np.round(v, 5)) for k, v in each.items()} for name, each in found.items()}
        )
    )


if __name__ == "__main__":
    main()
