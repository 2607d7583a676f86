from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixtree.engine.resume import Past, refuse_changes
from mixtree.errors import StorageError
from mixtree.search import Trial
from mixtree.storage.base import Outcome, StudyRecord
from mixtree.storage.memory import MemoryStorage
from mixtree.trainer import Evaluation


def trials(*paths: tuple[int, ...], steps: int = 5) -> list[Trial]:
    return [Trial(path, np.array([0.5, 0.5]), steps) for path in paths]


@pytest.fixture
def storage() -> MemoryStorage:
    storage = MemoryStorage()
    storage.create(StudyRecord("s", 0, 0, 10))
    return storage


def paths_of(pieces: list[tuple[Trial, ...]]) -> list[list[Any]]:
    return [[trial.path for trial in piece] for piece in pieces]


def test_rounds_are_cut_as_they_were_begun(storage: MemoryStorage) -> None:
    past = Past(storage, "s")
    assert not past.records
    past.begin(trials((0,), (1,), (2,), (3,), (4,)))
    asked = trials((1,), (4,))
    assert paths_of(past.pieces(asked, 2)) == [[(0,), (1,)], [(4,)]]
    # In a later process the round has got company that was not trained with it.
    later = Past(storage, "s")
    wider = trials((0,), (1,), (2,), (3,), (4,), (5,), (6,))
    later.begin(wider)
    assert paths_of(later.pieces(wider, 3)) == [[(0,), (1,), (2,)], [(3,), (4,)], [(5,), (6,)]]
    assert paths_of(Past(storage, "s").pieces(wider, 3)) == paths_of(later.pieces(wider, 3))
    assert [each.round for each in storage.nodes("s")] == [0] * 5 + [1] * 2
    assert later.trial((6,)).path == (6,)


def test_evaluations_are_of_the_same_trial(storage: MemoryStorage) -> None:
    Past(storage, "s").begin(trials((0,), (1,)))
    storage.finish("s", [Outcome((0,), Evaluation(0.5))])
    past = Past(storage, "s")
    (done, pending), new = trials((0,), (1,)), trials((2,))[0]
    known = past.evaluations([done, pending, new])
    assert {path: each.value for path, each in known.items()} == {(0,): 0.5}
    assert [path in past.round_of for path in ((0,), (1,), (2,))] == [True, True, False]
    for other in (
        trials((0,), steps=6)[0],
        Trial((0,), np.array([0.4, 0.6]), 5),
        Trial((0,), np.array([0.5, 0.5]), 5, lr_scale=0.1),
    ):
        with pytest.raises(StorageError, match=r"node \(0,\) was asked for with 5 steps"):
            past.evaluations([other])


def test_names_that_were_not_written_down_are_no_change(storage: MemoryStorage) -> None:
    then = replace(storage.load("s"), config={"sources": [], "a": 1})
    now = replace(then, config={"sources": ["x", "y"], "a": 1})
    refuse_changes(then, now, allow_changed_data=False)
    with pytest.raises(StorageError, match="sources was"):
        refuse_changes(now, replace(now, config={"sources": ["x", "z"], "a": 1}), allow_changed_data=False)
