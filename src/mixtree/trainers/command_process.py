"""A program that is run to its end, and that is not left running by whoever waits for it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1  # of <sys/prctl.h>


def run_program(
    arguments: Sequence[str],
    *,
    stdout: IO[bytes],
    stderr: IO[bytes],
    cwd: Path | None,
    env: Mapping[str, str],
    timeout: float | None,
) -> int:
    """Run a program to its end.

    On Linux the program is also killed when this process dies in any way, so that none goes on beside the
    program of a resumed study. That holds for the program alone: what it has started itself goes on, unless
    it sees to that. On other systems a program outlives a process that is killed.

    Parameters
    ----------
    arguments : sequence of str
        The program and its arguments.
    stdout, stderr : binary files
        Where its output goes.
    cwd : Path or None
        Where it runs; where this process does by default.
    env : mapping of str
        All of its environment.
    timeout : float or None
        Seconds after which it is killed with all that it has started.

    Returns
    -------
    int
        Its exit code, or minus the number of the signal that stopped it.

    Raises
    ------
    OSError
        It cannot be started.
    subprocess.TimeoutExpired
        It took longer than ``timeout``.
    """
    process = subprocess.Popen(
        arguments,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=cwd,
        env=env,
        start_new_session=True,  # a group of its own, to be killed as a whole; and Ctrl-C is not for it
        preexec_fn=_tie_to_this_process(),
    )
    try:
        return process.wait(timeout)
    finally:
        if process.poll() is None:  # it still runs: ended with all that it has started
            if os.name == "posix":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
            process.wait()


def _tie_to_this_process() -> Callable[[], None] | None:
    """What a child does before it becomes the program: ask the kernel to be killed with its parent."""
    if sys.platform != "linux":
        return None
    # All is looked up before the fork: in the child another thread's locks stay locked for ever.
    prctl, parent, number = ctypes.CDLL(None).prctl, os.getpid(), int(signal.SIGKILL)

    def tie() -> None:
        # The kernel means the thread that forks; it is the one that waits for the program.
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(1)

    return tie
