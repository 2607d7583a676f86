from __future__ import annotations

from math import inf

import pytest

from mixtree.cli.reports import four_digits, mixture_words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.81234, "0.8123"),
        (1234.5, "1,234"),
        (0.0, "0.0000"),
        (8.1234567e-9, "8.123e-09"),
        (None, "–"),
        (inf, "–"),
    ],
)
def test_scores_keep_four_digits_in_any_unit(value: float | None, text: str) -> None:
    assert four_digits(value) == text


def test_of_many_sources_the_largest_are_named():
    few = {"a": 0.7, "b": 0.3, "c": 0.0}
    assert mixture_words(few) == "a 0.700, b 0.300, c 0.000"
    assert mixture_words(few, digits=2, least=0.005) == "a 0.70, b 0.30"
    many = {f"s{place}": (place + 1) / 210 for place in range(20)}
    told = mixture_words(many)
    assert told.startswith("s19 0.095, s18 0.090") and told.endswith("14 others 0.500 together")
    assert mixture_words(dict.fromkeys(many, 0.05)) == "0.05 for each of 20 sources"
    assert mixture_words({**dict.fromkeys(many, 0.0), "s3": 1.0}, digits=2, least=0.005) == "s3 1.00"
    assert mixture_words({f"s{i}": 1 / 301 for i in range(301)}, digits=2, least=0.005) == (
        "0.0033 for each of 301 sources"
    )
    tuned = {**dict.fromkeys(many, 0.05), "target": 0.0}
    assert mixture_words(tuned, digits=2, least=0.005) == "0.05 for each of 20 sources"
    tiny = {f"s{i}": 1e-5 * (i + 1) for i in range(400)}
    assert mixture_words(tiny, digits=3).endswith("394 others 0.778 together")
    halves = {**dict.fromkeys(many, 0.0), "s1": 0.5, "s2": 0.5}
    assert mixture_words(halves) == "s1 0.500, s2 0.500"
