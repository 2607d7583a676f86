"""CPU time and memory of default fits of tables: ``mixtree.fit`` of DataFrames, in its normal effort.

    python benchmarks/portfolio.py [--quick] [--effort EFFORT]
    python benchmarks/run.py portfolio    # writes docs/results/speed.md

The tables are synthetic: three quarters of the columns are numbers, a quarter categories, and some cells are
gaps; four sources whose levels and slopes differ, and 150 rows of the target. Each fit is a process of its
own, so that its CPU time (user and system, of all threads) and its peak of memory are its own; importing the
libraries is part of both. The verdict's references are left out, as in the comparison with other tools.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import mixtree

SEED, TARGET = 1, 150
MEMORY, TABLES = 1.0, 4.0  # GB, and so many times the table's own size


@dataclass(frozen=True, slots=True)
class Case:
    """One table to fit, and the seconds of CPU that it may take."""

    rows: int
    columns: int
    task: str
    seconds: float


SMALL = (Case(5_000, 20, "classification", 15.0), Case(5_000, 20, "regression", 15.0))
LARGE = (Case(100_000, 30, "classification", 120.0), Case(100_000, 30, "regression", 120.0))

Row = dict[str, Any]
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
    parts = [
        (frame[source == k].reset_index(drop=True), y[source == k].reset_index(drop=True)) for k in range(5)
    ]
    return {f"source{k}": parts[k] for k in range(4)}, parts[4], int(frame.memory_usage(deep=True).sum())


def fit(case: Case, effort: str) -> Row:
    """Fits it here: seconds of CPU, and GB of memory beside what it may take."""
    sources, target, size = table(case.rows, case.columns, case.task)
    classes = 2 if case.task == "classification" else 0
    mixtree.fit(sources, target, classes=classes, effort=effort, reference="none")
    used = resource.getrusage(resource.RUSAGE_SELF)
    unit = 1 if sys.platform == "darwin" else 1024  # kilobytes on Linux, bytes on macOS
    return {
        "cpu": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss * unit / 1e9,
        "most": MEMORY + TABLES * size / 1e9,
    }


def measure(cases: Sequence[Case] = (*SMALL, *LARGE), effort: str = "normal") -> list[Row]:
    """Rows {name, ratio, target, met}: seconds of CPU, and GB of memory, at most."""
    rows = []
    for case in cases:
        given = [str(case.rows), str(case.columns), case.task, str(case.seconds), effort]
        command = [sys.executable, __file__, "--fit", *given]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        what = f"portfolio of {case.rows:,} x {case.columns}, {case.task}, {effort}"
        for name, ratio, most in (
            ("s of CPU", found["cpu"], case.seconds),
            ("GB of memory", found["memory"], found["most"]),
        ):
            met = ratio <= most
            row = {"name": f"{what}: {name}", "ratio": round(ratio, 2), "target": round(most, 2), "met": met}
            rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the small tables alone")
    parser.add_argument("--effort", choices=["quick", "normal", "thorough"], default="normal")
    parser.add_argument("--fit", nargs=5, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.fit:
        rows, columns, task, seconds, effort = chosen.fit
        print(json.dumps(fit(Case(int(rows), int(columns), task, float(seconds)), effort)))
        return
    for row in measure(SMALL if chosen.quick else (*SMALL, *LARGE), chosen.effort):
        verdict = "met" if row["met"] else "MISSED"
        print(f"{row['name']:<80} {row['ratio']:>7.4g}  target {row['target']:g}  {verdict}")


if __name__ == "__main__":
    main()
