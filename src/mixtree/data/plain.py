"""Plain data that is read back: JSON of files and databases, checked against the shape it was written in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, TypeAlias

from mixtree.places import is_text

Shape: TypeAlias = Any
"""What a value must be: a type (`float` is any finite number), None, a set of values, a pattern that text
must match, a `Number`; a tuple of shapes, one of which fits; ``[shape]`` for a list of such; ``{str: shape}``
for any names, ``{"name": shape}`` for these, which may be missing if written ``"name?"``; ``object`` for
anything."""


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number within bounds; of whole ones, one that every language's integers hold."""

    least: float = -inf
    most: float = 2.0**63
    whole: bool = True

    def __str__(self) -> str:
        return f"a {'whole ' if self.whole else ''}number from {self.least:g} to {self.most:g}"


ANY_TEXT = re.compile(".*", re.DOTALL)
"""Text as names of files are, which need not be UTF-8; `str` is what every other program can hold."""
UTF8_TEXT = re.compile("[^\ud800-\udfff]*")
"""Text of tables, which may hold a NUL."""
COUNT = Number(0)
AT_LEAST_ONE = Number(1)


def read(text: object, shape: Shape) -> Any:
    """The value of a JSON text that has this shape; ValueError, in words, for any other.

    >>> read('{"a": [1, 2]}', {"a": [float], "b?": str})
    {'a': [1, 2]}
    >>> read('{"a": [1, "2"]}', {"a": [float], "b?": str})
    Traceback (most recent call last):
    ValueError: a.1 must be a finite number; found '2'
    """
    if not isinstance(text, str | bytes):
        raise ValueError(f"JSON must be text; found {_short(text)}")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("values in values in values, too deep to be ours") from error
    check(value, shape)
    return value


def check(value: object, shape: Shape) -> None:
    """ValueError for a value that has not this shape."""
    if wrong := _mismatch(value, shape, ""):
        raise ValueError(wrong)


def _mismatch(value: Any, shape: Shape, at: str) -> str | None:
    """What is wrong with a value, and where."""
    if isinstance(shape, dict):
        if not isinstance(value, Mapping):
            return _wrong(value, "an object of names and values", at)
        if str in shape:
            return _first(_mismatch(each, shape[str], f"{at}{name}.") for name, each in value.items())
        for key, part in shape.items():
            name = key.removesuffix("?")
            if name in value:
                if wrong := _mismatch(value[name], part, f"{at}{name}."):
                    return wrong
            elif name == key:
                return f"{at}{name} is missing"
        return None
    if isinstance(shape, list):
        if not isinstance(value, list | tuple):
            return _wrong(value, "a list", at)
        return _first(_mismatch(each, shape[0], f"{at}{place}.") for place, each in enumerate(value))
    if isinstance(shape, tuple):
        found = [_mismatch(value, each, at) for each in shape]
        told = [each for each in found if each]
        if len(told) < len(found):
            return None
        # What is wrong within a list or an object says more than that it is none of the others.
        within = [each for each in told if not each.startswith(f"{at[:-1] or 'it'} must")]
        return (within or told)[-1]
    fits, words = _SIMPLE.get(shape, (None, "")) if isinstance(shape, type | None) else _own(shape)
    return None if fits is None or fits(value) else _wrong(value, words, at)


def _own(shape: Any) -> tuple[Callable[[Any], bool], str]:
    if isinstance(shape, Number):
        return (lambda value: _is_number(value, shape)), str(shape)
    if isinstance(shape, re.Pattern):
        return (lambda value: isinstance(value, str) and shape.fullmatch(value) is not None), (
            f"text such as {shape.pattern}"
        )
    known: frozenset[Any] = frozenset(shape)
    words = f"one of {', '.join(sorted(map(repr, known)))}"
    return (lambda value: isinstance(value, str | None) and value in known), words


def _is_number(value: object, bounds: Number) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if bounds.whole else int | float):
        return False
    return bool(bounds.least <= value <= bounds.most)


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) < 2**1000 and isfinite(value)


_SIMPLE: dict[Any, tuple[Callable[[Any], bool] | None, str]] = {
    object: (None, ""),
    None: (lambda value: value is None, "null"),
    str: (is_text, "text"),
    bool: (lambda value: isinstance(value, bool), "true or false"),
    bytes: (lambda value: isinstance(value, bytes), "bytes"),
    int: (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    float: (_is_finite, "a finite number"),
}


def _first(found: Any) -> str | None:
    return next((each for each in found if each), None)


def _wrong(value: object, words: str, at: str) -> str:
    return f"{at[:-1] or 'it'} must be {words}; found {_short(value)}"


def _short(value: object) -> str:
    text = repr(value) if not isinstance(value, list | tuple | Mapping) else f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}…"
