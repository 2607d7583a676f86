"""After a search: its returned model goes on, on its own mixture, with a share of the budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any

from mixtree.errors import InputError, TrainingError
from mixtree.ledger import LedgerSearch
from mixtree.search import SEGMENTS, Around, as_node, in_segments
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Trial


def then_commit(
    search: LedgerSearch, share: float = 0.5, lr: float = 0.1, *, segments: int = SEGMENTS
) -> ThenCommit:
    """A search that leaves a share of its budget to continue the model that it returns.

    Parameters
    ----------
    search
        Spends the rest of its budget; what it cannot use goes to the commit too.
    share
        Of the budget. The paper's ``+0.1Step`` is half of it at 0.1 × the step size.
    lr
        × the step size.
    segments
        Parts of the commit, each a stored node.

    Returns
    -------
    ThenCommit
        A search of the whole budget; the one that was given keeps to its share from now on.

    Examples
    --------
    >>> from mixtree.partition import bisect, simplex_root
    >>> from mixtree.tree_search import TreeSearch
    >>> search = then_commit(TreeSearch(simplex_root(3), bisect, budget=2000, steps=50))
    >>> search.budget, search.inner.budget
    (2000, 1000)
    """
    return ThenCommit(search, share, lr, segments=segments)


class ThenCommit(Around):
    """See :func:`then_commit`."""

    def __init__(self, search: LedgerSearch, share: float, lr: float, *, segments: int) -> None:
        super().__init__(search)
        if not 0 <= share < 1:
            raise InputError(f"the commit share must be at least 0 and below 1; got {share}")
        if not (isfinite(lr) and lr > 0):
            raise InputError(f"the commit step size factor must be a finite number above 0; got {lr}")
        self._budget, self._share, self._lr, self._segments = search.budget, share, lr, segments
        # Rounded first: 1000·(1 − 0.9) is a bit less than 100 in floating point. A search needs a step.
        self._search = search
        search.keep_to(int(round(search.budget * (1.0 - share), 6)) or search.budget)
        self._coming: list[Trial] | None = None  # what is left of the commit, once the search is over
        self._committed: Node | None = None
        self._charged = 0  # by the commit, and by those of earlier runs with a smaller budget
        self._adopted: set[Path] = set()

    @property
    def budget(self) -> int:  # type: ignore[override]
        return self._budget

    @property
    def spent(self) -> int:  # type: ignore[override]
        return int(self.inner.spent) + self._charged

    @property
    def rule(self) -> str:  # type: ignore[override]
        """The rule that chose the returned node."""
        return f"commit of {self.inner.rule}" if self._committed is not None else str(self.inner.rule)

    def ask(self) -> list[Trial]:
        if self._coming is None:
            if trials := super().ask():
                return trials
            left = self._budget - self.spent
            if self.inner.unspent:  # then the commit keeps to its own share
                left = min(left, self._budget - self._search.budget)
            self._coming = self._commit(left)
        if not self._coming:
            return []
        self._charged += self._coming[0].steps
        return [self._coming.pop(0)]

    def _commit(self, left: int) -> list[Trial]:
        try:
            node = self.inner.best()
        except TrainingError:  # every model of the search diverged
            return []
        # An index that no cell's child has: the leaf can still be expanded when the budget is raised.
        index = max(2, len(node.mixture))
        while (*node.path, index) in self._adopted:
            index += 1
        stage = Trial((*node.path, index), node.mixture, left, lr_scale=self._lr, phase="commit")
        return in_segments(stage, self._segments) if left else []

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        if self._coming is None:
            super().tell(trial, evaluation)
            return
        node = as_node(trial, evaluation)
        if self.inner.tree is not None:
            self.inner.tree.add(node)
        self._committed = None if node.diverged else node
        if node.diverged:
            self._coming = []

    def best(self) -> Node:
        return self._committed or super().best()

    def needed(self, paths: Iterable[Path]) -> set[Path]:
        """Whose model may a later trial continue, or which may be returned?"""
        asked = set(paths)
        found: set[Path] = self.inner.needed(asked) if self.inner.needed else asked
        return found if self._committed is None else found | (asked & {self._committed.path})

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Take over nodes of an earlier run with a smaller budget: charged, never gone on from."""
        commits = [node for node in nodes if node.phase == "commit"]
        self._adopted.update(node.path for node in commits)
        self._charged += sum(node.steps for node in commits)
        # They may leave less than the search's own share.
        self._search.keep_to(max(1, min(self._search.budget, self._budget - self._charged)))
        if self.inner.tree is not None:
            for node in commits:
                self.inner.tree.add(node)
        if self.inner.adopt:
            self.inner.adopt([node for node in nodes if node.phase != "commit"])

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked; not the budget, which may be raised."""
        own = {"commit": self._share, "commit_lr": self._lr, "segments": self._segments}
        return {**self.inner.describe(), **own}
