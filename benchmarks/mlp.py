"""The built-in MLP against what a good user would write: ratios of CPU time, all from interleaved runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_matrix

from mixtree._native.threads import one_thread
from mixtree.data.sources import Sources
from mixtree.metrics import HAND_TILL
from mixtree.simplex import uniform_mixture
from mixtree.trainer import Job
from mixtree.trainers.mlp import MlpTrainer
from tidy import (
    BATCH,
    CLASSES,
    FEATURES,
    HIDDEN,
    LR,
    STEPS,
    flops,
    loader_loop,
    main_sources,
    make_module,
    make_sklearn,
    medians,
    partial_fit_loop,
    peak_flops,
    pooled,
    tidy_loop,
    tidy_score,
)

MODELS = 8
SPARSE_COLUMNS, SPARSE_ONES = 15_177, 9

Row = dict[str, Any]


def measure(*, repeats: int = 15) -> list[Row]:
    """One row {name, ratio, target, met} per comparison."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with one_thread():
        rows = [*_steps(HIDDEN, "MLP", 4.0, repeats), *_steps((), "linear model", 4.0, repeats)]
        return [*rows, *_whole_node(repeats), *_sparse(max(3, repeats // 3))]


def _row(name: str, ratio: float, target: float) -> Row:
    return {"name": name, "ratio": round(ratio, 2), "target": target, "met": ratio >= target}


def _jobs(trainer: MlpTrainer, count: int = MODELS) -> list[Job[Any]]:
    mixture = uniform_mixture(len(trainer.sources))
    return [Job(trainer.init(seed), mixture, STEPS, seed) for seed in range(count)]


def _modules(sizes: tuple[int, ...]) -> list[torch.nn.Module]:
    return [make_module(sizes) for _ in range(MODELS)]


def _batches(rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.random.default_rng(1).integers(0, rows, (STEPS, BATCH))


def _steps(hidden: tuple[int, ...], what: str, target: float, repeats: int) -> list[Row]:
    """Training alone: eight models, twenty steps each; the slow loops train one."""
    sources = main_sources()
    sizes = (FEATURES, *hidden, CLASSES)
    x, y = pooled(sources)
    tensor_x, tensor_y = torch.from_numpy(x), torch.from_numpy(y)
    drawn = _batches(len(x))
    ready = list(torch.from_numpy(drawn))
    ours = {name: MlpTrainer(sources, hidden=hidden, lr=LR, engine=name) for name in ("auto", "numpy")}
    jobs = {name: _jobs(trainer) for name, trainer in ours.items()}
    modules, loaded, estimator = _modules(sizes), make_module(sizes), make_sklearn(hidden, lr=LR)
    weights = torch.full((len(x),), 1.0 / len(x))
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: ours["auto"].train(jobs["auto"]),
        "numpy": lambda: ours["numpy"].train(jobs["numpy"]),
        "tidy": lambda: [tidy_loop(module, tensor_x, tensor_y, ready, lr=LR) for module in modules],
        "loader": lambda: loader_loop(loaded, tensor_x, tensor_y, weights, steps=STEPS, batch=BATCH, lr=LR),
        "sklearn": lambda: partial_fit_loop(estimator, x, y, drawn, classes=CLASSES),
    }
    seconds = medians(runs, repeats=repeats)
    each, tidy = seconds["ours"] / MODELS, seconds["tidy"] / MODELS
    label = type(estimator).__name__
    rows = [
        _row(f"{what}, a step, M = {MODELS}: tidy torch loop / ours", tidy / each, target),
        _row(
            f"{what}, a step: DataLoader + WeightedRandomSampler + SGD / ours",
            seconds["loader"] / each,
            target,
        ),
        _row(f"{what}, a step: scikit-learn {label}.partial_fit / ours", seconds["sklearn"] / each, target),
        _row(
            f"{what}, a step: tidy torch loop / numpy fallback",
            seconds["tidy"] / seconds["numpy"],
            1.0,
        ),
    ]
    if hidden:
        peak = peak_flops()
        for name, time, least in (("tidy torch loop", tidy, 9.0), ("ours", each, 50.0)):
            share = flops(sizes, BATCH) * STEPS / time / peak
            rows.append(_row(f"{what}: {name}, % of FMA peak", 100 * share, least))
    return rows


def _whole_node(repeats: int) -> list[Row]:
    """Twenty steps and the Hand–Till AUROC on 400 rows."""
    sources = main_sources()
    x, y = (torch.from_numpy(each) for each in pooled(sources))
    held = torch.from_numpy(sources.validation.x)
    ready = list(torch.from_numpy(_batches(len(x))))
    modules = _modules((FEATURES, *HIDDEN, CLASSES))
    trainer = MlpTrainer(sources, hidden=HIDDEN, lr=LR)
    jobs = _jobs(trainer)

    def ours() -> None:
        evaluations = trainer.evaluate(trainer.train(jobs))
        HAND_TILL.batch(sources.validation.y, np.stack([each.predictions for each in evaluations]))

    def theirs() -> None:
        for module in modules:
            tidy_loop(module, x, y, ready, lr=LR)
            tidy_score(module, held, sources.validation.y)

    seconds = medians({"ours": ours, "theirs": theirs}, repeats=repeats)
    ratio = seconds["theirs"] / seconds["ours"]
    name = f"MLP, whole node with AUROC, M = {MODELS}: tidy torch loop + scikit-learn / ours"
    return [_row(name, ratio, 5.0)]


def _sparse(repeats: int) -> list[Row]:
    """One-hot rows of 15,177 columns: the sparse first layer against the same model on dense rows."""
    random = np.random.default_rng(0)

    def rows(count: int) -> tuple[csr_matrix, np.ndarray[Any, np.dtype[np.int64]]]:
        columns = random.integers(0, SPARSE_COLUMNS, count * SPARSE_ONES)
        places = np.arange(0, count * SPARSE_ONES + 1, SPARSE_ONES)
        ones = np.ones(count * SPARSE_ONES, dtype=np.float32)
        x = csr_matrix((ones, columns, places), shape=(count, SPARSE_COLUMNS))
        x.sum_duplicates()
        return x, random.integers(0, 2, count)

    sparse = Sources.from_dict({"a": rows(300), "b": rows(300)}, rows(100), classes=2)
    parts = [(part.x.toarray(), part.y) for part in (*sparse.rows, sparse.validation)]
    dense = Sources.from_dict({"a": parts[0], "b": parts[1]}, parts[2], classes=2)
    trainers = {name: MlpTrainer(each, lr=LR) for name, each in (("sparse", sparse), ("dense", dense))}
    jobs = {name: _jobs(trainer, 1) for name, trainer in trainers.items()}
    x, y = (torch.from_numpy(each) for each in pooled(dense))
    module, ready = make_module((SPARSE_COLUMNS, *HIDDEN, 2)), list(torch.from_numpy(_batches(600)))
    runs: dict[str, Callable[[], object]] = {
        "sparse": lambda: trainers["sparse"].train(jobs["sparse"]),
        "dense": lambda: trainers["dense"].train(jobs["dense"]),
        "tidy": lambda: tidy_loop(module, x, y, ready, lr=LR),
    }
    seconds = medians(runs, repeats=repeats)
    what = f"{SPARSE_COLUMNS} one-hot columns, a step"
    return [
        _row(f"{what}: our dense rows / our sparse rows", seconds["dense"] / seconds["sparse"], 4.0),
        _row(f"{what}: tidy torch loop / our sparse rows", seconds["tidy"] / seconds["sparse"], 4.0),
    ]


if __name__ == "__main__":
    for row in measure():
        outcome = "met" if row["met"] else "missed"
        print(f"{row['ratio']:8.2f}  (target {row['target']:g}, {outcome})  {row['name']}")
