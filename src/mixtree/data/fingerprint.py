"""Fingerprints: is this the same data, and are these the same settings, as when the study began?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from mixtree.data.identity import ADDRESS, identity
from mixtree.data.sources import Rows, Sources
from mixtree.data.sparse import is_sparse


def data_fingerprint(sources: Sources) -> str:
    """A short text that changes with any row, label, weight, name or order of the data."""
    total = blake2b(digest_size=16)
    total.update(json.dumps([list(sources.names), sources.classes]).encode())
    for part in (*sources.rows, sources.validation):
        _add(total, part)
    return total.hexdigest()


def rows_fingerprint(part: Rows) -> str:
    """How many rows, and a short text that changes with any of them."""
    total = blake2b(digest_size=6)
    _add(total, part)
    return f"{len(part):,} rows #{total.hexdigest()}"


def _add(total: blake2b, part: Rows) -> None:
    x = part.x.tocsr() if is_sparse(part.x) else part.x
    arrays = (x.data, x.indices, x.indptr) if is_sparse(x) else (x,)
    total.update(f"{type(x).__name__}{x.shape}".encode())
    for array in (*arrays, part.y, part.weight):
        if array is None:
            total.update(b"none")
            continue
        solid = np.ascontiguousarray(array)
        total.update(f"{solid.dtype.str}{solid.shape}".encode())
        total.update(solid.reshape(-1).view(np.uint8).data)


def settings(part: Any) -> dict[str, Any]:
    """What a search, trainer or objective says of its own settings; its name where it says nothing."""
    describe = getattr(part, "describe", None)
    told = describe() if describe is not None else {}
    name = identity(part) if describe is None and callable(part) else type(part).__qualname__
    # Through JSON and back: what is compared later is what the database gives back. An object without a text
    # of its own shows its address, which is another one in every process.
    text = ADDRESS.sub("", json.dumps({"type": name, **told}, default=_plain))
    plain: dict[str, Any] = json.loads(text)
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return identity(value) if callable(value) else str(value)


def model_key(*parts: Any) -> str:
    """A short text that studies share only if all that decides their models is the same."""
    return blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()


def differences(
    then: dict[str, Any], now: dict[str, Any], *, within: str = "", leave_out: Sequence[str] = ()
) -> list[str]:
    """Which settings differ, in words.

    >>> differences({"lr": 0.1, "seed": 1}, {"lr": 0.2, "seed": 1})
    ['lr was 0.1, is 0.2']
    """
    found = []
    for key in dict.fromkeys([*then, *now]):
        if key in leave_out:
            continue
        old, new = then.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, within=f"{within}{key}.")
        elif old != new:
            found.append(f"{within}{key} was {old!r}, is {new!r}")
    return found
