from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixtree.engine.models import Models
from mixtree.errors import CheckpointError, SearchError
from mixtree.storage.checkpoints import Checkpoints
from mixtree.trainer import Evaluation, Job
from mixtree.tree import Path as NodePath

SIZE = 8 * 100


class Model:
    def __init__(self, number: int) -> None:
        self.number = number


class Keeper:
    """A trainer that only saves and loads, and counts both."""

    def __init__(self) -> None:
        self.saved, self.loaded = 0, 0
        self.alive: weakref.WeakSet[Model] = weakref.WeakSet()

    def make(self, number: int) -> Model:
        model = Model(number)
        self.alive.add(model)
        return model

    def save(self, state: Model) -> dict[str, Any]:
        self.saved += 1
        return {"w": np.full(100, float(state.number))}

    def load(self, arrays: Mapping[str, Any]) -> Model:
        self.loaded += 1
        return self.make(int(arrays["w"][0]))

    def init(self, seed: int) -> Model:
        raise NotImplementedError

    def train(self, jobs: Sequence[Job[Model]]) -> list[Model]:
        raise NotImplementedError

    def evaluate(self, states: Sequence[Model]) -> list[Evaluation]:
        raise NotImplementedError


@pytest.fixture
def keeper() -> Keeper:
    return Keeper()


@pytest.fixture(params=["memory", "disk"])
def states(request: pytest.FixtureRequest, keeper: Keeper, tmp_path: Path, monkeypatch: Any) -> Any:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    models = Checkpoints(str(tmp_path / "models"), "s") if request.param == "disk" else None
    states = Models(keeper, models, limit=4 * SIZE)
    yield states
    states.close()
    assert not list(tmp_path.glob("mixtree-*"))


def put(states: Models[Model], keeper: Keeper, count: int) -> list[NodePath]:
    paths = [(number,) for number in range(count)]
    for number, path in enumerate(paths):
        states.put(path, keeper.make(number))
    return paths


def test_however_many_models_only_the_limit_is_in_memory(states: Models[Model], keeper: Keeper) -> None:
    paths = put(states, keeper, 20)
    gc.collect()
    assert 3 <= len(keeper.alive) <= 4
    for number, path in enumerate(paths):
        assert states.get(path).number == number
    gc.collect()
    assert 3 <= len(keeper.alive) <= 4
    assert keeper.loaded == 20  # all were pushed out by others before they were wanted


def test_recent_models_are_not_read_from_disk(states: Models[Model], keeper: Keeper) -> None:
    first, *_ = put(states, keeper, 4)
    states.get(first)
    states.put((9,), keeper.make(9))  # pushes out (1,) and (2,), which were used longest ago
    assert states.get(first).number == 0
    assert states.get((3,)).number == 3
    assert keeper.loaded == 0
    assert states.get((1,)).number == 1
    assert keeper.loaded == 1


def test_a_dropped_model_is_gone_everywhere(states: Models[Model], keeper: Keeper) -> None:
    paths = put(states, keeper, 10)
    for path in paths:
        states.drop(path)
        states.drop(path)
        with pytest.raises(CheckpointError, match=r"missing|not in memory"):
            states.get(path)
    gc.collect()
    assert not keeper.alive
    put(states, keeper, 3)
    assert len(keeper.alive) == 3  # the count of bytes is right again


def test_keeping_only_some(states: Models[Model], keeper: Keeper) -> None:
    put(states, keeper, 10)
    states.keep_only([(0,), (9,), (77,)])
    assert states.get((0,)).number == 0
    assert states.get((9,)).number == 9
    for number in range(1, 9):
        with pytest.raises(CheckpointError):
            states.get((number,))


def test_a_model_put_again_is_the_new_one(states: Models[Model], keeper: Keeper) -> None:
    put(states, keeper, 10)
    states.put((0,), keeper.make(50))
    put(states, keeper, 0)
    for number in range(1, 10):
        states.get((number,))
    assert states.get((0,)).number == 50


def test_from_now_on_on_disk(states: Models[Model], keeper: Keeper) -> None:
    paths = put(states, keeper, 6)
    models = states.on_disk()
    assert states.on_disk() is models
    states.put((6,), keeper.make(6))
    for number, path in enumerate([*paths, (6,)]):
        assert models.read(path)["w"][0] == number
        assert states.get(path).number == number


def test_a_model_larger_than_the_limit_is_kept_while_it_is_the_last(keeper: Keeper) -> None:
    states = Models(keeper, None, limit=10)
    model = keeper.make(1)
    states.put((), model)
    assert states.get(()) is model
    states.put((0,), keeper.make(2))
    assert states.get(()).number == 1
    states.close()


def test_models_in_memory_are_weighed_once_per_height(keeper: Keeper) -> None:
    states = Models(keeper, None)
    for number in range(50):
        states.put((number,), keeper.make(number))
        states.put((0, number), keeper.make(number))
    assert keeper.saved == 2


def test_models_on_disk_outlive_the_process(keeper: Keeper, tmp_path: Path) -> None:
    put(Models(keeper, Checkpoints(str(tmp_path), "s")), keeper, 2)
    later = Models(keeper, Checkpoints(str(tmp_path), "s"))
    assert later.get((1,)).number == 1
    later.close()
    assert later.checkpoints is not None
    assert later.checkpoints.count() == 2  # closing removes only what was temporary


@pytest.mark.parametrize("saved", [None, "text", [], {"w": [1.0]}, {1: np.zeros(2)}, (each for each in ())])
def test_a_trainer_that_saves_no_arrays_is_told_so(tmp_path: Path, saved: Any) -> None:
    class Other(Keeper):
        def save(self, state: Model) -> Any:
            return saved

    keeper = Other()
    for checkpoints in (None, Checkpoints(str(tmp_path), "study")):
        with pytest.raises(SearchError, match="a model is saved as {name: array}"):
            Models(keeper, checkpoints).put((), keeper.make(1))
