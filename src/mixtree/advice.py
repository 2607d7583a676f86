"""What the nodes of a finished search say by themselves: optimism, and what more would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from mixtree.metrics import Metric
from mixtree.tree import Node, Path
from mixtree.verdict import expected_optimism, ladder, rows_or_budget
from mixtree.verdict.selection import Chooser

Floats = NDArray[np.float64]

_MOST = 200  # nodes; the others are too far behind to be chosen by luck
_REPEATS = 8
_FEWEST = 40  # rows: a quarter of them has to choose
_ROWS = 5_000  # from which the choice is as good as certain


@dataclass(frozen=True, slots=True)
class Looks:
    """What looking at the validation rows so often has done to the best value."""

    optimism: float | None
    notes: tuple[str, ...]


def looks(
    metric: Metric, y: NDArray[np.generic], predictions: Mapping[Path, Floats], nodes: Sequence[Node]
) -> Looks:
    """Expected optimism of the best node's score, and how many new bests were more than noise."""
    values = {node.path: node.value for node in nodes}
    best = sorted(predictions, key=lambda path: values[path])[:_MOST]
    made_up = expected_optimism(metric, y, [predictions[path] for path in best]) if best else float("nan")
    notes: tuple[str, ...] = ()
    finite = [node for node in nodes if isfinite(node.value)]
    if len(finite) > 1 and any(isfinite(node.standard_error) for node in finite):
        climbed = ladder([node.value for node in finite], [node.standard_error for node in finite])
        notes = (
            f"new bests that beat the old one by more than its standard error: {len(climbed) - 1} of "
            f"{len(finite) - 1} nodes after the first",
        )
    return Looks(made_up if isfinite(made_up) else None, notes)


def advice(
    metric: Metric,
    choose: Metric,
    y: NDArray[np.generic],
    predictions: Mapping[Path, Floats],
    lineage: Sequence[Node],
    *,
    chooses: bool,
    noise: float,
) -> tuple[str, ...]:
    """Whether more target rows or more budget promises more, by extrapolation.

    Rows, if choosing is all that they do (``chooses``): the score of what a quarter and a half of them
    choose, on the other half. Budget: the returned model's score after each training that led to it.
    """
    total, after, models = 0, list[int](), list[Floats]()
    for node in lineage:
        total += node.steps
        if node.path in predictions:
            after.append(total)
            models.append(predictions[node.path])
    by_steps = dict[float, float]()
    if len(models) > 2:
        by_steps = dict(zip(after, metric.batch(y, np.array(models)).tolist(), strict=True))
    return rows_or_budget(
        metric,
        by_rows=_by_rows(metric, choose, y, list(predictions.values())) if chooses else None,
        by_steps=by_steps or None,
        rows=len(y),
        noise=noise,
    )


def _by_rows(
    metric: Metric, choose: Metric, y: NDArray[np.generic], models: Sequence[Floats]
) -> dict[float, float] | None:
    if len(models) < 2 or not _FEWEST <= len(y) <= _ROWS:
        return None
    stack, rng = np.array(models[-_MOST:]), np.random.default_rng(0)
    half, quarter = len(y) // 2, len(y) // 4
    present = len(np.unique(y)) if stack.ndim == 3 else 0
    scores, pick_by = list[tuple[float, float]](), Chooser(choose, y, stack)
    for _ in range(_REPEATS):
        order = rng.permutation(len(y))
        parts = order[:quarter], order[:half], order[half:]
        if present and any(len(np.unique(y[part])) < present for part in parts):
            continue
        one, two, held = pick_by(parts[0]), pick_by(parts[1]), parts[2]
        few = metric(y[held], stack[one, held])
        scores.append((few, few if one == two else metric(y[held], stack[two, held])))
    if not scores:
        return None
    means = np.mean(scores, axis=0)
    return {quarter: float(means[0]), half: float(means[1])}
