"""The verdict itself: an answer in three lines, the figures behind it, and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import floor, isfinite, log10
from typing import Any

import numpy as np

from mixtree.estimate.hull import HullTest
from mixtree.estimate.uncertainty import MixtureUncertainty, Weight, hull_words
from mixtree.metrics import Metric
from mixtree.stats.intervals import FEW, Difference, ScoreInterval, corrected, is_area, is_error, is_share
from mixtree.stats.selection import CrossFit

_BEFORE = "the model before it was trained on the rows that score it"
_ONCE = (
    "each model that is compared was trained once: the intervals cover other rows, not other seeds, which "
    "can reverse a small difference"
)
_WIDE = 0.5  # of a share: an interval from which the rows say next to nothing
_ENOUGH = 150  # validation rows from which a part of them is held out by default
VALIDATION = "validation"
"""The reference that trains on the target's rows alone."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How good the returned model is, how sure that is, and compared with what.

    Printed, it is its warnings after three lines: how the model compares, what score to expect, what next.
    ``differences`` are corrected for looking several times. ``reference_spent`` are the steps that were
    trained for the verdict alone, outside the study's budget, by what they were for.
    """

    comparison: str
    """Whether mixing helped, and by how much: the first line."""
    expectation: str
    """What score to expect: the second line."""
    next_step: str
    """What to do next: the third line."""
    metric: str
    score: ScoreInterval | None
    differences: tuple[tuple[str, Difference], ...]
    hull: HullTest | None
    mixture: dict[str, Weight]
    queries: int
    notes: tuple[str, ...]
    reference_spent: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """What limits the worth of the figures."""
    higher_is_better: bool = True
    """Of the metric: where it is False, a negative difference is a better score."""
    of: str = ""
    """Which model the score and the differences are of, where it is not the returned one."""

    @property
    def sentence(self) -> str:
        """The answer: how the model compares, and what score to expect."""
        return " ".join(each for each in (self.comparison, self.expectation) if each)

    def __str__(self) -> str:
        return "\n".join([*three_lines(self.as_dict()), *(f"Warning: {each}" for each in self.warnings)])

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; what is not known is None."""
        score, hull = self.score, self.hull
        return {
            "sentence": self.sentence,
            "score": {
                "value": None if score is None else _plain(score.value),
                "low": None if score is None else _plain(score.low),
                "high": None if score is None else _plain(score.high),
                "rows": 0 if score is None else score.rows,
            },
            "against": [against_row(name, each) for name, each in self.differences],
            "hull": {
                "p": None if hull is None else _plain(hull.p),
                "inside": None if hull is None else hull.inside,
            },
            "mixture": {
                name: {"weight": _plain(each.weight), "low": _plain(each.low), "high": _plain(each.high)}
                for name, each in self.mixture.items()
            },
            "queries": self.queries,
            "notes": list(self.notes),
            "reference_spent": dict(self.reference_spent),
            "warnings": list(self.warnings),
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "of": self.of or "the returned model",
            "optimistic": None if score is None or not isfinite(score.value) else score.optimistic,
            "comparison": self.comparison,
            "expectation": self.expectation,
            "next_step": self.next_step,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Verdict:
        """The verdict of its plain data, which does not hold how an interval or a test was computed."""
        value, low, high = (_from_plain(plain["score"][name]) for name in ("value", "low", "high"))
        rows, better = int(plain["score"]["rows"]), bool(plain.get("higher_is_better", True))
        score = ScoreInterval(value, low, high, rows, "", bool(plain.get("optimistic")))
        p, inside = plain["hull"]["p"], plain["hull"]["inside"]
        hull = HullTest(_from_plain(p), inside, float("nan"), 0, 0, None, "", 0, None)
        of = plain.get("of", "")
        return cls(
            # Verdicts of earlier versions have one sentence only.
            comparison=plain.get("comparison", plain["sentence"]),
            expectation=plain.get("expectation", ""),
            next_step=plain.get("next_step", ""),
            metric=plain.get("metric", ""),
            score=score if rows else None,
            differences=tuple(
                (each["name"], _as_difference(each, rows, better)) for each in plain["against"]
            ),
            hull=None if p is None else hull,
            mixture={
                name: Weight(*(_from_plain(each[key]) for key in ("weight", "low", "high")))
                for name, each in plain["mixture"].items()
            },
            queries=int(plain["queries"]),
            notes=tuple(plain["notes"]),
            reference_spent=dict(plain.get("reference_spent", {})),
            warnings=tuple(plain.get("warnings", ())),
            higher_is_better=better,
            of="" if of == "the returned model" else of,
        )


def three_lines(plain: Mapping[str, Any]) -> tuple[str, ...]:
    """The answer of a verdict as plain data; that of an earlier version is one line."""
    lines = [plain.get("comparison", plain["sentence"]), plain.get("expectation", "")]
    if step := plain.get("next_step"):
        lines.append(f"Next: {step[:1].lower()}{step[1:]}")
    return tuple(each for each in lines if each)


def _from_plain(number: float | None) -> float:
    return float("nan") if number is None else float(number)


def _as_difference(row: Mapping[str, Any], rows: int, higher_is_better: bool) -> Difference:
    value, low, high, p = (_from_plain(row[key]) for key in ("difference", "low", "high", "p"))
    return Difference(value, low, high, p, rows, "", higher_is_better)


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """What a verdict is made of."""

    metric: Metric
    score: ScoreInterval | CrossFit | None
    """None or NaN where no model could be scored."""
    against: Mapping[str, Difference] = field(default_factory=dict)
    """Uncorrected differences by reference, the first the main one."""
    hull: HullTest | None = None
    mixture: MixtureUncertainty | None = None
    tuned: bool = True
    """Whether the model was trained on the target's own rows."""
    tried: bool = False
    """Whether that was tried."""
    by_rows: float | None = None
    """By how much it made the model better, where it is known."""
    bounded: bool = False
    """Whether weights had bounds, which the references have not."""
    queries: int = 0
    """Looks at the rows that chose."""
    chosen_on: ScoreInterval | None = None
    """The score on the rows that chose the model, only ever quoted beside an honest one."""
    optimism: float | None = None
    """Its expected size for so many looks."""
    advice: Sequence[str] = ()
    notes: Sequence[str] = ()
    instead: str = ""
    """Why the returned model cannot be scored, where the figures are of the one before it was trained on the
    rows that score."""
    of: str = ""
    """Which models the figures are of, where those stand for it."""
    reference_spent: Mapping[str, int] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    baseline_note: str = ""
    """What does as well without any model."""
    cause: str = ""
    """What makes the model better where its mixture does not."""
    uncompared: str = ""
    """Why there is nothing to compare with."""
    needed: str = ""
    """The next step where the figures are worth little without it."""
    next_step: str = ""
    """One to take if nothing is more urgent."""

    @property
    def cross(self) -> CrossFit | None:
        """The score, if it is cross-fitted."""
        return self.score if isinstance(self.score, CrossFit) else None

    @property
    def final(self) -> ScoreInterval | None:
        """The score with its interval."""
        return self.score.as_score() if isinstance(self.score, CrossFit) else self.score

    @cached_property
    def differences(self) -> tuple[tuple[str, Difference], ...]:
        """Corrected for looking several times."""
        return tuple(zip(self.against, corrected(list(self.against.values())), strict=True))

    @cached_property
    def comparison(self) -> str:
        """The first line."""
        # How the model compares: with the main reference, and with all that is surely better than the model.
        if not self.differences:
            return _sentence(
                self.uncompared or "not compared with another mixture: no reference was asked for"
            )
        parts = [against_words(name, each) for name, each in self.differences[:1]]
        if self.cause and self.differences[0][1].outcome == "better":
            parts[0] += f", {self.cause}"
        parts += [against_words(name, each) for name, each in self.differences[1:] if each.outcome == "worse"]
        return _sentence((f"{_BEFORE}: " if self.instead else "") + "; ".join(parts))

    @cached_property
    def expectation(self) -> str:
        """The second line."""
        found = _expected(
            self.metric,
            self.final,
            self.cross,
            self.optimism,
            instead=self.instead,
            comparison=self.comparison,
        )
        return f"{found[:-1]}; {self.baseline_note}." if self.baseline_note else found

    @cached_property
    def next_line(self) -> str:
        """The third line: the most urgent step."""
        final, differences, hull = self.final, self.differences, self.hull
        urgent = self.needed or _urgent(
            self.metric, final, differences, bounded=self.bounded, as_good=bool(self.baseline_note)
        )
        outside = ""
        if hull is not None and hull.inside is False:
            why = "no mixture reproduces it"
            if self.tuned:
                outside = f"label more rows of the target: {why}, so they are likely to help the most"
            elif self.tried:
                outside = "look for sources closer to the target: no mixture of these reproduces it"
            else:
                outside = (
                    "train on the target's own rows too (policy 'fine-tune', or 'auto' with a larger "
                    f"budget): {why}"
                )
        then = self.next_step or _usual(final, self.cross, differences)
        return _sentence(urgent or outside or then)


def _about_hull(facts: Facts) -> Iterable[str]:
    if facts.hull is None:
        return
    gains = [abs(each.value) for _, each in facts.differences if each.outcome == "better"]
    share = facts.by_rows / gains[0] if gains and facts.by_rows is not None else None
    by_way = facts.cause and facts.differences[0][1].outcome == "better"
    yield _sentence(
        hull_words(
            facts.hull,
            tuned=facts.tuned,
            tried=facts.tried,
            gained=bool(gains) and not facts.instead,
            share=share,
            rest="the way it was trained" if by_way else "the mixture",
        )
    )


def _about_seeds(facts: Facts) -> Iterable[str]:
    return (_ONCE,) if any(each.outcome in ("better", "worse") for _, each in facts.differences) else ()


def _about_others(facts: Facts) -> Iterable[str]:
    """What a table cannot show: why there is nothing to compare, and that nothing differs."""
    for name, each in facts.differences[1:]:
        if each.outcome in ("unknown", "the same"):
            yield _sentence(against_words(name, each))


def _about_intervals(facts: Facts) -> Iterable[str]:
    for _, each in facts.differences:
        if each.rows >= FEW and isfinite(each.p):
            yield from each.notes


_NOTES: tuple[Callable[[Facts], Iterable[str]], ...] = (
    _about_hull,
    lambda facts: () if facts.mixture is None else facts.mixture.notes,
    lambda facts: facts.notes,
    lambda facts: facts.advice,
    _about_seeds,
    lambda facts: _score_notes(facts.final, facts.cross, facts.chosen_on, facts.optimism, facts.queries),
    _about_others,
    _about_intervals,
)
"""What a verdict adds to its three lines, in this order."""


def make_verdict(metric: Metric, score: ScoreInterval | CrossFit | None, **more: Any) -> Verdict:
    """Compose the verdict of a score and the other ``Facts``: three lines, figures, and notes."""
    facts = Facts(metric=metric, score=score, **more)
    final = facts.final
    # What was said, or a warning of few rows, is not said again.
    few = f"only {final.rows} rows" if final is not None else facts.comparison
    warned = any(each.startswith(few) for each in facts.warnings)
    lines = f"{facts.comparison} {facts.expectation}".lower()
    return Verdict(
        comparison=facts.comparison,
        expectation=facts.expectation,
        next_step=facts.next_line,
        metric=metric.name,
        score=final,
        differences=facts.differences,
        hull=facts.hull,
        mixture={} if facts.mixture is None else dict(facts.mixture.weights),
        queries=facts.queries,
        notes=tuple(
            dict.fromkeys(
                each
                for note in _NOTES
                for each in note(facts)
                if each.lower().removesuffix(".") not in lines and not (warned and each.startswith(few))
            )
        ),
        reference_spent=dict(facts.reference_spent),
        warnings=tuple(dict.fromkeys(facts.warnings)),
        higher_is_better=metric.higher_is_better,
        of=_BEFORE if facts.instead else facts.of,
    )


def difference_heading(verdict: Mapping[str, Any]) -> str:
    """Of a column of differences, of a verdict as plain data."""
    return "difference" if verdict.get("higher_is_better", True) else "difference (− is better)"


def against_row(name: str, difference: Difference) -> dict[str, Any]:
    """A comparison as plain data; what is not known is None."""
    return {
        "name": name,
        "difference": _plain(difference.value),
        "low": _plain(difference.low),
        "high": _plain(difference.high),
        "p": _plain(difference.p),
    }


def against_words(name: str, difference: Difference) -> str:
    """A comparison in words: "not distinguishable from uniform on your 120 rows, and 0.020 worse (…)"."""
    rows, between = f"on your {difference.rows:,} rows", f"({_interval(difference)})"
    match difference.outcome:
        case "unknown":
            why = f": {difference.notes[-1]}" if difference.notes else ""
            return f"not comparable with {name}{why}"
        case "the same":
            return f"the same predictions as {name} {rows}"
        case "not distinguishable":
            size, point = _size(difference), ""
            if _visible(size):
                better = (difference.value > 0.0) == difference.higher_is_better
                point = f", though {size} better" if better else f", and {size} worse"
            return f"not distinguishable from {name} {rows}{point} {between}"
    return f"{difference.outcome} than {name} by {_size(difference)} {rows} {between}"


# ------------------------------------------------------------------------------------------- the three lines


def _expected(
    metric: Metric,
    score: ScoreInterval | None,
    cross: CrossFit | None,
    optimism: float | None,
    *,
    instead: str,
    comparison: str,
) -> str:
    """What score to expect, and what the rows that score have done before."""
    if score is None or not isfinite(score.value):
        why = score.notes[-1] if score is not None and score.notes else ""
        why = "for the same reason" if why and why in comparison else why
        return _sentence(f"no honest score of the returned model{f': {why}' if why else ''}")
    value, low, high = figures(score.value, score.low, score.high)
    between = f"95 % interval {low} … {high}" if isfinite(score.low) else "no interval"
    if is_share(metric) and score.high - score.low > _WIDE:
        between += ": these rows cannot tell"
    quoted, rows = f"{metric.name} {value} ({between})", f"{score.rows:,} rows"
    start = (
        f"{_sentence(f'no honest score of the returned model: {instead}')} Before that: " if instead else ""
    )
    if cross is not None and isfinite(cross.optimism):
        naive, size = figures(cross.naive, cross.optimism, beside=(score.value, score.low, score.high))
        shift = f"less {size}" if metric.higher_is_better else f"plus {size}"
        if cross.did == "trained":
            text = (
                f"expect {quoted}, from twins of the model, each trained on half of the {rows} and scored on "
            )
            text += f"the other half{f' ({naive} {shift} for choosing)' if _visible(size) else ''}"
            return _sentence(text)
        text = f"{start or 'expect '}{quoted}, cross-fitted on the {rows} that also chose the model"
        if not _visible(size):
            return _sentence(f"{text}: partly optimistic, though nothing was found to correct")
        return _sentence(f"{text}: {naive} there, {shift} for choosing; still partly optimistic")
    if score.role == "trained":
        return _sentence(
            f"no score: {quoted} is on the {rows} that also trained the model, worthless as a score"
        )
    if score.optimistic:
        known = optimism is not None and isfinite(optimism) and optimism > 0.0
        size = f" by about {number_beside(optimism or 0.0, score.value)}" if known else ""
        text = f"{start or 'expect worse than '}{quoted} on the {rows} that also chose the model"
        return _sentence(f"{text}: optimistic{size}")
    if score.role == "nested":
        return _sentence(
            f"expect {quoted}, measured on {rows} by fits like this one, none of which saw the rows "
            "it was scored on"
        )
    return _sentence(f"expect {quoted}, measured on {rows} that chose nothing")


def _urgent(
    metric: Metric,
    score: ScoreInterval | None,
    differences: Sequence[tuple[str, Difference]],
    *,
    bounded: bool,
    as_good: bool,
) -> str:
    """The next step where this model should not be used as it is, or nothing is known of it."""
    if score is None:
        return "give test rows of the target, so that the model can be scored"
    if not isfinite(score.value):
        if any("diverged" in note for note in score.notes):
            return "fit again with a smaller step size"
        return "give rows of the target on which the metric can be computed, or choose another metric"
    worse = [(name, each) for name, each in differences if each.outcome == "worse"]
    if any(name == VALIDATION for name, _ in worse):
        return (
            "train on the target's own rows (policy 'validation' or 'fine-tune'), or look for closer sources"
        )
    if worse:
        best = max(worse, key=lambda each: abs(each[1].value))[0]
        condition = ", if your bounds on the weights allow it" if bounded else ""
        return f"use {best} instead of this model{condition}"
    unknown = [name for name, each in differences[:1] if each.outcome == "unknown"]
    if is_share(metric) and score.high - score.low > _WIDE:
        return f"label more rows of the target: these {score.rows:,} say next to nothing"
    if as_good or (is_area(metric) and score.low <= 0.5):
        return "look for columns that say more about the label, for closer sources, or raise the budget"
    return f"find out why {unknown[0]} could not be compared before relying on the mixture" if unknown else ""


def _usual(
    score: ScoreInterval | None, cross: CrossFit | None, differences: Sequence[tuple[str, Difference]]
) -> str:
    """The next step where nothing is wrong."""
    if cross is not None or (score is not None and score.optimistic):
        more = f" or at least {_ENOUGH} validation rows" if score is not None and score.rows < _ENOUGH else ""
        return f"give test rows{more or ' or a holdout'}, for a score on rows that chose nothing"
    if not differences:
        return "use the model"
    name, first = differences[0]
    if first.outcome == "the same":
        return f"use the model, or {name}, which is as good"
    if first.outcome == "not distinguishable":
        reach = max(first.high - first.value, first.value - first.low)
        least = figures(reach, beside=(first.low, first.high))[0]
        shown = f"differences below about {least} do not show on these {first.rows:,} rows"
        if _visible(_size(first)) and (first.value > 0.0) != first.higher_is_better:
            return f"use {name}, which is simpler, or this model: {shown}"
        return f"use the model or {name}: {shown}"
    return "use the model"


def _score_notes(
    score: ScoreInterval | None,
    cross: CrossFit | None,
    chosen_on: ScoreInterval | None,
    optimism: float | None,
    queries: int,
) -> list[str]:
    notes = [] if score is None else list(score.notes)
    if optimism is not None and isfinite(optimism) and optimism > 0.0 and queries > 1:
        chose = score is not None and (cross is not None or score.optimistic)
        rows = chosen_on.rows if chosen_on is not None else score.rows if score is not None and chose else 0
        on = f" on {rows:,} rows" if rows else ""
        rest = ""
        if score is not None and cross is not None and isfinite(cross.optimism):
            rest = ", had all been alternatives"
            size = figures(cross.optimism, beside=(cross.naive, score.value, score.low, score.high))[0]
            rest += "; the score is corrected for those that were" if _visible(size) else ""
        known = chosen_on if chosen_on is not None else score
        by = number_beside(optimism, known.value if known is not None and isfinite(known.value) else 1.0)
        notes.append(
            f"the validation rows were looked at {queries} times: the best of so many is expected to "
            f"look better than it is by {by}{on}{rest}"
        )
    honest = score is not None and isfinite(score.value) and not score.optimistic
    if chosen_on is not None and honest and isfinite(chosen_on.value):
        notes.append(
            f"on the {chosen_on.rows:,} rows that chose the model the score is {number(chosen_on.value)}, "
            "which is no honest score"
        )
    return notes


# ----------------------------------------------------------------------------------------------------- advice


def _size(difference: Difference) -> str:
    """How large it is, whichever way the metric points."""
    return figures(abs(difference.value), beside=(difference.low, difference.high))[0]


def _visible(shown: str) -> bool:
    """Whether something is left of a number after rounding."""
    return any(digit in shown for digit in "123456789")


def _interval(difference: Difference) -> str:
    """In words, so that no one has to know which way the metric points."""
    sign = 1.0 if difference.higher_is_better else -1.0
    low, high = sorted((sign * difference.low, sign * difference.high))
    ends = figures(abs(low), abs(high), beside=(difference.value,))
    if difference.outcome in ("better", "worse"):
        ends = figures(*sorted((abs(low), abs(high))), beside=(difference.value,), visible=True)
        return f"95 % interval {ends[0]} … {ends[1]}"
    sides = zip(ends, ("worse", "better"), strict=True)
    return f"95 % interval {' … '.join(f'{end} {way}' if _visible(end) else '0' for end, way in sides)}"


@dataclass(frozen=True, slots=True)
class Curve:
    """A learning curve score = limit + slope/√amount, fitted to a few points."""

    limit: float
    slope: float

    def at(self, amount: float) -> float:
        """The score expected with so much."""
        return self.limit + self.slope / float(np.sqrt(amount))

    def gain(self, metric: Metric, amount: float, *, times: float = 2.0) -> float:
        """How much better the score is expected to be with ``times`` as much; at most as good as can be."""
        now, then = (metric.signed(self.at(much)) for much in (amount, times * amount))
        if is_share(metric) or is_error(metric):
            best = metric.signed(1.0 if is_share(metric) else 0.0)
            now, then = max(now, best), max(then, best)
        return now - then if now - then > 1e-12 * abs(now) else 0.0  # less is rounding


def learning_curve(points: Mapping[float, float]) -> Curve | None:
    """The curve through scores by amount (rows or steps), by least squares; None with fewer than two amounts.

    >>> round(learning_curve({25: 0.6, 100: 0.7}).at(400), 3)
    0.75
    """
    usable = [(amount, score) for amount, score in points.items() if amount > 0 and isfinite(score)]
    if len({amount for amount, _ in usable}) < 2:
        return None
    amounts, scores = np.array(usable, dtype=np.float64).T
    slope, limit = np.polyfit(1.0 / np.sqrt(amounts), scores, 1)
    return Curve(float(limit), float(slope))


@dataclass(frozen=True, slots=True)
class Advice:
    """What would help, beside what it is expected to bring."""

    notes: tuple[str, ...] = ()
    next_step: str = ""
    """What to do, if it is expected to bring more than noise."""


def rows_or_budget(
    metric: Metric,
    *,
    by_rows: Mapping[float, float] | None = None,
    by_steps: Mapping[float, float] | None = None,
    rows: float | None = None,
    noise: float = 0.0,
) -> Advice:
    """Whether twice the target rows or twice the budget promises more, from scores at several of each.

    ``rows`` are the target rows there are now, where they are more than the curve was measured with.
    """
    curves = {"target rows": by_rows, "budget": by_steps}
    gains: dict[str, float] = {}
    for what, points in curves.items():
        curve = learning_curve(points or {})
        if curve is not None:
            most = max(points or {})
            gains[what] = curve.gain(metric, rows or most if what == "target rows" else most)
    if not gains:
        return Advice()
    scale = max(abs(score) for points in curves.values() for score in (points or {}).values())
    sizes = {what: number_beside(gain, scale) if gain else "nothing" for what, gain in gains.items()}
    parts = ", ".join(f"{size} from twice the {what}" for what, size in sizes.items())
    note = f"expected gain in {metric.name} by extrapolation: {parts}"
    larger = max(gains, key=lambda what: gains[what])
    if gains[larger] <= noise:
        size = number_beside(noise, scale)
        size = "" if size.startswith("less") else f" ({size})"  # "less than" twice says nothing
        return Advice((f"{note}; that is below the noise{size}",))
    if sizes[larger].startswith("less"):  # than what the score is told with
        return Advice((note,))
    if len(gains) > 1:
        note += f": more {larger} {'are' if larger == 'target rows' else 'is'} worth more"
    elif noise:
        note += f"; the noise is {number_beside(noise, scale)}"
    if not noise:
        return Advice((note,))
    do = "label more rows of the target" if larger == "target rows" else "raise the budget"
    step = f"{do}: twice as {'many' if larger == 'target rows' else 'much'} is expected to gain"
    return Advice((note,), f"{step} {sizes[larger]} in {metric.name}")


def without_source(metric: Metric, name: str, difference: Difference, *, weight: float = 0.0) -> str:
    """Advice on a source from the score without it: ``difference`` is with it less without it.

    ``weight`` is its weight in the mixture.
    """
    size, between = number(abs(difference.value)), _interval(difference)
    match difference.outcome:
        case "better":
            return f"{name} is worth {size} in {metric.name} ({between}): keep it"
        case "worse":
            return f"without {name} {metric.name} is better by {size} ({between}): drop it"
        case "unknown":
            return f"what {name} is worth could not be measured"
    if difference.outcome == "the same":
        why = "the others predict the same" if weight else "it has no weight in the mixture"
        return f"without {name} nothing changes: {why}"
    return f"these rows cannot show whether {name} makes a difference ({between})"


# ---------------------------------------------------------------------------------------------------- numbers

_MOST_DECIMALS = 6


def _plain(number: float | None) -> float | None:
    return float(number) if number is not None and isfinite(number) else None


def figures(*values: float, beside: Sequence[float] = (), visible: bool = False) -> list[str]:
    """Numbers that stand beside each other, with as many decimals as the largest of them needs.

    Of those ``beside`` only the size counts. With ``visible`` the smallest is not rounded to 0 but has more.

    >>> figures(0.9, 0.000082, 1.0)
    ['0.900', '0.000', '1.000']
    >>> figures(11046.2, 9191.6)
    ['11,046', '9,192']
    """
    sizes = [abs(each) for each in (*values, *beside) if isfinite(each)]
    decimals = _decimals(max(sizes, default=1.0))
    if decimals is None:
        return [f"{each:.1e}".replace("-", "−") for each in values]
    if visible:
        least = min((abs(each) for each in values if each), default=1.0)
        decimals = max(decimals, min(_MOST_DECIMALS, -floor(log10(least)) if least < 1.0 else 0))
    return [_fixed(each, decimals) for each in values]


def _decimals(largest: float) -> int | None:
    """How many decimals numbers up to this size need; None where they had better have an exponent."""
    if largest == 0.0 or largest >= 0.01:
        return 0 if largest >= 999.5 else 2 if largest >= 9.9995 else 3
    decimals = 1 - floor(log10(largest))
    return decimals if decimals <= _MOST_DECIMALS else None


def _fixed(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}".replace("-", "−")


def number(value: float) -> str:
    """A number by itself, with enough digits to tell, no more: 0.812, 11.91, 1,204, 0.00082."""
    return "0" if value == 0.0 else figures(value)[0]


def number_beside(value: float, scale: float) -> str:
    """A size with the decimals of another number, or how little it is at the most.

    >>> number_beside(0.0312, 0.9), number_beside(0.00002, 0.9)
    ('0.031', 'less than 0.001')
    """
    decimals = _decimals(max(abs(scale), abs(value)))
    if decimals is None or round(abs(value), decimals) > 0.0:
        return figures(value, beside=(scale,))[0]
    return f"less than {_fixed(10.0**-decimals, decimals)}"


def _signed(value: float, decimals: int | None) -> str:
    if value == 0.0:
        return "0"
    if decimals is None:
        return f"{value:+.1e}".replace("-", "−")
    return f"{value:+,.{decimals}f}".replace("-", "−")


def table_row(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """The cells of a comparison as plain data: difference, interval, p-value.

    >>> table_row({"difference": 0.01, "low": -0.1, "high": 0.000082, "p": 0.6})
    ('+0.0100', '−0.1000 … +0.0001', '0.600')
    """
    values = [row[name] for name in ("difference", "low", "high")]
    largest = max((abs(each) for each in values if each is not None), default=1.0)
    decimals = _decimals(largest)
    if decimals == 3:  # a column of them has room for one more
        decimals = 4
    gap, low, high = ("–" if each is None else _signed(each, decimals) for each in values)
    return gap, f"{low} … {high}", p_words(row["p"])


def p_words(p: float | None) -> str:
    """A p-value with three decimals."""
    return "–" if p is None or not isfinite(p) else f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def no_verdict(metric: str, why: str, *, next_step: str = "") -> Verdict:
    """A verdict that only says why there is none."""
    step = _sentence(next_step) if next_step else ""
    return Verdict(_sentence(why), "", step, metric, None, (), None, {}, 0, ())
