"""``mixtree list``, ``show``, ``export``, ``delete``, ``copy``: studies that are stored already."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mixtree.storage.base import StudyRecord
    from mixtree.storage.sql import SqlStorage
    from mixtree.tree import Tree

Where = Annotated[
    str, typer.Argument(metavar="URL", help="A study file, an --out folder, or a database URL.")
]
Name = Annotated[
    str | None, typer.Argument(metavar="STUDY", help="The study; not needed if there is one only.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def add_to(app: typer.Typer) -> None:
    app.command(name="list")(list_studies)
    for command in (show, export, delete, copy):
        app.command()(command)


def open_existing(url: str) -> SqlStorage:
    """The storage at a file, in an --out folder, or behind a URL; never a new, empty one."""
    from mixtree.errors import InputError
    from mixtree.storage.sql import open_storage

    if "://" not in url:
        file = Path(url)
        file = file / "study.db" if file.is_dir() else file
        if not file.exists():
            raise InputError(f"there is no study file {file}: give the file or the folder that --out made")
        url = str(file)
    return open_storage(url)


def pick(storage: SqlStorage, name: str | None) -> StudyRecord:
    """The study of this name, or the only one."""
    from mixtree.errors import InputError

    if name is not None:
        return storage.load(name)
    studies = storage.studies()
    if len(studies) != 1:
        names = ", ".join(study.name for study in studies) or "none"
        raise InputError(f"{storage.where} has {len(studies)} studies ({names}): say which one")
    return studies[0]


def list_studies(url: Where, as_json: Json = False) -> None:
    """List the studies of a file or database."""
    from rich.console import Console
    from rich.table import Table

    storage = open_existing(url)
    rows = [summary(storage, study) for study in storage.studies()]
    if as_json:
        typer.echo(json.dumps({"studies": rows}))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("study", "status", "spent / budget", "nodes", "best value", "updated"):
        table.add_column(heading)
    for row in rows:
        spent = f"{sum(row['spent'].values())} / {row['budget']}"
        table.add_row(
            row["study"], row["status"], spent, str(row["nodes"]), _short(row["value"]), row["updated"]
        )
    Console().print(table)


def show(url: Where, study: Name = None, as_json: Json = False) -> None:
    """Show what a study found, where its steps went, and what happened on the way."""
    from rich.console import Console

    storage = open_existing(url)
    record = pick(storage, study)
    about = summary(storage, record)
    about["events"] = [[each.at, each.kind, each.message] for each in storage.events(record.name)]
    if as_json:
        typer.echo(json.dumps(about))
        return
    console = Console()
    console.print(
        f"[bold]{record.name}[/bold]: {record.status}, chosen by rule '{record.rule or 'none yet'}'"
    )
    spent = ", ".join(f"{phase} {steps}" for phase, steps in about["spent"].items())
    console.print(f"spent {sum(about['spent'].values())} of {record.budget} steps ({spent or 'nothing yet'})")
    if about["mixture"]:
        mixture = ", ".join(f"{name} {weight:.3f}" for name, weight in about["mixture"].items())
        console.print(f"mixture: {mixture}\nvalue on the validation rows: {_short(about['value'])}")
    _print_nodes(console, _tree(storage, record))
    for at, kind, message in about["events"]:
        console.print(f"{at} {kind}: {message}", style="dim", highlight=False)


def export(
    url: Where,
    study: Name = None,
    form: Annotated[
        str,
        typer.Option("--format", help="json, huggingface, megatron, axolotl, mosaic or sampler."),
    ] = "json",
) -> None:
    """Print the mixture a study found in a form that other trainers read."""
    from mixtree.errors import InputError
    from mixtree.export import export_mixture

    storage = open_existing(url)
    record = pick(storage, study)
    mixture = summary(storage, record)["mixture"]
    if not mixture:
        raise InputError(f"study {record.name!r} has no result yet (it is {record.status}): resume it")
    sizes = (record.recipe or {}).get("rows")
    typer.echo(export_mixture(mixture, form, sizes=sizes))


def delete(
    url: Where,
    study: Annotated[str, typer.Argument(metavar="STUDY")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a study with its models."""
    storage = open_existing(url)
    storage.load(study)
    if not yes:
        typer.confirm(f"Delete study {study!r} in {storage.where} with all its models?", abort=True)
    storage.delete(study)


def copy(
    url: Where,
    study: Annotated[str, typer.Argument(metavar="STUDY")],
    new: Annotated[str, typer.Argument(metavar="NEW")],
) -> None:
    """Copy a study with its models to a new name."""
    open_existing(url).copy(study, new)


def summary(storage: SqlStorage, record: StudyRecord) -> dict[str, Any]:
    """What is known of a study, as plain data."""
    from mixtree.study import source_names

    tree = _tree(storage, record)
    best = tree.get(record.best) if record.best is not None else None
    mixture = {}
    if best is not None:
        names = source_names(record, best.mixture)
        mixture = dict(zip(names, best.mixture.tolist(), strict=True))
    return {
        "study": record.name,
        "status": record.status,
        "rule": record.rule,
        "mixture": mixture,
        "value": best.value if best is not None and isfinite(best.value) else None,
        "budget": record.budget,
        "spent": tree.spent,
        "nodes": len(tree),
        "depth": tree.depth,
        "seed": record.seed,
        "created": record.created,
        "updated": record.updated,
    }


def _tree(storage: SqlStorage, record: StudyRecord) -> Tree:
    from mixtree.study import stored_tree

    return stored_tree(storage, record.name)


def _print_nodes(console: Any, tree: Tree, most: int = 10) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", title=f"best {most} of {len(tree)} nodes")
    for heading in ("path", "phase", "value", "± se", "steps", "mixture"):
        table.add_column(heading)
    for node in sorted(tree.values(), key=lambda each: each.value)[:most]:
        path = "/".join(map(str, node.path)) or "root"
        mixture = " ".join(f"{weight:.2f}" for weight in node.mixture)
        table.add_row(
            path, node.phase, _short(node.value), _short(node.standard_error), str(node.steps), mixture
        )
    console.print(table)


def _short(value: float | None) -> str:
    return "–" if value is None or not isfinite(value) else f"{value:.4f}"
