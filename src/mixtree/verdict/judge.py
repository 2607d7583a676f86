"""From a finished fit to its verdict: which rows may score it, what it is compared with, what can be said."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import isclose, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mixtree._native.threads import one_thread
from mixtree.data.allocation import Allocation
from mixtree.engine.study import Result
from mixtree.errors import StorageError, StudyInterrupted
from mixtree.estimate.hull import HullTest
from mixtree.estimate.target import about_target
from mixtree.estimate.uncertainty import listed
from mixtree.events import Listener
from mixtree.metrics import Metric, row_losses
from mixtree.policies.auto import settled_rate
from mixtree.storage.base import Storage
from mixtree.verdict import (
    Difference,
    MixtureUncertainty,
    ScoreInterval,
    Verdict,
    make_verdict,
    mixture_uncertainty,
    paired_difference,
)
from mixtree.verdict.advice import Models, advice, looks
from mixtree.verdict.findings import LONG, Seen, as_good_as_constant, cause, findings, last_steps, steps_words
from mixtree.verdict.references import Extra, TimeLimit, attribution, references
from mixtree.verdict.scoring import Case, Scored, scored_by_rows
from mixtree.verdict.sentences import number

if TYPE_CHECKING:
    from mixtree.verdict.fitted import Fitted

Floats = NDArray[np.float64]

_LEFT = 0.1  # of the budget: a search that stops with more of it unspent does not need a larger one
_SURELY, _WORTH = 2.0, 0.01
"""Standard errors, and the share of the loss, by which it must have fallen to be called still falling."""


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
    found = advice(
        models,
        chooses=len(case.clean) == len(result.tree),
        noise=scored.noise,
        used_up=result.unspent < _LEFT * result.budget,
    )
    improving, raise_budget = _still_improving(case)
    alike = case.prepared.search.equally_good
    if len(alike) > 1:
        seen = replace(seen, notes=(*seen.notes, f"equally good in the race: {listed(list(alike))}"))
    all_seen = Seen(case, scored, against)
    honest = isinstance(scored.score, ScoreInterval) and not scored.score.optimistic
    return make_verdict(
        case.metric,
        scored.score,
        against=against,
        hull=hull,
        mixture=mixture,
        tuned=case.mixed.path != result.node.path,
        tried=any(
            Allocation.of(node.mixture, len(case.prepared.sources)).fold is not None
            for node in result.tree.values()
        ),
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
        warnings=[*scored.warnings, *findings(all_seen)],
        baseline_note=as_good_as_constant(all_seen),
        cause=cause(all_seen),
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
    if not before or totals[full[-1].path] < LONG * case.budget or case.result.unspent > 0:
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


# ------------------------------------------------------------------------------------------------ the mixture


def _mixture(case: Case) -> tuple[HullTest, MixtureUncertainty]:
    """All validation rows, those held out too, say what the target is: nothing is chosen by them here."""
    matching = case.prepared.search.matching
    hull, estimate = about_target(case.prepared.given, seed=case.prepared.seed, matching=matching)
    names, count = case.prepared.given.names, len(case.prepared.given)
    nodes, mixed = list(case.choices.values()), Allocation.of(case.mixed.mixture, count)
    found = mixture_uncertainty(
        dict(zip(names, mixed.sources.tolist(), strict=True)),
        estimate,
        tried=[Allocation.of(node.mixture, count).sources for node in nodes],
        values=[node.value for node in nodes],
        standard_errors=[node.standard_error for node in nodes],
        explained=hull.inside,
    )
    last = last_steps(case)
    if case.lineage and last:
        note = f"the weights are those before the last {steps_words(last)}, on the target's own rows"
        found = replace(found, notes=(*found.notes, note))
    if mixed.own > 0.0:
        note = f"the target's own rows have weight {mixed.own:.2f} in the mixture"
        found = replace(found, notes=(*found.notes, note))
    return hull, found
