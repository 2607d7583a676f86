"""What all peers share: a search told as a script, the division of the budget, optional packages."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.errors import InputError, MissingExtraError, SearchError, TrainingError
from mixtree.policies.script import Rounds, Scripted
from mixtree.policies.setting import Setting
from mixtree.schedules import steps_at
from mixtree.search import ALL_DIVERGED, in_segments
from mixtree.simplex import Mixture, uniform_mixture
from mixtree.tree import Node, Path, Trial

_FEWEST = 8


@dataclass(frozen=True, slots=True)
class Division:
    """How a peer divides its budget, the same for all: first to find a mixture, the rest to train on it."""

    search: float = 0.4
    """Share of the budget that looks for the mixture."""
    decay: float = 0.5
    """Share of the training on the mixture that comes last, at the smaller step size."""
    decay_lr: float = 0.1
    """That step size, as a multiple of the full one."""

    def __post_init__(self) -> None:
        for name, share in (("search", self.search), ("decay", self.decay)):
            if not 0 <= share < 1:
                raise InputError(f"the {name} share of a budget must be at least 0 and below 1; got {share}")
        if not (isfinite(self.decay_lr) and self.decay_lr > 0):
            raise InputError(f"the last step size's factor must be finite and above 0; got {self.decay_lr}")


DIVISION = Division()


class Peer(Scripted):
    """A search that is written as a script; the bookkeeping, the final training and the result are here.

    The returned model is the last finite one of the training on the chosen mixture; if all of that diverged,
    the best model that was evaluated.
    """

    rule = "last"

    def __init__(
        self, setting: Setting, *, division: Division = DIVISION, options: dict[str, Any] | None = None
    ) -> None:
        self.name = type(self).__name__
        if setting.minimum is not None or setting.maximum is not None:
            raise InputError(f"{self.name} cannot keep minimum and maximum weights; leave them out")
        super().__init__(setting.budget)
        self._segments = setting.segments
        self._sources = len(setting.names)
        self._uniform = uniform_mixture(self._sources)
        self._division, self._seed = division, setting.seed
        # Rounded first: 1000·0.3 may be a bit less than 300 in floating point.
        self._search_budget = int(round(setting.budget * division.search, 6)) if self._sources > 1 else 0
        self._options = options or {}
        self._children: Counter[Path] = Counter()
        self._last: Node | None = None
        self._before: Node | None = None  # what the present stage of the final training went on from
        self._lowest: Node | None = None

    @abstractmethod
    def search(self) -> Rounds:
        """The whole search, the training on its mixture included."""

    def script(self) -> Rounds:
        yield from (self._continued() if self._ledger.adopted else self.search())

    def _advance(self, nodes: list[Node] | None) -> None:
        for node in nodes or ():
            if not node.diverged and (self._lowest is None or node.value < self._lowest.value):
                self._lowest = node
        super()._advance(nodes)

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Take over the nodes of an earlier run with a smaller budget: charged, and gone on from."""
        super().adopt(nodes)
        for node in nodes:
            self._children[node.path[:-1]] = max(
                self._children[node.path[:-1]], node.path[-1] + 1 if node.path else 0
            )
            if not node.diverged and (self._lowest is None or node.value < self._lowest.value):
                self._lowest = node

    def _continued(self) -> Rounds:
        """From the longest trained model of full step size on its mixture, with all that is left."""
        steps = self.tree.steps_behind
        calm = self._division.decay_lr
        usable = [
            node
            for node in self._ledger.adopted.values()
            if not node.diverged and all(each.lr_scale > calm for each in self.tree.lineage(node.path))
        ]
        if not usable:
            yield from self._finish(self._uniform)
            return
        stem = max(usable, key=lambda node: (steps[node.path], -node.value))
        yield from self._finish(stem.mixture, stem.path)

    def best(self) -> Node:
        node = self._last or self._lowest
        if node is None:
            if self.tree:
                raise TrainingError(ALL_DIVERGED)
            raise SearchError("nothing has been evaluated yet: ask, train and tell first")
        return self.tree[node.path]

    def needed(self, paths: Iterable[Path]) -> set[Path]:
        """Which are continued by the next round, or may be continued later or returned?"""
        coming = [trial.path[:-1] for trial in self._round]
        best = [node.path for node in (self._last, self._before, self._lowest) if node is not None]
        return set(paths).intersection(coming + best)

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked, apart from the budget."""
        return {
            "search": self.name,
            "sources": self._sources,
            "division": asdict(self._division),
            "seed": self._seed,
            **self._options,
        }

    def _random(self) -> np.random.Generator:
        return np.random.default_rng([self._seed, 3])

    def _trial(
        self, mixture: Mixture, steps: int, *, after: Path = (), lr: float = 1.0, phase: str = "search"
    ) -> Trial:
        """A trial that continues the model at ``after``, or the initial one."""
        index = self._children[after]
        self._children[after] += 1
        return Trial((*after, index), mixture, steps, lr_scale=lr, phase=phase)

    def _finish(self, mixture: Mixture, after: Path = ()) -> Rounds:
        """All that is left of the budget on one mixture: at full step size, then at the smaller one."""
        left = self.budget - self.spent
        last, stream = int(left * self._division.decay), None
        for steps, lr, phase in ((left - last, 1.0, "final"), (last, self._division.decay_lr, "decay")):
            if steps == 0:
                continue
            stage = self._trial(mixture, steps, after=after, lr=lr, phase=phase)
            stream = stage.path if stream is None else (*stream, 0)
            for trial in in_segments(stage, self._segments, stream=stream):
                (node,) = yield [trial]
                if node.diverged:
                    self._last = self._before
                    return
                self._last, after = node, node.path
            self._before = self._last

    def _finish_best(self) -> Rounds:
        """The final training of the best model so far on its own mixture; on uniform if there is none."""
        if self._lowest is None:
            yield from self._finish(self._uniform)
        else:
            yield from self._finish(self._lowest.mixture, self._lowest.path)

    def _trial_plan(self, setting: Setting, *, most: int = 40) -> tuple[int, int]:
        """How many trials, of how many steps each: a node's steps where that makes a sensible number."""
        fewest = max(_FEWEST, 2 * (self._sources + 1))
        wanted = self._search_budget // steps_at(setting.steps, 0)
        count = min(max(wanted, fewest), max(most, fewest), self._search_budget)
        return count, self._search_budget // count if count else 0


def optional(module: str, feature: str, *, extra: str = "peers") -> Any:
    """An optional package's module, or an error that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error


def filled(values: Sequence[float]) -> NDArray[np.float64]:
    """Values in which a diverged one counts as the worst finite one; all 0 if none is finite.

    >>> filled([1.0, float("inf"), 3.0])
    array([1., 3., 3.])
    """
    array = np.asarray(values, dtype=np.float64)
    finite = np.isfinite(array)
    return np.where(finite, array, array[finite].max()) if finite.any() else np.zeros(len(array))
