"""Work spread over local processes; what a process has loaded stays there for its next tasks."""

from __future__ import annotations

import logging
import multiprocessing
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from mixtree._native.threads import one_thread
from mixtree.errors import InputError, TrainingError
from mixtree.metrics import AbsentClassWarning

Answer = TypeVar("Answer")


class Crew:
    """Worker processes, one BLAS thread each; a crew of one works in this process."""

    def __init__(self, workers: int = 1) -> None:
        if workers < 1:
            raise InputError(f"workers must be at least 1; got {workers}")
        self._pool: ProcessPoolExecutor | None = None
        if workers > 1:
            context = multiprocessing.get_context("spawn")  # alike on every system, and safe with threads
            self._pool = ProcessPoolExecutor(workers, mp_context=context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, function: Callable[..., Answer], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Answer]:
        """The answers as they come, in any order."""
        if self._pool is None:
            for task in tasks:
                yield _alone(function, task)
            return
        try:
            for future in as_completed([self._pool.submit(_alone, function, task) for task in tasks]):
                yield future.result()
        except BrokenProcessPool as error:
            raise TrainingError(
                "a worker process died, perhaps for lack of memory: run the same command again, with fewer "
                "workers if need be; runs that have finished are kept"
            ) from error


@contextmanager
def quietly() -> Iterator[None]:
    """No words about diverged nodes and absent classes: in these runs they are results, not accidents."""
    logger = logging.getLogger("mixtree")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AbsentClassWarning)
            yield
    finally:
        logger.setLevel(before)


def _alone(function: Callable[..., Answer], task: tuple[Any, ...]) -> Answer:
    with one_thread():
        return function(*task)
