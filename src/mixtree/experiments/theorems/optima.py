"""Close mixtures, close optima: measured distances of w*(α1) and w*(α2) against 2σ‖α1 − α2‖₁/μ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mixtree.data.synthetic import synthetic
from mixtree.experiments.theorems.findings import Finding, Section, figure, number, table
from mixtree.planning.constants import ConvexModel, Estimate, estimate_constants
from mixtree.theory import optimum_distance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CASES = [(3, 2, 1.0), (3, 2, 0.1), (3, 2, 0.01), (4, 3, 0.1), (4, 0, 0.1)]  # K, classes (0: regression), l2


@dataclass(frozen=True, eq=False, slots=True)
class Pairs:
    """Pairs of mixtures on one problem."""

    label: str
    l1: NDArray[np.float64]
    distance: NDArray[np.float64]
    direct: NDArray[np.float64]
    """‖Σ (α1 − α2)_i ∇F_i(w*(α2))‖/μ, the step of the proof before it is bounded by 2σ."""
    estimate: Estimate
    error: float
    """Distance of a computed optimum to the true one, at most."""

    def bound(self, *, sound: bool) -> NDArray[np.float64]:
        constants = self.estimate.sound if sound else self.estimate.optimistic
        return self.l1 * optimum_distance(1.0, sigma=constants.sigma, mu=constants.mu)


def measure(sources: int, classes: int, l2: float, *, pairs: int, rows: int, seed: int = 0) -> Pairs:
    """Optima of random pairs of mixtures whose ℓ1 distances spread over three decades."""
    problem = synthetic(sources=sources, rows=rows, features=5, classes=classes, seed=seed)
    model = ConvexModel(problem.sources, l2=l2)
    rng = np.random.default_rng(seed + 1)
    l1, distance, direct, error = [], [], [], 0.0
    for share in np.geomspace(1e-3, 1.0, pairs):
        first, other = rng.dirichlet(np.ones(sources), size=2)
        second = first + share * (other - first)
        w = [model.optimum(first)]
        w.append(model.optimum(second, start=w[0]))
        slopes = [model.gradient(w[1], vertex) for vertex in np.eye(sources)]
        mixed = sum(d * g for d, g in zip(first - second, slopes, strict=True))
        l1.append(np.abs(first - second).sum())
        distance.append(np.linalg.norm(w[0] - w[1]))
        direct.append(np.linalg.norm(mixed) / model.strong_convexity())
        rest = max(
            float(np.linalg.norm(model.gradient(v, a))) for v, a in zip(w, (first, second), strict=True)
        )
        error = max(error, rest / model.strong_convexity())
    kind = "squared error" if classes == 0 else f"{classes} classes"
    label = f"K = {sources}, {kind}, l2 = {l2:g}"
    estimate = estimate_constants(problem.sources, l2=l2, samples=max(sources, pairs // 2), seed=seed)
    return Pairs(label, np.array(l1), np.array(distance), np.array(direct), estimate, error)


def section(*, quick: bool) -> Section:
    """The experiment."""
    cases = _CASES[1:2] + _CASES[-1:] if quick else _CASES
    results = [measure(*case, pairs=6 if quick else 40, rows=100 if quick else 1000) for case in cases]
    rows = []
    for each in results:
        slope = float((each.distance / each.l1).max())
        bounds = [float((each.bound(sound=sound) / each.l1).max()) for sound in (False, True)]
        tight = float((each.distance / each.direct).max())
        rows.append([each.label, number(slope), *map(number, bounds), number(tight)])
    worst = max(float((each.distance / each.bound(sound=False)).max()) for each in results)
    count = sum(len(each.l1) for each in results)
    broken = sum(int((each.distance > each.bound(sound=True) + 2 * each.error).sum()) for each in results)
    loose = [float((each.bound(sound=False) / each.direct).min()) for each in results]
    direct = sum(int((each.distance > each.direct + 2 * each.error).sum()) for each in results)
    header = ["problem", "largest ‖Δw*‖/‖Δα‖₁", "2σ/μ, optimistic", "2σ/μ, sound", "largest ‖Δw*‖ / direct"]
    text = f"""L2-regularised linear models on synthetic sources; optima computed to a certified distance
of at most {number(max(each.error for each in results), 2)}. The bound's slope is 2σ/μ, with σ once from
sampled optima (never above the truth) and once proved (never below it).

{table(header, rows)}
The direct bound is the proof's own step μ‖Δw*‖ ≤ ‖Σ Δα_i ∇F_i(w*)‖. Its looseness (last column) is that
of μ, the curvature in the flattest direction; the theorem's is mostly that of σ, which holds the largest
single row and β times the diameter of all optima: {number(min(loose))} to {number(max(loose))} times the
direct bound, even with the optimistic σ."""
    findings = (
        Finding(
            "Theorem: close mixtures, close optima",
            "‖w*(α1) − w*(α2)‖ ≤ 2σ‖α1 − α2‖₁/μ",
            f"{broken} of {count} pairs beyond the sound bound; all within {number(worst)} of the optimistic",
            broken == 0,
        ),
        Finding(
            "its direct step",
            "μ‖Δw*‖ ≤ ‖Σ Δα_i ∇F_i(w*)‖",
            f"{direct} of {count} pairs beyond it",
            direct == 0,
        ),
    )
    return Section("optima", "Close mixtures have close optima", text, findings, lambda: _draw(results))


def _draw(results: list[Pairs]) -> Figure:
    canvas, (axes,) = figure(1, width=6.5, height=4.2)
    for colour, each in enumerate(results):
        axes.loglog(each.l1, each.distance, "o", ms=3, color=f"C{colour}", label=each.label)
        order = np.argsort(each.l1)
        axes.loglog(each.l1[order], each.bound(sound=False)[order], "-", lw=1, color=f"C{colour}")
        axes.loglog(each.l1[order], each.bound(sound=True)[order], ":", lw=1, color=f"C{colour}")
    axes.set_xlabel("‖α1 − α2‖₁")
    axes.set_ylabel("‖w*(α1) − w*(α2)‖")
    axes.set_title("points: measured; lines: 2σ‖Δα‖₁/μ (dotted: sound σ)", fontsize=9)
    axes.legend(fontsize=7)
    return canvas
