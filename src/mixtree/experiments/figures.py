"""Figures of a reproduction: the test score against samples, mean ± 1 sd, as in the paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mixtree.experiments.reproduce import Scored
from mixtree.experiments.specs import Experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PAPER = ("mixmatch-ch", "mixmatch-dp", "genie", "uniform", "validation", "only:")
_MARKERS = "osD^vP*X<>hd"


def draw(experiment: Experiment, scored: Sequence[Scored], *, title: str, files: Sequence[Path]) -> None:
    """One figure in as many formats as files: the paper's algorithms on the left, the others on the right."""
    import matplotlib
    from matplotlib.figure import Figure

    algorithms = list(dict.fromkeys(each.run.algorithm for each in scored))
    papers = [name for name in algorithms if _in_paper(name)]
    others = [name for name in algorithms if name not in papers]
    figure = Figure(figsize=(11.0, 5.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, names, label in zip(
        panels, (papers, others), ("the paper's algorithms", "others"), strict=True
    ):
        _panel(axes, experiment, scored, names)
        axes.set_title(label, fontsize=10)
    panels[0].set_ylabel(f"test {experiment.score}", fontsize=9)
    figure.suptitle(title, fontsize=11)
    # Without dates and random ids the same runs give the same files.
    with matplotlib.rc_context({"svg.hashsalt": experiment.name}):
        for file in files:
            bare: dict[str, Any] = {"Date": None} if file.suffix == ".svg" else {"Software": None}
            figure.savefig(file, dpi=110, metadata=bare)


def _in_paper(name: str) -> bool:
    head = "only:" if name.startswith("only:") else name.removesuffix("+commit")
    return head in _PAPER


def _panel(axes: Axes, experiment: Experiment, scored: Sequence[Scored], names: Sequence[str]) -> None:
    budgets = sorted({each.run.budget for each in scored})
    samples = [budget * experiment.batch for budget in budgets]
    for number, name in enumerate(names):
        columns = [
            np.array([e.run.test_score for e in scored if (e.run.algorithm, e.run.budget) == (name, budget)])
            for budget in budgets
        ]
        known = [column[np.isfinite(column)] for column in columns]
        mean = np.array([each.mean() if len(each) else np.nan for each in known])
        sd = np.array([each.std(ddof=1) if len(each) > 1 else 0.0 for each in known])
        colour = f"C{number % 10}"
        dashes = "--" if name.endswith(("+commit", "+decay")) else ":" if name.startswith("only:") else "-"
        marker = _MARKERS[number % len(_MARKERS)]
        axes.plot(samples, mean, color=colour, ls=dashes, marker=marker, ms=4, lw=1.4, label=name)
        axes.fill_between(samples, mean - sd, mean + sd, color=colour, alpha=0.05, lw=0)
    axes.set_xlabel("samples (Λ)", fontsize=9)
    axes.grid(alpha=0.3)
    axes.tick_params(labelsize=8)
    axes.legend(fontsize=7, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.13), frameon=False)
