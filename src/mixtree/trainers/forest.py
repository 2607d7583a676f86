"""A forest of trees as plain arrays: made of scikit-learn's once it is fitted, predicts by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sparse import as_dense

_ROWS = 4096  # at a time: what is made on the way stays small


@dataclass(frozen=True, eq=False, slots=True)
class Forest:
    """Binary trees in one table of nodes.

    Parameters
    ----------
    roots
        The first node of every tree.
    feature
        What a node splits by; −1 for a leaf.
    threshold
        Rows at most this large go left.
    left, right
        The next nodes.
    value
        (nodes, outputs); of a leaf, what it predicts.
    """

    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]

    @classmethod
    def of(cls, fitted: Any) -> Forest:
        """The trees of a fitted scikit-learn forest."""
        trees = [each.tree_ for each in fitted.estimators_]
        roots = np.cumsum([0, *(tree.node_count for tree in trees)])
        starts = np.repeat(roots[:-1], [tree.node_count for tree in trees])
        leaf = np.concatenate([tree.children_left for tree in trees]) < 0
        values = np.concatenate([tree.value[:, 0, :] for tree in trees])
        if hasattr(fitted, "classes_"):
            values = values / values.sum(axis=1, keepdims=True)
        return cls(
            roots[:-1].astype(np.int32),
            np.where(leaf, -1, np.concatenate([tree.feature for tree in trees])).astype(np.int32),
            np.concatenate([tree.threshold for tree in trees]),
            np.where(leaf, -1, np.concatenate([t.children_left for t in trees]) + starts).astype(np.int32),
            np.where(leaf, -1, np.concatenate([t.children_right for t in trees]) + starts).astype(np.int32),
            values.astype(np.float32),
        )

    def predict(self, x: Any) -> NDArray[np.float64]:
        """The mean over the trees, (n, outputs)."""
        total = np.zeros((x.shape[0], self.value.shape[1]))
        for start in range(0, x.shape[0], _ROWS):
            part = as_dense(x[start : start + _ROWS], np.float32)
            rows = np.arange(len(part))
            for root in self.roots.tolist():
                total[start : start + _ROWS] += self.value[self._leaves(part, rows, root)]
        return total / len(self.roots)

    def _leaves(self, part: NDArray[np.float32], rows: NDArray[Any], root: int) -> NDArray[Any]:
        node = np.full(len(part), root)
        moving = rows
        while len(moving):
            here = node[moving]
            split = self.feature[here]
            moving, here, split = moving[split >= 0], here[split >= 0], split[split >= 0]
            goes_left = part[moving, split] <= self.threshold[here]
            node[moving] = np.where(goes_left, self.left[here], self.right[here])
        return node

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it."""
        return {name: getattr(self, name) for name in Forest.__dataclass_fields__}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Forest:
        """What `arrays` gave; trees that point outside, or in circles, are refused."""
        forest = cls(*(arrays[name] for name in Forest.__dataclass_fields__))
        nodes = len(forest.feature)
        inner = np.flatnonzero(forest.feature >= 0)
        for children in (forest.left[inner], forest.right[inner]):
            if np.any(children <= inner) or np.any(children >= nodes):  # a node's children come after it
                raise ValueError("a tree points outside of itself")
        if np.any(forest.roots < 0) or np.any(forest.roots >= nodes) or len(forest.value) != nodes:
            raise ValueError("a tree has no such root")
        return forest
