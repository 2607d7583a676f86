"""The tables, their version, and how an older database becomes a newer one."""

from __future__ import annotations

import sqlalchemy as sa

from mixtree.errors import StorageError

VERSION = 1

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
    sa.Column("created", sa.String, nullable=False),
    sa.Column("updated", sa.String, nullable=False),
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

_SPEND_VIEW = """
CREATE VIEW spend AS
SELECT studies.name AS study, nodes.phase AS phase, COUNT(*) AS nodes, SUM(nodes.steps) AS steps
FROM nodes JOIN studies ON studies.id = nodes.study_id
WHERE nodes.status <> 'pending'
GROUP BY studies.name, nodes.phase
"""

MIGRATIONS: dict[int, list[str]] = {}
"""Statements that bring a database from the version before to this one."""


def migrate(engine: sa.Engine, *, where: str) -> None:
    """Make the tables, or bring older ones up to this version; refuse newer ones."""
    with engine.begin() as connection:
        tables = set(sa.inspect(connection).get_table_names())
        if about.name not in tables:
            if {"studies", "nodes"} & tables:
                raise StorageError(f"{where} holds tables of another program: choose another database")
            metadata.create_all(connection)
            connection.execute(sa.text(_SPEND_VIEW))
            connection.execute(about.insert().values(key="version", value=str(VERSION)))
            return
        found = int(connection.scalar(sa.select(about.c.value).where(about.c.key == "version")) or 0)
        if found > VERSION:
            raise StorageError(
                f"{where} was written by a newer mixtree (schema {found}, this one knows {VERSION}): upgrade"
            )
        for version in range(found + 1, VERSION + 1):
            for statement in MIGRATIONS[version]:
                connection.execute(sa.text(statement))
        if found < VERSION:
            connection.execute(about.update().where(about.c.key == "version").values(value=str(VERSION)))
