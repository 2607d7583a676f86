"""Records as rows of the tables, and back, bit for bit."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from math import inf
from typing import Any, get_args

import numpy as np

from mixtree.data.plain import ANY_TEXT, COUNT, Number, check, read
from mixtree.errors import StorageError
from mixtree.storage.base import LONGEST_NAME, EventRecord, Status, StudyRecord
from mixtree.storage.checkpoints import path_text, text_path
from mixtree.tree import Merge, Node, NodeStatus, Segment

OUTCOME_COLUMNS = ("status", "value", "standard_error", "seconds")


def study_row(record: StudyRecord) -> dict[str, Any]:
    row = asdict(record)
    row["config"] = json.dumps(record.config)
    row["recipe"] = None if record.recipe is None else json.dumps(record.recipe)
    row["best"] = None if record.best is None else path_text(record.best)
    row["sizes"], row["notes"] = json.dumps(record.sizes), json.dumps(record.notes)
    row["seed"], row["init_seed"] = str(record.seed), str(record.init_seed)
    return row


_PATH = re.compile(r"(\d{1,18}(/\d{1,18})*)?", re.ASCII)
_SEED = re.compile(r"\d{1,600}", re.ASCII)
_SEGMENT = re.compile(rf"{_PATH.pattern} \d{{1,18}} \d{{1,18}}", re.ASCII)
_DTYPE = re.compile("[<>|=][fiub](1|2|4|8|16)")
_ENDLESS = Number(-inf, inf, whole=False)
"""A number that may be infinite, as the value of a model that diverged."""
_STUDY = {
    "name": str,
    "status": set(get_args(Status)),
    "budget": COUNT,
    "seed": _SEED,
    "init_seed": _SEED,
    "engine": (None, str),
    "data": str,
    "rule": str,
    "best": (None, _PATH),
    "key": str,
    "models": (None, ANY_TEXT),
    "created": str,
    "updated": str,
}
_CONFIG = {"sources?": [str], "charged?": {str: COUNT}, "search?": {str: object}}
"""What is looked into; all of it must be the same when a study goes on."""
_NODE = {
    "path": _PATH,
    "round": COUNT,
    "position": COUNT,
    "phase": str,
    "steps": COUNT,
    "lr_scale": Number(0, whole=False),
    "segment": (None, _SEGMENT),
    "merged": (None, str),
    "status": set(get_args(NodeStatus)),
}
_OUTCOME = {
    "value": _ENDLESS,
    "standard_error": (None, _ENDLESS),
    "seconds": Number(0, whole=False),
    "dtype": (None, _DTYPE),
    "data": (None, bytes),
}
_MAYBE = (None, float)
_VERDICT = {
    "sentence": str,
    "score": {"value": _MAYBE, "low": _MAYBE, "high": _MAYBE, "rows": COUNT},
    "against": [{"name": str, "difference": _MAYBE, "low": _MAYBE, "high": _MAYBE, "p": _MAYBE}],
    "hull": {"p": _MAYBE, "inside": (None, bool)},
    "mixture": {str: {"weight": _MAYBE, "low": _MAYBE, "high": _MAYBE}},
    "queries": COUNT,
    "notes": [str],
    # Verdicts of earlier versions lack some of these.
    "reference_spent?": {str: COUNT},
    "warnings?": [str],
    "metric?": str,
    "higher_is_better?": bool,
    "of?": str,
    "optimistic?": (None, bool),
    "comparison?": str,
    "expectation?": str,
    "next_step?": str,
}


def study_record(row: Any) -> StudyRecord:
    """The study of a row; StorageError for one that was altered or damaged."""
    fields = {key: value for key, value in row.items() if key != "id"}
    try:
        check(fields, _STUDY)
        fields["config"] = read(row["config"], _CONFIG)
        fields["recipe"] = None if row["recipe"] is None else read(row["recipe"], {str: object})
        # Studies of an older version have neither.
        fields["sizes"] = read(row["sizes"] or "{}", {str: COUNT})
        fields["notes"] = tuple(read(row["notes"] or "[]", [str]))
    except ValueError as error:
        raise _damaged(f"row of study {str(row['name'])[:LONGEST_NAME]!r}", error) from error
    fields["best"] = None if row["best"] is None else text_path(row["best"])
    fields["seed"], fields["init_seed"] = int(row["seed"]), int(row["init_seed"])
    return StudyRecord(**fields)


def stored_verdict(study: str, text: str) -> dict[str, Any]:
    """The verdict of a row; StorageError for one that was altered or damaged."""
    try:
        found: dict[str, Any] = read(text, _VERDICT)
    except ValueError as error:
        raise _damaged(f"verdict of study {study!r}", error) from error
    return found


def _damaged(what: str, error: ValueError) -> StorageError:
    return StorageError(
        f"the {what} was altered or damaged ({error}): take the study's file from a copy, or fit again into "
        "another one"
    )


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
        "merged": merge_text(node.merged),
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


_MERGED = {"paths": [_PATH], "weights": [Number(-1e-6, 1 + 1e-6, whole=False)]}


def merge_text(merged: Merge | None) -> str | None:
    """Which models a trial starts from, as text."""
    if merged is None:
        return None
    return json.dumps({"paths": [*map(path_text, merged.paths)], "weights": merged.weights})


def text_merge(text: str | None) -> Merge | None:
    """The models of their text."""
    if text is None:
        return None
    found = read(text, _MERGED)
    return Merge(tuple(map(text_path, found["paths"])), tuple(found["weights"]))


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
    """The node of a row, with its predictions if they were stored; StorageError for one that was altered."""
    try:
        check(row, _NODE)
        weights = read(row["mixture"], [Number(-1e-6, 1 + 1e-6, whole=False)])
        node = Node(
            text_path(row["path"]),
            np.array(weights, dtype=np.float64),
            row["steps"],
            lr_scale=row["lr_scale"],
            phase=row["phase"],
            segment=text_segment(row["segment"]),
            merged=text_merge(row["merged"]),
            status=row["status"],
            round=row["round"],
        )
        if not node.steps and node.merged is None:
            raise ValueError("steps must be at least 1 where no models were merged")
        if node.status == "pending":
            return node
        check(row, _OUTCOME)
        seen = None
        if row["data"] is not None:
            shape = read(row["shape"], [COUNT])
            seen = np.frombuffer(row["data"], dtype=row["dtype"]).reshape(shape)
    except ValueError as error:
        raise _damaged(f"row of node {str(row['path'])[:LONGEST_NAME]!r}", error) from error
    node.value, node.seconds, node.predictions = row["value"], row["seconds"], seen  # type: ignore[misc]
    if row["standard_error"] is not None:
        node.standard_error = row["standard_error"]  # type: ignore[misc]
    return node


def event_record(row: Any) -> EventRecord:
    """The event of a row; StorageError for one that was altered or damaged."""
    try:
        check(tuple(row), [str])
    except ValueError as error:
        raise _damaged("row of an event", error) from error
    return EventRecord(*row)


def predictions_row(node: Node) -> dict[str, Any]:
    array = np.ascontiguousarray(node.predictions)
    return {"dtype": array.dtype.str, "shape": json.dumps(array.shape), "data": array.tobytes()}
