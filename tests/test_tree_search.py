"""By-hand traces of the paper's Algorithm 1, on objectives that are written out as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixtree.bounds import default_rho
from mixtree.errors import InputError, MixtreeError, SearchError, TrainingError
from mixtree.partition import PARTITIONS
from mixtree.policies.commit import then_commit
from mixtree.schedules import linear
from mixtree.search import Search
from mixtree.trainer import Evaluation
from mixtree.tree import Path, Trial
from mixtree.tree_search import TreeSearch

Values = Mapping[Path, float] | Callable[[Trial], float]
Rounds = list[list[Path]]

# In most traces c·ν = 1 and ρ = 1/2, so that the bonus is 1, 1/2, 1/4, 1/8 … at heights 0, 1, 2, 3 …
HALVES: dict[str, Any] = {"nu": 0.5, "rho": 0.5, "optimism": 2.0}


def tree_search(sources: int, name: str = "bisect", *, commit: float = 0.0, **options: Any) -> Any:
    partitioning = PARTITIONS[name]
    lr = options.pop("commit_lr", 0.1)
    search = TreeSearch(partitioning.root(sources), partitioning.split, **{"steps": 10, **HALVES, **options})
    return then_commit(search, commit, lr) if commit else search


def drive(search: Search, values: Values, *, order: Callable[[list[Trial]], list[Trial]] = list) -> Rounds:
    """Run a search on given values and return the paths of every round."""
    rounds: Rounds = []
    while trials := search.ask():
        rounds.append([trial.path for trial in trials])
        for trial in order(trials):
            value = values(trial) if callable(values) else values[trial.path]
            search.tell(trial, Evaluation(value, 0.1))
    return rounds


# ------------------------------------------------------------------------------ traces, K = 2

PLAIN = {
    (): 1.0,
    (0,): 0.6,  # b = 0.1: first
    (1,): 0.8,  # b = 0.3: third
    (0, 0): 0.5,  # b = 0.25: second
    (0, 1): 0.7,  # b = 0.45
    (0, 0, 0): 0.9,
    (0, 0, 1): 0.8,
    (1, 0): 0.3,
    (1, 1): 0.35,
}


def test_trace_of_two_sources() -> None:
    search = tree_search(2, budget=90)
    assert drive(search, PLAIN) == [
        [()],
        [(0,), (1,)],
        [(0, 0), (0, 1)],
        [(0, 0, 0), (0, 0, 1)],
        [(1, 0), (1, 1)],
    ]
    assert search.expanded == [(), (0,), (0, 0), (1,)]
    assert search.spent == 90 == sum(node.steps for node in search.tree.values())
    assert search.tree.spent == {"root": 10, "search": 80}
    assert {path: node.value for path, node in search.tree.items()} == PLAIN
    mixtures = {path: node.mixture.tolist() for path, node in search.tree.items()}
    assert mixtures == {
        (): [0.5, 0.5],
        (0,): [0.25, 0.75],
        (1,): [0.75, 0.25],
        (0, 0): [0.125, 0.875],
        (0, 1): [0.375, 0.625],
        (0, 0, 0): [0.0625, 0.9375],
        (0, 0, 1): [0.1875, 0.8125],
        (1, 0): [0.625, 0.375],
        (1, 1): [0.875, 0.125],
    }


@pytest.mark.parametrize(
    ("returns", "expected"),
    [
        ("deepest", (0, 0, 1)),  # 0.8 is the smaller of the two at height 3
        # value + ν·ρ^h: 1.5, 0.6 + 0.25, 0.3 + 0.125, 0.8 + 0.0625
        ("best", (1, 0)),
    ],
)
def test_both_return_rules(returns: Any, expected: Path) -> None:
    search = tree_search(2, budget=90, returns=returns)
    drive(search, PLAIN)
    assert search.best().path == expected
    assert search.rule == returns


def test_the_best_rule_prefers_depth_at_equal_values() -> None:
    # value + ν·ρ^h with ν = 1/2: 0.5 + 1/2 at the root, 0.5 + 1/4 at height 1; 0.7 + 1/4 is beaten by it.
    values = {(): 0.5, (0,): 0.7, (1,): 0.5}
    search = tree_search(2, budget=30, returns="best")
    drive(search, values)
    assert search.best().path == (1,)


def test_the_deepest_rule_takes_the_older_of_two_equals() -> None:
    search = tree_search(2, budget=30)
    drive(search, {(): 0.1, (0,): 0.5, (1,): 0.5})
    assert search.best().path == (0,)


def test_no_optimism_is_best_first() -> None:
    values = {(): 1.0, (0,): 0.6, (1,): 0.8, (0, 0): 0.5, (0, 1): 0.7, (0, 0, 0): 0.65, (0, 0, 1): 0.9}
    search = tree_search(2, budget=90, nu=0.0)
    drive(search, {**values, (0, 0, 0, 0): 1.0, (0, 0, 0, 1): 1.0})
    assert search.expanded == [(), (0,), (0, 0), (0, 0, 0)]


def test_much_optimism_is_breadth_first() -> None:
    search = tree_search(2, budget=10 + 7 * 20, nu=50.0)
    drive(search, lambda trial: float(trial.mixture[0]))
    assert search.expanded == [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    ("optimism", "expected"),
    [
        # c = 2: (1,) has 0.65 − 1/2 = 0.15, (0, 0) has 0.5 − 1/4 = 0.25
        (2.0, [(), (0,), (1,)]),
        # c = 1: (1,) has 0.65 − 1/4 = 0.4, (0, 0) has 0.5 − 1/8 = 0.375
        (1.0, [(), (0,), (0, 0)]),
    ],
)
def test_the_papers_c_and_the_authors(optimism: float, expected: list[Path]) -> None:
    values = {(): 1.0, (0,): 0.6, (1,): 0.65, (0, 0): 0.5, (0, 1): 0.9}
    search = tree_search(2, budget=70, optimism=optimism)
    drive(search, lambda trial: values.get(trial.path, 2.0))
    assert search.expanded == expected


def test_ties_take_the_smaller_height_then_the_older_leaf() -> None:
    # (1,): 3/4 − 1/2 = 1/4. Its rival (0, 0): 1/2 − 1/4 = 1/4: the smaller height goes first.
    # Then (0, 0), (0, 1), (1, 1) are equal, in the order of their creation; (1, 0) is worse.
    values = {(): 1.0, (0,): 0.5, (1,): 0.75, (0, 0): 0.5, (0, 1): 0.5, (1, 0): 0.625, (1, 1): 0.5}
    search = tree_search(2, budget=10 + 6 * 20)
    drive(search, lambda trial: values.get(trial.path, 4.0))
    assert search.expanded == [(), (0,), (1,), (0, 0), (0, 1), (1, 1)]


def test_a_flat_objective_is_breadth_first_in_the_order_of_creation() -> None:
    search = tree_search(2, budget=10 + 7 * 20)
    drive(search, lambda trial: 0.5)
    assert search.expanded == [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]


def test_nu_auto_is_the_spread_of_the_values_so_far() -> None:
    # With ρ = 1/2 and c = 2 the bonus at heights 1, 2, 3 is ν, ν/2, ν/4.
    values = {
        (): 1.0,
        (0,): 0.6,  # ν = 0.4 now: b = 0.2
        (1,): 0.8,  # b = 0.4
        (0, 0): 0.7,  # b = 0.5: after (1,), though its value is smaller
        (0, 1): 0.9,
        (1, 0): 3.0,  # ν = 2.4 from here on
        (1, 1): 0.75,  # b = −0.45
        (0, 0, 0): 0.64,  # b = 0.04: after (1, 1); with the old ν it would be 0.54 against 0.55
        (0, 0, 1): 0.66,
        (1, 1, 0): 0.9,
        (1, 1, 1): 0.9,
    }
    search = tree_search(2, budget=110, nu="auto")
    drive(search, values)
    assert search.expanded == [(), (0,), (1,), (0, 0), (1, 1)]
    assert search.nu == pytest.approx(2.4)


def test_nu_auto_ignores_diverged_nodes() -> None:
    search = tree_search(2, budget=30, nu="auto")
    assert search.nu == 0.0
    drive(search, {(): 1.0, (0,): inf, (1,): 0.75})
    assert search.nu == 0.25


def test_the_default_constants_are_the_papers() -> None:
    # (1,) − bonus against (0, 0) − bonus, with ν = 0.5, c = 2, ρ = √3/2 at K = 2: bonuses 0.866 and 0.75.
    partitioning = PARTITIONS["bisect"]
    for gap, expected in ((0.11, (1,)), (0.12, (0, 0))):
        search = TreeSearch(partitioning.root(2), partitioning.split, budget=70, steps=10)
        table = {(): 1.0, (0,): 0.5, (1,): 0.5 + gap, (0, 0): 0.5, (0, 1): 0.9}
        drive(search, lambda trial, table=table: table.get(trial.path, 2.0))  # type: ignore[misc]
        assert search.expanded == [(), (0,), expected]
        assert search.rule == "deepest"


# ------------------------------------------------------------------------------ traces, K = 3


def test_trace_of_three_sources_with_bisect() -> None:
    goal = np.array([2 / 3, 1 / 6, 1 / 6])
    # The bonus is 1/2, 1/4, 1/8, 1/16 at heights 0, 1, 2, 3.
    search = tree_search(3, budget=75, nu=0.25)
    drive(search, lambda trial: float(np.abs(trial.mixture - goal).sum()))
    assert search.expanded == [(), (1,), (1, 1)]
    expected = {
        (): ([1 / 3, 1 / 3, 1 / 3], 2 / 3),
        (0,): ([1 / 6, 1 / 2, 1 / 3], 1),  # b = 3/4; edge (0, 1) was cut
        (1,): ([1 / 2, 1 / 6, 1 / 3], 1 / 3),  # b = 1/12
        (1, 0): ([1 / 3, 1 / 6, 1 / 2], 2 / 3),  # b = 13/24; edge (0, 2) was cut
        (1, 1): ([2 / 3, 1 / 6, 1 / 6], 0),  # b = −1/8
        (1, 1, 0): ([7 / 12, 1 / 4, 1 / 6], 1 / 6),  # all edges are equal again: (0, 1) was cut
        (1, 1, 1): ([3 / 4, 1 / 12, 1 / 6], 1 / 6),
    }
    assert list(search.tree) == list(expected)
    for path, (mixture, value) in expected.items():
        assert search.tree[path].mixture == pytest.approx(mixture)
        assert search.tree[path].value == pytest.approx(value)
    assert (search.spent, search.budget) == (70, 75)


def test_trace_of_three_sources_with_delaunay() -> None:
    values = {
        (): 1.0,
        (0,): 0.5,  # b = 0
        (1,): 0.3,  # b = −0.2: first
        (2,): 0.4,  # b = −0.1: second
        (1, 0): 0.6,
        (1, 1): 0.2,  # b = −0.05: third
        (1, 2): 0.5,
        (2, 0): 0.9,
        (2, 1): 0.9,
        (2, 2): 0.9,
        (1, 1, 0): 0.21,
        (1, 1, 1): 0.22,
        (1, 1, 2): 0.23,
    }
    search = tree_search(3, "delaunay", budget=10 + 4 * 30)
    assert drive(search, values) == [
        [()],
        [(0,), (1,), (2,)],
        [(1, 0), (1, 1), (1, 2)],
        [(2, 0), (2, 1), (2, 2)],
        [(1, 1, 0), (1, 1, 1), (1, 1, 2)],
    ]
    assert search.tree[(1,)].mixture == pytest.approx([4 / 9, 1 / 9, 4 / 9])
    assert search.tree[(1, 0)].mixture == pytest.approx([7 / 27, 4 / 27, 16 / 27])
    assert search.best().path == (1, 1, 0)


# ------------------------------------------------------------------------ the budget is hard


def test_an_expansion_that_does_not_fit_is_not_begun() -> None:
    search = tree_search(2, budget=69)
    drive(search, PLAIN)
    assert search.expanded == [(), (0,)]
    assert (search.spent, search.budget) == (50, 69)
    assert all(node.steps == 10 for node in search.tree.values())


def test_an_exact_fit_is_begun() -> None:
    search = tree_search(2, budget=70)
    drive(search, PLAIN)
    assert search.expanded == [(), (0,), (0, 0)]
    assert search.spent == 70


def test_the_next_leaf_that_fits_is_expanded() -> None:
    # λ = 10, 20, 30, 40: (), (0,) cost 10 + 40 + 60 = 110. Then (0, 0) is best but costs 80 of the 65 left;
    # (1,) costs 60.
    values = {(): 1.0, (0,): 0.5, (1,): 0.9, (0, 0): 0.1, (0, 1): 0.2, (1, 0): 0.0, (1, 1): 0.3}
    search = tree_search(2, budget=175, steps=linear(10))
    drive(search, values)
    assert search.expanded == [(), (0,), (1,)]
    assert search.spent == 170
    assert [node.steps for node in search.tree.values()] == [10, 20, 20, 30, 30, 30, 30]


def test_the_next_leaf_that_fits_where_cells_have_many_children() -> None:
    # λ = 10, 20, 30, 40, three children: 10 + 60 + 90 = 160. (0, 0) would cost 120 of the 100 left, (1,) 90.
    values = {(): 1.0, (0,): 0.5, (1,): 0.8, (2,): 0.9, (0, 0): 0.1, (0, 1): 0.2, (0, 2): 0.2}
    search = tree_search(3, "delaunay", budget=260, steps=linear(10))
    drive(search, lambda trial: values.get(trial.path, 1.0))
    assert search.expanded == [(), (0,), (1,)]
    assert search.spent == 250


def test_the_next_leaf_that_fits_may_be_deeper() -> None:
    # λ = 10, 10, 4, 2 …: (), (0,) cost 10 + 20 + 8 = 38. (1,) is best but costs 8 of the 5 left, (0, 0) 4.
    values = {(): 1.0, (0,): 0.5, (1,): 0.6, (0, 0): 0.9, (0, 1): 1.0}
    search = tree_search(2, budget=43, steps=lambda height: {0: 10, 1: 10, 2: 4}.get(height, 2))
    drive(search, lambda trial: values.get(trial.path, 1.0))
    assert search.expanded == [(), (0,), (0, 0)]
    assert search.spent == 42


@pytest.mark.parametrize(
    ("train_root", "budget", "first"),
    [
        (True, 29, [((), 29)]),  # root + one expansion cost 30
        (True, 1, [((), 1)]),
        (True, 30, [((), 10)]),
        (False, 19, [((), 19)]),  # one expansion costs 20
        (False, 20, [((0,), 10), ((1,), 10)]),
    ],
)
def test_a_budget_below_one_expansion_trains_the_root(
    train_root: bool, budget: int, first: list[tuple[Path, int]]
) -> None:
    search = tree_search(2, budget=budget, train_root=train_root)
    trials = search.ask()
    assert [(trial.path, trial.steps) for trial in trials] == first
    for trial in trials:
        search.tell(trial, Evaluation(0.5))
    rest = drive(search, lambda trial: 0.5)
    assert search.spent == budget
    if first[0][1] == budget:
        assert rest == []
        assert search.expanded == []
        assert search.best().path == ()
        assert search.tree.spent == {"root": budget}


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize("train_root", [True, False])
def test_one_source_gets_all_the_budget(name: str, train_root: bool) -> None:
    search = tree_search(1, name, budget=123, train_root=train_root)
    assert drive(search, lambda trial: 0.5) == [[()]]
    assert search.best().mixture.tolist() == [1.0]
    assert search.best().steps == search.spent == 123


@pytest.mark.parametrize("budget", [0, -1, -100, 2.5, True, None, "many", nan])
def test_what_is_no_budget(budget: Any) -> None:
    with pytest.raises(InputError, match="budget must be"):
        tree_search(2, budget=budget)


def test_a_root_that_is_not_trained() -> None:
    search = tree_search(2, budget=80, train_root=False)
    assert drive(search, PLAIN) == [[(0,), (1,)], [(0, 0), (0, 1)], [(0, 0, 0), (0, 0, 1)], [(1, 0), (1, 1)]]
    assert search.expanded == [(), (0,), (0, 0), (1,)]
    assert () not in search.tree
    assert search.tree.spent == {"search": 80}


def test_a_final_cell_is_never_expanded() -> None:
    # The best leaf (0,) has no children: the search takes the next one.
    bisect, root = PARTITIONS["bisect"].split, PARTITIONS["bisect"].root(2)

    def stubborn(cell: Any, seed: int) -> Any:
        return () if cell.representative[0] == 0.25 else bisect(cell, seed)

    search = TreeSearch(root, stubborn, budget=50, steps=10, **HALVES)
    drive(search, lambda trial: PLAIN[trial.path])
    assert search.expanded == [(), (1,)]
    alone = TreeSearch(root, lambda cell, seed: (), budget=50, steps=10)
    assert drive(alone, lambda trial: 0.5) == [[()]]
    assert alone.spent == 50


# ------------------------------------------------------------------------------- divergence


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_diverged_node_is_never_expanded(bad: float) -> None:
    values = {(): 1.0, (0,): bad, (1,): 0.9, (1, 0): 0.8, (1, 1): bad, (1, 0, 0): 0.7, (1, 0, 1): 0.7}
    search = tree_search(2, budget=1000)
    drive(search, lambda trial: values.get(trial.path, bad))
    assert search.expanded == [(), (1,), (1, 0), (1, 0, 0), (1, 0, 1)]
    assert [path for path, node in search.tree.items() if node.diverged] == [
        (0,),
        (1, 1),
        (1, 0, 0, 0),
        (1, 0, 0, 1),
        (1, 0, 1, 0),
        (1, 0, 1, 1),
    ]
    assert all(node.value == inf for node in search.tree.values() if node.diverged)
    assert search.spent == 110  # what nothing can use stays unspent
    assert search.best().path == (1, 0, 0)  # the greatest height with a model that works


@pytest.mark.parametrize("train_root", [True, False])
def test_if_all_diverge_the_search_says_so(train_root: bool) -> None:
    search = tree_search(2, budget=100, train_root=train_root, commit=0.5)
    drive(search, lambda trial: nan)
    with pytest.raises(TrainingError, match="every model diverged.*smaller step size"):
        search.best()


def test_only_the_root_works() -> None:
    search = tree_search(2, budget=100)
    drive(search, lambda trial: nan if trial.path else 0.5)
    assert search.best().path == ()
    assert search.spent == 30


# ----------------------------------------------------------------------------------- commit


def test_commit_spends_all_the_rest_at_a_tenth_of_the_step_size() -> None:
    search = tree_search(2, budget=115, commit=0.5)  # the search has 57 steps and uses 50
    rounds = drive(search, lambda trial: PLAIN.get(trial.path, 0.95))
    commit = search.tree[rounds[-1][0]]
    assert rounds[:-1] == [[()], [(0,), (1,)], [(0, 0), (0, 1)]]
    assert search.best() is commit
    assert commit.path[:-1] == (0, 0)  # continues the deepest rule's node …
    assert commit.path[-1] not in (0, 1)  # … beside the children that its cell could have
    assert np.array_equal(commit.mixture, search.tree[(0, 0)].mixture)
    assert (commit.steps, commit.lr_scale, commit.phase) == (65, 0.1, "commit")
    assert search.spent == search.budget == 115
    assert search.tree.spent == {"root": 10, "search": 40, "commit": 65}
    assert search.rule == "commit of deepest"
    assert all(node.lr_scale == 1.0 for node in search.tree.values() if node is not commit)


def test_commit_follows_the_best_rule_too() -> None:
    values = {(): 1.0, (0,): 0.1, (1,): 0.8, (0, 0): 0.9, (0, 1): 0.95}
    search = tree_search(2, budget=100, commit=0.5, returns="best", commit_lr=0.3)
    drive(search, lambda trial: values.get(trial.path, 0.5))
    assert search.best().path[:-1] == (0,)
    assert search.best().lr_scale == 0.3


def test_a_commit_phase_that_diverges_falls_back() -> None:
    search = tree_search(2, budget=100, commit=0.5)
    drive(search, lambda trial: PLAIN.get(trial.path, nan))
    assert search.best().path == (0, 0)
    assert search.rule == "deepest"
    assert search.spent == 100


@pytest.mark.parametrize(("budget", "root", "commit"), [(59, 29, 30), (2, 1, 1), (1, 1, 0)])
def test_commit_of_a_search_that_can_pay_for_the_root_only(budget: int, root: int, commit: int) -> None:
    search = tree_search(2, budget=budget, commit=0.5)
    drive(search, lambda trial: 0.5)
    assert search.tree.spent == {"root": root} | ({"commit": commit} if commit else {})


def test_commit_with_one_source() -> None:
    search = tree_search(1, budget=100, commit=0.5)
    drive(search, lambda trial: 0.5)
    assert search.tree.spent == {"root": 50, "commit": 50}


def test_the_share_of_the_search_is_exact() -> None:
    # 1000 − 90 % are 100 steps, enough for one expansion; in floating point 1000·(1 − 0.9) is a bit less.
    search = tree_search(2, budget=1000, steps=50, train_root=False, commit=0.9)
    drive(search, lambda trial: 0.5)
    assert search.inner.expanded == [()]
    assert search.tree.spent == {"search": 100, "commit": 900}


# ------------------------------------------------------------------------------------ width


def test_a_width_that_no_budget_can_pay_for_takes_no_longer() -> None:
    search = tree_search(2, budget=50, width=2**40)
    assert sum(trial.steps for trial in search.ask()) <= 50


def test_a_wider_search_grows_another_tree() -> None:
    narrow, wide = tree_search(2, budget=70), tree_search(2, budget=70, width=2)
    assert drive(narrow, PLAIN)[2:] == [[(0, 0), (0, 1)], [(0, 0, 0), (0, 0, 1)]]
    # Both leaves are asked for before either's children are seen.
    assert drive(wide, PLAIN)[2:] == [[(0, 0), (0, 1), (1, 0), (1, 1)]]
    assert wide.expanded == [(), (0,), (1,)]


def test_a_round_takes_as_many_leaves_as_can_be_paid() -> None:
    search = tree_search(2, budget=50, width=2)
    assert drive(search, PLAIN) == [[()], [(0,), (1,)], [(0, 0), (0, 1)]]
    search = tree_search(2, budget=69, width=3)
    assert drive(search, PLAIN)[-1] == [(0, 0), (0, 1)]


def noisy(salt: int) -> Callable[[Trial], float]:
    """Values that depend on the path alone; about one in ten diverges."""

    def value(trial: Trial) -> float:
        draw = np.random.default_rng([salt, *(1 + step for step in trial.path)]).random()
        return nan if draw > 0.9 and trial.path else float(draw)

    return value


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(2, 4), st.sampled_from(sorted(PARTITIONS)))
def test_the_order_of_tells_does_not_matter(salt: int, width: int, sources: int, name: str) -> None:
    def shuffled(trials: list[Trial]) -> list[Trial]:
        return [trials[i] for i in np.random.default_rng(salt).permutation(len(trials))]

    options: dict[str, Any] = {"budget": 400, "width": width, "seed": salt, "nu": "auto", "commit": 0.25}
    one, two = tree_search(sources, name, **options), tree_search(sources, name, **options)
    assert drive(one, noisy(salt)) == drive(two, noisy(salt), order=shuffled)
    assert one.inner.expanded == two.inner.expanded
    assert list(one.tree) == list(two.tree)
    assert one.best().path == two.best().path
    assert all(np.array_equal(one.tree[path].mixture, two.tree[path].mixture) for path in one.tree)


# ---------------------------------------------------- Algorithm 1 once more, by looking at everything


def textbook(
    children: int, values: Callable[[Trial], float], **o: Any
) -> tuple[list[Path], int, Path | None]:
    """Algorithm 1 with a plain list of leaves: the expanded paths, the steps spent, the returned path."""
    steps = o["steps"]
    leaves: list[tuple[Path, float]] = []
    seen: list[tuple[Path, float]] = []
    expanded: list[Path] = []
    spent = 0

    def visit(path: Path) -> None:
        nonlocal spent
        spent += steps(len(path))
        value = values(Trial(path, np.array([1.0]), 1))
        if np.isfinite(value):
            seen.append((path, value))
            leaves.append((path, value))

    if o["train_root"]:
        visit(())
    else:
        leaves.append(((), 0.0))
    while leaves:

        def order(i: int) -> tuple[float, int, int]:
            path, value = leaves[i]
            return value - o["optimism"] * o["nu"] * o["rho"] ** len(path), len(path), i

        left = o["budget"] - spent
        fitting = [i for i, (path, _) in enumerate(leaves) if children * steps(len(path) + 1) <= left]
        if not fitting:
            break
        path, _ = leaves.pop(min(fitting, key=order))
        expanded.append(path)
        for child in range(children):
            visit((*path, child))
    if not seen:
        return expanded, spent, None
    if o["returns"] == "deepest":
        height = max(len(path) for path, _ in seen)
        best = min((row for row in seen if len(row[0]) == height), key=lambda row: row[1])
    else:
        best = min(seen, key=lambda row: (row[1] + o["nu"] * o["rho"] ** len(row[0]), len(row[0])))
    return expanded, spent, best[0]


@settings(max_examples=150, deadline=None)
@given(
    salt=st.integers(0, 2**32),
    sources=st.integers(2, 4),
    name=st.sampled_from(["bisect", "delaunay", "halve"]),
    budget=st.integers(130, 800),
    growth=st.integers(0, 6),
    nu=st.sampled_from([0.0, 0.25, 1.0]),
    optimism=st.sampled_from([1.0, 2.0]),
    train_root=st.booleans(),
    returns=st.sampled_from(["deepest", "best"]),
    levels=st.sampled_from([2, 4, 1000]),
)
def test_the_search_does_what_the_textbook_does(
    salt: int, sources: int, name: str, growth: int, levels: int, **options: Any
) -> None:
    options |= {"steps": lambda height: 10 + growth * height, "rho": 0.5}
    draw = noisy(salt)

    def value(trial: Trial) -> float:  # few levels: many exact ties
        return float(np.ceil(draw(trial) * levels) / levels)

    search = tree_search(sources, name, **options)
    drive(search, value)
    expanded, spent, best = textbook(sources if name == "delaunay" else 2, value, **options)
    assert search.expanded == expanded
    assert search.spent == spent <= options["budget"]
    if best is None:
        with pytest.raises(TrainingError, match="every model diverged"):
            search.best()
    else:
        assert search.best().path == best


# -------------------------------------------------------------------------- which models are needed


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 3),
    st.sampled_from(["auto", 0.0, 0.05, 0.5]),
    st.sampled_from(["deepest", "best"]),
    st.sampled_from([0.0, 0.5]),
)
def test_a_model_that_is_not_needed_is_never_asked_for(
    salt: int, width: int, nu: Any, returns: Any, commit: float
) -> None:
    search = tree_search(
        2, budget=400, width=width, nu=nu, returns=returns, commit=commit, rho=default_rho(2)
    )
    held: set[Path] = set()
    draw = noisy(salt)
    while trials := search.ask():
        for trial in trials:
            assert not trial.path or trial.path[:-1] in held
            search.tell(trial, Evaluation(draw(trial)))
        held = search.needed(held.union(trial.path for trial in trials))
        assert search.best().path in held
    assert search.best().path in held


def test_a_growing_spread_may_call_an_older_model_back() -> None:
    # value + ν·ρ^h: with ν = 0.09 the root has 0.59, (0,) 0.595; with ν = 0.12 they have 0.62, 0.61, and the
    # best of height 2 has 0.62. So (0,), long expanded, is returned in the end.
    values = {(): 0.5, (0,): 0.55, (1,): 0.58, (0, 0): 0.59, (0, 1): 0.59, (1, 0): 0.62, (1, 1): 0.62}
    search = tree_search(2, budget=70, nu="auto", returns="best")
    for _ in range(3):
        for trial in search.ask():
            search.tell(trial, Evaluation(values[trial.path]))
    assert search.best().path == ()
    assert search.needed([(0,)])
    drive(search, values)
    assert search.best().path == (0,)


# ------------------------------------------------------------------------------- misuse, bad input


def test_asking_before_telling() -> None:
    search = tree_search(2, budget=100)
    with pytest.raises(SearchError, match="nothing has been evaluated yet"):
        search.best()
    (root,) = search.ask()
    with pytest.raises(SearchError, match="tell the outcome of 1 trials"):
        search.ask()
    search.tell(root, Evaluation(0.5))
    with pytest.raises(SearchError, match=r"trial \(\) was not asked for, or was told before"):
        search.tell(root, Evaluation(0.5))
    trials = search.ask()
    search.tell(trials[0], Evaluation(0.5))
    with pytest.raises(SearchError, match="told before"):
        search.tell(trials[0], Evaluation(0.5))
    with pytest.raises(SearchError, match="was not asked for"):
        search.tell(Trial((7,), np.array([0.5, 0.5]), 10), Evaluation(0.5))


def test_a_finished_search_stays_finished() -> None:
    search = tree_search(2, budget=30)
    drive(search, PLAIN)
    assert search.ask() == []
    assert search.ask() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nu": -1.0}, "nu must be"),
        ({"nu": "wide"}, "nu must be a number or 'auto'; got 'wide'"),
        ({"rho": 1.0}, "rho must lie strictly between 0 and 1"),
        ({"optimism": -2.0}, "optimism"),
        ({"returns": "median"}, "'deepest' or 'best'; got 'median'"),
        ({"commit": 1.0}, "commit share must be at least 0 and below 1"),
        ({"commit": -0.1}, "commit share"),
        ({"commit": nan}, "commit share"),
        ({"commit": 0.5, "commit_lr": 0.0}, "commit step size factor"),
        ({"width": 0}, "width must be at least 1"),
        ({"steps": 0}, "steps per node"),
        ({"steps": -5}, "steps per node"),
        ({"steps": 2.5}, "steps per node"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MixtreeError, match=message):
        tree_search(2, **{"budget": 100, **options}).ask()


@pytest.mark.parametrize("result", [0, -3, 2.5, nan, None])
def test_a_schedule_that_gives_no_number_of_steps(result: Any) -> None:
    with pytest.raises(InputError, match="steps per node must be a whole number of at least 1"):
        tree_search(2, budget=100, steps=lambda height: result).ask()


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_numpy_numbers_are_numbers(kind: Any) -> None:
    search = tree_search(2, budget=kind(70), steps=kind(10))
    drive(search, PLAIN)
    assert search.expanded == [(), (0,), (0, 0)]
