from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree.errors import InputError
from mixtree.planning.parallel import regrouped, replay, width_for

rounds = st.lists(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), min_size=1, max_size=8)


@given(rounds=rounds, workers=st.integers(1, 9))
def test_no_schedule_is_faster_than_its_bounds(rounds: list[list[float]], workers: int) -> None:
    work = sum(map(sum, rounds))
    whole = replay(rounds, workers)
    free = replay(rounds, workers, barrier=False)
    assert whole.seconds >= max(work / workers, sum(map(max, rounds))) * (1 - 1e-9)
    assert free.seconds >= work / workers * (1 - 1e-9)
    assert 0 < whole.busy <= 1 + 1e-9
    assert replay(rounds, 1).seconds == pytest.approx(work)


def test_what_a_trial_and_a_round_cost_beyond_training() -> None:
    found = replay([[1.0], [1.0, 1.0]], 2, overhead=0.5, between=0.25)
    assert found.seconds == pytest.approx(3.5)
    assert found.busy == pytest.approx(3 / 7)


def test_other_rounds_of_the_same_trials() -> None:
    assert regrouped([[1.0, 2.0], [3.0]], 1) == [[1.0], [2.0], [3.0]]
    assert regrouped([[1.0, 2.0], [3.0]], 8) == [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 1000])
def test_a_width_never_takes_the_rounds_that_a_search_needs(workers: int) -> None:
    width, busy = width_for(workers, nodes=401, leaves=201, depth=7)
    assert 1 <= width <= 200 // 14
    assert 0 < busy <= 1


def test_no_workers() -> None:
    with pytest.raises(InputError, match="workers must be at least 1"):
        replay([[1.0]], 0)
    with pytest.raises(InputError, match="workers must be at least 1"):
        width_for(0, nodes=3, leaves=2, depth=1)
