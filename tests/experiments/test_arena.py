from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mixtree.errors import InputError
from mixtree.experiments import arena
from mixtree.experiments.arenareport import ARENA, write_report, write_tables
from mixtree.experiments.parallel import Crew
from mixtree.experiments.tasks import CONFIRM_SEEDS, DESIGN_SEEDS, SYNTHETIC, tasks

TASK = arena.task_named("n_val=30 K=4 linear")
METHODS = ("auto", "uniform+decay", "fine-tune")


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arena")
    with Crew(1) as crew:
        arena.train(folder, [TASK], METHODS, seeds=2, crew=crew, say=lambda line: None)
        return folder, arena.score(folder, [TASK], seeds=2, crew=crew)


def test_every_method_spends_at_most_the_same_budget(played):
    _, scores = played
    assert {each.method for each in scores} == {*METHODS, arena.REFERENCE}
    assert all(sum(each.spent.values()) <= TASK.budget for each in scores)
    assert all(np.isfinite(each.score) for each in scores)


def test_what_is_stored_is_not_run_again(played):
    folder, scores = played
    said = []
    with Crew(1) as crew:
        arena.train(folder, [TASK], METHODS, seeds=2, crew=crew, say=said.append)
        again = arena.score(folder, [TASK], seeds=2, crew=crew)
    assert said == ["0 runs to do"]
    assert [each.score for each in again] == [each.score for each in scores]


def test_the_report_comes_from_the_scores(played, tmp_path):
    _, scores = played
    files = write_report(tmp_path, scores, [TASK])
    (page,) = write_tables(tmp_path, scores, [TASK])
    text = files[1].read_text(encoding="utf-8")
    mean = np.mean([each.score for each in scores if each.method == "auto"])
    assert f"| auto | {mean:.4f} |" in text
    assert text in page.read_text(encoding="utf-8")
    assert "<table>" in files[2].read_text(encoding="utf-8")


def test_outside_the_hull_auto_is_measured_against_a_model_with_plenty_of_target_rows(tmp_path):
    task = arena.task_named("outside K=4 linear")
    assert arena.references_of(task) == [arena.PLENTY]
    with Crew(1) as crew:
        arena.train(tmp_path, [task], ("auto", "uniform+decay"), seeds=2, crew=crew, say=lambda line: None)
        scores = arena.score(tmp_path, [task], seeds=2, crew=crew)
    losses = arena.table_of(scores)[task.name]
    assert (losses[arena.PLENTY] < losses["uniform+decay"]).all()
    assert arena.PLENTY not in [each.method for each in arena.standings(scores)]
    (page,) = write_tables(tmp_path, scores, [task])
    text = page.read_text(encoding="utf-8")
    assert "## Outside the hull" in text


def test_undertrained_tasks_have_a_page_of_their_own(tmp_path):
    """And leave that of the others, which takes much longer to run, as it is."""
    task = tasks("undertrained")[0]
    gaps = {"auto": 0.1, "uniform": 0.0, "uniform+decay": 0.3}
    scores = [
        arena.Score(task.name, method, seed, 1.0, 1.0 + gap + 0.01 * seed * gap, {}, 1, {})
        for method, gap in gaps.items()
        for seed in (200, 201)
    ]
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "arena.md").write_text("as it was")
    (page,) = write_tables(tmp_path, scores, [task])
    text = page.read_text(encoding="utf-8")
    assert page == tmp_path / "results" / "undertrained.md"
    assert f"auto is surely worse than plain uniform on 1 of 1 tasks: {task.name}." in text
    assert (tmp_path / "results" / "arena.md").read_text() == "as it was"
    (page,) = write_tables(tmp_path, [replace(each, task=TASK.name) for each in scores], [TASK])
    assert page == tmp_path / "results" / "arena.md"
    assert "](undertrained.md)" in page.read_text(encoding="utf-8")


def test_the_page_has_the_words_that_are_written_with_its_tables():
    page = Path(__file__).parents[2] / "docs" / "results" / "arena.md"
    assert page.read_text(encoding="utf-8").startswith(ARENA)


def test_ranks_regret_and_significance():
    def score(method, seed, value):
        return arena.Score("t", method, seed, value, value, {}, 1, {})

    scores = [score("good", seed, 1.0 + 0.01 * seed) for seed in range(5)]
    scores += [score("bad", seed, 2.0 + 0.011 * seed) for seed in range(5)]
    scores += [score("lost", seed, float("nan")) for seed in range(5)]
    good, *others = arena.standings(scores)
    assert good.method == "good"
    assert good.rank == 1
    assert good.worse == {}
    assert {"good": ["t"]}.items() <= next(each for each in others if each.method == "bad").worse.items()


def test_the_halves_share_neither_families_nor_seeds():
    assert not set(DESIGN_SEEDS) & set(CONFIRM_SEEDS)
    names = [task.name for task in tasks()]
    assert len(set(names)) == len(names)
    assert {task.half for task in SYNTHETIC} == {"design", "confirm"}
    with pytest.raises(InputError, match="seeds a half"):
        arena.seeds_of("design", 11)
    with pytest.raises(InputError, match="unknown task"):
        arena.task_named("nothing")
