"""The theorem-checking experiments on tiny problems, and the page they write."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from mixtree.data.sources import Rows, Sources
from mixtree.experiments.theorems import __main__ as command
from mixtree.experiments.theorems import (
    cells,
    chosen,
    demand,
    document,
    matching,
    optima,
    regimes,
    regret,
    sgd,
)
from mixtree.experiments.theorems.findings import Finding, Section, figure, table
from mixtree.schedules import constant
from mixtree.theory import Constants, optimum_spread, step_shift
from mixtree.theory.sgd import sgd_terms
from mixtree.theory.steps import node_problem


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("docs")
    files = document.regenerate(folder, quick=True)
    return folder, files, (folder / "theory.md").read_text(encoding="utf-8")


def test_the_page_shows_every_figure_that_was_drawn(page):
    folder, files, text = page
    links = re.findall(r"!\[[^\]]*\]\((figures/theory-\w+\.png)\)", text)
    assert {folder / link for link in links} == set(files) - {folder / "theory.md"}
    assert len(links) == 8
    assert all(path.stat().st_size > 5000 for path in files)


def test_the_page_names_the_public_functions_and_the_misprints(page):
    from mixtree import theory

    _, _, text = page
    named = set(re.findall(r"`(\w+)`", text))
    functions = {name for name in theory.__all__ if name.islower()}
    assert functions - named <= {"steps_failure", "regret_failure"}
    assert "4096κ² logΛ^8" in text and "exclude each other" in text
    assert "nan" not in text.lower()


def test_committed_pages_have_the_same_parts(page):
    """The page in docs/ comes from this code: same headings, same verdict rows."""
    committed = Path(__file__).parents[2] / "docs" / "theory.md"
    headings = re.findall(r"^## .*$", committed.read_text(encoding="utf-8"), flags=re.M)
    assert headings == re.findall(r"^## .*$", page[2], flags=re.M)


def test_a_statement_that_fails_is_reported_as_failing():
    section = Section("x", "Title", "text", (Finding("claim", "1", "2", False),), lambda: figure(1)[0])
    estimate = document.estimate_constants(
        document.synthetic(rows=20, features=2, seed=0).sources, l2=1.0, samples=3
    )
    text = document._page([section], estimate)
    assert "| claim | 1 | 2 | **no** |" in text
    assert "0 of 1 statements hold as measured; 1 do not" in text


def test_tables_are_markdown():
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_measured_optima_are_within_the_bound():
    pairs = optima.measure(3, 2, 0.1, pairs=5, rows=60)
    assert (pairs.distance <= pairs.bound(sound=True)).all()
    assert (pairs.distance <= pairs.direct + 2 * pairs.error).all()
    assert (pairs.bound(sound=False) <= pairs.bound(sound=True)).all()
    assert pairs.error < 1e-6


def test_delaunay_keeps_an_old_edge_and_bisect_does_not():
    stuck, shrunk = (cells.walk(name, 3, heights=10, paths=2) for name in ("delaunay", "bisect"))
    assert stuck.l2 == pytest.approx(np.full(11, np.sqrt(2)))
    assert shrunk.l2[-1] < 0.1


def test_the_scalar_descent_is_the_loop():
    found = sgd.scalar(0.5, 0.7, most=1500, repeats=1, budget=50.0, seed=4)
    rng, shift = np.random.default_rng(4), step_shift(1.0, budget=50.0)
    optimum = 0.5 * (2 * 0.7 - 1)
    w, t = optimum - 0.7, 0
    for end, error in zip(found.steps, found.errors[0], strict=True):
        for z in np.where(rng.random(int(end) - t) < 0.7, 0.5, -0.5):
            w -= 2 / (t + shift) * (w - z)
            t += 1
        assert error == pytest.approx((w - optimum) ** 2, rel=1e-9)
    assert (found.best <= found.bound(0)).all()


def test_logistic_descent_goes_down():
    found = sgd.logistic(most=2000, repeats=2, budget=50.0)
    assert (found.errors[:, -1] < found.errors[:, 0]).all()
    assert found.errors[:, 0] == pytest.approx(np.full(2, found.start), rel=0.05)


def test_the_scalar_problem_fits_a_budget_in_small_units_only():
    large, small = (demand.demand("", sgd.two_points(r)) for r in (1.0, 1e-4))
    assert min(large.full) > 1e8 > min(small.full)
    assert large.closed == pytest.approx(small.closed)
    assert not (large.valid or small.valid)


def test_near_optimal_cells_of_a_cone_do_not_multiply():
    cone = regret.Shape(2, 1.0)
    counts = regret.near_optimal_cells(cone, np.array([0.3, 0.7]), most=200)
    assert max(counts) < 50
    assert len(counts) == 60
    assert cone.dimension == 0.0
    bowl = regret.near_optimal_cells(regret.Shape(2, 2.0), np.array([0.3, 0.7]), most=200)
    assert bowl[-1] > 200  # 2^(h/2) of them


@pytest.mark.parametrize("mode", ["exact", "constant", "exponential"])
def test_regrets_fall_and_keep_within_the_bound(mode):
    curve = regret.curve(regret.Shape(2, 2.0), mode, problems=4, most=256)
    assert curve.regrets.shape == (4, len(curve.budgets))
    assert (curve.regrets <= curve.bound).all()
    assert curve.regrets[:, -1].mean() < curve.regrets[:, 0].mean()
    slope, error = curve.slope()
    assert slope < 0 <= error


def test_smaller_budgets_are_prefixes_of_larger_ones():
    shape, best = regret.Shape(2, 2.0), np.array([0.2, 0.8])
    budgets = np.array([200, 400, 900])
    together = regret.simulate(shape, "exact", best, budgets, seed=0)
    apart = [regret.simulate(shape, "exact", best, budgets[i : i + 1], seed=0)[0] for i in range(3)]
    assert together == apart


@pytest.mark.parametrize("loss", chosen.LOSSES, ids=lambda loss: loss.name)
def test_the_chosen_mixture_s_regret_is_its_optimum_s(loss):
    task = chosen.make_task(loss, np.array([0.2, 0.5, 0.3]), seed=1)
    assert task.regret(task.target) == pytest.approx(0, abs=1e-12)
    corners = [task.regret(corner) for corner in np.eye(3)]
    assert min(corners) > 1e-4
    # By its own definition: the target's loss where the mixture's own loss is least, by plain descent.
    model, alpha, w = task.model, np.eye(3)[0], np.zeros(task.model.shape)
    for _ in range(4000):
        w = w - model.gradient(w, alpha) / max(model.source_curvatures())
    assert model.value(w, task.target) - task.least == pytest.approx(corners[0], rel=1e-6)


def test_a_chosen_mixture_is_judged_without_its_model():
    budgets = np.array([200, 1600])
    task = chosen.make_task(chosen.LOSSES[0], np.array([0.2, 0.5, 0.3]), seed=0)
    real = chosen.follow(task, constant(20), budgets, compare=True)
    seen = chosen.follow(task, constant(20), budgets, exact=True)
    assert seen.mixtures == pytest.approx(seen.models), "its values are those of the optima"
    assert seen.mixtures[-1] < seen.mixtures[0]
    assert real.mixtures != pytest.approx(real.models)
    alone = chosen.follow(task, constant(20), budgets[:1])
    assert alone.mixtures[0] == real.mixtures[0], "a smaller budget is a prefix"
    assert all(gap > 0 and error > 0 for pairs in real.siblings.values() for gap, error in pairs)


def test_lambda_falls_stays_and_grows_by_the_entry_of_c_check():
    found = regimes.measure("", sgd.two_points(1.0), heights=100)
    assert [entry for entry, *_ in found.stretches] == [3, 2]
    assert found.power(0) == pytest.approx(2, abs=0.1)
    assert found.power(len(found.nodes) - 2) == pytest.approx(-2, abs=0.01)
    middle = next(i for i, node in enumerate(found.nodes) if node.height == 40)
    assert abs(found.power(middle)) < 0.1
    useful = [optimum_spread(h, found.constants) < found.constants.diameter**2 for h in range(30)]
    assert useful.index(True) == int(found.useful) + 1


@pytest.mark.parametrize("noise", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("d0", [1e-8, 1e-3, 1.0, 1e3])
@pytest.mark.parametrize("kappa", [1.0, 30.0])
def test_c_check_starts_the_induction(kappa, d0, noise):
    """Č logΛ^8 bounds the variance of every later step; the direct solution of that is tight."""
    constants = Constants(beta=kappa, mu=1.0, lipschitz=1.0, sigma=2.0, noise=noise, diameter=2.0, sources=3)
    terms = sgd_terms(d0, constants, budget=1e6)
    found = regimes.base(terms)
    assert found.share <= 1 and found.excess >= 1
    start, later = terms.shift, [1, 10, 10**6]
    for i in later:
        # 8d²(4β²d² + 𝒢) with d² at the theorem's bound, (x + y)² ≤ 2x² + 2y²
        near = terms.c1 / (i + start)
        slow = terms.c2 * (terms.log8 * terms.c_hat(0) / (i + start)).sqrt()
        variance = 64 * terms.beta**2 * (near**2 + slow**2) + 8 * terms.noise * (near + slow)
        assert variance <= terms.c_hat(0)


def test_without_its_third_entry_c_check_is_too_small():
    start, _ = node_problem(1, sgd.two_points(1.0))
    assert regimes.base(sgd_terms(start, sgd.two_points(1.0), budget=1e8)).without_third > 1


def test_numbers_are_compared_within_the_stated_tolerance():
    before = "| a | 0.935 | −1.13 ± 0.098 | 5.02e-15 | 17 of 20 |\n17 statements"
    assert document.differences(before, before) == []
    near = "| a | 0.95 | −1.15 ± 0.099 | 6e-09 | 17 of 20 |\n17 statements"
    assert document.differences(before, near) == []
    (far,) = document.differences(before, before.replace("0.935", "1.2"))
    assert far.startswith("1: 0.935 is now 1.2")
    assert document.differences(before, before.replace("−1.13", "1.13"))
    assert document.differences(before, before.replace("17 of", "16 of"))
    assert "other words" in document.differences(before, before.replace("a |", "b |"))[0]
    assert document.differences(before, before + "\nmore") == ["2 lines are now 3"]


def test_a_page_is_checked_against_a_new_run(page, monkeypatch, capsys):
    folder, _, text = page

    def again(where, *, quick):
        (where / "theory.md").write_text(text, encoding="utf-8")
        return [where / "theory.md"]

    monkeypatch.setattr(document, "regenerate", again)
    assert document.check(folder, quick=True) == []
    monkeypatch.setattr(sys, "argv", ["theorems", "--check", str(folder), "--quick"])
    text = text.replace("statements hold as measured", "statements fail")
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == 1 and "other words" in capsys.readouterr().out


def test_joint_matching_finds_the_mixture_that_x_alone_cannot_see():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, 2))
    # The same x in both sources, opposite labels; validation is three parts of the first, one of the second.
    labels = (x[:, 0] > 0).astype(np.int64)
    parts = (Rows(x, labels), Rows(x, 1 - labels))
    held = Rows(np.vstack([x, x, x, x]), np.concatenate([labels, labels, labels, 1 - labels]))
    sources = Sources(("a", "b"), parts, held, 2)
    assert matching.match(sources, joint=True) == pytest.approx([0.75, 0.25], abs=1e-6)
    assert matching.match(sources, joint=False) != pytest.approx([0.75, 0.25], abs=1e-2)


def test_the_command_writes_where_it_is_told(monkeypatch, capsys, tmp_path):
    asked = {}

    def fake(folder, *, quick):
        asked.update(folder=folder, quick=quick)
        return [folder / "theory.md"]

    monkeypatch.setattr(command, "regenerate", fake)
    monkeypatch.setattr(sys, "argv", ["theorems", "--out", str(tmp_path), "--quick"])
    command.main()
    assert asked == {"folder": tmp_path, "quick": True}
    assert "theory.md" in capsys.readouterr().out
