"""From CSV files to a model, as a user would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

from mixtree.engine.study import stored_tree
from mixtree.storage.sql import open_storage
from mixtree.trainers.mlp import MlpTrainer
from mixtree.verdict import judge as judging

KEYS = [
    "study", "policy", "decided", "mixture", "metric", "val_score", "test_score", "budget", "spent",
    "verdict",
]  # fmt: skip


def weights(folder: str) -> bytes:
    return (Path(folder) / "weights.safetensors").read_bytes()


def test_fit_prints_one_object_and_writes_the_folder(tables, done, base):
    answer = done("fit", *base, "--out", "out", "--json")
    found = answer.json
    assert list(found) == KEYS
    assert found["study"] == "fit"
    assert found["policy"] == "mixmatch-bisect+commit"
    assert list(found["mixture"]) == ["ct", "fl", "oh"]
    assert sum(found["mixture"].values()) == pytest.approx(1)
    assert found["budget"] == 40 >= sum(found["spent"].values())
    verdict = found["verdict"]
    assert list(verdict) == [
        "sentence", "score", "against", "hull", "mixture", "queries", "notes", "reference_spent", "warnings",
        "metric", "higher_is_better", "of", "optimistic", "comparison", "expectation", "next_step",
    ]  # fmt: skip
    assert (verdict["score"]["rows"], verdict["score"]["value"]) == (60, pytest.approx(found["test_score"]))
    assert [each["name"].removesuffix("+decay") for each in verdict["against"]] == ["uniform"]
    assert verdict["reference_spent"] == {"uniform": 60}  # its last half twice
    assert json.loads(Path("out/verdict.json").read_text()) == verdict
    names = {"weights.safetensors", "model.json", "MODEL_CARD.md", "preprocessing", "study.db"}
    assert names <= {each.name for each in Path("out").iterdir()}
    assert load_file("out/weights.safetensors")["parameters"].size > 0
    about = json.loads(Path("out/model.json").read_text())
    assert {key: about[key] for key in KEYS} == found
    assert "numeric: x" in answer.err
    assert "date: day (text, read as %Y-%m-%d)" in answer.err


@pytest.mark.parametrize(
    "model", ["mlp", "linear", "lightgbm", "xgboost", "sklearn:SGDClassifier", "sklearn:GaussianNB"]
)
def test_scores_are_those_of_the_predictions(tables, done, base, model):
    args = ["--model", model, "--metric", "accuracy", "--budget", "300", "--steps", "10"]
    found = done("fit", *base, *args, "--out", "out", "--json").json
    done("predict", "out", "new.csv", "-o", "p.csv")
    right = pl.read_csv("p.csv")["prediction"] == pl.read_csv("test.csv")["bought"]
    assert found["test_score"] == pytest.approx(right.mean())
    assert right.mean() > 0.6


def test_a_regression(tables, done):
    found = done(
        "fit", "train.csv", "--source-col", "state", "--label", "spend", "--drop", "id", "--drop", "bought",
        "--val", "val.csv", "--test", "test.csv", "--model", "linear", "--lr", "0.01", "--budget", "400",
        "--out", "out", "--json",
    ).json  # fmt: skip
    assert found["metric"] == "rmse"
    done("predict", "out", "new.csv", "-o", "p.csv")
    predicted = pl.read_csv("p.csv")
    assert predicted.columns == ["prediction"]
    error = (predicted["prediction"] - pl.read_csv("test.csv")["spend"]).pow(2).mean() ** 0.5
    assert found["test_score"] == pytest.approx(error, rel=1e-5)
    assert error < 2


def test_the_verdict_is_printed_shown_and_on_the_card(tables, done, base):
    text = done("fit", *base, "--reference", "all", "--out", "out").out
    verdict = json.loads(Path("out/verdict.json").read_text())
    lines = [verdict["comparison"], verdict["expectation"], f"Next: {_lower(verdict['next_step'])}"]
    assert text.splitlines()[:3] == lines and text.splitlines()[3].startswith("mixture: ")
    assert verdict["sentence"] == " ".join(lines[:2])
    assert not any(note in text for note in verdict["notes"]) and "steps: " not in text
    assert verdict["reference_spent"] == {"uniform": 60, "single sources": 180, "validation": 60}
    shown = done("show", "out")
    assert shown.out.splitlines()[:3] == lines
    assert not any(note in shown.out for note in verdict["notes"])
    assert all(note in done("show", "out", "--verbose").out for note in verdict["notes"])
    assert done("show", "out", "--json").json["verdict"] == verdict
    card = Path("out/MODEL_CARD.md").read_text()
    assert all(line in card for line in lines)
    assert all(note in card for note in verdict["notes"])
    assert "no mixture that was not tried is better" in card.replace("\n", " ")
    assert done("resume", "out", "--json").json["verdict"] == verdict


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def test_all_notes_are_printed_on_demand_and_nothing_twice(tables, done, base):
    # The label again, but for the last rows of all: a warning before training.
    for name in ("train", "val", "test"):
        table = pl.read_csv(f"{name}.csv")
        table.with_columns(pl.col("bought").alias("paid")).write_csv(f"{name}.csv")
    answer = done("fit", *base, "--verbose", "--out", "out")
    verdict = json.loads(Path("out/verdict.json").read_text())
    assert all(f"note: {note}" in answer.out for note in verdict["notes"])
    assert "steps: " in answer.out and "outside the budget: uniform 60 steps" in answer.out
    warnings = [line for line in (answer.err + answer.out).splitlines() if line.startswith("warning: ")]
    assert any("paid" in line for line in warnings) and len(set(warnings)) == len(warnings)
    assert any("paid" in each for each in verdict["warnings"])
    assert "verbose" not in done("show", "out", "--json").out


def test_rows_are_held_out_where_there_are_enough(tables, done, base, unjudged):
    pl.read_csv("train.csv").drop("state").write_csv("val.csv")
    found = done("fit", *unjudged, "--val", "val.csv", "--out", "out", "--json").json
    about = json.loads(Path("out/model.json").read_text())
    assert (about["rows"]["validation"], about["rows"]["holdout"]) == (180, 60)
    assert found["verdict"]["score"]["rows"] == 60
    assert done("resume", "out", "--json").json == found
    dry = done("fit", *unjudged, "--val", "val.csv", "--holdout", "0.5", "--dry-run", "--json").json
    assert (dry["validation"], dry["holdout"]) == (120, 120)
    with_test = done("fit", *unjudged, "--val", "val.csv", "--test", "test.csv", "--dry-run", "--json").json
    assert (with_test["validation"], with_test["holdout"], with_test["test"]) == (240, 0, 60)


def test_few_rows_choose_and_score_and_that_is_said(tables, done, unjudged):
    args = [*unjudged, "--val", "val.csv", "--json"]
    verdict = done("fit", *args, "--out", "few").json["verdict"]
    assert "cross-fitted on the 40 rows" in verdict["sentence"]
    assert verdict["warnings"] == []  # the sentence says it
    nested = done("fit", *args, "--nested", "--attribution", "loo", "--reference", "none", "--out", "n").json
    assert "on 40 rows by fits like this one" in nested["verdict"]["sentence"]
    assert nested["verdict"]["reference_spent"] == {"nested folds": 200, "attribution": 32}
    assert nested["verdict"]["against"] == []
    assert sum(nested["spent"].values()) <= 40


def test_a_search_that_stops_early_leaves_steps_unspent(tables, done, base):
    args = [*base, "--budget", "400", "--stop-early"]
    found = done("fit", *args, "--out", "out", "--json").json
    assert found["spent"]["commit"] == 200
    assert sum(found["spent"].values()) < 400
    assert "stopped early" in done("show", "out").out
    assert done("resume", "out", "--json").json == found


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--nested"], "from test rows or from nested, not both"),
        (["--holdout", "0.2"], "from test rows or from holdout, not both"),
        (["--reference", "best"], "reference is one of uniform, all, none; got 'best'"),
        (["--attribution", "all"], "attribution is one of loo, shapley; got 'all'"),
        (["--policy", "auto", "--stop-early"], "policy 'auto' knows no stop_early"),
    ],
)
def test_how_to_judge_is_checked_before_training(tables, mixtree, base, flags, message):
    answer = mixtree("fit", *base, *flags, "--out", "out")
    assert answer.code == 2
    assert message in answer.err


def test_a_regression_is_judged_in_its_own_units(tables, done):
    args = ["train.csv", "--source-col", "state", "--label", "spend", "--drop", "id", "--drop", "bought"]
    more = ["--val", "val.csv", "--model", "linear", "--lr", "0.01", "--budget", "400", "--json"]
    found = done("fit", *args, *more, "--test", "test.csv", "--out", "out").json
    assert found["verdict"]["score"]["value"] == pytest.approx(found["test_score"], rel=1e-5)


def test_one_file_per_source_is_the_same_study(tables, done, base):
    done("fit", *base, "--out", "one")
    files = [part for name in ("ct", "fl", "oh") for part in ("--source", f"{name}={name}.csv")]
    done("fit", *files, *base[3:], "--out", "three")
    assert weights("one") == weights("three")


def test_a_toml_file_equals_the_flags(tables, done, base):
    done("fit", *base, "--min", "fl=0.2", "--min", "ct=0.1", "--nu", "0.3", "--out", "flags")
    Path("options.toml").write_text(
        'tables = ["train.csv"]\nsource-col = "state"\nlabel = "bought"\ndrop = ["id", "spend"]\n'
        'val = "val.csv"\ntest = "test.csv"\nmodel = "linear"\nbudget = 40\nsteps = 2\nnu = 0.3\n'
        'out = "toml"\nmin = { fl = 0.2, ct = 0.1 }\n'
    )
    done("fit", "options.toml")
    assert weights("flags") == weights("toml")
    done("fit", "options.toml", "--seed", "5", "--out", "other")
    assert weights("other") != weights("toml")


def test_a_dry_run_does_nothing(tables, done, base):
    before = sorted(tables.iterdir())
    found = done("fit", *base, "--out", "out", "--dry-run", "--json").json
    assert found["rows"] == {"ct": 80, "fl": 80, "oh": 80}
    assert (found["validation"], found["test"]) == (40, 60)
    assert found["columns"] == {
        "x": "numeric",
        "colour": "categorical",
        "day": "date",
        "household": "numeric",
    }
    assert (found["budget"], found["steps"], found["metric"]) == (40, 2, "auroc")
    done("fit", *base, "--dry-run")
    assert sorted(tables.iterdir()) == before


def test_a_target_is_split_by_label_group_or_time(tables, done, unjudged):
    target = ["--target", "test.csv", "--val-frac", "0.5", "--dry-run", "--json"]
    by_label = done("fit", *unjudged, *target).json
    assert (by_label["validation"], by_label["test"]) == (30, 30)
    by_group = done("fit", *unjudged, *target, "--group-col", "household").json
    assert by_group["validation"] % 4 == 0  # households of four rows stay together
    assert "household" not in by_group["columns"]
    by_time = done("fit", *unjudged, *target, "--time-col", "day").json
    assert by_time["validation"] + by_time["test"] == 60


def test_weights_are_bounded(tables, done, base):
    found = done("fit", *base, "--min", "fl=0.5", "--out", "least", "--json").json
    assert found["mixture"]["fl"] >= 0.5
    args = ["--policy", "mixmatch-ch", "--max", "ct=0.2", "--min", "oh=0.3", "--out", "most", "--json"]
    found = done("fit", *base, *args).json
    assert found["mixture"]["ct"] <= 0.2 + 1e-9
    assert found["mixture"]["oh"] >= 0.3 - 1e-9


@pytest.mark.parametrize(
    "flags",
    [
        ["--class-weight", "balanced"],
        ["--lr", "0.5"],
        ["--batch-size", "7"],
        ["--objective", "metric", "--metric", "accuracy"],
        ["--return", "best", "--nu", "auto", "--rho", "0.9", "--optimism", "1"],
        ["--policy", "auto"],
        ["--policy", "pooled+decay"],
        ["--seed", "3"],
    ],
)
def test_an_option_has_an_effect(tables, done, base, flags):
    done("fit", *base, "--out", "plain")
    done("fit", *base, *flags, "--out", "other")
    assert weights("plain") != weights("other")
    done("predict", "other", "new.csv", "-o", "p.csv")


def test_samples_are_counted_in_batches(tables, done, base):
    args = ["--unit", "samples", "--batch-size", "10", "--budget", "400", "--steps", "20"]
    found = done("fit", *base, *args, "--out", "out", "--json").json
    assert found["budget"] == 40
    again = done("resume", "out", "--json").json
    assert again == found
    assert done("resume", "out", "--budget", "60", "--json").json["budget"] == 60


def test_workers_give_the_same_model(tables, done, base):
    done("fit", *base, "--out", "one")
    done("fit", *base, "--workers", "2", "--out", "two")
    assert weights("one") == weights("two")


def test_a_time_limit_ends_cleanly(tables, done, base):
    found = done(
        "fit",
        *base,
        "--budget",
        "100000000",
        "--steps",
        "1000",
        "--time-limit",
        "0.5s",
        "--out",
        "o",
        "--json",
    ).json
    assert 0 < sum(found["spent"].values()) < 100000000


def test_a_storage_elsewhere_is_found_again(tables, done, base):
    done("fit", *base, "--storage", "studies.db", "--study", "a", "--out", "out")
    assert not Path("out/study.db").exists()
    assert done("show", "out", "--json").json["study"] == "a"
    assert done("resume", "studies.db", "--budget", "50", "--json").json["budget"] == 50
    done("fit", *base, "--storage", "studies.db", "--study", "b", "--out", "out2")
    assert [each["study"] for each in done("list", "studies.db", "--json").json["studies"]] == ["a", "b"]


def test_two_studies_in_one_folder(tables, done, mixtree, base):
    done("fit", *base, "--out", "out")
    first = weights("out")
    again = mixtree("fit", *base, "--seed", "1", "--out", "out")
    assert again.code == 2
    assert "mixtree resume out fit" in again.err
    assert "choose another --out" in again.err
    before = {file: file.read_bytes() for file in Path("out").rglob("*") if file.is_file()}
    for args in (["--study", "second"], ["--study", "second", "--storage", "elsewhere.db"]):
        second = mixtree("fit", *base, "--seed", "1", *args, "--out", "out")
        assert second.code == 2
        assert "'fit'" in second.err and "choose another --out" in second.err
    assert {file: file.read_bytes() for file in Path("out").rglob("*") if file.is_file()} == before
    assert weights("out") == first
    done("copy", "out", "fit", "again")
    assert mixtree("resume", "out", "again", "--budget", "80").code == 2  # it would replace the model of fit
    done("resume", "out", "again", "--budget", "80", "--out", "out2")
    assert weights("out") == first
    assert json.loads(Path("out2/model.json").read_text())["budget"] == 80


def test_a_study_that_began_before_another_one_left_its_model_keeps_off(tables, done, mixtree, base):
    for study in ("a", "b"):
        done("fit", *base, "--storage", "studies.db", "--study", study, "--out", study)
    Path("a/model.json").rename("kept.json")
    shutil.copy("b/model.json", "a/model.json")  # as if b had ended in this folder while a was running
    answer = mixtree("resume", "studies.db", "a")
    assert answer.code == 2
    assert "--out" in answer.err and "holds the model of study 'b'" in answer.err
    told = mixtree("show", "studies.db", "a")
    assert "is that of study 'b', not of this one" in told.err


def test_a_folder_whose_study_was_deleted_is_free_again(tables, done, base):
    done("fit", *base, "--out", "out")
    done("delete", "out", "fit", "--yes")
    done("fit", *base, "--seed", "1", "--out", "out")
    assert json.loads(Path("out/model.json").read_text())["seed"] == 1


@pytest.mark.parametrize("form", ["sqlite:////{0}/new.db", "sqlite:///new.db", "sqlite+pysqlite:///new.db"])
def test_a_new_sqlite_file_may_be_named_by_its_url(tables, done, mixtree, base, form):
    url = form.format(str(tables).strip("/"))
    found = done("fit", *base, "--storage", url, "--out", "out", "--json").json
    assert Path("new.db").is_file()
    assert done("show", url, "--json").json["mixture"] == found["mixture"]
    assert done("show", "out", "--json").json["study"] == "fit"
    assert mixtree("fit", *base, "--storage", url, "--out", "out2").code == 2  # the same study again


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", ":memory:"])
def test_a_storage_in_memory_is_refused(tables, mixtree, base, url):
    answer = mixtree("fit", *base, "--storage", url, "--out", "out")
    assert answer.code == 2
    assert "in memory" in answer.err and not Path("out").exists()


def test_a_budget_may_be_written_in_powers_of_ten(tables, done, mixtree, base):
    plain = [each for each in base if each not in ("--budget", "40")]
    assert done("fit", *plain, "--budget", "4e1", "--out", "out", "--json").json["budget"] == 40
    assert done("resume", "out", "--budget", "8e1", "--json").json["budget"] == 80
    for wrong in ("1e4.5", "1.5", "4e-1", "nan", "1e999999999", "many"):
        answer = mixtree("fit", *plain, "--budget", wrong, "--dry-run")
        assert answer.code == 2
        assert "is not a whole number" in " ".join(answer.err.split()), wrong


def test_the_study_and_the_model_know_the_data_by_one_fingerprint(tables, done, mixtree, base):
    args = [each for each in base if each not in ("--steps", "2", "--test", "test.csv")]
    done("fit", *args, "--budget", "400", "--policy", "auto", "--holdout", "0.2", "--out", "out")
    model = json.loads(Path("out/model.json").read_text())
    shown = done("show", "out", "--json").json
    assert shown["data"] == model["data"] != ""
    assert shown["at_odds"] is None
    done("fit", *args, "--budget", "40", "--policy", "uniform", "--holdout", "0.2", "--out", "other")
    assert json.loads(Path("other/model.json").read_text())["data"] == model["data"]  # of the data as given
    Path("out/model.json").write_text(json.dumps({**model, "data": "0" * 32}))
    told = done("show", "out")
    assert "trained on other data (00000000) than this study" in told.err


def test_resume_gives_a_finished_study_more_steps(tables, done, base):
    done("fit", *base, "--out", "out")
    found = done("resume", "out", "--budget", "80", "--json").json
    assert found["budget"] == 80 >= sum(found["spent"].values()) > 40
    assert done("resume", "out", "--json").json == found


def test_resume_notices_changed_tables(tables, done, mixtree, base):
    done("fit", *base, "--out", "out")
    file = Path("train.csv")
    file.write_text(file.read_text().replace(",2024-01", ",2024-02"))
    answer = mixtree("resume", "out", "--budget", "80")
    assert answer.code in (1, 2)
    assert "--allow-changed-data" in answer.err.splitlines()[-1]


def test_a_study_that_diverges_fails_in_one_line(tables, mixtree, base):
    answer = mixtree("fit", *base, "--lr", "1e38", "--model", "mlp", "--out", "out")
    assert answer.code == 1
    assert "diverged" in answer.err.splitlines()[-1]
    assert "Traceback" not in answer.err


def test_init_continues_an_earlier_model(tables, done, base):
    done("fit", *base, "--out", "first")
    # Other rows, and so other scales: the weights fit only the features of the first model.
    pl.read_csv("train.csv").with_columns(pl.col("x") * 3, pl.col("household") + 100).write_csv("later.csv")
    args = ["later.csv", *base[1:]]
    done("fit", *args, "--init", "first", "--lr", "1e-12", "--out", "second")
    read = [Path(name, "preprocessing", "preprocessing.json").read_text() for name in ("first", "second")]
    assert read[0] == read[1]
    for name in ("first", "second"):
        done("predict", name, "new.csv", "-o", f"{name}-p.csv")
    first, second = (pl.read_csv(f"{name}-p.csv")["probability_yes"] for name in ("first", "second"))
    assert (first - second).abs().max() < 1e-5


def test_init_refuses_another_family(tables, done, mixtree, base):
    done("fit", *base, "--out", "first")
    answer = mixtree("fit", *base, "--model", "mlp", "--init", "first", "--out", "second")
    assert answer.code == 2
    assert "first holds a linear model" in answer.err


@pytest.mark.slow
def test_ctrl_c_and_resume_end_with_the_same_model(tables, done, base):
    args = [*base, "--budget", "1200", "--steps", "2", "--return", "best"]
    done("fit", *args, "--out", "whole")
    command = [sys.executable, "-m", "mixtree", "fit", *args, "--out", "cut"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and len(list(Path().glob("cut/study.db.checkpoints/fit/*"))) < 3:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert "mixtree resume cut/study.db fit" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert not Path("cut/weights.safetensors").exists()
    done("resume", "cut")
    assert weights("whole") == weights("cut")


def test_the_task_is_said_and_numbers_as_classes_get_a_hint(tables, done, base):
    assert "label: bought: one of 2 classes (no, yes)\n" in done("fit", *base, "--dry-run", "--out", "m").err
    frame = pl.read_csv("train.csv").with_columns(pl.arange(pl.len()).mod(5).alias("visits"))
    frame.write_csv("train.csv")
    for name in ("val.csv", "test.csv"):
        pl.read_csv(name).with_columns(pl.arange(pl.len()).mod(5).alias("visits")).write_csv(name)
    counted = [("visits" if each == "bought" else each) for each in base]
    told = done("fit", *counted, "--drop", "bought", "--dry-run", "--out", "m").err
    assert (
        "label: visits: one of 5 classes (0, 1, 2, 3, 4); --task regression predicts them as numbers" in told
    )
    told = done("fit", *counted, "--drop", "bought", "--task", "regression", "--dry-run", "--out", "m").err
    assert "label: visits: a number (regression)" in told


def test_test_rows_that_are_validation_rows_do_not_score(tables, done):
    rows = np.random.default_rng(0).normal(size=(460, 4))
    frame = pl.DataFrame(rows, schema=list("abcd")).with_columns(y=pl.Series((rows[:, 0] > 0).astype(int)))
    train, val, rest = frame[:300], frame[300:420], frame[420:]
    train.with_columns(src=pl.Series(["one", "two"] * 150)).write_csv("t.csv")
    val.write_csv("v.csv")
    flags = [
        "--source-col",
        "src",
        "--label",
        "y",
        "--val",
        "v.csv",
        "--model",
        "linear",
        "--reference",
        "none",
    ]
    for name, test in {"all": val, "one class": pl.concat([val, rest.filter(pl.col("y") == 1)])}.items():
        test.write_csv("test.csv")
        answer = done("fit", "t.csv", *flags, "--test", "test.csv", "--budget", 100, "--out", name, "--json")
        assert answer.json["test_score"] is None  # not an error once all is trained
        left = f"120 of {len(test)} test rows also stand among the validation rows"
        assert any(each.startswith(left) for each in answer.json["verdict"]["warnings"])
        assert answer.err.count("also stand") == 1


def test_resume_writes_into_the_folder_that_it_was_given(tables, done, base):
    done("fit", *base, "--out", "out")
    before = {each.name: each.read_bytes() for each in Path("out").iterdir() if each.is_file()}
    shutil.copytree("out", "copied")
    found = done("resume", "copied", "--budget", "80", "--json").json
    assert found["budget"] == json.loads(Path("copied/model.json").read_text())["budget"] == 80
    assert {each.name: each.read_bytes() for each in Path("out").iterdir() if each.is_file()} == before


def test_resume_of_a_study_stored_in_another_folder_goes_where_it_began(tables, done, base):
    done("fit", *base, "--out", "a")
    before = Path("a/model.json").read_bytes()
    done("fit", *base, "--seed", "1", "--out", "b", "--storage", "a/study.db", "--study", "two")
    done("resume", "a", "two", "--budget", "80")
    assert Path("a/model.json").read_bytes() == before
    assert json.loads(Path("b/model.json").read_text())["budget"] == 80


def test_a_test_file_that_cannot_score_is_spoken_of_in_the_verdict(tables, done, base):
    rows = Path("test.csv").read_text().splitlines()
    column = rows[0].split(",").index("bought")
    same = rows[1].split(",")[column]
    kept = [rows[0], *(row for row in rows[1:] if row.split(",")[column] == same)]
    Path("one.csv").write_text("\n".join(kept) + "\n")
    options = [each if each != "test.csv" else "one.csv" for each in base]
    found = done("fit", *options, "--out", "out", "--json").json
    assert any(each.startswith("no test score: ") for each in found["verdict"]["warnings"])


@pytest.mark.parametrize("metric", ["mae-exp", "rmse"])
def test_the_estimator_minimises_what_the_command_minimises(tables, done, metric):
    from mixtree.fitting.estimators import MixtureRegressor

    for name in ("train", "val"):
        frame = pl.read_csv(f"{name}.csv").with_columns(price=5.0 + pl.col("spend") / 10.0)
        frame.drop("id", "spend", "bought", "day").write_csv(f"{name}.csv")
    flags = ["--source-col", "state", "--label", "price", "--val", "val.csv", "--metric", metric]
    flags += ["--objective", "metric", "--model", "linear", "--policy", "mixmatch-bisect", "--steps", "5"]
    flags += ["--batch-size", "20", "--budget", "100", "--holdout", "0", "--reference", "none"]
    found = done("fit", "train.csv", *flags, "--out", "out", "--json").json
    train, val = pl.read_csv("train.csv"), pl.read_csv("val.csv")
    model = MixtureRegressor(
        "linear",
        policy="mixmatch-bisect",
        metric=metric,
        objective="metric",
        budget=100,
        steps=5,
        batch_size=20,
        holdout=0.0,
        reference="none",
    )
    x, y, source = train.drop("price", "state"), train["price"].to_numpy(), train["state"].to_numpy()
    model.fit(x, y, source=source, X_val=val.drop("price"), y_val=val["price"].to_numpy())
    with closing(open_storage("out/study.db")) as storage:
        values = [node.value for node in stored_tree(storage.nodes("fit")).values()]
    assert [each["value"] for each in model.history_] == pytest.approx(values, rel=1e-5)
    assert model.mixture_ == pytest.approx(found["mixture"])
    assert model.best_score_ == pytest.approx(found["val_score"], rel=1e-5)
    assert model.verdict_.score.value == pytest.approx(found["verdict"]["score"]["value"], rel=1e-5)


@pytest.mark.parametrize("storage", [[], ["--storage", "elsewhere.db"]])
def test_a_folder_that_is_removed_while_the_verdict_is_made_costs_no_model(
    storage, tables, done, base, monkeypatch
):
    def removing(*args, **options):
        shutil.rmtree("out")
        return judge(*args, **options)

    judge = judging.judge
    monkeypatch.setattr(judging, "judge", removing)
    answer = done("fit", *base, "--out", "out", *storage)
    assert "out was moved or removed before the model was written, which is in out anyway" in " ".join(
        answer.out.split()
    )
    monkeypatch.undo()
    done("predict", tables / "out", tables / "new.csv", "-o", tables / "predictions.csv")


def test_a_folder_that_is_removed_while_the_study_runs_stops_it_at_once(tables, mixtree, base, monkeypatch):
    def removing(self, states):
        shutil.rmtree("out", ignore_errors=True)
        return evaluate(self, states)

    evaluate = MlpTrainer.evaluate
    monkeypatch.setattr(MlpTrainer, "evaluate", removing)
    answer = mixtree("fit", *base, "--out", "out")
    assert answer.code == 1
    assert "was moved or removed while the study ran, which stops here" in answer.err
    assert not Path("out/model.json").exists()


def test_a_folder_that_cannot_be_made_leaves_none_of_those_above_it(tables, mixtree, base):
    answer = mixtree("fit", *base, "--out", f"new/{'x' * 300}")
    assert answer.code == 2 and "cannot make the folder --out new/xxx" in answer.err
    assert not Path("new").exists()


def test_a_link_to_itself_is_no_model_to_start_from(tables, mixtree, base):
    Path("ring").symlink_to("ring")
    answer = mixtree("fit", *base, "--out", "new", "--init", "ring")
    assert answer.code == 2 and "cannot be read: " in answer.err


def test_names_of_anybody_s_steer_no_terminal_and_are_no_markup_of_the_card(tables, done, base):
    train = pl.read_csv("train.csv")
    evil = {"ct": "<script>x</script>\x1b[2J", "fl": "\u202e|`*a*`", "oh": "oh"}
    train.with_columns(pl.col("state").replace(evil)).write_csv("train.csv")
    fitted = done("fit", *base, "--out", "out", "--verbose")
    shown = done("show", "out", "--verbose", "--tree")
    card = Path("out/MODEL_CARD.md").read_text(encoding="utf-8")
    texts = [fitted.out, fitted.err, shown.out, shown.err, card]
    assert not any(sign in text for text in texts for sign in "\x1b\u202e")
    assert "\\x1b[2J" in fitted.out and "\\u202e" in shown.out
    assert "<script>" not in card and "| &lt;script&gt;x&lt;/script&gt;\\\\x1b\\[2J |" in card
    assert "\\\\u202e\\|\\`\\*a\\*\\`" in card


def test_all_files_of_a_model_can_be_read_by_the_same_people(tables, done, base):
    before = os.umask(0o027)
    try:
        done("fit", *base, "--out", "out")
    finally:
        os.umask(before)
    assert {oct(each.stat().st_mode)[-3:] for each in Path("out").rglob("*") if each.is_file()} == {"640"}


def test_a_cluster_without_an_address_is_refused_before_anything_is_made(tables, mixtree, base):
    answer = mixtree("fit", *base, "--workers", "ray:nowhere", "--out", "never")
    assert answer.code == 2 and "HOST:PORT" in answer.err
    assert not Path("never").exists()
