"""What auto costs where there is nothing to find: all sources are of the target's own law, or nearly.

    python benchmarks/equal.py            # 200 problems a line, about seven minutes

Its test loss beside that of uniform with a decayed end, at the same budget, for several rules of when to
train on the target's rows: the standard errors by which that must help where the hull test finds the target
unlike every mixture of the sources, and where it does not.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from mixtree.data.sources import Rows, Sources
from mixtree.engine.study import run
from mixtree.errors import TrainingError
from mixtree.metrics import as_metric
from mixtree.policies.registry import make_search, training_sources
from mixtree.policies.setting import AutoOptions, Setting
from mixtree.trainers.registry import ModelOptions, make_trainer

RULES = {"0.5 everywhere": (0.5, 0.5), "0.5, else 1.5": (0.5, 1.5), "1.5 everywhere": (1.5, 1.5)}
SHIFTS = {"the same": 0.0, "a little different": 0.1, "different": 0.3}
ROWS, VALIDATION, TEST, BUDGET = 1_000, 100, 10_000, 600


def draw(rng: np.random.Generator, rows: int, slope: np.ndarray, shift: float, *, classes: int) -> Rows:
    x = rng.standard_normal((rows, len(slope)))
    score = x @ slope + shift
    if classes:
        return Rows(x, (2.0 * score + rng.logistic(size=rows) > 0.0).astype(np.int64))
    y = np.exp(0.5 * score + 0.25 * rng.standard_normal(rows))  # skewed, as prices are
    return Rows(x, (y - 1.1) / 0.6)


def problem(seed: int, shift: float, *, classes: int) -> tuple[Sources, Rows]:
    """Three sources of one law, a target whose slope and level are this far from it, and test rows of it."""
    rng = np.random.default_rng([seed, classes])
    slope, turn = rng.standard_normal((2, 8)) / np.sqrt(8)
    parts = tuple(draw(rng, ROWS, slope, 0.0, classes=classes) for _ in range(3))
    validation, test = (
        draw(rng, rows, slope + shift * turn, shift, classes=classes) for rows in (VALIDATION, TEST)
    )
    return Sources(("a", "b", "c"), parts, validation, classes), test


def losses(sources: Sources, test: Rows, model: str, seed: int) -> dict[str, float]:
    """Test losses of uniform and of auto by every rule; without end where the training exploded."""
    metric = as_metric("loss", classes=sources.classes)
    found = {}
    ways = {"uniform+decay": ("uniform+decay", (0.5, 0.5))} | {name: ("auto", r) for name, r in RULES.items()}
    for name, (policy, errors) in ways.items():
        setting = Setting(
            sources.names,
            sources.sizes,
            BUDGET,
            20,
            data=sources,
            metric=metric,
            auto=AutoOptions(target_errors=errors),
        )
        trainer = make_trainer(model, training_sources(policy, setting), ModelOptions())
        try:
            result = run(make_search(policy, setting), trainer, seed=seed)
        except TrainingError:
            found[name] = np.inf  # exploded
            continue
        found[name] = float(metric(test.y, trainer.predict(result.state, test.x)))  # type: ignore[attr-defined]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    count = parser.parse_args().problems
    print(f"test loss of auto beside uniform+decay, mean and worst of {count} problems")
    print(f"{'':48}" + "".join(f"{name:>24}" for name in RULES))
    for classes in (2, 0):
        for model in ("linear", "mlp"):
            for where, shift in SHIFTS.items():
                ratios = []
                for seed in range(count):
                    found = losses(*problem(seed, shift, classes=classes), model, seed)
                    if found["uniform+decay"] == np.inf:
                        continue  # nothing to compare with
                    ratios.append([100 * (found[name] / found["uniform+decay"] - 1) for name in RULES])
                task = "two classes" if classes else "regression"
                line = "".join(
                    f"{mean:>+13.2f} % ({worst:>+.0f} %)"
                    for mean, worst in zip(np.mean(ratios, axis=0), np.max(ratios, axis=0), strict=True)
                )
                lost = f"  (uniform exploded in {count - len(ratios)})" if len(ratios) < count else ""
                print(f"{f'{task}, {model}, target {where}':48}{line}{lost}", flush=True)


if __name__ == "__main__":
    main()
