"""The target's rows in folds: models tuned on one of them are scored on the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.allocation import FOLDS
from mixtree.data.sources import FOLD, Rows, Sources


def fold_rows(validation: Rows, classes: int) -> list[NDArray[np.intp]]:
    """The validation rows in two folds, alike in their labels: every other row in the order of the labels."""
    order = np.argsort(validation.y, kind="stable")
    return [np.sort(order[fold::FOLDS]) for fold in range(FOLDS)]


def with_folds(sources: Sources) -> Sources:
    """The sources with the folds of the target's rows behind them: sources that only ``auto`` draws from."""
    folds = fold_rows(sources.validation, sources.classes)
    names = tuple(f"{FOLD}{number + 1}" for number in range(FOLDS))
    parts = tuple(sources.validation.take(rows) for rows in folds)
    return replace(sources, names=(*sources.names, *names), rows=(*sources.rows, *parts))


def held_rows(sources: Sources) -> list[NDArray[np.intp]]:
    """The rows outside of each fold."""
    everything = np.arange(len(sources.validation))
    return [np.setdiff1d(everything, rows) for rows in fold_rows(sources.validation, sources.classes)]


def put_together(
    held: Sequence[NDArray[np.intp]], predictions: Sequence[NDArray[Any] | None]
) -> NDArray[Any] | None:
    """Every row's prediction by the model that did not train on it."""
    parts = [each[rows] for rows, each in zip(held, predictions, strict=True) if each is not None]
    if len(parts) < len(held):
        return None
    return np.concatenate(parts)[np.argsort(np.concatenate(held))]
