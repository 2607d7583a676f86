from __future__ import annotations

from math import inf

import pytest

from mixtree.cli.reports import four_digits, mixture_words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.81234, "0.8123"),
        (1234.5, "1234.5000"),
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
    assert mixture_words(dict.fromkeys(many, 0.05)) == "0.050 for each of 20 sources"
    only = {**dict.fromkeys(many, 0.0), "s3": 1.0}
    assert mixture_words(only, digits=2, least=0.005) == "s3 1.00"
