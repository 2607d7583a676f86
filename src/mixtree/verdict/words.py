"""The verdict itself: one sentence, the figures behind it, and advice, each with its figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from mixtree.estimate.hull import HullTest
from mixtree.metrics import Metric
from mixtree.verdict.intervals import FEW, Difference, ScoreInterval, corrected, is_error, is_share
from mixtree.verdict.mixture import MixtureUncertainty, Weight, hull_words
from mixtree.verdict.selection import CrossFit

_BEFORE = "the model before it was trained on the rows that score it"
_NOTHING = "choosing again on half of them shows nothing to correct"
_ONCE = (
    "every model that is compared was trained once: the intervals speak of other rows, not of another seed, "
    "by which small differences may turn round"
)
VALIDATION = "validation"
"""The reference that trains on the target's rows alone."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How good the returned model is, how sure that is, and compared with what.

    ``differences`` are corrected for looking several times. ``reference_spent`` are the steps that were
    trained for the verdict alone, outside the study's budget, by what they were for.
    """

    sentence: str
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

    def __str__(self) -> str:
        return self.sentence

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
        }

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Verdict:
        """The verdict of its plain data, which does not hold how an interval or a test was computed."""
        value, low, high = (_from_plain(told["score"][name]) for name in ("value", "low", "high"))
        rows, better = int(told["score"]["rows"]), bool(told.get("higher_is_better", True))
        score = ScoreInterval(value, low, high, rows, "", bool(told.get("optimistic")))
        p, inside = told["hull"]["p"], told["hull"]["inside"]
        hull = HullTest(_from_plain(p), inside, float("nan"), 0, 0, None, "", 0, None)
        of = told.get("of", "")
        return cls(
            sentence=told["sentence"],
            metric=told.get("metric", ""),
            score=score if rows else None,
            differences=tuple((each["name"], _as_difference(each, rows, better)) for each in told["against"]),
            hull=None if p is None else hull,
            mixture={
                name: Weight(*(_from_plain(each[key]) for key in ("weight", "low", "high")))
                for name, each in told["mixture"].items()
            },
            queries=int(told["queries"]),
            notes=tuple(told["notes"]),
            reference_spent=dict(told.get("reference_spent", {})),
            warnings=tuple(told.get("warnings", ())),
            higher_is_better=better,
            of="" if of == "the returned model" else of,
        )


def _from_plain(number: float | None) -> float:
    return float("nan") if number is None else float(number)


def _as_difference(row: Mapping[str, Any], rows: int, higher_is_better: bool) -> Difference:
    value, low, high, p = (_from_plain(row[key]) for key in ("difference", "low", "high", "p"))
    return Difference(value, low, high, p, rows, "", higher_is_better)


def make_verdict(
    metric: Metric,
    score: ScoreInterval | CrossFit | None,
    *,
    against: Mapping[str, Difference] | None = None,
    hull: HullTest | None = None,
    mixture: MixtureUncertainty | None = None,
    tuned: bool = True,
    tried: bool = False,
    by_rows: float | None = None,
    bounded: bool = False,
    queries: int = 0,
    chosen_on: ScoreInterval | None = None,
    optimism: float | None = None,
    advice: Sequence[str] = (),
    notes: Sequence[str] = (),
    instead: str = "",
    of: str = "",
    reference_spent: Mapping[str, int] | None = None,
    warnings: Sequence[str] = (),
    beside: str = "",
) -> Verdict:
    """Compose the verdict. ``against`` are uncorrected differences by reference, the first the main one.

    ``score`` is None or NaN where no model could be scored. ``chosen_on`` is the score on the rows that chose
    the model and only ever quoted beside an honest one, ``optimism`` its expected size for ``queries`` looks.
    ``tuned`` says whether the model was trained on the target's own rows, ``by_rows`` by how much that made
    it better, where it is known; ``tried`` whether it was tried; ``bounded`` whether weights had bounds,
    which the references have not. ``instead`` says which model the figures are of, where the returned one
    cannot be scored, and why; ``of`` which models, where they stand for it; ``beside`` what does as well
    without any model.
    """
    cross = score if isinstance(score, CrossFit) else None
    final = score.as_score() if isinstance(score, CrossFit) else score
    names = tuple(against or {})
    differences = tuple(zip(names, corrected(list((against or {}).values())), strict=True))
    gains = [abs(each.value) for _, each in differences if each.outcome == "better"]
    share = by_rows / gains[0] if gains and by_rows is not None else None
    gained = bool(gains) and not instead
    about_hull = hull_words(hull, tuned=tuned, tried=tried, gained=gained, share=share)
    # What is surely better than the model is no small print.
    parts = [against_words(name, each) for name, each in differences[:1]]
    parts += [against_words(name, each) for name, each in differences[1:] if each.outcome == "worse"]
    parts += [_scored(metric, final, cross, optimism), beside]
    told = [
        *_advice(differences, bounded=bounded),
        *(() if hull is None else (_sentence(about_hull),)),
        *(() if mixture is None else mixture.notes),
        *notes,
        *advice,
        *((_ONCE,) if any(each.outcome in ("better", "worse") for _, each in differences) else ()),
        *_score_notes(final, cross, chosen_on, optimism, queries),
        # What a table cannot show: why there is nothing to compare, and that nothing differs.
        *(
            _sentence(against_words(name, each))
            for name, each in differences[1:]
            if each.outcome in ("unknown", "the same")
        ),
        *(note for _, each in differences for note in each.notes if each.rows >= FEW and isfinite(each.p)),
    ]
    sentence = _sentence((f"{instead}: " if instead else "") + "; ".join(part for part in parts if part))
    # What the sentence says, or a warning of few rows, need not be said again.
    few = f"only {final.rows} rows" if final is not None else sentence
    warned = any(each.startswith(few) for each in warnings)
    told = [note for note in told if note not in sentence and not (warned and note.startswith(few))]
    return Verdict(
        sentence=sentence,
        metric=metric.name,
        score=final,
        differences=differences,
        hull=hull,
        mixture={} if mixture is None else dict(mixture.weights),
        queries=queries,
        notes=tuple(dict.fromkeys(told)),
        reference_spent=dict(reference_spent or {}),
        warnings=tuple(dict.fromkeys(warnings)),
        higher_is_better=metric.higher_is_better,
        of=_BEFORE if instead else of,
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
    """A comparison in words: "not distinguishable from uniform on your 120 rows (95 % interval …)"."""
    rows, between = f"on your {difference.rows:,} rows", f"({_interval(difference)})"
    match difference.outcome:
        case "unknown":
            why = f": {difference.notes[-1]}" if difference.notes else ""
            return f"not comparable with {name}{why}"
        case "the same":
            return f"the same predictions as {name} {rows}"
        case "not distinguishable":
            return f"not distinguishable from {name} {rows} {between}"
    return f"{difference.outcome} than {name} by {number(abs(difference.value))} {rows} {between}"


def _scored(
    metric: Metric, score: ScoreInterval | None, cross: CrossFit | None, optimism: float | None
) -> str:
    if score is None or not isfinite(score.value):
        why = f": {score.notes[-1]}" if score is not None and score.notes else ""
        return f"no honest score of the returned model{why}"
    between = f"95 % interval {number(score.low)} … {number(score.high)}"
    quoted = f"{metric.name} {number(score.value)} ({between if isfinite(score.low) else 'no interval'})"
    if cross is not None and isfinite(cross.optimism):
        start = f"{quoted}, cross-fitted on the {score.rows:,} rows that also {cross.did} the model"
        if cross.did == "trained":
            start += ", of models that saw half of them and may be worse for that"
        if not cross.optimism:
            return f"{start}: partly optimistic, though {_NOTHING}"
        naive, made_up = number(cross.naive), number(cross.optimism)
        return f"{start}: partly optimistic (uncorrected {naive} would be optimistic, by about {made_up})"
    if score.role == "trained":
        return f"{quoted} on the {score.rows:,} rows that also trained the model: worthless as a score"
    if score.optimistic:
        known = optimism is not None and isfinite(optimism) and optimism > 0.0
        size = f"; expect about {number(optimism or 0.0)} of it to be chance" if known else ""
        return f"{quoted} on the {score.rows:,} rows that also chose the model: optimistic{size}"
    fold = " in their own fold" if score.role == "nested" else ""
    return f"{quoted} on {score.rows:,} rows that chose nothing{fold}"


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
        if cross is not None and isfinite(cross.optimism):
            rest = ", had all been alternatives; "
            rest += "the score is corrected for those that were" if cross.optimism else _NOTHING
        notes.append(
            f"the validation rows were looked at {queries} times: the best of so many is expected to "
            f"look better than it is by {number(optimism)}{on}{rest}"
        )
    honest = score is not None and isfinite(score.value) and not score.optimistic
    if chosen_on is not None and honest and isfinite(chosen_on.value):
        notes.append(
            f"on the {chosen_on.rows:,} rows that chose the model the score is {number(chosen_on.value)}, "
            "which is no honest score"
        )
    if cross is not None:
        notes.append("give test rows or a holdout for a score on rows that chose nothing")
    return notes


# ----------------------------------------------------------------------------------------------------- advice


def _advice(differences: Sequence[tuple[str, Difference]], *, bounded: bool) -> list[str]:
    lines = []
    condition = ", if your bounds on the weights allow it" if bounded else ""
    for name, each in differences:
        if name == VALIDATION and each.outcome == "worse":
            lines.append(
                f"training on your own rows alone is better by {number(abs(each.value))} "
                f"({_interval(each)}): use policy 'validation' or 'fine-tune', or look for closer sources"
            )
        elif name != VALIDATION and each.outcome == "worse":
            lines.append(
                f"{name} is better by {number(abs(each.value))} ({_interval(each)}): prefer it to this"
                f"{condition}"
            )
    return lines


def _interval(difference: Difference) -> str:
    """Signed; but beside "better by" and "worse by" the size, whichever way the metric points."""
    low, high = difference.low, difference.high
    if difference.outcome in ("better", "worse") and low * high >= 0:
        small, large = sorted((abs(low), abs(high)))
        return f"95 % interval {number(small)} … {number(large)}"
    return f"95 % interval {_signed(low)} … {_signed(high)}"


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


def rows_or_budget(
    metric: Metric,
    *,
    by_rows: Mapping[float, float] | None = None,
    by_steps: Mapping[float, float] | None = None,
    rows: float | None = None,
    noise: float = 0.0,
) -> tuple[str, ...]:
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
        return ()
    told = ", ".join(f"twice the {what} {number(gain)}" for what, gain in gains.items())
    start = f"expected gain in {metric.name} by extrapolation: {told}"
    if max(gains.values()) <= noise:
        return (f"{start}; that is below the noise of {number(noise)}",)
    if len(gains) == 1:
        return (f"{start}; the noise is {number(noise)}" if noise else start,)
    larger = max(gains, key=lambda what: gains[what])
    return (f"{start}: more {larger} {'are' if larger == 'target rows' else 'is'} worth more",)


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


# ------------------------------------------------------------------------------------------------------ words


def _plain(number: float | None) -> float | None:
    return float(number) if number is not None and isfinite(number) else None


def number(value: float) -> str:
    """Enough digits to tell, no more: 0.812, 11.91, 1,204, 8.1e−09."""
    return ("0" if value == 0.0 else _digits(value, 3)).replace("-", "−")


def _digits(value: float, decimals: int, sign: str = "") -> str:
    """So many decimals for numbers of about 1; fewer for larger ones, two digits for those that vanish."""
    text = f"{value:{sign}.{decimals}f}"
    if float(text) == 0.0 or abs(value) < 10.0**-decimals:
        return f"{value:{sign}.2g}"
    if abs(float(text)) >= 10.0:
        text = f"{value:{sign}.2f}"
    return text if abs(float(text)) < 1000.0 else f"{value:{sign},.0f}"


def _signed(value: float) -> str:
    return number(value) if value <= 0.0 else f"+{number(value)}"


def table_cell(value: float | None) -> str:
    """A signed number for a column of them: +0.0081, −0.0450, +23,675."""
    if value is None:
        return "–"
    return "0" if value == 0.0 else _digits(value, 4, "+").replace("-", "−")


def p_words(p: float | None) -> str:
    """A p-value with three decimals."""
    return "–" if p is None or not isfinite(p) else f"{p:.3f}" if p >= 0.0005 else "< 0.001"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def no_verdict(metric: str, sentence: str) -> Verdict:
    """A verdict that only says why there is none."""
    return Verdict(_sentence(sentence), metric, None, (), None, {}, 0, ())
