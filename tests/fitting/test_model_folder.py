"""The model folder: written whole, read back without the training data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file, save_file

from mixtree.data.tables import TableSpec, load_tables
from mixtree.errors import InputError
from mixtree.fitting import model_folder as modelfolder
from mixtree.fitting.model_folder import WEIGHTS, check_own, load_model, model_card, read_about, write_model
from mixtree.trainers.registry import ModelOptions, make_trainer

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
        "## Verdict\n- Not distinguishable from a\\|b.\n- Expect auroc 0.8.\n- Next: use the model.\n"
        "- **Warning:** few rows\n",
        "| a\\|b | +0.0100 | −0.1000 … +0.2000 | – |",
        "\n- a note\n- steps trained for this verdict, outside the budget: a\\|b 40",
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
        ("model.json", "{", "damaged"),
        ("model.json", "[]", "damaged"),
        ("model.json", "{}", "damaged"),
        ("weights.safetensors", None, "no model folder"),
        ("weights.safetensors", "x", "damaged"),
        ("preprocessing/preprocessing.json", None, "no model folder"),
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


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "1"),
        ("model", {"name": "linear"}),
        ("model", {"name": "linear", "features": 10**12, "lr": None, "batch_size": 50}),
        ("model", {"name": "linear", "features": 4, "lr": None, "batch_size": 50}),
        ("model", {"name": "mlp", "features": 3, "lr": None, "batch_size": 50}),
        ("model", {"name": "none of ours", "features": 3, "lr": None, "batch_size": 50}),
        ("model", {"name": "linear", "features": 3, "lr": "fast", "batch_size": 50}),
        ("sources", "ab"),
        ("sources", []),
        ("sources", ["a", "a"]),
        ("sources", ["a\udcff"]),
        ("classes", ["no"]),
        ("classes", ["no", "no"]),
        ("classes", ["no", 1]),
        ("classes", ["no", "yes", "maybe"]),
        ("classes", {"no": 1}),
        ("digests", {"weights.safetensors": 3}),
        ("label", 3),
        ("label_scale", [0.0]),
        ("label_scale", [0.0, 0.0]),
        ("label_scale", ["a", 1.0]),
        ("storage", 3),
        ("val_score", "high"),
    ],
)
def test_edited_metadata_is_refused(folder, key, value):
    place = folder[0]
    about = json.loads((place / "model.json").read_text(encoding="utf-8"))
    assert about["model"]["features"] == 3
    (place / "model.json").write_text(json.dumps({**about, key: value}))
    with pytest.raises(InputError, match="is damaged"):
        load_model(place)


def test_a_study_s_file_need_not_have_a_name_in_utf_8(folder):
    place, _, about = folder
    loaded = load_model(place)
    files = {"arrays": loaded.trainer.save(loaded.state), "preprocessor": loaded.preprocessor}
    write_model(place, about={**about, "storage": "/srv/\udcff.db"}, **files)
    assert read_about(place)["storage"] == "/srv/\udcff.db"


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


def edited(place, name, change):
    arrays = load_file(place / WEIGHTS)
    save_file({**arrays, name: change(arrays[name])}, place / WEIGHTS)


def swapped(place):
    write_other(place.parent / "other", place)
    shutil.copy(place.parent / "other" / WEIGHTS, place / WEIGHTS)


def swapped_features(place):
    write_other(place.parent / "other", place)
    name = "preprocessing/preprocessing.json"
    shutil.copy(place.parent / "other" / name, place / name)


def write_other(other, place):
    """A model of the same shape, with other weights and other features."""
    whole = load_model(place)
    arrays = {name: array + 1 for name, array in whole.trainer.save(whole.state).items()}
    features = replace(whole.preprocessor, means=whole.preprocessor.means + 1)
    write_model(other, arrays=arrays, preprocessor=features, about=whole.about)


@pytest.mark.parametrize(
    "attack",
    [
        swapped,
        swapped_features,
        lambda place: edited(place, "parameters", lambda array: array * np.nan),
        lambda place: edited(place, "parameters", lambda array: array.astype(np.int64)),
        lambda place: edited(place, "parameters", lambda array: array[:0]),
        lambda place: save_file({}, place / WEIGHTS),
    ],
)
def test_weights_and_features_of_another_model_are_refused(folder, attack):
    attack(folder[0])
    with pytest.raises(InputError, match="is damaged, or of another model: model.json has another digest"):
        load_model(folder[0])


def test_weights_of_nan_are_refused_even_with_the_right_digest(folder):
    whole = load_model(folder[0])
    arrays = {
        name: array * np.nan if name == "parameters" else array
        for name, array in whole.trainer.save(whole.state).items()
    }
    write_model(folder[0], arrays=arrays, preprocessor=whole.preprocessor, about=whole.about)
    with pytest.raises(InputError, match="weights.safetensors holds NaN in 'parameters'"):
        load_model(folder[0])


def test_a_folder_is_read_as_it_is_where_it_cannot_be_written_to(folder, frame, monkeypatch):
    place = folder[0]
    write_other(place.parent / "other", place)
    expected = load_model(place.parent / "other").scores(frame)
    (place.parent / "other").rename(place / ".mixtree-new")  # as a killed writer leaves it, but for its depth
    (place / ".mixtree-new" / "preprocessing" / "preprocessing.json").rename(
        place / ".mixtree-new" / "preprocessing.json"
    )
    (place / ".mixtree-new" / "preprocessing").rmdir()

    def refuse(*_):
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(modelfolder, "settle", refuse)
        np.testing.assert_array_equal(load_model(place).scores(frame), expected)
    assert (place / ".mixtree-new").exists()
    np.testing.assert_array_equal(load_model(place).scores(frame), expected)
    assert not (place / ".mixtree-new").exists()


@pytest.mark.parametrize("reader", ["read_weights", "read_preprocessor"])
def test_a_model_that_is_replaced_while_it_is_read_is_read_again(folder, frame, monkeypatch, reader):
    place = folder[0]
    write_other(place.parent / "other", place)
    other = load_model(place.parent / "other")
    new = {"arrays": other.trainer.save(other.state), "preprocessor": other.preprocessor}
    read, left = getattr(modelfolder, reader), [True]

    def late(*given):
        if left:
            left.clear()
            write_model(place, about={**other.about, "seed": 5}, **new)
        return read(*given)

    monkeypatch.setattr(modelfolder, reader, late)
    loaded = load_model(place)
    assert loaded.about["seed"] == 5
    np.testing.assert_array_equal(loaded.scores(frame), other.scores(frame))


@pytest.mark.parametrize(
    "name", ["model.json", "weights.safetensors", "MODEL_CARD.md", "verdict.json", "preprocessing/clean.py"]
)
def test_files_of_somebody_else_are_not_replaced(folder, tmp_path, name):
    whole = load_model(folder[0])
    place = tmp_path / "mine"
    (place / name).parent.mkdir(parents=True)
    (place / name).write_text("mine")
    with pytest.raises(InputError, match=f"mine holds {name.split('/')[0]}, which mixtree did not write"):
        write_model(
            place, arrays=whole.trainer.save(whole.state), preprocessor=whole.preprocessor, about=folder[2]
        )
    assert [each for each in place.rglob("*") if each.is_file()] == [place / name]
    assert (place / name).read_text() == "mine"


@pytest.mark.parametrize("name", ["weights.safetensors", "MODEL_CARD.md", "verdict.json"])
def test_files_put_into_a_model_s_folder_are_not_replaced(folder, name):
    place = folder[0]
    check_own(place)
    (place / name).write_text("mine")
    with pytest.raises(InputError, match=f"holds {name}, which mixtree did not write, or which was changed"):
        check_own(place)
