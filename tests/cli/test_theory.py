"""``mixtree theory``: the calculator's numbers at the command line."""

from __future__ import annotations

import re

import pytest

from mixtree.cli import theory as command
from mixtree.theory import Constants, Dimension, calculate, steps_full

SMALL = {"kappa": 1, "sigma": 3e-4, "lipschitz": 2e-4, "noise": 4e-8, "diameter": 2e-4, "sources": 2}
NAMES = {name: value for name, value in SMALL.items() if name != "kappa"}


def flags(values):
    return [str(each) for name, value in values.items() for each in (f"--{name}", value)]


def test_numbers_are_the_calculator_s(done):
    found = done("theory", *flags(SMALL), "--budget", "1e8", "--heights", 2, "--json").json["given"]
    constants = Constants(beta=1.0, mu=1.0, **NAMES)
    assert found == calculate(constants, budget=1e8, heights=2).as_dict()
    for node in found["nodes"]:
        full = [steps_full(node["height"], constants, budget=1e8, k=k) for k in range(4)]
        assert node["steps"] == node["needed"] == min(full) == full[node["k"]]
    assert found["feasible"] and found["height_reached"] == 3
    text = done("theory", *flags(SMALL), "--budget", "1e8", "--d", 0.5).out
    assert "feasible: λ(0) + 2λ(1) is" in text and "d = 0.5, C = 1; so R(Λ) ≤" in text


def test_what_no_budget_pays_for_is_said(done):
    hard = {"beta": 1e80, "sigma": 1, "lipschitz": 1, "noise": 0, "diameter": 1, "sources": 3}
    found = done("theory", *flags(hard), "--budget", 1e6, "--json").json["given"]
    assert not found["feasible"] and found["height_reached"] is found["regret_bound"] is None
    assert found["sentence"].startswith("infeasible: no number of steps is enough at height 0")
    assert found["nodes"][1]["exponential_regime"]["formula"] is None, "beyond all floats"
    assert found["nodes"][1]["steps"] is None and found["nodes"][1]["reason"]
    text = done("theory", *flags(hard), "--budget", 1e6, "--steps", 10).out
    assert "infeasible" in text and "with λ = 10 at every height" in text and "presumes" in text


def test_tables_give_both_sides(done, base, tables):
    found = done("theory", *base[: base.index("--model")], "--budget", 1e6, "--json").json
    assert set(found) == {"optimistic", "sound"}
    low, high = (found[name]["constants"] for name in ("optimistic", "sound"))
    assert low["sources"] == 3 and low["mu"] == high["mu"] == 0.01
    assert low["sigma"] <= high["sigma"] and low["diameter"] <= high["diameter"]
    text = done("theory", *base[: base.index("--model")], "--budget", 1e6, "--l2", 0.1).out
    assert "optimistic: never above the truth" in text and re.search(r"μ +0.1 +0.1\n", text)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--kappa", "2"], "--budget Λ"),
        (["--budget", "1e6"], "one of --kappa and --beta"),
        (["--budget", "1e6", "--kappa", "2", "--beta", "2"], "one of --kappa and --beta"),
        (["--budget", "1e6", "--kappa", "2", "--noise", "1"], "missing: --sigma, --lipschitz, --diameter"),
        (["--budget", "1e6", "train.csv", "--mu", "2"], "tables or constants, not both: --mu"),
        ([*flags(SMALL), "--budget", "2"], "budget Λ must be a finite number above 2"),
        ([*flags(SMALL), "--budget", "1e6", "--heights", "-1"], "heights must be a whole number"),
        ([*flags(SMALL), "--budget", "1e6", "--d", "-1"], "dimension d must be"),
        ([*flags(SMALL | {"sigma": 1e-5}), "--budget", "1e6"], "cannot be below 𝒢"),
    ],
)
def test_bad_input_is_said(mixtree, given, words):
    answer = mixtree("theory", *given)
    assert answer.code == 2 and words in answer.err and not answer.out


def test_numbers_beyond_floats_are_shown():
    assert command._count(10**400) == "1.00e+400"
    assert command._count(None) == "none"
    assert Dimension(0.0, 1.0) == calculate(Constants(beta=1.0, mu=1.0, **NAMES), budget=10).dimension
