"""A round's work in pieces, and what comes of a piece."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from numbers import Real
from typing import Any, Generic, Protocol

from mixtree.engine.models import States
from mixtree.errors import CheckpointError, SearchError, TrainingError
from mixtree.search import Trial
from mixtree.seeds import INIT, derive_seed
from mixtree.trainer import Evaluation, Job, Part, State, Trainer
from mixtree.tree import Path
from mixtree.values import value


@value
class Task:
    """Trials that are trained together. ``fresh`` says whether the root is the initial model."""

    trials: tuple[Trial, ...]
    fresh: bool


@value
class Done:
    """A task's evaluations, in the order of its trials; or the path whose model it missed; or a failure."""

    task: Task
    evaluations: tuple[Evaluation, ...] = ()
    seconds: float = 0.0
    lost: Path | None = None
    failure: str | None = None


class Executor(Protocol):
    """Runs the tasks of a round and hands out what is done as it is done."""

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        """Each task's outcome, in any order. A trainer's exception stops the study."""

    def close(self) -> None:
        """Let go of processes."""


class Runner(Generic[State]):
    """Trains and evaluates tasks with one trainer: the same code in this process and in a worker."""

    def __init__(self, trainer: Trainer[State], states: States[State], *, seed: int, init_seed: int) -> None:
        self.trainer, self.states, self.seed = trainer, states, seed
        self._init_seed = init_seed
        self._initial: State | None = None

    def run(self, task: Task) -> Done:
        """Train a task's trials from their parents' models and keep the new ones."""
        started = time.perf_counter()
        jobs: list[Job[State]] = []
        before: Path = ()
        for trial in task.trials:
            path = trial.path
            if not before or path[:-1] != before:  # else a sibling, which continues the same model
                before = path[:-1]
                try:
                    # A root that was never trained is the initial model.
                    first = not path or (task.fresh and not before)
                    parent = self._start() if first else self.states.get(before)
                except CheckpointError:
                    return Done(task, lost=before)
            seed, part = derive_seed(self.seed, path), None
            if (segment := trial.segment) is not None:
                part = Part(derive_seed(self.seed, segment.stream), segment.before, segment.total)
            jobs.append(Job(parent, trial.mixture, trial.steps, seed, trial.lr_scale, part))
        states = self._listed("train", self.trainer.train(jobs))
        if len(states) != len(jobs):
            raise SearchError(f"the trainer was given {len(jobs)} jobs and returned {len(states)} models")
        evaluations = self._listed("evaluate", self.trainer.evaluate(states))
        for each in evaluations:
            if not isinstance(each, Evaluation) or not _is_number(each.value):
                found = each.value if isinstance(each, Evaluation) else each
                raise TrainingError(
                    f"{type(self.trainer).__name__}.evaluate must return an Evaluation per model, whose "
                    f"value is a number; got {repr(found)[:80]}"
                )
        for at, trial in enumerate(task.trials):
            self.states.put(trial.path, states[at])
        return Done(task, tuple(evaluations), time.perf_counter() - started)

    def _listed(self, method: str, given: Any) -> Any:
        """What the trainer returned, which may be anybody's."""
        if isinstance(given, list | tuple):
            return given
        raise TrainingError(
            f"{type(self.trainer).__name__}.{method} must return a list; got {type(given).__name__}"
        )

    def _start(self) -> State:
        if self._initial is None:
            self._initial = self.trainer.init(derive_seed(self._init_seed, (), INIT))
        return self._initial


def _is_number(value: Any) -> bool:
    """Also of numpy, in an array without dimensions too."""
    if type(value) is float:
        return True
    return isinstance(value, Real) or (getattr(value, "shape", None) == () and value.dtype.kind in "iuf")


class SerialExecutor(Generic[State]):
    """The work is done here, one task after the other."""

    def __init__(self, runner: Runner[State]) -> None:
        self._runner = runner

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        return map(self._runner.run, tasks)

    def close(self) -> None:
        """Nothing to let go of."""
