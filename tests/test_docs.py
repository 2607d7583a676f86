"""The Python in the pages runs as it stands, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.estimator import MixtureClassifier

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


def test_the_readme_s_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [each for each in blocks("README.md") if "TreeSearch" in each]
    exec(compile(block.replace(", workers=2", ""), "README.md", "exec"), {"__name__": "page"})
