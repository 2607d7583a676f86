from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from mixtree.errors import InputError, SearchError
from mixtree.policies.peers.online import GroupDro, OnlineMixing
from mixtree.trainer import Evaluation


def test_probes_and_segments(world: Any) -> None:
    search = OnlineMixing(world.setting(600), rounds=4, decay=True)
    world.drive(search)
    spent: Counter[str] = Counter()
    for trial in world.trials:
        spent[trial.phase] += trial.steps
    assert spent == {"train": 180, "probe": 240, "decay": 180}
    assert [trial.phase for trial in world.trials] == ["train", *["probe"] * 3, "train"] + [
        *["probe"] * 3,
        "train",
    ] * 3 + ["decay"]
    # The returned model has the segments alone.
    assert {node.phase for node in search.tree.lineage(search.best().path)} == {"train", "decay"}
    probes = [trial for trial in world.trials if trial.phase == "probe"]
    assert np.array_equal([trial.mixture for trial in probes[:3]], np.eye(3))
    assert all(trial.steps == 20 for trial in probes)


def test_without_decay_every_step_is_full(world: Any) -> None:
    world.drive(OnlineMixing(world.setting(600)))
    assert {trial.lr_scale for trial in world.trials} == {1.0}
    assert sum(trial.steps for trial in world.trials) == 600


def test_the_update_is_an_exponentiated_gradient(world: Any) -> None:
    search = OnlineMixing(world.setting(600), rounds=2, rate=0.3, floor=0.0)
    (first,) = search.ask()
    assert first.mixture == pytest.approx([1 / 3] * 3)
    search.tell(first, Evaluation(1.0))
    for value, trial in zip([0.5, 0.7, float("nan")], search.ask(), strict=True):  # the last as the worst
        search.tell(trial, Evaluation(value))
    scores = np.array([-0.5, -0.7, -0.7])
    weights = np.exp(0.3 * (scores - scores.mean()) / scores.std())
    expected = (weights / weights.sum() + 1 / 3) / 2
    (segment,) = search.ask()
    assert segment.mixture == pytest.approx(expected)


def test_a_diverged_segment_ends_it(world: Any) -> None:
    search = OnlineMixing(world.setting(600), rounds=2)
    (first,) = search.ask()
    search.tell(first, Evaluation(1.0))
    for trial in search.ask():
        search.tell(trial, Evaluation(0.5))
    (segment,) = search.ask()
    search.tell(segment, Evaluation(float("inf")))
    assert search.ask() == []
    assert search.best().path == first.path


def test_group_dro_turns_to_the_source_that_is_fitted_worst(world: Any) -> None:
    """Two sources pull one way, the third another: uniform serves the third worst."""
    search = GroupDro(world.setting(2000))
    assert search.uses_predictions
    model = world.drive(search)
    x = world.data.validation.x
    ends = np.eye(3)

    def worst(point: Any) -> float:
        return max(float(np.mean((x @ (point - end)) ** 2)) for end in ends)

    # What matters is the last model's distance from each source's own optimum, in the metric of the rows.
    assert worst(model) < worst(np.full(3, 1 / 3))


def test_group_dro_without_predictions(world: Any) -> None:
    search = GroupDro(world.setting(600))
    (first,) = search.ask()
    search.tell(first, Evaluation(1.0))
    probes = search.ask()
    with pytest.raises(SearchError, match="predictions"):
        for trial in probes:
            search.tell(trial, Evaluation(0.5))


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"rate": 0.0}, {"floor": 1.0}])
def test_impossible_options(wrong: dict[str, Any], world: Any) -> None:
    with pytest.raises(InputError, match="online mixing"):
        OnlineMixing(world.setting(), **wrong)
