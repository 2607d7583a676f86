"""The Slurm script, in a Slurm cluster of one node that lasts as long as the test."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytestmark = pytest.mark.extras

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("driver.py")
ADDRESS = "10.78.0.1"

CONF = """
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort=17817
SlurmdPort=17818
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
NodeName={host} NodeAddr={address} CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=5 State=UP
"""
CGROUPS = "CgroupPlugin=cgroup/v1\nIgnoreSystemd=yes\nConstrainCores=no\nConstrainRAMSpace=no\n"


@pytest.fixture
def slurm() -> Iterator[tuple[list[str], Path]]:
    """The words that enter the cluster's network, and its folder."""
    programs = ("ip", "nsenter", "munged", "slurmctld", "slurmd", "sbatch")
    if sys.platform != "linux" or os.geteuid() != 0 or not all(map(shutil.which, programs)):
        pytest.skip("Slurm (slurm-wlm), root and iproute2 are needed")
    folder, name = Path(tempfile.mkdtemp(prefix="sl-")), f"sl{os.getpid()}"
    folder.chmod(0o755)
    (folder / "state").mkdir()
    host = os.uname().nodename.partition(".")[0]
    (folder / "slurm.conf").write_text(CONF.format(host=host, address=ADDRESS, folder=folder))
    if Path("/sys/fs/cgroup/freezer").exists():
        (folder / "cgroup.conf").write_text(CGROUPS)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    # Not `ip netns exec`: it hides the control groups, which slurmd looks for.
    inside = ["nsenter", f"--net=/run/netns/{name}", "env", f"SLURM_CONF={folder}/slurm.conf"]
    munge = [f"--{part}-file={folder}/munge.{part}" for part in ("key", "pid", "log", "seed")]
    try:
        for words in (
            ["ip", "netns", "add", name],
            ["ip", "-n", name, "link", "set", "lo", "up"],
            ["ip", "-n", name, "addr", "add", f"{ADDRESS}/32", "dev", "lo"],
            [*inside, "munged", "--force", *munge, f"--socket={folder}/munge.sock"],
            [*inside, "slurmctld", "-c"],
            [*inside, "slurmd", "-N", host],
        ):
            done = subprocess.run(words, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, f"{words}: {done.stderr}"
        yield inside, folder
    finally:
        for _ in range(100):
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
            if not found.split():
                break
            for pid in found.split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.05)
        subprocess.run(["ip", "netns", "del", name], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def test_the_script_runs_a_study_on_the_nodes_of_its_job(
    slurm: tuple[list[str], Path], tmp_path: Path
) -> None:
    inside, folder = slurm
    plan = {"folder": str(tmp_path)}
    serial = json.loads(subprocess.check_output([sys.executable, DRIVER, json.dumps(plan)], text=True))
    script = ROOT / "examples" / "cluster" / "slurm.sh"
    study = [sys.executable, str(DRIVER), json.dumps(plan | {"workers": "ray"})]
    batch = ["sbatch", "--wait", "--cpus-per-task=2", f"--output={tmp_path}/job.log", str(script), *study]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": path}
    done = subprocess.run(
        [*inside, f"RAY_HEAD_IP={ADDRESS}", *batch], env=env, capture_output=True, text=True, timeout=120
    )
    log = (tmp_path / "job.log").read_text()
    assert done.returncode == 0, f"{done.stderr}\n{log}\n{(folder / 'slurmd.log').read_text()}"
    (found,) = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    assert found["digest"] == serial["digest"]
    assert (tmp_path / f"trained-{ADDRESS}").exists()
    assert not Path("/tmp/ray-1").exists()
