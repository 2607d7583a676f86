"""The demos: the default fit beside what people use today; every basic algorithm on the flights."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mixtree.data.flights import CARRIERS, flights
from mixtree.data.sources import Problem
from mixtree.errors import MissingExtraError
from mixtree.events import Listener
from mixtree.experiments.comparison import Rules, Run, Summary, compare, summarise
from mixtree.experiments.rivals import Case, cpu_seconds, predict
from mixtree.experiments.tables import Split, available, fars_state
from mixtree.fitting.estimators import MixtureClassifier
from mixtree.metrics import AUROC, as_metric
from mixtree.trainers.mlp import MlpTrainer

BATCH_SIZE = 50
STATE = "Illinois"
"""The target of the table's demo: a state that no arena has for a target."""
EACH, OWN = 1_000, 200
"""Rows of every source, and labelled rows of the target."""
RIVALS = ("lightgbm-source", "lightgbm-weighted", "lightgbm-pooled", "linear-weighted", "lightgbm-target")
NETWORKS = {
    "network: the paper's search": "mixmatch-bisect+commit",
    "network: uniform": "uniform+decay",
    "network: target rows only": "validation",
}
DEFAULT = "default fit"


def demo_algorithms(target: Literal["new", "known"]) -> list[str]:
    """The algorithms that the demo compares."""
    return [
        "auto",
        "mixmatch-bisect",
        "mixmatch-bisect+commit",
        "mixmatch-ch",
        "mixmatch-ch+commit",
        "uniform",
        "uniform+decay",
        "pooled",
        "pooled+decay",
        *(f"only:{carrier}" for carrier in CARRIERS),
        "validation",
        *(["genie", "genie+decay"] if target == "known" else []),
    ]


def run_demo(
    *,
    target: Literal["new", "known"],
    seeds: int,
    budget: int,
    steps: int,
    listeners: Sequence[Listener] = (),
) -> tuple[list[Run], list[Summary]]:
    """Run the comparison; nothing is written."""
    problems = [flights(target=target, seed=seed) for seed in range(seeds)]
    runs = compare(
        problems,
        demo_algorithms(target),
        make_trainer=_trainer,
        rules=Rules(budget, steps, as_metric("auroc", classes=2)),
        listeners=listeners,
    )
    return runs, summarise(runs)


def _trainer(problem: Problem) -> MlpTrainer:
    return MlpTrainer(problem.sources, hidden=(128, 128, 128), lr=0.1, batch_size=BATCH_SIZE)


def run_table_demo(
    *, seeds: int, effort: str = "normal", tell: Callable[[str], None] = lambda name: None
) -> tuple[list[Run], list[Summary], str]:
    """The default fit, rivals and networks on crashes; the first verdict of the default fit comes last.

    Parameters
    ----------
    seeds
        Splits, each with rows and models of its own.
    effort
        Of the default fit.
    tell
        Is told what runs.
    """
    runs, verdicts, table = list[Run](), list[str](), fars_state(STATE)
    if available(table):
        raise MissingExtraError("the demo's data", "demo")
    for seed in range(seeds):
        split = thinned(table.split(OWN, seed), EACH, seed)
        for name, model in _models(split, seed, effort, verdicts):
            tell(name)
            began, used = time.perf_counter(), cpu_seconds()
            score = AUROC(split.test_y, model())
            seconds, cpu = time.perf_counter() - began, cpu_seconds() - used
            runs.append(Run(name, seed, float("nan"), float("nan"), score, {}, 0, {}, seconds, cpu=cpu))
    return runs, sorted(summarise(runs), key=lambda found: -found.score), verdicts[0]


def thinned(split: Split, each: int, seed: int) -> Split:
    """The same split with so many rows of every source.

    Parameters
    ----------
    split
        Of a table.
    each
        Rows that are kept of a source, at most.
    seed
        Of the rows that are kept.
    """
    order = np.random.default_rng(seed).permutation(len(split.source))
    kept = np.concatenate([order[split.source[order] == name][:each] for name in np.unique(split.source)])
    own = (split.validation_x, split.validation_y, split.test_x, split.test_y)
    return Split(split.x[kept], split.y[kept], split.source[kept], *own)


def _models(
    split: Split, seed: int, effort: str, verdicts: list[str]
) -> Iterator[tuple[str, Callable[[], NDArray[np.float64]]]]:
    yield DEFAULT, partial(_ours, split, seed, verdicts, effort=effort)
    training = split.x, split.y, split.source
    own = split.validation_x, split.validation_y
    case = Case.of_frames(training, own, split.test_x, classes=2, metric=AUROC, seed=seed)
    for rival in RIVALS:
        yield rival, partial(predict, rival, case)
    for name, policy in NETWORKS.items():
        yield name, partial(_ours, split, seed, [], "mlp", policy=policy, reference="none")


def _ours(
    split: Split, seed: int, verdicts: list[str], model: str | None = None, **options: Any
) -> NDArray[np.float64]:
    fitted = MixtureClassifier(model, metric="auroc", random_state=seed, **options)
    with warnings.catch_warnings():
        # People in one car often have the same features: rows that stand twice are no news here.
        warnings.simplefilter("ignore")
        given = {"X_val": split.validation_x, "y_val": split.validation_y}
        fitted.fit(split.x, split.y, source=split.source, **given)
        verdicts.append("\n".join(str(fitted.verdict_).splitlines()[:3]))
        return np.asarray(fitted.predict_proba(split.test_x), dtype=np.float64)
