"""From rows and options to a fit that is ready to run: what can fail before training fails here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import isbuiltin, isclass, isfunction
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.bounds import default_rho
from mixtree.data.columns import refuse_row_numbers
from mixtree.data.identity import identity
from mixtree.data.labelscale import LabelScale
from mixtree.data.sources import MOST_CLASSES, TEST, Rows, Sources, rows_from
from mixtree.data.typed import Layout
from mixtree.engine.study import run
from mixtree.errors import DataError, InputError
from mixtree.fitting.model_folder import read_about, read_weights
from mixtree.fitting.options import OPTIONS, PORTFOLIO, TREE_ONLY, FitOptions, Option
from mixtree.fitting.portfolio import ONE_FAMILY, Fitter, PortfolioSearch, PortfolioTrainer, recipes_for
from mixtree.metrics import (
    NAMES,
    Metric,
    absent_classes,
    as_metric,
    check_metric,
    class_names,
    default_metric,
)
from mixtree.policies.early_stop import stop_early
from mixtree.policies.registry import chooses, kinds_of, make_search, training_sources
from mixtree.policies.setting import MANY_PASSES, AutoOptions, Setting
from mixtree.schedules import Schedule, geometric, linear, sqrt
from mixtree.search import Search, SearchBase, as_search
from mixtree.stats.selection import nested_folds
from mixtree.trainer import Evaluation, TrainerBase, as_trainer
from mixtree.trainers.families import Network
from mixtree.trainers.portfolio import AUTO
from mixtree.trainers.registry import ModelOptions, make_trainer, usual_budget
from mixtree.verdict import Role, holdout

DEFAULT_POLICY, AUTO_POLICY = "auto", "portfolio"
"""Of networks; of model auto."""
_LARGE_BATCH, _MOST_READ = 1 << 16, 10**11
"""Rows of a batch that need not be so many different ones; rows that a budget may read in all."""
_FEW_EACH = 4  # rows of a label, on average, below which many labels are hardly classes
_MOST_GIVEN = 1_000_000  # classes; a model has weights for each
_KEPT = 2e7  # predictions of all nodes together that are kept for the verdict: some 160 MB


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


def choose(options: FitOptions, sources: Sources, *, metric: Metric | None = None) -> Chosen:
    """Decide what the user left open, from the size of the data; ``metric`` scores these sources' labels."""
    rows, notes, warnings = int(sources.sizes.sum()), [], tuple[str, ...]()
    batch_size = options.batch_size or int(min(50, max(1, rows // 10)))
    if batch_size > max(rows, _LARGE_BATCH):
        raise InputError(
            f"the batch size must be at most {max(rows, _LARGE_BATCH):,}; got {batch_size}: the sources have "
            f"{rows:,} rows in all"
        )
    per = batch_size if options.unit == "samples" else 1
    budget = options.budget and math.ceil(options.budget / per)
    if not budget and isinstance(options.policy, Search):
        budget = as_search(options.policy).budget
    if not budget and (usual := usual_budget(options.model)):
        # Passes over the rows say nothing of how many steps are enough.
        budget, why = usual
        notes.append(f"budget {budget:,} {why}")
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
    steps = options.steps and math.ceil(options.steps / per)
    if not steps:
        steps = max(1, budget // 30)
        if isinstance(options.policy, str) and options.policy.startswith("mixmatch"):
            notes.append(f"{steps} steps per node (a thirtieth of the budget)")
    elif steps > budget:
        raise InputError(
            f"the budget of {budget} steps is smaller than one node of {steps}: raise the budget (--budget), "
            "or lower the steps per node (--steps)"
        )
    metric = metric_of(options, sources.classes) if metric is None else metric
    if not options.metric:
        notes.append(f"metric {metric.name}")
    check_metric(metric, sources.validation.y, sources.classes)
    return Chosen(budget, steps, batch_size, metric, tuple(notes), warnings)


def metric_of(options: FitOptions, classes: int) -> Metric:
    """The metric that was asked for, or the usual one."""
    return as_metric(options.metric, classes=classes) if options.metric else default_metric(classes)


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """A fit that is ready to run; ``pipeline.run_prepared`` runs and judges it.

    Labels of a regression are scaled in all rows here, and so in what the search minimises.
    """

    options: FitOptions
    """With the policy decided; the metric scores labels in their own units."""
    chosen: Chosen
    """With the metric that scores scaled labels."""
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
    scale: LabelScale
    """That of the labels."""
    labels: tuple[Any, ...] = ()
    """The classes as the user has them, where they are known, for messages."""
    doubts: tuple[str, ...] = ()
    """What is known of the rows beforehand, in words."""

    @property
    def policy(self) -> str:
        """The id of the policy, or the name of a search of the user's own."""
        policy = self.options.policy
        return policy if isinstance(policy, str) else _name(policy)

    @property
    def metric(self) -> Metric:
        """The metric that scores labels in their own units."""
        return metric_of(self.options, self.sources.classes)

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
        return (*self.doubts, *self.chosen.warnings)

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
        chosen, policy = self.chosen, self.options.policy
        if isinstance(policy, Search):
            raise InputError(
                "nested fits need a search of their own each: give a function that makes one of a Setting"
            )
        options = replace(
            self.options,
            nested=False,
            holdout=0.0,
            budget=budget,
            steps=min(chosen.steps, budget),
            batch_size=chosen.batch_size,
            unit="steps",
        )
        own = _prepared(sources, options, None, self.scale, self.model.layout)
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


def prepare(
    sources: Sources,
    options: FitOptions,
    *,
    test: Rows | None = None,
    scale: LabelScale | None = None,
    labels: Sequence[Any] = (),
    told: bool = False,
    doubts: Sequence[str] = (),
    layout: Layout | None = None,
) -> Prepared:
    """Everything that can fail before training fails here; every door begins with it.

    Parameters
    ----------
    sources
        The rows, with labels in their own units.
    options
        What the user has chosen.
    test
        Rows of the target that only score, in the same units. They are left out, with a warning, where the
        metric says nothing on them.
    scale
        Of a regression's labels; by default that of the model to start from, else that of the sources.
    labels
        The classes as the user has them, for messages.
    told
        Whether the user has been told which classes lack validation rows.
    doubts
        What is known of the rows beforehand; it goes into the verdict.
    layout
        Where a table's columns are among the features; None of arrays.

    Returns
    -------
    Prepared
    """
    families = (options.model,) if isinstance(options.model, str) and options.model in ONE_FAMILY else None
    options = replace(options, model=model_of(options, table=layout is not None))
    if options.model == AUTO:
        scale = LabelScale()  # every member has its own
    if scale is None:
        scale = _scale_of(options.init, sources)
    with class_names(labels or None, told=told):
        if test is not None:
            try:
                check_metric(
                    metric_of(options, sources.classes), test.y, sources.classes, where="the test rows"
                )
            except DataError as error:
                test, doubts = None, (*doubts, f"no test score: {error}")
        if not sources.classes:
            sources, test = scale.sources(sources), None if test is None else scale.rows(test)
        if options.model == AUTO:
            done = _portfolio(sources, options, test, layout or Layout.plain(sources.features), families)
        else:
            done = _prepared(sources, options, test, scale, layout)
        return replace(done, labels=tuple(labels), doubts=tuple(doubts))


def model_of(options: FitOptions, *, table: bool) -> Any:
    """What was given; else of tables a portfolio, unless something is asked that it does not know.

    A family of trees is a portfolio of its own members in the same way; asked for a policy, LightGBM and
    XGBoost boost on sampled rows, as the paper's protocol needs.
    """
    asked = [name for name in options.given() if name not in PORTFOLIO]
    family = isinstance(options.model, str) and options.model in ONE_FAMILY
    if table and not asked and (options.model is None or family):
        return AUTO  # of this family alone, if one was named
    if options.given("effort") and not (isinstance(options.model, str) and options.model == AUTO):
        raise InputError(
            "effort belongs to the portfolio (model auto, of tables), which is not fitted here: leave it out "
            "(--effort)"
        )
    if options.model is None:
        return "mlp"
    if isinstance(options.model, str) and options.model == AUTO and asked:
        flags = ", ".join(flag_of(OPTIONS[name]) for name in asked)
        raise InputError(
            f"model 'auto' is a portfolio and knows no {' and '.join(asked)}: leave {flags} out, or choose a "
            "model, such as mlp"
        )
    return options.model


def _portfolio(
    sources: Sources,
    options: FitOptions,
    test: Rows | None,
    layout: Layout,
    families: tuple[str, ...] | None,
) -> Prepared:
    """A fit of several families: a study with a step for every member."""
    refuse_row_numbers([part.x for part in sources.rows])
    metric = metric_of(options, sources.classes)
    share = 0.0 if options.holdout is None else options.holdout  # all rows choose: folds score them
    kept, held = holdout(sources, share, seed=options.seed, metric=metric)
    check_metric(metric, kept.validation.y, kept.classes)
    fitter = Fitter(kept, layout, metric, seed=options.seed, effort=options.effort, network=train_network)
    recipes, notes = recipes_for(fitter, options.effort, families)
    told = f"model auto: {len(recipes)} members, joined (effort {options.effort})"
    notes = (told, *notes, *(() if options.metric else (f"metric {metric.name}",)))
    chosen = Chosen(len(recipes), 1, 1, metric, notes)
    options = replace(options, policy=AUTO_POLICY)
    return Prepared(
        options,
        chosen,
        PortfolioSearch(fitter, recipes, race=options.effort != "quick"),
        PortfolioTrainer(kept, fitter, recipes),
        None,
        kept,
        sources,
        held if test is None else test,
        "holdout" if test is None else "test",
        make_setting(kept, options, chosen),
        ModelOptions(),
        LabelScale(),
    )


def train_network(sources: Sources, metric: Metric, policy: str, seed: int) -> Network:
    """The network of a portfolio: trained by a policy on these sources for the target of these rows.

    Parameters
    ----------
    sources
        With labels at size 1.
    metric
        That scores them.
    policy
        Its id.
    seed
        Of all that is drawn.
    """
    options = FitOptions(model="mlp", policy=policy, metric=metric, seed=seed % 2**31, holdout=0.0)
    with absent_classes():
        own = prepare(sources, options, scale=LabelScale())
        return Network(own.trainer, run(own.search, own.trainer, seed=own.seed).state)


def _prepared(
    sources: Sources, options: FitOptions, test: Rows | None, scale: LabelScale, layout: Layout | None
) -> Prepared:
    """A fit of sources whose labels are scaled already."""
    if not callable(options.model):  # a torch module may read the rows itself, by their numbers
        refuse_row_numbers([part.x for part in sources.rows])
    policy, why = _decide_policy(options)
    options = replace(options, policy=policy)
    _check_judging(sources, options, tested=test is not None)
    nested = options.nested and nested_folds(sources.validation, sources.classes, options.seed) is not None
    looks = chooses(policy) if isinstance(policy, str) else True
    share = 0.0 if test is not None or nested or not looks else None
    scoring = scale.metric(metric_of(options, sources.classes))
    kept, held = holdout(
        sources,
        options.holdout if options.holdout is not None else share,
        seed=options.seed,
        metric=scoring,
    )
    chosen = choose(options, kept, metric=scoring)
    chosen = replace(chosen, notes=(why, *chosen.notes))
    setting = make_setting(kept, options, chosen)
    model = ModelOptions(
        lr=options.lr,
        batch_size=chosen.batch_size,
        class_weight=options.class_weight,
        init=_arrays(options.init),
        reset_optimizer=options.reset_optimizer,
        layout=layout,
    )
    data = training_sources(policy, setting) if isinstance(policy, str) else kept
    return Prepared(
        options,
        chosen,
        _search(policy, setting, options),
        as_trainer(make_trainer(options.model, data, model)),
        make_objective(options, chosen, kept),
        kept,
        sources,
        held if test is None else test,
        "holdout" if test is None else "test",
        setting,
        model,
        scale,
    )


def _search(policy: Any, setting: Setting, options: FitOptions) -> SearchBase:
    """The search of an id, one that was given, or one that a given function makes."""
    if isinstance(policy, str):
        search = make_search(policy, setting)
        return stop_early(search) if options.stop_early else search
    search = as_search(policy if isinstance(policy, Search) else policy(setting))
    if search.budget not in (0, setting.budget):
        raise InputError(
            f"the search has a budget of {search.budget:,} steps, and the fit one of {setting.budget:,}: "
            "give both the same, or leave the fit's out"
        )
    return search


def _name(policy: Any) -> str:
    """What a search of the user's own is called in reports."""
    made_by_function = isfunction(policy) or isbuiltin(policy) or isclass(policy)
    return str(policy.__name__ if made_by_function else type(policy).__name__)


def _scale_of(init: Any, sources: Sources) -> LabelScale:
    """The labels' scale: that of the model to start from, whose weights fit only that; else the sources'."""
    if init is None or sources.classes:
        return LabelScale.of(sources)
    if isinstance(init, str | FilePath) and FilePath(init).is_dir():
        return LabelScale(*read_about(FilePath(init)).get("label_scale", (0.0, 1.0)))
    return LabelScale()


def _arrays(init: Any) -> Mapping[str, Any] | None:
    """The arrays of a model to start from: as they are, or those in a file or a model folder."""
    if init is None or isinstance(init, Mapping):
        return init
    if not isinstance(init, str | FilePath):
        raise InputError(
            f"init takes a model's arrays (trainer.save(state)), a safetensors file or a model folder; got "
            f"{type(init).__name__}"
        )
    return read_weights(FilePath(init))


def options_of(policy: Any) -> frozenset[str]:
    """The options that not every policy knows, and this one does.

    >>> sorted(options_of("auto"))
    ['max_passes', 'use_target_rows']
    """
    kinds = kinds_of(policy) if isinstance(policy, str) else frozenset[str]()
    return frozenset(name for name, each in OPTIONS.items() if kinds & {*each.known_to})


def _decide_policy(options: FitOptions) -> tuple[Any, str]:
    """The policy, and why it is that one; an error where it does not know what it was given."""
    policy, why = options.policy, ""
    if policy is None:
        policy, asked = DEFAULT_POLICY, options.given("steps", *TREE_ONLY)
        if asked:
            boxes = options.given("maximum", "max_passes")
            policy = "mixmatch-ch+commit" if boxes else "mixmatch-bisect+commit"
            why = f", since only a tree search knows {' and '.join(asked)}"
    own = not isinstance(policy, str)
    if own and not isinstance(policy, Search) and not callable(policy):
        raise InputError(f"policy must be an id, a Search, or a function that makes one; got {policy!r}")
    name, known = _name(policy) if own else policy, options_of(policy)
    wrong = [each for each in options.given() if OPTIONS[each].known_to and each not in known]
    if options.use_target_rows == "never":  # so it is with all others anyway
        wrong = [each for each in wrong if each != "use_target_rows"]
    if wrong:
        raise InputError(_unknown_to(name, wrong))
    return policy, f"policy {name}{why}"


def _unknown_to(policy: str, wrong: Sequence[str]) -> str:
    """That a policy does not know these options, and which policies do."""
    kinds = {kind for name in wrong for kind in OPTIONS[name].known_to}
    who = [words for kind, words in _WHO.items() if kind in kinds]
    flags = ", ".join(flag_of(OPTIONS[name]) for name in wrong)
    return (
        f"policy {policy!r} knows no {' and '.join(wrong)}: leave {'it' if len(wrong) == 1 else 'them'} out "
        f"({flags}), or choose a policy that does: {', '.join(who)}"
    )


_WHO = {
    "tree": "the mixmatch policies",
    "box": "mixmatch-ch and mixmatch-ch+commit",
    "auto": "auto",
    "fixed": "fixed mixtures",
}


def flag_of(option: Option) -> str:
    """The option's flag on the command line."""
    return option.flag or "--" + option.name.replace("_", "-")


def _check_judging(sources: Sources, options: FitOptions, *, tested: bool) -> None:
    ways = {"test rows": tested, "holdout": bool(options.holdout), "nested": options.nested}
    asked = [name for name, given in ways.items() if given]
    if len(asked) > 1:
        raise InputError(f"the score comes from {asked[0]} or from {asked[1]}, not both: leave one out")
    if options.attribution == "shapley" and len(sources) > 10:
        raise InputError(
            f"Shapley values take 2^K models, and there are {len(sources)} sources: at most 10, or use 'loo'"
        )


def _schedule(sources: Sources, options: FitOptions, chosen: Chosen) -> int | Schedule:
    """λ: the steps of a node by its height."""
    if options.schedule == "constant":
        return chosen.steps
    if options.schedule == "theory":
        if options.model != "linear":
            raise InputError("schedule 'theory' is for convex losses: choose model 'linear'")
        from mixtree.planning.budget import schedule_of  # a dozen files that no other fit needs

        return schedule_of(sources, chosen.budget, seed=options.seed)
    if options.schedule == "geometric":
        rho = default_rho(len(sources)) if options.rho is None else options.rho
        return geometric(chosen.steps, 1.0 / rho)
    return {"linear": linear, "sqrt": sqrt}[options.schedule](chosen.steps)


def make_setting(sources: Sources, options: FitOptions, chosen: Chosen) -> Setting:
    """What the policy is told."""
    names = ("nu", "rho", "optimism", "returns", "width")
    tree = {name: getattr(options, name) for name in options.given(*names)}
    if options.untrained_root:
        tree["train_root"] = False
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
        _schedule(sources, options, chosen),
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
