"""What people look up explains itself: public names and protocols, in numpydoc sections."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import mixtree
from mixtree.engine.executors.base import Executor
from mixtree.storage.base import Storage

PUBLIC = {name: getattr(mixtree, name) for name in mixtree.__all__ if name != "__version__"}
PROTOCOLS = {"Storage": Storage, "Executor": Executor}
ERRORS = {name for name, each in PUBLIC.items() if inspect.isclass(each) and issubclass(each, Exception)}


def callables() -> Iterator[tuple[str, Any, str]]:
    """Public functions, constructors and public methods: their name, themselves, where they are explained."""
    for name, each in (PUBLIC | PROTOCOLS).items():
        if inspect.isfunction(each):
            yield name, each, inspect.getdoc(each) or ""
        if not inspect.isclass(each) or name in ERRORS:
            continue
        if not getattr(each, "_is_protocol", False):
            yield name, each.__init__, inspect.getdoc(each) or ""
        for method, function in inspect.getmembers(each):
            ours = str(getattr(function, "__module__", "")).startswith("mixtree.")
            if callable(function) and ours and not method.startswith("_"):
                yield f"{name}.{method}", function, inspect.getdoc(function) or ""


def parameters(function: Any) -> list[str]:
    found = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in found if each.name not in ("self", "cls") and each.kind not in kinds]


def explained(doc: str) -> set[str]:
    """The names of the section Parameters, or of the fields that a data class lists there."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", doc, re.DOTALL | re.MULTILINE)
    lines = section[1].splitlines() if section else []
    return {name.strip() for line in lines if line[:1].strip() for name in line.split(":")[0].split(",")}


WIDE = [(name, function, doc) for name, function, doc in callables() if len(parameters(function)) >= 3]


@pytest.mark.parametrize(("name", "function", "doc"), WIDE, ids=[name for name, *_ in WIDE])
def test_three_or_more_parameters_are_explained(name: str, function: Any, doc: str) -> None:
    assert not set(parameters(function)) - explained(doc)


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - ERRORS - {"Mixture"}))
def test_what_a_public_name_is_stands_in_sections(name: str) -> None:
    doc = inspect.getdoc(PUBLIC[name]) or ""
    assert "Examples\n--------" in doc and ">>> " in doc
    if inspect.isfunction(PUBLIC[name]):
        assert "Returns\n-------" in doc and "Parameters\n----------" in doc


@pytest.mark.parametrize("each", [*PUBLIC.values(), *PROTOCOLS.values()], ids=[*PUBLIC, *PROTOCOLS])
def test_public_methods_say_what_they_do(each: Any) -> None:
    if inspect.isclass(each):
        own = {name: part for name, part in vars(each).items() if not name.startswith("_") and callable(part)}
        assert not [name for name, part in own.items() if not inspect.getdoc(getattr(each, name))]
