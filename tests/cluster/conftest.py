"""Two machines: network namespaces with their own addresses; Ray on both, PostgreSQL and S3 on the first."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOKEN, KEY, PASSWORD = "a-token-that-nobody-may-read-0123456789", "AKIDSECRETKEY", "hunter2hunter2"
HEAD, WORKER = "10.77.0.1", "10.77.0.2"
MAKE_BUCKET = (
    "from urllib.request import Request, urlopen; "
    f"urlopen(Request('http://{HEAD}:5000/bucket', method='PUT')).close()"
)


def wait_for(condition: Callable[[], Any], what: str, *, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


@dataclass
class Machine:
    """A network namespace, and Ray in it."""

    name: str
    address: str
    folder: Path
    settings: dict[str, str] = field(default_factory=dict)

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **self.settings}
        return subprocess.Popen(self.command(*words), text=True, env=env, cwd=self.folder, **options)

    def run(self, *words: str) -> str:
        with self.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                out, errors = process.communicate(timeout=100)
            finally:
                process.kill()
        assert process.returncode == 0, f"{out}\n{errors}"
        assert not any(secret in out + errors for secret in (TOKEN, KEY, PASSWORD))
        return out

    def start_ray(self, *words: str) -> None:
        (self.folder / "ray").mkdir(exist_ok=True)
        common = ["--num-cpus=1", f"--object-store-memory={80 * 2**20}", "--disable-usage-stats"]
        ray = str(Path(sys.executable).with_name("ray"))
        place = [f"--node-ip-address={self.address}", f"--temp-dir={self.folder}/ray"]
        log = self.folder / "ray.log"
        with (
            log.open("w") as file,
            self.popen(ray, "start", *words, *place, *common, stdout=file, stderr=file) as process,
        ):
            assert process.wait(60) == 0, log.read_text()

    def pids(self) -> list[int]:
        done = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True, check=True)
        return [int(pid) for pid in done.stdout.split()]

    def kill(self) -> None:
        """Everything on the machine, at once; a namespace knows its processes, so no other is hit."""
        for _ in range(100):
            if not (pids := self.pids()):
                return
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        raise AssertionError(f"processes of {self.name} survive: {self.pids()}")


@dataclass
class Site:
    """Both machines and the services of the first."""

    head: Machine
    worker: Machine
    storage: str
    checkpoints: str

    wait_for = staticmethod(wait_for)

    def join(self) -> None:
        """The second machine (again) in the cluster."""
        self.worker.start_ray(f"--address={HEAD}:6379")


def call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=30)


@pytest.fixture(scope="session")
def site(start_postgres: Callable[..., AbstractContextManager[Path]]) -> Iterator[Site]:
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need Linux, root and iproute2")
    pytest.importorskip("ray")
    moto = ROOT / ".venv-s3" / "bin" / "moto_server"
    if not moto.exists():
        pytest.skip("moto_server is not installed: make test-extras installs it into .venv-s3")
    shared = set(Path("/dev/shm").iterdir())
    number = os.getpid() % 100000
    folder = Path(f"/tmp/mx{number}")  # short: a socket's name has 107 characters
    machines = []
    for letter, address in (("a", HEAD), ("b", WORKER)):
        machine = Machine(f"mx{number}{letter}", address, folder / letter)
        machine.folder.mkdir(parents=True)
        machine.settings = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
            "RAY_USAGE_STATS_ENABLED": "0",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": KEY,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{HEAD}:5000",
        }
        machines.append(machine)
    head, worker = machines
    bucket = None
    call("ip", "netns", "add", head.name)
    call("ip", "netns", "add", worker.name)
    try:
        call("ip", "link", "add", f"{head.name}0", "type", "veth", "peer", "name", f"{worker.name}0")
        for machine in machines:
            call("ip", "link", "set", f"{machine.name}0", "netns", machine.name)
            call("ip", "-n", machine.name, "addr", "add", f"{machine.address}/24", "dev", f"{machine.name}0")
            call("ip", "-n", machine.name, "link", "set", f"{machine.name}0", "up")
            call("ip", "-n", machine.name, "link", "set", "lo", "up")
        with (head.folder / "moto.log").open("w") as log:
            bucket = head.popen(str(moto), "-H", HEAD, "-p", "5000", stdout=log, stderr=log)
        head.start_ray("--head", "--port=6379", "--ray-client-server-port=10001", "--include-dashboard=false")
        wait_for(lambda: "Running on" in (head.folder / "moto.log").read_text(), "the S3 server")
        head.run(sys.executable, "-c", MAKE_BUCKET)
        with start_postgres(HEAD, PASSWORD, head.command()):
            url = f"postgresql://postgres:{PASSWORD}@{HEAD}/postgres"
            site = Site(head, worker, url, "s3://bucket/models")
            site.join()
            yield site
    finally:
        for machine in machines:
            machine.kill()
            call("ip", "netns", "del", machine.name)
        if bucket is not None:
            bucket.wait(10)
        shutil.rmtree(folder, ignore_errors=True)
    left = set(Path("/dev/shm").iterdir()) - shared
    assert not [file for file in left if not file.name.startswith("sem.")]  # those of other tests' processes
