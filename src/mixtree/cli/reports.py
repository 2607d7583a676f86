"""What ``fit`` and ``compare`` tell people: the plan on stderr, the result on stdout."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

if TYPE_CHECKING:
    from mixtree.data.tables import TableData
    from mixtree.fitting import Prepared
    from mixtree.study import Result


def print_plan(console: Any, data: TableData, prepared: Prepared) -> None:
    """What was read, how it is treated, and what was chosen for the user; on stderr."""
    sources, test = data.problem_sources, f", {len(data.test)} test" if data.test is not None else ""
    sizes = ", ".join(f"{name} {size}" for name, size in zip(sources.names, sources.sizes, strict=True))
    _line(console, "rows", f"{sizes}; {len(sources.validation)} validation{test}")
    kinds: dict[str, list[str]] = {}
    for column in data.columns:
        read = f" (text, read as {column.format})" if column.format else ""
        kinds.setdefault(column.kind, []).append(column.name + read)
    for kind, names in kinds.items():
        shown = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
        _line(console, kind, shown)
    _line(console, "features", f"{sources.features} columns after encoding")
    print_warnings(console, data.warnings)
    for note in prepared.chosen.notes:
        console.print(f"chosen: {note}", style="dim", highlight=False, markup=False, soft_wrap=True)


def print_warnings(console: Any, warnings: Iterable[str]) -> None:
    """A line for each warning."""
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def _line(console: Any, name: str, text: str) -> None:
    # Names of sources and columns may look like markup.
    console.print(f"[bold]{name}[/bold]: {escape(text)}", highlight=False, soft_wrap=True)


def dry_run(data: TableData, prepared: Prepared) -> dict[str, Any]:
    """What --dry-run --json prints."""
    chosen = prepared.chosen
    return {
        "rows": dict(zip(data.problem_sources.names, data.problem_sources.sizes.tolist(), strict=True)),
        "validation": len(data.problem_sources.validation),
        "test": None if data.test is None else len(data.test),
        "features": data.problem_sources.features,
        "classes": None if data.classes is None else list(data.classes),
        "columns": {column.name: column.kind for column in data.columns},
        "policy": prepared.options.policy,
        "metric": chosen.metric.name,
        "budget": chosen.budget,
        "steps": chosen.steps,
        "batch_size": chosen.batch_size,
        "warnings": list(data.warnings),
    }


def print_result(out: Path, about: dict[str, Any], result: Result[Any]) -> None:
    """What was found, for people."""
    from rich.console import Console

    console, metric = Console(emoji=False), about["metric"]
    _line(console, "mixture", ", ".join(f"{name} {weight:.3f}" for name, weight in about["mixture"].items()))
    score = "not available" if about["val_score"] is None else f"{about['val_score']:.4f}"
    _line(console, metric, f"{score} on the validation rows, which chose the mixture (optimistic)")
    if about["test_score"] is not None:
        _line(console, metric, f"{about['test_score']:.4f} on {about['rows']['test']} test rows")
    spent = ", ".join(f"{phase} {steps}" for phase, steps in about["spent"].items())
    _line(console, "steps", f"{spent}; unspent {result.unspent}; {result.reason}")
    _line(console, "model", f"{out} (mixtree predict {out} new.csv -o predictions.csv)")
