"""How fast cells shrink: diameters along random paths of every partition, against the bounds for bisect."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mixtree.experiments.theorems.findings import Finding, Section, figure, number, table
from mixtree.partition import PARTITIONS
from mixtree.seeds import derive_seed
from mixtree.theory import diameter_l1, diameter_l2

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POLYTOPES = 5  # sources that halve_polytope takes at most


@dataclass(frozen=True, eq=False, slots=True)
class Decay:
    """Largest ℓ2 and ℓ1 diameter at every height over the paths that were walked."""

    partition: str
    sources: int
    l2: NDArray[np.float64]
    l1: NDArray[np.float64]


def walk(partition: str, sources: int, *, heights: int, paths: int) -> Decay:
    """Random paths, and the path that always takes the last child (delaunay keeps its first edge there)."""
    rule = PARTITIONS[partition]
    rng = np.random.default_rng(sources)
    choices: list[Callable[[int], int]] = [lambda count: count - 1]
    choices += [lambda count: int(rng.integers(count))] * paths
    diameters = np.zeros((2, heights + 1))
    for index, choose in enumerate(choices):
        cell = rule.root(sources)
        for height in range(heights + 1):
            found = [cell.diameter(2), cell.diameter(1)]
            diameters[:, height] = np.maximum(diameters[:, height], found)
            children = rule.split(cell, derive_seed(index, (height,)))
            if children:  # none: as small as floating point allows
                cell = children[choose(len(children))]
    return Decay(partition, sources, diameters[0], diameters[1])


def section(*, quick: bool) -> Section:
    """The experiment."""
    heights, paths = (12, 5) if quick else (48, 40)
    counts = (2, 3) if quick else (2, 3, 5, 10)
    decays = [
        walk(name, sources, heights=heights, paths=paths)
        for sources in counts
        for name in PARTITIONS
        if name != "halve_polytope" or sources <= _POLYTOPES
    ]
    rows = [
        [
            str(each.sources),
            each.partition,
            *(number(float(each.l2[height])) for height in (0, heights // 2, heights)),
            number(float(each.l1[heights])),
            number(_rate(each.l2), 4),
        ]
        for each in decays
    ]
    share = max(
        float(max((each.l2 / _bounds(each)[0]).max(), (each.l1 / _bounds(each)[1]).max()))
        for each in decays
        if each.partition == "bisect"
    )
    stuck = [each for each in decays if each.partition == "delaunay" and each.sources >= 3]
    kept = min(float(each.l2[-1]) for each in stuck)
    shrinking = max(float(each.l2[-1]) for each in decays if each.partition != "delaunay")
    header = [
        "K",
        "partition",
        *(f"h = {h}" for h in (0, heights // 2, heights)),
        f"ℓ1, h = {heights}",
        "decay",
    ]
    text = f"""The largest diameter over {paths} random paths, and over the path that always takes the
last child. Box cells (halve) state an upper bound of their diameter. The last column is the decay of the
ℓ2 diameter per height over the second half; for bisect the theory has (√3/2)^(1/(K−1)).

{table(header, rows)}"""
    findings = (
        Finding(
            "Lemma: diameter after repeated bisection",
            "ℓ2 and ℓ1 diameters of bisect's cells within their bounds at every height",
            f"at most {number(share)} of the bound",
            share <= 1 + 1e-9,
        ),
        Finding(
            "delaunay is not covered",
            "for K ≥ 3 old edges survive: the diameter does not shrink",
            f"still {number(kept, 5)} of √2 = {number(math.sqrt(2), 5)} at height {heights}",
            kept >= math.sqrt(2) * (1 - 1e-9),
        ),
        Finding(
            "halve and halve_polytope",
            "no theorem; their diameter shrinks on random paths",
            f"with bisect, at most {number(shrinking)} at height {heights} on all paths",
            shrinking < math.sqrt(2),
        ),
    )
    return Section("cells", "Cells shrink, except delaunay's", text, findings, lambda: _draw(decays))


def _rate(diameters: NDArray[np.float64]) -> float:
    half = len(diameters) // 2
    return float((diameters[-1] / diameters[half]) ** (1 / (len(diameters) - 1 - half)))


def _bounds(decay: Decay) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    heights = range(len(decay.l2))
    return (
        np.array([diameter_l2(height, sources=decay.sources) for height in heights]),
        np.array([diameter_l1(height, sources=decay.sources) for height in heights]),
    )


def _draw(decays: list[Decay]) -> Figure:
    counts = sorted({each.sources for each in decays})
    canvas, panels = figure(len(counts), width=3.4)
    for axes, sources in zip(panels, counts, strict=True):
        for each in decays:
            if each.sources == sources:
                axes.semilogy(each.l2, label=each.partition)
        bound = _bounds(next(each for each in decays if each.sources == sources))[0]
        axes.semilogy(bound, "k:", label="bound for bisect")
        axes.set_title(f"K = {sources}", fontsize=9)
        axes.set_xlabel("height")
    panels[0].set_ylabel("largest ℓ2 diameter")
    panels[0].legend(fontsize=7)
    return canvas
