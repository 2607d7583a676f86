"""Convex problems whose best mixture is known: does the search find it, and does that pay?"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.metrics import row_losses
from mixtree.policies.registry import make_search
from mixtree.policies.setting import Setting
from mixtree.trainers.reference import ReferenceTrainer

SEEDS = range(10)
BUDGETS = (200, 800, 3200)


class Outcome(NamedTuple):
    test_loss: float
    distance: float
    """ℓ1 distance of the mixture found from the true one."""


@cache
def outcomes(algorithm: str, sources: int, budget: int) -> list[Outcome]:
    return [outcome(algorithm, sources, budget, seed) for seed in SEEDS]


def outcome(algorithm: str, sources: int, budget: int, seed: int) -> Outcome:
    # With few validation rows or a large step size the noise of the values, not the budget, decides how close
    # the mixture comes; here the budget does.
    problem = synthetic(sources=sources, rows=2000, validation=2000, test=5000, seed=seed)
    trainer = ReferenceTrainer(problem.sources, lr=0.1, batch_size=100)
    options = {"nu": "auto"} if algorithm.startswith("mixmatch") else {}
    setting = Setting(
        problem.sources.names, problem.sources.sizes, budget=budget, steps=20, seed=seed, options=options
    )
    result = run(make_search(algorithm, setting), trainer, seed=seed)
    assert sum(result.spent.values()) <= budget
    losses = row_losses(problem.test.y, trainer.predict(result.state, problem.test.x), 2)
    assert problem.alpha is not None
    return Outcome(float(losses.mean()), float(np.abs(result.mixture - problem.alpha).sum()))


def mean(values: list[float]) -> float:
    return float(np.mean(values))


@pytest.mark.slow
@pytest.mark.parametrize("sources", [3, 5])
@pytest.mark.parametrize("budget", [*BUDGETS[:-1], pytest.param(BUDGETS[-1], marks=pytest.mark.simulation)])
def test_search_and_commit_beat_uniform_at_equal_budget(sources: int, budget: int) -> None:
    found = [each.test_loss for each in outcomes("mixmatch-bisect+commit", sources, budget)]
    uniform = [each.test_loss for each in outcomes("uniform+decay", sources, budget)]
    gains = np.array(uniform) - np.array(found)
    error = gains.std(ddof=1) / np.sqrt(len(gains))
    assert gains.mean() > 0.01
    assert gains.mean() > 2 * error


@pytest.mark.simulation
@pytest.mark.parametrize("sources", [3, 5])
def test_the_mixture_found_comes_closer_as_the_budget_grows(sources: int) -> None:
    distances = [
        mean([each.distance for each in outcomes("mixmatch-bisect+commit", sources, budget)])
        for budget in BUDGETS
    ]
    start = mean([each.distance for each in outcomes("uniform+decay", sources, BUDGETS[0])])
    assert start > distances[0] > distances[1] > distances[2]
    assert distances[2] < 0.5 * distances[0]
    assert distances[2] < 0.35 * start
