"""Writes of models, predictions and exports that are stopped: old or new, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.data.tables import TableSpec, load_tables
from mixtree.engine.study import run
from mixtree.fitting.model_folder import write_model
from mixtree.partition import PARTITIONS
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.trainers.registry import ModelOptions, make_trainer
from mixtree.tree_search import TreeSearch

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the driver forks")

DRIVER = Path(__file__).with_name("writes.py")
PREDICT = ["predict", "out", "rows.csv", "-o", "rows-predicted.csv"]


def rows(shift: float) -> pl.DataFrame:
    x = np.random.default_rng(0).normal(size=40)
    return pl.DataFrame({"x": x + shift, "colour": ["r", "g"] * 20, "y": np.where(x > 0, "yes", "no")})


def model(folder: Path, shift: float, seed: int, verdict: dict[str, Any] | None) -> None:
    frame = rows(shift)
    data = load_tables(TableSpec(tables={"a": frame, "b": frame}, label="y", val=frame[:10]), seed=0)
    trainer = make_trainer("linear", data.problem_sources, ModelOptions())
    about = {
        "study": "fit", "policy": "uniform", "label": "y", "sources": ["a", "b"],
        "classes": list(data.classes),
        "model": {"name": "linear", "features": data.problem_sources.features, "lr": None, "batch_size": 50},
        "mixture": {"a": 0.5, "b": 0.5}, "metric": "auroc", "val_score": 0.75, "test_score": 0.5,
        "budget": 10, "spent": {"root": 10},
        "rows": {"sources": {"a": 40, "b": 40}, "validation": 10, "test": 4},
        "seed": seed, "data": "abc", "verdict": verdict,
    }  # fmt: skip
    arrays = trainer.save(trainer.init(seed))
    write_model(folder, arrays=arrays, preprocessor=data.preprocessor, about=about)


def make_base(folder: Path) -> Path:
    """A folder with an old model in out, a new one, and rows to predict."""
    verdict = {"sentence": "An answer.", "against": [], "notes": [], "reference_spent": {}, "warnings": []}
    model(folder / "out", 0.0, 1, verdict)
    (folder / "out" / "preprocessing" / "mine.txt").write_text("of the user")
    bisect = PARTITIONS["bisect"]
    search = TreeSearch(bisect.root(2), bisect.split, budget=4, steps=2, seed=0)
    (folder / "study").mkdir()
    run(
        search, ReferenceTrainer(synthetic(sources=2, rows=20).sources), storage=folder / "study" / "study.db"
    )
    model(folder / "new", 5.0, 2, None)
    rows(1.0).write_csv(folder / "rows.csv")
    for write in FILES.values():
        (folder / write[-1]).write_text("an older one")
    return folder


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest() if file.is_file() else "folder"
        for file in folder.rglob("*")
    }


EXPORT = ["export", "study", "-o", "mixture.json"]
PARQUET = ["predict", "out", "rows.csv", "-o", "rows-predicted.parquet"]
FILES = {"predictions": PREDICT, "predictions as Parquet": PARQUET, "export": EXPORT}
KINDS = [(how, name) for name in ("model", *FILES) for how in ("kill", "full")]


def stopped_writes(base: Path, work: Path) -> dict[tuple[str, str], list[Any]]:
    """What each kind of stop of each kind of write came to; one process for all, which imports but once."""
    plans = []
    for how, name in KINDS:
        write = FILES.get(name, ["model", "new", "out"])
        then = FILES.get(name, PREDICT)
        plan = {"base": str(base), "work": str(work / how / name), "write": write, "then": then, "how": how}
        plans.append(plan)
    done = subprocess.run(
        [sys.executable, str(DRIVER), json.dumps(plans)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(KINDS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def attempts(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[Any]]:
    return stopped_writes(base, tmp_path_factory.mktemp("work"))


def check(attempts: list[Any], how: str) -> tuple[list[Any], Any]:
    """Those that were stopped, and the one that was not."""
    *stopped, whole = attempts
    assert whole["code"] == 0
    assert {each["code"] for each in stopped} == {-signal.SIGKILL if how == "kill" else 1}
    assert {each["then"] for each in attempts} == {0}
    return stopped, whole


@pytest.mark.parametrize("how", ["kill", "full"])
def test_a_model_is_the_old_one_or_the_new_one(base: Path, attempts: Any, how: str) -> None:
    stopped, whole = check(attempts[how, "model"], how)
    assert len(stopped) >= (30 if how == "kill" else 15)
    states = [stopped[0]["files"], whole["files"]]
    assert {**states[0], PREDICT[-1]: files_of(base)[PREDICT[-1]]} == files_of(base)
    assert states[0][PREDICT[-1]] != states[1][PREDICT[-1]]
    assert "out/verdict.json" in states[0] and "out/verdict.json" not in states[1]
    # All files, and what the next command predicts with them, are of one of the two.
    found = [states.index(each["files"]) for each in stopped]
    assert found == sorted(found) and set(found) == {0, 1}
    if how == "full":  # nothing is left even before the next command, unless the new model counts already
        assert all(
            each["left"] == files_of(base) for each, new in zip(stopped, found, strict=True) if not new
        )


@pytest.mark.parametrize(("how", "name"), KINDS[2:])
def test_a_file_is_the_old_one_or_the_new_one(base: Path, attempts: Any, how: str, name: str) -> None:
    stopped, whole = check(attempts[how, name], how)
    assert len(stopped) >= (6 if how == "kill" else 3)
    file, old = FILES[name][-1], files_of(base)
    assert whole["files"][file] != old[file]
    for each in stopped:
        assert each["left"][file] in (old[file], whole["files"][file])
        assert each["files"] == whole["files"]
        if how == "full":
            assert not [name for name in each["left"] if ".mixtree" in name]
