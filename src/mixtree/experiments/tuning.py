"""Step sizes and tuned settings, chosen on validation rows of splits that no reported run uses.

A run is scored on rows that it did not see: it has one half of a split's validation rows, the other half
scores it by the experiment's metric, both ways. Otherwise algorithms that train on validation rows would be
scored on what they learnt by heart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any
from zlib import crc32

import numpy as np

from mixtree.bounds import default_rho
from mixtree.data.files import write_file
from mixtree.data.sources import Problem, Rows
from mixtree.errors import MissingExtraError
from mixtree.experiments.parallel import Crew, quietly
from mixtree.experiments.reproduce import Recipe, run_once, spread
from mixtree.experiments.specs import Experiment, SettingName
from mixtree.policies.registry import MIXMATCH

FIRST_SEED = 1000
"""Reported repeats count from 0; the splits for choosing settings from here."""
TUNING_SPLITS = 5
STEP_SIZES = (0.01, 0.03, 0.09, 0.27, 0.81)
"""Where a sweep starts."""
FACTOR = 3.0
MOST_STEP_SIZES = 14
"""A sweep ends here even if its best is still at an end; the table then warns."""
TRIALS = 20


@dataclass(frozen=True, slots=True)
class Point:
    """One algorithm at one step size: means over the halves of the splits that have a score."""

    lr: float
    score: float
    """By the experiment's metric, on the half of the validation rows that the run did not see."""
    se: float
    """The standard error of that mean; the halves of a split share their model's other rows."""
    loss: float
    """On the same rows."""
    constant: float
    """The loss of the best constant of the other half."""
    fitted: float
    """The training loss, all sources counting alike."""
    fitted_constant: float
    """The loss there of each source's best constant."""
    diverged: int
    """Runs without a finite model: one is enough to rule the step size out."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Step sizes of one algorithm, each three times the one before, and the best of them."""

    algorithm: str
    points: tuple[Point, ...]
    chosen: float
    warning: str
    """Not empty if the best one is at an end of the sweep and the next one is not known to diverge."""
    cpu: float = field(default=0.0, compare=False)
    """CPU seconds."""

    @property
    def best(self) -> Point:
        """The point of the chosen step size."""
        return next(point for point in self.points if point.lr == self.chosen)


def recipes(
    experiment: Experiment,
    setting: SettingName,
    folder: Path,
    *,
    crew: Crew,
    trials: int = TRIALS,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Recipe]:
    """A setting's recipe for every algorithm."""
    folder.mkdir(parents=True, exist_ok=True)
    names = experiment.algorithms()
    if setting == "authors":
        return dict.fromkeys(names, authors_recipe(experiment))
    found = sweeps(experiment, names if setting == "own" else ["uniform"], folder, crew=crew, say=say)
    base = Recipe(found["uniform"].chosen, experiment.steps)
    if setting == "shared":
        return dict.fromkeys(names, base)
    if setting == "own":
        return {name: replace(base, lr=found[name].chosen) for name in names}
    return _jointly(experiment, base, folder, crew=crew, trials=trials, say=say)


def authors_recipe(experiment: Experiment) -> Recipe:
    """The authors' numbers and their way to search."""
    authors = experiment.authors
    options: dict[str, Any] = {"optimism": 1.0, "train_root": True, "returns": "deepest"}
    options |= {"nu": authors.nu, "rho": authors.rho}
    return Recipe(authors.lr, experiment.steps, options, objective="metric", reset_optimizer=True)


# -- step sizes -------------------------------------------------------------------------------------------


def sweeps(
    experiment: Experiment,
    algorithms: list[str],
    folder: Path,
    *,
    crew: Crew,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Sweep]:
    """The best step size of every algorithm; what is in the folder is not searched again."""
    file = folder / f"step-sizes-{experiment.name}.json"
    found = stored_sweeps(experiment, folder)
    missing = [name for name in algorithms if name not in found]
    tasks = [(experiment, name) for name in missing]
    for number, sweep in enumerate(crew.run(sweep_of, tasks), 1):
        found[sweep.algorithm] = sweep
        _write(file, {"splits": TUNING_SPLITS, "sweeps": [asdict(each) for each in found.values()]})
        say(f"{experiment.name}: η of {number} of {len(missing)} algorithms")
    return {name: found[name] for name in algorithms}


def stored_sweeps(experiment: Experiment, folder: Path) -> dict[str, Sweep]:
    """The sweeps in the folder; none if they were made on other splits."""
    file = folder / f"step-sizes-{experiment.name}.json"
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if stored.get("splits") != TUNING_SPLITS:
        return {}
    return {
        each["algorithm"]: Sweep(**{**each, "points": tuple(Point(**point) for point in each["points"])})
        for each in stored["sweeps"]
    }


@quietly()
def sweep_of(experiment: Experiment, algorithm: str) -> Sweep:
    """Step sizes × 3, extended at an end until the best one is inside or the next one diverges."""
    start = process_time()
    halves = _tuning_halves(experiment)
    points = {lr: _point(experiment, algorithm, lr, halves) for lr in STEP_SIZES}
    sign = 1.0 if experiment.metric.higher_is_better else -1.0
    while True:
        best = max(points.values(), key=lambda point: -math.inf if point.diverged else sign * point.score)
        low, high = min(points), max(points)
        # A step size at which a model diverges is as bad as can be: the best one is then inside.
        following = {high: high * FACTOR, low: low / FACTOR}.get(best.lr)
        if following is None or len(points) >= MOST_STEP_SIZES:
            break
        following = float(f"{following:.6g}")
        points[following] = _point(experiment, algorithm, following, halves)
    warning = "" if following is None else f"still better at the end of the sweep, {best.lr:g}"
    ordered = tuple(points[lr] for lr in sorted(points))
    return Sweep(algorithm, ordered, best.lr, warning, round(process_time() - start, 3))


def _point(experiment: Experiment, algorithm: str, lr: float, halves: Sequence[Half]) -> Point:
    recipe, rows = Recipe(lr, experiment.steps), []
    diverged = 0
    for number, half in enumerate(halves):
        trainer = experiment.trainer(half.problem.sources, lr=lr)
        seeds = (crc32(algorithm.encode()) + number, number)
        result, _ = run_once(
            experiment,
            half.problem,
            algorithm,
            recipe,
            budget=experiment.budget,
            seeds=seeds,
            trainer=trainer,
        )
        predictions = None if result is None else trainer.predict(result.state, half.held.x)
        if result is None or predictions is None or not np.isfinite(predictions).all():
            diverged += 1
            continue
        parts = [spread(part) for part in half.problem.sources.rows]
        fits = [experiment.loss(part.y, trainer.predict(result.state, part.x)) for part in parts]
        scores = (metric(half.held.y, predictions) for metric in (experiment.metric, experiment.loss))
        rows.append((*scores, half.constant, float(np.mean(fits)), half.fitted_constant))
    if not rows:
        none = math.nan
        return Point(lr, none, none, none, none, none, none, diverged)
    table = np.array(rows)
    score, loss, constant, fitted, fitted_constant = (float(each) for each in table.mean(axis=0))
    se = float(table[:, 0].std(ddof=1)) / math.sqrt(len(table)) if len(table) > 1 else math.nan
    return Point(lr, score, se, loss, constant, fitted, fitted_constant, diverged)


@dataclass(frozen=True, eq=False, slots=True)
class Half:
    """A problem with one half of its validation rows, and the other half."""

    problem: Problem
    held: Rows
    constant: float
    fitted_constant: float


def _tuning_halves(experiment: Experiment) -> list[Half]:
    splits = range(FIRST_SEED, FIRST_SEED + TUNING_SPLITS)
    halves = []
    for seed in splits:
        problem = experiment.load(seed)
        for own, held in _halves(problem, seed):
            if own.sources.classes and len(np.unique(held.y)) < 2:
                continue  # no rank metric scores rows of one class
            sources = own.sources
            constant = _constant_loss(experiment, sources.classes, sources.validation, held)
            fitted = float(
                np.mean([_constant_loss(experiment, sources.classes, part, part) for part in sources.rows])
            )
            halves.append(Half(own, held, constant, fitted))
    return halves


def _constant_loss(experiment: Experiment, classes: int, known: Rows, scored: Rows) -> float:
    """The loss of what is the best constant for the known rows: their classes' shares, or their median."""
    if not classes:
        return experiment.loss(scored.y, np.full(len(scored), np.median(known.y)))
    # One row more of each class: a class that the known rows lack must not cost infinitely much.
    shares = (np.bincount(known.y, minlength=classes) + 1.0) / (len(known) + classes)
    return experiment.loss(scored.y, np.tile(shares, (len(scored), 1)))


# -- η, λ, ν and ρ together by Optuna ---------------------------------------------------------------------


def _jointly(
    experiment: Experiment,
    base: Recipe,
    folder: Path,
    *,
    crew: Crew,
    trials: int,
    say: Callable[[str], None],
) -> dict[str, Recipe]:
    file = folder / f"tuned-{experiment.name}.json"
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    found: dict[str, Any] = stored.get("algorithms", {}) if stored.get("trials") == trials else {}
    missing = [name for name in experiment.algorithms() if name not in found]
    tasks = [(experiment, name, base, trials) for name in missing]
    for number, (name, best) in enumerate(crew.run(tune, tasks), 1):
        found[name] = best
        _write(file, {"trials": trials, "algorithms": found})
        say(f"{experiment.name}: tuned {number} of {len(missing)} algorithms")
    return {name: as_recipe(base, found[name]["parameters"]) for name in experiment.algorithms()}


def as_recipe(base: Recipe, parameters: dict[str, Any]) -> Recipe:
    """A recipe from tuned parameters: lr, steps, nu, rho."""
    options: dict[str, Any] = {name: parameters[name] for name in ("nu", "rho") if name in parameters}
    return replace(base, lr=parameters["lr"], steps=parameters.get("steps", base.steps), options=options)


@quietly()
def tune(experiment: Experiment, algorithm: str, base: Recipe, trials: int) -> tuple[str, dict[str, Any]]:
    """Optuna's best parameters by the metric on validation rows that the run itself did not see.

    Every algorithm has the same number of trials and the first is the default setting. Each trial runs on
    both halves of the validation rows of a few splits: one half for the run, the other for the score, so that
    algorithms that train on validation rows are not scored on what they learnt by heart.
    """
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("tuning", "tuning") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    halves = _tuning_halves(experiment)
    metric, seed = experiment.metric, crc32(algorithm.encode())
    searches = algorithm.partition("+")[0] in MIXMATCH

    def objective(trial: Any) -> float:
        parameters = {"lr": trial.suggest_float("lr", base.lr / 30, base.lr * 10, log=True)}
        if searches:
            most = max(2, 4 * base.steps)
            parameters["steps"] = trial.suggest_int("steps", max(1, base.steps // 4), most, log=True)
            parameters["nu"] = trial.suggest_float("nu", 1e-3, 50.0, log=True)
            parameters["rho"] = trial.suggest_float("rho", 0.5, 0.99)
        return _mean_score(experiment, algorithm, as_recipe(base, parameters), halves, seed)

    sampler = optuna.samplers.TPESampler(seed=seed)
    aim = optuna.study.StudyDirection
    direction = aim.MAXIMIZE if metric.higher_is_better else aim.MINIMIZE
    study = optuna.create_study(direction=direction, sampler=sampler)
    rho = default_rho(len(experiment.sources))
    first = {"lr": base.lr, "steps": base.steps, "nu": 0.5, "rho": rho}
    study.enqueue_trial(first if searches else {"lr": base.lr})
    study.optimize(objective, n_trials=trials)
    best = study.best_trial
    return algorithm, {"parameters": best.params, "score": best.value, "trial": best.number}


def _mean_score(
    experiment: Experiment, algorithm: str, recipe: Recipe, halves: list[Half], seed: int
) -> float:
    metric, scores = experiment.metric, []
    worst = -math.inf if metric.higher_is_better else math.inf
    for number, half in enumerate(halves):
        trainer = experiment.trainer(half.problem.sources, lr=recipe.lr)
        result, _ = run_once(
            experiment,
            half.problem,
            algorithm,
            recipe,
            budget=experiment.budget,
            seeds=(seed + number, number),
            trainer=trainer,
        )
        if result is None:  # a diverged model is as bad as a setting can be
            return worst
        scores.append(metric(half.held.y, trainer.predict(result.state, half.held.x)))
    mean = float(np.mean(scores))
    return mean if math.isfinite(mean) else worst


def _halves(problem: Problem, seed: int) -> list[tuple[Problem, Rows]]:
    """Both ways to keep one half of the validation rows from a run; classes are spread evenly."""
    sources = problem.sources
    rows = sources.validation
    random = np.random.default_rng([seed, 3])
    order = random.permutation(len(rows))
    if sources.classes:
        order = order[np.argsort(rows.y[order], kind="stable")]
    halves = [np.sort(order[0::2]), np.sort(order[1::2])]
    return [
        (
            replace(problem, sources=replace(sources, validation=rows.take(own)), test=None),
            rows.take(other),
        )
        for own, other in (halves, halves[::-1])
    ]


def _write(file: Path, content: dict[str, Any]) -> None:
    write_file(file, json.dumps(content, indent=1) + "\n")
