"""``mixtree theory``: what the theorems say, of constants that are given or of tables."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mixtree.cli.fit import table_spec
from mixtree.cli.options import DATA, FIT, OUTPUT, Flag, Values, command, with_config
from mixtree.errors import InputError

if TYPE_CHECKING:
    from mixtree.theory import Calculation, ClosedForm, Constants

_CONSTANTS = (
    Flag("kappa", float, "κ = β/μ, instead of --beta.", "by --beta", metavar="κ"),
    Flag("beta", float, "β, smoothness of every row's loss.", "by --kappa", metavar="β"),
    Flag("mu", float, "μ, strong convexity of every mixture's loss.", "1", metavar="μ"),
    Flag(
        "sigma",
        float,
        "σ, with σ² = β² times the squared spread of the optima, plus 𝒢.",
        "needed without tables",
        metavar="σ",
    ),
    Flag(
        "lipschitz",
        float,
        "L, the steepest that a loss is among the optima.",
        "needed without tables",
        metavar="L",
    ),
    Flag(
        "noise",
        float,
        "𝒢, the largest squared gradient of a row at an optimum.",
        "needed without tables",
        metavar="𝒢",
    ),
    Flag(
        "diameter",
        float,
        "D, the farthest that an iterate is from an optimum.",
        "needed without tables",
        metavar="D",
    ),
    Flag("sources", int, "K, the number of sources.", "needed without tables", metavar="K"),
)
OWN = (
    *_CONSTANTS,
    Flag("budget", float, "Λ, SGD steps in all.", "required", metavar="Λ"),
    Flag("heights", int, "Show λ(h) of the heights 0 to this one.", "5", metavar="H"),
    Flag("steps", int, "A constant λ for h(Λ) and the regret.", "the theory's λ(h)", metavar="λ"),
    Flag("d", float, "Near-optimality dimension d.", "0, the best case", metavar="d"),
    Flag("scale", float, "Its constant C.", "1", metavar="C"),
    Flag("l2", float, "With tables: ½·l2·‖w‖² is added, else nothing is strongly convex.", "0.01"),
    Flag("seed", int, "With tables: seed of the sampled mixtures and of --target's split.", "0", metavar="S"),
)
FLAGS = (*DATA, *OWN, *OUTPUT)


def add_to(app: typer.Typer) -> None:
    app.command()(command(theory, FLAGS))


def theory(tables: list[Path], values: Values) -> None:
    """Say what the theorems say: constants, λ(h), the height a budget reaches, the regret, feasibility.

    The constants are given, or estimated from tables for the linear model, from below and from above.
    """
    # A file of options for fit will do, too: what it says beyond this command's options does not matter here.
    tables, values = with_config(tables, values, (*FIT, *OWN))
    if "budget" not in values:
        raise InputError("say how many steps there are: --budget Λ")
    given = [flag.flag for flag in _CONSTANTS if flag.name in values]
    if tables or "source" in values:
        if given:
            raise InputError(f"give tables or constants, not both: {', '.join(given)}")
        constants = _from_tables(tables, values)
    else:
        constants = {"given": _from_numbers(values)}
    answers = {name: _answer(each, values) for name, each in constants.items()}
    if values.get("json"):
        typer.echo(json.dumps({name: each.as_dict() for name, each in answers.items()}))
    else:
        _print(answers)


def _answer(constants: Constants, values: Values) -> Calculation:
    from mixtree.theory import Dimension, calculate

    return calculate(
        constants,
        budget=values["budget"],
        heights=values.get("heights", 5),
        steps=values.get("steps"),
        dimension=Dimension(values.get("d", 0.0), values.get("scale", 1.0)),
    )


def _from_numbers(values: Values) -> Constants:
    from mixtree.theory import Constants

    if ("kappa" in values) == ("beta" in values):
        raise InputError("give tables, or the constants with one of --kappa and --beta")
    needed = ("sigma", "lipschitz", "noise", "diameter", "sources")
    if missing := [f"--{name}" for name in needed if name not in values]:
        raise InputError(f"the theory needs all of a problem's constants; missing: {', '.join(missing)}")
    mu = values.get("mu", 1.0)
    beta = values["beta"] if "beta" in values else values["kappa"] * mu
    return Constants(beta=beta, mu=mu, **{name: values[name] for name in needed})


def _from_tables(tables: list[Path], values: Values) -> dict[str, Constants]:
    from mixtree.cli.reports import print_warnings
    from mixtree.data.tables import load_tables
    from mixtree.listeners.terminal import Terminal
    from mixtree.planning.budget import theory_constants

    seed = values.get("seed", 0)
    data = load_tables(table_spec(tables, values), seed=seed)
    print_warnings(Terminal(stderr=True), data.warnings)
    found = theory_constants(data.problem_sources, l2=values.get("l2", 0.01), seed=seed)
    return {"optimistic": found.optimistic, "sound": found.sound}


def _print(answers: dict[str, Calculation]) -> None:
    from rich.table import Table

    from mixtree.listeners.terminal import Terminal

    # What is piped into a file is not cut at 80 characters.
    console = Terminal() if sys.stdout.isatty() else Terminal(width=120)

    def say(line: str, **style: Any) -> None:
        console.print(line, highlight=False, markup=False, soft_wrap=True, **style)

    any_one = next(iter(answers.values()))
    say(f"Λ = {any_one.budget:g} steps on K = {any_one.constants.sources} sources")
    if len(answers) > 1:
        say("optimistic: never above the truth, from sampled mixtures; sound: never below it", style="dim")
    constants = Table(box=None, pad_edge=False, header_style="bold")
    constants.add_column("constant")
    for name in answers:
        constants.add_column(name, justify="right")
    for symbol, read in _ROWS:
        constants.add_row(symbol, *(f"{read(each):.4g}" for each in answers.values()))
    console.print(constants, highlight=False)
    for name, found in answers.items():
        say("" if len(answers) == 1 else f"\n{name}", style="bold")
        nodes = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("h", "d0²", "target", "λ(h)", "k", "entry of Č", "constant regime", "exponential"):
            nodes.add_column(heading, justify="right", no_wrap=True)
        for node in found.nodes:
            nodes.add_row(
                str(node.height),
                f"{node.d0_squared:.3g}",
                f"{node.target:.3g}",
                _count(node.needed),
                "" if node.k is None else str(node.k),
                str(node.largest),
                _closed(node.constant),
                _closed(node.exponential),
            )
        console.print(nodes, highlight=False)
        say(found.sentence, style="bold")
        own = "the theory's λ(h)" if found.given_steps is None else f"λ = {found.given_steps} at every height"
        size = f"d = {found.dimension.d:g}, C = {found.dimension.scale:g}"
        if found.regret_bound is None:
            # The sentence has said why, where the steps are the theory's own.
            say(f"h(Λ) with {own}: no tree" + (f"; {found.reached}" if found.given_steps else ""))
        else:
            say(f"h(Λ) = {found.reached} with {own}, {size}; so R(Λ) ≤ {found.regret_bound:.4g}")
    notes = "λ(h): the least over k = 0 … 3. Closed forms in brackets: a condition of theirs does not hold."
    say(f"\n{notes}", style="dim")
    if any_one.given_steps is not None:
        say("The bound presumes that a node has as many steps as λ(h) asks for.", style="dim")


_ROWS: tuple[tuple[str, Callable[[Calculation], float]], ...] = (
    ("β", lambda found: found.constants.beta),
    ("μ", lambda found: found.constants.mu),
    ("κ", lambda found: found.constants.kappa),
    ("L", lambda found: found.constants.lipschitz),
    ("𝒢", lambda found: found.constants.noise),
    ("σ", lambda found: found.constants.sigma),
    ("D", lambda found: found.constants.diameter),
    ("ν1", lambda found: found.derived["nu1"]),
    ("ρ", lambda found: found.derived["rho"]),
    ("ν2", lambda found: found.derived["nu2"]),
    ("ρ2", lambda found: found.derived["rho2"]),
    ("E", lambda found: found.derived["step_shift"]),
    ("η at t = 0", lambda found: found.derived["first_step_size"]),
)


def _count(needed: int | None) -> str:
    if needed is None:
        return "none"
    if needed < 10**9:
        return str(needed)
    from decimal import Decimal

    return f"{Decimal(needed):.3g}"  # it may be beyond all floats


def _closed(form: ClosedForm | None) -> str:
    if form is None:
        return ""
    return f"{form.formula:.3g}" if form.valid else f"({form.formula:.3g})"
