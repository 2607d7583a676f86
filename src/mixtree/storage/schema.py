"""The tables, their version, and how an older database becomes a newer one."""

from __future__ import annotations

from zlib import crc32

import sqlalchemy as sa

from mixtree.errors import StorageError

VERSION = 3

metadata = sa.MetaData()

about = sa.Table(
    "mixtree",
    metadata,
    sa.Column("key", sa.String, primary_key=True),
    sa.Column("value", sa.String, nullable=False),
)
studies = sa.Table(
    "studies",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String, nullable=False, unique=True),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("budget", sa.BigInteger, nullable=False),
    # Seeds are unsigned 64-bit numbers, one bit more than SQL's integers hold.
    sa.Column("seed", sa.String, nullable=False),
    sa.Column("init_seed", sa.String, nullable=False),
    sa.Column("engine", sa.String),
    sa.Column("config", sa.Text, nullable=False),
    sa.Column("data", sa.String, nullable=False),
    sa.Column("recipe", sa.Text),
    sa.Column("rule", sa.String, nullable=False),
    sa.Column("best", sa.String),
    sa.Column("key", sa.String, nullable=False),
    sa.Column("sizes", sa.Text),
    sa.Column("notes", sa.Text),
    sa.Column("models", sa.String),
    sa.Column("created", sa.String, nullable=False),
    sa.Column("updated", sa.String, nullable=False),
    sqlite_autoincrement=True,  # the number of a deleted study is not given to another one
)
nodes = sa.Table(
    "nodes",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey("studies.id"), nullable=False),
    sa.Column("path", sa.String, nullable=False),
    sa.Column("height", sa.Integer, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("phase", sa.String, nullable=False),
    sa.Column("mixture", sa.Text, nullable=False),
    sa.Column("steps", sa.BigInteger, nullable=False),
    sa.Column("lr_scale", sa.Double, nullable=False),
    # Of a long stage: the path its random numbers come from, steps of it behind, steps of all of it.
    sa.Column("segment", sa.String),
    # Of a start from several models: their paths and weights.
    sa.Column("merged", sa.Text),
    sa.Column("status", sa.String, nullable=False),
    sa.Column("value", sa.Double),
    sa.Column("standard_error", sa.Double),
    sa.Column("seconds", sa.Double),
    sa.UniqueConstraint("study_id", "path"),
)
predictions = sa.Table(
    "predictions",
    metadata,
    sa.Column("node_id", sa.ForeignKey("nodes.id"), primary_key=True, autoincrement=False),
    sa.Column("dtype", sa.String, nullable=False),
    sa.Column("shape", sa.String, nullable=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)
events = sa.Table(
    "events",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("study_id", sa.ForeignKey("studies.id"), nullable=False),
    sa.Column("at", sa.String, nullable=False),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("message", sa.Text, nullable=False),
)
verdicts = sa.Table(
    "verdicts",
    metadata,
    sa.Column("study_id", sa.ForeignKey("studies.id"), primary_key=True, autoincrement=False),
    sa.Column("at", sa.String, nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
)

_SPEND_VIEW = """
CREATE VIEW spend AS
SELECT studies.name AS study, nodes.phase AS phase, COUNT(*) AS nodes, SUM(nodes.steps) AS steps
FROM nodes JOIN studies ON studies.id = nodes.study_id
WHERE nodes.status <> 'pending'
GROUP BY studies.name, nodes.phase
"""

MIGRATIONS: dict[int, list[str]] = {
    2: [
        "ALTER TABLE nodes ADD COLUMN segment VARCHAR",
        "ALTER TABLE studies ADD COLUMN sizes TEXT",
        "ALTER TABLE studies ADD COLUMN notes TEXT",
        "ALTER TABLE studies ADD COLUMN models VARCHAR",
        "CREATE TABLE verdicts (study_id INTEGER NOT NULL PRIMARY KEY REFERENCES studies (id), "
        "at VARCHAR NOT NULL, verdict TEXT NOT NULL)",
        "INSERT INTO verdicts SELECT study_id, at, message FROM events WHERE id IN "
        "(SELECT MAX(id) FROM events WHERE kind = 'verdict' GROUP BY study_id)",
        "DELETE FROM events WHERE kind = 'verdict'",
    ],
    3: ["ALTER TABLE nodes ADD COLUMN merged TEXT"],
}
"""Statements that bring a database from the version before to this one."""

LOCK_SPACE = crc32(b"mixtree") >> 1
"""First half of the keys of PostgreSQL's advisory locks; the second is a study's number, 0 for the tables."""


def bring_up(writing: sa.Engine, *, where: str) -> None:
    """Make the tables, or bring older ones up to this version; refuse newer ones."""
    before: int | None = None
    try:
        with writing.begin() as connection:  # all of it or nothing, and one process at a time
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK_SPACE, 0)))
            before = stored_version(connection, where=where)
            _bring_up(connection, before)
    except sa.exc.OperationalError as error:
        if before is None or "readonly" not in str(error.orig):
            raise
        raise StorageError(
            f"{where} was written by an older mixtree and may only be read, so its tables cannot be brought "
            "up to date: open a copy that may be written"
        ) from error


def _bring_up(connection: sa.Connection, found: int | None) -> None:
    if found is None:
        metadata.create_all(connection)
        connection.execute(sa.text(_SPEND_VIEW))
        connection.execute(about.insert().values(key="version", value=str(VERSION)))
    elif found < VERSION:
        for version in range(found + 1, VERSION + 1):
            for statement in MIGRATIONS[version]:
                connection.execute(sa.text(statement))
        connection.execute(about.update().where(about.c.key == "version").values(value=str(VERSION)))


def stored_version(connection: sa.Connection, *, where: str) -> int | None:
    """The version of the tables; None if there are none yet. Refuses tables of others and of the future."""
    inspector = sa.inspect(connection)
    tables = {*inspector.get_table_names(), *inspector.get_view_names()}
    if about.name not in tables:
        # A server's database may be shared; a file is somebody's own.
        ours = {*metadata.tables, "spend"}
        if tables & ours or (tables and connection.dialect.name == "sqlite"):
            raise StorageError(
                f"{where} holds tables of another program ({', '.join(sorted(tables)[:5])}): "
                "choose another database"
            )
        return None
    text = connection.scalar(sa.select(about.c.value).where(about.c.key == "version"))
    if text is None or not text.isdecimal():
        raise StorageError(f"{where} does not say which version its tables have: it is damaged")
    found = int(text)
    if found > VERSION:
        raise StorageError(
            f"{where} was written by a newer mixtree (schema {found}, this one knows {VERSION}): upgrade"
        )
    return found
