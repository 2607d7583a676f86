"""A few directions of x that stand for many columns: where the sources differ, where x varies most, sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sparse import is_sparse
from mixtree.estimate.solve import Floats

Index = NDArray[np.int64]

_SPARSE = 0.1  # share of rows with an unusual value below which a column is sparse
_TALL = 4  # rows per column from which decomposing the product of columns is faster
_EXACT = 600  # columns up to which principal directions are computed exactly
_PASSES = 3  # over the rows, to find them approximately where there are more


class Plan(NamedTuple):
    """What happens to the columns of x, by how many rows have their values.

    Attributes
    ----------
    own
        Columns that are taken as they are, or as ``room`` directions if there are more of them.
    rest
        Columns that are too rare for that, or too many, and are summed up.
    room
        Directions that ``own`` may fill.
    differ
        Sums of ``rest`` in which the sources differ most, at the most.
    groups
        Sums of ``rest`` over random groups.
    """

    own: Index
    rest: Index
    room: int
    differ: int
    groups: int

    @property
    def looks(self) -> bool:
        """Whether rows choose anything: those rows should not be averaged then."""
        return self.differ > 0 or len(self.own) > self.room


def plan(full: Index, rare: Index, *, rows: int, sources: int, of_y: int, count: int, least: float) -> Plan:
    """Which columns are used as they are and which are summed up.

    Parameters
    ----------
    full
        For each column the number of rows whose value is not the column's usual one.
    rare
        Columns that may only be used in sums.
    rows, sources, of_y
        How many rows there are in all, how many sources (K), how many functions of y.
    count
        Directions that may be used in all.
    least
        Rows on which every direction must depend.

    Returns
    -------
    Plan
        For at most ``count`` directions.
    """
    common = full > 0
    common[rare] = False
    fullest = np.argsort(np.where(common, -full, 1), kind="stable")[: int(np.count_nonzero(common))]
    dense = int(np.count_nonzero(full[fullest] >= _SPARSE * rows))
    left = np.flatnonzero(full > 0)
    # A third at the most for sums, unless the others leave more room.
    sums = min(max(count // 3, count - len(fullest)), len(left) - max(dense, min(count, len(fullest))))
    cut = dense if dense > count - sums else min(count - sums, len(fullest))
    rest = np.setdiff1d(left, fullest[:cut]) if sums > 0 else fullest[:0]
    differ = min(sums, (sources - 1) * (1 + of_y))
    if len(rest) <= 2 * differ:  # too few for rows to be spent on choosing
        differ = 0
    groups = min(sums - differ, int(full[rest].sum() / (2.0 * least)))
    return Plan(np.sort(fullest[:cut]), rest, count - sums, differ, groups)


def find_all(
    planned: Plan,
    tables: list[Any],
    labels: list[Floats],
    sizes: Floats,
    least: float,
    rng: np.random.Generator,
) -> Floats:
    """The directions of x that a plan asks for.

    Parameters
    ----------
    planned
        What :func:`plan` says.
    tables
        Rows that choose the directions: (rows, columns) of every source, dense or sparse.
    labels
        Functions of y (rows, functions) on the same rows.
    sizes
        Root mean square of each column's unusual values, by which random sums are scaled.
    least
        Rows of these tables on which a sum must depend.
    rng
        Draws random groups, and starts of iterations.

    Returns
    -------
    array
        (columns, directions), at most as many as planned.
    """
    own, rest, room, differ, groups = planned
    width = len(sizes)
    if len(own) > room:
        found = find_directions([table[:, own] for table in tables], labels, room, rng)
        made = [_placed(found, own, width)]
    else:
        made = [_placed(np.eye(len(own)), own, width)]
    if differ or groups:
        some = [table[:, rest] for table in tables]
        sums = [differing(some, labels, differ)] if differ else []
        if groups:
            # A value of the usual size counts 1 or −1. Without signs the flags of a category would add up to
            # 1 in every row of the sources, and one target row with a new value would look impossible.
            group = rng.permutation(len(rest)) * groups // len(rest)
            grouped = np.zeros((len(rest), groups))
            signs = rng.choice([-1.0, 1.0], len(rest))
            grouped[np.arange(len(rest)), group] = signs / np.maximum(sizes[rest], 1e-300)
            sums.append(grouped)
        summed = np.hstack(sums)
        # How many rows a sum depends on, (Σd²)² / Σd⁴: for a flag about as many as have it.
        values = np.vstack([np.asarray(table @ summed) for table in some])
        squares = np.square(values - values.mean(axis=0))
        rows = squares.sum(axis=0) ** 2 / np.maximum(np.square(squares).sum(axis=0), 1e-300)
        made.append(_placed(summed[:, rows >= least], rest, width))
    directions = np.hstack(made)
    if not directions.shape[1]:  # something has to stand for x
        directions = np.zeros((width, 1))
        directions[own[:1] if len(own) else rest[:1]] = 1.0
    return directions


def _placed(directions: Floats, columns: Index, width: int) -> Floats:
    """Directions of some of the columns as directions of all."""
    placed = np.zeros((width, directions.shape[1]))
    placed[columns] = directions
    return placed


def find_directions(tables: list[Any], labels: list[Floats], count: int, rng: np.random.Generator) -> Floats:
    """Directions of x: up to half where E[x] or E[x·y] differ most between sources, then principal ones.

    Columns are scaled to unit variance first.

    Parameters
    ----------
    tables
        (rows, columns) of every source, dense or sparse.
    labels
        Functions of y (rows, functions) on the same rows.
    count
        Directions wanted.
    rng
        Starts the iterations where there are more than 600 columns.

    Returns
    -------
    array
        (columns, ``count``), or fewer directions if the tables have no more.
    """
    scaled, scale, apart = _apart(tables, labels)
    basis = _leading(apart, count // 2)
    basis = np.hstack([basis, _principal(scaled, basis, count - basis.shape[1], rng)])
    return scale[:, None] * basis


def differing(tables: list[Any], labels: list[Floats], count: int) -> Floats:
    """Only the directions in which E[x] or E[x·y] differ most.

    Parameters
    ----------
    tables, labels, count
        As for :func:`find_directions`.

    Returns
    -------
    array
        (columns, at most ``count``).
    """
    _, scale, apart = _apart(tables, labels)
    return scale[:, None] * _leading(apart, count)


def _apart(tables: list[Any], labels: list[Floats]) -> tuple[list[_Scaled], Floats, Floats]:
    """The tables and the columns' scale, and by how much E[x] and E[x·y] of every source differ from all."""
    scaled = [_Scaled(table) for table in tables]
    mean = np.mean([part.mean for part in scaled], axis=0)
    square = np.mean([part.square for part in scaled], axis=0)
    variance = square - mean**2
    scale = np.where(variance > 1e-12 * square, 1.0 / np.sqrt(np.maximum(variance, 1e-300)), 0.0)
    for part in scaled:
        part.mean, part.scale = mean, scale
    # With a column of ones the plain means are among the products.
    products = [
        part.transposed(np.column_stack([np.ones(len(y)), y]) / len(y))
        for part, y in zip(scaled, labels, strict=True)
    ]
    apart = np.hstack(products) - np.tile(np.mean(products, axis=0), len(products))
    return scaled, scale, apart


class _Scaled:
    """A table seen as (x − mean)·scale without making it dense."""

    def __init__(self, x: Any) -> None:
        # As 64-bit numbers: whole numbers of 8 bits would overflow when squared.
        self.x = x.astype(np.float64)
        squared = self.x.multiply(self.x) if is_sparse(x) else self.x**2
        self.mean: Floats = np.asarray(self.x.mean(axis=0), dtype=np.float64).ravel()
        self.square: Floats = np.asarray(squared.mean(axis=0), dtype=np.float64).ravel()
        self.scale: Floats = np.ones_like(self.mean)

    def times(self, right: Floats) -> Floats:
        scaled = self.scale[:, None] * right
        product: Floats = np.asarray(self.x @ scaled) - self.mean @ scaled
        return product

    def squared(self) -> Floats:
        """All products of two columns, summed up over the rows."""
        if is_sparse(self.x):
            return self.transposed(self.times(np.eye(len(self.mean))))
        gaps = (self.x - self.mean) * self.scale
        product: Floats = gaps.T @ gaps
        return product

    def transposed(self, right: Floats) -> Floats:
        product: Floats = np.asarray(self.x.T @ right) - np.outer(self.mean, right.sum(axis=0))
        return self.scale[:, None] * product


def _principal(scaled: list[_Scaled], without: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Leading principal directions of the rows once the given ones are taken out."""
    columns = len(without)
    if columns <= _EXACT:
        product = sum((part.squared() / len(scaled) for part in scaled), np.zeros(()))
        product = product - without @ (without.T @ product)
        values, vectors = np.linalg.eigh(product - (product @ without) @ without.T)
        used = values > 1e-9 * max(float(values[-1]), 1.0)
        found: Floats = vectors[:, used][:, ::-1][:, :count]
        return found
    # Subspace iteration from random directions.
    start = rng.standard_normal((columns, count + 10))
    for _ in range(_PASSES):
        start = start - without @ (without.T @ start)
        product = sum((part.transposed(part.times(start)) / len(scaled) for part in scaled), np.zeros(()))
        product = product - without @ (without.T @ product)
        # Columns have unit variance: what the given directions left may be rounding at that scale.
        start = _leading(product, count + 10, scale=1.0)
    return start[:, :count]


def _leading(matrix: Floats, count: int, *, scale: float = 1e-300) -> Floats:
    """The leading left singular directions, without those whose weight is rounding at this scale."""
    tall, wide = matrix.shape
    if tall > _TALL * wide and tall > _EXACT:
        # The product of columns is small; it loses what is small next to the largest, not needed here.
        squares, right = np.linalg.eigh(matrix.T @ matrix)
        values = np.sqrt(np.maximum(squares, 0.0))[::-1]
        used = values > max(1e-6 * float(values[0]), 1e-9 * scale)
        some: Floats = right[:, ::-1][:, used][:, :count]
        return np.asarray(matrix @ (some / values[used][:count]))
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    used = values > 1e-9 * max(float(values[0]) if len(values) else 0.0, scale)
    leading: Floats = left[:, used][:, :count]
    return leading
