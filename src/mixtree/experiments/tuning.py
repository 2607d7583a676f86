"""Step sizes and tuned settings, chosen on validation rows of splits that no reported run uses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from mixtree.algorithms import MIXMATCH
from mixtree.bounds import default_rho
from mixtree.data.sources import Problem, Rows
from mixtree.errors import MissingExtraError
from mixtree.experiments.parallel import Crew
from mixtree.experiments.reproduce import Recipe, run_once
from mixtree.experiments.specs import Experiment, SettingName
from mixtree.seeds import INIT, derive_seed

FIRST_SEED = 1000
"""Reported repeats count from 0; the splits for choosing settings from here."""
STEP_SIZES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1)
PROBES = 4
TRIALS = 20
TUNING_SPLITS = 3


@dataclass(frozen=True, slots=True)
class StepSize:
    """The step size of the default setting and the validation losses that led to it."""

    chosen: float
    start: float
    """The loss before training."""
    losses: dict[str, float]
    """Uniform's validation loss after the whole budget, by step size."""


def step_size(experiment: Experiment, folder: Path, *, crew: Crew) -> StepSize:
    """The authors' step size, unless the network does not train with it.

    It trains if uniform's validation loss falls at least half as far as with the best step size of a short
    list; else that one is taken.
    """
    file = folder / f"step-size-{experiment.name}.json"
    if file.exists():
        return StepSize(**json.loads(file.read_text(encoding="utf-8")))
    tasks = [(experiment, FIRST_SEED + number) for number in range(PROBES)]
    tables = list(crew.run(_probe, tasks))
    losses = {lr: float(np.mean([losses[lr] for _, losses in tables])) for lr in _candidates(experiment)}
    start = float(np.mean([before for before, _ in tables]))
    best = min(losses, key=lambda lr: losses[lr] if math.isfinite(losses[lr]) else math.inf)
    chosen = best
    if experiment.authors is not None:
        own = experiment.authors.lr
        chosen = own if start - losses[own] >= (start - losses[best]) / 2 else best
    found = StepSize(chosen, start, {f"{lr:g}": loss for lr, loss in losses.items()})
    _write(file, {"chosen": found.chosen, "start": found.start, "losses": found.losses})
    return found


def _candidates(experiment: Experiment) -> list[float]:
    authors = [experiment.authors.lr] if experiment.authors else []
    return sorted({*STEP_SIZES, *authors})


def _probe(experiment: Experiment, seed: int) -> tuple[float, dict[float, float]]:
    problem = replace(experiment.load(seed), test=None)
    losses: dict[float, float] = {}
    before = math.nan
    for lr in _candidates(experiment):
        trainer = experiment.trainer(problem.sources, lr=lr)
        before = trainer.evaluate([trainer.init(derive_seed(seed, (), INIT))])[0].value
        recipe = Recipe(lr, experiment.steps)
        result, _ = run_once(
            experiment,
            problem,
            "uniform",
            recipe,
            budget=experiment.budget,
            seeds=(seed, seed),
            trainer=trainer,
        )
        losses[lr] = math.inf if result is None else result.value
    return before, losses


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
    if setting == "authors":
        return dict.fromkeys(experiment.algorithms(), authors_recipe(experiment, folder, crew=crew))
    base = Recipe(step_size(experiment, folder, crew=crew).chosen, experiment.steps)
    if setting == "ours":
        return dict.fromkeys(experiment.algorithms(), base)
    return _tuned(experiment, base, folder, crew=crew, trials=trials, say=say)


def authors_recipe(experiment: Experiment, folder: Path, *, crew: Crew) -> Recipe:
    """The authors' way to search, with their numbers where they have any."""
    options: dict[str, Any] = {"optimism": 1.0, "train_root": True, "returns": "deepest"}
    if experiment.authors is None:
        lr = step_size(experiment, folder, crew=crew).chosen
    else:
        lr = experiment.authors.lr
        options |= {"nu": experiment.authors.nu, "rho": experiment.authors.rho}
    return Recipe(lr, experiment.steps, options, objective="metric", reset_optimizer=True)


# -- tuning -----------------------------------------------------------------------------------------------


def _tuned(
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
    halves = [
        half
        for seed in range(FIRST_SEED, FIRST_SEED + TUNING_SPLITS)
        for half in _halves(experiment.load(seed), seed)
    ]
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
    experiment: Experiment, algorithm: str, recipe: Recipe, halves: list[tuple[Problem, Rows]], seed: int
) -> float:
    metric, scores = experiment.metric, []
    worst = -math.inf if metric.higher_is_better else math.inf
    for number, (problem, held) in enumerate(halves):
        trainer = experiment.trainer(problem.sources, lr=recipe.lr)
        result, _ = run_once(
            experiment,
            problem,
            algorithm,
            recipe,
            budget=experiment.budget,
            seeds=(seed + number, number),
            trainer=trainer,
        )
        if result is None:  # a diverged model is as bad as a setting can be
            return worst
        scores.append(metric(held.y, trainer.predict(result.state, held.x)))
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
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
