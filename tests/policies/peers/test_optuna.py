from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from mixtree.errors import MissingExtraError
from mixtree.policies.peers.optuna import OptunaSearch

optuna = pytest.importorskip("optuna", reason="optuna is not installed")


def test_fresh_trials_start_from_the_initial_model_and_warm_ones_from_the_best(world: Any) -> None:
    world.drive(OptunaSearch(world.setting()))
    searching = [trial for trial in world.trials if trial.phase == "search"]
    assert len(searching) == 20
    assert searching[0].mixture == pytest.approx([1 / 3] * 3)
    assert all(len(trial.path) == 1 for trial in searching)
    search = OptunaSearch(world.setting(), warm=True)
    world.drive(search)
    values = [search.tree[trial.path].value for trial in world.trials]
    for number, trial in enumerate(world.trials[1:20], start=1):
        assert trial.path[:-1] == world.trials[int(np.argmin(values[:number]))].path


def test_trials_come_closer_as_they_go(world: Any) -> None:
    world.drive(OptunaSearch(world.setting(2000, steps=20)))
    distances = [world.distance(trial.mixture) for trial in world.trials[:40]]
    assert np.mean(distances[20:]) < 0.7 * np.mean(distances[:10])


def test_optuna_says_nothing_and_keeps_its_verbosity(world: Any, capfd: Any) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    world.drive(OptunaSearch(world.setting(100)))
    assert optuna.logging.get_verbosity() == optuna.logging.INFO
    assert capfd.readouterr() == ("", "")


def test_seeds(world: Any) -> None:
    def mixtures(seed: int) -> Any:
        world.drive(OptunaSearch(world.setting(300, seed=seed)))
        return np.array([trial.mixture for trial in world.trials])

    assert np.array_equal(mixtures(1), mixtures(1))
    assert not np.array_equal(mixtures(1), mixtures(2))
    assert len(mixtures(2**64 - 1))


def test_without_optuna(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"optuna-tpe needs .*mixtree\[peers\]"):
        OptunaSearch(world.setting())


def test_gaussian_processes_need_torch(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"optuna-gp needs .*mixtree\[torch\]"):
        OptunaSearch(world.setting(), sampler="gp")
