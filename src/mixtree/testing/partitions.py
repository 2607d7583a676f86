"""Conformance of partitions."""

from __future__ import annotations

import numpy as np

from mixtree.partition import Partition
from mixtree.seeds import derive_seed
from mixtree.simplex import Cell, Mixture


def check_partition(root: Cell, partition: Partition, *, depth: int = 12, seed: int = 0) -> None:
    """A partition cuts a cell into two or more cells inside it, the same for the same seed, or into none.

    Parameters
    ----------
    root
        The cell to begin with.
    partition
        What is checked.
    depth
        How many cuts below one another.
    seed
        Of the cuts and of the points that are looked at.
    """
    random = np.random.default_rng(seed)
    cell: Cell = root
    path: tuple[int, ...] = ()
    for _ in range(depth):
        _check_point(cell.representative, cell, f"cell {path}")
        children = partition(cell, derive_seed(seed, path))
        if not children:
            return
        assert len(children) >= 2, f"cell {path} has one child: a cut gives two or more, or none"
        again = partition(cell, derive_seed(seed, path))
        for child, same in zip(children, again, strict=True):
            assert np.array_equal(child.representative, same.representative), (
                f"cell {path}: the same seed gave other children"
            )
        points = np.array([_random_point(child, partition, random) for child in children for _ in range(4)])
        assert cell.contains(points).all(), f"cell {path}: a child reaches outside its parent"
        # A cell is convex: points between those of different children show gaps and overlaps.
        share = random.random((len(points), 1))
        mixed = share * points + (1 - share) * random.permutation(points)
        homes = np.array([child.contains(np.vstack([points, mixed])) for child in children]).sum(axis=0)
        assert (homes > 0).all(), f"cell {path}: a point of the cell lies in none of the children"
        assert (homes == 1).all(), f"cell {path}: points of the cell lie in more than one of the children"
        pick = int(random.integers(len(children)))
        cell, path = children[pick], (*path, pick)


def _random_point(cell: Cell, partition: Partition, random: np.random.Generator) -> Mixture:
    """A point inside the cell: between the representatives of some of its descendants."""
    points = [cell.representative]
    inner = cell
    for _ in range(3):
        children = partition(inner, int(random.integers(2**32)))
        if not children:
            break
        inner = children[int(random.integers(len(children)))]
        points.append(inner.representative)
    point: Mixture = random.dirichlet(np.ones(len(points))) @ np.array(points)
    return point


def _check_point(point: Mixture, cell: Cell, where: str) -> None:
    assert point.min() >= 0, f"{where}: the representative has a negative weight"
    assert abs(point.sum() - 1) < 1e-9, f"{where}: the representative does not sum to 1"
    assert cell.contains(point)[0], f"{where}: the representative lies outside its cell"
