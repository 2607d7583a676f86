"""The one pipeline: rows and options → prepare → run → judge → result; and the front door for arrays."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from mixtree.data.leakage import independent
from mixtree.data.sources import Rows, Sources, columns_of
from mixtree.engine.study import Result, check_listeners, load_study, opened, run, seconds_left
from mixtree.events import Listener
from mixtree.fitting.frames import are_frames, encoded, groups_of
from mixtree.fitting.options import make_options
from mixtree.fitting.portfolio import PortfolioTrainer
from mixtree.fitting.portfolio_verdict import Case, judged_portfolio
from mixtree.fitting.prepare import Prepared, as_rows, as_sources, model_of, prepare
from mixtree.fitting.saving import FittedModel, as_they_are, model_files
from mixtree.metrics import GroupedLabels, class_names, group_column
from mixtree.storage.base import Storage
from mixtree.trainer import Trainer
from mixtree.trainers.portfolio import AUTO
from mixtree.trainers.registry import Predictor
from mixtree.verdict import Verdict
from mixtree.verdict.judge import judged
from mixtree.verdict.references import TimeLimit


def run_prepared(
    prepared: Prepared,
    *,
    storage: Storage | str | FilePath | None = None,
    study: str = "fit",
    resume: bool = False,
    workers: int | str = 1,
    time_limit: float | None = None,
    started: float | None = None,
    listeners: Sequence[Listener] = (),
    watch: Sequence[Listener] = (),
    columns: Sequence[Any] | None = None,
    **how: Any,
) -> Result[Any]:
    """Run a fit and judge it: the one way from a prepared fit to its result, whichever door it came by.

    Parameters
    ----------
    prepared
        What ``prepare`` made of rows and options; used once.
    storage, study, resume, workers
        As of ``run``.
    time_limit
        Seconds for the study and what is trained for its verdict.
    started
        When the time limit began, by the monotonic clock; now, unless told.
    listeners
        Are told the events of the study and of what is trained for its verdict.
    watch
        Are told those of the study alone.
    columns
        Names that the columns of later rows must have.
    **how
        What else ``run`` takes: ``recipe``, ``allow_changed_data``.

    Returns
    -------
    Result
        With its verdict, and what predicts further rows, in the labels' own units.
    """
    check_listeners(listeners)
    began = time.monotonic()
    left = seconds_left(time_limit, began if started is None else started)
    # Preparing has told which classes have no validation rows; that parts of those lack them too is no news.
    with (
        class_names(prepared.labels or None, told=True),
        opened(storage, kept=prepared.keep_predictions) as place,
    ):
        result = run(
            prepared.search,
            prepared.trainer,
            seed=prepared.seed,
            storage=place,
            study=study,
            resume=resume,
            workers=workers,
            objective=prepared.objective,
            time_limit=left,
            listeners=[*watch, *listeners],
            keep_predictions=prepared.keep_predictions,
            data=prepared.given,
            **how,
        )
        trainer = prepared.trainer
        if isinstance(trainer, PortfolioTrainer):
            case = Case(trainer, result.state, prepared.judges, prepared.role, prepared.metric)
            how = {"reference": prepared.reference, "seed": prepared.seed, "warnings": prepared.warnings}
            result = judged_portfolio(case, result, storage=place, **how)
        else:
            limit = TimeLimit.after(result, began, left)
            result = judged(prepared, result, storage=place, listeners=listeners, limit=limit)
    if prepared.trainer.predict is None:
        return result
    model = Predictor(
        prepared.options.model,
        prepared.trainer,
        result.state,
        prepared.given,
        columns,
        scale=prepared.scale,
    )
    return replace(result, model=model)


def fit(
    sources: Sources | Mapping[str, Any],
    val: tuple[Any, Any] | Rows | None = None,
    *,
    test: tuple[Any, Any] | Rows | None = None,
    classes: int | None = None,
    storage: Storage | str | FilePath | None = None,
    study: str = "fit",
    resume: bool = False,
    workers: int | str = 1,
    time_limit: float | None = None,
    listeners: Sequence[Listener] = (),
    **options: Any,
) -> Result[Any]:
    """Find the mixture of sources and the model that do best on the validation rows.

    Features are taken as they are: bring them to about size 1, or use MixtureClassifier and MixtureRegressor,
    which do it. Labels of a regression are brought to size 1, and predictions back to their units; a node's
    value is in the former. Columns of DataFrames are matched by name.

    Without a ``model``, or with ``"auto"``, DataFrames are read as tables are, with text, dates and missing
    values, and a portfolio of several families is fitted (docs/tables.md).

    Parameters
    ----------
    sources
        ``{name: (x, y)}`` or ``{name: (x, y, weight)}``, or a Sources.
    val
        Labelled rows of the target, ``(x, y)``; they count alike. None if ``sources`` is a Sources.
    test
        More such rows, which only score.
    classes
        Number of classes, 0 for a regression. By default whole numbers are classes 0, 1, …
    storage
        Where the study is kept: a file name, a database URL or a Storage; None: in memory.
    study
        Its name there.
    resume
        Go on with the study of this name.
    workers
        Processes that train; the answer is the same for any number.
    time_limit
        Seconds; what the study leaves of them is for the references.
    listeners
        Called with every event.
    **options
        The fields of FitOptions, declared in ``mixtree.fitting.options``: model, policy (an id, a Search, or
        a function of a Setting that makes one), metric, objective, budget, steps, unit, schedule,
        untrained_root, batch_size, lr, reset_optimizer, nu, rho, optimism, returns, width, minimum, maximum,
        max_passes, stop_early, use_target_rows, class_weight, init, segments, seed; and those of the verdict
        (docs/verdict.md): holdout, nested, reference, attribution; and effort, of model auto.

    Returns
    -------
    Result
        With ``weights``, ``verdict`` and ``tree``; ``result.predict(x)`` predicts further rows,
        ``result.save(folder)`` writes what ``mixtree predict`` reads.

    References
    ----------
    Faw et al., *Mix and Match*. What each policy does: docs/policies.md.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> result = fit(synthetic(rows=200).sources, model="linear", budget=60, steps=5)
    >>> sum(result.spent.values())
    60
    >>> list(result.verdict.as_dict()["against"][0])
    ['name', 'difference', 'low', 'high', 'p']
    """
    started = time.monotonic()
    chosen, frames = make_options(**options), None
    if (column := group_column(chosen.metric)) is not None:
        val = None if val is None else _grouped(val, column)
        test = None if test is None else _grouped(test, column)
    if model_of(chosen, table=True) == AUTO and are_frames(sources, val):
        frames = encoded(sources, val, test)  # type: ignore[arg-type]
        sources, val, test = frames.sources, frames.validation, frames.test
    data = as_sources(sources, val, classes=classes)
    columns = columns_of(val, *(() if isinstance(sources, Sources) else sources.values()))
    data, judges, doubts = independent(data, None if test is None else as_rows(test, data, columns))
    layout = None if frames is None else frames.preprocessor.layout
    prepared = prepare(data, chosen, test=judges, doubts=doubts, layout=layout)
    result = run_prepared(
        prepared,
        storage=storage,
        study=study,
        resume=resume,
        workers=workers,
        time_limit=time_limit,
        started=started,
        listeners=listeners,
        columns=columns,
    )
    if result.model is None:
        return result
    how = as_they_are(prepared.given, columns) if frames is None else frames.preprocessor
    with class_names(prepared.labels or None, told=True):
        files = model_files(prepared, result, preprocessor=how, warnings=prepared.warnings)
    return replace(result, model=FittedModel(files, encodes=frames is not None))


def _grouped(part: tuple[Any, Any] | Rows, column: str) -> tuple[Any, Any] | Rows:
    """Rows of the target whose labels know the groups of this column, unless they do already."""
    if isinstance(part, Rows) or isinstance(part[1], GroupedLabels):
        return part
    return part[0], GroupedLabels.of(part[1], groups_of(part[0], column))


def load(storage: Storage | str | FilePath, study: str, trainer: Trainer[Any] | None = None) -> Result[Any]:
    """The result of a stored study.

    Parameters
    ----------
    storage
        A file name, a database URL or a Storage.
    study
        Its name there.
    trainer
        Makes its own state of the stored arrays; without one ``state`` is those arrays.

    Returns
    -------
    Result
        With its verdict, if the study is a fit's.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from mixtree.data.synthetic import synthetic
    >>> with TemporaryDirectory() as folder:
    ...     place = FilePath(folder, "study.db")
    ...     result = fit(synthetic(rows=100).sources, model="linear", budget=60, steps=20, storage=place)
    ...     load(place, "fit").weights == result.weights
    True
    """
    with opened(storage, exists=True) as place:
        result, told = load_study(place, study, trainer), place.verdict(study)
    return result if told is None else replace(result, verdict=Verdict.from_dict(told))
