"""From a finished fit to its verdict: which rows score, what is said where they cannot."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from mixtree.data.labelscale import LabelScale
from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError, StudyInterrupted
from mixtree.estimate import HullTest
from mixtree.events import NodeEvaluated
from mixtree.fitting.options import make_options
from mixtree.fitting.pipeline import fit
from mixtree.fitting.prepare import as_sources, prepare
from mixtree.metrics import AUROC
from mixtree.storage.sql import open_storage
from mixtree.verdict import Difference, ScoreInterval, make_verdict
from mixtree.verdict.advice import Models
from mixtree.verdict.judge import judge
from mixtree.verdict.references import Extra, references
from mixtree.verdict.scoring import Case, scored_by_rows

QUICK = {"model": "linear", "budget": 120, "steps": 4}


@pytest.fixture(scope="module")
def few():
    return synthetic(rows=200, validation=60, test=400, seed=2)


@pytest.fixture(scope="module")
def enough():
    return synthetic(rows=200, validation=200, test=400, seed=2)


def told(verdict):
    return json.loads(json.dumps(verdict.as_dict(), allow_nan=False))


def test_the_json_holds_what_was_promised(few):
    plain = told(fit(few.sources, **QUICK, reference="all").verdict)
    keys = ["sentence", "score", "against", "hull", "mixture", "queries", "notes"]
    assert list(plain) == [
        *keys,
        "reference_spent",
        "warnings",
        "metric",
        "higher_is_better",
        "of",
        "optimistic",
        "comparison",
        "expectation",
        "next_step",
    ]
    assert list(plain["mixture"]) == list(few.sources.names)
    names = [each["name"].removesuffix("+decay") for each in plain["against"]]
    assert names == ["uniform", "the best single source"]
    assert plain["reference_spent"] == {"uniform": 180, "single sources": 3 * 180}
    assert any("not compared with training on your own rows alone" in note for note in plain["notes"])
    assert any("pooled is uniform here" in note for note in plain["notes"])


def test_all_references_on_rows_that_did_nothing(enough):
    sources = enough.sources
    uneven = replace(sources, rows=(sources.rows[0].take(np.arange(90)), *sources.rows[1:]))
    verdict = fit(uneven, test=enough.test, **QUICK, reference="all").verdict
    names = [name.removesuffix("+decay") for name, _ in verdict.differences]
    assert names[:2] == ["uniform", "pooled"] and names[2].startswith("only ") and names[3] == "validation"
    spent = {"uniform": 180, "pooled": 180, "single sources": 3 * 180, "validation": 180}
    assert verdict.reference_spent == spent
    assert fit(uneven, test=enough.test, **QUICK, reference="none").verdict.reference_spent == {}


def test_a_fixed_mixture_chooses_nothing(few):
    verdict = fit(few.sources, **QUICK, policy="pooled+decay", reference="all").verdict
    assert "on 60 rows that chose nothing" in verdict.sentence
    assert verdict.queries == 0 and not verdict.score.optimistic
    itself = fit(few.sources, **QUICK, policy="uniform+decay").verdict
    assert itself.reference_spent == {}
    assert itself.comparison == "Not compared with uniform: that is this policy itself."
    assert not any("this policy itself" in note for note in itself.notes)


@pytest.mark.parametrize("policy", ["mixmatch-bisect+commit", "auto"])
def test_an_interrupted_fit_ends_with_the_same_verdict(few, tmp_path, policy):
    options = {**QUICK, "policy": policy, "attribution": "loo", "study": "s"}
    whole = fit(few.sources, **options, storage=tmp_path / "whole.db")

    class Stop(Exception):
        pass

    def listener(event):
        if isinstance(event, NodeEvaluated) and event.node.height == 2:
            raise Stop

    with pytest.raises(Stop):
        fit(few.sources, **options, storage=tmp_path / "cut.db", listeners=[listener])
    again = fit(few.sources, **options, storage=tmp_path / "cut.db", resume=True)
    assert told(again.verdict) == told(whole.verdict) == told(fit(few.sources, **options).verdict)


def test_an_interrupted_verdict_leaves_a_finished_study(few, tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise StudyInterrupted("study 'reference uniform' stopped")

    options = {**QUICK, "storage": tmp_path / "s.db"}
    with monkeypatch.context() as patched, pytest.raises(StudyInterrupted, match="its verdict is not: go on"):
        patched.setattr("mixtree.verdict.references.run", interrupted)
        fit(few.sources, **options)
    again = fit(few.sources, **options, resume=True)
    assert again.verdict == fit(few.sources, **QUICK).verdict


def test_a_raised_budget_is_judged_again(few, tmp_path):
    options = {**QUICK, "storage": tmp_path / "s.db"}
    first = fit(few.sources, **options)
    more = fit(few.sources, **{**options, "budget": 240}, resume=True)
    assert more.verdict.reference_spent == {"uniform": 360}
    assert more.verdict.queries > first.verdict.queries
    storage = open_storage(tmp_path / "s.db")
    stored = storage.verdict("fit")
    storage.close()
    assert stored == told(more.verdict)


def test_a_trainer_that_only_scores(few):
    prepared = prepare(few.sources, make_options(**QUICK))

    class Plain:
        """Like a program: no predictions."""

        predict = None

        def __getattr__(self, name):
            return getattr(prepared.trainer, name)

    result = run(prepared.search, prepared.trainer)
    verdict = judge(replace(prepared, trainer=Plain()), result)
    assert str(verdict).splitlines() == [
        "Not compared with another mixture: the model has no score.",
        "No honest score of the returned model: its trainer gives a score only, no predictions that could be "
        "scored.",
        "Next: give the trainer a predict method, so that its models can be scored and compared.",
    ]
    assert verdict.differences == ()


def test_labels_in_their_own_units():
    sources = synthetic(classes=0, rows=200, validation=200, seed=1).sources
    plain = fit(sources, **QUICK).verdict
    scaled = fit(LabelScale(-20.0, 0.02).sources(sources), **QUICK).verdict  # 50 y + 1000
    assert scaled.score.value == pytest.approx(50 * plain.score.value)
    assert scaled.score.high == pytest.approx(50 * plain.score.high)
    assert scaled.differences[0][1].low == pytest.approx(50 * plain.differences[0][1].low)


def cases(sources):
    rows, validation = sources.rows, sources.validation
    flat = replace(sources, rows=tuple(Rows(each.x * 0, each.y) for each in rows))
    return {
        "n_val below 20": replace(sources, validation=validation.take(np.arange(12))),
        "one class": replace(sources, validation=Rows(validation.x, validation.y * 0)),
        "ties": replace(flat, validation=Rows(validation.x * 0, validation.y)),
        "identical sources": replace(sources, rows=(rows[0],) * 3),
        "one source": Sources(("a",), rows[:1], validation, sources.classes),
    }


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("n_val below 20", "only 12 rows"),
        ("one class", "accuracy"),
        ("ties", "the model predicts the same for every row"),
        ("identical sources", "are interchangeable"),
        ("one source", "there is one source: there is no mixture to choose"),
    ],
)
@pytest.mark.parametrize("how", [{}, {"nested": True}, {"policy": "auto", "attribution": "shapley"}])
def test_degenerate_cases_are_answered_in_words(few, case, words, how):
    verdict = fit(cases(few.sources)[case], **QUICK, metric="accuracy", reference="all", **how).verdict
    plain = told(verdict)
    assert words in " ".join([plain["sentence"], *plain["notes"], *plain["warnings"]])


def test_a_single_row_claims_nothing(few):
    one = replace(few.sources, validation=few.sources.validation.take(np.arange(1)))
    verdict = fit(one, **QUICK, metric="log-loss", reference="all").verdict
    assert "one row cannot tell two models apart" in verdict.sentence
    assert "(no interval)" in verdict.sentence


def test_test_rows_of_one_class_are_answered_in_words(few):
    ones = Rows(few.test.x, np.ones_like(few.test.y))
    verdict = fit(few.sources, test=ones, **QUICK).verdict
    assert verdict.warnings[0].startswith("no test score: the test rows: metric 'auroc' compares classes")
    assert "cross-fitted" in verdict.expectation  # as if there were no test rows


def test_two_ways_to_score_are_one_too_many(few):
    for options in ({"nested": True, "holdout": 0.3}, {"nested": True, "test": few.test}):
        with pytest.raises(InputError, match="not both"):
            fit(few.sources, **QUICK, **options)
    wide = synthetic(sources=11, rows=20, validation=30).sources
    with pytest.raises(InputError, match="at most 10"):
        fit(wide, **QUICK, attribution="shapley")


def test_what_bounds_forbid_is_not_advised_without_saying_so():
    worse = Difference(-0.2, -0.3, -0.1, 0.001, 100, "DeLong", True)
    score = ScoreInterval(0.8, 0.7, 0.9, 100, "t", False)
    step = make_verdict(AUROC, score, against={"uniform": worse}, bounded=True).next_step
    assert step == "Use uniform instead of this model, if your bounds on the weights allow it."
    step = make_verdict(AUROC, score, against={"uniform": worse}).next_step
    assert step == "Use uniform instead of this model."


def test_who_beats_a_reference_that_was_trained_for_too_long_is_warned(few, monkeypatch):
    better = Difference(0.2, 0.1, 0.3, 0.001, 100, "DeLong", True)
    monkeypatch.setattr("mixtree.verdict.judge.paired_difference", lambda *args, **options: better)
    told = fit(few.sources, model="linear", budget=3_000, test=few.test).verdict.warnings
    assert [each for each in told if "overfitted" in each] == [
        "uniform: trained for the whole budget, 250 passes over its rows, and may have overfitted them; with "
        "a smaller budget the difference may be another one"
    ]
    told = fit(few.sources, model="linear", budget=300, test=few.test).verdict.warnings
    assert not any("overfitted" in each for each in told)


def test_few_rows_of_a_class_are_a_warning():
    problem = synthetic(rows=300, validation=200, test=1, seed=3)
    rows = problem.sources.validation
    kept = np.sort(np.concatenate([np.flatnonzero(rows.y == 0)[:90], np.flatnonzero(rows.y == 1)[:4]]))
    sources = replace(problem.sources, validation=rows.take(kept))
    warnings = fit(sources, model="linear", budget=100, reference="none").verdict.warnings
    assert any(f"only 4 of the {len(kept)} rows that score are of the rarest" in each for each in warnings)


def test_outside_the_hull_no_source_is_called_useless_by_its_weight():
    problem = synthetic(hull="outside", rows=600, validation=400, test=1, seed=4)
    verdict = fit(problem.sources, model="linear", budget=300, reference="none").verdict
    assert verdict.hull.inside is False
    assert not any("adds nothing" in note or "was trained with weight" in note for note in verdict.notes)


@pytest.mark.parametrize(("draw", "uniform"), [(1, True), (3, False)])
def test_a_gain_that_is_not_the_mixtures_is_said_to_be_none_of_its(draw, uniform):
    random = np.random.default_rng(draw)

    def part(count, sign):
        x = random.normal(size=(count, 6))
        return x, (random.random(count) < 1 / (1 + np.exp(-sign * (2 * x[:, 0] + x[:, 1])))).astype(int)

    same = part(800, 1.0)
    options = {"model": "linear", "budget": 800, "seed": 1}
    other = same if uniform else part(800, -0.3)
    result = fit({"a": same, "b": other}, part(300, -1.0), test=part(500, -1.0), **options)
    assert (max(result.weights.values()) == 0.5) is uniform
    comparison = result.verdict.comparison
    assert comparison.startswith("Better than uniform")
    assert (", but not by its mixture, which is uniform too: the last " in comparison) is uniform


def test_one_source_is_not_compared_with_itself():
    verdict = fit(
        synthetic(sources=1, rows=200, validation=80, test=1).sources, model="linear", budget=60
    ).verdict
    assert not verdict.differences and not verdict.reference_spent
    assert verdict.comparison == (
        "Not compared with uniform: there is one source, and no other mixture of it."
    )


def test_figures_of_an_earlier_model_are_said_to_be_its_own(few):
    tuned = fit(few.sources, model="linear", policy="fine-tune", budget=60).verdict.as_dict()
    assert tuned["of"] == "the model before it was trained on the rows that score it"
    plain = fit(few.sources, model="linear", policy="uniform", budget=60).verdict.as_dict()
    assert plain["of"] == "the returned model"


def test_a_gain_is_only_told_of_where_there_is_one():
    outside = HullTest(0.01, False, 9.0, 3, 5, None, "", 80, None)
    better = Difference(0.1, 0.05, 0.15, 0.01, 80, "t", True)
    same = Difference(0.0, -0.05, 0.05, 1.0, 80, "t", True)
    score = ScoreInterval(0.8, 0.7, 0.9, 80, "t", False)
    for against, instead, start in ((better, "", "the"), (same, "", "any"), (better, "another", "any")):
        verdict = make_verdict(AUROC, score, against={"uniform": against}, hull=outside, instead=instead)
        assert any(f"{start} gain comes from your own rows" in note for note in verdict.notes)


def test_a_gain_that_is_mostly_the_mixtures_is_not_said_to_be_that_of_the_rows():
    outside = HullTest(0.01, False, 9.0, 3, 5, None, "", 80, None)
    better = Difference(0.1, 0.05, 0.15, 0.01, 80, "t", True)
    score = ScoreInterval(0.8, 0.7, 0.9, 80, "t", False)
    for gain, words in ((0.02, "about 20% of the gain"), (-0.1, "about 0% of the gain"), (0.09, "the gain")):
        verdict = make_verdict(AUROC, score, against={"uniform": better}, hull=outside, by_rows=gain)
        assert any(f"{words} comes from your own rows" in note for note in verdict.notes)


def test_what_the_targets_rows_brought_is_known_from_models_that_saw_half_of_them():
    random = np.random.default_rng(0)

    def part(count, sign):
        x = random.normal(size=(count, 6))
        return x, (random.random(count) < 1 / (1 + np.exp(-sign * (2 * x[:, 0] + x[:, 1])))).astype(int)

    def gained(sign):
        """By the rows of a target unlike the sources, or like them."""
        data = as_sources({"a": part(800, 1.0), "b": part(800, 0.9)}, part(300, sign), classes=2)
        prepared = prepare(data, make_options(model="linear", budget=800))
        result = run(prepared.search, prepared.trainer, keep_predictions=True)
        return Case(prepared, result, AUROC).gained

    assert gained(-1.0) > 0.3
    assert gained(1.0) is None  # not trained on them


def test_nested_folds_that_cannot_be_do_not_cost_the_holdout():
    """A class of one row is in one fold only."""
    random = np.random.default_rng(0)
    sources = synthetic(sources=2, rows=300, classes=3, validation=200, test=1, seed=1).sources
    y = np.r_[2, random.integers(2, size=199)]
    rare = replace(sources, validation=replace(sources.validation, y=y))
    verdict = fit(rare, **QUICK, metric="accuracy", reference="none", nested=True).verdict
    assert 45 <= verdict.score.rows <= 50 and not verdict.score.optimistic
    assert any(each.startswith("no nested folds: 200 rows, or those of a class") for each in verdict.warnings)


def test_what_choosing_made_up_is_taken_off_the_comparison(few):
    prepared = prepare(few.sources, make_options(**QUICK, policy="mixmatch-ch", returns="best"))
    result = run(prepared.search, prepared.trainer, keep_predictions=True)
    case = Case(prepared, result, AUROC)
    made_up = case.crossed(result.node.path).optimism
    assert made_up > 0.0
    extra = Extra(prepared, 120)
    ((_, uniform),) = references(extra, scored_by_rows(case, extra).view, choose=case.choose)[0].items()
    gap = AUROC(case.y, result.predictions[result.node.path]) - AUROC(case.y, uniform.predictions)
    (against,) = judge(prepared, result).as_dict()["against"]
    assert against["difference"] == pytest.approx(gap - made_up)


def test_what_choosing_made_up_is_expected_where_it_cannot_be_measured(few):
    """A class of one row is on one side only."""
    y = np.r_[1, np.zeros(59, dtype=int)]
    sources = replace(few.sources, validation=Rows(few.sources.validation.x, y))
    prepared = prepare(sources, make_options(**QUICK, policy="mixmatch-ch", returns="best"))
    result = run(prepared.search, prepared.trainer, keep_predictions=True)
    case = Case(prepared, result, AUROC)
    assert np.isnan(case.crossed(result.node.path).optimism)
    choose = case.choose
    expected = Models(AUROC, y, case.clean_predictions, case.clean, case.lineage, choose=choose).optimism
    assert expected > 0.0
    extra = Extra(prepared, 120)
    ((_, uniform),) = references(extra, scored_by_rows(case, extra).view, choose=choose)[0].items()
    gap = AUROC(y, result.predictions[result.node.path]) - AUROC(y, uniform.predictions)
    (against,) = judge(prepared, result).as_dict()["against"]
    assert against["difference"] == pytest.approx(gap - expected)


def test_nothing_is_claimed_where_nobody_knows_what_choosing_made_up(few):
    """Without the nodes' predictions the rows that chose the model can only compare it."""
    prepared = prepare(few.sources, make_options(**QUICK, policy="mixmatch-ch"))
    verdict = judge(prepared, run(prepared.search, prepared.trainer))
    assert verdict.differences == () and verdict.reference_spent == {}
    assert verdict.comparison.startswith("Not compared with another mixture: these rows chose the model")


@pytest.mark.parametrize(
    ("metric", "classes", "words"),
    [
        ("rmse", 0, "(the mean, predicted for every row: rmse"),
        ("mae", 0, "(the median, predicted for every row: mae"),
        ("accuracy", 2, "(the shares of the classes, predicted for every row: accuracy"),
        ("log-loss", 2, "(the shares of the classes, predicted for every row: log-loss"),
    ],
)
def test_a_model_that_is_no_better_than_a_constant_is_called_so(metric, classes, words):
    sources = synthetic(classes=classes, rows=100, validation=60, test=200, seed=4)
    turned = 1 - sources.test.y if classes else -5.0 * sources.test.y
    test = Rows(sources.test.x, turned)
    found = fit(
        sources.sources, test=test, model="linear", budget=300, metric=metric, reference="none"
    ).verdict
    assert words in found.sentence
    good = fit(
        sources.sources, test=sources.test, model="linear", budget=300, metric=metric, reference="none"
    ).verdict
    assert "constant" not in good.sentence


@pytest.mark.parametrize(("policy", "own"), [("target-source", "0.25"), ("validation", "1.00")])
def test_the_weight_of_the_targets_own_rows_is_told(few, policy, own):
    told = fit(few.sources, policy=policy, model="linear", budget=60, reference="none").verdict.notes
    assert any(f"own rows have weight {own} in the mixture" in each for each in told)
    told = fit(few.sources, policy="uniform", model="linear", budget=60, reference="none").verdict.notes
    assert not any("own rows have weight" in each for each in told)


def test_a_model_that_ranks_the_wrong_way_round_is_worse_than_chance(few):
    test = Rows(few.test.x, 1 - few.test.y)
    told = fit(few.sources, test=test, model="linear", budget=300, reference="none").verdict.warnings
    assert any(each.startswith("the model ranks worse than chance (0.5)") for each in told)
    told = fit(few.sources, test=test, model="linear", budget=300, reference="all").verdict.warnings
    assert not any("reference all tells" in each for each in told)


def test_a_loss_that_is_of_a_few_rows_says_so():
    problem = synthetic(classes=0, rows=100, validation=60, test=200, seed=1)
    y = problem.test.y.copy()
    y[:2] += 300.0
    options = {"model": "linear", "budget": 300, "reference": "none"}
    told = fit(problem.sources, test=Rows(problem.test.x, y), **options).verdict.warnings
    assert any(each.startswith("2 of the 200 rows that score are half of the rmse") for each in told)
    told = fit(problem.sources, test=problem.test, **options).verdict.warnings
    assert not any("half of the rmse" in each for each in told)


def test_a_mixture_of_one_source_is_not_told_from_that_source_by_its_mixture(few, monkeypatch):
    worse = Difference(-0.2, -0.3, -0.1, 0.001, 100, "DeLong", True)
    monkeypatch.setattr("mixtree.verdict.judge.paired_difference", lambda *args, **options: worse)
    options = {**QUICK, "test": few.test, "reference": "all"}
    names = [name for name, _ in fit(few.sources, **options, policy="uniform").verdict.differences]
    best = next(name.removeprefix("only ") for name in names if name.startswith("only "))
    best = best.removesuffix("+decay")

    def told(**more):
        warnings = fit(few.sources, **options, **more).verdict.warnings
        return [each for each in warnings if "this model's mixture is that of" in each]

    (only,) = told(policy="mixmatch-ch+commit", minimum={best: 1.0})
    assert only.replace("+decay", "") == (
        f"this model's mixture is that of only {best} too, all along: what sets it apart is how it was "
        "trained, not the mixture"
    )
    assert len(told(policy="pooled")) == 1  # uniform here: all sources have as many rows
    # A tree's ancestors had other mixtures, and its model a part of the steps.
    assert told(policy="mixmatch-ch") == []


def test_a_gain_over_the_same_mixture_is_said_to_be_that_of_training_once(few, monkeypatch):
    better = Difference(0.2, 0.1, 0.3, 0.001, 100, "DeLong", True)
    monkeypatch.setattr("mixtree.verdict.judge.paired_difference", lambda *args, **options: better)
    verdict = fit(few.sources, **QUICK, test=few.test, policy="pooled").verdict  # of as many rows each
    words = ", but not by its mixture, which is uniform too, all along: by how it was trained."
    assert verdict.comparison.startswith("Better than uniform") and verdict.comparison.endswith(words)
    assert not any("mixture is that of" in each for each in verdict.warnings)


def test_a_study_that_stopped_early_is_not_told_to_have_a_larger_budget():
    problem = synthetic(sources=3, rows=60, features=8, validation=200, test=300, seed=1)
    result = fit(problem.sources, test=problem.test, budget=4000, reference="none", use_target_rows="never")
    assert result.unspent > 2000 and any("stopped early" in note for note in result.notes)
    verdict = result.verdict
    assert "budget" not in verdict.next_step
    assert not any("from twice the budget" in note for note in verdict.notes)
