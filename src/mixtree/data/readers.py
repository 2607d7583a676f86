"""Tables on disk: CSV, TSV, Parquet and Arrow files, plain or gzipped, read into polars frames.

Parquet and Arrow files know the type of every column. Text files do not, so the rules are: a column whose
every value is a number is numeric, one of true/false is boolean, everything else is text. White space around
names and values is dropped, and the words in `MISSING` mean that a value is missing. Where commas do not part
the columns, numbers may be written with a decimal comma. Names are compared in one form of Unicode (NFC).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import unicodedata
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import polars as pl

from mixtree.errors import DataError
from mixtree.places import is_text

FORMATS = {
    ".csv": "CSV",
    ".txt": "CSV",
    ".tsv": "TSV",
    ".tab": "TSV",
    ".parquet": "Parquet",
    ".pq": "Parquet",
    ".arrow": "Arrow",
    ".feather": "Arrow",
    ".ipc": "Arrow",
}
"""What a file is, by the end of its name; each may end in ``.gz`` as well."""
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
"""The words of a text file that stand for a missing value."""

_SAMPLE = 10_000  # rows that a column's type is guessed from; a later surprise is met by a second reading
_HEAD = 1 << 20  # bytes in which the header must end
_MOST_TIMES, _ALWAYS = 100, 1 << 28
"""What is unpacked of a gzip file at most: so many times its size, and at least so many bytes."""
_SEPARATORS = ",;\t|"
_EUROPEAN = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?$"  # 71 or 71,5 or 1.204,50
# A comma that parts no thousands: its fraction has not three digits, or what stands before it is 0, is long
# or has dots itself. Of 1,204 nobody knows.
_DECIMAL = r"^[+-]?(\d+,(\d{1,2}|\d{4,})|0+,\d+|\d{4,},\d+|[\d.]*\.\d{3},\d+)$"
_NOT_TEXT = {
    b"PAR1": "a Parquet file: name it .parquet",
    b"ARROW1": "an Arrow file: name it .arrow",
    b"PK\x03\x04": "a zip or Excel file: unpack it, or save the sheet as CSV (UTF-8)",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save the sheet as CSV (UTF-8)",
    b"\xff\xfe": "UTF-16 text: save it as CSV (UTF-8), or iconv -f UTF-16 -t UTF-8 {name} > fixed.csv",
    b"\xfe\xff": "UTF-16 text: save it as CSV (UTF-8), or iconv -f UTF-16 -t UTF-8 {name} > fixed.csv",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it, or compress it with gzip",
    b"\x1f\x8b": "compressed with gzip: name it .csv.gz",
    b"BZh": "compressed with bzip2: unpack it, or compress it with gzip",
}


def read_table(
    path: str | Path, *, columns: Sequence[str] | None = None, text: Collection[str] = ()
) -> pl.DataFrame:
    """The table in a CSV, TSV, Parquet or Arrow file, told apart by the end of its name.

    ``columns`` keeps these only, in this order. ``text`` names columns of a CSV or TSV file that stay text
    even if every value is a number (codes such as ``007``).
    """
    path = Path(path)
    kind, zipped = _format(path)
    file = _File(path, kind, _content(path, zipped=zipped))
    with _explained(file):
        if kind in ("CSV", "TSV"):
            frame = _read_text(file, _dialect(file), text)
        elif kind == "Parquet":
            frame = pl.read_parquet(file.content, glob=False, hive_partitioning=False)
        else:
            with file.open() as opened:
                try:
                    frame = pl.read_ipc(opened)
                except (pl.exceptions.PolarsError, OSError):
                    opened.seek(0)
                    frame = pl.read_ipc_stream(opened)  # the other of Arrow's two layouts
    if not frame.width:
        raise DataError(f"{path}: there are no columns in it")
    frame = with_plain_names(frame)
    if not frame.height:
        raise DataError(f"{path}: there are column names but no rows; is it the right file?")
    if columns is None:
        return frame
    have, columns = set(frame.columns), [plain_name(name) for name in columns]
    absent = [name for name in columns if name not in have]
    if absent:
        raise DataError(f"{path}: no column {names(absent)}; it has {names(frame.columns)}")
    return pick(frame, columns)


def plain_name(name: str) -> str:
    """A name in the one form that looks the same and is the same."""
    return unicodedata.normalize("NFC", name)


def with_plain_names(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with its columns' names in that form, unless only their form tells them apart."""
    plain = [plain_name(name) for name in frame.columns]
    if plain == frame.columns or len(set(plain)) < len(plain):
        return frame
    return frame.rename(dict(zip(frame.columns, plain, strict=True)))


def pick(frame: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
    """These columns of a frame, by their very names: ``select`` takes ``*`` and ``^a.*$`` for patterns."""
    return pl.DataFrame([frame.get_column(name) for name in columns])


def names(words: Collection[object], *, most: int = 20) -> str:
    """The words in quotes, at most so many of them.

    >>> names(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(word) for word, _ in zip(words, range(most), strict=False))
    return shown if len(words) <= most else f"{shown} and {len(words) - most:,} more"


def _format(path: Path) -> tuple[str, bool]:
    """What the file is, and whether it is gzipped; refuses what cannot be a table."""
    if path.is_dir():
        raise DataError(f"{path}: this is a folder; name the file in it")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    kind = FORMATS.get((suffixes[:-1] if zipped else suffixes)[-1:].pop() if len(suffixes) > zipped else "")
    if not path.exists():
        raise DataError(f"{path}: no such file; check the path")
    if kind is None:
        known = ", ".join(FORMATS)
        raise DataError(
            f"{path}: cannot tell what kind of table this is by its name, which must end in {known} (or .gz"
            " after these): save it as CSV (UTF-8) or Parquet"
        )
    if not path.stat().st_size:
        raise DataError(f"{path}: the file is empty")
    return kind, zipped


@dataclass(frozen=True, eq=False, slots=True)
class _File:
    """A table's file, unpacked."""

    path: Path
    kind: str
    content: Path | bytes
    """What polars reads."""

    def open(self) -> IO[bytes]:
        return self.content.open("rb") if isinstance(self.content, Path) else io.BytesIO(self.content)


def _content(path: Path, *, zipped: bool) -> Path | bytes:
    """What is in a file, or its path where polars can read it by that."""
    try:
        if not zipped:
            return path if is_text(str(path)) else path.read_bytes()
        most = max(_ALWAYS, _MOST_TIMES * path.stat().st_size)
        with gzip.open(path) as file:
            content = file.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: the gzip file is damaged ({error}); compress or download it again"
        ) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(content) > most:
        raise DataError(
            f"{path}: {path.stat().st_size:,} bytes that unpack to more than {most:,} are hardly a table; "
            "unpack it yourself if it is one"
        )
    return content


@dataclass(frozen=True, slots=True)
class _Dialect:
    """How a text file is written, and its columns: as the file has them, and without the white space."""

    separator: str
    eol: str
    raw: tuple[str, ...]
    names: tuple[str, ...]


def _dialect(file: _File) -> _Dialect:
    path, kind = file.path, file.kind
    with file.open() as opened:
        head = opened.read(_HEAD)
    if not head.strip():
        raise DataError(f"{path}: the file is empty")
    for magic, what in _NOT_TEXT.items():
        if head.startswith(magic):
            raise DataError(f"{path}: the file is not {kind} but {what.format(name=path.name)}")
    if b"\0" in head:
        raise DataError(f"{path}: the file is not text; save it as CSV (UTF-8) or Parquet")
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        _wrong_encoding(file)
    text = text.lstrip("\r\n")
    eol = "\n" if "\n" in text else "\r" if "\r" in text else "\n"
    line = text.partition(eol)[0]
    # A name may hold the separator; the one in use stands in the header at all, and commas go first.
    separator = "\t" if kind == "TSV" else next((mark for mark in _SEPARATORS if mark in line), ",")
    try:
        lines = io.StringIO(text, newline="")
        raw = tuple(next(csv.reader(lines, delimiter=separator)))
    except csv.Error as error:
        raise DataError(
            f"{path}: the header (line 1) cannot be read ({error}); is a quote left open?"
        ) from error
    if len(head) == _HEAD and lines.tell() == len(text):
        raise DataError(
            f"{path}: the header (line 1) is longer than {_HEAD:,} bytes; give it shorter names or fewer "
            "columns, or save the table as Parquet"
        )
    tidy = tuple(name.strip() for name in raw)
    twice = sorted(name for name, times in Counter(tidy).items() if times > 1)
    if twice:
        raise DataError(f"{path}: several columns are named {names(twice)} (line 1); give each its own name")
    return _Dialect(separator, eol, raw, tidy)


def _read_text(file: _File, dialect: _Dialect, text: Collection[str]) -> pl.DataFrame:
    as_text = set(map(plain_name, text))
    forced = {
        raw: pl.String
        for raw, name in zip(dialect.raw, dialect.names, strict=True)
        if plain_name(name) in as_text
    }
    options: dict[str, Any] = {
        "separator": dialect.separator,
        "eol_char": dialect.eol,
        "null_values": list(MISSING),
        "glob": False,
    }
    try:
        frame = pl.read_csv(file.content, infer_schema_length=_SAMPLE, schema_overrides=forced, **options)
    except pl.exceptions.ComputeError as error:
        if "could not parse" not in str(error):
            raise
        # A value that does not fit the type of the first rows, or a number of 40 digits: look at all of it.
        frame = pl.read_csv(file.content, infer_schema=False, **options)
    frame.columns = list(dialect.names)
    if frame.width > 1 and frame.to_series(-1).null_count():
        _refuse_short_rows(file, dialect)
    columns = _without_blank_end(frame).get_columns()
    del frame  # text takes the most room: each column's old values go before the next are made
    for place, column in enumerate(columns):
        if column.dtype == pl.String:
            typed, comma = plain_name(column.name) not in as_text, dialect.separator != ","
            columns[place] = _tidied(column.alias("text"), typed=typed, comma=comma).alias(column.name)
    return pl.DataFrame({column.name: column for column in columns})


def _tidied(column: pl.Series, *, typed: bool, comma: bool) -> pl.Series:
    """Text without white space around it, or what all of it stands for: numbers, or true and false."""
    if column.null_count() == len(column):
        return column
    column = column.str.strip_chars()
    column = column.set(column.is_in(list(MISSING)), None)
    if not typed or column.null_count() == len(column):
        return column
    known = column.drop_nulls()
    for kind in (pl.Int64, pl.Float64):
        # Most text is told from numbers by its first values.
        if all(not part.cast(kind, strict=False).null_count() for part in (known.head(100), known)):
            return column.cast(kind)
    if (
        comma
        and all(part.str.contains(_EUROPEAN).all() for part in (known.head(100), known))
        and (known.str.contains(_DECIMAL).any())
    ):
        return column.str.replace_all(".", "", literal=True).str.replace(",", ".").cast(pl.Float64)
    if known.head(100).str.to_lowercase().is_in(["true", "false"]).all():
        lower = column.str.to_lowercase()
        if lower.is_in(["true", "false"]).all():
            return lower == "true"
    return column


def _without_blank_end(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame without the empty lines at the end of its file."""
    if frame.width == 1:
        return frame  # an empty line is a missing value here
    blank = pl.all_horizontal(pl.all().is_null()).alias("blank")
    filled = ~frame.tail(1000).select(blank).to_series()
    last = filled.arg_true().max()
    empty = len(filled) - 1 - last if isinstance(last, int) else len(filled)
    return frame.head(frame.height - empty)


def _refuse_short_rows(file: _File, dialect: _Dialect) -> None:
    """An error if a row ends before its last column, which polars takes for missing values."""
    line = pl.col("line")
    marks = line.str.count_matches(dialect.separator, literal=True)
    suspects = (
        pl.scan_csv(
            file.content,
            separator="\x1f",
            quote_char=None,
            has_header=False,
            new_columns=["line"],
            infer_schema=False,
            eol_char=dialect.eol,
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
            glob=False,
        )
        .filter((marks < len(dialect.raw) - 1) & (line.str.strip_chars() != ""))
        .head(1)
        .collect(engine="streaming")
    )
    if suspects.height:  # or a quoted value with a line break in it
        found = _ragged(file, dialect)
        if found is not None:
            raise DataError(found)


def _ragged(file: _File, dialect: _Dialect) -> str | None:
    """What is wrong with the first row that has too many or too few values."""
    path, width = file.path, len(dialect.raw)
    before = 0
    with _text_of(file) as lines:
        reader = csv.reader(lines, delimiter=dialect.separator)
        try:
            for record in reader:
                if record and len(record) != width:
                    end = f" (to line {reader.line_num})" if reader.line_num > before + 1 else ""
                    return (
                        f"{path}: line {before + 1}{end} has {len(record)} values but there are {width}"
                        " columns; mend the row, put values that hold the separator in quotes, and close"
                        " every quote"
                    )
                before = reader.line_num
        except csv.Error:
            return f"{path}: line {before + 1}: a quote is opened and not closed; mend the row"
    return None


def _odd_quote(file: _File, dialect: _Dialect) -> str | None:
    """The first line with a quote mark that has no partner."""
    path = file.path
    with _text_of(file) as lines:
        for number, line in enumerate(lines, 1):
            if line.count('"') % 2:
                return (
                    f"{path}: line {number} has a quote mark without a partner; put the value in quotes and"
                    ' double the mark ("5"" pipe")'
                )
    return None


def _text_of(file: _File) -> IO[str]:
    return io.TextIOWrapper(file.open(), encoding="utf-8-sig", errors="replace", newline="")


def _wrong_encoding(file: _File) -> NoReturn:
    decoder = codecs.getincrementaldecoder("utf-8")()
    path, line = file.path, 1
    with file.open() as opened:
        while block := opened.read(_HEAD):
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                break
            line += block.count(b"\n")
    raise DataError(
        f"{path}: line {line} is not UTF-8 text (it may be Latin-1 or Windows-1252): save it as CSV (UTF-8),"
        f" or iconv -f WINDOWS-1252 -t UTF-8 {path.name} > fixed.csv"
    )


@contextmanager
def _explained(file: _File) -> Iterator[None]:
    """Turns what polars and the system say of a file into words for its owner."""
    try:
        yield
    except PermissionError as error:
        raise _unreadable(file.path, error) from error
    # A panic inside polars is no ordinary Exception.
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        path, kind = file.path, file.kind
        said = str(error).partition("\n")[0][:120]
        if "utf-8" in said:
            _wrong_encoding(file)
        if kind in ("CSV", "TSV"):
            dialect = _dialect(file)
            found = _ragged(file, dialect) or _odd_quote(file, dialect)
            raise DataError(
                found or f"{path}: cannot be read as {kind} ({said}); check its quotes, or save it as Parquet"
            ) from error
        raise DataError(
            f"{path}: cannot be read as {kind} ({said}); is it damaged or cut short? Write or download it "
            "again"
        ) from error


def _unreadable(path: Path, error: OSError) -> DataError:
    if isinstance(error, PermissionError):
        return DataError(f"{path}: no permission to read it; check its owner and mode")
    return DataError(f"{path}: cannot be read: {error.strerror or error}")
