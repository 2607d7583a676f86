"""Stop early: a tree search that ends once what it can still gain would drown in the noise of its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mixtree.errors import InputError
from mixtree.search import Search, Trial, as_node, in_segments
from mixtree.stats.selection_bias import Outlook, outlook
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Tree
from mixtree.tree_search import TreeSearch


def stop_early(search: Search) -> EarlyStop:
    """The same search, ended as soon as it is not worth its steps; only tree searches can be."""
    if not isinstance(search, TreeSearch):
        raise InputError(
            "only a tree search can stop early: choose one of the mixmatch policies, or leave stop_early out"
        )
    return EarlyStop(search)


class EarlyStop:
    """A tree search that is asked no further once :func:`mixtree.verdict.outlook` says stop.

    A function of what was told, so a study with it is as deterministic and resumable as the search is. The
    commit keeps its own share of the budget; what the search would have spent stays unspent.
    """

    def __init__(self, search: TreeSearch) -> None:
        self._search = search
        settings = search.describe()
        self._share, self._rate = float(settings["commit"]), float(settings["commit_lr"])
        self._segments = int(settings.get("segments", 1))
        self._seen: list[Node] = []  # in the order in which they were asked for, not of their arrival
        self._round: list[Path] = []
        self._told: dict[Path, Node] = {}
        self._adopted: set[Path] = set()
        self._extra = 0
        self._own: list[Trial] | None = None  # what is left of the commit
        self._committed: Node | None = None
        self.stopped: Outlook | None = None
        """Why it stopped, if it did."""

    @property
    def budget(self) -> int:
        return self._search.budget

    @property
    def spent(self) -> int:
        return self._search.spent + self._extra

    @property
    def tree(self) -> Tree:
        return self._search.tree

    @property
    def rule(self) -> str:
        """The rule that chose the returned node."""
        rule = f"commit of {self._search.rule}" if self._committed is not None else self._search.rule
        return rule if self.stopped is None else f"{rule}, stopped early"

    @property
    def notes(self) -> list[str]:
        """What was decided on the way, in words."""
        if self.stopped is None:
            return ["not stopped early: there was something to gain to the end"]
        return [f"stopped early after {len(self._seen)} nodes: what is left to gain is below the noise"]

    def ask(self) -> list[Trial]:
        if self.stopped is None and self._is_over():
            self._own = self._commit()
        if self.stopped is not None:
            return [self._own.pop(0)] if self._own else []
        trials = self._search.ask()
        self._round = [trial.path for trial in trials]
        return trials

    def _is_over(self) -> bool:
        if len(self._told) < len(self._round):
            return False  # the search itself says what is missing
        self._seen += [self._told.pop(path) for path in self._round]
        self._round = []
        if not self._seen or self._seen[-1].phase == "commit":
            return False
        left = self.budget * (1.0 - self._share) - sum(node.steps for node in self._seen)
        seen = outlook(
            [node.value for node in self._seen],
            [node.standard_error for node in self._seen],
            left=int(left // self._seen[-1].steps),
        )
        self.stopped = seen if seen.stop else None
        return self.stopped is not None

    def _commit(self) -> list[Trial]:
        node = self._search.best()
        self._extra = min(round(self.budget * self._share), self.budget - self._search.spent)
        if self._extra < 1:
            return []
        index = max(2, len(node.mixture))  # that no cell's child has
        while (*node.path, index) in self._adopted:
            index += 1
        path = (*node.path, index)
        commit = Trial(path, node.mixture, self._extra, lr_scale=self._rate, phase="commit")
        return in_segments(commit, self._segments)

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        node = as_node(trial, evaluation)
        if self._own is not None:
            self._committed = None if node.diverged else node
            if node.diverged:
                self._own = []
            return
        self._search.tell(trial, evaluation)
        self._told[trial.path] = node

    def best(self) -> Node:
        return self._committed or self._search.best()

    def needed(self, paths: Iterable[Path]) -> set[Path]:
        """Whose model may a later trial continue, or which may be returned?"""
        asked = set(paths)
        return self._search.needed(asked) | asked.intersection(
            () if self._committed is None else (self._committed.path,)
        )

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Take over nodes of an earlier run with a smaller budget."""
        self._adopted.update(node.path for node in nodes)
        self._search.adopt(nodes)

    def describe(self) -> dict[str, Any]:
        """The search's settings, and that it stops early."""
        return {**self._search.describe(), "stop_early": True}
