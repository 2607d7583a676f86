"""LightGBM's model files, looked through before the library reads them.

The library follows what a file says to wherever it leads, beyond its memory too: a file that was cut or
edited ends the process. What is checked here is all that its reader counts on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

_NUMBER = r"(?:-?\d{1,25}(?:\.\d{0,25})?(?:e[+-]?\d{1,3})?|-?inf|nan)"
_NUMBERS = re.compile(rf"(?:{_NUMBER}(?: {_NUMBER})*)?", re.ASCII)
_OBJECTIVE = re.compile(rf"[a-z_0-9]+(?: [a-z_0-9]+:{_NUMBER}| sqrt)*", re.ASCII)
_RANGES = re.compile(rf"(?:none|\[{_NUMBER}:{_NUMBER}\]|-?\d+(?::-?\d+)*)", re.ASCII)
_SETTING = re.compile(r"\[\w+: .*\]", re.ASCII)
_OF_CLASSES = ("binary", "multiclass", "multiclassova", "softmax", "ova")
_BY_SPLIT = (
    "split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child",
    "internal_value", "internal_weight", "internal_count",
)  # fmt: skip
_BY_LEAF = ("leaf_value", "leaf_weight", "leaf_count")


def check_lightgbm(model: str, *, features: int, outputs: int, objective: str | None) -> None:
    """ValueError for a model file that is not as the library writes it.

    ``objective`` is that of a classification; that of a regression may be any of its own.
    """
    header, _, _ = model.partition("\n\n")
    trees, mark, end = model[len(header) + 2 :].partition("\nend of trees\n")
    settings, last, names = end.partition("\nend of parameters\n")
    if not header.startswith("tree\n") or not mark or not last:
        raise ValueError("it has no beginning or no end")
    about = _fields(header)
    expected = {
        "num_class": outputs,
        "num_tree_per_iteration": outputs,
        "label_index": 0,
        "max_feature_idx": features - 1,
    }
    for name, value in expected.items():
        if about.get(name) != str(value):
            raise ValueError(f"{name} must be {value}; found {about.get(name)}")
    kind = about.get("objective", "none")  # of a user's own function nothing is written
    own = kind.split(" ")[0]
    if not _OBJECTIVE.fullmatch(kind) or (own in _OF_CLASSES if objective is None else own != objective):
        raise ValueError(f"objective {kind!r} is another one")
    if f" num_class:{outputs}" not in kind and "num_class:" in kind:
        raise ValueError("its objective has another number of classes")
    ranges = about.get("feature_infos", "").split(" ")
    if len(ranges) != features or not all(map(_RANGES.fullmatch, ranges)):
        raise ValueError("feature_infos is damaged")
    if len(about.get("feature_names", "").split(" ")) != features:
        raise ValueError("feature_names is damaged")
    sizes = _whole_numbers(about, "tree_sizes")
    if sizes.min() < 1 or sizes.sum() != len(trees) + 1 or len(sizes) % outputs:
        raise ValueError("its trees are not as long as it says")
    for number, (size, stop) in enumerate(zip(sizes, np.cumsum(sizes), strict=True)):
        text = f"{trees}\n"[stop - size : stop]
        if not text.startswith(f"Tree={number}\n"):
            raise ValueError(f"tree {number} does not begin where it should")
        _check_tree(_fields(text), features)
    _, begun, given = settings.partition("\nparameters:\n")
    if not begun or not all(map(_SETTING.fullmatch, filter(None, given.splitlines()))):
        raise ValueError("its parameters are damaged")
    json.loads(names.strip().removeprefix("pandas_categorical:"))


def _check_tree(tree: Mapping[str, str], features: int) -> None:
    for name, text in tree.items():
        if not _NUMBERS.fullmatch(text):
            raise ValueError(f"{name} of a tree holds no numbers")
    leaves, cats = (int(_whole_numbers(tree, name, 1)[0]) for name in ("num_leaves", "num_cat"))
    splits = leaves - 1
    if leaves == 1:  # nothing to follow
        if len(tree.get("leaf_value", "").split()) != 1:
            raise ValueError("a tree has other leaves than it says")
        return
    lengths = {**dict.fromkeys(_BY_SPLIT, splits), **dict.fromkeys(_BY_LEAF, leaves)}
    for name, length in lengths.items():
        if len(tree.get(name, "").split()) != length:
            raise ValueError(f"{name} of a tree is missing or not as long as it should be")
    used = _whole_numbers(tree, "split_feature")
    if used.min() < 0 or used.max() >= features:
        raise ValueError("a tree splits a column that is not there")
    # Splits are numbered in the order in which they were made: below one there are later ones, or leaves.
    children = np.stack([_whole_numbers(tree, name) for name in ("left_child", "right_child")])
    inner = children >= 0
    below = np.sort(np.where(inner, children, leaves - 1 - children), axis=None)
    every = np.concatenate([np.arange(1, splits), np.arange(leaves, 2 * leaves)])
    if (inner & (children <= np.arange(splits))).any() or not np.array_equal(below, every):
        raise ValueError("a tree is not joined together")
    by_category = _whole_numbers(tree, "decision_type") & 1 == 1
    places = np.array(tree["threshold"].split(), dtype=np.float64)[by_category]
    bounds = _whole_numbers(tree, "cat_boundaries", cats + 1) if cats else np.zeros(1, dtype=np.int64)
    if by_category.any() and not 0 <= places.min() <= places.max() < cats:
        raise ValueError("a tree has categories that are not there")
    if bounds[0] or (np.diff(bounds) < 1).any():
        raise ValueError("a tree has categories in no order")
    if cats and _whole_numbers(tree, "cat_threshold", int(bounds[-1])).min() < 0:
        raise ValueError("a tree has categories below 0")
    if tree.get("is_linear", "0") != "0":
        counts = _whole_numbers(tree, "num_features", leaves)
        columns = [int(each) for each in tree.get("leaf_features", "").split()]
        sound = counts.min() >= 0 and all(0 <= each < features for each in columns)
        coefficients = len(tree.get("leaf_coeff", "").split())
        if not sound or not counts.sum() == len(columns) == coefficients:
            raise ValueError("a tree's linear leaves are damaged")
        if len(tree.get("leaf_const", "").split()) != leaves:
            raise ValueError("a tree's linear leaves are damaged")


def _fields(text: str) -> dict[str, str]:
    """The lines ``name=value`` of a part of a model file."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if line and (not name or name in found or not (sign or line == "tree")):
            raise ValueError(f"the line {line[:40]!r} is there twice, or has no name")
        if line:
            found[name] = " ".join(value.split())
    return found


def _whole_numbers(fields: Mapping[str, str], name: str, count: int | None = None) -> NDArray[np.int64]:
    words = fields.get(name, "").split()
    if not words or (count is not None and len(words) != count) or max(map(len, words)) > 12:
        raise ValueError(f"{name} is missing or not as long as it should be")
    return np.array(words, dtype=np.int64)
