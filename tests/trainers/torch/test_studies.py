"""Torch modules in studies that stop and go on: what they keep without a dimension must survive the disk."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mixtree.data.sources import Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import Result, run
from mixtree.errors import StorageError
from mixtree.fitting.pipeline import load
from mixtree.partition import PARTITIONS
from mixtree.simplex import uniform_mixture
from mixtree.trainer import Job
from mixtree.trainers.torch import choice as torch_choice
from mixtree.trainers.torch import trainer as trainers_torch
from mixtree.trainers.torch.trainer import TorchState, TorchTrainer
from mixtree.tree_search import TreeSearch

BUDGET, RAISED = 45, 80
ADAMW = functools.partial(torch.optim.AdamW, lr=0.01)
NADAM = functools.partial(torch.optim.NAdam, lr=0.01)
MOMENTUM = functools.partial(torch.optim.SGD, lr=0.05, momentum=0.9)


@functools.cache
def sources() -> Sources:
    return synthetic(sources=3, rows=40, validation=30, test=5, features=4, seed=3).sources


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, sources().classes))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, sources().classes))


class Scaled(nn.Module):
    """A temperature and a counter: a parameter and a buffer without a dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.net = plain()
        self.temperature = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        return self.net(x) * self.temperature


MODULES: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "BatchNorm, SGD": (normalised, functools.partial(torch.optim.SGD, lr=0.1)),
    "AdamW": (plain, ADAMW),
    "scalar parameter, SGD with momentum": (Scaled, MOMENTUM),
    "scalar parameter, AdamW": (Scaled, ADAMW),
    "scalar parameter, NAdam": (Scaled, NADAM),
}


class Clocked(TorchTrainer):
    """Time passes only when something is trained: one second per step."""

    now = 0.0

    def train(self, jobs: Sequence[Job[TorchState]]) -> list[TorchState]:
        Clocked.now += sum(job.steps for job in jobs)
        return super().train(jobs)


def trainer(name: str, engine: Any) -> TorchTrainer:
    module, optimizer = MODULES[name]
    return Clocked(sources(), module, optimizer=optimizer, batch_size=8, engine=engine, group=2)


def search(budget: int = BUDGET) -> TreeSearch:
    bisect = PARTITIONS["bisect"]
    return TreeSearch(bisect.root(3), bisect.split, budget=budget, steps=5, width=2, nu="auto")


def bits(result: Result[Any], trained: TorchTrainer) -> dict[str, tuple[Any, ...]]:
    arrays = trained.save(result.state)
    return {name: (each.dtype, each.shape, each.tobytes()) for name, each in arrays.items()}


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        *((name, "eager") for name in MODULES),
        ("BatchNorm, SGD", "traced"),
        ("scalar parameter, NAdam", "traced"),
        ("scalar parameter, AdamW", "vmap"),
    ],
)
def test_a_study_on_disk_goes_on_to_the_same_bits(
    name: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixtree.engine.loop.time.monotonic", lambda: Clocked.now)
    first = trainer(name, engine)
    assert first.engine == engine
    assert any(array.ndim == 0 for array in first.save(first.train([_job(first)])[0]).values())
    whole = run(search(), first)
    raised = run(search(RAISED), first)
    file = tmp_path / "study.db"
    # Every part in a new trainer, as in a new process: nothing comes from memory.
    early = run(search(), trainer(name, engine), storage=file, time_limit=22)
    assert early.reason == "the time limit was reached"
    assert 1 < len(early.tree) < len(whole.tree)
    resumed = run(search(), trainer(name, engine), storage=file, resume=True)
    assert bits(resumed, first) == bits(whole, first)
    assert bits(load(file, "study", trainer(name, engine)), first) == bits(whole, first)
    more = run(search(RAISED), trainer(name, engine), storage=file, resume=True)
    assert len(more.tree) > len(whole.tree)
    assert bits(more, first) == bits(raised, first)
    values = [{path: node.value for path, node in each.tree.items()} for each in (more, raised)]
    assert values[0] == values[1]


def half(parameters: Any) -> torch.optim.Optimizer:
    """The first tensor learns at another rate than the others."""
    first, *others = parameters
    return torch.optim.SGD([{"params": [first], "lr": 0.2}, {"params": others}], lr=0.1)


def lower(parameters: Any) -> torch.optim.Optimizer:
    first, *others = parameters
    return torch.optim.SGD([{"params": [first], "lr": 0.2}, {"params": others}], lr=0.05)


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "loss": (
        {"loss": lambda o, y: nn.functional.cross_entropy(o, y, reduction="none")},
        {"loss": lambda o, y: nn.functional.cross_entropy(o, y, reduction="none", label_smoothing=0.1)},
    ),
    "loss of an object": (
        {"loss": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0]), reduction="none")},
        {"loss": nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]), reduction="none")},
    ),
    "settings": ({"optimizer": half}, {"optimizer": lower}),
    "scheduler": (
        {"scheduler": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.9**step)},
        {"scheduler": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.5**step)},
    ),
    "collate": (
        {"collate": lambda x: torch.from_numpy(x).float()},
        {"collate": lambda x: 2 * torch.from_numpy(x).float()},
    ),
    "output": ({"output": lambda o: o.softmax(1)}, {"output": lambda o: (2 * o).softmax(1)}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_study_does_not_go_on_with_another_function(name: str, tmp_path: Path) -> None:
    def go_on(options: dict[str, Any], *, resume: bool) -> Result[TorchState]:
        made = TorchTrainer(sources(), plain, batch_size=5, engine="eager", **options)
        return run(search(), made, storage=tmp_path / "study.db", resume=resume)

    first, other = OTHERS[name]
    begun = go_on(first, resume=False)
    assert go_on(first, resume=True).value == begun.value
    with pytest.raises(StorageError, match=rf"other settings \(trainer\.{name.split()[0]} was .* is "):
        go_on(other, resume=True)


def _job(of: TorchTrainer) -> Job[TorchState]:
    return Job(of.init(0), uniform_mixture(3), 2, 1)


def test_a_short_study_takes_the_eager_loop_and_a_resumed_one_chooses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "study.db"
    name = "scalar parameter, AdamW"
    monkeypatch.setattr(torch_choice, "TracedEngine", None)
    first = trainer(name, "auto")
    run(search(), first, storage=file)
    assert first.engine == "eager"

    def choose(*_args: Any, **_options: Any) -> Any:
        raise AssertionError("the engine was chosen when the study began")

    monkeypatch.setattr(trainers_torch, "choose_engine", choose)
    again = trainer(name, "auto")
    run(search(RAISED), again, storage=file, resume=True)
    assert again.engine == "eager"


def test_choosing_an_engine_counts_towards_the_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixtree.engine.loop.time.monotonic", lambda: Clocked.now)

    class Slow(Clocked):
        def prepare(self, steps: int | None = None, seconds: float | None = None) -> None:
            assert (steps, seconds) == (BUDGET, 22)
            Clocked.now += 20

    module, optimizer = MODULES["scalar parameter, AdamW"]
    slow = Slow(sources(), module, optimizer=optimizer, batch_size=8, engine="eager")
    spent = run(search(), slow, time_limit=22).spent
    usual = run(search(), trainer("scalar parameter, AdamW", "eager"), time_limit=22).spent
    assert sum(spent.values()) <= 5 < sum(usual.values())
