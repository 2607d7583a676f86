"""Who does the work of a round: this process, or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mixtree.engine.executors.base import Executor, Runner, SerialExecutor
from mixtree.engine.executors.processes import ProcessExecutor

if TYPE_CHECKING:
    from mixtree.engine.loop import Limits


def start_executor(runner: Runner[Any], limits: Limits) -> Executor:
    """The executor for so many workers."""
    if limits.workers == 1:
        return SerialExecutor(runner)
    return ProcessExecutor(runner, workers=limits.workers, max_failures=limits.max_failures)
