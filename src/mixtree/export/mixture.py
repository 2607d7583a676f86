"""The mixture in the forms that other trainers read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from mixtree.errors import InputError

Weights = Mapping[str, float]
Sizes = Mapping[str, int]


def as_json(weights: Weights, sizes: Sizes) -> str:
    """A JSON object of weights by source.

    >>> as_json({"fl": 0.25, "ct": 0.75}, {})
    '{"fl": 0.25, "ct": 0.75}'
    """
    return _json(dict(weights))


def as_hugging_face(weights: Weights, sizes: Sizes) -> str:
    """Python with ``datasets``: a function that gives a stream of the mixture, of as many rows as are wanted.

    Sources begin anew when they end, so that a small weight neither ends the stream nor makes it long.
    """
    left_out = "".join(f"{line}\n" for line in _left_out(weights))
    rows = "\n".join(f"    {_quoted(name)}: {weight!r}," for name, weight in _used(weights).items())
    return _HUGGING_FACE.format(left_out=left_out, rows=rows)


_HUGGING_FACE = '''\
from datasets import IterableDataset, interleave_datasets

{left_out}WEIGHTS = {{
{rows}
}}


def mixed(sources, rows, seed=0):
    """A stream of so many rows of the mixture; ``sources`` are data sets of the same columns, by name."""
    streams = []
    for name in WEIGHTS:
        source = sources[name].shuffle(seed=seed)
        if not isinstance(source, IterableDataset):
            source = source.to_iterable_dataset()
        streams.append(source.repeat(None))
    weights = list(WEIGHTS.values())
    stream = interleave_datasets(streams, weights, seed=seed, stopping_strategy="first_exhausted")
    return stream.take(rows)'''


def as_megatron(weights: Weights, sizes: Sizes) -> str:
    """A Megatron-style blend: weight and data path in turn, for ``--data-path``.

    Megatron refuses weights of 0, and such a string holds no comment: those sources are left out.

    >>> as_megatron({"fl": 0.25, "ct": 0.75, "oh": 0.0}, {})
    '0.25 fl 0.75 ct'
    """
    used = _used(weights)
    spaced = [name for name in used if any(each.isspace() or not each.isprintable() for each in name)]
    if spaced:
        raise InputError(
            "a blend string cannot hold source names with spaces or control characters: "
            f"{', '.join(map(repr, spaced))}"
        )
    return " ".join(f"{weight!r} {name}" for name, weight in used.items())


def as_axolotl(weights: Weights, sizes: Sizes) -> str:
    """An axolotl list of data sets, in YAML; a weight there is the fraction of a source's rows to keep.

    The source that is short of rows is kept whole, and of the others as much as makes the mixture.
    """
    used = _used(weights)
    _check_sizes("axolotl", used, sizes)
    most = max(weight / sizes[name] for name, weight in used.items())
    kept = {name: weight / sizes[name] / most for name, weight in used.items()}
    rows = [f"  - path: {_quoted(name)}\n    weight: {fraction!r}" for name, fraction in kept.items()]
    epoch = round(sum(fraction * sizes[name] for name, fraction in kept.items()))
    about = f"# weight: the fraction of a source's rows to keep; an epoch is {epoch} rows"
    return "\n".join([about, *_left_out(weights), "datasets:", *rows])


def as_mosaic(weights: Weights, sizes: Sizes) -> str:
    """MosaicML streaming: streams with proportions, in YAML."""
    rows = []
    for name, weight in _used(weights).items():
        text = _quoted(name)
        rows.append(f"    {text}:\n      local: {text}\n      proportion: {weight!r}")
    return "\n".join([*_left_out(weights), "dataset:", "  streams:", *rows])


def as_sampler(weights: Weights, sizes: Sizes) -> str:
    """The weight of one row of each source, for torch's WeightedRandomSampler over all rows."""
    _check_sizes("sampler", weights, sizes)
    rows = {name: weight / sizes[name] for name, weight in weights.items()}
    return _json({"weight_of_a_row": rows, "rows": {name: sizes[name] for name in weights}})


FORMATS: dict[str, Callable[[Weights, Sizes], str]] = {
    "json": as_json,
    "huggingface": as_hugging_face,
    "megatron": as_megatron,
    "axolotl": as_axolotl,
    "mosaic": as_mosaic,
    "sampler": as_sampler,
}
"""Export formats by name."""


def export_mixture(weights: Weights, form: str, *, sizes: Sizes | None = None) -> str:
    """The mixture as a text that another trainer reads.

    Parameters
    ----------
    weights : mapping of float
        The weight of every source, by its name.
    form : str
        One of ``FORMATS``.
    sizes : mapping of int, optional
        The rows of every source; ``axolotl`` and ``sampler`` need them.

    Returns
    -------
    str

    Examples
    --------
    >>> export_mixture({"fl": 0.25, "ct": 0.75}, "megatron")
    '0.25 fl 0.75 ct'
    """
    if form not in FORMATS:
        known = f"{', '.join(FORMATS)}; the command line also writes models, as onnx"
        raise InputError(f"unknown format {form!r}; choose one of {known}")
    # As plain numbers: numpy's have another text.
    return FORMATS[form]({name: float(weight) for name, weight in weights.items()}, sizes or {})


def _check_sizes(form: str, weights: Weights, sizes: Sizes) -> None:
    missing = [name for name in weights if name not in sizes]
    if not missing:
        return
    raise InputError(
        f"format {form!r} needs the number of rows of every source, and that of "
        f"{', '.join(map(repr, missing))} is not known: the study is of an older version, or its trainer has "
        "no rows of its own. Give them in Python: from mixtree.export.mixture import export_mixture; "
        f"export_mixture({dict(weights)!r}, {form!r}, sizes={{{missing[0]!r}: 1000, …}})"
    )


def _used(weights: Weights) -> dict[str, float]:
    """The sources that rows are drawn from."""
    return {name: weight for name, weight in weights.items() if weight > 0.0}


def _left_out(weights: Weights) -> list[str]:
    """A comment, for Python and YAML, that says which sources are missing."""
    names = [_quoted(name) for name, weight in weights.items() if weight <= 0.0]
    return [f"# left out, since their weight is 0: {', '.join(names)}"] if names else []


def _json(content: Mapping[str, Any]) -> str:
    """JSON without letters that steer a terminal."""
    text = json.dumps(content, ensure_ascii=False)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _quoted(name: str) -> str:
    """A text in double quotes as Python and YAML read it back; a comment that holds it stays on its line."""
    # YAML breaks lines at more characters than Python and JSON do.
    text = json.dumps(name, ensure_ascii=False)
    return "".join(each if each.isprintable() else _escaped(ord(each)) for each in text)


def _escaped(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
