from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from mixtree.policies.peers.regmix import RegMix, ridge_predictions


def test_a_quadratic_is_learned_by_the_ridge() -> None:
    random = np.random.default_rng(0)
    mixtures, others = random.dirichlet([1.0] * 4, (2, 60))
    center = np.array([0.4, 0.3, 0.2, 0.1])
    values, wanted = (((each - center) ** 2).sum(axis=1) for each in (mixtures, others))
    errors = ridge_predictions(mixtures, values, others) - wanted
    assert errors.std() < 0.1 * wanted.std()


def test_without_lightgbm_the_surrogate_is_a_ridge(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    search = RegMix(world.setting())
    assert search.describe()["surrogate"] == "ridge"
    world.drive(search)
    assert world.distance(search.best().mixture) < 0.6


def test_one_round_of_short_runs_then_training_anew(world: Any) -> None:
    search = RegMix(world.setting(600), surrogate="ridge")
    assert len(search.ask()) == 20
    world.drive(RegMix(world.setting(600), surrogate="ridge"))
    assert [trial.phase for trial in world.trials] == ["search"] * 20 + ["final", "decay"]
    assert {trial.steps for trial in world.trials[:20]} == {12}
    assert world.trials[20].path == (20,)
