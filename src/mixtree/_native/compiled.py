"""The compiled twins of what studies and verdicts ask most often; None where the package has none.

A twin gives the same bits as the Python beside it, but for rounding in sums of fractions and in distances
from hulls; those of cells and seeds give None for what is not plain numbers in plain tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Corners = tuple[tuple[float, ...], ...]

bisected: Callable[[Any], tuple[Corners, ...] | None] | None
mean: Callable[[Any], list[float] | None] | None
derived: Callable[[Any, Any, Any], int | None] | None
add_area_terms: Callable[[Any, Any, Any, Any, Any, Any], None] | None
add_pairs: Callable[[Any, Any, Any, Any, Any, Any], None] | None
add_resamples: Callable[[Any, int, int, Any], None] | None
hull_distances: Callable[[Any, Any, int, Any], None] | None
try:
    from mixtree._native._arithmetic import (
        add_area_terms,
        add_pairs,
        add_resamples,
        bisected,
        derived,
        hull_distances,
        mean,
    )
except ImportError:
    bisected = mean = derived = add_area_terms = add_pairs = add_resamples = hull_distances = None
