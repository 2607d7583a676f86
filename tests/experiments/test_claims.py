import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from scipy.stats import ttest_rel

from mixtree.errors import InputError
from mixtree.experiments.claims import Claim, Interval, check, every, judge, needed_repeats, paired_interval

NAMES = {"CH": "mixmatch-ch", "DP": "mixmatch-dp"}


def claim(relation, pairs, **options):
    return Claim("a sentence", "a section", relation, tuple(pairs), **options)


def verdict(claim, scores, **options):
    arrays = {name: np.array(values, dtype=float) for name, values in scores.items()}
    return check(claim, arrays, names=NAMES, **({"tolerance": 0.005, "higher_is_better": True} | options))


def test_the_interval_is_the_paired_t_tests():
    random = np.random.default_rng(0)
    one, two = random.normal(1, 1, 10), random.normal(0, 1, 10)
    interval, wanted = paired_interval(one - two), ttest_rel(one, two).confidence_interval(0.95)
    assert (interval.low, interval.high) == pytest.approx((wanted.low, wanted.high))
    assert interval.mean == pytest.approx((one - two).mean())
    assert interval.sd == pytest.approx((one - two).std(ddof=1))


def test_pairs_without_a_score_are_left_out_and_counted():
    assert paired_interval([1.0, np.nan, 3.0]) == paired_interval([1.0, 3.0])
    scores = {"mixmatch-ch": [0.9, np.nan, 0.8, 0.9], "uniform": [0.5, 0.5, 0.5, 0.6]}
    (finding,) = verdict(claim("better", [("CH", "uniform")]), scores).findings
    assert (finding.lacking, finding.advantage.pairs) == (1, 3)


@pytest.mark.parametrize(
    ("relation", "low", "high", "wanted"),
    [
        ("better", 0.01, 0.03, "holds"),
        ("better", -0.01, 0.03, "undecided"),
        ("better", -0.03, -0.01, "refuted"),
        ("better", 0.0, 0.0, "refuted"),
        ("narrower", 0.01, 0.03, "holds"),
        ("narrower", -0.03, -0.01, "refuted"),
        ("≈", -0.01, 0.03, "undecided"),
        ("≈", -0.004, 0.003, "holds"),
        ("≈", 0.001, 0.004, "holds"),
        ("≈", 0.001, 0.006, "undecided"),
        ("≈", 0.006, 0.008, "refuted"),
        ("≈", -0.03, -0.006, "refuted"),
        ("no worse", -0.004, 0.03, "holds"),
        ("no worse", -0.03, 0.01, "undecided"),
        ("no worse", -0.03, -0.006, "refuted"),
    ],
)
def test_outcomes(relation, low, high, wanted):
    assert judge(relation, Interval((low + high) / 2, low, high, 10), 0.005)[0] == wanted


@pytest.mark.parametrize("relation", ["better", "≈", "no worse", "narrower"])
def test_two_repeats_decide_nothing(relation):
    scores = {"mixmatch-ch": [0.90, 0.91], "uniform": [0.5, 0.51], "only:a": [0.1, 0.1]}
    found = verdict(claim(relation, [("CH", "uniform")], than=None), scores)
    assert found.outcome == "undecided"
    assert "decide nothing" in found.shown.reason
    assert found.repeats == np.inf


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=12), st.floats(0.001, 1))
def test_better_and_worse_exclude_each_other(differences, tolerance):
    gap = paired_interval(differences)
    back = paired_interval([-each for each in differences])
    outcomes = {judge("better", each, tolerance)[0] for each in (gap, back)}
    assert outcomes != {"holds"}
    if judge("better", gap, tolerance)[0] == "holds":
        assert judge("no worse", gap, tolerance)[0] == "holds"
        assert judge("better", back, tolerance)[0] == "refuted"


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=12), st.sampled_from(["better", "≈", "no worse"]))
def test_the_repeats_that_are_needed_decide_and_one_less_does_not(differences, relation):
    gap = paired_interval(differences)
    if judge(relation, gap, 0.1)[0] != "undecided":
        return
    wanted = needed_repeats(relation, gap, 0.1)
    if wanted == np.inf:
        return
    assert wanted > gap.pairs

    def outcome(pairs):
        half = student.ppf(0.975, pairs - 1) * gap.sd / np.sqrt(pairs)
        return judge(relation, Interval(gap.mean, gap.mean - half, gap.mean + half, pairs), 0.1)[0]

    assert outcome(wanted) != "undecided"
    assert outcome(wanted - 1) == "undecided"


def test_lower_is_better_turns_the_sign():
    scores = {"mixmatch-ch": [10.0, 11.0, 10.5], "uniform": [12.0, 13.1, 12.4]}
    better = claim("better", [("CH", "uniform")])
    assert verdict(better, scores, higher_is_better=False).outcome == "holds"
    assert verdict(better, scores).outcome == "refuted"


def test_every_pair_must_hold_and_the_worst_is_shown():
    scores = {
        "mixmatch-ch": [0.80, 0.81, 0.82],
        "only:a": [0.50, 0.52, 0.51],
        "only:b": [0.79, 0.82, 0.83],
        "only:a+decay": [0.99, 0.99, 0.99],
    }
    found = verdict(claim("better", every(["CH"], ["only:*"])), scores)
    assert [each.right for each in found.findings] == ["only:a", "only:b"]
    assert found.outcome == "undecided"
    assert found.shown.right == "only:b"
    best = verdict(claim("≈", every(["CH"], ["only:*"]), pick="best"), scores, tolerance=0.5)
    assert [each.right for each in best.findings] == ["only:b"]
    assert best.outcome == "holds"


def test_one_refuted_pair_refutes_a_claim():
    scores = {
        "mixmatch-ch": [0.6, 0.61, 0.62],
        "a": [0.5, 0.5, 0.5],
        "b": [0.7, 0.7, 0.7],
        "c": [0.61, 0.6, 0.65],
    }
    found = verdict(claim("better", every(["CH"], ["a", "b", "c"])), scores)
    assert [each.outcome for each in found.findings] == ["holds", "refuted", "undecided"]
    assert (found.outcome, found.shown.right) == ("refuted", "b")


def test_what_decides_a_claim_of_several_pairs():
    random = np.random.default_rng(3)
    noise = random.normal(0, 0.05, (3, 10))
    noise -= noise.mean(axis=1, keepdims=True)
    zero = np.zeros(10)
    near = {"mixmatch-ch": zero, "a": -0.02 + noise[0], "b": -0.01 + noise[1]}
    found = verdict(claim("better", every(["CH"], ["a", "b"])), near)
    assert [each.likely for each in found.findings] == [True, True]
    assert found.repeats == max(each.repeats for each in found.findings)
    # One that is likely to be refuted decides the claim alone.
    against = verdict(claim("better", every(["CH"], ["a", "b", "c"])), near | {"c": 0.02 + noise[2]})
    assert against.repeats == against.findings[2].repeats < found.repeats


def test_a_gap_is_narrower_whichever_of_the_two_is_ahead():
    scores = {
        "mixmatch-ch": [0.80, 0.81, 0.80],
        "mixmatch-dp": [0.70, 0.70, 0.71],
        "mixmatch-ch+commit": [0.80, 0.80, 0.81],
        "mixmatch-dp+commit": [0.82, 0.83, 0.82],
    }
    narrower = claim("narrower", [("CH+commit", "DP+commit")], than=("CH", "DP"))
    found = verdict(narrower, scores)
    assert found.outcome == "holds"
    assert found.shown.advantage.mean == pytest.approx((0.30 - 0.06) / 3)
    turned = claim("narrower", [("CH", "DP")], than=("CH+commit", "DP+commit"))
    assert verdict(turned, scores).outcome == "refuted"


def test_a_claim_about_nobody_is_an_error():
    with pytest.raises(InputError, match="no scores of 'genie'"):
        verdict(claim("≈", [("CH", "genie")]), {"mixmatch-ch": [1.0, 2.0]})
