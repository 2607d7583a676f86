from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mixtree.errors import InputError, SearchError
from mixtree.policies.peers.mixmin import MixMin, closest_mixture, likeliest_mixture
from mixtree.trainer import Evaluation


@settings(max_examples=20)
@given(st.integers(2, 5), st.integers(0, 1000))
def test_the_likeliest_mixture_beats_its_neighbours(sources: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    likelihoods = random.random((50, sources))

    def loss(mixture: Any) -> float:
        return float(-np.log(likelihoods @ mixture).mean())

    found = likeliest_mixture(likelihoods)
    assert found.min() >= 0 and found.sum() == pytest.approx(1)
    for other in random.dirichlet([1.0] * sources, 20):
        for share in (0.01, 0.1, 1.0):
            assert loss(found) <= loss((1 - share) * found + share * other) + 1e-6


@given(st.integers(0, 1000))
def test_the_closest_mixture_is_that_of_a_general_optimiser(seed: int) -> None:
    random = np.random.default_rng(seed)
    predictions, y = random.standard_normal((30, 3)), random.standard_normal(30)

    def loss(mixture: Any) -> float:
        return float(np.mean((predictions @ mixture - y) ** 2))

    found = closest_mixture(predictions, y)
    reference = minimize(
        loss,
        np.full(3, 1 / 3),
        method="SLSQP",
        bounds=[(0, 1)] * 3,
        constraints={"type": "eq", "fun": lambda mixture: mixture.sum() - 1},
    )
    assert loss(found) <= reference.fun + 1e-5


def test_exact_proxies_give_the_exact_mixture(world: Any) -> None:
    search = MixMin(world.setting(2000))
    world.drive(search)
    assert search.best().mixture == pytest.approx(world.alpha, abs=0.01)
    assert [trial.phase for trial in world.trials] == ["proxy"] * 3 + ["final", "decay"]
    assert world.trials[3].path == (3,)  # the final training starts anew


def test_without_data_or_predictions(world: Any) -> None:
    with pytest.raises(InputError, match="validation labels"):
        MixMin(world.setting(data=None))
    search = MixMin(world.setting())
    with pytest.raises(SearchError, match="predictions"):
        for trial in search.ask():
            search.tell(trial, Evaluation(0.5))
