"""All that the theory says of one problem at one budget: constants, λ(h), h(Λ), the bound of the regret."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from mixtree.schedules import Infeasible, Steps
from mixtree.theory._numbers import check_budget, natural_log, whole
from mixtree.theory.regret import Dimension, height_reached, regret_bound, regret_failure
from mixtree.theory.sgd import sgd_terms, step_size
from mixtree.theory.smoothness import Constants, nu1, nu2, rho, rho2
from mixtree.theory.steps import (
    ClosedForm,
    node_problem,
    steps_constant,
    steps_exponential,
    steps_failure,
    steps_full,
)

_K = range(4)
_MOST_HEIGHTS = 10_000


@dataclass(frozen=True, slots=True)
class NodeSteps:
    """λ(h) of one height with the numbers that it comes from."""

    height: int
    d0_squared: float
    """Squared distance of a node's start to its optimum, at most."""
    target: float
    """ν1ρ^h: where its training must end."""
    steps: Steps
    """By the full condition, the least over k = 0 … 3: every k holds."""
    k: int | None
    """The k of that least number; None where no number of steps is enough."""
    largest: int
    """Which of the three entries of Č is the largest: 1, 2 or 3."""
    log_c_check: float
    """ln Č; Č itself may be beyond all floats."""
    constant: ClosedForm | None
    """The closed form of the constant regime; the root has none."""
    exponential: ClosedForm | None

    @property
    def needed(self) -> int | None:
        """λ(h), were the budget no limit; None where no number of steps is enough."""
        return self.steps.needed if isinstance(self.steps, Infeasible) else self.steps

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        late = isinstance(self.steps, Infeasible)
        return {
            "height": self.height,
            "d0_squared": _finite(self.d0_squared),
            "target": self.target,
            "steps": None if late else self.steps,
            "needed": self.needed,
            "k": self.k,
            "reason": str(self.steps) if late else None,
            "c_check": {"log": _finite(self.log_c_check), "largest_entry": self.largest},
            "constant_regime": _closed(self.constant),
            "exponential_regime": _closed(self.exponential),
        }


@dataclass(frozen=True, slots=True)
class Calculation:
    """What ``calculate`` found."""

    constants: Constants
    budget: float
    dimension: Dimension
    given_steps: int | None
    """The λ that h(Λ) is of; None: the theory's."""
    derived: dict[str, float]
    """κ, ν1, ρ, ν2, ρ2, E, η_0 by their names in ``mixtree.theory``."""
    nodes: tuple[NodeSteps, ...]
    reached: int | Infeasible
    """h(Λ)."""

    @property
    def feasible(self) -> bool:
        """Does Λ pay for the root and one expansion, each node trained as the theory asks?"""
        return not isinstance(self._own, Infeasible)

    @property
    def regret_bound(self) -> float | None:
        """4ν2ρ2^{h(Λ)−1}; None where there is no tree."""
        if isinstance(self.reached, Infeasible):
            return None
        return regret_bound(self.reached, nu2=self.derived["nu2"], rho2=self.derived["rho2"])

    @property
    def sentence(self) -> str:
        """Feasibility in words."""
        if isinstance(self._own, Infeasible):
            return f"infeasible: {self._own}"
        root, child = least_steps(0, self.constants, self.budget), least_steps(1, self.constants, self.budget)
        assert isinstance(root[0], int) and isinstance(child[0], int)
        return f"feasible: λ(0) + 2λ(1) is {root[0] + 2 * child[0]} steps of Λ = {self.budget:g}"

    @property
    def _own(self) -> int | Infeasible:
        if self.given_steps is None:
            return self.reached
        return _reached(None, self.constants, self.budget, self.dimension)

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON; numbers that no float holds are null."""
        late = isinstance(self.reached, Infeasible)
        return {
            "constants": asdict(self.constants),
            "budget": self.budget,
            "dimension": asdict(self.dimension),
            "derived": {name: _finite(value) for name, value in self.derived.items()},
            "nodes": [each.as_dict() for each in self.nodes],
            "given_steps": self.given_steps,
            "height_reached": None if late else self.reached,
            "no_tree": str(self.reached) if late else None,
            "regret_bound": self.regret_bound,
            "regret_failure": regret_failure(budget=self.budget),
            "steps_failure": steps_failure(budget=self.budget),
            "feasible": self.feasible,
            "sentence": self.sentence,
        }


def calculate(
    constants: Constants,
    *,
    budget: float,
    heights: int = 5,
    steps: int | None = None,
    dimension: Dimension | None = None,
) -> Calculation:
    """Constants, λ(h) of the heights 0 … ``heights``, h(Λ) and the bound of the regret in one answer.

    Parameters
    ----------
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.
    heights
        The greatest height whose λ(h) is computed.
    steps
        A constant λ for h(Λ), to see what a tree of such nodes would reach; by default the theory's own λ(h),
        which is nearly always infeasible.
    dimension
        d and C; by default the best case, d = 0 and C = 1.

    Returns
    -------
    Calculation
        All numbers, with a sentence on feasibility.

    Examples
    --------
    >>> small = Constants(beta=1.0, mu=1.0, lipschitz=2e-4, sigma=3e-4, noise=4e-8, diameter=2e-4, sources=2)
    >>> found = calculate(small, budget=10**8)
    >>> found.feasible, [node.needed for node in found.nodes[:2]], found.reached
    (True, [1868935, 21015422], 3)
    >>> print(calculate(small, budget=10**7).sentence)
    infeasible: λ(1) needs 17584734 steps, more than the budget Λ = 1e+07
    """
    check_budget(budget)
    whole("heights", heights, least=0, most=_MOST_HEIGHTS)
    size = dimension or Dimension(0.0, 1.0)
    spread = {"sigma": constants.sigma, "mu": constants.mu, "sources": constants.sources}
    shift = sgd_terms(1.0, constants, budget=budget).shift
    return Calculation(
        constants,
        float(budget),
        size,
        None if steps is None else whole("steps", steps, least=1),
        {
            "kappa": constants.kappa,
            "nu1": nu1(**spread),  # type: ignore[arg-type]
            "rho": rho(constants.sources),
            "nu2": nu2(lipschitz=constants.lipschitz, **spread),  # type: ignore[arg-type]
            "rho2": rho2(constants.sources),
            "step_shift": float(shift),
            "first_step_size": step_size(0, constants, budget=budget),
        },
        tuple(node_steps(height, constants, budget=budget) for height in range(heights + 1)),
        _reached(steps, constants, budget, size),
    )


def least_steps(height: int, constants: Constants, budget: float) -> tuple[Steps, int | None]:
    """λ(h) by the full condition, the least over k = 0 … 3, and its k.

    Parameters
    ----------
    height
        h; the root has 0.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    Returns
    -------
    tuple
        λ(h) or Infeasible, and k; None for k where no number of steps is enough.
    """
    found = [steps_full(height, constants, budget=budget, k=k) for k in _K]
    needed = [each.needed if isinstance(each, Infeasible) else each for each in found]
    known = [(count, k) for k, count in enumerate(needed) if count is not None]
    if not known:
        return found[0], None
    k = min(known)[1]
    return found[k], k


def _reached(
    steps: int | None, constants: Constants, budget: float, dimension: Dimension
) -> int | Infeasible:
    own = steps if steps is not None else lambda height: least_steps(height, constants, budget)[0]
    return height_reached(own, budget=budget, dimension=dimension, rho2=rho2(constants.sources))


def node_steps(height: int, constants: Constants, *, budget: float) -> NodeSteps:
    """λ(h) of one height with the numbers that it comes from.

    Parameters
    ----------
    height
        h; the root has 0.
    constants
        β, μ, L, σ, 𝒢, D and K of the problem.
    budget
        Λ, in SGD steps.

    Returns
    -------
    NodeSteps
        λ(h), its closed forms, and Č.

    Examples
    --------
    >>> one = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.5, diameter=1.0, sources=3)
    >>> found = node_steps(300, one, budget=1e8)
    >>> found.largest, f"{found.needed:.3g}"
    (2, '1.34e+26')
    """
    start, target = node_problem(height, constants)
    terms = sgd_terms(start, constants, budget=budget)
    steps, k = least_steps(height, constants, budget)
    below = height > 0
    return NodeSteps(
        height,
        float(start),
        float(target),
        steps,
        k,
        1 + terms.check_entries.index(terms.c_check),
        natural_log(terms.c_check),
        steps_constant(height, constants, budget=budget) if below else None,
        steps_exponential(height, constants, budget=budget) if below else None,
    )


def _closed(form: ClosedForm | None) -> dict[str, Any] | None:
    if form is None:
        return None
    return {"formula": _finite(form.formula), "valid": form.valid, "broken": list(form.broken)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
