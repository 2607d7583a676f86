"""Records as rows of the tables, and back, bit for bit."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from mixtree.storage.base import StudyRecord
from mixtree.storage.checkpoints import path_text, text_path
from mixtree.tree import Node, Segment

OUTCOME_COLUMNS = ("status", "value", "standard_error", "seconds")


def study_row(record: StudyRecord) -> dict[str, Any]:
    row = asdict(record)
    row["config"] = json.dumps(record.config)
    row["recipe"] = None if record.recipe is None else json.dumps(record.recipe)
    row["best"] = None if record.best is None else path_text(record.best)
    row["sizes"], row["notes"] = json.dumps(record.sizes), json.dumps(record.notes)
    row["seed"], row["init_seed"] = str(record.seed), str(record.init_seed)
    return row


def study_record(row: Any) -> StudyRecord:
    fields = {key: value for key, value in row.items() if key != "id"}
    fields["config"] = json.loads(row["config"])
    fields["recipe"] = None if row["recipe"] is None else json.loads(row["recipe"])
    fields["best"] = None if row["best"] is None else text_path(row["best"])
    # Studies of an older version have neither.
    fields["sizes"] = json.loads(row["sizes"] or "{}")
    fields["notes"] = tuple(json.loads(row["notes"] or "[]"))
    fields["seed"], fields["init_seed"] = int(row["seed"]), int(row["init_seed"])
    return StudyRecord(**fields)


def node_row(study: int, node: Node, position: int) -> dict[str, Any]:
    """All rows have the same columns, or they could not go in together."""
    return {
        "study_id": study,
        "path": path_text(node.path),
        "height": len(node.path),
        "round": node.round,
        "position": position,
        "phase": node.phase,
        "mixture": json.dumps(node.mixture.tolist()),
        "steps": int(node.steps),
        "lr_scale": node.lr_scale,
        "segment": segment_text(node.segment),
        **outcome_row(node),
    }


def segment_text(segment: Segment | None) -> str | None:
    """Which part of a stage a trial is, as text: "0/0 150 1000"."""
    return None if segment is None else f"{path_text(segment.stream)} {segment.before} {segment.total}"


def text_segment(text: str | None) -> Segment | None:
    """The segment of its text."""
    if text is None:
        return None
    stream, before, total = text.split(" ")
    return Segment(text_path(stream), int(before), int(total))


def outcome_row(node: Node) -> dict[str, Any]:
    """The columns that are filled in when a node is done."""
    if node.status == "pending":
        return dict.fromkeys(OUTCOME_COLUMNS) | {"status": "pending"}
    return {
        "status": node.status,
        "value": node.value,
        "standard_error": None if np.isnan(node.standard_error) else node.standard_error,
        "seconds": node.seconds,
    }


def stored_node(row: Any) -> Node:
    """The node of a row, with its predictions if they were stored."""
    node = Node(
        text_path(row["path"]),
        np.array(json.loads(row["mixture"]), dtype=np.float64),
        row["steps"],
        lr_scale=row["lr_scale"],
        phase=row["phase"],
        segment=text_segment(row["segment"]),
        status=row["status"],
        round=row["round"],
    )
    if node.status == "pending":
        return node
    seen = None
    if row["data"] is not None:
        seen = np.frombuffer(row["data"], dtype=row["dtype"]).reshape(json.loads(row["shape"]))
    error = float("nan") if row["standard_error"] is None else row["standard_error"]
    return replace(node, value=row["value"], standard_error=error, seconds=row["seconds"], predictions=seen)


def predictions_row(node: Node) -> dict[str, Any]:
    array = np.ascontiguousarray(node.predictions)
    return {"dtype": array.dtype.str, "shape": json.dumps(array.shape), "data": array.tobytes()}
