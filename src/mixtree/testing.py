"""Conformance suites: run them over your own partition, search or trainer.

Each raises AssertionError with a sentence that says which promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mixtree.partition import Partition
from mixtree.search import Search, Trial
from mixtree.seeds import derive_seed
from mixtree.simplex import Cell, Mixture, uniform_mixture
from mixtree.trainer import Evaluation, Job, Trainer


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
        inside = np.array([child.contains(points) for child in children])
        assert inside.any(axis=0).all(), f"cell {path}: a point of a child lies in none of the children"
        assert cell.contains(points).all(), f"cell {path}: a child reaches outside its parent"
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
    """A search stays within its budget, continues only models that exist, and depends on tells alone."""
    first = _drive(make(), budget, seed, backwards=False)
    assert first, "the search asked for nothing"
    second = _drive(make(), budget, seed, backwards=True)
    assert [trial.path for trial in first] == [trial.path for trial in second], (
        "the search depends on the order in which a round's outcomes arrive, or on hidden randomness"
    )
    for one, two in zip(first, second, strict=True):
        assert np.array_equal(one.mixture, two.mixture), f"trial {one.path}: another mixture the second time"
    _drive_diverging(make())


def _drive(search: Search, budget: int, seed: int, *, backwards: bool) -> list[Trial]:
    seen: dict[tuple[int, ...], Trial] = {}
    spent = 0
    while trials := search.ask():
        for trial in trials:
            assert trial.path not in seen, f"path {trial.path} was asked for twice"
            above = trial.path[:-1]
            assert not above or above in seen, f"trial {trial.path} continues a model that does not exist"
            assert trial.steps >= 1, f"trial {trial.path} has no steps"
            assert abs(trial.mixture.sum() - 1) < 1e-9, f"trial {trial.path}: the mixture does not sum to 1"
            assert trial.mixture.min() >= 0, f"trial {trial.path}: the mixture has a negative weight"
            spent += trial.steps
            assert spent <= budget, f"the search asked for {spent} steps of a budget of {budget}"
        for trial in trials:
            seen[trial.path] = trial
        for trial in reversed(trials) if backwards else trials:
            value = np.random.default_rng(derive_seed(seed, trial.path)).random()
            search.tell(trial, Evaluation(float(value), 0.1))
    best = search.best()
    assert best.path in seen, "the returned node was never trained"
    assert search.ask() == [], "a finished search asked for more"
    return list(seen.values())


def _drive_diverging(search: Search) -> None:
    """Only the first trial of all is finite: the search must end and return it."""
    first: Trial | None = None
    while trials := search.ask():
        for trial in trials:
            first = first or trial
            search.tell(trial, Evaluation(1.0 if trial is first else float("nan"), 0.1))
    assert first is not None
    assert search.best().path == first.path, "a diverged node was returned though a finite one exists"


def check_trainer(trainer: Trainer[Any], *, sources: int, steps: int = 6, rows: int | None = None) -> None:
    """A trainer changes no state it is given, depends on seeds alone, and saves all that training needs.

    ``rows`` is the number of validation rows, where the trainer gives predictions.
    """
    state = trainer.init(7)
    _assert_same(trainer, state, trainer.init(7), "init: the same seed gave another model")
    even, tilted = uniform_mixture(sources), np.eye(sources)[0]
    before = {name: array.copy() for name, array in trainer.save(state).items()}
    jobs = [Job(state, even, steps, 11), Job(state, tilted, steps, 12, 0.5), Job(state, even, steps, 11)]
    together = trainer.train(jobs)
    after = trainer.save(state)
    for name in before:
        assert np.array_equal(before[name], after[name], equal_nan=True), f"train changed its input ({name})"
    if getattr(trainer, "group", None) is None:
        for job, result in zip(jobs, together, strict=True):
            alone = trainer.train([job])[0]
            _assert_same(trainer, alone, result, "a job's numbers depend on the jobs beside it")
    for once, again in zip(together, trainer.train(jobs), strict=True):
        _assert_same(trainer, once, again, "the same round gave two results")
    trip = trainer.load({name: np.array(array) for name, array in trainer.save(together[0]).items()})
    _assert_same(trainer, trip, together[0], "load(save(state)) is not the state")
    direct, after_trip = (trainer.train([Job(each, even, steps, 13)])[0] for each in (together[0], trip))
    _assert_same(trainer, direct, after_trip, "training after save and load differs from training without")
    _check_evaluations(trainer, together, rows)


def _check_evaluations(trainer: Trainer[Any], states: list[Any], rows: int | None) -> None:
    evaluations = trainer.evaluate(states)
    assert len(evaluations) == len(states), "evaluate must return one evaluation per state"
    for state, evaluation in zip(states, evaluations, strict=True):
        assert np.isfinite(evaluation.value), "the value of a freshly trained model is not finite"
        assert trainer.evaluate([state])[0].value == evaluation.value, "evaluating twice gave two values"
        if evaluation.predictions is not None and rows is not None:
            assert len(evaluation.predictions) == rows, "predictions need one row per validation row"


def _assert_same(trainer: Trainer[Any], one: Any, two: Any, message: str) -> None:
    first, second = trainer.save(one), trainer.save(two)
    assert first.keys() == second.keys(), message
    for name in first:
        assert np.array_equal(first[name], second[name], equal_nan=True), f"{message} ({name})"
