"""Tables: from files with a label column to sources, validation and test rows, ready for training.

Everything that is learnt (types, medians, scales, levels, classes) is learnt from the sources' rows alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.data.columns import Column, values_of
from mixtree.data.frames import kind_of
from mixtree.data.labels import Label, Labels, alike
from mixtree.data.leakage import Keys, Overlap, find_leakage
from mixtree.data.parts import Part, features_of, labelled, read_target, read_training
from mixtree.data.preprocessing import Preprocessor
from mixtree.data.readers import names, read_table
from mixtree.data.sources import Rows, Sources
from mixtree.data.specs import TableSpec
from mixtree.data.splits import split_rows
from mixtree.errors import DataError

__all__ = ["TableData", "TableSpec", "load_tables", "read_table"]


@dataclass(frozen=True, eq=False, slots=True)
class TableData:
    """Tables made ready: sources and validation rows, test rows, and how they came to be.

    ``leakage`` lists rows that stand both in a source and in validation or test; ``warnings`` says in words
    what the owner of the data should know.
    """

    problem_sources: Sources
    test: Rows | None
    preprocessor: Preprocessor
    labels: Labels
    leakage: tuple[Overlap, ...]
    warnings: tuple[str, ...]

    @property
    def classes(self) -> tuple[Label, ...] | None:
        """The classes as the files have them, in the order of their numbers; None for a regression."""
        return self.labels.classes

    @property
    def columns(self) -> tuple[Column, ...]:
        """What each column holds and how it is treated."""
        return self.preprocessor.columns


XXX

def _compact(frame: pl.DataFrame, preprocessor: Preprocessor) -> pl.DataFrame:
    """The columns that become features, text in a form that takes a quarter of the room."""
    kept = {column.name: column for column in preprocessor.columns if column.kind != "dropped"}
    frame = frame.select(kept)
    for name, column in kept.items():
        if kind_of(frame.schema[name]) == "text":
            values = values_of(column, frame[name], where="training")
            frame = frame.with_columns(values if column.kind == "date" else values.cast(pl.Categorical))
    return frame


def _rows_by_source(source: pl.Series, tables: list[tuple[str | None, Table]]) -> dict[str, Any]:
    """Positions of every source's rows; sources in the order given, or of their names."""
    given = [name for name, _ in tables if name is not None]
    found = source.cast(pl.String).unique().sort().to_list()
    lost = [name for name in given if name not in found]
    if lost:
        raise DataError(f"source {names(lost)} has no labelled row: leave it out or give it some")
    return {name: np.flatnonzero((source == name).to_numpy()) for name in given or found}


def _split_target(
    spec: TableSpec, part: _Part, rows: Rows, keys: Keys, seed: int
) -> tuple[dict[str, Rows], dict[str, Keys]]:
    first, rest = split_rows(
        rows.y,
        spec.val_frac,
        seed=seed,
        groups=None if spec.group_col is None else part.frame[spec.group_col],
        times=None if spec.time_col is None else part.frame[spec.time_col],
        where=part.where,
    )
    cut = {"validation": first, "test": rest}
    return {role: rows.take(index) for role, index in cut.items()}, {
        role: keys.take(index) for role, index in cut.items()
    }
