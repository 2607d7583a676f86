"""``mixtree compare``: algorithms on the same tables, at the same budget."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import Any

import typer

from mixtree.cli.fit import fit_options, scaled, table_spec, testable
from mixtree.cli.options import DATA, FITTING, OUTPUT, Flag, Values, command, with_config
from mixtree.cli.reports import print_plan
from mixtree.errors import InputError

_FIT_ONLY = ("min", "max", "objective", "use_target_rows", "time_limit", "init", "workers")
"""Flags that a comparison of algorithms, baselines among them, has no use for."""
FLAGS = (
    *DATA,
    *(flag for flag in FITTING if flag.name not in _FIT_ONLY),
    Flag(
        "algorithms",
        str,
        "Ids, separated by commas.",
        "mixmatch-bisect+commit, uniform+decay, pooled+decay …",
        metavar="A,B,C",
    ),
    Flag("repeats", int, "Repeats, each with its own seed (and split of --target).", "3", metavar="R"),
    Flag("out", Path, "Folder for the table of runs and a figure.", "none", metavar="DIR"),
    *OUTPUT,
)


def add_to(app: typer.Typer) -> None:
    app.command()(command(compare, FLAGS))


def compare(tables: list[Path], values: Values) -> None:
    """Compare algorithms on the same sources, target and budget."""
    from rich.console import Console

    from mixtree.cli.progress import ComparisonProgress
    from mixtree.data.labelscale import LabelScale
    from mixtree.data.sources import Problem
    from mixtree.data.tables import load_tables
    from mixtree.experiments.comparison import Rules, summarise
    from mixtree.experiments.comparison import compare as run_all
    from mixtree.fitting import make_setting, prepare
    from mixtree.models import ModelOptions, make_trainer

    tables, values = with_config(tables, values, FLAGS)
    repeats, seed = values.get("repeats", 3), values.get("seed", 0)
    if repeats < 1:
        raise InputError(f"--repeats must be at least 1; got {repeats}")
    out = values.get("out")
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: name a folder")
    spec, given = table_spec(tables, values), fit_options(values)
    data = [load_tables(spec, seed=seed + repeat) for repeat in range(repeats)]
    scale, options = LabelScale.of(data[0].problem_sources), scaled(data[0], given)[1]
    data = [scaled(each, given, scale)[0] for each in data]
    prepared = prepare(data[0].problem_sources, options)
    data = [testable(each, prepared.chosen.metric) for each in data]
    print_plan(Console(stderr=True, emoji=False), data[0], prepared)
    chosen, setting = prepared.chosen, make_setting(data[0].problem_sources, options, prepared.chosen)
    names = data[0].problem_sources.names
    algorithms = _algorithms(values.get("algorithms"), names)
    rules = Rules(chosen.budget, chosen.steps, chosen.metric, setting.options, chosen.batch_size)
    problems = [Problem("table", each.problem_sources, each.test) for each in data]
    model = ModelOptions(lr=options.lr, batch_size=chosen.batch_size, class_weight=options.class_weight)

    def trainer(problem: Problem) -> Any:
        return make_trainer(options.model, problem.sources, model)

    with ComparisonProgress(len(algorithms) * repeats * chosen.budget) as progress:
        runs = run_all(problems, algorithms, make_trainer=trainer, rules=rules, listeners=[progress])
    summaries = summarise(runs)
    if out is not None:
        from mixtree.experiments.output import write_comparison

        write_comparison(out, runs, summaries, metric=chosen.metric.name, title="Comparison")
    if values.get("json"):
        typer.echo(json.dumps(_as_json(runs, summaries, chosen)))
    else:
        _print(Console(emoji=False), summaries, chosen.metric.name, tested=data[0].test is not None)


def _algorithms(text: str | None, names: tuple[str, ...]) -> list[str]:
    if text:
        return [name.strip() for name in text.split(",") if name.strip()]
    return [
        "mixmatch-bisect+commit",
        "uniform+decay",
        "pooled+decay",
        *(f"only:{name}+decay" for name in names),
        "validation",
        "fine-tune",
    ]


def _as_json(runs: list[Any], summaries: list[Any], chosen: Any) -> dict[str, Any]:
    from mixtree.experiments.output import plain

    keys = ("algorithm", "repeat", "val_score", "test_score", "mixture", "spent")
    return {
        "metric": chosen.metric.name,
        "budget": chosen.budget,
        "runs": [{key: row[key] for key in keys} for row in plain(runs)],
        "summary": plain(summaries),
    }


def _print(console: Any, summaries: list[Any], metric: str, *, tested: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    rows = "test rows" if tested else "validation rows, which some of them used to choose: optimistic"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("algorithm")
    table.add_column(f"{metric} ± sd", justify="right")
    table.add_column("mixture (mean)")
    for each in summaries:
        mixture = " ".join(f"{name} {weight:.2f}" for name, weight in each.mixture.items() if weight >= 0.005)
        score, sd = (f"{value:.4f}" if isfinite(value) else "–" for value in (each.score, each.sd))
        table.add_row(escape(each.algorithm), f"{score} ± {sd}", escape(mixture))
    console.print(table)
    console.print(f"{metric} on {rows}; mean ± sd over repeats", style="dim", soft_wrap=True)
