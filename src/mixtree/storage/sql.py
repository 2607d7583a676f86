"""Studies in a database: SQLite by default, PostgreSQL by URL. Few, readable tables for any SQL tool."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path as FilePath
from typing import Any
from zlib import crc32

import numpy as np
import sqlalchemy as sa
from filelock import FileLock, Timeout
from sqlalchemy.exc import DatabaseError, IntegrityError, NoSuchModuleError, OperationalError

from mixtree.errors import InputError, StorageError, StudyLocked
from mixtree.search import Trial
from mixtree.storage.base import (
    EventRecord,
    NodeRecord,
    Outcome,
    StudyRecord,
    now,
    taken_name,
    unknown_study,
)
from mixtree.storage.checkpoints import Checkpoints, path_text, text_path
from mixtree.storage.schema import events, migrate, nodes, predictions, studies
from mixtree.trainer import Evaluation

_BUSY_SECONDS = 30


class SqlStorage:
    """Studies in a database, their models in a folder beside it or at any fsspec URL.

    ``url`` is a file name (SQLite), ``sqlite://`` (in memory) or an SQLAlchemy URL such as
    ``postgresql+psycopg://user@host/base``.
    """

    def __init__(self, url: str | FilePath, *, checkpoints: str | FilePath | None = None) -> None:
        self.url = str(url) if "://" in str(url) else f"sqlite:///{url}"
        try:
            parsed = sa.make_url(self.url)
            self._sqlite = parsed.get_backend_name() == "sqlite"
            self._engine = sa.create_engine(parsed, **self._options(parsed.database))
        except (sa.exc.ArgumentError, NoSuchModuleError) as error:
            raise InputError(f"{self.url!r} is no database URL: {error}") from error
        except ModuleNotFoundError as error:
            raise StorageError(
                f"{self.url!r} needs the driver {error.name!r}: pip install it first"
            ) from error
        self._file = FilePath(parsed.database) if self._sqlite and parsed.database else None
        self._folder = str(checkpoints) if checkpoints is not None else self._default_folder()
        self._ids: dict[str, int] = {}
        if self._sqlite:
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
        with self._explained("open"):
            migrate(self._engine, where=self.where)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.url, self._folder))

    @property
    def where(self) -> str:
        """The place, without a password."""
        return str(self._file) if self._file else sa.make_url(self.url).render_as_string()

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _options(self, database: str | None) -> dict[str, Any]:
        if not self._sqlite:
            return {"pool_pre_ping": True}
        if not database:  # in memory: one connection, or every one would see a database of its own
            return {"poolclass": sa.pool.StaticPool, "connect_args": {"check_same_thread": False}}
        folder = FilePath(database).parent
        if not folder.is_dir():
            raise InputError(f"cannot put a database at {database}: there is no folder {folder}")
        return {"connect_args": {"timeout": _BUSY_SECONDS}}

    def _default_folder(self) -> str | None:
        if self._file is not None:
            return str(self._file.with_name(self._file.name + ".checkpoints"))
        return None if self._sqlite else "mixtree-checkpoints"

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except OperationalError as error:
            reason = str(error.orig or error).strip()
            if "locked" in reason:
                reason = (
                    f"another process has held it locked for {_BUSY_SECONDS} s; stop it or try again later"
                )
            raise StorageError(f"cannot {doing} {self.where}: {reason}") from error
        except DatabaseError as error:
            raise StorageError(f"cannot {doing} {self.where}: {str(error.orig or error).strip()}") from error

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with self._explained("write to"), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._explained("read"), self._engine.connect() as connection:
            yield connection

    def _id(self, name: str) -> int:
        if name not in self._ids:
            with self._read() as connection:
                found = connection.scalar(sa.select(studies.c.id).where(studies.c.name == name))
                if found is None:
                    names = connection.scalars(sa.select(studies.c.name).order_by(studies.c.id)).all()
                    raise unknown_study(name, names, self.where)
            self._ids[name] = found
        return self._ids[name]

    def create(self, record: StudyRecord) -> None:
        row = _study_row(replace(record, created=now(), updated=now()))
        try:
            with self._write() as connection:
                connection.execute(studies.insert().values(row))
        except IntegrityError as error:
            raise taken_name(record.name, self.where) from error

    def load(self, name: str) -> StudyRecord:
        number = self._id(name)
        with self._read() as connection:
            row = connection.execute(sa.select(studies).where(studies.c.id == number)).mappings().first()
        if row is None:
            del self._ids[name]
            raise unknown_study(name, [], self.where)
        return _study_record(row)

    def studies(self) -> list[StudyRecord]:
        with self._read() as connection:
            rows = connection.execute(sa.select(studies).order_by(studies.c.id)).mappings().all()
        return [_study_record(row) for row in rows]

    def update(self, name: str, **changes: Any) -> None:
        row = _study_row(replace(self.load(name), updated=now(), **changes))
        with self._write() as connection:
            connection.execute(studies.update().where(studies.c.id == self._id(name)).values(row))

    def delete(self, name: str) -> None:
        number = self._id(name)
        with self.lock(name):
            with self._write() as connection:
                own = sa.select(nodes.c.id).where(nodes.c.study_id == number)
                connection.execute(predictions.delete().where(predictions.c.node_id.in_(own)))
                for table in (nodes, events):
                    connection.execute(table.delete().where(table.c.study_id == number))
                connection.execute(studies.delete().where(studies.c.id == number))
            models = self.checkpoints(name)
            if models is not None:
                models.clear()
            del self._ids[name]

    def copy(self, name: str, new: str) -> None:
        self.create(replace(self.load(name), name=new))
        records, remembered = self.nodes(name), self.events(name)
        with self._write() as connection:
            self._insert_nodes(connection, self._id(new), records)
            rows = [{"study_id": self._id(new), **asdict(each)} for each in remembered]
            if rows:
                connection.execute(events.insert(), rows)
        self.finish(new, [record.outcome for record in records if record.outcome is not None])
        old, fresh = self.checkpoints(name), self.checkpoints(new)
        if old is not None and fresh is not None:
            old.copy_to(fresh)

    def begin_round(self, name: str, number: int, trials: Sequence[Trial]) -> None:
        records = [NodeRecord(trial, number, position) for position, trial in enumerate(trials)]
        with self._write() as connection:
            self._insert_nodes(connection, self._id(name), records)

    def _insert_nodes(self, connection: sa.Connection, study: int, records: Sequence[NodeRecord]) -> None:
        if records:
            connection.execute(nodes.insert(), [_node_row(study, record) for record in records])

    def finish(self, name: str, outcomes: Sequence[Outcome]) -> None:
        if not outcomes:
            return
        number = self._id(name)
        change = (
            nodes.update()
            .where(nodes.c.study_id == number, nodes.c.path == sa.bindparam("at"))
            .values({column: sa.bindparam(f"new_{column}") for column in _OUTCOME_COLUMNS})
        )
        with self._write() as connection:
            connection.execute(change, [_outcome_values(outcome) for outcome in outcomes])
            seen = [outcome for outcome in outcomes if outcome.evaluation.predictions is not None]
            if seen:
                self._store_predictions(connection, number, seen)

    def _store_predictions(self, connection: sa.Connection, study: int, outcomes: Sequence[Outcome]) -> None:
        paths = [path_text(outcome.path) for outcome in outcomes]
        found = connection.execute(
            sa.select(nodes.c.path, nodes.c.id).where(nodes.c.study_id == study, nodes.c.path.in_(paths))
        )
        numbers = {path: number for path, number in found}
        connection.execute(predictions.delete().where(predictions.c.node_id.in_(numbers.values())))
        rows = []
        for outcome in outcomes:
            array = np.ascontiguousarray(outcome.evaluation.predictions)
            about = {"dtype": array.dtype.str, "shape": json.dumps(array.shape), "data": array.tobytes()}
            rows.append({"node_id": numbers[path_text(outcome.path)], **about})
        connection.execute(predictions.insert(), rows)

    def nodes(self, name: str) -> list[NodeRecord]:
        wanted = (
            sa.select(nodes, predictions.c.dtype, predictions.c.shape, predictions.c.data)
            .outerjoin(predictions, predictions.c.node_id == nodes.c.id)
            .where(nodes.c.study_id == self._id(name))
            .order_by(nodes.c.id)
        )
        with self._read() as connection:
            return [_node_record(row) for row in connection.execute(wanted).mappings()]

    def add_event(self, name: str, kind: str, message: str) -> None:
        row = {"study_id": self._id(name), "at": now(), "kind": kind, "message": message}
        with self._write() as connection:
            connection.execute(events.insert().values(row))

    def events(self, name: str) -> list[EventRecord]:
        wanted = sa.select(events).where(events.c.study_id == self._id(name)).order_by(events.c.id)
        with self._read() as connection:
            rows = connection.execute(wanted).mappings().all()
        return [EventRecord(row["at"], row["kind"], row["message"]) for row in rows]

    def checkpoints(self, name: str) -> Checkpoints | None:
        return None if self._folder is None else Checkpoints(self._folder, name)

    def lock(self, name: str) -> AbstractContextManager[None]:
        number = self._id(name)
        if self._file is not None:
            return _file_lock(self._file.with_name(f"{self._file.name}.{number}.lock"), name, self.where)
        return self._advisory_lock(name, number)

    @contextmanager
    def _advisory_lock(self, name: str, number: int) -> Iterator[None]:
        if self._sqlite:  # in memory: nobody else can see it
            yield
            return
        key = {"one": crc32(b"mixtree") >> 1, "two": number}
        pair = "(CAST(:one AS integer), CAST(:two AS integer))"
        # The server drops the lock with the connection, so a killed process never leaves it behind.
        with self._read() as connection:
            if not connection.scalar(sa.text(f"SELECT pg_try_advisory_lock{pair}"), key):
                raise _locked(name, self.where)
            connection.commit()
            try:
                yield
            finally:
                connection.execute(sa.text(f"SELECT pg_advisory_unlock{pair}"), key)
                connection.commit()


def _reopen(url: str, folder: str | None) -> SqlStorage:
    return SqlStorage(url, checkpoints=folder)


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    # WAL: readers never wait for the writer; NORMAL: a power cut may lose the last transactions, never break
    # the file, and what is lost is computed again.
    for setting in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


@contextmanager
def _file_lock(file: FilePath, name: str, where: str) -> Iterator[None]:
    try:
        with FileLock(file, timeout=0):
            yield
    except Timeout as error:
        raise _locked(name, where) from error


def _locked(name: str, where: str) -> StudyLocked:
    return StudyLocked(
        f"study {name!r} in {where} is being run by another process: wait for it or stop it, then resume"
    )


def _study_row(record: StudyRecord) -> dict[str, Any]:
    row = asdict(record)
    row["config"] = json.dumps(record.config)
    row["recipe"] = None if record.recipe is None else json.dumps(record.recipe)
    row["best"] = None if record.best is None else path_text(record.best)
    row["seed"], row["init_seed"] = str(record.seed), str(record.init_seed)
    return row


def _study_record(row: Any) -> StudyRecord:
    fields = {key: value for key, value in row.items() if key != "id"}
    fields["config"] = json.loads(row["config"])
    fields["recipe"] = None if row["recipe"] is None else json.loads(row["recipe"])
    fields["best"] = None if row["best"] is None else text_path(row["best"])
    fields["seed"], fields["init_seed"] = int(row["seed"]), int(row["init_seed"])
    return StudyRecord(**fields)


_OUTCOME_COLUMNS = ("status", "value", "standard_error", "seconds")


def _outcome_values(outcome: Outcome) -> dict[str, Any]:
    error = outcome.evaluation.standard_error
    return {
        "at": path_text(outcome.path),
        "new_status": outcome.status,
        "new_value": outcome.evaluation.value,
        "new_standard_error": None if np.isnan(error) else error,
        "new_seconds": outcome.seconds,
    }


def _node_row(study: int, record: NodeRecord) -> dict[str, Any]:
    trial = record.trial
    return {
        "study_id": study,
        "path": path_text(trial.path),
        "height": len(trial.path),
        "round": record.round,
        "position": record.position,
        "phase": trial.phase,
        "mixture": json.dumps(trial.mixture.tolist()),
        "steps": trial.steps,
        "lr_scale": trial.lr_scale,
        "status": "pending",
    }


def _node_record(row: Any) -> NodeRecord:
    path = text_path(row["path"])
    mixture = np.array(json.loads(row["mixture"]), dtype=np.float64)
    trial = Trial(path, mixture, row["steps"], row["lr_scale"], row["phase"])
    outcome = None
    if row["status"] != "pending":
        seen = None
        if row["data"] is not None:
            seen = np.frombuffer(row["data"], dtype=row["dtype"]).reshape(json.loads(row["shape"]))
        error = float("nan") if row["standard_error"] is None else row["standard_error"]
        outcome = Outcome(path, Evaluation(row["value"], error, seen), row["status"], row["seconds"])
    return NodeRecord(trial, row["round"], row["position"], outcome)


def open_storage(url: str | FilePath, *, checkpoints: str | FilePath | None = None) -> SqlStorage:
    """The storage behind a file name or a database URL."""
    return SqlStorage(url, checkpoints=checkpoints)
