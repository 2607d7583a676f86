"""``mixtree compare``: algorithms on the same tables, at the same budget."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mixtree.cli.fit import table_spec
from mixtree.cli.options import (
    DATA,
    FITTING,
    OUTPUT,
    PLACE,
    RUNNING_FLAGS,
    VERBOSE,
    Flag,
    Values,
    command,
    fit_options,
    seconds,
    who_works,
    with_config,
)
from mixtree.cli.reports import dry_run, mixture_words, print_plan
from mixtree.errors import InputError
from mixtree.fitting.options import OPTIONS
from mixtree.places import said

if TYPE_CHECKING:
    from mixtree.experiments.contest import Contest

_OTHERWISE: dict[str, dict[str, Any]] = {
    "time_limit": {"help": "Stop every run after this long: 90s, 10m, 2h."},
    "policy": {"help": "The algorithm that the others are compared with.", "default": "the first one"},
    "reference": {
        "help": "Baselines to compare with: uniform (with a decayed end and without), all or none.",
        "default": "those of --algorithms",
    },
    "out": {"help": "Folder for the table of runs and a figure.", "default": "none"},
    "nested": {"help": "Score by fits on parts of the validation rows, of every algorithm in every repeat."},
    "attribution": {
        "help": "What each source is worth in the first algorithm's mixture of the first repeat."
    },
    "storage": {
        "help": "Study file or database URL that keeps every run: the same command goes on where it was cut.",
        "default": "none",
    },
    "checkpoints": {"default": "beside the storage's file"},
    "study": {"help": "Name of the comparison: its runs are NAME/ALGORITHM/REPEAT.", "default": "compare"},
}
"""What flags of ``fit`` mean here."""
FLAGS = (
    *DATA,
    *(replace(each, **_OTHERWISE.get(each.name, {})) for each in (*FITTING, *RUNNING_FLAGS, *PLACE)),
    Flag(
        "algorithms",
        str,
        "Ids, separated by commas; those of rivals (lightgbm-weighted, linear-pooled …) too.",
        "auto, mixmatch-bisect+commit, uniform+decay …",
        metavar="A,B,C",
    ),
    Flag("repeats", int, "Repeats, each with its own seed (and split of --target).", "3", metavar="R"),
    *OUTPUT,
    replace(VERBOSE, help="Of fit alone: a comparison has no notes that it leaves out."),
)


def add_to(app: typer.Typer) -> None:
    app.command()(command(compare, FLAGS))


def compare(tables: list[Path], values: Values) -> None:
    """Compare algorithms on the same sources, target and budget."""
    from mixtree.experiments.comparison import summarise
    from mixtree.experiments.contest import Contest
    from mixtree.fitting.tables import read_tables
    from mixtree.listeners.progress import ComparisonProgress
    from mixtree.listeners.terminal import Terminal

    tables, values = with_config(tables, values, FLAGS)
    repeats, seed = values.get("repeats", 3), values.get("seed", 0)
    if not 1 <= repeats <= 1000:
        raise InputError(f"--repeats must be 1 to 1,000; got {repeats}")
    out, limit = values.get("out"), seconds(values.get("time_limit"))
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: name a folder")
    OPTIONS["reference"].check(values.get("reference", "none"))
    fitting = {name: value for name, value in values.items() if name not in ("policy", "reference")}
    spec, given = table_spec(tables, values), fit_options(fitting)
    data, options = [], given
    for repeat in range(repeats):
        own = replace(given, seed=seed + repeat)
        each, own = read_tables(spec, own, model=values.get("model"))
        data.append(each)
        options = own if repeat == 0 else options
    contest = Contest.of(
        data,
        options,
        algorithms=[name.strip() for name in values.get("algorithms", "").split(",") if name.strip()],
        first=values.get("policy"),
        reference=values.get("reference"),
        time_limit=limit,
    )
    console = Terminal(stderr=True)
    print_plan(console, data[0], contest.prepared)
    for note in contest.notes:
        console.print(note, style="dim", highlight=False, markup=False, soft_wrap=True)
    chosen, algorithms = contest.prepared.chosen, contest.algorithms
    if values.get("dry_run"):
        contest.check()
        if values.get("json"):
            plan = dry_run(data[0], contest.prepared)
            plan = {key: value for key, value in plan.items() if key != "policy"}
            told = {"algorithms": algorithms, "repeats": repeats, "notes": contest.notes}
            typer.echo(json.dumps({**plan, **told}))
        else:
            typer.echo(said(f"would run in each of {repeats} repeats: {', '.join(algorithms)}"))
        return
    progress = ComparisonProgress(contest.steps)
    with progress, _place(values) as storage:
        runs, against = contest.run(
            workers=who_works(values.get("workers", 1)),
            listeners=[progress],
            storage=storage,
            study="" if storage is None else values.get("study", "compare"),
        )
    summaries, happened = summarise(runs), contest.happened(runs)
    if out is not None:
        from mixtree.experiments.output import write_comparison

        metric, kind = chosen.metric.name, contest.scored_on
        write_comparison(out, runs, summaries, metric=metric, title="Comparison", rows=kind)
    if values.get("json"):
        told = _as_json(runs, summaries, chosen, against, algorithms[0])
        notes = [*contest.notes, *happened]
        typer.echo(json.dumps({**told, "scored_on": contest.scored_on, "notes": notes}))
    else:
        console = Terminal()
        _print(console, summaries, chosen.metric.name, _rows(contest))
        for words in happened:
            console.print(words, markup=False, highlight=False, soft_wrap=True)
        _print_against(
            console,
            algorithms,
            runs,
            against if contest.judged else None,
            _meaning(repeats, splits="test" not in values, folds=len(contest.problems) // repeats),
        )


def _place(values: Values) -> Any:
    """What opens the storage of --storage, and closes it; nothing where no run is kept."""
    from mixtree.storage.sql import IN_MEMORY, database_file, open_storage

    if "storage" not in values:
        if "study" in values:
            raise InputError("--study names what --storage keeps: give both")
        return nullcontext()
    storage = database_file(values["storage"])
    if storage == IN_MEMORY:
        raise InputError(f"--storage {values['storage']} is in memory and ends with the command: name a file")
    if "://" not in storage and not Path(storage).parent.is_dir():
        raise InputError(f"--storage {storage}: there is no folder {Path(storage).parent}; make it first")
    return closing(open_storage(storage, checkpoints=values.get("checkpoints")))


def _rows(contest: Contest) -> str:
    """Which rows scored, in full."""
    if contest.options.nested:
        return "validation rows, by fits that did not see the rows they were scored on"
    if contest.scored_on == "held-out rows":
        return "validation rows that were held out"
    if contest.scored_on == "test rows":
        return contest.scored_on
    return (
        "validation rows, which some of them used to choose: optimistic; – where the model was trained on "
        "them (auto: its twins, each trained on half of them and scored on the other). Give test rows "
        "(--test, or --target to split), or hold some out (--holdout)"
    )


def _as_json(
    runs: list[Any], summaries: list[Any], chosen: Any, against: dict[str, Any], first: str
) -> dict[str, Any]:
    from mixtree.experiments.output import plain
    from mixtree.verdict.sentences import against_row, against_words

    keys = ("algorithm", "repeat", "val_score", "test_score", "mixture", "spent", "lr_scale", "finished")
    return {
        "metric": chosen.metric.name,
        "budget": chosen.budget,
        "runs": [{key: row[key] for key in keys} for row in plain(runs)],
        "summary": plain(summaries),
        "verdict": {
            "of": first,
            "repeats": summaries[0].repeats,
            "sentences": [against_words(name, each) for name, each in against.items()],
            "against": [against_row(name, each) for name, each in against.items()],
        },
    }


def _print(console: Any, summaries: list[Any], metric: str, rows: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    from mixtree.verdict.sentences import figures

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("algorithm")
    table.add_column(f"{metric} ± sd", justify="right")
    table.add_column("CPU (s)", justify="right")
    table.add_column("mixture (mean)")
    for each in summaries:
        mixture = mixture_words(each.mixture, digits=2, least=0.005) if each.mixture else ""
        score = " ± ".join(
            figures(value, beside=(each.score,))[0] if isfinite(value) else "–"
            for value in (each.score, each.sd)
        )
        table.add_row(escape(each.algorithm), score, f"{each.cpu:.1f}", escape(mixture or "–"))
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


def _meaning(repeats: int, *, splits: bool, folds: int) -> str:
    """What the intervals are of."""
    if folds > 1:
        of = f"means over {folds} folds in each of {repeats} repeats"
        return f"{of}, paired by row; the intervals are for other rows and other seeds"
    if repeats == 1:
        return (
            "paired by row; one repeat: the intervals know nothing of what another seed would do (--repeats)"
        )
    what = "other rows, seeds and splits" if splits else "other rows and other seeds"
    few = "; two tell little: more make them narrower (--repeats)" if repeats == 2 else ""
    return f"means over {repeats} repeats, paired by row; the intervals are for {what}{few}"


def _print_against(
    console: Any, algorithms: list[str], runs: list[Any], against: dict[str, Any] | None, meaning: str
) -> None:
    """The first algorithm beside each other; None if there are no rows for it."""
    if against is None:
        words = "no paired comparison: no rows are left that chose nothing; give test rows (--test, --target)"
        console.print(words, style="dim", soft_wrap=True)
        return
    first, *others = algorithms
    lines = [f"{first}: {_against_words(name, against.get(name))}" for name in dict.fromkeys(others)]
    if others and any(each.diverged for each in runs if each.algorithm == first):
        lines = [f"{first}: not comparable with any other: it diverged"]
    elif lines:
        console.print(meaning, style="dim", soft_wrap=True)
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _against_words(name: str, difference: Any | None) -> str:
    """A comparison in words; without a difference the other model diverged."""
    from mixtree.verdict.sentences import against_words, p_words

    if difference is None:
        return f"not comparable with {name}, which diverged"
    if not isfinite(difference.p):
        return against_words(name, difference)
    p = p_words(difference.p)
    return f"{against_words(name, difference)}, p {p if p.startswith('<') else f'= {p}'}"
