"""``model="auto"``: a few models of several families, joined by how surely each is behind the best.

Every member is fitted on all rows at once. Most know where a row comes from: the source is a column, and the
target, whose own rows are among the training rows, a level of its own. Members that only read sources are
fitted once; the others once more for every fold of the target's rows, which is predicted without it. From
these predictions every member has a score on all of the target's rows. With z_k the standard errors by which
member k is behind the best one, paired by row, its weight is w_k ∝ p_k exp(−z_k² / 4), where p_k is 1 but for
members of the target's rows alone, which few rows make small. Choosing one member, and equal weights, both
did worse on the tables on which the rule was designed (docs/tables.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Rows, Sources
from mixtree.data.sparse import is_sparse
from mixtree.data.typed import Layout
from mixtree.errors import DataError, InputError
from mixtree.estimate.target import about_target
from mixtree.estimate.uncertainty import listed
from mixtree.metrics import Metric, mean_and_error, row_losses
from mixtree.seeds import derive_seed
from mixtree.simplex import Mixture, uniform_mixture
from mixtree.stats.selection import label_folds
from mixtree.trainers.families import (
    ABSOLUTE,
    FAMILIES,
    Fitted,
    LightGBM,
    Table,
    Task,
    fit_family,
    has_catboost,
)
from mixtree.trainers.portfolio import Member, Portfolio, Units

_log = logging.getLogger(__name__)

Array = NDArray[np.float64]
Effort = Literal["quick", "normal", "thorough"]
EFFORTS: tuple[Effort, ...] = ("quick", "normal", "thorough")

_SHARPNESS = 4.0  # w ∝ exp(−z² / 4)
_LEAST = 0.01
"""Of a weight: a member below it costs more in predicting than it gives."""
_OWN_ROWS = 50.0  # of the target, at which a member of them alone counts half of one that reads sources
_SURELY = 2.0  # standard errors by which another mixture must be better than the pooled one
_RARELY, _MOST_PAIRED = 0.05, 3_000
"""Chance of two rows to agree below which agreeing says something; rows that are compared two by two."""
_SKEWED = 1.0  # labels of a larger skewness may be learnt as logarithms


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a member is made.

    Parameters
    ----------
    name
        Its own.
    family
        One of ``FAMILIES``.
    column
        Whether the source is a feature.
    target
        Weight of a row of the target; 0 leaves them out.
    sources
        Whether the sources' rows are read.
    log
        Whether a regression's labels are learnt as logarithms.
    """

    name: str
    family: str
    column: bool = False
    target: float = 0.0
    sources: bool = True
    log: bool = False

    @property
    def own(self) -> bool:
        """Whether it reads rows of the target."""
        return self.target > 0.0


POOLED = Recipe("lightgbm-pooled", "lightgbm")
"""The strongest one-liner: what every portfolio is compared with."""
_SOURCE = Recipe("lightgbm-source", "lightgbm", column=True, target=1.0)
_LOG = replace(_SOURCE, name="lightgbm-log", log=True)
_LINEAR = Recipe("linear-source", "linear", column=True, target=1.0)
_LINEAR_TARGET = Recipe("linear-target", "linear", target=1.0, sources=False)
_HEAVY = replace(_SOURCE, name="lightgbm-target-5", target=5.0)
_TREES = Recipe("extra-trees-source", "extra-trees", column=True, target=1.0)
_CATBOOST = Recipe("catboost-source", "catboost", column=True, target=1.0)
NETWORK = Recipe("network", "mlp", target=1.0)

_MEMBERS: Mapping[str, tuple[Recipe, ...]] = {
    "quick": (_LINEAR, _LINEAR_TARGET),
    "normal": (_LINEAR, _LINEAR_TARGET, _HEAVY, _CATBOOST, _TREES, NETWORK),
    "thorough": (_LINEAR, _LINEAR_TARGET, _HEAVY, _CATBOOST, _TREES, NETWORK),
}
"""By effort, in the order in which they are fitted; before them LightGBM, pooled and with the source."""
_FOLDS = {"quick": 3, "normal": 4, "thorough": 8}
_TREES_TRIED = (50, 100, 150, 200, 300, 400, 600, 800)
"""Of which cross-fitting chooses; a classification needs no more than the first five."""
_DEAR, _MANY_ROWS = ("catboost", "extra-trees", "mlp"), 10_000
"""Families that are cross-fitted by half as many folds where there are so many rows."""


class TrainNetwork(Protocol):
    """Trains the network of a policy; whoever fits gives it."""

    def __call__(self, sources: Sources, metric: Metric, policy: str, seed: int) -> Fitted: ...


@dataclass(frozen=True, eq=False, slots=True)
class Crossed:
    """A member, and what it predicts for the target's rows that it was not fitted on."""

    recipe: Recipe
    member: Member | None
    """Of all rows; None while it is not fitted, and for good where its weight is 0."""
    predictions: Array
    score: float
    rows_read: int


@dataclass(frozen=True, eq=False, slots=True)
class Joined:
    """A fitted portfolio and how it came to be.

    Parameters
    ----------
    portfolio
        What predicts.
    members
        All that were fitted, those of weight 0 too.
    weights
        By the names of the members.
    mixture
        Of the sources.
    predictions
        Of the target's rows: what a portfolio predicts that neither fitted nor weighed its members on them.
    pooled
        What LightGBM on all sources' rows predicts for them.
    folds
        Of the target's rows.
    notes
        What was decided, in words.
    seconds
        CPU time of all of it.
    fitter
        Fits further members on the same rows.
    """

    portfolio: Portfolio
    members: tuple[Crossed, ...]
    weights: dict[str, float]
    mixture: Mixture
    predictions: Array
    pooled: Crossed
    folds: NDArray[np.intp]
    notes: tuple[str, ...]
    seconds: float
    fitter: Fitter = field(repr=False)

    @property
    def rows_read(self) -> dict[str, int]:
        """By member: rows × fits."""
        return {each.recipe.name: each.rows_read for each in self.members}

    @property
    def strongest(self) -> str:
        """The family whose members have most weight together."""
        totals: dict[str, float] = {}
        for each in self.members:
            family = each.recipe.family
            totals[family] = totals.get(family, 0.0) + self.weights[each.recipe.name]
        return max(totals, key=lambda name: totals[name])


class Fitter:
    """Fits and cross-fits members on the same rows.

    Parameters
    ----------
    sources
        Labels in their own units; the validation rows are the target's.
    layout
        Where columns are among the features.
    metric
        What members are scored by.
    seed
        Of all that is drawn.
    effort
        How many folds and trees.
    network
        Trains networks.
    """

    def __init__(
        self,
        sources: Sources,
        layout: Layout,
        metric: Metric,
        *,
        seed: int,
        effort: Effort,
        network: TrainNetwork | None,
    ) -> None:
        self.sources, self.metric, self.seed, self.network = sources, metric, seed, network
        self.layout = layout
        parts = (*sources.rows, sources.validation)
        self.y = np.concatenate([part.y for part in parts])
        self.source = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        self.count = int(sources.sizes.sum())
        self.plain = Table.of(_stacked([part.x for part in parts]), layout)
        self.target = self.plain.with_source(self.source, len(sources))
        absolute = not sources.classes and metric.name.startswith("mae")
        self.task = Task(sources.classes, ABSOLUTE if absolute else "squared", seed % 2**31)
        self.tried = [n for n in _TREES_TRIED if n <= (300 if sources.classes or effort == "quick" else 800)]
        own = len(sources.validation)
        rng = np.random.default_rng(derive_seed(seed, (1,)))
        groups = near_twins(self.plain.typed[self.count :])
        first, group = np.unique(groups, return_index=True, return_inverse=True)[1:]
        folds = min(_FOLDS[effort], max(2, len(first) // 2))
        # Of a group of rows the first one's label speaks for all.
        self.folds = label_folds(sources.validation.y[first], folds, rng)[group]
        self.grouped = own - len(first)
        self.weight = np.concatenate([part.weights for part in sources.rows])
        self.units = {False: Units(), True: Units()}
        if not sources.classes:
            self.units[False] = Units.of(self.y[: self.count], log=False)
            if can_log(self.y):
                self.units[True] = Units.of(self.y[: self.count], log=True)

    def weigh(self, mixture: Mixture) -> None:
        """Weight every source's rows by this mixture, so that their mean weight is 1."""
        own = np.concatenate([part.weights for part in self.sources.rows])
        share = mixture * self.count / self.sources.sizes
        self.weight = own * share[self.source[: self.count]]

    def member(self, recipe: Recipe, inside: NDArray[Any], purpose: int = 0) -> Member:
        """A member that reads these of the target's rows, by their positions among them."""
        units = self.units[recipe.log]
        if recipe.family == NETWORK.family:
            return Member(recipe.name, self._network(inside, units, "auto", purpose), False, units)
        weight = np.zeros(len(self.y))
        if recipe.sources:
            weight[: self.count] = self.weight
        weight[self.count + inside] = recipe.target
        labels = self.y if self.sources.classes else units.scaled(self.y)
        table = self.target if recipe.column else self.plain
        fitted = fit_family(FAMILIES[recipe.family], table, labels, weight, self.task)
        return Member(recipe.name, fitted, recipe.column, units)

    def _network(self, inside: NDArray[Any], units: Units, policy: str, purpose: int) -> Fitted:
        if self.network is None:
            raise InputError("there is nobody to train the network")
        sources, validation = self.sources, self.sources.validation.take(inside)
        if not sources.classes:
            parts = tuple(replace(part, y=units.scaled(part.y)) for part in sources.rows)
            sources = replace(sources, rows=parts)
            validation = replace(validation, y=units.scaled(validation.y))
        return self.network(
            replace(sources, validation=validation),
            _in_units(self.metric, units),
            policy,
            derive_seed(self.seed, (2, purpose)),
        )

    def pooled(self, family: str) -> Member:
        """The family's model of all sources' rows alike."""
        before = self.weight
        self.weigh(self.sources.sizes / self.count)
        try:
            nothing = np.zeros(0, dtype=np.intp)
            if family == NETWORK.family:
                units = self.units[False]
                everything = np.arange(len(self.sources.validation))
                return Member("pooled", self._network(everything, units, "pooled", 0), False, units)
            return self.member(Recipe(f"{family}-pooled", family), nothing)
        finally:
            self.weight = before

    def predict(self, member: Member, rows: NDArray[Any]) -> Array:
        """Of the target's rows at these positions."""
        place = self.count + rows
        return member.predict(self.plain.take(place), self.target.take(place))

    def cross_fit(self, recipe: Recipe) -> Crossed:
        """What the member predicts for the target's rows without having seen them."""
        own = np.arange(len(self.sources.validation))
        if not recipe.own:
            member = self.member(recipe, own[:0])
            return self._crossed(recipe, self.predict(member, own), self.count, member)
        folds = self.folds
        if recipe.family in _DEAR and self.count > _MANY_ROWS:
            folds = folds // 2
        found, read = np.empty(self.shape), 0
        for fold in range(int(folds.max()) + 1):
            inside, out = own[folds != fold], own[folds == fold]
            found[out] = self.predict(self.member(recipe, inside, fold + 1), out)
            read += self.count * recipe.sources + len(inside)
        return self._crossed(recipe, found, read)

    def _crossed(
        self, recipe: Recipe, predictions: Array, read: int, member: Member | None = None
    ) -> Crossed:
        score = self.metric(self.sources.validation.y, predictions)
        return Crossed(recipe, member, predictions, score, read)

    def finished(self, crossed: Crossed) -> Crossed:
        """The member fitted on all rows, if it is not."""
        if crossed.member is not None:
            return crossed
        recipe, own = crossed.recipe, np.arange(len(self.sources.validation))
        read = crossed.rows_read + self.count * recipe.sources + len(own)
        return replace(crossed, member=self.member(recipe, own), rows_read=read)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of predictions of the target's rows."""
        own, classes = len(self.sources.validation), self.sources.classes
        return (own, classes) if classes else (own,)

    def choose_trees(self, recipe: Recipe) -> tuple[Crossed, str]:
        """Cross-fit this member of LightGBM, and choose by it how many trees all of them have; why, in words."""
        own, y = np.arange(len(self.sources.validation)), self.sources.validation.y
        self.task = replace(self.task, trees=self.tried[-1])
        stages = np.empty((len(self.tried), *self.shape))
        table = self.target if recipe.column else self.plain
        for fold in range(int(self.folds.max()) + 1):
            out = own[self.folds == fold]
            member = self.member(recipe, own[self.folds != fold], fold + 1)
            rows, fitted = table.take(self.count + out), member.fitted
            for place, trees in enumerate(self.tried):
                found = fitted.staged(rows, trees) if isinstance(fitted, LightGBM) else fitted.predict(rows)
                stages[place, out] = found if found.ndim == 2 else member.units.back(found)
        losses = [row_losses(y, each, self.sources.classes).mean() for each in stages]
        if self.task.loss == ABSOLUTE:
            losses = [np.abs(y - each).mean() for each in stages]
        best = int(np.argmin(losses))
        self.task = replace(self.task, trees=self.tried[best])
        read = (int(self.folds.max()) + 1) * (self.count + len(own)) - len(own)
        words = f"LightGBM has {self.tried[best]} trees, of up to {self.tried[-1]}: chosen by cross-fitting"
        return self._crossed(recipe, stages[best], read), words


def _stacked(parts: Sequence[Any]) -> Any:
    if not any(is_sparse(part) for part in parts):
        return np.concatenate([np.asarray(part, dtype=np.float32) for part in parts])
    from scipy import sparse

    return sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")


def _in_units(metric: Metric, units: Units) -> Metric:
    """The metric of labels and predictions on a member's scale."""
    if units == Units():
        return metric
    terms = metric.contributions
    return replace(
        metric,
        values=lambda y, stack: metric.values(units.back(y), units.back(stack)),
        contributions=None if terms is None else lambda y, stack: terms(units.back(y), units.back(stack)),
    )


def near_twins(rows: Any) -> NDArray[np.intp]:
    """A group number for every row: rows that agree where rows hardly ever agree by chance are one group.

    Two years of one person, say, of which one would give the other away. Rows agree if they do in at least
    half of the columns (and two of them) in which fewer than one pair of rows in twenty has the same value.

    >>> ages = np.array([31.5, 40.25, 31.5, 55.0, 62.0, 47.5, 38.0])
    >>> near_twins(np.column_stack([ages, 100 * ages, np.arange(7) % 2]))
    array([0, 1, 0, 3, 4, 5, 6])
    """
    groups = np.arange(rows.shape[0])
    if is_sparse(rows) or rows.shape[0] > _MOST_PAIRED:
        return groups
    x = np.asarray(rows, dtype=np.float64)
    telling = [column for column in x.T if _chance(column) < _RARELY]
    if len(telling) < 2:
        return groups
    same = np.zeros((len(x), len(x)), dtype=np.int16)
    for column in telling:
        same += column[:, None] == column[None, :]
    twins = same >= max(2, -(-len(telling) // 2))
    for row in range(len(x)):  # the lowest number of a row's twins is the group's
        own = groups[twins[row]]
        groups[np.isin(groups, own)] = own.min()
    return groups


def _chance(column: NDArray[Any]) -> float:
    """The share of the pairs of rows with the same value."""
    known = column[~np.isnan(column)]
    counts = np.unique(known, return_counts=True)[1]
    pairs = len(known) * (len(known) - 1)
    return float((counts * (counts - 1)).sum() / pairs) if pairs else 1.0


def can_log(y: NDArray[Any]) -> bool:
    """Whether labels are positive, skewed, and less so as logarithms."""
    if np.issubdtype(y.dtype, np.integer) or y.min() <= 0.0 or y.std() == 0.0:
        return False
    logs = np.log(y)
    return bool(_skewness(y) > _SKEWED and abs(_skewness(logs)) < _skewness(y))


def _skewness(values: NDArray[Any]) -> float:
    gaps = values - values.mean()
    return float((gaps**3).mean() / max(gaps.std(), 1e-300) ** 3)


def deficits(metric: Metric, y: NDArray[Any], predictions: Sequence[Array], classes: int) -> Array:
    """By how many standard errors each is behind the best one, paired by row.

    Parameters
    ----------
    metric
        What scores; where it tells no errors the rows' losses stand in for it.
    y
        Labels.
    predictions
        Of each.
    classes
        How many there are; 0 in a regression.

    Examples
    --------
    >>> from mixtree.metrics import as_metric
    >>> y = np.array([1.0, 2.0, 3.0])
    >>> deficits(as_metric("mae", classes=0), y, [y + [0.1, -0.1, 0.1], y + [0.2, -0.1, 0.1]], 0).round(2)
    array([0.  , 1.22])
    """
    values = np.array([metric.signed(metric(y, each)) for each in predictions])
    known = np.isfinite(values)
    if not known.any():
        raise DataError(f"no member of the portfolio has a finite {metric.name} on the target's rows")
    best = int(np.where(known, values, np.inf).argmin())
    found = np.full(len(values), np.inf)
    for place, each in enumerate(predictions):
        if not known[place]:
            continue
        gap, error = values[place] - values[best], metric.paired_error(y, each, predictions[best])
        if not isfinite(error):
            losses = row_losses(y, each, classes) - row_losses(y, predictions[best], classes)
            gap, error = (float(value) for value in mean_and_error(losses))
        found[place] = 0.0 if gap <= 0.0 else gap / max(error, 1e-12)
    return found


def join_weights(z: Array, prior: Array, rows: int) -> Array:
    """w_k ∝ p_k exp(−z_k² / 4); of few rows a large z says less, as with Student's t.

    >>> join_weights(np.array([0.0, 1.0, 8.0]), np.ones(3), 1000).round(3)
    array([0.562, 0.438, 0.   ])
    """
    squares = rows * np.log1p(z**2 / rows)
    weights = prior * np.exp(-squares / _SHARPNESS)
    weights /= weights.sum()
    weights[weights < _LEAST] = 0.0
    return np.asarray(weights / weights.sum())


def fit_portfolio(
    sources: Sources,
    *,
    layout: Layout,
    metric: Metric,
    seed: int = 0,
    effort: Effort = "normal",
    time_limit: float | None = None,
    network: TrainNetwork | None = None,
    families: Sequence[str] | None = None,
) -> Joined:
    """The portfolio of these sources for the target of the validation rows.

    Parameters
    ----------
    sources
        Labels in their own units.
    layout
        Where the columns of the table are among the features.
    metric
        What members are chosen by.
    seed
        Of folds and models.
    effort
        How many members, folds and trees.
    time_limit
        Seconds; members that would take longer are left out, the first one never.
    network
        Trains the network; without it there is none.
    families
        Only members of these, and the pooled LightGBM that all are compared with.
    """
    if effort not in EFFORTS:
        raise InputError(f"effort is one of {', '.join(EFFORTS)}; got {effort!r}")
    began, until = time.process_time(), None if time_limit is None else time.monotonic() + time_limit
    fitter = Fitter(sources, layout, metric, seed=seed, effort=effort, network=network)
    notes: list[str] = []
    if fitter.grouped:
        notes.append(
            f"{fitter.grouped:,} of the {len(sources.validation):,} target rows are near twins of others (of the "
            "same person, say): twins are in the same fold"
        )
    first, words = fitter.choose_trees(_SOURCE)
    notes.append(words)
    pooled, mixture, chosen = _mixture(fitter, effort, notes)
    members = _fitted(fitter, first, chosen, effort, until, families, notes)
    y = sources.validation.y
    own = np.array([not each.recipe.sources for each in members])
    prior = np.where(own, len(y) / (len(y) + _OWN_ROWS), 1.0)

    def weights_on(rows: NDArray[Any]) -> Array:
        parts = [each.predictions[rows] for each in members]
        return join_weights(deficits(metric, y[rows], parts, sources.classes), prior, len(rows))

    everything = np.arange(len(y))
    weights = weights_on(everything)
    stack = np.stack([each.predictions for each in members])
    crossed = np.empty_like(stack[0])
    for fold in range(int(fitter.folds.max()) + 1):
        out = everything[fitter.folds == fold]
        crossed[out] = np.tensordot(
            _weights_without(weights_on, fitter.folds, fold, weights), stack[:, out], 1
        )
    pairs = list(zip(members, weights.tolist(), strict=True))
    members = [fitter.finished(each) if weight else each for each, weight in pairs]
    used = [
        (each.member, weight)
        for each, (_, weight) in zip(members, pairs, strict=True)
        if each.member and weight
    ]
    portfolio = Portfolio(
        tuple(member for member, _ in used),
        tuple(weight for _, weight in used),
        layout,
        len(sources),
        sources.classes,
    )
    names = [each.recipe.name for each in members]
    by_name = dict(zip(names, weights.tolist(), strict=True))
    shown = ", ".join(f"{name} {by_name[name]:.2f}" for name in sorted(names, key=lambda n: -by_name[n]))
    notes.append(f"members joined by how surely each is behind the best on {len(y):,} target rows: {shown}")
    return Joined(
        portfolio,
        tuple(members),
        by_name,
        mixture,
        crossed,
        pooled,
        fitter.folds,
        tuple(notes),
        time.process_time() - began,
        fitter,
    )


def _weights_without(weights_on: Any, folds: NDArray[Any], fold: int, fallback: Array) -> Array:
    """The weights that the other folds give; equal ones where they cannot be scored."""
    try:
        return np.asarray(weights_on(np.flatnonzero(folds != fold)))
    except DataError:  # a part of few rows may lack a class
        return np.full(len(fallback), 1.0 / len(fallback))


def _mixture(fitter: Fitter, effort: Effort, notes: list[str]) -> tuple[Crossed, Mixture, Crossed]:
    """LightGBM of all rows alike, the mixture that weights the rows of all members, and LightGBM with it."""
    sources = fitter.sources
    pooled = sources.sizes / fitter.count
    candidates: dict[str, Mixture] = {"pooled": pooled}
    if len(sources) > 1 and effort != "quick":
        candidates["uniform"] = uniform_mixture(len(sources))
        _, estimate = about_target(sources, seed=fitter.seed, look_outside=False)
        if estimate is not None:
            candidates["estimated"] = np.asarray(estimate.alpha, dtype=np.float64)
    tried: dict[str, Crossed] = {}
    for name, mixture in candidates.items():
        if any(np.abs(mixture - candidates[other]).max() < 0.02 for other in tried):
            continue
        fitter.weigh(mixture)
        tried[name] = fitter.cross_fit(POOLED)
    y = sources.validation.y
    best = min(tried, key=lambda name: fitter.metric.signed(tried[name].score))
    names = list(dict.fromkeys([best, "pooled"]))
    z = deficits(fitter.metric, y, [tried[name].predictions for name in names], sources.classes)
    if z[-1] <= _SURELY:
        best = "pooled"
    fitter.weigh(candidates[best])
    if len(tried) > 1:
        words = (
            "no other is surely better"
            if best == "pooled"
            else f"pooled is {z[-1]:.1f} standard errors behind"
        )
        notes.append(f"rows weighted by the {best} mixture, of {listed(list(tried))}: {words}")
    return tried["pooled"], candidates[best], tried[best]


def _fitted(
    fitter: Fitter,
    first: Crossed,
    pooled: Crossed,
    effort: Effort,
    until: float | None,
    families: Sequence[str] | None,
    notes: list[str],
) -> list[Crossed]:
    """All members, cross-fitted, as far as time allows; these two are already."""
    recipes = [each for each in _MEMBERS[effort] if families is None or each.family in families]
    if fitter.network is None:
        recipes = [each for each in recipes if each.family != NETWORK.family]
    if any(each.family == "catboost" for each in recipes) and not has_catboost():
        recipes = [each for each in recipes if each.family != "catboost"]
        notes.append("no CatBoost among the members: it is not installed (pip install 'mixtree[boosting]')")
    found = [pooled, first] if families is None or "lightgbm" in families else []
    log, slowest = False, 0.0
    if found and fitter.units[True].log:
        log = _log_scale(fitter, found, notes)
    for place, recipe in enumerate(recipes):
        if until is not None and found and time.monotonic() + slowest > until:
            left = [each.name for each in recipes[place:]]
            notes.append(f"the time limit left no time for {listed(left)}")
            break
        began = time.monotonic()
        found.append(fitter.cross_fit(replace(recipe, log=log)))
        slowest = max(slowest, time.monotonic() - began)
    return found


def _log_scale(fitter: Fitter, found: list[Crossed], notes: list[str]) -> bool:
    """Whether members learn the logarithm of the labels; LightGBM tells, and stays with both scales."""
    found.append(fitter.cross_fit(_LOG))
    plain, logs = found[-2:]
    z = deficits(fitter.metric, fitter.sources.validation.y, [plain.predictions, logs.predictions], 0)
    log = bool(z[1] == 0.0)
    scale, other = ("logarithms", "themselves") if log else ("themselves", "logarithms")
    notes.append(
        f"labels are positive and skewed: learnt as {scale}, since LightGBM is {z.max():.1f} standard errors "
        f"worse with them as {other}"
    )
    return log
