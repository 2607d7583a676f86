"""Many steps of one or several models by a traced gradient, on one flat vector of parameters per model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx, nn
from torch.func import functional_call, vmap

from mixtree.data.sampling import Cursor
from mixtree.trainers.torch.data import Objective, Table
from mixtree.trainers.torch.graph import Gradient, TraceError, trace_gradient
from mixtree.trainers.torch.state import Replica, TorchState, Tree, clone
from mixtree.trainers.torch.step import compile_step

_ELEMENTWISE = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
)
"""Optimizers that treat every number alike: one flat vector is to them the same as many tensors."""

COUNTS = ("step", "mu_product")
"""What these optimizers keep as one number per parameter; all else has the parameter's shape."""

_ALIGNED = 16
"""Parameters start at multiples of so many numbers: matrix products like aligned memory."""


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """The optimizer's settings at every step of a job, and where they and the schedule stand after it."""

    settings: Sequence[Mapping[str, Any]]
    groups: Tree
    scheduler: Tree
    key: Any
    """Jobs with equal keys can take their steps together."""


class Layout:
    """Where the parameters of all models lie in one flat vector: those of one name side by side.

    Matrices named in ``turned`` lie there transposed: products with the transpose of a matrix are slower.
    """

    def __init__(self, parameters: Mapping[str, Tensor], models: int, turned: Collection[str]) -> None:
        self.models, self.turned, self.size = models, turned, 0
        self.spans: dict[str, tuple[int, tuple[int, ...]]] = {}
        for name, each in parameters.items():
            inner = tuple(reversed(each.shape)) if name in turned else tuple(each.shape)
            self.spans[name] = (self.size, inner if models == 1 else (models, *inner))
            self.size += -(-models * each.numel() // _ALIGNED) * _ALIGNED

    def stored(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters (models, …), or those of the only model, the way they lie in memory."""
        spans = self.spans.items()
        return {name: flat[start : start + prod(shape)].view(shape) for name, (start, shape) in spans}

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parameters (models, …), or those of the only model."""
        stored = self.stored(flat).items()
        return {name: each.transpose(-1, -2) if name in self.turned else each for name, each in stored}

    def rows(self, flat: Tensor) -> list[dict[str, Tensor]]:
        """The parameters of each model."""
        views = self.views(flat)
        if self.models == 1:
            return [views]
        return [{name: view[place] for name, view in views.items()} for place in range(self.models)]


class Program:
    """A compiled training step of ``models`` models at once, with the memory that it works in."""

    def __init__(
        self,
        replica: Replica,
        table: Table,
        objective: Objective,
        *,
        batch_size: int,
        clip_norm: float | None,
        models: int,
    ) -> None:
        optimizer = replica.optimizer
        if type(optimizer) not in _ELEMENTWISE:
            raise TraceError(
                f"{type(optimizer).__name__} may look at whole tensors: only the eager loop is safe"
            )
        if len(optimizer.param_groups) != 1:
            raise TraceError("the optimizer has several parameter groups")
        if not isinstance(optimizer.param_groups[0]["lr"], float):
            raise TraceError("the step size is not a plain number")
        if replica.scheduler is not None:
            # Without gradients this moves nothing; a schedule warns if no step was ever taken before its own.
            optimizer.zero_grad(set_to_none=True)
            optimizer.step()
        self.replica, self.table, self.objective, self.models = replica, table, objective, models
        self.clip_norm = clip_norm
        optimized = set(map(id, replica.optimized))
        trained: dict[str, Tensor] = {
            name: parameter
            for name, parameter in replica.parameters.items()
            if id(parameter) in optimized and parameter.requires_grad
        }
        held = {name: x for name, x in self._all().items() if name not in trained}
        gradient = self._trace(trained, held, batch_size)
        self.random = gradient.random
        if self.random and models > 1:
            raise TraceError("random numbers (dropout) of one model would depend on the models beside it")
        # The loss does not depend on some parameters: an optimizer leaves these alone.
        moved = {
            name: x
            for (name, x), out in zip(trained.items(), gradient.outputs, strict=True)
            if out is not None
        }
        kinds = {(each.dtype, each.device) for each in moved.values()}
        if len(kinds) != 1:
            raise TraceError("the trained parameters are not all of one type on one device")
        ((dtype, device),) = kinds
        turned = {
            name
            for place, name in enumerate(trained)
            if trained[name].ndim == 2 and gradient.only_transposed(place)
        }
        self.layout = Layout(moved, models, turned)
        self.flat = torch.zeros(self.layout.size, dtype=dtype, device=device)
        self.rows = self.layout.rows(self.flat)
        self.held = {name: self._stacked(each) for name, each in self._all().items() if name not in moved}
        self.buffers = frozenset(replica.buffers)
        self.frozen: dict[tuple[str, int], Tensor] = {}
        numbers = {id(parameter): number for number, parameter in enumerate(replica.optimized)}
        self.places = [numbers[id(each)] for each in moved.values()]
        self._compile(gradient, list(trained), list(held))

    def _all(self) -> dict[str, Tensor]:
        return {**self.replica.parameters, **self.replica.buffers}

    def _stacked(self, tensor: Tensor) -> Tensor:
        like = tensor.detach().contiguous()
        return like.clone() if self.models == 1 else torch.stack([like] * self.models)

    def _trace(self, trained: dict[str, Tensor], held: dict[str, Tensor], batch_size: int) -> Gradient:
        module, objective, models = self.replica.module, self.objective, self.models
        module.train()

        def forward(weights: Sequence[Tensor], others: Sequence[Tensor], x: Tensor) -> Tensor:
            named = dict(zip((*trained, *held), (*weights, *others), strict=True))
            return functional_call(module, named, (x,))  # type: ignore[no-any-return]

        def loss(weights: Any, others: Any, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
            if objective.by_row:
                # The rows of all models at once.
                together = forward if models == 1 else vmap(forward)
                outputs = together(weights, others, x)
                losses = objective.losses(outputs if models == 1 else outputs.flatten(0, 1), y.flatten())
                if losses.ndim:
                    return (losses if weight is None else losses * weight.flatten()).sum() / batch_size
            if models == 1:
                return objective.total(forward(weights, others, x), y, weight)

            def alone(weights: Any, others: Any, x: Tensor, y: Tensor, *weight: Tensor) -> Tensor:
                return objective.total(forward(weights, others, x), y, *(weight or (None,)))

            given = (weights, others, x, y) if weight is None else (weights, others, x, y, weight)
            return vmap(alone)(*given).sum()

        rows = np.arange(models * batch_size).reshape(1, models, batch_size) % self.table.offsets[-2]
        batch = next(self.table.batches(rows[:, 0] if models == 1 else rows))
        return trace_gradient(
            loss,
            [self._stacked(each) for each in trained.values()],
            [self._stacked(each) for each in held.values()],
            [each for each in batch if each is not None],
        )

    def _compile(self, gradient: Gradient, trained: list[str], held: list[str]) -> None:
        group = self.replica.fresh["groups"][0]
        plain = (
            type(self.replica.optimizer) is torch.optim.SGD
            and self.clip_norm is None
            and not (group["nesterov"] or group["dampening"] or group["maximize"])
        )
        self.momentum = bool(group.get("momentum", 0))
        self.decay = bool(group.get("weight_decay", 0))
        self.own: torch.optim.Optimizer | None = None
        if not plain or self.momentum:
            self.second = torch.zeros_like(self.flat)  # momentum, or the gradient
        if not plain:
            self.parameter = nn.Parameter(self.flat, requires_grad=True)
            self.parameter.grad = self.second
            self.own = self.replica.make_optimizer([self.parameter])
        updating = plain and self.momentum
        views = self.layout.views(self.flat)
        targets = self.layout.stored(self.flat if plain and not self.momentum else self.second)
        self.step = compile_step(
            gradient,
            [views[name] if name in views else self.held[name] for name in trained],
            [self.held[name] for name in held],
            targets=[targets.get(name) for name in trained],
            transposed=[place for place, name in enumerate(trained) if name in self.layout.turned],
            settings=3 if plain else 0,
            rule=self._rule,
            extras=[self.flat, self.second] if updating else [],
            finish=self._move if updating else None,
        )

    def _rule(self, settings: Sequence[fx.Node]) -> tuple[fx.Node | float, fx.Node | float]:
        """How much of its target a gradient keeps, and its own factor."""
        if self.own is not None:
            return 0.0, 1.0  # the gradient itself
        if self.momentum:
            return settings[1], 1.0  # v ← momentum·v + g
        return (settings[1] if self.decay else 1.0), settings[0]  # p ← (1 − η·decay)·p − η·g

    def _move(self, graph: fx.Graph, extras: Sequence[fx.Node], settings: Sequence[fx.Node]) -> None:
        """v ← v + decay·p; p ← p − η·v, for all parameters in one go."""
        flat, velocity = extras
        if self.decay:
            graph.call_method("add_", (velocity, flat), {"alpha": settings[2]})
        graph.call_method("add_", (flat, velocity), {"alpha": settings[0]})

    def plan(self, state: TorchState, steps: int, lr_scale: float) -> Plan | None:
        """The settings of every step; None for a state that only the eager loop can continue."""
        replica = self.replica
        kept = _kept([state.optimizer["state"][place] for place in self.places])
        groups, schedule = state.optimizer["groups"], state.scheduler
        if kept is None or len(groups) != 1:
            return None
        # Equal settings and an equal schedule now are equal ones all the way.
        key = (steps, lr_scale, kept, repr(groups), repr(schedule))
        if replica.scheduler is None:
            settings = [_scaled(groups[0], lr_scale)] * steps
        else:
            replica.load_schedule(state)
            settings = []
            for _ in range(steps):
                settings.append(_scaled(replica.optimizer.param_groups[0], lr_scale))
                replica.scheduler.step()
            groups, schedule = replica.settings(), replica.schedule_tree()
        # Momentum and decay must be on or off as they were when the step was compiled.
        if self.own is None and any(
            (bool(each["momentum"]), bool(each["weight_decay"])) != (self.momentum, self.decay)
            for each in settings
        ):
            return None
        return Plan(settings, groups, schedule, key)

    def run(
        self, states: Sequence[TorchState], rows: NDArray[np.int64], plan: Plan, cursors: Sequence[Cursor]
    ) -> list[TorchState]:
        """One new state per state, after the rows (steps, [models,] batch size)."""
        with torch.no_grad():
            self._load(states)
            step, own = self.step, self.own
            for (x, y, weight), each in zip(self.table.batches(rows), plan.settings, strict=True):
                batch = (x, y) if weight is None else (x, y, weight)
                if own is None:
                    lr, decay = each["lr"], each["weight_decay"]
                    second = (each["momentum"], decay) if self.momentum else (1 - lr * decay, 0.0)
                    step(*batch, -lr, *second)
                else:
                    step(*batch)
                    if self.clip_norm is not None:
                        self._clip(self.clip_norm)
                    own.param_groups[0].update(each)
                    own.step()
            return self._capture(states, plan, cursors)

    def _clip(self, bound: float) -> None:
        """Scale each model's gradient so that its norm is at most the bound."""
        if self.models == 1:
            norm = torch.linalg.vector_norm(self.second)
            self.second.mul_((bound / (norm + 1e-6)).clamp_max(1.0))
            return
        views = [view.flatten(1) for view in self.layout.stored(self.second).values()]
        norms = torch.stack([torch.linalg.vector_norm(view, dim=1) for view in views])
        scale = (bound / (torch.linalg.vector_norm(norms, dim=0) + 1e-6)).clamp_max(1.0)[:, None]
        for view in views:
            view.mul_(scale)

    def _load(self, states: Sequence[TorchState]) -> None:
        # One call for all copies: their number counts more than their size.
        torch._foreach_copy_(
            [view for row in self.rows for view in row.values()],
            [state.tensors[name] for state in states for name in self.layout.spans],
        )
        for place, state in enumerate(states):
            for name, tensor in self.held.items():
                given = state.tensors[name]
                if self.frozen.get((name, place)) is not given:
                    (tensor if self.models == 1 else tensor[place]).copy_(given)
                    if name not in self.buffers:
                        self.frozen[name, place] = given
        kept = [[state.optimizer["state"][place] for place in self.places] for state in states]
        if self.own is not None:
            self.own.state.clear()
            first = {name: value for name, value in kept[0][0].items() if value is not None}
            self.own.state[self.parameter] = {
                name: clone(value)
                if name in COUNTS
                else self._gather(torch.zeros_like(self.flat), kept, name)
                for name, value in first.items()
            }
        elif self.momentum:
            self._gather(self.second.zero_(), kept, "momentum_buffer")

    def _gather(self, flat: Tensor, kept: Sequence[Sequence[Mapping[str, Tensor]]], name: str) -> Tensor:
        """What an optimizer keeps under one name for every parameter of every model."""
        for row, parameters in zip(self.layout.rows(flat), kept, strict=True):
            for view, values in zip(row.values(), parameters, strict=True):
                if values.get(name) is not None:
                    view.copy_(values[name])
        return flat

    def _capture(
        self, states: Sequence[TorchState], plan: Plan, cursors: Sequence[Cursor]
    ) -> list[TorchState]:
        kept: dict[str, Any] = {}
        if self.own is not None:
            kept = {name: x for name, x in self.own.state[self.parameter].items() if x is not None}
        elif self.momentum:
            kept = {"momentum_buffer": self.second}
        memories = {
            name: [_copies(row) for row in self.layout.rows(flat)]
            for name, flat in kept.items()
            if name not in COUNTS
        }
        captured = []
        for place, state in enumerate(states):
            moved = _copies(self.rows[place])
            tensors = {**state.tensors, **moved}
            for name in self.buffers & self.held.keys():
                tensors[name] = (self.held[name] if self.models == 1 else self.held[name][place]).clone()
            memory = list(state.optimizer["state"])
            for number, name in zip(self.places, moved, strict=True):
                if kept:
                    memory[number] = {
                        key: clone(value) if key in COUNTS else memories[key][place][name]
                        for key, value in kept.items()
                    }
            optimizer = {"state": memory, "groups": plan.groups}
            captured.append(TorchState(tensors, optimizer, plan.scheduler, state.scaler, cursors[place]))
        return captured


def _copies(row: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A model's parameters in memory of their own: a state must not keep its neighbours alive."""
    return {name: each.clone(memory_format=torch.contiguous_format) for name, each in row.items()}


def _kept(states: Sequence[Mapping[str, Any]]) -> Any:
    """Which names an optimizer keeps, and its counts: None unless they are the same for every parameter."""
    if not any(states):
        return ()
    found = {
        tuple(
            (name, float(value) if name in COUNTS else None)
            for name, value in sorted(state.items())
            if value is not None
        )
        for state in states
    }
    return found.pop() if len(found) == 1 else None


def _scaled(group: Mapping[str, Any], lr_scale: float) -> dict[str, Any]:
    settings = {key: value for key, value in group.items() if key not in ("params", "param_names")}
    return {**settings, "lr": group["lr"] * lr_scale}
