from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from mixtree.errors import DataError, InputError
from mixtree.metrics import (
    ABSOLUTE_LOSS,
    ACCURACY,
    AUROC,
    F1,
    HAND_TILL,
    LOG_LOSS,
    MAE,
    MAE_EXP,
    RMSE,
    SQUARED_LOSS,
    AbsentClassWarning,
    GroupedLabels,
    Metric,
    absent_classes,
    as_metric,
    check_metric,
    class_names,
    default_metric,
    mae_in_units,
    mean_and_error,
    row_losses,
    worst_source,
)

CLASSIFICATION = (LOG_LOSS, ACCURACY, F1, AUROC, HAND_TILL)
REGRESSION = (SQUARED_LOSS, ABSOLUTE_LOSS, MAE, MAE_EXP, RMSE)


def make(classes: int, *, n: int = 60, models: int = 4, seed: int = 0, levels: int | None = None):
    """Labels with every class, and predictions that know something of them; ``levels`` makes ties."""
    rng = np.random.default_rng(seed)
    if not classes:
        y = rng.normal(scale=0.5, size=n)
        return y, y + rng.normal(scale=0.5, size=(models, n))
    y = rng.permutation(np.arange(n) % classes)
    weights = rng.gamma(1.0, size=(models, n, classes)) + 0.5 * (y[:, None] == np.arange(classes))
    if levels:
        weights = np.ceil(levels * weights / weights.max())
    return y, weights / weights.sum(axis=2, keepdims=True)


def classes_of(metric: Metric) -> int:
    return {AUROC: 2, **dict.fromkeys(REGRESSION, 0)}.get(metric, 3)


# --------------------------------------------------------------------------------------- against scikit-learn


@settings(max_examples=60, deadline=None)
@given(
    classes=st.integers(2, 6),
    n=st.integers(12, 80),
    levels=st.sampled_from([None, 2, 5, 50]),
    single=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_auroc_and_hand_till_equal_scikit_learn(classes, n, levels, single, seed):
    y, stack = make(classes, n=n, models=3, seed=seed, levels=levels)
    stack = stack.astype(np.float32 if single else np.float64)
    if classes == 2:
        expected = [sk.roc_auc_score(y, p[:, 1]) for p in stack]
        np.testing.assert_allclose(AUROC.batch(y, stack), expected, rtol=0, atol=1e-12)
    else:
        expected = [sk.roc_auc_score(y, p, multi_class="ovo", average="macro") for p in stack]
        np.testing.assert_allclose(HAND_TILL.batch(y, stack), expected, rtol=0, atol=1e-12)


def test_hand_till_equals_the_mean_of_pairwise_areas_on_unbalanced_classes():
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2, 3], [50, 9, 2, 1])
    p = rng.dirichlet(np.ones(4), len(y)).round(1)
    p = (p + 0.01) / (p + 0.01).sum(axis=1, keepdims=True)
    areas = []
    for i in range(4):
        for j in set(range(4)) - {i}:
            ours, other = p[y == i, i][:, None], p[y == j, i]
            areas.append(np.mean((ours > other) + 0.5 * (ours == other)))
    assert HAND_TILL(y, p) == pytest.approx(np.mean(areas), abs=1e-14)
    assert HAND_TILL(y, p) == pytest.approx(sk.roc_auc_score(y, p, multi_class="ovo"), abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("n", [1, 5, 60])
def test_f1_equals_scikit_learn(classes, n):
    rng = np.random.default_rng(n)
    y, stack = rng.integers(0, classes, n), rng.dirichlet(np.ones(classes), (20, n))
    average = "binary" if classes == 2 else "macro"
    expected = [sk.f1_score(y, p.argmax(axis=1), average=average, zero_division=0.0) for p in stack]
    assert F1.batch(y, stack) == pytest.approx(expected, abs=1e-12)
    assert F1.contributions(y, stack).mean(axis=1) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_standard_error_of_f1_is_how_far_it_scatters(classes):
    rng = np.random.default_rng(0)
    y, (p, q) = make(classes, n=40_000, models=2, seed=1)
    draws = [rng.integers(len(y), size=400) for _ in range(400)]
    spread = np.std([F1(y[rows], p[rows]) for rows in draws])
    gaps = np.std([F1(y[rows], p[rows]) - F1(y[rows], q[rows]) for rows in draws])
    assert F1.standard_error(y[:400], p[:400]) == pytest.approx(spread, rel=0.15)
    assert F1.paired_error(y[:400], p[:400], q[:400]) == pytest.approx(gaps, rel=0.15)


def test_f1_without_rows_of_its_class_is_refused_before_training():
    check_metric(F1, [0, 1, 0], 2)
    check_metric(F1, [0, 0, 1], 3)
    with class_names(["no", "yes"]), pytest.raises(DataError, match="scores class 'yes', and none of the 3"):
        check_metric(F1, [0, 0, 0], 2, where="the validation rows")


@pytest.mark.parametrize("levels", [None, 4])
def test_the_other_metrics_equal_scikit_learn(levels):
    y, stack = make(3, levels=levels)
    assert LOG_LOSS(y, stack[0]) == pytest.approx(sk.log_loss(y, stack[0]), rel=1e-12)
    assert ACCURACY(y, stack[0]) == sk.accuracy_score(y, stack[0].argmax(axis=1))
    y, stack = make(0)
    assert SQUARED_LOSS(y, stack[0]) == pytest.approx(sk.mean_squared_error(y, stack[0]), rel=1e-12)
    assert RMSE(y, stack[0]) == pytest.approx(sk.root_mean_squared_error(y, stack[0]), rel=1e-12)
    for metric in (MAE, ABSOLUTE_LOSS):
        assert metric(y, stack[0]) == pytest.approx(sk.mean_absolute_error(y, stack[0]), rel=1e-12)
    expected = sk.mean_absolute_error(np.exp(y), np.exp(stack[0]))
    assert MAE_EXP(y, stack[0]) == pytest.approx(expected, rel=1e-12)
    assert mae_in_units(lambda v: 10 * v + 3, name="euros")(y, stack[0]) == pytest.approx(
        10 * MAE(y, stack[0])
    )


def test_perfect_reversed_and_constant_rankings_are_exact():
    y = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    perfect = np.eye(3)[y]
    assert HAND_TILL(y, perfect) == 1.0
    assert HAND_TILL(y, (1.0 - perfect) / 2.0) == 0.0
    assert HAND_TILL(y, np.full((9, 3), 1 / 3)) == 0.5
    assert AUROC([0, 1, 1], [[1, 0], [0, 1], [0.5, 0.5]]) == 1.0
    assert AUROC([1, 0, 0], [[1, 0], [0, 1], [0.5, 0.5]]) == 0.0
    assert AUROC([1, 0, 0], np.full((3, 2), 0.5)) == 0.5


# ------------------------------------------------------------------------------------------- rounds of models


@pytest.mark.parametrize("metric", CLASSIFICATION + REGRESSION, ids=lambda m: m.name)
@pytest.mark.parametrize("levels", [None, 5])
def test_a_model_scores_the_same_bits_alone_and_in_a_round(metric, levels):
    y, stack = make(classes_of(metric), n=133, models=5, levels=levels)
    alone = np.array([metric(y, p) for p in stack])
    errors = np.array([metric.standard_error(y, p) for p in stack])
    assert metric.batch(y, stack).shape == (5,)
    assert metric.batch(y, stack).tobytes() == alone.tobytes()
    assert metric.standard_errors(y, stack).tobytes() == errors.tobytes()
    assert metric.batch(y, np.asfortranarray(stack)).tobytes() == alone.tobytes()
    assert np.unique(alone).size > 1


@pytest.mark.parametrize("metric", CLASSIFICATION + REGRESSION, ids=lambda m: m.name)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_diverged_model_scores_nan_and_harms_no_other(metric, bad):
    y, stack = make(classes_of(metric))
    spoilt = stack.copy()
    spoilt[1].flat[7] = bad
    np.testing.assert_array_equal(metric.batch(y, spoilt)[[0, 2, 3]], metric.batch(y, stack)[[0, 2, 3]])
    assert np.isnan(metric.batch(y, spoilt)[1])
    assert np.isnan(metric(y, np.full_like(stack[0], bad)))
    assert np.isnan(metric.standard_errors(y, spoilt)).tolist() == [False, True, False, False]
    assert np.isnan(metric.paired_error(y, spoilt[0], spoilt[1]))


def test_overflow_is_infinite_without_a_warning():
    assert MAE_EXP([0.0, 1.0], [1e4, 1.0]) == np.inf
    assert RMSE([0.0, 1.0], [1e200, 1.0]) == np.inf
    assert np.isnan(RMSE.standard_error([0.0, 1.0], [1e200, 1.0]))


def test_single_precision_is_averaged_in_double_precision():
    y, stack = make(0, n=1000)
    single = stack.astype(np.float32)
    assert RMSE(y.astype(np.float32), single[0]) == pytest.approx(
        RMSE(y.astype(np.float32), single[0].astype(np.float64)), rel=1e-15
    )


# -------------------------------------------------------------------------------------------- standard errors


def delong_by_definition(y: np.ndarray, p: np.ndarray, columns: list[int]) -> float:
    """The standard error of the mean of A(c | j), c in columns, j ≠ c, by comparing all pairs of rows."""
    share = np.zeros(len(y))
    pairs = 0
    for c in columns:
        for j in set(np.unique(y)) - {c}:
            wins = (p[y == c, c][:, None] > p[y == j, c]) + 0.5 * (p[y == c, c][:, None] == p[y == j, c])
            share[y == c] += wins.mean(axis=1)
            share[y == j] += wins.mean(axis=0)
            pairs += 1
    variances = [np.var(share[y == c], ddof=1) / np.sum(y == c) for c in np.unique(y)]
    return float(np.sqrt(np.sum(variances)) / pairs)


@pytest.mark.parametrize("levels", [None, 3])
def test_auroc_errors_are_delongs(levels):
    y, stack = make(2, levels=levels)
    assert AUROC.standard_error(y, stack[0]) == pytest.approx(
        delong_by_definition(y, stack[0], [1]), rel=1e-12
    )
    y, stack = make(4, levels=levels)
    expected = delong_by_definition(y, stack[0], [0, 1, 2, 3])
    assert HAND_TILL.standard_error(y, stack[0]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("metric", CLASSIFICATION + REGRESSION, ids=lambda m: m.name)
def test_errors_match_the_spread_over_fresh_rows(metric):
    classes = classes_of(metric)
    rng = np.random.default_rng(1)
    y, (p, q) = make(classes, n=20_000, models=2, seed=1)
    scores, errors, differences, paired = [], [], [], []
    for _ in range(300):
        rows = rng.integers(len(y), size=300)
        a, b = metric(y[rows], p[rows]), metric(y[rows], q[rows])
        scores.append(a)
        differences.append(a - b)
        errors.append(metric.standard_error(y[rows], p[rows]))
        paired.append(metric.paired_error(y[rows], p[rows], q[rows]))
    assert np.median(errors) == pytest.approx(np.std(scores), rel=0.2)
    assert np.median(paired) == pytest.approx(np.std(differences), rel=0.2)


def test_errors_that_cannot_be_known_are_nan_and_a_perfect_fit_has_none():
    assert np.isnan(MAE.standard_error([1.0], [2.0]))
    assert np.isnan(AUROC.standard_error([0, 0, 1], [[0.5, 0.5], [0.2, 0.8], [0.1, 0.9]]))
    assert RMSE.standard_error([1.0, 2.0], [1.0, 2.0]) == 0.0
    assert RMSE.paired_error([1.0, 2.0], [0.0, 5.0], [0.0, 5.0]) == 0.0
    mine = as_metric(lambda y, p: 1.0, classes=2, higher_is_better=True)
    assert np.isnan(mine.standard_error([0, 1], np.full((2, 2), 0.5)))


# ------------------------------------------------------------------------------------------------- row losses


def test_row_losses_have_one_value_per_row():
    y, stack = make(3)
    rows = row_losses(y, stack, 3)
    assert rows.shape == (4, 60)
    np.testing.assert_array_equal(row_losses(y, stack[2], 3), rows[2])
    assert rows[0, 5] == -np.log(stack[0, 5, y[5]])
    y, stack = make(0)
    rows = row_losses(y, stack, 0)
    np.testing.assert_array_equal(rows, (stack - y) ** 2)
    np.testing.assert_array_equal(row_losses(y, stack[1], 0), rows[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_probability_of_zero_costs_much_but_not_infinitely_much(dtype):
    p = np.array([[1, 0], [1, 0], [np.nan, np.nan], [np.inf, 0]], dtype=dtype)
    rows = row_losses([0, 1, 0, 0], p, 2)
    np.testing.assert_allclose(rows, [0.0, -np.log(float(np.finfo(dtype).tiny)), np.nan, np.nan])


def test_mean_and_error():
    y, stack = make(3)
    mean, error = mean_and_error(row_losses(y, stack, 3))
    np.testing.assert_array_equal(mean, LOG_LOSS.batch(y, stack))
    np.testing.assert_array_equal(error, LOG_LOSS.standard_errors(y, stack))
    rows = row_losses(y, stack[0], 3)
    assert error[0] == pytest.approx(rows.std(ddof=1) / np.sqrt(60), rel=1e-12)
    assert np.isnan(mean_and_error([np.inf, 1.0])[1])


@pytest.mark.parametrize(
    ("shape", "classes"),
    [((60, 1), 0), ((59,), 0), ((60,), 3), ((60, 2), 3), ((2, 59, 3), 3), ((1, 2, 60), 0)],
)
def test_row_losses_of_the_wrong_shape(shape, classes):
    with pytest.raises(InputError, match="do not fit"):
        row_losses(np.zeros(60, dtype=int), np.ones(shape), classes)


# -------------------------------------------------------------------------------------------------- bad input


def test_absent_classes_warn_and_leave_their_pairs_out():
    y, stack = make(3)
    wide = np.insert(stack, 1, 0.0, axis=2)
    labels = np.array([0, 2, 3])[y]
    with pytest.warns(AbsentClassWarning, match="classes 1 have no rows"):
        assert HAND_TILL(labels, wide[0]) == HAND_TILL(y, stack[0])
    assert HAND_TILL.standard_error(labels, wide[0]) == HAND_TILL.standard_error(y, stack[0])


def test_at_most_five_absent_classes_are_named():
    p = np.full((4, 10), 0.1)
    with pytest.warns(AbsentClassWarning, match=r"classes 1, 2, 3, 4, 5 … \(8 in all\) have no rows"):
        HAND_TILL([0, 9, 0, 9], p)


def test_classes_are_called_by_name_where_names_are_known():
    p = np.full((4, 3), 1 / 3)
    with class_names(["No", "no", "yes"]):
        with pytest.warns(AbsentClassWarning, match="classes 'No' have no rows"):
            HAND_TILL([1, 2, 1, 2], p)
        with pytest.raises(DataError, match="all 4 labels are class 'yes': "):
            HAND_TILL([2, 2, 2, 2], p)
    with pytest.warns(AbsentClassWarning, match="classes 0 have no rows"):
        HAND_TILL([1, 2, 1, 2], p)


def test_absent_classes_that_were_told_are_not_warned_of_again():
    p = np.full((4, 3), 1 / 3)
    with class_names((), told=True):
        assert HAND_TILL([1, 2, 1, 2], p) == 0.5
        with pytest.warns(UserWarning, match="another one"):
            warnings.warn("another one", UserWarning, stacklevel=1)
    with pytest.warns(AbsentClassWarning):
        HAND_TILL([1, 2, 1, 2], p)


@pytest.mark.parametrize(("metric", "classes"), [(AUROC, 2), (HAND_TILL, 3)])
def test_one_class_is_an_error_that_says_what_to_do(metric, classes):
    p = np.full((5, classes), 1 / classes)
    with pytest.raises(DataError, match=r"all 5 labels are class 1: add rows of another class"):
        metric(np.ones(5, dtype=int), p)
    with pytest.raises(DataError, match=r"^validation file: .*all 5 labels are class 1"):
        check_metric(metric, np.ones(5, dtype=int), classes, where="validation file")


@pytest.mark.parametrize(
    ("metric", "y", "p", "message"),
    [
        (AUROC, [0, 1, 2], np.full((3, 3), 1 / 3), "two classes, not 3; choose 'hand-till'"),
        (AUROC, [0, 0], [[1.0], [1.0]], "two classes, not 1; choose 'hand-till'"),
        (AUROC, [0, 1], [0.2, 0.8], r"must be \(rows, classes\)"),
        (ACCURACY, [0, 1], [[2.0, -3.0], [1.0, 4.0]], "row 0 sum to -1: apply a softmax"),
        (ACCURACY, [0, 2], [[0.5, 0.5], [0.5, 0.5]], r"labels 0 … 2 but predictions for 2 classes"),
        (ACCURACY, [-1, 1], [[0.5, 0.5], [0.5, 0.5]], r"labels -1 … 1"),
        (LOG_LOSS, [0.0, 1.0], [[0.5, 0.5], [0.5, 0.5]], "whole numbers"),
        (MAE, [1.0, 2.0], [[1.0], [2.0]], r"must be \(rows,\)"),
        (MAE, [1.0, 2.0], [1.0], r"labels of shape \(2,\) and predictions of shape \(1,\)"),
        (MAE, [[1.0]], [1.0], r"labels of shape \(1, 1\)"),
        (MAE, [], [], "no rows"),
    ],
)
def test_input_that_cannot_be_scored(metric, y, p, message):
    with pytest.raises(InputError, match=message):
        metric(y, p)


def test_labels_out_of_range_have_no_loss():
    with pytest.raises(DataError, match="row losses: labels 0 … 2 but predictions for 2 classes"):
        row_losses([0, 2], np.full((2, 2), 0.5), 2)
    with pytest.raises(DataError, match="whole numbers"):
        row_losses([0.0, 1.0], np.full((2, 2), 0.5), 2)


def test_a_pair_of_models_needs_the_same_rows():
    with pytest.raises(InputError, match="not of the same rows"):
        MAE.paired_error([1.0, 2.0], [1.0, 2.0], [1.0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint64])
def test_labels_may_be_any_whole_numbers(dtype):
    y, stack = make(3)
    for metric in (LOG_LOSS, ACCURACY, HAND_TILL):
        np.testing.assert_array_equal(metric.batch(y.astype(dtype), stack), metric.batch(y, stack))
    assert HAND_TILL.standard_error(y.astype(dtype), stack[0]) == HAND_TILL.standard_error(y, stack[0])
    np.testing.assert_array_equal(row_losses(y.astype(dtype), stack, 3), row_losses(y, stack, 3))


def test_half_precision_probabilities_are_probabilities():
    y, stack = make(4)
    assert LOG_LOSS(y, stack[0].astype(np.float16)) == pytest.approx(LOG_LOSS(y, stack[0]), rel=1e-2)


# ----------------------------------------------------------------------------------- names, callables, checks


def test_names_resolve_by_task():
    assert as_metric("auroc", classes=2) is AUROC
    assert as_metric("AUROC", classes=5) is as_metric("auc", classes=5) is HAND_TILL
    assert as_metric("auc", classes=2) is AUROC
    assert as_metric("f1", classes=2) is as_metric("F1", classes=4) is F1
    assert as_metric("log_loss", classes=3) is as_metric("loss", classes=3) is LOG_LOSS
    assert as_metric("loss", classes=0) is SQUARED_LOSS
    assert as_metric(MAE, classes=0) is MAE
    assert default_metric(2) is AUROC
    assert default_metric(3) is HAND_TILL
    assert default_metric(0) is RMSE
    for metric in CLASSIFICATION + REGRESSION:
        assert as_metric(metric.name, classes=classes_of(metric)) is metric


def test_names_that_do_not_resolve():
    with pytest.raises(
        InputError, match="unknown metric 'f2'; for a classification there are accuracy, auroc, "
    ):
        as_metric("f2", classes=2)
    with pytest.raises(InputError, match="'mae' is for a regression, but this is a classification; choose"):
        as_metric("mae", classes=2)
    with pytest.raises(InputError, match="'auroc' is for a classification, but this is a regression"):
        as_metric(AUROC, classes=0)
    with pytest.raises(InputError, match="got 3"):
        as_metric(3, classes=2)  # type: ignore[arg-type]


def test_a_users_function_is_a_metric():
    def brier(y, p):
        return np.mean((p[:, 1] - y) ** 2)

    y, stack = make(2)
    with pytest.raises(
        InputError,
        match=r"'brier' does not say its direction: use mixtree.metrics.as_metric\(brier, classes=2",
    ):
        as_metric(brier, classes=2)
    metric = as_metric(brier, classes=2, higher_is_better=False)
    assert (metric.name, metric.higher_is_better) == ("brier", False)
    np.testing.assert_array_equal(metric.batch(y, stack), [brier(y, p) for p in stack])
    brier.higher_is_better = True
    assert as_metric(brier, classes=2, name="mine").name == "mine"
    assert as_metric(brier, classes=2).higher_is_better
    check_metric(metric, y, 2)


def test_a_users_function_never_sees_diverged_predictions():
    def fussy(y, p):
        assert np.isfinite(p).all()
        return 1.0

    y, stack = make(0)
    stack[2, 3] = np.nan
    metric = as_metric(fussy, classes=0, higher_is_better=False)
    np.testing.assert_array_equal(metric.batch(y, stack), [1.0, 1.0, np.nan, 1.0])


def test_a_users_function_that_fails_is_found_before_training():
    def broken(y, p):
        return p[:, 7].sum()

    def vector(y, p):
        return p.sum(axis=1)

    y, _ = make(3)
    with pytest.raises(DataError, match=r"'broken' fails on their labels.*\(60, 3\) \(IndexError: "):
        check_metric(as_metric(broken, classes=3, higher_is_better=True), y, 3)
    with pytest.raises(InputError, match="the validation rows: a metric must return one number"):
        check_metric(as_metric(vector, classes=3, higher_is_better=True), y, 3)


def test_check_metric_passes_what_can_be_computed_and_keeps_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for metric in CLASSIFICATION + REGRESSION:
            check_metric(metric, make(classes_of(metric))[0], classes_of(metric))
        check_metric(LOG_LOSS, np.ones(4, dtype=int), 2)
        check_metric(MAE, [1, 2, 3], 0)
        with pytest.raises(AbsentClassWarning):
            check_metric(HAND_TILL, np.array([0, 2, 0]), 3)
    with pytest.raises(InputError, match="'mae' is for a regression"):
        check_metric(MAE, [0, 1], 2)
    with pytest.raises(InputError, match="the validation rows: metric 'auroc' is for two classes"):
        check_metric(AUROC, [0, 1, 2], 3)
    with pytest.raises(DataError, match="the validation rows: .* no rows"):
        check_metric(LOG_LOSS, np.zeros(0, dtype=int), 2)


def test_worst_source_knows_the_direction():
    y, stack = make(2)
    parts = [(y, p) for p in stack]
    assert worst_source(parts, AUROC) == min(AUROC.batch(y, stack))
    assert worst_source(parts, LOG_LOSS) == max(LOG_LOSS.batch(y, stack))
    assert np.isnan(worst_source([*parts, (y, np.full_like(stack[0], np.nan))], AUROC))
    with pytest.raises(DataError, match="source 1: metric 'auroc'.*all 60 labels are class 0"):
        worst_source([parts[0], (np.zeros(60, dtype=int), stack[0])], AUROC)
    with pytest.raises(InputError, match="at least one source"):
        worst_source([], AUROC)


def test_signed_values_are_better_when_smaller():
    for metric in CLASSIFICATION + REGRESSION:
        y, (p, _) = make(classes_of(metric), models=2)
        truth = np.eye(classes_of(metric))[y] if classes_of(metric) else y
        assert metric.signed(metric(y, truth)) < metric.signed(metric(y, p))
    assert np.isnan(AUROC.signed(float("nan")))


@pytest.mark.parametrize("metric", CLASSIFICATION + REGRESSION, ids=lambda m: m.name)
def test_metrics_travel_to_other_processes(metric):
    y, stack = make(classes_of(metric))
    copy = pickle.loads(pickle.dumps(metric))
    np.testing.assert_array_equal(copy.batch(y, stack), metric.batch(y, stack))


@pytest.mark.parametrize("metric", [AUROC, HAND_TILL, LOG_LOSS, ACCURACY, MAE, SQUARED_LOSS, RMSE])
@pytest.mark.parametrize("rows", [4, 30, 200])
def test_scores_follow_from_the_rows_contributions(metric, rows):
    rng = np.random.default_rng(rows)
    classes = {"auroc": 2, "hand-till": 5}.get(metric.name, 3)
    if metric.task == "regression":
        y, stack = rng.normal(size=rows), rng.normal(size=(6, rows))
    else:
        y = np.append(
            np.arange(2), rng.integers(min(classes, 4), size=rows - 2)
        )  # the fifth class has no rows
        stack = rng.integers(1, 9, size=(6, rows, classes)).astype(np.float64)  # with ties
        stack /= stack.sum(axis=2, keepdims=True)
    found = metric.from_terms(y, metric.contributions(y, stack))
    if metric is RMSE:
        assert found is None  # its contributions say how it moves, not what it is
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AbsentClassWarning)
        assert found == pytest.approx(metric.batch(y, stack), rel=1e-12)


def test_scores_of_a_metric_without_contributions_do_not_follow():
    own = as_metric(lambda y, p: 0.5, classes=2, higher_is_better=True)
    assert own.from_terms(np.array([0, 1]), np.zeros((1, 2))) is None


def test_scores_follow_only_from_a_metrics_own_contributions():
    y, stack = np.array([0, 1, 1]), np.array([[[0.9, 0.1], [0.4, 0.6], [0.95, 0.05]]])
    for metric in (ACCURACY, AUROC):
        other = replace(metric, contributions=lambda y, s, metric=metric: 2 * metric.contributions(y, s))
        assert metric.from_terms(y, metric.contributions(y, stack)) == pytest.approx(metric.batch(y, stack))
        assert other.from_terms(y, other.contributions(y, stack)) is None


def test_who_was_told_of_absent_classes_is_not_warned_and_no_thread_minds():
    y, told = np.array([0, 1, 0, 1]), np.full((4, 3), 1 / 3)
    filters, inside, leave = list(warnings.filters), Event(), Event()

    def other():
        with class_names(told=True):
            inside.set()
            leave.wait()
            HAND_TILL(y, told)

    thread = Thread(target=other)
    with class_names(told=True):
        thread.start()
        inside.wait()
        HAND_TILL(y, told)
    leave.set()
    thread.join()
    assert list(warnings.filters) == filters
    with pytest.warns(AbsentClassWarning, match="classes 2 have no rows among the 4 labels"):
        HAND_TILL(y, told)
    with absent_classes() as notes:
        HAND_TILL(y, told)
        HAND_TILL(y, told)
    assert len(notes) == 1 and "classes 2 have no rows" in notes[0]


def test_what_adds_up_by_class_and_what_does_not():
    y = np.array([0, 1, 1, 0])
    stack = np.array([[[0.6, 0.4], [0.3, 0.7], [0.7, 0.3], [0.8, 0.2]]])
    for metric in (replace(LOG_LOSS, by_class=True), replace(HAND_TILL, by_class=False)):
        assert not metric.adds_up and metric.from_terms(y, metric.contributions(y, stack)) is None
    assert LOG_LOSS.adds_up and HAND_TILL.adds_up and AUROC.adds_up and not RMSE.adds_up


def test_weighted_sums_of_metrics():
    rng = np.random.default_rng(0)
    y, predictions = rng.integers(0, 2, 80), rng.dirichlet(np.ones(2), 80)
    mixed = as_metric("0.7*auroc + 0.3*accuracy", classes=2)
    assert mixed.name == as_metric(mixed.name, classes=2).name == "0.7*auroc+0.3*accuracy"
    assert mixed.higher_is_better and mixed.task == "classification"
    assert mixed(y, predictions) == pytest.approx(
        0.7 * AUROC(y, predictions) + 0.3 * ACCURACY(y, predictions)
    )
    loss = as_metric("log-loss-0.5*auroc", classes=2)
    assert not loss.higher_is_better
    assert loss(y, predictions) == pytest.approx(LOG_LOSS(y, predictions) - 0.5 * AUROC(y, predictions))
    # Of one term the error is the metric's own; of a sum it is that of resamples.
    alone = as_metric("1*auroc", classes=2)
    assert alone.standard_error(y, predictions) == pytest.approx(AUROC.standard_error(y, predictions))
    again = [rng.integers(0, 80, 80) for _ in range(2000)]
    spread = np.std([mixed(y[rows], predictions[rows]) for rows in again])
    assert mixed.standard_error(y, predictions) == pytest.approx(spread, rel=0.15)
    assert not pickle.loads(pickle.dumps(mixed)).adds_up


@pytest.mark.parametrize(
    ("text", "classes", "message"),
    [
        ("0.5*auroc+0.5*log-loss", 2, "pull apart"),
        ("0.5*auroc+0.5*gini", 2, "cannot read '.0.5.gini'"),
        ("0.5*auroc 0.5*accuracy", 2, "cannot read"),
        ("0.5*mae+0.5*auroc", 0, "of absolute-loss, loss, mae"),
        ("0*auroc", 2, "pull apart"),
        ("worst:", 2, "the worst group is worst:COLUMN"),
        ("aurocworst:region", 2, "the worst group is worst:COLUMN"),
        ("gini:worst:region", 2, "unknown metric 'gini'"),
    ],
)
def test_sums_and_worst_groups_that_are_none(text, classes, message):
    with pytest.raises(InputError, match=message):
        as_metric(text, classes=classes)


def test_the_worst_group_of_a_column():
    y = np.array([0, 1, 0, 1, 1, 1])
    predictions = np.array([[0.9, 0.1], [0.1, 0.9], [0.05, 0.95], [0.1, 0.9], [0.4, 0.6], [0.6, 0.4]])
    region = ["north", "north", "south", "south", "west", "west"]
    worst = as_metric("worst:region", classes=2)
    grouped = GroupedLabels.of(y, region)
    assert worst.name == "auroc:worst:region"
    with absent_classes() as notes:
        assert worst(grouped, predictions) == 0.0 < AUROC(y, predictions)
    assert notes == ["region west: no auroc of one class, left out"]
    correct = as_metric("accuracy:worst:region", classes=2)
    assert correct(grouped, predictions) == 0.5
    assert correct(grouped[:2], predictions[:2]) == 1.0
    assert ACCURACY(grouped, predictions) == ACCURACY(y, predictions)
    assert as_metric("mae:worst:region", classes=0)(GroupedLabels.of(1.0 * y, region), 0.5 + y) == 0.5
    with pytest.raises(DataError, match="nothing says which group a row is of"):
        correct(y, predictions)
    with pytest.raises(DataError, match="no group of column 'region' has a auroc"):
        worst(grouped[4:], predictions[4:])
    with pytest.raises(DataError, match="are no groups"):
        GroupedLabels.of(np.zeros(200), np.arange(200))
    with pytest.raises(DataError, match="one for each row"):
        GroupedLabels.of(y, region[:3])


def test_labels_know_their_groups_only_where_the_rows_are_the_same():
    y = GroupedLabels.of([3.0, 1.0, 2.0], ["a", "b", "c"])
    assert (2 * y + 1).groups.tolist() == y.astype(np.int64).groups.tolist() == ["a", "b", "c"]
    assert y[[2, 0]].groups.tolist() == ["c", "a"] and y[y > 1.5].groups.tolist() == ["a", "c"]
    for other in (np.sort(y), np.concatenate([y, y]), y.take([1, 0])):
        assert getattr(other, "groups", None) is None
