"""The search in pictures, for docs/search.md: ``python -m mixtree.experiments.searchpictures``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mixtree.data.files import write_figure
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import Result, run
from mixtree.estimate.merged import in_cells
from mixtree.partition import bisect, simplex_root
from mixtree.policies.merging import LOOKS
from mixtree.policies.mixmatch_plus import MixmatchPlus
from mixtree.policies.setting import PlusOptions, Setting
from mixtree.simplex import Cell, SimplexCell
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree import Node
from mixtree.tree import Path as NodePath
from mixtree.tree_search import TreeSearch

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BUDGET, STEPS, SEED = 1500, 50, 4
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
SHOWN = (0, 1, 2, 3, 6, 14)
"""Expansions after which a panel is drawn."""


def corners_of(path: NodePath) -> NDArray[np.float64]:
    """The vertices of a cell of bisection, as mixtures."""
    cell: Cell = simplex_root(3)
    for index in path:
        cell = bisect(cell)[index]
    assert isinstance(cell, SimplexCell)
    return np.asarray(cell.corners)


def draw_cells(axes: Axes, nodes: Mapping[NodePath, Node], *, limits: tuple[float, float]) -> None:
    """The leaves' cells, coloured by their values, and every node's mixture."""
    inner = {path[:-1] for path in nodes if path}
    colours = matplotlib.colormaps["viridis_r"]
    low, high = limits
    for path, node in nodes.items():
        points = corners_of(path) @ CORNERS
        if path not in inner:
            shade = colours((node.value - low) / (high - low or 1.0))
            axes.fill(*points.T, facecolor=shade, edgecolor="white", lw=0.8)
    places = np.array([node.mixture for node in nodes.values()]) @ CORNERS
    axes.plot(*places.T, "o", ms=2.5, color="black")


def frame(axes: Axes, names: Sequence[str], alpha: NDArray[np.float64], title: str) -> None:
    """The triangle's corners, the true mixture and what the panel shows."""
    axes.plot(*(alpha @ CORNERS), "*", ms=11, color="#D55E00", mec="white", mew=0.6)
    for name, at, where in zip(names, CORNERS, ("right", "left", "center"), strict=True):
        axes.annotate(name, at, ha=where, va="bottom" if at[1] else "top", fontsize=7)
    axes.set_title(title, fontsize=8)
    axes.set_aspect("equal")
    axes.axis("off")


def published(seed: int = SEED) -> tuple[Result[Any], TreeSearch, Any]:
    """Algorithm 1 on three sources whose true mixture is known."""
    problem = synthetic(sources=3, rows=2000, validation=2000, seed=seed)
    search = TreeSearch(simplex_root(3), bisect, budget=BUDGET, steps=STEPS, nu="auto")
    return run(search, MlpTrainer(problem.sources, hidden=()), seed=seed), search, problem


def draw_steps(file: Path) -> None:
    """Algorithm 1, expansion by expansion."""
    result, search, problem = published()
    assert problem.alpha is not None
    values = [node.value for node in result.tree.values()]
    figure = Figure(figsize=(9, 6.2))
    for axes, count in zip(figure.subplots(2, 3).ravel(), SHOWN, strict=True):
        known = {(), *((*path, child) for path in search.expanded[:count] for child in (0, 1))}
        nodes = {path: result.tree[path] for path in result.tree if path in known}
        draw_cells(axes, nodes, limits=(min(values), max(values)))
        title = f"after {count} expansions, {STEPS * len(nodes)} steps"
        if count < len(search.expanded):
            following = corners_of(search.expanded[count]) @ CORNERS
            axes.fill(*following.T, facecolor="none", edgecolor="#D55E00", lw=2)
        frame(axes, problem.sources.names, problem.alpha, title)
    save(figure, file)


def draw_merged(file: Path) -> None:
    """The published tree beside the tree over merged models, of the same budget."""
    result, _, problem = published()
    sources = problem.sources
    setting = Setting(
        sources.names, sources.sizes, BUDGET, STEPS, seed=SEED, data=sources, plus=PlusOptions()
    )
    merged = run(MixmatchPlus(setting), MlpTrainer(sources, hidden=()), seed=SEED)
    looks = in_cells(list(merged.tree.values()), LOOKS)
    figure = Figure(figsize=(9, 3.6))
    found: list[tuple[Mapping[NodePath, Node], str, Node]] = [
        (result.tree, f"mixmatch-bisect: {len(result.tree)} trained nodes", result.node),
        (looks, f"mixmatch+: {len(looks)} merged models, the last round", merged.node),
    ]
    for axes, (nodes, title, node) in zip(figure.subplots(1, 2), found, strict=True):
        values = [each.value for each in nodes.values()]
        draw_cells(axes, nodes, limits=(min(values), max(values)))
        axes.plot(*(node.mixture @ CORNERS), "D", ms=6, color="#0072B2", mec="white")
        frame(axes, sources.names, problem.alpha, title)
    save(figure, file)


def save(figure: Figure, file: Path) -> None:
    """Without dates, so that the same run gives the same file."""
    figure.tight_layout()
    write_figure(file, figure, dpi=110, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mixtree.experiments.searchpictures", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="folder for the pictures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    draw_steps(out / "search-steps.png")
    draw_merged(out / "search-merged.png")


if __name__ == "__main__":
    main()
