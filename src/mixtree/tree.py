"""The tree of evaluated nodes. A node is known by its path from the root: (), (0,), (0, 1) …"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from math import inf, isfinite

from mixtree.bounds import Optimism
from mixtree.simplex import Cell, Mixture
from mixtree.values import value

Path = tuple[int, ...]


@value
class Node:
    """A trained and evaluated model: its parent's model, continued on its own mixture for its own steps."""

    path: Path
    mixture: Mixture
    steps: int
    value: float
    standard_error: float = float("nan")
    lr_scale: float = 1.0
    phase: str = "search"
    unfinished: bool = False
    """A segment of a stage that goes on after it."""

    @property
    def height(self) -> int:
        return len(self.path)

    @property
    def diverged(self) -> bool:
        return not isfinite(self.value)


class Tree(dict[Path, Node]):
    """All evaluated nodes by their paths, in the order in which they were evaluated."""

    def add(self, node: Node) -> None:
        self[node.path] = node

    @property
    def spent(self) -> dict[str, int]:
        """Steps by phase."""
        phases: Counter[str] = Counter()
        for node in self.values():
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
