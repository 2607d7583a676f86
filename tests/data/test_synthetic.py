from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import log_loss

from mixtree.data.sources import Problem, Rows
from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.simplex import as_mixture, uniform_mixture


def pooled(problem: Problem, alpha: Any) -> tuple[Any, Any, Any]:
    """All source rows with the row weights that make them the mixture alpha."""
    rows = problem.sources.rows
    weights = [np.full(len(part), weight / len(part)) for part, weight in zip(rows, alpha, strict=True)]
    x, y, w = (
        np.vstack([part.x for part in rows]),
        np.concatenate([part.y for part in rows]),
        np.concatenate(weights),
    )
    return x, y, np.maximum(w * len(y), 1e-12)


def logistic_loss(problem: Problem, alpha: Any) -> float:
    x, y, w = pooled(problem, alpha)
    model = LogisticRegression(C=1e3, max_iter=1000).fit(x, y, w)
    return float(log_loss(problem.test.y, model.predict_proba(problem.test.x), labels=model.classes_))


def same(left: Rows, right: Rows) -> bool:
    return np.array_equal(left.x, right.x) and np.array_equal(left.y, right.y)


def same_sources(left: Problem, right: Problem) -> bool:
    return all(same(a, b) for a, b in zip(left.sources.rows, right.sources.rows, strict=True))


@settings(max_examples=40, deadline=None)
@given(
    sources=st.integers(1, 8),
    rows=st.integers(1, 40),
    validation=st.integers(1, 20),
    features=st.integers(1, 6),
    kind=st.sampled_from(["logistic", "neural"]),
    hull=st.sampled_from(["inside", "outside"]),
    informative=st.booleans(),
    classes=st.sampled_from([0, 2, 3, 5]),
    seed=st.integers(0, 2**40),
)
def test_every_combination_is_a_well_formed_problem_and_repeats_bit_for_bit(**options: Any) -> None:
    problem, again = (synthetic(test=30, **options) for _ in range(2))
    assert len(problem.sources) == options["sources"]
    assert problem.sources.sizes.tolist() == [options["rows"]] * options["sources"]
    assert len(problem.sources.validation) == options["validation"]
    assert len(problem.test) == 30
    assert problem.test.x.shape[1] == problem.sources.features == options["features"]
    assert problem.test.x.dtype == np.float64
    assert problem.test.y.dtype == (np.int64 if options["classes"] else np.float64)
    assert (problem.alpha is None) == (options["hull"] == "outside")
    if problem.alpha is not None:
        np.testing.assert_allclose(as_mixture(problem.alpha, sources=options["sources"]), problem.alpha)
    assert same_sources(problem, again)
    assert same(problem.sources.validation, again.sources.validation)
    assert same(problem.test, again.test)


def test_another_seed_is_another_problem() -> None:
    first, second = synthetic(seed=0, test=10), synthetic(seed=1, test=10)
    assert not same_sources(first, second)
    assert not np.allclose(first.alpha, second.alpha)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change", [{"validation": 7}, {"test": 11}, {"hull": "outside"}, {"alpha": [0.2, 0.3, 0.5]}], ids=str
)
def test_what_concerns_the_target_leaves_the_sources_as_they_were(change: dict[str, Any]) -> None:
    base = {"rows": 50, "test": 20, "seed": 3}
    assert same_sources(synthetic(**base), synthetic(**{**base, **change}))


def test_a_source_of_another_size_leaves_the_others_as_they_were() -> None:
    small, large = synthetic(rows=[30, 40, 50], test=20), synthetic(rows=[30, 400, 50], test=20)
    assert [len(part) for part in large.sources.rows] == [30, 400, 50]
    assert same(small.sources.rows[0], large.sources.rows[0])
    assert same(small.sources.rows[2], large.sources.rows[2])
    assert same(small.sources.validation, large.sources.validation)
    assert same(small.test, large.test)


def test_no_part_repeats_the_rows_of_another() -> None:
    problem = synthetic(rows=100, test=100)
    parts = [*problem.sources.rows, problem.sources.validation, problem.test]
    x = np.vstack([part.x for part in parts])
    assert len(np.unique(x, axis=0)) == len(x)


@pytest.mark.parametrize("sources", [3, 5])
@pytest.mark.parametrize("informative", [True, False])
def test_the_true_mixture_clearly_beats_uniform(sources: int, informative: bool) -> None:
    gaps = []
    for seed in range(10):
        problem = synthetic(sources=sources, informative=informative, seed=seed)
        assert problem.alpha is not None
        gaps.append(logistic_loss(problem, uniform_mixture(sources)) - logistic_loss(problem, problem.alpha))
    # The standard error of the mean loss of 10,000 test rows is about 0.005; of a paired difference far less.
    assert min(gaps) > 0.005
    assert sum(gap > 0.02 for gap in gaps) >= 7
    assert np.mean(gaps) > 0.04


def test_the_true_mixture_beats_every_single_source_and_every_mixture_some_way_off() -> None:
    problem = synthetic(alpha=[0.5, 0.15, 0.35], rows=5000)
    best = logistic_loss(problem, problem.alpha)
    for corner in np.eye(3):
        assert logistic_loss(problem, corner) > best + 0.02
        assert logistic_loss(problem, 0.6 * np.array([0.5, 0.15, 0.35]) + 0.4 * corner) > best + 0.002


@pytest.mark.parametrize("kind", ["logistic", "neural"])
def test_a_regression_and_many_classes_have_a_mixture_that_matters_too(kind: Any) -> None:
    many = synthetic(kind=kind, classes=4, seed=1)
    assert set(np.unique(many.test.y)) == {0, 1, 2, 3}
    assert logistic_loss(many, many.alpha) < logistic_loss(many, uniform_mixture(3)) - 0.02
    smooth = synthetic(kind=kind, classes=0, seed=1)
    errors = []
    for alpha in (smooth.alpha, uniform_mixture(3)):
        x, y, w = pooled(smooth, alpha)
        errors.append(np.mean((LinearRegression().fit(x, y, w).predict(smooth.test.x) - smooth.test.y) ** 2))
    assert errors[0] < errors[1] - 0.1


@pytest.mark.parametrize("informative", [True, False])
def test_validation_and_test_follow_the_stated_mixture(informative: bool) -> None:
    alpha = np.array([0.8, 0.15, 0.05])
    problem = synthetic(alpha=alpha, rows=40_000, validation=40_000, test=40_000, informative=informative)

    # The mixture's moments of (x, y, xy) are the sources' moments, weighted: for the target they must agree.
    def moments(part: Rows) -> Any:
        return np.concatenate([part.x.mean(axis=0), [part.y.mean()], (part.x * part.y[:, None]).mean(axis=0)])

    table = np.array([moments(part) for part in problem.sources.rows])
    for part in (problem.sources.validation, problem.test):
        np.testing.assert_allclose(moments(part), alpha @ table, atol=0.04)
        assert np.abs(moments(part) - table.mean(axis=0)).max() > 0.08


def test_blind_x_says_nothing_about_the_source_and_informative_x_a_lot() -> None:
    accuracy = {}
    for informative in (True, False):
        problem = synthetic(informative=informative, rows=2000, test=10)
        x = np.vstack([part.x for part in problem.sources.rows])
        source = np.repeat(np.arange(3), 2000)
        half = np.arange(6000) % 2 == 0
        accuracy[informative] = LogisticRegression().fit(x[half], source[half]).score(x[~half], source[~half])
    assert accuracy[True] > 0.7
    assert abs(accuracy[False] - 1 / 3) < 0.03


def test_outside_the_hull_no_mixture_does_what_the_target_s_own_rows_do() -> None:
    problem = synthetic(hull="outside", validation=5000, rows=5000)
    own = problem.sources.validation
    model = LogisticRegression(C=1e3, max_iter=1000).fit(own.x, own.y)
    direct = log_loss(problem.test.y, model.predict_proba(problem.test.x))
    steps = [np.array([i, j, 5 - i - j]) / 5 for i in range(6) for j in range(6 - i)]
    assert min(logistic_loss(problem, alpha) for alpha in steps) > direct + 0.02


def test_label_shift_moves_label_frequencies() -> None:
    def spread(shift: float) -> float:
        problem = synthetic(sources=8, informative=False, label_shift=shift, rows=4000, test=10)
        return float(np.std([part.y.mean() for part in problem.sources.rows]))

    # Without it only the sampling error is left: 0.008.
    assert spread(0.0) < 0.02
    assert spread(1.5) > 0.06


def test_a_drawn_mixture_is_never_close_to_uniform_unless_there_is_one_source() -> None:
    for sources in (2, 3, 5, 30):
        for seed in range(20):
            alpha = synthetic(sources=sources, rows=1, validation=1, test=1, seed=seed).alpha
            assert np.abs(alpha - uniform_mixture(sources)).sum() >= 0.5  # type: ignore[operator]
    np.testing.assert_array_equal(synthetic(sources=1, rows=1, test=1).alpha, [1.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": 0}, "sources must be at least 1"),
        ({"rows": 0}, "rows of source 0 must be at least 1"),
        ({"rows": [5, 5]}, "2 numbers but there are 3 sources"),
        ({"validation": 0}, "validation must be at least 1"),
        ({"test": -1}, "test must be at least 1"),
        ({"features": 0}, "features must be at least 1"),
        ({"classes": 1}, "2 or more, or 0"),
        ({"kind": "forest"}, "unknown kind 'forest'"),
        ({"hull": "beside"}, "unknown hull 'beside'"),
        ({"alpha": [0.5, 0.5]}, "2 weights but there are 3 sources"),
        ({"concentration": 0.0}, "concentration"),
        ({"label_shift": float("nan")}, "label_shift"),
        ({"seed": -1}, "seed must not be negative"),
    ],
    ids=str,
)
def test_bad_input_is_said_plainly(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        synthetic(**change)
