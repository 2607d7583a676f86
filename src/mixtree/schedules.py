"""Steps per node: a schedule maps a node's height to the SGD steps it is trained for.

>>> [linear(10)(height) for height in range(3)]
[10, 20, 30]
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from mixtree.errors import InputError

Schedule = Callable[[int], int]


def constant(steps: int) -> Schedule:
    """The same number at every height, as in all of the paper's experiments.

    >>> constant(5)(7)
    5
    """
    _check_steps(steps)
    return lambda height: steps


def linear(steps: int) -> Schedule:
    """n(h + 1)."""
    _check_steps(steps)
    return lambda height: steps * (height + 1)


def sqrt(steps: int) -> Schedule:
    """ceil(n√(h + 1)).

    >>> [sqrt(10)(height) for height in range(4)]
    [10, 15, 18, 20]
    """
    _check_steps(steps)
    # isqrt keeps exact squares exact: ceil(√m) = isqrt(m − 1) + 1
    return lambda height: math.isqrt(steps * steps * (height + 1) - 1) + 1


def geometric(steps: int, ratio: float) -> Schedule:
    """ceil(n·r^h).

    >>> [geometric(10, 1.5)(height) for height in range(3)]
    [10, 15, 23]
    """
    return constant_until(0, steps, ratio)


def constant_until(height: int, steps: int, ratio: float) -> Schedule:
    """n up to the given height, then ceil(n·r^(h − height)).

    >>> [constant_until(2, 10, 2.0)(h) for h in range(5)]
    [10, 10, 10, 20, 40]
    """
    _check_steps(steps)
    if height < 0:
        raise InputError(f"the height where growth starts must be at least 0; got {height}")
    if not (math.isfinite(ratio) and ratio > 0):
        raise InputError(f"a schedule's ratio must be a finite number above 0; got {ratio}")

    def schedule(at: int) -> int:
        # Rounding first: 10·1.1² is 12.100000000000001 in floating point, but 13 steps would be one too many
        # where the product is whole.
        exact = steps * ratio ** max(0, at - height)
        return max(1, math.ceil(round(exact, 9)))

    return schedule


def as_schedule(steps: int | Schedule) -> Schedule:
    """A number of steps as a constant schedule; a schedule as it is."""
    if not callable(steps):
        return constant(steps)

    def checked(height: int) -> int:
        count = steps(height)
        _check_steps(count)
        return int(count)

    return checked


def _check_steps(steps: int) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise InputError(f"steps per node must be a whole number of at least 1; got {steps!r}")
