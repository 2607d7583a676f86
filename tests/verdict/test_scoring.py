"""Which rows score a finished fit: held out, test rows, nested folds, twins, cross-fitting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mixtree.data.folds import fold_rows
from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.fitting.options import make_options
from mixtree.fitting.pipeline import fit
from mixtree.fitting.prepare import prepare
from mixtree.metrics import ACCURACY, AUROC, LOG_LOSS, RMSE, as_metric
from mixtree.verdict import ScoreInterval, honest_score, label_folds
from mixtree.verdict.judge import judge
from mixtree.verdict.references import Extra, nested_predictions
from mixtree.verdict.scoring import Case, _by_twins, _reaching, _room, constants, untouched
from mixtree.verdict.sentences import number

OWN = as_metric(lambda y, p: 0.5, classes=2, higher_is_better=True, name="own")
QUICK = {"model": "linear", "budget": 120, "steps": 4}


@pytest.fixture(scope="module")
def few():
    return synthetic(rows=200, validation=60, test=400, seed=2)


@pytest.fixture(scope="module")
def enough():
    return synthetic(rows=200, validation=200, test=400, seed=2)


def test_rows_held_out_choose_train_and_scale_nothing(enough):
    prepared = prepare(enough.sources, make_options(**QUICK))
    held, kept = prepared.judges, prepared.sources.validation
    assert (len(kept), len(held), prepared.held_out, prepared.role) == (150, 50, 50, "holdout")
    assert not {tuple(row) for row in held.x} & {tuple(row) for row in kept.x}
    assert prepared.trainer.sources.validation is kept
    result = fit(enough.sources, **QUICK)
    score = result.verdict.score
    expected = prepared.chosen.metric(held.y, prepared.trainer.predict(result.state, held.x))
    assert (score.value, score.rows, score.optimistic) == (pytest.approx(expected), 50, False)
    # What is in rows that only score has no influence on the model.
    x = enough.sources.validation.x.copy()
    x[[any((row == held.x).all(axis=1)) for row in x]] *= -3.0
    other = fit(replace(enough.sources, validation=Rows(x, enough.sources.validation.y)), **QUICK)
    np.testing.assert_array_equal(other.state.parameters, result.state.parameters)
    assert other.verdict.score.value != score.value
    assert result.verdict.queries == len(result.tree)
    assert any("chose the model the score is" in note for note in result.verdict.notes)


def test_what_nodes_predict_stays_as_it_is_stored(enough):
    prepared = prepare(enough.sources, make_options(**QUICK))
    result = run(prepared.search, prepared.trainer, seed=0, keep_predictions=True)
    case = Case(prepared, result, AUROC)
    assert case.clean_predictions and all(
        each is result.predictions[path] for path, each in case.clean_predictions.items()
    )
    assert case.predicted_by(result.node.path).dtype == np.float64 and case.predicted_by((9, 9)) is None


def test_test_rows_score_and_nothing_is_held_out(enough):
    result = fit(enough.sources, test=enough.test, **QUICK)
    assert result.verdict.score.rows == 400
    assert "on 400 rows that chose nothing" in result.verdict.sentence
    assert next(iter(result.predictions.values())).shape[0] == 200


def test_few_rows_are_cross_fitted_and_never_quoted_alone(few):
    verdict = fit(few.sources, **QUICK).verdict
    assert "cross-fitted on the 60 rows that also chose the model: " in verdict.expectation
    assert verdict.expectation.endswith("still partly optimistic.")
    assert verdict.score.optimistic
    assert any("looked at" in note and "better than it is by" in note for note in verdict.notes)


def test_a_model_of_the_targets_rows_is_not_scored_on_them(few):
    result = fit(few.sources, **QUICK, policy="fine-tune")
    verdict = result.verdict
    assert verdict.comparison.startswith("The model before it was trained on the rows that score it: not dis")
    assert verdict.expectation.startswith(
        "No honest score of the returned model: it was trained on the rows that would score it. Before that: "
    )
    assert "nested folds" in verdict.next_step and not any("honest" in each for each in verdict.warnings)
    before = result.tree[()]
    assert [each.weight for each in verdict.mixture.values()] == before.mixture[:3].tolist()
    assert any("steps, on the target's own rows" in note for note in verdict.notes)
    only = fit(few.sources, **QUICK, policy="validation").verdict
    assert str(only).splitlines() == [
        "Not compared with another mixture: the model has no score.",
        "No honest score of the returned model: it was trained on the rows that would score it.",
        "Next: give test rows, a holdout or nested folds for an honest score.",
    ]
    assert only.as_dict()["score"]["value"] is None
    assert fit(few.sources, **QUICK, policy="validation", holdout=0.4).verdict.score.rows == 24


def tuned():
    """A fit of ``auto`` that trained on the target's rows."""
    outside = synthetic(rows=300, validation=80, test=10, hull="outside", seed=5)
    prepared = prepare(outside.sources, make_options(model="linear", budget=600, policy="auto"))
    return prepared, run(prepared.search, prepared.trainer, keep_predictions=True)


def test_twins_are_scored_on_rows_they_never_saw_less_what_choosing_made_up():
    prepared, result = tuned()
    assert prepared.search.unseen is not None
    case = Case(prepared, result, AUROC)
    lengths = case.twins
    assert 1 < len(lengths) <= 5
    assert any(np.array_equal(each, prepared.search.unseen) for each in lengths.values())
    verdict = judge(prepared, result)
    y, folds = case.y, fold_rows(prepared.sources.validation, 2)
    within = np.mean([AUROC(y[rows], prepared.search.unseen[rows]) for rows in folds])
    assert verdict.score.value <= within + 1e-12
    words = "from twins of the model, each trained on half of the 80 rows and scored on the other half"
    assert words in verdict.expectation
    (note,) = [note for note in verdict.notes if "made the twins better" in note]
    gain = case.gained
    assert gain is not None and gain > 0.0
    assert f"half of the rows made the twins better by {number(gain)}, so all" in note
    # All rows may teach more than half of them did: the interval reaches further to that side.
    plain = _by_twins(replace(case, result=replace(result, predictions={})), ())
    assert plain is not None and plain.further == 0.0
    assert verdict.score.high - verdict.score.value > 0.5 * gain or verdict.score.high == 1.0


def test_a_chain_is_scored_as_it_ended(few):
    """Nobody had the choice of a model before the last, however good that one was."""
    result = fit(few.sources, **QUICK, policy="mmd+decay", reference="none")
    y = few.sources.validation.y
    assert result.verdict.score.value == pytest.approx(AUROC(y, result.predictions[result.node.path]))
    assert result.verdict.expectation.endswith("partly optimistic, though nothing was found to correct.")


def test_nested_intervals_are_wider_than_the_rows_alone_make_them(few):
    prepared = prepare(few.sources, make_options(**QUICK, nested=True, reference="none", metric="accuracy"))
    result = run(prepared.search, prepared.trainer, keep_predictions=True)
    score = judge(prepared, result).score
    folds = label_folds(few.sources.validation.y, 5, np.random.default_rng(0))
    mine = nested_predictions(Extra(prepared, 120), folds)
    plain = honest_score(ACCURACY, few.sources.validation.y, mine, rows_role="nested")
    assert score.value == plain.value
    assert score.value - score.low == pytest.approx(1.25 * (plain.value - plain.low))
    assert plain.high < score.high <= 1.0


def test_nested_folds_score_a_model_of_the_targets_rows(few):
    verdict = fit(few.sources, **QUICK, policy="fine-tune", nested=True, reference="all").verdict
    words = "measured on 60 rows by fits like this one, none of which saw the rows it was scored on."
    assert verdict.expectation.endswith(words)
    assert verdict.reference_spent["nested folds"] == 5 * 120
    assert verdict.reference_spent["validation"] == 5 * 180  # the last half of each twice
    assert [name for name, _ in verdict.differences][-1] == "validation"
    assert any("the interval is 25% wider than the rows alone" in note for note in verdict.notes)


@pytest.mark.parametrize("policy", ["auto", "validation"])
def test_nested_intervals_reach_further_where_the_rows_taught_much(policy):
    """Four fifths of the rows teach less than all of them."""
    rng = np.random.default_rng(0)

    def draw(rows, slopes):  # of their own in every source and in the target
        x = rng.standard_normal((rows, 20))
        return Rows(x, (x @ slopes + rng.logistic(size=rows) > 0).astype(np.int64))

    slopes = 3.0 / np.sqrt(20.0) * rng.standard_normal((3, 20))
    sources = Sources(("a", "b"), (draw(600, slopes[0]), draw(600, slopes[1])), draw(80, slopes[2]), 2)
    options = {"model": "linear", "budget": 600, "policy": policy, "metric": "log-loss"}
    prepared = prepare(sources, make_options(**options, nested=True, reference="none"))
    case = Case(prepared, run(prepared.search, prepared.trainer, keep_predictions=True), LOG_LOSS)
    verdict = judge(prepared, case.result)
    before = case.predicted_by(case.mixed.path)
    assert (before is None) == (policy == "validation")
    y = sources.validation.y
    if before is None:
        (before,) = constants(y, 2).values()
    gain = LOG_LOSS(y, before) - verdict.score.value
    assert gain > 0.0
    folds = label_folds(y, 5, np.random.default_rng(0))
    plain = honest_score(LOG_LOSS, y, nested_predictions(Extra(prepared, 600), folds), rows_role="nested")
    # A quarter of what most rows taught, or what half of them taught twins, and half as much again, if more.
    further = max(gain / 4.0, 1.5 * (case.gained or 0.0) - gain)
    by_twins = further > gain / 4.0
    assert by_twins == (policy == "auto")
    reach = 1.25 * (plain.value - plain.low) + further
    assert verdict.score.value - verdict.score.low == pytest.approx(min(reach, plain.value))
    (note,) = [note for note in verdict.notes if note.startswith("nested: ")]
    assert note.endswith(f"reach {number(further)} further to the better side")
    told = (
        ("half of the rows made twins of the returned model", case.gained)
        if by_twins
        else ("80% of the rows made them", gain)
    )
    assert f"{told[0]} better by {number(told[1])}, so all" in note


def test_nested_areas_are_those_within_the_folds(few):
    prepared = prepare(few.sources, make_options(**QUICK, nested=True, reference="none"))
    verdict = judge(prepared, run(prepared.search, prepared.trainer, keep_predictions=True))
    y = few.sources.validation.y
    folds = label_folds(y, 5, np.random.default_rng(0))
    mine = nested_predictions(Extra(prepared, 120), folds)
    areas = [AUROC(y[folds == fold], mine[folds == fold]) for fold in range(5)]
    assert verdict.score.value == pytest.approx(np.mean(areas))
    assert 0.0 <= verdict.score.low < verdict.score.value < verdict.score.high <= 1.0


@pytest.mark.parametrize("rare", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_every_nested_fold_has_every_class(few, rare, seed):
    y = np.r_[np.ones(rare, dtype=int), np.zeros(60 - rare, dtype=int)]
    sources = replace(few.sources, validation=Rows(few.sources.validation.x, y))
    verdict = fit(sources, **QUICK, nested=True, reference="none", seed=seed).verdict
    assert ("no nested folds" in " ".join(verdict.warnings)) == (rare == 1)
    assert verdict.score.optimistic == (rare == 1)


def test_nodes_below_a_touched_one_are_touched(few):
    tree = fit(few.sources, **QUICK, policy="fine-tune").tree
    assert list(untouched(tree, 3)) == [(), (0,)]  # uniform, in two segments
    assert list(untouched(tree, 4)) == [(), (0,), (0, 0)]


def test_a_study_without_predictions_is_scored_as_optimistic(few):
    prepared = prepare(few.sources, make_options(**QUICK))
    verdict = judge(prepared, run(prepared.search, prepared.trainer))
    assert "on the 60 rows that also chose the model: optimistic" in verdict.sentence


def test_twins_of_a_regression_have_wider_intervals():
    problem = synthetic(classes=0, hull="outside", rows=600, validation=100, test=1, seed=1)
    result = fit(problem.sources, model="linear", budget=1000, reference="none")
    assert result.node.phase == "target"
    assert any("the intervals are 75% wider" in each for each in result.verdict.notes)
    assert result.verdict.score.low >= 0.0


@pytest.mark.parametrize(
    ("metric", "value", "room"),
    [(AUROC, 0.9, 0.1), (ACCURACY, 1.0, 0.0), (RMSE, 0.3, 0.3), (RMSE, float("nan"), 0.0), (OWN, 0.9, 0.0)],
)
def test_no_score_is_better_than_the_best_there_is(metric, value, room):
    assert _room(value, metric) == pytest.approx(room)
    score = ScoreInterval(value, value - 0.05, value + 0.05, 50, "t", False)
    reached = _reaching(score, metric, _room(value, metric))
    if room:
        assert (reached.high, reached.low) in ((1.0, score.low), (score.high, 0.0))
    else:
        assert reached == score
