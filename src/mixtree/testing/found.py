"""What somebody's object gave, looked at and said in words."""

from __future__ import annotations

from typing import Any


def is_int(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def kind(found: object) -> str:
    """What it is, in words."""
    return "None" if found is None else f"a {type(found).__qualname__}"


def listed(found: Any, promise: str) -> list[Any]:
    assert isinstance(found, list | tuple), f"{promise}; got {kind(found)}"
    return list(found)
