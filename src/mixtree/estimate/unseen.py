"""Values that no source has: a target that has them is outside the hull, whatever its means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from mixtree.data.sources import Rows
from mixtree.simplex import Mixture

_FIRST = 64


@dataclass(frozen=True, eq=False, slots=True)
class Unseen:
    """Classes without a row, and columns of x with a single value, among some rows of the sources."""

    classes: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    rows: NDArray[np.float64]  # looked at, per source

    @classmethod
    def fit(cls, rows: list[Rows], classes: int) -> Unseen:
        """What these rows of the sources never show."""
        seen = np.zeros(classes, dtype=np.int64)
        if classes:
            seen += sum(np.bincount(part.y, minlength=classes) for part in rows)
        columns, values = single_valued([part.x for part in rows])
        sizes = np.array([len(part) for part in rows], dtype=np.float64)
        return cls(np.flatnonzero(seen == 0), columns, values, sizes)

    def __bool__(self) -> bool:
        """Whether there is anything that a target could have and no source has."""
        return bool(len(self.classes) or len(self.columns))

    def count(self, target: Rows) -> int:
        """Rows of the target with a class or a value that no source has."""
        strange = np.isin(target.y, self.classes)
        if len(self.columns):
            table = _dense(target.x[:, self.columns])
            strange |= (np.abs(table - self.values) > 1e-6 * (1.0 + np.abs(self.values))).any(axis=1)
        return int(np.count_nonzero(strange))

    def p(self, target: Rows, alpha: Mixture) -> float:
        """Chance that all strange rows are the target's by accident, if source rows were as likely to be."""
        count, n = self.count(target), len(target)
        others = 1.0 / float(alpha**2 @ (1.0 / self.rows))
        chosen = gammaln(n + 1.0) - gammaln(n - count + 1.0)
        return float(np.exp(chosen - gammaln(others + n + 1.0) + gammaln(others + n - count + 1.0)))


def single_valued(
    tables: list[Any], *, tolerance: float = 0.0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Columns that hold a single number in all tables, but for rounding, and those numbers."""
    first = _dense(tables[0][:1])[0]
    if hasattr(tables[0], "toarray"):
        low = np.min([_dense(table.min(axis=0)).ravel() for table in tables], axis=0)
        high = np.max([_dense(table.max(axis=0)).ravel() for table in tables], axis=0)
        columns = np.flatnonzero(high - low <= tolerance)
        return columns, first[columns]
    columns = np.arange(len(first))
    for most in (_FIRST, None):  # most columns vary within a few rows: no need to look at all of them
        for table in tables:
            gaps = np.abs(table[:most, columns] - first[columns])
            columns = columns[(gaps <= tolerance).all(axis=0)]
    return columns, first[columns]


def _dense(x: Any) -> NDArray[np.float64]:
    return np.asarray(x.toarray() if hasattr(x, "toarray") else x, dtype=np.float64)
