"""Files that are written whole: alone, several at once, and what other writers have left."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from mixtree.data import files
from mixtree.data.files import current, settle, unsettled, write_csv, write_file, write_files
from mixtree.errors import StorageError

posix = pytest.mark.skipif(os.name != "posix", reason="no such modes, links and locks")


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


@posix
def test_the_mode_is_as_the_user_wants_new_files(tmp_path):
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "one", b"1")
        write_files(tmp_path, {"two": b"2"})
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("one", "two")} == {0o640}


@posix
def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "file").write_text("old")
    (tmp_path / "link").symlink_to("far/file")
    write_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "far" / "file").read_text() == "new"


@posix
def test_a_device_is_written_to_and_not_replaced(tmp_path):
    write_file("/dev/null", b"nothing")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    reader, writer = os.pipe()
    write_file(f"/dev/fd/{writer}", "through a pipe")
    assert os.read(reader, 100) == b"through a pipe"
    os.close(reader)
    os.close(writer)


@posix
def test_left_overs_go_but_not_the_file_of_a_writer_at_work(tmp_path):
    (tmp_path / ".mixtree-0123456789abcdef.tmp").write_text("of a writer that was killed")
    (tmp_path / ".mixtree-fedcba9876543210.tmp").mkdir()
    (tmp_path / ".mixtree-fedcba9876543210.tmp" / "part").write_text("of another")
    (tmp_path / ".mixtree-notes.tmp").write_text("mine")
    assert unsettled(tmp_path)
    with files._scratch(tmp_path) as at_work:
        write_file(tmp_path / "file", b"1")
        assert names(tmp_path) == {"file", ".mixtree-notes.tmp", at_work.name}
    assert names(tmp_path) == {"file", ".mixtree-notes.tmp"}
    assert not unsettled(tmp_path)


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path, monkeypatch):
    write_file(tmp_path / "file", b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(StorageError, match="cannot write .*file: No space left on device"):
        write_file(tmp_path / "file", b"new")
    with pytest.raises(StorageError, match="No space left"):
        write_files(tmp_path, {"file": b"new", "more": b"new"})
    assert names(tmp_path) == {"file"}
    assert (tmp_path / "file").read_bytes() == b"old"


def test_several_files_are_replaced_and_removed_at_once(tmp_path, monkeypatch):
    write_files(tmp_path, {"a": b"1", "sub/b": b"1", "c": b"1"})
    (tmp_path / "sub" / "mine").write_text("mine")
    changes = {"a": b"2", "sub/b": b"2", "c": None}
    with monkeypatch.context() as patch:  # killed when all is decided and nothing is in its place
        patch.setattr(files, "settle", lambda *_: None)
        write_files(tmp_path, changes)
    assert (tmp_path / "a").read_bytes() == b"1"
    assert current(tmp_path, "a").read_bytes() == current(tmp_path, "sub/b").read_bytes() == b"2"
    for _ in range(2):
        settle(tmp_path, changes)
        assert names(tmp_path) == {"a", "sub"}
        assert (tmp_path / "a").read_bytes() == (tmp_path / "sub" / "b").read_bytes() == b"2"
    assert (tmp_path / "sub" / "mine").exists()


@posix
def test_files_on_their_way_do_not_follow_links(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "b").write_text("of somebody else")
    (tmp_path / "model" / ".mixtree-new").mkdir(parents=True)
    (tmp_path / "model" / ".mixtree-new" / "b").write_text("evil")
    (tmp_path / "model" / "sub").symlink_to(tmp_path / "far")
    with pytest.raises(OSError, match="is a link"):
        settle(tmp_path / "model", ["sub/b"])
    assert (tmp_path / "far" / "b").read_text() == "of somebody else"


def test_tables_have_all_columns(tmp_path):
    write_csv(tmp_path / "t.csv", [{"a": 1}, {"b": "x,y", "a": None}])
    assert (tmp_path / "t.csv").read_bytes() == b'a,b\r\n1,\r\n,"x,y"\r\n'
