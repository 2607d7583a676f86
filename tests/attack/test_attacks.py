"""A seeded sample of all attacks: no traceback, no death, and what is refused changes nothing on disk.

``make attack`` tries them all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the attacks fork")
SAMPLE = 130


@pytest.fixture(scope="module")
def outcomes() -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("run.py")), "--sample", str(SAMPLE)],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_no_attack_gets_through(outcomes: list[dict[str, Any]]) -> None:
    wrong = [each for each in outcomes if each["wrong"]]
    assert not wrong, "\n".join(f"{e['kind']}: {e['name']}: {e['wrong']}\n{e['said']}" for e in wrong)


def test_all_kinds_are_tried_and_some_attacks_are_none(outcomes: list[dict[str, Any]]) -> None:
    assert len(outcomes) >= SAMPLE - 10
    assert min(Counter(each["kind"] for each in outcomes).values()) >= 10
    assert Counter(each["ended"] for each in outcomes)["refused"] > SAMPLE / 2
    assert Counter(each["ended"] for each in outcomes)["works"] > SAMPLE / 10
