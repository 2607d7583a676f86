"""Rows of the tables as records: altered ones are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mixtree.errors import StorageError
from mixtree.storage.base import EventRecord, StudyRecord
from mixtree.storage.rows import (
    event_record,
    node_row,
    predictions_row,
    stored_node,
    study_record,
    study_row,
)
from mixtree.tree import Node, Segment

STUDY = StudyRecord(
    "one", 2**70, 3, 100, {"sources": ["a"], "charged": {"x": 3}, "search": {}}, best=(0, 1), notes=("n",)
)
SEEN = np.array([[0.5, 0.25]], dtype=np.float32)
NODE = Node(
    (0, 1),
    np.array([0.25, 0.75]),
    10,
    float("inf"),
    0.1,
    lr_scale=0.5,
    phase="commit",
    segment=Segment((0,), 5, 20),
    seconds=0.5,
    round=2,
    predictions=SEEN,
)


def node() -> dict[str, Any]:
    return {**node_row(1, NODE, 3), **predictions_row(NODE)}


def test_records_come_back_as_they_were() -> None:
    assert study_row(study_record({"id": 1, **study_row(STUDY)})) == study_row(STUDY)
    again = stored_node(node())
    assert node_row(1, again, 3) == node_row(1, NODE, 3)
    np.testing.assert_array_equal(again.predictions, SEEN)
    assert event_record(("now", "kind", "text")) == EventRecord("now", "kind", "text")


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("budget", "many"),
        ("budget", 1.5),
        ("seed", "x"),
        ("seed", "9" * 5000),
        ("seed", None),
        ("status", "odd"),
        ("best", "0/x"),
        ("config", "[]"),
        ("config", "{"),
        ("config", "[" * 100_000),
        ("config", '{"sources": [1]}'),
        ("config", '{"search": 3}'),
        ("recipe", "3"),
        ("sizes", '{"a": "many"}'),
        ("notes", '"text"'),
        ("updated", None),
        ("key", b"\xff"),
    ],
)
def test_an_altered_study_is_refused(column: str, value: Any) -> None:
    with pytest.raises(StorageError, match="the row of study 'one' was altered or damaged"):
        study_record({**study_row(STUDY), column: value})


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("path", "0//1"),
        ("path", 3),
        ("path", "9" * 40),
        ("mixture", "[NaN]"),
        ("mixture", '["a"]'),
        ("mixture", "[5, -4]"),
        ("mixture", "3"),
        ("steps", 0),
        ("steps", "ten"),
        ("lr_scale", None),
        ("segment", "0/1 5"),
        ("status", None),
        ("value", None),
        ("value", "low"),
        ("seconds", "x"),
        ("dtype", "O"),
        ("dtype", "<U8"),
        ("shape", "[2, 2]"),
        ("shape", "[-1]"),
        ("data", b"\x00"),
        ("data", "text"),
    ],
)
def test_an_altered_node_is_refused(column: str, value: Any) -> None:
    with pytest.raises(StorageError, match="the row of node .* was altered or damaged"):
        stored_node({**node(), column: value})


def test_an_altered_event_is_refused() -> None:
    with pytest.raises(StorageError, match="the row of an event was altered or damaged"):
        event_record(("now", None, b"x"))
