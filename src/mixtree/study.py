"""The loop that runs a study: ask, train, evaluate, tell; the same ask and tell that users get."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan
from typing import Any, Generic

from mixtree.errors import InputError, SearchError
from mixtree.events import (
    Event,
    Listener,
    NodeDiverged,
    NodeEvaluated,
    RoundAsked,
    StudyFinished,
    StudyStarted,
)
from mixtree.search import Search, Trial
from mixtree.seeds import INIT, derive_seed
from mixtree.simplex import Mixture
from mixtree.trainer import Evaluation, Job, State, Trainer
from mixtree.tree import Node, Path, Tree

logger = logging.getLogger(__name__)

Objective = Callable[[Evaluation], Evaluation]
"""What the search minimises, from what the trainer measured; by default the trainer's loss itself."""


@dataclass(frozen=True, eq=False, slots=True)
class Result(Generic[State]):
    """What a study found, and where every step went."""

    mixture: Mixture
    value: float
    node: Node
    rule: str
    """The rule that chose the node."""
    budget: int
    spent: dict[str, int]
    """Steps by phase; their sum is at most the budget."""
    tree: Tree
    state: State

    @property
    def unspent(self) -> int:
        """Steps of the budget that nothing could use."""
        return self.budget - sum(self.spent.values())

    @property
    def history(self) -> list[tuple[int, Node]]:
        """Every node in the order of its evaluation, with the steps spent up to it."""
        total, rows = 0, []
        for node in self.tree.values():
            total += node.steps
            rows.append((total, node))
        return rows

    @property
    def trained_steps(self) -> int:
        """Steps that the returned model itself has seen."""
        return sum(node.steps for node in self.tree.lineage(self.node.path))


def run(
    search: Search,
    trainer: Trainer[State],
    *,
    seed: int = 0,
    init_seed: int | None = None,
    study: str = "study",
    objective: Objective | None = None,
    listeners: Sequence[Listener] = (),
) -> Result[State]:
    """Run a search with a trainer until it has finished, and return what it found.

    ``init_seed`` fixes the initial model apart from ``seed``: studies that are compared start from one model
    and still draw their own rows.
    """
    _check_protocols(search, trainer)
    initial = trainer.init(derive_seed(seed if init_seed is None else init_seed, (), INIT))
    loop = _Study(search, trainer, initial, seed=seed, name=study, objective=objective, listeners=listeners)
    return loop.run()


def _check_protocols(search: object, trainer: object) -> None:
    for part, kind in ((search, Search), (trainer, Trainer)):
        if not isinstance(part, kind):
            methods = [method for method in vars(kind) if not method.startswith("_")]
            raise InputError(f"{type(part).__name__} is not a {kind.__name__}: it needs {', '.join(methods)}")


class _Study(Generic[State]):
    def __init__(
        self,
        search: Search,
        trainer: Trainer[State],
        initial: State,
        *,
        seed: int,
        name: str,
        objective: Objective | None,
        listeners: Sequence[Listener],
    ) -> None:
        self.search, self.trainer, self.seed, self.name = search, trainer, seed, name
        self.objective, self.listeners = objective, listeners
        # The initial model stands for the root until, and unless, the search trains the root itself.
        self.initial = initial
        self.tree = Tree()
        self.states: dict[Path, State] = {}
        self.kept: set[Path] = set()
        self.spent = 0
        self.best_value = inf
        self.rounds = 0

    def run(self) -> Result[State]:
        budget = int(getattr(self.search, "budget", 0))
        self.emit(StudyStarted(self.name, budget))
        while trials := self.search.ask():
            self.run_round(trials)
        node = self.search.best()
        self.emit(StudyFinished(self.name, node, self.spent, "the search has finished"))
        return Result(
            mixture=node.mixture,
            value=node.value,
            node=node,
            rule=str(getattr(self.search, "rule", "best")),
            budget=budget or self.spent,
            spent=self.tree.spent,
            tree=self.tree,
            state=self.states[node.path],
        )

    def run_round(self, trials: list[Trial]) -> None:
        self.rounds += 1
        self.emit(RoundAsked(self.name, self.rounds, tuple(trials)))
        states = self.trainer.train([self.job(trial) for trial in trials])
        evaluations = self.trainer.evaluate(states)
        for trial, state, evaluation in zip(trials, states, evaluations, strict=True):
            self.states[trial.path] = state
            self.finish(trial, evaluation)
        self.forget(trials)

    def job(self, trial: Trial) -> Job[State]:
        seed = derive_seed(self.seed, trial.path)
        return Job(self.parent(trial.path), trial.mixture, trial.steps, seed, trial.lr_scale)

    def parent(self, path: Path) -> State:
        above = path[:-1]
        if not path or (not above and above not in self.tree):
            return self.initial
        if above not in self.states:
            raise SearchError(f"trial {path} continues {above}, whose model was never made or is not needed")
        return self.states[above]

    def finish(self, trial: Trial, measured: Evaluation) -> None:
        evaluation = measured
        if isfinite(measured.value) and self.objective is not None:
            evaluation = self.objective(measured)
        if isnan(evaluation.value):
            evaluation = replace(evaluation, value=inf)
        self.search.tell(trial, evaluation)
        node = Node(
            trial.path,
            trial.mixture,
            trial.steps,
            evaluation.value,
            evaluation.standard_error,
            trial.lr_scale,
            trial.phase,
        )
        self.tree.add(node)
        self.spent += node.steps
        self.best_value = min(self.best_value, node.value)
        self.emit(NodeEvaluated(self.name, node, self.spent, self.best_value))
        if node.diverged:
            message = (
                f"node {node.path} diverged after {node.steps} steps at {node.lr_scale:g} × the step size "
                f"{_step_size(self.trainer)}: its loss is not finite; it counts as worst and is not expanded"
            )
            logger.warning("%s: %s", self.name, message)
            self.emit(NodeDiverged(self.name, node, message))

    def forget(self, trials: list[Trial]) -> None:
        """Drop the models that nothing can need any more."""
        needed = getattr(self.search, "needed", None)
        if needed is None:
            return
        # Only this round's nodes and their parents can have become useless, and the few that were kept as the
        # best so far: looking at every model in every round would be quadratic.
        parents = {trial.path[:-1] for trial in trials if trial.path} | self.kept
        for path in parents.union(trial.path for trial in trials) & self.states.keys():
            if not needed(path):
                del self.states[path]
        self.kept = parents & self.states.keys()

    def emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


def _step_size(trainer: Any) -> str:
    lr = getattr(trainer, "lr", None)
    return f"{lr:g}" if isinstance(lr, int | float) else "in use"
