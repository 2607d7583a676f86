"""Ctrl-C: once to stop after the current round, twice to stop at once."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

logger = logging.getLogger(__name__)


class Interrupts:
    """While active, the first Ctrl-C is remembered as pending; the second one is a KeyboardInterrupt."""

    def __init__(self) -> None:
        self.pending = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        # Only the main thread may set handlers; elsewhere Ctrl-C is the main thread's business.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.pending:
            raise KeyboardInterrupt
        self.pending = True
        logger.warning("stopping after the current round; press Ctrl-C again to stop at once")
