"""New rows of the target for a finished portfolio: its members are scored again and re-joined, not fitted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.labelscale import LabelScale
from mixtree.data.sources import Rows, Sources
from mixtree.errors import InputError
from mixtree.fitting.model_folder import SavedModel
from mixtree.fitting.portfolio import Fitter, PortfolioTrainer, Progress
from mixtree.fitting.portfolio_verdict import Case, judge_portfolio
from mixtree.fitting.prepare import Prepared, train_network
from mixtree.metrics import as_metric
from mixtree.stats.intervals import Difference, ScoreInterval, honest_score, paired_difference
from mixtree.verdict import Verdict


@dataclass(frozen=True, eq=False, slots=True)
class Updated:
    """What came of new rows.

    Parameters
    ----------
    trainer, state
        The portfolio with the weights that were chosen.
    score
        Of the weights as they were, on the rows that are new: none of them trained or chose anything.
    gain
        What joining again gains on the new rows; each is predicted by weights that were chosen without it.
    kept
        Whether the weights stay as they were, since they still win.
    verdict
        On all rows.
    """

    trainer: PortfolioTrainer
    state: Progress
    score: ScoreInterval
    gain: Difference
    kept: bool
    verdict: Verdict


def update_portfolio(prepared: Prepared, arrays: dict[str, NDArray[Any]], longer: Sources) -> Updated:
    """Score the members of a stored portfolio on new rows of the target, and join them again.

    Members stay as they were fitted: on the rows that they were fitted with, their cross-fitted predictions
    count, on the new rows what they predict. A member that had no weight was not kept and has none again.

    Parameters
    ----------
    prepared
        The fit as it was, on the rows that it had.
    arrays
        Of its model.
    longer
        The same sources with the longer validation rows, those of then among them.

    Returns
    -------
    Updated
    """
    trainer = prepared.trainer
    assert isinstance(trainer, PortfolioTrainer)
    state, old = trainer.load(arrays), trainer.fitter
    own, new = _places(trainer.sources.validation, longer.validation)
    sources = replace(trainer.sources, validation=longer.validation)
    fitter = Fitter(
        sources, old.layout, old.metric, seed=old.seed, effort=prepared.options.effort, network=train_network
    )
    after = PortfolioTrainer(sources, fitter, trainer.recipes)
    tables, before, members = fitter.tables(longer.validation.x[new]), trainer.weights(state.members), []
    for each in state.members:
        if each.member is None:
            continue
        predictions = np.empty((len(longer.validation), *each.predictions.shape[1:]))
        predictions[own], predictions[new] = each.predictions, each.member.predict(*tables)
        score = fitter.metric(longer.validation.y, predictions)
        members.append(replace(each, predictions=predictions, score=score))
    y, joined = longer.validation.y[new], replace(state, members=tuple(members))
    as_it_was = np.asarray(sum(before[each.recipe.name] * each.predictions[new] for each in members))
    again = after.crossed(members)[new]
    metric, seed = fitter.metric, fitter.seed
    gain = paired_difference(metric, y, again, as_it_was, seed=seed)
    kept = metric.signed(metric(y, again)) >= metric.signed(metric(y, as_it_was))
    if kept:
        joined, after = state, trainer
    case = Case(after, joined, None, "validation", metric)
    if kept:  # on the new rows, which are all that is new
        case = Case(after, joined, longer.validation.take(new), "test", metric)
    verdict = judge_portfolio(case, reference=prepared.reference, seed=seed, warnings=prepared.warnings)
    return Updated(
        after,
        joined,
        honest_score(metric, y, as_it_was, rows_role="test", seed=seed),
        gain,
        kept,
        verdict,
    )


def scored_again(model: SavedModel, then: Rows, now: Rows) -> ScoreInterval:
    """The score of any stored model on the rows that are new, none of which trained or chose anything.

    Parameters
    ----------
    model
        As it was saved.
    then
        The validation rows of its fit.
    now
        Those, and more.
    """
    new = now.take(_places(then, now)[1])
    scale = LabelScale(*model.about.get("label_scale", (0.0, 1.0)))
    found = scale.back(model.trainer.predict(model.state, new.x))
    metric = as_metric(model.about["metric"], classes=len(model.classes or ()))
    return honest_score(metric, new.y, found, rows_role="test", seed=model.about.get("seed", 0))


def _places(then: Rows, now: Rows) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the rows of then are among those of now, and where the new ones are."""

    def keys(rows: Rows) -> list[bytes]:
        x = rows.x.toarray() if hasattr(rows.x, "toarray") else rows.x
        table = np.column_stack([np.asarray(x, dtype=np.float64), np.asarray(rows.y, dtype=np.float64)])
        return [row.tobytes() for row in table]

    places: dict[bytes, list[int]] = {}
    for place, key in enumerate(keys(now)):
        places.setdefault(key, []).append(place)
    found = [waiting.pop(0) if (waiting := places.get(key)) else -1 for key in keys(then)]
    if lost := found.count(-1):
        raise InputError(
            f"{lost} of the {len(then):,} rows that validated the fit are not in the new table: it must hold "
            "them, and more"
        )
    own = np.array(found, dtype=np.intp)
    new = np.setdiff1d(np.arange(len(now)), own)
    if len(new) < 2:
        raise InputError(f"the table has {len(new)} new rows: at least two are needed to score a model")
    return own, new
