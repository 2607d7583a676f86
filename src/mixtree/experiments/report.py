"""The report of a reproduction: tables of scores, claims and expansions, on disk and in words."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.experiments.claims import Verdict, check
from mixtree.experiments.figures import draw
from mixtree.experiments.parallel import Crew
from mixtree.experiments.reproduce import GRID, Plan, Say, Scored, grid, score, train
from mixtree.experiments.specs import Experiment, SettingName
from mixtree.experiments.tuning import TRIALS, recipes

SETTINGS = {
    "ours": "default settings",
    "authors": "the authors' settings",
    "tuned": "settings tuned on validation rows",
}
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Cell:
    """One algorithm at one budget, over the repeats that have a score."""

    algorithm: str
    budget: int
    test: float
    sd: float
    validation: float
    mixture: dict[str, float]
    repeats: int
    diverged: int
    spent: float
    trained: float
    """Steps that the returned model itself has seen."""
    seconds: float


@dataclass(frozen=True, eq=False, slots=True)
class Report:
    """Everything that a reproduction of one experiment in one setting found."""

    plan: Plan
    scored: list[Scored]
    cells: list[Cell]
    verdicts: list[Verdict]

    @property
    def title(self) -> str:
        """Experiment and setting in words."""
        return f"{self.plan.experiment.title} ({SETTINGS[self.plan.setting]})"

    def final(self) -> list[Cell]:
        """The cells at the full budget."""
        return [cell for cell in self.cells if cell.budget == max(self.plan.budgets)]


def carry_out(
    experiment: Experiment,
    setting: SettingName,
    folder: Path,
    *,
    crew: Crew,
    repeats: int = 10,
    points: int = GRID,
    trials: int = TRIALS,
    say: Say = lambda line: None,
) -> Report:
    """Choose settings, run what is not stored yet, report, and write the report to the folder."""
    chosen = recipes(experiment, setting, folder, crew=crew, trials=trials, say=say)
    plan = Plan(experiment, setting, chosen, grid(experiment.budget, points), repeats, folder)
    train(plan, crew=crew, say=say)
    result = report(plan, crew=crew)
    write(result)
    return result


def report(plan: Plan, *, crew: Crew) -> Report:
    """Score the stored models on the test rows and check the paper's claims at the full budget."""
    scored = score(plan, crew=crew)
    cells = [_cell(scored, name, budget) for budget in plan.budgets for name in plan.recipes]
    return Report(plan, scored, cells, _verdicts(plan, scored))


def claim_names(setting: str) -> dict[str, str]:
    """The searches that CH and DP stand for: the authors' own halving in their setting."""
    return {"CH": "mixmatch-chp" if setting == "authors" else "mixmatch-ch", "DP": "mixmatch-dp"}


def _verdicts(plan: Plan, scored: Sequence[Scored]) -> list[Verdict]:
    full, experiment = max(plan.budgets), plan.experiment
    scores = {name: _scores(scored, name, full) for name in plan.recipes}
    return [
        check(
            claim,
            scores,
            names=claim_names(plan.setting),
            tolerance=experiment.tolerance,
            higher_is_better=experiment.metric.higher_is_better,
        )
        for claim in experiment.claims
    ]


def _scores(scored: Sequence[Scored], algorithm: str, budget: int) -> NDArray[np.float64]:
    own = [each.run for each in scored if (each.run.algorithm, each.run.budget) == (algorithm, budget)]
    return np.array([run.test_score for run in sorted(own, key=lambda run: run.repeat)])


def _cell(scored: Sequence[Scored], algorithm: str, budget: int) -> Cell:
    both = [each for each in scored if (each.run.algorithm, each.run.budget) == (algorithm, budget)]
    own = [each.run for each in both]
    good = [run for run in own if np.isfinite(run.test_score)]
    tests = np.array([run.test_score for run in good])
    names = list(dict.fromkeys(source for run in good for source in run.mixture))
    nothing = float("nan")
    return Cell(
        algorithm,
        budget,
        float(tests.mean()) if len(good) else nothing,
        float(tests.std(ddof=1)) if len(good) > 1 else nothing,
        float(np.mean([run.val_score for run in good])) if good else nothing,
        {name: float(np.mean([run.mixture.get(name, 0.0) for run in good])) for name in names},
        len(own),
        len(own) - len(good),
        float(np.mean([sum(run.spent.values()) for run in own])),
        float(np.mean([each.trained for each in both])),
        float(np.mean([run.seconds for run in own])),
    )


# -- on disk ----------------------------------------------------------------------------------------------


def write(result: Report) -> list[Path]:
    """runs.csv, summary.csv, claims.csv, expansions.csv and the figure as PNG and SVG."""
    plan = result.plan
    folder = plan.folder / f"{plan.experiment.name}-{plan.setting}"
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[dict[str, Any]]] = {
        "runs.csv": [_run_row(plan, each) for each in result.scored],
        "summary.csv": [_cell_row(plan, cell) for cell in result.cells],
        "claims.csv": [claim_row(each) for each in result.verdicts],
        "expansions.csv": [
            {
                "algorithm": each.run.algorithm,
                "budget": each.run.budget,
                "repeat": each.run.repeat,
                "heights": " ".join(map(str, each.expansions)),
            }
            for each in result.scored
            if each.expansions
        ],
    }
    for name, rows in tables.items():
        write_table(folder / name, rows)
    figures = [folder / "scores.png", folder / "scores.svg"]
    draw(plan.experiment, result.scored, title=result.title, files=figures)
    return [*(folder / name for name in tables), *figures]


def write_table(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows as CSV; the columns are all keys in the order in which they appear."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def _run_row(plan: Plan, each: Scored) -> dict[str, Any]:
    run, recipe = each.run, plan.recipes[each.run.algorithm]
    return {
        "study": plan.study(run.algorithm, run.budget, run.repeat),
        "algorithm": run.algorithm,
        "repeat": run.repeat,
        "budget": run.budget,
        "samples": run.budget * plan.experiment.batch,
        "test": run.test_score,
        "validation": run.val_score,
        "value": run.value,
        "spent": sum(run.spent.values()),
        "trained": each.trained,
        "seconds": round(run.seconds, 4),
        "lr": recipe.lr,
        "steps_per_node": recipe.steps,
        **recipe.options,
        **{f"mixture_{name}": weight for name, weight in run.mixture.items()},
    }


def _cell_row(plan: Plan, cell: Cell) -> dict[str, Any]:
    return {
        "algorithm": cell.algorithm,
        "budget": cell.budget,
        "samples": cell.budget * plan.experiment.batch,
        "test_mean": cell.test,
        "test_sd": cell.sd,
        "validation_mean": cell.validation,
        "repeats": cell.repeats,
        "diverged": cell.diverged,
        "spent": cell.spent,
        "trained": cell.trained,
        "seconds": round(cell.seconds, 4),
        **{f"mixture_{name}": weight for name, weight in cell.mixture.items()},
    }


def claim_row(verdict: Verdict) -> dict[str, Any]:
    """A verdict as a flat row."""
    advantage = verdict.advantage
    return {
        "paper_says": verdict.claim.text,
        "left": verdict.left,
        "right": verdict.right,
        "advantage": advantage.mean,
        "low": advantage.low,
        "high": advantage.high,
        "pairs": advantage.pairs,
        "holds": "yes" if verdict.holds else "no",
        "reason": verdict.reason,
    }


# -- in words ---------------------------------------------------------------------------------------------


def claims_table(result: Report) -> str:
    """The claims as a Markdown table."""
    lines = ["| the paper says | we measured | holds? |", "| --- | --- | --- |"]
    digits = _digits(result)
    for each in result.verdicts:
        gap = each.advantage
        against = f"{each.left} over {each.right}"
        numbers = f"{gap.mean:+.{digits}f} [{gap.low:+.{digits}f}, {gap.high:+.{digits}f}]"
        answer = "yes" if each.holds else "**no**"
        lines.append(f"| {each.claim.text} | {against}: {numbers} | {answer}: {each.reason} |")
    return "\n".join(lines)


def scores_table(result: Report) -> str:
    """The scores at the full budget as a Markdown table."""
    digits, cells = _digits(result), result.final()
    best = _best(result, cells)
    lines = [
        "| algorithm | test, mean ± sd | validation | batches spent / seen by model | mixture | diverged |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for cell in cells:
        text = f"{cell.test:.{digits}f} ± {cell.sd:.{digits}f}"
        text = f"**{text}**" if cell.algorithm == best else text
        mixture = " ".join(f"{name} {weight:.2f}" for name, weight in cell.mixture.items() if weight >= 0.005)
        diverged = f"{cell.diverged} of {cell.repeats}" if cell.diverged else ""
        steps = f"{cell.spent:.0f} / {cell.trained:.0f}"
        validation = f"{cell.validation:.{digits}f}"
        lines.append(f"| {cell.algorithm} | {text} | {validation} | {steps} | {mixture} | {diverged} |")
    return "\n".join(lines)


def _best(result: Report, cells: Sequence[Cell]) -> str:
    sign = 1.0 if result.plan.experiment.metric.higher_is_better else -1.0
    known = [cell for cell in cells if np.isfinite(cell.test)]
    return max(known, key=lambda cell: sign * cell.test).algorithm if known else ""


def _digits(result: Report) -> int:
    return 4 if result.plan.experiment.metric.higher_is_better else 2


def expansion_lines(result: Report) -> list[str]:
    """How each full search grew at the full budget: the heights of the expanded nodes in their order."""
    lines = []
    full = max(result.plan.budgets)
    for name in result.plan.recipes:
        own = [
            each.expansions
            for each in result.scored
            if (each.run.algorithm, each.run.budget) == (name, full) and each.expansions
        ]
        if not own or name.endswith("+commit"):
            continue
        broad = sum(list(heights) == sorted(heights) for heights in own)
        order = " ".join(map(str, own[0][:_SHOWN])) + (" …" if len(own[0]) > _SHOWN else "")
        lines.append(f"- `{name}`: breadth-first in {broad} of {len(own)} repeats; first repeat: {order}")
    return lines
