"""What the kernels of the built-in linear models and MLPs compute, and the kernel that needs numpy only.

A kernel trains one model in place, takes gradients and predicts. All parameters of a model are one flat
vector: per layer the weights (inputs × outputs, row by row), then the biases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_blas_funcs
from scipy.sparse import csr_array

from mixtree._native.threads import one_thread

Array: TypeAlias = NDArray[Any]
Layer: TypeAlias = tuple[Array, Array]

ACTIVATIONS = ("relu", "sigmoid", "tanh")
LOSSES = ("cross-entropy", "squared", "absolute", "exp-absolute")
MOMENTS = {"sgd": 0, "momentum": 1, "adam": 2}
"""How many moment vectors each optimizer carries."""

SQUARE_MOMENTUM, EPSILON = 0.999, 1e-8  # Adam's, as published and as torch has them
CLIP_EPSILON = 1e-6  # as torch's clip_grad_norm_ has it

_BLOCK = 4096  # rows predicted in one go: memory stays bounded


@dataclass(frozen=True, slots=True)
class Network:
    """A network's shape and how it learns: all that a kernel needs to know apart from rows and numbers."""

    sizes: tuple[int, ...]
    """Inputs, hidden layers, outputs."""
    activation: str
    loss: str
    optimizer: str
    momentum: float
    weight_decay: float
    clip_norm: float | None
    dtype: np.dtype[Any]

    @property
    def count(self) -> int:
        """Number of parameters."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in self.shapes)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Inputs and outputs of every layer."""
        return list(zip(self.sizes[:-1], self.sizes[1:], strict=True))

    def layers(self, flat: Array) -> list[Layer]:
        """Weights and biases of every layer, as views of the flat vector."""
        views, start = [], 0
        for fan_in, fan_out in self.shapes:
            middle = start + fan_in * fan_out
            views.append((flat[start:middle].reshape(fan_in, fan_out), flat[middle : middle + fan_out]))
            start = middle + fan_out
        return views


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """Rows as a kernel reads them: all reals of the network's type, in C order.

    ``x`` is an array or CSR with 32-bit ``indptr`` and ``indices``; ``y`` are int64 classes or targets.
    """

    x: Any
    y: Array
    weight: Array


class Kernel(Protocol):
    """One way to compute. ``moments`` are as many vectors as the optimizer carries, each like the parameters.

    ``x`` comes in the form of the table's ``x``.
    """

    def train(
        self, parameters: Array, moments: tuple[Array, ...], *, taken: int, order: Array, lr: Array
    ) -> None:
        """Take some steps in place.

        Parameters
        ----------
        parameters, moments : arrays
            The model and its optimizer's memory, which are changed.
        taken : int
            Steps that the optimizer has taken before.
        order : array (steps, batch)
            The rows of every step.
        lr : array (steps,)
            The step size of every step.
        """

    def gradient(self, parameters: Array, rows: Array) -> Array:
        """The flat gradient of the mean weighted loss over these rows."""

    def predict(self, parameters: Array, x: Any) -> Array:
        """Class probabilities (n, classes), or (n,) for a regression."""


class NumpyKernel:
    """The formulas in numpy, with buffers that are reused: for machines without a compiled kernel."""

    def __init__(self, network: Network, table: Table) -> None:
        self.network, self.table = network, table
        self.fused = network.optimizer == "sgd" and network.clip_norm is None

    def train(
        self, parameters: Array, moments: tuple[Array, ...], *, taken: int, order: Array, lr: Array
    ) -> None:
        layers = self.network.layers(parameters)
        gradient = parameters if self.fused else np.empty_like(parameters)
        into = layers if self.fused else self.network.layers(gradient)
        outputs = self._buffers(order.shape[1])
        with one_thread(), np.errstate(all="ignore"):  # divergence is an outcome
            for step, (rows, rate) in enumerate(zip(order, lr.tolist(), strict=True)):
                x = self.table.x[rows]
                self._forward(layers, x, outputs)
                delta = self._delta(outputs[-1], rows)
                if self.fused:
                    keep = 1.0 - rate * self.network.weight_decay
                    self._backward(layers, into, x, outputs, delta, keep=keep, scale=-rate)
                else:
                    self._backward(layers, into, x, outputs, delta, keep=0.0, scale=1.0)
                    self._apply(parameters, gradient, moments, rate, taken + step + 1)

    def gradient(self, parameters: Array, rows: Array) -> Array:
        layers, gradient = self.network.layers(parameters), np.empty_like(parameters)
        outputs = self._buffers(len(rows))
        with one_thread(), np.errstate(all="ignore"):
            x = self.table.x[rows]
            self._forward(layers, x, outputs)
            delta = self._delta(outputs[-1], rows)
            into = self.network.layers(gradient)
            self._backward(layers, into, x, outputs, delta, keep=0.0, scale=1.0)
        return gradient

    def predict(self, parameters: Array, x: Any) -> Array:
        layers = self.network.layers(parameters)
        results = np.empty((x.shape[0], self.network.sizes[-1]), self.network.dtype)
        with one_thread(), np.errstate(all="ignore"):
            for start in range(0, len(results), _BLOCK):
                part = x[start : start + _BLOCK]
                outputs = self._buffers(part.shape[0])
                self._forward(layers, part, outputs)
                results[start : start + _BLOCK] = outputs[-1]
            return softmax(results) if self.network.loss == "cross-entropy" else results[:, 0]

    def _buffers(self, rows: int) -> list[Array]:
        return [np.empty((rows, width), self.network.dtype) for width in self.network.sizes[1:]]

    def _forward(self, layers: list[Layer], x: Any, outputs: list[Array]) -> None:
        """Fill the output of every layer."""
        below, (function, _) = x, _ACTIVATIONS[self.network.activation]
        for (weights, biases), output in zip(layers, outputs, strict=True):
            if isinstance(below, np.ndarray):
                np.dot(below, weights, out=output)
            else:
                output[...] = below @ weights
            output += biases
            if output is not outputs[-1]:
                function(output)
            below = output

    def _delta(self, output: Array, rows: Array) -> Array:
        """The derivative of the mean weighted loss by the last layer's output."""
        y = self.table.y[rows]
        if self.network.loss == "cross-entropy":
            delta = softmax(output)
            delta[np.arange(len(y)), y] -= 1
        elif self.network.loss == "squared":
            delta = 2 * (output - y[:, None])
        elif self.network.loss == "absolute":
            delta = np.sign(output - y[:, None])
        else:
            price = np.exp(output)
            delta = np.sign(price - np.exp(y)[:, None]) * price
        delta *= (self.table.weight[rows] / self.network.dtype.type(len(y)))[:, None]
        return delta

    def _backward(
        self,
        layers: list[Layer],
        into: list[Layer],
        x: Any,
        outputs: list[Array],
        delta: Array,
        *,
        keep: float,
        scale: float,
    ) -> None:
        """``into`` becomes keep × into + scale × gradient, from the last layer to the first."""
        _, slope = _ACTIVATIONS[self.network.activation]
        for number in reversed(range(len(layers))):
            below = outputs[number - 1] if number else x
            above = delta
            if number:
                delta = np.dot(above, layers[number][0].T)
                slope(below, delta)
            weights, biases = into[number]
            if isinstance(below, np.ndarray):
                # In BLAS's column order all three are transposed: W' <- keep W' + scale above' below.
                product = _gemm(weights.dtype)
                product(scale, above.T, below.T, keep, weights.T, trans_b=True, overwrite_c=True)
            else:
                # Into the rows of the columns that occur in x, and into no others.
                _scale(weights, keep)
                columns, places = np.unique(below.indices, return_inverse=True)
                shape = (below.shape[0], len(columns))
                narrow = csr_array((below.data, places, below.indptr), shape=shape)
                weights[columns] += scale * (narrow.T @ above)
            _scale(biases, keep)
            biases += scale * above.sum(axis=0)

    def _apply(
        self, parameters: Array, gradient: Array, moments: tuple[Array, ...], lr: float, taken: int
    ) -> None:
        """One step of an optimizer that needs the whole gradient."""
        network = self.network
        if network.clip_norm is not None:
            norm = sqrt(np.einsum("i,i->", gradient, gradient, dtype=np.float64))
            ratio = network.clip_norm / (norm + CLIP_EPSILON)
            if not ratio >= 1:  # also for NaN
                gradient *= network.dtype.type(ratio)
        if network.weight_decay:
            gradient += network.weight_decay * parameters
        if network.optimizer == "sgd":
            parameters -= lr * gradient
            return
        first, beta = moments[0], network.momentum
        first *= beta
        if network.optimizer == "momentum":
            first += gradient
            parameters -= lr * first
            return
        first += (1 - beta) * gradient
        second = moments[1]
        second *= SQUARE_MOMENTUM
        second += (1 - SQUARE_MOMENTUM) * gradient**2
        root = np.sqrt(second) / sqrt(1 - SQUARE_MOMENTUM**taken) + EPSILON
        parameters -= lr / (1 - beta**taken) * first / root


@cache
def _gemm(dtype: np.dtype[Any]) -> Any:
    """BLAS's product of matrices; looking it up takes as long as a small product."""
    return get_blas_funcs("gemm", dtype=dtype)


def softmax(logits: Array) -> Array:
    """Class probabilities of every row."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    shifted /= shifted.sum(axis=1, keepdims=True)
    return np.asarray(shifted)


def _scale(values: Array, factor: float) -> None:
    if factor == 0.0:
        values[...] = 0  # 0 × NaN would be NaN: a gradient starts from nothing
    elif factor != 1.0:
        values *= factor


def _sigmoid(values: Array) -> None:
    np.negative(values, out=values)
    np.exp(values, out=values)
    values += 1
    np.reciprocal(values, out=values)


# Each activation in place, and its slope, from its own output, multiplied into a delta in place.
_ACTIVATIONS: dict[str, tuple[Callable[[Array], Any], Callable[[Array, Array], Any]]] = {
    "relu": (
        lambda values: np.maximum(values, 0, out=values),
        lambda output, delta: np.multiply(delta, output > 0, out=delta),
    ),
    "sigmoid": (_sigmoid, lambda output, delta: np.multiply(delta, output * (1 - output), out=delta)),
    "tanh": (
        lambda values: np.tanh(values, out=values),
        lambda output, delta: np.multiply(delta, 1 - output * output, out=delta),
    ),
}
