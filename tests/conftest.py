"""What all tests share: settings, a throwaway PostgreSQL server, Ray on this machine."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Tests never judge times: a busy machine is no failure. On CI the same examples are tried every time.
settings.register_profile("mixtree", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("mixtree")


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
def start_postgres() -> Callable[..., AbstractContextManager[Path]]:
    """Starts a PostgreSQL server of our own while a context lasts."""
    pytest.importorskip("psycopg", reason="the PostgreSQL driver psycopg is not installed")
    return _postgres


@contextmanager
def _postgres(address: str = "", password: str = "", prefix: Sequence[str] = ()) -> Iterator[Path]:
    """The folder of its socket; with an address it listens there too, and asks for the password.

    ``prefix`` goes before its commands, such as those that enter a network namespace.
    """
    programs, become = _programs(), [*prefix, *_as_postgres()]
    # Not under pytest's own folder: the user postgres could not enter it. A socket's name must be short.
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    data, secret = folder / "data", folder / "secret"
    secret.write_text(password or "none")
    if os.name == "posix" and os.geteuid() == 0:
        shutil.chown(folder, "postgres")
        shutil.chown(secret, "postgres")

    def call(*command: str) -> None:
        done = subprocess.run([*become, *command], cwd=folder, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{command[0]} failed: {done.stdout}{done.stderr}"

    allowed = ["-A", "scram-sha-256", f"--pwfile={secret}"] if password else ["-A", "trust"]
    call(str(programs / "initdb"), "-D", str(data), "-U", "postgres", "--no-sync", "-E", "UTF8", *allowed)
    if password:
        with (data / "pg_hba.conf").open("a") as file:
            file.write(f"host all all {address}/24 scram-sha-256\n")
    options = f"-c listen_addresses='{address}' -c unix_socket_directories={folder} -c fsync=off"
    control = [str(programs / "pg_ctl"), "-D", str(data), "-w"]
    call(*control, "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield folder
    finally:
        call(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Ray on this machine, with room for two trials."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=80 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        _temp_dir=str(tmp_path_factory.mktemp("r")),
    )
    yield ray
    ray.shutdown()
