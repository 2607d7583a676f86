"""λ(h) against the height: where it falls, where it grows, and which entry of Č decides."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING

from mixtree.data.synthetic import synthetic
from mixtree.experiments.theorems.findings import COLOURS, Finding, Section, figure, number, table
from mixtree.experiments.theorems.sgd import two_points
from mixtree.planning.constants import estimate_constants
from mixtree.theory import Constants, Infeasible, NodeSteps, node_steps, optimum_spread, rho, steps_full
from mixtree.theory._numbers import precise
from mixtree.theory.sgd import SgdTerms, sgd_terms
from mixtree.theory.steps import node_problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BUDGET = 1e8


@dataclass(frozen=True, slots=True)
class Heights:
    """λ(h) of one problem, at every height near the root and at every fifth below."""

    label: str
    constants: Constants
    nodes: tuple[NodeSteps, ...]

    @property
    def useful(self) -> float:
        """The height from which the target ν1ρ^h is below D², so that training has something to do."""
        room = math.log(optimum_spread(0, self.constants) / self.constants.diameter**2)
        return max(0.0, room / -math.log(rho(self.constants.sources)))

    def power(self, first: int) -> float:
        """p of λ(h) ~ ρ^{ph} between the node of this index and the next, at k = 0."""
        before, after = self.nodes[first], self.nodes[first + 1]
        steps = [steps_full(node.height, self.constants, budget=_BUDGET) for node in (before, after)]
        low, high = (each.needed if isinstance(each, Infeasible) else each for each in steps)
        assert low and high
        unit = math.log(rho(self.constants.sources)) * (after.height - before.height)
        return math.log(high / low) / unit

    @property
    def stretches(self) -> list[tuple[int, int, int]]:
        """(entry of Č that is the largest, first height, last height), in order."""
        found = []
        for entry, group in groupby(self.nodes, key=lambda node: node.largest):
            heights = [node.height for node in group]
            found.append((entry, heights[0], heights[-1]))
        return found


def measure(label: str, constants: Constants, *, heights: int) -> Heights:
    """λ(h) down to so many heights times K − 1, in which the diameter shrinks alike for every K."""
    last = heights * (constants.sources - 1)
    chosen = [*range(1, 50), *range(50, last + 1, 5)]
    nodes = [node_steps(height, constants, budget=_BUDGET) for height in chosen]
    return Heights(label, constants, tuple(nodes))


def _needed(node: NodeSteps) -> float:
    return math.inf if node.needed is None else float(node.needed)


@dataclass(frozen=True, slots=True)
class Base:
    """The start of the induction at one node: what Č must be, what it is, and what would do."""

    share: float
    """(A + B√Č + Č/2)/Č: the theorem's induction starts if it is at most 1."""
    without_third: float
    """The same with the largest of the first two entries alone."""
    excess: float
    """Č over the least Č that would do."""


def base(terms: SgdTerms) -> Base:
    """Č logΛ^8 against the variance that it must bound; see ``mixtree.theory.c_check_entries``."""
    with precise():
        more = 1 + terms.shift
        a = 64 * terms.beta**2 * terms.c1**2 / (more**2 * terms.log8)
        a += 8 * terms.noise * terms.c1 / (more * terms.log8)
        b = 8 * terms.noise * terms.c2 / more.sqrt()
        half = 64 * terms.beta**2 * terms.c2**2 * terms.log8 / more

        def share(check: Decimal) -> float:
            return float((a + b * check.sqrt() + half * check) / check)

        least = max(terms.check_entries[0], (b + (b * b + 2 * a).sqrt()) ** 2)
        return Base(share(terms.c_check), share(max(terms.check_entries[:2])), float(terms.c_check / least))


def section(*, quick: bool) -> Section:
    """The experiment."""
    estimate = estimate_constants(synthetic(rows=300, features=5, seed=0).sources, l2=1.0, samples=8)
    problems = [
        ("z = ±1, κ = 1, K = 2", two_points(1.0)),
        ("z = ±0.0001, κ = 1, K = 2", two_points(1e-4)),
        ("synthetic logistic, l2 = 1, sound", estimate.sound),
    ]
    found = [measure(*each, heights=60 if quick else 150) for each in problems]
    starts = [
        [
            base(sgd_terms(node_problem(n.height, h.constants)[0], h.constants, budget=_BUDGET))
            for n in h.nodes
        ]
        for h in found
    ]
    rows = []
    for each, begun in zip(found, starts, strict=True):
        first, least = each.nodes[0], min(each.nodes, key=_needed)
        rows.append(
            [
                each.label,
                ", ".join(f"{entry}: {low}–{high}" for entry, low, high in each.stretches),
                number(_needed(first)),
                f"{number(_needed(least))} at {least.height}",
                *(number(each.power(index), 2) for index in (0, len(each.nodes) - 2)),
                f"{each.useful:.0f}",
                f"{number(max(one.excess for one in begun), 2)}, {number(begun[-1].excess, 2)}",
            ]
        )
    bases = [one for begun in starts for one in begun]
    worst = max(one.share for one in bases)
    broken = sum(one.without_third > 1 for one in bases)
    header = ["problem", "largest entry of Č: heights", "λ(1)", "least λ(h)", "p at the root", "p deepest"]
    header += ["useful from height", "Č / what would do: worst, deepest"]
    deep = [each for each in found if each.nodes[-1].largest == 2]
    near = max((abs(each.power(len(each.nodes) - 2) + 2) for each in deep), default=math.inf)
    payable = sum(_needed(node) < _BUDGET for each in found for node in each.nodes)
    text = f"""λ(h) by the full condition, the least over k = 0 … 3, at Λ = {number(_BUDGET)}; p is the
power of λ(h) ~ ρ^(ph) at k = 0. The same for constants of your own: `mixtree theory`.

{table(header, rows)}
The regimes go by the entry of Č that is the largest, because λ(h) at k = 0 is Č over the squared target, but
for a factor. The **third** holds (β²c1² + 𝒢c1)², where c1 is E d0² and falls like the target. So λ *falls*
like ρ^(2h) while β²c1² is the larger part, and is *constant* while 𝒢c1 is. From where the **second** entry
is the largest Č does not depend on the height any more and λ *grows* like ρ^(−2h), the paper's exponential
regime. The **first**, which the paper's constant regime asks for, is the largest at no height. λ(h) is below
Λ at {payable} of {sum(len(each.nodes) for each in found)} heights, all of the problem in small units.

Where the three entries come from (`c_check_entries` has the derivation): Č logΛ^8 must bound the variance of
every step. The step at the start asks for the first entry. All later ones ask for 2A + 2B√Č ≤ Č, A and B of
the problem; the paper does not solve this but asks for √Č ≥ 2B + δ and √Č ≥ 2A/δ with δ = 2/E, which are the
second entry and the third. So the third is a square because its root was divided by δ, and δ has no unit:
that is why Č is not scale-free, and most of why it is large. The last column is Č over the least number that
would do, max of the first entry and (B + √(B² + 2A))²; deep down, λ of k = 0 is too large by that factor."""
    findings = (
        Finding(
            "Č: start of the induction",
            "A + B√Č + Č/2 ≤ Č with the largest of the three entries",
            f"the left side is at most {number(worst)} of Č at all {len(bases)} nodes; without the third "
            f"entry it is above Č at {broken}",
            worst <= 1,
        ),
        Finding(
            "exponential regime of λ",
            "λ(h) grows like ρ^(−2h) (k = 0) once Č's second entry is the largest",
            f"power within {near:.3f} of −2 at the greatest height, in {len(deep)} of {len(found)} problems",
            near < 0.05,
        ),
    )
    return Section("regimes", "λ(h) by height and its regimes", text, findings, lambda: _draw(found))


def _draw(found: list[Heights]) -> Figure:
    canvas, panels = figure(len(found), width=4.2)
    shades = {1: "0.75", 2: "1.0", 3: "0.9"}
    for axes, each in zip(panels, found, strict=True):
        heights = [node.height for node in each.nodes]
        for entry, low, high in each.stretches:
            axes.axvspan(low - 0.5, high + 0.5, color=shades[entry], lw=0, zorder=0)
        constant = [node.constant.formula for node in each.nodes if node.constant]
        exponential = [node.exponential.formula for node in each.nodes if node.exponential]
        axes.semilogy(heights, [_needed(node) for node in each.nodes], color=COLOURS[0], label="full, best k")
        axes.semilogy(heights, exponential, color=COLOURS[1], ls="--", label="exponential regime (k = 0)")
        axes.semilogy(heights, constant, color=COLOURS[2], ls="-.", label="constant regime")
        axes.axhline(_BUDGET, color="k", lw=0.8, ls=":", label="Λ")
        if each.useful <= heights[-1]:
            axes.axvline(each.useful, color="0.4", lw=0.8, ls="--", label="target below D²")
        axes.set_title(each.label, fontsize=9)
        axes.set_xlabel("height h (grey: Č's third entry is the largest)", fontsize=8)
    panels[0].set_ylabel("λ(h), steps")
    panels[0].legend(fontsize=7)
    return canvas
