"""The theory's constants of a data set, for linear models whose loss is convex: β, μ, L, σ, 𝒢(α), D.

The models are the linear ones: scores x·w (with an intercept), softmax cross-entropy or squared error, and
½·l2·‖w‖² on all weights, intercept included. So f(w; z) = (row weight)·loss(x·w, y) + ½·l2·‖w‖², and F_i is
its mean over the rows of source i. SGD draws rows of the sources, so these are the constants of the very
problem it solves: no constant of an unseen population is guessed.

Every constant comes twice. **sound** is never below the truth, as proved here; **optimistic** looks at
sampled mixtures only and is never above it. (β and μ are exact, the same in both.) With w0 = w*(1/K, …, 1/K):

- β: the largest curvature of a row, c·(row weight)·‖x‖² + l2 with c = 2 (squared error) or ½ (softmax).
  Exact over all w.
- μ: softmax does not change when all classes' weights move together, so exactly l2. Squared error: the
  smallest eigenvalue of a source's Hessian (smallest at a vertex, where the concave λ_min has its minimum
  over α). Exact.
- X, the hull of the optima: ‖w*(α) − w0‖ ≤ ‖∇F_α(w0)‖/μ ≤ r = max_i ‖∇F_i(w0)‖/μ, so X lies in the ball
  (w0, r) of diameter 2r (sound); the largest distance of sampled optima (optimistic).
- 𝒢: max over rows of (‖∇f(w0; z)‖ + β_z·r)², β_z the row's own curvature (sound; for softmax also
  (√2·(row weight)·‖x‖ + l2·(‖w0‖ + r))², if that is less); the largest at sampled optima (optimistic).
- L over the ball: max_i ‖∇F_i(w0)‖ + β_i·r, β_i the curvature of F_i (sound); the largest gradient of an
  F_i at a sampled optimum (optimistic).
- σ² = β²·(diameter of X)² + 𝒢.
- D: one step of SGD with η ≤ 1/β moves ‖w − w0‖ to at most (1 − η·l2)‖w − w0‖ + η‖∇f(w0; z)‖, so no iterate
  of any node leaves the ball of radius R = max(‖start − w0‖, max_z ‖∇f(w0; z)‖/l2): D = R + r (sound); the
  largest distance of the start, or of a sampled optimum, to a sampled optimum (optimistic).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from mixtree._native.threads import one_thread
from mixtree.data.sources import Sources
from mixtree.data.sparse import as_dense, is_sparse
from mixtree.errors import InputError
from mixtree.simplex import as_mixture, uniform_mixture
from mixtree.theory import Constants
from mixtree.trainers.rows import stacked_features

_Floats = NDArray[np.float64]

# To where rounding ends the descent.
_PRECISE: Any = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 30}


@dataclass(frozen=True, slots=True)
class Estimate:
    """The constants of a data set from both sides, with the ball that holds all optima."""

    sound: Constants
    """None is below the truth: what the theorems say of these holds."""
    optimistic: Constants
    """None is above the truth: the least that the theorems could say."""
    radius: float
    """r: no optimum w*(α) is farther than this from w*(1/K, …, 1/K)."""

    def table(self) -> list[tuple[str, float, float, str]]:
        """Rows (constant, optimistic, sound, what is known of the error) for reports."""
        names = {
            "β": ("beta", "exact over all w"),
            "μ": ("mu", "exact"),
            "L": (
                "lipschitz",
                "optimistic: gradients at sampled optima; sound: over a ball that holds all",
            ),
            "𝒢": ("noise", "optimistic: rows at sampled optima; sound: over the ball"),
            "σ": ("sigma", "from β, 𝒢 and the diameter of the optima, sampled or of the ball"),
            "D": ("diameter", "optimistic: start and sampled optima; sound: a ball that SGD cannot leave"),
        }
        return [
            (name, getattr(self.optimistic, field), getattr(self.sound, field), known)
            for name, (field, known) in names.items()
        ]


def estimate_constants(
    sources: Sources,
    *,
    l2: float,
    start: _Floats | None = None,
    intercept: bool = True,
    samples: int = 32,
    seed: int = 0,
) -> Estimate:
    """β, μ, L, σ, 𝒢, D of a linear model on these sources, each from below and from above.

    Methods and directions of error: top of this module.

    Parameters
    ----------
    sources
        The K sources.
    l2
        Weight of ½·l2·‖w‖², above 0.
    start
        Initial weights, (features + intercept, outputs); zero by default.
    intercept
        Whether the model has one.
    samples
        Mixtures of the optimistic side, the vertices among them.
    seed
        Draws them.

    Returns
    -------
    Estimate
        Both sides, and the radius of a ball that holds all optima.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> estimate = estimate_constants(synthetic(rows=200, features=2, seed=1).sources, l2=0.1, samples=8)
    >>> estimate.optimistic.mu == estimate.sound.mu == 0.1
    True
    >>> estimate.optimistic.sigma <= estimate.sound.sigma
    True
    """
    model = ConvexModel(sources, l2=l2, intercept=intercept)
    if samples < 1:
        raise InputError(f"the number of sampled mixtures must be at least 1; got {samples}")
    begin = np.zeros(model.shape) if start is None else np.asarray(start, dtype=np.float64)
    if begin.shape != model.shape:
        raise InputError(f"start must have shape {model.shape} (weights × outputs); got {begin.shape}")
    # Small Dirichlet parameters put mixtures near faces and vertices, where the optima are farthest apart.
    drawn = np.random.default_rng(seed).dirichlet(
        np.full(model.count, 0.5), size=max(0, samples - model.count)
    )
    centre = model.optimum(uniform_mixture(model.count))
    optima = [centre, *(model.optimum(alpha, start=centre) for alpha in [*np.eye(model.count), *drawn])]
    mu, beta = model.strong_convexity(), float(model.row_curvature.max())
    radius = max(model.source_gradients(centre)) / mu

    def constants(noise: float, spread: float, lipschitz: float, diameter: float) -> Constants:
        sigma = float(np.hypot(beta * spread, np.sqrt(noise)))
        return Constants(
            beta=beta,
            mu=mu,
            lipschitz=lipschitz,
            sigma=sigma,
            noise=noise,
            diameter=diameter,
            sources=model.count,
        )

    # Over the ball around the centre that holds all optima.
    rows = np.sqrt(model.row_gradients(centre))
    reach = rows + model.row_curvature * radius
    if model.classes:
        size = float(np.linalg.norm(centre)) + radius
        reach = np.minimum(reach, np.sqrt(2) * model.weight * model.norms + model.l2 * size)
    steepest = max(
        gradient + curvature * radius
        for gradient, curvature in zip(model.source_gradients(centre), model.source_curvatures(), strict=True)
    )
    ball = max(float(np.linalg.norm(begin - centre)), float(rows.max()) / model.l2)
    sound = constants(float(reach.max()) ** 2, 2 * radius, steepest, ball + radius)

    # At sampled optima.
    flat = np.stack([w.ravel() for w in optima])
    spread = max(float(np.linalg.norm(flat - w, axis=1).max()) for w in flat)
    optimistic = constants(
        max(float(model.row_gradients(w).max()) for w in optima),
        spread,
        max(max(model.source_gradients(w)) for w in optima),
        max(spread, float(np.linalg.norm(flat - begin.ravel(), axis=1).max())),
    )
    return Estimate(sound, optimistic, radius)


class ConvexModel:
    """A linear model on K sources with ½·l2·‖w‖²: its losses F_α, their gradients and their optima.

    >>> from mixtree.data.synthetic import synthetic
    >>> model = ConvexModel(synthetic(sources=2, rows=50, features=3, classes=0).sources, l2=0.1)
    >>> w = model.optimum([0.25, 0.75])
    >>> w.shape, bool(np.linalg.norm(model.gradient(w, [0.25, 0.75])) < 1e-9)
    ((4, 1), True)
    """

    def __init__(self, sources: Sources, *, l2: float, intercept: bool = True) -> None:
        if not (np.isfinite(l2) and l2 > 0):
            raise InputError(
                f"l2 must be a finite number above 0: without it nothing is strongly convex; got {l2}"
            )
        self.l2 = float(l2)
        self.classes = sources.classes
        self.count = len(sources)
        self.x: Any = stacked_features([part.x for part in sources.rows]).astype(np.float64)
        if intercept:
            ones = np.ones((self.x.shape[0], 1))
            self.x = (
                hstack([self.x, csr_matrix(ones)], format="csr")
                if is_sparse(self.x)
                else np.hstack([self.x, ones])
            )
        self.y = np.concatenate([part.y for part in sources.rows])
        self.weight = np.concatenate([part.weights for part in sources.rows])
        self.source = np.repeat(np.arange(self.count), sources.sizes)
        self.sizes = sources.sizes
        squares = self.x.multiply(self.x) if is_sparse(self.x) else self.x * self.x
        self.norms: _Floats = np.sqrt(np.asarray(squares.sum(axis=1), dtype=np.float64).ravel())
        self._bend = 0.5 if self.classes else 2.0  # largest second derivative of a row's loss by its scores
        self.row_curvature: _Floats = self._bend * self.weight * self.norms**2 + self.l2
        self._hessians: list[_Floats] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Of the weights: (features + intercept, outputs)."""
        return int(self.x.shape[1]), self.classes or 1

    def value(self, w: _Floats, alpha: Any) -> float:
        """F_α(w)."""
        losses, _ = self._losses(self.x @ w)
        return float(self._shares(alpha) @ losses) + 0.5 * self.l2 * float((w * w).sum())

    def gradient(self, w: _Floats, alpha: Any) -> _Floats:
        """∇F_α(w)."""
        _, slopes = self._losses(self.x @ w)
        gradient: _Floats = self.x.T @ (slopes * self._shares(alpha)[:, None]) + self.l2 * w
        return gradient

    def source_gradients(self, w: _Floats) -> list[float]:
        """‖∇F_i(w)‖ of every source."""
        return [float(np.linalg.norm(self.gradient(w, vertex))) for vertex in np.eye(self.count)]

    def row_gradients(self, w: _Floats) -> _Floats:
        """‖∇f(w; z)‖² of every row z of every source."""
        scores = self.x @ w
        _, slopes = self._losses(scores)
        slopes = slopes * self.weight[:, None]
        # ‖x ⊗ s + l2·w‖², without making the matrices
        squared: _Floats = (
            self.norms**2 * (slopes**2).sum(axis=1)
            + 2 * self.l2 * (scores * slopes).sum(axis=1)
            + self.l2**2 * (w * w).sum()
        )
        return np.maximum(squared, 0.0)

    def noise(self, alpha: Any) -> float:
        """𝒢(α): the largest ‖∇f(w*(α); z)‖² over the rows that α can draw."""
        mixture = as_mixture(alpha, sources=self.count)
        return float(self.row_gradients(self.optimum(mixture))[mixture[self.source] > 0].max())

    def strong_convexity(self) -> float:
        """μ of every F_α; exact (top of this module)."""
        if self.classes:
            return self.l2
        return self.l2 + max(0.0, min(float(np.linalg.eigvalsh(h)[0]) for h in self._curvatures()))

    def source_curvatures(self) -> list[float]:
        """An upper bound of the curvature of every F_i; exact for squared error."""
        return [self.l2 + float(np.linalg.eigvalsh(h)[-1]) for h in self._curvatures()]

    def optimum(self, alpha: Any, *, start: _Floats | None = None) -> _Floats:
        """w*(α); for softmax off by at most ‖∇F_α(w)‖/l2, with a gradient near rounding error."""
        mixture = as_mixture(alpha, sources=self.count)
        if not self.classes:
            shares = 2.0 * self._shares(mixture)
            hessian = sum(a * h for a, h in zip(mixture, self._curvatures(), strict=True))
            right = np.asarray(self.x.T @ (shares * self.y))
            exact: _Floats = np.linalg.solve(hessian + self.l2 * np.eye(len(right)), right)[:, None]
            return exact
        from scipy.optimize import minimize

        def both(flat: _Floats) -> tuple[float, _Floats]:
            w = flat.reshape(self.shape)
            return self.value(w, mixture), self.gradient(w, mixture).ravel()

        begin = np.zeros(self.shape) if start is None else start
        with one_thread():  # hundreds of small products: threads would wait for each other
            found = minimize(both, begin.ravel(), jac=True, method="L-BFGS-B", options=_PRECISE)
        w: _Floats = found.x.reshape(self.shape)
        return w

    def _curvatures(self) -> list[_Floats]:
        """Per source: bend × the mean of (row weight)·x xᵀ, which bounds its Hessian without the l2 part."""
        if self._hessians is None:
            self._hessians = []
            for i in range(self.count):
                rows = self.source == i
                scaled = np.sqrt(self._bend * self.weight[rows] / self.sizes[i])
                x = self.x[rows]
                x = x.multiply(scaled[:, None]).tocsr() if is_sparse(x) else x * scaled[:, None]
                self._hessians.append(as_dense(x.T @ x))
        return self._hessians

    def _shares(self, alpha: Any) -> _Floats:
        """What every row's loss counts for in F_α."""
        mixture = as_mixture(alpha, sources=self.count)
        shares: _Floats = (mixture / self.sizes)[self.source] * self.weight
        return shares

    def _losses(self, scores: _Floats) -> tuple[_Floats, _Floats]:
        """Every row's loss and its slopes by the scores, row weights aside."""
        if not self.classes:
            error = scores - self.y[:, None]
            return (error**2)[:, 0], 2.0 * error
        shifted = scores - scores.max(axis=1, keepdims=True)
        odds = np.exp(shifted)
        total = odds.sum(axis=1, keepdims=True)
        rows = np.arange(len(self.y))
        slopes = odds / total
        losses = np.log(total[:, 0]) - shifted[rows, self.y]
        slopes[rows, self.y] -= 1.0
        return losses, slopes
