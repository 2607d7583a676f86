"""Gradient boosting by continuation: LightGBM and XGBoost.

**A step** is one boosting round (one tree, or one per class) on a fresh sample of the mixture,
``sample_size`` rows drawn row by row. A row that is drawn twice enters once with twice the weight.
``lr_scale`` scales the learning rate of the round's trees.

**Cost.** Every round first needs the predictions of the model so far on its fresh rows. On one core, with
2,000 rows of 100 columns a round: LightGBM 15 ms and 0.15 ms for every tree that is there; XGBoost 48 ms and
next to nothing per tree. LightGBM cuts the features into bins once, by the rows of the training sources;
XGBoost does so in every round.

**The first round** starts from the sample's average, as both libraries do, unless a class is missing in the
sample: then it starts from equal probabilities, since a class at log(0) could not be learned any more.
(LightGBM grows no trees for a class on a sample that lacks it, or that has nothing else.)
A model that has taken no step predicts every class alike, or 0.

Models are deterministic (one thread, seeds from the job), and a state is the library's own model file:
``trainer.booster(state)`` is an ordinary Booster.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.identity import identity
from mixtree.data.sampling import Cursor, Sampler
from mixtree.data.sources import Rows, Sources
from mixtree.errors import InputError, MissingExtraError, TrainingError
from mixtree.trainer import Evaluation, Job, TrainerBase
from mixtree.trainers.evaluation import loss_evaluations
from mixtree.trainers.lightgbm_text import check_lightgbm
from mixtree.trainers.rows import (
    as_bytes,
    draw,
    from_bytes,
    load_cursor,
    save_cursor,
    stacked,
    stacked_features,
)

SAMPLE = 2000
"""Rows of a round's sample, unless the sources have fewer or the user says otherwise."""

ROUNDS = (
    "n_estimators", "num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round",
    "num_rounds", "nrounds", "num_boost_round", "max_iter",
)  # fmt: skip
"""Names by which the libraries know the number of trees: of a study, its steps."""

_LEARNING_RATES = {"learning_rate", "eta", "shrinkage_rate"}

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class BoostingState:
    """The library's own model file, empty before the first round, and how far the model has read."""

    model: bytes
    cursor: Cursor


class _BoostingTrainer(TrainerBase[BoostingState]):
    """What the two libraries share: sampling, evaluation, states."""

    library: str
    error: type[Exception]
    booster_names: tuple[str, ...]
    """Names of the parameter that chooses what is boosted."""
    trees: str
    """Its only value whose models can be continued on other rows."""

    def __init__(
        self,
        sources: Sources,
        params: Mapping[str, Any] | None = None,
        *,
        learning_rate: float = 0.1,
        sample_size: int | None = None,
        replacement: bool = True,
    ) -> None:
        try:
            self.package: Any = import_module(self.library)
        except ImportError as error:
            raise MissingExtraError(type(self).__name__, "boosting") from error
        total = int(sources.sizes.sum())
        self.sources, self.lr = sources, learning_rate
        self.sample_size = min(total, SAMPLE) if sample_size is None else sample_size
        self.params = dict(params or {})
        if not (np.isfinite(self.lr) and self.lr > 0):
            raise InputError(f"the learning rate must be a finite number above 0; got {self.lr}")
        if self.sample_size < 1:
            raise InputError(f"the sample of a round needs at least 1 row; got {self.sample_size}")
        if twice := _LEARNING_RATES & self.params.keys():
            raise InputError(
                f"give the learning rate as learning_rate=…, not as the parameter {twice.pop()!r}"
            )
        if self.sources.classes and "objective" in self.params:
            raise InputError("the objective of a classification follows from its classes: leave it out")
        if given := [name for name in ROUNDS if name in self.params]:
            raise InputError(
                f"a step is one round, and the budget says how many there are: leave {given[0]} out"
            )
        for name in self.booster_names:
            if self.params.get(name, self.trees) != self.trees:
                raise InputError(
                    f"{name}={self.params[name]!r} cannot be continued on other rows: use {self.trees!r}"
                )
        # The target's rows come last: source K+1, drawn only by mixtures that give it weight.
        self.rows = stacked((*sources.rows, sources.validation))
        self.sampler = Sampler([*sources.sizes, len(sources.validation)], replacement=replacement)

    def __reduce__(self) -> tuple[Any, ...]:
        """Made anew from its arguments: the library and its table of bins cannot be pickled."""
        how = partial(
            type(self),
            learning_rate=self.lr,
            sample_size=self.sample_size,
            replacement=self.sampler.replacement,
        )
        return how, (self.sources, self.params)

    def init(self, seed: int) -> BoostingState:
        """A model without trees."""
        return BoostingState(b"", self.sampler.start(seed))

    def train(self, jobs: Sequence[Job[BoostingState]]) -> list[BoostingState]:
        trained = []
        for job in jobs:
            rows, cursor = draw(self.sampler, job, job.state.cursor, self.sample_size)
            # A seed per round, else each would subsample the same columns again.
            seed, before = (job.seed, 0) if job.part is None else (job.part.seed, job.part.before)
            seeds = np.random.SeedSequence(seed).generate_state(before + job.steps)[before:] % 2**31
            booster = self.booster(job.state) if job.state.model else None
            try:
                for sample, own in zip(rows, seeds, strict=True):
                    index, counts = np.unique(sample, return_counts=True)
                    weight = counts if self.rows.weight is None else counts * self.rows.weight[index]
                    varying = {"learning_rate": self.lr * job.lr_scale, "seed": int(own)}
                    booster = self._boost(booster, index, weight.astype(np.float64), varying)
            except self.error as error:
                raise TrainingError(f"{self.library} failed: {error}") from error
            trained.append(BoostingState(self._model(booster), cursor))
        return trained

    def _all_classes(self, index: NDArray[np.int64]) -> bool:
        classes = self.sources.classes
        return not classes or len(np.unique(self.rows.y[index])) == classes

    @abstractmethod
    def _check_whole(self, model: bytes) -> None:
        """ValueError for a model file with which the library itself would not be safe."""

    @abstractmethod
    def booster(self, state: BoostingState) -> Any:
        """The library's Booster of a state that has trees."""

    @abstractmethod
    def _boost(self, booster: Any, index: NDArray[np.int64], weight: Array, varying: dict[str, Any]) -> Any:
        """The booster after one more round on the weighted rows at ``index``."""

    @abstractmethod
    def _model(self, booster: Any) -> bytes:
        """The booster's model file."""

    @abstractmethod
    def _raw_predictions(self, booster: Any, x: Any) -> Array:
        """(n,) or (n, classes)."""

    def predict(self, state: BoostingState, x: Any) -> Array:
        """Class probabilities (n, classes), or (n,) for a regression."""
        classes, count = self.sources.classes, x.shape[0]
        if not state.model:
            return np.full((count, classes), 1.0 / classes) if classes else np.zeros(count)
        table = stacked_features([x])
        predictions = np.asarray(self._raw_predictions(self.booster(state), table), dtype=np.float64)
        return np.stack([1.0 - predictions, predictions], axis=1) if classes == 2 else predictions

    def evaluate(self, states: Sequence[BoostingState]) -> list[Evaluation]:
        validation = self.sources.validation
        predictions = np.stack([self.predict(state, validation.x) for state in states])
        return loss_evaluations(validation.y, predictions, classes=self.sources.classes)

    def epochs(self, state: BoostingState) -> Array:
        """How often each source's rows were read."""
        return self.sampler.epochs(state.cursor)

    def save(self, state: BoostingState) -> dict[str, NDArray[Any]]:
        return {**save_cursor(state.cursor), "model": from_bytes(state.model)}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> BoostingState:
        """The state that was saved; a model file that is not whole is refused."""
        state = BoostingState(as_bytes(arrays["model"]), load_cursor(arrays))
        if state.model:
            try:
                self._check_whole(state.model)
                self.booster(state)
            except (ValueError, self.error) as error:
                said = str(error).partition("\n")[0]
                raise InputError(f"the {self.library} model is damaged or cut short ({said})") from error
        return state

    def describe(self) -> dict[str, Any]:
        """The settings that decide the numbers."""
        return {
            "trainer": self.library,
            "params": {
                name: identity(value) if callable(value) else value for name, value in self.params.items()
            },
            "learning_rate": self.lr,
            "sample_size": self.sample_size,
            "replacement": self.sampler.replacement,
        }


class LightGBMTrainer(_BoostingTrainer):
    """Boosts LightGBM trees on samples of the mixture.

    Parameters
    ----------
    sources : Sources
        The rows to train on and the validation rows.
    params : mapping, optional
        LightGBM's own parameters, without the number of rounds and the learning rate.
    learning_rate : float
        Of every round's trees.
    sample_size : int, optional
        Rows drawn for a round; by default all that there are, but at most ``SAMPLE``.
    replacement : bool
        Draw rows independently; False reads every source in shuffled passes.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> sources = synthetic(sources=2, rows=200, seed=1).sources
    >>> trainer = LightGBMTrainer(sources, {"num_leaves": 7})
    >>> state = trainer.train([Job(trainer.init(0), np.array([0.5, 0.5]), steps=3, seed=1)])[0]
    >>> trainer.booster(state).num_trees()
    3
    """

    library = "lightgbm"
    booster_names = ("boosting", "boosting_type", "boost")
    trees = "gbdt"

    def __init__(self, sources: Sources, params: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(sources, params, **options)
        self.error = self.package.basic.LightGBMError
        classes = sources.classes
        objective = {0: "regression", 2: "binary"}.get(classes, "multiclass")
        self._fixed = {
            "objective": objective,
            **self.params,
            **({"num_class": classes} if objective == "multiclass" else {}),
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
            # Which columns can be split is decided on each sample, not once on all rows.
            "feature_pre_filter": False,
        }
        dataset = self.package.Dataset
        # Bins from the training sources alone: the target's rows must not shape what is learned elsewhere.
        bins = dataset(stacked_features([part.x for part in sources.rows]), params=self._fixed)
        self._data = dataset(
            self.rows.x, self.rows.y, reference=bins, params=self._fixed, free_raw_data=False
        ).construct()

    def booster(self, state: BoostingState) -> Any:
        return self.package.Booster(model_str=state.model.decode())

    def _check_whole(self, model: bytes) -> None:
        check_lightgbm(
            model.decode(),
            features=self.sources.features,
            outputs=self._fixed.get("num_class", 1),
            objective=self._fixed["objective"] if self.sources.classes else None,
        )

    def _boost(self, booster: Any, index: NDArray[np.int64], weight: Array, varying: dict[str, Any]) -> Any:
        sample = self._data.subset(index).construct()
        sample.set_weight(weight)
        if booster is None and not self._all_classes(index):
            sample.set_init_score(np.zeros(len(index) * self._fixed.get("num_class", 1)))
        params = {**self._fixed, **varying}
        # The training booster is kept: making one that cannot train costs a trip through the model's text.
        return self.package.train(params, sample, 1, init_model=booster, keep_training_booster=True)

    def _model(self, booster: Any) -> bytes:
        return bytes(booster.model_to_string(), encoding="utf-8")

    def _raw_predictions(self, booster: Any, x: Any) -> Array:
        predictions: Array = booster.predict(x, num_threads=1)
        return predictions


class XGBoostTrainer(_BoostingTrainer):
    """Boosts XGBoost trees on samples of the mixture.

    Parameters
    ----------
    sources : Sources
        The rows to train on and the validation rows.
    params : mapping, optional
        XGBoost's own parameters, without the number of rounds and the learning rate.
    learning_rate : float
        Of every round's trees.
    sample_size : int, optional
        Rows drawn for a round; by default all that there are, but at most ``SAMPLE``.
    replacement : bool
        Draw rows independently; False reads every source in shuffled passes.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> sources = synthetic(sources=2, rows=200, seed=1).sources
    >>> trainer = XGBoostTrainer(sources, {"max_depth": 3})
    >>> state = trainer.train([Job(trainer.init(0), np.array([0.5, 0.5]), steps=3, seed=1)])[0]
    >>> trainer.booster(state).num_boosted_rounds()
    3
    """

    library = "xgboost"
    booster_names = ("booster",)
    trees = "gbtree"

    def __init__(self, sources: Sources, params: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(sources, params, **options)
        self.error = self.package.core.XGBoostError
        classes = sources.classes
        objective = {0: "reg:squarederror", 2: "binary:logistic"}.get(classes, "multi:softprob")
        self._fixed = {
            "objective": objective,
            **self.params,
            **({"num_class": classes} if classes > 2 else {}),
            "nthread": 1,
            "verbosity": 0,
        }

    def _check_whole(self, model: bytes) -> None:
        """The library's own reading tells damage."""

    def booster(self, state: BoostingState) -> Any:
        return self.package.Booster(self._fixed, model_file=bytearray(state.model))

    def _boost(self, booster: Any, index: NDArray[np.int64], weight: Array, varying: dict[str, Any]) -> Any:
        rows: Rows = self.rows.take(index)
        sample = self.package.DMatrix(rows.x, rows.y, weight=weight, nthread=1)
        if booster is None:
            start = {} if self._all_classes(index) else {"base_score": 0.5}
            return self.package.train({**self._fixed, **start, **varying}, sample, 1)
        booster.set_param(varying)
        booster.update(sample, booster.num_boosted_rounds())
        return booster

    def _model(self, booster: Any) -> bytes:
        return bytes(booster.save_raw("ubj"))

    def _raw_predictions(self, booster: Any, x: Any) -> Array:
        predictions: Array = booster.predict(self.package.DMatrix(x, nthread=1))
        return predictions
