"""``mixtree list``, ``show``, ``export``, ``delete``, ``copy``: studies that are stored already."""

from __future__ import annotations

import json
from contextlib import closing
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mixtree.cli.options import FIT
from mixtree.cli.outputs import check_output
from mixtree.data.files import unsettled, write_file
from mixtree.data.plain import ANY_TEXT, AT_LEAST_ONE, check

if TYPE_CHECKING:
    from mixtree.storage.base import StudyRecord
    from mixtree.storage.sql import SqlStorage
    from mixtree.tree import Tree

Where = Annotated[
    str, typer.Argument(metavar="URL", help="A study file, an --out folder, or a database URL.")
]
Name = Annotated[
    str | None,
    typer.Argument(metavar="STUDY", help="The study's name.", show_default="the only one there is"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.", show_default="off")]


def add_to(app: typer.Typer) -> None:
    app.command(name="list")(list_studies)
    for command in (show, export, delete, copy):
        app.command()(command)


def open_existing(url: str) -> SqlStorage:
    """The storage at a file, in an --out folder, or behind a URL; never a new, empty one."""
    from mixtree.errors import InputError, StorageError
    from mixtree.storage.sql import database_file, open_storage

    # SQLite would make the file that is not there.
    url = database_file(url)
    if "://" in url:
        return open_storage(url)
    file = _study_file(Path(url))
    if not file.is_file():
        raise InputError(f"there is no study file {file}: give the file or the folder that --out made")
    try:
        return open_storage(file)
    except StorageError as error:
        raise InputError(str(error)) from error


def _study_file(place: Path) -> Path:
    """The file itself, the one in an --out folder, or the one that the model there names."""
    file = place / "study.db" if place.is_dir() else place
    if not place.is_dir() or (file.exists() and not unsettled(place)):
        return file
    from mixtree.errors import InputError
    from mixtree.fitting.model_folder import has_model, read_about

    if not has_model(place) or file.exists():
        return file
    stored = str(read_about(place).get("storage") or file)
    if "://" in stored:
        raise InputError(f"the study of {place} is at {stored}: give that URL, with its password")
    return Path(stored)


def pick(storage: SqlStorage, name: str | None) -> StudyRecord:
    """The study of this name, or the only one."""
    from mixtree.errors import InputError

    studies = {study.name: study for study in storage.studies()}
    names = ", ".join(map(repr, studies)) or "none"
    if name is not None and name not in studies:
        raise InputError(f"there is no study {name!r} in {storage.where}; its studies: {names}")
    if not studies:
        raise InputError(f"there is no study in {storage.where}")
    if name is None and len(studies) != 1:
        raise InputError(f"{storage.where} has {len(studies)} studies ({names}): say which one")
    return studies[name] if name is not None else next(iter(studies.values()))


_KINDS = {Path: ANY_TEXT, list[str]: [ANY_TEXT]}
_RECIPE = {
    "tables": [ANY_TEXT],
    "values": {f"{flag.name}?": _KINDS.get(flag.kind, flag.kind) for flag in FIT} | {"out": ANY_TEXT},
    "chosen": {
        "steps": AT_LEAST_ONE,
        "batch_size": AT_LEAST_ONE,
        "budget": AT_LEAST_ONE,
        "unit": str,
        "holdout?": (None, float),
        "policy?": str,
    },
}


def fit_recipe(record: StudyRecord) -> dict[str, Any] | None:
    """How mixtree fit began a study: its tables, its options, what was chosen; None if others began it."""
    from mixtree.errors import StorageError

    if record.recipe is None or record.recipe.get("command") != "fit":
        return None
    try:
        check(record.recipe, _RECIPE)
    except ValueError as error:
        raise StorageError(
            f"the recipe of study {record.name!r} was altered or damaged ({error}): take the study's file "
            "from a copy, or fit again into another one"
        ) from error
    return record.recipe


def list_studies(url: Where, as_json: Json = False) -> None:
    """List the studies of a file or database."""
    from rich.markup import escape
    from rich.table import Table

    from mixtree.cli.reports import four_digits
    from mixtree.listeners.terminal import Terminal

    with closing(open_existing(url)) as storage:
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
            escape(row["study"]),
            row["status"],
            spent,
            str(row["nodes"]),
            four_digits(row["value"]),
            row["updated"],
        )
    Terminal().print(table)


def show(
    url: Where,
    study: Name = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print the verdict's notes too.", show_default="off")
    ] = False,
    as_tree: Annotated[
        bool, typer.Option("--tree", help="Print every node below its parent.", show_default="off")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what a study found, where its steps went, and what happened on the way."""
    from rich.markup import escape

    from mixtree.cli.place import is_portfolio
    from mixtree.cli.reports import (
        four_digits,
        mixture_words,
        print_answer,
        print_comparisons,
        print_members,
        print_model,
        print_notes,
        print_warnings,
    )
    from mixtree.data.allocation import named
    from mixtree.listeners.terminal import Terminal
    from mixtree.planning.certificate import certificate_of

    folder = Path(url)
    if (saved := _saved_model(folder)) is not None:
        if as_json:
            typer.echo(json.dumps(saved))
        else:
            print_model(Terminal(), folder, saved)
        return
    with closing(open_existing(url)) as storage:
        record = pick(storage, study)
        about, tree = summary(storage, record), _tree(storage, record)
        happened = storage.events(record.name)
        about["events"] = [[each.at, each.kind, each.message] for each in happened]
        about["verdict"] = storage.verdict(record.name)
        about["models"] = storage.models(record)
        sure = None if is_portfolio(record) else certificate_of(storage, record)
    about["certificate"] = None if sure is None else sure.as_dict()
    about["data"], about["at_odds"] = record.data, _at_odds(url, record)
    about["decided"] = list(record.notes)
    model = _model_beside(url, record)
    members = model is not None and model.get("study") == record.name and model.get("members")
    about["members"] = members or []
    if as_json:
        if as_tree:
            about["tree"] = [
                {
                    "path": node.path,
                    "phase": node.phase,
                    "steps": node.steps,
                    "value": node.value if isfinite(node.value) else None,
                    "mixture": named(record.config.get("sources", ()), node.mixture),
                }
                for node in tree.values()
            ]
        typer.echo(json.dumps(about))
        return
    console, verdict = Terminal(), about["verdict"]
    if verdict is not None:
        print_answer(console, verdict)
    print_warnings(Terminal(stderr=True), [about["at_odds"]] if about["at_odds"] else [])
    console.print(
        f"[bold]{escape(record.name)}[/bold]: {record.status}, chosen by rule '{record.rule or 'none yet'}'"
    )
    for note in record.notes:
        console.print(f"decided: {note}", markup=False, highlight=False, soft_wrap=True)
    spent = ", ".join(f"{phase} {steps}" for phase, steps in about["spent"].items())
    console.print(f"spent {sum(about['spent'].values())} of {record.budget} steps ({spent or 'nothing yet'})")
    if about["mixture"]:
        mixture = mixture_words(about["mixture"])
        console.print(
            f"mixture: {mixture}\nvalue on the validation rows: {four_digits(about['value'])}", markup=False
        )
    if model is not None and members:
        print_members(console, model)
    if verdict is not None:
        print_comparisons(console, verdict)
        print_warnings(console, verdict["warnings"])
        if verbose or is_portfolio(record):
            print_notes(console, verdict)
    if as_tree:
        _print_tree(console, record, tree)
    elif not is_portfolio(record):
        _print_nodes(console, record, tree)
    if verdict is None and record.status == "finished" and record.recipe is not None:
        words = (
            "its search has finished, its verdict and its model are not written yet: mixtree resume does it"
        )
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    if sure is not None:
        console.print(f"certificate: {sure.sentence}", markup=False, highlight=False, soft_wrap=True)
        for line in sure.details:
            console.print(f"- {line}", style="dim", markup=False, highlight=False, soft_wrap=True)
    if about["models"] is not None:
        console.print(f"models: {about['models']}", markup=False, highlight=False, soft_wrap=True)
    for at, kind, message in about["events"]:
        console.print(f"{at} {kind}: {message}", style="dim", highlight=False, markup=False)


def _saved_model(folder: Path) -> dict[str, Any] | None:
    """What is known of a model that was saved from Python, whose study is not kept."""
    from mixtree.fitting.model_folder import has_model, read_about

    if "://" in str(folder) or not folder.is_dir() or (folder / "study.db").exists() or not has_model(folder):
        return None
    about = read_about(folder)
    return about if about.get("study", "") is None else None


def _folder_of(url: str, record: StudyRecord) -> Path | None:
    """The model folder that belongs to a study, if there is one."""
    from mixtree.fitting.model_folder import has_model
    from mixtree.storage.sql import database_file

    given = Path(database_file(url))
    folders = [given, given.parent] if given.name == "study.db" else [given]
    folders += [] if (recipe := fit_recipe(record)) is None else [Path(recipe["values"]["out"])]
    return next((each for each in folders if has_model(each)), None)


def _model_beside(url: str, record: StudyRecord) -> dict[str, Any] | None:
    """What is known of the model in the folder of a study."""
    from mixtree.fitting.model_folder import read_about

    folder = _folder_of(url, record)
    return None if folder is None else read_about(folder)


def _at_odds(url: str, record: StudyRecord) -> str | None:
    """Whether the model in the folder is not the one of this study and its data, in words."""
    folder, about = _folder_of(url, record), _model_beside(url, record)
    if folder is None or about is None:
        return None
    if about.get("study") != record.name:
        return f"the model in {folder} is that of study {about.get('study')!r}, not of this one"
    if about.get("data") != record.data:
        then, now = (str(each)[:8] for each in (about.get("data"), record.data))
        return f"the model in {folder} was trained on other data ({then}) than this study ({now})"
    return None


def export(
    url: Where,
    study: Name = None,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORM",
            help="json, huggingface, megatron, axolotl, mosaic, sampler; onnx: the model of an --out folder.",
        ),
    ] = "json",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write.", show_default="stdout"),
    ] = None,
) -> None:
    """Print the mixture a study found in a form that other trainers read, or write its model as ONNX."""
    from mixtree.errors import InputError
    from mixtree.export.mixture import export_mixture

    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise InputError(f"cannot write {output}: name a file in a folder that exists")
    if output is not None:
        check_output(output)
    if form == "onnx":
        _export_onnx(Path(url), output)
        return
    with closing(open_existing(url)) as storage:
        record = pick(storage, study)
        mixture = summary(storage, record)["mixture"]
    if not mixture:
        raise InputError(f"study {record.name!r} has no result yet (it is {record.status}): resume it")
    # Fits of an older version have them in their recipe.
    sizes = record.sizes or (record.recipe or {}).get("rows")
    text = export_mixture(mixture, form, sizes=sizes)
    typer.echo(text) if output is None else write_file(output, text + "\n")


def _export_onnx(folder: Path, output: Path | None) -> None:
    from mixtree.errors import InputError
    from mixtree.export.onnx import to_onnx

    if output is None:
        raise InputError("an ONNX model is a file: say where it shall go (-o model.onnx)")
    write_file(output, to_onnx(folder))


def delete(
    url: Where,
    study: Annotated[str, typer.Argument(metavar="STUDY", help="The study's name.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.", show_default="off")] = False,
) -> None:
    """Delete a study with its models."""
    with closing(open_existing(url)) as storage:
        pick(storage, study)
        if not yes:
            typer.confirm(f"Delete study {study!r} in {storage.where} with all its models?", abort=True)
        storage.delete(study)


def copy(
    url: Where,
    study: Annotated[str, typer.Argument(metavar="STUDY", help="The study's name.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The name of the copy.")],
) -> None:
    """Copy a study with its models to a new name."""
    from mixtree.errors import InputError

    with closing(open_existing(url)) as storage:
        pick(storage, study)
        if new in [each.name for each in storage.studies()]:
            raise InputError(f"{storage.where} has a study {new!r} already: choose another name")
        storage.copy(study, new)


def summary(storage: SqlStorage, record: StudyRecord) -> dict[str, Any]:
    """What is known of a study, as plain data."""
    from mixtree.engine.study import reported

    tree = _tree(storage, record)
    best = tree.get(record.best) if record.best is not None else None
    mixture = {} if best is None else reported(record, tree, best)
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
    from mixtree.engine.study import stored_tree

    return stored_tree(storage.nodes(record.name))


def _print_tree(console: Any, record: StudyRecord, tree: Tree) -> None:
    """A line for every node, below its parent and further in; the chosen one has an arrow."""
    from mixtree.cli.reports import four_digits, mixture_words
    from mixtree.data.allocation import named

    for path in sorted(tree):
        node = tree[path]
        line = f"{'  ' * len(path)}{path[-1] if path else 'root'}: {node.phase}, {node.steps} steps, "
        line += f"loss {four_digits(node.value)}"
        # Parts of the target's rows have no name here.
        if mixture := mixture_words(
            named(record.config.get("sources", ()), node.mixture), digits=2, least=1e-300
        ):
            line += f", {mixture}"
        mark = " ←" if path == record.best else ""
        console.print(line + mark, markup=False, highlight=False, soft_wrap=True)


def _print_nodes(console: Any, record: StudyRecord, tree: Tree, most: int = 10) -> None:
    from rich.markup import escape
    from rich.table import Table

    from mixtree.cli.reports import four_digits, mixture_words
    from mixtree.data.allocation import Allocation, given, named

    # Trained on validation rows, a model looks better on them than it is: those are no candidates here.
    known = record.config.get("sources", ())
    count = len(given(known)) or max(len(node.mixture) for node in tree.values())
    fair = [node for node in tree.values() if not Allocation.of(node.mixture, count).own]
    best = sorted(fair, key=lambda each: each.value)[:most]
    title = f"best {len(best)} of {len(tree)} nodes by loss on the validation rows"
    if len(fair) < len(tree):
        title += f"; {len(tree) - len(fair)} trained on those rows are not listed"
    if record.best is not None and record.best in tree and record.best not in {node.path for node in best}:
        best.append(tree[record.best])
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for heading in ("", "path", "phase", "loss", "± se", "steps"):
        table.add_column(heading)
    table.add_column("mixture", overflow="fold")
    for node in best:
        path = "/".join(map(str, node.path)) or "root"
        mixture = mixture_words(named(known, node.mixture), digits=2, least=1e-300)
        numbers = four_digits(node.value), four_digits(node.standard_error), str(node.steps)
        mark = "→" if node.path == record.best else ""
        table.add_row(mark, path, node.phase, *numbers, escape(mixture))
    console.print(table)
