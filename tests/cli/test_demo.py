import csv
import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from mixtree.cli import app
from mixtree.experiments import demo, tables
from mixtree.experiments.demo import DEFAULT, NETWORKS, RIVALS, STATE, thinned
from mixtree.experiments.tables import Split


def crashes():
    """Rows like those of the package, which is not needed here."""
    rng = np.random.default_rng(0)
    count = 1_400
    age, belt = rng.integers(1, 90, count), rng.choice(["Belt", "None"], count)
    states = rng.choice([*tables.fars_state(STATE).sources, STATE], count, p=[*[0.1] * 6, 0.4])
    fatal = (0.02 * age + (belt == "None") + rng.normal(size=count) > 1.5).astype(int)
    blank = {name: "?" for name in tables.fars_state(STATE).drop}
    return pl.DataFrame({"CASE_STATE": states, "AGE": age, "BELT": belt, "fatal": fatal}).with_columns(
        **{name: pl.lit(value) for name, value in blank.items()}
    )


def test_the_demo_compares_and_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "fars_frame", crashes)
    monkeypatch.setattr(demo, "EACH", 60)
    out = tmp_path / "out"
    result = CliRunner().invoke(app, ["demo", "--seeds", "1", "--effort", "quick", "--out", str(out)])
    assert result.exit_code == 0, result.output
    methods = [DEFAULT, *RIVALS, *NETWORKS]
    for word in (*methods, STATE, "Expect auroc"):
        assert word in " ".join(result.output.split())
    runs = list(csv.DictReader((out / "runs.csv").read_text(encoding="utf-8").splitlines()))
    assert [run["algorithm"] for run in runs] == methods
    assert all(0.5 < float(run["test_score"]) <= 1.0 for run in runs)
    assert (out / "scores.png").stat().st_size > 5000


def test_sources_are_thinned_and_the_target_is_not():
    x = pl.DataFrame({"a": range(30)})
    split = Split(
        x, np.arange(30), np.repeat(["p", "q", "r"], [20, 7, 3]), x, np.arange(30), x, np.arange(30)
    )
    kept = thinned(split, 5, 0)
    assert np.unique(kept.source, return_counts=True)[1].tolist() == [5, 5, 3]
    assert kept.x["a"].to_list() == kept.y.tolist()
    assert len(kept.test_y) == 30


@pytest.mark.parametrize("target", ["new", "known"])
def test_the_flights_print_a_table_and_write_it(tmp_path, target):
    out = tmp_path / "out"
    result = CliRunner().invoke(
        app, ["demo", "--target", target, "--seeds", "2", "--budget", "12", "--steps", "2", "--out", str(out)]
    )
    assert result.exit_code == 0, result.output
    for word in ("mixmatch-bisect+commit", "mixmatch-ch", "uniform+decay", "only:EV", "validation"):
        assert word in result.output
    assert ("genie" in result.output) == (target == "known")
    runs = list(csv.DictReader((out / "runs.csv").read_text(encoding="utf-8").splitlines()))
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert len(runs) == len(results["runs"]) == 2 * len(results["summary"])
    for run in results["runs"]:
        assert sum(run["spent"].values()) <= run["budget"] == 12
        assert sum(run["mixture"].values()) == pytest.approx(1)
    assert (out / "scores.png").stat().st_size > 5000


def test_wrong_options_are_refused_before_any_work(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--budget", "0", "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()
