from dataclasses import replace

import numpy as np
import pytest

from mixtree.data.sources import Problem, Rows
from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.experiments.comparison import Rules, Run, compare, summarise
from mixtree.metrics import as_metric
from mixtree.policies.auto import TARGET_PHASES
from mixtree.policies.setting import AutoOptions
from mixtree.search import STEP_SIZE
from mixtree.trainers.mlp import MlpTrainer
from mixtree.trainers.reference import ReferenceTrainer

ALGORITHMS = ["mixmatch-bisect+commit", "uniform", "validation", "genie+decay"]
RULES = Rules(40, 4, as_metric("auroc", classes=2))


def make_trainer(problem, lr=0.1):
    return ReferenceTrainer(problem.sources, lr=lr, batch_size=10)


@pytest.fixture(scope="module")
def problems():
    return [synthetic(rows=100, validation=40, test=200, seed=seed) for seed in range(2)]


def test_every_algorithm_gets_the_same_budget_and_the_same_start(problems):
    runs = compare(problems, ALGORITHMS, make_trainer=make_trainer, rules=RULES)
    assert [(run.algorithm, run.repeat) for run in runs] == [
        (name, r) for r in range(2) for name in ALGORITHMS
    ]
    assert all(sum(run.spent.values()) == 40 for run in runs)
    again = compare(problems, ALGORITHMS, make_trainer=make_trainer, rules=RULES)
    assert [run.test_score for run in runs] == [run.test_score for run in again]


def test_the_test_rows_change_nothing_but_the_test_score(problems):
    poisoned = [
        Problem(each.name, each.sources, Rows(each.test.x * -50, 1 - each.test.y), each.alpha)
        for each in problems
    ]
    clean = compare(problems, ALGORITHMS, make_trainer=make_trainer, rules=RULES)
    dirty = compare(poisoned, ALGORITHMS, make_trainer=make_trainer, rules=RULES)
    assert [run.value for run in clean] == [run.value for run in dirty]
    assert [run.mixture for run in clean] == [run.mixture for run in dirty]
    assert [run.test_score for run in clean] != [run.test_score for run in dirty]


def test_a_run_that_diverges_does_not_stop_the_others():
    problem = synthetic(rows=100, validation=40, test=200, classes=0)
    rules = Rules(40, 4, as_metric("rmse", classes=0))
    runs = compare([problem], ["uniform"], make_trainer=lambda each: make_trainer(each, 1e100), rules=rules)
    assert np.isinf(runs[0].value)
    assert np.isnan(runs[0].test_score)
    assert runs[0].diverged


STEEP = ["uniform+decay", "mixmatch-bisect+commit", "only:source-0"]


def test_what_diverges_is_run_again_with_smaller_steps_for_who_asks():
    problem = synthetic(rows=100, validation=40, test=200, classes=0)
    rules = Rules(400, 4, as_metric("rmse", classes=0))

    def steep(retry):
        def trainer(each):
            return make_trainer(each, 3.0)

        return compare([problem], STEEP, make_trainer=trainer, rules=rules, retry=retry)

    paper, asked = steep(False), steep(True)
    assert all(not run.test_score < 1e3 and run.lr_scale == 1.0 for run in paper)
    assert all(run.test_score < 10.0 and run.lr_scale == 0.03 for run in asked)
    assert all(sum(run.spent.values()) == 400 + run.spent["diverged"] for run in asked)
    # At 1 × it ended in its third segment of 50 steps, which leaves models of two that count for nothing; at
    # .3 × its loss was finite, and far beyond an untrained model's.
    assert asked[0].spent["diverged"] == 150 + 400
    hopeless = compare(
        [problem], ["uniform"], make_trainer=lambda each: make_trainer(each, 1e100), rules=rules, retry=True
    )
    assert hopeless[0].diverged and hopeless[0].spent == {"diverged": 4 * 50}


def test_a_model_from_inside_a_stage_is_no_divergence_where_it_was_chosen_or_time_was_up():
    problem = synthetic(sources=3, rows=60, features=8, validation=200, test=50, seed=1)
    rules = replace(RULES, budget=6000, steps=40, use_target_rows=False)

    def trainer(each):
        return MlpTrainer(each.sources, hidden=(32,))

    for seed in (0, 1, 2):
        (run,) = compare([problem], ["auto"], make_trainer=trainer, rules=rules, retry=True, seed=seed)
        assert run.finished and not run.diverged and sum(run.spent.values()) < 6000
    short = replace(rules, budget=2000, time_limit=0.001)  # a segment of 100 steps, and no more
    (run,) = compare([problem], ["uniform"], make_trainer=trainer, rules=short, retry=True)
    assert not run.finished and not run.diverged and run.lr_scale == 1.0 and run.spent == {"train": 100}


def test_unknown_algorithms_are_refused_before_training(problems):
    def never(problem):
        raise AssertionError("training began")

    with pytest.raises(InputError, match="unknown algorithm 'magic'"):
        compare(problems, ["uniform", "magic"], make_trainer=never, rules=RULES)


def test_summary_is_mean_and_sd_of_the_test_scores(problems):
    runs = compare(problems, ["uniform"], make_trainer=make_trainer, rules=RULES)
    (summary,) = summarise(runs)
    scores = [run.test_score for run in runs]
    assert summary.score == pytest.approx(np.mean(scores))
    assert summary.sd == pytest.approx(np.std(scores, ddof=1))


def test_a_diverged_repeat_has_no_share_in_the_means():
    ended = Run("uniform", 0, 0.5, 0.6, 0.7, {"a": 0.25, "b": 0.75}, 40, {"train": 40}, 1.0)
    gone = Run("uniform", 1, float("inf"), float("nan"), float("nan"), {}, 40, {}, 3.0)
    (summary,) = summarise([ended, gone])
    assert (summary.repeats, summary.diverged) == (2, 1)
    assert summary.mixture == ended.mixture
    assert (summary.spent, summary.seconds) == (40.0, 2.0)
    assert np.isnan(summary.score) and np.isnan(summary.sd)  # the other repeat's alone would flatter it
    (summary,) = summarise([gone])
    assert (summary.repeats, summary.diverged, summary.mixture) == (1, 1, {})
    assert np.isnan(summary.spent)


def test_the_rules_reach_the_searches(problems):
    """The objective and whether target rows may be used, as in a fit."""
    calls = []

    def objective(problem):
        def by_size(evaluation):
            calls.append(len(problem.sources.validation))
            return replace(evaluation, value=-evaluation.value)

        return by_size

    loss = compare(problems[:1], ["mixmatch-bisect"], make_trainer=make_trainer, rules=RULES)
    turned = replace(RULES, objective=objective)
    other = compare(problems[:1], ["mixmatch-bisect"], make_trainer=make_trainer, rules=turned)
    assert calls and set(calls) == {40}
    assert other[0].value == pytest.approx(-abs(other[0].value))
    assert loss[0].value > 0
    rules = replace(RULES, budget=400, steps=20)
    phases = {
        allowed: compare(
            problems[:1], ["auto"], make_trainer=make_trainer, rules=replace(rules, use_target_rows=allowed)
        )[0].spent
        for allowed in (True, False)
    }
    assert set(phases[True]) - set(phases[False]) == set(TARGET_PHASES) & set(phases[True]) != set()
    kept = replace(rules, auto=AutoOptions(rates=(1.0,)))
    (run,) = compare(problems[:1], ["auto"], make_trainer=make_trainer, rules=kept)
    assert run.spent[STEP_SIZE] < phases[True][STEP_SIZE]


def test_a_model_tuned_on_the_validation_rows_is_scored_by_its_twins():
    outside = [replace(synthetic(hull="outside", rows=600, validation=140, test=10, seed=4), test=None)]
    rules = replace(RULES, budget=1000, steps=20)
    runs = compare(outside, ["auto", "fine-tune"], make_trainer=make_trainer, rules=rules)
    assert "target" in runs[0].spent
    assert 0.5 < runs[0].val_score <= 1.0
    assert np.isnan(runs[1].val_score)  # it has no twins
