"""A tree search that stops once what it can still gain is below the noise."""

from __future__ import annotations

from typing import Any

import pytest

from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError, SearchError
from mixtree.fitting.pipeline import fit
from mixtree.partition import PARTITIONS
from mixtree.policies.commit import then_commit
from mixtree.policies.early_stop import stop_early
from mixtree.policies.fixed import uniform
from mixtree.testing import check_search
from mixtree.trainer import Evaluation
from mixtree.tree import Trial
from mixtree.tree_search import TreeSearch

FLAT = {"noise": 0.1, "slope": 0.0}
STEEP = {"noise": 1e-6, "slope": 0.05}


def plainly(budget: int = 400, commit: float = 0.5) -> Any:
    halves = PARTITIONS["bisect"]
    search = TreeSearch(halves.root(3), halves.split, budget=budget, steps=10)
    return then_commit(search, commit, segments=2) if commit else search


def early(budget: int = 400, commit: float = 0.5) -> Any:
    return stop_early(plainly(budget, commit))


def value(trial: Trial, *, noise: float, slope: float) -> Evaluation:
    wiggle = 0.001 * (sum((place + 1) * index for place, index in enumerate(trial.path)) % 7)
    return Evaluation(1.0 - slope * len(trial.path) + wiggle, noise)


def drive(search: Any, *, backwards: bool = False, **shape: float) -> list[list[Trial]]:
    rounds = []
    while trials := search.ask():
        rounds.append(trials)
        for trial in reversed(trials) if backwards else trials:
            search.tell(trial, value(trial, **shape))
    return rounds


def test_it_stops_where_values_are_noise_and_commits_its_share():
    search = early()
    rounds = drive(search, **FLAT)
    stopped = search.inner.stopped
    assert stopped is not None and stopped.gain < stopped.noise
    assert sum(len(each) for each in rounds[:-2]) < 12
    (first,), (commit,) = rounds[-2:]
    for half in (first, commit):
        assert (half.phase, half.steps, half.lr_scale) == ("commit", 100, 0.1)
    assert search.best().path == commit.path == (*first.path, 0)
    assert search.rule == "commit of deepest, stopped early"
    assert search.spent == sum(trial.steps for each in rounds for trial in each) < search.budget
    assert search.needed([commit.path])


def test_it_goes_on_where_values_still_fall():
    plain, search = plainly(), early()
    assert [[t.path for t in each] for each in drive(search, **STEEP)] == [
        [t.path for t in each] for each in drive(plain, **STEEP)
    ]
    assert search.inner.stopped is None and search.rule == plain.rule


def test_without_a_commit_it_just_ends():
    search = early(commit=0.0)
    rounds = drive(search, **FLAT)
    assert all(trial.phase != "commit" for each in rounds for trial in each)
    assert search.ask() == []


def test_nothing_depends_on_the_order_of_arrival():
    one, two = early(), early()
    asked = [drive(search, backwards=backwards, **FLAT) for search, backwards in ((one, False), (two, True))]
    assert [[t.path for t in each] for each in asked[0]] == [[t.path for t in each] for each in asked[1]]
    search = early()
    search.ask()
    with pytest.raises(SearchError, match="tell the outcome"):
        search.ask()


def test_it_is_a_search_like_any_other():
    check_search(early, budget=400)
    assert early().describe()["stop_early"] is True


def test_only_tree_searches_stop_early():
    with pytest.raises(InputError, match="only a tree search"):
        stop_early(uniform(2, budget=10))


def test_a_stopped_study_is_resumed_and_raised(tmp_path):
    sources = synthetic(rows=200, validation=40).sources
    options = {"model": "linear", "steps": 5, "stop_early": True, "storage": tmp_path / "s.db"}
    first = fit(sources, **options, budget=600)
    assert first.rule.endswith("stopped early") and first.unspent > 100
    assert first.verdict.reference_spent == {"uniform": sum(first.spent.values()) * 3 // 2}
    again = fit(sources, **options, budget=600, resume=True)
    assert (again.weights, again.verdict) == (first.weights, first.verdict)
    more = fit(sources, **options, budget=1200, resume=True)
    assert sum(more.spent.values()) <= 1200
    commit = [node.steps for node in more.tree.lineage(more.node.path) if node.phase == "commit"]
    assert commit == [50] * 12
