"""The arena's tasks, fixed before any policy was designed: problems, networks, budgets, and two halves.

Choices are made on the *design* half (families and seeds) and confirmed on the *confirm* half, which nobody
looks at while choosing. Real data count as confirmation. Other targets of the same data (``PAPER_DESIGN``)
were added to the design half when the first ``auto`` was found wanting on real data, before the second one.
A third group holds tasks whose budgets are too small for their networks to converge: there a decayed end and
every look at a mixture cost most, and plain ``uniform`` is the strongest of the simple ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from mixtree.data import paper
from mixtree.data.flights import flights
from mixtree.data.sources import Problem, Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.experiments.specs import sparse_rows
from mixtree.metrics import AUROC, HAND_TILL, LOG_LOSS, MAE_EXP, RMSE, Metric
from mixtree.trainers.mlp import MlpTrainer

Half = Literal["design", "confirm", "undertrained"]

DESIGN_SEEDS = tuple(range(100, 110))
CONFIRM_SEEDS = tuple(range(10))
UNDERTRAINED_SEEDS = tuple(range(200, 210))


@dataclass(frozen=True, eq=False, slots=True)
class Task:
    """One problem family with its network and its budget in steps."""

    name: str
    half: Half
    load: Callable[[int], Problem]
    """The problem of a seed: its own draw or split."""
    metric: Metric
    budget: int
    steps: int
    batch: int
    lr: float
    """The base step size, tuned for uniform."""
    network: tuple[tuple[str, Any], ...] = ()
    hull: Literal["inside", "outside", "unknown"] = "unknown"
    plenty: Callable[[int], Problem] | None = None
    """The same problem with so many target rows that nothing else is needed, where there can be."""

    def trainer(self, sources: Sources, *, lr: float | None = None, **more: Any) -> MlpTrainer:
        """The task's network on these sources."""
        options = dict(self.network) | more
        if options.pop("paper", False):  # the wine-price network depends on the number of columns
            width = sources.features
            options |= {"hidden": (width // 2, width // 4), "activation": "sigmoid", "loss": "exp-absolute"}
        return MlpTrainer(sources, lr=self.lr if lr is None else lr, batch_size=self.batch, **options)


def _synthetic(seed: int, **options: Any) -> Problem:
    return synthetic(seed=seed, **options)


def _made(name: str, half: Half, *, steps: int, **options: Any) -> Task:
    neural = options.get("kind") == "neural"
    regression = options.get("classes") == 0
    hull: Any = options.get("hull", "inside")
    return Task(
        name,
        half,
        partial(_synthetic, **options),
        RMSE if regression else LOG_LOSS,
        budget=2000 if neural else 1500,
        steps=steps,
        batch=50,
        lr=0.05 if regression else 0.1,
        network=(("hidden", (64, 64) if neural else ()),),
        hull=hull,
        plenty=partial(_synthetic, **(options | {"validation": 10_000})) if hull == "outside" else None,
    )


SYNTHETIC = (
    _made("in-hull K=3 linear", "design", steps=50, sources=3),
    _made("in-hull K=10 linear", "design", steps=50, sources=10),
    _made("in-hull K=5 neural", "design", steps=60, sources=5, kind="neural"),
    _made("outside K=4 linear", "design", steps=50, sources=4, hull="outside"),
    _made("outside K=4 neural", "design", steps=60, sources=4, kind="neural", hull="outside"),
    _made("x-blind K=4 linear", "design", steps=50, sources=4, informative=False),
    _made("n_val=30 K=4 linear", "design", steps=50, sources=4, validation=30),
    _made("in-hull K=5 linear", "confirm", steps=50, sources=5),
    _made("in-hull K=20 linear", "confirm", steps=50, sources=20, rows=1000),
    _made("in-hull K=10 neural", "confirm", steps=60, sources=10, kind="neural"),
    _made("outside K=3 linear", "confirm", steps=50, sources=3, hull="outside", validation=300),
    _made("outside K=8 neural", "confirm", steps=60, sources=8, kind="neural", hull="outside"),
    _made("x-blind K=6 neural", "confirm", steps=60, sources=6, kind="neural", informative=False),
    _made("n_val=50 K=6 linear", "confirm", steps=50, sources=6, validation=50),
    _made("four classes K=4 linear", "confirm", steps=50, sources=4, classes=4),
    _made("regression K=4 linear", "confirm", steps=50, sources=4, classes=0),
)

_WIDE = (("hidden", (128, 128, 128)),)


def _flights(seed: int, *, target: Literal["new", "known"]) -> Problem:
    return flights(target=target, seed=seed)


def _amazon(seed: int, *, target: str) -> Problem:
    return sparse_rows(paper.amazon(seed=seed, target=target))


def _allstate(seed: int, *, shares: paper.Shares) -> Problem:
    return paper.allstate(seed=seed, shares=shares)


def _wine(seed: int, *, kind: str, targets: tuple[str, ...]) -> Problem:
    load = paper.wine_price if kind == "price" else paper.wine_quartile
    return sparse_rows(load(seed=seed, targets=targets))


FLIGHTS = (
    Task(
        "flights known",
        "confirm",
        partial(_flights, target="known"),
        AUROC,
        1500,
        50,
        50,
        0.1,
        _WIDE,
        "inside",
    ),
    Task("flights new", "confirm", partial(_flights, target="new"), AUROC, 1500, 50, 50, 0.1, _WIDE),
)
_PRICE = (("paper", True),)
_OTHER_STATES: paper.Shares = {"NY": (45.0, 0.5, 3.0), "PA": (50.0, 3.0, 20.0), "MD": (20.0, 2.0, 10.0)}
PAPER = (
    Task("amazon", "confirm", partial(_amazon, target="120663"), AUROC, 600, 20, 50, 0.1, _WIDE),
    Task("amazon 117884", "confirm", partial(_amazon, target="117884"), AUROC, 600, 20, 50, 0.1, _WIDE),
    Task(
        "allstate",
        "confirm",
        partial(_allstate, shares=paper.ALLSTATE),
        HAND_TILL,
        600,
        20,
        100,
        0.1,
        _WIDE,
        "inside",
    ),
    Task(
        "allstate NY PA MD",
        "confirm",
        partial(_allstate, shares=_OTHER_STATES),
        HAND_TILL,
        600,
        20,
        100,
        0.1,
        _WIDE,
        "inside",
    ),
    Task(
        "wine-price",
        "confirm",
        partial(_wine, kind="price", targets=("Chile", "Australia")),
        MAE_EXP,
        2400,
        80,
        25,
        0.002,
        _PRICE,
    ),
    Task(
        "wine-quartile",
        "confirm",
        partial(_wine, kind="quartile", targets=("Chile",)),
        HAND_TILL,
        1200,
        40,
        25,
        0.05,
        _WIDE,
    ),
    Task(
        "wine-quartile Argentina",
        "confirm",
        partial(_wine, kind="quartile", targets=("Argentina",)),
        HAND_TILL,
        1200,
        40,
        25,
        0.05,
        _WIDE,
    ),
)


_MORE_STATES: paper.Shares = {"TN": (50.0, 0.8, 8.0), "KY": (50.0, 6.0, 30.0), "MO": (45.0, 1.5, 8.0)}


def _digits(seed: int, *, sharp: float) -> Problem:
    """Handwritten digits (8 × 8) of four scanners, each of which blurs, shifts or inverts in its own way.

    The target's are a mixture of two of them, a little noisier.
    """
    from sklearn.datasets import load_digits

    random = np.random.default_rng([seed, 8])
    x, y = load_digits(return_X_y=True)
    images = (x / 16.0).reshape(-1, 8, 8)
    order = random.permutation(len(y))
    scans: list[Callable[[Any], Any]] = [
        lambda each: each,
        lambda each: np.roll(each, 1, axis=2),
        lambda each: 0.5 * (each + np.roll(each, 1, axis=1)),
        lambda each: 1.0 - each,
    ]

    def rows(places: Any, kind: int, noise: float) -> Rows:
        seen = scans[kind](images[places])
        noisy = seen + noise * random.standard_normal(seen.shape)
        return Rows((noisy.reshape(len(places), -1) - 0.3) / 0.35, y[places])

    parts = np.array_split(order[:1200], 4)
    sources = {f"scanner {kind + 1}": rows(part, kind, 0.1) for kind, part in enumerate(parts)}
    kinds = np.where(random.random(597) < sharp, 0, 1)
    held = [(order[1200:][kinds == kind], kind) for kind in (0, 1)]
    target = [rows(places, kind, 0.2) for places, kind in held]
    x_all = np.concatenate([part.x for part in target])
    y_all = np.concatenate([part.y for part in target])
    mixed = random.permutation(len(y_all))
    val, test = mixed[:150], mixed[150:]
    return Problem(
        f"digits {sharp:g}",
        Sources(tuple(sources), tuple(sources.values()), Rows(x_all[val], y_all[val]), 10),
        Rows(x_all[test], y_all[test]),
    )


def _few_steps(name: str, budget: int, **options: Any) -> Task:
    made = _made(name, "undertrained", steps=max(1, budget // 30), kind="neural", **options)
    return replace(made, name=f"{name}, {budget} steps", budget=budget, network=_WIDE)


UNDERTRAINED = (
    *(
        Task(
            f"digits {sharp:g}, {budget} steps",
            "undertrained",
            partial(_digits, sharp=sharp),
            LOG_LOSS,
            budget,
            budget // 30,
            50,
            0.1 if sharp > 0.5 else 0.02,
            _WIDE,
        )
        for sharp in (0.5, 0.9)
        for budget in (150, 300, 600, 1200)
    ),
    *(
        _few_steps(name, budget, **options)
        for name, options in (
            ("in-hull K=3 neural", {"sources": 3}),
            ("in-hull K=8 neural", {"sources": 8}),
            ("outside K=4 neural", {"sources": 4, "hull": "outside"}),
            ("four classes K=4 neural", {"sources": 4, "classes": 4}),
            ("n_val=50 K=4 neural", {"sources": 4, "validation": 50}),
            ("regression K=4 neural", {"sources": 4, "classes": 0}),
        )
        for budget in (150, 400)
    ),
)


def _elsewhere(like: str, name: str, load: Callable[[int], Problem]) -> Task:
    """The same data, network and budget as a task of the confirm half, another target."""
    (task,) = (each for each in PAPER if each.name == like)
    return replace(task, name=name, half="design", load=load)


PAPER_DESIGN = (
    _elsewhere("amazon", "amazon 118746", partial(_amazon, target="118746")),
    _elsewhere("allstate", "allstate TN KY MO", partial(_allstate, shares=_MORE_STATES)),
    _elsewhere("wine-price", "wine-price Portugal", partial(_wine, kind="price", targets=("Portugal",))),
    _elsewhere(
        "wine-quartile", "wine-quartile Austria", partial(_wine, kind="quartile", targets=("Austria",))
    ),
    _elsewhere(
        "wine-quartile",
        "wine-quartile New Zealand",
        partial(_wine, kind="quartile", targets=("New Zealand",)),
    ),
)


def tasks(half: Half | None = None) -> list[Task]:
    """All tasks that can be run here: those on the paper's data need MIXTREE_DATA."""
    real = (*PAPER, *PAPER_DESIGN) if os.environ.get(paper.VARIABLE) else ()
    found = [*SYNTHETIC, *FLIGHTS, *real, *UNDERTRAINED]
    return [task for task in found if half is None or task.half == half]
