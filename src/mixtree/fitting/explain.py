"""What a model's predictions hang on: how much worse the score gets when a column is shuffled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.errors import InputError
from mixtree.metrics import Metric
from mixtree.seeds import derive_seed
from mixtree.stats.intervals import paired_difference


@dataclass(frozen=True, slots=True)
class Importance:
    """How much a column is worth on these rows.

    Parameters
    ----------
    column
        Its name.
    value
        By how much the score gets worse, in the metric's units, when its values are shuffled among the rows.
    low, high
        Of the 95 % interval over the draw of the rows.
    """

    column: str
    value: float
    low: float
    high: float


def importances(
    predict: Callable[[pl.DataFrame], NDArray[Any]],
    frame: pl.DataFrame,
    y: NDArray[Any],
    *,
    columns: Sequence[str],
    metric: Metric,
    repeats: int = 5,
    seed: int = 0,
) -> list[Importance]:
    """The columns' permutation importance on rows of the target, the greatest first.

    A column that others can stand in for may have none, though the model reads it.

    Parameters
    ----------
    predict
        Class probabilities or numbers of a frame's rows.
    frame, y
        Rows of the target and their labels; best rows that trained nothing.
    columns
        Those to shuffle.
    metric
        What scores.
    repeats
        Times that each column is shuffled; the mean counts, with the interval of the middle one.
    seed
        Of the shuffles.

    Returns
    -------
    list of Importance
    """
    if len(y) < 2:
        raise InputError("importance needs at least two labelled rows of the target")
    mine, sign = predict(frame), 1.0 if metric.higher_is_better else -1.0
    found = []
    for place, name in enumerate(columns):
        rng = np.random.default_rng(derive_seed(seed, (place,)))
        gaps = []
        for _ in range(repeats):
            shuffled = frame.with_columns(frame[name].gather(rng.permutation(len(y))).alias(name))
            gaps.append(paired_difference(metric, y, mine, predict(shuffled), seed=seed))
        values = [sign * each.value for each in gaps]
        value = float(np.mean(values))
        middle = gaps[int(np.argsort(values)[len(values) // 2])]
        ends = sorted((sign * (middle.low - middle.value), sign * (middle.high - middle.value)))
        found.append(Importance(name, value, value + ends[0], value + ends[1]))
    return sorted(found, key=lambda each: -each.value)
