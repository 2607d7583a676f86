import json
import sys
from types import ModuleType

import numpy as np
import pytest

from mixtree.errors import InputError
from mixtree.export.mixture import FORMATS, export_mixture

WEIGHTS = {"fl": 0.1, "ct": 0.2, "öh": 0.7}
SIZES = {"fl": 10, "ct": 20, "öh": 70}


def test_json_keeps_every_digit():
    third = {"a": 1 / 3, "b": 2 / 3}
    assert json.loads(export_mixture(third, "json")) == third


class Stream:
    """A stream of ``datasets`` that remembers what was asked of it."""

    def __init__(self, name, calls=()):
        self.name, self.calls = name, calls

    def shuffle(self, *, seed):
        return type(self)(self.name, (*self.calls, ("shuffle", seed)))

    def repeat(self, times):
        return Stream(self.name, (*self.calls, ("repeat", times)))

    def take(self, rows):
        return Stream(self.name, (*self.calls, ("take", rows)))


class Table:
    """A data set that is no stream."""

    def __init__(self, name):
        self.name = name

    def shuffle(self, *, seed):
        return self

    def to_iterable_dataset(self):
        return Stream(self.name, (("stream",),))


def interleave_datasets(datasets, probabilities=None, seed=None, stopping_strategy="first_exhausted"):
    return Stream(datasets, ((probabilities, seed, stopping_strategy),))


@pytest.fixture
def defined(monkeypatch):
    """What an export for Hugging Face defines, run as a script that imports what it needs."""
    module = ModuleType("datasets")
    module.IterableDataset, module.interleave_datasets = Stream, interleave_datasets
    monkeypatch.setitem(sys.modules, "datasets", module)

    def run(weights):
        names = {}
        exec(compile(export_mixture(weights, "huggingface"), "export", "exec"), names)
        return names

    return run


def test_hugging_face_streams_as_many_rows_as_are_wanted(defined):
    sources = {"fl": Stream("fl"), "ct": Table("ct"), "öh": Stream("öh")}
    made = defined(WEIGHTS)["mixed"](sources, 500, seed=3)
    # Sources that end begin anew: a small weight neither ends the stream nor makes it long.
    shuffled = (("shuffle", 3), ("repeat", None))
    assert [(each.name, each.calls) for each in made.name] == [
        ("fl", shuffled),
        ("ct", (("stream",), ("repeat", None))),
        ("öh", shuffled),
    ]
    assert made.calls == (([0.1, 0.2, 0.7], 3, "first_exhausted"), ("take", 500))


def test_hugging_face_leaves_out_what_no_row_is_drawn_from(defined):
    weights = {"fl": 0.25, "new\nyork": 0.0, "öh": 0.75}
    text = export_mixture(weights, "huggingface")
    assert '# left out, since their weight is 0: "new\\nyork"' in text.splitlines()
    assert defined(weights)["WEIGHTS"] == {"fl": 0.25, "öh": 0.75}


HOSTILE = [
    *("a b", "a-b", "class", "None", "1st", "", "{rows}", "%s", "'", '"', "\\", "#", ": x", "- y", "öh", "𝒳"),
    '"}\nimport os; os.abort()  # ',
    *(f"x{sign}import os; os.abort()" for sign in "\n\r\t\0\f\x1b\x7f\x85\u2028\u2029\ufeff\U000e0001"),
]


def test_hugging_face_takes_any_name_as_it_is(defined):
    weights = dict(zip(HOSTILE, np.full(len(HOSTILE), 1 / len(HOSTILE)), strict=True))
    found = defined(weights)
    assert found["WEIGHTS"] == weights
    assert set(found) - {"__builtins__"} == {"IterableDataset", "interleave_datasets", "WEIGHTS", "mixed"}
    left_out = dict.fromkeys(HOSTILE, 0.0) | {"used": 1.0}
    assert defined(left_out)["WEIGHTS"] == {"used": 1.0}


@pytest.mark.parametrize("form", ["axolotl", "mosaic"])
def test_yaml_takes_any_name_as_it_is(form):
    yaml = pytest.importorskip("yaml")
    used = HOSTILE[::2]
    weights = {name: 1 / len(used) if name in used else 0.0 for name in HOSTILE}
    tree = yaml.safe_load(export_mixture(weights, form, sizes=dict.fromkeys(HOSTILE, 10)))
    if form == "axolotl":
        assert [each["path"] for each in tree["datasets"]] == used
    else:
        assert list(tree["dataset"]["streams"]) == used


def test_axolotl_keeps_fractions_of_the_sources():
    yaml = pytest.importorskip("yaml")
    sizes = {"fl": 1000, "ct": 50, "öh": 700}
    text = export_mixture(WEIGHTS, "axolotl", sizes=sizes)
    kept = {each["path"]: each["weight"] for each in yaml.safe_load(text)["datasets"]}
    # f_k = (w_k / n_k) / max_j (w_j / n_j): ct is short of rows, .2 / 50.
    assert kept == pytest.approx({"fl": 0.0001 / 0.004, "ct": 1.0, "öh": 0.001 / 0.004})
    rows = np.array([kept[name] * sizes[name] for name in WEIGHTS])
    assert rows / rows.sum() == pytest.approx(list(WEIGHTS.values()))
    assert "an epoch is 250 rows" in text.splitlines()[0]


@pytest.mark.parametrize("form", ["axolotl", "sampler"])
@pytest.mark.parametrize("sizes", [None, {}, {"fl": 10, "ct": 20}])
def test_without_the_sources_rows_it_is_said_what_to_do(form, sizes):
    with pytest.raises(
        InputError, match=rf"'{form}' needs the number of rows of every source.*'öh' is not"
    ) as error:
        export_mixture(WEIGHTS, form, sizes=sizes)
    assert f"export_mixture({WEIGHTS!r}, {form!r}, sizes=" in str(error.value)


def test_axolotl_needs_no_rows_of_a_source_that_is_left_out():
    text = export_mixture({"fl": 1.0, "ct": 0.0}, "axolotl", sizes={"fl": 3})
    assert "weight: 1.0" in text


@pytest.mark.parametrize("form", ["megatron", "axolotl", "mosaic"])
def test_blends_hold_no_weight_of_zero(form):
    text = export_mixture({"fl": 0.25, "new york": 0.0, "öh": 0.75}, form, sizes=SIZES)
    without = [line for line in text.splitlines() if not line.startswith("# left out")]
    assert "\n".join(without) == export_mixture({"fl": 0.25, "öh": 0.75}, form, sizes=SIZES)
    assert form == "megatron" or '# left out, since their weight is 0: "new york"' in text


@pytest.mark.parametrize("form", ["json", "sampler"])
def test_records_keep_every_source(form):
    assert '"ct": 0.0' in export_mixture({"fl": 1.0, "ct": 0.0}, form, sizes=SIZES)


def test_megatron_refuses_spaces():
    assert export_mixture(WEIGHTS, "megatron") == "0.1 fl 0.2 ct 0.7 öh"
    with pytest.raises(InputError, match="spaces"):
        export_mixture({"new york": 1.0}, "megatron")


def test_mosaic_has_proportions():
    yaml = pytest.importorskip("yaml")
    tree = yaml.safe_load(export_mixture(WEIGHTS, "mosaic"))
    assert {name: each["proportion"] for name, each in tree["dataset"]["streams"].items()} == WEIGHTS


def test_sampler_weights_give_the_mixture_back():
    exported = json.loads(export_mixture(WEIGHTS, "sampler", sizes=SIZES))
    drawn = np.array([exported["weight_of_a_row"][name] * SIZES[name] for name in WEIGHTS])
    assert drawn / drawn.sum() == pytest.approx(list(WEIGHTS.values()))


def test_unknown_format_lists_the_formats():
    with pytest.raises(InputError, match=", ".join(FORMATS)):
        export_mixture(WEIGHTS, "csv")


@pytest.mark.parametrize("form", ["json", "sampler", "huggingface", "axolotl", "mosaic"])
def test_no_name_steers_a_terminal(form):
    names = ["safe\u202egnp.exe", "\x1b[31mred", "\U000e0041tag"]
    text = export_mixture(dict.fromkeys(names, 1 / 3), form, sizes=dict.fromkeys(names, 5))
    assert all(each.isprintable() or each == "\n" for each in text)
    if form == "json":
        assert list(json.loads(text)) == names


def test_a_blend_string_holds_no_name_that_steers_a_terminal():
    with pytest.raises(InputError, match="source names with spaces or control characters: 'x.u202e'"):
        export_mixture({"x\u202e": 1.0}, "megatron")
