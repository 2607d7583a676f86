"""What a budget buys: the height that the search reaches, the regret that follows, the slopes to expect."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Literal

from mixtree.errors import InputError
from mixtree.schedules import Infeasible, Steps
from mixtree.theory._numbers import (
    above,
    at_least,
    between,
    check_budget,
    check_height,
    exact,
    is_finite,
    precise,
    whole,
)

_TALLEST = 10**6
_LARGEST = 1e6


@dataclass(frozen=True, slots=True)
class Dimension:
    """Near-optimality dimension: N_h ≤ C·ρ2^{−dh} at every height that was counted.

    >>> Dimension(0.5, 2.0)
    Dimension(d=0.5, scale=2.0)
    """

    d: float
    scale: float
    """C."""

    def __post_init__(self) -> None:
        if at_least("the near-optimality dimension d", self.d) > _LARGEST:
            raise InputError(f"the near-optimality dimension d is at most {_LARGEST:g} here; got {self.d!r}")
        above("the near-optimality constant C", self.scale)


def near_optimality(counts: Sequence[float], *, rho2: float) -> Dimension:
    """An estimate of the near-optimality dimension d and its constant C from N_0, N_1, … (cells per height).

    d = inf{d' : N_h(3ν2ρ2^h) ≤ C ρ2^{−d'h} for all h}, where N_h(ε) counts the cells at height h with
    inf G ≤ G(α*) + ε. From finitely many heights: d is the least-squares slope of log N_h against
    h·log(1/ρ2) over the second half of them (the first ones are all of the simplex), at least 0; C is the
    smallest constant that then bounds every count.

    Parameters
    ----------
    counts
        N_0, N_1, …, cells near the optimum per height; at least four.
    rho2
        ρ2, the decay of the values per height.

    Returns
    -------
    Dimension
        d and C.

    References
    ----------
    Faw et al., "Definition: near-optimality dimension".

    Examples
    --------
    >>> found = near_optimality([1, 2, 4, 8, 16, 32], rho2=0.25)
    >>> round(found.d, 6), round(found.scale, 6)
    (0.5, 1.0)
    """
    between("rho2 (ρ2)", rho2)
    if len(counts) < 4 or any(not is_finite(count) or count < 1 for count in counts):
        raise InputError(
            f"near_optimality needs the counts of at least 4 heights, each at least 1; got {list(counts)}"
        )
    unit = -math.log(rho2)
    logs = [math.log(count) for count in counts]
    tail = range(len(counts) // 2, len(counts))
    middle, mean = sum(tail) / len(tail), sum(logs[h] for h in tail) / len(tail)
    slope = sum((h - middle) * (logs[h] - mean) for h in tail) / sum((h - middle) ** 2 for h in tail)
    d = max(0.0, slope / unit)
    return Dimension(d, math.exp(max(log - d * h * unit for h, log in enumerate(logs))))


def height_reached(
    steps: int | Callable[[int], Steps], *, budget: float, dimension: Dimension, rho2: float
) -> int | Infeasible:
    """h(Λ) = h' + 1, where h' is the least h with Σ_{l≤h} 2Cλ(l)ρ2^{−dl} > Λ − 2λ(h+1).

    Parameters
    ----------
    steps
        λ: a number, a schedule, or ``lambda h: steps_full(h, …)``.
    budget
        Λ, in SGD steps.
    dimension
        d and C of the near-optimality dimension.
    rho2
        ρ2.

    Returns
    -------
    int or Infeasible
        h(Λ); Infeasible if Λ does not even pay for λ(0) + 2λ(1).

    References
    ----------
    Faw et al., "Lemma: height of the tree".

    Examples
    --------
    >>> height_reached(10, budget=10**4, dimension=Dimension(1.0, 1.0), rho2=0.5)
    9
    """
    check_budget(budget)
    between("rho2 (ρ2)", rho2)

    def at(height: int) -> Steps:
        if not callable(steps):
            return whole("steps", steps, least=1)
        count = steps(height)
        return count if isinstance(count, Infeasible) else whole(f"steps at height {height}", count, least=1)

    root, child = at(0), at(1)
    if isinstance(root, Infeasible):
        return root
    if isinstance(child, Infeasible):
        return child
    if root + 2 * child > budget:
        reason = f"λ(0) + 2λ(1) is {root + 2 * child} steps, more than the budget Λ = {budget:g}"
        return Infeasible(1, reason, root + 2 * child)
    with precise():
        growth = exact(rho2) ** -exact(dimension.d)
        scale, limit = exact(dimension.scale), exact(budget)
        if callable(steps):
            return 1 + _height(at, limit, 2 * scale, growth)
        return 1 + _constant_height(Decimal(root), limit, 2 * scale, growth)


def _height(steps: Callable[[int], Steps], budget: Decimal, scale: Decimal, growth: Decimal) -> int:
    total, cells = Decimal(0), scale
    here = steps(0)
    for height in range(_TALLEST):
        below = steps(height + 1)
        # Infeasible costs Λ or more: nothing is left for it. So ``here`` is a number at every height.
        if isinstance(here, Infeasible) or isinstance(below, Infeasible):
            return height
        total += cells * here
        if total > budget - 2 * below:
            return height
        here, cells = below, cells * growth
    raise InputError(
        f"the height lemma's sum does not reach Λ = {float(budget):g} below height {_TALLEST}: "
        "give λ as a plain number, or use a smaller budget"
    )


def _constant_height(steps: Decimal, budget: Decimal, scale: Decimal, growth: Decimal) -> int:
    """The least h whose geometric sum exceeds the rest, in closed form: with d = 0 it may be 10^12."""
    rest = (budget - 2 * steps) / (scale * steps)

    def is_over(height: int) -> bool:
        cells = Decimal(height + 1) if growth == 1 else (growth ** (height + 1) - 1) / (growth - 1)
        return cells > rest

    above_it = rest if growth == 1 else (1 + rest * (growth - 1)).ln() / growth.ln()
    height = max(0, int(above_it.to_integral_value(rounding=ROUND_FLOOR)))
    # Rounding may have put an exact tie on the wrong side.
    while height > 0 and is_over(height - 1):
        height -= 1
    while not is_over(height):
        height += 1
    return height


def regret_bound(height: int, *, nu2: float, rho2: float) -> float:
    """4ν2ρ2^{h(Λ)−1}: the regret, at most, of a search that ``height_reached`` this height, h(Λ) ≥ 1.

    Holds with probability at least 1 − Λ^{-3}.

    Parameters
    ----------
    height
        h(Λ), at least 1.
    nu2
        ν2.
    rho2
        ρ2.

    References
    ----------
    Faw et al., "Theorem: regret".

    Examples
    --------
    >>> regret_bound(3, nu2=2.0, rho2=0.5)
    2.0
    """
    check_height(height, least=1, name="the height h(Λ)")
    above("nu2 (ν2)", nu2)
    between("rho2 (ρ2)", rho2)
    return float(4 * nu2 * rho2 ** (height - 1))


def regret_failure(*, budget: float) -> float:
    """Λ^{-3}: probability, at most, that ``regret_bound`` does not hold.

    References
    ----------
    Faw et al., "Theorem: regret".

    Examples
    --------
    >>> print(f"{regret_failure(budget=1e6):.3g}")
    1e-18
    """
    return math.exp(-3 * math.log(check_budget(budget)))


def predicted_slope(d: float, *, regime: Literal["constant", "exponential"]) -> float:
    """Slope of the regret bound against Λ on log axes: −1/d with constant λ, −1/(d+4) with exponential λ.

    With constant λ and d = 0 the regret falls faster than any power of Λ: −inf.

    Parameters
    ----------
    d
        d, near-optimality dimension.
    regime
        Of λ(h): the same at every height, or growing exponentially.

    References
    ----------
    Faw et al., "Corollary: scaling of the regret".

    Examples
    --------
    >>> predicted_slope(1.0, regime="constant"), predicted_slope(1.0, regime="exponential")
    (-1.0, -0.2)
    """
    at_least("the near-optimality dimension d", d)
    if regime not in ("constant", "exponential"):
        raise InputError(f"the regime must be 'constant' or 'exponential'; got {regime!r}")
    power = d if regime == "constant" else d + 4
    return -1 / power if power > 0 else -math.inf
