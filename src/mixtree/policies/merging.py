"""Merged branches: one short branch per source from a common trunk, and the paper's tree over their means.

From the trunk θ₀ each source's branch comes to θ_k. Σ α_k θ_k stands for the model that training on α would
give: branches that are merged are steps of local SGD on all sources. A look at it takes no steps, so the
paper's optimistic tree search can take hundreds of them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage

from mixtree.data.allocation import Allocation
from mixtree.partition import bisect, simplex_root
from mixtree.simplex import Mixture
from mixtree.trainer import Evaluation
from mixtree.tree import Merge, Node, Path, Segment, Trial
from mixtree.tree_search import TreeSearch

BRANCH, LOOK = "branch", "merged"
"""Phases of the branches and of the looks at what they merge to."""
BRANCHES, LOOKS, CHOSEN = 1000, 999, 2
"""Below the trunk: the first branch, the root of the tree of looks. Below a look: what is trained from it."""
RANKED = "merged losses rank the race's mixtures with a correlation of"
"""What a note on the trust in merged losses begins with."""
WIDTH = 4
"""Leaves that a round of looks expands: a round is written down in one go."""


@dataclass(frozen=True, eq=False, slots=True)
class Start:
    """A model to go on from: that of a node, or the mean of several."""

    path: Path
    merged: Merge | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Branches:
    """Models of one branch per source."""

    start: Start
    tails: tuple[tuple[Path, ...], ...]
    """Of every source the nodes over the second half of its branch, whose mean is θ_k."""
    ends: tuple[Node, ...]
    """The last node of every branch."""
    width: int
    """Weights that the trainer expects: K, or more for the target's rows."""

    @property
    def diverged(self) -> bool:
        """Whether one of them did: then no mean of all has a value."""
        return any(each.diverged for each in self.ends)

    def look(self, path: Path, mixture: Mixture) -> Trial:
        """A look at Σ α_k θ_k."""
        paths, weights = list[Path](), list[float]()
        for weight, tail in zip(mixture.tolist(), self.tails, strict=False):
            if weight > 0.0:
                paths += tail
                weights += [weight / len(tail)] * len(tail)
        if len(mixture) < self.width:  # of the sources alone, and the trainer has folds behind them
            mixture = Allocation(mixture, (0.0,) * (self.width - len(mixture))).mixture
        return Trial(path, mixture, 0, phase=LOOK, merged=Merge(tuple(paths), tuple(weights)))


def grow(
    start: Start, *, sources: int, steps: int, tail: int, rate: float = 1.0, width: int | None = None
) -> Generator[list[Trial], list[Node], Branches]:
    """Train one branch per source, all on the same random numbers, a round for every part of them.

    Parameters
    ----------
    start
        What they all go on from.
    sources
        K.
    steps
        Of each branch.
    tail
        Parts that the second half is cut into.
    rate
        × the step size.
    width
        Weights that the trainer expects; K by default.
    """
    width = sources if width is None else width
    half, parts = steps // 2, max(1, min(tail, steps // 2))
    edges = [0, *(half + (steps - half) * part // parts for part in range(1, parts + 1))]
    if tail > 1 and half:
        edges.insert(1, half)
    stream = (*start.path, BRANCHES)
    paths = [(*start.path, BRANCHES + source) for source in range(sources)]
    kept: list[list[Path]] = [[] for _ in range(sources)]
    ends: list[Node] = []
    for number, (before, after) in enumerate(zip(edges, edges[1:], strict=False)):
        paths = [(*path, 0) for path in paths] if number else paths
        ends = yield [
            Trial(
                path,
                np.eye(width)[source],
                after - before,
                rate,
                BRANCH,
                Segment(stream, before, steps),
                None if number else start.merged,
            )
            for source, path in enumerate(paths)
        ]
        for source, path in enumerate(paths):
            if after > half or after == steps:
                kept[source].append(path)
    return Branches(start, tuple(map(tuple, kept)), tuple(ends), width)


def tree_of_looks(
    branches: Branches, groups: NDArray[np.float64], *, looks: int, optimism: float
) -> Generator[list[Trial], list[Node], list[Node]]:
    """The paper's search by bisection over merged models; all its nodes, the root (uniform) first.

    Parameters
    ----------
    branches
        What is merged.
    groups
        (groups, K): the mixture of sources that every vertex of the tree's simplex stands for.
    looks
        Nodes in all.
    optimism
        c; ν is the spread of the values so far.
    """
    search = TreeSearch(
        simplex_root(len(groups)),
        bisect,
        budget=looks,
        steps=1,
        nu="auto",
        optimism=optimism,
        returns="best",
        width=WIDTH,
    )
    root, seen = (*branches.start.path, LOOKS), list[Node]()
    while asked := search.ask():
        nodes = yield [branches.look((*root, *each.path), each.mixture @ groups) for each in asked]
        for trial, node in zip(asked, nodes, strict=True):
            search.tell(trial, Evaluation(node.value, node.standard_error))
        seen += nodes
    return seen


def alike(branches: Branches, before: Node, *, most: int) -> NDArray[np.float64]:
    """Sources in groups of alike branches, (groups, K): rows are even mixtures of a group's sources.

    Branches are alike that change the predictions of the validation rows alike; without predictions, or with
    few sources, each is a group of its own.
    """
    count = len(branches.ends)
    seen = [each.predictions for each in branches.ends]
    if count <= most or before.predictions is None or any(each is None for each in seen):
        return np.eye(count)
    start = np.asarray(before.predictions, dtype=np.float64).ravel()
    changes = np.array([np.asarray(each, dtype=np.float64).ravel() - start for each in seen])
    labels = fcluster(linkage(changes, "ward"), most, criterion="maxclust")
    members = np.array([labels == label for label in np.unique(labels)], dtype=np.float64)
    return np.asarray(members / members.sum(axis=1, keepdims=True))


def rank_correlation(one: Sequence[float], two: Sequence[float]) -> float:
    """Spearman's ρ without ties; NaN of fewer than three pairs.

    >>> rank_correlation([1.0, 2.0, 4.0], [0.1, 0.5, 0.2])
    0.5
    """
    if len(one) < 3:
        return float("nan")
    first, second = (np.argsort(np.argsort(each, kind="stable")) for each in (one, two))
    return float(round(np.corrcoef(first, second)[0, 1], 12))
