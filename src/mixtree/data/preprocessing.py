"""Preprocessing: from the columns of a table to float32 features, as learnt from training rows alone.

Numbers are imputed with their median and scaled by mean and standard deviation, dates become a few numbers
first, text and truth values are one-hot with rare levels folded into one. What is learnt is plain data
(names, levels, medians, means and scales), saved as JSON, and used alike in training and after loading. It
gives the features that scikit-learn's transformers give; loading those took a third of a small fit's time.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from mixtree.data.columns import (
    ROW_NUMBERS,
    Column,
    Kind,
    Rules,
    counts_rows,
    inspect,
    levels_as_codes,
    values_of,
)
from mixtree.data.dates import FORMATS, PARTS, date_parts
from mixtree.data.files import write_file
from mixtree.data.frames import as_frame
from mixtree.data.plain import UTF8_TEXT, read
from mixtree.data.readers import names, pick
from mixtree.data.typed import Layout
from mixtree.errors import DataError, InputError

FILE = "preprocessing.json"
"""The file that a preprocessor is saved in, within a model's folder."""
WIDE, THIN = 200, 0.25
"""More columns than this, of which less than this share is not zero, stay sparse."""

_FORMAT = 1
_SHAPE = {
    "columns": [
        {
            "name": UTF8_TEXT,
            "kind": set(get_args(Kind)),
            "found": str,
            "treatment": UTF8_TEXT,
            "missing": bool,
            "levels": [UTF8_TEXT],
            "rare": bool,
            "boolean": bool,
            "format": (None, set(FORMATS)),
            "parts": [set(PARTS)],
        }
    ],
    "medians": [float],
    "means": [float],
    "scales": [float],
    "sparse": bool,
    "warnings": [UTF8_TEXT],
}
_BLOCK = 100_000  # rows at a time: what is made on the way stays small
_FARTHEST = 1e6  # standard deviations; more would overflow float32, and no training row is this far away

Numbers: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = Any
"""Rows × features in float32: an array, or a ``scipy.sparse.csr_array``."""


@dataclass(frozen=True, eq=False)
class Preprocessor:
    """What turns rows of a table into features: the columns and the statistics of their training rows."""

    columns: tuple[Column, ...]
    medians: Numbers
    means: Numbers
    scales: Numbers
    sparse: bool
    warnings: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls,
        table: Any,
        *,
        categorical: Collection[str] = (),
        rare_below: int | None = None,
        max_levels: int = 1000,
        sparse: bool | None = None,
        where: str = "the training rows",
    ) -> Preprocessor:
        """The preprocessor of these training rows (any table: polars, pandas, numpy).

        ``categorical`` names columns whose numbers are codes. ``rare_below`` and ``max_levels`` fold
        categorical levels (see `Rules`); ``sparse`` chooses a CSR or a dense matrix, by width and share of
        zeros unless told.
        """
        if max_levels < 1 or (rare_below is not None and rare_below < 1):
            raise InputError(
                f"rare_below and max_levels must be at least 1; got {rare_below} and {max_levels}"
            )
        frame = as_frame(table, where=where)
        if not frame.height:
            raise DataError(f"{where}: there are no rows to learn from")
        rules = Rules(rare_below, max_levels)
        found = [inspect(each, rules, where=where, codes=each.name in categorical) for each in frame]
        columns = tuple(column for column, _ in found)
        told = tuple(line for _, lines in found for line in lines)
        if all(column.kind == "dropped" for column in columns):
            reasons = "; ".join(told) or "there are no columns"
            raise DataError(f"{where}: no column is left to learn from: {reasons}")
        kept = [column for column in columns if column.kind != "dropped"]
        if len(kept) == 1 and kept[0].kind == "numeric" and counts_rows(frame[kept[0].name]):
            raise DataError(f"{where}: {ROW_NUMBERS.format(f'column {kept[0].name!r}')}")
        medians, means, scales = _learn(columns, frame, where)
        if sparse is None:
            sparse = _stays_sparse(columns)
        return cls(columns, medians, means, scales, sparse, told)

    @classmethod
    def unscaled(cls, parts: Sequence[Any], target: Any, names: Sequence[str]) -> Preprocessor:
        """What takes columns of numbers as features as they are; a gap becomes the target's median.

        Parameters
        ----------
        parts
            The training rows' features.
        target
            Those of the target's rows.
        names
            Of the columns.
        """
        farthest = max(max(float(part.max()), -float(part.min())) for part in parts)
        if farthest > _FARTHEST:
            raise DataError(
                f"its features go up to {farthest:.3g}: bring them to about size 1 before the fit, or fit a "
                "table, which does it"
            )
        if len(set(names)) < len(names):
            raise DataError("two of its columns have the same name")
        columns = tuple(Column(name, "numeric", "numbers", "taken as it is") for name in names)
        medians = np.median(np.asarray(target, dtype=np.float64), axis=0)
        return cls(columns, medians, np.zeros(len(names)), np.ones(len(names)), False)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features: numbers, flags of missing values, one-hot levels."""
        return (*_numbers(self._kept), *(f"{name}=missing" for name in self._flags), *_indicators(self._kept))

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns a table must have; all others are ignored."""
        return tuple(column.name for column in self._kept)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns to be read as text (``read_table(…, text=…)``), so that codes keep their zeros."""
        return tuple(c.name for c in self._kept if c.found == "text")

    def transform(
        self, table: Any, *, rows: NDArray[np.integer[Any]] | None = None, where: str = "the table"
    ) -> Matrix:
        """Features of a table's rows, or of those at the positions ``rows``; dense or CSR, float32."""
        frame = self._select(table, where)
        shape = (frame.height if rows is None else len(rows), len(self.feature_names))
        blocks = (self._encode(block, where) for block in _blocks(frame, rows))
        return _as_csr(blocks, shape) if self.sparse else _as_dense(blocks, shape)

    def keys(self, table: Any, *, where: str = "the table") -> pl.Series:
        """A hash per row of everything the features are made from: equal rows have equal keys."""
        frame = self._select(table, where)
        hashes = [
            pl.DataFrame(
                [
                    values_of(column, block[column.name], where=where).alias(str(place))
                    for place, column in enumerate(self._kept)
                ]
            ).hash_rows()
            for block in _blocks(frame, None)
        ]
        return pl.concat(hashes) if hashes else pl.Series([], dtype=pl.UInt64)

    def as_text(self) -> str:
        """All of it as plain data in JSON."""
        plain = {
            "format": _FORMAT,
            "columns": [asdict(column) for column in self.columns],
            "medians": self.medians.tolist(),
            "means": self.means.tolist(),
            "scales": self.scales.tolist(),
            "sparse": self.sparse,
            "warnings": self.warnings,
        }
        return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"

    def to_files(self, folder: str | Path) -> None:
        """Saves all of it in ``preprocessing.json`` in this folder."""
        path = Path(folder) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, self.as_text())

    @classmethod
    def from_files(cls, folder: str | Path) -> Preprocessor:
        """The preprocessor saved in this folder."""
        path = Path(folder) / FILE
        try:
            text = path.read_text(encoding="utf-8")
            if (format := read(text, {"format": int})["format"]) != _FORMAT:
                raise DataError(f"{path}: written by another version of mixtree (format {format!r})")
            plain = read(text, _SHAPE)
            columns = tuple(_column(column) for column in plain["columns"])
            medians, means, scales = (
                _statistics(plain[key], columns) for key in ("medians", "means", "scales")
            )
            if not (scales > 0).all() or len({each.name for each in columns}) < len(columns):
                raise ValueError("a scale is 0, or a column is there twice")
            done = cls(columns, medians, means, scales, plain["sparse"], tuple(plain["warnings"]))
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such file; is this the folder of a model?") from error
        except DataError:
            raise
        except (OSError, ValueError) as error:
            raise DataError(
                f"{path}: damaged ({error}); take the model's folder from a copy, or fit again"
            ) from error
        return done

    @cached_property
    def _kept(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.kind != "dropped")

    @property
    def layout(self) -> Layout:
        """Where each column is among the features."""
        numbers, flagged = _numbers(self._kept), {name: place for place, name in enumerate(self._flags)}
        flags = [
            len(numbers) + flagged[column.name] if column.name in flagged else -1
            for column in self._kept
            for _ in column.numbers
        ]
        coded = [column for column in self._kept if column.kind == "categorical"]
        ends = np.cumsum([len(numbers) + len(flagged), *(len(column.indicators) for column in coded)])
        blocks = tuple((int(first), int(after)) for first, after in itertools.pairwise(ends))
        return Layout((*numbers, *(column.name for column in coded)), tuple(flags), blocks)

    @cached_property
    def _flags(self) -> tuple[str, ...]:
        return tuple(c.name for c in self._kept if c.missing and c.kind != "categorical")

    def check(self, table: Any, *, where: str = "the table") -> None:
        """Refuses a table that lacks a column which becomes a feature."""
        self._select(table, where)

    def _select(self, table: Any, where: str) -> pl.DataFrame:
        frame = as_frame(table, where=where)
        have = set(frame.columns)
        absent = [name for name in self.needed if name not in have]
        if absent:
            raise DataError(
                f"{where}: the model needs column{'s' * (len(absent) > 1)} {names(absent, most=len(absent))};"
                f" the table has {names(frame.columns)}"
            )
        return pick(frame, self.needed)

    def _encode(self, block: pl.DataFrame, where: str) -> _Parts:
        raw = _raw(self._kept, block, where)
        flags = np.empty((block.height, len(self._flags)), dtype=np.float32)
        for place, name in enumerate(self._flags):
            flags[:, place] = raw.empty[name]
        filled = np.hstack([self._scaled(raw.numbers).astype(np.float32), flags])
        return _Parts(filled, self._one_hot(raw.codes), raw.codes.shape[1])

    def _scaled(self, numbers: Numbers) -> Numbers:
        """Numbers without gaps, in standard deviations from their mean; changed in place."""
        np.copyto(numbers, self.medians, where=np.isnan(numbers))
        numbers -= self.means
        numbers /= self.scales
        return np.clip(numbers, -_FARTHEST, _FARTHEST, out=numbers)

    def _one_hot(self, codes: NDArray[np.int32]) -> Matrix:
        """An indicator per level; a code of −1 has none."""
        sizes = [len(column.indicators) for column in self._kept if column.kind == "categorical"]
        known = codes >= 0
        first = np.cumsum([0, *sizes], dtype=np.int32)
        places, ends = (codes + first[:-1])[known], np.zeros(len(codes) + 1, dtype=np.int32)
        np.cumsum(known.sum(axis=1), out=ends[1:])
        ones = np.ones(len(places), dtype=np.float32)
        return csr_array((ones, places, ends), shape=(len(codes), int(first[-1])))


@dataclass(frozen=True, eq=False, slots=True)
class _Parts:
    """Features of some rows: those that are mostly not zero, and the one-hot ones."""

    filled: NDArray[np.float32]
    indicators: Matrix
    most: int  # indicators of a row that are not zero


@dataclass(frozen=True, eq=False, slots=True)
class _Raw:
    """Rows on their way: numbers with NaN where missing, codes of levels, where values are missing."""

    numbers: Numbers
    codes: NDArray[np.int32]
    empty: dict[str, NDArray[np.bool_]]


def _numbers(columns: tuple[Column, ...]) -> tuple[str, ...]:
    return tuple(name for column in columns for name in column.numbers)


def _indicators(columns: tuple[Column, ...]) -> tuple[str, ...]:
    return tuple(name for column in columns for name in column.indicators)


def _stays_sparse(columns: tuple[Column, ...]) -> bool:
    filled = len(_numbers(columns)) + sum(column.kind == "categorical" for column in columns)
    width = len(_numbers(columns)) + len(_indicators(columns))
    return width > WIDE and filled < THIN * width


def _blocks(frame: pl.DataFrame, rows: NDArray[np.integer[Any]] | None) -> Iterator[pl.DataFrame]:
    count = frame.height if rows is None else len(rows)
    for start in range(0, count, _BLOCK):
        yield frame.slice(start, _BLOCK) if rows is None else frame[rows[start : start + _BLOCK]]


def _as_dense(blocks: Iterator[_Parts], shape: tuple[int, int]) -> Matrix:
    dense = np.empty(shape, dtype=np.float32)
    start = 0
    for block in blocks:
        stop, split = start + len(block.filled), block.filled.shape[1]
        dense[start:stop, :split] = block.filled
        dense[start:stop, split:] = block.indicators.toarray()
        start = stop
    return dense


def _as_csr(blocks: Iterator[_Parts], shape: tuple[int, int]) -> Matrix:
    """One sparse matrix of all blocks, written in place: joining them later would take the room twice."""
    ends = np.zeros(shape[0] + 1, dtype=np.int64)
    values, places = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int32)
    row = end = 0
    for block in blocks:
        part = hstack([_every_value(block.filled), block.indicators], format="csr", dtype=np.float32)
        part.eliminate_zeros()
        if not row:  # what is never written to takes no memory
            room = shape[0] * (block.filled.shape[1] + block.most)
            values, places = np.empty(room, dtype=np.float32), np.empty(room, dtype=np.int32)
        stop = end + part.nnz
        values[end:stop], places[end:stop] = part.data, part.indices
        ends[row + 1 : row + 1 + part.shape[0]] = part.indptr[1:] + end
        row, end = row + part.shape[0], stop
    if end < np.iinfo(np.int32).max:
        ends = ends.astype(np.int32)
    return csr_array((values[:end], places[:end], ends), shape=shape)


def _every_value(dense: NDArray[np.float32]) -> Matrix:
    """CSR with its zeros, of which there are few: much quicker than looking for them here."""
    rows, width = dense.shape
    places = np.tile(np.arange(width, dtype=np.int32), rows)
    ends = np.arange(rows + 1, dtype=np.int32) * width
    return csr_array((dense.ravel(), places, ends), shape=dense.shape)


def _raw(columns: tuple[Column, ...], block: pl.DataFrame, where: str) -> _Raw:
    """The values of every column, as numbers or codes."""
    numbers = np.empty((block.height, len(_numbers(columns))), order="F")
    codes = np.empty((block.height, sum(c.kind == "categorical" for c in columns)), dtype=np.int32, order="F")
    empty = {}
    number = code = 0
    for column in columns:
        values = values_of(column, block[column.name], where=where)
        empty[column.name] = values.is_null().to_numpy()
        if column.kind == "categorical":
            codes[:, code] = levels_as_codes(column, values).to_numpy()
            code += 1
            continue
        for part in numbers_of(column, values):
            numbers[:, number] = part.fill_null(np.nan).to_numpy()
            number += 1
    return _Raw(numbers, codes, empty)


def numbers_of(column: Column, values: pl.Series) -> Iterator[pl.Series]:
    """The numbers that the values of a column become, before they are scaled."""
    if column.kind == "numeric":
        yield values
    elif column.kind == "date":
        yield from date_parts(values, only=column.parts).values()


def _learn(columns: tuple[Column, ...], frame: pl.DataFrame, where: str) -> tuple[Numbers, Numbers, Numbers]:
    """Median, mean and scale of every number, the last two with gaps filled."""
    learnt = []
    for column in columns:
        if column.kind not in ("numeric", "date"):
            continue
        # Column by column: all of them at once would copy the whole table several times.
        for part in numbers_of(column, values_of(column, frame[column.name], where=where)):
            median = float(np.median(part.drop_nulls().to_numpy()))
            learnt.append((median, *_mean_and_scale(part.fill_null(median).to_numpy().astype(np.float64))))
    medians, means, scales = np.array(learnt, dtype=np.float64).reshape(-1, 3).T
    return medians, means, scales


def _mean_and_scale(values: Numbers) -> tuple[float, float]:
    """Mean and standard deviation; 1 for what does not vary, but for rounding."""
    count, mean = len(values), float(values.mean())
    gaps = values - mean
    # What the mean lost to rounding, the gaps still have.
    variance = float((np.square(gaps).sum() - gaps.sum() ** 2 / count) / count)
    rounding = float(np.finfo(np.float64).eps) * count
    constant = variance <= rounding * variance + (mean * rounding) ** 2
    return mean, 1.0 if constant else variance**0.5


def _column(plain: dict[str, Any]) -> Column:
    given = {field.name: plain[field.name] for field in fields(Column)}
    lists = {key: tuple(value) for key, value in given.items() if isinstance(value, list)}
    column = Column(**{**given, **lists})
    if len(set(column.levels)) < len(column.levels) or len(set(column.parts)) < len(column.parts):
        raise ValueError(f"column {column.name!r} has a level or a part twice")
    return column


def _statistics(plain: list[float], columns: tuple[Column, ...]) -> Numbers:
    values = np.array(plain, dtype=np.float64)
    if values.shape != (len(_numbers(columns)),) or not np.all(np.isfinite(values)):
        raise ValueError("the statistics do not fit the columns")
    return values
