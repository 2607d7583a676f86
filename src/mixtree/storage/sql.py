"""Studies in a database: SQLite by default, PostgreSQL by URL. Few, readable tables for any SQL tool."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path as FilePath
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchModuleError

from mixtree.errors import InputError, StorageError, StudyLocked
from mixtree.places import is_text, without_secrets
from mixtree.storage import schema
from mixtree.storage.base import (
    EventRecord,
    StudyRecord,
    check_name,
    now,
    taken_name,
    unknown_study,
)
from mixtree.storage.checkpoints import Checkpoints, check_own, path_text, place_of
from mixtree.storage.rows import (
    OUTCOME_COLUMNS,
    event_record,
    node_row,
    outcome_row,
    predictions_row,
    stored_node,
    stored_verdict,
    study_record,
    study_row,
)
from mixtree.storage.schema import (
    LOCK_SPACE,
    bring_up,
    events,
    nodes,
    predictions,
    stored_version,
    studies,
    verdicts,
)
from mixtree.tree import Node, Trial, pending

_BUSY_SECONDS = 30
IN_MEMORY = ":memory:"
"""SQLite's name for a database that ends with its process."""

# In plain SQL: every fit says and asks this once, and making the statements would take longer than they do.
_ADD_EVENT = sa.text("INSERT INTO events (study_id, at, kind, message) VALUES (:study, :at, :kind, :message)")
_EVENTS = sa.text("SELECT at, kind, message FROM events WHERE study_id = :study ORDER BY id")


class SqlStorage:
    """Studies in a database, their models in a folder or at any fsspec URL.

    ``url`` is a file name (SQLite), ``sqlite://`` (in memory) or ``postgresql://user@host/base``. The tables
    are made with the first study: until then, and where they are another program's, nothing changes.

    Models are where ``checkpoints`` says; without it, where their study says; for a new study, beside the
    file, or, behind a server's URL, in the folder ``mixtree-checkpoints`` of the current one. A place that is
    not beside the file is written down with the study, as an absolute path: it goes on from any folder.
    """

    lasting = keeps_rows = True

    def __init__(self, url: str | FilePath, *, checkpoints: str | FilePath | None = None) -> None:
        self.url = database_file(str(url))
        parsed = _parsed(self.url)
        self._sqlite = parsed.get_backend_name() == "sqlite"
        in_memory = parsed.database in (None, "", IN_MEMORY)
        self._file = FilePath(str(parsed.database)) if self._sqlite and not in_memory else None
        self.where = str(self._file) if self._file else without_secrets(self.url)
        """The place, without secrets."""
        try:
            self._engine = sa.create_engine(parsed, **self._options())
        except ModuleNotFoundError as error:
            raise StorageError(
                f"{self.where!r} needs the driver {error.name!r}: pip install it first"
            ) from error
        except (sa.exc.ArgumentError, NoSuchModuleError) as error:
            raise _no_url(self.where) from error
        self._models = None if checkpoints is None else _absolute(str(checkpoints))
        self._ids: dict[str, int] = {}
        self._held: set[int] = set()
        # A writer takes its place at once, and waits for it: one that reads first and then wants to write
        # would be refused without waiting if another had written in between.
        self._writing = self._engine.execution_options(sqlite_begin="BEGIN IMMEDIATE")
        if self._sqlite:
            sa.event.listen(self._engine, "connect", _set_up_sqlite)
            sa.event.listen(self._engine, "begin", _begin_sqlite)
        self._ready = False
        """Whether the tables are there, in this version."""
        try:
            self._has_tables()
        except StorageError:
            self.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return (_reopen, (self.url, self._models))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _options(self) -> dict[str, Any]:
        if not self._sqlite:
            return {"pool_pre_ping": True}
        if self._file is None:  # in memory: one connection, or every one would see a database of its own
            return {"poolclass": sa.pool.StaticPool, "connect_args": {"check_same_thread": False}}
        if not self._file.parent.is_dir():
            raise InputError(f"cannot put a database at {self._file}: there is no folder {self._file.parent}")
        if _only_readable(self._file):
            return {"creator": partial(_open_to_read, self._file, alone=True)}
        return {"connect_args": {"timeout": _BUSY_SECONDS}}

    def _elsewhere(self, record: StudyRecord) -> str | None:
        """Where a study's models are; None: beside its file, with which they may be moved."""
        return self._models or record.models or (None if self._sqlite else _absolute("mixtree-checkpoints"))

    def _place(self, record: StudyRecord) -> str | None:
        place = self._elsewhere(record)
        if place is None and self._file is not None:
            return str(self._file.with_name(self._file.name + ".checkpoints"))
        return place

    def _stated(self, record: StudyRecord) -> str | None:
        place = self._elsewhere(record)
        return None if place is None else without_secrets(place)

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except DBAPIError as error:
            reason = str(error.orig or error).strip()
            if "database is locked" in reason:
                reason = (
                    f"another process has held it locked for {_BUSY_SECONDS} s; stop it or try again later"
                )
            raise StorageError(f"cannot {doing} {self.where}: {reason}") from error
        except UnicodeDecodeError as error:
            raise StorageError(
                f"{self.where} is damaged or altered: it holds text that is not UTF-8 ({error}); take it "
                "from a copy"
            ) from error

    def _has_tables(self) -> bool:
        """Whether there are tables. Older ones are brought up; nothing else changes."""
        if not self._ready:
            with self._explained("open"):
                found = self._version()
                if found is not None and found < schema.VERSION:
                    bring_up(self._writing, where=self.where)
            self._ready = found is not None
        return self._ready

    def _version(self) -> int | None:
        if self._file is None:
            with self._engine.connect() as connection:
                return stored_version(connection, where=self.where)
        if self._file.is_dir():
            raise StorageError(f"cannot open {self._file}: it is a folder; name a file")
        if not self._file.exists() or not self._file.stat().st_size:
            return None
        while True:
            alone = _is_alone(self._file)
            try:
                return _look(self._file, alone=alone)
            except (StorageError, DBAPIError):
                if alone == _is_alone(self._file):
                    raise  # else somebody has begun to write to it meanwhile

    def _make_tables(self) -> None:
        if not self._has_tables():
            with self._explained("open"):
                bring_up(self._writing, where=self.where)
            self._ready = True

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        with self._explained("write to"), self._writing.begin() as connection:
            yield connection

    @contextmanager
    def _read(self) -> Iterator[sa.Connection]:
        with self._explained("read"), self._engine.connect() as connection:
            yield connection

    def _id(self, name: str) -> int:
        if name not in self._ids:
            if not self._has_tables():
                raise unknown_study(name, [], self.where)
            with self._read() as connection:
                found = connection.scalar(sa.select(studies.c.id).where(studies.c.name == name))
                if found is None:
                    names = connection.scalars(sa.select(studies.c.name).order_by(studies.c.id)).all()
                    raise unknown_study(name, names, self.where)
            self._ids[name] = found
        return self._ids[name]

    def create(self, record: StudyRecord) -> None:
        check_name(record.name)
        if (place := self._place(record)) is not None:
            check_own(place, record.name)
        self._make_tables()
        with self._write() as connection:
            self._insert_study(connection, record)

    def _insert_study(self, connection: sa.Connection, record: StudyRecord) -> None:
        row = study_row(replace(record, models=self._stated(record), created=now(), updated=now()))
        try:
            connection.execute(studies.insert().values(row))
        except IntegrityError as error:
            raise taken_name(record.name, self.where) from error

    def load(self, name: str) -> StudyRecord:
        if not self._has_tables():
            raise unknown_study(name, [], self.where)
        with self._read() as connection:
            row = connection.execute(sa.select(studies).where(studies.c.name == name)).mappings().first()
        if row is None:
            self._ids.pop(name, None)  # another process may have deleted it
            raise unknown_study(name, [each.name for each in self.studies()], self.where)
        self._ids[name] = row["id"]
        return study_record(row)

    def studies(self) -> list[StudyRecord]:
        if not self._has_tables():
            return []
        with self._read() as connection:
            rows = connection.execute(sa.select(studies).order_by(studies.c.id)).mappings().all()
        return [study_record(row) for row in rows]

    def update(self, name: str, **changes: Any) -> None:
        record = self.load(name)
        # Whoever writes to a study puts its models where this storage does: the study says so from now on.
        changes |= {"models": self._stated(record), "updated": now()}
        row = study_row(replace(record, **changes))
        changed = {key: row[key] for key in changes}
        with self._write() as connection:
            connection.execute(studies.update().where(studies.c.id == self._id(name)).values(changed))

    def delete(self, name: str) -> None:
        models = self.checkpoints(name)
        number = self._id(name)
        if models is not None:
            models.check_own()
        with self.lock(name):
            with self._write() as connection:
                own = sa.select(nodes.c.id).where(nodes.c.study_id == number)
                connection.execute(predictions.delete().where(predictions.c.node_id.in_(own)))
                for table in (nodes, events, verdicts):
                    connection.execute(table.delete().where(table.c.study_id == number))
                connection.execute(studies.delete().where(studies.c.id == number))
            del self._ids[name]
            if models is not None:
                models.clear()
        if self._file is not None:
            self._lock_file(number).unlink(missing_ok=True)

    def copy(self, name: str, new: str) -> None:
        check_name(new)
        record, records, remembered = self.load(name), self.nodes(name), self.events(name)
        judged = self.verdict(name)
        if new in [each.name for each in self.studies()]:
            raise taken_name(new, self.where)
        # Models first: a study whose row is there is whole.
        old, fresh = self._checkpoints(name, record), self._checkpoints(new, record)
        if old is not None and fresh is not None:
            fresh.check_own()
            old.copy_to(fresh)
        with self._write() as connection:
            self._insert_study(connection, replace(record, name=new))
            number = connection.scalar(sa.select(studies.c.id).where(studies.c.name == new))
            assert number is not None
            if records:
                places = Counter[int]()
                copied = []
                for node in records:
                    copied.append(node_row(number, node, places[node.round]))
                    places[node.round] += 1
                connection.execute(nodes.insert(), copied)
            rows = [{"study_id": number, **asdict(each)} for each in remembered]
            if rows:
                connection.execute(events.insert(), rows)
            self._store_predictions(connection, number, records)
            if judged is not None:
                row = {"study_id": number, "at": now(), "verdict": json.dumps(judged, ensure_ascii=False)}
                connection.execute(verdicts.insert(), row)

    def begin_round(self, name: str, number: int, trials: Sequence[Trial]) -> None:
        if not trials:
            return
        study = self._id(name)
        begun = [node_row(study, pending(trial, number), position) for position, trial in enumerate(trials)]
        with self._write() as connection:
            connection.execute(_UNFINISHED, [{"of": study, "at": row["path"]} for row in begun])
            connection.execute(nodes.insert(), begun)

    def finish(self, name: str, done: Sequence[Node]) -> None:
        if not done:
            return
        number = self._id(name)
        rows = []
        for node in done:
            values = {f"new_{column}": value for column, value in outcome_row(node).items()}
            rows.append({"at": path_text(node.path), "of": number, **values})
        with self._write() as connection:
            connection.execute(_FINISH, rows)
            self._store_predictions(connection, number, done)

    def _store_predictions(self, connection: sa.Connection, study: int, done: Sequence[Node]) -> None:
        seen = {path_text(each.path): each for each in done if each.predictions is not None}
        if not seen:
            return
        own = sa.select(nodes.c.path, nodes.c.id).where(nodes.c.study_id == study)
        # SQLite takes some 30,000 parameters at most.
        wanted = own.where(nodes.c.path.in_(seen)) if len(seen) < 1000 else own
        numbers = {path: number for path, number in connection.execute(wanted) if path in seen}
        connection.execute(
            predictions.delete().where(predictions.c.node_id == sa.bindparam("at")),
            [{"at": number} for number in numbers.values()],
        )
        rows = [{"node_id": numbers[path], **predictions_row(each)} for path, each in seen.items()]
        connection.execute(predictions.insert(), rows)

    def nodes(self, name: str) -> list[Node]:
        wanted = (
            sa.select(nodes, predictions.c.dtype, predictions.c.shape, predictions.c.data)
            .outerjoin(predictions, predictions.c.node_id == nodes.c.id)
            .where(nodes.c.study_id == self._id(name))
            .order_by(nodes.c.id)
        )
        with self._read() as connection:
            return [stored_node(row) for row in connection.execute(wanted).mappings()]

    def add_event(self, name: str, kind: str, message: str) -> None:
        row = {"study": self._id(name), "at": now(), "kind": kind, "message": message}
        with self._write() as connection:
            connection.execute(_ADD_EVENT, row)

    def events(self, name: str) -> list[EventRecord]:
        wanted = {"study": self._id(name)}
        with self._read() as connection:
            rows = connection.execute(_EVENTS, wanted).all()
        return [event_record(row) for row in rows]

    def write_verdict(self, name: str, verdict: dict[str, Any]) -> None:
        number, text = self._id(name), json.dumps(verdict, ensure_ascii=False)
        with self._write() as connection:
            connection.execute(verdicts.delete().where(verdicts.c.study_id == number))
            connection.execute(verdicts.insert(), {"study_id": number, "at": now(), "verdict": text})

    def verdict(self, name: str) -> dict[str, Any] | None:
        wanted = sa.select(verdicts.c.verdict).where(verdicts.c.study_id == self._id(name))
        with self._read() as connection:
            text = connection.scalar(wanted)
        return None if text is None else stored_verdict(name, text)

    def checkpoints(self, name: str) -> Checkpoints | None:
        return self._checkpoints(name, self.load(name))

    def _checkpoints(self, name: str, record: StudyRecord) -> Checkpoints | None:
        place = self._place(record)
        return None if place is None else Checkpoints(place, name, key=record.key)

    def models(self, record: StudyRecord) -> str | None:
        """Where a study's models are, for people."""
        place = self._place(record)
        return None if place is None else place_of(place, record.name)

    def lock(self, name: str) -> AbstractContextManager[None]:
        number = self._id(name)
        if self._file is not None:
            return _file_lock(self._lock_file(number), name, self.where)
        return self._own_lock(name, number) if self._sqlite else self._advisory_lock(name, number)

    def _lock_file(self, number: int) -> FilePath:
        assert self._file is not None
        return self._file.with_name(f"{self._file.name}.{number}.lock")

    @contextmanager
    def _own_lock(self, name: str, number: int) -> Iterator[None]:
        """In memory: no other process can see it."""
        if number in self._held:
            raise _locked(name, self.where)
        self._held.add(number)
        try:
            yield
        finally:
            self._held.discard(number)

    @contextmanager
    def _advisory_lock(self, name: str, number: int) -> Iterator[None]:
        # The server drops the lock with the connection, so a killed process never leaves it behind.
        with self._read() as connection:
            if not connection.scalar(sa.select(sa.func.pg_try_advisory_lock(LOCK_SPACE, number))):
                raise _locked(name, self.where)
            connection.commit()
            try:
                yield
            finally:
                connection.execute(sa.select(sa.func.pg_advisory_unlock(LOCK_SPACE, number)))
                connection.commit()


def _reopen(url: str, models: str | None) -> SqlStorage:
    return SqlStorage(url, checkpoints=models)


def _absolute(place: str) -> str:
    """A folder's whole path; a URL as it is."""
    local = place.removeprefix("file://")
    return place if "://" in local else str(FilePath(local).absolute())


_ONE = (nodes.c.study_id == sa.bindparam("of"), nodes.c.path == sa.bindparam("at"))
_UNFINISHED = nodes.delete().where(*_ONE, nodes.c.status == "pending")
_FINISH = (
    nodes.update().where(*_ONE).values({column: sa.bindparam(f"new_{column}") for column in OUTCOME_COLUMNS})
)


def _only_readable(file: FilePath) -> bool:
    """A file that may be looked at but not written to, and that nobody is writing to."""
    if not file.is_file():
        return False
    journal = file.with_name(file.name + "-wal")
    writable = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    return not writable and not (journal.exists() and journal.stat().st_size)


def _is_alone(file: FilePath) -> bool:
    """Whether nobody has a file open that keeps a journal beside it: reading it would make one."""
    try:
        with file.open("rb") as opened:
            keeps = opened.read(20)[18:19] == b"\2"
    except OSError:
        return False  # SQLite says why
    return keeps and not file.with_name(file.name + "-wal").exists()


def _open_to_read(file: FilePath, *, alone: bool) -> sqlite3.Connection:
    """``alone``: nobody writes to it, so that no journal is needed and none is made."""
    how = "mode=ro&immutable=1" if alone else "mode=ro"
    return sqlite3.connect(
        f"file:{quote(os.fsencode(file.resolve()))}?{how}", uri=True, timeout=_BUSY_SECONDS
    )


def _look(file: FilePath, *, alone: bool) -> int | None:
    """The version of a file's tables; StorageError for another program's, and for a damaged one."""
    engine = sa.create_engine(
        "sqlite://", creator=partial(_open_to_read, file, alone=alone), poolclass=sa.pool.NullPool
    )
    with engine.connect() as connection:
        try:
            found = stored_version(connection, where=str(file))
            wrong = None if found is None else _damage(connection, file)
        except DBAPIError as error:
            wrong = str(error.orig)
            if "malformed" not in wrong:
                raise
    if wrong is not None:
        raise StorageError(
            f"{file} is damaged, cut short or altered ({wrong}): take it from a copy, or save what is left "
            f"of it (sqlite3 {file} .recover | sqlite3 saved.db)"
        )
    return found


def _damage(connection: sa.Connection, file: FilePath) -> str | None:
    """What is wrong with a file of ours; None if nothing is seen."""
    written = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())
    written *= int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())
    journal, left = file.with_name(file.name + "-wal"), file.stat().st_size
    # SQLite takes a missing end of the last page for zeros. Where there is a journal, pages may be in it.
    if left < written and not (journal.exists() and journal.stat().st_size):
        return f"{written} bytes were written, {left} are left"
    found = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
    return None if found == "ok" else " ".join(found.split())


def _set_up_sqlite(connection: Any, _record: Any) -> None:
    # The driver's own way to begin transactions leaves CREATE TABLE out of them: see _begin_sqlite.
    connection.isolation_level = None
    cursor = connection.cursor()
    # WAL: readers never wait for the writer; NORMAL: a power cut may lose the last transactions, never break
    # the file, and what is lost is computed again.
    _use_wal(cursor)
    for setting in ("synchronous=NORMAL", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {setting}")
    cursor.close()


def _use_wal(cursor: Any) -> None:
    """SQLite does not wait for others when it changes the journal: those who make a file together do."""
    last = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > last:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("sqlite_begin", "BEGIN"))


@contextmanager
def _file_lock(file: FilePath, name: str, where: str) -> Iterator[None]:
    """SQLite's own lock, on an empty file of the study: it ends with the process, on every system."""
    try:
        file.touch()  # never opened otherwise: closing it would end a lock that this process holds
        holder = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise StorageError(f"cannot lock study {name!r}: {file}: {what}") from error
    with closing(holder):
        try:
            holder.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise _locked(name, where) from error
            raise StorageError(f"cannot lock study {name!r}: {file}: {error}") from error
        yield


def _locked(name: str, where: str) -> StudyLocked:
    return StudyLocked(
        f"study {name!r} in {where} is being run by another process: wait for it or stop it, then resume"
    )


def database_file(url: str) -> str:
    """An SQLite URL as the file name that it means, that of a server in one spelling.

    >>> database_file("sqlite:////srv/studies.db"), database_file("sqlite:///studies.db")
    ('/srv/studies.db', 'studies.db')
    >>> database_file("postgres://me@host/base")
    'postgresql+psycopg://me@host/base'
    """
    url = re.sub("^postgres(ql)?://", "postgresql+psycopg://", url)
    parsed = _parsed(url)
    plain = "://" in url and parsed.get_backend_name() == "sqlite" and not parsed.query
    return (parsed.database or IN_MEMORY) if plain else url


def _parsed(place: str) -> sa.URL:
    """The URL of a file's name, or of a URL."""
    # A file's name is taken as it is: in a URL "?" and "%" have a meaning.
    if "://" not in place:
        if re.match(r"[^\s/\\@:]+:(?![\\/])[^@]*@", place) and not FilePath(place).exists():
            raise InputError(
                "this place of studies looks like the URL of a database without its beginning: write "
                "postgresql://USER:PASSWORD@HOST/BASE (and ./NAME for a file of such a name)"
            )
        return sa.URL.create("sqlite", database=place)
    if not is_text(place):
        raise _no_url(place.partition("://")[0] + "://…")
    try:
        parsed = sa.make_url(place)
    except (sa.exc.ArgumentError, ValueError):
        # It cannot be told which part of it is secret: the error's own words may hold it too.
        raise _no_url(place.partition("://")[0] + "://…") from None
    if "@" in (parsed.host or ""):
        raise _no_url(f"{parsed.drivername}://…")
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise _no_url(without_secrets(place))
    return parsed


def _no_url(shown: str) -> InputError:
    return InputError(
        f"{shown!r} is no database URL for studies: give a file, or "
        "postgresql://USER:PASSWORD@HOST:PORT/BASE (%40 for an @ in the password, %2F for a /)"
    )


def open_storage(url: str | FilePath, *, checkpoints: str | FilePath | None = None) -> SqlStorage:
    """The storage behind a file name or a database URL."""
    return SqlStorage(url, checkpoints=checkpoints)
