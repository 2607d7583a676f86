"""The ledger that searches share: which trials are out, what came back, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixtree.errors import SearchError
from mixtree.search import SearchBase, as_node, check_budget
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Tree, Trial


class Ledger:
    """The bookkeeping that searches share: which trials are out, what came back, what it cost."""

    def __init__(self, budget: int) -> None:
        self.budget = check_budget(budget)
        self.spent = 0
        self.tree = Tree()
        self.adopted: dict[Path, Node] = {}
        self._out: dict[Path, int] = {}  # trials that are out, and their places in the round
        self._round: list[Any] = []  # the round's nodes, each in its place once it has arrived

    def hand_out(self, trials: list[Trial]) -> list[Trial]:
        """Charge a round and remember that it is out."""
        cost, out, adopted = 0, {}, self.adopted
        for place, trial in enumerate(trials):
            out[trial.path] = place
            if not adopted or not self._is_paid(trial):
                cost += trial.steps
        if len(out) < len(trials):
            raise SearchError("a path was asked for twice in one round: every trial needs one of its own")
        if self.spent + cost > self.budget:
            raise SearchError(f"a round of {cost} steps does not fit: {self.spent} of {self.budget} spent")
        self.spent += cost
        self._out, self._round = out, [None] * len(trials)
        return trials

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Charge nodes of an earlier run that this search may never ask for; asked for, they are free."""
        for node in nodes:
            self.adopted[node.path] = node
            self.tree.add(node)
            self.spent += node.steps

    def _is_paid(self, trial: Trial) -> bool:
        node = self.adopted.get(trial.path)
        return node is not None and node.steps == trial.steps

    def check_ready(self) -> None:
        if self._out:
            raise SearchError(f"tell the outcome of {len(self._out)} trials before asking for the next round")

    def record(self, trial: Trial, evaluation: Evaluation) -> list[Node]:
        """The round's nodes, in the order they were asked for, once its last outcome has arrived; else none.

        So nothing depends on the order of arrival.
        """
        place = self._out.pop(trial.path, None)
        if place is None:
            raise SearchError(f"trial {trial.path} was not asked for, or was told before")
        self._round[place] = as_node(trial, evaluation)
        if self._out:
            return []
        for node in self._round:
            self.tree[node.path] = node
        return self._round


class LedgerSearch(SearchBase):
    """A search that keeps its books in a ledger."""

    _ledger: Ledger

    @property
    def tree(self) -> Tree:  # type: ignore[override]
        return self._ledger.tree

    @property
    def budget(self) -> int:  # type: ignore[override]
        return self._ledger.budget

    @property
    def spent(self) -> int:  # type: ignore[override]
        return self._ledger.spent

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Take over nodes of an earlier run with a smaller budget: charged, not asked for again."""
        self._ledger.adopt(nodes)

    def keep_to(self, budget: int) -> None:
        """Spend no more than so many steps; before anything is asked for."""
        self._ledger.budget = check_budget(budget)
