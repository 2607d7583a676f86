"""``mixtree predict``: from a model folder and a table to predictions."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from mixtree.cli.outputs import check_output
from mixtree.data.files import write_file
from mixtree.errors import InputError
from mixtree.places import said


def add_to(app: typer.Typer) -> None:
    app.command()(predict)


def predict(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that mixtree fit has written.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="Rows to predict.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="CSV or Parquet file for the predictions.")
    ],
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COL",
            help="A column of the table to copy along, an id say; repeat it.",
            show_default="none",
        ),
    ] = None,
    escape_formulas: Annotated[
        bool,
        typer.Option(
            "--escape-formulas",
            help="In a CSV file, put ' before text that a spreadsheet would run (=, +, -, @ …).",
            show_default="off",
        ),
    ] = False,
) -> None:
    """Predict the rows of a table with a fitted model."""
    import polars as pl

    from mixtree.data.drift import unlike
    from mixtree.data.labels import as_column
    from mixtree.data.tables import read_table
    from mixtree.fitting.model_folder import load_model

    _check_output(output, table)
    if escape_formulas and output.suffix != ".csv":
        raise InputError(f"--escape-formulas is for .csv, where text may be a formula; got {output.name!r}")
    loaded = load_model(model)
    frame = read_table(table, text=loaded.preprocessor.text_columns)
    _check_kept(keep or [], table, frame.columns)
    scores = loaded.scores(frame, where=str(table))
    columns: dict[str, Any] = {name: frame[name] for name in keep or ()}
    if loaded.classes is None:
        found: dict[str, Any] = {"prediction": scores}
    else:
        found = {"prediction": as_column(loaded.classes).gather(scores.argmax(axis=1))}
        found |= {f"probability_{_word(label)}": scores[:, n] for n, label in enumerate(loaded.classes)}
    if taken := [name for name in columns if name in found]:
        raise InputError(f"cannot keep the column {taken[0]!r} of {table}: a prediction has this name")
    for warning in unlike(loaded.preprocessor, frame, where=str(table)):
        typer.echo(said(f"warning: {warning}"), err=True)
    predictions = pl.DataFrame(columns | found)
    if escape_formulas:
        predictions = _without_formulas(predictions)
    _write_table(predictions, output)
    typer.echo(said(f"{len(frame)} predictions written to {output}"), err=True)


def _check_output(output: Path, table: Path) -> None:
    if output.suffix not in (".csv", ".parquet"):
        raise InputError(f"predictions are written as .csv or .parquet; got {output.name!r}")
    if not output.parent.is_dir():
        raise InputError(f"cannot write {output}: there is no folder {output.parent}")
    if output.is_dir():
        raise InputError(f"cannot write {output}: it is a folder")
    if output.resolve() == table.resolve():
        raise InputError(f"the predictions would replace the table {table}: name another file (-o)")
    check_output(output)


def _check_kept(keep: list[str], table: Path, columns: list[str]) -> None:
    missing = [name for name in keep if name not in columns]
    if missing:
        raise InputError(f"{table} has no column {missing[0]!r} to keep; it has {', '.join(columns)}")


def _word(label: Any) -> str:
    # As the predictions' own column has it.
    return str(label).lower() if isinstance(label, bool) else str(label)


def _without_formulas(frame: Any) -> Any:
    """Text and names of columns as a spreadsheet shows them, and never runs them: after a quote mark."""
    import polars as pl

    formula = r"^(\s*[=+\-@\t\r＝＋－＠])"
    safe = []
    for column in frame:
        name = re.sub(formula, r"'\1", column.name)
        # Under a plain name: polars takes one such as ^a$ for a pattern.
        values = column.alias("values")
        if values.dtype in (pl.String, pl.Categorical, pl.Enum):
            values = values.cast(pl.String).str.replace(formula, "'${1}")
        safe.append(values.alias(name))
    return pl.DataFrame(safe)


def _write_table(frame: Any, output: Path) -> None:
    """A CSV or Parquet file, whole or not at all."""
    made = io.BytesIO()
    frame.write_csv(made) if output.suffix == ".csv" else frame.write_parquet(made)
    write_file(output, made.getvalue())
