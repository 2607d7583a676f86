"""What a fit asks about its target."""

from __future__ import annotations

import numpy as np

from mixtree.data.synthetic import synthetic
from mixtree.verdict.target import about_target


def test_inside_and_outside_are_told_apart() -> None:
    inside = synthetic(alpha=[0.7, 0.2, 0.1], validation=300, test=1, seed=3)
    hull, estimate = about_target(inside.sources, seed=0)
    assert hull.inside and hull.n == 300 and 0.05 < hull.p <= 1.0
    assert estimate is not None and estimate.contains(np.array([0.7, 0.2, 0.1]))
    outside = synthetic(hull="outside", validation=300, test=1, seed=3)
    assert about_target(outside.sources, seed=0)[0].inside is False


def test_one_source_has_no_mixture_and_many_rows_are_thinned() -> None:
    alone = synthetic(sources=1, rows=200, validation=40, test=1)
    assert about_target(alone.sources, seed=0)[1] is None
    many = synthetic(rows=4_000, validation=3_000, test=1, seed=1)
    hull, estimate = about_target(many.sources, seed=0)
    assert hull.n == 1_500 and estimate is not None and estimate.n == 1_500
    again = about_target(many.sources, seed=0)
    assert again[0] == hull and (again[1].alpha == estimate.alpha).all()
