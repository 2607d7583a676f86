"""Do the verdict's intervals and tests keep their word? Coverage by simulation.

    python benchmarks/coverage.py [--full] [--part binary …] [--document]

Seeds are fixed here, before any run; ``--full`` repeats every cell 2,000 times, otherwise 300; nested folds a
half, whole fits a fifth as often (``auto`` two fifths). A cell fails if its coverage is significantly (99 %,
one-sided) below 95 %, its rate of false alarms above 5 %, or its bias beyond 0.2 standard errors. ``time``
only prints what a verdict costs. Writes results/coverage.json (cells of other parts stay) and, with
``--document``, the tables in docs/results/verdict.md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtri
from scipy.stats import binom, norm
from sklearn.linear_model import LogisticRegression, Ridge

import fits
from mixtree.data.sources import Problem, Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.estimate import hull_test, match_moments
from mixtree.estimate.matching import Matching
from mixtree.estimate.target import about_target
from mixtree.metrics import (
    ABSOLUTE_LOSS,
    ACCURACY,
    AUROC,
    F1,
    HAND_TILL,
    LOG_LOSS,
    MAE,
    RMSE,
    Metric,
    absent_classes,
    as_metric,
    class_names,
)
from mixtree.verdict import (
    cross_fitted,
    holdout,
    honest_score,
    label_folds,
    out_of_fold,
    paired_difference,
)

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "coverage.json"
DOCUMENT = HERE.parent / "docs" / "results" / "verdict.md"
SEED = 20_241_105
ROWS = (50, 100, 300)
FULL, QUICK = 2_000, 300
POOL = 100_000
LEVEL, SURE = 0.95, 0.01
MOST_BIAS = 0.2
SCORED = (AUROC, LOG_LOSS)
SCORED_REGRESSION = (RMSE, MAE)

_seed = SEED


@dataclass(frozen=True)
class Cell:
    """One simulated figure: how often a 95 % interval held the truth, or how often a test cried wolf."""

    part: str
    what: str
    rows: int
    hits: int
    repetitions: int
    kind: str = "coverage"  # or "false alarms", or "figure": for information
    more: str = ""
    bias: float | None = None
    """Of the quoted score in its standard errors, positive if it looks better than the truth is."""
    error: float | None = None
    """The bias's own standard error."""

    @property
    def rate(self) -> float:
        return self.hits / self.repetitions if self.repetitions else float("nan")

    @property
    def unbiased(self) -> bool | None:
        if self.bias is None or self.error is None:
            return None
        return bool(abs(self.bias) - float(norm.isf(SURE)) * self.error <= MOST_BIAS)

    @property
    def holds(self) -> bool | None:
        if self.kind == "coverage":
            return bool(binom.cdf(self.hits, self.repetitions, LEVEL) >= SURE)
        if self.kind == "false alarms":
            return bool(binom.sf(self.hits - 1, self.repetitions, 1.0 - LEVEL) >= SURE)
        return None

    def as_dict(self) -> dict[str, Any]:
        counts = {"hits": int(self.hits), "repetitions": int(self.repetitions)}
        known = {name: each for name, each in vars(self).items() if each is not None}
        rate = round(float(self.rate), 4) if self.repetitions else None
        told = {**known, **counts, "rate": rate, "holds": self.holds}
        return told if self.bias is None else {**told, "unbiased": self.unbiased}


def stream(*key: object) -> np.random.Generator:
    """The cell's own random numbers, whatever else is run."""
    return np.random.default_rng([_seed, zlib.crc32(repr(key).encode())])


# ------------------------------------------------------------------------ scores and differences, real models


def fitted(problem: Problem, weights: np.ndarray) -> Any:
    """A linear model on the sources' rows, each source with its weight."""
    x = np.vstack([part.x for part in problem.sources.rows])
    y = np.concatenate([part.y for part in problem.sources.rows])
    each = np.concatenate(
        [
            np.full(len(part), weight / len(part))
            for part, weight in zip(problem.sources.rows, weights, strict=True)
        ]
    )
    model = LogisticRegression(max_iter=500) if problem.sources.classes else Ridge(alpha=1e-3)
    return model.fit(x, y, sample_weight=each * len(x) + 1e-9)


def predict(model: Any, x: np.ndarray) -> np.ndarray:
    return model.predict_proba(x) if hasattr(model, "predict_proba") else model.predict(x)


def balanced(y: np.ndarray, predictions: np.ndarray) -> float:
    """A user's function: the mean of the classes' shares of rows that were recognised."""
    right = predictions.argmax(axis=1) == y
    return float(np.mean([right[y == label].mean() for label in np.unique(y)]))


USER = as_metric(balanced, classes=2, higher_is_better=True, name="a user's function")


def scores(repetitions: int, *, classes: int, metrics: tuple[Metric, ...]) -> Iterator[Cell]:
    """Linear models trained on mixtures; the population is a pool of 100,000 rows, the truth its score."""
    mixture = [0.7, 0.2, 0.1]
    for hull in ("inside", "outside"):
        problem = synthetic(
            rows=1000, validation=1, test=POOL, classes=classes, hull=hull, alpha=mixture, seed=11
        )
        assert problem.test is not None
        models = [fitted(problem, np.array(weights)) for weights in (mixture, [1 / 3] * 3)]
        pair = [predict(model, problem.test.x) for model in models]
        for metric in metrics:
            yield from both(metric, problem.test.y, pair, f"{metric.name}, {hull} the hull", repetitions)


def both(
    metric: Metric, y: np.ndarray, pair: list[np.ndarray], what: str, repetitions: int
) -> Iterator[Cell]:
    """Cells of one score and of one paired difference at every number of rows."""
    truth = [metric(y, each) for each in pair]
    known: dict[tuple[int, ...], list[float]] = {}

    def truth_of(labels: np.ndarray) -> list[float]:
        """Of the classes that were drawn: an area says nothing of the others."""
        present = tuple(np.unique(labels).tolist()) if metric.by_class else ()
        if len(present) < 2:  # no class, or no area at all
            return truth
        if present not in known:
            some = np.isin(y, present)
            with absent_classes():
                known[present] = [metric(y[some], each[some]) for each in pair]
        return known[present]

    for n in ROWS:
        rng = stream("scores", what, n)
        hits, gaps, answered, compared, widths = 0, 0, 0, 0, []
        for seed in range(repetitions):
            rows = rng.choice(len(y), size=n, replace=False)
            one, two, true = pair[0][rows], pair[1][rows], truth_of(y[rows])
            score = honest_score(metric, y[rows], one, rows_role="test", seed=seed)
            difference = paired_difference(metric, y[rows], one, two, seed=seed)
            if np.isfinite(score.value):
                answered += 1
                hits += score.low <= true[0] <= score.high
                widths.append(score.high - score.low)
            if np.isfinite(difference.value):
                compared += 1
                gaps += difference.low <= true[0] - true[1] <= difference.high
        yield Cell(
            "score", f"{what} ({truth[0]:.3g})", n, hits, answered, more=f"mean width {np.mean(widths):.3g}"
        )
        yield Cell("difference", f"{what} ({truth[0] - truth[1]:+.2g})", n, gaps, compared)


# --------------------------------------------------------------------------------- hard cases, drawn directly


def two_scores(rng: np.random.Generator, count: int, share: float, areas: tuple[float, float], alike: float):
    """Labels and two correlated scores with these areas under the curve, as probabilities."""
    y = (rng.random(count) < share).astype(np.int64)
    common = np.sqrt(alike) * rng.standard_normal(count)
    pair = []
    for area in areas:
        logits = common + np.sqrt(1 - alike) * rng.standard_normal(count) + ndtri(area) * np.sqrt(2.0) * y
        p = norm.cdf(logits)
        pair.append(np.column_stack([1.0 - p, p]))
    return y, pair


def uneven(rng: np.random.Generator, count: int, *, rare: tuple[float, ...], apart: float):
    """Labels of four usual classes and rare ones, and two models' probabilities for all of them."""
    shares = np.array([*[(1.0 - sum(rare)) / 4] * 4, *rare])
    y = rng.choice(len(shares), size=count, p=shares)
    common, pair = rng.standard_normal((count, len(shares))), []
    for far in (apart, 0.9 * apart):
        logits = (
            common + 0.5 * rng.standard_normal(common.shape) + far * (y[:, None] == np.arange(len(shares)))
        )
        pair.append(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))
    return y, pair


def overconfident(rng: np.random.Generator, count: int):
    """Labels with probabilities whose logits are twice and once what they should be."""
    logits = 1.5 * rng.standard_normal(count)
    y = (rng.random(count) < 1 / (1 + np.exp(-logits))).astype(np.int64)
    chances = [1 / (1 + np.exp(-scale * logits)) for scale in (2.0, 1.0)]
    return y, [np.column_stack([1 - p, p]) for p in chances]


def rare_positives(rng: np.random.Generator, count: int, *, share: float, scale: float):
    """Labels of which few are positive, with probabilities that are too sure and with better ones."""
    y = (rng.random(count) < share).astype(np.int64)
    logits = 2.0 * y - 2.5 + 1.2 * rng.standard_normal(count)
    sure = scale * logits + 0.3 * rng.standard_normal(count)
    return y, [np.column_stack([1 - p, p]) for p in (1 / (1 + np.exp(-each)) for each in (sure, logits))]


def mistaken(rng: np.random.Generator, count: int, *, wrong: float):
    """Labels of which a few are wrong, and two models that are sure of the right ones."""
    meant = rng.integers(2, size=count)
    common = 4.0 * (2 * meant - 1) + rng.standard_normal(count)
    y = np.where(rng.random(count) < wrong, 1 - meant, meant)
    chances = [1 / (1 + np.exp(-common - 0.5 * rng.standard_normal(count))) for _ in range(2)]
    return y, [np.column_stack([1 - p, p]) for p in chances]


def far_apart(rng: np.random.Generator, count: int):
    """Classes that hardly touch, and two models that know their chances, the second one almost."""
    y = rng.integers(2, size=count)
    place = 2.5 * (2 * y - 1) + rng.standard_normal(count)
    noisy = place + 0.3 * rng.standard_normal(count)
    return y, [
        np.column_stack([1 - p, p]) for p in (1 / (1 + np.exp(-5.0 * each)) for each in (place, noisy))
    ]


def prices(rng: np.random.Generator, count: int, *, spread: float):
    """Log-normal labels, and two models that predict their scale but for noise."""
    middle = rng.standard_normal(count)
    y = np.exp(middle + spread * rng.standard_normal(count))
    return y, [np.exp(middle + 0.1 * rng.standard_normal(count)) for _ in range(2)]


def student(rng: np.random.Generator, count: int):
    """Errors with the tail of a t distribution of three degrees of freedom."""
    y = rng.standard_t(3, size=count)
    return y, [0.3 * rng.standard_normal(count) for _ in range(2)]


def heavy(rng: np.random.Generator, count: int):
    """Errors with a log-normal tail."""
    common = 0.5 * rng.standard_normal(count)
    pair = [np.exp(common + 0.87 * rng.standard_normal(count)) for _ in range(2)]
    return np.zeros(count), pair


def hard(repetitions: int) -> Iterator[Cell]:
    """Rare positives, areas near 1, overconfident probabilities, heavy tails."""
    cases: list[tuple[str, Metric, Callable[[np.random.Generator], Any]]] = [
        ("auroc, 10 % positives", AUROC, lambda rng: two_scores(rng, POOL, 0.1, (0.85, 0.8), 0.8)),
        ("auroc near 1", AUROC, lambda rng: two_scores(rng, POOL, 0.5, (0.98, 0.96), 0.8)),
        ("auroc near 1, 20 % positives", AUROC, lambda rng: two_scores(rng, POOL, 0.2, (0.97, 0.97), 0.8)),
        ("hand-till, a class of 2 %", HAND_TILL, lambda rng: uneven(rng, POOL, rare=(0.02,), apart=1.5)),
        (
            "hand-till near 1, a class of 2 %",
            HAND_TILL,
            lambda rng: uneven(rng, POOL, rare=(0.02,), apart=3.0),
        ),
        (
            "hand-till, four classes of 1 %",
            HAND_TILL,
            lambda rng: uneven(rng, POOL, rare=(0.01,) * 4, apart=2.0),
        ),
        ("log-loss, overconfident", LOG_LOSS, lambda rng: overconfident(rng, POOL)),
        (
            "log-loss, 10 % positives, overconfident",
            LOG_LOSS,
            lambda rng: rare_positives(rng, POOL, share=0.1, scale=2.2),
        ),
        (
            "log-loss, 5 % positives, overconfident",
            LOG_LOSS,
            lambda rng: rare_positives(rng, POOL, share=0.05, scale=3.6),
        ),
        ("log-loss, sure, 2 % wrong labels", LOG_LOSS, lambda rng: mistaken(rng, POOL, wrong=0.02)),
        ("log-loss, sure, 1 % wrong labels", LOG_LOSS, lambda rng: mistaken(rng, POOL, wrong=0.01)),
        ("log-loss, classes far apart", LOG_LOSS, lambda rng: far_apart(rng, POOL)),
        ("absolute loss, log-normal", ABSOLUTE_LOSS, lambda rng: heavy(rng, POOL)),
    ]
    for what, metric, draw in cases:
        y, pair = draw(stream("population", what))
        yield from both(metric, y, pair, what, repetitions)


def hits(repetitions: int) -> Iterator[Cell]:
    """F1 of few positives, near 1, and as a mean over classes."""
    cases: list[tuple[str, Callable[[np.random.Generator], Any]]] = [
        ("f1", lambda rng: two_scores(rng, POOL, 0.5, (0.85, 0.8), 0.8)),
        ("f1, 10 % positives", lambda rng: two_scores(rng, POOL, 0.1, (0.95, 0.9), 0.8)),
        ("f1 near 1", lambda rng: two_scores(rng, POOL, 0.5, (0.9999, 0.999), 0.8)),
        ("f1, six classes", lambda rng: uneven(rng, POOL, rare=(0.05, 0.05), apart=2.0)),
    ]
    for what, draw in cases:
        y, pair = draw(stream("population", what))
        yield from both(F1, y, pair, what, repetitions)


def tails(repetitions: int) -> Iterator[Cell]:
    """Squares of errors with heavy tails: what a few rows that were not seen decide, no interval knows."""
    cases: list[tuple[str, Metric, Callable[[np.random.Generator], Any]]] = [
        ("rmse, log-normal prices, log-sd 0.5", RMSE, lambda rng: prices(rng, POOL, spread=0.5)),
        ("rmse, log-normal prices, log-sd 0.8", RMSE, lambda rng: prices(rng, POOL, spread=0.8)),
        ("rmse, t errors of 3 degrees of freedom", RMSE, lambda rng: student(rng, POOL)),
        ("mae, log-normal prices, log-sd 0.8", MAE, lambda rng: prices(rng, POOL, spread=0.8)),
    ]
    for what, metric, draw in cases:
        y, pair = draw(stream("population", what))
        yield from both(metric, y, pair, what, repetitions)


def user(repetitions: int) -> Iterator[Cell]:
    """A function of which nothing is known: the bias-corrected bootstrap."""
    y, pair = two_scores(stream("population", "user"), POOL, 0.4, (0.85, 0.8), 0.8)
    yield from both(USER, y, pair, "balanced accuracy as a user's function", repetitions)


# ------------------------------------------------------------------------------------------------ the mixture


def mixtures(repetitions: int) -> Iterator[Cell]:
    """Intervals of every weight, and the joint region, in the hull; a new problem every time.

    By the estimator's own defaults, and as a fit asks it: with fewer rows.
    """
    for classes in (2, 0):
        for n in ROWS:
            hits, joint = [0, 0], [0, 0]
            for number in range(repetitions):
                seed = int(stream("alpha", classes, n, number).integers(2**31))
                problem = synthetic(rows=1000, validation=n, test=1, features=5, classes=classes, seed=seed)
                assert problem.alpha is not None
                inside_fit = about_target(problem.sources, seed=seed)[1]
                assert inside_fit is not None
                # One weight per problem, so that repetitions are independent.
                source = number % len(problem.alpha)
                for place, estimate in enumerate((match_moments(problem.sources), inside_fit)):
                    hits[place] += bool(
                        estimate.low[source] <= problem.alpha[source] <= estimate.high[source]
                    )
                    joint[place] += estimate.contains(problem.alpha)
            kind = f"{classes} classes" if classes else "regression"
            for place, where in enumerate(("", ", in a fit")):
                yield Cell("mixture", f"one weight, {kind}{where}", n, hits[place], repetitions)
                yield Cell("mixture", f"joint region, {kind}{where}", n, joint[place], repetitions)


def hulls(repetitions: int) -> Iterator[Cell]:
    """Rejections of the hull test inside (false) and outside (right), by its defaults and as in a fit."""
    for hull, kind in (("inside", "false alarms"), ("outside", "figure")):
        for n in ROWS:
            count = repetitions if kind == "false alarms" else min(repetitions, QUICK)
            rejected, in_fit, of_auto = 0, 0, 0
            for number in range(count):
                seed = int(stream("hull", hull, n, number).integers(2**31))
                problem = synthetic(rows=1000, validation=n, test=1, features=5, hull=hull, seed=seed)
                rejected += hull_test(problem.sources, repetitions=199, seed=seed).inside is False
                in_fit += about_target(problem.sources, seed=seed)[0].inside is False
                matching = Matching(problem.sources)
                of_auto += about_target(problem.sources, seed=seed, matching=matching)[0].inside is False
            yield Cell("hull", f"rejected, target {hull}", n, rejected, count, kind)
            yield Cell("hull", f"rejected, target {hull}, in a fit", n, in_fit, count, kind)
            yield Cell("hull", f"rejected, target {hull}, in a fit of auto", n, of_auto, count, kind)


def small(repetitions: int) -> Iterator[Cell]:
    """Both as in a fit, of sources that have fewer rows than most targets here: their means are noisy too."""
    for classes in (2, 0):
        for size in (50, 100):
            for n in ROWS:
                hits, joint, rejected = 0, 0, 0
                for number in range(repetitions):
                    seed = int(stream("small", classes, size, n, number).integers(2**31))
                    problem = synthetic(
                        rows=size, validation=n, test=1, features=5, classes=classes, seed=seed
                    )
                    assert problem.alpha is not None
                    hull, estimate = about_target(problem.sources, seed=seed, look_outside=False)
                    assert estimate is not None
                    source = number % len(problem.alpha)
                    hits += bool(estimate.low[source] <= problem.alpha[source] <= estimate.high[source])
                    joint += estimate.contains(problem.alpha)
                    rejected += hull.inside is False
                kind = f"{classes} classes" if classes else "regression"
                what = f"{kind}, sources of {size} rows"
                yield Cell("mixture", f"one weight, {what}", n, hits, repetitions)
                yield Cell("mixture", f"joint region, {what}", n, joint, repetitions)
                yield Cell(
                    "hull", f"rejected, target inside, {what}", n, rejected, repetitions, "false alarms"
                )


def thinned(repetitions: int) -> Iterator[Cell]:
    """Both as in a fit, on problems of which it takes a part: 3,000 rows a source, 61 moments.

    A fit of auto, which has matched them all, takes a part of the rows for the test alone.
    """
    for n in ROWS:
        rejected, hits, joint = [0, 0], [0, 0], [0, 0]
        for number in range(repetitions):
            seed = int(stream("thinned", n, number).integers(2**31))
            problem = synthetic(rows=3_000, validation=n, test=1, features=30, seed=seed)
            assert problem.alpha is not None
            source = number % len(problem.alpha)
            for place, matching in enumerate((None, Matching(problem.sources))):
                hull, estimate = about_target(problem.sources, seed=seed, matching=matching)
                assert estimate is not None
                rejected[place] += hull.inside is False
                hits[place] += bool(estimate.low[source] <= problem.alpha[source] <= estimate.high[source])
                joint[place] += estimate.contains(problem.alpha)
        for place, fit in enumerate(("in a fit", "in a fit of auto")):
            where, count = f"{fit}, 30 features", repetitions
            yield Cell("hull", f"rejected, target inside, {where}", n, rejected[place], count, "false alarms")
            yield Cell("mixture", f"one weight, 2 classes, {where}", n, hits[place], count)
            yield Cell("mixture", f"joint region, 2 classes, {where}", n, joint[place], count)


def crowded(repetitions: int) -> Iterator[Cell]:
    """As in a fit of auto where it has matched many moments: 119 of 100 features, 81 of 20 sources.

    How often the target is said to be inside is a figure: with few rows and many moments that is not known.
    """
    for where, shape in (
        ("100 features", {"rows": 1_000, "features": 100}),
        ("20 sources", {"rows": 600, "features": 10, "sources": 20}),
    ):
        for n in ROWS:
            found = {"inside": [0, 0, 0, 0], "outside": [0, 0, 0, 0]}
            counts = {"inside": repetitions, "outside": min(repetitions, QUICK)}
            for hull, count in counts.items():
                for number in range(count):
                    seed = int(stream("crowded", where, hull, n, number).integers(2**31))
                    problem = synthetic(validation=n, test=1, hull=hull, seed=seed, **shape)
                    matching = Matching(problem.sources)
                    test, estimate = about_target(problem.sources, seed=seed, matching=matching)
                    found[hull][0] += test.inside is False
                    found[hull][3] += test.inside is True
                    if problem.alpha is not None and estimate is not None:
                        source = number % len(problem.alpha)
                        weight = problem.alpha[source]
                        found[hull][1] += bool(estimate.low[source] <= weight <= estimate.high[source])
                        found[hull][2] += estimate.contains(problem.alpha)
            fit = f"in a fit of auto, {where}"
            for hull, kind in (("inside", "false alarms"), ("outside", "figure")):
                yield Cell("hull", f"rejected, target {hull}, {fit}", n, found[hull][0], counts[hull], kind)
                said, count = f"said to be inside, target {hull}, {fit}", counts[hull]
                yield Cell("hull", said, n, found[hull][3], count, "figure")
            yield Cell("mixture", f"one weight, 2 classes, {fit}", n, found["inside"][1], repetitions)
            yield Cell("mixture", f"joint region, 2 classes, {fit}", n, found["inside"][2], repetitions)


def rare_levels(rng: np.random.Generator, counts: np.ndarray, *, levels: int = 600) -> Rows:
    """Rows of two columns with many levels, most of them rare, as indicators; so many of each source."""
    source = np.repeat(np.arange(len(counts)), counts)
    drawn = (rng.zipf(1.4, (len(source), 2)) + 3 * source[:, None]) % levels
    where = np.repeat(np.arange(len(source)), 2), (drawn + levels * np.arange(2)).ravel()
    x = csr_array((np.ones(drawn.size), where), shape=(len(source), 2 * levels))
    return Rows(x, (drawn[:, 0] % 3 + rng.random(len(source)) > 1.2).astype(np.int64))


def rare_flags(rng: np.random.Generator, counts: np.ndarray) -> Rows:
    """Rows of five numbers and thirty flags that one of a hundred rows has, more often in one source each."""
    source = np.repeat(np.arange(len(counts)), counts)
    flags = np.where(np.arange(30) % 3 == source[:, None] % 3, 0.02, 0.005)
    x = np.column_stack([rng.standard_normal((len(source), 5)), rng.random((len(source), 30)) < flags])
    x[:, 0] += 0.5 * source
    return Rows(x, (x[:, 0] + rng.logistic(size=len(source)) > 0.5).astype(np.int64))


def rare_classes(rng: np.random.Generator, counts: np.ndarray) -> Rows:
    """Rows of two numbers that say nothing and a hundred classes, most of them rare."""
    source = np.repeat(np.arange(len(counts)), counts)
    y = (rng.zipf(1.4, len(source)) + 7 * source) % 100
    return Rows(rng.standard_normal((len(source), 2)), y.astype(np.int64))


def rare(repetitions: int) -> Iterator[Cell]:
    """As in a fit, where many values are rare: tables of indicators, with flags, of many classes.

    A target outside has half of its rows from a source that is not there.
    """
    for where, drawn, classes in (
        ("1,200 rare values", rare_levels, 2),
        ("30 rare flags", rare_flags, 2),
        ("100 classes", rare_classes, 100),
    ):
        for n in ROWS:
            counts = {"inside": repetitions, "outside": min(repetitions, QUICK)}
            rejected, hits, joint = {hull: [0, 0] for hull in counts}, [0, 0], [0, 0]
            for hull, count in counts.items():
                for number in range(count):
                    rng = stream("rare", where, hull, n, number)
                    parts = tuple(drawn(rng, 1_000 * np.eye(4, dtype=np.int64)[i]) for i in range(3))
                    alpha = rng.dirichlet(np.ones(3))
                    away = 0.5 if hull == "outside" else 0.0
                    target = drawn(rng, rng.multinomial(n, [*(1.0 - away) * alpha, away]))
                    sources = Sources(("a", "b", "c"), parts, target, classes)
                    source = number % 3
                    for place, matching in enumerate((None, Matching(sources))):
                        test, estimate = about_target(sources, seed=number, matching=matching)
                        rejected[hull][place] += test.inside is False
                        if hull == "inside" and estimate is not None:
                            hits[place] += bool(
                                estimate.low[source] <= alpha[source] <= estimate.high[source]
                            )
                            joint[place] += estimate.contains(alpha)
            for place, fit in enumerate((f"in a fit, {where}", f"in a fit of auto, {where}")):
                for hull, kind in (("inside", "false alarms"), ("outside", "figure")):
                    found = rejected[hull][place]
                    yield Cell("hull", f"rejected, target {hull}, {fit}", n, found, counts[hull], kind)
                yield Cell("mixture", f"one weight, {fit}", n, hits[place], repetitions)
                yield Cell("mixture", f"joint region, {fit}", n, joint[place], repetitions)


def repeated(repetitions: int) -> Iterator[Cell]:
    """As in a fit, of sources that were enlarged: 1,200 rows each, drawn from 600 with replacement."""
    for n in ROWS:
        rejected = hits = joint = 0
        for number in range(repetitions):
            rng = stream("repeated", n, number)
            problem = synthetic(rows=600, validation=n, test=1, seed=int(rng.integers(2**31)))
            parts = tuple(part.take(rng.integers(600, size=1_200)) for part in problem.sources.rows)
            test, estimate = about_target(replace(problem.sources, rows=parts), seed=number)
            rejected += test.inside is False
            assert estimate is not None and problem.alpha is not None
            source = number % len(problem.alpha)
            hits += bool(estimate.low[source] <= problem.alpha[source] <= estimate.high[source])
            joint += estimate.contains(problem.alpha)
        where = "in a fit, copies among the rows"
        yield Cell("hull", f"rejected, target inside, {where}", n, rejected, repetitions, "false alarms")
        yield Cell("mixture", f"one weight, 2 classes, {where}", n, hits, repetitions)
        yield Cell("mixture", f"joint region, 2 classes, {where}", n, joint, repetitions)


# ------------------------------------------------------------------------------------ the choice of the model


def equal_sources(rng: np.random.Generator, n: int, *, test: int = 1) -> tuple[Sources, Rows, np.ndarray]:
    """Three sources and a target that are all the same distribution, test rows of it, and its slope."""
    slope = rng.standard_normal(5)

    def draw(count: int) -> Rows:
        x = rng.standard_normal((count, 5))
        return Rows(x, (x @ slope + rng.logistic(size=count) > 0).astype(np.int64))

    sources = Sources(("a", "b", "c"), tuple(draw(200) for _ in range(3)), draw(n), 2)
    return sources, draw(test), slope


def least_squares(sources: Sources, mixture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A tiny model trained on 200 rows drawn from the mixture."""
    counts = rng.multinomial(200, mixture)
    parts = [part.take(rng.integers(len(part), size=c)) for part, c in zip(sources.rows, counts, strict=True)]
    x, y = np.vstack([part.x for part in parts]), np.concatenate([part.y for part in parts])
    return np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (4.0 * y - 2.0))


def chances(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    p = 1 / (1 + np.exp(-(x @ weights)))
    return np.column_stack([1 - p, p])


def equals(repetitions: int) -> Iterator[Cell]:
    """How often the best of 20 mixtures is called better than uniform where all sources are the same.

    Every mixture's model is then a draw from one and the same law, here that of logistic fits on 5,000 rows.
    Below 150 rows less what the choice is expected to have made up, above on the slice kept aside.
    """
    for metric in (AUROC, LOG_LOSS):
        for n in ROWS:
            rng, false, naive = stream("equal", metric.name, n), 0, 0
            for seed in range(repetitions):
                everything, _, slope = equal_sources(rng, n)
                sources, held = holdout(everything, seed=seed)
                models = logistic_fits(rng, slope, 21)
                x, y = sources.validation.x, sources.validation.y
                told = {i: chances(x, model) for i, model in enumerate(models[1:], 1)}
                best = min(told, key=lambda i: metric.signed(metric(y, told[i])))
                same = paired_difference(metric, y, told[best], chances(x, models[0]), seed=seed)
                if held is None:
                    made_up = cross_fitted(metric, y, told, seed=seed).optimism
                    difference = paired_difference(
                        metric, y, told[best], chances(x, models[0]), made_up=made_up, seed=seed
                    )
                else:
                    pair = [chances(held.x, models[i]) for i in (best, 0)]
                    difference = paired_difference(metric, held.y, *pair, seed=seed)
                false += difference.outcome == "better"
                naive += same.outcome == "better"
            how = "holdout" if n >= 150 else "less the optimism"
            more = f"on the rows that chose: {naive / repetitions:.3f}"
            what = f"“better than uniform”, all sources equal, {metric.name}"
            yield Cell("claim", what, n, false, repetitions, "false alarms", f"{how}; {more}")


def singles(repetitions: int) -> Iterator[Cell]:
    """How often a model is called better than the best single source, all of them equally good.

    The sources' models are of other base rates, and halves of the rows choose different ones: what they
    predict is not to be ranked together.
    """
    for shift in (0.0, 1.5):
        for n in ROWS:
            rng, false = stream("singles", shift, n), 0
            for seed in range(repetitions):
                y = rng.permutation(np.arange(n) % 2)
                common = 0.7 * (2 * y - 1) + rng.standard_normal(n)
                one, two, mine = (
                    chances((common + 0.3 * rng.standard_normal(n) + by)[:, None], np.ones(1))
                    for by in (-shift, shift, 0.0)
                )
                folds = label_folds(y, 2, np.random.default_rng(seed))
                rival = out_of_fold(LOG_LOSS, y, {"a": one, "b": two}, folds=folds)
                false += paired_difference(AUROC, y, mine, rival, folds=folds).outcome == "better"
            what = f"“better than the best single source”, all as good, base rates {shift:g} apart, auroc"
            yield Cell("claim", what, n, false, repetitions, "false alarms")


def logistic_fits(
    rng: np.random.Generator, slope: np.ndarray, count: int, *, rows: int = 5_000
) -> np.ndarray:
    """Slopes that logistic regressions on so many rows would find: the truth and their sampling error."""
    x = rng.standard_normal((500, len(slope)))
    p = 1 / (1 + np.exp(-x @ slope))
    information = (x * (p * (1 - p))[:, None]).T @ x / len(x) * rows
    return slope + rng.standard_normal((count, len(slope))) @ np.linalg.cholesky(np.linalg.inv(information)).T


def bias(repetitions: int) -> Iterator[Cell]:
    """The quoted score against the chosen model's score on 10,000 test rows, the best of 30 like nodes."""
    ways = ("on the rows that chose", "cross-fitted", "holdout")
    for n in ROWS:
        rng = stream("bias", n)
        gaps: dict[str, list[tuple[float, float, bool]]] = {way: [] for way in ways}
        for seed in range(repetitions):
            sources, test, _ = equal_sources(rng, n, test=10_000)
            kept, held = holdout(sources, 0.25, seed=seed)
            assert held is not None
            models = [least_squares(sources, rng.dirichlet(np.ones(3)), rng) for _ in range(30)]
            best, told = chosen(models, sources.validation)
            true, y = AUROC(test.y, chances(test.x, models[best])), sources.validation.y
            error = AUROC.standard_error(y, told[best])
            naive = honest_score(AUROC, y, told[best], rows_role="validation")
            crossed = cross_fitted(AUROC, y, told, seed=seed)
            for way, score in ((ways[0], naive), (ways[1], crossed)):
                gaps[way].append((score.value - true, error, score.low <= true <= score.high))
            best, _ = chosen(models, kept.validation)
            given, true = chances(held.x, models[best]), AUROC(test.y, chances(test.x, models[best]))
            score = honest_score(AUROC, held.y, given, rows_role="holdout")
            error = AUROC.standard_error(held.y, given)
            gaps[ways[2]].append((score.value - true, error, score.low <= true <= score.high))
        for way, found in gaps.items():
            off, errors, held_true = np.array(found, dtype=float).T
            size, sure = off.mean() / np.nanmean(errors), off.std() / np.sqrt(len(off)) / np.nanmean(errors)
            more = f"bias {size:+.3f} ± {sure:.3f} standard errors of the score"
            yield Cell("bias", f"quoted AUROC, {way}", n, 0, len(off), "figure", more)
            kind = "figure" if way == ways[0] else "coverage"
            yield Cell("chosen", f"AUROC of the chosen node, {way}", n, int(held_true.sum()), len(off), kind)


def optimisms(repetitions: int) -> Iterator[Cell]:
    """What verdicts expect that choosing has made up of a score, beside what it made up; never judged."""
    count = max(2, repetitions // 2)
    for classes, metrics in ((2, SCORED), (5, (HAND_TILL,)), (0, (RMSE,))):
        for n in ROWS:
            told: dict[str, list[tuple[float, float]]] = {metric.name: [] for metric in metrics}
            for number in range(count):
                seed = int(stream("optimism", classes, n, number).integers(2**31))
                problem = synthetic(rows=300, validation=n, test=10_000, classes=classes, seed=seed)
                with class_names(told=True):
                    for name, pair in fits.optimism(problem, metrics, seed=number).items():
                        told[name].append(pair)
            for name, found in told.items():
                expected, was = np.array(found).T
                more = f"{expected.mean():.3f}, was {was.mean():.3f} ± {was.std() / np.sqrt(count):.3f}"
                yield Cell(
                    "optimism", f"{name} of the best of 100 nodes, expected", n, 0, count, "figure", more
                )


def chosen(models: list[np.ndarray], rows: Rows) -> tuple[int, dict[int, np.ndarray]]:
    """The best model on these rows, and all models' predictions for them."""
    told = {i: chances(rows.x, model) for i, model in enumerate(models)}
    return max(told, key=lambda i: AUROC(rows.y, told[i])), told


# ------------------------------------------------------------------------------------------------- whole fits


def policies(repetitions: int) -> Iterator[Cell]:
    """What the verdicts of real fits quote, beside the returned model's score on 10,000 other rows.

    Small problems, linear models and small networks in turns; every fit is judged by both metrics.
    """
    for policy, options in fits.POLICIES.items():
        count = max(2, repetitions * (2 if policy == "auto" else 1) // 5)
        for hull in ("inside", "outside"):
            for n in (100, 300):
                yield from _quoted(policy, options, hull, n, count, SCORED)
                if policy.startswith("auto"):
                    yield from _quoted(policy, options, hull, n, count // 2, SCORED_REGRESSION)


def _quoted(
    policy: str, options: dict[str, Any], hull: str, n: int, count: int, metrics: tuple[Metric, ...]
) -> Iterator[Cell]:
    told: dict[str, list[fits.Quoted]] = {metric.name: [] for metric in metrics}
    classes = 2 if metrics == SCORED else 0
    for number in range(count):
        seed = int(stream("policies", hull, n, number).integers(2**31))
        problem = fits.drawn(seed, rows=n, hull=hull, classes=classes)
        model = ("linear", "mlp")[number % 2]
        for name, each in fits.quoted(
            problem, metrics, model=model, budget=400, seed=number, **options
        ).items():
            told[name].append(each)
    for name, found in told.items():
        yield _fitted_cell("policy", f"{policy}, {name}, {hull} the hull", n, found)


def _fitted_cell(part: str, what: str, n: int, found: list[fits.Quoted]) -> Cell:
    given = [each for each in found if each.how != "words"]
    silent = len(found) - len(given)
    more = f"no honest score in {silent} of {len(found)}, said in words" if silent else ""
    if len(given) < 2:
        return Cell(part, what, n, 0, 0, "figure", more)
    bias, error = fits.summary(given)
    hits = sum(each.covered for each in given)
    return Cell(part, what, n, hits, len(given), "coverage", more, round(bias, 4), round(error, 4))


def nested(repetitions: int) -> Iterator[Cell]:
    """Nested folds: quoted score and interval of linear models that also train on the target's rows."""
    count = max(2, repetitions // 2)
    for policy, hull in (("auto", "inside"), ("auto", "outside"), ("fine-tune", "outside")):
        for metric in SCORED:
            found = []
            for number in range(count):
                seed = int(stream("nested", hull, number).integers(2**31))
                problem = fits.drawn(seed, rows=100, hull=hull)
                options = {"policy": policy, "model": "linear", "budget": 600, "nested": True}
                found.append(fits.quoted(problem, (metric,), seed=number, **options)[metric.name])
            yield _fitted_cell("nested", f"{policy}, {metric.name}, {hull} the hull", 100, found)


def portfolios(repetitions: int) -> Iterator[Cell]:
    """Portfolios of model auto, in their quick effort: the cross-fitted score and its interval."""
    count = max(2, repetitions // 9)
    for classes, metric, n in ((2, AUROC, 100), (2, LOG_LOSS, 300), (0, MAE, 100)):
        found = []
        for number in range(count):
            seed = int(stream("portfolio", classes, n, number).integers(2**31))
            problem = fits.drawn(seed, rows=n, hull="outside", classes=classes)
            found.append(fits.portfolio_quoted(problem, metric, seed=number))
        yield _fitted_cell("portfolio", f"auto, {metric.name}, outside the hull", n, found)


NESTED = {
    "nested, auto": {"policy": "auto", "nested": True},
    "nested, fine-tune": {"policy": "fine-tune", "nested": True},
}
TWINS = {"twins of auto": {"policy": "auto", "holdout": 0.0}}


def compared(repetitions: int, *, ways: Mapping[str, dict[str, Any]], wanted: str | None) -> Iterator[Cell]:
    """Differences from uniform as models that stand for the returned one show them: nested fits, or twins.

    Linear models; twins are auto's own, where it trains on the target's rows (the ``wanted`` phase).
    """
    count = max(2, repetitions // 2)
    for what, options in ways.items():
        for metric in (AUROC, LOG_LOSS, RMSE, MAE):
            for n in (50, 100):
                found = []
                for number in range(count):
                    seed = int(stream("compared", metric.task, n, number).integers(2**31))
                    classes = 2 if metric.task == "classification" else 0
                    problem = fits.drawn(seed, rows=n, hull="outside", classes=classes)
                    told = fits.difference(problem, metric, seed=number, wanted=wanted, **options)
                    found += [told] if told is not None else []
                hits = sum(each.covered for each in found)
                wrong = sum(each.wrong for each in found)
                more = f"claims of the wrong sign: {wrong / len(found):.1%}" if found else ""
                cell = f"{what}, {metric.name}, outside the hull"
                yield Cell("compared", cell, n, hits, len(found), "coverage", more)


def far(repetitions: int) -> Iterator[Cell]:
    """The same of a target whose 20 slopes are its own: its rows teach much, and a part of them less."""
    for what, wanted, options, sizes, share in (
        ("twins of auto", "target", TWINS["twins of auto"], (50, 100, 149), 4),
        ("nested, auto", None, NESTED["nested, auto"], (50, 100), 8),
    ):
        for metric in (AUROC, LOG_LOSS, RMSE, MAE):
            for n in sizes:
                yield from _far(what, metric, n, max(2, repetitions // share), wanted=wanted, **options)


def _far(
    what: str, metric: Metric, n: int, count: int, *, wanted: str | None, **options: Any
) -> Iterator[Cell]:
    found = []
    for number in range(count):
        seed = int(stream("far", metric.task, n, number).integers(2**31))
        problem = fits.of_its_own(seed, rows=n, classes=2 if metric.task == "classification" else 0)
        told = fits.difference(problem, metric, seed=number, wanted=wanted, **options)
        found += [told] if told is not None else []
    if not found:
        return
    off = np.mean([each.off for each in found])
    more = f"quoted score {off:+.2f} of its interval's half width better than the truth"
    scored, hits = sum(each.scored for each in found), sum(each.covered for each in found)
    yield Cell("score", f"{what}, {metric.name}", n, scored, len(found), more=more)
    yield Cell("difference", f"{what}, {metric.name}", n, hits, len(found))


def worth(repetitions: int) -> Iterator[Cell]:
    """How often a source among equals is said to be worth keeping or dropping."""
    for policy in ("uniform+decay", "auto"):
        for n in (100, 1_000, 4_000):
            wrong = 0
            for number in range(count := max(2, repetitions // 2)):
                rng = stream("worth", policy, n, number)
                problem = fits.of_equals(rng, rows=n)
                wrong += fits.advises(problem, policy=policy, seed=number)
            yield Cell("claim", f"“keep it” or “drop it”, {policy}", n, wrong, count, "false alarms")


def times(repetitions: int) -> Iterator[Cell]:
    """What the verdict adds to a study's time, without references and nested folds; never judged."""
    yield from map(_cost, fits.costs(9 if repetitions >= FULL else 3))


def commands(repetitions: int) -> Iterator[Cell]:
    """The same of ``mixtree fit``, everything that it does around a study included."""
    yield from map(_cost, fits.command_costs(5 if repetitions >= FULL else 3))


def tables(repetitions: int) -> Iterator[Cell]:
    """The same of real tables, by the defaults."""
    yield from map(_cost, fits.real_costs(9 if repetitions >= FULL else 3))


def _cost(cost: fits.Cost) -> Cell:
    more = f"{cost.verdict / cost.study:.1%} ({1e3 * cost.verdict:.0f} ms beside {1e3 * cost.study:.0f} ms)"
    return Cell("time", cost.what, cost.rows, 0, cost.repetitions, "figure", more)


PARTS: dict[str, Callable[[int], Iterator[Cell]]] = {
    "binary": partial(scores, classes=2, metrics=(AUROC, ACCURACY, LOG_LOSS)),
    "multiclass": partial(scores, classes=4, metrics=(HAND_TILL,)),
    "regression": partial(scores, classes=0, metrics=(MAE, RMSE)),
    "hard": hard,
    "hits": hits,
    "tails": tails,
    "user": user,
    "mixtures": mixtures,
    "hulls": hulls,
    "small": small,
    "thinned": thinned,
    "crowded": crowded,
    "rare": rare,
    "repeated": repeated,
    "equals": equals,
    "singles": singles,
    "bias": bias,
    "optimism": optimisms,
    "policies": policies,
    "nested": nested,
    "portfolios": portfolios,
    "compared": partial(compared, ways=NESTED, wanted=None),
    "twins": partial(compared, ways=TWINS, wanted="target"),
    "far": far,
    "worth": worth,
    "time": times,
    "commands": commands,
    "tables": tables,
}
FITS = (
    "tails",
    "far",
    "worth",
    "policies",
    "nested",
    "portfolios",
    "compared",
    "twins",
    "time",
    "commands",
    "tables",
)
"""Parts with tables of their own."""


# ----------------------------------------------------------------------------------------------- the document


def document(cells: list[dict[str, Any]]) -> str:
    """All tables, and what is missing in them."""
    simulated = [cell for cell in cells if cell["simulation"] not in FITS]
    judged = [cell for cell in simulated if cell["holds"] is not None]
    failed = [cell for cell in judged if not cell["holds"]]
    least = min((cell["repetitions"] for cell in judged), default=0)
    parts = [
        f"{len(judged) - len(failed)} of {len(judged)} cells hold, each simulated at least {least:,} times. "
        "Coverage of 95 % intervals, or the rate of false alarms of a test at 5 %; **bold** where it is "
        "significantly (99 %) on the wrong side.",
        table(simulated, ROWS),
    ]
    for name in FITS:
        mine = [cell for cell in cells if cell["simulation"] == name]
        if mine and name == "tables":
            parts += [_about(name, mine), by_place(mine)]
        elif mine:
            parts += [_about(name, mine), table(mine, sorted({cell["rows"] for cell in mine}))]
    missing = [name for name in PARTS if not any(cell["simulation"] == name for cell in cells)]
    if missing:
        parts.append(f"**Not in these tables, since not run: {', '.join(missing)}.**")
    return "\n\n".join(parts)


def _about(name: str, cells: list[dict[str, Any]]) -> str:
    if name == "time":
        return (
            "What the verdict adds to the time of a study without references and nested folds (unless told "
            "3 sources of 2,000 rows, 10 features, 2 classes, auto, the default budget: 1,200 steps, 600, "
            "4,000 and 16,000 with 1, 10 and 40 sources, 12,000 with 20,000 rows a source; one thread; "
            f"medians of {cells[0]['repetitions']}, settings in turns):"
        )
    if name == "commands":
        return (
            "The same of `mixtree fit` from two CSV files to the model folder, beside all of the command's "
            f"time (medians of {cells[0]['repetitions']}):"
        )
    if name == "tables":
        return (
            "The same of default studies of real tables (`flights` comes with the extra `demo`, for the "
            "others see docs/reproduction.md):"
        )
    counts = [cell["repetitions"] for cell in cells if cell["repetitions"]]
    if name == "tails":
        return (
            f"Where a few rows decide, {min(counts):,} times a figure: **what no interval knows**, a mean of "
            "squares that hangs on rows which most samples do not have. Coverage of 95 % intervals:"
        )
    if name == "far":
        return (
            f"A target with 20 slopes of its own, {min(counts):,} to {max(counts):,} real fits a figure, "
            "those with twins trained on its rows: how often 95 % intervals of twins or nested folds hold "
            "the returned model's score, and its difference from uniform, on 10,000 test rows:"
        )
    if name == "worth":
        return (
            f"Advice about sources that are all alike, {min(counts):,} real fits a figure: how often "
            "leave-one-out says of any of the three that it is to be kept or dropped:"
        )
    if name in ("compared", "twins"):
        by = "nested folds" if name == "compared" else "auto's twins"
        return (
            f"Differences from uniform of real fits, {min(counts):,} to {max(counts):,} per figure, by {by}: "
            "how often the 95 % interval holds the returned model's own on 10,000 test rows:"
        )
    over = dict[str, list[float]]()
    for cell in cells:
        if "bias" in cell:
            over.setdefault(str(cell["what"]).rsplit(", ", 2)[0], []).append(cell["bias"])
    means = ", ".join(f"{policy} {np.mean(found):+.2f}" for policy, found in over.items())
    named = {"policies": "Real fits", "portfolios": "Portfolios of real fits, effort quick"}
    what = named.get(name, "Nested folds of real fits")
    return (
        f"{what}, {min(counts):,} to {max(counts):,} per figure: bias of the quoted score against 10,000 "
        "test rows in its standard errors, positive where it looks better than it is, and how often its 95 % "
        "interval holds the returned model's score; **bold** where a bias is significantly (99 %) beyond "
        f"0.2, or the coverage below 95 %. Mean bias: {means}."
    )


def table(cells: list[dict[str, Any]], columns: Sequence[int]) -> str:
    """The cells as a table, one line per figure, its numbers of rows beside each other."""
    lines: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for cell in cells:
        lines.setdefault((cell["part"], cell["what"].split(" (")[0]), {})[cell["rows"]] = cell
    out = [
        "| part | what | " + " | ".join(f"n = {n}" for n in columns) + " |",
        "| --- | --- |" + " --- |" * len(columns),
    ]
    for (part, what), found in lines.items():
        out.append(f"| {part} | {what} | " + " | ".join(entry(found.get(n)) for n in columns) + " |")
    return "\n".join(out)


def by_place(cells: list[dict[str, Any]]) -> str:
    """The costs of studies of real tables, in memory and in a file beside each other."""
    places, lines = ("in memory", "in a file"), dict[str, dict[str, str]]()
    for cell in cells:
        what, place = str(cell["what"]).rsplit(", ", 1)
        lines.setdefault(f"{what}, {cell['rows']} validation rows", {})[place] = entry(cell)
    head = [f"| table | {' | '.join(places)} |", "| --- |" + " --- |" * len(places)]
    return "\n".join(
        head + [f"| {what} | {found[places[0]]} | {found[places[1]]} |" for what, found in lines.items()]
    )


def entry(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    if cell["part"] == "bias":
        return str(cell["more"]).removeprefix("bias ").removesuffix(" standard errors of the score") + " se"
    if cell["part"] in ("time", "optimism") or not cell["repetitions"]:
        return str(cell["more"])
    text = f"{100 * cell['rate']:.1f} %"
    text = text if cell["holds"] is not False else f"**{text}**"
    if "bias" in cell:
        size = f"{cell['bias']:+.2f} ± {cell['error']:.2f}"
        text = f"{size if cell['unbiased'] else f'**{size}**'} se, {text}"
    return text


def write_document(cells: list[dict[str, Any]], path: Path = DOCUMENT) -> None:
    """Put the table between its marks."""
    text = path.read_text(encoding="utf-8")
    start, end = "<!-- coverage: written by benchmarks/coverage.py -->", "<!-- end of coverage -->"
    before, rest = text.split(start)
    after = rest.split(end)[1]
    path.write_text(f"{before}{start}\n\n{document(cells)}\n\n{end}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Coverage of the verdict's intervals by simulation.")
    parser.add_argument("--full", action="store_true", help=f"{FULL} repetitions of every cell, not {QUICK}")
    parser.add_argument("--repetitions", type=int, help="another number of them")
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS), help="which simulations")
    parser.add_argument("--document", action="store_true", help="write it to docs/results/verdict.md")
    parser.add_argument(
        "--seed", type=int, default=SEED, help="the published figures are those of the default"
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    global _seed
    _seed = arguments.seed
    repetitions = arguments.repetitions or (FULL if arguments.full else QUICK)
    for name in arguments.part:
        started, cells = time.perf_counter(), []
        for cell in PARTS[name](repetitions):
            cells.append({"simulation": name, **cell.as_dict()})
            mark = "FAILS" if False in (cell.holds, cell.unbiased) else ""
            size = "" if cell.bias is None else f"bias {cell.bias:+.3f} ± {cell.error:.3f} "
            line = f"{cell.part:<11}{cell.what:<62}{cell.rows:>5} {cell.rate:.3f} {mark:<6}{size}{cell.more}"
            print(line, flush=True)
        print(f"-- {name}: {time.perf_counter() - started:.0f} s", flush=True)
        merge(arguments.results, name, cells)
    if arguments.document:
        write_document(json.loads(arguments.results.read_text(encoding="utf-8")))


def merge(path: Path, name: str, cells: list[dict[str, Any]]) -> None:
    """Put one simulation's cells into the file; read just before: several may run side by side."""
    path.parent.mkdir(parents=True, exist_ok=True)
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rest = [cell for cell in old if cell["simulation"] != name]
    merged = sorted(rest + cells, key=lambda cell: list(PARTS).index(cell["simulation"]))
    path.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
