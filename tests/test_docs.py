"""The Python in the pages runs as it stands, from top to bottom."""

from __future__ import annotations

import ast
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.fitting.estimators import MixtureClassifier
from mixtree.partition import PARTITIONS
from mixtree.storage.sql import open_storage
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.tree_search import TreeSearch

ROOT = Path(__file__).parents[1]


def blocks(page: str) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )


def test_studies(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    found = blocks("docs/studies.md")
    assert len(found) >= 6
    names: dict[str, object] = {"__name__": "page"}
    for block in found:
        exec(compile(block, "docs/studies.md", "exec"), names)


def test_the_readme_s_cross_validation_splits_the_target_s_rows():
    (block,) = [each for each in blocks("README.md") if "KFold" in each]
    sources = synthetic(rows=60, validation=100, seed=1).sources
    names = {
        "model": MixtureClassifier("linear", budget=60, reference="none"),
        "X": np.concatenate([part.x for part in sources.rows]),
        "y": np.concatenate([part.y for part in sources.rows]),
        "state": np.repeat(sources.names, sources.sizes),
        "X_market": sources.validation.x,
        "y_market": sources.validation.y,
    }
    exec(compile(block, "README.md", "exec"), names)
    assert len(names["scores"]) == 5 and min(names["scores"]) > 0.3


def test_the_queries_ask_for_one_study(tmp_path):
    (block,) = [each for each in blocks("docs/studies.md") if "SELECT" in each]
    file = tmp_path / "study.db"
    bisect = PARTITIONS["bisect"]
    search = TreeSearch(bisect.root(2), bisect.split, budget=100, steps=20)
    run(search, ReferenceTrainer(synthetic(sources=2, rows=50).sources), storage=file, study="centroids")
    statements = [ast.literal_eval(f"({each})") for each in re.findall(r'(?:"[^"\n]*"\s*)+', block)]
    queries = [each for each in statements if each.startswith("SELECT")]
    assert len(queries) == block.count("SELECT") == 2

    def rows():
        with closing(sqlite3.connect(file)) as database:
            return [database.execute(each).fetchall() for each in queries]

    alone = rows()
    assert all(alone)
    with closing(open_storage(file)) as storage:
        storage.copy("centroids", "another")
    assert rows() == alone


def test_the_readme_s_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [each for each in blocks("README.md") if "TreeSearch" in each]
    exec(compile(block.replace(", workers=2", ""), "README.md", "exec"), {"__name__": "page"})


def test_the_search_page_runs(capsys):
    (block,) = blocks("docs/search.md")
    names: dict[str, object] = {}
    exec(compile(block, "docs/search.md", "exec"), names)
    assert "WhatIf" in capsys.readouterr().out
