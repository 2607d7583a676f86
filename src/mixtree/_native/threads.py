"""One BLAS thread: on small matrices several wait for each other, for up to a hundred times as long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  its BLAS is not numpy's, and only what is loaded can be told

    # Looking for the loaded libraries takes milliseconds; setting their threads takes microseconds.
    return ThreadpoolController()


_lock = Lock()
_inside = 0
_before: Any = None


@contextmanager
def one_thread() -> Iterator[None]:
    """Numpy and scipy use one thread inside this context, or inside a function that it decorates.

    The limit is the whole process's. Where contexts of several Python threads overlap, the first one sets it
    and the last one, whichever that is, gives the threads back.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _take_over()
            _before = _controller().limit(limits=1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                _take_over()
                _before.restore_original_limits()
                _take_over()


def _take_over() -> None:
    """threadpoolctl 3.8 and later lets only the Python thread that set a limit change it, unless told."""
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)
