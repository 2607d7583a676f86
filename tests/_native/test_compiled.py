from __future__ import annotations

import sys
from itertools import combinations
from math import dist
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree._native import compiled
from mixtree.metrics import AUROC, HAND_TILL, absent_classes
from mixtree.partition import _bisect_few, bisect, simplex_root
from mixtree.seeds import derive_seed
from mixtree.simplex import SimplexCell
from mixtree.trainer import Evaluation
from mixtree.tree import Trial
from mixtree.tree_search import TreeSearch

if None in (compiled.bisected, compiled.mean, compiled.derived, compiled.add_pairs, compiled.add_area_terms):
    pytest.skip("the package was built without a C compiler or Python's headers", allow_module_level=True)

WEIGHTS = st.floats(0, 1) | st.floats(0, 1e-300) | st.sampled_from([0.0, 0.25, 0.5, 1.0])


@st.composite
def corners(draw: st.DrawFn) -> compiled.Corners:
    """Cells that a search makes, and any other tuples of numbers."""
    count = draw(st.integers(1, 8))
    if draw(st.booleans()):
        cell = simplex_root(count)
        for side in draw(st.lists(st.integers(0, 1), max_size=120)):
            halves = bisect(cell)
            if not halves:
                break
            cell = halves[side]  # type: ignore[assignment]
        return tuple(map(tuple, cell.vertices.tolist()))
    width = draw(st.integers(1, 12))
    row = st.lists(WEIGHTS, min_size=width, max_size=width).map(tuple)
    return tuple(draw(st.lists(row, min_size=count, max_size=count)))


def _clear(rows: compiled.Corners) -> bool:
    """Whether no edge is so nearly as long as the longest that rounding says which of them is taken."""
    lengths = [dist(one, two) for one, two in combinations(rows, 2)]
    least = max(lengths, default=0.0) * (1.0 - 0.5e-9)
    return all(abs(length - least) > 1e-14 * least or length == least == 0.0 for length in lengths)


@given(corners())
def test_the_compiled_halves_are_those_of_python(rows: compiled.Corners) -> None:
    if len(rows) > 1 and _clear(rows):
        assert compiled.bisected is not None
        assert compiled.bisected(rows) == _bisect_few(rows)


@given(corners())
def test_the_compiled_mean_is_that_of_python_and_numpy(rows: compiled.Corners) -> None:
    assert compiled.mean is not None
    found = compiled.mean(rows)
    assert found == SimplexCell(rows).representative.tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "mean", None)
        assert found == SimplexCell(rows).representative.tolist()
    if len(rows[0]) > 1:  # a single column is summed up in another order
        assert found == (np.add.reduce(np.array(rows), axis=0) / len(rows)).tolist()


@given(st.integers(0, 2**66), st.lists(st.integers(0, 60) | st.integers(0, 2**65), max_size=150))
def test_the_compiled_seed_is_that_of_python(seed: int, path: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "derived", None)
        plain = derive_seed(seed, tuple(path), 2)
    assert derive_seed(seed, tuple(path), 2) == plain
    assert compiled.derived is not None
    fits = max(seed, *path) < 2**64 if path else seed < 2**64
    assert compiled.derived(seed, tuple(path), 2) == (plain if fits else None)


@pytest.mark.parametrize(
    "given",
    [
        [[1.0, 0.0], [0.0, 1.0]],
        ((1, 0), (0, 1)),
        ((1.0, 0.0), [0.0, 1.0]),
        ((1.0, 0.0), (0.0,)),
        ((np.float64(1.0), 0.0), (0.0, 1.0)),
        (),
        np.eye(2),
        tuple(map(tuple, np.eye(9).tolist())),
        ((0.0,) * 65, (1.0,) * 65),
        "ab",
        None,
    ],
)
def test_what_is_not_plain_is_left_to_python(given: Any) -> None:
    assert compiled.bisected is not None and compiled.mean is not None
    assert compiled.bisected(given) is None
    assert compiled.mean(given) is None


@pytest.mark.parametrize("seed", [-1, True, 1.0, "1", None, np.int64(1)])
def test_a_seed_that_is_not_plain_is_left_to_python(seed: Any) -> None:
    assert compiled.derived is not None
    assert compiled.derived(seed, (0,), 0) is None
    assert compiled.derived(0, (seed,), 0) is None
    assert compiled.derived(0, [0], 0) is None
    with pytest.raises(TypeError, match="3 arguments"):
        compiled.derived(0, (0,))  # type: ignore[call-arg]


def test_nothing_is_kept_of_what_was_computed() -> None:
    rows = simplex_root(4).vertices
    plain = tuple(map(tuple, rows.tolist()))

    def blocks(times: int) -> int:
        before = sys.getallocatedblocks()
        for number in range(times):
            assert (
                compiled.bisected is not None and compiled.mean is not None and compiled.derived is not None
            )
            compiled.bisected(plain)
            compiled.mean(plain)
            compiled.derived(number, (number,), 0)
            compiled.bisected((plain[0], plain[0]))
        return sys.getallocatedblocks() - before

    blocks(100)
    assert blocks(10_000) < 5_000  # other threads may keep a few


def test_a_search_is_the_same_without_the_compiled_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> list[Trial]:
        search, found = TreeSearch(simplex_root(4), bisect, budget=4_000, steps=20), list[Trial]()
        while trials := search.ask():
            found += trials
            for trial in trials:
                value = float(np.sin(1e3 * trial.mixture).sum())
                search.tell(trial, Evaluation(value + derive_seed(0, trial.path) / 2**64, 0.1))
        return found

    quick = asked()
    for name in ("bisected", "mean", "derived"):
        monkeypatch.setattr(compiled, name, None)
    slow = asked()
    assert [trial.path for trial in quick] == [trial.path for trial in slow]
    assert all(np.array_equal(a.mixture, b.mixture) for a, b in zip(quick, slow, strict=True))


# ----------------------------------------------------------------------------------------------------- areas


@given(
    models=st.integers(1, 4),
    rows=st.integers(2, 60),
    classes=st.integers(2, 5),
    levels=st.sampled_from([1, 2, 10, 10**9]),
    single=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_the_compiled_areas_are_those_of_numpy(
    models: int, rows: int, classes: int, levels: int, single: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=rows)
    y[:2] = 0, 1
    stack = rng.integers(levels, size=(models, rows, classes)) / levels - 0.5  # zeros of either sign
    stack = stack.astype(np.float32 if single else np.float64) * rng.choice([-1.0, 1.0], size=stack.shape)
    metric = AUROC if classes == 2 else HAND_TILL
    assert metric.contributions is not None
    with absent_classes():
        values, terms = metric.values(y, stack), metric.contributions(y, stack)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiled, "add_pairs", None)
            patch.setattr(compiled, "add_area_terms", None)
            assert values.tolist() == metric.values(y, stack).tolist()  # whole numbers of pairs: bit for bit
            assert terms == pytest.approx(metric.contributions(y, stack), rel=1e-12, abs=1e-12)


def _arrays() -> dict[str, Any]:
    scores = np.array([[0.5, 0.1, 0.9]])
    own, shares = np.array([0.0, 1.0]), np.array([0.5, 0.0])
    return {
        "scores": scores,
        "order": scores.argsort(axis=1),
        "labels": np.array([0, 0, 1]),
        "own": own,
        "shares": shares,
        "sums": np.zeros((1, 3)),
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"labels": np.array([0, 0, 2])},
        {"labels": np.array([0, -1, 1])},
        {"labels": np.array([0, 1])},
        {"labels": np.array([], dtype=np.int64)},
        {"order": np.array([[0, 1, 3]])},
        {"order": np.array([[0, 1, -1]])},
        {"order": np.array([[0, 1]])},
        {"scores": np.zeros((2, 3))},
        {"shares": np.zeros(3)},
        {"sums": np.zeros((1, 4))},
    ],
    ids=str,
)
def test_arrays_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    assert compiled.add_area_terms is not None and compiled.add_pairs is not None
    given = _arrays()
    compiled.add_area_terms(*given.values())
    assert given["sums"].tolist() == [[1.0, 1.0, 1.0]]
    with pytest.raises(ValueError, match="do not fit"):
        compiled.add_area_terms(*(given | wrong).values())
    sums = {"sums": np.zeros((1, 2))}
    compiled.add_pairs(*(given | sums).values())
    assert sums["sums"].tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="do not fit"):
        compiled.add_pairs(*(given | sums | wrong).values())


def test_what_is_no_array_is_refused() -> None:
    assert compiled.add_area_terms is not None
    given = _arrays()
    with pytest.raises(TypeError, match="bytes-like"):
        compiled.add_area_terms(*(given | {"labels": [0, 0, 1]}).values())
    with pytest.raises(TypeError, match="6 arguments"):
        compiled.add_area_terms(given["scores"])  # type: ignore[call-arg]
    given["sums"].flags.writeable = False
    with pytest.raises((ValueError, BufferError), match=r"read-only|writ"):
        compiled.add_area_terms(*given.values())


@pytest.mark.parametrize(
    ("corners", "points", "width", "distances"),
    [
        (np.ones((2, 3)), np.ones((4, 3)), 3, np.zeros(5)),
        (np.ones((2, 3)), np.ones((4, 2)), 3, np.zeros(4)),
        (np.ones((2, 3)), np.ones((4, 3)), 0, np.zeros(4)),
        (np.ones((2, 3)), np.ones((4, 3)), -1, np.zeros(4)),
        (np.ones((0, 3)), np.ones((4, 3)), 3, np.zeros(4)),
    ],
    ids=["distances", "points", "no width", "negative", "no corners"],
)
def test_hulls_and_points_that_do_not_fit_are_refused(
    corners: Any, points: Any, width: int, distances: Any
) -> None:
    assert compiled.hull_distances is not None
    with pytest.raises(ValueError, match="do not fit"):
        compiled.hull_distances(corners, points, width, distances)


def test_points_that_are_no_numbers_have_no_distance() -> None:
    assert compiled.hull_distances is not None
    distances = np.zeros(3)
    points = np.array([[0.5, 0.5], [np.nan, 0.0], [2.0, 0.0]])
    compiled.hull_distances(np.eye(2), points, 2, distances)
    assert distances == pytest.approx([0.0, np.nan, 1.0], nan_ok=True)
