"""Which models some rows choose, and how they do on others."""

from __future__ import annotations

import numpy as np
import pytest

from mixtree.metrics import ACCURACY, AUROC, HAND_TILL, LOG_LOSS, MAE, RMSE, Metric
from mixtree.stats import choosing
from mixtree.stats.choosing import Chooser, all_finite, scores_by_terms, scores_of_picked
from mixtree.stats.selection import label_folds
from mixtree.verdict import (
    cross_fitted,
    expected_optimism,
)


@pytest.mark.parametrize("metric", [AUROC, ACCURACY, LOG_LOSS], ids=lambda metric: metric.name)
def test_parts_choose_and_score_as_if_they_were_all_rows(metric):
    rng = np.random.default_rng(4)
    y = np.append([0, 0, 1, 1], rng.integers(2, size=136))
    p = rng.random((7, 140)).round(2)
    stack = np.stack([1.0 - p, p], axis=2)
    parts = [label_folds(y, 2, rng) == 0 for _ in range(9)]
    expected = np.array([[metric(y[part], each[part]) for each in stack] for part in parts])
    better = 1.0 if metric.higher_is_better else -1.0
    chooser = Chooser(metric, y, stack)
    assert chooser.scores(np.array(parts)) == pytest.approx(better * expected)
    assert chooser(parts[0]) == int((better * expected[0]).argmax())
    picks = rng.integers(7, size=(9, 3))
    found = scores_of_picked(metric, y, stack, parts, picks)
    assert found == pytest.approx(np.take_along_axis(expected, picks, axis=1))


@pytest.mark.parametrize("metric", [AUROC, ACCURACY, LOG_LOSS, RMSE, MAE], ids=lambda metric: metric.name)
def test_many_models_choose_as_they_are_stored(metric, monkeypatch):
    rng = np.random.default_rng(6)
    if metric.task == "regression":
        y, stored = rng.standard_normal(60), list(rng.standard_normal((9, 60)).astype(np.float32))
    else:
        y, p = np.append([0, 0, 1, 1], rng.integers(2, size=56)), rng.random((9, 60)).astype(np.float32)
        p[0, :5] = 0.0  # the loss of a sure mistake is that of 32 bits, as in the search
        stored = list(np.stack([1.0 - p, p], axis=2))
    stack, parts = np.array(stored), rng.random((7, 60)) < 0.7
    better = 1.0 if metric.higher_is_better else -1.0
    expected = np.array([[better * metric(y[part], each[part]) for each in stack] for part in parts])
    monkeypatch.setattr(choosing, "_BLOCK", stack[0].size * 2)
    chooser = Chooser(metric, y, stored)
    assert chooser.scores(parts) == pytest.approx(expected, rel=1e-6)
    assert chooser(parts[0]) == expected[0].argmax() == Chooser(metric, y, stack)(np.flatnonzero(parts[0]))
    whole, kept = (cross_fitted(metric, y, dict(enumerate(given))) for given in (stack, stored))
    assert kept == whole


def test_models_that_predict_numbers_only():
    assert all_finite(np.ones((3, 2), dtype=np.float32))
    assert all_finite(np.full(9, 1e308)) and all_finite(np.full(9, -1e308))  # whose sum overflows
    for wrong in (np.nan, np.inf, -np.inf):
        assert not all_finite(np.array([1.0, wrong, 2.0]))
    assert not all_finite(np.array([np.inf, -np.inf]))
    told = {0: np.arange(8.0), 1: [None] * 8, 2: np.array([np.nan] * 8, dtype=object), 3: np.arange(8)}
    found = cross_fitted(MAE, np.arange(8.0) + 0.1, told)
    assert (found.value, found.queries) == (pytest.approx(0.1), 4)
    assert expected_optimism(MAE, np.arange(8.0), list(told.values())) == 0.0


def test_a_metric_that_is_a_mean_on_all_rows_only_is_scored_by_itself():
    def r2(y, stack):
        return 1.0 - ((stack - y) ** 2).mean(axis=1) / y.var()

    own = Metric("r2", True, r2, "regression", lambda y, stack: 1.0 - (stack - y) ** 2 / y.var())
    rng = np.random.default_rng(3)
    y = rng.standard_t(2, size=60)
    stack = y + 0.5 * rng.standard_normal((4, 60))
    part = label_folds(y, 2, rng) == 0
    chooser = Chooser(own, y, stack)
    assert chooser.scores(part[None])[0] == pytest.approx(r2(y[part], stack[:, part]))


@pytest.mark.parametrize("metric", [AUROC, HAND_TILL, ACCURACY, LOG_LOSS], ids=lambda metric: metric.name)
def test_scores_on_parts_by_the_rows_contributions(metric):
    rng = np.random.default_rng(8)
    classes = 3 if metric is HAND_TILL else 2
    y = rng.integers(classes, size=900)
    logits = rng.standard_normal((5, 900, classes)) + (y[:, None] == np.arange(classes))
    stack = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    parts = np.array([label_folds(y, 2, rng) == 0 for _ in range(6)])
    expected = np.array([[metric(y[part], each[part]) for each in stack] for part in parts])
    found = scores_by_terms(metric, y, metric.contributions(y, stack), parts)
    # Exact for means; of an area what two rows do together is left out, a fraction of its noise on the part.
    allowed = 0.1 * metric.standard_error(y, stack[0]) if metric.by_class else 1e-12
    assert found == pytest.approx(expected, abs=allowed)
    whole = scores_by_terms(metric, y, metric.contributions(y, stack), np.ones((1, 900), dtype=bool))
    assert whole[0] == pytest.approx(metric.batch(y, stack))


def test_rows_that_chose_say_nothing_about_an_area_on_the_others():
    """Models of noise: what the chosen one is worth on the other rows is a half."""
    rng, scores = np.random.default_rng(9), []
    for _ in range(300):
        y = rng.permutation(np.repeat([0, 1], 30))
        p = rng.random((20, 60))
        stack = np.stack([1.0 - p, p], axis=2)
        first = np.arange(60) < 30
        chosen = Chooser(AUROC, y, stack)(first)
        terms = AUROC.contributions(y, stack[[chosen]])
        scores.append(scores_by_terms(AUROC, y, terms, ~first[None])[0, 0])
    assert abs(np.mean(scores) - 0.5) < 3.0 * np.std(scores) / np.sqrt(300)
    assert np.std(scores) / np.sqrt(300) < 0.01  # chosen on all rows it would look .15 better
