"""A fit of tables: read as its model needs them, prepared, and written as a model folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from mixtree.data.tables import TableData, TableSpec, load_tables
from mixtree.engine.study import Result
from mixtree.errors import InputError
from mixtree.fitting.model_folder import read_about, read_preprocessor, write_model
from mixtree.fitting.options import FitOptions
from mixtree.fitting.prepare import Prepared, prepare
from mixtree.fitting.saving import about_fit


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
    about = about_fit(
        prepared,
        result,
        label=data.labels.name,
        classes=None if data.classes is None else list(data.classes),
        warnings=warnings_of(data, prepared),
        storage=storage,
        certificate=certificate,
    )
    arrays = prepared.trainer.save(result.state)
    write_model(folder, arrays=arrays, preprocessor=data.preprocessor, about=about)
    return about
