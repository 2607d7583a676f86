"""Writes the tables of the example: customers of three states, and a new market unlike any of them.

python make_tables.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

STATES = {"fl": (38, [0.6, 0.2, 0.2]), "ct": (43, [0.2, 0.6, 0.2]), "oh": (48, [0.2, 0.2, 0.6])}
"""Mean age, and how often red, green and blue are liked."""
SLOPES = {"fl": 1.5, "ct": 0.5, "oh": -0.5}
"""How much a liking for red says about buying."""


def customers(rng: np.random.Generator, state: str, rows: int) -> pl.DataFrame:
    """Customers of one state."""
    mean, likings = STATES[state]
    age = rng.normal(mean, 12, rows).round()
    colour = rng.choice(["red", "green", "blue"], rows, p=likings)
    day = np.datetime64("2024-01-01") + rng.integers(0, 365, rows)
    chance = 1 / (1 + np.exp(-(-2.5 + 0.05 * age + SLOPES[state] * (colour == "red"))))
    return pl.DataFrame(
        {
            "age": pl.Series(np.where(rng.random(rows) < 0.05, np.nan, age)).fill_nan(None),
            "income": rng.lognormal(10, 0.5, rows).round(2),
            "colour": colour,
            "signup": day.astype(str),
            "bought": np.where(rng.random(rows) < chance, "yes", "no"),
        }
    )


def main(folder: Path) -> None:
    """customers.csv (to train on), market.csv (to validate), test.csv, and new.csv (to predict)."""
    rng = np.random.default_rng(0)
    states = [customers(rng, state, 400).with_columns(pl.lit(state).alias("state")) for state in STATES]
    pl.concat(states).write_csv(folder / "customers.csv")
    market = pl.concat([customers(rng, "fl", 450), customers(rng, "ct", 150)])
    market = market[rng.permutation(len(market))]
    market[:150].write_csv(folder / "market.csv")
    market[150:400].write_csv(folder / "test.csv")
    market[400:].drop("bought").write_csv(folder / "new.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
