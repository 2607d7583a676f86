"""The front door: sources and validation rows in, the best mixture and model out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mixtree.algorithms import Setting, make_search, training_sources
from mixtree.data.sources import Rows, Sources
from mixtree.errors import DataError, InputError
from mixtree.events import Listener
from mixtree.metrics import Metric, as_metric, check_metric, default_metric
from mixtree.models import ModelOptions, make_trainer
from mixtree.search import Search
from mixtree.storage.base import Storage
from mixtree.study import Result, run
from mixtree.trainer import Evaluation, Trainer

DEFAULT_POLICY = "mixmatch-bisect+commit"


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class FitOptions:
    """What a user can choose; None is chosen from the data by ``choose``."""

    model: Any = "mlp"
    policy: str = DEFAULT_POLICY
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
    class_weight: str | None = None
    use_target_rows: Literal["never", "auto"] | None = None
    init: Mapping[str, Any] | None = None
    seed: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class Chosen:
    """The numbers of a fit once everything is decided."""

    budget: int
    steps: int
    batch_size: int
    metric: Metric
    notes: tuple[str, ...]
    """What was chosen for the user, in words."""


def choose(options: FitOptions, sources: Sources) -> Chosen:
    """Decide what the user left open, from the size of the data."""
    for name in ("budget", "steps", "batch_size"):
        value = getattr(options, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"{name.replace('_', ' ')} must be a whole number of at least 1; got {value!r}")
    if isinstance(options.seed, bool) or not isinstance(options.seed, int) or options.seed < 0:
        raise InputError(f"a seed must be a whole number of at least 0; got {options.seed!r}")
    rows, notes = int(sources.sizes.sum()), []
    batch_size = options.batch_size or int(min(50, max(1, rows // 10)))
    per = batch_size if options.unit == "samples" else 1
    budget = options.budget and math.ceil(options.budget / per)
    if not budget:
        # About ten passes over all rows: enough to train, little enough to wait for.
        budget = int(np.clip(10 * rows // batch_size, 600, 20_000))
        notes.append(
            f"budget {budget} steps of {batch_size} rows (ten passes over {rows} rows, 600 to 20,000)"
        )
    steps = options.steps and math.ceil(options.steps / per)
    if not steps:
        steps = max(1, budget // 30)
        notes.append(f"{steps} steps per node (a thirtieth of the budget)")
    elif steps > budget:
        raise InputError(
            f"the budget of {budget} steps is smaller than one node of {steps}: raise the budget (--budget), "
            "or lower the steps per node (--steps)"
        )
    metric = as_metric(options.metric, classes=sources.classes) if options.metric else None
    if metric is None:
        metric = default_metric(sources.classes)
        notes.append(f"metric {metric.name}")
    check_metric(metric, sources.validation.y, sources.classes)
    return Chosen(budget, steps, batch_size, metric, tuple(notes))


def fit(
    sources: Sources | Mapping[str, Any],
    val: tuple[Any, Any] | Rows | None = None,
    *,
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

    ``sources`` is ``{name: (x, y)}`` with ``val`` = (x, y), or a Sources. ``options`` are the fields of
    FitOptions: model, policy, metric, objective, budget, steps, unit, batch_size, lr, nu, rho, optimism,
    returns, minimum, maximum, class_weight, init, seed.

    >>> from mixtree.data.synthetic import synthetic
    >>> result = fit(synthetic(rows=200).sources, model="linear", budget=60, steps=5)
    >>> sum(result.spent.values())
    60
    """
    data = as_sources(sources, val, classes=classes)
    prepared = prepare(data, make_options(**options))
    return run(
        prepared.search,
        prepared.trainer,
        seed=prepared.options.seed,
        storage=storage,
        study=study,
        resume=resume,
        workers=workers,
        objective=prepared.objective,
        time_limit=time_limit,
        listeners=listeners,
    )


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
    search: Search
    trainer: Trainer[Any]
    objective: Any


def prepare(sources: Sources, options: FitOptions) -> Prepared:
    """Everything that can fail before training fails here."""
    chosen = choose(options, sources)
    if options.use_target_rows == "auto" and options.policy != "auto":
        raise InputError(
            f"policy {options.policy!r} never trains on the target's rows; leave use_target_rows out"
        )
    if options.maximum and options.policy.removesuffix("+commit") != "mixmatch-ch":
        raise InputError(
            f"policy {options.policy!r} cannot keep maximum weights: choose mixmatch-ch or "
            "mixmatch-ch+commit (--policy), or leave them out (--max)"
        )
    setting = make_setting(sources, options, chosen)
    search = make_search(options.policy, setting)
    model = ModelOptions(
        lr=options.lr, batch_size=chosen.batch_size, class_weight=options.class_weight, init=options.init
    )
    trainer = make_trainer(options.model, training_sources(options.policy, setting), model)
    return Prepared(options, chosen, search, trainer, make_objective(options, chosen, sources))


def make_setting(sources: Sources, options: FitOptions, chosen: Chosen) -> Setting:
    """What the policy is told."""
    names = ("nu", "rho", "optimism", "returns", "width")
    tree = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return Setting(
        sources.names,
        sources.sizes,
        chosen.budget,
        chosen.steps,
        seed=options.seed,
        minimum=_bounds(options.minimum, sources, "minimum", 0.0),
        maximum=_bounds(options.maximum, sources, "maximum", 1.0),
        options=tree,
        data=sources,
        batch_size=chosen.batch_size,
        metric=chosen.metric,
        use_target_rows=options.use_target_rows != "never",
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
        return {"metric": self.metric.name}


def as_sources(
    sources: Sources | Mapping[str, Any], val: tuple[Any, Any] | Rows | None, *, classes: int | None
) -> Sources:
    """Sources from what a user has; labels of a classification are whole numbers from 0."""
    if isinstance(sources, Sources):
        return sources
    if val is None:
        raise DataError("validation rows of the target are missing: give val=(x, y)")
    if classes is None:
        labels = [
            np.asarray(part.y if isinstance(part, Rows) else part[1]) for part in (*sources.values(), val)
        ]
        whole = all(np.issubdtype(each.dtype, np.integer) for each in labels)
        classes = int(max(each.max(initial=0) for each in labels)) + 1 if whole else 0
    return Sources.from_dict(sources, val, classes=classes)


def _bounds(given: Mapping[str, float], sources: Sources, name: str, default: float) -> list[float] | None:
    if not given:
        return None
    for source in given:
        sources.index(source)
    values = [float(given.get(source, default)) for source in sources.names]
    for source, value in zip(sources.names, values, strict=True):
        if not 0 <= value <= 1:
            raise InputError(f"the {name} weight of {source!r} must lie between 0 and 1; got {value:g}")
    return values
