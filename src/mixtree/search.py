"""Ask and tell: the Search protocol, trials and their segments, the ledger that searches share."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from mixtree.errors import InputError, SearchError
from mixtree.simplex import Mixture
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Tree
from mixtree.values import value


@value
class Segment:
    """Which part of a longer stage a trial is."""

    stream: Path
    """Where the stage would be if no stage were cut: its random numbers come from that path."""
    before: int
    """Steps of the stage that are behind."""
    total: int
    """Steps of the whole stage."""


@value
class Trial:
    """Continue the model of ``path[:-1]`` on this mixture for so many steps."""

    path: Path
    mixture: Mixture
    steps: int
    lr_scale: float = 1.0
    phase: str = "search"
    segment: Segment | None = None


SEGMENTS, LEAST_SEGMENT = 20, 50
"""Parts of a long stage, and the fewest steps that one of them takes."""


def in_segments(trial: Trial, segments: int = SEGMENTS, *, stream: Path | None = None) -> list[Trial]:
    """A long stage as trials that continue one another, so that it can be watched, stopped and resumed.

    They train the model that the one trial would have trained, at ``stream`` if stages above it are cut.

    >>> stage = Trial((3,), np.array([1.0]), 150)
    >>> [(each.path, each.steps) for each in in_segments(stage)]
    [((3,), 50), ((3, 0), 50), ((3, 0, 0), 50)]
    """
    count = max(1, min(segments, trial.steps // LEAST_SEGMENT))
    stream = trial.path if stream is None else stream
    if count == 1 and stream == trial.path:
        return [trial]
    edges = [trial.steps * number // count for number in range(count + 1)]
    return [
        Trial(
            (*trial.path, *(0,) * number),
            trial.mixture,
            after - before,
            trial.lr_scale,
            trial.phase,
            Segment(stream, before, trial.steps),
        )
        for number, (before, after) in enumerate(pairwise(edges))
    ]


STEP_SIZE = "step size"
"""The phase of trials that find out which step size is good."""


@runtime_checkable
class Search(Protocol):
    """A way to spend a budget: the paper's tree search, a baseline, a policy of one's own.

    A search is deterministic: the same tells give the same asks. That is what makes a study resumable.
    What only some searches have is optional, found by name:

    - ``needed(paths) -> set`` — those of these paths whose models a later trial may continue, or ``best``
      return. A study keeps all models of a search without it.
    - ``budget``, ``rule`` — for reports; ``charged`` — steps spent before the first round, by purpose.
    - ``describe()`` — the settings that decide what is asked, as plain data; part of a study's fingerprint.
    - ``adopt(nodes)`` — take over nodes of an earlier run with a smaller budget: charged, not asked again.
      ``starts_over = True`` — at a raised budget it asks for none of its earlier rounds again.
    - ``uses_predictions = True`` — ``tell`` looks at predictions, so a study must store them to be resumable.
    """

    def ask(self) -> list[Trial]:
        """The next round; empty when the search has finished."""

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        """The outcome of one trial of the round."""

    def best(self) -> Node:
        """The node to return if the search ended now."""


MOST_STEPS = 10**12
"""Of a budget: at a millionth of a second a step they would take eleven days."""


def check_budget(budget: int) -> int:
    """A budget as a number of SGD steps, or an error that says why it is none."""
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
        raise InputError(f"the budget must be a whole number of SGD steps; got {budget!r}")
    if budget < 1:
        raise InputError(f"the budget must be at least 1 SGD step; got {budget}")
    if budget > MOST_STEPS:
        raise InputError(f"the budget must be at most {MOST_STEPS:,} SGD steps; got {budget}")
    return int(budget)


def as_node(trial: Trial, evaluation: Evaluation) -> Node:
    """A trial and what came of it as a node; a value that is not finite becomes +inf: diverged."""
    value, segment = evaluation.value, trial.segment
    return Node(
        trial.path,
        trial.mixture,
        trial.steps,
        value if isfinite(value) else inf,
        evaluation.standard_error,
        trial.lr_scale,
        trial.phase,
        segment is not None and segment.before + trial.steps < segment.total,
    )


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

    @property
    def settled(self) -> bool:
        """No trial is out."""
        return not self._out


class Accounted:
    """A search that keeps its books in a ledger."""

    _ledger: Ledger

    @property
    def tree(self) -> Tree:
        return self._ledger.tree

    @property
    def budget(self) -> int:
        return self._ledger.budget

    @property
    def spent(self) -> int:
        return self._ledger.spent


def is_built_in(search: object) -> TypeGuard[Accounted]:
    """Whether it is one of this package's own, whose books are known to be right; a subclass may be not."""
    return isinstance(search, Accounted) and type(search).__module__.partition(".")[0] == "mixtree"


ALL_DIVERGED = (
    "every model diverged (its validation loss is not finite): use a smaller step size, "
    "or scale the features (and the labels of a regression) to mean 0 and standard deviation 1"
)
