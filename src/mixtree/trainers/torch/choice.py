"""Which engine trains a torch module right, and which of those is the fastest."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mixtree.simplex import uniform_mixture
from mixtree.trainer import Job
from mixtree.trainers.torch.engines import EagerEngine, Engine, EngineName, Recipe, TorchJob, TracedEngine
from mixtree.trainers.torch.state import Replica, TorchState
from mixtree.trainers.torch.traced import COUNTS

logger = logging.getLogger(__name__)

_SLOW_STEP = 0.05
"""Seconds from which on a step is all arithmetic or waiting, with nothing left for a trace to save."""

CHOICE_SHARE = 0.05
"""Choosing takes at most this share of a study's expected time."""

_TRACED, _VMAP = 500, 2_500
"""Steps of the eager loop that trying an engine takes at most: tracing, comparing, timing. From a layer of 8
units to 60 layers it was 90 to 480 for one model at a time, and 700 to 2,000 for both engines."""

_TIMINGS: dict[Any, dict[EngineName, float]] = {}
"""Seconds per step and model of the engines tried so far, by what decides them; infinite: unusable."""

_REASON = 150
"""Characters of an error that a warning tells: torch's own go on for pages."""


def make_engine(name: EngineName, recipe: Recipe, *, group: int, initial: TorchState) -> Engine:
    """The engine of this name if it trains this module right, else the next simpler one."""
    if name == "eager" or _only_eager(recipe):
        return EagerEngine(recipe)
    reason, groups = "", [group, 1] if name == "vmap" and group > 1 else [1]
    for size in groups:
        engine = _checked(recipe, initial, group=size)
        if not isinstance(engine, str):
            if size != groups[0]:
                logger.warning("engine vmap cannot train this module (%s): using engine traced", reason)
            return engine
        reason = engine
    logger.warning("engine %s cannot train this module (%s): using engine eager", name, reason)
    return EagerEngine(recipe)


def choose_engine(
    recipe: Recipe,
    *,
    group: int,
    initial: TorchState,
    steps: int | None = None,
    seconds: float | None = None,
) -> Engine:
    """The fastest of the engines that train this module right, by the time of a few steps.

    A study spends CHOICE_SHARE of its time on it: an engine that takes longer to try is not tried, and a
    short study takes the eager loop at once. Modules that are alike are timed once in a process; whether an
    engine trains a module right is checked for each.

    Parameters
    ----------
    recipe : Recipe
        What is trained, and how.
    group : int
        Models that may be trained at once.
    initial : TorchState
        A fresh model.
    steps : int, optional
        The study's budget.
    seconds : float, optional
        The study's time limit.
    """
    eager = EagerEngine(recipe)
    if _only_eager(recipe):
        return eager
    least = int(_TRACED / CHOICE_SHARE)
    if steps is not None and steps < least:
        logger.info("engine eager: choosing another one pays from %s steps on", f"{least:,}")
        return eager
    jobs = _trial_jobs(recipe, initial, models=group, steps=2)
    # A time limit goes by the clock on the wall, and a module may wait for something.
    wall: Callable[[], float] = time.perf_counter
    first = _time(eager, jobs[:1], recipe.device, wall)  # of a process, they are slow whatever the engine
    step = first / 2
    if seconds is None or first <= CHOICE_SHARE * seconds:
        step = _time(eager, jobs[:1], recipe.device, wall) / 2
    if step > _SLOW_STEP:
        logger.info("engine eager: a step takes %.0f ms, of which a trace would save little", 1e3 * step)
        return eager
    expected = min(np.inf if steps is None else steps, np.inf if seconds is None else seconds / step)
    allowed = CHOICE_SHARE * expected  # in steps of the eager loop
    sizes = [size for size, cost in ((1, _TRACED), (group, _VMAP)) if cost <= allowed][: 1 + (group > 1)]
    if not sizes:
        logger.info("engine eager: the time limit is too short to choose another one")
        return eager
    key = (_likeness(recipe), group, len(sizes))
    known = _TIMINGS.get(key)
    if known is not None:
        best = min(known, key=known.__getitem__)
        logger.info("engine %s: %s (timed before)", best, _told(known))
        return make_engine(best, recipe, group=group, initial=initial)
    most = min(_VMAP if len(sizes) > 1 else _TRACED, allowed) * step
    logger.info("choosing an engine for this module: up to about %.1f s", most)
    until = np.inf if seconds is None else time.perf_counter() + most
    return _timed(recipe, initial, key, sizes=sizes, group=group, until=until)


def _timed(
    recipe: Recipe, initial: TorchState, key: Any, *, sizes: Sequence[int], group: int, until: float
) -> Engine:
    """The fastest of the eager loop and the traced engines for so many models at once.

    What is not known by ``until`` is not waited for: the eager loop it is.
    """
    engines: list[Engine] = [EagerEngine(recipe)]
    costs: dict[EngineName, float] = {}
    for size in sizes:
        if time.perf_counter() > until:
            break
        faster = _checked(recipe, initial, group=size)
        if isinstance(faster, str):
            name: EngineName = "vmap" if size > 1 else "traced"
            logger.info("engine %s cannot train this module (%s)", name, faster)
            costs[name] = np.inf
            break
        engines.append(faster)
    jobs = _trial_jobs(recipe, initial, models=group, steps=10)
    timings: dict[EngineName, list[float]] = {engine.name: [] for engine in engines}
    for _ in range(6):
        if time.perf_counter() > until:
            logger.info("engine eager: choosing another one takes too long for the time limit")
            return engines[0]
        for engine in engines:
            some = jobs if engine.name == "vmap" else jobs[:1]
            timings[engine.name].append(_time(engine, some, recipe.device) / len(some) / 10)
    # The first round pays for traces and caches.
    costs |= {name: float(np.median(times[1:])) for name, times in timings.items()}
    _TIMINGS[key] = costs
    best = min(engines, key=lambda engine: costs[engine.name])
    logger.info("engine %s: %s", best.name, _told(costs))
    return best


def _told(costs: dict[EngineName, float]) -> str:
    told = ", ".join(f"{name} {1e6 * cost:.0f}" for name, cost in costs.items() if np.isfinite(cost))
    return f"microseconds per step and model: {told}"


def _likeness(recipe: Recipe) -> Any:
    """What decides how long a step takes: equal for modules that are alike."""
    replica, table = recipe.replica, recipe.table
    tensors = {**replica.parameters, **replica.buffers}
    return (
        torch.__version__,
        recipe.device,
        repr(replica.module),
        tuple(type(part) for part in replica.module.modules()),
        tuple((name, tuple(each.shape), each.dtype, each.requires_grad) for name, each in tensors.items()),
        type(replica.optimizer),
        repr(replica.fresh["groups"]),
        type(replica.scheduler),
        getattr(recipe.objective.loss, "__qualname__", None) or repr(recipe.objective.loss),
        (table.width, table.x is None, table.weight is None),
        (recipe.batch_size, recipe.clip_norm, recipe.reset_optimizer),
    )


def _only_eager(recipe: Recipe) -> bool:
    """A user's own batches may have any form, and mixed precision is no part of a trace."""
    return recipe.table.collate is not None or recipe.amp is not None


def _checked(recipe: Recipe, initial: TorchState, *, group: int) -> TracedEngine | str:
    """The traced engine if it trains a few models as the eager loop does, else why it cannot be used."""
    jobs = _trial_jobs(recipe, initial, models=min(group, 2), steps=3)
    engine = TracedEngine(recipe, group=group)
    try:
        with warnings.catch_warnings():
            # Where vmap falls back to a loop over the models, training them one by one is no slower.
            warnings.filterwarnings("error", message="There is a performance drop")
            pairs = zip(EagerEngine(recipe).train(jobs), engine.train(jobs), strict=True)
        wrong = max(_deviation(recipe.replica, initial, right, tried) for right, tried in pairs)
    except Exception as error:  # whatever a user's module does when it is traced, the eager loop remains
        lines = str(error).strip().splitlines()
        reason = ": ".join([type(error).__name__, *lines[:1]])
        return reason if len(reason) <= _REASON else f"{reason[: _REASON - 1]}…"
    return engine if wrong <= 0.05 else f"it is off by {100 * wrong:.0f}% of a step"


def _deviation(replica: Replica, initial: TorchState, right: TorchState, tried: TorchState) -> float:
    """How far two trained states are apart, as a share of how far they came."""
    buffers = replica.buffers
    shares = [
        _share([initial.tensors[name]], [right.tensors[name]], [tried.tensors[name]]) for name in buffers
    ]
    names = list(replica.parameters)
    before, good, tested = ([state.tensors[name] for name in names] for state in (initial, right, tried))
    if type(replica.optimizer) is not torch.optim.SGD:
        # Where a gradient is only rounding, adaptive optimizers still take full steps, in any direction:
        # their averages of the gradients tell, not the parameters. Counts of steps are equal and large:
        # beside them no difference would show.
        good, tested = (
            [
                value
                for kept in state.optimizer["state"]
                for name, value in kept.items()
                if isinstance(value, Tensor) and name not in COUNTS
            ]
            for state in (right, tried)
        )
        before = [torch.zeros_like(each) for each in good]
    return max([_share(before, good, tested), *shares])


def _share(before: Sequence[Tensor], good: Sequence[Tensor], tested: Sequence[Tensor]) -> float:
    apart = way = 0.0
    for start, right, tried in zip(before, good, tested, strict=True):
        sound = right.isfinite()
        begun, right, tried = (each[sound].double() for each in (start, right, tried))
        apart += float((right - tried).square().sum())
        way += float((right - begun).square().sum() + 1e-10 * begun.square().sum())
    share = float(np.sqrt(apart / (way + 1e-300)))
    return share if np.isfinite(share) else float("inf")


def _trial_jobs(recipe: Recipe, initial: TorchState, *, models: int, steps: int) -> list[TorchJob]:
    mixture = uniform_mixture(len(recipe.sampler.sizes) - 1)  # never the target's own rows
    return [Job(initial, mixture, steps, seed) for seed in range(models)]


def _time(
    engine: Engine, jobs: Sequence[TorchJob], device: torch.device, clock: Callable[[], float] | None = None
) -> float:
    # CPU time is not disturbed by other programs; a device's own work does not show in it.
    clock = clock or (time.thread_time if device.type == "cpu" else time.perf_counter)
    start = clock()
    engine.train(jobs)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return clock() - start
