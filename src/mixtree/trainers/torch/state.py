"""What travels with a torch model: its tensors, its optimizer's and its schedule's, as plain data."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mixtree.data.sampling import Cursor
from mixtree.errors import DataError, InputError
from mixtree.trainers.rows import load_cursor, save_cursor

Tree: TypeAlias = Any
"""Nested dicts, lists and tuples of tensors, numbers, strings and None."""

_MODEL = "model/"
"""What the names of a model's own tensors begin with in a saved state."""


@dataclass(frozen=True, eq=False, slots=True)
class TorchState:
    """Everything that continuing a model needs. Nothing in it is ever changed; states may share tensors."""

    tensors: Mapping[str, Tensor]
    """Parameters and buffers by name."""
    optimizer: Tree
    """``state``: what it keeps per parameter; ``groups``: its settings, as a schedule left them."""
    scheduler: Tree
    scaler: Tree
    """The loss scale of mixed precision."""
    cursor: Cursor


def clone(tree: Tree) -> Tree:
    """A copy that shares no tensor and no container with the original."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, Counter):
        return Counter(dict(tree))
    if isinstance(tree, Mapping):
        return {key: clone(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(clone(value) for value in tree)
    return tree


def pack(tree: Tree) -> dict[str, NDArray[Any]]:
    """The tree as named arrays: its tensors, and its shape and numbers as one line of JSON."""
    arrays: dict[str, NDArray[Any]] = {}

    def plan(node: Tree) -> Any:
        if isinstance(node, Tensor):
            name = f"tensor.{len(arrays)}"
            arrays[name] = to_numpy(node)
            return {"tensor": name, "dtype": str(node.dtype).removeprefix("torch.")}
        if isinstance(node, Mapping):
            kind = "counter" if isinstance(node, Counter) else "dict"
            return {kind: [[plan(key), plan(value)] for key, value in node.items()]}
        if isinstance(node, list | tuple):
            return {type(node).__name__: [plan(value) for value in node]}
        if isinstance(node, np.generic):
            return node.item()
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise InputError(
            f"the optimizer or the scheduler keeps a {type(node).__name__}, which cannot be saved as arrays; "
            f"use one whose state_dict() holds tensors, numbers and strings"
        )

    line = json.dumps(plan(tree))
    arrays["plan"] = np.frombuffer(line.encode(), dtype=np.uint8)
    return arrays


def unpack(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> Tree:
    """The tree that was packed, bit for bit."""

    def build(node: Any) -> Tree:
        if not isinstance(node, dict):
            return node
        if "tensor" in node:
            return to_tensor(arrays[node["tensor"]], getattr(torch, node["dtype"]), device)
        ((kind, items),) = node.items()
        if kind in ("dict", "counter"):
            entries = {build(key): build(value) for key, value in items}
            return Counter(entries) if kind == "counter" else entries
        return (tuple if kind == "tuple" else list)(build(value) for value in items)

    return build(json.loads(bytes(np.asarray(arrays["plan"], dtype=np.uint8))))


def to_numpy(tensor: Tensor) -> NDArray[Any]:
    """The tensor's bits; numpy has no bfloat16, which becomes unsigned 16-bit numbers."""
    plain = tensor.detach().cpu().contiguous()
    array: NDArray[Any] = (plain.view(torch.uint16) if plain.dtype == torch.bfloat16 else plain).numpy()
    return array


def to_tensor(array: NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The tensor of this type whose bits ``to_numpy`` gave."""
    tensor = torch.from_numpy(np.array(array))
    return (tensor.view(dtype) if dtype == torch.bfloat16 else tensor.to(dtype)).to(device)


class Replica:
    """A module with its optimizer, schedule and loss scale, into which states are loaded to be trained."""

    def __init__(
        self,
        module: nn.Module,
        optimizer: Callable[[Any], torch.optim.Optimizer],
        scheduler: Callable[[torch.optim.Optimizer], Any] | None,
        *,
        scaler: torch.amp.GradScaler | None,
    ) -> None:
        self.module, self.make_optimizer = module, optimizer
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise InputError("the module has no parameters that require gradients: there is nothing to train")
        self.optimizer = optimizer(list(module.parameters()))
        if not isinstance(self.optimizer, torch.optim.Optimizer):
            raise InputError(
                f"optimizer= must make a torch optimizer; it made a {type(self.optimizer).__name__}"
            )
        self.scheduler = None if scheduler is None else scheduler(self.optimizer)
        if isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise InputError(
                "ReduceLROnPlateau needs a score at every step, and a search scores a node only at its end; "
                "use a schedule that depends on the step alone"
            )
        self.scaler = scaler
        self.parameters = dict(module.named_parameters())
        self.frozen: dict[str, Tensor] = {}
        self.optimized = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.fresh = self.optimizer_tree()
        self.fresh_schedule = self.schedule_tree()

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The module's buffers; looked up anew, for a module may put another tensor in a buffer's place."""
        return dict(self.module.named_buffers())

    def load(self, state: TorchState) -> None:
        """Continue from this state."""
        # Frozen weights never change: states share them, however large they are.
        self.frozen = {
            name: state.tensors[name] for name, x in self.parameters.items() if not x.requires_grad
        }
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                if name in self.frozen:
                    parameter.data = self.frozen[name]
                else:
                    parameter.copy_(state.tensors[name])
            for name, buffer in self.buffers.items():
                buffer.copy_(state.tensors[name])
        self.load_schedule(state)
        self.optimizer.state.clear()
        for parameter, kept in zip(self.optimized, state.optimizer["state"], strict=True):
            if kept:
                self.optimizer.state[parameter] = clone(kept)
        if self.scaler is not None and state.scaler is not None:
            self.scaler.load_state_dict(clone(state.scaler))

    def load_schedule(self, state: TorchState) -> None:
        """Continue the optimizer's settings and the schedule from this state."""
        for group, settings in zip(self.optimizer.param_groups, state.optimizer["groups"], strict=True):
            group.update(clone(settings))
        if self.scheduler is not None:
            self.scheduler.load_state_dict(clone(state.scheduler))

    def capture(self, cursor: Cursor) -> TorchState:
        """The state reached by now."""
        moved = {**self.parameters, **self.buffers}
        scale = None if self.scaler is None else clone(self.scaler.state_dict())
        tensors = {name: self.frozen[name] if name in self.frozen else clone(x) for name, x in moved.items()}
        return TorchState(tensors, self.optimizer_tree(), self.schedule_tree(), scale, cursor)

    def optimizer_tree(self) -> Tree:
        """What the optimizer keeps, and its settings."""
        known = set(map(id, self.optimized))
        if strangers := [key for key in self.optimizer.state if id(key) not in known]:
            raise InputError(
                f"{type(self.optimizer).__name__} keeps state under {strangers[0]!r}, not under a parameter: "
                f"it cannot be carried from node to node"
            )
        kept = [clone(dict(self.optimizer.state.get(each, {}))) for each in self.optimized]
        return {"state": kept, "groups": self.settings()}

    def settings(self) -> list[dict[str, Any]]:
        """The optimizer's settings per group, as the schedule left them."""
        return [
            {key: clone(value) for key, value in group.items() if key not in ("params", "param_names")}
            for group in self.optimizer.param_groups
        ]

    def schedule_tree(self) -> Tree:
        """Where the schedule stands."""
        return None if self.scheduler is None else clone(self.scheduler.state_dict())


def state_arrays(state: TorchState) -> dict[str, NDArray[Any]]:
    """The state as named arrays."""
    arrays = {f"{_MODEL}{name}": to_numpy(each) for name, each in state.tensors.items()}
    kept = pack([state.optimizer, state.scheduler, state.scaler])
    return arrays | {f"kept/{name}": each for name, each in kept.items()} | save_cursor(state.cursor)


def state_from(arrays: Mapping[str, NDArray[Any]], replica: Replica, device: torch.device) -> TorchState:
    """The state that was saved; every name, shape and type must be this module's."""
    saved = {name.removeprefix(_MODEL): each for name, each in arrays.items() if name.startswith(_MODEL)}
    wanted = {**replica.parameters, **replica.buffers}
    # The bits of a bfloat16 are saved as a whole number, which as any other type would be another number.
    odd = [
        f"{name} {saved[name].dtype} instead of {str(each.dtype).removeprefix('torch.')}"
        for name, each in wanted.items()
        if name in saved and (saved[name].dtype == np.uint16) != (to_numpy(each).dtype == np.uint16)
    ]
    problems = [*_misfits(saved, wanted, needed=wanted), *_listed("of another type", odd)]
    if problems:
        raise DataError(
            f"the saved state is of another module: {'; '.join(problems)}. Load it with the module= that it "
            f"was saved with, or start a new study with this one"
        )
    tensors = {name: to_tensor(saved[name], each.dtype, device) for name, each in wanted.items()}
    kept = {name.removeprefix("kept/"): each for name, each in arrays.items() if name.startswith("kept/")}
    optimizer, scheduler, scaler = unpack(kept, device)
    return TorchState(tensors, optimizer, scheduler, scaler, load_cursor(arrays))


def read_checkpoint(init: str | Path | Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a pre-trained model: a safetensors file or a mapping of arrays."""
    if not isinstance(init, Mapping):
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            init = load_file(init)
        except (OSError, SafetensorError) as error:
            raise DataError(f"init={str(init)!r} cannot be read as a safetensors file: {error}") from error
    if any(name.startswith(_MODEL) for name in init):  # a saved state may be given as it is
        init = {name.removeprefix(_MODEL): x for name, x in init.items() if name.startswith(_MODEL)}
    return {
        name: value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        for name, value in init.items()
    }


def digest(tensors: Mapping[str, Tensor]) -> str:
    """A fingerprint of these tensors."""
    made = hashlib.sha256()
    for name, each in sorted(tensors.items()):
        made.update(name.encode() + to_numpy(each).tobytes())
    return made.hexdigest()


def load_checkpoint(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Start the module from these tensors; every name and shape must match."""
    needed = {name: x for name, x in module.state_dict().items() if isinstance(x, Tensor)}
    wanted = {**needed, **dict(module.named_buffers())}
    if problems := _misfits(tensors, wanted, needed=needed):
        raise InputError(
            f"init= does not fit the module: {'; '.join(problems)}. Give a checkpoint of this very module, "
            f"or rename its entries to the names of module.state_dict()"
        )
    with torch.no_grad():
        for name, tensor in tensors.items():
            wanted[name].copy_(tensor)


def _misfits(given: Mapping[str, Any], wanted: Mapping[str, Any], *, needed: Iterable[str]) -> list[str]:
    """What is wrong with the names and shapes of these tensors."""
    shapes = [
        f"{name} {tuple(given[name].shape)} instead of {tuple(wanted[name].shape)}"
        for name in wanted.keys() & given.keys()
        if tuple(given[name].shape) != tuple(wanted[name].shape)
    ]
    return [
        *_listed("missing", [name for name in needed if name not in given]),
        *_listed("not in the module", [name for name in given if name not in wanted]),
        *_listed("of another shape", shapes),
    ]


def _listed(what: str, names: Sequence[str]) -> list[str]:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return [f"{what}: {', '.join(sorted(names)[:5])}{more}"] if names else []
