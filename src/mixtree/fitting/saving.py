"""What a fit keeps to write its model folder later: everything but the rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.fingerprint import data_fingerprint
from mixtree.data.frames import as_frame
from mixtree.data.preprocessing import Preprocessor
from mixtree.data.sources import Sources
from mixtree.data.sparse import is_sparse
from mixtree.engine.study import Result
from mixtree.errors import DataError, InputError
from mixtree.fitting.model_folder import write_model
from mixtree.fitting.portfolio import PortfolioTrainer
from mixtree.fitting.portfolio_verdict import strongest_family
from mixtree.fitting.prepare import Prepared
from mixtree.trainers.registry import Predictor
from mixtree.verdict.scoring import untouched

LABEL = "label"
"""What the labels of arrays are called."""


@dataclass(frozen=True, eq=False, slots=True)
class ModelFiles:
    """The content of a model folder, without the rows that trained it.

    Parameters
    ----------
    model
        Holds the weights.
    preprocessor
        From the columns of a table to features; None where ``refusal`` says why there is none.
    about
        All that is known of the model, as plain data.
    refusal
        Why no folder can hold this model; empty if one can.
    """

    model: Predictor
    preprocessor: Preprocessor | None
    about: dict[str, Any]
    refusal: str

    def write(self, folder: str | FilePath) -> None:
        """Write the folder that ``mixtree predict``, ``show`` and ``explain`` read."""
        if not isinstance(folder, str | FilePath):
            raise InputError(f"a model folder is given by its name; got {folder!r}")
        if self.refusal or self.preprocessor is None:
            raise InputError(f"this model cannot be saved: {self.refusal}")
        write_model(
            FilePath(folder), arrays=self.model.arrays, preprocessor=self.preprocessor, about=self.about
        )


@dataclass(frozen=True, eq=False, slots=True)
class FittedModel:
    """What predicts rows like those that ``mixtree.fit`` was given, and writes its folder.

    Parameters
    ----------
    files
        Of its folder.
    encodes
        Whether the rows are data frames that become features first.
    """

    files: ModelFiles
    encodes: bool

    def predict(self, x: Any) -> Any:
        """Class probabilities (n, classes), or numbers (n,)."""
        if self.encodes and self.files.preprocessor is not None:
            x = self.files.preprocessor.transform(as_frame(x), where="these rows")
        return self.files.model.predict(x)

    def save(self, folder: str | FilePath) -> None:
        """Write the folder that ``mixtree predict``, ``show`` and ``explain`` read."""
        self.files.write(folder)


def model_files(
    prepared: Prepared,
    result: Result[Any],
    *,
    preprocessor: Preprocessor | str,
    label: str = LABEL,
    warnings: tuple[str, ...] = (),
) -> ModelFiles:
    """What a finished fit keeps of itself.

    Parameters
    ----------
    prepared, result
        Of the fit.
    preprocessor
        What makes features of tables; in words, why there is none.
    label
        The name of what is predicted.
    warnings
        What was known of the rows beforehand.
    """
    refusal, model = "", prepared.options.model
    name = model if isinstance(model, str) else type(model).__name__
    if not isinstance(model, str) or prepared.trainer.refits:
        refusal = f"there is no safe format for {name}; it stays in memory"
    elif isinstance(preprocessor, str):
        refusal = preprocessor
    classes = list(prepared.labels) or (list(range(prepared.sources.classes)) or None)
    about = about_fit(prepared, result, label=label, classes=classes, warnings=warnings)
    ready = preprocessor if isinstance(preprocessor, Preprocessor) else None
    # By its name: a model of the user's own may be one that cannot be pickled.
    about |= {"study": None, "model": {**about["model"], "name": name}}
    return ModelFiles(result.model, ready, about, refusal)


def as_they_are(sources: Sources, columns: list[Any] | None) -> Preprocessor | str:
    """What takes columns of numbers as features; in words, why no table has such columns.

    Parameters
    ----------
    sources
        Of the fit.
    columns
        Their names; x0, x1 … where they have none.
    """
    if is_sparse(sources.validation.x):
        return "sparse rows have no columns by name (fit a table instead)"
    if sources.validation.x.ndim != 2:
        return "its rows are no rows of a table"
    names = [str(each) for each in columns] if columns else [f"x{n}" for n in range(sources.features)]
    try:
        return Preprocessor.unscaled([part.x for part in sources.rows], sources.validation.x, names)
    except DataError as error:
        return str(error)


def about_fit(
    prepared: Prepared,
    result: Result[Any],
    *,
    label: str,
    classes: list[Any] | None,
    warnings: tuple[str, ...] = (),
    storage: str | None = None,
    certificate: str | None = None,
) -> dict[str, Any]:
    """The content of ``model.json``.

    Parameters
    ----------
    prepared, result
        Of the fit.
    label
        The name of what is predicted.
    classes
        In the order of the probabilities; None of a regression.
    warnings
        What was known of the rows beforehand.
    storage
        Where its study is, if not in the folder.
    certificate
        How much better an untried mixture could be, in words.
    """
    trainer: Any = prepared.trainer
    metric, sources = prepared.chosen.metric, prepared.given
    test = prepared.judges if prepared.role == "test" else None
    val_score = metric(prepared.sources.validation.y, predicted(prepared, result))
    test_score = None if test is None else metric(test.y, trainer.predict(result.state, test.x))
    read = trainer.epochs(result.state)
    about: dict[str, Any] = {
        "study": result.study,
        "storage": storage,
        "policy": prepared.policy,
        "decided": list(result.notes),
        "label": label,
        "classes": classes,
        "label_scale": [prepared.scale.centre, prepared.scale.spread],
        "sources": list(sources.names),
        "model": {
            "name": prepared.options.model,
            "features": sources.features,
            "lr": prepared.options.lr,
            "batch_size": prepared.batch_size,
        },
        "mixture": result.weights,
        "rule": result.rule,
        "metric": metric.name,
        "val_score": _finite(val_score),
        "test_score": _finite(test_score),
        "value": _finite(result.value),
        "budget": result.budget,
        "spent": result.spent,
        "unspent": result.unspent,
        "epochs": None
        if read is None
        else {name: float(times) for name, times in zip(sources.names, read, strict=False)},
        "trained_on_target": result.node.path not in untouched(result.tree, len(sources)),
        "rows": {
            "sources": dict(zip(sources.names, sources.sizes.tolist(), strict=True)),
            "validation": len(prepared.sources.validation),
            "holdout": prepared.held_out,
            "test": 0 if test is None else len(test),
        },
        "seed": prepared.seed,
        "data": data_fingerprint(prepared.given),
        "warnings": [*warnings, *result.warnings],
        "verdict": None if result.verdict is None else result.verdict.as_dict(),
        "certificate": certificate,
    }
    if isinstance(trainer, PortfolioTrainer):
        about["members"] = trainer.about(result.state)
        about["strongest"] = strongest_family(trainer, result.state)
        about["trees"] = result.state.trees
    return about


def predicted(prepared: Prepared, result: Result[Any]) -> NDArray[Any]:
    """What the returned model predicts for the validation rows that chose, in the labels' scaled units."""
    found = result.predictions.get(result.node.path)
    if found is None:
        trainer: Any = prepared.trainer
        found = trainer.predict(result.state, prepared.sources.validation.x)
    return np.asarray(found)


def _finite(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(value)
