"""What holds for every peer."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixtree.data.sources import Problem
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError, TrainingError
from mixtree.policies.peers import PEERS
from mixtree.policies.peers.base import Peer
from mixtree.policies.registry import make_search
from mixtree.policies.setting import Setting
from mixtree.search import Search
from mixtree.seeds import derive_seed
from mixtree.testing import check_search
from mixtree.trainer import Evaluation
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree import Trial

for package in ("optuna", "torch", "PyXAB"):
    pytest.importorskip(package, reason=f"{package} is not installed")

BLIND = ("group-dro", "group-dro+decay", "target-source", "target-source+decay")
"""They do not look for the target's mixture."""
SEEKING = [name for name in PEERS if name not in BLIND]
SCRIPTED = [name for name in PEERS if not name.startswith("target-source")]
QUICK = [name for name in SCRIPTED if not name.startswith("optuna-gp")]
"""Without Gaussian processes, which differ from the other sampler of the same class in their time alone."""


class WithPredictions:
    """A search that is told random predictions, which depend on the trial alone."""

    def __init__(self, search: Search, rows: int) -> None:
        self.search, self.rows = search, rows
        self.ask, self.best = search.ask, search.best

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        random = np.random.default_rng(derive_seed(9, trial.path))
        value, error = evaluation.value, evaluation.standard_error
        self.search.tell(trial, Evaluation(value, error, random.random(self.rows)))


@pytest.mark.parametrize("budget", [1, 2, 3, 10, 47, 150])
@pytest.mark.parametrize("name", PEERS)
def test_every_peer_keeps_the_promises_of_a_search(name: str, budget: int, world: Any) -> None:
    setting = world.setting(budget)
    rows = len(world.data.validation)

    def make() -> Search:
        search = PEERS[name](setting)
        return WithPredictions(search, rows) if getattr(search, "uses_predictions", False) else search

    check_search(make, budget=budget)


@pytest.mark.parametrize("name", SEEKING)
def test_it_finds_a_better_mixture_than_uniform(name: str, world: Any) -> None:
    search = PEERS[name](world.setting())
    model = world.drive(search)
    assert world.distance(search.best().mixture) < 0.6
    uniform = world.drive(make_search("uniform+decay", world.setting()))
    assert world.loss(model) < 0.5 * world.loss(uniform)


@pytest.mark.parametrize("name", QUICK)
def test_the_returned_model_had_most_of_the_budget(name: str, world: Any) -> None:
    search = PEERS[name](world.setting())
    world.drive(search)
    lineage = search.tree.lineage(search.best().path)  # type: ignore[attr-defined]
    assert sum(node.steps for node in lineage) >= 360
    assert sum(trial.steps for trial in world.trials) == 600
    if name not in ("online", "group-dro"):
        assert search.best().lr_scale == 0.1
        assert 0.45 < lineage[-1].steps / 360 < 0.6


@pytest.mark.parametrize("name", SCRIPTED)
def test_one_source_is_trained_for_the_whole_budget(name: str, make_world: Any) -> None:
    world = make_world(alpha=np.ones(1))
    world.drive(PEERS[name](world.setting(100)))
    assert sum(trial.steps for trial in world.trials) == 100
    assert [trial.mixture.tolist() for trial in world.trials] == [[1.0]] * len(world.trials)


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_source_on_which_models_diverge_does_no_harm(name: str, make_world: Any) -> None:
    world = make_world(alpha=np.array([0.1, 0.6, 0.3]), fatal=0)
    search = PEERS[name](world.setting())
    world.drive(search)
    assert np.isfinite(search.best().value)
    assert search.best().mixture[0] <= 0.5
    assert search.best().phase in ("decay", "final", "train")


@pytest.mark.parametrize("name", SCRIPTED)
def test_all_diverged_is_said_plainly(name: str, world: Any) -> None:
    search = PEERS[name](world.setting(40))
    while trials := search.ask():
        for trial in trials:
            search.tell(trial, Evaluation(float("nan")))
    with pytest.raises(TrainingError, match="diverged"):
        search.best()


@pytest.mark.parametrize("name", SCRIPTED)
def test_bounds_on_weights_are_refused(name: str, world: Any) -> None:
    with pytest.raises(InputError, match="minimum"):
        PEERS[name](world.setting(minimum=[0.1, 0.1, 0.1]))


def test_the_target_is_one_more_source(world: Any) -> None:
    search = PEERS["target-source+decay"](world.setting(100))
    trials: list[Trial] = []
    while asked := search.ask():
        trials += asked
        search.tell(asked[0], Evaluation(1.0))
    assert [trial.mixture.tolist() for trial in trials] == [[0.25] * 4] * 2
    assert [(trial.steps, trial.lr_scale) for trial in trials] == [(50, 1.0), (50, 0.1)]


@cache
def _problem() -> tuple[Problem, MlpTrainer]:
    problem = synthetic(rows=600, validation=300, test=2000, alpha=[0.75, 0.15, 0.1], seed=31)
    return problem, MlpTrainer(problem.sources, hidden=(), lr=0.1, batch_size=20)


def _setting(budget: int = 600) -> Setting:
    sources = _problem()[0].sources
    return Setting(sources.names, sources.sizes, budget, 15, seed=2, data=sources)


def _test_loss(search: Search) -> float:
    problem, trainer = _problem()
    result = run(search, trainer, seed=4)
    assert result.warnings == ()  # no model was dropped that was needed later
    assert sum(result.spent.values()) <= 600
    seen = trainer.predict(result.state, problem.test.x)
    return float(-np.log(seen[np.arange(len(seen)), problem.test.y]).mean())


@pytest.mark.parametrize("name", [*SEEKING, "target-source+decay"])
def test_on_a_logistic_problem_it_is_no_worse_than_uniform(name: str) -> None:
    uniform = _test_loss(make_search("uniform+decay", _setting()))
    assert _test_loss(PEERS[name](_setting())) < uniform + 0.005


@pytest.mark.parametrize("name", ["optuna-tpe-warm", "pbt", "online+decay", "group-dro", "mixmin"])
def test_a_stored_study_is_replayed_exactly(name: str, tmp_path: Path) -> None:
    trainer = _problem()[1]
    first = run(PEERS[name](_setting(150)), trainer, storage=tmp_path / "s.db", study=name)
    again = run(PEERS[name](_setting(150)), trainer, storage=tmp_path / "s.db", study=name, resume=True)
    assert again.node.path == first.node.path
    assert again.value == first.value
    assert np.array_equal(again.mixture, first.mixture)
    assert list(again.tree) == list(first.tree)


@pytest.mark.parametrize("name", SCRIPTED)
def test_settings_are_described_as_plain_data(name: str, world: Any) -> None:
    one, two = (PEERS[name](world.setting(seed=seed)) for seed in (1, 2))
    assert isinstance(one, Peer) and isinstance(two, Peer)
    assert one.describe() == {**two.describe(), "seed": 1}
    assert one.describe()["division"]["search"] == 0.4
