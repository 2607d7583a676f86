"""Why claims fail: paragraphs from made-up reports whose numbers are known."""

import numpy as np
import pytest

from mixtree.experiments.claims import Claim, check
from mixtree.experiments.comparison import Run
from mixtree.experiments.report import Report, _cell
from mixtree.experiments.reproduce import Plan, Recipe, Scored
from mixtree.experiments.specs import EXPERIMENTS
from mixtree.experiments.why import why

ROWS = {"FL": 7206, "CT": 1418, "OH": 150, "validation": 286, "test": 1428}
UNIFORM = {"FL": 1 / 3, "CT": 1 / 3, "OH": 1 / 3}
NOISE = np.array([-0.001, 0.0, 0.001, 0.0])


def report_of(tmp_path, models):
    """By algorithm: score, batches seen, mixture, training loss, test loss."""
    experiment = EXPERIMENTS["allstate"]
    recipes = dict.fromkeys(models, Recipe(0.3, 5))
    plan = Plan(experiment, "own", recipes, (600,), len(NOISE), tmp_path)
    scored = [
        Scored(
            Run(name, repeat, 0.5, 0.9, score + (1 + place) * noise, mixture, 600, {"train": 600}, 1.0),
            seen,
            (),
            {source: seen * 100 * weight for source, weight in mixture.items()},
            fitted,
            loss,
        )
        for place, (name, (score, seen, mixture, fitted, loss)) in enumerate(models.items())
        for repeat, noise in enumerate(NOISE)
    ]
    cells = [_cell(plan, scored, name, 600) for name in models]
    return Report(plan, scored, cells, [], {}, ROWS)


def told(result, relation, *pairs, than=None):
    scores = {name: result.scores(name) for name in result.plan.recipes}
    claim = Claim("a sentence", "a section", relation, pairs, than=than)
    names = {"CH": "mixmatch-ch", "DP": "mixmatch-dp"}
    verdict = check(claim, scores, names=names, tolerance=0.005, higher_is_better=True)
    assert verdict.outcome == "refuted"
    return why(result, verdict)


@pytest.fixture
def result(tmp_path):
    found = {"FL": 0.2, "CT": 0.7, "OH": 0.1}
    return report_of(
        tmp_path,
        {
            "uniform": (0.94, 600, UNIFORM, 0.2, 0.44),
            "genie": (0.93, 600, {"FL": 0.05, "CT": 0.85, "OH": 0.10}, 0.1, 0.64),
            "mixmatch-ch": (0.86, 84, found, 0.5, 0.6),
            "mixmatch-dp": (0.88, 76, found, 0.5, 0.6),
            "mixmatch-ch+commit": (0.80, 382, found, 0.5, 0.6),
            "mixmatch-dp+commit": (0.90, 374, found, 0.5, 0.6),
            "retrained:mixmatch-ch": (0.93, 600, found, 0.3, 0.5),
            "retrained:mixmatch-dp": (0.935, 600, found, 0.3, 0.5),
        },
    )


def test_a_searchs_gap_is_split_into_batches_and_mixture(result):
    text = told(result, "better", ("CH", "uniform"))
    assert "has seen 84 of 600 batches, `uniform` one that has seen 600" in text
    assert "FL 0.20 CT 0.70 OH 0.10" in text
    assert "score 0.9300" in text
    assert "of -0.0800, -0.0700 [" in text
    assert "is due to the batches and -0.0100 [" in text


def test_two_searches_are_compared_by_their_retrained_mixtures(result):
    text = told(result, "better", ("CH", "DP"))
    assert "84 of 600 batches, `mixmatch-dp` one that has seen 76" in text
    assert "score 0.9350: of the difference of -0.0200, -0.0050 [" in text
    assert "the batches cost `mixmatch-ch` +0.0700 and `mixmatch-dp` +0.0550" in text


def test_the_genie_is_explained_by_the_rows_it_sees(result):
    text = told(result, "no worse", ("genie", "uniform"))
    distinct = sum(ROWS[name] * (1 - np.exp(-60_000 * weight / ROWS[name])) for name, weight in
                   {"FL": 0.05, "CT": 0.85, "OH": 0.10}.items())  # fmt: skip
    assert f"`genie` draws 60,000 rows, of which about {distinct:,.0f} are distinct" in text
    assert "85% of them are from CT, whose 1,418 rows it sees 36.0 times each" in text
    assert "Its training loss is 0.1, its test loss 0.64." in text
    assert "`genie` fits what it has seen more closely and does worse on the rest" in text


def test_rows_that_explain_nothing_are_not_said_to(tmp_path):
    models = {"uniform": (0.94, 600, UNIFORM, 0.1, 0.44), "genie": (0.93, 600, UNIFORM, 0.2, 0.64)}
    text = told(report_of(tmp_path, models), "no worse", ("genie", "uniform"))
    assert "by heart" not in text


def test_validations_rows_are_the_targets(tmp_path):
    models = {"uniform": (0.7, 600, UNIFORM, 0.5, 0.9), "validation": (0.9, 600, {"target": 1.0}, 0.1, 0.4)}
    text = told(report_of(tmp_path, models), "better", ("uniform", "validation"))
    assert "100% of them are from target, whose 286 rows it sees 209.8 times each" in text
    assert "does not carry over" in text


def test_a_gap_that_is_no_narrower_shows_both(result):
    text = told(result, "narrower", ("CH+commit", "DP+commit"), than=("CH", "DP"))
    assert "`mixmatch-ch` over `mixmatch-dp` is -0.0200 [" in text
    assert "with half of the budget committed -0.1000 [" in text
    assert "`mixmatch-ch` 84, `mixmatch-dp` 76, `mixmatch-ch+commit` 382, `mixmatch-dp+commit` 374" in text
