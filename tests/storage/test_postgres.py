"""Studies in PostgreSQL, on a throwaway server."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from mixtree.errors import StorageError, StudyLocked
from mixtree.storage import schema
from mixtree.storage.base import StudyRecord
from mixtree.storage.sql import SqlStorage

DRIVER = Path(__file__).parents[1] / "kill" / "driver.py"
RECORD = StudyRecord("mine", 1, 2, 100)


@pytest.fixture
def url(new_database: Callable[[], str]) -> str:
    return new_database()


@pytest.fixture
def storage(url: str, tmp_path: Path) -> Iterator[SqlStorage]:
    with closing(SqlStorage(url, checkpoints=tmp_path)) as storage:
        storage.create(RECORD)
        yield storage


def drive(**plan: Any) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(DRIVER), json.dumps(plan)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_killed_studies_end_as_if_nothing_had_happened(url: str, tmp_path: Path) -> None:
    (tmp_path / "sqlite").mkdir()
    (tmp_path / "postgres").mkdir()
    (whole,) = drive(folder=str(tmp_path / "sqlite"))
    chance = random.Random(30)
    kills = [[chance.randint(20, 200) for _ in range(chance.choice([1, 2]))] for _ in range(9)]
    studies = drive(folder=str(tmp_path / "postgres"), url=url, kills=[*kills, [0.2, 0.3]])
    assert len(studies) == 10
    assert sum(study["killed"] for study in studies) >= 10
    for study in studies:  # the same as in SQLite, bit for bit
        for part in ("best", "rule", "spent", "tree", "model", "files"):
            assert study[part] == whole[part]


def test_a_study_is_held_until_its_process_dies(storage: SqlStorage, url: str) -> None:
    script = (
        "import sys; from mixtree.storage.sql import SqlStorage\n"
        "with SqlStorage(sys.argv[1]).lock('mine'): print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(StudyLocked, match="study 'mine' in postgresql.* is being run by another process"):
        storage.lock("mine").__enter__()
    process.kill()
    process.communicate()
    for _ in range(100):  # the server sees it in a moment
        try:
            with storage.lock("mine"):
                return
        except StudyLocked:
            pass
    raise AssertionError("a killed process still holds its study")


def test_a_newer_version_is_refused(storage: SqlStorage, url: str, tmp_path: Path) -> None:
    with storage._engine.begin() as connection:
        connection.execute(sa.text("UPDATE mixtree SET value = '99'"))
    with pytest.raises(StorageError, match="written by a newer mixtree"):
        SqlStorage(url, checkpoints=tmp_path)


def test_an_older_version_is_brought_up_or_left_alone(
    storage: SqlStorage, url: str, tmp_path: Path, monkeypatch: Any
) -> None:
    column = "ALTER TABLE studies ADD COLUMN colour VARCHAR"
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", {schema.VERSION: [column, "ALTER TABLE nothing"]})
    with pytest.raises(StorageError, match="syntax error"):
        SqlStorage(url, checkpoints=tmp_path)
    monkeypatch.setattr(schema, "MIGRATIONS", {schema.VERSION: [column]})
    with closing(SqlStorage(url, checkpoints=tmp_path)) as again:
        assert again.load("mine").budget == 100
        with again._engine.connect() as connection:
            assert connection.scalar(sa.text("SELECT COUNT(colour) FROM studies")) == 0


def test_another_programs_tables(url: str, tmp_path: Path) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE users (id integer)"))
    with closing(SqlStorage(url, checkpoints=tmp_path)) as storage:  # a database may be shared
        storage.create(RECORD)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE mixtree"))
    with pytest.raises(StorageError, match=r"holds tables of another program \(events, nodes, predictions"):
        SqlStorage(url, checkpoints=tmp_path)
    engine.dispose()


def test_a_server_that_is_gone(server: str, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r'cannot open postgresql.*: .*database "nowhere" does not exist'):
        SqlStorage(server.format("nowhere"), checkpoints=tmp_path)


def test_the_spend_of_a_study_can_be_looked_up(storage: SqlStorage) -> None:
    with storage._engine.connect() as connection:
        assert connection.execute(sa.text("SELECT * FROM spend")).all() == []
