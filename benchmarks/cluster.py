"""Workers of a Ray cluster against worker processes: what a trial costs beyond training, what two bring.

Both are measured alternately on one machine, so that what else it does hits both.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.events import Event, NodeEvaluated, StudyFinished
from mixtree.partition import bisect, simplex_root
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree_search import TreeSearch


def seconds(trainer: Any, workers: int | str, *, trials: int, steps: int) -> float:
    """From the second round, when all workers are there, to the end; per trial after it."""
    times: list[float] = []

    def told(event: Event) -> None:
        if isinstance(event, NodeEvaluated | StudyFinished):
            times.append(time.perf_counter())

    search = TreeSearch(simplex_root(3), bisect, budget=trials * steps, steps=steps, width=2)
    run(search, trainer, workers=workers, listeners=[told])
    skipped = min(5, len(times) // 3)
    return (times[-1] - times[skipped]) / (len(times) - 1 - skipped)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--train-seconds", type=float, default=1.0)
    options = parser.parse_args()
    trainer = MlpTrainer(synthetic(sources=3, rows=2000, features=20).sources, hidden=(64,), batch_size=64)
    kinds: tuple[int | str, ...] = (1, 2, "ray?workers=1", "ray?workers=2")
    seconds(trainer, "ray?workers=2", trials=9, steps=1)  # Ray itself starts once
    began = time.process_time()
    seconds(trainer, 1, trials=3, steps=2000)
    per_step = (time.process_time() - began) / 6000
    found: dict[str, dict[str, float]] = {}
    for name, steps, trials in (
        ("overhead", 1, 121),
        ("long trials", max(1, int(options.train_seconds / per_step)), 13),
    ):
        runs: dict[str, list[float]] = {str(kind): [] for kind in kinds}
        for _ in range(options.repeats):
            for kind in kinds:
                runs[str(kind)].append(seconds(trainer, kind, trials=trials, steps=steps))
        found[name] = {kind: min(each) for kind, each in runs.items()}
    long = found["long trials"]
    found["ratios"] = {
        "two processes": long["1"] / long["2"],
        "two on ray": long["ray?workers=1"] / long["ray?workers=2"],
        "ms more than a process": 1e3 * (found["overhead"]["ray?workers=2"] - found["overhead"]["2"]),
    }
    print(
        json.dumps(
            {name: {k: float(np.round(v, 5)) for k, v in each.items()} for name, each in found.items()}
        )
    )


if __name__ == "__main__":
    main()
