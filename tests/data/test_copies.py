from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from mixtree import fit
from mixtree.data.copies import copied, weighed, without_copies
from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic


def sources(validation: int = 60, **more: Any) -> Sources:
    return synthetic(rows=300, validation=validation, seed=3, **more).sources


def joined(*parts: Rows) -> Rows:
    return Rows(np.concatenate([part.x for part in parts]), np.concatenate([part.y for part in parts]))


def test_rows_without_copies_stay_as_they_are() -> None:
    given = sources()
    test = synthetic(rows=10, test=40, seed=8).test
    assert without_copies(given, test) == (given, test, ())
    assert without_copies(given, None) == (given, None, ())


@pytest.mark.parametrize("sparse", [False, True])
def test_a_validation_row_counts_once(sparse: bool) -> None:
    given = sources()
    rows = given.validation
    twice = joined(rows, rows.take(np.arange(25)))
    if sparse:
        twice = Rows(csr_array(twice.x), twice.y)
        given = replace(given, rows=tuple(Rows(csr_array(each.x), each.y) for each in given.rows))
    kept, _, (told,) = without_copies(replace(given, validation=twice), None)
    assert np.array_equal(kept.validation.y, rows.y)
    assert told == "25 of 85 validation rows are copies of others among them: each row counts once"


def test_the_same_features_with_another_label_are_no_copy() -> None:
    rows = sources().validation
    other = Rows(rows.x, 1 - rows.y)
    assert not copied(joined(rows, other), sources().rows).any()


def test_test_rows_that_chose_do_not_score() -> None:
    given = sources()
    fresh = synthetic(rows=10, test=40, seed=8).test
    assert fresh is not None
    _, test, (told,) = without_copies(given, joined(given.validation, fresh))
    assert test is not None
    assert np.array_equal(test.x, fresh.x)
    assert told.startswith("60 of 100 test rows also stand among the validation rows")
    assert without_copies(given, given.validation)[1] is None


def test_rows_that_are_alike_by_chance_are_no_copies() -> None:
    random = np.random.default_rng(0)

    def part(count: int) -> Rows:
        return Rows(random.integers(2, size=(count, 3)).astype(float), random.integers(2, size=count))

    given = Sources(("a", "b"), (part(200), part(200)), part(60), 2)
    assert len(np.unique(given.validation.x, axis=0)) < 10
    assert without_copies(given, part(60))[2] == ()


def test_rows_of_values_that_only_the_target_has_are_no_copies() -> None:
    random = np.random.default_rng(0)

    def part(count: int, shift: float) -> Rows:
        x = random.integers(3, size=(count, 2)) + shift
        return Rows(x, (random.random(count) < 0.8 * (x[:, 0] > shift)).astype(int))

    given = Sources(("a", "b"), (part(200, 0.0), part(200, 0.0)), part(60, 9.0), 2)
    assert without_copies(given, part(60, 9.0))[2] == ()
    values = given.validation.x + random.normal(size=(60, 1))
    apart = replace(given, validation=Rows(values, given.validation.y))
    assert without_copies(apart, apart.validation.take(np.arange(30)))[1] is None


def test_a_few_pairs_are_left_alone() -> None:
    given = sources()
    few = joined(given.validation, given.validation.take(np.arange(3)))
    assert without_copies(replace(given, validation=few), None)[2] == ()


def test_a_held_out_row_has_no_copy_among_those_that_chose() -> None:
    problem = sources(80, hull="outside")
    four = replace(problem, validation=joined(*[problem.validation] * 4))
    verdict = fit(four, model="linear", budget=200, reference="none", seed=1).verdict
    alone = fit(problem, model="linear", budget=200, reference="none", seed=1).verdict
    assert verdict is not None
    assert alone is not None
    assert verdict.warnings[0].startswith("240 of 320 validation rows are copies")
    assert verdict.score == alone.score


@pytest.mark.parametrize("sparse", [False, True])
def test_copies_in_a_source_are_the_weight_of_one_row(sparse: bool) -> None:
    given = sources()
    first, *others = given.rows
    again = joined(first, first.take(np.repeat(np.arange(40), 2)))
    if sparse:
        again, *others = (Rows(csr_array(each.x), each.y) for each in (again, *others))
    twice = replace(given, rows=(again, *others))
    found = weighed(twice, twice.rows)
    assert np.array_equal(found.rows[0].y, first.y)
    assert np.array_equal(found.rows[0].weights, np.where(np.arange(len(first)) < 40, 3.0, 1.0))
    assert found.rows[1:] == twice.rows[1:]
    assert weighed(given, given.rows) is given


def test_rows_of_a_source_that_are_alike_by_chance_stay() -> None:
    def rounded(rows: Rows) -> Rows:
        return Rows(np.round(rows.x[:, :3]).clip(-1, 1), rows.y)

    given = sources()
    coarse = replace(given, rows=tuple(map(rounded, given.rows)), validation=rounded(given.validation))
    assert weighed(coarse, coarse.rows) is coarse
    # Even where the label follows from the features: other sources have the same rows.
    sure = replace(coarse, rows=tuple(Rows(part.x, (part.x[:, 0] > 0).astype(int)) for part in coarse.rows))
    assert len(weighed(sure, sure.rows).rows[0]) > 0.9 * len(sure.rows[0])
