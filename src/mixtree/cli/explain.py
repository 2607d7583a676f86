"""``mixtree explain``: which columns a fitted model's predictions hang on."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mixtree.cli.studies import Json, fit_recipe, open_existing, pick
from mixtree.errors import InputError

if TYPE_CHECKING:
    from mixtree.data.sources import Rows
    from mixtree.fitting.explain import Importance
    from mixtree.fitting.model_folder import SavedModel
    from mixtree.metrics import Metric


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
    by: Annotated[
        str,
        typer.Option(metavar="WHAT", help="column: each is shuffled; source: a model without each."),
    ] = "column",
    as_json: Json = False,
) -> None:
    """Print how much worse the score gets when a column is shuffled, or without a source; 95 % intervals."""
    from rich.markup import escape
    from rich.table import Table

    from mixtree.cli.reports import four_digits
    from mixtree.data.labels import Labels, alike
    from mixtree.data.sources import Rows
    from mixtree.data.tables import read_table
    from mixtree.fitting.explain import importances
    from mixtree.fitting.frames import groups_of
    from mixtree.fitting.model_folder import load_model
    from mixtree.listeners.terminal import Terminal
    from mixtree.metrics import GroupedLabels, as_metric

    if by not in ("column", "source"):
        raise InputError(f"--by is column or source; got {by!r}")
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
    scores = as_metric(metric or loaded.about["metric"], classes=len(classes or ()))
    if scores.column is not None:
        y = GroupedLabels.of(y, groups_of(frame, scores.column))
    if by == "source":
        judges = Rows(loaded.preprocessor.transform(frame, where=str(table)), y)
        found = _by_source(model, loaded, judges, scores)
    else:
        columns = loaded.preprocessor.needed
        found = importances(loaded.scores, frame, y, columns=columns, metric=scores)
    if as_json:
        typer.echo(
            json.dumps(
                [{by: each.name, "value": each.value, "low": each.low, "high": each.high} for each in found]
            )
        )
        return
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for heading in (by, f"{metric or loaded.about['metric']} lost", "95 % interval"):
        shown.add_column(heading)
    for each in found:
        interval = f"{four_digits(each.low)} … {four_digits(each.high)}"
        shown.add_row(escape(each.name), four_digits(each.value), interval)
    if by == "source":
        family = loaded.about["strongest"]
        Terminal(stderr=True).print(
            f"pooled {family} on all sources, and without each: the portfolio itself may lose less, where "
            "the target's own rows stand in",
            highlight=False,
            soft_wrap=True,
        )
    Terminal().print(shown)


def _by_source(folder: Path, loaded: SavedModel, judges: Rows, metric: Metric) -> list[Importance]:
    """The sources' worth to the strongest family of a portfolio, from the tables that it was fitted on."""
    from mixtree.cli.fit import table_spec
    from mixtree.cli.options import fit_options
    from mixtree.data.fingerprint import data_fingerprint
    from mixtree.fitting.explain import source_importances
    from mixtree.fitting.prepare import train_network
    from mixtree.fitting.tables import prepare_tables, read_tables

    about = loaded.about
    if "strongest" not in about:
        raise InputError("--by source is for portfolios: of a policy, fit with --attribution loo")
    if about.get("study") is None:
        raise InputError(f"{folder} was saved without its study: use model.explain_(…, sources=…) in Python")
    with closing(open_existing(str(folder))) as storage:
        recipe = fit_recipe(pick(storage, about["study"]))
    if recipe is None:
        raise InputError(f"the study of {folder} was not made by mixtree fit: its sources' rows are unknown")
    values = recipe["values"]
    spec = table_spec([Path(each) for each in recipe["tables"]], values)
    data, options = read_tables(spec, fit_options(values), model=values.get("model"))
    if data_fingerprint(prepare_tables(data, options).given) != about["data"]:
        raise InputError(f"the tables of {folder} have changed since it was fitted: fit again")
    return source_importances(
        replace(data.problem_sources, validation=judges),
        layout=data.preprocessor.layout,
        metric=metric,
        family=about["strongest"],
        trees=about["trees"],
        network=train_network,
        seed=options.seed,
    )
