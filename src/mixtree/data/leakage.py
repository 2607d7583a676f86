"""Leakage: rows that stand both in a training source and in the rows that are to judge the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl
from numpy.typing import NDArray


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
