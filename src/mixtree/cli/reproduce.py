"""``mixtree reproduce``: the paper's experiments with one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from mixtree.experiments.report import Report
    from mixtree.experiments.specs import SettingName


def add_to(app: typer.Typer) -> None:
    app.command()(reproduce)


def reproduce(
    experiment: Annotated[
        str,
        typer.Argument(help="allstate, wine-price, wine-quartile, amazon, flights (needs no download), all."),
    ],
    authors_settings: Annotated[
        bool, typer.Option("--authors-settings", help="The authors' ν, ρ, η, λ and way to search.")
    ] = False,
    tuned: Annotated[
        bool, typer.Option("--tuned", help="η, λ, ν, ρ tuned by Optuna on validation rows of other splits.")
    ] = False,
    repeats: Annotated[
        int, typer.Option(min=2, help="Repeats, each with its own split, model and streams.")
    ] = 10,
    out: Annotated[Path, typer.Option(help="Folder for runs, tables and figures.")] = Path(
        "mixtree-reproduce"
    ),
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    quick: Annotated[bool, typer.Option("--quick", help="Two repeats, two budgets: a first look.")] = False,
    docs: Annotated[
        Path | None,
        typer.Option(
            help="Write reproduction.md and its figures here; with 'all': every setting it shows.",
            show_default="no page",
        ),
    ] = None,
) -> None:
    """Run the paper's experiments again: all algorithms, same budgets, test rows read only at the end.

    Every run is stored in the folder: a run that has finished is not run again, so an interrupted command
    goes on where it was.
    """
    from rich.console import Console

    from mixtree.experiments.document import PAGE, write_page
    from mixtree.experiments.parallel import Crew
    from mixtree.experiments.report import carry_out
    from mixtree.experiments.specs import EXPERIMENTS, experiments

    # Plain text: ":Spain:" is a source here, not a flag.
    progress = Console(stderr=True, markup=False, emoji=False, highlight=False)
    console = Console(markup=False, emoji=False, highlight=False)
    chosen = experiments(experiment)
    settings: list[SettingName] = []
    settings += ["authors"] if authors_settings else []
    settings += ["tuned"] if tuned else []
    pairs = [(each, setting) for setting in settings or ["ours"] for each in chosen]
    if docs is not None and experiment == "all" and not settings:
        pairs = [(EXPERIMENTS[name], setting) for name, setting in PAGE]
    size = {"repeats": 2, "points": 2} if quick else {"repeats": repeats}

    def say(line: str) -> None:
        progress.print(line, style="dim")

    results = []
    with Crew(workers) as crew:
        for each, setting in pairs:
            result = carry_out(each, setting, out, crew=crew, say=say, **size)
            _show(result, console)
            results.append(result)
    console.print(f"Runs, tables and figures are in {out}.")
    if docs is not None:
        console.print(f"Written: {write_page(docs, results, work=out)}")


def _show(result: Report, console: Console) -> None:
    from rich.table import Table

    from mixtree.experiments.report import expansion_lines

    console.print(f"\n{result.title}", style="bold")
    scores = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("algorithm", f"test {result.plan.experiment.score}", "validation", "steps"):
        scores.add_column(column, justify="left" if column == "algorithm" else "right", no_wrap=True)
    for cell in result.final():
        test = f"{cell.test:.4f} ± {cell.sd:.4f}"
        scores.add_row(cell.algorithm, test, f"{cell.validation:.4f}", f"{cell.spent:.0f}")
    console.print(scores)
    claims = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("the paper says", "we measured (95 % interval)", "holds?"):
        claims.add_column(column)
    for each in result.verdicts:
        gap = each.advantage
        measured = f"{each.left} − {each.right}: {gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
        style = "green" if each.holds else "red"
        claims.add_row(each.claim.text, measured, "yes" if each.holds else "no", style=style)
    console.print(claims)
    if result.plan.setting == "authors":
        console.print("\n".join(expansion_lines(result)))
