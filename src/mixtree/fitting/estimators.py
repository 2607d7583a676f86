"""scikit-learn estimators: ``fit(X, y, source=…, X_val=…, y_val=…)``, then ``predict`` like any other."""

from __future__ import annotations

import sys
import time
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from html import escape
from inspect import Parameter, Signature
from pathlib import Path as FilePath
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state, estimator_html_repr
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mixtree.data.arrays import frame_columns, joined, refuse_lossy
from mixtree.data.columns import refuse_row_numbers
from mixtree.data.frames import as_frame, is_missing
from mixtree.data.leakage import independent
from mixtree.data.preprocessing import Preprocessor
from mixtree.data.sources import TARGET, Rows, Sources, in_order
from mixtree.data.sparse import is_sparse
from mixtree.engine.loop import FINISHED
from mixtree.engine.study import run, seconds_left
from mixtree.errors import DataError, InputError
from mixtree.fitting.explain import Importance, importances, source_importances
from mixtree.fitting.frames import groups_of
from mixtree.fitting.options import OPTIONS, make_options
from mixtree.fitting.pipeline import run_prepared
from mixtree.fitting.prepare import Prepared, prepare, train_network
from mixtree.fitting.saving import LABEL, ModelFiles, model_files, predicted
from mixtree.metrics import GroupedLabels, Metric, as_metric, class_names, group_column
from mixtree.policies.registry import make_search, training_sources
from mixtree.trainers.registry import make_trainer
from mixtree.tree import Tree
from mixtree.verdict import no_verdict
from mixtree.verdict.references import TimeIsUp, TimeLimit

_RENAMED = {"model": "estimator", "seed": "random_state"}
"""Options of a fit that scikit-learn calls otherwise."""
_OWN: dict[str, Any] = {
    "baselines": (),
    "validation_fraction": 0.2,
    "storage": None,
    "study": "fit",
    "resume": False,
    "workers": 1,
    "time_limit": None,
    "random_state": 0,
}


def _signature() -> Signature:
    """The parameters of the estimators: the options of a fit, and some of their own."""
    where, only = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    first = [Parameter("self", where), Parameter("estimator", where, default=None)]
    # scikit-learn wants defaults that nobody can change.
    options = {
        name: None if each.default == {} else each.default
        for name, each in OPTIONS.items()
        if name not in _RENAMED
    }
    return Signature(
        [*first, *(Parameter(name, only, default=each) for name, each in (options | _OWN).items())]
    )


_SIGNATURE = _signature()


class SourceRowsWarning(UserWarning):
    """A cross-validation scores rows of the sources, and not of the target."""


ONLY = "all"
"""The name of the source when the user names none."""


class _MixtureEstimator(BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share."""

    def __init__(self, estimator: Any = None, **options: Any) -> None:
        given = _SIGNATURE.bind(self, estimator, **options)
        given.apply_defaults()
        for name, value in given.arguments.items():
            if name != "self":
                setattr(self, name, value)

    __init__.__signature__ = _SIGNATURE  # type: ignore[attr-defined]

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        source: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight: Any = None,
    ) -> Self:
        """Find the mixture and the model.

        Parameters
        ----------
        X
            The rows of all sources; or a dictionary ``{name: (X, y)}``, without ``y`` and ``source``.
        y
            Their labels.
        source
            Which source each row comes from, or the name of the column of ``X`` that says it, which is no
            feature then; without it there is one source. Rows of the source ``"target"`` are the target's
            own, in the place of ``X_val``.
        X_val, y_val
            The target's rows; without them, and without rows of ``"target"``, a part of the rows
            (``validation_fraction``) is set aside.
        sample_weight
            Of the rows of ``X`` in training; they say how the rows of a source compare. The target's rows
            count alike. A row of weight 0 is left out.

        Returns
        -------
        The estimator itself.
        """
        started = time.monotonic()
        X, y, source = _joined(X, y, source)
        self._source_column, X, source = _named_source(X, source)
        for values, what in ((X, "X"), (y, "y"), (source, "source"), (X_val, "X_val"), (y_val, "y_val")):
            refuse_lossy(values, what)
        if y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None.")
        seed = self._seed()
        named = y.name if hasattr(y, "name") else None
        self._label = named if isinstance(named, str) and named else LABEL
        column, given = group_column(self.metric), X
        X, labels = self._read(X, y)
        if source is not None:
            _refuse_missing(source, "source", "say where each row comes from")
        # Of whole numbers in a list, near 2⁶⁴ and below 0, numpy would make floats that are the same.
        kind = object if isinstance(source, list) else None
        groups = np.full(len(labels), ONLY) if source is None else np.asarray(source, dtype=kind).astype(str)
        if groups.shape != (len(labels),):
            raise DataError(
                f"source must name one source per row: {len(labels)} rows, got shape {groups.shape}"
            )
        own = groups == TARGET
        if (source is not None or X_val is not None) and not own.any() and _in_cross_validation():
            warnings.warn(_SOURCE_ROWS, SourceRowsWarning, stacklevel=2)
        weight = None if sample_weight is None else _weights_of(sample_weight, len(labels))
        kept = np.arange(len(labels)) if weight is None else np.flatnonzero(weight)
        if weight is not None and len(kept) < len(labels):
            X, labels, groups = _rows(X, kept), labels[kept], groups[kept]
            own, weight = own[kept], weight[kept]
        self._constant = self._single_label(labels)
        if self._constant is not None:
            return self._fit_constant()
        if own.any() and (X_val is not None or y_val is not None):
            raise InputError(f"the target's rows are given twice: as X_val, and as the source {TARGET!r}")
        if own.all():
            raise DataError(f"all rows are of the source {TARGET!r}: give rows of at least one other source")
        if X_val is None and y_val is not None:
            raise DataError("y_val needs its features: give X_val too")
        if X_val is None:
            parts = (np.flatnonzero(~own), np.flatnonzero(own)) if own.any() else self._split(labels, seed)
            train, held = parts
            validation = (_rows(X, held), labels[held])
            if column is not None:
                regions = groups_of(given, column)[kept[held]]
                validation = (validation[0], GroupedLabels.of(validation[1], regions))
            X, labels, groups = _rows(X, train), labels[train], groups[train]
            weight = None if weight is None else weight[train]
        else:
            if y_val is None:
                raise DataError("X_val needs its labels: give y_val too")
            _refuse_missing(y_val, "y_val", "leave those rows out")
            validation = (self._read_more(X_val), self._encode(_one_column(y_val)))
            if column is not None:
                validation = (validation[0], GroupedLabels.of(validation[1], groups_of(X_val, column)))
        self._fit_scaling(X)
        names = tuple(sorted(set(groups.tolist())))
        sources = self._sources(X, labels, groups, validation, names, weight)
        stand_in = X_val is None and source is not None and not own.any()
        self._fit_sources(sources, seed, started, stand_in=stand_in)
        return self

    def _fit_sources(self, sources: Sources, seed: int, started: float, *, stand_in: bool) -> None:
        given = {name: getattr(self, name) for name in OPTIONS if name not in _RENAMED}
        given |= {"model": self.estimator, "seed": seed, "class_weight": self._class_weights()}
        options = make_options(**given)
        sources, _, doubts = independent(sources, None)
        layout = self._scaler.layout if isinstance(self._scaler, Preprocessor) else None
        prepared = prepare(sources, options, labels=self._class_names(), doubts=doubts, layout=layout)
        baselines: Any = self.baselines
        if isinstance(baselines, str):
            raise InputError(f"baselines is a tuple of names; got the text {baselines!r}")
        for name in self.baselines or ():  # one that nobody knows fails here, before any training
            make_search(name, prepared.setting)
        how = {name: getattr(self, name) for name in ("storage", "study", "resume", "workers", "time_limit")}
        began = time.monotonic()
        result = run_prepared(prepared, **how, started=started)
        validation = prepared.sources.validation
        self.mixture_ = result.weights
        self.metric_ = prepared.metric.name
        limit = TimeLimit.after(result, began, seconds_left(self.time_limit, started))
        with class_names(prepared.labels, told=True):
            self.baselines_ = {name: self._baseline(name, prepared, limit) for name in self.baselines or ()}
            self.best_score_ = float(prepared.chosen.metric(validation.y, predicted(prepared, result)))
            files = model_files(
                prepared,
                result,
                preprocessor=self._scaler if layout is not None else "sparse rows have no columns by name",
                label=self._label,
                warnings=prepared.warnings,
            )
        self.tree_ = result.tree
        self.spent_ = result.spent
        self.reason_ = result.reason
        self.chosen_ = prepared.chosen.notes
        self.history_ = [
            {"spent": spent, "path": node.path, "value": node.value, "mixture": node.mixture.tolist()}
            for spent, node in result.history
        ]
        self.verdict_ = result.verdict
        if stand_in and result.verdict is not None:
            told = "no rows of a target were given (X_val, y_val): rows of the sources stand in for them"
            self.verdict_ = replace(result.verdict, warnings=(*result.verdict.warnings, told))
        self.members_ = files.about.get("members", [])
        # The model alone is kept: the training rows do not travel with the estimator.
        self._sparse = is_sparse(validation.x)
        self._predictor = result.model
        verdict = None if self.verdict_ is None else self.verdict_.as_dict()
        self._files: ModelFiles | None = replace(files, about={**files.about, "verdict": verdict})

    def _baseline(self, name: str, prepared: Prepared, limit: TimeLimit | None) -> float:
        """The validation score of a baseline at the same budget, outside the study's own.

        NaN if the time limit leaves too little time for it.
        """
        sources, setting = prepared.sources, prepared.setting
        try:
            left = None if limit is None else limit.left(setting.budget)
        except TimeIsUp:
            return float("nan")
        trainer: Any = make_trainer(
            self.estimator,
            training_sources(name, setting),
            prepared.model,
        )
        result = run(make_search(name, setting), trainer, seed=prepared.options.seed, time_limit=left)
        if result.reason != FINISHED:
            return float("nan")
        predictions = trainer.predict(result.state, sources.validation.x)
        return float(prepared.chosen.metric(sources.validation.y, predictions))

    def explain_(
        self, X: Any, y: Any, *, metric: Any = None, repeats: int = 5, sources: Any = None
    ) -> list[Importance]:
        """How much worse the score gets when a column is shuffled, or without a source; the greatest first.

        Parameters
        ----------
        X, y
            Labelled rows of the target; best ones that trained nothing.
        metric
            What scores; the fit's own unless told.
        repeats
            Times that each column is shuffled.
        sources
            ``{name: (X, y)}``, the training rows: by source then, where a portfolio was fitted. Its strongest
            family is fitted again, pooled, on all of them and without each.
        """
        check_is_fitted(self)
        wanted = as_metric(metric or self.metric_, classes=self._class_count())
        labels = self._encode(_one_column(y))
        if wanted.column is not None:
            labels = GroupedLabels.of(labels, groups_of(X, wanted.column))
        if sources is not None:
            return self._worth_of(sources, Rows(self._features(self._read_more(X)), labels), wanted)
        frame = as_frame(X)

        def predict(rows: Any) -> NDArray[Any]:
            return self._scores(rows if self._is_table else rows.to_numpy())

        return importances(
            predict,
            frame,
            labels,
            columns=frame.columns,
            metric=wanted,
            repeats=repeats,
            seed=self._seed(),
        )

    def _worth_of(self, sources: Any, judges: Rows, metric: Metric) -> list[Importance]:
        about = {} if self._files is None else self._files.about
        if "strongest" not in about or not isinstance(self._scaler, Preprocessor):
            raise InputError(
                "the worth of sources is that of a portfolio: of a policy, use attribution='loo'"
            )
        if not isinstance(sources, Mapping) or not all(len(part) == 2 for part in sources.values()):
            raise InputError("sources are the training rows, {name: (X, y)}")
        rows = tuple(
            Rows(self._features(self._read_more(x)), self._encode(_one_column(own)))
            for x, own in sources.values()
        )
        return source_importances(
            Sources(tuple(map(str, sources)), rows, judges, self._class_count()),
            layout=self._scaler.layout,
            metric=metric,
            family=about["strongest"],
            trees=about["trees"],
            network=train_network,
            seed=self._seed(),
        )

    def save(self, folder: str | FilePath) -> None:
        """Write the model as a folder that ``mixtree predict``, ``show`` and ``explain`` read.

        Parameters
        ----------
        folder
            Where it goes; an earlier model there is replaced. Nothing is pickled: an estimator of another
            library, or one of sparse rows, has no safe format and is refused.
        """
        check_is_fitted(self)
        if self._files is None:
            raise InputError("this model cannot be saved: there is one class only, and nothing was learnt")
        self._files.write(folder)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The parameters that were set; of a fitted one what it found, too."""
        found = _findings(self) if "verdict_" in vars(self) else {}
        lines = [
            line for title, each in found.items() for line in (f"{title}:", *(f"  {one}" for one in each))
        ]
        return "\n".join([super().__repr__(N_CHAR_MAX=N_CHAR_MAX), *lines])

    def _html_repr(self) -> str:
        """scikit-learn's diagram, and below it what was found."""
        diagram = str(estimator_html_repr(self))
        if "verdict_" not in vars(self):
            return diagram
        parts = [
            f"<dt>{escape(title)}</dt>" + "".join(f"<dd>{escape(each)}</dd>" for each in lines)
            for title, lines in _findings(self).items()
        ]
        return f'{diagram}<dl class="mixtree">{"".join(parts)}</dl>'

    # -- data ---------------------------------------------------------------------------------------------

    def _read(self, X: Any, y: Any) -> tuple[Any, NDArray[Any]]:
        """Checked features and encoded labels; tables are taken as they are."""
        self._is_table = _is_table(X)
        if getattr(X, "shape", ())[1:] == (1,):
            refuse_row_numbers([X if is_sparse(X) else np.asarray(X)])
        if self._is_table:
            frame = as_frame(X)
            self.n_features_in_ = len(frame.columns)
            if frame_columns(X) is not None:
                self.feature_names_in_ = np.array(frame.columns, dtype=object)
            else:  # of an earlier fit
                self.__dict__.pop("feature_names_in_", None)
            _refuse_missing(y, "y", "leave those rows out")
            labels = np.asarray(y)
            if len(labels) != len(frame):
                raise DataError(f"X has {len(frame)} rows but y has {len(labels)}")
            return frame, self._encode_labels(labels)
        _refuse_text(X)
        X, y = validate_data(
            self,
            X,
            y,
            ensure_all_finite=_finite(X),
            accept_sparse="csr",
            dtype=np.float64,
            ensure_min_samples=2,
            multi_output=False,
            y_numeric=isinstance(self, RegressorMixin),
        )
        return X, self._encode_labels(np.asarray(y))

    def _read_more(self, X: Any) -> Any:
        """Checked features of rows like those in fit; they may still have the column of sources."""
        refuse_lossy(X, "X")
        columns = frame_columns(X)
        if self._source_column is not None and columns is not None and self._source_column in columns:
            X = _without(X, self._source_column)
        if self._is_table:
            frame = as_frame(X)
            if frame_columns(X) is None and len(frame.columns) != self.n_features_in_:
                raise DataError(f"X has {len(frame.columns)} columns, but fit had {self.n_features_in_}")
            return frame
        _refuse_text(X)
        return validate_data(
            self,
            X,
            reset=False,
            ensure_all_finite=_finite(X),
            accept_sparse="csr",
            dtype=np.float64,
        )

    def _fit_scaling(self, X: Any) -> None:
        """Tables and arrays are scaled as the command line does it; only sparse rows are not centred."""
        self._scaler: Any = StandardScaler(with_mean=False) if is_sparse(X) else Preprocessor
        self._scaler = self._scaler.fit(X)

    def _features(self, X: Any) -> Any:
        return self._scaler.transform(X).astype(np.float32)

    def _sources(
        self,
        X: Any,
        labels: NDArray[Any],
        groups: NDArray[Any],
        validation: tuple[Any, NDArray[Any]],
        names: tuple[str, ...],
        weight: NDArray[np.float64] | None,
    ) -> Sources:
        x = self._features(X)
        held = Rows(self._features(validation[0]), validation[1])
        parts = tuple(
            Rows(x[own], labels[own], None if weight is None else weight[own] / weight[own].mean())
            for own in (groups == name for name in names)
        )
        return Sources(names, parts, held, self._class_count())

    def _split(self, labels: NDArray[Any], seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        rows = np.arange(len(labels))
        counts = np.bincount(labels) if self._class_count() else np.array([2])
        held = max(round(self.validation_fraction * len(rows)), self._class_count(), 1)
        stratify = (
            labels if self._class_count() and counts.min() >= 2 and held < len(rows) - len(counts) else None
        )
        if held >= len(rows):
            raise DataError(
                f"{len(rows)} rows are too few to set a part aside for validation: give X_val and y_val"
            )
        train, rest = train_test_split(rows, test_size=held, random_state=seed % 2**32, stratify=stratify)
        return train, rest

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        random = np.random.RandomState() if self.random_state is None else self.random_state
        return int(check_random_state(random).randint(2**31 - 1))

    # -- what differs -------------------------------------------------------------------------------------

    @abstractmethod
    def _encode_labels(self, y: NDArray[Any]) -> NDArray[Any]:
        """Labels as numbers; remembers how."""

    @abstractmethod
    def _encode(self, y: NDArray[Any]) -> NDArray[Any]:
        """Further labels as the same numbers."""

    def _class_names(self) -> list[Any]:
        return []

    def _class_weights(self) -> Any:
        """By the numbers of the classes; users name them as their labels are."""
        if not isinstance(self.class_weight, Mapping):
            return self.class_weight
        names = self._class_names()
        unknown = [label for label in self.class_weight if label not in names]
        if unknown:
            raise InputError(
                f"class_weight: {unknown[0]!r} is no class; they are {', '.join(map(repr, names))}"
            )
        return {names.index(label): weight for label, weight in self.class_weight.items()}

    def _class_count(self) -> int:
        return len(self._class_names())

    def _single_label(self, labels: NDArray[Any]) -> Any:
        return None

    def _fit_constant(self) -> Self:
        raise AssertionError("only a classifier can have a single label")

    def _scores(self, X: Any) -> NDArray[Any]:
        check_is_fitted(self)
        X = self._read_more(X)
        if is_sparse(X) and not self._sparse:
            X = X.toarray()
        return np.asarray(self._predictor.predict(self._features(X)), dtype=np.float64)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags


class MixtureClassifier(ClassifierMixin, _MixtureEstimator):  # type: ignore[misc]
    """A classifier trained on the mixture of sources that does best on the target's validation rows.

    Parameters
    ----------
    estimator
        The model: None or ``"auto"``, a portfolio; ``"mlp"``, ``"linear"``, ``"lightgbm"``, ``"xgboost"``,
        ``"sklearn:NAME"``; anything with ``fit`` or ``partial_fit``; a function that makes a torch module.
    effort
        Of a portfolio, the default: ``"quick"``, ``"normal"`` or ``"thorough"`` (docs/tables.md).
    policy
        How the budget is spent: an algorithm id, a Search, or a function of a Setting that makes one; None
        is ``auto``.
    metric
        What the user wants to be good: a name or a function of labels and predictions.
    objective
        What the search minimises: ``"loss"``, or the ``"metric"`` itself.
    budget
        Λ: SGD steps in all; trees, for boosting. None is chosen from the data.
    steps
        λ: steps of a node.
    batch_size
        Rows of a step.
    lr
        η: the step size.
    minimum, maximum
        Bounds of weights by source.
    max_passes
        How often a source's rows may be read at the most.
    baselines
        Ids whose validation scores are wanted too, each at the same budget, in ``baselines_``.
    holdout
        Share of the validation rows that only score; None: a quarter from 150 rows on.
    nested
        Score by five whole fits on parts of the validation rows.
    reference
        What the verdict compares with: ``"uniform"``, ``"all"`` or ``"none"``.
    attribution
        What each source is worth: ``"loo"``, ``"shapley"`` or None.
    stop_early
        End a tree search once what it can gain is below the noise.
    use_target_rows
        Whether the target's own rows may train: ``"auto"`` or ``"never"``; None leaves it to the policy.
    class_weight
        ``"balanced"``, or factors by class.
    validation_fraction
        Of the rows, set aside as validation rows where ``fit`` gets none.
    storage, study, resume
        Where the study is kept, its name there, and whether to go on with it.
    workers
        Processes that train; the answer is the same for any number.
    time_limit
        Seconds.
    random_state
        The seed; an int, a numpy generator or None.
    unit, schedule, untrained_root, reset_optimizer, nu, rho, optimism, returns, width, init, segments
        As of ``mixtree.fit``.

    Attributes
    ----------
    mixture_
        Weight by source.
    members_
        Of a portfolio: each member's name, weight, own score and rows read.
    verdict_
        How sure the result is, and compared with what.
    tree_, history_, spent_, reason_, chosen_
        All nodes; the best one by steps; steps by phase; why the study ended; what was chosen.
    metric_, best_score_, baselines_
        The metric's name, the model's value of it on the validation rows, and that of the baselines.

    References
    ----------
    Faw et al., *Mix and Match*. What each policy does: docs/policies.md; the verdict: docs/verdict.md.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, state = rng.normal(size=(300, 2)), np.repeat(["fl", "ct"], 150)
    >>> y = (X[:, 0] > 0).astype(int)
    >>> model = MixtureClassifier("linear", budget=60, reference="none")
    >>> model = model.fit(X, y, source=state, X_val=X[:50], y_val=y[:50])
    >>> sorted(model.mixture_), model.predict(X[:3]).shape
    (['ct', 'fl'], (3,))
    """

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes in ``classes_``."""
        check_is_fitted(self)
        if self._constant is not None:
            return np.ones((self._read_more(X).shape[0], 1))
        chances = self._scores(X)
        # Of 32 bits they add up to 1 to seven digits, which scikit-learn's metrics warn of.
        return np.asarray(chances / chances.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of every row."""
        check_is_fitted(self)
        found: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return found

    def _encode_labels(self, y: NDArray[Any]) -> NDArray[Any]:
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        return labels.astype(np.int64)

    def _encode(self, y: NDArray[Any]) -> NDArray[Any]:
        values, places = np.unique(y, return_inverse=True)
        known = {label: number for number, label in enumerate(self.classes_.tolist())}
        unknown = sorted(set(values.tolist()) - known.keys(), key=str)
        if unknown:
            raise DataError(f"y_val has classes that no source has: {', '.join(map(repr, unknown))}")
        return np.array([known[label] for label in values.tolist()], dtype=np.int64)[places]

    def _class_names(self) -> list[Any]:
        names: list[Any] = self.classes_.tolist()
        return names

    def _single_label(self, labels: NDArray[Any]) -> Any:
        return self.classes_[0] if len(self.classes_) == 1 else None

    def _fit_constant(self) -> Self:
        """One class only: there is nothing to learn and nothing to search."""
        self.mixture_, self.tree_, self.history_ = {}, Tree(), []
        self.members_, self._files = [], None
        self.baselines_, self.best_score_ = {}, float("nan")
        self.spent_, self.chosen_, self.metric_ = {}, (), "none"
        self.reason_ = "there is one class only"
        self.verdict_ = no_verdict(
            "none",
            "there is one class only: nothing was learnt, nothing can be scored",
            next_step="add rows of another class",
        )
        return self


class MixtureRegressor(RegressorMixin, _MixtureEstimator):  # type: ignore[misc]
    """A regressor trained on the mixture of sources that does best on the target's validation rows.

    Parameters
    ----------
    estimator
        The model: None or ``"auto"``, a portfolio; ``"mlp"``, ``"linear"``, ``"lightgbm"``, ``"xgboost"``,
        ``"sklearn:NAME"``; anything with ``fit`` or ``partial_fit``; a function that makes a torch module.
    effort
        Of a portfolio, the default: ``"quick"``, ``"normal"`` or ``"thorough"`` (docs/tables.md).
    policy
        How the budget is spent: an algorithm id, a Search, or a function of a Setting that makes one; None
        is ``auto``.
    metric
        What the user wants to be good: a name or a function of labels and predictions.
    objective
        What the search minimises: ``"loss"``, or the ``"metric"`` itself.
    budget
        Λ: SGD steps in all; trees, for boosting. None is chosen from the data.
    steps
        λ: steps of a node.
    batch_size
        Rows of a step.
    lr
        η: the step size.
    minimum, maximum
        Bounds of weights by source.
    max_passes
        How often a source's rows may be read at the most.
    baselines
        Ids whose validation scores are wanted too, each at the same budget, in ``baselines_``.
    holdout
        Share of the validation rows that only score; None: a quarter from 150 rows on.
    nested
        Score by five whole fits on parts of the validation rows.
    reference
        What the verdict compares with: ``"uniform"``, ``"all"`` or ``"none"``.
    attribution
        What each source is worth: ``"loo"``, ``"shapley"`` or None.
    stop_early
        End a tree search once what it can gain is below the noise.
    use_target_rows
        Whether the target's own rows may train: ``"auto"`` or ``"never"``; None leaves it to the policy.
    class_weight
        Of classifiers alone.
    validation_fraction
        Of the rows, set aside as validation rows where ``fit`` gets none.
    storage, study, resume
        Where the study is kept, its name there, and whether to go on with it.
    workers
        Processes that train; the answer is the same for any number.
    time_limit
        Seconds.
    random_state
        The seed; an int, a numpy generator or None.
    unit, schedule, untrained_root, reset_optimizer, nu, rho, optimism, returns, width, init, segments
        As of ``mixtree.fit``.

    Attributes
    ----------
    mixture_
        Weight by source.
    members_
        Of a portfolio: each member's name, weight, own score and rows read.
    verdict_
        How sure the result is, and compared with what.
    tree_, history_, spent_, reason_, chosen_
        All nodes; the best one by steps; steps by phase; why the study ended; what was chosen.
    metric_, best_score_, baselines_
        The metric's name, the model's value of it on the validation rows, and that of the baselines.

    References
    ----------
    Faw et al., *Mix and Match*. What each policy does: docs/policies.md; the verdict: docs/verdict.md.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, state = rng.normal(size=(300, 2)), np.repeat(["fl", "ct"], 150)
    >>> y = X[:, 0] + 3
    >>> model = MixtureRegressor("linear", budget=60, reference="none")
    >>> model = model.fit(X, y, source=state, X_val=X[:50], y_val=y[:50])
    >>> sorted(model.mixture_), model.predict(X[:3]).shape
    (['ct', 'fl'], (3,))
    """

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predictions in the units of y."""
        scores = self._scores(X)  # which sees that it was fitted
        return np.asarray(scores)

    def _encode_labels(self, y: NDArray[Any]) -> NDArray[Any]:
        return self._encode(y)

    def _encode(self, y: NDArray[Any]) -> NDArray[Any]:
        try:
            return np.asarray(y, dtype=np.float64)
        except (ValueError, TypeError) as error:
            raise DataError(f"the labels of a regression are numbers: {error}") from error


_SOURCE_ROWS = (
    "this fit is a part of a cross-validation, whose held-out rows are rows of the sources, not of the "
    "target: its scores do not say how well the target is predicted. Split the target's rows instead (fit "
    "with some of them as X_val and y_val, score the others), or read verdict_ of one fit (nested=True "
    "scores all of them)"
)


def _weights_of(sample_weight: Any, rows: int) -> NDArray[np.float64]:
    """Checked weights of the rows; one number is that of each."""
    weight = np.asarray(sample_weight, dtype=np.float64)
    weight = np.full(rows, weight) if weight.ndim == 0 else weight
    if weight.shape != (rows,):
        raise DataError(f"sample_weight must be one number per row: {rows} rows, got shape {weight.shape}")
    if not np.isfinite(weight).all() or weight.min() < 0.0:
        raise DataError("sample_weight must be finite and at least 0")
    if not weight.any():
        raise DataError("every sample weight is zero: no row is left to learn from")
    return weight


def _findings(estimator: Any) -> dict[str, list[str]]:
    """Verdict, mixture and members of a fitted estimator, in words."""
    found = {"verdict": str(estimator.verdict_).splitlines()}
    if estimator.mixture_:
        found["mixture"] = [f"{name} {weight:.3f}" for name, weight in estimator.mixture_.items()]
    if estimator.members_:
        found[f"members, weight and own {estimator.metric_}"] = [
            f"{each['name']} {each['weight']:.2f}"
            + ("" if each["score"] is None else f" ({each['score']:.4g})")
            for each in estimator.members_
        ]
    return found


def _named_source(X: Any, source: Any) -> tuple[str | None, Any, Any]:
    """The column that names the sources, if one does; the features without it; the source of every row."""
    if not isinstance(source, str):
        return None, X, source
    columns = frame_columns(X)
    if columns is None or source not in columns:
        has = "has no names of columns" if columns is None else f"has {', '.join(map(str, columns[:10]))}"
        raise DataError(f"source={source!r} is to be a column of X, which {has}")
    return source, _without(X, source), np.asarray(X[source])


def _without(X: Any, column: str) -> Any:
    """A data frame without this column."""
    return X.drop(columns=[column]) if hasattr(X, "iloc") else as_frame(X).drop(column)


def _in_cross_validation() -> bool:
    """Whether scikit-learn splits the rows that fit was given.

    Nothing else says so: a clone may just as well be fitted by hand. Only this package's and scikit-learn's
    functions are looked through: who calls fit in an estimator of their own knows what is split.
    """
    frame = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _BETWEEN:
        if frame.f_globals["__name__"] == "sklearn.model_selection._validation":
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


_BETWEEN = ("mixtree", "sklearn", "contextlib")


def _is_table(X: Any) -> bool:
    """What is read as a table, all else as an array of numbers.

    Frames with missing values or a column that is no number, and arrays of objects some of which are text.
    """
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2:
        return any(isinstance(value, str) for value in X.flat)
    if frame_columns(X) is None or not hasattr(X, "dtypes"):
        return False
    kinds = X.dtypes if isinstance(X.dtypes, list) else list(X.dtypes)
    if not all(_is_number(kind) for kind in kinds):
        return True
    return len(X) > 0 and bool(_missing(np.asarray(X)).any())


def _finite(X: Any) -> bool | str:
    """What scikit-learn is to check: missing values of dense rows are imputed."""
    return True if is_sparse(X) else "allow-nan"


def _refuse_text(X: Any) -> None:
    if is_sparse(X) or frame_columns(X) is not None:
        return
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise DataError(f"X must be a table (rows × columns): {error}") from error
    if array.dtype.kind not in "SU":
        return
    try:
        array.astype(np.float64)
    except ValueError as error:
        raise DataError(
            "X is an array of text, in which numbers and text cannot be told apart: give a DataFrame, or an"
            " array of dtype object"
        ) from error


def _missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where values are missing: None, NaN, and what pandas has for it."""
    if values.dtype.kind in "biuSU":
        return np.zeros(values.shape, dtype=np.bool_)
    if values.dtype.kind == "O":
        return np.array([is_missing(each) for each in values.flat], dtype=np.bool_).reshape(values.shape)
    return np.asarray(values != values)


def _refuse_missing(values: Any, name: str, remedy: str) -> None:
    # A list of text turns NaN into a word.
    known = values if hasattr(values, "dtype") else np.array(list(values), dtype=object)
    missing = int(_missing(np.asarray(known)).sum())
    if missing:
        raise DataError(f"{name} is missing in {missing} of {len(values)} rows: {remedy}")


def _one_column(y: Any) -> NDArray[Any]:
    """Labels as one row of values; a table of one column is no more than that."""
    labels = np.asarray(y)
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _is_number(kind: Any) -> bool:
    numeric = getattr(kind, "is_numeric", None)
    if numeric is not None and callable(numeric):
        return bool(numeric())
    try:
        return bool(np.issubdtype(np.dtype(kind), np.number) or np.dtype(kind) == np.bool_)
    except TypeError:
        return False


def _joined(X: Any, y: Any, source: Any) -> tuple[Any, Any, Any]:
    """A dictionary of sources as one table with the source of every row."""
    if not isinstance(X, Mapping) or is_sparse(X):  # a DOK array is a mapping too
        return X, y, source
    if y is not None or source is not None:
        raise InputError("give {name: (X, y)} alone, or X, y and source; not both")
    if not X:
        raise DataError("there are no sources: give at least one, {name: (X, y)}")
    for name, part in X.items():
        if not (isinstance(part, tuple | list) and len(part) == 2 and part[1] is not None):
            raise DataError(f"source {name!r}: give (X, y), features and labels")
        for values, what in zip(part, ("X", "y"), strict=False):
            refuse_lossy(values, f"{what} of source {name!r}")
    # By their names: the order in which sources are given changes nothing.
    parts = dict(sorted(X.items(), key=lambda each: str(each[0])))
    names = np.concatenate([np.full(len(part[1]), name) for name, part in parts.items()])
    labels = joined([np.asarray(part[1]) for part in parts.values()], "y")
    return _stack([part[0] for part in parts.values()]), labels, names


def _stack(parts: list[Any]) -> Any:
    if frame_columns(parts[0]) is not None:
        import polars as pl

        first, *others = (as_frame(part) for part in parts)
        alike = [in_order(frame, first.columns, "a source", "the first one") for frame in others]
        return pl.concat([first, *alike], how="vertical_relaxed")
    if any(is_sparse(part) for part in parts):
        from scipy import sparse

        return sparse.vstack(parts, format="csr")
    return np.concatenate([np.asarray(part) for part in parts])


def _rows(X: Any, index: NDArray[Any]) -> Any:
    if X is None:
        return None
    if hasattr(X, "iloc"):
        return X.iloc[index]
    if isinstance(X, list):
        return [X[place] for place in index]
    return X[index]
