import json

import numpy as np
import pytest

from mixtree.errors import InputError
from mixtree.export import FORMATS, export_mixture

WEIGHTS = {"fl": 0.1, "ct": 0.2, "öh": 0.7}
SIZES = {"fl": 10, "ct": 20, "öh": 70}


def test_json_keeps_every_digit():
    third = {"a": 1 / 3, "b": 2 / 3}
    assert json.loads(export_mixture(third, "json")) == third


def test_hugging_face_is_a_valid_call():
    calls = []
    names = {"fl": 1, "ct": 2, "öh": 3, "interleave_datasets": lambda *a, **k: calls.append((a, k))}
    exec(export_mixture(WEIGHTS, "huggingface"), names)
    (positional, keywords) = calls[0]
    assert positional == ([1, 2, 3],)
    assert keywords["probabilities"] == [0.1, 0.2, 0.7]


def test_megatron_refuses_spaces():
    assert export_mixture(WEIGHTS, "megatron") == "0.1 fl 0.2 ct 0.7 öh"
    with pytest.raises(InputError, match="spaces"):
        export_mixture({"new york": 1.0}, "megatron")


@pytest.mark.parametrize("form", ["axolotl", "mosaic"])
def test_yaml_parses(form):
    yaml = pytest.importorskip("yaml")
    tree = yaml.safe_load(export_mixture(WEIGHTS, form))
    if form == "axolotl":
        assert {each["path"]: each["weight"] for each in tree["datasets"]} == WEIGHTS
    else:
        assert {name: each["proportion"] for name, each in tree["dataset"]["streams"].items()} == WEIGHTS


def test_sampler_weights_give_the_mixture_back():
    exported = json.loads(export_mixture(WEIGHTS, "sampler", sizes=SIZES))
    drawn = np.array([exported["weight_of_a_row"][name] * SIZES[name] for name in WEIGHTS])
    assert drawn / drawn.sum() == pytest.approx(list(WEIGHTS.values()))
    with pytest.raises(InputError, match="number of rows"):
        export_mixture(WEIGHTS, "sampler")


def test_unknown_format_lists_the_formats():
    with pytest.raises(InputError, match=", ".join(FORMATS)):
        export_mixture(WEIGHTS, "csv")
