"""What people do with tables today, each as its strongest short recipe.

Gradient boosting and linear models, both with the target's rows weighted, and portfolios of other libraries.
They optimise the metric where the library can (absolute errors for MAE), take categories and gaps as they are
where the library can, and use 200 trees. Weights of the target's rows are chosen by 5-fold cross-validation
on the target's rows, on the metric.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mixtree._native.threads import one_thread
from mixtree.data.sources import TARGET, Problem, Rows
from mixtree.data.sparse import is_sparse
from mixtree.data.typed import Layout
from mixtree.errors import InputError, MissingExtraError, TrainingError
from mixtree.experiments import autogluon_fit
from mixtree.metrics import ACCURACY, AUROC, HAND_TILL, LOG_LOSS, MAE, RMSE, Metric

Index = NDArray[np.intp]
Floats = NDArray[np.float64]

WEIGHTS = (0.0, 1.0, 5.0, 20.0, 100.0, np.inf)
"""Of a row of the target beside a row of the sources; 0: the sources alone, infinite: the target alone."""
FOLDS = 5
TREES = 200
STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""Of the small model of `stacked`: 1 / the weight of its penalty."""
FEW_ROWS = 1000
"""Fewer rows than this get a stronger penalty."""
AUTOGLUON = "MIXTREE_AUTOGLUON"
"""Environment variable: the folder of AutoGluon's own virtual environment."""
AUTOGLUON_SECONDS = 60
_DENSE = 500  # features at most, of which a matrix need not be sparse
_ITERATIONS = 10  # of reweighting, after which a median regression has settled


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """What a rival is given: rows with labels, those of the sources first, then rows to predict."""

    x: Floats
    """Numbers, NaN where they are missing; categories as codes."""
    y: NDArray[Any]
    """Labels of the first rows: those of all sources and of the target that are for training."""
    source: Index
    """Where each row comes from: 0 … K−1, K is the target."""
    categories: tuple[int, ...]
    """Columns that hold codes."""
    classes: int
    metric: Metric
    sources: tuple[str, ...] = ()
    levels: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """What the codes of a column stand for, where that is known."""
    seed: int = 0

    @property
    def absolute(self) -> bool:
        """Whether absolute errors are scored."""
        return self.metric.name == MAE.name

    @property
    def target(self) -> int:
        """The number of the target among the sources."""
        return int(self.source[-1])

    @property
    def others(self) -> Index:
        """The sources' rows."""
        return np.flatnonzero(self.source[: len(self.y)] != self.target)

    @property
    def own(self) -> Index:
        """The target's rows with labels."""
        return np.flatnonzero(self.source[: len(self.y)] == self.target)

    @property
    def test(self) -> Index:
        """The rows to predict."""
        return np.arange(len(self.y), len(self.x))

    def with_source(self) -> Case:
        """The same rows with the source as one more category, the target a level of its own."""
        x = np.column_stack([self.x, self.source])
        return replace(self, x=x, categories=(*self.categories, self.x.shape[1]))

    @classmethod
    def of_frames(
        cls,
        training: tuple[pl.DataFrame, NDArray[Any], NDArray[Any]],
        own: tuple[pl.DataFrame, NDArray[Any]],
        test: pl.DataFrame,
        *,
        classes: int,
        metric: Metric,
        seed: int = 0,
    ) -> Case:
        """From tables as they are.

        Parameters
        ----------
        training
            The sources' rows, their labels, and the source of each.
        own
            The target's rows with labels.
        test
            Rows to predict.
        classes
            How many there are; 0 for a regression.
        metric
            What the recipes choose by.
        seed
            Of folds and models.
        """
        frames = [training[0], own[0], test]
        names, codes = np.unique(training[2], return_inverse=True)
        known = sum(map(len, frames[:2]))
        columns, levels = [], {}
        for place, values in enumerate(pl.concat(frames)):
            if values.dtype == pl.String:
                levels[place] = values[:known].drop_nulls().unique().sort().to_list()
                values = values.cast(pl.Enum(levels[place]), strict=False).to_physical()
            elif values.dtype.is_temporal():
                values = values.to_physical()
            columns.append(values.cast(pl.Float64).fill_null(float("nan")).to_numpy())
        after = np.full(len(own[0]) + len(test), len(names))
        return cls(
            np.column_stack(columns),
            np.concatenate([training[1], own[1]]),
            np.concatenate([codes, after]),
            tuple(levels),
            classes,
            metric,
            tuple(map(str, names)),
            levels,
            seed,
        )

    @classmethod
    def of_problem(cls, problem: Problem, layout: Layout, metric: Metric, *, test: Rows, seed: int) -> Case:
        """From encoded rows, in the columns that they came from.

        Parameters
        ----------
        problem
            Sources and the target's rows.
        layout
            Where each column is among the features.
        metric
            What the recipes choose by.
        test
            Rows to predict.
        seed
            Of folds and models.
        """
        sources = problem.sources
        parts = [*sources.rows, sources.validation]
        typed = [_dense(layout.typed(part.x)) for part in (*parts, test)]
        x = np.concatenate(typed).astype(np.float64)
        categories = layout.categories
        x[:, categories] = np.where(x[:, categories] < 0, np.nan, x[:, categories])
        numbers = np.repeat(np.arange(len(typed)), list(map(len, typed)))
        y = np.concatenate([part.y for part in parts])
        source = np.minimum(numbers, len(sources))
        return cls(x, y, source, categories, sources.classes, metric, sources.names, {}, seed)


def _dense(x: Any) -> NDArray[Any]:
    return np.asarray(x.toarray() if is_sparse(x) else x)


Learn = Callable[[Index, Floats, Index], Floats]
"""Fit on these rows with these weights; predictions of others: probabilities (n, classes), or (n,)."""
Learner = Callable[[Case], Learn]


# -- learners ---------------------------------------------------------------------------------------------


def lightgbm(case: Case, *, absolute: bool = True) -> Learn:
    """LightGBM on numbers with gaps and on categories; on absolute errors for MAE."""
    library = import_module("lightgbm")
    objective = "binary" if case.classes == 2 else "multiclass" if case.classes else "regression"
    options: dict[str, Any] = {
        "objective": "regression_l1" if case.absolute and absolute else objective,
        "learning_rate": 0.1,
        "num_threads": 1,
        "seed": case.seed,
        "deterministic": True,
        "verbosity": -1,
    }
    if objective == "multiclass":
        options["num_class"] = case.classes

    def learn(rows: Index, weight: Floats, at: Index) -> Floats:
        # A leaf of 20 rows, the default, is half of a small table.
        own = {**options, "min_data_in_leaf": min(20, max(2, len(rows) // 20))}
        names: Any = list(case.categories)
        data = library.Dataset(case.x[rows], case.y[rows], weight=weight, categorical_feature=names)
        return _as_predictions(library.train(own, data, num_boost_round=TREES).predict(case.x[at]), case)

    return learn


def linear(case: Case) -> Learn:
    """Logistic or ridge regression, a median regression for MAE."""
    x = _linear_features(case)

    def learn(rows: Index, weight: Floats, at: Index) -> Floats:
        strength = 1.0 if len(rows) >= FEW_ROWS else 0.1
        return _fit_linear(case, x[rows], case.y[rows], weight, x[at], strength)

    return learn


def _linear_features(case: Case) -> Any:
    """Scaled numbers without gaps, flags of gaps, and indicators; not learnt from the test rows."""
    known = case.x[: len(case.y)]
    numbers = [
        place
        for place in range(case.x.shape[1])
        if place not in case.categories and np.isfinite(known[:, place]).any()
    ]
    codes = case.x[:, case.categories]
    table = np.column_stack([case.x[:, numbers], np.where(np.isnan(codes), -1, codes)])
    scaled = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    indicators = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5, dtype=np.float64)
    split = len(numbers)
    blocks = [("numbers", scaled, range(split)), ("codes", indicators, range(split, table.shape[1]))]
    encoder = ColumnTransformer([(name, how, list(block)) for name, how, block in blocks if block])
    encoder.fit(table[: len(case.y)])
    x = encoder.transform(table)
    return sparse.csr_array(x) if x.shape[1] > _DENSE else _dense(x)


def _fit_linear(case: Case, x: Any, y: NDArray[Any], weight: Floats, at: Any, strength: float) -> Floats:
    """Fit a linear model and predict.

    Parameters
    ----------
    case
        Task and metric.
    x, y, weight
        Rows to fit.
    at
        Rows to predict.
    strength
        1 / the weight of the penalty.
    """
    if not case.classes:
        model = Ridge(alpha=1 / strength).fit(x, y, weight)
        if case.absolute:  # the median, by weights that are the inverse of the error
            least = 1e-3 * float(np.std(y)) or 1.0
            for _ in range(_ITERATIONS):
                error = np.maximum(np.abs(y - model.predict(x)), least)
                again = weight / error
                model = Ridge(alpha=1 / strength).fit(x, y, again / again.mean())
        return np.asarray(model.predict(at), dtype=np.float64)
    present = np.unique(y)
    probabilities = np.zeros((at.shape[0], case.classes))
    if len(present) == 1:
        probabilities[:, present] = 1.0
    else:
        model = LogisticRegression(C=strength, max_iter=500, tol=1e-3).fit(x, y, weight)
        probabilities[:, present] = model.predict_proba(at)
    return probabilities


def _as_predictions(raw: Any, case: Case) -> Floats:
    values = np.asarray(raw, dtype=np.float64)
    return np.column_stack([1 - values, values]) if case.classes == 2 else values


# -- recipes ----------------------------------------------------------------------------------------------


def pooled(learner: Learner, case: Case) -> Floats:
    """All rows of the sources alike."""
    return learner(case)(case.others, np.ones(len(case.others)), case.test)


def target_only(learner: Learner, case: Case) -> Floats:
    """The target's rows alone."""
    return learner(case)(case.own, np.ones(len(case.own)), case.test)


def weighted(learners: Sequence[Learner], case: Case) -> Floats:
    """Both, with the learner and the weight of the target's rows that are best by cross-validation."""
    parts = _folds(case)
    order = np.concatenate([left for _, left in parts])
    chosen, best = None, np.inf
    for learner in learners if case.absolute else learners[:1]:
        fit = partial(_fit_weighted, case, learner(case))
        for weight in WEIGHTS:
            if weight:
                held = [fit(weight, case.own[kept], case.own[left]) for kept, left in parts]
                guesses = np.concatenate(held)
            else:  # without the target's rows no fold differs from another
                guesses = fit(weight, case.own, case.own[order])
            loss = _loss(case, case.y[case.own[order]], guesses)
            if chosen is None or loss < best:
                chosen, best = partial(fit, weight), loss
    assert chosen is not None
    return chosen(case.own, case.test)


def _fit_weighted(case: Case, learn: Learn, weight: float, own: Index, at: Index) -> Floats:
    """Predictions of a model of the sources' rows and some of the target's.

    Parameters
    ----------
    case
        All rows.
    learn
        What fits the model.
    weight
        Of the target's rows.
    own
        Which of the target's rows are fitted.
    at
        Rows to predict.
    """
    if np.isinf(weight):
        return learn(own, np.ones(len(own)), at)
    rows = np.concatenate([case.others, own]) if weight else case.others
    return learn(rows, np.where(case.source[rows] == case.target, weight, 1.0), at)


def with_source(learners: Sequence[Learner], case: Case) -> Floats:
    """As `weighted`, with the source as a column."""
    return weighted(learners, case.with_source())


def stacked(case: Case) -> Floats:
    """A linear model on the target's rows, the pooled LightGBM's score one of its features."""
    at = np.concatenate([case.own, case.test])
    score = lightgbm(case)(case.others, np.ones(len(case.others)), at)
    if case.classes:
        score = np.log(np.clip(score, 1e-6, 1.0))
        score = score[:, 1:] - score[:, :1]
    score = score.reshape(len(at), -1)
    spread = score[: len(case.own)].std(axis=0)
    score = (score - score[: len(case.own)].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    encoded = _dense(_linear_features(case)[at])
    x = np.column_stack([3.0 * score, encoded])  # the penalty holds the score back least
    y, count = case.y[case.own], len(case.own)
    one, parts = np.ones(count), _folds(case)
    order = np.concatenate([left for _, left in parts])
    scores = {}
    for strength in STRENGTHS:
        guesses = np.concatenate(
            [_fit_linear(case, x[kept], y[kept], one[kept], x[left], strength) for kept, left in parts]
        )
        scores[strength] = _loss(case, y[order], guesses)
    best = min(scores, key=lambda strength: scores[strength])
    return _fit_linear(case, x[:count], y, one, x[count:], best)


def _loss(case: Case, y: NDArray[Any], guesses: Floats) -> float:
    """What is minimised: the metric, or the log-loss if the rows are all of one class."""
    metric = LOG_LOSS if case.classes and len(np.unique(y)) == 1 else case.metric
    return metric.signed(metric(y, guesses))


def _folds(case: Case) -> list[tuple[Index, Index]]:
    """Positions among the target's rows: those kept and those left out, five times."""
    y = case.y[case.own]
    count = min(FOLDS, len(y))
    if case.classes and np.bincount(y.astype(np.intp)).max() >= count:
        parts = StratifiedKFold(count, shuffle=True, random_state=case.seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            return list(parts.split(y, y))
    return list(KFold(count, shuffle=True, random_state=case.seed).split(y))


def catboost(case: Case) -> Floats:
    """CatBoost on all rows, the source one of its categories."""
    pandas, library = import_module("pandas"), import_module("catboost")
    case = case.with_source()
    table = pandas.DataFrame(case.x)
    for place in case.categories:
        table[place] = table[place].fillna(-1).astype(int)
    loss = "Logloss" if case.classes == 2 else "MultiClass" if case.classes else "RMSE"
    known = len(case.y)
    data = library.Pool(table[:known], case.y, cat_features=list(case.categories))
    options = {
        "loss_function": "MAE" if case.absolute else loss,
        "iterations": TREES,
        "learning_rate": 0.1,
        "thread_count": 1,
        "random_seed": case.seed,
        "verbose": False,
        "allow_writing_files": False,
    }
    model = library.train(data, options)
    kind = "Probability" if case.classes else "RawFormulaVal"
    return np.asarray(model.predict(table[known:], prediction_type=kind), dtype=np.float64)


def gpboost(case: Case) -> Floats:
    """GPBoost: boosted trees with a random effect of the source."""
    if case.classes > 2:
        raise InputError("gpboost knows two classes or a number, not more classes")
    library = import_module("gpboost")
    known, groups = len(case.y), case.source.astype(str)
    likelihood = "bernoulli_logit" if case.classes else "gaussian"
    effects = library.GPModel(group_data=groups[:known], likelihood=likelihood, num_parallel_threads=1)
    names = list(case.categories)
    # Its steps depend on the scale of the labels.
    centre, spread = (0.0, 1.0) if case.classes else (case.y.mean(), case.y.std() or 1.0)
    y = (case.y - centre) / spread
    data = library.Dataset(
        case.x[:known], y, params={"verbose": -1}, categorical_feature=names, free_raw_data=False
    )
    options = {"learning_rate": 0.1, "num_threads": 1, "seed": case.seed, "verbose": -1}
    if not case.classes:  # with plain gradients 200 trees are too few
        options["leaves_newton_update"] = True
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Using categorical_feature", UserWarning)
        model = library.train(options, data, num_boost_round=TREES, gp_model=effects)
    predicted = model.predict(data=case.x[known:], group_data_pred=groups[known:], pred_latent=False)
    return _as_predictions(predicted["response_mean"] * spread + centre, case)


def autogluon(case: Case) -> Floats:
    """AutoGluon in its own environment: all rows, the source a column, the target a level of it."""
    columns = {}
    for place, values in enumerate(case.x.T):
        if place in case.categories:
            codes = pl.Series(values).fill_nan(None).cast(pl.Int64)
            words = case.levels.get(place)
            named = codes.replace_strict(dict(enumerate(words)), return_dtype=pl.String) if words else codes
            columns[f"x{place}"] = named.cast(pl.String)
        else:
            columns[f"x{place}"] = pl.Series(values).fill_nan(None)
    columns["source"] = pl.Series([*case.sources, TARGET])[case.source]
    table, known = pl.DataFrame(columns), len(case.y)
    metric = AUTOGLUON_METRICS.get(
        case.metric.name, "log_loss" if case.classes else "root_mean_squared_error"
    )
    task = "binary" if case.classes == 2 else "multiclass" if case.classes else "regression"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table[:known].with_columns(label=pl.Series(case.y)).write_parquet(folder / "train.parquet")
        table[known:].write_parquet(folder / "test.parquet")
        told = {"metric": metric, "task": task, "seconds": AUTOGLUON_SECONDS}
        (folder / "task.json").write_text(json.dumps(told), encoding="utf-8")
        command = [str(_autogluon_python()), autogluon_fit.__file__, str(folder)]
        # Its environment is its own: nothing of this one is to be found there.
        own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(command, env=own, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            last = done.stderr.strip().rpartition("\n")[2]
            raise TrainingError(f"autogluon ended with exit status {done.returncode}: {last}")
        return pl.read_parquet(folder / "predictions.parquet").to_numpy().squeeze()


def _autogluon_python() -> Path:
    folder = Path(os.environ.get(AUTOGLUON, ""))
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


AUTOGLUON_METRICS = {
    AUROC.name: "roc_auc",
    MAE.name: "mean_absolute_error",
    RMSE.name: "root_mean_squared_error",
    LOG_LOSS.name: "log_loss",
    ACCURACY.name: "accuracy",
    HAND_TILL.name: "roc_auc_ovo_macro",
}
_BOOSTED = (lightgbm, partial(lightgbm, absolute=False))
"""On some tables squared errors give the smaller absolute ones."""
RIVALS: dict[str, Callable[[Case], Floats]] = {
    "lightgbm-pooled": partial(pooled, lightgbm),
    "lightgbm-target": partial(target_only, lightgbm),
    "lightgbm-weighted": partial(weighted, _BOOSTED),
    "lightgbm-source": partial(with_source, _BOOSTED),
    "linear-pooled": partial(pooled, linear),
    "linear-weighted": partial(weighted, [linear]),
    "stacked": stacked,
    "catboost-source": catboost,
    "gpboost": gpboost,
    "autogluon": autogluon,
}
"""By the ids that every comparison knows."""
_EXTRAS = {"catboost-source": "boosting", "gpboost": "arena"}
"""Rivals whose library mixtree does not need."""


def check_rival(name: str) -> None:
    """An error in words if what the rival needs is not installed."""
    if name == "autogluon":
        if not _autogluon_python().exists():
            raise InputError(
                f"autogluon runs in an environment of its own: make it (benchmarks/autogluon_env.sh FOLDER) "
                f"and set {AUTOGLUON} to that folder"
            )
        return
    if name in _EXTRAS and find_spec(name.partition("-")[0]) is None:
        raise MissingExtraError(f"the rival {name}", _EXTRAS[name])


def predict(name: str, case: Case) -> Floats:
    """What the rival predicts for the rows to predict."""
    with one_thread():
        return RIVALS[name](case)


def cpu_seconds() -> float:
    """Of this process and of the programs that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
