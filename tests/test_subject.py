"""The commit hook refuses long subjects."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Add a metric", ""),
        ("x" * 72 + "\n\n" + "a body may be as wide as it likes " * 9, ""),
        ("x" * 73, "73 characters, at most 72"),
        ("", "no subject"),
        ("# only a comment", "no subject"),
        ("Subject\nbody", "line after the subject empty"),
    ],
)
def test_subjects(message: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message, encoding="utf-8")
    hook = [sys.executable, Path(__file__).with_name("subject.py"), file]
    done = subprocess.run(hook, capture_output=True, text=True)
    assert (done.returncode == 0) == (not said)
    assert said in done.stderr
