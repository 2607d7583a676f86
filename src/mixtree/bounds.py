"""Optimism: how low the values inside a node's cell might be.

A bound maps (value, height) to that optimistic value. It must not fall when the value rises: the tree keeps
leaves of one height sorted by value and asks the bound only for the first of each height.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from mixtree.errors import InputError

Bound = Callable[[float, int], float]


def default_rho(sources: int) -> float:
    """(√3/2)^(1/(K−1)): the decay of bisect's cells per height.

    >>> round(default_rho(3), 4)
    0.9306
    """
    return float((math.sqrt(3) / 2) ** (1 / max(1, sources - 1)))


def optimistic(nu: float, rho: float, *, optimism: float = 2.0) -> Bound:
    """value − c·ν·ρ^h, the paper's bound; c is ``optimism``.

    >>> optimistic(0.5, 0.5)(1.0, 1)
    0.5
    """
    check_smoothness(nu, rho, optimism)
    return lambda value, height: value - optimism * nu * rho**height


def check_smoothness(nu: float, rho: float, optimism: float) -> None:
    """Refuse ν, ρ, c that are no smoothness constants."""
    if not (math.isfinite(nu) and nu >= 0):
        raise InputError(f"nu must be a finite number of at least 0, or 'auto'; got {nu}")
    if not 0 < rho < 1:
        raise InputError(f"rho must lie strictly between 0 and 1; got {rho}")
    if not (math.isfinite(optimism) and optimism >= 0):
        raise InputError(f"optimism (c) must be a finite number of at least 0; got {optimism}")
