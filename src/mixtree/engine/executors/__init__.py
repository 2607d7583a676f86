"""Who does the work of a round: this process, several, or a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mixtree.engine.executors.base import Executor, Runner, SerialExecutor
from mixtree.engine.executors.processes import ProcessExecutor, leave_if_unguarded
from mixtree.engine.executors.ray import Cluster, RayExecutor
from mixtree.engine.models import Models
from mixtree.errors import InputError

__all__ = ["Cluster", "start_executor", "who_works"]

if TYPE_CHECKING:
    from mixtree.engine.loop import Limits


def who_works(workers: object) -> int | Cluster:
    """So many processes, or the cluster of a text that begins with ``ray``; an error for anything else."""
    if isinstance(workers, str) and workers.startswith("ray"):
        return Cluster.parse(workers)
    if not isinstance(workers, int | np.integer) or workers < 1:
        raise InputError(
            f"workers must be a whole number of at least 1; got {workers!r} (for a cluster: ray, "
            "ray:HOST:PORT or ray://HOST:PORT)"
        )
    if workers > 1:
        leave_if_unguarded()
    return int(workers)


def start_executor(runner: Runner[Any], models: Models[Any], limits: Limits) -> Executor:
    """The executor for these workers.

    Parameters
    ----------
    runner
        What works in this process.
    models
        Those of the study, which the runner keeps too.
    limits
        Who works, and how often a worker may die of one trial.
    """
    if isinstance(limits.workers, Cluster):
        return RayExecutor(runner, models, limits.workers, max_failures=limits.max_failures)
    if limits.workers == 1:
        return SerialExecutor(runner)
    return ProcessExecutor(runner, models, workers=limits.workers, max_failures=limits.max_failures)
