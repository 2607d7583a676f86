"""Do the intervals of ``mixtree compare`` hold the difference of two algorithms? Coverage by simulation.

    python benchmarks/repeats.py [--repetitions 1000] [--document]

What two algorithms' models predict is drawn directly: the label's own signal, what an algorithm gets wrong on
a row whatever its seed, what a seed gets wrong on all rows, and on single rows. The truth is the mean over
seeds of the difference on a million rows. ``--document`` writes the table into docs/results/verdict.md.
"""

from __future__ import annotations

import argparse
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from mixtree.metrics import ACCURACY, AUROC, LOG_LOSS, RMSE, Metric
from mixtree.verdict import Repeat, repeated_difference

DOCUMENT = Path(__file__).parent.parent / "docs" / "results" / "verdict.md"
START, END = "<!-- repeats: written by benchmarks/repeats.py -->", "<!-- end of repeats -->"
SEED = 20_250_301
ROWS, POOL, SEEDS = 100, 10_000, 100
METRICS = (LOG_LOSS, ACCURACY, AUROC, RMSE)


@dataclass(frozen=True)
class World:
    """Standard deviations of what is wrong with the predictions."""

    name: str
    rows: float
    """By algorithm and row."""
    seeds: float
    """By algorithm and seed, in the signal's strength and in its offset."""
    single: float
    """By algorithm, seed and row."""


WORLDS = (
    World("rows decide", rows=0.5, seeds=0.0, single=0.1),
    World("seeds decide on single rows", rows=0.1, seeds=0.0, single=0.5),
    World("seeds and rows decide", rows=0.5, seeds=0.15, single=0.3),
    World("seeds decide", rows=0.1, seeds=0.3, single=0.1),
)


class Draw:
    """Rows of a world, and what models of two algorithms predict for them."""

    def __init__(self, world: World, rows: int, *, regression: bool, rng: np.random.Generator) -> None:
        self.world, self.regression, self.rng = world, regression, rng
        self.signal = 1.5 * rng.standard_normal(rows)
        if regression:
            self.y = self.signal + rng.standard_normal(rows)
        else:
            self.y = (rng.random(rows) < 1.0 / (1.0 + np.exp(-self.signal))).astype(np.int64)
        self.known = [
            strength * self.signal + world.rows * rng.standard_normal(rows) for strength in (1.0, 0.85)
        ]

    def models(self) -> list[np.ndarray]:
        """What one seed's two models predict."""
        found = []
        for known in self.known:
            strength, offset = self.world.seeds * self.rng.standard_normal(2)
            single = self.world.single * self.rng.standard_normal(len(known))
            logits = (1.0 + strength) * known + offset + single
            p = 1.0 / (1.0 + np.exp(-logits))
            found.append(logits if self.regression else np.column_stack([1.0 - p, p]))
        return found


def truth(world: World, metric: Metric, rng: np.random.Generator) -> float:
    """The mean over seeds of the difference on very many rows."""
    gaps = []
    for _ in range(SEEDS):
        draw = Draw(world, POOL, regression=metric.task == "regression", rng=rng)
        one, two = draw.models()
        gaps.append(metric(draw.y, one) - metric(draw.y, two))
    return float(np.mean(gaps))


def shared(draw: Draw, repeats: int) -> list[Repeat]:
    """All repeats have the same test rows, as with --test."""
    rows = np.arange(len(draw.y))
    return [Repeat(draw.y, *draw.models(), rows) for _ in range(repeats)]


def split(draw: Draw, repeats: int) -> list[Repeat]:
    """Every repeat tests on its own 70 % of the rows, as with --target."""
    found = []
    for _ in range(repeats):
        rows = draw.rng.permutation(len(draw.y))[: int(0.7 * len(draw.y))]
        one, two = draw.models()
        found.append(Repeat(draw.y[rows], one[rows], two[rows], rows))
    return found


Way = Callable[[Draw, int], list[Repeat]]
CASES: dict[str, tuple[Way, int]] = {
    "the same rows, R = 2": (shared, 2),
    "the same rows, R = 3": (shared, 3),
    "split anew, R = 3": (split, 3),
}


def coverage(world: World, metric: Metric, case: str, true: float, repetitions: int) -> float:
    """How often the interval holds the truth."""
    key = repr((world.name, metric.name, case))
    rng = np.random.default_rng([SEED, zlib.crc32(key.encode())])
    draws, repeats = CASES[case]
    hits = 0
    for seed in range(repetitions):
        draw = Draw(world, ROWS, regression=metric.task == "regression", rng=rng)
        found = repeated_difference(metric, draws(draw, repeats), seed=seed)
        hits += found.low <= true <= found.high
    return hits / repetitions


def table(repetitions: int) -> str:
    """All cells; printed as they come."""
    lines = [f"| what decides | metric | {' | '.join(CASES)} |", "| --- | --- |" + " --- |" * len(CASES)]
    rates = []
    for world in WORLDS:
        for metric in METRICS:
            true = truth(world, metric, np.random.default_rng([SEED, zlib.crc32(world.name.encode())]))
            cells = [coverage(world, metric, case, true, repetitions) for case in CASES]
            rates += cells
            lines.append(
                f"| {world.name} | {metric.name} | {' | '.join(f'{100 * r:.1f} %' for r in cells)} |"
            )
            print(lines[-1], flush=True)
    told = (
        f"{len(rates)} cells of {repetitions:,} repetitions, {ROWS} rows (70 of them a test where they are "
        "split anew): 95 % intervals hold the true difference in "
        f"{100 * min(rates):.1f} to {100 * max(rates):.1f} %."
    )
    return "\n".join([told, "", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of the intervals of mixtree compare.")
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--document", action="store_true", help="write it to docs/results/verdict.md")
    arguments = parser.parse_args()
    started = time.perf_counter()
    found = table(arguments.repetitions)
    print(f"{found.splitlines()[0]}\n-- {time.perf_counter() - started:.0f} s")
    if arguments.document:
        text = DOCUMENT.read_text(encoding="utf-8")
        before, rest = text.split(START)
        DOCUMENT.write_text(f"{before}{START}\n\n{found}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
