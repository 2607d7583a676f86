"""The picture of docs/architecture.md: which room imports which, from the import graph.

``python tests/rooms.py`` writes it; a test checks that it is current. Imports that follow
from others are left out.
"""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "mixtree"
START, END = "<!-- rooms: written by tests/rooms.py -->", "<!-- end of rooms -->"
BOTTOM, WORDS = "errors", "the paper's words"
OUTSIDE = ("", "__main__")
"""The public list and the entry point of ``python -m mixtree`` are no rooms."""


def room(module: str) -> str:
    """The room of a module: its folder, or one of two for the files at the root."""
    name = module.removeprefix("mixtree").removeprefix(".").partition(".")[0]
    if name in OUTSIDE or (PACKAGE / name).is_dir():
        return name
    return BOTTOM if name in ("errors", "places") else WORDS


def imports() -> dict[str, set[str]]:
    """By room, the rooms it imports; imports inside functions count, those for type checkers do not."""
    graph = grimp.build_graph("mixtree", exclude_type_checking_imports=True, cache_dir=None)
    found: dict[str, set[str]] = {}
    for module in graph.modules:
        used = {room(each) for each in graph.find_modules_directly_imported_by(module)}
        found.setdefault(room(module), set()).update(used)
    return {name: used - {name, *OUTSIDE} for name, used in found.items() if name not in OUTSIDE}


def reduced(found: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without the imports that a way through other rooms gives anyway; CycleError for a circle."""
    reach: dict[str, set[str]] = {}
    kept: dict[str, set[str]] = {}
    for name in order(found):
        beyond = set().union(*(reach[each] for each in found[name]))
        reach[name] = beyond | found[name]
        kept[name] = found[name] - beyond
    return kept


def order(found: dict[str, set[str]]) -> list[str]:
    """Bottom first, the same one every time."""
    return [*TopologicalSorter({name: sorted(found[name]) for name in sorted(found)}).static_order()]


def picture() -> str:
    """The rooms as a Mermaid flow chart, and one line about each."""
    kept = reduced(imports())
    names = order(kept)[::-1]
    ids = {name: f"r{number}" for number, name in enumerate(names)}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {ids[name]}["{name}"]' for name in names]
    lines += [f"    {ids[name]} --> {ids[each]}" for name in names for each in sorted(kept[name])]
    lines += ["```", "", "| room | what it is |", "| --- | --- |"]
    lines += [f"| `{name}/` | {about(name)} |" for name in names if (PACKAGE / name).is_dir()]
    return "\n".join(lines)


def about(name: str) -> str:
    """The first line of a room's docstring."""
    text = (PACKAGE / name / "__init__.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def with_picture(page: str) -> str:
    """The page with today's picture between its marks."""
    before, rest = page.split(START)
    return f"{before}{START}\n\n{picture()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(with_picture(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
