"""Selection bias from looking often at the same rows, whether a new best is more than luck, when to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import trapezoid
from scipy.special import ndtr, ndtri

from mixtree.errors import InputError
from mixtree.metrics import Metric, as_labels
from mixtree.stats.choosing import ROUNDING, all_finite, numbers, terms_and_scores
from mixtree.stats.resampling import Floats

_DRAWS = 200
_UNUSUAL = 3.0  # times as noisy as the median model
_GROUPS = 4_000  # of rows that vary together, where there are more rows


def optimism(queries: int, rows: int, *, spread: float = 1.0) -> float:
    """By how much the best of q equal models is expected to look better than it is: E[max of q normals]·s/√n.

    The expectation is Blom's approximation, Φ⁻¹((q − 0.375) / (q + 0.25)).

    Parameters
    ----------
    queries
        q, models that were compared.
    rows
        n.
    spread
        s, the standard deviation over rows of two models' paired difference, divided by √2.

    Returns
    -------
    float
        In the unit of ``spread``.

    References
    ----------
    Blom, Statistical Estimates and Transformed Beta-Variables, 1958.

    Examples
    --------
    >>> optimism(1, 100)
    0.0
    >>> round(optimism(30, 100, spread=0.1), 4)
    0.0204
    """
    if queries < 1 or rows < 1:
        raise InputError(f"optimism needs at least one query and one row; got {queries} and {rows}")
    largest = float(ndtri((queries - 0.375) / (queries + 0.25))) if queries > 1 else 0.0
    return largest * spread / float(np.sqrt(rows))


def expected_optimism(
    metric: Metric,
    y: ArrayLike,
    predictions: Sequence[ArrayLike] | Floats,
    *,
    objective: Metric | None = None,
    seed: int = 0,
) -> float:
    """The optimism of choosing one of these models on these rows, by choosing again on resampled rows.

    In a resample the selection bias is the winner's score there minus its score on all rows.

    Parameters
    ----------
    metric
        What scores.
    y
        Labels, (n,).
    predictions
        Every model's predictions.
    objective
        The metric that chooses; by default ``metric``.
    seed
        Draws resamples.

    Returns
    -------
    float
        0 or more, in the metric's unit. NaN for a metric whose rows' contributions are not known (use
        :func:`cross_fitted`), and for areas of a single class.
    """
    labels, choose = as_labels(y), objective or metric
    models = [each for each in map(numbers, predictions) if all_finite(each)]
    if metric.contributions is None or choose.contributions is None or not len(predictions):
        return float("nan")
    if len(models) < 2 or len(labels) < 2:
        return 0.0 if models else float("nan")
    if (metric.by_class or choose.by_class) and len(np.unique(labels)) < 2:
        return float("nan")
    return chosen_again(metric, labels, models, choose=choose, seed=seed).optimism


@dataclass(frozen=True, eq=False, slots=True)
class ChosenAgain:
    """The expected optimism; the models that other rows might have chosen, their rows' terms and scores."""

    optimism: float
    places: NDArray[np.intp]
    terms: Floats
    scores: Floats


def chosen_again(
    metric: Metric,
    labels: NDArray[Any],
    models: Sequence[NDArray[Any]],
    *,
    choose: Metric,
    seed: int = 0,
) -> ChosenAgain:
    """The selection bias of a metric when resampled rows choose among two or more models.

    Only models that some resample chooses are scored, which takes most of the time for areas of many classes.

    Parameters
    ----------
    metric
        What scores.
    labels
        (n,).
    models
        Every model's finite predictions.
    choose
        The metric that chooses.
    seed
        Draws resamples.

    Returns
    -------
    ChosenAgain
        The optimism, and what the chosen models score.
    """
    terms, scores = terms_and_scores(choose, labels, models)
    resampled = _Resamples(labels, np.random.default_rng(seed))
    seen, moved = scores if choose.higher_is_better else -scores, resampled.moves(choose, terms)
    if not (np.isfinite(seen).all() and np.isfinite(moved).all()):
        return ChosenAgain(np.nan, np.empty(0, dtype=np.intp), terms[:0], scores[:0])
    true, moved = _pulled_together(seen, moved)
    winners, place = np.unique((true + moved).argmax(axis=1), return_inverse=True)
    if choose == metric:
        terms, scores = terms[winners], scores[winners]
    else:
        terms, scores = terms_and_scores(metric, labels, [models[k] for k in winners.tolist()])
    bias = float(resampled.moves(metric, terms)[np.arange(_DRAWS), place].mean())
    bias = 0.0 if bias < ROUNDING * np.abs(scores).max(initial=0.0) else bias
    return ChosenAgain(bias, winners, terms, scores)


def _pulled_together(seen: Floats, moved: Floats) -> tuple[Floats, Floats]:
    """Shrunken scores, and how they move, in a unit of their own; higher is better.

    Noise makes the scores lie further apart than the truth does; they are pulled together by as much. A
    model whose score depends on a row or two (a confident mistake) does not tell how noisy the others are,
    and stays.
    """
    unit = max(float(np.abs(seen).max()), float(np.abs(moved).max())) or 1.0  # else squares may vanish
    seen, moved = seen / unit, moved / unit
    own = moved.std(axis=0)
    usual = own <= _UNUSUAL * np.median(own)
    middle, apart = seen[usual].mean(), seen[usual].var()
    noise = moved[:, usual].var(axis=1).mean()
    share = np.sqrt(max(0.0, 1.0 - noise / apart)) if apart > 0.0 else 0.0
    return np.where(usual, middle + share * (seen - middle), seen), moved


class _Resamples:
    """Other draws of the rows: in each of them a row is there twice or not at all, by the toss of a coin.

    Means over the rows scatter as much as those of rows that are drawn with replacement.
    """

    def __init__(self, labels: NDArray[Any], rng: np.random.Generator) -> None:
        self._labels, rows = labels, len(labels)
        groups = min(rows, _GROUPS)
        self._order = rng.permutation(rows) if groups < rows else None
        self._starts = np.arange(groups) * rows // groups
        signs = 2.0 * rng.integers(2, size=(_DRAWS // 2, groups), dtype=np.int8) - 1.0
        self._signs = signs
        more = signs @ np.diff(self._starts, append=rows) / rows
        self._total = np.maximum(1.0 + _antithetic(more), 1.0 / rows)  # rows, as a share of all

    def moves(self, metric: Metric, terms: Floats) -> Floats:
        """By how much (draws, models) the models' scores there are better than on the rows themselves."""
        labels = self._labels if metric.by_class else np.zeros(len(self._labels))
        _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        with np.errstate(over="ignore", invalid="ignore"):  # of models that are too bad
            sums = np.add.reduceat(terms[:, codes.argsort(kind="stable")], counts.cumsum() - counts, axis=1)
            gaps = (terms - (sums / counts)[:, codes]) / counts[codes]
            if self._order is not None:
                gaps = np.add.reduceat(gaps[:, self._order], self._starts, axis=1)
            moved = _antithetic(self._signs @ (gaps if metric.higher_is_better else -gaps).T)
        # A mean is of the rows that are there; areas, within classes, are taken to first order.
        return moved if metric.by_class else moved / self._total[:, None]


def _antithetic(draws: Floats) -> Floats:
    """Antithetic draws: over all of them a row is there once, so that there is no gain without a choice."""
    return np.concatenate([draws, -draws])


def climbs(metric: Metric, y: ArrayLike, new: ArrayLike, best: ArrayLike, *, errors: float = 1.0) -> bool:
    """The ladder's rule: a new best must beat the old one by more than the difference's standard error.

    Parameters
    ----------
    metric
        What scores.
    y
        Labels, (n,).
    new, best
        Both models' predictions.
    errors
        Standard errors that the gain must exceed.

    Returns
    -------
    bool
        Whether the new model is accepted.

    References
    ----------
    Blum and Hardt, The Ladder: A Reliable Leaderboard for Machine Learning Competitions, ICML 2015.
    """
    gain = metric.signed(metric(y, best)) - metric.signed(metric(y, new))
    error = metric.paired_error(y, new, best)
    return bool(gain > errors * (error if isfinite(error) else 0.0)) and gain > 0.0


def ladder(
    values: Sequence[float], standard_errors: Sequence[float], *, errors: float = 1.0
) -> tuple[int, ...]:
    """The places at which a new best was accepted, from values in their order.

    Parameters
    ----------
    values
        Smaller is better; those that are not finite are never accepted.
    standard_errors
        Of the values.
    errors
        Standard errors by which a new best must be better.

    Returns
    -------
    tuple
        Places, the first finite value's among them.

    Examples
    --------
    >>> ladder([1.0, 0.99, 0.8, float("nan")], [0.05, 0.05, 0.05, 0.05])
    (0, 2)
    """
    accepted: list[int] = []
    for place, (value, error) in enumerate(zip(values, standard_errors, strict=True)):
        if not isfinite(value):
            continue
        margin = errors * error if isfinite(error) else 0.0
        if not accepted or value < values[accepted[-1]] - margin:
            accepted.append(place)
    return tuple(accepted)


# ------------------------------------------------------------------------------------------------- stop early


@dataclass(frozen=True, slots=True)
class Outlook:
    """What more nodes are expected to gain, and the noise of the value that would have to show it."""

    gain: float
    noise: float

    @property
    def stop(self) -> bool:
        """Whether the gain would drown in the noise."""
        return isfinite(self.gain) and isfinite(self.noise) and self.gain < self.noise


def outlook(values: Sequence[float], standard_errors: Sequence[float], *, left: int) -> Outlook:
    """The expected gain of more nodes like the later half so far: E[(best − the smallest of q draws)⁺].

    Their values are taken as normal draws; if they fall significantly from node to node, they are expected to
    go on falling for as many nodes as they did.

    Parameters
    ----------
    values
        Of the nodes, in their order; smaller is better.
    standard_errors
        Of the values.
    left
        q, nodes that the budget still pays for.

    Returns
    -------
    Outlook
        The gain and the noise; the gain is NaN, hence no stop, before there are eight values.

    Examples
    --------
    >>> outlook([1.0] * 10, [0.1] * 10, left=20).stop
    True
    """
    finite = np.array([value for value in values if isfinite(value)])
    errors = np.array([error for error in standard_errors if isfinite(error)])
    noise = float(np.median(errors)) if len(errors) else float("nan")
    if len(finite) < 8:
        return Outlook(float("nan"), noise)
    best, recent = float(finite.min()), finite[len(finite) // 2 :]
    centre, deviation = float(recent.mean()), float(recent.std(ddof=1))
    if left < 1 or deviation <= 1e-15 * abs(centre):
        return Outlook(0.0, noise)
    grid = np.linspace(min(best, centre) - 8.0 * deviation, best, 2_000)
    # E[(best − smallest of q draws)+] is the integral of P(smallest ≤ v) up to the best.
    smallest = -np.expm1(left * np.log1p(-np.minimum(ndtr((grid - centre) / deviation), 1.0 - 1e-16)))
    gain = float(trapezoid(smallest, grid))
    # A line through the later half: if it falls by more than two standard errors, it may go on as long.
    place = np.arange(len(recent)) - (len(recent) - 1) / 2.0
    slope = float(place @ recent) / float(place @ place)
    rest = recent - recent.mean() - slope * place
    error = np.sqrt(float(rest @ rest) / max(len(recent) - 2, 1) / float(place @ place))
    if slope < -2.0 * error:
        ahead = place[-1] + min(left, len(recent))
        gain = max(gain, best - float(recent.mean() + slope * ahead))
    return Outlook(gain, noise)
