from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from math import factorial, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from mixtree.errors import InputError
from mixtree.partition import (
    PARTITIONS,
    _principal_axes,
    bisect,
    box_root,
    delaunay,
    halve,
    halve_polytope,
    polytope_root,
    simplex_root,
)
from mixtree.seeds import derive_seed
from mixtree.simplex import BoxCell, Cell, PolytopeCell, SimplexCell

SEEDS = st.integers(0, 2**32)
QUICK = settings(max_examples=25, deadline=None)
# A cell much smaller than this has no room for a test of what is inside and what is not.
ROOMY = 1e-5


def walk(
    name: str, sources: int, depth: int, seed: int, **constraints: Any
) -> Iterator[tuple[int, Cell, Sequence[Cell]]]:
    """(height, cell, children) down a random path; ends early at a final cell."""
    rng = np.random.default_rng(seed)
    cell, path = PARTITIONS[name].root(sources, **constraints), ()
    for height in range(depth):
        children = PARTITIONS[name].split(cell, derive_seed(seed, path))
        yield height, cell, children
        if not children:
            return
        pick = int(rng.integers(len(children)))
        cell, path = children[pick], (*path, pick)


def vertices_of(cell: Cell) -> NDArray[np.float64]:
    assert isinstance(cell, SimplexCell | PolytopeCell)
    return cell.vertices


def check_numbers(cell: Cell) -> None:
    """Every weight that a cell speaks of is at least 0, every mixture sums to 1."""
    representative = cell.representative
    assert representative.min() >= 0
    assert abs(representative.sum() - 1) < 1e-9
    if isinstance(cell, BoxCell):
        assert np.isfinite(cell.lower).all()
        assert cell.lower.min() >= 0
        assert cell.upper.max() <= 1
        low, high = cell.lower, cell.upper
    else:
        vertices = vertices_of(cell)
        assert vertices.min() >= 0
        assert np.abs(vertices.sum(axis=1) - 1).max() < 1e-9
        low, high = vertices.min(axis=0), vertices.max(axis=0)
    assert (low - 1e-15 <= representative).all()
    assert (representative <= high + 1e-15).all()


def roomy(cell: Cell) -> bool:
    """Whether the cell is thick enough to test what is inside it."""
    if isinstance(cell, BoxCell):
        width = cell.upper - cell.lower
        return bool(width.min() > ROOMY)
    return cell.diameter() > ROOMY


def random_points(cell: Cell, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Points of a cell, drawn without the partition's help."""
    if not isinstance(cell, BoxCell):
        vertices = vertices_of(cell)
        return rng.dirichlet(np.ones(len(vertices)), count) @ vertices
    # From the representative in random directions of sum 0, up to where the box ends.
    centre = cell.representative
    directions = rng.standard_normal((count, len(centre)))
    directions -= directions.mean(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(directions > 0, cell.upper - centre, cell.lower - centre) / directions
    reach = np.nanmin(np.where(directions == 0, np.inf, room), axis=1)
    return centre + (reach * rng.random(count))[:, None] * directions


# ------------------------------------------------------------------------------- volumes, exactly


def fraction_determinant(rows: list[list[Fraction]]) -> Fraction:
    if not rows:
        return Fraction(1)
    total = Fraction(0)
    for column, head in enumerate(rows[0]):
        if head:
            minor = [row[:column] + row[column + 1 :] for row in rows[1:]]
            total += (-1) ** column * head * fraction_determinant(minor)
    return total


def simplex_volume(cell: Cell) -> Fraction:
    """Volume of a simplex cell in its first K − 1 coordinates, exactly, as a share of the whole simplex."""
    points = [[Fraction(float(x)) for x in row[:-1]] for row in vertices_of(cell)]
    return abs(fraction_determinant([[a - b for a, b in zip(p, points[0], strict=True)] for p in points[1:]]))


def polytope_volume(cell: Cell) -> float:
    flat = vertices_of(cell)[:, :-1]
    volume = np.ptp(flat[:, 0]) if flat.shape[1] == 1 else ConvexHull(flat).volume
    return float(volume) * factorial(flat.shape[1])


def box_volume(cell: Cell) -> Fraction:
    """Inclusion and exclusion of the upper bounds: Σ_S (−1)^|S| (1 − Σ_{i∉S} l_i − Σ_{i∈S} u_i)₊^(K−1)."""
    assert isinstance(cell, BoxCell)
    lower, upper = ([Fraction(float(x)) for x in bounds] for bounds in (cell.lower, cell.upper))
    sources, total = len(lower), Fraction(0)
    for size in range(sources + 1):
        for chosen in combinations(range(sources), size):
            rest = 1 - sum(upper[i] if i in chosen else lower[i] for i in range(sources))
            total += (-1) ** size * max(rest, Fraction(0)) ** (sources - 1)
    return total


@QUICK
@given(st.integers(2, 5), st.integers(1, 40), SEEDS)
def test_bisect_halves_the_volume_exactly(sources: int, depth: int, seed: int) -> None:
    # Midpoints of dyadic points are exact in floating point this far down.
    for _, cell, children in walk("bisect", sources, depth, seed):
        assert [simplex_volume(child) * 2 for child in children] == [simplex_volume(cell)] * 2


@QUICK
@given(st.integers(2, 5), st.integers(1, 10), SEEDS)
def test_delaunay_gives_k_equal_volumes_that_add_up_exactly(sources: int, depth: int, seed: int) -> None:
    for _, cell, children in walk("delaunay", sources, depth, seed):
        volumes = [simplex_volume(child) for child in children]
        assert len(volumes) == sources
        assert sum(volumes) == simplex_volume(cell)
        share = float(simplex_volume(cell)) / sources
        assert [float(volume) for volume in volumes] == pytest.approx([share] * sources, rel=1e-6)


@QUICK
@given(st.integers(2, 5), st.integers(1, 8), SEEDS)
def test_halve_volumes_add_up(sources: int, depth: int, seed: int) -> None:
    for _, cell, children in walk("halve", sources, depth, seed):
        assert len(children) == 2
        assert float(sum(map(box_volume, children))) == pytest.approx(float(box_volume(cell)), rel=1e-9)
        assert min(map(box_volume, children)) > 0


@QUICK
@given(st.integers(2, 5), st.integers(1, 8), SEEDS)
def test_halve_polytope_volumes_add_up(sources: int, depth: int, seed: int) -> None:
    for _, cell, children in walk("halve_polytope", sources, depth, seed):
        assert len(children) == 2
        assert sum(map(polytope_volume, children)) == pytest.approx(polytope_volume(cell), rel=1e-6)


@pytest.mark.parametrize("sources", range(2, 6))
def test_polytope_axes_at_the_simplex_are_the_coordinates(sources: int) -> None:
    """All singular values are equal there: any basis would do, and LAPACK's depends on the processor."""
    expected = []
    for j in range(sources - 1):
        # Coordinate j against the mean of those after it.
        axis = np.r_[np.zeros(j), sources - 1 - j, -np.ones(sources - 1 - j)]
        expected.append(axis / np.linalg.norm(axis))
    found = _principal_axes(np.eye(sources) - 1 / sources)
    assert found == pytest.approx(np.array(expected), abs=1e-15)


@QUICK
@given(st.integers(2, 5), st.integers(5, 30), SEEDS)
def test_polytope_axes_are_principal(sources: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spread = rng.dirichlet(np.ones(sources), rows) * rng.choice([1.0, 1e-9])
    spread -= spread.mean(axis=0)
    axes = _principal_axes(spread)
    assert axes @ axes.T == pytest.approx(np.eye(sources - 1), abs=1e-12)
    assert axes.sum(axis=1) == pytest.approx(np.zeros(sources - 1), abs=1e-12)
    lengths = np.linalg.norm(spread @ axes.T, axis=0)
    assert lengths == pytest.approx(np.linalg.svd(spread)[1][: sources - 1], rel=1e-6, abs=1e-9 * lengths[0])
    assert np.array_equal(_principal_axes(-spread[::-1]), axes), "signs are fixed, too"


def test_polytope_cells_do_not_depend_on_the_linear_algebra_library() -> None:
    code = """
import hashlib, numpy
from threadpoolctl import threadpool_info
from mixtree.partition import halve_polytope, polytope_root
found = hashlib.sha256()
for sources in (2, 3, 4, 5):
    cells = [polytope_root(sources)]
    for height in range(5):
        cells = [half for cell in cells[:6] for half in halve_polytope(cell, seed=height)]
        for cell in cells:
            found.update(cell.vertices.tobytes())
print([each.get("architecture") for each in threadpool_info()], found.hexdigest(), sep=";")
"""
    # Prescott's kernels run on every x86-64 processor; Haswell's need AVX2.
    answers = []
    for core in ("Haswell", "Prescott"):
        environment = {**os.environ, "OPENBLAS_CORETYPE": core}
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        if run.returncode < 0:
            pytest.skip(f"this processor cannot run OpenBLAS as {core}: signal {-run.returncode}")
        assert run.returncode == 0, run.stderr
        answers.append(run.stdout.strip().split(";"))
    if answers[0][0] == answers[1][0]:
        pytest.skip(f"this BLAS does not look at OPENBLAS_CORETYPE: {answers[0][0]} both times")
    assert answers[0][1] == answers[1][1]


def test_the_volumes_of_roots_are_one() -> None:
    for sources in range(2, 6):
        assert simplex_volume(simplex_root(sources)) == 1
        assert box_volume(box_root(sources)) == 1
        assert polytope_volume(polytope_root(sources)) == pytest.approx(1)


# ------------------------------------------------------------------------- random paths, any K


@QUICK
@given(st.sampled_from(["bisect", "delaunay", "halve"]), st.integers(1, 50), st.integers(1, 200), SEEDS)
def test_every_cell_of_a_random_path_holds_mixtures(name: str, sources: int, depth: int, seed: int) -> None:
    for _, cell, children in walk(name, sources, depth, seed):
        check_numbers(cell)
        for child in children:
            check_numbers(child)


@QUICK
@given(st.integers(1, 5), st.integers(1, 60), SEEDS)
def test_every_polytope_of_a_random_path_holds_mixtures(sources: int, depth: int, seed: int) -> None:
    for _, cell, children in walk("halve_polytope", sources, depth, seed):
        check_numbers(cell)
        for child in children:
            check_numbers(child)


@pytest.mark.parametrize("name", ["bisect", "delaunay", "halve"])
@pytest.mark.parametrize("sources", [50, 100])
def test_many_sources_deep_down(name: str, sources: int) -> None:
    cells = [cell for _, cell, _ in walk(name, sources, 200, seed=1)]
    assert len(cells) == 200
    check_numbers(cells[-1])


@QUICK
@given(
    st.sampled_from(["bisect", "delaunay", "halve"]), st.integers(2, 50), st.sampled_from([1, 20, 200]), SEEDS
)
def test_a_point_of_the_parent_lies_in_exactly_one_child(
    name: str, sources: int, depth: int, seed: int
) -> None:
    if name == "delaunay":
        depth = min(depth, 8)  # its cells become slivers, in which nothing can be told apart
    rng = np.random.default_rng(seed)
    for height, cell, children in walk(name, sources, depth, seed):
        if not roomy(cell) or (height % 10 and height != depth - 1):
            continue
        points = random_points(cell, rng, 20)
        homes = np.array([child.contains(points) for child in children]).sum(axis=0)
        assert cell.contains(points).all()
        assert homes.min() >= 1
        # A point may lie on a boundary within the tolerance, but hardly by chance.
        assert (homes == 1).mean() >= 0.9


@QUICK
@given(st.integers(2, 5), SEEDS)
def test_a_point_of_a_polytope_lies_in_exactly_one_half(sources: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _, cell, children in walk("halve_polytope", sources, 4, seed):
        points = random_points(cell, rng, 4)
        homes = np.array([child.contains(points) for child in children]).sum(axis=0)
        assert homes.min() >= 1
        assert (homes == 1).mean() >= 0.75


@QUICK
@given(st.integers(6, 50), SEEDS)
def test_sampled_volumes_of_halves_add_up_for_many_sources(sources: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.dirichlet(np.ones(sources), 2000)
    for _, cell, (low, high) in walk("halve", sources, 5, seed):
        inside = cell.contains(points)
        assert (inside == (low.contains(points) ^ high.contains(points))).all()


@QUICK
@given(st.sampled_from(["bisect", "delaunay", "halve", "halve_polytope"]), st.integers(2, 5), SEEDS)
def test_the_representative_lies_inside(name: str, sources: int, seed: int) -> None:
    for _, cell, _ in walk(name, sources, 8, seed):
        assert cell.contains(cell.representative[None]).all()


@QUICK
@given(st.sampled_from(["bisect", "halve"]), st.integers(6, 50), st.integers(1, 200), SEEDS)
def test_the_representative_lies_inside_for_many_sources(
    name: str, sources: int, depth: int, seed: int
) -> None:
    *_, (_, cell, _) = walk(name, sources, depth, seed)
    assert cell.contains(cell.representative[None]).all()


@QUICK
@given(st.integers(2, 50), st.integers(1, 200), SEEDS)
def test_bisect_keeps_both_diameter_bounds(sources: int, depth: int, seed: int) -> None:
    for height, cell, _ in walk("bisect", sources, depth, seed):
        if sources <= 10 or height % 10 == 0 or height == depth - 1:
            shrink = sqrt(3) / 2
            assert cell.diameter() <= sqrt(2) * shrink ** (height // (sources - 1)) + 1e-12
            assert cell.diameter(1) <= sqrt(2 * sources) * shrink ** (height / (sources - 1) - 1) + 1e-12


def test_delaunay_does_not_shrink() -> None:
    cell: Cell = simplex_root(3)
    for _ in range(30):
        cell = delaunay(cell)[0]
    assert cell.diameter() == pytest.approx(sqrt(2))


@QUICK
@given(st.sampled_from(sorted(PARTITIONS)), st.integers(2, 5), SEEDS)
def test_the_same_seed_cuts_the_same_way(name: str, sources: int, seed: int) -> None:
    for (_, one, _), (_, two, _) in zip(
        walk(name, sources, 6, seed), walk(name, sources, 6, seed), strict=True
    ):
        assert np.array_equal(one.representative, two.representative)


@pytest.mark.parametrize(("split", "root"), [(halve, box_root(5)), (halve_polytope, polytope_root(5))])
def test_the_random_partitions_cut_every_way(split: Any, root: Cell) -> None:
    # A cut of the symmetric root shows which coordinate (or axis) was drawn: 5 of them, or 4 axes.
    children = {tuple(split(root, seed)[0].representative.round(9)) for seed in range(60)}
    assert len(children) >= 4


# ----------------------------------------------------------------------------------- by hand


def test_bisect_by_hand() -> None:
    # All edges of the root are equally long: the smallest pair is (0, 1).
    left, right = bisect(simplex_root(3))
    assert vertices_of(left).tolist() == [[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]
    assert vertices_of(right).tolist() == [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]
    # Now (1, 2) is the longest edge on the left, (0, 2) on the right.
    assert vertices_of(bisect(left)[0]).tolist() == [[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]]
    assert vertices_of(bisect(right)[1]).tolist() == [[1, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]]


@given(st.integers(3, 8), st.floats(-3e-16, 3e-16), st.integers(0, 12))
@settings(deadline=None)
def test_ties_of_bisect_are_relative(sources: int, noise: float, tenths: int) -> None:
    # A tiny regular simplex whose edge (0, 1) is a rounding error shorter than the others.
    size = 10.0**-tenths
    centre = np.full(sources, 1 / sources)
    vertices = centre + size * (np.eye(sources) - centre)
    vertices[0] += size * noise * (np.eye(sources)[1] - np.eye(sources)[0])
    left, _ = bisect(SimplexCell(vertices))
    changed = np.flatnonzero((vertices_of(left) != vertices).any(axis=1))
    assert changed.tolist() == [0]
    assert vertices_of(left)[0] == pytest.approx((vertices[0] + vertices[1]) / 2)


def test_delaunay_by_hand() -> None:
    first, second, third = (vertices_of(child) for child in delaunay(simplex_root(3)))
    assert first == pytest.approx(np.array([[1 / 3] * 3, [0, 1, 0], [0, 0, 1]]))
    assert second == pytest.approx(np.array([[1, 0, 0], [1 / 3] * 3, [0, 0, 1]]))
    assert third == pytest.approx(np.array([[1, 0, 0], [0, 1, 0], [1 / 3] * 3]))


def test_halve_by_hand() -> None:
    seen = set()
    for seed in range(30):
        low, high = (child for child in halve(box_root(3), seed))
        assert isinstance(low, BoxCell)
        assert isinstance(high, BoxCell)
        axis = int(low.upper.argmin())
        seen.add(axis)
        others = [k for k in range(3) if k != axis]
        assert low.upper[axis] == pytest.approx(1 / 3)
        assert high.lower[axis] == pytest.approx(1 / 3)
        assert high.upper[others] == pytest.approx([2 / 3] * 2)  # tightened: the rest is taken
        assert low.lower.tolist() == [0, 0, 0]
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_two_sources_are_a_halved_interval(name: str) -> None:
    children = PARTITIONS[name].split(PARTITIONS[name].root(2), 0)
    points = sorted(child.representative.tolist() for child in children)
    assert np.array(points) == pytest.approx(np.array([[0.25, 0.75], [0.75, 0.25]]))


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_one_source_is_final(name: str) -> None:
    root = PARTITIONS[name].root(1)
    assert root.representative.tolist() == [1.0]
    assert len(PARTITIONS[name].split(root, 0)) == 0


# ------------------------------------------------------------------------------- final cells


def test_a_cell_whose_split_point_is_an_end_is_final() -> None:
    above = np.nextafter(0.25, 1)
    thin = SimplexCell(np.array([[0.25, 0.75], [above, 0.75]]))
    assert len(bisect(thin)) == 0
    assert len(delaunay(thin)) == 0
    point = SimplexCell(np.array([[0.2, 0.3, 0.5]] * 3))
    assert len(bisect(point)) == 0
    assert len(delaunay(point)) == 0
    assert len(halve(BoxCell(np.array([0.25, 0.75]), np.array([above, 0.75])), 0)) == 0
    assert len(halve(BoxCell(np.array([0.2, 0.3, 0.5]), np.array([0.2, 0.3, 0.5])), 0)) == 0
    assert len(halve_polytope(PolytopeCell(np.array([[0.2, 0.3, 0.5]] * 3)), 0)) == 0


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_a_path_into_the_interior_of_an_interval_ends_in_a_final_cell(name: str) -> None:
    partitioning = PARTITIONS[name]
    cell = partitioning.root(2)
    goal = np.array([0.3, 0.7])
    for _ in range(80):
        children = partitioning.split(cell, 0)
        if not children:
            break
        cell = min(children, key=lambda child: abs(child.representative - goal).sum())
    assert len(partitioning.split(cell, 0)) == 0
    assert cell.diameter() < 1e-9
    assert cell.representative == pytest.approx(goal, abs=1e-9)


# ------------------------------------------------------------------------------- constraints


@QUICK
@given(st.sampled_from(sorted(PARTITIONS)), st.integers(1, 5), SEEDS, st.floats(0, 1))
def test_minima_hold_in_every_cell(name: str, sources: int, seed: int, share: float) -> None:
    minimum = share * np.random.default_rng(seed).dirichlet(np.ones(sources))
    root = PARTITIONS[name].root(sources, minimum=minimum.tolist())
    corners = minimum + (1 - minimum.sum()) * np.eye(sources)
    if share < 0.999:
        # Pulled in by a hair: a corner itself may fall out by rounding.
        assert root.contains(0.999 * corners + 0.001 * corners.mean(axis=0)).all()
    for _, cell, _ in walk(name, sources, 10, seed, minimum=minimum.tolist()):
        assert (cell.representative >= minimum - 1e-12).all()
        assert cell.representative.sum() == pytest.approx(1)


@QUICK
@given(st.integers(2, 50), SEEDS)
def test_minima_and_maxima_hold_in_every_box(sources: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inside = rng.dirichlet(np.ones(sources))
    minimum = inside * rng.random(sources)
    maximum = inside + (1 - inside) * rng.random(sources)
    limits = {"minimum": minimum.tolist(), "maximum": maximum.tolist()}
    assert box_root(sources, **limits).contains(inside[None]).all()
    for _, cell, _ in walk("halve", sources, 30, seed, **limits):
        assert (cell.representative >= minimum - 1e-12).all()
        assert (cell.representative <= maximum + 1e-12).all()
        assert cell.representative.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize("minimum", [[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]])  # sums of 1 and of 1 − 1.1e-16
def test_minima_that_leave_one_mixture_make_a_final_root(name: str, minimum: list[float]) -> None:
    root = PARTITIONS[name].root(3, minimum=minimum)
    assert root.representative == pytest.approx(minimum)
    assert len(PARTITIONS[name].split(root, 0)) == 0


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize(
    ("minimum", "message"),
    [
        ([0.5, 0.6], "sum to 1.1, more than 1"),
        ([-0.1, 0.5], "at least 0"),
        ([0.1], "one number per source"),
        ([float("nan"), 0.1], "finite"),
        (["a", "b"], "minimum weights"),
    ],
)
def test_minima_that_cannot_be_met(name: str, minimum: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PARTITIONS[name].root(2, minimum=minimum)


@pytest.mark.parametrize("name", ["bisect", "delaunay", "halve_polytope"])
@pytest.mark.parametrize("maximum", [[0.5, 0.6], [float("nan"), 1.0]])
def test_maxima_are_for_halve_only(name: str, maximum: list[float]) -> None:
    with pytest.raises(InputError, match="'halve' only"):
        PARTITIONS[name].root(2, maximum=maximum)


def test_maxima_that_forbid_nothing_are_no_obstacle() -> None:
    for partitioning in PARTITIONS.values():
        assert partitioning.root(2, maximum=[1.0, 1.0]).representative == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"maximum": [0.4, 0.5]}, "sum to 0.9, less than 1"),
        ({"minimum": [0.5, 0.0], "maximum": [0.4, 1.0]}, "source 0: maximum 0.4 is below minimum 0.5"),
        ({"maximum": [0.4, 1.5]}, "at most 1"),
        ({"maximum": [0.4]}, "one number per source"),
    ],
)
def test_maxima_that_cannot_be_met(limits: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        box_root(2, **limits)


@pytest.mark.parametrize("name", sorted(PARTITIONS))
def test_no_sources(name: str) -> None:
    with pytest.raises(InputError, match="at least one source"):
        PARTITIONS[name].root(0)


def test_cells_of_another_partition() -> None:
    with pytest.raises(InputError, match=r"bisect.*simplex_root"):
        bisect(box_root(3))
    with pytest.raises(InputError, match=r"delaunay.*simplex_root"):
        delaunay(polytope_root(3))
    with pytest.raises(InputError, match=r"halve.*box_root"):
        halve(simplex_root(3))
    with pytest.raises(InputError, match=r"halve_polytope.*polytope_root"):
        halve_polytope(simplex_root(3))


def test_the_authors_halving_takes_five_sources() -> None:
    with pytest.raises(InputError, match="at most 5 sources, not 6; use halve"):
        polytope_root(6)
    with pytest.raises(InputError, match="at most 5 sources, not 6; use halve"):
        halve_polytope(PolytopeCell(np.eye(6)))


@pytest.mark.parametrize("sources", [2, 3, 5, 8])
def test_few_and_many_vertices_are_cut_at_the_same_edge(sources, monkeypatch):
    """Both ways to find the longest edge, down a path of cells; ties go to the first in both."""
    few = many = simplex_root(sources)
    for height in range(40):
        pieces = bisect(few)
        with monkeypatch.context() as patch:
            patch.setattr("mixtree.partition.FEW_VERTICES", 0)
            others = bisect(many)
        for one, two in zip(pieces, others, strict=True):
            np.testing.assert_array_equal(one.vertices, two.vertices)
        few, many = pieces[height * 7 % 3 % 2], others[height * 7 % 3 % 2]
