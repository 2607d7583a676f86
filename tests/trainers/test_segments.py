"""A stage trained in segments gives the weights of the same stage trained at once, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from mixtree.data.sources import Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError
from mixtree.policies.fixed import Chain, Stage
from mixtree.search import SEGMENTS, in_segments
from mixtree.trainer import Job
from mixtree.trainers.mlp import MlpTrainer, TheoryStep
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.tree import Trial

MIXTURE = np.array([0.5, 0.3, 0.2])


@pytest.fixture(scope="module")
def sources() -> Sources:
    return synthetic(sources=3, rows=150, validation=40, seed=3).sources


def _torch(sources: Sources, engine: Any, *, dropout: float = 0.0, **options: Any) -> Any:
    torch = pytest.importorskip("torch")
    from mixtree.trainers.torch.trainer import TorchTrainer

    def module() -> Any:
        layers = [torch.nn.Linear(sources.features, 8), torch.nn.ReLU(), torch.nn.Dropout(dropout)]
        return torch.nn.Sequential(*layers, torch.nn.Linear(8, 2))

    return TorchTrainer(sources, module, engine=engine, batch_size=8, **options)


def _adam(sources: Sources) -> Any:
    torch = pytest.importorskip("torch")
    schedule = partial(torch.optim.lr_scheduler.StepLR, step_size=7, gamma=0.5)
    adam = partial(torch.optim.Adam, lr=0.01)
    return _torch(sources, "eager", dropout=0.3, optimizer=adam, scheduler=schedule, reset_optimizer=True)


def _sklearn(sources: Sources, name: str) -> Any:
    from sklearn.linear_model import SGDClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier

    from mixtree.trainers.sklearn import PartialFitTrainer

    made = {"mlp": MLPClassifier((6,)), "bayes": GaussianNB(), "sgd": SGDClassifier(loss="log_loss")}
    return PartialFitTrainer(sources, made[name], batch_size=10)


def _boosting(sources: Sources, library: str) -> Any:
    pytest.importorskip(library)
    from mixtree.trainers import boosting

    if library == "lightgbm":
        return boosting.LightGBMTrainer(sources, {"colsample_bytree": 0.5}, sample_size=100)
    # XGBoost draws columns from a stream that no saved model holds: without it, all is the same.
    return boosting.XGBoostTrainer(sources, sample_size=100)


TRAINERS: dict[str, Callable[[Sources], Any]] = {
    "mlp": lambda sources: MlpTrainer(sources, hidden=(8,)),
    "mlp without replacement": lambda sources: MlpTrainer(sources, hidden=(8,), replacement=False),
    "mlp adam": lambda sources: MlpTrainer(sources, hidden=(8,), optimizer="adam", lr=0.01),
    "mlp momentum, reset": lambda sources: MlpTrainer(
        sources, hidden=(8,), optimizer="momentum", reset_optimizer=True
    ),
    "theory's step size": lambda sources: MlpTrainer(sources, hidden=(), lr=TheoryStep(mu=0.5, offset=8.0)),
    "reference": lambda sources: ReferenceTrainer(sources, hidden=(5,)),
    "torch eager": lambda sources: _torch(sources, "eager", dropout=0.3),
    "torch traced": lambda sources: _torch(sources, "traced", dropout=0.3),
    "torch vmap": lambda sources: _torch(sources, "vmap"),
    "torch adam, reset, schedule": _adam,
    "sklearn mlp": lambda sources: _sklearn(sources, "mlp"),
    "sklearn bayes": lambda sources: _sklearn(sources, "bayes"),
    "lightgbm": lambda sources: _boosting(sources, "lightgbm"),
    "xgboost": lambda sources: _boosting(sources, "xgboost"),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_segments_change_no_weights(name: str, sources: Sources) -> None:
    def weights(segments: int) -> dict[str, Any]:
        trainer = TRAINERS[name](sources)
        stages = [Stage(MIXTURE, 160, 1.0), Stage(MIXTURE, 105, 0.1, "decay")]
        result = run(Chain(stages, segments=segments), trainer, seed=5)
        assert len(result.tree) == (2 if segments == 1 else 5)
        saved: dict[str, Any] = trainer.save(result.state)
        return saved

    whole, cut = weights(1), weights(SEGMENTS)
    assert whole.keys() == cut.keys()
    for key in whole:
        np.testing.assert_array_equal(whole[key], cut[key], err_msg=key)


def test_an_unfinished_stage_survives_being_saved(sources: Sources) -> None:
    """The place in a library's own random numbers is part of the saved state."""
    from mixtree.trainer import Job, Part

    trainer = _torch(sources, "eager", dropout=0.5)
    start = trainer.init(0)
    (whole,) = trainer.train([Job(start, MIXTURE, 20, 9)])
    (half,) = trainer.train([Job(start, MIXTURE, 10, 9, part=Part(9, 0, 20))])
    loaded = trainer.load(trainer.save(half))
    (rest,) = trainer.train([Job(loaded, MIXTURE, 10, 77, part=Part(9, 10, 20))])
    for key, each in trainer.save(whole).items():
        np.testing.assert_array_equal(each, trainer.save(rest)[key], err_msg=key)


def test_segments_are_of_at_least_50_steps_and_at_most_20() -> None:
    for steps in (1, 99, 100, 149, 1000, 1049, 123_457):
        parts = in_segments(Trial((2, 1), MIXTURE, steps, 0.1, "commit"))
        assert sum(each.steps for each in parts) == steps
        assert len(parts) == min(20, max(1, steps // 50))
        assert [each.path for each in parts] == [(2, 1, *(0,) * k) for k in range(len(parts))]
        if len(parts) > 1:
            assert min(each.steps for each in parts) >= 50
            begun = [each.segment.before for each in parts if each.segment is not None]
            assert begun == [sum(each.steps for each in parts[:k]) for k in range(len(parts))]


def test_more_rows_at_once_than_memory_holds_are_refused():
    sources = synthetic(rows=60).sources
    trainer = MlpTrainer(sources, hidden=(), batch_size=50)
    with pytest.raises(InputError, match="2,147,483,648 steps of 50 rows at once are more"):
        trainer.train([Job(trainer.init(0), np.full(len(sources), 1 / len(sources)), 2**31, seed=1)])
