import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from mixtree.errors import InputError
from mixtree.experiments.claims import Claim, Interval, check, holds, paired_interval

NAMES = {"CH": "mixmatch-ch"}


def verdict(claim, scores, **options):
    arrays = {name: np.array(values, dtype=float) for name, values in scores.items()}
    return check(claim, arrays, names=NAMES, **({"tolerance": 0.005, "higher_is_better": True} | options))


def test_the_interval_is_the_paired_t_tests():
    random = np.random.default_rng(0)
    one, two = random.normal(1, 1, 10), random.normal(0, 1, 10)
    interval, wanted = paired_interval(one - two), ttest_rel(one, two).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((wanted.low, wanted.high))
    assert interval.mean == pytest.approx((one - two).mean())


def test_pairs_without_a_score_are_left_out():
    assert paired_interval([1.0, np.nan, 3.0]) == paired_interval([1.0, 3.0])
    alone = paired_interval([np.nan, 2.0])
    assert alone.pairs == 1
    assert holds("≈", alone, 1.0) == (False, "too few repeats with a score")


@pytest.mark.parametrize(
    ("relation", "low", "high", "wanted"),
    [
        ("better", 0.01, 0.03, True),
        ("better", -0.01, 0.03, False),
        ("better", -0.03, -0.01, False),
        ("≈", -0.01, 0.03, True),
        ("≈", 0.001, 0.004, True),
        ("≈", -0.004, -0.001, True),
        ("≈", 0.001, 0.006, False),
        ("≈", -0.006, -0.001, False),
        ("no worse", 0.01, 0.03, True),
        ("no worse", -0.03, 0.01, True),
        ("no worse", -0.004, -0.001, True),
        ("no worse", -0.03, -0.01, False),
    ],
)
def test_relations(relation, low, high, wanted):
    assert holds(relation, Interval((low + high) / 2, low, high, 10), 0.005)[0] is wanted


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.floats(0.001, 1))
def test_better_and_worse_exclude_each_other(differences, tolerance):
    gap = paired_interval(differences)
    back = paired_interval([-each for each in differences])
    assert not (holds("better", gap, tolerance)[0] and holds("better", back, tolerance)[0])
    if holds("better", gap, tolerance)[0]:
        assert holds("no worse", gap, tolerance)[0]


def test_lower_is_better_turns_the_sign():
    scores = {"mixmatch-ch": [10.0, 11.0, 10.5], "uniform": [12.0, 13.1, 12.4]}
    claim = Claim("CH better", "CH", "better", ("uniform",))
    assert verdict(claim, scores, higher_is_better=False).holds
    assert not verdict(claim, scores).holds


def test_every_one_of_several_must_hold_and_the_worst_is_shown():
    scores = {
        "mixmatch-ch": [0.80, 0.81, 0.82],
        "only:a": [0.50, 0.52, 0.51],
        "only:b": [0.79, 0.82, 0.83],
        "only:a+decay": [0.99, 0.99, 0.99],
    }
    shown = verdict(Claim("all", "CH", "better", ("only:*",)), scores)
    assert not shown.holds
    assert shown.right == "only:b"
    best = verdict(Claim("best", "CH", "≈", ("only:*",), pick="best"), scores)
    assert best.right == "only:b"
    assert best.holds


def test_a_suffix_follows_the_search_it_stands_for():
    scores = {"mixmatch-ch+commit": [0.9, 0.8], "uniform": [0.5, 0.5]}
    assert verdict(Claim("x", "CH+commit", "no worse", ("uniform",)), scores).left == "mixmatch-ch+commit"


def test_a_claim_about_nobody_is_an_error():
    with pytest.raises(InputError, match="no scores of 'genie'"):
        verdict(Claim("x", "CH", "≈", ("genie",)), {"mixmatch-ch": [1.0, 2.0]})
