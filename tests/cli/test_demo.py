import csv
import json

import pytest
from typer.testing import CliRunner

from mixtree.cli import app


@pytest.mark.parametrize("target", ["new", "known"])
def test_demo_prints_a_table_and_writes_it(tmp_path, target):
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
