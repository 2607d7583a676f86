"""Studies that are killed again and again end as if nothing had happened: same tree, spend and bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks")

DRIVER = Path(__file__).with_name("driver.py")
SAME = ("best", "rule", "spent", "tree", "model", "files")


def drive(**plan: Any) -> list[dict[str, Any]]:
    """Run the driver; what each study ended with."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), json.dumps(plan)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@cache
def undisturbed(folder: Path, options: str = "{}") -> dict[str, Any]:
    (whole,) = drive(folder=str(folder), **json.loads(options))
    return whole


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


def assert_all_the_same(studies: list[dict[str, Any]], whole: dict[str, Any]) -> None:
    for number, study in enumerate(studies):
        for part in SAME:
            assert study[part] == whole[part], f"study {number} has another {part}"


def test_killed_at_thirty_random_writes(base: Path, tmp_path: Path) -> None:
    # A write is a statement, a commit, half a file, a rename or a deletion: the kill falls right before it.
    whole = undisturbed(base)
    assert whole["writes"] > 200
    chance = random.Random(20)
    kills = [
        [chance.randint(1, whole["writes"]) for _ in range(chance.choice([1, 1, 2, 3]))] for _ in range(22)
    ]
    studies = drive(folder=str(tmp_path), kills=kills)
    assert len(studies) == len(kills)
    assert sum(study["killed"] for study in studies) >= 30
    assert_all_the_same(studies, whole)


def test_killed_at_random_times(base: Path, tmp_path: Path) -> None:
    # From outside, in the middle of whatever it does: mostly training, slowed down to be hit.
    chance = random.Random(21)
    kills = [[chance.uniform(0.02, 0.35), chance.uniform(0.05, 0.3)] for _ in range(5)]
    studies = drive(folder=str(tmp_path), kills=kills, slow=0.02)
    assert sum(study["killed"] for study in studies) >= 6
    assert_all_the_same(studies, undisturbed(base))


def test_killed_before_and_after_the_budget_was_raised(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    budgets = {"budgets": [90, 150]}
    (whole,) = drive(folder=str(tmp_path / "whole"), **budgets)
    assert sum(node[-1] == "commit" for node in whole["tree"]) == 2  # the old commit stays charged
    assert sum(whole["spent"].values()) == 150
    chance = random.Random(22)
    # Every other kill falls into the raised part, the first of all into its very beginning.
    kills = [[chance.randint(1, 150), at] for at in (*range(5, 30, 4), *range(40, 150, 25))]
    studies = drive(folder=str(tmp_path / "killed"), kills=kills, **budgets)
    assert sum(study["killed"] for study in studies) >= 20
    assert_all_the_same(studies, whole)


def test_killed_inside_a_long_commit_it_loses_at_most_a_segment(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    long = {"budgets": [800], "commit": 0.9}
    (whole,) = drive(folder=str(tmp_path / "whole"), **long)
    commit = [node[3] for node in whole["tree"] if node[-1] == "commit"]
    assert len(commit) > 10 and sum(commit) > 700 and whole["trained"] == 800
    chance = random.Random(23)
    kills = [[chance.randint(whole["writes"] // 2, whole["writes"] - 5)] for _ in range(6)]
    kills[0] = [0.4 * whole["writes"] // 1, 60, 60]
    studies = drive(folder=str(tmp_path / "killed"), kills=kills, **long)
    assert sum(study["killed"] for study in studies) >= 6
    assert_all_the_same(studies, whole)
    for study in studies:
        assert study["trained"] <= 800 + study["killed"] * max(commit)


def test_killed_with_groups_and_all_models_kept(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    options = {"group": 3, "keep": "all"}
    (whole,) = drive(folder=str(tmp_path / "whole"), **options)
    assert len(whole["files"]) == len(whole["tree"])
    studies = drive(folder=str(tmp_path / "killed"), kills=[[60], [110, 45], [171]], **options)
    assert sum(study["killed"] for study in studies) == 4
    assert_all_the_same(studies, whole)


def test_killed_with_worker_processes(base: Path, tmp_path: Path) -> None:
    # At a write of the main process first, then, from outside, while the workers of the next one are at work.
    studies = drive(folder=str(tmp_path), kills=[[60, 0.6], [110, 0.4]], workers=2, slow=0.05)
    assert sum(study["killed"] for study in studies) >= 3
    assert_all_the_same(studies, undisturbed(base))


# ------------------------------------------------------------------------------------------------- Ctrl-C


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from driver import Plan, study
from mixtree.errors import StudyInterrupted
listeners = [lambda event: print(type(event).__name__, flush=True)]
try:
    study(Plan(sys.argv[2], slow=0.05), 0, 150, listeners=listeners)
except StudyInterrupted as stopped:
    print(stopped, file=sys.stderr)
    sys.exit(130)
"""


def test_control_c_from_outside(base: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(DRIVER.parent), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    rounds = 0
    while rounds < 3:
        rounds += process.stdout.readline() == "RoundAsked\n"
    time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    # The round was finished, no other begun.
    assert output.rpartition("RoundAsked\n")[2].splitlines() == ["NodeEvaluated"] * 4
    assert "stopping after the current round" in errors
    assert f"storage='{tmp_path}/0.db', study='study 0', resume=True" in errors
    (study,) = drive(folder=str(tmp_path))
    assert_all_the_same([study], undisturbed(base))
