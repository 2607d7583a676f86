import json
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
from mixtree.metrics import AUROC

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
    monkeypatch.setattr(Experiment, "algorithms", lambda self: ["mixmatch-bisect", "validation"])


def test_a_step_size_that_does_not_train_is_replaced(tmp_path):
    chosen = tuning.step_size(TOY, tmp_path, crew=Crew())
    best = min(chosen.losses, key=chosen.losses.get)
    assert chosen.chosen == float(best) > 1e-6
    assert chosen.losses["1e-06"] == pytest.approx(chosen.start, rel=1e-3)
    assert tuning.step_size(TOY, tmp_path, crew=Crew()) == chosen  # from the file


def test_the_authors_step_size_is_kept_where_the_network_trains(tmp_path):
    experiment = replace(TOY, authors=Authors(5.0, 0.8, 0.09))
    assert tuning.step_size(experiment, tmp_path, crew=Crew()).chosen == 0.09


def test_only_what_an_algorithm_has_is_tuned(few, tmp_path):
    found = tuning.recipes(TOY, "tuned", tmp_path, crew=Crew(), trials=TRIALS)
    assert set(found["mixmatch-bisect"].options) == {"nu", "rho"}
    assert found["validation"].options == {}
    assert found["validation"].steps == TOY.steps
    stored = json.loads((tmp_path / "tuned-toy.json").read_text(encoding="utf-8"))
    assert stored["trials"] == TRIALS
    assert set(stored["algorithms"]) == {"mixmatch-bisect", "validation"}


def test_a_stored_tuning_is_not_done_again(few, tmp_path, monkeypatch):
    found = tuning.recipes(TOY, "tuned", tmp_path, crew=Crew(), trials=TRIALS)
    monkeypatch.setattr(tuning, "tune", None)
    assert tuning.recipes(TOY, "tuned", tmp_path, crew=Crew(), trials=TRIALS) == found


def test_the_default_setting_is_the_first_trial(few):
    _, best = tuning.tune(TOY, "mixmatch-bisect", BASE, 1)
    assert best["trial"] == 0
    assert best["parameters"] == {"lr": 0.05, "steps": 3, "nu": 0.5, "rho": default_rho(2)}


def test_tuning_never_sees_a_test_row(few):
    poisoned = replace(TOY, load=poisoned_problem)
    for algorithm in ("mixmatch-bisect", "validation"):
        assert tuning.tune(poisoned, algorithm, BASE, TRIALS) == tuning.tune(TOY, algorithm, BASE, TRIALS)


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
    tuning._probe(replace(TOY, load=load), tuning.FIRST_SEED)
    assert min(seen) >= tuning.FIRST_SEED


def test_a_missing_optuna_is_explained(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'mixtree\[tuning\]'"):
        tuning.tune(TOY, "uniform", BASE, 1)
