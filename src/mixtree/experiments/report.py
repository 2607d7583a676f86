"""The report of a reproduction: scores, claims, step sizes and expansions, on disk and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.files import write_csv
from mixtree.errors import InputError
from mixtree.experiments.claims import LEAST_PAIRS, Claim, Finding, Verdict, check
from mixtree.experiments.figures import draw_budgets, draw_sweeps, panels
from mixtree.experiments.parallel import Crew
from mixtree.experiments.reproduce import GRID, RETRAINED, Plan, Recipe, Say, Scored, grid, score, train
from mixtree.experiments.specs import Experiment, SettingName
from mixtree.experiments.tuning import TRIALS, Sweep, recipes, stored_sweeps

SETTINGS: dict[SettingName, str] = {
    "authors": "the authors' η",
    "shared": "one η for all",
    "own": "η tuned per algorithm",
    "optuna": "η, λ, ν, ρ tuned together",
}
DEFAULT_SETTINGS: tuple[SettingName, ...] = ("authors", "shared", "own")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Cell:
    """One algorithm at one budget: means over the repeats that have a score."""

    algorithm: str
    budget: int
    lr: float
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
    drawn: dict[str, float]
    """Rows that the returned model has seen of each source, with repetitions."""
    fitted: float
    """The training loss on the sources' rows, weighted like those that it has seen."""
    test_loss: float


@dataclass(frozen=True, eq=False, slots=True)
class Report:
    """Everything that a reproduction of one experiment in one setting found."""

    plan: Plan
    scored: list[Scored]
    cells: list[Cell]
    verdicts: list[Verdict]
    sweeps: dict[str, Sweep]
    """Of the algorithms whose step size was tuned."""
    rows: dict[str, int]
    """Training rows of every source, and the target's under ``validation`` and ``test``."""

    @property
    def cpu(self) -> dict[str, float]:
        """CPU seconds of every run and sweep, by its name: settings share some of them."""
        runs = {
            self.plan.study(each.run.algorithm, each.run.budget, each.run.repeat): each.cpu
            for each in self.scored
        }
        return runs | {
            f"{self.plan.experiment.name}/η of {name}": sweep.cpu for name, sweep in self.sweeps.items()
        }

    @property
    def title(self) -> str:
        """Experiment and setting in words."""
        return f"{self.plan.experiment.name}, {SETTINGS[self.plan.setting]}"

    @property
    def full(self) -> int:
        """The paper's Λ in batches."""
        return self.plan.budgets[-1]

    def final(self) -> list[Cell]:
        """The cells at the paper's Λ."""
        return [cell for cell in self.cells if cell.budget == self.full]

    def cell(self, algorithm: str) -> Cell:
        """An algorithm at the paper's Λ."""
        return next(cell for cell in self.final() if cell.algorithm == algorithm)

    def scores(self, algorithm: str) -> NDArray[np.float64]:
        """An algorithm's test scores at the paper's Λ, one per repeat; NaN where it diverged."""
        return _scores(self.scored, algorithm, self.full)

    def distinct(self, cell: Cell) -> dict[str, float]:
        """Rows of each source that the returned model has seen at least once, in expectation."""
        known = {**self.rows, "target": self.rows["validation"]}
        return {name: known[name] * (1 - exp(-drawn / known[name])) for name, drawn in cell.drawn.items()}

    @property
    def digits(self) -> int:
        """Decimals of a score that say something."""
        return 4 if self.plan.experiment.metric.higher_is_better else 2


def as_setting(name: str) -> SettingName:
    """A setting by its name."""
    for known in SETTINGS:
        if name == known:
            return known
    raise InputError(f"unknown setting {name!r}; the settings are {', '.join(SETTINGS)}")


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
    drawn = frozenset(name for names in panels(experiment, halving=halving(setting)) for name in names)
    plan = Plan(experiment, setting, chosen, grid(experiment.budget, points), repeats, folder, drawn)
    plan = with_retraining(plan)
    train(plan, crew=crew, say=say)
    result = report(plan, crew=crew)
    write(result)
    return result


def with_retraining(plan: Plan) -> Plan:
    """Where η is tuned, the mixtures that the paper's searches found are trained with all of Λ too.

    The step size is uniform's, which was tuned for a model that sees all batches. What such a run lacks
    against another one is due to the mixture; the rest of a search's gap is due to the batches.
    """
    if plan.setting != "own":
        return plan
    lr = plan.recipes["uniform"].lr
    more = {
        RETRAINED + name: Recipe(lr, plan.experiment.steps, mixture_of=plan.digest(name))
        for name in panels(plan.experiment)[0]
        if name.startswith("mixmatch")
    }
    return replace(plan, recipes={**plan.recipes, **more})


def halving(setting: SettingName) -> str:
    """The coordinate halving that CH stands for: the authors' own in their setting."""
    return "mixmatch-chp" if setting == "authors" else "mixmatch-ch"


def report(plan: Plan, *, crew: Crew) -> Report:
    """Score the stored models on the test rows and check the paper's claims at the paper's Λ."""
    scored = score(plan, crew=crew)
    cells = [_cell(plan, scored, name, budget) for name, budget in plan.runs]
    problem = plan.experiment.load(0)
    rows = {name: len(part) for name, part in zip(problem.sources.names, problem.sources.rows, strict=True)}
    rows |= {"validation": len(problem.sources.validation), "test": len(problem.test or ())}
    sweeps = stored_sweeps(plan.experiment, plan.folder) if plan.setting in ("shared", "own") else {}
    experiment = plan.experiment
    scores = {name: _scores(scored, name, plan.budgets[-1]) for name in plan.recipes}
    verdicts = [
        check(
            claim,
            scores,
            names={"CH": halving(plan.setting), "DP": "mixmatch-dp"},
            tolerance=experiment.tolerance,
            higher_is_better=experiment.metric.higher_is_better,
        )
        for claim in experiment.claims
    ]
    return Report(plan, scored, cells, verdicts, sweeps, rows)


def _scores(scored: Sequence[Scored], algorithm: str, budget: int) -> NDArray[np.float64]:
    own = [each.run for each in scored if (each.run.algorithm, each.run.budget) == (algorithm, budget)]
    return np.array([run.test_score for run in sorted(own, key=lambda run: run.repeat)])


def _cell(plan: Plan, scored: Sequence[Scored], algorithm: str, budget: int) -> Cell:
    both = [each for each in scored if (each.run.algorithm, each.run.budget) == (algorithm, budget)]
    good = [each for each in both if isfinite(each.run.test_score)]
    tests = [each.run.test_score for each in good]

    def mean(values: Sequence[float]) -> float:
        return float(np.mean(values)) if values else float("nan")

    return Cell(
        algorithm,
        budget,
        plan.recipes[algorithm].lr,
        mean(tests),
        float(np.std(tests, ddof=1)) if len(tests) > 1 else float("nan"),
        mean([each.run.val_score for each in good]),
        _means([each.run.mixture for each in good]),
        len(both),
        len(both) - len(good),
        mean([float(sum(each.run.spent.values())) for each in good]),
        mean([float(each.trained) for each in good]),
        mean([each.run.seconds for each in both]),
        _means([each.drawn for each in good]),
        mean([each.fitted for each in good]),
        mean([each.test_loss for each in good]),
    )


def _means(tables: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: float(np.mean([table.get(name, 0.0) for table in tables])) for name in names}


# -- on disk ----------------------------------------------------------------------------------------------


def write(result: Report) -> list[Path]:
    """runs.csv, summary.csv, claims.csv, expansions.csv and step-sizes.csv of one setting."""
    plan = result.plan
    folder = plan.folder / f"{plan.experiment.name}-{plan.setting}"
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[dict[str, Any]]] = {
        "runs.csv": [_run_row(plan, each) for each in result.scored],
        "summary.csv": [_cell_row(plan, cell) for cell in result.cells],
        "claims.csv": [row for each in result.verdicts for row in claim_rows(each)],
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
        "step-sizes.csv": [
            {"algorithm": sweep.algorithm, "chosen": point.lr == sweep.chosen, **asdict(point)}
            for sweep in result.sweeps.values()
            for point in sweep.points
        ],
    }
    for name, rows in tables.items():
        write_csv(folder / name, rows)
    return [folder / name for name in tables]


def draw(results: Sequence[Report], folder: Path) -> list[Path]:
    """The figures of one experiment, all of its settings together; those of η where all were tuned."""
    experiment = results[0].plan.experiment
    folder.mkdir(parents=True, exist_ok=True)
    budgets = [folder / f"{figure_name(experiment)}.{ending}" for ending in ("png", "svg")]
    settings = {SETTINGS[each.plan.setting]: (halving(each.plan.setting), each.scored) for each in results}
    draw_budgets(experiment, settings, files=budgets)
    sweeps = next((each.sweeps for each in results if each.plan.setting == "own"), None)
    if sweeps is None:
        return budgets
    steps = [folder / f"{figure_name(experiment, 'step-sizes')}.{ending}" for ending in ("png", "svg")]
    draw_sweeps(experiment, sweeps, files=steps)
    return [*budgets, *steps]


def figure_name(experiment: Experiment, ending: str = "budgets") -> str:
    """Of a figure's files, without what comes after the point."""
    return f"reproduce-{experiment.name}-{ending}"


def _run_row(plan: Plan, each: Scored) -> dict[str, Any]:
    run, recipe = each.run, plan.recipes[each.run.algorithm]
    return {
        "study": plan.study(run.algorithm, run.budget, run.repeat),
        "algorithm": run.algorithm,
        "repeat": run.repeat,
        "budget": run.budget,
        "samples": run.budget * plan.experiment.batch,
        "test": run.test_score,
        "test_loss": each.test_loss,
        "validation": run.val_score,
        "value": run.value,
        "training_loss": each.fitted,
        "spent": sum(run.spent.values()),
        "trained": each.trained,
        "seconds": round(run.seconds, 4),
        "cpu": each.cpu,
        "lr": recipe.lr,
        "steps_per_node": recipe.steps,
        **recipe.options,
        **{f"mixture_{name}": weight for name, weight in run.mixture.items()},
        **{f"drawn_{name}": rows for name, rows in each.drawn.items()},
    }


def _cell_row(plan: Plan, cell: Cell) -> dict[str, Any]:
    return {
        "algorithm": cell.algorithm,
        "budget": cell.budget,
        "samples": cell.budget * plan.experiment.batch,
        "lr": cell.lr,
        "test_mean": cell.test,
        "test_sd": cell.sd,
        "test_loss": cell.test_loss,
        "validation_mean": cell.validation,
        "training_loss": cell.fitted,
        "repeats": cell.repeats,
        "diverged": cell.diverged,
        "spent": cell.spent,
        "trained": cell.trained,
        "seconds": round(cell.seconds, 4),
        **{f"mixture_{name}": weight for name, weight in cell.mixture.items()},
        **{f"drawn_{name}": rows for name, rows in cell.drawn.items()},
    }


def claim_rows(verdict: Verdict) -> list[dict[str, Any]]:
    """Every pair of a claim as a flat row."""
    return [
        {
            "paper_says": verdict.claim.text,
            "place": verdict.claim.place,
            "claim_outcome": verdict.outcome,
            "left": each.left,
            "right": each.right,
            "advantage": each.advantage.mean,
            "low": each.advantage.low,
            "high": each.advantage.high,
            "sd": each.advantage.sd,
            "pairs": each.advantage.pairs,
            "outcome": each.outcome,
            "reason": each.reason,
            "repeats_to_decide": each.repeats,
        }
        for each in verdict.findings
    ]


# -- in words ---------------------------------------------------------------------------------------------


def measured(claim: Claim, finding: Finding, digits: int) -> str:
    """What was measured of a pair: the advantage and its interval."""
    gap = finding.advantage
    between = f"{finding.left} over {finding.right}"
    if claim.than is not None:
        between = f"{' to '.join(claim.than)} less {' to '.join(claim.pairs[0])}"
    return f"{between} {gap.mean:+.{digits}f} [{gap.low:+.{digits}f}, {gap.high:+.{digits}f}]"


def outcome_words(verdict: Verdict, *, repeats: int) -> str:
    """The outcome, and what would decide an undecided one."""
    lacking = max(each.lacking for each in verdict.findings)
    words: str = verdict.outcome
    if verdict.outcome == "undecided" and repeats >= LEAST_PAIRS and lacking < repeats:
        wanted = verdict.repeats
        words += f" (about {wanted:.0f} repeats would decide)" if isfinite(wanted) else " (on the boundary)"
    count = sum(each.outcome == "holds" for each in verdict.findings)
    if len(verdict.findings) > 1:
        words += f", {count} of {len(verdict.findings)} pairs hold"
    return words + (f"; diverged in up to {lacking} repeats" if lacking else "")


def shares(mixture: Mapping[str, float]) -> str:
    """A mixture without what rounds to nothing."""
    return " ".join(f"{name} {weight:.2f}" for name, weight in mixture.items() if weight >= 0.005)


def scores_table(result: Report) -> str:
    """The scores at the paper's Λ as a Markdown table."""
    digits, cells = result.digits, result.final()
    sign = 1.0 if result.plan.experiment.metric.higher_is_better else -1.0
    known = [cell for cell in cells if isfinite(cell.test)]
    best = max(known, key=lambda cell: sign * cell.test).algorithm if known else ""
    lines = [
        "| algorithm | η | test, mean ± sd | validation | loss: training / test | batches spent / seen by "
        "model | mixture | diverged |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell in cells:
        text = f"{cell.test:.{digits}f} ± {cell.sd:.{digits}f}"
        text = f"**{text}**" if cell.algorithm == best else text
        diverged = f"{cell.diverged} of {cell.repeats}" if cell.diverged else ""
        lines.append(
            f"| {cell.algorithm} | {cell.lr:.4g} | {text} | {cell.validation:.{digits}f} | "
            f"{cell.fitted:.3g} / {cell.test_loss:.3g} | {cell.spent:.0f} / {cell.trained:.0f} | "
            f"{shares(cell.mixture)} | {diverged} |"
        )
    return "\n".join(lines)


def expansion_lines(result: Report) -> list[str]:
    """How each full search grew at the paper's Λ: the heights of the expanded nodes in their order."""
    lines = []
    for name in result.plan.recipes:
        own = [
            each.expansions
            for each in result.scored
            if (each.run.algorithm, each.run.budget) == (name, result.full) and each.expansions
        ]
        if not own or name.endswith("+commit"):
            continue
        broad = sum(list(heights) == sorted(heights) for heights in own)
        order = " ".join(map(str, own[0][:_SHOWN])) + (" …" if len(own[0]) > _SHOWN else "")
        lines.append(f"- `{name}`: breadth-first in {broad} of {len(own)} repeats; first repeat: {order}")
    return lines
