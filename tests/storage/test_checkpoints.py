from __future__ import annotations

import errno
import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import save

from mixtree.errors import CheckpointError, StorageError
from mixtree.storage.checkpoints import Checkpoints, path_text, text_path

WEIGHTS = {
    "weight": np.arange(6.0).reshape(2, 3),
    "drawn": np.array([1, 2, 3]),
    "on": np.array([True, False]),
}


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return one.keys() == two.keys() and all(
        one[name].dtype == two[name].dtype
        and one[name].shape == two[name].shape
        and one[name].tobytes() == two[name].tobytes()
        for name in one
    )


@pytest.fixture(params=["folder", "file://", "memory://"])
def models(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoints:
    places = {
        "folder": str(tmp_path / "models"),
        "file://": f"file://{tmp_path}/models",
        "memory://": f"memory://{tmp_path}/models",
    }
    return Checkpoints(places[request.param], "my study", "key")


# ------------------------------------------------------------------------------ what goes in comes out


names = st.text(min_size=1).filter(lambda text: text.isprintable() and text != "__metadata__")
paths = st.lists(st.integers(0, 10**6), max_size=60).map(tuple)
kinds = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "<i4", "|i1", "|u1", "<u8", "|b1"])
contents = kinds.flatmap(
    lambda kind: arrays_of.arrays(
        kind, arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
    )
)


@given(path=paths)
def test_a_path_is_its_text(path: tuple[int, ...]) -> None:
    assert text_path(path_text(path)) == path


@settings(max_examples=50)
@given(path=paths, model=st.dictionaries(names, contents))
def test_every_bit_comes_back(path: tuple[int, ...], model: dict[str, Any]) -> None:
    models = Checkpoints("memory://bits", "s")
    models.write(path, model)
    assert same(models.read(path), model)
    models.delete(path)


def test_models_are_kept_apart(models: Checkpoints) -> None:
    deep = tuple(range(100)) * 3
    everyone = [(), (0,), (0, 1), (1, 0), (10,), deep, (*deep, 1), (*deep, 2)]
    for number, path in enumerate(everyone):
        models.write(path, {"w": np.array([number])})
    assert models.count() == len(everyone)
    for number, path in enumerate(everyone):
        assert models.exists(path)
        assert models.read(path)["w"].tolist() == [number]
    models.delete((0, 1))
    models.delete((0, 1))  # nothing happens
    assert not models.exists((0, 1))
    models.keep_only([(), deep, (5, 5)])
    assert models.count() == 2
    assert models.read(deep)["w"].tolist() == [5]
    models.clear()
    models.clear()
    assert models.count() == 0


def test_arrays_that_are_not_solid_are_written_right(models: Checkpoints) -> None:
    grid = np.arange(12.0).reshape(3, 4)
    models.write((), {"t": grid.T, "s": grid[::2, ::-1]})
    back = models.read(())
    assert np.array_equal(back["t"], grid.T)
    assert np.array_equal(back["s"], grid[::2, ::-1])


def test_numbers_of_the_other_byte_order_keep_their_values(models: Checkpoints) -> None:
    models.write((), {"w": np.arange(4, dtype=">f8")})
    assert models.read(())["w"].tolist() == [0, 1, 2, 3]


def test_overwriting_replaces(models: Checkpoints) -> None:
    models.write((1,), {"w": np.zeros(1000)})
    models.write((1,), WEIGHTS)
    assert same(models.read((1,)), WEIGHTS)


def test_worker_processes_see_the_same_models(tmp_path: Path) -> None:
    models = Checkpoints(str(tmp_path), "study", "key")
    models.write((), WEIGHTS)
    assert same(pickle.loads(pickle.dumps(models)).read(()), WEIGHTS)


def test_copies_have_their_own_place(models: Checkpoints) -> None:
    models.write((), WEIGHTS)
    other = Checkpoints(models.url, "other", "key")
    models.copy_to(other)
    models.clear()
    assert same(other.read(()), WEIGHTS)


@pytest.mark.parametrize(
    "name", ["..", ".", "...", "a/b", "../up", "a:b*?", "ünï", "%2E", "x" * 100, "名" * 29, "/" * 100]
)
def test_any_study_name_is_a_folder_of_its_own(name: str, tmp_path: Path) -> None:
    precious = tmp_path / "root.safetensors"
    precious.write_bytes(b"of somebody else")
    models = Checkpoints(str(tmp_path / "models"), name)
    models.write((), WEIGHTS)
    (folder,) = (tmp_path / "models").iterdir()
    assert folder.is_dir()
    assert [file.name for file in folder.iterdir()] == ["root.safetensors"]
    models.clear()
    assert precious.read_bytes() == b"of somebody else"
    assert not folder.exists()


def test_a_users_file_in_the_folder_stays(tmp_path: Path) -> None:
    models = Checkpoints(str(tmp_path), "s")
    models.write((), WEIGHTS)
    (tmp_path / "s" / "notes.txt").write_text("mine")
    models.clear()
    assert [file.name for file in (tmp_path / "s").iterdir()] == ["notes.txt"]


def test_safetensors_files_of_the_user_stay_too(tmp_path: Path) -> None:
    models = Checkpoints(str(tmp_path), "s")
    models.write((0, 1), WEIGHTS)
    models.write(tuple(range(150)), WEIGHTS)  # its name is cut short
    for name in ("best.safetensors", "notes.tmp", "0-1.safetensors.bak.tmp"):
        (tmp_path / "s" / name).write_bytes(b"mine")
    (tmp_path / "s" / "0-1.safetensors.0123456789abcdef.tmp").write_bytes(b"half")
    assert models.count() == 2
    models.keep_only([])
    models.clear()
    assert {file.name for file in (tmp_path / "s").iterdir()} == {
        "best.safetensors", "notes.tmp", "0-1.safetensors.bak.tmp"
    }  # fmt: skip


def test_a_users_file_behind_a_url_stays(tmp_path: Path) -> None:
    import fsspec

    files = fsspec.filesystem("memory")
    models = Checkpoints("memory://of-a-user", "s")
    models.write((), WEIGHTS)
    files.pipe_file("/of-a-user/s/notes.txt", b"mine")
    models.clear()
    assert models.count() == 0 and files.cat_file("/of-a-user/s/notes.txt") == b"mine"


def test_models_that_mixtree_did_not_write_are_not_replaced(tmp_path: Path) -> None:
    models = Checkpoints(str(tmp_path), "s")
    models.check_own()
    models.write((), WEIGHTS)
    (tmp_path / "s" / "1.safetensors").write_bytes(b"cut short")  # by a fault: it is trained again
    models.check_own()
    (tmp_path / "s" / "0.safetensors").write_bytes(save(WEIGHTS))
    with pytest.raises(StorageError, match=r"holds 0.safetensors, which mixtree did not write"):
        models.check_own()


# ---------------------------------------------------------------------------------------------- damage


def file_of(models: Checkpoints, name: str = "root.safetensors") -> Path:
    return Path(models.url) / models.study / name


@pytest.fixture
def local(tmp_path: Path) -> Checkpoints:
    models = Checkpoints(str(tmp_path), "s", "key")
    models.write((), WEIGHTS)
    return models


def test_a_model_that_is_missing(models: Checkpoints) -> None:
    with pytest.raises(CheckpointError, match=r"0-1.safetensors of study 'my study' is missing in .*models"):
        models.read((0, 1))


def test_a_file_cut_short_anywhere_is_damaged(local: Checkpoints) -> None:
    file = file_of(local)
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="damaged"):
            local.read(())
    file.write_bytes(whole + b"x")
    with pytest.raises(CheckpointError, match="damaged"):
        local.read(())


def test_any_changed_byte_is_noticed(local: Checkpoints) -> None:
    file = file_of(local)
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    for at in range(len(whole)):
        change = (1, 15, 128, 255)[at % 4]
        file.write_bytes(whole[:at] + bytes([whole[at] ^ change]) + whole[at + 1 :])
        try:
            back = local.read(())
        except CheckpointError as error:
            assert "damaged" in str(error)
        else:  # a blank that pads the header, or one spelling of the header for another
            assert 8 <= at < 8 + length
            assert same(back, WEIGHTS)


def test_another_type_or_shape_of_the_same_bytes_is_noticed(local: Checkpoints) -> None:
    file = file_of(local)
    whole = file.read_bytes()
    for before, after in ((b'"F64"', b'"I64"'), (b"[2,3]", b"[3,2]"), (b'"drawn"', b'"drown"')):
        assert before in whole
        file.write_bytes(whole.replace(before, after))
        with pytest.raises(CheckpointError, match="checksum"):
            local.read(())


def test_nothing_is_unpickled(local: Checkpoints, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "owned",))

    file_of(local).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(CheckpointError, match="damaged"):
        local.read(())
    assert not (tmp_path / "owned").exists()


def test_a_model_of_another_node_is_not_taken_for_this_one(local: Checkpoints) -> None:
    file_of(local).rename(file_of(local, "0.safetensors"))
    with pytest.raises(CheckpointError, match="belongs to another node or study"):
        local.read((0,))


def test_a_model_of_another_study_of_the_same_name_is_not_taken_for_this_one(local: Checkpoints) -> None:
    with pytest.raises(CheckpointError, match="belongs to another node or study"):
        Checkpoints(local.url, local.study, "another key").read(())


def test_a_folder_in_place_of_a_file(local: Checkpoints) -> None:
    file_of(local).unlink()
    file_of(local).mkdir()
    with pytest.raises(CheckpointError, match="cannot read"):
        local.read(())


def test_the_checksum_is_of_all_arrays(local: Checkpoints) -> None:
    # What the file says of itself: readable by any tool.
    text = file_of(local).read_bytes()
    total = 0
    for name in sorted(WEIGHTS):
        array = WEIGHTS[name]
        total = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), total)
        total = zlib.crc32(array.tobytes(), total)
    assert f'\\"crc\\": {total}'.encode() in text


# ------------------------------------------------------------------------------ writes that do not end


def test_a_write_that_is_cut_off_leaves_the_old_model(local: Checkpoints, monkeypatch: Any) -> None:
    def die(self: Path, target: Path) -> None:
        raise KeyboardInterrupt  # as good as a kill between write and rename

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", die)
        with pytest.raises(KeyboardInterrupt):
            local.write((), {"w": np.zeros(5)})
    assert same(local.read(()), WEIGHTS)
    assert len(list(file_of(local).parent.iterdir())) == 2
    assert local.count() == 1
    local.tidy()
    assert len(list(file_of(local).parent.iterdir())) == 1
    assert same(local.read(()), WEIGHTS)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_no_more(local: Checkpoints, monkeypatch: Any, code: int) -> None:
    def refuse(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(code, "no more")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(StorageError, match=r"cannot write the checkpoint .*1.safetensors: no more"):
        local.write((1,), WEIGHTS)
    assert [file.name for file in file_of(local).parent.iterdir()] == ["root.safetensors"]


def test_a_model_that_cannot_be_deleted(local: Checkpoints, monkeypatch: Any) -> None:
    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "not yours")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StorageError, match="cannot delete the checkpoint .*: not yours"):
        local.delete(())


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="cannot write the checkpoint"):
        Checkpoints(str(tmp_path / "file"), "s").write((), WEIGHTS)


def test_a_folder_deleted_in_between_is_made_again(local: Checkpoints) -> None:
    local.clear()
    assert not file_of(local).parent.exists()
    local.write((), WEIGHTS)
    assert same(local.read(()), WEIGHTS)


# --------------------------------------------------------------------------------- what cannot be kept


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"names": np.array(["x", "y"])}, "must hold numbers or booleans; not so: names"),
        ({"things": np.array([None, {}])}, "must hold numbers or booleans; not so: things"),
        ({"__metadata__": np.ones(2)}, "cannot be called '__metadata__'"),
        ({"c": np.ones(2, dtype=complex)}, "must hold numbers or booleans; not so: c"),
        ({"long": np.ones(2, dtype=np.longdouble)}, "must hold numbers or booleans; not so: long"),
    ],
)
def test_arrays_that_no_file_can_hold(models: Checkpoints, model: dict[str, Any], reason: str) -> None:
    with pytest.raises(StorageError, match=reason):
        models.write((), model)
    assert not models.exists(())


def test_a_place_that_nobody_knows() -> None:
    with pytest.raises(StorageError, match="cannot use 'nowhere://x' for checkpoints"):
        Checkpoints("nowhere://x", "s")


def test_a_bucket_that_cannot_be_reached_is_told_without_its_keys(monkeypatch: Any) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    where = "s3://AKIDKEY:topsecret@bucket/models?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    models = Checkpoints(where, "s")
    for act in (models.mark, models.count, models.clear, lambda: models.exists(())):
        with pytest.raises(StorageError, match=r"s3://AKIDKEY@bucket/models") as caught:
            act()
        assert "topsecret" not in str(caught.value)


def test_a_mark_is_no_model(models: Checkpoints) -> None:
    mark = models.mark()
    assert models.sees(mark)
    assert models.count() == 0
    models.unmark(mark)
    assert not models.sees(mark)
