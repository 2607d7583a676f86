"""Models on disk: one safetensors file per node, written whole or not at all. Nothing is ever unpickled."""

from __future__ import annotations

import importlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path as FilePath
from secrets import token_hex
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mixtree.errors import CheckpointError, MissingExtraError, StorageError
from mixtree.places import file_name, without_secrets
from mixtree.tree import Path

_SUFFIX = ".safetensors"
_LONGEST = 180
_START = 1 << 20
"""Bytes in which the header of a model ends."""
_OWN = re.compile(r"(root|\d+(-\d+)*-?([0-9a-f]{16})?)\.safetensors")
"""Names of models; other files in the folder are the user's."""
_UNFINISHED = re.compile(r".*\.safetensors\.[0-9a-f]+\.tmp")


def path_text(path: Path) -> str:
    """A node's path as text.

    >>> path_text((0, 1)), path_text(())
    ('0/1', '')
    """
    return "/".join(map(str, path))


def text_path(text: str) -> Path:
    """The path behind its text."""
    return tuple(int(part) for part in text.split("/")) if text else ()


def place_of(url: str, study: str) -> str:
    """Where a study's models are, in full and without secrets.

    >>> place_of("s3://bucket/models/", "one/two")
    's3://bucket/models/one%2Ftwo'
    """
    local = url.removeprefix("file://")
    if "://" in local:
        return f"{without_secrets(url).rstrip('/')}/{file_name(study)}"
    return str((FilePath(local) / file_name(study)).absolute())


def check_own(url: str, study: str) -> None:
    """StorageError where a study's models would replace files of others; behind a URL nobody looks.

    Parameters
    ----------
    url : str
        Where models of studies are.
    study : str
        The study's name.
    """
    if "://" in (local := url.removeprefix("file://")):
        return
    folder = _Folder(FilePath(local) / file_name(study))
    for name in folder.names():
        try:
            about = _metadata(folder.start(name))
        except (ValueError, AttributeError, OSError):  # damaged: it is computed again
            continue
        if "mixtree" not in about:
            raise StorageError(
                f"{folder.folder} holds {name}, which mixtree did not write, where study {study!r} has its "
                "models: move it away, or choose another place"
            )


class Checkpoints:
    """The models of one study in a folder or at any fsspec URL.

    ``key`` is written into every file, and a file with another key counts as damaged.
    """

    def __init__(self, url: str, study: str, key: str = "") -> None:
        self.url, self.study, self.key = url, study, key
        self.shown = without_secrets(url)
        local = url.removeprefix("file://")
        self._files = _remote(url, study) if "://" in local else _Folder(FilePath(local) / file_name(study))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Checkpoints, (self.url, self.study, self.key))

    def write(self, path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write a model: under a temporary name first, then renamed."""
        # Not ascontiguousarray: it would give a number without dimensions one.
        solid = {
            name: np.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
            for name, array in arrays.items()
        }
        if "__metadata__" in arrays:
            raise StorageError("a model's array cannot be called '__metadata__'")
        others = [
            name for name, array in solid.items() if array.dtype.kind not in "biuf" or array.itemsize > 8
        ]
        if others:
            raise StorageError(f"a model's arrays must hold numbers or booleans; not so: {', '.join(others)}")
        # One entry: several would be written in any order, and the same model must be the same bytes.
        about = json.dumps({"path": path_text(path), "key": self.key, "crc": _checksum(solid)})
        self._files.write(_name(path), save(solid, metadata={"mixtree": about}))

    def read(self, path: Path) -> dict[str, NDArray[Any]]:
        """Read a model back; CheckpointError if it is missing, cut short or altered."""
        name = _name(path)
        data = self._files.read(name)
        if data is None:
            raise CheckpointError(f"the checkpoint {name} of study {self.study!r} is missing in {self.shown}")
        try:
            arrays = load(data)
            about = json.loads(_metadata(data)["mixtree"])
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"the checkpoint {name} in {self.shown} is damaged: {error}") from error
        expected = {"path": path_text(path), "key": self.key, "crc": _checksum(arrays)}
        wrong = [part for part, value in expected.items() if about.get(part) != value]
        if wrong:
            what = "has another checksum" if wrong == ["crc"] else "belongs to another node or study"
            raise CheckpointError(f"the checkpoint {name} in {self.shown} is damaged: it {what}")
        return arrays

    def delete(self, path: Path) -> None:
        """Remove a model; nothing happens if there is none."""
        self._files.delete(_name(path))

    def exists(self, path: Path) -> bool:
        return self._files.exists(_name(path))

    def count(self) -> int:
        """How many models there are."""
        return sum(1 for _ in self._files.names())

    def tidy(self) -> None:
        """Remove what an interrupted write left behind."""
        self._files.tidy()

    def check_own(self) -> None:
        """As the function of this name does."""
        check_own(self.url, self.study)

    def keep_only(self, paths: Iterable[Path]) -> None:
        """Remove all models but these."""
        kept = {_name(path) for path in paths}
        for name in [each for each in self._files.names() if each not in kept]:
            self._files.delete(name)

    def clear(self) -> None:
        """Remove all models of the study."""
        self._files.clear()

    def mark(self) -> str:
        """Leave a mark there, by which another process can tell that it sees the same place."""
        name = f"mark{_SUFFIX}.{token_hex(8)}.tmp"  # what a kill leaves of it is tidied away
        self._files.write(name, b"mark")
        return name

    def sees(self, mark: str) -> bool:
        """Whether the mark is there."""
        return self._files.exists(mark)

    def unmark(self, mark: str) -> None:
        """Remove the mark."""
        self._files.delete(mark)

    def copy_to(self, other: Checkpoints) -> None:
        """Copy all models to another study's place."""
        for name in list(self._files.names()):
            data = self._files.read(name)
            if data is not None:
                other._files.write(name, data)


def _name(path: Path) -> str:
    text = "root" if not path else "-".join(map(str, path))
    if len(text) > _LONGEST:  # file systems allow 255 characters
        text = f"{text[:_LONGEST]}-{blake2b(text.encode(), digest_size=8).hexdigest()}"
    return text + _SUFFIX


def _checksum(arrays: Mapping[str, NDArray[Any]]) -> int:
    total = 0
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")
        total = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return total


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    header: dict[str, dict[str, str]] = json.loads(data[8 : 8 + length])
    return header.get("__metadata__", {})


class _Folder:
    """A local folder."""

    def __init__(self, folder: FilePath) -> None:
        self.folder = folder

    def write(self, name: str, data: bytes) -> None:
        target = self.folder / name
        temporary = self.folder / f"{name}.{token_hex(8)}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # each time: somebody may have deleted it
            temporary.write_bytes(data)
            temporary.replace(target)
        except OSError as error:
            with suppress(OSError):  # the folder may be read-only, which is what is reported
                temporary.unlink(missing_ok=True)
            raise StorageError(f"cannot write the checkpoint {target}: {error.strerror or error}") from error

    def read(self, name: str) -> bytes | None:
        try:
            return (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"cannot read the checkpoint {self.folder / name}: {error}") from error

    def delete(self, name: str) -> None:
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot delete the checkpoint {self.folder / name}: {error.strerror or error}"
            ) from error

    def exists(self, name: str) -> bool:
        return (self.folder / name).exists()

    def names(self) -> Iterator[str]:
        return (file.name for file in self.folder.glob(f"*{_SUFFIX}") if _OWN.fullmatch(file.name))

    def start(self, name: str) -> bytes:
        with (self.folder / name).open("rb") as opened:
            return opened.read(_START)

    def tidy(self) -> None:
        for file in list(self.folder.glob("*.tmp")):
            if _UNFINISHED.fullmatch(file.name):
                self.delete(file.name)

    def clear(self) -> None:
        self.tidy()
        for name in list(self.names()):
            self.delete(name)
        with suppress(OSError):  # it may hold files of the user's, or not exist
            self.folder.rmdir()


class _Remote:
    """Any fsspec file system; object stores make a file appear whole or not at all."""

    def __init__(self, files: Any, folder: str, shown: str, *, has_folders: bool = True) -> None:
        self.files, self.folder, self.shown, self.has_folders = files, folder, shown, has_folders

    def _at(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def write(self, name: str, data: bytes) -> None:
        try:
            if self.has_folders:
                self.files.makedirs(self.folder, exist_ok=True)
            self.files.pipe_file(self._at(name), data)
        except OSError as error:
            raise StorageError(f"cannot write the checkpoint {self.shown}/{name}: {error}") from error

    def read(self, name: str) -> bytes | None:
        try:
            data: bytes = self.files.cat_file(self._at(name))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"cannot read the checkpoint {self.shown}/{name}: {error}") from error
        return data

    def delete(self, name: str) -> None:
        try:
            self.files.rm_file(self._at(name))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageError(f"cannot delete the checkpoint {self.shown}/{name}: {error}") from error

    def exists(self, name: str) -> bool:
        with self._reached():
            return bool(self.files.exists(self._at(name)))

    def names(self) -> Iterator[str]:
        with self._reached():
            self.files.invalidate_cache(self.folder)  # other processes write here too
            if not self.files.exists(self.folder):
                return iter(())
            listed = self.files.ls(self.folder, detail=False)
        names = (file.rsplit("/", 1)[-1] for file in listed)
        return (name for name in names if _OWN.fullmatch(name))

    def tidy(self) -> None:
        """Nothing is left behind: there are no temporary names."""

    def clear(self) -> None:
        for name in list(self.names()):
            self.delete(name)
        with suppress(OSError, NotImplementedError):  # it may hold files of the user's, or not exist
            self.files.rmdir(self.folder)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"cannot reach the checkpoints {self.shown}: {error}") from error


def _remote(url: str, study: str) -> _Remote:
    try:
        import fsspec
    except ImportError as error:
        raise MissingExtraError("a checkpoint URL", "remote") from error
    try:
        if url.startswith("s3://"):
            return _bucket(url, study)
        files, folder = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise StorageError(f"cannot use {without_secrets(url)!r} for checkpoints: {error}") from error
    return _Remote(files, f"{folder.rstrip('/')}/{file_name(study)}", place_of(url, study))


def _bucket(url: str, study: str) -> _Remote:
    """A folder of an S3 bucket, by Arrow's client: it is small, and needs no settings but ``AWS_…``."""
    try:
        arrow: Any = importlib.import_module("pyarrow.fs")
        wrapper: Any = importlib.import_module("fsspec.implementations.arrow")
    except ImportError as error:
        raise MissingExtraError("a checkpoint URL", "remote") from error
    try:
        files, folder = arrow.FileSystem.from_uri(url)
    except OSError as error:
        raise StorageError(f"cannot reach the checkpoints {without_secrets(url)}: {error}") from error
    folder = f"{folder.rstrip('/')}/{file_name(study)}"
    return _Remote(wrapper.ArrowFSWrapper(files), folder, place_of(url, study), has_folders=False)
