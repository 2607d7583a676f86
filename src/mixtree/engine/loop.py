"""Inside a study: rounds are written down, run and told; what was done before is not done twice."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from inspect import getattr_static
from math import inf, isfinite
from typing import Any, Generic, Literal

from mixtree.data.fingerprint import data_fingerprint, model_key, rows_fingerprint, settings
from mixtree.data.sources import FOLD, TARGET, Sources
from mixtree.engine.checks import Checked, source_names
from mixtree.engine.executors.base import Done, Executor, Runner, SerialExecutor, Task
from mixtree.engine.interrupts import Interrupts
from mixtree.engine.models import States, Upkeep
from mixtree.engine.resume import CHOOSES, Past, refuse_changes
from mixtree.errors import (
    CheckpointError,
    MixtreeError,
    SearchError,
    StorageError,
    StudyInterrupted,
    TrainingError,
)
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
from mixtree.places import said
from mixtree.search import STEP_SIZE, Search, Trial, as_node, is_built_in
from mixtree.storage.base import NodeStatus, Outcome, Storage, StudyRecord
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
        data: Sources | None = None,
    ) -> None:
        self.given: Any = getattr(trainer, "sources", None) if data is None else data
        self.search, self.trainer, self.storage, self.record = search, trainer, storage, record
        self.limits, self.objective, self.listeners = limits, objective, listeners
        # The built-in searches keep a tree themselves, of the same nodes in the same order.
        self.tree = search.tree if is_built_in(search) else Tree()
        self._keeps_tree = is_built_in(search)
        self.charged = dict(getattr(search, "charged", {}))
        self.spent = sum(self.charged.values())
        self.warnings: list[str] = []
        self._best_value = inf
        self._may_return = getattr(search, "may_return", None)
        self._group: int | None = None
        self._writes = getattr(storage, "keeps_rows", True)
        # Predictions that are not stored are not told either, or a resumed study would go another way; the
        # built-in searches that look at them say so.
        keeps = limits.keep_predictions or getattr(search, "uses_predictions", False)
        self._strips = not keeps and (self._writes or not self._keeps_tree)
        self._asked = Checked(search, trainer)
        self._rounds = 0
        self._executor: Executor | None = None
        self._steps_run, self._seconds_run = 0, 0.0
        self._recomputed = 0
        self._failed: set[Path] = set()
        self._raised = False

    # -- beginning ---------------------------------------------------------------------------------------

    def create(self, *, resume: bool) -> bool:
        """Make the study's row, unless it is there to be resumed; whether it is a new one."""
        sources = self.given if isinstance(self.given, Sources) else None
        mine = getattr(self.trainer, "sources", None)
        config: dict[str, Any] = {
            "sources": list(source_names(self.trainer)),
            "search": settings(self.search),
            "trainer": settings(self.trainer),
            "objective": None if self.objective is None else settings(self.objective),
            "charged": self.charged,
        }
        # Reading all rows takes a moment, which a study that nobody can resume need not spend.
        lasting = getattr(self.storage, "lasting", True)
        data = data_fingerprint(sources) if sources is not None and lasting else ""
        if data and isinstance(mine, Sources) and mine.validation is not self.given.validation:
            config[CHOOSES] = rows_fingerprint(mine.validation)  # others are held out
        self.record = replace(self.record, config=config, data=data, sizes=_sizes(sources))
        if resume and self.record.name in [each.name for each in self.storage.studies()]:
            return False
        self._prepare(None)
        engine, now = getattr(self.trainer, "engine", None), self.record
        key = model_key(now.name, now.seed, now.init_seed, now.budget, now.config, now.data, engine)
        self.storage.create(replace(now, engine=engine, key=key))
        return True

    def reopen(self) -> None:
        """See that it is the same study, and say that it goes on. Only the process that holds it may."""
        name, budget = self.record.name, self.record.budget
        then = self.storage.load(name)
        refuse_changes(then, self.record, allow_changed_data=self.limits.allow_changed_data)
        self._prepare(then.engine)
        if budget > then.budget:
            self._note("budget", f"the budget was raised from {then.budget} to {budget} steps")
        if then.data != self.record.data:
            self._note("data", f"the study goes on with other data: {self.record.data}, not {then.data}")
        self._note("resumed", "the study goes on")
        self._raised = budget > then.budget or then.status == "raising"
        status = "raising" if self._raised else "running"
        now = self.record
        changes = {"budget": budget, "data": now.data, "config": now.config, "sizes": now.sizes}
        self.storage.update(name, status=status, best=None, **changes)

    def _prepare(self, engine: str | None) -> None:
        self._started = time.monotonic()  # choosing an engine counts towards the time limit
        # Asking for the engine would make the trainer choose one.
        if engine is not None and getattr_static(self.trainer, "engine", None) is not None:
            self.trainer.engine = engine  # type: ignore[attr-defined]
        prepare = getattr(self.trainer, "prepare", None)
        if prepare is not None:
            prepare(steps=self.record.budget or None, seconds=self.limits.time_limit)

    # -- running -----------------------------------------------------------------------------------------

    def run(self) -> str:
        """Run to the end and say why it ended."""
        try:
            return self._run()
        except StudyInterrupted:
            raise
        except BaseException as error:
            # The error itself is what counts; where even this cannot be written the study looks killed.
            with suppress(MixtreeError):
                status = "failed" if isinstance(error, Exception) else "stopped"
                self._note(status, f"{type(error).__name__}: {error}")
                if not self._raised:  # else the next process must know that nodes are still to be marked
                    self.storage.update(self.record.name, status=status)
            raise

    def _run(self) -> str:
        name = self.record.name
        self._group = getattr(self.trainer, "group", None)  # only now: it may depend on the engine
        self.states = States(self.trainer, self.storage.checkpoints(name))
        if self.states.checkpoints is not None:
            self.states.checkpoints.tidy()
        self._past = Past(self.storage, name)
        self._upkeep = Upkeep(self.states, self.search, self.tree, keep_all=self.limits.keep == "all")
        left_behind = self._past.supersede(self.search, raised=self._raised)
        for node in left_behind:
            self.tree.add(node)
            self.spent += node.steps
        self._untold = {node.path for node in left_behind}
        if self._raised:
            self.storage.update(name, status="running")
            self._raised = False
        sources = tuple(self.record.config["sources"])
        self._emit(StudyStarted(name, self.record.budget, self.spent, sources))
        with Interrupts() as interrupts:
            reason, left = self._rounds_until_done(self._started, interrupts)
        if self._recomputed >= _TOLD_AGAIN:
            self._warn(f"{self._recomputed} models in all were missing or damaged and were computed again")
        best = self._best()
        rule = str(getattr(self.search, "rule", "best"))
        status = "finished" if reason == FINISHED else "stopped"
        notes = tuple(map(str, getattr(self.search, "notes", ())))
        self.storage.update(name, status=status, best=best.path, rule=rule, notes=notes)
        if self.limits.keep == "best" and reason == FINISHED:
            self.states.keep_only([best.path])
        else:
            self._upkeep.sweep([best.path, *self._coming(left)])
        self._emit(StudyFinished(name, best, self.spent, reason))
        return reason

    def _best(self) -> Node:
        try:
            return self.search.best()
        except TrainingError as error:
            if not self._failed:
                raise
            raise TrainingError(
                f"{error}; {len(self._failed)} nodes failed because their worker died"
            ) from error

    def _rounds_until_done(self, started: float, interrupts: Interrupts) -> tuple[str, list[Trial]]:
        """Why it ended, and the round that was asked for but not begun."""
        replaying = bool(self._past.records)
        while True:
            trials = self.search.ask()
            if not trials:
                return FINISHED, []
            if not self._asked.trusted:
                self._check_asked(trials)
            known = self._past.evaluations(trials) if self._past.records else {}
            if len(known) < len(trials):
                if interrupts.pending:
                    raise self._interrupted()
                if self.limits.time_limit is not None and self._out_of_time(started, trials):
                    return "the time limit was reached", trials
                if replaying:
                    self._upkeep.sweep(self._coming(trials))
                    replaying = False
            self._run_round(trials, known)
            if not replaying:
                self._upkeep.after(trials)

    def _check_asked(self, trials: Sequence[Trial]) -> None:
        self._asked.check(trials, spent=self.spent, known=self.tree, begun=self._untold)
        if self._asked.on_target and ON_TARGET not in self.warnings:
            self._warn(ON_TARGET)

    def _coming(self, trials: Sequence[Trial]) -> list[Path]:
        """Models that the round now asked for continues, and done ones that were not asked for yet."""
        if not trials:
            return []
        done = [path for path in self._past.round_of if path not in self.tree or path in self._untold]
        return done + [trial.path[:-1] for trial in trials]

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
        how = "nothing was stored"
        if where and self.record.recipe is not None:
            how = f"resume it with: {shlex.join(['mixtree', 'resume', where, name])}"
        elif where:
            how = f"run it again with storage={where!r}, study={name!r}, resume=True and it goes on"
        return StudyInterrupted(
            f"study {name!r} stopped after {self.spent} of {self.record.budget} steps; {how}"
        )

    def _run_round(self, trials: list[Trial], known: dict[Path, Evaluation]) -> None:
        self._rounds += 1
        told = known
        if len(known) < len(trials):
            self._past.begin(trials)
            if self.listeners:
                self._emit(RoundAsked(self.record.name, self._rounds, tuple(trials)))
            if known:
                told = known | self._train([trial for trial in trials if trial.path not in known])
            else:
                told = self._train(trials)
        tell, best, loud = self.search.tell, self._best_value, bool(self.listeners)
        for trial in trials:
            path = trial.path
            evaluation = told[path]
            tell(trial, evaluation)
            if not self._keeps_tree:
                self.tree.add(as_node(trial, evaluation))
            if self._untold and path in self._untold:
                self._untold.discard(path)  # it was left behind, and charged, but is asked for after all
            else:
                self.spent += trial.steps
            if loud or not best <= evaluation.value < inf:  # else there is nothing to tell
                self._report(as_node(trial, evaluation), replayed=path in known)

    def _tasks(self, trials: Sequence[Trial]) -> list[Task]:
        """The work in pieces: by the trainer's groups, never by the number of workers, where numbers could
        depend on it."""
        fresh = () not in self._past.round_of
        if self._group is not None:
            return [Task(piece, fresh) for piece in self._past.pieces(trials, self._group)]
        if self.limits.workers > 1:
            return [Task((trial,), fresh) for trial in trials]
        return [Task(tuple(trials), fresh)]

    def _train(self, missing: Sequence[Trial]) -> dict[Path, Evaluation]:
        # A group may hold nodes that are done: they are trained along, and compared with what they were.
        wanted = None if self._group is None else {trial.path for trial in missing}
        evaluations: dict[Path, Evaluation] = {}
        restored: set[Path] = set()
        tasks = self._tasks(missing)
        while True:
            again: dict[Path, list[Task]] = {}
            for done in (self._executor or self._start_executor()).run(tasks):
                if done.lost is None:
                    evaluations |= self._take(done, wanted)
                else:
                    again.setdefault(done.lost, []).append(done.task)
            if not again:
                return evaluations
            if not restored.isdisjoint(again):
                raise StorageError(
                    f"the models of nodes {sorted(restored.intersection(again))} were computed again and "
                    "still cannot be read: worker processes need checkpoints that all of them can see"
                )
            for path in again:
                self._recompute(path)
            restored.update(again)
            tasks = [task for part in again.values() for task in part]

    def _take(self, done: Done, wanted: set[Path] | None) -> dict[Path, Evaluation]:
        """What a task has measured of the wanted nodes, written down."""
        trials, failed = done.task.trials, done.failure is not None
        if failed:
            self._warn(f"{done.failure}; it counts as worst and the study goes on")
            self._failed.update([trial.path for trial in trials])
            measured: Sequence[Evaluation] = [Evaluation(inf)] * len(trials)
        else:
            measured = done.evaluations
            if len(measured) != len(trials):
                raise SearchError(f"the trainer evaluated {len(measured)} of {len(trials)} models")
            if self.limits.time_limit is not None:
                self._steps_run += sum(trial.steps for trial in trials)
                self._seconds_run += done.seconds / self.limits.workers
        evaluations, plain = {}, self.objective is None and not self._strips
        for at, trial in enumerate(trials):
            each = measured[at]
            evaluations[trial.path] = each if plain and isfinite(each.value) else self._value(each)
        if wanted is not None:
            for path in evaluations.keys() - wanted:
                again = evaluations.pop(path)
                if not failed:
                    self._compare(path, again)
        if self._writes:
            status: NodeStatus = "failed" if failed else "done"
            share = done.seconds / len(trials)
            outcomes = [Outcome(path, each, status, share) for path, each in evaluations.items()]
            self.storage.finish(self.record.name, outcomes)
        return evaluations

    def _value(self, measured: Evaluation) -> Evaluation:
        if not isinstance(measured, Evaluation):
            raise SearchError(
                f"the trainer's evaluate gave a {type(measured).__name__} for a model: give "
                "mixtree.Evaluation(value, standard_error, predictions)"
            )
        evaluation = measured
        if not isfinite(measured.value):
            evaluation = replace(measured, value=inf)
        elif self.objective is not None:
            evaluation = self.objective(measured)
            if not isfinite(evaluation.value):
                evaluation = replace(evaluation, value=inf)
        if self._strips and evaluation.predictions is not None:
            return Evaluation(evaluation.value, evaluation.standard_error)
        return evaluation

    def _report(self, node: Node, *, replayed: bool) -> None:
        if node.value < self._best_value and (self._may_return is None or self._may_return(node)):
            self._best_value = node.value
        if self.listeners:
            self._emit(NodeEvaluated(self.record.name, node, self.spent, self._best_value, replayed))
        # A trial of step sizes is there to find out which of them diverge: no news for the user.
        if node.diverged and not replayed and node.path not in self._failed and node.phase != STEP_SIZE:
            message = (
                f"node {node.path} diverged within {node.steps} steps at {node.lr_scale:g} × the step size "
                f"{_step_size(self.trainer)}: its loss is not finite; it counts as worst and is not expanded"
            )
            self._warn(message)
            self._emit(NodeDiverged(self.record.name, node, message))

    # -- what was done before ----------------------------------------------------------------------------

    def model(self, path: Path) -> State:
        """A node's model, computed again if its checkpoint is gone."""
        try:
            return self.states.get(path)
        except CheckpointError:
            self._recompute(path)
            return self.states.get(path)

    def _recompute(self, path: Path) -> None:
        """Train a lost model once more from its nearest stored ancestor; its steps are not charged again."""
        runner = Runner(self.trainer, self.states, seed=self.record.seed, init_seed=self.record.init_seed)
        lost, again = [path], 0
        while lost:
            if lost[-1] not in self._past.round_of:
                raise StorageError(f"the model of node {lost[-1]} is lost and no trial made it")
            (task,) = self._tasks([self._past.trial(lost[-1])])
            done = runner.run(task)
            if done.lost is not None:
                if done.lost in lost:
                    raise StorageError(f"the models of nodes {lost} are lost, and each is made of another")
                lost.append(done.lost)
                continue
            lost.pop()
            again += 1
            for trial, measured in zip(task.trials, done.evaluations, strict=True):
                self._compare(trial.path, self._value(measured))
        # Ancestors stay until the end: the next lost model may well go on from one of them.
        self._recomputed += again
        if self._recomputed - again < _TOLD_AGAIN:
            more = f" and {again - 1} before it" if again > 1 else ""
            self._warn(f"the model of node {path}{more} was missing or damaged and was computed again")

    def _compare(self, path: Path, again: Evaluation) -> None:
        if path in self.tree and self.tree[path].value != again.value:
            raise StorageError(
                f"node {path} was computed again and scored {again.value!r} instead of "
                f"{self.tree[path].value!r}: another machine, other package versions or other data; the "
                "study cannot go on exactly"
            )

    # -- housekeeping ------------------------------------------------------------------------------------

    def _start_executor(self) -> Executor:
        seeds = {"seed": self.record.seed, "init_seed": self.record.init_seed}
        if self.limits.workers == 1:
            self._executor = SerialExecutor(Runner(self.trainer, self.states, **seeds))
        else:
            from mixtree.engine.executors.processes import ProcessExecutor

            self._executor = ProcessExecutor(
                self.trainer,
                self.states.on_disk(),
                workers=self.limits.workers,
                max_failures=self.limits.max_failures,
                **seeds,
            )
        return self._executor

    def close(self) -> None:
        """Let go of workers and temporary files, and tell listeners that want to know."""
        for listener in self.listeners:
            over = getattr(listener, "study_over", None)
            if over is not None:
                over()
        if self._executor is not None:
            self._executor.close()
        if hasattr(self, "states"):
            self.states.close()

    def _note(self, kind: str, message: str) -> None:
        self.storage.add_event(self.record.name, kind, said(message))

    def _warn(self, message: str) -> None:
        logger.warning("%s: %s", said(self.record.name), said(message))
        self.warnings.append(message)
        self._note("warning", message)
        self._emit(Warned(self.record.name, message))

    def _emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)


FINISHED = "the search has finished"
_TOLD_AGAIN = 10  # models computed again from which on they are only counted
ON_TARGET = (
    "the search trains on the target's own validation rows (one weight more than there are sources): values "
    "on those rows no longer say how good such a model is"
)


def _sizes(sources: Sources | None) -> dict[str, int]:
    if sources is None:
        return {}
    own = {name: len(rows) for name, rows in zip(sources.names, sources.rows, strict=True)}
    given = {name: rows for name, rows in own.items() if not name.startswith(FOLD)}
    return {**given, TARGET: len(sources.validation)}


def _step_size(trainer: Any) -> str:
    lr = getattr(trainer, "lr", None)
    return f"{lr:g}" if isinstance(lr, int | float) else "in use"
