"""``mixtree compare``: algorithms on the same tables, at the same budget."""

from __future__ import annotations

import json
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mixtree.cli.fit import fit_options, scaled, table_spec, testable
from mixtree.cli.options import DATA, FITTING, JUDGING, OUTPUT, Flag, Values, command, with_config
from mixtree.cli.reports import four_digits, mixture_words, print_plan
from mixtree.errors import InputError

if TYPE_CHECKING:
    from mixtree.data.sources import Sources

_ALONE = 10
"""Sources that are tried alone unless told."""
_FIT_ONLY = ("min", "max", "max_passes", "time_limit", "init")
"""Flags that a comparison of algorithms, baselines among them, has no use for."""
FLAGS = (
    *DATA,
    *(flag for flag in FITTING if flag.name not in _FIT_ONLY),
    *(flag for flag in JUDGING if flag.name == "holdout"),
    Flag(
        "algorithms",
        str,
        "Ids, separated by commas.",
        "auto, mixmatch-bisect+commit, uniform+decay …",
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

    from mixtree.data.labelscale import LabelScale
    from mixtree.data.sources import Problem
    from mixtree.data.tables import load_tables
    from mixtree.experiments.comparison import Rules, paired, summarise
    from mixtree.experiments.comparison import compare as run_all
    from mixtree.fitting import make_objective, metric_of, prepare
    from mixtree.listeners.progress import ComparisonProgress
    from mixtree.metrics import class_names
    from mixtree.models import make_trainer
    from mixtree.verdict import holdout

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
    classes = data[0].problem_sources.classes
    data = [testable(each, metric_of(options, classes)) for each in data]
    prepared = prepare(data[0].problem_sources, options, test=data[0].test)
    print_plan(Console(stderr=True, emoji=False), data[0], prepared)
    chosen = prepared.chosen
    algorithms = _algorithms(values.get("algorithms"), prepared.sources)
    rules = Rules(
        chosen.budget,
        chosen.steps,
        chosen.metric,
        prepared.setting.options,
        chosen.batch_size,
        objective=lambda problem: make_objective(options, chosen, problem.sources),
        use_target_rows=prepared.setting.use_target_rows,
        auto=prepared.setting.auto,
    )
    problems = []
    for repeat, each in enumerate(data):
        kept, test = each.problem_sources, each.test
        if test is None:
            kept, test = holdout(kept, options.holdout, seed=seed + repeat, metric=chosen.metric)
        problems.append(Problem("table", kept, test))

    def trainer(problem: Problem) -> Any:
        return make_trainer(options.model, problem.sources, prepared.model)

    predictions: dict[tuple[str, int], Any] = {}
    progress = ComparisonProgress(len(algorithms) * repeats * chosen.budget)
    with class_names(data[0].classes or (), told=True), progress:
        runs = run_all(
            problems,
            algorithms,
            make_trainer=trainer,
            rules=rules,
            seed=seed,
            workers=values.get("workers", 1),
            listeners=[progress],
            predictions=predictions,
            retry=True,
        )
    summaries, against = summarise(runs), {}
    judges = problems[0].test
    if judges is not None:
        own = {place: scale.back(each) for place, each in predictions.items()}
        y = scale.back(judges.y)
        against = paired(own, y, metric_of(given, classes), algorithms=algorithms)
    tested = data[0].test is not None
    rows = _which_rows(tested, judges is not None)
    kind = "test rows" if tested else "held-out rows" if judges is not None else "validation rows"
    if out is not None:
        from mixtree.experiments.output import write_comparison

        write_comparison(out, runs, summaries, metric=chosen.metric.name, title="Comparison", rows=kind)
    if values.get("json"):
        told = _as_json(runs, summaries, chosen, against, algorithms[0])
        typer.echo(json.dumps({**told, "scored_on": kind}))
    else:
        console = Console(emoji=False)
        _print(console, summaries, chosen.metric.name, rows)
        for words in _slowed(runs):
            console.print(words, markup=False, highlight=False, soft_wrap=True)
        _print_against(console, algorithms, runs, None if judges is None else against)


def _which_rows(tested: bool, judged: bool) -> str:
    if tested:
        return "test rows"
    if judged:
        return "validation rows that were held out"
    return (
        "validation rows, which some of them used to choose: optimistic; – where the model was trained on "
        "them (auto: its twins, each trained on half of them and scored on the other). Give test rows "
        "(--test, or --target to split), or hold some out (--holdout)"
    )


def _algorithms(text: str | None, sources: Sources) -> list[str]:
    if text:
        return [name.strip() for name in text.split(",") if name.strip()]
    sizes = sources.sizes.tolist()
    largest = sorted(range(len(sizes)), key=lambda place: -sizes[place])[:_ALONE]
    names = [sources.names[place] for place in sorted(largest)]
    if len(sources) > _ALONE:
        others = "--algorithms only:NAME+decay names others"
        words = f"of the {len(sources)} sources the {_ALONE} largest are tried alone; {others}"
        typer.echo(words, err=True)
    return [
        "auto",
        "mixmatch-bisect+commit",
        "uniform+decay",
        "pooled+decay",
        *(f"only:{name}+decay" for name in names),
        "validation",
        "fine-tune",
    ]


def _as_json(
    runs: list[Any], summaries: list[Any], chosen: Any, against: dict[str, Any], first: str
) -> dict[str, Any]:
    from mixtree.experiments.output import plain
    from mixtree.verdict.words import against_row, against_words

    keys = ("algorithm", "repeat", "val_score", "test_score", "mixture", "spent", "lr_scale")
    return {
        "metric": chosen.metric.name,
        "budget": chosen.budget,
        "runs": [{key: row[key] for key in keys} for row in plain(runs)],
        "summary": plain(summaries),
        "verdict": {
            "of": first,
            "repeat": 0,
            "sentences": [against_words(name, each) for name, each in against.items()],
            "against": [against_row(name, each) for name, each in against.items()],
        },
    }


def _print(console: Any, summaries: list[Any], metric: str, rows: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("algorithm")
    table.add_column(f"{metric} ± sd", justify="right")
    table.add_column("mixture (mean)")
    for each in summaries:
        mixture = mixture_words(each.mixture, digits=2, least=0.005)
        score = f"{four_digits(each.score)} ± {four_digits(each.sd)}"
        table.add_row(escape(each.algorithm), score, escape(mixture))
    console.print(table)
    words = (
        f"{metric} on {rows}; mean ± sd over repeats. Every algorithm draws rows of its own: its models are "
        "not those of mixtree fit with the same seed"
    )
    console.print(words, style="dim", soft_wrap=True)
    for each in summaries:
        if each.diverged:
            words = f"{each.algorithm} diverged in {each.diverged} of {each.repeats} repeats: no mean score"
            mixture = "; its mixture is the mean of the others" if each.diverged < each.repeats else ""
            console.print(words + mixture, markup=False, highlight=False, soft_wrap=True)


def _slowed(runs: list[Any]) -> list[str]:
    """Which algorithms were trained with smaller steps, since they diverged with the usual ones."""
    found: dict[str, list[Any]] = {}
    for each in runs:
        if each.lr_scale < 1.0 and not each.diverged:
            found.setdefault(each.algorithm, []).append(each)
    told = []
    for name, own in found.items():
        rates = " and ".join(f"{rate:g}" for rate in sorted({each.lr_scale for each in own}))
        repeats = sum(each.algorithm == name for each in runs)
        told.append(
            f"{name} was trained at {rates} × the usual step size in {len(own)} of {repeats} repeats: larger "
            "ones diverged, and the steps until then come on top of the budget"
        )
    return told


def _print_against(
    console: Any, algorithms: list[str], runs: list[Any], against: dict[str, Any] | None
) -> None:
    """The first algorithm beside each other; None if there are no rows for it."""
    if against is None:
        words = "no paired comparison: no rows are left that chose nothing; give test rows (--test, --target)"
        console.print(words, style="dim", soft_wrap=True)
        return
    first, *others = algorithms
    lines = [f"{first}: {_against_words(name, against.get(name))}" for name in dict.fromkeys(others)]
    if others and any(each.diverged for each in runs if (each.algorithm, each.repeat) == (first, 0)):
        lines = [f"{first}: not comparable with any other: it diverged"]
    if lines and any(each.repeat > 0 for each in runs):
        console.print("paired, on the first repeat's rows and of its models alone:", style="dim")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _against_words(name: str, difference: Any | None) -> str:
    """A comparison in words; without a difference the other model diverged."""
    from mixtree.verdict.words import against_words, p_words

    if difference is None:
        return f"not comparable with {name}, which diverged"
    if not isfinite(difference.p):
        return against_words(name, difference)
    p = p_words(difference.p)
    return f"{against_words(name, difference)}, p {p if p.startswith('<') else f'= {p}'}"
