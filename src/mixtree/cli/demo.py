"""``mixtree demo``: the search and its baselines on real flights, in under a minute."""

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
        Literal["new", "known"],
        typer.Option(
            help="'new': a carrier that is no source (F9); 'known': a known mixture of the sources."
        ),
    ] = "new",
    seeds: Annotated[int, typer.Option(min=1, help="Repeats, each with its own split and model.")] = 3,
    budget: Annotated[int, typer.Option(min=1, help="SGD steps (batches of 50) for every algorithm.")] = 1500,
    steps: Annotated[int, typer.Option(min=1, help="SGD steps per node of the search.")] = 50,
    out: Annotated[Path, typer.Option(help="Folder for the table and the figure.")] = Path("mixtree-demo"),
) -> None:
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
