"""The front door: what it chooses, what it refuses, what it gives back."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import time
import warnings
from contextlib import closing
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from lightgbm import LGBMClassifier
from safetensors.numpy import save_file
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from torch import nn

from mixtree.data.fingerprint import data_fingerprint
from mixtree.data.sources import Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import DataError, InputError, StorageError
from mixtree.fitting.options import FitOptions, make_options
from mixtree.fitting.pipeline import fit, load
from mixtree.fitting.prepare import as_sources, choose, prepare
from mixtree.metrics import AbsentClassWarning, as_metric
from mixtree.storage.sql import open_storage
from mixtree.trainers.registry import ModelOptions, make_trainer


@pytest.fixture(scope="module")
def sources():
    return synthetic(rows=200).sources


def test_a_mapping_of_arrays_is_enough():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    y = (x[:, 0] > 0).astype(int)
    result = fit({"a": (x, y), "b": (x, 1 - y)}, (x, y), model="linear", budget=40, steps=2)
    assert list(result.weights) == ["a", "b"]
    assert result.weights["a"] > result.weights["b"]
    assert sum(result.spent.values()) <= 40


def test_a_stored_fit_is_resumed(sources, tmp_path):
    options = {"model": "linear", "budget": 20, "steps": 2, "storage": tmp_path / "s.db"}
    first = fit(sources, **options)
    again = fit(sources, **options, resume=True)
    assert again.weights == first.weights
    np.testing.assert_array_equal(again.state.parameters, first.state.parameters)


@pytest.mark.parametrize(
    "policy",
    ["uniform", "mmd", "online", "mixmin", "regmix", "successive-halving", "pbt", "optuna-tpe", "pyxab-hoo"],
)
def test_every_policy_goes_on_at_a_raised_budget(sources, policy, tmp_path):
    """Though how many trials it makes follows from the budget."""
    pytest.importorskip({"optuna-tpe": "optuna", "pyxab-hoo": "PyXAB"}.get(policy, "mixtree"))
    options = {"model": "linear", "policy": policy, "storage": tmp_path / "s.db", "reference": "none"}
    fit(sources, **options, budget=120)
    raised = fit(sources, **options, budget=200, resume=True)
    assert 120 < sum(raised.spent.values()) <= 200
    with pytest.raises(StorageError, match="raised, not lowered to 120"):
        fit(sources, **options, budget=120, resume=True)


def test_what_is_left_open_is_chosen_and_told(sources):
    chosen = choose(FitOptions(policy="mixmatch-ch"), sources)
    rows = int(sources.sizes.sum())
    assert chosen.batch_size == min(50, rows // 10)
    assert 600 <= chosen.budget <= 20_000
    assert chosen.steps == chosen.budget // 30
    told = " ".join(chosen.notes)
    assert all(word in told for word in ("budget", "per node", chosen.metric.name))


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, "auto"),
        ({"budget": 100}, "auto"),
        ({"policy": "auto", "steps": 4}, "auto"),
        ({"steps": 4}, "mixmatch-bisect+commit"),
        ({"minimum": {"source-0": 0.2}}, "mixmatch-bisect+commit"),
        ({"maximum": {"source-0": 0.7}, "rho": 0.9}, "mixmatch-ch+commit"),
        ({"max_passes": 100.0}, "auto"),
        ({"max_passes": 100.0, "steps": 4}, "mixmatch-ch+commit"),
        ({"nu": 0.0}, "mixmatch-bisect+commit"),
        ({"policy": "uniform"}, "uniform"),
    ],
)
def test_the_policy_is_auto_unless_an_option_needs_another(sources, options, policy):
    prepared = prepare(sources, FitOptions(**options))
    assert prepared.policy == policy
    assert prepared.chosen.notes[0].startswith(f"policy {policy}")


def test_a_fit_that_nobody_configured_tells_what_it_chose(sources):
    result = fit(sources, model="linear")
    assert [note.split(":")[0] for note in result.notes] == ["step size", "mixture", "target rows"]
    assert len(repr(result)) < 20_000
    assert sum(result.weights.values()) == pytest.approx(1)


def test_a_step_size_that_is_given_is_kept(sources):
    assert fit(sources, model="linear", lr=0.02).notes[0] == "step size: unchanged"
    assert {node.lr_scale for node in fit(sources, model="linear", lr=0.02).tree.values()} <= {1.0, 0.1}


def test_what_is_given_is_kept(sources):
    chosen = choose(FitOptions(budget=90, steps=3, batch_size=5, metric="accuracy"), sources)
    assert (chosen.budget, chosen.steps, chosen.batch_size, chosen.metric.name) == (90, 3, 5, "accuracy")
    assert chosen.notes == ()


def test_a_budget_of_many_passes_is_remarked_on(sources):
    rows = int(sources.sizes.sum())
    few, many = FitOptions(budget=rows * 4, metric="accuracy"), FitOptions(budget=rows * 5, metric="accuracy")
    assert choose(few, sources).warnings == choose(replace(many, max_passes=300), sources).warnings == ()
    (warning,) = choose(many, sources).warnings
    assert warning.startswith(f"the budget is 250 passes over all {rows} rows: more than a model can use")


def test_huge_batches_get_no_hundreds_of_passes(sources):
    rows = int(sources.sizes.sum())
    assert choose(FitOptions(batch_size=rows), sources).budget == 200
    assert choose(FitOptions(batch_size=10 * rows), sources).budget == 60


def test_samples_are_counted_in_batches(sources):
    chosen = choose(FitOptions(budget=95, steps=21, batch_size=10, unit="samples"), sources)
    assert (chosen.budget, chosen.steps) == (10, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget must be a whole number of at least 1"),
        ({"steps": -1}, "steps must be a whole number"),
        ({"batch_size": True}, "batch_size must be a whole number"),
        ({"budget": 1.5}, "budget must be a whole number"),
        ({"budget": 4, "steps": 9}, "smaller than one node of 9"),
        ({"seed": -1}, "seed"),
        ({"metric": "nothing"}, "unknown metric"),
        ({"policy": "nothing"}, "unknown algorithm"),
        ({"objective": "nothing"}, "objective is one of loss, metric"),
        (
            {"use_target_rows": "auto", "policy": "mixmatch-ch"},
            "policy 'mixmatch-ch' knows no use_target_rows.* that does: auto",
        ),
        ({"maximum": {"nobody": 0.5}, "policy": "mixmatch-ch"}, "unknown source 'nobody'"),
        ({"maximum": {"a": 0.5}, "policy": "uniform"}, "policy 'uniform' knows no maximum"),
        ({"max_passes": 0.001}, "passes over the rows leaves not a single step"),
        ({"max_passes": 0.001, "policy": "uniform+decay"}, "passes over the rows leaves not a single step"),
        ({"max_passes": 3, "policy": "mixmatch-bisect"}, r"leave it out \(--max-passes\)"),
        (
            {"minimum": {"source-1": 0.5}, "maximum": {"source-1": 0.2}},
            "minimum weight of 'source-1' is 0.5, above its maximum of 0.2",
        ),
        ({"max_passes": 0}, "max_passes must be a finite number above 0; got 0"),
        (
            {"max_passes": 0.1, "policy": "mixmatch-ch"},
            "so few passes over the sources' rows are 1 steps, and the budget is .* lower the budget",
        ),
        ({"policy": "auto", "nu": 0.5, "width": 2}, "policy 'auto' knows no nu and width"),
        ({"budget": 2**70}, "reads more than 100,000,000,000 rows"),
        ({"batch_size": 10**9}, "the batch size must be at most 65,536; got 1000000000: the sources have"),
        ({"batch_size": 2**70, "model": "lightgbm"}, "the batch size must be at most 65,536"),
    ],
)
def test_what_cannot_work_is_refused_before_training(sources, options, message):
    with pytest.raises(InputError, match=message):
        prepare(sources, FitOptions(**options))


def test_row_numbers_alone_are_refused_before_training():
    y = np.arange(120) % 2
    own, joined = np.arange(60)[:, None], np.arange(120)[:, None]
    for a, b in ((own, own), (joined[:60], joined[60:])):
        for form in (np.asarray, pd.DataFrame):
            parts = {"a": (form(a), y[:60]), "b": (form(b), y[60:])}
            with pytest.raises(DataError, match="is the only feature and numbers the rows one by one"):
                fit(parts, (form(own), y[:60]), budget=10, steps=1)
    options = {"budget": 10, "steps": 1, "reference": "none"}
    parts = {"a": (own / 60, y[:60]), "b": (own // 2, y[60:])}  # a quantity; numbers that come twice
    fit(parts, (own, y[:60]), model="linear", **options)

    class Reader(nn.Module):
        """It reads the rows itself."""

        def __init__(self):
            super().__init__()
            self.rows = nn.Embedding.from_pretrained(torch.randn(60, 3))
            self.last = nn.Linear(3, 2)

        def forward(self, x):
            return self.last(self.rows(x[:, 0]))

    fit({"a": (own, y[:60]), "b": (own, y[60:])}, (own, y[:60]), model=Reader, **options)


def test_unknown_options_list_the_known_ones():
    with pytest.raises(InputError, match="unknown option 'budgte'; the options are .*budget"):
        make_options(budgte=3)


def test_weights_are_bounded(sources):
    name = sources.names[0]
    result = fit(sources, model="linear", budget=40, steps=2, minimum={name: 0.6})
    assert result.weights[name] >= 0.6


def test_no_source_is_read_more_often_than_allowed(sources):
    """A small source may not fill the mixture, whatever the search would like."""
    small = replace(sources, rows=(sources.rows[0].take(np.arange(10)), *sources.rows[1:]))
    given = {"model": "linear", "budget": 60, "batch_size": 10, "max_passes": 6.0, "policy": "mixmatch-ch"}
    prepared = prepare(small, FitOptions(**given))
    caps = prepared.setting.caps[:3]
    assert caps[0] == pytest.approx(6.0 * 10 / 600)
    result = run(prepared.search, prepared.trainer)
    assert all((node.mixture <= caps + 1e-9).all() for node in result.tree.values())
    assert prepared.trainer.epochs(result.state)[0] <= 6.0 + 0.1
    tighter = FitOptions(**given, maximum={small.names[0]: 0.01})
    (root,) = prepare(small, tighter).search.ask()
    assert root.mixture[0] <= 0.01


@pytest.mark.parametrize("passes", [20.0, 2.0])
@pytest.mark.parametrize("policy", ["auto", "uniform", "uniform+decay", "only:source-0", "fine-tune"])
def test_no_policy_reads_a_source_more_often_than_allowed(sources, policy, passes):
    """With few passes the budget is cut; with more, a small source gets less weight."""
    small = replace(sources, rows=(sources.rows[0].take(np.arange(10)), *sources.rows[1:]))
    options = FitOptions(model="linear", budget=400, batch_size=10, max_passes=passes, policy=policy)
    prepared = prepare(small, options)
    assert prepared.policy == policy
    result = run(prepared.search, prepared.trainer)
    read = prepared.trainer.epochs(result.state)
    slack = 1.2 if policy != "only:source-0" else 0.01  # the rows of a batch are drawn at random
    assert (read[: len(small)] <= passes + slack).all() and read[0] > 0.5 * passes
    rows = [*small.sizes, len(prepared.sources.validation)]
    assert 10 * sum(node.steps for node in result.tree.lineage(result.node.path)) <= passes * sum(rows)


@pytest.mark.parametrize("policy", ["auto", "mixmatch-bisect+commit"])
def test_the_order_of_the_sources_changes_nothing(policy):
    problem = synthetic(rows=300, validation=120, test=50, seed=3)
    parts = {name: (rows.x, rows.y) for name, rows in zip("cab", problem.sources.rows, strict=True)}
    validation = problem.sources.validation
    options = {"val": (validation.x, validation.y), "model": "linear", "budget": 300, "reference": "all"}
    one, two = (
        fit({name: parts[name] for name in order}, policy=policy, **options) for order in ("cab", "bca")
    )
    assert list(one.weights) == ["a", "b", "c"]
    assert one.weights == two.weights and one.verdict == two.verdict
    np.testing.assert_array_equal(one.state.parameters, two.state.parameters)


def test_the_objective_may_be_the_metric(sources):
    result = fit(sources, model="linear", budget=40, steps=2, metric="accuracy", objective="metric")
    assert -1 <= result.value <= 0  # higher is better, so it is negated


def test_validation_rows_are_needed():
    with pytest.raises(DataError, match="validation rows"):
        as_sources({"a": (np.zeros((3, 1)), np.zeros(3))}, None, classes=None)


def test_classes_are_counted_over_all_rows():
    x = np.zeros((3, 1))
    found = as_sources({"a": (x, np.array([0, 1, 0]))}, (x, np.array([0, 2, 1])), classes=None)
    assert found.classes == 3
    assert as_sources({"a": (x, np.full(3, 0.5))}, (x, np.ones(3)), classes=None).classes == 0
    truths = np.array([True, False, True])
    assert as_sources({"a": (x, truths)}, (x, truths), classes=None).classes == 2


def test_labels_that_may_be_either_are_asked_about():
    rng = np.random.default_rng(0)
    x, prices = rng.normal(size=(300, 2)), rng.integers(80_000, 120_000, size=300)
    with pytest.raises(DataError, match="whole numbers up to 11.*give classes=0 for a regression"):
        as_sources({"a": (x, prices)}, (x, prices), classes=None)
    assert as_sources({"a": (x, prices)}, (x, prices), classes=0).classes == 0
    chances = rng.integers(2, size=300).astype(float)
    with pytest.raises(DataError, match=r"0\.0 and 1\.0: give whole numbers"):
        as_sources({"a": (x, chances)}, (x, chances), classes=None)
    with pytest.raises(DataError, match="labels must be numbers, not text"):
        as_sources({"a": (x, chances.astype(str))}, (x, chances), classes=None)
    for values in ([20_000, 30_000, 45_000], [0, 5_000_000], [1990, 2024]):
        few = rng.choice(values, size=300)
        with pytest.raises(DataError, match="give classes=0 for a regression, or number the classes"):
            as_sources({"a": (x, few)}, (x, few), classes=None)
    with pytest.raises(DataError, match="features must be a table"):
        as_sources({"a": (x, [[1], [1, 2]])}, (x, chances), classes=None)
    many = np.arange(300) % 60  # as many classes as that are fine if each has its rows
    assert as_sources({"a": (x, many)}, (x, many), classes=None).classes == 60
    with pytest.raises(DataError, match="a dictionary"):
        as_sources([(x, many)], (x, many), classes=None)


@pytest.mark.parametrize("library", [pd, pl])
def test_columns_are_matched_by_name(library):
    rng = np.random.default_rng(0)

    def part(count, names="abc"):
        x = rng.normal(size=(count, 3))
        frame = library.DataFrame({name: x[:, "abc".index(name)] for name in names})
        return frame, (x[:, 0] > 0).astype(int)

    options = {"model": "linear", "budget": 100, "reference": "none", "use_target_rows": "never"}
    fit_on = {"one": part(300, "cab"), "two": part(300, "bca")}
    result = fit(fit_on, part(100), test=part(200, "cba"), **options)
    assert result.verdict.score.value > 0.95
    frame, labels = part(200, "bac")
    assert ((result.predict(frame)[:, 1] > 0.5) == labels).mean() > 0.9
    np.testing.assert_array_equal(result.predict(frame), result.predict(frame[["a", "b", "c"]]))
    with pytest.raises(DataError, match="these rows and those that the model was trained on have different"):
        result.predict(frame[["a", "b"]])
    plain = part(100)  # without names: as the sources have them
    again = fit(fit_on, (np.asarray(plain[0][["c", "a", "b"]]), plain[1]), **options)
    assert again.verdict.score.value > 0.95
    frame, labels = part(30)
    other = library.DataFrame({"d": frame["a"], "b": frame["b"], "c": frame["c"]})
    with pytest.raises(DataError, match=r"source 'two' and the other rows have different columns \('d', "):
        fit({"one": part(30), "two": (other, labels)}, part(30), **options)


def test_rows_may_have_weights_but_not_those_that_score(sources):
    part, val = sources.rows[0], (sources.validation.x, sources.validation.y)
    rows = {"a": (part.x, part.y), "b": (part.x, part.y, np.linspace(0.0, 2.0, len(part)))}
    found = as_sources(rows, val, classes=2)
    assert found.rows[0].weight is None and found.rows[1].weight.sum() == pytest.approx(len(part))
    with pytest.raises(DataError, match="test rows have no weights"):
        fit(found, test=(*val, np.ones(len(val[1]))), model="linear", budget=40)
    with pytest.raises(DataError, match="validation rows have no weights"):
        as_sources(rows, (*val, np.ones(len(val[1]))), classes=2)


def test_a_result_predicts_rows(sources):
    for model in ("linear", "mlp", "lightgbm", "sklearn:SGDClassifier"):
        result = fit(sources, model=model, budget=40, steps=10, reference="none", policy="uniform")
        x, known = sources.validation.x, result.predictions[result.node.path]
        np.testing.assert_allclose(result.predict(x), known, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(result.model)).predict(x), result.predict(x))
        with pytest.raises(InputError, match="trained on rows of shape"):
            result.predict(x[:, :1])
    pipeline = make_pipeline(MinMaxScaler((5, 9)), SGDClassifier(loss="log_loss"))
    result = fit(sources, model=pipeline, budget=40, reference="none", policy="uniform")
    np.testing.assert_allclose(result.predict(x), result.predictions[result.node.path], rtol=1e-5, atol=1e-7)
    bare = replace(result, model=None)
    with pytest.raises(InputError, match="use trainer.predict"):
        bare.predict(x)


def test_numbers_of_numpy_are_numbers(sources):
    plain = fit(sources, model="linear", budget=40, seed=3, lr=0.1, reference="none")
    numpys = fit(
        sources, model="linear", budget=np.int64(40), seed=np.int64(3), lr=np.float64(0.1), reference="none"
    )
    assert numpys.value == plain.value


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"use_target_rows": False}, "use_target_rows is one of never, auto; got False"),
        ({"use_target_rows": "no"}, "use_target_rows is one of"),
        ({"lr": "0.1"}, "lr must be a finite number above 0; got '0.1'"),
        ({"policy": 3}, "policy must be an id, a Search, or a function that makes one; got 3"),
        ({"width": "x"}, "width must be a whole number of at least 1; got 'x'"),
        ({"max_passes": "x"}, "max_passes must be a finite number above 0; got 'x'"),
        ({"holdout": True}, "holdout must be a number; got True"),
        ({"minimum": {"source-0": "x"}}, "minimum weight of 'source-0' must lie between 0 and 1; got 'x'"),
        ({"maximum": [1]}, "must be numbers by the names of sources"),
        ({"init": 3}, "init takes a model's arrays"),
        ({"init": "nowhere"}, "nowhere is no model folder"),
        ({"class_weight": {7: 2.0}}, "class_weight: 7 is no class; they are 0 … 1"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(sources, options, words):
    with pytest.raises(InputError, match=re.escape(words)):
        fit(sources, model="linear", budget=40, **options)


def test_a_model_to_start_from_may_be_a_file(sources, tmp_path):
    first = fit(sources, model="linear", budget=40, reference="none")
    arrays = make_trainer("linear", sources, ModelOptions()).save(first.state)
    save_file(arrays, tmp_path / "first.safetensors")
    one, two = (
        fit(sources, model="linear", budget=40, reference="none", init=init)
        for init in (arrays, tmp_path / "first.safetensors")
    )
    assert one.value == two.value != first.value
    (tmp_path / "text").write_text("no model")
    with pytest.raises(InputError, match="is no safetensors file"):
        fit(sources, model="linear", budget=40, init=tmp_path / "text")


def test_classes_may_have_factors_of_their_own(sources):
    by_name, listed, none = (
        fit(sources, model="linear", budget=40, reference="none", policy="uniform", class_weight=given).value
        for given in ({1: 3.0}, np.array([1.0, 3.0]), None)
    )
    assert by_name == listed != none
    for model in ("linear", lambda: nn.Linear(sources.features, 2)):
        with pytest.raises(InputError, match="'balanced' or a factor per class; got 'balancd'"):
            fit(sources, model=model, budget=40, class_weight="balancd")
    with pytest.raises(InputError, match="this is a regression: leave it out"):
        fit(synthetic(classes=0, rows=50).sources, model="linear", budget=40, class_weight={1: 2.0})


def test_a_module_of_whole_numbers_predicts_them_and_a_lambda_does_not_spoil_pickling():
    rng = np.random.default_rng(0)

    def part(count):
        tokens = rng.integers(5, size=(count, 3))
        return tokens, (tokens.sum(axis=1) > 6).astype(int)

    def module():
        return nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 2))

    result = fit({"a": part(200), "b": part(200)}, part(60), model=module, budget=60, reference="none")
    tokens = part(10)[0]
    assert result.predict(tokens).shape == (10, 2)
    copy = pickle.loads(pickle.dumps(result.model))
    with pytest.raises(InputError, match="could not be pickled with the result"):
        copy.predict(tokens)


def test_a_stored_result_has_its_verdict(sources, tmp_path):
    place = tmp_path / "s.db"
    result = fit(sources, model="linear", budget=40, storage=place, study="q")
    again = load(place, "q")
    assert again.verdict.as_dict() == result.verdict.as_dict()
    assert again.verdict.sentence == result.verdict.sentence


def test_passes_that_fit_the_budget_exactly_are_allowed(sources):
    sizes = [800, 980, 390, 690, 950, 650, 840]
    part = sources.rows[0]
    many = Sources(
        tuple(f"s{n}" for n in range(7)),
        tuple(part.take(np.arange(size) % len(part)) for size in sizes),
        sources.validation,
        2,
    )
    options = FitOptions(model="linear", budget=4346, batch_size=50, max_passes=41, steps=50)
    prepared = prepare(many, options)
    assert prepared.policy == "mixmatch-ch+commit"
    (root,) = prepared.search.ask()
    assert (root.mixture <= prepared.setting.caps[:7] + 1e-9).all()
    with pytest.raises(InputError, match="are 4,346 steps, and the budget is 4,347"):
        prepare(many, replace(options, budget=4347))


def test_classes_without_validation_rows_are_told_once() -> None:
    sources = synthetic(rows=200, classes=12, validation=60, test=1, seed=3).sources
    kept = sources.validation.take(np.flatnonzero(sources.validation.y != 4))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = fit(replace(sources, validation=kept), model="linear", budget=100, reference="none")
    absent = [str(each.message) for each in told if each.category is AbsentClassWarning]
    assert len(absent) == 1 and f"among the {len(kept)} labels" in absent[0]
    assert result.verdict is not None


def test_boosting_makes_as_many_trees_as_it_does_by_default(sources):
    for model in ("lightgbm", "xgboost"):
        chosen = choose(FitOptions(model=model), sources)
        assert chosen.budget == 100
        assert "budget 100 trees, a step each (as many as the library makes by default)" in chosen.notes
    assert choose(FitOptions(model="lightgbm", budget=30), sources).budget == 30
    once = choose(FitOptions(model=LGBMClassifier(n_estimators=70)), sources)
    assert once.budget == 60
    assert any("each node a fit on all rows" in note for note in once.notes)


def test_a_study_knows_the_data_as_they_were_given(sources, tmp_path):
    prints = set()
    for number, options in enumerate(
        ({}, {"policy": "uniform"}, {"policy": "importance"}, {"holdout": 0.4}, {"policy": "mixmatch-bisect"})
    ):
        place = tmp_path / f"{number}.db"
        fit(sources, model="linear", budget=60, storage=place, reference="none", **options)
        with closing(open_storage(place)) as storage:
            prints.add(storage.load("fit").data)
    assert prints == {data_fingerprint(sources)}  # not with folds, with weights or without the rows held out


def test_other_rows_that_choose_are_noticed(sources, tmp_path):
    how = {"model": "linear", "budget": 60, "reference": "none", "storage": tmp_path / "study.db"}
    fit(sources, holdout=0.3, **how)
    fit(sources, holdout=0.3, resume=True, **how)
    with pytest.raises(StorageError, match="other settings .*validation was '.* rows #.*', is '.* rows #"):
        fit(sources, holdout=0.4, resume=True, **how)


def test_a_study_does_not_go_on_with_another_metric_to_minimise(sources, tmp_path):
    def scored(factor):
        return as_metric(lambda y, p: factor * np.mean((p[:, 1] - y) ** 2), classes=2, higher_is_better=False)

    how = {"model": "linear", "budget": 60, "reference": "none", "storage": tmp_path / "study.db"}
    fit(sources, metric=scored(1.0), objective="metric", **how)
    fit(sources, metric=scored(1.0), objective="metric", resume=True, **how)
    with pytest.raises(StorageError, match="objective.function was"):
        fit(sources, metric=scored(2.0), objective="metric", resume=True, **how)


def test_validation_rows_that_are_source_rows_are_told_of():
    rng = np.random.default_rng(0)
    sources = {name: (rng.normal(size=(200, 5)), rng.integers(0, 2, 200)) for name in "ab"}
    leaked, fresh = (
        (sources["a"][0][:150], sources["a"][1][:150]),
        (rng.normal(size=(40, 5)), sources["b"][1][:40]),
    )
    told = "150 of 150 validation rows also stand in source 'a' (the same features)"
    result = fit(sources, leaked, test=fresh, model="linear", budget=20)
    assert any(each.startswith(told) for each in result.verdict.warnings)
    assert f"Warning: {told}" in str(result.verdict)
    result = fit(sources, fresh, test=leaked, model="linear", budget=20)
    assert any(each.startswith(told.replace("validation", "test")) for each in result.verdict.warnings)


@pytest.mark.parametrize("seconds", [0.02, 0.3])
def test_a_time_limit_holds_for_a_slow_torch_module(monkeypatch, seconds):
    # By a clock that only this module moves on: what a busy machine does says nothing about the limit.
    clock = [0.0]

    def now():
        clock[0] += 1e-6
        return clock[0]

    class Slow(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 2)

        def forward(self, x):
            clock[0] += seconds if self.training else 0.0
            return self.layer(x)

    monkeypatch.setattr(time, "monotonic", now)
    monkeypatch.setattr(time, "perf_counter", now)
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(200, 5)).astype(np.float32), rng.integers(0, 2, 200)) for _ in range(3)]
    seen = []
    # Of so many steps a segment is one: choosing an engine is what could take long.
    options = {"budget": 20_000, "steps": 1, "segments": 20_000, "policy": "mixmatch-ch", "reference": "none"}
    result = fit(
        {"a": rows[0], "b": rows[1]},
        rows[2],
        model=Slow,
        time_limit=2,
        listeners=[lambda event: seen.append(clock[0])],
        **options,
    )
    segment = max(np.diff(seen))
    assert result.reason == "the time limit was reached"
    assert 1 < clock[0] < 4 + segment


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": 5}, "policy must be an id, a Search"),
        ({"nu": [1]}, r"nu must be a finite number of at least 0, or 'auto'; got \[1\]"),
        ({"rho": "x"}, "rho must be a finite number above 0 and below 1; got 'x'"),
        ({"max_passes": "x"}, "max_passes must be a finite number"),
        ({"width": "x"}, "width must be a whole number"),
        ({"maximum": 5}, "must be numbers by the names"),
        ({"minimum": {"a": "x"}}, "minimum weight of 'a' must lie between 0 and 1; got 'x'"),
        ({"class_weight": 5}, "class_weight is 'balanced' or a factor per class; got 5"),
        ({"classes": 2**40}, "classes is a whole number from 0 to 1,000,000"),
        ({"classes": "x"}, "classes is a whole number"),
        ({"workers": "x"}, "workers must be a whole number of at least 1; got 'x'"),
        ({"listeners": [5]}, "listeners is a list of functions"),
        ({"storage": 5}, "storage is a file name, a database URL or a Storage; got int"),
    ],
)
def test_an_option_of_another_kind_is_refused_in_words(options, message):
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(40, 3)), rng.integers(0, 2, 40)) for _ in range(3)]
    quick = {"model": "linear", "budget": 4, "steps": 2, "reference": "none"}
    with pytest.raises(InputError, match=message):
        fit({"a": rows[0], "b": rows[1]}, rows[2], **{**quick, **options})


@pytest.mark.parametrize(
    "rows", [[["a", "b", "c"]], [[1.0], [1.0, 2.0]], [[2**2000] * 3], [[object()] * 3], None]
)
def test_what_is_no_table_of_numbers_is_not_predicted(rows):
    rng = np.random.default_rng(0)
    known = [(rng.normal(size=(40, 3)), rng.integers(0, 2, 40)) for _ in range(2)]
    result = fit({"a": known[0]}, known[1], model="linear", budget=4, steps=2, reference="none")
    with pytest.raises(InputError, match="these rows are no table of numbers|rows of shape"):
        result.predict(rows)


def test_spans_of_time_are_no_features():
    x = np.full((40, 3), np.timedelta64(5, "s"))
    with pytest.raises(DataError, match="features must be numbers, not timedelta64"):
        fit({"a": (x, np.arange(40) % 2)}, (x, np.arange(40) % 2), model="linear", budget=4)


def test_a_fit_of_arrays_loads_only_the_libraries_of_its_own_model() -> None:
    code = (
        "import sys; from mixtree import fit; from mixtree.data.synthetic import synthetic;"
        "fit(synthetic(rows=50).sources, model='linear', budget=20, steps=5);"
        "unused = {'sklearn', 'lightgbm', 'xgboost', 'torch', 'optuna', 'mixtree.trainers.boosting',"
        " 'mixtree.policies.peers.regmix'};"
        "print(*sorted(unused & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == []


def test_listeners_that_are_no_list_are_refused() -> None:
    with pytest.raises(InputError, match="listeners is a list of functions"):
        fit(synthetic(rows=50).sources, model="linear", budget=4, steps=1, listeners=5)
