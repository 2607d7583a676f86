"""The command ``mixtree``: one file per command group; heavy packages are imported inside the commands."""

from __future__ import annotations

import sys

import typer

from mixtree.cli import compare, demo, fit, studies
from mixtree.errors import InputError, MixtreeError, StudyInterrupted

app = typer.Typer(
    name="mixtree",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Find the mixture of training sources, and the model, that do best on a target unlike any of them.",
)
for group in (fit, compare, studies, demo):
    group.add_to(app)


def _version(wanted: bool) -> None:
    if wanted:
        from mixtree import __version__

        typer.echo(f"mixtree {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Exit code 0 when all went well, 2 for bad input, 1 for a failure, 130 for Ctrl-C."""
    try:
        app()
    except StudyInterrupted as stopped:
        typer.secho(f"mixtree: {stopped}", fg="yellow", err=True)
        sys.exit(130)
    except MixtreeError as error:
        typer.secho(f"mixtree: {error}", fg="red", err=True)
        sys.exit(2 if isinstance(error, InputError) else 1)
