"""``mixtree fit`` and ``resume``: from tables to a model folder."""

from __future__ import annotations

import json
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixtree.cli.options import (
    FIT,
    Values,
    command,
    pairs,
    seconds,
    weights,
    who_works,
    whole,
    with_config,
)
from mixtree.cli.place import Place, certificate, find_place, watch, write
from mixtree.cli.reports import dry_run, print_plan, print_result
from mixtree.cli.studies import Json, Name, Where, fit_recipe, open_existing, pick
from mixtree.errors import DataError, InputError

if TYPE_CHECKING:
    from mixtree.data.labelscale import LabelScale
    from mixtree.data.tables import TableData, TableSpec
    from mixtree.fitting.pipeline import FitOptions, Prepared
    from mixtree.metrics import Metric


def add_to(app: typer.Typer) -> None:
    app.command()(command(fit, FIT))
    app.command()(resume)


def fit(tables: list[Path], values: Values) -> None:
    """Find the mixture of sources, and the model, that do best on the target's validation rows."""
    tables, values = with_config(tables, values, FIT)
    if "out" not in values and not values.get("dry_run"):
        raise InputError("say where the model shall go: --out DIR")
    _fit(tables, values, resuming=False)


def resume(
    url: Where,
    study: Name = None,
    budget: Annotated[
        int | None,
        typer.Option(
            parser=whole,
            metavar="STEPS",
            help="A larger budget, to go on with a finished study.",
            show_default="as before",
        ),
    ] = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|ray…", help="Processes that train, or a Ray cluster.", show_default="as before"
        ),
    ] = None,
    allow_changed_data: Annotated[
        bool,
        typer.Option(
            "--allow-changed-data", help="Go on although the tables have changed.", show_default="off"
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Another folder for the model.", show_default="as before"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Go on with a study that was interrupted, or with a finished one at a larger budget."""
    with closing(open_existing(url)) as storage:
        record = pick(storage, study)
        where = storage.url if "://" in storage.where else storage.where
    if (recipe := fit_recipe(record)) is None:
        raise InputError(
            f"study {record.name!r} was not made by mixtree fit: resume it in Python (resume=True)"
        )
    if budget is not None and budget < record.budget:
        raise InputError(
            f"study {record.name!r} has a budget of {record.budget} steps: it can be raised, not lowered "
            f"to {budget}"
        )
    # What was chosen from the data then is kept, counted in steps: a raised budget must not change the steps
    # per node, and the study knows its budget better than the command that began it.
    values = {**recipe["values"], **recipe["chosen"], "study": record.name, "json": as_json}
    values |= {"storage": where, "out": out or _folder(Path(url), where, Path(values["out"]), record.name)}
    values["budget"] = budget or record.budget
    if "holdout" not in recipe["chosen"]:  # from before rows were held out
        values.setdefault("holdout", 0.0)
    if workers is not None:
        values["workers"] = workers
    tables = [Path(each) for each in recipe["tables"]]
    _fit(tables, values, resuming=True, allow_changed_data=allow_changed_data)


def _folder(given: Path, storage: str, recorded: Path, study: str) -> Path:
    """Where a resumed fit goes: into the folder that was given, if one was, since it may be a copy.

    A study's file may hold studies that began in other folders (--storage): they go on there.
    """
    from mixtree.fitting.model_folder import read_about

    if given.is_dir() and not (given / "study.db").exists():  # its model names the study's file
        return given
    if "://" in storage or Path(storage).name != "study.db":
        return recorded
    with suppress(InputError):  # no model there
        about = read_about(recorded)
        if about.get("study") == study and about.get("storage") == str(Path(storage).resolve()):
            return recorded
    return Path(storage).parent


def _fit(tables: list[Path], values: Values, *, resuming: bool, allow_changed_data: bool = False) -> None:
    from mixtree.metrics import class_names

    place = find_place(values, resuming=resuming)
    who_works(values.get("workers", 1))  # refused before anything is read
    time_limit = seconds(values.get("time_limit"))
    arrays, data = read(tables, values)
    # Which classes have no rows was told when the tables were read.
    with class_names(data.classes or (), told=True):
        _fit_data(tables, values, place, arrays, data, time_limit, resuming, allow_changed_data)


def _fit_data(
    tables: list[Path],
    values: Values,
    place: Place | None,
    arrays: Any,
    data: TableData,
    time_limit: float | None,
    resuming: bool,
    allow_changed_data: bool,
) -> None:
    from mixtree.engine.study import run, seconds_left
    from mixtree.fitting.pipeline import metric_of, prepare
    from mixtree.listeners.progress import StudyProgress
    from mixtree.listeners.terminal import Terminal
    from mixtree.storage.sql import open_storage
    from mixtree.verdict.judge import judged
    from mixtree.verdict.references import TimeLimit

    started = time.monotonic()
    given, classes = fit_options(values, init=arrays), data.problem_sources.classes
    data, options, scale = scaled(data, given, scale_of(values))
    data = testable(data, metric_of(options, classes))
    prepared = prepare(data.problem_sources, options, test=data.test)
    console = Terminal(stderr=True)
    print_plan(console, data, prepared)
    if place is None:
        if values.get("json"):
            typer.echo(json.dumps(dry_run(data, prepared)))
        return
    place.make()
    storage = open_storage(place.storage, checkpoints=None if resuming else place.models)
    with StudyProgress() as progress, closing(storage):
        gone = place.mark()
        left, began = seconds_left(time_limit, started), time.monotonic()
        result = run(
            prepared.search,
            prepared.trainer,
            seed=prepared.options.seed,
            storage=storage,
            study=place.study,
            resume=resuming,
            workers=who_works(values.get("workers", 1)),
            objective=prepared.objective,
            time_limit=left,
            listeners=[watch(gone), progress],
            allow_changed_data=allow_changed_data,
            keep_predictions=prepared.keep_predictions,
            data=prepared.given,
            recipe=_recipe(tables, values, prepared),
        )
        own = metric_of(given, classes)
        result = judged(
            prepared,
            result,
            metric=own,
            scale=scale,
            storage=storage,
            listeners=[progress],
            limit=TimeLimit.after(result, began, left),
            warnings=data.doubtful,
        )
        # What took long to find is written, even where its study can no longer be read.
        if (lost := gone()) is not None and result.verdict is not None:
            told = f"{lost} was moved or removed before the model was written, which is in {place.out} anyway"
            warned = (*result.verdict.warnings, told)
            result = replace(result, verdict=replace(result.verdict, warnings=warned))
        sure = None if lost is not None else certificate(storage, place.study)
    about = write(place, data, prepared, result, values, scale, sure)
    keys = (
        "study",
        "policy",
        "decided",
        "mixture",
        "metric",
        "val_score",
        "test_score",
        "budget",
        "spent",
        "verdict",
    )
    if values.get("json"):
        typer.echo(json.dumps({key: about[key] for key in keys}))
    else:
        # What the sources are worth, if that was asked for, is in the notes.
        verbose = bool(values.get("verbose") or values.get("attribution"))
        print_result(place.out, about, result, verbose=verbose, warned=data.warnings)


def read(tables: list[Path], values: Values) -> tuple[Any, TableData]:
    """The tables, and the arrays of the model to start from; its weights fit only its own features."""
    from mixtree.data.tables import load_tables

    spec, seed = table_spec(tables, values), values.get("seed", 0)
    if "init" not in values:
        return None, load_tables(spec, seed=seed)
    from mixtree.fitting.model_folder import read_about, read_preprocessor, read_weights

    folder = Path(values["init"])
    about = read_about(folder)
    if values.setdefault("model", about["model"]["name"]) != about["model"]["name"]:
        raise InputError(f"--init {folder} holds a {about['model']['name']} model: leave out --model")
    if about["classes"] is not None:
        spec = replace(spec, classes=about["classes"])
    preprocessor = read_preprocessor(folder, about)
    return read_weights(folder, about), load_tables(spec, seed=seed, preprocessor=preprocessor)


def scale_of(values: Values) -> LabelScale | None:
    """The scale of the labels of the model to start from: its weights only fit that."""
    if "init" not in values:
        return None
    from mixtree.data.labelscale import LabelScale
    from mixtree.fitting.model_folder import read_about

    return LabelScale(*read_about(Path(values["init"])).get("label_scale", (0.0, 1.0)))


def scaled(
    data: TableData, options: FitOptions, scale: LabelScale | None = None
) -> tuple[TableData, FitOptions, LabelScale]:
    """The data and the options as ``fitting.scaled`` has them, the test rows too."""
    from mixtree.fitting import pipeline as fitting

    sources, options, scale = fitting.scaled(data.problem_sources, options, scale)
    test = None if data.test is None else scale.rows(data.test)
    return replace(data, problem_sources=sources, test=test), options, scale


def testable(data: TableData, metric: Metric) -> TableData:
    """The data without test rows on which the metric says nothing, and a warning instead."""
    from mixtree.metrics import check_metric

    if data.test is None:
        return data
    try:
        check_metric(metric, data.test.y, data.problem_sources.classes, where="the test rows")
    except DataError as error:
        told = f"no test score: {error}"
        return replace(data, test=None, warnings=(*data.warnings, told), doubtful=(*data.doubtful, told))
    return data


def table_spec(tables: list[Path], values: Values) -> TableSpec:
    """The tables that the flags name."""
    from mixtree.data.tables import TableSpec

    # By their names: the order in which sources are given changes nothing.
    by_source = {name: Path(file) for name, file in sorted(pairs(values.get("source"), "--source").items())}
    if by_source and tables:
        raise InputError("give tables with --source-col, or --source NAME=FILE for each source, not both")
    if not by_source and not tables:
        raise InputError("no tables: give some with --source-col, or --source NAME=FILE for each source")
    if "label" not in values:
        raise InputError("say which column to predict: --label COL")
    chosen = {
        name: values[name]
        for name in (
            "source_col",
            "label",
            "val",
            "test",
            "target",
            "val_frac",
            "group_col",
            "time_col",
            "task",
        )
        if name in values
    }
    drop, categorical = (tuple(values.get(name, ())) for name in ("drop", "categorical"))
    return TableSpec(tables=by_source or tuple(tables), drop=drop, categorical=categorical, **chosen)


def fit_options(values: Values, *, init: Any = None) -> FitOptions:
    """The options that the flags name."""
    from mixtree.fitting.pipeline import FitOptions

    names = (
        "metric",
        "budget",
        "steps",
        "batch_size",
        "lr",
        "unit",
        "objective",
        "rho",
        "optimism",
        "returns",
    )
    more = ("max_passes", "use_target_rows", "class_weight", "model", "seed", "policy", "segments")
    judging = ("holdout", "nested", "reference", "attribution", "stop_early")
    chosen = {name: values[name] for name in (*names, *more, *judging) if name in values}
    if "nu" in values:
        chosen["nu"] = _nu(values["nu"])
    for name in ("unit", "objective", "use_target_rows", "class_weight"):
        _one_of(name, values.get(name))
    return FitOptions(
        minimum=weights(values.get("min"), "--min"),
        maximum=weights(values.get("max"), "--max"),
        init=init,
        **chosen,
    )


_CHOICES = {
    "unit": ("steps", "samples"),
    "objective": ("loss", "metric"),
    "use_target_rows": ("never", "auto"),
    "class_weight": ("balanced",),
}


def _one_of(name: str, value: Any) -> None:
    if value is not None and value not in _CHOICES[name]:
        flag = "--" + name.replace("_", "-")
        raise InputError(f"{flag} is one of {', '.join(_CHOICES[name])}; got {value!r}")


def _nu(text: str) -> Any:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise InputError(f"--nu is a number or auto; got {text!r}") from error


def _recipe(tables: list[Path], values: Values, prepared: Prepared) -> dict[str, Any]:
    def plain(name: str, value: Any) -> Any:
        if name == "source":
            return [f"{key}={Path(file).resolve()}" for key, file in pairs(value, "--source").items()]
        return str(value.resolve()) if isinstance(value, Path) else value

    skipped = ("json", "verbose", "storage", "checkpoints", "study", "dry_run")
    chosen = prepared.chosen
    return {
        "command": "fit",
        "tables": [str(each.resolve()) for each in tables],
        "values": {name: plain(name, value) for name, value in values.items() if name not in skipped},
        "chosen": {
            "steps": chosen.steps,
            "batch_size": chosen.batch_size,
            "budget": chosen.budget,
            "unit": "steps",
            "holdout": prepared.options.holdout,
            "policy": prepared.policy,
        },
    }
