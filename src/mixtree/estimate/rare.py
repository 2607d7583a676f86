"""Values that no source has, or hardly ever: a target that often has them is outside the hull."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.special import bdtrc, gammaln

from mixtree.data.sources import Rows
from mixtree.data.sparse import as_csr, as_dense, is_sparse
from mixtree.simplex import Mixture

_FIRST, _SAMPLE, _BLOCK = 64, 1_000, 8_192  # rows looked at: most columns vary within a few
_RARE = 50  # rows of the sources with a value that is still of interest

Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class RareValues:
    """Classes and values of columns that the sources have in no row, or in a few.

    A value is "not what this column mostly is": in a column of ones and zeros mostly 0, a one.
    """

    classes: Index
    columns: Index
    usual: NDArray[np.float64]  # of these columns
    each: Index  # (these, sources) rows that have them, the classes first
    where: Index  # one of those rows, counted over all sources; −1 where there is none
    rows: NDArray[np.float64]  # per source
    features: int
    most: int  # rows of the sources that have one of these

    @classmethod
    def fit(cls, rows: list[Rows], classes: int, *, most: int = _RARE) -> RareValues:
        """What at most ``most`` of the sources' rows have, or none.

        Parameters
        ----------
        rows
            Of every source.
        classes
            How many there are; 0 in a regression.
        most
            Rows of all sources together that a rare class or value may have.

        Returns
        -------
        RareValues
            The rare classes and values, and how many rows of each source have them.
        """
        labels = np.concatenate([part.y for part in rows]) if classes else np.empty(0, dtype=np.int64)
        place = np.full(classes, -1)
        place[labels] = np.arange(len(labels))
        counts = np.zeros((classes, len(rows)), dtype=np.int64)
        for number, part in enumerate(rows if classes else ()):
            counts[:, number] = np.bincount(part.y, minlength=classes)
        few = np.flatnonzero(counts.sum(axis=1) <= most)
        tables = [part.x for part in rows]
        find = _rare_sparse if any(map(is_sparse, tables)) else _rare_dense
        columns, usual, each, where = find(tables, most)
        return cls(
            few,
            columns,
            usual,
            np.concatenate([counts[few], each]),
            np.concatenate([place[few], where]),
            np.array([len(part) for part in rows], dtype=np.float64),
            int(tables[0].shape[1]),
            most,
        )

    @property
    def seen(self) -> Index:
        """Rows of the sources that have each of them."""
        return np.asarray(self.each.sum(axis=1))

    def __bool__(self) -> bool:
        """Whether there is anything that a target could have and the sources hardly ever have."""
        return bool(len(self.each))

    def in_target(self, target: Rows, alpha: Mixture) -> tuple[int, float]:
        """How many of the target's rows have a class or a value that no source has, and how likely that is.

        The second is the chance that as much is only in the target, if the sources' rows were as likely to
        have it. Among thousands of rare values some are only in the target by accident: what few rows of all
        have, the sources' and the target's together, is compared with what is only in the target. And what
        the sources rarely have may be common in the target.
        """
        rows, values = np.nonzero(np.asarray(target.y)[:, None] == self.classes)
        x = target.x[:, self.columns]
        if is_sparse(x):  # dense only where columns are mostly something else than 0
            full = np.flatnonzero(self.usual)
            there = (as_csr(x) != 0).nonzero()
            mostly_zero = self.usual[there[1]] == 0.0
            odd = _differs(as_dense(x[:, full], np.float64), self.usual[full]).nonzero()
            row = np.append(there[0][mostly_zero], odd[0])
            column = np.append(there[1][mostly_zero], full[odd[1]])
        else:
            row, column = _differs(as_dense(x, np.float64), self.usual).nonzero()
        rows, values = np.append(rows, row), np.append(values, len(self.classes) + column)
        times, n, seen = np.bincount(values, minlength=len(self.each)), len(target), self.seen
        others = 1.0 / float(alpha**2 @ (1.0 / self.rows))
        unseen = seen[values] == 0
        rows, values = rows[unseen], values[unseen]
        once = times[values] == 1
        chances = [self._more_often(times, n)]
        if once.any():
            chances.append(self._once(len(np.unique(rows[once])), times, alpha, n, others))
        if not once.all():
            chances += self._shared(rows[~once], values[~once], times, n, others).tolist()
        return len(np.unique(rows)), min(1.0, len(chances) * min(chances))

    def _more_often(self, times: Index, n: int) -> float:
        """Chance that the target has one of them so much more often than the source that has it most often.

        No mixture has it more often than that source.
        """
        shares = self.each / self.rows
        most = shares.argmax(axis=1)
        rows, there = self.rows[most], self.each[np.arange(len(most)), most]
        often = np.flatnonzero((there > 0) & (times > n * shares.max(axis=1)))
        if not len(often):
            return 1.0
        all_rows, have = (rows + n).astype(np.int64), there + times
        chances = at_least(times[often], all_rows[often], have[often], n)
        return min(1.0, len(self.each) * float(chances.min()))

    def _once(self, own: int, times: Index, alpha: Mixture, n: int, others: float) -> float:
        """Chance that so many of the rows with a value that no other row has are the target's."""
        rows = np.unique(self.where[(self.seen == 1) & (times == 0)])
        ends = np.cumsum(self.rows)
        each = np.bincount(np.searchsorted(ends, rows, side="right"), minlength=len(ends))
        theirs = int(np.ceil(others * float(alpha @ (each / self.rows)) - 1e-9))
        total = max(round(others), theirs) + n
        return float(at_least(np.array([own]), np.array([total]), np.array([own + theirs]), n)[0])

    def _shared(self, rows: Index, values: Index, times: Index, n: int, others: float) -> NDArray[np.float64]:
        """Chances that so many of the values that two rows have, three rows …, are only in the target.

        Values that share rows count as one: a few odd rows may have many rare values in common.
        """
        # Rows as numbered per count of rows: only values of equally many rows are put together.
        row = np.unique(rows + times[values] * (int(rows.max()) + 1), return_inverse=True)[1]
        first, value = np.unique(values, return_index=True, return_inverse=True)[1:]
        group: Index = np.arange(len(first))
        count = int(row.max()) + 1
        if count < len(row):  # some rows have two of the values
            size = count + len(first)
            graph = sparse.coo_array((np.ones(len(row)), (row, count + value)), shape=(size, size))
            group = connected_components(graph, directed=False)[1][count:].astype(np.int64)
        one_of_each = np.unique(group, return_index=True)[1]
        often, groups = np.unique(times[values][first][one_of_each], return_counts=True)
        alone = np.bincount(times[np.unique(values)], minlength=self.most + 1)
        all_rows = np.bincount(self.seen + times, minlength=self.most + 1)
        also = np.full(len(often), self.features)
        known = often <= self.most
        also[known] = all_rows[often[known]] - alone[often[known]]
        chosen = gammaln(n + 1.0) - gammaln(n - often + 1.0)
        chances = np.exp(chosen - gammaln(others + n + 1.0) + gammaln(others + n - often + 1.0))
        return np.asarray(bdtrc(groups - 1, groups + also, chances))


def at_least(count: Index, total: Index, marked: Index, drawn: int) -> NDArray[np.float64]:
    """Chances that of rows drawn without replacement at least ``count`` are marked: P(X ≥ count).

    X is hypergeometric, P(X = k) = C(M, k) C(N − M, n − k) / C(N, n). ``scipy.stats`` has it too, but takes
    longer to load than a verdict takes. Terms are added up away from the likeliest number, where they fall
    quickly: below it, those of fewer marked rows.

    Parameters
    ----------
    count
        Marked rows that were drawn, or more.
    total
        N, all rows.
    marked
        M, marked rows among them.
    drawn
        n, rows drawn.

    Returns
    -------
    array
        A chance for each ``count``.

    Examples
    --------
    >>> at_least(np.array([1]), np.array([4]), np.array([1]), 2)
    array([0.5])
    """
    others = total - marked - drawn
    more = count * (total + 2.0) > (drawn + 1.0) * (marked + 1.0)
    hit = np.where(more, count, count - 1).astype(np.float64)
    ways = _log_ways(marked, hit) + _log_ways(total - marked, drawn - hit) - _log_ways(total, drawn)
    term = np.exp(ways)
    tail, left = term.copy(), np.flatnonzero(term > 0.0)
    while len(left):
        at, up = hit[left], more[left]
        m, rest = marked[left], others[left]
        above = (m - at) * (drawn - at) / np.where(up, (at + 1.0) * (rest + at + 1.0), 1.0)
        below = at * (rest + at) / np.where(up, 1.0, (m - at + 1.0) * (drawn - at + 1.0))
        term[left] *= np.where(up, above, below)
        hit[left] += np.where(up, 1.0, -1.0)
        tail[left] += term[left]
        left = left[term[left] > 1e-17 * tail[left]]
    return np.asarray(np.clip(np.where(more, tail, 1.0 - tail), 0.0, 1.0))


def _log_ways(n: Any, k: Any) -> Any:
    """Logarithm of the number of ways to choose k of n; −∞ where there is none."""
    return gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)


def _differs(table: NDArray[Any], usual: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which numbers are not the column's usual one, but for rounding."""
    rounding = 4.0 * float(np.finfo(table.dtype).eps) if table.dtype.kind == "f" else 0.0
    return np.asarray(np.abs(table - usual) > rounding * np.abs(usual))


def _usual(tables: list[Any]) -> NDArray[np.float64]:
    """What the columns mostly are, if they mostly are something."""
    first = -(-_FIRST // len(tables))
    sample = np.sort(np.vstack([np.asarray(table[:first], dtype=np.float64) for table in tables]), axis=0)
    return np.asarray(sample[len(sample) // 2])


def _rare_dense(tables: list[Any], most: int) -> tuple[Index, NDArray[np.float64], Index, Index]:
    """Columns that are mostly the same: which, what they mostly are, rows that differ, one such row."""
    usual, first, start = _usual(tables), -(-_FIRST // len(tables)), 0
    columns = np.arange(len(usual))
    each, where = np.zeros((len(usual), len(tables)), dtype=np.int64), np.full(len(usual), -1)
    for number, table in enumerate(tables):
        # Short blocks first: a column that varies is not looked at for long.
        second = first + min(2 * most, _BLOCK)
        ends = [first, second, *range(second + _BLOCK, len(table) + _BLOCK, _BLOCK)]
        for block in [slice(a, b) for a, b in pairwise([0, *ends]) if a < len(table)]:
            differ = _differs(np.asarray(table[block][:, columns]), usual[columns])
            each[columns, number] += differ.sum(axis=0)
            few = each[columns].sum(axis=1) <= most
            columns = columns[few]
            if not len(columns):
                return columns, usual[columns], each[columns], columns
            row, column = differ[:, few].nonzero()
            where[columns[column]] = start + block.start + row
        start += len(table)
    return columns, usual[columns], each[columns], where[columns]


def _rare_sparse(tables: list[Any], most: int) -> tuple[Index, NDArray[np.float64], Index, Index]:
    """As ``_rare_dense`` of sparse tables: columns that are mostly 0 by their entries, full ones as dense."""
    tables = [as_csr(table) for table in tables]
    width, total = tables[0].shape[1], sum(table.shape[0] for table in tables)
    each = np.zeros((width, len(tables)), dtype=np.int64)
    for number, table in enumerate(tables):
        each[:, number] = np.bincount(table.indices[table.data != 0], minlength=width)
    usual, where, start = np.zeros(width), np.full(width, -1), 0
    seen = each.sum(axis=1)
    few = (seen > 0) & (seen <= most)
    for table in tables:
        entries = np.flatnonzero(few[table.indices] & (table.data != 0))
        where[table.indices[entries]] = start + np.searchsorted(table.indptr, entries, side="right") - 1
        start += table.shape[0]
    full = np.flatnonzero(2 * seen > total)
    if len(full):
        rare, *found = _rare_dense([as_dense(table[:, full], np.float64) for table in tables], most)
        usual[full[rare]], each[full[rare]], where[full[rare]] = found
        seen[full[rare]] = each[full[rare]].sum(axis=1)
    columns = np.flatnonzero(seen <= most)
    return columns, usual[columns], each[columns], where[columns]


def fullness(tables: list[Any], rare: Index) -> tuple[Index, NDArray[np.float64]]:
    """Rows per column that are not what it mostly is, and the root mean square of by how much.

    Rows are in random order: of columns that are not rare some of them tell enough.
    """
    some = [table[: -(-_SAMPLE // len(tables))] for table in tables]
    full, size = _fullness(some)
    share = sum(table.shape[0] for table in some) / sum(table.shape[0] for table in tables)
    full = np.ceil(full / share).astype(np.int64)
    if len(rare):
        full[rare], size[rare] = _fullness([table[:, rare] for table in tables])
    return full, size


def _fullness(tables: list[Any]) -> tuple[Index, NDArray[np.float64]]:
    if not any(map(is_sparse, tables)):
        usual = _usual(tables)
        full, square = np.zeros(len(usual), dtype=np.int64), np.zeros(len(usual))
        for table in tables:
            full += np.count_nonzero(_differs(table, usual), axis=0)
            square += np.square(table - usual).sum(axis=0)
        return full, np.sqrt(square / np.maximum(full, 1))
    found = [as_csr(table) for table in tables]
    width, total = found[0].shape[1], sum(table.shape[0] for table in found)
    full, square = np.zeros(width, dtype=np.int64), np.zeros(width)
    for table in found:
        full += np.bincount(table.indices[table.data != 0], minlength=width)
        square += np.bincount(table.indices, weights=np.square(table.data, dtype=np.float64), minlength=width)
    size = np.sqrt(square / np.maximum(full, 1))
    if len(often := np.flatnonzero(2 * full > total)):
        full[often], size[often] = _fullness([as_dense(table[:, often], np.float64) for table in found])
    return full, size


def single_valued(tables: list[NDArray[Any]], *, tolerance: float = 0.0) -> Index:
    """Columns that hold a single number in all tables, but for rounding."""
    first = np.asarray(tables[0][0])
    columns = np.arange(len(first))
    for most in (_FIRST, None):  # most columns vary within a few rows: no need to look at all of them
        for table in tables:
            gaps = np.abs(table[:most, columns] - first[columns])
            columns = columns[(gaps <= tolerance).all(axis=0)]
    return columns
