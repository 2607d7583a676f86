"""The same search at smaller steps, and how a divergence is told from a target that is unlike the sources."""

from dataclasses import replace

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.policies.fixed import fixed
from mixtree.policies.retries import AtRate, blew_up, smaller_rates
from mixtree.policies.setting import AutoOptions
from mixtree.trainers.reference import ReferenceTrainer


def test_smaller_rates_are_those_of_auto():
    assert smaller_rates(AutoOptions(), than=0.3) == [0.09, 0.009, 0.0009]
    assert smaller_rates(AutoOptions(rates=(1.0,))) == [0.1, 0.01]  # a step size that the user gave
    assert smaller_rates(AutoOptions(rates=(1.0,), further_rates=0)) == []


@pytest.mark.parametrize("classes", [0, 2])
def test_the_same_stages_are_trained_at_the_rate(classes):
    problem = synthetic(rows=60, validation=20, test=10, classes=classes)
    trainer = ReferenceTrainer(problem.sources, lr=0.1)
    slow = run(AtRate(fixed(np.ones(3) / 3, budget=20, decay=True), 0.3), trainer)
    assert [node.lr_scale for node in slow.tree.values()] == pytest.approx([0.3, 0.03])
    tenth = run(fixed(np.ones(3) / 3, budget=20, decay=True), ReferenceTrainer(problem.sources, lr=0.03))
    assert slow.value == pytest.approx(tenth.value, rel=1e-9) and slow.spent == tenth.spent


def test_a_target_unlike_the_sources_is_no_divergence():
    problem = synthetic(rows=200, validation=50, test=10, classes=0)
    far = replace(problem.sources.validation, y=-20.0 * problem.sources.validation.y)
    sources, mixture = replace(problem.sources, validation=far), np.ones(3) / 3
    found = {}
    for lr in (0.1, 10.0):
        trainer = ReferenceTrainer(sources, lr=lr)
        state = run(fixed(mixture, budget=40), trainer).state
        found[lr] = blew_up(trainer, state, mixture, sources, init_seed=0)
    assert found == {0.1: False, 10.0: True}
    trainer = ReferenceTrainer(sources, lr=0.1)
    tuned = run(fixed([1.0, 0.0, 0.0], budget=40), trainer).state
    assert not blew_up(trainer, tuned, np.array([0.0, 0.0, 0.0, 1.0]), problem.sources, init_seed=0)
