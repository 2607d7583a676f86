"""Rows that stand twice where once was meant: a held-out row whose copy chose the model scores nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Rows, Sources

_LIKELY = 3
"""Source rows per distinct row from which a row that occurs twice by chance should be in a source too."""


def without_copies(sources: Sources, test: Rows | None) -> tuple[Sources, Rows | None, tuple[str, ...]]:
    """Every validation row once, the test rows that are no validation rows, and what was left out in words.

    Only rows that stand in no source are taken for copies: where there are few values, rows are alike by
    chance, and then many source rows are like them.
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


def copied(rows: Rows, sources: Sequence[Rows], *, within: Rows | None = None) -> NDArray[np.bool_]:
    """Which rows repeat one of ``within``, or an earlier one of their own; those alike by chance do not."""
    keys = list(_keys(rows))
    copies = np.zeros(len(keys), dtype=np.bool_)
    if within is None:
        seen: set[bytes] = set()
        for place, key in enumerate(keys):
            copies[place] = key in seen
            seen.add(key)
    else:
        seen = set(_keys(within))
        copies[:] = [key in seen for key in keys]
    if not copies.any() or sum(map(len, sources)) < _LIKELY * len(set(keys)):
        return np.zeros_like(copies)
    by_chance = {key for source in sources for key in _keys(source)}
    copies &= [key not in by_chance for key in keys]
    return copies


def _keys(rows: Rows) -> Iterator[bytes]:
    """Features and label of every row as bytes."""
    x: Any = rows.x
    labels = np.asarray(rows.y, dtype=np.float64)
    if hasattr(x, "tocsr"):
        x = x.tocsr()
        for place, label in enumerate(labels):
            part = slice(x.indptr[place], x.indptr[place + 1])
            yield x.indices[part].tobytes() + x.data[part].tobytes() + label.tobytes()
        return
    table = np.column_stack([x, labels]).tobytes()
    width = len(table) // max(1, len(labels))
    yield from (table[start : start + width] for start in range(0, len(table), width))
