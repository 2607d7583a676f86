"""λ(h): the steps per node that the theory asks for, and what it says where no number of steps will do."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from mixtree.errors import InputError
from mixtree.schedules import Infeasible, Steps
from mixtree.theory._numbers import check_budget, check_height, check_k, exact, precise, whole
from mixtree.theory.sgd import SgdTerms, sgd_terms
from mixtree.theory.smoothness import Constants, exact_spread

logger = logging.getLogger(__name__)

# Where the bound falls so slowly that only a number of a thousand digits would do, none does.
_MOST = 10**1000


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A closed form of λ(h) with the conditions under which it stands for the full one."""

    steps: Steps
    formula: float
    """The formula's value before rounding; below 1 where E alone is more than enough."""
    broken: tuple[str, ...]
    """Validity conditions that do not hold."""

    @property
    def valid(self) -> bool:
        return not self.broken


def node_problem(height: int, constants: Constants) -> tuple[Decimal, Decimal]:
    """(d0², target) of a node: 4ν1ρ^{h−1} and ν1ρ^h; at the root D² and ν1.

    Parameters
    ----------
    height
        h; the root has 0.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.

    Returns
    -------
    tuple
        d0² and target, as Decimals.

    References
    ----------
    Faw et al., "Corollary: steps per node".

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.0, diameter=3.0, sources=2)
    >>> [[round(float(number), 4) for number in node_problem(height, one)] for height in range(2)]
    [[9.0, 21.3333], [85.3333, 16.0]]
    """
    check_height(height)
    with precise():
        target = exact_spread(height, constants)
        if height == 0:
            return exact(constants.diameter) ** 2, target
        return 4 * exact_spread(height - 1, constants), target


def steps_full(height: int, constants: Constants, *, budget: float, k: int = 0) -> Steps:
    """λ(h) by the full condition: the smallest t ≥ 1 whose ``sgd_bound`` from d0² is at most the target.

    d0² = 4ν1ρ^{h−1} and target ν1ρ^h at height h ≥ 1; d0 = D and target ν1 at the root. Holds at a node with
    probability at least 1 − Λ^{-7}. ``Infeasible`` if no t satisfies it, or none below Λ.

    Why bisection finds the *smallest* t: with s = t + E the bound is B + m/s + c·s^{-a}, where B =
    8C̃/(μΛ^7), m = G0 − BE, 1/2 ≤ a < 1. For m ≥ 0 it falls. For m < 0 it first rises, until s^{1−a} =
    −m/(ac), then falls for ever, towards B. So either t = 1 will do, or the bound is above the target from t
    = 1 on until it crosses it once, for good; and it never does if the target is at most B.

    Parameters
    ----------
    height
        h; the root has 0.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.
    k
        Of the exponent α_{k+1}; every k is right, and the least λ(h) of several may be taken.

    Returns
    -------
    int or Infeasible
        λ(h), or why there is none.

    References
    ----------
    Faw et al., "Corollary: steps per node".

    Examples
    --------
    >>> small = Constants(beta=1.0, mu=1.0, lipschitz=2e-4, sigma=3e-4, noise=4e-8, diameter=2e-4, sources=2)
    >>> steps_full(1, small, budget=10**8, k=1)
    21474902
    >>> print(steps_full(1, small, budget=10**6, k=1))
    λ(1) needs 14183224 steps, more than the budget Λ = 1e+06
    """
    check_budget(budget)
    return _steps_full(check_height(height), constants, budget, check_k(k))


@lru_cache(maxsize=4096)
def _steps_full(height: int, constants: Constants, budget: float, k: int) -> Steps:
    start, target = node_problem(height, constants)
    terms = sgd_terms(start, constants, budget=budget)
    needed = _smallest(terms, target, k)
    if needed is None:
        why = f"the bound tends to 8C̃/(μΛ^7) = {terms.drift:.3g}, but ν1ρ^h is {target:.3g}"
        return Infeasible(height, f"no number of steps is enough at height {height}: {why}")
    return _within_budget(height, needed, budget)


def _smallest(terms: SgdTerms, target: Decimal, k: int) -> int | None:
    """The smallest whole t ≥ 1 whose bound is at most the target; to 40 digits where it has more."""
    slow = terms.slow(k)

    def enough(steps: int) -> bool:
        return terms.bound(steps, k, slow) <= target

    if enough(1):
        return 1
    if target <= terms.drift:
        return None
    low, high = 1, 2
    while not enough(high):
        low, high = high, high * high
        if high > _MOST:
            return None
    while high - low > 1 + high // 10**40:
        # Halving the number of digits first: from 1 to 10^80 in a few steps.
        middle = math.isqrt(low * high) if high > 4 * low else (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def steps_constant(height: int, constants: Constants, *, budget: float) -> ClosedForm:
    """λ(h), h ≥ 1, in the constant regime (k = 0), in closed form.

    With K̂ = D²/(d0²Λ^6):

    ((4E + 64√2 κK̂ + 16√(EK̂)/Λ³ + 128κ√(logΛ^8) + 16√(2E logΛ^8)) / (ρ√(1+E)))² − E.

    It stands for the full condition if E d0² ≥ 8𝒢/μ² and V0/logΛ^8 is the largest entry of Č; what does not
    hold is in ``broken``. They never hold together: with l = logΛ^8 and y = βd0², the first makes V0 at most
    (1 + 32/E)y²; then the second entry, at least 4/E², asks for y ≥ 2√l/E or so, and the third for
    y ≤ √l/(64E). So this is the number that the paper calls λ, and the full condition decides.

    Parameters
    ----------
    height
        h, at least 1.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    Returns
    -------
    ClosedForm
        λ(h), the formula's value, and which conditions do not hold.

    References
    ----------
    Faw et al., "Corollary: steps per node", its constant regime.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.5, diameter=1.0, sources=3)
    >>> form = steps_constant(1, one, budget=10**8)
    >>> form.steps, form.valid
    (14668353, False)
    """
    start, _ = node_problem(check_height(height, least=1), constants)
    terms = sgd_terms(start, constants, budget=budget)
    with precise():
        kappa, limit, wide = terms.beta / terms.mu, exact(budget), exact(constants.diameter)
        shift, root2 = terms.shift, Decimal(2).sqrt()
        k_hat = wide**2 / (start * limit**6)
        total = (
            4 * shift
            + 64 * root2 * kappa * k_hat
            + 16 * (shift * k_hat).sqrt() / limit**3
            + 128 * kappa * terms.log8.sqrt()
            + 16 * (2 * shift * terms.log8).sqrt()
        )
        rate = Decimal("0.75") ** (Decimal(1) / (int(constants.sources) - 1))
        value = (total / (rate * (1 + shift).sqrt())) ** 2 - shift
        broken = []
        if shift * start < 8 * terms.noise / terms.mu**2:
            broken.append("E d0² is below 8𝒢/μ²")
    if terms.check_entries[0] < terms.c_check:
        broken.append("V0/logΛ^8 is not the largest entry of Č")
    return _closed_form(height, value, budget, broken)


def steps_exponential(height: int, constants: Constants, *, budget: float) -> ClosedForm:
    """λ(h), h ≥ 1, in the exponential regime (k = 0): (4√(2Č) logΛ^8/(μν1ρ^h))² − E.

    The slowest term of the full condition alone, so never more than ``steps_full``. It grows like ρ^{−2h} =
    ρ2^{−4h} once Č no longer depends on the height: once its entry (8𝒢c2 + min(2/E, 1))² is the largest.

    Parameters
    ----------
    height
        h, at least 1.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    Returns
    -------
    ClosedForm
        λ(h), the formula's value, and which conditions do not hold.

    References
    ----------
    Faw et al., "Corollary: steps per node", its exponential regime.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.5, diameter=1.0, sources=3)
    >>> form = steps_exponential(250, one, budget=1e30)
    >>> form.valid, round(form.formula / steps_exponential(249, one, budget=1e30).formula, 6)
    (True, 1.333333)
    """
    start, target = node_problem(check_height(height, least=1), constants)
    terms = sgd_terms(start, constants, budget=budget)
    with precise():
        value = (4 * (2 * terms.c_check).sqrt() * terms.log8 / (terms.mu * target)) ** 2 - terms.shift
    broken = []
    if terms.check_entries[1] < terms.c_check:
        broken.append("(8𝒢c2 + min(2/E, 1))² is not the largest entry of Č: λ still depends on d0")
    return _closed_form(height, value, budget, broken)


def _closed_form(height: int, value: Decimal, budget: float, broken: list[str]) -> ClosedForm:
    with precise():
        needed = max(1, int(value.to_integral_value(rounding=ROUND_CEILING)))
    return ClosedForm(_within_budget(height, needed, budget), float(value), tuple(broken))


def _within_budget(height: int, needed: int, budget: float) -> Steps:
    if needed >= budget:
        shown = f"{needed}" if needed < 10**9 else f"{Decimal(needed):.3g}"
        reason = f"λ({height}) needs {shown} steps, more than the budget Λ = {budget:g}"
        return Infeasible(height, reason, needed)
    return needed


@dataclass(frozen=True, slots=True)
class TheorySchedule:
    """λ(h) by the full condition as a schedule for a search of budget Λ; ``theory_schedule`` makes it.

    At a height whose nodes Λ cannot train as the theory asks the answer is ``Infeasible``, and no search goes
    there.
    """

    constants: Constants
    budget: int
    k: int = 0

    def __call__(self, height: int) -> Steps:
        """λ(h), or why there is none."""
        return steps_full(height, self.constants, budget=self.budget, k=self.k)

    @property
    def deepest(self) -> int:
        """The greatest height that a search of two children a node can pay for; −1 if not even the root."""
        left, height = self.budget, -1
        while not isinstance(steps := self(height + 1), Infeasible):
            left -= steps if height < 0 else 2 * steps
            if left < 0:
                break
            height += 1
        return height


def theory_schedule(constants: Constants, *, budget: int, k: int = 0) -> TheorySchedule:
    """λ(h) by the full condition as a schedule, if Λ pays for the root and one expansion; else an error.

    It is made for the step sizes ``step_size``, which restart at every node, and for the partition bisect.
    Nearly always the budget is far too small and the error says by how much.

    Parameters
    ----------
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps; a whole number.
    k
        Of the exponent α_{k+1}.

    Returns
    -------
    TheorySchedule
        A callable, height → λ(h) or Infeasible.

    Raises
    ------
    InputError
        If Λ does not pay for the root and one expansion.

    References
    ----------
    Faw et al., "Corollary: steps per node".

    Examples
    --------
    >>> small = Constants(beta=1.0, mu=1.0, lipschitz=2e-4, sigma=3e-4, noise=4e-8, diameter=2e-4, sources=2)
    >>> schedule = theory_schedule(small, budget=10**8, k=1)
    >>> [schedule(height) for height in range(2)], schedule.deepest
    ([1868935, 21474902], 2)
    >>> print(schedule(10))
    λ(10) needs 118277629 steps, more than the budget Λ = 1e+08
    """
    whole("the budget Λ", budget, least=3)
    schedule = TheorySchedule(constants, int(budget), check_k(k))
    root, child = schedule(0), schedule(1)
    for steps in (root, child):
        if isinstance(steps, Infeasible):
            raise InputError(f"the theory's schedule cannot be run: {steps}. {_ADVICE}")
    assert isinstance(root, int) and isinstance(child, int)
    if (first := root + 2 * child) > budget:
        raise InputError(
            f"the theory's schedule cannot be run: λ(0) + 2λ(1) = {first} steps for the root and its two "
            f"children, more than the budget Λ = {budget:g}. {_ADVICE}"
        )
    logger.info("the theory's schedule reaches height %d with %d steps", schedule.deepest, budget)
    return schedule


_ADVICE = "Use a plain schedule such as steps=20; the theory is a diagnostic, not a default."


def steps_failure(*, budget: float) -> float:
    """Λ^{-7}: probability, at most, that one node trained for λ(h) steps misses its target.

    References
    ----------
    Faw et al., "Corollary: steps per node".

    Examples
    --------
    >>> print(f"{steps_failure(budget=1e6):.3g}")
    1e-42
    """
    return math.exp(-7 * math.log(check_budget(budget)))
