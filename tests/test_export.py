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


def test_hugging_face_leaves_out_what_would_never_be_exhausted():
    calls = []
    names = {"fl": 1, "öh": 3, "interleave_datasets": lambda *a, **k: calls.append((a, k))}
    text = export_mixture({"fl": 0.25, "new\nyork": 0.0, "öh": 0.75}, "huggingface")
    assert '# left out, since their weight is 0: "new\\nyork"' in text.splitlines()
    exec(text, names)
    assert calls[0][0] == ([1, 3],)
    assert calls[0][1]["probabilities"] == [0.25, 0.75]


@pytest.mark.parametrize("form", ["megatron", "axolotl", "mosaic"])
def test_blends_hold_no_weight_of_zero(form):
    text = export_mixture({"fl": 0.25, "new york": 0.0, "öh": 0.75}, form)
    without = [line for line in text.splitlines() if not line.startswith("#")]
    assert "\n".join(without) == export_mixture({"fl": 0.25, "öh": 0.75}, form)
    assert form == "megatron" or text.startswith('# left out, since their weight is 0: "new york"')


@pytest.mark.parametrize("form", ["json", "sampler"])
def test_records_keep_every_source(form):
    assert '"ct": 0.0' in export_mixture({"fl": 1.0, "ct": 0.0}, form, sizes=SIZES)


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
