"""Which rows a node trains on: drawn from its mixture in one block, reproducible from its seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mixtree.data.allocation import with_target
from mixtree.errors import InputError
from mixtree.simplex import Mixture


@dataclass(frozen=True, eq=False, slots=True)
class Cursor:
    """How far a model has read in every source; it travels with the model.

    ``drawn`` counts the rows that were drawn per source; ``order`` seeds the shuffles of a model that reads
    without replacement. ``random`` is a library's own random stream inside an unfinished stage.
    """

    drawn: NDArray[np.int64]
    order: int
    random: NDArray[np.generic] | None = None


def furthest(cursors: Sequence[Cursor]) -> Cursor:
    """The cursor of merged models: as far in every source as any of them has read."""
    return Cursor(np.max([each.drawn for each in cursors], axis=0), cursors[0].order)


class Sampler:
    """Draws rows of K sources, laid one after the other in one table, by a mixture's weights."""

    def __init__(self, sizes: Sequence[int] | NDArray[np.int64], *, replacement: bool = True) -> None:
        self.sizes = np.asarray(sizes, dtype=np.int64)
        if self.sizes.ndim != 1 or self.sizes.size == 0 or self.sizes.min() < 1:
            raise InputError(f"every source needs at least one row to draw from; got sizes {list(sizes)}")
        self.offsets = np.concatenate([[0], np.cumsum(self.sizes)[:-1]])
        self.replacement = replacement

    def start(self, seed: int) -> Cursor:
        """A cursor that has read nothing."""
        return Cursor(np.zeros(len(self.sizes), dtype=np.int64), seed)

    def draw(
        self,
        mixture: Mixture,
        count: int,
        *,
        seed: int,
        cursor: Cursor,
        before: int = 0,
        total: int | None = None,
    ) -> tuple[NDArray[np.int64], Cursor]:
        """Positions of ``count`` rows, each from a source drawn by the mixture, and the moved cursor.

        They are the rows that follow the first ``before`` of ``total`` rows of the seed: however these are
        cut into pieces, they are the same. The last source is the target's own rows: a mixture without a
        weight for it gives it weight 0.
        """
        weights = with_target(mixture, len(self.sizes) - 1)
        stream = np.random.PCG64(seed)
        random = np.random.Generator(stream)
        if before:
            stream.advance(before)
        # Inverse of the cumulated weights: exact for any K, no tables. Sources of weight 0 are never hit, not
        # even by rounding at the upper end.
        edges = np.cumsum(weights)
        last = int(np.flatnonzero(weights)[-1])
        source = np.minimum(np.searchsorted(edges, random.random(count) * edges[-1], side="right"), last)
        drawn = np.bincount(source, minlength=len(self.sizes)).astype(np.int64)
        if self.replacement:
            if total is not None and total > count:  # the sources of all rows were drawn first
                stream.advance(total - count)
            within = (random.random(count) * self.sizes[source]).astype(np.int64)
        else:
            within = np.empty(len(source), dtype=np.int64)
            for k in np.flatnonzero(drawn):
                epochs, places = np.divmod(cursor.drawn[k] + np.arange(drawn[k]), self.sizes[k])
                rows = np.empty(drawn[k], dtype=np.int64)
                for epoch in np.unique(epochs):
                    now = epochs == epoch
                    rows[now] = _shuffle(cursor.order, int(k), int(epoch), int(self.sizes[k]))[places[now]]
                within[source == k] = rows
        return self.offsets[source] + within, Cursor(cursor.drawn + drawn, cursor.order)

    def epochs(self, cursor: Cursor) -> NDArray[np.float64]:
        """How often each source's rows were read on average."""
        return cursor.drawn / self.sizes


@lru_cache(maxsize=256)
def _shuffle(order: int, source: int, epoch: int, size: int) -> NDArray[np.int64]:
    shuffled = np.random.default_rng([order, source, epoch]).permutation(size).astype(np.int64)
    shuffled.flags.writeable = False
    return shuffled
