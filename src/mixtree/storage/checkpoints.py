"""Models on disk: one safetensors file per node, written whole or not at all. Nothing is ever unpickled."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path as FilePath
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mixtree.errors import CheckpointError, StorageError
from mixtree.tree import Path

_SUFFIX = ".safetensors"
_LONGEST = 180


def path_text(path: Path) -> str:
    """A node's path as text.

    >>> path_text((0, 1)), path_text(())
    ('0/1', '')
    """
    return "/".join(map(str, path))


def text_path(text: str) -> Path:
    """The path behind its text."""
    return tuple(int(part) for part in text.split("/")) if text else ()


class Checkpoints:
    """The models of one study in a folder or at any fsspec URL."""

    def __init__(self, url: str, study: str) -> None:
        self.url, self.study = url, study
        self._files = _remote(url, study) if "://" in url else _Folder(FilePath(url) / quote(study, safe=" "))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Checkpoints, (self.url, self.study))

    def write(self, path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write a model: under a temporary name first, then renamed."""
        solid = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        about = {"path": path_text(path), "crc": str(_checksum(solid))}
        scalars = [name for name, array in arrays.items() if array.ndim == 0]
        if scalars:  # ascontiguousarray would give them a dimension, and they would come back changed
            raise StorageError(f"a model's arrays need at least one dimension; not so: {', '.join(scalars)}")
        self._files.write(_name(path), save(solid, metadata=about))

    def read(self, path: Path) -> dict[str, NDArray[Any]]:
        """Read a model back; CheckpointError if it is missing, cut short or altered."""
        name = _name(path)
        data = self._files.read(name)
        if data is None:
            raise CheckpointError(f"the checkpoint {name} of study {self.study!r} is missing in {self.url}")
        try:
            arrays = load(data)
            about = _metadata(data)
        except (SafetensorError, ValueError, KeyError, EOFError) as error:
            raise CheckpointError(f"the checkpoint {name} in {self.url} is damaged: {error}") from error
        if about.get("path") != path_text(path) or about.get("crc") != str(_checksum(arrays)):
            raise CheckpointError(
                f"the checkpoint {name} in {self.url} is damaged: its checksum does not match"
            )
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

    def clear(self) -> None:
        """Remove all models of the study."""
        self._files.clear()

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
        data = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
        total = zlib.crc32(data.data, zlib.crc32(name.encode(), total))
    return total


def _metadata(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    header: dict[str, dict[str, str]] = json.loads(data[8 : 8 + length])
    return header.get("__metadata__", {})


class _Folder:
    """A local folder."""

    def __init__(self, folder: FilePath) -> None:
        self.folder = folder
        self.made = False

    def write(self, name: str, data: bytes) -> None:
        target = self.folder / name
        temporary = self.folder / f"{name}.{os.getpid()}.tmp"
        try:
            if not self.made:
                self.folder.mkdir(parents=True, exist_ok=True)
                self.made = True
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
        (self.folder / name).unlink(missing_ok=True)

    def exists(self, name: str) -> bool:
        return (self.folder / name).exists()

    def names(self) -> Iterator[str]:
        return (file.name for file in self.folder.glob(f"*{_SUFFIX}"))

    def tidy(self) -> None:
        for file in self.folder.glob("*.tmp"):
            file.unlink(missing_ok=True)

    def clear(self) -> None:
        self.tidy()
        for name in list(self.names()):
            self.delete(name)
        if self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()
        self.made = False


class _Remote:
    """Any fsspec file system; object stores make a file appear whole or not at all."""

    def __init__(self, files: Any, folder: str) -> None:
        self.files, self.folder = files, folder

    def _at(self, name: str) -> str:
        return f"{self.folder}/{name}"

    def write(self, name: str, data: bytes) -> None:
        try:
            self.files.makedirs(self.folder, exist_ok=True)
            self.files.pipe_file(self._at(name), data)
        except OSError as error:
            raise StorageError(f"cannot write the checkpoint {self._at(name)}: {error}") from error

    def read(self, name: str) -> bytes | None:
        try:
            data: bytes = self.files.cat_file(self._at(name))
        except FileNotFoundError:
            return None
        return data

    def delete(self, name: str) -> None:
        if self.exists(name):
            self.files.rm_file(self._at(name))

    def exists(self, name: str) -> bool:
        return bool(self.files.exists(self._at(name)))

    def names(self) -> Iterator[str]:
        if not self.files.exists(self.folder):
            return iter(())
        listed = self.files.ls(self.folder, detail=False)
        return (file.rsplit("/", 1)[-1] for file in listed if file.endswith(_SUFFIX))

    def tidy(self) -> None:
        """Nothing is left behind: there are no temporary names."""

    def clear(self) -> None:
        if self.files.exists(self.folder):
            self.files.rm(self.folder, recursive=True)


def _remote(url: str, study: str) -> _Remote:
    import fsspec

    try:
        files, folder = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise StorageError(f"cannot use {url!r} for checkpoints: {error}") from error
    return _Remote(files, f"{folder.rstrip('/')}/{quote(study, safe='')}")
