"""Listeners that write events as text: to a logger, to a file of JSON lines."""

from __future__ import annotations

import json
import logging
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from mixtree.errors import StorageError
from mixtree.events import (
    Event,
    Listener,
    NodeDiverged,
    NodeEvaluated,
    RoundAsked,
    StudyFinished,
    StudyStarted,
    Warned,
)
from mixtree.places import said
from mixtree.simplex import Mixture

_SHOWN_WEIGHTS = 8


def log_events(logger: logging.Logger | None = None, *, level: int = logging.INFO) -> Listener:
    """A listener that logs one readable line per event, by default to the logger ``mixtree.events``.

    Warnings are logged as warnings, except to the default logger: the study has logged them itself already,
    beside it. Nodes that a resumed study only repeats are logged as debugging.
    """
    own = logger or logging.getLogger("mixtree.events")

    def listen(event: Event) -> None:
        if isinstance(event, Warned):
            if logger is None:
                return
            rank = max(level, logging.WARNING)
        else:
            replayed = isinstance(event, NodeEvaluated) and event.replayed
            rank = min(level, logging.DEBUG) if replayed else level
        if own.isEnabledFor(rank):
            own.log(rank, "%s: %s", said(event.study), said(describe(event)))

    return listen


def describe(event: Event) -> str:
    """An event in one line, without the name of its study."""
    match event:
        case StudyStarted():
            spent = f", {event.spent} of them spent" if event.spent else ""
            return f"started with a budget of {event.budget} steps{spent}"
        case RoundAsked(trials=trials):
            steps = sum(trial.steps for trial in trials)
            nodes = "1 node" if len(trials) == 1 else f"{len(trials)} nodes"
            return f"round {event.number}: {nodes}, {steps} steps"
        case NodeEvaluated(node=node):
            error = f" ± {node.standard_error:.2g}" if isfinite(node.standard_error) else ""
            return (
                f"node {node.path}, {node.phase}, {node.steps} steps on {_weights(node.mixture)}: "
                f"{node.value:.5g}{error}; best {event.best:.5g}, {event.spent} steps spent"
            )
        case NodeDiverged(node=node):
            return f"node {node.path} diverged"
        case StudyFinished(best=node):
            return (
                f"ended after {event.spent} steps, {event.reason}: node {node.path} "
                f"on {_weights(node.mixture)}, {node.value:.5g}"
            )
        case Warned():
            return event.message


def _weights(mixture: Mixture) -> str:
    shown = " ".join(f"{weight:.3g}" for weight in mixture[:_SHOWN_WEIGHTS])
    return f"[{shown}{' …' if len(mixture) > _SHOWN_WEIGHTS else ''}]"


class JsonLines:
    """A listener that appends one JSON object per event to a file.

    Every object has ``event`` (the event's class), ``time`` (UTC) and the event's fields; a mixture and a
    path are lists; numbers that are not finite are null, as JSON knows neither NaN nor infinity. Each line is
    handed to the system before the study goes on. A resumed study appends: nodes that it only repeats have
    ``"replayed": true``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._write(b"")
        _mend(self.path)

    def __call__(self, event: Event) -> None:
        text = json.dumps(as_json(event), ensure_ascii=False, allow_nan=False)
        self._write(text.encode() + b"\n")

    def _write(self, data: bytes) -> None:
        # Opened anew for each event: nothing is left open when a study is interrupted, and one write per line
        # keeps lines whole even where several processes append to one file.
        try:
            with self.path.open("ab") as file:
                file.write(data)
        except OSError as error:
            raise StorageError(
                f"cannot write events to {self.path}: {error.strerror or error}; choose another file, or "
                "make room and resume the study"
            ) from error


def as_json(event: Event) -> dict[str, Any]:
    """An event as plain data that any JSON parser reads back."""
    row = {"event": type(event).__name__, "time": datetime.now(UTC).isoformat(timespec="milliseconds")}
    row |= _plain(event)
    if isinstance(
        event, StudyFinished
    ):  # "best" is a number in every event, so that tables can be made of it
        row |= {"node": row["best"], "best": _plain(event.best.value)}
    return row


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


_BEGINNING = b'{"event": "'
_TAIL = 1 << 20
"""How far from the end of a file the beginning of its last line is looked for."""


def _mend(path: Path) -> None:
    """Cut off a last line that a full disk or a power cut left unfinished; the study will report it again."""
    if not path.is_file():  # a pipe or a device has no last line
        return
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        start = file.seek(max(0, size - _TAIL))
        tail = file.read()
        whole = tail.rfind(b"\n") + 1
        rest = tail[whole:]
        if rest[: len(_BEGINNING)] == _BEGINNING[: len(rest)] and not _is_json(rest):
            file.truncate(start + whole)
        elif rest:
            file.write(b"\n")


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
