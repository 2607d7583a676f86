"""The pages about the reproduction, written from stored runs: no number in them is typed by hand."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import groupby
from math import isfinite
from pathlib import Path

from mixtree.data.files import write_file
from mixtree.experiments.claims import CONFIDENCE, LEAST_PAIRS
from mixtree.experiments.figures import panels
from mixtree.experiments.report import (
    DEFAULT_SETTINGS,
    SETTINGS,
    Report,
    expansion_lines,
    figure_name,
    measured,
    outcome_words,
    scores_table,
)
from mixtree.experiments.specs import Experiment
from mixtree.experiments.tuning import FACTOR, MOST_STEP_SIZES, STEP_SIZES, TRIALS, TUNING_SPLITS, Sweep
from mixtree.experiments.why import why

_LITTLE = 0.02
"""A training loss that is less than this share below a constant's is no better than it."""

_ABOUT = """\
# The paper's experiments, run again

*Mix and Match: An Optimistic Tree-Search Approach for Learning Models from Mixture Distributions* (Faw, Sen,
Shanmugam, Caramanis, Shakkottai). This page, the tables of raw scores in [results](results) and the figures
are written by

```
{command}
```

from stored runs: every number on them. Do not edit them; run the command again, it goes on where it was. On
the same machine it gives the same numbers, digit for digit, but for the CPU minutes; where sums are rounded
otherwise (another processor, no C compiler), a mean of {repeats} repeats may move by two of its standard
errors, 2 sd / √{repeats}. The data of Allstate, wine and Amazon are not part of mixtree: put the public files
in a folder and name it in the environment variable `MIXTREE_DATA` (a missing file is named with the place to
get it). The flights need no download: `mixtree reproduce flights`.

The step sizes and runs behind this page took {cpu} CPU minutes ({parts}); scoring the models and drawing the
figures are not counted. In less time: `--quick` runs the paper's Λ alone.
"""

_METHOD = """\
## How it was done

{repeats} repeats, each with its own split, initial model and random streams; within a repeat all algorithms
have the same split and initial model. Every algorithm is charged for all its gradient steps. Every point of a
figure is the end of independent runs with that budget Λ; claims and tables are at the paper's Λ. Test rows
are dropped before training, and read only when this report scores the stored models. CH is `mixmatch-ch`
(`mixmatch-chp`, the authors' own halving, in their setting), DP is `mixmatch-dp`, and +commit is the paper's
"+0.1Step".

Three settings:

- **{authors}**: their η, ν, ρ and λ, c = 1, the root is trained, the optimizer is reset at every node (plain
  SGD has nothing to reset), a node's value is the metric on validation rows, the best of the deepest nodes is
  returned. With their ν and ρ and so few nodes the search is close to breadth-first.
- **{shared}**, the best one for `uniform`. The search is as the paper's text has it: c = 2, ν = 0.5,
  ρ = (√3/2)^{{1/(K−1)}}, the root is trained, the value is the validation loss; λ is the paper's.
- **{own}**: the same, with the best η of every algorithm.

η is chosen by the experiment's own metric on {splits} splits that no reported run uses: a run has one half of
a split's validation rows, the other half scores it, both ways. The step sizes start as {start} and go on by
× {factor:g} at an end until the best one is inside or the next one diverges, up to {most} of them; an η that
is still at an end has a warning. The splits are of the same tables, so rows that chose an η are test rows of
some repeats: one number per algorithm is chosen with them, at Λ, and kept for all budgets of a figure.
`--setting optuna` tunes η, λ, ν and ρ together ({trials} trials per algorithm).

**Outcomes.** A claim is about pairs of algorithms on the same repeats: the mean difference (positive: the
first one did better, in the metric's own direction) with Student's {confidence:.0%} interval. "better" says
that the true difference is above 0; "no worse" that it is above −tolerance; "≈" that it is within ± tolerance
({tolerances}); "narrower" that one gap's size less the other's is above 0. A claim *holds* if the
interval of every pair lies there, is *refuted* if one lies outside, and is *undecided* if the interval
contains the boundary: then the table says how many repeats would decide, were mean and spread to stay.
Where there are several pairs, the one that fares worst is shown.
"""

_DIFFERENCES = """\
## What differs from the paper, and why

- **All layers are trained.** In the authors' scripts the inner layers sat in a plain list, so the optimizer
  never saw them and they were never trained.
- **The metric is Hand–Till's multiclass AUROC on probabilities.** The authors' multiclass AUROC was
  one-vs-rest on logits.
- **Each repeat has its own initial model**, and scaling and imputing are fitted on training rows only.
- **The budget is hard**: a node at height h costs λ(h), no last node is cut short, all auxiliary fits are
  charged.
- **Claims** are encoded once each, by the experiment they are made of and its figures: sentences and pages
  differ between the paper's versions, and are not quoted.

What differs in one experiment is said in its section.
"""


def write_pages(
    folder: Path, results: Sequence[Report], *, drawn: Sequence[Path], command: str
) -> list[Path]:
    """Write reproduction.md, a page of raw scores for every experiment, and the figures that were drawn.

    ``command`` is what makes the pages.
    """
    figures, raw = folder / "figures", folder / "results"
    figures.mkdir(parents=True, exist_ok=True)
    raw.mkdir(exist_ok=True)
    order = list(SETTINGS)
    names = list(dict.fromkeys(each.plan.experiment.name for each in results))
    ranked = sorted(
        results, key=lambda each: (names.index(each.plan.experiment.name), order.index(each.plan.setting))
    )
    grouped = [list(own) for _, own in groupby(ranked, key=lambda each: each.plan.experiment.name)]
    for file in figures.glob("reproduce-*"):
        file.unlink()  # some may be of an experiment, setting or format that is no longer reported
    for file in drawn:
        if file.suffix == ".png":
            shutil.copyfile(file, figures / file.name)
    page = folder / "reproduction.md"
    parts = [
        _about(grouped, command),
        _overview(grouped),
        _method(results),
        _DIFFERENCES,
        _figures(grouped),
        _step_sizes(grouped),
        *(_section(own) for own in grouped),
    ]
    written = [page, *(raw / f"{own[0].plan.experiment.name}.md" for own in grouped)]
    texts = ["\n".join(part.strip() + "\n" for part in parts), *(_raw(own, command) for own in grouped)]
    for file, text in zip(written, texts, strict=True):
        write_file(file, text)
    return written


def _about(grouped: Sequence[Sequence[Report]], command: str) -> str:
    minutes = {}
    for own in grouped:
        runs = {name: seconds for each in own for name, seconds in each.cpu.items()}
        minutes[own[0].plan.experiment.name] = sum(runs.values()) / 60
    return _ABOUT.format(
        command=command,
        repeats=max(each.plan.repeats for own in grouped for each in own),
        cpu=f"{sum(minutes.values()):.1f}",
        parts=", ".join(f"{name} {each:.1f}" for name, each in minutes.items()),
    )


def _overview(grouped: Sequence[Sequence[Report]]) -> str:
    used = {each.plan.setting for own in grouped for each in own}
    settings = [setting for setting in SETTINGS if setting in used]
    titles = [SETTINGS[setting] for setting in settings]
    lines = [
        "## All claims",
        "",
        f"| experiment | the paper says | where | {' | '.join(titles)} |",
        f"| --- | --- | --- | {' | '.join('---' for _ in settings)} |",
    ]
    counts = {setting: {"holds": 0, "refuted": 0, "undecided": 0} for setting in settings}
    for own in grouped:
        reports = {each.plan.setting: each for each in own}
        experiment = own[0].plan.experiment
        for number, claim in enumerate(experiment.claims):
            cells = []
            for setting in settings:
                if setting not in reports:
                    cells.append("–")
                    continue
                verdict = reports[setting].verdicts[number]
                counts[setting][verdict.outcome] += 1
                cells.append(_short(reports[setting], number))
            link = f"[{experiment.name}](#{experiment.name})"
            lines.append(f"| {link} | {claim.text} | {claim.place} | {' | '.join(cells)} |")
    told = "; ".join(
        f"{SETTINGS[setting]}: {count['holds']} hold, {count['refuted']} are refuted, "
        f"{count['undecided']} undecided"
        for setting, count in counts.items()
    )
    told += ". In brackets: repeats that would decide."
    told += "".join(_alike(grouped, outcome) for outcome in ("holds", "refuted") if len(settings) > 1)
    repeats = min(each.plan.repeats for own in grouped for each in own)
    warning = "" if repeats >= LEAST_PAIRS else f"\n\n**{too_few(repeats)}**"
    return "\n".join(lines) + f"\n\nOf all claims, {told}{warning}"


def _alike(grouped: Sequence[Sequence[Report]], outcome: str) -> str:
    """The claims that have this outcome whatever the setting."""
    lines = []
    for own in grouped:
        claims = [
            claim.text
            for number, claim in enumerate(own[0].plan.experiment.claims)
            if all(each.verdicts[number].outcome == outcome for each in own)
        ]
        lines += [f"- {own[0].plan.experiment.name}: {'; '.join(claims)}."] if claims else []
    verb = "hold" if outcome == "holds" else "are refuted"
    return f"\n\nIn every setting {verb}:\n\n" + "\n".join(lines) if lines else ""


def too_few(repeats: int) -> str:
    """What to say where there are too few repeats for any outcome."""
    return f"{repeats} repeats decide nothing: every claim is undecided. Take 10."


def _short(result: Report, number: int) -> str:
    verdict = result.verdicts[number]
    if verdict.outcome != "undecided":
        return f"**{verdict.outcome}**" if verdict.outcome == "holds" else verdict.outcome
    return f"undecided ({verdict.repeats:.0f})" if isfinite(verdict.repeats) else "undecided"


def _method(results: Sequence[Report]) -> str:
    tolerances = dict.fromkeys(
        ("AUROC" if each.metric.higher_is_better else "dollars", each.tolerance)
        for each in (result.plan.experiment for result in results)
    )
    counts = sorted({result.plan.repeats for result in results})
    return _METHOD.format(
        repeats=" or ".join(map(str, counts)),
        splits=TUNING_SPLITS,
        start=", ".join(f"{lr:g}" for lr in STEP_SIZES),
        factor=FACTOR,
        most=MOST_STEP_SIZES,
        trials=TRIALS,
        confidence=CONFIDENCE,
        tolerances=", ".join(f"{text} {low:g}" for text, low in tolerances),
        **{setting: SETTINGS[setting] for setting in DEFAULT_SETTINGS},
    )


def _figures(grouped: Sequence[Sequence[Report]]) -> str:
    lines = [
        "## Figures",
        "",
        "Error bars are one standard deviation over the repeats (of step sizes: one standard error over the "
        "splits). The paper's figures have the numbers that the authors' repository gives them.",
        "",
        "| paper's figure | what | command | file |",
        "| --- | --- | --- | --- |",
    ]
    for own in grouped:
        experiment = own[0].plan.experiment
        paper = experiment.figures or "–"
        command = f"`mixtree reproduce {experiment.name}`"
        file = f"{figure_name(experiment)}.png"
        lines.append(
            f"| {paper} | {experiment.name}: test score against Λ | {command} | [{file}](figures/{file}) |"
        )
        if _tuned(own) is not None:
            file = f"{figure_name(experiment, 'step-sizes')}.png"
            lines.append(f"| – | {experiment.name}: score against η | {command} | [{file}](figures/{file}) |")
    theory = "[theory.md](theory.md)"
    lines.append(f"| – | regret R(Λ), steps λ(h) | `python -m mixtree.experiments.theorems` | {theory} |")
    return "\n".join(lines)


def _tuned(own: Sequence[Report]) -> Report | None:
    return next((each for each in own if each.plan.setting == "own"), None)


def _step_sizes(grouped: Sequence[Sequence[Report]]) -> str:
    rows, trains, warnings = [], [], []
    for own in grouped:
        result, experiment = _tuned(own), own[0].plan.experiment
        if result is None:
            continue
        names = panels(experiment)[0]
        shown = {"genie": "–"} | {name: f"{result.sweeps[name].chosen:.4g}" for name in names}
        order = [name for name in (*names[:4], "genie", "uniform", "validation")]
        rows.append(
            f"| {experiment.name} | {experiment.authors.lr:g} | {' | '.join(shown[name] for name in order)} |"
        )
        trains.append(_trains(own, result))
        warnings += [
            f"- {experiment.name}, `{sweep.algorithm}`: {sweep.warning}."
            for sweep in result.sweeps.values()
            if sweep.warning
        ]
    if not rows:
        return ""
    told = (
        "Chosen at an end of its sweep:\n\n" + "\n".join(warnings)
        if warnings
        else ("Every chosen η is inside its sweep, or the next one diverges.")
    )
    return "\n".join(
        [
            "## Step sizes",
            "",
            "The best η by validation score. All algorithms and all scores are in [results](results).",
            "",
            "| experiment | authors' | mixmatch-ch | mixmatch-dp | mixmatch-ch+commit | mixmatch-dp+commit | "
            "genie | uniform | validation |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
            *rows,
            "",
            told,
            "",
            "Does the network train? The loss of `uniform` on the sources' own rows after Λ, against that of "
            "each source's best constant; and on the target's held-out rows of the tuning splits, against "
            "the best constant of the others.",
            "",
            "| experiment | sources: constants | at the authors' η | at its best η | target: constant | at "
            "its best η |",
            "| --- | --- | --- | --- | --- | --- |",
            *trains,
        ]
    )


def _trains(own: Sequence[Report], tuned: Report) -> str:
    best = tuned.sweeps["uniform"].best
    constant = best.fitted_constant
    authors = next((each for each in own if each.plan.setting == "authors"), None)

    def judged(loss: float, constant: float) -> str:
        return "" if loss < (1 - _LITTLE) * constant else ": no better than constants"

    def cell(result: Report | None) -> str:
        if result is None:
            return "–"
        loss = result.cell("uniform").fitted
        return f"{loss:.3g} (η = {result.cell('uniform').lr:.4g}){judged(loss, constant)}"

    target = f"{best.constant:.3g} | {best.loss:.3g}{judged(best.loss, best.constant)}"
    return f"| {tuned.plan.experiment.name} | {constant:.3g} | {cell(authors)} | {cell(tuned)} | {target} |"


def _section(own: Sequence[Report]) -> str:
    result = _tuned(own) or own[-1]
    plan, experiment, rows = result.plan, result.plan.experiment, result.rows
    full, batch = result.full, experiment.batch
    sizes = ", ".join(f"{name} {count:,}" for name, count in rows.items() if name in experiment.sources)
    figure = f"figures/{figure_name(experiment)}.png"
    parts = [
        f"## {experiment.name}",
        f"{experiment.title} {experiment.about} Training rows: {sizes}; the target has "
        f"{rows['validation']:,} validation rows and {rows['test']:,} test rows. Λ = {full * batch:,} "
        f"samples ({full} batches of {batch}), {experiment.steps} batches per node, {plan.repeats} repeats. "
        f"Score: {experiment.score}. "
        f"Raw scores: [results/{experiment.name}.md](results/{experiment.name}.md).",
        f"What differs from the paper: {experiment.differs}" if experiment.differs else "",
        f"![{experiment.name}: test score against the budget]({figure})",
        f"![{experiment.name}: score against the step size]"
        f"(figures/{figure_name(experiment, 'step-sizes')}.png)"
        if _tuned(own) is not None
        else "",
        f"With {SETTINGS[plan.setting]}:",
        _claims_table(result),
    ]
    refuted = [each for each in result.verdicts if each.outcome == "refuted"]
    if plan.setting == "own" and refuted:
        reasons: dict[str, list[str]] = {}
        for each in refuted:
            reasons.setdefault(why(result, each), []).append(each.claim.text)
        parts.append("Why the refuted ones fail:")
        parts.append("\n".join(f"- *{'; '.join(texts)}.* {reason}" for reason, texts in reasons.items()))
    return "\n\n".join(part for part in parts if part)


def _claims_table(result: Report) -> str:
    lines = ["| the paper says | we measured | outcome |", "| --- | --- | --- |"]
    for each in result.verdicts:
        numbers = measured(each.claim, each.shown, result.digits)
        lines.append(
            f"| {each.claim.text} | {numbers}: {each.shown.reason} | "
            f"{outcome_words(each, repeats=result.plan.repeats)} |"
        )
    return "\n".join(lines)


# -- raw scores -------------------------------------------------------------------------------------------


def _raw(own: Sequence[Report], command: str) -> str:
    experiment = own[0].plan.experiment
    parts = [
        f"# {experiment.name}: raw scores",
        f"{experiment.title} Written by `{command}`; what it means is in "
        f"[reproduction.md](../reproduction.md#{experiment.name}). `retrained:X` is SGD with all of Λ on the "
        "mixture that X found, at uniform's η.",
    ]
    for result in own:
        heading = f"## {SETTINGS[result.plan.setting].capitalize()}"
        parts += [heading, scores_table(result), _pairs_table(result)]
        if result.plan.setting == "authors":
            parts += [
                "Expansion order, heights of the expanded nodes:",
                "\n".join(expansion_lines(result)),
            ]
        if result.plan.setting == "optuna":
            lines = ["| algorithm | η | λ (batches) | ν | ρ |", "| --- | --- | --- | --- | --- |"]
            for name, recipe in result.plan.recipes.items():
                nu, rho = (
                    f"{recipe.options[key]:.3g}" if key in recipe.options else "–" for key in ("nu", "rho")
                )
                steps = str(recipe.steps) if recipe.options else "–"
                lines.append(f"| {name} | {recipe.lr:.3g} | {steps} | {nu} | {rho} |")
            parts.append("\n".join(lines))
        if result.plan.setting == "own":
            parts.append(_sweeps_table(experiment, list(result.sweeps.values())))
    return "\n\n".join(parts) + "\n"


def _pairs_table(result: Report) -> str:
    lines = ["| the paper says | pair: measured | outcome | repeats to decide |", "| --- | --- | --- | --- |"]
    for verdict in result.verdicts:
        for each in verdict.findings:
            wanted = f"{each.repeats:.0f}" if isfinite(each.repeats) else "–"
            lines.append(
                f"| {verdict.claim.text} | {measured(verdict.claim, each, result.digits)} | {each.outcome}: "
                f"{each.reason} | {wanted if each.outcome == 'undecided' else ''} |"
            )
    return "\n".join(lines)


def _sweeps_table(experiment: Experiment, sweeps: Sequence[Sweep]) -> str:
    digits = 4 if experiment.metric.higher_is_better else 2
    lines = [
        f"Validation {experiment.score} by η, ± one standard error over the halves of {TUNING_SPLITS} "
        "splits; the best one is bold.",
        "",
        "| algorithm | η: score | warning |",
        "| --- | --- | --- |",
    ]
    for sweep in sweeps:
        cells = []
        for point in sweep.points:
            text = "diverges" if point.diverged else f"{point.score:.{digits}f} ± {point.se:.{digits}f}"
            text = f"{point.lr:.4g}: {text}"
            cells.append(f"**{text}**" if point.lr == sweep.chosen else text)
        lines.append(f"| {sweep.algorithm} | {', '.join(cells)} | {sweep.warning} |")
    return "\n".join(lines)
