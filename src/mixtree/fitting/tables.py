"""A fit of tables: read as its model needs them, prepared, and written as a model folder."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from pathlib import Path as FilePath
from typing import Any

from mixtree.data.fingerprint import data_fingerprint
from mixtree.data.tables import TableData, TableSpec, load_tables
from mixtree.engine.study import Result
from mixtree.errors import InputError
from mixtree.fitting.model_folder import read_about, read_preprocessor, write_model
from mixtree.fitting.options import FitOptions
from mixtree.fitting.pipeline import predicted
from mixtree.fitting.portfolio import PortfolioTrainer
from mixtree.fitting.prepare import Prepared, prepare
from mixtree.verdict.scoring import untouched


def read_tables(
    spec: TableSpec, options: FitOptions, *, model: str | None = None
) -> tuple[TableData, FitOptions]:
    """The tables, with the features and classes of the model to start from, and the options of that model.

    Parameters
    ----------
    spec
        Which files hold the rows.
    options
        Of the fit; ``init`` names a model folder, if there is one to start from.
    model
        The model family, if the user has named one.

    Returns
    -------
    tuple
        The tables, ready for ``prepare_tables``, and the options with the family of that model.
    """
    if options.init is None:
        return load_tables(spec, seed=options.seed), options
    if not isinstance(options.init, str | FilePath):
        raise InputError("tables need a model folder to start from: its columns decide the features")
    folder = FilePath(options.init)
    about = read_about(folder)
    name = about["model"]["name"]
    if model not in (None, name):
        raise InputError(f"--init {folder} holds a {name} model: leave out --model")
    if about["classes"] is not None:
        spec = replace(spec, classes=about["classes"])
    preprocessor = read_preprocessor(folder, about)
    return load_tables(spec, seed=options.seed, preprocessor=preprocessor), replace(options, model=name)


def prepare_tables(data: TableData, options: FitOptions) -> Prepared:
    """A fit of these tables, ready to run. Reading them has told which classes have no rows."""
    prepared = prepare(
        data.problem_sources,
        options,
        test=data.test,
        labels=data.classes or (),
        told=True,
        doubts=data.doubtful,
        layout=data.preprocessor.layout,
    )
    if prepared.trainer.refits:
        raise InputError(
            f"a model folder has no safe format for {prepared.options.model}: fit it in Python (mixtree.fit, "
            "MixtureClassifier), where it stays in memory"
        )
    return prepared


def warnings_of(data: TableData, prepared: Prepared) -> tuple[str, ...]:
    """What the owner of the tables should know before the fit runs."""
    return (*data.warnings, *(each for each in prepared.doubts if each not in data.warnings))


def save_fit(
    folder: FilePath,
    data: TableData,
    prepared: Prepared,
    result: Result[Any],
    *,
    storage: str | None = None,
    certificate: str | None = None,
) -> dict[str, Any]:
    """Write the model folder of a fit, whichever policy it has; what was written about the model.

    Parameters
    ----------
    folder
        Where it goes.
    data, prepared, result
        Of the fit.
    storage
        Where its study is, if not in the folder.
    certificate
        How much better an untried mixture could be, in words.

    Returns
    -------
    dict
        The content of ``model.json``.
    """
    trainer: Any = prepared.trainer
    metric, sources = prepared.chosen.metric, data.problem_sources
    test = prepared.judges if prepared.role == "test" else None
    val_score = metric(prepared.sources.validation.y, predicted(prepared, result))
    test_score = None if test is None else metric(test.y, trainer.predict(result.state, test.x))
    read = trainer.epochs(result.state)
    about: dict[str, Any] = {
        "study": result.study,
        "storage": storage,
        "policy": prepared.policy,
        "decided": list(result.notes),
        "label": data.labels.name,
        "classes": None if data.classes is None else list(data.classes),
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
        "warnings": [*warnings_of(data, prepared), *result.warnings],
        "verdict": None if result.verdict is None else result.verdict.as_dict(),
        "certificate": certificate,
    }
    if isinstance(trainer, PortfolioTrainer):
        about["members"] = trainer.about(result.state)
    write_model(folder, arrays=trainer.save(result.state), preprocessor=data.preprocessor, about=about)
    return about


def _finite(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(value)
