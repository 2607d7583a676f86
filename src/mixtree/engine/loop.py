"""The loop of a study: ask, write the round down, train and evaluate, write down what came of it, tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Generic, Literal

from mixtree.engine.checks import Checked
from mixtree.engine.executors import Cluster, start_executor
from mixtree.engine.executors.base import Done, Executor, Group, Runner
from mixtree.engine.interrupts import Interrupts
from mixtree.engine.models import Models, Upkeep
from mixtree.engine.recompute import NAMED, compare, recompute
from mixtree.engine.reporting import Reporter
from mixtree.engine.resume import History
from mixtree.errors import InputError, SearchError, StorageError, StudyInterrupted, TrainingError
from mixtree.events import RoundAsked, StudyFinished
from mixtree.search import SearchBase, as_node
from mixtree.storage.base import Storage, StudyRecord
from mixtree.trainer import Evaluation, State, TrainerBase
from mixtree.tree import Node, NodeStatus, Path, Tree, Trial

Objective = Callable[[Evaluation], Evaluation]
"""What the search minimises, from what the trainer measured; by default the trainer's loss itself."""
FINISHED = "the search has finished"


@dataclass(frozen=True, slots=True)
class Limits:
    """How a study runs; none of it changes its numbers."""

    workers: int | Cluster = 1
    time_limit: float | None = None
    max_failures: int = 3
    keep: Literal["all", "frontier", "best"] = "frontier"
    keep_predictions: bool = False
    allow_changed_data: bool = False


class Loop(Generic[State]):
    """Runs one study's rounds to their end.

    A resumed study asks its search from the start and answers from the stored nodes as long as there are any:
    a search is deterministic, so that is where it was when it stopped.
    """

    def __init__(
        self,
        search: SearchBase,
        trainer: TrainerBase[State],
        storage: Storage,
        record: StudyRecord,
        *,
        check: Checked,
        limits: Limits,
        objective: Objective | None,
        reporter: Reporter,
    ) -> None:
        self.search, self.trainer, self.storage, self.record = search, trainer, storage, record
        self.limits, self.objective, self.reporter = limits, objective, reporter
        self.tree = Tree() if search.tree is None else search.tree
        self.spent = sum(search.charged.values())
        # Predictions that are not stored are not told either, or a resumed study would go another way;
        # searches that look at them say so.
        self._strips = not (limits.keep_predictions or search.uses_predictions)
        self._check, self._rounds = check, 0
        self._steps_run, self._seconds_run = 0, 0.0
        self.recomputed = 0
        """Models that were lost and trained again."""
        self.failed: set[Path] = set()
        """Nodes whose worker died."""
        self.history = History(storage, record.name)
        self._untold: set[Path] = set()  # nodes that were left behind, and charged
        self._group = trainer.group
        self.models = Models(trainer, storage.checkpoints(record.name))
        if self.models.checkpoints is not None:
            self.models.checkpoints.tidy()
        self._upkeep = Upkeep(self.models, search, self.tree, keep_all=limits.keep == "all")
        self.runner = Runner(trainer, self.models, seed=record.seed, init_seed=record.init_seed)
        self._executor: Executor | None = None

    def leave_behind(self, *, raised: bool) -> None:
        """Charge nodes that the search will not ask for again."""
        for node in self.history.leave_behind(self.search, raised=raised):
            self.tree.add(node)
            self.spent += node.steps
            self._untold.add(node.path)

    def run(self, since: float) -> str:
        """All rounds; why it ended. The time limit began at ``since``."""
        replaying = bool(self.history.nodes)
        with Interrupts() as interrupts:
            while True:
                trials = self.search.ask()
                if not trials:
                    return self._ended(FINISHED, [])
                told = self._check.check(trials, spent=self.spent, known=self.tree, begun=self._untold)
                if told is not None and told not in self.reporter.warnings:
                    self.reporter.warn(told)
                known = self.history.evaluations(trials) if self.history.nodes else {}
                if len(known) < len(trials):
                    if interrupts.pending:
                        raise StudyInterrupted(f"{self.spent} of {self.record.budget} steps")
                    # A round that would end after the limit is not begun; rounds before it say its pace.
                    pace = self._seconds_run / self._steps_run if self._steps_run else 0.0
                    ends = time.monotonic() - since + pace * sum(trial.steps for trial in trials)
                    if self.limits.time_limit is not None and self.tree and ends > self.limits.time_limit:
                        return self._ended("the time limit was reached", trials)
                    if replaying:
                        self._upkeep.sweep(self._coming(trials))
                        replaying = False
                self._run_round(trials, known)
                if not replaying:
                    self._upkeep.after(trials)

    def _run_round(self, trials: Sequence[Trial], known: dict[Path, Evaluation]) -> None:
        self._rounds += 1
        told = known
        if len(known) < len(trials):
            self.history.begin(trials)
            self.reporter.emit(RoundAsked(self.record.name, self._rounds, tuple(trials)))
            told = known | self._train([trial for trial in trials if trial.path not in known])
        for trial in trials:
            path, evaluation = trial.path, told[trial.path]
            self.search.tell(trial, evaluation)
            if self.search.tree is None:
                self.tree.add(as_node(trial, evaluation))
            if path in self._untold:
                self._untold.discard(path)  # it was left behind, and charged, but is asked for after all
            else:
                self.spent += trial.steps
            if self.reporter.listeners or not self.reporter.best <= evaluation.value < inf:
                self.reporter.evaluated(as_node(trial, evaluation), self, replayed=path in known)

    def _train(self, trials: Sequence[Trial]) -> dict[Path, Evaluation]:
        groups, fresh = self.groups(trials), () not in self.history.round_of
        wanted = {trial.path for trial in trials}
        evaluations: dict[Path, Evaluation] = {}
        restored: set[Path] = set()
        while groups:
            again: dict[Path, list[Group]] = {}
            for done in self._carried_out(groups, fresh=fresh):
                if done.lost is None:
                    evaluations |= self._take(done, wanted)
                else:
                    again.setdefault(done.lost, []).append(done.group)
            if not restored.isdisjoint(again):
                raise StorageError(
                    f"the models of nodes {sorted(restored.intersection(again))} were computed again and "
                    "still cannot be read: worker processes need checkpoints that all of them can see"
                )
            for path in again:
                recompute(self, path)
            restored.update(again)
            groups = [group for part in again.values() for group in part]
        return evaluations

    def _carried_out(self, groups: Sequence[Group], *, fresh: bool) -> Iterator[Done]:
        """What comes of groups. Looks are taken here: they cost less than sending them to a worker."""
        if self._executor is None:
            self._executor = start_executor(self.runner, self.models, self.limits)
        looks = [group for group in groups if not any(trial.steps for trial in group)]
        for group in looks:
            yield self.runner.run(group, fresh=fresh)
        if len(looks) < len(groups):
            yield from self._executor.run([group for group in groups if group not in looks], fresh=fresh)

    def groups(self, trials: Sequence[Trial]) -> list[Group]:
        """By the trainer's groups, never by the number of workers, where numbers could depend on it."""
        if self._group is not None:
            return self.history.groups(trials, self._group)
        alone = self.limits.workers != 1 and any(trial.steps for trial in trials)
        return [(trial,) for trial in trials] if alone else [tuple(trials)]

    def _take(self, done: Done, wanted: set[Path]) -> dict[Path, Evaluation]:
        """What a group has measured of the wanted nodes, written down; of others it is compared."""
        status: NodeStatus = "done"
        measured: Sequence[Evaluation] = done.evaluations
        if done.failure is not None:
            self.reporter.warn(f"{done.failure}; it counts as worst and the study goes on")
            self.failed.update(trial.path for trial in done.group)
            measured, status = [Evaluation(inf)] * len(done.group), "failed"
        elif len(measured) != len(done.group):
            raise SearchError(f"the trainer evaluated {len(measured)} of {len(done.group)} models")
        self._steps_run += sum(trial.steps for trial in done.group)
        self._seconds_run += done.seconds / (self._executor.workers if self._executor else 1)
        evaluations, rows = {}, []
        for trial, each in zip(done.group, measured, strict=True):
            evaluation = self.value(each)
            if trial.path in wanted:
                evaluations[trial.path] = evaluation
                if self.storage.keeps_rows:
                    seconds = done.seconds / len(done.group)
                    rows.append(self.history.row(trial, evaluation, status=status, seconds=seconds))
            elif status == "done":  # trained along with its group, and done before
                compare(self, trial.path, evaluation)
        if rows:
            self.storage.finish(self.record.name, rows)
        return evaluations

    def value(self, measured: Evaluation) -> Evaluation:
        """What is told to the search of what was measured."""
        evaluation = measured
        if self.objective is not None and isfinite(measured.value):
            evaluation = self.objective(measured)
        if not isfinite(evaluation.value):
            evaluation = replace(evaluation, value=inf)
        if self._strips and evaluation.predictions is not None:
            return Evaluation(evaluation.value, evaluation.standard_error)
        return evaluation

    def _ended(self, reason: str, left: Sequence[Trial]) -> str:
        """``left`` is the round that was asked for but not begun."""
        if self.recomputed >= NAMED:
            self.reporter.warn(f"{self.recomputed} models were missing or damaged and were computed again")
        try:
            best: object = self.search.best()
        except TrainingError as error:
            if not self.failed:
                raise
            died = f"{len(self.failed)} nodes failed because their worker died"
            raise TrainingError(f"{error}; {died}") from error
        if not isinstance(best, Node):
            raise InputError(f"{self._check.name} asked for nothing and returns nothing: no model to give")
        status, notes = "finished" if reason == FINISHED else "stopped", tuple(map(str, self.search.notes))
        end = {"status": status, "best": best.path, "rule": str(self.search.rule), "notes": notes}
        self.storage.update(self.record.name, **end)
        if self.limits.keep == "best" and reason == FINISHED:
            self.models.keep_only([best.path])
        else:
            self._upkeep.sweep([best.path, *self._coming(left)])
        self.reporter.emit(StudyFinished(self.record.name, best, self.spent, reason))
        return reason

    def _coming(self, trials: Sequence[Trial]) -> list[Path]:
        """Models that the round now asked for continues, and done ones that were not asked for yet."""
        if not trials:
            return []
        done = [path for path in self.history.round_of if path not in self.tree or path in self._untold]
        merged = [path for trial in trials if trial.merged is not None for path in trial.merged.paths]
        return done + merged + [trial.path[:-1] for trial in trials]

    def close(self) -> None:
        """Let go of workers and temporary files."""
        if self._executor is not None:
            self._executor.close()
        self.models.close()
