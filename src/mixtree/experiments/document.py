"""The page about the reproduction, written from stored runs: no number in it is typed by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from mixtree.experiments.claims import CONFIDENCE
from mixtree.experiments.report import SETTINGS, Report, claims_table, expansion_lines, scores_table
from mixtree.experiments.specs import EXPERIMENTS, Experiment, SettingName
from mixtree.experiments.tuning import PROBES, TRIALS, TUNING_SPLITS

PAGE: tuple[tuple[str, SettingName], ...] = (
    *((name, "ours") for name in EXPERIMENTS),
    ("amazon", "authors"),
    ("amazon", "tuned"),
)
"""What the page shows. The data of Amazon alone are exactly the paper's, so it has every setting."""
COMMAND = "mixtree reproduce all --docs docs"

_ABOUT = """\
# The paper's experiments, run again

*Mix and Match: An Optimistic Tree-Search Approach for Learning Models from Mixture Distributions* (Faw, Sen,
Shanmugam, Caramanis, Shakkottai). This page is written by

```
{command}
```

from stored runs: every number, table and figure on it. Do not edit it; run the command again. The data of
Allstate, wine and Amazon are not part of mixtree: put the public files in a folder and name it in the
environment variable `MIXTREE_DATA` (a missing file is named with the place to get it). The flights need no
download: `mixtree reproduce flights`.

How it was done: {repeats} repeats, each with its own split, initial model and random streams; within a repeat
all algorithms have the same split and initial model. Every point of a figure is the end of independent runs
with that budget Λ; tables are at the paper's Λ. Every algorithm is charged for all its gradient steps. Test
rows are dropped before training, and read only when this report scores the stored models.

A claim compares two algorithms on the same repeats: the mean difference (positive: the first one did better,
in the metric's own direction) with Student's {confidence:.0%} interval. "better" holds if the interval lies
above 0; "≈" if it contains 0 or lies within ± the tolerance ({tolerances}); "no worse" if it reaches 0 or
lies above −tolerance. With {repeats} repeats many intervals are wide: "≈" and "no worse" are then weak
statements. Where a claim is about several algorithms, the comparison that fares worst is shown. A search
spends its budget on a whole tree, but the model it returns has seen only the batches on its own path: the
tables have both numbers. CH is `mixmatch-ch` (`mixmatch-chp`, the authors' own halving, in their settings),
DP is `mixmatch-dp`, and +commit is the paper's "+0.1Step".
"""

_DIFFERENCES = """\
## What differs from the paper, and why

- **All layers are trained.** In the authors' scripts the inner layers sat in a plain list, so the optimizer
  never saw them and they were never trained.
- **The metric is Hand–Till's multiclass AUROC on probabilities.** The authors' multiclass AUROC was
  one-vs-rest on logits.
- **Each repeat has its own initial model**, and scaling and imputing are fitted on training rows only.
- **The step size.** The default settings keep the authors' η only where the network trains with it within Λ;
  the next section has the measurements.
- **The budget is hard**: a node at height h costs λ(h), no last node is cut short, all auxiliary fits are
  charged.
- **Allstate**: where the file is the flattened copy, two day features of the paper (days between the first
  quote and the purchase; same-day flag) are missing, because the purchase row's day is not in it; the day and
  hours of the quotes stand in. The original quote-by-quote file has them.
- **Wine**: the figures show points and variety as features over all priced rows. The paper's tasting-note
  features exist only for a subset of 5,408 rows, which would leave 11 to 17 validation rows.
- **Flights** are not in the paper: public data that anyone can rerun, in the layout of Allstate (a known
  mixture) and of Amazon (a new source), asked the questions of those two. The authors have no settings for
  them.

`mixtree reproduce NAME --authors-settings` and `--tuned` run the other experiments in those settings too.
"""


def write_page(folder: Path, results: Sequence[Report], *, work: Path) -> Path:
    """Write reproduction.md and its figures; ``work`` is the folder that holds the runs."""
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    tolerances = ", ".join(
        f"{text} {low:g}"
        for text, low in dict.fromkeys(
            ("AUROC" if each.metric.higher_is_better else "dollars", each.tolerance)
            for each in (result.plan.experiment for result in results)
        )
    )
    repeats = max(result.plan.repeats for result in results)
    parts = [
        _ABOUT.format(command=COMMAND, repeats=repeats, confidence=CONFIDENCE, tolerances=tolerances),
        _overview(results),
        _DIFFERENCES,
        _step_sizes([result.plan.experiment for result in results], work),
    ]
    for setting in SETTINGS:
        own = [result for result in results if result.plan.setting == setting]
        if own:
            parts.append(_HEADINGS[setting])
            parts += [_section(result, figures, work) for result in own]
    page = folder / "reproduction.md"
    page.write_text("\n".join(part.strip() + "\n" for part in parts), encoding="utf-8")
    return page


_HEADINGS = {
    "ours": "## Default settings\n\nThe search as the paper's text has it: c = 2, ν = 0.5, "
    "ρ = (√3/2)^{1/(K−1)}, the root is trained, the value is the validation loss, the best of the deepest "
    "nodes is returned; λ is the paper's.",
    "authors": "## The authors' settings\n\nTheir ν, ρ, η and λ, c = 1, the root is trained, the optimizer "
    "is reset at every node (plain SGD has nothing to reset), the value is the metric on validation rows, "
    "the best of the deepest nodes is returned, coordinate halving is as they wrote it (`mixmatch-chp`). "
    "With their ν and ρ and so few nodes the search is close to breadth-first: each section ends with the "
    "order it expanded in. The table of step sizes says how far a network gets with their η.",
    "tuned": f"## Tuned settings\n\nη for every algorithm, and λ, ν, ρ for every search, by Optuna (TPE, "
    f"{TRIALS} trials per algorithm, the first one the default settings) on {TUNING_SPLITS} splits that no "
    "reported run uses. Each trial runs with one half of the validation rows and is scored by the metric on "
    "the other half, both ways.",
}


def _overview(results: Sequence[Report]) -> str:
    lines = [
        "## Which claims hold",
        "",
        "| experiment | settings | claims that hold | claims that do not |",
        "| --- | --- | --- | --- |",
    ]
    for result in results:
        good = [each for each in result.verdicts if each.holds]
        bad = [each.claim.text for each in result.verdicts if not each.holds]
        name, setting = result.plan.experiment.name, SETTINGS[result.plan.setting]
        link = f"[{name}](#{_anchor(result)})"
        count = f"{len(good)} of {len(result.verdicts)}"
        lines.append(f"| {link} | {setting} | {count} | {'; '.join(bad) or '–'} |")
    return "\n".join(lines)


def _step_sizes(experiments: Sequence[Experiment], work: Path) -> str:
    lines = [
        "## Step sizes",
        "",
        f"Validation loss of `uniform` after Λ, mean over {PROBES} splits that no reported run uses. The "
        "authors' η is kept if the loss falls at least half as far as with the best one; else the best one "
        "is taken.",
        "",
        "| experiment | before training | after Λ, by η | authors' η | chosen η |",
        "| --- | --- | --- | --- | --- |",
    ]
    for experiment in dict.fromkeys(experiments):
        file = work / f"step-size-{experiment.name}.json"
        if not file.exists():
            continue
        found = json.loads(file.read_text(encoding="utf-8"))
        losses = ", ".join(f"{lr}: {loss:.4g}" for lr, loss in found["losses"].items())
        authors = f"{experiment.authors.lr:g}" if experiment.authors else "–"
        lines.append(
            f"| {experiment.name} | {found['start']:.4g} | {losses} | {authors} | {found['chosen']:g} |"
        )
    return "\n".join(lines)


def _section(result: Report, figures: Path, work: Path) -> str:
    plan, experiment = result.plan, result.plan.experiment
    own = work / f"{experiment.name}-{plan.setting}"
    name = f"reproduce-{experiment.name}-{plan.setting}"
    for ending in ("png", "svg"):
        shutil.copyfile(own / f"scores.{ending}", figures / f"{name}.{ending}")
    full, batch = max(plan.budgets), experiment.batch
    parts = [
        f"### {_heading(result)}",
        f"{experiment.title} {experiment.notes} Λ = {full * batch:,} samples ({full} batches of {batch}), "
        f"{plan.repeats} repeats. Score: {experiment.score}.",
        f"![{result.title}](figures/{name}.png)",
        claims_table(result),
        scores_table(result),
    ]
    if plan.setting == "authors":
        parts.append("Expansion order, heights of the expanded nodes:")
        parts.append("\n".join(expansion_lines(result)))
    if plan.setting == "tuned":
        parts.append(_parameters(result))
    return "\n\n".join(parts)


def _heading(result: Report) -> str:
    return f"{result.plan.experiment.name}, {SETTINGS[result.plan.setting]}"


def _anchor(result: Report) -> str:
    kept = (each for each in _heading(result).lower() if each.isalnum() or each in " -")
    return "".join(kept).replace(" ", "-")


def _parameters(result: Report) -> str:
    lines = ["| algorithm | η | λ (batches) | ν | ρ |", "| --- | --- | --- | --- | --- |"]
    for name, recipe in result.plan.recipes.items():
        nu, rho = (f"{recipe.options[key]:.3g}" if key in recipe.options else "–" for key in ("nu", "rho"))
        steps = str(recipe.steps) if recipe.options else "–"
        lines.append(f"| {name} | {recipe.lr:.3g} | {steps} | {nu} | {rho} |")
    return "\n".join(lines)
