import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from mixtree.bounds import default_rho
from mixtree.data.sources import Rows
from mixtree.data.synthetic import synthetic
from mixtree.errors import MissingExtraError
from mixtree.experiments import tuning
from mixtree.experiments.parallel import Crew
from mixtree.experiments.reproduce import Recipe
from mixtree.experiments.specs import Authors, Experiment
from mixtree.metrics import AUROC, LOG_LOSS, MAE_EXP

TRIALS = 3


def toy_problem(seed):
    return synthetic(sources=2, rows=60, validation=30, test=60, classes=2, seed=seed)


def poisoned_problem(seed):
    problem = toy_problem(seed)
    return replace(problem, test=Rows(problem.test.x * 1000, 1 - problem.test.y))


TOY = Experiment(
    "toy",
    "Toy?",
    toy_problem,
    toy_problem(0).sources.names,
    known=False,
    batch=10,
    steps=3,
    budget=24,
    metric=AUROC,
    score="AUROC",
    tolerance=0.005,
    claims=(),
    authors=Authors(5.0, 0.8, 1e-6),
)
BASE = Recipe(0.05, 3)


@pytest.fixture
def few(monkeypatch):
    """Two algorithms and one split are enough to see how tuning works."""
    monkeypatch.setattr(tuning, "TUNING_SPLITS", 1)
    names = ["mixmatch-bisect", "uniform", "validation"]
    monkeypatch.setattr(Experiment, "algorithms", lambda self: names)


def test_every_setting_has_its_step_sizes(few, tmp_path):
    authors = tuning.recipes(TOY, "authors", tmp_path, crew=Crew())
    assert {each.lr for each in authors.values()} == {1e-6}
    shared = tuning.recipes(TOY, "shared", tmp_path, crew=Crew())
    sweeps = tuning.stored_sweeps(TOY, tmp_path)
    assert set(sweeps) == {"uniform"}  # the others' are not needed
    assert {each.lr for each in shared.values()} == {sweeps["uniform"].chosen}
    own = tuning.recipes(TOY, "own", tmp_path, crew=Crew())
    sweeps = tuning.stored_sweeps(TOY, tmp_path)
    assert {name: each.lr for name, each in own.items()} == {name: sweeps[name].chosen for name in own}
    assert own["uniform"] == shared["uniform"]


def test_a_stored_sweep_is_not_done_again(few, tmp_path, monkeypatch):
    found = tuning.recipes(TOY, "own", tmp_path, crew=Crew())
    monkeypatch.setattr(tuning, "sweep_of", None)
    assert tuning.recipes(TOY, "own", tmp_path, crew=Crew()) == found


def sweep_with(monkeypatch, score, **changes):
    """A sweep whose scores are a function of η; None: a model diverged."""
    seen = []

    def point(experiment, algorithm, lr, halves):
        seen.append(lr)
        value = score(lr)
        return tuning.Point(lr, math.nan if value is None else value, 0.0, 0, 0, 0, 0, int(value is None))

    monkeypatch.setattr(tuning, "_point", point)
    monkeypatch.setattr(tuning, "TUNING_SPLITS", 0)
    return tuning.sweep_of(replace(TOY, **changes), "uniform"), seen


def test_a_sweep_goes_up_until_the_best_is_inside(monkeypatch):
    sweep, _ = sweep_with(monkeypatch, lambda lr: -abs(np.log(lr / 22)))
    assert (sweep.chosen, sweep.warning) == (pytest.approx(0.81 * 27), "")
    assert max(point.lr for point in sweep.points) == pytest.approx(0.81 * 81)
    steps = np.array([point.lr for point in sweep.points])
    assert steps[1:] / steps[:-1] == pytest.approx(3, rel=1e-4)


def test_a_sweep_goes_down_too_where_lower_is_better(monkeypatch):
    sweep, _ = sweep_with(monkeypatch, lambda lr: abs(np.log(lr / 0.0004)), metric=LOG_LOSS)
    assert (sweep.chosen, sweep.warning) == (pytest.approx(0.01 / 27, rel=1e-4), "")
    assert sweep.points[0].lr < sweep.chosen


def test_a_sweep_ends_where_the_next_step_size_diverges(monkeypatch):
    sweep, seen = sweep_with(monkeypatch, lambda lr: lr if lr < 3 else None)
    assert (sweep.chosen, sweep.warning) == (2.43, "")
    assert sorted(seen) == [0.01, 0.03, 0.09, 0.27, 0.81, 2.43, 7.29]
    assert sweep.points[-1].diverged


def test_a_best_step_size_at_the_end_is_a_warning(monkeypatch):
    sweep, seen = sweep_with(monkeypatch, lambda lr: lr)
    assert len(seen) == tuning.MOST_STEP_SIZES
    assert sweep.chosen == max(seen)
    assert f"still better at the end of the sweep, {sweep.chosen:g}" in sweep.warning


def test_a_step_size_at_which_a_model_diverges_is_not_chosen():
    halves = tuning._tuning_halves(replace(TOY, network="log-price", load=price_problem, metric=MAE_EXP))
    experiment = replace(TOY, network="log-price", metric=MAE_EXP)
    assert tuning._point(experiment, "uniform", 1e30, halves).diverged
    assert not tuning._point(experiment, "uniform", 1e-3, halves).diverged


def price_problem(seed):
    return synthetic(sources=2, rows=60, validation=30, test=60, classes=0, seed=seed)


def test_a_point_tells_whether_the_network_trains():
    halves = tuning._tuning_halves(TOY)
    still, trained = (tuning._point(TOY, "uniform", lr, halves) for lr in (1e-6, 0.2))
    assert trained.fitted < trained.fitted_constant < still.fitted
    assert still.fitted_constant == trained.fitted_constant
    assert trained.score > still.score


def test_halves_of_one_class_score_nothing(monkeypatch):
    def load(seed):
        problem = toy_problem(seed)
        sources = problem.sources
        y = np.zeros_like(sources.validation.y)
        y[0] = 1
        return replace(problem, sources=replace(sources, validation=replace(sources.validation, y=y)))

    monkeypatch.setattr(tuning, "TUNING_SPLITS", 2)
    assert len(tuning._tuning_halves(replace(TOY, load=load))) == 2


def test_only_what_an_algorithm_has_is_tuned(few, tmp_path):
    found = tuning.recipes(TOY, "optuna", tmp_path, crew=Crew(), trials=TRIALS)
    assert set(found["mixmatch-bisect"].options) == {"nu", "rho"}
    assert found["validation"].options == {}
    assert found["validation"].steps == TOY.steps
    stored = json.loads((tmp_path / "tuned-toy.json").read_text(encoding="utf-8"))
    assert stored["trials"] == TRIALS
    assert set(stored["algorithms"]) == {"mixmatch-bisect", "uniform", "validation"}


def test_a_stored_tuning_is_not_done_again(few, tmp_path, monkeypatch):
    found = tuning.recipes(TOY, "optuna", tmp_path, crew=Crew(), trials=TRIALS)
    monkeypatch.setattr(tuning, "tune", None)
    assert tuning.recipes(TOY, "optuna", tmp_path, crew=Crew(), trials=TRIALS) == found


def test_the_default_setting_is_the_first_trial(few):
    _, best = tuning.tune(TOY, "mixmatch-bisect", BASE, 1)
    assert best["trial"] == 0
    assert best["parameters"] == {"lr": 0.05, "steps": 3, "nu": 0.5, "rho": default_rho(2)}


def test_tuning_never_sees_a_test_row(few):
    poisoned = replace(TOY, load=poisoned_problem)
    for algorithm in ("mixmatch-bisect", "validation"):
        assert tuning.tune(poisoned, algorithm, BASE, TRIALS) == tuning.tune(TOY, algorithm, BASE, TRIALS)
        assert tuning.sweep_of(poisoned, algorithm) == tuning.sweep_of(TOY, algorithm)


def test_tuning_scores_rows_that_the_run_did_not_see():
    problem = toy_problem(0)
    (one, held), (two, other) = tuning._halves(problem, 0)
    assert np.array_equal(one.sources.validation.x, other.x)
    assert np.array_equal(two.sources.validation.x, held.x)
    together = np.concatenate([held.x, other.x])
    assert sorted(map(tuple, together)) == sorted(map(tuple, problem.sources.validation.x))
    assert abs(int(held.y.sum()) - int(other.y.sum())) <= 1
    assert one.test is None


def test_settings_are_chosen_on_splits_that_no_repeat_uses(few, monkeypatch):
    seen = []

    def load(seed):
        seen.append(seed)
        return toy_problem(seed)

    tuning.tune(replace(TOY, load=load), "validation", BASE, 1)
    tuning.sweep_of(replace(TOY, load=load), "uniform")
    assert min(seen) >= tuning.FIRST_SEED


def test_a_missing_optuna_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mixtree\[tuning\]'"):
        tuning.tune(TOY, "uniform", BASE, 1)
