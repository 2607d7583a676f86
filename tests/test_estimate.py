from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2, f, t

from mixtree._native import compiled
from mixtree.data.flights import flights
from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError, TrainingError
from mixtree.estimate import Estimate, hull_test, match_losses, match_moments, maximum_likelihood
from mixtree.estimate.directions import Plan, find_all, plan
from mixtree.estimate.hull import _Distance, _unsure, hull_prepared
from mixtree.estimate.likelihood import em
from mixtree.estimate.matching import match_prepared
from mixtree.estimate.moments import prepare
from mixtree.estimate.rare import RareValues, at_least
from mixtree.estimate.solve import Solution, as_estimate, intervals, nearest_in_hull, on_simplex
from mixtree.simplex import uniform_mixture

ESTIMATORS = [match_moments, maximum_likelihood]


def error(estimate: Estimate, alpha: Any) -> float:
    return float(np.abs(estimate.alpha - alpha).sum())


def well_formed(estimate: Estimate, sources: int) -> None:
    assert estimate.alpha.shape == estimate.low.shape == estimate.high.shape == (sources,)
    assert estimate.covariance.shape == (sources, sources)
    assert np.isfinite(estimate.covariance).all()
    assert estimate.alpha.min() >= 0 and abs(estimate.alpha.sum() - 1) < 1e-9
    assert (estimate.low >= 0).all() and (estimate.high <= 1).all()
    assert (estimate.low <= estimate.alpha).all() and (estimate.alpha <= estimate.high).all()


def same(left: Estimate, right: Estimate) -> bool:
    return all(
        np.array_equal(getattr(left, name), getattr(right, name)) for name in ("alpha", "low", "high", "free")
    )


# --- the simplex -----------------------------------------------------------------------------------------


@given(size=st.integers(1, 12), rank=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
def test_least_squares_on_the_simplex_meets_the_optimality_conditions(
    size: int, rank: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((rank, size))
    gram = root.T @ root + 1e-3 * np.eye(size)
    right = rng.standard_normal(size) * 3
    alpha = on_simplex(gram, right)
    assert alpha.min() >= 0 and abs(alpha.sum() - 1) < 1e-9
    slope = gram @ alpha - right
    # At the optimum no weight can be moved to a source with a smaller slope.
    assert slope[alpha > 1e-7].max() <= slope.min() + 1e-5 * (1 + np.abs(slope).max())


@given(
    free=st.floats(-3, 4, allow_nan=False),
    deviation=st.floats(1e-6, 10),
    rows=st.integers(0, 10_000),
)
def test_intervals_are_never_empty_and_hold_the_plain_ones(free: float, deviation: float, rows: int) -> None:
    low, high = intervals(np.array([free]), np.array([deviation]), rows)
    held = min(max(free, 0.0), 1.0)
    assert 0 <= low[0] <= held <= high[0] <= 1
    plain = np.clip([free - 1.95 * deviation, free + 1.95 * deviation], 0, 1)
    if free + 1.95 * deviation > 0 and free - 1.95 * deviation < 1:
        assert low[0] <= plain[0] + 1e-9 and high[0] >= plain[1] - 1e-9


@given(rows=st.integers(1, 40), sources=st.integers(1, 8), seed=st.integers(0, 2**32 - 1))
def test_em_finds_the_maximum_of_the_likelihood(rows: int, sources: int, seed: int) -> None:
    ratios = np.random.default_rng(seed).exponential(size=(rows, sources)) + 0.01
    share = np.full(rows, 1 / rows)
    alpha = em(ratios, share, tolerance=1e-12, rounds=20_000)
    gain = (share / (ratios @ alpha)) @ ratios  # of moving weight to each source; 1 on the support
    assert gain.max() < 1 + 5e-3
    assert abs(alpha @ gain - 1) < 1e-9


# --- the estimators --------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"informative": False, "classes": 4},
        {"kind": "neural", "sources": 5},
        {"classes": 0, "informative": False},
        {"features": 150},
        {"classes": 30},
    ],
    ids=str,
)
def test_they_find_a_known_mixture(estimator: Any, options: dict[str, Any]) -> None:
    errors, chance = [], []
    for seed in range(3):
        problem = synthetic(validation=2000, test=1, seed=seed, **options)
        estimate = estimator(problem.sources)
        well_formed(estimate, len(problem.sources))
        errors.append(error(estimate, problem.alpha))
        chance.append(float(np.abs(uniform_mixture(len(problem.sources)) - problem.alpha).sum()))
        assert estimate.contains(problem.alpha) or estimate.distance(problem.alpha) < 25
    assert np.mean(errors) < 0.25 * np.mean(chance)


def test_more_rows_make_the_error_and_the_intervals_smaller() -> None:
    few, many = (
        [
            (estimate, error(estimate, problem.alpha))
            for problem in (synthetic(validation=rows, test=1, seed=seed) for seed in range(8))
            for estimate in [match_moments(problem.sources)]
        ]
        for rows in (30, 1000)
    )
    assert np.mean([value for _, value in many]) < 0.4 * np.mean([value for _, value in few])
    for (before, _), (after, _) in zip(few, many, strict=True):
        assert (after.high - after.low).mean() < (before.high - before.low).mean()


def test_matching_x_alone_misses_what_only_the_labels_tell() -> None:
    joint, alone, uniform = [], [], []
    for seed in range(6):
        problem = synthetic(informative=False, validation=1000, test=1, seed=seed)
        joint.append(error(match_moments(problem.sources), problem.alpha))
        estimate = match_moments(problem.sources, joint=False)
        alone.append(error(estimate, problem.alpha))
        uniform.append(float(np.abs(problem.alpha - 1 / 3).sum()))
        assert any("x alone" in note for note in estimate.notes)
    assert np.mean(joint) < 0.25 * np.mean(uniform) < np.mean(alone)


@settings(max_examples=25, deadline=None)
@given(
    sources=st.integers(1, 6),
    rows=st.integers(1, 60),
    validation=st.integers(1, 30),
    features=st.sampled_from([1, 3, 150]),
    classes=st.sampled_from([0, 2, 5, 20]),
    seed=st.integers(0, 1000),
)
def test_every_shape_gets_an_answer_and_the_same_one_twice(
    sources: int, rows: int, validation: int, features: int, classes: int, seed: int
) -> None:
    problem = synthetic(
        sources=sources,
        rows=rows,
        validation=validation,
        features=features,
        classes=classes,
        test=1,
        seed=seed,
    )
    for estimator in ESTIMATORS:
        estimate = estimator(problem.sources, seed=seed)
        well_formed(estimate, sources)
        assert same(estimate, estimator(problem.sources, seed=seed))
    test, again = (hull_test(problem.sources, repetitions=19, seed=seed) for _ in range(2))
    assert test == again
    assert 0 < test.p <= 1 and test.words and test.n == validation


def test_fifty_sources_and_twenty_rows() -> None:
    problem = synthetic(sources=50, rows=300, validation=20, test=1)
    for estimator in ESTIMATORS:
        well_formed(estimator(problem.sources), 50)
    test = hull_test(problem.sources, repetitions=99)
    assert test.inside is None and test.rows_needed is not None and test.rows_needed > 20
    assert str(test.rows_needed) in test.words


def test_sparse_rows_give_what_dense_rows_give() -> None:
    rng = np.random.default_rng(0)
    for features in (30, 700):  # few enough to match each, and so many that directions are chosen
        tables = [rng.random((400, features)) < 0.05 + 0.1 * (np.arange(features) % 3 == i) for i in range(3)]
        y = rng.integers(0, 2, 400)
        dense = {f"s{i}": (table.astype(float), y) for i, table in enumerate(tables)}
        sparse = {name: (scipy.sparse.csr_matrix(x), y) for name, (x, _) in dense.items()}
        target = np.vstack([tables[0][:30], tables[2][:70]]).astype(float)
        left = match_moments(Sources.from_dict(dense, (target, y[:100]), classes=2))
        right = match_moments(
            Sources.from_dict(sparse, (scipy.sparse.csr_matrix(target), y[:100]), classes=2)
        )
        np.testing.assert_allclose(left.alpha, right.alpha, atol=1e-6)
        np.testing.assert_allclose(left.alpha, [0.3, 0, 0.7], atol=0.1)


def test_row_weights_are_respected() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((3000, 3)), rng.integers(0, 2, 3000)
    # Source "b" is all rows, of which only those right of 0 count.
    weight = (x[:, 0] > 0).astype(float)
    left, right = x[x[:, 0] < 0], x[x[:, 0] > 0]
    target = np.vstack([left[:60], right[:140]])
    rows = (Rows(left, y[: len(left)]), Rows(x, y, weight))
    for estimator in ESTIMATORS:
        found = estimator(Sources(("a", "b"), rows, Rows(target, y[:200]), 2))
        np.testing.assert_allclose(found.alpha, [0.3, 0.7], atol=0.05)


def test_identical_sources_share_and_nothing_is_known_about_either() -> None:
    problem = synthetic(sources=2, alpha=[0.9, 0.1], test=1)
    first, second = problem.sources.rows
    sources = Sources(("a", "a again", "b"), (first, first, second), problem.sources.validation, 2)
    estimate = match_moments(sources)
    assert abs(estimate.alpha[0] - estimate.alpha[1]) < 0.15
    assert abs(estimate.alpha[2] - 0.1) < 0.1
    assert estimate.low[0] == 0 and estimate.high[0] > 0.9
    assert estimate.high[2] < 0.4
    assert any("a, a again" in note for note in estimate.notes)


def test_constant_data_is_answered_in_words() -> None:
    rows = {name: (np.ones((40, 2)), np.zeros(40, int)) for name in "ab"}
    sources = Sources.from_dict(rows, (np.ones((5, 2)), np.zeros(5, int)), classes=2)
    for estimator in ESTIMATORS:
        estimate = estimator(sources)
        np.testing.assert_allclose(estimate.alpha, [0.5, 0.5], atol=1e-3)
        assert (estimate.low == 0).all() and (estimate.high == 1).all()
        assert any("only 5 target rows" in note for note in estimate.notes)
    assert hull_test(sources).inside is None


def test_few_rows_make_every_limit_wider() -> None:
    beta = np.array([[1.0, -1.0, 0.0], [1.0, 1.0, -2.0]]) / np.sqrt([[2.0], [6.0]])
    solution = Solution(np.full(3, 1 / 3), np.full(3, 1 / 3), 0.01 * beta.T @ beta)
    few, many = (as_estimate(solution, method="", n=n, names=("a", "b", "c")) for n in (5, 5_000))
    deviation = np.sqrt(np.diag(solution.covariance))
    assert many.high - 1 / 3 == pytest.approx(1.05 * 1.96 * deviation, rel=1e-2)
    assert few.high - 1 / 3 == pytest.approx(1.05 * t.ppf(0.975, 4) * deviation)
    for estimate, limit in ((few, 2 * f.ppf(0.95, 2, 4)), (many, chi2.ppf(0.95, 2))):
        away = 0.1 * 1.05 * np.sqrt(limit) * beta[0]
        assert estimate.contains(1 / 3 + 0.99 * away) and not estimate.contains(1 / 3 + 1.01 * away)


def test_one_source_is_certain() -> None:
    problem = synthetic(sources=1, test=1)
    for estimator in ESTIMATORS:
        estimate = estimator(problem.sources)
        assert estimate.alpha.tolist() == estimate.low.tolist() == estimate.high.tolist() == [1.0]
        assert estimate.contains(np.ones(1))
    assert hull_test(problem.sources).inside is True
    assert hull_test(synthetic(sources=1, hull="outside", test=1).sources).inside is False


def test_the_joint_region_holds_the_estimate_and_not_everything() -> None:
    estimate = match_moments(synthetic(alpha=[0.6, 0.3, 0.1], validation=500, test=1, seed=1).sources)
    assert estimate.contains(np.array([0.6, 0.3, 0.1]))
    assert estimate.contains(estimate.alpha)
    assert not estimate.contains(np.array([0.1, 0.3, 0.6]))
    assert estimate.distance(np.array([0.0, 0.0, 1.0])) > estimate.distance(np.array([0.5, 0.4, 0.1]))


@pytest.mark.simulation
@pytest.mark.parametrize("options", [{}, {"informative": False, "classes": 4}, {"classes": 0}], ids=str)
def test_intervals_cover_as_often_as_they_say(options: dict[str, Any]) -> None:
    covered = []
    for seed in range(60):
        problem = synthetic(validation=1, test=150, seed=seed, **options)
        prepared = prepare(problem.sources)
        for start in (0, 50, 100):
            rows = problem.test.take(np.arange(start, start + 50))
            found = match_prepared(prepared, rows, names=problem.sources.names)
            covered.append(np.mean((found.low <= problem.alpha) & (problem.alpha <= found.high)))
    # 180 sets of 3 intervals: 0.95 ± 3 standard errors, which are at most those of 180 single ones.
    assert np.mean(covered) > 0.95 - 3 * np.sqrt(0.95 * 0.05 / 180)


def test_any_classifier_will_do_and_a_useless_one_says_so() -> None:
    from sklearn.dummy import DummyClassifier
    from sklearn.naive_bayes import GaussianNB

    problem = synthetic(validation=500, test=1, seed=3)
    # Naive Bayes is badly calibrated; averaging its scores over held-out rows makes up for it.
    found = maximum_likelihood(problem.sources, classifier=GaussianNB())
    assert error(found, problem.alpha) < 0.2
    useless = maximum_likelihood(problem.sources, classifier=DummyClassifier())
    np.testing.assert_allclose(useless.alpha, uniform_mixture(3), atol=1e-3)
    assert (useless.low == 0).all() and (useless.high == 1).all()


def test_classifiers_that_cannot_work_are_refused() -> None:
    class Wrong:
        def fit(self, x: Any, y: Any) -> Any:
            return self

        def predict_proba(self, x: Any) -> Any:
            return np.full((len(x), 7), np.nan)

    sources = synthetic(test=1, rows=50).sources
    with pytest.raises(InputError, match="predict_proba"):
        maximum_likelihood(sources, classifier=object())
    with pytest.raises(TrainingError, match="one finite column per source"):
        maximum_likelihood(sources, classifier=Wrong())


# --- losses ----------------------------------------------------------------------------------------------


def models(seed: int, *, alpha: Any, rows: int, count: int = 12) -> tuple[Any, Any]:
    """Losses of some linear models: means on the sources, and by row on a target of the mixture alpha."""
    rng = np.random.default_rng(seed)
    problem = synthetic(sources=3, alpha=alpha, classes=0, validation=rows, test=1, seed=seed)
    directions = rng.standard_normal((count, 10)) * 0.5
    target = problem.sources.validation
    by_source = [[np.mean((part.x @ w - part.y) ** 2) for part in problem.sources.rows] for w in directions]
    return np.array(by_source), np.array([(target.x @ w - target.y) ** 2 for w in directions])


def test_losses_of_models_give_the_mixture() -> None:
    alpha = [0.5, 0.4, 0.1]
    errors, wide, covered = [], [], []
    for seed in range(20):
        means, losses = models(seed, alpha=alpha, rows=1000)
        by_row = match_losses(means, losses, source_rows=[2000] * 3)
        by_mean = match_losses(
            means, losses.mean(axis=1), standard_errors=losses.std(axis=1) / np.sqrt(1000), rows=1000
        )
        well_formed(by_row, 3)
        well_formed(by_mean, 3)
        errors.append(error(by_row, alpha))
        covered.append(np.mean((by_row.low <= alpha) & (alpha <= by_row.high)))
        wide.append((by_mean.high - by_mean.low).mean() / (by_row.high - by_row.low).mean())
        assert by_row.n == by_mean.n == 1000
        assert any("worst case" in note for note in by_mean.notes)
    assert np.mean(errors) < 0.25
    assert np.mean(covered) > 0.85
    assert min(wide) > 1


@given(seed=st.integers(0, 2**32 - 1), sources=st.integers(1, 6), extra=st.integers(0, 10))
def test_exact_losses_give_the_exact_mixture(seed: int, sources: int, extra: int) -> None:
    rng = np.random.default_rng(seed)
    means = rng.exponential(size=(sources + extra, sources))
    alpha = rng.dirichlet(np.ones(sources))
    found = match_losses(means, means @ alpha, standard_errors=np.full(len(means), 1e-9))
    if np.linalg.cond(means) < 1e3:
        np.testing.assert_allclose(found.alpha, alpha, atol=1e-4)


def test_diverged_nodes_are_left_out() -> None:
    means, losses = models(0, alpha=[0.5, 0.4, 0.1], rows=200)
    broken, by_row = means.copy(), losses.copy()
    broken[3, 1], by_row[5, 7] = np.nan, np.inf
    found = match_losses(broken, by_row)
    keep = np.setdiff1d(np.arange(len(means)), [3, 5])
    assert same(found, match_losses(means[keep], losses[keep]))
    assert "2 nodes" in found.notes[0]


def test_one_node_says_little_and_says_so() -> None:
    found = match_losses([[0.2, 0.5, 0.9]], [0.5], standard_errors=[0.01])
    well_formed(found, 3)
    assert any("next to nothing" in note for note in found.notes)


@pytest.mark.parametrize(
    ("means", "target", "options", "words"),
    [
        ([0.1, 0.2], [0.1], {"standard_errors": [0.1]}, r"\(nodes, sources\)"),
        ([[0.1, 0.2]], [0.1, 0.2], {"standard_errors": [0.1]}, "1 nodes"),
        ([[0.1, 0.2]], [0.1], {}, "standard_errors"),
        ([[0.1, 0.2]], [[0.1]], {}, "at least 2 target rows"),
        ([[0.1, 0.2]], [0.1], {"standard_errors": [-1]}, "at least 0"),
        ([[np.nan, 0.2]], [0.1], {"standard_errors": [1]}, "no node"),
        ([["a", "b"]], [0.1], {"standard_errors": [1]}, "numbers"),
        ([[0.1, 0.2]], [0.1], {"standard_errors": [1], "names": ["a"]}, "1 names"),
        ([[0.1, 0.2]], [[0.1, 0.2]], {"source_rows": [0, 5]}, "source_rows"),
    ],
)
def test_losses_that_cannot_work_are_refused(means: Any, target: Any, options: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        match_losses(means, target, **options)


# --- the hull test ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"informative": False, "classes": 4}, {"sources": 10, "classes": 0}, {"features": 150}],
    ids=str,
)
def test_targets_outside_are_found_and_inside_are_not(options: dict[str, Any]) -> None:
    inside = [hull_test(synthetic(validation=500, test=1, seed=s, **options).sources) for s in range(4)]
    outside = [
        hull_test(synthetic(validation=500, test=1, seed=s, hull="outside", **options).sources)
        for s in range(4)
    ]
    assert [test.inside for test in outside] == [False] * 4
    assert sum(test.inside is True for test in inside) >= 3
    assert all("No mixture" in test.words and test.power is None for test in outside)
    for test in inside:
        assert test.df == test.moments - (options.get("sources", 3) - 1)
        assert test.inside is not True or "can serve" in test.words


@pytest.mark.simulation
@pytest.mark.parametrize(
    "options",
    [
        {"alpha": [1, 0, 0]},  # on a corner, where textbook critical values reject too often
        {"sources": 10, "informative": False},
        {"rows": 60, "classes": 4},
        {"features": 60, "rows": 300},
    ],
    ids=str,
)
def test_the_level_holds(options: dict[str, Any]) -> None:
    rejected = []
    for seed in range(40):
        problem = synthetic(validation=1, test=270, seed=seed, **options)
        prepared = prepare(problem.sources)
        for start, stop in ((0, 20), (20, 70), (70, 270)):
            rows = problem.test.take(np.arange(start, stop))
            found = hull_prepared(prepared, rows, repetitions=19, seed=seed, look_outside=False)
            rejected.append(found.p <= 0.05)
    # 120 tests at 5 %: more than so many rejections would happen once in a thousand times.
    assert sum(rejected) <= binom.isf(0.001, len(rejected), 0.05)


def test_few_rows_of_sources_that_matter_make_the_noise_wider() -> None:
    factors = []
    for rows in (50, 5_000):
        prepared = prepare(synthetic(rows=rows, validation=50, test=1).sources)
        rng = np.random.default_rng(1)
        factors.append(_unsure(prepared, np.full(3, 1 / 3), 50, 20_000, rng))
        assert rng.random() == np.random.default_rng(1).random()  # what else is drawn stays the same
    # The variance of Student's t, of about 72 degrees of freedom (three sources of 24 each).
    assert np.mean(factors[0] ** 2) == pytest.approx(72 / 70, rel=0.005)
    assert np.mean(factors[1] ** 2) == pytest.approx(1.0, rel=0.001)


def test_too_few_rows_are_undecided_and_the_rows_needed_do_decide() -> None:
    few = hull_test(synthetic(informative=False, validation=20, test=1, seed=1).sources)
    assert few.inside is None and few.rows_needed is not None and few.power is not None
    assert few.power < 0.8 and few.rows_needed > 20
    enough = hull_test(
        synthetic(informative=False, validation=int(1.3 * few.rows_needed), test=1, seed=1).sources
    )
    assert enough.inside is True


def test_a_class_or_a_value_that_no_source_has_is_outside() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((500, 3)), rng.integers(0, 2, 500)
    x[:, 2] = 0.0
    rows = {"a": (x, y), "b": (x + [1, 0, 0], y)}
    target = x[:100].copy()
    assert hull_test(Sources.from_dict(rows, (target, y[:100]), classes=3)).inside is True
    labels = np.where(np.arange(100) < 10, 2, y[:100])
    found = hull_test(Sources.from_dict(rows, (target, labels), classes=3))
    assert found.inside is False and "10 of them" in found.words
    target[:10, 2] = 1.0
    sparse = {name: (scipy.sparse.csr_matrix(part), labels) for name, (part, labels) in rows.items()}
    for sources in (
        Sources.from_dict(rows, (target, y[:100]), classes=2),
        Sources.from_dict(sparse, (scipy.sparse.csr_matrix(target), y[:100]), classes=2),
    ):
        assert hull_test(sources).inside is False


def levels(rng: np.random.Generator, rows: int, *, count: int = 600, columns: int = 2) -> Any:
    """Indicators of columns with many levels, most of them rare."""
    drawn = rng.zipf(1.4, (rows, columns)) % count + count * np.arange(columns)
    where = np.repeat(np.arange(rows), columns), drawn.ravel()
    return scipy.sparse.csr_array((np.ones(drawn.size), where), shape=(rows, count * columns))


def test_rare_values_that_only_the_target_has_by_chance_do_not_put_it_outside() -> None:
    chances, some = [], 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        parts = [Rows(levels(rng, 500), rng.integers(0, 2, 500)) for _ in range(3)]
        target = Rows(levels(rng, 300), rng.integers(0, 2, 300))
        rare = RareValues.fit(parts, 2)
        strange, chance = rare.in_target(target, uniform_mixture(3))
        some += strange > 10
        chances.append(chance)
    assert some == 60
    assert sum(p <= 0.05 for p in chances) <= binom.isf(0.001, 60, 0.05)
    assert sum(p <= 0.5 for p in chances) <= binom.isf(0.001, 60, 0.5)


def test_images_are_tables_of_their_numbers() -> None:
    flat = synthetic(rows=300, validation=100, features=12, test=1, seed=3).sources

    def image(rows: Rows) -> Rows:
        return Rows(rows.x.reshape(-1, 3, 2, 2), rows.y)

    given = replace(flat, rows=tuple(map(image, flat.rows)), validation=image(flat.validation))
    assert np.array_equal(match_moments(given).alpha, match_moments(flat).alpha)
    assert hull_test(given).p == hull_test(flat).p
    assert np.array_equal(maximum_likelihood(given).alpha, maximum_likelihood(flat).alpha)


def test_many_columns_of_few_directions_are_as_good_as_those() -> None:
    """400 columns that are combinations of 3: no direction is made of their rounding."""
    few = synthetic(rows=600, validation=200, features=3, test=1, seed=5).sources
    spread = np.random.default_rng(0).standard_normal((3, 400))

    def wide(rows: Rows) -> Rows:
        return Rows(rows.x @ spread, rows.y)

    sources = replace(few, rows=tuple(map(wide, few.rows)), validation=wide(few.validation))
    directions = prepare(sources).basis.directions
    assert directions is not None and directions.shape == (400, 3)


def written_thrice(sources: Sources) -> Sources:
    rng = np.random.default_rng(0)
    places = [rng.permutation(np.tile(np.arange(size), 3)) for size in sources.sizes]
    return replace(sources, rows=tuple(map(Rows.take, sources.rows, places)))


def test_copies_do_not_make_the_rare_values_of_a_target_strange() -> None:
    """In the sources every value stands in three rows or in none; the target has some that stand in one."""
    for seed in range(5):
        rng = np.random.default_rng(seed)

        def draw(rows: int, rng: np.random.Generator = rng) -> Rows:
            x = scipy.sparse.hstack([rng.standard_normal((rows, 2)), levels(rng, rows)], format="csr")
            return Rows(x, rng.integers(0, 2, rows))

        sources = Sources(("a", "b"), (draw(500), draw(500)), draw(300), 2)
        assert hull_test(written_thrice(sources)).p > 0.05


def test_copies_do_not_make_the_mixture_better_known() -> None:
    once = synthetic(rows=400, validation=400, test=1, seed=2).sources
    one, three = match_moments(once), match_moments(written_thrice(once))
    assert three.high - three.low == pytest.approx(one.high - one.low, rel=0.15)
    known = "rows that repeat others of their source say nothing new: "
    assert any(note.startswith(known) and "(800)" in note for note in three.notes)
    assert not any(note.startswith(known) for note in one.notes)


@pytest.mark.parametrize("often", [1, 2, 30])
def test_what_many_target_rows_alone_have_is_found_among_rare_values(often: int) -> None:
    rng = np.random.default_rng(0)
    parts = [Rows(levels(rng, 500), rng.integers(0, 2, 500)) for _ in range(3)]
    x, y = levels(rng, 300).tolil(), rng.integers(0, 2, 300)
    new = np.flatnonzero(sum(part.x.sum(axis=0) for part in parts) == 0)
    for number in range(120 // often):  # 120 rows have values of which no source has any
        x[number * often : (number + 1) * often, new[number]] = 1.0
    rare = RareValues.fit(parts, 2)
    strange, chance = rare.in_target(Rows(x.tocsr(), y), uniform_mixture(3))
    assert strange >= 120 and chance < 1e-3
    dense = RareValues.fit([Rows(part.x.toarray(), part.y) for part in parts], 2)
    assert dense.in_target(Rows(x.toarray(), y), uniform_mixture(3)) == (strange, chance)
    assert np.array_equal(dense.columns, rare.columns) and np.array_equal(dense.seen, rare.seen)


def test_a_weight_on_small_sources_makes_rare_values_weaker_evidence() -> None:
    rng = np.random.default_rng(0)
    parts = [Rows(levels(rng, size), rng.integers(0, 2, size)) for size in (5_000, 60)]
    target = Rows(levels(rng, 100), np.full(100, 2))  # a class that no source has
    rare = RareValues.fit(parts, 3)
    large, small = (rare.in_target(target, alpha)[1] for alpha in np.eye(2))
    assert large < small < 1e-6


def with_rare_columns(rng: np.random.Generator, counts: Any) -> Rows:
    """Rows of three sources, so many of each, half of whose columns are nearly always 0."""
    source = np.repeat(np.arange(3), counts)
    x = rng.standard_normal((len(source), 16))
    x[:, 0] += source
    x[:, 8:] = rng.random((len(source), 8)) < 0.003
    return Rows(x, (x[:, 0] + rng.logistic(size=len(source)) > 1).astype(np.int64))


def test_columns_that_are_rarely_anything_keep_the_level() -> None:
    rejected = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        parts = tuple(with_rare_columns(rng, 800 * np.eye(3, dtype=int)[i]) for i in range(3))
        sources = Sources(("a", "b", "c"), parts, with_rare_columns(rng, [70, 70, 60]), 2)
        rejected += hull_test(sources, repetitions=39, seed=seed).p <= 0.05
    assert rejected <= binom.isf(0.001, 60, 0.05)  # 9 to 16 in a hundred with those columns


def test_no_moment_hangs_on_a_few_rows() -> None:
    rng = np.random.default_rng(0)
    parts = tuple(with_rare_columns(rng, 800 * np.eye(3, dtype=int)[i]) for i in range(3))
    some = Sources(("a", "b", "c"), parts, with_rare_columns(rng, [20, 20, 20]), 2)
    found = prepare(some)
    assert found.rare.columns.tolist() == list(range(8, 16))  # which 0.3 % of the rows have
    directions = found.basis.directions
    assert directions is not None and np.array_equal(directions[:8, :8], np.eye(8))
    assert not directions[8:, :8].any() and not directions[:8, 8:].any()
    assert directions.shape[1] == 8  # all of them together are too rare still
    assert prepare(synthetic(validation=50, test=1).sources).basis.directions is None
    classes = np.where(parts[0].x[:, 8] > 0, 2, parts[0].y)
    three = Sources(("a",), (Rows(parts[0].x, classes),), some.validation, 3)
    labels = prepare(three).basis.labels
    assert labels is not None and 2 not in labels.chosen and len(labels.chosen) == 1


def test_what_is_rare_depends_on_how_many_rows_the_target_has() -> None:
    rng = np.random.default_rng(0)

    def rows(count: int) -> Rows:
        return Rows(rng.random((count, 4)) < [0.5, 0.5, 0.012, 0.012], rng.integers(2, size=count))

    parts = tuple(Rows(part.x.astype(float), part.y) for part in (rows(4_000), rows(4_000)))
    few, many = rows(100), rows(1_000)
    for target, rare in ((few, [2, 3]), (many, [])):  # one row of a hundred, twelve of a thousand
        found = prepare(Sources(("a", "b"), parts, Rows(target.x.astype(float), target.y), 2))
        assert found.rare.columns.tolist() == rare


@pytest.mark.parametrize(
    ("full", "rare", "own", "rest", "differ", "groups"),
    [
        ([900] * 5, [], [0, 1, 2, 3, 4], [], 0, 0),
        ([900] * 5 + [0], [5], [0, 1, 2, 3, 4], [], 0, 0),  # a constant column costs nothing
        ([900] * 5 + [10], [5], [0, 1, 2, 3, 4], [5], 0, 0),  # too rare even alone
        ([900] * 5 + [30] * 10, range(5, 15), range(5), range(5, 15), 0, 3),  # too few to choose among
        ([900] * 5 + [30] * 60, range(5, 65), range(5), range(5, 65), 6, 4),
        # more than there is room for
        ([900] * 20 + [30] * 60, range(20, 80), range(20), range(20, 80), 5, 0),
        ([90] * 40, [], range(10), range(10, 40), 5, 0),  # sparse, but not rare
        ([900] * 40, [], range(40), [], 0, 0),
        ([10] * 60, range(60), [], range(60), 6, 6),
    ],
)
def test_what_becomes_of_the_columns(
    full: list[int], rare: Sequence[int], own: Sequence[int], rest: Sequence[int], differ: int, groups: int
) -> None:
    found = plan(
        np.array(full), np.array(rare, dtype=int), rows=1_000, sources=3, of_y=2, count=15, least=50.0
    )
    assert (found.own.tolist(), found.rest.tolist()) == (list(own), list(rest))
    assert (found.differ, found.groups) == (differ, groups)
    assert found.looks == (differ > 0 or len(own) > found.room)


def test_sums_that_hang_on_a_few_rows_are_left_out() -> None:
    rng = np.random.default_rng(0)
    tables = [(rng.random((1_000, 40)) < 0.004).astype(float) for _ in range(2)]
    planned = Plan(np.arange(0), np.arange(40), 0, 0, 4)
    labels = [np.ones((1_000, 1))] * 2
    for least, left in ((20.0, 4), (400.0, 1)):  # each of the four is in some eighty rows
        found = find_all(planned, tables, labels, np.ones(40), least, np.random.default_rng(0))
        assert found.shape == (40, left)
    assert found.sum() == 1.0  # something has to stand for x


def test_a_wide_table_of_rare_values_takes_no_room() -> None:
    rng, width = np.random.default_rng(0), 2**17

    def rows(count: int) -> Rows:
        where = np.repeat(np.arange(count), 20), rng.integers(width, size=20 * count)
        return Rows(
            scipy.sparse.csr_array((np.ones(20 * count), where), shape=(count, width)),
            rng.integers(12, size=count),
        )

    for sizes in ([300], [30] * 5):
        sources = Sources(tuple(map(str, range(len(sizes)))), tuple(map(rows, sizes)), rows(80), 12)
        assert np.isfinite(match_moments(sources).alpha).all()


def test_a_constant_column_changes_nothing() -> None:
    problem = synthetic(rows=200, validation=80, test=1).sources

    def wider(rows: Rows) -> Rows:
        return replace(rows, x=np.column_stack([rows.x, np.full(len(rows), 7.0)]))

    more = replace(problem, rows=tuple(map(wider, problem.rows)), validation=wider(problem.validation))
    assert match_moments(more).covariance == pytest.approx(match_moments(problem).covariance)


@pytest.mark.parametrize(("unit", "start"), [(1e-7, 0.0), (1.0, 1e7), (1e9, 0.0)])
def test_units_of_the_columns_do_not_matter(unit: float, start: float) -> None:
    problem = synthetic(rows=300, validation=80, test=1).sources

    def other(rows: Rows) -> Rows:
        return replace(rows, x=start + unit * rows.x.astype(np.float64))

    moved = replace(problem, rows=tuple(map(other, problem.rows)), validation=other(problem.validation))
    assert match_moments(moved).free == pytest.approx(match_moments(problem).free, abs=1e-4)
    assert hull_test(moved, repetitions=39).p == hull_test(problem, repetitions=39).p


def test_images_with_pixels_that_never_change_are_tested() -> None:
    rng = np.random.default_rng(0)

    def images(count: int, light: float) -> Rows:
        x = rng.standard_normal((count, 1, 6, 6)) + light
        x[:, :, 0] = 0.0
        return Rows(x, rng.integers(2, size=count))

    sources = Sources(("a", "b"), (images(300, 0.0), images(300, 0.5)), images(100, 0.2), 2)
    assert hull_test(sources, repetitions=39).inside is not False
    strange = images(100, 0.2)
    strange.x[:, :, 0, 0] = 1.0
    assert hull_test(replace(sources, validation=strange), repetitions=39).inside is False


def test_columns_that_are_mostly_one_are_rare_in_sparse_tables_too() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.standard_normal((900, 3)), rng.random((900, 1)) > 0.003, np.full((900, 1), 2.0)])
    dense = RareValues.fit([Rows(x, np.zeros(900, dtype=int))], 1, most=20)
    thin = RareValues.fit([Rows(scipy.sparse.csr_array(x), np.zeros(900, dtype=int))], 1, most=20)
    assert dense.columns.tolist() == thin.columns.tolist() == [3, 4]
    assert dense.usual.tolist() == thin.usual.tolist() == [1.0, 2.0]
    assert dense.seen.tolist() == thin.seen.tolist()
    assert 0 < dense.seen[0] < 20 and dense.seen[1] == 0
    target = x[:50].copy()
    target[:5, 3], target[3:9, 4] = 0.0, 0.0
    told = dense.in_target(Rows(target, np.zeros(50, dtype=int)), np.ones(1))
    assert told == thin.in_target(Rows(scipy.sparse.csr_array(target), np.zeros(50, dtype=int)), np.ones(1))
    assert told[0] == 6 and told[1] < 1e-3  # the rows with another number than 2


def test_many_rare_classes_together_tell_sources_apart() -> None:
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.full(150, 0.5), size=3)

    def rows(counts: Sequence[int]) -> Rows:
        y = np.concatenate([rng.choice(150, count, p=law) for count, law in zip(counts, laws, strict=True)])
        return Rows(rng.standard_normal((len(y), 2)), y)

    parts = tuple(rows(2_000 * np.eye(3, dtype=int)[i]) for i in range(3))
    found = match_moments(Sources(("a", "b", "c"), parts, rows([140, 40, 20]), 150))
    assert found.alpha == pytest.approx([0.7, 0.2, 0.1], abs=0.15)
    assert (found.high - found.low < 0.4).all()


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.004])
def test_a_table_of_rare_values_alone_says_little_but_fails_nothing(joint: bool, share: float) -> None:
    rng = np.random.default_rng(0)

    def rows(count: int) -> Rows:
        x = scipy.sparse.csr_array((rng.random((count, 30)) < share).astype(np.float64))
        return Rows(x, rng.integers(2, size=count))

    sources = Sources(("a", "b"), (rows(400), rows(500)), rows(60), 2)
    found = match_moments(sources, joint=joint)
    assert np.isfinite(found.alpha).all() and (found.high - found.low > 0.9).all()


def test_many_rare_values_together_tell_sources_apart() -> None:
    rng = np.random.default_rng(0)

    def rows(counts: Sequence[int]) -> Rows:
        """Every source has a hundred flags of its own, each of which few of its rows have."""
        source = np.repeat(np.arange(3), counts)
        x = rng.random((len(source), 300)) < np.where(np.arange(300) // 100 == source[:, None], 0.01, 0.002)
        return Rows(scipy.sparse.csr_array(x.astype(np.float64)), rng.integers(2, size=len(source)))

    parts = tuple(rows(1_000 * np.eye(3, dtype=int)[i]) for i in range(3))
    sources = Sources(("a", "b", "c"), parts, rows([210, 60, 30]), 2)
    found = match_moments(sources)
    assert found.alpha == pytest.approx([0.7, 0.2, 0.1], abs=0.2)
    assert (found.high - found.low < 0.5).all()


def test_what_the_sources_rarely_have_and_the_target_often_is_outside() -> None:
    rng = np.random.default_rng(0)
    parts = tuple(with_rare_columns(rng, 800 * np.eye(3, dtype=int)[i]) for i in range(3))
    target = with_rare_columns(rng, [40, 30, 30])
    assert hull_test(Sources(("a", "b", "c"), parts, target, 2)).inside is not False
    target.x[:30, 9] = 1.0
    assert hull_test(Sources(("a", "b", "c"), parts, target, 2)).inside is False
    for form in (scipy.sparse.csc_array, scipy.sparse.coo_matrix, scipy.sparse.csr_matrix):
        thin = {name: (form(part.x), part.y) for name, part in zip("abc", parts, strict=True)}
        some = thin | {"b": (parts[1].x, parts[1].y)}  # one of them dense
        for tables in (thin, some):
            sources = Sources.from_dict(tables, (form(target.x), target.y), classes=2)
            rare = RareValues.fit(list(sources.rows), 2)
            assert rare.seen.tolist() == RareValues.fit(list(parts), 2).seen.tolist()
            assert rare.in_target(sources.validation, uniform_mixture(3))[1] < 1e-6
            assert hull_test(sources).inside is False


def test_a_few_odd_rows_with_much_in_common_are_one_event() -> None:
    rng = np.random.default_rng(0)
    parts = [Rows(rng.standard_normal((200, 3)), rng.integers(0, 2, 200)) for _ in range(2)]
    wide = [Rows(np.hstack([part.x, np.zeros((200, 20))]), part.y) for part in parts]
    x = np.hstack([rng.standard_normal((100, 3)), np.zeros((100, 20))])
    x[:2, 3:] = 1.0  # two rows that share twenty values
    p = RareValues.fit(wide, 2).in_target(Rows(x, rng.integers(0, 2, 100)), uniform_mixture(2))[1]
    assert p > 0.01  # as likely as that two rows of 500 are the target's


def test_all_rows_of_a_source_are_asked_what_they_have() -> None:
    rng = np.random.default_rng(0)
    x, y = np.zeros((30_000, 4)), rng.integers(0, 2, 30_000)
    x[:, :3] = rng.standard_normal((30_000, 3))
    x[-1, 3] = 1.0  # in one row of many
    sources = Sources.from_dict({"a": (x, y)}, (x[:200].copy(), y[:200]), classes=2)
    assert prepare(sources, rows=800).rare.seen.tolist() == [1]


def test_a_source_of_a_few_rows_is_not_enough_to_reject() -> None:
    rng = np.random.default_rng(0)
    rows = {name: (rng.standard_normal((2, 3)), np.zeros(2, int)) for name in "ab"}
    sources = Sources.from_dict(rows, (rng.standard_normal((50, 3)) + 9, np.zeros(50, int)), classes=2)
    found = hull_test(sources)
    assert found.inside is None and "fewer than 50 rows" in found.words
    assert any("a (2), b (2)" in note for note in match_moments(sources).notes)


def test_many_target_rows_are_taken_as_normal() -> None:
    for hull, expected in (("inside", True), ("outside", False)):
        problem = synthetic(validation=1500, test=1, hull=hull, seed=2)  # type: ignore[arg-type]
        assert hull_test(problem.sources).inside is expected


def test_flights() -> None:
    known = flights(target="known")
    estimate = match_moments(known.sources)
    assert error(estimate, known.alpha) < 0.25
    assert error(maximum_likelihood(known.sources), known.alpha) < 0.25
    assert hull_test(known.sources).inside is True
    assert hull_test(flights(target="new").sources).inside is False


def test_settings_that_cannot_work_are_refused() -> None:
    sources = synthetic(rows=50, test=1).sources
    with pytest.raises(InputError, match="level"):
        hull_test(sources, level=0.0)
    with pytest.raises(InputError, match="99 repetitions"):
        hull_test(sources, level=0.01, repetitions=50)
    with pytest.raises(InputError, match="moments"):
        match_moments(sources, moments=0)


def test_scikit_learn_is_needed_for_the_classifier_only() -> None:
    code = (
        "import sys, mixtree.estimate as e; from mixtree.data.synthetic import synthetic;"
        "s = synthetic(rows=50, test=1).sources; e.match_moments(s); e.hull_test(s);"
        "sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    corners=st.integers(1, 12),
    moments=st.integers(1, 12),
    twin=st.booleans(),
    size=st.sampled_from([1e-6, 1.0, 1e6]),
)
@pytest.mark.parametrize("twins", [True, False], ids=["compiled", "numpy"])
def test_distances_from_a_hull(
    seed: int, corners: int, moments: int, twin: bool, size: float, twins: bool
) -> None:
    rng = np.random.default_rng(seed)
    hull = size * rng.standard_normal((moments, corners))
    if twin:
        hull[:, -1] = hull[:, 0]
    inside = rng.dirichlet(np.ones(corners), 4) @ hull.T
    points = np.vstack([3.0 * size * rng.standard_normal((20, moments)), inside, hull.T])
    feet = [hull @ nearest_in_hull(hull, point) for point in points]
    with pytest.MonkeyPatch.context() as patch:
        if not twins:
            patch.setattr(compiled, "hull_distances", None)
        found = _Distance(hull)(points)
    np.testing.assert_allclose(found, np.square(points - feet).sum(axis=1), rtol=1e-7, atol=1e-8 * size**2)
    assert found[20:].max() < 1e-8 * size**2


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 10_000), size=st.sampled_from([10, 300, 100_000]))
def test_chances_of_rare_values_are_hypergeometric(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    total = rng.integers(1, size, endpoint=True, size=20)
    drawn = int(rng.integers(0, min(int(total.min()), 500), endpoint=True))
    marked = rng.integers(0, np.minimum(total, 400), endpoint=True)
    count = rng.integers(0, np.minimum(marked, drawn) + 2)
    expected = scipy.stats.hypergeom.sf(count - 1, total, marked, drawn)
    np.testing.assert_allclose(at_least(count, total, marked, drawn), expected, rtol=1e-7, atol=1e-300)


def test_chances_of_thousands_of_rare_values_take_little_time_and_room() -> None:
    rng = np.random.default_rng(0)
    total, marked = np.full(5_000, 1_000_000), rng.integers(2, 20_000, size=5_000)
    count = np.maximum(marked * 2_000 // 1_000_000 + rng.integers(-20, 60, size=5_000), 0)
    expected = scipy.stats.hypergeom.sf(count - 1, total, marked, 2_000)
    tracemalloc.start()
    found = at_least(count, total, marked, 2_000)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-300)


def test_a_corner_far_away_does_not_cost_the_digits_of_the_others() -> None:
    corners = np.array([[-1.0, -2.0, -2000.0], [-2.0, -2.0, 0.0]])
    points = np.array([[-3.0, 2.0], [-3.0, -3.0]])
    feet = [corners @ nearest_in_hull(corners, point) for point in points]
    np.testing.assert_allclose(_Distance(corners)(points), np.square(points - feet).sum(axis=1), rtol=1e-6)
