"""Mixtures and the cells that hold them: geometry of the simplex, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, dataclass_transform, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mixtree._native import compiled
from mixtree.errors import InputError

Mixture = NDArray[np.float64]
"""Weights of the K sources: each at least 0, together 1."""

Kind = TypeVar("Kind")


@dataclass_transform(frozen_default=True, eq_default=False)
def value(kind: type[Kind]) -> type[Kind]:
    """Lightweight immutable dataclass decorator; instances equal themselves only, since they may hold arrays.

    Type checkers refuse changes. ``frozen=True`` would refuse at run time too, but takes four times as long
    to construct, which shows with a handful of instances per node.

    >>> @value
    ... class Point:
    ...     x: float
    ...     y: float = 0.0
    >>> Point(1.0)
    Point(x=1.0, y=0.0)
    """
    return dataclass(eq=False, slots=True)(kind)


_TOLERANCE = 1e-6
_INSIDE = 1e-9


def as_mixture(weights: ArrayLike, *, sources: int | None = None) -> Mixture:
    """The weights as a mixture, or an error that says why they are none.

    Parameters
    ----------
    weights
        One per source. Sums that are off by up to 10⁻⁶ are put right, and so are weights as little below 0.
    sources
        K, if it is known.

    Returns
    -------
    Mixture
        A copy that sums to 1.

    Raises
    ------
    InputError
        If they are not numbers, not K, negative, or do not sum to 1.

    Examples
    --------
    >>> as_mixture([0.25, 0.75])
    array([0.25, 0.75])
    """
    try:
        alpha = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"a mixture is a list of numbers, one per source; got {weights!r}") from error
    if alpha.ndim != 1 or alpha.size == 0:
        raise InputError(f"a mixture is a list of numbers, one per source; got shape {alpha.shape}")
    if sources is not None and alpha.size != sources:
        raise InputError(f"the mixture has {alpha.size} weights but there are {sources} sources")
    if not np.all(np.isfinite(alpha)):
        raise InputError(f"a mixture's weights must be finite; got {alpha.tolist()}")
    if alpha.min() < -_TOLERANCE:
        worst = int(alpha.argmin())
        raise InputError(f"a mixture's weights must not be negative; weight {worst} is {alpha[worst]:g}")
    if abs(alpha.sum() - 1.0) > _TOLERANCE:
        raise InputError(f"a mixture's weights must sum to 1; these sum to {alpha.sum():g}")
    alpha = np.maximum(alpha, 0.0)
    normalised: Mixture = alpha / alpha.sum()
    return normalised


def uniform_mixture(sources: int) -> Mixture:
    """1/K for each of the K sources."""
    if sources < 1:
        raise InputError(f"a mixture needs at least one source; got {sources}")
    return np.full(sources, 1.0 / sources)


@runtime_checkable
class Cell(Protocol):
    """A convex piece of the simplex with one point that stands for it.

    A cell never changes. Built in are :class:`SimplexCell`, :class:`BoxCell` and :class:`PolytopeCell`.

    Examples
    --------
    >>> isinstance(SimplexCell(np.eye(3)), Cell)
    True
    """

    @property
    def representative(self) -> Mixture:
        """The mixture that a node on this cell trains on."""

    def contains(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which of the points (n, K) lie in the cell, boundaries included: (n,)."""

    def diameter(self, order: int = 2) -> float:
        """Largest distance of two points of the cell, or an upper bound of it.

        Parameters
        ----------
        order
            1 or 2, for the ℓ1 or the ℓ2 norm.
        """


def _largest_distance(vertices: NDArray[np.float64], order: int) -> float:
    # A convex function of two points of a polytope is largest at two vertices.
    if len(vertices) < 2:
        return 0.0
    gaps = vertices[:, None, :] - vertices[None, :, :]
    return float(np.linalg.norm(gaps, ord=order, axis=2).max())


FEW_VERTICES = 8
"""Up to so many vertices plain Python is faster than numpy, whose calls cost more than their work."""


@value
class SimplexCell:
    """A simplex given by its K vertices; its representative is their mean.

    Parameters
    ----------
    corners
        The vertices, (K, K): an array, or tuples, which cells with common vertices share.

    Examples
    --------
    >>> SimplexCell(np.eye(2)).representative
    array([0.5, 0.5])
    """

    corners: NDArray[np.float64] | tuple[tuple[float, ...], ...]

    @property
    def vertices(self) -> NDArray[np.float64]:
        return np.asarray(self.corners)

    @property
    def representative(self) -> Mixture:
        corners, count = self.corners, len(self.corners)
        if compiled.mean is not None:
            quick = compiled.mean(corners)
            if quick is not None:
                return np.array(quick)
        if count <= FEW_VERTICES:
            # Not sum(), which rounds otherwise from Python 3.12 on: these are numpy's additions, bit for bit.
            weights = []
            for column in zip(*corners, strict=True):
                total = 0.0
                for weight in column:
                    total += weight
                weights.append(total / count)
            return np.array(weights)
        # add.reduce is what mean() ends in, without its 5 µs of checks: this runs once per node.
        mean: Mixture = np.add.reduce(corners, axis=0) / count
        return mean

    def contains(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        # Barycentric coordinates relative to vertex 0: well scaled even in tiny cells.
        vertices = self.vertices
        edges = (vertices[1:] - vertices[0]).T
        if edges.size == 0:
            return np.array(np.abs(np.atleast_2d(points) - 1.0)[:, 0] <= _INSIDE, dtype=np.bool_)
        shifted = (np.atleast_2d(points) - vertices[0]).T
        inner, _, _, _ = np.linalg.lstsq(edges, shifted, rcond=None)
        inside: NDArray[np.bool_] = (inner >= -_INSIDE).all(axis=0) & (inner.sum(axis=0) <= 1 + _INSIDE)
        return inside

    def diameter(self, order: int = 2) -> float:
        return _largest_distance(self.vertices, order)

    def volume(self) -> float:
        """Volume as a share of the whole simplex."""
        return float(abs(np.linalg.det(self.vertices)))


@value
class BoxCell:
    """{α on the simplex : l ≤ α ≤ u}; any number of sources at O(K).

    Parameters
    ----------
    lower
        l, (K,).
    upper
        u, (K,).

    Examples
    --------
    >>> BoxCell(np.zeros(2), np.array([0.5, 1.0])).contains(np.array([[0.6, 0.4], [0.3, 0.7]]))
    array([False,  True])
    """

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]

    @property
    def representative(self) -> Mixture:
        """l + t(u − l) with t such that the weights sum to 1."""
        width = self.upper - self.lower
        total = np.add.reduce(width)
        if total <= 0:
            return self.lower.copy()
        share = (1.0 - np.add.reduce(self.lower)) / total
        point: Mixture = self.lower + min(max(share, 0.0), 1.0) * width
        return point

    def contains(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        points = np.atleast_2d(points)
        above, below = points >= self.lower - _INSIDE, points <= self.upper + _INSIDE
        return np.array((above & below).all(axis=1), dtype=np.bool_)

    def diameter(self, order: int = 2) -> float:
        """An upper bound: that of the box, and of the simplex where it is smaller."""
        width = self.upper - self.lower
        return float(min(np.linalg.norm(width, ord=order), 2.0 if order == 1 else np.sqrt(2.0)))

    def tightened(self) -> BoxCell:
        """The same set with the smallest bounds that describe it."""
        upper = np.minimum(self.upper, 1.0 - (self.lower.sum() - self.lower))
        lower = np.maximum(self.lower, 1.0 - (upper.sum() - upper))
        # Rounding must never turn a thin interval inside out.
        return BoxCell(np.minimum(lower, upper), np.maximum(lower, upper))


@value
class PolytopeCell:
    """The convex hull of any number of points; its representative is their mean.

    Parameters
    ----------
    vertices
        The points, (n, K).
    """

    vertices: NDArray[np.float64]

    @property
    def representative(self) -> Mixture:
        mean: Mixture = self.vertices.mean(axis=0)
        return mean

    def contains(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        from scipy.optimize import linprog

        count = len(self.vertices)
        system = np.vstack([self.vertices.T, np.ones(count)])
        inside = [
            linprog(np.zeros(count), A_eq=system, b_eq=np.append(point, 1.0), bounds=(0, None)).status == 0
            for point in np.atleast_2d(points)
        ]
        return np.array(inside, dtype=np.bool_)

    def diameter(self, order: int = 2) -> float:
        return _largest_distance(self.vertices, order)


def _numbers(given: ArrayLike, what: str) -> NDArray[np.float64]:
    try:
        return np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} must be numbers, one per source; got {given!r}") from error


def check_minimum(minimum: Sequence[float] | NDArray[np.float64] | None, sources: int) -> NDArray[np.float64]:
    """Per-source minima as an array, or an error that says why they cannot be met."""
    lower = np.zeros(sources) if minimum is None else _numbers(minimum, "minimum weights")
    if lower.shape != (sources,):
        raise InputError(
            f"minimum weights: expected one number per source ({sources}), got shape {lower.shape}"
        )
    if not np.all(np.isfinite(lower)) or lower.min() < 0:
        raise InputError(f"minimum weights must be finite and at least 0; got {lower.tolist()}")
    if lower.sum() > 1 + 1e-12:
        raise InputError(f"minimum weights sum to {lower.sum():g}, more than 1: lower some of them")
    return lower


def check_maximum(
    maximum: Sequence[float] | NDArray[np.float64] | None, lower: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Per-source maxima as an array, or an error that says why they cannot be met with the minima."""
    upper = np.ones(len(lower)) if maximum is None else _numbers(maximum, "maximum weights")
    if upper.shape != lower.shape:
        raise InputError(
            f"maximum weights: expected one number per source ({len(lower)}), got shape {upper.shape}"
        )
    if not np.all(np.isfinite(upper)) or upper.max() > 1:
        raise InputError(f"maximum weights must be finite and at most 1; got {upper.tolist()}")
    if np.any(upper < lower):
        worst = int(np.argmax(lower - upper))
        raise InputError(f"source {worst}: maximum {upper[worst]:g} is below minimum {lower[worst]:g}")
    if upper.sum() < 1 - 1e-12:
        raise InputError(f"maximum weights sum to {upper.sum():g}, less than 1: raise some of them")
    return upper


NO_STEP = "the limit on passes over the rows leaves not a single step: allow more passes"


def capped(mixture: Mixture, caps: Mixture, *, spill: bool = False) -> tuple[Mixture, float]:
    """The mixture with no weight above its cap, and the share of a budget that it can be trained for.

    What a weight loses goes to the others in proportion to theirs.

    Parameters
    ----------
    mixture
        Weights, (K,).
    caps
        The greatest weight of every source, (K,).
    spill
        Where the caps of all sources in the mixture sum to less than 1: whether the other sources take what
        is left. Otherwise the budget is cut.

    Returns
    -------
    tuple
        The mixture, and a share of at most 1.

    Examples
    --------
    >>> capped(np.array([0.5, 0.5, 0.0]), np.array([0.2, 1.0, 1.0]))
    (array([0.2, 0.8, 0. ]), 1.0)
    >>> capped(np.array([1.0, 0.0]), np.array([0.25, 1.0]))
    (array([1., 0.]), 0.25)
    """
    inside = mixture > 0.0
    most = float(caps[inside].sum())
    if most <= 1.0:
        filled = np.where(inside, caps, 0.0)
        outside = float(caps[~inside].sum())
        if spill and outside > 0.0:
            part = min(1.0, (1.0 - most) / outside)
            filled = filled + np.where(inside, 0.0, part * caps)
        share = min(1.0, float(filled.sum()))
        return filled / filled.sum(), share
    full = np.zeros(len(mixture), dtype=np.bool_)
    while True:
        free = inside & ~full
        scale = (1.0 - caps[full].sum()) / mixture[free].sum()
        over = free & (scale * mixture > caps)
        if not over.any():
            return np.where(full, caps, scale * mixture * inside), 1.0
        full |= over
