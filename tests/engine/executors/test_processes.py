from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import pytest

from mixtree.engine.study import Result, run
from mixtree.errors import InputError, SearchError, StorageError, TrainingError
from mixtree.events import Event, Warned
from mixtree.partition import PARTITIONS
from mixtree.policies.commit import then_commit
from mixtree.storage.sql import SqlStorage
from mixtree.tree_search import TreeSearch

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def trainers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Workers import the trainers by name: they get this process's path."""
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("worker_trainers")


def search(budget: int = 75, **options: Any) -> Any:
    partitioning = PARTITIONS["bisect"]
    settings = {"steps": 3, "width": 3, "nu": "auto", **options}
    mine = TreeSearch(partitioning.root(3), partitioning.split, budget=budget, **settings)
    return then_commit(mine, 0.4)


def study(trainer: Any, *, workers: int = 2, mine: Any = None, **options: Any) -> Result[Any]:
    return run(mine or search(), trainer, seed=4, workers=workers, **options)


@cache
def expected(kind: str = "Trainer") -> Result[Any]:
    """The same study in one process."""
    return study(getattr(importlib.import_module("worker_trainers"), kind)(), workers=1)


def rows_of(result: Result[Any]) -> list[tuple[Any, ...]]:
    return [
        (node.path, node.steps, node.phase, node.value.hex(), node.mixture.tobytes())
        for node in result.tree.values()
    ]


def assert_same(one: Result[Any], two: Result[Any]) -> None:
    assert rows_of(one) == rows_of(two)
    assert (one.node.path, one.spent) == (two.node.path, two.spent)
    bits: Sequence[Any] = [
        [array.tobytes() for array in (*each.state.weights, *each.state.biases, each.state.cursor.drawn)]
        for each in (one, two)
    ]
    assert bits[0] == bits[1]


# ----------------------------------------------------------------------- the same answer, however many


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("kind", ["Trainer", "Grouped"])
def test_the_same_answer_for_any_number_of_workers(kind: str, workers: int, trainers: Any) -> None:
    assert_same(study(getattr(trainers, kind)(), workers=workers), expected(kind))


def test_one_study_with_changing_numbers_of_workers(trainers: Any, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(event: Event) -> None:
        if type(event).__name__ == "NodeEvaluated" and not event.replayed:  # type: ignore[union-attr]
            seen.append(event)
            if len(seen) == 4:
                raise Stop

    options: dict[str, Any] = {"resume": True, "storage": SqlStorage(tmp_path / "s.db")}
    with closing(options["storage"]):
        for workers in (2, 1, 3):
            seen: list[Event] = []
            with pytest.raises(Stop):
                study(trainers.Grouped(), workers=workers, mine=search(150), listeners=[stop], **options)
        result = study(trainers.Grouped(), workers=2, mine=search(150), **options)
    assert_same(result, study(trainers.Grouped(), workers=1, mine=search(150)))


def test_lost_models_are_computed_again_for_workers_too(trainers: Any, tmp_path: Path) -> None:
    with closing(SqlStorage(tmp_path / "s.db")) as storage:
        study(trainers.Grouped(), workers=1, storage=storage, time_limit=1e-9)
        models = storage.checkpoints("study")
        assert models is not None
        models.clear()
        result = study(trainers.Grouped(), storage=storage, resume=True)
    assert_same(result, expected("Grouped"))
    assert any("computed again" in warning for warning in result.warnings)


def test_models_that_workers_cannot_see_are_told(trainers: Any, tmp_path: Path) -> None:
    with (
        closing(SqlStorage(tmp_path / "s.db", checkpoints="memory://unseen")) as storage,
        pytest.raises(StorageError, match="still cannot be read: worker processes need checkpoints that all"),
    ):
        study(trainers.Trainer(), storage=storage)


def test_the_trainer_travels_once_per_worker(trainers: Any) -> None:
    result = study(trainers.Weighing(), workers=2)
    assert len(result.tree) > 10
    assert trainers.Weighing.packed == 2


# ------------------------------------------------------------------------------------ workers that die


@pytest.mark.parametrize("kind", ["Dying", "Leaving"])
def test_a_worker_that_dies_is_replaced_and_its_work_repeated(
    kind: str, trainers: Any, tmp_path: Path
) -> None:
    marker = tmp_path / "died"
    result = study(getattr(trainers, kind)(marker=marker))
    assert marker.exists()
    assert_same(result, expected())
    assert not result.warnings


@pytest.mark.parametrize("most", [1, 2])
def test_after_so_many_deaths_the_node_has_failed_and_the_study_goes_on(
    most: int, trainers: Any, tmp_path: Path, caplog: Any
) -> None:
    events: list[Event] = []
    with closing(SqlStorage(tmp_path / "s.db")) as storage:
        result = study(trainers.Dying(), storage=storage, max_failures=most, listeners=[events.append])
        assert result.tree[(0, 1)].value == inf
        assert not any(path[:2] == (0, 1) for path in result.tree if len(path) > 2)
        assert [node.path for node in result.tree.values() if node.value == inf] == [(0, 1)]
        assert sum(result.spent.values()) == 75
        told = f"a worker died with exit code -9 while training (0, 1), {most} times; it counts as worst"
        assert [event.message for event in events if isinstance(event, Warned)] == list(result.warnings)
        assert result.warnings[0].startswith(told)
        assert f"(failure 1 of {most})" in caplog.text
        record = next(each for each in storage.nodes("study") if each.path == (0, 1))
        assert record.status == "failed"
        again = study(trainers.Trainer(), storage=storage, resume=True, workers=1)  # as it was told before
        assert_same(again, result)


def test_if_nothing_but_deaths_comes_of_it_the_study_says_so(trainers: Any) -> None:
    with pytest.raises(TrainingError, match="1 nodes failed because their worker died"):
        study(trainers.Dying(at=()), max_failures=1)


def test_an_error_in_a_worker_stops_the_study_and_the_node_waits(trainers: Any, tmp_path: Path) -> None:
    with closing(SqlStorage(tmp_path / "s.db")) as storage:
        with pytest.raises(TrainingError) as caught:
            study(trainers.Raising(), storage=storage)
        text = str(caught.value)
        assert text.startswith("ZeroDivisionError: mine, in a worker")
        assert "worker_trainers.py" in text  # the traceback, with the line
        assert "raise ZeroDivisionError" in text
        waiting = [each.path for each in storage.nodes("study") if each.status == "pending"]
        assert (0, 1) in waiting
        assert storage.load("study").status == "failed"
        assert_same(study(trainers.Trainer(), storage=storage, resume=True), expected())


def test_a_full_disk_in_a_worker_is_a_storage_error(trainers: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with (
        closing(SqlStorage(tmp_path / "s.db", checkpoints=tmp_path / "file")) as storage,
        pytest.raises(StorageError, match="cannot write the checkpoint"),
    ):
        study(trainers.Trainer(), storage=storage)


# ---------------------------------------------------------------------------------- what cannot travel


def test_a_trainer_that_cannot_be_sent(trainers: Any) -> None:
    with pytest.raises(
        InputError, match=r"Unsendable cannot be sent to worker processes \(.*lambda.*\): use workers=1, or"
    ):
        study(trainers.Unsendable())


def test_a_trainer_that_cannot_be_received(trainers: Any, capfd: Any) -> None:
    with pytest.raises(
        TrainingError, match=r"die before they begin \(exit code 1; .*importable there.*__main__"
    ):
        study(trainers.Unreceivable(), max_failures=2)
    assert "this trainer cannot be unpacked" in capfd.readouterr().err


def test_evaluations_that_cannot_be_sent(trainers: Any) -> None:
    with pytest.raises(TrainingError, match=r"(?s)(Pickling|Attribute)Error.*in a worker process"):
        study(trainers.OddEvaluations(), keep_predictions=True)


def test_too_few_evaluations(trainers: Any) -> None:
    with pytest.raises(SearchError, match="the trainer evaluated 0 of 1 models"):
        study(trainers.TooFew())


UNGUARDED = """
import sys
sys.path.insert(0, sys.argv[1])
from worker_trainers import Trainer
from mixtree.partition import PARTITIONS
from mixtree.policies.commit import then_commit
from mixtree.tree_search import TreeSearch
from mixtree.engine.study import run
bisect = PARTITIONS["bisect"]
run(TreeSearch(bisect.root(3), bisect.split, budget=30, steps=3), Trainer(), workers=2)
"""


BIG = UNGUARDED.replace("Trainer()", "Big()").replace("import Trainer", "import Big")
"""A trainer that does not fit into a pipe nobody reads from."""


@pytest.mark.parametrize("source", [UNGUARDED, BIG, BIG.replace("workers=2", "workers=2, storage='s.db'")])
def test_a_script_without_a_guard_says_what_it_needs(source: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(source)
    done = subprocess.run(
        [sys.executable, str(script), str(HERE)], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1  # the workers leave without a word
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("mixtree.errors.InputError: a script that trains with several workers")
    assert last.endswith('needs its calls under: if __name__ == "__main__":')
    if (file := tmp_path / "s.db").exists():  # with the guard it can begin
        with closing(SqlStorage(file)) as storage:
            assert storage.studies() == []


def test_a_script_that_workers_cannot_read_says_what_it_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-", str(HERE)],
        input=BIG,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("mixtree.errors.TrainingError: worker processes die before they begin")


# ------------------------------------------------------------------------------------ signals and ends


SLEEPING = UNGUARDED.replace("Trainer()", "Sleeping(marker=pathlib.Path(sys.argv[2]))").replace(
    "import Trainer", "import Sleeping"
)
GUARDED = "import pathlib\nif __name__ == '__main__':\n" + "".join(
    f"    {line}\n" for line in SLEEPING.strip().splitlines()
)


def wait_for(condition: Any, what: str) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"waited in vain for {what}")


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.parametrize("how", ["SIGKILL", "SIGINT"])
def test_workers_end_with_their_study(how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(GUARDED)
    process = subprocess.Popen(
        [sys.executable, str(script), str(HERE), str(tmp_path / "marker")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},  # a killed study cannot remove its temporary models
    )
    wait_for(lambda: len(list(tmp_path.glob("pid-*"))) == 2, "two workers")
    workers = [int(file.name.removeprefix("pid-")) for file in tmp_path.glob("pid-*")]
    assert all(alive(pid) for pid in workers)
    if how == "SIGKILL":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to the workers too
    _, errors = process.communicate(timeout=60)
    wait_for(lambda: not any(alive(pid) for pid in workers), "the workers' end")
    if how == "SIGINT":
        assert process.returncode == 1
        assert "StudyInterrupted: study 'study' stopped after " in errors
        assert "a worker died" not in errors  # the round was finished
