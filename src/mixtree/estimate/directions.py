"""A few directions of x that stand for many columns: where the sources differ, where x varies most, sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sparse import is_sparse
from mixtree.estimate.solve import Floats

Index = NDArray[np.int64]

_SPARSE = 0.1  # share of the rows that have one of its values, below which a column is sparse
_TALL = 4  # times as many rows as columns: a matrix whose products of columns are quicker decomposed
_EXACT = 600  # columns up to which principal directions are computed exactly
_PASSES = 3  # over the rows, to find them approximately where there are more


class Plan(NamedTuple):
    """What is to become of the columns of x, by how many rows have their values.

    ``own`` are taken as they are, or, if there is no ``room`` for so many, as a few directions. ``rest`` are
    too rare for that, or too many, and are summed up: in up to ``differ`` ways in which the sources differ,
    and in ``groups`` at random.
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
    """For at most so many directions, none of which hangs on fewer than ``least`` of the rows.

    ``full`` says how many rows have something else than what a column mostly is.
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
    """(columns, at most as many as planned) directions; random sums are scaled by the values' ``sizes``."""
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
            sums.append(_grouped(sizes[rest], groups, rng))
        summed = np.hstack(sums)
        made.append(_placed(summed[:, _steady(some, summed, least)], rest, width))
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


def _grouped(sizes: Floats, groups: int, rng: np.random.Generator) -> Floats:
    """Sums of columns in random groups, a value of the usual size counting 1 or −1.

    Without signs the flags of a category would add up to 1 in every row of the sources, and one row of the
    target with a value of its own would look impossible.
    """
    group = rng.permutation(len(sizes)) * groups // len(sizes)
    found = np.zeros((len(sizes), groups))
    found[np.arange(len(sizes)), group] = rng.choice([-1.0, 1.0], len(sizes)) / np.maximum(sizes, 1e-300)
    return found


def _steady(tables: list[Any], directions: Floats, least: float) -> NDArray[np.bool_]:
    """Which directions hang on at least so many rows: of rows with a rare flag, about as many as have it."""
    values = np.vstack([np.asarray(table @ directions) for table in tables])
    squares = np.square(values - values.mean(axis=0))
    rows = squares.sum(axis=0) ** 2 / np.maximum(np.square(squares).sum(axis=0), 1e-300)
    return np.asarray(rows >= least)


def find_directions(tables: list[Any], labels: list[Floats], count: int, rng: np.random.Generator) -> Floats:
    """(columns, count) directions: up to half where E[x] or E[x·y] differs most, the others principal ones.

    ``tables`` are dense or sparse (rows × columns), one per source, ``labels`` functions of y on the same
    rows. Columns are scaled to unit variance first.
    """
    scaled, scale, apart = _apart(tables, labels)
    basis = _leading(apart, count // 2)
    basis = np.hstack([basis, _principal(scaled, basis, count - basis.shape[1], rng)])
    return scale[:, None] * basis


def differing(tables: list[Any], labels: list[Floats], count: int) -> Floats:
    """The first kind alone."""
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
        return _of_symmetric(product - (product @ without) @ without.T)[:, :count]
    # Subspace iteration from random directions.
    start = rng.standard_normal((columns, count + 10))
    for _ in range(_PASSES):
        start = start - without @ (without.T @ start)
        product = sum((part.transposed(part.times(start)) / len(scaled) for part in scaled), np.zeros(()))
        product = product - without @ (without.T @ product)
        # Columns are of unit variance: beside that, what the given directions left may be rounding.
        start = _leading(product, count + 10, beside=1.0)
    return start[:, :count]


def _of_symmetric(matrix: Floats) -> Floats:
    """The leading directions, in half the time."""
    values, vectors = np.linalg.eigh(matrix)
    used: Floats = vectors[:, values > 1e-9 * max(float(values[-1]), 1.0)][:, ::-1]
    return used


def _leading(matrix: Floats, count: int, *, beside: float = 1e-300) -> Floats:
    """The leading left singular directions, those of no weight left out."""
    tall, wide = matrix.shape
    if tall > _TALL * wide and tall > _EXACT:
        # By way of the few columns: what is small beside the largest is lost, and is of no weight here.
        squares, right = np.linalg.eigh(matrix.T @ matrix)
        values = np.sqrt(np.maximum(squares, 0.0))[::-1]
        used = values > max(1e-6 * float(values[0]), 1e-9 * beside)
        some: Floats = right[:, ::-1][:, used][:, :count]
        return np.asarray(matrix @ (some / values[used][:count]))
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    used = values > 1e-9 * max(float(values[0]) if len(values) else 0.0, beside)
    leading: Floats = left[:, used][:, :count]
    return leading
