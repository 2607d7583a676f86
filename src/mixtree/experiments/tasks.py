"""The arena's tasks, fixed before any policy was designed: problems, networks, budgets, and two halves.

Choices are made on the *design* half (families and seeds) and confirmed on the *confirm* half, which nobody
looks at while choosing. Real data count as confirmation. Other targets of the same data (``PAPER_DESIGN``)
were added to the design half when the first ``auto`` was found wanting on real data, before the second one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from mixtree.data import paper
from mixtree.data.flights import flights
from mixtree.data.sources import Problem, Sources
from mixtree.data.synthetic import synthetic
from mixtree.experiments.specs import sparse_rows
from mixtree.metrics import AUROC, HAND_TILL, LOG_LOSS, MAE_EXP, RMSE, Metric
from mixtree.trainers.mlp import MlpTrainer

Half = Literal["design", "confirm"]

DESIGN_SEEDS = tuple(range(100, 110))
CONFIRM_SEEDS = tuple(range(10))


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
    found = [*SYNTHETIC, *FLIGHTS, *real]
    return [task for task in found if half is None or task.half == half]
