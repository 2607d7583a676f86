from __future__ import annotations

from datetime import date, datetime, time, timedelta
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from mixtree.data.frames import as_frame, as_moments, as_numbers, as_text, kind_of
from mixtree.errors import DataError

COLUMNS: dict[str, list[Any]] = {"a": [1.5, None], "b": ["x", "y"], "c": [True, False]}
TABLES = [
    pl.DataFrame(COLUMNS),
    pl.DataFrame(COLUMNS).lazy(),
    pl.DataFrame(COLUMNS).to_arrow(),
    pd.DataFrame(COLUMNS),
    COLUMNS,
]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: type(table).__module__)
def test_tables_of_any_library_are_the_same_frame(table: Any) -> None:
    assert as_frame(table).equals(pl.DataFrame(COLUMNS))


def test_columns_of_arrays_are_numbered_and_typed() -> None:
    assert as_frame(np.array([[1, 2], [3, 4]])).rows() == [(1, 2), (3, 4)]
    mixed = as_frame(np.array([[1.5, "x"], [None, "y"]], dtype=object))
    assert mixed.columns == ["x0", "x1"]
    assert mixed.dtypes == [pl.Float64, pl.String]
    assert as_frame([[1, 2]]).columns == ["x0", "x1"]


def test_an_array_of_objects_may_lack_values_and_mix_numbers() -> None:
    rows = [["x", 1, True], [np.nan, 2.5, None], [pd.NA, np.float64("nan"), False]]
    frame = as_frame(np.array(rows, dtype=object))
    assert frame.rows() == [("x", 1.0, True), (None, 2.5, None), (None, None, False)]


def test_pandas_names_become_text_and_its_index_is_no_column() -> None:
    frame = as_frame(pd.DataFrame({1: [5, 6], "b": pd.Categorical(["x", None])}, index=["p", "q"]))
    assert frame.columns == ["1", "b"]
    assert as_text(frame["b"]).to_list() == ["x", None]


BROKEN = [
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns are named 'a'"),
    (pd.DataFrame({"a": [1, "x"]}), "column 'a' mixes kinds"),
    (pd.DataFrame({"a": [object(), 1]}), "column 'a'"),
    (pd.DataFrame({"a": [1 + 2j]}), "column 'a'"),
    (pd.DataFrame({"a": [10**30, 1]}), "column 'a'"),
    (np.array([[1, "x"], ["y", 2]], dtype=object), "column 'x0'"),
    (np.array([[1 + 2j]]), "column 'x0'"),
    (np.zeros(3), r"rows × columns.*\(3,\)"),
    (np.zeros((2, 2, 2)), "rows × columns"),
    ([[1, 2], [3]], "different lengths"),
    ({"a": [1, "x"]}, "column 'a' mixes kinds"),
]


@pytest.mark.parametrize(("table", "words"), BROKEN)
def test_what_is_no_table_is_refused(table: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        as_frame(table, where="here")


KINDS: list[tuple[list[Any], pl.DataType, str]] = [
    ([1], pl.Int8(), "number"),
    ([1], pl.Int128(), "number"),
    ([1.5], pl.Float32(), "number"),
    ([1], pl.Decimal(10, 2), "number"),
    ([timedelta(seconds=90)], pl.Duration("ms"), "number"),
    ([time(1, 0)], pl.Time(), "number"),
    (["x"], pl.String(), "text"),
    (["x"], pl.Categorical(), "text"),
    (["x"], pl.Enum(["x"]), "text"),
    ([date(2024, 1, 1)], pl.Date(), "date"),
    ([datetime(2024, 1, 1)], pl.Datetime("ns", "Europe/Paris"), "date"),
    ([True], pl.Boolean(), "boolean"),
    ([None], pl.Null(), "empty"),
    ([[1]], pl.List(pl.Int64), "other"),
    ([{"a": 1}], pl.Struct({"a": pl.Int64}), "other"),
    ([b"x"], pl.Binary(), "other"),
]


@pytest.mark.parametrize(("values", "dtype", "kind"), KINDS, ids=lambda value: str(value))
def test_every_type_is_of_a_kind(values: list[Any], dtype: pl.DataType, kind: str) -> None:
    assert kind_of(pl.Series(values, dtype=dtype).dtype) == kind


def test_numbers_are_finite_or_missing() -> None:
    column = pl.Series([1.0, float("nan"), float("inf"), -1e200, None, 1e100])
    assert as_numbers(column).to_list() == [1.0, None, None, None, None, 1e100]
    assert as_numbers(pl.Series([timedelta(seconds=90)])).to_list() == [90.0]
    assert as_numbers(pl.Series([time(1, 0, 1)])).to_list() == [3601.0]
    assert as_numbers(pl.Series([10**25], dtype=pl.Int128)).to_list() == [1e25]
    assert as_numbers(pl.Series([True, None])).to_list() == [1.0, None]


def test_whole_numbers_are_written_without_a_point() -> None:
    assert as_text(pl.Series([1.0, float("nan"), 2.0])).to_list() == ["1", None, "2"]
    assert as_text(pl.Series([1.5, 2.0])).to_list() == ["1.5", "2.0"]
    assert None not in as_text(pl.Series([1.0, 1e30]))
    assert as_text(pl.Series(["x", "", None])).to_list() == ["x", None, None]
    assert as_text(pl.Series([True, False])).to_list() == ["true", "false"]
    assert as_text(pl.Series([timedelta(seconds=90), None])).to_list() == ["90", None]


def test_moments_are_in_utc() -> None:
    paris = pl.Series([datetime(2024, 1, 1, 12)]).dt.replace_time_zone("Europe/Paris")
    assert as_moments(paris).to_list() == [datetime(2024, 1, 1, 11)]
    assert as_moments(pl.Series([date(2024, 1, 1)])).to_list() == [datetime(2024, 1, 1)]
    assert as_moments(pl.Series(["2024-01-01", "soon"]), format="%Y-%m-%d").to_list() == [
        datetime(2024, 1, 1),
        None,
    ]
    assert as_moments(pl.Series(["soon"])).to_list() == [None]
