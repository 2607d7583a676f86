"""RegMix: a regression of validation loss on the mixture, learned from many short runs."""

from __future__ import annotations

from importlib import import_module
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.policies.peers.base import DIVISION, Division, Peer, filled
from mixtree.policies.script import Rounds
from mixtree.policies.setting import Setting
from mixtree.simplex import Mixture

Array = NDArray[np.float64]

_CANDIDATES, _TOP = 20_000, 100
_TREES, _LR = 500, 0.02
_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


class RegMix(Peer):
    """Short runs on random mixtures, a surrogate of their validation loss, and training on its optimum.

    The runs are on uniform and on draws from Dirichlet(1, …, 1). The surrogate is LightGBM's regression
    trees; without that package it is a ridge regression on weights and their products, and ``describe`` says
    which. Its optimum is the mean of the 100 best of 20,000 drawn mixtures. Budget: 40 % in the runs, in
    equal parts; then the initial model is trained on the optimum, the last half at 0.1 × the step size.

    Reference: Liu et al., RegMix: Data Mixture as Regression for Language Model Pre-training, 2025.
    """

    def __init__(
        self, setting: Setting, *, surrogate: str | None = None, division: Division = DIVISION
    ) -> None:
        super().__init__(setting, division=division)
        try:
            self._lightgbm: Any = None if surrogate == "ridge" else import_module("lightgbm")
        except ImportError:
            self._lightgbm = None
        self._count, self._steps = self._trial_plan(setting)
        kind = "ridge" if self._lightgbm is None else "lightgbm"
        self._options |= {"surrogate": kind}

    def search(self) -> Rounds:
        mixture = self._uniform
        if self._count:
            random = self._random()
            drawn = random.dirichlet([1.0] * self._sources, self._count - 1)
            nodes = yield [self._trial(each, self._steps) for each in (self._uniform, *drawn)]
            if not all(node.diverged for node in nodes):
                mixtures = np.stack([node.mixture for node in nodes])
                mixture = self._optimum(mixtures, filled([node.value for node in nodes]), random)
        yield from self._finish(mixture)

    def _optimum(self, mixtures: Array, values: Array, random: np.random.Generator) -> Mixture:
        candidates = random.dirichlet([1.0] * self._sources, _CANDIDATES)
        fit = ridge_predictions if self._lightgbm is None else self._boosted_predictions
        predicted = fit(mixtures, values, candidates)
        top = candidates[np.argsort(predicted, kind="stable")[:_TOP]]
        optimum: Mixture = top.mean(axis=0)
        return optimum

    def _boosted_predictions(self, mixtures: Array, values: Array, candidates: Array) -> Array:
        options = {
            "objective": "regression",
            "learning_rate": _LR,
            "num_leaves": 8,
            "min_data_in_leaf": 2,
            "min_data_in_bin": 1,
            "seed": 0,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        rows = self._lightgbm.Dataset(mixtures, label=values, params={"verbosity": -1})
        trees = self._lightgbm.train(options, rows, num_boost_round=_TREES)
        return np.asarray(trees.predict(candidates, num_threads=1), dtype=np.float64)


def ridge_predictions(mixtures: Array, values: Array, candidates: Array) -> Array:
    """Predictions of a ridge regression on the weights and their products.

    The penalty is the one of smallest leave-one-out error.
    """
    rows, wanted = _quadratic(mixtures), _quadratic(candidates)
    middle, spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-12)
    rows, wanted = (rows - middle) / spread, (wanted - middle) / spread
    left, scale, right = np.linalg.svd(rows, full_matrices=False)
    along = left.T @ (values - values.mean())
    lowest, slopes = inf, np.zeros(rows.shape[1])
    for penalty in _RIDGES:
        shrunk = scale**2 / (scale**2 + penalty * len(rows))
        residuals = values - values.mean() - left @ (shrunk * along)
        # A row's own pull on its prediction, the mean's included.
        leverage = (left**2) @ shrunk + 1.0 / len(rows)
        error = float(np.mean((residuals / np.maximum(1.0 - leverage, 1e-9)) ** 2))
        if error < lowest:
            lowest = error
            slopes = right.T @ (scale / (scale**2 + penalty * len(rows)) * along)
    predicted: Array = values.mean() + wanted @ slopes
    return predicted


def _quadratic(mixtures: Array) -> Array:
    first, second = np.triu_indices(mixtures.shape[1])
    return np.hstack([mixtures, mixtures[:, first] * mixtures[:, second]])
