"""One BLAS thread: on small matrices several wait for each other, for up to a hundred times as long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  its BLAS is not numpy's, and only what is loaded can be told

    # Looking for the loaded libraries takes milliseconds; setting their threads takes microseconds.
    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Numpy and scipy use one thread inside this context, or inside a function that it decorates."""
    with _controller().limit(limits=1, user_api="blas"):
        yield
