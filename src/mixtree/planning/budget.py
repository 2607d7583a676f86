"""What a budget buys, before a run: nodes, depth, resolution of α, time, memory, disk, and what to choose.

Only facts of the search and of the partitions: how many nodes a budget of Λ steps pays for does not depend on
the data, and their depth lies between that of a tree grown evenly and that of a single path. How fine the
cells are there is measured by cutting: of an even tree the widest cell, of single paths the widest end. Time
and size come from a ``Pace``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mixtree.data.sources import Sources
from mixtree.engine.models import MEMORY_LIMIT
from mixtree.errors import InputError
from mixtree.partition import PARTITIONS
from mixtree.planning.constants import Estimate, estimate_constants
from mixtree.planning.timing import Pace
from mixtree.search import check_budget
from mixtree.seeds import SPLIT, derive_seed
from mixtree.theory import (
    Constants,
    Infeasible,
    TheorySchedule,
    steps_constant,
    steps_full,
    theory_schedule,
)
from mixtree.tree import Path

PLANNED = ("bisect", "halve", "delaunay")
POLICIES = {"bisect": "mixmatch-bisect", "halve": "mixmatch-ch", "delaunay": "mixmatch-dp"}
COMMIT = 0.5
"""The share of ``+commit``."""

_PATHS = 16  # walked per partition, fewer with very many sources
_DEEPEST = 400  # heights walked; cells only shrink below, so what is seen there is an upper bound
_MOST_SOURCES = 200
_FOLLOWED = 1280  # weights of the cells that are cut again at every height of an evenly grown tree
_FEWEST_NODES = 13  # a root and six cuts
_L2 = 0.01
_THEORY_ROWS, _THEORY_WEIGHTS = 1000, 2000


@dataclass(frozen=True, slots=True)
class Purchase:
    """What the budget buys with one partition and one λ. Pairs are (grown evenly, along one path)."""

    partition: str
    steps: int
    """λ."""
    nodes: int
    leaves: int
    depth: tuple[int, int]
    diameter: tuple[float, float]
    """Largest ℓ1 diameter of a deepest cell: of all of them, and of those at the end of 16 single paths. The
    simplex has 2."""
    model_steps: tuple[int, int]
    """Steps that the returned model has seen, its commit included."""
    seconds: float | None = None
    memory: int | None = None
    disk: int | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """What the theory would ask for."""

    feasible: bool | None
    """None where it is not known."""
    needed: float | None
    """λ(1), the steps of one child of the root; inf where no number is enough."""
    sentence: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A choice of λ, partition and commit share, with its reasons."""

    partition: str
    steps: int
    commit: float
    policy: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a budget buys, and what to choose."""

    sources: int
    budget: int
    commit: float
    purchases: tuple[Purchase, ...]
    recommendation: Recommendation
    theory: Demand
    pace: Pace | None
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        about = asdict(self)
        if self.theory.needed is not None and math.isinf(self.theory.needed):
            about["theory"]["needed"] = None
        return about


def plan(
    sources: int,
    budget: int,
    *,
    steps: int | None = None,
    commit: float = COMMIT,
    pace: Pace | None = None,
    theory: Demand | None = None,
    minimum: Sequence[float] | None = None,
    maximum: Sequence[float] | None = None,
    seed: int = 0,
) -> Plan:
    """What Λ = ``budget`` steps buy on K = ``sources`` sources, for each partition and a few λ.

    Parameters
    ----------
    sources
        K.
    budget
        Λ, in steps.
    steps
        A λ to look at besides the recommended one, its half and its double.
    commit
        Share of the budget that continues the best node at the end.
    pace
        What steps and nodes cost; None leaves out time, memory and disk.
    theory
        What ``theory_demand`` found on the data; by default the best case, κ = 1.
    minimum, maximum
        Bounds on the weights of the mixture.
    seed
        Of random cuts and of the paths that are walked.

    Returns
    -------
    Plan
        What every partition and λ buys, and a recommendation.

    Raises
    ------
    InputError
        If a number is out of range, or the budget does not buy one node of ``steps``.

    Examples
    --------
    >>> found = plan(3, 3000, steps=50)
    >>> found.recommendation.partition, found.recommendation.steps, found.recommendation.commit
    ('bisect', 115, 0.5)
    >>> [each.nodes for each in found.purchases if each.partition == "bisect"]
    [29, 25, 13, 5]
    """
    check_budget(budget)
    if isinstance(sources, bool) or not isinstance(sources, int | np.integer) or sources < 1:
        raise InputError(f"the number of sources must be a whole number of at least 1; got {sources!r}")
    if sources > _MOST_SOURCES:
        raise InputError(f"a plan is for up to {_MOST_SOURCES} sources, whose cells it cuts; got {sources}")
    if not 0 <= commit < 1:
        raise InputError(f"the commit share must be at least 0 and below 1; got {commit}")
    if steps is not None and (
        isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1
    ):
        raise InputError(f"steps per node must be a whole number of at least 1; got {steps!r}")
    if steps is not None and steps > budget:
        raise InputError(
            f"the budget of {budget} steps is smaller than one node of {steps}: raise the budget, or lower "
            "the steps per node"
        )
    demand = theory or theory_demand(sources, budget)
    share = _search_budget(budget, commit)
    if sources == 1 or share < 3:
        why = (
            "one source: there is one mixture, and the whole budget trains on it"
            if sources == 1
            else f"{share} steps for the search do not buy a root and two children: all {budget} train one "
            "model"
        )
        alone = Recommendation("none", budget, 0.0, "uniform", (why,))
        time = () if pace is None else (f"expected time: about {pace.seconds(budget, 1, seen=budget):.3g} s",)
        return Plan(sources, budget, 0.0, (), alone, demand, pace, time)
    chosen = recommended_steps(sources, budget, commit=commit)
    wanted = {max(1, chosen // 2), chosen, 2 * chosen, *(() if steps is None else (steps,))}
    # Only halve can keep to maximum weights.
    capped = maximum is not None and not all(bound >= 1 for bound in maximum)
    purchases: list[Purchase] = []
    for name in ("halve",) if capped else PLANNED:
        root, split = PARTITIONS[name].root(sources, minimum=minimum, maximum=maximum), PARTITIONS[name].split
        children = len(split(root, derive_seed(seed, (), SPLIT)))
        counts = [_count(name, children, each, budget, commit) for each in sorted(wanted)]
        bought = [each for each in counts if each is not None]
        if name == "delaunay" and len(root.representative) > 2:  # some child always keeps any two corners
            same = float(root.diameter(1))
            purchases += [replace(each, diameter=(same, same)) for each in bought]
        elif bought:
            even = widest(split, root, {each.depth[0] for each in bought}, seed=seed)
            path = diameters(split, root, {each.depth[1] for each in bought}, seed=seed)
            purchases += [
                replace(each, diameter=(even[each.depth[0]], path[each.depth[1]])) for each in bought
            ]
    if pace is not None:
        purchases = [_priced(each, budget, commit, pace) for each in purchases]
    recommendation = _recommend(purchases, chosen, sources, budget, commit, capped=capped)
    notes = _notes(purchases, recommendation, steps, budget, pace, capped=capped)
    return Plan(sources, budget, commit, tuple(purchases), recommendation, demand, pace, notes)


def recommended_steps(sources: int, budget: int, *, commit: float = COMMIT) -> int:
    """The largest λ that buys the ``wanted_nodes``.

    Parameters
    ----------
    sources
        K.
    budget
        Λ, in steps.
    commit
        Share of the budget that continues the best node at the end.

    Returns
    -------
    int
        λ.

    Examples
    --------
    >>> recommended_steps(3, 3000), recommended_steps(11, 3000)
    (115, 36)
    """
    share = _search_budget(budget, commit)
    return max(1, min(share // wanted_nodes(sources, share), share // 3))


def wanted_nodes(sources: int, share: int) -> int:
    """A rule of thumb for the nodes of a search with so many steps to spend.

    Two tries per height of a path of K − 1 cuts, 4(K − 1) + 1; at least 13; and from about 1700 steps on
    √(share/10), so that a larger budget buys more nodes and longer ones alike.

    >>> wanted_nodes(3, 1500), wanted_nodes(11, 1500), wanted_nodes(3, 100_000)
    (13, 41, 101)
    """
    # Odd, as a root with pairs of children is.
    return max(_FEWEST_NODES, 4 * (sources - 1) + 1, math.isqrt(share // 10) | 1)


def budget_for(
    seconds: float, sources: int, pace: Pace, *, steps: int | None = None, commit: float = COMMIT
) -> int:
    """The largest budget expected to take no longer than so many seconds.

    Parameters
    ----------
    seconds
        The time.
    sources
        K.
    pace
        What steps and nodes cost.
    steps
        λ; by default the recommended one.
    commit
        Share of the budget that continues the best node at the end.

    Returns
    -------
    int
        Λ, in steps.

    Raises
    ------
    InputError
        If the time does not even buy one node.

    Examples
    --------
    >>> budget_for(60.0, 3, Pace(step_seconds=0.01, node_seconds=0.1, model_bytes=1000))
    5820
    """
    if not (math.isfinite(seconds) and seconds > 0):
        raise InputError(f"the time must be a finite number of seconds above 0; got {seconds}")
    if not pace.step_seconds > 0:
        raise InputError(f"a step must take some time; got {pace.step_seconds} seconds")

    def fits(budget: int) -> bool:
        each = steps or recommended_steps(sources, budget, commit=commit)
        expansions = max(0, _search_budget(budget, commit) - each) // (2 * each)
        return pace.seconds(budget, 1 + 2 * expansions + (commit > 0), seen=budget) <= seconds

    low, high = 0, max(1, int(seconds / pace.step_seconds))
    while low < high:  # steps alone never exceed ``high``
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    if low < max(1, steps or 1):
        least = pace.seconds(steps or 1, 1, seen=steps or 1)
        raise InputError(f"{seconds:g} s is too short: one node alone takes about {least:.2g} s here")
    return low


def theory_demand(
    sources: int, budget: int, *, data: Sources | None = None, convex: bool = False, seed: int = 0
) -> Demand:
    """What the theory asks for: λ(1) with constants of the data if the model is linear, else the best case.

    The constants are the optimistic ones, of at most 1000 rows a source and with ½·0.01·‖w‖² added: a problem
    without it is not strongly convex. So the number is the least that the theorems could ask for.

    Parameters
    ----------
    sources
        K.
    budget
        Λ, in steps.
    data
        Whose constants to take; None takes the best case, κ = 1.
    convex
        Whether the model is linear, which the theory asks for.
    seed
        Draws rows where a source has more than 1000.

    Returns
    -------
    Demand
        Whether the budget is enough, and a sentence.

    Examples
    --------
    >>> found = theory_demand(3, 3000)
    >>> found.feasible, f"{found.needed:.3g}"
    (False, '6.38e+06')
    """
    if sources < 2:
        return Demand(None, None, "One source: the theory has nothing to say.")
    if budget < 3:
        return Demand(False, None, "The theory is infeasible: it begins at Λ = 3 steps.")
    if data is None or not convex:
        return _best_case(sources, budget)
    weights = data.features * max(1, data.classes)
    if weights > _THEORY_WEIGHTS:
        best = _best_case(sources, budget)
        return replace(best, sentence=f"{best.sentence} {weights} weights are too many to estimate this κ.")
    constants = theory_constants(data, l2=_L2, seed=seed).optimistic
    answers = [steps_full(1, constants, budget=budget, k=k) for k in range(4)]
    counts = [each.needed if isinstance(each, Infeasible) else each for each in answers]
    known = [float(each) for each in counts if each is not None]
    about = f"With l2 = {_L2:g} this problem has κ = {constants.kappa:.3g}"
    if not known:
        return Demand(False, math.inf, f"{about}. The theory is infeasible: no number of steps is enough.")
    needed = min(known)
    if needed >= budget:
        words = f"The theory is infeasible: one node asks for {needed:.3g} steps, and Λ is {budget}."
        return Demand(False, needed, f"{about}. {words}")
    return Demand(True, needed, f"{about}. The theory asks for {needed:.3g} steps a node.")


def _best_case(sources: int, budget: int) -> Demand:
    unit = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.5, diameter=1.0, sources=sources)
    needed = max(1.0, steps_constant(1, unit, budget=budget).formula)
    words = f"on the best problem there is (κ = 1) the closed form asks for {needed:.3g} steps a node"
    if needed < budget:
        return Demand(None, needed, f"O{words[1:]}; what this problem asks for is not known.")
    return Demand(False, needed, f"The theory is infeasible: even {words}, and Λ is {budget}.")


def theory_constants(data: Sources, *, l2: float, seed: int = 0) -> Estimate:
    """The constants of the linear model on these sources, of at most 1000 rows of each, ½·l2·‖w‖² added.

    Parameters
    ----------
    data
        The sources.
    l2
        Weight of the term that makes the problem strongly convex.
    seed
        Draws the rows.

    Returns
    -------
    Estimate
        β, μ, L, σ, 𝒢 and D, each from below and from above.
    """
    weights = data.features * max(1, data.classes)
    if weights > _THEORY_WEIGHTS:
        raise InputError(
            f"{weights} weights are too many to estimate the theory's constants (at most {_THEORY_WEIGHTS}): "
            "leave columns out, or give the constants"
        )
    rng = np.random.default_rng(seed)
    rows = tuple(
        part
        if len(part) <= _THEORY_ROWS
        else part.take(np.sort(rng.choice(len(part), _THEORY_ROWS, replace=False)))
        for part in data.rows
    )
    return estimate_constants(replace(data, rows=rows), l2=l2, samples=len(data) + 4, seed=seed)


def schedule_of(data: Sources, budget: int, *, seed: int = 0) -> TheorySchedule:
    """λ(h) as the theory asks for it on these sources, by constants that are never below the truth.

    Parameters
    ----------
    data
        The sources.
    budget
        Λ, in SGD steps; an error where it does not pay for the root and one expansion.
    seed
        Draws the rows that the constants are estimated from.

    Returns
    -------
    TheorySchedule
    """
    return theory_schedule(theory_constants(data, l2=_L2, seed=seed).sound, budget=budget)


# -- counting ------------------------------------------------------------------------------------------------


def _search_budget(budget: int, commit: float) -> int:
    return int(round(budget * (1.0 - commit), 6))


def _count(name: str, children: int, steps: int, budget: int, commit: float) -> Purchase | None:
    """Nodes and depths of a search with constant λ; None if not even one expansion can be paid for."""
    share = _search_budget(budget, commit)
    if not children or steps * (1 + children) > share:
        return None
    expansions = (share - steps) // (children * steps)
    nodes = 1 + children * expansions
    even, opened = 0, 0
    while opened < expansions:
        opened += children**even
        even += 1
    left = budget - nodes * steps if commit > 0 else 0
    depth = (even, expansions)
    seen = tuple(steps * (1 + height) + left for height in depth)
    return Purchase(name, steps, nodes, nodes - expansions, depth, (math.nan, math.nan), (seen[0], seen[1]))


def widest(split: Callable[..., Any], root: Any, heights: set[int], *, seed: int = 0) -> dict[int, float]:
    """Largest ℓ1 diameter of all cells at these heights, found by cutting the widest ones of every height.

    Exact while a height has no more cells than are followed (about 1280/K); below that nearly always, because
    cells only shrink.

    Parameters
    ----------
    split
        The partition, (cell, seed) → cells.
    root
        The root cell.
    heights
        Heights to look at.
    seed
        Of random cuts.

    Returns
    -------
    dict
        Diameter by height.

    Examples
    --------
    >>> rule = PARTITIONS["bisect"]
    >>> widest(rule.split, rule.root(3), {0, 3, 9})
    {0: 2.0, 3: 1.0, 9: 0.125}
    """
    most = max(8, _FOLLOWED // len(root.representative))
    largest: list[float] = []
    level: list[tuple[float, Path, Any]] = [(root.diameter(1), (), root)]
    while level:
        largest.append(float(level[0][0]))
        if len(largest) > max(heights):
            break
        below = [
            (child.diameter(1), (*path, index), child)
            for _, path, cell in level
            for index, child in enumerate(split(cell, derive_seed(seed, path, SPLIT)))
        ]
        level = sorted(below, key=lambda each: -each[0])[:most]
    return {height: largest[min(height, len(largest) - 1)] for height in sorted(heights)}


def diameters(split: Callable[..., Any], root: Any, heights: set[int], *, seed: int = 0) -> dict[int, float]:
    """Largest ℓ1 diameter that up to 16 paths see at these heights: the first, the last and random children.

    Heights beyond 400 get what is seen there, an upper bound: cells only shrink.

    Parameters
    ----------
    split, root, heights
        As for :func:`widest`.
    seed
        Of random cuts and random children.

    Returns
    -------
    dict
        Diameter by height.
    """
    stops = {min(height, _DEEPEST) for height in heights}
    largest = dict.fromkeys(stops, 0.0)
    rng = np.random.default_rng(seed)
    picks: list[Callable[[int], int]] = [lambda count: 0, lambda count: count - 1]
    paths = max(4, min(_PATHS, 800 // len(root.representative)))
    picks += [lambda count: int(rng.integers(count))] * (paths - 2)
    for index, pick in enumerate(picks):
        cell = root
        for height in range(max(stops) + 1):
            if height in stops:
                largest[height] = max(largest[height], cell.diameter(1))
            children = split(cell, derive_seed(seed, (index, height), SPLIT))
            if children:  # none: as small as floating point allows
                cell = children[pick(len(children))]
    return {height: largest[min(height, _DEEPEST)] for height in heights}


def _priced(each: Purchase, budget: int, commit: float, pace: Pace) -> Purchase:
    used = budget if commit > 0 else each.nodes * each.steps
    # What is kept: every leaf, which a raised budget may open, and the committed model.
    committed = 1 if commit > 0 else 0
    disk = each.leaves * pace.size(each.steps * (1 + each.depth[0]))
    disk += committed * pace.size(each.model_steps[0])
    memory = None if pace.process_bytes is None else pace.process_bytes + min(disk, MEMORY_LIMIT)
    seconds = pace.seconds(used, each.nodes + committed, seen=each.model_steps[0])
    return replace(each, seconds=seconds, memory=memory, disk=disk)


# -- choosing ------------------------------------------------------------------------------------------------


def _recommend(
    purchases: Sequence[Purchase],
    steps: int,
    sources: int,
    budget: int,
    commit: float,
    *,
    capped: bool,
) -> Recommendation:
    name = "halve" if capped else "bisect"
    at = {each.partition: each for each in purchases if each.steps == steps}
    if name not in at:
        why = f"{budget} steps leave no search: the bounds on α or the commit share leave nothing to cut"
        return Recommendation("none", budget, 0.0, "uniform", (why,))
    mine, star = at[name], at.get("delaunay")
    reasons = ["halve is the partition that keeps to maximum weights"]
    if not capped:
        even, path = (f"{width:.2g}" if width >= 0.001 else "below 0.001" for width in mine.diameter)
        reasons = [
            "bisect is the partition of the theorems: its cells shrink in the long run on every path "
            f"(largest ℓ1 diameter here {even} grown evenly, {path} along one path)"
        ]
        if star is not None and star.diameter[1] > mine.diameter[1] * 1.01:
            reasons[0] += f"; delaunay's largest keep {star.diameter[1]:.2g}"
    wanted = wanted_nodes(sources, _search_budget(budget, commit))
    if mine.nodes >= wanted:
        reasons.append(f"λ = {steps} is the most that buys the {wanted} nodes wanted (a rule of thumb)")
    else:
        reasons.append(f"λ = {steps} is the least there is; it buys {mine.nodes} nodes, {wanted} are wanted")
    seen = mine.model_steps[0] / budget
    if commit > 0:
        on_path = mine.steps * (1 + mine.depth[0]) / budget
        reasons.append(
            f"a commit share of {commit:g} lets the returned model see {seen:.0%} of the steps, not the "
            f"{on_path:.0%} on its own path"
        )
    else:
        reasons.append(
            f"without a commit the returned model sees only {seen:.0%} of the steps: the rest is search"
        )
    if mine.diameter[1] > 1:
        reasons.append(
            f"caution: even along one path the cells keep an ℓ1 diameter of {mine.diameter[1]:.2g}, and the "
            "simplex has 2: raise the budget, or merge sources"
        )
    policy = POLICIES[name] + ("+commit" if commit > 0 else "")
    return Recommendation(name, steps, commit, policy, tuple(reasons))


def _notes(
    purchases: Sequence[Purchase],
    chosen: Recommendation,
    steps: int | None,
    budget: int,
    pace: Pace | None,
    *,
    capped: bool,
) -> tuple[str, ...]:
    notes = []
    if capped:
        notes.append("maximum weights: bisect and delaunay cannot keep to them and are left out")
    if steps is not None and not any(each.steps == steps for each in purchases):
        notes.append(f"λ = {steps} is not shown: the search cannot pay for a root and one expansion with it")
    elif steps is not None and steps != chosen.steps:
        notes.append(f"you gave λ = {steps}; the recommended λ is {chosen.steps}")
    if chosen.commit not in (0, COMMIT):
        how = f"{chosen.commit:g} is then_commit(TreeSearch(…), share={chosen.commit:g}) in Python"
        notes.append(f"the policy +commit has a share of {COMMIT:g}; {how}")
    if pace is not None and pace.step_bytes > 0:
        notes.append("the model grows with every step and slows down: times are rough")
    if pace is not None and pace.node_seconds > chosen.steps * pace.step_seconds:
        notes.append("evaluating and storing nodes takes longer than training them: a larger λ is quicker")
    if pace is not None:
        notes.append("times are those of this machine under its load now, in one process")
        more = pace.seconds(budget, 1, seen=budget)
        notes.append(
            f"not in them: the comparison with uniform that fit makes, about {more:.2g} s (--reference none "
            "leaves it out)"
        )
    notes.append("all this is the tree search; fit's default policy, auto, needs no λ and divides the budget")
    return tuple(notes)
