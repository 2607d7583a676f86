"""What ``fit`` and ``compare`` tell people: the plan on stderr, the result on stdout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

if TYPE_CHECKING:
    from mixtree.data.tables import TableData
    from mixtree.engine.study import Result
    from mixtree.fitting.prepare import Prepared


_LISTED = 8
"""Sources that are listed one by one; of more the largest, and all of them in files and JSON."""


def print_plan(console: Any, data: TableData, prepared: Prepared) -> None:
    """What was read, how it is treated, and what was chosen for the user; on stderr."""
    from mixtree.fitting.tables import warnings_of

    sources, test = prepared.sources, f", {_tested(prepared):,} test" if _tested(prepared) else ""
    test += f", {prepared.held_out:,} held out to score" if prepared.held_out else ""
    _line(console, "rows", f"{_sizes(prepared)}; {len(sources.validation):,} validation{test}")
    _line(console, "label", f"{data.labels.name}: {_task(data)}")
    kinds: dict[str, list[str]] = {}
    for column in data.columns:
        read = f" (text, read as {column.format})" if column.format else ""
        kinds.setdefault(column.kind, []).append(column.name + read)
    for kind, names in kinds.items():
        shown = ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
        _line(console, kind, shown)
    _line(console, "features", f"{sources.features} columns after encoding")
    print_warnings(console, warnings_of(data, prepared))
    for note in prepared.chosen.notes:
        console.print(f"chosen: {note}", style="dim", highlight=False, markup=False, soft_wrap=True)


def _sizes(prepared: Prepared) -> str:
    names, sizes = prepared.sources.names, prepared.sources.sizes
    if len(names) > _LISTED:
        return f"{len(names)} sources of {sizes.min():,} to {sizes.max():,}, {sizes.sum():,} in all"
    return ", ".join(f"{name} {size:,}" for name, size in zip(names, sizes, strict=True))


def mixture_words(weights: Mapping[str, float], *, digits: int = 3, least: float = 0.0) -> str:
    """The weights by name; of many sources the largest.

    >>> mixture_words({"a": 0.25, "b": 0.75})
    'a 0.250, b 0.750'
    >>> mixture_words(dict.fromkeys("abcdefghij", 0.1), digits=2)
    '0.1 for each of 10 sources'
    """
    some = {name: weight for name, weight in weights.items() if weight > 0.0}
    if len(weights) <= _LISTED or len(some) <= 2:
        shown = weights if len(weights) <= _LISTED else some
        told = {name: weight for name, weight in shown.items() if weight >= least}
        return ", ".join(f"{name} {weight:.{digits}f}" for name, weight in told.items())
    if max(some.values()) - min(some.values()) <= 1e-6 * max(some.values()):
        each = f"{min(some.values()):.{max(digits, 1)}g}"
        return f"{each} for each of {len(some)} sources"
    largest = sorted(some, key=lambda name: -some[name])[: _LISTED - 2]
    first = ", ".join(f"{name} {some[name]:.{digits}f}" for name in largest)
    others = len(some) - len(largest)
    rest = sum(some.values()) - sum(some[name] for name in largest)
    return f"{first}, {others} others {rest:.{digits}f} together" if others else first


def _task(data: TableData) -> str:
    """What is predicted; numbers that were taken for classes deserve a second look."""
    if data.classes is None:
        return "a number (regression)"
    shown = ", ".join(map(str, data.classes[:6])) + (", …" if len(data.classes) > 6 else "")
    numbers = len(data.classes) > 2 and all(isinstance(each, int | float) for each in data.classes)
    hint = "; --task regression predicts them as numbers" if numbers else ""
    return f"one of {len(data.classes)} classes ({shown}){hint}"


def print_warnings(console: Any, warnings: Iterable[str]) -> None:
    """A line for each warning."""
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow", highlight=False, markup=False, soft_wrap=True)


def _line(console: Any, name: str, text: str) -> None:
    # Names of sources and columns may look like markup.
    console.print(f"[bold]{name}[/bold]: {escape(text)}", highlight=False, soft_wrap=True)


def _tested(prepared: Prepared) -> int | None:
    """How many test rows there are."""
    return len(prepared.judges) if prepared.judges is not None and prepared.role == "test" else None


def dry_run(data: TableData, prepared: Prepared) -> dict[str, Any]:
    """What --dry-run --json prints."""
    from mixtree.fitting.tables import warnings_of

    chosen = prepared.chosen
    return {
        "rows": dict(zip(data.problem_sources.names, data.problem_sources.sizes.tolist(), strict=True)),
        "validation": len(prepared.sources.validation),
        "holdout": prepared.held_out,
        "test": _tested(prepared),
        "features": data.problem_sources.features,
        "classes": None if data.classes is None else list(data.classes),
        "columns": {column.name: column.kind for column in data.columns},
        "policy": prepared.policy,
        "metric": chosen.metric.name,
        "budget": chosen.budget,
        "steps": chosen.steps,
        "batch_size": chosen.batch_size,
        "warnings": list(warnings_of(data, prepared)),
    }


def print_result(
    out: Path, about: dict[str, Any], result: Result[Any], *, verbose: bool, warned: Iterable[str] = ()
) -> None:
    """The answer first, the mixture, warnings that were not printed before; the rest if ``verbose``.

    The study's own warnings were logged when they happened.
    """
    from mixtree.listeners.terminal import Terminal

    console, verdict = Terminal(), about["verdict"]
    if verdict is not None:
        verdict = {**verdict, "warnings": [each for each in verdict["warnings"] if each not in warned]}
        print_answer(console, verdict)
    _line(console, "mixture", mixture_words(about["mixture"]))
    if verdict is not None:
        print_comparisons(console, verdict)
        print_warnings(console, verdict["warnings"])
    if verbose:
        for note in result.notes:
            _line(console, "decided", note)
        if verdict is not None:
            print_notes(console, verdict)
        spent = ", ".join(f"{phase} {steps}" for phase, steps in about["spent"].items())
        _line(console, "steps", f"{spent}; unspent {result.unspent}; {result.reason}")
    more = "" if verbose else f"; more in {out}/MODEL_CARD.md, or with --verbose"
    _line(console, "model", f"{out} (mixtree predict {out} new.csv -o predictions.csv{more})")


def print_members(console: Any, about: Mapping[str, Any]) -> None:
    """A portfolio's members, as ``model.json`` has them."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("member", "weight", f"own {about['metric']}", "rows read"):
        table.add_column(heading)
    for each in sorted(about["members"], key=lambda one: -one["weight"]):
        numbers = f"{each['weight']:.2f}", four_digits(each["score"]), f"{each['rows_read']:,}"
        table.add_row(escape(each["name"]), *numbers)
    console.print(table)


def print_model(console: Any, folder: Path, about: Mapping[str, Any]) -> None:
    """What is known of a model that was saved without its study."""
    if about["verdict"]:
        print_answer(console, about["verdict"])
    for note in about["decided"]:
        _line(console, "decided", note)
    _line(console, "mixture", mixture_words(about["mixture"]))
    if about.get("members"):
        print_members(console, about)
    if about["verdict"]:
        print_comparisons(console, about["verdict"])
        print_warnings(console, about["verdict"]["warnings"])
        print_notes(console, about["verdict"])
    _line(console, "model", f"{folder} (saved from Python, without its study)")


def four_digits(value: float | None) -> str:
    """A score with four decimals, or, in a unit in which those are nothing, four digits; a dash for none."""
    if value is None or not isfinite(value):
        return "–"
    if abs(value) >= 999.99995:
        return f"{value:,.0f}"
    return f"{value:.4f}" if value == 0.0 or abs(value) >= 0.001 else f"{value:.4g}"


def print_answer(console: Any, verdict: Mapping[str, Any]) -> None:
    """The verdict's three lines."""
    from mixtree.verdict.sentences import three_lines

    for line in three_lines(verdict):
        console.print(line, style="bold", highlight=False, markup=False, soft_wrap=True)


def print_comparisons(console: Any, verdict: Mapping[str, Any]) -> None:
    """A table, where the model was compared with several others: the answer has the first."""
    from rich.table import Table

    from mixtree.verdict.sentences import difference_heading, table_row

    if len(verdict["against"]) < 2:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("against", difference_heading(verdict), "95 % interval", "p"):
        table.add_column(heading)
    for each in verdict["against"]:
        table.add_row(escape(each["name"]), *table_row(each))
    console.print(table)


def print_notes(console: Any, verdict: Mapping[str, Any]) -> None:
    """What else is known, and what the verdict cost."""
    for note in verdict["notes"]:
        _line(console, "note", note)
    if verdict["reference_spent"]:
        spent = ", ".join(f"{name} {steps}" for name, steps in verdict["reference_spent"].items())
        _line(console, "outside the budget", f"{spent} steps")
