"""Which files a command may write to: none that belongs to a study or to a model."""

from __future__ import annotations

import re
from pathlib import Path

from mixtree.errors import InputError


def check_output(file: Path) -> None:
    """An error where a file would replace a study, or a part of a model."""
    from mixtree.fitting.model_folder import FILES, has_model

    place = file.resolve()
    studies = [place.with_name(re.sub(r"(-wal|-shm|-journal|\.\d+\.lock)$", "", place.name))]
    models = [each for each in place.parents if each.name.endswith(".checkpoints")]
    studies += [each.with_name(each.name.removesuffix(".checkpoints")) for each in models]
    if any(map(_is_database, studies)):
        what = "it is a study, or belongs to one"
    elif any(place == each / name and has_model(each) for each in place.parents[:2] for name in FILES):
        what = "it belongs to a model"
    elif place.suffix == ".safetensors" and place.exists():
        what = "it holds a model's weights"
    else:
        return
    raise InputError(f"cannot write {file}: {what}; name another file (-o)")


def _is_database(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(16) == b"SQLite format 3\0"
    except OSError:
        return False
