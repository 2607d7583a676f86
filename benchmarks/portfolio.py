"""CPU time and memory of default fits of tables: ``mixtree.fit`` of DataFrames, in its normal effort.

    python benchmarks/portfolio.py [--quick] [--effort EFFORT] [--json]

The tables are synthetic: three quarters of the columns are numbers, a quarter categories, and some cells are
gaps; four sources whose levels and slopes differ, and 150 rows of the target. Each fit is a process of its own,
so that its CPU time (user and system, of all threads) and its peak of memory are its own; importing the
libraries is part of both. The verdict's references are left out, as in the comparison with other tools.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

SEED, TARGET = 1, 150
MEMORY, TABLES = 1.0, 4.0  # GB, and so many times the table's own size


@dataclass(frozen=True, slots=True)
class Case:
    """One table to fit, and the seconds of CPU that it may take."""

    rows: int
    columns: int
    task: str
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.rows:,} x {self.columns}, {self.task}"


SMALL = (Case(5_000, 20, "classification", 15.0), Case(5_000, 20, "regression", 15.0))
LARGE = (Case(100_000, 30, "classification", 120.0), Case(100_000, 30, "regression", 120.0))

Table = dict[str, tuple[pd.DataFrame, pd.Series]]


def table(rows: int, columns: int, task: str, *, seed: int = SEED) -> tuple[Table, tuple[Any, Any], int]:
    """Four sources, the target's rows, and the bytes of all their columns.

    Parameters
    ----------
    rows, columns
        Of the sources together.
    task
        ``classification`` of two classes, or ``regression``.
    seed
        Of all that is drawn.
    """
    rng = np.random.default_rng(seed)
    count, categories = rows + TARGET, columns // 4
    source = np.concatenate([rng.choice(4, rows, p=(0.1, 0.2, 0.3, 0.4)), np.full(TARGET, 4)])
    numbers = rng.normal(size=(count, columns - categories))
    codes = rng.integers(0, 12, (count, categories))
    level, slopes = rng.normal(size=5), 1.0 + 0.3 * rng.normal(size=(5, 4))
    signal = level[source] + (numbers[:, :4] * slopes[source]).sum(1) + np.sin(2.0 * numbers[:, 4])
    signal += rng.normal(size=12)[codes[:, 0]] + numbers[:, 0] * (codes[:, 1] % 2)
    signal += rng.normal(size=count)
    y = pd.Series((signal > 0.0).astype(int) if task == "classification" else np.round(np.exp(signal / 3), 4))
    numbers[rng.random(numbers.shape) < 0.03] = np.nan
    words = np.array([f"value {n}" for n in range(12)], dtype=object)
    frame = pd.DataFrame(numbers, columns=[f"number{n}" for n in range(numbers.shape[1])])
    for place in range(categories):
        frame[f"category{place}"] = words[codes[:, place]]
    parts = [(frame[source == k].reset_index(drop=True), y[source == k].reset_index(drop=True)) for k in range(5)]
    return {f"source{k}": parts[k] for k in range(4)}, parts[4], int(frame.memory_usage(deep=True).sum())


def fit(case: Case, effort: str) -> dict[str, Any]:
    """Fits it here; what it took."""
    import mixtree

    sources, target, size = table(case.rows, case.columns, case.task)
    before = _used()
    started = time.perf_counter()
    classes = 2 if case.task == "classification" else 0
    result = mixtree.fit(sources, target, classes=classes, effort=effort, reference="none")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "name": case.name,
        "cpu": round(_used(), 1),
        "fit": round(_used() - before, 1),
        "seconds": round(time.perf_counter() - started, 1),
        "target": case.seconds,
        "memory": round(peak * (1 if sys.platform == "darwin" else 1024) / 1e9, 2),
        "most": round(MEMORY + TABLES * size / 1e9, 2),
        "verdict": str(result.verdict.score.value) if result.verdict else "",
    }


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small tables alone")
    parser.add_argument("--effort", choices=["quick", "normal", "thorough"], default="normal")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    cases = SMALL if chosen.quick else (*SMALL, *LARGE)
    if chosen.one is not None:
        print(json.dumps(fit((*SMALL, *LARGE)[chosen.one], chosen.effort)))
        return
    rows = []
    for place in range(len(cases)):
        command = [sys.executable, __file__, "--one", str(place), "--effort", chosen.effort]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))
    if chosen.json:
        print(json.dumps(rows, indent=1))
        return
    print("| table | CPU seconds | at most | GB of memory | at most |\n| --- | --- | --- | --- | --- |")
    for row in rows:
        print(f"| {row['name']} | {row['cpu']} | {row['target']:g} | {row['memory']} | {row['most']} |")


if __name__ == "__main__":
    main()
