"""Studies on a Ray cluster of this machine alone; those on several machines are in tests/cluster."""

from __future__ import annotations

import importlib
from contextlib import closing
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from mixtree.data.synthetic import synthetic
from mixtree.engine.executors.base import Runner
from mixtree.engine.executors.ray import Cluster, RayExecutor
from mixtree.engine.models import Models
from mixtree.engine.study import Result, run
from mixtree.errors import InputError, StorageError, TrainingError
from mixtree.partition import PARTITIONS
from mixtree.policies.commit import then_commit
from mixtree.storage.sql import SqlStorage
from mixtree.trainer import as_trainer
from mixtree.trainers.mlp import MlpTrainer
from mixtree.trainers.sklearn import PartialFitTrainer
from mixtree.trainers.torch.trainer import TorchTrainer
from mixtree.tree_search import TreeSearch

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        ("ray", Cluster()),
        ("ray:10.0.0.1:6379", Cluster("10.0.0.1:6379")),
        ("ray://10.0.0.1:10001?workers=3", Cluster("ray://10.0.0.1:10001", workers=3)),
        ("ray?num_cpus=0.5&num_gpus=1", Cluster(None, None, 0.5, 1.0)),
    ],
)
def test_a_cluster_by_its_text(text: str, cluster: Cluster) -> None:
    assert Cluster.parse(text) == cluster


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rays", "a Ray cluster is ray, ray:HOST:PORT or ray://HOST:PORT; got 'rays'"),
        ("ray:head", "the address of a Ray cluster is HOST:PORT"),
        ("ray?gpus=1", "cannot use gpus=1 .*: options are num_cpus, num_gpus, workers"),
        ("ray?workers=0", "cannot use workers=0"),
        ("ray?num_cpus=x", "cannot use num_cpus=x"),
        ("ray?num_gpus=nan", "cannot use num_gpus=nan"),
    ],
)
def test_a_text_that_names_no_cluster(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        Cluster.parse(text)


# ------------------------------------------------------------------------------------------ with Ray

extras = pytest.mark.extras


@pytest.fixture(autouse=True)
def trainers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("worker_trainers")


def study(trainer: Any, *, workers: int | str = "ray", **options: Any) -> Result[Any]:
    partitioning = PARTITIONS["bisect"]
    search = TreeSearch(partitioning.root(3), partitioning.split, budget=75, steps=3, width=3, nu="auto")
    return run(then_commit(search, 0.4), trainer, seed=4, workers=workers, **options)


@cache
def expected(kind: str = "Trainer") -> Result[Any]:
    return study(getattr(importlib.import_module("worker_trainers"), kind)(), workers=1)


def rows_of(result: Result[Any]) -> list[tuple[Any, ...]]:
    return [
        (node.path, node.steps, node.phase, node.value.hex(), node.mixture.tobytes())
        for node in result.tree.values()
    ]


def assert_same(one: Result[Any], two: Result[Any], trainer: Any) -> None:
    assert rows_of(one) == rows_of(two)
    assert (one.node.path, one.spent) == (two.node.path, two.spent)
    bits = [
        {name: np.asarray(array).tobytes() for name, array in trainer.save(each.state).items()}
        for each in (one, two)
    ]
    assert bits[0] == bits[1]


@extras
@pytest.mark.parametrize("kind", ["Trainer", "Grouped"])
@pytest.mark.parametrize("stored", [True, False])
def test_the_same_answer_as_in_one_process(
    kind: str, stored: bool, ray: Any, trainers: Any, tmp_path: Path
) -> None:
    trainer = getattr(trainers, kind)()
    if not stored:
        assert_same(study(trainer), expected(kind), trainer)
        return
    with closing(SqlStorage(tmp_path / "s.db")) as storage:
        assert_same(study(trainer, storage=storage, keep="all"), expected(kind), trainer)
        models = storage.checkpoints("study")
        assert models is not None
        assert models.count() == len(expected(kind).tree)
        assert not [*Path(models.url).rglob("*.tmp")]


@extras
@pytest.mark.parametrize("kind", ["mlp", "torch", "sklearn"])
def test_every_kind_of_model_gives_the_same_bits(kind: str, ray: Any, trainers: Any) -> None:
    sources = synthetic(sources=3, rows=60, validation=40, test=5, features=4, seed=3).sources
    trainer: Any
    if kind == "sklearn":
        trainer = PartialFitTrainer(sources, SGDClassifier(loss="log_loss"), batch_size=8)
    elif kind == "mlp":
        trainer = MlpTrainer(sources, hidden=(4,), batch_size=8)
    else:
        trainer = TorchTrainer(sources, trainers.module, batch_size=8)
    assert_same(study(trainer), study(trainer, workers=1), trainer)


@extras
def test_the_trainer_travels_once(ray: Any, trainers: Any) -> None:
    trainers.Weighing.packed = 0
    assert len(study(trainers.Weighing()).tree) > 10
    assert trainers.Weighing.packed == 1


@extras
@pytest.mark.parametrize("kind", ["Dying", "Leaving"])
def test_a_worker_that_is_lost_is_replaced(kind: str, ray: Any, trainers: Any, tmp_path: Path) -> None:
    trainer = getattr(trainers, kind)(marker=tmp_path / "died")
    result = study(trainer)
    assert (tmp_path / "died").exists()
    assert_same(result, expected(), trainer)


@extras
def test_a_trial_that_kills_its_workers_counts_as_worst(ray: Any, trainers: Any, tmp_path: Path) -> None:
    with closing(SqlStorage(tmp_path / "s.db")) as storage:
        result = study(trainers.Dying(), storage=storage, max_failures=2)
        assert result.tree[0, 1].value == inf
        (warning,) = result.warnings
        assert warning.startswith(
            "a worker was lost (ActorDiedError) while training (0, 1), 2 times; it counts"
        )
        again = study(trainers.Trainer(), storage=storage, resume=True, workers=1)
        assert rows_of(again) == rows_of(result)


@extras
def test_an_error_in_a_worker_stops_the_study_and_the_node_waits(
    ray: Any, trainers: Any, tmp_path: Path
) -> None:
    with closing(SqlStorage(tmp_path / "s.db")) as storage:
        with pytest.raises(TrainingError) as caught:
            study(trainers.Raising(), storage=storage)
        assert str(caught.value).startswith("ZeroDivisionError: mine, in a worker")
        assert "worker_trainers.py" in str(caught.value)
        assert (0, 1) in [each.path for each in storage.nodes("study") if each.status == "pending"]
        trainer = trainers.Trainer()
        assert_same(study(trainer, storage=storage, resume=True), expected(), trainer)


@extras
def test_a_trainer_that_cannot_be_received(ray: Any, trainers: Any) -> None:
    with pytest.raises(TrainingError, match="this trainer cannot be unpacked"):
        study(trainers.Unreceivable())


@extras
def test_models_that_workers_cannot_see(ray: Any, trainers: Any, tmp_path: Path) -> None:
    with (
        closing(SqlStorage(tmp_path / "s.db", checkpoints="memory://unseen")) as storage,
        pytest.raises(
            StorageError, match=r"models in memory://unseen cannot be seen here: keep them where all"
        ),
    ):
        study(trainers.Trainer(), storage=storage)


@extras
def test_models_that_are_lost_are_computed_again(ray: Any, trainers: Any, tmp_path: Path) -> None:
    trainer = trainers.Grouped()
    with closing(SqlStorage(tmp_path / "s.db")) as storage:
        study(trainer, workers=1, storage=storage, time_limit=1e-9)
        models = storage.checkpoints("study")
        assert models is not None
        models.clear()
        result = study(trainer, storage=storage, resume=True)
    assert_same(result, expected("Grouped"), trainer)
    assert any("computed again" in warning for warning in result.warnings)


@extras
def test_references_are_bounded_and_the_study_has_the_rest(
    ray: Any, trainers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixtree.engine.executors.ray.MEMORY_LIMIT", 1)  # one model
    trainer = trainers.Trainer()
    assert_same(study(trainer), expected(), trainer)


@extras
def test_as_many_workers_as_there_is_room(ray: Any, trainers: Any) -> None:
    trainer = as_trainer(trainers.Trainer())
    models = Models(trainer, None)
    runner = Runner(trainer, models, seed=4, init_seed=4)
    counts = []
    for text in ("ray", "ray?num_cpus=2", "ray?num_cpus=0.5", "ray?workers=7"):
        executor = RayExecutor(runner, models, Cluster.parse(text))
        counts.append(executor.workers)
        executor.close()
    assert counts == [2, 1, 4, 7]
