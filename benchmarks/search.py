"""What the search itself costs: ask and tell per node, memory, and one split of many sources.

    python benchmarks/search.py [--nodes 1000000] [--json]

Training is replaced by a cheap function of the mixture, whose own time is not counted. CPU times are printed
beside their targets and never asserted: a busy machine is no bug.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixtree.partition import PARTITIONS
from mixtree.seeds import derive_seed
from mixtree.simplex import Cell
from mixtree.trainer import Evaluation
from mixtree.tree_search import TreeSearch


@dataclass(frozen=True)
class Row:
    """One measured figure; a row without a target is for information."""

    name: str
    value: float
    unit: str
    target: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.value <= self.target

    def as_dict(self) -> dict[str, Any]:
        name = f"{self.name} ({self.unit})" if self.unit else self.name
        return {
            "name": name,
            "value": self.value,
            "ratio": self.value,
            "target": self.target,
            "met": self.met,
        }


def peak_megabytes() -> float:
    """The largest memory this process has had so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10  # bytes there, kilobytes elsewhere


def search_rows(nodes: int, *, sources: int = 4, steps: int = 20) -> list[Row]:
    """A bisect search that makes so many nodes."""
    partitioning = PARTITIONS["bisect"]
    goal = np.random.default_rng(0).dirichlet(np.ones(sources))
    before = peak_megabytes()
    search = TreeSearch(
        partitioning.root(sources), partitioning.split, budget=nodes * steps, steps=steps, nu=0.05
    )
    clock = time.process_time_ns  # CPU time: other processes on the machine do not count
    spent = 0
    while True:
        started = clock()
        trials = search.ask()
        spent += clock() - started
        if not trials:
            break
        evaluations = []
        for trial in trials:
            gap = trial.mixture - goal
            evaluations.append(Evaluation(float(gap @ gap)))
        started = clock()
        for trial, evaluation in zip(trials, evaluations, strict=True):
            search.tell(trial, evaluation)
        spent += clock() - started
    made = len(search.tree)
    return [
        Row(f"ask + tell per node, {made} nodes, K = {sources}", spent / made / 1e3, "µs", 100.0),
        Row("peak memory of the search", peak_megabytes() - before, "MB"),
        Row("memory per node", (peak_megabytes() - before) * 2**20 / made, "bytes"),
        Row("greatest height", search.tree.depth, ""),
    ]


def split_row(name: str, sources: int, *, depth: int = 300, repeats: int = 5) -> Row:
    """The median time of one split along random paths."""
    partitioning = PARTITIONS[name]
    times = []
    for repeat in range(repeats):
        rng = np.random.default_rng(repeat)
        cell: Cell = partitioning.root(sources)
        for height in range(depth):
            seed = derive_seed(repeat, (height,))
            started = time.process_time_ns()
            children = partitioning.split(cell, seed)
            times.append(time.process_time_ns() - started)
            cell = children[int(rng.integers(len(children)))]
    target = 100.0 if name in ("bisect", "halve") else None
    return Row(f"one split, {name}, K = {sources}", statistics.median(times) / 1e3, "µs", target)


def print_table(rows: list[Row]) -> None:
    print(f"{'name':<48}{'value':>12} {'unit':<6}{'target':>10}  met")
    for row in rows:
        target = "-" if row.target is None else f"≤ {row.target:g}"
        met = {True: "yes", False: "no", None: "-"}[row.met]
        print(f"{row.name:<48}{row.value:>12.1f} {row.unit:<6}{target:>10}  {met}")


def measure(nodes: int = 1_000_000) -> list[dict[str, Any]]:
    """The rows as plain data, from a process of its own: what others left in memory is not the search's."""
    command = [sys.executable, __file__, "--nodes", str(nodes), "--json"]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    rows: list[dict[str, Any]] = json.loads(answer.stdout)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="What the search itself costs.")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="nodes that the search makes")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    if arguments.nodes < 3:
        parser.error("a search needs at least 3 nodes: a root and two children")
    rows = search_rows(arguments.nodes)
    rows += [split_row(name, 50) for name in ("bisect", "halve", "delaunay")]
    if arguments.json:
        print(json.dumps([row.as_dict() for row in rows]))
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
