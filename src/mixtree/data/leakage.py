"""Leakage: rows that stand both in a source and among those that judge; columns that give the label away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.data.copies import RowKeys, without_copies
from mixtree.data.frames import as_numbers, kind_of
from mixtree.data.sources import TEST, VALIDATION, Rows, Sources

_ENOUGH, _SAMPLE = 100, 10_000
"""Rows from which a column that tells the label in all of them is no accident; rows that are tried first."""
_FEW_VALUES, _FEW_SHARE = 50, 0.01
_EACH, _AUROC, _RANK_CORRELATION = 30, 0.995, 0.999
"""Rows of either class, and how well a column must order them, to give the label away all but exactly."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Rows of one part (``rows`` of ``total``) that stand in a source too, with the same label or not.

    ``same`` of them have the same features and label; ``source_rows`` rows of the source are such twins.
    """

    part: str
    source: str
    rows: int
    same: int
    total: int
    source_rows: int

    @property
    def matters(self) -> bool:
        """A few rows with the features of others and another label make no score better."""
        return self.same > 0 or self.rows > _FEW_SHARE * self.total

    def __str__(self) -> str:
        other = self.rows - self.same
        extra = f", {other:,} with another label" if other else ""
        return (
            f"{self.rows:,} of {self.total:,} {self.part} rows also stand in {self.source} (the same features"
            f"{extra}): scores on them may be too good"
        )


@dataclass(frozen=True, eq=False, slots=True)
class Keys:
    """A hash per row of the features, and of the features with the label."""

    features: pl.Series
    whole: pl.Series

    @classmethod
    def of(cls, features: pl.Series, labels: NDArray[Any]) -> Keys:
        """Keys of rows with these hashes of their features and these labels."""
        return cls(features, pl.DataFrame({"features": features, "label": labels}).hash_rows())

    @classmethod
    def of_rows(cls, rows: Rows) -> Keys:
        """Keys of rows of numbers."""
        keys = RowKeys.of(rows)
        return cls(pl.Series(keys.features), pl.Series(keys.rows))

    def take(self, index: NDArray[Any]) -> Keys:
        """The keys at these positions."""
        return Keys(self.features[index], self.whole[index])


def independent(
    sources: Sources, test: Rows | None, *, leakage: Sequence[Overlap] | None = None
) -> tuple[Sources, Rows | None, tuple[str, ...]]:
    """Judging rows without copies, and in words what was left out and which of them stand in a source too.

    Every door asks here. ``leakage`` is that of the tables' own values, if there are tables.
    """
    if leakage is None:
        judges = {VALIDATION: sources.validation} | ({} if test is None else {TEST: test})
        given = dict(zip(sources.names, sources.rows, strict=True))
        mine, theirs = ({name: Keys.of_rows(rows) for name, rows in part.items()} for part in (given, judges))
        leakage = find_leakage(mine, theirs)
    sources, test, copies = without_copies(sources, test)
    shared = [
        str(each) for each in leakage if each.matters and (each.source.startswith("source ") or not copies)
    ]
    return sources, test, (*copies, *shared)


def find_leakage(sources: Mapping[str, Keys], parts: Mapping[str, Keys]) -> tuple[Overlap, ...]:
    """Every pair of a part (validation, test) and a source, or two parts, that share rows."""
    found = []
    names = list(parts)
    for place, name in enumerate(names):
        others = {f"source {source!r}": keys for source, keys in sources.items()}
        others |= {f"the {other} rows": parts[other] for other in names[:place]}
        found += [_overlap(name, parts[name], other, keys) for other, keys in others.items()]
    return tuple(overlap for overlap in found if overlap.rows)


def _overlap(name: str, part: Keys, other: str, keys: Keys) -> Overlap:
    # The part is the small side: a source of millions is only looked up in it.
    twins = keys.features.is_in(part.features.unique().implode())
    shared = keys.features.filter(twins).unique()
    same = keys.whole.filter(twins).unique()
    return Overlap(
        name,
        other,
        rows=int(part.features.is_in(shared.implode()).sum()),
        same=int(part.whole.is_in(same.implode()).sum()),
        total=len(part.features),
        source_rows=int(twins.sum()),
    )


def tells_label(column: pl.Series, y: NDArray[Any], *, classes: int) -> str | None:
    """In which rows a column alone gives the label away, in words; None if it does not.

    In every row: in a classification its few values have one class each; in a regression it is the label, but
    for scale. In nearly every row: its order is the label's, so that one threshold parts two classes.
    """
    if len(column) < _ENOUGH:
        return None
    column = column.alias("value")  # polars takes a name such as ^a$ for a pattern
    exact = _one_class_each if classes else _is_a_line
    step = 1 + len(column) // _SAMPLE
    # Most columns are cleared by some of the rows.
    if exact(column.gather_every(step), y[::step]) and (step == 1 or exact(column, y)):
        return "in every training row"
    if classes == 2 and kind_of(column.dtype) in ("text", "boolean"):
        column = _shares(column, y)
    if classes <= 2 and kind_of(column.dtype) == "number" and _same_order(column, y, classes=classes):
        return "in nearly every training row"
    return None


def _shares(column: pl.Series, y: NDArray[Any]) -> pl.Series:
    """For every row the share of class 1 among the rows of its value; nothing if values are too many."""
    table = pl.DataFrame([column, pl.Series("label", y)])
    if column.n_unique() > min(_FEW_VALUES, len(column) // _EACH):
        return pl.Series([None] * len(column), dtype=pl.Float64)
    return table.select(pl.col("label").mean().over("value"))["label"]


def _one_class_each(column: pl.Series, y: NDArray[Any]) -> bool:
    table = pl.DataFrame([column, pl.Series("label", y)])
    pairs = table.unique()
    values = pairs["value"].n_unique()
    return pairs.height == values <= _FEW_VALUES and pairs["label"].n_unique() > 1


def _is_a_line(column: pl.Series, y: NDArray[Any]) -> bool:
    if kind_of(column.dtype) != "number" or column.null_count():
        return False
    values = column.cast(pl.Float64).to_numpy()
    if not np.isfinite(values).all() or values.std() == 0.0 or y.std() == 0.0:
        return False
    return bool(abs(np.corrcoef(values, y)[0, 1]) > 1.0 - 1e-9)


def _same_order(column: pl.Series, y: NDArray[Any], *, classes: int) -> bool:
    """Whether a column of numbers has the order of the label, or its reverse, by a sample of the rows."""
    places = [np.flatnonzero(y == label) for label in range(classes)] or [np.arange(len(y))]
    # As many rows of a rare class as there are, up to its half of the sample: an AUROC does not mind.
    index = np.concatenate([each[:: 1 + len(each) * len(places) // _SAMPLE] for each in places])
    values = as_numbers(column[index])
    known = values.is_not_null().to_numpy()
    labels = y[index][known]
    ranks = values.drop_nulls().rank("average").to_numpy()
    if classes:
        count, above = len(labels), int(labels.sum())
        if min(above, count - above) < _EACH:
            return False
        area = (ranks[labels == 1].mean() - (above + 1) / 2) / (count - above)
        return bool(abs(area - 0.5) >= _AUROC - 0.5)
    order = pl.Series(labels).rank("average").to_numpy()
    if len(labels) < _ENOUGH or ranks.std() == 0.0 or order.std() == 0.0:
        return False
    return bool(abs(np.corrcoef(ranks, order)[0, 1]) > _RANK_CORRELATION)
