"""ONNX: the exported graph predicts what the model predicts."""

from __future__ import annotations

import builtins
import json

import numpy as np
import pytest

from mixtree.data.sources import Rows, Sources
from mixtree.errors import InputError, MissingExtraError
from mixtree.export.onnx import network_to_onnx
from mixtree.trainers.mlp import MlpTrainer


def sources(classes: int) -> Sources:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 7)).astype(np.float32)
    y = rng.integers(0, classes, 60) if classes else x[:, 0] * 2.0
    return Sources.from_dict({"a": Rows(x, y)}, Rows(x, y), classes=classes)


def computed(model: bytes, x: np.ndarray) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"features": x})[0]


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
@pytest.mark.parametrize("hidden", [(), (8,), (16, 5, 4)])
@pytest.mark.parametrize("classes", [0, 2, 4])
def test_the_graph_agrees_with_the_model(activation, hidden, classes):
    pytest.importorskip("onnx")
    trainer = MlpTrainer(sources(classes), hidden=hidden, activation=activation)
    state = trainer.init(1)
    x = np.random.default_rng(2).normal(size=(33, 7)).astype(np.float32)
    expected = trainer.predict(state, x)
    found = computed(network_to_onnx(trainer, state.parameters, metadata={}), x)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_folder_as_the_command_exports_it(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    import polars as pl
    from typer.testing import CliRunner

    from mixtree.cli import app
    from mixtree.fitting.model_folder import load_model

    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"x": rng.normal(size=90), "colour": rng.choice(["r", "g"], 90)})
    frame = frame.with_columns(
        (pl.col("x") > 0).alias("y"), pl.Series("s", ["a", "b", "c"] * 30), pl.lit(1.5).alias("z")
    )
    frame.write_csv(tmp_path / "t.csv")
    frame[:30].drop("s").with_columns(pl.col("x") + 0.1).write_csv(tmp_path / "v.csv")
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> None:
        result = CliRunner().invoke(app, args)
        assert result.exit_code == 0, result.output

    run(
        "fit",
        "t.csv",
        "--source-col",
        "s",
        "--label",
        "y",
        "--val",
        "v.csv",
        "--budget",
        "20",
        "--out",
        "out",
    )
    run("export", "out", "--format", "onnx", "-o", "m.onnx")
    loaded = load_model("out")
    x = loaded.preprocessor.transform(frame)
    model = (tmp_path / "m.onnx").read_bytes()
    np.testing.assert_allclose(computed(model, x), loaded.scores(frame), atol=1e-5)
    import onnx

    said = {each.key: each.value for each in onnx.load_from_string(model).metadata_props}
    assert json.loads(said["features"]) == list(loaded.preprocessor.feature_names)
    assert json.loads(said["classes"]) == [False, True]
    assert said["label"] == "y"


def test_other_families_are_refused(tmp_path, monkeypatch):
    from mixtree.export import onnx as module

    class Loaded:
        trainer = object()
        about = {"model": {"name": "lightgbm"}}

    monkeypatch.setattr(module, "load_model", lambda folder: Loaded())
    with pytest.raises(InputError, match="lightgbm"):
        module.to_onnx(tmp_path)


def test_a_missing_package_names_the_extra(monkeypatch):
    real = builtins.__import__

    def without(name: str, *args: object, **options: object) -> object:
        if name.split(".")[0] == "onnx":
            raise ImportError(name)
        return real(name, *args, **options)  # type: ignore[arg-type]

    trainer = MlpTrainer(sources(2), hidden=())
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"mixtree\[onnx\]"):
        network_to_onnx(trainer, trainer.init(0).parameters, metadata={})
