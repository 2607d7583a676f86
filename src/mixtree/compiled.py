"""The compiled twins of a node's arithmetic; each is None where the package was built without them.

A twin gives the same bits as the Python beside it, and None for what is not plain numbers in plain tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Corners = tuple[tuple[float, ...], ...]

bisected: Callable[[Any], tuple[Corners, ...] | None] | None
mean: Callable[[Any], list[float] | None] | None
derived: Callable[[Any, Any, Any], int | None] | None
try:
    from mixtree._arithmetic import bisected, derived, mean
except ImportError:
    bisected = mean = derived = None
