from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from mixtree.data.preprocessing import Preprocessor
from mixtree.data.typed import Layout


def frame():
    rng = np.random.default_rng(0)
    rows = 300
    return pl.DataFrame(
        {
            "colour": rng.choice(["red", "blue", None], rows).tolist(),
            "size": [None if place % 7 == 0 else place / 7.3 for place in range(rows)],
            "day": [date(2020, 1, 1) + timedelta(days=place) for place in range(rows)],
            "shop": rng.choice([f"s{n}" for n in range(20)], rows),
        }
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_the_typed_columns_come_back_from_the_features(sparse):
    table = frame()
    preprocessor = Preprocessor.fit(table, sparse=sparse)
    layout = preprocessor.layout
    typed = layout.typed(preprocessor.transform(table))
    place = layout.columns.index("size")
    assert np.array_equal(np.isnan(typed[:, place]), table["size"].is_null().to_numpy())
    known = ~np.isnan(typed[:, place])
    given = table["size"].to_numpy()[known]
    assert np.corrcoef(typed[known, place], given)[0, 1] > 0.999999
    for name in ("colour", "shop"):
        codes = typed[:, layout.columns.index(name)]
        pairs = pl.DataFrame({"code": codes, "value": table[name]}).unique()
        assert pairs.height == table[name].n_unique()
    assert [layout.columns[place] for place in layout.categories] == ["colour", "shop"]


def test_a_category_that_was_never_seen_is_unknown():
    table = frame()
    preprocessor = Preprocessor.fit(table)
    layout = preprocessor.layout
    other = table.head(1).with_columns(pl.lit("elsewhere").alias("shop"))
    typed = layout.typed(preprocessor.transform(other))
    assert typed[0, layout.columns.index("shop")] == -1.0


def test_a_layout_is_plain_data():
    layout = Preprocessor.fit(frame()).layout
    assert Layout.from_arrays(layout.arrays()) == layout
    assert layout.features_of(layout.columns.index("size"))[0] == layout.columns.index("size")
    x = np.zeros((2, 3))
    assert Layout.plain(3).typed(x) is x
