"""Bounds of areas under curves, AUROC and Hand–Till, and of their differences: DeLong's, with few rows.

Next to nothing is known of classes with a handful of rows: where that gives narrower bounds, their areas may
be anything instead of being estimated.

DeLong, DeLong, Clarke-Pearson, Comparing the Areas under Two or More Correlated Receiver Operating
Characteristic Curves, Biometrics 1988.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, stdtrit

from mixtree.metrics import Metric, absent_classes
from mixtree.stats.resampling import LEVEL, Bounds, Floats, class_scores, reaches

Folds: TypeAlias = NDArray[np.intp]

_EDGE = 3.0  # wrongly ranked pairs below which an area's variance may be small by luck
_ROUNDING = 1e-20  # of the largest variance that there can be
_RANKED = 5  # rows of a class below which its areas are as good as unknown


def of_area(
    metric: Metric, labels: NDArray[Any], predictions: NDArray[Any], value: float
) -> tuple[str, Bounds]:
    """Bounds of one model's area.

    Parameters
    ----------
    metric
        AUROC or Hand–Till.
    labels
        Class numbers, (n,).
    predictions
        Probabilities, (n, classes).
    value
        The area.

    Returns
    -------
    tuple
        The method's name, and a function from an error probability to (low, high).
    """
    plain, kept = _Ranks(metric, labels, predictions, value).bounds, _usual_classes(labels)
    if kept is None:
        return "DeLong on the logit scale", plain
    usual, share = _of_usual(metric, labels[kept], predictions[kept]), _share(labels, kept)

    def around(alpha: float) -> tuple[float, float]:
        low, high = usual.bounds(alpha)
        return share * low, share * high + 1.0 - share

    return _narrower("DeLong on the logit scale", plain, around)


def of_gap_of_areas(
    metric: Metric,
    labels: NDArray[Any],
    pair: tuple[NDArray[Any], NDArray[Any]],
    values: tuple[float, ...],
    rng: np.random.Generator,
    folds: Folds | None = None,
) -> tuple[str, Bounds]:
    """Bounds of the difference of two models' areas on the same rows.

    Parameters
    ----------
    metric
        AUROC or Hand–Till.
    labels
        Class numbers, (n,).
    pair
        Both models' probabilities, (n, classes) each.
    values
        Both areas.
    rng
        Draws bootstrap samples.
    folds
        A fold number for every row: areas are means of those within folds; None for a single one.

    Returns
    -------
    tuple
        The method's name, and a function from an error probability to (low, high).
    """
    ranks = [_Ranks(metric, labels, each, value, folds) for each, value in zip(pair, values, strict=True)]
    plain, kept = _ranks_gap(ranks[0], ranks[1], rng), _usual_classes(labels)
    if kept is None:
        return "DeLong, paired", plain
    some = None if folds is None else folds[kept]
    usual = [_of_usual(metric, labels[kept], each[kept], some) for each in pair]
    gap, share = _ranks_gap(usual[0], usual[1], rng), _share(labels, kept)

    def around(alpha: float) -> tuple[float, float]:
        low, high = gap(alpha)
        return share * low - (1.0 - share), share * high + 1.0 - share

    return _narrower("DeLong, paired", plain, around)


def within(metric: Metric, labels: NDArray[Any], predictions: NDArray[Any], folds: Folds | None) -> float:
    """The score, or the mean of the scores within folds, where every fold was predicted by its own model.

    Parameters
    ----------
    metric
        What scores.
    labels, predictions
        Of all rows.
    folds
        A fold number for every row; None for no folds.

    Returns
    -------
    float
        The score.
    """
    if folds is None:
        return metric(labels, predictions)
    parts = [folds == fold for fold in np.unique(folds)]
    return float(np.mean([metric(labels[part], predictions[part]) for part in parts]))


def every_class_in(folds: Folds, labels: NDArray[Any]) -> bool:
    """Whether every fold has rows of every class that there is: else its areas are those of other pairs."""
    return all(len(np.unique(labels[folds == fold])) == len(np.unique(labels)) for fold in np.unique(folds))


def terms_of(metric: Metric, labels: NDArray[Any], predictions: NDArray[Any]) -> Floats:
    """The rows' contributions to one model's score.

    Parameters
    ----------
    metric
        With known contributions.
    labels, predictions
        Of all rows.

    Returns
    -------
    array
        (n,).
    """
    assert metric.contributions is not None
    wanted = labels.astype(np.intp) if predictions.ndim == 2 else labels
    return np.asarray(metric.contributions(wanted, predictions[None])[0], dtype=np.float64)


def _usual_classes(labels: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Rows of the classes that have enough of them to be ranked; None if all have, or fewer than two.

    Of the areas between a class of one row and the others nothing is known: they may be anything. They are a
    share of all areas, and what is known of the rest bounds their mean.
    """
    codes, counts = np.unique(labels, return_inverse=True, return_counts=True)[1:]
    usual = counts >= _RANKED
    return None if usual.all() or usual.sum() < 2 else np.asarray(usual[codes])


def _share(labels: NDArray[Any], kept: NDArray[np.bool_]) -> float:
    """Of the pairs of classes, those between classes of these rows."""
    some, every = len(np.unique(labels[kept])), len(np.unique(labels))
    return some * (some - 1) / (every * (every - 1))


def _of_usual(
    metric: Metric, labels: NDArray[Any], predictions: NDArray[Any], folds: Folds | None = None
) -> _Ranks:
    with absent_classes():
        return _Ranks(metric, labels, predictions, within(metric, labels, predictions, folds), folds)


def _narrower(method: str, plain: Bounds, around: Bounds) -> tuple[str, Bounds]:
    """The bounds that take rare classes as they are, or those that leave them open."""
    (low, high), (other_low, other_high) = plain(1.0 - LEVEL), around(1.0 - LEVEL)
    if other_high - other_low < high - low:
        return f"{method}, rare classes unknown", around
    return method, plain


class _Ranks:
    """Bounds of an area under the curve, AUROC or Hand–Till, from DeLong's placements.

    On the logit scale, t with Satterthwaite's degrees of freedom. Near 1 a few rows make DeLong's variance
    too small; so the same interval after half a wrongly and half a rightly ranked pair is joined to it.
    """

    def __init__(
        self,
        metric: Metric,
        labels: NDArray[Any],
        predictions: NDArray[Any],
        value: float,
        folds: Folds | None = None,
    ) -> None:
        codes, counts = np.unique(labels, return_inverse=True, return_counts=True)[1:]
        self.value, self.pairs, self.widest = value, int(counts.min()), 2.0 / len(counts)
        if folds is None:
            self.cells, self.terms = codes[:, None], terms_of(metric, labels, predictions)
        else:  # a mean of areas: its terms are those of each, class by class in every fold
            parts = [folds == fold for fold in np.unique(folds)]
            self.cells, self.widest = np.column_stack([codes, folds]), self.widest / len(parts)
            self.terms = np.empty(len(labels))
            for part in parts:
                self.terms[part] = terms_of(metric, labels[part], predictions[part]) / len(parts)
        self.variance, self.freedom, _ = _spread(self.cells, self.terms, widest=self.widest)

    def bounds(self, alpha: float) -> tuple[float, float]:
        """A union of two logit intervals; at 0 or 1 what so many independent pairs allow."""
        low, high = self.plain(alpha)
        if not self.known:
            return low, high
        pulled = (self.value * self.pairs + 0.5) / (self.pairs + 1.0)
        variance = self.variance * pulled * (1.0 - pulled) / (self.value * (1.0 - self.value))
        other = self._logit(pulled, variance, alpha)
        return min(low, other[0]), max(high, other[1])

    def plain(self, alpha: float) -> tuple[float, float]:
        """The logit interval as it is."""
        if self.known:
            return self._logit(self.value, self.variance, alpha)
        # Class by class, so many rows make independent pairs; all of them are ranked right with a
        # probability of at most (true area)^pairs.
        least = float((alpha / 2.0) ** (1.0 / self.pairs))
        if 1e-12 < self.value < 1.0 - 1e-12:  # all pairs tied: no better and no worse than so many allow
            return min(1.0 - least, self.value), max(least, self.value)
        low, high = (least, 1.0) if self.value > 0.5 else (0.0, 1.0 - least)
        return min(low, self.value), max(high, self.value)

    @property
    def known(self) -> bool:
        """Whether there is a variance to speak of: none where every pair is ranked alike."""
        return 1e-12 < self.value < 1.0 - 1e-12 and self.variance > _ROUNDING * self.widest**2

    @property
    def edge(self) -> float:
        """Pairs that are ranked wrong, or right if that is rarer: few mean that the area is skewed."""
        return self.pairs * min(self.value, 1.0 - self.value)

    def _logit(self, centre: float, variance: float, alpha: float) -> tuple[float, float]:
        reach = float(stdtrit(self.freedom, 1.0 - alpha / 2.0))
        wide = reach * np.sqrt(variance) / (centre * (1.0 - centre))
        return float(expit(logit(centre) - wide)), float(expit(logit(centre) + wide))


def _spread(cells: Folds, terms: Floats, *, widest: float) -> tuple[float, float, list[Floats]]:
    """The variance of Σ over cells of the mean term, its degrees of freedom, and the classes' own gaps.

    Cells (rows, 1 or 2) are classes, or classes in folds, which are taken to scatter alike in all of them.
    Where no cell of a class has two rows there is no spread to be seen: it gets the largest that terms in
    [0, widest] can have.
    """
    total, squares, gaps = 0.0, 0.0, []
    for label in np.unique(cells[:, 0]):
        mine = cells[:, 0] == label
        where, sizes = np.unique(cells[mine, -1], return_inverse=True, return_counts=True)[1:]
        own = terms[mine] - (np.bincount(where, weights=terms[mine]) / sizes)[where]
        freedom, shares = len(own) - len(sizes), float((1.0 / sizes).sum())
        if freedom < 1:
            total += shares * widest**2 / 4.0
            continue
        part = float(own @ own) / freedom * shares
        total, squares = total + part, squares + part**2 / freedom
        gaps.append(own * np.sqrt(shares * len(own)))  # whose mean scatters as much
    return total, (total**2 / squares if squares > 0.0 else 1e6), gaps


def _ranks_gap(one: _Ranks, two: _Ranks, rng: np.random.Generator) -> Bounds:
    """DeLong's paired variance, with the wider of Student's t and the bootstrap-t.

    Where hardly a row is ranked wrong that variance may be next to nothing by luck. There the difference is
    also put together from both scores' own intervals (MOVER), which are not symmetric, as the truth is not.
    """
    gap, terms = one.value - two.value, one.terms - two.terms
    variance, freedom, gaps = _spread(one.cells, terms, widest=2.0 * one.widest)
    scores = class_scores(gaps, rng)
    both = np.sqrt(one.variance * two.variance)
    alike = (one.variance + two.variance - variance) / (2.0 * both) if both > 0.0 else 0.0
    alike = float(np.clip(alike, 0.0, 1.0))
    skewed = min(one.edge, two.edge) < _EDGE or variance <= _ROUNDING * one.widest**2

    def bounds(alpha: float) -> tuple[float, float]:
        down, up = (reach * np.sqrt(variance) for reach in reaches(scores, freedom, alpha))
        if skewed:
            (low, high), (other_low, other_high) = one.plain(alpha), two.plain(alpha)
            down = max(down, _together(one.value - low, other_high - two.value, alike))
            up = max(up, _together(high - one.value, two.value - other_low, alike))
        return float(gap - down), float(gap + up)

    return bounds


def _together(one: float, two: float, alike: float) -> float:
    return float(np.sqrt(max(one**2 + two**2 - 2.0 * alike * one * two, 0.0)))
