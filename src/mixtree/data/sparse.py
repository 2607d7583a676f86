"""Sparse features: asked for and converted here alone, so that no other module looks for scipy's methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def is_sparse(x: object) -> bool:
    """Whether x is a sparse array or matrix of scipy, in any format.

    Told by its method, not its class: importing ``scipy.sparse`` takes half a second, and only who has a
    sparse array needs it.
    """
    return hasattr(x, "tocsr")


def as_table(x: Any) -> Any:
    """Rows that can be taken by index: a sparse x in CSR, everything else as a numpy array.

    Nothing is copied where x is one of the two already.
    """
    return x.tocsr() if is_sparse(x) else np.asarray(x)


def as_csr(x: Any) -> Any:
    """A CSR array in which every entry is stored once, from a sparse or a dense x."""
    from scipy.sparse import csr_array

    table = csr_array(x)
    if not table.has_canonical_format:
        table = table.copy()
        table.sum_duplicates()
    return table


def as_dense(x: Any, dtype: DTypeLike | None = None) -> NDArray[Any]:
    """A numpy array of a sparse or a dense x, of this type, or of its own if ``dtype`` is None."""
    return np.asarray(x.toarray() if is_sparse(x) else x, dtype=dtype)
