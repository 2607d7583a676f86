"""``mixtree arena``: every method on every task at the same budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    app.command()(arena)


def arena(
    half: Annotated[
        str,
        typer.Option(
            help="design (choices are made on it), confirm (nothing is), undertrained (small budgets, auto "
            "and uniform alone), or all.",
            show_default="confirm; with --tables design",
        ),
    ] = "",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Algorithm ids, separated by commas.", show_default="auto, baselines, searches, peers"
        ),
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Tasks whose names hold this text.", show_default="all")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=10, help="Seeds per task, splits per table.")] = 10,
    workers: Annotated[str, typer.Option(help="Processes, or a Ray cluster: ray, ray:HOST:PORT.")] = "2",
    out: Annotated[
        Path, typer.Option(help="Folder for runs and report; what is there is not run again.")
    ] = Path("mixtree-arena"),
    choices: Annotated[
        bool,
        typer.Option(
            "--choices", help="Measure every choice of auto, changed alone, and other ideas, instead."
        ),
    ] = False,
    docs: Annotated[
        Path | None,
        typer.Option(
            help="Write results/arena.md or results/undertrained.md (with --tables results/tables.md) into "
            "this folder too.",
            show_default="no",
        ),
    ] = None,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables",
            help="Real tables instead: the default fit beside LightGBM, linear models and others.",
        ),
    ] = False,
    n_val: Annotated[
        str | None,
        typer.Option(
            help="With --tables: target rows, separated by commas; own is each table's usual number.",
            show_default="50,150,500",
        ),
    ] = None,
) -> None:
    """Compare methods over the arena's tasks, or over real tables: mean ranks, regret, paired intervals."""
    from mixtree.cli.options import who_works
    from mixtree.errors import InputError
    from mixtree.experiments import choices as changed
    from mixtree.experiments import ideas
    from mixtree.experiments.arena import METHODS, runnable, score, standings, train
    from mixtree.experiments.arenareport import write_report, write_tables
    from mixtree.experiments.parallel import Crew
    from mixtree.experiments.tasks import tasks
    from mixtree.listeners.terminal import Terminal

    if tables:
        _tables(half or "design", methods, only, seeds, who_works(workers), out, docs, n_val)
        return
    if n_val is not None:
        raise InputError("--n-val belongs to --tables")
    half = half or "confirm"
    if half not in ("design", "confirm", "undertrained", "all"):
        raise InputError(f"--half is design, confirm, undertrained or all; got {half!r}")
    chosen = [task for task in tasks() if half in (task.half, "all") and (only is None or only in task.name)]
    if not chosen:
        raise InputError(
            f"no task's name holds {only!r}; the tasks are {', '.join(each.name for each in tasks())}"
        )
    names = [name.strip() for name in methods.split(",")] if methods else list(METHODS)
    errors = Terminal(stderr=True)
    names, missing = runnable(names, chosen[0])
    for line in missing:
        errors.print(line, style="yellow", markup=False)
    if choices:
        for module, function in ((changed, changed.run_choices), (ideas, ideas.run_ideas)):
            with Crew(who_works(workers)) as crew:
                rows = changed.measure(out / module.FILE, function, chosen, seeds=seeds, crew=crew)
            for row in changed.summary(rows, module.PAIRS):
                typer.echo("   ".join(row))
        return
    with Crew(who_works(workers)) as crew:
        train(out, chosen, names, seeds=seeds, crew=crew, say=lambda line: errors.print(line, style="dim"))
        scores = score(out, chosen, seeds=seeds, crew=crew)
    files = write_report(out, scores, chosen)
    if docs is not None:
        found = [
            json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
            for file in (out / changed.FILE, out / ideas.FILE)
        ]
        files.extend(write_tables(docs, scores, chosen, choices=found[0], ideas=found[1]))
    for each in standings(scores):
        typer.echo(f"{each.method:<28} mean rank {each.rank:5.2f}   worst regret {each.worst_regret:5.2f} sd")
    typer.echo(f"written: {', '.join(str(file) for file in files)}")


def _tables(
    half: str,
    methods: str | None,
    only: str | None,
    splits: int,
    workers: int | str,
    out: Path,
    docs: Path | None,
    n_val: str | None,
) -> None:
    """The arena of real tables.

    Parameters
    ----------
    half
        design, confirm or all.
    methods
        Their ids, separated by commas.
    only
        Text that names of tables hold.
    splits
        How often each target is split anew.
    workers
        Processes, or a Ray cluster.
    out
        Folder of the results.
    docs
        Folder of the documentation.
    n_val
        Numbers of target rows, separated by commas.
    """
    from mixtree.errors import InputError
    from mixtree.experiments import tablearena
    from mixtree.experiments.parallel import Crew
    from mixtree.experiments.tables import tables_named
    from mixtree.listeners.terminal import Terminal

    words = [word.strip() for word in (n_val or "").split(",") if word.strip()]
    if wrong := [word for word in words if word != tablearena.OWN_ROWS and not word.isdigit()]:
        raise InputError(f"--n-val is numbers of rows, or {tablearena.OWN_ROWS}; got {wrong[0]!r}")
    rows = [word if word == tablearena.OWN_ROWS else int(word) for word in words]
    errors = Terminal(stderr=True)
    names = [name.strip() for name in methods.split(",")] if methods else list(tablearena.METHODS)
    names, missing = tablearena.runnable(names)
    chosen, absent = tablearena.readable(tables_named(only, half))
    for line in (*missing, *absent):
        errors.print(line, style="yellow", markup=False, soft_wrap=True)
    file = out / tablearena.FILE
    with Crew(workers) as crew:
        tablearena.play(
            file,
            chosen,
            names,
            splits=splits,
            rows=rows,
            crew=crew,
            say=lambda line: errors.print(line, style="dim", markup=False, soft_wrap=True),
        )
    known = {table.name for table in chosen}
    scores = tablearena.read_scores(file)
    for each in tablearena.standings([score for score in scores if score.table in known]):
        typer.echo(
            f"{each.method:<20} mean rank {each.rank:5.2f}   error above the best {100 * each.regret:5.1f} %"
            f"   CPU {each.cpu:6.1f} s"
        )
    typer.echo(f"results: {file}")
    if docs is not None:
        typer.echo(f"written: {tablearena.write_page(docs, scores)}")
