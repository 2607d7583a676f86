from __future__ import annotations

import json
import pickle
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from mixtree.errors import CheckpointError, InputError, StorageError, StudyLocked
from mixtree.storage import schema, sql
from mixtree.storage.base import StudyRecord
from mixtree.storage.checkpoints import Checkpoints
from mixtree.storage.sql import SqlStorage, open_storage
from mixtree.testing.storages import verdict
from mixtree.tree import Node, Segment, Trial, pending

RECORD = StudyRecord("mine", seed=1, init_seed=2, budget=100, config={"a": 1})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "studies.db"


@pytest.fixture
def storage(file: Path) -> Iterator[SqlStorage]:
    with closing(SqlStorage(file)) as storage:
        storage.create(RECORD)
        yield storage


def done(trial: Trial, value: float, **more: Any) -> Node:
    return replace(pending(trial, 0), value=value, standard_error=0.1, status="done", **more)


def fill(storage: SqlStorage, name: str = "mine") -> None:
    trials = [Trial((index,), np.array([0.25, 0.75]), 10, phase="search") for index in range(3)]
    storage.begin_round(name, 0, trials)
    storage.finish(name, [done(trial, 0.5) for trial in trials[:2]])


# ----------------------------------------------------------------------------- a file for any SQL tool


def test_another_process_finds_all_of_it(storage: SqlStorage, file: Path) -> None:
    fill(storage)
    with closing(open_storage(file)) as other:
        assert other.load("mine").config == {"a": 1}
        assert [each.path for each in other.nodes("mine")] == [(0,), (1,), (2,)]


def test_the_tables_are_readable(storage: SqlStorage, file: Path) -> None:
    fill(storage)
    with closing(sqlite3.connect(file)) as plain:
        assert plain.execute("SELECT study, phase, nodes, steps FROM spend").fetchall() == [
            ("mine", "search", 2, 20)
        ]
        rows = plain.execute("SELECT path, height, mixture, status, value FROM nodes ORDER BY id").fetchall()
        assert rows == [
            ("0", 1, "[0.25, 0.75]", "done", 0.5),
            ("1", 1, "[0.25, 0.75]", "done", 0.5),
            ("2", 1, "[0.25, 0.75]", "pending", None),
        ]
        assert plain.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert plain.execute("SELECT value FROM mixtree WHERE key = 'version'").fetchone() == (
            str(schema.VERSION),
        )


def test_a_closed_file_is_whole_by_itself(file: Path) -> None:
    storage = SqlStorage(file)
    storage.create(RECORD)
    fill(storage)
    storage.close()
    assert [each.name for each in file.parent.iterdir()] == ["studies.db"]  # no journal beside it
    moved = file.rename(file.parent / "moved.db")
    with closing(SqlStorage(moved)) as again:
        assert len(again.nodes("mine")) == 3


def test_a_round_is_written_whole_or_not_at_all(storage: SqlStorage) -> None:
    fill(storage)
    trials = [Trial((5,), np.array([1.0]), 1), Trial((0,), np.array([1.0]), 1)]  # (0,) is there and done
    with pytest.raises(StorageError, match="cannot write to .*studies.db"):
        storage.begin_round("mine", 1, trials)
    assert [each.path for each in storage.nodes("mine")] == [(0,), (1,), (2,)]


def test_outcomes_are_written_whole_or_not_at_all(storage: SqlStorage, monkeypatch: Any) -> None:
    fill(storage)
    before = storage.nodes("mine")

    def fail(*_: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(SqlStorage, "_store_predictions", fail)
    with pytest.raises(RuntimeError):
        storage.finish("mine", [done(storage.nodes("mine")[2].trial, 0.1)])
    assert storage.nodes("mine")[2].status == "pending"
    assert len(before) == 3


def test_many_predictions_at_once(storage: SqlStorage) -> None:
    trials = [Trial((index,), np.array([1.0]), 1) for index in range(1500)]
    storage.begin_round("mine", 0, trials)
    storage.finish("mine", [done(each, 0.0, predictions=np.array([each.path[0]])) for each in trials])
    storage.copy("mine", "copy")
    for name in ("mine", "copy"):
        for record in storage.nodes(name):
            assert record.predictions is not None and record.predictions.tolist() == [record.path[0]]


def test_a_study_deleted_by_another_process_is_gone_here_too(storage: SqlStorage, file: Path) -> None:
    fill(storage)
    with closing(SqlStorage(file)) as other:
        other.delete("mine")
        other.create(replace(RECORD, name="another"))
        fill(other, "another")
    with pytest.raises(StorageError, match="there is no study 'mine' in .*; its studies: 'another'"):
        storage.load("mine")
    storage.create(RECORD)
    assert storage.load("mine").budget == 100
    assert storage.nodes("mine") == []


def test_deleting_leaves_nothing_behind(storage: SqlStorage, file: Path) -> None:
    fill(storage)
    models = storage.checkpoints("mine")
    assert models is not None
    models.write((), {"w": np.ones(2)})
    with storage.lock("mine"):
        pass
    storage.delete("mine")
    assert not list(file.parent.glob("*.lock"))
    assert not list(file.parent.glob("*.checkpoints/*"))


def test_a_storage_travels_to_other_processes(storage: SqlStorage) -> None:
    with closing(pickle.loads(pickle.dumps(storage))) as other:
        assert other.load("mine").seed == 1
        assert other.checkpoints("mine").url == storage.checkpoints("mine").url  # type: ignore[union-attr]


# ------------------------------------------------------------------------- versions and other programs


def version(file: Path, value: str) -> None:
    with closing(sqlite3.connect(file)) as plain:
        plain.execute("UPDATE mixtree SET value = ?", (value,))
        plain.commit()


def test_a_newer_version_is_refused(storage: SqlStorage, file: Path) -> None:
    storage.close()
    version(file, str(schema.VERSION + 1))
    before = file.read_bytes()
    with pytest.raises(
        StorageError, match=r"studies.db was written by a newer mixtree \(schema \d+.*: upgrade"
    ):
        SqlStorage(file)
    assert file.read_bytes() == before


def test_a_version_that_is_no_number(storage: SqlStorage, file: Path) -> None:
    storage.close()
    version(file, "x")
    with pytest.raises(StorageError, match="does not say which version"):
        SqlStorage(file)


NEXT = [
    "ALTER TABLE studies ADD COLUMN colour VARCHAR",
    "UPDATE studies SET colour = 'green'",
    "CREATE TABLE extra (id INTEGER)",
]


def test_an_older_version_is_brought_up(storage: SqlStorage, file: Path, monkeypatch: Any) -> None:
    fill(storage)
    storage.close()
    monkeypatch.setattr(schema, "MIGRATIONS", {schema.VERSION + 1: NEXT[:1], schema.VERSION + 2: NEXT[1:]})
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 2)
    for _ in range(2):  # the second time there is nothing to do
        with closing(SqlStorage(file)) as again:
            assert len(again.nodes("mine")) == 3
    with closing(sqlite3.connect(file)) as plain:
        assert plain.execute("SELECT colour FROM studies").fetchall() == [("green",)]
        assert plain.execute("SELECT value FROM mixtree").fetchone() == (str(schema.VERSION),)


def test_a_migration_that_fails_changes_nothing(storage: SqlStorage, file: Path, monkeypatch: Any) -> None:
    storage.close()
    monkeypatch.setattr(schema, "MIGRATIONS", {schema.VERSION + 1: [*NEXT, "ALTER TABLE nothing"]})
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    with pytest.raises(StorageError, match=r"cannot open .*studies.db: .*syntax error"):
        SqlStorage(file)
    monkeypatch.undo()
    with closing(sqlite3.connect(file)) as plain:
        tables = {name for (name,) in plain.execute("SELECT name FROM sqlite_master")}
        assert "extra" not in tables
        assert "colour" not in [row[1] for row in plain.execute("PRAGMA table_info(studies)")]
    with closing(SqlStorage(file)) as again:
        assert again.load("mine").budget == 100


def test_tables_half_made_are_not_left_behind(file: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(schema, "_SPEND_VIEW", "CREATE VIEW spend AS nonsense")
    with pytest.raises(StorageError, match="syntax error"):
        SqlStorage(file).create(RECORD)
    monkeypatch.undo()
    with closing(SqlStorage(file)) as storage:
        storage.create(RECORD)


def first_version(file: Path) -> None:
    """The file as version 1 wrote it."""
    with closing(sqlite3.connect(file)) as plain:
        for column in ("sizes", "notes", "models"):
            plain.execute(f"ALTER TABLE studies DROP COLUMN {column}")
        plain.execute("ALTER TABLE nodes DROP COLUMN segment")
        plain.execute("ALTER TABLE nodes DROP COLUMN merged")
        plain.execute("DROP TABLE verdicts")
        told = "INSERT INTO events (study_id, at, kind, message) SELECT id, '', 'verdict', ? FROM studies"
        for value in (1.0, 2.0):
            plain.execute(told, (json.dumps(verdict(value)),))
        plain.commit()
    version(file, "1")


def test_a_file_of_the_first_version_is_brought_up(storage: SqlStorage, file: Path) -> None:
    fill(storage)
    before = storage.load("mine")
    storage.close()
    first_version(file)
    with closing(SqlStorage(file)) as again:
        found = again.load("mine")
        assert (found.sizes, found.notes, found.models) == ({}, (), None)
        assert again.verdict("mine") == verdict(2.0)
        assert not [each for each in again.events("mine") if each.kind == "verdict"]
        assert (found.config, found.budget, found.created) == (before.config, before.budget, before.created)
        assert [each.segment for each in again.nodes("mine")] == [None] * 3
        segment = Segment((0, 2), 50, 150)
        trial = Trial((0, 2, 0), np.array([1.0, 0.0]), 50, phase="commit", segment=segment)
        again.begin_round("mine", 1, [trial])
        found = again.nodes("mine")[-1].segment
        assert found is not None and (found.stream, found.before, found.total) == ((0, 2), 50, 150)
        again.update("mine", sizes={"a": 3}, notes=("n",))
        assert (again.load("mine").sizes, again.load("mine").notes) == ({"a": 3}, ("n",))


def test_an_older_file_that_may_only_be_read_is_told(
    storage: SqlStorage, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.close()
    first_version(file)
    before = file.read_bytes()
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(
        StorageError, match=r"studies.db was written by an older mixtree and may only be read"
    ):
        SqlStorage(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("table", ["studies", "users", "spend"])
def test_another_programs_file_is_left_alone(file: Path, table: str) -> None:
    with closing(sqlite3.connect(file)) as plain:
        plain.execute(f"CREATE TABLE {table} (id INTEGER)")
        plain.commit()
    with pytest.raises(
        StorageError, match=rf"studies.db holds tables of another program \({table}\): choose"
    ):
        SqlStorage(file)
    with closing(sqlite3.connect(file)) as plain:
        assert [name for (name,) in plain.execute("SELECT name FROM sqlite_master")] == [table]


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("empty", [False, True])
def test_another_programs_file_keeps_its_bytes_and_its_journal(
    tmp_path: Path, file: Path, journal: str, empty: bool
) -> None:
    with closing(sqlite3.connect(file)) as plain:
        plain.execute(f"PRAGMA journal_mode={journal}")
        if not empty:
            plain.execute("CREATE TABLE users (id INTEGER)")
        plain.commit()
    before = file.read_bytes()
    if empty:
        with closing(SqlStorage(file)) as storage:
            assert storage.studies() == []
            with pytest.raises(StorageError, match="there is no study 'mine' in .*; its studies: none"):
                storage.load("mine")
    else:
        with pytest.raises(StorageError, match="holds tables of another program"):
            SqlStorage(file)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {file.name: before}


def test_another_programs_open_file_is_left_alone(tmp_path: Path, file: Path) -> None:
    with closing(sqlite3.connect(file)) as plain:
        plain.execute("PRAGMA journal_mode=wal")
        plain.execute("CREATE TABLE users (id INTEGER)")
        plain.commit()
        before = {each.name: each.read_bytes() for each in tmp_path.iterdir() if not each.match("*-shm")}
        with pytest.raises(StorageError, match="holds tables of another program"):
            SqlStorage(file)  # the table is in the journal only
        after = {each.name: each.read_bytes() for each in tmp_path.iterdir() if not each.match("*-shm")}
        assert after == before


def test_looking_makes_no_file(file: Path, tmp_path: Path) -> None:
    with closing(SqlStorage(file)) as storage:
        assert storage.studies() == []
        for name in ("", "x" * 101, "a\0b", "a\udcff"):
            with pytest.raises(InputError, match="a study's name"):
                storage.create(replace(RECORD, name=name))
        assert list(tmp_path.iterdir()) == []
        storage.create(RECORD)
        with pytest.raises(InputError, match="a study's name is a text of 1 to 100 characters"):
            storage.copy("mine", "x" * 101)
        assert [each.name for each in storage.studies()] == ["mine"]


@pytest.mark.parametrize("part", [0.03, 0.0001, 0.5])
def test_a_file_that_was_cut_is_noticed_and_stays(
    storage: SqlStorage, file: Path, tmp_path: Path, part: float
) -> None:
    for number in range(50):
        storage.add_event("mine", "note", f"{number}" * 500)
    storage.close()
    content = file.read_bytes()[: -int(part * file.stat().st_size)]
    file.write_bytes(content)
    with pytest.raises(StorageError, match=r"db is damaged, cut short or altered \(.*\): take it from"):
        SqlStorage(file)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {file.name: content}


def test_a_killed_writers_journal_is_read(storage: SqlStorage, file: Path, tmp_path: Path) -> None:
    fill(storage)
    copy = tmp_path / "killed"
    copy.mkdir()
    for each in (file, file.with_name("studies.db-wal")):  # as on the disk of one that was killed now
        (copy / each.name).write_bytes(each.read_bytes())
    with closing(SqlStorage(copy / file.name)) as again:
        assert len(again.nodes("mine")) == 3


def test_a_large_study_is_opened_quickly(storage: SqlStorage, file: Path) -> None:
    storage.begin_round("mine", 0, [Trial((number,), np.array([0.5, 0.5]), 1) for number in range(10_000)])
    storage.close()
    started = time.perf_counter()
    SqlStorage(file).close()
    assert time.perf_counter() - started < 1  # some 5 ms; all of it is checked


def test_a_file_that_is_no_database(file: Path) -> None:
    file.write_bytes(b"a letter to a friend, long enough for a header " * 100)
    with pytest.raises(StorageError, match=r"cannot open .*studies.db: file is not a database"):
        SqlStorage(file)
    assert file.read_bytes().startswith(b"a letter")


def test_a_damaged_database_is_told(storage: SqlStorage, file: Path) -> None:
    fill(storage)
    storage.close()
    with file.open("r+b") as raw:
        raw.seek(4096)
        raw.write(b"\xff" * (file.stat().st_size - 4096))
    with pytest.raises(StorageError, match=r"is damaged, cut short or altered \(.*\): take it from"):
        SqlStorage(file)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot put a database at .*x.db: there is no folder .*no"):
        SqlStorage(tmp_path / "no" / "x.db")


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=rf"cannot open {tmp_path}: it is a folder"):
        SqlStorage(tmp_path)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nonsense://x/y", "no database URL"),
        ("://", "no database URL"),
        ("mysql+nodriver://x/y", "no database URL"),
    ],
)
def test_an_url_that_is_none(url: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        SqlStorage(url)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:hunter2@h/base",
        "u:hunter2@h/base",
        "u:hunter2@h",
        "postgres://u:hunter2",
        "postgres://u:hun/hunter2",
        "postgres://u:p@hunter2@h/base",
        "postgres://u:hunter2@h:port/base",
        "nonsense://h/base?password=hunter2",
        "postgres://u:hunter2@127.0.0.1:1/base?password=hunter2",
        "postgresql+psycopg2://u:hunter2@h/base",
        "postgres://u:hunter2\udcff@h/base",
    ],
)
def test_no_error_tells_a_password(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises((InputError, StorageError)) as caught:
        SqlStorage(url)
    assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_s_name_may_look_like_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(SqlStorage("./a:b@c.db")) as storage:
        storage.create(RECORD)
    with closing(SqlStorage("a:b@c.db")) as storage:  # it is there
        assert storage.load("mine").budget == 100


def test_a_driver_that_is_missing(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "psycopg2", None)
    with pytest.raises(StorageError, match="needs the driver 'psycopg2': pip install it"):
        SqlStorage("postgresql+psycopg2://x/y")


def test_a_password_is_not_told(monkeypatch: Any) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StorageError) as caught:
        SqlStorage("postgresql+psycopg://me:secret@127.0.0.1:1/base")
    assert "cannot open postgresql+psycopg://me@127.0.0.1:1/base" in str(caught.value)
    assert "secret" not in str(caught.value)


# ------------------------------------------------------------------------------------- other processes


HOLD = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(file: Path) -> Iterator[Any]:
    processes = []

    def hold(statement: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(file), statement],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        return process

    yield hold
    for process in processes:
        process.communicate("")


def test_a_database_locked_by_another_process(
    storage: SqlStorage, file: Path, holder: Any, monkeypatch: Any
) -> None:
    storage.close()
    monkeypatch.setattr(sql, "_BUSY_SECONDS", 0.2)
    with closing(SqlStorage(file)) as mine:
        held = holder("BEGIN IMMEDIATE")
        assert mine.load("mine").budget == 100  # readers do not wait
        with closing(SqlStorage(file)) as other:
            assert other.nodes("mine") == []
        started = time.monotonic()
        for write in (
            lambda: mine.add_event("mine", "x", "y"),
            lambda: fill(mine),
            lambda: mine.update("mine", status="finished"),
        ):
            with pytest.raises(
                StorageError,
                match=r"cannot write to .*studies.db: another process has held it locked for 0.2 s",
            ):
                write()
        assert time.monotonic() - started >= 0.6  # it did wait
        held.communicate("")
        mine.add_event("mine", "x", "y")


def test_a_new_file_locked_by_another_process(file: Path, holder: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sql, "_BUSY_SECONDS", 0.2)
    holder("BEGIN EXCLUSIVE")
    with pytest.raises(StorageError, match=r"cannot open .*studies.db: another process has held it locked"):
        SqlStorage(file).create(RECORD)


LOCK = """
import sys
from mixtree.storage.sql import SqlStorage
with SqlStorage(sys.argv[1]).lock("mine"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_study_held_by_another_process_until_it_dies(storage: SqlStorage, file: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOCK, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(
        StudyLocked,
        match=r"study 'mine' in .*studies.db is being run by another process: wait for it or stop it",
    ):
        storage.lock("mine").__enter__()
    with pytest.raises(StudyLocked):
        storage.delete("mine")
    process.kill()
    process.communicate()
    with storage.lock("mine"):
        pass


def test_a_lock_that_cannot_be_made(storage: SqlStorage, file: Path) -> None:
    (file.parent / "studies.db.1.lock").mkdir()
    with pytest.raises(StorageError, match=r"cannot lock study 'mine': .*studies.db.1.lock: unable to open"):
        storage.lock("mine").__enter__()


def test_a_refused_second_holder_does_not_end_the_first_one_s_lock(storage: SqlStorage, file: Path) -> None:
    with storage.lock("mine"):
        with pytest.raises(StudyLocked):
            storage.lock("mine").__enter__()
        other = subprocess.run(
            [sys.executable, "-c", LOCK, str(file)], input="", capture_output=True, text=True
        )
        assert "StudyLocked" in other.stderr


MAKE = """
import sys
from mixtree.storage.base import StudyRecord
from mixtree.storage.sql import SqlStorage
print("ready", flush=True)
sys.stdin.readline()
storage = SqlStorage(sys.argv[1])
storage.create(StudyRecord(sys.argv[2], 0, 0, 1))
"""


def test_processes_that_make_a_file_at_the_same_time(file: Path) -> None:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen([sys.executable, "-c", MAKE, str(file), str(number)], **pipes) for number in range(6)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 6
    with closing(SqlStorage(file)) as storage:
        assert sorted(each.name for each in storage.studies()) == list("012345")


# ------------------------------------------------------------------------------------ where models are


def checkpoints(storage: SqlStorage, name: str = "mine") -> Checkpoints:
    found = storage.checkpoints(name)
    assert found is not None
    return found


def place(storage: SqlStorage, name: str = "mine") -> str | None:
    return storage.models(storage.load(name))


def test_models_elsewhere_are_found_from_any_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with closing(SqlStorage(file, checkpoints="models")) as storage:
        storage.create(RECORD)
        checkpoints(storage).write((0,), {"w": np.ones(3)})
    monkeypatch.chdir(tmp_path)
    with closing(SqlStorage(file)) as again:
        assert place(again) == str(tmp_path / "here" / "models" / "mine")
        assert checkpoints(again).exists((0,))
        again.copy("mine", "copy")
        assert place(again, "copy") == str(tmp_path / "here" / "models" / "copy")
        assert checkpoints(again, "copy").exists((0,))


def test_a_study_that_goes_on_elsewhere_is_found_there(file: Path, tmp_path: Path) -> None:
    with closing(SqlStorage(file, checkpoints=tmp_path / "old")) as storage:
        storage.create(RECORD)
    with closing(SqlStorage(file, checkpoints=tmp_path / "new")) as storage:
        assert place(storage) == str(tmp_path / "new" / "mine")
        assert storage.load("mine").models == str(tmp_path / "old")  # looking changes nothing
        storage.update("mine", status="running")
    with closing(SqlStorage(file)) as storage:
        assert place(storage) == str(tmp_path / "new" / "mine")


def test_models_beside_a_file_move_with_it(storage: SqlStorage, file: Path, tmp_path: Path) -> None:
    checkpoints(storage).write((0,), {"w": np.ones(3)})
    storage.update("mine", status="stopped")
    storage.close()
    (tmp_path / "there").mkdir()
    (tmp_path / "studies.db.checkpoints").rename(tmp_path / "there" / "studies.db.checkpoints")
    with closing(SqlStorage(file.rename(tmp_path / "there" / "studies.db"))) as moved:
        assert checkpoints(moved).exists((0,))


def test_a_password_is_not_written_down(file: Path) -> None:
    with closing(SqlStorage(file, checkpoints="memory://me:secret@host/models")) as storage:
        storage.create(RECORD)
        assert storage.load("mine").models == "memory://me@host/models"
        assert place(storage) == "memory://me@host/models/mine"
        models = checkpoints(storage)
        assert models.url == "memory://me:secret@host/models"
        with pytest.raises(CheckpointError) as caught:
            models.read((0,))
        assert "is missing in memory://me@host/models" in str(caught.value)


def test_where_models_are_is_known_without_going_there(file: Path) -> None:
    with closing(SqlStorage(file, checkpoints="nowhere://models")) as storage:
        storage.create(RECORD)
        with pytest.raises(StorageError, match="cannot use 'nowhere://models' for checkpoints"):
            storage.checkpoints("mine")
        assert place(storage) == "nowhere://models/mine"


# ---------------------------------------------------------------------------------- full and read-only


def test_a_full_disk_is_told(storage: SqlStorage) -> None:
    with storage._engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageError, match=r"cannot write to .*studies.db: database or disk is full"):  # noqa: PT012
        for number in range(100):
            storage.add_event("mine", "x", "y" * 1000 * number)
    assert storage.load("mine").budget == 100


def test_a_read_only_file_is_told(storage: SqlStorage) -> None:
    @sa.event.listens_for(storage._engine, "checkout")
    def only_read(connection: Any, *_: Any) -> None:  # root may write anywhere: refuse it in SQLite itself
        connection.execute("PRAGMA query_only = ON")

    with pytest.raises(
        StorageError, match=r"cannot write to .*studies.db: attempt to write a readonly database"
    ):
        storage.add_event("mine", "x", "y")
    assert storage.load("mine").budget == 100


@pytest.mark.parametrize(
    "name", ["what?.db", "50%20 off.db", "a#b.db", "ünï çödé.db", "a&b=c?mode=ro.db", "\udcff.db"]
)
def test_a_file_s_name_is_taken_as_it_is(tmp_path: Path, name: str) -> None:
    with closing(SqlStorage(tmp_path / name)) as storage:
        storage.create(RECORD)
        again = pickle.loads(pickle.dumps(storage))
        assert [each.name for each in again.studies()] == ["mine"]
        again.close()
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == [name]


def test_a_study_that_may_only_be_read_can_be_read(
    file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with closing(SqlStorage(file)) as storage:
        storage.create(RECORD)
        fill(storage)
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as on a read-only disk, or for another user
    with closing(SqlStorage(file)) as storage:
        assert storage.load("mine").config == {"a": 1}
        assert len(storage.nodes("mine")) == 3
        with pytest.raises(StorageError, match="cannot write to .*readonly database"):
            storage.add_event("mine", "note", "text")
    assert {each.name for each in tmp_path.iterdir()} == {file.name}


def test_a_file_of_which_sqlite_cannot_say_what_is_wrong_is_damaged(file: Path) -> None:
    with closing(SqlStorage(file)) as storage:
        storage.create(RECORD)
    with closing(sqlite3.connect(file)) as base:
        # SQLite names the table in its error, whose bytes Python cannot read.
        base.execute("PRAGMA writable_schema=ON")
        base.execute("UPDATE sqlite_master SET name = CAST(x'41ff' AS TEXT), sql = 'x' WHERE name = 'events'")
        base.commit()
    with pytest.raises(StorageError, match="is damaged or altered: it holds text that is not UTF-8"):
        SqlStorage(file)
