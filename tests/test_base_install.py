"""The base install: few dependencies, plain words where an extra is missing, and it fits a table."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mixtree.data import frames
from mixtree.data.files import blank_figure
from mixtree.errors import MissingExtraError
from mixtree.experiments.output import write_comparison
from mixtree.storage.checkpoints import Checkpoints

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_base_install_has_at_most_ten_direct_dependencies():
    assert len(PROJECT["dependencies"]) <= 10


def test_every_extra_that_a_message_names_exists():
    sources = "".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"mixtree\[(\w+)\]", sources))
    named |= set(re.findall(r"MissingExtraError\(.*, \"(\w+)\"\)", sources))
    assert {"plot", "pandas", "remote", "demo"} <= named <= set(PROJECT["optional-dependencies"])


def test_a_figure_needs_the_extra_plot(monkeypatch, tmp_path, caplog):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"^a figure needs .*'mixtree\[plot\]'$"):
        blank_figure()
    files = write_comparison(tmp_path, [], [], metric="AUROC", title="nothing")
    assert [file.name for file in files] == ["summary.csv", "runs.csv", "results.json"]
    assert "scores.png is left out: a figure needs" in caplog.text


def test_a_checkpoint_url_needs_the_extra_remote(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"^a checkpoint URL needs .*'mixtree\[remote\]'$"):
        Checkpoints("memory://models", "study")


def test_pandas_columns_that_are_no_arrays_need_the_extra_pandas(monkeypatch):
    monkeypatch.setattr(frames, "find_spec", lambda name: None)
    plain = pd.DataFrame({"x": [1.5, 2.0], "seen": [True, False], "name": np.array(["a", "b"], dtype=object)})
    assert frames.as_frame(plain.astype({"name": object})).shape == (2, 3)
    with pytest.raises(
        MissingExtraError, match=r"^column 'kind' of .*category, needs .*'mixtree\[pandas\]'$"
    ):
        frames.as_frame(pd.DataFrame({"kind": pd.Categorical(["a", "b"])}))


@pytest.mark.extras
def test_the_base_install_fits_a_table(tmp_path):
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    programs = home / ("Scripts" if sys.platform == "win32" else "bin")
    pip = [programs / "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, ROOT], check=True)
    rng = np.random.default_rng(0)
    for name, rows in [("customers", 200), ("market", 40)]:
        x = rng.normal(size=rows)
        y = (x + rng.normal(size=rows) > 0).astype(int)
        lines = [f"{'ab'[i % 2]},{x[i]:.4f},{y[i]}" for i in range(rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["state,x,bought", *lines]), encoding="utf-8")
    columns = ["--source-col", "state", "--label", "bought", "--val", "market.csv"]
    fit = [programs / "mixtree", "fit", "customers.csv", *columns, "--budget", "200", "--out", "model"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(fit, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model").is_dir()
    demo = subprocess.run(
        [programs / "mixtree", "demo"], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert demo.returncode != 0
    assert "pip install 'mixtree[demo]'" in " ".join(demo.stderr.split())
    assert "Traceback" not in demo.stderr
