"""Steps per node: a schedule maps a node's height to the SGD steps it is trained for.

>>> [linear(10)(height) for height in range(3)]
[10, 20, 30]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mixtree.errors import InputError


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A height for which a schedule has no number of steps, and why; never a number itself."""

    height: int
    reason: str
    needed: int | None = None
    """Steps that would do, were the budget no limit (to 40 digits); None where no number of steps does."""

    def __str__(self) -> str:
        return self.reason


Steps = int | Infeasible
"""λ(h): a whole number of steps, or why there is none."""

Schedule = Callable[[int], Steps]
"""λ: a node's height h → its SGD steps. A search never goes to a height that is ``Infeasible``."""


def constant(steps: int) -> Callable[[int], int]:
    """λ(h) = n, as in all of the paper's experiments.

    >>> constant(5)(7)
    5
    """
    _check_steps(steps)
    return lambda height: steps


def linear(steps: int) -> Callable[[int], int]:
    """λ(h) = n(h + 1).

    >>> linear(10)(2)
    30
    """
    _check_steps(steps)
    return lambda height: steps * (height + 1)


def sqrt(steps: int) -> Callable[[int], int]:
    """λ(h) = ceil(n√(h + 1)).

    >>> [sqrt(10)(height) for height in range(4)]
    [10, 15, 18, 20]
    """
    _check_steps(steps)
    # isqrt keeps exact squares exact: ceil(√m) = isqrt(m − 1) + 1
    return lambda height: math.isqrt(steps * steps * (height + 1) - 1) + 1


def geometric(steps: int, ratio: float) -> Callable[[int], int]:
    """λ(h) = ceil(n·r^h).

    Parameters
    ----------
    steps
        n, the root's steps.
    ratio
        r, above 0.

    Examples
    --------
    >>> [geometric(10, 1.5)(height) for height in range(3)]
    [10, 15, 23]
    """
    return constant_until(0, steps, ratio)


def constant_until(height: int, steps: int, ratio: float) -> Callable[[int], int]:
    """λ(h) = n up to the given height, then ceil(n·r^(h − height)).

    Parameters
    ----------
    height
        The last height with n steps.
    steps
        n.
    ratio
        r, above 0.

    Returns
    -------
    Schedule
        λ.

    Raises
    ------
    InputError
        If n is below 1, the height negative, or the ratio not above 0.

    Examples
    --------
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
    """A number of steps as a constant schedule; a schedule as it is, its answers checked.

    >>> as_schedule(lambda height: 5 if height < 2 else Infeasible(height, "too deep"))(2)
    Infeasible(height=2, reason='too deep', needed=None)
    """
    if not callable(steps):
        return constant(steps)

    def checked(height: int) -> Steps:
        count = steps(height)
        if isinstance(count, Infeasible):
            return count
        _check_steps(count)
        return int(count)

    return checked


def steps_at(steps: int | Schedule, height: int) -> int:
    """λ(h) as a number, or an error that says why there is none.

    >>> steps_at(linear(10), 2)
    30
    """
    count = as_schedule(steps)(height)
    if isinstance(count, Infeasible):
        raise InputError(f"the schedule has no steps for height {height}: {count}")
    return count


def _check_steps(steps: int) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise InputError(f"steps per node must be a whole number of at least 1; got {steps!r}")
