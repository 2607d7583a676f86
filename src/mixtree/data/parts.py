"""Parts: the training, validation and test tables of a spec, read and made to fit each other."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from mixtree.data.dates import SURE_FORMATS, as_dates, date_format
from mixtree.data.frames import Kind, as_frame, as_text, kind_of
from mixtree.data.labels import alike
from mixtree.data.readers import names, read_table, with_plain_names
from mixtree.data.specs import Table, TableSpec
from mixtree.errors import DataError

MOST_SOURCES = 1000
"""A source column with more values than this is taken for the wrong column."""


@dataclass(frozen=True, eq=False, slots=True)
class Part:
    """Rows of one role: their table, their labels and, of training rows, the names of their sources."""

    where: str
    frame: pl.DataFrame
    label: pl.Series
    source: pl.Series | None = None


def read_parts(spec: TableSpec, told: list[str]) -> dict[str, Part]:
    """The rows of every role ("training", then "validation" and "test", or "target") that have a label.

    The label columns of all roles are of one type. What should be known of the files is told.
    """
    training = _training(spec, told)
    parts = {"training": training}
    text = [name for name, dtype in training.frame.schema.items() if kind_of(dtype) == "text"]
    for role, table in {"validation": spec.val, "test": spec.test, "target": spec.target}.items():
        if table is None:
            continue
        where, frame = _open(table, role, text)
        _require(frame, spec.label, "label", where)
        for column, use in ((spec.group_col, "group"), (spec.time_col, "time")):
            if column is not None:
                _require(frame, column, use, where)
        parts[role] = Part(where, frame, frame[spec.label])
    columns = alike(spec.label, {role: part.label for role, part in parts.items()})
    return {role: _labelled(spec, part, columns[role], role, told) for role, part in parts.items()}


def features_of(spec: TableSpec, parts: Mapping[str, Part], told: list[str]) -> list[str]:
    """The columns to learn from: those of the training tables that the target has too."""
    training, judge, *others = parts.values()
    there, judged = set(training.frame.columns), set(judge.frame.columns)
    used = {spec.label, spec.source_col, spec.group_col}
    for asked, use in ((spec.drop, "to drop"), (spec.categorical, "to take for categorical")):
        unknown = [name for name in asked if name not in there]
        if unknown:
            raise DataError(f"no column {names(unknown)} {use}; there are {names(training.frame.columns)}")
    left_out = used | set(spec.drop)
    mine = [name for name in training.frame.columns if name not in left_out]
    if "" in mine:
        told.append("the column without a name (a saved row index?) is dropped")
        mine.remove("")
    absent = [name for name in mine if name not in judged]
    if absent:
        told.append(f"column {names(absent)} is not in {judge.where}: dropped")
    features = [name for name in mine if name in judged]
    if not features:
        raise DataError(
            f"{judge.where} has none of the feature columns of the training tables ({names(mine) or 'none'});"
            " rows to train and rows to judge must have the same columns"
        )
    extra = [name for name in judge.frame.columns if name and name not in used and name not in there]
    if extra:
        told.append(f"column {names(extra)} of {judge.where} is in no training table: ignored")
    for other in others:
        have = set(other.frame.columns)
        lacking = [name for name in features if name not in have]
        if lacking:
            raise DataError(f"{other.where}: column {names(lacking, most=len(lacking))} is missing")
    return features


def _open(table: Table, what: str, text: Iterable[str] = ()) -> tuple[str, pl.DataFrame]:
    """What to call the table, and its rows."""
    if isinstance(table, str | Path):
        return f"{what} {table}", read_table(table, text=set(text))
    frame = with_plain_names(as_frame(table, where=what))
    if not frame.height:
        raise DataError(f"{what}: there are no rows in it")
    return what, frame


def _require(frame: pl.DataFrame, column: str, role: str, where: str) -> None:
    if column in frame.columns:
        dtype = frame.schema[column]
        if kind_of(dtype) == "other":
            raise DataError(f"{where}: {role} column {column!r} has {dtype} values; make it numbers or text")
        return
    near = difflib.get_close_matches(column, frame.columns, n=3)
    hint = f"did you mean {names(near)}?" if near else f"it has {names(frame.columns)}"
    raise DataError(f"{where}: no {role} column {column!r}; {hint}")


def _training(spec: TableSpec, told: list[str]) -> Part:
    tables = [("training" if name is None else f"source {name!r}", table) for name, table in spec.sources]
    codes = set(spec.categorical)
    known = {*codes, spec.label, spec.source_col}
    opened = _dated([_open(table, what, codes) for what, table in tables], known)
    mixed = _text_somewhere(opened, codes, told)
    if mixed:
        # Read again as text, before leading zeros of codes are lost.
        opened = _dated([_open(table, what, mixed | codes) for what, table in tables], known | mixed)
    sources = []
    for (name, _), (where, frame) in zip(spec.sources, opened, strict=True):
        _require(frame, spec.label, "label", where)
        sources.append(_source_names(spec, name, frame, where))
    source = pl.concat(sources)
    if source.n_unique() > MOST_SOURCES:
        raise DataError(
            f"source column {spec.source_col!r} has {source.n_unique():,} different values; name the column"
            " that says where a row comes from"
        )
    where = opened[0][0] if len(opened) == 1 else "training"
    frame = _joined(opened, told)
    return Part(where, frame, frame[spec.label], source)


def _kinds(opened: Sequence[tuple[str, pl.DataFrame]]) -> dict[str, dict[Kind, list[int]]]:
    """For every column, the places of the tables that have values of each kind in it."""
    found: dict[str, dict[Kind, list[int]]] = {}
    for place, (_, frame) in enumerate(opened):
        for name, dtype in frame.schema.items():
            kind = kind_of(dtype)
            if kind != "empty":
                found.setdefault(name, {}).setdefault(kind, []).append(place)
    return found


def _dated(
    opened: Sequence[tuple[str, pl.DataFrame]], others: Collection[str | None]
) -> list[tuple[str, pl.DataFrame]]:
    """The tables, with dates for the text in a column that holds dates elsewhere and is none of ``others``.

    As in later rows, only text such as 2024-12-31 is a date: it cannot be misread.
    """
    done = list(opened)
    for name, kinds in _kinds(opened).items():
        if set(kinds) != {"text", "date"} or name in others:
            continue
        texts = [as_text(opened[place][1].get_column(name).alias("text")) for place in kinds["text"]]
        read = [as_dates(text, date_format(text, formats=SURE_FORMATS)[0]) for text in texts]
        if any(each.null_count() > text.null_count() for each, text in zip(read, texts, strict=True)):
            continue
        for place, each in zip(kinds["text"], read, strict=True):
            where, frame = done[place]
            done[place] = where, frame.with_columns(each.alias(name))
    return done


def _text_somewhere(
    opened: Sequence[tuple[str, pl.DataFrame]], codes: Collection[str], told: list[str]
) -> set[str]:
    """Columns, other than codes, that are text in one table and something else in another."""
    mixed = set()
    for name, kinds in _kinds(opened).items():
        if "text" not in kinds or len(kinds) == 1 or name in codes:
            continue
        text, *more = kinds["text"]
        other = next(places[0] for kind, places in kinds.items() if kind != "text")
        also = f" (and {len(more):,} more)" if more else ""
        hint = ". Write dates as 2024-12-31" if "date" in kinds else ""
        told.append(
            f"column {name!r} is text in {opened[text][0]}{also} but not in {opened[other][0]}: treated as"
            f" text in all{hint}"
        )
        mixed.add(name)
    return mixed


def _source_names(spec: TableSpec, name: str | None, frame: pl.DataFrame, where: str) -> pl.Series:
    if spec.source_col is None:
        return pl.Series("source", [name], dtype=pl.Categorical).new_from_index(0, frame.height)
    _require(frame, spec.source_col, "source", where)
    column = as_text(frame[spec.source_col].alias("source")).str.strip_chars()
    if column.null_count():
        row = (column.is_null().arg_max() or 0) + 1
        raise DataError(
            f"{where}: source column {spec.source_col!r} is missing in {column.null_count():,} rows (first in"
            f" data row {row:,}); fill it in. Words such as NA, null and None mean missing"
        )
    return column.cast(pl.Categorical)


def _joined(opened: Sequence[tuple[str, pl.DataFrame]], told: list[str]) -> pl.DataFrame:
    """All rows in one table, every column of one type."""
    if len(opened) == 1:
        return opened[0][1]
    every = list(dict.fromkeys(name for _, frame in opened for name in frame.columns))
    types, schemas = {}, [(where, frame.schema) for where, frame in opened]
    for name in every:
        having = {where: schema[name] for where, schema in schemas if name in schema}
        lacking = [where for where, schema in schemas if name not in schema]
        if lacking:
            told.append(f"column {name!r} is not in {', '.join(lacking)}: its values count as missing there")
        types[name] = _common_type(name, having)
    return pl.concat(
        [
            pl.DataFrame([_cast(columns.get(name), name, types[name], height) for name in every])
            for columns, height in (
                ({each.name: each for each in frame}, frame.height) for _, frame in opened
            )
        ]
    )


def _cast(column: pl.Series | None, name: str, dtype: pl.DataType, rows: int) -> pl.Series:
    if column is None:
        return pl.Series(name, [None], dtype=dtype).new_from_index(0, rows)
    column = column.alias("values")
    return (as_text(column) if dtype == pl.String else column.cast(dtype)).alias(name)


def _common_type(name: str, having: Mapping[str, pl.DataType]) -> pl.DataType:
    types = set(having.values())
    kinds = {kind_of(dtype): where for where, dtype in having.items()}
    kinds.pop("empty", None)
    if len(types) == 1:
        return types.pop()
    if "other" in kinds:
        raise DataError(f"column {name!r} has different types in {', '.join(having)}; make them the same")
    if not kinds or "text" in kinds:
        return pl.String()
    if set(kinds) <= {"number", "boolean"}:
        return pl.Boolean() if set(kinds) == {"boolean"} else pl.Float64()
    if set(kinds) == {"date"}:
        return pl.Datetime("us")
    told = ", ".join(f"{kind} in {where}" for kind, where in kinds.items())
    raise DataError(f"column {name!r} has different kinds of values: {told}; make them the same")


def _labelled(spec: TableSpec, part: Part, label: pl.Series, role: str, told: list[str]) -> Part:
    """The part with these labels, without the rows that have none."""
    missing = label.is_null()
    count = int(missing.sum())
    if count == len(label):
        raise DataError(f"{part.where}: every row lacks the label {spec.label!r}; is it the right file?")
    if not count:
        return Part(part.where, part.frame, label, part.source)
    told.append(f"{count:,} of {len(label):,} {role} rows have no (finite) label {spec.label!r}: left out")
    source = None if part.source is None else part.source.filter(~missing)
    if part.source is not None and source is not None:
        lost = sorted(set(part.source.unique()) - set(source.unique()))
        if lost:
            raise DataError(
                f"{part.where}: source {names(lost)} has no row with a label {spec.label!r}; fill some"
                " in, or leave the source out"
            )
    return Part(part.where, part.frame.filter(~missing), label.drop_nulls(), source)
