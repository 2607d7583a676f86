from __future__ import annotations

from math import nan
from typing import Any

import numpy as np
import pytest

from mixtree.data.sources import Sources
from mixtree.errors import InputError
from mixtree.policies.registry import known_algorithms, make_search
from mixtree.policies.setting import Setting
from mixtree.search import Search
from mixtree.testing import check_search
from mixtree.trainer import Evaluation
from mixtree.tree import Trial
from mixtree.tree_search import TreeSearch

NAMES = ("US", "France", "Italy")


def data(names: tuple[str, ...]) -> Sources:
    """10, 11, 12 … rows of the sources."""
    rng = np.random.default_rng(0)
    parts = [(rng.standard_normal((10 + i, 2)), np.arange(10 + i) % 2) for i in range(len(names))]
    return Sources.from_dict(dict(zip(names, parts, strict=True)), parts[0], classes=2)


def setting(names: tuple[str, ...] = NAMES, **options: Any) -> Setting:
    rows = data(names)
    defaults: dict[str, Any] = {
        "sizes": rows.sizes,
        "data": rows,
        "budget": 200,
        "steps": 10,
        "alpha": np.full(len(names), 1 / len(names)),
    }
    return Setting(names, **{**defaults, **options})


def trials_of(search: Search) -> list[Trial]:
    trials: list[Trial] = []
    while asked := search.ask():
        trials += asked
        for trial in asked:
            search.tell(trial, Evaluation(float(trial.mixture[0])))
    return trials


def test_the_ids_that_every_comparison_knows() -> None:
    known = known_algorithms(("a", "b"))
    for name in ("mixmatch-ch", "mixmatch-chp", "mixmatch-dp", "mixmatch-bisect"):
        assert {name, f"{name}+commit"} <= set(known)
    for name in ("uniform", "pooled", "genie", "validation", "only:a", "only:b"):
        assert {name, f"{name}+decay"} <= set(known)
    assert len(set(known)) == len(known)


@pytest.mark.parametrize("algorithm", known_algorithms(NAMES))
def test_every_known_algorithm_is_a_search_within_the_same_budget(algorithm: str) -> None:
    check_search(lambda: make_search(algorithm, setting()), budget=200)


@pytest.mark.parametrize("names", [("C++", "C"), ("a+b", "c"), ("x:y", "z")])
def test_every_known_algorithm_can_be_made_whatever_the_sources_are_called(names: tuple[str, ...]) -> None:
    for algorithm in known_algorithms(names):
        make_search(algorithm, setting(names))
    chosen = make_search(f"only:{names[0]}+decay", setting(names, segments=1))
    assert [trial.mixture.tolist() for trial in trials_of(chosen)] == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("algorithm", "children"),
    [("mixmatch-bisect", 2), ("mixmatch-ch", 2), ("mixmatch-chp", 2), ("mixmatch-dp", 3)],
)
def test_the_searches_use_their_partition_and_all_of_the_budget(algorithm: str, children: int) -> None:
    search = make_search(algorithm, setting())
    assert isinstance(search, TreeSearch)
    trials = trials_of(search)
    assert [trial.path for trial in trials[: 1 + children]] == [(), *((i,) for i in range(children))]
    assert 200 - children * 10 < search.spent <= 200
    assert {trial.lr_scale for trial in trials} == {1.0}


def test_commit_is_half_the_budget_at_a_tenth_of_the_step_size() -> None:
    *searched, commit = trials_of(make_search("mixmatch-bisect+commit", setting(segments=1)))
    assert sum(trial.steps for trial in searched) == 90  # 10 + 4·20 of 100
    assert (commit.steps, commit.lr_scale, commit.phase) == (110, 0.1, "commit")


def test_the_baselines() -> None:
    alpha = np.array([0.2, 0.3, 0.5])
    for algorithm, mixture in (
        ("uniform", [1 / 3] * 3),
        ("pooled", [10 / 33, 11 / 33, 12 / 33]),
        ("only:France", [0, 1, 0]),
        ("validation", [0, 0, 0, 1]),
        ("genie", [0.2, 0.3, 0.5]),
    ):
        (trial,) = trials_of(make_search(algorithm, setting(alpha=alpha, segments=1)))
        assert trial.mixture == pytest.approx(mixture)
        assert trial.steps == 200
        first, last = trials_of(make_search(f"{algorithm}+decay", setting(alpha=alpha, segments=1)))
        assert (first.steps, first.lr_scale, last.steps, last.lr_scale) == (100, 1.0, 100, 0.1)


def test_options_reach_the_tree_search() -> None:
    search = make_search("mixmatch-bisect", setting(options={"nu": "auto", "returns": "best", "width": 2}))
    assert isinstance(search, TreeSearch)
    assert search.rule == "best"
    trials_of(search)
    assert search.nu > 0


def test_seeds_reach_the_random_partition() -> None:
    def mixtures(seed: int) -> list[list[float]]:
        return [trial.mixture.tolist() for trial in trials_of(make_search("mixmatch-ch", setting(seed=seed)))]

    assert mixtures(3) == mixtures(3)
    assert mixtures(3) != mixtures(4)


def test_constraints_reach_the_search() -> None:
    limits: dict[str, Any] = {"minimum": [0.2, 0.1, 0.0], "maximum": [0.5, 0.6, 0.4]}
    for trial in trials_of(make_search("mixmatch-ch+commit", setting(**limits))):
        assert (trial.mixture >= np.array(limits["minimum"]) - 1e-12).all()
        assert (trial.mixture <= np.array(limits["maximum"]) + 1e-12).all()
    for algorithm in ("mixmatch-bisect", "mixmatch-dp", "mixmatch-chp"):
        for trial in trials_of(make_search(algorithm, setting(minimum=[0.2, 0.1, 0.0]))):
            assert (trial.mixture >= np.array([0.2, 0.1, 0.0]) - 1e-12).all()


@pytest.mark.parametrize(
    ("algorithm", "options", "message"),
    [
        ("mixmatch", {}, "unknown algorithm 'mixmatch'; the algorithms are auto, mixmatch\\+, mixmatch-ch"),
        ("mixmatch-bisect+decay", {}, "unknown algorithm"),
        ("uniform+commit", {}, "unknown algorithm"),
        ("", {}, "unknown algorithm"),
        ("only:Chile", {}, "only:Chile: unknown source 'Chile'; the sources are 'US', 'France', 'Italy'"),
        ("only:", {}, "unknown source ''"),
        ("genie", {"alpha": None}, "true mixture, which is not known here"),
        ("genie", {"alpha": [0.5, 0.5, 0.5]}, "sum to 1"),
        ("genie", {"alpha": [0.5, 0.5]}, "2 weights but there are 3 sources"),
        ("pooled", {"sizes": [10, 20]}, "3 sources"),
        ("mixmatch-bisect", {"budget": 0}, "budget must be at least 1"),
        ("mixmatch-bisect", {"budget": -5}, "budget must be at least 1"),
        ("uniform", {"budget": -5}, "budget must be at least 1"),
        ("mixmatch-bisect", {"steps": 0}, "steps per node"),
        ("mixmatch-bisect", {"minimum": [0.5, 0.5, 0.5]}, "sum to 1.5, more than 1"),
        ("mixmatch-bisect", {"minimum": [0.5]}, "one number per source"),
        ("mixmatch-ch", {"maximum": [0.3, 0.3, 0.3]}, "sum to 0.9, less than 1"),
        ("mixmatch-ch", {"minimum": [0.5, 0, 0], "maximum": [0.4, 1, 1]}, "source 0: maximum 0.4 is below"),
        ("mixmatch-bisect", {"maximum": [0.5, 0.5, 0.5]}, "'halve' only"),
        ("mixmatch-dp", {"maximum": [0.5, 0.5, 0.5]}, "'halve' only"),
        ("mixmatch-ch", {"maximum": [0.5, nan, 0.5]}, "finite"),
        ("uniform", {"minimum": [0.1, 0.1, 0.1]}, "this baseline's mixture is fixed"),
        ("mixmatch-ch", {"options": {"nu": "wide"}}, "nu must be a number or 'auto'"),
    ],
)
def test_bad_input(algorithm: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_search(algorithm, setting(**options))


def test_the_authors_halving_takes_five_sources() -> None:
    with pytest.raises(InputError, match="at most 5 sources, not 6"):
        make_search("mixmatch-chp", setting(tuple("abcdef")))
