"""Arrays of which a part would be lost: refused at every door, in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mixtree import MixtureClassifier, MixtureRegressor, fit
from mixtree.data.arrays import joined, refuse_huge, refuse_lossy
from mixtree.data.copies import row_numbers
from mixtree.data.sources import Rows, Sources
from mixtree.errors import DataError

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)), np.arange(60) % 2
HIDDEN = np.ma.masked_greater(X, 1.0)
COMPLEX = "Complex data not supported.*imaginary part"
MASKED = "values of a masked array are masked.*fill them in"
SHORT: dict[str, Any] = {"model": "linear", "budget": 4, "steps": 2}


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X + 1j, Y, COMPLEX),
        (pd.DataFrame(X + 1j), Y, COMPLEX),
        ((X + 1j).tolist(), Y, COMPLEX),
        (X, X[:, 0] + 1j, COMPLEX),
        (HIDDEN, Y, MASKED),
        (X, np.ma.masked_equal(Y, 1), MASKED),
    ],
)
def test_what_would_be_lost_is_refused_by_fit_and_estimators(x: Any, y: Any, message: str) -> None:
    good = X + 9.0, Y
    with pytest.raises(DataError, match=f"source 'a'.*{message}"):
        fit({"a": (x, y), "b": (X, Y)}, good, classes=2, **SHORT)
    with pytest.raises(DataError, match=f"validation.*{message}"):
        fit({"b": (X, Y)}, (x, y), classes=2, **SHORT)
    with pytest.raises(DataError, match=message):
        Sources(("b",), (Rows(X, Y),), Rows(np.asanyarray(x), y), 2)
    estimator = MixtureClassifier("linear", budget=4, steps=2)
    if not isinstance(x, list):  # which scikit-learn refuses
        with pytest.raises(DataError, match=message):
            estimator.fit({"a": (x, y), "b": (X, Y)}, X_val=good[0], y_val=good[1])
        with pytest.raises(DataError, match=message):
            estimator.fit(X, Y, X_val=x, y_val=y)


@pytest.mark.parametrize(("rows", "message"), [(X + 1j, COMPLEX), (HIDDEN, MASKED)])
def test_so_are_rows_to_predict(rows: Any, message: str) -> None:
    result = fit({"a": (X, Y)}, (X + 9.0, Y), **SHORT)
    with pytest.raises(DataError, match=message):
        result.predict(rows)
    fitted = MixtureClassifier("linear", budget=4, steps=2).fit(X, Y)
    with pytest.raises(DataError, match=message):
        fitted.predict(rows)


def test_a_masked_array_that_hides_nothing_is_as_good_as_any() -> None:
    refuse_lossy(np.ma.masked_greater(X, 1e9), "x")


def test_labels_whose_squares_overflow_are_refused() -> None:
    huge = X[:, 0] * 1e306
    for door in (
        lambda: fit({"a": (X, huge)}, (X + 9.0, huge), **SHORT),
        lambda: MixtureRegressor("linear", budget=4, steps=2).fit(X, huge),
    ):
        with pytest.raises(DataError, match=r"labels are beyond ±1e\+100.*other units"):
            door()
    refuse_huge(np.array([1e99, -np.inf, np.nan]), "y")


def test_whole_numbers_are_joined_without_becoming_the_same() -> None:
    high = np.array([2**64 - 1, 2**64 - 2], dtype=np.uint64)
    assert joined([high, np.array([3])], "y").tolist() == [2**64 - 1, 2**64 - 2, 3]
    signed = joined([np.array([3], dtype=np.uint64), np.array([-1])], "y")
    assert (signed.dtype, signed.tolist()) == (np.int64, [3, -1])
    assert joined([np.array([0.5]), np.array([3])], "y").tolist() == [0.5, 3.0]
    with pytest.raises(DataError, match="holds both -1 and 18446744073709551615: give them as text"):
        joined([high, np.array([-1])], "y")


def test_an_estimator_tells_classes_near_2_to_the_64_apart() -> None:
    first, second = np.uint64(2**64 - 2), np.uint64(2**64 - 1)
    labels = np.where(X[:, 0] > 0, second, first)
    signed = (X + 5.0, np.full(60, 7))
    target = np.concatenate([X + 0.01, X + 5.01]), np.append(labels, np.full(60, 7, dtype=np.uint64))
    fitted = MixtureClassifier("linear", budget=60, lr=0.5)
    fitted.fit({"a": (X, labels), "b": signed}, X_val=target[0], y_val=target[1])
    assert fitted.classes_.tolist() == [7, 2**64 - 2, 2**64 - 1]
    assert {2**64 - 2, 2**64 - 1} <= set(fitted.predict(X).tolist())
    low = np.where(X[:, 0] > 0, 2**62 + 1, 2**62)
    fitted = MixtureClassifier("linear", budget=60, lr=0.5).fit(
        X, low, X_val=X + 0.01, y_val=low.astype(np.uint64)
    )
    assert (fitted.predict(X) == low).mean() > 0.8


def test_rows_are_known_by_ids_of_64_bits() -> None:
    ids = (np.uint64(2**64 - 1) - np.arange(50, dtype=np.uint64))[:, None]
    assert len(np.unique(row_numbers([Rows(ids, np.zeros(50))])[0])) == 50
    one, other = row_numbers([Rows(ids[:30], np.zeros(30)), Rows(ids[20:], np.zeros(30))])
    assert len(np.intersect1d(one, other)) == 10


@pytest.mark.parametrize("values", [iter([1.0]), (each for each in [1.0]), map(float, [1])])
def test_what_can_be_read_only_once_is_refused(values: Any) -> None:
    with pytest.raises(DataError, match="X: a .* can be read only once: give a list or an array"):
        refuse_lossy(values, "X")


def test_masked_rows_of_a_list_are_refused() -> None:
    rows = [np.ma.masked_greater(np.array([1.0, 2.0]), 1.5), np.array([0.0, 0.0])]
    with pytest.raises(DataError, match="1 values of a masked array are masked"):
        refuse_lossy(rows, "X")
