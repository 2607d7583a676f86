from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import polars as pl
import pytest

from mixtree.data.labels import Labels, alike, as_column
from mixtree.errors import DataError, InputError


def column(values: list[Any], **how: Any) -> pl.Series:
    return pl.Series("y", values, **how)


GUESSES: list[tuple[list[Any], tuple[Any, ...] | None]] = [
    (["no", "yes", None, "no"], ("no", "yes")),
    ([True, False], (False, True)),
    ([3, 1, 2, 1], (1, 2, 3)),
    ([1.0, 0.0, float("nan")], (0, 1)),
    ([0.5, 1.0], None),
    (list(range(51)), None),
    (list(range(50)), tuple(range(50))),
    ([float("inf"), 1.0, 0.0], (0, 1)),
    ([1, 2**60 + 1], (1, 2**60 + 1)),
]


@pytest.mark.parametrize(("values", "classes"), GUESSES, ids=[str(case[0])[:30] for case in GUESSES])
def test_the_task_is_seen_from_the_labels(values: list[Any], classes: tuple[Any, ...] | None) -> None:
    labels = Labels.learn("y", alike("y", {"here": column(values)})["here"])
    assert labels.classes == classes
    assert labels.task == ("regression" if classes is None else "classification")
    if classes is not None:
        assert [type(label) for label in labels.classes or ()] == [type(label) for label in classes]


def test_labels_become_class_numbers_or_targets() -> None:
    codes = Labels("y", "classification", ("no", "yes")).encode(column(["yes", "no"]), where="here")
    assert codes.tolist() == [1, 0]
    assert codes.dtype == np.int64
    targets = Labels("y", "regression").encode(column([1, 2]), where="here")
    assert targets.tolist() == [1.0, 2.0]
    assert targets.dtype == np.float64
    floats = Labels("y", "classification", (0.1, 1e20)).encode(column([1e20, 0.1]), where="here")
    assert floats.tolist() == [1, 0]


def test_classes_keep_the_order_asked_for() -> None:
    assert Labels.learn("y", column(["b", "a"]), classes=["b", "a"]).classes == ("b", "a")
    assert Labels.learn("y", column([1, 0]), classes=["1", "0"]).classes == (1, 0)
    assert Labels.learn("y", column([1, 0]), classes=[1.0, 0]).classes == (1, 0)
    assert Labels.learn("y", column([True, False]), classes=[True, False]).classes == (True, False)


def test_the_task_can_be_told() -> None:
    assert Labels.learn("y", column([0, 1]), task="regression").classes is None
    assert Labels.learn("y", column([0.5, 1.5]), task="classification").classes == (0.5, 1.5)


def test_labels_of_several_files_become_alike() -> None:
    mixed = alike("y", {"a": column([1, None]), "b": column([2.0, float("inf")]), "c": column([True, False])})
    assert [part.to_list() for part in mixed.values()] == [[1, None], [2, None], [1, 0]]
    fractions = alike("y", {"a": column([1]), "b": column([0.5])})
    assert [part.dtype for part in fractions.values()] == [pl.Float64, pl.Float64]
    text = alike("y", {"a": column([1.0]), "b": column([" x", ""])})
    assert [part.to_list() for part in text.values()] == [["1"], ["x", None]]


def test_absent_classes_are_named() -> None:
    labels = Labels("y", "classification", ("a", "b", "c"))
    assert labels.absent(np.array([0, 2])) == ("b",)
    assert Labels("y", "regression").absent(np.array([0.5])) == ()


BAD: list[tuple[list[Any], dict[str, Any], str]] = [
    ([None, None], {}, "every training row lacks it"),
    (["x", "x"], {}, "every training row has 'x'"),
    (["x", "y"], {"task": "regression"}, "needs numbers; found 'x'"),
    ([f"id{n}" for n in range(1001)], {}, "1,001 different values"),
    (["x", "y"], {"classes": ["x"]}, "asked for are 'x', but training rows have 'x', 'y'"),
    (["x", "y"], {"classes": ["x", "y", "z"]}, "asked for are 'x', 'y', 'z'"),
    (["x", "y"], {"classes": ["x", "x"]}, "must differ"),
    (["x", "y"], {"task": "ranking"}, "unknown task 'ranking'"),
]


@pytest.mark.parametrize(("values", "how", "words"), BAD, ids=[case[2] for case in BAD])
def test_labels_that_teach_nothing_are_refused(values: list[Any], how: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Labels.learn("y", column(values, dtype=pl.String if values[0] is None else None), **how)


def test_labels_of_no_usable_type_are_refused() -> None:
    for values in ([date(2024, 1, 1)], [[1, 2]]):
        with pytest.raises(DataError, match="here: label column 'y' holds"):
            alike("y", {"here": column(values)})


def test_an_unseen_label_is_named() -> None:
    labels = Labels("y", "classification", ("a", "b"))
    with pytest.raises(DataError, match="file v: label 'NA', 'c' in column 'y' is in no training row"):
        labels.encode(column(["a", "c", "NA"]), where="file v")


@pytest.mark.parametrize("kind", [pl.UInt64, pl.Int128])
def test_whole_numbers_near_2_to_the_64_stay_apart(kind: Any) -> None:
    high = [2**64 - 1, 2**64 - 2, None]
    columns = alike("y", {"a": pl.Series(high, dtype=kind), "b": pl.Series([3])})
    assert {where: column.to_list() for where, column in columns.items()} == {"a": high, "b": [3]}
    known = Labels.learn("y", pl.concat(columns.values()))
    assert known.classes == (3, 2**64 - 2, 2**64 - 1)
    assert known.encode(columns["a"].drop_nulls(), where="here").tolist() == [2, 1]
    assert as_column([3, 2**64 - 1]).to_list() == [3, 2**64 - 1]
    with pytest.raises(DataError, match="whole numbers beyond 2⁶³, and others that are negative"):
        alike("y", {"a": columns["a"], "b": pl.Series([-1])})


def test_labels_that_are_too_large_are_not_called_missing() -> None:
    with pytest.raises(DataError, match=r"train.csv: label column 'y': 2 of 3 labels are beyond.*1e\+306"):
        alike("y", {"train.csv": pl.Series([1e306, -1e306, 1.5])})
