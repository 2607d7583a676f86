"""Trials and the tree of nodes they become. A node is known by its path from the root: (), (0,), (0, 1) …"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from math import inf, isfinite, nan
from typing import Any, Literal

from numpy.typing import NDArray

from mixtree.bounds import Optimism
from mixtree.simplex import Cell, Mixture, value

Path = tuple[int, ...]


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
class Merge:
    """A weighted mean of models of the tree."""

    paths: tuple[Path, ...]
    """Whose models."""
    weights: tuple[float, ...]
    """One for each, together 1."""


@value
class Trial:
    """What a search asks for: continue the model of ``path[:-1]`` on this mixture for so many steps.

    A trial of 0 steps is a *look*: the merged model is evaluated, and neither trained nor kept.

    Parameters
    ----------
    path
        Where the new node stands in the tree; ``()`` is the root, which starts from the initial model.
    mixture
        One weight per source; one more for the target's own rows.
    steps
        SGD steps.
    lr_scale
        × the trainer's step size.
    phase
        A label for reports.
    segment
        Which part of a longer stage it is.
    merged
        The models whose mean it starts from, in place of the model of ``path[:-1]``.

    Examples
    --------
    >>> import numpy as np
    >>> Trial((0,), np.array([0.75, 0.25]), steps=20).phase
    'search'
    """

    path: Path
    mixture: Mixture
    steps: int
    lr_scale: float = 1.0
    phase: str = "search"
    segment: Segment | None = None
    merged: Merge | None = None


NodeStatus = Literal["pending", "done", "failed", "superseded"]
"""Superseded: an old commit, say, that a search with a raised budget has left behind; still charged."""


@value
class Node:
    """A model of the tree: its parent's model, continued on its own mixture. A study stores one row per node.

    Parameters
    ----------
    path, mixture, steps, lr_scale, phase, segment, merged
        Those of its trial.
    value
        What the search minimises; +inf for a model that diverged, NaN while it is pending.
    standard_error
        Of the value; NaN where it is not known.
    status
        Pending until it is evaluated.
    seconds
        What training and evaluating it took.
    round
        The number of the round in which it was asked for.
    predictions
        Of the validation rows, where they are kept.

    Examples
    --------
    >>> import numpy as np
    >>> node = Node((0, 1), np.array([0.2, 0.8]), steps=20, value=0.6)
    >>> node.height, node.diverged
    (2, False)
    """

    path: Path
    mixture: Mixture
    steps: int
    value: float = nan
    standard_error: float = nan
    lr_scale: float = 1.0
    phase: str = "search"
    segment: Segment | None = None
    status: NodeStatus = "done"
    seconds: float = 0.0
    round: int = 0
    predictions: NDArray[Any] | None = None
    merged: Merge | None = None

    @property
    def height(self) -> int:
        return len(self.path)

    @property
    def diverged(self) -> bool:
        return not isfinite(self.value)

    @property
    def look(self) -> bool:
        """A merged model that was evaluated only: nobody has kept it."""
        return self.steps == 0

    @property
    def unfinished(self) -> bool:
        """A segment of a stage that goes on after it."""
        segment = self.segment
        return segment is not None and segment.before + self.steps < segment.total

    @property
    def trial(self) -> Trial:
        """What was asked for."""
        return Trial(
            self.path, self.mixture, self.steps, self.lr_scale, self.phase, self.segment, self.merged
        )


def pending(trial: Trial, number: int) -> Node:
    """The node that a trial of this round will be, before it is evaluated."""
    return Node(
        trial.path,
        trial.mixture,
        trial.steps,
        lr_scale=trial.lr_scale,
        phase=trial.phase,
        segment=trial.segment,
        merged=trial.merged,
        status="pending",
        round=number,
    )


class Tree(dict[Path, Node]):
    """All evaluated nodes by their paths, in the order in which they were evaluated.

    Examples
    --------
    >>> import numpy as np
    >>> tree = Tree()
    >>> tree.add(Node((), np.array([0.5, 0.5]), 20, 0.7, phase="root"))
    >>> tree.add(Node((1,), np.array([0.9, 0.1]), 30, 0.6, phase="search"))
    >>> tree.spent, tree.depth, tree.steps_behind[(1,)]
    ({'root': 20, 'search': 30}, 1, 50)
    """

    def add(self, node: Node) -> None:
        """Put a node at its path."""
        self[node.path] = node

    @property
    def spent(self) -> dict[str, int]:
        """Steps by phase."""
        phases: Counter[str] = Counter()
        for node in self.values():
            if node.steps:  # looks are free
                phases[node.phase] += node.steps
        return dict(phases)

    @property
    def depth(self) -> int:
        """Greatest height of a node."""
        return max((len(path) for path in self), default=0)

    @property
    def steps_behind(self) -> dict[Path, int]:
        """Of every node, the steps that its model has taken since it was a new one."""
        taken: dict[Path, int] = {}
        for path in sorted(self, key=len):  # a model that an earlier run left may stand before its parent
            taken[path] = self[path].steps + (taken.get(path[:-1], 0) if path else 0)
        return taken

    def lineage(self, path: Path) -> list[Node]:
        """The evaluated nodes from the root to this path: what the model there was trained on, in order."""
        prefixes = (path[:height] for height in range(len(path) + 1))
        return [self[prefix] for prefix in prefixes if prefix in self]


class Frontier:
    """Leaves that wait to be expanded: one heap per height, so that optimism may change at any time.

    The best leaf of a height is the one of smallest value whatever ν is now: only one bound per height has to
    be kept, and looked at.
    """

    def __init__(self, optimism: Optimism) -> None:
        self._optimism = optimism
        self._margins: list[float] = []  # by height: how far a bound lies below its value
        self._heaps: list[list[tuple[float, int, Path, Cell]]] = []  # by height
        self._bounds: list[float] = []  # of every height's best leaf; +inf without leaves
        self._created = 0
        self.paths: set[Path] = set()
        """The leaves, in no order."""

    @property
    def optimism(self) -> Optimism:
        return self._optimism

    @optimism.setter
    def optimism(self, changed: Optimism) -> None:
        self._optimism = changed
        self._margins = [changed.margin(height) for height in range(len(self._heaps))]
        self._bounds = [
            heap[0][0] - margin if heap else inf
            for heap, margin in zip(self._heaps, self._margins, strict=True)
        ]

    def push(self, path: Path, value: float, cell: Cell) -> None:
        height = len(path)
        while height >= len(self._heaps):
            self._margins.append(self._optimism.margin(len(self._heaps)))
            self._heaps.append([])
            self._bounds.append(inf)
        heap, leaf = self._heaps[height], (value, self._created, path, cell)
        heappush(heap, leaf)
        if heap[0] is leaf:
            self._bounds[height] = value - self._margins[height]
        self._created += 1
        self.paths.add(path)

    def pop(self) -> tuple[Path, Cell] | None:
        """Take the leaf of smallest bound; ties go to the smaller height, then to the older leaf."""
        if not self.paths:
            return None
        bounds = self._bounds
        height = bounds.index(min(bounds))
        heap = self._heaps[height]
        _, _, path, cell = heappop(heap)
        bounds[height] = heap[0][0] - self._margins[height] if heap else inf
        self.paths.remove(path)
        return path, cell

    def drop(self, height: int) -> list[Path]:
        """Give up all leaves of a height."""
        if height >= len(self._heaps):
            return []
        paths = [path for _, _, path, _ in self._heaps[height]]
        self._heaps[height], self._bounds[height] = [], inf
        self.paths.difference_update(paths)
        return paths

    def heights(self) -> list[int]:
        """Those that have leaves."""
        return [height for height, heap in enumerate(self._heaps) if heap]
