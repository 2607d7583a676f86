"""Data frames at the front door: read as tables are, with their types, gaps and categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.data.arrays import frame_columns
from mixtree.data.frames import as_frame, as_text
from mixtree.data.preprocessing import Preprocessor
from mixtree.data.sources import Rows, in_order
from mixtree.errors import DataError
from mixtree.metrics import as_labels


@dataclass(frozen=True, eq=False, slots=True)
class Encoded:
    """Sources, validation and test rows whose frames have become features."""

    sources: dict[str, Any]
    validation: tuple[Any, Any]
    test: tuple[Any, Any] | None
    preprocessor: Preprocessor


def are_frames(sources: Any, val: Any) -> bool:
    """Whether all rows are data frames."""
    if not isinstance(sources, Mapping) or not sources:
        return False
    parts = [*sources.values(), val]
    return all(isinstance(part, tuple | list) and part and _is_frame(part[0]) for part in parts)


def _is_frame(x: Any) -> bool:
    return hasattr(x, "columns") and not isinstance(x, Rows)


def encoded(sources: Mapping[str, Any], val: Any, test: Any) -> Encoded:
    """The frames as features, which are learnt from the sources' rows.

    Parameters
    ----------
    sources
        ``{name: (frame, y)}``, perhaps with weights.
    val, test
        (frame, y) of the target; ``test`` may be None.
    """
    columns = list(next(iter(sources.values()))[0].columns)
    frames = {
        name: as_frame(in_order(part[0], columns, f"source {name!r}", "the first source"))
        for name, part in sources.items()
    }
    try:
        together = pl.concat(list(frames.values()), how="vertical_relaxed")
    except pl.exceptions.PolarsError as error:
        raise DataError(
            f"the sources' columns are of different kinds: {str(error).splitlines()[0]}"
        ) from error
    preprocessor = Preprocessor.fit(together)

    def features(part: Any, where: str) -> tuple[Any, Any]:
        frame = as_frame(in_order(part[0], columns, where, "the sources"))
        return preprocessor.transform(frame, where=where), as_labels(part[1])

    named = {
        name: (preprocessor.transform(frames[name], where=f"source {name!r}"), *map(np.asarray, part[1:]))
        for name, part in sources.items()
    }
    tested = None if test is None else features(test, "test")
    return Encoded(named, features(val, "validation"), tested, preprocessor)


def groups_of(x: Any, column: str) -> NDArray[Any]:
    """The values of a data frame's column as text, by which rows are grouped."""
    known = frame_columns(x)
    if known is None or column not in known:
        raise DataError(f"the target's rows have no column {column!r}, whose worst value is to score")
    found: NDArray[Any] = as_text(as_frame(x[[column]])[column]).fill_null("missing").to_numpy()
    return found
