"""What the paper says, and whether it holds here: paired intervals over the repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, isfinite, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student

from mixtree.errors import InputError

Relation = Literal["better", "no worse", "≈", "narrower"]
Outcome = Literal["holds", "refuted", "undecided"]
Pair = tuple[str, str]
Scores = Mapping[str, NDArray[np.float64]]

CONFIDENCE = 0.95
LEAST_PAIRS = 3
"""With fewer repeats nothing is decided: Student's interval of two is thirteen standard errors wide."""
MOST_REPEATS = 1000
"""More repeats than this are not asked for: the difference is on the boundary for all practical purposes."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of the paper about pairs of algorithms, all of which must hold.

    CH and DP stand for the searches of a setting; ``only:*`` on the right for every source alone.
    """

    text: str
    place: str
    """Where the paper says so."""
    relation: Relation
    pairs: tuple[Pair, ...]
    pick: Literal["each", "best"] = "each"
    """Whether ``only:*`` means each of them, or the one that does best."""
    than: Pair | None = None
    """For "narrower": the pair whose gap is the wider one."""


def every(left: Iterable[str], right: Iterable[str]) -> tuple[Pair, ...]:
    """All pairs of one of the left and one of the right.

    >>> every(["CH"], ["uniform", "validation"])
    (('CH', 'uniform'), ('CH', 'validation'))
    """
    return tuple(product(left, right))


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean difference over paired repeats and its 95 % interval."""

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def sd(self) -> float:
        """The standard deviation of the differences."""
        if self.pairs < 2:
            return float("nan")
        return (self.high - self.mean) * sqrt(self.pairs) / float(_quantile(self.pairs))


@dataclass(frozen=True, slots=True)
class Finding:
    """One pair of a claim: the advantage of left over right, positive if left did better."""

    left: str
    right: str
    advantage: Interval
    outcome: Outcome
    reason: str
    likely: bool
    """Whether the mean lies where the claim says."""
    lacking: int
    """Repeats in which one of the two diverged: they are left out of the interval."""
    repeats: float
    """How many repeats would decide it, infinite if none would; those that were run if it is decided."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and what was measured for each of its pairs."""

    claim: Claim
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        """It holds if every pair does, and is refuted if one is."""
        outcomes = {each.outcome for each in self.findings}
        if "refuted" in outcomes:
            return "refuted"
        return "undecided" if "undecided" in outcomes else "holds"

    @property
    def shown(self) -> Finding:
        """The pair against which the claim fares worst."""
        rank = {"refuted": 0, "undecided": 1, "holds": 2}
        return min(self.findings, key=lambda each: (rank[each.outcome], each.advantage.mean))

    @property
    def repeats(self) -> float:
        """How many repeats would decide an undecided claim, if the means stay where they are.

        All of its pairs must be decided, or one of them refuted.
        """
        unsure = [each for each in self.findings if each.outcome == "undecided"]
        against = [each.repeats for each in unsure if not each.likely]
        return min(against, default=max((each.repeats for each in unsure), default=0.0))


def paired_interval(differences: Sequence[float] | NDArray[np.float64]) -> Interval:
    """The mean of paired differences with Student's interval; pairs that lack a score are left out.

    >>> interval = paired_interval([1.0, 2.0, 3.0])
    >>> interval.mean, round(interval.low, 4), round(interval.high, 4)
    (2.0, -0.4841, 4.4841)
    """
    given = np.asarray(differences, dtype=np.float64)
    known = given[np.isfinite(given)]
    if len(known) < 2:
        mean = float(known[0]) if len(known) else float("nan")
        return Interval(mean, -inf, inf, len(known))
    mean = float(known.mean())
    half = float(_quantile(len(known))) * float(known.std(ddof=1)) / sqrt(len(known))
    return Interval(mean, mean - half, mean + half, len(known))


def _quantile(pairs: ArrayLike) -> NDArray[np.float64]:
    return np.asarray(student.ppf(0.5 + CONFIDENCE / 2, np.asarray(pairs) - 1))


def judge(relation: Relation, advantage: Interval, tolerance: float) -> tuple[Outcome, str]:
    """Whether a relation holds at 95 % confidence, and why.

    Each relation is a range of the true advantage: "better" and "narrower" above 0, "no worse" above
    −tolerance, "≈" within ± tolerance. It holds if the interval lies in the range, is refuted if the interval
    lies outside, and is undecided if the interval contains a boundary.
    """
    if advantage.pairs < LEAST_PAIRS:
        return "undecided", f"{advantage.pairs} repeats with scores decide nothing"
    low, high = _range(relation, tolerance)
    if low < advantage.low and advantage.high < high:
        return "holds", f"the interval lies {f'within ± {high:g}' if isfinite(high) else f'above {low:g}'}"
    if advantage.high <= low:
        return "refuted", f"the interval ends {'below' if advantage.high < low else 'at'} {low:g}"
    if advantage.low >= high:
        return "refuted", f"the interval starts {'above' if advantage.low > high else 'at'} {high:g}"
    inside = [f"{bound:g}" for bound in (low, high) if advantage.low <= bound <= advantage.high]
    return "undecided", f"the interval contains {' and '.join(inside)}"


def _range(relation: Relation, tolerance: float) -> tuple[float, float]:
    if relation in ("better", "narrower"):
        return 0.0, inf
    return -tolerance, inf if relation == "no worse" else tolerance


def needed_repeats(relation: Relation, advantage: Interval, tolerance: float) -> float:
    """Repeats at which the interval would no longer contain a boundary, were mean and spread to stay.

    >>> needed_repeats("better", paired_interval([0.1, -0.2, 0.4, 0.0]), 0.0)
    46.0
    """
    distance = min(abs(advantage.mean - each) for each in _range(relation, tolerance))
    spread = advantage.sd
    if not (isfinite(spread) and distance > 0):
        return inf
    pairs = np.arange(LEAST_PAIRS, MOST_REPEATS + 1)
    enough = _quantile(pairs) * spread / np.sqrt(pairs) < distance
    return float(pairs[enough.argmax()]) if enough.any() else inf


def check(
    claim: Claim, scores: Scores, *, names: Mapping[str, str], tolerance: float, higher_is_better: bool
) -> Verdict:
    """A claim against test scores by algorithm, one per repeat in the same order; ``names``: CH, DP → ids."""
    sign = 1.0 if higher_is_better else -1.0

    def resolve(name: str) -> str:
        head, plus, tail = name.partition("+")
        found = names.get(head, head) + plus + tail
        if found not in scores and found != "only:*":
            raise InputError(f"claim {claim.text!r}: there are no scores of {found!r}")
        return found

    findings = []
    for pair in claim.pairs:
        left, wanted = (resolve(name) for name in pair)
        for right in _rights(wanted, scores, sign, best=claim.pick == "best"):
            differences = sign * (scores[left] - scores[right])
            if claim.than is not None:
                wide, wider = (resolve(name) for name in claim.than)
                # |wide gap| − |narrow gap| by repeat, each gap signed by its own mean.
                gaps = (sign * (scores[wide] - scores[wider]), differences)
                first, second = (
                    np.sign(np.nanmean(each)) if np.isfinite(each).any() else 1.0 for each in gaps
                )
                differences = np.asarray(first * gaps[0] - second * gaps[1])
            findings.append(_finding(claim.relation, left, right, differences, tolerance))
    return Verdict(claim, tuple(findings))


def _finding(
    relation: Relation, left: str, right: str, differences: NDArray[np.float64], tolerance: float
) -> Finding:
    advantage = paired_interval(differences)
    outcome, reason = judge(relation, advantage, tolerance)
    lacking = len(differences) - advantage.pairs
    wanted = needed_repeats(relation, advantage, tolerance) if outcome == "undecided" else advantage.pairs
    # Where too few pairs are left, their spread says nothing: no number is better than a wrong one.
    wanted = inf if advantage.pairs < LEAST_PAIRS else wanted
    low, high = _range(relation, tolerance)
    return Finding(left, right, advantage, outcome, reason, low < advantage.mean < high, lacking, wanted)


def _rights(name: str, scores: Scores, sign: float, *, best: bool) -> list[str]:
    if name != "only:*":
        return [name]
    alone = [each for each in scores if each.startswith("only:") and "+" not in each]
    return [max(alone, key=lambda each: _mean(sign * scores[each]))] if best else alone


def _mean(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else -inf
