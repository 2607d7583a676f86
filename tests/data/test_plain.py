"""Plain data that is read back: what was written passes, what was altered does not."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree.data.plain import ANY_TEXT, AT_LEAST_ONE, COUNT, Number, check, read

SHAPE = {
    "name": str,
    "rows": COUNT,
    "steps": AT_LEAST_ONE,
    "share": Number(0, 1, whole=False),
    "score": (None, float),
    "kind": {"a", "b"},
    "path": re.compile("[0-9/]*"),
    "place": ANY_TEXT,
    "by_name": {str: [bool]},
    "either": (None, [str], [int]),
    "anything?": object,
}
SOUND = {
    "name": "x",
    "rows": 0,
    "steps": 1,
    "share": 0.5,
    "score": None,
    "kind": "a",
    "path": "0/1",
    "place": "\udcff",
    "by_name": {"é": [True]},
    "either": [1, 2],
    "more": 3,
}


def test_what_has_the_shape_is_read_as_it_is() -> None:
    assert read(json.dumps(SOUND), SHAPE) == SOUND
    assert read(json.dumps({**SOUND, "anything": [{}]}), SHAPE)["anything"] == [{}]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": 3}, "name must be text; found 3"),
        ({"name": "\udcff"}, "name must be text"),
        ({"rows": True}, "rows must be a whole number from 0 to"),
        ({"rows": -1}, "found -1"),
        ({"rows": 1.0}, "found 1.0"),
        ({"steps": 2**80}, "steps must be a whole number from 1"),
        ({"share": float("nan")}, "share must be a number from 0 to 1"),
        ({"score": float("inf")}, "score must be a finite number; found inf"),
        ({"score": 10**400}, "score must be a finite number"),
        ({"kind": "c"}, "kind must be one of 'a', 'b'; found 'c'"),
        ({"kind": []}, "kind must be one of"),
        ({"path": "0/1\n"}, "path must be text such as"),
        ({"by_name": {"n": [1]}}, "by_name.n.0 must be true or false; found 1"),
        ({"by_name": []}, "by_name must be an object"),
        ({"either": ["a", 1]}, "either.0 must be a whole number; found 'a'"),
        ({"either": "ab"}, "either must be a list; found 'ab'"),
    ],
)
def test_what_has_not_is_refused_by_its_place(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"^.*{re.escape(words)}"):
        check({**SOUND, **change}, SHAPE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "too deep"),
        ("{", "Expecting"),
        ("9" * 10_000, "digits"),
        ("[]", "it must be an object of names and values; found a list"),
        ("{}", "name is missing"),
        (3, "JSON must be text; found 3"),
        (b"\xff", "decode"),
    ],
)
def test_what_is_no_json_is_refused(text: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(text, SHAPE)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(name=st.sampled_from(sorted(SOUND)), value=ANYTHING)
def test_any_value_fits_or_is_refused_in_one_short_line(name: str, value: Any) -> None:
    try:
        check({**SOUND, name: value}, SHAPE)
    except ValueError as error:
        assert "\n" not in str(error) and len(str(error)) < 200
