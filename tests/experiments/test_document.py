"""What the page says, from made-up reports whose outcomes are known."""

from dataclasses import replace

import numpy as np
import pytest

from mixtree.experiments import document
from mixtree.experiments.claims import Claim, check
from mixtree.experiments.comparison import Run
from mixtree.experiments.report import Report, _cell
from mixtree.experiments.reproduce import Plan, Recipe, Scored
from mixtree.experiments.specs import EXPERIMENTS
from mixtree.experiments.tuning import Point, Sweep

CLAIMS = (
    Claim("CH better than uniform", "a section", "better", (("CH", "uniform"),)),
    Claim("DP better than uniform", "a section", "better", (("DP", "uniform"),)),
)
NOISE = np.array([-0.001, 0.0, 0.001, 0.0])


def report_of(setting, folder, *, lr, gaps):
    """``gaps`` are the advantages of CH and DP over uniform."""
    experiment = replace(EXPERIMENTS["amazon"], claims=CLAIMS)
    names = ("mixmatch-ch", "mixmatch-dp", "uniform")
    plan = Plan(experiment, setting, dict.fromkeys(names, Recipe(lr, 20)), (600,), len(NOISE), folder)
    tests = dict(zip(names, (*gaps, 0.0), strict=True))
    scores = {name: 0.7 + gap + (1 + place) * NOISE for place, (name, gap) in enumerate(tests.items())}
    scored = [
        Scored(Run(name, repeat, 0.5, 0.9, score, {}, 600, {}, 1.0), 600, (), {}, 0.1, 0.1, cpu=3.0)
        for name in names
        for repeat, score in enumerate(scores[name])
    ]
    ids = {"CH": "mixmatch-ch", "DP": "mixmatch-dp"}
    verdicts = [check(claim, scores, names=ids, tolerance=0.005, higher_is_better=True) for claim in CLAIMS]
    return Report(plan, scored, [], verdicts, {"uniform": Sweep("uniform", (), lr, "", cpu=24.0)}, {})


@pytest.fixture
def grouped(tmp_path):
    return [
        [
            report_of("shared", tmp_path, lr=0.1, gaps=(0.1, -0.1)),
            report_of("own", tmp_path, lr=0.1, gaps=(0.1, 0.1)),
        ]
    ]


def test_what_has_the_same_outcome_in_every_setting_is_said(grouped):
    text = document._overview(grouped)
    assert "one η for all: 1 hold, 1 are refuted, 0 undecided" in text
    assert "| DP better than uniform | a section | refuted | **holds** |" in text
    assert "In every setting hold:\n\n- amazon: CH better than uniform." in text
    assert "In every setting are refuted" not in text


def test_runs_that_settings_share_cost_once(grouped, tmp_path):
    assert "took 1.0 CPU minutes (amazon 1.0)" in document._about(grouped, "mixtree reproduce amazon")
    apart = [[grouped[0][0], report_of("own", tmp_path, lr=0.3, gaps=(0.1, 0.1))]]
    assert "took 1.6 CPU minutes (amazon 1.6)" in document._about(apart, "mixtree reproduce amazon")


def test_figures_have_the_papers_numbers(grouped):
    text = document._figures(grouped)
    file = "[reproduce-amazon-budgets.png](figures/reproduce-amazon-budgets.png)"
    assert f"| 2 and 6 | amazon: test score against Λ | `mixtree reproduce amazon` | {file} |" in text


def test_one_reason_is_given_once(grouped, monkeypatch):
    result = report_of("own", grouped[0][0].plan.folder, lr=0.1, gaps=(-0.1, -0.1))
    result = replace(result, rows={"validation": 100, "test": 235})
    monkeypatch.setattr(document, "why", lambda report, verdict: "Too few batches.")
    text = document._section([result])
    assert text.endswith("- *CH better than uniform; DP better than uniform.* Too few batches.")


def test_a_loss_that_no_training_brought_below_a_constants_is_said_to_be_none(tmp_path):
    result = report_of("own", tmp_path, lr=0.1, gaps=(0.1, 0.1))
    point = Point(0.1, 0.7, 0.01, loss=0.36, constant=0.32, fitted=0.1, fitted_constant=0.31, diverged=0)
    cells = [_cell(result.plan, result.scored, "uniform", 600)]
    result = replace(result, cells=cells, sweeps={"uniform": Sweep("uniform", (point,), 0.1, "")})
    row = "| amazon | 0.31 | – | 0.1 (η = 0.1) | 0.32 | 0.36: no better than constants |"
    assert document._trains([result], result) == row
