"""``mixtree compare``: algorithms on the same tables, at the same budget."""

from __future__ import annotations

import json
from contextlib import closing, nullcontext
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mixtree.cli.fit import fit_options, read, scale_of, scaled, testable
from mixtree.cli.options import (
    DATA,
    FITTING,
    JUDGING,
    OUTPUT,
    PLACE,
    VERBOSE,
    Flag,
    Values,
    command,
    seconds,
    with_config,
)
from mixtree.cli.reports import dry_run, mixture_words, print_plan
from mixtree.errors import InputError
from mixtree.places import said

if TYPE_CHECKING:
    from mixtree.data.labelscale import LabelScale
    from mixtree.data.sources import Rows, Sources
    from mixtree.fitting.pipeline import FitOptions, Prepared
    from mixtree.metrics import Metric

_ALONE = 10
"""Sources that are tried alone unless told."""
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
    "study": {"help": "Name of the comparison: its runs are NAME/ALGORITHM/REPEAT.", "default": "compare"},
}
"""What flags of ``fit`` mean here."""
_BINDING = ("minimum", "maximum", "max_passes", "stop_early")
"""Options that somebody has to keep to."""
FLAGS = (
    *DATA,
    *(replace(each, **_OTHERWISE.get(each.name, {})) for each in (*FITTING, *JUDGING, *PLACE)),
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
    from mixtree.data.labelscale import LabelScale
    from mixtree.data.sources import Problem
    from mixtree.experiments.comparison import Rules, check_algorithm, paired, summarise
    from mixtree.experiments.comparison import compare as run_all
    from mixtree.experiments.rivals import RIVALS
    from mixtree.fitting.pipeline import make_objective, make_setting, metric_of, prepare
    from mixtree.listeners.progress import ComparisonProgress
    from mixtree.listeners.terminal import Terminal
    from mixtree.metrics import class_names
    from mixtree.trainers.registry import make_trainer
    from mixtree.verdict import holdout

    tables, values = with_config(tables, values, FLAGS)
    repeats, seed = values.get("repeats", 3), values.get("seed", 0)
    if not 1 <= repeats <= 1000:
        raise InputError(f"--repeats must be 1 to 1,000; got {repeats}")
    out, limit = values.get("out"), seconds(values.get("time_limit"))
    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file: name a folder")
    arrays, first = read(tables, values)
    data = [first, *(read(tables, {**values, "seed": seed + repeat})[1] for repeat in range(1, repeats))]
    fitting = {name: value for name, value in values.items() if name not in ("policy", "reference")}
    given = fit_options(fitting, init=arrays)
    scale = scale_of(values) or LabelScale.of(first.problem_sources)
    options = scaled(first, given, scale)[1]
    data = [scaled(each, given, scale)[0] for each in data]
    classes = first.problem_sources.classes
    data = [testable(each, metric_of(options, classes)) for each in data]
    # What is common to all algorithms: options that only some of them know would decide on one of these.
    common = replace(
        options,
        policy="auto",
        nu=None,
        rho=None,
        optimism=None,
        returns=None,
        minimum={},
        maximum={},
        max_passes=None,
        stop_early=False,
    )
    prepared = prepare(data[0].problem_sources, common, test=data[0].test)
    chosen = prepared.chosen
    algorithms = _algorithms(values, prepared.sources)
    notes = _for_some(options, algorithms)
    console = Terminal(stderr=True)
    # The first note is of the policy.
    print_plan(console, data[0], replace(prepared, chosen=replace(chosen, notes=chosen.notes[1:])))
    for note in notes:
        console.print(note, style="dim", highlight=False, markup=False, soft_wrap=True)
    setting = make_setting(prepared.sources, options, chosen)
    rules = Rules(
        chosen.budget,
        chosen.steps,
        chosen.metric,
        setting.options,
        chosen.batch_size,
        objective=lambda problem: make_objective(options, chosen, problem.sources),
        use_target_rows=setting.use_target_rows,
        auto=setting.auto,
        minimum=setting.minimum,
        maximum=setting.maximum,
        caps=setting.caps,
        stop_early=options.stop_early,
        time_limit=limit,
    )
    problems = []
    for repeat, each in enumerate(data):
        kept, test = each.problem_sources, each.test
        if options.nested:
            problems += [Problem("table", *parts) for parts in _nested(kept, seed + repeat)]
            continue
        if test is None:
            kept, test = holdout(kept, options.holdout, seed=seed + repeat, metric=chosen.metric)
        problems.append(Problem("table", kept, test))
    runs_each = len(problems)  # of an algorithm

    def trainer(problem: Problem) -> Any:
        return make_trainer(options.model, problem.sources, prepared.model)

    if values.get("dry_run"):
        for problem in problems:
            for algorithm in algorithms:
                check_algorithm(algorithm, rules, problem)
        if values.get("json"):
            plan = {key: value for key, value in dry_run(data[0], prepared).items() if key != "policy"}
            typer.echo(json.dumps({**plan, "algorithms": algorithms, "repeats": repeats, "notes": notes}))
        else:
            typer.echo(said(f"would run in each of {repeats} repeats: {', '.join(algorithms)}"))
        return
    predictions: dict[tuple[str, int], Any] = {}
    searches = sum(algorithm not in RIVALS for algorithm in algorithms)
    progress = ComparisonProgress(searches * runs_each * chosen.budget)
    place = _place(values)
    with class_names(data[0].classes or (), told=True), progress, place or nullcontext() as storage:
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
            storage=storage,
            study="" if storage is None else values.get("study", "compare"),
            layout=first.preprocessor.layout,
        )
    summaries, against = summarise(runs), {}
    judges = [problem.test for problem in problems if problem.test is not None]
    if len(judges) == runs_each:
        own = {place: scale.back(each) for place, each in predictions.items()}
        tests = [replace(rows, y=scale.back(rows.y)) for rows in judges]
        against = paired(own, tests, metric_of(given, classes), algorithms=algorithms)
    tested, judged = data[0].test is not None, len(judges) == runs_each
    rows = _which_rows(tested, judged, nested=options.nested)
    kind = "test rows" if tested else "held-out rows" if judged else "validation rows"
    worth = _worth(prepared, runs, problems[0], scale, metric_of(given, classes))
    notes += worth
    if out is not None:
        from mixtree.experiments.output import write_comparison

        write_comparison(out, runs, summaries, metric=chosen.metric.name, title="Comparison", rows=kind)
    notes += [*_slowed(runs), *_stopped(runs)]
    if values.get("json"):
        told = _as_json(runs, summaries, chosen, against, algorithms[0])
        typer.echo(json.dumps({**told, "scored_on": kind, "notes": notes}))
    else:
        console = Terminal()
        _print(console, summaries, chosen.metric.name, rows)
        for words in (*worth, *_slowed(runs), *_stopped(runs)):
            console.print(words, markup=False, highlight=False, soft_wrap=True)
        _print_against(
            console,
            algorithms,
            runs,
            against if judged else None,
            _meaning(repeats, splits="test" not in values, folds=runs_each // repeats),
        )


def _nested(sources: Sources, seed: int) -> list[tuple[Sources, Rows]]:
    """The sources without each fold of the validation rows in turn, and that fold."""
    import numpy as np

    from mixtree.stats.selection import nested_folds

    rows = sources.validation
    folds = nested_folds(rows, sources.classes, seed)
    if folds is None:
        raise InputError(
            f"--nested: {len(rows)} validation rows, or those of a class, are too few to choose and to score"
        )
    return [
        (
            replace(sources, validation=rows.take(np.flatnonzero(folds != fold))),
            rows.take(np.flatnonzero(folds == fold)),
        )
        for fold in range(folds.max() + 1)
    ]


def _place(values: Values) -> Any:
    """What opens the storage of --storage; None where no run is kept."""
    from mixtree.storage.sql import IN_MEMORY, database_file, open_storage

    if "storage" not in values:
        if "study" in values:
            raise InputError("--study names what --storage keeps: give both")
        return None
    storage = database_file(values["storage"])
    if storage == IN_MEMORY:
        raise InputError(f"--storage {values['storage']} is in memory and ends with the command: name a file")
    if "://" not in storage and not Path(storage).parent.is_dir():
        raise InputError(f"--storage {storage}: there is no folder {Path(storage).parent}; make it first")
    return closing(open_storage(storage))


def _worth(prepared: Prepared, runs: list[Any], problem: Any, scale: LabelScale, metric: Metric) -> list[str]:
    """What each source is worth in the first algorithm's mixture of the first repeat, as in a fit."""
    import numpy as np

    from mixtree.verdict.references import Extra, View, attribution

    if prepared.attribution is None or not runs[0].mixture:
        return []
    apart = problem.test is not None
    view = View(problem.test if apart else problem.sources.validation, apart)
    mixture = np.array([runs[0].mixture[name] for name in prepared.sources.names])
    return attribution(Extra(prepared, runs[0].budget, scale), mixture, view, metric)


def _which_rows(tested: bool, judged: bool, *, nested: bool) -> str:
    if tested:
        return "test rows"
    if nested:
        return "validation rows, by fits that did not see the rows they were scored on"
    if judged:
        return "validation rows that were held out"
    return (
        "validation rows, which some of them used to choose: optimistic; – where the model was trained on "
        "them (auto: its twins, each trained on half of them and scored on the other). Give test rows "
        "(--test, or --target to split), or hold some out (--holdout)"
    )


def _algorithms(values: Values, sources: Sources) -> list[str]:
    """What is compared, the one that the others are compared with first."""
    text, first, reference = (values.get(name) for name in ("algorithms", "policy", "reference"))
    if reference not in (None, "uniform", "all", "none"):
        raise InputError(f"reference is one of uniform, all, none; got {reference!r}")
    named = [name.strip() for name in (text or "").split(",") if name.strip()]
    if not named:
        named = ["auto", _tree_search(values)]
        reference = reference or "default"
    found = [*([first] if first else []), *named]
    if reference in ("uniform", "all", "default"):
        found += ["uniform", "uniform+decay"]
    if reference in ("all", "default"):
        found += ["pooled+decay", *_alone(sources)]
        found += ["validation", "fine-tune"] if reference == "default" else ["validation+decay"]
    return list(dict.fromkeys(found))


def _tree_search(values: Values) -> str:
    """The one that is compared unless told; maximum weights only one of them keeps."""
    return "mixmatch-ch+commit" if "max" in values or "max_passes" in values else "mixmatch-bisect+commit"


def _alone(sources: Sources) -> list[str]:
    sizes = sources.sizes.tolist()
    largest = sorted(range(len(sizes)), key=lambda place: -sizes[place])[:_ALONE]
    if len(sources) > _ALONE:
        others = "--algorithms only:NAME+decay names others"
        words = f"of the {len(sources)} sources the {_ALONE} largest are tried alone; {others}"
        typer.echo(words, err=True)
    return [f"only:{sources.names[place]}+decay" for place in sorted(largest)]


def _for_some(options: FitOptions, algorithms: list[str]) -> list[str]:
    """Which algorithms keep to options that not all know; an error where none does and one has to."""
    from mixtree.experiments.rivals import RIVALS
    from mixtree.policies.registry import MIXMATCH, options_of

    known = frozenset[str]().union(*(options_of(name) for name in ("auto", *MIXMATCH)))
    asked: dict[tuple[str, ...], list[str]] = {}
    for flag in FLAGS:
        name = {"min": "minimum", "max": "maximum"}.get(flag.name, flag.name)
        if name not in known or getattr(options, name) in (None, False, {}):
            continue
        knowing = tuple(each for each in algorithms if each not in RIVALS and name in options_of(each))
        if not knowing and name in _BINDING:
            who = [each for each in MIXMATCH if name in options_of(each)]
            raise InputError(
                f"{flag.flag}: none of the algorithms keeps to it; add one that does (--algorithms "
                f"{', '.join(who)}, each with or without +commit), or leave it out"
            )
        if len(knowing) < len(algorithms):
            asked.setdefault(knowing, []).append(flag.flag)
    return [
        f"{', '.join(flags)}: for {', '.join(knowing)}; the others run without"
        if knowing
        else f"{', '.join(flags)}: for none of these algorithms"
        for knowing, flags in asked.items()
    ]


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


def _slowed(runs: list[Any]) -> list[str]:
    """Which algorithms were trained with smaller steps, since they diverged with the usual ones."""
    found: dict[tuple[str, int], list[str]] = {}
    for name in dict.fromkeys(each.algorithm for each in runs):
        own = [each.lr_scale for each in runs if each.algorithm == name and not each.diverged]
        slow = [rate for rate in own if rate < 1.0]
        if slow:
            rates = " and ".join(f"{rate:g}" for rate in sorted(set(slow)))
            found.setdefault((rates, len(slow)), []).append(name)
    repeats = 1 + max(each.repeat for each in runs)
    return [
        f"trained at {rates} × the usual step size in {count} of {repeats} repeats, since larger ones "
        f"diverged: {', '.join(names)}; the steps until then come on top of the budget"
        for (rates, count), names in found.items()
    ]


def _stopped(runs: list[Any]) -> list[str]:
    """Which algorithms the time limit ended."""
    found: dict[str, list[Any]] = {}
    for each in runs:
        if not each.finished:
            found.setdefault(each.algorithm, []).append(each)
    told = []
    for name, own in found.items():
        repeats, least = sum(each.algorithm == name for each in runs), min(map(_steps, own))
        told.append(
            f"the time limit ended {name} in {len(own)} of {repeats} repeats, after {least:,} of "
            f"{own[0].budget:,} steps at the earliest"
        )
    return told


def _steps(each: Any) -> int:
    return sum(each.spent.values())


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
