"""R(Λ) from real SGD: the regret G(α(Λ)) − min G of the mixture that the search chose, not of its model.

G(α) = F_te(w*(α)) can be computed where the loss is strongly convex: L2-regularised linear models on three
synthetic sources, w*(α) solved for to rounding error. The target is a mixture of the sources, F_te = F_α*, so
min G = G(α*) is known. The search sees F_te(w) of models that SGD has trained for λ(h) steps from their
parent's model, at a constant step size, as in the paper's experiments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mixtree.data.synthetic import synthetic
from mixtree.experiments.theorems.findings import COLOURS, Finding, Section, figure, number, table
from mixtree.experiments.theorems.regret import slope
from mixtree.partition import bisect, simplex_root
from mixtree.planning.constants import ConvexModel
from mixtree.schedules import constant, geometric
from mixtree.seeds import derive_seed
from mixtree.simplex import Mixture
from mixtree.theory import predicted_slope
from mixtree.trainer import Evaluation, Job
from mixtree.trainers.mlp import MlpState, MlpTrainer
from mixtree.tree import Node, Trial
from mixtree.tree_search import TreeSearch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Floats = NDArray[np.float64]
_SOURCES, _L2, _BATCH = 3, 0.1, 10
# Every cut halves the volume of a cell: its diameter shrinks by this per height, in the long run.
_RHO = 2 ** (-1 / (_SOURCES - 1))
_DIMENSION = (_SOURCES - 1) / 2
"""The limit of d for a G that is quadratic at its optimum."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A model family with the step size that it is trained with."""

    name: str
    classes: int
    step_size: float


LOSSES = (Loss("squared error", 0, 0.01), Loss("logistic", 2, 0.1))


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """Three sources, a target that is a mixture of them, and a trainer."""

    model: ConvexModel
    trainer: MlpTrainer
    target: Mixture
    seed: int

    least: float
    """min G."""

    def excess(self, w: _Floats) -> float:
        """F_te(w) − min G."""
        return self.model.value(w, self.target) - self.least

    def regret(self, alpha: Mixture) -> float:
        """G(α) − min G."""
        return self.excess(self.model.optimum(alpha))


def make_task(loss: Loss, target: Mixture, *, seed: int) -> Task:
    """The task of this seed."""
    sources = synthetic(
        sources=_SOURCES, rows=300, validation=1, test=1, features=3, classes=loss.classes, seed=seed
    ).sources
    trainer = MlpTrainer(
        sources, hidden=(), lr=loss.step_size, weight_decay=_L2, batch_size=_BATCH, dtype="float64"
    )
    model = ConvexModel(sources, l2=_L2)
    return Task(model, trainer, target, seed, model.value(model.optimum(target), target))


@dataclass(frozen=True, eq=False, slots=True)
class Followed:
    """One search: what it chose at every budget, and the values of all its nodes."""

    mixtures: list[float]
    """Regret of the chosen mixture."""
    models: list[float]
    """F_te(w) − min G of its model."""
    height: int
    """Of the mixture chosen at the greatest budget."""
    siblings: dict[str, list[tuple[float, float]]]
    """(|ΔG|, |Δvalue − ΔG|) of pairs of siblings, near the root and deep down."""


_NEAR, _DEEP = "1 – 3", "10 and more"
_PAIRS = 60  # of every problem


def follow(
    task: Task,
    steps: Callable[[int], int],
    budgets: NDArray[np.int64],
    *,
    exact: bool = False,
    compare: bool = False,
) -> Followed:
    """A search and its regrets at every budget. With ``exact`` it sees G itself, at the same price."""
    start = task.trainer.init(task.seed)
    states: dict[tuple[int, ...], MlpState] = {}
    values: dict[tuple[int, ...], tuple[Mixture, float]] = {}

    def value(trial: Trial) -> float:
        if exact:
            return task.least + task.regret(trial.mixture)
        parent = states.get(trial.path[:-1], start)
        job = Job(parent, trial.mixture, trial.steps, derive_seed(task.seed, trial.path))
        (states[trial.path],) = task.trainer.train([job])
        return task.least + task.excess(states[trial.path].parameters.reshape(task.model.shape))

    # A search of a smaller budget makes the same rounds and stops earlier: one run serves all budgets.
    root = simplex_root(_SOURCES)
    search = TreeSearch(root, bisect, budget=int(budgets[-1]), steps=steps, nu="auto", rho=_RHO)
    found: list[Node] = []
    while trials := search.ask():
        while search.spent > budgets[len(found)]:
            found.append(search.best())
        for trial in trials:
            values[trial.path] = trial.mixture, value(trial)
            search.tell(trial, Evaluation(values[trial.path][1]))
    found += [search.best()] * (len(budgets) - len(found))
    return Followed(
        [task.regret(node.mixture) for node in found],
        [node.value - task.least for node in found],
        len(found[-1].path),
        _siblings(task, values) if compare else {},
    )


def _siblings(
    task: Task, values: dict[tuple[int, ...], tuple[Mixture, float]]
) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {_NEAR: [], _DEEP: []}
    for path, (mixture, value) in values.items():
        place = _NEAR if 1 <= len(path) <= 3 else _DEEP if len(path) >= 10 else None
        if place is None or path[-1] or len(found[place]) == _PAIRS:
            continue
        other, its = values[*path[:-1], 1]
        gap = task.regret(other) - task.regret(mixture)
        found[place].append((abs(gap), abs(its - value - gap)))
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Path:
    """Regrets (problems × budgets) of one way to choose λ."""

    loss: Loss
    label: str
    budgets: NDArray[np.int64]
    mixtures: _Floats
    models: _Floats
    height: float
    """Of the mixture chosen at the greatest budget, on average."""
    siblings: dict[str, tuple[float, float]]
    """Medians of ``Followed.siblings`` over all problems."""

    @property
    def fit_from(self) -> int:
        return len(self.budgets) // 3


def measure(
    loss: Loss, label: str, steps: Callable[[int], int], *, problems: int, budgets: NDArray[np.int64]
) -> Path:
    """The search on so many problems, each with a random target in the sources' hull."""
    targets = np.random.default_rng(3).dirichlet(np.ones(_SOURCES), size=problems)
    exact, compare = label.startswith("exact"), loss.classes == 0 and label.startswith("λ =")
    found = [
        follow(make_task(loss, target, seed=seed), steps, budgets, exact=exact, compare=compare)
        for seed, target in enumerate(targets)
    ]
    pairs = {place: [pair for each in found for pair in each.siblings[place]] for place in found[0].siblings}
    return Path(
        loss,
        label,
        budgets,
        np.array([each.mixtures for each in found]),
        np.array([each.models for each in found]),
        float(np.mean([each.height for each in found])),
        {
            place: (float(np.median([gap for gap, _ in some])), float(np.median([off for _, off in some])))
            for place, some in pairs.items()
            if some
        },
    )


def section(*, quick: bool) -> Section:
    """The experiment."""
    problems, doublings = (2, 3) if quick else (10, 8)
    budgets = 2000 * 2 ** np.arange(doublings, dtype=np.int64)
    ways = [
        ("λ = 100", constant(100)),
        ("λ = 400", constant(400)),
        ("λ(h) = 20·√2^h", geometric(20, math.sqrt(2))),
        ("exact values, λ = 400", constant(400)),
    ]
    found = [
        measure(loss, label, steps, problems=problems, budgets=budgets)
        for loss in LOSSES
        for label, steps in ways
    ]
    predicted = predicted_slope(_DIMENSION, regime="constant")
    rows, findings = [], []
    for each in found:
        fitted, error = slope(each.budgets, each.mixtures, each.fit_from)
        first, last = (float(each.mixtures[:, column].mean()) for column in (0, -1))
        rows.append(
            [
                each.loss.name,
                each.label,
                number(first),
                number(last),
                number(float(each.models[:, -1].mean())) if "exact" not in each.label else "",
                number(each.height),
                f"{number(fitted)} ± {number(error, 2)}",
            ]
        )
        if "h" in each.label.split("=")[0]:
            continue  # growing λ: the corollary is about the theory's own growth
        findings.append(
            Finding(
                f"R(Λ) of the chosen mixture, {each.loss.name}, {each.label}",
                f"slope −1/d = {number(predicted)} or steeper",
                f"{number(fitted)} ± {number(error, 2)}",
                fitted <= predicted + 2 * error,
            )
        )
    gaps = [
        [each.label, place, *map(number, pair)] for each in found for place, pair in each.siblings.items()
    ]
    header = ["loss", "λ", f"R at Λ = {number(float(budgets[0]))}", f"R at Λ = {number(float(budgets[-1]))}"]
    header += ["its model's excess there", "height there", "fitted slope"]
    sizes = ", ".join(f"{each.step_size:g} for {each.name}" for each in LOSSES)
    text = f"""The regret of the mixture that the search returns, R(Λ) = G(α(Λ)) − min G, where G(α) =
F_te(w*(α)) is computed: linear models with l2 = {_L2:g} on three synthetic sources, the target a random
mixture of them, so that min G = G(α*). Values are F_te(w) of models really trained by SGD, {_BATCH} rows a
step, from the parent's model, with a constant step size ({sizes}), mean of {problems} problems. *Exact
values*: the search sees G itself and is charged the same. d is taken as its limit (K − 1)/2 =
{_DIMENSION:g} for a G that is quadratic at its optimum. Slopes as above. *Its model's excess* is F_te(w) −
min G of the returned model.

{table(header, rows)}
With exact values R(Λ) falls as the corollary says. With SGD it falls too, but more slowly: the corollary
presumes λ(h) steps, after which the values of all nodes of height h err by at most ν2ρ2^h. Here, with squared
error, is what two siblings differ by in G, and how far the difference of their values is from that (medians
over at most {_PAIRS} pairs of every problem):

{table(["λ", "height", "siblings differ by", "their values err by"], gaps)}
Deep down the error is larger than what is to be told apart, so that further budget buys choices among equals.
And 400 steps a node err as much as 100: at a constant step size it is SGD's own noise that is left, which
more steps do not reduce. Where they do, the theory's step sizes, λ(h) is beyond every budget (above)."""
    return Section(
        "chosen",
        "Regret of the chosen mixture, with real SGD",
        text,
        tuple(findings),
        lambda: _draw(found),
    )


def _draw(found: list[Path]) -> Figure:
    losses = list(dict.fromkeys(each.loss.name for each in found))
    canvas, panels = figure(len(losses), width=4.6)
    for axes, name in zip(panels, losses, strict=True):
        some = [each for each in found if each.loss.name == name]
        for colour, marker, each in zip(COLOURS, "os^D", some, strict=False):
            mean = each.mixtures.mean(axis=0)
            error = each.mixtures.std(axis=0, ddof=1) / math.sqrt(len(each.mixtures))
            axes.errorbar(
                each.budgets, mean, yerr=np.minimum(error, 0.9 * mean), color=colour, marker=marker, ms=3,
                lw=1.2, capsize=2, label=each.label,
            )  # fmt: skip
        top = max(float(each.mixtures[:, 0].mean()) for each in some)
        guide = (
            2 * top * (some[0].budgets / some[0].budgets[0]) ** predicted_slope(_DIMENSION, regime="constant")
        )
        axes.plot(some[0].budgets, guide, "k:", lw=1, label="slope −1/d")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("budget Λ, SGD steps")
    panels[0].set_ylabel("R(Λ) of the mixture: mean ± 1 standard error", fontsize=8)
    panels[0].legend(fontsize=7)
    return canvas
