"""α* by matching moments of (x, y): closed form, no model, no training."""

from __future__ import annotations

from mixtree.data.sources import Rows, Sources
from mixtree.estimate.moments import Prepared, prepare
from mixtree.estimate.solve import Estimate, as_estimate, solve


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
    """The same with the sources' part done before: for many targets of one set of sources."""
    solution = solve(prepared.equations(target))
    joint = prepared.basis.labels is not None
    notes = () if joint else ("x alone was matched: what y says about the sources was not used",)
    return as_estimate(
        solution.alpha,
        solution.free,
        solution.covariance,
        method="joint moments" if joint else "moments of x",
        n=len(target),
        names=names,
        notes=notes,
    )
