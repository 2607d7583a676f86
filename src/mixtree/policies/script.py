"""Searches written as a script: a generator that yields rounds and gets their nodes back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from dataclasses import replace

from mixtree.errors import SearchError, TrainingError
from mixtree.ledger import Ledger, LedgerSearch
from mixtree.search import ALL_DIVERGED
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Trial

Rounds = Generator[list[Trial], list[Node], None]
"""Yields rounds of trials and is sent each round's nodes, with predictions, in the order of its trials."""
Script = Generator[list[Trial], list[Node], Node]
"""The same, and returns the chosen node."""


class Scripted(LedgerSearch, ABC):
    """A search written as a generator; the bookkeeping is here."""

    rule = "script"
    on_target = True
    starts_over = True
    """At a raised budget it goes on from a trained model: its shares are shares of the budget."""

    def __init__(self, budget: int) -> None:
        self._ledger = Ledger(budget)
        self._told: dict[Path, Evaluation] = {}
        self._script: Script | Rounds | None = None
        self._round: list[Trial] = []  # the round that is out, or the next one
        self._result: Node | None = None
        self._useless: set[Path] = set()
        """Nodes that are neither continued nor returned: nobody needs their models."""

    @abstractmethod
    def script(self) -> Script | Rounds:
        """Yield rounds of trials; return the chosen node, or none where ``best`` knows."""

    def needed(self, paths: Iterable[Path]) -> set[Path]:
        """Whose model may a later trial continue, or which may be returned?"""
        return set(paths) - self._useless

    def may_return(self, node: Node) -> bool:
        """Whether ``best`` may return the node: nobody has kept the model of a look."""
        return not node.look

    @property
    def left(self) -> int:
        """Steps that nobody has asked for yet."""
        return self.budget - self.spent

    def ask(self) -> list[Trial]:
        self._ledger.check_ready()
        if self._script is None:
            self._script = self.script()
            self._advance(None)
        return self._ledger.hand_out(self._round)

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        if self.uses_predictions:
            self._told[trial.path] = evaluation
        nodes = self._ledger.record(trial, evaluation)
        if nodes:
            told, self._told = self._told, {}
            self._advance(
                [replace(node, predictions=told[node.path].predictions) for node in nodes] if told else nodes
            )

    def _advance(self, nodes: list[Node] | None) -> None:
        """On to the script's next round, or to its end."""
        assert self._script is not None
        try:
            self._round = next(self._script) if nodes is None else self._script.send(nodes)
        except StopIteration as end:
            self._round = []
            self._result = end.value if end.value is None else self.tree[end.value.path]

    def best(self) -> Node:
        if self._result is not None and not self._result.diverged:
            return self._result
        finite = [
            node
            for node in self.tree.values()
            if not node.diverged and node.path not in self._useless and self.may_return(node)
        ]
        if not finite:
            if self.tree:
                raise TrainingError(ALL_DIVERGED)
            raise SearchError("nothing has been evaluated yet: ask, train and tell first")
        return min(finite, key=lambda node: node.value)
