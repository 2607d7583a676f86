import csv
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from mixtree.cli import reproduce
from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.experiments import report, tuning
from mixtree.experiments.claims import Claim
from mixtree.experiments.specs import EXPERIMENTS

app = typer.Typer()
reproduce.add_to(app)


@app.callback()
def main():
    """A group, so that the command keeps its name."""


@pytest.fixture
def small(monkeypatch):
    """Small made-up problems and budgets of a few steps."""
    monkeypatch.setattr(tuning, "TUNING_SPLITS", 1)
    monkeypatch.setattr(tuning, "STEP_SIZES", (0.09, 0.27))
    monkeypatch.setattr(tuning, "MOST_STEP_SIZES", 3)
    for name, experiment in list(EXPERIMENTS.items()):
        changes = {"budget": 24, "steps": 2}
        if name in ("flights-new", "flights-known", "amazon", "wine-quartile-notes"):
            changes |= {"load": toy_problem, "sources": toy_problem(0).sources.names}
        monkeypatch.setitem(EXPERIMENTS, name, replace(experiment, **changes))


def toy_problem(seed):
    return synthetic(sources=2, rows=60, validation=30, test=60, classes=2, seed=seed)


def test_reproduce_runs_reports_resumes_and_documents(small, tmp_path, monkeypatch):
    out, docs = tmp_path / "out", tmp_path / "docs"
    (docs / "figures").mkdir(parents=True)
    for name in ("reproduce-old-scores.svg", "theory-cells.png"):
        (docs / "figures" / name).write_text("old")
    size = ["--quick", "--repeats", "2", "--workers", "1"]
    arguments = ["reproduce", "flights-known", *size, "--out", str(out), "--docs", str(docs)]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert "2 repeats decide nothing" in first.output
    assert "CH better than uniform" in first.output
    algorithms = EXPERIMENTS["flights-known"].algorithms()
    for setting, count in (
        ("authors", len(algorithms)),
        ("shared", len(algorithms)),
        ("own", len(algorithms) + 4),
    ):
        text = (out / f"flights-known-{setting}" / "runs.csv").read_text(encoding="utf-8")
        runs = list(csv.DictReader(text.splitlines()))
        assert len(runs) == count * 2
        assert {run["budget"] for run in runs} == {"24"}
    for what in ("budgets", "step-sizes"):
        name = f"reproduce-flights-known-{what}"
        assert (docs / "figures" / f"{name}.png").stat().st_size > 10_000
        assert (out / "figures" / f"{name}.svg").exists()
    assert not (docs / "figures" / "reproduce-old-scores.svg").exists()
    assert (docs / "figures" / "theory-cells.png").exists()
    page = (docs / "reproduction.md").read_text(encoding="utf-8")
    raw = (docs / "results" / "flights-known.md").read_text(encoding="utf-8")
    assert "| the authors' η | one η for all | η tuned per algorithm |" in page
    assert "2 repeats decide nothing" in page
    assert "CPU minutes" in page
    assert "| – | flights-known: test score against Λ | `mixtree reproduce flights-known` |" in page
    assert "| genie+decay |" in raw
    assert "| genie+decay |" not in page
    assert str(tmp_path) not in page + raw
    assert "mixtree reproduce flights-known --repeats 2 --quick --docs docs" in page
    monkeypatch.setattr(report, "draw", lambda results, folder: [])  # it is slow, and was looked at
    again = CliRunner().invoke(app, arguments)
    assert "flights-known (own): 0 runs to do" in again.output
    assert (docs / "reproduction.md").read_text(encoding="utf-8") == page
    assert (docs / "results" / "flights-known.md").read_text(encoding="utf-8") == raw


def test_the_output_says_what_was_done(small, tmp_path):
    size = ["--quick", "--repeats", "3", "--workers", "1", "--setting", "shared"]
    result = CliRunner().invoke(app, ["reproduce", "flights-new", *size, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "Λ = 24 batches of 50, 2 per node, 3 repeats" in text
    assert "algorithm η test auroc spent seen" in text
    assert "- mixmatch-ch: source-0 0." in text
    assert ": the interval " in text
    assert "decide nothing" not in text


def test_an_unknown_setting_is_refused(small, tmp_path):
    arguments = ["reproduce", "flights-new", "--setting", "mine", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError)
    assert "the settings are authors, shared, own, optuna" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_tasting_notes_are_an_experiment_of_their_own(small, tmp_path):
    size = ["--quick", "--repeats", "2", "--workers", "1", "--authors-settings"]
    out = tmp_path / "out"
    arguments = ["reproduce", "wine-quartile", "--features", "notes", *size, "--out", str(out)]
    arguments += ["--docs", str(tmp_path / "docs")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "wine-quartile-notes, the authors' η" in result.output
    assert (out / "wine-quartile-notes-authors" / "claims.csv").exists()
    page = (tmp_path / "docs" / "reproduction.md").read_text(encoding="utf-8")
    command = (
        "mixtree reproduce wine-quartile --setting authors --features notes --repeats 2 --quick --docs docs"
    )
    assert f"\n{command}\n" in page
    refused = CliRunner().invoke(app, ["reproduce", "amazon", "--features", "notes", "--out", str(out)])
    assert "amazon has no tasting notes" in str(refused.exception)


def test_an_unknown_experiment_is_refused(tmp_path):
    result = CliRunner().invoke(app, ["reproduce", "magic", "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, InputError)
    assert "the experiments are allstate" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_missing_data_are_explained(monkeypatch, tmp_path):
    monkeypatch.delenv("MIXTREE_DATA", raising=False)
    arguments = ["reproduce", "amazon", "--workers", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert "Employee Access Challenge" in str(result.exception)


def test_names_are_printed_as_they_are(small, tmp_path, monkeypatch):
    claim = Claim("CH better than every only:X", "a section", "better", (("CH", "only:*"),))
    changed = replace(EXPERIMENTS["flights-new"], load=spanish_problem, sources=("Spain",), claims=(claim,))
    monkeypatch.setitem(EXPERIMENTS, "flights-new", changed)
    size = ["--quick", "--repeats", "2", "--workers", "1", "--authors-settings"]
    result = CliRunner().invoke(app, ["reproduce", "flights-new", *size, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "over only:Spain " in result.output


def spanish_problem(seed):
    problem = synthetic(sources=1, rows=60, validation=30, test=60, classes=2, seed=seed)
    return replace(problem, sources=replace(problem.sources, names=("Spain",)))


def test_the_authors_setting_reports_its_expansions(small, tmp_path):
    out = tmp_path / "out"
    size = ["--quick", "--repeats", "2", "--workers", "1"]
    arguments = ["reproduce", "amazon", "--authors-settings", *size, "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "breadth-first" in result.output
    assert (out / "amazon-authors" / "claims.csv").exists()
