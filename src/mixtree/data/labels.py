"""Labels: what a label column means, and its values as class numbers or targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.data.arrays import refuse_huge
from mixtree.data.frames import as_numbers, as_text, kind_of
from mixtree.data.readers import names
from mixtree.data.sources import MOST_CLASSES
from mixtree.errors import DataError, InputError

Task: TypeAlias = Literal["classification", "regression"]
Label: TypeAlias = str | int | float | bool

_TOO_MANY = 1000


@dataclass(frozen=True, slots=True)
class Labels:
    """What a label column means: classes in their order, as the files have them, or a number to predict."""

    name: str
    task: Task
    classes: tuple[Label, ...] | None = None

    @classmethod
    def learn(
        cls,
        name: str,
        column: pl.Series,
        *,
        task: Literal["auto"] | Task = "auto",
        classes: Sequence[Label] | None = None,
    ) -> Labels:
        """The meaning of the label column of this name, from its training rows (as `alike` makes them).

        "auto": text, truth values and whole numbers of at most 50 kinds are classes, other numbers are not.
        """
        if task not in ("auto", "classification", "regression"):
            raise InputError(f"unknown task {task!r}; choose auto, classification or regression")
        known = column.drop_nulls().unique().sort()
        if not len(known):
            raise DataError(f"label column {name!r}: every training row lacks it; is it the right column?")
        if len(known) == 1:
            raise DataError(
                f"label column {name!r}: every training row has {known[0]!r}, so there is nothing to learn"
            )
        if task == "auto":
            named = known.dtype in (pl.String, pl.Boolean)
            few = known.dtype.is_integer() and len(known) <= MOST_CLASSES
            task = "classification" if classes is not None or named or few else "regression"
        if task == "regression":
            if known.dtype == pl.String:
                raise DataError(f"label column {name!r}: a regression needs numbers; found {known[0]!r}")
            return cls(name, task)
        if len(known) > _TOO_MANY:
            raise DataError(
                f"label column {name!r} has {len(known):,} different values, too many for classes (e.g."
                f" {known[0]!r}); is it the right column, or a regression?"
            )
        return cls(name, task, tuple(known) if classes is None else _ordered(name, known, classes))

    def encode(self, column: pl.Series, *, where: str) -> NDArray[Any]:
        """Class numbers or targets of labels (as `alike` makes them), none of them missing."""
        if self.classes is None:
            return column.cast(pl.Float64).to_numpy().astype(np.float64)
        keys = as_column(self.classes).cast(pl.String)
        text = column.cast(pl.String)
        codes = text.cast(pl.Enum(keys), strict=False)
        if codes.null_count():
            unseen = text.filter(codes.is_null()).unique().sort()
            folded = {key.casefold() for key in keys}
            alike = codes.null_count() == len(codes) or all(each.casefold() in folded for each in unseen)
            how = "Leave those rows out, or add a source that has them"
            raise DataError(
                f"{where}: label {names(unseen, most=5)} in column {self.name!r} is in no training row; the"
                f" classes are {names(keys)}. "
                f"{'Are they written in another way? Write them alike' if alike else how}"
            )
        return codes.to_physical().to_numpy().astype(np.int64)

    def absent(self, codes: NDArray[Any]) -> tuple[Label, ...]:
        """The classes that none of these class numbers is of."""
        return tuple(label for place, label in enumerate(self.classes or ()) if not np.any(codes == place))


def alike(name: str, columns: Mapping[str, pl.Series]) -> dict[str, pl.Series]:
    """The label column of several files in one type: text, whole numbers, numbers or truth values.

    Missing, infinite and empty labels become null.
    """
    # Under a plain name: polars takes one such as ^a$ for a pattern.
    columns = {where: column.alias("label") for where, column in columns.items()}
    kinds = {where: kind_of(column.dtype) for where, column in columns.items()}
    for where, column in columns.items():
        if kinds[where] in ("date", "other"):
            raise DataError(
                f"{where}: label column {name!r} holds {column.dtype} values; labels are text, numbers"
                " or true/false"
            )
    if "text" in kinds.values():
        return {where: as_text(as_text(column).str.strip_chars()) for where, column in columns.items()}
    if "number" not in kinds.values():
        return {where: column.cast(pl.Boolean) for where, column in columns.items()}
    for where, column in columns.items():
        if kinds[where] == "number":
            refuse_huge(column.cast(pl.Float64).drop_nulls().to_numpy(), f"{where}: label column {name!r}")
    whole = {where: _whole(column) for where, column in columns.items()}
    if any(column is None for column in whole.values()):
        return {where: as_numbers(column) for where, column in columns.items()}
    found = {where: column for where, column in whole.items() if column is not None}
    if all(column.dtype == pl.Int64 for column in found.values()):
        return found
    positive = {where: column.cast(pl.UInt64, strict=False) for where, column in found.items()}
    if any(positive[where].null_count() > column.null_count() for where, column in found.items()):
        raise DataError(
            f"label column {name!r} holds whole numbers beyond 2⁶³, and others that are negative or beyond "
            "2⁶⁴: write them as text"
        )
    return positive


def as_column(labels: Sequence[Label]) -> pl.Series:
    """Labels as a column of one type, which has to be named where numbers are beyond 2⁶³."""
    wide = any(isinstance(label, int) and label >= 2**63 for label in labels)
    return pl.Series(labels, dtype=pl.UInt64 if wide else None)


def _whole(column: pl.Series) -> pl.Series | None:
    """The labels as whole numbers, or None if some are not."""
    # Whole numbers stay as they are: beyond 2⁵³ a float would not hold them.
    exact = column if column.dtype.is_integer() else as_numbers(column)
    for kind in (pl.Int64, pl.Int128):  # beyond 2⁶³ those that are whole by their type only
        whole = exact.cast(kind, strict=False)
        if whole.null_count() == exact.null_count() and (whole == exact).all():
            return whole
        if not exact.dtype.is_integer():
            break
    return None


def _ordered(name: str, known: pl.Series, classes: Sequence[Label]) -> tuple[Label, ...]:
    """The known labels in the order asked for; a class may be given as its text."""
    mine: dict[str, Label] = dict(zip(known.cast(pl.String), known, strict=True))
    asked = [_key(label) for label in classes]
    if len(set(asked)) < len(asked):
        raise InputError(f"the classes must differ; got {names(classes)}")
    if set(asked) != set(mine):
        raise DataError(
            f"label column {name!r}: the classes asked for are {names(asked)}, but training rows have"
            f" {names(mine)}"
        )
    return tuple(mine[key] for key in asked)


def _key(label: Label) -> str:
    if isinstance(label, bool):
        return str(label).lower()
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)
