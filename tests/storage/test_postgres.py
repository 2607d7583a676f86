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

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import CheckpointError, StorageError, StudyLocked
from mixtree.fitting.pipeline import load
from mixtree.partition import PARTITIONS
from mixtree.storage import schema
from mixtree.storage.base import StudyRecord
from mixtree.storage.sql import SqlStorage
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.tree_search import TreeSearch

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


def bisection(budget: int) -> TreeSearch:
    bisect = PARTITIONS["bisect"]
    return TreeSearch(bisect.root(2), bisect.split, budget=budget, steps=20)


def test_a_study_goes_on_from_another_folder(url: str, tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    trainer = ReferenceTrainer(synthetic(sources=2, rows=50).sources)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    first = run(bisection(100), trainer, storage=url)
    assert [each.name for each in (tmp_path / "here").iterdir()] == ["mixtree-checkpoints"]
    monkeypatch.chdir(tmp_path / "there")
    assert load(url, "study", trainer).value == first.value
    run(bisection(200), trainer, storage=url, resume=True)
    assert not caplog.messages  # that a model was missing, and computed again
    assert list((tmp_path / "there").iterdir()) == []
    (tmp_path / "here" / "mixtree-checkpoints").rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"is missing in .*here/mixtree-checkpoints; resume the study"):
        load(url, "study", trainer)
    with closing(SqlStorage(url, checkpoints=tmp_path / "moved")) as storage:
        run(bisection(200), trainer, storage=storage, resume=True)
    assert not caplog.messages
    load(url, "study", trainer)  # it is known where they are now


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The words of a fit that name its tables, which are in the current folder."""
    draw = random.Random(0)
    rows = [(draw.choice("ab"), draw.random(), draw.choice("01")) for _ in range(90)]
    (tmp_path / "val.csv").write_text("x,y\n" + "".join(f"{x},{y}\n" for _, x, y in rows[:40]))
    (tmp_path / "train.csv").write_text("from,x,y\n" + "".join(f"{s},{x},{y}\n" for s, x, y in rows[40:]))
    monkeypatch.chdir(tmp_path)
    return ("train.csv", "--source-col", "from", "--label", "y", "--val", "val.csv")


@pytest.fixture
def mixtree(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Callable[..., tuple[int, str]]:
    """A command in this process: its exit code and what it says; all of it where it was refused."""
    from mixtree import cli

    def run_it(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["mixtree", *words])
        code: Any = 0
        try:
            cli.main()
        except SystemExit as stopped:
            code = stopped.code or 0
        told = capsys.readouterr()
        return int(code), told.out if not code else told.out + told.err

    return run_it


def test_a_fit_keeps_its_models_in_its_folder(
    url: str, tmp_path: Path, data: tuple[str, ...], mixtree: Callable[..., tuple[int, str]], monkeypatch: Any
) -> None:
    def done(*words: str) -> str:
        code, told = mixtree(*words)
        assert not code, told
        return told

    (tmp_path / "there").mkdir()
    done("fit", *data, "--model", "linear", "--budget", "40", "--steps", "4", "--storage", url, "--out", "m")
    monkeypatch.chdir(tmp_path / "there")
    folder = tmp_path / "m" / "checkpoints" / "fit"
    assert json.loads(done("show", url, "--json"))["models"] == str(folder)
    assert f"models: {folder}" in done("show", url)
    assert list(folder.glob("*.safetensors"))
    done("resume", url, "--budget", "60")
    assert list((tmp_path / "there").iterdir()) == []


@pytest.mark.parametrize("spelling", ["postgres", "postgresql", "postgresql+psycopg"])
def test_a_password_is_neither_told_nor_written_down(
    url: str, spelling: str, data: tuple[str, ...], mixtree: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    base, plain = url, url.replace("postgresql+psycopg", spelling)
    url = plain.replace("//postgres@", "//postgres:hunter2@") + "&password=hunter2"
    fit = ("fit", *data, "--model", "linear", "--budget", "40", "--steps", "4", "--storage", url)
    code, told = mixtree("list", url)
    assert (code, "hunter2" in told) == (0, False)
    engine = sa.create_engine(base)
    assert sa.inspect(engine).get_table_names() == []  # looking has made none
    engine.dispose()
    for expected, words in [
        (0, (*fit, "--out", "m")),
        (2, (*fit, "--out", "m")),
        (2, (*fit, "--out", "other")),
        (0, ("list", url)),
        (0, ("show", url)),
        (2, ("show", url, "nothing")),
        (0, ("show", url, "--json")),
        (0, ("resume", url, "--budget", "60")),
    ]:
        code, told = mixtree(*words)
        assert (code, "hunter2" in told) == (expected, False), told
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert {"model.json", "MODEL_CARD.md"} <= {each.name for each in files}
    assert not [each for each in files if b"hunter2" in each.read_bytes()]
    about = json.loads((tmp_path / "m" / "model.json").read_text())
    assert about["storage"] == base
    with closing(SqlStorage(plain)) as storage:
        rows = repr([storage.studies(), storage.events("fit")])
    assert "hunter2" not in rows


def test_tables_of_the_first_version_are_brought_up(storage: SqlStorage, url: str, tmp_path: Path) -> None:
    with storage._engine.begin() as connection:
        for column in ("sizes", "notes", "models"):
            connection.execute(sa.text(f"ALTER TABLE studies DROP COLUMN {column}"))
        connection.execute(sa.text("ALTER TABLE nodes DROP COLUMN segment"))
        connection.execute(sa.text("ALTER TABLE nodes DROP COLUMN merged"))
        connection.execute(sa.text("DROP TABLE verdicts"))
        connection.execute(sa.text("UPDATE mixtree SET value = '1'"))
    with closing(SqlStorage(url, checkpoints=tmp_path)) as again:
        assert again.load("mine").models is None
        assert [each.segment for each in again.nodes("mine")] == []
        again.update("mine", sizes={"a": 3})
        assert again.load("mine").models == str(tmp_path)


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
