"""``mixtree demo``: the default fit beside what people use today, on a real table, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from mixtree.experiments.comparison import Summary


def add_to(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    target: Annotated[
        Literal["state", "new", "known"],
        typer.Option(
            help="'state': crashes in a new state; flights: 'new', a carrier that is no source (F9), or "
            "'known', a known mixture of the sources."
        ),
    ] = "state",
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Repeats, each with its own split and model.", show_default="2, of flights 3"
        ),
    ] = None,
    budget: Annotated[
        int, typer.Option(min=1, help="Of flights: SGD steps (batches of 50) for every algorithm.")
    ] = 1500,
    steps: Annotated[int, typer.Option(min=1, help="Of flights: SGD steps per node of the search.")] = 50,
    effort: Annotated[
        Literal["quick", "normal", "thorough"], typer.Option(help="Of the default fit on crashes.")
    ] = "normal",
    out: Annotated[Path, typer.Option(help="Folder for the table and the figure.")] = Path("mixtree-demo"),
) -> None:
    """A model for a new state, or a new carrier: ours beside what people use today."""
    if target == "state":
        _crashes(seeds or 2, effort, out)
    else:
        _flights(target, seeds or 3, budget, steps, out)


def _crashes(seeds: int, effort: str, out: Path) -> None:
    """Who of the people in a fatal crash died? Six states teach, a seventh has 200 labelled rows."""
    from mixtree.experiments.demo import DEFAULT, OWN, STATE, run_table_demo
    from mixtree.experiments.output import write_comparison
    from mixtree.listeners.terminal import Terminal

    console = Terminal()
    runs, summaries, verdict = run_table_demo(
        seeds=seeds, effort=effort, tell=lambda name: console.print(f"… {name}", style="dim")
    )
    console.print(
        f"\nWho in a fatal crash died? Sources: six states; target: {STATE}, with {OWN} labelled rows."
    )
    console.print(_scores(summaries, DEFAULT))
    console.print(
        "AUROC on all other rows of the target, which no method saw; higher is better. The mean of so few "
        "splits of one table is uncertain: docs/results/ has many.",
        style="dim",
    )
    console.print(f"\nThe verdict of the first {DEFAULT}, which knows none of the scores above:\n{verdict}")
    title = f"Crashes, target: {STATE}"
    files = write_comparison(out, runs, summaries, metric="AUROC", title=title)
    console.print(f"Written to {out}: {', '.join(path.name for path in files)}")


def _scores(summaries: list[Summary], ours: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method", no_wrap=True)
    table.add_column("AUROC", justify="right", no_wrap=True)
    table.add_column("CPU", justify="right", no_wrap=True)
    for each in summaries:
        style = "green" if each.algorithm == ours else ""
        score = f"{each.score:.3f} ± {each.sd:.3f}" if each.repeats > 1 else f"{each.score:.3f}"
        table.add_row(each.algorithm, score, f"{each.cpu:.1f}s", style=style)
    return table


def _flights(target: Literal["new", "known"], seeds: int, budget: int, steps: int, out: Path) -> None:
    """Which carriers should a delay model for a new carrier be trained on? All algorithms, same budget."""
    from mixtree.experiments.demo import demo_algorithms, run_demo
    from mixtree.experiments.output import write_comparison
    from mixtree.listeners.progress import ComparisonProgress
    from mixtree.listeners.terminal import Terminal

    console = Terminal()
    algorithms = demo_algorithms(target)
    with ComparisonProgress(len(algorithms) * seeds * budget) as progress:
        runs, summaries = run_demo(
            target=target, seeds=seeds, budget=budget, steps=steps, listeners=[progress.listen]
        )
    title = "a new carrier, F9" if target == "new" else "a known mixture of the four carriers"
    console.print(
        "\nWill a flight arrive more than 15 minutes late? "
        f"Sources: carriers UA, B6, EV, DL; target: {title}."
    )
    console.print(_table(summaries))
    console.print(
        "AUROC on test rows that no algorithm saw, mean ± sd over the seeds; higher is better. "
        f"A mean over {seeds} seeds is itself uncertain by about sd / √{seeds}.",
        style="dim",
    )
    files = write_comparison(out, runs, summaries, metric="AUROC", title=f"Flights, target: {title}")
    console.print(f"Written to {out}: {', '.join(path.name for path in files)}")


def _table(summaries: list[Summary]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("algorithm", no_wrap=True)
    table.add_column("AUROC ± sd", justify="right", no_wrap=True)
    table.add_column("mixture found (mean)", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    best = max(each.score for each in summaries)
    for each in summaries:
        mixture = " ".join(
            f"{name} {weight:.2f}".replace("0.", ".")
            for name, weight in each.mixture.items()
            if weight >= 0.005
        )
        style = "green" if each.score == best else ""
        score = f"{each.score:.3f} ± {each.sd:.3f}" if each.repeats > 1 else f"{each.score:.3f}"
        table.add_row(
            each.algorithm, score, mixture, f"{each.spent:.0f}", f"{each.seconds:.1f}s", style=style
        )
    return table
