"""A numpy trainer that is slow but obviously right: the tests trust it, faster engines are compared with it.

Logistic, softmax and linear regression and multi-layer perceptrons, by plain SGD, in float64. One model at a
time, one batch at a time, gradients written out as in a textbook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mixtree._native.threads import one_thread
from mixtree.data.sampling import Cursor, Sampler, furthest
from mixtree.data.sources import Sources
from mixtree.data.sparse import as_dense
from mixtree.errors import InputError
from mixtree.simplex import Mixture
from mixtree.trainer import Evaluation, Job, TrainerBase
from mixtree.trainers.evaluation import loss_evaluations
from mixtree.trainers.rows import check_merge, draw

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class ReferenceState:
    """Weights (fan-in × fan-out) and biases of every layer, and how far the model has read."""

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    cursor: Cursor


class ReferenceTrainer(TrainerBase[ReferenceState]):
    """Plain SGD on the mean loss of each batch: cross-entropy for classes, squared error for a regression.

    Parameters
    ----------
    sources : Sources
        The rows to train on and the validation rows.
    hidden : sequence of int
        Units of each hidden layer; none by default, which is a linear model.
    activation : {"relu", "sigmoid", "tanh"}
        Of the hidden layers.
    lr : float
        Step size.
    batch_size : int
        Rows per step.
    weight_decay : float
        This times the parameters is added to their gradient, biases included.
    replacement : bool
        Draw rows independently; False reads every source in shuffled passes.
    """

    def __init__(
        self,
        sources: Sources,
        *,
        hidden: Sequence[int] = (),
        activation: Literal["relu", "sigmoid", "tanh"] = "relu",
        lr: float = 0.1,
        batch_size: int = 50,
        weight_decay: float = 0.0,
        replacement: bool = True,
    ) -> None:
        if activation not in _ACTIVATIONS:
            raise InputError(f"unknown activation {activation!r}; choose {', '.join(_ACTIVATIONS)}")
        if not (np.isfinite(lr) and lr > 0):
            raise InputError(f"the step size must be a finite number above 0; got {lr}")
        if batch_size < 1:
            raise InputError(f"the batch size must be at least 1; got {batch_size}")
        if any(width < 1 for width in hidden):
            raise InputError(f"hidden layers need at least one unit each; got {tuple(hidden)}")
        if not (np.isfinite(weight_decay) and weight_decay >= 0):
            raise InputError(f"the weight decay must be a finite number of at least 0; got {weight_decay}")
        self.sources, self.lr, self.batch_size, self.weight_decay = sources, lr, batch_size, weight_decay
        self.activation = activation
        self.layers = (sources.features, *hidden, sources.classes or 1)
        # The target's rows come last: source K+1, drawn only by mixtures that give it weight.
        parts = (*sources.rows, sources.validation)
        self.x = np.concatenate([as_dense(part.x, np.float64) for part in parts])
        self.y = np.concatenate([part.y for part in parts])
        self.row_weight = np.concatenate([part.weights for part in parts])
        self.sampler = Sampler([len(part) for part in parts], replacement=replacement)

    def init(self, seed: int) -> ReferenceState:
        """Weights uniform in ±1/√fan-in, as torch's linear layers have them."""
        random = np.random.default_rng(seed)
        weights, biases = [], []
        for fan_in, fan_out in zip(self.layers[:-1], self.layers[1:], strict=True):
            bound = 1.0 / np.sqrt(fan_in)
            weights.append(random.uniform(-bound, bound, (fan_in, fan_out)))
            biases.append(random.uniform(-bound, bound, fan_out))
        return ReferenceState(tuple(weights), tuple(biases), self.sampler.start(seed))

    def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
        with one_thread(), np.errstate(over="ignore", invalid="ignore"):  # divergence is an outcome
            trained = []
            for job in jobs:
                weights = [each.copy() for each in job.state.weights]
                biases = [each.copy() for each in job.state.biases]
                rows, cursor = draw(self.sampler, job, job.state.cursor, self.batch_size)
                for batch in rows:
                    x, y, row_weight = self.x[batch], self.y[batch], self.row_weight[batch]
                    gradients = self.layer_gradients(weights, biases, x, y, row_weight)
                    for layer, (for_weights, for_biases) in enumerate(gradients):
                        for_weights += self.weight_decay * weights[layer]
                        for_biases += self.weight_decay * biases[layer]
                        weights[layer] -= self.lr * job.lr_scale * for_weights
                        biases[layer] -= self.lr * job.lr_scale * for_biases
                trained.append(ReferenceState(tuple(weights), tuple(biases), cursor))
            return trained

    def layer_gradients(
        self,
        weights: Sequence[Array],
        biases: Sequence[Array],
        x: Array,
        y: NDArray[Any],
        row_weight: Array | float = 1.0,
    ) -> list[tuple[Array, Array]]:
        """Gradients of a batch's mean weighted loss with respect to every layer's weights and biases.

        Parameters
        ----------
        weights, biases : sequences of arrays
            Of every layer, the first one's first.
        x, y : arrays
            The batch's features (n, features), and its classes or targets (n,).
        row_weight : array or float
            Of each row, or of all.

        Returns
        -------
        list of (array, array)
            For the weights and for the biases of every layer.
        """
        outputs = self._forward(weights, biases, x)
        if self.sources.classes:
            delta = _softmax(outputs[-1])
            delta[np.arange(len(y)), y] -= 1.0
        else:
            delta = 2.0 * (outputs[-1] - y[:, None])
        delta *= np.reshape(row_weight, (-1, 1)) / len(y)
        _, slope = _ACTIVATIONS[self.activation]
        gradients: list[tuple[Array, Array]] = []
        for layer in reversed(range(len(weights))):
            below = outputs[layer]
            gradients.append((below.T @ delta, delta.sum(axis=0)))
            if layer > 0:
                delta = (delta @ weights[layer].T) * slope(below)
        return gradients[::-1]

    def _forward(self, weights: Sequence[Array], biases: Sequence[Array], x: Array) -> list[Array]:
        """The input and the output of every layer."""
        function, _ = _ACTIVATIONS[self.activation]
        outputs = [x]
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            total = outputs[-1] @ weight + bias
            outputs.append(total if layer == len(weights) - 1 else function(total))
        return outputs

    def predict(self, state: ReferenceState, x: Any) -> Array:
        """Class probabilities (n, classes), or (n,) for a regression."""
        with np.errstate(over="ignore", invalid="ignore"):
            last = self._forward(state.weights, state.biases, as_dense(x, np.float64))[-1]
            return _softmax(last) if self.sources.classes else last[:, 0]

    def evaluate(self, states: Sequence[ReferenceState]) -> list[Evaluation]:
        validation = self.sources.validation
        predictions = np.stack([self.predict(state, validation.x) for state in states])
        return loss_evaluations(validation.y, predictions, classes=self.sources.classes)

    def merge(
        self, states: Sequence[ReferenceState], weights: Sequence[float], mixture: Mixture | None = None
    ) -> ReferenceState:
        """The weighted mean of models.

        Parameters
        ----------
        states : sequence of ReferenceState
            The models.
        weights : sequence of float
            One for each.
        mixture : array, optional
            Not used: nothing has to be computed again from rows.
        """
        check_merge(states, weights)

        def mean(layers: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
            return tuple(
                np.sum([weight * each for weight, each in zip(weights, same, strict=True)], axis=0)
                for same in zip(*layers, strict=True)
            )

        cursor = furthest([state.cursor for state in states])
        return ReferenceState(
            mean([state.weights for state in states]), mean([state.biases for state in states]), cursor
        )

    def save(self, state: ReferenceState) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"drawn": state.cursor.drawn}
        arrays["order"] = np.array([state.cursor.order], dtype=np.uint64)
        for layer, (weight, bias) in enumerate(zip(state.weights, state.biases, strict=True)):
            arrays[f"weight.{layer}"], arrays[f"bias.{layer}"] = weight, bias
        return arrays

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> ReferenceState:
        layers = range(len(self.layers) - 1)
        return ReferenceState(
            tuple(np.array(arrays[f"weight.{layer}"]) for layer in layers),
            tuple(np.array(arrays[f"bias.{layer}"]) for layer in layers),
            Cursor(np.array(arrays["drawn"]), int(arrays["order"][0])),
        )


def _softmax(logits: Array) -> Array:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Array = shifted / shifted.sum(axis=1, keepdims=True)
    return result


# Each activation with its slope as a function of its own output.
_ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "relu": (lambda total: np.maximum(total, 0.0), lambda output: np.where(output > 0, 1.0, 0.0)),
    "sigmoid": (lambda total: 1.0 / (1.0 + np.exp(-total)), lambda output: output * (1.0 - output)),
    "tanh": (np.tanh, lambda output: 1.0 - output * output),
}
