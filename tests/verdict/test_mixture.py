"""Uncertainty of weights, flatness, interchangeable and idle sources, hull words, Shapley values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.estimate import Estimate, HullTest, match_moments
from mixtree.verdict import hull_words, interchangeable, mixture_uncertainty, shapley


def estimate(covariance: np.ndarray, low: list[float], high: list[float]) -> Estimate:
    count = len(covariance)
    alpha = np.full(count, 1.0 / count)
    return Estimate(alpha, covariance, np.array(low), np.array(high), "made up", 100, (), alpha)


def test_weights_have_the_estimates_intervals() -> None:
    sources = synthetic(alpha=[0.8, 0.2, 0.0], validation=400, test=1).sources
    found = match_moments(sources)
    weights = dict(zip(sources.names, [0.7, 0.2, 0.1], strict=True))
    told = mixture_uncertainty(weights, found)
    first = told.weights["source-0"]
    assert (first.weight, first.low, first.high) == (0.7, found.low[0], found.high[0])
    assert told.flat is None


def test_the_same_source_twice_is_interchangeable() -> None:
    sources = synthetic(alpha=[0.7, 0.2, 0.1], validation=300, test=1).sources
    twice = replace(sources, names=("a", "b", "c", "a again"), rows=(*sources.rows, sources.rows[0]))
    told = mixture_uncertainty(dict.fromkeys(twice.names, 0.25), match_moments(twice))
    assert told.interchangeable == (("a", "a again"),)
    assert any("a and a again are interchangeable" in note for note in told.notes)


def test_different_sources_are_not_interchangeable() -> None:
    sources = synthetic(validation=300, test=1).sources
    assert interchangeable(sources.names, match_moments(sources)) == ()


def test_a_source_that_adds_nothing_is_named() -> None:
    weights = {"a": 0.5, "b": 0.48, "c": 0.02}
    given = estimate(1e-4 * np.eye(3), [0.4, 0.4, 0.0], [0.6, 0.6, 0.03])
    told = {
        explained: mixture_uncertainty(weights, given, explained=explained)
        for explained in (True, None, False)
    }
    assert all(each.adding_nothing == ("c",) for each in told.values())
    sure, perhaps = (
        [note for note in told[explained].notes if "c adds nothing" in note] for explained in (True, None)
    )
    assert sure == ["c adds nothing: its weight in the target is below 0.030; it can be dropped"]
    assert perhaps == [
        "if a mixture explains the target's rows, " + sure[0].removesuffix("; it can be dropped")
    ]
    assert not any("adds nothing" in note for note in told[False].notes)


def test_many_sources_are_not_named_one_by_one() -> None:
    names = [f"s{place}" for place in range(20)]
    idle = estimate(1e-4 * np.eye(20), [0.0] * 20, [0.03] * 19 + [0.6])
    told = mixture_uncertainty(dict.fromkeys(names, 0.05), idle)
    assert told.adding_nothing == tuple(names[:19])
    (note,) = [note for note in told.notes if "add nothing" in note]
    assert note.startswith("19 sources (s0, s1, s2 …) add nothing") and "0.030" in note
    odd = [note for note in told.notes if "was trained with weight" in note]
    assert len(odd) == 6 and any("for 13 more sources" in note for note in told.notes)
    # Neighbours of opposite sign: each pair's sum is known, so all hang together.
    chain = np.array([[(-1.0) ** (i + j) for j in range(20)] for i in range(20)]) + 1e-3 * np.eye(20)
    alike = estimate(chain, [0.0] * 20, [1.0] * 20)
    notes = mixture_uncertainty(dict.fromkeys(names, 0.05), alike).notes
    assert any(note.startswith("all sources are interchangeable") for note in notes)
    chain[19], chain[:, 19], chain[19, 19] = 0.0, 0.0, 1e-3  # but for one of them
    notes = mixture_uncertainty(dict.fromkeys(names, 0.05), estimate(chain, [0.0] * 20, [1.0] * 20)).notes
    assert any(note.startswith("19 sources (s0, s1, s2 …) are interchangeable") for note in notes)


def test_what_was_not_tested_is_said_so() -> None:
    untested = HullTest(np.nan, None, np.nan, 0, 0, None, "With more than 300 sources …", 50, None)
    assert hull_words(untested) == "with more than 300 sources …"


def test_a_weight_outside_its_interval_is_told() -> None:
    told = mixture_uncertainty({"a": 0.9, "b": 0.1}, estimate(0.001 * np.eye(2), [0.2, 0.5], [0.5, 0.8]))
    assert any("a was trained with weight 0.90" in note for note in told.notes)


def test_the_targets_own_rows_have_no_interval() -> None:
    told = mixture_uncertainty(
        {"a": 0.5, "b": 0.3, "target": 0.2}, estimate(0.01 * np.eye(2), [0.4, 0.4], [0.6, 0.6])
    )
    own = told.weights["target"]
    assert own.low == own.high == own.weight == 0.2


def test_flatness_is_the_range_of_mixtures_within_a_standard_error() -> None:
    tried = [np.array(each) for each in ([0.5, 0.5], [0.9, 0.1], [0.2, 0.8], [0.0, 1.0])]
    told = mixture_uncertainty(
        {"a": 0.5, "b": 0.5},
        tried=tried,
        values=[1.0, 1.05, 1.5, np.inf],
        standard_errors=[0.1, 0.1, 0.1, np.nan],
    )
    assert told.as_good == 2
    assert told.flat == {"a": (0.5, 0.9), "b": (0.1, 0.5)}
    assert told.weights["a"].high == 0.9
    assert any("2 of the mixtures tried" in note for note in told.notes)


def test_one_source_and_no_knowledge() -> None:
    only = mixture_uncertainty({"a": 1.0})
    assert (only.weights["a"].low, only.weights["a"].high) == (1.0, 1.0)
    assert "one source" in only.notes[0]
    unknown = mixture_uncertainty({"a": 0.5, "b": 0.5})
    assert (unknown.weights["a"].low, unknown.weights["a"].high) == (0.0, 1.0)
    with pytest.raises(InputError, match="at least one source"):
        mixture_uncertainty({})
    with pytest.raises(InputError, match="one of each per node"):
        mixture_uncertainty({"a": 1.0}, tried=[np.ones(1)], values=[1.0], standard_errors=[])


def hull(inside: bool | None, needed: int | None = None) -> HullTest:
    return HullTest(0.2, inside, 1.0, 3, 5, needed, "", 80, 0.5)


def test_hull_words() -> None:
    assert hull_words(hull(True)).startswith("a mixture can serve this target")
    outside = hull_words(hull(False))
    assert outside.startswith("no mixture reproduces your target")
    assert "the gain comes from your own rows; more of them is likely to help more" in outside
    assert "what is missing must come from your own rows" in hull_words(hull(False), tuned=False)
    assert "about 240 target rows in all would decide it" in hull_words(hull(None, 240))
    assert "no number of target rows" in hull_words(hull(None))
    assert "not tested" in hull_words(None)


def test_shapley_shares_add_up() -> None:
    rng = np.random.default_rng(0)
    names = ["a", "b", "c", "d"]
    worth: dict[frozenset[str], float] = {}

    def ask(some: frozenset[str]) -> float:
        assert some not in worth  # each subset is asked, hence trained, once
        worth[some] = float(rng.normal())
        return worth[some]

    shares = shapley(names, ask)
    assert sum(shares.values()) == pytest.approx(worth[frozenset(names)] - worth[frozenset()])
    own = {"a": 1.0, "b": 0.0, "c": 2.0, "d": -1.0}
    assert shapley(names, lambda some: sum(own[name] for name in some)) == pytest.approx(own)
    with pytest.raises(InputError):
        shapley([], ask)
