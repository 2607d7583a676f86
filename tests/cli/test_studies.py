"""Studies that are stored already: list, show, export, delete, copy."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mixtree.export.mixture import FORMATS
from mixtree.storage.sql import open_storage


@pytest.fixture
def study(tables, done, base):
    return done("fit", *base, "--out", "out", "--json").json


def test_show_tells_what_was_found(study, done):
    found = done("show", "out", "--json").json
    assert found["mixture"] == study["mixture"]
    assert found["spent"] == study["spent"]
    assert found["status"] == "finished"
    assert done("show", "out/study.db", "fit", "--json").json == found
    text = done("show", "out").out
    assert "fit: finished" in text
    assert f"fl {study['mixture']['fl']:.3f}" in text


def test_list_has_a_line_per_study(study, done):
    found = done("list", "out", "--json").json["studies"]
    assert [each["study"] for each in found] == ["fit"]
    assert "40 / 40" in done("list", "out").out


@pytest.mark.parametrize("form", FORMATS)
def test_export_prints_the_mixture(study, done, form):
    text = done("export", "out", "--format", form).out
    assert "fl" in text
    if form == "json":
        assert json.loads(text) == study["mixture"]
    done("export", "out", "--format", form, "-o", "mixture.txt")
    assert Path("mixture.txt").read_text() == text


def test_export_knows_the_sources_sizes(study, done):
    found = json.loads(done("export", "out", "--format", "sampler").out)
    assert found["rows"] == {"ct": 80, "fl": 80, "oh": 80}


def test_axolotl_keeps_what_makes_the_mixture(study, done):
    yaml = pytest.importorskip("yaml")
    kept = yaml.safe_load(done("export", "out", "--format", "axolotl").out)["datasets"]
    most = max(study["mixture"].values())
    weights = {each["path"]: each["weight"] for each in kept}
    # All three have 80 rows.
    assert weights == pytest.approx({name: each / most for name, each in study["mixture"].items() if each})


def test_a_study_without_its_sources_rows_says_what_to_do(study, mixtree):
    with closing(open_storage("out/study.db")) as storage:
        storage.update("fit", sizes={})
    answer = mixtree("export", "out", "--format", "sampler")
    assert answer.code == 2
    assert "of an older version" in answer.err
    assert "export_mixture(" in answer.err


def test_show_prints_the_whole_tree(tables, done, base):
    done("fit", *base, "--budget", "80", "--out", "out")
    plain = done("show", "out", "--json").json
    found = done("show", "out", "--tree", "--json").json
    tree = found.pop("tree")
    assert found == plain
    assert len(tree) == plain["nodes"] > 10  # more than the table of the best
    assert sum(each["steps"] for each in tree) == sum(plain["spent"].values())
    assert set(tree[0]["mixture"]) == {"ct", "fl", "oh"}
    lines = [line for line in done("show", "out", "--tree").out.splitlines() if " steps, loss " in line]
    # A child stands below its parent, further in.
    told = [(len(line) - len(line.lstrip())) // 2 for line in lines]
    assert told == [len(path) for path in sorted(each["path"] for each in tree)]
    (chosen,) = [line for line in lines if line.endswith("←")]
    assert f"loss {found['value']:.4f}" in chosen


def test_show_says_what_the_policy_decided_and_where_the_models_are(tables, done, base):
    args = [each for each in base if each not in ("--steps", "2")]
    found = done("fit", *args, "--policy", "auto", "--out", "out", "--json").json
    shown = done("show", "out", "--json").json
    assert shown["decided"] == found["decided"] != []
    assert shown["models"] == str(Path("out/study.db.checkpoints/fit").absolute())
    assert Path(shown["models"]).is_dir()
    text = done("show", "out").out
    assert f"decided: {found['decided'][0]}" in text
    assert f"models: {shown['models']}" in text


def test_copy_and_delete(study, done, mixtree):
    done("copy", "out", "fit", "kept")
    taken = mixtree("copy", "out", "fit", "kept")
    assert taken.code == 2
    assert "'kept' already" in taken.err
    done("delete", "out", "fit", "--yes")
    assert [each["study"] for each in done("list", "out", "--json").json["studies"]] == ["kept"]
    assert mixtree("delete", "out", "fit", "--yes").code == 2
    assert done("resume", "out", "--json").json["mixture"] == study["mixture"]


def test_an_unknown_place_makes_no_file(tables, mixtree):
    for url in ("nowhere.db", "sqlite:///nowhere.db", "nowhere"):
        answer = mixtree("show", url)
        assert answer.code == 2
        assert "there is no study file" in answer.err
    assert not Path("nowhere.db").exists()


def hashes(folder: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def test_a_refused_command_changes_no_other_file(tables, mixtree, base):
    Path("empty.db").touch()
    with closing(sqlite3.connect("theirs.db")) as theirs:
        theirs.execute("CREATE TABLE users (id INTEGER)")
        theirs.commit()
    before = hashes(tables)
    for words in (
        ("show", "theirs.db"),
        ("list", "theirs.db"),
        ("fit", *base, "--out", "out", "--storage", "theirs.db"),
        ("show", "empty.db"),
        ("resume", "empty.db"),
        ("delete", "empty.db", "fit", "--yes"),
        ("fit", *base, "--out", "out", "--storage", "empty.db", "--label", "nothing"),
        ("fit", *base, "--out", "out", "--storage", "empty.db", "--study", "x" * 101),
        ("fit", *base, "--out", "out", "--storage", "new.db", "--study", "\udcff"),
        ("fit", *base, "--out", "out", "--storage", "u:hunter2@h/base"),
        ("fit", *base, "--out", "out", "--storage", "mysql://u:hunter2@h/base"),
        ("list", "u:hunter2@h/base"),
        ("list", "here", "postgres://u:hunter2@h/base"),
    ):
        answer = mixtree(*words)
        assert answer.code == 2, answer
        assert "hunter2" not in answer.out + answer.err
        assert hashes(tables) == before
        assert not Path("out").exists()


def test_a_study_may_begin_in_an_empty_file(tables, done, base):
    Path("empty.db").touch()
    assert done("list", "empty.db", "--json").json == {"studies": []}
    done("fit", *base, "--out", "out", "--storage", "empty.db")
    assert [each["study"] for each in done("list", "empty.db", "--json").json["studies"]] == ["fit"]


@pytest.mark.parametrize("name", ["名" * 29, "名" * 100])
def test_a_long_name_is_a_name(tables, done, mixtree, base, name):
    found = done("fit", *base, "--study", name, "--out", "out", "--json").json
    assert done("show", "out", name, "--json").json["mixture"] == found["mixture"]
    done("copy", "out", name, name[1:] + "b")
    before = hashes(tables / "out")
    refused = mixtree("copy", "out", name, name[:1] + "b" * 100)
    assert (refused.code, "1 to 100 characters" in refused.err) == (2, True)
    assert hashes(tables / "out") == before


@pytest.mark.parametrize("words", [("resume",), ("show",), ("list",), ("resume", "--budget", "80")])
def test_a_study_that_was_cut_is_told_and_stays(study, tables, mixtree, words):
    file = Path("out/study.db")
    file.write_bytes(file.read_bytes()[: int(0.97 * file.stat().st_size)])
    before = hashes(tables)
    answer = mixtree(words[0], "out", *words[1:])
    assert answer.code == 2
    assert "study.db is damaged, cut short or altered" in answer.err
    assert hashes(tables) == before


def test_names_that_look_like_markup(tables, done, base):
    done("fit", *base, "--study", "[/bold]", "--out", "out")
    assert "[/bold]" in done("show", "out").out
    assert "[/bold]" in done("list", "out").out


def test_a_study_from_python_is_not_resumed_here(tables, mixtree):
    from mixtree.data.synthetic import synthetic
    from mixtree.fitting.pipeline import fit

    fit(synthetic(rows=50).sources, model="linear", budget=4, steps=1, storage="py.db", study="mine")
    answer = mixtree("resume", "py.db")
    assert answer.code == 2
    assert "resume it in Python" in answer.err


def test_show_lists_no_model_that_was_trained_on_validation_rows(tables, done, base):
    args = [each for each in base if each not in ("--steps", "2")]
    found = done("fit", *args, "--budget", "400", "--policy", "auto", "--out", "out", "--json").json
    assert found["decided"][0].startswith("step size")
    told = done("show", "out").out
    assert "target folds" not in told.split("\nmixture:")[1].split("verdict:")[0]
    assert "→" in told
    assert "trained on" in " ".join(told.split())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("UPDATE studies SET config = '{'", "the row of study 'fit' was altered"),
        ("UPDATE nodes SET steps = 'x' WHERE path = '0'", "the row of node '0' was altered"),
        ("UPDATE verdicts SET verdict = '[['", "the verdict of study 'fit' was altered"),
        (
            """UPDATE verdicts SET verdict = '{"sentence": 3}'""",
            "the verdict of study 'fit' was altered or damaged .sentence must be text",
        ),
        (
            "UPDATE studies SET recipe = json_set(recipe, '$.values.out', 3)",
            "the recipe of study 'fit' was altered or damaged .values.out must be text",
        ),
    ],
)
def test_an_altered_study_is_told_in_one_line(study, mixtree, change, words):
    with closing(sqlite3.connect("out/study.db")) as database, database:
        database.execute(change)
    answer = mixtree("show", "out")
    assert answer.code == 1 and re.match(f"mixtree: {words}", answer.err), answer.err


def test_a_study_whose_best_node_is_gone_is_shown(study, done):
    with closing(sqlite3.connect("out/study.db")) as database, database:
        database.execute("UPDATE studies SET best = '7/7'")
    assert "fit: finished" in done("show", "out").out


def test_a_recipe_of_another_program_is_no_recipe_of_ours(study, done, mixtree):
    with closing(sqlite3.connect("out/study.db")) as database, database:
        database.execute("""UPDATE studies SET recipe = '{"mine": 3}'""")
    assert "fit: finished" in done("show", "out").out
    refused = mixtree("resume", "out")
    assert refused.code == 2 and "was not made by mixtree fit" in refused.err
