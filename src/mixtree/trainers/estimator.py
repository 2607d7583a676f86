"""Any estimator that is fitted at once: on all rows, with weights α_k / n_k.

An estimator cannot continue a model. A state is therefore what its lineage has read: Σ steps × mixture over
all jobs since the root, the target's own rows being source K+1. Training fits a fresh estimator on every row,
those of source k with a weight ∝ share_k / n_k, scaled to mean 1. So ``pooled`` is the library's own fit, a
commit weighs more than the trunk before it, and target rows that come last weigh their share of the budget.
A step is a share of attention, not of work: every job costs one fit.

**Trees.** A number of trees that was given is kept; else that of a boosting estimator is chosen when its
first model is fitted, by cross-fitting on two halves of the training rows.

**Weights.** An estimator whose ``fit`` takes no ``sample_weight`` (in-context models such as TabPFN, nearest
neighbours) is fitted on as many rows as there are, drawn by the weights; on the rows themselves where all
weigh the same.

**Categories and gaps** of tables go as they are to the libraries that know them (LightGBM, CatBoost,
HistGradientBoosting; XGBoost gets the gaps); all others get the encoded features.

**States** hold the fitted estimator in memory and are never pickled. What is saved is what the fit can be
repeated from: the shares and the seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor

from mixtree._native.threads import one_thread
from mixtree.data.identity import identity
from mixtree.data.sources import Sources
from mixtree.data.typed import Layout
from mixtree.errors import InputError, TrainingError
from mixtree.metrics import row_losses
from mixtree.seeds import derive_seed
from mixtree.stats.selection import label_folds
from mixtree.trainer import Evaluation, Job, TrainerBase
from mixtree.trainers.evaluation import loss_evaluations
from mixtree.trainers.families import Table
from mixtree.trainers.rows import stacked

Array = NDArray[np.float64]

_TREES = (50, 100, 200, 400)
_TYPED = ("lightgbm", "catboost", "xgboost")
"""Libraries that know gaps by themselves."""
_ROUNDS = {"lightgbm": "n_estimators", "xgboost": "n_estimators", "catboost": "iterations"}
_HISTOGRAM = ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor")


@dataclass(frozen=True, eq=False, slots=True)
class RefitState:
    """What a model has read, and the model."""

    shares: Array
    """Steps by source, the target's own rows last."""
    seed: int
    fitted: Any = None
    """None before the first step."""


class EstimatorTrainer(TrainerBase[RefitState]):
    """Fits an estimator again on all rows, weighted by what its lineage has read.

    Parameters
    ----------
    sources
        The rows to train on and the validation rows.
    estimator
        Anything with ``fit`` and ``predict``, or ``predict_proba`` for classes.
    layout
        Where a table's columns are among the features; None of plain numbers.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from mixtree.data.synthetic import synthetic
    >>> sources = synthetic(sources=2, rows=200, seed=1).sources
    >>> trainer = EstimatorTrainer(sources, GaussianNB())
    >>> state = trainer.train([Job(trainer.init(0), np.array([0.5, 0.5]), steps=10, seed=1)])[0]
    >>> trainer.evaluate([state])[0].predictions.shape
    (200, 2)
    """

    refits = True

    def __init__(self, sources: Sources, estimator: Any, *, layout: Layout | None = None) -> None:
        kind = is_classifier(estimator) if sources.classes else is_regressor(estimator)
        name = type(estimator).__name__
        if not hasattr(estimator, "fit") or not hasattr(estimator, "predict"):
            raise InputError(f"{name} has no fit and predict: it cannot be trained")
        if not kind and (is_classifier(estimator) or is_regressor(estimator)):
            task = f"classification of {sources.classes} classes" if sources.classes else "regression"
            wanted = "classifier" if sources.classes else "regressor"
            raise InputError(f"the sources are a {task}, and {name} is no {wanted}")
        self.sources, self.template = sources, estimator
        self.library = type(estimator).__module__.split(".")[0]
        plain = Layout.plain(sources.features) if layout is None else layout
        typed = self.library in _TYPED or name in _HISTOGRAM
        self.layout = plain if typed else Layout.plain(sources.features)
        # The target's rows come last: source K+1, read only by mixtures that give it weight.
        parts = (*sources.rows, sources.validation)
        rows = stacked(parts)
        self.y, self.own = rows.y, rows.weights
        self.source = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        self.table: Table | None = Table.of(rows.x, self.layout)
        self.validation = Table.of(sources.validation.x, self.layout)
        self.weighted = _takes_weights(estimator)
        self.trees: int | None = None

    def init(self, seed: int) -> RefitState:
        """A model that has read nothing."""
        return RefitState(np.zeros(len(self.sources) + 1), seed)

    def train(self, jobs: Sequence[Job[RefitState]]) -> list[RefitState]:
        return [self._trained(job) for job in jobs]

    def _trained(self, job: Job[RefitState]) -> RefitState:
        shares = job.state.shares.copy()
        shares[: len(job.mixture)] += job.steps * np.asarray(job.mixture)
        return RefitState(shares, job.state.seed, self._fitted(shares, job.state.seed))

    def _weights(self, shares: Array) -> Array:
        """Of every row; their mean is 1 over the rows that weigh anything."""
        sizes = np.bincount(self.source, minlength=len(shares))
        weight = (shares / sizes)[self.source] * self.own
        read = weight > 0.0
        return np.asarray(weight / weight[read].mean())

    @one_thread()
    def _fitted(self, shares: Array, seed: int) -> Any:
        if self.table is None:
            raise InputError("the training rows are gone: this model can only predict")
        weight = self._weights(shares)
        rows = np.flatnonzero(weight)
        rounds = _ROUNDS.get(self.library, "max_iter" if self._histogram else None)
        if rounds is not None and self.trees is None and not _is_given(self.template, rounds):
            self.trees = self._chosen_trees(rounds, rows, weight, seed)
        return self._fit(rows, weight, seed, {rounds: self.trees} if rounds and self.trees else {})

    @property
    def _histogram(self) -> bool:
        return type(self.template).__name__ in _HISTOGRAM

    def _fit(self, rows: NDArray[Any], weight: Array, seed: int, params: Mapping[str, Any]) -> Any:
        assert self.table is not None
        estimator = clone(self.template).set_params(**params)
        if "random_state" in estimator.get_params() and estimator.get_params()["random_state"] is None:
            estimator.set_params(random_state=derive_seed(seed, (3,)) % 2**31)
        alike = bool(np.allclose(weight[rows], 1.0))
        more: dict[str, Any] = {}
        if not self.weighted and not alike:
            rng = np.random.default_rng(derive_seed(seed, (4,)))
            rows = np.sort(rng.choice(rows, len(rows), p=weight[rows] / weight[rows].sum()))
        elif self.weighted and not alike:
            more[self.weighted] = weight[rows]
        categories = list(self.layout.categories)
        if categories and self.library == "lightgbm":
            more["categorical_feature"] = categories
        elif categories and self.library == "catboost":
            more["cat_features"] = categories
        elif categories and self._histogram:
            estimator.set_params(categorical_features=categories)
        try:
            estimator.fit(self._features(self.table.take(rows)), self.y[rows], **more)
        except (TypeError, ValueError, ArithmeticError, RuntimeError) as error:
            raise TrainingError(f"{type(estimator).__name__}.fit failed: {error}") from error
        return estimator

    def _features(self, table: Table) -> Any:
        """Categories are whole numbers to CatBoost, and gaps to HistGradientBoosting where unknown."""
        if not table.categories:
            return table.typed
        typed = np.array(table.typed, dtype=np.float64)
        places = list(table.categories)
        if self.library == "catboost":
            mixed = typed.astype(object)
            mixed[:, places] = typed[:, places].astype(np.int64)
            return mixed
        if self._histogram:
            typed[:, places] = np.where(typed[:, places] < 0.0, np.nan, typed[:, places])
        return typed

    def _chosen_trees(self, rounds: str, rows: NDArray[Any], weight: Array, seed: int) -> int:
        halves = label_folds(self.y[rows], 2, np.random.default_rng(derive_seed(seed, (5,))))
        losses = np.zeros(len(_TREES))
        for half in (0, 1):
            inside, out = rows[halves != half], rows[halves == half]
            assert self.table is not None
            for place, trees in enumerate(_TREES):
                fitted = self._fit(inside, weight, seed, {rounds: trees})
                found = self._predicted(fitted, self.table.take(out))
                losses[place] += weight[out] @ row_losses(self.y[out], found, self.sources.classes)
        return _TREES[int(losses.argmin())]

    def _predicted(self, fitted: Any, table: Table) -> Array:
        classes, x = self.sources.classes, self._features(table)
        if not classes:
            return np.asarray(fitted.predict(x), dtype=np.float64).ravel()
        found = np.zeros((len(table), classes))
        known = np.asarray(fitted.classes_, dtype=np.intp)
        if hasattr(fitted, "predict_proba"):
            found[:, known] = fitted.predict_proba(x)
        elif hasattr(fitted, "decision_function"):  # right in their ranking, not calibrated
            scores = np.asarray(fitted.decision_function(x), dtype=np.float64)
            scores = np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores
            raised = np.exp(scores - scores.max(axis=1, keepdims=True))
            found[:, known] = raised / raised.sum(axis=1, keepdims=True)
        else:
            found = np.eye(classes)[np.asarray(fitted.predict(x), dtype=np.intp)]
        return found

    def predict(self, state: RefitState, x: Any) -> Array:
        """Class probabilities (n, classes), or (n,) for a regression."""
        return self._by(state, Table.of(x, self.layout))

    @one_thread()
    def _by(self, state: RefitState, table: Table) -> Array:
        classes = self.sources.classes
        if state.fitted is None:
            return np.full((len(table), classes), 1.0 / classes) if classes else np.zeros(len(table))
        return self._predicted(state.fitted, table)

    def evaluate(self, states: Sequence[RefitState]) -> list[Evaluation]:
        found = np.stack([self._by(state, self.validation) for state in states])
        return loss_evaluations(self.sources.validation.y, found, classes=self.sources.classes)

    def save(self, state: RefitState) -> dict[str, NDArray[Any]]:
        """What the fit can be repeated from."""
        return {"shares": state.shares, "seed": np.array([state.seed], dtype=np.uint64)}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> RefitState:
        """The state that was saved, fitted again."""
        shares, seed = np.array(arrays["shares"], dtype=np.float64), int(arrays["seed"][0])
        return RefitState(shares, seed, self._fitted(shares, seed) if shares.any() else None)

    def without_rows(self) -> EstimatorTrainer:
        """The same, which only predicts."""
        other = copy(self)
        other.table, other.y, other.own, other.source = None, self.y[:0], self.own[:0], self.source[:0]
        blank = Sources.blank(
            self.sources.names, shape=(self.sources.features,), classes=self.sources.classes
        )
        other.sources, other.validation = blank, Table.of(blank.validation.x, self.layout)
        return other

    def describe(self) -> dict[str, Any]:
        """The settings that decide the numbers."""
        return {"trainer": "estimator", "estimator": identity(self.template)}


def _takes_weights(estimator: Any) -> str:
    """The argument of ``fit`` for row weights, of a pipeline that of its last step; "" if there is none."""
    final = estimator.steps[-1] if hasattr(estimator, "steps") else None
    taken = signature((estimator if final is None else final[1]).fit).parameters
    if "sample_weight" not in taken:
        return ""
    return "sample_weight" if final is None else f"{final[0]}__sample_weight"


def _is_given(estimator: Any, name: str) -> bool:
    """Whether a user has set a parameter."""
    mine, usual = estimator.get_params().get(name), type(estimator)().get_params().get(name)
    return mine is not None and mine != usual
