"""``mixtree fit``, ``resume`` and ``predict``: from tables to a model folder, and on to predictions."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixtree.cli.options import (
    DATA,
    FITTING,
    OUTPUT,
    PLACE,
    Values,
    command,
    pairs,
    seconds,
    weights,
    with_config,
)
from mixtree.cli.studies import Json, Name, Where, open_existing, pick
from mixtree.errors import InputError

if TYPE_CHECKING:
    from mixtree.data.tables import TableData, TableSpec
    from mixtree.fitting import FitOptions, Prepared
    from mixtree.study import Result

FLAGS = (*DATA, *FITTING, *PLACE, *OUTPUT)


def add_to(app: typer.Typer) -> None:
    app.command()(command(fit, FLAGS))
    app.command()(resume)
    app.command()(predict)


def fit(tables: list[Path], values: Values) -> None:
    """Find the mixture of sources, and the model, that do best on the target's validation rows."""
    tables, values = with_config(tables, values, FLAGS)
    if "out" not in values and not values.get("dry_run"):
        raise InputError("say where the model shall go: --out DIR")
    _fit(tables, values, resuming=False)


def resume(
    url: Where,
    study: Name = None,
    budget: Annotated[
        int | None, typer.Option(help="A larger budget, to go on with a finished study.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that train.", show_default="as before")
    ] = None,
    allow_changed_data: Annotated[
        bool, typer.Option("--allow-changed-data", help="Go on although the tables have changed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Go on with a study that was interrupted, or with a finished one at a larger budget."""
    storage = open_existing(url)
    record = pick(storage, study)
    storage.close()
    if record.recipe is None:
        raise InputError(
            f"study {record.name!r} was not made by mixtree fit: resume it in Python (resume=True)"
        )
    values = {**record.recipe["values"], "study": record.name, "json": as_json, "storage": storage.url}
    values["out"] = Path(values["out"])
    if budget is not None:
        values |= {"budget": budget, "unit": "steps"}
    if workers is not None:
        values["workers"] = workers
    # What was chosen from the data then is kept: a raised budget must not change the steps per node.
    values = {**record.recipe["chosen"], **values}
    tables = [Path(each) for each in record.recipe["tables"]]
    _fit(tables, values, resuming=True, allow_changed_data=allow_changed_data)


def _fit(tables: list[Path], values: Values, *, resuming: bool, allow_changed_data: bool = False) -> None:
    from rich.console import Console

    from mixtree.cli.progress import StudyProgress
    from mixtree.data.tables import load_tables
    from mixtree.fitting import prepare
    from mixtree.study import run

    console = Console(stderr=True)
    spec = table_spec(tables, values)
    arrays, preprocessor = _initial(values.get("init"))
    data = load_tables(spec, seed=values.get("seed", 0))
    prepared = prepare(data.problem_sources, fit_options(values, init=arrays))
    print_plan(console, data, prepared)
    if values.get("dry_run"):
        if values.get("json"):
            typer.echo(json.dumps(dry_run(data, prepared)))
        return
    out, study = Path(values["out"]), values.get("study", "fit")
    out.mkdir(parents=True, exist_ok=True)
    with StudyProgress() as progress:
        result = run(
            prepared.search,
            prepared.trainer,
            seed=prepared.options.seed,
            storage=values.get("storage") or str(out / "study.db"),
            study=study,
            resume=resuming,
            workers=values.get("workers", 1),
            objective=prepared.objective,
            time_limit=seconds(values.get("time_limit")),
            listeners=[progress],
            allow_changed_data=allow_changed_data,
            recipe=_recipe(tables, values, data, prepared),
        )
    about = _write(out, data, prepared, result, values)
    keys = ("study", "policy", "mixture", "metric", "val_score", "test_score", "budget", "spent", "verdict")
    if values.get("json"):
        typer.echo(json.dumps({key: about[key] for key in keys}))
    else:
        _print_result(out, about, result)


def table_spec(tables: list[Path], values: Values) -> TableSpec:
    """The tables that the flags name."""
    from mixtree.data.tables import TableSpec

    by_source = {name: Path(file) for name, file in pairs(values.get("source"), "--source").items()}
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
    return TableSpec(tables=by_source or tuple(tables), drop=tuple(values.get("drop", ())), **chosen)


def fit_options(values: Values, *, init: Any = None) -> FitOptions:
    """The options that the flags name."""
    from mixtree.fitting import FitOptions

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
    more = ("use_target_rows", "class_weight", "model", "seed", "policy")
    chosen = {name: values[name] for name in (*names, *more) if name in values}
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


def _initial(folder: Path | None) -> tuple[Any, Any]:
    """Weights and preprocessing of the model to start from: its weights only fit its own features."""
    if folder is None:
        return None, None
    from mixtree.data.preprocessing import Preprocessor
    from mixtree.modelfolder import PREPROCESSING, read_about, read_weights

    folder = Path(folder)
    read_about(folder)
    return read_weights(folder), Preprocessor.from_files(folder / PREPROCESSING)


def _recipe(tables: list[Path], values: Values, data: TableData, prepared: Prepared) -> dict[str, Any]:
    def plain(name: str, value: Any) -> Any:
        if name == "source":
            return [f"{key}={Path(file).resolve()}" for key, file in pairs(value, "--source").items()]
        return str(value.resolve()) if isinstance(value, Path) else value

    skipped = ("json", "storage", "study", "dry_run")
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
        },
        "rows": dict(zip(data.problem_sources.names, data.problem_sources.sizes.tolist(), strict=True)),
    }


def _write(
    out: Path, data: TableData, prepared: Prepared, result: Result[Any], values: Values
) -> dict[str, Any]:
    from mixtree.fingerprint import data_fingerprint
    from mixtree.modelfolder import write_model

    trainer: Any = prepared.trainer
    metric, validation, test = prepared.chosen.metric, data.problem_sources.validation, data.test
    val_score = metric(validation.y, trainer.predict(result.state, validation.x))
    test_score = None if test is None else metric(test.y, trainer.predict(result.state, test.x))
    options = prepared.options
    about = {
        "study": result.study,
        "policy": options.policy,
        "label": values["label"],
        "classes": None if data.classes is None else list(data.classes),
        "sources": list(data.problem_sources.names),
        "model": {
            "name": options.model,
            "features": data.problem_sources.features,
            "lr": options.lr,
            "batch_size": prepared.chosen.batch_size,
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
        "rows": {
            "sources": dict(zip(data.problem_sources.names, data.problem_sources.sizes.tolist(), strict=True)),
            "validation": len(validation),
            "test": 0 if test is None else len(test),
        },
        "seed": options.seed,
        "data": data_fingerprint(data.problem_sources),
        "warnings": [*data.warnings, *result.warnings],
        "verdict": None,
    }
    write_model(out, arrays=trainer.save(result.state), preprocessor=data.preprocessor, about=about)
    return about


def _finite(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(value)


def print_plan(console: Any, data: TableData, prepared: Prepared) -> None:
    """What was read, how it is treated, and what was chosen for the user; on stderr."""
    sizes = ", ".join(
        f"{name} {size}" for name, size in zip(data.problem_sources.names, data.problem_sources.sizes, strict=True)
    )
    test = f", {len(data.test)} test" if data.test is not None else ""
    console.print(
        f"[bold]rows[/bold]: {sizes}; {len(data.problem_sources.validation)} validation{test}", highlight=False
    )
    kinds: dict[str, list[str]] = {}
    for column in data.columns:
        kinds.setdefault(column.kind, []).append(column.name)
    for kind, names in kinds.items():
        shown = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
        console.print(f"[bold]{kind}[/bold]: {shown}", highlight=False, markup=True)
    console.print(f"[bold]features[/bold]: {data.problem_sources.features} columns after encoding", highlight=False)
    for warning in data.warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False)
    for note in prepared.chosen.notes:
        console.print(f"chosen: {note}", style="dim", highlight=False)


def dry_run(data: TableData, prepared: Prepared) -> dict[str, Any]:
    """What --dry-run --json prints."""
    chosen = prepared.chosen
    return {
        "rows": dict(zip(data.problem_sources.names, data.problem_sources.sizes.tolist(), strict=True)),
        "validation": len(data.problem_sources.validation),
        "test": None if data.test is None else len(data.test),
        "features": data.problem_sources.features,
        "classes": None if data.classes is None else list(data.classes),
        "columns": {column.name: column.kind for column in data.columns},
        "policy": prepared.options.policy,
        "metric": chosen.metric.name,
        "budget": chosen.budget,
        "steps": chosen.steps,
        "batch_size": chosen.batch_size,
        "warnings": list(data.warnings),
    }


def _print_result(out: Path, about: dict[str, Any], result: Result[Any]) -> None:
    from rich.console import Console

    console = Console()
    mixture = ", ".join(f"{name} {weight:.3f}" for name, weight in about["mixture"].items())
    spent = ", ".join(f"{phase} {steps}" for phase, steps in about["spent"].items())
    console.print(f"[bold]mixture[/bold]: {mixture}", highlight=False)
    score = about["val_score"]
    console.print(
        f"[bold]{about['metric']}[/bold] on the validation rows, which chose the mixture (optimistic): "
        f"{'not available' if score is None else f'{score:.4f}'}",
        highlight=False,
    )
    if about["test_score"] is not None:
        console.print(
            f"[bold]{about['metric']}[/bold] on {about['rows']['test']} test rows: {about['test_score']:.4f}",
            highlight=False,
        )
    console.print(f"[bold]steps[/bold]: {spent}; unspent {result.unspent}; {result.reason}", highlight=False)
    console.print(f"[bold]model[/bold]: {out} (mixtree predict {out} new.csv -o out.csv)", highlight=False)


def predict(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that mixtree fit has written.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Rows to predict.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="CSV or Parquet file for the predictions.")],
    keep: Annotated[
        list[str] | None, typer.Option(help="A column of the table to copy along, an id say; repeat it.")
    ] = None,
) -> None:
    """Predict the rows of a table with a fitted model."""
    import polars as pl

    from mixtree.data.tables import read_table
    from mixtree.modelfolder import load_model

    loaded = load_model(model)
    frame = read_table(table)
    missing = [name for name in keep or () if name not in frame.columns]
    if missing:
        raise InputError(f"{table} has no column {missing[0]!r} to keep; it has {', '.join(frame.columns)}")
    scores = loaded.scores(frame)
    columns: dict[str, Any] = {name: frame[name] for name in keep or ()}
    if loaded.classes is None:
        columns["prediction"] = scores
    else:
        columns["prediction"] = [loaded.classes[place] for place in scores.argmax(axis=1)]
        columns |= {f"probability_{label}": scores[:, place] for place, label in enumerate(loaded.classes)}
    write_table(pl.DataFrame(columns), output)


def write_table(frame: Any, output: Path) -> None:
    """Write a CSV or Parquet file, whole or not at all."""
    if output.suffix not in (".csv", ".parquet"):
        raise InputError(f"predictions are written as .csv or .parquet; got {output.name!r}")
    if not output.parent.is_dir():
        raise InputError(f"cannot write {output}: there is no folder {output.parent}")
    temporary = output.with_name(f".{output.name}.tmp")
    frame.write_csv(temporary) if output.suffix == ".csv" else frame.write_parquet(temporary)
    temporary.replace(output)
