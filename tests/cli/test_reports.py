from __future__ import annotations

from math import inf

import pytest

from mixtree.cli.reports import four_digits


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
