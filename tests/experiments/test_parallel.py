"""Comparisons on a cluster: whole runs as its tasks."""

from __future__ import annotations

import math
import operator
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mixtree.errors import InputError, TrainingError
from mixtree.experiments.parallel import Crew
from mixtree.experiments.reproduce import Plan, train
from mixtree.experiments.specs import EXPERIMENTS
from mixtree.experiments.tuning import Recipe

pytestmark = pytest.mark.extras


@pytest.mark.parametrize("workers", ["ray", "ray?workers=1"])
def test_the_answers_of_a_cluster(workers: str, ray: Any) -> None:
    with Crew(workers) as crew:
        assert sorted(crew.run(operator.mul, [(each, each) for each in range(9)])) == [
            n * n for n in range(9)
        ]


def test_an_error_of_a_task_is_raised_here_as_it_was(ray: Any) -> None:
    with Crew("ray") as crew, pytest.raises(ValueError, match=r"^(math domain error|expected a nonneg.*)$"):
        list(crew.run(math.sqrt, [(-1.0,)]))


def test_a_task_that_kills_its_workers(ray: Any) -> None:
    with Crew("ray") as crew, pytest.raises(TrainingError, match="runs that have finished are kept"):
        list(crew.run(os._exit, [(1,)]))


def test_no_cluster() -> None:
    with pytest.raises(InputError, match="a Ray cluster is"):
        Crew("rays")


def test_the_papers_runs_are_the_same_on_a_cluster(ray: Any, tmp_path: Path) -> None:
    recipes = {name: Recipe(0.05, 4) for name in ("mixmatch-bisect", "uniform")}
    for workers in ("1", "ray"):
        plan = Plan(EXPERIMENTS["flights-new"], "shared", recipes, (24,), 2, tmp_path / workers)
        with Crew(1 if workers == "1" else workers) as crew:
            assert train(plan, crew=crew) == 4
            assert train(plan, crew=crew) == 0  # they have finished
    one, two = (
        {file.name: file.read_bytes() for file in (tmp_path / workers).rglob("*.safetensors")}
        for workers in ("1", "ray")
    )
    assert one
    assert one == two


SCRIPT = """
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.partition import bisect, simplex_root
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree_search import TreeSearch
import pathlib, sys, tempfile, time
trainer = MlpTrainer(synthetic(rows=60).sources, hidden=())
def told(event):
    if len(sys.argv) > 2 and type(event).__name__ == "NodeEvaluated":
        pathlib.Path(sys.argv[1]).touch()
        time.sleep(60)
search = TreeSearch(simplex_root(3), bisect, budget=50, steps=10)
run(search, trainer, workers="ray?workers=1", listeners=[told])
assert list(pathlib.Path(tempfile.gettempdir()).glob("mixtree-ray-*")), "another cluster was taken"
pathlib.Path(sys.argv[1]).touch()
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name: a socket's has 107 characters at the most."""
    with tempfile.TemporaryDirectory(prefix="mx-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("killed", [False, True])
def test_a_cluster_of_ones_own_leaves_nothing(killed: bool, short: Path, tmp_path: Path) -> None:
    shared = set(Path("/dev/shm").glob("[!s]*"))
    sign = f"MIXTREE_TEST_SIGN={tmp_path}".encode()
    env = {**os.environ, "MIXTREE_TEST_SIGN": str(tmp_path), "TMPDIR": str(short), "RAY_ADDRESS": "local"}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    words = [sys.executable, "-c", SCRIPT, str(tmp_path / "done"), *(["killed"] if killed else [])]
    with subprocess.Popen(words, env=env, cwd=tmp_path) as process:
        for _ in range(1200):
            if (tmp_path / "done").exists() or process.poll() is not None:
                break
            time.sleep(0.05)
        if killed:
            process.kill()
        assert (process.wait(60) == 0) != killed

    def left() -> list[str]:
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if sign in (place / "environ").read_bytes():
                    found.append((place / "cmdline").read_text().partition("\0")[0])
            except OSError:
                continue
        return found

    # After a kill two helpers of Ray's own, which train nothing, stay for up to a minute.
    helpers = {"ray::DashboardAgent", "ray::RuntimeEnvAgent"} if killed else set()
    for _ in range(600):
        if not set(left()) - helpers:
            break
        time.sleep(0.05)
    assert not set(left()) - helpers
    assert set(Path("/dev/shm").glob("[!s]*")) == shared
    if not killed:
        assert not list(short.glob("mixtree-ray-*"))
