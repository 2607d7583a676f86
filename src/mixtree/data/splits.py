"""Splits: which rows of the target validate, and which are kept for the test."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.data.dates import as_dates, date_format
from mixtree.data.frames import as_numbers, as_text, kind_of
from mixtree.errors import DataError, InputError

Index: TypeAlias = NDArray[np.int64]

_BINS = 10  # strata of a regression's targets


def split_rows(
    labels: NDArray[Any],
    fraction: float,
    *,
    seed: int,
    groups: pl.Series | None = None,
    times: pl.Series | None = None,
    where: str = "the target",
) -> tuple[Index, Index]:
    """Positions of validation rows (about this fraction) and of the rest, both in the table's order.

    By group: all rows of a group on one side. By time: validation rows come before the others. Otherwise
    every class has its share on both sides; a regression's targets are cut into ten bins for that.
    """
    count = len(labels)
    if not 0 < fraction < 1:
        raise InputError(f"the validation fraction must lie between 0 and 1; got {fraction}")
    if seed < 0:
        raise InputError(f"a seed must be a whole number of at least 0; got {seed}")
    if count < 2:
        raise DataError(f"{where}: {count} labelled rows cannot be split into validation and test rows")
    if groups is not None and times is not None:
        raise InputError("split by group or by time, not both: leave out group_col or time_col")
    rng = np.random.default_rng(seed)
    if groups is not None:
        first = _by_group(groups, fraction, rng, where)
    elif times is not None:
        first = _by_time(times, fraction, where)
    else:
        first = _by_label(labels, fraction, rng)
    return np.flatnonzero(first), np.flatnonzero(~first)


def _by_label(labels: NDArray[Any], fraction: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    count = len(labels)
    strata = labels
    if not np.issubdtype(labels.dtype, np.integer):
        strata = np.searchsorted(np.quantile(labels, np.linspace(0, 1, _BINS + 1)[1:-1]), labels)
    order = np.lexsort((rng.random(count), strata))
    wanted = min(max(round(fraction * count), 1), count - 1)
    # Every 1/fraction-th row of the order, from a random start: the total is exact, each stratum's is to ±1.
    ticks = np.floor((np.arange(count + 1) + rng.random()) * wanted / count)
    first = np.zeros(count, dtype=bool)
    first[order] = np.diff(ticks) > 0
    return first


def _by_group(groups: pl.Series, fraction: float, rng: np.random.Generator, where: str) -> NDArray[np.bool_]:
    text = as_text(groups.alias("group"))
    if text.null_count():
        raise DataError(
            f"{where}: group column {groups.name!r} is missing in {text.null_count():,} rows; fill it in"
        )
    codes = text.rank("dense").to_numpy().astype(np.int64) - 1  # the same whatever the order of the rows
    sizes = np.bincount(codes)
    if len(sizes) < 2:
        raise DataError(f"{where}: group column {groups.name!r} has one group only; it takes two to split")
    order = rng.permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order]
    # A group goes where its middle row falls.
    chosen = order[before + sizes[order] / 2 <= fraction * len(codes)]
    chosen = chosen if len(chosen) else order[:1]
    chosen = chosen if len(chosen) < len(sizes) else order[:-1]
    return np.isin(codes, chosen)


def _by_time(times: pl.Series, fraction: float, where: str) -> NDArray[np.bool_]:
    values = _moments(times.name, times.alias("time"), where)
    if values.null_count():
        raise DataError(
            f"{where}: time column {times.name!r} is missing in {values.null_count():,} rows; fill it in"
        )
    ranks = values.rank("dense").to_numpy().astype(np.int64)
    if ranks.max() == 1:
        raise DataError(f"{where}: time column {times.name!r} has one value only; it takes two to split")
    # Rows of one moment stay together: the cut lies between two moments, as near the fraction as it can.
    shares = np.cumsum(np.bincount(ranks)[1:])[:-1] / len(ranks)
    cut = 1 + int(np.argmin(np.abs(shares - fraction)))
    return ranks <= cut


def _moments(name: str, times: pl.Series, where: str) -> pl.Series:
    kind = kind_of(times.dtype)
    if kind == "number":
        return as_numbers(times)
    if kind == "date":
        return as_dates(times, None)
    format = date_format(as_text(times))[0] if kind == "text" else None
    if format is None:
        raise DataError(
            f"{where}: time column {name!r} holds neither dates nor numbers; write dates as 2024-12-31"
        )
    return as_dates(as_text(times), format)
