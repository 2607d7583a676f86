"""Why a claim fails, in one paragraph: from what the stored models have seen, never from a guess."""

from __future__ import annotations

import numpy as np

from mixtree.experiments.claims import Finding, Interval, Verdict, paired_interval
from mixtree.experiments.report import Cell, Report, shares
from mixtree.experiments.reproduce import RETRAINED


def why(result: Report, verdict: Verdict) -> str:
    """A refuted claim's worst pair: batches seen and mixture found, or rows seen and losses."""
    worst = verdict.shown
    if not np.isfinite(worst.advantage.mean):
        return f"`{worst.left}` or `{worst.right}` diverged in every repeat."
    if verdict.claim.than is not None:
        return _gaps(result, verdict)
    if RETRAINED + worst.left in result.plan.recipes:
        return _batches(result, worst)
    return _rows(result, worst)


def _batches(result: Report, worst: Finding) -> str:
    """A search's gap, split into what batches and what the mixture account for."""
    left, right = worst.left, worst.right
    full, own = result.full, result.cell(left)
    again = result.cell(RETRAINED + left)
    parts = [
        f"`{left}` returns a model that has seen {own.trained:.0f} of {full} batches, `{right}` one that has "
        f"seen {result.cell(right).trained:.0f}.",
        f"The mixtures that `{left}` found (on average {shares(own.mixture)}), trained again with all {full} "
        f"batches at uniform's η, score {_number(result, again.test)}.",
    ]
    other = RETRAINED + right if RETRAINED + right in result.plan.recipes else right
    steps, mixture = _gap(result, left, RETRAINED + left), _gap(result, RETRAINED + left, other)
    if other == right:
        parts.append(
            f"So of the difference to `{right}` of {_signed(result, worst.advantage.mean)}, "
            f"{_interval(result, steps)} is due to the batches and {_interval(result, mixture)} to the "
            "mixture."
        )
        return " ".join(parts)
    theirs = _gap(result, right, other)
    parts.append(
        f"`{right}`'s, trained again likewise, score {_number(result, result.cell(other).test)}: of the "
        f"difference of {_signed(result, worst.advantage.mean)}, {_interval(result, mixture)} is due to the "
        f"mixtures; the batches cost `{left}` {_signed(result, -steps.mean)} and `{right}` "
        f"{_signed(result, -theirs.mean)}."
    )
    return " ".join(parts)


def _rows(result: Report, worst: Finding) -> str:
    """Two models: which rows they have seen, how often, and how well they know them."""
    winner, loser = (worst.left, worst.right) if worst.advantage.mean > 0 else (worst.right, worst.left)
    better, worse = result.cell(winner), result.cell(loser)
    sentences = [_seen(result, worse), _seen(result, better)]
    closer = worse.fitted < better.fitted and worse.test_loss > better.test_loss
    if closer:
        sentences.append(
            f"`{loser}` fits what it has seen more closely and does worse on the rest: it learns by heart "
            f"what it sees most often, and `{winner}` has more to learn from."
        )
    elif winner == "validation":
        sentences.append(
            f"`{loser}` fits its rows no better than `{winner}` does its own, and they are others than the "
            "target's: what the sources teach does not carry over."
            if worse.fitted >= better.fitted
            else f"`{loser}`'s rows teach little about the target's, however well it fits them."
        )
    return " ".join(sentences)


def _seen(result: Report, cell: Cell) -> str:
    known = {**result.rows, "target": result.rows["validation"]}
    passes = {name: drawn / known[name] for name, drawn in cell.drawn.items()}
    most = max(passes, key=lambda name: cell.drawn[name])
    total, distinct = sum(cell.drawn.values()), sum(result.distinct(cell).values())
    return (
        f"`{cell.algorithm}` draws {total:,.0f} rows, of which about {distinct:,.0f} are distinct; "
        f"{cell.drawn[most] / total:.0%} of them are from {most}, whose {known[most]:,} rows it sees "
        f"{passes[most]:.1f} times each. Its training loss is {cell.fitted:.3g}, its test loss "
        f"{cell.test_loss:.3g}."
    )


def _gaps(result: Report, verdict: Verdict) -> str:
    worst = verdict.shown
    names = [worst.left, worst.right]
    wide = [name.removesuffix("+commit") for name in names]
    first, second = (_gap(result, *pair) for pair in (wide, names))
    seen = ", ".join(f"`{name}` {result.cell(name).trained:.0f}" for name in (*wide, *names))
    return (
        f"`{wide[0]}` over `{wide[1]}` is {_interval(result, first)}; with half of the budget committed "
        f"{_interval(result, second)}. Batches that the returned models have seen, of {result.full}: {seen}."
    )


def _gap(result: Report, left: str, right: str) -> Interval:
    sign = 1.0 if result.plan.experiment.metric.higher_is_better else -1.0
    return paired_interval(sign * (result.scores(left) - result.scores(right)))


def _interval(result: Report, gap: Interval) -> str:
    return f"{_signed(result, gap.mean)} [{_signed(result, gap.low)}, {_signed(result, gap.high)}]"


def _signed(result: Report, value: float) -> str:
    return f"{value:+.{result.digits}f}"


def _number(result: Report, value: float) -> str:
    return f"{value:.{result.digits}f}"
