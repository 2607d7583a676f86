"""The verdict of a portfolio: cross-fitted on the target's rows, compared with pooled models."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Rows
from mixtree.engine.study import Result
from mixtree.errors import StorageError
from mixtree.fitting.portfolio import POOLED, PortfolioTrainer, Progress
from mixtree.metrics import Metric
from mixtree.stats.intervals import FEW, Difference, Role, honest_score, paired_difference
from mixtree.storage.base import Storage
from mixtree.trainers.portfolio import Member
from mixtree.verdict.sentences import Verdict, make_verdict

Array = NDArray[np.float64]

_NAMES = {"mlp": "network"}
"""What a family is called in the names of its pooled models, where that is not its own name."""


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """A finished portfolio, and the rows that judge it: rows apart, or else the target's by cross-fitting."""

    trainer: PortfolioTrainer
    state: Progress
    judges: Rows | None
    role: Role
    metric: Metric

    @property
    def rows(self) -> Rows:
        """Those that score."""
        return self.trainer.sources.validation if self.judges is None else self.judges

    @property
    def mine(self) -> Array:
        """What the portfolio predicts for them."""
        if self.judges is None:
            return self.trainer.crossed(self.state.members)
        return self.trainer.predict(self.state, self.judges.x)

    def by(self, member: Member) -> Array:
        """What a model of the sources' rows alone predicts for them."""
        fitter = self.trainer.fitter
        plain, target = fitter.tables(self.rows.x)
        return member.predict(plain, target)

    @property
    def strongest(self) -> str:
        """The family whose members have most weight together."""
        return strongest_family(self.trainer, self.state)


def strongest_family(trainer: PortfolioTrainer, state: Progress) -> str:
    """The family whose members have most weight together."""
    totals: dict[str, float] = {}
    for name, weight in trainer.weights(state.members).items():
        family = next(each.recipe.family for each in state.members if each.recipe.name == name)
        totals[family] = totals.get(family, 0.0) + weight
    return max(totals, key=lambda name: totals[name])


def judge_portfolio(case: Case, *, reference: str, seed: int, warnings: tuple[str, ...] = ()) -> Verdict:
    """The verdict on a finished portfolio.

    The references are fitted on the sources' rows alone, all alike: LightGBM, the strongest one-liner, and
    the portfolio's own strongest family. None of the target's rows has a part in them.

    Parameters
    ----------
    case
        What is judged, and on which rows.
    reference
        ``none`` fits none.
    seed
        Of the intervals' samples.
    warnings
        What is known of the rows beforehand.
    """
    fitter, metric, y, mine = case.trainer.fitter, case.metric, case.rows.y, case.mine
    fitter.task = replace(fitter.task, trees=case.state.trees)
    against: dict[str, Difference] = {}
    spent: dict[str, int] = {}
    for family in dict.fromkeys([case.strongest, POOLED.family]) if reference != "none" else ():
        name = f"{_NAMES.get(family, family)}-pooled"
        predictions = case.by(fitter.pooled(family))
        against[name] = paired_difference(metric, y, mine, predictions, seed=seed)
        spent[name] = 1
    score = honest_score(metric, y, mine, rows_role="joined" if case.judges is None else case.role, seed=seed)
    few = [f"only {len(y)} rows score: intervals of so few are not to be relied on"] if len(y) < FEW else []
    return make_verdict(
        metric,
        score,
        against=against,
        notes=[_members(case)],
        queries=len(case.state.members),
        reference_spent=spent,
        warnings=[*warnings, *few],
        uncompared="" if against else "not compared: no reference was asked for",
    )


def _members(case: Case) -> str:
    """Every member, its weight and its own score."""
    weights = case.trainer.weights(case.state.members)
    ordered = sorted(case.state.members, key=lambda each: -weights[each.recipe.name])
    shown = ", ".join(f"{e.recipe.name} {weights[e.recipe.name]:.2f} ({e.score:.4g})" for e in ordered)
    return (
        f"members, their weights and their own {case.metric.name}, cross-fitted on the target's rows: {shown}"
    )


def judged_portfolio(
    case: Case, result: Result[Any], *, reference: str, seed: int, warnings: tuple[str, ...], storage: Storage
) -> Result[Any]:
    """The result with its verdict, which is also written to the study's storage.

    Parameters
    ----------
    case, reference, seed, warnings
        As of `judge_portfolio`.
    result
        Of the study.
    storage
        Where the study is.
    """
    verdict = judge_portfolio(case, reference=reference, seed=seed, warnings=warnings)
    try:
        storage.write_verdict(result.study, verdict.as_dict())
    except StorageError as error:  # its file may have been removed: the model is not lost with it
        verdict = replace(verdict, warnings=(*verdict.warnings, f"not stored in the study: {error}"))
    return replace(result, verdict=verdict, notes=(*result.notes, *case.state.notes))
