"""The loss of any mixture, from the looks that a search took at merged models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mixtree.errors import InputError
from mixtree.simplex import as_mixture
from mixtree.tree import Node

NO_LOOKS = (
    "nothing is known of mixtures that were not trained: the study has no looks at merged models; policy "
    "mixmatch+ takes them, with a trainer that can merge"
)
_SURE = 1.96


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The merged loss of a mixture, with its 95 % interval.

    It is that of models right after their branches, before the race and the commit: compare two of them, not
    one with the value of the returned model.
    """

    loss: float
    low: float
    high: float
    error: float
    """Of the surface alone, without the validation rows' noise, which all mixtures share."""


def last_looks(nodes: Iterable[Node]) -> list[Node]:
    """The looks of the last round of branches that have a value: their branches are no older ones' means."""
    looks = [node for node in nodes if node.look and node.merged is not None]
    if not looks:
        return []
    newest = max(looks, key=lambda node: max(map(len, node.merged.paths)))  # type: ignore[union-attr]
    deepest = max(map(len, newest.merged.paths))  # type: ignore[union-attr]
    return [
        node
        for node in looks
        if max(map(len, node.merged.paths)) == deepest and not node.diverged  # type: ignore[union-attr]
    ]


def what_if(nodes: Iterable[Node], mixture: ArrayLike, *, sources: int) -> WhatIf:
    """The merged loss of a mixture: a quadratic in its weights, fitted to all looks of the last branches.

    Merged models are linear in α, and a loss is nearly quadratic over so short a way. With too few looks for
    all products of weights it takes their squares alone, then the weights alone.

    Parameters
    ----------
    nodes
        Of a study with looks.
    mixture
        One weight per source.
    sources
        K.

    Raises
    ------
    InputError
        If the study has no looks, or it is no mixture.
    """
    looks, asked = last_looks(nodes), as_mixture(mixture, sources=sources)
    if len(looks) < 3:
        raise InputError(NO_LOOKS)
    x = np.array([node.mixture[:sources] for node in looks])
    y = np.array([node.value for node in looks])
    errors = [node.standard_error for node in looks if np.isfinite(node.standard_error)]
    noise = float(np.median(errors)) if errors else 0.0
    for terms in (_products, _squares, _weights):
        table = terms(x)
        rank = int(np.linalg.matrix_rank(table))
        if 2 * rank <= len(y) or terms is _weights:
            break
    fitted, *_ = np.linalg.lstsq(table, y, rcond=None)
    loss = float(terms(asked[None])[0] @ fitted)
    spare = max(1, len(y) - rank)
    spread = float(np.sqrt(np.square(y - table @ fitted).sum() / spare))
    lever = float(terms(asked[None])[0] @ np.linalg.pinv(table.T @ table) @ terms(asked[None])[0])
    error = spread * float(np.sqrt(1.0 + max(0.0, lever)))
    half = _SURE * float(np.hypot(error, noise))
    return WhatIf(loss, loss - half, loss + half, error)


def _weights(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([np.ones(len(x)), x[:, :-1]])


def _squares(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([_weights(x), np.square(x)])


def _products(x: NDArray[np.float64]) -> NDArray[np.float64]:
    first, second = np.triu_indices(x.shape[1] - 1)
    free = x[:, :-1]
    return np.column_stack([_weights(x), free[:, first] * free[:, second]])


def in_cells(nodes: Sequence[Node], root: int) -> dict[tuple[int, ...], Node]:
    """The tree of looks of the last branches by the paths of their cells; ``root`` is its index in paths."""
    looks = last_looks(nodes)
    bases = [node.path for node in looks if node.path and node.path[-1] == root]
    if not bases:
        return {}
    base = bases[-1]
    return {node.path[len(base) :]: node for node in looks if node.path[: len(base)] == base}
