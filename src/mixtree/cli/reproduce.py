"""``mixtree reproduce``: the paper's experiments with one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from mixtree.experiments.report import Report
    from mixtree.listeners.terminal import Terminal


REPEATS = 10
"""The paper's."""


def add_to(app: typer.Typer) -> None:
    app.command()(reproduce)


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(help="allstate, wine-price, wine-quartile, amazon, flights (needs no download), all."),
    ],
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="authors: their η and way to search; shared: the best η for uniform; own: the best η of "
            "every algorithm; optuna: η, λ, ν, ρ together. Repeat it.",
            show_default="authors, shared, own",
        ),
    ] = None,
    authors_settings: Annotated[
        bool, typer.Option("--authors-settings", help="The same as --setting authors.")
    ] = False,
    features: Annotated[
        Literal["core", "notes"],
        typer.Option(help="Of the wine experiments: points and variety, or the paper's tasting notes."),
    ] = "core",
    repeats: Annotated[
        int, typer.Option(min=2, help="Repeats, each with its own split, model and streams.")
    ] = REPEATS,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")] = Path(
        "mixtree-reproduce"
    ),
    workers: Annotated[str, typer.Option(help="Processes, or a Ray cluster: ray, ray:HOST:PORT.")] = "2",
    quick: Annotated[
        bool, typer.Option("--quick", help="The paper's budget only, not those on the way to it.")
    ] = False,
    docs: Annotated[
        Path | None,
        typer.Option(
            help="Write reproduction.md, results and figures here.",
            show_default="no pages",
        ),
    ] = None,
) -> None:
    """Run the paper's experiments again: all algorithms, same budgets, test rows read only at the end.

    Every run is stored in the folder: a run that has finished is not run again, so an interrupted command
    goes on where it was.
    """
    from mixtree.cli.options import who_works
    from mixtree.experiments.claims import LEAST_PAIRS
    from mixtree.experiments.document import too_few, write_pages
    from mixtree.experiments.parallel import Crew
    from mixtree.experiments.report import DEFAULT_SETTINGS, as_setting, carry_out, draw
    from mixtree.experiments.reproduce import GRID
    from mixtree.experiments.specs import experiments
    from mixtree.listeners.terminal import Terminal

    # Plain text: ":Spain:" is a source here, not a flag.
    progress = Terminal(stderr=True, markup=False, highlight=False)
    console = Terminal(markup=False, highlight=False)
    chosen = experiments(experiment, features=features)
    wanted = [as_setting(name) for name in [*(["authors"] if authors_settings else []), *(setting or [])]]
    points = 1 if quick else GRID
    if repeats < LEAST_PAIRS:
        console.print(too_few(repeats), style="yellow")

    def say(line: str) -> None:
        progress.print(line, style="dim")

    results, drawn = [], []
    with Crew(who_works(workers)) as crew:
        for each in chosen:
            own = [
                carry_out(each, name, out, crew=crew, repeats=repeats, points=points, say=say)
                for name in dict.fromkeys(wanted or DEFAULT_SETTINGS)
            ]
            for result in own:
                _show(result, console)
            drawn += draw(own, out / "figures")
            results += own
    console.print(f"Runs, tables and figures are in {out}.")
    if docs is not None:
        options = [f"--setting {name}" for name in dict.fromkeys(wanted)]
        options += [f"--features {features}"] if features != "core" else []
        options += [f"--repeats {repeats}"] if repeats != REPEATS else []
        options += ["--quick"] if quick else []
        command = " ".join(["mixtree reproduce", experiment, *options, "--docs docs"])
        pages = write_pages(docs, results, drawn=drawn, command=command)
        console.print(f"Written: {', '.join(map(str, pages))}")


def _show(result: Report, console: Terminal) -> None:
    from rich.table import Table

    from mixtree.experiments.report import expansion_lines, measured, outcome_words, shares

    plan, experiment = result.plan, result.plan.experiment
    console.print(f"\n{result.title}", style="bold")
    console.print(
        f"{experiment.title} Λ = {result.full} batches of {experiment.batch}, {experiment.steps} per node, "
        f"{plan.repeats} repeats."
    )
    scores = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("algorithm", "η", f"test {experiment.metric.name}", "spent", "seen"):
        scores.add_column(column, justify="left" if column == "algorithm" else "right", no_wrap=True)
    for cell in result.final():
        test = f"{cell.test:.{result.digits}f} ± {cell.sd:.{result.digits}f}"
        scores.add_row(cell.algorithm, f"{cell.lr:.3g}", test, f"{cell.spent:.0f}", f"{cell.trained:.0f}")
    console.print(scores)
    console.print("Mixtures found, means over the repeats:")
    for cell in result.final():
        if cell.algorithm.startswith(("mixmatch", "mmd")):
            console.print(f"- {cell.algorithm}: {shares(cell.mixture)}")
    for sweep in result.sweeps.values():
        if sweep.warning and (plan.setting == "own" or sweep.algorithm == "uniform"):
            console.print(f"η of {sweep.algorithm}: {sweep.warning}", style="yellow")
    styles = {"holds": "green", "refuted": "red", "undecided": "yellow"}
    console.print("Claims, with 95 % intervals; of several pairs the one that fares worst:")
    for each in result.verdicts:
        outcome = outcome_words(each, repeats=plan.repeats)
        numbers = measured(each.claim, each.shown, result.digits)
        console.print(f"- {each.claim.text}: {outcome}", style=styles[each.outcome])
        console.print(f"  {numbers}: {each.shown.reason}")
    if plan.setting == "authors":
        console.print("\n".join(expansion_lines(result)))
