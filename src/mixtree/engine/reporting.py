"""What a study says while it runs: events for listeners, warnings that are logged and written down."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from mixtree.events import Event, Listener, NodeDiverged, NodeEvaluated, Warned
from mixtree.places import said
from mixtree.search import STEP_SIZE
from mixtree.storage.base import Storage
from mixtree.tree import Node

if TYPE_CHECKING:
    from mixtree.engine.loop import Loop

logger = logging.getLogger(__name__)


class Reporter:
    """Tells the listeners of one study, and remembers what is worth it in the study's events."""

    def __init__(self, storage: Storage, study: str, listeners: Sequence[Listener]) -> None:
        self._storage, self._study, self.listeners = storage, study, listeners
        self.warnings: list[str] = []
        self.best = inf
        """The smallest value so far, of nodes that may be returned."""

    def emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)

    def note(self, kind: str, message: str) -> None:
        """Write something down that happened to the study."""
        self._storage.add_event(self._study, kind, said(message))

    def warn(self, message: str) -> None:
        logger.warning("%s: %s", said(self._study), said(message))
        self.warnings.append(message)
        self.note("warning", message)
        self.emit(Warned(self._study, message))

    def evaluated(self, node: Node, loop: Loop[Any], *, replayed: bool) -> None:
        """A node was evaluated, now or (``replayed``) before the study was interrupted."""
        if node.value < self.best and loop.search.may_return(node):
            self.best = node.value
        self.emit(NodeEvaluated(self._study, node, loop.spent, self.best, replayed))
        # A trial of step sizes is there to find out which of them diverge: no news for the user. A look took
        # no steps.
        expected = node.phase == STEP_SIZE or node.look
        if node.diverged and not replayed and node.path not in loop.failed and not expected:
            lr = loop.trainer.lr
            size = f"{lr:g}" if isinstance(lr, int | float) else "in use"
            message = (
                f"node {node.path} diverged within {node.steps} steps at {node.lr_scale:g} × the step size "
                f"{size}: its loss is not finite; it counts as worst and is not expanded"
            )
            self.warn(message)
            self.emit(NodeDiverged(self._study, node, message))
