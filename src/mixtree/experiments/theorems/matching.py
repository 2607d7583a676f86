"""Estimating α* from moments: matching x alone cannot see what matching (x, y) sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.experiments.theorems.findings import Finding, Section, figure, number, table
from mixtree.simplex import Mixture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Floats = NDArray[np.float64]
_SUM_TO_ONE = 1e4  # weight of the row Σα = 1 against moments of unit variance


def match(sources: Sources, *, joint: bool) -> Mixture:
    """The mixture whose moments are nearest to validation's, each in units of its own standard error.

    ``joint`` False: moments of x. True: also of y and x·1[y = c].
    """
    from scipy.optimize import nnls

    held = _moments(sources.validation, sources.classes, joint=joint)
    target, scale = held.mean(axis=0), held.std(axis=0)
    seen = scale > 0
    means = [_moments(part, sources.classes, joint=joint).mean(axis=0) for part in sources.rows]
    columns = np.stack(means, axis=1)[seen] / scale[seen, None]
    system = np.vstack([columns, np.full(len(sources), _SUM_TO_ONE)])
    weights, _ = nnls(system, np.append(target[seen] / scale[seen], _SUM_TO_ONE))
    alpha: Mixture = weights / weights.sum()
    return alpha


def _moments(rows: Rows, classes: int, *, joint: bool) -> _Floats:
    x = np.asarray(rows.x, dtype=np.float64)
    parts = [x, x * x]
    if joint:
        hot = np.eye(classes)[rows.y]
        parts += [hot, *(x * hot[:, [c]] for c in range(classes))]
    return np.hstack(parts)


@dataclass(frozen=True, eq=False, slots=True)
class Errors:
    """‖α̂ − α*‖₁ by number of rows (rows of the array: repeats)."""

    label: str
    sizes: tuple[int, ...]
    x_only: _Floats
    joint: _Floats


def measure(kind: Literal["blind", "informative"], *, sizes: tuple[int, ...], repeats: int) -> Errors:
    """Errors of both ways to match when sources and validation have so many rows each."""
    errors = np.zeros((2, repeats, len(sizes)))
    for repeat in range(repeats):
        for column, size in enumerate(sizes):
            problem = synthetic(
                sources=3,
                rows=size,
                validation=size,
                test=1,
                features=5,
                informative=kind == "informative",
                label_shift=2.0,
                seed=repeat,
            )
            assert problem.alpha is not None
            for row, joint in enumerate((False, True)):
                gap = match(problem.sources, joint=joint) - problem.alpha
                errors[row, repeat, column] = np.abs(gap).sum()
    return Errors(kind, sizes, errors[0], errors[1])


def section(*, quick: bool) -> Section:
    """The experiment."""
    sizes = (100, 1000) if quick else (100, 300, 1000, 3000, 10_000, 30_000)
    repeats = 4 if quick else 24
    results = [measure(kind, sizes=sizes, repeats=repeats) for kind in ("blind", "informative")]
    rows = [
        [each.label, how, *(f"{mean:.3f}" for mean in errors.mean(axis=0)), number(_slope(sizes, errors))]
        for each in results
        for how, errors in (("x alone", each.x_only), ("joint (x, y)", each.joint))
    ]
    blind = results[0]
    wrong, right = _slope(sizes, blind.x_only), _slope(sizes, blind.joint)
    header = ["problem", "matched", *(f"n = {size}" for size in sizes), "slope on log axes"]
    text = f"""K = 3 sources, target in the hull, least squares on the simplex; as many validation rows as
rows per source; mean ‖α̂ − α*‖₁ over {repeats} problems. *Blind* problems have the same p(x) in every
source: only the labels tell the sources apart. *Informative* ones differ in p(x) too.

{table(header, rows)}
The paper's remark that matching moments fails is true of x alone, and only where p(x) does not tell the
sources apart. In the hull the joint moments of the mixture are the mixture of the joint moments, so
matching them is consistent."""
    findings = (
        Finding(
            "matching x alone",
            "no better with more rows where p(x) is the same in every source",
            _fall(blind.x_only, wrong),
            wrong > -0.1,
        ),
        Finding(
            "matching (x, y)",
            "consistent in the hull: error falls like n^(−1/2)",
            _fall(blind.joint, right),
            right < -0.35,
        ),
    )
    return Section(
        "matching",
        "Matching x alone is wrong, matching (x, y) is right",
        text,
        findings,
        lambda: _draw(results),
    )


def _fall(errors: _Floats, slope: float) -> str:
    return f"error {errors[:, 0].mean():.2f} → {errors[:, -1].mean():.2f}, slope {number(slope)}"


def _slope(sizes: tuple[int, ...], errors: _Floats) -> float:
    return float(np.polyfit(np.log(sizes), np.log(errors.mean(axis=0)), 1)[0])


def _draw(results: list[Errors]) -> Figure:
    canvas, panels = figure(len(results))
    for axes, each in zip(panels, results, strict=True):
        for label, errors in (("x alone", each.x_only), ("joint (x, y)", each.joint)):
            spread = errors.std(axis=0) / np.sqrt(len(errors))
            axes.errorbar(
                each.sizes, errors.mean(axis=0), yerr=spread, marker="o", ms=3, capsize=2, label=label
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(each.label, fontsize=9)
        axes.set_xlabel("rows n")
    panels[0].set_ylabel("mean ‖α̂ − α*‖₁")
    panels[0].legend(fontsize=8)
    return canvas
