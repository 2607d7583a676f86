"""What every part of ``mixmatch+`` is worth: ``python -m mixtree.experiments.merging``."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from mixtree.data import paper
from mixtree.data.flights import flights
from mixtree.data.sources import Problem, Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import TrainingError
from mixtree.estimate.losses import match_losses
from mixtree.experiments.arena import task_named
from mixtree.experiments.comparison import Rules
from mixtree.experiments.specs import sparse_rows
from mixtree.experiments.tasks import Task, tasks
from mixtree.metrics import row_losses
from mixtree.partition import bisect, simplex_root
from mixtree.policies.merging import BRANCH, Start, rank_correlation
from mixtree.policies.mixmatch_plus import MixmatchPlus
from mixtree.policies.registry import make_search, training_sources
from mixtree.policies.script import Script
from mixtree.policies.setting import AutoOptions, PlusOptions, Setting
from mixtree.search import Search, in_segments
from mixtree.seeds import derive_seed
from mixtree.simplex import Mixture
from mixtree.storage.sql import open_storage
from mixtree.trainer import Evaluation, Job
from mixtree.tree import Path as NodePath
from mixtree.tree_search import TreeSearch

SEEDS = {
    "design": tuple(range(300, 310)),
    "confirm": tuple(range(400, 410)),
    "auto": tuple(range(300, 310)),
    "auto confirm": tuple(range(400, 410)),
}


def _task(like: str, name: str, load: Callable[[int], Problem] | None = None, **more: Any) -> Task:
    found = task_named(like)
    return replace(found, name=name, load=load or found.load, **more)


def _wine(seed: int, *, kind: str, target: str, features: Any = "core") -> Problem:
    make = paper.wine_price if kind == "price" else paper.wine_quartile
    return sparse_rows(make(seed=seed, targets=(target,), features=features))


def _carrier(seed: int, *, left_out: str) -> Problem:
    """One of the four carriers as the target of the three others."""
    whole = flights(target="new", seed=seed).sources
    (aim,) = (part for name, part in zip(whole.names, whole.rows, strict=True) if name == left_out)
    order = np.random.default_rng([seed, 31]).permutation(len(aim))
    held = [Rows(aim.x[some], aim.y[some]) for some in (order[:200], order[200:6200])]
    kept = [(name, part) for name, part in zip(whole.names, whole.rows, strict=True) if name != left_out]
    names, rows = zip(*kept, strict=True)
    return Problem(f"flights-{left_out}", Sources(names, rows, held[0], 2), held[1])


def _mixed(seed: int, *, mixture: tuple[float, ...]) -> Problem:
    return flights(target="known", seed=seed, mixture=mixture)


def _amazon(seed: int, *, target: str) -> Problem:
    return sparse_rows(paper.amazon(seed=seed, target=target))


def _allstate(seed: int, *, shares: paper.Shares) -> Problem:
    return paper.allstate(seed=seed, shares=shares)


def ablation_tasks(half: str) -> list[Task]:
    """Seven tasks: those of the paper and flights (design), with new targets (confirm); those of ``auto``."""
    if half in ("auto", "auto confirm"):
        return tasks("design" if half == "auto" else "confirm")
    notes = partial(_wine, kind="quartile", target="Chile", features="notes")
    if half == "design":
        return [
            _task("allstate", "allstate"),
            _task("flights new", "flights F9"),
            _task("flights known", "flights mix"),
            _task("wine-quartile", "wine notes quartile", notes, budget=600, steps=20),
            _task("wine-quartile", "wine-quartile"),
            _task("wine-price", "wine-price"),
            _task("amazon", "amazon"),
        ]
    states: paper.Shares = {"OH": (45.0, 1.0, 6.0), "WA": (50.0, 3.0, 20.0), "CO": (40.0, 1.0, 8.0)}
    other = (0.55, 0.05, 0.10, 0.30)
    notes = partial(_wine, kind="quartile", target="Portugal", features="notes")
    return [
        _task("allstate", "allstate OH WA CO", partial(_allstate, shares=states)),
        _task("flights new", "flights EV", partial(_carrier, left_out="EV")),
        _task("flights known", "flights mix 2", partial(_mixed, mixture=other)),
        _task("wine-quartile", "wine notes quartile Portugal", notes, budget=600, steps=20),
        _task("wine-quartile", "wine-quartile Germany", partial(_wine, kind="quartile", target="Germany")),
        _task("wine-price", "wine-price South Africa", partial(_wine, kind="price", target="South Africa")),
        _task("amazon", "amazon 118514", partial(_amazon, target="118514")),
    ]


class TrainedTree(MixmatchPlus):
    """The published search from a trunk: its nodes are trained, its returned node goes on."""

    def script(self) -> Script:
        options, setting = self.options, self.setting
        whole = self._trial((), self._uniform, int(options.trunk * self.budget), 1.0, "trunk")
        for part in in_segments(whole, self._segments):
            (trunk,) = yield [part]
            if trunk.diverged:
                return trunk
        inner = TreeSearch(
            simplex_root(self._width),
            bisect,
            budget=int(options.branches * self.budget),
            steps=setting.steps,
            train_root=False,
        )
        above = trunk.path
        while asked := inner.ask():
            nodes = yield [replace(each, path=_below(above, each.path)) for each in asked]
            for trial, node in zip(asked, nodes, strict=True):
                inner.tell(trial, Evaluation(node.value, node.standard_error))
        best = inner.best()
        path = _below(above, best.path)
        return (yield from self._commit(Start(path), best.mixture))


# The published search alone; from a trunk; over merged models; then what is added to that, one by one.
LEAN: dict[str, Any] = {"tail": 1, "arm": 0.0, "merged_start": False, "rounds": 1, "looks": 128}
PUBLISHED = tuple(f"mixmatch-{name}{end}" for name in ("ch", "dp", "bisect") for end in ("", "+commit"))
FULL, AUTO = "mixmatch+", "auto without target rows"
PLUS: dict[str, dict[str, Any]] = {
    "trunk + merged scoring": LEAN,
    "… + averaged branches": LEAN | {"tail": PlusOptions().tail},
    "… + race": LEAN | {"arm": PlusOptions().arm},
    "… + merged start": LEAN | {"merged_start": True},
    "… + stages ended early": LEAN | {"watch": True},
    FULL: {},
    "mixmatch+ without averaged branches": {"tail": 1},
    "mixmatch+ without race": {"arm": 0.0},
    "mixmatch+ without merged start": {"merged_start": False},
    "mixmatch+ with stages ended early": {"watch": True},
    "mixmatch+ in one round": {"rounds": 1, "looks": 128},
    "mixmatch+ from scratch (no trunk)": {"trunk": 0.0},
    "mixmatch+ with branches of .5": {"branches": 0.5},
}
EQUATIONS: dict[str, dict[str, Any]] = {
    "loss equations in place of the tree": LEAN | {"arm": PlusOptions().arm, "leaves": 0},
    "mixmatch+ with loss equations": {},
}
TRUNK_TREE = "trunk + published search"
TREES: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto with a tree, branches of .10": {"tree_share": 0.10},
    "auto with a tree, branches of .20": {"tree_share": 0.20},
}
"""Today's default, with the target's rows, and with candidates from a tree."""
METHODS = ("uniform+decay", *PUBLISHED, AUTO, TRUNK_TREE, *PLUS, *EQUATIONS)
METHODS_OF = {
    "design": METHODS,
    "confirm": ("uniform+decay", *PUBLISHED, AUTO, TRUNK_TREE, "trunk + merged scoring", FULL),
    "auto": tuple(TREES),
    "auto confirm": ("auto", "auto with a tree, branches of .10"),
}
"""What is measured on a half."""


def _below(above: NodePath, path: NodePath) -> NodePath:
    """Where a node of the inner search stands; the first children may be the trunk's own segments."""
    return (*above, *(2 + index for index in path))


def search_of(method: str, setting: Setting, task: Task, seed: int) -> Search:
    """The search behind a row of the table."""
    if method in TREES:
        return make_search("auto", replace(setting, auto=AutoOptions(**TREES[method])))
    if method == AUTO:
        return make_search("auto", replace(setting, use_target_rows=False))
    if method == TRUNK_TREE:
        return TrainedTree(replace(setting, plus=PlusOptions(watch=False)))
    if method in PLUS:
        return MixmatchPlus(replace(setting, plus=PlusOptions(**PLUS[method])))
    if method in EQUATIONS:
        own = replace(setting, plus=PlusOptions(**EQUATIONS[method]))
        return MixmatchPlus(own, more={"the loss equations": equations(own, task, seed)})
    return make_search(method, setting)


def equations(setting: Setting, task: Task, seed: int) -> Mixture:
    """α of F_te = Σ α_i F_i over the trunk's and the branches' segments, on up to 500 rows of each source."""
    assert setting.data is not None
    random, trainer = np.random.default_rng(seed), task.trainer(setting.data)
    rows = [random.permutation(len(part))[:500] for part in setting.data.rows]
    losses, targets, classes = [], [], setting.data.classes
    with tempfile.TemporaryDirectory() as folder, closing(open_storage(Path(folder) / "s.db")) as storage:
        search = MixmatchPlus(setting)
        result = run(search, trainer, seed=setting.seed, init_seed=seed, storage=storage, keep="all")
        models: Any = storage.checkpoints("study")
        for path, node in result.tree.items():
            if node.phase not in ("trunk", BRANCH) or node.diverged:
                continue
            state = trainer.load(models.read(path))
            own = zip(setting.data.rows, rows, strict=True)
            parts = [(part.x[some], part.y[some]) for part, some in own]
            losses.append([row_losses(y, trainer.predict(state, x), classes).mean() for x, y in parts])
            seen = setting.data.validation
            targets.append(row_losses(seen.y, trainer.predict(state, seen.x), classes))
    return match_losses(np.array(losses), np.array(targets)).alpha


def run_one(half: str, name: str, seed: int, methods: Sequence[str]) -> list[dict[str, Any]]:
    """Methods on one task and seed: their losses on test rows, what they chose and what they took."""
    (task,) = (each for each in ablation_tasks(half) if each.name == name)
    problem = task.load(seed)
    assert problem.test is not None
    plain, rows = task.trainer(problem.sources), []
    for method in methods:
        stream = derive_seed(seed, (crc32(method.encode()),))
        setting = Rules(task.budget, task.steps, task.metric, {}, task.batch).setting(problem, seed=stream)
        trainer = task.trainer(training_sources("auto", setting)) if method in TREES else plain
        began, search = time.process_time(), search_of(method, setting, task, seed)
        row: dict[str, Any] = {"half": half, "task": name, "seed": seed, "method": method}
        try:
            result = run(search, trainer, seed=stream, init_seed=seed)
        except TrainingError:
            row |= {"loss": None}
        else:
            score = task.metric(problem.test.y, trainer.predict(result.state, problem.test.x))
            row |= {
                "loss": task.metric.signed(score),
                "trust": getattr(search, "trust", None),
                "looks": sum(node.look for node in result.tree.values()),
                "spent": result.spent,
                "mixture": result.weights,
            }
        rows.append(row | {"cpu": time.process_time() - began})
    return rows


# Where merging fails: share of the trunk, share of the branches, × the step size.
FAILURES = {
    "trunk .3, branches .3": (0.3, 0.3, 1.0),
    "no trunk": (0.0, 0.3, 1.0),
    "long branches, .6": (0.3, 0.6, 1.0),
    "3 × the step size": (0.3, 0.3, 3.0),
    "10 × the step size": (0.3, 0.3, 10.0),
}


def failure_tasks() -> list[Task]:
    """The seven tasks, many sources, regressions."""
    named = {task.name: task for task in tasks()}
    many = _made_of_thirty(named["in-hull K=10 neural"])
    others = [named[name] for name in ("in-hull K=10 neural", "regression K=4 linear")]
    return [*ablation_tasks("design"), *others, many]


def _made_of_thirty(like: Task) -> Task:
    return replace(like, name="in-hull K=30 neural", load=_thirty)


def _thirty(seed: int) -> Problem:
    return synthetic(seed=seed, sources=30, rows=500, kind="neural")


def run_failures(task: Task, seed: int) -> list[dict[str, Any]]:
    """Rank correlation of merged losses with those of eight mixtures that were really trained."""
    problem = task.load(seed)
    sources, rows = problem.sources, []
    count, random = len(sources), np.random.default_rng([seed, 31])
    mixtures = random.dirichlet(np.ones(count), size=8)
    for name, (trunk, branches, rate) in FAILURES.items():
        trainer = task.trainer(sources, lr=task.lr * rate)
        start: Any = trainer.init(seed)
        even = np.full(count, 1.0 / count)
        if steps := int(trunk * task.budget):
            (start,) = trainer.train([Job(start, even, steps, derive_seed(seed, (0,)))])
        each = max(1, int(branches * task.budget / count))
        stream = derive_seed(seed, (1,))
        ends = trainer.train([Job(start, row, each, stream) for row in np.eye(count)])
        looks = trainer.evaluate([trainer.merge(ends, list(alpha)) for alpha in mixtures])
        left = task.budget - steps
        settled = trainer.train(
            [
                Job(start, alpha, left - left // 3, derive_seed(seed, (2, at)))
                for at, alpha in enumerate(mixtures)
            ]
        )
        settled = trainer.train(
            [
                Job(state, alpha, left // 3, derive_seed(seed, (3, at)), 0.1)
                for at, (state, alpha) in enumerate(zip(settled, mixtures, strict=True))
            ]
        )
        one = [look.value for look in looks]
        two = [seen.value for seen in trainer.evaluate(settled)]
        finite = all(map(isfinite, (*one, *two)))
        told = rank_correlation(one, two) if finite else None
        row = {"half": "failures", "task": task.name, "seed": seed, "method": name}
        rows.append(row | {"rank": told, "steps": each})
    return rows


def measure_failures(file: Path, *, seeds: int) -> None:
    """Append what is not in the file yet."""
    known = {_key(row) for row in stored(file)}
    with file.open("a", encoding="utf-8") as out:
        for task in failure_tasks():
            for seed in range(300, 300 + seeds):
                if ("failures", task.name, seed, next(iter(FAILURES))) not in known:
                    for row in run_failures(task, seed):
                        out.write(json.dumps(row) + "\n")
                    out.flush()


def measure(file: Path, half: str, *, seeds: int, methods: Sequence[str], seconds: float) -> bool:
    """Append what is not in the file yet, for so long; whether all of it is there."""
    known = {_key(row) for row in stored(file)}
    began = time.monotonic()
    for seed in SEEDS[half][:seeds]:
        for task in ablation_tasks(half):
            wanted = [each for each in methods if (half, task.name, seed, each) not in known]
            if not wanted:
                continue
            if time.monotonic() - began > seconds:
                return False
            with file.open("a", encoding="utf-8") as out:
                for row in run_one(half, task.name, seed, wanted):
                    out.write(json.dumps(row) + "\n")
    return True


def stored(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of results."""
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _key(row: Mapping[str, Any]) -> tuple[str, str, int, str]:
    return row["half"], row["task"], row["seed"], row["method"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mixtree.experiments.merging", description=__doc__)
    parser.add_argument("file", type=Path, help="one JSON line a run; none is run twice")
    parser.add_argument("--half", choices=(*SEEDS, "failures"), default="design")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=600.0, help="no run is begun after these")
    parser.add_argument("--only", nargs="*", help="methods; all of the half by default")
    arguments = parser.parse_args()
    given = arguments
    if given.half == "failures":
        measure_failures(given.file, seeds=given.seeds)
        return
    methods = given.only or METHODS_OF[given.half]
    done = measure(given.file, given.half, seeds=given.seeds, methods=methods, seconds=given.seconds)
    print("done" if done else "not all is done: run it again")


if __name__ == "__main__":
    main()
