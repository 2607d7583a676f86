"""One BLAS thread inside, the former number outside."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from mixtree._native.threads import one_thread


def _threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    with one_thread():
        pass  # loads what there is
    with threadpool_limits(2, user_api="blas"):
        if _threads() != {2}:
            pytest.skip("this BLAS has one thread only")
        yield


def test_inside_it_is_one_and_outside_what_it_was() -> None:
    with one_thread():
        assert _threads() == {1}
        with one_thread():
            assert _threads() == {1}
        assert _threads() == {1}
    assert _threads() == {2}


def test_a_function_that_it_decorates_may_fail_and_be_called_again() -> None:
    seen = []

    @one_thread()
    def failing() -> None:
        seen.append(_threads())
        raise KeyError

    for _ in range(2):
        with pytest.raises(KeyError):
            failing()
        assert _threads() == {2}
    assert seen == [{1}, {1}]


@pytest.mark.parametrize("first", ["leaves first", "leaves last"])
def test_contexts_of_several_python_threads_may_overlap(first: str) -> None:
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            entered.set()
            leave.wait(10)
        left.set()

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert entered.wait(10)
        if first == "leaves last":
            leave.set()
            assert left.wait(10)
            assert _threads() == {1}
    if first == "leaves first":
        assert _threads() == {1}  # the other one is still inside
        leave.set()
        assert left.wait(10)
    thread.join()
    assert _threads() == {2}
