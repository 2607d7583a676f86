"""The mixture in the forms that other trainers read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from mixtree.errors import InputError

Weights = Mapping[str, float]


def as_json(weights: Weights, sizes: Mapping[str, int] | None = None) -> str:
    """A JSON object of weights by source.

    >>> as_json({"fl": 0.25, "ct": 0.75})
    '{"fl": 0.25, "ct": 0.75}'
    """
    return json.dumps(dict(weights), ensure_ascii=False)


def as_hugging_face(weights: Weights, sizes: Mapping[str, int] | None = None) -> str:
    """A call of ``datasets.interleave_datasets`` with these probabilities."""
    # A source of probability 0 is never exhausted: the call would not end.
    used = _used(weights)
    names = ", ".join(_python_name(name) for name in used)
    probabilities = ", ".join(repr(weight) for weight in used.values())
    return "\n".join(
        [
            f"# {', '.join(used)}",
            *_left_out(weights),
            f"interleave_datasets([{names}], probabilities=[{probabilities}], "
            'seed=0, stopping_strategy="all_exhausted")',
        ]
    )


def as_megatron(weights: Weights, sizes: Mapping[str, int] | None = None) -> str:
    """A Megatron-style blend: weight and data path in turn, for ``--data-path``.

    Megatron refuses weights of 0, and such a string holds no comment: those sources are left out.

    >>> as_megatron({"fl": 0.25, "ct": 0.75, "oh": 0.0})
    '0.25 fl 0.75 ct'
    """
    used = _used(weights)
    spaced = [name for name in used if any(letter.isspace() for letter in name)]
    if spaced:
        raise InputError(
            f"a blend string cannot hold source names with spaces: {', '.join(map(repr, spaced))}"
        )
    return " ".join(f"{weight!r} {name}" for name, weight in used.items())


def as_axolotl(weights: Weights, sizes: Mapping[str, int] | None = None) -> str:
    """An axolotl-style list of data sets with weights, in YAML."""
    rows = [
        f"  - path: {json.dumps(name, ensure_ascii=False)}\n    weight: {weight!r}"
        for name, weight in _used(weights).items()
    ]
    return "\n".join([*_left_out(weights), "datasets:", *rows])


def as_mosaic(weights: Weights, sizes: Mapping[str, int] | None = None) -> str:
    """MosaicML streaming: streams with proportions, in YAML."""
    rows = []
    for name, weight in _used(weights).items():
        text = json.dumps(name, ensure_ascii=False)
        rows.append(f"    {text}:\n      local: {text}\n      proportion: {weight!r}")
    return "\n".join([*_left_out(weights), "dataset:", "  streams:", *rows])


def as_sampler(weights: Weights, sizes: Mapping[str, int] | None = None) -> str:
    """The weight of one row of each source, for torch's WeightedRandomSampler over all rows."""
    if sizes is None or any(name not in sizes for name in weights):
        raise InputError(
            "sampler weights need the number of rows of every source, which this study does not know"
        )
    rows = {name: weight / sizes[name] for name, weight in weights.items()}
    return json.dumps(
        {"weight_of_a_row": rows, "rows": {name: sizes[name] for name in weights}}, ensure_ascii=False
    )


FORMATS: dict[str, Callable[[Weights, Mapping[str, int] | None], str]] = {
    "json": as_json,
    "huggingface": as_hugging_face,
    "megatron": as_megatron,
    "axolotl": as_axolotl,
    "mosaic": as_mosaic,
    "sampler": as_sampler,
}
"""Export formats by name."""


def export_mixture(weights: Weights, form: str, *, sizes: Mapping[str, int] | None = None) -> str:
    """The mixture in one of the FORMATS."""
    if form not in FORMATS:
        known = f"{', '.join(FORMATS)}; the command line also writes models, as onnx"
        raise InputError(f"unknown format {form!r}; choose one of {known}")
    return FORMATS[form](weights, sizes)


def _used(weights: Weights) -> dict[str, float]:
    """The sources that rows are drawn from."""
    return {name: weight for name, weight in weights.items() if weight > 0.0}


def _left_out(weights: Weights) -> list[str]:
    """A comment, for Python and YAML, that says which sources are missing."""
    names = [json.dumps(name, ensure_ascii=False) for name, weight in weights.items() if weight <= 0.0]
    return [f"# left out, since their weight is 0: {', '.join(names)}"] if names else []


def _python_name(name: str) -> str:
    return name if name.isidentifier() else "d_" + "".join(c if c.isalnum() else "_" for c in name)
