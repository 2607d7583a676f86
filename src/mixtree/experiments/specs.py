"""The experiments by name: data, network, budget, the authors' settings and what the paper says of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from scipy.sparse import csr_array

from mixtree.data import paper
from mixtree.data.flights import CARRIERS, flights
from mixtree.data.sources import Problem, Rows, Sources
from mixtree.errors import InputError
from mixtree.experiments.claims import Claim, every
from mixtree.metrics import AUROC, HAND_TILL, LOG_LOSS, MAE_EXP, Metric
from mixtree.trainers.mlp import MlpTrainer

SettingName = Literal["authors", "shared", "own", "optuna"]
Features = Literal["core", "notes"]
FOUR = ("mixmatch-ch", "mixmatch-dp", "mixmatch-bisect", "mixmatch-chp")


@dataclass(frozen=True, slots=True)
class Authors:
    """The numbers in the authors' scripts."""

    nu: float
    rho: float
    lr: float


@dataclass(frozen=True, eq=False, slots=True)
class Experiment:
    """One experiment; ``batch`` is in rows, ``steps`` per node and ``budget`` in batches."""

    name: str
    title: str
    load: Callable[[int], Problem]
    """The problem with the split of this seed."""
    sources: tuple[str, ...]
    known: bool
    """Whether the target's true mixture is known."""
    batch: int
    steps: int
    budget: int
    metric: Metric
    score: str
    """The metric in words."""
    tolerance: float
    """Differences below it count as none."""
    claims: tuple[Claim, ...]
    authors: Authors
    network: Literal["classifier", "log-price"] = "classifier"
    about: str = ""
    """What one has to know about its data, in sentences."""
    differs: str = ""
    """What differs from the paper, and why."""
    figures: str = ""
    """The paper's figures of it, by the numbers that the authors' repository gives them."""

    @property
    def loss(self) -> Metric:
        """What the network is trained on, as a metric."""
        return LOG_LOSS if self.network == "classifier" else MAE_EXP

    def algorithms(self) -> list[str]:
        """All algorithms that are compared."""
        return [
            *(name + suffix for name in FOUR for suffix in ("", "+commit")),
            *(("genie", "genie+decay") if self.known else ()),
            *("uniform", "uniform+decay", "pooled", "pooled+decay"),
            *(f"only:{source}" for source in self.sources),
            *("validation", "mmd", "importance", "fine-tune"),
        ]

    def trainer(self, sources: Sources, *, lr: float, reset_optimizer: bool = False) -> MlpTrainer:
        """The paper's network, all of its layers trained."""
        if self.network == "classifier":
            return MlpTrainer(sources, lr=lr, batch_size=self.batch, reset_optimizer=reset_optimizer)
        width = sources.features
        return MlpTrainer(
            sources,
            hidden=(width // 2, width // 4),
            activation="sigmoid",
            loss="exp-absolute",
            lr=lr,
            batch_size=self.batch,
            reset_optimizer=reset_optimizer,
        )


def sparse_rows(problem: Problem) -> Problem:
    """The same rows as CSR: one-hot columns are nearly all zeros, and the kernel skips them."""

    def thin(rows: Rows) -> Rows:
        return replace(rows, x=csr_array(rows.x))

    sources = problem.sources
    parts = tuple(thin(part) for part in sources.rows)
    thinned = replace(sources, rows=parts, validation=thin(sources.validation))
    return replace(problem, sources=thinned, test=None if problem.test is None else thin(problem.test))


def _allstate(seed: int) -> Problem:
    return paper.allstate(seed=seed)


def _wine_price(seed: int, *, features: Features = "core") -> Problem:
    # The default features are not named: the loaders decide what they are called.
    problem = (
        paper.wine_price(seed=seed, features="notes") if features == "notes" else paper.wine_price(seed=seed)
    )
    return sparse_rows(problem)


def _wine_quartile(seed: int, *, features: Features = "core") -> Problem:
    notes = features == "notes"
    problem = paper.wine_quartile(seed=seed, features="notes") if notes else paper.wine_quartile(seed=seed)
    return sparse_rows(problem)


def _amazon(seed: int) -> Problem:
    return sparse_rows(paper.amazon(seed=seed))


def _flights(seed: int, *, target: Literal["new", "known"]) -> Problem:
    return flights(target=target, seed=seed)


# Every sentence once, named by the part of the paper that has it; page numbers differ between its versions.
_FULL = ("CH", "DP")
_HALF = ("CH+commit", "DP+commit")
_VARIANTS = (*_FULL, *_HALF)


def _known_claims(place: str) -> tuple[Claim, ...]:
    return (
        Claim("CH and DP ≈ genie", place, "≈", every(_FULL, ["genie"])),
        Claim("CH+commit and DP+commit ≈ genie", place, "≈", every(_HALF, ["genie"])),
        Claim("CH ≈ DP", place, "≈", (("CH", "DP"),)),
        Claim(
            "genie is an upper bound: no worse than anything else",
            place,
            "no worse",
            every(["genie"], [*_VARIANTS, "uniform", "validation", "only:*"]),
        ),
        Claim("CH better than uniform", place, "better", (("CH", "uniform"),)),
        Claim("DP no worse than uniform", place, "no worse", (("DP", "uniform"),)),
        Claim("CH+commit and DP+commit no worse than uniform", place, "no worse", every(_HALF, ["uniform"])),
        Claim("uniform better than validation", place, "better", (("uniform", "validation"),)),
        Claim("every variant better than validation", place, "better", every(_VARIANTS, ["validation"])),
        Claim("every variant better than every only:X", place, "better", every(_VARIANTS, ["only:*"])),
    )


def _price_claims(place: str) -> tuple[Claim, ...]:
    return (
        Claim("CH better than uniform", place, "better", (("CH", "uniform"),)),
        Claim("CH better than every only:X", place, "better", (("CH", "only:*"),)),
        Claim("CH ≈ validation", place, "≈", (("CH", "validation"),)),
        Claim("DP is poor: CH better than DP", place, "better", (("CH", "DP"),)),
        Claim(
            "the gap between CH and DP is narrower with half of the budget committed",
            place,
            "narrower",
            (_HALF,),
            than=_FULL,
        ),
    )


def _quartile_claims(place: str) -> tuple[Claim, ...]:
    return (
        Claim("every variant better than uniform", place, "better", every(_VARIANTS, ["uniform"])),
        Claim("every variant better than validation", place, "better", every(_VARIANTS, ["validation"])),
        Claim("every variant ≈ the best only:X", place, "≈", every(_VARIANTS, ["only:*"]), pick="best"),
    )


def _new_claims(place: str) -> tuple[Claim, ...]:
    others = ("uniform", "validation", "only:*", "DP", *_HALF)
    return (
        Claim("CH better than everything else", place, "better", every(["CH"], others)),
        Claim(
            "a full search better than half a search + commit",
            place,
            "better",
            (("CH", "CH+commit"), ("DP", "DP+commit")),
        ),
        Claim("CH better than DP", place, "better", (("CH", "DP"),)),
        Claim(
            "validation alone is insufficient: CH and uniform better",
            place,
            "better",
            every(["CH", "uniform"], ["validation"]),
        ),
    )


_BORROWED = Authors(50.0, 0.7656, 0.002)
"""The authors have no numbers for the flights: those of wine, which has four sources too."""
_VARIETY = (
    "Features are the points and the variety of all priced wines, not the paper's tasting notes: those are "
    "the experiments with the ending `-notes`."
)
_NOTES = (
    "Features are the points and the paper's 39 tasting notes: of all priced wines where the original file "
    "with its descriptions is there, else of a table of 5,408 wines, which leaves very few validation rows."
)
_FLIGHTS = (
    "Not in the paper: public data that anyone can rerun, in the layout of its {} experiment, asked the same "
    "questions. The authors have no numbers for them: those of wine stand in."
)

EXPERIMENTS = {
    each.name: each
    for each in (
        Experiment(
            "allstate",
            "Allstate: which option G will a customer buy?",
            _allstate,
            tuple(paper.ALLSTATE),
            known=True,
            batch=100,
            steps=5,
            budget=600,
            metric=HAND_TILL,
            score="AUROC (Hand–Till)",
            tolerance=0.005,
            claims=_known_claims("experiments, Allstate (Figures 1 and 3)"),
            authors=Authors(5.0, 0.8505, 0.002),
            about="Sources and target are mixtures of customers from FL, CT and OH. The search sees the "
            "validation rows' proportions, which differ from the test's; genie is given the test's.",
            differs="Where the file is the flattened copy, two day features of the paper (days between the "
            "first quote and the purchase; same-day flag) are missing, because the purchase row's day is not "
            "in it; the day and hours of the quotes stand in. The original quote-by-quote file has them.",
            figures="1 and 3",
        ),
        Experiment(
            "wine-price",
            "Wine price: what does a bottle from Chile or Australia cost?",
            _wine_price,
            paper.WINE_SOURCES,
            known=False,
            batch=25,
            steps=20,
            budget=2400,
            metric=MAE_EXP,
            score="mean absolute error in dollars (lower is better)",
            tolerance=0.2,
            claims=_price_claims("experiments, wine: price (Figure 4)"),
            authors=Authors(50.0, 0.7656, 0.002),
            network="log-price",
            about="The target's country is in none of the sources.",
            differs=_VARIETY,
            figures="4",
        ),
        Experiment(
            "wine-quartile",
            "Wine quartile: in which price quartile is a bottle from Chile?",
            _wine_quartile,
            paper.WINE_SOURCES,
            known=False,
            batch=25,
            steps=40,
            budget=1200,
            metric=HAND_TILL,
            score="AUROC (Hand–Till)",
            tolerance=0.005,
            claims=_quartile_claims("experiments, wine: price quartile (Figure 5)"),
            authors=Authors(50.0, 0.7656, 0.002),
            about="The target's country is in none of the sources.",
            differs=_VARIETY,
            figures="5",
        ),
        Experiment(
            "amazon",
            "Amazon: will an employee of department 120663 get access?",
            _amazon,
            paper.AMAZON_SOURCES,
            known=False,
            batch=50,
            steps=20,
            budget=600,
            metric=AUROC,
            score="AUROC",
            tolerance=0.005,
            claims=_new_claims("experiments, Amazon (Figures 2 and 6)"),
            authors=Authors(50.0, 0.7672, 0.0002),
            about="About 100 validation rows, of which only a handful are refusals: scores vary widely.",
            differs="Nothing in the data.",
            figures="2 and 6",
        ),
        Experiment(
            "flights-new",
            "Flights: will a flight of a new carrier (F9) be late?",
            partial(_flights, target="new"),
            CARRIERS,
            known=False,
            batch=50,
            steps=50,
            budget=1500,
            metric=AUROC,
            score="AUROC",
            tolerance=0.005,
            claims=_new_claims("as said of Amazon"),
            authors=_BORROWED,
            about="A carrier that is in none of the sources. Needs no download.",
            differs=_FLIGHTS.format("Amazon"),
        ),
        Experiment(
            "flights-known",
            "Flights: will a flight of a known mixture of carriers be late?",
            partial(_flights, target="known"),
            CARRIERS,
            known=True,
            batch=50,
            steps=50,
            budget=1500,
            metric=AUROC,
            score="AUROC",
            tolerance=0.005,
            claims=_known_claims("as said of Allstate"),
            authors=_BORROWED,
            about="The target is a mixture of the four carriers, .10, .20, .65 and .05. Needs no download.",
            differs=_FLIGHTS.format("Allstate"),
        ),
    )
}


for _name in ("wine-price", "wine-quartile"):
    _core = EXPERIMENTS[_name]
    EXPERIMENTS[f"{_name}-notes"] = replace(
        _core,
        name=f"{_name}-notes",
        title=f"{_core.title} (tasting notes)",
        load=partial(_wine_price if _name == "wine-price" else _wine_quartile, features="notes"),
        differs=_NOTES,
    )


def experiments(name: str, *, features: Features = "core") -> list[Experiment]:
    """The experiments behind a name: one, both of the flights, or all.

    ``features="notes"`` gives the wine experiments with tasting notes.

    >>> [each.name for each in experiments("flights")]
    ['flights-new', 'flights-known']
    >>> [each.name for each in experiments("wine-price", features="notes")]
    ['wine-price-notes']
    """
    if name == "all":
        return list(EXPERIMENTS.values())
    wanted = f"{name}-{features}" if features == "notes" and not name.endswith("-notes") else name
    flights = [each for each in EXPERIMENTS.values() if each.name.startswith("flights-")]
    found = flights if wanted == "flights" else [EXPERIMENTS[wanted]] if wanted in EXPERIMENTS else []
    if not found and features == "notes":
        raise InputError(f"{name} has no tasting notes: only wine-price and wine-quartile have")
    if not found:
        known = ", ".join([*EXPERIMENTS, "flights", "all"])
        raise InputError(f"unknown experiment {name!r}; the experiments are {known}")
    return found
