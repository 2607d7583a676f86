"""Boxes for optimisers that know nothing of simplices: a point of (0, 1)^d and the mixture it stands for."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mixtree.simplex import Mixture

EDGE = 1e-6
"""Coordinates keep this distance from 0 and 1."""


def from_exponentials(point: ArrayLike) -> Mixture:
    """K coordinates u: α ∝ −log u. Uniform u give mixtures uniform on the simplex (Dirichlet(1, …, 1)).

    >>> from_exponentials([0.5, 0.5, 0.25])
    array([0.25, 0.25, 0.5 ])
    """
    drawn = -np.log(np.clip(np.asarray(point, dtype=np.float64), EDGE, 1.0 - EDGE))
    mixture: Mixture = drawn / drawn.sum()
    return mixture


def to_exponentials(mixture: Mixture) -> Mixture:
    """Coordinates of a mixture: those whose exponentials sum to K·log 2, so that uniform is the centre."""
    point: Mixture = np.clip(np.exp(-mixture * len(mixture) * np.log(2.0)), EDGE, 1.0 - EDGE)
    return point


def from_sticks(point: ArrayLike) -> Mixture:
    """K − 1 coordinates: each breaks its part off what is left of a stick of length 1, the rest is weight K.

    The parts are such that uniform coordinates give mixtures uniform on the simplex: of K − i sources left,
    source i takes 1 − (1 − u_i)^{1/(K − 1 − i)}.

    >>> from_sticks([0.25])
    array([0.25, 0.75])
    """
    inner = np.clip(np.asarray(point, dtype=np.float64), 0.0, 1.0)
    parts = 1.0 - (1.0 - inner) ** (1.0 / np.arange(len(inner), 0, -1))
    left = np.cumprod(1.0 - parts)
    weights = np.append(parts * np.append(1.0, left[:-1]), left[-1]) if len(inner) else np.ones(1)
    mixture: Mixture = weights / weights.sum()
    return mixture
