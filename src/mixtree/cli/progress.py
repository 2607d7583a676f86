"""Progress bars on stderr."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mixtree.events import Event, NodeEvaluated, StudyFinished, StudyStarted


class ComparisonProgress:
    """One bar over the budgets of all runs of a comparison."""

    def __init__(self, total: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f} steps"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("preparing data", total=total)
        self._finished = 0
        self._budget = 0

    def __enter__(self) -> ComparisonProgress:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def listen(self, event: Event) -> None:
        """A listener for every run of the comparison."""
        if isinstance(event, StudyStarted):
            self._budget = event.budget
            self._progress.update(self._task, description=f"{event.study:<28}")
        elif isinstance(event, NodeEvaluated):
            self._progress.update(self._task, completed=self._finished + event.spent)
        elif isinstance(event, StudyFinished):
            self._finished += self._budget
            self._progress.update(self._task, completed=self._finished)
