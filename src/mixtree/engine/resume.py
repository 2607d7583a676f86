"""What a study has done before: nodes to answer from, rounds as they were begun, nodes left behind."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mixtree.errors import StorageError
from mixtree.search import SearchBase, as_node
from mixtree.storage.base import Storage
from mixtree.trainer import Evaluation
from mixtree.tree import Node, NodeStatus, Path, Trial


class History:
    """The rounds of one study: those of earlier processes, and those that are begun now."""

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage, self._name = storage, name
        self.nodes = {node.path: node for node in storage.nodes(name)}
        """Those of earlier processes; pending ones were begun and never finished."""
        self._rounds: dict[int, list[Trial]] = {}
        self.round_of: dict[Path, int] = {}
        """The number of the round of every node that was begun, in this process or before."""
        for node in self.nodes.values():
            self._rounds.setdefault(node.round, []).append(node.trial)
            self.round_of[node.path] = node.round
        self._next = max(self._rounds, default=-1) + 1

    def evaluations(self, trials: Sequence[Trial]) -> dict[Path, Evaluation]:
        """What these trials were measured at in an earlier process, of those that are done."""
        known = {}
        for trial in trials:
            node = self.nodes.get(trial.path)
            if node is None:
                continue
            if not _same(node, trial):
                raise StorageError(
                    f"study {self._name!r} cannot go on: node {trial.path} was asked for with {node.steps} "
                    f"steps on {node.mixture.tolist()}, now with {trial.steps} on {trial.mixture.tolist()}. "
                    "This search cannot continue at another budget: start a new study"
                )
            if node.status != "pending":
                known[trial.path] = _evaluation(node)
        return known

    def begin(self, trials: Sequence[Trial]) -> None:
        """Write down, in one transaction, those trials of a round that were not written down before."""
        fresh = list(trials)
        if self.nodes:
            fresh = [trial for trial in trials if trial.path not in self.round_of]
        if not fresh:
            return
        # A number of its own: at a raised budget a round may get company that was not trained with it.
        number, round_of = self._next, self.round_of
        if self._storage.keeps_rows:
            self._storage.begin_round(self._name, number, fresh)
        self._rounds[number] = fresh
        for trial in fresh:
            round_of[trial.path] = number
        self._next = number + 1

    def row(self, trial: Trial, evaluation: Evaluation, *, status: NodeStatus, seconds: float) -> Node:
        """What came of a trial that was begun, as it is stored."""
        return replace(
            as_node(trial, evaluation),
            status=status,
            seconds=seconds,
            round=self.round_of[trial.path],
            predictions=evaluation.predictions,
        )

    def trial(self, path: Path) -> Trial:
        """The trial of a path."""
        return next(trial for trial in self._rounds[self.round_of[path]] if trial.path == path)

    def groups(self, trials: Sequence[Trial], size: int) -> list[tuple[Trial, ...]]:
        """The rounds of these trials as they were begun, cut into groups; those that hold one of them."""
        wanted = {trial.path for trial in trials}
        groups = []
        for number in dict.fromkeys(self.round_of[trial.path] for trial in trials):
            together = self._rounds[number]
            for at in range(0, len(together), size):
                group = tuple(together[at : at + size])
                if not wanted.isdisjoint(trial.path for trial in group):
                    groups.append(group)
        return groups

    def leave_behind(self, search: SearchBase, *, raised: bool) -> list[Node]:
        """Nodes that the search will not ask for again at a raised budget (an old commit) stay charged."""
        if search.adopt is None:
            return []
        old = [node for node in self.nodes.values() if node.status == "superseded"]
        if raised:
            left = [node for node in self.nodes.values() if node.status != "superseded"]
            if not search.starts_over:
                asked = self._asked_again(copy.deepcopy(search), old)
                left = [node for node in left if node.path not in asked]
            done = [replace(node, status="superseded") for node in left if node.status != "pending"]
            self._storage.finish(self._name, done)
            for node in done:
                self.nodes[node.path] = node
                old.append(node)
            for node in left:
                if node.status == "pending":  # asked for again it begins anew
                    del self.nodes[node.path]
                    begun = self._rounds[self.round_of.pop(node.path)]
                    begun[:] = [trial for trial in begun if trial.path != node.path]
        if old:
            search.adopt(old)
        return old

    def _asked_again(self, rehearsal: SearchBase, old: Sequence[Node]) -> set[Path]:
        """What a copy of the search asks for, for as long as the stored nodes have answers."""
        assert rehearsal.adopt is not None
        rehearsal.adopt(old)
        asked: set[Path] = set()
        while trials := rehearsal.ask():
            answers = []
            for trial in trials:
                node = self.nodes.get(trial.path)
                if node is not None and _same(node, trial):
                    asked.add(trial.path)
                    if node.status != "pending":
                        answers.append((trial, _evaluation(node)))
            if len(answers) < len(trials):
                break
            for trial, evaluation in answers:
                rehearsal.tell(trial, evaluation)
        return asked


def _evaluation(node: Node) -> Evaluation:
    return Evaluation(node.value, node.standard_error, node.predictions)


def _same(node: Node, trial: Trial) -> bool:
    same = node.steps == trial.steps and node.lr_scale == trial.lr_scale and node.phase == trial.phase
    one, two = (
        None if each is None else (each.stream, each.before, each.total)
        for each in (node.segment, trial.segment)
    )
    three, four = (
        None if each is None else (each.paths, each.weights) for each in (node.merged, trial.merged)
    )
    return same and one == two and three == four and np.array_equal(node.mixture, trial.mixture)
