"""What happens in a study, as values. Progress bars, loggers and trackers listen; nothing else prints."""

from __future__ import annotations

from collections.abc import Callable

from mixtree.simplex import value
from mixtree.tree import Node, Trial


@value
class StudyStarted:
    """A study begins, or goes on where it was interrupted."""

    study: str
    budget: int
    spent: int = 0
    sources: tuple[str, ...] = ()
    """Their names, in the order of a mixture's weights; empty where the trainer gives none."""


@value
class RoundAsked:
    """The search asked for these trials; they are trained next."""

    study: str
    number: int
    trials: tuple[Trial, ...]


@value
class NodeEvaluated:
    """A node was trained and evaluated; ``best`` is the smallest value so far."""

    study: str
    node: Node
    spent: int
    best: float
    replayed: bool = False
    """It was evaluated before the study was interrupted."""


@value
class NodeDiverged:
    """A warning: a node's loss is not finite. It counts as worst and is never expanded."""

    study: str
    node: Node
    message: str


@value
class Warned:
    """Something went wrong and the study goes on: a diverged node, a dead worker, a lost checkpoint."""

    study: str
    message: str


@value
class StudyFinished:
    """A study ended; ``reason`` says why."""

    study: str
    best: Node
    spent: int
    reason: str


Event = StudyStarted | RoundAsked | NodeEvaluated | NodeDiverged | Warned | StudyFinished
Listener = Callable[[Event], None]
