"""Conformance suites: run them over your own partition, search, trainer or storage.

Each raises AssertionError with a sentence that says which promise is broken.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import fields, replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.fingerprint import differences
from mixtree.errors import StorageError, StudyLocked
from mixtree.partition import Partition
from mixtree.search import Search, as_search
from mixtree.seeds import derive_seed
from mixtree.simplex import Cell, Mixture, uniform_mixture
from mixtree.storage.base import Storage, StudyRecord
from mixtree.storage.checkpoints import Checkpoints
from mixtree.trainer import Evaluation, Job, Trainer
from mixtree.tree import Node, Segment, Trial, pending


def check_partition(root: Cell, partition: Partition, *, depth: int = 12, seed: int = 0) -> None:
    """A partition cuts a cell into two or more cells inside it, the same for the same seed, or into none."""
    random = np.random.default_rng(seed)
    cell: Cell = root
    path: tuple[int, ...] = ()
    for _ in range(depth):
        _check_point(cell.representative, cell, f"cell {path}")
        children = partition(cell, derive_seed(seed, path))
        if not children:
            return
        assert len(children) >= 2, f"cell {path} has one child: a cut gives two or more, or none"
        again = partition(cell, derive_seed(seed, path))
        for child, same in zip(children, again, strict=True):
            assert np.array_equal(child.representative, same.representative), (
                f"cell {path}: the same seed gave other children"
            )
        points = np.array([_random_point(child, partition, random) for child in children for _ in range(4)])
        assert cell.contains(points).all(), f"cell {path}: a child reaches outside its parent"
        # A cell is convex: points between those of different children show gaps and overlaps.
        share = random.random((len(points), 1))
        mixed = share * points + (1 - share) * random.permutation(points)
        homes = np.array([child.contains(np.vstack([points, mixed])) for child in children]).sum(axis=0)
        assert (homes > 0).all(), f"cell {path}: a point of the cell lies in none of the children"
        assert (homes == 1).all(), f"cell {path}: points of the cell lie in more than one of the children"
        pick = int(random.integers(len(children)))
        cell, path = children[pick], (*path, pick)


def _random_point(cell: Cell, partition: Partition, random: np.random.Generator) -> Mixture:
    """A point inside the cell: between the representatives of some of its descendants."""
    points = [cell.representative]
    inner = cell
    for _ in range(3):
        children = partition(inner, int(random.integers(2**32)))
        if not children:
            break
        inner = children[int(random.integers(len(children)))]
        points.append(inner.representative)
    point: Mixture = random.dirichlet(np.ones(len(points))) @ np.array(points)
    return point


def _check_point(point: Mixture, cell: Cell, where: str) -> None:
    assert point.min() >= 0, f"{where}: the representative has a negative weight"
    assert abs(point.sum() - 1) < 1e-9, f"{where}: the representative does not sum to 1"
    assert cell.contains(point)[0], f"{where}: the representative lies outside its cell"


def check_search(make: Callable[[], Search], *, budget: int, seed: int = 0) -> None:
    """A search stays within its budget, continues only models that exist, and depends on tells alone.

    ``make`` returns the same search, untouched, each time.
    """

    def noise(trial: Trial) -> float:
        return float(np.random.default_rng(derive_seed(seed, trial.path)).random())

    first = _drive(make(), budget, noise)
    second = _drive(make(), budget, noise, backwards=True)
    assert [trial.path for trial in first] == [trial.path for trial in second], (
        "the search depends on the order in which a round's outcomes arrive, or on hidden randomness"
    )
    for one, two in zip(first, second, strict=True):
        assert np.array_equal(one.mixture, two.mixture), f"trial {one.path}: another mixture the second time"
        assert one.steps == two.steps, f"trial {one.path}: another number of steps the second time"
    search, finite = make(), first[0].path
    _drive(search, budget, lambda trial: 1.0 if trial.path == finite else float("nan"))
    assert search.best().path == finite, "best: a diverged node was returned though a finite one exists"


def _drive(
    search: Search, budget: int, value: Callable[[Trial], float], *, backwards: bool = False
) -> list[Trial]:
    """All that the search asks for. It ends: each round takes at least one step of the budget."""
    seen: dict[tuple[int, ...], Trial] = {}
    needed, held = as_search(search).needed, set[tuple[int, ...]]()
    spent = 0
    while trials := _asked(search):
        for trial in trials:
            _check_trial(trial)
            above = trial.path[:-1]
            assert not above or above in seen, (
                f"ask: trial {trial.path} continues a model that does not exist"
            )
            assert needed is None or not above or above in held, (
                f"needed: the model of {above} was not needed, and trial {trial.path} continues it"
            )
            spent += trial.steps
            assert spent <= budget, f"ask: the search asked for {spent} steps of a budget of {budget}"
        for trial in trials:
            assert trial.path not in seen, f"ask: path {trial.path} was asked for twice"
            seen[trial.path] = trial
        for trial in reversed(trials) if backwards else trials:
            search.tell(trial, Evaluation(value(trial), 0.1))
        if needed is not None:
            asked = held.union(trial.path for trial in trials)
            held = needed(asked)
            assert isinstance(held, set) and held <= asked, "needed must return a set of some of its paths"
    assert seen, "ask: the search asked for nothing"
    assert search.best().path in seen, "best: the returned node was never trained"
    assert needed is None or search.best().path in held, "needed: the returned model was not needed"
    assert not _asked(search), "ask: a finished search asked for more"
    return list(seen.values())


def _asked(search: Search) -> list[Trial]:
    # Anything else may be true when it is empty, or be used up by the first look at it.
    return _listed(search.ask(), "ask must return a list of trials, an empty one at the end")


def _check_trial(trial: Trial) -> None:
    assert isinstance(trial, Trial), f"ask: a round is a list of Trial; it holds {_kind(trial)}"
    path, steps, mixture = trial.path, trial.steps, trial.mixture
    # A numpy number is written in another way than an int, into seeds and into databases.
    assert isinstance(path, tuple) and all(_is_int(index) for index in path), (
        f"ask: a trial's path must be a tuple of ints; got {path!r}"
    )
    assert _is_int(steps) and steps >= 1, (
        f"ask: the steps of trial {path} must be an int of at least 1; got {steps!r} ({type(steps).__name__})"
    )
    assert isinstance(mixture, np.ndarray) and mixture.ndim == 1 and mixture.dtype.kind in "fiu", (
        f"ask: the mixture of trial {path} must be an array with one number per source; got {mixture!r}"
    )
    assert abs(mixture.sum() - 1) < 1e-9, f"ask: the mixture of trial {path} does not sum to 1: {mixture}"
    assert mixture.min() >= 0, f"ask: the mixture of trial {path} has a negative weight: {mixture}"


def _is_int(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _kind(found: object) -> str:
    """What it is, in words."""
    return "None" if found is None else f"a {type(found).__qualname__}"


def _listed(found: Any, promise: str) -> list[Any]:
    assert isinstance(found, list | tuple), f"{promise}; got {_kind(found)}"
    return list(found)


def check_trainer(trainer: Trainer[Any], *, sources: int, steps: int = 6, rows: int | None = None) -> None:
    """A trainer changes no state it is given, depends on seeds alone, and saves all that training needs.

    All of a job counts: its state, mixture, steps, and ``lr_scale`` unless ``describe()`` says that there is
    no step size (``"step_size": None``). ``rows`` is the number of validation rows, where the trainer gives
    predictions.
    """
    _check_description(trainer)
    state = trainer.init(7)
    before = _saved(trainer, state)
    _assert_equal(before, _saved(trainer, trainer.init(7)), "init: the same seed gave another model")
    even, tilted = uniform_mixture(sources), np.eye(sources)[0]
    jobs = [Job(state, even, steps, 11), Job(state, tilted, steps, 12, 0.5), Job(state, even, steps, 11)]
    together = _trained(trainer, jobs)
    _assert_equal(before, _saved(trainer, state), "train changed its input")
    if getattr(trainer, "group", None) is None:
        for job, result in zip(jobs, together, strict=True):
            alone = _trained(trainer, [job])[0]
            _assert_same(trainer, alone, result, "train: a job's numbers depend on the jobs beside it")
    for once, again in zip(together, _trained(trainer, jobs), strict=True):
        _assert_same(trainer, once, again, "train: the same round gave two results")
    trip = trainer.load(_saved(trainer, together[0]))
    _assert_same(trainer, trip, together[0], "load(save(state)) is not the state")
    direct, after_trip = (_trained(trainer, [Job(each, even, steps, 13)])[0] for each in (together[0], trip))
    _assert_same(trainer, direct, after_trip, "training after save and load differs from training without")
    _check_evaluations(trainer, together, rows)
    _check_obedience(trainer, state, together[0], sources=sources, steps=steps)


def _check_obedience(trainer: Trainer[Any], fresh: Any, later: Any, *, sources: int, steps: int) -> None:
    """Whatever a job asks for makes a difference to what is learnt."""
    job: Job[Any] = Job(fresh, np.eye(sources)[0], steps, 17)
    others = {
        "state: a model must go on from the one it is given": replace(job, state=later),
        "steps": replace(job, steps=2 * steps),
    }
    if sources > 1:
        others["mixture: two sources gave one model"] = replace(job, mixture=np.eye(sources)[1])
    told: dict[str, Any] = getattr(trainer, "describe", dict)()
    if told.get("step_size", True) is not None:
        others['lr_scale; if there is no step size, describe() must say "step_size": None'] = replace(
            job, lr_scale=0.5
        )
    plain, *changed = (_saved(trainer, each) for each in _trained(trainer, [job, *others.values()]))
    for what, arrays in zip(others, changed, strict=True):
        assert not _equal(plain, arrays), f"train ignores a job's {what}"


def _check_description(trainer: Trainer[Any]) -> None:
    describe = getattr(trainer, "describe", None)
    if describe is None:
        return
    promise = "describe must return a dict of plain data: numbers, texts, lists and dicts"
    told = describe()
    assert isinstance(told, dict), f"{promise}; got {_kind(told)}"
    assert all(isinstance(name, str) for name in told), f"{promise}, named by texts; got {list(told)}"
    try:
        once, twice = json.loads(json.dumps(told)), json.loads(json.dumps(describe()))
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{promise}; got {told} ({error})") from error
    # NaN, too, is never what it was: no study with it among its settings can be resumed.
    changed = differences(once, twice)
    assert not changed, (
        f"describe must say the same each time, or no study can be resumed; {'; '.join(changed)}"
    )


def _trained(trainer: Trainer[Any], jobs: list[Job[Any]]) -> list[Any]:
    promise = "train must return a list with one state per job"
    states = _listed(trainer.train(jobs), promise)
    assert len(states) == len(jobs), f"{promise}; {len(jobs)} jobs gave {len(states)}"
    return states


def _evaluated(trainer: Trainer[Any], states: list[Any]) -> list[Evaluation]:
    promise = "evaluate must return a list with one evaluation per state"
    evaluations = _listed(trainer.evaluate(states), promise)
    assert len(evaluations) == len(states), f"{promise}; {len(states)} states gave {len(evaluations)}"
    for each in evaluations:
        assert isinstance(each, Evaluation), f"{promise}, each an Evaluation; got {_kind(each)}"
    return evaluations


def _check_evaluations(trainer: Trainer[Any], states: list[Any], rows: int | None) -> None:
    for state, evaluation in zip(states, _evaluated(trainer, states), strict=True):
        assert np.isfinite(evaluation.value), "evaluate: the value of a freshly trained model is not finite"
        again = _evaluated(trainer, [state])[0]
        assert again.value == evaluation.value, "evaluate: evaluating twice gave two values"
        if evaluation.predictions is not None and rows is not None:
            assert len(evaluation.predictions) == rows, (
                "evaluate: predictions need one row per validation row"
            )


def _saved(trainer: Trainer[Any], state: Any) -> dict[str, NDArray[Any]]:
    """What the trainer saves, by way of a checkpoint file."""
    arrays = trainer.save(state)
    assert isinstance(arrays, dict), f"save must return a dict of numpy arrays; got {_kind(arrays)}"
    for name, array in arrays.items():
        assert isinstance(name, str), f"save: arrays are named by texts; got {name!r}"
        # Numpy makes a number of its own of an array without dimensions wherever one computes with it.
        assert isinstance(array, np.ndarray | np.generic), (
            f"save: {name!r} must be a numpy array; got {_kind(array)}"
        )
    with TemporaryDirectory(prefix="mixtree-") as folder:
        models = Checkpoints(folder, "check")
        try:
            models.write((), arrays)
            return models.read(())
        except StorageError as error:
            raise AssertionError(f"save: the arrays do not survive a checkpoint file: {error}") from error


def _assert_same(trainer: Trainer[Any], one: Any, two: Any, message: str) -> None:
    _assert_equal(_saved(trainer, one), _saved(trainer, two), message)


def _assert_equal(first: dict[str, NDArray[Any]], second: dict[str, NDArray[Any]], message: str) -> None:
    assert first.keys() == second.keys(), f"{message}: {sorted(first)} are not {sorted(second)}"
    for name in first:
        assert _equal({name: first[name]}, {name: second[name]}), f"{message} ({name})"


def _equal(first: dict[str, NDArray[Any]], second: dict[str, NDArray[Any]]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[name], second[name], equal_nan=True) for name in first
    )


def check_storage(make: Callable[[], Storage]) -> None:
    """A storage gives back what it was given, bit for bit, keeps studies apart, and one process to a study.

    ``make`` returns a new, empty storage each time; it is closed afterwards if it can be.
    """
    for check in (_check_studies, _check_nodes, _check_rounds, _check_copies, _check_deletion, _check_locks):
        storage = make()
        with closing(storage) if hasattr(storage, "close") else nullcontext():  # type: ignore[type-var]
            assert storage.studies() == [], "a new storage is not empty"
            check(storage)


_STUDY = StudyRecord(
    "one / ünï: 'a' \"b\" ..",
    seed=2**64 - 1,
    init_seed=0,
    budget=2**40,
    config={"search": {"nu": 0.1, "deep": [1, None, True, "é"]}, "trainer": {}},
    data="abc",
    engine="numpy",
    recipe={"model": "mlp"},
    key="k",
    sizes={"ünï": 2**40, "target": 1},
    notes=("mixture: é", ""),
)


def _check_studies(storage: Storage) -> None:
    plain = StudyRecord("two", 1, 2, 0)
    storage.create(_STUDY)
    storage.create(plain)
    for record in (_STUDY, plain):
        loaded = storage.load(record.name)
        assert loaded.created and loaded.updated, "a study's row says when it was made and changed"
        _assert_same_study(record, loaded)
    assert [each.name for each in storage.studies()] == [_STUDY.name, "two"], "studies come oldest first"
    _assert_refuses(lambda: storage.create(plain), "'two'", "a name can be taken twice")
    _assert_refuses(lambda: storage.load("three"), "'two'", "an unknown study does not name the known ones")
    storage.update("two", best=())
    assert storage.load("two").best == (), "the root as best node came back changed"
    changes = {"status": "finished", "best": (0, 12), "rule": "best", "budget": 7}
    changes |= {"notes": ("one",), "sizes": {"a": 3}}
    storage.update("two", **changes)
    changed = replace(plain, **changes)  # type: ignore[arg-type]
    _assert_same_study(changed, storage.load("two"))
    _assert_same_study(_STUDY, storage.load(_STUDY.name))
    for kind in ("warning", "resumed", "warning"):
        storage.add_event("two", kind, f"{kind}: 100 % ü")
    remembered = [(each.kind, each.message) for each in storage.events("two")]
    assert remembered == [(kind, f"{kind}: 100 % ü") for kind in ("warning", "resumed", "warning")], (
        "events came back changed or in another order"
    )
    assert storage.events(_STUDY.name) == [], "a study has events of another"


def _trials(count: int, depth: int = 0) -> list[Trial]:
    random = np.random.default_rng(count)
    above = (1,) * depth
    return [
        Trial((*above, index), random.dirichlet(np.ones(5)), 2**33 + index, 0.1, "search", _segment(index))
        for index in range(count)
    ]


def _segment(index: int) -> Segment | None:
    """None, the first one of a stage from the initial model, one further on."""
    return (None, Segment((), 0, 2**34), Segment((3, index), 2**33 + 1, 2**35))[index % 3]


def _done(trials: list[Trial], number: int = 0) -> list[Node]:
    random = np.random.default_rng(len(trials))
    seen = [None, random.random((3, 2)), random.random(4).astype(np.float32), np.zeros((0, 2))]
    values = [0.1 + 0.2, float("inf"), -1e-310, 5e300]
    errors = [float("nan"), 1 / 3, 0.0, float("inf")]
    return [
        replace(
            pending(trial, number),
            value=values[at % 4],
            standard_error=errors[at % 4],
            predictions=seen[at % 4],
            status="done",
            seconds=0.25 * at,
        )
        for at, trial in enumerate(trials)
    ]


def _check_nodes(storage: Storage) -> None:
    storage.create(_STUDY)
    root = Trial((), uniform_mixture(5), 1, 1.0, "root")
    storage.begin_round(_STUDY.name, 0, [root])
    trials = _trials(30)
    storage.begin_round(_STUDY.name, 1, trials)
    records = storage.nodes(_STUDY.name)
    assert all(each.status == "pending" for each in records), "a node that was only begun is not pending"
    _assert_same_nodes([pending(root, 0), *(pending(trial, 1) for trial in trials)], records)
    done = _done(trials, 1)
    storage.finish(_STUDY.name, [])
    storage.finish(_STUDY.name, done[10:])
    storage.finish(_STUDY.name, done[:10][::-1])
    _assert_same_nodes([pending(root, 0), *done], storage.nodes(_STUDY.name))
    done[:2] = [replace(each, status="superseded") for each in done[:2]]
    storage.finish(_STUDY.name, done[:2])
    _assert_same_nodes([pending(root, 0), *done], storage.nodes(_STUDY.name))


def _check_rounds(storage: Storage) -> None:
    storage.create(_STUDY)
    trials = _trials(3)
    storage.begin_round(_STUDY.name, 0, trials)
    storage.finish(_STUDY.name, _done(trials)[:1])
    changed = [replace(trial, steps=9) for trial in trials[1:]]
    storage.begin_round(_STUDY.name, 1, changed)
    found = {each.path: each for each in storage.nodes(_STUDY.name)}
    assert len(found) == 3, "a trial that is begun anew must not be there twice"
    assert [found[trial.path].steps for trial in changed] == [9, 9], "a trial was not begun anew"
    assert found[trials[0].path].status == "done", "a finished node was begun anew"


def _check_copies(storage: Storage) -> None:
    storage.create(_STUDY)
    trials = _trials(5)
    storage.begin_round(_STUDY.name, 0, trials)
    storage.finish(_STUDY.name, _done(trials)[:4])
    storage.add_event(_STUDY.name, "warning", "w")
    assert storage.verdict(_STUDY.name) is None, "a new study has a verdict"
    for told in ({"score": 0.5}, {"score": 0.1 + 0.2, "words": "größer"}):
        storage.write_verdict(_STUDY.name, told)
        assert storage.verdict(_STUDY.name) == told, "a verdict came back changed"
    storage.update(_STUDY.name, best=(0,), status="stopped")
    models = storage.checkpoints(_STUDY.name)
    weights = {"w": np.array([0.1, -0.0, 5e-324])}
    if models is not None:
        models.write((0,), weights)
    storage.copy(_STUDY.name, "copy")
    _assert_refuses(lambda: storage.copy("copy", _STUDY.name), "already", "a copy can take a name in use")
    _assert_same_study(replace(storage.load(_STUDY.name), name="copy"), storage.load("copy"))
    _assert_same_nodes(storage.nodes(_STUDY.name), storage.nodes("copy"))
    assert [each.message for each in storage.events("copy")] == ["w"], "a copy has lost its events"
    assert storage.verdict("copy") == told, "a copy has lost its verdict"
    storage.begin_round("copy", 1, _trials(2, depth=1))
    assert len(storage.nodes(_STUDY.name)) == 5, "a change of the copy changed the original"
    storage.delete(_STUDY.name)
    assert len(storage.nodes("copy")) == 7, "the copy went with the original"
    copied = storage.checkpoints("copy")
    if copied is not None:
        assert copied.read((0,))["w"].tobytes() == weights["w"].tobytes(), "a copied model has changed"


def _check_deletion(storage: Storage) -> None:
    other = replace(_STUDY, name="other")
    for record in (_STUDY, other):
        storage.create(record)
        storage.begin_round(record.name, 0, _trials(4))
        storage.finish(record.name, _done(_trials(4)))
        storage.add_event(record.name, "warning", record.name)
        storage.write_verdict(record.name, {"score": 0.5})
        models = storage.checkpoints(record.name)
        if models is not None:
            models.write((0,), {"w": np.ones(3)})
    storage.delete(_STUDY.name)
    _assert_refuses(lambda: storage.delete(_STUDY.name), "'other'", "a deleted study can be deleted again")
    assert [each.name for each in storage.studies()] == ["other"], "another study was deleted"
    assert len(storage.nodes("other")) == 4, "another study's nodes were deleted"
    left = storage.checkpoints("other")
    assert left is None or left.exists((0,)), "another study's models were deleted"
    storage.create(_STUDY)
    assert storage.nodes(_STUDY.name) == [], "a new study has the nodes of a deleted one"
    assert storage.events(_STUDY.name) == [], "a new study has the events of a deleted one"
    assert storage.verdict(_STUDY.name) is None, "a new study has the verdict of a deleted one"
    fresh = storage.checkpoints(_STUDY.name)
    assert fresh is None or fresh.count() == 0, "a new study has the models of a deleted one"


def _check_locks(storage: Storage) -> None:
    storage.create(_STUDY)
    storage.create(replace(_STUDY, name="other"))
    for _ in range(2):
        with storage.lock(_STUDY.name), storage.lock("other"):
            for name in (_STUDY.name, "other"):
                try:
                    with storage.lock(name):
                        raise AssertionError("two can hold one study")
                except StudyLocked as error:
                    assert repr(name) in str(error), "the refusal does not name the study"
    try:
        with storage.lock(_STUDY.name):
            raise KeyError
    except KeyError:
        pass
    with storage.lock(_STUDY.name):  # a failed holder has let go of it
        _assert_refuses(lambda: storage.delete(_STUDY.name), "", "a study that is being run can be deleted")
    storage.delete(_STUDY.name)


def _assert_refuses(call: Callable[[], object], part: str, message: str) -> None:
    try:
        call()
    except StorageError as error:
        assert part in str(error), f"{message}: {error}"
        return
    raise AssertionError(message)


def _assert_same_study(one: StudyRecord, two: StudyRecord) -> None:
    for each in fields(StudyRecord):
        if each.name not in ("created", "updated", "models"):  # which the storage says itself
            before, after = getattr(one, each.name), getattr(two, each.name)
            assert before == after, f"{each.name} of a study was {before!r}, came back as {after!r}"


def _assert_same_nodes(expected: list[Node], found: list[Node]) -> None:
    assert [each.path for each in expected] == [each.path for each in found], (
        "nodes are missing, or not in the order in which they were asked for"
    )
    for one, two in zip(expected, found, strict=True):
        assert _bits(one) == _bits(two), f"node {one.path} came back changed: {two}, not {one}"


def _bits(node: Node) -> tuple[Any, ...]:
    part = node.segment and (node.segment.stream, node.segment.before, node.segment.total)
    asked = (node.path, node.mixture.tobytes(), node.steps, node.lr_scale, node.phase, part)
    numbers = np.array([node.value, node.standard_error, node.seconds]).tobytes()
    seen = node.predictions
    told = None if seen is None else (seen.dtype.str, seen.shape, seen.tobytes())
    return asked, node.round, node.status, numbers, told
