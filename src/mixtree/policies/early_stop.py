"""Stop early: a tree search that ends once what it can still gain would drown in the noise of its values."""

from __future__ import annotations

from typing import Any

from mixtree.errors import InputError
from mixtree.policies.commit import ThenCommit
from mixtree.search import Around, Search, as_node
from mixtree.stats.selection_bias import Outlook, outlook
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Trial
from mixtree.tree_search import TreeSearch


def stop_early(search: Search) -> EarlyStop | ThenCommit:
    """The same search, ended as soon as it is not worth its steps; only tree searches can be."""
    if isinstance(search, ThenCommit):
        search.inner = stop_early(search.inner)
        return search
    if not isinstance(search, TreeSearch):
        raise InputError(
            "only a tree search can stop early: choose one of the mixmatch policies, or leave stop_early out"
        )
    return EarlyStop(search)


class EarlyStop(Around):
    """A tree search that is asked no further once :func:`mixtree.verdict.outlook` says stop.

    A function of what was told, so a study with it is as deterministic and resumable as the search is. What
    the search would have spent stays unspent.
    """

    def __init__(self, search: TreeSearch) -> None:
        super().__init__(search)
        self._seen: list[Node] = []  # in the order in which they were asked for, not of their arrival
        self._round: list[Path] = []
        self._told: dict[Path, Node] = {}
        self.stopped: Outlook | None = None
        """Why it stopped, if it did."""

    @property
    def rule(self) -> str:  # type: ignore[override]
        """The rule that chose the returned node."""
        return str(self.inner.rule) if self.stopped is None else f"{self.inner.rule}, stopped early"

    @property
    def unspent(self) -> int:  # type: ignore[override]
        return 0 if self.stopped is None else int(self.inner.budget - self.inner.spent)

    @property
    def notes(self) -> list[str]:  # type: ignore[override]
        """What was decided on the way, in words."""
        if self.stopped is None:
            return ["not stopped early: there was something to gain to the end"]
        return [f"stopped early after {len(self._seen)} nodes: what is left to gain is below the noise"]

    def ask(self) -> list[Trial]:
        if len(self._told) == len(self._round):  # else the search itself says what is missing
            self._seen += [self._told.pop(path) for path in self._round]
            self._round = []
            if self._seen and self.stopped is None:
                left = self.inner.budget - sum(node.steps for node in self._seen)
                seen = outlook(
                    [node.value for node in self._seen],
                    [node.standard_error for node in self._seen],
                    left=left // self._seen[-1].steps,
                )
                self.stopped = seen if seen.stop else None
        if self.stopped is not None:
            return []
        trials = super().ask()
        self._round = [trial.path for trial in trials]
        return trials

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        super().tell(trial, evaluation)
        self._told[trial.path] = as_node(trial, evaluation)

    def describe(self) -> dict[str, Any]:
        """The search's settings, and that it stops early."""
        return {**self.inner.describe(), "stop_early": True}
