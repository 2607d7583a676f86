"""One BLAS thread inside, the former number outside."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mixtree.threads import one_thread


def _threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads():
    with one_thread():
        pass  # loads what there is
    with threadpool_limits(2, user_api="blas"):
        yield


def test_inside_it_is_one_and_outside_what_it_was():
    before = _threads()
    with one_thread():
        assert _threads() == {1}
        with one_thread():
            assert _threads() == {1}
        assert _threads() == {1}
    assert _threads() == before


def test_an_error_gives_the_threads_back():
    before = _threads()

    @one_thread()
    def failing() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert _threads() == before
