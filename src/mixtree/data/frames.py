"""Tables in memory: any table as a polars frame, and any column as numbers, as text or as moments in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.data.arrays import LARGEST, frame_columns
from mixtree.data.readers import MISSING, names
from mixtree.errors import DataError, MissingExtraError

Kind: TypeAlias = Literal["number", "boolean", "text", "date", "empty", "other"]

Where: TypeAlias = str

_NUMBER = (int, float, np.integer, np.floating)


def as_frame(table: Any, *, where: Where = "the table") -> pl.DataFrame:
    """A polars frame of a polars, pandas or Arrow table, a dict of columns or an array (columns x0, x1, …).

    >>> as_frame(np.zeros((2, 2))).columns
    ['x0', 'x1']
    """
    if isinstance(table, pl.DataFrame):
        return table
    if isinstance(table, pl.LazyFrame):
        return table.collect()
    if _library(table) == "pandas" and frame_columns(table) is not None:
        labels = [str(label) for label in table.columns]
        twice = sorted(label for label, count in Counter(labels).items() if count > 1)
        if twice:
            raise DataError(f"{where}: several columns are named {names(twice)}; give each its own name")
        return pl.DataFrame(
            [_series(label, table.iloc[:, place], where) for place, label in enumerate(labels)]
        )
    if isinstance(table, Mapping):
        return pl.DataFrame([_series(str(name), values, where) for name, values in table.items()])
    if _library(table) == "pyarrow":
        frame = pl.from_arrow(table)
        return frame if isinstance(frame, pl.DataFrame) else frame.to_frame("x0")
    try:
        array = np.asarray(table)
    except ValueError as error:
        raise DataError(f"{where}: rows of different lengths; give a table (rows × columns)") from error
    if array.ndim != 2:
        raise DataError(f"{where}: needs a table (rows × columns); got shape {array.shape}")
    columns = (array[:, place] for place in range(array.shape[1]))
    return pl.DataFrame(
        [
            _series(f"x{place}", _known(column) if column.dtype == object else column, where)
            for place, column in enumerate(columns)
        ]
    )


def kind_of(dtype: pl.DataType) -> Kind:
    """What a column of this type holds; times of day and durations count as numbers (of seconds)."""
    if dtype.is_numeric() or dtype in (pl.Duration, pl.Time):
        return "number"
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return "text"
    if dtype in (pl.Date, pl.Datetime):
        return "date"
    if dtype == pl.Boolean:
        return "boolean"
    return "empty" if dtype == pl.Null else "other"


def as_numbers(column: pl.Series) -> pl.Series:
    """Float64 values of a column of numbers; null where missing, infinite or beyond `LARGEST`."""
    if column.dtype == pl.Duration:
        column = column.dt.total_microseconds() / 1e6
    elif column.dtype == pl.Time:
        column = column.cast(pl.Int64) / 1e9
    values = column.cast(pl.Float64)
    if len(values) and not values.null_count():
        plain = values.to_numpy()
        if plain.min() >= -LARGEST and plain.max() <= LARGEST:  # as mostly, and much quicker to see
            return values
    fits = (values.abs() <= LARGEST).fill_null(True)  # NaN is larger than any number
    return values if fits.all() else values.set(~fits, None)


def as_text(column: pl.Series) -> pl.Series:
    """The values as text; whole numbers without a decimal point, no text at all for a missing value."""
    if column.dtype in (pl.Duration, pl.Time):
        column = as_numbers(column)
    if column.dtype.is_float():
        column = column.fill_nan(None)
        whole = column.cast(pl.Int64, strict=False)
        fits = whole.null_count() == column.null_count() and (whole == column).all()
        column = whole if fits else column
    column = column if column.dtype == pl.String else column.cast(pl.String)
    empty = (column == "").fill_null(False)
    return column.set(empty, None) if empty.any() else column


def as_moments(column: pl.Series, *, format: str | None = None) -> pl.Series:
    """Moments in UTC of a column of dates, or of text in this format; null where it does not fit."""
    if kind_of(column.dtype) == "text":
        if format is None:
            return pl.Series(column.name, [None] * len(column), dtype=pl.Datetime("us"))
        column = column.cast(pl.String).str.to_datetime(
            format, time_unit="us", strict=False, ambiguous="null"
        )
    if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column.cast(pl.Datetime("us"))


def is_missing(value: Any) -> bool:
    """Whether an object stands for a missing value: None, NaN, and what pandas has for it."""
    nothing = value is None or type(value).__name__ in ("NAType", "NaTType")
    return nothing or (isinstance(value, float | np.floating) and bool(value != value))


def first_lost(before: pl.Series, after: pl.Series) -> Any:
    """The first value that a conversion lost, or None."""
    lost = before.filter(before.is_not_null() & after.is_null())
    if lost.dtype == pl.String:
        lost = lost.filter(~lost.str.strip_chars().is_in(list(MISSING)))
    return lost[0] if len(lost) else None


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _series(name: str, values: Any, where: Where) -> pl.Series:
    try:
        if _library(values) == "pandas":
            # Numbers, flags and moments are numpy arrays in pandas already; the rest goes through Arrow.
            if not isinstance(values.dtype, np.dtype) and find_spec("pyarrow") is None:
                raise MissingExtraError(f"column {name!r} of the pandas table, {values.dtype},", "pandas")
            values = pl.from_pandas(values)
        # Named last: polars takes a name such as ^a$ for a pattern.
        column = pl.Series("values", values, strict=True).alias(name)
    except (TypeError, ValueError, OverflowError, NotImplementedError, pl.exceptions.PolarsError) as error:
        said = str(error).partition("\n")[0]
        raise DataError(
            f"{where}: column {name!r} mixes kinds of values ({said}); make it all numbers or all text"
        ) from error
    if column.dtype == pl.Object:
        raise DataError(
            f"{where}: column {name!r} holds {type(column[0]).__name__} objects; make it numbers or text"
        )
    return column


def _known(column: NDArray[Any]) -> list[Any]:
    """The objects of a column, None for missing ones; whole numbers among others are such numbers too."""
    values = [None if is_missing(each) else each for each in column]
    kinds = {type(each) for each in values if each is not None}
    if len(kinds) > 1 and bool not in kinds and all(issubclass(kind, _NUMBER) for kind in kinds):
        return [None if each is None else float(each) for each in values]
    return values
