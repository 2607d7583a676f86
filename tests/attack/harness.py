"""Runs attacks: each in a fork of its own, in a fresh copy of one folder, and judges what is left.

Everything is imported once, in the parent, which never computes with polars: its threads survive no fork.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from io import TextIOWrapper
from pathlib import Path
from typing import Any

SECRET = "hunter2-s3cr3t"
"""No output and no file that a command makes may hold it."""
_MEMORY, _SECONDS = 6 * 2**30, 60
"""What an attack may take: a machine must not die of its own tests."""
_BIDI = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


@dataclass(frozen=True)
class Attack:
    """Commands after a harm that was done to the folder, or a piece of Python; the first refusal ends it."""

    kind: str
    name: str
    commands: tuple[tuple[str, ...], ...] = ()
    harm: Callable[[Path], Any] | None = None
    """Done before the folder is looked at for the first time; it may be what the attack is about."""
    python: Callable[[], Any] | None = None
    must: str = "answer"
    """refuse: an exit code other than 0; work: 0; answer: either, as long as it is said and done properly."""
    reads: bool = False
    """Whether a command that goes well may change nothing either."""
    stays: bool = False
    """Whether a study that stopped at an error of the attacker's own code stays, to be resumed."""
    encoding: str = "utf-8"
    """Of the terminal."""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of an attack: refused or works, and what is wrong with that."""

    kind: str
    name: str
    ended: str
    wrong: str
    said: str
    seconds: float


def files_of(folder: Path) -> dict[str, str]:
    """A digest of each file below a folder; links are told by where they point to."""
    found = {}
    for file in sorted(folder.rglob("*")):
        if file.is_symlink():
            content = f"link to {file.readlink()}"
        elif file.is_file():
            content = sha256(file.read_bytes()).hexdigest()
        else:
            content = "folder" if file.is_dir() else "something else"
        found[os.fsencode(file.relative_to(folder)).decode(errors="replace")] = content
    return found


def in_fork(work: Callable[[], int], *, out: Path, err: Path, encoding: str = "utf-8") -> int | None:
    """Work in a fork that writes to these files; its exit code as subprocess gives it, None if late."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            for number, file in ((0, Path("/dev/null")), (1, out), (2, err)):
                opened = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.dup2(opened, number)
                os.close(opened)
            sys.stdin = open(0, closefd=False)  # noqa: PTH123, SIM115
            # As Python makes them for a terminal or a file of this encoding.
            sys.stdout = TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding, "strict")
            sys.stderr = TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding, "backslashreplace")
            code = work()
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            os.write(2, traceback.format_exc().encode(errors="backslashreplace"))
        finally:
            os._exit(code)
    until = time.monotonic() + _SECONDS
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            break
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            code = None
            break
        time.sleep(0.002)
    return code


def command(arguments: Iterable[str]) -> int:
    """The real entry point; its exit code, and a traceback where the interpreter would print one."""
    from mixtree import cli

    sys.argv = ["mixtree", *arguments]
    try:
        cli.main()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            sys.stderr.write(ended.code)
            return 1
        return ended.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def call(python: Callable[[], Any]) -> int:
    """A piece of Python: refused if an error of ours ends it, or one that the attacker's own code raised.

    Estimators raise scikit-learn's errors too: those count if they were raised on purpose.
    """
    from mixtree.errors import InputError, MixtreeError

    try:
        python()
    except (MixtreeError, OwnError) as error:
        sys.stderr.write(ascii(str(error)))
        return 2 if isinstance(error, InputError) else 1
    except (ValueError, TypeError, OverflowError) as error:
        # Estimators take arrays through scikit-learn, which may say so itself.
        places = traceback.extract_tb(error.__traceback__)
        ours = "/mixtree/" in places[-1].filename and (places[-1].line or "").startswith("raise ")
        if not ours and not any("/sklearn/utils/" in each.filename for each in places):
            traceback.print_exc()
        sys.stderr.write(ascii(str(error)))
        return 2
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


class OwnError(Exception):
    """What hostile trainers raise themselves; it goes through as it is."""


def attempt(attack: Attack, base: Path, work: Path) -> Outcome:
    """One attack in a copy of the base folder."""
    began = time.monotonic()
    if work.exists():
        shutil.rmtree(work)
    place = work / "here"
    shutil.copytree(base, place, symlinks=True)
    if attack.harm is not None:
        attack.harm(place)
    steps: list[Callable[[], int]] = [lambda each=each: command(each) for each in attack.commands]
    if attack.python is not None:
        steps.append(lambda: call(attack.python))
    ended, wrong, said = "works", "", ""
    for number, step in enumerate(steps):
        before = files_of(place)
        os.chdir(place)
        out, err = work / "out", work / "err"

        def inside(step: Callable[[], int] = step) -> int:
            os.environ.update(attack.environment)
            return step()

        code = in_fork(inside, out=out, err=err, encoding=attack.encoding)
        os.chdir(work)
        texts = [file.read_bytes().decode(attack.encoding, "backslashreplace") for file in (out, err)]
        said = (texts[1].strip() or texts[0].strip())[-300:]
        wrong = fault(attack, code, texts, before, place)
        ended = "works" if code == 0 else "refused"
        if wrong or code != 0:
            wrong = f"{wrong} (command {number + 1})" if wrong else ""
            break
    if not wrong and attack.must == "refuse" and ended == "works":
        wrong = "it was not refused"
    if not wrong and attack.must == "work" and ended == "refused":
        wrong = "it was refused"
    return Outcome(attack.kind, attack.name, ended, wrong, said, time.monotonic() - began)


def fault(attack: Attack, code: int | None, texts: list[str], before: dict[str, str], place: Path) -> str:
    """What is wrong with how a command ended; nothing: an empty text."""
    if code is None:
        return f"no end within {_SECONDS} s"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    if any("Traceback (most recent" in text for text in texts):
        return "a traceback"
    if code not in (0, 1, 2, 130):
        return f"exit code {code}"
    if code and not "".join(texts).strip():
        return "not a word of why"
    if any(SECRET in text for text in texts):
        return "a secret is shown"
    for letter in set("".join(texts)) - set("\n\t\r"):
        if unicodedata.category(letter) == "Cc" or letter in _BIDI:
            return f"the control character {ascii(letter)} reaches the terminal"
    after = files_of(place)
    if (attack.reads or code == 2 or (code == 1 and not attack.stays)) and after != before:
        changed = sorted(name for name in {**before, **after} if before.get(name) != after.get(name))
        return f"changed on disk: {', '.join(changed)}"
    if left := [name for name in after if ".mixtree-" in name and name not in before]:
        return f"left behind: {', '.join(left)}"
    for name in after:
        file = place / name
        if before.get(name) != after[name] and file.is_file() and SECRET.encode() in file.read_bytes():
            return f"a secret is in {name}"
    return ""


def run(attacks: Iterable[Attack], base: Path) -> Iterator[Outcome]:
    """All attacks one after another."""
    with tempfile.TemporaryDirectory(prefix="mixtree-attack-") as temporary:
        for attack in attacks:
            yield attempt(attack, base, Path(temporary, "work"))
