import csv
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from mixtree.cli import reproduce
from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.experiments import tuning
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
    monkeypatch.setattr(tuning, "PROBES", 1)
    for name, experiment in list(EXPERIMENTS.items()):
        changes = {"budget": 24, "steps": 2}
        if name in ("flights-new", "flights-known", "amazon"):
            changes |= {"load": toy_problem, "sources": toy_problem(0).sources.names}
        monkeypatch.setitem(EXPERIMENTS, name, replace(experiment, **changes))


def toy_problem(seed):
    return synthetic(sources=2, rows=60, validation=30, test=60, classes=2, seed=seed)


def test_reproduce_runs_reports_resumes_and_documents(small, tmp_path):
    out, docs = tmp_path / "out", tmp_path / "docs"
    arguments = ["reproduce", "flights", "--quick", "--workers", "1", "--out", str(out), "--docs", str(docs)]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    assert "CH better than uniform" in first.output
    for name in ("flights-new", "flights-known"):
        text = (out / f"{name}-ours" / "runs.csv").read_text(encoding="utf-8")
        runs = list(csv.DictReader(text.splitlines()))
        assert len(runs) == len(EXPERIMENTS[name].algorithms()) * 2 * 2
        assert (docs / "figures" / f"reproduce-{name}-ours.png").stat().st_size > 10_000
        assert (docs / "figures" / f"reproduce-{name}-ours.svg").exists()
    page = (docs / "reproduction.md").read_text(encoding="utf-8")
    assert "### flights-known, default settings" in page
    assert "| genie+decay |" in page
    assert str(tmp_path) not in page
    again = CliRunner().invoke(app, arguments)
    assert "flights-new (ours): 0 runs to do" in again.output
    assert (docs / "reproduction.md").read_text(encoding="utf-8") == page


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
    claim = Claim("CH better than every only:X", "CH", "better", ("only:*",))
    changed = replace(EXPERIMENTS["flights-new"], load=spanish_problem, sources=("Spain",), claims=(claim,))
    monkeypatch.setitem(EXPERIMENTS, "flights-new", changed)
    arguments = ["reproduce", "flights-new", "--quick", "--workers", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "only:Spain:" in result.output


def spanish_problem(seed):
    problem = synthetic(sources=1, rows=60, validation=30, test=60, classes=2, seed=seed)
    return replace(problem, sources=replace(problem.sources, names=("Spain",)))


def test_the_authors_setting_reports_its_expansions(small, tmp_path):
    out = tmp_path / "out"
    arguments = ["reproduce", "amazon", "--authors-settings", "--quick", "--workers", "1", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "breadth-first" in result.output
    assert (out / "amazon-authors" / "claims.csv").exists()
