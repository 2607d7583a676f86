"""What a model's predictions hang on: how much worse it is when a column is shuffled, or without a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.data.sources import Sources
from mixtree.data.typed import Layout
from mixtree.errors import InputError
from mixtree.fitting.portfolio import Fitter, TrainNetwork
from mixtree.metrics import Metric
from mixtree.seeds import derive_seed
from mixtree.stats.intervals import paired_difference


@dataclass(frozen=True, slots=True)
class Importance:
    """How much a column, or a source, is worth on these rows.

    Parameters
    ----------
    name
        Its name.
    value
        By how much the score gets worse, in the metric's units, when the column's values are shuffled among
        the rows, or without the source's rows.
    low, high
        Of the 95 % interval over the draw of the rows.
    """

    name: str
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


def source_importances(
    sources: Sources,
    *,
    layout: Layout,
    metric: Metric,
    family: str,
    trees: int,
    network: TrainNetwork | None = None,
    seed: int = 0,
) -> list[Importance]:
    """How much worse the family's pooled model predicts the target without each source, the greatest first.

    One model reads all sources' rows alike, one for each source all but its own. None reads the target's, so
    that they can score. The whole portfolio, in which the target's own rows stand in for much that a source
    has, may lose less: fitting it again for every source is dear, and is not done.

    Parameters
    ----------
    sources
        Labels in their own units; the validation rows are those of the target that score.
    layout
        Where columns are among the features.
    metric
        What scores.
    family
        Of the portfolio the one with most weight.
    trees
        Of LightGBM.
    network
        Trains networks, if that is the family.
    seed
        Of the fits and the intervals.

    Returns
    -------
    list of Importance
    """
    if len(sources) < 2:
        raise InputError("there is one source only: without it there is nothing to learn from")
    y, sign = sources.validation.y, 1.0 if metric.higher_is_better else -1.0

    def predicted(kept: Sequence[int]) -> NDArray[Any]:
        some = replace(
            sources,
            names=tuple(sources.names[place] for place in kept),
            rows=tuple(sources.rows[place] for place in kept),
        )
        fitter = Fitter(some, layout, metric, seed=seed, effort="quick", network=network)
        fitter.task = replace(fitter.task, trees=trees)
        return fitter.pooled(family).predict(*fitter.tables(sources.validation.x))

    everything = range(len(sources))
    mine, found = predicted(everything), []
    for place in everything:
        without = predicted([each for each in everything if each != place])
        gap = paired_difference(metric, y, mine, without, seed=seed)
        low, high = sorted((sign * gap.low, sign * gap.high))
        found.append(Importance(sources.names[place], sign * gap.value, low, high))
    return sorted(found, key=lambda each: -each.value)
