"""How sure the answer is: from a finished tree, how much better an unexplored mixture could be.

The reasoning, for values v(node) of a tree search over cells of the simplex:

1. **Edges.** δ_h = the largest |v(child) − v(parent)| over the parents at height h, its validation noise
   subtracted (√max(0, Δ² − se²), where se² is the sum of both squared standard errors). Where that leaves
   nothing at all, the changes as they are: noise as much as smoothness, so the bound is too large, not small.
2. **Envelope.** ν̂ρ̂^h ≥ δ_h at every height: ρ̂ is the least-squares slope of log δ_h, ν̂ the smallest factor
   that then covers every height. A decay faster than the cells' own (c^{−1/(K−1)} per height for c children)
   is training that settles, not smoothness, and a decay slower than the theory's (√3/2)^{1/(K−1)} is noise:
   ρ̂ is kept between the two. With fewer than three heights ρ̂ is the theory's.
3. **Reach.** If the envelope also holds below the leaves, no descendant of a node at height h differs from it
   by more than the sum along the path, ν̂ρ̂^h/(1 − ρ̂).
4. **Bound.** The leaves' cells cover the simplex, so no mixture has a value below the smallest
   v − reach − 2se over the leaves; the returned value minus that is how much better one could be. A loss
   that cannot be negative is no better than 0. A cell with a child that has no value yet counts as a leaf.

Only a tree of cells covers the simplex. Methods that compare mixtures without cutting it get words, no bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, hypot, isfinite, log, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mixtree.bounds import default_rho
from mixtree.data.allocation import Allocation, given
from mixtree.engine.study import stored_tree
from mixtree.errors import InputError
from mixtree.estimate.merged import in_cells
from mixtree.policies.merging import LOOKS, RANKED
from mixtree.theory import near_optimality
from mixtree.tree import Node, Path

if TYPE_CHECKING:
    from mixtree.storage.base import Storage, StudyRecord

_FEWEST_HEIGHTS = 3  # a slope through two points fits anything
_NOISE = 2.0  # standard errors
_SEARCH = ("root", "search")

RhoFrom = Literal["fit", "cells", "theory"]
"""Where ρ̂ comes from: the values themselves, the shrinking of the cells, the theory's slowest decay."""
_THEORY: RhoFrom = "theory"


@dataclass(frozen=True, slots=True)
class Smoothness:
    """ν̂ρ̂^h: the largest change of the value, at most, from a node at height h to its child."""

    nu: float
    rho: float
    rho_from: RhoFrom
    edges: int
    """Pairs of parent and child that it was fitted on."""
    training: float
    """Share of the squared changes that siblings have in common: training goes on, whatever the mixture."""
    noisy: bool
    """No change was larger than its validation noise, so none was subtracted."""

    def reach(self, height: int) -> float:
        """ν̂ρ̂^h/(1 − ρ̂): how far the values below a node at this height can be from its own."""
        return self.nu * self.rho**height / (1.0 - self.rho)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a finished tree says of the mixtures that it did not try."""

    sentence: str
    """All of it in plain words."""
    bound: float | None
    """How much smaller an unexplored mixture's value could be, at most; None where nothing can be said."""
    noise: float
    """The part of the bound that stands for validation noise."""
    value: float | None
    """Of the returned node, before any commit."""
    best: Path | None
    doubtful: Path | None
    """The leaf whose cell could hold that better mixture."""
    spread: float | None
    """Largest minus smallest value of the mixtures that were tried."""
    smoothness: Smoothness | None
    dimension: float | None
    """Estimated near-optimality dimension d; None with fewer than four heights."""
    assumptions: tuple[str, ...]

    @property
    def details(self) -> tuple[str, ...]:
        """What the sentence rests on, line by line; nothing where there is no bound."""
        if self.smoothness is None:
            return ()
        words = (
            "not estimated, since fewer than four heights have a cell near the best"
            if self.dimension is None
            else f"about {self.dimension:.2g} by the cells that were tried; unopened ones could raise it"
        )
        return (f"near-optimality dimension: {words}", *(f"assumed: {each}" for each in self.assumptions))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def certificate(
    tree: Mapping[Path, Node],
    *,
    sources: int,
    best: Path | None = None,
    measure: str = "validation loss",
    floor: float | None = None,
) -> Certificate:
    """How much better, at most, any mixture that the finished tree did not try could be.

    The reasoning is at the top of this module.

    Parameters
    ----------
    tree
        Nodes by path.
    sources
        K.
    best
        Path of the returned node (a commit counts as the node it continued); by default the node of smallest
        value.
    measure
        What the values are, for the sentence.
    floor
        A number below which no value can be; None if there is none.

    Returns
    -------
    Certificate
        The bound, what it comes from, and a sentence; only a sentence for a tree without cells.

    Raises
    ------
    InputError
        If there is no source, or no node ``best``.

    Examples
    --------
    >>> import numpy as np
    >>> def node(path, value):
    ...     return path, Node(path, np.array([0.5, 0.5]), 10, value)
    >>> tree = dict([node((), 1.0), node((0,), 0.8), node((1,), 1.2), node((0, 0), 0.7), node((0, 1), 0.9)])
    >>> found = certificate(tree, sources=2)
    >>> found.best, found.doubtful, found.smoothness.rho_from
    ((0, 0), (0, 0), 'theory')
    """
    if sources < 1:
        raise InputError(f"a certificate needs at least one source; got {sources}")
    # Searched nodes whose siblings were all tried, so that the leaves cover the root.
    searched = {path: node for path, node in tree.items() if node.phase in _SEARCH}
    families = Counter(path[:-1] for path in searched if path)
    children = max(families.values(), default=0)
    cells = {
        path: node
        for path, node in searched.items()
        if all(families[path[:height]] == children for height in range(len(path)))
    }
    finite = {path: node for path, node in cells.items() if not node.diverged}
    if children < 2 or not finite or sources == 1:
        return _without_cells(tree, best, sources=sources)
    edges = []
    for path, node in finite.items():
        parent = finite.get(path[:-1]) if path else None
        if parent is not None:
            error = hypot(_error(node), _error(parent))
            edges.append(_Edge(parent.height, parent.path, node.value - parent.value, error))
    if not edges and () not in cells:  # side by side, as random search does
        return _without_cells(tree, best, sources=sources)
    returned = _returned(tree, finite, best)
    assert returned is not None
    if len(edges) < 2:
        words = f"No certificate: {len(finite)} mixtures have a value, too few to see how it changes."
        return _silent(words, returned)
    smooth = _smoothness(edges, sources=sources, children=children)

    def noise(leaf: Node) -> float:
        return 0.0 if leaf.path == returned.path else _NOISE * hypot(_error(leaf), _error(returned))

    parents = {path[:-1] for path in finite if path}
    leaves = [node for path, node in finite.items() if path not in parents]
    doubtful = min(leaves, key=lambda leaf: leaf.value - smooth.reach(leaf.height) - noise(leaf))
    gap = returned.value - doubtful.value + smooth.reach(doubtful.height) + noise(doubtful)
    bound = max(0.0, gap if floor is None else min(gap, returned.value - floor))
    uncertain = min(bound, noise(doubtful))
    values = [node.value for node in finite.values()]
    spread = max(values) - min(values)
    return Certificate(
        _sentence(bound, uncertain, spread, smooth, measure, floored=floor is not None and bound < gap),
        bound,
        uncertain,
        returned.value,
        returned.path,
        doubtful.path,
        spread,
        smooth,
        _dimension(finite, smooth, min(values)),
        _assumptions(
            smooth,
            stars=children > 2,
            diverged=len(cells) - len(finite),
            measured=any(_error(node) > 0 for node in finite.values()),
        ),
    )


def certificate_of(storage: Storage, record: StudyRecord) -> Certificate | None:
    """The certificate of a stored study, words alone if it cut no cells; None if nothing was tried yet."""
    tree = stored_tree(storage.nodes(record.name))
    if not tree:
        return None
    objective = record.config.get("objective")
    best = record.best if record.best in tree else None
    sources = len(given(record.config.get("sources", ()))) or len(next(iter(tree.values())).mixture)
    if merged := in_cells(list(tree.values()), LOOKS):
        return _of_looks(record, merged)
    if record.config.get("search", {}).get("search") != "tree":
        return _without_cells(tree, best, sources=sources)
    if objective is not None:
        return certificate(tree, sources=sources, best=best, measure="objective (smaller is better)")
    # Every built-in loss is at least 0; a user's own may not be, and then its values may show it.
    floor = 0.0 if all(node.value >= 0 for node in tree.values()) else None
    return certificate(tree, sources=sources, best=best, floor=floor)


def _of_looks(record: StudyRecord, cells: Mapping[Path, Node]) -> Certificate:
    """A tree over merged models: the same reasoning on their losses, and what it assumes more."""
    plain = {path: replace(node, path=path, phase=_SEARCH[1]) for path, node in cells.items()}
    best = record.best if record.best is not None and LOOKS in record.best else None
    if best is not None:  # what was trained from a leaf stands below it
        best = best[len(best) - best[::-1].index(LOOKS) :]
        while best not in plain:
            best = best[:-1]
    weights = np.array([node.mixture for node in plain.values()])
    found = certificate(plain, sources=int(np.linalg.matrix_rank(weights)), best=best, measure="merged loss")
    told = [note for note in record.notes if note.startswith(RANKED)]
    trust = f" ({told[0]})" if told else ""
    return replace(
        found,
        assumptions=(f"merging: merged losses rank as those of trained models do{trust}", *found.assumptions),
    )


def _returned(tree: Mapping[Path, Node], finite: Mapping[Path, Node], best: Path | None) -> Node | None:
    if best is not None and best not in tree:
        raise InputError(f"the tree has no node {best}")
    path = best
    while path is not None and path not in finite:
        path = path[:-1] if path else None
    if path is not None:
        return finite[path]
    return min(finite.values(), key=lambda node: node.value, default=None)


def _without_cells(tree: Mapping[Path, Node], best: Path | None, *, sources: int) -> Certificate:
    """What to say of a run that cut no cells."""
    finite = {path: node for path, node in tree.items() if not node.diverged}
    returned = _returned(tree, finite, best)
    # The target's own rows, which a policy may train on last, are no mixture of the sources.
    own = (node for node in finite.values() if not Allocation.of(node.mixture, sources).own)
    mixtures = len({node.mixture.tobytes() for node in own})
    if not tree:
        return _silent("No certificate: nothing was tried yet.", None)
    if not finite:
        return _silent("No certificate: every model diverged.", None)
    if sources == 1:
        return _silent(
            "There is one source and so one mixture: no other could be better.", returned, bound=0.0
        )
    if mixtures <= 1:
        words = "one mixture was tried (a fixed one, or a budget that bought one model)"
    else:
        words = f"{mixtures} mixtures were tried, but no cell of the simplex was cut into smaller ones"
    return _silent(f"No certificate: {words}, so nothing is known of the others.", returned)


def _silent(words: str, returned: Node | None, *, bound: float | None = None) -> Certificate:
    value, path = (None, None) if returned is None else (returned.value, returned.path)
    return Certificate(words, bound, 0.0, value, path, None, None, None, None, ())


@dataclass(frozen=True, slots=True)
class _Edge:
    height: int
    parent: Path
    change: float
    noise: float


def _error(node: Node) -> float:
    return node.standard_error if isfinite(node.standard_error) else 0.0


def _smoothness(edges: Sequence[_Edge], *, sources: int, children: int) -> Smoothness:
    clean = [sqrt(max(0.0, edge.change**2 - edge.noise**2)) for edge in edges]
    noisy = not any(clean)
    largest: dict[int, float] = {}
    for edge, size in zip(edges, clean, strict=True):
        largest[edge.height] = max(largest.get(edge.height, 0.0), abs(edge.change) if noisy else size)
    logs = {height: log(size) for height, size in largest.items() if size > 0}
    slowest, fastest = default_rho(sources), children ** (-1.0 / (sources - 1))
    rho, rho_from = slowest, _THEORY
    if len(logs) >= _FEWEST_HEIGHTS:
        middle, mean = sum(logs) / len(logs), sum(logs.values()) / len(logs)
        above = sum((height - middle) * (size - mean) for height, size in logs.items())
        fitted = exp(above / sum((height - middle) ** 2 for height in logs))
        if fitted < fastest:
            rho, rho_from = fastest, "cells"
        elif fitted <= slowest:
            rho, rho_from = fitted, "fit"
    nu = max((exp(size - height * log(rho)) for height, size in logs.items()), default=0.0)
    families: dict[Path, list[float]] = {}
    for edge in edges:
        families.setdefault(edge.parent, []).append(edge.change)
    whole = [changes for changes in families.values() if len(changes) > 1]
    total = sum(change**2 for changes in whole for change in changes)
    shared = sum(sum(changes) ** 2 / len(changes) for changes in whole)
    training = shared / total if total > 0 else 0.0
    return Smoothness(nu, rho, rho_from, len(edges), training, noisy and nu > 0)


def _dimension(finite: Mapping[Path, Node], smooth: Smoothness, lowest: float) -> float | None:
    """d from the evaluated cells within three times the reach of the best; cells nobody opened are missed."""
    counts: list[float] = []
    while True:
        height = len(counts)
        near = lowest + 3.0 * smooth.reach(height)
        count = sum(node.height == height and node.value <= near for node in finite.values())
        if not count:
            break
        counts.append(count)
    return near_optimality(counts, rho2=smooth.rho).d if len(counts) >= 4 else None


def _sentence(
    bound: float, noise: float, spread: float, smooth: Smoothness, measure: str, *, floored: bool
) -> str:
    if spread == 0:
        return (
            f"Every mixture that was tried has the same {measure}: the mixture does not matter here, or the "
            "model does not learn."
        )
    words = (
        f"If the {measure} goes on changing as it did from parent to child in this tree (at most "
        f"{smooth.nu:.3g}·{smooth.rho:.3g}^h at height h, {smooth.edges} changes seen), no mixture that was "
        f"not tried is better than the returned one by more than {bound:.3g}"
    )
    if floored:
        words += f", and that is all there is: a smaller {measure} is not possible."
    else:
        words += f", of which {noise:.2g} stands for validation noise." if noise > 0 else "."
    if smooth.noisy:
        words += " No change was larger than its validation noise: more validation rows would tell more."
    if bound > spread:
        return f"{words} The tried ones differ by {spread:.3g} only: the question is not settled."
    return f"{words} The tried ones differ by {spread:.3g}."


def _assumptions(smooth: Smoothness, *, stars: bool, diverged: int, measured: bool) -> tuple[str, ...]:
    source = {
        "fit": "ρ̂ was fitted",
        "cells": "the changes shrank faster than the cells do, so ρ̂ is the cells' own decay",
        "theory": "too few heights or no decay to fit ρ̂ on, so it is the theory's (√3/2)^(1/(K−1))",
    }[smooth.rho_from]
    found = [
        f"smoothness: cells that were not opened are as smooth as the opened ones ({source})",
        "warm starts: a node's value is that of its parent's model continued, not of training to the end on "
        f"its mixture; siblings share {smooth.training:.0%} of the squared changes, which is training, not "
        "the mixture, and makes the bound larger than it need be",
        "training noise: each mixture was trained once, on one draw of rows",
        "the bound speaks of the validation rows' target, and of these sources only",
    ]
    if not measured:
        found.append("validation noise: no standard errors were recorded, so none is counted")
    else:
        found.append("validation noise: nodes share their rows but are counted as if they did not")
    if diverged:
        found.append(f"{diverged} diverged nodes: their cells are taken to hold nothing better")
    if stars:
        found.append("delaunay: its cells keep long edges at every height, and no theorem covers it")
    return tuple(found)
