"""Areas under curves count pairs: how often a row of one class ranks above one of another.

One sort of a column of scores and a running count of the positive rows give, for every row, how many
positives lie below it (ties count half), hence all pairs with every class. After the sort compiled code goes
over the rows once, numpy thirty times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mixtree._native import compiled

Floats: TypeAlias = NDArray[np.float64]
Array: TypeAlias = NDArray[Any]

_BLOCK = 1 << 14
"""Scores ranked in one go: the working arrays stay in cache, and memory stays bounded."""

_WORTH_PACKING = 1_000
"""Scores from which sorting them in another form is worth the calls that it takes."""


def areas(scores: Array, y: Array, positive: int, counts: Array) -> Floats:
    """A(positive | j): how often a row of the positive class ranks above one of class j, ties counting half.

    Parameters
    ----------
    scores : array (B, n)
        Of the positive class, by B models.
    y : array (n,)
        The rows' classes.
    positive : int
        The class whose rows should rank high.
    counts : array (classes,)
        Rows of each class.

    Returns
    -------
    array (B, classes)
    """
    sums = np.zeros((len(scores), len(counts)))
    _ranked(compiled.add_pairs or _add_pairs, scores, y, positive, counts, sums)
    # Sums of whole numbers are exact, so a model's area does not depend on the models beside it.
    twice = 2.0 * counts[positive] * counts
    return np.asarray((twice - sums) / twice)


def add_terms(terms: Floats, scores: Array, y: Array, positive: int, counts: Array) -> None:
    """Adds DeLong's placements (B, n): each row's share of the areas of the positives against other classes.

    A positive row's term is the sum over the other classes of the fraction of them below it; another row's
    term is the fraction of the positives above it.

    Parameters
    ----------
    terms : array (B, n)
        What is added to.
    scores, y, positive, counts
        As for ``areas``.
    """
    _ranked(compiled.add_area_terms or _add_area_terms, scores, y, positive, counts, terms)


def _ranked(
    add: Callable[..., None], scores: Array, y: Array, positive: int, counts: Array, sums: Floats
) -> None:
    """Has something added to the sums, in blocks of models that stay in cache."""
    own, shares = np.zeros(len(counts)), 1.0 / counts
    own[positive], shares[positive] = 1.0, 0.0
    labels = np.ascontiguousarray(y, dtype=np.int64)
    block = max(1, _BLOCK // len(y))
    for part in (slice(start, start + block) for start in range(0, len(scores), block)):
        some = np.ascontiguousarray(scores[part], dtype=np.float64)
        add(some, _order(some), labels, own, shares, sums[part])


def _order(scores: Floats) -> NDArray[np.int64]:
    """The rows of every line by rising score, in any order inside a tie.

    Probabilities of 32 bits, as networks give them, are sorted with their row in one word: numpy then takes a
    third of the time. Their bits rise with them, but for a sign.
    """
    if scores.size >= _WORTH_PACKING:
        with np.errstate(over="ignore", under="ignore"):
            short = scores.astype(np.float32)
        bits = short.view(np.int32)
        if bits.min() >= 0 and (short == scores).all():
            words = bits.astype(np.int64)
            words <<= 32
            words |= np.arange(scores.shape[1])
            words.sort(axis=1)
            words &= 0xFFFFFFFF
            return words
    # The default sort, unstable and vectorised, is the fastest.
    return scores.argsort(axis=1).astype(np.int64, copy=False)


def _add_area_terms(
    scores: Floats, order: Array, labels: Array, own: Floats, shares: Floats, terms: Floats
) -> None:
    """``own`` is 1 for the positive class, ``shares`` a weight for the others; both are 0 elsewhere."""
    member, weights = own.take(labels.take(order)), shares.take(labels.take(order))
    starts = _ties(scores, order)
    above = 1.0 - _twice_below(member, starts) / 2.0 / own.take(labels).sum()
    # Products with 1 and 0: to choose by flags in random order takes longer.
    ranked = member * (_twice_below(weights, starts) / 2.0) + (1.0 - member) * above
    terms.ravel()[_flat(order)] += ranked.ravel()


def _add_pairs(
    scores: Floats, order: Array, labels: Array, own: Floats, shares: Floats, sums: Floats
) -> None:
    """For every class, twice the pairs of its rows with a positive below."""
    below = _twice_below(own.take(labels.take(order)), _ties(scores, order))
    cell = labels.take(order) + np.arange(0, sums.size, sums.shape[1])[:, None]
    pairs = np.bincount(cell.ravel(), weights=below.ravel(), minlength=sums.size)
    sums += pairs.reshape(sums.shape)


def _flat(order: Array) -> Array:
    return (order + np.arange(0, order.size, order.shape[1])[:, None]).ravel()


def _ties(scores: Floats, order: Array) -> Array | None:
    """Where, of (B, n) in rising order, a score begins; None if no two are the same."""
    ranked = scores.ravel().take(_flat(order)).reshape(order.shape)
    new = np.ones(order.shape, dtype=np.bool_)
    np.not_equal(ranked[:, 1:], ranked[:, :-1], out=new[:, 1:])
    return None if new.all() else np.flatnonzero(new)


def _twice_below(weights: Floats, starts: Array | None) -> Floats:
    """Twice the weight below each place of a ranked (B, n) array, half of its tied group's included."""
    total = weights.cumsum(axis=1)
    if starts is None:
        return np.asarray(2.0 * total - weights)
    ends = np.append(starts[1:], weights.size) - 1
    flat = total.ravel()
    group = flat[starts] - weights.ravel()[starts] + flat[ends]
    return np.repeat(group, ends - starts + 1).reshape(weights.shape)
