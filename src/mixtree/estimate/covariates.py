"""Matching sources to the target by x alone: the authors' later baselines, MMD and importance weighting.

Where p(y | x) differs between the sources, matching x cannot find the right mixture: these baselines show it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from mixtree.data.sources import Sources
from mixtree.data.sparse import as_dense
from mixtree.errors import InputError
from mixtree.simplex import Mixture

Array = NDArray[np.float64]

_ROWS = 1000
_LARGEST_WEIGHT = 20.0


def mmd_mixture(sources: Sources, *, seed: int = 0) -> Mixture:
    """The mixture whose x is closest to the validation rows' in maximum mean discrepancy.

    It minimises αᵀAα − 2bᵀα over the simplex, with the kernel means A_ij = E k(x_i, x_j) between the sources
    and b_i = E k(x_i, x_te) to the target. The kernel is Gaussian, as wide as the median distance between
    rows. Closed form: no steps are charged.

    Parameters
    ----------
    sources
        The K sources, up to 1,000 rows of each, and the validation rows.
    seed
        Draws those rows.

    Returns
    -------
    Mixture
        Weights (K,).

    References
    ----------
    Gretton et al., A Kernel Two-Sample Test, JMLR 2012.
    """
    random = np.random.default_rng([seed, 1])
    parts = [_sample(part.x, _ROWS, random) for part in sources.rows]
    target = _sample(sources.validation.x, _ROWS, random)
    # One width for all: a kernel refitted per data set would compare different spaces.
    everything = np.concatenate([*parts, target])
    some = everything[random.choice(len(everything), min(_ROWS, len(everything)), replace=False)]
    distances = _squared_distances(some, some)
    width = float(np.median(distances[np.triu_indices(len(some), 1)])) if len(some) > 1 else 1.0
    width = width or 1.0
    between = np.array([[_kernel_mean(one, two, width) for two in parts] for one in parts])
    towards = np.array([_kernel_mean(one, target, width) for one in parts])
    # ‖Rα − c‖² with A = RᵀR, Rᵀc = b: non-negative least squares, and a heavy row asks for the sum of 1.
    upper = np.linalg.cholesky(between + 1e-10 * np.eye(len(between))).T
    heavy = 1e3
    system = np.vstack([upper, np.full(len(towards), heavy)])
    alpha, _ = nnls(system, np.append(np.linalg.solve(upper.T, towards), heavy))
    closest: Mixture = alpha / alpha.sum()
    return closest


def _kernel_mean(one: Array, two: Array, width: float) -> float:
    return float(np.exp(-_squared_distances(one, two) / width).mean())


def _squared_distances(one: Array, two: Array) -> Array:
    # By a matrix product: with hundreds of columns ten times quicker than row against row.
    squares = (one**2).sum(axis=1)[:, None] + (two**2).sum(axis=1)[None, :]
    distances: Array = np.maximum(squares - 2.0 * one @ two.T, 0.0)
    return distances


def importance_weighted(
    sources: Sources, *, steps: int, batch_size: int = 50, lr: float = 0.1, seed: int = 0
) -> Sources:
    """The sources with row weights p(target | x) / p(source | x) of a logistic domain classifier.

    Weights are capped at 20 times their mean, and their mean is 1: dividing by the largest would change the
    step size.

    Parameters
    ----------
    sources
        The sources and the validation rows.
    steps
        SGD steps of the classifier, which the caller charges to the budget.
    batch_size
        Rows per step, half of them from the sources, half validation rows.
    lr
        Step size.
    seed
        Draws the batches.

    Returns
    -------
    Sources
        The same rows with weights.

    References
    ----------
    Bickel, Brückner, Scheffer, Discriminative Learning Under Covariate Shift, JMLR 2009.
    """
    if steps < 1:
        raise InputError(f"the domain classifier needs at least one step; got {steps}")
    random = np.random.default_rng([seed, 2])
    sizes, half = sources.sizes, max(1, batch_size // 2)
    some = np.concatenate([_sample(part.x, _ROWS, random) for part in sources.rows])
    offset, spread = some.mean(axis=0), some.std(axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    weights, bias = np.zeros(sources.features), 0.0
    for _ in range(steps):
        owner = random.choice(len(sizes), half, p=sizes / sizes.sum())
        rows = [
            as_dense(sources.rows[k].x[random.integers(sizes[k], size=(owner == k).sum())], np.float64)
            for k in set(owner)
        ]
        target = as_dense(
            sources.validation.x[random.integers(len(sources.validation), size=half)], np.float64
        )
        x = (np.concatenate([*rows, target]) - offset) / scale
        labels = np.r_[np.zeros(half), np.ones(half)]
        error = 1 / (1 + np.exp(-(x @ weights + bias))) - labels
        weights -= lr * x.T @ error / len(x)
        bias -= lr * float(error.mean())
    slopes = weights / scale
    scores = [np.asarray(part.x @ slopes, dtype=np.float64).ravel() for part in sources.rows]
    ratios = [np.exp(np.clip(each - offset @ slopes + bias, -30, 30)) for each in scores]
    total = float(np.concatenate(ratios).mean())
    capped = [np.minimum(each / total, _LARGEST_WEIGHT) for each in ratios]
    mean = float(np.concatenate(capped).mean())
    rows_now = tuple(
        replace(part, weight=each / mean) for part, each in zip(sources.rows, capped, strict=True)
    )
    return replace(sources, rows=rows_now)


def _sample(x: Any, most: int, random: np.random.Generator) -> Array:
    count = x.shape[0]
    rows = np.arange(count) if count <= most else np.sort(random.choice(count, most, replace=False))
    return as_dense(x[rows], np.float64)
