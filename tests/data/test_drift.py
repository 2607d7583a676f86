from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from mixtree.data.drift import unlike
from mixtree.data.preprocessing import Preprocessor


def table(rows: int = 400, seed: int = 0, **changed: Any) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    days = random.integers(0, 365, rows).tolist()
    columns = {
        "number": random.normal(size=rows),
        "colour": random.choice(["red", "green"], rows).tolist(),
        "town": [f"t{min(each, 30)}" for each in random.geometric(0.2, rows)],
        "day": [date(2024, 1, 1) + timedelta(each) for each in days],
    }
    return pl.DataFrame({**columns, **changed})


@pytest.fixture(scope="module")
def preprocessor() -> Preprocessor:
    return Preprocessor.fit(table(), rare_below=10)


def test_rows_like_the_training_rows_are_no_news(preprocessor: Preprocessor) -> None:
    assert unlike(preprocessor, table(seed=1), where="new.csv") == []
    assert unlike(preprocessor, table(seed=1)[:0], where="new.csv") == []


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"colour": ["violet"] * 30 + ["red"] * 370}, "8% of the rows have a value that no training row has"),
        ({"town": ["nowhere"] * 400}, "100% of the rows have a value that few or no training rows have"),
        (
            {"number": [50.0] * 60 + [0.0] * 340},
            "15% of the rows have a value far from those of the training",
        ),
        ({"day": [date(2031, 5, 1)] * 400}, "100% of the rows have a value far from .*2031-05-01"),
        ({"number": [None] * 400}, "it has no value; a usual one is assumed"),
        ({"colour": [None] * 400}, "it has no value"),
    ],
)
def test_what_is_told(preprocessor: Preprocessor, changed: dict[str, Any], words: str) -> None:
    (told,) = unlike(preprocessor, table(seed=2, **changed), where="new.csv")
    (name,) = changed
    assert told.startswith(f"column {name!r} of new.csv: ")
    assert re.search(words, told)


def test_a_few_strange_rows_are_no_news(preprocessor: Preprocessor) -> None:
    few = table(seed=2, colour=["violet"] * 3 + ["red"] * 397, number=[50.0] * 3 + [0.0] * 397)
    assert unlike(preprocessor, few, where="new.csv") == []
