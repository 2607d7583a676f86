"""Predictions of a model folder, without the training data."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest


@pytest.fixture
def model(tables, done, base):
    """A fitted folder, moved away from its tables."""
    done("fit", *base, "--out", "out")
    shutil.move("out", "moved")
    Path("train.csv").unlink()
    return Path("moved")


def test_predictions_go_with_the_rows(model, done):
    done("predict", model, "new.csv", "-o", "p.csv", "--keep", "id")
    new, predicted = pl.read_csv("new.csv"), pl.read_csv("p.csv")
    assert predicted.columns == ["id", "prediction", "probability_no", "probability_yes"]
    assert predicted["id"].to_list() == new["id"].to_list()
    total = predicted["probability_no"] + predicted["probability_yes"]
    assert (total - 1).abs().max() < 1e-6
    surer = predicted["probability_yes"] > predicted["probability_no"]
    assert ((predicted["prediction"] == "yes") == surer).all()


def test_columns_may_come_in_any_order_and_company(model, done):
    done("predict", model, "new.csv", "-o", "p.csv")
    new = pl.read_csv("new.csv")
    new.select(reversed(new.columns)).with_columns(pl.lit(1).alias("extra")).write_csv("odd.csv")
    done("predict", model, "odd.csv", "-o", "odd-p.csv")
    assert Path("p.csv").read_bytes() == Path("odd-p.csv").read_bytes()


def test_parquet_in_and_out(model, done):
    done("predict", model, "new.csv", "-o", "p.csv")
    pl.read_csv("new.csv", try_parse_dates=True).write_parquet("new.parquet")
    done("predict", model, "new.parquet", "-o", "p.parquet")
    csv, parquet = pl.read_csv("p.csv"), pl.read_parquet("p.parquet")
    assert parquet["prediction"].to_list() == csv["prediction"].to_list()
    assert (parquet["probability_yes"] - csv["probability_yes"]).abs().max() < 1e-6


def test_codes_keep_their_zeros(tables, done, base):
    for name in ("train", "val", "test", "new"):
        codes = {"red": "007", "green": "7", "blue": "x1"}
        frame = pl.read_csv(f"{name}.csv").with_columns(pl.col("colour").replace_strict(codes))
        frame.write_csv(f"{name}.csv")
    done("fit", *base, "--out", "out")
    # A table that holds numbers only in this column would lose the zeros if it were read on its own.
    new = pl.read_csv("new.csv", schema_overrides={"colour": pl.String})
    new.filter(pl.col("colour") != "x1").write_csv("some.csv")
    done("predict", "out", "new.csv", "-o", "p.csv", "--keep", "id")
    done("predict", "out", "some.csv", "-o", "some-p.csv", "--keep", "id")
    every, some = pl.read_csv("p.csv"), pl.read_csv("some-p.csv")
    assert every.filter(pl.col("id").is_in(some["id"].implode())).equals(some)


def test_a_kept_column_must_not_hide_a_prediction(model, mixtree):
    pl.read_csv("new.csv").with_columns(pl.lit(1).alias("prediction")).write_csv("odd.csv")
    answer = mixtree("predict", model, "odd.csv", "-o", "p.csv", "--keep", "prediction")
    assert answer.code == 2
    assert "'prediction'" in answer.err
    assert not Path("p.csv").exists()


def test_truth_values_keep_their_spelling(tables, done, base):
    for name in ("train", "val", "test"):
        frame = pl.read_csv(f"{name}.csv").with_columns(pl.col("bought") == "yes")
        frame.write_csv(f"{name}.csv")
    done("fit", *base, "--out", "out")
    done("predict", "out", "new.csv", "-o", "p.csv")
    predicted = pl.read_csv("p.csv")
    assert predicted.columns == ["prediction", "probability_false", "probability_true"]
    assert predicted["prediction"].dtype == pl.Boolean


def test_it_says_what_was_written(model, done):
    assert "60 predictions written to p.csv" in done("predict", model, "new.csv", "-o", "p.csv").err


def test_rows_unlike_the_training_rows_are_told(model, done):
    assert "warning" not in done("predict", model, "new.csv", "-o", "p.csv").err
    new = pl.read_csv("new.csv")
    text = next(name for name in new.columns if new[name].dtype == pl.String and new[name].n_unique() < 10)
    new.with_columns(pl.lit("never seen").alias(text)).write_csv("other.csv")
    told = done("predict", model, "other.csv", "-o", "p.csv").err
    assert (
        f"warning: column {text!r} of other.csv: 100% of the rows have a value that no training row" in told
    )


def test_text_that_a_spreadsheet_would_run_is_escaped_when_asked(tables, done, mixtree, base):
    labels = {"yes": "=cmd|' /C calc'!A0", "no": "-1+1"}
    for name in ("train", "val", "test"):
        table = pl.read_csv(f"{name}.csv")
        table.with_columns(pl.col("bought").replace(labels)).write_csv(f"{name}.csv")
    done("fit", *base, "--out", "out")
    new = pl.read_csv("new.csv")
    odd = [pl.lit(-2).alias("=n"), pl.lit("@SUM(1)").alias("+t"), pl.lit("plain").alias("p")]
    new.with_columns(odd).write_csv("new.csv")
    keep = ["--keep", "=n", "--keep", "+t", "--keep", "p"]
    done("predict", "out", "new.csv", "-o", "as-they-are.csv", *keep)
    done("predict", "out", "new.csv", "-o", "escaped.csv", *keep, "--escape-formulas")
    plain, safe = (pl.read_csv(f"{name}.csv") for name in ("as-they-are", "escaped"))
    assert set(plain["prediction"]) == set(labels.values())
    assert safe["prediction"].to_list() == [f"'{each}" for each in plain["prediction"]]
    assert safe.columns[:3] == ["'=n", "'+t", "p"]
    assert safe["'+t"][0] == "'@SUM(1)" and safe["p"][0] == "plain" and safe["'=n"][0] == -2
    assert safe[:, 4:].equals(plain[:, 4:])
    refused = mixtree("predict", "out", "new.csv", "-o", "p.parquet", "--escape-formulas")
    assert refused.code == 2 and "--escape-formulas is for .csv" in refused.err
    assert not Path("p.parquet").exists()
