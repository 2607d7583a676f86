"""Stops a write at each call that changes a file, and says what the next command finds.

Everything is imported once; each attempt is a fork of its own, in a fresh copy of a folder. The script takes
a list of Plans as JSON and prints a JSON line for each: all its attempts, the last of which nothing stopped.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import mixtree._native.mlp_native  # noqa: F401
import mixtree.data.drift  # noqa: F401
import mixtree.data.tables  # noqa: F401
import mixtree.engine.study  # noqa: F401
import mixtree.export.mixture  # noqa: F401

# What the commands import; polars is not used before a fork, which its threads would not survive.
import mixtree.planning.certificate  # noqa: F401
from mixtree import cli
from mixtree.fitting.model_folder import load_model, write_model


@dataclass(frozen=True)
class Plan:
    """What is written where."""

    base: str
    """The folder that each attempt begins with."""
    work: str
    """Where the attempts go."""
    write: list[str]
    """A command, or "model" and the folders of a new model and of the old one that it shall replace."""
    then: list[str]
    """The command after it."""
    how: str = "kill"
    """Killed, or "full": from that call on the disk is full."""


class Stopper:
    """Stops this process at the n-th change: before it, or, for the content of a file, in the middle."""

    def __init__(self, at: int, *, folder: Path, how: str) -> None:
        self.at, self.folder, self.how, self.count = at, str(folder), how, 0

    def watch(self) -> None:
        sys.addaudithook(self._hear)
        write, fsync = os.write, os.fsync

        def half(file: int, data: Any) -> int:
            if self._due():
                write(file, bytes(data)[: len(data) // 2])
                self._stop()
            return write(file, data)

        def synced(file: int) -> None:
            if self._due():
                self._stop()
            fsync(file)

        os.write, os.fsync = half, synced  # type: ignore[assignment]

    def _due(self) -> bool:
        self.count += 1
        return self.count == self.at or (self.how == "full" and self.count > self.at)

    def _stop(self) -> None:
        if self.how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        makes = event in ("os.rename", "os.mkdir")
        if event == "open":
            path, mode, flags = arguments
            makes = isinstance(path, str) and bool(flags & os.O_CREAT)
        removes = event in ("os.remove", "os.rmdir") and self.how == "kill"  # it needs no room
        if (makes or removes) and self.folder in str(Path(arguments[0]).absolute()) and self._due():
            self._stop()


def command(*arguments: str) -> int:
    """A command in this process; its exit code."""
    sys.argv = ["mixtree", *arguments]
    try:
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def replace_model(new: str, old: str) -> int:
    model = load_model(new)
    write_model(
        Path(old), arrays=model.trainer.save(model.state), preprocessor=model.preprocessor, about=model.about
    )
    return 0


def attempt(work: Callable[[], int]) -> int:
    """Fork and run; the exit code as subprocess would give it."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): sha256(file.read_bytes()).hexdigest() if file.is_file() else "folder"
        for file in sorted(folder.rglob("*"))
    }


def run_plan(plan: Plan) -> list[dict[str, Any]]:
    attempts, seen = [], dict[str, dict[str, Any]]()
    for number in range(1, 1000):
        place = Path(plan.work) / str(number)
        shutil.copytree(plan.base, place)
        os.chdir(place)
        stopper = Stopper(number, folder=place, how=plan.how)

        def write(stopper: Stopper = stopper) -> int:
            stopper.watch()
            try:
                return replace_model(*plan.write[1:]) if plan.write[0] == "model" else command(*plan.write)
            except Exception:
                return 1

        code = attempt(write)
        left = files_of(place)
        # What is in a file that will be thrown away makes no difference to the next command: its name does.
        key = str(
            [
                re.sub(r"-[0-9a-f]{16}", "", name) + found * (".tmp" not in name)
                for name, found in left.items()
            ]
        )
        if key not in seen:
            then = attempt(lambda: command(*plan.then))
            seen[key] = {"then": then, "files": files_of(place)}
        attempts.append({"code": code, "left": left, **seen[key]})
        if code == 0:
            break
    return attempts


if __name__ == "__main__":
    plans = [Plan(**each) for each in json.loads(sys.argv[1])]
    command("export", f"{plans[0].base}/study")  # what else is imported on the way
    gc.freeze()
    for plan in plans:
        print(json.dumps(run_plan(plan)), flush=True)
