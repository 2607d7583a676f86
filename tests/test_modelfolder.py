"""The model folder: written whole, read back without the training data."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from mixtree.data.tables import TableSpec, load_tables
from mixtree.errors import InputError
from mixtree.modelfolder import load_model, model_card, read_about, write_model
from mixtree.models import ModelOptions, make_trainer

SOURCES = {"a|b": 0.25, "ö": 0.75}


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    x = rng.normal(size=40)
    return pl.DataFrame({"x": x, "colour": rng.choice(["r", "g"], 40), "y": np.where(x > 0, "yes", "no")})


@pytest.fixture
def folder(tmp_path, frame):
    """A model folder, and the probabilities that its trainer gave before it was written."""
    data = load_tables(TableSpec(tables={name: frame for name in SOURCES}, label="y", val=frame[:10]), seed=0)
    trainer = make_trainer("linear", data.problem_sources, ModelOptions())
    state = trainer.init(3)
    about = {
        "study": "fit",
        "policy": "mixmatch-bisect+commit",
        "label": "y",
        "classes": list(data.classes),
        "sources": list(SOURCES),
        "model": {"name": "linear", "features": data.problem_sources.features, "lr": None, "batch_size": 50},
        "mixture": SOURCES,
        "metric": "auroc",
        "val_score": 0.75,
        "test_score": 0.5,
        "budget": 10,
        "spent": {"root": 10},
        "rows": {"sources": {"a|b": 40, "ö": 40}, "validation": 10, "test": 4},
        "seed": 0,
        "data": "abc",
        "verdict": None,
    }
    place = tmp_path / "out"
    write_model(place, arrays=trainer.save(state), preprocessor=data.preprocessor, about=about)
    return place, trainer.predict(state, data.preprocessor.transform(frame)), about


def test_a_folder_predicts_as_the_trainer_did(folder, frame):
    place, expected, _ = folder
    loaded = load_model(place)
    scores = loaded.scores(frame.drop("y").with_columns(pl.lit(1).alias("extra")))
    np.testing.assert_array_equal(scores, expected)
    np.testing.assert_array_equal(loaded.predict(frame), np.array(["no", "yes"])[expected.argmax(axis=1)])


def test_a_model_of_sparse_features_predicts_from_them(folder, frame):
    place, expected, about = folder
    whole = load_model(place)
    thin = replace(whole.preprocessor, sparse=True)
    write_model(place, arrays=whole.trainer.save(whole.state), preprocessor=thin, about=about)
    loaded = load_model(place)
    assert loaded.trainer.sparse and not whole.trainer.sparse  # wide tables would not fit into memory
    np.testing.assert_allclose(loaded.scores(frame), expected, rtol=1e-5)


def test_other_files_stay_and_nothing_is_left_over(folder, frame):
    place, _, about = folder
    (place / "notes.txt").write_text("mine")
    loaded = load_model(place)
    arrays = loaded.trainer.save(loaded.state)
    write_model(place, arrays=arrays, preprocessor=loaded.preprocessor, about={**about, "seed": 9})
    assert {each.name for each in place.iterdir()} == {
        "MODEL_CARD.md", "model.json", "notes.txt", "preprocessing", "weights.safetensors",
    }  # fmt: skip
    assert read_about(place)["seed"] == 9


def test_the_verdict_is_a_file_and_a_section(folder):
    place, _, about = folder
    loaded = load_model(place)
    verdict = {
        "sentence": "Not distinguishable from a|b. Expect auroc 0.8.",
        "comparison": "Not distinguishable from a|b.",
        "expectation": "Expect auroc 0.8.",
        "next_step": "Use the model.",
        "against": [{"name": "a|b", "difference": 0.01, "low": -0.1, "high": 0.2, "p": None}],
        "queries": 3,
        "notes": ["a note"],
        "reference_spent": {"a|b": 40},
        "warnings": ["few rows"],
    }
    new = {**about, "verdict": verdict, "certificate": "No mixture is better by more than 0.1."}
    files = {"arrays": loaded.trainer.save(loaded.state), "preprocessor": loaded.preprocessor}
    write_model(place, about=new, **files)
    assert json.loads((place / "verdict.json").read_text()) == verdict
    card = (place / "MODEL_CARD.md").read_text(encoding="utf-8")
    for words in (
        "## Verdict\n- Not distinguishable from a|b.\n- Expect auroc 0.8.\n- Next: use the model.\n"
        "- **Warning:** few rows\n",
        "| a\\|b | +0.0100 | −0.1000 … +0.2000 | – |",
        "\n- a note\n- steps trained for this verdict, outside the budget: a|b 40",
        "No mixture is better by more than 0.1.",
    ):
        assert words in card
    write_model(place, about=about, **files)
    assert not (place / "verdict.json").exists()  # it was another model's


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "These rows chose the mixture, so this number is optimistic"),
        ({"mixture": {"target": 1.0}}, "also trained on these rows, so this number says nothing"),
    ],
)
def test_the_card_says_what_the_validation_rows_did(folder, changes, words):
    assert words in model_card({**folder[2], "versions": {"mixtree": "1"}, **changes})


def test_the_metadata_names_versions(folder):
    versions = read_about(folder[0])["versions"]
    assert {"mixtree", "numpy", "scikit-learn", "python"} <= set(versions)


def test_the_card_is_for_people(folder):
    text = (folder[0] / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "| a\\|b | 0.250 |" in text
    assert "auroc on 10 validation rows: 0.7500" in text
    assert "4 test rows: 0.5000" in text


def test_the_card_of_a_regression_without_test_rows(folder):
    about = {
        **folder[2],
        "versions": {"mixtree": "1"},
        "classes": None,
        "test_score": None,
        "val_score": None,
    }
    text = model_card(about)
    assert "(regression)" in text
    assert "not available" in text
    assert "chose nothing" not in text


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("model.json", None, "no model folder"),
        ("model.json", "{", "cannot be read"),
        ("model.json", "[]", "damaged"),
        ("model.json", "{}", "damaged"),
        ("weights.safetensors", None, "no model folder"),
        ("weights.safetensors", "x", "damaged"),
        ("preprocessing/preprocessing.json", None, "no such file"),
        ("preprocessing/preprocessing.json", "{}", "damaged"),
    ],
)
def test_a_damaged_folder_says_which_file(folder, file, content, message):
    place = folder[0]
    if content is None:
        (place / file).unlink()
    else:
        (place / file).write_text(content)
    with pytest.raises(InputError, match=message):
        load_model(place)


def test_a_newer_format_asks_for_an_upgrade(folder):
    about = read_about(folder[0])
    (folder[0] / "model.json").write_text(json.dumps({**about, "format": 99}))
    with pytest.raises(InputError, match="upgrade"):
        load_model(folder[0])


def test_a_folder_whose_study_has_not_finished(tmp_path):
    with pytest.raises(InputError, match="make one with mixtree fit"):
        read_about(tmp_path)
    (tmp_path / "study.db").touch()
    with pytest.raises(InputError, match="its study has not finished: go on with it .mixtree resume"):
        read_about(tmp_path)
