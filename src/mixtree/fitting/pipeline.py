"""The front door: sources and validation rows in, the best mixture and model out."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mixtree.data.columns import refuse_row_numbers
from mixtree.data.identity import identity
from mixtree.data.labelscale import LabelScale
from mixtree.data.leakage import independent
from mixtree.data.sources import MOST_CLASSES, TEST, Rows, Sources, columns_of, rows_from
from mixtree.engine.study import Result, load_study, opened, run, seconds_left
from mixtree.errors import DataError, InputError
from mixtree.events import Listener
from mixtree.metrics import NAMES, Metric, as_metric, check_metric, class_names, default_metric
from mixtree.policies.early_stop import stop_early
from mixtree.policies.registry import chooses, make_search, training_sources
from mixtree.policies.setting import MANY_PASSES, AutoOptions, Setting
from mixtree.search import SEGMENTS, SearchBase
from mixtree.seeds import check_seed
from mixtree.stats.selection import nested_folds
from mixtree.storage.base import Storage
from mixtree.trainer import Evaluation, Trainer, TrainerBase, as_trainer
from mixtree.trainers.registry import TREES, ModelOptions, Predictor, make_trainer, own_trees, usual_budget
from mixtree.verdict import Role, Verdict, holdout
from mixtree.verdict.judge import judged
from mixtree.verdict.references import TimeLimit

DEFAULT_POLICY = "auto"
TREE_OPTIONS = (
    "steps", "nu", "rho", "optimism", "returns", "width", "minimum", "maximum", "stop_early"
)  # fmt: skip
"""Options that only a tree search knows."""
_LARGE_BATCH, _MOST_READ = 1 << 16, 10**11
"""Rows of a batch that need not be so many different ones; rows that a budget may read in all."""
_FEW_EACH = 4  # rows of a label, on average, below which many labels are hardly classes
_MOST_GIVEN = 1_000_000  # classes; a model has weights for each
_KEPT = 2e7  # predictions of all nodes together that are kept for the verdict: some 160 MB

_KINDS: dict[str, tuple[Any, str]] = {
    "policy": (str, "text"),
    "nu": (Real | str, "a number, or 'auto'"),
    "rho": (Real, "a number"),
    "optimism": (Real, "a number"),
    "max_passes": (Real, "a number"),
    "holdout": (Real, "a number"),
    "width": (int, "a whole number"),
    "minimum": (Mapping, "numbers by the names of sources"),
    "maximum": (Mapping, "numbers by the names of sources"),
}
"""What options are; the ranges of numbers are looked at where they are used."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FitOptions:
    """What a user can choose; None is chosen from the data by ``choose``."""

    model: Any = "mlp"
    policy: str | None = None
    """None: ``auto``, or a tree search if an option is given that only it knows."""
    metric: Any = None
    objective: Literal["loss", "metric"] = "loss"
    budget: int | None = None
    steps: int | None = None
    unit: Literal["steps", "samples"] = "steps"
    batch_size: int | None = None
    lr: float | None = None
    nu: float | Literal["auto"] | None = None
    rho: float | None = None
    optimism: float | None = None
    returns: Literal["deepest", "best"] | None = None
    width: int | None = None
    minimum: Mapping[str, float] = field(default_factory=dict)
    maximum: Mapping[str, float] = field(default_factory=dict)
    max_passes: float | None = None
    """How often a model may read a source's rows at the most: a cap on the weights of small sources.

    Where the caps of all sources together are too small for the budget, the rest of it is not spent.
    """
    class_weight: Any = None
    """``balanced``, or factors by class."""
    use_target_rows: Literal["never", "auto"] | None = None
    init: Mapping[str, Any] | str | FilePath | None = None
    """Arrays of a model to start from, or where they are: a safetensors file, or a model folder."""
    seed: int = 0
    segments: int = SEGMENTS
    """Parts of a long stage, each of at least 50 steps, stored and evaluated; they change no weights."""
    stop_early: bool = False
    """End a tree search once what it can still gain is below the noise of its values."""
    holdout: float | None = None
    """Share of the validation rows that only score; None: a quarter, or none if there are fewer than 150."""
    nested: bool = False
    """Score by fits on parts of the validation rows, several times the cost."""
    reference: Literal["uniform", "all", "none"] = "uniform"
    attribution: Literal["loo", "shapley"] | None = None
    """What each source is worth, by leaving it out; trained outside the budget."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, np.generic):  # of a grid that numpy made
                object.__setattr__(self, name, value.item())
        for name, (kind, words) in _KINDS.items():
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
                raise InputError(f"{name} must be {words}; got {value!r}")


@dataclass(frozen=True, eq=False, slots=True)
class Chosen:
    """The numbers of a fit once everything is decided."""

    budget: int
    steps: int
    batch_size: int
    metric: Metric
    notes: tuple[str, ...]
    """What was chosen for the user, in words."""
    warnings: tuple[str, ...] = ()


def choose(options: FitOptions, sources: Sources) -> Chosen:
    """Decide what the user left open, from the size of the data."""
    for name in ("budget", "steps", "batch_size", "segments"):
        value = getattr(options, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"{name.replace('_', ' ')} must be a whole number of at least 1; got {value!r}")
    if options.lr is not None and not isinstance(options.lr, int | float):
        raise InputError(f"the step size must be a number; got {options.lr!r}")
    check_seed(options.seed)
    rows, notes, warnings = int(sources.sizes.sum()), [], tuple[str, ...]()
    batch_size = options.batch_size or int(min(50, max(1, rows // 10)))
    if batch_size > max(rows, _LARGE_BATCH):
        raise InputError(
            f"the batch size must be at most {max(rows, _LARGE_BATCH):,}; got {batch_size}: the sources have "
            f"{rows:,} rows in all"
        )
    per = batch_size if options.unit == "samples" else 1
    budget = options.budget and math.ceil(options.budget / per)
    if not budget and (trees := usual_budget(options.model)):
        # A step is a tree, on a sample of all rows: passes over the rows say nothing of how many are enough.
        budget = trees
        own = "yours" if budget != TREES else "as many as the library makes by default"
        notes.append(f"budget {budget:,} trees, a step each ({own})")
    elif not budget:
        # About ten passes over all rows: enough to train, little enough to wait for.
        # With huge batches 600 steps are not few: no more than many passes.
        least = int(np.clip(MANY_PASSES * rows // batch_size, 60, 600))
        budget = int(np.clip(10 * rows // batch_size, least, 20_000))
        passes = budget * batch_size / rows
        why = f"ten passes over {rows:,} rows, {least} to 20,000"
        if passes < 9.0:
            why = f"at most 20,000, {passes:.2g} passes over {rows:,} rows; --budget for more"
        notes.append(f"budget {budget:,} steps of {batch_size} rows ({why})")
    elif (passes := budget * batch_size / rows) > MANY_PASSES and options.max_passes is None:
        warnings = (
            f"the budget is {passes:,.0f} passes over all {rows:,} rows: more than a model can use; it may "
            "overfit them (--max-passes limits it)",
        )
    if budget * batch_size > _MOST_READ:
        raise InputError(
            f"a budget of {budget} steps of {batch_size} rows reads more than {_MOST_READ:,} rows: lower the "
            "budget (--budget) or the batch size (--batch-size)"
        )
    asked = own_trees(options.model)
    if asked and asked != budget:
        notes.append(f"the budget is {budget:,} trees in all: the model's own {asked:,} do not count")
    steps = options.steps and math.ceil(options.steps / per)
    if not steps:
        steps = max(1, budget // 30)
        if (options.policy or DEFAULT_POLICY).startswith("mixmatch"):
            notes.append(f"{steps} steps per node (a thirtieth of the budget)")
    elif steps > budget:
        raise InputError(
            f"the budget of {budget} steps is smaller than one node of {steps}: raise the budget (--budget), "
            "or lower the steps per node (--steps)"
        )
    metric = metric_of(options, sources.classes)
    if not options.metric:
        notes.append(f"metric {metric.name}")
    check_metric(metric, sources.validation.y, sources.classes)
    return Chosen(budget, steps, batch_size, metric, tuple(notes), warnings)


def metric_of(options: FitOptions, classes: int) -> Metric:
    """The metric that was asked for, or the usual one."""
    return as_metric(options.metric, classes=classes) if options.metric else default_metric(classes)


def scaled(
    sources: Sources, options: FitOptions, scale: LabelScale | None = None
) -> tuple[Sources, FitOptions, LabelScale]:
    """A regression's labels at size 1, and its metric in the label's own units; a classification as it is.

    Every door that scales labels does it here, so that all of them minimise the same. ``scale`` is that of a
    model to start from.
    """
    scale = LabelScale.of(sources) if scale is None else scale
    if sources.classes:
        return sources, options, scale
    return scale.sources(sources), replace(options, metric=scale.metric(metric_of(options, 0))), scale


def fit(
    sources: Sources | Mapping[str, Any],
    val: tuple[Any, Any] | Rows | None = None,
    *,
    test: tuple[Any, Any] | Rows | None = None,
    classes: int | None = None,
    storage: Storage | str | FilePath | None = None,
    study: str = "fit",
    resume: bool = False,
    workers: int = 1,
    time_limit: float | None = None,
    listeners: Sequence[Listener] = (),
    **options: Any,
) -> Result[Any]:
    """Find the mixture of sources and the model that do best on the validation rows.

    Features and labels are taken as they are: bring them to about size 1, or use MixtureClassifier and
    MixtureRegressor, which do it. Columns of DataFrames are matched by name.

    Parameters
    ----------
    sources
        ``{name: (x, y)}`` or ``{name: (x, y, weight)}``, or a Sources.
    val
        Labelled rows of the target, ``(x, y)``; they count alike. None if ``sources`` is a Sources.
    test
        More such rows, which only score.
    classes
        Number of classes, 0 for a regression. By default whole numbers are classes 0, 1, …
    storage
        Where the study is kept: a file name, a database URL or a Storage; None: in memory.
    study
        Its name there.
    resume
        Go on with the study of this name.
    workers
        Processes that train; the answer is the same for any number.
    time_limit
        Seconds; what the study leaves of them is for the references.
    listeners
        Called with every event.
    **options
        The fields of FitOptions: model, policy, metric, objective, budget, steps, unit, batch_size, lr, nu,
        rho, optimism, returns, width, minimum, maximum, max_passes, class_weight, use_target_rows, init,
        seed, stop_early; and those of the verdict (docs/verdict.md): holdout, nested, reference, attribution.

    Returns
    -------
    Result
        With ``weights``, ``verdict`` and ``tree``; ``result.predict(x)`` predicts further rows.

    References
    ----------
    Faw et al., *Mix and Match*. What each policy does: docs/policies.md.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> result = fit(synthetic(rows=200).sources, model="linear", budget=60, steps=5)
    >>> sum(result.spent.values())
    60
    >>> list(result.verdict.as_dict()["against"][0])
    ['name', 'difference', 'low', 'high', 'p']
    """
    started = time.monotonic()
    data = as_sources(sources, val, classes=classes)
    columns = columns_of(val, *(() if isinstance(sources, Sources) else sources.values()))
    data, judges, told = independent(data, None if test is None else as_rows(test, data, columns))
    prepared = prepare(data, make_options(**options), test=judges)
    left, began = seconds_left(time_limit, started), time.monotonic()
    # Preparing has told which classes have no validation rows; that parts of those lack them too is no news.
    with class_names(told=True), opened(storage, kept=prepared.keep_predictions) as place:
        result = run(
            prepared.search,
            prepared.trainer,
            seed=prepared.options.seed,
            storage=place,
            study=study,
            resume=resume,
            workers=workers,
            objective=prepared.objective,
            time_limit=left,
            listeners=listeners,
            keep_predictions=prepared.keep_predictions,
            data=prepared.given,
        )
        limit = TimeLimit.after(result, began, left)
        result = judged(prepared, result, storage=place, listeners=listeners, limit=limit, warnings=told)
    if prepared.trainer.predict is None:
        return result
    model = Predictor(prepared.options.model, prepared.trainer, result.state, data, columns)
    return replace(result, model=model)


def load(storage: Storage | str | FilePath, study: str, trainer: Trainer[Any] | None = None) -> Result[Any]:
    """The result of a stored study.

    Parameters
    ----------
    storage
        A file name, a database URL or a Storage.
    study
        Its name there.
    trainer
        Makes its own state of the stored arrays; without one ``state`` is those arrays.

    Returns
    -------
    Result
        With its verdict, if the study is a fit's.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from mixtree.data.synthetic import synthetic
    >>> with TemporaryDirectory() as folder:
    ...     place = FilePath(folder, "study.db")
    ...     result = fit(synthetic(rows=100).sources, model="linear", budget=60, steps=20, storage=place)
    ...     load(place, "fit").weights == result.weights
    True
    """
    with opened(storage, exists=True) as place:
        result, told = load_study(place, study, trainer), place.verdict(study)
    return result if told is None else replace(result, verdict=Verdict.from_dict(told))


def make_options(**options: Any) -> FitOptions:
    """FitOptions from keywords, with an error for people where one is unknown."""
    known = FitOptions.__dataclass_fields__
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}; the options are {', '.join(known)}")
    return FitOptions(**options)


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """A fit that is ready to run."""

    options: FitOptions
    chosen: Chosen
    search: SearchBase
    trainer: TrainerBase[Any]
    objective: Any
    sources: Sources
    """With the validation rows that choose: without those held out."""
    given: Sources
    judges: Rows | None
    """Rows that only score: test rows, or validation rows that were held out."""
    role: Role
    """What the judges are."""
    setting: Setting
    model: ModelOptions

    @property
    def policy(self) -> str:
        """The id of the policy, once it is decided."""
        return self.options.policy or DEFAULT_POLICY

    @property
    def metric(self) -> Metric:
        return self.chosen.metric

    @property
    def batch_size(self) -> int:
        return self.chosen.batch_size

    @property
    def seed(self) -> int:
        return self.options.seed

    @property
    def reference(self) -> str:
        return self.options.reference

    @property
    def attribution(self) -> str | None:
        return self.options.attribution

    @property
    def nested(self) -> bool:
        return self.options.nested

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was known before it ran."""
        return self.chosen.warnings

    @property
    def bounded(self) -> bool:
        """Whether weights were bounded."""
        return bool(self.options.minimum or self.options.maximum or self.options.max_passes)

    @property
    def ends_early(self) -> bool:
        """Whether the search may end before its budget does."""
        return self.options.stop_early

    def trainer_for(self, sources: Sources) -> TrainerBase[Any]:
        """A trainer of the same model on these sources, which computes as the fit's own does."""
        if self.trainer.sources is sources:
            return self.trainer
        trainer = as_trainer(make_trainer(self.options.model, sources, self.model))
        trainer.engine = self.trainer.engine
        return trainer

    def again(self, sources: Sources, *, budget: int) -> Prepared:
        """The same fit on other rows, not run yet; nothing is held out."""
        chosen = self.chosen
        options = replace(
            self.options,
            nested=False,
            holdout=0.0,
            budget=budget,
            steps=min(chosen.steps, budget),
            batch_size=chosen.batch_size,
            unit="steps",
        )
        own = prepare(sources, options)
        own.trainer.engine = self.trainer.engine
        return own

    @property
    def held_out(self) -> int:
        """Validation rows that only score."""
        return len(self.given.validation) - len(self.sources.validation)

    @property
    def keep_predictions(self) -> bool:
        """Whether every node's predictions of the validation rows are worth their room."""
        nodes = self.chosen.budget / self.chosen.steps + 4 * self.setting.segments
        return nodes * len(self.sources.validation) * max(1, self.sources.classes) <= _KEPT


def prepare(sources: Sources, options: FitOptions, *, test: Rows | None = None) -> Prepared:
    """Everything that can fail before training fails here."""
    check_seed(options.seed)
    if not callable(options.model):  # a torch module may read the rows itself, by their numbers
        refuse_row_numbers([part.x for part in sources.rows])
    policy, why = _decide_policy(options)
    options = replace(options, policy=policy)
    _check_policy(options, policy)
    _check_judging(sources, options, tested=test is not None)
    nested = options.nested and nested_folds(sources.validation, sources.classes, options.seed) is not None
    share = 0.0 if test is not None or nested or not chooses(policy) else None
    kept, held = holdout(
        sources,
        options.holdout if options.holdout is not None else share,
        seed=options.seed,
        metric=metric_of(options, sources.classes),
    )
    chosen = choose(options, kept)
    chosen = replace(chosen, notes=(why, *chosen.notes))
    setting = make_setting(kept, options, chosen)
    search = make_search(policy, setting)
    if options.stop_early:
        search = stop_early(search)
    model = ModelOptions(
        lr=options.lr,
        batch_size=chosen.batch_size,
        class_weight=options.class_weight,
        init=_arrays(options.init),
    )
    trainer = as_trainer(make_trainer(options.model, training_sources(policy, setting), model))
    return Prepared(
        options,
        chosen,
        search,
        trainer,
        make_objective(options, chosen, kept),
        kept,
        sources,
        held if test is None else test,
        "holdout" if test is None else "test",
        setting,
        model,
    )


def _arrays(init: Any) -> Mapping[str, Any] | None:
    """The arrays of a model to start from: as they are, or those in a file or a model folder."""
    if init is None or isinstance(init, Mapping):
        return init
    if not isinstance(init, str | FilePath):
        raise InputError(
            f"init takes a model's arrays (trainer.save(state)), a safetensors file or a model folder; got "
            f"{type(init).__name__}"
        )
    from mixtree.fitting.model_folder import read_weights

    return read_weights(FilePath(init))


def _decide_policy(options: FitOptions) -> tuple[str, str]:
    """The policy, and why it is that one."""
    asked = {name: getattr(options, name) for name in TREE_OPTIONS}
    given = [name for name, each in asked.items() if each is not None and each is not False and each != {}]
    if options.policy is None and given:
        policy = "mixmatch-ch+commit" if _caps(options) else "mixmatch-bisect+commit"
        return policy, f"policy {policy}, since only a tree search knows {' and '.join(given)}"
    policy = options.policy or DEFAULT_POLICY
    wrong = [name for name in given if name != "steps"]  # which a policy without nodes can do without
    if policy == "auto" and wrong:
        raise InputError(
            f"policy 'auto' knows no {' and '.join(wrong)}: only a tree search does; leave the policy out, "
            "or choose one of the mixmatch policies"
        )
    return policy, f"policy {policy}"


def _check_policy(options: FitOptions, policy: str) -> None:
    if options.use_target_rows == "auto" and policy != "auto":
        raise InputError(f"policy {policy!r} never trains on the target's rows; leave use_target_rows out")
    caps = _caps(options)
    if not (options.maximum or policy.startswith("mixmatch")):
        caps = []  # a policy that is no search over mixtures keeps to --max-passes by itself
    if caps and policy.removesuffix("+commit") != "mixmatch-ch":
        raise InputError(
            f"policy {policy!r} cannot keep maximum weights: choose mixmatch-ch or "
            f"mixmatch-ch+commit (--policy), or leave them out ({' and '.join(caps)})"
        )


def _caps(options: FitOptions) -> list[str]:
    """Flags that put a cap on weights."""
    given = {"--max": bool(options.maximum), "--max-passes": options.max_passes is not None}
    return [flag for flag, there in given.items() if there]


def _check_judging(sources: Sources, options: FitOptions, *, tested: bool) -> None:
    for name, known in (
        ("reference", ("uniform", "all", "none")),
        ("attribution", ("loo", "shapley", None)),
        ("use_target_rows", ("never", "auto", None)),
    ):
        value = getattr(options, name)
        if value not in known:
            words = ", ".join(each for each in known if each)
            raise InputError(f"{name} is one of {words}; got {value!r}")
    if not isinstance(options.nested, bool | np.bool_):
        raise InputError(f"nested is True or False; got {options.nested!r}")
    ways = {"test rows": tested, "holdout": bool(options.holdout), "nested": options.nested}
    asked = [name for name, given in ways.items() if given]
    if len(asked) > 1:
        raise InputError(f"the score comes from {asked[0]} or from {asked[1]}, not both: leave one out")
    if options.attribution == "shapley" and len(sources) > 10:
        raise InputError(
            f"Shapley values take 2^K models, and there are {len(sources)} sources: at most 10, or use 'loo'"
        )


def make_setting(sources: Sources, options: FitOptions, chosen: Chosen) -> Setting:
    """What the policy is told."""
    names = ("nu", "rho", "optimism", "returns", "width")
    tree = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    least = _bounds(options.minimum, sources, "minimum", 0.0)
    most = _bounds(options.maximum, sources, "maximum", 1.0)
    caps = _caps_of(sources, options, chosen)
    for name, low, high in zip(sources.names, least or [], most or [], strict=False):
        if low > high:
            raise InputError(f"the minimum weight of {name!r} is {low:g}, above its maximum of {high:g}")
    return Setting(
        sources.names,
        sources.sizes,
        chosen.budget,
        chosen.steps,
        seed=options.seed,
        minimum=least,
        maximum=most,
        options=tree,
        data=sources,
        batch_size=chosen.batch_size,
        metric=chosen.metric,
        segments=options.segments,
        caps=caps,
        use_target_rows=options.use_target_rows != "never",
        # A step size that was given is kept to; a smaller one is tried only if it diverges.
        auto=AutoOptions() if options.lr is None else AutoOptions(rates=(1.0,)),
    )


def make_objective(options: FitOptions, chosen: Chosen, sources: Sources) -> Any:
    """None for the loss; else the metric, negated where higher is better."""
    if options.objective == "loss":
        return None
    if options.objective != "metric":
        raise InputError(f"the objective must be 'loss' or 'metric'; got {options.objective!r}")
    return MetricObjective(chosen.metric, sources.validation.y)


@dataclass(frozen=True, eq=False, slots=True)
class MetricObjective:
    """The metric on the validation rows as what the search minimises: negated where higher is better."""

    metric: Metric
    y: NDArray[Any]

    def __call__(self, evaluation: Evaluation) -> Evaluation:
        if evaluation.predictions is None:
            raise InputError("objective 'metric' needs a model that predicts; this one only gives a score")
        value = self.metric.signed(self.metric(self.y, evaluation.predictions))
        error = self.metric.standard_error(self.y, evaluation.predictions)
        return replace(evaluation, value=value, standard_error=error)

    def describe(self) -> dict[str, Any]:
        """The metric; the rows are part of the data's fingerprint."""
        own = {} if self.metric.name in NAMES else {"function": identity(self.metric.values)}
        return {"metric": self.metric.name, **own}


def as_sources(
    sources: Sources | Mapping[str, Any], val: tuple[Any, Any] | Rows | None, *, classes: int | None
) -> Sources:
    """Sources from what a user has; labels of a classification are whole numbers from 0."""
    if isinstance(sources, Sources):
        return sources
    if not isinstance(sources, Mapping):
        raise DataError(f"sources are a dictionary {{name: (x, y)}}; got {type(sources).__name__}")
    if classes is not None and not (type(classes) is int and 0 <= classes <= _MOST_GIVEN):
        raise DataError(f"classes is a whole number from 0 to {_MOST_GIVEN:,}; got {classes!r}")
    if val is None:
        raise DataError("validation rows of the target are missing: give val=(x, y)")
    # By their names: the order in which sources are given changes nothing.
    named = dict(sorted(sources.items(), key=lambda each: str(each[0])))
    given = Sources.from_dict(named, val, classes=None)
    if classes is not None:
        return replace(given, classes=classes)
    return replace(given, classes=_classes([part.y for part in (*given.rows, given.validation)]))


def _classes(labels: Sequence[NDArray[Any]]) -> int:
    """How many classes whole numbers are, 0 for a regression; refuses what may be either."""
    if not all(np.issubdtype(each.dtype, np.integer) for each in labels):
        kinds = np.unique(np.concatenate([np.unique(each) for each in labels]))
        if len(kinds) <= 2 and np.isin(kinds, (0.0, 1.0)).all():
            raise DataError(
                "the labels are the numbers 0.0 and 1.0: give whole numbers (y.astype(int)) if they are "
                "classes, or classes=0 for a regression"
            )
        return 0
    most, rows = int(max(each.max(initial=0) for each in labels)), sum(map(len, labels))
    different = len(np.unique(np.concatenate([np.unique(each) for each in labels])))
    many = different > MOST_CLASSES and _FEW_EACH * different > rows
    if many or most > max(2 * different, MOST_CLASSES):
        raise DataError(
            f"the labels are whole numbers up to {most:,} with {different:,} different values: give "
            "classes=0 for a regression, or number the classes 0, 1, … and say how many they are (classes=…)"
        )
    return most + 1


def as_rows(part: tuple[Any, Any] | Rows, sources: Sources, columns: Sequence[Any] | None = None) -> Rows:
    """Further rows of the target, checked against the sources; ``columns`` are the names of theirs."""
    rows = rows_from(part, TEST, columns)
    return Sources((TEST,), (rows,), sources.validation, sources.classes).rows[0]


def _caps_of(sources: Sources, options: FitOptions, chosen: Chosen) -> NDArray[np.float64] | None:
    """The most that a model may read of each source, the target's rows last, as shares of the budget."""
    passes = options.max_passes
    if passes is None:
        return None
    if not (math.isfinite(passes) and passes > 0):
        raise InputError(f"max_passes must be a finite number above 0; got {passes:g}")
    rows = np.append(sources.sizes, len(sources.validation))
    return np.minimum(1.0, passes * rows / (chosen.budget * chosen.batch_size))


def _bounds(given: Mapping[str, Any], sources: Sources, name: str, default: float) -> list[float] | None:
    if not given:
        return None
    for source in given:
        sources.index(source)
    values = [given.get(source, default) for source in sources.names]
    for source, value in zip(sources.names, values, strict=True):
        if not (isinstance(value, int | float | np.number) and 0 <= value <= 1):
            raise InputError(f"the {name} weight of {source!r} must lie between 0 and 1; got {value!r}")
    return [float(value) for value in values]
