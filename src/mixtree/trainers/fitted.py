"""Fitted scikit-learn estimators as JSON and named arrays, and back: nothing is ever pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.errors import TrainingError

_REMADE = {"_loss_function_"}  # compiled objects that every partial_fit makes anew


def to_arrays(estimator: Any) -> tuple[str, dict[str, NDArray[Any]]]:
    """What fitting added to an estimator: JSON, and the read-only arrays that it names."""
    arrays: dict[str, NDArray[Any]] = {}
    parameters = estimator.get_params(deep=False)
    fitted = {name: value for name, value in vars(estimator).items() if name not in parameters}
    return json.dumps(_encode_attributes(fitted, "", arrays)), arrays


def restore(estimator: Any, attributes: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Give an unfitted estimator the attributes that were saved of a fitted one."""
    for name, node in json.loads(attributes).items():
        setattr(estimator, name, _decode(node, arrays))


def frozen(value: Any) -> NDArray[Any]:
    """A read-only copy, row-major as every store of arrays has it: a trip to disk changes no layout."""
    array = np.array(value, order="C")
    array.flags.writeable = False
    return array


def _encode_attributes(
    values: Mapping[str, Any], prefix: str, arrays: dict[str, NDArray[Any]]
) -> dict[str, Any]:
    return {
        name: _encode(value, f"{prefix}{name}", arrays)
        for name, value in values.items()
        if name not in _REMADE
    }


def _encode(value: Any, name: str, arrays: dict[str, NDArray[Any]]) -> Any:
    """JSON for a value; its arrays go into ``arrays`` under names that the JSON tells."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        arrays[name] = frozen(np.atleast_1d(value))  # not every store keeps arrays without a dimension
        return {"array" if value.ndim else "scalar": name}
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    if isinstance(value, list) and value and all(type(item) is np.float64 for item in value):
        arrays[name] = frozen(np.array(value))  # a loss curve: one array, not one per step
        return {"numbers": name}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encode(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]}
    if isinstance(value, dict) and all(isinstance(key, str | int | float | np.generic) for key in value):
        pairs = enumerate(value.items())
        return {"dict": [_encode(pair, f"{name}.{i}", arrays)["tuple"] for i, pair in pairs]}
    if isinstance(value, np.random.RandomState):
        return {"random": _encode(value.get_state(legacy=True), name, arrays)}
    made = type(value)
    if made.__module__.startswith("sklearn.") and hasattr(value, "__dict__"):
        attributes = _encode_attributes(vars(value), f"{name}.", arrays)
        return {"object": [made.__module__, made.__qualname__], "attributes": attributes}
    raise TrainingError(
        f"the estimator's attribute {name!r} is a {made.__module__}.{made.__qualname__}, which cannot be "
        "saved: a state holds numbers, text, arrays, lists, dicts and scikit-learn's own objects"
    )


def _decode(node: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value that was encoded, in memory of its own: training changes arrays in place."""
    if not isinstance(node, dict):
        return node
    kind, content = next(iter(node.items()))
    match kind:
        case "array":
            return np.array(arrays[content])
        case "scalar":
            return arrays[content][0]
        case "numbers":
            return list(arrays[content])
        case "list":
            return [_decode(item, arrays) for item in content]
        case "tuple":
            return tuple(_decode(item, arrays) for item in content)
        case "dict":
            return {_decode(key, arrays): _decode(item, arrays) for key, item in content}
        case "random":
            stream = np.random.RandomState(0)
            stream.set_state(_decode(content, arrays))
            return stream
        case _:
            made = _sklearn_class(*content)
            result = made.__new__(made)
            result.__dict__.update({name: _decode(item, arrays) for name, item in node["attributes"].items()})
            return result


def _sklearn_class(module: str, name: str) -> Any:
    """A class of scikit-learn by its name. Nothing else is ever looked up: a saved state runs no code."""
    found = getattr(import_module(module), name, None) if module.startswith("sklearn.") else None
    if not isinstance(found, type) or not found.__module__.startswith("sklearn."):
        raise TrainingError(f"a saved state names {module}.{name}, which is no class of scikit-learn")
    return found
