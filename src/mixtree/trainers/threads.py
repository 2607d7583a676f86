"""One BLAS thread: on small layers several are slower, by up to a hundred times."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    # Looking for the loaded libraries takes milliseconds; setting their threads takes microseconds.
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """Numpy and scipy use one thread inside this context."""
    context: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return context
