"""Ways to cut a cell into smaller cells. A partition is a plain function: cell, seed → children.

Children cover the cell, and each has its own representative mixture. A cell that cannot be cut any more in
floating point has no children; the search never expands it. The same cell and seed always give the same
children.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import dist

import numpy as np
from numpy.typing import NDArray

from mixtree._native import compiled
from mixtree.errors import InputError
from mixtree.simplex import (
    FEW_VERTICES,
    BoxCell,
    Cell,
    PolytopeCell,
    SimplexCell,
    check_maximum,
    check_minimum,
)

Seed = int
Partition = Callable[[Cell, Seed], Sequence[Cell]]
"""Cuts a cell; the seed, that of the node, decides what is random."""

# Two edges count as equally long within this *relative* difference of their squared lengths, so that the
# smallest (i, j) wins a tie that rounding would otherwise decide, in cells of any size.
_TIE = 1e-9
_POLYTOPE_SOURCES = 5
# Minima (or maxima) that sum to 1 but for rounding leave one mixture, not a simplex of a few rounding errors.
_ROUNDING = 1e-12
# Jacobi: two columns count as orthogonal at this cosine; a few sweeps get there.
_ORTHOGONAL = 1e-15
_SWEEPS = 40


@cache
def _pairs(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first, second = np.triu_indices(count, k=1)
    return first.astype(np.int64), second.astype(np.int64)


def bisect(cell: Cell, seed: Seed = 0) -> Sequence[Cell]:
    """Cut the longest edge at its midpoint: two children of equal volume.

    The partition of the theory: the diameter is at most √2·(√3/2)^floor(h/(K−1)) at height h.

    Parameters
    ----------
    cell
        A simplex cell.
    seed
        Not used.

    Returns
    -------
    sequence of Cell
        Two halves, or none if the cell cannot be cut.

    References
    ----------
    Faw et al., "Lemma: diameter after repeated bisection".

    Examples
    --------
    >>> halves = bisect(SimplexCell(np.eye(2)))
    >>> [half.representative.tolist() for half in halves]
    [[0.25, 0.75], [0.75, 0.25]]
    """
    if not isinstance(cell, SimplexCell):
        raise _not_cut("bisect", cell, "simplex cells", "simplex_root(K)")
    rows, count = cell.corners, len(cell.corners)
    if count < 2:
        return ()
    if count > FEW_VERTICES:
        return _bisect_many(np.asarray(rows))
    if not isinstance(rows, tuple):
        rows = tuple(map(tuple, rows.tolist()))
    halves = compiled.bisected(rows) if compiled.bisected is not None else None
    if halves is None:
        halves = _bisect_few(rows)
    if not halves:
        return ()
    left, right = halves
    return SimplexCell(left), SimplexCell(right)


def _bisect_few(rows: compiled.Corners) -> tuple[compiled.Corners, ...]:
    """The corners of both halves; none where they cannot be told apart."""
    edges, lengths, longest = _edges(len(rows)), [], 0.0
    for i, j in edges:
        length = dist(rows[i], rows[j])
        lengths.append(length)
        if length > longest:
            longest = length
    least, first = longest * (1.0 - 0.5 * _TIE), 0
    while lengths[first] < least:
        first += 1
    i, j = edges[first]
    one, two = rows[i], rows[j]
    middle = tuple([0.5 * (a + b) for a, b in zip(one, two, strict=True)])
    if middle in (one, two):
        return ()
    left, right = list(rows), list(rows)
    left[i] = right[j] = middle
    return tuple(left), tuple(right)


@cache
def _edges(count: int) -> list[tuple[int, int]]:
    return list(combinations(range(count), 2))


def _bisect_many(vertices: NDArray[np.float64]) -> Sequence[Cell]:
    first, second = _pairs(len(vertices))
    # Differences from vertex 0, not the vertices themselves: their products keep full relative precision in
    # tiny cells.
    edges_from_0 = vertices - vertices[0]
    gram = edges_from_0 @ edges_from_0.T
    own = gram.diagonal()
    squares = own.take(first) + own.take(second) - 2.0 * gram[first, second]
    pick = int((squares >= squares[squares.argmax()] * (1.0 - _TIE)).argmax())
    i, j = int(first[pick]), int(second[pick])
    middle = 0.5 * (vertices[i] + vertices[j])
    if (middle == vertices[i]).all() or (middle == vertices[j]).all():
        return ()
    left, right = vertices.copy(), vertices.copy()
    left[i] = right[j] = middle
    return SimplexCell(left), SimplexCell(right)


def delaunay(cell: Cell, seed: Seed = 0) -> Sequence[Cell]:
    """Join the centroid to every facet: K children of equal volume.

    Old edges survive every cut, so for K ≥ 3 the diameter does not shrink and the theorems do not cover it.

    Parameters
    ----------
    cell
        A simplex cell.
    seed
        Not used.

    Returns
    -------
    sequence of Cell
        K cells, or none if the cell cannot be cut.

    Examples
    --------
    >>> len(delaunay(SimplexCell(np.eye(4))))
    4
    """
    if not isinstance(cell, SimplexCell):
        raise _not_cut("delaunay", cell, "simplex cells", "simplex_root(K)")
    vertices = cell.vertices
    if len(vertices) < 2:
        return ()
    centroid = cell.representative
    # A mean is rounded: that of K equal vertices need not be equal to them.
    if (np.abs(vertices - centroid) <= len(vertices) * np.finfo(np.float64).eps).all(axis=1).any():
        return ()
    children = []
    for i in range(len(vertices)):
        child = vertices.copy()
        child[i] = centroid
        children.append(SimplexCell(child))
    return children


def halve(cell: Cell, seed: Seed = 0) -> Sequence[Cell]:
    """Cut a box cell at its representative along a random coordinate: two children, O(K), any K.

    Parameters
    ----------
    cell
        A box cell.
    seed
        Draws the coordinate.

    Returns
    -------
    sequence of Cell
        Two halves, or none if the cell cannot be cut.

    Examples
    --------
    >>> low, high = halve(box_root(3), seed=1)
    >>> bool((low.representative >= 0).all() and abs(high.representative.sum() - 1) < 1e-12)
    True
    """
    if not isinstance(cell, BoxCell):
        raise _not_cut("halve", cell, "box cells", "box_root(K)")
    at = cell.representative
    open_axes = np.flatnonzero((cell.lower < at) & (at < cell.upper))
    if len(open_axes) < 2:  # α sums to 1: a single free coordinate is not free
        return ()
    axis = open_axes[np.random.Generator(np.random.PCG64(seed)).integers(len(open_axes))]
    upper, lower = cell.upper.copy(), cell.lower.copy()
    upper[axis] = lower[axis] = at[axis]
    return BoxCell(cell.lower, upper).tightened(), BoxCell(lower, cell.upper).tightened()


def halve_polytope(cell: Cell, seed: Seed = 0) -> Sequence[Cell]:
    """Cut a polytope through its centroid along a random principal axis: the authors' coordinate halving.

    For faithful comparison with at most five sources; ``halve`` is the one for everyday use.

    Parameters
    ----------
    cell
        A polytope cell.
    seed
        Draws the axis.

    Returns
    -------
    sequence of Cell
        Two halves, or none if the cell cannot be cut.
    """
    if not isinstance(cell, PolytopeCell):
        raise _not_cut("halve_polytope", cell, "polytope cells", "polytope_root(K)")
    vertices = cell.vertices
    if vertices.shape[1] > _POLYTOPE_SOURCES:
        raise InputError(
            f"halve_polytope takes at most {_POLYTOPE_SOURCES} sources, not {vertices.shape[1]}; use halve"
        )
    dimension = vertices.shape[1] - 1
    if dimension == 0:
        return ()
    spread = vertices - vertices.mean(axis=0)
    plane = _principal_axes(spread)
    pick = np.random.Generator(np.random.PCG64(seed)).integers(dimension)
    side = _along(spread, plane[pick : pick + 1])[:, 0]
    # A vertex on the cut is a vertex of both halves, whatever rounding makes of its zero.
    side[np.abs(side) <= _ROUNDING * np.abs(side).max()] = 0.0
    if not (side.min() < 0 < side.max()):
        return ()
    halves = []
    for sign in (1.0, -1.0):
        half = _clip(vertices, sign * side, plane)
        if half is None:
            return ()
        halves.append(PolytopeCell(half))
    return halves


def _principal_axes(spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal directions (rows) of the hyperplane Σα = 0, by how far the centred vertices spread.

    They are fixed by the vertices alone, bit for bit on every machine. Where singular values are equal (at
    the simplex all of them are) any basis of their span would do, and the linear algebra library's would
    depend on the processor: here it is the coordinates' axes, made orthogonal one after the other inside that
    span. That fixes signs, too. One-sided Jacobi rotations in plain arithmetic need neither BLAS nor LAPACK.
    """
    count = spread.shape[1]
    # Helmert's basis of the hyperplane: (1, −1, 0, …), (1, 1, −2, 0, …), …
    axes = []
    for ones in range(1, count):
        scale = math.sqrt(ones * (ones + 1))
        axes.append([1 / scale] * ones + [-ones / scale] + [0.0] * (count - ones - 1))
    columns = _along(spread, np.array(axes)).T.tolist()
    for _ in range(_SWEEPS):
        turned = False
        for i, j in combinations(range(count - 1), 2):
            one, two, both = (_dot(columns[a], columns[b]) for a, b in ((i, i), (j, j), (i, j)))
            if abs(both) <= _ORTHOGONAL * math.sqrt(one * two):
                continue
            turned = True
            ratio = (two - one) / (2 * both)
            tangent = math.copysign(1.0, ratio) / (abs(ratio) + math.sqrt(1 + ratio * ratio))
            cosine = 1 / math.sqrt(1 + tangent * tangent)
            sine = cosine * tangent
            for lists in (columns, axes):
                pairs = list(zip(lists[i], lists[j], strict=True))
                lists[i] = [cosine * a - sine * b for a, b in pairs]
                lists[j] = [sine * a + cosine * b for a, b in pairs]
        if not turned:
            break
    lengths = [math.sqrt(_dot(column, column)) for column in columns]
    order = sorted(range(count - 1), key=lambda i: -lengths[i])
    canonical: list[list[float]] = []
    first = 0
    for last in range(1, count):
        if last < count - 1 and lengths[order[last]] >= lengths[order[last - 1]] * (1 - _TIE):
            continue
        canonical += _canonical([axes[i] for i in order[first:last]])
        first = last
    return np.array(canonical)


def _canonical(span: list[list[float]]) -> list[list[float]]:
    """The basis of a span that does not depend on the one it is given by."""
    found: list[list[float]] = []
    for j in range(len(span[0])):
        # What is left of coordinate j's axis in the span, without what was found.
        part = [
            math.fsum([*(v[j] * v[i] for v in span), *(-q[j] * q[i] for q in found)])
            for i in range(len(span[0]))
        ]
        size = math.sqrt(_dot(part, part))
        # Some coordinate has at least √(1/K) while one is missing: what is left of it has length 1.
        if size > 0.1 and len(found) < len(span):
            found.append([each / size for each in part])
    return found


def _dot(one: Sequence[float], two: Sequence[float]) -> float:
    # Rounded once: no order of summation.
    return math.fsum(a * b for a, b in zip(one, two, strict=True))


def _along(rows: NDArray[np.float64], directions: NDArray[np.float64]) -> NDArray[np.float64]:
    """rows · directionsᵀ by plain additions: those of BLAS depend on the processor."""
    products: NDArray[np.float64] = (rows[:, None, :] * directions).sum(axis=2)
    return products


def _clip(
    vertices: NDArray[np.float64], side: NDArray[np.float64], plane: NDArray[np.float64]
) -> NDArray[np.float64] | None:
    """Vertices of the part where side ≥ 0; None where it is too thin for floating point."""
    from scipy.spatial import ConvexHull, QhullError  # slow to import, and only this partition needs it

    inside, outside = np.flatnonzero(side >= 0), np.flatnonzero(side < 0)
    # Every segment between the two sides crosses the cut inside the polytope, and edges are among them:
    # the hull of the kept vertices and all crossings is the half.
    share = side[inside][:, None] / (side[inside][:, None] - side[outside][None, :])
    crossings = vertices[inside][:, None, :] + share[..., None] * (
        vertices[outside][None, :, :] - vertices[inside][:, None, :]
    )
    points = np.vstack([vertices[inside], crossings.reshape(-1, vertices.shape[1])])
    flat = _along(points - points.mean(axis=0), plane)
    scale = np.abs(flat).max()
    if scale < 1e-12:
        return None
    if flat.shape[1] == 1:
        corners = np.array([flat.argmin(), flat.argmax()])
        return _nonnegative(points[corners])
    try:
        corners = np.asarray(ConvexHull(flat / scale).vertices)
    except QhullError:
        return None
    return _nonnegative(points[corners])


def _nonnegative(points: NDArray[np.float64]) -> NDArray[np.float64]:
    clipped = np.maximum(points, 0.0)
    normalised: NDArray[np.float64] = clipped / clipped.sum(axis=1, keepdims=True)
    return normalised


def _not_cut(name: str, cell: Cell, cuts: str, root: str) -> InputError:
    return InputError(f"the partition {name!r} cuts {cuts}, not {type(cell).__name__}; start from {root}")


def simplex_root(
    sources: int, *, minimum: Sequence[float] | None = None, maximum: Sequence[float] | None = None
) -> SimplexCell:
    """The whole simplex by its vertices; minima shrink it by an affine map.

    Parameters
    ----------
    sources
        K.
    minimum
        The least weight of every source.
    maximum
        Refused below 1: such cells cannot keep to it.

    Returns
    -------
    SimplexCell
        The root cell.

    Raises
    ------
    InputError
        If no mixture keeps to the bounds.

    Examples
    --------
    >>> simplex_root(2, minimum=[0.5, 0.0]).vertices.tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    _refuse_maximum(maximum, "bisect and delaunay")
    return SimplexCell(_root_vertices(sources, minimum))


def box_root(
    sources: int, *, minimum: Sequence[float] | None = None, maximum: Sequence[float] | None = None
) -> BoxCell:
    """The whole simplex as a box cell, or the part between per-source minima and maxima.

    Parameters
    ----------
    sources
        K.
    minimum
        The least weight of every source.
    maximum
        The greatest weight of every source.

    Returns
    -------
    BoxCell
        The root cell.

    Raises
    ------
    InputError
        If no mixture keeps to the bounds.

    Examples
    --------
    >>> box_root(2, maximum=[0.25, 1.0]).lower.tolist()
    [0.0, 0.75]
    """
    _check_count(sources)
    lower = check_minimum(minimum, sources)
    upper = check_maximum(maximum, lower)
    if 1.0 - lower.sum() < _ROUNDING:
        return BoxCell(lower, lower)
    if upper.sum() - 1.0 < _ROUNDING:
        return BoxCell(upper, upper)
    return BoxCell(lower, upper).tightened()


def polytope_root(
    sources: int, *, minimum: Sequence[float] | None = None, maximum: Sequence[float] | None = None
) -> PolytopeCell:
    """The whole simplex as a polytope of at most five sources; minima shrink it by an affine map.

    Parameters
    ----------
    sources
        K.
    minimum
        The least weight of every source.
    maximum
        Refused below 1: such cells cannot keep to it.

    Returns
    -------
    PolytopeCell
        The root cell.

    Raises
    ------
    InputError
        If no mixture keeps to the bounds.
    """
    _refuse_maximum(maximum, "halve_polytope")
    if sources > _POLYTOPE_SOURCES:
        raise InputError(
            f"halve_polytope takes at most {_POLYTOPE_SOURCES} sources, not {sources}; use halve"
        )
    return PolytopeCell(_root_vertices(sources, minimum))


def _root_vertices(sources: int, minimum: Sequence[float] | None) -> NDArray[np.float64]:
    _check_count(sources)
    lower = check_minimum(minimum, sources)
    free = 1.0 - lower.sum()
    vertices: NDArray[np.float64] = lower + (free if free >= _ROUNDING else 0.0) * np.eye(sources)
    return vertices


def _check_count(sources: int) -> None:
    if sources < 1:
        raise InputError(f"a simplex needs at least one source; got {sources}")


def _refuse_maximum(maximum: Sequence[float] | None, names: str) -> None:
    if maximum is not None and not all(bound >= 1 for bound in maximum):
        raise InputError(f"maximum weights work with the partition 'halve' only, not with {names}")


def is_random(partition: Partition) -> bool:
    """Whether a partition uses its seed; one that is not known may."""
    return partition not in (bisect, delaunay)


@dataclass(frozen=True, slots=True)
class Partitioning:
    """A partition with the root cell that it starts from."""

    split: Partition
    root: Callable[..., Cell]


PARTITIONS = {
    "bisect": Partitioning(bisect, simplex_root),
    "delaunay": Partitioning(delaunay, simplex_root),
    "halve": Partitioning(halve, box_root),
    "halve_polytope": Partitioning(halve_polytope, polytope_root),
}
"""The partitions by name."""
