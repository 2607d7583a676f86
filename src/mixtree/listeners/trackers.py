"""Listeners that draw curves over the steps spent: in TensorBoard, in MLflow."""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from mixtree.data.allocation import weight_names
from mixtree.data.sources import FOLD
from mixtree.errors import InputError, MissingExtraError, StorageError
from mixtree.events import Event, NodeEvaluated, RoundAsked, StudyFinished, StudyStarted
from mixtree.places import file_name
from mixtree.tree import Node

Row = dict[str, float]


class Curves:
    """The numbers of one study that are worth a curve, by name, at no more than so many points.

    ``value`` of the node, ``best`` value so far and its ``mixture/…`` (where it changes), ``depth``,
    ``diverged`` nodes, ``spent/…`` by phase; at the end ``final/value`` and ``final/mixture/…``, those of the
    node that the study returned. A number that is not finite is left out.

    Parameters
    ----------
    budget : int
        Steps of the whole study.
    sources : sequence of str
        Names of the mixtures' weights.
    points : int
        The most points of a curve.
    """

    def __init__(self, budget: int = 0, *, sources: Sequence[str] = (), points: int = 1000) -> None:
        if points < 1:
            raise InputError(f"a curve needs at least 1 point; got {points}")
        self._sources = tuple(sources)
        self._every = budget / points
        self._due = 0.0
        self._spent, self._depth, self._diverged = 0, 0, 0
        self._phases: Counter[str] = Counter()
        self._node: Node | None = None
        self._best: Node | None = None
        self._drawn: Node | None = None
        self._drawn_best: Node | None = None

    def add(self, event: NodeEvaluated) -> Row:
        """The point of this node; empty between two points."""
        node = event.node
        # What no node of this run pays for is charged before the first one: auxiliary fits, and what an
        # earlier, smaller budget paid for and is not asked for again (if it is after all, it costs nothing).
        charged = event.spent - self._spent
        self._phases[node.phase] += min(charged, node.steps)
        if charged > node.steps:
            self._phases["before"] += charged - node.steps
        self._spent, self._node = event.spent, node
        self._depth = max(self._depth, node.height)
        if node.diverged:
            self._diverged += 1
        elif self._best is None or node.value < self._best.value:
            self._best = node
        if event.spent < self._due:
            return {}
        self._due = event.spent + self._every
        return self._point()

    def end(self, best: Node) -> Row:
        """The last point, and what the study returned."""
        last = {} if self._drawn is self._node else self._point()
        return last | {"final/value": best.value} | self._mixture("final/mixture", best)

    def _point(self) -> Row:
        assert self._node is not None
        self._drawn = self._node
        row: Row = {"depth": self._depth}
        if isfinite(self._node.value):
            row["value"] = self._node.value
        if self._best is not None:
            row["best"] = self._best.value
        if self._diverged:
            row["diverged"] = self._diverged
        row |= {f"spent/{_curve_name(phase)}": steps for phase, steps in self._phases.items()}
        if self._best is not None and self._best is not self._drawn_best:
            self._drawn_best = self._best
            row |= self._mixture("mixture", self._best)
        return row

    def _mixture(self, folder: str, node: Node) -> Row:
        names = weight_names(self._sources, len(node.mixture))
        curves = [_curve_name(name) for name in names]
        if len(set(curves)) < len(curves):
            curves = [f"{index}_{curve}" for index, curve in enumerate(curves)]
        weights = zip(names, curves, node.mixture, strict=True)
        return {
            f"{folder}/{curve}": float(each) for name, curve, each in weights if not name.startswith(FOLD)
        }


def _curve_name(name: str) -> str:
    # The signs that every tracker takes in the name of a curve.
    return re.sub(r"[^\w-]", "_", name)


class Tracker(ABC):
    """A listener that draws the curves of one study after the other; subclasses say where to.

    It is complete when a study has ended by itself. As a context manager it also keeps the last seconds of
    one that was interrupted.
    """

    def __init__(self, *, sources: Sequence[str], points: int) -> None:
        self._sources, self._points = tuple(sources), points
        self._curves = Curves(sources=sources, points=points)
        self._started: StudyStarted | None = None
        self._open = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, StudyStarted):
            self.close()
            self._started = event
            sources = self._sources or event.sources
            self._curves = Curves(event.budget, sources=sources, points=self._points)
        elif isinstance(event, RoundAsked):
            self._ensure_open(event.study, None)
        elif isinstance(event, NodeEvaluated):
            self._ensure_open(event.study, event.node if event.replayed else None)
            if row := self._curves.add(event):
                self._draw(row, event.spent)
        elif isinstance(event, StudyFinished) and self._open:
            self._end(self._curves.end(event.best), event)
            self._open = False

    def _ensure_open(self, study: str, replayed: Node | None) -> None:
        # Only the first node tells whether the study is new or goes on.
        if not self._open:
            self._begin(study, replayed)
            self._open = True

    def close(self) -> None:
        """Write out what is still in memory and let go of an unfinished study."""
        self._stop(None)

    def _stop(self, error: type[BaseException] | None) -> None:
        if self._open:
            self._open = False
            self._abandon(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop(kind)

    @abstractmethod
    def _begin(self, study: str, replayed: Node | None) -> None:
        """A new study; or, with its first node, one that goes on."""

    @abstractmethod
    def _draw(self, row: Row, step: int) -> None:
        """One point of every curve in the row."""

    @abstractmethod
    def _end(self, row: Row, event: StudyFinished) -> None:
        """The study has ended."""

    @abstractmethod
    def _abandon(self, error: type[BaseException] | None) -> None:
        """The study was interrupted."""


class TensorBoardListener(Tracker):
    """Curves over the steps spent, for ``tensorboard --logdir``: one folder per study.

    A study that is resumed goes on in its folder; a new one of the same name gets a folder of its own
    (name-2, …). Needs ``mixtree[tensorboard]``.

    Parameters
    ----------
    logdir : path
        Holds the studies' folders.
    sources : sequence of str
        Names of the mixtures' weights, if not the sources' own.
    points : int
        The most points of a curve.
    """

    def __init__(self, logdir: str | Path, *, sources: Sequence[str] = (), points: int = 1000) -> None:
        super().__init__(sources=sources, points=points)
        self.logdir = Path(logdir)
        self._writers = _need("tensorboardX", "TensorBoardListener", "tensorboard")
        self._writer: Any = None

    def _begin(self, study: str, replayed: Node | None) -> None:
        before = None
        for number in count(1):
            folder = self.logdir / file_name(f"{study}-{number}" if number > 1 else study)
            if not folder.exists():
                break
            before = folder
        resumed = replayed is not None and before is not None
        try:
            self._writer = self._writers.SummaryWriter(
                str(before if resumed else folder),
                # A resumed study draws its curves again: what was drawn before may lack the last seconds.
                purge_step=0 if resumed else None,
                max_queue=1000,
                flush_secs=5,
                # The package names files by the second and would overwrite one of the same second.
                filename_suffix=f".{time.time_ns()}",
            )
        except OSError as error:
            raise StorageError(f"cannot write TensorBoard curves to {folder}: {error.strerror}") from error

    def _draw(self, row: Row, step: int) -> None:
        for name, number in row.items():
            self._writer.add_scalar(name, number, step)

    def _end(self, row: Row, event: StudyFinished) -> None:
        self._draw(row, event.spent)
        self._writer.close()

    def _abandon(self, error: type[BaseException] | None) -> None:
        self._writer.close()


class MLflowListener(Tracker):
    """Curves over the steps spent in MLflow: one run per study, whose steps are the steps spent.

    A study that is resumed goes on in its run. Points are sent together, at most once a second and for at
    most about 2 % of the time. Needs ``mixtree[mlflow]``.

    Parameters
    ----------
    experiment : str
        MLflow's experiment; made if there is none of this name.
    tracking_uri : str or path, optional
        Where MLflow keeps its runs; MLflow's own default if not given.
    params : mapping, optional
        Noted with the run beside the study's name and budget: the seed, for example.
    sources : sequence of str
        Names of the mixtures' weights, if not the sources' own.
    points : int
        The most points of a curve.
    """

    def __init__(
        self,
        experiment: str = "mixtree",
        *,
        tracking_uri: str | Path | None = None,
        params: Mapping[str, object] | None = None,
        sources: Sequence[str] = (),
        points: int = 1000,
    ) -> None:
        super().__init__(sources=sources, points=points)
        self._mlflow = _need("mlflow", "MLflowListener", "mlflow")
        self._params = dict(params or {})
        self._points_waiting: list[Any] = []
        self._run = ""
        self._sent = 0
        self._next = 0.0
        with self._explained():
            uri = None if tracking_uri is None else str(tracking_uri)
            self._client = self._mlflow.MlflowClient(tracking_uri=uri)
            found = self._client.get_experiment_by_name(experiment)
            self._experiment = found.experiment_id if found else self._client.create_experiment(experiment)

    def _begin(self, study: str, replayed: Node | None) -> None:
        budget = self._started.budget if self._started else 0
        self._sent, self._points_waiting = 0, []
        with self._explained():
            if replayed is not None and self._find(study, replayed):
                self._client.update_run(self._run, status="RUNNING")
                if str(budget) != self._client.get_run(self._run).data.params.get("budget"):
                    # A parameter of a run cannot change.
                    self._client.set_tag(self._run, "mixtree.budget", str(budget))
                return
            tags = {_STUDY: quote(study)}
            run = self._client.create_run(self._experiment, run_name=study, tags=tags)
            self._run = run.info.run_id
            params = {"study": study, "budget": budget, **self._params}
            for name, value in params.items():
                self._client.log_param(self._run, name, value)

    def _find(self, study: str, first: Node) -> bool:
        """Take up the study's run, if there is one that began with the same value."""
        runs = self._client.search_runs(
            [self._experiment],
            f"tags.`{_STUDY}` = '{quote(study)}'",
            order_by=["attributes.start_time DESC"],
            max_results=20,
        )
        for run in runs:
            points = self._client.get_metric_history(run.info.run_id, "value")
            if not points or min(points, key=lambda point: point.step).value == first.value:
                self._run = run.info.run_id
                self._sent = max((point.step for point in points), default=0)
                return True
        return False

    def _draw(self, row: Row, step: int) -> None:
        if step <= self._sent:
            return
        self._wait(row, step)
        if time.monotonic() >= self._next:
            self._send()

    def _wait(self, row: Row, step: int) -> None:
        metric, now = self._mlflow.entities.Metric, int(time.time() * 1000)
        self._points_waiting += [metric(name, float(number), now, step) for name, number in row.items()]

    def _send(self) -> None:
        began = time.monotonic()
        with self._explained():
            while self._points_waiting:
                self._client.log_batch(self._run, metrics=self._points_waiting[:_MOST_AT_ONCE])
                del self._points_waiting[:_MOST_AT_ONCE]
        now = time.monotonic()
        self._next = now + max(1.0, 50 * (now - began))

    def _end(self, row: Row, event: StudyFinished) -> None:
        self._wait(row, event.spent)
        self._send()
        with self._explained():
            self._client.set_tag(self._run, "mixtree.reason", event.reason)
            self._client.set_tag(self._run, "mixtree.best", str(event.best.path))
            self._client.set_terminated(self._run, "FINISHED")

    def _abandon(self, error: type[BaseException] | None) -> None:
        self._send()
        failed = error is not None and not issubclass(error, KeyboardInterrupt)
        with self._explained():
            self._client.set_terminated(self._run, "FAILED" if failed else "KILLED")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except ImportError as error:
            raise MissingExtraError("MLflow's storage", "mlflow") from error
        except self._mlflow.exceptions.MlflowException as error:
            raise StorageError(f"MLflow refused: {error}") from error


_STUDY = "mixtree.engine.study"
_MOST_AT_ONCE = 1000
"""Metrics that MLflow takes in one batch."""


def _need(module: str, feature: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtraError(feature, extra) from error
