"""The model folder: weights, preprocessing, metadata and a card; it predicts without the training data."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, load_file, save

from mixtree.data.files import current, settle, write_files
from mixtree.data.labelscale import LabelScale
from mixtree.data.plain import ANY_TEXT, AT_LEAST_ONE, UTF8_TEXT, read
from mixtree.data.preprocessing import FILE, Preprocessor
from mixtree.data.sources import TARGET, Sources
from mixtree.errors import InputError, MissingExtraError, StorageError
from mixtree.places import in_markdown, said
from mixtree.trainers.registry import ModelOptions, make_reader
from mixtree.verdict.sentences import difference_heading, table_row, three_lines

FORMAT = 1
_ABOUT = {
    "format": AT_LEAST_ONE,
    "model": {
        "name": str,
        "features": AT_LEAST_ONE,
        "lr": (None, float),
        "batch_size": AT_LEAST_ONE,
    },
    "sources": [str],
    "classes": (None, [UTF8_TEXT], [int], [float], [bool]),
    "digests": {str: str},
    "label?": UTF8_TEXT,
    "label_scale?": [float],
    "study?": (None, str),
    "storage?": (None, ANY_TEXT),
    "data?": str,
    "metric?": str,
    "val_score?": (None, float),
    "decided?": [str],
    "members?": [{"name": str, "weight": float, "score": (None, float), "rows_read": int}],
    "strongest?": str,
    "trees?": int,
    "validated?": ANY_TEXT,
}
"""What is read back of a model's metadata; the rest is for people."""
WEIGHTS, ABOUT, CARD, PREPROCESSING = "weights.safetensors", "model.json", "MODEL_CARD.md", "preprocessing"
VERDICT = "verdict.json"
_FEATURES = f"{PREPROCESSING}/{FILE}"
FILES = (_FEATURES, WEIGHTS, CARD, VERDICT, ABOUT)
"""All files of a model."""


@dataclass(frozen=True, eq=False, slots=True)
class SavedModel:
    """A model folder in memory: predicts tables like those it was trained on."""

    about: dict[str, Any]
    preprocessor: Preprocessor
    trainer: Any
    state: Any

    @property
    def classes(self) -> list[Any] | None:
        """The labels in the order of the probabilities; None for a regression."""
        found: list[Any] | None = self.about["classes"]
        return found

    def scores(self, frame: Any, *, where: str = "the table") -> NDArray[Any]:
        """Class probabilities (n, classes), or predictions (n,) of a regression."""
        features = self.preprocessor.transform(frame, where=where)
        scores: NDArray[Any] = self.trainer.predict(self.state, features)
        return LabelScale(*self.about.get("label_scale", (0.0, 1.0))).back(scores)

    def predict(self, frame: Any) -> NDArray[Any]:
        """Labels as they were in the training table, or predictions of a regression."""
        scores = self.scores(frame)
        return scores if self.classes is None else np.asarray(self.classes)[scores.argmax(axis=1)]


def write_model(
    folder: FilePath,
    *,
    arrays: Mapping[str, NDArray[Any]],
    preprocessor: Preprocessor,
    about: Mapping[str, Any],
) -> None:
    """Write a model folder: all of it at once; other files there stay."""
    check_own(folder)
    about = {"format": FORMAT, **about, "versions": versions()}
    files: dict[str, bytes | None] = {
        WEIGHTS: save({name: np.ascontiguousarray(array) for name, array in arrays.items()}),
        _FEATURES: preprocessor.as_text().encode(),
        CARD: model_card(about).encode(),
        VERDICT: _json(about["verdict"]) if about["verdict"] else None,  # there may be one of another model
    }
    # The one who reads weights or features with this file sees that they belong to it.
    digests = {name: _digest(data) for name, data in files.items() if data is not None}
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    write_files(folder, {**files, ABOUT: _json({**about, "digests": digests})})


def check_own(folder: FilePath) -> None:
    """An error where a model's files would replace others than those of an earlier model."""
    try:
        digests = read_about(folder)["digests"]
    except InputError:  # no model of ours
        names = (ABOUT, WEIGHTS, CARD, VERDICT, PREPROCESSING)
        others = [name for name in names if os.path.lexists(folder / name)]
    else:
        names = (WEIGHTS, CARD, VERDICT, PREPROCESSING, _FEATURES)
        others = [name for name in names if not _is_own(folder / name, digests.get(name))]
    if others:
        raise InputError(
            f"{folder} holds {', '.join(others)}, which mixtree did not write, or which was changed since: "
            "choose another --out, or move it away"
        )


def has_model(folder: FilePath) -> bool:
    """Whether there is a model, after what a killed writer has left there was put in order."""
    _settle(folder)
    return current(folder, ABOUT).is_file()


def load_model(folder: str | FilePath) -> SavedModel:
    """Read a model folder back; nothing in it is executed or unpickled.

    Parameters
    ----------
    folder
        What ``mixtree fit --out`` wrote.

    Returns
    -------
    SavedModel
        It predicts, and knows mixture, metric and verdict.

    Examples
    --------
    >>> load_model("nowhere")
    Traceback (most recent call last):
        ...
    mixtree.errors.InputError: nowhere is no model folder: it has no model.json; make one with mixtree fit
    """
    if not isinstance(folder, str | FilePath):
        raise InputError(f"a model folder is given by its name; got {folder!r}")
    folder = FilePath(folder)
    about = read_about(folder)
    try:
        arrays, preprocessor = read_weights(folder, about), read_preprocessor(folder, about)
    except InputError:
        if read_about(folder) != about:  # another process has replaced it meanwhile
            return load_model(folder)
        raise
    if lost := [name for name, array in arrays.items() if array.dtype.kind == "f" and np.isnan(array).any()]:
        raise InputError(
            f"{folder / WEIGHTS} holds NaN in {', '.join(map(repr, lost))} and can predict nothing: "
            "take the folder from a copy, or fit again"
        )
    model = about["model"]
    try:
        if model["features"] != len(preprocessor.feature_names):
            raise ValueError(f"{model['features']} features of {len(preprocessor.feature_names)} columns")
        sources = Sources.blank(
            about["sources"],
            shape=(model["features"],),
            classes=len(about["classes"] or ()),
            sparse=preprocessor.sparse,
        )
        options = ModelOptions(lr=model["lr"], batch_size=model["batch_size"])
        trainer = make_reader(model["name"], sources, options)
        state = trainer.load(arrays)
    except MissingExtraError:
        raise
    except Exception as error:  # of whatever kind the model's library raises
        raise InputError(
            f"{folder} is damaged: {ABOUT} and its other files do not fit each other ({error}); take the "
            "folder from a copy, or fit again"
        ) from error
    return SavedModel(about, preprocessor, trainer, state)


def read_about(folder: FilePath) -> dict[str, Any]:
    """The metadata of a model folder."""
    _settle(folder)
    try:
        text = current(folder, ABOUT).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        how = "make one with mixtree fit"
        if (folder / "study.db").exists():
            how = f"its study has not finished: go on with it (mixtree resume {folder})"
        raise InputError(f"{folder} is no model folder: it has no {ABOUT}; {how}") from error
    except (ValueError, OSError) as error:
        raise InputError(f"{folder / ABOUT} cannot be read: {error}") from error
    try:
        if read(text, {"format": int})["format"] > FORMAT:
            raise InputError(f"{folder} was written by a newer mixtree: upgrade")
        about: dict[str, Any] = read(text, _ABOUT)
        _, spread = about.get("label_scale", (0.0, 1.0))
        if spread <= 0 or len(set(about["classes"] or (0, 1))) < 2:
            raise ValueError("its labels cannot be told apart")
    except InputError:
        raise
    except ValueError as error:
        raise InputError(
            f"{folder / ABOUT} is damaged ({error}): take the folder from a copy, or fit again"
        ) from error
    return about


def read_weights(folder: FilePath, about: Mapping[str, Any] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of a model folder, whose metadata may have been read already, or of a safetensors file."""
    if folder.is_file():
        try:
            return dict(load_file(folder))
        except (SafetensorError, OSError) as error:
            raise InputError(f"{folder} is no safetensors file: {error}") from error
    try:
        arrays: dict[str, NDArray[Any]] = load(_own_bytes(folder, WEIGHTS, about or read_about(folder)))
    except SafetensorError as error:
        raise InputError(f"{folder / WEIGHTS} is damaged: {error}") from error
    return arrays


def read_preprocessor(folder: FilePath, about: Mapping[str, Any]) -> Preprocessor:
    """What makes features of the columns of tables, in the model folder of this metadata."""
    _own_bytes(folder, _FEATURES, about)
    preprocessor = Preprocessor.from_files(current(folder, _FEATURES).parent)
    _own_bytes(folder, _FEATURES, about)  # it was not replaced in between
    return preprocessor


def _own_bytes(folder: FilePath, name: str, about: Mapping[str, Any]) -> bytes:
    """The content of a file that belongs to the model's metadata."""
    try:
        data = current(folder, name).read_bytes()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise InputError(f"{folder} is no model folder: it has no {name}") from error
    except OSError as error:
        raise InputError(f"{folder / name} cannot be read: {error.strerror or error}") from error
    if _digest(data) != about["digests"].get(name):
        raise InputError(
            f"{folder / name} is damaged, or of another model: {ABOUT} has another digest; take the folder "
            "from a copy, or fit again"
        )
    return data


def _is_own(file: FilePath, digest: Any) -> bool:
    """Whether a file is not there, or as it was written."""
    if not os.path.lexists(file):
        return True
    if file.is_symlink() or file.name == PREPROCESSING:
        return not file.is_symlink() and file.is_dir()
    try:
        return bool(digest == _digest(file.read_bytes()))
    except OSError:
        return False


def _settle(folder: FilePath) -> None:
    """A folder that cannot be written to is read as it is."""
    if folder.is_dir():
        with suppress(OSError):
            settle(folder, FILES)


def _digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"


def _json(content: Any) -> bytes:
    # The name of a file that is no UTF-8 becomes an escape of JSON's.
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def versions() -> dict[str, str]:
    """What the model was made with."""
    packages = {name: version(name) for name in ("mixtree", "numpy", "scikit-learn")}
    return {**packages, "python": platform.python_version(), "machine": platform.machine()}


def model_card(about: Mapping[str, Any]) -> str:
    """A page about the model for people."""
    weights = "\n".join(
        f"| {in_markdown(name)} | {weight:.3f} |" for name, weight in about["mixture"].items()
    )
    task = "regression" if about["classes"] is None else "classification"
    lines = [
        f"# {in_markdown(about['label'])}: a model for a target unlike its sources",
        "",
        f"Predicts {_code(about['label'])} ({task}) with "
        f"the model family {_code(about['model']['name'])}, trained by {_code(about['policy'])} "
        f"(mixtree {about['versions']['mixtree']}).",
        *_answer(about),
        "",
        "## The mixture it was trained on",
        "| source | weight |",
        "| --- | --- |",
        weights,
        "",
        *(f"- {in_markdown(note)}" for note in about.get("decided", ())),
        "",
        *_members(about),
        "## How good it is",
        *(_verdict_lines(about) if about["verdict"] else _scores(about)),
    ]
    if about.get("certificate"):
        lines += ["", "## How much better another mixture could be", in_markdown(about["certificate"])]
    lines += [
        "",
        "## How it was made",
        *([] if about.get("members") else [_budget_line(about)]),
        *_epoch_line(about),
        f"- Training rows per source: {_counts(about['rows']['sources'])}.",
        f"- Seed {about['seed']}; data fingerprint `{about['data']}`.",
        "",
        "## Use",
        "```console",
        "mixtree predict THIS_FOLDER new.csv -o predictions.csv",
        "```",
        "",
    ]
    return "\n".join(lines)


def _members(about: Mapping[str, Any]) -> list[str]:
    """The members of a portfolio."""
    if not about.get("members"):
        return []
    rows = (
        f"| {each['name']} | {each['weight']:.2f} | {_number(each['score'])} | {each['rows_read']:,} |"
        for each in about["members"]
    )
    heading = f"| member | weight | {in_markdown(about['metric'])}, cross-fitted | rows read |"
    return ["## Its members", heading, "| --- " * 4 + "|", *rows, ""]


def _budget_line(about: Mapping[str, Any]) -> str:
    spent = ", ".join(f"{phase} {steps}" for phase, steps in about["spent"].items())
    return f"- Budget {about['budget']} steps of {about['model']['batch_size']} rows; spent: {spent}."


def _scores(about: Mapping[str, Any]) -> list[str]:
    """Without a verdict."""
    worth = "These rows chose the mixture, so this number is optimistic."
    if about["mixture"].get(TARGET) or about.get("trained_on_target"):
        worth = "The model was also trained on these rows, so this number says nothing."
    metric, rows = in_markdown(about["metric"]), about["rows"]
    lines = [f"- {metric} on {rows['validation']} validation rows: {_number(about['val_score'])}. {worth}"]
    if about["test_score"] is not None:
        lines.append(f"- {metric} on {rows['test']} test rows: {_number(about['test_score'])}.")
    return lines


def _answer(about: Mapping[str, Any]) -> list[str]:
    verdict = about["verdict"]
    if not verdict:
        return []
    warnings = (f"- **Warning:** {in_markdown(each)}" for each in verdict["warnings"])
    return ["", "## Verdict", *(f"- {in_markdown(line)}" for line in three_lines(verdict)), *warnings]


def _verdict_lines(about: Mapping[str, Any]) -> list[str]:
    """What stands behind the verdict."""
    verdict, lines = about["verdict"], list[str]()
    if verdict["against"]:
        lines += [
            f"| {in_markdown(about['metric'])} against | {difference_heading(verdict)} | 95 % interval | p |",
            "| --- " * 4 + "|",
            *(
                f"| {' | '.join(map(in_markdown, [each['name'], *table_row(each)]))} |"
                for each in verdict["against"]
            ),
            "",
        ]
    notes = list(verdict["notes"])
    spent = ", ".join(f"{name} {steps}" for name, steps in verdict["reference_spent"].items())
    notes += [f"steps trained for this verdict, outside the budget: {spent}"] if spent else []
    return [*lines, *(f"- {in_markdown(each)}" for each in notes)]


def _code(name: str) -> str:
    """A name as code, where nothing but the mark that ends it is markup."""
    return f"`{' '.join(said(name).split()).replace('`', chr(39))}`"


def _counts(rows: Mapping[str, int]) -> str:
    return in_markdown(", ".join(f"{name} {count}" for name, count in rows.items()))


def _number(value: float | None) -> str:
    return "not available" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4f}"


def _epoch_line(about: Mapping[str, Any]) -> list[str]:
    if not about.get("epochs"):
        return []
    times = in_markdown(", ".join(f"{name} {count:.2f}" for name, count in about["epochs"].items()))
    return [f"- Times the model read each source's rows: {times}."]
