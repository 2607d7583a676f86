"""Rows kept aside, cross-fitting, optimism, the ladder and the outlook."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.errors import DataError, InputError
from mixtree.metrics import ACCURACY, AUROC, HAND_TILL, LOG_LOSS, MAE, RMSE, SQUARED_LOSS, Metric, as_metric
from mixtree.verdict import (
    climbs,
    cross_fitted,
    expected_optimism,
    holdout,
    ladder,
    optimism,
    out_of_fold,
    outlook,
    paired_difference,
    selection,
)
from mixtree.verdict.selection import (
    Chooser,
    all_finite,
    label_folds,
    scores_by_terms,
    scores_of_picked,
    terms_and_scores,
)


def with_validation(y: np.ndarray, classes: int) -> Sources:
    x = np.arange(len(y), dtype=float)[:, None]
    return Sources(("a",), (Rows(x, y),), Rows(x, y), classes)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 400), st.integers(0, 2**20), st.floats(0.05, 0.9), st.sampled_from([0, 2, 5]))
def test_a_holdout_and_the_rest_are_all_rows(n: int, seed: int, fraction: float, classes: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n) if classes else rng.normal(size=n)
    try:
        kept, held = holdout(with_validation(y, classes), fraction, seed=seed)
    except DataError as error:
        assert round(fraction * n) >= n or (classes and "takes none" in str(error))
        return
    assert held is not None
    both = np.concatenate([kept.validation.x, held.x])[:, 0]
    assert sorted(both) == list(range(n))
    if fraction * n > 1.5 and n > 3:
        for label in np.unique(y) if classes else ():
            if np.sum(y == label) > 1:
                assert label in kept.validation.y and label in held.y


def test_a_holdout_is_stratified_and_seeded() -> None:
    y = np.repeat([0, 1, 2], [200, 100, 20])
    sources = with_validation(y, 3)
    kept, held = holdout(sources, 0.25, seed=1)
    assert held is not None
    assert np.abs(np.bincount(held.y) - [50, 25, 5]).max() <= 1
    again = holdout(sources, 0.25, seed=1)[1]
    other = holdout(sources, 0.25, seed=2)[1]
    assert again is not None and other is not None
    assert np.array_equal(held.x, again.x) and not np.array_equal(held.x, other.x)
    assert kept.rows is sources.rows


@pytest.mark.parametrize(
    ("rows", "wanted"), [(20, 0), (149, 0), (150, 50), (200, 50), (400, 100), (20_000, 2000)]
)
def test_the_default_share_depends_on_the_rows(rows: int, wanted: int) -> None:
    held = holdout(with_validation(np.arange(rows) % 2, 2), seed=0)[1]
    assert (0 if held is None else len(held)) == wanted


def test_a_holdout_of_nothing_or_everything() -> None:
    sources = synthetic(validation=30, rows=20, test=1).sources
    assert holdout(sources, 0.0, seed=0) == (sources, None)
    with pytest.raises(InputError, match="share"):
        holdout(sources, 1.0, seed=0)
    with pytest.raises(DataError, match="leaves none"):
        holdout(sources, 0.999, seed=0)


def noise_nodes(n: int, count: int, seed: int) -> tuple[np.ndarray, dict[int, np.ndarray]]:
    """Models that know nothing: their true AUROC is 1/2."""
    rng = np.random.default_rng(seed)
    y, p = np.arange(n) % 2, rng.random((count, n))
    return y, {i: np.column_stack([1 - each, each]) for i, each in enumerate(p)}


def test_cross_fitting_takes_the_optimism_out() -> None:
    naive, crossed, made_up, quoted = [], [], [], []
    for seed in range(30):
        y, told = noise_nodes(40, 20, seed)
        found = cross_fitted(AUROC, y, told, seed=seed)
        naive.append(found.naive)
        crossed.append(found.value)
        made_up.append(found.optimism)
        quoted.append(expected_optimism(AUROC, y, list(told.values())))
    assert np.mean(naive) > 0.63
    assert np.mean(crossed) == pytest.approx(0.5, abs=0.03)
    assert np.mean(made_up) == pytest.approx(np.mean(naive) - 0.5, abs=0.03)
    assert np.mean(quoted) == pytest.approx(np.mean(naive) - 0.5, abs=0.05)


def test_cross_fitting_leaves_a_clear_winner_alone() -> None:
    y, told = noise_nodes(60, 10, 0)
    told[3] = np.column_stack([1 - 0.98 * y, 0.98 * y])
    found = cross_fitted(AUROC, y, told)
    assert (found.value, found.naive, found.optimism) == (1.0, 1.0, 0.0)
    score = found.as_score()
    assert score.optimistic and score.rows == 60 and score.low < 1.0


def test_cross_fitting_quotes_the_returned_node_and_its_objective() -> None:
    y, told = noise_nodes(50, 5, 1)
    values = {i: float(i) for i in told}
    assert cross_fitted(AUROC, y, told, values).naive == AUROC(y, told[0])
    assert cross_fitted(AUROC, y, told, values, chosen=2).naive == AUROC(y, told[2])
    assert cross_fitted(AUROC, y, told, objective=LOG_LOSS).value != cross_fitted(AUROC, y, told).value


def test_a_model_that_was_never_a_choice_is_not_quoted() -> None:
    """A chain of models: the last one is returned, however good an earlier one is."""
    y, told = noise_nodes(60, 4, 3)
    told[0] = np.column_stack([1 - 0.98 * y, 0.98 * y])
    chain = cross_fitted(AUROC, y, told, chosen=3, rivals={i: i for i in told})
    assert (chain.value, chain.naive, chain.optimism) == (AUROC(y, told[3]), AUROC(y, told[3]), 0.0)
    assert cross_fitted(AUROC, y, told, chosen=3).value == 1.0


def test_luck_among_rivals_is_inherited_by_the_model_that_goes_on() -> None:
    """The best of twenty lucky models is trained on: what it returns is lucky too."""
    naive, quoted = [], []
    for seed in range(30):
        y, told = noise_nodes(40, 20, seed)
        best = max(told, key=lambda i: AUROC(y, told[i]))
        told[99] = 0.9 * told[best] + 0.05
        rivals = {i: "last" if i == 99 else "first" for i in told}
        found = cross_fitted(AUROC, y, told, chosen=99, rivals=rivals, seed=seed)
        naive.append(found.naive)
        quoted.append(found.value)
        assert found.value == pytest.approx(found.naive - found.optimism)
    assert np.mean(naive) > 0.63 and np.mean(quoted) == pytest.approx(0.5, abs=0.03)


def test_the_choice_that_made_up_most_counts() -> None:
    y, told = noise_nodes(60, 12, 4)
    few = {i: i < 2 for i in told}  # two rivals, and ten
    alone = [
        cross_fitted(AUROC, y, {i: told[i] for i in told if few[i] == side}).optimism
        for side in (True, False)
    ]
    both = cross_fitted(AUROC, y, told, chosen=0, rivals=few)
    assert both.optimism == pytest.approx(max(alone)) and both.naive == AUROC(y, told[0])


def test_a_moved_score_keeps_what_was_made_up() -> None:
    y, told = noise_nodes(60, 12, 4)
    found = cross_fitted(AUROC, y, told)
    moved = found.moved(0.05)
    assert moved.value - found.value == pytest.approx(0.05) == moved.naive - found.naive
    assert moved.optimism == found.optimism and found.moved(0.0) is found
    assert found.moved(5.0).high == 1.0


def test_cross_fitting_without_anything_to_score() -> None:
    y, told = noise_nodes(30, 3, 0)
    broken = {i: np.full_like(each, np.nan) for i, each in told.items()}
    found = cross_fitted(AUROC, y, broken)
    assert np.isnan(found.value) and "diverged" in found.notes[0]
    assert np.isnan(cross_fitted(AUROC, y, told, {i: np.inf for i in told}).value)
    lonely = np.r_[1, np.zeros(29, dtype=int)]
    alone = cross_fitted(AUROC, lonely, told)
    assert np.isnan(alone.optimism) and "too few rows of each class" in alone.notes[-1]
    with pytest.raises(InputError, match="2 folds"):
        cross_fitted(AUROC, y, told, folds=1)


def test_cross_fitting_with_a_class_that_no_row_has() -> None:
    rng = np.random.default_rng(0)
    y, told = np.arange(40) % 2, dict(enumerate(rng.dirichlet(np.ones(3), (4, 40))))
    found = cross_fitted(HAND_TILL, y, told)
    assert 0.3 < found.value < 0.7 and "classes 2 have no rows" in found.notes[0]
    assert expected_optimism(HAND_TILL, y, list(told.values())) > 0.0


def test_out_of_fold_predictions_are_chosen_by_other_rows() -> None:
    y, told = noise_nodes(40, 6, 2)
    composite = out_of_fold(AUROC, y, told, seed=1)
    which = np.array([[np.array_equal(composite[i], each[i]) for each in told.values()] for i in range(40)])
    assert which.any(axis=1).all()
    assert len(set(which.argmax(axis=1))) <= 2  # two folds choose at most two nodes
    assert not np.array_equal(composite, told[max(told, key=lambda i: AUROC(y, told[i]))])
    told = {i: np.full_like(each, np.nan) for i, each in told.items()}
    assert np.isnan(out_of_fold(AUROC, y, told)).all()
    with pytest.raises(InputError, match="at least one"):
        out_of_fold(AUROC, y, {})


def test_out_of_fold_keeps_lucky_models_from_winning() -> None:
    false = naive = 0
    for seed in range(60):
        y, told = noise_nodes(60, 30, seed)
        reference = told.pop(0)
        composite = out_of_fold(AUROC, y, told, seed=seed)
        best = max(told, key=lambda i: AUROC(y, told[i]))
        false += paired_difference(AUROC, y, composite, reference).outcome == "better"
        naive += paired_difference(AUROC, y, told[best], reference).outcome == "better"
    assert naive >= 8 and false <= 5


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
    monkeypatch.setattr(selection, "_GROUPS", groups)
    monkeypatch.setattr(selection, "_DRAWS", 20_000)
    rng = np.random.default_rng(5)
    y = np.repeat([0, 1], [850, 50])  # sorted, and few of one class
    p = 1.0 / (1.0 + np.exp(-(2.0 * y - 1.0) * 0.8 - rng.normal(size=(3, 900))))
    stack = np.stack([1.0 - p, p], axis=2)
    terms = terms_and_scores(metric, y, stack)[0]
    labels = y if metric is not AUROC else np.array([3, 7])[y]
    moves = selection._Resamples(labels, rng).moves(metric, terms)
    assert moves.mean(axis=0) == pytest.approx(0.0, abs=1e-12 if metric.by_class else 1e-3)
    assert moves.std(axis=0) == pytest.approx(metric.standard_errors(y, stack), rel=0.12)
    for model in range(3):  # whoever gains from a row that is there twice is better there
        twice = terms[model] > terms[model].mean()
        sign = 1.0 if metric.higher_is_better else -1.0
        resampled = selection._Resamples(labels, rng)
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
    monkeypatch.setattr(selection, "_GROUPS", 6_000)
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
    monkeypatch.setattr(selection, "_BLOCK", stack[0].size * 2)
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


@pytest.mark.parametrize("objective", [SQUARED_LOSS, RMSE])
def test_a_tiny_root_of_a_mean_is_no_mean(objective):
    y = np.random.default_rng(5).standard_normal(60)
    noise = [np.random.default_rng(i).standard_normal(60) * (0.3 + 0.02 * i) for i in range(6)]

    def crossed(unit):
        models = {i: (y + each) * unit for i, each in enumerate(noise)}
        return cross_fitted(
            RMSE, y * unit, models, chosen=0, objective=objective, rivals=dict.fromkeys(models)
        )

    plain, tiny = crossed(1.0), crossed(2.0**-40)
    for name in ("value", "low", "high", "optimism"):
        assert getattr(tiny, name) * 2.0**40 == pytest.approx(getattr(plain, name), rel=1e-9)


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


def test_nothing_is_made_up_where_there_is_no_choice():
    assert expected_optimism(AUROC, [1], [[[0.4, 0.6]], [[0.3, 0.7]]]) == 0.0
    assert expected_optimism(AUROC, [1, 1], [[[0.4, 0.6], [0.2, 0.8]]]) == 0.0


def test_what_cannot_be_computed_is_not_called_nothing():
    rng = np.random.default_rng(0)
    y, huge = rng.standard_normal(50), rng.standard_normal((3, 50))
    huge[0, 0] = 1e200
    with np.errstate(all="ignore"):
        assert np.isnan(expected_optimism(SQUARED_LOSS, y, huge))


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
