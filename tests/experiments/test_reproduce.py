import csv
import os
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from mixtree.data import paper
from mixtree.data.sources import Rows
from mixtree.errors import TrainingError
from mixtree.experiments.claims import Claim
from mixtree.experiments.parallel import Crew
from mixtree.experiments.report import (
    carry_out,
    expansion_lines,
    outcome_words,
    report,
    with_retraining,
    write,
)
from mixtree.experiments.reproduce import Plan, Recipe, grid, score_repeat, train
from mixtree.experiments.specs import EXPERIMENTS, Authors, Experiment
from mixtree.fitting.pipeline import load
from mixtree.metrics import AUROC, LOG_LOSS, MAE_EXP
from mixtree.storage.sql import open_storage

needs_data = pytest.mark.skipif(
    not os.environ.get("MIXTREE_DATA"), reason="MIXTREE_DATA is not set: the paper's data are not here"
)
SHARES = {"sources": {"a": (100.0, 0.0, 0.0), "b": (100.0, 0.0, 0.0)}, "targets": {"t": (0.0, 30.0, 70.0)}}

NOBODY = np.array([], dtype=int)


def table(poison=NOBODY):
    """Three groups whose labels depend on x; ``poison`` rows get other labels and huge features."""
    random = np.random.default_rng(5)
    group = np.repeat(["a", "b", "t"], 120)
    numeric = random.normal(2.0, 3.0, (360, 4)).astype(np.float32)
    y = (numeric[:, 0] + (group == "b") * numeric[:, 1] + random.normal(0, 1, 360) > 2).astype(np.int64)
    numeric[poison] *= 1000
    y[poison] = 1 - y[poison]
    return paper.Features(numeric, np.ones((360, 1), np.float32), y, group, ())


def toy_problem(seed, *, poison=NOBODY):
    return paper.split("toy", table(poison), classes=2, seed=seed, **SHARES)


def toy_test_rows(seed):
    """Positions of the test rows in the table."""
    whole = table()
    numbered = paper.Features(whole.numeric, whole.indicators, np.arange(360.0), whole.group, ())
    return paper.split("toy", numbered, classes=0, seed=seed, **SHARES).test.y.astype(int)


def poisoned_problem(seed):
    return toy_problem(seed, poison=toy_test_rows(seed))


TOY = Experiment(
    "toy",
    "Toy?",
    toy_problem,
    ("a", "b"),
    known=False,
    batch=10,
    steps=3,
    budget=36,
    metric=AUROC,
    score="AUROC",
    tolerance=0.005,
    claims=(Claim("CH better than uniform", "a section", "better", (("CH", "uniform"),)),),
    authors=Authors(5.0, 0.8, 0.01),
)


def plan_in(folder, experiment=TOY, **changes):
    recipes = dict.fromkeys(experiment.algorithms(), Recipe(0.05, experiment.steps))
    return replace(Plan(experiment, "shared", recipes, grid(experiment.budget, 2), 2, folder), **changes)


def models(plan):
    """Every stored model's arrays and mixture, as bytes."""
    found = {}
    with closing(open_storage(plan.file)) as storage:
        for record in storage.studies():
            result = load(storage, record.name)
            arrays = {name: array.tobytes() for name, array in result.state.items()}
            found[record.name] = (arrays, result.mixture.tobytes(), result.value)
    return found


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    plan = plan_in(tmp_path_factory.mktemp("toy"))
    train(plan, crew=Crew())
    return plan


def test_every_algorithm_is_run_at_every_budget_and_charged(done):
    scored = report(done, crew=Crew()).scored
    assert len(scored) == len(TOY.algorithms()) * 2 * 2
    assert {each.run.budget for each in scored} == {18, 36}
    for each in scored:
        assert sum(each.run.spent.values()) <= each.run.budget
        assert sum(each.run.mixture.values()) == pytest.approx(1)
        assert np.isfinite(each.run.test_score)
    importance = next(e.run for e in scored if e.run.algorithm == "importance" and e.run.budget == 36)
    assert importance.spent["classifier"] == 3


def test_a_cell_of_the_table_is_computed_again_from_its_stored_models(done):
    write(report(done, crew=Crew()))
    text = (done.folder / "toy-shared" / "summary.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    (cell,) = [row for row in rows if (row["algorithm"], row["budget"]) == ("mixmatch-ch+commit", "36")]
    scores = []
    for repeat in range(2):
        problem = toy_problem(repeat)
        arrays = load(done.file, done.study("mixmatch-ch+commit", 36, repeat)).state
        trainer = TOY.trainer(problem.sources, lr=1.0)
        probabilities = trainer.predict(trainer.load(arrays), problem.test.x)
        scores.append(roc_auc_score(problem.test.y, probabilities[:, 1]))
    assert float(cell["test_mean"]) == pytest.approx(np.mean(scores), abs=1e-12)
    assert float(cell["test_sd"]) == pytest.approx(np.std(scores, ddof=1), abs=1e-12)


def test_a_poisoned_test_set_changes_no_model(done, tmp_path):
    clean, rows = toy_problem(0), toy_test_rows(0)
    dirty = poisoned_problem(0)
    assert len(rows) == len(clean.test)
    assert np.array_equal(dirty.test.y, 1 - clean.test.y)
    assert not np.array_equal(dirty.test.x, clean.test.x)
    poisoned = plan_in(tmp_path, replace(TOY, load=poisoned_problem))
    train(poisoned, crew=Crew())
    assert models(poisoned) == models(done)
    one, two = (report(plan, crew=Crew()).scored for plan in (done, poisoned))
    assert [each.run.mixture for each in one] == [each.run.mixture for each in two]
    assert [each.run.val_score for each in one] == [each.run.val_score for each in two]
    assert [each.run.test_score for each in one] != [each.run.test_score for each in two]


def test_a_finished_run_is_not_run_again(done, monkeypatch):
    before = models(done)
    monkeypatch.setattr("mixtree.experiments.reproduce.run", None)
    assert train(done, crew=Crew()) == 0
    assert models(done) == before


def test_a_half_stored_run_and_one_of_another_recipe_are_run_again(tmp_path):
    plan = plan_in(tmp_path, budgets=(12,), repeats=1)
    train(plan, crew=Crew())
    before = models(plan)
    with closing(open_storage(plan.file)) as storage:
        storage.update(plan.study("uniform", 12, 0), status="running", best=None)
    changed = replace(plan, recipes={**plan.recipes, "pooled": Recipe(0.2, 3)})
    assert train(changed, crew=Crew()) == 2
    after = models(plan)
    assert after[plan.study("uniform", 12, 0)] == before[plan.study("uniform", 12, 0)]
    assert after[changed.study("pooled", 12, 0)] != before[plan.study("pooled", 12, 0)]
    assert train(plan, crew=Crew()) == 0, "the runs of the first recipe are kept"


def test_settings_share_the_runs_that_they_have_in_common(tmp_path):
    shared = plan_in(tmp_path, budgets=(12,), repeats=1)
    train(shared, crew=Crew())
    own = replace(shared, setting="own", recipes={**shared.recipes, "pooled": Recipe(0.2, 3)})
    assert train(own, crew=Crew()) == 1


def test_what_is_not_drawn_is_run_at_the_papers_budget_only(tmp_path):
    plan = plan_in(tmp_path, repeats=1, drawn=frozenset(["uniform"]))
    assert train(plan, crew=Crew()) == len(TOY.algorithms()) + 1
    scored = report(plan, crew=Crew()).scored
    assert [each.run.algorithm for each in scored if each.run.budget == 18] == ["uniform"]


def test_a_mixture_that_was_found_is_trained_with_the_whole_budget(tmp_path):
    plan = with_retraining(replace(plan_in(tmp_path), setting="own", drawn=frozenset()))
    train(plan, crew=Crew())
    assert train(plan, crew=Crew()) == 0
    scored = {(each.run.algorithm, each.run.repeat): each for each in report(plan, crew=Crew()).scored}
    for name in ("mixmatch-ch", "mixmatch-dp+commit"):
        for repeat in range(2):
            found, again = scored[name, repeat], scored["retrained:" + name, repeat]
            assert again.run.mixture == found.run.mixture
            assert again.trained == 36 > found.trained
            assert sum(again.drawn.values()) == pytest.approx(360)
    assert "retrained:mixmatch-bisect" not in plan.recipes


def test_a_search_that_diverged_is_not_trained_again(tmp_path):
    experiment = replace(TOY, network="log-price", load=price_problem, metric=MAE_EXP)
    recipes = {"mixmatch-ch": Recipe(1e30, 3), "mixmatch-dp": Recipe(1e-3, 3), "uniform": Recipe(1e-3, 3)}
    recipes |= {f"{name}+commit": Recipe(1e-3, 3) for name in ("mixmatch-ch", "mixmatch-dp")}
    plan = Plan(experiment, "own", recipes, (36,), 1, tmp_path)
    plan = with_retraining(plan)
    train(plan, crew=Crew())
    assert train(plan, crew=Crew()) == 0
    scores = {each.run.algorithm: each.run.test_score for each in score_repeat(plan, 0)}
    assert np.isnan(scores["retrained:mixmatch-ch"])
    assert np.isfinite(scores["retrained:mixmatch-dp"])


def test_a_models_rows_are_those_of_its_own_path(done):
    result = report(done, crew=Crew())
    for each in result.scored:
        classifier = each.run.spent.get("classifier", 0)
        assert sum(each.drawn.values()) == pytest.approx(10 * each.trained)
        assert each.trained <= each.run.budget - classifier
        assert np.isfinite(each.test_loss)
        assert np.isfinite(each.fitted) == (each.run.budget == 36)
    alone = result.cell("only:a")
    assert alone.drawn == {"a": 360.0}
    assert result.rows == {"a": 120, "b": 120, "validation": 36, "test": 84}
    assert result.distinct(alone)["a"] == pytest.approx(120 * (1 - np.exp(-3)))
    assert set(result.cell("validation").drawn) == {"target"}


def test_the_training_loss_is_that_of_the_rows_that_were_seen(done):
    cell = next(
        e for e in report(done, crew=Crew()).scored if e.run.algorithm == "pooled" and e.trained == 36
    )
    problem = toy_problem(cell.run.repeat)
    trainer = TOY.trainer(problem.sources, lr=1.0)
    arrays = load(done.file, done.study("pooled", 36, cell.run.repeat)).state
    state = trainer.load(arrays)
    losses = [LOG_LOSS(part.y, trainer.predict(state, part.x)) for part in problem.sources.rows]
    assert cell.fitted == pytest.approx(np.mean(losses))
    assert cell.test_loss == pytest.approx(LOG_LOSS(problem.test.y, trainer.predict(state, problem.test.x)))


def test_two_repeats_are_undecided(done):
    (verdict,) = report(done, crew=Crew()).verdicts
    assert verdict.outcome == "undecided"
    assert outcome_words(verdict, repeats=2) == "undecided"


def test_a_run_that_diverges_is_a_result_too(tmp_path):
    experiment = replace(TOY, network="log-price", load=price_problem, metric=MAE_EXP)
    recipes = {"uniform": Recipe(1e30, 3), "validation": Recipe(1e-3, 3)}
    plan = plan_in(tmp_path, experiment, recipes=recipes, budgets=(12,), repeats=1)
    train(plan, crew=Crew())
    assert train(plan, crew=Crew()) == 0
    uniform, validation = (each.run for each in score_repeat(plan, 0))
    assert np.isnan(uniform.test_score)
    assert np.isfinite(validation.test_score)


def price_problem(seed):
    whole = table()
    labelled = paper.Features(whole.numeric, whole.indicators, whole.numeric[:, 0] / 4, whole.group, ())
    return paper.split("toy", labelled, classes=0, seed=seed, **SHARES)


def test_the_authors_setting_reports_its_expansions(tmp_path):
    result = carry_out(TOY, "authors", tmp_path, crew=Crew(), repeats=2, points=2)
    recipe = result.plan.recipes["mixmatch-chp"]
    assert recipe.options == {
        "optimism": 1.0,
        "train_root": True,
        "returns": "deepest",
        "nu": 5.0,
        "rho": 0.8,
    }
    assert recipe.objective == "metric"
    assert result.verdicts[0].shown.left == "mixmatch-chp"
    lines = expansion_lines(result)
    assert [line.split("`")[1] for line in lines] == [
        name for name in TOY.algorithms() if name.startswith("mixmatch") and "+" not in name
    ]
    assert "first repeat: 0 1" in lines[0]
    values = {each.run.value for each in result.scored if each.run.algorithm == "uniform"}
    assert all(-1 <= value <= 0 for value in values), "the value is the negated AUROC"
    names = {file.name for file in (tmp_path / "toy-authors").iterdir()}
    assert names == {"runs.csv", "summary.csv", "claims.csv", "expansions.csv", "step-sizes.csv"}


@pytest.mark.slow
def test_worker_processes_give_the_same_models(tmp_path):
    recipes = {name: Recipe(0.05, 4) for name in ("mixmatch-bisect", "uniform", "importance")}
    plans = []
    for workers in (1, 2):
        plan = Plan(EXPERIMENTS["flights-new"], "shared", recipes, (24,), 2, tmp_path / str(workers))
        with Crew(workers) as crew:
            assert train(plan, crew=crew) == 6
        plans.append(plan)
    assert models(plans[0]) == models(plans[1])


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name", ["allstate", "wine-price", "wine-quartile-notes", "amazon"])
def test_the_papers_experiments_run_with_all_algorithms(tmp_path, name):
    experiment = EXPERIMENTS[name]
    recipes = dict.fromkeys(experiment.algorithms(), Recipe(0.002, 2))
    plan = Plan(experiment, "shared", recipes, (24,), 1, tmp_path)
    train(plan, crew=Crew())
    scored = score_repeat(plan, 0)
    assert [each.run.algorithm for each in scored] == experiment.algorithms()
    assert all(np.isfinite(each.run.test_score) for each in scored)


@needs_data
def test_poisoning_amazons_test_rows_changes_no_model(tmp_path):
    recipes = {name: Recipe(0.02, 2) for name in ("mixmatch-ch", "importance", "fine-tune")}
    stored = []
    for folder, load_it in (("clean", EXPERIMENTS["amazon"].load), ("dirty", poisoned_amazon)):
        experiment = replace(EXPERIMENTS["amazon"], load=load_it)
        plan = Plan(experiment, "shared", recipes, (20,), 1, tmp_path / folder)
        train(plan, crew=Crew())
        stored.append(models(plan))
    assert stored[0] == stored[1]


def poisoned_amazon(seed):
    problem = EXPERIMENTS["amazon"].load(seed)
    return replace(problem, test=Rows(problem.test.x * 100, 1 - problem.test.y))


@pytest.mark.slow
def test_a_worker_that_dies_is_explained():
    with Crew(2) as crew, pytest.raises(TrainingError, match="runs that have finished are kept"):
        list(crew.run(os._exit, [(1,)]))
