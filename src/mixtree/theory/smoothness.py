"""How far apart optima and losses can be inside one cell: a problem's constants, ν1, ρ, ν2, ρ2, diameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

from mixtree.errors import InputError
from mixtree.theory._numbers import above, at_least, check_height, check_sources, exact, precise


@dataclass(frozen=True, slots=True)
class Constants:
    """What the theorems need to know of a problem.

    Parameters
    ----------
    beta
        β: each f(·; z) is β-smooth and convex.
    mu
        μ: each F_α is μ-strongly convex.
    lipschitz
        L: each F_α is L-Lipschitz on the region of interest (it cannot be everywhere, being strongly convex).
    sigma
        σ: σ² = sup β²‖w − w'‖² + 𝒢(α) over the hull of the optima.
    noise
        𝒢: the largest squared gradient of a single row at an optimum, ‖∇f(w*(α); z)‖² ≤ 𝒢 for all α.
    diameter
        D: bounds the distance of every iterate to every optimum.
    sources
        K.

    Raises
    ------
    InputError
        If the constants contradict each other: β < μ, or σ² < 𝒢.

    Examples
    --------
    >>> Constants(beta=2.0, mu=1.0, lipschitz=3.0, sigma=1.5, noise=1.0, diameter=4.0, sources=3).kappa
    2.0
    """

    beta: float
    mu: float
    lipschitz: float
    sigma: float
    noise: float
    diameter: float
    sources: int

    def __post_init__(self) -> None:
        above("mu (strong convexity of every F_α)", self.mu)
        above("beta (smoothness of every f(·; z))", self.beta)
        if self.beta < self.mu:
            raise InputError(
                f"κ = β/μ must be at least 1, but β = {self.beta:g} is below μ = {self.mu:g}: "
                "a β-smooth function cannot be more than β-strongly convex"
            )
        above("lipschitz (L)", self.lipschitz)
        above("sigma (σ)", self.sigma)
        at_least("noise (𝒢)", self.noise)
        above("diameter (D)", self.diameter)
        check_sources(self.sources)
        # A little slack: both may come out of the same sum in another order.
        if self.sigma < math.sqrt(self.noise) * (1 - 1e-9):
            raise InputError(
                f"σ² = sup β²‖w − w'‖² + 𝒢 cannot be below 𝒢; got σ = {self.sigma:g}, 𝒢 = {self.noise:g}"
            )

    @property
    def kappa(self) -> float:
        """κ = β/μ, the condition number."""
        return self.beta / self.mu


def nu1(*, sigma: float, mu: float, sources: int) -> float:
    """ν1 = (4σ√(2K)/(√3 μ))²: squared distance of two optima, at most, inside the whole simplex.

    Parameters
    ----------
    sigma
        σ: σ² = sup β²‖w − w'‖² + 𝒢(α) over the hull of the optima.
    mu
        μ, strong convexity of every F_α.
    sources
        K.

    References
    ----------
    Faw et al., "Corollary: smoothness of the optima in a cell".

    Examples
    --------
    >>> round(nu1(sigma=1.0, mu=1.0, sources=3), 6)
    32.0
    """
    above("sigma (σ)", sigma)
    above("mu (strong convexity of every F_α)", mu)
    check_sources(sources)
    with precise():
        return float(_nu1(sigma, mu, sources))


def rho(sources: int) -> float:
    """ρ = (√3/2)^{2/(K−1)}: what the squared distance shrinks by per height.

    References
    ----------
    Faw et al., "Corollary: smoothness of the optima in a cell".

    Examples
    --------
    >>> round(rho(2), 12), round(rho(3), 4)
    (0.75, 0.866)
    """
    check_sources(sources)
    return float(0.75 ** (1 / (sources - 1)))


def nu2(*, sigma: float, mu: float, lipschitz: float, sources: int) -> float:
    """ν2 = L√ν1: difference of two losses G, at most, inside the whole simplex.

    Parameters
    ----------
    sigma
        σ: σ² = sup β²‖w − w'‖² + 𝒢(α) over the hull of the optima.
    mu
        μ, strong convexity of every F_α.
    lipschitz
        L, Lipschitz constant of every F_α.
    sources
        K.

    References
    ----------
    Faw et al., "Corollary: smoothness of G in a cell".

    Examples
    --------
    >>> round(nu2(sigma=1.0, mu=1.0, lipschitz=2.0, sources=3), 4)
    11.3137
    """
    above("lipschitz (L)", lipschitz)
    above("sigma (σ)", sigma)
    above("mu (strong convexity of every F_α)", mu)
    check_sources(sources)
    with precise():
        return float(exact(lipschitz) * _nu1(sigma, mu, sources).sqrt())


def rho2(sources: int) -> float:
    """ρ2 = √ρ: what the difference of losses shrinks by per height.

    References
    ----------
    Faw et al., "Corollary: smoothness of G in a cell".

    Examples
    --------
    >>> round(rho2(2), 4)
    0.866
    """
    return math.sqrt(rho(sources))


def optimum_distance(l1: float, *, sigma: float, mu: float) -> float:
    """2σ‖α1 − α2‖₁/μ: distance of the optima w*(α1) and w*(α2), at most.

    Parameters
    ----------
    l1
        ‖α1 − α2‖₁.
    sigma
        σ: σ² = sup β²‖w − w'‖² + 𝒢(α) over the hull of the optima.
    mu
        μ, strong convexity of every F_α.

    References
    ----------
    Faw et al., "Theorem: close mixtures, close optima".

    Examples
    --------
    >>> optimum_distance(0.5, sigma=2.0, mu=1.0)
    2.0
    """
    at_least("the ℓ1 distance of two mixtures", l1)
    above("sigma (σ)", sigma)
    above("mu (strong convexity of every F_α)", mu)
    return 2 * sigma * l1 / mu


def optimum_spread(height: int, constants: Constants) -> float:
    """ν1ρ^h: squared distance of two optima, at most, inside a bisect cell at this height.

    Parameters
    ----------
    height
        h; the root has 0.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.

    References
    ----------
    Faw et al., "Corollary: smoothness of the optima in a cell".

    Examples
    --------
    >>> unit = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.0, diameter=1.0, sources=2)
    >>> round(optimum_spread(0, unit), 4), round(optimum_spread(1, unit), 4)
    (21.3333, 16.0)
    """
    check_height(height)
    with precise():
        return float(exact_spread(height, constants))


def value_spread(height: int, constants: Constants) -> float:
    """ν2ρ2^h: difference of two losses G, at most, inside a bisect cell at this height.

    Parameters
    ----------
    height
        h; the root has 0.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.

    References
    ----------
    Faw et al., "Corollary: smoothness of G in a cell".

    Examples
    --------
    >>> unit = Constants(beta=1.0, mu=1.0, lipschitz=2.0, sigma=1.0, noise=0.0, diameter=1.0, sources=2)
    >>> round(value_spread(1, unit), 6)
    8.0
    """
    check_height(height)
    with precise():
        return float(exact(constants.lipschitz) * exact_spread(height, constants).sqrt())


def diameter_l2(height: int, *, sources: int) -> float:
    """√2·(√3/2)^floor(h/(K−1)): ℓ2 diameter, at most, of a bisect cell at this height.

    Parameters
    ----------
    height
        h; the root has 0.
    sources
        K.

    References
    ----------
    Faw et al., "Lemma: diameter after repeated bisection".

    Examples
    --------
    >>> [round(diameter_l2(height, sources=3), 4) for height in range(4)]
    [1.4142, 1.4142, 1.2247, 1.2247]
    """
    check_height(height)
    check_sources(sources)
    return math.sqrt(2) * math.pow(math.sqrt(3) / 2, height // (sources - 1))


def diameter_l1(height: int, *, sources: int) -> float:
    """√(2K)·(√3/2)^(h/(K−1) − 1): ℓ1 distance, at most, of two points of a bisect cell at this height.

    At small heights it exceeds 2, the ℓ1 diameter of the simplex itself.

    Parameters
    ----------
    height
        h; the root has 0.
    sources
        K.

    References
    ----------
    Faw et al., "Lemma: diameter after repeated bisection".

    Examples
    --------
    >>> round(diameter_l1(8, sources=3), 4)
    1.591
    """
    check_height(height)
    check_sources(sources)
    return math.sqrt(2 * sources) * math.pow(0.75, (height / (sources - 1) - 1) / 2)


def exact_spread(height: int, constants: Constants) -> Decimal:
    """ν1ρ^h as a Decimal; at height 10^6 it is far below the smallest float."""
    with precise():
        rate = Decimal("0.75") ** (Decimal(int(height)) / (int(constants.sources) - 1))
        return _nu1(constants.sigma, constants.mu, constants.sources) * rate


def _nu1(sigma: float, mu: float, sources: int) -> Decimal:
    return 32 * int(sources) * (exact(sigma) / exact(mu)) ** 2 / 3
