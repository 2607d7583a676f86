"""Linear models and multi-layer perceptrons, built in and fast.

Plain SGD, momentum or Adam on the mean weighted loss of each batch, by hand-written gradients. A node is one
call into a small compiled kernel (engine ``"native"``); where the package was installed without a C compiler,
numpy computes the same formulas (engine ``"numpy"``). Models are trained one after the other, so a model's
numbers never depend on the models beside it.

Why a compiled kernel: with 100 features, three hidden layers of 128, batches of 50 and one thread, a step
took about 350 µs in a tidy torch loop, 180 µs in numpy over BLAS, 110 µs with eight models batched in torch,
and 83 µs in the kernel, near four fifths of the processor's peak. ``benchmarks/mlp.py`` measures it again.

CSR features are never made dense: with plain SGD and no weight decay, a step reads and writes only the rows
of the first layer whose columns occur in the batch. Momentum, Adam, weight decay and clipping read or change
every weight in every step, so they pass over the whole first layer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, isfinite
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, vstack

from mixtree._native import mlp_native
from mixtree._native.mlp_numpy import (
    ACTIVATIONS,
    LOSSES,
    MOMENTS,
    Array,
    Kernel,
    Network,
    NumpyKernel,
    Table,
)
from mixtree.data.sampling import Cursor, Sampler, furthest
from mixtree.data.sources import TARGET, Sources
from mixtree.data.sparse import as_dense, is_sparse
from mixtree.errors import DataError, InputError
from mixtree.metrics import MAE, MAE_EXP, mean_and_error
from mixtree.simplex import Mixture
from mixtree.trainer import Evaluation, Job, TrainerBase
from mixtree.trainers.evaluation import loss_evaluations
from mixtree.trainers.rows import balanced_weights, check_merge, draw

ENGINES = ("auto", "native", "numpy")
_MOST_LAYERS = 64  # of the compiled kernel
_GRADIENT_ROWS = 4096  # at a time: memory stays bounded for sources of any size


@dataclass(frozen=True, slots=True)
class TheoryStep:
    """The theory's step size η_t = 2 / (μ (t + E)) for steps t = 0, 1, …, starting again at every node.

    >>> TheoryStep(mu=0.5, offset=4.0)(3)
    array([1.        , 0.8       , 0.66666667])
    """

    mu: float
    offset: float

    def __post_init__(self) -> None:
        for name, value in (("mu", self.mu), ("offset", self.offset)):
            if not (isfinite(value) and value > 0):
                raise InputError(f"the theory's step size needs a finite {name} above 0; got {value}")

    def __call__(self, steps: int) -> NDArray[np.float64]:
        return np.asarray(2.0 / (self.mu * (np.arange(steps) + self.offset)), dtype=np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class MlpState:
    """A model as one flat vector, what its optimizer remembers, and how far it has read."""

    parameters: Array
    moments: tuple[Array, ...]
    """Vectors like the parameters: none for plain SGD, one for momentum, two for Adam."""
    steps: int
    """Steps the optimizer has taken since it started."""
    cursor: Cursor


class MlpTrainer(TrainerBase[MlpState]):
    """Trains linear models (``hidden=()``) and MLPs on mixtures of sources.

    Row weights count in training, not in evaluations.

    Parameters
    ----------
    sources : Sources
        The rows to train on and the validation rows.
    hidden : sequence of int
        Units of each hidden layer; ``()`` is a linear model.
    activation : {"relu", "sigmoid", "tanh"}
        Of the hidden layers.
    loss : {"cross-entropy", "squared", "absolute", "exp-absolute"}, optional
        ``"cross-entropy"`` for classes; for a regression ``"squared"`` (default), ``"absolute"`` or
        ``"exp-absolute"`` (|e^ŷ − e^y|: the model predicts logarithms, errors count in original units).
    optimizer : {"sgd", "momentum", "adam"}
        ``"momentum"`` is v ← m·v + g. The optimizer's memory travels with the model.
    momentum : float
        m, and Adam's β₁.
    weight_decay : float
        This times the parameters is added to their gradient.
    lr : float or TheoryStep
        Step size.
    batch_size : int
        Rows per step.
    class_weight : "balanced" or array, optional
        A factor per class on its rows' losses in training; ``"balanced"`` gives every class of the sources'
        rows the same total weight.
    replacement : bool
        Draw rows independently; False reads every source in shuffled passes.
    reset_optimizer : bool
        Forget the optimizer's memory at the start of every node.
    clip_norm : float, optional
        The largest norm of a step's gradient.
    dtype : {"float32", "float64"}
        Of all numbers.
    engine : {"auto", "native", "numpy"}
        The compiled kernel or numpy; ``"auto"`` takes the kernel where there is one.
    init : mapping of arrays, optional
        Start every model from these instead of random numbers: as ``save`` gives them, or ``weight.0``,
        ``bias.0``, … with weights inputs × outputs.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> trainer = MlpTrainer(synthetic(sources=2, rows=200, seed=1).sources, hidden=(), lr=0.5)
    >>> state = trainer.train([Job(trainer.init(0), np.array([0.5, 0.5]), steps=10, seed=1)])[0]
    >>> trainer.evaluate([state])[0].predictions.shape
    (200, 2)
    """

    def __init__(
        self,
        sources: Sources,
        *,
        hidden: Sequence[int] = (128, 128, 128),
        activation: Literal["relu", "sigmoid", "tanh"] = "relu",
        loss: Literal["cross-entropy", "squared", "absolute", "exp-absolute"] | None = None,
        optimizer: Literal["sgd", "momentum", "adam"] = "sgd",
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        lr: float | TheoryStep = 0.1,
        batch_size: int = 50,
        class_weight: Literal["balanced"] | ArrayLike | None = None,
        replacement: bool = True,
        reset_optimizer: bool = False,
        clip_norm: float | None = None,
        dtype: Literal["float32", "float64"] = "float32",
        engine: Literal["auto", "native", "numpy"] = "auto",
        init: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        _check_choice("dtype", dtype, ("float32", "float64"))
        if not isinstance(lr, TheoryStep) and not (isfinite(lr) and lr > 0):
            raise InputError(f"the step size must be a finite number above 0, or a TheoryStep; got {lr}")
        if batch_size != int(batch_size) or batch_size < 1:
            raise InputError(f"the batch size must be a whole number, at least 1; got {batch_size}")
        if not 0 <= momentum < 1:
            raise InputError(f"momentum must lie in [0, 1); got {momentum}")
        if not (isfinite(weight_decay) and weight_decay >= 0):
            raise InputError(f"weight decay must be finite and at least 0; got {weight_decay}")
        if clip_norm is not None and not (isfinite(clip_norm) and clip_norm > 0):
            raise InputError(f"clip_norm must be finite and above 0, or None; got {clip_norm}")
        widths = tuple(hidden)
        if any(each != int(each) or each < 1 for each in widths) or len(widths) >= _MOST_LAYERS:
            raise InputError(
                f"hidden layers have whole sizes of at least 1, and are fewer than {_MOST_LAYERS}; "
                f"got {widths}"
            )
        losses = LOSSES[:1] if sources.classes else LOSSES[1:]
        self.sources, self.batch_size, self.reset_optimizer = sources, int(batch_size), reset_optimizer
        self.network = Network(
            sizes=(sources.features, *map(int, widths), sources.classes or 1),
            activation=_check_choice("activation", activation, ACTIVATIONS),
            loss=losses[0] if loss is None else _check_choice("loss for this task", loss, losses),
            optimizer=_check_choice("optimizer", optimizer, tuple(MOMENTS)),
            momentum=float(momentum),
            weight_decay=float(weight_decay),
            clip_norm=None if clip_norm is None else float(clip_norm),
            dtype=np.dtype(dtype),
        )
        self.step_size = lr
        self.lr = float(lr(1)[0] if isinstance(lr, TheoryStep) else lr)
        self.class_weight = _class_weights(class_weight, sources)
        # The target's rows come last: source K+1, drawn only by mixtures that give it weight.
        parts = (*sources.rows, sources.validation)
        self.sampler = Sampler([len(part) for part in parts], replacement=replacement)
        self.sparse = any(is_sparse(part.x) for part in parts)
        self.table = self._table(parts)
        self._validation_x = self._features(sources.validation.x)
        self._init = None if init is None else self._vector(init)
        self.engine = engine

    @property
    def engine(self) -> str:
        """How numbers are computed: ``"native"`` or ``"numpy"``. Bits are the same only within one engine."""
        return self._engine

    @engine.setter
    def engine(self, engine: str) -> None:
        _check_choice("engine", engine, ENGINES)
        if engine == "auto":
            engine = "native" if mlp_native.available() else "numpy"
        make = mlp_native.NativeKernel if engine == "native" else NumpyKernel
        self._kernel: Kernel = make(self.network, self.table)
        self._engine = engine

    def init(self, seed: int) -> MlpState:
        """Weights and biases uniform in ±1/√fan-in, as torch's linear layers have them."""
        if self._init is None:
            random = np.random.default_rng(seed)
            parameters = np.concatenate(
                [
                    random.uniform(-1.0 / np.sqrt(fan_in), 1.0 / np.sqrt(fan_in), (fan_in + 1) * fan_out)
                    for fan_in, fan_out in self.network.shapes
                ]
            ).astype(self.network.dtype)
        else:
            parameters = self._init.copy()
        moments = tuple(np.zeros_like(parameters) for _ in range(MOMENTS[self.network.optimizer]))
        return MlpState(parameters, moments, 0, self.sampler.start(seed))

    def train(self, jobs: Sequence[Job[MlpState]]) -> list[MlpState]:
        # All batches are drawn before the first model is trained: right after a long computation, Python
        # itself runs several times slower for a while.
        drawn = [draw(self.sampler, job, job.state.cursor, self.batch_size) for job in jobs]
        rule, trained = self.step_size, []
        for job, (rows, cursor) in zip(jobs, drawn, strict=True):
            state, part = job.state, job.part
            before, total = (0, job.steps) if part is None else (part.before, part.total)
            fresh = self.reset_optimizer and not before
            parameters, taken = state.parameters.copy(), 0 if fresh else state.steps
            moments = tuple(np.zeros_like(each) if fresh else each.copy() for each in state.moments)
            if isinstance(rule, TheoryStep):
                lr = rule(total)[before:][: job.steps]
            else:
                lr = np.full(job.steps, float(rule))
            self._kernel.train(parameters, moments, taken=taken, order=rows, lr=lr * job.lr_scale)
            trained.append(MlpState(parameters, moments, taken + job.steps, cursor))
        return trained

    def evaluate(self, states: Sequence[MlpState]) -> list[Evaluation]:
        if not states:
            return []
        y = self.sources.validation.y
        predictions = np.stack(
            [self._kernel.predict(state.parameters, self._validation_x) for state in states]
        )
        if self.network.loss in ("cross-entropy", "squared"):
            evaluations = loss_evaluations(y, predictions, classes=self.sources.classes)
        else:
            metric = MAE if self.network.loss == "absolute" else MAE_EXP
            assert metric.contributions is not None
            means, errors = mean_and_error(metric.contributions(y, predictions))
            evaluations = [
                Evaluation(float(mean), float(error), each)
                for mean, error, each in zip(means, errors, predictions, strict=True)
            ]
        return [each if isfinite(each.value) else replace(each, value=inf) for each in evaluations]

    def predict(self, state: MlpState, x: Any) -> Array:
        """Class probabilities (n, classes), or (n,) for a regression."""
        return self._kernel.predict(state.parameters, self._features(x))

    def gradients(self, state: MlpState, source: int | str, rows: ArrayLike | None = None) -> Array:
        """The gradient of the mean weighted loss over rows of one source, flat like the parameters.

        Parameters
        ----------
        state : MlpState
            The model.
        source : int or str
            Number or name of a source; K or ``"target"`` are the validation rows.
        rows : array of int, optional
            Positions in the source; all of its rows by default.
        """
        if isinstance(source, str):
            source = len(self.sources) if source == TARGET else self.sources.index(source)
        if not 0 <= source < len(self.sampler.sizes):
            raise InputError(f"there is no source {source}; they are 0 … {len(self.sampler.sizes) - 1}")
        size = int(self.sampler.sizes[source])
        within = np.arange(size) if rows is None else np.asarray(rows, dtype=np.int64)
        if within.ndim != 1 or not within.size or within.min() < 0 or within.max() >= size:
            raise InputError(f"gradients need positions 0 … {size - 1} of rows of source {source}")
        total = np.zeros(self.network.count)
        for start in range(0, len(within), _GRADIENT_ROWS):
            part = self.sampler.offsets[source] + within[start : start + _GRADIENT_ROWS]
            total += self._kernel.gradient(state.parameters, part) * (len(part) / len(within))
        return total.astype(self.network.dtype)

    def merge(
        self, states: Sequence[MlpState], weights: Sequence[float], mixture: Mixture | None = None
    ) -> MlpState:
        """The weighted mean of models, with a fresh optimizer.

        Parameters
        ----------
        states : sequence of MlpState
            The models.
        weights : sequence of float
            One for each.
        mixture : array, optional
            Not used: nothing has to be computed again from rows.
        """
        check_merge(states, weights)
        total, part = np.zeros(self.network.count), np.empty(self.network.count)
        for state, weight in zip(states, weights, strict=True):
            total += np.multiply(state.parameters, weight, out=part, dtype=np.float64)
        with np.errstate(over="ignore"):
            parameters = total.astype(self.network.dtype)
        moments = tuple(np.zeros_like(parameters) for _ in range(MOMENTS[self.network.optimizer]))
        return MlpState(parameters, moments, 0, furthest([state.cursor for state in states]))

    def epochs(self, state: MlpState) -> NDArray[np.float64]:
        """How often each source's rows were read, the target's last."""
        return self.sampler.epochs(state.cursor)

    def describe(self) -> dict[str, Any]:
        """The settings that decide the numbers, apart from the engine."""
        rule = self.step_size
        settings = asdict(self.network) | {
            "trainer": "mlp",
            "sizes": list(self.network.sizes),
            "dtype": self.network.dtype.name,
            "lr": asdict(rule) if isinstance(rule, TheoryStep) else float(rule),
            "batch_size": self.batch_size,
            "class_weight": None if self.class_weight is None else self.class_weight.tolist(),
            "replacement": self.sampler.replacement,
            "reset_optimizer": self.reset_optimizer,
        }
        settings["init"] = None if self._init is None else hashlib.sha256(self._init.tobytes()).hexdigest()
        return settings

    def save(self, state: MlpState) -> dict[str, NDArray[Any]]:
        arrays = {f"moment.{number}": moment for number, moment in enumerate(state.moments)}
        return arrays | {
            "parameters": state.parameters,
            "steps": np.array([state.steps], dtype=np.int64),
            "drawn": state.cursor.drawn,
            "order": np.array([state.cursor.order], dtype=np.uint64),
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> MlpState:
        count = MOMENTS[self.network.optimizer]
        wanted = {"parameters", "steps", "drawn", "order", *(f"moment.{i}" for i in range(count))}
        if missing := wanted - set(arrays):
            raise InputError(f"this is no state of this trainer: it has no {', '.join(sorted(missing))}")
        vectors = [self._fitting(arrays["parameters"], "parameters")]
        vectors += [self._fitting(arrays[f"moment.{i}"], f"moment.{i}") for i in range(count)]
        cursor = Cursor(np.array(arrays["drawn"], dtype=np.int64), int(arrays["order"][0]))
        return MlpState(vectors[0], tuple(vectors[1:]), int(arrays["steps"][0]), cursor)

    def _vector(self, arrays: Mapping[str, NDArray[Any]]) -> Array:
        """The flat vector of a pre-trained model."""
        if "parameters" in arrays:
            return self._fitting(arrays["parameters"], "init: parameters")
        pieces = []
        for number, shape in enumerate(self.network.shapes):
            for name, wanted in ((f"weight.{number}", shape), (f"bias.{number}", shape[1:])):
                if name not in arrays or np.shape(arrays[name]) != wanted:
                    found = f"of shape {np.shape(arrays[name])}" if name in arrays else "missing"
                    raise InputError(f"init: {name} must have shape {wanted}; it is {found}")
                pieces.append(np.ravel(arrays[name]))
        return np.concatenate(pieces).astype(self.network.dtype)

    def _fitting(self, vector: NDArray[Any], what: str) -> Array:
        if vector.shape != (self.network.count,):
            raise InputError(
                f"{what} of shape {vector.shape} do not fit layers {self.network.sizes}, "
                f"which have {self.network.count} parameters"
            )
        return np.array(vector, dtype=self.network.dtype)

    def _features(self, x: Any) -> Any:
        """Features as the kernel reads them."""
        x = x if is_sparse(x) else np.asarray(x)
        if x.ndim != 2 or x.shape[1] != self.network.sizes[0]:
            raise InputError(f"features must be rows × {self.network.sizes[0]} columns; got shape {x.shape}")
        if not self.sparse:
            with np.errstate(over="ignore"):
                return np.ascontiguousarray(as_dense(x), dtype=self.network.dtype)
        return _sparse_features(x, self.network.dtype)

    def _table(self, parts: Sequence[Any]) -> Table:
        pieces: list[Any] = [self._features(part.x) for part in parts]
        x = _sparse_features(vstack(pieces), self.network.dtype) if self.sparse else np.concatenate(pieces)
        y = np.concatenate([part.y for part in parts])
        weight = np.concatenate([part.weights for part in parts])
        if self.class_weight is not None:
            weight = weight * self.class_weight[y]
        kind = np.dtype(np.int64) if self.sources.classes else self.network.dtype
        with np.errstate(over="ignore"):
            y, weight = y.astype(kind), weight.astype(self.network.dtype)
            largest = np.exp(y) if self.network.loss == "exp-absolute" else y
        for what, values in (
            ("features", x.data if self.sparse else x),
            ("targets", largest),
            ("weights", weight),
        ):
            if not np.all(np.isfinite(values)):
                raise DataError(
                    f"some {what} are too large for {self.network.dtype}: scale them, or use float64"
                )
        return Table(x, y, weight)


def _sparse_features(x: Any, dtype: np.dtype[Any]) -> Any:
    """CSR with values of this type and 32-bit places, which the compiled kernel can trust."""
    with np.errstate(over="ignore"):
        table = csr_array(x, dtype=dtype)
    try:
        table.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"the sparse features are damaged: {error}") from error
    if max(table.nnz, *table.shape) > np.iinfo(np.int32).max:
        raise DataError(f"sparse features of shape {table.shape} with {table.nnz} values are too large")
    table.indptr, table.indices = table.indptr.astype(np.int32), table.indices.astype(np.int32)
    return table


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise InputError(f"unknown {what} {value!r}; choose {', '.join(choices)}")
    return value


def _class_weights(class_weight: Any, sources: Sources) -> NDArray[np.float64] | None:
    if class_weight is None:
        return None
    if not sources.classes:
        raise InputError("class_weight is for classes; this is a regression")
    if isinstance(class_weight, str):
        _check_choice("class_weight", class_weight, ("balanced",))
        return balanced_weights(sources)
    weights = np.asarray(class_weight, dtype=np.float64)
    if weights.shape != (sources.classes,) or not np.all(np.isfinite(weights)) or weights.min() < 0:
        raise InputError(f"class_weight: {sources.classes} finite numbers, at least 0; got {class_weight}")
    return weights
