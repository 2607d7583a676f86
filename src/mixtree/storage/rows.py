"""Records as rows of the tables, and back, bit for bit."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from mixtree.search import Segment, Trial
from mixtree.storage.base import NodeRecord, Outcome, StudyRecord
from mixtree.storage.checkpoints import path_text, text_path
from mixtree.trainer import Evaluation

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


def node_row(study: int, record: NodeRecord) -> dict[str, Any]:
    trial, outcome = record.trial, record.outcome
    row = {
        "study_id": study,
        "path": path_text(trial.path),
        "height": len(trial.path),
        "round": record.round,
        "position": record.position,
        "phase": trial.phase,
        "mixture": json.dumps(trial.mixture.tolist()),
        "steps": int(trial.steps),
        "lr_scale": trial.lr_scale,
        "segment": segment_text(trial.segment),
    }
    # All rows have the same columns, or they could not go in together.
    pending = dict.fromkeys(OUTCOME_COLUMNS) | {"status": "pending"}
    return row | (pending if outcome is None else outcome_row(outcome))


def segment_text(segment: Segment | None) -> str | None:
    """Which part of a stage a trial is, as text: "0/0 150 1000"."""
    return None if segment is None else f"{path_text(segment.stream)} {segment.before} {segment.total}"


def text_segment(text: str | None) -> Segment | None:
    """The segment of its text."""
    if text is None:
        return None
    stream, before, total = text.split(" ")
    return Segment(text_path(stream), int(before), int(total))


def outcome_row(outcome: Outcome) -> dict[str, Any]:
    """The columns that are filled in when a node is done."""
    error = outcome.evaluation.standard_error
    return {
        "status": outcome.status,
        "value": outcome.evaluation.value,
        "standard_error": None if np.isnan(error) else error,
        "seconds": outcome.seconds,
    }


def node_record(row: Any) -> NodeRecord:
    path = text_path(row["path"])
    mixture = np.array(json.loads(row["mixture"]), dtype=np.float64)
    segment = text_segment(row["segment"])
    trial = Trial(path, mixture, row["steps"], row["lr_scale"], row["phase"], segment)
    outcome = None
    if row["status"] != "pending":
        seen = None
        if row["data"] is not None:
            seen = np.frombuffer(row["data"], dtype=row["dtype"]).reshape(json.loads(row["shape"]))
        error = float("nan") if row["standard_error"] is None else row["standard_error"]
        outcome = Outcome(path, Evaluation(row["value"], error, seen), row["status"], row["seconds"])
    return NodeRecord(trial, row["round"], row["position"], outcome)


def predictions_row(outcome: Outcome) -> dict[str, Any]:
    array = np.ascontiguousarray(outcome.evaluation.predictions)
    return {"dtype": array.dtype.str, "shape": json.dumps(array.shape), "data": array.tobytes()}
