"""Ways to train a torch module: the eager loop, and a traced step for one model or several at once."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from mixtree.data.sampling import Cursor, Sampler
from mixtree.errors import TrainingError
from mixtree.trainer import Job
from mixtree.trainers.rows import draw
from mixtree.trainers.torch.data import Batch, Objective, Table, call
from mixtree.trainers.torch.graph import TraceError
from mixtree.trainers.torch.state import Replica, TorchState
from mixtree.trainers.torch.traced import Plan, Program

logger = logging.getLogger(__name__)

EngineName: TypeAlias = Literal["eager", "traced", "vmap"]
TorchJob: TypeAlias = Job[TorchState]


@dataclass(frozen=True, eq=False, slots=True)
class Recipe:
    """What every engine trains by."""

    replica: Replica
    table: Table
    objective: Objective
    sampler: Sampler
    batch_size: int
    clip_norm: float | None
    reset_optimizer: bool
    amp: torch.dtype | None
    device: torch.device

    def state(self, job: TorchJob) -> TorchState:
        """The state to continue."""
        if not self.reset_optimizer or (job.part is not None and job.part.before):
            return job.state
        return replace(job.state, optimizer=self.replica.fresh, scheduler=self.replica.fresh_schedule)

    def rows(self, job: TorchJob) -> tuple[NDArray[np.int64], Cursor]:
        """The rows (steps, batch size) to read, and the cursor after them."""
        return draw(self.sampler, job, job.state.cursor, self.batch_size)

    def seed(self, job: TorchJob) -> None:
        """Torch's random numbers are the job's; those of a stage go on where its last segment stopped."""
        place = job.state.cursor.random
        if job.part is not None and job.part.before and place is not None:
            _generator(self.device).set_state(torch.from_numpy(np.array(place, dtype=np.uint8)))
        else:
            _seed_torch(job.seed if job.part is None else job.part.seed, self.device)

    def after(self, job: TorchJob, state: TorchState) -> TorchState:
        """The state reached, with the place in torch's random numbers if the stage goes on from there."""
        if job.part is None or job.part.before + job.steps >= job.part.total:
            return state
        place = _generator(self.device).get_state().numpy()
        return replace(state, cursor=replace(state.cursor, random=place))


class Engine(Protocol):
    """One way to train jobs."""

    name: EngineName

    def train(self, jobs: Sequence[TorchJob]) -> list[TorchState]:
        """One new state per job."""


class EagerEngine:
    """The plain loop: forward, backward, step. It takes any module and any optimizer."""

    name: EngineName = "eager"

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.micro = recipe.batch_size
        """Rows per forward pass: the whole batch, halved each time memory runs out."""
        group = recipe.replica.fresh["groups"][0]
        self.plain = (
            type(recipe.replica.optimizer) is torch.optim.SGD
            and len(recipe.replica.fresh["groups"]) == 1
            and not (group["momentum"] or group["weight_decay"] or group["maximize"])
            and isinstance(group["lr"], float)
            and (recipe.clip_norm, recipe.amp, recipe.replica.scheduler) == (None, None, None)
        )
        """Whether a step is p ← p − η·g and no more."""

    def train(self, jobs: Sequence[TorchJob]) -> list[TorchState]:
        with untouched(self.recipe.device):
            states: list[TorchState] = []
            while len(states) < len(jobs):
                try:
                    states.append(self._train_one(jobs[len(states)]))
                except RuntimeError as error:
                    # The job starts again from its state: its numbers depend on the final size alone.
                    self.micro = smaller(error, self.micro, "training")
                    free_memory(self.recipe.device)
            return states

    def _train_one(self, job: TorchJob) -> TorchState:
        recipe, replica, table, micro = self.recipe, self.recipe.replica, self.recipe.table, self.micro
        rows, cursor = recipe.rows(job)
        batches: Iterator[list[Batch]] = ([batch] for batch in table.batches(rows))
        if micro < recipe.batch_size:
            starts = range(0, recipe.batch_size, micro)
            batches = (
                [next(table.batches(chosen[None, start : start + micro])) for start in starts]
                for chosen in rows
            )
        if not replica.module.training:
            replica.module.train()
        replica.load(recipe.state(job))
        try:
            _seed_outside_torch(job.seed)
            recipe.seed(job)
            for pieces in batches:
                if self.plain and len(pieces) == 1:
                    self._plain_step(pieces[0], job.lr_scale)
                else:
                    self._step(pieces, job.lr_scale)
            return recipe.after(job, replica.capture(cursor))
        finally:
            replica.module.zero_grad(set_to_none=True)

    def _plain_step(self, piece: Batch, lr_scale: float) -> None:
        """The same as below without what an optimizer does besides, a quarter of a small model's time."""
        (inputs, y, weight), recipe = piece, self.recipe
        total = recipe.objective.total(call(recipe.replica.module, inputs), y, weight)
        group = recipe.replica.optimizer.param_groups[0]
        trained = [parameter for parameter in group["params"] if parameter.requires_grad]
        gradients = torch.autograd.grad(total, trained, allow_unused=True)
        slope = -group["lr"] * lr_scale
        with torch.no_grad():
            for parameter, gradient in zip(trained, gradients, strict=True):
                if gradient is not None:
                    parameter.add_(gradient, alpha=slope)

    def _step(self, pieces: list[Batch], lr_scale: float) -> None:
        replica = self.recipe.replica
        optimizer: Any = replica.optimizer
        scales = [group["lr"] for group in optimizer.param_groups] if lr_scale != 1.0 else []
        for group in optimizer.param_groups if scales else ():
            group["lr"] = group["lr"] * lr_scale
        if isinstance(replica.optimizer, torch.optim.LBFGS):
            optimizer.step(lambda: self._backward(pieces))
        elif replica.scaler is None:
            self._backward(pieces)
            optimizer.step()
        else:
            self._backward(pieces)
            replica.scaler.step(optimizer)
            replica.scaler.update()
        # A schedule goes on from the step size without the job's own factor.
        for group, lr in zip(optimizer.param_groups, scales, strict=False):
            group["lr"] = lr
        if replica.scheduler is not None:
            replica.scheduler.step()

    def _backward(self, pieces: list[Batch]) -> float:
        recipe, replica = self.recipe, self.recipe.replica
        replica.module.zero_grad(set_to_none=True)
        rows = sum(len(y) for _, y, _ in pieces)
        loss = 0.0
        for inputs, y, weight in pieces:
            with nullcontext() if recipe.amp is None else torch.autocast(recipe.device.type, recipe.amp):
                part: Any = recipe.objective.total(call(replica.module, inputs), y, weight)
            if len(pieces) > 1:
                part = part * (len(y) / rows)
            (part if replica.scaler is None else replica.scaler.scale(part)).backward()
            if isinstance(replica.optimizer, torch.optim.LBFGS):
                loss += float(part.detach())
        if recipe.clip_norm is not None:
            if replica.scaler is not None:
                replica.scaler.unscale_(replica.optimizer)
            torch.nn.utils.clip_grad_norm_(replica.optimized, recipe.clip_norm)
        return loss


class TracedEngine:
    """A traced step, for one model at a time or for up to ``group`` models at once (``vmap``)."""

    def __init__(self, recipe: Recipe, *, group: int) -> None:
        self.name: EngineName = "vmap" if group > 1 else "traced"
        self.recipe, self.group = recipe, group
        self.programs: dict[int, Program] = {}
        self.eager = EagerEngine(recipe)

    def program(self, models: int) -> Program:
        """The step for so many models, traced at its first use."""
        if models not in self.programs:
            recipe = self.recipe
            with seeded(0, recipe.device):  # tracing runs the module once
                program = Program(
                    recipe.replica,
                    recipe.table,
                    recipe.objective,
                    batch_size=recipe.batch_size,
                    clip_norm=recipe.clip_norm,
                    models=models,
                )
                if drew_outside_torch(0):
                    raise TraceError("it draws from Python's or numpy's random numbers")
            self.programs[models] = program
        return self.programs[models]

    def train(self, jobs: Sequence[TorchJob]) -> list[TorchState]:
        results: dict[int, TorchState] = {}
        for start in range(0, len(jobs), self.group):
            # Jobs can take every step together if they have as many steps, equal step sizes and step counts.
            alike: dict[Any, tuple[Plan | None, list[int]]] = {}
            for place in range(start, min(start + self.group, len(jobs))):
                job = jobs[place]
                plan = self.program(1).plan(self.recipe.state(job), job.steps, job.lr_scale)
                alike.setdefault(place if plan is None else plan.key, (plan, []))[1].append(place)
            for plan, places in alike.values():
                some = [jobs[place] for place in places]
                trained = self.eager.train(some) if plan is None else self._together(some, plan)
                results.update(zip(places, trained, strict=True))
        return [results[place] for place in range(len(jobs))]

    def _together(self, jobs: Sequence[TorchJob], plan: Plan) -> list[TorchState]:
        read = [self.recipe.rows(job) for job in jobs]
        rows = np.stack([rows for rows, _ in read], axis=1) if len(jobs) > 1 else read[0][0]
        states = [self.recipe.state(job) for job in jobs]
        program = self.program(len(jobs))
        try:
            cursors = [cursor for _, cursor in read]
            if not program.random:
                return program.run(states, rows, plan, cursors)
            with torch_seeded(jobs[0].seed, self.recipe.device):
                self.recipe.seed(jobs[0])
                reached = program.run(states, rows, plan, cursors)
                return [self.recipe.after(job, each) for job, each in zip(jobs, reached, strict=True)]
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            logger.warning("out of memory with %d models at once: training these one by one", len(jobs))
            free_memory(self.recipe.device)
            return self.eager.train(jobs)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """One torch thread: on small layers several are slower, by up to a hundred times."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's, Python's and numpy's own random numbers come from this seed inside a user's code.

    Outside nothing has happened.
    """
    with untouched(device):
        seed_all(seed, device)
        yield


@contextmanager
def untouched(device: torch.device) -> Iterator[None]:
    """Whatever is seeded and drawn inside, outside nothing has happened. Once for many models: it takes as
    long as several steps of a small one."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with _untouched_torch(device):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def seed_all(seed: int, device: torch.device) -> None:
    """Torch's, Python's and numpy's own random numbers come from this seed from now on."""
    _seed_outside_torch(seed)
    _seed_torch(seed, device)


def drew_outside_torch(seed: int) -> bool:
    """Whether, since ``seeded(seed, …)`` began, Python's or numpy's random numbers were used."""
    coming = random.random(), np.random.random()
    _seed_outside_torch(seed)
    return coming != (random.random(), np.random.random())


def _seed_outside_torch(seed: int) -> None:
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF])  # it takes 32 bits at a time


@contextmanager
def torch_seeded(seed: int, device: torch.device) -> Iterator[None]:
    """The same for torch's random numbers alone, at a tenth of the cost: for what runs no user's code."""
    with _untouched_torch(device):
        _seed_torch(seed, device)
        yield


@contextmanager
def _untouched_torch(device: torch.device) -> Iterator[None]:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        before = torch.mps.get_rng_state() if device.type == "mps" else None
        try:
            yield
        finally:
            if before is not None:
                torch.mps.set_rng_state(before)


def _generator(device: torch.device) -> torch.Generator:
    if device.type == "cuda":
        return torch.cuda.default_generators[device.index or 0]
    if device.type == "mps":
        generator: torch.Generator = torch.mps._get_default_mps_generator()
        return generator
    return torch.default_generator


def _seed_torch(seed: int, device: torch.device) -> None:
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)
    elif device.type == "mps":
        torch.mps.manual_seed(seed)


def out_of_memory(error: RuntimeError) -> bool:
    """Whether this is a lack of memory."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text


def smaller(error: RuntimeError, rows: int, doing: str) -> int:
    """Half the rows at a time after a lack of memory; any other error goes on its way."""
    if not out_of_memory(error):
        raise error
    if rows == 1:
        raise TrainingError(f"out of memory in {doing} with a single row at a time: {error}") from error
    logger.warning("out of memory in %s with %d rows at a time: trying %d", doing, rows, rows // 2)
    return rows // 2


def free_memory(device: torch.device) -> None:
    """Give cached memory back to the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif device.type == "mps":
        torch.mps.empty_cache()
