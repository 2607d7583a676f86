from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree.bounds import Optimism
from mixtree.partition import simplex_root
from mixtree.tree import Frontier, Node, Path, Tree


def node(path: Path, *, steps: int = 10, value: float = 1.0, phase: str = "search") -> Node:
    return Node(path, np.array([0.5, 0.5]), steps, value, phase=phase)


CELL = simplex_root(2)


def popped(frontier: Frontier) -> Path | None:
    leaf = frontier.pop()
    return leaf and leaf[0]


def test_a_node_knows_its_height_and_whether_it_diverged() -> None:
    assert node((0, 1, 1)).height == 3
    assert not node(()).diverged
    assert all(node((), value=value).diverged for value in (np.inf, -np.inf, np.nan))


def test_a_tree_keeps_the_order_of_evaluation_and_counts_steps_by_phase() -> None:
    tree = Tree()
    assert tree.depth == 0
    for each in (
        node((), steps=5, phase="root"),
        node((1,)),
        node((0,)),
        node((1, 0)),
        node((1, 2), phase="commit", steps=7),
    ):
        tree.add(each)
    assert list(tree) == [(), (1,), (0,), (1, 0), (1, 2)]
    assert len(tree) == 5
    assert tree[(1, 0)].height == 2
    assert (0, 0) not in tree
    assert tree.spent == {"root": 5, "search": 30, "commit": 7}
    assert tree.depth == 2
    with pytest.raises(KeyError):
        tree[(0, 0)]


def test_a_lineage_is_what_the_model_was_trained_on() -> None:
    tree = Tree()
    for path in ((), (0,), (1,), (0, 1), (0, 1, 0)):
        tree.add(node(path))
    assert [each.path for each in tree.lineage((0, 1, 0))] == [(), (0,), (0, 1), (0, 1, 0)]
    headless = Tree()  # a root that was never trained
    headless.add(node((1,)))
    assert [each.path for each in headless.lineage((1,))] == [(1,)]


def test_steps_behind_a_model_are_those_of_its_lineage() -> None:
    for root in (True, False):  # one that was trained, or never
        tree = Tree()
        paths = ((), (0,), (1,), (0, 1), (0, 1, 0), (1, 0))[not root :]
        for number, path in enumerate((*paths[3:], *paths[:3])):  # an earlier run's models come first
            tree.add(replace(node(path), steps=10**number))
        steps = tree.steps_behind
        assert steps == {path: sum(each.steps for each in tree.lineage(path)) for path in tree}


def test_leaves_leave_in_the_order_of_their_bounds() -> None:
    frontier = Frontier(Optimism(0.5, 0.5))
    # c·ν = 1 and ρ = 1/2: the bonus is 1/2 at height 1 and 1/4 at height 2
    for path, value in (((0,), 0.8), ((1,), 0.7), ((0, 0), 0.4), ((0, 1), 0.5)):
        frontier.push(path, value, CELL)
    assert len(frontier.paths) == 4
    assert frontier.heights() == [1, 2]
    assert [popped(frontier) for _ in range(5)] == [(0, 0), (1,), (0, 1), (0,), None]
    assert not frontier.paths


def test_ties_go_to_the_smaller_height_then_to_the_older_leaf() -> None:
    frontier = Frontier(Optimism(0.5, 0.5))
    for path, value in (((0, 0), 0.5), ((1,), 0.75), ((0,), 0.75), ((0, 1), 0.5)):  # every bound is 0.25
        frontier.push(path, value, CELL)
    assert [popped(frontier) for _ in range(4)] == [(1,), (0,), (0, 0), (0, 1)]


def test_a_height_can_be_given_up() -> None:
    frontier = Frontier(Optimism(0.5, 0.5))
    for path, value in (((0,), 0.1), ((1,), 0.2), ((0, 0), 5.0)):
        frontier.push(path, value, CELL)
    assert sorted(frontier.drop(1)) == [(0,), (1,)]
    assert frontier.drop(1) == []
    assert (0,) not in frontier.paths
    assert frontier.heights() == [2]
    assert popped(frontier) == (0, 0)
    assert popped(frontier) is None


LEAVES = st.lists(st.tuples(st.integers(0, 4), st.integers(-8, 8)), min_size=1, max_size=40)


@given(LEAVES, st.sampled_from([0.0, 0.5, 2.0]), st.sampled_from([1.0, 2.0]))
def test_the_heaps_agree_with_sorting_everything(
    leaves: list[tuple[int, int]], nu: float, times: float
) -> None:
    optimism = Optimism(nu, 0.5, optimism=times)
    frontier, rows = Frontier(Optimism(1.0, 0.5)), []
    for created, (height, eighths) in enumerate(leaves):
        path = (created, *[0] * height)
        frontier.push(path, eighths / 8, CELL)
        rows.append((optimism.bound(eighths / 8, len(path)), len(path), created, path))
    frontier.optimism = optimism
    assert [popped(frontier) for _ in rows] == [row[-1] for row in sorted(rows)]
