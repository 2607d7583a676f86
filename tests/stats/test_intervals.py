"""Scores and paired differences: known answers, agreement of p and interval, and every degenerate case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp
from scipy.stats import t as student

from mixtree.errors import InputError
from mixtree.metrics import (
    ACCURACY,
    AUROC,
    F1,
    HAND_TILL,
    LOG_LOSS,
    MAE,
    MAE_EXP,
    RMSE,
    SQUARED_LOSS,
    Metric,
    as_metric,
)
from mixtree.verdict import (
    Difference,
    Repeat,
    corrected,
    honest_score,
    label_folds,
    out_of_fold,
    paired_difference,
    repeated_difference,
)

METRICS = (ACCURACY, F1, AUROC, LOG_LOSS, HAND_TILL, MAE, RMSE)


def problem(metric: Metric, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels and two models' predictions, the first one better."""
    rng = np.random.default_rng(seed)
    if metric.task == "regression":
        y = rng.normal(size=n)
        return y, y + rng.normal(size=n), y + 1.5 * rng.normal(size=n)
    classes = 3 if metric is HAND_TILL else 2
    y = np.arange(n) % classes
    pair = []
    for strength in (1.5, 0.5):
        scores = strength * np.eye(classes)[y] + rng.normal(size=(n, classes))
        pair.append(np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True))
    return y, pair[0], pair[1]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("n", [50, 300])
def test_the_interval_holds_the_value_and_shrinks_with_rows(metric: Metric, n: int) -> None:
    y, one, _ = problem(metric, n)
    score = honest_score(metric, y, one, rows_role="test")
    assert score.low < score.value < score.high
    assert score.value == pytest.approx(metric(y, one))
    assert (score.rows, score.optimistic, score.notes) == (n, False, ())
    y, one, _ = problem(metric, 16 * n)
    wide = honest_score(metric, y, one, rows_role="test")
    assert (wide.high - wide.low) < 0.5 * (score.high - score.low)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_twice_the_same_call_is_the_same_answer(metric: Metric) -> None:
    y, one, two = problem(metric, 60)
    first, again = (paired_difference(metric, y, one, two, seed=3) for _ in range(2))
    assert first == again


def test_accuracy_is_exact() -> None:
    y = np.zeros(40, dtype=int)
    predictions = np.eye(2)[np.r_[np.zeros(31, dtype=int), np.ones(9, dtype=int)]]
    score = honest_score(ACCURACY, y, predictions, rows_role="holdout")
    wanted = binomtest(31, 40).proportion_ci(0.95, method="exact")
    assert (score.low, score.high) == pytest.approx((wanted.low, wanted.high))


def test_a_mean_is_never_narrower_than_students_t() -> None:
    y, one, two = problem(MAE, 80)
    losses = np.abs(y - one)
    wanted = ttest_1samp(losses, 0.0).confidence_interval(0.95)
    score = honest_score(MAE, y, one, rows_role="test")
    assert score.low <= wanted.low + 1e-12
    assert score.high >= wanted.high - 1e-12
    skewed = honest_score(MAE, np.zeros(80), np.exp(one), rows_role="test")
    assert skewed.high - skewed.value > 1.1 * (skewed.value - skewed.low)  # to the side of the tail


def test_the_root_mean_square_is_the_root_of_the_mean_squares_interval() -> None:
    y, one, _ = problem(RMSE, 70)
    root = honest_score(RMSE, y, one, rows_role="test", seed=1)
    plain = honest_score(as_metric("squared-loss", classes=0), y, one, rows_role="test", seed=1)
    assert (root.low**2, root.high**2) == pytest.approx((plain.low, plain.high))


def test_a_perfect_ranking_is_not_taken_for_certainty() -> None:
    y = np.array([0, 1] * 15)
    p = np.where(y == 1, 0.9, 0.1) + np.linspace(0, 0.05, 30)
    score = honest_score(AUROC, y, np.column_stack([1 - p, p]), rows_role="test")
    assert score.value == score.high == 1.0
    assert score.low == pytest.approx(0.025 ** (1 / 15))
    worst = honest_score(AUROC, y, np.column_stack([p, 1 - p]), rows_role="test")
    assert (worst.value, worst.low, worst.high) == (0.0, 0.0, pytest.approx(1 - score.low))


def test_two_perfect_rankings_that_differ_are_not_the_same() -> None:
    y = np.array([0, 1] * 10)
    p, q = np.where(y == 1, 0.9, 0.1), np.where(y == 1, 0.8, 0.3)
    pair = [np.column_stack([1 - each, each]) for each in (p, q)]
    difference = paired_difference(AUROC, y, *pair)
    assert difference.value == 0.0
    assert difference.low < -0.1 and difference.high > 0.1
    assert difference.p == 1.0


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_identical_predictions_differ_by_nothing(metric: Metric) -> None:
    y, one, _ = problem(metric, 40)
    difference = paired_difference(metric, y, one, one.copy())
    assert (difference.value, difference.low, difference.high, difference.p) == (0.0, 0.0, 0.0, 1.0)
    assert difference.outcome == "the same"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_clear_winner_is_better_and_the_other_is_worse(metric: Metric) -> None:
    y, one, two = problem(metric, 500)
    difference = paired_difference(metric, y, one, two)
    assert difference.outcome == "better"
    assert difference.value == pytest.approx(metric(y, one) - metric(y, two))
    assert difference.p < 0.05
    assert paired_difference(metric, y, two, one).outcome == "worse"


@settings(max_examples=40, deadline=None)
@example(0, LOG_LOSS, 6, 0.9999999999999999)
@given(
    st.integers(0, 10_000), st.sampled_from(METRICS), st.integers(6, 60), st.floats(0.0, 1.0, allow_nan=False)
)
def test_the_interval_and_p_agree_and_swapping_turns_the_sign(
    seed: int, metric: Metric, n: int, share: float
) -> None:
    y, one, other = problem(metric, n, seed)
    two = share * one + (1.0 - share) * other
    difference = paired_difference(metric, y, one, two)
    assert difference.low <= difference.value <= difference.high
    assert (difference.p <= 0.05) == (not difference.low <= 0.0 <= difference.high)
    swapped = paired_difference(metric, y, two, one)
    assert swapped.value == pytest.approx(-difference.value)
    assert (swapped.value > 0) == (difference.value < 0)


def test_mcnemar_is_exact() -> None:
    y = np.zeros(60, dtype=int)
    one = np.eye(2)[np.zeros(60, dtype=int)]
    two = np.eye(2)[np.r_[np.ones(5, dtype=int), np.zeros(55, dtype=int)]]
    difference = paired_difference(ACCURACY, y, one, two)
    assert difference.p >= binomtest(0, 5).pvalue  # 0.0625: five rows are not enough
    assert difference.outcome == "not distinguishable"
    two = np.eye(2)[np.r_[np.ones(9, dtype=int), np.zeros(51, dtype=int)]]
    assert paired_difference(ACCURACY, y, one, two).outcome == "better"


def test_one_and_the_same_difference_on_every_row() -> None:
    y = np.arange(12.0)
    difference = paired_difference(MAE, y, y + 1.0, y + 2.0)
    assert (difference.value, difference.method) == (-1.0, "sign test")
    assert difference.outcome == "better"
    assert paired_difference(MAE, y[:4], y[:4] + 1.0, y[:4] + 2.0).outcome == "not distinguishable"


def test_a_loss_on_three_rows_is_wider_than_t_says() -> None:
    losses = np.zeros(50)
    losses[:3] = 1.0
    score = honest_score(MAE, np.zeros(50), losses, rows_role="test")
    assert score.high > ttest_1samp(losses, 0.0).confidence_interval(0.95).high
    assert score.high > 0.13


def test_holm_adjusts_in_the_order_of_p() -> None:
    def difference(p: float) -> Difference:
        return Difference(0.1, 0.01, 0.2, p, 100, "t", True)

    found = corrected([difference(0.04), difference(0.001), difference(0.02)])
    assert [each.p for each in found] == pytest.approx([0.04, 0.003, 0.04])
    found = corrected([difference(0.04), difference(0.03)])
    assert [each.p for each in found] == pytest.approx([0.06, 0.06])
    assert [each.outcome for each in found] == ["not distinguishable"] * 2
    unknown = Difference(np.nan, np.nan, np.nan, np.nan, 100, "none", True)
    assert corrected([difference(0.04), unknown])[0].p == 0.04
    assert corrected([]) == ()


def test_a_users_function_is_bootstrapped() -> None:
    def median(y: np.ndarray, predictions: np.ndarray) -> float:
        return float(np.median(np.abs(y - predictions)))

    metric = as_metric(median, classes=0, higher_is_better=False)
    y, one, two = problem(MAE, 120)
    score = honest_score(metric, y, one, rows_role="test")
    assert score.low < score.value < score.high < 2 * score.value
    assert paired_difference(metric, y, one, two).outcome in ("better", "not distinguishable")
    assert paired_difference(metric, y, one, y + 9.0).outcome == "better"


def test_one_class_is_answered_in_words() -> None:
    y, predictions = np.ones(30, dtype=int), np.full((30, 2), 0.5)
    score = honest_score(AUROC, y, predictions, rows_role="test")
    assert np.isnan([score.value, score.low, score.high]).all()
    assert "all 30 labels are class 1" in score.notes[0]
    difference = paired_difference(AUROC, y, predictions, predictions)
    assert difference.outcome == "unknown"
    assert honest_score(ACCURACY, y, predictions, rows_role="test").value == 0.0


def test_an_absent_class_is_noted() -> None:
    rng = np.random.default_rng(0)
    y, predictions = np.arange(40) % 2, rng.dirichlet(np.ones(3), 40)
    assert "classes 2 have no rows" in honest_score(HAND_TILL, y, predictions, rows_role="test").notes[0]


def test_a_class_of_one_row_has_a_wide_interval() -> None:
    rng = np.random.default_rng(1)
    y, p = np.r_[1, np.zeros(30, dtype=int)], rng.random(31)
    score = honest_score(AUROC, y, np.column_stack([1 - p, p]), rows_role="test")
    assert score.high - score.low > 0.5


def test_a_diverged_model_has_no_score() -> None:
    y, one, _ = problem(MAE, 30)
    broken = np.full(30, np.nan)
    score = honest_score(MAE, y, broken, rows_role="test")
    assert np.isnan(score.value) and "diverged" in score.notes[0]
    assert paired_difference(MAE, y, one, broken).outcome == "unknown"


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
@pytest.mark.parametrize("n", [3, 6, 19])
def test_few_rows_are_said_to_be_few(metric: Metric, n: int) -> None:
    y, one, two = problem(metric, n)
    score = honest_score(metric, y, one, rows_role="test")
    assert any(f"only {n} rows" in note for note in score.notes)
    assert paired_difference(metric, y, one, two).rows == n


def test_one_or_two_rows_do_not_fail() -> None:
    score = honest_score(MAE, np.zeros(2), np.arange(2) + 1.0, rows_role="test")
    assert 0.0 <= score.low <= score.value <= score.high
    alone = honest_score(MAE, np.zeros(1), np.ones(1), rows_role="test")
    assert alone.value == 1.0 and np.isnan(alone.low) and np.isnan(alone.high)
    gap = paired_difference(MAE, np.zeros(1), np.ones(1), np.zeros(1))
    assert gap.outcome == "unknown" and "one row" in gap.notes[-1]


def test_ties_are_neither_good_nor_bad() -> None:
    y = np.array([0, 1] * 15)
    tied = honest_score(AUROC, y, np.full((30, 2), 0.5), rows_role="test")
    assert tied.value == 0.5
    assert 0.5 - tied.low == pytest.approx(tied.high - 0.5) and tied.low < 0.4


def test_an_area_differs_by_one_at_most() -> None:
    y = np.array([0, 0, 1])
    right, wrong = np.eye(2)[y], np.eye(2)[1 - y]
    gap = paired_difference(AUROC, y, right, wrong)
    assert -1.0 <= gap.low <= gap.value <= gap.high <= 1.0


def test_roles_that_chose_are_optimistic() -> None:
    y, one, _ = problem(MAE, 30)
    roles = ("test", "holdout", "nested", "cross-fitted", "validation", "trained")
    found = [honest_score(MAE, y, one, rows_role=role).optimistic for role in roles]
    assert found == [False, False, False, True, True, True]


def test_bad_input_is_said() -> None:
    y, one, _ = problem(MAE, 30)
    with pytest.raises(InputError, match="level"):
        honest_score(MAE, y, one, rows_role="test", level=1.0)
    with pytest.raises(InputError, match="not of the same rows"):
        paired_difference(MAE, y, one, one[:-1])


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_intervals_cover(metric: Metric) -> None:
    """A rough check of what benchmarks/coverage.py measures: 100 draws of 50 rows from 20,000."""
    y, one, two = problem(metric, 21_000, seed=5)
    rng, hits, gaps = np.random.default_rng(7), 0, 0
    truth, gap = metric(y, one), metric(y, one) - metric(y, two)
    for seed in range(100):
        rows = rng.choice(len(y), size=50, replace=False)
        score = honest_score(metric, y[rows], one[rows], rows_role="test", seed=seed)
        difference = paired_difference(metric, y[rows], one[rows], two[rows], seed=seed)
        hits += score.low <= truth <= score.high
        gaps += difference.low <= gap <= difference.high
    assert hits >= 86 and gaps >= 86  # 95 expected; fewer than 86 have a chance of 1 in 7,000


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_what_the_choice_made_up_is_taken_off(metric: Metric) -> None:
    y, one, two = problem(metric, 80)
    plain = paired_difference(metric, y, one, two)
    less = paired_difference(metric, y, one, two, made_up=0.02)
    side = 1.0 if metric.higher_is_better else -1.0
    assert side * (plain.value - less.value) == pytest.approx(0.02)
    assert less.p >= plain.p
    near, far = ("low", "high") if metric.higher_is_better else ("high", "low")
    assert getattr(less, near) == pytest.approx(getattr(plain, near) - side * 0.02)
    assert getattr(less, far) == pytest.approx(getattr(plain, far))
    lost = paired_difference(metric, y, one, two, made_up=0.9)
    assert lost.outcome == "not distinguishable" and lost.p == 1.0


def test_a_p_value_may_be_smaller_than_any_resample_s_share() -> None:
    """Else no difference, however large, would survive the correction for fifty comparisons."""
    y, good, _ = problem(AUROC, 2000)
    _, bad, _ = problem(AUROC, 2000, seed=9)
    difference = paired_difference(AUROC, y, good, bad[::-1])
    assert 0.0 < difference.p < 1e-6
    adjusted = corrected([difference] * 60)[0]
    assert adjusted.p < 0.001
    assert adjusted.low > 0.0


@pytest.mark.parametrize("metric", [AUROC, LOG_LOSS, RMSE], ids=lambda metric: metric.name)
def test_where_resampling_says_more_than_nothing_it_is_asked(metric: Metric) -> None:
    """The tail only continues what resampling can tell: p is never above its share for that."""
    for seed in range(20):
        y, one, two = problem(metric, 60, seed)
        difference = paired_difference(metric, y, one, 0.9 * one + 0.1 * two)
        assert (difference.p <= 0.05) == (not difference.low <= 0.0 <= difference.high)


@pytest.mark.parametrize("metric", [RMSE, MAE, SQUARED_LOSS])
@pytest.mark.parametrize("unit", [2.0**-80, 2.0**-27, 2.0**-20, 2.0**10, 2.0**60])
def test_intervals_do_not_depend_on_the_unit_of_the_labels(metric, unit):
    rng = np.random.default_rng(5)
    y = rng.standard_normal(60)
    one, two = y + 0.3 * rng.standard_normal(60), y + 0.35 * rng.standard_normal(60)
    scale = unit**2 if metric is SQUARED_LOSS else unit
    plain, other = (honest_score(metric, y * u, one * u, rows_role="test") for u in (1.0, unit))
    assert [other.value, other.low, other.high] == pytest.approx(
        [scale * plain.value, scale * plain.low, scale * plain.high], rel=1e-9
    )
    plain, other = (paired_difference(metric, y * u, one * u, two * u) for u in (1.0, unit))
    assert [other.value, other.low, other.high] == pytest.approx(
        [scale * plain.value, scale * plain.low, scale * plain.high], rel=1e-6
    )
    assert (other.outcome, other.p) == (plain.outcome, pytest.approx(plain.p, rel=1e-6))


def _one_rare(rows: int, rare: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(rows - rare) % 4, np.full(rare, 4))
    logits = rng.standard_normal((rows, 5)) + 3.0 * (y[:, None] == np.arange(5))
    return y, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("rare", [1, 2, 4])
def test_a_class_of_a_few_rows_leaves_its_own_areas_open_and_no_others(rare: int) -> None:
    y, p = _one_rare(60, rare)
    score, usual = (honest_score(HAND_TILL, y[some], p[some], rows_role="test") for some in (y >= 0, y < 4))
    # Six of the ten pairs of classes are known.
    low, high = 0.6 * usual.low, 0.6 * usual.high + 0.4
    assert score.high - score.low <= high - low + 1e-12
    if rare == 1:
        assert score.method == "DeLong on the logit scale, rare classes unknown"
        assert (score.low, score.high) == pytest.approx((low, high))
    other = np.roll(p, 1, axis=0)
    gap = paired_difference(HAND_TILL, y, p, 0.9 * p + 0.1 * other)
    assert -0.6 < gap.low < gap.value < gap.high < 0.6


def test_classes_that_are_all_small_are_taken_as_they_are() -> None:
    y, p = _one_rare(16, 4)
    assert honest_score(HAND_TILL, y, p, rows_role="test").method == "DeLong on the logit scale"


@pytest.mark.parametrize(("metric", "steadier"), [(RMSE, True), (MAE, False)], ids=["rmse", "mae"])
def test_an_interval_that_reaches_0_says_why(metric: Metric, steadier: bool) -> None:
    y, p = np.zeros(30), np.full(30, 0.1)
    p[:2] = 40.0, 55.0
    p[2:] += np.linspace(0.0, 0.1, 28)
    score = honest_score(metric, y, p, rows_role="test")
    assert score.low == 0.0
    told = [note for note in score.notes if "is of a few rows" in note]
    assert len(told) == 1 and ("mae hangs less" in told[0]) is steadier
    assert not any(
        "of a few rows" in note
        for note in honest_score(metric, y, p[2:][[0] * 30] + y, rows_role="test").notes
    )


def _rare(rate: float, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Few positives, an overconfident model and the right one: the first is truly worse, by little."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < rate).astype(int)
    odds = 2.0 * y - 2.5 + 1.2 * rng.normal(size=n)
    both = 3.6 * odds + 0.3 * rng.normal(size=n), odds
    chances = [1.0 / (1.0 + np.exp(-each)) for each in both]
    return y, *(np.column_stack([1.0 - each, each]) for each in chances)


def test_a_log_loss_knows_that_it_hangs_on_a_class_of_few_rows() -> None:
    """A fifth of these were called better when rows of the rare class were not imagined."""
    found = [paired_difference(LOG_LOSS, *_rare(0.05, 50, seed)).outcome for seed in range(200)]
    assert found.count("better") <= 2
    y, one, two = _rare(0.05, 50, 3)
    alone = honest_score(LOG_LOSS, y, one, rows_role="test")
    plenty = honest_score(LOG_LOSS, np.tile(y, 6), np.tile(one, (6, 1)), rows_role="test")
    assert alone.high - alone.low > 3.0 * (plenty.high - plenty.low)
    # A class that no row has is the rarest of all.
    none = honest_score(LOG_LOSS, np.zeros(50, dtype=int), one, rows_role="test")
    assert none.high > none.value + 2.0 / 52.0 * -np.log(one[:, 1]).mean() * 0.9


@pytest.mark.parametrize("metric", [AUROC, RMSE, MAE, LOG_LOSS, ACCURACY], ids=lambda metric: metric.name)
def test_two_rows_are_sure_of_nothing(metric: Metric) -> None:
    y = np.array([0, 1])
    right, wrong = np.eye(2)[y], np.eye(2)[1 - y]
    if metric.task == "regression":
        right, wrong = y + 0.5, y + [1.0, 3.0]
    found = paired_difference(metric, y, right, wrong)
    assert found.outcome == "unknown" and found.notes[-1] == "two rows cannot tell two models apart"
    score = honest_score(metric, y, wrong, rows_role="test")
    assert 0.0 <= score.low <= score.high and score.notes[-1].startswith("only 2 rows")
    assert metric is not AUROC or (score.low, score.high) == (0.0, pytest.approx(0.975))


@pytest.mark.parametrize("n", [40, 90, 100, 101, 300])
@pytest.mark.parametrize("metric", [AUROC, HAND_TILL], ids=lambda metric: metric.name)
def test_rounding_does_not_make_ties_certain(metric: Metric, n: int) -> None:
    classes = 3 if metric is HAND_TILL else 2
    y = np.arange(n) % classes
    score = honest_score(metric, y, np.full((n, classes), 1.0 / classes), rows_role="test")
    assert score.value == pytest.approx(0.5) and score.low < 0.47 < 0.53 < score.high


def test_errors_in_other_units_are_losses_too() -> None:
    y, told = np.zeros(40), np.r_[np.full(39, 0.1), 6.0]
    score = honest_score(MAE_EXP, y, told, rows_role="test")
    assert score.low == 0.0 and any("its interval reaches 0" in note for note in score.notes)


def test_a_users_metric_that_fails_on_a_resample_has_an_interval() -> None:
    def picky(y: np.ndarray, p: np.ndarray) -> float:
        if len(np.unique(y)) < 2:
            raise ValueError("only one class")
        return AUROC(y, p)

    y, one, two = problem(AUROC, 60)
    y = np.r_[1, np.zeros(59, dtype=int)]
    own = as_metric(picky, classes=2, higher_is_better=True, name="own")
    assert np.isfinite(honest_score(own, y, one, rows_role="test").value)
    assert np.isfinite(paired_difference(own, y, one, two).p)


def _shifted(n: int, shift: float, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Labels, two equally good models of other base rates, and a third that is as good."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 2)
    odds = 0.7 * (2 * y - 1) + rng.normal(size=n)

    def model(by: float) -> np.ndarray:
        chance = 1.0 / (1.0 + np.exp(-(odds + 0.3 * rng.normal(size=n) + by)))
        return np.column_stack([1.0 - chance, chance])

    return y, {"a": model(-shift), "b": model(shift)}, model(0.0)


def test_models_of_different_folds_are_not_ranked_together() -> None:
    """Half of these were called better where rows of two models were ranked together."""
    outcomes, pooled = [], []
    for seed in range(120):
        y, singles, mine = _shifted(100, 2.0, seed)
        folds = label_folds(y, 2, np.random.default_rng(0))
        composite = out_of_fold(LOG_LOSS, y, singles, folds=folds)
        found = paired_difference(AUROC, y, mine, composite, folds=folds)
        parts = [folds == fold for fold in (0, 1)]
        gaps = [AUROC(y[part], mine[part]) - AUROC(y[part], composite[part]) for part in parts]
        assert found.value == pytest.approx(np.mean(gaps))
        outcomes.append(found.outcome)
        pooled.append(paired_difference(AUROC, y, mine, composite).outcome)
    assert outcomes.count("better") <= 6 < 30 < pooled.count("better")


def test_folds_change_nothing_but_areas_and_need_every_class() -> None:
    y, one, two = problem(AUROC, 60)
    folds = np.arange(60) // 2 % 2
    for metric in (LOG_LOSS, ACCURACY):
        assert paired_difference(metric, y, one, two, folds=folds) == paired_difference(metric, y, one, two)
    lacking = np.where(y == 0, 0, folds)
    pooled = paired_difference(AUROC, y, one, two, folds=lacking)
    assert "is ranked together" in pooled.notes[0]
    assert replace(pooled, notes=()) == paired_difference(AUROC, y, one, two)
    same = paired_difference(AUROC, y, one, two, folds=np.zeros(60, dtype=int))
    plain = paired_difference(AUROC, y, one, two)
    assert (same.value, same.low, same.high) == pytest.approx((plain.value, plain.low, plain.high))


@pytest.mark.parametrize("metric", [AUROC, LOG_LOSS, MAE, RMSE], ids=lambda metric: metric.name)
def test_a_wider_interval_has_a_larger_p(metric: Metric) -> None:
    y, one, two = problem(metric, 60)
    plain, wide = (paired_difference(metric, y, one, two, wider=by) for by in (1.0, 1.5))
    assert wide.value == plain.value and wide.p > plain.p
    assert wide.value - wide.low == pytest.approx(1.5 * (plain.value - plain.low))


def test_areas_of_a_rare_class_have_its_degrees_of_freedom() -> None:
    rng = np.random.default_rng(0)
    y = np.r_[np.ones(9, dtype=int), np.zeros(991, dtype=int)]
    good, bad = (1.0 / (1.0 + np.exp(-(by * y + rng.normal(size=1000)))) for by in (3.5, 0.0))
    pair = [np.column_stack([1.0 - each, each]) for each in (good, bad)]
    found = paired_difference(AUROC, y, *pair)
    # Beyond what resamples can say: t of 8 degrees of freedom, not of 999.
    reach = found.value - found.low
    assert found.p == pytest.approx(2.0 * student.sf(found.value / reach * student.ppf(0.975, 8), 8))
    assert 1e-7 < found.p < 1e-3


def test_an_area_is_delongs_on_the_logit_scale_with_an_imagined_pair() -> None:
    """Put together by hand: Satterthwaite's degrees of freedom, and a pair that is half right."""
    y = np.r_[np.ones(6, dtype=int), np.zeros(30, dtype=int)]
    rng = np.random.default_rng(1)
    scores = 1.2 * y + rng.normal(size=36)
    chance = 1.0 / (1.0 + np.exp(-scores))
    found = honest_score(AUROC, y, np.column_stack([1.0 - chance, chance]), rows_role="test")
    above = np.array([[float(a > b) for b in scores[y == 0]] for a in scores[y == 1]])
    parts = [above.mean(axis=1 - axis) for axis in (0, 1)]  # placements of the positives, of the others
    each = [part.var(ddof=1) / len(part) for part in parts]
    variance, area = sum(each), above.mean()
    freedom = variance**2 / sum(v**2 / (len(p) - 1) for v, p in zip(each, parts, strict=True))
    ends = []
    for centre in (area, (6 * area + 0.5) / 7):
        spread = variance * centre * (1 - centre) / (area * (1 - area))
        wide = student.ppf(0.975, freedom) * np.sqrt(spread) / (centre * (1 - centre))
        middle = np.log(centre / (1 - centre))
        ends.append([1 / (1 + np.exp(-(middle + by * wide))) for by in (-1, 1)])
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    assert (found.value, found.low, found.high) == pytest.approx((area, low, high))


def test_nearly_perfect_areas_are_told_apart_by_their_own_intervals() -> None:
    """DeLong's variance of their difference is next to nothing by luck; what each may be is not."""
    y = np.r_[np.ones(25, dtype=int), np.zeros(25, dtype=int)]
    better = np.linspace(0.99, 0.01, 50)
    worse = better.copy()
    worse[24], worse[25] = better[25], better[24]  # one pair is ranked wrong
    pair = [np.column_stack([1.0 - each, each]) for each in (better, worse)]
    found = paired_difference(AUROC, y, *pair)
    alone = honest_score(AUROC, y, pair[1], rows_role="test")
    assert found.outcome == "not distinguishable"
    assert found.high > 0.25 * (alone.value - alone.low)


def test_classes_that_are_nowhere_cost_nothing() -> None:
    """Of three classes one has no row: it may be one that there is nowhere."""
    rng = np.random.default_rng(0)
    y = np.array([0, 2])[rng.integers(2, size=300)]
    p = np.where(np.arange(3) == y[:, None], 0.7, 0.3) * [1.0, 0.0, 1.0]
    score = honest_score(LOG_LOSS, y, p / p.sum(axis=1, keepdims=True), rows_role="test")
    assert score.high < 0.45
    # And what a model thinks impossible costs something, but not without end.
    rare = np.r_[np.zeros(291, dtype=int), np.ones(9, dtype=int)]
    sure = honest_score(LOG_LOSS, rare, np.clip(np.eye(2)[rare], 0.01, 0.99), rows_role="test")
    zero = honest_score(LOG_LOSS, rare, np.eye(2)[rare], rows_role="test")
    assert 0.0 < zero.high < 0.2 and sure.high < 0.1


@pytest.mark.parametrize("rows", [50, 150])
def test_a_log_loss_of_a_sure_model_knows_that_it_may_be_mistaken(rows: int) -> None:
    """Two labels in a hundred are wrong; on a few rows the model may look as if none were."""
    held, rng = 0, np.random.default_rng(5)
    chances = np.array([[0.98, 0.02], [0.02, 0.98]])
    true = -0.98 * np.log(0.98) - 0.02 * np.log(0.02)
    for _ in range(100):
        meant = rng.integers(2, size=rows)
        y = np.where(rng.random(rows) < 0.02, 1 - meant, meant)
        score = honest_score(LOG_LOSS, y, chances[meant], rows_role="test")
        held += score.low <= true <= score.high
    assert held >= 90


def test_accuracies_differ_by_one_at_the_most() -> None:
    y = np.arange(7) % 2
    found = paired_difference(ACCURACY, y, np.eye(2)[y], np.eye(2)[1 - y], made_up=0.9, wider=1.75)
    assert -1.0 <= found.low <= found.value <= found.high <= 1.0


def test_few_rows_of_a_class_in_every_fold_tell_something_together() -> None:
    """One positive in every fold has no spread of its own, but all of them have one."""
    widths = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        y = np.r_[np.ones(9, dtype=int), np.zeros(191, dtype=int)]
        chances = [1.0 / (1.0 + np.exp(-(by * y + rng.normal(size=200)))) for by in (2.0, 1.5)]
        pair = [np.column_stack([1.0 - each, each]) for each in chances]
        found = [paired_difference(AUROC, y, *pair, folds=folds) for folds in (None, label_folds(y, 5, rng))]
        widths.append([each.high - each.low for each in found])
    pooled, within = np.median(widths, axis=0)
    assert within < 1.5 * pooled


def test_what_is_lost_in_the_rounding_of_huge_losses_is_no_difference() -> None:
    rng = np.random.default_rng(0)
    y, one, two = rng.normal(size=30), rng.normal(size=30), rng.normal(size=30)
    one[0] = two[0] = 1e9
    found = paired_difference(SQUARED_LOSS, y, one, two)
    assert found.low <= found.value <= found.high and found.outcome in ("the same", "not distinguishable")
    assert found.p == 1.0


@pytest.mark.parametrize("rows", [20, 200])
def test_f1_of_few_hits_or_of_no_mistake_has_an_interval(rows: int) -> None:
    y = np.zeros(rows, dtype=int)
    y[:3] = 1
    right = np.eye(2)[y]
    perfect = honest_score(F1, y, right, rows_role="test")
    assert perfect.value == perfect.high == 1.0
    assert perfect.low == pytest.approx(2.0 * 0.025 ** (1 / 3) / (1.0 + 0.025 ** (1 / 3)))  # exact: 3 of 3
    nothing = honest_score(F1, y, np.eye(2)[np.zeros(rows, dtype=int)], rows_role="test")
    assert nothing.value == nothing.low == 0.0
    assert nothing.high > 0.5
    surer = np.abs(right - 0.1)  # other predictions, the same classes
    gap = paired_difference(F1, y, right, surer)
    assert gap.low < 0.0 == gap.value < gap.high


# --------------------------------------------------------------------------------------- means over repeats


def models(rng, rows, regression=False):
    signal = 1.5 * rng.standard_normal(rows)
    if regression:
        return signal + rng.standard_normal(rows), signal + rng.normal(0, 0.3, rows), 0.8 * signal
    y = (rng.random(rows) < 1 / (1 + np.exp(-signal))).astype(int)
    p, q = (1 / (1 + np.exp(-each)) for each in (signal, 0.5 * signal + rng.normal(0, 0.5, rows)))
    return y, np.column_stack([1 - p, p]), np.column_stack([1 - q, q])


BY_ROW = [LOG_LOSS, ACCURACY, AUROC, RMSE, MAE]


@pytest.mark.parametrize("metric", BY_ROW, ids=lambda metric: metric.name)
def test_repeats_that_share_everything_are_as_good_as_one(metric):
    """The same rows three times are not three times as many rows."""
    y, one, two = models(np.random.default_rng(1), 120, metric.task == "regression")
    repeat = Repeat(y, one, two, np.arange(120))
    alone = paired_difference(metric, y, one, two)
    assert repeated_difference(metric, [repeat]) == alone
    thrice = repeated_difference(metric, [repeat] * 3)
    assert (thrice.value, thrice.rows) == (pytest.approx(alone.value), 120)
    assert (thrice.low, thrice.high) == (pytest.approx(alone.low), pytest.approx(alone.high))


@pytest.mark.parametrize("metric", BY_ROW, ids=lambda metric: metric.name)
def test_repeats_of_other_rows_add_up(metric):
    """Four repeats of 100 rows each, none in two of them, are nearly as good as 400 rows."""
    y, one, two = models(np.random.default_rng(2), 400, metric.task == "regression")
    parts = np.arange(400).reshape(4, 100)
    found = repeated_difference(metric, [Repeat(y[p], one[p], two[p], p) for p in parts])
    whole = paired_difference(metric, y, one, two)
    assert found.rows == 400
    assert 0.9 < (found.high - found.low) / (whole.high - whole.low) < 1.9
    crossed = [Repeat(y[p], one[p], two[p], np.arange(100)) for p in parts]  # believed to be the same rows
    assert repeated_difference(metric, crossed).rows == 100


def test_what_seeds_decide_has_students_interval():
    """Every row tells the same, every repeat something else: n rows are no help."""
    y, gaps = np.zeros(500), np.array([0.1, 0.3, 0.5, 0.2])
    noise = 1e-4 * np.random.default_rng(0).standard_normal(500)
    repeats = [Repeat(y, np.full(500, 1.0 + gap) + noise, np.ones(500), np.arange(500)) for gap in gaps]
    found = repeated_difference(MAE, repeats)
    reach = student.ppf(0.975, 3) * gaps.std(ddof=1) / 2
    assert found.value == pytest.approx(gaps.mean(), abs=1e-4)
    assert (found.high - found.value, found.value - found.low) == (pytest.approx(reach, rel=1e-2),) * 2
    assert found.p == pytest.approx(ttest_1samp(gaps, 0.0).pvalue, rel=0.05)
    two = repeated_difference(MAE, repeats[:2])
    assert two.low < 0.0 < two.high  # one degree of freedom


def test_seeds_that_only_shuffle_rows_are_not_counted_twice():
    """What repeats differ in by chance of single rows is within the rows already."""
    rng, y = np.random.default_rng(5), np.zeros(200)
    widths = []
    for _ in range(40):
        repeats = [
            Repeat(y, 1.0 + np.abs(rng.standard_normal(200)), np.ones(200), np.arange(200)) for _ in range(5)
        ]
        found = repeated_difference(MAE, repeats)
        widths.append(found.high - found.low)
    every = 2 * 1.96 * np.sqrt((1 - 2 / np.pi) / 1000)  # as of 1,000 rows
    assert 0.95 * every < np.median(widths) < 1.6 * every


def test_a_users_function_over_repeats_takes_nothing_off():
    def middle(y, predictions):
        return float(np.median(np.abs(y - predictions)))

    metric = as_metric(middle, classes=0, higher_is_better=False)
    rng = np.random.default_rng(3)
    y = rng.standard_normal(60)
    repeats = [
        Repeat(y, y + rng.standard_normal(60), y + 0.1 * rng.standard_normal(60), np.arange(60))
        for _ in range(3)
    ]
    found = repeated_difference(metric, repeats)
    single = [paired_difference(metric, each.y, each.one, each.two) for each in repeats]
    assert found.value == pytest.approx(np.mean([each.value for each in single]))
    assert found.outcome == "worse" and found.method == "mean of 3 repeats, bias-corrected bootstrap"
    widest = max(each.high - each.low for each in single)
    assert found.high - found.low >= 0.8 * widest


def test_repeats_of_the_same_predictions_and_of_diverged_models():
    y, one, two = models(np.random.default_rng(4), 50)
    rows = np.arange(50)
    same = repeated_difference(LOG_LOSS, [Repeat(y, one, one, rows)] * 2)
    assert same.outcome == "the same" and same.p == 1.0
    gone = [Repeat(y, one, two, rows), Repeat(y, one, np.full_like(two, np.nan), rows)]
    assert repeated_difference(LOG_LOSS, gone).outcome == "unknown"
    apart = [Repeat(y, one, two, rows), Repeat(y, one, one, rows), Repeat(y, one, two, rows)]
    found = repeated_difference(LOG_LOSS, apart)
    gap = LOG_LOSS(y, one) - LOG_LOSS(y, two)
    assert found.value == pytest.approx(2 / 3 * gap) and found.low <= found.value <= found.high


def test_the_interval_of_repeats_and_its_p_value_agree():
    rng = np.random.default_rng(9)
    for _ in range(30):
        y, one, two = models(rng, 40)
        noisy = [two + 0.0 * two for _ in range(3)]
        shifts = rng.normal(0, 0.08, size=(3, 1))
        noisy = [
            np.clip(each + [shift[0], -shift[0]], 0.01, 0.99)
            for each, shift in zip(noisy, shifts, strict=True)
        ]
        noisy = [each / each.sum(axis=1, keepdims=True) for each in noisy]
        found = repeated_difference(LOG_LOSS, [Repeat(y, one, each, np.arange(40)) for each in noisy])
        assert (found.p <= 0.05) == (not found.low <= 0.0 <= found.high)
