"""Labelled rows: the K training sources and the target's validation rows, checked once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mixtree.data.arrays import frame_columns, refuse_huge, refuse_lossy
from mixtree.data.sparse import as_table, is_sparse
from mixtree.errors import DataError
from mixtree.metrics import as_labels
from mixtree.places import is_text
from mixtree.simplex import Mixture

TARGET = "target"
"""The name under which the target's own rows appear as source K+1."""

VALIDATION, TEST = "validation", "test"
"""What rows that only judge are called."""

_PARTS = ("features", "labels", "weights")
_NO_WEIGHTS = "{} rows have no weights: they count alike in every score"

MOST_CLASSES = 50
"""Whole numbers with more different values than this may be no classes."""

_CLASSES_THAT_FIT = 1_000_000
"""Of which every row has a probability."""

FOLD = "target fold "
"""Sources of this name hold a part of the target's rows; they are never part of a reported mixture."""


@dataclass(frozen=True, eq=False, slots=True)
class Rows:
    """Features and labels of some rows.

    Parameters
    ----------
    x
        (n, d), dense or CSR.
    y
        (n,): class numbers, or targets of a regression.
    weight
        (n,), or None: multiplies each row's loss in training; a batch's loss is the mean of weight × loss.

    Examples
    --------
    >>> rows = Rows(np.eye(3), np.array([0, 1, 1]))
    >>> len(rows), rows.take(np.array([2])).y
    (3, array([1]))
    """

    x: Any
    y: NDArray[Any]
    weight: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def take(self, index: NDArray[Any]) -> Rows:
        """The rows at these positions."""
        return Rows(self.x[index], self.y[index], None if self.weight is None else self.weight[index])

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weight of every row; 1 unless told."""
        return np.ones(len(self)) if self.weight is None else self.weight


@dataclass(frozen=True, eq=False, slots=True)
class Sources:
    """K named training sources and the target's validation rows.

    Parameters
    ----------
    names
        The sources' names.
    rows
        Their rows, in the same order.
    validation
        Labelled rows of the target.
    classes
        Number of classes of a classification (labels 0 … classes−1), 0 for a regression.

    Examples
    --------
    >>> x, y = np.eye(2), np.array([0, 1])
    >>> sources = Sources.from_dict({"fl": (x, y), "ct": (x, y)}, (x, y), classes=2)
    >>> sources.names, sources.sizes
    (('fl', 'ct'), array([2, 2]))
    """

    names: tuple[str, ...]
    rows: tuple[Rows, ...]
    validation: Rows
    classes: int

    def __post_init__(self) -> None:
        if not self.names:
            raise DataError("there are no sources: give at least one")
        for name in self.names:
            if not isinstance(name, str) or not name:
                raise DataError(f"a source's name is a text; got {name!r}: write {str(name)!r}, say")
            if not is_text(name):
                raise DataError(f"a source's name must be text that UTF-8 can hold; got {name!r}: rename it")
            if name == TARGET:
                raise DataError(
                    f"a source cannot be called {TARGET!r}, which is what the target's own rows are called "
                    "in a mixture: rename it"
                )
        if len(set(self.names)) != len(self.names):
            raise DataError(f"source names must differ; got {', '.join(self.names)}")
        if len(self.names) != len(self.rows):
            raise DataError(f"{len(self.names)} names but {len(self.rows)} sources")
        classes = self.classes
        whole = isinstance(classes, int | np.integer) and not isinstance(classes, bool)
        if not whole or not (classes == 0 or 2 <= classes <= _CLASSES_THAT_FIT):
            raise DataError(
                f"classes must be 2 or more, or 0 for a regression ({_CLASSES_THAT_FIT:,} at most); got "
                f"{classes!r}"
            )
        if self.validation.weight is not None:
            raise DataError(_NO_WEIGHTS.format(VALIDATION))
        _check_table(self.validation, "validation")
        shape = tuple(self.validation.x.shape[1:])
        parts: Sequence[tuple[str, Rows]] = [
            *((f"source {name!r}", part) for name, part in zip(self.names, self.rows, strict=True)),
            ("validation", self.validation),
        ]
        for where, part in parts:
            _check_rows(part, where, shape=shape, classes=self.classes)

    @classmethod
    def from_dict(
        cls, rows: Mapping[str, Any], validation: tuple[Any, Any] | Rows, *, classes: int | None
    ) -> Sources:
        """Sources from dictionaries and tuples; columns of DataFrames are matched by name.

        Parameters
        ----------
        rows
            ``{name: (x, y)}`` or ``{name: (x, y, weight)}``.
        validation
            ``(x, y)`` or Rows of the target; their order of columns is everybody's.
        classes
            Number of classes; 0 or None: labels are checked as those of a regression.
        """
        columns = columns_of(validation, *rows.values())
        return cls(
            tuple(rows),
            tuple(rows_from(part, f"source {name!r}", columns) for name, part in rows.items()),
            rows_from(validation, VALIDATION, columns),
            classes or 0,
        )

    @classmethod
    def blank(
        cls,
        names: Sequence[str],
        *,
        shape: tuple[int, ...],
        classes: int,
        sparse: bool = False,
        dtype: Any = np.float64,
    ) -> Sources:
        """Sources of rows of this shape without data: for a trainer that is only to predict.

        Parameters
        ----------
        names
            The sources' names.
        shape
            Of one row of x.
        classes
            Number of classes, 0 for a regression.
        sparse
            Whether x is CSR.
        dtype
            Of x.
        """
        x = csr_array((1, *shape), dtype=dtype) if sparse else np.zeros((1, *shape), dtype=dtype)
        row = Rows(x, np.zeros(1, dtype=np.int64 if classes else np.float64))
        return cls(tuple(names), (row,) * len(names), row, classes)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows per source."""
        return np.array([len(part) for part in self.rows], dtype=np.int64)

    def row_counts(self) -> dict[str, int]:
        """Rows by source as they were given, the target's own among them."""
        own = {name: len(part) for name, part in zip(self.names, self.rows, strict=True)}
        given = {name: rows for name, rows in own.items() if not name.startswith(FOLD)}
        return {**given, TARGET: len(self.validation)}

    @property
    def features(self) -> int:
        """Number of columns of x."""
        return int(self.validation.x.shape[1])

    def index(self, name: str) -> int:
        """Position of the source of this name."""
        if name not in self.names:
            some = ", ".join(map(repr, self.names[:20])) + (" …" if len(self.names) > 20 else "")
            raise DataError(f"unknown source {name!r}; the sources are {some}")
        return self.names.index(name)


@dataclass(frozen=True, eq=False, slots=True)
class Problem:
    """Sources with what only a report may read.

    Parameters
    ----------
    name
        For tables and figures.
    sources
        What algorithms see.
    test
        Rows of the target that only a report reads.
    alpha
        α*: the target's true mixture, where it is known.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> problem = synthetic(sources=2, alpha=[0.7, 0.3], seed=1)
    >>> problem.alpha, len(problem.sources)
    (array([0.7, 0.3]), 2)
    """

    name: str
    sources: Sources
    test: Rows | None
    alpha: Mixture | None = None


def columns_of(*parts: Any) -> list[Any] | None:
    """The names of the columns of the first of these, (x, y) or Rows, that has some; None if none does."""
    for part in parts:
        x = part.x if isinstance(part, Rows) else part[0] if isinstance(part, tuple | list) and part else None
        if (found := frame_columns(x)) is not None:
            return list(found)
    return None


def in_order(x: Any, columns: Sequence[Any] | None, where: str, others: str) -> Any:
    """A DataFrame's columns as others have them, by name; what has no names is left as it is.

    Parameters
    ----------
    x
        A table of features.
    columns
        The order that is wanted; None leaves it as it is.
    where, others
        Whose columns these are, and whose those; for the message of a DataError.
    """
    own = frame_columns(x)
    if own is None or columns is None or list(own) == list(columns):
        return x
    mine, known = list(own), list(columns)
    if set(mine) != set(known) or len(set(mine)) != len(mine):
        odd = [each for each in (*mine, *known) if each not in mine or each not in known]
        raise DataError(
            f"{where} and {others} have different columns ({', '.join(map(repr, odd[:5]))}): they must have "
            "the same names"
        )
    return x[known]


def rows_from(part: Any, where: str, columns: Sequence[Any] | None = None) -> Rows:
    """Rows of what a user has.

    Parameters
    ----------
    part
        ``(x, y)``, ``(x, y, weight)`` or Rows.
    where
        Which rows these are, for messages.
    columns
        The order of a DataFrame's columns; None leaves it as it is.
    """
    given = part
    if isinstance(part, Rows):
        given = (part.x, part.y) if part.weight is None else (part.x, part.y, part.weight)
    if not (isinstance(given, tuple | list) and len(given) in (2, 3)):
        raise DataError(f"{where}: give (x, y), features and labels; got {type(part).__name__}")
    if len(given) == 3 and where in (VALIDATION, TEST):
        raise DataError(_NO_WEIGHTS.format(where))
    x = in_order(given[0], columns, where, "the other rows")
    for values, what in zip((x, *given[1:]), _PARTS, strict=False):
        refuse_lossy(values, f"{where}: {what}")
    try:
        table = as_table(x)
        y = as_labels(given[1])
        weight = None if len(given) == 2 else np.asarray(given[2], dtype=np.float64)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{where}: features must be a table (rows × columns): {error}") from error
    return Rows(table, y.astype(np.int64) if y.dtype == np.bool_ else y, weight)


def _check_table(part: Rows, where: str) -> None:
    shape = getattr(part.x, "shape", None)
    if shape is None or len(shape) < 2:
        raise DataError(f"{where}: features must be a table (rows × columns); got shape {shape}")


def _check_rows(part: Rows, where: str, *, shape: tuple[int, ...], classes: int) -> None:
    _check_table(part, where)
    width = shape[0]
    if not all(shape):
        raise DataError(f"{where} has rows of shape {shape}: there are no features to learn from")
    if len(part) == 0:
        raise DataError(f"{where} has no rows: leave it out or give it some")
    if part.y.shape != (len(part),):
        raise DataError(f"{where}: {len(part)} rows but labels of shape {part.y.shape}; one per row, please")
    if part.x.shape[1] != width:
        raise DataError(f"{where} has {part.x.shape[1]} columns but validation has {width}: they must match")
    if tuple(part.x.shape[1:]) != shape:
        raise DataError(
            f"{where} has rows of shape {tuple(part.x.shape[1:])} but validation has {shape}: resize or pad "
            "them, or give row numbers as x and let the trainer read the rows (collate= in torch)"
        )
    for given, what in zip((part.x, part.y, part.weight), _PARTS, strict=True):
        refuse_lossy(given, f"{where}: {what}")
    values = part.x.data if is_sparse(part.x) else part.x
    if values.dtype.kind not in "iuf":  # to numpy spans of time are numbers too
        raise DataError(
            f"{where}: features must be numbers, not {values.dtype}; encode text columns first, "
            "or fit a table (mixtree fit, MixtureClassifier), which does it"
        )
    if not np.all(np.isfinite(values)):
        raise DataError(f"{where}: features hold NaN or infinite values; impute or drop them first")
    if part.weight is not None:
        fits = part.weight.shape == (len(part),) and np.all(np.isfinite(part.weight))
        if not fits or part.weight.min() < 0:
            raise DataError(f"{where}: row weights must be finite, at least 0, and one per row")
    if classes:
        if not np.issubdtype(part.y.dtype, np.integer):
            raise DataError(
                f"{where}: class labels must be whole numbers 0 … {classes - 1}, not {part.y.dtype}"
            )
        if part.y.min() < 0 or part.y.max() >= classes:
            raise DataError(
                f"{where}: class labels must lie in 0 … {classes - 1}; found {part.y.min()} … {part.y.max()}"
            )
    elif not np.issubdtype(part.y.dtype, np.number) or not np.all(np.isfinite(part.y)):
        kind = part.y.dtype
        if kind.kind in "OSU":
            raise DataError(
                f"{where}: labels must be numbers, not text: number the classes 0, 1, …, or use "
                "MixtureClassifier, which does it"
            )
        raise DataError(f"{where}: regression targets must be finite numbers")
    else:
        refuse_huge(part.y, where)
