"""How sure the mixture is: intervals of its weights, mixtures that do as well, sources that add nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import factorial, isfinite

import numpy as np

from mixtree.errors import InputError
from mixtree.estimate.hull import HullTest
from mixtree.estimate.solve import VAGUE, Estimate, intervals
from mixtree.simplex import Mixture

NOTHING = 0.05
"""A source whose weight is surely below this adds nothing to the target."""

NAMED = 6
"""Sources that are spoken of one by one; of more it is said how many they are."""

_UNKNOWN = 0.25  # standard deviation of a weight from which it is as good as unknown
_KNOWN = 0.1  # the same of a sum of weights, up to which it is known
_WIDE = 0.6  # interval of a weight from which it is as good as unknown
_MOST = 0.8  # of a gain
_WORTH = "attribution 'loo' shows whether training on its rows helps all the same"


@dataclass(frozen=True, slots=True)
class Weight:
    """A source's weight in the returned mixture, and the 95 % interval of its weight in the target."""

    weight: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MixtureUncertainty:
    """The returned mixture and what the target's rows say about every weight.

    Attributes
    ----------
    weights
        By source, with 95 % intervals.
    flat
        For every source the least and the largest weight among the mixtures that do as well as the best,
        within a standard error; None if one model was tried.
    as_good
        How many mixtures (not models) do as well as the best.
    interchangeable
        Groups of sources of which only the sum of weights is known.
    adding_nothing
        Sources whose weight in the target is surely below 0.05.
    notes
        The same in words.
    """

    weights: dict[str, Weight]
    flat: dict[str, tuple[float, float]] | None
    as_good: int
    interchangeable: tuple[tuple[str, ...], ...]
    adding_nothing: tuple[str, ...]
    notes: tuple[str, ...]


def mixture_uncertainty(
    weights: Mapping[str, float],
    estimate: Estimate | None = None,
    *,
    tried: Sequence[Mixture] = (),
    values: Sequence[float] = (),
    standard_errors: Sequence[float] = (),
    explained: bool | None = True,
) -> MixtureUncertainty:
    """The uncertainty of the returned weights from an estimate of α* and a tree's values.

    Parameters
    ----------
    weights
        The returned mixture, by source. Weights beyond the estimate's sources (the target's own rows) have no
        interval but their own value.
    estimate
        α̂ with its intervals; None if there is none.
    tried, values, standard_errors
        Mixtures of the evaluated nodes, their objective values (smaller is better) and how sure those are.
    explained
        Whether a mixture explains the target by the hull test; None where it cannot tell.

    Returns
    -------
    MixtureUncertainty
        Intervals, flatness, interchangeable sources and notes.

    Raises
    ------
    InputError
        If there is no source, or not one value and standard error per mixture.
    """
    names = tuple(weights)
    if not names:
        raise InputError("a mixture needs at least one source")
    if len(tried) != len(values) or len(values) != len(standard_errors):
        raise InputError(
            f"{len(tried)} mixtures, {len(values)} values and {len(standard_errors)} standard errors: "
            "give one of each per node"
        )
    finite = [place for place, value in enumerate(values) if isfinite(value)]
    flat, as_good = None, len(finite)
    if len(finite) > 1:
        best = min(finite, key=lambda place: values[place])
        margin = standard_errors[best] if isfinite(standard_errors[best]) else 0.0
        close = np.array(
            [tried[place][: len(names)] for place in finite if values[place] <= values[best] + margin]
        )
        as_good = len({mixture.tobytes() for mixture in close})
        if close.shape[1] == len(names):
            ranges = zip(close.min(axis=0).tolist(), close.max(axis=0).tolist(), strict=True)
            flat = dict(zip(names, ranges, strict=True))
    low = dict.fromkeys(names, 0.0)
    high = dict.fromkeys(names, 1.0)
    known: tuple[str, ...] = ()
    if len(names) == 1:
        low[names[0]] = 1.0
    elif estimate is not None:
        known = names[: len(estimate.alpha)]
        for name, least, most in zip(known, estimate.low, estimate.high, strict=True):
            low[name], high[name] = float(least), float(most)
    for name in names[len(known) :] if known else ():
        low[name] = high[name] = float(weights[name])
    rows = {name: Weight(float(weights[name]), low[name], high[name]) for name in names}
    together = () if estimate is None else interchangeable(known, estimate)
    nothing = tuple(name for name in known if high[name] < NOTHING)
    notes = _notes(rows, known, flat, as_good, together, nothing, estimate, explained=explained)
    return MixtureUncertainty(rows, flat, as_good, together, nothing, notes)


def interchangeable(names: Sequence[str], estimate: Estimate) -> tuple[tuple[str, ...], ...]:
    """Groups of sources between which the target's rows cannot choose, though they know their sum.

    Sources whose weight is not known are put together, those first whose weights make up for each other most
    (the most negative correlation), until the sum of every group is known. That of all sources always is.
    """
    covariance = np.array(estimate.covariance, dtype=np.float64)
    # That all of them are at least 0 and add up to 1 may tell of a weight what its deviation does not.
    unknown = np.sqrt(np.maximum(np.diag(covariance), 0.0)) >= _UNKNOWN
    unknown &= np.asarray(estimate.high) - np.asarray(estimate.low) >= _WIDE
    groups = [[place] for place in range(len(covariance))]
    while True:
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        open_ = np.flatnonzero(deviation > _KNOWN)
        if len(open_) < 2:
            break
        among = covariance[np.ix_(open_, open_)] / np.outer(deviation[open_], deviation[open_])
        among[np.tril_indices(len(open_))] = np.inf
        one, two = open_[list(np.unravel_index(among.argmin(), among.shape))].tolist()
        groups[one] += groups.pop(two)
        covariance[one] += covariance[two]
        covariance[:, one] += covariance[:, two]
        covariance = np.delete(np.delete(covariance, two, axis=0), two, axis=1)
    sums = np.diag(covariance) <= _KNOWN**2
    found = [sorted(group) for group, known in zip(groups, sums, strict=True) if known and len(group) > 1]
    return tuple(tuple(names[place] for place in group) for group in sorted(found) if unknown[group].all())


def _notes(
    rows: Mapping[str, Weight],
    known: Sequence[str],
    flat: Mapping[str, tuple[float, float]] | None,
    as_good: int,
    together: Sequence[Sequence[str]],
    nothing: Sequence[str],
    estimate: Estimate | None,
    *,
    explained: bool | None,
) -> tuple[str, ...]:
    if len(rows) == 1:
        return ("there is one source: there is no mixture to choose",)
    notes = [] if estimate is None else list(estimate.notes)
    if flat is not None and as_good > 1:
        widest = max(flat, key=lambda name: flat[name][1] - flat[name][0])
        least, most = flat[widest]
        if most - least > 0.1:
            notes.append(
                f"{as_good} of the mixtures tried do as well as the best within a standard error; among them "
                f"{widest} has {least:.2f} to {most:.2f}"
            )
    for group in together:
        if len(group) == len(rows):  # their sum is 1, whatever the rows are
            notes = [note for note in notes if not note.startswith(VAGUE)]  # which says the same
            notes.append("by the means of these rows all sources are interchangeable: the split is not known")
            continue
        assert estimate is not None  # which the groups come from
        inside = np.isin(known, group).astype(np.float64)
        deviation = np.sqrt(np.maximum(inside @ estimate.covariance @ inside, 0.0))
        lows, highs = intervals(np.atleast_1d(inside @ estimate.free), np.atleast_1d(deviation), estimate.n)
        notes.append(
            f"by the means of these rows {listed(group)} are interchangeable: the sum of their weights is "
            f"{lows[0]:.2f} to {highs[0]:.2f}, the split is not known"
        )
    if explained is False:  # what a source weighs in the nearest mixture says nothing about its worth then
        return tuple(notes)
    # Of a target that may be no mixture of the sources a weight says nothing for sure.
    start = "" if explained else "if a mixture explains the target's rows, "
    if len(nothing) > NAMED:
        most = max(rows[name].high for name in nothing)
        notes.append(
            f"{start}{listed(nothing)} add nothing to the target: the weight of each in it is below "
            f"{most:.3f}; {_WORTH}"
        )
        nothing = ()
    for name in nothing:
        notes.append(
            f"{start}{name} adds nothing to the target: its weight in it is below {rows[name].high:.3f}; "
            f"{_WORTH}"
        )
    if not any(each.weight for each in rows.values()):  # trained on the target's own rows alone
        return tuple(notes)
    odd = {name: max(each.low - each.weight, each.weight - each.high) for name, each in rows.items()}
    others = [name for name in known if odd[name] > 0.005]  # else they are shown as the same
    for name in sorted(others, key=lambda name: -odd[name])[:NAMED] if len(others) > NAMED else others:
        each = rows[name]
        notes.append(
            f"{name} was trained with weight {each.weight:.2f}, but the target's rows say "
            f"{each.low:.2f} to {each.high:.2f} if a mixture explains them"
        )
    if len(others) > NAMED:
        notes.append(f"the same holds, by less, for {len(others) - NAMED} more sources")
    return tuple(notes)


def listed(names: Sequence[str]) -> str:
    """All of a few names, of many the first."""
    if len(names) <= NAMED:
        return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"{len(names)} sources ({', '.join(names[:3])} …)"


def hull_words(
    test: HullTest | None,
    *,
    tuned: bool = True,
    tried: bool = False,
    gained: bool = True,
    share: float | None = None,
    rest: str = "the mixture",
) -> str:
    """Whether the target is a mixture of the sources, in plain words.

    Parameters
    ----------
    test
        The hull test; None if there was none.
    tuned
        Whether the model was trained on the target's own rows.
    tried
        Whether that was tried and did not help.
    gained
        Whether the model is known to be better than any reference.
    share
        Share of that gain which training on the target's rows brought; None if it is not known.
    rest
        Where the other gains come from.

    Returns
    -------
    str
        One sentence without its full stop.
    """
    if test is None:
        return "whether a mixture can serve this target was not tested"
    if not test.moments:
        return test.words[:1].lower() + test.words[1:].removesuffix(".")
    chance = f"{'p < 0.001' if test.p < 0.0005 else f'p = {test.p:.3f}'} on {test.n} rows"
    if test.inside is None:
        more = (
            # Two digits: more would claim a precision that it does not have.
            f"about {float(f'{test.rows_needed:.2g}'):,.0f} target rows in all would decide it"
            if test.rows_needed is not None
            else "no number of target rows would decide it: the sources' own means are not known well enough"
        )
        return f"these rows cannot tell whether a mixture can serve this target ({chance}): {more}"
    if test.inside:
        return (
            "a mixture can serve this target, as far as the means of the columns and labels of these rows "
            f"and of their products can tell ({chance})"
        )
    start = f"no mixture reproduces your target ({chance})"
    if tuned:
        own = f"{'the' if gained else 'any'} gain comes from your own rows"
        if gained and share is not None and share < _MOST:
            part = f"about {max(share, 0.0):.0%} of the gain comes from your own rows"
            return f"{start}; {part}, the rest from {rest}"
        return f"{start}; {own}"
    if tried:
        return f"{start}; training on your own rows was tried and did not help"
    return f"{start}; what is missing can only come from your own rows, on which this model was not trained"


def shapley(names: Sequence[str], worth: Callable[[frozenset[str]], float]) -> dict[str, float]:
    """Each source's share of the worth of all: its average addition over every order of adding sources.

    φ_i = Σ_S |S|! (K − |S| − 1)! / K! · (v(S ∪ {i}) − v(S)) over the subsets S without i.

    Parameters
    ----------
    names
        The K sources, at most 10.
    worth
        v, called once per subset: 2^K times.

    Returns
    -------
    dict
        φ by source; they add up to v(all) − v(none).

    References
    ----------
    Shapley, A Value for n-Person Games, 1953.

    Examples
    --------
    >>> shapley(["a", "b"], lambda some: float(len(some) == 2))
    {'a': 0.5, 'b': 0.5}
    """
    count = len(names)
    if not 1 <= count <= 10:
        raise InputError(f"Shapley values are exact for 1 to 10 sources; there are {count}")
    subsets = [frozenset(some) for size in range(count + 1) for some in combinations(names, size)]
    known = {some: worth(some) for some in subsets}
    return {
        name: sum(
            factorial(len(some)) * factorial(count - len(some) - 1) * (known[some | {name}] - known[some])
            for some in subsets
            if name not in some
        )
        / factorial(count)
        for name in names
    }
