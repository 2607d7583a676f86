"""α* by matching moments of (x, y): closed form, no model, no training."""

from __future__ import annotations

import numpy as np

from mixtree._native.threads import one_thread
from mixtree.data.sources import Rows, Sources
from mixtree.estimate.moments import Prepared, Target, prepare
from mixtree.estimate.solve import Estimate, Floats, as_estimate, solve

_ROOM = 12_000_000  # numbers that are worth keeping until the verdict: 96 MB


@one_thread()
def match_moments(
    sources: Sources, *, joint: bool = True, moments: int | None = None, seed: int = 0
) -> Estimate:
    """The mixture whose means of x, y and x·y come nearest to those of the validation rows.

    Generalised least squares on the simplex, weighed by the covariance that the mixture itself implies; see
    :mod:`mixtree.estimate.solve`. y enters as class indicators, in a regression as y and y². Consistent if
    the target is in the hull of the sources; check with :func:`mixtree.estimate.hull_test`. Row weights are
    respected: a source is its rows in the proportions of their weights.

    Parameters
    ----------
    sources
        The K sources and the validation rows, which stand for the target.
    joint
        False matches x alone, a baseline that is known to be wrong: sources that differ in p(y | x) but not
        in p(x) look the same to it, however many rows there are.
    moments
        The most means that are matched; by default up to 120, from up to 5,000 rows per source.
    seed
        Draws rows where a source has more.

    Returns
    -------
    Estimate
        α̂ with its covariance and intervals.

    References
    ----------
    Hansen, Large Sample Properties of Generalized Method of Moments Estimators, Econometrica 1982.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> problem = synthetic(alpha=[0.7, 0.2, 0.1], validation=400, test=1)
    >>> match_moments(problem.sources).alpha.round(1)
    array([0.7, 0.2, 0.1])
    """
    prepared = prepare(sources, joint=joint, moments=moments, seed=seed)
    return match_prepared(prepared, sources.validation, names=sources.names)


class Matching:
    """The estimate of :func:`match_moments`, with the moments that it comes from, so that they can be reused.

    Where the moments' values are more than 12 million numbers (60 sources, or six of 20,000 rows and a target
    of thousands) only the estimate is kept.
    """

    @one_thread()
    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        prepared = prepare(sources)
        target = prepared.of(sources.validation)
        self.estimate = match_prepared(prepared, target, names=sources.names)
        kept = sum(table.size for table in prepared.tables) <= _ROOM
        self.prepared: Prepared | None = prepared if kept else None
        self.target: Target | None = target if kept else None


def match_prepared(prepared: Prepared, target: Rows | Target, *, names: tuple[str, ...]) -> Estimate:
    """As :func:`match_moments`, with the sources' part done before: for many targets of one set of sources.

    The weights of least squares come down to K − 1 combinations of the moments, those that tell the sources
    apart. One half of every source's rows computes them for the other half, on which they are averaged.

    Parameters
    ----------
    prepared
        The sources' moments.
    target
        Labelled rows of the target, or what ``prepared.of`` made of them.
    names
        The sources' names, for notes.

    Returns
    -------
    Estimate
        α̂ with its covariance and intervals.
    """
    given = prepared.of(target)
    table, share = given.table, given.share
    around = given.equations.around(given.solution.alpha)
    combinations: list[Floats] = []  # (q, K − 1) of the moments, by the weights of generalised least squares
    for half in prepared.halves:
        equations = half.equations(table, share)
        apart = equations.means - equations.means.mean(axis=1, keepdims=True)
        combine = np.linalg.solve(equations.noise(around) * equations.n, apart)
        combinations.append(combine[:, : max(1, len(around) - 1)])
    one, two = combinations
    combined = prepared.combined((two, one))
    solution = solve(combined.equations(table @ ((one + two) / 2.0), share))
    joint = prepared.basis.labels is not None
    notes = prepared.notes(names)
    if not joint:
        notes = (*notes, "x alone was matched: what y says about the sources was not used")
    return as_estimate(
        solution,
        method="joint moments" if joint else "moments of x",
        n=len(given.rows),
        names=names,
        notes=notes,
    )
