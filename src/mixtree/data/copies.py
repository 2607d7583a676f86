"""Rows that stand twice where once was meant: a held-out row whose copy chose the model scores nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Rows, Sources

_PAIRS, _FEWER = 5, 0.1
"""Pairs with different labels that chance must lead to expect, and the share of them that is still none."""

_BLOCK = 10_000  # rows at a time
_COLUMNS = 32  # looked at to see whether two rows can be the same


def without_copies(sources: Sources, test: Rows | None) -> tuple[Sources, Rows | None, tuple[str, ...]]:
    """Every validation row once, the test rows that are no validation rows, and what was left out in words.

    Where there are few values, rows are alike by chance: those stay. Rows that share their features by chance
    have different labels now and then, copies have not; and rows like them may stand in the sources.
    """
    told, validation = [], sources.validation
    repeats = copied(validation, sources.rows)
    if repeats.any():
        told.append(
            f"{repeats.sum():,} of {len(validation):,} validation rows are copies of others among them: each "
            "row counts once"
        )
        sources = replace(sources, validation=validation.take(np.flatnonzero(~repeats)))
    if test is not None:
        known = copied(test, sources.rows, within=sources.validation)
        if known.any():
            told.append(
                f"{known.sum():,} of {len(test):,} test rows also stand among the validation rows, which "
                "choose: they do not score"
            )
            test = None if known.all() else test.take(np.flatnonzero(~known))
    return sources, test, tuple(told)


def weighed(sources: Sources, sample: Sequence[Rows]) -> Sources:
    """The same sources, copies in one of them as the weight of a single row, if a sample of its rows has any.

    To train on they are the same. To say how sure something is they are not: a table that was written twice
    does not hold twice as many people. Rows that other sources or the target have too are alike by chance.
    """
    if not any(map(_twins, sample)):
        return sources

    def others(rows: Sequence[Rows], place: int) -> list[Rows]:
        return [*rows[:place], *rows[place + 1 :], sources.validation]

    found = [
        _merged(rows, others(sources.rows, place)) if copied(few, others(sample, place)).any() else rows
        for place, (few, rows) in enumerate(zip(sample, sources.rows, strict=True))
    ]
    if all(new is old for new, old in zip(found, sources.rows, strict=True)):
        return sources
    return replace(sources, rows=tuple(found))


def _twins(rows: Rows) -> bool:
    """Whether two rows may be the same, by a random direction of a few columns."""
    x: Any = rows.x[:, :_COLUMNS]
    direction = np.random.default_rng(0).standard_normal(x.shape[1])
    along = np.sort(x @ direction)
    return bool((np.diff(along) <= 1e-12 * np.abs(along).max(initial=0.0)).any())


def _merged(rows: Rows, others: Sequence[Rows]) -> Rows:
    repeats = copied(rows, others)
    if not repeats.any():
        return rows
    first: dict[_Key, int] = {}
    home = np.array([first.setdefault(key, place) for place, key in enumerate(_keys(rows))])
    once = np.where(repeats, home, np.arange(len(home)))
    weight = np.zeros(len(home))
    np.add.at(weight, once, rows.weights)
    kept = np.flatnonzero(~repeats)
    return Rows(rows.x[kept], rows.y[kept], weight[kept])


def copied(rows: Rows, sources: Sequence[Rows], *, within: Rows | None = None) -> NDArray[np.bool_]:
    """Which rows repeat one of ``within``, or an earlier one of their own; those alike by chance do not."""
    keys = list(_keys(rows))
    copies = np.zeros(len(keys), dtype=np.bool_)
    others = None if within is None else list(_keys(within))
    seen = set(others or ())
    for place, key in enumerate(keys):
        copies[place] = key in seen
        if others is None:
            seen.add(key)
    if not copies.any() or _alike_by_chance(keys, others):
        return np.zeros_like(copies)
    wanted = {key for key, copy in zip(keys, copies, strict=True) if copy}
    wanted.difference_update(key for source in sources for key in _keys(source))
    return np.array([copy and key in wanted for key, copy in zip(keys, copies, strict=True)], dtype=np.bool_)


_Key = tuple[int, float]


def _alike_by_chance(rows: list[_Key], others: list[_Key] | None) -> bool:
    """Whether rows of the same features have different labels about as often as any two rows."""
    features, labels = (
        _pairs([key[part] for key in rows], None if others is None else [key[part] for key in others])
        for part in (0, 1)
    )
    same, count = _pairs(rows, others), len(rows)
    total = count * (count - 1) // 2 if others is None else count * len(others)
    by_chance = features * (1.0 - labels / total)
    return by_chance < _PAIRS or features - same > _FEWER * by_chance


def _pairs(rows: Sequence[Hashable], others: Sequence[Hashable] | None) -> int:
    """How many pairs are equal: of two of the rows, or of one of them and one of the others."""
    counts = Counter(rows)
    if others is None:
        return sum(count * (count - 1) // 2 for count in counts.values())
    return sum(counts[key] * count for key, count in Counter(others).items())


def _keys(rows: Rows) -> Iterator[_Key]:
    """A hash of every row's features, and its label."""
    x: Any = rows.x.tocsr() if hasattr(rows.x, "tocsr") else rows.x
    labels = np.asarray(rows.y, dtype=np.float64)
    for start in range(0, len(labels), _BLOCK):
        part = x[start : start + _BLOCK]
        yield from zip(_hashes(part), labels[start : start + _BLOCK].tolist(), strict=True)


def _hashes(x: Any) -> Iterator[int]:
    if hasattr(x, "tocsr"):
        for first, last in pairwise(x.indptr):
            yield hash(x.indices[first:last].tobytes() + x.data[first:last].tobytes())
        return
    table = np.ascontiguousarray(x)
    width, text = table.itemsize * (table.size // max(1, len(table))), table.tobytes()
    yield from (hash(text[place * width : (place + 1) * width]) for place in range(len(table)))
