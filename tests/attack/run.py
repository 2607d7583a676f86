"""All attacks, or a sample of them, in forks of this process; a JSON line for each.

``--sample N`` tries about N, ``--only TEXT`` those with a text in their name. ``--page FILE`` tries all,
stops writes and measures the time limit too, and writes down what happened (make attack).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}

# What the commands import; polars is not used before a fork, which its threads would not survive.
import lightgbm  # noqa: F401
import sklearn.linear_model  # noqa: F401
from calls import all_calls
from commands import all_commands, make_base
from harness import Attack, Outcome, in_fork, run

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

HERE = Path(__file__).resolve().parent
PARTS = 3
"""Processes that try all attacks together."""


def sampled(attacks: Sequence[Attack], count: int, seed: int = 1) -> list[Attack]:
    """As many of each kind, as far as there are; of those, seeded ones."""
    kinds: dict[str, list[Attack]] = defaultdict(list)
    for attack in attacks:
        kinds[attack.kind].append(attack)
    each = count // len(kinds)
    draw = random.Random(seed)
    return [one for of in kinds.values() for one in draw.sample(of, min(each, len(of)))]


def tried(only: str = "", sample: int | None = None, part: tuple[int, int] = (0, 1)) -> Iterator[Outcome]:
    """Attacks one after another; of several parts of them one."""
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary, "base")
        base.mkdir()
        os.chdir(base)
        code = in_fork(lambda: make_base() or 0, out=base.parent / "out", err=base.parent / "err")
        if code != 0:
            sys.exit((base.parent / "err").read_text())
        attacks = [
            each for each in [*all_commands(base), *all_calls()] if only in f"{each.kind}: {each.name}"
        ]
        gc.freeze()
        attacks = sampled(attacks, sample) if sample else attacks
        yield from run(attacks[part[0] :: part[1]], base)
        os.chdir("/")


def all_of_them() -> list[Outcome]:
    """All attacks, in a few processes."""
    with tempfile.TemporaryDirectory() as temporary:
        running = []
        for number in range(PARTS):
            with Path(temporary, f"{number}").open("wb") as file:
                command = [sys.executable, __file__, "--part", str(number)]
                running.append((subprocess.Popen(command, stdout=file), file.name))
        assert [process.wait() for process, _ in running] == [0] * PARTS
        parts = [Path(name).read_text(encoding="utf-8").splitlines() for _, name in running]
    lines = [line for turn in zip_longest(*parts) for line in turn if line]
    return [Outcome(**json.loads(line)) for line in lines]


def stopped() -> list[tuple[str, str, int, int]]:
    """Writes that were killed or found the disk full: how, what, how many, and how many left a mixture."""
    sys.path.insert(0, str(HERE.parent / "kill"))
    from test_writes import FILES, KINDS, files_of, make_base, stopped_writes

    found = []
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary, "base")
        base.mkdir()
        old = files_of(make_base(base))
        attempts = stopped_writes(base, Path(temporary, "work"))
        for how, name in KINDS:
            *each, whole = attempts[how, name]
            if name == "model":  # by all files that the next command leaves
                sound = [each[0]["files"], whole["files"]]
                mixed = sum(one["files"] not in sound for one in each)
            else:
                file = FILES[name][-1]
                mixed = sum(
                    one["left"].get(file) not in (old.get(file), whole["files"][file]) for one in each
                )
            mixed += sum(any(".mixtree" in file for file in one["files"]) for one in each)
            found.append((how, name, len(each), mixed))
    return found


LIMITED = """
import sys, time
import numpy as np
from torch import nn
import mixtree

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 2)
    def forward(self, x):
        time.sleep(float(sys.argv[1]) if self.training else 0.0)
        return self.layer(x)

rng = np.random.default_rng(0)
rows = [(rng.normal(size=(200, 5)).astype("float32"), rng.integers(0, 2, 200)) for _ in range(3)]
fit, seen, began = mixtree.fit, [], time.monotonic()
fit(
    {"a": rows[0], "b": rows[1]}, rows[2], model=Slow, time_limit=2, budget=20_000, steps=1, segments=20_000,
    policy="mixmatch-ch", reference="none", listeners=[lambda event: seen.append(time.monotonic())],
)
print(time.monotonic() - began, max(np.diff(seen)))
"""


def limited() -> list[tuple[float, float, float]]:
    """Fits of a slow torch module within 2 s: seconds of a step, of all, of the longest segment."""
    found = []
    for step in (0.02, 0.05, 0.3):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(step)],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        took, segment = map(float, done.stdout.split())
        found.append((step, took, segment))
    return found


HEAD = """\
# Robustness

<!-- Made by `make attack`. -->

**{commands} attacks on the command line and {python} through Python: {traces} tracebacks, {deaths} deaths
by a signal, {changed} refusals that changed a file.** Of {writes} writes that were killed or found the disk
full, {mixed} left a mixture of old and new, or anything behind after the next command.

## What was tried
Every attack runs in a process of its own, in a fresh folder of tables, two fitted models with their
studies, and files of other programs. *Refused* means: an exit code of 1 or 2 (in Python, an error of
mixtree's, or of scikit-learn's where it checks an estimator's arrays), words that say why, without a
control character or a password, and a folder whose files are the same to the byte; a study that a trainer's
own fault stopped stays, to be resumed. *Works* means: a result, and no control character or password
either. *Got through* is all else, no end within 60 s included. One seed draws what is drawn. `make test`
tries a sample, `make attack` all.

"""
STOPS = """
## Writes that are stopped
At each system call that changes a file, in turn: killed (SIGKILL; content is half written), or the disk is
full from there on. Afterwards the next command finds the old files or the new ones, and no others. Studies
are killed by `tests/kill/test_killed.py`: they go on to the same bits.

| what is written | how it is stopped | calls | mixtures or left-overs |
| --- | --- | --- | --- |
"""
LIMITS = """
## A time limit of 2 s
A torch module that waits in every step; choosing an engine counts.

| seconds of a step | ended after | longest segment |
| --- | --- | --- |
"""
END = """
## What this does not say
A model folder is data: nothing in it is run or unpickled, and its digests tell damage. They are no
signature: who can write to the folder can write another model and its digests.
"""


def page() -> tuple[str, bool]:
    """What was tried and what happened, and whether all of it is as it should be."""
    outcomes = all_of_them()
    for each in outcomes:
        if each.wrong:
            print(f"{each.kind}: {each.name}: {each.wrong}\n{each.said}", flush=True)
    stops, limits = stopped(), limited()
    kinds = list(dict.fromkeys(each.kind for each in outcomes))
    mixed = sum(each[3] for each in stops)
    within = all(took < 4 + segment for _, took, segment in limits)
    python = sum(each.kind == "Python" for each in outcomes)
    deaths = sum("killed by" in each.wrong for each in outcomes)
    traces = sum("traceback" in each.wrong for each in outcomes)
    changed = sum("changed on disk" in each.wrong for each in outcomes)
    lines = [
        *HEAD.format(
            commands=f"{len(outcomes) - python:,}",
            python=f"{python:,}",
            traces=traces,
            deaths=deaths,
            changed=changed,
            writes=sum(each[2] for each in stops),
            mixed=mixed,
        ).splitlines(),
        "| attacks | tried | refused | works | got through |",
        "| --- | --- | --- | --- | --- |",
    ]
    for kind in (*kinds, "all"):
        ended = Counter(
            "got through" if each.wrong else each.ended for each in outcomes if kind in (each.kind, "all")
        )
        counts = (ended.total(), ended["refused"], ended["works"], ended["got through"])
        lines.append(f"| {kind} | {' | '.join(f'{count:,}' for count in counts)} |")
    lines += STOPS.splitlines()
    for how, name, count, bad in stops:
        lines.append(f"| {name} | {'killed' if how == 'kill' else 'disk full'} | {count} | {bad} |")
    lines += LIMITS.splitlines()
    lines += [f"| {step:g} | {took:.1f} s | {segment:.1f} s |" for step, took, segment in limits]
    lines += END.splitlines()
    return "\n".join(lines) + "\n", not (any(each.wrong for each in outcomes) or mixed) and within


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--part", type=int, help=f"of {PARTS}")
    chosen = parser.parse_args()
    if chosen.page is None:
        part = (0, 1) if chosen.part is None else (chosen.part, PARTS)
        for outcome in tried(chosen.only, chosen.sample, part):
            print(json.dumps(asdict(outcome)), flush=True)
        return
    file = chosen.page.resolve()
    text, sound = page()
    file.write_text(text, encoding="utf-8")
    sys.exit(0 if sound else f"something got through: see {file}")


if __name__ == "__main__":
    main()
