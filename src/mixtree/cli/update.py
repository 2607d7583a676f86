"""``mixtree update``: new labelled rows of the target for a finished portfolio."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixtree.cli.studies import Json, fit_recipe, open_existing, pick
from mixtree.errors import InputError

if TYPE_CHECKING:
    from mixtree.stats.intervals import ScoreInterval


def add_to(app: typer.Typer) -> None:
    app.command()(update)


def update(
    model: Annotated[Path, typer.Argument(metavar="DIR", help="The folder that a fit with --val made.")],
    val: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The rows that validated it, and more.", show_default=False),
    ],
    as_json: Json = False,
) -> None:
    """Score a model on new rows of the target; a portfolio is joined again, and kept if it still wins."""
    from mixtree.cli.fit import table_spec
    from mixtree.cli.options import fit_options
    from mixtree.cli.reports import four_digits, print_answer, print_members
    from mixtree.data.fingerprint import data_fingerprint
    from mixtree.data.tables import load_tables
    from mixtree.fitting.model_folder import (
        load_model,
        read_about,
        read_preprocessor,
        read_weights,
        write_model,
    )
    from mixtree.fitting.tables import prepare_tables, read_tables
    from mixtree.fitting.update import scored_again, update_portfolio
    from mixtree.listeners.terminal import Terminal

    about = read_about(model)
    if about.get("study") is None:
        raise InputError(f"{model} was saved without its study: fit again with the longer rows")
    with closing(open_existing(str(model))) as storage:
        record = pick(storage, about["study"])
        if (recipe := fit_recipe(record)) is None:
            raise InputError(f"the study of {model} was not made by mixtree fit: fit again")
        values = recipe["values"]
        if "val" not in values:
            raise InputError("update is for fits with --val: fit again with the longer --target")
        tables = [Path(each) for each in recipe["tables"]]
        then = {**values, "val": Path(about["validated"])} if "validated" in about else values
        options, preprocessor = fit_options(values), read_preprocessor(model, about)
        data, options = read_tables(table_spec(tables, then), options, model=values.get("model"))
        spec = table_spec(tables, {**values, "val": val})
        longer = load_tables(spec, seed=options.seed, preprocessor=preprocessor)
        if "strongest" not in about:
            rows = data.problem_sources.validation, longer.problem_sources.validation
            _tell_score(scored_again(load_model(model), *rows), about["metric"], as_json=as_json)
            return
        prepared = prepare_tables(data, options)
        if "validated" not in about and data_fingerprint(prepared.given) != about["data"]:
            raise InputError(f"the tables of {model} have changed since it was fitted: fit again")
        found = update_portfolio(prepared, read_weights(model, about), longer.problem_sources)
        if not found.kept:
            verdict = found.verdict.as_dict()
            about |= {
                "members": found.trainer.about(found.state),
                "verdict": verdict,
                "validated": str(val.resolve()),
                "rows": {**about["rows"], "validation": len(longer.problem_sources.validation)},
            }
            arrays = found.trainer.save(found.state)
            write_model(model, arrays=arrays, preprocessor=preprocessor, about=about)
            storage.write_verdict(record.name, verdict)
    told: dict[str, Any] = {
        "kept": found.kept,
        "score": {"value": found.score.value, "low": found.score.low, "high": found.score.high},
        "new_rows": found.score.rows,
        "gain": {"value": found.gain.value, "low": found.gain.low, "high": found.gain.high},
        "members": found.trainer.about(found.state),
        "verdict": found.verdict.as_dict(),
    }
    if as_json:
        typer.echo(json.dumps(told))
        return
    console, score, gain = Terminal(), found.score, found.gain
    print_answer(console, told["verdict"])
    console.print(
        f"as it was, on {score.rows:,} new rows: {about['metric']} {four_digits(score.value)} "
        f"({four_digits(score.low)} … {four_digits(score.high)}); joined again: {gain.value:+.4g} "
        f"({gain.low:+.4g} … {gain.high:+.4g}): {'kept as it was' if found.kept else 'the new weights stay'}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    print_members(console, {**about, "members": told["members"]})


def _tell_score(score: ScoreInterval, metric: str, *, as_json: bool) -> None:
    """A policy's model on the new rows; its study would have to run again for them to choose."""
    from mixtree.cli.reports import four_digits

    if as_json:
        shown = {"value": score.value, "low": score.low, "high": score.high}
        typer.echo(json.dumps({"kept": True, "score": shown, "new_rows": score.rows}))
        return
    typer.echo(
        f"as it was, on {score.rows:,} new rows: {metric} {four_digits(score.value)} "
        f"({four_digits(score.low)} … {four_digits(score.high)}); kept: fit again with these rows as "
        "--val to let them choose"
    )
