"""Any torch module against what a good user would write: ratios of CPU time, all from interleaved runs.

Our times include drawing the rows, starting from a state and returning a new one; the tidy loop has its rows
drawn for free and trains on.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mixtree.metrics import HAND_TILL
from mixtree.simplex import uniform_mixture
from mixtree.trainer import Job
from mixtree.trainers.torch.trainer import TorchTrainer
from tidy import (
    BATCH,
    CLASSES,
    FEATURES,
    HIDDEN,
    LR,
    STEPS,
    main_sources,
    make_module,
    medians,
    pooled,
    tidy_loop,
    tidy_score,
)

MODELS = 8
SIZES = (FEATURES, *HIDDEN, CLASSES)

Row = dict[str, Any]


def measure(*, repeats: int = 15) -> list[Row]:
    """One row {name, ratio, target, met} per comparison."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return [
        *_steps(repeats),
        *_optimizers(repeats),
        *_whole_node(repeats),
        *_never_slower(max(5, repeats // 2)),
    ]


def _row(name: str, ratio: float, target: float | None) -> Row:
    met = None if target is None else ratio >= target
    return {"name": name, "ratio": round(ratio, 2), "target": target, "met": met}


class _Race:
    """Our trainer and theirs on the main shape, with jobs ready to run."""

    def __init__(self, module: Callable[[], nn.Module], engine: Any, **options: Any) -> None:
        sources = main_sources()
        given = {"optimizer": functools.partial(torch.optim.SGD, lr=LR), "group": MODELS, **options}
        self.trainer = TorchTrainer(sources, module, batch_size=BATCH, engine=engine, **given)
        self.mixture = uniform_mixture(len(sources))
        self.x, self.y = (torch.from_numpy(each) for each in pooled(sources))
        drawn = np.random.default_rng(1).integers(0, len(self.x), (STEPS, BATCH))
        self.batches = list(torch.from_numpy(drawn))
        self.jobs = [Job(self.trainer.init(seed), self.mixture, STEPS, seed) for seed in range(MODELS)]
        # As many models as we train: none finds its weights in the cache because it is the only one.
        self.modules = [module() for _ in range(MODELS)]

    def ours(self) -> list[Any]:
        return self.trainer.train(self.jobs)

    def tidy(self) -> None:
        for module in self.modules:
            tidy_loop(module, self.x, self.y, self.batches, lr=LR)

    def tidy_nodes(self) -> None:
        """As nodes of a tree need it: each goes on from a copy of its parent's model."""
        for module in self.modules:
            tidy_loop(copy.deepcopy(module), self.x, self.y, self.batches, lr=LR)


def _mlp() -> nn.Module:
    return make_module(SIZES)


def _steps(repeats: int) -> list[Row]:
    """Training alone, drawing rows and copying states included, per model."""
    races = {1: _Race(_mlp, "traced"), 2: _Race(_mlp, "vmap", group=2), MODELS: _Race(_mlp, "vmap")}
    runs = {str(models): race.ours for models, race in races.items()}
    seconds = medians({"tidy": races[1].tidy, **runs}, repeats=repeats)
    what = "any module, a step, M = {}: tidy torch loop / ours"
    targets = {1: 2.0, 2: None, MODELS: 3.0}
    return [_row(what.format(m), seconds["tidy"] / seconds[str(m)], targets[m]) for m in races]


def _optimizers(repeats: int) -> list[Row]:
    """The same with other optimizers, against a loop with torch's own."""
    rows = []
    for name, optimizer in (
        ("momentum", functools.partial(torch.optim.SGD, lr=LR, momentum=0.9)),
        ("Adam", functools.partial(torch.optim.Adam, lr=0.001)),
    ):
        one, many = (_Race(_mlp, engine, optimizer=optimizer) for engine in ("traced", "vmap"))
        optimizers = [optimizer(module.parameters()) for module in one.modules]
        loop = functools.partial(_optimizer_loop, one, optimizers)
        seconds = medians({"tidy": loop, "one": one.ours, "many": many.ours}, repeats=repeats)
        what = f"any module with {name}, a step, M = {{}}: tidy torch loop / ours"
        rows.append(_row(what.format(1), seconds["tidy"] / seconds["one"], 1.0))
        rows.append(_row(what.format(MODELS), seconds["tidy"] / seconds["many"], 1.0))
    return rows


def _optimizer_loop(race: _Race, optimizers: list[torch.optim.Optimizer]) -> None:
    for module, optimizer in zip(race.modules, optimizers, strict=True):
        for batch in race.batches:
            optimizer.zero_grad(set_to_none=True)
            output = module(race.x.index_select(0, batch))
            functional.cross_entropy(output, race.y.index_select(0, batch)).backward()
            optimizer.step()


def _whole_node(repeats: int) -> list[Row]:
    """Training and a Hand–Till AUROC on the validation rows."""
    race = _Race(_mlp, "vmap")
    validation = race.trainer.sources.validation
    rows = torch.from_numpy(validation.x)

    def ours() -> object:
        evaluations = race.trainer.evaluate(race.ours())
        return HAND_TILL.batch(validation.y, np.stack([each.predictions for each in evaluations]))

    def theirs() -> None:
        race.tidy()
        for module in race.modules:
            tidy_score(module, rows, validation.y)

    seconds = medians({"ours": ours, "theirs": theirs}, repeats=repeats)
    name = f"any module, a whole node with AUROC, M = {MODELS}: tidy torch + scikit-learn / ours"
    return [_row(name, seconds["theirs"] / seconds["ours"], None)]


class _Branching(nn.Module):
    """Its path depends on the values that it sees: no trace can hold it."""

    def __init__(self) -> None:
        super().__init__()
        self.net = make_module(SIZES)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x if x.sum() > 0 else -x)


def _convolution() -> nn.Module:
    layers = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU()
    return nn.Sequential(nn.Unflatten(1, (1, 10, 10)), *layers, nn.Flatten(), nn.Linear(64, CLASSES))


def _normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, CLASSES))


def _dropping() -> nn.Module:
    layers = nn.LayerNorm(128), nn.GELU(), nn.Dropout(0.1), nn.Linear(128, CLASSES)
    return nn.Sequential(nn.Linear(FEATURES, 128), *layers)


def _wide() -> nn.Module:
    return make_module((FEATURES, 1024, 1024, CLASSES))


def _never_slower(repeats: int) -> list[Row]:
    """The engine that the trainer chooses for itself, on modules of all kinds."""
    modules = {
        "a convolution": _convolution,
        "BatchNorm": _normalised,
        "LayerNorm and dropout": _dropping,
        "layers of 1024": _wide,
        "a module that cannot be traced": _Branching,
    }
    rows = []
    for name, module in modules.items():
        race = _Race(module, "auto")
        seconds = medians({"tidy": race.tidy_nodes, "ours": race.ours}, repeats=repeats)
        told = (
            f"{name}, a node without its score, engine {race.trainer.engine}: copy + tidy torch loop / ours"
        )
        rows.append(_row(told, seconds["tidy"] / seconds["ours"], 1.0))
    return rows


if __name__ == "__main__":
    for row in measure():
        print(f"{row['ratio']:8.2f}  (target {row['target']})  {row['name']}")
