import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.partition import PARTITIONS
from mixtree.planning.budget import (
    Pace,
    budget_for,
    diameters,
    plan,
    recommended_steps,
    theory_demand,
    widest,
)
from mixtree.policies.commit import then_commit
from mixtree.seeds import SPLIT, derive_seed
from mixtree.theory import diameter_l1
from mixtree.trainer import Evaluation
from mixtree.tree_search import TreeSearch


def grow(partition, sources, budget, steps, value, commit=0.5):
    """The real search on made-up values."""
    rule = PARTITIONS[partition]
    search = TreeSearch(rule.root(sources), rule.split, budget=budget, steps=steps, nu=0.0)
    search = then_commit(search, commit) if commit else search
    while trials := search.ask():
        for trial in trials:
            search.tell(trial, Evaluation(value(trial.path)))
    nodes = [node for node in search.tree.values() if node.phase != "commit"]
    best = search.best()
    seen = sum(node.steps for node in search.tree.lineage(best.path))
    return len(nodes), max(node.height for node in nodes), seen


@settings(max_examples=15, deadline=None)
@given(
    partition=st.sampled_from(["bisect", "halve", "delaunay"]),
    sources=st.integers(2, 5),
    budget=st.integers(20, 300),
    steps=st.integers(5, 12),
    commit=st.sampled_from([0.0, 0.25, 0.5]),
)
def test_nodes_depths_and_model_steps_are_those_of_the_real_search(partition, sources, budget, steps, commit):
    found = plan(sources, budget, steps=steps, commit=commit)
    mine = [each for each in found.purchases if (each.partition, each.steps) == (partition, steps)]
    # With all values equal and no optimism smaller heights go first; with lower values below, one path.
    even = grow(partition, sources, budget, steps, lambda path: 1.0, commit)
    deep = grow(partition, sources, budget, steps, lambda path: -float(len(path)), commit)
    if not mine:
        assert even[0] == 1
        return
    (each,) = mine
    assert each.nodes == even[0] == deep[0]
    assert each.depth == (even[1], deep[1])
    assert each.model_steps == (even[2], deep[2])


def test_leaves_are_the_nodes_without_children():
    each = plan(4, 3000, steps=50).purchases[0]
    assert (each.nodes, each.leaves, each.depth) == (29, 15, (4, 14))


def test_the_resolution_is_within_the_theorems_bound_and_delaunay_keeps_long_edges():
    found = plan(3, 60_000, steps=50)
    for each in found.purchases:
        if each.partition == "bisect":
            for height, width in zip(each.depth, each.diameter, strict=True):
                assert width <= diameter_l1(height, sources=3)
        if each.partition == "delaunay":
            assert each.diameter == pytest.approx((2.0, 2.0))


def test_diameters_of_two_sources_halve_at_every_height():
    rule = PARTITIONS["bisect"]
    assert diameters(rule.split, rule.root(2), {0, 1, 5}) == pytest.approx({0: 2.0, 1: 1.0, 5: 2.0 / 32})


@pytest.mark.parametrize("sources", [2, 3, 4, 5])
@pytest.mark.parametrize("partition", ["bisect", "halve", "delaunay"])
def test_the_widest_cell_of_an_even_tree_is_that_of_all_its_cells(partition, sources):
    rule = PARTITIONS[partition]
    level, largest = [((), rule.root(sources))], {}
    for height in range(10 if partition != "delaunay" else 5):
        largest[height] = max(cell.diameter(1) for _, cell in level)
        level = [
            ((*path, index), child)
            for path, cell in level
            for index, child in enumerate(rule.split(cell, derive_seed(3, path, SPLIT)))
        ]
    assert widest(rule.split, rule.root(sources), set(largest), seed=3) == pytest.approx(largest)
    if partition == "delaunay" and sources > 2:  # what plan takes for granted
        assert set(largest.values()) == {2.0}


def test_cells_too_small_to_cut_end_the_search_for_the_widest(monkeypatch):
    monkeypatch.setattr("mixtree.planning.budget._FOLLOWED", 1)
    rule = PARTITIONS["bisect"]
    assert 0 < widest(rule.split, rule.root(2), {2000})[2000] < 1e-15


def test_a_commit_share_that_no_policy_has_is_said():
    assert any("share=0.3" in note for note in plan(3, 3000, commit=0.3).notes)
    assert not any("share=" in note for note in plan(3, 3000).notes)


def test_heights_beyond_the_walk_get_an_upper_bound():
    rule = PARTITIONS["halve"]
    found = diameters(rule.split, rule.root(40), {400, 10_000})
    assert found[10_000] == found[400] < 2.0


def test_the_recommended_steps_buy_the_wanted_nodes_and_no_longer_ones_do():
    found = plan(6, 5000)
    at = {each.steps: each for each in found.purchases if each.partition == "bisect"}
    steps = found.recommendation.steps
    assert at[steps].nodes >= 21
    assert plan(6, 5000, steps=steps + 1).notes[0].startswith(f"you gave λ = {steps + 1}")
    longer = [each for each in plan(6, 5000, steps=steps + 1).purchases if each.steps == steps + 1]
    assert longer[0].nodes < 21
    assert found.recommendation.policy == "mixmatch-bisect+commit"


def test_a_larger_budget_buys_more_nodes_and_longer_ones():
    small, large = recommended_steps(3, 10_000), recommended_steps(3, 1_000_000)
    assert large > 3 * small
    assert 500_000 // large > 3 * (5_000 // small)


def test_no_commit_recommends_the_plain_search():
    found = plan(3, 3000, commit=0.0).recommendation
    assert (found.policy, found.commit) == ("mixmatch-bisect", 0.0)
    assert any("without a commit" in reason for reason in found.reasons)


def test_maximum_weights_leave_halve_alone():
    found = plan(3, 3000, maximum=[0.5, 1.0, 1.0])
    assert {each.partition for each in found.purchases} == {"halve"}
    assert found.recommendation.policy == "mixmatch-ch+commit"
    assert all(each.diameter[0] <= 2.0 for each in found.purchases)
    assert "left out" in found.notes[0]


def test_minimum_weights_make_the_cells_smaller():
    free, bound = plan(3, 3000), plan(3, 3000, minimum=[0.2, 0.2, 0.2])
    for one, two in zip(free.purchases, bound.purchases, strict=True):
        if one.partition != "halve":  # its diameters are upper bounds
            assert two.diameter == pytest.approx((0.4 * one.diameter[0], 0.4 * one.diameter[1]))


@pytest.mark.parametrize(("sources", "budget"), [(1, 1000), (3, 5), (3, 1)])
def test_where_nothing_can_be_searched_one_model_gets_it_all(sources, budget):
    found = plan(sources, budget)
    assert found.purchases == ()
    assert (found.recommendation.partition, found.recommendation.policy) == ("none", "uniform")
    assert found.recommendation.steps == budget


def test_a_single_mixture_is_no_search():
    found = plan(3, 1000, maximum=[0.2, 0.3, 0.5])
    assert found.recommendation.partition == "none"


def test_many_sources_get_a_caution():
    assert any(reason.startswith("caution") for reason in plan(30, 3000).recommendation.reasons)


def test_time_memory_and_disk_follow_the_pace():
    pace = Pace(step_seconds=0.01, node_seconds=0.5, model_bytes=1000, step_bytes=2.0, process_bytes=10**6)
    found = plan(3, 3000, steps=50, pace=pace)
    each = found.purchases[0]
    assert each.seconds == pytest.approx(3000 * 0.01 + (29 + 1) * 0.5)
    leaves = 15 * (1000 + 2 * 50 * 5)
    assert each.disk == leaves + 1000 + 2 * each.model_steps[0]
    assert each.memory == 10**6 + each.disk
    assert any("grows with every step" in note for note in found.notes)
    assert "about 30 s (--reference none" in found.notes[-2]
    slower = plan(3, 3000, steps=50, pace=replace(pace, step_growth=1e-4)).purchases[0]
    assert slower.seconds == pytest.approx(each.seconds + 3000 * 1e-4 * each.model_steps[0] / 2)
    unknown = plan(3, 3000, pace=replace(pace, process_bytes=None)).purchases[0]
    assert unknown.memory is None


def test_models_beyond_the_memory_limit_go_to_disk():
    pace = Pace(step_seconds=0.01, node_seconds=0.0, model_bytes=10**9, process_bytes=0)
    each = plan(3, 3000, pace=pace).purchases[0]
    assert each.memory == 256 * 2**20 < each.disk


@pytest.mark.parametrize("steps", [None, 20])
def test_the_budget_for_a_time_takes_that_time(steps):
    pace = Pace(step_seconds=0.002, node_seconds=0.05, model_bytes=10)
    budget = budget_for(60.0, 4, pace, steps=steps)
    found = plan(4, budget, steps=steps, pace=pace)
    wanted = steps or found.recommendation.steps
    (each,) = [row for row in found.purchases if row.partition == "bisect" and row.steps == wanted]
    assert each.seconds <= 60.0
    assert each.seconds > 55.0


def test_too_little_time_is_refused():
    pace = Pace(step_seconds=1.0, node_seconds=1.0, model_bytes=10)
    with pytest.raises(InputError, match="too short"):
        budget_for(1.0, 3, pace)
    with pytest.raises(InputError, match="too short"):
        budget_for(30.0, 3, pace, steps=50)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="above 0"):
            budget_for(bad, 3, pace)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((0, 100), {}, "number of sources"),
        ((2.5, 100), {}, "number of sources"),
        ((100_000, 100), {}, "up to 200 sources"),
        ((3, 0), {}, "budget"),
        ((3, 10.5), {}, "budget"),
        ((3, 100), {"steps": 0}, "steps per node"),
        ((3, 100), {"steps": 101}, "smaller than one node"),
        ((3, 100), {"commit": 1.0}, "commit share"),
        ((3, 100), {"commit": -0.1}, "commit share"),
        ((3, 100), {"commit": math.nan}, "commit share"),
        ((3, 100), {"minimum": [0.5, 0.5, 0.5]}, "minimum weights sum"),
    ],
)
def test_nonsense_is_refused(arguments, options, words):
    with pytest.raises(InputError, match=words):
        plan(*arguments, **options)


def test_steps_that_cannot_be_searched_with_are_said():
    found = plan(3, 100, steps=60)
    assert any("λ = 60 is not shown" in note for note in found.notes)


def test_the_theory_is_infeasible_on_linear_data_and_says_so():
    data = synthetic(rows=1200, features=4, seed=0).sources
    found = theory_demand(3, 10_000, data=data, convex=True)
    assert found.feasible is False
    assert found.needed > 1e6
    assert "infeasible" in found.sentence and "κ" in found.sentence


def test_the_theory_without_a_convex_loss_is_the_best_case():
    data = synthetic(rows=50, features=4, seed=0).sources
    assert theory_demand(3, 10_000, data=data) == theory_demand(3, 10_000)
    assert theory_demand(3, 10**12).feasible is None
    assert theory_demand(1, 100).needed is None
    assert theory_demand(3, 2).feasible is False


def test_too_many_weights_are_not_estimated():
    data = synthetic(rows=20, features=1500, seed=0).sources
    assert "too many" in theory_demand(3, 10_000, data=data, convex=True).sentence


def test_a_plan_is_plain_data():
    found = replace(plan(3, 3000), theory=theory_demand(3, 3000))
    text = json.dumps(found.as_dict(), allow_nan=False)
    assert json.loads(text)["recommendation"]["steps"] == 115
    endless = replace(found, theory=replace(found.theory, needed=np.inf))
    assert json.loads(json.dumps(endless.as_dict(), allow_nan=False))["theory"]["needed"] is None
