"""Batches for a torch module from the sources' tables, and the loss and predictions from its output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from mixtree.data.sources import Rows
from mixtree.data.sparse import as_dense, is_sparse
from mixtree.errors import InputError
from mixtree.trainers.rows import stacked_features

Batch: TypeAlias = tuple[Any, Tensor, Tensor | None]
"""What the module is called with, the labels, and the row weights where there are any."""

_BLOCK_BYTES = 1 << 20
"""Inputs gathered in one go: fewer calls for small batches, bounded memory for large ones."""


def call(module: Callable[..., Tensor], inputs: Any) -> Tensor:
    """The module's output: a tuple is unpacked into arguments, a mapping into named ones."""
    if isinstance(inputs, Tensor):  # first: this runs in every step
        return module(inputs)
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple | list) else module(inputs)


def device_called(name: str) -> torch.device:
    """The device of this name, if this machine has it."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}; choose cpu, cuda or mps") from error
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device.type, False):
        raise InputError(f"device {name!r} is not available on this machine; use device='cpu'")
    return device


class Table:
    """The rows of all sources, one after the other and the validation rows last, ready to become batches."""

    def __init__(
        self,
        parts: Sequence[Rows],
        *,
        classes: int,
        class_weight: Sequence[float] | Mapping[int, float] | None,
        collate: Callable[[Any], Any] | None,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.collate, self.dtype, self.device = collate, dtype, device
        self.whole_numbers = True
        """Whether whole-number features stay so (for embeddings) or become floating-point numbers."""
        self.offsets = np.cumsum([0, *map(len, parts)])
        self.raw = stacked_features([part.x for part in parts])
        self.width = int(np.prod(self.raw.shape[1:]))
        labels = np.concatenate([part.y for part in parts])
        self.y = torch.from_numpy(labels.astype(np.int64) if classes else labels.astype(np.float64)).to(
            device
        )
        if not classes:
            self.y = self.y.to(dtype)
        weights = np.concatenate([part.weights for part in parts])
        self.class_weight: NDArray[np.float64] | None = None
        if class_weight is not None:
            if not classes:
                raise InputError(
                    "class_weight= needs classes; in a regression give row weights with the data"
                )
            given: Any = class_weight
            if isinstance(class_weight, Mapping):
                given = [class_weight.get(k, 1.0) for k in range(classes)]
            self.class_weight = np.asarray(given, dtype=np.float64)
            sound = np.all(np.isfinite(self.class_weight)) and np.all(self.class_weight >= 0)
            if self.class_weight.shape != (classes,) or not sound:
                raise InputError(
                    f"class_weight= must be {classes} finite numbers of at least 0; got {class_weight!r}"
                )
            weights = weights * self.class_weight[labels]
        self.weight = None if np.all(weights == 1) else torch.from_numpy(weights).to(device, dtype)
        self.x: Tensor | None = None

    def settle(self) -> None:
        """Make the dense table of inputs, where there is one, in place of the raw one."""
        if self.collate is None and not is_sparse(self.raw):
            self.x, self.raw = self.inputs(self.raw), None

    def inputs(self, x: Any) -> Any:
        """What the module is called with for these rows of features."""
        if self.collate is not None:
            return _to_device(self.collate(x), self.device)
        array = as_dense(x)
        if self.whole_numbers and np.issubdtype(array.dtype, np.integer):
            return torch.from_numpy(array.astype(np.int64)).to(self.device)
        narrow = np.float64 if self.dtype == torch.float64 else np.float32
        return torch.from_numpy(np.array(array, dtype=narrow)).to(self.device, self.dtype)

    def rows(self, start: int, stop: int) -> Any:
        """The inputs of a range of rows."""
        return self.inputs(self.raw[start:stop]) if self.x is None else self.x[start:stop]

    def batches(self, rows: NDArray[np.int64]) -> Iterator[Batch]:
        """One batch per step for positions (steps, …, batch size)."""
        if self.collate is not None:
            for chosen in rows:
                places = torch.from_numpy(chosen).to(self.device)
                weight = None if self.weight is None else self.weight[places]
                yield self.inputs(self.raw[chosen]), self.y[places], weight
            return
        width = self.width * self.dtype.itemsize * int(np.prod(rows.shape[1:]))
        block = max(1, _BLOCK_BYTES // max(1, width))
        for start in range(0, len(rows), block):
            some = rows[start : start + block]
            places = torch.from_numpy(some.reshape(-1)).to(self.device)
            x = self.inputs(self.raw[some.reshape(-1)]) if self.x is None else self.x.index_select(0, places)
            # Cut into steps by one call each: indexing row by row costs more than the gathering itself.
            inputs = x.view(*some.shape, *x.shape[1:]).unbind(0)
            labels = self.y.index_select(0, places).view(some.shape).unbind(0)
            if self.weight is None:
                yield from ((x, y, None) for x, y in zip(inputs, labels, strict=True))
            else:
                weights = self.weight.index_select(0, places).view(some.shape).unbind(0)
                yield from zip(inputs, labels, weights, strict=True)


class Objective:
    """The loss of a batch and the predictions, both from a module's output."""

    def __init__(
        self,
        loss: Callable[[Tensor, Tensor], Tensor] | None,
        *,
        classes: int,
        output: Literal["logits", "probabilities"] | Callable[[Tensor], Any],
    ) -> None:
        if isinstance(output, str) and output not in ("logits", "probabilities"):
            raise InputError(f"output= must be 'logits', 'probabilities' or a function; got {output!r}")
        self.loss, self.classes, self.output = loss, classes, output

    @property
    def by_row(self) -> bool:
        """Whether the loss of a row is known to depend on that row alone."""
        return self.loss is None or type(self.loss).__module__ == nn.CrossEntropyLoss.__module__

    def total(self, output: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
        """The batch's loss: the mean of weight × loss over its rows."""
        if self.loss is None and weight is None:
            return self._default(output, y, "mean")
        losses = self.losses(output, y)
        if losses.ndim == 0:
            return losses
        return (losses if weight is None else losses * weight).mean()

    def losses(self, output: Tensor, y: Tensor) -> Tensor:
        """The loss of every row (n,); a number where the user's loss takes the mean itself."""
        if self.loss is None:
            return self._default(output, y, "none")
        losses = self.loss(output, self._fitting(output, y))
        # (n, 1) losses times (n,) weights would silently become (n, n).
        return losses if losses.ndim == 0 else losses.reshape(len(y))

    def predictions(self, output: Tensor) -> NDArray[Any]:
        """Class probabilities (n, classes), or (n,) for a regression."""
        if callable(self.output):
            made = self.output(output)
        elif not self.classes:
            made = output.reshape(len(output))
        elif self._single(output):
            column = output.reshape(-1)
            share = column.sigmoid() if self.output == "logits" else column
            made = torch.stack([1 - share, share], dim=1)
        else:
            made = output.softmax(dim=1) if self.output == "logits" else output
        if isinstance(made, Tensor):
            made = made.detach().cpu()
            return (made if made.dtype in (torch.float32, torch.float64) else made.float()).numpy()
        return np.asarray(made)

    def check(self, output: Any, y: Tensor, *, weighted: bool) -> None:
        """Raise, before any training, if the module's output, the loss and the labels do not fit."""
        rows = len(y)
        if not isinstance(output, Tensor) or output.ndim == 0 or len(output) != rows:
            got = (
                f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            )
            raise InputError(f"for {rows} rows the module must give a tensor of {rows} rows; it gave {got}")
        if self.loss is None or not callable(self.output):
            shaped = (
                f"{tuple(output.shape)} for {rows} rows. Change its last layer, or give loss= and output="
            )
            if self.classes and not (self._single(output) or output.shape[1:] == (self.classes,)):
                raise InputError(
                    f"with {self.classes} classes the module must give (rows, {self.classes}); it gives "
                    f"{shaped}"
                )
            if not self.classes and output.numel() != rows:
                raise InputError(
                    f"in a regression the module must give one number per row; it gives {shaped}"
                )
        if self.loss is not None:
            try:
                losses = self.loss(output, self._fitting(output, y))
            except Exception as error:
                raise InputError(
                    f"the loss fails on outputs {tuple(output.shape)} and labels {tuple(y.shape)}: {error}"
                ) from error
            if not isinstance(losses, Tensor) or (losses.ndim and losses.numel() != rows):
                shape = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
                raise InputError(
                    f"the loss of {rows} rows must be one number or {rows} numbers; it has shape {shape}: "
                    f"do output {tuple(output.shape)} and labels {tuple(y.shape)} broadcast?"
                )
            if losses.ndim == 0 and weighted:
                raise InputError(
                    "row or class weights need the loss of every row, but the loss takes the mean itself: "
                    "make it with reduction='none'"
                )
        shape = self.predictions(output).shape
        if shape != ((rows, self.classes) if self.classes else (rows,)):
            wanted = f"({rows}, {self.classes})" if self.classes else f"({rows},)"
            raise InputError(f"predictions of {rows} rows must have shape {wanted}; they have {shape}")

    def _single(self, output: Tensor) -> bool:
        """Whether a module tells two classes apart by one number per row."""
        return self.classes == 2 and output.numel() == len(output)

    def _fitting(self, output: Tensor, y: Tensor) -> Tensor:
        """The labels in the shape and type of a single output, so that nothing broadcasts."""
        if output.numel() == len(y) and (not self.classes or self._single(output)):
            return y.reshape(output.shape).to(output.dtype)
        return y

    def _default(self, output: Tensor, y: Tensor, reduction: str) -> Tensor:
        if not self.classes:
            return functional.mse_loss(output.reshape(len(y)), y, reduction=reduction)
        if self.output == "probabilities":
            if self._single(output):
                output = torch.stack([1 - output.reshape(-1), output.reshape(-1)], dim=1)
            tiny = torch.finfo(output.dtype).tiny
            return functional.nll_loss(output.clamp_min(tiny).log(), y, reduction=reduction)
        if self._single(output):
            return functional.binary_cross_entropy_with_logits(
                output.reshape(-1), y.to(output.dtype), reduction=reduction
            )
        return functional.cross_entropy(output, y, reduction=reduction)


def _to_device(inputs: Any, device: torch.device) -> Any:
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return {name: _to_device(each, device) for name, each in inputs.items()}
    if isinstance(inputs, tuple | list):
        return tuple(_to_device(each, device) for each in inputs)
    return inputs
