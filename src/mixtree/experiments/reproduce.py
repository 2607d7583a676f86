"""Reproductions: every run of an experiment trained and stored; test rows are read by the report alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from time import process_time
from typing import Any, Literal
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from mixtree.data.allocation import named
from mixtree.data.fingerprint import data_fingerprint
from mixtree.data.sources import TARGET, Problem, Rows, Sources
from mixtree.engine.study import Result, load_study, run
from mixtree.errors import TrainingError
from mixtree.estimate.covariates import mmd_mixture
from mixtree.experiments.comparison import Rules, Run
from mixtree.experiments.parallel import Crew, quietly
from mixtree.experiments.specs import Experiment, SettingName
from mixtree.fitting.prepare import MetricObjective
from mixtree.policies.fixed import fixed
from mixtree.policies.registry import make_search, training_sources
from mixtree.search import SearchBase
from mixtree.seeds import derive_seed
from mixtree.simplex import Mixture
from mixtree.storage.base import Storage
from mixtree.storage.memory import MemoryStorage
from mixtree.storage.sql import open_storage
from mixtree.trainer import Evaluation, Job
from mixtree.trainers.mlp import MlpState, MlpTrainer

GRID = 6
"""Budgets on the way to the paper's, evenly spaced."""
RETRAINED = "retrained:"
"""Begins the id of a run with all of Λ on the mixture that a search has found."""
_LOSS_ROWS = 1000
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one algorithm is run."""

    lr: float
    steps: int
    """Per node."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the tree search."""
    objective: Literal["loss", "metric"] = "loss"
    reset_optimizer: bool = False
    mixture_of: str = ""
    """Of a retrained mixture: the digest of the run that found it."""


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """All runs of one experiment in one setting: algorithms × budgets × repeats.

    A run is named by what decides it, not by its setting: settings share the runs that they have in common.
    """

    experiment: Experiment
    setting: SettingName
    recipes: Mapping[str, Recipe]
    budgets: tuple[int, ...]
    """On the way to the paper's, which is the last one."""
    repeats: int
    folder: Path
    drawn: frozenset[str] | None = None
    """Algorithms that are run at every budget, None for all; the others at the paper's alone."""

    @property
    def file(self) -> Path:
        """Where the runs are stored."""
        return self.folder / "study.db"

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Every algorithm and budget of a repeat, in an order in which they can be done."""
        return [
            (algorithm, budget)
            for budget in self.budgets
            for algorithm in self.recipes
            if budget == self.budgets[-1] or self.drawn is None or algorithm in self.drawn
        ]

    def study(self, algorithm: str, budget: int, repeat: int) -> str:
        """The name of a run's study."""
        return f"{self.experiment.name}/{algorithm}/{budget}/{repeat}/{self.digest(algorithm)}"

    def digest(self, algorithm: str) -> str:
        """Short for the recipe."""
        text = json.dumps(self.about(algorithm, 0), sort_keys=True)
        return sha256(text.encode()).hexdigest()[:10]

    def about(self, algorithm: str, repeat: int) -> dict[str, Any]:
        """What decides a run, stored with it."""
        recipe = asdict(self.recipes[algorithm])
        return {"experiment": self.experiment.name, "algorithm": algorithm, "repeat": repeat, **recipe}


def grid(budget: int, points: int = GRID) -> tuple[int, ...]:
    """Evenly spaced budgets up to the full one.

    >>> grid(600, 3)
    (200, 400, 600)
    """
    return tuple(round(budget * number / points) for number in range(1, points + 1))


class _Unfingerprinted:
    """A trainer that does not show its rows: they are fingerprinted once a repeat, not once a run."""

    def __init__(self, trainer: MlpTrainer) -> None:
        self._trainer, self.lr, self.engine = trainer, trainer.lr, trainer.engine

    def init(self, seed: int) -> MlpState:
        return self._trainer.init(seed)

    def train(self, jobs: Sequence[Job[MlpState]]) -> list[MlpState]:
        return self._trainer.train(jobs)

    def evaluate(self, states: Sequence[MlpState]) -> list[Evaluation]:
        return self._trainer.evaluate(states)

    def save(self, state: MlpState) -> dict[str, NDArray[Any]]:
        return self._trainer.save(state)

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> MlpState:
        return self._trainer.load(arrays)

    def describe(self) -> dict[str, Any]:
        """The trainer's settings."""
        return self._trainer.describe()


# -- training ---------------------------------------------------------------------------------------------


def train(plan: Plan, *, crew: Crew, say: Say = lambda line: None) -> int:
    """Run what is not stored yet; the number of runs that were done now."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    with closing(open_storage(plan.file)) as storage:
        missing = _missing(plan, storage)
    tasks = [(plan, repeat, todo) for repeat, todo in missing.items() if todo]
    name, total = f"{plan.experiment.name} ({plan.setting})", len(tasks)
    say(f"{name}: {sum(len(todo) for _, _, todo in tasks)} runs to do")
    done = 0
    for number, count in enumerate(crew.run(train_repeat, tasks), 1):
        done += count
        say(f"{name}: {number} of {total} repeats")
    return done


def _missing(plan: Plan, storage: Storage) -> dict[int, list[tuple[str, int]]]:
    """Runs to do, by repeat. What was stored half is deleted and done again."""
    stored = {each.name: each.status for each in storage.studies()}
    missing: dict[int, list[tuple[str, int]]] = {}
    for repeat in range(plan.repeats):
        todo = missing.setdefault(repeat, [])
        for algorithm, budget in plan.runs:
            name = plan.study(algorithm, budget, repeat)
            if stored.get(name) in ("finished", "failed"):
                continue
            if name in stored:
                storage.delete(name)
            todo.append((algorithm, budget))
    return missing


@quietly()
def train_repeat(plan: Plan, repeat: int, todo: Sequence[tuple[str, int]]) -> int:
    """Runs of one repeat: its own split, initial model and streams. They never see a test row."""
    mark = process_time()  # what is done once a repeat counts for its first run
    experiment = plan.experiment
    problem = replace(experiment.load(repeat), test=None)
    trainers: dict[tuple[float, bool], MlpTrainer] = {}
    fingerprint = data_fingerprint(problem.sources)
    with closing(open_storage(plan.file)) as storage:
        for algorithm, budget in todo:
            recipe = plan.recipes[algorithm]
            key = recipe.lr, recipe.reset_optimizer
            if key not in trainers:
                trainers[key] = experiment.trainer(problem.sources, lr=key[0], reset_optimizer=key[1])
            name = plan.study(algorithm, budget, repeat)
            about = plan.about(algorithm, repeat)
            mixture = None
            if recipe.mixture_of:
                found = storage.load(plan.study(algorithm.removeprefix(RETRAINED), budget, repeat))
                if found.best is None:  # a search that diverged has no mixture to train on
                    storage.create(replace(found, name=name, recipe=about))
                    continue
                mixture = load_study(storage, found.name).mixture
            seed = derive_seed(repeat, (crc32(algorithm.encode()), budget))
            memory = MemoryStorage()
            result, charged = run_once(
                experiment,
                problem,
                algorithm,
                recipe,
                budget=budget,
                seeds=(seed, repeat),
                trainer=trainers[key],
                mixture=mixture,
                storage=memory,
                study=name,
            )
            config = memory.load(name).config | {"sources": list(problem.sources.names)}
            cpu, mark = round(process_time() - mark, 3), process_time()
            recipe_row = {**about, "charged": charged, "cpu": cpu}
            memory.update(name, recipe=recipe_row, config=config, data=fingerprint)
            _store(memory, storage, name, trainers[key], result)
    return len(todo)


def run_once(
    experiment: Experiment,
    problem: Problem,
    algorithm: str,
    recipe: Recipe,
    *,
    budget: int,
    seeds: tuple[int, int],
    trainer: MlpTrainer,
    mixture: Mixture | None = None,
    storage: MemoryStorage | None = None,
    study: str = "study",
) -> tuple[Result[MlpState] | None, dict[str, int]]:
    """One algorithm at one budget: its result, or None if all models diverged; and what it was charged
    before training. ``seeds`` are those of the stream and of the initial model; a ``mixture`` is that of a
    retrained one."""
    rules = Rules(budget, recipe.steps, experiment.metric, recipe.options, experiment.batch)
    setting = rules.setting(problem, seed=seeds[0])
    if mixture is not None:
        search: SearchBase = fixed(mixture, budget=budget)
    elif algorithm == "mmd":
        search = fixed(_matched(problem.sources, seeds[1]), budget=budget)
    else:
        search = make_search(algorithm, setting)
    sources = problem.sources if mixture is not None else training_sources(algorithm, setting)
    if sources is not problem.sources:
        trainer = experiment.trainer(sources, lr=recipe.lr, reset_optimizer=recipe.reset_optimizer)
    objective = None
    if recipe.objective == "metric":
        objective = MetricObjective(experiment.metric, problem.sources.validation.y)
    try:
        result = run(
            search,
            _Unfingerprinted(trainer),
            seed=seeds[0],
            init_seed=seeds[1],
            storage=storage,
            study=study,
            objective=objective,
        )
    except TrainingError:
        result = None  # all its models diverged: that is its score
    return result, dict(search.charged)


@lru_cache(maxsize=8)
def _matched(sources: Sources, seed: int) -> Mixture:
    """The mixture that matches x: the same at every budget, and slow enough to be found only once."""
    return mmd_mixture(sources, seed=seed)


def _store(
    memory: MemoryStorage, storage: Storage, name: str, trainer: MlpTrainer, result: Result[MlpState] | None
) -> None:
    """Copy a run to disk with the model it returned; its row says that it is finished only at the end."""
    record, nodes = memory.load(name), memory.nodes(name)
    storage.create(replace(record, status="running", best=None))
    for number, records in groupby(nodes, key=lambda each: each.round):
        storage.begin_round(name, number, [each.trial for each in records])
    storage.finish(name, [node for node in nodes if node.status != "pending"])
    for event in memory.events(name):
        storage.add_event(name, event.kind, event.message)
    if result is None:
        storage.update(name, status="failed")
        return
    models = storage.checkpoints(name)
    assert models is not None
    models.write(result.node.path, trainer.save(result.state))
    storage.update(name, status="finished", best=result.node.path, rule=result.rule)


# -- reporting --------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Scored:
    """A stored run with its test score."""

    run: Run
    trained: int
    """Steps that the returned model itself has seen."""
    expansions: tuple[int, ...]
    """Heights of a search's expanded nodes in their order."""
    drawn: dict[str, float]
    """Rows that the returned model has seen of each source, in expectation and with repetitions."""
    fitted: float
    """The training loss on the sources' rows, weighted like those that it has seen; at the paper's Λ only."""
    test_loss: float
    cpu: float = 0.0
    """CPU seconds of the run."""


def score(plan: Plan, *, crew: Crew) -> list[Scored]:
    """Every stored run's model on the test rows: the only place where they are read."""
    answers = crew.run(score_repeat, [(plan, repeat) for repeat in range(plan.repeats)])
    scored = [each for part in answers for each in part]
    order = {algorithm: number for number, algorithm in enumerate(plan.recipes)}
    return sorted(scored, key=lambda each: (each.run.budget, order[each.run.algorithm], each.run.repeat))


@quietly()
def score_repeat(plan: Plan, repeat: int) -> list[Scored]:
    """The stored runs of one repeat."""
    experiment = plan.experiment
    problem = experiment.load(repeat)
    trainer = experiment.trainer(problem.sources, lr=1.0)
    parts = dict(zip(problem.sources.names, problem.sources.rows, strict=True))
    parts = {name: spread(rows) for name, rows in parts.items()}
    parts[TARGET] = problem.sources.validation
    with closing(open_storage(plan.file)) as storage:
        return [
            _score_one(plan, problem, trainer, storage, parts, algorithm, budget, repeat)
            for algorithm, budget in plan.runs
        ]


def spread(rows: Rows) -> Rows:
    """Some of the rows, evenly spaced: enough for a training loss."""
    return rows.take(np.linspace(0, len(rows) - 1, min(len(rows), _LOSS_ROWS)).astype(np.intp))


def _score_one(
    plan: Plan,
    problem: Problem,
    trainer: MlpTrainer,
    storage: Storage,
    parts: Mapping[str, Rows],
    algorithm: str,
    budget: int,
    repeat: int,
) -> Scored:
    experiment, none = plan.experiment, float("nan")
    metric, loss = experiment.metric, experiment.loss
    name = plan.study(algorithm, budget, repeat)
    record = storage.load(name)
    about = record.recipe or {}
    seconds, cpu = sum(node.seconds for node in storage.nodes(name)), float(about.get("cpu", 0.0))
    if record.best is None:
        run_ = Run(algorithm, repeat, float("inf"), none, none, {}, budget, {}, seconds)
        return Scored(run_, 0, (), {}, none, none, cpu)
    result = load_study(storage, name, trainer)
    sources, test = problem.sources, problem.test
    assert test is not None
    spent = {**about.get("charged", {}), **result.spent}
    validation_score = metric(sources.validation.y, trainer.predict(result.state, sources.validation.x))
    predictions = trainer.predict(result.state, test.x)
    scored = Run(
        algorithm,
        repeat,
        result.value,
        validation_score,
        metric(test.y, predictions),
        result.weights,
        budget,
        spent,
        seconds,
    )
    drawn: dict[str, float] = {}
    for node in result.tree.lineage(result.node.path):
        for source, weight in named(sources.names, node.mixture).items():
            drawn[source] = drawn.get(source, 0.0) + node.steps * experiment.batch * float(weight)
    drawn = {source: rows for source, rows in drawn.items() if rows > 0}
    fitted = none
    if budget == plan.budgets[-1]:
        total = sum(drawn.values())
        fitted = sum(
            rows / total * loss(parts[source].y, trainer.predict(result.state, parts[source].x))
            for source, rows in drawn.items()
        )
    parents = dict.fromkeys(
        node.path[:-1] for node in result.tree.values() if node.path and node.phase != "commit"
    )
    searched = algorithm.startswith("mixmatch")
    heights = tuple(len(path) for path in parents) if searched else ()
    return Scored(scored, result.trained_steps, heights, drawn, fitted, loss(test.y, predictions), cpu)
