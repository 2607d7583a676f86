from __future__ import annotations

import csv
import doctest
import json
import random
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from mixtree.cli import plan
from mixtree.errors import InputError

app = typer.Typer()
plan.add_to(app)


@app.callback()
def _group() -> None:
    """So that plan is a command of its own name, as in mixtree."""


def call(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["plan", *map(str, arguments)], catch_exceptions=False)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def tables(tmp_path):
    draw = random.Random(0)

    def write(name, sources):
        with (tmp_path / name).open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["state", "age", "income", "bought"])
            for source in sources:
                for number in range(25):
                    bought = number % 2
                    rows.writerow([source, draw.gauss(bought, 1), draw.gauss(0, 1), "yn"[bought]])
        return tmp_path / name

    train, val = write("train.csv", ["fl", "ct", "oh"]), write("val.csv", ["xx"])
    return [train, "--source-col", "state", "--label", "bought", "--val", val, "--model", "linear"]


def test_numbers_only():
    found = json.loads(call("--sources", 4, "--budget", 3000, "--steps", 50, "--json"))
    assert (found["sources"], found["budget"], found["pace"]) == (4, 3000, None)
    (row,) = [each for each in found["purchases"] if (each["partition"], each["steps"]) == ("bisect", 50)]
    assert (row["nodes"], row["depth"], row["seconds"]) == (29, [4, 14], None)
    text = call("--sources", 4, "--budget", 3000, "--steps", 50)
    assert "recommended: bisect, λ = 115" in text
    assert "infeasible" in text
    assert "memory" not in text


def test_samples_become_steps():
    one = call("--sources", 3, "--budget", 3000, "--json")
    assert call("--sources", 3, "--budget", 30_000, "--unit", "samples", "--batch-size", 10, "--json") == one


def test_tables_are_timed(tables):
    found = json.loads(call(*tables, "--budget", 400, "--json"))
    assert found["pace"]["step_seconds"] > 0
    assert all(row["seconds"] > 0 and row["disk"] > 0 for row in found["purchases"])
    assert found["theory"]["feasible"] is False and "κ" in found["theory"]["sentence"]
    assert found["recommendation"]["policy"] == "mixmatch-bisect+commit"


def test_a_time_becomes_a_budget(tables):
    found = json.loads(call(*tables, "--time", "1m", "--steps", 500, "--max", "fl=0.6", "--json"))
    assert {row["partition"] for row in found["purchases"]} == {"halve"}
    (row,) = [row for row in found["purchases"] if row["steps"] == 500]
    assert 30 < row["seconds"] <= 60
    assert found["budget"] > 1000


def test_people_get_a_table(tables):
    text = call(*tables, "--steps", 20)
    assert text.startswith("600 steps on 3 sources, commit share 0.5\ntimed:")
    assert "memory" in text and "disk" in text
    assert "--policy mixmatch-bisect+commit --budget 600 --steps 23" in text


def test_a_file_of_options_for_fit_will_do(tables, tmp_path):
    config = tmp_path / "fit.toml"
    config.write_text(
        f'tables = "{tables[0]}"\nsource_col = "state"\nlabel = "bought"\nval = "{tables[6]}"\n'
        'model = "linear"\nbudget = 300\nout = "model"\nmetric = "accuracy"\n'
    )
    assert json.loads(call(config, "--json"))["budget"] == 300


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "plan needs tables"),
        (["--sources", 3], "--budget STEPS"),
        (["--sources", 0, "--budget", 9], "number of sources"),
        (["--sources", 3, "--budget", 0], "budget"),
        (["--sources", 3, "--budget", 10, "--steps", 11], "smaller than one node"),
        (["--sources", 3, "--budget", 10, "--time", "1m"], "not both"),
        (["--sources", 3, "--time", "1m"], "needs tables"),
        (["--sources", 3, "--budget", 10, "--commit", 1], "commit share"),
        (["--sources", 3, "--budget", 10, "--unit", "samples"], "--batch-size"),
        (["--sources", 3, "--budget", 10, "--unit", "rows"], "unit is one of"),
        (["--sources", 3, "--budget", 10, "--min", "a=0.1"], "need tables"),
        (["nowhere.csv", "--sources", 3], "not both"),
        (["nowhere.csv", "--label", "y", "--source-col", "s", "--val", "v.csv"], "nowhere.csv"),
    ],
)
def test_nonsense_is_refused(arguments, words):
    with pytest.raises(InputError, match=words):
        call(*arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--time", "soon"], "duration"),
        (["--time", "0.000001s"], "too short"),
        (["--budget", 10, "--steps", 20], "smaller than one node"),
        (["--commit", 2], "commit share"),
        (["--max", "nobody=0.5"], "unknown source"),
    ],
)
def test_nonsense_with_tables_is_refused(tables, arguments, words):
    with pytest.raises(InputError, match=words):
        call(*tables, *arguments)


def test_the_page_shows_what_the_command_prints_and_its_example_runs():
    page = Path(__file__).parents[2] / "docs" / "planning.md"
    shown = [line[4:].rstrip() for line in page.read_text(encoding="utf-8").splitlines()]
    printed = [line.rstrip() for line in call("--sources", 4, "--budget", 3000, "--steps", 50).splitlines()]
    at = shown.index(printed[0])
    assert shown[at : at + len(printed)] == printed
    assert doctest.testfile(str(page), module_relative=False, encoding="utf-8").failed == 0


def test_a_width_for_so_many_workers():
    numbers = ("--sources", 4, "--budget", 100000, "--steps", 50)
    assert "width for 4 workers: --width 2 keeps 100% of them busy" in call(*numbers, "--workers", 4)
