"""Studies on two machines: the same answer as in one process, whatever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.extras

HERE = Path(__file__).parent
DRIVER = HERE / "driver.py"
CLUSTER, CLIENT = "ray:10.77.0.1:6379", "ray://10.77.0.1:10001"


def plan(folder: Path, **more: Any) -> str:
    return json.dumps({"folder": str(folder), **more})


def drive(machine: Any, folder: Path, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        last_line(machine.run(sys.executable, str(DRIVER), plan(folder, **more)))
    )
    return found


def last_line(out: str) -> str:
    """Ray prints a word of its own, that a machine was lost."""
    return out.splitlines()[-1]


@pytest.fixture(scope="module")
def serial(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the study comes to in one process."""
    folder = tmp_path_factory.mktemp("serial")
    words = [sys.executable, str(DRIVER), plan(folder)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=True)
    return str(json.loads(done.stdout)["digest"])


def trained(folder: Path) -> set[str]:
    return {file.name.removeprefix("trained-") for file in folder.glob("trained-*")}


def test_the_same_answer_with_everything_across_the_network(site: Any, serial: str, tmp_path: Path) -> None:
    # The study's process is on the second machine; the client server, database and models are on the first.
    stored = {"storage": site.storage, "checkpoints": site.checkpoints}
    found = drive(site.worker, tmp_path, workers=CLIENT, machines=2, **stored)
    assert found["digest"] == serial
    assert not found["warnings"]
    assert trained(tmp_path) == {"10.77.0.1", "10.77.0.2"}


def test_without_storage_models_travel_as_references_only(site: Any, serial: str, tmp_path: Path) -> None:
    assert drive(site.head, tmp_path, workers=CLUSTER, machines=2)["digest"] == serial
    assert trained(tmp_path) == {"10.77.0.1", "10.77.0.2"}


@pytest.mark.parametrize("stored", [True, False])
def test_a_machine_that_is_lost_in_a_round(site: Any, serial: str, tmp_path: Path, stored: bool) -> None:
    more: dict[str, Any] = (
        {"storage": f"sqlite:///{tmp_path}/s.db", "checkpoints": site.checkpoints} if stored else {}
    )
    words = [
        sys.executable,
        str(DRIVER),
        plan(tmp_path, workers=CLUSTER, machines=2, victim="10.77.0.2", **more),
    ]
    with site.head.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            site.wait_for((tmp_path / "begun").exists, "a trial on the second machine")
            site.worker.kill()
            out, errors = process.communicate(timeout=100)
        finally:
            process.kill()
            site.worker.kill()
            site.join()
    assert process.returncode == 0, errors
    assert json.loads(last_line(out))["digest"] == serial
    assert "a worker was lost (Actor" in errors


def test_a_study_that_is_killed_goes_on(site: Any, serial: str, tmp_path: Path) -> None:
    options = {"workers": CLUSTER, "storage": f"sqlite:///{tmp_path}/s.db", "checkpoints": site.checkpoints}
    at = tmp_path / "evaluated"
    with site.head.popen(sys.executable, str(DRIVER), plan(tmp_path, pause=0.2, **options)) as process:
        try:
            site.wait_for(lambda: at.exists() and len(at.read_text().splitlines()) >= 5, "five nodes")
        finally:
            process.send_signal(signal.SIGKILL)
    before = len(at.read_text().splitlines())
    found = drive(site.head, tmp_path, **options)
    assert found["digest"] == serial
    assert 5 <= before < found["nodes"]
    lines = at.read_text().splitlines()
    assert len(set(lines)) == len(lines)  # what was done was not done again


def test_models_that_a_machine_cannot_reach(site: Any, tmp_path: Path) -> None:
    unseen = {"storage": f"sqlite:///{tmp_path}/s.db", "checkpoints": "memory://mine"}
    words = [sys.executable, str(DRIVER), plan(tmp_path, workers=CLUSTER, **unseen)]
    with site.head.popen(*words, stderr=subprocess.PIPE) as process:
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    assert "the models in memory://mine cannot be seen here: keep them where all machines" in errors
