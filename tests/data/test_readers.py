from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from mixtree.data.readers import read_table
from mixtree.errors import DataError

FRAME = pl.DataFrame({"a": [1, 2], "größe": ["x", None], "c": [1.5, -2.0]})


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def written(folder: Path, name: str) -> Path:
    path = folder / name.removesuffix(".gz")
    kind = path.suffix
    if kind in (".csv", ".txt"):
        FRAME.write_csv(path)
    elif kind in (".tsv", ".tab"):
        FRAME.write_csv(path, separator="\t")
    elif kind in (".parquet", ".pq"):
        FRAME.write_parquet(path)
    elif kind == ".ipc":
        FRAME.write_ipc_stream(path)
    else:
        FRAME.write_ipc(path)
    if name.endswith(".gz"):
        return put(folder / name, gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize("zipped", ["", ".gz"])
@pytest.mark.parametrize(
    "name",
    [
        "t.csv",
        "t.txt",
        "t.tsv",
        "t.tab",
        "t.parquet",
        "t.pq",
        "t.arrow",
        "t.feather",
        "t.ipc",
        "T[1] *.CSV".lower(),
    ],
)
def test_every_format_gives_the_same_table(tmp_path: Path, name: str, zipped: str) -> None:
    assert read_table(written(tmp_path, name + zipped)).equals(FRAME)


def test_columns_are_picked_by_their_very_names(tmp_path: Path) -> None:
    path = put(tmp_path / "t.csv", "a,*,^a$\n1,2,3\n")
    assert read_table(path, columns=["^a$", "*"]).rows() == [(3, 2)]
    assert read_table(str(path), columns=["a"]).columns == ["a"]


READ: list[tuple[str, str | bytes, dict[str, list[object]]]] = [
    ("a byte order mark", b"\xef\xbb\xbfa,b\n1,2\n", {"a": [1], "b": [2]}),
    ("windows line ends", "a,b\r\n1,2\r\n", {"a": [1], "b": [2]}),
    ("old mac line ends", "a,b\r1,2\r", {"a": [1], "b": [2]}),
    ("semicolons", "a;b\n1;x\n", {"a": [1], "b": ["x"]}),
    ("white space", "a, b\nx, 1\n y ,2\n", {"a": ["x", "y"], "b": [1, 2]}),
    ("words for missing", 'a,b\nNA,1\n"", NaN\nx,null\n', {"a": [None, None, "x"], "b": [1, None, None]}),
    ("empty lines at the end", "a,b\n1,2\n\n\n", {"a": [1], "b": [2]}),
    ("an empty line in a column of its own", "a\n1\n\n2\n", {"a": [1, None, 2]}),
    ("quoted numbers", 'a,b\n"1","2.5"\n', {"a": [1], "b": [2.5]}),
    ("a line break in a value", 'a,b\n"x\ny",\nz,1\n', {"a": ["x\ny", "z"], "b": [None, 1]}),
    ("truth", "a,b\nTrue,false\nFALSE,true\n", {"a": [True, False], "b": [False, True]}),
    ("numbers in all their forms", "a\n1e5\n+5\n.5\n", {"a": [1e5, 5.0, 0.5]}),
    ("infinities", "a\n1\ninf\n-Infinity\n", {"a": [1.0, float("inf"), float("-inf")]}),
    ("an integer beyond 64 bits", "a\n1\n99999999999999999999\n", {"a": [1, 99999999999999999999]}),
    ("an integer beyond 128 bits", "a\n1\n" + "9" * 45 + "\n", {"a": [1.0, 1e45]}),
    ("codes that stay text", "code,a\n007,1\n012,2\n", {"code": ["007", "012"], "a": [1, 2]}),
    ("a name that is not there", ",a\n0,5\n1,6\n", {"": [0, 1], "a": [5, 6]}),
    ("names in other alphabets", "größe,名前\n1,é\n", {"größe": [1], "名前": ["é"]}),
]


@pytest.mark.parametrize(("content", "expected"), [case[1:] for case in READ], ids=[case[0] for case in READ])
def test_text_files_are_read_as_meant(
    tmp_path: Path, content: str | bytes, expected: dict[str, list[object]]
) -> None:
    frame = read_table(put(tmp_path / "t.csv", content), text=["code"])
    assert frame.to_dict(as_series=False) == expected


LATE = [
    ("1", "3.5", pl.Float64),
    ("1", "x", pl.String),
    ("true", "x", pl.String),
    ("1", "9" * 30, pl.Float64),
    ("", "7", pl.Int64),
    ("", "true", pl.Boolean),
    ("", "x", pl.String),
]


@pytest.mark.parametrize(("first", "last", "dtype"), LATE)
def test_a_type_that_changes_late_is_found(
    tmp_path: Path, first: str, last: str, dtype: type[pl.DataType]
) -> None:
    path = put(tmp_path / "t.csv", "a,b\n" + f"{first},1\n" * 11_000 + f"{last},2\n")
    frame = read_table(path)
    assert frame["a"].dtype == dtype
    assert frame["b"].dtype == pl.Int64
    assert str(frame["a"][-1]).lower() in (last.lower(), f"{float(last):g}" if last[0].isdigit() else "")


GZ = gzip.compress(b"a,b\n" + b"1,2\n" * 50_000)
LONG_LATIN = b"a,b\n" + b"1,x\n" * 300_000 + b"1,\xe9\n"

BROKEN: list[tuple[str, str, str | bytes | None, tuple[str, ...]]] = [
    ("missing file", "t.csv", None, ("no such file",)),
    ("empty file", "t.csv", "", ("empty",)),
    ("empty Parquet file", "t.parquet", "", ("empty",)),
    ("blank lines only", "t.csv", "\n\n \n", ("empty",)),
    ("header only", "t.csv", "a,b\n", ("column names but no rows",)),
    ("unknown kind", "t.xlsx", "x", (".csv", ".parquet", "save it as CSV")),
    ("no kind at all", "t", "a,b\n1,2\n", (".csv",)),
    ("Excel named CSV", "t.csv", b"PK\x03\x04rest", ("Excel", "save the sheet as CSV")),
    ("Parquet named CSV", "t.csv", b"PAR1rest", ("Parquet", ".parquet")),
    ("gzip named CSV", "t.csv", GZ, ("gzip", ".csv.gz")),
    ("UTF-16", "t.csv", "a,b\n1,2\n".encode("utf-16"), ("UTF-16", "iconv")),
    ("Latin-1 header", "t.csv", "größe,b\n1,2\n".encode("latin-1"), ("line 1", "UTF-8", "iconv")),
    ("Latin-1 value", "t.csv", "a,b\n1,x\n2,é\n".encode("latin-1"), ("line 3", "UTF-8", "iconv")),
    ("Latin-1 late", "t.csv", LONG_LATIN, ("line 300002", "UTF-8")),
    ("Latin-1 in gzip", "t.csv.gz", gzip.compress("a,b\n1,x\n2,é\n".encode("latin-1")), ("line 3",)),
    ("binary garbage", "t.csv", bytes(range(256)) * 9, ("not text",)),
    ("a row too long", "t.csv", "a,b\n1,2\n1,2,3\n", ("line 3", "3 values", "2 columns")),
    ("a row too short", "t.csv", "a,b,c\n1,2,3\n1,2\n", ("line 3", "2 values", "3 columns")),
    ("a row too short in gzip", "t.csv.gz", gzip.compress(b"a,b\n1,2\n1\n"), ("line 3", "1 values")),
    ("a quote left open", "t.csv", 'a,b\n1,2\n"x,2\n3,4\n', ("line 3", "quote")),
    ("a quote inside", "t.csv", 'a,b\nx"y,2\n3,4\n', ("line 2", "quote")),
    ("a quote left open in the header", "t.csv", '"a,b\n' + "1,2\n" * 50_000, ("line 1", "quote")),
    ("names twice", "t.csv", "a,b, a\n1,2,3\n", ("'a'", "line 1", "own name")),
    ("two columns without a name", "t.csv", ",,a\n1,2,3\n", ("''", "own name")),
    ("a header without an end", "t.csv", ",".join(map(str, range(200_000))) + "\n1\n", ("header", "longer")),
    ("gzip that is none", "t.csv.gz", "a,b\n1,2\n", ("gzip", "damaged")),
    ("gzip cut short", "t.csv.gz", GZ[:-40], ("gzip", "damaged", "download")),
    ("gzip with a wrong byte", "t.csv.gz", GZ[:60] + b"xx" + GZ[62:], ("gzip", "damaged")),
    ("damaged Parquet", "t.parquet", b"PAR1 nonsense PAR1", ("Parquet", "damaged")),
    ("damaged Arrow", "t.arrow", b"ARROW1 nonsense", ("Arrow", "damaged")),
    ("gzip with a wrong block", "t.csv.gz", GZ[:10] + b"\xff" * 40 + GZ[50:], ("gzip", "damaged")),
    ("gzip with a wrong sum", "t.csv.gz", GZ[:-6] + b"xx" + GZ[-4:], ("gzip", "damaged")),
    ("a gzip bomb", "t.csv.gz", gzip.compress(b"a,b\n" + b"0" * (300 << 20)), ("unpack", "hardly a table")),
    ("damaged gzipped Parquet", "t.parquet.gz", b"nonsense", ("gzip", "damaged")),
]


@pytest.mark.parametrize(("name", "content", "words"), [c[1:] for c in BROKEN], ids=[c[0] for c in BROKEN])
def test_a_broken_file_is_refused_with_its_name_and_a_remedy(
    tmp_path: Path, name: str, content: str | bytes | None, words: tuple[str, ...]
) -> None:
    path = tmp_path / name
    if content is not None:
        put(path, content)
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert str(path) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_many_columns_are_read_at_once(tmp_path: Path) -> None:
    names = [f"column{number}" for number in range(20_000)]
    for value in ("1", " word"):
        path = put(tmp_path / "t.csv", f"{','.join(names)}\n{','.join(value for _ in names)}\n")
        started = time.process_time()
        assert read_table(path, text=names).columns == names
        # Looking for each name among all others took 9 s, a new frame for each column 50 s.
        assert time.process_time() - started < 6


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="this is a folder"):
        read_table(tmp_path)


def test_a_column_that_is_not_there_is_named_beside_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'z'; it has 'a', 'b'"):
        read_table(put(tmp_path / "t.csv", "a,b\n1,2\n"), columns=["a", "z"])


def test_a_panic_inside_polars_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(kind: type[BaseException]) -> Callable[..., pl.DataFrame]:
        def read(*_: object, **__: object) -> pl.DataFrame:
            raise kind("something broke\nin a place nobody knows")

        return read

    path = written(tmp_path, "t.parquet")
    for kind in (OSError, pl.exceptions.ComputeError, pl.exceptions.PanicException):
        monkeypatch.setattr(pl, "read_parquet", fails(kind))
        with pytest.raises(DataError, match=r"t\.parquet: cannot be read as Parquet \(something broke\)"):
            read_table(path)


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("no")

    path = put(tmp_path / "t.csv", "a\n1\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match="no permission"):
        read_table(path)


@pytest.mark.parametrize(
    ("content", "values"),
    [
        ("a;b\n71,5;x\n3;y\n-0,25;z\n", [71.5, 3.0, -0.25]),
        ("a\tb\n1.204,50\tx\n12\ty\n", [1204.5, 12.0]),
        ("a;b\n71,5;x\n3,2,1;y\n", ["71,5", "3,2,1"]),  # not numbers, all of them
        ("a;b\n" + "7;x\n" * 120 + "1,5;y\n", [7.0] * 120 + [1.5]),
        ("a;b\n1,200;x\n850;y\n12,500;z\n", ["1,200", "850", "12,500"]),  # thousands, or not: who knows
        ("a;b\n1,200;x\n0,850;y\n", [1.2, 0.85]),
        ('a,b\n"71,5",x\n"2,5",y\n', ["71,5", "2,5"]),  # commas part columns here
    ],
)
def test_decimal_commas_where_commas_do_not_part_columns(
    tmp_path: Path, content: str, values: list[object]
) -> None:
    assert read_table(put(tmp_path / "t.csv", content))["a"].to_list() == values


def test_names_that_look_the_same_are_the_same(tmp_path: Path) -> None:
    path = put(tmp_path / "t.csv", "a\u0302ge,b\n1,2\n")
    assert read_table(path, columns=["\u00e2ge"]).columns == ["\u00e2ge"]
    assert read_table(path, columns=["a\u0302ge"]).columns == ["\u00e2ge"]
    codes = put(tmp_path / "c.csv", "gro\u0308sse,b\n01,2\n")
    assert read_table(codes, text=["gr\u00f6sse"])["gr\u00f6sse"].to_list() == ["01"]
    both = put(tmp_path / "u.csv", "a\u0302ge,\u00e2ge\n1,2\n")
    assert read_table(both).width == 2


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.arrow"])
def test_a_file_s_name_need_not_be_utf_8(tmp_path: Path, name: str) -> None:
    odd = tmp_path / os.fsdecode(b"\xff" + name.encode())
    written(tmp_path, name).rename(odd)
    assert read_table(odd).equals(FRAME)
    path = put(tmp_path / os.fsdecode(b"broken\xff.csv"), "a,b\n1,2\n1\n")
    with pytest.raises(DataError, match=r"broken\\xff\.csv: line 3 has 1 values"):
        read_table(path)
