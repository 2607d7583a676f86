"""MixMin: the mixture of the sources' own models that predicts the validation rows best."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from mixtree.errors import InputError, SearchError
from mixtree.policies.peers.base import DIVISION, Division, Peer
from mixtree.policies.script import Rounds
from mixtree.policies.setting import Setting
from mixtree.simplex import Mixture

_ROUNDS, _CLOSE = 2000, 1e-9
_TINY = 1e-12
_HEAVY = 1e3


class MixMin(Peer):
    """One model per source; α minimises the validation loss of the α-mixture of their predictions.

    Where p(x) is the same in all sources, the best predictor for a mixture is the mixture of the best
    predictors, so choosing α is a convex problem. Cross-entropy is minimised by expectation-maximisation,
    every other loss as squared error by least squares. It does not count how p(x) differs. Budget: 40 % in
    the K models, in equal parts; then the initial model is trained on α, the last half of that at 0.1 × the
    step size.

    Reference: Thudi, Rovers, Ruan, Thrush, Maddison, MixMin: Finding Data Mixtures via Convex Minimization,
    2025.
    """

    uses_predictions = True

    def __init__(self, setting: Setting, *, division: Division = DIVISION) -> None:
        if setting.data is None:
            raise InputError("mixmin compares predictions with the validation labels: give the data")
        super().__init__(setting, division=division)
        self._labels, self._classes = setting.data.validation.y, setting.data.classes
        self._steps = self._search_budget // self._sources

    def search(self) -> Rounds:
        if not self._steps:
            yield from self._finish(self._uniform)
            return
        nodes = yield [self._trial(each, self._steps, phase="proxy") for each in np.eye(self._sources)]
        alive = [source for source, node in enumerate(nodes) if not node.diverged]
        mixture = self._uniform.copy()
        if alive:
            seen = [nodes[source].predictions for source in alive]
            mixture = np.zeros(self._sources)
            mixture[alive] = self._convex(seen)
        yield from self._finish(mixture)

    def _convex(self, predictions: list[NDArray[Any] | None]) -> Mixture:
        given = [np.asarray(each, dtype=np.float64) for each in predictions if each is not None]
        if len(given) < len(predictions):
            raise SearchError("mixmin mixes predictions, and this model family gives none: choose another")
        if self._classes:
            rows = np.arange(len(self._labels))
            return likeliest_mixture(np.stack([each[rows, self._labels] for each in given], axis=1))
        return closest_mixture(np.stack(given, axis=1), self._labels)


def likeliest_mixture(likelihoods: NDArray[np.float64]) -> Mixture:
    """argmax Σ log(Lα) over the simplex, for rows × sources likelihoods, by EM: each round is a step up.

    >>> likeliest_mixture(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])).round(6)
    array([0.5, 0.5])
    """
    likelihoods = np.maximum(likelihoods, _TINY)
    mixture: Mixture = np.full(likelihoods.shape[1], 1.0 / likelihoods.shape[1])
    for _ in range(_ROUNDS):
        shares = likelihoods * mixture
        after = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
        moved = np.abs(after - mixture).sum()
        mixture = after / after.sum()
        if moved < _CLOSE:
            break
    return mixture


def closest_mixture(predictions: NDArray[np.float64], y: NDArray[Any]) -> Mixture:
    """argmin ‖Pα − y‖² over the simplex, for rows × sources predictions.

    >>> closest_mixture(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.25, 0.75])).round(6)
    array([0.25, 0.75])
    """
    # Non-negative least squares; a heavy row asks for the sum of 1.
    scale = max(float(np.abs(predictions).max()), float(np.abs(y).max()), _TINY) * len(y) ** 0.5
    system = np.vstack([predictions / scale, np.full(predictions.shape[1], _HEAVY)])
    mixture, _ = nnls(system, np.append(np.asarray(y, dtype=np.float64) / scale, _HEAVY))
    closest: Mixture = mixture / mixture.sum()
    return closest
