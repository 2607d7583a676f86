"""Leakage: rows that stand both in a source and among those that judge; columns that give the label away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.data.frames import kind_of

_ENOUGH, _SAMPLE = 100, 10_000
"""Rows from which a column that tells the label in all of them is no accident; rows that are tried first."""
_FEW_VALUES = 50


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

    def take(self, index: NDArray[Any]) -> Keys:
        """The keys at these positions."""
        return Keys(self.features[index], self.whole[index])


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


def tells_label(column: pl.Series, y: NDArray[Any], *, classes: int) -> bool:
    """Whether a column alone gives the label of every row away: a copy of it, or known only with it.

    In a classification its few values have one class each; in a regression it is the label, but for scale.
    """
    if len(column) < _ENOUGH:
        return False
    for most in (_SAMPLE, len(column)):  # most columns are cleared by some of the rows
        some = column[:most]
        if not (_one_class_each(some, y[:most]) if classes else _is_a_line(some, y[:most])):
            return False
    return True


def _one_class_each(column: pl.Series, y: NDArray[Any]) -> bool:
    table = pl.DataFrame([column.alias("value"), pl.Series("label", y)])
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
