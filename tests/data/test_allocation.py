"""Allocations: what a mixture's weights behind those of the sources mean, and back, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from mixtree.data.allocation import FOLDS, Allocation, given, has_target, named, weight_names, with_target
from mixtree.errors import InputError


@drawn(st.integers(1, 6), st.integers(0, FOLDS + 1), st.integers(0, 2**32 - 1))
def test_a_mixture_comes_back(count, behind, seed):
    mixture = np.random.default_rng(seed).dirichlet(np.ones(count + behind))
    found = Allocation.of(mixture, count)
    assert found.mixture.tobytes() == mixture.tobytes()
    assert found.sources.tolist() == mixture[:count].tolist()
    assert found.own == pytest.approx(mixture[count:].sum())
    assert len(found.folds) == (FOLDS if behind >= FOLDS else 0)
    assert (found.target is None) == (behind % FOLDS == 0)


def test_the_targets_rows_and_their_folds():
    assert Allocation.on_target(2).mixture.tolist() == [0.0, 0.0, 1.0]
    assert Allocation.on_target(2, folds=FOLDS).mixture.tolist() == [0.0, 0.0, 0.0, 0.0, 1.0]
    for fold in range(FOLDS):
        found = Allocation.of(Allocation.on_fold(3, fold).mixture, 3)
        assert (found.fold, found.own, found.target) == (fold, 1.0, None)
    assert Allocation.of(np.array([0.5, 0.5]), 2).fold is None


def test_names_and_the_weight_that_is_missing():
    half = np.array([0.5, 0.5])
    assert with_target(half, 2).tolist() == [0.5, 0.5, 0.0]
    assert with_target(with_target(half, 2), 2).tolist() == [0.5, 0.5, 0.0]
    assert [has_target(half, count) for count in range(1, 4)] == [True, False, None]
    with pytest.raises(InputError, match="2 weights but there are 4 sources"):
        with_target(half, 3)
    names = ("a", "target fold 1", "target fold 2")
    assert given(names) == ("a",)
    assert named(names, np.array([0.5, 0.1, 0.2, 0.2])) == {"a": 0.5, "target": 0.2}
    assert weight_names(("a", "b"), 4) == ("source 0", "source 1", "source 2", "source 3")
