"""From predictions on the validation rows to evaluations: the one way all built-in trainers do it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from mixtree.metrics import mean_and_error, row_losses
from mixtree.trainer import Evaluation


def loss_evaluations(y: NDArray[Any], predictions: NDArray[Any], *, classes: int) -> list[Evaluation]:
    """One evaluation per model from stacked predictions (models, n, classes) or (models, n)."""
    means, errors = mean_and_error(row_losses(y, predictions, classes))
    return [
        Evaluation(float(mean), float(error), each)
        for mean, error, each in zip(means, errors, predictions, strict=True)
    ]
