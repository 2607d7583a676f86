"""The arena: tasks × methods × seeds at the same budget, stored like any study, scored at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mixtree.data.sources import Problem
from mixtree.engine.study import load_study, run
from mixtree.errors import InputError, MissingExtraError, TrainingError
from mixtree.experiments.comparison import Rules
from mixtree.experiments.parallel import Crew
from mixtree.experiments.tasks import CONFIRM_SEEDS, DESIGN_SEEDS, UNDERTRAINED_SEEDS, Half, Task, tasks
from mixtree.policies.registry import make_search, training_sources
from mixtree.seeds import derive_seed
from mixtree.storage.base import Storage
from mixtree.storage.sql import open_storage

BASELINES = ("uniform+decay", "pooled+decay", "validation", "fine-tune")
SEARCHES = ("mixmatch-ch", "mixmatch-dp", "mixmatch-bisect", "mixmatch-ch+commit", "mixmatch-bisect+commit")
OTHERS = (
    "mmd+decay",
    "importance+decay",
    "online+decay",
    "group-dro+decay",
    "mixmin",
    "regmix",
    "target-source+decay",
    "successive-halving",
    "pbt",
    "optuna-tpe-warm",
    "optuna-gp-warm",
    "pyxab-hct",
)
METHODS = ("auto", *BASELINES, *SEARCHES, *OTHERS)
FEW_STEPS = ("auto", "uniform", "uniform+decay")
"""What is run on undertrained tasks: there the question is whether the looks of ``auto`` cost too much."""
REFERENCE = "genie+decay"
"""Not a method: it is told the true mixture, where there is one."""
PLENTY = "target-trained"
"""Not a method either: it trains on 10,000 rows of the target, where no mixture reproduces it."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Score:
    """One method on one task and seed."""

    task: str
    method: str
    seed: int
    score: float
    """On test rows, in the metric's own direction."""
    loss: float
    """The score so that smaller is better; a run that diverged has the worst of its task."""
    spent: dict[str, int]
    evaluations: int
    """Forward passes over the validation rows."""
    mixture: dict[str, float]


def seeds_of(half: Half, count: int) -> tuple[int, ...]:
    """The first seeds of a half."""
    known = {"design": DESIGN_SEEDS, "confirm": CONFIRM_SEEDS, "undertrained": UNDERTRAINED_SEEDS}[half]
    if not 1 <= count <= len(known):
        raise InputError(f"the arena has {len(known)} seeds a half; got {count}")
    return known[:count]


def study_name(task: str, method: str, seed: int) -> str:
    """The name of a run's study."""
    return f"{task}/{method}/{seed}"


# -- running ----------------------------------------------------------------------------------------------


def train(
    folder: Path, chosen: Sequence[Task], methods: Sequence[str], *, seeds: int, crew: Crew, say: Say = print
) -> None:
    """Run what is not stored yet."""
    folder.mkdir(parents=True, exist_ok=True)
    with closing(open_storage(folder / "study.db")) as storage:
        done = {each.name for each in storage.studies() if each.status in ("finished", "failed")}
    work = []
    for task in chosen:
        for seed in seeds_of(task.half, seeds):
            wanted = [*methods, *references_of(task)]
            if task.half == "undertrained":
                wanted = [name for name in dict.fromkeys((*methods, *FEW_STEPS)) if name in FEW_STEPS]
            todo = [name for name in wanted if study_name(task.name, name, seed) not in done]
            if todo:
                work.append((folder, task.name, seed, todo))
    say(f"{sum(len(each[3]) for each in work)} runs to do")
    for number, name in enumerate(crew.run(run_task, work), 1):
        say(f"{number} of {len(work)}: {name}")


def runnable(methods: Sequence[str], task: Task) -> tuple[list[str], list[str]]:
    """The methods that can be run here, and in words why the others cannot: extras that are not installed."""
    problem = task.load(seeds_of(task.half, 1)[0])
    setting = Rules(task.budget, task.steps, task.metric, {}, task.batch).setting(problem, seed=0)
    found, missing = [], []
    for method in methods:
        try:
            make_search(method, setting)
            found.append(method)
        except MissingExtraError as error:
            missing.append(f"{method} is left out: {error}")
    return found, missing


def references_of(task: Task) -> list[str]:
    """What a task's methods are measured against."""
    return [REFERENCE] * (task.hull == "inside") + [PLENTY] * (task.plenty is not None)


def run_task(folder: Path, name: str, seed: int, methods: Sequence[str]) -> str:
    """All methods on one task and seed; they never see a test row."""
    task = task_named(name)
    problem = replace(task.load(seed), test=None)
    plain = task.trainer(problem.sources)
    with closing(open_storage(folder / "study.db")) as storage:
        known = {each.name for each in storage.studies()}
        for method in methods:
            study = study_name(name, method, seed)
            if study in known:  # begun, but not finished: do it again
                storage.delete(study)
            _run_one(task, problem, plain, method, seed, storage, study)
    return f"{name}, seed {seed}"


def _run_one(
    task: Task, problem: Problem, plain: Any, method: str, seed: int, storage: Storage, study: str
) -> None:
    if method == PLENTY:
        assert task.plenty is not None
        problem = replace(task.plenty(seed), test=None)
    # The same initial model for all methods of a seed, but a stream of its own for each.
    stream = derive_seed(seed, (crc32(method.encode()),))
    setting = Rules(task.budget, task.steps, task.metric, {}, task.batch).setting(problem, seed=stream)
    algorithm = "validation+decay" if method == PLENTY else method
    search, sources = make_search(algorithm, setting), training_sources(algorithm, setting)
    trainer = plain if sources is plain.sources else task.trainer(sources)
    recipe = {"charged": dict(search.charged)}
    options: dict[str, Any] = {"storage": storage, "study": study, "recipe": recipe, "keep": "best"}
    try:
        run(search, trainer, seed=stream, init_seed=seed, **options)
    except TrainingError:
        storage.update(study, status="failed")
    for note in search.notes:
        storage.add_event(study, "note", note)


def task_named(name: str) -> Task:
    """The task of this name."""
    found = {task.name: task for task in tasks()}
    if name not in found:
        raise InputError(f"unknown task {name!r}; the tasks here are {', '.join(found)}")
    return found[name]


# -- scoring ----------------------------------------------------------------------------------------------


def score(folder: Path, chosen: Sequence[Task], *, seeds: int, crew: Crew) -> list[Score]:
    """Every stored model on the test rows: the only place where they are read."""
    work = [(folder, task.name, seed) for task in chosen for seed in seeds_of(task.half, seeds)]
    return [each for part in crew.run(score_task, work) for each in part]


def score_task(folder: Path, name: str, seed: int) -> list[Score]:
    """The stored runs of one task and seed."""
    task = task_named(name)
    problem = task.load(seed)
    trainer = task.trainer(problem.sources)
    assert problem.test is not None
    scores = []
    with closing(open_storage(folder / "study.db")) as storage:
        for record in storage.studies():
            head, _, tail = record.name.rpartition("/")
            where, _, method = head.partition("/")
            if where != name or tail != str(seed) or record.status == "running":
                continue
            if record.best is None:
                scores.append(Score(name, method, seed, float("nan"), float("nan"), {}, 0, {}))
                continue
            result = load_study(storage, record.name)
            state = trainer.load(result.state)
            value = task.metric(problem.test.y, trainer.predict(state, problem.test.x))
            spent = {**(record.recipe or {}).get("charged", {}), **result.spent}
            scores.append(
                Score(
                    name,
                    method,
                    seed,
                    value,
                    task.metric.signed(value),
                    spent,
                    len(result.tree),
                    result.weights,
                )
            )
    return scores


@dataclass(frozen=True, eq=False, slots=True)
class Standing:
    """One method over all tasks."""

    method: str
    rank: float
    worst_regret: float
    """Largest gap to the best method of a task, in standard deviations of that task's scores."""
    worse: dict[str, list[str]]
    """Baselines and searches that beat it significantly (paired 95 %), with the tasks."""


def table_of(scores: Sequence[Score]) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Losses by task and method, seeds in order; what diverged counts as the worst of its task."""
    table: dict[str, dict[str, NDArray[np.float64]]] = {}
    for task in dict.fromkeys(each.task for each in scores):
        own = [each for each in scores if each.task == task]
        finite = [each.loss for each in own if np.isfinite(each.loss)]
        worst = max(finite, default=0.0)
        for method in dict.fromkeys(each.method for each in own):
            rows = sorted((each for each in own if each.method == method), key=lambda each: each.seed)
            losses = np.array([each.loss if np.isfinite(each.loss) else worst for each in rows])
            table.setdefault(task, {})[method] = losses
    return table


def paired(one: NDArray[np.float64], two: NDArray[np.float64]) -> tuple[float, float, float]:
    """Mean difference with its 95 % interval, by Student's t over the seeds."""
    gap = one - two
    mean = float(gap.mean())
    if len(gap) < 2 or not np.any(gap != gap[0]):
        return mean, mean, mean
    half = float(stats.t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / np.sqrt(len(gap)))
    return mean, mean - half, mean + half


def standings(scores: Sequence[Score]) -> list[Standing]:
    """All methods, best mean rank first."""
    table = table_of(scores)
    methods = [
        name for name in dict.fromkeys(each.method for each in scores) if name not in (REFERENCE, PLENTY)
    ]
    ranks: dict[str, list[float]] = {name: [] for name in methods}
    regrets: dict[str, list[float]] = {name: [] for name in methods}
    for results in table.values():
        present = [name for name in methods if name in results]
        means = np.array([results[name].mean() for name in present])
        spread = float(np.mean([results[name].std(ddof=1) for name in present])) or 1.0
        for name, rank, mean in zip(present, stats.rankdata(means), means, strict=True):
            ranks[name].append(float(rank))
            regrets[name].append(float(mean - means.min()) / spread)
    found = [
        Standing(name, float(np.mean(ranks[name])), max(regrets[name]), _worse(name, methods, table))
        for name in methods
        if ranks[name]
    ]
    return sorted(found, key=lambda each: each.rank)


def _worse(
    method: str, methods: Sequence[str], table: dict[str, dict[str, NDArray[np.float64]]]
) -> dict[str, list[str]]:
    worse: dict[str, list[str]] = {}
    for other in methods:
        for task, results in table.items():
            if other == method or other not in results or method not in results:
                continue
            if paired(results[method], results[other])[1] > 0:
                worse.setdefault(other, []).append(task)
    return worse
