"""SGD from a warm start: the step sizes, the constants of the analysis, and the bound of the final iterate.

``d0_squared`` is d0², a bound on the squared distance of the first iterate to the optimum; ``budget`` is Λ.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from mixtree.theory._numbers import (
    above,
    at_least,
    check_budget,
    check_k,
    exact,
    natural_log,
    precise,
    whole,
)
from mixtree.theory.smoothness import Constants


@dataclass(frozen=True, slots=True)
class SgdTerms:
    """All constants of one warm start as Decimals; ``sgd_terms`` makes them."""

    log8: Decimal
    """log Λ^8."""
    shift: Decimal
    """E."""
    g0: Decimal
    c_tilde: Decimal
    drift: Decimal
    """8C̃/(μΛ^7), where the bound ends after infinitely many steps."""
    c1: Decimal
    c2: Decimal
    v0: Decimal
    check_entries: tuple[Decimal, Decimal, Decimal]
    """The three numbers of which Č is the largest."""
    beta: Decimal
    mu: Decimal
    noise: Decimal

    @property
    def c_check(self) -> Decimal:
        return max(self.check_entries)

    def c_hat(self, k: int) -> Decimal:
        """Ĉ(k), by its recursion; the formulas are those of the function ``c_hat``."""
        with precise():
            current, more, beta2 = self.c_check * self.log8, self.shift + 1, 64 * self.beta**2
            for step in range(1, k + 1):
                a, logged = _alpha(step), self.log8 * current
                c = (
                    beta2 * self.c1**2 / more ** (2 - a)
                    + beta2 * self.c2**2 * logged / more**a
                    + 8 * self.noise * self.c1 / more ** (1 - a)
                    + 8 * self.noise * self.c2 * logged.sqrt()
                )
                current = 2**step * c + self.v0 * (1 + self.shift) / (2 + self.shift) ** (1 - a)
            return current

    def slow(self, k: int) -> Decimal:
        """c of the bound's slowest term c/(t + E)^a, a = α_{k+1}."""
        with precise():
            return 4 * (2 * self.log8).sqrt() * self.c_hat(k).sqrt() / self.mu

    def bound(self, steps: int, k: int, slow: Decimal) -> Decimal:
        """The bound after t steps.

        Parameters
        ----------
        steps
            t.
        k
            Of the exponent α_{k+1}.
        slow
            What ``slow(k)`` gives, computed once for many t.

        Returns
        -------
        Decimal
            Squared distance to the optimum, at most.
        """
        with precise():
            reach = steps + self.shift
            # s^{−a} = s^{1−a}/s, and 1 − a = 2^{−(k+1)}: square roots, which are ten times as fast as powers.
            root = reach
            for _ in range(k + 1):
                root = root.sqrt()
            return (self.g0 + self.drift * steps + slow * root) / reach


def sgd_terms(d0_squared: float | Decimal, constants: Constants, *, budget: float) -> SgdTerms:
    """All constants of one warm start, each as its own function below documents it.

    Parameters
    ----------
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    Returns
    -------
    SgdTerms
        As Decimals of 60 digits.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.0, diameter=1.0, sources=2)
    >>> print(f"{sgd_terms(1.0, one, budget=1e6).shift:.6g}")
    452707
    """
    check_budget(budget)
    with precise():
        start = d0_squared if isinstance(d0_squared, Decimal) else exact(above("d0_squared", d0_squared))
        beta, mu, noise, wide = map(
            exact, (constants.beta, constants.mu, constants.noise, constants.diameter)
        )
        log8 = 8 * exact(budget).ln()
        shift = 4096 * (beta / mu) ** 2 * log8
        g0 = max(shift * start, 8 * noise / mu**2)
        tilde = wide * (8 * beta**2 * wide**2 + 2 * noise).sqrt()
        c1 = g0 + 8 * tilde / (mu * exact(budget) ** 6)
        c2 = 4 * Decimal(2).sqrt() / mu
        v0 = 8 * start * (4 * beta**2 * start + noise) / (1 + shift)
        entries = (
            v0 / log8,
            (8 * noise * c2 + min(2 / shift, Decimal(1))) ** 2,
            (64 * beta**2 * c1**2 / ((1 + shift) * log8) + 8 * noise * c1 / log8) ** 2,
        )
        drift = 8 * tilde / (mu * exact(budget) ** 7)
        return SgdTerms(log8, shift, g0, tilde, drift, c1, c2, v0, entries, beta, mu, noise)


def step_shift(kappa: float, *, budget: float) -> float:
    """E = 4096 κ² log Λ^8: the delay of the step sizes.

    Parameters
    ----------
    kappa
        κ = β/μ, at least 1.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", its step sizes.

    Examples
    --------
    >>> round(step_shift(1.0, budget=1e6))
    452707
    """
    at_least("κ = β/μ", kappa, limit=1.0)
    check_budget(budget)
    with precise():
        return float(4096 * exact(kappa) ** 2 * 8 * exact(budget).ln())


def step_size(step: int, constants: Constants, *, budget: float) -> float:
    """η_t = 2/(μ(t + E)), t counted from 0 anew at every node.

    Parameters
    ----------
    step
        t.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", its step sizes.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.0, diameter=1.0, sources=2)
    >>> print(f"{step_size(0, one, budget=1e6):.4g}")
    4.418e-06
    """
    whole("the step t", step, least=0)
    shift = step_shift(constants.kappa, budget=budget)
    with precise():
        return float(2 / (exact(constants.mu) * (int(step) + exact(shift))))


def alpha_k(k: int) -> float:
    """α_k = Σ_{i=1..k} 2^{-i} = 1 − 2^{-k}: the exponents that the analysis climbs.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", its induction on k.

    Examples
    --------
    >>> [alpha_k(k) for k in range(4)]
    [0.0, 0.5, 0.75, 0.875]
    """
    return float(_alpha(check_k(k)))


def g0(d0_squared: float, constants: Constants, *, budget: float) -> float:
    """G0(d0²) = max{E d0², 8𝒢/μ²}: the constant of the fast term.

    Parameters
    ----------
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate".

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=1.0, diameter=1.0, sources=2)
    >>> g0(1e-9, one, budget=1e6)
    8.0
    """
    return float(sgd_terms(d0_squared, constants, budget=budget).g0)


def c_tilde(constants: Constants) -> float:
    """C̃ = D·√(8β²D² + 2𝒢): the largest inner product of one step's noise and its error.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate".

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.5, diameter=1.0, sources=2)
    >>> c_tilde(one)
    3.0
    """
    # Neither Λ nor d0² is in it.
    return float(sgd_terms(1.0, constants, budget=3.0).c_tilde)


def c1(d0_squared: float, constants: Constants, *, budget: float) -> float:
    """c1 = G0 + 8C̃/(μΛ^6).

    Parameters
    ----------
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", its induction on k.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=1.0, diameter=1.0, sources=2)
    >>> round(c1(1e-9, one, budget=1e6), 6)
    8.0
    """
    return float(sgd_terms(d0_squared, constants, budget=budget).c1)


def c2(mu: float) -> float:
    """c2 = 4√2/μ.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", its induction on k.

    Examples
    --------
    >>> round(c2(2.0), 4)
    2.8284
    """
    return 4 * 2**0.5 / above("mu (strong convexity of every F_α)", mu)


def v0(d0_squared: float, constants: Constants, *, budget: float) -> float:
    """V0 = 8 d0² (4β² d0² + 𝒢)/(1 + E): variance of the martingale's first step.

    Parameters
    ----------
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", its induction on k.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=1.0, diameter=1.0, sources=2)
    >>> print(f"{v0(1.0, one, budget=1e6):.4g}")
    8.836e-05
    """
    return float(sgd_terms(d0_squared, constants, budget=budget).v0)


def c_check(d0_squared: float, constants: Constants, *, budget: float) -> float:
    """Č = max{V0/logΛ^8, (8𝒢c2 + min(2/E, 1))², (64β²c1²/((1+E) logΛ^8) + 8𝒢c1/logΛ^8)²}.

    The result is inf where a float cannot hold it; ``log_c_check`` can.

    Parameters
    ----------
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", the start of its induction.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.0, diameter=1.0, sources=2)
    >>> print(f"{c_check(1.0, one, budget=1e6):.4g}")
    6.872e+10
    """
    return float(sgd_terms(d0_squared, constants, budget=budget).c_check)


def c_check_entries(d0_squared: float, constants: Constants, *, budget: float) -> tuple[float, float, float]:
    """The three numbers of which Č is the largest, in the order of ``c_check``.

    Where they come from: Ĉ(0) = Č logΛ^8 must bound the variance of every step i of the martingale,
    8d_i²(4β²d_i² + 𝒢). At i = 0 that is V0(1+E), which asks for the **first** entry (the sum may be (t+1+E)
    times Ĉ(0)). At i ≥ 1 the theorem itself, d_i² ≤ c1/(i+E) + c2√(logΛ^8·Ĉ(0)/(i+E)), makes it at most
    logΛ^8·(A + B√Č + Č/2), where A = 64β²c1²/((1+E)² logΛ^8) + 8𝒢c1/((1+E) logΛ^8), B = 8𝒢c2/√(1+E), and
    1/2 is at least 64β²c2² logΛ^8/(1+E). So 2A + 2B√Č ≤ Č is needed. It follows from √Č ≥ 2B + δ and √Č ≥
    2A/δ, for any δ > 0: the paper takes δ = 2/E (E > 2 always, so min(2/E, 1) is that). Then 2B + δ is at
    most the root of the **second** entry, and 2A/δ = AE at most that of the **third**, A(1+E). So the third
    is a square because its root was divided by the slack δ. √Č has a unit, δ has none: that is why Č is not
    scale-free. √Č = B + √(B² + 2A) would do, in any units.

    Parameters
    ----------
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    Returns
    -------
    tuple
        Three floats, inf where a float cannot hold one.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", the start of its induction.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.5, diameter=1.0, sources=2)
    >>> [f"{entry:.3g}" for entry in c_check_entries(1.0, one, budget=1e6)]
    ['7.19e-07', '512', '7.76e+10']
    """
    first, second, third = sgd_terms(d0_squared, constants, budget=budget).check_entries
    return float(first), float(second), float(third)


def log_c_check(d0_squared: float, constants: Constants, *, budget: float) -> float:
    """The natural logarithm of Č, whatever its size.

    Parameters
    ----------
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", the start of its induction.

    Examples
    --------
    >>> one = Constants(beta=1e80, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.0, diameter=1.0, sources=2)
    >>> c_check(1.0, one, budget=1e6), round(log_c_check(1.0, one, budget=1e6), 2)
    (inf, 1498.61)
    """
    return natural_log(sgd_terms(d0_squared, constants, budget=budget).c_check)


def c_hat(k: int, d0_squared: float, constants: Constants, *, budget: float) -> float:
    """Ĉ(k): the constant of the slowest term after k rounds of the induction.

    Ĉ(0) = Č logΛ^8 and Ĉ(k+1) = 2^{k+1}·C(k+1) + V0(1+E)/(2+E)^{1−a}, where a = α_{k+1} and
    C(k+1) = 64β²c1²/(E+1)^{2−a} + 64β²c2² logΛ^8·Ĉ(k)/(E+1)^a + 8𝒢c1/(E+1)^{1−a} + 8𝒢c2√(logΛ^8·Ĉ(k)).

    The result is inf where a float cannot hold it; ``log_c_hat`` can.

    Parameters
    ----------
    k
        Rounds of the induction.
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", its induction on k.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.0, diameter=1.0, sources=2)
    >>> print(f"{c_hat(0, 1.0, one, budget=1e6):.4g}, {c_hat(1, 1.0, one, budget=1e6):.4g}")
    7.595e+12, 5.11e+15
    """
    return float(sgd_terms(d0_squared, constants, budget=budget).c_hat(check_k(k)))


def log_c_hat(k: int, d0_squared: float, constants: Constants, *, budget: float) -> float:
    """The natural logarithm of Ĉ(k), whatever its size.

    Parameters
    ----------
    k
        Rounds of the induction.
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate", its induction on k.

    Examples
    --------
    >>> one = Constants(beta=1e80, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.0, diameter=1.0, sources=2)
    >>> round(log_c_hat(3, 1.0, one, budget=1e6), 2)
    1839.15
    """
    return natural_log(sgd_terms(d0_squared, constants, budget=budget).c_hat(check_k(k)))


def sgd_bound(steps: int, d0_squared: float, constants: Constants, *, budget: float, k: int = 0) -> float:
    """Squared distance to w* of the iterate after t ≥ 1 steps, at most, from one at squared distance d0².

    G0/(t+E) + 8tC̃/(μ(t+E)Λ^7) + 4√(2 logΛ^8)·√Ĉ(k)/(μ(t+E)^{α_{k+1}}), for every k ≥ 0, with the step sizes
    ``step_size`` and probability at least 1 − ``sgd_failure``. (The theorem's w_{t+1} is the iterate after
    t + 1 steps.)

    The result is inf where a float cannot hold it.

    Parameters
    ----------
    steps
        t.
    d0_squared
        d0², a bound on the squared distance of the first iterate to the optimum.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.
    k
        Of the exponent α_{k+1}; the bound holds for every k ≥ 0.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate".

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.0, diameter=1.0, sources=2)
    >>> [f"{sgd_bound(10**9, 1e-6, one, budget=1e10, k=k):.3g}" for k in range(3)]
    ['8.81e-08', '1.59e-08', '9.87e-09']
    """
    whole("the number of steps t", steps, least=1)
    terms = sgd_terms(d0_squared, constants, budget=budget)
    slow = terms.slow(check_k(k))
    return float(terms.bound(int(steps), k, slow))


def sgd_failure(steps: int, *, budget: float) -> float:
    """t/Λ^8: probability, at most, that ``sgd_bound`` after t steps does not hold.

    Parameters
    ----------
    steps
        t.
    budget
        Λ, in SGD steps.

    References
    ----------
    Faw et al., "Theorem: SGD final iterate".

    Examples
    --------
    >>> print(f"{sgd_failure(10**6, budget=1e6):.3g}")
    1e-42
    """
    whole("the number of steps t", steps, least=1)
    check_budget(budget)
    with precise():
        return float(int(steps) / exact(budget) ** 8)


def _alpha(k: int) -> Decimal:
    with precise():
        return 1 - Decimal(2) ** -k
