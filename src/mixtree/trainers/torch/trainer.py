"""Any torch module as a trainer, with any optimizer, schedule and loss."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mixtree.errors import InputError, MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError("mixtree.trainers.torch.trainer", "torch") from error
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from mixtree.data.identity import identity
from mixtree.data.sampling import Sampler, furthest
from mixtree.data.sources import TARGET, Sources
from mixtree.metrics import mean_and_error
from mixtree.simplex import Mixture
from mixtree.trainer import Evaluation, Job, TrainerBase
from mixtree.trainers.evaluation import loss_evaluations
from mixtree.trainers.rows import check_merge
from mixtree.trainers.torch.choice import choose_engine, make_engine
from mixtree.trainers.torch.data import Objective, Table, call, device_called
from mixtree.trainers.torch.engines import (
    Engine,
    Recipe,
    drew_outside_torch,
    free_memory,
    one_torch_thread,
    seeded,
    smaller,
    torch_seeded,
)
from mixtree.trainers.torch.state import (
    Replica,
    TorchState,
    digest,
    load_checkpoint,
    read_checkpoint,
    state_arrays,
    state_from,
)

__all__ = ["TorchState", "TorchTrainer"]

_SGD = functools.partial(torch.optim.SGD, lr=0.1)
_EVALUATION_ROWS, _EVALUATION_BYTES = 4096, 64 << 20
_NORMALISING = 512
"""Rows on which merged models compute the statistics of batch normalisation again."""
_ENGINES = ("auto", "eager", "traced", "vmap")
_AMP: dict[Any, torch.dtype | None] = {
    False: None,
    True: torch.float16,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


class TorchTrainer(TrainerBase[TorchState]):
    """A torch module trained on mixtures of the sources.

    Torch's, Python's and numpy's own random numbers come from the job's seed in training, and from one and
    the same seed in every evaluation; what draws from the last two is trained by the plain loop.
    Pickling fixes the engine first, so that all workers use the same one.

    Parameters
    ----------
    sources : Sources
        The rows to train on and the validation rows.
    module : callable
        Builds a new module at each call.
    loss : callable, optional
        ``loss(output, y)`` gives the loss of every row, or their mean if there are no weights. Default:
        cross-entropy, or squared error in a regression. A module with one output per row gets ``y`` in the
        output's shape and type. The same loss on the validation rows, unweighted, is a node's value.
    optimizer : callable
        Makes an optimizer from parameters.
    scheduler : callable, optional
        Makes a schedule from the optimizer; it moves once per step and goes on from node to node.
    batch_size : int
        Rows per step.
    collate : callable, optional
        Makes the module's input from some rows of x: a tensor, a tuple of arguments or a mapping of named
        ones. Without it rows become tensors; sparse rows become dense batch by batch.
    output : {"logits", "probabilities"} or callable
        What the module gives, for predictions, or a function from outputs to predictions.
    clip_norm : float, optional
        The largest norm of a step's gradient.
    class_weight : sequence or mapping, optional
        A factor per class; like the rows' own weights it multiplies each row's loss in training.
    replacement : bool
        Draw rows independently; False reads every source in shuffled passes.
    reset_optimizer : bool
        Start optimizer and schedule anew at every node.
    device : str
        ``"cpu"``, ``"cuda"`` or ``"mps"``.
    amp : bool or {"float16", "bfloat16"}
        Mixed precision: ``True`` or ``"float16"`` with loss scaling, or ``"bfloat16"``.
    init : path or mapping of arrays, optional
        A pre-trained model to start from: a safetensors file, or its arrays by name.
    engine : {"auto", "eager", "traced", "vmap"}
        ``"eager"`` is the plain loop; ``"traced"`` runs a simplified trace of the step; ``"vmap"`` the same
        for up to ``group`` jobs at once; ``"auto"`` times a few steps and takes the fastest of those that
        move the module's parameters as the plain loop does; in a study it spends at most 5 % of the expected
        time on it, so that a study of less than 10,000 steps has the plain loop. An engine that cannot train
        the module gives way to a simpler one. A module whose forward counts its calls needs ``"eager"``.
    group : int
        Jobs that ``"vmap"`` trains at once.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> sources = synthetic(sources=2, rows=200, features=3, seed=1).sources
    >>> trainer = TorchTrainer(sources, lambda: nn.Linear(3, 2), engine="eager")
    >>> state = trainer.train([Job(trainer.init(0), np.array([0.5, 0.5]), steps=10, seed=1)])[0]
    >>> trainer.evaluate([state])[0].predictions.shape
    (200, 2)
    """

    def __init__(
        self,
        sources: Sources,
        module: Callable[[], nn.Module],
        *,
        loss: Callable[[Tensor, Tensor], Tensor] | None = None,
        optimizer: Callable[[Any], torch.optim.Optimizer] = _SGD,
        scheduler: Callable[[torch.optim.Optimizer], Any] | None = None,
        batch_size: int = 50,
        collate: Callable[[Any], Any] | None = None,
        output: Literal["logits", "probabilities"] | Callable[[Tensor], Any] = "logits",
        clip_norm: float | None = None,
        class_weight: Sequence[float] | Mapping[int, float] | None = None,
        replacement: bool = True,
        reset_optimizer: bool = False,
        device: str = "cpu",
        amp: bool | Literal["float16", "bfloat16"] = False,
        init: str | Path | Mapping[str, Any] | None = None,
        engine: Literal["auto", "eager", "traced", "vmap"] = "auto",
        group: int = 8,
    ) -> None:
        if batch_size < 1 or group < 1:
            raise InputError(f"batch_size= and group= must be at least 1; got {batch_size} and {group}")
        if clip_norm is not None and not (np.isfinite(clip_norm) and clip_norm > 0):
            raise InputError(f"clip_norm= must be a finite number above 0; got {clip_norm}")
        if amp not in _AMP:
            raise InputError(f"amp= must be True, False, 'float16' or 'bfloat16'; got {amp!r}")
        self.sources, self.module, self.batch_size = sources, module, batch_size
        self.optimizer, self.scheduler, self.clip_norm = optimizer, scheduler, clip_norm
        self.class_weight, self.reset_optimizer, self.amp = class_weight, reset_optimizer, amp
        self.device = device_called(device)
        self.pretrained = None if init is None else read_checkpoint(init)
        self._group = group
        self.engine = engine
        self._quiet: set[str] = set()
        """What parts of an evaluation need none of Python's and numpy's random numbers."""
        if isinstance(loss, nn.Module):
            loss = loss.to(self.device)
        self._objective = Objective(loss, classes=sources.classes, output=output)
        parts = (*sources.rows, sources.validation)
        self._sampler = Sampler([len(part) for part in parts], replacement=replacement)
        self._replica = self._make_replica()
        self.lr = float(self._replica.fresh["groups"][0].get("lr", float("nan")))
        dtypes = [each.dtype for each in self._replica.parameters.values() if each.is_floating_point()]
        self._table = Table(
            parts,
            classes=sources.classes,
            class_weight=class_weight,
            collate=collate,
            dtype=dtypes[0] if dtypes else torch.float32,
            device=self.device,
        )
        self._probe()
        self._table.settle()
        fitting = _EVALUATION_BYTES // (4 * max(1, self._table.width))
        self._evaluation_rows = int(np.clip(fitting, 64, _EVALUATION_ROWS))

    @property
    def engine(self) -> str:
        """The engine in use; ``"auto"`` becomes one of the others when it is first asked for."""
        return self._ready().name

    @engine.setter
    def engine(self, name: str) -> None:
        if name not in _ENGINES:
            raise InputError(f"unknown engine {name!r}; choose {', '.join(_ENGINES)}")
        self._wanted: Any = name
        self._made: Engine | None = None

    def prepare(self, *, steps: int | None = None, seconds: float | None = None) -> None:
        """Settle the engine for a study of so many steps that ends after so many seconds at the latest."""
        self._ready(steps, seconds)

    @property
    def group(self) -> int | None:  # type: ignore[override]  # reading it may choose the engine
        """How many jobs train at once, if a job's last bits may depend on those beside it."""
        return self._group if self.engine == "vmap" else None

    def _ready(self, steps: int | None = None, seconds: float | None = None) -> Engine:
        if self._made is None:
            initial = self.init(0)
            recipe = Recipe(
                self._replica,
                self._table,
                self._objective,
                self._sampler,
                self.batch_size,
                self.clip_norm,
                self.reset_optimizer,
                _AMP[self.amp],
                self.device,
            )
            with one_torch_thread():
                if self._wanted == "auto":
                    self._made = choose_engine(
                        recipe, group=self._group, initial=initial, steps=steps, seconds=seconds
                    )
                else:
                    self._made = make_engine(self._wanted, recipe, group=self._group, initial=initial)
            self._wanted = self._made.name
        return self._made

    def init(self, seed: int) -> TorchState:
        """A module built with torch's random numbers seeded by ``seed``, or the pre-trained one."""
        fresh = self._fresh_module(seed)
        if fresh is self._replica.module:
            raise InputError("module= must build a new module at each call; it gave the same one twice")
        tensors = {name: each.detach().clone() for name, each in _tensors(fresh).items()}
        replica = self._replica
        scale = None if replica.scaler is None else replica.scaler.state_dict()
        return TorchState(tensors, replica.fresh, replica.fresh_schedule, scale, self._sampler.start(seed))

    def train(self, jobs: Sequence[Job[TorchState]]) -> list[TorchState]:
        engine = self._ready()
        with one_torch_thread():
            return engine.train(jobs)

    def evaluate(self, states: Sequence[TorchState]) -> list[Evaluation]:
        if not states:
            return []
        start, stop = (int(place) for place in self._table.offsets[-2:])
        y = self._table.y[start:stop]
        with one_torch_thread():
            outputs = [self._outputs(state, "evaluate", self._table.rows, start, stop) for state in states]
        predictions = np.stack([self._objective.predictions(output) for output in outputs])
        if self._objective.loss is None:
            labels = self.sources.validation.y
            evaluations = loss_evaluations(labels, predictions, classes=self.sources.classes)
        else:
            evaluations = []
            for output, each in zip(outputs, predictions, strict=True):
                with torch.no_grad(), self._evaluating("loss"):
                    losses = self._objective.losses(output, y).double().cpu().numpy()
                value, error = mean_and_error(losses) if losses.ndim else (losses, float("nan"))
                evaluations.append(Evaluation(float(value), float(error), each))
        return [
            each if np.isfinite(each.value) else replace(each, value=float("inf")) for each in evaluations
        ]

    def predict(self, state: TorchState, x: Any) -> NDArray[Any]:
        """Class probabilities (n, classes), or (n,) for a regression."""
        with one_torch_thread():
            rows = int(x.shape[0])
            output = self._outputs(state, "predict", lambda a, b: self._table.inputs(x[a:b]), 0, rows)
        return self._objective.predictions(output)

    def _outputs(
        self, state: TorchState, what: str, rows: Callable[[int, int], Any], start: int, stop: int
    ) -> Tensor:
        """The module's outputs on rows start … stop, some at a time, fewer if memory runs out."""
        forward = _bound(self._replica.module.eval(), dict(state.tensors))
        while True:
            size = min(self._evaluation_rows, stop - start)
            places = range(start, stop, size)
            try:
                with torch.no_grad(), self._evaluating(what):
                    return torch.cat(
                        [call(forward, rows(place, min(place + size, stop))) for place in places]
                    )
            except RuntimeError as error:
                self._evaluation_rows = smaller(error, size, "evaluation")
                free_memory(self.device)

    @contextmanager
    def _evaluating(self, what: str) -> Iterator[None]:
        """The same random numbers for every model, should there be any in evaluation mode."""
        if what in self._quiet:
            with torch_seeded(0, self.device):
                yield
            return
        with seeded(0, self.device):
            yield
            # The same rows are evaluated over and over: what did without once will do without again.
            if what != "predict" and not drew_outside_torch(0):
                self._quiet.add(what)

    def gradients(self, state: TorchState, source: int | str, rows: Any = None) -> NDArray[np.float64]:
        """The gradient of the mean weighted loss over rows of one source, flat over the trained parameters.

        The module is in evaluation mode: no dropout, fixed batch statistics.

        Parameters
        ----------
        state : TorchState
            The model.
        source : int or str
            Number or name of a source; K or ``"target"`` are the validation rows.
        rows : array of int, optional
            Positions in the source; all of its rows by default.
        """
        if isinstance(source, str):
            source = len(self.sources) if source == TARGET else self.sources.index(source)
        sizes = self._sampler.sizes
        if not 0 <= source < len(sizes):
            raise InputError(f"there is no source {source}; they are 0 … {len(sizes) - 1}")
        within = np.arange(sizes[source]) if rows is None else np.asarray(rows, dtype=np.int64)
        if within.ndim != 1 or not within.size or within.min() < 0 or within.max() >= sizes[source]:
            raise InputError(f"gradients need positions 0 … {sizes[source] - 1} of rows of source {source}")
        module = self._replica.module.eval()
        named = {name: each.detach() for name, each in state.tensors.items()}
        trained = {
            name: named[name].clone().requires_grad_()
            for name, each in self._replica.parameters.items()
            if each.requires_grad
        }
        places, total = within + self._table.offsets[source], np.zeros(0)
        with seeded(0, self.device), one_torch_thread():
            for piece in np.array_split(places, -(-len(places) // self._evaluation_rows)):
                ((inputs, y, weight),) = self._table.batches(piece[None])
                loss = self._objective.total(call(_bound(module, named | trained), inputs), y, weight)
                parts = torch.autograd.grad(loss, list(trained.values()), materialize_grads=True)
                flat = torch.cat([part.reshape(-1) for part in parts]).double().cpu().numpy()
                total = flat * (len(piece) / len(places)) + (total if total.size else 0.0)
        return total

    def merge(
        self, states: Sequence[TorchState], weights: Sequence[float], mixture: Mixture | None = None
    ) -> TorchState:
        """The weighted mean of models; the optimizer begins anew, the schedule goes on as the last one's.

        Statistics of batch normalisation are computed again: means of models have other ones than the mean of
        their statistics.

        Parameters
        ----------
        states : sequence of TorchState
            The models.
        weights : sequence of float
            One for each.
        mixture : array, optional
            Of the rows on which statistics are computed again; without it they are averaged too.
        """
        check_merge(states, weights)
        tensors = dict(states[0].tensors)
        for name, each in tensors.items():
            if each.is_floating_point():
                total = torch.zeros_like(each, dtype=torch.float64)
                for state, weight in zip(states, weights, strict=True):
                    total += weight * state.tensors[name].double()
                tensors[name] = total.to(each.dtype)
        cursor = furthest([state.cursor for state in states])
        if mixture is not None:
            self._normalise(tensors, mixture)
        optimizer = {"state": self._replica.fresh["state"], "groups": states[-1].optimizer["groups"]}
        return replace(states[-1], tensors=tensors, optimizer=optimizer, cursor=cursor)

    def _normalise(self, tensors: dict[str, Tensor], mixture: Mixture) -> None:
        """Compute the running statistics of batch normalisation again, on rows of the mixture."""
        module = self._replica.module.eval()
        layers = {
            name: layer
            for name, layer in module.named_modules()
            if isinstance(layer, _BatchNorm) and layer.track_running_stats
        }
        if not layers:
            return
        kept = {name: layer.momentum for name, layer in layers.items()}
        for name, layer in layers.items():
            layer.momentum = None  # the plain mean over batches
            for part in ("running_mean", "running_var", "num_batches_tracked"):
                full = f"{name}.{part}" if name else part
                tensors[full] = torch.zeros_like(tensors[full])
            layer.train()
        size = min(self._evaluation_rows, max(self.batch_size, _NORMALISING // 4))
        rows, _ = self._sampler.draw(mixture, _NORMALISING, seed=0, cursor=self._sampler.start(0))
        forward = _bound(module, tensors)
        try:
            with torch.no_grad(), seeded(0, self.device), one_torch_thread():
                for at in range(0, len(rows) - size + 1, size):
                    ((inputs, _, _),) = self._table.batches(rows[at : at + size][None])
                    call(forward, inputs)
        finally:
            for name, layer in layers.items():
                layer.momentum = kept[name]
                layer.eval()

    def epochs(self, state: TorchState) -> NDArray[np.float64]:
        """How often each source's rows were read, the target's last."""
        return self._sampler.epochs(state.cursor)

    def describe(self) -> dict[str, Any]:
        """The settings that decide the numbers, apart from the engine."""
        replica, output, collate = self._replica, self._objective.output, self._table.collate
        return {
            "trainer": "torch",
            "module": repr(replica.module),
            "parameters": {name: [*map(int, each.shape)] for name, each in replica.parameters.items()},
            "loss": None if self._objective.loss is None else identity(self._objective.loss),
            "optimizer": identity(type(replica.optimizer)),
            "settings": [
                {key: repr(value) for key, value in sorted(group.items())}
                for group in replica.fresh["groups"]
            ],
            "scheduler": None if self.scheduler is None else identity(self.scheduler),
            "schedule": repr(replica.fresh_schedule),
            "collate": None if collate is None else identity(collate),
            "output": output if isinstance(output, str) else identity(output),
            "batch_size": self.batch_size,
            "clip_norm": self.clip_norm,
            "class_weight": None if self._table.class_weight is None else self._table.class_weight.tolist(),
            "replacement": self._sampler.replacement,
            "reset_optimizer": self.reset_optimizer,
            "device": self.device.type,
            "amp": self.amp,
            "init": None if self.pretrained is None else digest(self.pretrained),
        }

    def save(self, state: TorchState) -> dict[str, NDArray[Any]]:
        return state_arrays(state)

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> TorchState:
        return state_from(arrays, self._replica, self.device)

    def _fresh_module(self, seed: int) -> nn.Module:
        with seeded(seed, self.device):
            module = self.module()
        if not isinstance(module, nn.Module):
            raise InputError(
                f"module= must be a function that builds a torch module; it gave a {type(module).__name__}"
            )
        if any(nn.parameter.is_lazy(each) for each in _tensors(module).values()):
            raise InputError(
                "the module has lazy layers, whose sizes are unknown: give the sizes of all layers"
            )
        module.to(self.device)
        if self.pretrained is not None:
            load_checkpoint(module, self.pretrained)
        return module

    def _make_replica(self) -> Replica:
        if isinstance(self.module, nn.Module) or not callable(self.module):
            raise InputError("module= must be a function that builds a new module, e.g. lambda: Net(…)")
        scaler = torch.amp.GradScaler(self.device.type) if _AMP[self.amp] == torch.float16 else None
        return Replica(self._fresh_module(0), self.optimizer, self.scheduler, scaler=scaler)

    def _probe(self) -> None:
        """Try the module, the loss and the predictions on a few rows, before any training."""
        table, module = self._table, self._replica.module.eval()
        rows = min(3, int(table.offsets[-1]))
        try:
            output = self._try(module, rows)
        except Exception as first:
            # Whole numbers are for embeddings; a linear layer wants the same numbers as floats.
            table.whole_numbers = False
            try:
                output = self._try(module, rows)
            except Exception:
                raise InputError(f"the module fails on {rows} rows of the data: {first}") from first
        self._objective.check(output, table.y[:rows], weighted=table.weight is not None)

    def _try(self, module: nn.Module, rows: int) -> Any:
        with torch.no_grad(), seeded(0, self.device), one_torch_thread():
            return call(module, self._table.rows(0, rows))

    def __getstate__(self) -> dict[str, Any]:
        self._ready()  # else every worker would time and choose for itself
        return {**self.__dict__, "_made": None, "_replica": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._replica = self._make_replica()


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _bound(module: nn.Module, tensors: dict[str, Tensor]) -> Callable[..., Tensor]:
    """The module with these tensors in place of its own."""

    def forward(*arguments: Any, **named: Any) -> Tensor:
        return functional_call(module, tensors, arguments, named)  # type: ignore[no-any-return]

    return forward
