"""What a study has done before: rows to answer from, rounds as they were begun, nodes left behind."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mixtree.data.fingerprint import differences
from mixtree.errors import StorageError
from mixtree.search import Search, Trial, as_node
from mixtree.storage.base import NodeRecord, Outcome, Storage, StudyRecord
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path

CHOOSES = "validation"
"""The setting that says which validation rows choose, where others are held out: the holdout's doing."""


def refuse_changes(
    then: StudyRecord, now: StudyRecord, *, allow_changed_data: bool, by_budget: Collection[str] = ()
) -> None:
    """A study goes on only with the settings and the data it began with; its budget may grow.

    And with it those of the search's settings that follow from it.
    """
    name = now.name
    # Names of sources that a trainer without rows gives were not always written down.
    named = {} if then.config.get("sources") else {"sources": now.config.get("sources")}
    if now.budget != then.budget:
        follows = dict.fromkeys(by_budget)
        then, now = (
            replace(each, config={**each.config, "search": {**each.config.get("search", {}), **follows}})
            for each in (then, now)
        )
    changed = differences(
        {"seed": then.seed, "init_seed": then.init_seed, **then.config, **named},
        {"seed": now.seed, "init_seed": now.init_seed, **now.config},
        leave_out=(CHOOSES,) if allow_changed_data or then.data != now.data else (),
    )
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
    if then.data != now.data and not allow_changed_data:
        raise StorageError(
            f"study {name!r} was started on other data ({then.data[:8]}, not {now.data[:8]}): "
            "bring the same rows in the same order, or allow changed data (allow_changed_data=True, "
            "--allow-changed-data) and answer for mixing the two"
        )


class Past:
    """The rounds of one study: those of earlier processes, and those that are begun now."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage, self._name = storage, name
        self._writes = getattr(storage, "keeps_rows", True)
        self.records = {record.trial.path: record for record in storage.nodes(name)}
        """The rows of earlier processes."""
        self._rounds: dict[int, list[Trial]] = {}
        self.round_of: dict[Path, int] = {}
        """The number of the round of every node that was begun, in this process or before."""
        for record in self.records.values():
            self._rounds.setdefault(record.round, []).append(record.trial)
            self.round_of[record.trial.path] = record.round
        self._next = max(self._rounds, default=-1) + 1

    def evaluations(self, trials: Sequence[Trial]) -> dict[Path, Evaluation]:
        """What these trials were measured at in an earlier process, of those that are done."""
        known = {trial.path: self._outcome(trial) for trial in trials}
        return {path: outcome.evaluation for path, outcome in known.items() if outcome is not None}

    def _outcome(self, trial: Trial) -> Outcome | None:
        record = self.records.get(trial.path)
        if record is None:
            return None
        if not _same(record.trial, trial):
            then = record.trial
            raise StorageError(
                f"study {self._name!r} cannot go on: node {trial.path} was asked for with {then.steps} "
                f"steps on {then.mixture.tolist()}, now with {trial.steps} on {trial.mixture.tolist()}. "
                "This search cannot continue at another budget: start a new study"
            )
        return record.outcome

    def begin(self, trials: Sequence[Trial]) -> None:
        """Write down, in one transaction, those trials of a round that were not written down before."""
        fresh = list(trials)
        if self.records:
            fresh = [trial for trial in trials if trial.path not in self.round_of]
        if not fresh:
            return
        # A number of its own: at a raised budget a round may get company that was not trained with it.
        number, round_of = self._next, self.round_of
        if self._writes:
            self._storage.begin_round(self._name, number, fresh)
        self._rounds[number] = fresh
        for trial in fresh:
            round_of[trial.path] = number
        self._next = number + 1

    def trial(self, path: Path) -> Trial:
        """The trial of a path."""
        return next(trial for trial in self._rounds[self.round_of[path]] if trial.path == path)

    def pieces(self, trials: Sequence[Trial], size: int) -> list[tuple[Trial, ...]]:
        """The rounds of these trials as they were begun, cut into pieces; those that hold one of them."""
        wanted = {trial.path for trial in trials}
        pieces = []
        for number in dict.fromkeys(self.round_of[trial.path] for trial in trials):
            together = self._rounds[number]
            for at in range(0, len(together), size):
                piece = tuple(together[at : at + size])
                if not wanted.isdisjoint(trial.path for trial in piece):
                    pieces.append(piece)
        return pieces

    # -- a raised budget ---------------------------------------------------------------------------------

    def supersede(self, search: Search, *, raised: bool) -> list[Node]:
        """Nodes that the search will not ask for again at a raised budget (an old commit) stay charged."""
        adopt = getattr(search, "adopt", None)
        if adopt is None:
            return []
        old = [each for each in self.records.values() if _status(each) == "superseded"]
        if raised:
            if getattr(search, "starts_over", False):
                left = [each for each in self.records.values() if _status(each) != "superseded"]
            else:
                left = self._not_asked_for(copy.deepcopy(search), old)
            done = [replace(each.outcome, status="superseded") for each in left if each.outcome]
            self._storage.finish(self._name, done)
            for outcome in done:
                self.records[outcome.path] = replace(self.records[outcome.path], outcome=outcome)
                old.append(self.records[outcome.path])
            for record in left:
                if record.outcome is None:  # begun and never finished: asked for again it begins anew
                    path = record.trial.path
                    del self.records[path]
                    self._rounds[self.round_of.pop(path)].remove(record.trial)
        nodes = [as_node(each.trial, each.outcome.evaluation) for each in old if each.outcome]
        if nodes:
            adopt(nodes)
        return nodes

    def _not_asked_for(self, rehearsal: Any, old: Sequence[NodeRecord]) -> list[NodeRecord]:
        """Ask a copy of the search for as long as the rows have answers; what is left over by then."""
        rehearsal.adopt([as_node(each.trial, each.outcome.evaluation) for each in old if each.outcome])
        asked = {each.trial.path for each in old}
        while trials := rehearsal.ask():
            records = [self.records.get(trial.path) for trial in trials]
            answers = []
            for trial, record in zip(trials, records, strict=True):
                if record is not None and _same(record.trial, trial):
                    asked.add(trial.path)
                    if record.outcome is not None:
                        answers.append((trial, record.outcome.evaluation))
            if len(answers) < len(trials):
                break
            for trial, evaluation in answers:
                rehearsal.tell(trial, evaluation)
        return [record for path, record in self.records.items() if path not in asked]


def _status(record: NodeRecord) -> str:
    return "pending" if record.outcome is None else record.outcome.status


def _same(one: Trial, two: Trial) -> bool:
    same = one.steps == two.steps and one.lr_scale == two.lr_scale and one.phase == two.phase
    one_part, two_part = (
        None if each is None else (each.stream, each.before, each.total)
        for each in (one.segment, two.segment)
    )
    return same and one_part == two_part and np.array_equal(one.mixture, two.mixture)
