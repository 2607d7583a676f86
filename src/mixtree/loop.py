"""Inside a study: rounds are written down, run and told; what was done before is not done twice."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan
from typing import Any, Generic, Literal

import numpy as np

from mixtree.data.sources import Sources
from mixtree.errors import CheckpointError, SearchError, StorageError, StudyInterrupted
from mixtree.events import (
    Event,
    Listener,
    NodeDiverged,
    NodeEvaluated,
    RoundAsked,
    StudyFinished,
    StudyStarted,
    Warned,
)
from mixtree.executors.base import Done, Executor, Runner, SerialExecutor, Task
from mixtree.fingerprint import data_fingerprint, differences, settings
from mixtree.interrupts import Interrupts
from mixtree.search import Search, Trial
from mixtree.states import States
from mixtree.storage.base import NodeRecord, Outcome, Storage, StudyRecord
from mixtree.trainer import Evaluation, State, Trainer
from mixtree.tree import Node, Path, Tree

logger = logging.getLogger(__name__)

Objective = Callable[[Evaluation], Evaluation]
"""What the search minimises, from what the trainer measured; by default the trainer's loss itself."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How a study runs; none of it changes its numbers."""

    workers: int = 1
    time_limit: float | None = None
    max_failures: int = 3
    keep: Literal["all", "frontier", "best"] = "frontier"
    keep_predictions: bool = False
    allow_changed_data: bool = False


def as_node(trial: Trial, evaluation: Evaluation) -> Node:
    """A trial and its evaluation as a node of the tree."""
    return Node(
        trial.path,
        trial.mixture,
        trial.steps,
        evaluation.value,
        evaluation.standard_error,
        trial.lr_scale,
        trial.phase,
    )


class Loop(Generic[State]):
    """One run of one study.

    A resumed study asks its search from the start and answers from the stored rows as long as there are any:
    a search is deterministic, so that is where it was when it stopped.
    """

    def __init__(
        self,
        search: Search,
        trainer: Trainer[State],
        storage: Storage,
        record: StudyRecord,
        *,
        limits: Limits,
        objective: Objective | None,
        listeners: Sequence[Listener],
    ) -> None:
        self.search, self.trainer, self.storage, self.record = search, trainer, storage, record
        self.limits, self.objective, self.listeners = limits, objective, listeners
        self.tree = Tree()
        self.spent = 0
        self.warnings: list[str] = []
        self._best_value = inf
        self._stored: dict[Path, NodeRecord] = {}
        self._rounds: list[tuple[Trial, ...]] = []
        self._round_of: dict[Path, int] = {}
        self._kept: set[Path] = set()
        self._executor: Executor | None = None
        self._steps_run, self._seconds_run = 0, 0.0
        self._raised = False

    # -- beginning ---------------------------------------------------------------------------------------

    def create_or_check(self, *, resume: bool) -> None:
        """Make the study's row; or, to resume, see that it is the same study."""
        sources = getattr(self.trainer, "sources", None)
        data = data_fingerprint(sources) if isinstance(sources, Sources) else ""
        names = list(sources.names) if isinstance(sources, Sources) else []
        config = {"sources": names, "search": settings(self.search), "trainer": settings(self.trainer)}
        self.record = replace(self.record, config=config, data=data)
        name = self.record.name
        if not resume or name not in [each.name for each in self.storage.studies()]:
            self._prepare(None)
            self.storage.create(replace(self.record, engine=getattr(self.trainer, "engine", None)))
            return
        then = self.storage.load(name)
        self._refuse_changes(then)
        self._prepare(then.engine)
        self._raised = self.record.budget > then.budget
        if self._raised:
            self._note("budget", f"the budget was raised from {then.budget} to {self.record.budget} steps")
        self._note("resumed", "the study goes on")
        self.storage.update(name, status="running", budget=self.record.budget)

    def _prepare(self, engine: str | None) -> None:
        if engine is not None and hasattr(self.trainer, "engine"):
            self.trainer.engine = engine
        prepare = getattr(self.trainer, "prepare", None)
        if prepare is not None:
            prepare()

    def _refuse_changes(self, then: StudyRecord) -> None:
        now, name = self.record, self.record.name
        seeds = {"seed": then.seed, "init_seed": then.init_seed}
        changed = differences(seeds, {"seed": now.seed, "init_seed": now.init_seed})
        changed += differences(then.config, now.config)
        if changed:
            raise StorageError(
                f"study {name!r} cannot go on with other settings ({'; '.join(changed)}): "
                "use the same ones, or another study name"
            )
        if now.budget < then.budget:
            raise StorageError(
                f"study {name!r} was started with a budget of {then.budget} steps; it can be raised, "
                f"not lowered to {now.budget}"
            )
        if then.data != now.data and not self.limits.allow_changed_data:
            raise StorageError(
                f"study {name!r} was started on other data ({then.data[:8]}, not {now.data[:8]}): "
                "bring the same rows in the same order, or allow changed data (allow_changed_data=True, "
                "--allow-changed-data) and answer for mixing the two"
            )

    # -- running -----------------------------------------------------------------------------------------

    def run(self) -> str:
        """Run to the end and say why it ended."""
        name = self.record.name
        self.states = States(self.trainer, self.storage.checkpoints(name))
        if self.states.checkpoints is not None:
            self.states.checkpoints.tidy()
        self._stored = {record.trial.path: record for record in self.storage.nodes(name)}
        self._supersede(raised=self._raised)
        self._emit(StudyStarted(name, self.record.budget))
        started = time.monotonic()
        with Interrupts() as interrupts:
            reason = self._rounds_until_done(started, interrupts)
        best = self.search.best()
        rule = str(getattr(self.search, "rule", "best"))
        status: Any = "finished" if reason == FINISHED else "stopped"
        self.storage.update(name, status=status, best=best.path, rule=rule)
        self._clean_up(best.path)
        self._emit(StudyFinished(name, best, self.spent, reason))
        return reason

    def _rounds_until_done(self, started: float, interrupts: Interrupts) -> str:
        while True:
            trials = self.search.ask()
            if not trials:
                return FINISHED
            known = all(self._known(trial) is not None for trial in trials)
            if not known:
                if interrupts.pending:
                    raise self._interrupted()
                if self._out_of_time(started, trials):
                    return "the time limit was reached"
            self._run_round(trials)

    def _out_of_time(self, started: float, trials: Sequence[Trial]) -> bool:
        limit = self.limits.time_limit
        if limit is None or not self.tree:
            return False
        # A round that would end after the limit is not begun: its pace is known from the rounds before it.
        pace = self._seconds_run / self._steps_run if self._steps_run else 0.0
        return time.monotonic() - started + pace * sum(trial.steps for trial in trials) > limit

    def _interrupted(self) -> StudyInterrupted:
        name = self.record.name
        self.storage.update(name, status="stopped")
        where = getattr(self.storage, "where", None)
        how = (
            f"resume it with resume=True, or: mixtree resume {where} {name}"
            if where
            else "nothing was stored"
        )
        return StudyInterrupted(
            f"study {name!r} stopped after {self.spent} of {self.record.budget} steps; {how}"
        )

    def _run_round(self, trials: list[Trial]) -> None:
        number = len(self._rounds)
        self._rounds.append(tuple(trials))
        self._round_of.update((trial.path, number) for trial in trials)
        fresh = [trial for trial in trials if trial.path not in self._stored]
        outcomes = {trial.path: self._known(trial) for trial in trials}
        missing = {path for path, outcome in outcomes.items() if outcome is None}
        if missing:
            if fresh:
                self.storage.begin_round(self.record.name, number, fresh)
            self._emit(RoundAsked(self.record.name, number + 1, tuple(trials)))
            tasks = [
                task for task in self._tasks(trials) if any(trial.path in missing for trial in task.trials)
            ]
            outcomes |= self._train(tasks, missing)
        for trial in trials:
            outcome = outcomes[trial.path]
            assert outcome is not None
            self._tell(trial, outcome, replayed=trial.path not in missing)
        self._forget(trials)

    def _tasks(self, trials: Sequence[Trial]) -> list[Task]:
        """The round in pieces: by the trainer's groups, never by the number of workers, where numbers could
        depend on it."""
        fresh = () not in self._round_of
        size = getattr(self.trainer, "group", None)
        if size is None:
            size = 1 if self.limits.workers > 1 else len(trials)
        return [Task(tuple(trials[at : at + size]), fresh) for at in range(0, len(trials), size)]

    def _train(self, tasks: list[Task], missing: set[Path]) -> dict[Path, Outcome | None]:
        outcomes: dict[Path, Outcome | None] = {}
        while tasks:
            again: list[Task] = []
            for done in self._get_executor().run(tasks):
                if done.lost is not None:
                    self._recompute(done.lost)
                    again.append(done.task)
                    continue
                fresh = [each for each in self._outcomes(done) if each.path in missing]
                self.storage.finish(self.record.name, fresh)
                outcomes.update((each.path, each) for each in fresh)
            tasks = again
        return outcomes

    def _outcomes(self, done: Done) -> list[Outcome]:
        trials = done.task.trials
        if done.failure is not None:
            self._warn(f"{done.failure}; it counts as worst and the study goes on")
            return [Outcome(trial.path, Evaluation(inf), "failed") for trial in trials]
        self._steps_run += sum(trial.steps for trial in trials)
        self._seconds_run += done.seconds / self.limits.workers
        if len(done.evaluations) != len(trials):
            raise SearchError(f"the trainer evaluated {len(done.evaluations)} of {len(trials)} models")
        share = done.seconds / len(trials)
        return [
            Outcome(trial.path, self._value(each), seconds=share)
            for trial, each in zip(trials, done.evaluations, strict=True)
        ]

    def _value(self, measured: Evaluation) -> Evaluation:
        evaluation = measured
        if self.objective is not None and isfinite(measured.value):
            evaluation = self.objective(measured)
        if isnan(evaluation.value):
            evaluation = replace(evaluation, value=inf)
        stored = self.limits.keep_predictions or getattr(self.search, "uses_predictions", False)
        return evaluation if stored else replace(evaluation, predictions=None)

    def _tell(self, trial: Trial, outcome: Outcome, *, replayed: bool) -> None:
        self.search.tell(trial, outcome.evaluation)
        node = as_node(trial, outcome.evaluation)
        if node.path not in self.tree:  # a superseded node that is asked for after all was charged before
            self.spent += node.steps
        self.tree.add(node)
        self._best_value = min(self._best_value, node.value)
        self._emit(NodeEvaluated(self.record.name, node, self.spent, self._best_value, replayed))
        if node.diverged and outcome.status == "done" and not replayed:
            message = (
                f"node {node.path} diverged within {node.steps} steps at {node.lr_scale:g} × the step size "
                f"{_step_size(self.trainer)}: its loss is not finite; it counts as worst and is not expanded"
            )
            self._warn(message)
            self._emit(NodeDiverged(self.record.name, node, message))

    # -- what was done before ----------------------------------------------------------------------------

    def _known(self, trial: Trial) -> Outcome | None:
        record = self._stored.get(trial.path)
        if record is None:
            return None
        if not _same(record.trial, trial):
            then = record.trial
            raise StorageError(
                f"study {self.record.name!r} cannot go on: node {trial.path} was asked for with {then.steps} "
                f"steps on {then.mixture.tolist()}, now with {trial.steps} on {trial.mixture.tolist()}. "
                "This search cannot continue at another budget: start a new study"
            )
        return record.outcome

    def _supersede(self, *, raised: bool) -> None:
        """Nodes that the search will not ask for again at a raised budget (an old commit) stay charged."""
        adopt = getattr(self.search, "adopt", None)
        if adopt is None:
            return
        old = [each for each in self._stored.values() if each.outcome and each.outcome.status == "superseded"]
        if raised:
            new = self._not_asked_for(copy.deepcopy(self.search), old)
            self.storage.finish(self.record.name, [replace(each, status="superseded") for each in new])
            old += [self._stored[each.path] for each in new]
        if old:
            nodes = [as_node(each.trial, each.outcome.evaluation) for each in old if each.outcome]
            adopt(nodes)
            for node in nodes:
                self.tree.add(node)
                self.spent += node.steps

    def _not_asked_for(self, rehearsal: Any, old: Sequence[NodeRecord]) -> list[Outcome]:
        rehearsal.adopt([as_node(each.trial, each.outcome.evaluation) for each in old if each.outcome])
        asked = {each.trial.path for each in old}
        while trials := rehearsal.ask():
            for trial in trials:
                record = self._stored.get(trial.path)
                if record is None or record.outcome is None or not _same(record.trial, trial):
                    done = [each.outcome for each in self._stored.values() if each.outcome is not None]
                    return [each for each in done if each.path not in asked]
                asked.add(trial.path)
                rehearsal.tell(trial, record.outcome.evaluation)
        return []

    def model(self, path: Path) -> State:
        """A node's model, computed again if its checkpoint is gone."""
        try:
            return self.states.get(path)
        except CheckpointError:
            self._recompute(path)
            return self.states.get(path)

    def _recompute(self, path: Path) -> None:
        """Train a lost model once more from its nearest stored ancestor; its steps are not charged again."""
        number = self._round_of.get(path)
        if number is None:
            raise StorageError(f"the model of node {path} is lost and the node is not of this run")
        self._warn(f"the model of node {path} was missing or damaged and is computed again")
        together = next(
            task.trials
            for task in self._tasks(self._rounds[number])
            if any(trial.path == path for trial in task.trials)
        )
        if getattr(self.trainer, "group", None) is None:
            together = tuple(trial for trial in together if trial.path == path)
        task = Task(together, () not in self._round_of)
        runner = Runner(self.trainer, self.states, seed=self.record.seed, init_seed=self.record.init_seed)
        done = runner.run(task)
        while done.lost is not None:
            self._recompute(done.lost)
            done = runner.run(task)
        for trial, measured in zip(task.trials, done.evaluations, strict=True):
            then, now = self.tree[trial.path].value, self._value(measured).value
            if then != now:
                raise StorageError(
                    f"node {trial.path} was computed again and scored {now!r} instead of {then!r}: another "
                    "machine, other package versions or other data; the study cannot go on exactly"
                )

    # -- housekeeping ------------------------------------------------------------------------------------

    def _forget(self, trials: Sequence[Trial]) -> None:
        """Drop the models that nothing can need any more."""
        needed = getattr(self.search, "needed", None)
        if needed is None or self.limits.keep == "all":
            return
        # Only this round's nodes and their parents can have become useless, and the few that were kept as the
        # best so far: looking at every model in every round would be quadratic.
        parents = {trial.path[:-1] for trial in trials if trial.path} | self._kept
        for path in parents.union(trial.path for trial in trials):
            if path in self.tree and not needed(path):
                self.states.drop(path)
                parents.discard(path)
        self._kept = parents

    def _clean_up(self, best: Path) -> None:
        if self.limits.keep == "best":
            for path in self.tree:
                if path != best:
                    self.states.drop(path)

    def _get_executor(self) -> Executor:
        if self._executor is None:
            seeds = {"seed": self.record.seed, "init_seed": self.record.init_seed}
            if self.limits.workers == 1:
                self._executor = SerialExecutor(Runner(self.trainer, self.states, **seeds))
            else:
                from mixtree.executors.processes import ProcessExecutor

                self._executor = ProcessExecutor(
                    self.trainer,
                    self.states.on_disk(),
                    workers=self.limits.workers,
                    max_failures=self.limits.max_failures,
                    **seeds,
                )
        return self._executor

    def close(self) -> None:
        """Let go of workers and temporary files."""
        if self._executor is not None:
            self._executor.close()
        if hasattr(self, "states"):
            self.states.close()

    def _note(self, kind: str, message: str) -> None:
        self.storage.add_event(self.record.name, kind, message)

    def _warn(self, message: str) -> None:
        logger.warning("%s: %s", self.record.name, message)
        self.warnings.append(message)
        self._note("warning", message)
        self._emit(Warned(self.record.name, message))

    def _emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


FINISHED = "the search has finished"


def _same(one: Trial, two: Trial) -> bool:
    same = one.steps == two.steps and one.lr_scale == two.lr_scale and one.phase == two.phase
    return same and np.array_equal(one.mixture, two.mixture)


def _step_size(trainer: Any) -> str:
    lr = getattr(trainer, "lr", None)
    return f"{lr:g}" if isinstance(lr, int | float) else "in use"
