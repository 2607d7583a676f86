"""A fair comparison: algorithms at the same budget, on the same data, from the same initial models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from mixtree.data.copies import row_numbers
from mixtree.data.sources import Problem, Rows
from mixtree.data.typed import Layout
from mixtree.engine.loop import FINISHED, Objective
from mixtree.engine.study import Result, run
from mixtree.errors import TrainingError
from mixtree.events import Listener
from mixtree.experiments.rivals import RIVALS, Case, check_rival, cpu_seconds, predict
from mixtree.fitting.prepare import options_of
from mixtree.metrics import Metric, check_metric
from mixtree.policies.early_stop import stop_early
from mixtree.policies.registry import make_search, training_sources
from mixtree.policies.retries import AtRate, blew_up, smaller_rates
from mixtree.policies.setting import AutoOptions, Setting
from mixtree.schedules import Schedule
from mixtree.search import SearchBase
from mixtree.seeds import derive_seed
from mixtree.simplex import Mixture
from mixtree.storage.base import Storage
from mixtree.trainer import Trainer
from mixtree.verdict import Difference, Repeat, corrected, repeated_difference
from mixtree.verdict.scoring import untouched

DIVERGED = "diverged"
"""What steps were spent on that diverged, beyond the budget, before smaller ones."""


class PredictingTrainer(Trainer[Any], Protocol):
    """A trainer whose models can predict rows that it was not given."""

    def predict(self, state: Any, x: Any) -> NDArray[Any]:
        """Class probabilities (n, classes), or (n,) for a regression."""


@dataclass(frozen=True, slots=True)
class Run:
    """One algorithm on one repeat."""

    algorithm: str
    repeat: int
    value: float
    """What was minimised; infinite if all models diverged, NaN of a rival that is no search."""
    val_score: float
    test_score: float
    mixture: dict[str, float]
    budget: int
    spent: dict[str, int]
    seconds: float
    lr_scale: float = 1.0
    """× the step size, smaller than 1 if larger ones diverged and it was trained again."""
    finished: bool = True
    """The time limit did not end it before its budget."""
    cpu: float = float("nan")
    """Seconds of CPU, of this process and of programs that it started."""

    @property
    def diverged(self) -> bool:
        """All its models did: it has no score, no mixture, and no account of its steps."""
        return self.value == inf


@dataclass(frozen=True, slots=True)
class Summary:
    """One algorithm over its repeats; what a diverged repeat has none of is the mean over the others."""

    algorithm: str
    repeats: int
    diverged: int
    """Repeats in which all its models diverged."""
    score: float
    """NaN if it diverged in any repeat: the mean of the others would be better than the algorithm is."""
    sd: float
    mixture: dict[str, float]
    spent: float
    seconds: float
    cpu: float = float("nan")


@dataclass(frozen=True, eq=False, slots=True)
class Rules:
    """What is the same for every run of a comparison."""

    budget: int
    steps: int | Schedule
    metric: Metric
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the tree search."""

    batch_size: int = 50
    objective: Callable[[Problem], Objective | None] = lambda problem: None
    """What a search minimises on a problem's validation rows; the loss unless told."""
    use_target_rows: bool = True
    auto: AutoOptions = field(default_factory=AutoOptions)
    minimum: Sequence[float] | None = None
    maximum: Sequence[float] | None = None
    """Bounds of the weights, for the searches that know them."""
    caps: Mixture | None = None
    """Limits of passes, for those that know them: see Setting."""
    stop_early: bool = False
    """End tree searches once what they can still gain is below the noise."""
    time_limit: float | None = None
    """Seconds for every run."""

    def setting(self, problem: Problem, *, seed: int = 0) -> Setting:
        """What an algorithm is told of a problem."""
        return Setting(
            problem.sources.names,
            problem.sources.sizes,
            self.budget,
            self.steps,
            seed=seed,
            alpha=problem.alpha,
            options=self.options,
            data=problem.sources,
            batch_size=self.batch_size,
            metric=self.metric,
            use_target_rows=self.use_target_rows,
            auto=self.auto,
        )

    def search(self, algorithm: str, setting: Setting) -> SearchBase:
        """The search of an algorithm, with those of the rules that it knows."""
        known = options_of(algorithm)
        fields = {"minimum": "minimum", "maximum": "maximum", "max_passes": "caps"}
        bounds: dict[str, Any] = {
            field: getattr(self, field) for option, field in fields.items() if option in known
        }
        search = make_search(algorithm, replace(setting, **bounds))
        return stop_early(search) if self.stop_early and "stop_early" in known else search


@dataclass(frozen=True, eq=False, slots=True)
class _Finished:
    algorithm: str
    repeat: int
    trainer: PredictingTrainer
    result: Result[Any] | None
    seconds: float
    rate: float
    lost: int
    """Steps that diverged, at larger step sizes."""
    unseen: NDArray[Any] | None = None
    """Of a model that was tuned on the validation rows: what twins of it that were not predict for them."""
    cpu: float = float("nan")


def compare(
    problems: Sequence[Problem],
    algorithms: Sequence[str],
    *,
    make_trainer: Callable[[Problem], PredictingTrainer],
    rules: Rules,
    seed: int = 0,
    workers: int | str = 1,
    listeners: Sequence[Listener] = (),
    predictions: dict[tuple[str, int], NDArray[Any]] | None = None,
    retry: bool = False,
    storage: Storage | None = None,
    study: str = "",
    layout: Layout | None = None,
) -> list[Run]:
    """Run every algorithm on every problem (one per repeat); test rows are read once all training is over.

    A repeat's own ``seed`` is that much more than its number. ``workers`` > 1 trains the trials of a round in
    as many processes; the answer is the same. ``predictions``, if given, is filled with every run's
    predictions of its test rows. With ``retry`` an algorithm that diverges is run again at smaller step
    sizes, those that ``auto`` tries; its steps until then are spent too, beyond the budget. A paper's
    algorithms are reproduced without. In a ``storage`` every run is a study, ``study``/algorithm/repeat, that
    goes on where an earlier comparison was cut.

    Rivals (`mixtree.experiments.rivals`) are trained on all rows, the validation rows too, and have no
    budget, time limit or storage; ``layout`` tells which columns
    features came from, else each is a number.
    """
    for problem in problems:  # what cannot work fails here, before any training
        check_metric(rules.metric, problem.sources.validation.y, problem.sources.classes)
        for algorithm in algorithms:
            check_algorithm(algorithm, rules, problem)
    kept: dict[tuple[str, int], NDArray[Any]] = {} if predictions is None else predictions
    finished: list[_Finished | Run] = []
    for repeat, problem in enumerate(problems):
        plain = make_trainer(problem)
        for algorithm in algorithms:
            started, cpu = time.perf_counter(), cpu_seconds()
            if algorithm in RIVALS:
                run_seed = seed + repeat
                finished.append(_rival(algorithm, repeat, problem, rules, layout, seed=run_seed, kept=kept))
                continue
            # The same initial model for all algorithms of a repeat, but a stream of its own for each.
            own_seed = derive_seed(seed + repeat, (crc32(algorithm.encode()),))
            setting = rules.setting(problem, seed=own_seed)
            sources = training_sources(algorithm, setting)
            own = sources is not problem.sources
            trainer = make_trainer(replace(problem, sources=sources)) if own else plain
            rates, lost = [1.0], 0
            if retry and algorithm != "auto":  # which looks for a step size itself
                rates += smaller_rates(rules.auto)
            for rate in rates:
                at = [] if rate == 1.0 else [f"{rate:g} × the step size"]
                left = rules.time_limit and max(rules.time_limit - (time.perf_counter() - started), 1e-3)
                search = rules.search(algorithm, setting)
                result = _run(
                    search if rate == 1.0 else AtRate(search, rate),
                    trainer,
                    seed=own_seed,
                    init_seed=seed + repeat,
                    storage=storage,
                    study="/".join([*filter(None, [study]), algorithm, str(repeat), *at]),
                    resume=storage is not None,
                    workers=workers,
                    objective=rules.objective(problem),
                    listeners=listeners,
                    time_limit=left,
                )
                if retry and result is not None:
                    last = result.state, result.node.mixture
                    # A model from inside a stage is what a divergence has left of it, unless it was chosen
                    # there, or time was up.
                    ended = result.reason != FINISHED or result.node.path in search.chosen_from
                    rest = result.node.unfinished and not ended
                    if rest or blew_up(trainer, *last, sources, init_seed=seed + repeat):
                        result = None
                if result is not None:
                    break
                lost += search.spent
            seconds, unseen = time.perf_counter() - started, search.unseen
            used = cpu_seconds() - cpu
            finished.append(_Finished(algorithm, repeat, trainer, result, seconds, rate, lost, unseen, used))
    return [
        each if isinstance(each, Run) else _report(each, problems[each.repeat], rules, kept)
        for each in finished
    ]


def check_algorithm(algorithm: str, rules: Rules, problem: Problem) -> None:
    """An error in words if the algorithm cannot be run on this problem."""
    if algorithm in RIVALS:
        check_rival(algorithm)
    else:
        rules.search(algorithm, rules.setting(problem))


def _rival(
    algorithm: str,
    repeat: int,
    problem: Problem,
    rules: Rules,
    layout: Layout | None,
    *,
    seed: int,
    kept: dict[tuple[str, int], NDArray[Any]],
) -> Run:
    """One rival on one repeat.

    Parameters
    ----------
    algorithm
        Its id.
    repeat
        The number of the repeat.
    problem
        Its rows; without test rows the rival has no score, since it is trained on all others.
    rules
        Its metric.
    layout
        Where each column is among the features.
    seed
        Of folds and models.
    kept
        Where its predictions go.
    """
    started, cpu, score = time.perf_counter(), cpu_seconds(), float("nan")
    if problem.test is not None:
        columns = layout or Layout.plain(problem.sources.features)
        case = Case.of_problem(problem, columns, rules.metric, test=problem.test, seed=seed)
        kept[algorithm, repeat] = predict(algorithm, case)
        score = rules.metric(problem.test.y, kept[algorithm, repeat])
    nan, seconds = float("nan"), time.perf_counter() - started
    used = cpu_seconds() - cpu
    return Run(algorithm, repeat, nan, nan, score, {}, 0, {}, seconds, 1.0, True, used)


def _run(search: SearchBase, trainer: PredictingTrainer, **how: Any) -> Result[Any] | None:
    try:
        return run(search, trainer, **how)
    except TrainingError:
        return None  # all its models diverged: that is its score, no reason to stop the others


def _report(
    each: _Finished, problem: Problem, rules: Rules, kept: dict[tuple[str, int], NDArray[Any]]
) -> Run:
    val = test = float("nan")
    if each.result is None:
        lost = {DIVERGED: each.lost} if each.rate < 1.0 else {}
        budget, seconds = rules.budget, each.seconds
        return Run(
            each.algorithm, each.repeat, inf, val, test, {}, budget, lost, seconds, each.rate, cpu=each.cpu
        )
    sources, predict, state = problem.sources, each.trainer.predict, each.result.state
    if each.result.node.path in untouched(each.result.tree, len(sources)):
        val = rules.metric(sources.validation.y, predict(state, sources.validation.x))
    elif each.unseen is not None:
        val = rules.metric(sources.validation.y, each.unseen)
    if problem.test is not None:
        kept[each.algorithm, each.repeat] = predict(state, problem.test.x)
        test = rules.metric(problem.test.y, kept[each.algorithm, each.repeat])
    mixture = each.result.weights
    return Run(
        each.algorithm,
        each.repeat,
        each.result.value,
        val,
        test,
        mixture,
        rules.budget,
        each.result.spent | ({DIVERGED: each.lost} if each.lost else {}),
        each.seconds,
        each.rate,
        each.result.reason == FINISHED,
        each.cpu,
    )


def paired(
    predictions: Mapping[tuple[str, int], NDArray[Any]],
    tests: Sequence[Rows],
    metric: Metric,
    *,
    algorithms: Sequence[str],
) -> dict[str, Difference]:
    """The first algorithm's score less each other's, the mean over repeats, corrected for looking often.

    ``tests`` are the repeats' test rows. An algorithm that diverged in a repeat is left out: the mean over
    the others would flatter it.
    """
    first, *others = algorithms
    numbers, repeats = row_numbers(tests), range(len(tests))
    there = [name for name in algorithms if all((name, repeat) in predictions for repeat in repeats)]
    if first not in there:
        return {}
    gaps = {}
    for other in dict.fromkeys(name for name in others if name in there):
        both = [Repeat(tests[r].y, predictions[first, r], predictions[other, r], numbers[r]) for r in repeats]
        gaps[other] = repeated_difference(metric, both)
    return dict(zip(gaps, corrected(list(gaps.values())), strict=True))


def summarise(runs: Sequence[Run]) -> list[Summary]:
    """Mean and standard deviation of the score per algorithm, in the order of the runs.

    The score is that of the test rows; where there are none, of the validation rows.
    """
    summaries = []
    for name in dict.fromkeys(each.algorithm for each in runs):
        own = [each for each in runs if each.algorithm == name]
        tested = np.array([each.test_score for each in own])
        scores = tested if np.isfinite(tested).any() else np.array([each.val_score for each in own])
        ended = [each for each in own if not each.diverged]
        names = list(dict.fromkeys(source for each in ended for source in each.mixture))
        mixture = {
            source: float(np.mean([each.mixture.get(source, 0.0) for each in ended])) for source in names
        }
        summaries.append(
            Summary(
                name,
                len(own),
                len(own) - len(ended),
                float(scores.mean()),
                float(scores.std(ddof=1)) if len(own) > 1 else float("nan"),
                mixture,
                float(np.mean([sum(each.spent.values()) for each in ended])) if ended else float("nan"),
                float(np.mean([each.seconds for each in own])),
                float(np.mean([each.cpu for each in own])),
            )
        )
    return summaries
