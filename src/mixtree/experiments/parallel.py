"""Work spread over processes or a cluster; what a process has loaded stays there for its next tasks."""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from mixtree._native.threads import one_thread
from mixtree.engine.executors import Cluster, who_works
from mixtree.engine.executors.ray import connect
from mixtree.errors import TrainingError
from mixtree.metrics import AbsentClassWarning

Answer = TypeVar("Answer")


class Crew:
    """Worker processes, or tasks on a Ray cluster, one BLAS thread each; a crew of one works in this process.

    What tasks write must be in a folder that all machines of a cluster share.
    """

    def __init__(self, workers: int | str = 1) -> None:
        at_work = who_works(workers)
        self._pool: ProcessPoolExecutor | None = None
        self._cluster = at_work if isinstance(at_work, Cluster) else None
        if isinstance(at_work, int) and at_work > 1:
            context = multiprocessing.get_context("spawn")  # alike on every system, and safe with threads
            self._pool = ProcessPoolExecutor(at_work, mp_context=context)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, function: Callable[..., Answer], tasks: Sequence[tuple[Any, ...]]) -> Iterator[Answer]:
        """The answers as they come, in any order."""
        if self._cluster is not None:
            yield from _on_cluster(self._cluster, function, tasks)
            return
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


_SHARED = ("MIXTREE_DATA", "MPLBACKEND")
"""Settings that the machines of a cluster get from here."""


def _on_cluster(
    cluster: Cluster, function: Callable[..., Answer], tasks: Sequence[tuple[Any, ...]]
) -> Iterator[Answer]:
    """The answers of a cluster; Ray repeats tasks whose machine is lost."""
    ray = connect(cluster)
    remote = ray.remote(num_cpus=cluster.num_cpus, num_gpus=cluster.num_gpus, max_retries=3)(_there)
    settings = {name: os.environ[name] for name in _SHARED if name in os.environ}
    here = (list(filter(None, sys.path)), str(Path.cwd()), settings)
    left = iter(tasks)
    # Tasks that wait cost nothing: with as many as there are, machines that join later find work.
    running = [remote.remote(*here, function, task) for task in islice(left, cluster.workers)]
    try:
        while running:
            (done,), running = ray.wait(running)
            try:
                answer = ray.get(done)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.RayError as error:
                raise TrainingError(
                    f"a worker of the cluster was lost again and again ({type(error).__name__}): run the "
                    "same command again; runs that have finished are kept"
                ) from error
            running += [remote.remote(*here, function, task) for task in islice(left, 1)]
            yield answer
    finally:
        for task in running:
            ray.cancel(task, force=True)


def _there(
    modules: Sequence[str],
    folder: str,
    settings: dict[str, str],
    function: Callable[..., Answer],
    task: tuple[Any, ...],
) -> Answer:
    """A task on a machine of the cluster, which finds modules and files as the command does."""
    sys.path.extend(each for each in modules if each not in sys.path and Path(each).exists())
    os.environ.update(settings)
    if Path(folder).is_dir():
        os.chdir(folder)
    return _alone(function, task)
