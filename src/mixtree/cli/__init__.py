"""The command ``mixtree``: one file per command group; heavy packages are imported inside the commands."""

from __future__ import annotations

import io
import sys
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from mixtree.cli import (
    arena,
    compare,
    demo,
    explain,
    fit,
    plan,
    predict,
    reproduce,
    simulate,
    studies,
    theory,
    update,
)
from mixtree.errors import InputError, MixtreeError
from mixtree.places import said


class _Commands(TyperGroup):
    """The commands; Ctrl-C says how to go on, which typer would swallow, and exits with 130."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if isinstance(told := getattr(error, "message", None), str):  # typer prints its own errors itself
                error.message = said(told)  # type: ignore[attr-defined]
            raise
        except KeyboardInterrupt as stopped:
            typer.secho(f"mixtree: {said(str(stopped)) or 'stopped'}", fg="yellow", err=True)
            raise typer.Exit(130) from stopped


app = typer.Typer(
    name="mixtree",
    cls=_Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Find the mixture of training sources, and the model, that do best on a target unlike any of them.",
)
for group in (
    plan, fit, predict, explain, update, compare, studies, demo, reproduce, arena, theory, simulate,
):  # fmt: skip
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


def _warn(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """A warning for people: what, not where in the code."""
    typer.secho(f"warning: {said(str(message))}", fg="yellow", err=True)


def main() -> None:
    """Exit code 0 when all went well, 2 for bad input, 1 for a failure, 130 for Ctrl-C."""
    warnings.showwarning = _warn
    for stream in (sys.stdout, sys.stderr):
        # Signs that the terminal's encoding lacks, such as → in cp1252, are spelt out: they end no command.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except (MixtreeError, OSError) as error:
        typer.secho(f"mixtree: {' '.join(said(str(error)).splitlines())}", fg="red", err=True)
        sys.exit(2 if isinstance(error, InputError) else 1)
    except MemoryError as error:
        told = f"mixtree: out of memory ({error}): use fewer rows or a smaller --batch-size"
        typer.secho(told, fg="red", err=True)
        sys.exit(1)
