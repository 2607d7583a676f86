"""α* from models that were trained anyway: every model's target loss is the mixture of its source losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtrit

from mixtree.errors import InputError
from mixtree.estimate.solve import LEVEL, Estimate, Floats, Solution, as_estimate, free_solution, on_simplex


def match_losses(
    source_losses: ArrayLike,
    target_losses: ArrayLike,
    *,
    standard_errors: ArrayLike | None = None,
    rows: int = 0,
    source_rows: ArrayLike | None = None,
    names: Sequence[str] | None = None,
) -> Estimate:
    """The mixture that explains the target losses of many models by their losses on the sources.

    F_te(w) = Σ α*_i F_i(w) holds for every model w if the target is in the hull, so each node of a tree gives
    an equation. Nodes with a loss that is not finite (diverged models) are left out.

    Parameters
    ----------
    source_losses
        F_i(w), (nodes, K), on many rows that the models were not trained on: training losses are too small.
    target_losses
        F_te(w): (nodes, rows), every model's loss on every target row; or (nodes,), means over ``rows`` rows
        with their ``standard_errors``. The first is much better: the same rows judge all models, so their
        errors are correlated, and only losses by row tell how. Without them intervals are for the worst case.
    standard_errors
        Of mean target losses, (nodes,) or one number.
    rows
        How many rows the mean target losses are of; 0 if not known.
    source_rows
        How many rows each source's losses are means of; None takes them as exact.
    names
        The sources' names, for notes.

    Returns
    -------
    Estimate
        α̂ with its covariance and intervals.

    Raises
    ------
    InputError
        If shapes do not fit, or no node has finite losses.

    Examples
    --------
    >>> import numpy as np
    >>> sources = np.array([[0.9, 0.3], [0.5, 0.6], [0.2, 0.8]])
    >>> match_losses(sources, sources @ [0.25, 0.75], standard_errors=[0.01] * 3).alpha.round(2)
    array([0.25, 0.75])
    """
    try:
        means, target = np.asarray(source_losses, np.float64), np.asarray(target_losses, np.float64)
        errors = np.asarray(0.0 if standard_errors is None else standard_errors, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"match_losses: losses must be tables of numbers ({error})") from error
    if means.ndim != 2 or 0 in means.shape:
        raise InputError(f"match_losses: source losses must be (nodes, sources); got shape {means.shape}")
    if target.ndim not in (1, 2) or len(target) != len(means):
        raise InputError(
            f"match_losses: target losses must be (nodes,) or (nodes, rows) with {len(means)} nodes;"
            f" got shape {target.shape}"
        )
    if target.ndim == 2 and target.shape[1] < 2:
        raise InputError(f"match_losses: at least 2 target rows are needed; got {target.shape[1]}")
    if target.ndim == 1 and standard_errors is None:
        raise InputError("match_losses: give the losses by row (nodes, rows), or means with standard_errors")
    if errors.shape not in ((), (len(means),)) or np.any(errors < 0):
        raise InputError(f"match_losses: standard errors must be {len(means)} numbers of at least 0")
    errors = np.broadcast_to(errors, (len(means),))
    finite = np.isfinite(means).all(axis=1) & np.isfinite(target.reshape(len(target), -1)).all(axis=1)
    finite &= np.isfinite(errors)
    if not finite.any():
        raise InputError("match_losses: no node has finite losses on every source and on the target")
    sources = means.shape[1]
    names = tuple(names) if names is not None else tuple(f"source {i}" for i in range(sources))
    if len(names) != sources:
        raise InputError(f"match_losses: {len(names)} names but {sources} sources")
    notes: tuple[str, ...] = ()
    if not finite.all():
        notes = (f"{np.count_nonzero(~finite)} nodes were left out: a loss of theirs is not finite",)
    means, target, errors = means[finite], target[finite], errors[finite]
    if target.ndim == 2:
        n = target.shape[1]
        sizes = np.asarray(np.inf if source_rows is None else source_rows, np.float64)
        if sizes.shape not in ((), (sources,)) or not np.all(sizes >= 1):
            raise InputError(
                f"match_losses: source_rows must be {sources} numbers of at least 1; got {source_rows!r}"
            )
        solution = _by_rows(means, target, np.broadcast_to(sizes, (sources,)))
    else:
        n = rows
        solution = _by_errors(means, target, errors)
        notes = (*notes, "without losses by row the intervals are for the worst case")
    return as_estimate(solution, method="loss matching", n=n, names=names, notes=notes)


def _by_rows(means: Floats, losses: Floats, sizes: Floats) -> Solution:
    """Generalised least squares in a few combinations of the nodes, whose covariance few rows can tell."""
    n = losses.shape[1]
    level = means.mean(axis=1)
    apart = means - level[:, None]
    gaps = losses - level[:, None]  # by row; their means are apart @ α
    telling, values, _ = np.linalg.svd(apart, full_matrices=False)
    telling = telling[:, values > 1e-9 * max(float(values[0]), 1e-300)]
    # Combinations without information on α that correlate with the noise of the others: they reduce it.
    centred = gaps - gaps.mean(axis=1, keepdims=True)
    rest, spread, _ = np.linalg.svd(centred - telling @ (telling.T @ centred), full_matrices=False)
    controls = min(n // 20, np.count_nonzero(spread > 1e-9 * max(float(np.abs(losses).max()), 1e-300)))
    combine = np.hstack([telling, rest[:, :controls]]).T
    noise = combine @ centred @ (combine @ centred).T / (n - 1) / n
    # What using controls that were fitted to the same rows hides, and what few rows leave uncertain.
    hidden = (n - 1) / max(n - controls - 1, 1) * (n - 2) / max(n - controls - 2, 1) if n > 2 else 1.0
    quantile = stdtrit(max(n - controls - 1, 1), (1 + LEVEL) / 2) / ndtri((1 + LEVEL) / 2)
    noise = noise * hidden * quantile**2
    size = max(float(np.trace(noise)) / max(len(noise), 1), (1e-6 * float(np.abs(means).max())) ** 2, 1e-300)
    weight = scipy.linalg.inv(noise + 1e-9 * size * np.eye(len(noise)))
    signal = combine @ apart
    gram, right = signal.T @ weight @ signal, signal.T @ weight @ combine @ gaps.mean(axis=1)
    # Source losses are means as well, of rows that scatter about as much as the target's.
    exact = 1.0 / (1.0 + n * float(_pulled(gram, right) ** 2 @ (1.0 / sizes)))
    free, covariance = free_solution(exact * gram, exact * right)
    return Solution(_pulled(exact * gram, exact * right), free, covariance)


def _by_errors(means: Floats, target: Floats, errors: Floats) -> Solution:
    """Weighted least squares; the errors' correlation is not known, so the worst one is assumed."""
    level = means.mean(axis=1)
    apart = means - level[:, None]
    errors = np.maximum(errors, max(1e-3 * float(errors.max()), 1e-9 * float(np.abs(means).max()), 1e-300))
    gram, right = (apart.T / errors**2) @ apart, (apart.T / errors**2) @ (target - level)
    free, covariance = free_solution(gram, right)
    moves = np.abs(covariance @ (apart.T / errors**2)) @ errors  # of each weight, all errors in one direction
    wider = np.maximum(moves / np.sqrt(np.maximum(np.diag(covariance), 1e-300)), 1.0)
    return Solution(_pulled(gram, right), free, covariance * np.outer(wider, wider))


def _pulled(gram: Floats, right: Floats) -> Floats:
    # The same weak pull to uniform as when moments are matched.
    return on_simplex(gram + len(right) * np.eye(len(right)), right + 1.0)
