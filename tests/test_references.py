"""Models trained for the verdict alone: charged, reproducible, and on no row that scores them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mixtree.data.labelscale import LabelScale
from mixtree.data.synthetic import synthetic
from mixtree.errors import TrainingError
from mixtree.fitting import make_options, prepare
from mixtree.metrics import AUROC, LOG_LOSS
from mixtree.references import Extra, View, attribution, nested_predictions, references


@pytest.fixture(scope="module")
def problem():
    return synthetic(sources=3, rows=300, validation=60, test=300, alpha=[0.9, 0.05, 0.05], seed=4)


def extra_of(problem, budget=100, **options):
    prepared = prepare(problem.sources, make_options(model="linear", budget=budget, steps=5, **options))
    return Extra(prepared, budget, LabelScale())


def test_a_reference_is_charged_and_the_same_again(problem):
    one, two = extra_of(problem), extra_of(problem)
    rows = problem.test
    first = one.predict("uniform+decay", rows, purpose="uniform")
    np.testing.assert_array_equal(first, two.predict("uniform+decay", rows, purpose="uniform"))
    assert one.spent == {"uniform": 100}
    one.predict("uniform+decay", rows, purpose="uniform")
    assert one.spent == {"uniform": 200}


def test_a_reference_that_diverges_is_nan_and_charged(problem, monkeypatch):
    def diverges(*args, **options):
        raise TrainingError("every model diverged")

    monkeypatch.setattr("mixtree.references.run", diverges)
    extra = extra_of(problem, reference="all")
    found, _ = references(extra, View(problem.test, True), choose=LOG_LOSS)
    assert all(np.isnan(each).all() for each in found.values())
    assert extra.spent["single sources"] == 300
    assert np.isnan(nested_predictions(extra, np.arange(60) % 3)).all()
    assert extra.spent["nested folds"] == 300


def test_the_best_single_source_is_the_one_of_least_loss(problem):
    extra = extra_of(problem, budget=600, reference="all")
    found, notes = references(extra, View(problem.test, True), choose=LOG_LOSS)
    assert list(found) == ["uniform", "only source-0", "validation"]  # source-0 is nine tenths of the target
    assert notes == ["pooled is uniform here: all sources have as many rows"]


def test_validation_by_fold_sees_no_row_that_it_predicts(problem):
    rows = problem.sources.validation
    folds = np.arange(60) % 3
    view = View(rows, False, folds)
    before = references(extra_of(problem, reference="all"), view, choose=LOG_LOSS)[0]["validation"]
    # Other labels in one fold change what is predicted for the others, not for itself.
    y = np.where(folds == 0, 1 - rows.y, rows.y)
    changed = replace(problem, sources=replace(problem.sources, validation=replace(rows, y=y)))
    view = View(changed.sources.validation, False, folds)
    after = references(extra_of(changed, reference="all"), view, choose=LOG_LOSS)[0]["validation"]
    np.testing.assert_array_equal(before[folds == 0], after[folds == 0])
    assert (before[folds != 0] != after[folds != 0]).any()


@pytest.mark.parametrize("policy", ["mixmatch-bisect+commit", "fine-tune"])
def test_nested_fits_never_see_their_own_fold(problem, policy):
    rows, folds = problem.sources.validation, np.arange(60) % 3
    before = nested_predictions(extra_of(problem, policy=policy), folds)
    assert before.shape == (60, 2) and np.isfinite(before).all()
    y = np.where(folds == 0, 1 - rows.y, rows.y)
    changed = replace(problem, sources=replace(problem.sources, validation=replace(rows, y=y)))
    after = nested_predictions(extra_of(changed, policy=policy), folds)
    np.testing.assert_array_equal(before[folds == 0], after[folds == 0])
    assert (before[folds != 0] != after[folds != 0]).any()


def test_leaving_a_source_out_says_what_it_is_worth(problem):
    extra = extra_of(problem, budget=2000, attribution="loo")
    mixture = np.array([0.9, 0.05, 0.05])
    notes = attribution(extra, mixture, View(problem.test, True), AUROC)
    assert extra.spent == {"attribution": 200 + 4 * 200}
    assert notes[0].startswith("attribution: runs of 200 steps")
    assert notes[1].startswith("source-0 is worth") and notes[1].endswith("keep it")


def test_shapley_values_add_up_to_the_gain_over_the_warm_start(problem):
    extra = extra_of(problem, budget=2000, attribution="shapley")
    notes = attribution(extra, np.array([0.9, 0.05, 0.05]), View(problem.test, True), AUROC)
    assert extra.spent == {"attribution": 200 + 7 * 200}
    told = dict(part.rsplit(" ", 1) for part in notes[-1].split(": ")[1].split(", "))
    shares = {name: float(text.replace("−", "-")) for name, text in told.items()}
    assert max(shares, key=lambda name: shares[name]) == "source-0"
    assert attribution(extra_of(problem), np.ones(3) / 3, View(problem.test, True), AUROC) == []
