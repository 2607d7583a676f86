"""The Python in the pages runs as it stands, from top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


def test_the_readme_s_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = [each for each in blocks("README.md") if "TreeSearch" in each]
    exec(compile(block.replace(", workers=2", ""), "README.md", "exec"), {"__name__": "page"})
