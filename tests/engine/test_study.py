from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from mixtree.data.sources import TARGET, Sources
from mixtree.engine.study import Result, run
from mixtree.errors import InputError, TrainingError
from mixtree.events import Event, NodeDiverged, NodeEvaluated, RoundAsked, StudyFinished, StudyStarted
from mixtree.fitting.pipeline import load
from mixtree.metrics import as_metric
from mixtree.partition import PARTITIONS
from mixtree.policies.commit import then_commit
from mixtree.policies.fixed import fixed, uniform, validation
from mixtree.policies.registry import make_search, training_sources
from mixtree.policies.setting import Setting
from mixtree.search import SEGMENTS
from mixtree.storage.sql import open_storage
from mixtree.trainer import Evaluation, Job
from mixtree.trainers.mlp import MlpTrainer
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.tree import Node, Path, Trial
from mixtree.tree_search import TreeSearch

GOAL = np.array([0.7, 0.2, 0.1])


class Model:
    """A model that remembers all it was trained on."""

    def __init__(self, seed: int, jobs: tuple[Job[Any], ...] = ()) -> None:
        self.seed, self.jobs = seed, jobs


class Recorder:
    """A trainer without mathematics: a model's value is a function of its last mixture."""

    def __init__(self, value: Callable[[Any], float] | None = None) -> None:
        self.value = value or (lambda alpha: float(np.abs(alpha - GOAL).sum()))
        self.alive: weakref.WeakSet[Model] = weakref.WeakSet()

    def _made(self, model: Model) -> Model:
        self.alive.add(model)
        return model

    def init(self, seed: int) -> Model:
        return self._made(Model(seed))

    def train(self, jobs: Sequence[Job[Model]]) -> list[Model]:
        return [
            self._made(Model(job.state.seed, (*job.state.jobs, replace(job, state=None)))) for job in jobs
        ]

    def evaluate(self, states: Sequence[Model]) -> list[Evaluation]:
        return [Evaluation(self.value(state.jobs[-1].mixture)) for state in states]

    def save(self, state: Model) -> dict[str, Any]:
        return {"seed": np.array([state.seed])}

    def load(self, arrays: Mapping[str, Any]) -> Model:
        return self._made(Model(int(arrays["seed"][0])))


def search(name: str = "bisect", *, sources: int = 3, commit: float = 0.0, **options: Any) -> Any:
    partitioning = PARTITIONS[name]
    lr, segments = options.pop("commit_lr", 0.1), options.pop("segments", SEGMENTS)
    mine = TreeSearch(
        partitioning.root(sources), partitioning.split, **{"budget": 400, "steps": 10, **options}
    )
    return then_commit(mine, commit, lr, segments=segments) if commit else mine


def flights_like(classes: int = 2) -> Sources:
    rng = np.random.default_rng(0)

    def part(n: int, shift: float) -> tuple[Any, Any]:
        x = rng.standard_normal((n, 3)) + shift
        score = x[:, 0] + shift * x[:, 1] + rng.logistic(size=n)
        return x, (score > 0).astype(int) if classes else score

    return Sources.from_dict(
        {"a": part(60, -0.5), "b": part(80, 0.0), "c": part(90, 0.5)}, part(50, 0.4), classes=classes
    )


# ------------------------------------------------------------------------- what a model is trained on


def test_a_node_continues_its_parents_model_on_its_own_mixture() -> None:
    result = run(search(), Recorder(), seed=4)
    lineage = result.tree.lineage(result.node.path)
    assert [job.steps for job in result.state.jobs] == [node.steps for node in lineage]
    for job, node in zip(result.state.jobs, lineage, strict=True):
        assert np.array_equal(job.mixture, node.mixture)
    assert result.trained_steps == 10 * (len(result.node.path) + 1)
    seeds = [job.seed for job in result.state.jobs]
    assert len(set(seeds)) == len(seeds)  # every node has its own stream


def test_a_root_that_is_not_trained_hands_its_children_the_initial_model() -> None:
    trainer = Recorder()
    result = run(search(train_root=False), trainer)
    assert [job.steps for job in result.state.jobs] == [10] * len(result.node.path)
    assert () not in result.tree


def test_commit_continues_the_returned_model_at_a_tenth_of_the_step_size() -> None:
    result = run(search(commit=0.5, segments=1), Recorder())
    assert [job.lr_scale for job in result.state.jobs] == [1.0] * (len(result.node.path)) + [0.1]
    assert np.array_equal(result.state.jobs[-1].mixture, result.state.jobs[-2].mixture)
    assert result.node.phase == "commit"
    assert result.rule == "commit of deepest"


def test_studies_that_are_compared_start_from_one_model() -> None:
    models = {run(uniform(3, budget=5), Recorder(), seed=seed, init_seed=9).state.seed for seed in range(3)}
    assert len(models) == 1
    jobs = [run(uniform(3, budget=5), Recorder(), seed=seed, init_seed=9).state.jobs for seed in range(3)]
    assert len({job.seed for (job,) in jobs}) == 3
    assert len({run(uniform(3, budget=5), Recorder(), seed=seed).state.seed for seed in range(3)}) == 3


# ------------------------------------------------------------------------------- where the steps went


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize("options", [{}, {"commit": 0.5}, {"train_root": False}, {"width": 3}, {"budget": 7}])
def test_the_result_says_where_every_step_went(name: str, options: dict[str, Any]) -> None:
    result = run(search(name, **options), Recorder())
    total = sum(result.spent.values())
    assert total == sum(node.steps for node in result.tree.values()) <= result.budget
    assert result.unspent == result.budget - total
    assert set(result.spent) <= {"root", "search", "commit"}
    if "commit" in options or result.budget == 7:
        assert result.unspent == 0
    assert result.value == result.node.value == result.tree[result.node.path].value
    assert np.array_equal(result.mixture, result.node.mixture)
    history = result.history
    assert [node for _, node in history] == list(result.tree.values())
    assert history[-1][0] == total
    assert [after - before for (before, _), (after, _) in zip(history, history[1:], strict=False)] == [
        node.steps for _, node in history[1:]
    ]


def test_the_studys_tree_is_the_searchs() -> None:
    mine = search(commit=0.25)
    result = run(mine, Recorder())
    assert list(result.tree) == list(mine.tree)
    assert [node.value for node in result.tree.values()] == [node.value for node in mine.tree.values()]


# ------------------------------------------------------------------------------------ reproducibility


def rows_of(result: Result[Any]) -> list[tuple[Any, ...]]:
    return [(*row.path, row.steps, row.value, row.mixture.tobytes()) for row in result.tree.values()]


@pytest.mark.parametrize("name", ["mixmatch-bisect+commit", "mixmatch-ch", "mixmatch-dp", "uniform+decay"])
def test_the_same_seed_gives_the_same_tree_bit_for_bit(name: str) -> None:
    sources = flights_like()

    def study(seed: int) -> Result[Any]:
        setting = Setting(sources.names, sources.sizes, budget=300, steps=10, seed=seed)
        return run(make_search(name, setting), ReferenceTrainer(sources, hidden=(4,)), seed=seed)

    first, second, other = study(1), study(1), study(2)
    assert rows_of(first) == rows_of(second)
    assert all(np.array_equal(a, b) for a, b in zip(first.state.weights, second.state.weights, strict=True))
    assert rows_of(first) != rows_of(other)


# ------------------------------------------------------------------------------------------- memory


@pytest.mark.parametrize("returns", ["deepest", "best"])
@pytest.mark.parametrize("width", [1, 4])
def test_models_that_nothing_needs_are_dropped(returns: Any, width: int) -> None:
    trainer = Recorder()
    mine = search(budget=3000, returns=returns, width=width, commit=0.5, nu=0.05)
    held: list[tuple[int, int]] = []

    def count(event: Event) -> None:
        if isinstance(event, RoundAsked):
            leaves = sum((*path, 0) not in mine.tree for path in mine.tree)
            held.append((len(trainer.alive) - 1, leaves))  # the initial model is not counted

    result = run(mine, trainer, listeners=[count])
    assert len(held) > 20
    assert all(models <= leaves + 1 for models, leaves in held)
    assert held[-1][0] < len(result.tree) - 10
    assert set(trainer.alive) == {result.state}


def test_a_chain_holds_one_model() -> None:
    trainer = Recorder()
    result = run(fixed(GOAL, budget=100, decay=True), trainer)
    assert set(trainer.alive) == {result.state}


def test_a_search_that_does_not_say_what_it_needs_keeps_all_models() -> None:
    class Silent:
        def __init__(self) -> None:
            self.inner = search(budget=200)

        def ask(self) -> list[Trial]:
            return self.inner.ask()

        def tell(self, trial: Trial, evaluation: Evaluation) -> None:
            self.inner.tell(trial, evaluation)

        def best(self) -> Node:
            return self.inner.tree[()]  # long expanded

    result = run(Silent(), Recorder())
    assert result.node.path == ()
    assert result.rule == "best"
    assert result.budget == sum(result.spent.values())


def test_a_growing_spread_may_call_an_older_model_back() -> None:
    # Under nu="auto" the rule "best" returns (0,) in the end, which was not the best when it was expanded.
    table = {(): 0.5, (0,): 0.55, (1,): 0.58, (0, 0): 0.59, (0, 1): 0.59, (1, 0): 0.62, (1, 1): 0.62}
    cells: dict[float, float] = {}
    probe = search(sources=2, budget=70)
    while trials := probe.ask():
        for trial in trials:
            cells[float(trial.mixture[0])] = table.get(trial.path, 1.0)
            probe.tell(trial, Evaluation(table.get(trial.path, 1.0)))
    options: dict[str, Any] = {"sources": 2, "budget": 70, "nu": "auto", "rho": 0.5, "returns": "best"}
    result = run(search(**options), Recorder(lambda alpha: cells.get(float(alpha[0]), 0.62)))
    assert result.node.path == (0,)


# ------------------------------------------------------------------------------------------- events


def test_events_come_in_order() -> None:
    events: list[Event] = []
    result = run(search(commit=0.5), Recorder(), study="mine", listeners=[events.append])
    assert isinstance(events[0], StudyStarted)
    assert (events[0].budget, events[0].spent) == (400, 0)
    finished = events[-1]
    assert isinstance(finished, StudyFinished)
    assert finished.best.path == result.node.path
    assert finished.spent == sum(result.spent.values())
    assert finished.reason
    assert {event.study for event in events} == {"mine"}
    waiting: list[Path] = []
    number, spent, best = 0, 0, inf
    for event in events[1:-1]:
        if isinstance(event, RoundAsked):
            assert not waiting  # the round before has ended
            number += 1
            assert event.number == number
            waiting = [trial.path for trial in event.trials]
        else:
            assert isinstance(event, NodeEvaluated)
            assert event.node.path == waiting.pop(0)
            spent, best = spent + event.node.steps, min(best, event.node.value)
            assert (event.spent, event.best) == (spent, best)
    assert not waiting


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_diverged_node_is_told_and_the_study_goes_on(bad: float, caplog: Any) -> None:
    events: list[Event] = []
    with caplog.at_level(logging.WARNING, logger="mixtree"):
        result = run(
            search(),
            Recorder(lambda alpha: bad if alpha[0] < 0.2 else float(alpha[1])),
            listeners=[events.append],
        )
    diverged = [event for event in events if isinstance(event, NodeDiverged)]
    assert diverged
    assert result.value < 1
    assert len(result.tree) > 10
    for event in diverged:
        evaluated = [each for each in events[: events.index(event)] if isinstance(each, NodeEvaluated)]
        assert evaluated[-1].node is event.node
        assert event.node.value == inf
        assert "not finite" in event.message
        assert not any(path[:-1] == event.node.path for path in result.tree if path)
    assert all(event.best >= 0 for event in events if isinstance(event, NodeEvaluated))
    assert len(caplog.records) == len(diverged)


def test_training_that_really_diverges_falls_back_to_what_worked() -> None:
    events: list[Event] = []
    trainer = ReferenceTrainer(flights_like(classes=0), lr=0.05)
    result = run(search(commit=0.5, commit_lr=1e200), trainer, listeners=[events.append])
    (diverged,) = [event for event in events if isinstance(event, NodeDiverged)]
    assert diverged.node.phase == "commit"
    assert "1e+200 × the step size 0.05" in diverged.message
    assert result.node.phase == "search"
    assert np.isfinite(result.value)
    assert all(np.isfinite(weight).all() for weight in result.state.weights)


def test_if_all_diverge_the_study_fails_and_says_what_to_do() -> None:
    trainer = ReferenceTrainer(flights_like(classes=0), lr=1e200)
    with pytest.raises(TrainingError, match=r"every model diverged.*smaller step size.*scale the features"):
        run(search(), trainer)
    with pytest.raises(TrainingError, match="every model diverged"):
        run(uniform(3, budget=40, decay=True), trainer)


# ------------------------------------------------------------------------------------ the objective


def test_a_custom_objective_is_what_the_search_minimises() -> None:
    sources = flights_like()
    metric = as_metric("auroc", classes=2)
    seen: list[float] = []

    def negated(evaluation: Evaluation) -> Evaluation:
        assert evaluation.predictions is not None
        score = metric(sources.validation.y, evaluation.predictions)
        seen.append(evaluation.value)
        return replace(evaluation, value=-score)

    trainer = ReferenceTrainer(sources)
    result = run(search(), trainer, objective=negated)
    assert -1 <= result.value < -0.5  # an AUROC, negated
    assert len(seen) == len(result.tree)
    predictions = trainer.predict(result.state, sources.validation.x)
    assert result.value == -metric(sources.validation.y, predictions)


def test_the_objective_is_not_asked_about_diverged_models() -> None:
    def refuse(evaluation: Evaluation) -> Evaluation:
        assert np.isfinite(evaluation.value)
        return replace(evaluation, value=nan if evaluation.value > 1 else evaluation.value)

    result = run(
        search(), Recorder(lambda alpha: nan if alpha[0] < 0.2 else 1.5 * alpha[0]), objective=refuse
    )
    assert 0 < result.value <= 1
    assert any(node.value == inf for node in result.tree.values())


# ------------------------------------------------------------------------------ the target's own rows


@pytest.mark.parametrize("decay", [True, False])
def test_the_targets_rows_are_a_baseline_of_their_own(decay: bool) -> None:
    trainer = ReferenceTrainer(flights_like(), batch_size=10)
    result = run(validation(3, budget=20, decay=decay), trainer)
    assert result.mixture.tolist() == [0, 0, 0, 1]
    assert result.state.cursor.drawn.tolist() == [0, 0, 0, 200]
    other = run(uniform(3, budget=20), trainer)
    assert other.state.cursor.drawn[3] == 0
    assert other.state.cursor.drawn.sum() == 200


# ------------------------------------------------------------------------------------------ misuse


def test_a_stored_study_knows_its_notes_and_the_rows_of_its_sources(tmp_path: Any) -> None:
    sources = flights_like()
    setting = Setting(sources.names, sources.sizes, 200, 10, data=sources)
    trainer = MlpTrainer(training_sources("auto", setting), hidden=())
    result = run(make_search("auto", setting), trainer, storage=tmp_path / "s.db")
    assert result.notes
    assert load(tmp_path / "s.db", "study").notes == result.notes
    with closing(open_storage(tmp_path / "s.db")) as storage:
        sizes = storage.load("study").sizes
    # Folds of the target's rows are no sources; the rows themselves may be.
    own = dict(zip(sources.names, sources.sizes.tolist(), strict=True))
    assert sizes == {**own, TARGET: len(sources.validation)}


def test_a_study_of_an_older_version_learns_the_rows_of_its_sources(tmp_path: Any) -> None:
    sources, file = flights_like(), tmp_path / "s.db"

    def go(**options: Any) -> None:
        run(uniform(len(sources), budget=20), ReferenceTrainer(sources), storage=file, **options)

    go()
    with closing(open_storage(file)) as storage:
        known = storage.load("study").sizes
        storage.update("study", sizes={})
        go(resume=True)
        assert storage.load("study").sizes == known != {}


def test_what_is_no_search_or_trainer() -> None:
    with pytest.raises(InputError, match="object is not a Search: it needs ask, tell, best"):
        run(object(), Recorder())  # type: ignore[arg-type]
    with pytest.raises(InputError, match="int is not a Trainer: it needs init, train, evaluate, save, load"):
        run(search(), 7)  # type: ignore[type-var]


def test_a_seed_that_is_none() -> None:
    with pytest.raises(InputError, match="seed must be a whole number of at least 0; got -1"):
        run(search(), Recorder(), seed=-1)


def test_a_user_error_in_a_trainer_is_loud() -> None:
    def fail(alpha: Any) -> float:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        run(search(), Recorder(fail))
