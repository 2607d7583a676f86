"""The ablation of mixmatch+, its page, and the pictures of the search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mixtree.experiments import merging
from mixtree.experiments.mergingreport import page
from mixtree.experiments.searchpictures import draw_merged, draw_steps
from mixtree.experiments.tasks import Task, tasks


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Task:
    (found,) = (task for task in tasks() if task.name == "in-hull K=3 linear")
    task = replace(found, name="small", budget=300, steps=10)
    monkeypatch.setattr(merging, "ablation_tasks", lambda half: [task])
    return task


def test_every_method_runs_and_stands_on_the_page(small: Task, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    halves = {"design": merging.METHODS, "auto": tuple(merging.TREES)}
    for half, methods in halves.items():
        assert merging.measure(file, half, seeds=2, methods=methods, seconds=100.0)
    rows = merging.stored(file)
    assert len(rows) == 2 * sum(map(len, halves.values())) and all(row["loss"] is not None for row in rows)
    assert all(sum(row["spent"].values()) <= small.budget for row in rows)
    assert merging.measure(file, "design", seeds=2, methods=merging.METHODS, seconds=100.0)
    assert len(merging.stored(file)) == len(rows)  # nothing is run twice
    written = page(rows + merging.run_failures(small, 300))
    for method in merging.METHODS:
        assert f"| {method} |" in written
    assert "## Where merging fails" in written and "## The tree in auto" in written


def test_no_run_is_begun_after_the_time(small: Task, tmp_path: Path) -> None:
    assert not merging.measure(tmp_path / "r.jsonl", "design", seeds=1, methods=["uniform"], seconds=0.0)


def test_merged_losses_of_a_convex_problem_rank_as_trained_ones_do(small: Task) -> None:
    found = [merging.run_failures(small, seed)[0] for seed in range(4)]
    assert found[0]["method"] == "trunk .3, branches .3"
    assert np.mean([row["rank"] for row in found]) > 0.5


def test_pictures(tmp_path: Path) -> None:
    draw_steps(tmp_path / "steps.png")
    draw_merged(tmp_path / "merged.png")
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in ("steps", "merged"))
