"""Ideas beyond the choices of ``auto``, each against what it would replace, on the design half's tasks."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from mixtree.data.sources import Problem
from mixtree.engine.study import run
from mixtree.errors import TrainingError
from mixtree.experiments.arena import task_named
from mixtree.experiments.choices import Rows
from mixtree.experiments.comparison import Rules
from mixtree.experiments.tasks import Task
from mixtree.policies.registry import make_search, training_sources
from mixtree.seeds import derive_seed
from mixtree.storage.sql import open_storage

FILE = "ideas.json"


@dataclass(frozen=True, slots=True)
class Idea:
    """A way to run a method."""

    method: str
    longer: int = 1
    """Times the steps per node."""
    soup: int = 1
    """The mean of so many of the tree's best leaves, if more than one, instead of the returned model."""
    optimizer: str = "sgd"
    rate: float = 1.0
    """Times the task's step size."""


_TREE, _COMMIT, _PLAIN = "mixmatch-bisect", "mixmatch-bisect+commit", "uniform+decay"
IDEAS = {
    _TREE: Idea(_TREE),
    f"{_TREE}, nodes twice as long": Idea(_TREE, longer=2),
    f"{_TREE}, nodes four times as long": Idea(_TREE, longer=4),
    f"{_TREE}, mean of the 3 best leaves": Idea(_TREE, soup=3),
    f"{_TREE}, mean of the 8 best leaves": Idea(_TREE, soup=8),
    _COMMIT: Idea(_COMMIT),
    f"{_COMMIT}, nodes twice as long": Idea(_COMMIT, longer=2),
    f"{_COMMIT}, nodes four times as long": Idea(_COMMIT, longer=4),
    _PLAIN: Idea(_PLAIN),
    f"{_PLAIN}, momentum": Idea(_PLAIN, optimizer="momentum", rate=0.1),
    f"{_PLAIN}, Adam": Idea(_PLAIN, optimizer="adam", rate=0.01),
    "auto": Idea("auto"),
    "auto, momentum": Idea("auto", optimizer="momentum", rate=0.1),
    "auto, Adam": Idea("auto", optimizer="adam", rate=0.01),
}
PAIRS = [(name, idea.method) for name, idea in IDEAS.items() if name != idea.method]
"""Every idea and the plain way of its method."""


def run_ideas(name: str, seed: int) -> Rows:
    """All ideas on one task and seed."""
    task = task_named(name)
    problem = task.load(seed)
    rows = []
    for label, idea in IDEAS.items():
        try:
            loss = _loss(task, problem, idea, seed)
        except TrainingError:
            loss = float("nan")
        rows.append({"task": name, "seed": seed, "choice": label, "loss": loss})
    return rows


def _loss(task: Task, problem: Problem, idea: Idea, seed: int) -> float:
    stream = derive_seed(seed, (crc32(idea.method.encode()),))
    setting = Rules(task.budget, task.steps * idea.longer, task.metric, {}, task.batch).setting(
        problem, seed=stream
    )
    trainer = task.trainer(
        training_sources(idea.method, setting), lr=task.lr * idea.rate, optimizer=idea.optimizer
    )
    search = make_search(idea.method, setting)
    if idea.soup == 1:
        state = run(search, trainer, seed=stream, init_seed=seed).state
    else:
        state = _soup(search, trainer, idea.soup, seed=stream, init_seed=seed)
    assert problem.test is not None
    return task.metric.signed(task.metric(problem.test.y, trainer.predict(state, problem.test.x)))


def _soup(search: Any, trainer: Any, count: int, *, seed: int, init_seed: int) -> Any:
    """The mean of the weights of the best leaves."""
    with tempfile.TemporaryDirectory() as folder, closing(open_storage(Path(folder) / "s.db")) as storage:
        seeds: dict[str, Any] = {"seed": seed, "init_seed": init_seed}
        result = run(search, trainer, storage=storage, study="soup", keep="all", **seeds)
        models: Any = storage.checkpoints("soup")
        inner = {path[:-1] for path in result.tree}
        leaves = [node for path, node in result.tree.items() if path not in inner and not node.diverged]
        best = sorted(leaves, key=lambda node: node.value)[:count]
        states = [trainer.load(models.read(node.path)) for node in best]
        return trainer.merge(states, [1.0 / len(states)] * len(states))
