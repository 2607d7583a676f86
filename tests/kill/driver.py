"""Runs one small study again and again, kills it on the way, and prints what it ends with.

Everything is imported once; each attempt is a fork of its own, so that an attempt costs as little as the
study itself. The script takes a Plan as JSON and prints one JSON line per study.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import Result, run
from mixtree.errors import StudyLocked
from mixtree.partition import PARTITIONS
from mixtree.policies.commit import ThenCommit, then_commit
from mixtree.storage.sql import SqlStorage
from mixtree.trainer import Job
from mixtree.trainers.reference import ReferenceState, ReferenceTrainer
from mixtree.tree_search import TreeSearch


@dataclass(frozen=True)
class Plan:
    """Which study, and when its processes are killed."""

    folder: str
    url: str = ""
    """A database; without one, a file of its own for every study."""
    kills: list[list[float]] = field(default_factory=lambda: [[]])
    """One list per study: each entry kills one process, at the n-th write (n ≥ 1) or after so many seconds
    (below 1); the last process runs to the end."""
    budgets: list[int] = field(default_factory=lambda: [150])
    """Budgets, one after the other: every process of a study is killed within the first, then the next."""
    commit: float = 0.5
    workers: int = 1
    slow: float = 0.0
    group: int | None = None
    keep: str = "frontier"


class SlowTrainer(ReferenceTrainer):
    """The reference trainer, a little slower where that is wanted."""

    slow = 0.0
    log: Path | None = None
    """Where the steps of every job are written down before it is trained, in this process or another."""

    def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
        if self.slow:
            time.sleep(self.slow * len(jobs))
        if self.log is not None:
            with self.log.open("a") as log:
                log.writelines(f"{job.steps}\n" for job in jobs)
        return super().train(jobs)


def make_trainer(plan: Plan) -> SlowTrainer:
    sources = synthetic(sources=3, rows=40, validation=30, test=5, features=4, seed=3).sources
    trainer = SlowTrainer(sources, hidden=(4,), batch_size=8, lr=0.05, replacement=False)
    trainer.slow = plan.slow
    if plan.group is not None:
        trainer.group = plan.group  # type: ignore[attr-defined]
    return trainer


def make_search(budget: int, commit: float) -> ThenCommit:
    partitioning = PARTITIONS["bisect"]
    options: dict[str, Any] = {"budget": budget, "steps": 3, "width": 2, "nu": "auto"}
    return then_commit(TreeSearch(partitioning.root(3), partitioning.split, seed=5, **options), commit)


def study(plan: Plan, number: int, budget: int, **options: Any) -> Result[Any]:
    """One process's attempt."""
    folder = Path(plan.folder)
    storage = SqlStorage(plan.url or folder / f"{number}.db", checkpoints=folder / f"{number}.checkpoints")
    trainer = make_trainer(plan)
    trainer.log = folder / f"{number}.steps"
    try:
        return run(
            make_search(budget, plan.commit),
            trainer,
            seed=11,
            storage=storage,
            study=f"study {number}",
            resume=True,
            workers=plan.workers,
            keep=plan.keep,  # type: ignore[arg-type]
            **options,
        )
    finally:
        storage.close()


def outcome(plan: Plan, result: Result[Any]) -> dict[str, Any]:
    """All that must be the same, as text: every node, every bit."""
    arrays = make_trainer(plan).save(result.state)
    return {
        "best": result.node.path,
        "rule": result.rule,
        "spent": result.spent,
        "tree": [
            [node.path, node.value.hex(), node.mixture.tobytes().hex(), node.steps, node.lr_scale, node.phase]
            for node in result.tree.values()
        ],
        "model": {name: array.tobytes().hex() for name, array in arrays.items()},
    }


# ------------------------------------------------------------------------------------ being killed on a write


class Killer:
    """Kills this process at the n-th thing that is written: a statement, a commit, a file, a rename."""

    def __init__(self, at: float, folder: str) -> None:
        self.at, self.folder, self.count = at, folder, 0

    def step(self, *_: Any, **__: Any) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        sys.addaudithook(self._hear)
        for name in ("before_cursor_execute", "after_cursor_execute", "commit"):
            sa.event.listen(sa.Engine, name, self.step)
        write, killer = Path.write_bytes, self

        def write_half(path: Path, data: Any) -> int:
            killer.count += 1
            if killer.count == killer.at:
                write(path, bytes(data)[: len(data) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return write(path, data)

        Path.write_bytes = write_half  # type: ignore[method-assign, assignment]

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("os.rename", "os.remove", "os.mkdir") and self.folder in str(arguments[0]):
            self.step()


def attempt(work: Callable[[], None], *, after: float | None = None) -> int:
    """Fork, run, kill after some seconds if told to; the exit code as subprocess would give it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    if after is not None:
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def patiently(work: Callable[[], None]) -> None:
    """A server may need a moment to see that the process before has died."""
    for _ in range(200):
        try:
            return work()
        except StudyLocked:
            time.sleep(0.05)
    raise TimeoutError("the study stays locked")


def run_plan(plan: Plan) -> None:
    for number, kills in enumerate(plan.kills):
        killed = 0
        for place, budget in enumerate(plan.budgets):
            last = place == len(plan.budgets) - 1
            share = kills[place :: len(plan.budgets)]
            for at in share:
                killed += _killed(plan, number, budget, at)
            codes = attempt(
                lambda number=number, budget=budget, last=last, killed=killed: _to_the_end(  # type: ignore[misc]
                    plan, number, budget, killed=killed, tell=last
                )
            )
            assert codes == 0, f"study {number} failed"


def _killed(plan: Plan, number: int, budget: int, at: float) -> bool:
    def work() -> None:
        if at >= 1:
            Killer(at, plan.folder).watch()
        patiently(lambda: study(plan, number, budget) and None)

    return attempt(work, after=at if at < 1 else None) == -signal.SIGKILL


def _to_the_end(plan: Plan, number: int, budget: int, *, killed: int, tell: bool) -> None:
    writes = Killer(0, plan.folder)
    writes.watch()
    results: list[Result[Any]] = []
    patiently(lambda: results.append(study(plan, number, budget)))
    files = sorted(file.name for file in Path(plan.folder).glob(f"{number}.checkpoints/*/*"))
    trained = sum(map(int, (Path(plan.folder) / f"{number}.steps").read_text().split()))
    about = {"killed": killed, "writes": writes.count, "files": files, "trained": trained}
    about |= outcome(plan, results[0])
    if tell:
        print(json.dumps(about), flush=True)


def as_argument(plan: Plan) -> str:
    return json.dumps(asdict(plan))


if __name__ == "__main__":
    run_plan(Plan(**json.loads(sys.argv[1])))
