"""Columns: what each one of a table holds, what becomes of it, and its values made ready for that."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl

from mixtree.data.dates import SURE_FORMATS, as_dates, changing_parts, date_format, nearly_dates
from mixtree.data.frames import as_numbers, as_text, first_lost, kind_of
from mixtree.errors import DataError

RARE, MISSING_LEVEL = "(rare)", "(missing)"
"""How the two levels that are no value of their own are called in feature names."""

ROW_NUMBERS = (
    "{} is the only feature and numbers the rows one by one: a model would learn their order. Give columns "
    "that say something of a row; if the number is a quantity, such as a time, give it with decimals "
    "(0.0, 1.0, …)"
)
_PLAIN = "values"  # polars takes the name of a series such as ^a$ for a pattern, whatever is done with it
_TRUTH = {"true", "false"}
_ID_ROWS = 20  # fewer rows than this can all differ by chance
_LOOKS = r"[\s$€£¥%,_]"  # what people put into numbers


@dataclass(frozen=True, slots=True)
class Rules:
    """How categorical columns are folded.

    A level seen in fewer than ``rare_below`` training rows (10, or 1 % of the rows of a small table) joins
    the level "(rare)"; at most ``max_levels``, the most frequent, keep a level of their own.
    """

    rare_below: int | None = None
    max_levels: int = 1000

    def least(self, rows: int) -> int:
        """The rows a level must be seen in to be kept."""
        return min(10, math.ceil(rows / 100)) if self.rare_below is None else self.rare_below


Kind: TypeAlias = Literal["numeric", "categorical", "date", "dropped"]
"""As what a column is treated."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: what it holds (``found``), as what it is treated (``kind``) and how, in words.

    Plain data: with it a value becomes features the same way everywhere.
    """

    name: str
    kind: Kind
    found: str
    treatment: str
    missing: bool = False  # training rows lack values: a flag, or a level, says so
    levels: tuple[str, ...] = ()
    rare: bool = False
    boolean: bool = False
    format: str | None = None
    parts: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the scaled features it becomes."""
        if self.kind == "numeric":
            return (self.name,)
        return tuple(f"{self.name}:{part}" for part in self.parts)

    @property
    def indicators(self) -> tuple[str, ...]:
        """Names of the one-hot features it becomes: its levels, then the rare ones, then missing ones."""
        if self.kind != "categorical":
            return ()
        extra = [RARE] * self.rare + [MISSING_LEVEL] * self.missing
        return tuple(f"{self.name}={level}" for level in (*self.levels, *extra))


def inspect(column: pl.Series, rules: Rules, *, where: str, codes: bool = False) -> tuple[Column, list[str]]:
    """What a column of training rows is and becomes, with what its owner should know.

    ``codes`` says that its values, though numbers or dates by their looks, are names.
    """
    kind = kind_of(column.dtype)
    name = column.name
    whole = column.dtype.is_integer()
    found = {
        "number": "whole numbers" if whole else "numbers",
        "boolean": "true/false",
        "text": "text",
        "date": "dates",
    }.get(kind, str(column.dtype))
    column = column.alias(_PLAIN)
    if kind == "other":
        raise DataError(
            f"{where}: column {name!r} holds {column.dtype} values, which are neither numbers nor text nor"
            " dates; leave it out with drop (--drop) or turn it into such"
        )
    if column.null_count() == len(column):
        return _dropped(name, found, "all its values are missing")
    if codes:
        return _categorical(name, as_text(column), found, rules, declared=True)
    if kind == "number":
        return _numeric(name, column, found)
    if kind == "date":
        return _date(name, column, found, None)
    if kind == "text":
        format, unsure = date_format(as_text(column))
        if format is not None:
            return _date(name, column, found, format, unsure=unsure)
    return _categorical(name, column, found, rules)


def _dropped(name: str, found: str, why: str) -> tuple[Column, list[str]]:
    return Column(name, "dropped", found, f"dropped: {why}"), [f"column {name!r} is dropped: {why}"]


def _numeric(name: str, column: pl.Series, found: str) -> tuple[Column, list[str]]:
    told = []
    values = as_numbers(column)
    known = column.fill_nan(None) if column.dtype.is_float() else column
    endless = values.null_count() - known.null_count()
    if endless:
        told.append(
            f"column {name!r} has infinite (or beyond 1e100) numbers in {endless:,} training rows: they are"
            " taken for missing"
        )
    missing = values.null_count() > 0
    low, high = values.min(), values.max()
    if low is None:
        return _dropped(name, found, "it has no finite number")
    if low == high and not missing:
        why = f"it has one value only ({column[0]})"
        if column.n_unique() > 1:
            why = f"as numbers its values cannot be told apart ({column.min()!r} … {column.max()!r})"
        return _dropped(name, found, why)
    if counts_rows(column):
        told.append(
            f"column {name!r} numbers the rows one by one; leave it out with drop (--drop) if it is an id"
        )
    how = "scaled; median and a flag where missing" if missing else "scaled; median where missing"
    return Column(name, "numeric", found, how, missing=missing), told


def counts_rows(column: pl.Series) -> bool:
    """Whether these whole numbers are those of the rows, from 0, 1 or any other number on, in any order."""
    if not column.dtype.is_integer() or column.null_count() or len(column) < _ID_ROWS:
        return False
    low, high = column.min(), column.max()
    spread = int(high) - int(low) if isinstance(low, int) and isinstance(high, int) else 0
    return spread + 1 == len(column) == column.n_unique()


def refuse_row_numbers(parts: Sequence[Any]) -> None:
    """Whole numbers of the rows as the only feature of these arrays, of all together or each by itself."""
    whole = (isinstance(x, np.ndarray) and x.shape[1:] == (1,) and x.dtype.kind in "iu" for x in parts)
    if not all(whole):
        return
    numbers = [pl.Series(x[:, 0].astype(np.int64)) for x in parts]
    if counts_rows(pl.concat(numbers)) or all(map(counts_rows, numbers)):
        raise DataError(ROW_NUMBERS.format("the column of x"))


def _date(
    name: str, column: pl.Series, found: str, format: str | None, *, unsure: bool = False
) -> tuple[Column, list[str]]:
    moments = as_dates(column, format)
    low, high = moments.min(), moments.max()
    missing = moments.null_count() > 0
    if low is None:
        return _dropped(name, found, "none of its dates is of a usual year")
    if low == high and not missing:
        return _dropped(name, found, f"it has one value only ({column[0]})")
    parts = changing_parts(moments)
    read = "" if format is None else f" (read as {format})"
    told = [
        f"column {name!r}: {column.drop_nulls()[0]!r} may be month/day or day/month; read as month/day."
        " Write dates as 2024-12-31 to be sure"
    ]
    treatment = f"date{read}: {', '.join(parts) or 'a flag'}" + ("; flag where missing" if missing else "")
    done = Column(name, "date", found, treatment, missing=missing, format=format, parts=parts)
    return done, told if unsure else []


def _categorical(
    name: str, column: pl.Series, found: str, rules: Rules, *, declared: bool = False
) -> tuple[Column, list[str]]:
    told: list[str] = []
    text = as_text(column)
    known = text.drop_nulls()
    counts = known.alias("level").value_counts(name="rows")
    counts = counts.sort(["rows", "level"], descending=[True, False])
    least = rules.least(len(column))
    if not len(known):
        return _dropped(name, found, "all its values are missing")
    if counts.height == len(known) >= _ID_ROWS:
        return _dropped(name, found, f"every value is different (an id or free text, e.g. {known[0]!r})")
    if counts.height == 1 and len(known) == len(text):
        return _dropped(name, found, f"it has one value only ({known[0]!r})")
    kept = counts.filter(pl.col("rows") >= least).head(rules.max_levels)
    missing = len(known) < len(text)
    if not kept.height and not missing:
        return _dropped(name, found, f"no value is seen in {least:,} training rows (e.g. {known[0]!r})")
    if kind_of(column.dtype) == "text" and not declared:
        told += _suspicions(name, counts["level"])
    rare = kept.height < counts.height
    extra = " + rare" * rare + " + missing" * missing
    done = Column(
        name,
        "categorical",
        found,
        f"one-hot: {kept.height:,} level{'s' * (kept.height != 1)}{extra}",
        missing=missing,
        levels=tuple(kept["level"].sort()),
        rare=rare,
        boolean=column.dtype == pl.Boolean,
    )
    return done, told


def _suspicions(name: str, levels: pl.Series) -> Iterator[str]:
    """What a text column may have been meant to be."""
    bare = levels.str.replace_all(_LOOKS, "").cast(pl.Float64, strict=False)
    plain = levels.cast(pl.Float64, strict=False)
    if len(levels) >= 5 and 10 * bare.null_count() <= len(levels):
        odd = first_lost(levels, plain)
        yield (
            f"column {name!r} is text but nearly all its values look like numbers: treated as categorical."
            + (f" If numbers are meant, mend values such as {odd!r}" if odd is not None else "")
        )
        return
    odd = nearly_dates(levels)
    if odd is not None:
        yield (
            f"column {name!r} looks like dates but {odd!r} is none in the same format: treated as"
            " categorical. Write dates as 2024-12-31, and leave missing ones empty"
        )


def values_of(column: Column, series: pl.Series, *, where: str) -> pl.Series:
    """The values of a column in the form its kind works on: Float64, text or moments; null where missing."""
    series = series.alias(_PLAIN)
    if series.null_count() == len(series):
        types = {"numeric": pl.Float64(), "categorical": pl.String(), "date": pl.Datetime("us")}
        return pl.Series(series.name, [None], dtype=types[column.kind]).new_from_index(0, len(series))
    if kind_of(series.dtype) == "other":
        raise _unfit(column, where, series.drop_nulls()[0])
    if column.kind == "numeric":
        if kind_of(series.dtype) == "text":
            text = as_text(series).str.strip_chars()
            series = text.cast(pl.Float64, strict=False)
            odd = first_lost(text, series)
            if odd is not None:
                raise _unfit(column, where, odd)
        elif kind_of(series.dtype) == "date":
            raise _unfit(column, where, series.drop_nulls()[0])
        return as_numbers(series)
    if column.kind == "date":
        if kind_of(series.dtype) == "date":
            return as_dates(series, None)
        if kind_of(series.dtype) != "text":
            raise _unfit(column, where, series.drop_nulls()[0])
        text = as_text(series)
        # Dates of a typed file may come as text later; only 2024-12-31 cannot be misread then.
        format = column.format or date_format(text, formats=SURE_FORMATS)[0]
        moments = as_dates(text, format)
        odd = first_lost(text, moments)
        if odd is not None:
            raise _unfit(column, where, odd)
        return moments
    if not column.boolean:
        return as_text(series)
    if kind_of(series.dtype) == "number":
        numbers = as_numbers(series)
        odd = numbers.filter(~numbers.is_in([0.0, 1.0]))
        if len(odd):
            raise _unfit(column, where, odd[0])
        return as_text(numbers.cast(pl.Boolean))
    text = as_text(series).str.to_lowercase()
    odd = text.filter(~text.is_in(list(_TRUTH)))
    if len(odd):
        raise _unfit(column, where, odd[0])
    return text


def _unfit(column: Column, where: str, value: Any) -> DataError:
    held = (
        "true/false" if column.boolean else {"numeric": "numbers", "date": "dates"}.get(column.kind, "text")
    )
    format = f" written as {column.format}" if column.format else ""
    return DataError(
        f"{where}: column {column.name!r} held {held}{format} in training but {value!r} is none; mend the"
        " value, or leave it empty if it is missing"
    )


def levels_as_codes(column: Column, text: pl.Series) -> pl.Series:
    """The place of every value among the column's indicators; −1 where it has none."""
    rare = len(column.levels) if column.rare else -1
    missing = len(column.levels) + column.rare if column.missing else rare
    places = text.cast(pl.Enum(column.levels), strict=False).to_physical().cast(pl.Int32).fill_null(rare)
    empty = text.is_null()
    return places.set(empty, missing) if empty.any() else places
