from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from mixtree.data.leakage import Keys, Overlap, find_leakage, independent, tells_label
from mixtree.data.sources import Rows, Sources


def keys(features: list[int], labels: list[int]) -> Keys:
    return Keys.of(pl.Series(features, dtype=pl.UInt64), np.array(labels))


def test_rows_on_both_sides_are_counted_with_and_without_their_label() -> None:
    sources = {"a": keys([1, 1, 2, 3], [0, 0, 1, 1]), "b": keys([9], [0])}
    parts = {"validation": keys([1, 2, 5, 5], [0, 0, 1, 1]), "test": keys([5, 9], [0, 0])}
    found = find_leakage(sources, parts)
    assert [(o.part, o.source, o.rows, o.same, o.total, o.source_rows) for o in found] == [
        ("validation", "source 'a'", 2, 1, 4, 3),
        ("test", "source 'b'", 1, 1, 2, 1),
        ("test", "the validation rows", 1, 0, 2, 2),
    ]
    assert str(found[0]) == (
        "2 of 4 validation rows also stand in source 'a' (the same features, 1 with another label):"
        " scores on them may be too good"
    )


def test_tables_that_share_nothing_leak_nothing() -> None:
    assert find_leakage({"a": keys([1], [0])}, {"validation": keys([2], [0])}) == ()


def test_keys_can_be_taken_by_position() -> None:
    taken = keys([1, 2, 3], [0, 1, 0]).take(np.array([2, 0]))
    assert taken.features.to_list() == [3, 1]
    assert taken.whole.to_list() == keys([3, 1], [0, 0]).whole.to_list()


NEARLY = "in nearly every training row"


def two_classes(rows: int, share: float) -> np.ndarray:
    return (np.arange(rows) < rows * share).astype(np.int64)  # sorted by class, as files may be


@pytest.mark.parametrize("share", [0.5, 0.002, 0.998])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_number_whose_threshold_parts_two_classes_tells_the_label(share: float, sign: float) -> None:
    y = two_classes(30_000, share)
    noise = np.random.default_rng(0).normal(size=len(y))
    assert tells_label(pl.Series(sign * y + 0.01 * noise), y, classes=2) == NEARLY
    assert tells_label(pl.Series(sign * y + 0.5 * noise), y, classes=2) is None  # AUROC 0.92


def test_a_few_values_of_text_tell_the_label_but_for_some_rows() -> None:
    y = two_classes(30_000, 0.3)
    random = np.random.default_rng(0)
    words = np.where(y == 1, random.choice(["white", "black"], len(y)), "not a fatality")
    wrong = words.copy()
    wrong[::1000] = "not a fatality"
    often = words.copy()
    often[::20] = "not a fatality"
    assert tells_label(pl.Series(words), y, classes=2) == "in every training row"
    assert tells_label(pl.Series(wrong), y, classes=2) == NEARLY
    assert tells_label(pl.Series(often), y, classes=2) is None
    each = pl.Series([f"row {number // 10}" for number in range(len(y))])  # its values are many
    assert tells_label(each, y, classes=2) is None


def test_what_is_known_of_a_column_must_be_enough() -> None:
    y = two_classes(200, 0.5)
    noise = 0.01 * np.random.default_rng(0).normal(size=len(y))
    few = np.where(np.arange(len(y)) % 4 == 0, y + noise, np.nan)  # 25 rows of either class
    more = np.where(np.arange(len(y)) % 3 == 0, y + noise, np.nan)
    assert tells_label(pl.Series(few), y, classes=2) is None
    assert tells_label(pl.Series(more), y, classes=2) == NEARLY
    assert tells_label(pl.Series(np.full(len(y), np.nan)), y, classes=2) is None


def test_in_a_regression_the_order_of_a_column_tells_the_label() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=30_000)
    noise = rng.normal(size=len(y))
    assert tells_label(pl.Series(3.0 - 2.0 * y), y, classes=0) == "in every training row"
    assert tells_label(pl.Series(np.exp(-y)), y, classes=0) == NEARLY
    assert tells_label(pl.Series(y + 0.01 * noise), y, classes=0) == NEARLY
    assert tells_label(pl.Series(y + 0.1 * noise), y, classes=0) is None
    assert tells_label(pl.Series(np.ones(len(y))), y, classes=0) is None


def test_a_copy_is_found_in_a_table_sorted_by_label() -> None:
    y = two_classes(30_000, 0.5)
    assert tells_label(pl.Series(np.where(y, "sold", "kept")), y, classes=2) == "in every training row"
    y[-1] = 1
    assert tells_label(pl.Series(np.where(two_classes(30_000, 0.5), "sold", "kept")), y, classes=2) == NEARLY


@pytest.mark.parametrize(("rows", "same", "matters"), [(1, 0, False), (1, 1, True), (200, 0, True)])
def test_a_row_with_another_label_is_no_leak(rows: int, same: int, matters: bool) -> None:
    assert Overlap("test", "source 'a'", rows, same, 10_000, rows).matters is matters


def test_judging_rows_of_arrays_are_looked_for_in_the_sources() -> None:
    rng = np.random.default_rng(0)
    a, b, own = (Rows(rng.normal(size=(40, 3)), rng.normal(size=40)) for _ in range(3))
    test = Rows(np.concatenate([b.x[:5], rng.normal(size=(5, 3))]).astype(np.float64), np.arange(10.0))
    given = Sources(("a", "b"), (a, b), Rows(np.concatenate([own.x, a.x[:4]]), np.append(own.y, a.y[:4])), 0)
    kept, same, told = independent(given, test)
    assert (kept, same) == (given, test)
    worth = ": scores on them may be too good"
    assert told == (
        f"4 of 44 validation rows also stand in source 'a' (the same features){worth}",
        f"5 of 10 test rows also stand in source 'b' (the same features, 5 with another label){worth}",
    )
    assert independent(replace(given, validation=own), None)[2] == ()
