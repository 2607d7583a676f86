"""α* by matching moments of (x, y): closed form, no model, no training."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from mixtree.data.sources import Rows, Sources
from mixtree.estimate.moments import Prepared, prepare, share_of
from mixtree.estimate.solve import Estimate, Floats, as_estimate, describe, solve


def match_moments(
    sources: Sources, *, joint: bool = True, moments: int | None = None, seed: int = 0
) -> Estimate:
    """The mixture whose means of x, y and x·y come nearest to those of the validation rows.

    Generalised least squares on the simplex, weighed by the covariance that the mixture itself implies; see
    :mod:`mixtree.estimate.solve`. y enters as class indicators, in a regression as y and y². Consistent if
    the target is in the hull of the sources; check with :func:`mixtree.estimate.hull_test`. Row weights are
    respected: a source is its rows in the proportions of their weights. At most ``moments`` means are
    matched, by default up to 120 from up to 5,000 rows per source, drawn by ``seed`` where there are more.

    ``joint=False`` matches x alone. It is offered as a baseline that is known to be wrong: sources that
    differ in p(y | x) but not in p(x) look the same to it, whatever the number of rows.

    >>> from mixtree.data.synthetic import synthetic
    >>> problem = synthetic(alpha=[0.7, 0.2, 0.1], validation=400, test=1)
    >>> match_moments(problem.sources).alpha.round(1)
    array([0.7, 0.2, 0.1])
    """
    prepared = prepare(sources, joint=joint, moments=moments, seed=seed)
    return match_prepared(prepared, sources.validation, names=sources.names)


def match_prepared(prepared: Prepared, target: Rows, *, names: tuple[str, ...]) -> Estimate:
    """The same with the sources' part done before: for many targets of one set of sources.

    The weights of least squares come down to K combinations of the moments, those that tell the sources
    apart. They look better than they are on the rows that they were computed from; so one half of every
    source's rows computes them for the other half, and the equations that are solved are those of the other.
    """
    table, share = prepared.table(target), share_of(target)
    alpha = solve(prepared.equations(target)).alpha
    of_sources = [np.empty((len(rows), max(1, len(names) - 1))) for rows in prepared.tables]
    of_target = []
    for fold in (0, 1):
        held = [np.arange(len(rows)) % 2 == fold for rows in prepared.tables]
        combine = _combinations(prepared, held, alpha, table, share)
        for values, rows, mask in zip(of_sources, prepared.tables, held, strict=True):
            values[mask] = rows[mask] @ combine
        of_target.append(table @ combine)
    solution = solve(describe(of_sources, prepared.shares, np.mean(of_target, axis=0), share))
    joint = prepared.basis.labels is not None
    notes = prepared.notes(names)
    if not joint:
        notes = (*notes, "x alone was matched: what y says about the sources was not used")
    return as_estimate(
        solution.alpha,
        solution.free,
        solution.covariance,
        method="joint moments" if joint else "moments of x",
        n=len(target),
        names=names,
        notes=notes,
    )


def _combinations(
    prepared: Prepared, held: list[NDArray[np.bool_]], alpha: Floats, table: Floats, share: Floats
) -> Floats:
    """(q, K − 1) combinations of the moments that generalised least squares uses, from rows not held."""
    learn = [~mask if len(mask) > 1 else np.ones(1, dtype=np.bool_) for mask in held]
    shares = [part[mask] / part[mask].sum() for part, mask in zip(prepared.shares, learn, strict=True)]
    equations = describe(
        [rows[mask] for rows, mask in zip(prepared.tables, learn, strict=True)], shares, table, share
    )
    around = (equations.n * alpha + 2.0 / len(alpha)) / (equations.n + 2.0)
    apart = equations.means - equations.means.mean(axis=1, keepdims=True)
    combine = scipy.linalg.solve(equations.noise(around) * equations.n, apart, assume_a="pos")
    return combine[:, : max(1, len(alpha) - 1)]
