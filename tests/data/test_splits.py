from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree.data.splits import split_rows
from mixtree.errors import DataError, InputError, MixtreeError

LABELS = np.repeat([0, 1, 2], [60, 30, 10])


@given(
    st.lists(st.integers(0, 3), min_size=2, max_size=60),
    st.floats(0.01, 0.99),
    st.integers(0, 2**32),
)
def test_every_row_is_on_one_side_and_every_class_has_its_share(
    labels: list[int], fraction: float, seed: int
) -> None:
    y = np.array(labels)
    first, rest = split_rows(y, fraction, seed=seed)
    assert sorted([*first, *rest]) == list(range(len(y)))
    assert len(first) == min(max(round(fraction * len(y)), 1), len(y) - 1)
    share = len(first) / len(y)
    for label in set(labels):
        assert abs(np.sum(y[first] == label) - share * np.sum(y == label)) <= 1 + 1e-9


def test_the_seed_and_nothing_else_decides() -> None:
    again = [split_rows(LABELS, 0.3, seed=1)[0].tolist() for _ in range(2)]
    assert again[0] == again[1]
    assert again[0] != split_rows(LABELS, 0.3, seed=2)[0].tolist()


def test_targets_of_a_regression_are_spread_over_both_sides() -> None:
    y = np.random.default_rng(0).normal(size=1000)
    first, rest = split_rows(y, 0.2, seed=0)
    assert len(first) == 200
    assert np.quantile(y[first], [0.1, 0.5, 0.9]) == pytest.approx(
        np.quantile(y[rest], [0.1, 0.5, 0.9]), abs=0.15
    )
    assert set(first) != set(split_rows(y, 0.2, seed=1)[0])


def test_groups_stay_together() -> None:
    groups = pl.Series("who", [f"g{n % 20}" for n in range(100)])
    first, rest = split_rows(LABELS, 0.3, seed=0, groups=groups)
    assert not set(groups.gather(first)) & set(groups.gather(rest))
    assert 20 <= len(first) <= 40
    shuffled = np.random.default_rng(0).permutation(100)
    again, _ = split_rows(LABELS, 0.3, seed=0, groups=groups.gather(shuffled))
    assert set(groups.gather(shuffled[again])) == set(groups.gather(first))


@pytest.mark.parametrize("big", [1, 99])
def test_each_side_gets_a_group_however_unequal(big: int) -> None:
    groups = pl.Series("who", ["a"] * big + ["b"] * (100 - big))
    first, rest = split_rows(LABELS, 0.5, seed=3, groups=groups)
    assert len(first) and len(rest)


DAYS = [date(2024, 1, 1) + timedelta(days=n // 2) for n in range(100)][::-1]


@pytest.mark.parametrize(
    "times",
    [
        pl.Series("day", DAYS),
        pl.Series("day", [f"{day:%d/%m/%Y}" for day in DAYS]),
        pl.Series("day", [day.toordinal() for day in DAYS]),
    ],
    ids=["dates", "text", "numbers"],
)
def test_validation_rows_come_before_test_rows_and_moments_stay_together(times: pl.Series) -> None:
    first, rest = split_rows(LABELS, 0.31, seed=0, times=times)
    assert max(DAYS[n] for n in first) < min(DAYS[n] for n in rest)
    assert len(first) in (30, 32)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"fraction": 0.0}, "between 0 and 1"),
    ({"fraction": 1.0}, "between 0 and 1"),
    ({"labels": LABELS[:1]}, "cannot be split"),
    ({"seed": -1}, "seed"),
    ({"groups": pl.Series("g", ["a"] * 100)}, "'g' has one group only"),
    ({"groups": pl.Series("g", ["a"] * 99 + [None])}, "'g' is missing in 1 rows"),
    ({"times": pl.Series("t", [1] * 100)}, "'t' has one value only"),
    ({"times": pl.Series("t", [1] * 99 + [None])}, "'t' is missing in 1 rows"),
    ({"times": pl.Series("t", ["soon"] * 100)}, "'t' holds neither dates nor numbers"),
    ({"times": pl.Series("t", [True] * 100)}, "'t' holds neither"),
    ({"times": pl.Series("t", DAYS), "groups": pl.Series("g", DAYS)}, "not both"),
]


@pytest.mark.parametrize(("changes", "words"), BAD, ids=[case[1] for case in BAD])
def test_what_cannot_be_split_is_refused(changes: dict[str, Any], words: str) -> None:
    chosen = {"labels": LABELS, "fraction": 0.3, "seed": 0, **changes}
    with pytest.raises(MixtreeError, match=words) as caught:
        split_rows(chosen.pop("labels"), chosen.pop("fraction"), where="file", **chosen)
    assert isinstance(caught.value, InputError | DataError)
