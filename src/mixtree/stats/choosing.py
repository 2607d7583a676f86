"""Predictions of many models: which model some rows choose, and how it does on others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mixtree.metrics import Metric, absent_classes
from mixtree.stats.resampling import Floats

ROUNDING = 1e-12
"""Relative to a score: a smaller selection bias is rounding."""
_BLOCK = 1 << 18  # numbers that are worth having as 64 bits at once: 2 MB


def numbers(predictions: ArrayLike) -> NDArray[Any]:
    """What a model predicts, as it is stored if those are numbers."""
    given = np.asarray(predictions)
    return given if given.dtype.kind in "fiub" else given.astype(np.float64)


def all_finite(predictions: NDArray[Any]) -> bool:
    """Whether a model predicts numbers only. Their sum tells, unless it overflows."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(predictions.sum()) or np.isfinite(predictions).all())


def stacked(models: Sequence[NDArray[Any]]) -> Floats:
    """What some models predict, as one array of 64-bit numbers."""
    return np.asarray(models, dtype=np.float64)


def scores_of(metric: Metric, labels: NDArray[Any], models: Sequence[NDArray[Any]]) -> Floats:
    """The models' scores, without warnings of absent classes, which were noted before.

    Parameters
    ----------
    metric
        What scores.
    labels
        (n,).
    models
        Each model's predictions, (n, classes) or (n,).

    Returns
    -------
    array
        (models,).
    """
    with absent_classes():
        return metric.batch(labels, np.asarray(models))


class Chooser:
    """Says which model some of the rows choose; means over rows are not computed from scratch every time.

    Thousands of models' predictions stay as they are, of 32 bits mostly: only a few are looked at at a time.

    Parameters
    ----------
    choose
        The metric by which rows choose.
    labels
        Of all rows.
    models
        Each model's predictions of all rows.
    """

    def __init__(self, choose: Metric, labels: NDArray[Any], models: Sequence[NDArray[Any]]) -> None:
        self.metric, self._models = choose, models
        self._labels = labels.astype(np.intp) if models[0].ndim == 2 else labels
        self._terms: Floats | None = None
        if choose.contributions is not None and not choose.by_class and choose.adds_up:
            terms = _terms_of(choose, self._labels, models)
            self._terms = terms if choose.higher_is_better else -terms

    def __call__(self, rows: NDArray[Any]) -> int:
        """The number of the model that does best on these rows (positions or flags)."""
        if self._terms is not None:
            return int(self._terms[:, rows].mean(axis=1).argmax())
        return int(self._scores([rows])[0].argmax())

    def scores(self, parts: NDArray[np.bool_]) -> Floats:
        """How the models (columns) do on parts of the rows, one line of flags each; higher is better."""
        if self._terms is not None:
            return np.asarray(parts @ self._terms.T / parts.sum(axis=1, keepdims=True))
        return self._scores(list(parts))

    def _scores(self, parts: list[NDArray[Any]]) -> Floats:
        with absent_classes():
            # Straight to the metric's function: what it is given was checked before.
            found = [
                [self.metric.values(self._labels[part], some[:, part]) for part in parts]
                for some in map(stacked, _blocks(self._models))
            ]
        scores = np.concatenate([np.array(each) for each in found], axis=1)
        return scores if self.metric.higher_is_better else -scores


def _blocks(models: Sequence[NDArray[Any]]) -> Iterator[Sequence[NDArray[Any]]]:
    """A few models at a time."""
    some = max(1, _BLOCK // models[0].size)
    return (models[start : start + some] for start in range(0, len(models), some))


def _terms_of(metric: Metric, labels: NDArray[Any], models: Sequence[NDArray[Any]]) -> Floats:
    """The rows' contributions (models, rows).

    By predictions as they are stored, as the search computed its values: what a loss makes of a probability
    of 0 depends on their bits.
    """
    assert metric.contributions is not None
    parts = (np.asarray(some) for some in _blocks(models))
    floats = (part if part.dtype.kind == "f" else part.astype(np.float64) for part in parts)
    return np.concatenate([metric.contributions(labels, part) for part in floats])


def scores_of_picked(
    metric: Metric,
    labels: NDArray[Any],
    models: Sequence[NDArray[Any]],
    parts: list[NDArray[np.bool_]],
    picks: NDArray[Any],
) -> Floats:
    """Scores of the models that were picked for a part of the rows, on that part.

    Parameters
    ----------
    metric
        What scores.
    labels
        (n,).
    models
        Each model's predictions, (n, classes) or (n,).
    parts
        Flags (n,) of the rows in each part.
    picks
        Numbers of the picked models, (parts, picks).

    Returns
    -------
    array
        (parts, picks).
    """
    known, scores = labels.astype(np.intp) if models[0].ndim == 2 else labels, np.empty(picks.shape)
    with absent_classes():
        for line, part, each in zip(scores, parts, picks.tolist(), strict=True):
            # Straight to the metric's function, which may be the user's and take its time: what it is given
            # was checked before.
            few = sorted(set(each))
            found = metric.values(known[part], stacked([models[model][part] for model in few]))
            line[:] = [found[few.index(model)] for model in each]
    return scores


def scores_by_terms(metric: Metric, labels: NDArray[Any], terms: Floats, parts: NDArray[np.bool_]) -> Floats:
    """Scores on parts of the rows, by the rows' contributions to a metric that adds up.

    An area's contributions are those of the row's rank among all rows, so this is right to first order, and
    with few rows may be beyond 1. It takes both classes of a pair together, minus the area itself, so that
    how a model does on the other rows does not matter.

    Parameters
    ----------
    metric
        Whose scores; its ``adds_up`` must hold.
    labels
        (n,).
    terms
        The contributions, (models, n).
    parts
        Flags of the rows in each part, (parts, n).

    Returns
    -------
    array
        (parts, models).
    """
    if not metric.by_class:
        return np.asarray(parts @ terms.T / parts.sum(axis=1, keepdims=True))
    whole = metric.from_terms(labels, terms)
    assert whole is not None
    counts = np.array([np.bincount(labels[part], minlength=int(labels.max()) + 1) for part in parts])
    shares = np.divide(parts, counts[:, labels], where=parts, out=np.zeros(parts.shape))
    return np.asarray(shares @ terms.T - whole)


def terms_and_scores(
    metric: Metric, labels: NDArray[Any], models: Sequence[NDArray[Any]]
) -> tuple[Floats, Floats]:
    """The rows' contributions and the scores of models with finite predictions.

    Parameters
    ----------
    metric
        With known contributions.
    labels
        (n,).
    models
        Each model's predictions, (n, classes) or (n,).

    Returns
    -------
    tuple
        Contributions (models, n), scores (models,).
    """
    known = labels.astype(np.intp) if models[0].ndim == 2 else labels
    terms = _terms_of(metric, known, models)
    scores = metric.from_terms(known, terms)
    return terms, scores_of(metric, labels, models) if scores is None else scores
