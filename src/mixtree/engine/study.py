"""The loop that runs a study: ask, train, evaluate, tell; the same ask and tell that users get."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Generic, Literal

import numpy as np
from numpy.typing import NDArray

from mixtree.data.sources import FOLD, Sources, weight_names
from mixtree.engine.checks import check_unused
from mixtree.engine.loop import Limits, Loop, Objective
from mixtree.errors import CheckpointError, InputError, StorageError
from mixtree.events import Listener
from mixtree.plain import COUNT, read
from mixtree.search import Search, as_node
from mixtree.simplex import Mixture
from mixtree.storage.base import Storage, StudyRecord, check_name
from mixtree.storage.memory import MemoryStorage, ScratchStorage
from mixtree.trainer import State, Trainer
from mixtree.tree import Node, Path, Tree

if TYPE_CHECKING:
    from mixtree.verdict import Verdict

logger = logging.getLogger(__name__)

VERDICT = "verdict"
"""The kind of a study's event that holds its verdict as JSON."""

_MAYBE = (None, float)
_VERDICT = {
    "sentence": str,
    "score": {"value": _MAYBE, "low": _MAYBE, "high": _MAYBE, "rows": COUNT},
    "against": [{"name": str, "difference": _MAYBE, "low": _MAYBE, "high": _MAYBE, "p": _MAYBE}],
    "hull": {"p": _MAYBE, "inside": (None, bool)},
    "mixture": {str: {"weight": _MAYBE, "low": _MAYBE, "high": _MAYBE}},
    "queries": COUNT,
    "notes": [str],
    # Verdicts of earlier versions lack some of these.
    "reference_spent?": {str: COUNT},
    "warnings?": [str],
    "metric?": str,
    "higher_is_better?": bool,
    "of?": str,
    "optimistic?": (None, bool),
    "comparison?": str,
    "expectation?": str,
    "next_step?": str,
}


@dataclass(frozen=True, eq=False, slots=True)
class Result(Generic[State]):
    """What a study found, and where every step went."""

    study: str
    weights: dict[str, float]
    """The mixture by the names of its sources; the target's own rows are one more where they were used."""
    value: float
    node: Node
    rule: str
    """The rule that chose the node."""
    reason: str
    """Why the study ended."""
    budget: int
    spent: dict[str, int]
    """Steps by phase; their sum is at most the budget."""
    tree: Tree = field(repr=False)
    """All nodes; that of a built-in search itself."""
    state: State = field(repr=False)
    warnings: tuple[str, ...] = field(default=())
    predictions: dict[Path, NDArray[Any]] = field(default_factory=dict, repr=False)
    """Of the validation rows, by every node, where they were kept."""
    notes: tuple[str, ...] = ()
    """What the policy decided on its way, in words."""
    verdict: Verdict | None = None
    """How sure it is, and compared with what; of a fit, not of a bare run."""
    model: Any = field(default=None, repr=False)
    """What predicts further rows; of a fit, not of a bare run."""

    @property
    def mixture(self) -> Mixture:
        """The weights in the order of the sources."""
        return np.array(list(self.weights.values()))

    def predict(self, x: Any) -> NDArray[Any]:
        """What the returned model of a fit predicts for rows: class probabilities, or numbers."""
        if self.model is None:
            raise InputError("this result has no model to predict with: use trainer.predict(result.state, x)")
        return np.asarray(self.model.predict(x))

    @property
    def unspent(self) -> int:
        """Steps of the budget that nothing could use."""
        return self.budget - sum(self.spent.values())

    @property
    def history(self) -> list[tuple[int, Node]]:
        """Every node in the order of its evaluation, with the steps spent up to it."""
        total, rows = 0, []
        for node in self.tree.values():
            total += node.steps
            rows.append((total, node))
        return rows

    @property
    def trained_steps(self) -> int:
        """Steps that the returned model itself has seen."""
        return sum(node.steps for node in self.tree.lineage(self.node.path))


def run(
    search: Search,
    trainer: Trainer[State],
    *,
    seed: int = 0,
    init_seed: int | None = None,
    storage: Storage | str | FilePath | None = None,
    study: str = "study",
    resume: bool = False,
    workers: int = 1,
    objective: Objective | None = None,
    listeners: Sequence[Listener] = (),
    keep: Literal["all", "frontier", "best"] = "frontier",
    keep_predictions: bool = False,
    time_limit: float | None = None,
    max_failures: int = 3,
    allow_changed_data: bool = False,
    data: Sources | None = None,
    recipe: dict[str, Any] | None = None,
) -> Result[State]:
    """Run a search with a trainer until it has finished, and return what it found.

    ``storage`` (a file name, a database URL or a Storage) makes the study survive its process: with
    ``resume=True`` it goes on where it was, and ends as if it had never been interrupted. A finished study
    whose search now has a larger budget goes on too. ``keep`` says which models stay on disk: those of all
    nodes, those that a future child or the result needs, or that of the returned node alone. ``workers`` > 1
    trains in as many processes; the answer is the same. ``time_limit`` (seconds) ends the study as cleanly as
    a spent budget. ``init_seed`` fixes the initial model apart from ``seed``: studies that are compared start
    from one model and still draw their own rows. ``keep_predictions`` stores what every node predicts for the
    validation rows, and returns it. ``data`` are the rows as they were given, by which a study knows them
    again, where the trainer's are not the same: without those held out, with folds of them or with weights.
    """
    _check(search, trainer, workers=workers, keep=keep, time_limit=time_limit, max_failures=max_failures)
    if storage is not None or not isinstance(study, str) or not study:
        check_name(study)
    check_unused(search)
    if not isinstance(listeners, list | tuple) or not all(map(callable, listeners)):
        raise InputError(f"listeners is a list of functions of an event; got {type(listeners).__name__}")
    limits = Limits(workers, time_limit, max_failures, keep, keep_predictions, allow_changed_data)
    budget = int(getattr(search, "budget", 0))
    record = StudyRecord(study, seed, seed if init_seed is None else init_seed, budget, recipe=recipe)
    with opened(storage, kept=keep_predictions) as place:
        how: dict[str, Any] = {"limits": limits, "objective": objective, "listeners": listeners}
        loop = Loop(search, trainer, place, record, data=data, **how)
        return _finish(loop, resume=resume)


def _finish(loop: Loop[State], *, resume: bool) -> Result[State]:
    search, record = loop.search, loop.record
    with _held(loop, resume=resume):
        reason = loop.run()
        node = search.best()
        if node is None:
            raise InputError(
                f"{type(search).__name__} asked for nothing and returns nothing: no model to give"
            )
        return Result(
            study=record.name,
            weights=reported(loop.record, loop.tree, node),
            value=node.value,
            node=node,
            rule=str(getattr(search, "rule", "best")),
            reason=reason,
            budget=record.budget or loop.spent,
            spent={**loop.charged, **loop.tree.spent},
            tree=loop.tree,
            state=loop.model(node.path),
            warnings=tuple(loop.warnings),
            notes=tuple(getattr(search, "notes", ())),
            predictions=_predictions(loop.storage, record.name) if loop.limits.keep_predictions else {},
        )


class _Kept(MemoryStorage):
    """Rows that live as long as the run: nobody can resume from them."""

    lasting = False


def _predictions(storage: Storage, study: str) -> dict[Path, NDArray[Any]]:
    return {
        each.trial.path: each.outcome.evaluation.predictions
        for each in storage.nodes(study)
        if each.outcome is not None and each.outcome.evaluation.predictions is not None
    }


@contextmanager
def _held(loop: Loop[Any], *, resume: bool) -> Iterator[None]:
    new, stillborn = loop.create(resume=resume), False
    try:
        with loop.storage.lock(loop.record.name):
            if not new:
                loop.reopen()
            yield
    except InputError:
        stillborn = new and not loop.tree
        raise
    finally:
        loop.close()
        if stillborn:  # what could not even begin leaves nothing behind
            loop.storage.delete(loop.record.name)


def load(storage: Storage | str | FilePath, study: str, trainer: Trainer[State] | None = None) -> Result[Any]:
    """The result of a stored study; its ``state`` is the trainer's, or plain arrays without a trainer."""
    if isinstance(storage, str | FilePath) and "://" not in str(storage) and not FilePath(storage).exists():
        raise InputError(f"there is no study file {storage}")
    with opened(storage) as place:
        return _load(place, study, trainer)


def _load(place: Storage, study: str, trainer: Trainer[Any] | None) -> Result[Any]:
    record, tree = place.load(study), stored_tree(place, study)
    if record.best is None or record.best not in tree:
        raise InputError(f"study {study!r} has no result yet (it is {record.status}): resume it")
    models = place.checkpoints(study)
    if models is None:
        raise InputError(f"study {study!r} was stored without its models")
    try:
        arrays = models.read(record.best)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; resume the study and it is computed again") from error
    node = tree[record.best]
    return Result(
        study=study,
        weights=reported(record, tree, node),
        value=node.value,
        node=node,
        rule=record.rule,
        reason=record.status,
        budget=record.budget,
        spent={**record.config.get("charged", {}), **tree.spent},
        tree=tree,
        state=arrays if trainer is None else trainer.load(arrays),
        warnings=tuple(each.message for each in place.events(study) if each.kind == "warning"),
        notes=record.notes,
        predictions=_predictions(place, study),
        verdict=_verdict(place, study),
    )


def _verdict(storage: Storage, study: str) -> Verdict | None:
    from mixtree.verdict import Verdict

    told = stored_verdict(storage, study)
    return None if told is None else Verdict.from_dict(told)


def stored_verdict(storage: Storage, study: str) -> dict[str, Any] | None:
    """A study's verdict as plain data; None if it has none."""
    texts = [each.message for each in storage.events(study) if each.kind == VERDICT]
    if not texts:
        return None
    try:
        found: dict[str, Any] = read(texts[-1], _VERDICT)
    except ValueError as error:
        raise StorageError(
            f"the verdict of study {study!r} was altered or damaged ({error}): take the study's file from "
            "a copy, or fit again into another one"
        ) from error
    return found


def stored_tree(storage: Storage, study: str) -> Tree:
    """The evaluated nodes of a stored study."""
    tree = Tree()
    for stored in storage.nodes(study):
        if stored.outcome is not None:
            tree.add(as_node(stored.trial, stored.outcome.evaluation))
    return tree


def reported(record: StudyRecord, tree: Tree, node: Node) -> dict[str, float]:
    """A node's mixture by the names of its sources; one more weight than sources is the target's own rows.

    A model that was tuned on the target's rows last has the mixture that it was trained on before. Folds of
    the target's rows serve a policy's own checks and are left out.
    """
    known = tuple(record.config.get("sources", ()))
    given = sum(not name.startswith(FOLD) for name in known)
    before = [each for each in tree.lineage(node.path) if each.mixture[:given].any()]
    return named(record, (before[-1] if before else node).mixture)


def named(record: StudyRecord, mixture: Mixture) -> dict[str, float]:
    """The weights of a mixture by the names of its sources, folds of the target's rows left out."""
    names = weight_names(record.config.get("sources", ()), len(mixture))
    weights = dict(zip(names, mixture.tolist(), strict=True))
    return {name: weight for name, weight in weights.items() if not name.startswith(FOLD)}


@contextmanager
def opened(storage: Storage | str | FilePath | None, *, kept: bool = False) -> Iterator[Storage]:
    """The storage itself, the one behind a file name or URL, or scratch; ``kept`` where its rows are read."""
    if isinstance(storage, str | FilePath):
        from mixtree.storage.sql import open_storage

        # Closed again: a file that nobody has open is whole, without a journal beside it.
        with closing(open_storage(storage)) as place:
            yield place
    elif storage is None or isinstance(storage, Storage):
        yield (_Kept() if kept else ScratchStorage()) if storage is None else storage
    else:
        raise InputError(f"storage is a file name, a database URL or a Storage; got {type(storage).__name__}")


def seconds_left(time_limit: float | None, since: float) -> float | None:
    """What is left of a time limit that began then; of one that is over a moment, for the first round."""
    if time_limit is None:
        return None
    _check_time_limit(time_limit)
    return max(1e-9, float(time_limit) - (time.monotonic() - since))


def _check_time_limit(time_limit: object) -> None:
    if time_limit is not None and not (isinstance(time_limit, Real) and float(time_limit) > 0):
        raise InputError(f"the time limit must be a number of seconds above 0; got {time_limit!r}")


def _check(
    search: object, trainer: object, *, workers: int, keep: str, time_limit: object, max_failures: int
) -> None:
    for part, kind in ((search, Search), (trainer, Trainer)):
        if not isinstance(part, kind):
            methods = [method for method in vars(kind) if not method.startswith("_")]
            raise InputError(f"{type(part).__name__} is not a {kind.__name__}: it needs {', '.join(methods)}")
    if not isinstance(workers, int | np.integer) or workers < 1:
        raise InputError(f"workers must be a whole number of at least 1; got {workers!r}")
    if workers > 1:
        from mixtree.engine.executors.processes import leave_if_unguarded

        leave_if_unguarded()
    if keep not in ("all", "frontier", "best"):
        raise InputError(f"keep must be 'all', 'frontier' or 'best'; got {keep!r}")
    _check_time_limit(time_limit)
    if max_failures < 1:
        raise InputError(f"max_failures must be at least 1; got {max_failures}")
