"""Every choice of ``auto``, changed alone, on the tasks it was designed on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from mixtree.data.files import write_file
from mixtree.engine.study import run
from mixtree.errors import TrainingError
from mixtree.experiments.arena import paired, seeds_of, task_named
from mixtree.experiments.comparison import Rules
from mixtree.experiments.parallel import Crew
from mixtree.experiments.tasks import Task
from mixtree.policies.registry import make_search, training_sources
from mixtree.policies.setting import AutoOptions
from mixtree.seeds import derive_seed

AS_IT_IS = "as it is"
NEVER = "never on the target's rows"
CHOICES: dict[str, dict[str, Any]] = {
    AS_IT_IS: {},
    "the given step size only": {"rates": (1.0,)},
    "another step size if better by half a standard error": {"rate_errors": 0.5},
    "step sizes tried for 3 % each": {"rate_share": 0.03},
    "trunk of 10 %": {"trunk_share": 0.10},
    "trunk of 40 %": {"trunk_share": 0.40},
    "no race: uniform": {"arms": ("uniform",)},
    "no race: estimated": {"arms": ("estimated",)},
    "race of 6 % per mixture": {"arm_share": 0.06},
    "a tenth decayed": {"decay_share": 0.10},
    "half decayed": {"decay_share": 0.50},
    "a commit is kept though it made things worse": {"commit_errors": 1e9},
    "a commit is taken back if worse by one standard error": {"commit_errors": 1.0},
    NEVER: {},
    "at most 2 % on the target's rows": {"target_grid": (0.005, 0.01, 0.02)},
    "target rows if better by half a standard error, wherever the target is": {"target_errors": (0.5, 0.5)},
    "target rows if better by 1.5 standard errors, wherever the target is": {"target_errors": (1.5, 1.5)},
    "no veto of the metric": {"target_veto": 1e9},
    "veto if the metric is worse at all": {"target_veto": 0.0},
}
FILE = "choices.json"
Rows = list[dict[str, Any]]


def measure(
    file: Path, function: Callable[[str, int], Rows], chosen: Sequence[Task], *, seeds: int, crew: Crew
) -> Rows:
    """What a function finds on all tasks and seeds: losses on test rows, written down."""
    work = [(task.name, seed) for task in chosen for seed in seeds_of(task.half, seeds)]
    rows = sorted((row for part in crew.run(function, work) for row in part), key=str)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(file, json.dumps(rows, indent=0))
    return rows


def run_choices(name: str, seed: int) -> Rows:
    """All choices on one task and seed."""
    task = task_named(name)
    problem = task.load(seed)
    assert problem.test is not None
    stream = derive_seed(seed, (crc32(b"auto"),))
    plain = Rules(task.budget, task.steps, task.metric, {}, task.batch).setting(problem, seed=stream)
    trainers: dict[bool, Any] = {}
    rows = []
    for choice, options in CHOICES.items():
        setting = replace(plain, auto=AutoOptions(**options), use_target_rows=choice != NEVER)
        trainer = trainers.setdefault(
            setting.use_target_rows, task.trainer(training_sources("auto", setting))
        )
        try:
            result = run(make_search("auto", setting), trainer, seed=stream, init_seed=seed)
        except TrainingError:
            loss = float("nan")
        else:
            loss = task.metric.signed(
                task.metric(problem.test.y, trainer.predict(result.state, problem.test.x))
            )
        rows.append({"task": name, "seed": seed, "choice": choice, "loss": loss})
    return rows


PAIRS = [(choice, AS_IT_IS) for choice in CHOICES if choice != AS_IT_IS]


def summary(rows: Sequence[dict[str, Any]], pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Per pair: how much worse the first is, in standard deviations, and on which tasks surely."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    losses = {(row["task"], row["choice"], row["seed"]): row["loss"] for row in rows}
    table = [["changed", "worse by (sd of a task's seeds)", "surely worse on", "surely better on"]]
    for changed, plain in pairs:
        gaps, worse, better = [], [], []
        for task in tasks:
            seeds = sorted({seed for where, _, seed in losses if where == task})
            one, two = (np.array([losses[task, each, s] for s in seeds]) for each in (changed, plain))
            finite = np.isfinite(one) & np.isfinite(two)
            if finite.sum() < 2:
                continue
            mean, low, high = paired(one[finite], two[finite])
            gaps.append(mean / (two[finite].std(ddof=1) or 1.0))
            worse += [task] if low > 0 else []
            better += [task] if high < 0 else []
        told = f"{np.mean(gaps):+.2f}" if gaps else "–"
        table.append([changed, told, ", ".join(worse) or "–", ", ".join(better) or "–"])
    return table
