from __future__ import annotations

import numpy as np
import polars as pl

from mixtree.data.leakage import Keys, find_leakage


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
