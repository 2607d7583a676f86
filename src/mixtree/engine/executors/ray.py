"""Workers of a Ray cluster: each machine gets the trainer and its data once, models travel as references.

Where a worker runs is Ray's business. Workers write models into the study's checkpoints themselves; a study
without checkpoints gets them back.
"""

from __future__ import annotations

import atexit
import importlib
import logging
import os
import pickle
import shutil
import sys
import tempfile
import traceback
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from math import isfinite
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import numpy as np
from numpy.typing import NDArray

from mixtree.engine.executors.base import Done, Group, Lost, Runner, answer, one_torch_thread, refused
from mixtree.engine.models import MEMORY_LIMIT, Models, arrays_of
from mixtree.errors import CheckpointError, InputError, MissingExtraError, StorageError, TrainingError
from mixtree.places import without_secrets
from mixtree.trainer import TrainerBase, as_trainer, given
from mixtree.tree import Path

if TYPE_CHECKING:
    from mixtree.storage.checkpoints import Checkpoints

logger = logging.getLogger(__name__)

_PATIENCE = 30.0
"""Seconds after which a study that waits for its first worker says so."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Ray cluster, and what one trial takes of it.

    Parameters
    ----------
    address
        ``HOST:PORT`` of its head, ``ray://HOST:PORT`` of its client server, or None: the cluster that
        ``RAY_ADDRESS`` names, the one that this machine belongs to, or a new one on this machine alone.
    workers
        Trials at a time; None: as many as the cluster has room for.
    num_cpus, num_gpus
        Reserved for one trial.
    """

    address: str | None = None
    workers: int | None = None
    num_cpus: float = 1.0
    num_gpus: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """The cluster behind ``ray``, ``ray:HOST:PORT`` or ``ray://HOST:PORT``; options follow a ``?``.

        >>> Cluster.parse("ray:10.0.0.1:6379?num_gpus=1")
        Cluster(address='10.0.0.1:6379', workers=None, num_cpus=1.0, num_gpus=1.0)
        """
        place, _, query = text.partition("?")
        address: str | None = None
        if place.startswith("ray://"):
            address = place
        elif place.startswith("ray:"):
            address = place.removeprefix("ray:")
        elif place != "ray":
            raise InputError(f"a Ray cluster is ray, ray:HOST:PORT or ray://HOST:PORT; got {text!r}")
        options: dict[str, float] = {}
        known = {each.name for each in fields(cls)} - {"address"}
        for name, value in parse_qsl(query, keep_blank_values=True):
            try:
                options[name] = int(value) if name == "workers" else float(value)
            except ValueError:
                options[name] = -1
            if name not in known or not isfinite(options[name]) or options[name] < (name == "workers"):
                raise InputError(
                    f"cannot use {name}={value} of {text!r}: options are {', '.join(sorted(known))}, numbers"
                )
        if address is not None and ":" not in address.removeprefix("ray://"):
            raise InputError(f"the address of a Ray cluster is HOST:PORT; got {text!r}")
        return cls(address, **options)  # type: ignore[arg-type]


def connect(cluster: Cluster) -> Any:
    """The module ``ray``, connected; a connection that this process has already is used.

    A new cluster on this machine ends with this process, and its files with it.
    """
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise MissingExtraError("a cluster", "ray") from error
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": False, "logging_level": "error"}
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    if address == "local":  # Ray's word for a new one on this machine
        _start(ray, **quiet)
        return ray
    try:
        # "auto" is the cluster that this machine belongs to.
        ray.init(address=address or "auto", **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        if address is not None or not isinstance(error, ConnectionError):
            raise TrainingError(
                f"cannot use the Ray cluster {without_secrets(address or 'of this machine')}: {error}"
            ) from error
        _start(ray, **quiet)
    return ray


def _start(ray: Any, **quiet: Any) -> None:
    """A cluster of this machine alone."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told
    folder = tempfile.mkdtemp(prefix="mixtree-ray-")
    # Before Ray's own: what is registered last is called first, and Ray must end before its files go.
    atexit.unregister(ray.shutdown)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(ray.shutdown)
    ray.init(address="local", include_dashboard=False, _temp_dir=folder, **quiet)


@dataclass(slots=True, eq=False)
class _Worker:
    actor: Any
    waits_for: Any
    """The reference of what it is doing now; None: nothing."""
    made: Any = None
    """The reference of the models that it is making."""
    ready: bool = False
    """It has the trainer."""
    group: Group | None = None


class RayExecutor:
    """Actors of a Ray cluster; one that is lost is replaced, its group repeated."""

    def __init__(
        self, runner: Runner[Any], models: Models[Any], cluster: Cluster, *, max_failures: int = 3
    ) -> None:
        self._ray = connect(cluster)
        self._runner, self._models = runner, models
        self._cluster, self._max_failures = cluster, max_failures
        checkpoints = self._checkpoints = models.checkpoints
        self._mark = None if checkpoints is None else checkpoints.mark()
        trainer = given(runner.trainer)
        try:
            self._setup = (
                list(filter(None, sys.path)),
                [self._ray.put(trainer)],  # in a list: the worker can look for its modules before it reads it
                checkpoints,
                self._mark,
                (runner.seed, runner.init_seed),
            )
        except (TypeError, AttributeError, ValueError, pickle.PicklingError) as error:
            raise InputError(f"{type(trainer).__name__} cannot be sent to a cluster ({error})") from error
        self._actor = self._ray.remote(
            num_cpus=cluster.num_cpus, num_gpus=cluster.num_gpus, max_restarts=0, max_task_retries=0
        )(_Trains)
        self._workers: list[_Worker] = []
        self._stillborn = 0
        self._there: OrderedDict[Path, tuple[Any, int]] = OrderedDict()  # references, the newest last
        self._bytes = 0

    @property
    def workers(self) -> int:
        """As many as the cluster has room for now, if nobody said how many."""
        if self._cluster.workers is not None:
            return self._cluster.workers
        there = self._ray.cluster_resources()
        wanted = {"CPU": self._cluster.num_cpus, "GPU": self._cluster.num_gpus}
        rooms = [int(there.get(kind, 0.0) // each) for kind, each in wanted.items() if each > 0]
        return max(1, min(rooms, default=1))

    def run(self, groups: Sequence[Group], *, fresh: bool) -> Iterator[Done]:
        waiting, failures = deque(groups), dict[int, int]()
        patient = True
        while waiting or any(worker.group is not None for worker in self._workers):
            yield from self._hand_out(waiting, fresh=fresh)
            tasks = [worker.waits_for for worker in self._workers if worker.waits_for is not None]
            done, _ = self._ray.wait(tasks, timeout=_PATIENCE)
            if not done and patient and not any(worker.ready for worker in self._workers):
                patient = False
                logger.warning("waiting for a worker: the cluster has no room for one (%s)", self._cluster)
            for worker in [each for each in self._workers if each.waits_for in done]:
                came = self._collect(worker, waiting, failures)
                yield from self._hand_out(waiting, fresh=fresh)
                if came is not None:
                    yield came

    def _hand_out(self, waiting: deque[Group], *, fresh: bool) -> Iterator[Done]:
        """Give waiting groups to workers that are free; those whose models are lost are told."""
        wanted = len(waiting) + sum(worker.group is not None for worker in self._workers)
        while len(self._workers) < min(self.workers, wanted):
            actor = self._actor.remote()
            self._workers.append(_Worker(actor, actor.begin.remote(*self._setup)))
        for worker in self._workers:
            while worker.ready and worker.group is None and waiting:
                group = waiting.popleft()
                try:
                    parents = self._parents(group, fresh=fresh)
                except Lost as lost:
                    yield Done(group, lost=lost.path)
                    continue
                worker.group = group
                train = worker.actor.train.options(num_returns=2)
                worker.waits_for, worker.made = train.remote(group, fresh, parents)

    def _parents(self, group: Group, *, fresh: bool) -> dict[Path, Any]:
        """References of the models that a group goes on from, but for those that workers read themselves."""
        wanted = {
            path
            for trial in group
            for path in ((trial.path[:-1],) if trial.merged is None else trial.merged.paths)
            if trial.path
        }
        parents: dict[Path, Any] = {}
        for path in wanted:
            if path in self._there:
                self._there.move_to_end(path)
                parents[path] = self._there[path][0]
            elif self._checkpoints is None and (path or not fresh):
                try:
                    state = self._models.get(path)
                except CheckpointError as error:
                    raise Lost(path) from error
                arrays = arrays_of(self._runner.trainer, state)
                self._keep({path: arrays}, self._ray.put({path: arrays}))
                parents[path] = self._there[path][0]
        return parents

    def _keep(self, sizes: Mapping[Path, Any], reference: Any) -> None:
        for path, arrays in sizes.items():
            size = arrays if isinstance(arrays, int) else _bytes(arrays)
            self._forget(path)
            self._there[path] = (reference, size)
            self._bytes += size
        while self._bytes > MEMORY_LIMIT and len(self._there) > 1:
            self._forget(next(iter(self._there)))

    def _forget(self, path: Path) -> None:
        self._bytes -= self._there.pop(path, (None, 0))[1]

    def _collect(self, worker: _Worker, waiting: deque[Group], failures: dict[int, int]) -> Done | None:
        """What a worker has done; None if nothing yet, or if it was lost and its group waits again."""
        group, errors = worker.group, self._ray.exceptions
        try:
            packed, sizes = self._ray.get(worker.waits_for)
            if group is not None and sizes and self._checkpoints is None:
                for path, arrays in self._ray.get(worker.made).items():
                    self._models.put(path, self._runner.trainer.load(_own(arrays)))
        except errors.RayError as error:
            return self._bury(worker, error, waiting, failures)
        said: Any = None if packed is None else pickle.loads(packed)
        if said is not None and not isinstance(said, Done):
            raise refused(said, f"a worker on {self._node(worker)}")
        if said is None or group is None:
            worker.ready, worker.waits_for, self._stillborn = True, None, 0
            return None
        if sizes:
            self._keep(sizes, worker.made)
        worker.group = worker.waits_for = worker.made = None
        if said.lost is not None:
            self._forget(said.lost)
        # The answer is about a copy of the group; the caller knows its own.
        return Done(group, said.evaluations, said.seconds, said.lost)

    def _bury(
        self, worker: _Worker, error: Exception, waiting: deque[Group], failures: dict[int, int]
    ) -> Done | None:
        """Forget a lost worker; its group waits again unless it was the loss of too many."""
        group, reason = worker.group, type(error).__name__
        self._workers.remove(worker)
        with suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker.actor)
        if group is None:
            self._stillborn += 1
            if self._stillborn >= self._max_failures:
                raise TrainingError(
                    f"workers of the cluster die before they begin: {error}. Every machine needs this "
                    "version of mixtree, of Python and of what the trainer is made of"
                ) from error
            return None
        count = failures[id(group)] = failures.get(id(group), 0) + 1
        paths = ", ".join(str(trial.path) for trial in group)
        message = f"a worker was lost ({reason}) while training {paths}"
        logger.warning("%s (failure %d of %d)", message, count, self._max_failures)
        if count >= self._max_failures:
            return Done(group, failure=f"{message}, {count} times")
        waiting.appendleft(group)
        return None

    def _node(self, worker: _Worker) -> str:
        """The machine of a worker, for messages."""
        try:
            return str(self._ray.get(worker.actor.where.remote(), timeout=5))
        except self._ray.exceptions.RayError:
            return "a machine that is gone"

    def close(self) -> None:
        for worker in self._workers:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(worker.actor)
        self._workers = []
        self._there.clear()
        if self._checkpoints is not None and self._mark is not None:
            self._checkpoints.unmark(self._mark)


def _bytes(arrays: Mapping[str, NDArray[Any]]) -> int:
    return sum(int(array.nbytes) for array in arrays.values())


def _own(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Arrays that may be written to, as from a file: those of the object store may not."""
    return {name: np.array(array) for name, array in arrays.items()}


# ------------------------------------------------------------------------------------- on the machines


class _Trains:
    """The actor: trains groups on some machine of the cluster."""

    def begin(
        self,
        modules: Sequence[str],
        trainer: Sequence[Any],
        checkpoints: Checkpoints | None,
        mark: str | None,
        seeds: tuple[int, int],
    ) -> tuple[bytes | None, None]:
        """Take what every group needs."""
        try:
            sys.path.extend(each for each in modules if each not in sys.path and FilePath(each).exists())
            training = as_trainer(importlib.import_module("ray").get(trainer[0]))
            one_torch_thread()
            if checkpoints is not None and mark is not None and not checkpoints.sees(mark):
                raise StorageError(
                    f"the models in {checkpoints.shown} cannot be seen here: keep them where all machines of "
                    "the cluster can read and write, in a shared folder or at an fsspec URL (s3://…)"
                )
            self._models = _Travelling(training, checkpoints)
            self._runner: Runner[Any] = Runner(training, self._models, seed=seeds[0], init_seed=seeds[1])
        except Exception as error:  # told to the study, loudly
            name = type(error).__name__
            return pickle.dumps((name, f"{name}: {error}", traceback.format_exc())), None
        return None, None

    def train(
        self, group: Group, fresh: bool, parents: dict[Path, Any]
    ) -> tuple[tuple[bytes, dict[Path, int]], dict[Path, dict[str, NDArray[Any]]]]:
        """What came of a group with the sizes of its models, and the models."""
        self._models.parents, self._models.made = parents, {}
        said, made = answer(self._runner, group, fresh), self._models.made
        return (said, {path: _bytes(arrays) for path, arrays in made.items()}), made

    def where(self) -> str:
        """The address of this machine."""
        return str(importlib.import_module("ray").util.get_node_ip_address())


class _Travelling:
    """Models of one group: those that it goes on from, and those that it makes."""

    def __init__(self, trainer: TrainerBase[Any], checkpoints: Checkpoints | None) -> None:
        self._trainer, self._checkpoints = trainer, checkpoints
        self.parents: dict[Path, Any] = {}
        self.made: dict[Path, dict[str, NDArray[Any]]] = {}

    def get(self, path: Path) -> Any:
        if path in self.parents:
            ray = importlib.import_module("ray")
            try:
                return self._trainer.load(_own(ray.get(self.parents[path])[path]))
            except ray.exceptions.RayError as error:  # the machine that made it is gone
                logger.warning("the model of node %s did not arrive: %s", path, type(error).__name__)
        if self._checkpoints is None:
            raise CheckpointError(f"the model of node {path} did not arrive and there are no checkpoints")
        return self._trainer.load(self._checkpoints.read(path))

    def put(self, path: Path, state: Any) -> None:
        arrays = {name: np.asarray(array) for name, array in arrays_of(self._trainer, state).items()}
        if self._checkpoints is not None:
            self._checkpoints.write(path, arrays)
        self.made[path] = arrays
