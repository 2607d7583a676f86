"""Optimism, the ladder and the outlook."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from mixtree.errors import InputError
from mixtree.metrics import ACCURACY, AUROC, LOG_LOSS, MAE, RMSE, SQUARED_LOSS, as_metric
from mixtree.stats import selection_bias
from mixtree.stats.choosing import terms_and_scores
from mixtree.verdict import (
    climbs,
    expected_optimism,
    ladder,
    optimism,
    outlook,
)


def test_optimism_grows_with_queries_and_falls_with_rows() -> None:
    assert 0 == optimism(1, 50) < optimism(2, 50) < optimism(100, 50)
    assert optimism(20, 400) == pytest.approx(optimism(20, 100) / 2)
    # The largest of 10 normal draws is 1.54 on average.
    assert optimism(10, 1) == pytest.approx(1.54, abs=0.02)
    with pytest.raises(InputError):
        optimism(0, 10)


def test_expected_optimism_of_a_mean_and_of_none() -> None:
    rng = np.random.default_rng(0)
    y = np.zeros(100)
    alike = rng.normal(size=(30, 100))
    often = [expected_optimism(MAE, y, rng.normal(size=(30, 100))) for _ in range(20)]
    assert np.mean(often) == pytest.approx(optimism(30, 100, spread=0.6), rel=0.2)
    assert expected_optimism(MAE, y, alike[:1]) == 0.0
    assert np.isnan(expected_optimism(MAE, y, alike[:0]))
    assert np.isnan(
        expected_optimism(as_metric(lambda a, b: 0.0, classes=0, higher_is_better=True), y, alike)
    )


def test_what_another_metric_chooses_has_less_to_gain_from_luck() -> None:
    gained: dict[str, list[float]] = {"itself": [], "by loss": [], "truly": []}
    for seed in range(150):
        rng = np.random.default_rng(seed)
        y = np.append([0, 1], rng.integers(2, size=98))
        odds = (2.0 * y - 1.0) * 0.7 + rng.normal(size=(20, 100))  # equal models, independent errors
        odds *= rng.choice([0.5, 1.0, 2.0], size=(20, 1))  # of which a loss prefers some, an area none
        p = 1.0 / (1.0 + np.exp(-odds))
        stack = np.stack([1.0 - p, p], axis=2)
        gained["itself"].append(expected_optimism(AUROC, y, stack))
        gained["by loss"].append(expected_optimism(AUROC, y, stack, objective=LOG_LOSS))
        best = min(stack, key=lambda each: LOG_LOSS(y, each))
        gained["truly"].append(AUROC(y, best) - float(ndtr(0.7 * np.sqrt(2.0))))
    means = {name: np.mean(found) for name, found in gained.items()}
    assert means["by loss"] < 0.8 * means["itself"]
    assert means["by loss"] == pytest.approx(means["truly"], abs=0.012)


@pytest.mark.parametrize("metric", [AUROC, LOG_LOSS, ACCURACY], ids=lambda metric: metric.name)
@pytest.mark.parametrize("groups", [900, 400])
def test_scores_move_as_much_as_their_standard_errors_say(metric, groups, monkeypatch) -> None:
    monkeypatch.setattr(selection_bias, "_GROUPS", groups)
    monkeypatch.setattr(selection_bias, "_DRAWS", 20_000)
    rng = np.random.default_rng(5)
    y = np.repeat([0, 1], [850, 50])  # sorted, and few of one class
    p = 1.0 / (1.0 + np.exp(-(2.0 * y - 1.0) * 0.8 - rng.normal(size=(3, 900))))
    stack = np.stack([1.0 - p, p], axis=2)
    terms = terms_and_scores(metric, y, stack)[0]
    labels = y if metric is not AUROC else np.array([3, 7])[y]
    moves = selection_bias._Resamples(labels, rng).moves(metric, terms)
    assert moves.mean(axis=0) == pytest.approx(0.0, abs=1e-12 if metric.by_class else 1e-3)
    assert moves.std(axis=0) == pytest.approx(metric.standard_errors(y, stack), rel=0.12)
    for model in range(3):  # whoever gains from a row that is there twice is better there
        twice = terms[model] > terms[model].mean()
        sign = 1.0 if metric.higher_is_better else -1.0
        resampled = selection_bias._Resamples(labels, rng)
        resampled._order, resampled._signs = None, np.where(twice, 1.0, -1.0)[None]
        resampled._total = np.array([2.0 * twice.mean()])
        moved = resampled.moves(metric, terms)[0, model]
        assert sign * moved >= -1e-12
        if metric is not AUROC:
            assert moved == pytest.approx(sign * (terms[model, twice].mean() - terms[model].mean()))


def test_a_model_that_errs_once_does_not_make_the_others_alike() -> None:
    rng = np.random.default_rng(0)
    y = np.append([0, 1], rng.integers(2, size=198))
    skill = np.linspace(0.2, 1.5, 20)[:, None]
    p = 1.0 / (1.0 + np.exp(-skill * (2.0 * y - 1.0) - 0.3 * rng.normal(size=(20, 200))))
    p = np.vstack([p, np.where(np.arange(200) == 7, 1e-300 if y[7] else 1.0, p[10])])
    stack = np.stack([1.0 - p, p], axis=2)
    without, given = (expected_optimism(AUROC, y, some, objective=LOG_LOSS) for some in (stack[:20], stack))
    assert given <= 1.5 * without + 1e-4


def test_an_objective_that_is_no_number_leaves_the_optimism_unknown() -> None:
    rng = np.random.default_rng(1)
    y = rng.normal(size=50)
    for model in (0, 1):
        models = y + rng.normal(size=(5, 50))
        models[model, 0] = 1e200
        assert np.isnan(expected_optimism(MAE, y, models, objective=SQUARED_LOSS))
    for unit in (1e-120, 1e100):
        models = y + rng.normal(size=(5, 50))
        plain = expected_optimism(RMSE, y, models, objective=SQUARED_LOSS)
        assert expected_optimism(RMSE, y * unit, models * unit, objective=SQUARED_LOSS) == pytest.approx(
            plain * unit, rel=1e-6
        )
    assert expected_optimism(MAE, y, np.array([y + 1.0] * 5)) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("metric", [AUROC, LOG_LOSS], ids=lambda metric: metric.name)
def test_many_rows_vary_in_groups(metric, monkeypatch) -> None:
    rng = np.random.default_rng(3)
    y = rng.integers(2, size=6_000)
    p = 1.0 / (1.0 + np.exp(-(2.0 * y - 1.0) * 0.5 - rng.normal(size=(12, 6_000))))
    stack = np.stack([1.0 - p, p], axis=2)
    grouped = expected_optimism(metric, y, stack)
    monkeypatch.setattr(selection_bias, "_GROUPS", 6_000)
    assert grouped == pytest.approx(expected_optimism(metric, y, stack), rel=0.25)
    assert grouped > 0.0


def test_the_ladder_needs_more_than_a_standard_error() -> None:
    y = np.zeros(100)
    rng = np.random.default_rng(0)
    best = np.abs(rng.normal(size=100)) + 0.5
    assert climbs(MAE, y, best - 0.3, best)
    assert not climbs(MAE, y, best, best)
    assert not climbs(MAE, y, best + rng.normal(size=100) * 0.3 - 0.001, best)
    assert ladder([3.0, 2.95, np.inf, 1.0, 1.2, 0.5], [0.1, 0.1, 0.1, 0.1, 0.1, np.nan]) == (0, 3, 5)
    assert ladder([], []) == ()


def test_the_outlook_stops_where_the_noise_is_larger_than_the_gain() -> None:
    rng = np.random.default_rng(0)
    values = list(1.0 + 0.01 * rng.normal(size=30))
    assert outlook(values, [0.05] * 30, left=30).stop
    assert not outlook(values, [0.000001] * 30, left=30).stop
    assert not outlook(values[:5], [0.05] * 5, left=30).stop  # too early to say
    assert outlook(values, [0.05] * 30, left=0).gain == 0.0
    few, many = (outlook(values, [0.05] * 30, left=left).gain for left in (5, 500))
    assert 0 < few < many < 0.05
    # 100 draws of N(0, 1) find a smallest of −2.51 on average.
    draws = list(rng.normal(size=4000) + 100.0)
    draws[0] = 100.0 - 10.0  # so far below that nothing more is to be gained
    assert outlook(draws, [0.1] * 4000, left=100).gain == pytest.approx(0.0, abs=1e-6)


def test_nothing_is_made_up_where_there_is_no_choice():
    assert expected_optimism(AUROC, [1], [[[0.4, 0.6]], [[0.3, 0.7]]]) == 0.0
    assert expected_optimism(AUROC, [1, 1], [[[0.4, 0.6], [0.2, 0.8]]]) == 0.0


def test_what_cannot_be_computed_is_not_called_nothing():
    rng = np.random.default_rng(0)
    y, huge = rng.standard_normal(50), rng.standard_normal((3, 50))
    huge[0, 0] = 1e200
    with np.errstate(all="ignore"):
        assert np.isnan(expected_optimism(SQUARED_LOSS, y, huge))


def test_values_that_still_fall_go_on_falling() -> None:
    falling, errors = [1.0 - 0.01 * k for k in range(40)], [0.05] * 40
    assert outlook(falling, errors, left=100).gain == pytest.approx(0.01 * 20)
    assert not outlook(falling, errors, left=100).stop
    assert outlook(falling, errors, left=2).stop
    # How far they fall is no gain where they do not get below the best.
    behind = [0.5] + [0.9] * 7 + [0.9 - 0.01 * k for k in range(8)]
    assert outlook(behind, [0.05] * 16, left=200).stop
    rising = [1.0 + 0.01 * k for k in range(40)]
    assert outlook(rising, errors, left=100).stop
