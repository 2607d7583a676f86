"""Later rows that are unlike the training rows: what a model says about them it has not learnt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from mixtree.data.columns import Column, values_of
from mixtree.data.frames import as_frame
from mixtree.data.preprocessing import Numbers, Preprocessor, numbers_of

_ROWS = 100_000  # that are looked at
_UNSEEN, _UNSEEN_OR_RARE, _FAR = 0.05, 0.5, 0.1  # shares of the rows that are worth a word
_DEVIATIONS = 5.0


def unlike(preprocessor: Preprocessor, table: Any, *, where: str) -> list[str]:
    """In words: columns without any value, levels that no training row has, numbers far from theirs."""
    frame = as_frame(table, where=where)
    frame = frame.gather_every(1 + frame.height // _ROWS)
    told: list[str] = []
    place, have = 0, set(frame.columns)
    for column in preprocessor.columns:
        if column.kind == "dropped":
            continue
        count = len(column.numbers)
        centre, scale = (each[place : place + count] for each in (preprocessor.means, preprocessor.scales))
        place += count
        if column.name in have and frame.height:
            values = values_of(column, frame[column.name], where=where)
            told += [
                f"column {column.name!r} of {where}: {words}"
                for words in _words(column, values, centre, scale)
            ]
    return told


def _words(column: Column, values: pl.Series, centre: Numbers, scale: Numbers) -> Iterator[str]:
    known = values.drop_nulls()
    if not len(known):
        yield "it has no value; a usual one is assumed" if column.kind != "categorical" else "it has no value"
    elif column.kind == "categorical":
        strange = known.filter(~known.is_in(column.levels))
        least = _UNSEEN_OR_RARE if column.rare else _UNSEEN
        if len(strange) >= least * len(values):
            few = "few or no training rows have" if column.rare else "no training row has"
            share = len(strange) / len(values)
            yield f"{share:.0%} of the rows have a value that {few} (e.g. {strange[0]!r})"
    else:
        gaps = [
            np.abs(part.to_numpy() - middle) / wide
            for part, middle, wide in zip(numbers_of(column, known), centre, scale, strict=True)
        ]
        if not gaps:  # a date of which no part varies
            return
        far = np.max(gaps, axis=0) > _DEVIATIONS
        if far.sum() >= _FAR * len(values):
            yield (
                f"{far.sum() / len(values):.0%} of the rows have a value far from those of the training rows "
                f"(e.g. {known[int(np.argmax(far))]})"
            )
