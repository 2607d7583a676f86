import json

import pytest

from mixtree.experiments import choices, ideas
from mixtree.experiments.arena import task_named
from mixtree.experiments.arenareport import write_tables
from mixtree.experiments.parallel import Crew
from mixtree.policies.setting import AutoOptions

TASK = task_named("n_val=30 K=4 linear")


def test_every_choice_changes_an_option_of_auto():
    for name, changed in choices.CHOICES.items():
        options = AutoOptions(**changed)
        same = all(getattr(options, key) == getattr(AutoOptions(), key) for key in changed)
        assert same == (name in (choices.AS_IT_IS, choices.NEVER))


@pytest.mark.slow
def test_choices_are_measured_and_told(tmp_path):
    with Crew(1) as crew:
        file = tmp_path / "new" / choices.FILE
        rows = choices.measure(file, choices.run_choices, [TASK], seeds=2, crew=crew)
    assert rows == json.loads(file.read_text(encoding="utf-8"))
    assert len(rows) == 2 * len(choices.CHOICES)
    head, *body = choices.summary(rows, choices.PAIRS)
    assert [row[0] for row in body] == list(choices.CHOICES)[1:]
    assert all(len(row) == len(head) for row in body)


@pytest.mark.slow
def test_ideas_are_measured_against_the_plain_way():
    rows = [row for seed in (100, 101) for row in ideas.run_ideas(TASK.name, seed)]
    assert {row["choice"] for row in rows} == set(ideas.IDEAS)
    losses = {(row["choice"], row["seed"]): row["loss"] for row in rows}
    for changed, plain in ideas.PAIRS:
        assert all(losses[changed, seed] != losses[plain, seed] for seed in (100, 101)), changed
    assert len(choices.summary(rows, ideas.PAIRS)) == 1 + len(ideas.PAIRS)


def test_the_summary_tells_worse_from_better(tmp_path):
    rows = [
        {"task": "t", "seed": seed, "choice": choice, "loss": loss + 0.01 * seed + 0.001 * seed * seed * loss}
        for choice, loss in ((choices.AS_IT_IS, 1.0), ("trunk of 10 %", 2.0), ("half decayed", 0.5))
        for seed in range(5)
    ]
    rows += [dict(row, choice=choice) for row in rows[:5] for choice in list(choices.CHOICES)[1:]]
    losses = {(row["choice"], row["seed"]): row for row in reversed(rows)}
    table = {row[0]: row[1:] for row in choices.summary(list(losses.values()), choices.PAIRS)}
    assert table["trunk of 10 %"][1:] == ["t", "–"]
    assert table["half decayed"][1:] == ["–", "t"]
    assert table["no race: uniform"] == ["+0.00", "–", "–"]


def test_the_page_holds_the_choices_before_the_tasks(tmp_path):
    from mixtree.experiments.arena import Score

    scores = [
        Score(TASK.name, method, seed, 0.5 + 0.1 * seed, 0.5 + 0.1 * seed, {"train": 10}, 1, {})
        for method in ("auto", "uniform+decay")
        for seed in (0, 1)
    ]
    rows = [
        {"task": "t", "seed": seed, "choice": choice, "loss": 1.0 + seed}
        for choice in choices.CHOICES
        for seed in (0, 1)
    ]
    (page,) = write_tables(tmp_path, scores, [TASK], choices=rows)
    text = page.read_text(encoding="utf-8")
    assert text.index("## Every choice, changed alone") < text.index(f"## {TASK.name}")
