"""What a study writes down: the Storage protocol and its records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from mixtree.errors import InputError, StorageError
from mixtree.places import is_text
from mixtree.tree import Node, Path, Trial

if TYPE_CHECKING:
    from mixtree.storage.checkpoints import Checkpoints

Status = Literal["running", "raising", "finished", "stopped", "failed"]
"""Raising: a larger budget was written down, and nodes that it leaves behind are about to be marked."""


@dataclass(frozen=True, eq=False, slots=True)
class StudyRecord:
    """A study's row: what is needed to know it again and to carry it on."""

    name: str
    seed: int
    init_seed: int
    budget: int
    config: dict[str, Any] = field(default_factory=dict)
    """The settings of search and trainer that decide the numbers."""
    data: str = ""
    """Fingerprint of the rows it was trained on."""
    engine: str | None = None
    recipe: dict[str, Any] | None = None
    """How the command line can build search, trainer and data again."""
    status: Status = "running"
    rule: str = ""
    best: Path | None = None
    key: str = ""
    """Written into every checkpoint: studies share it only if their models are the same, so that files of
    another study that strayed into the folder are not taken for its own."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Rows by source, the target's own among them; empty where they are not known."""
    notes: tuple[str, ...] = ()
    """What the policy decided on its way, in words."""
    models: str | None = None
    """Where its models are, if not beside its file; the storage writes it down itself."""
    created: str = ""
    updated: str = ""


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something worth remembering: a warning, a resume, a raised budget."""

    at: str
    kind: str
    message: str


@runtime_checkable
class Storage(Protocol):
    """A place for studies. Every method is one transaction; ``lock`` keeps a study to one process."""

    @property
    def where(self) -> str | None:
        """The place, for messages; None where nobody can resume from it."""

    @property
    def lasting(self) -> bool:
        """Whether a study can be resumed; if not, it need not take the fingerprint of its data."""

    @property
    def keeps_rows(self) -> bool:
        """Whether rounds and nodes are written down at all."""

    def create(self, record: StudyRecord) -> None:
        """A new study; its name must be free."""

    def load(self, name: str) -> StudyRecord:
        """The study of this name, or a StorageError that lists the names there are."""

    def studies(self) -> list[StudyRecord]:
        """All studies, oldest first."""

    def update(self, name: str, **changes: Any) -> None:
        """Change fields of a study's row."""

    def delete(self, name: str) -> None:
        """Remove a study with its nodes, events and checkpoints."""

    def copy(self, name: str, new: str) -> None:
        """The same study once more under a new name, checkpoints included."""

    def begin_round(self, name: str, number: int, trials: Sequence[Trial]) -> None:
        """Write a round down before any of it runs; a trial that was begun but not finished begins anew.

        Parameters
        ----------
        name
            The study's.
        number
            The round's, counted from 0.
        trials
            In the order in which they were asked for.
        """

    def finish(self, name: str, nodes: Sequence[Node]) -> None:
        """Write down what came of trials, as it comes."""

    def nodes(self, name: str) -> list[Node]:
        """All nodes in the order in which they were asked for, those of unfinished trials as pending."""

    def add_event(self, name: str, kind: str, message: str) -> None:
        """Remember something.

        Parameters
        ----------
        name
            The study's.
        kind
            One word: ``warning``, ``resumed``, ``budget``.
        message
            For people.
        """

    def events(self, name: str) -> list[EventRecord]:
        """What was remembered, oldest first."""

    def write_verdict(self, name: str, verdict: dict[str, Any]) -> None:
        """Keep the study's verdict, in place of an earlier one."""

    def verdict(self, name: str) -> dict[str, Any] | None:
        """The study's verdict; None if it has none."""

    def checkpoints(self, name: str) -> Checkpoints | None:
        """Where the study's models live; None for a storage that keeps no files."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Hold the study; StudyLocked if another process does. Ends with the process, however it dies."""


LONGEST_NAME = 100
"""Characters of a stored study's name."""


def check_name(name: object) -> None:
    """An error for what cannot be a stored study's name."""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise InputError(
            f"a study's name is a text of 1 to {LONGEST_NAME} characters; got {repr(name)[:120]}"
        )
    if not is_text(name):
        raise InputError(f"a study's name must be text that UTF-8 can hold; got {name!r}")


def now() -> str:
    """The time as text, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def unknown_study(name: str, names: Sequence[str], where: str) -> StorageError:
    """The error for a study that is not there."""
    known = ", ".join(map(repr, names)) if names else "none"
    return StorageError(f"there is no study {name!r} in {where}; its studies: {known}")


def taken_name(name: str, where: str) -> StorageError:
    """The error for a name that is in use."""
    return StorageError(
        f"{where} already has a study {name!r}: resume it (resume=True), delete it, or choose another name"
    )
