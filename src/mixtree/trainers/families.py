"""The model families of a portfolio: fitted on weighted rows at once, saved as plain arrays.

Each takes the form of the rows that suits it: LightGBM and CatBoost the typed columns with their gaps and
categories, the others the encoded features. None of them can be changed once it is fitted.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixtree._native.threads import one_thread
from mixtree.data.sources import Sources
from mixtree.data.sparse import is_sparse
from mixtree.data.typed import Layout
from mixtree.errors import MissingExtraError
from mixtree.trainers.forest import Forest
from mixtree.trainers.lightgbm_text import check_lightgbm
from mixtree.trainers.mlp import MlpTrainer
from mixtree.trainers.rows import as_bytes, from_bytes

Array = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]

ABSOLUTE = "absolute"
"""The loss of a regression that is scored by absolute errors; else errors are squared."""
MANY_VALUES = 16
"""A category of more has too many indicators for trees that draw their splits."""
_SHRUNK = 10.0  # rows of the overall mean that a value's own mean is shrunk by
_PENALTIES = (0.003, 0.03, 0.3, 3.0)
_RATE = 0.08  # of LightGBM
_ROUNDS, _CAT_RATE = 200, 0.12  # of CatBoost
_OF_THE_FIT = ("train_finish_time", "model_guid")  # else the same fit would not give the same file
_FOREST = 64  # trees of ExtraTrees
_ITERATIONS = 12  # of reweighting, after which the median regression has settled
_NEAR = 1e-3  # standard deviations: residuals below this weigh alike


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """Rows in the two forms that families take."""

    encoded: Any
    typed: Any
    blocks: Mapping[int, tuple[int, int]]
    """By a category's position among the typed columns: its first feature, and the one after its last."""

    @classmethod
    def of(cls, x: Any, layout: Layout) -> Table:
        """Both forms of these features."""
        return cls(x, layout.typed(x), dict(zip(layout.categories, layout.blocks, strict=True)))

    @property
    def categories(self) -> tuple[int, ...]:
        """Positions of the categories among the typed columns."""
        return tuple(self.blocks)

    def __len__(self) -> int:
        return int(self.encoded.shape[0])

    def take(self, index: NDArray[Any]) -> Table:
        """The rows at these positions."""
        return Table(self.encoded[index], self.typed[index], self.blocks)

    def with_source(self, source: NDArray[Any], sources: int) -> Table:
        """The same rows with where they come from as one more category, the target's number being the last.

        Parameters
        ----------
        source
            Of every row, 0 … ``sources``.
        sources
            How many there are.
        """
        encoded = _beside(self.encoded, np.eye(sources + 1, dtype=np.float32)[source])
        typed = _beside(self.typed, source[:, None].astype(np.float32))
        width = self.encoded.shape[1]
        return Table(encoded, typed, {**self.blocks, self.typed.shape[1]: (width, width + sources + 1)})


def _beside(x: Any, more: NDArray[np.float32]) -> Any:
    if not is_sparse(x):
        return np.hstack([np.asarray(x, dtype=np.float32), more])
    from scipy import sparse

    return sparse.hstack([x, sparse.csr_array(more)], format="csr")


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """What is learnt: so many classes, or numbers (0) by a loss; and how much work it is worth."""

    classes: int
    loss: str = "squared"
    seed: int = 0
    trees: int = 200
    work: int = 1
    """How many times the usual number of trees, in steps so much smaller."""


class Fitted(ABC):
    """A fitted model of a family."""

    family: ClassVar[str]

    @classmethod
    @abstractmethod
    def fit(cls, table: Table, y: NDArray[Any], weight: Array, task: Task) -> Fitted:
        """The model of these weighted rows; all classes of the task are among them."""

    @abstractmethod
    def predict(self, table: Table) -> Array:
        """Class probabilities (n, classes), or numbers (n,)."""

    @abstractmethod
    def arrays(self) -> Arrays:
        """All of it, as plain data."""

    @classmethod
    @abstractmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], table: Table, task: Task) -> Fitted:
        """What `arrays` gave, for rows like those of this table; ValueError for what is damaged."""


def _probabilities(first: Array) -> Array:
    """Of two classes, from that of the one that comes last."""
    return np.stack([1.0 - first, first], axis=1)


@dataclass(frozen=True, eq=False, slots=True)
class LightGBM(Fitted):
    """Gradient boosting by LightGBM; saved as its own text."""

    family = "lightgbm"
    booster: Any
    classes: int

    @classmethod
    def fit(cls, table: Table, y: NDArray[Any], weight: Array, task: Task) -> LightGBM:
        package = import_module("lightgbm")
        params = {
            "objective": _objective(task),
            **({"num_class": task.classes} if task.classes > 2 else {}),
            "learning_rate": _RATE / task.work,
            "min_data_in_leaf": min(20, max(1, len(table) // 10)),
            # On the design tables each of these was a little better than the library's default.
            "feature_fraction": 0.6,
            "bagging_fraction": 0.8,
            "bagging_freq": 1,
            "lambda_l2": 5.0,
            "seed": task.seed % 2**31,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        data = package.Dataset(
            table.typed, y, weight=weight, categorical_feature=list(table.categories), params=params
        )
        booster = package.train(params, data, task.trees)
        return cls(booster.free_dataset(), task.classes)

    def predict(self, table: Table) -> Array:
        return self.staged(table, self.booster.current_iteration())

    def staged(self, table: Table, trees: int) -> Array:
        """What the first trees alone predict."""
        raw = self.booster.predict(table.typed, num_iteration=trees, num_threads=1)
        found = np.asarray(raw, dtype=np.float64)
        return _probabilities(found) if self.classes == 2 else found

    def arrays(self) -> Arrays:
        return {"model": from_bytes(self.booster.model_to_string().encode())}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], table: Table, task: Task) -> LightGBM:
        text = as_bytes(arrays["model"]).decode()
        check_lightgbm(
            text,
            features=table.typed.shape[1],
            outputs=task.classes if task.classes > 2 else 1,
            objective=_objective(task) if task.classes else None,
        )
        return cls(import_module("lightgbm").Booster(model_str=text), task.classes)


def _objective(task: Task) -> str:
    absolute = "regression_l1" if task.loss == ABSOLUTE else "regression"
    return {0: absolute, 2: "binary"}.get(task.classes, "multiclass")


@dataclass(frozen=True, eq=False, slots=True)
class CatBoost(Fitted):
    """CatBoost's own model file, and the model that was read from it."""

    family = "catboost"
    file: bytes
    classes: int
    model: Any = field(repr=False)

    @classmethod
    def fit(cls, table: Table, y: NDArray[Any], weight: Array, task: Task) -> CatBoost:
        package = _catboost()
        absolute = "MAE" if task.loss == ABSOLUTE else "RMSE"
        model = package.CatBoost(
            {
                "loss_function": {0: absolute, 2: "Logloss"}.get(task.classes, "MultiClass"),
                "iterations": _ROUNDS * task.work,
                "learning_rate": _CAT_RATE / task.work,
                "depth": 6,
                "boosting_type": "Plain",
                "max_ctr_complexity": 1,
                "random_seed": task.seed % 2**31,
                "thread_count": 1,
                "allow_writing_files": False,
                "verbose": False,
            }
        )
        model.fit(_pool(package, table, y, weight))
        about = model.get_metadata()
        for name in _OF_THE_FIT:
            about[name] = ""
        file = bytes(model._serialize_model())
        return cls(file, task.classes, model)

    def predict(self, table: Table) -> Array:
        kind = "Probability" if self.classes else "RawFormulaVal"
        found = self.model.predict(_pool(_catboost(), table), prediction_type=kind, thread_count=1)
        return np.asarray(found, dtype=np.float64)

    def arrays(self) -> Arrays:
        return {"model": from_bytes(self.file)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], table: Table, task: Task) -> CatBoost:
        file = as_bytes(arrays["model"])
        package = _catboost()
        model = package.CatBoost()
        try:
            model.load_model(blob=file, format="cbm")
        except package.CatBoostError as error:
            raise ValueError(f"no model of CatBoost: {error}") from error
        return cls(file, task.classes, model)


def has_catboost() -> bool:
    """Whether the library is installed."""
    return find_spec("catboost") is not None


def _catboost() -> Any:
    try:
        return import_module("catboost")
    except ImportError as error:
        raise MissingExtraError("CatBoost", "boosting") from error


def _pool(package: Any, table: Table, y: Any = None, weight: Any = None) -> Any:
    """Rows as CatBoost takes them: its categories are whole numbers, which a frame has beside others."""
    if not table.categories:
        return package.Pool(table.typed, y, weight=weight)
    frame = import_module("pandas").DataFrame(table.typed)
    for place in table.categories:
        frame[place] = frame[place].astype(np.int32)
    return package.Pool(frame, y, weight=weight, cat_features=list(table.categories))


_NO_FOREST = Forest(*(np.zeros(0, dtype=np.int32),) * 5, np.zeros((0, 1), dtype=np.float32))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False, slots=True)
class ExtraTrees(Fitted):
    """scikit-learn's extremely randomised trees, kept as arrays.

    A category of many values is one column for every class: the mean label of its rows, shrunk towards that
    of all rows. Indicators of so many values would hardly ever be drawn for a split.
    """

    family = "extra-trees"
    forest: Forest
    means: tuple[Array, ...]
    """Of every category of many values, (values, classes but the first)."""
    kept: NDArray[np.int64]
    """The features that stay as they are."""
    large: NDArray[np.int64]
    """Typed columns of the categories of many values."""
    classes: int

    @classmethod
    def fit(cls, table: Table, y: NDArray[Any], weight: Array, task: Task) -> ExtraTrees:
        from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

        targets = np.eye(task.classes)[y][:, 1:] if task.classes else y[:, None]
        middle = np.average(targets, axis=0, weights=weight)
        large = [place for place, (first, after) in table.blocks.items() if after - first > MANY_VALUES]
        replaced = {feature for place in large for feature in range(*table.blocks[place])}
        kept = np.array([f for f in range(table.encoded.shape[1]) if f not in replaced], dtype=np.int64)
        means = []
        for place in large:
            first, after = table.blocks[place]
            codes = table.typed[:, place].astype(np.int64)
            known = codes >= 0
            sums = np.zeros((after - first, targets.shape[1]))
            np.add.at(sums, codes[known], (targets * weight[:, None])[known])
            counts = np.bincount(codes[known], weight[known], minlength=after - first)[:, None]
            # The last one is of values that no row had.
            means.append(np.vstack([(sums + _SHRUNK * middle) / (counts + _SHRUNK), middle]))
        self = cls(_NO_FOREST, tuple(means), kept, np.array(large, dtype=np.int64), task.classes)
        kind = ExtraTreesClassifier if task.classes else ExtraTreesRegressor
        model = kind(
            n_estimators=_FOREST * task.work,
            min_samples_leaf=2,
            max_features="sqrt" if task.classes else 0.5,
            random_state=task.seed % 2**32,
        )
        model.fit(self._features(table), y, sample_weight=weight)
        return replace(self, forest=Forest.of(model))

    def _features(self, table: Table) -> Any:
        codes = table.typed[:, self.large].astype(np.int64) if len(self.large) else None
        x = table.encoded[:, self.kept]
        if codes is None:
            return x
        more = [means[codes[:, place]] for place, means in enumerate(self.means)]
        return _beside(x, np.hstack(more).astype(np.float32))

    def predict(self, table: Table) -> Array:
        found = self.forest.predict(self._features(table))
        return found if self.classes else found[:, 0]

    def arrays(self) -> Arrays:
        means = {f"means{place}": each for place, each in enumerate(self.means)}
        return {**self.forest.arrays(), "kept": self.kept, "large": self.large, **means}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], table: Table, task: Task) -> ExtraTrees:
        forest, kept, large = Forest.from_arrays(arrays), arrays["kept"], arrays["large"]
        means = tuple(arrays[f"means{place}"] for place in range(len(large)))
        outputs = max(1, task.classes - 1)
        sizes = [np.diff(table.blocks.get(place, (0, -9)))[0] + 1 for place in large.tolist()]
        if [each.shape for each in means] != [(size, outputs) for size in sizes]:
            raise ValueError("its categories are others")
        width = len(kept) + outputs * len(large)
        if kept.min(initial=0) < 0 or kept.max(initial=0) >= table.encoded.shape[1]:
            raise ValueError("it needs a feature that there is not")
        if forest.feature.max(initial=-1) >= width or forest.value.shape[1] != max(1, task.classes):
            raise ValueError("a tree is of other features, or of other classes")
        return cls(forest, means, kept, large, task.classes)


@dataclass(frozen=True, eq=False, slots=True)
class Linear(Fitted):
    """Logistic regression, ridge regression, or for absolute errors the regression to the median."""

    family = "linear"
    weights: Array
    """(features, outputs); one output for two classes and for numbers."""
    offset: Array
    classes: int

    @classmethod
    def fit(cls, table: Table, y: NDArray[Any], weight: Array, task: Task) -> Linear:
        from sklearn import config_context
        from sklearn.linear_model import Ridge, RidgeCV

        few = len(table) < 1000
        x = table.encoded
        if task.classes:
            model = _logistic(x, y, weight, few=few)
            return cls(np.asarray(model.coef_, dtype=np.float64).T, model.intercept_, task.classes)
        ridge: Any = Ridge(alpha=1.0)
        if few:
            alphas = np.geomspace(0.1, 1000.0, 9)
            with config_context(enable_metadata_routing=False):
                found = RidgeCV(alphas).fit(x.toarray() if is_sparse(x) else x, y, sample_weight=weight)
            ridge = Ridge(alpha=float(found.alpha_))
        ridge.fit(x, y, sample_weight=weight)
        for _ in range(_ITERATIONS if task.loss == ABSOLUTE else 0):
            errors = np.abs(y - ridge.predict(x))
            ridge.fit(x, y, sample_weight=weight / np.maximum(errors, _NEAR))
        return cls(
            np.asarray(ridge.coef_, dtype=np.float64).reshape(-1, 1), np.atleast_1d(ridge.intercept_), 0
        )

    def predict(self, table: Table) -> Array:
        scores = np.asarray(table.encoded @ self.weights, dtype=np.float64) + self.offset
        if not self.classes:
            return scores[:, 0]
        if self.classes == 2:
            return _probabilities(1.0 / (1.0 + np.exp(-np.clip(scores[:, 0], -500.0, 500.0))))
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def arrays(self) -> Arrays:
        return {"weights": self.weights, "offset": self.offset}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], table: Table, task: Task) -> Linear:
        outputs = task.classes if task.classes > 2 else 1
        if arrays["weights"].shape != (table.encoded.shape[1], outputs) or arrays["offset"].shape != (
            outputs,
        ):
            raise ValueError("the linear model is of other features")
        return cls(arrays["weights"], arrays["offset"], task.classes)


def _logistic(x: Any, y: NDArray[Any], weight: Array, *, few: bool) -> Any:
    """Of few rows the penalty is chosen by folds; of many it matters little."""
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
    from sklearn.model_selection import StratifiedKFold

    least = int(np.bincount(y)[np.unique(y)].min())
    if few and least >= 3:
        folds = StratifiedKFold(min(4, least), shuffle=True, random_state=0)
        model = LogisticRegressionCV(
            Cs=_PENALTIES, cv=folds, scoring="neg_log_loss", max_iter=200, use_legacy_attributes=False,
            l1_ratios=(0.0,),
        )  # fmt: skip
        # Where users route metadata, the scorer would have to ask for the weights.
        with config_context(enable_metadata_routing=False):
            return model.fit(x, y, sample_weight=weight)
    return LogisticRegression(C=0.03 if few else 1.0, max_iter=200).fit(x, y, sample_weight=weight)


@dataclass(frozen=True, eq=False, slots=True)
class Network(Fitted):
    """The network of policy auto, trained by whoever fits."""

    family = "mlp"
    trainer: Any
    state: Any

    @classmethod
    def fit(cls, table: Table, y: NDArray[Any], weight: Array, task: Task) -> Network:
        raise TypeError("a network is trained by a study, not on weighted rows at once")

    def predict(self, table: Table) -> Array:
        return np.asarray(self.trainer.predict(self.state, table.encoded), dtype=np.float64)

    def arrays(self) -> Arrays:
        saved: Arrays = self.trainer.save(self.state)
        return saved

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], table: Table, task: Task) -> Network:
        x = table.encoded
        blank = Sources.blank(
            ("all",), shape=(x.shape[1],), classes=task.classes, sparse=is_sparse(x), dtype=x.dtype
        )
        trainer = MlpTrainer(blank)
        return cls(trainer, trainer.load(arrays))


@dataclass(frozen=True, eq=False, slots=True)
class Constant(Fitted):
    """The only class that the rows had, or their only label."""

    family = "constant"
    value: Array

    @classmethod
    def fit(cls, table: Table, y: NDArray[Any], weight: Array, task: Task) -> Constant:
        shares = np.bincount(y, weight, minlength=task.classes) if task.classes else np.atleast_1d(y[0])
        return cls(np.asarray(shares / shares.sum() if task.classes else shares, dtype=np.float64))

    def predict(self, table: Table) -> Array:
        return (
            np.tile(self.value, (len(table), 1)) if len(self.value) > 1 else np.repeat(self.value, len(table))
        )

    def arrays(self) -> Arrays:
        return {"value": self.value}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], table: Table, task: Task) -> Constant:
        if arrays["value"].shape != (max(1, task.classes),):
            raise ValueError("the constant is of other classes")
        return cls(arrays["value"])


FAMILIES: dict[str, type[Fitted]] = {
    each.family: each for each in (LightGBM, CatBoost, ExtraTrees, Linear, Network, Constant)
}


@dataclass(frozen=True, eq=False, slots=True)
class Partial(Fitted):
    """A model of some of the classes: the rows that it was fitted on had no others."""

    family = "partial"
    inner: Fitted
    present: NDArray[np.int64]
    classes: int

    @classmethod
    def fit(cls, table: Table, y: NDArray[Any], weight: Array, task: Task) -> Partial:
        raise TypeError("a model of some classes is made by fit_family")

    def predict(self, table: Table) -> Array:
        found = np.zeros((len(table), self.classes))
        found[:, self.present] = self.inner.predict(table)
        return found

    def arrays(self) -> Arrays:
        return {**self.inner.arrays(), "present": self.present}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], table: Table, task: Task) -> Partial:
        raise TypeError("a model of some classes is read by read_family")


@one_thread()
def fit_family(family: type[Fitted], table: Table, y: NDArray[Any], weight: Array, task: Task) -> Fitted:
    """The family's model of these rows, whichever classes they have.

    Parameters
    ----------
    family
        One of ``FAMILIES``.
    table, y, weight
        The rows; those of weight 0 are left out.
    task
        What is learnt.
    """
    if not weight.all():
        used = np.flatnonzero(weight)
        table, y, weight = table.take(used), y[used], weight[used]
    kinds = np.unique(y)
    if len(kinds) == 1:
        return Constant.fit(table, y, weight, task)
    with warnings.catch_warnings():
        # scikit-learn asks whether so many classes of so few rows are numbers: the user has said it.
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        if not task.classes or len(kinds) == task.classes:
            return family.fit(table, y, weight, task)
        inner = family.fit(table, np.searchsorted(kinds, y), weight, replace(task, classes=len(kinds)))
    return Partial(inner, kinds.astype(np.int64), task.classes)


def family_name(fitted: Fitted) -> str:
    """The name by which `read_family` knows it."""
    return fitted.inner.family if isinstance(fitted, Partial) else fitted.family


def read_family(name: str, arrays: Mapping[str, NDArray[Any]], table: Table, task: Task) -> Fitted:
    """The model that was saved; ValueError for one that is damaged.

    Parameters
    ----------
    name
        Of its family.
    arrays
        What it gave.
    table
        Rows like those that it predicts.
    task
        What it learnt.
    """
    if "present" not in arrays:
        return FAMILIES[name].from_arrays(arrays, table, task)
    present = arrays["present"]
    if not len(present) < task.classes or present.min() < 0 or present.max() >= task.classes:
        raise ValueError("the model is of other classes")
    inner = FAMILIES[name].from_arrays(arrays, table, Task(len(present), task.loss))
    return Partial(inner, present, task.classes)
