"""Forty small fits, and what each tells its user, in one text file to be read from beginning to end.

    python benchmarks/forty_fits.py --out forty.txt [--only 7 12]

The list is fixed and seeded: doors × models × metrics × cases, on tables that are made here. Beside each
output stand the verdict's figures, and what automatic checks found wrong with its words. The exit code is 1
if they found anything. What they cannot see (advice that makes no sense) has to be read.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("COLUMNS", "110")

import numpy as np
import polars as pl
from numpy.typing import NDArray

from mixtree.verdict import Verdict

NAMES = ("fl", "ct", "oh")
INSIDE = (0.6, 0.3, 0.1)
FEATURES = 5


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One of the forty: what is asked, of which table, through which door."""

    what: str
    door: str = "command"
    """``command``, ``fit`` (mixtree.fit) or ``estimator``."""
    model: str = "mlp"
    metric: str | None = None
    classes: int = 2
    """0 for a regression."""
    validation: int = 150
    test: int = 0
    rows: int = 300
    """Of each source."""
    inside: bool = True
    """Whether the target is a mixture of the sources."""
    rare: float | None = None
    """The share of the positive class."""
    noise: float = 1.0
    sources: int = 3
    unit: float = 1.0
    """A regression's labels are multiplied by it."""
    budget: int | None = 300
    options: dict[str, Any] = field(default_factory=dict)


FITS = (
    # ------------------------------------------------------------------------------------ the command line
    Fit(what="150 rows, a quarter is held out"),
    Fit(what="30 validation rows", validation=30),
    Fit(what="400 validation rows, all references", validation=400, options={"reference": "all"}),
    Fit(what="test rows, all references, verbose", test=200, options={"reference": "all", "verbose": True}),
    Fit(what="a target outside", inside=False),
    Fit(what="a target outside, 400 rows, verbose", inside=False, validation=400, options={"verbose": True}),
    Fit(what="undertrained: 20 steps", budget=20, model="linear"),
    Fit(what="nested folds of 60 rows", validation=60, options={"nested": True}, model="linear"),
    Fit(what="leave-one-out", options={"attribution": "loo"}, model="linear"),
    Fit(what="Shapley values, test rows", test=100, options={"attribution": "shapley"}, model="linear"),
    Fit(what="a rare class: 4 %", rare=0.04, validation=200),
    Fit(what="a rare class of 30 rows, accuracy", rare=0.1, validation=30, metric="accuracy"),
    Fit(what="a tree search", options={"policy": "mixmatch-ch", "steps": 10}, model="linear"),
    Fit(what="log-loss, a tree search with a commit, 30 rows", metric="log-loss", validation=30,
        options={"policy": "mixmatch-bisect+commit"}),
    Fit(what="three classes, Hand–Till", classes=3, validation=200, model="linear"),
    Fit(what="three classes, accuracy, 30 rows", classes=3, validation=30, metric="accuracy"),
    Fit(what="a regression, RMSE", classes=0),
    Fit(what="a regression in large units, MAE, 400 rows", classes=0, metric="mae", unit=1e4, validation=400,
        model="linear"),
    Fit(what="a regression on a logarithmic scale, mae-exp", classes=0, metric="mae-exp", unit=0.5),
    Fit(what="a regression outside, 30 rows", classes=0, inside=False, validation=30, model="linear"),
    Fit(what="LightGBM", model="lightgbm", budget=None, test=150),
    Fit(what="XGBoost, accuracy", model="xgboost", budget=40, metric="accuracy"),
    Fit(what="SGDClassifier", model="sklearn:SGDClassifier", budget=100, metric="auroc", validation=30),
    Fit(what="labels of noise alone", noise=1e6, model="linear"),
    Fit(what="one source", sources=1, model="linear"),
    Fit(what="no references, a fixed mixture", options={"reference": "none", "policy": "pooled"}),
    # ----------------------------------------------------------------------------------------- mixtree.fit
    Fit(what="400 rows", door="fit", validation=400),
    Fit(what="30 rows, the paper's search", door="fit", validation=30, options={"policy": "mixmatch-ch"}),
    Fit(what="an easy task: areas near 1", door="fit", noise=0.05, validation=30),
    Fit(what="a torch module", door="fit", model="torch", budget=60),
    Fit(what="a torch module, 12 test rows", door="fit", model="torch", budget=60, test=12),
    Fit(what="policy uniform, log-loss", door="fit", metric="log-loss", options={"policy": "uniform"}),
    Fit(what="policy validation, holdout of a half", door="fit", model="linear",
        options={"policy": "validation", "holdout": 0.5}),
    Fit(what="one source only, all references, outside", door="fit", inside=False, model="linear",
        options={"policy": "only:oh", "reference": "all"}),
    Fit(what="fine-tune without a holdout", door="fit", validation=60, inside=False,
        options={"policy": "fine-tune"}),
    Fit(what="tiny units, RMSE", door="fit", classes=0, unit=1e-3, validation=200, model="linear"),
    # ------------------------------------------------------------------------------------------ estimators
    Fit(what="a classifier with test-like holdout", door="estimator", validation=200, metric="accuracy"),
    Fit(what="a classifier, XGBoost, three classes", door="estimator", classes=3, model="xgboost", budget=30),
    Fit(what="a regressor, MAE, nested", door="estimator", classes=0, metric="mae", validation=60,
        model="linear", budget=200, options={"nested": True}),
    Fit(what="a classifier, 20 rows of one target outside", door="estimator", validation=20, inside=False),
)  # fmt: skip


# ------------------------------------------------------------------------------------------------- the tables


@dataclass(frozen=True)
class Table:
    """Sources, validation and test rows of one fit."""

    sources: dict[str, tuple[NDArray[Any], NDArray[Any]]]
    validation: tuple[NDArray[Any], NDArray[Any]]
    test: tuple[NDArray[Any], NDArray[Any]] | None


def table(fit: Fit, seed: int) -> Table:
    """Sources that differ in x and in y | x; the target mixes them, or is another one."""
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=(4, FEATURES))
    slopes[:3] = slopes[:3] * 0.6 + slopes.mean(axis=0)
    centres = rng.normal(size=(4, FEATURES)) * 0.7

    def rows(which: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[Any]]:
        x = rng.normal(size=(len(which), FEATURES)) + centres[which]
        score = (x * slopes[which]).sum(axis=1) + fit.noise * rng.normal(size=len(which))
        if not fit.classes:
            return x, score * fit.unit
        if fit.rare is not None:
            return x, (score > np.quantile(score, 1.0 - fit.rare)).astype(int)
        cuts = np.linspace(-1.0, 1.0, fit.classes - 1) if fit.classes > 2 else [0.0]
        return x, np.digitize(score, np.asarray(cuts) * (1.0 + fit.noise)).astype(int)

    def target(count: int) -> tuple[NDArray[Any], NDArray[Any]]:
        share = np.array(INSIDE[: fit.sources])
        mixed = rng.choice(fit.sources, size=count, p=share / share.sum())
        return rows(mixed if fit.inside else np.full(count, 3))

    sources = {
        name: rows(np.full(fit.rows * (2 if name == "oh" else 1), place))
        for place, name in enumerate(NAMES[: fit.sources])
    }
    return Table(sources, target(fit.validation), target(fit.test) if fit.test else None)


def write_tables(data: Table, folder: Path, *, classes: int) -> None:
    """train.csv with a column of sources, val.csv and test.csv."""

    def frame(x: NDArray[Any], y: NDArray[Any]) -> pl.DataFrame:
        columns = {f"x{place}": np.round(x[:, place], 6) for place in range(x.shape[1])}
        label = [("no", "yes", "maybe")[each] for each in y] if classes else y
        return pl.DataFrame({**columns, "label": label})

    parts = [frame(*rows).with_columns(pl.lit(name).alias("state")) for name, rows in data.sources.items()]
    pl.concat(parts).write_csv(folder / "train.csv")
    frame(*data.validation).write_csv(folder / "val.csv")
    if data.test is not None:
        frame(*data.test).write_csv(folder / "test.csv")


# -------------------------------------------------------------------------------------------------- the doors


@dataclass(frozen=True)
class Told:
    """What a user sees, and the verdict behind it."""

    command: str
    seen: str
    verdict: dict[str, Any]


def by_command(fit: Fit, data: Table, folder: Path) -> Told:
    from mixtree import cli

    write_tables(data, folder, classes=fit.classes)
    args = ["fit", "train.csv", "--source-col", "state", "--label", "label", "--val", "val.csv"]
    args += ["--model", fit.model, *(["--test", "test.csv"] if fit.test else [])]
    for name, value in {"metric": fit.metric, "budget": fit.budget, **fit.options}.items():
        if value is not None:
            args += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    args += ["--out", "model"]
    out, argv = io.StringIO(), sys.argv
    sys.argv = ["mixtree", *args]
    try:
        with _inside(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            cli.main()
    except SystemExit as stopped:
        if stopped.code:
            raise RuntimeError(out.getvalue()) from None
    finally:
        sys.argv = argv
    verdict = json.loads((folder / "model" / "verdict.json").read_text())
    return Told("mixtree " + " ".join(args), out.getvalue(), verdict)


def by_fit(fit: Fit, data: Table, folder: Path) -> Told:
    from mixtree import fit as fit_mixture

    options = {"model": fit.model, "metric": fit.metric, "budget": fit.budget, **fit.options}
    shown = ", ".join(f"{name}={value!r}" for name, value in options.items() if value is not None)
    if fit.model == "torch":
        options["model"] = torch_module
    with _warnings() as seen:
        result = fit_mixture(data.sources, data.validation, test=data.test, **options)
    told = [*seen, str(result.verdict), f"weights: {_rounded(result.weights)}"]
    told += [f"warning: {each}" for each in result.warnings]
    return _told(f"print(mixtree.fit(…, {shown}).verdict)", told, result.verdict)


def by_estimator(fit: Fit, data: Table, folder: Path) -> Told:
    from mixtree import MixtureClassifier, MixtureRegressor

    options = {"metric": fit.metric, "budget": fit.budget, **fit.options}
    options = {name: value for name, value in options.items() if value is not None}
    kind = MixtureClassifier if fit.classes else MixtureRegressor
    with _warnings() as seen:
        model = kind(fit.model, **options).fit(
            data.sources, X_val=data.validation[0], y_val=data.validation[1]
        )
    shown = ", ".join([repr(fit.model), *(f"{name}={value!r}" for name, value in options.items())])
    told = [*seen, str(model.verdict_), f"mixture: {_rounded(model.mixture_)}"]
    return _told(f"print({kind.__name__}({shown}).fit(…).verdict_)", told, model.verdict_)


def _told(command: str, seen: list[str], verdict: Verdict | None) -> Told:
    assert verdict is not None
    plain = verdict.as_dict()
    seen += [f"(verdict.warnings) {each}" for each in plain["warnings"]]
    return Told(command, "\n".join(seen), plain)


def torch_module() -> Any:
    """A small network of torch's own."""
    from torch import nn

    return nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, 2))


def _rounded(weights: dict[str, float]) -> dict[str, float]:
    return {name: round(weight, 3) for name, weight in weights.items()}


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    """Python's warnings, as a user of Python would see them."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        yield told
    told += [f"{each.category.__name__}: {each.message}" for each in found]


DOORS: dict[str, Callable[[Fit, Table, Path], Told]] = {
    "command": by_command,
    "fit": by_fit,
    "estimator": by_estimator,
}


# ------------------------------------------------------------------------------------------------- the checks

_NUMBER = r"[−+-]?\d[\d,]*(?:\.\d+)?(?:e[−+-]?\d+)?"


CONTRARY = (
    ("not by its mixture", "the rest from the mixture"),
    ("nothing was found to correct", "the score is corrected"),
    ("(reference 'all' shows it)", "--reference all"),
    ("still improving", "may overfit"),
)
"""What never stands in one output."""


def faults(told: Told) -> list[str]:
    """What is wrong with the words, as far as a program can tell."""
    verdict, found = told.verdict, list[str]()
    words = [verdict["sentence"], verdict.get("next_step", ""), *verdict["warnings"], *verdict["notes"]]
    text = "\n".join([told.seen, *words])
    if small := re.findall(r"\d[\d.]*e[−-]\d+", text):
        found.append(f"numbers like {small[0]}")
    if re.search(r"p = 0\.000", text):
        found.append("p = 0.000")
    if re.search(r"\b(nan|inf|None)\b", text):
        found.append("nan, inf or None")
    if "beware" in text:
        found.append("beware")
    if nothing := re.search(r"(?<![\d.,])0\.0+ (worse|better|from)", text):
        found.append(nothing[0])
    found += [f"{one!r} and {other!r}" for one, other in CONTRARY if one in text and other in text]
    found += _twice(told.seen)
    found += _twice("\n".join(words))
    found += _score_faults(verdict)
    found += _comparison_faults(verdict)
    if not verdict.get("next_step"):
        found.append("no next step")
    if Verdict.from_dict(json.loads(json.dumps(verdict))).as_dict() != verdict:
        found.append("the stored verdict is another one")
    return found


def _twice(text: str) -> list[str]:
    """Parts of sentences that come back, whatever their first word, label or capital is."""
    lines = [
        line for line in text.splitlines() if not line.startswith("decided:")
    ]  # which have their own words
    parts = [part for line in lines for part in re.split(r"; |: |\. |\.$", line)]
    seen, found = set[str](), list[str]()
    for part in (re.sub(r"\W+", " ", each).strip().lower() for each in parts):
        if len(part.split()) >= 5 and not part.startswith(("its weight in it", "95 interval")):
            if part in seen:
                found.append(f"twice: {part}")
            seen.add(part)
    return found


def _score_faults(verdict: dict[str, Any]) -> list[str]:
    score, found = verdict["score"], list[str]()
    value, low, high = (score[name] for name in ("value", "low", "high"))
    if value is None:
        return found
    if low is not None and not low <= value <= high:
        found.append(f"the score {value} is outside its interval {low} … {high}")
    said = re.search(
        rf"{re.escape(verdict['metric'])} ({_NUMBER}) \([^()]*?({_NUMBER}) … ({_NUMBER})", verdict["sentence"]
    )
    if said is None:
        if low is not None and "no honest score" not in verdict["sentence"].lower():
            found.append("the sentence has no score")
        return found
    for shown, true in zip(said.groups(), (value, low, high), strict=True):
        if not _agrees(shown, true):
            found.append(f"the sentence says {shown}, the figures {true}")
    return found


def _comparison_faults(verdict: dict[str, Any]) -> list[str]:
    found = list[str]()
    sign = 1.0 if verdict["higher_is_better"] else -1.0
    for place, each in enumerate(verdict["against"]):
        gap, low, high, p = (each[name] for name in ("difference", "low", "high", "p"))
        if gap is None:
            continue
        if not low <= gap <= high:
            found.append(f"{each['name']}: {gap} is outside {low} … {high}")
        if (p <= 0.05) == (low <= 0.0 <= high) and not low == high == 0.0:
            found.append(f"{each['name']}: p {p} and {low} … {high} disagree")
        name = re.escape(each["name"])
        sure = re.search(rf"(better|worse) than {name} by ({_NUMBER})", verdict["sentence"], re.IGNORECASE)
        open_ = re.search(
            rf"not distinguishable from {name} on your [\d,]+ rows"
            rf"(?:, (?:and|though) ({_NUMBER}) (better|worse))?",
            verdict["sentence"],
            re.IGNORECASE,
        )
        if sure:
            better = sure[1].lower() == "better"
            if low <= 0.0 <= high or better != (sign * gap > 0.0) or not _agrees(sure[2], abs(gap)):
                found.append(f"{each['name']}: said {sure[0]!r}, figures {gap} ({low} … {high})")
        if open_:
            if not low <= 0.0 <= high:
                found.append(f"{each['name']}: said {open_[0]!r}, figures {gap} ({low} … {high})")
            if open_[1] and ((open_[2] == "better") != (sign * gap > 0.0) or not _agrees(open_[1], abs(gap))):
                found.append(f"{each['name']}: said {open_[0]!r}, figures {gap}")
        if not place and not sure and not open_ and "same predictions" not in verdict["sentence"]:
            found.append(f"{each['name']}: the sentence does not say how it compares")
    return found


def _agrees(shown: str, true: float) -> bool:
    """Whether a number is what is left of another one after rounding."""
    plain = shown.replace("−", "-").replace(",", "")
    decimals = len(plain.partition(".")[2].partition("e")[0])
    return isclose(float(plain), true, rel_tol=0.06 if "e" in plain else 0.0, abs_tol=0.51 * 10.0**-decimals)


# ----------------------------------------------------------------------------------------------------- output


def report(number: int, fit: Fit, told: Told, wrong: list[str], seconds: float) -> str:
    """One fit of the text file."""
    verdict = told.verdict
    figures = {
        "score": verdict["score"],
        "against": verdict["against"],
        "hull": verdict["hull"],
        "mixture": verdict["mixture"],
    }
    lines = [
        "=" * 110,
        f"{number}. {fit.what}  [{fit.door}, {fit.model}, {fit.metric or 'default metric'}; {seconds:.1f} s]",
        f"$ {told.command}",
        "",
        told.seen.rstrip(),
        "",
        "-- not shown by default: the notes",
        *(f"   {each}" for each in verdict["notes"]),
        "-- figures",
        *(f"   {name}: {_short(each)}" for name, each in figures.items()),
        *(f"!! {each}" for each in wrong),
        "",
    ]
    return "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, dict):
        return " ".join(f"{name}={_short(each)}" for name, each in value.items())
    if isinstance(value, list):
        return " | ".join(map(_short, value))
    return str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description="Forty fits and their words, to be read.")
    parser.add_argument("--out", type=Path, required=True, help="the text file")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of fits")
    args = parser.parse_args()
    pages, bad = list[str](), dict[int, int]()
    for number, fit in enumerate(FITS, 1):
        if args.only and number not in args.only:
            continue
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            told = DOORS[fit.door](fit, table(fit, seed=number), Path(folder))
        wrong = faults(told)
        if wrong:
            bad[number] = len(wrong)
        pages.append(report(number, fit, told, wrong, time.perf_counter() - started))
        print(f"{number}. {fit.what}: {len(wrong)} faults", flush=True)
    head = f"{len(pages)} fits; faults found by checks: {bad or 'none'}\n\n"
    args.out.write_text(head + "\n".join(pages), encoding="utf-8")
    print(head.strip())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
