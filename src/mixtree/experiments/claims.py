"""What the paper says, and whether it holds here: paired intervals over the repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from mixtree.errors import InputError

Relation = Literal["better", "no worse", "≈"]
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement about two algorithms, or one algorithm and each (or the best) of several.

    CH and DP stand for the searches of a setting; ``only:*`` stands for all sources alone.
    """

    text: str
    left: str
    relation: Relation
    right: tuple[str, ...]
    pick: Literal["each", "best"] = "each"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean difference over paired repeats and its 95 % interval."""

    mean: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim and what was measured: the advantage of left over right, positive if left did better."""

    claim: Claim
    left: str
    right: str
    """Where there are several: the one against which the claim fares worst."""
    advantage: Interval
    holds: bool
    reason: str


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
        return Interval(mean, float("-inf"), float("inf"), len(known))
    mean = float(known.mean())
    half = float(student.ppf(0.5 + CONFIDENCE / 2, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return Interval(mean, mean - half, mean + half, len(known))


def holds(relation: Relation, advantage: Interval, tolerance: float) -> tuple[bool, str]:
    """Whether a relation holds at 95 % confidence, and why.

    "better": the interval lies above 0. "≈": it contains 0, or lies within ± tolerance. "no worse": it
    reaches 0, or lies above −tolerance.
    """
    low, high = advantage.low, advantage.high
    if advantage.pairs < 2:
        return False, "too few repeats with a score"
    if relation == "better":
        if low > 0:
            return True, "the interval is above 0"
        return False, "the opposite: the interval is below 0" if high < 0 else "the interval contains 0"
    if low <= 0 <= high:
        return True, "the interval contains 0"
    if relation == "no worse" and low > 0:
        return True, "better, even"
    if low > -tolerance and (high < tolerance or relation == "no worse"):
        return True, f"within ± {tolerance:g}"
    return False, "worse: the interval is below 0" if high < 0 else "better: the interval is above 0"


def check(
    claim: Claim,
    scores: Mapping[str, NDArray[np.float64]],
    *,
    names: Mapping[str, str],
    tolerance: float,
    higher_is_better: bool,
) -> Verdict:
    """A claim against test scores by algorithm, one per repeat in the same order; ``names``: CH, DP → ids."""
    sign = 1.0 if higher_is_better else -1.0
    left = _resolve(claim.left, names)
    rights = [each for name in claim.right for each in _expand(_resolve(name, names), scores)]
    for name in (left, *rights):
        if name not in scores:
            raise InputError(f"claim {claim.text!r}: there are no scores of {name!r}")
    if claim.pick == "best":
        rights = [max(rights, key=lambda name: _mean(sign * scores[name]))]
    verdicts = []
    for right in rights:
        advantage = paired_interval(sign * (scores[left] - scores[right]))
        good, reason = holds(claim.relation, advantage, tolerance)
        verdicts.append(Verdict(claim, left, right, advantage, good, reason))
    # All of them must hold: a failing one is shown, else the closest.
    return min(verdicts, key=lambda each: (each.holds, each.advantage.mean))


def _mean(values: NDArray[np.float64]) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("-inf")


def _resolve(name: str, names: Mapping[str, str]) -> str:
    head, plus, tail = name.partition("+")
    return names.get(head, head) + plus + tail


def _expand(name: str, scores: Mapping[str, NDArray[np.float64]]) -> list[str]:
    if name != "only:*":
        return [name]
    return [each for each in scores if each.startswith("only:") and "+" not in each]
