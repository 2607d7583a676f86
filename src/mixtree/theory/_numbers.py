"""Numbers for the calculator: inputs checked once, arithmetic that neither overflows nor cancels.

The constants of the theory leave the range of floats (Ĉ of a badly scaled problem is beyond 10^400), and the
smallest whole t of the step condition needs differences of nearly equal numbers. Decimals of 60 digits with
an unlimited exponent do both without a second set of formulas in logarithms.
"""

from __future__ import annotations

import decimal
import math
from contextlib import AbstractContextManager
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from mixtree.errors import InputError

_CONTEXT = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)


def precise() -> AbstractContextManager[decimal.Context]:
    """A block in which Decimals have 60 digits and no limit of size."""
    return decimal.localcontext(_CONTEXT)


def exact(value: Any) -> Decimal:
    """The very number that the float is."""
    return Decimal(int(value)) if isinstance(value, Integral) else Decimal(float(value))


def whole(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """The value as an int, or an error that says what it should be.

    Parameters
    ----------
    name
        What the error calls it.
    value
        Any object.
    least, most
        Bounds, included; ``most`` None for none.

    Returns
    -------
    int
        The value.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}; got {value!r}")
    number = int(value)
    if most is not None and number > most:
        shown = str(number) if number < 10**30 else f"{Decimal(number):.3g}"
        raise InputError(f"{name} must be at most {most}; got {shown}")
    return number


def check_height(height: Any, *, least: int = 0, name: str = "the height") -> int:
    """A height h, or an error: at most 10^18, beyond which ρ^h leaves even the Decimals of ``precise``.

    Parameters
    ----------
    height
        Any object.
    least
        The smallest h allowed.
    name
        What the error calls it.

    Returns
    -------
    int
        h.
    """
    return whole(name, height, least=least, most=10**18)


def check_sources(sources: Any) -> int:
    """K, of which the theory needs two."""
    return whole("sources (K)", sources, least=2, most=10**9)


def check_k(k: Any) -> int:
    """The k of α_k and Ĉ(k): 1 − α_k is 2^{-k}, so more than 64 change nothing but the constants."""
    return whole("k", k, least=0, most=64)


def above(name: str, value: Any, *, limit: float = 0.0) -> float:
    """The value as a finite number above the limit, or an error that says what it should be.

    Parameters
    ----------
    name
        What the error calls it.
    value
        Any object.
    limit
        The bound, excluded.

    Returns
    -------
    float
        The value.
    """
    if not is_finite(value) or value <= limit:
        raise InputError(f"{name} must be a finite number above {limit:g}; got {value!r}")
    return float(value)


def at_least(name: str, value: Any, *, limit: float = 0.0) -> float:
    """The value as a finite number of at least the limit, or an error that says what it should be.

    Parameters
    ----------
    name
        What the error calls it.
    value
        Any object.
    limit
        The bound, included.

    Returns
    -------
    float
        The value.
    """
    if not is_finite(value) or value < limit:
        raise InputError(f"{name} must be a finite number of at least {limit:g}; got {value!r}")
    return float(value)


def between(name: str, value: Any) -> float:
    """The value as a number strictly between 0 and 1, or an error that says so."""
    if not is_finite(value) or not 0 < value < 1:
        raise InputError(f"{name} must lie strictly between 0 and 1; got {value!r}")
    return float(value)


def check_budget(budget: Any) -> float:
    """Λ, or an error that says why it is none."""
    return above("the budget Λ", budget, limit=2.0)


def natural_log(value: Decimal) -> float:
    """ln of a number of any size; −inf of 0."""
    if value == 0:
        return -math.inf
    with precise():
        return float(value.ln())


def is_finite(value: Any) -> bool:
    """Whether it is a real number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False
