"""What diverges at its step size is trained again at smaller ones, as ``auto`` tries them for itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mixtree.data.sources import Sources
from mixtree.metrics import row_losses
from mixtree.policies.setting import AutoOptions
from mixtree.search import Around, Search
from mixtree.simplex import Mixture
from mixtree.trainer import Evaluation
from mixtree.tree import Path, Trial

_FAR = 5.0
"""A loss of so many times that of an untrained model is no training: the steps were too large."""
_ROWS = 1000
"""Rows of a source that tell."""


def smaller_rates(options: AutoOptions, *, than: float = 1.0) -> list[float]:
    """× the step size, one after the other, for what diverges at ``than`` × the step size.

    >>> smaller_rates(AutoOptions())
    [0.3, 0.03, 0.003]
    """
    rates = sorted((than * rate for rate in options.rates if rate < 1.0), reverse=True)
    for _ in range(options.further_rates):
        rates.append(0.1 * (rates[-1] if rates else than))
    return [float(f"{rate:.6g}") for rate in rates]


class AtRate(Around):
    """A search whose trials are trained at so many times the step size that it asks for."""

    tree = None  # the inner one's nodes have other step sizes

    def __init__(self, search: Search, rate: float) -> None:
        super().__init__(search)
        self.rate = rate
        self._asked: dict[Path, Trial] = {}

    def ask(self) -> list[Trial]:
        trials = super().ask()
        self._asked = {trial.path: trial for trial in trials}
        return [replace(trial, lr_scale=self.rate * trial.lr_scale) for trial in trials]

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        super().tell(self._asked[trial.path], evaluation)


def blew_up(trainer: Any, state: Any, mixture: Mixture, sources: Sources, *, init_seed: int) -> bool:
    """Whether a model is far worse than an untrained one on the very rows that it was trained on last.

    Only too large steps do that. On the target's rows a model may do so badly where its sources are unlike
    the target.
    """
    losses, untrained = [], trainer.init(init_seed)
    for part, weight in zip((*sources.rows, sources.validation), mixture, strict=False):
        if weight > 0.0:
            rows = part.take(np.unique(np.linspace(0, len(part) - 1, _ROWS).astype(np.intp)))
            both = [trainer.predict(each, rows.x) for each in (state, untrained)]
            with np.errstate(over="ignore", invalid="ignore"):
                means = [row_losses(rows.y, each, sources.classes).mean() for each in both]
            losses.append(weight * np.array(means))
    now, before = np.sum(losses, axis=0)
    return not now <= _FAR * before
