"""Every storage keeps the same promises."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from mixtree.storage.base import Storage
from mixtree.storage.memory import MemoryStorage
from mixtree.storage.sql import SqlStorage
from mixtree.testing import check_storage


def test_memory() -> None:
    assert isinstance(MemoryStorage(), Storage)
    check_storage(MemoryStorage)


def test_sqlite_file(tmp_path: Path) -> None:
    numbers = count()

    def make() -> SqlStorage:
        return SqlStorage(tmp_path / f"{next(numbers)}.db")

    check_storage(make)


@pytest.mark.parametrize("url", ["sqlite://", ":memory:"])
def test_sqlite_in_memory(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check_storage(lambda: SqlStorage(url))
    assert not list(tmp_path.iterdir())


def test_checkpoints_behind_a_url(tmp_path: Path) -> None:
    numbers = count()

    def make() -> SqlStorage:
        number = next(numbers)
        return SqlStorage(tmp_path / f"{number}.db", checkpoints=f"memory://conformance/{number}")

    check_storage(make)


def test_postgresql(new_database: Callable[[], str], tmp_path: Path) -> None:
    numbers = count()
    check_storage(lambda: SqlStorage(new_database(), checkpoints=tmp_path / str(next(numbers))))


# --------------------------------------------------------------------------------- it can also fail


class Forgetful(MemoryStorage):
    """Loses one promise."""

    def __init__(self, broken: str) -> None:
        super().__init__()
        self.broken = broken

    def __getattribute__(self, name: str) -> object:
        if name == object.__getattribute__(self, "__dict__").get("broken"):
            return lambda *_, **__: []
        return super().__getattribute__(name)


@pytest.mark.parametrize("broken", ["update", "finish", "add_event", "copy", "delete", "begin_round"])
def test_a_storage_that_does_nothing_is_caught(broken: str) -> None:
    with pytest.raises((AssertionError, KeyError)):
        check_storage(lambda: Forgetful(broken))


class Open(MemoryStorage):
    def lock(self, name: str):  # type: ignore[no-untyped-def]
        from contextlib import nullcontext

        return nullcontext()


def test_a_storage_without_locks_is_caught() -> None:
    with pytest.raises(AssertionError, match="two can hold one study"):
        check_storage(Open)
