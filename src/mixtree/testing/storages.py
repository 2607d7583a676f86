"""Conformance of storages."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import fields, replace
from typing import Any

import numpy as np

from mixtree.errors import StorageError, StudyLocked
from mixtree.simplex import uniform_mixture
from mixtree.storage.base import Storage, StudyRecord
from mixtree.tree import Merge, Node, Segment, Trial, pending


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


def verdict(value: float = 0.5, sentence: str = "größer") -> dict[str, Any]:
    """A verdict as a storage is given it."""
    return {
        "sentence": sentence,
        "score": {"value": value, "low": None, "high": 0.1 + 0.2, "rows": 40},
        "against": [{"name": "uniform", "difference": 0.1, "low": -0.1, "high": 0.3, "p": 0.5}],
        "hull": {"p": None, "inside": None},
        "mixture": {"ünï": {"weight": 1.0, "low": None, "high": None}},
        "queries": 3,
        "notes": ["n"],
    }


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
        Trial(
            (*above, index),
            random.dirichlet(np.ones(5)),
            0 if index % 4 == 1 else 2**33 + index,
            0.1,
            "search",
            _segment(index),
            Merge(((), (2, index)), (1 / 3, 2 / 3)) if index % 2 else None,
        )
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
    for told in (verdict(), verdict(0.1 + 0.2, "two\nlines")):
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
    merged = node.merged and (node.merged.paths, node.merged.weights)
    asked = (node.path, node.mixture.tobytes(), node.steps, node.lr_scale, node.phase, part, merged)
    numbers = np.array([node.value, node.standard_error, node.seconds]).tobytes()
    seen = node.predictions
    told = None if seen is None else (seen.dtype.str, seen.shape, seen.tobytes())
    return asked, node.round, node.status, numbers, told
