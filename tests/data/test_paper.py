import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mixtree.data import paper
from mixtree.errors import DataError, InputError

FOLDER = os.environ.get("MIXTREE_DATA")
needs_data = pytest.mark.skipif(not FOLDER, reason="MIXTREE_DATA is not set: the paper's data are not here")


def test_a_missing_file_says_where_to_get_it(monkeypatch, tmp_path):
    monkeypatch.delenv("MIXTREE_DATA", raising=False)
    with pytest.raises(DataError, match="Amazon.com - Employee Access Challenge.*MIXTREE_DATA"):
        paper.data_file("amazon")
    monkeypatch.setenv("MIXTREE_DATA", str(tmp_path))
    with pytest.raises(DataError, match="allstate/train.csv"):
        paper.data_file("allstate")


def test_shares_of_a_whole_group_use_every_row():
    assert paper._counts(335, (0.0, 30.0, 70.0)) == (0, 100, 235)
    assert paper._counts(2836, (50.0, 7.5, 42.5)) == (1418, 213, 1205)
    assert paper._counts(14605, (49.34, 0.16, 0.5)) == (7206, 23, 73)
    assert paper._counts(6664, (2.25, 0.75, 2.25)) == (150, 50, 150)


def quotes():
    return pl.DataFrame(
        {
            "customer_ID": [1, 1, 1, 2, 2],
            "shopping_pt": [1, 2, 3, 1, 2],
            "record_type": [0, 0, 1, 0, 1],
            "day": [6, 0, 1, 3, 3],
            "time": ["08:00"] * 5,
            "state": ["FL", "FL", "FL", "OH", "OH"],
            "location": [9] * 5,
            "risk_factor": [None, None, None, 2, 2],
            "car_value": ["a", "a", "a", None, None],
            **{letter: [0, 1, 2, 3, 3] for letter in "ABCDEF"},
            "G": [1, 2, 3, 4, 4],
            "cost": [600, 610, 605, 700, 700],
        }
    )


def test_flattening_keeps_the_last_quote_and_the_purchase():
    flat = paper.flatten_allstate(quotes())
    assert flat["customer_ID"].to_list() == [1, 2]
    assert flat["G_prev"].to_list() == [2, 4]
    assert flat["G_final"].to_list() == [3, 4]
    assert flat["cost_prev"].to_list() == [610, 700]
    assert flat["cost_delta"].to_list() == [-5, 0]
    assert flat["cost_changed"].to_list() == [1, 0]
    assert flat["num_days"].to_list() == [(1 - 6) % 7, 0]
    assert flat["final_purchase_date_same"].to_list() == [0, 1]


def test_allstate_features_from_the_raw_form(tmp_path):
    file = tmp_path / "train.csv"
    quotes().write_csv(file)
    table = paper.allstate_features(file)
    assert "G_final" not in table.names
    assert "state" not in table.names
    assert table.numeric[0, table.names.index("risk_factor")] == -1
    assert table.y.tolist() == [2, 3]
    assert {"car_value=a", "car_value=none"} <= set(table.names)


def test_scaling_looks_at_training_rows_only():
    random = np.random.default_rng(0)
    numeric = random.normal(3, 2, (100, 2)).astype(np.float32)
    numeric[5, 0] = np.nan
    table = paper.Features(
        numeric, np.ones((100, 1), np.float32), random.integers(2, size=100), np.array(["a", "b"] * 50), ()
    )
    shares = {"sources": {"a": (100.0, 0.0, 0.0)}, "targets": {"b": (0.0, 30.0, 70.0)}}
    problem = paper.split("toy", table, classes=2, seed=3, **shares)
    train = problem.sources.rows[0].x
    assert train[:, :2].mean(axis=0) == pytest.approx(0, abs=1e-5)
    poisoned = paper.Features(
        np.where((table.group == "b")[:, None], numeric * 1000, numeric),
        *([table.indicators, table.y, table.group, ()]),
    )
    again = paper.split("toy", poisoned, classes=2, seed=3, **shares)
    assert np.array_equal(train, again.sources.rows[0].x)


@needs_data
def test_allstate_counts_are_the_papers():
    problem = paper.allstate(seed=1)
    assert problem.sources.sizes.tolist() == [7206, 1418, 150]
    assert len(problem.sources.validation) == 23 + 213 + 50
    assert len(problem.test) == 73 + 1205 + 150
    assert problem.alpha == pytest.approx([0.051, 0.844, 0.105], abs=5e-4)
    labels = [set(np.unique(rows.y).tolist()) for rows in problem.sources.rows]
    assert labels[0] == {2, 3}
    assert 0 not in labels[2]


@needs_data
def test_the_raw_loader_on_original_rows():
    table = paper.allstate_features(Path(FOLDER) / "allstate" / "raw_first_9994_rows.csv")
    assert len(table.y) == 1459
    assert {"num_days", "final_purchase_date_same", "cost_delta"} <= set(table.names)
    assert np.isfinite(table.numeric[:, table.names.index("num_days")]).all()


@needs_data
def test_the_raw_loader_agrees_with_the_flat_file():
    raw = paper.flatten_allstate(
        pl.read_csv(Path(FOLDER) / "allstate" / "raw_first_9994_rows.csv", infer_schema_length=None)
    )
    flat = pl.read_csv(Path(FOLDER) / "allstate" / "allstate_flat_97009.csv.gz", infer_schema_length=None)
    both = raw.join(flat, on="customer_ID", suffix="_flat")
    assert len(both) >= 1458
    for column in ("G_final", "A_prev", "cost_final", "cost_delta"):
        assert (both[column] == both[f"{column}_flat"]).mean() > 0.995


REVIEWS = [
    # country, description, points, price, variety; all else of the original form is left empty
    ("US", "Toasty OAK and buttery cream; food-friendly.", 90, 20.0, "Chardonnay"),
    ("US", "Unoaked and crisp. A hint of laser-like acidity; food friendly.", 85, 12.5, "Chardonnay"),
    ("France", None, 88, 40.0, "Gamay"),
    ("Italy", "No price, so not a row.", 91, None, "Nebbiolo"),
    (None, "No country either.", 91, 10.0, "Nebbiolo"),
    *((country, "Tannins, “minerals”, velvety.", 87, 15.0, "Red") for country in ("Italy", "Spain")),
    *(("Chile", "Dense, jammy", 80 + n, 9.0 + n, "Carmenère") for n in range(40)),
]


@pytest.fixture
def original(tmp_path, monkeypatch):
    """A small file in the form of the original one."""
    columns = ["", "country", "description", "designation", "points", "price", "province", "region_1"]
    columns += ["region_2", "taster_name", "taster_twitter_handle", "title", "variety", "winery"]
    rows = [
        dict.fromkeys(columns)
        | {"": n, "country": c, "description": d, "points": p, "price": m, "variety": v}
        for n, (c, d, p, m, v) in enumerate(REVIEWS)
    ]
    (tmp_path / "wine").mkdir()
    pl.DataFrame(rows, infer_schema_length=None).write_csv(tmp_path / "wine" / "winemag-data-130k-v2.csv")
    monkeypatch.setenv("MIXTREE_DATA", str(tmp_path))
    return tmp_path / "wine"


def notes_of(table, row):
    return {name for name, one in zip(table.names[1:], table.indicators[row], strict=True) if one}


def test_notes_of_all_wines_come_from_the_descriptions(original):
    table = paper.wine_features("notes")
    assert table.names == ("points", *paper.WINE_NOTES) and len(paper.WINE_NOTES) == 39
    assert len(table.y) == len(REVIEWS) - 2
    assert notes_of(table, 0) == {"toast", "oak", "butter", "cream"}
    # A note is any substring: what is unoaked has oak in it.
    assert notes_of(table, 1) == {"unoaked", "oak", "crisp", "hint of", "laser", "acid", "food friendly"}
    assert notes_of(table, 2) == set()
    assert notes_of(table, 3) == {"tannin", "mineral", "velvet"}
    assert paper.wine_label("notes") == "points and 39 tasting notes of all 45 priced wines"
    problem = paper.wine_price(features="notes", targets=("Chile",))
    assert problem.name == "wine-price-notes"
    assert problem.sources.sizes.tolist() == [2, 1, 1, 1]
    assert problem.sources.features == 40


def test_notes_without_descriptions_are_the_table_s(original):
    file = original / "winemag-data-130k-v2.csv"
    core = pl.read_csv(file).drop("description")
    core.write_csv(file)
    with pytest.raises(DataError, match="wine-notes data are not here.*whose descriptions hold the notes"):
        paper.wine_features("notes")
    assert paper.wine_label("core") == "points and variety of all 45 priced wines"
    some = core.head(3).with_columns(pl.lit(1).alias(note) for note in paper.WINE_NOTES)
    some.write_csv(original / "wine_notes_5408.csv")
    assert paper.wine_label("notes") == "points and 39 tasting notes of a table of 3 priced wines"
    assert notes_of(paper.wine_features("notes"), 0) == set(paper.WINE_NOTES)
    some.drop("acid").write_csv(original / "less.csv")
    with pytest.raises(DataError, match="less.csv: neither a description nor the tasting notes acid"):
        paper._wine_notes(original / "less.csv")
    with pytest.raises(InputError, match="'core' or 'notes'; got 'variety'"):
        paper.wine_features("variety")


@needs_data
def test_wine_counts_are_the_papers():
    problem = paper.wine_price(seed=0)
    assert problem.sources.sizes.tolist() == [54265, 17776, 16914, 6573]
    assert len(problem.sources.validation) + len(problem.test) == 4416 + 2294
    assert np.exp(problem.test.y).min() >= 4
    quartile = paper.wine_quartile(seed=0)
    assert set(np.unique(quartile.test.y).tolist()) == {0, 1, 2, 3}
    assert paper.wine_label("notes") == "points and 39 tasting notes of a table of 5,408 priced wines"
    notes = paper.wine_price(seed=0, features="notes")
    assert notes.sources.sizes.tolist() == [2434, 727, 804, 294]
    assert notes.sources.features == 40


@needs_data
def test_amazon_counts_are_the_papers():
    problem = paper.amazon(seed=0)
    assert problem.sources.sizes.tolist() == [1135, 763, 659, 597]
    assert len(problem.sources.validation) + len(problem.test) == 335
    wide = paper.amazon(seed=0, least=0)
    assert wide.sources.features == 15177
    assert (problem.sources.rows[0].x.sum(axis=1) <= 8).all()
    with pytest.raises(InputError, match="both a source and the target"):
        paper.amazon(target="117878")
