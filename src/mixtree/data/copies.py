"""Rows that stand twice where once was meant: a held-out row whose copy chose the model scores nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Rows, Sources
from mixtree.data.sparse import as_csr, is_sparse

_LEAST, _FEWER = 10, 0.1
"""Rows that chance must lead to expect among others of the same features and another label, and the share of
them that is still none."""

_OFTEN, _SHARE = 20, 0.01  # a row that stands more often in a source, and so large a share of it, is a value
_BLOCK = 1_000_000  # numbers at a time
_COLUMNS = 32  # looked at to see whether two rows can be the same
_SOME = 10.0  # times the root of a source's rows: so many of them hold some copies, if every row has one

Numbers = NDArray[np.uint64]
Mask = NDArray[np.bool_]


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


def copied(rows: Rows, sources: Sequence[Rows], *, within: Rows | None = None) -> Mask:
    """Which rows repeat one of ``within``, or an earlier one of their own; those alike by chance do not."""
    keys = RowKeys.of(rows)
    repeats = _repeats(keys, None if within is None else RowKeys.of(within))
    if repeats.any():
        repeats &= ~np.isin(keys.rows, np.concatenate([RowKeys.of(source).rows for source in sources]))
    return repeats


def row_numbers(parts: Sequence[Rows]) -> list[NDArray[np.intp]]:
    """A number for every row, by which it is known in the other parts; within a part all are different."""
    both = []
    for rows in parts:
        keys = RowKeys.of(rows).rows
        order = np.argsort(keys, kind="stable")
        first = np.searchsorted(keys[order], keys[order])
        time = np.empty(len(keys), dtype=np.uint64)
        time[order] = (np.arange(len(keys)) - first).astype(np.uint64)
        both.append(np.column_stack([keys, time]))
    numbers = np.unique(np.concatenate(both), axis=0, return_inverse=True)[1].reshape(-1)
    return np.split(numbers.astype(np.intp), np.cumsum([len(each) for each in both])[:-1])


def weighed(sources: Sources, sample: Sequence[Rows]) -> Sources:
    """The same sources, copies in one of them as the weight of a single row, if a sample of its rows has any.

    To train on they are the same. To say how sure something is they are not: a table that was written twice
    does not hold twice as many people. Rows that other sources or the target have too are alike by chance,
    and so is what a hundredth of a source is.
    """
    if not any(map(_has_copies, sources.rows, sample)):
        return sources
    keys = [RowKeys.of(rows) for rows in (*sources.rows, sources.validation)]
    known, places = np.unique(np.concatenate([np.unique(each.rows) for each in keys]), return_counts=True)
    alone = known[places == 1]
    found = tuple(_merged(*each, alone) for each in zip(sources.rows, keys[:-1], strict=True))
    if all(new is old for new, old in zip(found, sources.rows, strict=True)):
        return sources
    return replace(sources, rows=found)


def _merged(rows: Rows, keys: RowKeys, alone: Numbers) -> Rows:
    """The rows without copies, which are a weight now; of those that stand in no other place (sorted)."""
    repeats = _repeats(keys)
    place = np.searchsorted(alone, keys.rows[repeats])
    repeats[repeats] = alone.take(place, mode="clip") == keys.rows[repeats] if len(alone) else False
    _, first, home, times = np.unique(keys.rows, return_index=True, return_inverse=True, return_counts=True)
    repeats &= times[home] <= max(_OFTEN, _SHARE * len(rows))
    if not repeats.any():
        return rows
    weight = np.zeros(len(rows))
    np.add.at(weight, np.where(repeats, first[home], np.arange(len(rows))), rows.weights)
    kept = np.flatnonzero(~repeats)
    return Rows(rows.x[kept], rows.y[kept], weight[kept])


def _has_copies(rows: Rows, sample: Rows) -> bool:
    """Whether there are copies in the sample; of a large source in some more rows."""
    if (some := min(int(_SOME * np.sqrt(len(rows))), len(rows))) > len(sample):
        sample = rows.take(np.random.default_rng(0).choice(len(rows), some, replace=False))
    # No two rows can be the same if none are along a random direction of a few columns.
    x: Any = sample.x if is_sparse(sample.x) else sample.x.reshape(len(sample), -1)
    x = x[:, :_COLUMNS]
    along = np.sort(x @ np.random.default_rng(0).standard_normal(x.shape[1]))
    if not (np.diff(along) <= 1e-12 * np.abs(along).max(initial=0.0)).any():
        return False
    return bool(_repeats(RowKeys.of(sample)).any())


# --------------------------------------------------------------------------------------------- equal or alike


@dataclass(frozen=True, eq=False, slots=True)
class RowKeys:
    """A number for every row's features, one for the whole row, and its label."""

    features: Numbers
    rows: Numbers
    labels: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Rows) -> RowKeys:
        """Of dense and sparse rows alike, whatever the type of their numbers."""
        features, labels = _numbers(rows.x), np.asarray(rows.y, dtype=np.float64)
        first, second = _odd(2)
        return cls(features, features * first + _spread(labels) * second, labels)

    def __add__(self, more: RowKeys) -> RowKeys:
        return RowKeys(
            np.concatenate([self.features, more.features]),
            np.concatenate([self.rows, more.rows]),
            np.concatenate([self.labels, more.labels]),
        )


def _repeats(keys: RowKeys, others: RowKeys | None = None) -> Mask:
    """Which rows repeat one of the others, or an earlier one of their own, and not by chance.

    Rows of the same features with different labels are alike by chance. If there are about as many of those
    as labels drawn at random would give, all are.
    """
    count = len(keys.rows)
    if others is None:
        repeats = np.ones(count, dtype=np.bool_)
        repeats[np.unique(keys.rows, return_index=True)[1]] = False
    else:
        repeats = np.isin(keys.rows, others.rows)
    if not repeats.any():
        return repeats
    both = keys if others is None else keys + others
    _, group, sizes = np.unique(both.features, return_inverse=True, return_counts=True)
    kinds = np.bincount(group[np.unique(both.rows, return_index=True)[1]])
    mine = np.bincount(group[:count], minlength=len(sizes))
    met = sizes > 1 if others is None else (mine > 0) & (mine < sizes)
    often, labels = np.unique(np.unique(both.labels, return_counts=True)[1], return_counts=True)
    shares = often / len(both.labels)
    chance = {size: size * (1.0 - labels @ shares**size) for size in np.unique(sizes[met]).tolist()}
    expected = sum(chance[size] for size in sizes[met].tolist())
    if expected < _LEAST or sizes[met & (kinds > 1)].sum() > _FEWER * expected:
        return np.zeros_like(repeats)
    return np.asarray(repeats & (kinds[group[:count]] == 1))


def _numbers(x: Any) -> Numbers:
    """A number for every row, the same for equal rows: a sum over the columns of what is not 0."""
    if is_sparse(x):
        table = as_csr(x)
        each = _spread(table.data) * _odd(table.shape[1])[table.indices]
        total = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(each, dtype=np.uint64)])
        return np.asarray(total[table.indptr[1:]] - total[table.indptr[:-1]])
    columns = int(np.prod(x.shape[1:]))
    odd, step = _odd(columns), max(1, _BLOCK // max(1, columns))
    blocks = [x[start : start + step].reshape(-1, columns) for start in range(0, len(x), step)]
    return np.concatenate([(_spread(block) * odd).sum(axis=1, dtype=np.uint64) for block in blocks])


def _spread(values: NDArray[Any]) -> Numbers:
    """Bits of the numbers, those of each over all places; 0 stays 0, and −0 becomes it."""
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:  # of ids, floats hold the first 53 bits only
        large = (values > 2**53) | (values < -(2**53))
        bits = bits + np.where(large, values & values.dtype.type(0x7FF), 0).astype(np.uint64)
    bits ^= bits >> np.uint64(32)
    bits *= np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(29)
    return bits


def _odd(count: int) -> Numbers:
    """Random odd numbers, always the same ones."""
    drawn = np.random.default_rng(0).integers(2**64, size=count, dtype=np.uint64)
    return drawn | np.uint64(1)
