"""``mixtree plan``: what a budget buys, before a run."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mixtree.cli.fit import table_spec
from mixtree.cli.options import (
    DATA,
    FIT,
    FITTING,
    OUTPUT,
    Flag,
    Values,
    command,
    fit_options,
    seconds,
    who_works,
    with_config,
)
from mixtree.errors import InputError

if TYPE_CHECKING:
    from mixtree.planning.budget import Plan, Purchase

_SHARED = (
    "budget",
    "steps",
    "batch_size",
    "lr",
    "unit",
    "minimum",
    "maximum",
    "class_weight",
    "model",
    "seed",
)
OWN = (
    Flag("time", str, "Instead of a budget: how long it may take, 90s, 10m, 2h.", "none", metavar="T"),
    Flag("sources", int, "Instead of tables: the number of sources.", "none", metavar="K"),
    Flag("workers", int, "Recommend a width, leaves per round, for so many workers.", "none", metavar="N"),
    Flag("commit", float, "Share of the budget for the commit phase.", "0.5", metavar="SHARE"),
)
FLAGS = (*DATA, *(flag for flag in FITTING if flag.name in _SHARED), *OWN, *OUTPUT)


def add_to(app: typer.Typer) -> None:
    app.command()(command(plan, FLAGS))


def plan(tables: list[Path], values: Values) -> None:
    """Say what a budget buys: nodes, depth, resolution, time, memory, disk, and what to choose."""
    # A file of options for fit will do, too: what it says beyond this command's options does not matter here.
    tables, values = with_config(tables, values, (*FIT, *OWN))
    if "budget" in values and "time" in values:
        raise InputError("give --budget or --time, not both")
    with_tables = bool(tables) or "source" in values
    if with_tables and "sources" in values:
        raise InputError("give tables, or --sources K without any, not both")
    question = _from_tables(tables, values) if with_tables else _from_numbers(values)
    found = question.answer()
    workers = who_works(values.get("workers", 1))
    if isinstance(workers, str):
        raise InputError(f"plan --workers takes the number of workers of the cluster; got {workers}")
    width = _width(found, workers) if "workers" in values else None
    if values.get("json"):
        typer.echo(json.dumps(found.as_dict() | ({} if width is None else {"width": width[0]})))
        return
    _print(found)
    if width is not None:
        typer.echo(
            f"width for {workers} workers: --width {width[0]} keeps {width[1]:.0%} of them busy in a round "
            "of equal trials"
        )


def _width(found: Plan, workers: int) -> tuple[int, float]:
    from mixtree.planning.parallel import width_for

    best = found.recommendation
    for each in found.purchases:
        if (each.partition, each.steps) == (best.partition, best.steps):
            return width_for(workers, nodes=each.nodes, leaves=each.leaves, depth=each.depth[0])
    return width_for(workers, nodes=1, leaves=1, depth=1)  # no search: one trial after the other


@dataclass(frozen=True, slots=True)
class _Question:
    sources: int
    budget: int
    options: dict[str, Any]

    def answer(self) -> Plan:
        from mixtree.planning.budget import plan as make_plan

        return make_plan(self.sources, self.budget, **self.options)


def _from_numbers(values: Values) -> _Question:
    if "sources" not in values:
        raise InputError("plan needs tables, or --sources K and --budget STEPS")
    if "time" in values:
        raise InputError("--time needs tables: steps are timed on the real data; give --budget instead")
    if "budget" not in values:
        raise InputError("without tables say how many steps there are: --budget STEPS")
    if "minimum" in values or "maximum" in values:
        raise InputError("--min and --max name sources, so they need tables")
    samples = values.get("unit", "steps") == "samples"
    if samples and "batch_size" not in values:
        raise InputError("--unit samples without tables needs --batch-size B")
    fit_options({name: values[name] for name in ("unit",) if name in values})  # an unknown unit is refused
    per = values["batch_size"] if samples else 1
    if per < 1:
        raise InputError(f"--batch-size must be at least 1; got {per}")
    options = {"commit": values.get("commit", 0.5), "seed": values.get("seed", 0)}
    if "steps" in values:
        options["steps"] = math.ceil(values["steps"] / per)
    return _Question(values["sources"], math.ceil(values["budget"] / per), options)


def _from_tables(tables: list[Path], values: Values) -> _Question:
    from dataclasses import replace

    from mixtree.cli.reports import print_warnings
    from mixtree.data.tables import load_tables
    from mixtree.fitting.prepare import choose, make_setting
    from mixtree.listeners.terminal import Terminal
    from mixtree.planning.budget import budget_for, theory_demand
    from mixtree.planning.timing import measure
    from mixtree.trainers.registry import ModelOptions, make_trainer

    limit, commit = seconds(values.get("time")), values.get("commit", 0.5)
    if not 0 <= commit < 1:
        raise InputError(f"the commit share must be at least 0 and below 1; got {commit}")
    options = fit_options({name: value for name, value in values.items() if name in (*_SHARED, "metric")})
    options = replace(options, model=options.model or "mlp")  # what takes steps
    data = load_tables(table_spec(tables, values), seed=options.seed)
    errors, sources = Terminal(stderr=True), data.problem_sources
    print_warnings(errors, data.warnings)
    # With a time the budget is what is asked for, so nothing can be checked against it yet.
    chosen = choose(options if limit is None else replace(options, budget=None, steps=None), sources)
    if limit is None and "budget" not in values:
        errors.print(f"chosen: {chosen.notes[0]}", style="dim", highlight=False, markup=False, soft_wrap=True)
    setting = make_setting(sources, options, chosen)
    model = ModelOptions(lr=options.lr, batch_size=chosen.batch_size, class_weight=options.class_weight)
    pace = measure(make_trainer(options.model, sources, model), len(sources), seed=options.seed)
    per = chosen.batch_size if options.unit == "samples" else 1
    steps = None if options.steps is None else math.ceil(options.steps / per)
    budget = chosen.budget
    if limit is not None:
        budget = budget_for(limit, len(sources), pace, steps=steps, commit=commit)
    demand = theory_demand(
        len(sources), budget, data=sources, convex=options.model == "linear", seed=options.seed
    )
    return _Question(
        len(sources),
        budget,
        {
            "steps": steps,
            "commit": commit,
            "pace": pace,
            "theory": demand,
            "minimum": setting.minimum,
            "maximum": setting.maximum,
            "seed": options.seed,
        },
    )


def _print(found: Plan) -> None:
    from rich.table import Table

    from mixtree.listeners.terminal import Terminal

    # What is piped into a file is not cut at 80 characters.
    console = Terminal() if sys.stdout.isatty() else Terminal(width=120)
    count = "1 source" if found.sources == 1 else f"{found.sources} sources"
    lines = [f"{found.budget} steps on {count}, commit share {found.commit:g}"]
    if found.pace is not None:
        lines.append(
            f"timed: {_time(found.pace.step_seconds)} a step, {_time(found.pace.node_seconds)} more a node; "
            f"a model has {_size(found.pace.model_bytes)}"
        )
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if found.purchases:
        table = Table(box=None, pad_edge=False, header_style="bold")
        headings = ["partition", "λ", "nodes", "depth", "ℓ1 diameter", "model sees"]
        for heading in headings + (["time", "memory", "disk"] if found.pace is not None else []):
            table.add_column(heading, no_wrap=True)
        for each in found.purchases:
            table.add_row(*_row(each, found))
        console.print(table)
        console.print(
            "depth and what follows from it: of a tree grown evenly – along one path; an ℓ1 diameter of 2 is "
            "the whole simplex",
            style="dim",
            highlight=False,
        )
    console.print(f"theory: {found.theory.sentence}", highlight=False, markup=False, soft_wrap=True)
    best = found.recommendation
    flags = f"--policy {best.policy} --budget {found.budget}"
    cut = "no search"
    if best.partition != "none":
        cut, flags = f"{best.partition}, λ = {best.steps}", f"{flags} --steps {best.steps}"
    console.print(
        f"recommended: {cut}, commit share {best.commit:g} ({flags})",
        style="bold",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    for line in (*best.reasons, *found.notes):
        console.print(f"- {line}", highlight=False, markup=False, soft_wrap=True)


def _row(each: Purchase, found: Plan) -> list[str]:
    seen = [f"{steps / found.budget:.0%}" for steps in each.model_steps]
    row = [
        each.partition,
        str(each.steps),
        str(each.nodes),
        _range(*map(str, each.depth)),
        _range(*(f"{width:.2g}" if width >= 0.001 else "< 0.001" for width in each.diameter)),
        _range(*seen),
    ]
    if found.pace is None:
        return row
    assert each.seconds is not None and each.disk is not None
    memory = "?" if each.memory is None else _size(each.memory)
    return [*row, _time(each.seconds), memory, _size(each.disk)]


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} – {high}"


def _time(taken: float) -> str:
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if taken >= 0.9995 * unit:  # 999.9 ms is 1 s
            return f"{taken / unit:.3g} {name}"
    return f"{taken * 1e6:.3g} µs"


def _size(count: float) -> str:
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} bytes"
