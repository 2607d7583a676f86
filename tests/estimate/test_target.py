"""What a fit asks about its target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.estimate import match_moments, matching, moments
from mixtree.estimate import target as module
from mixtree.estimate.matching import Matching
from mixtree.estimate.target import about_target
from mixtree.fitting.pipeline import fit
from mixtree.policies import auto


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


def test_what_a_policy_has_matched_is_not_matched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = synthetic(alpha=[0.7, 0.2, 0.1], validation=100, test=1, seed=3)
    known = Matching(problem.sources)
    assert known.estimate.alpha.tolist() == match_moments(problem.sources).alpha.tolist()
    monkeypatch.setattr(module, "prepare", None)
    monkeypatch.setattr(module, "match_prepared", None)
    hull, estimate = about_target(problem.sources, seed=0, matching=known)
    assert estimate is known.estimate and hull.n == 100 and hull.p > 0.05
    outside = synthetic(hull="outside", validation=100, test=1, seed=3).sources
    assert about_target(outside, seed=0, matching=Matching(outside))[0].inside is False


def test_more_rows_than_were_matched_are_asked_with_the_same_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthetic(alpha=[0.7, 0.2, 0.1], validation=300, test=1, seed=3).sources
    known = Matching(replace(whole, validation=whole.validation.take(np.arange(200))))
    monkeypatch.setattr(module, "prepare", None)
    hull, estimate = about_target(whole, seed=0, matching=known)
    assert estimate is not None and (estimate.n, hull.n) == (300, 300)
    assert estimate.alpha.tolist() == match_moments(whole).alpha.tolist()


def test_many_moments_are_all_tested() -> None:
    wide = synthetic(features=80, validation=100, test=1, seed=3).sources
    known = Matching(wide)
    hull, estimate = about_target(wide, seed=0, matching=known)
    assert estimate is known.estimate and hull.moments > 100
    assert about_target(wide, seed=0)[0].moments == hull.moments  # without a policy that has matched them too


def test_moments_that_take_too_much_room_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    some = synthetic(validation=100, test=1, seed=3).sources
    monkeypatch.setattr(matching, "_ROOM", 1_000)
    known = Matching(some)
    assert known.prepared is None and known.target is None
    hull, estimate = about_target(some, seed=0, matching=known)
    assert estimate is known.estimate and hull.n == 100


def test_moments_are_asked_again_beside_rare_values_too() -> None:
    some = synthetic(validation=100, test=1, seed=3).sources
    rows = tuple(replace(part, x=np.column_stack([part.x, np.arange(len(part)) < 5])) for part in some.rows)
    target = replace(some.validation, x=np.column_stack([some.validation.x, np.zeros(100)]))
    known = Matching(replace(some, rows=rows, validation=target))
    hull, estimate = about_target(known.sources, seed=0, matching=known)
    assert known.prepared is not None and known.prepared.rare.columns.tolist() == [10]
    assert estimate is known.estimate and hull.p > 0.05


def test_a_fit_of_auto_prepares_its_moments_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(*args: object, **options: object) -> object:
        asked.append(options)
        return prepare(*args, **options)

    prepare = matching.prepare
    monkeypatch.setattr(matching, "prepare", counted)
    monkeypatch.setattr(module, "prepare", counted)
    sources = synthetic(rows=300, validation=200, test=1).sources
    fit(sources, model="linear", budget=600, reference="none")
    assert len(asked) == 1
    fit(sources, model="linear", budget=600, reference="none", policy="uniform")
    assert len(asked) == 2


def test_more_sources_than_can_be_told_apart_are_not_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    many = synthetic(sources=6, rows=60, validation=40, test=1, seed=1).sources
    for place in (module, moments, auto):
        monkeypatch.setattr(place, "MOST_SOURCES", 5)
    hull, estimate = about_target(many, seed=0)
    assert estimate is None and hull.inside is None and "more than 5 sources" in hull.words
    with pytest.raises(InputError, match="at most 5 sources"):
        match_moments(many)
    result = fit(many, model="linear", budget=60, reference="none")
    assert result.verdict is not None and result.verdict.hull is not None
    assert result.verdict.hull.words == hull.words and result.verdict.as_dict()["hull"]["p"] is None
    assert any("no mixture was estimated" in note for note in result.notes)


def test_moments_of_many_sources_are_no_more_than_there_is_room_for() -> None:
    for count in (3, 100, 200, 300):
        found = moments._limit([10_000] * count)
        assert count + 10 <= found and count * found**2 <= 3e7
    assert moments._limit([10_000] * 3) == 120 and moments._limit([10_000] * 100) == 300
