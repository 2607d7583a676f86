"""The verdict's three lines, its JSON, and its advice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixtree.estimate import HullTest
from mixtree.metrics import AUROC, MAE
from mixtree.verdict import (
    CrossFit,
    Difference,
    ScoreInterval,
    Verdict,
    honest_score,
    learning_curve,
    make_verdict,
    mixture_uncertainty,
    no_verdict,
    paired_difference,
    rows_or_budget,
    without_source,
)
from mixtree.verdict.sentences import against_words, figures, number, number_beside, table_row

SCORE = ScoreInterval(0.812, 0.75, 0.86, 60, "DeLong", False)


def gap(
    value: float, low: float, high: float, p: float, *, rows: int = 120, higher: bool = True
) -> Difference:
    return Difference(value, low, high, p, rows, "made up", higher)


def test_not_distinguishable_is_said_plainly() -> None:
    verdict = make_verdict(AUROC, SCORE, against={"uniform": gap(0.005, -0.01, 0.02, 0.4)})
    assert str(verdict).splitlines() == [
        "Not distinguishable from uniform on your 120 rows, though 0.005 better (95 % interval 0.010 worse … "
        "0.020 better).",
        "Expect auroc 0.812 (95 % interval 0.750 … 0.860), measured on 60 rows that chose nothing.",
        "Next: use the model or uniform: differences below about 0.015 do not show on these 120 rows.",
    ]
    assert verdict.sentence == " ".join(str(verdict).splitlines()[:2])


def test_what_limits_the_worth_of_the_figures_is_printed_with_them() -> None:
    verdict = make_verdict(AUROC, SCORE, warnings=["60 of 60 rows also stand in source 'a'"])
    assert str(verdict).splitlines()[3:] == ["Warning: 60 of 60 rows also stand in source 'a'"]


@pytest.mark.parametrize(("value", "higher"), [(-0.02, True), (0.02, False)])
def test_a_point_estimate_that_is_worse_is_said_in_the_sentence(value: float, higher: bool) -> None:
    sides = (-0.06, 0.04) if value < 0 else (-0.04, 0.06)
    metric = AUROC if higher else MAE
    verdict = make_verdict(metric, SCORE, against={"uniform": gap(value, *sides, 0.4, higher=higher)})
    assert verdict.comparison == (
        "Not distinguishable from uniform on your 120 rows, and 0.020 worse (95 % interval 0.060 worse … "
        "0.040 better)."
    )
    assert verdict.next_step.startswith("Use uniform, which is simpler, or this model")
    even = make_verdict(metric, SCORE, against={"uniform": gap(0.0, -0.06, 0.06, 1.0, higher=higher)})
    assert even.comparison.startswith("Not distinguishable from uniform on your 120 rows (")


def test_an_interval_that_ends_at_nothing_names_no_side_of_it() -> None:
    even = gap(0.04, 0.0, 0.08, 0.07)
    assert against_words("uniform", even).endswith("though 0.040 better (95 % interval 0 … 0.080 better)")
    even = gap(-0.04, -0.08, 0.0, 0.07)
    assert against_words("uniform", even).endswith("and 0.040 worse (95 % interval 0.080 worse … 0)")


def test_the_next_step_follows_from_the_figures() -> None:
    better, even = gap(0.1, 0.05, 0.15, 0.001), gap(0.0, -0.1, 0.1, 0.9)
    worse = gap(-0.1, -0.15, -0.05, 0.001)
    outside = HullTest(0.01, False, 9.0, 3, 5, None, "", 80, 0.9)
    wide = replace(SCORE, low=0.2, high=1.0)

    def step(score: ScoreInterval | CrossFit | None = SCORE, **how: Any) -> str:
        return make_verdict(AUROC, score, **how).next_step

    assert step(against={"uniform": better}) == "Use the model."
    assert step(against={"uniform": even}).startswith("Use the model or uniform")
    assert step(against={"uniform": even, "only a": worse}) == "Use only a instead of this model."
    assert step(against={"uniform": better}, next_step="raise the budget") == "Raise the budget."
    assert step(against={"uniform": worse}, next_step="raise the budget").startswith("Use uniform")
    assert step(against={"uniform": better}, hull=outside).startswith("Label more rows of the target")
    tried = step(against={"uniform": even}, hull=outside, tuned=False, tried=True)
    assert tried.startswith("Look for sources closer")
    assert step(wide, against={"uniform": even}) == (
        "Label more rows of the target: these 60 say next to nothing."
    )
    assert "test rows or at least 150 validation rows" in step(CrossFit(0.8, 0.7, 0.9, 0.85, 0.05, 30, 80))
    assert step(None).startswith("Give test rows")
    assert step(needed="give a predict method", against={"uniform": worse}) == "Give a predict method."


def test_a_gain_that_is_not_the_mixture_s_is_said_to_be_none_of_it() -> None:
    cause = "by the last 9 steps on the target's own rows"
    better = make_verdict(AUROC, SCORE, against={"uniform": gap(0.1, 0.05, 0.15, 0.001)}, cause=cause)
    assert better.comparison.endswith(f", {cause}.")
    even = make_verdict(AUROC, SCORE, against={"uniform": gap(0.0, -0.1, 0.1, 0.9)}, cause=cause)
    assert cause not in even.comparison


def test_verdicts_of_earlier_versions_still_load() -> None:
    verdict = make_verdict(AUROC, SCORE, against={"uniform": gap(0.1, 0.05, 0.15, 0.001)}, notes=["a note"])
    plain = verdict.as_dict()
    assert Verdict.from_dict(plain).as_dict() == plain
    old = {key: each for key, each in plain.items() if key not in ("comparison", "expectation", "next_step")}
    loaded = Verdict.from_dict(old)
    assert loaded.sentence == str(loaded) == old["sentence"] and loaded.next_step == ""


def test_a_verdict_may_say_only_why_there_is_none() -> None:
    assert str(no_verdict("none", "there is one class", next_step="add rows")) == (
        "There is one class.\nNext: add rows."
    )


def test_better_worse_and_the_same() -> None:
    better = make_verdict(MAE, SCORE, against={"uniform": gap(-0.3, -0.5, -0.1, 0.01, higher=False)})
    assert better.sentence.startswith("Better than uniform by 0.300 on your 120 rows")
    worse = make_verdict(AUROC, SCORE, against={"uniform": gap(-0.3, -0.5, -0.1, 0.01)})
    assert worse.sentence.startswith("Worse than uniform by 0.300")
    assert worse.next_step == "Use uniform instead of this model."
    same = make_verdict(AUROC, SCORE, against={"uniform": gap(0.0, 0.0, 0.0, 1.0)})
    assert same.sentence.startswith("The same predictions as uniform")


def test_several_references_are_corrected() -> None:
    close = gap(0.1, 0.01, 0.2, 0.03)
    verdict = make_verdict(AUROC, SCORE, against={"uniform": close, "pooled": close})
    assert verdict.sentence.startswith("Not distinguishable from uniform")
    assert [each["p"] for each in verdict.as_dict()["against"]] == pytest.approx([0.06, 0.06])
    assert not any("pooled" in note for note in verdict.notes)  # the table has it
    lost = Difference(*[float("nan")] * 4, 100, "none", True, ("it diverged",))
    told = make_verdict(AUROC, SCORE, against={"uniform": close, "pooled": lost}).notes
    assert "Not comparable with pooled: it diverged." in told


def test_what_is_surely_better_than_the_model_is_in_the_sentence() -> None:
    even, lost = gap(0.01, -0.05, 0.07, 0.6), gap(-0.1, -0.15, -0.05, 0.001)
    verdict = make_verdict(AUROC, SCORE, against={"uniform": even, "pooled": lost, "only a": even})
    assert verdict.sentence.startswith("Not distinguishable from uniform")
    assert (
        "; worse than pooled by 0.100 on your 120 rows (95 % interval 0.050 … 0.150). Expect auroc"
        in verdict.sentence
    )
    assert "only a" not in verdict.sentence


def test_differences_are_said_to_be_of_one_training_each() -> None:
    words = "each model that is compared was trained once"
    for each, there in ((gap(-0.3, -0.5, -0.1, 0.01), True), (gap(0.0, -0.1, 0.1, 0.9), False)):
        notes = make_verdict(AUROC, SCORE, against={"uniform": each}).notes
        assert any(note.startswith(words) for note in notes) is there


def test_training_on_the_targets_rows_alone_is_advised_where_it_wins() -> None:
    verdict = make_verdict(AUROC, SCORE, against={"validation": gap(-0.1, -0.15, -0.05, 0.001)})
    assert verdict.comparison.startswith("Worse than validation by 0.100")
    assert verdict.next_step.startswith("Train on the target's own rows (policy 'validation' or 'fine-tune')")


def test_an_optimistic_score_is_never_quoted_alone() -> None:
    chosen = ScoreInterval(0.9, 0.8, 0.95, 100, "DeLong", True)
    verdict = make_verdict(AUROC, chosen, optimism=0.03, queries=40)
    assert verdict.expectation.startswith("Expect worse than auroc 0.900")
    assert verdict.expectation.endswith("also chose the model: optimistic by about 0.030.")
    assert any("looked at 40 times" in note for note in verdict.notes)
    honest = make_verdict(AUROC, SCORE, chosen_on=chosen, optimism=0.03, queries=40)
    assert "0.900" not in honest.sentence
    assert any("0.900, which is no honest score" in note for note in honest.notes)
    crossed = make_verdict(AUROC, CrossFit(0.8, 0.7, 0.9, 0.85, 0.05, 30, 80))
    assert crossed.expectation.endswith(
        "also chose the model: 0.850 there, less 0.050 for choosing; still partly optimistic."
    )
    lower = make_verdict(MAE, CrossFit(0.9, 0.7, 1.1, 0.85, 0.05, 30, 80))
    assert "0.850 there, plus 0.050 for choosing" in lower.expectation
    failed = make_verdict(AUROC, CrossFit(0.85, 0.7, 0.9, 0.85, float("nan"), 30, 80))
    assert "also chose the model: optimistic" in failed.sentence


def test_what_was_corrected_is_said_the_same_way_in_answer_and_notes() -> None:
    """Less than is shown was found: nothing, as far as anybody can see."""
    told = make_verdict(AUROC, CrossFit(0.8, 0.7, 0.9, 0.8, 0.00002, 30, 80), optimism=0.03, queries=40)
    assert told.expectation.endswith("partly optimistic, though nothing was found to correct.")
    assert not any("the score is corrected" in note for note in told.notes)
    told = make_verdict(AUROC, CrossFit(0.8, 0.7, 0.9, 0.85, 0.05, 30, 80), optimism=0.03, queries=40)
    assert any("the score is corrected for those that were" in note for note in told.notes)


def test_sizes_have_the_decimals_of_the_figures_beside_them() -> None:
    even = gap(0.0027, -0.0071, 0.0120, 0.8)
    told = make_verdict(AUROC, SCORE, against={"uniform": even})
    assert "differences below about 0.010 do not show" in told.next_step
    small = ScoreInterval(0.0012, 0.0010, 0.0014, 60, "t", False)
    told = make_verdict(MAE, small, optimism=0.00004, queries=40)  # trained on the rows that chose it
    assert told.notes[0].endswith("better than it is by less than 0.0001")
    steps = {100: 0.00121, 200: 0.001205, 400: 0.0012}
    for noise, more in ((0.00003, "; that is below the noise"), (1e-9, "")):
        found = rows_or_budget(MAE, by_steps=steps, noise=noise)
        assert found.notes[0].endswith(f"less than 0.0001 from twice the budget{more}")
        assert found.next_step == ""


def test_the_rest_of_a_gain_is_no_mixture_s_where_the_answer_says_so() -> None:
    outside = HullTest(0.01, False, 9.0, 3, 5, None, "", 80, None)
    better = {"uniform": gap(0.1, 0.05, 0.15, 0.001)}
    told = make_verdict(AUROC, SCORE, against=better, hull=outside, by_rows=0.06)
    assert told.notes[0].endswith("the rest from the mixture.")
    told = make_verdict(
        AUROC, SCORE, against=better, hull=outside, by_rows=0.06, cause="but not by its mixture"
    )
    assert told.notes[0].endswith("the rest from the way it was trained.")


def test_the_json_has_exactly_its_fields() -> None:
    mixture = mixture_uncertainty({"a": 0.4, "b": 0.6})
    verdict = make_verdict(
        AUROC,
        SCORE,
        against={"uniform": gap(0.1, 0.05, 0.2, 0.003)},
        hull=HullTest(0.3, True, 1.0, 3, 5, None, "", 80, 0.9),
        mixture=mixture,
        queries=31,
        notes=["one more"],
        reference_spent={"uniform": 40},
        warnings=["few rows", "few rows"],
    )
    plain = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
    keys = ["sentence", "score", "against", "hull", "mixture", "queries", "notes"]
    assert list(plain) == [
        *keys,
        "reference_spent",
        "warnings",
        "metric",
        "higher_is_better",
        "of",
        "optimistic",
        "comparison",
        "expectation",
        "next_step",
    ]
    assert (plain["metric"], plain["higher_is_better"], plain["of"]) == ("auroc", True, "the returned model")
    assert plain["optimistic"] is False and plain["sentence"] == verdict.sentence
    assert (plain["reference_spent"], plain["warnings"]) == ({"uniform": 40}, ["few rows"])
    assert plain["score"] == {"value": 0.812, "low": 0.75, "high": 0.86, "rows": 60}
    assert plain["against"] == [{"name": "uniform", "difference": 0.1, "low": 0.05, "high": 0.2, "p": 0.003}]
    assert plain["hull"] == {"p": 0.3, "inside": True}
    assert plain["mixture"]["b"] == {"weight": 0.6, "low": 0.0, "high": 1.0}
    assert plain["queries"] == 31 and "one more" in plain["notes"]
    assert any(note.startswith("A mixture can serve this target") for note in plain["notes"])


def test_nothing_known_is_still_a_verdict() -> None:
    y = np.ones(12, dtype=int)
    p = np.full((12, 2), 0.5)
    broken = np.full((12, 2), np.nan)
    verdict = make_verdict(
        AUROC,
        honest_score(AUROC, y, p, rows_role="test"),
        against={"uniform": paired_difference(AUROC, y, p, broken)},
    )
    assert verdict.sentence.startswith("Not comparable with uniform: ")
    assert "No honest score of the returned model: metric 'auroc' compares classes" in verdict.sentence
    y_alone = np.full((12, 2), 0.5)
    twice = make_verdict(
        AUROC,
        honest_score(AUROC, y, y_alone, rows_role="test"),
        against={"uniform": paired_difference(AUROC, y, y_alone, y_alone)},
    )
    assert twice.expectation == "No honest score of the returned model: for the same reason."
    plain = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
    assert plain["score"] == {"value": None, "low": None, "high": None, "rows": 12}
    assert plain["hull"] == {"p": None, "inside": None}
    empty = make_verdict(AUROC, None).as_dict()
    assert empty["expectation"] == "No honest score of the returned model." and empty["score"]["rows"] == 0
    diverged = make_verdict(MAE, honest_score(MAE, np.zeros(30), np.full(30, np.nan), rows_role="test"))
    assert "diverged" in diverged.sentence and diverged.next_step == "Fit again with a smaller step size."


def test_few_rows_are_in_the_notes() -> None:
    rng = np.random.default_rng(0)
    score = honest_score(MAE, np.zeros(8), rng.normal(size=8), rows_role="test")
    assert any("only 8 rows" in note for note in make_verdict(MAE, score).notes)


def test_a_learning_curve_extrapolates() -> None:
    curve = learning_curve({n: 0.9 - 1.0 / np.sqrt(n) for n in (25, 50, 100)})
    assert curve is not None
    assert (curve.limit, curve.slope) == pytest.approx((0.9, -1.0))
    assert curve.gain(AUROC, 100) == pytest.approx(0.1 - 1 / np.sqrt(200))
    assert curve.gain(MAE, 100) == 0.0  # it would get worse: no gain
    assert learning_curve({100: 0.7}) is None
    assert learning_curve({100: 0.7, 200: np.nan}) is None


def test_rows_or_budget() -> None:
    rows, steps = {50: 0.70, 100: 0.75}, {500: 0.745, 1000: 0.75}
    found = rows_or_budget(AUROC, by_rows=rows, by_steps=steps, noise=0.01)
    assert found.notes[0].endswith("more target rows are worth more")
    assert found.next_step == (
        "label more rows of the target: twice as many is expected to gain 0.035 in auroc"
    )
    found = rows_or_budget(AUROC, by_rows=rows, by_steps=steps, noise=0.2)
    assert "below the noise (0.200)" in found.notes[0] and found.next_step == ""
    found = rows_or_budget(AUROC, by_rows=rows)
    assert found.notes[0].endswith("0.035 from twice the target rows") and found.next_step == ""
    (line,) = rows_or_budget(MAE, by_steps={100: 0.5, 200: 0.6}).notes
    assert "nothing from twice the budget; that is below the noise" in line
    assert rows_or_budget(AUROC).notes == ()


def test_advice_on_a_source() -> None:
    assert "keep it" in without_source(AUROC, "a", gap(0.1, 0.05, 0.2, 0.01))
    assert "drop it" in without_source(AUROC, "a", gap(-0.1, -0.2, -0.05, 0.01))
    assert "cannot show whether a makes" in without_source(AUROC, "a", gap(0.01, -0.05, 0.05, 0.6))
    unknown = Difference(np.nan, np.nan, np.nan, np.nan, 10, "none", True)
    assert "could not be measured" in without_source(AUROC, "a", unknown)


def test_a_gain_is_positive_whichever_way_the_metric_points() -> None:
    lower = Difference(-9.3, -14.3, -5.5, 0.01, 90, "made up", False)
    assert against_words("uniform", lower) == (
        "better than uniform by 9.30 on your 90 rows (95 % interval 5.50 … 14.30)"
    )
    assert "(95 % interval 5.50 … 14.30)" in without_source(MAE, "a", lower)


def test_no_gain_goes_beyond_the_best_there_is() -> None:
    (line,) = rows_or_budget(AUROC, by_steps={100: 0.5, 200: 0.8, 400: 0.97}, noise=0.001).notes
    gain = float(line.split("extrapolation: ")[1].split(" ")[0])
    assert 0.0 < gain < 0.05 and line.endswith("the noise is 0.001")
    (line,) = rows_or_budget(MAE, by_steps={100: 1.0, 200: 0.4, 400: 0.02}).notes
    assert float(line.split("extrapolation: ")[1].split(" ")[0]) <= 0.021


def test_a_source_with_weight_whose_rows_others_have_is_not_called_weightless() -> None:
    same = Difference(0.0, 0.0, 0.0, 1.0, 50, "identical", True)
    assert without_source(AUROC, "a", same) == "without a nothing changes: it has no weight in the mixture"
    assert without_source(AUROC, "a", same, weight=0.5).endswith("the others predict the same")


def test_the_sentence_says_what_the_rows_did() -> None:
    of = "fits like the returned one, each on 80% of the rows"
    nested = make_verdict(AUROC, replace(SCORE, role="nested"), of=of)
    assert nested.sentence.endswith("by fits like this one, none of which saw the rows it was scored on.")
    assert nested.as_dict()["of"] == of
    trained = make_verdict(AUROC, replace(SCORE, role="trained", optimistic=True))
    assert trained.sentence.endswith("rows that also trained the model, worthless as a score.")
    twins = make_verdict(AUROC, CrossFit(0.8, 0.7, 0.9, 0.85, 0.05, 30, 80, did="trained"))
    assert "from twins of the model, each trained on half of the 80 rows" in twins.sentence
    assert [each.as_dict()["optimistic"] for each in (nested, trained, twins)] == [False, True, True]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.8124, "0.812"),
        (9.9996, "10.00"),
        (999.9996, "1,000"),
        (-23674.9, "−23,675"),
        (-1e-5, "−0.000010"),
        (0.0007, "0.00070"),
        (8.1e-9, "8.1e−09"),
    ],
)
def test_numbers_have_enough_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_numbers_beside_each_other_have_as_many_decimals() -> None:
    assert figures(0.993, 8.2e-5, 1.0) == ["0.993", "0.000", "1.000"]
    assert figures(1234.5, 0.2) == ["1,234", "0"]
    assert figures(3e-9, 2.5e-8) == ["3.0e−09", "2.5e−08"]
    assert figures(0.00004, 0.2, visible=True) == ["0.00004", "0.20000"]
    assert number_beside(2e-5, 0.9) == "less than 0.001"
    row = {"difference": -0.045, "low": -0.9, "high": 8.2e-5, "p": 1e-7}
    assert table_row(row) == ("−0.0450", "−0.9000 … +0.0001", "< 0.001")
    unknown = {"difference": None, "low": None, "high": None, "p": None}
    assert table_row(unknown) == ("–", "– … –", "–")


def test_an_interval_that_says_nothing_is_called_so() -> None:
    wide = make_verdict(AUROC, replace(SCORE, value=1.0, low=8.2e-5, high=1.0))
    assert "auroc 1.000 (95 % interval 0.000 … 1.000: these rows cannot tell)" in wide.sentence
