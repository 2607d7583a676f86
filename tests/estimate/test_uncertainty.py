"""Uncertainty of weights, flatness, interchangeable and idle sources, hull words, Shapley values."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg

from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.estimate import Estimate, HullTest, match_moments
from mixtree.estimate.solve import VAGUE
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
    (note,) = [note for note in told.notes if "interchangeable" in note]
    assert note.startswith("by the means of these rows a and a again are interchangeable: the sum of their")
    low, high = map(float, re.findall(r"(\d\.\d\d) to (\d\.\d\d)", note)[0])
    assert 0.4 < low < 0.7 < high < 1.0


def test_different_sources_are_not_interchangeable() -> None:
    sources = synthetic(validation=300, test=1).sources
    assert interchangeable(sources.names, match_moments(sources)) == ()


def groups(covariance) -> tuple[tuple[str, ...], ...]:
    covariance = np.asarray(covariance, dtype=np.float64)
    names = "abcdef"[: len(covariance)]
    return interchangeable(names, estimate(covariance, [0.0] * len(names), [1.0] * len(names)))


def unsplit(*sizes: int, spread: float = 1.0, sums: float = 1e-4) -> np.ndarray:
    """Groups of sources whose sums vary by little and whose splits may be anything."""
    blocks = [spread * (np.eye(size) - 1.0 / size) + sums / size**2 for size in sizes]
    return scipy.linalg.block_diag(*blocks)


def test_any_number_of_sources_may_be_interchangeable() -> None:
    assert groups(unsplit(1, 3, 2)) == (("b", "c", "d"), ("e", "f"))
    assert groups(unsplit(4, 1)) == (("a", "b", "c", "d"),)
    assert groups(unsplit(5)) == (("a", "b", "c", "d", "e"),)


def test_a_weight_whose_interval_is_narrow_is_not_called_unknown() -> None:
    """By their deviations all are unknown; that none is negative tells of one of them."""
    told = estimate(unsplit(4), [0.0, 0.0, 0.0, 0.6], [0.3, 0.8, 0.9, 1.0])
    assert interchangeable("abcd", told) == ()


def test_a_sum_that_is_not_known_makes_nobody_interchangeable() -> None:
    """Weights of which nothing is known have nothing in common by that."""
    assert groups(unsplit(2, 1, 1, sums=0.25)) == ()
    # What makes up for two others, a little for each, is no bridge between them.
    bridge = unsplit(2, 2)
    bridge[0, 2] = bridge[2, 0] = -0.2
    assert groups(bridge) == (("a", "b"), ("c", "d"))
    assert groups(unsplit(2, 2, spread=0.01)) == ()


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
    assert sure == [
        "c adds nothing to the target: its weight in it is below 0.030; attribution 'loo' shows whether "
        "training on its rows helps all the same"
    ]
    assert perhaps == ["if a mixture explains the target's rows, " + sure[0]]
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
    start = "by the means of these rows "
    for covariance, words in (
        (unsplit(20), "all sources are interchangeable: the split is not known"),
        (unsplit(18, 1, 1), "18 sources (s0, s1, s2 …) are interchangeable: the sum of their weights is"),
    ):
        alike = replace(estimate(covariance, [0.0] * 20, [1.0] * 20), notes=(f"{VAGUE} a few", "thin"))
        notes = mixture_uncertainty(dict.fromkeys(names, 0.05), alike).notes
        assert any(note.startswith(start + words) for note in notes) and "thin" in notes
        assert any(note.startswith(VAGUE) for note in notes) == words.startswith("18")


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
    # That is no interval of a weight in the target: without an estimate nothing is known of it.
    assert (told.weights["a"].low, told.weights["a"].high) == (0.0, 1.0)
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
    assert outside.endswith("the gain comes from your own rows")
    plain, tried = (hull_words(hull(False), tuned=False, tried=each) for each in (False, True))
    assert "what is missing can only come from your own rows, on which this model was not trained" in plain
    assert tried.endswith("; training on your own rows was tried and did not help")
    assert "about 240 target rows in all would decide it" in hull_words(hull(None, 240))
    assert "no number of target rows" in hull_words(hull(None))
    assert "not tested" in hull_words(None)
    tiny = HullTest(0.0002, False, 1.0, 3, 5, None, "", 80, 0.5)
    assert "(p < 0.001 on 80 rows)" in hull_words(tiny)


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
