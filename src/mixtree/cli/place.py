"""Where a fit goes, and what it leaves there: the model folder with everything that is known about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mixtree.cli.options import Values
from mixtree.cli.studies import open_existing
from mixtree.errors import InputError, StorageError
from mixtree.places import without_secrets

if TYPE_CHECKING:
    from mixtree.storage.base import Storage, StudyRecord


@dataclass(frozen=True, slots=True)
class Place:
    """Where a fit goes: the model's folder, the study's file or database, and its name there."""

    out: Path
    storage: str
    study: str
    checkpoints: str | None = None
    """Where its models go, if that was said."""

    @property
    def has_own_storage(self) -> bool:
        """Whether the study is in the model's folder, and nowhere else."""
        return "://" not in self.storage and Path(self.storage).resolve() == (self.out / "study.db").resolve()

    @property
    def models(self) -> Path | str | None:
        """Where a new study's models go if that was said or it is on a server; None: beside its file."""
        if self.checkpoints is not None:
            return self.checkpoints
        server = "://" in self.storage and not self.storage.startswith("sqlite")
        return self.out / "checkpoints" if server else None

    def make(self) -> None:
        missing = [each for each in (self.out, *self.out.parents) if not each.exists()]
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            for folder in missing:  # those above it may have been made
                with suppress(OSError):
                    folder.rmdir()
            raise InputError(f"cannot make the folder --out {self.out}: {error.strerror}") from error

    def check_free(self) -> None:
        """An error, before any work, where a study of this name stands already, or another one or its model.

        A folder holds one study and its model: a second one would replace the model when it ends.
        """
        if "://" in self.storage or Path(self.storage).exists():
            with closing(open_existing(self.storage)) as storage:
                names, where = [each.name for each in storage.studies()], storage.where
            own = self.has_own_storage
            if self.study in names or (own and names):
                there = self.study if self.study in names else names[0]
                to = str(self.out) if own else where
                another = "choose another --out" if own else "start another one (--study NAME)"
                raise InputError(
                    f"{where} has a study {there!r} already: go on with it (mixtree resume {to} {there}), "
                    f"{another}, or delete it (mixtree delete {to} {there})"
                )
        self.check_model(resuming=False)

    def check_model(self, *, resuming: bool) -> None:
        """An error where a model of another study, which may be the better one, or another's file would be
        replaced."""
        from mixtree.fitting.model_folder import check_own, read_about

        try:
            about = read_about(self.out)
        except InputError:  # no model; there may be files of its names
            about = None
        if about is not None and not self._may_replace(about, resuming=resuming):
            score = (
                f" ({about['metric']} {about['val_score']:.4g})" if about.get("val_score") is not None else ""
            )
            raise InputError(
                f"--out {self.out} holds the model of study {about.get('study')!r}{score}, which would be "
                "replaced: choose another --out, or move that model away or delete it"
            )
        check_own(self.out)

    def _may_replace(self, about: dict[str, Any], *, resuming: bool) -> bool:
        """Whether the folder's model is one of this study, or of one that was deleted."""
        shown = about.get("storage") and without_secrets(about["storage"])
        study, stored = about.get("study"), str(shown or self.out / "study.db")
        here = shown == stored_at(self)
        gone = not ("://" in stored or Path(stored).exists())
        if resuming and study == self.study and (here or gone):  # a storage that is gone was moved
            return True
        if gone or not (here or "://" not in stored):
            return False
        with closing(open_existing(self.storage if here else stored)) as storage:
            # With a study that was deleted went what the model was kept for.
            return study not in [each.name for each in storage.studies()]

    def mark(self) -> Callable[[], Path | None]:
        """What tells later which of the folder and the study's file was moved or removed since now."""
        files = [self.out] if "://" in self.storage else [self.out, Path(self.storage)]
        made: list[tuple[Path, os.stat_result]] = []

        def gone() -> Path | None:
            if not made:  # the study has begun, so they are there
                made.extend((file, file.stat()) for file in files)
            for file, then in made:
                try:
                    same = os.path.samestat(file.stat(), then)
                except OSError:
                    same = False
                if not same:
                    return file
            return None

        return gone


def watch(gone: Callable[[], Path | None]) -> Callable[[object], None]:
    """A listener that stops the study once its folder or its file is gone: nothing could be written."""

    def look(_: object) -> None:
        if (file := gone()) is not None:
            raise StorageError(
                f"{file} was moved or removed while the study ran, which stops here: go on where it is now "
                "(mixtree resume DIR), or begin again"
            )

    return look


def find_place(values: Values, *, resuming: bool) -> Place | None:
    """Where this fit goes, checked; None for a dry run."""
    from mixtree.storage.base import check_name

    if values.get("dry_run"):
        return None
    out = Path(values["out"])
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: name a folder")
    storage = _storage(values, out)
    folder = Path(storage).parent
    if "://" not in storage and folder != out and not folder.is_dir():
        raise InputError(f"--storage {storage}: there is no folder {folder}; make it first")
    if "init" in values and os.path.realpath(values["init"]) == os.path.realpath(out):
        raise InputError(
            f"--init and --out are both {out}: the new model would replace the one it starts from"
        )
    place = Place(out, storage, values.get("study", "fit"), values.get("checkpoints"))
    check_name(place.study)
    if resuming:
        place.check_model(resuming=True)
    else:
        place.check_free()
    return place


def _storage(values: Values, out: Path) -> str:
    """A file name, or the URL of a database server."""
    from mixtree.storage.sql import IN_MEMORY, database_file

    storage = database_file(values.get("storage") or str(out / "study.db"))
    if storage == IN_MEMORY:
        raise InputError(f"--storage {values['storage']} is in memory and ends with the command: name a file")
    return storage


def is_portfolio(record: StudyRecord) -> bool:
    """Whether a study's steps are members of a portfolio."""
    return bool(record.config.get("search", {}).get("type") == "PortfolioSearch")


def certificate(storage: Storage, study: str) -> str | None:
    """How much better an untried mixture could be, in words; only a tree search knows."""
    from mixtree.planning.certificate import certificate_of

    record = storage.load(study)
    found = None if is_portfolio(record) else certificate_of(storage, record)
    return None if found is None else found.sentence


def stored_at(place: Place) -> str | None:
    """Where the study is, for `mixtree show`; None inside the folder, and never a secret."""
    if "://" not in place.storage:
        return None if place.has_own_storage else str(Path(place.storage).resolve())
    return without_secrets(place.storage)
