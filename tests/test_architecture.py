"""docs/architecture.md says what is there: the picture is the import graph's, every place it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PLACE = re.compile(r"`([\w./-]+?\.(?:py|c|toml|md)|[\w.-]+/[\w./-]*)(?::([A-Za-z_][\w.]*))?`")


@cache
def rooms():
    spec = spec_from_file_location("rooms", ROOT / "tests" / "rooms.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_in(body: list[ast.stmt], before: str = "") -> set[str]:
    """Functions, classes, their members and constants that a file defines."""
    found = set()
    for each in body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            found.add(before + each.name)
        if isinstance(each, ast.ClassDef):
            found |= names_in(each.body, f"{before}{each.name}.")
        targets = each.targets if isinstance(each, ast.Assign) else [getattr(each, "target", None)]
        found |= {before + target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_picture_is_the_import_graph_s() -> None:
    assert rooms().with_picture(PAGE) == PAGE, "run: python tests/rooms.py"


def test_what_follows_from_other_imports_is_left_out_and_circles_are_refused() -> None:
    found = {"top": {"middle", "bottom"}, "middle": {"bottom"}, "bottom": set()}
    assert rooms().reduced(found) == {"top": {"middle"}, "middle": {"bottom"}, "bottom": set()}
    with pytest.raises(ValueError, match="cycle"):
        rooms().reduced({"one": {"other"}, "other": {"one"}})


def test_every_place_that_the_page_names_exists() -> None:
    named = PLACE.findall(PAGE)
    assert len(named) > 60
    missing = []
    for file, name in named:
        place = next(
            (base / file for base in (ROOT / "src" / "mixtree", ROOT) if (base / file).exists()), None
        )
        if place is None:
            missing.append(file)
        elif name and name not in names_in(ast.parse(place.read_text(encoding="utf-8")).body):
            missing.append(f"{file}:{name}")
    assert not missing


def test_at_least_fifteen_places_to_change() -> None:
    table = PAGE[PAGE.index("## Where do I change") :]
    assert table.count("\n| ") - 2 >= 15


def test_the_glossary_is_sorted_and_explains_each_word_once() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = [re.sub(r" \(.*", "", word) for word in re.findall(r"^\| ([^|]+?) \|", page, re.MULTILINE)][2:]
    assert len(words) > 50
    assert words == sorted(words, key=str.lower)
    assert len(set(words)) == len(words)
