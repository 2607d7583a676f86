from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixtree.errors import InputError, MixtreeError
from mixtree.simplex import (
    BoxCell,
    Cell,
    PolytopeCell,
    SimplexCell,
    as_mixture,
    check_maximum,
    check_minimum,
    uniform_mixture,
)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5, 0.6], "sum to 1; these sum to 1.1"),
        ([0.0, 0.0], "sum to 1; these sum to 0"),
        ([1.5, -0.5], "must not be negative; weight 1 is -0.5"),
        ([0.5, float("nan")], "must be finite"),
        ([float("inf"), 0.0], "must be finite"),
        ([], "one per source; got shape"),
        (1.0, "one per source; got shape"),
        ([[0.5, 0.5]], r"got shape \(1, 2\)"),
        (["half", "half"], "list of numbers"),
        ([[0.5], [0.25, 0.25]], "list of numbers"),
        ({"a": 1.0}, "list of numbers"),
        (None, "mixture"),
    ],
)
def test_what_is_no_mixture_says_why(weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_mixture(weights)


def test_a_mixture_of_another_length_than_the_sources() -> None:
    with pytest.raises(InputError, match="has 2 weights but there are 3 sources"):
        as_mixture([0.5, 0.5], sources=3)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60))
def test_normalised_weights_are_a_mixture(weights: list[float]) -> None:
    alpha = as_mixture(np.array(weights) / np.sum(weights))
    assert alpha.min() >= 0
    assert abs(alpha.sum() - 1) < 1e-12


def test_rounding_is_forgiven_and_removed() -> None:
    alpha = as_mixture([1 + 1e-9, -1e-9])
    assert alpha.tolist() == [1.0, 0.0]
    assert as_mixture(np.array([1, 0])).dtype == np.float64


def test_a_mixture_is_a_copy() -> None:
    given_weights = np.array([0.5, 0.5])
    as_mixture(given_weights)[0] = 7
    assert given_weights.tolist() == [0.5, 0.5]


def test_uniform() -> None:
    assert uniform_mixture(4).tolist() == [0.25] * 4


@pytest.mark.parametrize(
    "cell", [SimplexCell(np.eye(3)), BoxCell(np.zeros(3), np.ones(3)), PolytopeCell(np.eye(3))]
)
def test_the_whole_simplex_in_each_form(cell: Cell) -> None:
    assert isinstance(cell, Cell)
    assert np.allclose(cell.representative, 1 / 3, atol=1e-15)
    points = np.array([[1, 0, 0], [0.2, 0.3, 0.5], [0, 0, 1], [1.2, -0.2, 0], [-0.1, 0.6, 0.5]])
    assert cell.contains(points).tolist() == [True, True, True, False, False]
    assert cell.contains(np.array([0.2, 0.3, 0.5])).tolist() == [True]
    assert cell.diameter() >= np.sqrt(2) - 1e-12
    assert cell.diameter(1) == pytest.approx(2.0)


def test_a_simplex_cell_by_hand() -> None:
    cell = SimplexCell(np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]))
    assert cell.representative == pytest.approx([1 / 6, 1 / 2, 1 / 3])
    assert cell.contains(np.array([[0.4, 0.5, 0.1], [0.5, 0.4, 0.1]])).tolist() == [True, False]
    assert cell.diameter() == pytest.approx(np.sqrt(2))
    assert cell.diameter(1) == pytest.approx(2)
    assert cell.volume() == pytest.approx(0.5)


def test_a_single_source() -> None:
    for cell in (SimplexCell(np.eye(1)), BoxCell(np.zeros(1), np.ones(1)), PolytopeCell(np.eye(1))):
        assert cell.representative.tolist() == [1.0]
        assert cell.contains(np.array([[1.0]])).tolist() == [True]
    assert SimplexCell(np.eye(1)).contains(np.array([[0.5]])).tolist() == [False]
    assert SimplexCell(np.eye(1)).diameter() == 0.0


def test_a_box_cell_by_hand() -> None:
    # l + t(u − l) with t = (1 − Σl)/Σ(u − l) = (1 − 0.3)/1.4 = 1/2
    cell = BoxCell(np.array([0.1, 0.2, 0.0]), np.array([0.5, 0.6, 0.6]))
    assert cell.representative == pytest.approx([0.3, 0.4, 0.3])
    assert cell.contains(np.array([[0.3, 0.4, 0.3], [0.05, 0.5, 0.45], [0.3, 0.65, 0.05]])).tolist() == [
        True,
        False,
        False,
    ]


def test_tightening_drops_what_no_mixture_can_reach() -> None:
    # At least 0.6 of source 0 leaves at most 0.4 for the others; at most 0.4 of both needs 0.2 of source 0.
    tight = BoxCell(np.array([0.6, 0.0, 0.0]), np.ones(3)).tightened()
    assert tight.upper == pytest.approx([1, 0.4, 0.4])
    tight = BoxCell(np.zeros(3), np.array([1, 0.4, 0.4])).tightened()
    assert tight.lower == pytest.approx([0.2, 0, 0])


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2**32))
def test_tightening_keeps_the_set(sources: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    centre = rng.dirichlet(np.ones(sources))
    cell = BoxCell(centre * rng.random(sources), np.minimum(1.0, centre + rng.random(sources)))
    tight = cell.tightened()
    points = rng.dirichlet(np.ones(sources), 200)
    assert (cell.contains(points) == tight.contains(points)).all()
    assert (tight.lower >= cell.lower - 1e-12).all()
    assert (tight.upper <= cell.upper + 1e-12).all()
    assert (tight.lower <= tight.upper).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(0, 2**32))
def test_no_two_points_of_a_cell_are_further_apart_than_its_diameter(sources: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vertices = rng.dirichlet(np.ones(sources), sources)
    inside = rng.dirichlet(np.ones(sources), 20) @ vertices
    box = BoxCell(inside.min(axis=0), inside.max(axis=0))
    for order in (1, 2):
        gaps = np.linalg.norm(inside[:, None] - inside[None], ord=order, axis=2)
        for cell in (SimplexCell(vertices), PolytopeCell(vertices), box):
            assert gaps.max() <= cell.diameter(order) + 1e-12


def test_minima_and_maxima_that_can_be_met() -> None:
    assert check_minimum(None, 3).tolist() == [0, 0, 0]
    assert check_minimum([0.5, 0.5], 2).tolist() == [0.5, 0.5]
    assert check_maximum(None, np.zeros(2)).tolist() == [1, 1]
    assert check_maximum([0.5, 0.5], np.zeros(2)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("minimum", "message"),
    [
        ([0.5], r"one number per source \(2\)"),
        ([[0.5, 0.5]], "one number per source"),
        ([-0.1, 0.1], "at least 0"),
        ([float("nan"), 0.1], "finite"),
        ([0.7, 0.6], "sum to 1.3, more than 1: lower some"),
        (["a", "b"], "minimum weights"),
    ],
)
def test_minima_that_cannot_be_met(minimum: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_minimum(minimum, 2)


@pytest.mark.parametrize(
    ("maximum", "message"),
    [
        ([0.5], r"one number per source \(2\)"),
        ([0.5, 1.1], "at most 1"),
        ([0.5, float("nan")], "finite"),
        ([0.2, 0.9], "source 0: maximum 0.2 is below minimum 0.3"),
        ([0.4, 0.5], "sum to 0.9, less than 1: raise some"),
        (["a", "b"], "maximum weights"),
    ],
)
def test_maxima_that_cannot_be_met(maximum: Any, message: str) -> None:
    with pytest.raises(MixtreeError, match=message):
        check_maximum(maximum, np.array([0.3, 0.1]))


@pytest.mark.parametrize("sources", [2, 3, 5, 8])
def test_the_mean_of_few_vertices_is_numpy_s_bit_for_bit(sources: int) -> None:
    """On every version of Python: the built-in sum rounds otherwise from 3.12 on."""
    random = np.random.default_rng(sources)
    for _ in range(200):
        vertices = random.dirichlet(np.ones(sources), size=sources)
        cell = SimplexCell(tuple(map(tuple, vertices.tolist())))
        assert np.array_equal(cell.representative, np.add.reduce(vertices, axis=0) / sources)
        assert np.array_equal(cell.vertices, vertices)
