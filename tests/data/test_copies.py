from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from mixtree import fit
from mixtree.data.copies import copied, row_numbers, weighed, without_copies
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


def test_equal_rows_are_equal_in_any_form() -> None:
    """Types of numbers, the order of entries, zeros that are stored: none of it makes a row another one."""
    given = sources()
    x = np.round(given.rows[0].x[:30]) - 0.0
    csr = csr_array(x)
    backwards = csr_array(
        (csr.data[::-1], csr.indices[::-1], len(csr.data) - csr.indptr[::-1]), shape=csr.shape
    )[::-1]
    stored = csr_array(x + 100.0)
    stored.data -= 100.0
    wide = csr_array((csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)), shape=csr.shape)
    forms = [
        x.astype(np.float32),
        x.astype(np.int16),
        np.negative(-x),
        csr,
        backwards,
        stored,
        wide,
        x.reshape(30, -1, 2),
    ]
    labels = np.arange(30)
    for form in forms:
        rows, kept = Rows(form, labels), Rows(x, labels)
        assert copied(rows, given.rows[1:], within=kept).all()


def test_a_few_rows_with_nothing_in_them_do_not_hide_copies() -> None:
    """Empty texts are alike by chance, with any label; what was written twice is a copy all the same."""
    given = sources()
    first = given.rows[0]
    empty = Rows(np.zeros((20, first.x.shape[1])), np.arange(20) % 2)
    twice = replace(given, rows=(joined(first, first, empty), *given.rows[1:]))
    found = weighed(twice, twice.rows).rows[0]
    assert len(found) == len(first) + 20
    assert found.weights.tolist() == [2.0] * len(first) + [1.0] * 20


def test_what_much_of_a_source_is_is_no_copy() -> None:
    given = sources()
    first = given.rows[0]
    often = Rows(np.full((200, first.x.shape[1]), 7.0), np.zeros(200, dtype=int))
    twice = replace(given, rows=(joined(first, first, often), *given.rows[1:]))
    found = weighed(twice, twice.rows).rows[0]
    assert len(found) == len(first) + 200


def test_copies_in_a_large_source_are_found_by_a_few_of_its_rows() -> None:
    random = np.random.default_rng(0)
    rows = Rows(random.standard_normal((60_000, 2)), random.integers(2, size=60_000))
    few = replace(sources(), names=("a",), rows=(joined(rows, rows),), validation=rows.take(np.arange(50)))
    sample = [few.rows[0].take(random.choice(120_000, 500, replace=False))]
    assert len(weighed(few, sample).rows[0]) == 60_050


def test_rows_of_a_source_that_are_alike_by_chance_stay() -> None:
    def rounded(rows: Rows) -> Rows:
        return Rows(np.round(rows.x[:, :3]).clip(-1, 1), rows.y)

    given = sources()
    coarse = replace(given, rows=tuple(map(rounded, given.rows)), validation=rounded(given.validation))
    assert weighed(coarse, coarse.rows) is coarse
    # Even where the label follows from the features: other sources have the same rows.
    sure = replace(coarse, rows=tuple(Rows(part.x, (part.x[:, 0] > 0).astype(int)) for part in coarse.rows))
    assert len(weighed(sure, sure.rows).rows[0]) > 0.9 * len(sure.rows[0])


def test_many_labels_and_group_sizes_take_no_time() -> None:
    """Labels times sizes of groups were once compared: 80 seconds here."""
    random = np.random.default_rng(0)
    x = np.minimum(random.zipf(1.3, 200_000), 5_000).astype(float)[:, None]
    rows = Rows(np.vstack([x, x[:1]]), np.append(random.standard_normal(200_000), 0.0))
    rows.y[-1] = rows.y[0]
    assert not copied(rows, [rows.take(np.arange(5))]).any()


def test_rows_are_known_again_in_other_parts_and_never_twice_in_one():
    rng = np.random.default_rng(0)
    every = Rows(rng.integers(0, 3, size=(40, 2)).astype(float), rng.integers(0, 2, size=40))
    parts = [every.take(rng.permutation(40)[:30]) for _ in range(3)]
    for dense in (True, False):
        given = parts if dense else [Rows(csr_array(part.x), part.y) for part in parts]
        numbers = row_numbers(given)
        assert all(len(np.unique(each)) == 30 for each in numbers)
        known = {}
        for part, own in zip(parts, numbers, strict=True):
            for place, number in enumerate(own):
                row = (*part.x[place], part.y[place])
                assert known.setdefault(number, row) == row
        assert len(known) <= 40
    same = row_numbers([every, every])
    np.testing.assert_array_equal(*same)
