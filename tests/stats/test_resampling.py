from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mixtree._native import compiled
from mixtree.stats.resampling import (
    RESAMPLES,
    _add_resamples,
    _resampled,
    class_scores,
    of_gap_of_roots,
    of_mean,
)

Floats = NDArray[np.float64]


def counts_of(rows: int, key: int, add: object = _add_resamples) -> Floats:
    """How often every resample has every row."""
    sums = np.zeros((200, rows))
    add(np.eye(rows), rows, key, sums)  # type: ignore[operator]
    return sums


@given(rows=st.integers(1, 40), key=st.integers(0, 2**63 - 1))
def test_every_resample_has_as_many_rows_as_there_are(rows: int, key: int) -> None:
    counts = counts_of(rows, key)
    assert (counts.sum(axis=1) == rows).all() and (counts >= 0).all()


@pytest.mark.parametrize("rows", [2, 7, 100])
def test_resamples_are_independent_draws_of_rows(rows: int) -> None:
    found = np.concatenate([counts_of(rows, key) for key in range(50)])  # 10,000 resamples
    assert found.mean(axis=0) == pytest.approx(np.ones(rows), abs=0.06)
    assert found.var(axis=0) == pytest.approx(np.full(rows, 1 - 1 / rows), rel=0.15)
    after = np.corrcoef(found[1:, 0], found[:-1, 0])[0, 1]
    assert abs(after) < 0.05
    assert np.cov(found[:, 0], found[:, 1])[0, 1] == pytest.approx(-1 / rows, abs=0.05)


@given(rows=st.integers(1, 60), columns=st.integers(1, 6), key=st.integers(0, 2**63 - 1))
def test_the_compiled_resamples_are_those_of_numpy(rows: int, columns: int, key: int) -> None:
    if compiled.add_resamples is None:
        pytest.skip("the package was built without a C compiler or Python's headers")
    assert np.array_equal(counts_of(rows, key), counts_of(rows, key, compiled.add_resamples))
    table = np.random.default_rng(key).standard_normal((rows, columns))
    one, two = np.zeros((30, columns)), np.zeros((30, columns))
    _add_resamples(table, columns, key, one)
    compiled.add_resamples(table, columns, key, two)
    assert one == pytest.approx(two, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ((np.zeros((4, 2)), 0, 1, np.zeros((3, 2))), ValueError),
        ((np.zeros((4, 2)), -2, 1, np.zeros((3, 2))), ValueError),
        ((np.zeros((4, 2)), 2**61 + 1, 1, np.zeros((3, 2))), ValueError),
        ((np.zeros((4, 2)), 3, 1, np.zeros((3, 3))), ValueError),
        ((np.zeros((4, 2)), 2, 1, np.zeros((3, 1))), ValueError),
        ((np.zeros((0, 2)), 2, 1, np.zeros((3, 2))), ValueError),
        ((np.zeros((4, 2)), 2, -1, np.zeros((3, 2))), TypeError),
        ((np.zeros((4, 2)), 2.0, 1, np.zeros((3, 2))), TypeError),
        ((np.zeros((4, 2)), 2, 1), TypeError),
        ((None, 2, 1, np.zeros((3, 2))), TypeError),
        ((np.zeros((4, 2)), 2, 1, bytes(48)), BufferError),
    ],
)
def test_arrays_that_do_not_fit_are_refused(given: tuple[object, ...], error: type[Exception]) -> None:
    if compiled.add_resamples is None:
        pytest.skip("the package was built without a C compiler or Python's headers")
    with pytest.raises(error):
        compiled.add_resamples(*given)  # type: ignore[arg-type]


def plain_scores(one: Floats, two: Floats | None, rng: np.random.Generator) -> Floats:
    """Bootstrap-t scores, one resample at a time and by the textbook; of a mean, or of a gap of roots."""

    def value_and_error(rows: NDArray[np.int64]) -> tuple[float, float]:
        if two is None:
            return float(one[rows].mean()), float(one[rows].std(ddof=1)) / np.sqrt(len(rows))
        roots = np.sqrt(one[rows].mean()), np.sqrt(two[rows].mean())
        terms = one[rows] / (2 * roots[0]) - two[rows] / (2 * roots[1])
        return float(roots[0] - roots[1]), float(terms.std(ddof=1)) / np.sqrt(len(rows))

    centre = value_and_error(np.arange(len(one)))[0]
    draws = [value_and_error(rng.integers(len(one), size=len(one))) for _ in range(4_000)]
    return np.array([(value - centre) / error for value, error in draws])


@pytest.mark.parametrize("roots", [False, True])
def test_bounds_are_those_of_the_textbook(roots: bool) -> None:
    rng = np.random.default_rng(0)
    one = rng.lognormal(size=80)
    two = one * rng.lognormal(sigma=0.5, size=80)
    scores = plain_scores(one, two if roots else None, rng)
    below, above = np.quantile(scores, [0.7 * 0.025, 1 - 0.7 * 0.025])
    centre = np.sqrt(one.mean()) - np.sqrt(two.mean()) if roots else one.mean()
    terms = one / (2 * np.sqrt(one.mean())) - two / (2 * np.sqrt(two.mean())) if roots else one
    error = terms.std(ddof=1) / np.sqrt(80)
    found = [
        (
            of_gap_of_roots(one, two, np.random.default_rng(seed))
            if roots
            else of_mean(one, np.random.default_rng(seed))
        )(0.05)
        for seed in range(30)
    ]
    low, high = np.mean(found, axis=0)
    assert (centre - low) / error == pytest.approx(max(above, 1.99), rel=0.06)
    assert (high - centre) / error == pytest.approx(max(-below, 1.99), rel=0.06)


def test_bounds_follow_the_unit_of_the_rows() -> None:
    rows = np.random.default_rng(0).exponential(size=60)
    plain = of_mean(rows, np.random.default_rng(1))(0.05)
    for unit in (1e-9, 1e6):
        assert of_mean(unit * rows, np.random.default_rng(1))(0.05) == pytest.approx(np.multiply(unit, plain))


@pytest.mark.parametrize("largest", [1e3, 1e6, 1e10])
def test_a_row_that_dwarfs_the_others_keeps_the_interval_wide(largest: float) -> None:
    """Resamples without it are many, and far from it in their own standard errors."""
    rows = np.random.default_rng(0).exponential(size=100)
    rows[0] = largest
    low, high = of_mean(rows, np.random.default_rng(1))(0.05)
    assert high > 100 * largest / 100 and low < 0


def test_models_that_are_nearly_the_same_or_without_error_are_compared() -> None:
    rng = np.random.default_rng(0)
    one = rng.exponential(size=100)
    wide = of_gap_of_roots(one * (1 + 1e-3 * rng.random(100)), one, np.random.default_rng(1))(0.05)
    rng = np.random.default_rng(0)
    one = rng.exponential(size=100)
    near = of_gap_of_roots(one * (1 + 1e-9 * rng.random(100)), one, np.random.default_rng(1))(0.05)
    assert np.array(near) == pytest.approx(1e-6 * np.array(wide), rel=1e-2)
    none = of_gap_of_roots(np.zeros(100), one, np.random.default_rng(1))(0.05)  # warnings are errors here
    alone = np.sqrt(of_mean(one, np.random.default_rng(1))(0.05))
    assert none == pytest.approx((-alone[1], -alone[0]), rel=0.15)


def test_a_class_of_like_rows_moves_nothing() -> None:
    rng = np.random.default_rng(0)
    terms = rng.random(40)
    alone = class_scores([terms], np.random.default_rng(1))
    beside = class_scores([terms, np.full(3, 0.7)], np.random.default_rng(1))
    assert alone == pytest.approx(beside)
    assert class_scores([np.full(9, 0.3)], rng).tolist() == [0.0]


def test_sums_do_not_depend_on_the_other_columns() -> None:
    one, two = np.random.default_rng(0).random((2, 50))
    both = _resampled([one, two], np.random.default_rng(3))
    assert both.shape == (RESAMPLES, 2)
    assert both[:, 0] == pytest.approx(_resampled([one], np.random.default_rng(3))[:, 0], rel=1e-12)
