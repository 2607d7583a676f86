"""Arrays as users have them: refused where reading them as plain numbers would lose a part unseen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.errors import DataError

LARGEST = 1e100
"""Numbers beyond this have squares that overflow."""


def refuse_lossy(values: Any, what: str) -> None:
    """An error for complex numbers, for masked ones and for what can be read only once.

    Numbers in lists are looked at once they are arrays.
    """
    if isinstance(values, Iterator):
        raise DataError(f"{what}: a {type(values).__name__} can be read only once: give a list or an array")
    if isinstance(values, list | tuple):
        for row in values:
            if isinstance(row, np.ma.MaskedArray):
                refuse_lossy(row, what)
    if isinstance(values, np.ma.MaskedArray) and (hidden := int(np.ma.getmaskarray(values).sum())):
        raise DataError(
            f"{what}: {hidden:,} values of a masked array are masked, and reading it would unmask them: fill "
            "them in (values.filled(…)), or leave those rows out"
        )
    if not hasattr(values, "dtypes") and not hasattr(values, "dtype"):
        return
    kinds = [values.dtype] if frame_columns(values) is None else list(values.dtypes)
    if any(getattr(kind, "kind", "") == "c" for kind in kinds):
        raise DataError(
            f"{what}: Complex data not supported, and reading it would lose the imaginary part: give the "
            "real and the imaginary part as numbers of their own"
        )


def frame_columns(x: Any) -> Any:
    """The columns of a data frame of any library; None of what is none.

    >>> frame_columns(np.zeros((2, 2))) is None
    True
    """
    return getattr(x, "columns", None)


def refuse_huge(values: NDArray[Any], what: str) -> None:
    """An error for finite labels whose squares overflow."""
    with np.errstate(over="ignore"):
        numbers = np.asarray(values, dtype=np.float64)
    huge = np.abs(numbers[np.isfinite(numbers)]) > LARGEST
    if huge.any():
        worst = numbers[np.isfinite(numbers)][huge][0]
        raise DataError(
            f"{what}: {huge.sum():,} of {len(numbers):,} labels are beyond ±{LARGEST:g}, {worst:g} for one: "
            "their squares overflow; give them in other units, or their logarithms"
        )


def joined(parts: Sequence[NDArray[Any]], what: str) -> NDArray[Any]:
    """The parts one after another; whole numbers stay whole, which numpy's choice of a type may not."""
    whole = all(part.dtype.kind in "iu" for part in parts)
    together = np.result_type(*parts) if whole else None
    if together is None or together.kind != "f":
        return np.concatenate(parts)
    # Of signed and unsigned 64 bits numpy would make floats, to which numbers near 2⁶⁴ are all the same.
    low = min(int(part.min(initial=0)) for part in parts)
    high = max(int(part.max(initial=0)) for part in parts)
    if low < 0 and high >= 2**63:
        raise DataError(f"{what}: no type of numbers holds both {low} and {high}: give them as text")
    return np.concatenate([part.astype(np.uint64 if low >= 0 else np.int64) for part in parts])
