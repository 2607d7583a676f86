"""The base install alone, in an environment of its own, fits a table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]


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
