"""The models of a running study: recent ones in memory, the rest in checkpoints."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
from numpy.typing import NDArray

from mixtree.errors import CheckpointError, SearchError
from mixtree.places import is_text
from mixtree.search import SearchBase
from mixtree.trainer import State, TrainerBase
from mixtree.tree import Path, Tree, Trial

if TYPE_CHECKING:
    from mixtree.storage.checkpoints import Checkpoints

MEMORY_LIMIT = 256 * 2**20
"""Bytes of models that a study keeps in memory; more go to disk, into a temporary folder if need be."""
_FILLED = 0.75  # of the memory, when room has been made


class Models(Generic[State]):
    """Models by path, least recently used ones on disk; memory stays bounded however many there are."""

    def __init__(
        self, trainer: TrainerBase[State], checkpoints: Checkpoints | None, *, limit: int | None = None
    ) -> None:
        self.checkpoints = checkpoints
        self._trainer, self._limit = trainer, MEMORY_LIMIT if limit is None else limit
        self._recent: dict[Path, tuple[State, int]] = {}  # the least recently used first
        self._bytes = 0
        self._sizes: dict[int, int] = {}
        self._spilled: set[Path] = set()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._temporary: Checkpoints | None = None

    def put(self, path: Path, state: State) -> None:
        """Keep a model; where the study has checkpoints it is on disk when this returns."""
        if self.checkpoints is None:
            if self._spilled and path in self._spilled:
                self._spilled.discard(path)
                self._spill().delete(path)
            size = self._sizes.get(len(path))
            if size is None:
                size = self._size(path, state)
        else:
            arrays = arrays_of(self._trainer, state)
            self.checkpoints.write(path, arrays)
            size = sum(array.nbytes for array in arrays.values())
        if path in self._recent:
            self._bytes -= self._recent.pop(path)[1]
        self._remember(path, state, size)

    def get(self, path: Path) -> State:
        """The model of this path; CheckpointError if it is gone."""
        kept = self._recent.pop(path, None)
        if kept is not None:
            self._recent[path] = kept
            return kept[0]
        if self.checkpoints is None and path not in self._spilled:
            raise CheckpointError(f"the model of node {path} is not in memory and there are no checkpoints")
        arrays = (self.checkpoints or self._spill()).read(path)
        state = self._trainer.load(arrays)
        self._remember(path, state, sum(array.nbytes for array in arrays.values()))
        return state

    def drop(self, path: Path) -> None:
        """Forget a model, on disk too."""
        kept = self._recent.pop(path, None)
        if kept is not None:
            self._bytes -= kept[1]
        if self.checkpoints is not None or path in self._spilled:
            (self.checkpoints or self._spill()).delete(path)
            self._spilled.discard(path)

    def keep_only(self, paths: Iterable[Path]) -> None:
        """Forget all models but these, on disk too, left-overs of earlier processes included."""
        kept = set(paths)
        for path in [*self._recent, *self._spilled]:
            if path not in kept:
                self.drop(path)
        if self.checkpoints is not None:
            self.checkpoints.keep_only(kept)

    def on_disk(self) -> Checkpoints:
        """Checkpoints that hold every model from now on, in a temporary folder if the study has none."""
        if self.checkpoints is None:
            self.checkpoints = self._spill()
            for path, (state, _) in self._recent.items():
                self.checkpoints.write(path, arrays_of(self._trainer, state))
            self._spilled.clear()
        return self.checkpoints

    def close(self) -> None:
        """Remove what was temporary."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _size(self, path: Path, state: State) -> int:
        # Models of one height have seen the same steps: measuring one of them is enough, and saving each only
        # to weigh it would cost as much as a short training.
        size = sum(array.nbytes for array in arrays_of(self._trainer, state).values())
        self._sizes[len(path)] = size
        return size

    def _remember(self, path: Path, state: State, size: int) -> None:
        self._recent[path] = (state, size)
        self._bytes += size
        if self._bytes > self._limit:
            self._make_room()

    def _make_room(self) -> None:
        # Many at once: looking for the oldest passes over all places that older ones have left.
        for path in list(self._recent)[:-1]:
            if self._bytes <= _FILLED * self._limit:
                return
            state, size = self._recent.pop(path)
            self._bytes -= size
            if self.checkpoints is None and path not in self._spilled:
                self._spill().write(path, arrays_of(self._trainer, state))
                self._spilled.add(path)

    def _spill(self) -> Checkpoints:
        from mixtree.storage.checkpoints import Checkpoints

        if self._temporary is None:
            self._folder = tempfile.TemporaryDirectory(prefix="mixtree-", ignore_cleanup_errors=True)
            self._temporary = Checkpoints(self._folder.name, "study")
        return self._temporary


def arrays_of(trainer: TrainerBase[State], state: State) -> dict[str, NDArray[Any]]:
    """A model as its trainer saves it."""
    arrays: Any = trainer.save(state)
    if not isinstance(arrays, Mapping) or not all(
        is_text(name) and isinstance(array, np.ndarray | np.generic) for name, array in arrays.items()
    ):
        raise SearchError(
            "a model is saved as {name: array}, numpy arrays under names that UTF-8 can hold; the "
            f"trainer's save returned {repr(arrays)[:80]}"
        )
    return dict(arrays)


class Upkeep:
    """Drops the models that nothing can need any more; a search without ``needed`` may need all of them."""

    def __init__(self, models: Models[Any], search: SearchBase, tree: Tree, *, keep_all: bool) -> None:
        self._models, self._tree = models, tree
        self._needed = None if keep_all else search.needed
        self._expanded: set[Path] = set()  # and kept: the best so far

    def after(self, trials: Sequence[Trial]) -> None:
        """Drop what a round has made useless."""
        if self._needed is None:
            return
        # Only this round's nodes and their parents can be, and the few that were kept as the best so far:
        # looking at every model in every round would be quadratic.
        expanded, asked = self._expanded, set()
        for trial in trials:
            path = trial.path
            asked.add(path)
            expanded.add(path[:-1])
        asked |= expanded
        useless = asked.difference(self._wanted(asked))
        for path in useless:
            if path in self._tree:
                self._models.drop(path)
        expanded -= useless

    def _wanted(self, paths: Collection[Path]) -> Iterable[Path]:
        assert self._needed is not None
        found: Iterable[Path] = self._needed(paths)
        if type(found) is not set and not isinstance(found, Iterable):
            raise SearchError(f"needed(paths) must return those of the paths that are needed; got {found!r}")
        return found

    def sweep(self, also: Iterable[Path]) -> None:
        """Drop all models but the needed ones and these, with what killed processes left behind."""
        if self._needed is None:
            return
        kept = set(self._wanted(self._tree))
        self._models.keep_only(kept.union(also))
        self._expanded = kept.intersection(path[:-1] for path in self._tree)
