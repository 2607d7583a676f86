from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree.bounds import Optimism, check_smoothness, default_rho
from mixtree.errors import InputError


@given(st.floats(-1e3, 1e3), st.integers(0, 100), st.floats(0, 50), st.floats(0.01, 0.99))
def test_the_papers_bound(value: float, height: int, nu: float, rho: float) -> None:
    assert Optimism(nu, rho).bound(value, height) == pytest.approx(value - 2 * nu * rho**height)
    assert Optimism(nu, rho, optimism=1.0).bound(value, height) == pytest.approx(value - nu * rho**height)


def test_by_hand() -> None:
    optimism = Optimism(0.5, 0.5)
    assert [optimism.bound(1.0, height) for height in range(4)] == [0.0, 0.5, 0.75, 0.875]


@given(st.integers(2, 100))
def test_default_rho_is_the_decay_of_bisect_per_height(sources: int) -> None:
    assert default_rho(sources) ** (sources - 1) == pytest.approx(math.sqrt(3) / 2)


def test_default_rho_of_a_single_source_is_usable() -> None:
    check_smoothness(0.5, default_rho(1), 2.0)


@pytest.mark.parametrize(
    ("nu", "rho", "optimism", "message"),
    [
        (-0.1, 0.5, 2.0, "nu must be"),
        (float("nan"), 0.5, 2.0, "nu must be"),
        (float("inf"), 0.5, 2.0, "nu must be"),
        (0.5, 0.0, 2.0, "rho must lie strictly between 0 and 1"),
        (0.5, 1.0, 2.0, "rho must lie strictly between 0 and 1"),
        (0.5, float("nan"), 2.0, "rho must lie"),
        (0.5, 0.5, -1.0, "optimism"),
        (0.5, 0.5, float("inf"), "optimism"),
        (1e308, 0.5, 1e10, "overflows"),
    ],
)
def test_what_is_no_smoothness_constant(nu: Any, rho: Any, optimism: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Optimism(nu, rho, optimism=optimism)
