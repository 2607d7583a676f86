"""Algorithms on the same tables at the same budget."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console

from mixtree.cli.compare import FLAGS as compare_flags
from mixtree.cli.compare import _print
from mixtree.cli.options import FIT as fit_flags
from mixtree.errors import TrainingError
from mixtree.experiments import comparison
from mixtree.experiments.comparison import Summary

RUN_KEYS = ["algorithm", "repeat", "val_score", "test_score", "mixture", "spent", "lr_scale", "finished"]


def test_compare_prints_runs_and_a_summary(tables, done, base):
    ids = "mixmatch-bisect,uniform+decay,only:fl"
    found = done("compare", *base, "--algorithms", ids, "--repeats", "2", "--json").json
    assert [(run["algorithm"], run["repeat"]) for run in found["runs"]] == [
        (name, repeat) for repeat in (0, 1) for name in ids.split(",")
    ]
    for run in found["runs"]:
        assert list(run) == RUN_KEYS
        assert 0 <= run["val_score"] <= 1
        assert 0 <= run["test_score"] <= 1
        assert sum(run["mixture"].values()) == pytest.approx(1)
        assert sum(run["spent"].values()) <= found["budget"] == 40
    verdict = found["verdict"]
    assert verdict["of"] == "mixmatch-bisect"
    assert [each["name"] for each in verdict["against"]] == ["uniform+decay", "only:fl"]
    assert all("on your 60 rows" in sentence for sentence in verdict["sentences"])
    assert verdict["repeats"] == 2
    mean = {each["algorithm"]: each["score"] for each in found["summary"]}
    for each in verdict["against"]:  # the sentences are of what the table shows
        gap = mean["mixmatch-bisect"] - mean[each["name"]]
        assert each["difference"] == pytest.approx(gap) and each["low"] <= gap <= each["high"]
    for each in found["summary"]:
        scores = [run["test_score"] for run in found["runs"] if run["algorithm"] == each["algorithm"]]
        assert each["repeats"] == 2
        assert each["score"] == pytest.approx(sum(scores) / 2)


def test_a_deviation_has_the_decimals_of_its_score(capsys):
    console = Console(width=100, emoji=False)
    _print(console, [Summary("uniform", 3, 0, 0.71779, 0.0008025, {"fl": 1.0}, 60.0, 1.0)], "auroc", "rows")
    assert "0.718 ± 0.001" in capsys.readouterr().out


def test_the_seed_reaches_the_training(tables, done, base):
    def scores(seed):
        words = ("--algorithms", "uniform+decay", "--repeats", "1", "--seed", seed, "--json")
        found = done("compare", *base, *words).json
        assert found["scored_on"] == "test rows"
        return found["runs"][0]["val_score"], found["runs"][0]["test_score"]

    assert scores("0") == scores("0") != scores("7")


def test_the_default_algorithms_are_searches_and_baselines(tables, done, base):
    answer = done("compare", *base, "--repeats", "1", "--out", "report")
    for name in ("mixmatch-bisect+commit", "uniform+decay", "pooled+decay", "only:fl+decay", "fine-tune"):
        assert name in answer.out
    assert "nan" not in answer.out
    assert "test rows" in answer.out
    runs = list(csv.DictReader(Path("report/runs.csv").read_text().splitlines()))
    results = json.loads(Path("report/results.json").read_text())
    assert len(runs) == len(results["runs"]) == len(results["summary"])
    assert Path("report/scores.png").stat().st_size > 5000


def test_of_many_sources_the_largest_are_tried_alone(tables, done, base):
    frame = pl.read_csv("train.csv")
    names = [f"s{place % 13:02}" for place in range(frame.height)]  # the first ones have a row more
    frame.with_columns(pl.Series("state", names)).write_csv("train.csv")
    answer = done("compare", *base, "--repeats", "1")
    assert "only:s00+decay" in answer.out and "only:s12+decay" not in answer.out
    assert "of the 13 sources the 10 largest are tried alone" in answer.err


def test_the_target_is_split_anew_for_every_repeat(tables, done, unjudged):
    args = ["--target", "test.csv", "--val-frac", "0.5", "--algorithms", "pooled", "--repeats", "2", "--json"]
    runs = done("compare", *unjudged, *args).json["runs"]
    assert runs[0]["val_score"] != runs[1]["val_score"]


def test_without_test_rows_the_validation_rows_score(tables, done, unjudged):
    answer = done("compare", *unjudged, "--val", "val.csv", "--algorithms", "pooled", "--repeats", "1")
    assert "validation rows" in answer.out
    assert "no paired comparison" in answer.out
    found = done(
        "compare", *unjudged, "--val", "val.csv", "--algorithms", "pooled", "--repeats", "1", "--json"
    ).json
    assert found["runs"][0]["test_score"] is None
    assert found["summary"][0]["score"] == found["runs"][0]["val_score"]


def test_validation_rows_are_held_out_where_there_are_enough(tables, done, unjudged):
    pl.read_csv("train.csv").drop("state").write_csv("val.csv")
    args = ["--val", "val.csv", "--algorithms", "uniform,pooled,only:fl", "--repeats", "1"]
    text = done("compare", *unjudged, *args).out
    assert "validation rows that were held out" in text
    assert "uniform: the same predictions as pooled on your 60 rows" in text or "from pooled" in text
    found = done("compare", *unjudged, *args, "--holdout", "0.1", "--json").json
    assert "on your 24 rows" in found["verdict"]["sentences"][1]


def test_test_rows_of_one_class_are_set_aside_with_a_warning(tables, done, base):
    pl.read_csv("test.csv").filter(pl.col("bought") == "no").write_csv("test.csv")
    answer = done("compare", *base, "--algorithms", "pooled", "--repeats", "1", "--json")
    assert "no test score" in answer.err
    assert answer.json["runs"][0]["test_score"] is None


def test_names_that_look_like_markup(tables, done, base):
    file = Path("train.csv")
    file.write_text(file.read_text().replace(",fl\n", ",[/bold]\n"))
    answer = done("compare", *base, "--algorithms", "only:[/bold],pooled", "--repeats", "1")
    assert "only:[/bold]" in answer.out


def test_a_toml_file_equals_the_flags(tables, done, base):
    Path("options.toml").write_text(
        'tables = "train.csv"\nsource-col = "state"\nlabel = "bought"\ndrop = ["id", "spend"]\n'
        'val = "val.csv"\ntest = "test.csv"\nmodel = "linear"\nbudget = 40\nsteps = 2\n'
        'algorithms = "pooled"\nrepeats = 1\njson = true\n'
    )
    flags = done("compare", *base, "--algorithms", "pooled", "--repeats", "1", "--json").json
    assert done("compare", "options.toml").json["runs"] == flags["runs"]


def test_a_model_is_not_scored_on_rows_that_it_was_trained_on(tables, done, unjudged):
    ids = "uniform+decay,validation,fine-tune"
    args = [*unjudged, "--val", "val.csv", "--algorithms", ids, "--repeats", "1"]
    scores = {run["algorithm"]: run["val_score"] for run in done("compare", *args, "--json").json["runs"]}
    assert scores["uniform+decay"] is not None
    assert scores["validation"] is None
    assert scores["fine-tune"] is None
    assert "– where the model was trained on them" in done("compare", *args).out.replace("\n", " ")


def test_workers_change_nothing(tables, done, base):
    args = [*base, "--algorithms", "mixmatch-bisect", "--repeats", "1", "--json"]
    assert done("compare", *args, "--workers", "2").json["runs"] == done("compare", *args).json["runs"]


def test_the_objective_and_the_step_size_are_those_of_a_fit(tables, done, base):
    """The same policy, data and seed choose the same mixture by the same measure in both commands."""
    args = [*base, "--algorithms", "mixmatch-bisect", "--repeats", "1", "--metric", "accuracy", "--json"]
    by_loss = done("compare", *args).json["runs"]
    by_metric = done("compare", *args, "--objective", "metric").json["runs"]
    assert by_loss[0]["mixture"] != by_metric[0]["mixture"]
    given = [*base, "--algorithms", "auto", "--repeats", "1", "--json", "--budget", "400"]
    tried = [done("compare", *given, *more).json["runs"][0]["spent"] for more in ([], ["--lr", "0.05"])]
    assert tried[1]["step size"] < tried[0]["step size"]  # a given step size is tried alone


@pytest.fixture
def diverging(monkeypatch):
    """Lets runs of these names diverge: "uniform+decay/1" is that algorithm's second repeat."""
    gone: set[str] = set()
    real = comparison.run

    def run(search, trainer, *, study, **options):
        if "/".join(study.split("/")[:2]) in gone:  # at smaller steps too
            raise TrainingError("every model diverged")
        return real(search, trainer, study=study, **options)

    monkeypatch.setattr(comparison, "run", run)
    return gone


def test_a_repeat_that_diverged_is_told_and_has_no_share_in_the_means(tables, done, base, diverging):
    diverging.add("uniform+decay/1")
    args = [*base, "--algorithms", "pooled,uniform+decay", "--repeats", "2", "--out", "report"]
    text = done("compare", *args).out
    assert "uniform+decay diverged in 1 of 2 repeats: no mean score" in text
    assert "pooled diverged" not in text
    *_, row = csv.DictReader(Path("report/summary.csv").read_text().splitlines())
    assert row["algorithm"] == "uniform+decay" and row["diverged"] == "1"
    weights = [float(value) for key, value in row.items() if key.startswith("mixture_")]
    assert weights == pytest.approx([1 / len(weights)] * len(weights))
    assert "pooled: not comparable with uniform+decay, which diverged" in text  # as the table: no mean score
    found = done("compare", *args, "--json").json
    assert [each["diverged"] for each in found["summary"]] == [0, 1]
    assert found["summary"][1]["score"] is None
    assert found["verdict"]["repeats"] == 2 and found["verdict"]["against"] == []


def test_what_diverged_is_not_compared(tables, done, base, diverging):
    args = ["compare", *base, "--algorithms", "pooled,uniform+decay,only:fl", "--repeats", "1"]
    assert "one repeat: the intervals know nothing of what another seed would do" in done(*args).out
    diverging.add("uniform+decay/0")
    text = done(*args).out
    assert "uniform+decay diverged in 1 of 1 repeats" in text
    assert "pooled: not comparable with uniform+decay, which diverged" in text
    assert "only:fl on your 60 rows" in text or "only:fl by" in text
    diverging.clear()
    diverging.add("pooled/0")
    text = done(*args).out
    assert "pooled: not comparable with any other: it diverged" in text
    assert "on your 60 rows" not in text


def test_of_three_repeats_that_disagree_sentence_table_and_json_are_one_statistic(tables, done, base):
    """Repeats of one seed each: the first alone would say what the mean does not."""
    args = [*base, "--algorithms", "pooled+decay,only:fl+decay", "--repeats", "3", "--seed", "1"]
    found = done("compare", *args, "--json").json
    scores = {(run["algorithm"], run["repeat"]): run["test_score"] for run in found["runs"]}
    gaps = [scores["pooled+decay", r] - scores["only:fl+decay", r] for r in range(3)]
    (against,) = found["verdict"]["against"]
    assert against["difference"] == pytest.approx(sum(gaps) / 3) and against["difference"] != gaps[0]
    assert max(gaps) - min(gaps) > 0.0
    text = done("compare", *args).out
    assert "means over 3 repeats, paired by row; the intervals are for other rows and other seeds" in text
    assert found["verdict"]["sentences"][0] in text


# -------------------------------------------------------------------------------------- the options of a fit

BESIDE = ("--repeats", "1", "--json")


def test_compare_takes_every_option_of_fit():
    mine, its = ({flag.name: flag for flag in each} for each in (compare_flags, fit_flags))
    assert its.keys() <= mine.keys()
    assert all(mine[name].kind == flag.kind and mine[name].flag == flag.flag for name, flag in its.items())
    assert mine.keys() - its.keys() == {"algorithms", "repeats"}


def without_test(base):
    """The same without test rows."""
    place = base.index("--test")
    return [*base[:place], *base[place + 2 :]]


def test_nested_folds_score_every_algorithm(tables, done, mixtree, base):
    args = [*without_test(base), "--algorithms", "pooled,uniform", "--nested", *BESIDE]
    found = done("compare", *args).json
    assert [run["repeat"] for run in found["runs"]] == [fold for fold in range(5) for _ in "ab"]
    assert all(0 <= run["test_score"] <= 1 for run in found["runs"])
    (against,) = found["verdict"]["against"]
    assert against["name"] == "uniform" and against["low"] <= against["difference"] <= against["high"]
    told = done("compare", *args[:-3], "--repeats", "2").out
    assert "means over 5 folds in each of 2 repeats" in told
    assert "by fits that did not see the rows they were scored on" in told
    assert "not both" in mixtree("compare", *base, "--algorithms", "pooled", "--nested").err


def test_what_each_source_is_worth_to_the_first_algorithm(tables, done, base):
    args = [*base, "--algorithms", "pooled,uniform", "--attribution", "loo", "--repeats", "1"]
    notes = done("compare", *args, "--json").json["notes"]
    assert notes[0].startswith("attribution: runs of") and any("oh" in note for note in notes)
    assert notes[0] in done("compare", *args).out


def test_a_comparison_that_is_kept_goes_on_where_it_was_cut(tables, done, mixtree, base, monkeypatch):
    args = [*base, "--algorithms", "auto,mixmatch-ch+commit,uniform", "--repeats", "2", "--json"]
    args += ["--budget", "120"]
    whole = done("compare", *args).json
    kept = [*args, "--storage", "runs.db", "--study", "mine"]
    trained, train = [], comparison.run

    def cut(search, trainer, **how):
        trained.append(how["study"])
        if len(trained) == 4:
            raise KeyboardInterrupt
        return train(search, trainer, **how)

    monkeypatch.setattr(comparison, "run", cut)
    assert mixtree("compare", *kept).code == 130
    assert trained[2] == "mine/uniform/0"
    again = done("compare", *kept).json
    assert again["runs"] == whole["runs"] and again["verdict"] == whole["verdict"]
    names = [each["study"] for each in done("list", "runs.db", "--json").json["studies"]]
    assert sorted(names) == sorted(set(trained)) and len(names) == 6
    assert "cannot go on with other settings" in mixtree("compare", *kept, "--lr", "0.5").err
    assert "give both" in mixtree("compare", *args, "--study", "mine").err


def test_bounds_are_for_the_searches_that_know_them(tables, done, mixtree, base):
    ids = "mixmatch-ch,mixmatch-bisect,uniform+decay,auto"
    given = ["--algorithms", ids, "--min", "fl=0.3", "--max", "ct=0.1", *BESIDE]
    found = done("compare", *base, *given).json
    mixture = {run["algorithm"]: run["mixture"] for run in found["runs"]}
    assert mixture["mixmatch-ch"]["fl"] >= 0.3 - 1e-9 and mixture["mixmatch-ch"]["ct"] <= 0.1 + 1e-9
    assert mixture["mixmatch-bisect"]["fl"] >= 0.3 - 1e-9
    assert mixture["uniform+decay"]["ct"] == pytest.approx(1 / 3)
    assert found["notes"] == [
        "--min: for mixmatch-ch, mixmatch-bisect; the others run without",
        "--max: for mixmatch-ch; the others run without",
    ]
    error = mixtree("compare", *base, "--algorithms", "pooled", "--max", "ct=0.1", *BESIDE).err
    assert "--max: none of the algorithms keeps to it; add one that does" in error
    found = done("compare", *base, "--algorithms", "pooled", "--nu", "0.1", *BESIDE).json
    assert found["notes"] == ["--nu: for none of these algorithms"]


def test_the_policy_comes_first_and_the_reference_is_one_of_the_algorithms(tables, done, base):
    def ids(*args):
        found = done("compare", *base, *args, "--dry-run", *BESIDE).json
        return found["algorithms"]

    assert ids("--policy", "fine-tune", "--algorithms", "pooled,fine-tune") == ["fine-tune", "pooled"]
    assert ids("--algorithms", "pooled", "--reference", "uniform") == ["pooled", "uniform", "uniform+decay"]
    assert ids("--reference", "none") == ["auto", "mixmatch-bisect+commit"]
    everything = ids("--reference", "all", "--max", "fl=0.9")
    assert everything[:4] == ["auto", "mixmatch-ch+commit", "uniform", "uniform+decay"]
    assert everything[-1] == "validation+decay" and "only:fl+decay" in everything
    assert not list(Path().glob("**/study.db"))


def test_stop_early_and_the_time_limit_reach_the_runs(tables, done, base):
    given = [
        *base,
        "--budget",
        "3000",
        "--algorithms",
        "mixmatch-bisect+commit,uniform",
        "--seed",
        "3",
        *BESIDE,
    ]
    plain, stopped = (done("compare", *given, *more).json for more in ([], ["--stop-early"]))
    steps = [sum(each["runs"][0]["spent"].values()) for each in (plain, stopped)]
    assert steps[1] < steps[0] == 3000
    assert stopped["notes"] == ["--stop-early: for mixmatch-bisect+commit; the others run without"]
    cut = done("compare", *given, "--time-limit", "0.001s").json
    assert [run["finished"] for run in plain["runs"]] == [True, True]
    assert cut["runs"][0]["finished"] is False and sum(cut["runs"][0]["spent"].values()) < 3000
    assert cut["notes"][0].startswith("the time limit ended mixmatch-bisect+commit in 1 of 1 repeats, after ")


def test_all_algorithms_start_from_the_model_that_is_given(tables, done, base):
    done("fit", *base, "--budget", "400", "--policy", "pooled", "--out", "first")
    given = [
        *base,
        "--budget",
        "1",
        "--steps",
        "1",
        "--lr",
        "1e-9",
        "--algorithms",
        "uniform,only:fl",
        *BESIDE,
    ]
    fresh = [run["test_score"] for run in done("compare", *given).json["runs"]]
    known = [run["test_score"] for run in done("compare", *given, "--init", "first").json["runs"]]
    assert known[0] == known[1] > max(fresh)


def test_what_diverges_is_trained_again_and_it_is_said(tables, done, base):
    """A regression at a step size that is far too large: every algorithm has a score all the same."""
    words = "train.csv --source-col state --label spend --drop id --drop bought --val val.csv --test test.csv"
    given = [*words.split(), "--model", "linear", "--lr", "3", "--algorithms", "uniform+decay,only:fl"]
    text = done("compare", *given, "--repeats", "2").out
    assert (
        "× the usual step size in 2 of 2 repeats, since larger ones diverged: uniform+decay, only:fl;" in text
    )
    assert "not comparable" not in text
