"""Rows kept aside and cross-fitting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.errors import DataError, InputError
from mixtree.metrics import AUROC, HAND_TILL, LOG_LOSS, RMSE, SQUARED_LOSS, Metric
from mixtree.verdict import (
    cross_fitted,
    expected_optimism,
    holdout,
    out_of_fold,
    paired_difference,
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
        assert round(fraction * n) >= n or (
            (classes or round(fraction * n) < 2) and "too small to score" in str(error)
        )
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


def test_every_row_is_held_out_as_often() -> None:
    """Those of the last and rare class too."""
    sources = synthetic(sources=1, rows=20, validation=160, test=1).sources
    y = np.r_[np.zeros(153, dtype=int), np.ones(7, dtype=int)]
    rare = replace(sources, validation=replace(sources.validation, y=y))
    held = [holdout(rare, 0.25, seed=seed)[1] for seed in range(400)]
    share = np.mean([each.y.sum() for each in held if each is not None]) / 7
    assert share == pytest.approx(0.25, abs=0.01)


def test_many_classes_are_held_out_as_they_are_where_the_metric_can_do_without() -> None:
    sources = synthetic(sources=1, rows=50, classes=40, validation=200, test=1, seed=1).sources
    y = np.r_[np.repeat(0, 161), np.arange(1, 40)]  # all but one have a single row
    rare = replace(sources, validation=replace(sources.validation, y=y))
    singles = {
        metric.name: np.mean(
            [np.count_nonzero(holdout(rare, 0.25, seed=seed, metric=metric)[1].y) for seed in range(40)]
        )
        for metric in (HAND_TILL, LOG_LOSS)
    }
    assert singles["hand-till"] == 0.0
    assert singles["log-loss"] == pytest.approx(39 / 4, abs=1.0)


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


def _equal_models(y: np.ndarray, count: int = 30) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(0)
    chances = [rng.dirichlet(np.ones(3) * 20, size=len(y)) for _ in range(count)]
    return dict(enumerate(chances))


def test_a_class_of_one_row_leaves_means_to_be_cross_fitted() -> None:
    y = np.r_[2, np.arange(99) % 2]
    found = cross_fitted(LOG_LOSS, y, _equal_models(y))
    assert found.optimism > 0.0 and found.value > found.naive
    assert np.isnan(cross_fitted(HAND_TILL, y, _equal_models(y)).optimism)


def test_a_returned_model_that_diverged_is_not_replaced_by_another() -> None:
    y = np.arange(60) % 2
    told = {"a": np.eye(2)[y], "returned": np.full((60, 2), np.nan)}
    found = cross_fitted(AUROC, y, told, chosen="returned")
    assert np.isnan(found.value) and found.notes == (
        "the returned model diverged: there is nothing to score",
    )


def test_one_class_is_answered_in_words() -> None:
    y, told = np.zeros(30, dtype=int), {k: np.full((30, 2), 0.5) for k in range(3)}
    found = cross_fitted(AUROC, y, told)
    assert np.isnan(found.value) and "all 30 labels are class 0" in found.notes[0]
    assert np.isnan(expected_optimism(AUROC, y, list(told.values())))


@pytest.mark.parametrize("seed", range(12))
def test_cross_fitted_areas_stay_areas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = np.r_[1, 1, np.zeros(40, dtype=int)]
    told = {k: rng.dirichlet([1.0, 1.0], size=42) for k in range(20)}
    found = cross_fitted(AUROC, y, told)
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


def test_where_nobody_chose_nothing_was_made_up() -> None:
    """A class of one row does not matter to a single node."""
    y = np.r_[1, np.zeros(40, dtype=int)]
    told = {"only": np.random.default_rng(0).dirichlet([1.0, 1.0], size=41)}
    assert cross_fitted(AUROC, y, told, chosen="only", rivals={"only": 0}).optimism == 0.0


def test_a_users_metric_by_class_may_have_a_value_on_one_class() -> None:
    def right(y: np.ndarray, p: np.ndarray) -> np.ndarray:
        return (p.argmax(axis=2) == y).mean(axis=1)

    own = Metric("own", True, right, "classification", by_class=True)
    told = {k: np.random.default_rng(k).dirichlet([1.0, 1.0], size=30) for k in range(3)}
    found = cross_fitted(own, np.zeros(30, dtype=int), told, objective=LOG_LOSS)
    assert 0.0 < found.value < 1.0


def test_as_many_classes_as_rows_are_not_held_out() -> None:
    kept, held = holdout(with_validation(np.arange(160), 160), seed=0)
    assert held is None and len(kept.validation) == 160


def test_a_number_of_folds_may_be_numpys() -> None:
    y = np.arange(40) % 2
    told = {k: np.random.default_rng(k).dirichlet([1.0, 1.0], size=40) for k in range(3)}
    assert np.array_equal(out_of_fold(LOG_LOSS, y, told, folds=np.int64(2)), out_of_fold(LOG_LOSS, y, told))
