from __future__ import annotations

import json
import tempfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mixtree.data.preprocessing import FILE, Preprocessor
from mixtree.errors import DataError, InputError, MixtreeError


def table(rows: int = 200, *, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "age": pl.Series(rng.integers(18, 90, rows)),
            "pay": pl.Series(rng.lognormal(10, 1, rows)).set(pl.Series(rng.random(rows) < 0.2), None),
            "city": rng.choice(["Rome", "Paris", "Oslo"], rows),
            "hue": pl.Series(rng.choice(["red", "blue"], rows)).set(pl.Series(rng.random(rows) < 0.3), None),
            "member": rng.random(rows) < 0.5,
            "day": [date(2023, 1, 1) + timedelta(days=int(n)) for n in rng.integers(0, 900, rows)],
        }
    )


def dense(x: Any) -> NDArray[np.float32]:
    return x.toarray() if issparse(x) else x


def column(x: Any, preprocessor: Preprocessor, name: str) -> NDArray[np.float32]:
    return dense(x)[:, preprocessor.feature_names.index(name)]


def kinds(preprocessor: Preprocessor) -> dict[str, str]:
    return {part.name: part.kind for part in preprocessor.columns}


def test_every_column_gets_the_kind_of_its_values() -> None:
    frame = table().with_columns(
        text_day=pl.col("day").dt.strftime("%d.%m.%Y"),
        wait=pl.duration(minutes=pl.col("age")),
        level=pl.col("city").cast(pl.Categorical),
    )
    preprocessor = Preprocessor.fit(frame)
    assert kinds(preprocessor) == {
        "age": "numeric",
        "pay": "numeric",
        "city": "categorical",
        "hue": "categorical",
        "member": "categorical",
        "day": "date",
        "text_day": "date",
        "wait": "numeric",
        "level": "categorical",
    }
    shown = {part.name: (part.found, part.treatment) for part in preprocessor.columns}
    assert shown["age"] == ("whole numbers", "scaled; median where missing")
    assert shown["pay"] == ("numbers", "scaled; median and a flag where missing")
    assert shown["hue"] == ("text", "one-hot: 2 levels + missing")
    assert shown["member"] == ("true/false", "one-hot: 2 levels")
    assert shown["text_day"][1].startswith("date (read as %d.%m.%Y): year, month")
    assert preprocessor.warnings == ()
    assert preprocessor.transform(frame).dtype == np.float32


def test_features_equal_those_of_a_plain_sklearn_pipeline() -> None:
    frame, later = table(), table(seed=1)
    preprocessor = Preprocessor.fit(frame)
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    numbers.fit(frame.select("age", "pay").to_numpy())
    levels = OneHotEncoder(sparse_output=False).fit(frame.select("city").to_numpy())
    for part in (frame, later):
        x = preprocessor.transform(part)
        expected = numbers.transform(part.select("age", "pay").to_numpy())
        np.testing.assert_allclose(x[:, :2], expected, rtol=1e-5, atol=1e-6)
        place = preprocessor.feature_names.index("city=Oslo")
        assert preprocessor.feature_names[place : place + 3] == ("city=Oslo", "city=Paris", "city=Rome")
        np.testing.assert_array_equal(
            x[:, place : place + 3], levels.transform(part.select("city").to_numpy())
        )


def test_missing_values_have_flags_and_levels_of_their_own() -> None:
    frame = table()
    preprocessor = Preprocessor.fit(frame)
    x = preprocessor.transform(frame)
    np.testing.assert_array_equal(column(x, preprocessor, "pay=missing"), frame["pay"].is_null().to_numpy())
    np.testing.assert_array_equal(column(x, preprocessor, "hue=(missing)"), frame["hue"].is_null().to_numpy())
    # A gap where training rows had none: the median, and no level at all.
    gaps = frame.head(1).with_columns(age=None, city=None, day=None)
    row = preprocessor.transform(gaps)
    median = (frame["age"].median() - frame["age"].mean()) / frame["age"].std(ddof=0)  # type: ignore[operator]
    assert column(row, preprocessor, "age")[0] == pytest.approx(median, abs=1e-6)
    assert [column(row, preprocessor, f"city={name}")[0] for name in ("Oslo", "Paris", "Rome")] == [0, 0, 0]


def test_rare_and_unseen_levels_share_one() -> None:
    frame = pl.DataFrame({"c": ["a"] * 50 + ["b"] * 45 + ["x"] * 3 + ["y"] * 2})
    preprocessor = Preprocessor.fit(frame, rare_below=10)
    assert preprocessor.feature_names == ("c=a", "c=b", "c=(rare)")
    x = preprocessor.transform(pl.DataFrame({"c": ["a", "x", "never seen", None]}))
    np.testing.assert_array_equal(x, [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]])
    assert Preprocessor.fit(frame).feature_names == ("c=a", "c=b", "c=x", "c=y")
    unseen = Preprocessor.fit(frame).transform(pl.DataFrame({"c": ["never seen"]}))
    np.testing.assert_array_equal(unseen, [[0, 0, 0, 0]])
    assert Preprocessor.fit(frame, max_levels=1).feature_names == ("c=a", "c=(rare)")


def test_levels_are_folded_at_ten_rows_in_a_large_table() -> None:
    frame = pl.DataFrame({"c": ["a"] * 1000 + ["nine"] * 9 + ["ten"] * 10})
    assert Preprocessor.fit(frame).feature_names == ("c=a", "c=ten", "c=(rare)")


IDS = [f"id-{n}" for n in range(100)]
EASY = ["u", "v"] * 50

WARNED: list[tuple[str, list[Any], str, str]] = [
    ("constant number", [5] * 100, "dropped", "one value only (5)"),
    (
        "numbers near 2**64",
        pl.Series([2**64 - 1 - n for n in range(100)], dtype=pl.UInt64),
        "dropped",
        "as numbers its values cannot be told apart (18446744073709551516 … 18446744073709551615)",
    ),
    ("constant text", ["x"] * 100, "dropped", "one value only ('x')"),
    ("constant date", [date(2024, 1, 1)] * 100, "dropped", "one value only"),
    ("constant text date", ["2024-01-01"] * 100, "dropped", "one value only"),
    ("all missing", [None] * 100, "dropped", "all its values are missing"),
    ("all NaN", [float("nan")] * 100, "dropped", "no finite number"),
    ("all infinite", [float("inf")] * 100, "dropped", "no finite number"),
    ("ids", IDS, "dropped", "every value is different"),
    ("names", [f"n{n // 2}" for n in range(1000)], "dropped", "no value is seen in 10 training rows"),
    ("infinities", [1.0, 2.0, float("inf"), 4.0] * 25, "numeric", "infinite (or beyond 1e100) numbers in 25"),
    ("huge numbers", [1.0, 2.0, 1e300, 4.0] * 25, "numeric", "infinite (or beyond 1e100) numbers in 25"),
    ("row numbers", list(range(100)), "numeric", "numbers the rows one by one"),
    ("numbers as text", [f"{n % 20},5" for n in range(100)], "categorical", "look like numbers"),
    ("money", [f"${n % 20}" for n in range(100)], "categorical", "mend values such as '$"),
    (
        "numbers with a word",
        [str(n % 20) if n else "unknown" for n in range(100)],
        "categorical",
        "'unknown'",
    ),
    ("dates with a word", ["2024-01-02", "2024-02-03", "2024-03-04", "soon"] * 25, "categorical", "'soon'"),
    ("day or month", ["01/02/2024", "03/04/2024"] * 50, "date", "month/day"),
]


@pytest.mark.parametrize(("values", "kind", "words"), [c[1:] for c in WARNED], ids=[c[0] for c in WARNED])
def test_odd_columns_are_told_and_treated_rightly(values: list[Any], kind: str, words: str) -> None:
    easy = EASY * (len(values) // 100)
    preprocessor = Preprocessor.fit(pl.DataFrame({"odd": values, "easy": easy}))
    assert kinds(preprocessor)["odd"] == kind
    (told,) = preprocessor.warnings
    assert "'odd'" in told
    assert words in told
    x = dense(preprocessor.transform(pl.DataFrame({"odd": values, "easy": easy})))
    assert np.all(np.isfinite(x))
    assert x.shape == (len(values), len(preprocessor.feature_names))


def test_infinities_and_giants_in_later_rows_stay_finite() -> None:
    preprocessor = Preprocessor.fit(pl.DataFrame({"a": [1.0, 2.0, 3.0]}))
    x = preprocessor.transform(pl.DataFrame({"a": [float("inf"), 1e99, -1e99, float("nan")]}))
    np.testing.assert_allclose(x[:, 0], [0, 1e6, -1e6, 0], atol=1e-6)


def test_row_numbers_alone_are_refused() -> None:
    numbers = {"id": list(range(50)), "unit": ["kg"] * 50}
    message = "column 'id' is the only feature and numbers the rows one by one: .* with decimals"
    for start in (0, 1):
        with pytest.raises(DataError, match=message):
            Preprocessor.fit(pl.DataFrame(numbers | {"id": np.random.default_rng(0).permutation(50) + start}))
    for other in (np.arange(50.0), np.arange(50) // 2, np.arange(50) ** 2):
        assert kinds(Preprocessor.fit(pl.DataFrame(numbers | {"id": other})))["id"] == "numeric"


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(DataError, match="no column is left to learn from: column 'a' is dropped: it has one"):
        Preprocessor.fit(pl.DataFrame({"a": [1, 1]}))
    with pytest.raises(DataError, match="no rows"):
        Preprocessor.fit(pl.DataFrame({"a": []}))
    with pytest.raises(DataError, match="there are no columns"):
        Preprocessor.fit(pl.DataFrame([pl.Series("a", [1, 2])]).drop("a").with_row_index().drop("index"))
    with pytest.raises(DataError, match=r"here: column 'a' holds List\(Int64\) values.*drop"):
        Preprocessor.fit(pl.DataFrame({"a": [[1], [2]]}), where="here")
    with pytest.raises(InputError, match="at least 1"):
        Preprocessor.fit(table(), max_levels=0)


def test_extra_columns_are_ignored_and_missing_ones_all_named() -> None:
    preprocessor = Preprocessor.fit(table())
    x = preprocessor.transform(table().with_columns(more=1).select(sorted([*table().columns, "more"])))
    np.testing.assert_array_equal(x, preprocessor.transform(table()))
    with pytest.raises(
        DataError, match=r"new\.csv: the model needs columns 'age', 'city'; the table has 'pay'"
    ):
        preprocessor.transform(table().drop("age", "city"), where="new.csv")
    assert set(preprocessor.needed) == set(table().columns)


WRONG: list[tuple[str, list[Any], str]] = [
    ("age", ["old"], "column 'age' held numbers in training but 'old' is none"),
    ("age", [date(2024, 1, 1)], "column 'age' held numbers"),
    ("age", [[1]], "column 'age' held numbers"),
    ("day", ["yesterday"], "column 'day' held dates in training but 'yesterday' is none"),
    ("day", ["01/02/2024"], "column 'day' held dates"),
    ("day", [20240101], "column 'day' held dates in training but 20240101 is none"),
    ("text_day", ["2024-01-31"], "column 'text_day' held dates written as %d.%m.%Y in training"),
    ("member", ["maybe"], "column 'member' held true/false in training but 'maybe' is none"),
    ("member", [2], "column 'member' held true/false"),
]


@pytest.mark.parametrize(("name", "values", "words"), WRONG)
def test_a_wrong_type_is_refused_with_the_column_and_a_value(
    name: str, values: list[Any], words: str
) -> None:
    frame = table().with_columns(text_day=pl.col("day").dt.strftime("%d.%m.%Y"))
    preprocessor = Preprocessor.fit(frame)
    with pytest.raises(DataError) as caught:
        preprocessor.transform(frame.head(1).with_columns(pl.Series(name, values)), where="new.csv")
    assert str(caught.value).startswith("new.csv: ")
    assert words in str(caught.value)


def test_the_same_values_in_another_type_give_the_same_features() -> None:
    frame = table()
    preprocessor = Preprocessor.fit(frame)
    other = frame.with_columns(
        age=pl.col("age").cast(pl.String),
        city=pl.col("city").cast(pl.Categorical),
        member=pl.col("member").cast(pl.Int8),
        day=pl.col("day").cast(pl.String),
        pay=pl.col("pay").fill_null(float("nan")),
    )
    np.testing.assert_array_equal(preprocessor.transform(other), preprocessor.transform(frame))
    truth = frame.with_columns(member=pl.col("member").cast(pl.String).str.to_titlecase())
    np.testing.assert_array_equal(preprocessor.transform(truth), preprocessor.transform(frame))


def test_polars_pandas_and_numpy_agree() -> None:
    frame = table()
    reference = Preprocessor.fit(frame)
    pandas = Preprocessor.fit(frame.to_pandas())
    np.testing.assert_array_equal(pandas.transform(frame.to_pandas()), reference.transform(frame))
    np.testing.assert_array_equal(pandas.transform(frame), reference.transform(frame))
    numbers = frame.select("age", "pay")
    array = numbers.to_numpy()
    from_array = Preprocessor.fit(array)
    assert from_array.feature_names == ("x0", "x1", "x1=missing")
    np.testing.assert_array_equal(from_array.transform(array), Preprocessor.fit(numbers).transform(numbers))
    objects = frame.select("age", "city").to_pandas().to_numpy()
    np.testing.assert_array_equal(
        Preprocessor.fit(objects).transform(objects),
        Preprocessor.fit(frame.select("age", "city")).transform(frame),
    )


def wide(rows: int = 600) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return table(rows).with_columns(code=pl.Series([f"c{n}" for n in rng.integers(0, 400, rows)]))


def test_wide_one_hot_stays_sparse_and_equals_dense() -> None:
    frame = wide()
    preprocessor = Preprocessor.fit(frame, rare_below=1)
    assert preprocessor.sparse
    x = preprocessor.transform(frame)
    assert x.format == "csr"
    assert x.dtype == np.float32
    assert x.nnz == np.count_nonzero(x.toarray())
    full = Preprocessor.fit(frame, rare_below=1, sparse=False)
    np.testing.assert_array_equal(x.toarray(), full.transform(frame))
    rows = np.array([5, 3, 3, 599])
    np.testing.assert_array_equal(preprocessor.transform(frame, rows=rows).toarray(), x.toarray()[rows])
    np.testing.assert_array_equal(full.transform(frame, rows=rows), x.toarray()[rows])
    assert preprocessor.transform(frame.clear()).shape == (0, x.shape[1])
    assert not Preprocessor.fit(table()).sparse
    assert issparse(Preprocessor.fit(table(), sparse=True).transform(table()))


def test_a_table_longer_than_a_block_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = wide()
    expected = Preprocessor.fit(frame).transform(frame)
    keys = Preprocessor.fit(frame).keys(frame)
    monkeypatch.setattr("mixtree.data.preprocessing._BLOCK", 7)
    for sparse in (False, True):
        preprocessor = Preprocessor.fit(frame, sparse=sparse)
        np.testing.assert_array_equal(dense(preprocessor.transform(frame)), dense(expected))
        assert preprocessor.keys(frame).to_list() == keys.to_list()


@pytest.mark.parametrize("sparse", [False, True])
def test_saved_and_loaded_it_does_exactly_the_same(tmp_path: Path, sparse: bool) -> None:
    frame = wide().with_columns(text_day=pl.col("day").dt.strftime("%d/%m/%Y"), constant=1)
    preprocessor = Preprocessor.fit(frame, sparse=sparse)
    preprocessor.to_files(tmp_path / "model")
    loaded = Preprocessor.from_files(tmp_path / "model")
    assert loaded.columns == preprocessor.columns
    assert loaded.feature_names == preprocessor.feature_names
    assert loaded.warnings == preprocessor.warnings
    assert loaded.text_columns == ("city", "hue", "code", "text_day")
    for part in (frame, wide().head(50).with_columns(frame.head(50)["text_day"], city=pl.lit("nowhere"))):
        mine, its = preprocessor.transform(part), loaded.transform(part)
        assert issparse(its) == sparse
        np.testing.assert_array_equal(dense(its), dense(mine))
    assert [path.name for path in (tmp_path / "model").iterdir()] == [FILE]


DAMAGE: list[tuple[str, Any, str]] = [
    ("format", 99, "another version"),
    ("medians", [1.0], "damaged"),
    ("scales", ["x"], "damaged"),
    ("columns", [{"name": "a"}], "damaged"),
    ("columns", None, "damaged"),
]


@pytest.mark.parametrize(("key", "value", "words"), DAMAGE)
def test_damaged_files_are_refused(tmp_path: Path, key: str, value: Any, words: str) -> None:
    Preprocessor.fit(table()).to_files(tmp_path)
    plain = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    (tmp_path / FILE).write_text(json.dumps({**plain, key: value}), encoding="utf-8")
    with pytest.raises(DataError, match=f"{FILE}: .*{words}"):
        Preprocessor.from_files(tmp_path)


EDITS: list[tuple[str, Any]] = [
    ("kind", "odd"),
    ("kind", None),
    ("name", ["x"]),
    ("missing", "yes"),
    ("levels", "ab"),
    ("levels", ["a", "a"]),
    ("levels", [1]),
    ("levels", ["\udcff"]),
    ("format", "%Q"),
    ("parts", ["century"]),
    ("parts", ["year", "year"]),
    ("treatment", 3),
]


@pytest.mark.parametrize(("key", "value"), EDITS)
def test_edited_columns_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    Preprocessor.fit(table()).to_files(tmp_path)
    plain = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    for column in plain["columns"]:
        column[key] = value
    (tmp_path / FILE).write_text(json.dumps(plain), encoding="utf-8")
    with pytest.raises(DataError, match=f"{FILE}: damaged"):
        Preprocessor.from_files(tmp_path)


def test_statistics_that_divide_by_nothing_are_refused(tmp_path: Path) -> None:
    Preprocessor.fit(table()).to_files(tmp_path)
    plain = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    for scale in (0.0, -1.0, float("nan")):
        changed = {**plain, "scales": [scale, *plain["scales"][1:]]}
        (tmp_path / FILE).write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(DataError, match=f"{FILE}: damaged"):
            Preprocessor.from_files(tmp_path)


def test_a_file_that_is_no_json_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file; is this the folder of a model"):
        Preprocessor.from_files(tmp_path)
    for text in ("{", "[" * 100_000):
        (tmp_path / FILE).write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match="damaged"):
            Preprocessor.from_files(tmp_path)


def test_keys_are_equal_for_equal_rows_only() -> None:
    frame = table()
    preprocessor = Preprocessor.fit(frame)
    keys = preprocessor.keys(frame)
    assert keys.n_unique() == frame.n_unique()
    other = frame.with_columns(pl.col("age").cast(pl.Float32), pl.col("city").cast(pl.Categorical))
    assert preprocessor.keys(other).to_list() == keys.to_list()


VALUES: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(["a", "b", "2024-01-01", "1,5", "NA", "", " x", "2024-02-30", "01/02/2024"]),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
    st.none(),
]
NAMES = st.one_of(st.text(max_size=5), st.sampled_from(["*", "^a$", "rows", "level", "moment", "", "line"]))


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    rows = draw(st.integers(1, 30))
    labels = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    chosen = [draw(st.sampled_from(VALUES)) for _ in labels]
    return pl.DataFrame(
        [
            pl.Series(draw(st.lists(values | st.none(), min_size=rows, max_size=rows)), strict=False).alias(
                label
            )
            for label, values in zip(labels, chosen, strict=True)
        ]
    )


def test_names_and_levels_with_a_nul_are_read_back(tmp_path: Path) -> None:
    frame = pl.DataFrame({"a\0": [1.0, 2.0] * 20, "b": ["x\0", "y"] * 20})
    preprocessor = Preprocessor.fit(frame)
    preprocessor.to_files(tmp_path)
    assert Preprocessor.from_files(tmp_path).feature_names == preprocessor.feature_names


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(frames(), st.booleans())
def test_any_table_is_prepared_or_refused_in_words(frame: pl.DataFrame, sparse: bool) -> None:
    try:
        preprocessor = Preprocessor.fit(frame, sparse=sparse)
    except MixtreeError:
        return
    x = dense(preprocessor.transform(frame))
    assert x.shape == (frame.height, len(preprocessor.feature_names))
    assert np.all(np.isfinite(x))
    assert len(set(preprocessor.feature_names)) <= x.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        preprocessor.to_files(folder)
        np.testing.assert_array_equal(dense(Preprocessor.from_files(folder).transform(frame)), x)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(frames(), frames())
def test_any_later_table_is_transformed_or_refused_in_words(first: pl.DataFrame, later: pl.DataFrame) -> None:
    later = pl.DataFrame([part.alias(name) for part, name in zip(later, first.columns, strict=False)])
    try:
        x = dense(Preprocessor.fit(first).transform(later))
    except MixtreeError:
        return
    assert np.all(np.isfinite(x))
