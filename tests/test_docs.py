"""The Python in the pages runs as it stands, from top to bottom."""

from __future__ import annotations

import ast
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sklearn

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.fitting.model_folder import load_model
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


def test_the_estimators_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = blocks("docs/estimators.md")
    assert len(found) == 5
    names: dict[str, object] = {"__name__": "page"}
    with sklearn.config_context():
        for block in found:
            exec(compile(block, "docs/estimators.md", "exec"), names)
    assert load_model("market-model").about["label"] == "bought"
    assert names["search"].best_score_ > 0.5


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


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """The headings of a page as links know them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        place = (page.parent / name).resolve() if name else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            lost.append(link)
    assert not lost


@pytest.mark.parametrize("name", ["policies.md", "verdict.md", "engines.md"])
def test_guides_are_short_and_tables_of_results_stand_elsewhere(name):
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert len(text.split()) <= 3500
    assert "<!-- " not in text
    assert "results/" in text and "DECISIONS.md" in text


def test_generated_pages_are_in_the_results_folder():
    written = {"arena.md", "seeds.md", "speed.md", "undertrained.md", "verdict.md"}
    assert written <= {page.name for page in (ROOT / "docs" / "results").glob("*.md")}
