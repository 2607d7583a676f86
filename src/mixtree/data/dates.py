"""Dates: which format a text column is written in, and the numbers that a moment becomes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import polars as pl

from mixtree.data.frames import as_moments

_DAYS = (
    "%Y-%m-%d",
    "%Y/%m/%d",
    "%m/%d/%Y",
    "%d/%m/%Y",
    "%m-%d-%Y",
    "%d-%m-%Y",
    "%d.%m.%Y",
    "%Y.%m.%d",
    "%d %b %Y",
    "%d-%b-%Y",
    "%b %d, %Y",
    "%d %B %Y",
    "%B %d, %Y",
    "%m/%d/%y",
    "%d/%m/%y",
)
_TIMES = ("", " %H:%M:%S", " %H:%M", " %H:%M:%S%.f", " %I:%M:%S %p", " %I:%M %p")
_ISO = (
    "%Y-%m-%dT%H:%M:%S",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%dT%H:%M",
    "%Y-%m-%dT%H:%M:%S%.f%#z",
    "%Y-%m-%d %H:%M:%S%.f%#z",
)
FORMATS = (*(day + time for time in _TIMES for day in _DAYS), *_ISO)
"""The ways of writing a moment that are tried, in this order."""
SURE_FORMATS = tuple(format for format in FORMATS if format.startswith("%Y-%m-%d"))
"""Those of them that nobody reads otherwise."""

PARTS = (
    "year", "month", "day", "weekday", "weekend", "season_sin", "season_cos", "hour", "hour_sin", "hour_cos"
)  # fmt: skip
"""The names of the numbers that a moment becomes."""

_SAMPLE = 200  # values that choose the formats worth trying on all
_SHAPE = r"^\w+[-/. ]\w+[-/. ,]"
_YEARS = (1000, 9999)  # 1/2/24 is no date of the year 24


def date_format(column: pl.Series, *, formats: Sequence[str] = FORMATS) -> tuple[str | None, bool]:
    """The format in which all values of a text column are dates, and whether day and month may be swapped."""
    known = column.drop_nulls()
    sample = _sample(known)
    if not len(known) or not sample.str.contains(_SHAPE).all():
        return None, False

    def fits(format: str) -> bool:
        return not any(as_dates(part, format).null_count() for part in (sample, known))

    format = next((format for format in formats if fits(format)), None)
    if format is None or not format.startswith(("%m/%d", "%m-%d")):
        return format, False
    return format, fits(f"%d{format[2]}%m{format[5:]}")


def nearly_dates(column: pl.Series) -> str | None:
    """A value that is no date of the same format in a text column where most are, or None."""
    sample = _sample(column.drop_nulls())
    if 2 * int(sample.str.contains(_SHAPE).sum()) < len(sample):
        return None
    best = min((as_dates(sample, format) for format in FORMATS), key=pl.Series.null_count)
    if not 0 < 2 * best.null_count() <= len(sample):
        return None
    return str(sample.filter(best.is_null())[0])


def _sample(known: pl.Series) -> pl.Series:
    # Not only the first values: a file sorted by date begins with days that fit both 01/02 and 02/01.
    return known.gather_every(max(1, len(known) // _SAMPLE)).unique(maintain_order=True)


def as_dates(column: pl.Series, format: str | None) -> pl.Series:
    """Moments of a column of dates, or of text in this format; null where it is none, or in no usual year."""
    moments = as_moments(column, format=format)
    usual = moments.dt.year().is_between(*_YEARS).fill_null(True)
    return moments if usual.all() else moments.set(~usual, None)


def changing_parts(moments: pl.Series) -> tuple[str, ...]:
    """The parts that are not the same for all: the hour of plain days, say, tells nothing."""
    known = moments.drop_nulls()
    days = date_parts(known.dt.date().unique().cast(pl.Datetime("us")))
    clock = known.dt.time().n_unique() > 1
    return tuple(
        name
        for name, part in days.items()
        if (clock if name.startswith("hour") else part.min() != part.max())
    )


def date_parts(moments: pl.Series, *, only: Sequence[str] | None = None) -> dict[str, pl.Series]:
    """The numbers a moment becomes: calendar, week, season and time of day, or ``only`` some of them.

    >>> from datetime import datetime
    >>> parts = date_parts(pl.Series([datetime(2024, 1, 6), None]))
    >>> [(name, part[0]) for name, part in parts.items()][1:5]
    [('month', 1.0), ('day', 6.0), ('weekday', 6.0), ('weekend', 1.0)]
    """
    moment = pl.col("moment")
    date = moment.dt
    day = (date.ordinal_day() - 1).cast(pl.Float64)
    hour = date.hour() + date.minute() / 60 + date.second() / 3600
    season, time = day * (2 * math.pi / 365.25), hour * (2 * math.pi / 24)
    numbers = (
        # With its fraction, so that a trend is a line and not a staircase.
        date.year() + day / 366,
        date.month(),
        date.day(),
        date.weekday(),
        date.weekday() >= 6,
        season.sin(),
        season.cos(),
        hour,
        time.sin(),
        time.cos(),
    )
    parts = dict(zip(PARTS, numbers, strict=True))
    wanted = parts if only is None else {name: parts[name] for name in only}
    # One query: the shared steps are taken once, and side by side.
    frame = moments.alias("moment").to_frame().lazy()
    done = frame.select(part.cast(pl.Float64).alias(name) for name, part in wanted.items()).collect()
    return {column.name: column for column in done}
