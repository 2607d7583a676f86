"""The paper's data sets from their original public files: Allstate, wine reviews, Amazon employee access.

The files are not part of mixtree. Put them in a folder and name it in the environment variable MIXTREE_DATA.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse

from mixtree.data.sources import Problem, Rows, Sources
from mixtree.errors import DataError, InputError
from mixtree.simplex import as_mixture

VARIABLE = "MIXTREE_DATA"

Shares = Mapping[str, tuple[float, float, float]]
"""Train, validation and test per cent of each group's rows."""

ALLSTATE: Shares = {"FL": (49.34, 0.16, 0.5), "CT": (50.0, 7.5, 42.5), "OH": (2.25, 0.75, 2.25)}
WINE_SOURCES = ("US", "France", "Italy", "Spain")
WINE_QUARTILES = (17.0, 25.0, 42.0)
AMAZON_SOURCES = ("117878", "117941", "117945", "117920")
AMAZON_TARGET = "120663"
AMAZON_LEAST = 50
"""An Amazon column is kept if it has at least this many ones over all rows; labels are not looked at."""

_FILES = {
    "allstate": (
        ("allstate/train.csv", "allstate/allstate_flat_97009.csv.gz"),
        "train.csv of Kaggle's 'Allstate Purchase Prediction Challenge'",
    ),
    "wine": (
        ("wine/winemag-data-130k-v2.csv", "wine/wine_130k_core.csv.gz"),
        "winemag-data-130k-v2.csv of Kaggle's 'Wine Reviews'",
    ),
    "wine-notes": (
        ("wine/wine_notes_5408.csv",),
        "a table of priced wines with the paper's 39 tasting-note columns, points, price and country (or "
        "winemag-data-130k-v2.csv of Kaggle's 'Wine Reviews', whose descriptions hold the notes)",
    ),
    "amazon": (("amazon/train.csv",), "train.csv of Kaggle's 'Amazon.com - Employee Access Challenge'"),
}


def data_file(name: str) -> Path:
    """The data set's file in the folder that MIXTREE_DATA names, or an error that says where to get it."""
    candidates, source = _FILES[name]
    folder = os.environ.get(VARIABLE)
    if folder:
        for candidate in candidates:
            if (Path(folder) / candidate).exists():
                return Path(folder) / candidate
    where = f"in {folder}" if folder else f"({VARIABLE} is not set)"
    raise DataError(
        f"the {name} data are not here {where}: get {source}, save it as {candidates[0]} in a folder, set "
        f"{VARIABLE} to that folder"
    )


@dataclass(frozen=True, eq=False, slots=True)
class Features:
    """A whole data set before it is split: what is scaled, what is not, labels and groups of all rows."""

    numeric: NDArray[np.float32]
    """Columns to impute and scale, NaN where missing."""
    indicators: NDArray[np.float32] | sparse.csr_array
    """0/1 columns, used as they are."""
    y: NDArray[Any]
    group: NDArray[np.str_]
    names: tuple[str, ...]


def split(
    name: str, table: Features, *, sources: Shares, targets: Shares, classes: int, seed: int
) -> Problem:
    """Cut every group's rows at random by its shares; scale and impute by the training rows alone.

    Groups with training rows are sources; validation and test rows of all groups together are the target's.
    """
    random = np.random.default_rng(np.random.SeedSequence([seed, 6]))
    train: dict[str, NDArray[np.intp]] = {}
    validation, test = [], []
    for group, shares in {**sources, **targets}.items():
        rows = np.flatnonzero(table.group == group)
        if len(rows) == 0:
            raise DataError(f"{name}: there are no rows of {group!r}")
        rows = random.permutation(rows)
        first, second, third = _counts(len(rows), shares)
        if first:
            train[group] = rows[:first]
        validation.append(rows[first : first + second])
        test.append(rows[first + second : first + second + third])
    x = _scaled(table, np.concatenate(list(train.values())))
    parts = {group: Rows(x[rows], table.y[rows]) for group, rows in train.items()}
    held = [Rows(x[rows], table.y[rows]) for rows in (np.concatenate(validation), np.concatenate(test))]
    alpha = None
    if not targets:  # the target is made of the sources: its true mixture is known
        counts = np.array([len(rows) for rows in test], dtype=np.float64)
        alpha = as_mixture(counts / counts.sum())
    return Problem(name, Sources.from_dict(parts, held[0], classes=classes), held[1], alpha)


def _counts(rows: int, shares: tuple[float, float, float]) -> tuple[int, int, int]:
    first, second = (round(rows * share / 100) for share in shares[:2])
    # Shares of 100 per cent in all use every row; else each is rounded by itself, as in the paper's table.
    third = rows - first - second if abs(sum(shares) - 100) < 1e-9 else round(rows * shares[2] / 100)
    return first, second, third


def _scaled(table: Features, train: NDArray[np.intp]) -> Any:
    numeric = table.numeric
    if numeric.shape[1]:
        mean = np.nanmean(numeric[train], axis=0)
        spread = np.nanstd(numeric[train], axis=0)
        numeric = np.where(np.isnan(numeric), mean, numeric)
        numeric = ((numeric - mean) / np.where(spread > 0, spread, 1.0)).astype(np.float32)
    if sparse.issparse(table.indicators):
        return sparse.hstack([sparse.csr_array(numeric), table.indicators], format="csr", dtype=np.float32)
    return np.hstack([numeric, np.asarray(table.indicators)])


# -- Allstate ---------------------------------------------------------------------------------------------

_LETTERS = "ABCDEFG"
NOT_FEATURES = (
    *("customer_ID", "state", "time", "location", "record_type", "G_final", "car_value"),
    *("age_matches_purchase", "purchase_row_demographics"),
)


def allstate(*, seed: int = 0, shares: Shares = ALLSTATE, file: Path | None = None) -> Problem:
    """Which option G will a customer buy? Sources and target are mixtures of three states."""
    return split(
        "allstate",
        allstate_features(file or data_file("allstate")),
        sources=shares,
        targets={},
        classes=4,
        seed=seed,
    )


@lru_cache(maxsize=2)
def allstate_features(file: Path) -> Features:
    """One row per customer, from the original quote-by-quote file or from a flattened one."""
    table = pl.read_csv(file, infer_schema_length=None, null_values=["", "NA"])
    if "record_type" in table.columns:
        table = flatten_allstate(table)
    if "G_final" not in table.columns:
        raise DataError(f"{file}: neither Allstate's quotes (record_type) nor one row per customer (G_final)")
    table = table.with_columns(pl.col("risk_factor").fill_null(-1))
    numeric = [name for name in table.columns if name not in NOT_FEATURES]
    cars = table["car_value"].fill_null("none")
    levels = sorted(cars.unique().to_list())
    return Features(
        table.select(pl.col(numeric).cast(pl.Float32)).fill_null(float("nan")).to_numpy(),
        np.stack([(cars == level).to_numpy() for level in levels], axis=1).astype(np.float32),
        table["G_final"].to_numpy().astype(np.int64) - 1,
        table["state"].to_numpy().astype(str),
        (*numeric, *(f"car_value={level}" for level in levels)),
    )


def flatten_allstate(quotes: pl.DataFrame) -> pl.DataFrame:
    """The paper's transformation: the last quote's choices and the purchase, one row per customer."""
    views = quotes.filter(pl.col("record_type") == 0)
    last = views.group_by("customer_ID", maintain_order=True).agg(
        pl.col("day").first().alias("day_first"),
        pl.col("day").last().alias("day_last"),
        *(pl.col(letter).last().alias(f"{letter}_prev") for letter in _LETTERS),
        pl.col("cost").last().alias("cost_prev"),
    )
    bought = quotes.filter(pl.col("record_type") == 1).rename(
        {**{letter: f"{letter}_final" for letter in _LETTERS}, "cost": "cost_final"}
    )
    joined = bought.join(last, on="customer_ID", how="inner", maintain_order="left")
    return joined.with_columns(
        ((pl.col("day") - pl.col("day_first")) % 7).alias("num_days"),
        (pl.col("day") == pl.col("day_last")).cast(pl.Int64).alias("final_purchase_date_same"),
        (pl.col("cost_final") != pl.col("cost_prev")).cast(pl.Int64).alias("cost_changed"),
        (pl.col("cost_final") - pl.col("cost_prev")).alias("cost_delta"),
    ).drop("day_first", "day_last")


# -- Wine -------------------------------------------------------------------------------------------------

WineFeatures = Literal["core", "notes"]
WINE_NOTES = (
    *("acid", "angular", "austere", "barnyard", "bright", "butter", "cassis", "charcoal", "cigar", "complex"),
    *("cream", "crisp", "dense", "earth", "elegant", "flabby", "flamboyant", "fleshy", "food friendly"),
    *("grip", "hint of", "intellectual", "jam", "juicy", "laser", "lees", "mineral", "oak", "opulent"),
    *("refined", "silk", "steel", "structure", "tannin", "tight", "toast", "unctuous", "unoaked", "velvet"),
)
"""The paper's tasting notes: a wine has one if its description holds the text, in whatever case."""
_VARIETY_LEAST = 50


def wine_price(
    *, seed: int = 0, targets: Sequence[str] = ("Chile", "Australia"), features: WineFeatures = "core"
) -> Problem:
    """What does a wine cost? The label is the logarithm of the price."""
    table = wine_features(features)
    return _wine(_wine_name("wine-price", features), table, np.log(table.y), targets, classes=0, seed=seed)


def wine_quartile(
    *, seed: int = 0, targets: Sequence[str] = ("Chile",), features: WineFeatures = "core"
) -> Problem:
    """In which price quartile is a wine: at most 17, 25, 42, or above?"""
    table = wine_features(features)
    quartile = np.searchsorted(WINE_QUARTILES, table.y, side="left").astype(np.int64)
    return _wine(_wine_name("wine-quartile", features), table, quartile, targets, classes=4, seed=seed)


def _wine_name(name: str, features: WineFeatures) -> str:
    return name if features == "core" else f"{name}-{features}"


def _wine(
    name: str, table: Features, y: NDArray[Any], targets: Sequence[str], *, classes: int, seed: int
) -> Problem:
    labelled = Features(table.numeric, table.indicators, y, table.group, table.names)
    sources = {country: (100.0, 0.0, 0.0) for country in WINE_SOURCES if country not in targets}
    aims = {country: (0.0, 5.0, 95.0) for country in targets}
    return split(name, labelled, sources=sources, targets=aims, classes=classes, seed=seed)


def wine_features(features: WineFeatures) -> Features:
    """Points and variety (core), or points and the paper's 39 tasting notes (notes), of priced wines.

    The notes are those of all priced wines where the original file with its descriptions is there, else those
    of the table that has them; ``wine_label`` says which.
    """
    return _wine_notes(_notes_file()) if features == "notes" else _wine_core(_core_file(features))


def wine_label(features: WineFeatures) -> str:
    """Which rows and columns ``wine_features`` gives here, for titles: the data decide."""
    if features != "notes":
        return f"points and variety of all {len(_wine_core(_core_file(features)).y):,} priced wines"
    file = _notes_file()
    rows = len(_wine_notes(file).y)
    if _has_descriptions(file):
        return f"points and 39 tasting notes of all {rows:,} priced wines"
    return f"points and 39 tasting notes of a table of {rows:,} priced wines"


def _core_file(features: str) -> Path:
    if features != "core":
        raise InputError(f"wine features are 'core' or 'notes'; got {features!r}")
    return data_file("wine")


def _notes_file() -> Path:
    try:
        original = data_file("wine")
    except DataError:
        return data_file("wine-notes")
    return original if _has_descriptions(original) else data_file("wine-notes")


def _has_descriptions(file: Path) -> bool:
    return "description" in pl.read_csv(file, n_rows=0).columns


@lru_cache(maxsize=2)
def _wine_core(file: Path) -> Features:
    table = _priced(file)
    # Common varieties are chosen among the source countries' rows: the target's are not looked at.
    known = table.filter(pl.col("country").is_in(list(WINE_SOURCES)))["variety"].value_counts()
    levels = sorted(known.filter(pl.col("count") >= _VARIETY_LEAST)["variety"].drop_nulls().to_list())
    indicators = _one_hot(table["variety"], levels).toarray()
    return _wine_table(table, indicators, [f"variety={level}" for level in levels])


@lru_cache(maxsize=2)
def _wine_notes(file: Path) -> Features:
    table = _priced(file)
    if "description" in table.columns:
        text = table["description"].fill_null("").str.to_lowercase()
        table = table.with_columns(text.str.contains(note, literal=True).alias(note) for note in WINE_NOTES)
    if missing := [note for note in WINE_NOTES if note not in table.columns]:
        raise DataError(f"{file}: neither a description nor the tasting notes {', '.join(missing)}")
    indicators = table.select(pl.col(WINE_NOTES).cast(pl.Float32)).to_numpy()
    return _wine_table(table, indicators, WINE_NOTES)


def _priced(file: Path) -> pl.DataFrame:
    table = pl.read_csv(file, infer_schema_length=None)
    return table.filter(pl.col("price").is_not_null() & pl.col("country").is_not_null())


def _wine_table(table: pl.DataFrame, indicators: NDArray[np.float32], names: Sequence[str]) -> Features:
    return Features(
        table.select(pl.col("points").cast(pl.Float32)).to_numpy(),
        indicators,
        table["price"].to_numpy().astype(np.float64),
        table["country"].to_numpy().astype(str),
        ("points", *names),
    )


# -- Amazon -----------------------------------------------------------------------------------------------


def amazon(
    *,
    seed: int = 0,
    sources: Sequence[str] = AMAZON_SOURCES,
    target: str = AMAZON_TARGET,
    least: int = AMAZON_LEAST,
) -> Problem:
    """Will an employee get access to a resource? Departments are the sources, another one the target."""
    if target in sources:
        raise InputError(f"department {target} cannot be both a source and the target")
    return split(
        "amazon",
        amazon_features(least),
        sources={name: (100.0, 0.0, 0.0) for name in sources},
        targets={target: (0.0, 30.0, 70.0)},
        classes=2,
        seed=seed,
    )


@lru_cache(maxsize=2)
def amazon_features(least: int) -> Features:
    """Every column one-hot but the department; CSR if all of the levels are kept."""
    table = pl.read_csv(data_file("amazon"), infer_schema=False)
    columns = [name for name in table.columns if name not in ("ACTION", "ROLE_DEPTNAME")]
    parts, names = [], []
    for column in columns:
        counts = table[column].value_counts()
        levels = sorted(counts.filter(pl.col("count") >= max(1, least))[column].to_list(), key=int)
        parts.append(_one_hot(table[column], levels))
        names += [f"{column}={level}" for level in levels]
    indicators = sparse.hstack(parts, format="csr", dtype=np.float32)
    return Features(
        np.empty((len(table), 0), dtype=np.float32),
        indicators if indicators.shape[1] > 1000 else indicators.toarray(),
        table["ACTION"].to_numpy().astype(np.int64),
        table["ROLE_DEPTNAME"].to_numpy().astype(str),
        tuple(names),
    )


def _one_hot(column: pl.Series, levels: Sequence[str]) -> sparse.csr_array:
    place = {level: number for number, level in enumerate(levels)}
    codes = column.replace_strict(place, default=-1, return_dtype=pl.Int64).fill_null(-1).to_numpy()
    rows = np.flatnonzero(codes >= 0)
    ones = np.ones(len(rows), dtype=np.float32)
    return sparse.csr_array((ones, (rows, codes[rows])), shape=(len(codes), len(levels)))
