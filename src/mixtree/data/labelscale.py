"""Regression labels of size 1: step sizes suit them; scores and predictions are in the label's units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Rows, Sources
from mixtree.metrics import Metric


@dataclass(frozen=True, slots=True)
class LabelScale:
    """Labels minus a centre, by a spread; learnt from the sources' rows alone."""

    centre: float = 0.0
    spread: float = 1.0

    @classmethod
    def of(cls, sources: Sources) -> LabelScale:
        """Mean and standard deviation of the sources' labels; nothing for a classification.

        >>> rows = Rows(np.zeros((2, 1)), np.array([10.0, 30.0]))
        >>> LabelScale.of(Sources(("a",), (rows,), rows, 0))
        LabelScale(centre=20.0, spread=10.0)
        """
        if sources.classes:
            return cls()
        labels = np.concatenate([np.asarray(part.y, dtype=np.float64) for part in sources.rows])
        return cls(float(labels.mean()), float(labels.std()) or 1.0)

    def rows(self, part: Rows) -> Rows:
        """Rows with scaled labels."""
        if self == LabelScale():
            return part
        return replace(part, y=(np.asarray(part.y, dtype=np.float64) - self.centre) / self.spread)

    def rows_back(self, part: Rows) -> Rows:
        """Rows with labels in their own units again."""
        return replace(part, y=self.back(part.y))

    def sources(self, sources: Sources) -> Sources:
        """Sources with scaled labels."""
        parts = tuple(self.rows(part) for part in sources.rows)
        return replace(sources, rows=parts, validation=self.rows(sources.validation))

    def back(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values in the label's own units."""
        if self == LabelScale():
            return values
        with np.errstate(over="ignore", invalid="ignore"):  # predictions of a model that diverged
            return values * self.spread + self.centre

    def metric(self, metric: Metric) -> Metric:
        """The metric that takes scaled labels and predictions and scores them in the label's own units."""
        if self == LabelScale():
            return metric
        terms = metric.contributions
        return replace(
            metric,
            values=lambda y, stack: metric.values(self.back(y), self.back(stack)),
            contributions=None if terms is None else lambda y, stack: terms(self.back(y), self.back(stack)),
        )
