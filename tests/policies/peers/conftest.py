"""A world in which everything is known: least squares on K sources, without the noise of SGD.

A model is a vector w in R^K. On source i, SGD moves it towards the unit vector e_i; on a mixture, towards α.
The validation rows have y = x·α*: the target is the mixture α*, and its loss is smallest at w = α*.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mixtree.data.sources import Sources
from mixtree.policies.setting import Setting
from mixtree.search import Search
from mixtree.seeds import derive_seed
from mixtree.trainer import Evaluation
from mixtree.tree import Trial

Array = NDArray[np.float64]
_SLOWNESS = 10.0  # steps in which a model goes 63 % of its way
_NOISE = 1e-4


@dataclass
class World:
    """Least squares with a known best mixture; ``fatal`` is a source on which every model diverges."""

    alpha: Array = field(default_factory=lambda: np.array([0.7, 0.2, 0.1]))
    fatal: int | None = None
    trials: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        x = np.random.default_rng(0).standard_normal((60, len(self.alpha)))
        rows = {f"source {i}": (x, x[:, i]) for i in range(len(self.alpha))}
        self.data = Sources.from_dict(rows, (x, x @ self.alpha), classes=0)

    def setting(self, budget: int = 600, **options: Any) -> Setting:
        told: dict[str, Any] = {"steps": 12, "data": self.data, "seed": 5, "segments": 1, **options}
        return Setting(self.data.names, self.data.sizes, budget, **told)

    def loss(self, model: Array) -> float:
        return float(np.mean((self.data.validation.x @ (model - self.alpha)) ** 2))

    def drive(self, search: Search) -> Array:
        """Run a search to its end and return the model that it returns."""
        models = {(): np.zeros(len(self.alpha))}
        self.trials = []
        while trials := search.ask():
            for trial in trials:
                share = 1 - np.exp(-trial.steps * trial.lr_scale / _SLOWNESS)
                before = models[trial.path[:-1]]
                models[trial.path] = after = before + share * (trial.mixture - before)
                noise = np.random.default_rng(derive_seed(1, trial.path)).standard_normal() * _NOISE
                value = self.loss(after) + noise
                if self.fatal is not None and trial.mixture[self.fatal] > 0.5:
                    value = inf
                search.tell(trial, Evaluation(value, 0.01, self.data.validation.x @ after))
            self.trials += trials
        return models[search.best().path]

    def distance(self, mixture: Array) -> float:
        """ℓ1 distance from the best mixture, as a multiple of uniform's."""
        uniform = np.full(len(self.alpha), 1 / len(self.alpha))
        return float(np.abs(mixture - self.alpha).sum() / np.abs(uniform - self.alpha).sum())


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def make_world() -> type[World]:
    return World
