from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from mixtree.data.sparse import as_csr, as_dense, as_table, is_sparse

DENSE = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
FORMATS = ("csr_array", "csr_matrix", "csc_array", "coo_matrix", "dok_array", "lil_array")


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_of_scipy_is_sparse_and_keeps_its_numbers(form: str) -> None:
    x = getattr(scipy.sparse, form)(DENSE)
    assert is_sparse(x)
    assert as_table(x).format == as_csr(x).format == "csr"
    for dense in (as_dense(x), as_table(x).toarray(), as_csr(x).toarray()):
        np.testing.assert_array_equal(dense, DENSE)


@pytest.mark.parametrize("x", [DENSE, DENSE.tolist(), None])
def test_what_is_dense_becomes_a_numpy_array(x: Any) -> None:
    assert not is_sparse(x)
    assert isinstance(as_table(x), np.ndarray)
    if x is not None:
        np.testing.assert_array_equal(as_csr(x).toarray(), DENSE)


def test_nothing_is_copied_without_need() -> None:
    csr = scipy.sparse.csr_array(DENSE)
    assert as_table(csr) is csr
    assert as_table(DENSE) is DENSE
    assert as_dense(DENSE) is DENSE
    assert np.shares_memory(as_csr(csr).data, csr.data)


def test_an_entry_stored_twice_is_added_up_in_a_copy() -> None:
    twice = scipy.sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    assert as_csr(twice).data.tolist() == [3.0]
    assert twice.nnz == 2


def test_dense_takes_the_type_that_is_asked_for() -> None:
    assert as_dense(DENSE, np.float32).dtype == np.float32
    assert as_dense(scipy.sparse.csr_array(DENSE.astype(np.int8)), np.float64).dtype == np.float64
    assert as_dense(scipy.sparse.csr_array(DENSE.astype(np.int8))).dtype == np.int8


def test_looking_for_sparse_arrays_does_not_import_scipy() -> None:
    code = "import sys, mixtree.data.sparse as s; s.is_sparse([1]); assert 'scipy.sparse' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
