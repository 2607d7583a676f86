"""A round's work in groups, and what comes of a group."""

from __future__ import annotations

import pickle
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from math import inf
from numbers import Real
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from mixtree.errors import CheckpointError, MixtreeError, SearchError, StorageError, TrainingError
from mixtree.seeds import INIT, derive_seed
from mixtree.simplex import value
from mixtree.trainer import Evaluation, Job, Part, State, TrainerBase, given
from mixtree.tree import Path, Trial

Group = tuple[Trial, ...]
"""Trials that are trained together."""
Kept = TypeVar("Kept")


class Keeps(Protocol[Kept]):
    """Where a runner finds the models that it goes on from, and leaves those that it makes."""

    def get(self, path: Path) -> Kept:
        """The model of this path; CheckpointError if it is gone."""

    def put(self, path: Path, state: Kept) -> None:
        """Keep a model."""


@value
class Done:
    """A group's evaluations, in the order of its trials; or the path whose model it missed; or a failure."""

    group: Group
    evaluations: tuple[Evaluation, ...] = ()
    seconds: float = 0.0
    lost: Path | None = None
    failure: str | None = None


class Lost(Exception):
    """The model of this path is gone."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


class Executor(Protocol):
    """Runs the groups of a round and hands out what is done as it is done."""

    @property
    def workers(self) -> int:
        """How many groups it trains at a time, at the most."""

    def run(self, groups: Sequence[Group], *, fresh: bool) -> Iterator[Done]:
        """Each group's outcome, in any order. A trainer's exception stops the study.

        ``fresh`` says that the root was never trained, so that its children start from the initial model.
        """

    def close(self) -> None:
        """Let go of processes."""


class Runner(Generic[State]):
    """Trains and evaluates groups with one trainer: the same code in this process and in a worker."""

    def __init__(
        self, trainer: TrainerBase[State], models: Keeps[State], *, seed: int, init_seed: int
    ) -> None:
        self.trainer, self.models, self.seed, self.init_seed = trainer, models, seed, init_seed
        self._initial: State | None = None

    def run(self, group: Group, *, fresh: bool) -> Done:
        """Train a group's trials from their parents' models and keep the new ones; looks are not kept."""
        started = time.perf_counter()
        if self.trainer.merge is None and not any(trial.steps for trial in group):
            return Done(group, (Evaluation(inf),) * len(group))
        looks: dict[Path, State] = {}
        jobs: list[Job[State]] = []
        before: Path = ()
        for trial in group:
            path = trial.path
            try:
                if trial.merged is not None:
                    parent, before = self._merged(trial), ()
                elif not before or path[:-1] != before:  # else a sibling, which continues the same model
                    before = path[:-1]
                    if not path or (fresh and not before):
                        if self._initial is None:
                            self._initial = self.trainer.init(derive_seed(self.init_seed, (), INIT))
                        parent = self._initial
                    else:
                        parent = self.models.get(before)
            except Lost as lost:
                return Done(group, lost=lost.path)
            except CheckpointError:
                return Done(group, lost=before)
            if not trial.steps:
                looks[path] = parent
                continue
            seed, part = derive_seed(self.seed, path), None
            if (segment := trial.segment) is not None:
                part = Part(derive_seed(self.seed, segment.stream), segment.before, segment.total)
            jobs.append(Job(parent, trial.mixture, trial.steps, seed, trial.lr_scale, part))
        states = self._listed("train", self.trainer.train(jobs)) if jobs else []
        if len(states) != len(jobs):
            raise SearchError(f"the trainer was given {len(jobs)} jobs and returned {len(states)} models")
        if looks:
            trained = iter(states)
            states = [next(trained) if trial.steps else looks[trial.path] for trial in group]
        evaluations = self._listed("evaluate", self.trainer.evaluate(states))
        for each in evaluations:
            if not isinstance(each, Evaluation) or not _is_number(each.value):
                found = each.value if isinstance(each, Evaluation) else each
                raise TrainingError(
                    f"{type(given(self.trainer)).__name__}.evaluate must return an Evaluation per model, "
                    f"whose value is a number; got {repr(found)[:80]}"
                )
        for at, trial in enumerate(group):
            if trial.steps:
                self.models.put(trial.path, states[at])
        return Done(group, tuple(evaluations), time.perf_counter() - started)

    def _merged(self, trial: Trial) -> State:
        """The mean of models that a trial starts from."""
        assert trial.merged is not None
        states = []
        for path in trial.merged.paths:
            try:
                states.append(self.models.get(path))
            except CheckpointError as error:
                raise Lost(path) from error
        merged: State = self.trainer.merge(states, trial.merged.weights, trial.mixture)
        return merged

    def _listed(self, method: str, returned: Any) -> Any:
        """What the trainer returned, which may be anybody's."""
        if isinstance(returned, list | tuple):
            return returned
        name = type(given(self.trainer)).__name__
        raise TrainingError(f"{name}.{method} must return a list; got {type(returned).__name__}")


def _is_number(value: Any) -> bool:
    """Also of numpy, in an array without dimensions too."""
    if type(value) is float:
        return True
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.shape == ())


class SerialExecutor(Generic[State]):
    """The work is done here, one group after the other."""

    workers = 1

    def __init__(self, runner: Runner[State]) -> None:
        self._runner = runner

    def run(self, groups: Sequence[Group], *, fresh: bool) -> Iterator[Done]:
        return (self._runner.run(group, fresh=fresh) for group in groups)

    def close(self) -> None:
        """Nothing to let go of."""


def answer(runner: Runner[Any], group: Group, fresh: bool) -> bytes:
    """What a worker has to say of a group: what came of it, or the error that it raised."""
    try:
        done = runner.run(group, fresh=fresh)
        return pickle.dumps(Done((), done.evaluations, done.seconds, done.lost))
    except Exception as error:  # whatever the user's code raises is reported to the study, loudly
        name = type(error).__name__
        return pickle.dumps((name, f"{name}: {error}", traceback.format_exc()))


def refused(said: tuple[str, str, str], where: str) -> MixtreeError:
    """The error that a worker has told of."""
    kind, message, trace = said
    raised = StorageError if kind == "StorageError" else TrainingError
    return raised(f"{message}\n\nin {where}:\n{trace}")


def one_torch_thread() -> None:
    """Threads of several workers would only get in each other's way."""
    if "torch" in sys.modules:  # the trainer brought it
        sys.modules["torch"].set_num_threads(1)
