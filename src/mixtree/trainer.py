"""What a search needs from a model family: start, train on a mixture, evaluate, save, load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mixtree.simplex import Mixture
from mixtree.values import value

State = TypeVar("State")


@value
class Part:
    """Which steps of a longer stage a job is: together its parts train the model that one job would."""

    seed: int
    """Of the whole stage; that of a job of its own is another one."""
    before: int
    """Steps of the stage that are behind."""
    total: int
    """Steps of the whole stage."""


@value
class Job(Generic[State]):
    """Continue this state on this mixture for so many steps.

    ``mixture`` has one weight per source; a trainer that was given the target's rows also takes one more
    weight for them (source K+1). ``seed`` is the only source of randomness.

    A long stage is trained in segments, one job each. A trainer that knows ``part`` goes on with the stage's
    random numbers where the job before stopped, so that segments change no weights; one that does not draws
    by ``seed``, which is another one in every segment.
    """

    state: State
    mixture: Mixture
    steps: int
    seed: int
    lr_scale: float = 1.0
    part: Part | None = None


@value
class Evaluation:
    """How a model does on the validation rows: smaller values are better, +inf is a diverged model.

    ``predictions`` has one row per validation row: class probabilities (n, classes), (n,) in a regression.
    """

    value: float
    standard_error: float = float("nan")
    predictions: NDArray[np.floating[Any]] | None = None


@runtime_checkable
class Trainer(Protocol[State]):
    """A model family. It never changes a state it is given; its only randomness are the seeds it is given.

    What only some callers need is optional, found by name:

    - ``group: int`` — jobs are trained this many at a time and a job's numbers may depend on the jobs of its
      group. A study always cuts a round into the same groups, whatever the number of workers. Without it, a
      job's numbers do not depend on the jobs beside it.
    - ``engine: str`` — which of several ways to compute is in use; a study records it and sets it on resume.
      ``prepare(steps=…, seconds=…)`` settles it where it is chosen by timing; a study calls it once, before
      anything else, with its budget and its time limit (None: unknown, or without end).
    - ``lr: float`` — the base step size, for messages.
    - ``predict(state, x)`` — predictions for any rows: (n, classes) probabilities, or (n,) for a regression.
    - ``epochs(state)`` — how often each source's rows were read.
    - ``describe()`` — the settings that decide the numbers, as plain data; part of a study's fingerprint.
    - ``average(states)`` and ``gradients(state, source, rows)`` — for policies that need them.
    """

    def init(self, seed: int) -> State:
        """A fresh model."""

    def train(self, jobs: Sequence[Job[State]]) -> list[State]:
        """One new state per job."""

    def evaluate(self, states: Sequence[State]) -> list[Evaluation]:
        """Loss on the validation rows, and predictions on them where the trainer can."""

    def save(self, state: State) -> dict[str, NDArray[Any]]:
        """The whole state, optimizer and data cursor included, as named arrays."""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> State:
        """The state that was saved, bit for bit."""
