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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mixtree.data.plain import read
from mixtree.data.sources import Sources
from mixtree.data.sparse import is_sparse
from mixtree.data.typed import Layout
from mixtree.errors import DataError, InputError, MissingExtraError, SearchError
from mixtree.estimate.target import about_target
from mixtree.estimate.uncertainty import listed
from mixtree.metrics import Metric, mean_and_error, row_losses
from mixtree.search import SearchBase, as_node
from mixtree.seeds import derive_seed
from mixtree.simplex import Mixture, uniform_mixture
from mixtree.stats.selection import label_folds
from mixtree.trainer import Evaluation, Job, TrainerBase
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
from mixtree.trainers.rows import as_bytes, from_bytes
from mixtree.tree import Node, Trial

Array = NDArray[np.float64]
Effort = Literal["quick", "normal", "thorough"]

_SHARPNESS = 4.0  # w ∝ exp(−z² / 4)
_LEAST = 0.01
"""Of a weight: a member below it costs more in predicting than it gives."""
_OWN_ROWS = 50.0  # of the target, at which a member of them alone counts half of one that reads sources
_SURELY = 2.0  # standard errors by which another mixture must be better than the pooled one
_RARELY, _MOST_PAIRED = 0.05, 3_000
"""Chance of two rows to agree below which agreeing says something; rows that are compared two by two."""
_RACED, _ALIKE = 100, 0.02
"""LightGBM's trees in the race of mixtures; weights nearer than this are the same mixture."""
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
ONE_FAMILY = ("lightgbm", "catboost", "extra-trees")
"""Families that make portfolios of their own."""
_ALL = (_SOURCE, POOLED, _LOG, _HEAVY, _CATBOOST, _TREES)
_FOLDS = {"quick": 3, "normal": 4, "thorough": 8}
_TREES_TRIED = (30, 60, 100, 150, 200, 300, 400, 500)
"""Of which cross-fitting chooses; a classification needs no more than the first five."""
_DEAR, _MANY_ROWS = ("catboost", "extra-trees", "mlp"), 3_000
"""Families that are cross-fitted by half as many folds where there are so many rows; and the heavy one."""


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
    chosen: bool = False
    """Of the member that learns logarithms: that others are to learn them too."""


@dataclass(frozen=True, eq=False, slots=True)
class Progress:
    """A portfolio on its way: the members so far, cross-fitted."""

    members: tuple[Crossed, ...] = ()
    trees: int = 0
    """Of LightGBM's members; 0 while they are not chosen."""
    notes: tuple[str, ...] = ()
    """What was decided, in words."""
    diverged = False

    @property
    def log(self) -> bool:
        """Whether members learn the logarithms of labels: if LightGBM does better by them."""
        return any(each.recipe == _LOG and each.chosen for each in self.members)


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
        self.tried = [n for n in _TREES_TRIED if n <= (200 if sources.classes or effort == "quick" else 800)]
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
        self.shape = (own, sources.classes) if sources.classes else (own,)
        if not sources.classes:
            self.units[False] = Units.of(self.y[: self.count], log=False)
            if can_log(self.y):
                self.units[True] = Units.of(self.y[: self.count], log=True)

    def tables(self, x: Any) -> tuple[Table, Table]:
        """Rows of the target as members take them: without, and with the source as a column."""
        plain = Table.of(x, self.layout)
        count = len(self.sources)
        return plain, plain.with_source(np.full(len(plain), count), count)

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
        if (recipe.family in _DEAR or recipe.name == _HEAVY.name) and self.count > _MANY_ROWS:
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

    def choose_trees(self, recipe: Recipe) -> tuple[Crossed, str]:
        """Cross-fit this member, and choose by it how many trees LightGBM has; why, in words."""
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
    np.fill_diagonal(twins, True)  # a gap does not even equal itself
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
    array([0., 1.])
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


class PortfolioTrainer(TrainerBase[Progress]):
    """Adds a member at every step: cross-fits it, and fits it on all rows if it gets any weight.

    Parameters
    ----------
    sources
        Labels in their own units; the validation rows are the target's.
    fitter
        Fits members on these rows.
    recipes
        The members, in their order.
    """

    def __init__(self, sources: Sources, fitter: Fitter, recipes: Sequence[Recipe]) -> None:
        self.sources, self.fitter, self.recipes = sources, fitter, tuple(recipes)

    def init(self, seed: int) -> Progress:
        """A portfolio without members."""
        return Progress()

    def train(self, jobs: Sequence[Job[Progress]]) -> list[Progress]:
        return [self._with_next(job.state, job.mixture) for job in jobs]

    def _with_next(self, state: Progress, mixture: Mixture) -> Progress:
        fitter, recipe = self.fitter, self.recipes[len(state.members)]
        fitter.weigh(mixture)
        notes, trees = list(state.notes), state.trees
        if not trees:
            if fitter.grouped:
                of = f"{fitter.grouped:,} of the {len(self.sources.validation):,} target rows"
                notes.append(
                    f"{of} are near twins of others (of one person, say): twins are in the same fold"
                )
            found, words = fitter.choose_trees(recipe)
            trees = fitter.task.trees
            notes.append(words)
        else:
            fitter.task = replace(fitter.task, trees=trees)
            own_log = recipe == _LOG or (state.log and recipe not in (_SOURCE, POOLED))
            found = fitter.cross_fit(replace(recipe, log=own_log))
            found = replace(found, recipe=recipe)
        if recipe == _LOG:
            found, words = self._chosen_scale(state, found)
            notes.append(words)
        members = (*state.members, found)
        if found.member is None and self.weights(members)[recipe.name] > 0.0:
            log = replace(recipe, log=recipe == _LOG or (state.log and recipe not in (_SOURCE, POOLED)))
            done = fitter.finished(replace(found, recipe=log))
            members = (*state.members, replace(done, recipe=recipe))
        weights = self.weights(members)
        kept = tuple(
            each if weights[each.recipe.name] > 0.0 else replace(each, member=None) for each in members
        )
        return Progress(kept, trees, tuple(notes))

    def _chosen_scale(self, state: Progress, logs: Crossed) -> tuple[Crossed, str]:
        plain = next(each for each in state.members if each.recipe == _SOURCE)
        y, parts = self.sources.validation.y, [plain.predictions, logs.predictions]
        z = deficits(self.fitter.metric, y, parts, 0)
        better = bool(z[1] == 0.0)
        scale, other = ("logarithms", "they are") if better else ("they are", "logarithms")
        return replace(logs, chosen=better), (
            f"labels are positive and skewed: learnt as {scale}, since LightGBM is {z.max():.1f} standard "
            f"errors worse with them as {other}"
        )

    def weights(self, members: Sequence[Crossed], rows: NDArray[Any] | None = None) -> dict[str, float]:
        """The weights of these members, by what they predict for these of the target's rows, or for all."""
        y = self.sources.validation.y
        rows = np.arange(len(y)) if rows is None else rows
        z = deficits(
            self.fitter.metric, y[rows], [each.predictions[rows] for each in members], self.sources.classes
        )
        own = np.array([not each.recipe.sources for each in members])
        prior = np.where(own, len(rows) / (len(rows) + _OWN_ROWS), 1.0)
        last = len(members) - 1  # the last one is fitted if it gets weight, others that were not have none
        prior *= [each.member is not None or place == last for place, each in enumerate(members)]
        found = join_weights(z, prior, len(rows))
        return {each.recipe.name: float(weight) for each, weight in zip(members, found, strict=True)}

    def crossed(self, members: Sequence[Crossed]) -> Array:
        """What portfolios that neither fitted nor weighed their members on a row predict for it."""
        stack = np.stack([each.predictions for each in members])
        found, folds = np.empty_like(stack[0]), self.fitter.folds
        for fold in range(int(folds.max()) + 1):
            try:
                weights = list(self.weights(members, np.flatnonzero(folds != fold)).values())
            except DataError:  # a part of few rows may lack a class
                weights = [1.0 / len(members)] * len(members)
            found[folds == fold] = np.tensordot(weights, stack[:, folds == fold], 1)
        return np.asarray(found)

    def evaluate(self, states: Sequence[Progress]) -> list[Evaluation]:
        evaluations = []
        for state in states:
            found = self.crossed(state.members)
            losses = row_losses(self.sources.validation.y, found, self.sources.classes)
            value, error = mean_and_error(losses)
            evaluations.append(Evaluation(float(value), float(error), found))
        return evaluations

    def about(self, state: Progress) -> list[dict[str, Any]]:
        """Every member as plain data: its weight, its own score and the rows that it read."""
        weights = self.weights(state.members)
        return [
            {
                "name": each.recipe.name,
                "weight": weights[each.recipe.name],
                "score": _plain(each.score),
                "rows_read": each.rows_read,
            }
            for each in state.members
        ]

    def portfolio(self, state: Progress) -> Portfolio:
        """The members that have weight."""
        weights = self.weights(state.members)
        used = [(each.member, weights[each.recipe.name]) for each in state.members]
        kept = [(member, weight) for member, weight in used if member is not None and weight > 0.0]
        total = sum(weight for _, weight in kept)
        return Portfolio(
            tuple(member for member, _ in kept),
            tuple(weight / total for _, weight in kept),
            self.fitter.layout,
            len(self.sources),
            self.sources.classes,
        )

    def predict(self, state: Progress, x: Any) -> Array:
        """Class probabilities (n, classes), or numbers (n,)."""
        return self.portfolio(state).predict(x)

    def save(self, state: Progress) -> dict[str, NDArray[Any]]:
        members = [
            {
                "name": each.recipe.name,
                "score": _plain(each.score),
                "rows": each.rows_read,
                "log": each.chosen,
            }
            for each in state.members
        ]
        about = {"members": members, "trees": state.trees, "notes": list(state.notes)}
        crossed = {f"crossed/{each.recipe.name}": each.predictions for each in state.members}
        return {
            **self.portfolio(state).arrays(),
            **crossed,
            "progress": from_bytes(json.dumps(about).encode()),
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> Progress:
        about = read(as_bytes(arrays["progress"]).decode(), _PROGRESS)
        fitted = {
            each.name: each for each in Portfolio.from_arrays(arrays, self.sources.validation.x).members
        }
        recipes = {each.name: each for each in self.recipes}
        members = tuple(
            Crossed(
                recipes[each["name"]],
                fitted.get(each["name"]),
                arrays[f"crossed/{each['name']}"],
                np.nan if each["score"] is None else each["score"],
                each["rows"],
                each["log"],
            )
            for each in about["members"]
        )
        return Progress(members, about["trees"], tuple(about["notes"]))

    def describe(self) -> dict[str, Any]:
        return {"members": [each.name for each in self.recipes], "folds": int(self.fitter.folds.max()) + 1}


_PROGRESS = {
    "members": [{"name": str, "score": (None, float), "rows": int, "log": bool}],
    "trees": int,
    "notes": [str],
}


def _plain(value: float) -> float | None:
    return float(value) if isfinite(value) else None


class PortfolioSearch(SearchBase):
    """Asks for one member after the other, each a step; returns the portfolio of all that were fitted.

    Parameters
    ----------
    fitter
        Tells which mixture weights the sources' rows, before the first member.
    recipes
        The members.
    race
        Whether other mixtures than the pooled one are tried.
    """

    rule = "joined"
    on_target = True

    def __init__(self, fitter: Fitter, recipes: Sequence[Recipe], *, race: bool) -> None:
        self.fitter, self.recipes, self.race = fitter, tuple(recipes), race
        self.budget, self.spent = len(self.recipes), 0
        self.nodes: list[Node] = []
        self.notes: list[str] = []
        self._mixture: Mixture | None = None
        self._waiting: Trial | None = None

    def ask(self) -> list[Trial]:
        if self._waiting is not None:
            raise SearchError("tell the outcome of the last round before asking for another one")
        if len(self.nodes) == len(self.recipes):
            return []
        if self._mixture is None:
            self._mixture, words = choose_mixture(self.fitter, race=self.race)
            self.notes += words
        place = len(self.nodes)
        self._waiting = Trial((0,) * place, self._mixture, 1, phase=self.recipes[place].name)
        self.spent += 1
        return [self._waiting]

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        if self._waiting is None or trial.path != self._waiting.path:
            raise SearchError(f"nobody asked for {trial.path}")
        self.nodes.append(as_node(trial, evaluation))
        self._waiting = None

    def best(self) -> Node:
        if not self.nodes:
            raise SearchError("no member was fitted yet")
        return self.nodes[-1]

    def describe(self) -> dict[str, Any]:
        return {"members": [each.name for each in self.recipes], "race": self.race}


def choose_mixture(fitter: Fitter, *, race: bool) -> tuple[Mixture, list[str]]:
    """The mixture that weights the rows of all members, by LightGBM on sources' rows alone; why, in words.

    Parameters
    ----------
    fitter
        Fits on the rows.
    race
        Whether others than the pooled one are tried.
    """
    sources = fitter.sources
    pooled: Mixture = sources.sizes / fitter.count
    if len(sources) == 1 or not race:
        return pooled, []
    candidates: dict[str, Mixture] = {"pooled": pooled, "uniform": uniform_mixture(len(sources))}
    plain = sources
    if not sources.classes:
        units = fitter.units[False]
        parts = tuple(replace(part, y=units.scaled(part.y)) for part in sources.rows)
        own = replace(sources.validation, y=units.scaled(sources.validation.y))
        plain = replace(sources, rows=parts, validation=own)
    _, estimate = about_target(plain, seed=fitter.seed, look_outside=False)
    if estimate is not None:
        candidates["estimated"] = np.asarray(estimate.alpha, dtype=np.float64)
    fitter.task = replace(fitter.task, trees=_RACED)
    tried: dict[str, Crossed] = {}
    for name, mixture in candidates.items():
        if not any(np.abs(mixture - candidates[other]).max() < _ALIKE for other in tried):
            fitter.weigh(mixture)
            tried[name] = fitter.cross_fit(POOLED)
    if len(tried) == 1:
        return pooled, []
    best = min(tried, key=lambda name: fitter.metric.signed(tried[name].score))
    parts_of = [tried[best].predictions, tried["pooled"].predictions]
    behind = float(deficits(fitter.metric, sources.validation.y, parts_of, sources.classes)[1])
    words = f"pooled is {behind:.1f} standard errors behind"
    if behind <= _SURELY:
        best, words = "pooled", "no other is surely better"
    return candidates[best], [f"rows weighted by the {best} mixture, of {listed(list(tried))}: {words}"]


def recipes_for(
    fitter: Fitter, effort: str, families: Sequence[str] | None = None
) -> tuple[tuple[Recipe, ...], tuple[str, ...]]:
    """The members of this effort on these rows, and what is not among them, in words.

    Parameters
    ----------
    fitter
        Knows whether labels can be learnt as logarithms, and whether networks can be trained.
    effort
        One of ``quick``, ``normal``, ``thorough``.
    families
        Members of these alone.
    """
    logs = (_LOG,) if fitter.units[True].log else ()
    recipes, words = (_SOURCE, POOLED, *logs, *_MEMBERS[effort]), list[str]()
    if fitter.network is None:
        recipes = tuple(each for each in recipes if each.family != NETWORK.family)
    if families is not None:
        recipes = tuple(each for each in _ALL if each.family in families and (not each.log or logs))
    if not has_catboost() and families == ("catboost",):
        raise MissingExtraError("CatBoost", "boosting")
    if not has_catboost() and any(each.family == "catboost" for each in recipes):
        recipes = tuple(each for each in recipes if each.family != "catboost")
        words.append("no CatBoost among the members: it is not installed (pip install 'mixtree[boosting]')")
    return recipes, tuple(words)
