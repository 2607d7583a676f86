from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from mixtree.data.sources import Problem, Rows, Sources
from mixtree.errors import DataError, MixtreeError


def rows(count: int = 4, width: int = 3, *, classes: int = 2) -> tuple[Any, Any]:
    rng = np.random.default_rng(count)
    y = np.arange(count) % classes if classes else rng.standard_normal(count)
    return rng.standard_normal((count, width)), y


def test_sources_know_their_names_sizes_and_features() -> None:
    sources = Sources.from_dict({"a": rows(4), "b": rows(6)}, rows(5), classes=2)
    assert len(sources) == 2
    assert sources.names == ("a", "b")
    assert sources.sizes.tolist() == [4, 6]
    assert sources.features == 3
    assert sources.index("b") == 1
    assert len(sources.validation) == 5
    assert Problem("p", sources, sources.validation).alpha is None


def test_lists_sparse_tables_and_rows_are_taken_as_they_are() -> None:
    x, y = rows()
    sources = Sources.from_dict(
        {"dense": (x.tolist(), y.tolist()), "sparse": (csr_matrix(x), y), "rows": Rows(x, y)},
        (x, y),
        classes=2,
    )
    assert sources.sizes.tolist() == [4, 4, 4]
    part = sources.rows[1].take(np.array([2, 0]))
    assert len(part) == 2
    assert np.array_equal(part.x.toarray(), x[[2, 0]])
    assert np.array_equal(part.y, y[[2, 0]])


def test_rows_weigh_one_unless_told() -> None:
    x, y = rows()
    assert Rows(x, y).weights.tolist() == [1, 1, 1, 1]
    weighted = Rows(x, y, np.array([0.0, 1.0, 2.0, 3.0]))
    assert weighted.take(np.array([3, 1])).weights.tolist() == [3, 1]


def test_regressions_have_no_classes() -> None:
    assert Sources.from_dict({"a": rows(classes=0)}, rows(classes=0), classes=0).classes == 0


def table(**changes: Any) -> dict[str, Any]:
    return {"rows": {"a": rows(), "b": rows()}, "validation": rows(), "classes": 2, **changes}


def broken(value: Any) -> tuple[Any, Any]:
    x, y = rows()
    x[1, 2] = value
    return x, y


X, Y = rows()

BAD = [
    (table(rows={}), "no sources: give at least one"),
    (table(rows={"a": (X[:0], Y[:0])}), "source 'a' has no rows: leave it out or give it some"),
    (table(validation=(X[:0], Y[:0])), "validation has no rows"),
    (table(rows={"a": broken(np.nan)}), "source 'a': features hold NaN or infinite values; impute or drop"),
    (table(rows={"a": broken(np.inf)}), "source 'a': features hold NaN or infinite"),
    (table(validation=broken(np.nan)), "validation: features hold NaN or infinite"),
    (table(rows={"a": (csr_matrix(broken(np.nan)[0]), Y)}), "source 'a': features hold NaN or infinite"),
    (table(rows={"a": rows(width=2)}), "source 'a' has 2 columns but validation has 3: they must match"),
    (table(rows={"a": (X, Y[:2])}), r"source 'a': 4 rows but labels of shape \(2,\); one per row"),
    (table(rows={"a": (X, Y[:, None])}), r"source 'a': 4 rows but labels of shape \(4, 1\)"),
    (table(rows={"a": (X[:, 0], Y)}), r"source 'a': features must be a table .*got shape \(4,\)"),
    (table(rows={"a": Rows(X[:, 0], Y)}), "source 'a': features must be a table"),
    (table(validation=Rows(X[:, 0], Y)), "validation: features must be a table"),
    (table(validation=Rows(X, Y, np.ones(4))), "validation rows have no weights"),
    (table(rows={"a": (X.astype(str), Y)}), "source 'a': features must be numbers.*encode text"),
    (table(rows={"a": ([[1.0], [1.0, 2.0]], [0, 1])}), "source 'a': features must be a table"),
    (table(rows={"a": X}), r"source 'a'.*\(x, y\)"),
    (table(rows={"a": (X, Y.astype(float))}), "source 'a': class labels must be whole numbers 0 … 1"),
    (table(rows={"a": (X, Y + 1)}), "source 'a': class labels must lie in 0 … 1; found 1 … 2"),
    (table(rows={"a": (X, Y - 1)}), "source 'a': class labels must lie in 0 … 1; found -1 … 0"),
    (
        table(rows={"a": (X, np.array(["n", "y", "n", "y"]))}),
        "source 'a': class labels must be whole numbers",
    ),
    (
        table(classes=0, rows={"a": (X, np.array([1.0, np.nan, 0.0, 2.0]))}),
        "regression targets must be finite",
    ),
    (table(classes=1, rows={"a": (X, 0 * Y)}, validation=(X, 0 * Y)), "classes must be 2 or more, or 0"),
    (table(rows={"a": Rows(X, Y, -np.ones(4))}), "source 'a': row weights must be finite, at least 0"),
    (table(rows={"a": Rows(X, Y, np.full(4, np.nan))}), "source 'a': row weights must be finite"),
    (table(rows={"a": Rows(X, Y, np.ones(3))}), "source 'a': row weights .*one per row"),
    (table(classes=-2), "classes must be 2 or more, or 0"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message[:40] for _, message in BAD])
def test_bad_input(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Sources.from_dict(arguments["rows"], arguments["validation"], classes=arguments["classes"])


def test_rows_that_judge_have_no_weights_by_any_door() -> None:
    weighted = Rows(X, Y, np.ones(4))
    Sources(("a",), (weighted,), Rows(X, Y), 2)
    with pytest.raises(DataError, match="validation rows have no weights"):
        Sources(("a",), (Rows(X, Y),), weighted, 2)


def test_images_must_be_of_one_size() -> None:
    small, large = (np.zeros((4, 8, size)) for size in (8, 9))
    labels = np.array([0, 1, 0, 1])
    with pytest.raises(DataError, match=r"source 'b' has rows of shape \(8, 9\) but validation has \(8, 8\)"):
        Sources.from_dict({"a": (small, labels), "b": (large, labels)}, (small, labels), classes=2)


def test_names_must_differ_and_match_the_rows() -> None:
    part = Rows(X, Y)
    with pytest.raises(DataError, match="names must differ; got a, a"):
        Sources(("a", "a"), (part, part), part, 2)
    with pytest.raises(DataError, match="a source's name is a text; got 2019: write '2019'"):
        Sources((2019, 2020), (part, part), part, 2)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="a source cannot be called 'target'.*rename it"):
        Sources(("a", "target"), (part, part), part, 2)
    with pytest.raises(DataError, match="2 names but 1 sources"):
        Sources(("a", "b"), (part,), part, 2)


def test_an_unknown_source_lists_the_known_ones() -> None:
    sources = Sources.from_dict({"US": rows(), "France": rows()}, rows(), classes=2)
    with pytest.raises(MixtreeError, match="unknown source 'Chile'; the sources are 'US', 'France'"):
        sources.index("Chile")


def test_rows_without_columns_are_refused():
    nothing = (np.zeros((4, 0)), np.array([0.0, 1.0, 0.0, 1.0]))
    with pytest.raises(DataError, match=r"rows of shape \(0,\): there are no features"):
        Sources.from_dict({"a": nothing}, nothing, classes=None)


@pytest.mark.parametrize("name", ["a\udcff", "\ud800", "a\0"])
def test_a_name_that_no_file_can_hold_is_refused(name):
    rows = (np.ones((4, 1)), np.array([0.0, 1.0, 0.0, 1.0]))
    with pytest.raises(DataError, match="must be text that UTF-8 can hold"):
        Sources.from_dict({name: rows}, rows, classes=None)


@pytest.mark.parametrize("classes", ["2", 2.0, True, 1, -1, 2**40])
def test_a_number_of_classes_that_is_none_is_refused(classes):
    part = Rows(np.ones((4, 1)), np.array([0, 1, 0, 1]))
    with pytest.raises(DataError, match="classes must be 2 or more, or 0.* got"):
        Sources(("a",), (part,), part, classes)
