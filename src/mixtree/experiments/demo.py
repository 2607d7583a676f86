"""The demo: every basic algorithm on the flights, same budget, a few seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mixtree.data.flights import CARRIERS, flights
from mixtree.data.sources import Problem
from mixtree.events import Listener
from mixtree.experiments.comparison import Rules, Run, Summary, compare, summarise
from mixtree.metrics import as_metric
from mixtree.trainers.mlp import MlpTrainer

BATCH_SIZE = 50


def demo_algorithms(target: Literal["new", "known"]) -> list[str]:
    """The algorithms that the demo compares."""
    return [
        "auto",
        "mixmatch-bisect",
        "mixmatch-bisect+commit",
        "mixmatch-ch",
        "mixmatch-ch+commit",
        "uniform",
        "uniform+decay",
        "pooled",
        "pooled+decay",
        *(f"only:{carrier}" for carrier in CARRIERS),
        "validation",
        *(["genie", "genie+decay"] if target == "known" else []),
    ]


def run_demo(
    *,
    target: Literal["new", "known"],
    seeds: int,
    budget: int,
    steps: int,
    listeners: Sequence[Listener] = (),
) -> tuple[list[Run], list[Summary]]:
    """Run the comparison; nothing is written."""
    problems = [flights(target=target, seed=seed) for seed in range(seeds)]
    runs = compare(
        problems,
        demo_algorithms(target),
        make_trainer=_trainer,
        rules=Rules(budget, steps, as_metric("auroc", classes=2)),
        listeners=listeners,
    )
    return runs, summarise(runs)


def _trainer(problem: Problem) -> MlpTrainer:
    return MlpTrainer(problem.sources, hidden=(128, 128, 128), lr=0.1, batch_size=BATCH_SIZE)
