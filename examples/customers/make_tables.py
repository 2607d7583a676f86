"""Writes the tables of the example: customers of three states, and a new market that mixes two of them.

python make_tables.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import polars as pl

LIKINGS = {"fl": [0.5, 0.3, 0.2], "ct": [0.2, 0.6, 0.2], "oh": [0.3, 0.2, 0.5]}
"""How often red, green and blue are liked."""
AGE = {"fl": 2.0, "ct": 0.0, "oh": -2.5}
"""How buying changes with age: it grows in Florida and falls in Ohio."""
GREEN = {"fl": 0.0, "ct": 2.5, "oh": -1.0}
"""How much a liking for green says about buying."""
MARKET = {"fl": 0.75, "ct": 0.25}
"""Where the customers of the new market are like those of a state."""


def customers(rng: np.random.Generator, state: str, rows: int) -> pl.DataFrame:
    """Customers of one state."""
    age = rng.normal(43, 12, rows).round()
    colour = rng.choice(["red", "green", "blue"], rows, p=LIKINGS[state])
    day = np.datetime64("2024-01-01") + rng.integers(0, 365, rows)
    score = AGE[state] * (age - 43) / 12 + GREEN[state] * ((colour == "green") - 0.5)
    return pl.DataFrame(
        {
            "age": pl.Series(np.where(rng.random(rows) < 0.05, np.nan, age)).fill_nan(None),
            "income": rng.lognormal(10, 0.5, rows).round(2),
            "colour": colour,
            "signup": day.astype(str),
            "bought": np.where(rng.random(rows) < 1 / (1 + np.exp(-score)), "yes", "no"),
        }
    )


def main(folder: Path, seed: int = 0) -> None:
    """customers.csv (to train on), market.csv (to validate), test.csv, and new.csv (to predict)."""
    rng = np.random.default_rng(seed)
    states = [customers(rng, state, 800).with_columns(pl.lit(state).alias("state")) for state in AGE]
    pl.concat(states).write_csv(folder / "customers.csv")
    market = pl.concat([customers(rng, state, int(1000 * share)) for state, share in MARKET.items()])
    market = market[rng.permutation(len(market))]
    market[:200].write_csv(folder / "market.csv")
    market[200:800].write_csv(folder / "test.csv")
    market[800:].drop("bought").write_csv(folder / "new.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
