"""Encoded features as the columns they came from: numbers with gaps, and categories as codes.

Trees need no scaled numbers, no imputed gaps and no indicators; some libraries know categories themselves.
The encoded matrix has all of that, so that rows are read, encoded and kept once: `Layout` tells where.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sparse import is_sparse


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the columns of a table are in the matrix of its features.

    Parameters
    ----------
    columns
        Names of the columns in their typed form: numbers first, then categories.
    flags
        For every number the feature that says that it was missing; −1 if none does.
    blocks
        For every category its first indicator and the one after its last.
    """

    columns: tuple[str, ...]
    flags: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()

    @classmethod
    def plain(cls, features: int, names: tuple[str, ...] = ()) -> Layout:
        """Of features that are numbers, all of them.

        >>> Layout.plain(2).columns
        ('x0', 'x1')
        """
        return cls(names or tuple(f"x{place}" for place in range(features)), (-1,) * features)

    @property
    def numbers(self) -> int:
        """How many columns hold numbers; they are the first features."""
        return len(self.flags)

    @property
    def categories(self) -> tuple[int, ...]:
        """Positions of the categories among the typed columns."""
        return tuple(range(self.numbers, len(self.columns)))

    @property
    def is_plain(self) -> bool:
        """Whether the typed form is the encoded one."""
        return not self.blocks and max(self.flags, default=-1) < 0

    def features_of(self, column: int) -> list[int]:
        """The features that a typed column became."""
        if column >= self.numbers:
            return list(range(*self.blocks[column - self.numbers]))
        flag = self.flags[column]
        return [column] if flag < 0 else [column, flag]

    def typed(self, x: Any) -> Any:
        """Rows × columns in float32: NaN where a number was missing, −1 for an unknown category.

        Features of plain numbers are given back as they are, sparse ones included.

        >>> layout = Layout(("age", "colour"), (-1,), ((1, 3),))
        >>> layout.typed(np.array([[0.5, 0, 1], [0.1, 0, 0]], dtype=np.float32)).tolist()
        [[0.5, 1.0], [0.10000000149011612, -1.0]]
        """
        if self.is_plain:
            return x
        typed = np.empty((x.shape[0], len(self.columns)), dtype=np.float32)
        columns = x.tocsc() if is_sparse(x) else x
        for place, flag in enumerate(self.flags):
            typed[:, place] = _column(columns, place)
            if flag >= 0:
                typed[_column(columns, flag) > 0, place] = np.nan
        for place, (first, after) in zip(self.categories, self.blocks, strict=True):
            typed[:, place] = _codes(columns[:, first:after])
        return typed

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it but the names, as arrays."""
        return {
            "flags": np.array(self.flags, dtype=np.int64),
            "blocks": np.array(self.blocks, dtype=np.int64).reshape(-1, 2),
            "columns": np.frombuffer("\n".join(self.columns).encode(), dtype=np.uint8),
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Layout:
        """What `arrays` gave."""
        blocks = tuple((int(first), int(after)) for first, after in arrays["blocks"])
        names = arrays["columns"].tobytes().decode().split("\n")
        return cls(tuple(names), tuple(int(flag) for flag in arrays["flags"]), blocks)


def _column(x: Any, place: int) -> NDArray[np.float32]:
    values = x[:, [place]]
    return np.asarray(values.toarray() if is_sparse(values) else values, dtype=np.float32)[:, 0]


def _codes(indicators: Any) -> NDArray[np.float32]:
    """The place of the indicator that is set in every row; −1 where none is."""
    codes = np.full(indicators.shape[0], -1.0, dtype=np.float32)
    rows, places = indicators.nonzero()
    codes[rows] = places
    return codes
