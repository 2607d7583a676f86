"""docs/theory.md: the statements, the misprints, and what the experiments measured; written by the run."""

from __future__ import annotations

import re
import tempfile
from decimal import Decimal
from math import isclose
from pathlib import Path

from mixtree._native.threads import one_thread
from mixtree.data.files import write_figure, write_file
from mixtree.data.synthetic import synthetic
from mixtree.experiments.theorems import (
    cells,
    chosen,
    demand,
    matching,
    optima,
    regimes,
    regret,
    sgd,
)
from mixtree.experiments.theorems.findings import Section, number, table
from mixtree.planning.constants import Estimate, estimate_constants

_COMMAND = "python -m mixtree.experiments.theorems --out docs"
TOLERANCE = 0.05
ABSOLUTE = 1e-6
_CHECK = "python -m mixtree.experiments.theorems --check docs"

_INTRODUCTION = f"""# Theory: what is proved, what it costs, what we measured

This page, its numbers and its figures are written by one command (about three minutes of one core):

    {_COMMAND}

The same machine and versions write the same page. Another processor rounds otherwise, and a search that
compares nearly equal numbers may then turn elsewhere. Every number is reproduced within {TOLERANCE:.0%}, one
unit of its last digit or {ABSOLUTE:g}, whichever is most. To run everything again and list each number that
is not:

    {_CHECK}

`mixtree.theory` is the calculator: every constant and bound as a small function, its misprints corrected.
`mixtree.planning.constants` estimates the constants of a data set. They are a diagnostic, never a default.
`mixtree theory` prints all of it, for constants that you give or for tables (the linear model): ν1, ρ, E,
λ(h) and its regimes, h(Λ), the bound of the regret, and whether Λ pays for it; as JSON with `--json`:

    mixtree theory --budget 1e8 --sources 2 --kappa 1 --sigma 3e-4 --lipschitz 2e-4 --noise 4e-8 \\
        --diameter 2e-4
    mixtree theory customers.csv --source-col state --label bought --val market.csv --budget 1e5 --json
"""

_STATEMENTS = [
    (
        "Theorem: close mixtures, close optima",
        "‖w*(α1) − w*(α2)‖ ≤ 2σ‖α1 − α2‖₁/μ",
        "`optimum_distance`",
    ),
    (
        "Lemma: diameter after repeated bisection",
        "ℓ2 ≤ √2·(√3/2)^floor(h/(K−1)); ℓ1 ≤ √(2K)·(√3/2)^(h/(K−1) − 1)",
        "`diameter_l2`, `diameter_l1`",
    ),
    (
        "Corollary: smoothness of the optima in a cell",
        "squared distance ≤ ν1ρ^h; ν1 = (4σ√(2K)/(√3 μ))², ρ = (√3/2)^{2/(K−1)}",
        "`nu1`, `rho`, `optimum_spread`",
    ),
    (
        "Corollary: smoothness of G in a cell",
        "difference ≤ ν2ρ2^h; ν2 = L√ν1, ρ2 = √ρ",
        "`nu2`, `rho2`, `value_spread`",
    ),
    (
        "Theorem: SGD final iterate",
        "after t steps ‖w − w*‖² ≤ G0/(t+E) + 8tC̃/(μ(t+E)Λ^7) + 4√(2 logΛ^8)·√Ĉ(k)/(μ(t+E)^{α_{k+1}}), for "
        "every k ≥ 0, with probability ≥ 1 − t/Λ^8",
        "`sgd_bound`, `sgd_failure`",
    ),
    (
        "its step sizes",
        "η_t = 2/(μ(t + E)), E = 4096κ² logΛ^8, t restarting at every node",
        "`step_size`, `step_shift`",
    ),
    (
        "its constants",
        "G0 = max{E d0², 8𝒢/μ²}; C̃ = D√(8β²D² + 2𝒢); c1 = G0 + 8C̃/(μΛ^6); c2 = 4√2/μ; "
        "V0 = 8d0²(4β²d0² + 𝒢)/(1+E); Č = max{V0/logΛ^8, "
        "(8𝒢c2 + min(2/E, 1))², (64β²c1²/((1+E) logΛ^8) + 8𝒢c1/logΛ^8)²}; Ĉ(k); α_k = 1 − 2^{-k}",
        "`g0`, `c_tilde`, `c1`, `c2`, `v0`, `c_check`, `c_check_entries`, `c_hat`, `log_c_check`, "
        "`log_c_hat`, `alpha_k`",
    ),
    (
        "Corollary: steps per node",
        "λ(h+1) = the smallest t whose bound from d0² = 4ν1ρ^h is at most ν1ρ^{h+1}; λ(0): from D², at most "
        "ν1. No such t below Λ: *infeasible*, a value of its own",
        "`steps_full`, `steps_failure`, `steps_constant`, `steps_exponential`, `theory_schedule`, "
        "`Infeasible`; all at once: `calculate`, `node_steps`",
    ),
    (
        "Definition: near-optimality dimension",
        "d = inf{d' : N_h(3ν2ρ2^h) ≤ Cρ2^{−d'h} for all h}",
        "`near_optimality`",
    ),
    (
        "Lemma: height of the tree",
        "h(Λ) = h' + 1, h' the least h with Σ_{l≤h} 2Cλ(l)ρ2^{−dl} > Λ − 2λ(h+1)",
        "`height_reached`",
    ),
    (
        "Theorem: regret",
        "R(Λ) ≤ 4ν2ρ2^{h(Λ)−1} with probability ≥ 1 − Λ^{-3}",
        "`regret_bound`, `regret_failure`",
    ),
    (
        "Corollary: scaling of the regret",
        "slope against Λ on log axes −1/d (constant λ), −1/(d+4) (exponential regime)",
        "`predicted_slope`",
    ),
]

_MISPRINTS = """## Misprints in the paper, corrected here

- The table of constants has E = 2048κ² logΛ^4; the proofs need E = 4096κ² logΛ^8. It also squares d_t and
  carries a stray factor 2 in ϱ_t.
- The SGD theorem bounds the *squared* distance, and to w*, not to w_0.
- The step corollary's condition has 8𝒢/μ²; two √μ then vanish from its closed form.
- The recursion of Ĉ misses β² and logΛ^8, carries 1/μ² and 1/μ that c2 already holds, and (1 − α_k) should be
  (1 − α_{k+1}).
- Azuma's exponent is 8Σd² (V already holds the factor 4, so the bound does not change), and its e^{4θd²/2}
  needs θ².
- B_t is an intersection of events.
- |J_h| ≤ Cρ2^{−d·h}; λ(l), not λ(h), inside the sum of the height lemma.
- G − 3ν2ρ2^{h'} ≤ G(α*) in the proof about the tree.
- The section on scaling counts the logarithm twice and writes ρ for ρ2.
- The coupling step in the proof of close optima loses a √2. The statement still holds, directly:
  μ‖Δw*‖ ≤ ‖Σ Δα_i ∇F_i‖.
- Smoothness is an inequality ≤, and Ĝ(α) = F_te(ŵ(α)).
- The remark that moment matching fails holds for moments of x alone; matching the joint moments of (x, y) is
  consistent when the target is in the hull.

Two things that are no misprints but must be known: the conditions of the constant regime exclude each other
("What the theory asks for"), and Č is not scale-free ("λ(h) by height and its regimes" says where its three
entries come from).
"""


def regenerate(folder: Path, *, quick: bool = False) -> list[Path]:
    """Run every experiment and write theory.md and figures/theory-*.png into the folder."""
    with one_thread():
        experiments = (optima, cells, sgd, demand, regimes, regret, chosen, matching)
        sections = [experiment.section(quick=quick) for experiment in experiments]
        problem = synthetic(rows=100 if quick else 1000, features=5, seed=0)
        estimate = estimate_constants(problem.sources, l2=0.1)
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    files = []
    for each in sections:
        files.append(figures / f"theory-{each.name}.png")
        # Without the version of the library that drew it, the same run gives the same bytes.
        write_figure(files[-1], each.draw(), dpi=110, metadata={"Software": None})
    page = folder / "theory.md"
    write_file(page, _page(sections, estimate))
    return [page, *files]


_NUMBER = re.compile(r"(?<![\w.])[-−]?\d+(?:\.\d+)?(?:e[+-]?\d+)?%?")


def check(folder: Path, *, quick: bool = False) -> list[str]:
    """Write the page anew elsewhere; what in the folder's theory.md is not reproduced, line by line."""
    before = (folder / "theory.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as elsewhere:
        page, *_ = regenerate(Path(elsewhere), quick=quick)
        return differences(before, page.read_text(encoding="utf-8"))


def differences(before: str, after: str) -> list[str]:
    """Lines whose words differ, or whose numbers differ by more than the tolerance.

    >>> differences("a 1.00 b", "a 1.04 b"), differences("a 1.00 b", "a 1.10 b")
    ([], ['1: 1.00 is now 1.10: a 1.00 b'])
    >>> differences("0.2 of 7", "0.3 of 7"), differences("0.2 of 7", "0.2 of 8")
    ([], ['1: 7 is now 8: 0.2 of 7'])
    """
    old, new = before.splitlines(), after.splitlines()
    found = []
    if len(old) != len(new):
        found.append(f"{len(old)} lines are now {len(new)}")
    for number_, (one, two) in enumerate(zip(old, new, strict=False), start=1):
        if _NUMBER.sub("#", one) != _NUMBER.sub("#", two):
            found.append(f"{number_}: other words: {one}")
            continue
        for a, b in zip(_NUMBER.findall(one), _NUMBER.findall(two), strict=True):
            if not isclose(_value(a), _value(b), rel_tol=TOLERANCE, abs_tol=max(ABSOLUTE, _unit(a))):
                found.append(f"{number_}: {a} is now {b}: {one}")
    return found


def _value(text: str) -> float:
    return float(text.replace("−", "-").rstrip("%"))


def _unit(text: str) -> float:
    """What its last digit counts, and a little for rounding; counts are exact."""
    if text.lstrip("-−").isdigit():
        return 0.0
    return 1.01 * 10.0 ** int(Decimal(text.replace("−", "-").rstrip("%")).as_tuple().exponent)


def _page(sections: list[Section], estimate: Estimate) -> str:
    verdicts = [
        [finding.claim, finding.predicted, finding.measured, "yes" if finding.holds else "**no**"]
        for each in sections
        for finding in each.findings
    ]
    failed = sum(row[-1] != "yes" for row in verdicts)
    rows = [
        [name, number(optimistic, 4), number(sound, 4), known]
        for name, optimistic, sound, known in estimate.table()
    ]
    parts = [
        _INTRODUCTION,
        f"""## In one table

{len(verdicts) - failed} of {len(verdicts)} statements hold as measured; {failed} do not, and say so.

{table(["statement", "predicted", "measured", "holds?"], verdicts)}""",
        f"""## The statements

Setting: each f(·; z) β-smooth and convex; each F_α μ-strongly convex, and L-Lipschitz on the hull X of
the optima (both cannot hold everywhere); ‖∇f(w*(α); z)‖² ≤ 𝒢; σ² = sup β²‖w − w'‖² + 𝒢(α) over X; D
bounds the distance of all iterates; κ = β/μ; log is natural.

{table(["statement", "formula", "functions of `mixtree.theory`"], _STATEMENTS)}""",
        f"""## The constants of a data set

`mixtree.planning.constants.estimate_constants` gives every constant of an L2-regularised softmax or linear
regression twice: *optimistic*, from sampled mixtures and never above the truth, and *sound*, proved and
never below it. Both are about the rows that SGD draws, not about a population behind them. Here a
synthetic problem with three sources, two classes, five features and l2 = 0.1:

{table(["constant", "optimistic", "sound", "what is known of the error"], rows)}""",
    ]
    for each in sections:
        picture = f"![{each.title}](figures/theory-{each.name}.png)"
        parts.append(f"## {each.title}\n\n{each.text}\n\n{picture}\n")
    parts.append(_MISPRINTS)
    return "\n".join(parts)
