"""Whole fits for coverage.py: what their verdicts quote beside what is true, and what a verdict costs."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mixtree.data.sources import Problem, Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import opened, run
from mixtree.experiments.tasks import tasks
from mixtree.fitting.options import make_options
from mixtree.fitting.pipeline import fit
from mixtree.fitting.prepare import prepare
from mixtree.metrics import LOG_LOSS, SQUARED_LOSS, Metric, class_names
from mixtree.verdict import Verdict
from mixtree.verdict.advice import Models
from mixtree.verdict.judge import judge, judged
from mixtree.verdict.references import Extra

TEST = 10_000
POLICIES: dict[str, dict[str, Any]] = {
    "auto": {"policy": "auto"},
    "auto, target rows never": {"policy": "auto", "use_target_rows": "never"},
    **{
        name: {"policy": name}
        for name in (
            "mixmatch-ch",
            "mixmatch-bisect+commit",
            "uniform+decay",
            "pooled+decay",
            "mmd+decay",
            "importance+decay",
            "online+decay",
            "fine-tune",
            "validation",
        )
    },
}


@dataclass(frozen=True, slots=True)
class Quoted:
    """What a verdict says of the returned model, and what is true."""

    off: float
    """By how much the quoted score is better than the true one; NaN if none is quoted."""
    error: float
    """The standard error of the true model's score on as many rows."""
    covered: bool
    how: str
    """``words`` where there is no honest score, ``twins``, ``optimistic`` or ``honest``."""


def drawn(seed: int, *, rows: int, hull: str, classes: int = 2) -> Problem:
    """A small problem with uneven sources."""
    return synthetic(
        rows=[300, 600, 900],
        validation=rows,
        test=TEST,
        features=5,
        hull=hull,
        kind="neural",
        classes=classes,
        seed=seed,
    )


def quoted(problem: Problem, metrics: tuple[Metric, ...], **options: Any) -> dict[str, Quoted]:
    """One fit, judged by each of the metrics (by name) as ``fit`` does it."""
    prepared = prepare(problem.sources, make_options(reference="none", **options))
    result = run(
        prepared.search,
        prepared.trainer,
        seed=prepared.options.seed,
        objective=prepared.objective,
        keep_predictions=True,
    )
    assert problem.test is not None
    trainer: Any = prepared.trainer
    predictions = prepared.scale.back(
        np.asarray(trainer.predict(result.state, problem.test.x), dtype=np.float64)
    )
    return {
        metric.name: _beside_truth(
            judge(prepared, result, metric=metric), metric, problem.test.y, predictions
        )
        for metric in metrics
    }


def portfolio_quoted(problem: Problem, metric: Metric, *, seed: int) -> Quoted:
    """A portfolio, judged as ``fit`` does it."""
    own = {"model": "auto", "effort": "quick", "metric": metric.name, "seed": seed}
    result = fit(problem.sources, reference="none", **own)
    assert problem.test is not None
    predictions = np.asarray(result.predict(problem.test.x), dtype=np.float64)
    return _beside_truth(result.verdict, metric, problem.test.y, predictions)


@dataclass(frozen=True, slots=True)
class Compared:
    """Whether a difference's interval holds the returned model's own, and whether it claims the contrary."""

    covered: bool
    wrong: bool
    scored: bool
    """Whether the score's interval holds the returned model's own."""
    off: float
    """By how much the quoted score is better than that, in half widths of its interval."""


def difference(
    problem: Problem, metric: Metric, *, seed: int, wanted: str | None, **options: Any
) -> Compared | None:
    """A linear fit beside uniform; None if the returned model is not of the phase that is wanted."""
    given = make_options(model="linear", budget=600, metric=metric.name, seed=seed, **options)
    prepared = prepare(problem.sources, given)
    result = run(prepared.search, prepared.trainer, seed=seed, keep_predictions=True)
    if wanted is not None and result.node.phase != wanted:
        return None
    verdict = judge(prepared, result).as_dict()
    found, score = verdict["against"][0], verdict["score"]
    assert problem.test is not None and found["name"] == "uniform"
    extra = Extra(prepared, result.budget)
    y, rows = problem.test.y, problem.test
    mine, uniform = (
        metric(y, each)
        for each in (
            extra.own_units(prepared.trainer, result.state, rows),
            extra.predict("uniform+decay", rows, purpose="uniform"),
        )
    )
    low, high, true = found["low"], found["high"], mine - uniform
    claims = low > 0.0 or high < 0.0
    held, half = score["low"] <= mine <= score["high"], (score["high"] - score["low"]) / 2.0
    off = (metric.signed(mine) - metric.signed(score["value"])) / half
    wrong = claims and bool(np.sign(found["difference"]) != np.sign(true))
    return Compared(low <= true <= high, wrong, held, off)


def of_its_own(seed: int, *, rows: int, classes: int) -> Problem:
    """Sources and a target whose slopes have nothing in common."""
    rng = np.random.default_rng(seed)
    slopes = 3.0 / np.sqrt(20.0) * rng.standard_normal((4, 20))

    def draw(place: int, count: int) -> Rows:
        x = rng.standard_normal((count, 20))
        logits = x @ slopes[place]
        if not classes:
            return Rows(x, logits + 0.5 * rng.standard_normal(count))
        return Rows(x, (rng.random(count) < 1 / (1 + np.exp(-logits))).astype(np.int64))

    sources = Sources(tuple("abc"), tuple(draw(place, 600) for place in range(3)), draw(3, rows), classes)
    return Problem("of its own", sources, draw(3, TEST))


def of_equals(rng: np.random.Generator, *, rows: int) -> Problem:
    """Three sources and a target of one distribution, with test rows."""
    slopes = np.array([1.0, -1.0, 0.5, 0.0, 0.5])

    def draw(count: int) -> Rows:
        x = rng.standard_normal((count, 5))
        return Rows(x, (x @ slopes + rng.logistic(size=count) > 0).astype(np.int64))

    return Problem("equals", Sources(tuple("abc"), tuple(draw(600) for _ in "abc"), draw(200), 2), draw(rows))


def advises(problem: Problem, *, policy: str, seed: int) -> bool:
    """Whether a verdict says of any source that it is to be kept or dropped."""
    options = {"model": "linear", "budget": 400, "metric": "log-loss", "attribution": "loo"}
    notes = fit(
        problem.sources, test=problem.test, policy=policy, reference="none", seed=seed, **options
    ).verdict.notes
    return any(note.endswith((": keep it", ": drop it")) for note in notes)


def _beside_truth(verdict: Verdict, metric: Metric, y: Any, predictions: Any) -> Quoted:
    score, truth = verdict.score, metric(y, predictions)
    if score is None or verdict.expectation.startswith("No honest score") or not np.isfinite(score.value):
        return Quoted(np.nan, np.nan, False, "words")
    how = "optimistic" if score.optimistic else "honest"
    if verdict.of.startswith("twins"):
        how = "twins"
    return Quoted(
        metric.signed(truth) - metric.signed(score.value),
        metric.standard_error(y, predictions) * np.sqrt(len(y) / score.rows),
        bool(score.low <= truth <= score.high),
        how,
    )


def summary(found: list[Quoted]) -> tuple[float, float]:
    """The mean bias in standard errors of the score, and its own standard error.

    Over problems of different sizes of noise: the mean difference beside the root of the mean square error.
    """
    off = np.array([each.off for each in found])
    size = float(np.sqrt(np.mean(np.square([each.error for each in found]))))
    return float(off.mean()) / size, float(off.std(ddof=1)) / np.sqrt(len(off)) / size


def optimism(problem: Problem, metrics: tuple[Metric, ...], *, seed: int) -> dict[str, tuple[float, float]]:
    """Of a tree search of 100 nodes: what its verdict expects choosing to make up, and what it made up."""
    options = make_options(
        policy="mixmatch-ch", model="linear", budget=2_000, steps=20, returns="best", holdout=0.0, seed=seed
    )
    prepared = prepare(problem.sources, options)
    result = run(prepared.search, prepared.trainer, seed=seed, keep_predictions=True)
    assert problem.test is not None
    trainer: Any = prepared.trainer
    predictions = prepared.scale.back(trainer.predict(result.state, problem.test.x))
    choose, y = LOG_LOSS if problem.sources.classes else SQUARED_LOSS, problem.sources.validation.y
    lineage = result.tree.lineage(result.node.path)
    found = {}
    for metric in metrics:
        models = Models(metric, y, result.predictions, result.tree, lineage, choose=choose)
        seen, true = metric(y, result.predictions[result.node.path]), metric(problem.test.y, predictions)
        found[metric.name] = models.optimism, metric.signed(true) - metric.signed(seen)
    return found


# ------------------------------------------------------------------------------------------------------- time


@dataclass(frozen=True, slots=True)
class Cost:
    """Median seconds of a study without its verdict, and of the verdict."""

    what: str
    rows: int
    study: float
    verdict: float
    repetitions: int


SHAPES: dict[str, dict[str, Any]] = {
    "": {},
    "5,000 steps": {"budget": 5_000},
    "20,000 rows a source": {"rows": 20_000},
    "mixmatch-ch": {"policy": "mixmatch-ch"},
    "mixmatch-ch, 20 classes": {"policy": "mixmatch-ch", "classes": 20},
    "mixmatch-ch, 5,000 steps": {"policy": "mixmatch-ch", "budget": 5_000},
    "mixmatch-ch, 1,000 nodes": {"policy": "mixmatch-ch", "budget": 20_000, "steps": 20},
    "mixmatch-ch, 1,000 nodes, 20 classes": {
        "policy": "mixmatch-ch",
        "budget": 20_000,
        "steps": 20,
        "classes": 20,
    },
    "uniform+decay": {"policy": "uniform+decay"},
    "uniform+decay, regression": {"policy": "uniform+decay", "classes": 0},
    "uniform+decay, 200 features": {"policy": "uniform+decay", "features": 200},
    "regression": {"classes": 0},
    "20 classes": {"classes": 20},
    "200 features": {"features": 200},
    "1 source": {"sources": 1},
    "10 sources": {"sources": 10},
    "40 sources": {"sources": 40},
}
"""What differs from a default study of 3 sources of 2,000 rows, 10 features and 2 classes."""

OPTIONS = ("budget", "policy", "steps")
"""Which of that is told to the study; the rest is its data's."""


REAL = ("flights", "amazon", "allstate", "wine")
"""How the names of tasks of real tables begin."""


def costs(repetitions: int) -> Iterator[Cost]:
    """Studies of every shape, the settings in turns: what is slow meanwhile hits all."""
    settings = [
        (model, shape, rows, stored)
        for model in ("mlp", "linear")
        for stored in (False, True)
        for shape in SHAPES
        for rows in (100, 400, 2_000)
    ]
    spent: dict[Any, list[tuple[float, float]]] = {setting: [] for setting in settings}
    for number in range(-1, repetitions):  # one to warm up
        for setting in settings:
            model, shape, rows, stored = setting
            options, data = {"model": model}, {"rows": 2_000, "validation": rows, "test": 1}
            for name, value in SHAPES[shape].items():
                (options if name in OPTIONS else data)[name] = value
            problem = synthetic(**data, seed=number + 1)
            took = _took(problem, stored, seed=number + 1, **options)
            if number >= 0:
                spent[setting].append(took)
    for (model, shape, rows, stored), found in spent.items():
        study, verdict = np.median(found, axis=0)
        what = f"{model}, {f'{shape}, ' if shape else ''}{'in a file' if stored else 'in memory'}"
        yield Cost(what, rows, float(study), float(verdict), repetitions)


COMMAND = """
import sys, time
start = time.perf_counter()
from mixtree import cli
from mixtree.verdict import judge as judging
judged, spent = judging.judged, []
def timed(*given, **named):
    begin = time.perf_counter()
    result = judged(*given, **named)
    spent.append(time.perf_counter() - begin)
    return result
judging.judged = timed
cli.app(sys.argv[1:], standalone_mode=False)
print(time.perf_counter() - start - spent[0], spent[0])
"""
"""``mixtree``, timed: seconds from the first import on, without and of the verdict, are its last line."""


def command_costs(repetitions: int) -> Iterator[Cost]:
    """The same of ``mixtree fit`` from CSV files to the model folder, but for the interpreter's own start."""
    spent: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(repetitions):
        for shape, told in SHAPES.items():
            given = dict(told)
            options = {name: given.pop(name) for name in OPTIONS if name in given}
            problem = synthetic(rows=given.pop("rows", 2_000), validation=400, test=1, seed=number, **given)
            for model in ("mlp", "linear"):
                took = _command(problem, model=model, seed=number, **options)
                spent.setdefault((model, shape), []).append(took)
    for (model, shape), found in spent.items():
        study, verdict = np.median(found, axis=0)
        what = f"{model}, {f'{shape}, ' if shape else ''}by the command line"
        yield Cost(what, 400, float(study), float(verdict), repetitions)


def _command(problem: Problem, **options: Any) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        parts = [_frame(rows, problem.sources.classes) for rows in problem.sources.rows]
        names = [pl.lit(name).alias("source") for name in problem.sources.names]
        sources = [part.with_columns(name) for part, name in zip(parts, names, strict=True)]
        pl.concat(sources).write_csv(place / "sources.csv")
        _frame(problem.sources.validation, problem.sources.classes).write_csv(place / "target.csv")
        words = ["fit", str(place / "sources.csv"), "--source-col", "source", "--label", "label"]
        words += ["--val", str(place / "target.csv"), "--out", str(place / "model"), "--reference", "none"]
        words += [word for name, value in options.items() for word in (f"--{name}", str(value))]
        line = [sys.executable, "-c", COMMAND, *words]
        told = subprocess.run(line, check=True, capture_output=True, text=True).stdout
    study, verdict = map(float, told.splitlines()[-1].split())
    return study, verdict


def _frame(rows: Rows, classes: int) -> pl.DataFrame:
    columns = {f"x{k}": column for k, column in enumerate(np.asarray(rows.x).T)}
    return pl.DataFrame({**columns, "label": [f"class {y}" for y in rows.y] if classes else rows.y})


def real_costs(repetitions: int) -> Iterator[Cost]:
    """The same of default studies of real tables: flights, and the paper's where MIXTREE_DATA has them."""
    problems = {task.name: task.load(0) for task in tasks() if task.name.startswith(REAL)}
    spent: dict[Any, list[tuple[float, float]]] = {}
    for number in range(-1, repetitions):
        for name, problem in problems.items():
            for stored in (False, True):
                took = _took(problem, stored, seed=number + 1)
                if number >= 0:
                    spent.setdefault((name, stored), []).append(took)
    for (name, stored), found in spent.items():
        sources = problems[name].sources
        rows, columns = int(sources.sizes.sum()), sources.features
        study, verdict = np.median(found, axis=0)
        what = f"{name}: {len(sources)} sources of {rows:,} rows together, {columns} columns"
        where = "in a file" if stored else "in memory"
        yield Cost(f"{what}, {where}", len(sources.validation), float(study), float(verdict), repetitions)


def _took(problem: Problem, stored: bool, **options: Any) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as folder, class_names(told=True):
        start = time.perf_counter()
        prepared = prepare(problem.sources, make_options(reference="none", **options))
        with opened(Path(folder) / "study.db" if stored else None, kept=True) as place:
            result = run(
                prepared.search,
                prepared.trainer,
                seed=prepared.options.seed,
                objective=prepared.objective,
                storage=place,
                keep_predictions=True,
            )
            between = time.perf_counter()
            judged(prepared, result, storage=place)
            return between - start, time.perf_counter() - between
