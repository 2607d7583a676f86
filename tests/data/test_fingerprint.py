from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from mixtree.data.fingerprint import data_fingerprint, differences, model_key, settings
from mixtree.data.identity import identity
from mixtree.data.sources import Rows, Sources


def sources(**changes: Any) -> Sources:
    rows = {
        "a": Rows(np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1])),
        "b": Rows(np.ones((2, 3)), np.array([1, 0]), np.array([0.5, 1.0])),
    }
    validation = Rows(np.zeros((2, 3)), np.array([0, 1]))
    made = Sources(tuple(rows), tuple(rows.values()), validation, 2)
    return replace(made, **changes)


# ------------------------------------------------------------------------------------------------- data


def test_the_same_data_have_the_same_fingerprint() -> None:
    assert data_fingerprint(sources()) == data_fingerprint(sources())
    assert len(data_fingerprint(sources())) == 32
    contiguous = sources()
    x = np.asfortranarray(contiguous.rows[0].x)  # another layout of the same numbers
    assert data_fingerprint(
        replace(contiguous, rows=(replace(contiguous.rows[0], x=x), contiguous.rows[1]))
    ) == (data_fingerprint(contiguous))


def changed(name: str) -> Sources:
    first, second = sources().rows
    x = first.x.copy()
    x[3, 2] = np.nextafter(x[3, 2], 0)
    return {
        "one bit of a feature": sources(rows=(replace(first, x=x), second)),
        "a label": sources(rows=(replace(first, y=np.array([0, 1, 0, 0])), second)),
        "a weight": sources(rows=(first, replace(second, weight=np.array([0.5, 0.9])))),
        "no weight": sources(rows=(first, replace(second, weight=None))),
        "a name": sources(names=("a", "c")),
        "the order of sources": sources(names=("b", "a"), rows=(second, first)),
        "the order of rows": sources(rows=(first.take(np.array([1, 0, 2, 3])), second)),
        "the type of numbers": sources(rows=(replace(first, x=first.x.astype(np.float32)), second)),
        "validation": sources(validation=Rows(np.zeros((2, 3)), np.array([1, 0]))),
        "the number of classes": sources(classes=3),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "one bit of a feature",
        "a label",
        "a weight",
        "no weight",
        "a name",
        "the order of sources",
        "the order of rows",
        "the type of numbers",
        "validation",
        "the number of classes",
    ],
)
def test_any_change_is_seen(name: str) -> None:
    assert data_fingerprint(changed(name)) != data_fingerprint(sources())


def test_sparse_rows() -> None:
    def sparse(columns: int, value: float = 1.0, form: str = "csr") -> str:
        x = scipy.sparse.csr_matrix(([value, 2.0], ([0, 2], [1, 0])), shape=(3, columns))
        rows = Rows(x.asformat(form), np.zeros(3, dtype=int))
        return data_fingerprint(Sources(("s",), (rows,), rows, 2))

    assert sparse(3) == sparse(3) == sparse(3, form="coo")
    assert len({sparse(3), sparse(4), sparse(3, 1.5)}) == 3


# ---------------------------------------------------------------------------------------------- settings


class Described:
    def __init__(self, **told: Any) -> None:
        self.told = told

    def describe(self) -> dict[str, Any]:
        return self.told


def twice(x: float) -> float:
    return 2 * x


def test_settings_are_plain_data() -> None:
    part = Described(a=np.float64(0.1), b=np.arange(2), c=(1, 2), d=np.mean, e=dict, f={"g": None})
    assert settings(part) == {
        "type": "Described",
        "a": 0.1,
        "b": [0, 1],
        "c": [1, 2],
        "d": "numpy.mean",
        "e": "builtins.dict",
        "f": {"g": None},
    }


def test_settings_do_not_depend_on_the_process() -> None:
    told = settings(Described(a=object(), b=partial(twice, 3), c=lambda: 1))
    assert "0x" not in str(told)
    assert told == settings(Described(a=object(), b=partial(twice, 3), c=lambda: 1))
    assert "3" in told["b"]


def test_what_says_nothing_of_itself_is_known_by_its_name() -> None:
    assert settings(object()) == {"type": "object"}
    assert settings(twice) == {"type": identity(twice)}
    assert settings(lambda x: x + 1) != settings(lambda x: x + 2)


def test_differences_in_words() -> None:
    assert differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == ["a.c was 2, is 3"]
    assert differences({"a": 1}, {"b": 1}) == ["a was 1, is None", "b was None, is 1"]
    assert differences({"a": {"b": 1}}, {"a": 1}) == ["a was {'b': 1}, is 1"]
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}) == []


def test_keys_of_models() -> None:
    assert model_key("s", 1, {"a": 1}) == model_key("s", 1, {"a": 1})
    assert len({model_key("s", 1), model_key("s", 2), model_key("t", 1), model_key(["s"], 1)}) == 4
