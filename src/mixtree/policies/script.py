"""Searches written as a script: a generator that yields rounds and gets their outcomes back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from mixtree.errors import SearchError, TrainingError
from mixtree.ledger import Ledger, LedgerSearch
from mixtree.search import ALL_DIVERGED
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Trial


@dataclass(frozen=True, eq=False, slots=True)
class Told:
    """A node with what was predicted for the validation rows."""

    node: Node
    predictions: NDArray[Any] | None


Script = Generator[list[Trial], dict[Path, Told], Node]


class Scripted(LedgerSearch, ABC):
    """A search written as a generator: it yields rounds and gets their outcomes back."""

    rule = "script"
    on_target = True
    uses_predictions = True

    def __init__(self, budget: int) -> None:
        self._ledger = Ledger(budget)
        self._told: dict[Path, Evaluation] = {}
        self._script: Script | None = None
        self._result: Node | None = None
        self._done = False
        self._useless: set[Path] = set()
        """Nodes that are neither continued nor returned: nobody needs their models."""

    @abstractmethod
    def script(self) -> Script:
        """Yield rounds of trials; return the chosen node."""

    def may_return(self, node: Node) -> bool:
        """May the node be returned if the script is stopped before its end?"""
        return True

    def needed(self, paths: Iterable[Path]) -> set[Path]:
        """Whose model may a later trial continue, or which may be returned?"""
        return set(paths) - self._useless

    @property
    def left(self) -> int:
        """Steps that nobody has asked for yet."""
        return self.budget - self.spent

    def ask(self) -> list[Trial]:
        self._ledger.check_ready()
        if self._done:
            return []
        try:
            if self._script is None:
                self._script = self.script()
                trials = next(self._script)
            else:
                told = {path: Told(self.tree[path], each.predictions) for path, each in self._told.items()}
                self._told = {}
                trials = self._script.send(told)
        except StopIteration as end:
            self._done, self._result = True, end.value
            return []
        return self._ledger.hand_out(trials)

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        self._told[trial.path] = evaluation
        self._ledger.record(trial, evaluation)

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
