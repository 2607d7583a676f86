"""What a search needs from a model family: start, train on a mixture, evaluate, save, load."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mixtree.errors import InputError
from mixtree.simplex import Mixture, value

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

    Parameters
    ----------
    state
        The parent's model; it is not changed.
    mixture
        One weight per source; a trainer that has the target's rows takes one more for them (source K+1).
    steps
        SGD steps.
    seed
        The only source of randomness.
    lr_scale
        × the trainer's step size.
    part
        Where the job stands in a longer stage that is trained in segments. A trainer that knows it goes on
        with the stage's random numbers where the job before stopped, so that segments change no weights; one
        that does not draws by ``seed``, which is another one in every segment.

    Examples
    --------
    >>> Job(state=None, mixture=np.array([0.5, 0.5]), steps=20, seed=7).lr_scale
    1.0
    """

    state: State
    mixture: Mixture
    steps: int
    seed: int
    lr_scale: float = 1.0
    part: Part | None = None


@value
class Evaluation:
    """How a model does on the validation rows.

    Parameters
    ----------
    value
        Smaller is better; +inf is a diverged model.
    standard_error
        Of the value; NaN where it is not known.
    predictions
        One row per validation row: class probabilities (n, classes), or (n,) in a regression.

    Examples
    --------
    >>> Evaluation(0.41).standard_error
    nan
    """

    value: float
    standard_error: float = float("nan")
    predictions: NDArray[np.floating[Any]] | None = None


@runtime_checkable
class Trainer(Protocol[State]):
    """A model family. It never changes a state it is given; its only randomness are the seeds it is given.

    These five methods are enough. What only some trainers can do has a default in ``TrainerBase``.

    Examples
    --------
    >>> from mixtree.trainers.reference import ReferenceTrainer
    >>> issubclass(ReferenceTrainer, Trainer)
    True
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


class TrainerBase(ABC, Generic[State]):
    """A trainer with a default for everything that is optional.

    ``as_trainer`` gives the same defaults to an object that has the five methods of ``Trainer`` only.

    Examples
    --------
    A model that is one number; a step moves it towards 1, by how much the first source weighs.

    >>> class Number(TrainerBase):
    ...     def init(self, seed):
    ...         return 0.0
    ...
    ...     def train(self, jobs):
    ...         return [1 - (1 - job.state) * (1 - 0.1 * job.mixture[0]) ** job.steps for job in jobs]
    ...
    ...     def evaluate(self, states):
    ...         return [Evaluation(abs(1 - state)) for state in states]
    ...
    ...     def save(self, state):
    ...         return {"number": np.array(state)}
    ...
    ...     def load(self, arrays):
    ...         return float(arrays["number"])
    >>> from mixtree import TreeSearch, run
    >>> from mixtree.partition import bisect, simplex_root
    >>> result = run(TreeSearch(simplex_root(2), bisect, budget=60, steps=10), Number())
    >>> bool(result.mixture[0] > 0.5)
    True
    """

    sources: Any = None
    """The rows it trains on, a ``Sources``; None where it reads them itself."""
    names: Sequence[str] = ()
    """The sources' names, where it has no ``sources``."""
    refits: bool = False
    """What it saves is what a model is fitted again from: without the training rows nothing can be loaded."""
    group: int | None = None
    """Jobs are trained this many at a time, and a job's numbers may depend on the jobs of its group; a study
    cuts a round into the same groups whatever the number of workers. None: no job depends on another."""
    engine: Any = None
    """Which of several ways to compute is in use; a study records it and sets it on resume."""
    lr: Any = None
    """The base step size, for messages."""
    predict: Any = None
    """``predict(state, x)``: (n, classes) probabilities, or (n,) in a regression. None: it only scores."""
    merge: Any = None
    """``merge(states, weights, mixture)``: one model of the weighted mean of these, without their optimizers'
    memories; what must be computed again from rows is, on rows of the mixture."""
    transformers: Any = None
    """What changes features before they reach the model, fitted: a trainer without rows cannot fit it."""
    gradients: Any = None
    """``gradients(state, source, rows)``: the loss's gradient on these rows, as one vector."""

    @abstractmethod
    def init(self, seed: int) -> State:
        """A fresh model."""

    @abstractmethod
    def train(self, jobs: Sequence[Job[State]]) -> list[State]:
        """One new state per job."""

    @abstractmethod
    def evaluate(self, states: Sequence[State]) -> list[Evaluation]:
        """Loss on the validation rows, and predictions on them where the trainer can."""

    @abstractmethod
    def save(self, state: State) -> dict[str, NDArray[Any]]:
        """The whole state, optimizer and data cursor included, as named arrays."""

    @abstractmethod
    def load(self, arrays: Mapping[str, NDArray[Any]]) -> State:
        """The state that was saved, bit for bit."""

    def prepare(self, *, steps: int | None = None, seconds: float | None = None) -> None:
        """Settle what is chosen by timing; called once, before anything else, with budget and time limit."""

    def epochs(self, state: State) -> NDArray[np.float64] | None:
        """How often each source's rows were read; None where that is not known."""
        return None

    def describe(self) -> dict[str, Any]:
        """The settings that decide the numbers, as plain data; part of a study's fingerprint."""
        return {}


class _WithDefaults(TrainerBase[State]):
    """An object that has a trainer's five methods, with the defaults for what it lacks."""

    def __init__(self, own: Any) -> None:
        self.own = own
        for name in (
            "sources",
            "names",
            "refits",
            "lr",
            "predict",
            "merge",
            "gradients",
            "transformers",
            "prepare",
            "epochs",
            "describe",
        ):
            if hasattr(own, name):
                setattr(self, name, getattr(own, name))

    # Both may change while a study is prepared, and reading the engine may choose one.
    @property
    def group(self) -> int | None:  # type: ignore[override]
        return getattr(self.own, "group", None)

    @property
    def engine(self) -> Any:
        return getattr(self.own, "engine", None)

    @engine.setter
    def engine(self, engine: Any) -> None:
        self.own.engine = engine

    def init(self, seed: int) -> State:
        return cast(State, self.own.init(seed))

    def train(self, jobs: Sequence[Job[State]]) -> list[State]:
        return cast(list[State], self.own.train(jobs))

    def evaluate(self, states: Sequence[State]) -> list[Evaluation]:
        return cast(list[Evaluation], self.own.evaluate(states))

    def save(self, state: State) -> dict[str, NDArray[Any]]:
        return cast(dict[str, NDArray[Any]], self.own.save(state))

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> State:
        return cast(State, self.own.load(arrays))


def as_trainer(trainer: Any) -> TrainerBase[Any]:
    """The trainer with all its optional parts; an error says which of the five methods an object lacks."""
    if isinstance(trainer, TrainerBase):
        return trainer
    if not isinstance(trainer, Trainer):
        methods = ", ".join(name for name in vars(Trainer) if not name.startswith("_"))
        raise InputError(f"{type(trainer).__name__} is not a Trainer: it needs {methods}")
    return _WithDefaults(trainer)


def given(trainer: TrainerBase[Any]) -> Any:
    """The object that ``as_trainer`` was given."""
    return trainer.own if isinstance(trainer, _WithDefaults) else trainer
