"""A few directions of x that stand for many columns: where the sources differ, and where x varies most."""

from __future__ import annotations

from typing import Any

import numpy as np

from mixtree.estimate.solve import Floats

_EXACT = 600  # columns up to which principal directions are computed exactly
_PASSES = 3  # over the rows, to find them approximately where there are more


def find_directions(tables: list[Any], labels: list[Floats], count: int, rng: np.random.Generator) -> Floats:
    """(columns, count) directions: up to half where E[x] or E[x·y] differs most, the others principal ones.

    ``tables`` are dense or sparse (rows × columns), one per source, ``labels`` functions of y on the same
    rows. Columns are scaled to unit variance first.
    """
    scaled, scale, apart = _apart(tables, labels)
    basis = _leading(apart, count // 2)
    basis = np.hstack([basis, _principal(scaled, basis, count - basis.shape[1], rng)])
    return scale[:, None] * basis


def differing(tables: list[Any], labels: list[Floats], count: int, *, least: float) -> Floats:
    """The first kind alone, at most so many, of which none hangs on fewer than ``least`` of the rows."""
    _, scale, apart = _apart(tables, labels)
    directions = scale[:, None] * _leading(apart, count)
    values = np.vstack([np.asarray(table @ directions) for table in tables])
    squares = np.square(values - values.mean(axis=0))
    # Of a column of ones and zeros this is the number of the ones, or of the zeros if they are fewer.
    rows = squares.sum(axis=0) ** 2 / np.maximum(np.square(squares).sum(axis=0), 1e-300)
    return directions[:, rows >= least]


def _apart(tables: list[Any], labels: list[Floats]) -> tuple[list[_Scaled], Floats, Floats]:
    """The tables and the columns' scale, and by how much E[x] and E[x·y] of every source differ from all."""
    scaled = [_Scaled(table) for table in tables]
    mean = np.mean([part.mean for part in scaled], axis=0)
    square = np.mean([part.square for part in scaled], axis=0)
    variance = square - mean**2
    scale = np.where(variance > 1e-12 * (1.0 + square), 1.0 / np.sqrt(np.maximum(variance, 1e-300)), 0.0)
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
        squared = self.x.multiply(self.x) if hasattr(x, "tocsr") else self.x**2
        self.mean: Floats = np.asarray(self.x.mean(axis=0), dtype=np.float64).ravel()
        self.square: Floats = np.asarray(squared.mean(axis=0), dtype=np.float64).ravel()
        self.scale: Floats = np.ones_like(self.mean)

    def times(self, right: Floats) -> Floats:
        scaled = self.scale[:, None] * right
        product: Floats = np.asarray(self.x @ scaled) - self.mean @ scaled
        return product

    def squared(self) -> Floats:
        """All products of two columns, summed up over the rows."""
        if hasattr(self.x, "tocsr"):
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
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    used = values > 1e-9 * max(float(values[0]) if len(values) else 0.0, beside)
    leading: Floats = left[:, used][:, :count]
    return leading
