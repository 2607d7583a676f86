from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.sparse import issparse

from mixtree.data.fingerprint import data_fingerprint
from mixtree.data.tables import TableData, TableSpec, load_tables, read_table
from mixtree.errors import DataError, InputError, MixtreeError

SOURCES = ("north", "south")


def rows(count: int, *, seed: int, source: bool = True) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, count)
    frame = pl.DataFrame(
        {
            "shop": [SOURCES[n % 2] for n in range(count)],
            "age": age,
            "pay": rng.lognormal(10, 1, count).round(2),
            "city": rng.choice(["Rome", "Paris", "Oslo"], count),
            "day": pl.Series(np.datetime64("2024-01-01") + rng.integers(0, 300, count)).cast(pl.Date),
            "bought": np.where((age + rng.normal(0, 9, count) > 50) ^ (np.arange(count) < 2), "yes", "no"),
        }
    )
    return frame if source else frame.drop("shop")


class Folder:
    """Files of a small problem, to be broken one way at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.frames = {
            "train": rows(120, seed=0),
            "val": rows(40, seed=1, source=False),
            "test": rows(30, seed=2, source=False),
        }
        for name in self.frames:
            self.write(name)

    def write(self, name: str, frame: pl.DataFrame | None = None) -> Path:
        path = self.path / f"{name}.csv"
        (self.frames[name] if frame is None else frame).write_csv(path)
        return path

    def change(self, name: str, *columns: Any, **named: Any) -> None:
        """Rewrites a file with some of its columns replaced."""
        self.frames[name] = self.frames[name].with_columns(*columns, **named)
        self.write(name)

    def spec(self, **changes: Any) -> TableSpec:
        files = {name: self.path / f"{name}.csv" for name in self.frames}
        chosen = {"tables": files["train"], "source_col": "shop", "val": files["val"], "test": files["test"]}
        return TableSpec(**{"label": "bought", **chosen, **changes})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def x_of(data: TableData, part: str) -> Any:
    sources = data.problem_sources
    x = sources.validation.x if part == "validation" else sources.rows[sources.index(part)].x
    return x.toarray() if issparse(x) else x


def test_one_file_with_a_source_column(folder: Folder) -> None:
    data = load_tables(folder.spec())
    sources = data.problem_sources
    assert sources.names == SOURCES
    assert sources.sizes.tolist() == [60, 60]
    assert sources.classes == 2
    assert data.classes == ("no", "yes")
    assert len(sources.validation) == 40
    assert data.test is not None
    assert len(data.test) == 30
    assert {column.name: column.kind for column in data.columns} == {
        "age": "numeric",
        "pay": "numeric",
        "city": "categorical",
        "day": "date",
    }
    assert data.warnings == ()
    assert data.leakage == ()
    # Every row lies where its label and features say.
    train = folder.frames["train"]
    for name in SOURCES:
        part = train.filter(pl.col("shop") == name)
        np.testing.assert_array_equal(
            sources.rows[sources.index(name)].y, (part["bought"] == "yes").to_numpy()
        )
        np.testing.assert_array_equal(x_of(data, name), data.preprocessor.transform(part))
    scaled = np.concatenate([x_of(data, name) for name in SOURCES])[:, :2]
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(axis=0), 1, atol=1e-6)


def test_one_file_per_source_is_the_same_problem(folder: Folder) -> None:
    train = folder.frames["train"]
    files = {
        name: folder.write(name, train.filter(pl.col("shop") == name).drop("shop"))
        for name in ("south", "north")
    }
    data = load_tables(folder.spec(tables=files, source_col=None))
    assert data.problem_sources.names == ("south", "north")
    whole = load_tables(folder.spec())
    for name in SOURCES:
        np.testing.assert_allclose(x_of(data, name), x_of(whole, name), atol=1e-6)
    halves = [folder.write("a", train.head(50)), folder.write("b", train.tail(70))]
    again = load_tables(folder.spec(tables=halves))
    assert data_fingerprint(again.problem_sources) == data_fingerprint(whole.problem_sources)


@pytest.mark.parametrize("suffix", [".csv.gz", ".tsv", ".parquet", ".arrow"])
def test_every_kind_of_file_is_the_same_problem(folder: Folder, suffix: str) -> None:
    path = folder.path / f"other{suffix}"
    train = folder.frames["train"]
    if suffix == ".csv.gz":
        path.write_bytes(gzip.compress((folder.path / "train.csv").read_bytes()))
    elif suffix == ".tsv":
        train.write_csv(path, separator="\t")
    elif suffix == ".parquet":
        train.write_parquet(path)
    else:
        train.write_ipc(path)
    data = load_tables(folder.spec(tables=path))
    assert data_fingerprint(data.problem_sources) == data_fingerprint(
        load_tables(folder.spec()).problem_sources
    )


def test_tables_in_memory_do_as_well(folder: Folder) -> None:
    frames = folder.frames
    data = load_tables(
        folder.spec(
            tables=frames["train"], val=frames["val"].to_pandas(), test=pd.DataFrame(frames["test"].to_dict())
        )
    )
    assert data_fingerprint(data.problem_sources) == data_fingerprint(
        load_tables(folder.spec()).problem_sources
    )


def test_the_same_files_give_the_same_bits(folder: Folder) -> None:
    prints = {data_fingerprint(load_tables(folder.spec(), seed=seed).problem_sources) for seed in (0, 0, 7)}
    assert len(prints) == 1
    split = folder.spec(val=None, test=None, target=folder.path / "val.csv", val_frac=0.5)
    first, again, other = (data_fingerprint(load_tables(split, seed=n).problem_sources) for n in (0, 0, 1))
    assert first == again != other


@pytest.mark.parametrize("sparse", [False, True])
def test_sources_are_the_same_encoded_alone_or_together(
    folder: Folder, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = load_tables(folder.spec(sparse=sparse)).problem_sources
    monkeypatch.setattr("mixtree.data.tables._TOGETHER", 70)  # one source has 60 rows
    alone = load_tables(folder.spec(sparse=sparse)).problem_sources
    assert issparse(alone.rows[0].x) == sparse
    assert data_fingerprint(alone) == data_fingerprint(together)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_a_column_that_gives_the_label_away_is_told(folder: Folder, task: str) -> None:
    label = "bought" if task == "classification" else "pay"
    for name, frame in folder.frames.items():
        copied = (
            frame["bought"].replace_strict({"yes": "sold", "no": None}) if task == "classification" else None
        )
        extra = (
            pl.Series("outcome", copied) if copied is not None else (2 * frame["pay"] - 7).alias("outcome")
        )
        folder.write(name, frame.with_columns(extra))
    told = " ".join(load_tables(folder.spec(label=label, task=task)).warnings)
    assert f"column 'outcome' alone tells the label '{label}' in every training row" in told
    assert "column 'city' alone" not in told
    assert "column 'age' alone" not in told


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_numbers_that_are_codes(folder: Folder, ending: str) -> None:
    """Codes by the user's word: one-hot, with their leading zeros in text files; never dates."""
    for name, frame in folder.frames.items():
        codes = pl.Series("code", [f"0{20130101 + n % 3}" for n in range(frame.height)])
        wide = frame.with_columns(codes if ending == "csv" else codes.cast(pl.Int64))
        (wide.write_csv if ending == "csv" else wide.write_parquet)(folder.path / f"{name}.{ending}")
    files = {name: folder.path / f"{name}.{ending}" for name in folder.frames}
    spec = folder.spec(tables=files["train"], val=files["val"], test=files["test"], categorical=["code"])
    data = load_tables(spec)
    (column,) = [each for each in data.columns if each.name == "code"]
    assert column.kind == "categorical"
    assert not any("'code'" in each for each in data.warnings)
    zero = "0" if ending == "csv" else ""
    assert {f"code={zero}2013010{n}" for n in (1, 2, 3)} <= set(data.preprocessor.feature_names)
    assert np.asarray(data.problem_sources.validation.x).shape[1] == len(data.preprocessor.feature_names)
    with pytest.raises(DataError, match="no column 'cod' to take for categorical"):
        load_tables(folder.spec(categorical=["cod"]))


def test_a_target_file_is_split_into_validation_and_test(folder: Folder) -> None:
    split = {"val": None, "test": None, "target": folder.path / "val.csv", "val_frac": 0.25}
    data = load_tables(folder.spec(**split))
    assert data.test is not None
    assert (len(data.problem_sources.validation), len(data.test)) == (10, 30)
    share = folder.frames["val"]["bought"].eq("yes").mean()
    assert abs(data.problem_sources.validation.y.mean() - share) <= 0.1  # type: ignore[operator]
    timed = load_tables(folder.spec(**split, time_col="day"))
    assert timed.test is not None
    place = timed.preprocessor.feature_names.index("day:year")
    assert timed.problem_sources.validation.x[:, place].max() < timed.test.x[:, place].min()
    folder.change("val", who=pl.Series([f"c{n % 8}" for n in range(40)]))
    grouped = load_tables(folder.spec(**split, group_col="who"))
    assert grouped.test is not None
    assert len(grouped.problem_sources.validation) + len(grouped.test) == 40
    assert "who" not in {column.name for column in grouped.columns}


def test_validation_and_test_rows_teach_nothing(folder: Folder) -> None:
    """Poison in the rows that judge must not move a single bit of the rows that train."""
    clean = load_tables(folder.spec())
    for name in ("val", "test"):
        folder.change(
            name, age=pl.lit(10**6), pay=pl.lit(None), city=pl.lit("Atlantis"), day=pl.lit("1999-01-01")
        )
    poisoned = load_tables(folder.spec())
    for name in SOURCES:
        np.testing.assert_array_equal(x_of(poisoned, name), x_of(clean, name))
    assert poisoned.preprocessor.feature_names == clean.preprocessor.feature_names
    np.testing.assert_array_equal(poisoned.preprocessor.medians, clean.preprocessor.medians)
    np.testing.assert_array_equal(poisoned.preprocessor.scales, clean.preprocessor.scales)
    assert poisoned.classes == clean.classes
    assert poisoned.problem_sources.validation.x[:, 0].max() > 1000


def test_numbers_to_be_predicted_stay_as_they_are(folder: Folder) -> None:
    data = load_tables(folder.spec(label="pay"))
    assert data.classes is None
    assert data.labels.task == "regression"
    assert data.problem_sources.classes == 0
    np.testing.assert_array_equal(data.problem_sources.validation.y, folder.frames["val"]["pay"].to_numpy())
    assert "bought" in {column.name for column in data.columns}


def test_codes_keep_their_zeros_in_every_file(folder: Folder) -> None:
    codes = pl.Series("code", ["A1", "007", "012"] * 40)
    folder.change("train", codes)
    folder.change("val", codes.head(40).replace("A1", "007"))  # all digits here
    folder.change("test", pl.Series("code", ["007"] * 30))
    data = load_tables(folder.spec())
    place = data.preprocessor.feature_names.index("code=007")
    expected = folder.frames["val"]["code"].eq("007").to_numpy()
    np.testing.assert_array_equal(data.problem_sources.validation.x[:, place], expected)
    assert "code" in data.preprocessor.text_columns
    again = read_table(folder.path / "val.csv", text=data.preprocessor.text_columns)
    np.testing.assert_array_equal(data.preprocessor.transform(again), data.problem_sources.validation.x)


def test_rows_on_both_sides_are_reported(folder: Folder) -> None:
    train = folder.frames["train"]
    leaked = train.filter(pl.col("shop") == "north").head(5).drop("shop")
    twisted = (
        train.filter(pl.col("shop") == "south").head(2).drop("shop").with_columns(bought=pl.lit("maybe"))
    )
    twisted = twisted.with_columns(
        bought=pl.when(train.filter(pl.col("shop") == "south").head(2)["bought"] == "yes")
        .then(pl.lit("no"))
        .otherwise(pl.lit("yes"))
    )
    folder.write("val", pl.concat([folder.frames["val"], leaked, twisted]))
    folder.write("test", pl.concat([folder.frames["test"], leaked.head(1)]))
    data = load_tables(folder.spec())
    assert [(o.part, o.source, o.rows, o.same, o.total) for o in data.leakage] == [
        ("validation", "source 'north'", 5, 5, 47),
        ("validation", "source 'south'", 2, 0, 47),
        ("test", "source 'north'", 1, 1, 31),
        ("test", "the validation rows", 1, 1, 31),
    ]
    assert "5 of 47 validation rows also stand in source 'north'" in " ".join(data.warnings)


def test_a_wide_table_stays_sparse(folder: Folder) -> None:
    wide = pl.Series("code", [f"c{n % 90}" for n in range(120)])
    more = pl.Series("more", [f"m{n % 115}" for n in range(120)])
    folder.change("train", wide, more)
    for name, count in (("val", 40), ("test", 30)):
        folder.change(name, wide.head(count), more.head(count))
    data = load_tables(folder.spec(rare_below=1))
    assert all(issparse(part.x) for part in (*data.problem_sources.rows, data.problem_sources.validation))
    full = load_tables(folder.spec(rare_below=1, sparse=False))
    assert np.array_equal(x_of(data, "north"), x_of(full, "north"))


Change = Callable[[Folder], dict[str, Any]]
Edit = Callable[[pl.DataFrame], pl.DataFrame]


def text(name: str, content: str | bytes) -> Change:
    """A file with this content."""

    def change(folder: Folder) -> dict[str, Any]:
        data = content.encode() if isinstance(content, str) else content
        (folder.path / f"{name}.csv").write_bytes(data)
        return {}

    return change


def edit(name: str, how: Edit) -> Change:
    """A file ("all": every one) with something done to its table."""

    def change(folder: Folder) -> dict[str, Any]:
        for each in folder.frames if name == "all" else [name]:
            folder.write(each, how(folder.frames[each]))
        return {}

    return change


def columns(name: str, **named: Any) -> Change:
    """A file with columns replaced; lists are repeated to the length of the table."""

    def fill(frame: pl.DataFrame) -> pl.DataFrame:
        full = {
            key: pl.Series((value * frame.height)[: frame.height], strict=False)
            if isinstance(value, list)
            else pl.lit(value)
            for key, value in named.items()
        }
        return frame.with_columns(**full)

    return edit(name, fill)


def both(*changes: Change) -> Change:
    def change(folder: Folder) -> dict[str, Any]:
        return {key: value for each in changes for key, value in each(folder).items()}

    return change


def cut(name: str, *dropped: str) -> Change:
    return edit(name, lambda frame: frame.drop(dropped))


def ask(**changes: Any) -> Change:
    return lambda _: changes


def target(**changes: Any) -> Change:
    return lambda folder: {"val": None, "test": None, "target": folder.path / "val.csv", **changes}


def per_source(how: Edit, *, files: bool = True) -> Change:
    """One table per source, that of the north with something done to it."""

    def change(folder: Folder) -> dict[str, Any]:
        train = folder.frames["train"]
        tables = {name: train.filter(pl.col("shop") == name).drop("shop") for name in SOURCES}
        tables["north"] = how(tables["north"])
        written = {name: folder.write(name, frame) for name, frame in tables.items()} if files else tables
        return {"tables": written, "source_col": None}

    return change


INFINITE = float("inf")
NO_NORTH = pl.when(pl.col("shop") == "north").then(pl.lit("no")).otherwise("bought").alias("bought")

REFUSED: list[tuple[str, Change, tuple[str, ...]]] = [
    ("missing file", ask(val="nowhere.csv"), ("nowhere.csv", "no such file")),
    ("folder for a file", lambda folder: {"val": folder.path}, ("folder",)),
    ("empty file", text("val", ""), ("val.csv", "empty")),
    ("header only", text("val", "age,pay,city,day,bought\n"), ("val.csv", "no rows")),
    ("wrong encoding", text("val", "age,bought\n1,é\n".encode("latin-1")), ("val.csv", "line 2", "UTF-8")),
    ("UTF-16", text("train", "shop,age\n".encode("utf-16")), ("train.csv", "UTF-16")),
    ("ragged rows", text("train", "shop,age,bought\na,1,no\nb,2\n"), ("train.csv", "line 3", "2 values")),
    ("duplicate names", text("train", "shop,age,age,bought\na,1,2,no\n"), ("train.csv", "'age'", "own name")),
    ("label column missing", ask(label="sold"), ("train.csv", "'sold'", "'age'")),
    ("label column misspelt", ask(label="bougth"), ("train.csv", "did you mean 'bought'")),
    ("label missing in validation", cut("val", "bought"), ("val.csv", "no label column 'bought'")),
    ("label missing in test", cut("test", "bought"), ("test.csv", "no label column 'bought'")),
    ("source column missing", ask(source_col="region"), ("train.csv", "no source column 'region'")),
    ("source names missing", columns("train", shop=["a", "NA"]), ("60 rows", "data row 2", "'shop'")),
    ("no labels at all", columns("train", bought=None), ("train.csv", "every row lacks the label")),
    ("no labels in validation", columns("val", bought=None), ("val.csv", "every row lacks")),
    ("no labels in a source", columns("train", bought=["yes", None, "no", None]), ("'south'", "label")),
    ("one class only", columns("train", bought="yes"), ("'bought'", "'yes'", "nothing to learn")),
    ("unseen class in validation", columns("val", bought=["maybe", "yes"]), ("val.csv", "'maybe'")),
    ("unseen class in test", columns("test", bought="maybe"), ("test.csv", "'maybe'", "'no', 'yes'")),
    ("ids as labels", columns("train", bought=[f"t{n}" for n in range(120)]), ("val.csv", "no training row")),
    ("dates as labels", ask(label="day"), ("val.csv", "'day'", "no training row")),
    ("text for a regression", ask(task="regression"), ("'bought'", "needs numbers", "'no'")),
    ("classes not those of the data", ask(classes=["yes", "never"]), ("'never'", "'no', 'yes'")),
    ("no shared columns", text("val", "height,bought\n1,yes\n"), ("val.csv", "'age'", "same columns")),
    ("a column missing in test", cut("test", "age", "city"), ("test.csv", "'age', 'city'")),
    ("text for numbers in validation", columns("val", age="old"), ("val.csv", "'age'", "'old'")),
    ("numbers for dates in test", columns("test", day=7), ("test.csv", "'day'", "7")),
    ("dates in another format", columns("val", day="31.12.2024"), ("val.csv", "'day'", "31.12.2024")),
    ("no usable column", cut("train", "age", "pay", "city", "day"), ("val.csv", "feature columns")),
    ("only constant columns", columns("train", age=1, pay=1, city=1, day=1), ("no column is left",)),
    ("dropping what is not there", ask(drop=["hight"]), ("'hight'", "'age'")),
    ("dropping the label", ask(drop=["bought"]), ("'bought'", "needed")),
    ("label is the source", ask(source_col="bought"), ("same column",)),
    ("no source column", ask(source_col=None), ("source_col", "--source-col")),
    ("no validation", ask(val=None), ("--val", "--target")),
    ("validation and target", ask(target="x.csv"), ("one of the two",)),
    ("test and target", ask(val=None, target="x.csv"), ("leave out test",)),
    ("group column without target", ask(group_col="city"), ("target",)),
    ("group and time", target(group_col="city", time_col="day"), ("not both",)),
    ("fraction out of range", ask(val_frac=1.5), ("between 0 and 1", "1.5")),
    ("no tables", ask(tables=[]), ("no tables",)),
    ("source column and named files", ask(tables={"a": "x.csv"}), ("leave out source_col",)),
    ("no group column", target(group_col="who"), ("val.csv", "no group column 'who'")),
    ("no dates in the time column", target(time_col="city"), ("val.csv", "'city'", "neither dates nor")),
    (
        "dates here, numbers there",
        per_source(lambda frame: frame.with_columns(day=pl.lit(3)), files=False),
        ("'day'", "number in source 'north'", "date in source 'south'"),
    ),
    ("lists in a column", per_source(lambda f: f.with_columns(city=[["x"]] * 60), files=False), ("'city'",)),
    (
        "lists as sources",
        ask(tables=rows(4, seed=0).with_columns(shop=[["a"]] * 4)),
        ("source", "'shop'", "List"),
    ),
    ("an empty table in memory", ask(val=pl.DataFrame({"age": [], "bought": []})), ("validation", "no rows")),
]


@pytest.mark.parametrize(
    ("change", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_cannot_work_is_refused_in_words(folder: Folder, change: Change, words: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        data = load_tables(folder.spec(**change(folder)))
        raise AssertionError(data.warnings)
    for word in words:
        assert word in str(caught.value)


NOTED: list[tuple[str, Change, str]] = [
    ("constant column", columns("train", age=7), "column 'age' is dropped: it has one value only (7)"),
    ("all-missing column", columns("train", pay=None), "column 'pay' is dropped: all its values are missing"),
    (
        "ids",
        columns("train", city=[f"id{n}" for n in range(120)]),
        "'city' is dropped: every value is different",
    ),
    ("infinities", columns("train", pay=[1.0, INFINITE, 3.0]), "column 'pay' has infinite"),
    (
        "class missing in a source",
        edit("train", lambda f: f.with_columns(NO_NORTH)),
        "'north' has no row of class",
    ),
    ("class missing in validation", columns("val", bought="no"), "validation has no row of class 'yes'"),
    ("source with one row", columns("train", shop=["south", *["north"] * 119]), "'south' has one row only"),
    ("sources that are ids", columns("train", shop=list(range(120))), "and 115 more has one row only"),
    (
        "labels missing",
        columns("train", bought=[None, "no", "yes"]),
        "40 of 120 training rows have no (finite)",
    ),
    ("labels missing in validation", columns("val", bought=[None, "no", "yes", "no"]), "10 of 40 validation"),
    ("column only training has", cut("val", "pay"), "column 'pay' is not in validation"),
    ("column only validation has", columns("val", height=1), "column 'height' of validation"),
    ("saved index", edit("train", lambda frame: frame.with_row_index("")), "column without a name"),
    ("row numbers", columns("train", age=list(range(120))), "column 'age' numbers the rows"),
    ("column a source lacks", per_source(lambda frame: frame.drop("pay")), "'pay' is not in source 'north'"),
    (
        "text in one source only",
        per_source(lambda frame: frame.with_columns(age=pl.lit("old"))),
        "column 'age' is text in source 'north' ",
    ),
    (
        "the same file twice",
        lambda folder: {"val": folder.path / "train.csv"},
        "60 of 120 validation rows also",
    ),
    ("months or days", columns("all", day=["01/02/2024", "03/04/2024"]), "'01/02/2024' may be month/day"),
]


@pytest.mark.parametrize("name", ["day", "^day$"])
@pytest.mark.parametrize("typed", [pl.Date, pl.Datetime("ns"), pl.Datetime("us", "UTC")])
def test_dates_may_be_typed_in_one_source_and_text_in_another(folder: Folder, typed: Any, name: str) -> None:
    halves = folder.frames["train"].rename({"day": name}).partition_by("shop", include_key=False)
    halves[0].with_columns(pl.nth(3).cast(typed)).write_parquet(folder.path / "north.parquet")
    halves[1].write_csv(folder.path / "south.csv")
    folder.write("val", folder.frames["val"].rename({"day": name}))
    named = {"north": folder.path / "north.parquet", "south": folder.path / "south.csv"}
    data = load_tables(TableSpec(tables=named, label="bought", val=folder.path / "val.csv"))
    (day,) = (column for column in data.columns if column.name == name)
    assert day.kind == "date"
    assert "month" in day.parts
    assert not any("text" in each for each in data.warnings)


def test_dates_that_could_be_misread_stay_text_and_the_table_is_named(folder: Folder) -> None:
    north, south = folder.frames["train"].partition_by("shop", include_key=False)
    south = south.with_columns(pl.col("day").dt.strftime("%d/%m/%Y"))
    data = load_tables(
        TableSpec(tables={"north": north, "south": south}, label="bought", val=folder.frames["val"])
    )
    told = "\n".join(data.warnings)
    assert "column 'day' is text in source 'south' but not in source 'north': treated as text in all" in told
    assert "Write dates as 2024-12-31" in told


@pytest.mark.parametrize(("change", "words"), [case[1:] for case in NOTED], ids=[case[0] for case in NOTED])
def test_where_work_can_go_on_it_does_with_a_warning(folder: Folder, change: Change, words: str) -> None:
    data = load_tables(folder.spec(**change(folder)))
    assert words in "\n".join(data.warnings)
    width = len(data.preprocessor.feature_names)
    for part in (*data.problem_sources.rows, data.problem_sources.validation):
        assert part.x.shape == (len(part.y), width)


FINE: list[tuple[str, Change]] = [
    ("huge integers", columns("train", age=["1", "9" * 30, "3"])),
    ("integers beyond 128 bits", columns("train", age=["1", "9" * 50, "3"])),
    ("a type that changes late", columns("train", age=["2.5", *["1"] * 119])),
    ("non-ASCII names", edit("all", lambda frame: frame.rename({"age": "âge ✓"}))),
    (
        "names like patterns",
        edit("all", lambda frame: frame.rename({"age": "^a.*$", "pay": "*", "city": "^.*$"})),
    ),
    ("whole numbers as labels", columns("all", bought=[1, 2])),
    ("truth values as labels", columns("all", bought=[True, False, False])),
    ("numbers as source names", columns("train", shop=[1, 2])),
    ("one source", columns("train", shop="all")),
    ("a source column in validation", columns("val", shop="x")),
    ("unseen levels in validation", columns("val", city="Atlantis")),
    ("extra columns in test", columns("test", more=1)),
    ("another order", edit("val", lambda frame: frame.select(sorted(frame.columns)))),
    (
        "text labels of digits",
        both(columns("train", bought=["1", "x"]), columns("val", bought=1), ask(test=None)),
    ),
    ("a dropped column", ask(drop=["pay"])),
    ("no test file", ask(test=None)),
    ("the classes turned round", ask(classes=["yes", "no"])),
]


@pytest.mark.parametrize("change", [case[1] for case in FINE], ids=[case[0] for case in FINE])
def test_what_is_unusual_but_right_just_works(folder: Folder, change: Change) -> None:
    spec = folder.spec(**change(folder))
    data = load_tables(spec)
    assert set(data.doubtful) <= set(data.warnings)
    expected = ("no row of class", "of the rows have a value")
    assert not [line for line in data.warnings if not any(words in line for words in expected)]
    assert data.problem_sources.sizes.sum() == 120
    if spec.classes is not None:
        plain = load_tables(folder.spec())
        assert data.classes == ("yes", "no")
        np.testing.assert_array_equal(
            data.problem_sources.validation.y, 1 - plain.problem_sources.validation.y
        )


def test_too_many_sources_are_taken_for_the_wrong_column(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": range(1001), "x": range(1001), "y": [0, 1, 1] * 333 + [0, 1]})
    with pytest.raises(DataError, match="'id' has 1,001 different values"):
        load_tables(TableSpec(tables=frame, source_col="id", label="y", val=frame))


CELLS = st.one_of(
    st.sampled_from(
        ["", "NA", "a", "b", "x y", "1", "-2.5", "1e999", "inf", "2024-01-05", "31/12/2023", "true", "é"]
    ),
    st.integers().map(str),
    st.floats().map(str),
    st.text(alphabet='ab,"\n\r;\t\u00e9\x00 ', max_size=4),
)
WORDS = st.sampled_from(["s", "y", "a", "b", "", "*", "^a$", "rows", "values", "label", "features"])


@st.composite
def csv_files(draw: st.DrawFn) -> bytes:
    """A CSV file as nobody should write it, or a good one."""
    header = ["s", "y", *draw(st.lists(WORDS, max_size=3, unique=draw(st.booleans())))]
    good = st.tuples(
        st.sampled_from(["p", "q"]), st.sampled_from(["0", "1"]), *[CELLS.map(_quoted) for _ in header[2:]]
    )
    bad = st.lists(CELLS, max_size=5)
    chosen = draw(st.lists(good if draw(st.integers(0, 3)) else st.one_of(good, bad), max_size=25))
    lines = "\n".join(",".join(line) for line in [header, *chosen])
    return lines.encode("latin-1" if draw(st.integers(0, 9)) == 0 else "utf-8", errors="replace")


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""').replace("\x00", "") + '"'


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(csv_files(), csv_files(), st.booleans())
@example(
    b's,y,b,a\np,0,"2024-01-05",1\np,1,"",2',
    b's,y,a,b\np,0,1,"2024-01-05"',
    False,
)  # one date: no part of it varies
def test_any_files_are_prepared_or_refused_in_words(train: bytes, val: bytes, split: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        paths = Path(name) / "train.csv", Path(name) / "val.csv"
        for path, content in zip(paths, (train, val), strict=True):
            path.write_bytes(content)
        role = {"target": paths[1]} if split else {"val": paths[1]}
        try:
            data = load_tables(TableSpec(tables=paths[0], source_col="s", label="y", **role))
        except MixtreeError as error:
            assert str(error)
            return
    sources = data.problem_sources
    assert sources.features == len(data.preprocessor.feature_names)
