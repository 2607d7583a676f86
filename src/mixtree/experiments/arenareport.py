"""The arena's results as pages: Markdown, CSV and one HTML file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from mixtree.data.files import write_csv, write_file
from mixtree.experiments.arena import (
    BASELINES,
    PLENTY,
    REFERENCE,
    SEARCHES,
    Score,
    paired,
    standings,
    table_of,
)
from mixtree.experiments.choices import PAIRS as CHOICE_PAIRS
from mixtree.experiments.choices import summary
from mixtree.experiments.ideas import PAIRS as IDEA_PAIRS
from mixtree.experiments.tasks import Task

Rows = list[list[str]]


def write_report(folder: Path, scores: Sequence[Score], chosen: Sequence[Task]) -> list[Path]:
    """Write scores.csv, arena.md and arena.html."""
    files = [folder / name for name in ("scores.csv", "arena.md", "arena.html")]
    columns = ("task", "method", "seed", "score", "evaluations")
    rows = [
        {name: getattr(each, name) for name in columns}
        | {"spent": json.dumps(each.spent), "mixture": json.dumps(each.mixture)}
        for each in scores
    ]
    write_csv(files[0], rows)
    sections = report_sections(scores, chosen)
    write_file(files[1], markdown(sections))
    write_file(files[2], html(sections))
    return files


ARENA = """# The arena: all methods on all tasks

Written by `mixtree arena --half all --docs docs` from stored runs. What `auto` does, and how
today's version compares: [policies.md](../policies.md). Where budgets are too small to
converge: [undertrained.md](undertrained.md).

"""
CHOICES_WORDS = (
    "Each choice of auto changed alone, on the design half (`mixtree arena --half design --choices`). The "
    "change of the test score in standard deviations over a task's seeds, averaged over the tasks, + is "
    "worse; and the tasks on which it is so by a paired 95 % interval. By chance one in twenty is."
)
UNDERTRAINED = "# Undertrained\nWritten by `mixtree arena --half undertrained --docs docs`.\n\n"
IDEAS_WORDS = (
    "Not part of auto, measured in the same way against the plain way of the same method (`--choices` too): "
    "longer nodes than a thirtieth of the budget, the mean of the best leaves' weights, other optimizers "
    "(momentum 0.9 at a tenth of the step size, Adam at a hundredth)."
)


def write_tables(
    docs: Path,
    scores: Sequence[Score],
    chosen: Sequence[Task],
    *,
    choices: Sequence[dict[str, Any]] = (),
    ideas: Sequence[dict[str, Any]] = (),
) -> list[Path]:
    """Write the arena's tables, and what each of auto's choices is worth, as pages of docs/results.

    Undertrained tasks have a page of their own. A page without tasks stays as it is.

    Parameters
    ----------
    docs
        The folder of the documentation.
    scores
        All runs.
    chosen
        The tasks that are shown.
    choices
        What was measured with each of auto's choices changed alone.
    ideas
        What was measured with ideas that are no part of auto.

    Returns
    -------
    list of Path
        The pages that were written.
    """
    folder = docs / "results"
    folder.mkdir(parents=True, exist_ok=True)
    few = [task for task in chosen if task.half == "undertrained"]
    others = [task for task in chosen if task.half != "undertrained"]
    pages = []
    if few:
        pages.append(folder / "undertrained.md")
        write_file(pages[-1], UNDERTRAINED + markdown(report_sections(scores, few)))
    if others:
        sections = report_sections(scores, others)
        at = next(number for number, (title, _, _) in enumerate(sections) if title == others[0].name)
        if ideas:
            sections.insert(at, ("Other ideas", IDEAS_WORDS, summary(ideas, IDEA_PAIRS)))
        if choices:
            sections.insert(
                at, ("Every choice, changed alone", CHOICES_WORDS, summary(choices, CHOICE_PAIRS))
            )
        pages.append(folder / "arena.md")
        write_file(pages[-1], ARENA + markdown(sections))
    return pages


Section = tuple[str, str, Rows]


def report_sections(scores: Sequence[Score], chosen: Sequence[Task]) -> list[Section]:
    """Title, words and table of every part of the report."""
    sections: list[Section] = []
    for half in ("confirm", "design"):
        names = {task.name for task in chosen if task.half == half}
        own = [each for each in scores if each.task in names]
        if own:
            sections.append(_standings(own, half))
        if any(each.method == "auto" for each in own):
            sections.append(_against_auto(own, half))
    few = {task.name for task in chosen if task.half == "undertrained"}
    if own := [each for each in scores if each.task in few]:
        sections.append(_undertrained(own))
    gaps = _genie_gaps(scores)
    sections += [each for each in (gaps, _outside_gaps(scores)) if len(each[2]) > 1]
    for task in chosen:
        own = [each for each in scores if each.task == task.name and task.name not in few]
        if own:
            sections.append(_task_section(task, own))
    return sections


def _standings(scores: Sequence[Score], half: str) -> Section:
    rivals = (*BASELINES, *SEARCHES)
    rows = [["method", "mean rank", "worst regret (sd)", "surely worse than a baseline or search on"]]
    for each in standings(scores):
        pairs = sum(len(where) for name, where in each.worse.items() if name in rivals)
        tasks = {task for name, where in each.worse.items() if name in rivals for task in where}
        told = f"{len(tasks)} tasks ({pairs} pairs)" if tasks else "no task"
        rows.append([each.method, f"{each.rank:.2f}", f"{each.worst_regret:.2f}", told])
    count, seeds = len({each.task for each in scores}), len({each.seed for each in scores})
    words = (
        f"{count} tasks, {seeds} seeds each, all methods at the same budget of steps. Rank of the mean "
        "test score; regret to the best method of a task in standard deviations; surely: by a paired 95 % "
        "interval over the seeds."
    )
    return f"Standings, {half} half", words, rows


def _against_auto(scores: Sequence[Score], half: str) -> Section:
    """auto against every baseline and search, task by task."""
    rows = [["auto against", "surely better on", "no difference on", "surely worse on"]]
    table = table_of(scores)
    for rival in (*BASELINES, *SEARCHES):
        better, worse, same = 0, [], 0
        for task, results in table.items():
            if rival not in results or "auto" not in results:
                continue
            _, low, high = paired(results["auto"], results[rival])
            better, same = better + (high < 0), same + (low <= 0 <= high)
            worse += [task] if low > 0 else []
        rows.append([rival, f"{better} tasks", f"{same} tasks", ", ".join(worse) or "none"])
    words = "By paired 95 % intervals over the seeds. By chance one comparison in forty is surely worse."
    return f"auto against every baseline and search, {half} half", words, rows


def _undertrained(scores: Sequence[Score]) -> Section:
    """auto against plain uniform where budgets are too small to converge, task by task."""
    rows = [["task", "auto", "uniform", "uniform+decay", "auto − uniform (95 %)", ""]]
    worse = []
    for task, results in table_of(scores).items():
        if not {"auto", "uniform", "uniform+decay"} <= results.keys():
            continue
        mean, low, high = paired(results["auto"], results["uniform"])
        outcome = "surely worse" if low > 0 else "surely better" if high < 0 else ""
        worse += [task] if low > 0 else []
        means = [f"{results[name].mean():.4f}" for name in ("auto", "uniform", "uniform+decay")]
        rows.append([task, *means, f"{mean:+.4f} ({low:+.4f} … {high:+.4f})", outcome])
    words = (
        "Budgets too small for the networks to converge, where every look at a mixture and a decayed end "
        "cost most. Test loss, smaller is better. auto is surely worse than plain uniform on "
        f"{len(worse)} of {len(rows) - 1} tasks: {', '.join(worse) or 'none'}."
    )
    return "Undertrained tasks", words, rows


def _genie_gaps(scores: Sequence[Score]) -> Section:
    """How much of uniform's gap to the model on the true mixture is left."""
    rows = [["task", "uniform+decay − genie+decay", "auto − genie+decay", "gap left"]]
    for task, results in table_of(scores).items():
        if REFERENCE in results and "auto" in results and "uniform+decay" in results:
            uniform = float((results["uniform+decay"] - results[REFERENCE]).mean())
            auto = float((results["auto"] - results[REFERENCE]).mean())
            left = f"{100 * auto / uniform:.0f} %" if uniform > 0 else "uniform is no worse than genie"
            rows.append([task, f"{uniform:+.4f}", f"{auto:+.4f}", left])
    return "Gap to the true mixture", "Where the target's true mixture is known.", rows


def _outside_gaps(scores: Sequence[Score]) -> Section:
    """How much of uniform's gap to a model with plenty of target rows is removed."""
    rows = [["task", f"uniform+decay − {PLENTY}", f"auto − {PLENTY}", "gap removed"]]
    for task, results in table_of(scores).items():
        if PLENTY in results and "auto" in results and "uniform+decay" in results:
            uniform = float((results["uniform+decay"] - results[PLENTY]).mean())
            auto = float((results["auto"] - results[PLENTY]).mean())
            rows.append([task, f"{uniform:+.4f}", f"{auto:+.4f}", f"{100 * (1 - auto / uniform):.0f} %"])
    words = "Where no mixture reproduces the target: against the same network on 10,000 rows of the target."
    return "Outside the hull", words, rows


def _task_section(task: Task, scores: Sequence[Score]) -> Section:
    losses = table_of(scores)[task.name]
    shown = {method: np.array([each.score for each in scores if each.method == method]) for method in losses}
    rows = [["method", task.metric.name, "± se", "auto is better by (95 %)", "validation passes", "steps"]]
    for method in sorted(losses, key=lambda name: float(losses[name].mean())):
        values = shown[method]
        error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
        against = "–"
        if method != "auto" and "auto" in losses and len(losses[method]) == len(losses["auto"]):
            mean, low, high = paired(losses[method], losses["auto"])
            against = f"{mean:+.4f} ({low:+.4f} … {high:+.4f})"
        own = [each for each in scores if each.method == method]
        passes = float(np.mean([each.evaluations for each in own]))
        rows.append([method, f"{values.mean():.4f}", f"{error:.4f}", against, f"{passes:.0f}", _steps(own)])
    words = f"Budget {task.budget} steps of {task.batch} rows, {task.steps} per node; half: {task.half}."
    return task.name, words, rows


def _steps(scores: Sequence[Score]) -> str:
    phases = list(dict.fromkeys(phase for each in scores for phase in each.spent))
    means = {phase: np.mean([each.spent.get(phase, 0) for each in scores]) for phase in phases}
    return ", ".join(f"{phase} {mean:.0f}" for phase, mean in means.items())


def markdown(sections: Sequence[Section], *, level: int = 2) -> str:
    """The sections as Markdown."""
    lines: list[str] = []
    for title, words, rows in sections:
        lines += ["#" * level + f" {title}", words, ""]
        head, *body = rows
        lines += ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
        lines += ["| " + " | ".join(row) + " |" for row in body]
        lines.append("")
    return "\n".join(lines)


_STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:.5rem 0 2rem}td,th{padding:.2rem .7rem;text-align:left;"
    "border-bottom:1px solid #ddd;font-variant-numeric:tabular-nums}th{background:#f4f4f4}"
)


def html(sections: Sequence[Section]) -> str:
    """The sections as one HTML file without anything from elsewhere."""
    parts = ["<!doctype html><html lang='en'><meta charset='utf-8'><title>mixtree arena</title>"]
    parts += [f"<style>{_STYLE}</style>", "<h1>mixtree arena</h1>"]
    for title, words, rows in sections:
        head, *body = rows
        parts.append(f"<h2>{escape(title)}</h2><p>{escape(words)}</p><table><tr>")
        parts += [f"<th>{escape(cell)}</th>" for cell in head]
        parts.append("</tr>")
        for row in body:
            parts.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
        parts.append("</table>")
    return "".join(parts) + "</html>\n"
