"""Functions of (x, y) whose means are matched: x, y and x·y, made comparable and few enough.

Everything about them (scale, directions of x, which classes count) comes from the sources' rows, never from
the target's: that is what makes a test on the target's rows a test.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from mixtree.data.copies import weighed
from mixtree.data.sources import Rows, Sources
from mixtree.data.sparse import as_csr, as_dense, is_sparse
from mixtree.errors import InputError
from mixtree.estimate.directions import find_all, plan
from mixtree.estimate.rare import RareValues, fullness, single_valued
from mixtree.estimate.solve import Equations, Floats, Part, Solution, Summary, solve, summarise

_MOMENTS = 120
_CLASSES = 10  # indicators of at most so many classes: those whose shares differ most between the sources
_CLIP = 4.0  # standard deviations: a bounded function's mean is near normal with few rows
_ROWS, _FEWEST, _TOTAL = 5_000, 1_000, 40_000
_CELLS = 3e7  # numbers in the sources' covariances of the moments, K·q²: 240 MB, and several times that
MOST_SOURCES = 300
"""Whose means can be told apart: it takes as many moments, and room for all their covariances."""
_STEADY, _SHARE = 50, 0.05  # rows, or of few rows the share, that must have a value for its noise to be known
_SEEN, _COMMON = 5, 0.02  # so many of the target's rows should have it too; but this share is common enough
THIN = 50  # rows of a source below which its means' noise is itself hardly known


@dataclass(frozen=True, eq=False, slots=True)
class Labels:
    """Functions of y, centred and scaled: class indicators, or y and its square in a regression."""

    classes: int
    chosen: NDArray[np.int64]  # classes with an indicator
    place: tuple[float, float]  # middle and spread of a regression's y
    centre: Floats
    spread: Floats

    @classmethod
    def fit(cls, rows: list[Rows], classes: int, rare: NDArray[np.int64]) -> Labels:
        """Labels as the sources have them, each source counting the same.

        Parameters
        ----------
        rows
            Of every source.
        classes
            How many there are; 0 in a regression.
        rare
            Classes that have no indicator of their own, unless there is no other.

        Returns
        -------
        Labels
            Indicators of all classes but the commonest and rare ones, of many classes those whose shares
            differ most between the sources; or y and y².
        """
        chosen = np.empty(0, dtype=np.int64)
        if classes:
            by_source = np.stack([np.bincount(part.y, minlength=classes) / len(part) for part in rows])
            mean = by_source.mean(axis=0)
            others = np.argsort(-mean, kind="stable")[1:]
            chosen = np.setdiff1d(others, rare)
            if not len(chosen) and classes <= _CLASSES + 1:  # of few classes one is better than none
                chosen = others[:1]
            elif len(chosen) > _CLASSES:
                differ = by_source.var(axis=0) / np.maximum(mean * (1.0 - mean), 1e-6) + 1e-6 * mean
                chosen = np.sort(chosen[np.argsort(-differ[chosen], kind="stable")[:_CLASSES]])
        size = len(chosen) if classes else 2
        shares = np.concatenate([share_of(part) / len(rows) for part in rows])
        y = np.concatenate([part.y for part in rows])
        place = (0.0, 1.0)
        if not classes:
            # The middle two thirds: the mean of a price depends on a few rows.
            low, middle, high = np.quantile(y, [0.16, 0.5, 0.84])
            spread = (high - low) / 2 or float(np.std(y)) or 1.0
            place = (float(middle), float(spread))
        raw = cls(classes, chosen, place, np.zeros(size), np.ones(size))
        return cls(classes, chosen, place, *_centre(raw._values(y), shares))

    def left_out(self, rare: RareValues) -> NDArray[np.int64]:
        """Rare classes that no function of y alone stands for, and some row has."""
        seen = rare.classes[rare.seen[: len(rare.classes)] > 0]
        return np.setdiff1d(seen, self.chosen)

    def __len__(self) -> int:
        return len(self.centre)

    def __call__(self, y: NDArray[Any]) -> Floats:
        values: Floats = np.clip((self._values(y) - self.centre) / self.spread, -_CLIP, _CLIP)
        return values

    def _values(self, y: NDArray[Any]) -> Floats:
        if self.classes:
            return np.asarray(y[:, None] == self.chosen, dtype=np.float64)
        scaled: Floats = np.clip((y - self.place[0]) / self.place[1], -_CLIP, _CLIP)
        return np.column_stack([scaled, scaled**2])


@dataclass(frozen=True, eq=False, slots=True)
class Basis:
    """The functions, fixed: a map from rows to a table (rows × q) of bounded numbers of about unit size."""

    labels: Labels | None  # None: of x alone
    directions: Floats | None  # (columns, a); None: every column on its own
    of_classes: Floats | None  # (classes, a), what rare classes add to the directions
    layer: tuple[Floats, Floats] | None  # a random layer of x, where its columns alone are too few
    centre: Floats
    spread: Floats

    @classmethod
    def fit(
        cls,
        rows: list[Rows],
        labels: Labels | None,
        directions: Floats | None,
        of_classes: Floats | None,
        layer: tuple[Floats, Floats] | None,
    ) -> tuple[Basis, list[Floats]]:
        """Centre and spread as the sources have them, each source counting the same.

        Parameters
        ----------
        rows
            Of every source.
        labels
            Functions of y; None for x alone.
        directions
            Of x, (columns, a); None for every column on its own.
        of_classes
            What rare classes add to the directions, (classes, a).
        layer
            Weights (a, b) and offsets (b,) of a random layer of x; None for none.

        Returns
        -------
        tuple
            The basis, and its values on the rows of every source.
        """
        raw = cls(labels, directions, of_classes, layer, np.zeros(1), np.ones(1))
        shares = np.concatenate([share_of(part) / len(rows) for part in rows])
        features = [raw._features(part) for part in rows]
        basis = cls(labels, directions, of_classes, layer, *_centre(np.vstack(features), shares))
        return basis, [basis._table(x, part.y) for x, part in zip(features, rows, strict=True)]

    def __call__(self, rows: Rows) -> Floats:
        return self._table(self._features(rows), rows.y)

    def _table(self, features: Floats, labels: NDArray[Any]) -> Floats:
        x = features - self.centre
        x /= self.spread
        np.clip(x, -_CLIP, _CLIP, out=x)
        if self.layer is not None:
            x = np.hstack([x, np.tanh(x @ self.layer[0] + self.layer[1])])
        if self.labels is None:
            return x
        y = self.labels(labels)
        columns, of_y = x.shape[1], y.shape[1]
        table = np.empty((len(x), columns + of_y + columns * of_y))
        table[:, :columns], table[:, columns : columns + of_y] = x, y
        products = table[:, columns + of_y :].reshape(len(x), columns, of_y)
        np.einsum("ij,ik->ijk", x, y, out=products)  # the same, in a third of the time where y is narrow
        return table

    def _features(self, rows: Rows) -> Floats:
        x = rows.x
        if self.directions is None:
            return as_dense(x, np.float64)
        found = np.asarray(x @ self.directions, dtype=np.float64)
        return found if self.of_classes is None else found + self.of_classes[rows.y]


@dataclass(frozen=True, eq=False, slots=True)
class Target:
    """A target's rows in terms of a basis, and the mixture that explains their means best."""

    rows: Rows
    table: Floats
    share: Floats
    equations: Equations
    solution: Solution


@dataclass(frozen=True, eq=False)
class Prepared:
    """The sources in terms of a basis: all that does not depend on the target's rows.

    Rows are in random order. What one half of every source's rows chooses or weighs is best looked at on the
    other: on its own it looks too good.
    """

    basis: Basis
    used: NDArray[np.bool_]  # functions that vary; should none vary, one that does not
    varies: bool  # whether any does
    tables: list[Floats]  # their values, one table per source
    shares: list[Floats]  # row weights that sum to 1, one list per source
    rare: RareValues
    copies: NDArray[np.int64]
    """Rows per source that repeat others of it."""

    @property
    def whole(self) -> Summary:
        """Of all rows."""
        return self._summaries[0]

    @property
    def halves(self) -> tuple[Summary, Summary]:
        """Of the first half of every source's rows, and of the second."""
        return self._summaries[1:]

    @cached_property
    def _summaries(self) -> tuple[Summary, Summary, Summary]:
        first, second = (
            [
                Part.of(table[part], normal(share[part]))
                for table, share, part in zip(self.tables, self.shares, half, strict=True)
            ]
            for half in self.parts
        )
        return summarise(self.joined(first, second)), summarise(first), summarise(second)

    def combined(self, combine: tuple[Floats, Floats]) -> Summary:
        """Of combinations (q, c) of the functions: one for every source's first half, one for the second."""
        halves = []
        for half, parts, each in zip(self.halves, self.parts, combine, strict=True):
            borrowed = each.T @ half.pooled @ each
            halves.append(
                [
                    Part.of(table[part] @ each, normal(share[part]))
                    if len(table[part]) < len(each)  # fewer rows than functions
                    else half.part(source, each, borrowed)
                    for source, (table, share, part) in enumerate(
                        zip(self.tables, self.shares, parts, strict=True)
                    )
                ]
            )
        return summarise(self.joined(*halves))

    def joined(self, first: list[Part], second: list[Part]) -> list[Part]:
        """The sources' parts of all rows from those of the two halves."""
        return [
            one if len(share) == 1 else one.joined(other, float(share[part].sum()))
            for one, other, share, part in zip(first, second, self.shares, self.parts[0], strict=True)
        ]

    @cached_property
    def parts(self) -> tuple[list[slice], list[slice]]:
        """Where the two halves are; a source of one row has to be in both."""
        cuts = [max(1, len(table) // 2) for table in self.tables]
        second = [slice(cut % len(table), None) for cut, table in zip(cuts, self.tables, strict=True)]
        return [slice(cut) for cut in cuts], second

    def notes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """What a reader should know about the sources."""
        thin = [
            f"{name} ({size})"
            for name, size in zip(names, self.rare.rows.astype(int), strict=True)
            if size < THIN
        ]
        notes = [f"too few rows to rely on the intervals: {', '.join(thin)}"] if thin else []
        if self.copies.any():
            where = [f"{name} ({count:,})" for name, count in zip(names, self.copies, strict=True) if count]
            notes.append(f"rows that repeat others of their source say nothing new: {', '.join(where)}")
        return tuple(notes)

    def table(self, rows: Rows) -> Floats:
        """The functions' values on these rows."""
        table = self.basis(_flat(rows))
        return table if self.used.all() else table[:, self.used]

    def of(self, rows: Rows | Target) -> Target:
        """A target, solved for its mixture; one that already is stays as it is."""
        if isinstance(rows, Target):
            return rows
        rows = _flat(rows)
        table, share = self.table(rows), share_of(rows)
        equations = self.whole.equations(table, share)
        return Target(rows, table, share, equations, solve(equations))


def prepare(
    sources: Sources,
    *,
    joint: bool = True,
    moments: int | None = None,
    rows: int | None = None,
    seed: int = 0,
) -> Prepared:
    """Functions fitted to the sources, and their values there.

    Where x has more columns than ``moments`` allows, or many that are all but constant, a third of the rows
    choose directions of x and only the others are averaged: directions look better on the rows that chose
    them than they are. Where x and y give fewer than 3 functions per source, a random layer tanh(xA + a) adds
    more. No function depends on a few rows: its mean would be off by more than its noise, as far as that can
    be known, and a test would find it. Rare classes and rare values of x enter summed up.

    Parameters
    ----------
    sources
        The K sources; of the validation rows only their number is used.
    joint
        False takes functions of x alone.
    moments
        The most functions (q); by default 120, more for many sources, fewer where a source is small.
    rows
        The most rows of a source; by default 5,000, and 40,000 of all sources together, but more where the
        target has thousands of rows.
    seed
        Draws rows, random sums and the random layer.

    Returns
    -------
    Prepared
        The functions and their values on the sources' rows.

    Raises
    ------
    InputError
        If ``moments`` is below 1, or there are more than 300 sources.
    """
    if moments is not None and moments < 1:
        raise InputError(f"moments must be at least 1; got {moments}")
    if len(sources) > MOST_SOURCES:
        raise InputError(
            f"moments of at most {MOST_SOURCES} sources can be matched; there are {len(sources)}"
        )
    if len(sources.validation.x.shape) > 2:
        sources = replace(sources, rows=tuple(map(_flat, sources.rows)), validation=_flat(sources.validation))
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    wanted = max(_FEWEST, min(_ROWS, _TOTAL // len(sources)))
    cap = rows or max(wanted, min(5 * len(sources.validation), 4 * _ROWS))
    parts = _drawn(sources, cap, rng, quick=rows is not None)
    given, sources = sources, weighed(sources, parts)
    if sources is not given:
        parts = _drawn(sources, cap, rng, quick=rows is not None)
    limit = moments or _limit([len(part) for part in parts])
    looked_at, total = sum(map(len, parts)), int(sources.sizes.sum())
    least = max(min(_STEADY, _SHARE * looked_at), looked_at * min(_SEEN / len(sources.validation), _COMMON))
    rare = RareValues.fit(list(sources.rows), sources.classes, most=int(least * total / looked_at))
    labels = Labels.fit(parts, sources.classes, rare.classes) if joint else None
    of_y = 0 if labels is None else len(labels)
    keep = max(1, (limit - of_y) // (1 + of_y))
    found = _reduced(parts, labels, rare, sources.classes, keep, least, rng)
    parts, columns = found.rows, sources.features if found.of_x is None else found.of_x.shape[1]
    # With fewer than 3 functions per source a random layer of x makes them 4, as far as there is room.
    have, layer = columns * (1 + of_y) + of_y, None
    more = 0 if have >= 3 * len(sources) else -(-(4 * len(sources) - have) // (1 + of_y))
    if (more := min(keep - columns, more)) > 0:
        # Sums of standard deviation 1.5: well into the bend of tanh.
        layer = rng.standard_normal((columns, more)) * 1.5 / np.sqrt(columns), rng.standard_normal(more)
    basis, tables = Basis.fit(parts, labels, found.of_x, found.of_classes, layer)
    used = np.ones(tables[0].shape[1], dtype=np.bool_)
    used[single_valued(tables, tolerance=1e-9)] = False
    varies = bool(used.any())
    used[0] |= not varies
    shares = [share_of(part) for part in parts]
    if not used.all():
        tables = [table[:, used] for table in tables]
    return Prepared(basis, used, varies, tables, shares, rare, given.sizes - sources.sizes)


class _Reduced(NamedTuple):
    """Directions of x and what rare classes add to them, None where there are none; rows to be averaged."""

    of_x: Floats | None
    of_classes: Floats | None
    rows: list[Rows]


def _reduced(
    rows: list[Rows],
    labels: Labels | None,
    rare: RareValues,
    classes: int,
    count: int,
    least: float,
    rng: np.random.Generator,
) -> _Reduced:
    """At most so many directions, where x has more columns, or some of them or of the classes are rare."""
    width, summed = rare.features, rare.classes[:0] if labels is None else labels.left_out(rare)
    few = np.concatenate([rare.columns, width + np.arange(len(summed))])
    if width <= count and not len(few):
        return _Reduced(None, None, rows)
    tables, total = [part.x for part in rows], sum(map(len, rows))
    if len(summed):  # one more column for each of these classes
        for number, part in enumerate(rows):
            flags = (part.y[:, None] == summed).astype(np.float64)
            tables[number] = (
                sparse.hstack([as_csr(part.x), sparse.csr_array(flags)], format="csr")
                if is_sparse(part.x)
                else np.hstack([part.x, flags])
            )
    full, sizes = fullness(tables, few)
    of_y = 0 if labels is None else len(labels)
    planned = plan(full, few, rows=total, sources=len(rows), of_y=of_y, count=count, least=least)
    first, averaged = rows, rows
    if planned.looks:  # a third of every source's rows, and the others; a source of one row has to be both
        cuts = [max(1, len(part) // 3) for part in rows]
        first = [_sliced(part, slice(cut)) for part, cut in zip(rows, cuts, strict=True)]
        averaged = [_sliced(part, slice(cut % len(part), None)) for part, cut in zip(rows, cuts, strict=True)]
    tables = [table[: len(part)] for table, part in zip(tables, first, strict=True)]
    values = [np.ones((len(part), 1)) if labels is None else labels(part.y) for part in first]
    found = find_all(planned, tables, values, sizes, least * sum(map(len, first)) / total, rng)
    if not len(summed):
        return _Reduced(found, None, averaged)
    of_classes = np.zeros((classes, found.shape[1]))
    of_classes[summed] = found[width:]
    return _Reduced(found[:width], of_classes, averaged)


def _flat(rows: Rows) -> Rows:
    """Rows as a table: of images, which have more dimensions, every number is a column."""
    return rows if len(rows.x.shape) == 2 else Rows(rows.x.reshape(len(rows), -1), rows.y, rows.weight)


def _drawn(sources: Sources, most: int, rng: np.random.Generator, *, quick: bool) -> list[Rows]:
    """At most so many rows of every source, in random order; ``quick`` does not permute all of them."""
    return [
        part.take(
            rng.choice(len(part), most, replace=False)
            if quick and len(part) > most
            else rng.permutation(len(part))[:most]
        )
        for part in sources.rows
    ]


def _sliced(rows: Rows, some: slice) -> Rows:
    return Rows(rows.x[some], rows.y[some], None if rows.weight is None else rows.weight[some])


def _limit(sizes: list[int]) -> int:
    # Too many means of a small source are off; but telling K sources apart takes at least K means.
    most = max(_MOMENTS, 3 * len(sizes))
    wanted = max(min(most, sum(sizes) // 20, min(sizes) // 3), 2 * len(sizes) + 10)
    return min(wanted, int(np.sqrt(_CELLS / len(sizes))))


def share_of(rows: Rows) -> Floats:
    """Row weights that sum to 1."""
    if rows.weight is None:
        return np.full(len(rows), 1.0 / len(rows))
    return normal(np.asarray(rows.weights, dtype=np.float64))


def normal(weights: Floats) -> Floats:
    """The weights scaled to sum to 1; all the same should they all be 0."""
    total = float(weights.sum())
    return weights / total if total > 0 else np.full(len(weights), 1.0 / len(weights))


def _centre(table: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Weighted mean and standard deviation of the columns; 1 for a constant one."""
    mean = shares @ table
    deviation = np.sqrt(shares @ (table - mean) ** 2)
    return mean, np.where(deviation > 1e-12 * (1.0 + np.abs(mean)), deviation, 1.0)
