"""What λ(h) comes to: the steps that the theory asks for, in any units and on data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mixtree.data.synthetic import synthetic
from mixtree.experiments.theorems.findings import Finding, Section, figure, number, table
from mixtree.experiments.theorems.sgd import two_points
from mixtree.planning.constants import estimate_constants
from mixtree.theory import Constants, Infeasible, optimum_spread, rho, steps_constant, steps_full

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BUDGET = 10**8
_K = range(4)


@dataclass(frozen=True, slots=True)
class Demand:
    """λ(1) of one problem: by the closed form and by the full condition for every k."""

    label: str
    units: float
    closed: float
    valid: bool
    full: tuple[float, ...]
    useful: int
    """The first height whose target ν1ρ^h is below D²: above it the target is true anyway."""


def demand(label: str, constants: Constants, *, units: float = 1.0) -> Demand:
    """λ(1) at Λ = 10^8; inf where no number of steps does."""
    closed = steps_constant(1, constants, budget=_BUDGET)
    full = []
    for k in _K:
        steps = steps_full(1, constants, budget=_BUDGET, k=k)
        needed = steps.needed if isinstance(steps, Infeasible) else steps
        full.append(float("inf") if needed is None else float(needed))
    room = math.log(optimum_spread(0, constants) / constants.diameter**2)
    useful = max(0, math.floor(room / -math.log(rho(constants.sources))) + 1)
    return Demand(label, units, closed.formula, closed.valid, tuple(full), useful)


def section(*, quick: bool) -> Section:
    """The experiment."""
    units = [
        demand(f"z = ±{r:.0e}", two_points(r), units=r) for r in np.geomspace(1e-6, 1.0, 7 if quick else 49)
    ]
    wide = Constants(beta=100.0, mu=1.0, lipschitz=1.0, sigma=150.0, noise=1.0, diameter=1.5, sources=3)
    cases = [demand("z = ±1, κ = 1, K = 2", two_points(1.0)), demand("κ = 100, K = 3, unit distances", wide)]
    for l2 in (1.0, 0.01):
        estimate = estimate_constants(synthetic(rows=300, features=5, seed=0).sources, l2=l2, samples=8)
        for name in ("optimistic", "sound"):
            cases.append(demand(f"synthetic logistic, l2 = {l2:g}, {name}", getattr(estimate, name)))
    rows = [
        [
            each.label,
            number(each.closed),
            "yes" if each.valid else "no",
            *map(number, each.full),
            str(each.useful),
        ]
        for each in cases
    ]
    fits = [each.units for each in units if min(each.full) < _BUDGET]
    band = f"from {number(min(fits), 2)} to {number(max(fits), 2)}" if fits else "nowhere"
    payable = sum(min(each.full) < _BUDGET for each in cases)
    valid = sum(each.valid for each in [*units, *cases])
    header = ["problem", "closed form (constant regime)", "its conditions hold"]
    header += [*(f"full, k = {k}" for k in _K), "useful from height"]
    text = f"""λ(1), the steps of one child of the root, at Λ = {number(_BUDGET)}.

{table(header, rows)}
The last column is the first height whose target ν1ρ^h is below D²: at smaller heights the steps buy what
is true of every iterate anyway.

The closed form does not depend on the units of w; the full condition does. The figure repeats the scalar
problem in all units: some λ(1) is below Λ only for r {band}.

Why the closed form's two conditions never hold together: with l = logΛ^8 and y = βd0², the first, E d0² ≥
8𝒢/μ², makes V0 at most (1 + 32/E)y². For V0/l to be the largest entry of Č, the second entry (at least
4/E²) asks for y ≥ 2√l/E or so, and the third for y ≤ √l/(64E)."""
    findings = (
        Finding(
            "constant regime of λ",
            "valid if E d0² ≥ 8𝒢/μ² and V0/logΛ^8 is the largest entry of Č",
            f"both conditions hold in {valid} of {len(units) + len(cases)} problems",
            valid > 0,
        ),
        Finding(
            "steps per node within a real budget",
            f"λ(1) < Λ = {number(_BUDGET)}",
            f"in {payable} of {len(cases)} problems in their own units",
            payable == len(cases),
        ),
    )
    return Section("steps", "What the theory asks for", text, findings, lambda: _draw(units))


def _draw(units: list[Demand]) -> Figure:
    canvas, (axes,) = figure(1, width=6.0)
    scale = [each.units for each in units]
    for k in _K:
        axes.loglog(scale, [each.full[k] for each in units], color=f"C{k}", label=f"full condition, k = {k}")
    axes.loglog(scale, [each.closed for each in units], "k--", lw=1, label="closed form")
    axes.axhline(_BUDGET, color="k", lw=0.8, ls=":", label="Λ")
    axes.set_xlabel("units: r of the problem z = ±r")
    axes.set_ylabel("λ(1), steps")
    axes.legend(fontsize=7)
    return canvas
