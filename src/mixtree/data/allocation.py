"""What a node's steps draw from: the sources, the target's own rows, or a fold of these.

A trial's mixture is a vector: one weight per source, then one per fold of the target's rows where a trainer
has folds, then perhaps one for all of the target's rows. Only this module knows that order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mixtree.data.sources import FOLD, TARGET
from mixtree.errors import InputError
from mixtree.simplex import Mixture

FOLDS = 2
"""Of the target's rows, where a policy tunes models on some of them and scores them on the others."""


@dataclass(frozen=True, eq=False, slots=True)
class Allocation:
    """The share of a node's steps that each kind of row gets.

    Parameters
    ----------
    sources
        One weight for each of the K sources.
    folds
        Of each fold of the target's rows; empty where there are none.
    target
        Of all of the target's rows; None where the trial does not speak of them.

    Examples
    --------
    >>> found = Allocation.of(np.array([0.5, 0.25, 0.25]), 2)
    >>> found.sources.tolist(), found.target, found.own
    ([0.5, 0.25], 0.25, 0.25)
    >>> Allocation.on_fold(2, 1).mixture.tolist(), Allocation.on_fold(2, 1).fold
    ([0.0, 0.0, 0.0, 1.0], 1)
    """

    sources: Mixture
    folds: tuple[float, ...] = ()
    target: float | None = None

    @classmethod
    def of(cls, mixture: Mixture, count: int) -> Allocation:
        """The allocation of a mixture over ``count`` sources, and what stands behind them."""
        rest = mixture[count:].tolist()
        if len(rest) < FOLDS:
            return cls(mixture[:count], (), rest[0] if rest else None)
        return cls(mixture[:count], tuple(rest[:FOLDS]), rest[FOLDS] if len(rest) > FOLDS else None)

    @classmethod
    def on_fold(cls, count: int, fold: int) -> Allocation:
        """Nothing but one fold of the target's rows."""
        return cls(np.zeros(count), tuple(float(number == fold) for number in range(FOLDS)))

    @classmethod
    def on_target(cls, count: int, *, folds: int = 0) -> Allocation:
        """Nothing but the target's own rows."""
        return cls(np.zeros(count), (0.0,) * folds, 1.0)

    @property
    def mixture(self) -> Mixture:
        """The vector that a trial carries."""
        rest = [*self.folds, *([] if self.target is None else [self.target])]
        return np.concatenate([self.sources, rest]) if rest else self.sources

    @property
    def own(self) -> float:
        """The share of the target's own rows, in folds or not."""
        return sum(self.folds) + (self.target or 0.0)

    @property
    def fold(self) -> int | None:
        """The fold of the target's rows that is drawn from, if one is."""
        used = [number for number, share in enumerate(self.folds) if share > 0.0]
        return used[0] if used else None


def given(names: Sequence[str]) -> tuple[str, ...]:
    """The names of the sources that a user gave, without those of folds of the target's rows."""
    return tuple(name for name in names if not name.startswith(FOLD))


def has_target(mixture: Mixture, sources: int) -> bool | None:
    """Whether a mixture has a weight for the target's own rows beside those of a trainer's sources.

    ``sources`` counts the folds that the trainer has. None: it is a mixture of another number of sources.
    """
    return {0: False, 1: True}.get(len(mixture) - sources)


def with_target(mixture: Mixture, sources: int) -> Mixture:
    """The mixture with a weight for the target's own rows, 0 where it has none.

    >>> with_target(np.array([0.5, 0.5]), 2).tolist()
    [0.5, 0.5, 0.0]
    """
    there = has_target(mixture, sources)
    if there is None:
        raise InputError(
            f"the mixture has {len(mixture)} weights but there are {sources + 1} sources, "
            "the target's own rows included"
        )
    return mixture if there else np.append(mixture, 0.0)


def weight_names(sources: Sequence[str], weights: int) -> tuple[str, ...]:
    """The names of so many weights of a mixture; one more than there are sources is the target's own rows.

    >>> weight_names(["fl", "ct"], 3), weight_names([], 2)
    (('fl', 'ct', 'target'), ('source 0', 'source 1'))
    """
    names = (*sources, TARGET) if len(sources) == weights - 1 else tuple(sources)
    return names if len(names) == weights else tuple(f"source {number}" for number in range(weights))


def named(sources: Sequence[str], mixture: Mixture) -> dict[str, float]:
    """The weights of a mixture by the names of a trainer's sources, folds of the target's rows left out."""
    weights = zip(weight_names(sources, len(mixture)), mixture.tolist(), strict=True)
    return {name: weight for name, weight in weights if not name.startswith(FOLD)}
