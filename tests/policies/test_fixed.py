from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mixtree.errors import InputError, SearchError, TrainingError
from mixtree.policies.fixed import Chain, Stage, fine_tune, fixed, genie, only, pooled, uniform, validation
from mixtree.search import Search
from mixtree.testing import check_search
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Segment, Trial


def drive(search: Chain, *values: float) -> list[Trial]:
    """All trials of a chain; the last value is repeated."""
    trials: list[Trial] = []
    while asked := search.ask():
        (trial,) = asked
        search.tell(trial, Evaluation(values[min(len(trials), len(values) - 1)]))
        trials.append(trial)
    return trials


@pytest.mark.parametrize(
    ("search", "mixture"),
    [
        (uniform(4, budget=10), [0.25] * 4),
        (pooled([10, 30], budget=10), [0.25, 0.75]),
        (pooled(np.array([5, 5]), budget=10), [0.5, 0.5]),
        (only(2, 3, budget=10), [0, 0, 1]),
        (validation(3, budget=10), [0, 0, 0, 1]),  # source K + 1: the target's own rows
        (genie([0.1, 0.2, 0.7], budget=10), [0.1, 0.2, 0.7]),
        (fixed([0.5, 0.5], budget=10), [0.5, 0.5]),
        (uniform(1, budget=10), [1.0]),
    ],
)
def test_the_mixture_of_each(search: Chain, mixture: list[float]) -> None:
    assert isinstance(search, Search)
    (trial,) = drive(search, 0.5)
    assert trial.mixture == pytest.approx(mixture)
    assert (trial.path, trial.steps, trial.lr_scale) == ((), 10, 1.0)
    assert search.best().path == ()
    assert search.spent == search.budget == 10


@given(st.integers(1, 10_000))
@example(199)
def test_decay_is_the_last_half_at_a_tenth(budget: int) -> None:
    search = uniform(3, budget=budget, decay=True, segments=1)
    trials = drive(search, 0.5)
    assert sum(trial.steps for trial in trials) == budget == search.spent
    assert [trial.lr_scale for trial in trials] == [1.0, 0.1][: len(trials)]
    if len(trials) == 2:
        assert trials[0].steps - trials[1].steps in (0, 1)
        assert trials[1].path[:-1] == trials[0].path
        assert np.array_equal(trials[0].mixture, trials[1].mixture)
        assert search.best().path == trials[1].path
        assert search.tree.spent == {"train": trials[0].steps, "decay": trials[1].steps}


@pytest.mark.parametrize(
    "make",
    [
        lambda: uniform(3, budget=100, decay=True),
        lambda: pooled([1, 2, 3], budget=100),
        lambda: only(0, 3, budget=1, decay=True),
        lambda: validation(3, budget=7, decay=True),
        lambda: genie([0.5, 0.5], budget=100, decay=True),
    ],
)
def test_baselines_keep_every_promise_of_a_search(make: Any) -> None:
    check_search(make, budget=make().budget)


def test_the_last_model_is_returned_even_if_it_is_worse() -> None:
    search = uniform(2, budget=10, decay=True)
    drive(search, 0.1, 0.9)
    assert search.best().value == 0.9
    assert search.rule == "last"


def test_a_stage_that_diverges_ends_the_chain() -> None:
    search = uniform(2, budget=10, decay=True)
    assert len(drive(search, 0.5, nan)) == 2
    assert search.best().path == ()
    assert search.needed([(), (0,)]) == {()}
    first = uniform(2, budget=10, decay=True)
    assert len(drive(first, nan)) == 1
    assert first.spent == 5
    with pytest.raises(TrainingError, match="every model diverged"):
        first.best()


def test_a_stage_that_diverges_is_left_out_whole_though_it_was_cut() -> None:
    alpha = np.array([0.5, 0.5])
    whole, cut = (Chain([Stage(alpha, 200), Stage(alpha, 200)], segments=count) for count in (1, 4))
    drive(whole, 0.5, nan)
    assert len(drive(cut, *[0.5] * 6, nan)) == 7
    assert sum(node.steps for node in cut.tree.lineage(cut.best().path)) == 200
    assert whole.best().steps == 200
    assert cut.needed(cut.tree) == {cut.best().path}  # its model is still there
    first = Chain([Stage(alpha, 200)], segments=4)
    drive(first, 0.5, 0.4, nan)
    assert first.best().path == (0,)  # there is nothing else


def stages_of(nodes: Any) -> dict[str, int]:
    """Steps by phase."""
    steps: dict[str, int] = {}
    for node in nodes:
        steps[node.phase] = steps.get(node.phase, 0) + node.steps
    return steps


@pytest.mark.parametrize("finished", [3, 6, 8])
def test_a_raised_chain_goes_on_from_its_longest_model_of_the_first_stage(finished: int) -> None:
    """400 steps are cut into eight segments: 4 before the decay."""
    before = uniform(2, budget=400, decay=True)
    trials = drive(before, 0.5)
    nodes = [before.tree[trial.path] for trial in trials[:finished]]
    after = uniform(2, budget=1000, decay=True)
    after.adopt(nodes)
    assert after.spent == 50 * finished
    asked = drive(after, 0.4)
    lineage = after.tree.lineage(after.best().path)
    lost = 50 * max(0, finished - 4)  # 4 of 8: so many are of the decay
    assert after.spent == 1000  # every step is paid for, the lost ones too
    assert stages_of(lineage) == {"train": 500 - lost, "decay": 500}
    assert asked[0].path[:-1] == trials[min(finished, 4) - 1].path
    assert not {trial.path for trial in asked} & {node.path for node in nodes}


def test_a_raised_chain_ends_after_models_that_all_diverged() -> None:
    chain = uniform(2, budget=100)
    chain.adopt([Node((), np.array([0.5, 0.5]), 50, inf, phase="train", segment=Segment((), 0, 100))])
    assert chain.ask() == []
    with pytest.raises(TrainingError, match="every model diverged"):
        chain.best()


def test_caps_on_weights_hold_over_all_stages_together() -> None:
    """Of 1,000 steps 20 may be on the target's rows: so many of the 100 that would tune."""
    caps = np.array([0.3, 1.0, 1.0, 0.02])
    tuned = fine_tune(3, budget=1000, segments=1).within(caps)
    first, last = drive(tuned, 0.5)
    assert (first.steps, last.steps) == (900, 20)
    assert first.mixture == pytest.approx([1 / 3] * 3 + [0])  # 300 steps are a third of 900
    decayed = uniform(2, budget=1000, decay=True, segments=1).within(np.array([0.1, 0.2, 1.0]))
    assert [(each.steps, each.mixture[0]) for each in drive(decayed, 0.5)] == [
        (150, pytest.approx(1 / 3))
    ] * 2


def test_only_the_last_model_is_needed() -> None:
    alpha = np.array([0.5, 0.5])
    search = Chain([Stage(alpha, 3), Stage(alpha, 0), Stage(alpha, 2), Stage(alpha, 1)], budget=20)
    for path, steps in (((), 3), ((0,), 2), ((0, 0), 1)):  # a stage without steps is left out
        (trial,) = search.ask()
        assert (trial.path, trial.steps) == (path, steps)
        search.tell(trial, Evaluation(0.5))
        assert search.needed(search.tree) == {path}
    assert search.ask() == []
    assert (search.spent, search.budget) == (6, 20)


def test_asking_before_telling() -> None:
    search = uniform(2, budget=10, decay=True)
    with pytest.raises(SearchError, match="nothing has been evaluated yet"):
        search.best()
    search.ask()
    with pytest.raises(SearchError, match="tell the outcome of 1 trials"):
        search.ask()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uniform(2, budget=0), "budget must be at least 1 SGD step; got 0"),
        (lambda: uniform(2, budget=2**70), "budget must be at most 1,000,000,000,000 SGD steps"),
        (lambda: uniform(2, budget=-7, decay=True), "budget must be at least 1 SGD step; got -7"),
        (lambda: uniform(2, budget=2.5), "budget must be a whole number"),
        (lambda: uniform(2, budget="many"), "budget must be a whole number"),
        (lambda: uniform(2, budget=None, decay=True), "budget must be a whole number"),
        (lambda: uniform(0, budget=10), "at least one source"),
        (lambda: fixed([0.5, 0.6], budget=10), "sum to 1; these sum to 1.1"),
        (lambda: fixed([1.5, -0.5], budget=10), "must not be negative"),
        (lambda: genie([0.5, nan], budget=10), "must be finite"),
        (lambda: genie(None, budget=10), "true mixture, which is not known here"),
        (lambda: only(3, 3, budget=10), "there is no source 3: they are numbered 0 … 2"),
        (lambda: only(-1, 3, budget=10), "there is no source -1"),
        (lambda: pooled([10, 0], budget=10), "at least 1, one per source"),
        (lambda: pooled([], budget=10), "one per source"),
        (lambda: pooled([10, nan], budget=10), "finite|row counts"),
        (lambda: Chain([Stage(np.array([1.0]), 30)], budget=20), "take 30 steps, more than the budget of 20"),
        (lambda: Chain([]), "budget must be at least 1"),
    ],
)
def test_bad_input(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
