"""Studies that live as long as the process, or only as long as one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from mixtree.errors import StudyLocked
from mixtree.storage.base import (
    EventRecord,
    StudyRecord,
    now,
    taken_name,
    unknown_study,
)
from mixtree.tree import Node, Path, Trial, pending


class MemoryStorage:
    """Rows in dictionaries; models stay in memory."""

    where = None
    lasting = keeps_rows = True

    def __init__(self) -> None:
        self._studies: dict[str, StudyRecord] = {}
        self._nodes: dict[str, dict[Path, Node]] = {}
        self._verdicts: dict[str, dict[str, Any]] = {}
        self._events: dict[str, list[EventRecord]] = {}
        self._locked: set[str] = set()

    def create(self, record: StudyRecord) -> None:
        if record.name in self._studies:
            raise taken_name(record.name, "memory")
        self._studies[record.name] = replace(record, created=now(), updated=now())
        self._nodes[record.name], self._events[record.name] = {}, []

    def load(self, name: str) -> StudyRecord:
        if name not in self._studies:
            raise unknown_study(name, list(self._studies), "memory")
        return self._studies[name]

    def studies(self) -> list[StudyRecord]:
        return list(self._studies.values())

    def update(self, name: str, **changes: Any) -> None:
        self._studies[name] = replace(self.load(name), updated=now(), **changes)

    def delete(self, name: str) -> None:
        self.load(name)
        with self.lock(name):
            del self._studies[name], self._nodes[name], self._events[name]
            self._verdicts.pop(name, None)

    def copy(self, name: str, new: str) -> None:
        record = self.load(name)
        self.create(replace(record, name=new))
        self._nodes[new], self._events[new] = dict(self._nodes[name]), list(self._events[name])
        if name in self._verdicts:
            self._verdicts[new] = self._verdicts[name]

    def begin_round(self, name: str, number: int, trials: Sequence[Trial]) -> None:
        nodes = self._nodes[name]
        for trial in trials:
            nodes[trial.path] = pending(trial, number)

    def finish(self, name: str, nodes: Sequence[Node]) -> None:
        self._nodes[name] |= {node.path: node for node in nodes}

    def nodes(self, name: str) -> list[Node]:
        self.load(name)
        return list(self._nodes[name].values())

    def add_event(self, name: str, kind: str, message: str) -> None:
        self._events[name].append(EventRecord(now(), kind, message))

    def events(self, name: str) -> list[EventRecord]:
        self.load(name)
        return list(self._events[name])

    def write_verdict(self, name: str, verdict: dict[str, Any]) -> None:
        self._verdicts[name] = verdict

    def verdict(self, name: str) -> dict[str, Any] | None:
        self.load(name)
        return self._verdicts.get(name)

    def checkpoints(self, name: str) -> None:
        return None

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        if name in self._locked:
            raise StudyLocked(f"study {name!r} is being run already")
        self._locked.add(name)
        try:
            yield
        finally:
            self._locked.discard(name)


class RunStorage(MemoryStorage):
    """Rows that live as long as the run: nobody can resume from them."""

    lasting = False


class ScratchStorage(MemoryStorage):
    """For one run that nobody will resume: nodes are not written down at all."""

    lasting = keeps_rows = False

    def begin_round(self, name: str, number: int, trials: Sequence[Trial]) -> None:
        """Nothing to write."""

    def finish(self, name: str, nodes: Sequence[Node]) -> None:
        """Nothing to write."""
