from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree.errors import InputError
from mixtree.schedules import (
    Infeasible,
    as_schedule,
    constant,
    constant_until,
    geometric,
    linear,
    sqrt,
    steps_at,
)


@given(st.integers(1, 10**6), st.integers(0, 200))
def test_closed_forms(n: int, height: int) -> None:
    assert constant(n)(height) == n
    assert linear(n)(height) == n * (height + 1)
    # The smallest whole number whose square reaches n²(h + 1), without floating point.
    steps = sqrt(n)(height)
    assert (steps - 1) ** 2 < n * n * (height + 1) <= steps**2


@given(st.integers(1, 1000), st.integers(0, 12), st.sampled_from([0.5, 1.0, 1.25, 1.5, 2.0, 3.0]))
def test_geometric(n: int, height: int, ratio: float) -> None:
    assert geometric(n, ratio)(height) == math.ceil(n * Fraction(ratio) ** height)


def test_a_whole_product_is_not_rounded_up() -> None:
    assert 100 * 1.1**2 > 121  # in floating point
    assert geometric(100, 1.1)(2) == 121


@given(st.integers(1, 50), st.integers(0, 6), st.integers(0, 12))
def test_constant_until(n: int, until: int, height: int) -> None:
    expected = n if height <= until else n * 2 ** (height - until)
    assert constant_until(until, n, 2.0)(height) == expected


def test_a_number_is_a_constant_schedule_and_a_callable_is_itself() -> None:
    assert as_schedule(7)(3) == 7
    mine = linear(3)
    assert [as_schedule(mine)(height) for height in range(3)] == [3, 6, 9]


@pytest.mark.parametrize("make", [constant, linear, sqrt, lambda n: geometric(n, 2.0), as_schedule])
@pytest.mark.parametrize("steps", [0, -1, 2.5, True, "ten", None])
def test_steps_must_be_a_whole_number_of_at_least_one(make: Any, steps: Any) -> None:
    with pytest.raises(InputError, match="whole number of at least 1"):
        make(steps)


@pytest.mark.parametrize("ratio", [0.0, -1.0, float("nan"), float("inf")])
def test_ratios_that_make_no_schedule(ratio: float) -> None:
    with pytest.raises(InputError, match="ratio"):
        geometric(5, ratio)


def test_growth_cannot_start_below_the_root() -> None:
    with pytest.raises(InputError, match="at least 0; got -1"):
        constant_until(-1, 5, 2.0)


def test_infeasible_is_an_answer_of_its_own() -> None:
    none = Infeasible(3, "the theory asks for 10^9 steps", 10**9)

    def mine(height: int) -> int | Infeasible:
        return none if height == 3 else 5

    assert as_schedule(mine)(3) is none
    assert steps_at(mine, 2) == 5
    assert steps_at(7, 3) == 7
    with pytest.raises(InputError, match=r"no steps for height 3: the theory asks for 10\^9 steps"):
        steps_at(mine, 3)
    with pytest.raises(TypeError):
        none + 1  # type: ignore[operator]
