"""Local worker processes: the trainer and its data go to each once; models travel through checkpoints.

A worker says that it is there before anything is sent to it: what is written to a process that died while it
started (a script without a guard, say) would wait for a reader for ever.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from mixtree.engine.executors.base import Done, Group, Runner, answer, one_torch_thread, refused
from mixtree.engine.models import Models
from mixtree.errors import InputError, TrainingError
from mixtree.trainer import as_trainer, given

logger = logging.getLogger(__name__)

# spawn is the one way that works alike on Linux, macOS and Windows, and with threads in the parent.
_CONTEXT = multiprocessing.get_context("spawn")
_HERE, _READY = "here", "ready"
_UNGUARDED = 70
"""Exit code of a worker that ran the whole script again, which would have started workers of its own."""
_GUARD = 'a script that trains with several workers needs its calls under: if __name__ == "__main__":'


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    here: bool = False
    """It has told that it is there, and was sent the trainer."""
    started: bool = False
    """It has told that it is ready: the trainer arrived there."""
    group: Group | None = None


class ProcessExecutor:
    """Several processes; one that dies is replaced and its group repeated, up to ``max_failures`` times."""

    def __init__(
        self, runner: Runner[Any], models: Models[Any], *, workers: int, max_failures: int = 3
    ) -> None:
        trainer, checkpoints = given(runner.trainer), models.on_disk()
        self._setup = (trainer, checkpoints, runner.seed, runner.init_seed)
        self._max_failures = max_failures
        self.workers = workers
        self._workers: list[_Worker] = []
        self._stillborn = 0
        self._fresh = False

    def run(self, groups: Sequence[Group], *, fresh: bool) -> Iterator[Done]:
        self._fresh = fresh
        waiting = deque(groups)
        failures: dict[int, int] = {}
        self._fill(len(groups))
        self._hand_out(waiting)
        while busy := [worker for worker in self._workers if worker.group is not None]:
            ready = wait([worker.pipe for worker in busy])
            for worker in busy:
                if worker.pipe in ready:
                    done = self._collect(worker, waiting, failures)
                    self._hand_out(waiting)
                    if done is not None:
                        yield done

    def _fill(self, wanted: int) -> None:
        while len(self._workers) < min(self.workers, wanted):
            here, there = _CONTEXT.Pipe()
            process = _CONTEXT.Process(target=_work, args=(there,), daemon=True)
            try:
                with _no_interrupts():
                    process.start()
            finally:
                there.close()
            self._workers.append(_Worker(process, here))

    def _hand_out(self, waiting: deque[Group]) -> None:
        for worker in self._workers:
            if worker.group is None and waiting:
                worker.group = waiting.popleft()
                if worker.here:
                    self._send(worker, pickle.dumps((worker.group, self._fresh)))

    def _welcome(self, worker: _Worker) -> None:
        """Send what a new worker needs, and the group that waits for it."""
        try:
            setup = pickle.dumps(self._setup)
        except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
            raise InputError(
                f"{type(self._setup[0]).__name__} cannot be sent to worker processes ({error}): "
                "use workers=1, or keep functions and classes that it holds at the top of a module"
            ) from error
        worker.here = True
        self._send(worker, setup)
        self._send(worker, pickle.dumps((worker.group, self._fresh)))

    @staticmethod
    def _send(worker: _Worker, what: Any) -> None:
        # A worker that died in between is seen by its closed pipe, and its group repeated.
        with suppress(OSError):
            worker.pipe.send_bytes(what)

    def _collect(self, worker: _Worker, waiting: deque[Group], failures: dict[int, int]) -> Done | None:
        """What a worker has done; None if there is nothing yet, or if it died and its group waits again."""
        group = worker.group
        assert group is not None
        try:
            answer = worker.pipe.recv()
        except (EOFError, OSError):
            answer = None
        if answer is None:
            return self._bury(worker, group, waiting, failures)
        if answer == _HERE:
            self._welcome(worker)
            return None
        if answer == _READY:
            worker.started, self._stillborn = True, 0
            return None
        worker.group = None
        if isinstance(answer, Done):
            # The answer is about a copy of the group; the caller knows its own.
            return Done(group, answer.evaluations, answer.seconds, answer.lost)
        raise refused(answer, "a worker process")

    def _bury(
        self, worker: _Worker, group: Group, waiting: deque[Group], failures: dict[int, int]
    ) -> Done | None:
        """Replace a dead worker; its group waits again unless it was the death of too many."""
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        code = worker.process.exitcode
        done = None
        if worker.started:
            count = failures[id(group)] = failures.get(id(group), 0) + 1
            paths = ", ".join(str(trial.path) for trial in group)
            message = f"a worker died with exit code {code} while training {paths}"
            logger.warning("%s (failure %d of %d)", message, count, self._max_failures)
            if count >= self._max_failures:
                done = Done(group, failure=f"{message}, {count} times")
        else:
            if code == _UNGUARDED:
                raise InputError(_GUARD)
            self._stillborn += 1
            if self._stillborn >= self._max_failures:
                raise TrainingError(
                    f"worker processes die before they begin (exit code {code}; see their messages above): "
                    f"the trainer's class must be importable there, and {_GUARD}"
                )
        if done is None:
            waiting.appendleft(group)
        self._fill(len(waiting) + sum(each.group is not None for each in self._workers))
        return done

    def close(self) -> None:
        for worker in self._workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join()
        self._workers = []


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Processes started meanwhile never see Ctrl-C: it is for the parent, which lets the round finish."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_if_unguarded() -> None:
    """End a worker that runs the user's script once more, before it begins the same study again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # as multiprocessing itself asks
        sys.exit(_UNGUARDED)


def _work(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where signals cannot be blocked at the start
    threading.Thread(target=_die_with_parent, daemon=True).start()
    pipe.send(_HERE)
    trainer, checkpoints, seed, init_seed = pipe.recv()
    one_torch_thread()
    trainer = as_trainer(trainer)
    runner = Runner(trainer, Models(trainer, checkpoints), seed=seed, init_seed=init_seed)
    try:
        pipe.send(_READY)
        while True:
            pipe.send_bytes(answer(runner, *pipe.recv()))
    except (EOFError, OSError):
        return  # the parent is gone or wants no more


def _die_with_parent() -> None:
    """A killed study must not train on in its workers, beside the process that resumes it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
