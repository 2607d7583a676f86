from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from mixtree.policies.peers.coordinates import from_exponentials, from_sticks, to_exponentials
from mixtree.simplex import as_mixture

points = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(points)
def test_every_point_of_the_box_is_a_mixture(point: list[float]) -> None:
    assert len(as_mixture(from_exponentials(point))) == len(point)
    assert len(as_mixture(from_sticks(point))) == len(point) + 1


@pytest.mark.parametrize("map_", [from_exponentials, from_sticks])
def test_uniform_points_are_uniform_on_the_simplex(map_: object) -> None:
    assert callable(map_)
    random = np.random.default_rng(0)
    size = 4 if map_ is from_exponentials else 3
    mixtures = np.array([map_(random.random(size)) for _ in range(4000)])
    for source in range(4):  # a weight of Dirichlet(1, 1, 1, 1) is Beta(1, 3)
        assert kstest(mixtures[:, source], "beta", args=(1, 3)).pvalue > 0.001


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_coordinates_of_a_mixture(sources: int, seed: int) -> None:
    mixture = np.random.default_rng(seed).dirichlet([1.0] * sources)
    assert from_exponentials(to_exponentials(mixture)) == pytest.approx(mixture, abs=1e-5)


def test_corners() -> None:
    assert from_sticks([1.0, 0.3]).tolist() == [1, 0, 0]
    assert from_sticks([0.0, 0.0]).tolist() == [0, 0, 1]
    assert from_sticks([]).tolist() == [1]
    assert to_exponentials(np.full(3, 1 / 3)) == pytest.approx([0.5] * 3)
