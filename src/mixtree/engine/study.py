"""Studies: ``run`` one from its beginning or from where it stopped, ``load`` one, and what it found."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Generic, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mixtree.data.allocation import Allocation, given, named
from mixtree.data.fingerprint import data_fingerprint, differences, model_key, rows_fingerprint, settings
from mixtree.data.sources import TARGET, Sources
from mixtree.engine.checks import Checked, source_names
from mixtree.engine.executors import who_works
from mixtree.engine.loop import Limits, Loop, Objective
from mixtree.engine.recompute import model
from mixtree.engine.reporting import Reporter
from mixtree.errors import CheckpointError, InputError, MixtreeError, StorageError, StudyInterrupted
from mixtree.estimate.merged import WhatIf, what_if
from mixtree.events import Listener, StudyStarted
from mixtree.search import Search, as_search
from mixtree.simplex import Mixture
from mixtree.storage.base import Storage, StudyRecord, check_name
from mixtree.storage.memory import RunStorage, ScratchStorage
from mixtree.trainer import State, Trainer, TrainerBase, as_trainer
from mixtree.tree import Node, Path, Tree

if TYPE_CHECKING:
    from mixtree.verdict import Verdict

CHOOSES = "validation"
"""The setting that says which validation rows choose, where others are held out: the holdout's doing."""


@dataclass(frozen=True, eq=False, slots=True)
class Result(Generic[State]):
    """What a study found, and where every step went.

    Parameters
    ----------
    study
        Its name.
    weights
        The mixture by the names of its sources; the target's own rows are one more where they were used.
    value
        Of the returned node: what the search minimised.
    node
        The returned node.
    rule
        The rule that chose it.
    reason
        Why the study ended.
    budget
        SGD steps in all.
    spent
        Steps by phase; their sum is at most the budget.
    tree
        All nodes.
    state
        The returned model, as its trainer keeps it.
    warnings
        What went wrong on the way.
    predictions
        Of the validation rows, by every node, where they were kept.
    notes
        What the policy decided on its way, in words.
    verdict
        How sure it is, and compared with what; of a fit, not of a bare run.
    model
        What predicts further rows; of a fit, not of a bare run.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> from mixtree.policies.fixed import uniform
    >>> from mixtree.trainers.reference import ReferenceTrainer
    >>> result = run(uniform(3, budget=40), ReferenceTrainer(synthetic(rows=50).sources))
    >>> result.mixture.round(2), result.spent
    (array([0.33, 0.33, 0.33]), {'train': 40})
    """

    study: str
    weights: dict[str, float]
    value: float
    node: Node
    rule: str
    reason: str
    budget: int
    spent: dict[str, int]
    tree: Tree = field(repr=False)
    state: State = field(repr=False)
    warnings: tuple[str, ...] = field(default=())
    predictions: dict[Path, NDArray[Any]] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None
    model: Any = field(default=None, repr=False)

    @property
    def mixture(self) -> Mixture:
        """The weights in the order of the sources."""
        return np.array(list(self.weights.values()))

    def predict(self, x: Any) -> NDArray[Any]:
        """What the returned model of a fit predicts for rows: class probabilities, or numbers."""
        if self.model is None:
            raise InputError("this result has no model to predict with: use trainer.predict(result.state, x)")
        return np.asarray(self.model.predict(x))

    def save(self, folder: str | FilePath) -> None:
        """Write the model of a fit as a folder that ``mixtree predict``, ``show`` and ``explain`` read."""
        if self.model is None:
            raise InputError("this result has no model to save: use trainer.save(result.state)")
        self.model.save(folder)

    def what_if(self, mixture: ArrayLike | Mapping[str, float]) -> WhatIf:
        """The merged loss of any mixture of the sources, with its 95 % interval.

        Parameters
        ----------
        mixture
            Weights in the order of the sources, or by their names; those left out are 0.
        """
        names = [name for name in self.weights if name != TARGET]
        if isinstance(mixture, Mapping):
            if unknown := set(mixture) - set(names):
                raise InputError(f"there is no source {sorted(unknown)[0]!r}; they are {', '.join(names)}")
            mixture = [float(mixture.get(name, 0.0)) for name in names]
        return what_if(self.tree.values(), mixture, sources=len(names))

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
    workers: int | str = 1,
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

    Parameters
    ----------
    search, trainer
        What to train, and what trains it; used once, a resumed study needs new ones with the same settings.
    seed
        Of every random draw, together with a node's path.
    init_seed
        Of the initial model, ``seed`` by default: studies that are compared start from one model and still
        draw their own rows.
    storage
        A file name, a database URL or a Storage makes the study survive its process.
    study
        Its name in the storage.
    resume
        Go on with the stored study of this name: it ends as if it had never been interrupted. A finished one
        whose search now has a larger budget goes on too.
    workers
        Processes that train, or a Ray cluster: ``"ray"``, ``"ray:HOST:PORT"``, ``"ray://HOST:PORT"``, with
        options such as ``"ray?num_gpus=1"``; the answer is the same for all of them.
    objective
        What the search minimises, made of what the trainer measured; by default the trainer's loss.
    listeners
        Functions that are told the study's events.
    keep
        Models that stay: of ``"all"`` nodes, those that a later trial or the result may need
        (``"frontier"``), or the returned one alone (``"best"``).
    keep_predictions
        Store what every node predicts for the validation rows, and return it.
    time_limit
        Seconds after which no round is begun; the study can be resumed.
    max_failures
        Deaths of workers after which a node counts as diverged.
    allow_changed_data
        Resume with other rows than the study began with.
    data
        The rows as they were given, by which a study knows them again, where the trainer's are not the same:
        without those held out, with folds of them or with weights.
    recipe
        How the command line can build it again.

    Returns
    -------
    Result
        The returned node, its model, the tree, and where every step went.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> from mixtree.partition import bisect, simplex_root
    >>> from mixtree.trainers.mlp import MlpTrainer
    >>> from mixtree.tree_search import TreeSearch
    >>> trainer = MlpTrainer(synthetic(rows=60).sources, hidden=())
    >>> result = run(TreeSearch(simplex_root(3), bisect, budget=50, steps=10), trainer)
    >>> sum(result.spent.values())
    50
    """
    searching, training = as_search(search), as_trainer(trainer)
    at_work = who_works(workers)
    if keep not in ("all", "frontier", "best"):
        raise InputError(f"keep must be 'all', 'frontier' or 'best'; got {keep!r}")
    _check_time_limit(time_limit)
    if max_failures < 1:
        raise InputError(f"max_failures must be at least 1; got {max_failures}")
    if storage is not None or not isinstance(study, str) or not study:
        check_name(study)
    check_listeners(listeners)
    check = Checked(searching, training, name=type(search).__name__)
    limits = Limits(at_work, time_limit, max_failures, keep, keep_predictions, allow_changed_data)
    rows: Any = training.sources if data is None else data
    sources = rows if isinstance(rows, Sources) else None
    config: dict[str, Any] = {
        "sources": list(source_names(training)),
        "search": settings(search),
        "trainer": settings(trainer),
        "objective": None if objective is None else settings(objective),
        "charged": dict(searching.charged),
    }
    with opened(storage, kept=keep_predictions) as place:
        # Reading all rows takes a moment, which a study that nobody can resume need not spend.
        fingerprint = data_fingerprint(sources) if sources is not None and place.lasting else ""
        mine = training.sources
        if fingerprint and isinstance(mine, Sources) and mine.validation is not rows.validation:
            config[CHOOSES] = rows_fingerprint(mine.validation)  # others are held out
        record = StudyRecord(
            study,
            seed,
            seed if init_seed is None else init_seed,
            check.budget or 0,
            config=config,
            data=fingerprint,
            sizes={} if sources is None else sources.row_counts(),
            recipe=recipe,
        )
        reporter = Reporter(place, study, listeners)
        began = time.monotonic()  # choosing an engine counts towards the time limit
        new = not (resume and study in [each.name for each in place.studies()])
        loop, stillborn = None, False
        if new:
            training.prepare(steps=record.budget or None, seconds=time_limit)
            key = model_key(
                study, seed, record.init_seed, record.budget, config, fingerprint, training.engine
            )
            place.create(replace(record, engine=training.engine, key=key))
        try:
            with place.lock(study):
                raised = not new and _reopen(place, record, training, reporter, limits)
                loop = Loop(
                    searching,
                    training,
                    place,
                    record,
                    check=check,
                    limits=limits,
                    objective=objective,
                    reporter=reporter,
                )
                reason = _run(loop, began, raised=raised)
                node = searching.best()
                return Result(
                    study=study,
                    weights=reported(record, loop.tree, node),
                    value=node.value,
                    node=node,
                    rule=str(searching.rule),
                    reason=reason,
                    budget=record.budget or loop.spent,
                    spent={**searching.charged, **loop.tree.spent},
                    tree=loop.tree,
                    state=model(loop, node.path),
                    warnings=tuple(reporter.warnings),
                    notes=tuple(searching.notes),
                    predictions=_predictions(place.nodes(study)) if keep_predictions else {},
                )
        except InputError:
            stillborn = new and (loop is None or not loop.tree)
            raise
        finally:
            for listener in listeners:
                over = getattr(listener, "study_over", None)
                if over is not None:
                    over()
            if loop is not None:
                loop.close()
            if stillborn:  # what could not even begin leaves nothing behind
                place.delete(study)


def _reopen(
    place: Storage, now: StudyRecord, trainer: TrainerBase[Any], reporter: Reporter, limits: Limits
) -> bool:
    """See that it is the same study, and say that it goes on; whether its budget was raised."""
    name, then = now.name, place.load(now.name)
    changed = differences(
        {"seed": then.seed, "init_seed": then.init_seed, **then.config},
        {"seed": now.seed, "init_seed": now.init_seed, **now.config},
        leave_out=(CHOOSES,) if limits.allow_changed_data or then.data != now.data else (),
    )
    if changed:
        raise StorageError(
            f"study {name!r} cannot go on with other settings ({'; '.join(changed)}): "
            "use the same ones, or another study name"
        )
    if now.budget < then.budget:
        raise StorageError(
            f"study {name!r} was started with a budget of {then.budget} steps; it can be raised, "
            f"not lowered to {now.budget}"
        )
    if then.data != now.data and not limits.allow_changed_data:
        raise StorageError(
            f"study {name!r} was started on other data ({then.data[:8]}, not {now.data[:8]}): "
            "bring the same rows in the same order, or allow changed data (allow_changed_data=True, "
            "--allow-changed-data) and answer for mixing the two"
        )
    if (models := place.checkpoints(name)) is not None:
        models.check_own()
    if then.engine is not None:
        trainer.engine = then.engine
    trainer.prepare(steps=now.budget or None, seconds=limits.time_limit)
    if now.budget > then.budget:
        reporter.note("budget", f"the budget was raised from {then.budget} to {now.budget} steps")
    if then.data != now.data:
        reporter.note("data", f"the study goes on with other data: {now.data}, not {then.data}")
    reporter.note("resumed", "the study goes on")
    # A process that died while it marked nodes as left behind leaves that to the next one.
    raised = now.budget > then.budget or then.status == "raising"
    changes: dict[str, Any] = {"budget": now.budget, "data": now.data, "config": now.config}
    place.update(name, status="raising" if raised else "running", best=None, sizes=now.sizes, **changes)
    return raised


def _run(loop: Loop[Any], began: float, *, raised: bool) -> str:
    """Run the rounds; why they ended. What stops them is written down."""
    place, record, reporter = loop.storage, loop.record, loop.reporter
    try:
        loop.leave_behind(raised=raised)
        if raised:
            place.update(record.name, status="running")
            raised = False
        sources = tuple(record.config["sources"])
        reporter.emit(StudyStarted(record.name, record.budget, loop.spent, sources))
        return loop.run(began)
    except StudyInterrupted as error:
        place.update(record.name, status="stopped")
        how = "nothing was stored"
        if place.where and record.recipe is not None:
            how = f"resume it with: {shlex.join(['mixtree', 'resume', place.where, record.name])}"
        elif place.where:
            call = f"storage={place.where!r}, study={record.name!r}, resume=True"
            how = f"run it again with {call} and it goes on"
        raise StudyInterrupted(f"study {record.name!r} stopped after {error}; {how}") from None
    except BaseException as error:
        # The error itself is what counts; where even this cannot be written the study looks killed.
        with suppress(MixtreeError):
            status = "failed" if isinstance(error, Exception) else "stopped"
            reporter.note(status, f"{type(error).__name__}: {error}")
            if not raised:  # else the next process must know that nodes are still to be marked
                place.update(record.name, status=status)
        raise


def load_study(place: Storage, study: str, trainer: Trainer[State] | None = None) -> Result[Any]:
    """The result of a stored study.

    Parameters
    ----------
    place
        Where it is stored.
    study
        Its name there.
    trainer
        Makes its own state of the stored arrays; without one ``state`` is those arrays.
    """
    record, nodes = place.load(study), place.nodes(study)
    tree = stored_tree(nodes)
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
        predictions=_predictions(nodes),
    )


def _predictions(nodes: Sequence[Node]) -> dict[Path, NDArray[Any]]:
    return {node.path: node.predictions for node in nodes if node.predictions is not None}


def stored_tree(nodes: Sequence[Node]) -> Tree:
    """The evaluated nodes of a stored study, without their predictions."""
    done = (node for node in nodes if node.status != "pending")
    return Tree({node.path: replace(node, predictions=None) for node in done})


def reported(record: StudyRecord, tree: Tree, node: Node) -> dict[str, float]:
    """A node's mixture by the names of its sources; one more weight than sources is the target's own rows.

    A model that was tuned on the target's rows last has the mixture that it was trained on before. Folds of
    the target's rows serve a policy's own checks and are left out.
    """
    known = tuple(record.config.get("sources", ()))
    count, lineage = len(given(known)), tree.lineage(node.path)
    before = [each for each in lineage if Allocation.of(each.mixture, count).sources.any()]
    return named(known, (before[-1] if before else node).mixture)


@contextmanager
def opened(
    storage: Storage | str | FilePath | None, *, kept: bool = False, exists: bool = False
) -> Iterator[Storage]:
    """The storage itself, the one behind a file name or URL, or scratch.

    Parameters
    ----------
    storage
        None for scratch.
    kept
        Whether its rows are read later.
    exists
        Whether a file that is not there is an error.
    """
    if isinstance(storage, str | FilePath):
        # SQLAlchemy takes longer to load than a small study.
        from mixtree.storage.sql import database_file, open_storage

        file = database_file(str(storage))
        if exists and "://" not in file and not FilePath(file).exists():
            raise InputError(f"there is no study file {file}")
        # Closed again: a file that nobody has open is whole, without a journal beside it.
        with closing(open_storage(storage)) as place:
            yield place
    elif storage is None or isinstance(storage, Storage):
        yield (RunStorage() if kept else ScratchStorage()) if storage is None else storage
    else:
        raise InputError(f"storage is a file name, a database URL or a Storage; got {type(storage).__name__}")


def check_listeners(listeners: object) -> None:
    """An error for what is no list of functions."""
    if not isinstance(listeners, list | tuple) or not all(map(callable, listeners)):
        raise InputError(f"listeners is a list of functions of an event; got {type(listeners).__name__}")


def seconds_left(time_limit: float | None, since: float) -> float | None:
    """What is left of a time limit that began then; of one that is over a moment, for the first round."""
    if time_limit is None:
        return None
    _check_time_limit(time_limit)
    return max(1e-9, float(time_limit) - (time.monotonic() - since))


def _check_time_limit(time_limit: object) -> None:
    if time_limit is not None and not (isinstance(time_limit, Real) and float(time_limit) > 0):
        raise InputError(f"the time limit must be a number of seconds above 0; got {time_limit!r}")
