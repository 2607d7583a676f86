"""``mixtree explain``: which columns a fitted model's predictions hang on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mixtree.cli.studies import Json
from mixtree.errors import InputError


def add_to(app: typer.Typer) -> None:
    app.command()(explain)


def explain(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that mixtree fit has written.")],
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="Labelled rows of the target; best ones that trained nothing."),
    ],
    metric: Annotated[
        str | None, typer.Option(metavar="M", help="What scores.", show_default="the model's")
    ] = None,
    as_json: Json = False,
) -> None:
    """Print how much worse the score gets when a column is shuffled, with 95 % intervals."""
    from rich.table import Table

    from mixtree.cli.reports import four_digits
    from mixtree.data.labels import Labels, alike
    from mixtree.data.tables import read_table
    from mixtree.fitting.explain import importances
    from mixtree.fitting.model_folder import load_model
    from mixtree.listeners.terminal import Terminal
    from mixtree.metrics import as_metric

    loaded = load_model(model)
    label, classes = loaded.about["label"], loaded.classes
    frame = read_table(table, text=loaded.preprocessor.text_columns)
    if label not in frame.columns:
        raise InputError(f"{table} has no column {label!r}: importance needs labelled rows of the target")
    labels = (
        Labels(label, "regression") if classes is None else Labels(label, "classification", tuple(classes))
    )
    values = alike(label, {str(table): frame[label]})[str(table)]
    if values.null_count():
        raise InputError(
            f"{table} lacks the label in {values.null_count()} of {len(values)} rows: leave them out"
        )
    y = labels.encode(values, where=str(table))
    found = importances(
        loaded.scores,
        frame,
        y,
        columns=loaded.preprocessor.needed,
        metric=as_metric(metric or loaded.about["metric"], classes=len(classes or ())),
    )
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in found]))
        return
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("column", f"{metric or loaded.about['metric']} lost", "95 % interval"):
        shown.add_column(heading)
    for each in found:
        interval = f"{four_digits(each.low)} … {four_digits(each.high)}"
        shown.add_row(each.column, four_digits(each.value), interval)
    Terminal().print(shown)
