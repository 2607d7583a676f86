"""Linear equations for α on the simplex: means of the target = Σ α_i means of source i, up to noise.

The noise is known better than the target's few rows could tell: if the target is the mixture α, its
covariance follows from α and the sources' many rows. So any number of target rows will do, even fewer than
equations.

Uncertainty is that of the *free* solution, held to Σα = 1 but not to α ≥ 0. It is regular everywhere, so its
intervals are right also where α* lies on the edge of the simplex, as it often does. What α ≥ 0 would add is
used one source at a time and no further: intervals are honest, at times wider than they could be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import nnls
from scipy.special import fdtri, stdtrit

from mixtree.simplex import Mixture, as_mixture, uniform_mixture

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Of every interval here."""
VAGUE = "these rows say next to nothing about the weight of"
"""How a note begins that names sources whose interval is nearly all of [0, 1]."""

# Weakest information about a direction of α that is believed, as 1 / variance: a standard deviation of 10 is
# an interval of [0, 1] anyway, and keeps sources that cannot be told apart from dividing by zero.
_WEAKEST = 0.01
_JITTER = 1e-6  # of the moments' average variance: one-hot columns that sum to 1 make them dependent
_WIDER = 1.05  # than if all means were normal: those of rare values are skewed
_ROUNDS = 3  # of weighing the equations at α, then solving for α


@dataclass(frozen=True, eq=False, slots=True)
class Estimate:
    """An estimated mixture and how sure it is.

    Attributes
    ----------
    alpha
        α̂, on the simplex, (K,).
    covariance
        Of ``free``, (K, K): entries in the tens mean that nothing is known.
    low, high
        95 % intervals of each weight, right if the target is in the sources' hull.
    method
        The name of the method.
    n
        The target's rows.
    notes
        What a reader should know, in words.
    free
        The solution held to Σα = 1 but not to α ≥ 0.
    """

    alpha: Mixture
    covariance: Floats
    low: Floats
    high: Floats
    method: str
    n: int
    notes: tuple[str, ...]
    free: Floats

    def distance(self, alpha: Mixture) -> float:
        """How much worse this mixture explains the target than the best one: a likelihood ratio, about χ²."""
        beta = _tangent(len(self.alpha)).T
        if not len(beta):
            return 0.0
        factor = scipy.linalg.cho_factor(beta @ self.covariance @ beta.T)

        def squared(point: Mixture) -> float:
            gap = beta @ (point - self.free)
            return float(gap @ scipy.linalg.cho_solve(factor, gap))

        metric = beta.T @ scipy.linalg.cho_solve(factor, beta)
        best = on_simplex(metric, metric @ self.free)
        return max(0.0, squared(as_mixture(alpha, sources=len(self.alpha))) - squared(best))

    def contains(self, alpha: Mixture) -> bool:
        """Whether the mixture lies in the joint 95 % region of all weights together."""
        freedom = len(self.alpha) - 1
        if freedom == 0:
            return True
        limit = _WIDER**2 * freedom * float(fdtri(freedom, _freedom(self.n), LEVEL))
        return self.distance(alpha) <= limit


@dataclass(frozen=True, eq=False, slots=True)
class Summary:
    """Means of q functions on K sources, and how far they scatter.

    Attributes
    ----------
    means
        (q, K).
    covariances
        Of single rows, (K, q, q); for a source of few rows mostly ``pooled``.
    sizes
        Rows behind the means, (K,).
    pooled
        Covariance of the rows of all sources around their own means, (q, q).
    """

    means: Floats
    covariances: Floats
    sizes: Floats
    pooled: Floats

    def equations(self, target: Floats, share: Floats) -> Equations:
        """With the functions' values on the target (rows × q) and its row weights, which sum to 1."""
        rows = 1.0 / float(share @ share)
        return Equations(self.means, self.covariances, self.sizes, self.pooled, share @ target, rows)

    def part(self, source: int, combine: Floats, borrowed: Floats) -> Part:
        """One source in terms of combinations of the functions, without a look at its rows.

        Parameters
        ----------
        source
            Its number.
        combine
            The combinations, (q, c).
        borrowed
            The pooled covariance of the combinations, (c, c), which is taken out again.

        Returns
        -------
        Part
            Mean, covariance and size of the source.
        """
        q, size = len(self.means), float(self.sizes[source])
        scatter = combine.T @ self.covariances[source] @ combine
        return Part(
            combine.T @ self.means[:, source], ((size + q - 1.0) * scatter - q * borrowed) / size, size
        )


@dataclass(frozen=True, eq=False, slots=True)
class Equations(Summary):
    """A summary of the sources with the means of the target, of ``n`` rows."""

    target: Floats  # (q,)
    n: float

    def noise(self, alpha: Mixture) -> Floats:
        """Covariance of target − Σ α_i means_i if the target is this mixture: its rows' and the sources'."""
        apart = self.means - (self.means @ alpha)[:, None]
        covariance: Floats = (apart * (alpha / self.n)) @ apart.T
        covariance += mixed(alpha / self.n + alpha**2 / self.sizes, self.covariances)
        covariance.ravel()[:: len(covariance) + 1] += _JITTER * covariance.trace() / len(covariance) + 1e-12
        return covariance

    def around(self, alpha: Mixture) -> Mixture:
        """α with two rows' worth of uniform: a source with α̂_i = 0 still counts in the noise."""
        mixed: Mixture = (self.n * alpha + 2.0 / len(alpha)) / (self.n + 2.0)
        return mixed


@dataclass(frozen=True, eq=False, slots=True)
class Solution:
    """α of some equations: on the simplex, and free with its covariance."""

    alpha: Mixture
    free: Floats
    covariance: Floats


# LAPACK is called directly: for matrices of ten rows the checks of numpy and scipy take longer than the work.


def inverse(matrix: Floats) -> Floats:
    """Of a positive definite matrix."""
    factor, problem = lapack.dpotrf(matrix, lower=1)
    if problem:
        return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
    half, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    whole: Floats = half + half.T
    whole.ravel()[:: len(whole) + 1] *= 0.5
    return whole


def root_of_inverse(covariance: Floats) -> Floats:
    """R with R·covariance·Rᵀ = 1, for a positive definite one."""
    factor, problem = lapack.dpotrf(covariance, lower=1)
    if problem:
        return np.linalg.inv(np.linalg.cholesky(covariance))
    root: Floats = lapack.dtrtri(factor, lower=1, overwrite_c=1)[0]
    return root


def root_of(covariance: Floats) -> Floats:
    """R with R·Rᵀ = covariance, which may be singular."""
    jitter = 1e-10 * covariance.trace() / len(covariance)
    factor, problem = lapack.dpotrf(covariance + jitter * np.eye(len(covariance)), lower=1)
    if problem:
        values, vectors = np.linalg.eigh(covariance)
        factor = vectors * np.sqrt(np.maximum(values, 0.0))
    root: Floats = factor
    return root


def mixed(weights: Floats, matrices: Floats) -> Floats:
    """Σ weights_i matrices_i."""
    return np.asarray((weights @ matrices.reshape(len(weights), -1)).reshape(matrices.shape[1:]))


class Part(NamedTuple):
    """Mean and covariance of some rows of a source, and how many rows of one weight would say as much."""

    mean: Floats
    scatter: Floats
    size: float

    @classmethod
    def of(cls, table: Floats, share: Floats) -> Part:
        """From function values (rows × q) and row weights that sum to 1."""
        mean = share @ table
        gaps = table - mean
        gaps *= np.sqrt(share)[:, None]
        return cls(mean, gaps.T @ gaps, 1.0 / float(share @ share))

    def joined(self, other: Part, share: float) -> Part:
        """With other rows of the source, these having so much of the weight of all."""
        rest = 1.0 - share
        between = np.outer(share * rest * (self.mean - other.mean), self.mean - other.mean)
        return Part(
            share * self.mean + rest * other.mean,
            share * self.scatter + rest * other.scatter + between,
            1.0 / (share**2 / self.size + rest**2 / other.size),
        )


def summarise(parts: Sequence[Part]) -> Summary:
    """Of the sources, each looked at in one part."""
    means, sizes = np.stack([part.mean for part in parts], axis=1), np.array([part.size for part in parts])
    scatter = np.stack([part.scatter for part in parts])
    # A source of few rows borrows its covariance from all of them, as if q more rows were theirs.
    q = len(means)
    pooled = mixed(sizes, scatter) / max(sizes.sum() - len(sizes), 1.0)
    scatter *= sizes[:, None, None]  # in place: of hundreds of sources they fill hundreds of megabytes
    scatter += q * pooled
    scatter /= (sizes + q - 1.0)[:, None, None]
    return Summary(means, scatter, sizes, pooled)


def solve(equations: Equations) -> Solution:
    """Generalised least squares on the simplex, weighed by the noise that α itself implies."""
    sources = len(equations.sizes)
    plane, alpha = _tangent(sources), uniform_mixture(sources)
    for _ in range(_ROUNDS):
        weight = inverse(equations.noise(equations.around(alpha)))
        gram = equations.means.T @ weight @ equations.means
        right = equations.means.T @ weight @ equations.target
        # The sources' own sampling noise makes them look further apart than they are, by this much.
        apart = equations.covariances.reshape(sources, -1) @ weight.ravel() / equations.sizes
        # Only so much of it is taken off that the equations still tell the sources apart: half the smallest
        # eigenvalue of gram relative to the correction, along the plane Σα = 1.
        taken = (plane.T * apart) @ plane
        total, share = float(taken.trace()), 0.0
        if plane.size and total > 0.0:
            taken.ravel()[:: len(taken) + 1] += 1e-12 * total
            values, _, problem = lapack.dsygv(plane.T @ gram @ plane, taken, jobz="N")
            share = 0.0 if problem else min(max(0.5 * float(values[0]), 0.0), 1.0)
        gram = gram - share * np.diag(apart)
        # A weak pull to uniform, as of a prior with standard deviation 1/√K, for what the rows do not say.
        alpha = on_simplex(gram + sources * np.eye(sources), right + 1.0)
    free, covariance = free_solution(gram, right)
    return Solution(alpha, free, covariance)


def free_solution(gram: Floats, right: Floats) -> tuple[Floats, Floats]:
    """argmin αᵀ·gram·α − 2·right·α over Σα = 1, and its covariance gram⁻¹ along that plane."""
    sources = len(right)
    plane = _tangent(sources)
    centre = uniform_mixture(sources)
    values, vectors = np.linalg.eigh(plane.T @ gram @ plane)
    inverse = (vectors / np.maximum(values, _WEAKEST)) @ vectors.T
    covariance: Floats = plane @ inverse @ plane.T
    free: Floats = centre + covariance @ (right - gram @ centre)
    return free, covariance


def on_simplex(gram: Floats, right: Floats) -> Mixture:
    """argmin αᵀ·gram·α − 2·right·α over the simplex, exactly.

    With gram = LᵀL and right = Lᵀb this is the point of the hull of L's columns that is nearest to b.
    """
    # Mostly it is the one on the plane Σα = 1.
    factor, both, problem = lapack.dposv(gram, np.stack([right, np.ones_like(right)], axis=1))
    pivots = factor.diagonal()
    if not problem and pivots.min() > 1e-6 * pivots.max():
        free, towards = both.T
        inside: Mixture = free + towards * ((1.0 - free.sum()) / towards.sum())
        if inside.min() >= 0.0:
            return inside
    values, vectors = np.linalg.eigh(gram)
    roots = np.sqrt(np.maximum(values, 1e-12 * max(float(values[-1]), 1e-300)))
    return nearest_in_hull(roots[:, None] * vectors.T, (vectors.T @ right) / roots)


def nearest_in_hull(corners: Floats, point: Floats) -> Mixture:
    """Weights of the corners (columns) whose mixture comes nearest to the point.

    Non-negative least squares on [C − p1ᵀ; 1ᵀ]α ≈ [0; 1] finds them up to scale: for α = tβ with β on the
    simplex and the best t, the residual grows with ‖Cβ − p‖.
    """
    edges = corners - point[:, None]
    size = float(np.abs(edges).max())
    if size == 0.0 or corners.shape[1] == 1:
        return uniform_mixture(corners.shape[1])
    system, wanted = np.ones((len(edges) + 1, corners.shape[1])), np.zeros(len(edges) + 1)
    np.divide(edges, size, out=system[:-1])
    wanted[-1] = 1.0
    weights, _ = nnls(system, wanted)
    nearest: Mixture = weights / weights.sum()
    return nearest


def intervals(free: Floats, deviation: Floats, n: int) -> tuple[Floats, Floats]:
    """95 % intervals on [0, 1] of weights whose free estimates are normal: a likelihood ratio, never empty.

    All a in [0, 1] with (free − a)² − (free − nearest)² ≤ t²·deviation², ``nearest`` being the number in
    [0, 1] that is nearest to free. The deviation follows from an α that n rows have estimated: t is
    Student's, 5 % wider for means that are not quite normal.

    Parameters
    ----------
    free
        Estimates that may lie outside [0, 1].
    deviation
        Their standard deviations.
    n
        The target's rows; 0 if not known.

    Returns
    -------
    tuple
        Lower ends, upper ends.

    Examples
    --------
    >>> low, high = intervals(np.array([0.3, -0.1]), np.array([0.05, 0.05]), n=1000)
    >>> low.round(2), high.round(2)
    (array([0.2, 0. ]), array([0.4 , 0.04]))
    """
    student = _WIDER * float(stdtrit(_freedom(n), 0.5 + LEVEL / 2.0))
    reach = np.sqrt((student * deviation) ** 2 + (free - np.clip(free, 0.0, 1.0)) ** 2)
    return np.clip(free - reach, 0.0, 1.0), np.clip(free + reach, 0.0, 1.0)


def _freedom(n: int) -> float:
    """Degrees of freedom of a scale estimated from n rows; an unknown n (0) takes the scale as known."""
    return max(n - 1.0, 1.0) if n else 1e9


def as_estimate(
    solution: Solution,
    *,
    method: str,
    n: int,
    names: tuple[str, ...],
    notes: tuple[str, ...] = (),
) -> Estimate:
    """A solution with its intervals, and with notes where it says little.

    Parameters
    ----------
    solution
        α on the simplex, and free with its covariance.
    method
        The method's name.
    n
        The target's rows; 0 if not known.
    names
        The sources' names.
    notes
        Notes that come first.

    Returns
    -------
    Estimate
        With 95 % intervals that contain ``solution.alpha``.
    """
    alpha, free, covariance = solution.alpha, solution.free, solution.covariance
    low, high = intervals(free, np.sqrt(np.maximum(np.diag(covariance), 0.0)), n)
    # All weights together may want a value that one weight alone would not: keep it inside its interval.
    low, high = np.minimum(low, alpha), np.maximum(high, alpha)
    vague = [name for name, width in zip(names, high - low, strict=True) if width > 0.9]
    if vague:
        which = ", ".join(vague) if len(vague) <= 5 else f"{len(vague)} of the {len(names)} sources"
        notes = (*notes, f"{VAGUE} {which}")
    if 0 < n < 20:
        notes = (*notes, f"only {n} target rows: the intervals' 95 % is not to be relied on")
    return Estimate(alpha, covariance, low, high, method, n, notes, free)


@cache
def _tangent(sources: int) -> Floats:
    """Orthonormal columns that span the directions in which Σα does not change."""
    corners = np.hstack([np.ones((sources, 1)), np.eye(sources)[:, : sources - 1]])
    basis: Floats = np.linalg.qr(corners)[0][:, 1:]
    return basis
