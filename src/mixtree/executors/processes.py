"""Local worker processes: the trainer and its data go to each once; models travel through checkpoints."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from mixtree.errors import StorageError, TrainingError
from mixtree.executors.base import Done, Runner, Task
from mixtree.states import States
from mixtree.storage.checkpoints import Checkpoints
from mixtree.trainer import Trainer

logger = logging.getLogger(__name__)

# spawn is the one way that works alike on Linux, macOS and Windows, and with threads in the parent.
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    task: Task | None = None


class ProcessExecutor:
    """Several processes; one that dies is replaced and its task repeated, up to ``max_failures`` times."""

    def __init__(
        self,
        trainer: Trainer[Any],
        checkpoints: Checkpoints,
        *,
        seed: int,
        init_seed: int,
        workers: int,
        max_failures: int = 3,
    ) -> None:
        self._setup = (trainer, checkpoints, seed, init_seed)
        self._max_failures = max_failures
        self._count = workers
        self._workers: list[_Worker] = []

    def run(self, tasks: Sequence[Task]) -> Iterator[Done]:
        waiting = deque(tasks)
        failures: dict[int, int] = {}
        self._fill(len(tasks))
        self._hand_out(waiting)
        while any(worker.task is not None for worker in self._workers):
            busy = [worker for worker in self._workers if worker.task is not None]
            ready = wait([worker.pipe for worker in busy])
            for worker in busy:
                if worker.pipe in ready:
                    done = self._collect(worker, failures)
                    if done is None and worker.task is not None:
                        waiting.appendleft(worker.task)
                    worker.task = None
                    if not worker.process.is_alive():
                        self._workers.remove(worker)
                        self._fill(len(waiting) + len(busy))
                    self._hand_out(waiting)
                    if done is not None:
                        yield done

    def _fill(self, wanted: int) -> None:
        while len(self._workers) < min(self._count, wanted):
            here, there = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_work, args=(there, *self._setup), daemon=True)
            process.start()
            there.close()
            self._workers.append(_Worker(process, here))

    def _hand_out(self, waiting: deque[Task]) -> None:
        for worker in self._workers:
            if worker.task is None and waiting:
                worker.task = waiting.popleft()
                try:
                    worker.pipe.send(worker.task)
                except (BrokenPipeError, OSError):
                    continue  # it died in between: the closed pipe is seen as ready and the task repeated

    def _collect(self, worker: _Worker, failures: dict[int, int]) -> Done | None:
        """What a worker sent; None if it died and its task is to be repeated."""
        task = worker.task
        assert task is not None
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            count = failures[id(task)] = failures.get(id(task), 0) + 1
            paths = ", ".join(str(trial.path) for trial in task.trials)
            message = f"a worker died with exit code {worker.process.exitcode} while training {paths}"
            logger.warning("%s (failure %d of %d)", message, count, self._max_failures)
            if count < self._max_failures:
                return None
            return Done(task, failure=f"{message}, {count} times")
        if isinstance(answer, Done):
            # The answer is about a copy of the task; the caller knows its own.
            return Done(task, answer.evaluations, answer.seconds, answer.lost)
        kind, message, trace = answer
        self.close()
        raised = StorageError if kind == "StorageError" else TrainingError
        raise raised(f"{message}\n\nin a worker process:\n{trace}")

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
        self._workers = []


def _work(
    pipe: Connection, trainer: Trainer[Any], checkpoints: Checkpoints, seed: int, init_seed: int
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which lets the round finish
    runner = Runner(trainer, States(trainer, checkpoints), seed=seed, init_seed=init_seed)
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return  # the parent is gone or wants no more
        answer: Done | tuple[str, str, str]
        try:
            done = runner.run(task)
            answer = Done(Task((), done.task.fresh), done.evaluations, done.seconds, done.lost)
        except Exception as error:  # whatever the user's code raises is reported to the parent, loudly
            answer = (type(error).__name__, f"{type(error).__name__}: {error}", traceback.format_exc())
        pipe.send(answer)
