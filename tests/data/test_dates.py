from __future__ import annotations

from datetime import datetime

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree.data.dates import FORMATS, as_dates, changing_parts, date_format, date_parts, nearly_dates

WRITTEN: list[tuple[list[str], datetime]] = [
    (["2024-03-31", "2023-02-01"], datetime(2024, 3, 31)),
    (["2024/03/31"], datetime(2024, 3, 31)),
    (["03/31/2024", "01/02/2024"], datetime(2024, 3, 31)),
    (["31/03/2024", "01/02/2024"], datetime(2024, 3, 31)),
    (["3/31/24"], datetime(2024, 3, 31)),
    (["31.3.2024"], datetime(2024, 3, 31)),
    (["31 Mar 2024"], datetime(2024, 3, 31)),
    (["March 31, 2024"], datetime(2024, 3, 31)),
    (["2024-03-31 10:11:12"], datetime(2024, 3, 31, 10, 11, 12)),
    (["2024-03-31 10:11"], datetime(2024, 3, 31, 10, 11)),
    (["2024-03-31T10:11:12.5"], datetime(2024, 3, 31, 10, 11, 12, 500_000)),
    (["2024-03-31T10:11:12Z"], datetime(2024, 3, 31, 10, 11, 12)),
    (["2024-03-31 10:11:12+02:00"], datetime(2024, 3, 31, 8, 11, 12)),
    (["03/31/2024 12:05 AM"], datetime(2024, 3, 31, 0, 5)),
]


@pytest.mark.parametrize(("values", "first"), WRITTEN, ids=lambda value: str(value))
def test_dates_as_people_write_them_are_found(values: list[str], first: datetime) -> None:
    column = pl.Series("day", [*values, None])
    format, unsure = date_format(column)
    assert format is not None
    assert not unsure
    assert as_dates(column, format)[0] == first
    assert as_dates(column, format)[-1] is None


def test_day_and_month_that_may_be_swapped_are_told() -> None:
    assert date_format(pl.Series(["01/02/2024", "03/04/2024"])) == ("%m/%d/%Y", True)


@pytest.mark.parametrize(
    "values", [["x"], ["1.2.3"], ["a-b-c"], ["2024-02-30"], ["2024-01-01", "x"], [], ["12:30"]]
)
def test_other_text_is_no_date(values: list[str]) -> None:
    assert date_format(pl.Series("day", values, dtype=pl.String)) == (None, False)


def test_one_odd_value_among_dates_is_found() -> None:
    assert nearly_dates(pl.Series(["2024-01-01", "2024-01-02", "soon"])) == "soon"
    assert nearly_dates(pl.Series(["2024-01-01", "2024-01-02"])) is None
    assert nearly_dates(pl.Series(["x", "y", "2024-01-01"])) is None


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.sampled_from(FORMATS))
def test_what_a_format_writes_is_read_as_some_date(moment: datetime, format: str) -> None:
    written = pl.Series([moment]).dt.replace_time_zone("UTC").dt.strftime(format.replace("%#z", "%z"))
    assert date_format(written)[0] is not None


def test_parts_are_right_and_smooth() -> None:
    moments = pl.Series([datetime(2024, 12, 31, 18), datetime(2025, 1, 1, 6), None])
    parts = date_parts(moments)
    assert {
        name: part[0]
        for name, part in parts.items()
        if name in ("month", "day", "weekday", "weekend", "hour")
    } == {
        "month": 12.0,
        "day": 31.0,
        "weekday": 2.0,
        "weekend": 0.0,
        "hour": 18.0,
    }
    assert parts["year"][1] - parts["year"][0] == pytest.approx(1 / 366)
    assert parts["season_cos"][0] == pytest.approx(parts["season_cos"][1], abs=1e-3)
    assert all(part[2] is None for part in parts.values())
    assert list(date_parts(moments, only=["day", "year"])) == ["day", "year"]


def test_parts_that_never_change_are_left_out() -> None:
    days = pl.Series([datetime(2024, 1, 1), datetime(2024, 1, 8), None])
    assert changing_parts(days) == ("year", "day", "season_sin", "season_cos")
    assert changing_parts(pl.Series([datetime(2024, 1, 1, 5), datetime(2024, 1, 1, 7)])) == (
        "hour",
        "hour_sin",
        "hour_cos",
    )
