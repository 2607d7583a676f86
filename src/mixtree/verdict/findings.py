"""What a verdict warns of: a list of small checks, each a function of what was seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import NamedTuple

import numpy as np

from mixtree.data.allocation import Allocation
from mixtree.metrics import LOG_LOSS
from mixtree.policies.setting import MANY_PASSES
from mixtree.simplex import Mixture
from mixtree.stats.intervals import FEW, Difference, is_area, is_error, is_share
from mixtree.verdict.scoring import Case, Scored, constants
from mixtree.verdict.sentences import VALIDATION, number

_RARE = 10  # rows of a class below which a score deserves a warning
_UNIFORM = 0.02  # weights nearer to 1/K than this are shown as the same
_ALL = 0.98  # a weight from which a mixture is one source
LONG = 0.5  # of the budget: a model that was trained for less is another one for that alone
_FEW_OF = 16  # one in so many rows being half of a loss is few: squares of normal errors take one in eight


class Seen(NamedTuple):
    """A judged fit: the case, its score, and the differences to its references."""

    case: Case
    scored: Scored
    against: Mapping[str, Difference]


def cause(seen: Seen) -> str:
    """What a gain over the main reference comes from, where that has the same mixture."""
    case, scored, against = seen
    count = len(case.prepared.given)
    uniform = _is_uniform(case.mixed.mixture, count)
    if not uniform or not next(iter(against), "").startswith("uniform"):
        return ""
    last = last_steps(case)
    if last:
        were = "was" if last == 1 else "were"
        own = f"the last {steps_words(last)} {were} on the target's own rows"
        return f"but not by its mixture, which is uniform too: {own}"
    if not scored.of and all(_is_uniform(node.mixture, count) for node in case.lineage):
        return "but not by its mixture, which is uniform too, all along: by how it was trained"
    return ""


def last_steps(case: Case) -> int:
    """How many steps on the target's own rows ended the training of the returned model."""
    tree = case.result.tree
    return sum(node.steps for node in tree.lineage(case.result.node.path)) - sum(
        node.steps for node in case.lineage
    )


def steps_words(count: int) -> str:
    return "step" if count == 1 else f"{count:,} steps"


def few_rows(seen: Seen) -> list[str]:
    """Intervals of a few rows."""
    score = seen.scored.score
    if score is None or score.rows >= FEW:
        return []
    return [f"only {score.rows} rows score: intervals of so few are not to be relied on"]


def overfitted_reference(seen: Seen) -> list[str]:
    """A reference that was trained for too long is no feat to beat."""
    case, _, against = seen
    sources, found = case.prepared.sources, []
    rows = dict(zip((f"only {name}" for name in sources.names), sources.sizes.tolist(), strict=True))
    rows |= {VALIDATION: len(sources.validation), "the best single source": int(sources.sizes.min())}
    for name, each in against.items():
        known = rows.get(name, rows.get(name.removesuffix("+decay"), int(sources.sizes.sum())))
        passes = case.budget * case.prepared.batch_size / known
        if each.outcome == "better" and passes > MANY_PASSES:
            found.append(
                f"{name}: trained for the whole budget, {passes:,.0f} passes over its rows, and may have "
                "overfitted them; with a smaller budget the difference may be another one"
            )
    return found


def rare_class(seen: Seen) -> list[str]:
    """Of a class with few rows little is known, however many rows the others have."""
    case, scored, _ = seen
    rows = scored.view.rows
    if not case.prepared.sources.classes or scored.score is None or len(rows) < FEW:
        return []
    counts = np.bincount(rows.y)
    least = int(counts[counts > 0].min())
    by_class = case.metric.by_class or case.metric.contributions in (None, LOG_LOSS.contributions)
    if least >= _RARE or (counts > 0).sum() < 2 or not by_class:  # else it hangs on all rows alike
        return []
    are, them = ("is", "it") if least == 1 else ("are", "them")
    return [
        f"only {least} of the {len(rows)} rows that score {are} of the rarest class: the score depends "
        f"heavily on {them}"
    ]


def same_mixture(seen: Seen) -> list[str]:
    """Where nothing but the way of training sets the model apart from what it is compared with."""
    case, scored, against = seen
    steps = sum(node.steps for node in case.lineage)
    if case.mixed.path != case.result.node.path or scored.of or steps < LONG * case.budget:
        return []
    names, count = case.prepared.given.names, len(case.prepared.given)
    weights = np.array([Allocation.of(node.mixture, count).sources for node in case.lineage]).min(axis=0)
    same = {f"only {name}" for name, weight in zip(names, weights.tolist(), strict=True) if weight > _ALL}
    if all(_is_uniform(node.mixture, count) for node in case.lineage):
        same |= {name for name in against if name.startswith("uniform")}
    said = next(iter(against), "") if cause(seen) else ""  # in the answer itself
    return [
        f"this model's mixture is that of {name} too, all along: what sets it apart is how it was trained, "
        "not the mixture"
        for name, each in against.items()
        if {name, name.removesuffix("+decay")} & same
        and each.outcome in (("worse",) if name == said else ("better", "worse"))
    ]


def _is_uniform(mixture: Mixture, count: int) -> bool:
    return count > 1 and bool(np.abs(Allocation.of(mixture, count).sources - 1.0 / count).max() < _UNIFORM)


def constant_predictions(seen: Seen) -> list[str]:
    """A model that tells no row from another."""
    case = seen.case
    mine = case.predicted_by(case.result.node.path)
    same = mine is not None and len(mine) > 1 and bool((mine == mine[0]).all())
    return ["the model predicts the same for every row: all rows are tied"] if same else []


def few_rows_decide(seen: Seen) -> list[str]:
    """Where a few rows make up half of a loss, rows that were not seen may make up as much."""
    case, scored, _ = seen
    rows = case.metric.contributions
    if scored.mine is None or rows is None or not is_error(case.metric) or len(scored.mine) < FEW:
        return []
    y = case.scale.back(scored.view.rows.y)
    losses = np.sort(rows(y.astype(np.intp) if scored.mine.ndim == 2 else y, scored.mine[None])[0])[::-1]
    half = 1 + int(np.searchsorted(np.cumsum(losses), 0.5 * losses.sum()))
    if not losses[0] > 0.0 or half > max(1, len(losses) // _FEW_OF):
        return []
    are = "is" if half == 1 else "are"
    return [
        f"{half} of the {len(losses):,} rows that score {are} half of the {case.metric.name}: the interval "
        "cannot account for more rows like these"
    ]


def no_better_than_chance(seen: Seen) -> list[str]:
    """A model may be better than another one and still say nothing."""
    case, scored, against = seen
    metric, score = case.metric, scored.score
    if score is None or not is_area(metric) or not isfinite(score.value) or score.low > 0.5:
        return []
    model = "the model before its last steps" if scored.instead else "the model"
    how = "ranks worse than chance" if score.high < 0.5 else "may be no better than chance"
    if case.prepared.policy.startswith(VALIDATION):
        return [f"{model} {how} (0.5)"]
    asks = case.prepared.reference != "all" and (scored.view.apart or scored.view.folds is not None)
    rest = " (reference 'all' shows it)" if asks and VALIDATION not in against else ""
    return [
        f"{model} {how} (0.5): if training on the target's own rows alone is better, the sources do not "
        f"help{rest}"
    ]


def as_good_as_constant(seen: Seen) -> str:
    """Whether one prediction for all rows would do as well: the classes' shares, a middle of the labels."""
    case, scored, _ = seen
    metric, score, y = case.metric, scored.score, case.scale.back(scored.view.rows.y)
    if score is None or not isfinite(score.value) or len(y) < FEW or is_area(metric):
        return ""
    if not (is_share(metric) or is_error(metric)):  # what a user's makes of it is not known
        return ""
    known = constants(y, case.prepared.sources.classes)
    scores = {name: metric(y, each) for name, each in known.items()}
    best = min(scores, key=lambda name: metric.signed(scores[name]))
    if metric.signed(score.value) < metric.signed(scores[best]):
        return ""
    return (
        f"no better than a constant ({best}, predicted for every row: {metric.name} {number(scores[best])})"
    )


Check = Callable[[Seen], list[str]]
CHECKS: tuple[Check, ...] = (
    few_rows,
    same_mixture,
    overfitted_reference,
    rare_class,
    constant_predictions,
    few_rows_decide,
    no_better_than_chance,
)
"""Each says what it finds, or nothing; in the order in which a verdict warns of it."""


def findings(seen: Seen) -> list[str]:
    """All that the checks find."""
    return [words for check in CHECKS for words in check(seen)]
