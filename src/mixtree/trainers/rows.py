"""The rows that a trainer draws from, in one table, and the saved form of a model's place in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sampling import Cursor, Sampler
from mixtree.data.sources import Rows, Sources
from mixtree.data.sparse import is_sparse
from mixtree.errors import InputError
from mixtree.trainer import Job

_MOST_AT_ONCE = 1 << 30
"""Rows whose numbers are drawn for one job: 8 GB of them."""


def stacked(parts: Sequence[Rows]) -> Rows:
    """All rows in one table: dense, or CSR as soon as one part is sparse.

    Weights stay None when no part has any, so that models which know no row weights are not asked for them.
    """
    return Rows(
        stacked_features([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        None if all(part.weight is None for part in parts) else np.concatenate([p.weights for p in parts]),
    )


def stacked_features(parts: Sequence[Any]) -> Any:
    """Features in one table: dense, or CSR as soon as one part is sparse."""
    if not any(is_sparse(part) for part in parts):
        return np.concatenate([np.asarray(part) for part in parts])
    from scipy import sparse

    return sparse.vstack([sparse.csr_matrix(part) for part in parts], format="csr")


def balanced_weights(sources: Sources) -> NDArray[np.float64]:
    """A factor per class that gives all the same total weight; one that only the target has keeps 1."""
    counts = np.bincount(np.concatenate([part.y for part in sources.rows]), minlength=sources.classes)
    present = np.count_nonzero(counts)
    return np.where(counts > 0, counts.sum() / (present * np.maximum(counts, 1)), 1.0)


def draw(
    sampler: Sampler, job: Job[Any], cursor: Cursor, batch_size: int
) -> tuple[NDArray[np.int64], Cursor]:
    """The rows that a job reads, and the cursor after them.

    Parameters
    ----------
    sampler : Sampler
        Draws from the trainer's rows.
    job : Job
        Its mixture, steps and seed; a part of a longer stage reads what the whole stage would.
    cursor : Cursor
        What the job's model has read before.
    batch_size : int
        Rows per step.

    Returns
    -------
    rows : array (steps, batch size)
        Positions in the trainer's rows.
    cursor : Cursor
    """
    count, part = job.steps * batch_size, job.part
    if count > _MOST_AT_ONCE:
        raise InputError(
            f"{job.steps:,} steps of {batch_size:,} rows at once are more than memory holds: fewer steps per "
            "node (--steps), more segments (--segments), or smaller batches (--batch-size)"
        )
    if part is None:
        rows, cursor = sampler.draw(job.mixture, count, seed=job.seed, cursor=cursor)
    else:
        rows, cursor = sampler.draw(
            job.mixture,
            count,
            seed=part.seed,
            cursor=cursor,
            before=part.before * batch_size,
            total=part.total * batch_size,
        )
    return rows.reshape(job.steps, batch_size), cursor


def check_merge(states: Sequence[Any], weights: Sequence[float]) -> None:
    """Refuse to merge nothing, or models without a weight for each."""
    if not len(states) or len(states) != len(weights):
        raise InputError(f"merging needs models and one weight each; got {len(states)} and {len(weights)}")


def save_cursor(cursor: Cursor) -> dict[str, NDArray[Any]]:
    """A cursor as named arrays."""
    arrays = {"drawn": cursor.drawn, "order": np.array([cursor.order], dtype=np.uint64)}
    return arrays if cursor.random is None else {**arrays, "random": cursor.random}


def load_cursor(arrays: Mapping[str, NDArray[Any]]) -> Cursor:
    """The cursor that was saved."""
    random = arrays.get("random")
    return Cursor(
        np.array(arrays["drawn"]), int(arrays["order"][0]), None if random is None else np.array(random)
    )


def as_bytes(array: NDArray[Any]) -> bytes:
    """The bytes that were saved as an array of uint8."""
    return np.ascontiguousarray(array, dtype=np.uint8).tobytes()


def from_bytes(data: bytes | bytearray) -> NDArray[np.uint8]:
    """Bytes as an array of uint8, which every store of arrays can keep."""
    return np.frombuffer(bytes(data), dtype=np.uint8)
