"""The verdict's sentence, its JSON, and its advice."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from mixtree.estimate import HullTest
from mixtree.metrics import AUROC, MAE
from mixtree.verdict import (
    CrossFit,
    Difference,
    ScoreInterval,
    honest_score,
    learning_curve,
    make_verdict,
    mixture_uncertainty,
    paired_difference,
    rows_or_budget,
    without_source,
)
from mixtree.verdict.words import against_words, number, table_cell

SCORE = ScoreInterval(0.812, 0.75, 0.86, 60, "DeLong", False)


def gap(
    value: float, low: float, high: float, p: float, *, rows: int = 120, higher: bool = True
) -> Difference:
    return Difference(value, low, high, p, rows, "made up", higher)


def test_not_distinguishable_is_said_plainly() -> None:
    verdict = make_verdict(AUROC, SCORE, against={"uniform": gap(0.005, -0.01, 0.02, 0.4)})
    assert verdict.sentence == (
        "Not distinguishable from uniform on your 120 rows (95 % interval −0.010 … +0.020); "
        "auroc 0.812 (95 % interval 0.750 … 0.860) on 60 rows that chose nothing."
    )


def test_better_worse_and_the_same() -> None:
    better = make_verdict(MAE, SCORE, against={"uniform": gap(-0.3, -0.5, -0.1, 0.01, higher=False)})
    assert better.sentence.startswith("Better than uniform by 0.300 on your 120 rows")
    worse = make_verdict(AUROC, SCORE, against={"uniform": gap(-0.3, -0.5, -0.1, 0.01)})
    assert worse.sentence.startswith("Worse than uniform by 0.300")
    assert any(note.startswith("uniform is better by 0.300") for note in worse.notes)
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
        "; worse than pooled by 0.100 on your 120 rows (95 % interval 0.050 … 0.150); auroc"
        in verdict.sentence
    )
    assert "only a" not in verdict.sentence


def test_differences_are_said_to_be_of_one_training_each() -> None:
    words = "every model that is compared was trained once"
    for each, there in ((gap(-0.3, -0.5, -0.1, 0.01), True), (gap(0.0, -0.1, 0.1, 0.9), False)):
        notes = make_verdict(AUROC, SCORE, against={"uniform": each}).notes
        assert any(note.startswith(words) for note in notes) is there


def test_training_on_the_targets_rows_alone_is_advised_where_it_wins() -> None:
    verdict = make_verdict(AUROC, SCORE, against={"validation": gap(-0.1, -0.15, -0.05, 0.001)})
    assert any("training on your own rows alone is better by 0.100" in note for note in verdict.notes)


def test_an_optimistic_score_is_never_quoted_alone() -> None:
    chosen = ScoreInterval(0.9, 0.8, 0.95, 100, "DeLong", True)
    verdict = make_verdict(AUROC, chosen, optimism=0.03, queries=40)
    assert "optimistic; expect about 0.030 of it to be chance" in verdict.sentence
    assert any("looked at 40 times" in note for note in verdict.notes)
    honest = make_verdict(AUROC, SCORE, chosen_on=chosen, optimism=0.03, queries=40)
    assert "0.900" not in honest.sentence
    assert any("0.900, which is no honest score" in note for note in honest.notes)
    crossed = make_verdict(AUROC, CrossFit(0.8, 0.7, 0.9, 0.85, 0.05, 30, 80))
    assert "partly optimistic (uncorrected 0.850 would be optimistic, by about 0.050)" in crossed.sentence
    assert any("test rows or a holdout" in note for note in crossed.notes)
    failed = make_verdict(AUROC, CrossFit(0.85, 0.7, 0.9, 0.85, float("nan"), 30, 80))
    assert "also chose the model: optimistic" in failed.sentence


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
        warnings=["beware", "beware"],
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
    ]
    assert (plain["metric"], plain["higher_is_better"], plain["of"]) == ("auroc", True, "the returned model")
    assert plain["optimistic"] is False and str(verdict) == verdict.sentence
    assert (plain["reference_spent"], plain["warnings"]) == ({"uniform": 40}, ["beware"])
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
    assert "no honest score of the returned model: metric 'auroc' compares classes" in verdict.sentence
    plain = json.loads(json.dumps(verdict.as_dict(), allow_nan=False))
    assert plain["score"] == {"value": None, "low": None, "high": None, "rows": 12}
    assert plain["hull"] == {"p": None, "inside": None}
    empty = make_verdict(AUROC, None).as_dict()
    assert empty["sentence"] == "No honest score of the returned model." and empty["score"]["rows"] == 0
    diverged = make_verdict(MAE, honest_score(MAE, np.zeros(30), np.full(30, np.nan), rows_role="test"))
    assert "diverged" in diverged.sentence


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
    (line,) = rows_or_budget(AUROC, by_rows=rows, by_steps=steps)
    assert line.endswith("more target rows are worth more")
    (line,) = rows_or_budget(AUROC, by_rows=rows, by_steps=steps, noise=0.2)
    assert "below the noise of 0.200" in line
    (line,) = rows_or_budget(AUROC, by_rows=rows)
    assert line.endswith("twice the target rows 0.035")
    assert rows_or_budget(AUROC) == ()


def test_advice_on_a_source() -> None:
    assert "keep it" in without_source(AUROC, "a", gap(0.1, 0.05, 0.2, 0.01))
    assert "drop it" in without_source(AUROC, "a", gap(-0.1, -0.2, -0.05, 0.01))
    assert "cannot show whether a makes" in without_source(AUROC, "a", gap(0.01, -0.05, 0.05, 0.6))
    unknown = Difference(np.nan, np.nan, np.nan, np.nan, 10, "none", True)
    assert "could not be measured" in without_source(AUROC, "a", unknown)


def test_a_gain_is_positive_whichever_way_the_metric_points() -> None:
    lower = Difference(-9.3, -14.3, -5.5, 0.01, 90, "made up", False)
    assert against_words("uniform", lower) == (
        "better than uniform by 9.300 on your 90 rows (95 % interval 5.500 … 14.30)"
    )
    assert "(95 % interval 5.500 … 14.30)" in without_source(MAE, "a", lower)


def test_no_gain_goes_beyond_the_best_there_is() -> None:
    (line,) = rows_or_budget(AUROC, by_steps={100: 0.5, 200: 0.8, 400: 0.97}, noise=0.001)
    gain = float(line.split("twice the budget ")[1].split(";")[0])
    assert 0.0 < gain < 0.05 and line.endswith("the noise is 0.001")
    (line,) = rows_or_budget(MAE, by_steps={100: 1.0, 200: 0.4, 400: 0.02})
    assert float(line.split("twice the budget ")[1]) <= 0.021


def test_a_source_with_weight_whose_rows_others_have_is_not_called_weightless() -> None:
    same = Difference(0.0, 0.0, 0.0, 1.0, 50, "identical", True)
    assert without_source(AUROC, "a", same) == "without a nothing changes: it has no weight in the mixture"
    assert without_source(AUROC, "a", same, weight=0.5).endswith("the others predict the same")


def test_the_sentence_says_what_the_rows_did() -> None:
    of = "fits like the returned one, each on 80% of the rows"
    nested = make_verdict(AUROC, replace(SCORE, role="nested"), of=of)
    assert nested.sentence.endswith("on 60 rows that chose nothing in their own fold.")
    assert nested.as_dict()["of"] == of
    trained = make_verdict(AUROC, replace(SCORE, role="trained", optimistic=True))
    assert trained.sentence.endswith("rows that also trained the model: worthless as a score.")
    twins = make_verdict(AUROC, CrossFit(0.8, 0.7, 0.9, 0.85, 0.05, 30, 80, did="trained"))
    assert "cross-fitted on the 80 rows that also trained the model" in twins.sentence
    assert [each.as_dict()["optimistic"] for each in (nested, trained, twins)] == [False, True, True]


@pytest.mark.parametrize(
    ("value", "text", "cell"),
    [
        (0.0, "0", "0"),
        (0.8124, "0.812", "+0.8124"),
        (9.9996, "10.00", "+9.9996"),
        (999.9996, "1,000", "+1,000"),
        (-23674.9, "−23,675", "−23,675"),
        (-1e-5, "−1e−05", "−1e−05"),
        (0.0007, "0.0007", "+0.0007"),
    ],
)
def test_numbers_have_enough_digits(value: float, text: str, cell: str) -> None:
    assert (number(value), table_cell(value)) == (text, cell)
