"""A search of anybody's: what cannot be carried out is refused before it is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError, MixtreeError, SearchError
from mixtree.metrics import LOG_LOSS
from mixtree.partition import bisect, simplex_root
from mixtree.policies.registry import make_search, training_sources
from mixtree.policies.retries import AtRate
from mixtree.policies.setting import Setting
from mixtree.search import as_node
from mixtree.trainer import Evaluation
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree import Trial
from mixtree.tree_search import TreeSearch

EVEN = np.full(3, 1 / 3)


@pytest.fixture(scope="module")
def trainer() -> MlpTrainer:
    return MlpTrainer(synthetic(rows=60, validation=40, test=1).sources, hidden=())


class Listed:
    """Asks for these rounds."""

    budget = 100

    def __init__(self, *rounds: Any) -> None:
        self.rounds, self.nodes = list(rounds), []

    def ask(self) -> Any:
        return self.rounds.pop(0) if self.rounds else []

    def tell(self, trial: Any, evaluation: Any) -> None:
        self.nodes.append(as_node(trial, evaluation))

    def best(self) -> Any:
        return min(self.nodes, key=lambda node: node.value)


def test_what_is_right_is_carried_out(trainer: MlpTrainer) -> None:
    rounds = ([Trial((0,), EVEN, 5), Trial((1,), EVEN, 5)], (Trial((1, 0), EVEN, np.int64(4)),))
    result = run(Listed(*rounds), trainer)
    assert sum(result.spent.values()) == 14
    assert result.warnings == ()


@pytest.mark.parametrize(
    ("rounds", "message"),
    [
        ([[Trial((0,), EVEN, 60)], [Trial((1,), EVEN, 60)]], "60 more steps: 60 of its 100 are spent"),
        ([[Trial((0,), np.array([1.5, -0.5, 0.0]), 5)]], "weight 1 is -0.5"),
        ([[Trial((0,), 2 * EVEN, 5)]], "must sum to 1"),
        ([[Trial((0,), np.array([0.5, 0.5]), 5)]], "a mixture of 2 sources .* the trainer has 3"),
        ([[Trial((0,), EVEN, 0)]], "with 0 steps"),
        ([[Trial((0,), EVEN, 2.0)]], "with 2.0 steps"),  # type: ignore[arg-type]
        ([[Trial((np.int64(0),), EVEN, 2)]], "a tuple of plain whole numbers"),
        ([[Trial((0,), EVEN.tolist(), 2)]], "a mixture is a numpy array, not a list"),  # type: ignore[arg-type]
        ([[Trial((0,), EVEN, 2, lr_scale="1")]], "step size factor of '1'"),  # type: ignore[arg-type]
        ([[Trial((0,), EVEN, 2, lr_scale=0.0)]], "step size factor of 0.0"),
        ([[Trial((0,), EVEN, 2), Trial((0,), EVEN, 2)]], r"asked for node \(0,\) twice"),
        ([[Trial((0,), EVEN, 2)], [Trial((0,), EVEN, 2)]], r"asked for node \(0,\) twice"),
        ([[Trial((0, 1), EVEN, 2)]], r"its parent \(0,\) was not asked for"),
        (["nonsense"], "must return a list of Trial; got 'nonsense'"),
        ([[(0,)]], "must return a list of Trial"),
    ],
)
def test_what_no_study_can_carry_out_is_refused(trainer: MlpTrainer, rounds: Any, message: str) -> None:
    with pytest.raises((SearchError, InputError), match=message):
        run(Listed(*rounds), trainer)


def test_training_on_the_validation_rows_is_told(trainer: MlpTrainer) -> None:
    result = run(Listed([Trial((0,), np.array([0.3, 0.3, 0.3, 0.1]), 5)]), trainer)
    assert "trains on the target's own validation rows" in result.warnings[0]


def test_a_tree_search_is_for_as_many_sources_as_there_are(trainer: MlpTrainer) -> None:
    for sources in (2, 4):
        with pytest.raises(InputError, match=f"of {sources} sources .* the trainer has 3"):
            run(TreeSearch(simplex_root(sources), bisect, budget=60, steps=5), trainer)


def test_a_search_is_run_once(trainer: MlpTrainer) -> None:
    search = TreeSearch(simplex_root(3), bisect, budget=60, steps=5)
    run(search, trainer)
    with pytest.raises(InputError, match="has been run already .*make a new one"):
        run(search, trainer)


def test_a_long_name_is_fine_where_nothing_is_stored(trainer: MlpTrainer) -> None:
    assert run(Listed([Trial((0,), EVEN, 5)]), trainer, study="x" * 300).study == "x" * 300


def test_a_policy_of_ours_knows_what_it_does_with_the_target_s_rows_at_any_step_size() -> None:
    problem = synthetic(rows=60, validation=40, test=1).sources
    setting = Setting(problem.names, problem.sizes, 20, 10, data=problem, metric=LOG_LOSS)
    for search in (make_search("validation", setting), AtRate(make_search("validation", setting), 3.0)):
        assert run(search, MlpTrainer(training_sources("validation", setting), hidden=())).warnings == ()


class Odd:
    """A trainer whose methods return what they are told to."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def init(self, seed: int) -> float:
        return 0.0

    def train(self, jobs: Any) -> Any:
        return self.given.get("train", [0.0] * len(jobs))

    def evaluate(self, states: Any) -> Any:
        return self.given.get("evaluate", [Evaluation(1.0)] * len(states))

    def save(self, state: Any) -> Any:
        return self.given.get("save", {"a": np.zeros(1)})

    def load(self, arrays: Any) -> float:
        return 0.0


def odd_run(tmp_path: Path, **given: Any) -> Any:
    return run(Listed([Trial((0,), EVEN, 5)]), Odd(**given), storage=tmp_path / "s.db")


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.array(1.0), float("inf")])
def test_a_trainer_may_score_with_any_number(tmp_path: Path, value: Any) -> None:
    assert odd_run(tmp_path, evaluate=[Evaluation(value)]).value == value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": None}, "Odd.train must return a list; got NoneType"),
        ({"train": "x"}, "Odd.train must return a list; got str"),
        ({"train": iter([0.0])}, "Odd.train must return a list; got list_iterator"),
        ({"evaluate": None}, "Odd.evaluate must return a list; got NoneType"),
        ({"evaluate": "x"}, "Odd.evaluate must return a list; got str"),
        ({"evaluate": [None]}, "Odd.evaluate must return an Evaluation per model.* got None"),
        ({"evaluate": [0.5]}, "Odd.evaluate must return an Evaluation per model.* got 0.5"),
        ({"evaluate": [Evaluation(None)]}, "whose value is a number; got None"),
        ({"evaluate": [Evaluation("low")]}, "whose value is a number; got 'low'"),
        ({"evaluate": [Evaluation(1j)]}, "whose value is a number; got 1j"),
        ({"save": None}, "a model is saved as {name: array}.* returned None"),
        ({"save": "x"}, "a model is saved as {name: array}.* returned 'x'"),
        ({"save": {"a": [1]}}, "a model is saved as {name: array}"),
        ({"save": {1: np.zeros(1)}}, "a model is saved as {name: array}"),
        ({"save": {"\udcff": np.zeros(1)}}, "a model is saved as {name: array}"),
    ],
)
def test_what_a_trainer_returns_is_looked_at(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(MixtreeError, match=message):
        odd_run(tmp_path, **given)


def test_names_that_no_file_can_hold_leave_no_study(tmp_path: Path) -> None:
    odd = Odd()
    odd.names = ["a", "b", "\udcff"]  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="must be text that UTF-8 can hold"):
        run(Listed([Trial((0,), EVEN, 5)]), odd, storage=tmp_path / "s.db")
    assert not (tmp_path / "s.db").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"storage": 3}, "storage is a file name.* got int"),
        ({"listeners": 3}, "listeners is a list.* got int"),
    ],
)
def test_arguments_of_a_wrong_kind(trainer: MlpTrainer, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(Listed([Trial((0,), EVEN, 5)]), trainer, **given)
