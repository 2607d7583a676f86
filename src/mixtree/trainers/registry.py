"""Model families: ``mlp``, ``linear``, ``lightgbm``, ``xgboost``, ``sklearn:NAME``, or your own object."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from numbers import Real
from typing import Any

import numpy as np

from mixtree.data.arrays import refuse_lossy
from mixtree.data.labelscale import LabelScale
from mixtree.data.sources import Sources, in_order
from mixtree.data.sparse import as_csr, as_dense, as_table, is_sparse
from mixtree.data.typed import Layout
from mixtree.errors import InputError, MixtreeError
from mixtree.trainer import TrainerBase
from mixtree.trainers.mlp import MlpTrainer
from mixtree.trainers.portfolio import AUTO, PortfolioReader
from mixtree.trainers.rows import balanced_weights

NAMES = ("mlp", "linear", "lightgbm", "xgboost", "sklearn:NAME")
TREES = 100
"""Of LightGBM and XGBoost, by their own default."""
SHARES = 60
"""Steps of a model that is fitted at once: two a node make 30 fits of a search; a fixed mixture is one."""
DEFAULT_LR = {"mlp": 0.1, "linear": 0.1, "lightgbm": 0.1, "xgboost": 0.3}
_LAZY = {
    "lightgbm": "boosting:LightGBMTrainer",
    "xgboost": "boosting:XGBoostTrainer",
    "partial_fit": "sklearn:PartialFitTrainer",
    "estimator": "estimator:EstimatorTrainer",
    "torch": "torch.trainer:TorchTrainer",
}
"""Trainers that are imported when they are first used: a fit loads the libraries of its own model alone."""


@dataclass(frozen=True, eq=False, slots=True)
class ModelOptions:
    """What a model family needs beside the data; None is the family's own default."""

    lr: float | None = None
    batch_size: int = 50
    class_weight: Any = None
    """``balanced``, or a factor per class: a sequence, or a mapping in which the others have 1."""
    init: Mapping[str, Any] | None = None
    """Arrays of a model to start from."""
    reset_optimizer: bool = False
    """Whether every node starts with a new optimizer."""
    transformers: Any = None
    """Of a pipeline, fitted before: a trainer without the training rows cannot fit them."""
    layout: Layout | None = None
    """Where a table's columns are among the features."""


def usual_budget(model: Any) -> tuple[int, str] | None:
    """How many steps a model takes that does not learn by passes over the rows, and why; None of others."""
    if isinstance(model, str):
        boosts = model in ("lightgbm", "xgboost")
        return (TREES, "trees, a step each (as many as the library makes by default)") if boosts else None
    return (
        (SHARES, "steps: shares of what a model reads, each node a fit on all rows")
        if _is_estimator(model)
        else None
    )


class Predictor:
    """A trained model that predicts further rows; it holds no training rows and is loaded when first used.

    Parameters
    ----------
    model : str or object
        What ``make_trainer`` made the trainer of.
    trainer : TrainerBase
        Saves the state; it is made again without training rows to load it.
    state : object
        The trained model.
    like : Sources
        Whose names, classes and kind of features the rows have.
    columns : sequence, optional
        The columns that a data frame of rows must have.
    scale : LabelScale, optional
        Of the labels that it was trained on; predictions are in their own units.
    """

    def __init__(
        self,
        model: Any,
        trainer: Any,
        state: Any,
        like: Sources,
        columns: Sequence[Any] | None = None,
        *,
        scale: LabelScale | None = None,
    ) -> None:
        self._scale = scale or LabelScale()
        self._model, self._arrays = model, {} if trainer.refits else trainer.save(state)
        self._names, self._classes, self._columns = like.names, like.classes, columns
        x = like.validation.x
        self._sparse, self._shape, self._dtype = is_sparse(x), tuple(x.shape[1:]), x.dtype
        self._options = ModelOptions(transformers=trainer.transformers)
        # A model that can only be fitted again is kept as it is, without the training rows.
        self._kept = (trainer.without_rows(), state) if trainer.refits else None
        self._loaded: tuple[Any, Any] | None = self._kept

    def __getstate__(self) -> dict[str, Any]:
        """Without what was loaded, and without a model that cannot be pickled (a function in a function)."""
        state = {**self.__dict__, "_loaded": self._kept}
        try:
            pickle.dumps(self._model)
        except (pickle.PicklingError, AttributeError, TypeError):
            state["_model"] = None
        return state

    @property
    def arrays(self) -> Mapping[str, Any]:
        """The model as its trainer saves it; none of a model that stays in memory."""
        return self._arrays

    def predict(self, x: Any) -> Any:
        """Class probabilities (n, classes), or numbers (n,), of rows of the same columns."""
        given = in_order(x, self._columns, "these rows", "those that the model was trained on")
        refuse_lossy(given, "these rows")
        try:
            rows = as_table(given)
            refuse_lossy(rows, "these rows")  # which were lists
            if rows.ndim < 2 or tuple(rows.shape[1:]) != self._shape:
                raise InputError(f"the model was trained on rows of shape {self._shape}; got {rows.shape}")
            rows = rows.astype(self._dtype)
        except (ValueError, TypeError, OverflowError) as error:
            if isinstance(error, MixtreeError):
                raise
            raise InputError(f"these rows are no table of numbers: {error}") from error
        if self._sparse != is_sparse(rows):  # to some models what is not stored is missing, not 0
            rows = as_csr(rows) if self._sparse else as_dense(rows)
        if self._model is None:
            raise InputError(
                "the model is made by a function that could not be pickled with the result: keep it at the "
                "top of a module"
            )
        if self._loaded is None:
            blank = Sources.blank(
                self._names, shape=self._shape, classes=self._classes, sparse=self._sparse, dtype=self._dtype
            )
            trainer = make_reader(self._model, blank, self._options)
            self._loaded = trainer, trainer.load(dict(self._arrays))
        trainer, state = self._loaded
        found = trainer.predict(state, rows)
        # In 64 bits: labels far from 0 have few of 32 to spare for their differences.
        return found if self._scale == LabelScale() else self._scale.back(np.asarray(found, dtype=np.float64))


def make_reader(model: Any, sources: Sources, options: ModelOptions) -> Any:
    """What loads a saved model of this family and predicts with it.

    Parameters
    ----------
    model
        As of ``make_trainer``; or ``auto``, a portfolio.
    sources
        Rows like those that it was trained on.
    options
        That the model was made with.
    """
    if isinstance(model, str) and model == AUTO:
        return PortfolioReader(sources.validation.x)
    return make_trainer(model, sources, options)


def make_trainer(model: Any, sources: Sources, options: ModelOptions) -> TrainerBase[Any]:
    """The trainer of a model.

    Parameters
    ----------
    model : str or object
        One of ``NAMES``, an object with ``partial_fit`` or a pipeline that ends in one, a LightGBM or XGBoost
        estimator, or a function that makes a torch module, of nothing or of the numbers of features and
        outputs.
    sources : Sources
        The rows to train on and the validation rows.
    options : ModelOptions
        What the user has chosen; an option that the family has no use for is an error.

    Returns
    -------
    TrainerBase

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> sources = synthetic(sources=2, rows=200, seed=1).sources
    >>> type(make_trainer("linear", sources, ModelOptions(lr=0.2))).__name__
    'MlpTrainer'
    """
    name = model if isinstance(model, str) else ""
    if name in ("mlp", "linear"):
        return MlpTrainer(
            sources,
            hidden=(128, 128, 128) if name == "mlp" else (),
            lr=DEFAULT_LR[name] if options.lr is None else options.lr,
            batch_size=options.batch_size,
            class_weight=_class_weight(options, sources),
            init=options.init,
            reset_optimizer=options.reset_optimizer,
        )
    if name in ("lightgbm", "xgboost"):
        # How many trees there are is the study's budget, a step each.
        _refuse(options, "boosting models", "init", "class_weight", "reset_optimizer")
        lr = DEFAULT_LR[name] if options.lr is None else options.lr
        return _trainer(name, sources, {}, learning_rate=lr)
    if name.startswith("sklearn:"):
        model = _sklearn_estimator(name.removeprefix("sklearn:"), sources.classes)
    elif model == AUTO and isinstance(model, str):
        raise InputError("model 'auto' is a portfolio, which only a fit makes (mixtree.fit, mixtree fit)")
    elif isinstance(model, str):
        raise InputError(f"unknown model {name!r}; choose one of {', '.join(NAMES)}")
    if hasattr(model, "partial_fit") or _ends_in_partial_fit(model):
        _refuse(options, "scikit-learn models", "init", "lr", "class_weight")
        return _trainer(
            "partial_fit",
            sources,
            model,
            batch_size=options.batch_size,
            transformers=options.transformers,
            reset_optimizer=options.reset_optimizer,
        )
    if _is_estimator(model):
        _refuse(options, "an estimator that is fitted at once", "init", "lr", "class_weight")
        return _trainer("estimator", sources, model, layout=options.layout)
    if not callable(model):
        raise InputError(
            f"cannot train {type(model).__name__}: give one of {', '.join(NAMES)}, an estimator with fit and "
            "predict, or a function that returns a torch module"
        )
    import torch

    lr = DEFAULT_LR["mlp"] if options.lr is None else options.lr
    return _trainer(
        "torch",
        sources,
        _sized(model, sources),
        optimizer=partial(torch.optim.SGD, lr=lr),
        batch_size=options.batch_size,
        class_weight=_class_weight(options, sources),
        init=options.init,
        reset_optimizer=options.reset_optimizer,
    )


def _trainer(family: str, *args: Any, **options: Any) -> TrainerBase[Any]:
    module, name = _LAZY[family].split(":")
    made: TrainerBase[Any] = getattr(import_module(f"mixtree.trainers.{module}"), name)(*args, **options)
    return made


def _ends_in_partial_fit(model: Any) -> bool:
    """Whether it is a pipeline whose last step learns in steps."""
    steps: Any = model.steps if hasattr(model, "steps") else []
    return bool(steps) and hasattr(steps[-1][1], "partial_fit")


def _is_estimator(model: Any) -> bool:
    """Whether it is fitted at once: an object, not a class, with ``fit`` and without ``partial_fit``."""
    one = hasattr(model, "fit") and not isinstance(model, type | str)
    return one and not hasattr(model, "partial_fit") and not _ends_in_partial_fit(model)


def _sklearn_estimator(name: str, classes: int) -> Any:
    from sklearn.utils import all_estimators

    kind = "classifier" if classes else "regressor"
    known = dict(all_estimators(type_filter=kind))
    if name not in known:
        raise InputError(
            f"sklearn:{name} is no {kind}; choose one of "
            f"{', '.join(f'sklearn:{each}' for each in sorted(known))}"
        )
    estimator = known[name]
    # Log-loss is the one loss of SGDClassifier that gives probabilities.
    return estimator(loss="log_loss") if name == "SGDClassifier" else estimator()


def _sized(factory: Any, sources: Sources) -> Any:
    """A function that makes a module: as it is, or told the numbers of features and outputs."""
    try:
        given = signature(factory).parameters.values()
    except (TypeError, ValueError):  # a callable that does not tell what it takes
        return factory
    places = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [each.name for each in given if each.kind in places and each.default is Parameter.empty]
    if not needed:
        return factory
    if len(needed) == 2:
        return partial(factory, sources.features, max(1, sources.classes))
    raise InputError(
        f"a function that makes a torch module takes nothing, or the numbers of features "
        f"({sources.features}) and outputs ({max(1, sources.classes)}); this one needs {', '.join(needed)}"
    )


def _class_weight(options: ModelOptions, sources: Sources) -> Any:
    """A factor per class, whichever way they were given."""
    given = options.class_weight
    if given is None:
        return None
    if not sources.classes:
        raise InputError("class_weight is for classes; this is a regression: leave it out")
    if isinstance(given, str):
        if given != "balanced":
            raise InputError(f"class_weight is 'balanced' or a factor per class; got {given!r}")
        return balanced_weights(sources).tolist()
    if not isinstance(given, Mapping):
        if np.ndim(given) != 1 or not all(isinstance(each, Real) for each in given):
            raise InputError(f"class_weight is 'balanced' or a factor per class; got {given!r}")
        return [float(each) for each in given]
    unknown = [label for label in given if label not in range(sources.classes)]
    if unknown:
        raise InputError(f"class_weight: {unknown[0]!r} is no class; they are 0 … {sources.classes - 1}")
    return [float(given.get(label, 1.0)) for label in range(sources.classes)]


def _refuse(options: ModelOptions, family: str, *names: str) -> None:
    for name in names:
        if getattr(options, name) not in (None, False):
            raise InputError(f"{name} does not work with {family}: set it on the model, or leave it out")
