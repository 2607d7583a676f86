from __future__ import annotations

import json
import pickle
import sys

import numpy as np
import pytest
from scipy import sparse

from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError, MissingExtraError, TrainingError
from mixtree.partition import PARTITIONS
from mixtree.testing import check_trainer
from mixtree.trainer import Job
from mixtree.trainers.boosting import LightGBMTrainer, XGBoostTrainer
from mixtree.tree_search import TreeSearch

lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

EVEN = np.array([0.5, 0.5])
SMALL = {LightGBMTrainer: {"num_leaves": 4, "min_data_in_leaf": 5}, XGBoostTrainer: {"max_depth": 2}}
RANDOM = {
    LightGBMTrainer: {
        **SMALL[LightGBMTrainer],
        "feature_fraction": 0.5,
        "bagging_fraction": 0.5,
        "bagging_freq": 1,
    },
    XGBoostTrainer: {**SMALL[XGBoostTrainer], "subsample": 0.5, "colsample_bytree": 0.5},
}
both = pytest.mark.parametrize("kind", [LightGBMTrainer, XGBoostTrainer])


def problem(classes: int = 2):
    return synthetic(sources=2, rows=150, validation=60, test=10, features=5, classes=classes, seed=3).sources


def make(kind, sources=None, params=None, **options):
    options = {"sample_size": 80, **options}
    return kind(sources or problem(), SMALL[kind] if params is None else params, **options)


def after(trainer, steps: int = 5, *, mixture=EVEN, seed: int = 1, lr_scale: float = 1.0):
    return trainer.train([Job(trainer.init(0), np.asarray(mixture), steps, seed, lr_scale)])[0]


def as_sparse(sources: Sources) -> Sources:
    parts = [Rows(sparse.csr_matrix(part.x), part.y) for part in (*sources.rows, sources.validation)]
    return Sources(sources.names, tuple(parts[:-1]), parts[-1], sources.classes)


@both
@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("replacement", [True, False])
def test_the_promises_of_a_trainer(kind, classes, replacement):
    trainer = make(kind, problem(classes), RANDOM[kind], replacement=replacement)
    check_trainer(trainer, sources=2, steps=3, rows=60)


@both
def test_sparse_rows_keep_the_promises_too(kind):
    check_trainer(make(kind, as_sparse(problem(3))), sources=2, steps=2, rows=60)


@both
@pytest.mark.parametrize("classes", [0, 2, 3])
def test_training_lowers_the_loss(kind, classes):
    sources = problem(classes)
    seen = Sources(sources.names, sources.rows, sources.rows[0], classes)
    trainer = make(kind, seen, sample_size=200)
    fresh, trained = trainer.evaluate([trainer.init(0), after(trainer, 30)])
    assert trained.value < 0.9 * fresh.value
    shape = (150, classes) if classes else (150,)
    assert fresh.predictions.shape == trained.predictions.shape == shape
    if classes:
        np.testing.assert_allclose(fresh.predictions, 1 / classes)
        np.testing.assert_allclose(trained.predictions.sum(axis=1), 1.0, rtol=1e-6)
        y = trainer.sources.validation.y
        right = trained.predictions[np.arange(150), y]
        assert np.isclose(trained.value, -np.log(right).mean())


def test_a_lightgbm_round_is_init_model_on_the_drawn_rows():
    trainer = make(LightGBMTrainer)
    rows, _ = trainer.sampler.draw(EVEN, 3 * 80, seed=1, cursor=trainer.init(0).cursor)
    params = {**SMALL[LightGBMTrainer], "objective": "binary", "verbosity": -1, "num_threads": 1}
    x, y = trainer.rows.x, trainer.rows.y
    bins = lightgbm.Dataset(np.concatenate([part.x for part in trainer.sources.rows]), params=params)
    booster = None
    for sample in rows.reshape(3, 80):
        index, counts = np.unique(sample, return_counts=True)
        data = lightgbm.Dataset(x[index], y[index], weight=counts, reference=bins, params=params)
        booster = lightgbm.train(params, data, 1, init_model=booster)
    np.testing.assert_allclose(trainer.predict(after(trainer, 3), x)[:, 1], booster.predict(x), rtol=1e-6)


def test_an_xgboost_round_is_xgb_model_on_the_drawn_rows():
    trainer = make(XGBoostTrainer)
    rows, _ = trainer.sampler.draw(EVEN, 3 * 80, seed=1, cursor=trainer.init(0).cursor)
    params = {**SMALL[XGBoostTrainer], "objective": "binary:logistic", "eta": 0.1, "nthread": 1}
    x, y = trainer.rows.x, trainer.rows.y
    booster = None
    for sample in rows.reshape(3, 80):
        data = xgboost.DMatrix(x[sample], y[sample])  # drawn twice: there twice
        booster = xgboost.train(params, data, 1, xgb_model=booster)
    expected = booster.predict(xgboost.DMatrix(x))
    np.testing.assert_allclose(trainer.predict(after(trainer, 3), x)[:, 1], expected, rtol=1e-5)


@both
def test_two_jobs_are_one_long_model(kind):
    trainer = make(kind)
    first = after(trainer, 4)
    second = trainer.train([Job(first, EVEN, 3, 2)])[0]
    booster = trainer.booster(second)
    rounds = booster.num_trees() if kind is LightGBMTrainer else booster.num_boosted_rounds()
    assert rounds == 7
    np.testing.assert_allclose(trainer.epochs(second)[:2].sum() * 150, 7 * 80)


@both
def test_rounds_of_a_job_subsample_other_columns(kind):
    params = {**RANDOM[kind], ("feature_fraction" if kind is LightGBMTrainer else "colsample_bytree"): 0.2}
    trainer = make(kind, params=params)
    booster = trainer.booster(after(trainer, 12))
    used = booster.feature_importance() > 0 if kind is LightGBMTrainer else booster.get_score()
    assert np.sum(used) > 1 if kind is LightGBMTrainer else len(used) > 1


@both
def test_lr_scale_scales_the_learning_rate(kind):
    trainer, slower = make(kind), make(kind, learning_rate=0.025)
    x = trainer.rows.x
    np.testing.assert_array_equal(
        trainer.predict(after(trainer, lr_scale=0.25), x), slower.predict(after(slower), x)
    )
    assert not np.array_equal(trainer.predict(after(trainer), x), slower.predict(after(slower), x))
    # The scale is the job's alone.
    twice = trainer.train([Job(after(trainer, lr_scale=0.25), EVEN, 2, 5)])[0]
    slow = trainer.train([Job(after(trainer, lr_scale=0.25), EVEN, 2, 5, 0.25)])[0]
    assert not np.array_equal(trainer.predict(twice, x), trainer.predict(slow, x))


@both
@pytest.mark.parametrize("classes", [2, 3])
def test_a_class_that_the_first_sample_lacks_is_learned_later(kind, classes):
    sources = problem(classes)
    one_class = Rows(sources.rows[0].x, np.zeros(len(sources.rows[0]), dtype=np.int64))
    trainer = make(kind, Sources(sources.names, (one_class, sources.rows[1]), sources.validation, classes))
    first = after(trainer, 2, mixture=[1.0, 0.0])
    later = trainer.train([Job(first, np.array([0.0, 1.0]), 30, 2)])[0]
    values = [each.value for each in trainer.evaluate([first, later])]
    assert np.isfinite(values).all()
    assert values[1] < np.log(classes)


@both
def test_row_weights_count(kind):
    sources = problem()
    silenced = [Rows(part.x, part.y, np.where(part.y == 1, 1.0, 1e-6)) for part in sources.rows]
    trainer = make(kind, Sources(sources.names, tuple(silenced), sources.validation, 2))
    plain = make(kind, sources)
    assert trainer.predict(after(trainer), trainer.rows.x)[:, 1].mean() > 0.6
    assert plain.predict(after(plain), plain.rows.x)[:, 1].mean() < 0.6


def test_bins_come_from_the_training_sources_alone():
    sources = problem()
    far = Sources(sources.names, sources.rows, Rows(sources.validation.x * 9, sources.validation.y), 2)
    near, moved = make(LightGBMTrainer, sources), make(LightGBMTrainer, far)
    x = sources.rows[0].x
    np.testing.assert_array_equal(near.predict(after(near), x), moved.predict(after(moved), x))


@both
def test_target_rows_are_one_more_source(kind):
    trainer = make(kind)
    state = after(trainer, 3, mixture=[0.0, 0.0, 1.0])
    np.testing.assert_allclose(trainer.epochs(state), [0, 0, 4])
    assert trainer.evaluate([state])[0].value < trainer.evaluate([trainer.init(0)])[0].value


@both
def test_a_study_runs(kind):
    bisect = PARTITIONS["bisect"]
    trainer = make(kind)
    result = run(TreeSearch(bisect.root(2), bisect.split, budget=28, steps=4), trainer)
    assert result.value < np.log(2)


@both
def test_settings_that_cannot_work_are_refused(kind):
    with pytest.raises(InputError, match="learning rate must be"):
        make(kind, learning_rate=0.0)
    with pytest.raises(InputError, match="at least 1 row"):
        make(kind, sample_size=0)
    with pytest.raises(InputError, match="learning_rate=…, not as the parameter 'eta'"):
        make(kind, params={"eta": 0.1})
    with pytest.raises(InputError, match="objective"):
        make(kind, params={"objective": "binary"})
    for rounds in ("n_estimators", "num_boost_round"):
        with pytest.raises(InputError, match=f"the budget says how many there are: leave {rounds} out"):
            make(kind, params={rounds: 5})
    name = "boosting" if kind is LightGBMTrainer else "booster"
    with pytest.raises(InputError, match="dart.*cannot be continued"):
        make(kind, params={name: "dart"})
    bad = make(kind, problem(0), {"objective": "no such objective"})
    with pytest.raises(TrainingError, match=f"{bad.library} failed"):
        after(bad)


@both
def test_another_objective_for_a_regression(kind):
    name = {LightGBMTrainer: "regression_l1", XGBoostTrainer: "reg:absoluteerror"}[kind]
    trainer = make(kind, problem(0), {**SMALL[kind], "objective": name})
    check_trainer(trainer, sources=2, steps=2, rows=60)


@both
def test_a_missing_package_says_what_to_install(kind, monkeypatch):
    monkeypatch.setitem(sys.modules, kind.library, None)
    with pytest.raises(MissingExtraError, match=r"mixtree\[boosting\]"):
        make(kind)


@both
def test_describe_is_plain_data(kind):
    trainer = make(kind, learning_rate=0.3)
    description = json.loads(json.dumps(trainer.describe()))
    assert description["learning_rate"] == 0.3
    assert description["sample_size"] == 80
    assert make(kind, sample_size=None).sample_size == 300


@both
def test_nothing_is_printed(kind, capfd):
    after(make(kind, sample_size=3), 2)
    assert capfd.readouterr() == ("", "")


@both
@pytest.mark.parametrize("classes", [0, 3])
def test_a_pickled_trainer_goes_on_like_the_original(kind, classes):
    trainer = make(kind, problem(classes), RANDOM[kind], learning_rate=0.3, replacement=False)
    copy = pickle.loads(pickle.dumps(trainer))
    assert copy.describe() == trainer.describe()
    assert after(copy, steps=3).model == after(trainer, steps=3).model
