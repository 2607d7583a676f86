"""Commands in this process, and small tables to try them on."""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_mixtree(*args: object) -> Answer:
    from mixtree import cli

    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["mixtree", *map(str, args)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        code: Any = 0
    except SystemExit as stopped:
        code = stopped.code or 0
    finally:
        sys.argv = argv
    return Answer(int(code), out.getvalue(), err.getvalue())


@pytest.fixture
def mixtree():
    """A command in this process: exit code, stdout and stderr."""
    return run_mixtree


@pytest.fixture
def done(mixtree):
    """A command that must go well."""

    def run(*args: object) -> Answer:
        answer = mixtree(*args)
        assert answer.code == 0, answer.err
        return answer

    return run


def rows(count: int, seed: int, shift: float) -> pl.DataFrame:
    draw = random.Random(seed)
    table: list[dict[str, Any]] = []
    for number in range(count):
        x = draw.gauss(shift, 1)
        table.append(
            {
                "id": f"r{seed}-{number}",
                "x": round(x, 4),
                "colour": draw.choice(["red", "green", "blue"]),
                "day": f"2024-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
                "household": number // 4,
                "spend": round(10 + 3 * x + draw.gauss(0, 0.5), 3),
                "bought": "yes" if x + draw.gauss(0, 0.5) > 0 else "no",
            }
        )
    return pl.DataFrame(table)


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the command: train.csv of three states, one file of each, val.csv, test.csv, new.csv."""
    states = {"ct": 1.0, "fl": 0.0, "oh": -1.0}
    parts = {name: rows(80, n, shift) for n, (name, shift) in enumerate(states.items())}
    for name, part in parts.items():
        part.write_csv(tmp_path / f"{name}.csv")
    pl.concat([part.with_columns(pl.lit(name).alias("state")) for name, part in parts.items()]).write_csv(
        tmp_path / "train.csv"
    )
    rows(40, 10, 0.3).write_csv(tmp_path / "val.csv")
    rows(60, 11, 0.3).write_csv(tmp_path / "test.csv")
    rows(60, 11, 0.3).drop("bought", "spend").write_csv(tmp_path / "new.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


BASE = ["train.csv", "--source-col", "state", "--label", "bought", "--drop", "id", "--drop", "spend"]
QUICK = ["--model", "linear", "--budget", "40", "--steps", "2"]


@pytest.fixture
def base() -> list[str]:
    """Arguments of a quick fit or comparison on the tables."""
    return [*BASE, "--val", "val.csv", "--test", "test.csv", *QUICK]


@pytest.fixture
def unjudged() -> list[str]:
    """The same without validation and test rows."""
    return [*BASE, *QUICK]
