"""From a finished fit to its verdict: which rows may score it, what it is compared with, what can be said."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import isclose, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree._native.threads import one_thread
from mixtree.engine.study import Result
from mixtree.errors import StorageError, StudyInterrupted
from mixtree.estimate.hull import HullTest
from mixtree.estimate.target import about_target
from mixtree.estimate.uncertainty import listed
from mixtree.events import Listener
from mixtree.metrics import LOG_LOSS, Metric, row_losses
from mixtree.policies.auto import TARGET_PHASES, settled_rate
from mixtree.policies.registry import MANY_PASSES
from mixtree.simplex import Mixture
from mixtree.stats.intervals import FEW, is_area, is_error, is_share
from mixtree.storage.base import Storage
from mixtree.verdict import (
    CrossFit,
    Difference,
    MixtureUncertainty,
    ScoreInterval,
    Verdict,
    make_verdict,
    mixture_uncertainty,
    paired_difference,
)
from mixtree.verdict.advice import Models, advice, looks
from mixtree.verdict.fitted import Fitted
from mixtree.verdict.references import Extra, TimeLimit, attribution, references
from mixtree.verdict.scoring import Case, Scored, constants, scored_by_rows
from mixtree.verdict.sentences import VALIDATION, number

Floats = NDArray[np.float64]

_RARE = 10  # rows of a class below which a score deserves a warning
_UNIFORM = 0.02  # weights nearer to 1/K than this are shown as the same
_ALL = 0.98  # a weight from which a mixture is one source
_LONG = 0.5  # of the budget: a model that was trained for less is another one for that alone
_SURELY, _WORTH = 2.0, 0.01
"""Standard errors, and the share of the loss, by which it must have fallen to be called still falling."""
_FEW_OF = 16  # one in so many rows being half of a loss is few: squares of normal errors take one in eight


def judged(
    prepared: Fitted,
    result: Result[Any],
    *,
    storage: Storage | None = None,
    listeners: Sequence[Listener] = (),
    limit: TimeLimit | None = None,
) -> Result[Any]:
    """The result with its verdict, which is also written to the study's storage.

    Models that do not fit into the time ``limit`` are not trained.
    """
    try:
        verdict = judge(prepared, result, listeners=listeners, limit=limit)
        verdict = replace(verdict, warnings=(*prepared.warnings, *verdict.warnings))
    except StudyInterrupted as error:
        where = None if storage is None else storage.where
        how = f": go on with it ({shlex.join(['mixtree', 'resume', where, result.study])})" if where else ""
        raise StudyInterrupted(f"study {result.study!r} is finished, but its verdict is not{how}") from error
    if storage is not None:
        try:
            storage.write_verdict(result.study, verdict.as_dict())
        except StorageError as error:  # its file may have been removed: the model is not lost with it
            verdict = replace(verdict, warnings=(*verdict.warnings, f"not stored in the study: {error}"))
    return replace(result, verdict=verdict)


def judge(
    prepared: Fitted,
    result: Result[Any],
    *,
    metric: Metric | None = None,
    listeners: Sequence[Listener] = (),
    limit: TimeLimit | None = None,
) -> Verdict:
    """The verdict on a finished fit. References, nested folds and attribution train; nothing else does.

    ``metric`` is the fit's own unless told.
    """
    case = Case(prepared, result, metric or prepared.metric)
    extra = Extra(prepared, case.budget, listeners, limit)
    scored, models = scored_by_rows(case, extra), _models(case)
    notes, against, uncompared = list(scored.notes), dict[str, Difference](), ""
    if scored.mine is not None:
        bias, left_out = scored.selection_bias(models.optimism), list[str]()
        if isfinite(bias) or not np.isfinite(scored.mine).all():
            others, left_out = references(extra, scored.view, choose=case.choose)
            y = case.scale.back(scored.view.rows.y)
            how: dict[str, Any] = {"made_up": bias if isfinite(bias) else 0.0, "wider": scored.wider}
            how["further"] = scored.further
            against = {
                name: paired_difference(
                    case.metric, y, scored.mine, rival.predictions, folds=rival.parts, **how
                )
                for name, rival in others.items()
            }
        elif prepared.reference != "none":
            left_out = [
                "not compared with another mixture: these rows chose the model, and by how much that "
                "flatters it is not known"
            ]
        notes += left_out
        uncompared = left_out[0] if left_out else ""
        notes += attribution(extra, case.mixed.mixture, scored.view, case.metric)
    elif prepared.reference != "none":
        uncompared = "not compared with another mixture: the model has no score"
    return _concluded(case, extra, scored, models, against, notes, uncompared=uncompared)


@one_thread()
def _models(case: Case) -> Models:
    choose = case.choose if case.chooses else None
    return Models(case.metric, case.y, case.clean_predictions, case.choices, case.lineage, choose=choose)


@one_thread()
def _concluded(
    case: Case,
    extra: Extra,
    scored: Scored,
    models: Models,
    against: Mapping[str, Difference],
    notes: Sequence[str],
    *,
    uncompared: str,
) -> Verdict:
    """What is left to say once everything is trained."""
    hull, mixture = _mixture(case)
    result = case.result
    seen = looks(models, list(case.choices.values()))
    found = advice(models, chooses=len(case.clean) == len(result.tree), noise=scored.noise)
    improving, raise_budget = _still_improving(case)
    alike = case.prepared.search.equally_good
    if len(alike) > 1:
        seen = replace(seen, notes=(*seen.notes, f"equally good in the race: {listed(list(alike))}"))
    honest = isinstance(scored.score, ScoreInterval) and not scored.score.optimistic
    return make_verdict(
        case.metric,
        scored.score,
        against=against,
        hull=hull,
        mixture=mixture,
        tuned=case.mixed.path != result.node.path,
        tried=any(node.phase in TARGET_PHASES for node in result.tree.values()),
        by_rows=case.gained,
        bounded=case.prepared.bounded,
        queries=len(result.tree) if case.chooses else 0,
        chosen_on=_chosen_on(models, case) if honest else None,
        optimism=seen.optimism,
        advice=found.notes,
        notes=[*([improving] if improving else []), *notes, *seen.notes],
        instead=scored.instead,
        of=scored.of,
        reference_spent=extra.spent,
        warnings=[
            *scored.warnings,
            *_few_rows(scored.score),
            *_same_mixture(case, scored, against),
            *_by_heart(case, against),
            *_rare(scored, case),
            *_constant(case),
            *_by_few(case, scored),
            *_by_chance(case, scored, against),
        ],
        baseline_note=_as_good_as_constant(case, scored),
        cause=_cause(case, scored, against),
        uncompared=uncompared,
        needed=scored.needed,
        next_step=raise_budget or found.next_step,
    )


def _chosen_on(models: Models, case: Case) -> ScoreInterval | None:
    """The returned model's score on the rows that chose it."""
    path = case.result.node.path
    mine = case.predicted_by(path)
    if mine is None or not case.chooses:
        return None
    value = models.scores.get(path)
    if value is None:
        value = case.metric(case.y, mine)
    return ScoreInterval(value, np.nan, np.nan, len(case.y), "none", True)


def _cause(case: Case, scored: Scored, against: Mapping[str, Difference]) -> str:
    """What a gain over the main reference comes from, where that has the same mixture."""
    count = len(case.prepared.given)
    uniform = _is_uniform(case.mixed.mixture, count)
    if not uniform or not next(iter(against), "").startswith("uniform"):
        return ""
    last = _last_steps(case)
    if last:
        were = "was" if last == 1 else "were"
        own = f"the last {_steps(last)} {were} on the target's own rows"
        return f"but not by its mixture, which is uniform too: {own}"
    if not scored.of and all(_is_uniform(node.mixture, count) for node in case.lineage):
        return "but not by its mixture, which is uniform too, all along: by how it was trained"
    return ""


def _last_steps(case: Case) -> int:
    """How many steps on the target's own rows ended the training of the returned model."""
    tree = case.result.tree
    return sum(node.steps for node in tree.lineage(case.result.node.path)) - sum(
        node.steps for node in case.lineage
    )


def _still_improving(case: Case) -> tuple[str, str]:
    """That the loss was surely still falling at the end of the budget, and what to do then; else nothing.

    By the last tenth of the budget or more that was trained at the full step size: a decayed end lowers the
    loss of a model that has nothing more to learn too.
    """
    rate = settled_rate(case.lineage)
    sums = accumulate(node.steps for node in case.lineage)
    totals = dict(zip((node.path for node in case.lineage), sums, strict=True))
    full = [
        node for node in case.lineage if isclose(node.lr_scale, rate) and node.path in case.clean_predictions
    ]
    before = [node for node in full if totals[node.path] + 0.1 * case.budget <= totals[full[-1].path]]
    if not before or totals[full[-1].path] < _LONG * case.budget or case.result.unspent > 0:
        return "", ""
    y, classes = case.y, case.prepared.sources.classes
    then, now = (row_losses(y, case.clean_predictions[node.path], classes) for node in (before[-1], full[-1]))
    gains, steps = then - now, totals[full[-1].path] - totals[before[-1].path]
    gain = float(gains.mean())
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
    if not (gain > _SURELY * error > 0.0 and gain > _WORTH * float(now.mean())):
        return "", ""
    note = (
        f"still improving at the end of the budget: over {steps:,} steps near its end the validation loss "
        f"fell by {number(gain)}"
    )
    return note, f"raise the budget to {2 * case.budget:,} steps: the model is still improving"


def _steps(count: int) -> str:
    return "step" if count == 1 else f"{count:,} steps"


def _few_rows(score: ScoreInterval | CrossFit | None) -> list[str]:
    if score is None or score.rows >= FEW:
        return []
    return [f"only {score.rows} rows score: intervals of so few are not to be relied on"]


def _by_heart(case: Case, against: Mapping[str, Difference]) -> list[str]:
    """A reference that was trained for too long is no feat to beat."""
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


def _rare(scored: Scored, case: Case) -> list[str]:
    """Of a class with few rows little is known, however many rows the others have."""
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


def _same_mixture(case: Case, scored: Scored, against: Mapping[str, Difference]) -> list[str]:
    """Where nothing but the way of training sets the model apart from what it is compared with."""
    steps = sum(node.steps for node in case.lineage)
    if case.mixed.path != case.result.node.path or scored.of or steps < _LONG * case.budget:
        return []
    names, count = case.prepared.given.names, len(case.prepared.given)
    weights = np.array([node.mixture[:count] for node in case.lineage]).min(axis=0)
    same = {f"only {name}" for name, weight in zip(names, weights.tolist(), strict=True) if weight > _ALL}
    if all(_is_uniform(node.mixture, count) for node in case.lineage):
        same |= {name for name in against if name.startswith("uniform")}
    said = next(iter(against), "") if _cause(case, scored, against) else ""  # in the answer itself
    return [
        f"this model's mixture is that of {name} too, all along: what sets it apart is how it was trained, "
        "not the mixture"
        for name, each in against.items()
        if {name, name.removesuffix("+decay")} & same
        and each.outcome in (("worse",) if name == said else ("better", "worse"))
    ]


def _is_uniform(mixture: Mixture, count: int) -> bool:
    return count > 1 and bool(np.abs(mixture[:count] - 1.0 / count).max() < _UNIFORM)


def _constant(case: Case) -> list[str]:
    mine = case.predicted_by(case.result.node.path)
    same = mine is not None and len(mine) > 1 and bool((mine == mine[0]).all())
    return ["the model predicts the same for every row: all rows are tied"] if same else []


def _by_few(case: Case, scored: Scored) -> list[str]:
    """Where a few rows make up half of a loss, rows that were not seen may make up as much."""
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


def _by_chance(case: Case, scored: Scored, against: Mapping[str, Difference]) -> list[str]:
    """A model may be better than another one and still say nothing."""
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


def _as_good_as_constant(case: Case, scored: Scored) -> str:
    """Whether one prediction for all rows would do as well: the classes' shares, a middle of the labels."""
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


# ------------------------------------------------------------------------------------------------ the mixture


def _mixture(case: Case) -> tuple[HullTest, MixtureUncertainty]:
    """All validation rows, those held out too, say what the target is: nothing is chosen by them here."""
    matching = case.prepared.search.matching
    hull, estimate = about_target(case.prepared.given, seed=case.prepared.seed, matching=matching)
    names, count = case.prepared.given.names, len(case.prepared.given)
    nodes = list(case.choices.values())
    found = mixture_uncertainty(
        dict(zip(names, case.mixed.mixture[:count].tolist(), strict=True)),
        estimate,
        tried=[node.mixture[:count] for node in nodes],
        values=[node.value for node in nodes],
        standard_errors=[node.standard_error for node in nodes],
        explained=hull.inside,
    )
    last = _last_steps(case)
    if case.lineage and last:
        note = f"the weights are those before the last {_steps(last)}, on the target's own rows"
        found = replace(found, notes=(*found.notes, note))
    own = float(case.mixed.mixture[count:].sum())
    if own > 0.0:
        note = f"the target's own rows have weight {own:.2f} in the mixture"
        found = replace(found, notes=(*found.notes, note))
    return hull, found
