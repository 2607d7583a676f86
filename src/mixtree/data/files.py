"""Files that appear whole or not at all, alone or several at once.

Everything is written under a name that nobody can guess, synced, and renamed. The next writer in the same
folder removes what a killed one has left there.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from mixtree.errors import MissingExtraError, StorageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PENDING = ".mixtree-new"  # the new files of a folder, complete, on their way to their places
_SCRATCH = re.compile(r"\.mixtree-[0-9a-f]{16}\.tmp")
_OLD = 3600.0  # seconds after which the writer of a left-over counts as dead where it cannot be asked


def write_file(path: str | Path, content: bytes | str) -> None:
    """Write a file, or replace it; a link stays, and the file it points to is replaced."""
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():  # a pipe or a device, which no file may replace
            with path.open("wb") as opened:
                opened.write(data)
            return
        target = path.resolve()
        _tidy(target.parent)
        with _scratch(target.parent) as scratch:
            _write(scratch, data)
            scratch.replace(target)
            _sync(target.parent)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV; the columns are all keys in the order in which they appear."""
    text = io.StringIO(newline="")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, columns, restval="")
    writer.writeheader()
    writer.writerows(rows)
    write_file(path, text.getvalue())


def blank_figure(**how: Any) -> Figure:
    """A matplotlib figure that belongs to no window."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("a figure", "plot") from error
    return Figure(**how)


def write_figure(path: Path, figure: Figure, **how: Any) -> None:
    """Draw a matplotlib figure into a file, in the form that its name says."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix.removeprefix("."), **how)
    write_file(path, drawn.getvalue())


def write_files(folder: Path, contents: Mapping[str, bytes | None]) -> None:
    """Replace several files of a folder at once, and remove those whose content is None.

    The new ones are made in a folder beside them; one rename of that folder decides. From then on `current`
    finds them there, until `settle` has moved each to its place. No two may have the same last name.
    """
    try:
        settle(folder, contents)
        with _scratch(folder, is_folder=True) as scratch:
            for name, data in contents.items():
                _write(scratch / Path(name).name, data or b"")
            _sync(scratch)
            scratch.rename(folder / _PENDING)
            _sync(folder)
        settle(folder, contents)
    except OSError as error:
        raise StorageError(f"cannot write to {folder}: {error.strerror or error}") from error


def current(folder: Path, name: str) -> Path:
    """Where a file is to be read that `write_files` writes: a killed writer may have left it on its way."""
    new = folder / _PENDING / Path(name).name
    return new if new.exists() else folder / name


def unsettled(folder: Path) -> bool:
    """Whether a writer is at work in a folder, or was killed there."""
    return any(each.name == _PENDING or _SCRATCH.fullmatch(each.name) for each in folder.iterdir())


def settle(folder: Path, names: Iterable[str]) -> None:
    """Finish what a killed writer had begun to put in place, and remove what it had not."""
    pending = folder / _PENDING
    if pending.is_dir():
        for name in names:
            new, target = pending / Path(name).name, folder / name
            if pending.is_symlink() or (target.parent != folder and target.parent.is_symlink()):
                raise OSError(f"{target.parent} or {pending} is a link")  # it could lead anywhere
            # A file that is missing is in its place already, or another process was quicker.
            with suppress(FileNotFoundError):
                if new.stat().st_size:
                    target.parent.mkdir(exist_ok=True)
                    new.replace(target)
                    _sync(target.parent)
                else:  # a file to be removed
                    target.unlink(missing_ok=True)
                    new.unlink()
        with suppress(FileNotFoundError):
            pending.rmdir()
        _sync(folder)
    _tidy(folder)


@contextmanager
def _scratch(folder: Path, *, is_folder: bool = False) -> Iterator[Path]:
    """A new file or folder, locked as long as its writer lives, and gone in the end unless it was renamed."""
    while True:
        path = folder / f".mixtree-{token_hex(8)}.tmp"
        if is_folder:
            path.mkdir()
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        lock = _lock(path)
        if path.exists():
            break
        _unlock(lock)  # another process took it for a left-over before it was locked
    try:
        yield path
    finally:
        _remove(path)
        _unlock(lock)


def _tidy(folder: Path) -> None:
    """Remove what killed writers have left in a folder."""
    found: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:  # a folder need not be readable to write there
        found = [Path(e.path) for e in entries if _SCRATCH.fullmatch(e.name) and not e.is_symlink()]
    for path in found:
        with suppress(OSError):  # its writer is at work, or it belongs to somebody else
            lock = _lock(path, wait=False)
            try:
                if lock is not None or time.time() - path.stat().st_mtime > _OLD:
                    _remove(path)
            finally:
                _unlock(lock)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    finally:
        os.close(file)


def _sync(folder: Path) -> None:
    """Make renames last through a power failure, where the system can."""
    if sys.platform != "win32":
        with suppress(OSError):  # what was renamed stays renamed
            file = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)


def _lock(path: Path, *, wait: bool = True) -> int | None:
    """An open file that holds the lock, which ends with its process; None where there are no such locks."""
    if sys.platform == "win32":
        return None
    import fcntl

    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(file)
        raise
    except OSError:  # a network file system may have none
        os.close(file)
        return None
    return file


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
