"""Models trained for the verdict alone: charged, reproducible, and on no row that scores them."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from zlib import crc32

import numpy as np
import pytest

from mixtree.data.sources import Rows
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import TrainingError
from mixtree.fitting.options import make_options
from mixtree.fitting.pipeline import fit
from mixtree.fitting.prepare import prepare
from mixtree.metrics import AUROC, LOG_LOSS, SQUARED_LOSS
from mixtree.policies.auto import Auto
from mixtree.policies.registry import make_search
from mixtree.seeds import derive_seed
from mixtree.trainer import Evaluation
from mixtree.tree import Trial
from mixtree.verdict import Difference, paired_difference, without_source
from mixtree.verdict.judge import judge
from mixtree.verdict.references import (
    Extra,
    Reference,
    TimeIsUp,
    TimeLimit,
    View,
    _beyond,
    attribution,
    chosen_rate,
    nested_predictions,
    references,
)


@pytest.fixture(scope="module")
def problem():
    return synthetic(sources=3, rows=300, validation=60, test=300, alpha=[0.9, 0.05, 0.05], seed=4)


def extra_of(problem, budget=100, **options):
    prepared = prepare(problem.sources, make_options(model="linear", budget=budget, steps=5, **options))
    return Extra(prepared, budget)


def test_a_reference_is_charged_and_the_same_again(problem):
    one, two = extra_of(problem), extra_of(problem)
    rows = problem.test
    first, again = (each.trained("uniform", rows, purpose="uniform") for each in (one, two))
    assert first.name == again.name and list(first.ends) == [first.name]  # other rows choose the end
    np.testing.assert_array_equal(first.ends[first.name], again.ends[again.name])
    assert one.spent == {"uniform": 150}  # the last half twice
    one.trained("uniform", rows, purpose="uniform")
    assert one.spent == {"uniform": 300}


def diverges(search, *args, **options):
    while trials := search.ask():
        for trial in trials:
            search.tell(trial, Evaluation(np.inf))
    raise TrainingError("every model diverged")


def test_a_reference_that_diverges_is_nan_and_charged(problem, monkeypatch):
    monkeypatch.setattr("mixtree.verdict.references.run", diverges)
    extra = extra_of(problem, reference="all")
    found, _ = references(extra, View(problem.test, True), choose=LOG_LOSS)
    assert all(np.isnan(each.predictions).all() for each in found.values())
    assert extra.spent["single sources"] == 4 * 150  # 4 step sizes, until the decay
    assert np.isnan(nested_predictions(extra, np.arange(60) % 3)).all()
    assert extra.spent["nested folds"] == 300


def test_the_best_single_source_is_the_one_of_least_loss(problem):
    extra = extra_of(problem, budget=600, reference="all")
    found, notes = references(extra, View(problem.test, True), choose=LOG_LOSS)
    names = [name.removesuffix("+decay") for name in found]
    assert names == ["uniform", "only source-0", "validation"]  # source-0 is nine tenths of the target
    assert notes == ["pooled is uniform here: all sources have as many rows"]


def test_validation_by_fold_sees_no_row_that_it_predicts(problem):
    rows = problem.sources.validation
    folds = np.arange(60) % 3
    view = View(rows, False, folds)
    before = references(extra_of(problem, reference="all"), view, choose=LOG_LOSS)[0][
        "validation"
    ].predictions
    # Other labels in one fold change what is predicted for the others, not for itself.
    y = np.where(folds == 0, 1 - rows.y, rows.y)
    changed = replace(problem, sources=replace(problem.sources, validation=replace(rows, y=y)))
    view = View(changed.sources.validation, False, folds)
    after = references(extra_of(changed, reference="all"), view, choose=LOG_LOSS)[0]["validation"].predictions
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
    assert extra.spent == {"attribution": 200 + 4 * 200 + 3 * 200}  # all sources with four seeds
    assert notes[0].startswith("attribution: runs of 200 steps")
    assert notes[1].startswith("by another seed such a score moves by ")
    assert notes[2].startswith("source-0 is worth") and notes[2].endswith("keep it")


def test_sources_that_make_no_difference_are_not_told_one_by_one():
    many = synthetic(sources=9, rows=60, validation=40, test=60, seed=4)
    extra = extra_of(many, attribution="loo")
    mixture = np.full(9, 1 / 9)
    notes = attribution(extra, mixture, View(many.test, True), AUROC)
    unknown = [note for note in notes if "cannot show" in note]
    assert len(notes) <= 1 + 9 and len(unknown) == 1 and unknown[0].startswith("of ")


def test_shapley_values_add_up_to_the_gain_over_the_warm_start(problem):
    extra = extra_of(problem, budget=2000, attribution="shapley")
    notes = attribution(extra, np.array([0.9, 0.05, 0.05]), View(problem.test, True), AUROC)
    assert extra.spent == {"attribution": 200 + 7 * 200}
    told = dict(part.rsplit(" ", 1) for part in notes[-1].split(": ")[1].split(", "))
    shares = {name: float(text.replace("−", "-")) for name, text in told.items()}
    assert max(shares, key=lambda name: shares[name]) == "source-0"
    assert attribution(extra_of(problem), np.ones(3) / 3, View(problem.test, True), AUROC) == []


# ------------------------------------------------------------------------------------- the study's step size


class Told(Auto):
    """A study that went through these phases at these step sizes, one after the other."""

    def __init__(self, setting, phases):
        super().__init__(setting)
        self.phases = phases

    def script(self):
        node, path = None, ()
        for phase, rate in self.phases:
            path = (*path, 0)
            (node,) = yield [Trial(path, np.ones(3) / 3, 1, rate, phase)]
        return node


@pytest.mark.parametrize(
    ("phases", "rate"),
    [
        (
            [
                ("step size", 1.0),
                ("trunk", 1.0),
                ("race", 1.0),
                ("race", 0.1),
                ("commit", 1.0),
                ("decay", 0.1),
            ],
            1,
        ),
        ([("step size", 0.3), ("trunk", 0.3), ("race", 0.3), ("race", 0.03), ("commit", 0.3)], 0.3),
        ([("trunk", 3.0), ("commit", 3.0), ("decay", 0.1 * 3.0), ("target", 3.0), ("target", 0.3)], 3),
        ([("trunk", 1.0), ("commit", 0.3), ("decay", 0.03)], 0.3),  # all of the race diverged
        ([("trunk", 1.0), ("race", 1.0), ("race", 0.1), ("decay", 0.03)], 0.3),  # the commit was undone
        ([("trunk", 0.3), ("race", 0.3), ("race", 0.03)], 0.3),  # the time was over
    ],
)
def test_the_rate_is_that_of_the_returned_models_last_phase(problem, phases, rate):
    search = Told(prepare(problem.sources, make_options(model="linear", budget=100)).search.setting, phases)
    while trials := search.ask():
        for trial in trials:
            search.tell(trial, Evaluation(1.0))
    assert chosen_rate(search) == rate


@pytest.mark.parametrize("policy", ["auto", "mixmatch-bisect+commit", "fine-tune"])
def test_a_study_that_chose_no_step_size_leaves_the_references_theirs(problem, policy):
    prepared = prepare(
        problem.sources, make_options(model="linear", budget=200, steps=5, policy=policy, lr=0.1)
    )
    before = Extra(prepared, 200).trained("uniform", problem.test, purpose="uniform")
    result = run(prepared.search, prepared.trainer)
    assert policy == "auto" or {node.lr_scale for node in result.tree.values()} != {1.0}
    extra = Extra(prepared, 200)
    assert extra.rate == 1.0
    after = extra.trained("uniform", problem.test, purpose="uniform")
    np.testing.assert_array_equal(before.ends[before.name], after.ends[after.name])
    assert not any(
        "step size" in note for note in references(extra, View(problem.test, True), choose=LOG_LOSS)[1]
    )


@pytest.fixture(scope="module")
def steep():
    """A regression of large features, the same law in all sources, on which the usual steps blow up."""
    rng = np.random.default_rng(0)

    def drawn(count):
        x = rng.normal(size=(count, 4)) * 4.0
        return Rows(x, x @ np.array([0.3, -0.2, 0.1, 0.0]) + 0.1 * rng.normal(size=count))

    made = synthetic(sources=3, rows=60, validation=60, test=100, classes=0, seed=1)
    rows = tuple(drawn(200) for _ in made.sources.rows)
    sources = replace(made.sources, rows=rows, validation=drawn(60))
    return replace(made, sources=sources, test=drawn(300))


def test_references_are_trained_at_the_step_size_that_the_study_chose(steep):
    options = make_options(model="linear", budget=300, reference="all", attribution="loo", policy="auto")
    prepared = prepare(steep.sources, options, test=steep.test)
    usual = Extra(prepared, 300)
    blown = usual._trained("uniform", steep.test, 1.0, "uniform", None)
    result = run(prepared.search, prepared.trainer, keep_predictions=True)
    extra = Extra(prepared, 300)
    assert extra.rate < 1.0
    found, notes = references(extra, View(steep.test, True), choose=SQUARED_LOSS)
    at = f"{extra.rate:g} × the usual step size, at which the study ended, and at the usual one"
    assert (
        notes[-1]
        == f"{', '.join(list(found)[:-1])} and {list(found)[-1]} were trained at {at}: the better one counts"
    )
    assert blown.loss == np.inf and usual.spent["uniform"] <= 150  # it ended where it diverged
    assert extra.spent["uniform"] <= 450 + usual.spent["uniform"]
    rivals = {name.removesuffix("+decay"): rival for name, rival in found.items()}
    assert np.isfinite(rivals["validation"].predictions).all()  # which diverges at the usual one
    assert np.abs(rivals["uniform"].predictions - steep.test.y).mean() < 0.2
    verdict = judge(prepared, result)
    assert verdict.sentence.startswith("Not distinguishable from uniform")
    assert any(note == notes[-1] for note in verdict.notes)
    assert any("attribution: runs of" in note and f"at {extra.rate:g} ×" in note for note in verdict.notes)
    assert not any("could not be measured" in note for note in verdict.notes)


def test_the_verdict_says_which_model_diverged(problem, monkeypatch):
    prepared = prepare(problem.sources, make_options(model="linear", budget=100, steps=5), test=problem.test)
    result = run(prepared.search, prepared.trainer, keep_predictions=True)
    diverged = "predictions are not finite: it diverged and has no score"
    monkeypatch.setattr("mixtree.verdict.references.run", diverges)
    verdict = judge(prepared, result)
    assert verdict.sentence.startswith(f"Not comparable with uniform: the reference's {diverged}. ")
    assert np.isfinite(verdict.score.value)
    predictions, nothing = np.full((300, 2), 0.5), np.full((300, 2), np.nan)
    notes = {
        (one is nothing, two is nothing): paired_difference(LOG_LOSS, problem.test.y, one, two).notes
        for one in (predictions, nothing)
        for two in (predictions, nothing)
    }
    model, reference = f"the model's {diverged}", f"the reference's {diverged}"
    assert notes[False, True] == (reference,) and notes[True, False] == (model,)
    assert notes[True, True] == (model, reference)
    assert not any("diverged" in note for note in notes[False, False])


def test_a_resumed_study_knows_the_step_size_that_it_chose(steep, tmp_path):
    def again(budget):
        options = make_options(model="linear", budget=budget, policy="auto")
        prepared = prepare(steep.sources, options, test=steep.test)
        run(prepared.search, prepared.trainer, storage=tmp_path / "study.db", resume=True)
        return chosen_rate(prepared.search)

    first = again(300)
    assert first < 1.0
    assert again(300) == first  # nothing is trained
    assert again(600) == first  # it goes on from the longest trained model


def test_a_time_limit_leaves_out_what_it_leaves_no_time_for(problem):
    def told(**options):
        verdict = fit(problem.sources, model="linear", budget=200, **options).verdict
        words = "the time limit leaves no time"
        return verdict, [
            each for each in (verdict.comparison, *verdict.notes, *verdict.warnings) if words in each
        ]

    whole, left_out = told(time_limit=3_600, reference="all", attribution="loo")
    assert left_out == [] and any(name.startswith("uniform") for name, _ in whole.differences)
    assert whole.reference_spent == told(reference="all", attribution="loo")[0].reference_spent
    short, left_out = told(time_limit=1e-6, reference="all", attribution="loo", nested=True)
    assert short.differences == () and short.reference_spent == {} and short.score is not None
    assert [each.split(":")[0] for each in left_out] == [
        "Not compared with uniform",
        "not compared with the best single source",
        "no attribution",
        "no nested folds",
    ]


@pytest.mark.parametrize(("how", "budgets"), [("loo", 0.5), ("shapley", 0.9)])
def test_attribution_needs_time_for_all_its_models(problem, how, budgets):
    extra = replace(extra_of(problem, attribution=how), limit=TimeLimit(time.monotonic() + 10.0, 0.1))
    mixture = np.full(3, 1 / 3)
    # A budget of 100 steps takes 10 seconds at that pace.
    short = replace(extra, limit=replace(extra.limit, until=time.monotonic() + 10.0 * budgets - 0.5))
    assert "leaves no time" in attribution(short, mixture, View(problem.test, True), AUROC)[0]
    enough = replace(extra, limit=replace(extra.limit, until=time.monotonic() + 10.0 * budgets + 30.0))
    assert "warm start" in attribution(enough, mixture, View(problem.test, True), AUROC)[0]


def test_the_best_single_source_needs_time_for_all_of_them(problem):
    limit = TimeLimit(time.monotonic() + 40.0, 0.1)  # four budgets of 100 steps; three sources take 4.5
    extra = replace(extra_of(problem, reference="all"), limit=limit)
    found, notes = references(extra, View(problem.test, True), choose=LOG_LOSS)
    assert [name.removesuffix("+decay") for name in found] == ["uniform", "validation"]
    assert "not compared with the best single source: the time limit leaves no time" in notes


def test_a_reference_is_not_begun_that_would_take_too_long(problem):
    result = SimpleNamespace(spent={"root": 100, "node": 100})
    limit = TimeLimit.after(result, time.monotonic() - 10.0, 30.0)
    assert limit.pace == pytest.approx(0.05, rel=0.01) and 19.0 < limit.left(200) <= 20.0
    with pytest.raises(TimeIsUp):
        limit.left(500)
    assert TimeLimit.after(result, 0.0, None) is None


def test_a_reference_that_was_cut_off_is_charged_and_not_compared(problem, monkeypatch):
    cut = SimpleNamespace(reason="the time limit was reached", spent={"root": 7})
    monkeypatch.setattr("mixtree.verdict.references.run", lambda *args, **options: cut)
    extra = extra_of(problem)
    found, notes = references(extra, View(problem.test, True), choose=LOG_LOSS)
    assert found == {} and notes == ["not compared with uniform: the time limit leaves no time"]
    assert extra.spent == {"uniform": 7}


def test_leaving_sources_out_is_corrected_for_looking_at_each(problem, monkeypatch):
    close = Difference(0.1, 0.01, 0.19, 0.03, 300, "DeLong", True)
    monkeypatch.setattr("mixtree.verdict.references.paired_difference", lambda *args, **options: close)
    extra = extra_of(problem, attribution="loo")
    notes = attribution(extra, np.array([0.9, 0.1, 0.0]), View(problem.test, True), AUROC)
    assert "keep it" in without_source(AUROC, "source-0", close)
    assert len(notes) == 5 and all("cannot show whether" in note for note in notes[2:])


def test_what_a_seed_does_is_not_what_a_source_is_worth():
    sure = Difference(0.1, 0.08, 0.12, 1e-6, 3000, "DeLong", True)
    assert _beyond(0.0, sure).outcome == "better"
    lucky = _beyond(0.05, sure)
    assert lucky.outcome == "not distinguishable" and lucky.p > 0.05
    assert lucky.low < sure.low < sure.high < lucky.high
    same = Difference(0.0, 0.0, 0.0, 1.0, 3000, "identical", True)
    assert _beyond(0.05, same) == same


def test_shapley_values_of_one_class_are_answered_in_words(problem):
    one = Rows(problem.test.x, np.zeros(len(problem.test), dtype=int))
    told = attribution(extra_of(problem, attribution="shapley"), np.ones(3) / 3, View(one, True), AUROC)
    assert told[-1].startswith("Shapley values could not be computed: metric 'auroc' compares classes")


def test_a_single_source_that_diverges_is_spoken_of(problem, monkeypatch):
    plain = Extra.trained

    def one_diverges(self, algorithm, rows, **options):
        if algorithm == "only:source-0":
            return Reference(algorithm, float("inf"), {algorithm: self.nothing(rows)})
        return plain(self, algorithm, rows, **options)

    monkeypatch.setattr(Extra, "trained", one_diverges)
    found, notes = references(extra_of(problem, reference="all"), View(problem.test, True), choose=LOG_LOSS)
    assert not any("source-0" in name for name in found)
    assert "trained on source-0 alone the model diverged: no comparison with that" in notes


def test_the_best_single_source_is_chosen_by_the_same_folds(problem):
    rows = problem.sources.validation
    folds = np.arange(60) % 5
    for parts in (folds, None):
        view = View(rows, False, parts=parts)
        found, notes = references(extra_of(problem, budget=600, reference="all"), view, choose=LOG_LOSS)
        assert any(
            note.startswith("the best single source by all of these rows: only source-0") for note in notes
        )
        rival = found["the best single source"]
        assert rival.parts is not None and (parts is None or rival.parts is parts)
        (uniform,) = (each for name, each in found.items() if name.startswith("uniform"))
        assert uniform.parts is parts or (parts is None and len(np.unique(uniform.parts)) == 2)


def test_references_that_diverge_are_trained_again_with_smaller_steps(steep):
    options = make_options(
        model="linear", budget=300, reference="all", attribution="loo", policy="mixmatch-bisect+commit"
    )
    extra = Extra(prepare(steep.sources, options, test=steep.test), 300)
    found, notes = references(extra, View(steep.test, True), choose=SQUARED_LOSS)
    assert len(found) == 3 and all(np.isfinite(each.predictions).all() for each in found.values())
    (uniform,) = (each for name, each in found.items() if name.startswith("uniform"))
    assert np.abs(uniform.predictions - steep.test.y).mean() < 0.2
    assert notes[-1] == (
        "uniform, only source-0, only source-1, only source-2 and validation were trained at 0.3 × the usual "
        "step size: larger ones diverged"
    )
    # It diverged in the trunk, and was trained whole at .3 ×.
    assert all(450 < extra.spent[name] <= 150 + 450 for name in ("uniform", "validation"))
    told = attribution(extra, np.ones(3) / 3, View(steep.test, True), SQUARED_LOSS)
    assert "at 0.3 × the usual step size, since larger ones diverged" in told[0]
    assert extra.spent["attribution"] == (30 + 4 * 30) * 2 + 3 * 30 and not any(
        "diverged" in n for n in told[1:]
    )


def test_a_finite_loss_may_be_a_divergence_too(steep):
    """Few steps do not overflow: the model is 10^20 times as bad as an untrained one, and finite."""
    options = make_options(model="linear", budget=40, policy="mixmatch-bisect+commit", steps=5)
    extra = Extra(prepare(steep.sources, options, test=steep.test), 40)
    found, notes = references(extra, View(steep.test, True), choose=SQUARED_LOSS)
    assert extra.spent == {"uniform": 2 * 60} and "larger ones diverged" in notes[-1]
    ((name, rival),) = found.items()
    assert name.startswith("uniform") and np.abs(rival.predictions).max() < 100.0


# ------------------------------------------------------------------------------------------ the better end


def ends_of(problem, budget, **options):
    """The reference, and what the chains of its two names come to, with the same seeds."""
    extra = extra_of(problem, budget, policy="mixmatch-bisect", **options)
    reference = extra.trained("uniform", problem.test, purpose="uniform")
    seed, setting = derive_seed(0, (crc32(b"uniform"),)), extra.prepared.setting
    by_hand = {
        name: run(make_search(name, setting), extra.prepared.trainer, seed=seed, init_seed=0).value
        for name in ("uniform", "uniform+decay")
    }
    return reference, by_hand, extra


def test_where_training_has_not_converged_the_reference_has_no_decayed_end(problem):
    reference, by_hand, extra = ends_of(problem, 60, lr=0.005)
    assert reference.name == "uniform" and extra.spent == {"uniform": 90}
    assert reference.loss < 0.99 * by_hand["uniform+decay"]
    # Its last half is a stage of its own: other rows are drawn than in a chain without one.
    assert reference.loss == pytest.approx(by_hand["uniform"], rel=0.01)


def test_where_steps_are_too_large_to_settle_the_reference_has_a_decayed_end(problem):
    reference, by_hand, _ = ends_of(problem, 400, lr=8.0)
    assert reference.name == "uniform+decay"
    assert reference.loss < by_hand["uniform"]
    assert reference.loss == pytest.approx(by_hand["uniform+decay"], rel=0.05)


def test_the_rows_that_score_do_not_choose_the_end(problem):
    """On the validation rows every row is predicted by the end that the other rows choose."""
    extra, rows = extra_of(problem, 100, policy="mixmatch-bisect"), problem.sources.validation
    reference = extra.trained("uniform", rows, purpose="uniform")
    losses = {name: LOG_LOSS(rows.y, end) for name, end in reference.ends.items()}
    assert set(losses) == {"uniform", "uniform+decay"}
    assert min(losses, key=losses.get) == reference.name
    assert losses[reference.name] == pytest.approx(reference.loss)
    parts = np.arange(60) % 2
    ((_, rival),) = references(extra, View(rows, False, None, parts), choose=LOG_LOSS)[0].items()
    for part in (0, 1):
        mine, others = parts == part, parts != part
        chosen = min(reference.ends.values(), key=lambda end: LOG_LOSS(rows.y[others], end[others]))
        np.testing.assert_array_equal(rival.predictions[mine], chosen[mine])


def test_the_reference_of_auto_is_stopped_early_as_auto_is_and_of_the_paper_s_it_is_not():
    tiny = synthetic(sources=3, rows=12, features=8, validation=200, test=50, seed=1)
    spent = {}
    for policy in ("auto", "mixmatch-bisect"):
        options = make_options(model="mlp", budget=4000, policy=policy, steps=100)
        extra = Extra(prepare(tiny.sources, options, test=tiny.test), 4000)
        extra.trained("uniform", tiny.test, purpose="uniform")
        spent[policy] = extra.spent["uniform"]
    assert spent["auto"] < 3000 and spent["mixmatch-bisect"] == 6000
