"""Figures of a reproduction: the score against the budget in every setting, and against the step size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mixtree.data.files import blank_figure, write_figure
from mixtree.experiments.reproduce import Scored
from mixtree.experiments.specs import Experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from mixtree.experiments.tuning import Sweep

# Okabe and Ito's colours, which people with any kind of colour vision tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#56B4E9", "#E69F00", "#000000", "#009E73", "#CC79A7", "#8C6D1F")
_MARKERS = "osD^vPX*"
_STYLES = ("-", "-", "--", "--", "-", "-", "-.", ":")
_JITTER = 0.006


def panels(experiment: Experiment, *, halving: str = "mixmatch-ch") -> tuple[list[str], list[str]]:
    """The algorithms of both panels, at most eight each: the paper's comparison, and its further baselines.

    ``halving`` is the coordinate halving of the setting, the authors' own in theirs.
    """
    searches = [halving, "mixmatch-dp"]
    first = [*searches, *(f"{name}+commit" for name in searches)]
    first += [*(["genie"] if experiment.known else []), "uniform", "validation"]
    alone = [f"only:{source}" for source in experiment.sources]
    return first, [*alone, "pooled", "mmd", "importance", "fine-tune"]


def draw_budgets(
    experiment: Experiment,
    settings: Mapping[str, tuple[str, Sequence[Scored]]],
    *,
    files: Sequence[Path],
) -> None:
    """A row of two panels for each setting, by its title: its coordinate halving and its runs."""
    figure, grid = _grid(len(settings))
    for row, (title, (halving, scored)) in zip(grid, settings.items(), strict=True):
        for axes, names in zip(row, panels(experiment, halving=halving), strict=True):
            for number, name in enumerate(names):
                _curve(axes, experiment, scored, name, number)
            axes.set_title(title, fontsize=9)
            _finish(axes, "budget Λ in samples", f"test {experiment.score}")
    _save(figure, experiment, files)


def _curve(axes: Axes, experiment: Experiment, scored: Sequence[Scored], name: str, number: int) -> None:
    by_budget: dict[int, list[float]] = {}
    for each in scored:
        if each.run.algorithm == name and np.isfinite(each.run.test_score):
            by_budget.setdefault(each.run.budget, []).append(each.run.test_score)
    budgets = sorted(by_budget)
    columns = [np.array(by_budget[budget]) for budget in budgets]
    # Side by side, so that error bars do not hide each other.
    shift = _JITTER * experiment.budget * (number - 3.5)
    samples = [(budget + shift) * experiment.batch for budget in budgets]
    means = [float(column.mean()) for column in columns]
    sds = [float(column.std(ddof=1)) if len(column) > 1 else 0.0 for column in columns]
    axes.errorbar(samples, means, yerr=sds, label=name, **_look(number))


def draw_sweeps(experiment: Experiment, sweeps: Mapping[str, Sweep], *, files: Sequence[Path]) -> None:
    """The validation score against the step size; the chosen one is circled."""
    figure, grid = _grid(1)
    for axes, names in zip(grid[0], panels(experiment), strict=True):
        for number, name in enumerate(names):
            points = [point for point in sweeps[name].points if not point.diverged]
            axes.errorbar(
                [point.lr for point in points],
                [point.score for point in points],
                yerr=[point.se if np.isfinite(point.se) else 0.0 for point in points],
                label=name,
                **_look(number),
            )
            best = sweeps[name].best
            axes.plot([best.lr], [best.score], "o", ms=11, mfc="none", mec=_COLOURS[number], mew=1.2)
        axes.set_xscale("log")
        _finish(axes, "step size η", f"validation {experiment.score}")
    _save(figure, experiment, files)


def _grid(rows: int) -> tuple[Figure, Any]:
    height = 3.7 * rows
    figure = blank_figure(figsize=(12.5, height))
    # Room for the legends beside the panels: computed layouts take longer than the rest of the figure.
    figure.subplots_adjust(
        left=0.055, right=0.88, wspace=0.58, hspace=0.3, top=1 - 0.35 / height, bottom=0.5 / height
    )
    return figure, figure.subplots(rows, 2, squeeze=False)


def _look(number: int) -> dict[str, Any]:
    return {
        "color": _COLOURS[number],
        "ls": _STYLES[number],
        "marker": _MARKERS[number],
        "ms": 4,
        "lw": 1.4,
        "capsize": 2,
        "elinewidth": 0.8,
    }


def _finish(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.grid(alpha=0.3)
    axes.tick_params(labelsize=8)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def _save(figure: Figure, experiment: Experiment, files: Sequence[Path]) -> None:
    import matplotlib

    # Without dates and random ids the same runs give the same files.
    with matplotlib.rc_context({"svg.hashsalt": experiment.name}):
        for file in files:
            bare: dict[str, Any] = {"Date": None} if file.suffix == ".svg" else {"Software": None}
            write_figure(file, figure, dpi=100, metadata=bare)
