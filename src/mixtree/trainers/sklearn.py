"""Any scikit-learn estimator with ``partial_fit``, alone or at the end of a pipeline of transformers.

**A step** is one ``partial_fit`` on one batch of the mixture. ``SGDClassifier``, ``SGDRegressor`` and
``Perceptron`` learn row by row inside it, so for them a batch of 50 is 50 small updates; several of their
batches go into one call, which spares them most of scikit-learn's cost per call and is the same sequence of
updates. ``MLPClassifier`` and ``MLPRegressor`` take one gradient step per batch. The transformers of a
pipeline are fitted once, on the rows of the training sources only.

**The step size** that ``lr_scale`` scales is ``eta0`` (except for ``learning_rate="optimal"``, which has no
base step size) or an MLP's ``learning_rate_init``. Other estimators have none: they train the same whatever
the scale, and ``describe()`` says ``"step_size": None``.

**What is minimised.** Regressors: the mean squared error. Classifiers that give probabilities: the
cross-entropy. Classifiers with scores only (a linear SVM, a perceptron): the hinge loss of their margins;
their predictions are the softmax of the scores, right in their ranking and their argmax but *not*
calibrated, so read AUROC or accuracy from them and not log-loss. Classifiers with labels only: the error
rate. A model that has taken no step predicts every class alike, or 0.

**Row weights** go to ``partial_fit``. scikit-learn's MLPs divide a batch's loss by the sum of its weights,
not by the number of its rows.

**Randomness.** The first call draws from the stream of ``init``'s seed (an MLP draws its initial weights
there: all models of one study start alike), every other one from the job's seed.

**States** are arrays and JSON at all times, never pickles: parameters come from the estimator that the
trainer was given, fitted attributes from the state.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.linear_model import Perceptron, SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline

from mixtree._native.threads import one_thread
from mixtree.data.identity import identity
from mixtree.data.sampling import Cursor, Sampler
from mixtree.data.sources import Rows, Sources
from mixtree.data.sparse import as_table, is_sparse
from mixtree.errors import DataError, InputError, TrainingError
from mixtree.metrics import mean_and_error
from mixtree.trainer import Evaluation, Job, TrainerBase
from mixtree.trainers.evaluation import loss_evaluations
from mixtree.trainers.fitted import frozen, restore, to_arrays
from mixtree.trainers.rows import as_bytes, draw, from_bytes, load_cursor, save_cursor, stacked

_ROW_BY_ROW = (SGDClassifier, SGDRegressor, Perceptron)
_ROWS_PER_CALL = 4096  # of those that learn row by row: bounds the memory of a long job
_DIVERGED = ("overflow", "non-finite")  # in the words of scikit-learn's ValueErrors

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class PartialFitState:
    """The fitted attributes of an estimator, as JSON and the arrays it names, and how far it has read."""

    attributes: str
    arrays: Mapping[str, NDArray[Any]]
    cursor: Cursor
    diverged: bool = False

    @property
    def fresh(self) -> bool:
        """No step was taken yet."""
        return self.attributes == _FRESH


_FRESH = "{}"


class PartialFitTrainer(TrainerBase[PartialFitState]):
    """Trains an estimator by ``partial_fit`` on batches of the mixture.

    Parameters
    ----------
    sources : Sources
        The rows to train on and the validation rows.
    estimator : scikit-learn estimator
        One with ``partial_fit``, or a pipeline that ends in one.
    batch_size : int
        Rows per step.
    replacement : bool
        Draw rows independently; False reads every source in shuffled passes.
    reset_optimizer : bool
        Forget momentum, Adam's moments and the step counter at the start of every node.
    transformers : Pipeline, optional
        The pipeline's transformers where they were fitted before: they are not fitted again.

    Examples
    --------
    >>> from sklearn.linear_model import SGDClassifier
    >>> from mixtree.data.synthetic import synthetic
    >>> sources = synthetic(sources=2, rows=200, seed=1).sources
    >>> trainer = PartialFitTrainer(sources, SGDClassifier(loss="log_loss"), batch_size=20)
    >>> state = trainer.train([Job(trainer.init(0), np.array([0.5, 0.5]), steps=10, seed=1)])[0]
    >>> trainer.evaluate([state])[0].predictions.shape
    (200, 2)
    >>> type(trainer.fitted(state)).__name__
    'SGDClassifier'
    """

    def __init__(
        self,
        sources: Sources,
        estimator: Any,
        *,
        batch_size: int = 50,
        replacement: bool = True,
        reset_optimizer: bool = False,
        transformers: Any = None,
    ) -> None:
        if batch_size < 1:
            raise InputError(f"the batch size must be at least 1; got {batch_size}")
        final, mine, self._final_name = estimator, None, ""
        if isinstance(estimator, Pipeline):
            mine, final = (estimator[:-1] if len(estimator) > 1 else None), estimator[-1]
            self._final_name = estimator.steps[-1][0]
        if not hasattr(final, "partial_fit"):
            raise InputError(
                f"{_name(final)} has no partial_fit and cannot continue a model; use one that has, such as "
                "SGDClassifier, SGDRegressor, MLPClassifier (solver 'adam' or 'sgd') or GaussianNB"
            )
        self.sources, self.batch_size, self.reset_optimizer = sources, batch_size, reset_optimizer
        self.template = clone(final)
        if isinstance(final, MLPClassifier | MLPRegressor) and final.batch_size == "auto":
            # "auto" cuts what it is given into batches of 200: a step of ours would be several of its own.
            self.template.set_params(batch_size=batch_size)
        self._gives = "labels"
        if not sources.classes:
            self._gives = "numbers"
        elif hasattr(final, "predict_proba"):
            self._gives = "probabilities"
        elif hasattr(final, "decision_function"):
            self._gives = "scores"
        self.step_size = _step_size(final)
        if self.step_size is not None:
            self.lr = float(getattr(final, self.step_size))
        if not (is_classifier(final) if sources.classes else is_regressor(final)):
            task = f"classification of {sources.classes} classes" if sources.classes else "regression"
            kind = "classifier" if sources.classes else "regressor"
            raise InputError(f"the sources are a {task}, and {_name(final)} is no {kind}")
        self._arguments = set(inspect.signature(final.partial_fit).parameters)
        if transformers is None and mine is not None:
            training = stacked(sources.rows)
            try:
                transformers = clone(mine).fit(training.x, training.y)
            except (TypeError, ValueError) as error:
                raise InputError(
                    f"the pipeline's transformers cannot be fitted on the sources' rows: {error}"
                ) from error
        self.transformers = transformers
        self.validation_x = self._transformed(sources.validation.x)
        # The target's rows come last: source K+1, drawn only by mixtures that give it weight.
        parts = (*sources.rows, sources.validation)
        self.rows = stacked([Rows(self._transformed(part.x), part.y, part.weight) for part in parts])
        values = self.rows.x.data if is_sparse(self.rows.x) else self.rows.x
        if not np.issubdtype(values.dtype, np.number) or not np.isfinite(values).all():
            raise DataError("the pipeline's transformers give features that are not finite numbers")
        if self.rows.weight is not None and "sample_weight" not in self._arguments:
            raise DataError(f"the rows have weights, and {_name(final)}.partial_fit takes none")
        self.sampler = Sampler([*sources.sizes, len(sources.validation)], replacement=replacement)

    def init(self, seed: int) -> PartialFitState:
        """A model that has taken no step."""
        return PartialFitState(_FRESH, {}, self.sampler.start(seed))

    def train(self, jobs: Sequence[Job[PartialFitState]]) -> list[PartialFitState]:
        # Divergence is an outcome, not a warning.
        with one_thread(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            return [job.state if job.state.diverged else self._trained(job) for job in jobs]

    def _trained(self, job: Job[PartialFitState]) -> PartialFitState:
        rows, cursor = draw(self.sampler, job, job.state.cursor, self.batch_size)
        estimator, part, place = self._estimator(job.state), job.part, job.state.cursor.random
        if self.reset_optimizer and (part is None or not part.before) and not job.state.fresh:
            # Momentum, Adam's moments and the count of steps are forgotten.
            if isinstance(estimator, MLPClassifier | MLPRegressor):
                del estimator._optimizer
                estimator.t_, estimator._no_improvement_count, estimator.best_loss_ = 0, 0, np.inf
            elif isinstance(estimator, _ROW_BY_ROW):
                estimator.t_ = 1.0
        random = _stream(job.seed if part is None else part.seed)
        if part is not None and part.before and place is not None:  # where the stage's last segment stopped
            random.set_state(("MT19937", place[:-1].astype(np.uint32), int(place[-1]), 0, 0.0))
        try:
            with _scaled(estimator, self.step_size, job.lr_scale):
                self._fit(estimator, rows, random, job.state)
        except (TypeError, ValueError) as error:
            if not any(word in str(error) for word in _DIVERGED):
                raise TrainingError(f"{_name(estimator)}.partial_fit failed: {error}") from error
            return PartialFitState(_FRESH, {}, cursor, diverged=True)
        if part is not None and part.before + job.steps < part.total:
            # The place in a stream: its 624 words, and how many of them are used.
            _, words, used, _, _ = random.get_state()
            cursor = replace(cursor, random=np.append(words, np.uint32(used)))
        return PartialFitState(*to_arrays(estimator), cursor)

    def _fit(
        self, estimator: Any, rows: NDArray[np.int64], random: np.random.RandomState, state: PartialFitState
    ) -> None:
        """One partial_fit per step's batch, or per several batches where that is the same."""
        per_call = 1
        if isinstance(estimator, _ROW_BY_ROW):
            per_call = max(1, _ROWS_PER_CALL // self.batch_size)
        # The cursor's order is the seed that the model was made with.
        _seed(estimator, _stream(state.cursor.order) if state.fresh else random)
        for start in range(0, len(rows), per_call):
            batch = self.rows.take(rows[start : start + per_call].ravel())
            options: dict[str, Any] = {}
            if "classes" in self._arguments and not hasattr(estimator, "classes_"):
                options["classes"] = np.arange(self.sources.classes)  # costs a check in every call it gets
            if batch.weight is not None:
                options["sample_weight"] = batch.weight
            if batch.weight is None or batch.weight.any():  # scikit-learn rejects a batch that weighs nothing
                estimator.partial_fit(batch.x, batch.y, **options)
            if state.fresh and start == 0:
                _seed(estimator, random)

    def fitted(self, state: PartialFitState) -> Any:
        """The scikit-learn estimator of this state, or the pipeline if the trainer was given one."""
        estimator = self._estimator(state)
        if self.transformers is None:
            return estimator
        return Pipeline([*self.transformers.steps, (self._final_name, estimator)])

    def _estimator(self, state: PartialFitState) -> Any:
        estimator = clone(self.template)
        restore(estimator, state.attributes, state.arrays)
        return estimator

    def predict(self, state: PartialFitState, x: Any) -> Array:
        """Class probabilities (n, classes), or (n,) for a regression."""
        return self._predict(state, self._transformed(x))[0]

    def _predict(self, state: PartialFitState, x: Any) -> tuple[Array, Array | None]:
        """Predictions, and each class's score where the estimator gives scores but no probabilities."""
        classes, count = self.sources.classes, x.shape[0]
        shape = (count, classes) if classes else (count,)
        if state.diverged:
            return np.full(shape, np.nan), None
        if state.fresh:
            return np.full(shape, 1.0 / classes if classes else 0.0), None
        estimator = self._estimator(state)
        with one_thread(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if self._gives == "numbers":
                return np.asarray(estimator.predict(x), dtype=np.float64), None
            if self._gives == "probabilities":
                return np.asarray(estimator.predict_proba(x), dtype=np.float64), None
            if self._gives == "labels":
                return np.eye(classes)[estimator.predict(x)], None
            scores = np.asarray(estimator.decision_function(x), dtype=np.float64)
            if scores.ndim == 1:
                scores = np.stack([np.zeros_like(scores), scores], axis=1)
            shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
            return shifted / shifted.sum(axis=1, keepdims=True), scores

    def evaluate(self, states: Sequence[PartialFitState]) -> list[Evaluation]:
        y, classes = self.sources.validation.y, self.sources.classes
        evaluations = []
        for state in states:
            predictions, scores = self._predict(state, self.validation_x)
            if state.diverged:
                evaluations.append(Evaluation(float("inf"), predictions=predictions))
                continue
            if self._gives in ("numbers", "probabilities"):
                evaluations += loss_evaluations(y, predictions[None], classes=classes)
                continue
            if self._gives == "scores":
                losses = _hinge(y, np.zeros_like(predictions) if scores is None else scores)
            else:
                losses = (predictions.argmax(axis=1) != y).astype(np.float64)
            mean, error = mean_and_error(losses)
            evaluations.append(Evaluation(float(mean), float(error), predictions))
        return evaluations

    def epochs(self, state: PartialFitState) -> Array:
        """How often each source's rows were read."""
        return self.sampler.epochs(state.cursor)

    def save(self, state: PartialFitState) -> dict[str, NDArray[Any]]:
        return {
            **save_cursor(state.cursor),
            "attributes": from_bytes(state.attributes.encode()),
            "diverged": np.array([state.diverged]),
            **{f"array.{name}": array for name, array in state.arrays.items()},
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> PartialFitState:
        own = {
            name.removeprefix("array."): frozen(array)
            for name, array in arrays.items()
            if name.startswith("array.")
        }
        attributes = as_bytes(arrays["attributes"]).decode()
        return PartialFitState(attributes, own, load_cursor(arrays), bool(arrays["diverged"][0]))

    def describe(self) -> dict[str, Any]:
        """The settings that decide the numbers; ``step_size`` names the parameter that lr_scale scales."""
        steps = [] if self.transformers is None else [step for _, step in self.transformers.steps]
        return {
            "trainer": "sklearn",
            "estimator": _described(self.template),
            "transformers": [_described(step) for step in steps],
            "batch_size": self.batch_size,
            "replacement": self.sampler.replacement,
            "reset_optimizer": self.reset_optimizer,
            "step_size": self.step_size,
        }

    def _transformed(self, x: Any) -> Any:
        if self.transformers is not None:
            x = self.transformers.transform(x)
        return as_table(x)


def _name(estimator: Any) -> str:
    return type(estimator).__name__


def _stream(seed: int) -> np.random.RandomState:
    return np.random.RandomState(np.random.MT19937(seed))


def _seed(estimator: Any, stream: np.random.RandomState) -> None:
    names = [name for name in estimator.get_params() if name.split("__")[-1] == "random_state"]
    estimator.set_params(**dict.fromkeys(names, stream))


def _step_size(estimator: Any) -> str | None:
    parameters = estimator.get_params(deep=False)
    if "eta0" in parameters and parameters.get("learning_rate") != "optimal":
        return "eta0"
    return "learning_rate_init" if "learning_rate_init" in parameters else None


@contextmanager
def _scaled(estimator: Any, name: str | None, scale: float) -> Iterator[None]:
    """Scales the step size, and an MLP's optimizer's, which is part of the state and gets its own back."""
    if name is None or scale == 1.0:
        yield
        return
    base = float(getattr(estimator, name))
    estimator.set_params(**{name: base * scale})
    before = base
    if optimizer := getattr(estimator, "_optimizer", None):
        before = float(optimizer.learning_rate)
        optimizer.learning_rate_init, optimizer.learning_rate = base * scale, before * scale
    yield
    if optimizer := getattr(estimator, "_optimizer", None):
        optimizer.learning_rate_init = base
        # A schedule may have moved it; where it has not, no rounding either.
        moved = optimizer.learning_rate != before * scale
        optimizer.learning_rate = optimizer.learning_rate / scale if moved else before


def _hinge(y: NDArray[Any], scores: Array) -> Array:
    """max(0, 1 − margin) of each row; the margin is the lead of the right class over the best other one."""
    rows = np.arange(len(y))
    others = scores.copy()
    others[rows, y] = -np.inf
    losses: Array = np.maximum(0.0, 1.0 - (scores[rows, y] - others.max(axis=1)))
    return losses


def _described(estimator: Any) -> Any:
    if not hasattr(estimator, "get_params"):
        return _plain(estimator)  # a pipeline's "passthrough"
    parameters = {name: value for name, value in estimator.get_params().items() if "random_state" not in name}
    return {"class": _name(estimator), "parameters": {name: _plain(v) for name, v in parameters.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return identity(value) if callable(value) else _name(value)
