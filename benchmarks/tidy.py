"""What a good user writes without mixtree: the loops that the benchmarks compare with, and how time is taken.

One thread, rows laid ready in memory, indices drawn ahead and for free, no needless copies.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from mixtree.data.sources import Sources

# The main shape of the comparisons.
FEATURES, HIDDEN, CLASSES, BATCH, STEPS, SOURCES, ROWS, VALIDATION = (
    100,
    (128, 128, 128),
    3,
    50,
    20,
    4,
    5000,
    400,
)
LR = 0.05


def main_sources(*, seed: int = 0) -> Sources:
    """Four sources of 5,000 rows, 100 features, three classes; 400 validation rows."""
    random = np.random.default_rng(seed)
    slopes = random.normal(size=(FEATURES, CLASSES)) / np.sqrt(FEATURES)

    def rows(count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        x = random.normal(size=(count, FEATURES)).astype(np.float32)
        return x, np.argmax(x @ slopes + random.gumbel(size=(count, CLASSES)), axis=1).astype(np.int64)

    return Sources.from_dict({f"s{i}": rows(ROWS) for i in range(SOURCES)}, rows(VALIDATION), classes=CLASSES)


def pooled(sources: Sources) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All sources' rows in one table."""
    x = np.concatenate([part.x for part in sources.rows])
    return x.astype(np.float32), np.concatenate([part.y for part in sources.rows])


def make_module(sizes: Sequence[int]) -> nn.Sequential:
    """A ReLU network of these widths; two widths are a linear model."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip(sizes[:-1], sizes[1:], strict=True):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def tidy_loop(module: nn.Module, x: Tensor, y: Tensor, batches: Iterable[Tensor], *, lr: float) -> None:
    """Plain SGD in torch as it should be written: the yardstick of all ratios.

    ``torch.optim.SGD``, fused or not, and ``foreach`` updates took longer on these shapes.
    """
    parameters = list(module.parameters())
    for batch in batches:
        loss = functional.cross_entropy(module(x.index_select(0, batch)), y.index_select(0, batch))
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.sub_(gradient, alpha=lr)


def loader_loop(
    module: nn.Module, x: Tensor, y: Tensor, weights: Tensor, *, steps: int, batch: int, lr: float
) -> None:
    """The usual recipe: DataLoader, WeightedRandomSampler, torch.optim.

    A row's weight is its source's share of the mixture over the source's size.
    """
    sampler = WeightedRandomSampler(weights, steps * batch)
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    for rows, labels in DataLoader(TensorDataset(x, y), batch_size=batch, sampler=sampler):
        optimizer.zero_grad()
        functional.cross_entropy(module(rows), labels).backward()
        optimizer.step()


def make_sklearn(hidden: Sequence[int], *, lr: float) -> MLPClassifier | SGDClassifier:
    """scikit-learn's network, or its linear model, with plain SGD at a constant step size."""
    if not hidden:
        return SGDClassifier(loss="log_loss", penalty=None, learning_rate="constant", eta0=lr)
    return MLPClassifier(tuple(hidden), solver="sgd", alpha=0.0, learning_rate_init=lr, momentum=0.0)


def partial_fit_loop(
    estimator: Any, x: NDArray[Any], y: NDArray[Any], batches: NDArray[np.int64], *, classes: int
) -> None:
    """scikit-learn's ``partial_fit``, one call per batch."""
    everything = np.arange(classes)
    for batch in batches:
        estimator.partial_fit(x[batch], y[batch], classes=everything)


def tidy_score(module: nn.Module, x: Tensor, y: NDArray[np.int64]) -> float:
    """Multiclass AUROC (one against one, as Hand and Till have it) with scikit-learn."""
    with torch.no_grad():
        probabilities = functional.softmax(module(x), dim=1).double().numpy()
    return float(
        roc_auc_score(y, probabilities / probabilities.sum(axis=1, keepdims=True), multi_class="ovo")
    )


def flops(sizes: Sequence[int], batch: int) -> float:
    """Additions and multiplications of one step: forward, and back to all weights and inner layers."""
    products = [a * b for a, b in zip(sizes[:-1], sizes[1:], strict=True)]
    return 2.0 * batch * (3 * sum(products) - products[0])


def peak_flops(*, size: int = 1536, repeats: int = 8) -> float:
    """What one core reaches on large float32 products, per second: within some percent of its FMA peak."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = min(_seconds(lambda: torch.mm(a, b)) for _ in range(repeats))
    return 2.0 * size**3 / best


def medians(runs: Mapping[str, Callable[[], object]], *, repeats: int) -> dict[str, float]:
    """Median CPU seconds of each run; they take turns, so that a busy machine disturbs all alike."""
    for run in runs.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(_seconds(run))
    return {name: statistics.median(each) for name, each in times.items()}


def _seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start
