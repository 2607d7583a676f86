"""Values that a study makes by the thousand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, eq_default=False)
def value(kind: type[Kind]) -> type[Kind]:
    """A dataclass that nobody may change once it is made; it equals itself only, for it may hold arrays.

    Type checkers refuse to change it. ``frozen=True`` would refuse at run time too, and takes four times as
    long to make one: with a handful of them per node that is felt beside a short training.

    >>> @value
    ... class Point:
    ...     x: float
    ...     y: float = 0.0
    >>> Point(1.0)
    Point(x=1.0, y=0.0)
    """
    return dataclass(eq=False, slots=True)(kind)
