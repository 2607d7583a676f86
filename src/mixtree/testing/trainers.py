"""Conformance of trainers."""

from __future__ import annotations

import json
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.fingerprint import differences
from mixtree.errors import StorageError
from mixtree.simplex import uniform_mixture
from mixtree.storage.checkpoints import Checkpoints
from mixtree.testing.found import kind, listed
from mixtree.trainer import Evaluation, Job, Trainer, as_trainer


def check_trainer(trainer: Trainer[Any], *, sources: int, steps: int = 6, rows: int | None = None) -> None:
    """A trainer changes no state it is given, depends on seeds alone, and saves all that training needs.

    All of a job counts: its state, mixture, steps, and ``lr_scale`` unless ``describe()`` says that there is
    no step size (``"step_size": None``).

    Parameters
    ----------
    trainer
        What is checked.
    sources
        Number of sources.
    steps
        Of a job.
    rows
        Number of validation rows, where the trainer gives predictions.
    """
    _check_description(trainer)
    state = trainer.init(7)
    before = _saved(trainer, state)
    _assert_equal(before, _saved(trainer, trainer.init(7)), "init: the same seed gave another model")
    even, tilted = uniform_mixture(sources), np.eye(sources)[0]
    jobs = [Job(state, even, steps, 11), Job(state, tilted, steps, 12, 0.5), Job(state, even, steps, 11)]
    together = _trained(trainer, jobs)
    _assert_equal(before, _saved(trainer, state), "train changed its input")
    if as_trainer(trainer).group is None:
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
    _check_merge(trainer, together, sources=sources, steps=steps)


def _check_obedience(trainer: Trainer[Any], fresh: Any, later: Any, *, sources: int, steps: int) -> None:
    """Whatever a job asks for makes a difference to what is learnt."""
    job: Job[Any] = Job(fresh, np.eye(sources)[0], steps, 17)
    others = {
        "state: a model must go on from the one it is given": replace(job, state=later),
        "steps": replace(job, steps=2 * steps),
    }
    if sources > 1:
        others["mixture: two sources gave one model"] = replace(job, mixture=np.eye(sources)[1])
    told = as_trainer(trainer).describe()
    if told.get("step_size", True) is not None:
        others['lr_scale; if there is no step size, describe() must say "step_size": None'] = replace(
            job, lr_scale=0.5
        )
    plain, *changed = (_saved(trainer, each) for each in _trained(trainer, [job, *others.values()]))
    for what, arrays in zip(others, changed, strict=True):
        assert not _equal(plain, arrays), f"train ignores a job's {what}"


def _check_merge(trainer: Trainer[Any], states: list[Any], *, sources: int, steps: int) -> None:
    """Merged models can be evaluated, trained and saved; a model merged with itself predicts the same."""
    merge, even = as_trainer(trainer).merge, uniform_mixture(sources)
    if merge is None:
        return
    before = [_saved(trainer, state) for state in states]
    one, two, _ = states
    merged, again = merge([one, two], [0.25, 0.75], even), merge([one, two], [0.25, 0.75], even)
    _assert_same(trainer, merged, again, "merge: the same models gave two means")
    _assert_same(trainer, trainer.load(_saved(trainer, merged)), merged, "load(save(merged)) is not the mean")
    for state, kept in zip(states, before, strict=True):
        _assert_equal(kept, _saved(trainer, state), "merge changed its input")
    value, itself, middle = (
        each.value for each in _evaluated(trainer, [one, merge([one, one], [0.5, 0.5], None), merged])
    )
    assert np.isclose(value, itself, rtol=1e-4), (
        f"merge: a model merged with itself scores {itself}, not {value}"
    )
    assert np.isfinite(middle), "merge: the mean of two models has no finite value"
    _trained(trainer, [Job(merged, even, steps, 19)])


def _check_description(trainer: Trainer[Any]) -> None:
    describe = as_trainer(trainer).describe
    promise = "describe must return a dict of plain data: numbers, texts, lists and dicts"
    told = describe()
    assert isinstance(told, dict), f"{promise}; got {kind(told)}"
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
    states = listed(trainer.train(jobs), promise)
    assert len(states) == len(jobs), f"{promise}; {len(jobs)} jobs gave {len(states)}"
    return states


def _evaluated(trainer: Trainer[Any], states: list[Any]) -> list[Evaluation]:
    promise = "evaluate must return a list with one evaluation per state"
    evaluations = listed(trainer.evaluate(states), promise)
    assert len(evaluations) == len(states), f"{promise}; {len(states)} states gave {len(evaluations)}"
    for each in evaluations:
        assert isinstance(each, Evaluation), f"{promise}, each an Evaluation; got {kind(each)}"
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
    assert isinstance(arrays, dict), f"save must return a dict of numpy arrays; got {kind(arrays)}"
    for name, array in arrays.items():
        assert isinstance(name, str), f"save: arrays are named by texts; got {name!r}"
        # Numpy makes a number of its own of an array without dimensions wherever one computes with it.
        assert isinstance(array, np.ndarray | np.generic), (
            f"save: {name!r} must be a numpy array; got {kind(array)}"
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
