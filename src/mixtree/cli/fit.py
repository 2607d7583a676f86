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
    fit_options,
    pairs,
    seconds,
    who_works,
    whole,
    with_config,
)
from mixtree.cli.place import certificate, find_place, is_portfolio, stored_at, watch
from mixtree.cli.reports import dry_run, print_plan, print_result
from mixtree.cli.studies import Json, Name, Where, fit_recipe, open_existing, pick
from mixtree.errors import InputError

if TYPE_CHECKING:
    from mixtree.data.tables import TableSpec
    from mixtree.fitting.prepare import Prepared


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
    portfolio = is_portfolio(record)
    if portfolio and budget not in (None, record.budget):
        raise InputError("a portfolio has no budget to raise: fit again with a greater --effort")
    chosen = {"holdout": recipe["chosen"].get("holdout")} if portfolio else recipe["chosen"]
    values = {**recipe["values"], **chosen, "study": record.name, "json": as_json}
    values |= {"storage": where, "out": out or _folder(Path(url), where, Path(values["out"]), record.name)}
    if not portfolio:
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
    from mixtree.fitting.pipeline import run_prepared
    from mixtree.fitting.tables import prepare_tables, read_tables, save_fit, warnings_of
    from mixtree.listeners.progress import StudyProgress
    from mixtree.listeners.terminal import Terminal
    from mixtree.storage.sql import open_storage

    place = find_place(values, resuming=resuming)
    workers = who_works(values.get("workers", 1))
    limit = seconds(values.get("time_limit"))
    data, options = read_tables(table_spec(tables, values), fit_options(values), model=values.get("model"))
    started = time.monotonic()
    prepared = prepare_tables(data, options)
    print_plan(Terminal(stderr=True), data, prepared)
    if place is None:
        if values.get("json"):
            typer.echo(json.dumps(dry_run(data, prepared)))
        return
    place.make()
    storage = open_storage(place.storage, checkpoints=None if resuming else place.models)
    with StudyProgress() as progress, closing(storage):
        gone = place.mark()
        result = run_prepared(
            prepared,
            storage=storage,
            study=place.study,
            resume=resuming,
            workers=workers,
            time_limit=limit,
            started=started,
            listeners=[progress],
            watch=[watch(gone)],
            allow_changed_data=allow_changed_data,
            recipe=_recipe(tables, values, prepared),
        )
        # What took long to find is written, even where its study can no longer be read.
        if (lost := gone()) is not None and result.verdict is not None:
            told = f"{lost} was moved or removed before the model was written, which is in {place.out} anyway"
            warned = (*result.verdict.warnings, told)
            result = replace(result, verdict=replace(result.verdict, warnings=warned))
        sure = None if lost is not None else certificate(storage, place.study)
    place.check_model(resuming=True)  # another study may have ended here meanwhile
    about = save_fit(place.out, data, prepared, result, storage=stored_at(place), certificate=sure)
    if values.get("json"):
        typer.echo(json.dumps({key: about[key] for key in _TOLD}))
    else:
        # What the sources are worth, if that was asked for, is in the notes.
        verbose = bool(values.get("verbose") or values.get("attribution"))
        print_result(place.out, about, result, verbose=verbose, warned=warnings_of(data, prepared))


_TOLD = (
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
"""What --json prints."""


def table_spec(tables: list[Path], values: Values) -> TableSpec:
    """The tables that the flags name."""
    from mixtree.data.tables import TableSpec
    from mixtree.metrics import group_column

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
    groups = group_column(values.get("metric"))
    drop, categorical = (tuple(values.get(name, ())) for name in ("drop", "categorical"))
    return TableSpec(
        tables=by_source or tuple(tables), drop=drop, categorical=categorical, groups=groups, **chosen
    )


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
