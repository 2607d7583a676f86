"""A study on a cluster, in a process of its own: prints what came of it as one line of JSON."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.partition import PARTITIONS
from mixtree.policies.commit import then_commit
from mixtree.storage.sql import open_storage
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree_search import TreeSearch


class Watched(MlpTrainer):
    """Leaves a file for every machine that trains; waits for all of them, or to be killed if told to."""

    def __init__(self, sources: Any, folder: Path, machines: int, victim: str | None) -> None:
        super().__init__(sources, hidden=(4,), batch_size=8)
        self.folder, self.machines, self.victim = folder, machines, victim

    def describe(self) -> dict[str, Any]:
        return {"type": "Watched"}

    def train(self, jobs: Sequence[Any]) -> list[Any]:
        address = _address()
        (self.folder / f"trained-{address}").touch()
        if address == self.victim and not (self.folder / "begun").exists():
            (self.folder / "begun").touch()
            time.sleep(600)
        # Trials of a moment would be over before the second machine is there; the first round has one alone.
        for _ in range(1200 if (self.folder / "several").exists() else 0):
            if len(list(self.folder.glob("trained-*"))) >= self.machines:
                break
            time.sleep(0.05)
        return super().train(jobs)


def _address() -> str:
    """Of the machine that this process is on, or of none."""
    if "ray" not in sys.modules:
        return "here"
    return str(sys.modules["ray"].util.get_node_ip_address())


def main(plan: dict[str, Any]) -> dict[str, Any]:
    folder = Path(plan["folder"])
    sources = synthetic(sources=3, rows=200, validation=60, test=5, features=6, seed=3).sources
    trainer = Watched(sources, folder, plan.get("machines", 1), plan.get("victim"))
    bisect = PARTITIONS["bisect"]
    search = TreeSearch(bisect.root(3), bisect.split, budget=600, steps=20, width=3, nu="auto")
    at = folder / "evaluated"

    def told(event: Any) -> None:
        if type(event).__name__ == "RoundAsked" and len(event.trials) > 1:
            (folder / "several").touch()
        if type(event).__name__ == "NodeEvaluated" and not event.replayed:
            with at.open("a") as file:
                file.write(f"{event.node.path}\n")
            if plan.get("pause"):
                time.sleep(plan["pause"])

    options: dict[str, Any] = {"seed": 4, "workers": plan.get("workers", 1), "listeners": [told]}
    if "storage" in plan:
        with closing(open_storage(plan["storage"], checkpoints=plan.get("checkpoints"))) as storage:
            result = run(then_commit(search, 0.4), trainer, storage=storage, resume=True, **options)
    else:
        result = run(then_commit(search, 0.4), trainer, **options)
    tree = [
        (node.path, node.steps, node.phase, node.value.hex(), node.mixture.tobytes().hex())
        for node in result.tree.values()
    ]
    model = {name: array.tobytes().hex() for name, array in trainer.save(result.state).items()}
    digest = hashlib.sha256(json.dumps([tree, model, result.spent]).encode()).hexdigest()
    return {"digest": digest, "nodes": len(tree), "warnings": list(result.warnings), "pid": os.getpid()}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
