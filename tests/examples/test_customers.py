"""The CSV example runs as its page says."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from mixtree.cli import app

EXAMPLE = Path(__file__).parents[2] / "examples" / "customers"


@pytest.mark.slow
def test_the_commands_of_the_page_work(tmp_path):
    for name in ("make_tables.py", "fit.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    commands = "\n".join(re.findall(r"```console\n(.*?)```", page, re.S)).strip().splitlines()
    commands = [shlex.split(line) for line in commands if line]
    assert [words[1] for words in commands] == ["make_tables.py", "fit", "show", "predict", "compare"]
    for words in commands:
        start = [sys.executable] if words[0] == "python" else [sys.executable, "-m", "mixtree"]
        quick = ["--budget", "90", "--model", "linear"] if words[1] in ("fit", "compare") else []
        quick += ["--repeats", "1", "--json"] if words[1] == "compare" else []
        done = subprocess.run(
            [*start, *words[1:], *quick], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["runs"]) > 5
    new, predictions = (pl.read_csv(tmp_path / name) for name in ("new.csv", "predictions.csv"))
    assert len(predictions) == len(new) == 200
    about = json.loads((tmp_path / "model" / "model.json").read_text(encoding="utf-8"))
    assert about["test_score"] > 0.55


def test_the_page_s_fit_finds_the_market_and_is_surely_better_than_uniform(tmp_path, monkeypatch):
    for name in ("make_tables.py", "fit.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("make_tables", "make_tables.py")
    make_tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_tables)
    make_tables.main(tmp_path)
    done = CliRunner().invoke(app, ["fit", "fit.toml"], catch_exceptions=False)
    assert done.exit_code == 0
    about = json.loads((tmp_path / "model-2" / "model.json").read_text(encoding="utf-8"))
    truth = {"fl": 0.75, "ct": 0.25, "oh": 0.0}
    assert sum(abs(about["mixture"][state] - weight) for state, weight in truth.items()) < 0.3
    (uniform,) = about["verdict"]["against"]
    assert uniform["low"] > 0.1
    value, gain, low, high = (
        f"{each:.2f}".removeprefix("0")
        for each in (about["test_score"], *(uniform[name] for name in ("difference", "low", "high")))
    )
    page = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert f"(AUROC {value}, better by {gain}; 95 % interval {low} … {high} on 600 test rows)" in page
