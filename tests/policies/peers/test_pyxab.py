from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np
import pytest

from mixtree.errors import MissingExtraError
from mixtree.policies.peers.pyxab import PyxabSearch

pytest.importorskip("PyXAB", reason="PyXAB is not installed")


@pytest.mark.parametrize("algorithm", ["hoo", "hct", "soo"])
def test_more_pulls_come_closer(algorithm: Literal["hoo", "hct", "soo"], world: Any) -> None:
    search = PyxabSearch(world.setting(4000, steps=40), algorithm=algorithm)
    world.drive(search)
    distances = [world.distance(trial.mixture) for trial in world.trials[:40]]
    assert min(distances) < 0.3 < 0.5 < min(distances[:5])
    assert world.distance(search.best().mixture) == min(distances)


def test_the_global_random_numbers_are_left_alone(world: Any) -> None:
    np.random.seed(3)
    before = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    world.drive(PyxabSearch(world.setting()))
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]


def test_without_pyxab(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PyXAB.algos.HOO", None)
    with pytest.raises(MissingExtraError, match=r"pyxab-hoo needs .*mixtree\[peers\]"):
        PyxabSearch(world.setting())
