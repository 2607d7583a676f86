"""A throwaway PostgreSQL server, where its programs are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def server(start_postgres: Callable[..., AbstractContextManager[Path]]) -> Iterator[str]:
    """The URL of a server of our own, without a database name; it listens on a socket in its own folder."""
    with start_postgres() as folder:
        yield f"postgresql+psycopg://postgres@/{{}}?host={folder}"


@pytest.fixture(scope="session")
def new_database(server: str) -> Callable[[], str]:
    """Makes an empty database and returns its URL."""
    import psycopg

    numbers = count()

    def make() -> str:
        name = f"base{next(numbers)}"
        host = server.rpartition("=")[2]
        with psycopg.connect(host=host, user="postgres", dbname="postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return server.format(name)

    return make
