"""A throwaway PostgreSQL server, where its programs are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest


def _programs() -> Path:
    """The folder of initdb and pg_ctl; not all systems put it on the path."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    pytest.skip("PostgreSQL's server programs (initdb, pg_ctl) are not installed")


def _as_postgres() -> list[str]:
    """The server refuses to run as root."""
    if os.name != "posix" or os.geteuid() != 0:
        return []
    import pwd

    try:
        pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("PostgreSQL refuses to run as root and there is no user 'postgres'")
    return [*(["runuser", "-u"] if shutil.which("runuser") else ["sudo", "-u"]), "postgres", "--"]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a server of our own, without a database name; it listens on a socket in its own folder."""
    pytest.importorskip("psycopg", reason="the PostgreSQL driver psycopg is not installed")
    programs, become = _programs(), _as_postgres()
    # Not under pytest's own folder: the user postgres could not enter it. A socket's name must be short.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if become:
        shutil.chown(folder, "postgres")
    data = folder / "data"

    def call(*command: str) -> None:
        done = subprocess.run([*become, *command], cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command[0]} failed: {done.stdout}{done.stderr}"

    call(
        str(programs / "initdb"), "-D", str(data), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8"
    )
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    control = [str(programs / "pg_ctl"), "-D", str(data), "-w"]
    call(*control, "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield f"postgresql+psycopg://postgres@/{{}}?host={folder}"
    finally:
        call(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


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
