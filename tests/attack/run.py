"""All attacks, or a sample of them, in forks of this process; a JSON line for each.

``python tests/attack/run.py`` tries all and writes docs/robustness.md; ``--sample N`` tries about N.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}

# What the commands import; polars is not used before a fork, which its threads would not survive.
import lightgbm  # noqa: F401
import sklearn.linear_model  # noqa: F401
from calls import all_calls
from commands import all_commands, make_base
from harness import Attack, in_fork, run

import mixtree._native.mlp_native
import mixtree.data.drift
import mixtree.data.tables
import mixtree.engine.study
import mixtree.export.mixture
import mixtree.fitting.estimators
import mixtree.fitting.model_folder
import mixtree.fitting.pipeline
import mixtree.planning.certificate
import mixtree.policies.auto
import mixtree.storage.sql
import mixtree.trainers.boosting
import mixtree.verdict.judge  # noqa: F401


def sampled(attacks: Sequence[Attack], count: int, seed: int = 1) -> list[Attack]:
    """As many of each kind, as far as there are; of those, seeded ones."""
    kinds: dict[str, list[Attack]] = defaultdict(list)
    for attack in attacks:
        kinds[attack.kind].append(attack)
    each = count // len(kinds)
    draw = random.Random(seed)
    return [one for of in kinds.values() for one in draw.sample(of, min(each, len(of)))]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int)
    parser.add_argument("--only", default="")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary, "base")
        base.mkdir()
        os.chdir(base)
        code = in_fork(lambda: make_base() or 0, out=base.parent / "out", err=base.parent / "err")
        if code != 0:
            sys.exit((base.parent / "err").read_text())
        attacks = [
            each for each in [*all_commands(base), *all_calls()] if chosen.only in f"{each.kind}: {each.name}"
        ]
        if chosen.sample:
            attacks = sampled(attacks, chosen.sample)
        gc.freeze()
        for outcome in run(attacks, base):
            print(json.dumps(asdict(outcome)), flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main()
