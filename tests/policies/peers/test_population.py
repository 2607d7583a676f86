from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest

from mixtree.errors import InputError
from mixtree.policies.peers.population import Population
from mixtree.trainer import Evaluation


def test_the_worst_quarter_copies_the_best(world: Any) -> None:
    search = Population(world.setting(1000), members=8, generations=2)
    first = search.ask()
    for value, trial in enumerate(first):
        search.tell(trial, Evaluation(float(value)))
    second = search.ask()
    assert {trial.steps for trial in first + second} == {25}
    parents = [trial.path[0] for trial in second]
    assert parents[:6] == [0, 1, 2, 3, 4, 5]
    assert set(parents[6:]) <= {0, 1}
    for before, after in zip(first[:6], second[:6], strict=True):
        assert np.array_equal(before.mixture, after.mixture)
    for copy, parent in zip(second[6:], parents[6:], strict=True):
        assert not np.array_equal(copy.mixture, first[parent].mixture)


def test_a_diverged_member_is_replaced(world: Any) -> None:
    search = Population(world.setting(1000), members=4, generations=2)
    for value, trial in zip([inf, inf, 1.0, inf], search.ask(), strict=True):
        search.tell(trial, Evaluation(value))
    assert [trial.path[0] for trial in search.ask()] == [2, 2, 2, 2]


@pytest.mark.parametrize("wrong", [{"members": 1}, {"generations": 0}])
def test_impossible_options(wrong: dict[str, Any], world: Any) -> None:
    with pytest.raises(InputError, match="population"):
        Population(world.setting(), **wrong)
