"""Progress bars on stderr; plain lines now and then where there is no terminal."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from math import isfinite
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from mixtree.events import Event, NodeEvaluated, RoundAsked, StudyFinished, StudyStarted
from mixtree.listeners.terminal import Terminal
from mixtree.places import said


class Pace:
    """How fast steps are spent, and so how long the rest takes.

    All steps cost about the same, so the mean over all steps of this run is the best guess; steps that were
    replayed from storage took no time and do not count.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: float | None = None
        self._last = 0.0
        self._trained = 0

    def begin(self) -> None:
        """Training begins; the first time counts."""
        if self._began is None:
            self._began = self._clock()

    def add(self, steps: int) -> None:
        """So many steps were just trained."""
        self._trained += steps
        self._last = self._clock()

    def remaining(self, steps: int) -> float | None:
        """Seconds that so many more steps take; None as long as nothing was trained."""
        if self._began is None or not self._trained:
            return None
        expected = (self._last - self._began) / self._trained * steps
        return max(0.0, expected - (self._clock() - self._last))


class _Remaining(ProgressColumn):
    """The time left, counted down between two events."""

    def __init__(self, text: Callable[[], str]) -> None:
        super().__init__(Column(no_wrap=True))
        self._text = text

    def render(self, task: Task) -> Text:
        return Text(self._text(), style="progress.remaining")


class _Bar(ABC):
    """One bar over a budget. It redraws itself a few times a second, however many events come in.

    It is a listener, and a context manager for several studies; alone it is there from a study's start to its
    end. Where stderr is no terminal it writes a plain line every ``interval`` seconds instead.
    """

    def __init__(
        self, description: str, total: int, *, console: Console | None = None, interval: float = 30.0
    ) -> None:
        self._console = console or Terminal(stderr=True)
        self._live = self._console.is_interactive or self._console.is_jupyter
        self._interval, self._written = interval, time.monotonic()
        self._description, self._total, self._completed, self._note = description, total, 0, ""
        self._pace = Pace()
        self._entered = False
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[steps]}", markup=False),
            TextColumn("{task.fields[note]}", markup=False),
            TimeElapsedColumn(),
            _Remaining(self._left),
            console=self._console,
            transient=True,
            disable=not self._live,
        )
        self._task = self._progress.add_task(description, total=total or None, steps=self._steps(), note="")

    def __enter__(self) -> Self:
        self._entered = True
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """The listener."""
        if isinstance(event, StudyStarted) and not self._entered:
            self._progress.start()
        if isinstance(event, RoundAsked):  # rounds that are replayed as a whole are not asked for
            self._pace.begin()
        else:
            self._follow(event)
        if isinstance(event, StudyFinished) and not self._entered:
            self._progress.stop()

    listen = __call__

    def study_over(self) -> None:
        """A study ended in whatever way, by an error too."""
        if not self._entered:
            self._progress.stop()

    @abstractmethod
    def _follow(self, event: Event) -> None:
        """Move with a study."""

    def _begin(self, description: str, total: int, completed: int) -> None:
        self._description, self._total, self._completed = said(description), total, completed
        self._show()

    def _advance(self, completed: int, event: NodeEvaluated, *, note: str = "") -> None:
        if not event.replayed:
            self._pace.add(event.node.steps)
        self._completed, self._note = completed, note
        self._show()

    def _show(self, *, over: bool = False) -> None:
        if self._live:
            self._progress.update(
                self._task,
                description=self._description,
                total=self._total or None,
                completed=self._completed,
                steps=self._steps(),
                note=self._note,
            )
        elif over or time.monotonic() - self._written >= self._interval:
            self._written = time.monotonic()
            parts = [self._steps(), self._note, "" if over else self._left()]
            line = f"{self._description.strip()}: {', '.join(part for part in parts if part)}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _steps(self) -> str:
        return f"{self._completed}/{self._total} steps" if self._total else f"{self._completed} steps"

    def _left(self) -> str:
        steps = self._total - self._completed
        seconds = self._pace.remaining(steps) if steps > 0 else None
        return "" if seconds is None else f"{timedelta(seconds=round(seconds))} left"


class StudyProgress(_Bar):
    """A bar for one study: budget spent, best value so far, depth, time left.

    A resumed study starts from what it had spent.

    Parameters
    ----------
    show : callable, optional
        Says the best value in other words, such as ``lambda value: f"AUROC {-value:.4f}"``.
    console : rich.console.Console, optional
        Where to draw; stderr by default.
    interval : float
        Seconds between the plain lines where it is no terminal.
    """

    def __init__(
        self,
        *,
        show: Callable[[float], str] | None = None,
        console: Console | None = None,
        interval: float = 30.0,
    ) -> None:
        super().__init__("starting", 0, console=console, interval=interval)
        self._say = show or (lambda value: f"best {value:.4g}")
        self._depth = 0

    def _follow(self, event: Event) -> None:
        if isinstance(event, StudyStarted):
            self._depth, self._note = 0, ""
            self._begin(event.study, event.budget, event.spent)
        elif isinstance(event, NodeEvaluated):
            self._depth = max(self._depth, event.node.height)
            best = self._say(event.best) if isfinite(event.best) else "nothing good yet"
            self._advance(event.spent, event, note=f"{best}, depth {self._depth}")
        elif isinstance(event, StudyFinished):
            self._show(over=True)


class ComparisonProgress(_Bar):
    """One bar over the budgets of all runs of a comparison.

    Parameters
    ----------
    total : int
        Steps of all runs.
    console : rich.console.Console, optional
        Where to draw; stderr by default.
    interval : float
        Seconds between the plain lines where it is no terminal.
    """

    def __init__(self, total: int, *, console: Console | None = None, interval: float = 30.0) -> None:
        super().__init__("preparing data", total, console=console, interval=interval)
        self._finished = 0
        self._budget = 0

    def _follow(self, event: Event) -> None:
        if isinstance(event, StudyStarted):
            self._budget = event.budget
            self._begin(f"{event.study:<28}", self._total, self._finished)
        elif isinstance(event, NodeEvaluated):
            self._advance(self._finished + event.spent, event)
        elif isinstance(event, StudyFinished):
            # What a run leaves unspent counts as done, and took no time.
            self._finished += self._budget
            self._completed = self._finished
            self._show()
