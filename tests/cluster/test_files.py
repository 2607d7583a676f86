"""The files for Docker, Kubernetes and Slurm, as far as they can be read here: nothing of Docker runs."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import yaml

from mixtree.cli.options import FIT

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples" / "cluster"


def test_the_image_is_made_of_files_that_there_are() -> None:
    lines = (FILES / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    known = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENV", "CMD"}
    assert {word for word, _ in steps} <= known
    assert steps[0][0] == "FROM"
    for word, rest in steps:
        if word == "COPY":
            assert all((ROOT / name).exists() for name in rest.split()[:-1])
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (asked,) = re.findall(r"\"\.\[(.*)\]\"", "\n".join(lines))
    assert set(asked.split(",")) <= set(extras)


def test_the_manifest_is_a_job_with_a_token() -> None:
    job = yaml.safe_load((FILES / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["authOptions"] == {"mode": "token"}
    pinned = re.search(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    assert cluster["rayVersion"] == pinned[1]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        for container in pod["containers"]:
            assert container["resources"]["requests"] == container["resources"]["limits"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
    words = shlex.split(shlex.split(job["spec"]["entrypoint"])[2])
    known = {flag.flag for flag in FIT}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_slurm_script_is_a_script() -> None:
    subprocess.run(["bash", "-n", FILES / "slurm.sh"], check=True)
