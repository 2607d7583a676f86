from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixtree.engine.resume import History
from mixtree.errors import StorageError
from mixtree.storage.base import StudyRecord
from mixtree.storage.memory import MemoryStorage
from mixtree.tree import Trial, pending


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
    history = History(storage, "s")
    assert not history.nodes
    history.begin(trials((0,), (1,), (2,), (3,), (4,)))
    asked = trials((1,), (4,))
    assert paths_of(history.groups(asked, 2)) == [[(0,), (1,)], [(4,)]]
    # In a later process the round has got company that was not trained with it.
    later = History(storage, "s")
    wider = trials((0,), (1,), (2,), (3,), (4,), (5,), (6,))
    later.begin(wider)
    assert paths_of(later.groups(wider, 3)) == [[(0,), (1,), (2,)], [(3,), (4,)], [(5,), (6,)]]
    assert paths_of(History(storage, "s").groups(wider, 3)) == paths_of(later.groups(wider, 3))
    assert [each.round for each in storage.nodes("s")] == [0] * 5 + [1] * 2
    assert later.trial((6,)).path == (6,)


def test_evaluations_are_of_the_same_trial(storage: MemoryStorage) -> None:
    History(storage, "s").begin(trials((0,), (1,)))
    storage.finish("s", [replace(pending(trials((0,))[0], 0), value=0.5, status="done")])
    history = History(storage, "s")
    (done, waiting), new = trials((0,), (1,)), trials((2,))[0]
    known = history.evaluations([done, waiting, new])
    assert {path: each.value for path, each in known.items()} == {(0,): 0.5}
    assert [path in history.round_of for path in ((0,), (1,), (2,))] == [True, True, False]
    for other in (
        trials((0,), steps=6)[0],
        Trial((0,), np.array([0.4, 0.6]), 5),
        Trial((0,), np.array([0.5, 0.5]), 5, lr_scale=0.1),
    ):
        with pytest.raises(StorageError, match=r"node \(0,\) was asked for with 5 steps"):
            history.evaluations([other])
