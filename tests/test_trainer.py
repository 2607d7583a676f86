"""Every trainer has all optional parts: its own, or the defaults of TrainerBase."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier
from sklearn.naive_bayes import GaussianNB

from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.trainer import Evaluation, Job, TrainerBase, as_trainer
from mixtree.trainers.boosting import LightGBMTrainer, XGBoostTrainer
from mixtree.trainers.command import CommandTrainer
from mixtree.trainers.mlp import MlpTrainer
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.trainers.sklearn import PartialFitTrainer

SOURCES = synthetic(sources=2, rows=60, features=3, seed=1).sources
COMMAND = "train {init} {out} {mixture} {steps} {seed}"


def torch_trainer() -> TrainerBase[Any]:
    torch = pytest.importorskip("torch")
    from mixtree.trainers.torch.trainer import TorchTrainer

    return TorchTrainer(SOURCES, lambda: torch.nn.Linear(3, 2), engine="eager")


CAN = {
    "mlp": (lambda: MlpTrainer(SOURCES, hidden=()), {"predict", "merge", "gradients", "lr", "engine"}),
    "torch": (torch_trainer, {"predict", "merge", "gradients", "lr", "engine"}),
    "reference": (lambda: ReferenceTrainer(SOURCES), {"predict", "merge", "lr"}),
    "sklearn": (
        lambda: PartialFitTrainer(SOURCES, SGDClassifier(learning_rate="constant")),
        {"predict", "lr"},
    ),
    "no step size": (lambda: PartialFitTrainer(SOURCES, GaussianNB()), {"predict"}),
    "lightgbm": (lambda: LightGBMTrainer(SOURCES), {"predict", "lr"}),
    "xgboost": (lambda: XGBoostTrainer(SOURCES), {"predict", "lr"}),
    "command": (lambda: CommandTrainer(COMMAND, ["a", "b"]), set()),
}


@pytest.mark.parametrize("name", CAN)
def test_what_a_trainer_cannot_do_is_none(name: str) -> None:
    make, can = CAN[name]
    trainer = make()
    assert as_trainer(trainer) is trainer
    optional = ("predict", "merge", "gradients", "lr", "engine")
    assert {each for each in optional if getattr(trainer, each) is not None} == can
    assert trainer.group is None
    assert isinstance(trainer.describe(), dict)
    names = trainer.names if trainer.sources is None else trainer.sources.names
    assert len(names) == 2


class Five:
    """The five methods of a trainer, and one more."""

    lr = 0.5

    def init(self, seed: int) -> int:
        return seed

    def train(self, jobs: Any) -> list[int]:
        return [job.state + job.steps for job in jobs]

    def evaluate(self, states: Any) -> list[Evaluation]:
        return [Evaluation(float(state)) for state in states]

    def save(self, state: int) -> dict[str, Any]:
        return {"state": np.array([state])}

    def load(self, arrays: Any) -> int:
        return int(arrays["state"][0])


def test_five_methods_are_enough() -> None:
    trainer = as_trainer(Five())
    (state,) = trainer.train([Job(trainer.init(3), np.ones(1), 4, 0)])
    assert trainer.load(trainer.save(state)) == state == 7
    assert trainer.evaluate([state])[0].value == 7.0
    assert (trainer.lr, trainer.predict, trainer.group, trainer.engine) == (0.5, None, None, None)
    assert trainer.epochs(state) is None
    assert trainer.describe() == {}
    trainer.prepare(steps=10)


def test_an_object_without_them_is_refused() -> None:
    with pytest.raises(InputError, match="dict is not a Trainer: it needs init, train, evaluate, save, load"):
        as_trainer({})
