from __future__ import annotations

from typing import Any

import pytest

from mixtree.errors import InputError
from mixtree.policies.peers.halving import SuccessiveHalving
from mixtree.trainer import Evaluation


def test_the_better_half_goes_on_at_equal_cost(world: Any) -> None:
    search = SuccessiveHalving(world.setting(1000), candidates=8)
    rounds = []
    while trials := search.ask():
        rounds.append(trials)
        for place, trial in enumerate(trials):
            search.tell(trial, Evaluation(float(place % 4)))  # places 0 and 4 are best, then 1 and 5
    assert [len(trials) for trials in rounds] == [8, 4, 2, 1, 1]
    assert [sum(trial.steps for trial in trials) for trials in rounds[:3]] == [128, 132, 132]
    assert [trial.path[0] for trial in rounds[1]] == [0, 4, 1, 5]
    assert [trial.path for trial in rounds[2]] == [(0, 0, 0), (4, 0, 0)]
    assert rounds[3][0].path[:-1] == (0, 0, 0)


def test_few_steps_have_few_candidates(world: Any) -> None:
    search = SuccessiveHalving(world.setting(20))
    world.drive(search)
    assert len([trial for trial in world.trials if trial.phase == "search"]) == 6  # rungs of 4 and 2


@pytest.mark.parametrize("wrong", [{"candidates": 0}, {"keep": 1.0}, {"keep": 0.0}])
def test_impossible_options(wrong: dict[str, Any], world: Any) -> None:
    with pytest.raises(InputError, match="successive halving"):
        SuccessiveHalving(world.setting(), **wrong)
