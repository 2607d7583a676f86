"""Values that no source has: a target that has them is outside the hull, whatever its means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from mixtree.data.sources import Rows
from mixtree.simplex import Mixture


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
        seen = np.unique(np.concatenate([part.y for part in rows])) if classes else np.empty(0, np.int64)
        low = np.min([_extreme(part.x, "min") for part in rows], axis=0)
        high = np.max([_extreme(part.x, "max") for part in rows], axis=0)
        columns = np.flatnonzero(low == high)
        sizes = np.array([len(part) for part in rows], dtype=np.float64)
        return cls(np.setdiff1d(np.arange(classes), seen), columns, low[columns], sizes)

    def __bool__(self) -> bool:
        """Whether there is anything that a target could have and no source has."""
        return bool(len(self.classes) or len(self.columns))

    def count(self, target: Rows) -> int:
        """Rows of the target with a class or a value that no source has."""
        strange = np.isin(target.y, self.classes)
        if len(self.columns):
            table = target.x[:, self.columns]
            table = np.asarray(table.toarray() if hasattr(table, "toarray") else table, dtype=np.float64)
            strange |= (np.abs(table - self.values) > 1e-6 * (1.0 + np.abs(self.values))).any(axis=1)
        return int(np.count_nonzero(strange))

    def p(self, target: Rows, alpha: Mixture) -> float:
        """Chance that all strange rows are the target's by accident, if source rows were as likely to be."""
        count, n = self.count(target), len(target)
        others = 1.0 / float(alpha**2 @ (1.0 / self.rows))
        chosen = gammaln(n + 1.0) - gammaln(n - count + 1.0)
        return float(np.exp(chosen - gammaln(others + n + 1.0) + gammaln(others + n - count + 1.0)))


def _extreme(x: Any, which: str) -> NDArray[np.float64]:
    """Smallest or largest value of every column."""
    found = getattr(x, which)(axis=0)
    return np.asarray(found.toarray() if hasattr(found, "toarray") else found, dtype=np.float64).ravel()
