"""The tree of evaluated nodes. A node is known by its path from the root: (), (0,), (0, 1) …"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite

from mixtree.bounds import Bound
from mixtree.simplex import Mixture

Path = tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """A trained and evaluated model: its parent's model, continued on its own mixture for its own steps."""

    path: Path
    mixture: Mixture
    steps: int
    value: float
    standard_error: float = float("nan")
    lr_scale: float = 1.0
    phase: str = "search"

    @property
    def height(self) -> int:
        return len(self.path)

    @property
    def diverged(self) -> bool:
        return not isfinite(self.value)


class Tree(Mapping[Path, Node]):
    """All evaluated nodes in the order in which they were evaluated."""

    def __init__(self) -> None:
        self._nodes: dict[Path, Node] = {}

    def add(self, node: Node) -> None:
        self._nodes[node.path] = node

    def __contains__(self, path: object) -> bool:
        return path in self._nodes

    def __getitem__(self, path: Path) -> Node:
        return self._nodes[path]

    def __iter__(self) -> Iterator[Path]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def spent(self) -> dict[str, int]:
        """Steps by phase."""
        phases: Counter[str] = Counter()
        for node in self._nodes.values():
            phases[node.phase] += node.steps
        return dict(phases)

    @property
    def depth(self) -> int:
        """Greatest height of a node."""
        return max((len(path) for path in self._nodes), default=0)

    def lineage(self, path: Path) -> list[Node]:
        """The evaluated nodes from the root to this path: what the model there was trained on, in order."""
        prefixes = (path[:height] for height in range(len(path) + 1))
        return [self._nodes[prefix] for prefix in prefixes if prefix in self._nodes]


class Frontier:
    """Leaves that wait to be expanded: one heap per height, so that optimism may change at any time.

    A bound does not fall when the value rises, so the best leaf of a height is the one of smallest value
    whatever ν is now; choosing among the heights costs one look per height.
    """

    def __init__(self) -> None:
        self._heaps: dict[int, list[tuple[float, int, Path]]] = {}
        self._heights: list[int] = []  # those with leaves, in order
        self._created = 0
        self._members: set[Path] = set()

    def push(self, path: Path, value: float) -> None:
        height = len(path)
        if (heap := self._heaps.get(height)) is None:
            heap = self._heaps[height] = []
            insort(self._heights, height)
        heapq.heappush(heap, (value, self._created, path))
        self._created += 1
        self._members.add(path)

    def pop(self, bound: Bound) -> Path | None:
        """Take the leaf of smallest bound; ties go to the smaller height, then to the older leaf."""
        best_height, best_bound = -1, inf
        for height in self._heights:
            optimistic = bound(self._heaps[height][0][0], height)
            if best_height < 0 or optimistic < best_bound:
                best_height, best_bound = height, optimistic
        if best_height < 0:
            return None
        heap = self._heaps[best_height]
        path = heapq.heappop(heap)[2]
        if not heap:
            self._close(best_height)
        self._members.discard(path)
        return path

    def drop(self, height: int) -> list[Path]:
        """Give up all leaves of a height."""
        paths = [path for _, _, path in self._heaps.get(height, [])]
        if paths:
            self._close(height)
        self._members.difference_update(paths)
        return paths

    def _close(self, height: int) -> None:
        del self._heaps[height]
        self._heights.remove(height)

    def __contains__(self, path: object) -> bool:
        return path in self._members

    def __len__(self) -> int:
        return len(self._members)

    def heights(self) -> list[int]:
        return list(self._heights)
