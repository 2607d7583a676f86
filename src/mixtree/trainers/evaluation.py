"""From predictions on the validation rows to evaluations: the one way all built-in trainers do it."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from mixtree.metrics import mean_and_error, row_losses
from mixtree.trainer import Evaluation


def loss_evaluations(y: NDArray[Any], predictions: NDArray[Any], *, classes: int) -> list[Evaluation]:
    """One evaluation per model: the mean loss over the rows, cross-entropy or squared error.

    Parameters
    ----------
    y : array (n,)
        Classes or targets.
    predictions : array (models, n, classes) or (models, n)
        Class probabilities, or numbers.
    classes : int
        How many there are; 0 in a regression.

    Returns
    -------
    list of Evaluation
    """
    means, errors = mean_and_error(row_losses(y, predictions, classes))
    return [
        Evaluation(float(mean), float(error), each)
        for mean, error, each in zip(means, errors, predictions, strict=True)
    ]
