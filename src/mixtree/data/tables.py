"""Tables: from files with a label column to sources, validation and test rows, ready for training.

Everything that is learnt (types, medians, scales, levels, classes) is learnt from the sources' rows alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.data.columns import Column, values_of
from mixtree.data.drift import unlike
from mixtree.data.frames import as_text, kind_of
from mixtree.data.labels import Label, Labels
from mixtree.data.leakage import Keys, Overlap, find_leakage, independent, tells_label
from mixtree.data.parts import Part, features_of, read_parts
from mixtree.data.preprocessing import Preprocessor
from mixtree.data.readers import names, pick, read_table
from mixtree.data.sources import Rows, Sources
from mixtree.data.specs import TableSpec
from mixtree.data.splits import split_rows
from mixtree.errors import InputError
from mixtree.metrics import GroupedLabels

_TOGETHER = 100_000  # rows

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
    doubtful: tuple[str, ...] = ()
    """Those of the warnings that say what a score may be worth: they belong into the verdict."""

    @property
    def classes(self) -> tuple[Label, ...] | None:
        """The classes as the files have them, in the order of their numbers; None for a regression."""
        return self.labels.classes

    @property
    def columns(self) -> tuple[Column, ...]:
        """What each column holds and how it is treated."""
        return self.preprocessor.columns


def load_tables(spec: TableSpec, *, seed: int = 0, preprocessor: Preprocessor | None = None) -> TableData:
    """Reads the files of a spec and makes them ready; ``seed`` is of the target's split only.

    A ``preprocessor`` that was learnt before is used as it is: a model to start from fits its features alone.
    """
    told: list[str] = []
    parts = read_parts(spec, told)
    labels = Labels.learn(spec.label, parts["training"].label, task=spec.task, classes=spec.classes)
    y = {role: labels.encode(part.label, where=part.where) for role, part in parts.items()}
    features = features_of(spec, parts, told)
    training = parts.pop("training")
    if preprocessor is None:
        preprocessor = Preprocessor.fit(
            pick(training.frame, features),
            categorical=[name for name in spec.categorical if name in features],
            rare_below=spec.rare_below,
            max_levels=spec.max_levels,
            sparse=spec.sparse,
            where=training.where,
        )
        told += preprocessor.warnings
    preprocessor.check(training.frame, where=training.where)
    rows = _rows_by_source(spec, training)
    frame = _compact(training.frame, preprocessor)
    del training  # the table as it was read: from here on there is room for the features
    told += [words for part in parts.values() for words in unlike(preprocessor, part.frame, where=part.where)]
    if spec.groups is not None:
        y |= {role: _grouped(part, y[role], spec.groups) for role, part in parts.items()}
    judges = {role: _Judge.of(part, preprocessor, y[role]) for role, part in parts.items()}
    if "target" in judges:
        target = parts["target"]
        judge = judges["target"]
        first, rest = split_rows(
            judge.rows.y,
            spec.val_frac,
            seed=seed,
            groups=None if spec.group_col is None else target.frame[spec.group_col],
            times=None if spec.time_col is None else target.frame[spec.time_col],
            where=target.where,
        )
        judges = {"validation": judge.take(first), "test": judge.take(rest)}
    keys = Keys.of(preprocessor.keys(frame), y["training"])
    by_source = {name: keys.take(index) for name, index in rows.items()}
    leakage = find_leakage(by_source, {role: judge.keys for role, judge in judges.items()})
    given_away = [
        f"column {column.name!r} alone tells the label {spec.label!r} {where}: is it known when predictions "
        "are made? If not, leave it out (--drop)"
        for column in frame
        if (where := tells_label(column, y["training"], classes=len(labels.classes or ())))
    ]
    ready = {name: Rows(x, y["training"][rows[name]]) for name, x in _encoded(preprocessor, frame, rows)}
    told += _notes(labels, ready)
    validation, classes = judges["validation"].rows, len(labels.classes or ())
    lacking = labels.absent(validation.y)
    missed = f"validation has no row of class {names(lacking, most=5)}"
    absent = [f"{missed}: scores say nothing about it"] if lacking else []
    sources = Sources(tuple(ready), tuple(ready.values()), validation, classes)
    test = judges["test"].rows if "test" in judges else None
    sources, test, doubts = independent(sources, test, leakage=leakage)
    return TableData(
        sources,
        test,
        preprocessor,
        labels,
        leakage,
        (*told, *given_away, *absent, *doubts),
        (*given_away, *absent, *doubts),
    )


def _grouped(part: Part, y: NDArray[Any], column: str) -> GroupedLabels:
    if column not in part.frame.columns:
        raise InputError(f"{part.where} has no column {column!r}, whose worst value is to score")
    return GroupedLabels.of(y, as_text(part.frame[column]).fill_null("missing").to_numpy())


@dataclass(frozen=True, eq=False, slots=True)
class _Judge:
    """Rows that judge models, and the keys by which they are found elsewhere."""

    rows: Rows
    keys: Keys

    @classmethod
    def of(cls, part: Part, preprocessor: Preprocessor, y: NDArray[Any]) -> _Judge:
        x = preprocessor.transform(part.frame, where=part.where)
        return cls(Rows(x, y), Keys.of(preprocessor.keys(part.frame, where=part.where), y))

    def take(self, index: NDArray[Any]) -> _Judge:
        return _Judge(self.rows.take(index), self.keys.take(index))


def _rows_by_source(spec: TableSpec, training: Part) -> dict[str, NDArray[np.int64]]:
    """Positions of every source's rows; sources in the order given, or of their names."""
    assert training.source is not None
    source = training.source
    given = [name for name, _ in spec.sources if name is not None]
    found = given or source.cast(pl.String).unique().sort().to_list()
    return {name: np.flatnonzero((source == name).to_numpy()) for name in found}


def _encoded(
    preprocessor: Preprocessor, frame: pl.DataFrame, rows: Mapping[str, NDArray[np.int64]]
) -> Iterator[tuple[str, Any]]:
    """The features of every source: large ones on their own, which takes least room, small ones together."""
    groups: list[list[str]] = []
    size = 0
    for name, index in rows.items():
        if not groups or size + len(index) > _TOGETHER:
            groups.append([])
            size = 0
        groups[-1].append(name)
        size += len(index)
    for group in groups:
        x, end = preprocessor.transform(frame, rows=np.concatenate([rows[name] for name in group])), 0
        for name in group:
            start, end = end, end + len(rows[name])
            yield name, x if len(group) == 1 else x[start:end]


def _compact(frame: pl.DataFrame, preprocessor: Preprocessor) -> pl.DataFrame:
    """The columns that become features, text in a form that takes a quarter of the room."""
    kept = {column.name: column for column in preprocessor.columns if column.kind != "dropped"}
    ready = []
    for values in pick(frame, kept):
        column = kept[values.name]
        if kind_of(values.dtype) == "text":
            text = values_of(column, values, where="training")
            values = text if column.kind == "date" else text.cast(pl.Categorical)
        ready.append(values.alias(column.name))
    return pl.DataFrame(ready)


def _notes(labels: Labels, sources: Mapping[str, Rows]) -> list[str]:
    """Which classes a source lacks, and which sources are tiny."""
    told = []
    tiny = [name for name, rows in sources.items() if len(rows) == 1]
    if tiny:
        told.append(f"source {names(tiny, most=5)} has one row only")
    lacking: dict[tuple[Label, ...], list[str]] = {}
    for name, rows in sources.items():
        lacking.setdefault(labels.absent(rows.y), []).append(name)
    told += [
        f"source {names(those, most=5)} has no row of class {names(absent, most=5)}"
        for absent, those in lacking.items()
        if absent
    ]
    return told
