"""The built-in MLP: the same numbers as the textbook, whichever engine, instruction set or type."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix

from mixtree._native import mlp_native
from mixtree._native.mlp_native import NativeKernel
from mixtree._native.mlp_numpy import ACTIVATIONS, LOSSES, MOMENTS, Network, NumpyKernel, Table
from mixtree.data.sources import Rows, Sources
from mixtree.errors import DataError, InputError
from mixtree.simplex import uniform_mixture
from mixtree.testing import check_trainer
from mixtree.trainer import Job, Trainer
from mixtree.trainers.mlp import MlpState, MlpTrainer, TheoryStep
from mixtree.trainers.reference import ReferenceTrainer

needs_native = pytest.mark.skipif(not mlp_native.available(), reason="built without the compiled kernel")
each_engine = pytest.mark.parametrize("engine", ["numpy", pytest.param("native", marks=needs_native)])
LEVELS = range(mlp_native.best_level() + 1) if mlp_native.available() else ()


def make_sources(
    *, classes: int = 3, features: int = 7, sparse: bool = False, weights: bool = True, seed: int = 0
) -> Sources:
    """Two sources and a target of random rows."""
    random = np.random.default_rng(seed)

    def rows(n: int) -> Rows:
        x = random.normal(size=(n, features))
        if sparse:
            x[random.random(x.shape) < 0.6] = 0.0
        slope = np.linspace(-1, 1, features)
        if classes:
            y = np.clip((x @ slope + random.normal(size=n) + classes / 2).astype(np.int64), 0, classes - 1)
        else:
            y = x @ slope / 2 + 0.1 * random.normal(size=n)
        weight = random.uniform(0.2, 2.0, n) if weights else None
        return Rows(csr_matrix(x) if sparse else x, y, weight)

    given = rows(60), rows(40)
    return Sources(("a", "b"), given, replace(rows(30), weight=None), classes)


def train_both(
    sources: Sources, mlp: MlpTrainer, reference: ReferenceTrainer, mixture: Sequence[float], steps: int = 50
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Flat parameters of both after the same batches, in two nodes."""
    ours, theirs = mlp.init(3), reference.init(3)
    for seed, scale in ((5, 1.0), (6, 0.5)):
        weights = np.array(mixture)
        ours = mlp.train([Job(ours, weights, steps // 2, seed, scale)])[0]
        theirs = reference.train([Job(theirs, weights, steps // 2, seed, scale)])[0]
    pairs = zip(theirs.weights, theirs.biases, strict=True)
    return ours.parameters, np.concatenate([np.ravel(each) for pair in pairs for each in pair])


# ------------------------------------------------------------------------------------------------ agreement


@each_engine
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("classes", [0, 2, 5])
@pytest.mark.parametrize("hidden", [(), (9,), (16, 33)])
def test_agrees_with_the_reference_in_float64(
    engine: Any, activation: Any, classes: int, hidden: tuple[int, ...]
) -> None:
    sources = make_sources(classes=classes)
    shared: dict[str, Any] = {"hidden": hidden, "activation": activation, "lr": 0.1, "weight_decay": 0.01}
    mlp = MlpTrainer(sources, engine=engine, dtype="float64", batch_size=11, **shared)
    ours, theirs = train_both(
        sources, mlp, ReferenceTrainer(sources, batch_size=11, **shared), [0.3, 0.5, 0.2]
    )
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11)


@each_engine
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("classes", [0, 3])
def test_agrees_with_the_reference_in_float32(engine: Any, activation: Any, classes: int) -> None:
    sources = make_sources(classes=classes, features=20)
    shared: dict[str, Any] = {"hidden": (40, 24), "activation": activation, "lr": 0.1}
    mlp = MlpTrainer(sources, engine=engine, **shared)
    ours, theirs = train_both(sources, mlp, ReferenceTrainer(sources, **shared), [0.5, 0.5])
    assert np.linalg.norm(ours - theirs) <= 1e-5 * np.linalg.norm(theirs)
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-5)


@each_engine
def test_without_replacement_reads_the_same_rows_as_the_reference(engine: Any) -> None:
    sources = make_sources()
    shared: dict[str, Any] = {"hidden": (5,), "replacement": False}
    mlp = MlpTrainer(sources, engine=engine, dtype="float64", **shared)
    ours, theirs = train_both(sources, mlp, ReferenceTrainer(sources, **shared), [0.5, 0.5])
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11)


@each_engine
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_the_slopes_of_the_loss(engine: Any, activation: Any, loss: Any) -> None:
    sources = make_sources(classes=3 if loss == "cross-entropy" else 0, features=3)
    trainer = MlpTrainer(
        sources, hidden=(4, 3), activation=activation, loss=loss, dtype="float64", engine=engine
    )
    state, rows = trainer.init(1), np.array([0, 7, 7, 39])
    part = sources.rows[1].take(rows)

    def mean_loss(parameters: np.ndarray[Any, Any]) -> float:
        given = trainer.predict(MlpState(parameters, (), 0, state.cursor), part.x)
        if loss == "cross-entropy":
            losses = -np.log(given[np.arange(len(rows)), part.y])
        elif loss == "squared":
            losses = (given - part.y) ** 2
        else:
            losses = np.abs(given - part.y) if loss == "absolute" else np.abs(np.exp(given) - np.exp(part.y))
        return float(np.mean(losses * part.weights))

    small = 1e-6 * np.eye(len(state.parameters))
    slopes = [
        (mean_loss(state.parameters + step) - mean_loss(state.parameters - step)) / 2e-6 for step in small
    ]
    np.testing.assert_allclose(trainer.gradients(state, "b", rows), slopes, rtol=1e-6, atol=1e-8)


@each_engine
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "momentum"},
        {"optimizer": "momentum", "momentum": 0.5, "weight_decay": 0.1, "clip_norm": 0.2},
        {"optimizer": "adam"},
        {"optimizer": "adam", "weight_decay": 0.1, "clip_norm": 0.05},
        {"optimizer": "sgd", "weight_decay": 0.1, "clip_norm": 0.3},
    ],
)
def test_optimizers_are_those_of_torch(engine: Any, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    sources, lr = make_sources(weights=False), 0.05
    trainer = MlpTrainer(
        sources, hidden=(8,), activation="tanh", lr=lr, dtype="float64", engine=engine, **options
    )
    state = trainer.init(0)
    tensors = [
        torch.tensor(np.array(each), requires_grad=True)
        for pair in trainer.network.layers(state.parameters)
        for each in pair
    ]
    decay, momentum = options.get("weight_decay", 0.0), options.get("momentum", 0.9)
    if options["optimizer"] == "adam":
        optimizer = torch.optim.Adam(tensors, lr=lr, weight_decay=decay)
    else:
        momentum = momentum if options["optimizer"] == "momentum" else 0.0
        optimizer = torch.optim.SGD(tensors, lr=lr, momentum=momentum, weight_decay=decay)
    table = trainer.table
    for node in range(2):  # the optimizer's memory travels with the model
        mixture = uniform_mixture(2)
        order, _ = trainer.sampler.draw(mixture, 25 * 50, seed=node, cursor=state.cursor)
        state = trainer.train([Job(state, mixture, 25, node)])[0]
        for rows in order.reshape(25, 50):
            x, y = torch.tensor(table.x[rows]), torch.tensor(table.y[rows])
            logits = torch.tanh(x @ tensors[0] + tensors[1]) @ tensors[2] + tensors[3]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, y).backward()
            if "clip_norm" in options:
                torch.nn.utils.clip_grad_norm_(tensors, options["clip_norm"])
            optimizer.step()
    theirs = np.concatenate([each.detach().numpy().ravel() for each in tensors])
    np.testing.assert_allclose(state.parameters, theirs, rtol=0, atol=1e-9)
    assert state.steps == 50


@each_engine
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden": (), "weight_decay": 0.05},
        {"optimizer": "momentum", "clip_norm": 0.5},
        {"optimizer": "adam", "weight_decay": 0.05},
    ],
)
def test_sparse_features_give_what_dense_ones_give(engine: Any, dtype: Any, options: dict[str, Any]) -> None:
    sparse = make_sources(sparse=True, features=23)
    parts = [Rows(part.x.toarray(), part.y, part.weight) for part in (*sparse.rows, sparse.validation)]
    dense = Sources(sparse.names, tuple(parts[:-1]), parts[-1], sparse.classes)
    results = []
    for sources in (sparse, dense):
        trainer = MlpTrainer(sources, engine=engine, dtype=dtype, **{"hidden": (10, 6), **options})
        state = trainer.train([Job(trainer.init(0), np.array([0.4, 0.4, 0.2]), 30, 1)])[0]
        value = trainer.evaluate([state])[0].value
        results.append((state.parameters, *state.moments, value, trainer.gradients(state, 0)))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 if dtype == "float64" else 2e-5)


def test_a_sparse_step_touches_only_the_columns_of_its_rows() -> None:
    x = csr_matrix(([1.0, 2.0, 1.0, 1.0], ([0, 0, 1, 2], [3, 5, 3, 9])), shape=(3, 12))
    sources = Sources.from_dict({"a": (x[:2], np.array([0, 1]))}, (x[2:], np.array([1])), classes=2)
    for engine in ("numpy", *(["native"] if LEVELS else [])):
        trainer = MlpTrainer(sources, hidden=(4,), activation="tanh", engine=engine)
        before = trainer.init(0)
        after = trainer.train([Job(before, np.ones(1), 20, 0)])[0]
        weights = [trainer.network.layers(state.parameters)[0][0] for state in (before, after)]
        assert np.flatnonzero((weights[0] != weights[1]).all(axis=1)).tolist() == [3, 5]
        assert np.flatnonzero((weights[0] != weights[1]).any(axis=1)).tolist() == [3, 5]


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    loss = draw(st.sampled_from(LOSSES))
    widths = st.integers(1, 40)
    return {
        "sizes": (
            draw(widths),
            *draw(st.lists(widths, max_size=3)),
            draw(st.integers(2, 20)) if loss == LOSSES[0] else 1,
        ),
        "loss": loss,
        "activation": draw(st.sampled_from(ACTIVATIONS)),
        "optimizer": draw(st.sampled_from(list(MOMENTS))),
        "weight_decay": draw(st.sampled_from([0.0, 0.1])),
        "clip_norm": draw(st.sampled_from([None, 0.5])),
        "dtype": np.dtype(draw(st.sampled_from(["float32", "float64"]))),
        "batch": draw(st.integers(1, 70)),
        "sparse": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**32)),
    }


@needs_native
@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=150, deadline=None)
@given(shape=shapes())
@example(
    shape={
        "sizes": (28, 36, 29, 33, 2),
        "loss": "cross-entropy",
        "activation": "relu",
        "optimizer": "adam",
        "weight_decay": 0.0,
        "clip_norm": None,
        "dtype": np.dtype("float32"),
        "batch": 1,
        "sparse": False,
        "seed": 0,
    }
)
def test_every_instruction_set_computes_what_numpy_computes(level: int, shape: dict[str, Any]) -> None:
    shape = dict(shape)
    random = np.random.default_rng(shape.pop("seed"))
    batch, sparse, rows = shape.pop("batch"), shape.pop("sparse"), 30
    network = Network(momentum=0.9, **shape)
    # Adam divides a gradient by its own size: one that is all rounding becomes a step of either sign. So
    # in 32 bits a single step is compared, as if it were the fourth, and only where it has a direction.
    rounded = network.optimizer == "adam" and network.dtype == np.float32
    steps, taken = (1, 3) if rounded else (4, 0)
    x = random.normal(size=(rows, network.sizes[0])).astype(network.dtype)
    if sparse:
        x[random.random(x.shape) < 0.5] = 0
        x = csr_array(x)
    if network.loss == LOSSES[0]:
        y = random.integers(0, network.sizes[-1], rows)
    else:
        y = random.normal(size=rows).astype(network.dtype)
    table = Table(x, y, random.uniform(0, 2, rows).astype(network.dtype))
    start = random.uniform(-0.5, 0.5, network.count).astype(network.dtype)
    order, lr = random.integers(0, rows, (steps, batch)), np.linspace(0.1, 0.05, steps)
    results = []
    for kernel in (NativeKernel(network, table, level=level), NumpyKernel(network, table)):
        parameters, moments = (
            start.copy(),
            tuple(np.zeros_like(start) for _ in range(MOMENTS[network.optimizer])),
        )
        mlp_native._working_memory(1 << 20)[:] = 0xFF  # NaN: nothing may be read before it is written
        kernel.train(parameters, moments, taken=taken, order=order, lr=lr)
        mlp_native._working_memory(1 << 20)[:] = 0xFF
        gradient = kernel.gradient(start, order[0])
        mlp_native._working_memory(1 << 20)[:] = 0xFF
        results.append([gradient, kernel.predict(start if rounded else parameters, x), parameters, *moments])
    if rounded:
        # Of a row that is predicted with near certainty the whole gradient is little more than rounding.
        size = np.abs(results[1][3])
        for result in results:
            result[2][size <= max(1e-3 * size.max(), 1e-5)] = 0.0
    close = 1e-9 if network.dtype == np.float64 else 1e-3
    scale = 1.0 + np.abs(results[1][0]).max()
    steep = network.loss in LOSSES[2:]
    # |.| has a kink: once rounding puts a row on its other side, the two go different ways. And training that
    # explodes multiplies every rounding difference, up to one of the two reaching infinity first.
    with np.errstate(invalid="ignore"):
        explodes = not np.abs(results[1][2]).max() < 1e3
    compared = 1 if steep or explodes else None
    for ours, theirs in zip(*(each[:compared] for each in results), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=close, atol=close * scale)


# -------------------------------------------------------------------------------------------------- promises

CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": (16, 8)},
    "linear": {"hidden": ()},
    "double": {"hidden": (5,), "dtype": "float64", "activation": "tanh"},
    "momentum": {"hidden": (5,), "optimizer": "momentum", "weight_decay": 0.01, "activation": "sigmoid"},
    "adam": {"hidden": (5,), "optimizer": "adam", "lr": 0.01},
    "adam reset": {"hidden": (5,), "optimizer": "adam", "lr": 0.01, "reset_optimizer": True},
    "clipped": {"hidden": (5,), "clip_norm": 0.1},
    "in order": {"hidden": (5,), "replacement": False},
    "theory": {"hidden": (), "lr": TheoryStep(mu=1.0, offset=30.0)},
    "balanced": {"hidden": (5,), "class_weight": "balanced"},
}


@each_engine
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_keeps_the_promises_of_a_trainer(engine: Any, sparse: bool, name: str) -> None:
    trainer = MlpTrainer(make_sources(sparse=sparse), engine=engine, **CONFIGURATIONS[name])
    assert isinstance(trainer, Trainer)
    check_trainer(trainer, sources=2, rows=30)


@each_engine
@pytest.mark.parametrize("loss", LOSSES[1:])
def test_keeps_the_promises_in_a_regression(engine: Any, loss: Any) -> None:
    check_trainer(
        MlpTrainer(make_sources(classes=0), hidden=(6,), loss=loss, lr=0.01, engine=engine),
        sources=2,
        rows=30,
    )


@each_engine
@pytest.mark.parametrize("options", [{}, {"optimizer": "momentum"}, {"optimizer": "adam"}])
def test_training_changes_every_parameter(engine: Any, options: dict[str, Any]) -> None:
    trainer = MlpTrainer(make_sources(), hidden=(12, 12, 12), activation="tanh", engine=engine, **options)
    before = trainer.init(0)
    after = trainer.train([Job(before, uniform_mixture(2), 5, 0)])[0]
    assert (before.parameters != after.parameters).all()


@each_engine
@pytest.mark.parametrize("classes", [0, 3])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sparse", [False, True])
def test_a_diverged_model_scores_infinity(engine: Any, classes: int, activation: Any, sparse: bool) -> None:
    sources = make_sources(classes=classes, sparse=sparse)
    # Saturated layers keep a model's loss finite; a linear model blows up in any case.
    hidden = (8, 8) if activation == "relu" else ()
    trainer = MlpTrainer(sources, hidden=hidden, activation=activation, lr=3e38, engine=engine)
    states = trainer.train([Job(trainer.init(0), uniform_mixture(2), 30, 0)])
    again = trainer.train([Job(states[0], uniform_mixture(2), 3, 0)])
    assert [each.value for each in trainer.evaluate(states + again)] == [np.inf, np.inf]


@each_engine
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_not_a_number_spreads(engine: Any, activation: Any) -> None:
    trainer = MlpTrainer(make_sources(), hidden=(20, 20), activation=activation, engine=engine)
    state = trainer.init(0)
    state.parameters[3] = np.nan
    after = trainer.train([Job(state, uniform_mixture(2), 2, 0)])[0]
    assert trainer.evaluate([after])[0].value == np.inf
    assert np.isnan(trainer.gradients(state, 0)).any()


def test_the_initial_model_is_the_reference_s() -> None:
    sources = make_sources()
    state, theirs = (
        MlpTrainer(sources, hidden=(4,), dtype="float64").init(9),
        ReferenceTrainer(sources, hidden=(4,)),
    )
    reference = theirs.init(9)
    pairs = zip(reference.weights, reference.biases, strict=True)
    expected = np.concatenate([np.ravel(each) for pair in pairs for each in pair])
    assert np.array_equal(state.parameters, expected)
    assert np.array_equal(MlpTrainer(sources, hidden=(4,)).init(9).parameters, expected.astype(np.float32))


# --------------------------------------------------------------------------------------------------- settings


@each_engine
def test_the_theory_s_step_size_starts_again_at_every_node(engine: Any) -> None:
    sources, rule = make_sources(), TheoryStep(mu=2.0, offset=5.0)
    theory = MlpTrainer(sources, hidden=(), lr=rule, dtype="float64", engine=engine)
    assert theory.lr == 0.2
    state = theory.init(0)
    for seed in (1, 2):
        batches, _ = theory.sampler.draw(uniform_mixture(2), 150, seed=seed, cursor=state.cursor)
        expected = state
        for t, rows in enumerate(batches.reshape(3, 50)):
            gradient = theory._kernel.gradient(expected.parameters, rows)
            moved = expected.parameters - 2.0 / (2.0 * (t + 5.0)) * gradient
            expected = MlpState(moved, (), 0, state.cursor)
        state = theory.train([Job(state, uniform_mixture(2), 3, seed)])[0]
        np.testing.assert_allclose(state.parameters, expected.parameters, rtol=0, atol=1e-13)


@each_engine
def test_reset_optimizer_forgets_at_every_node(engine: Any) -> None:
    sources, mixture = make_sources(), uniform_mixture(2)
    shared: dict[str, Any] = {"hidden": (4,), "optimizer": "adam", "lr": 0.01, "engine": engine}
    keeps, forgets = MlpTrainer(sources, **shared), MlpTrainer(sources, reset_optimizer=True, **shared)
    first = keeps.train([Job(keeps.init(0), mixture, 5, 1)])[0]
    fresh = MlpState(first.parameters, keeps.init(0).moments, 0, first.cursor)
    expected = keeps.train([Job(fresh, mixture, 5, 2)])[0]
    ours = forgets.train([Job(first, mixture, 5, 2)])[0]
    assert np.array_equal(ours.parameters, expected.parameters)
    assert not np.array_equal(ours.parameters, keeps.train([Job(first, mixture, 5, 2)])[0].parameters)
    assert (ours.steps, first.steps) == (5, 5)


def test_balanced_classes_weigh_the_same() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    sources = make_sources(classes=4)
    labels = np.concatenate([part.y for part in sources.rows])
    trainer = MlpTrainer(sources, class_weight="balanced")
    expected = compute_class_weight("balanced", classes=np.arange(4), y=labels)
    np.testing.assert_allclose(trainer.class_weight, expected)
    parts = (*sources.rows, sources.validation)
    weights = np.concatenate([part.weights * expected[part.y] for part in parts])
    np.testing.assert_allclose(trainer.table.weight, weights, rtol=1e-6)
    assert MlpTrainer(sources, class_weight=[1, 2, 3, 4]).table.weight[0] == np.float32(
        parts[0].weights[0] * (1 + parts[0].y[0])
    )


def test_a_class_that_only_the_target_has_keeps_weight_one() -> None:
    x = np.ones((4, 1))
    sources = Sources.from_dict({"a": (x, np.array([0, 0, 0, 1]))}, (x, np.array([0, 1, 2, 2])), classes=3)
    assert MlpTrainer(sources, class_weight="balanced").class_weight == pytest.approx([2 / 3, 2.0, 1.0])


def test_absolute_losses_are_evaluated_as_trained() -> None:
    sources = make_sources(classes=0)
    y = sources.validation.y
    for loss, rows in (
        ("absolute", lambda p: np.abs(p - y)),
        ("exp-absolute", lambda p: np.abs(np.exp(p) - np.exp(y))),
    ):
        trainer = MlpTrainer(sources, hidden=(3,), loss=loss, dtype="float64")
        evaluation = trainer.evaluate([trainer.init(0)])[0]
        assert evaluation.predictions is not None
        losses = rows(evaluation.predictions)
        assert evaluation.value == pytest.approx(losses.mean())
        assert evaluation.standard_error == pytest.approx(losses.std(ddof=1) / np.sqrt(len(y)))


@each_engine
def test_starts_from_a_pre_trained_model(engine: Any) -> None:
    sources = make_sources()
    shared: dict[str, Any] = {"hidden": (4,), "engine": engine}
    reference = ReferenceTrainer(sources, hidden=(4,))
    arrays = reference.save(reference.init(5))
    named = MlpTrainer(sources, init=arrays, **shared)
    assert np.array_equal(named.init(1).parameters, MlpTrainer(sources, **shared).init(5).parameters)
    trained = named.train([Job(named.init(1), uniform_mixture(2), 4, 0)])[0]
    flat = MlpTrainer(sources, init=named.save(trained), **shared)
    assert np.array_equal(flat.init(2).parameters, trained.parameters)
    assert flat.describe() != named.describe()
    with pytest.raises(InputError, match=r"weight\.0 must have shape \(7, 5\); it is of shape \(7, 4\)"):
        MlpTrainer(sources, hidden=(5,), init=arrays)
    with pytest.raises(InputError, match=r"bias\.1 must have shape \(3,\); it is missing"):
        MlpTrainer(sources, init={k: v for k, v in arrays.items() if k != "bias.1"}, **shared)


@each_engine
def test_gradients_of_many_rows_are_means_over_blocks(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = MlpTrainer(make_sources(), hidden=(4,), dtype="float64", engine=engine)
    state = trainer.init(0)
    whole = trainer.gradients(state, 2)
    assert np.array_equal(whole, trainer.gradients(state, "target", np.arange(30)))
    monkeypatch.setattr("mixtree.trainers.mlp._GRADIENT_ROWS", 7)
    np.testing.assert_allclose(trainer.gradients(state, "target"), whole, rtol=0, atol=1e-15)
    for source, rows in ((3, None), (-1, None), (0, [60]), (0, [-1]), (0, []), (0, [[1]])):
        with pytest.raises(InputError):
            trainer.gradients(state, source, rows)


def test_merged_models_and_epochs() -> None:
    trainer = MlpTrainer(make_sources(), hidden=(4,), optimizer="momentum")
    jobs = [Job(trainer.init(0), np.eye(2)[source], 4, 1) for source in (0, 1)]
    one, two = trainer.train(jobs)
    mean = trainer.merge([one, two], [0.25, 0.75])
    np.testing.assert_allclose(mean.parameters, 0.25 * one.parameters + 0.75 * two.parameters, rtol=1e-6)
    assert not mean.moments[0].any() and mean.steps == 0  # the optimizer begins anew
    assert mean.parameters.dtype == np.float32
    assert trainer.epochs(mean).tolist() == [200 / 60, 200 / 40, 0.0]  # what either of them has read
    for states, weights in (([], []), ([one], [0.5, 0.5])):
        with pytest.raises(InputError, match="one weight each"):
            trainer.merge(states, weights)


def test_predicts_dense_and_sparse_rows_alike() -> None:
    x = np.eye(7)[:5]
    for sparse in (False, True):
        trainer = MlpTrainer(make_sources(sparse=sparse), hidden=(4,))
        state = trainer.init(0)
        ours = trainer.predict(state, x)
        assert ours.shape == (5, 3)
        np.testing.assert_allclose(ours.sum(axis=1), 1.0, rtol=1e-6)
        assert np.array_equal(ours, trainer.predict(state, csr_array(x)))
        assert trainer.predict(state, x[:0]).shape == (0, 3)
        with pytest.raises(InputError, match=r"rows × 7 columns; got shape \(5, 6\)"):
            trainer.predict(state, x[:, :6])
    assert trainer.evaluate([]) == []


@needs_native
def test_engines_can_be_set_and_sent_to_other_processes() -> None:
    trainer = MlpTrainer(make_sources(), hidden=(4,))
    assert trainer.engine == "native"
    copy = pickle.loads(pickle.dumps(trainer))
    jobs = [Job(trainer.init(0), uniform_mixture(2), 10, 0)]
    native = trainer.train(jobs)[0].parameters
    assert np.array_equal(copy.train(jobs)[0].parameters, native)
    copy.engine = "numpy"
    assert copy.engine == "numpy"
    np.testing.assert_allclose(copy.train(jobs)[0].parameters, native, rtol=1e-3, atol=1e-5)
    with pytest.raises(InputError, match="unknown engine"):
        copy.engine = "fpga"


def test_without_the_library_numpy_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlp_native, "_library", lambda: None)
    assert MlpTrainer(make_sources()).engine == "numpy"
    with pytest.raises(InputError, match="engine='numpy'"):
        MlpTrainer(make_sources(), engine="native")


def test_descriptions_are_plain_and_tell_settings_apart() -> None:
    sources = make_sources()
    described = [
        json.dumps(MlpTrainer(sources, **options).describe(), sort_keys=True)
        for options in (*CONFIGURATIONS.values(), {"batch_size": 3}, {"lr": 0.2}, {"activation": "tanh"})
    ]
    assert len(set(described)) == len(described)
    engines = [MlpTrainer(sources, engine=engine).describe() for engine in ("numpy", "auto")]
    assert engines[0] == engines[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "gelu"}, "unknown activation 'gelu'; choose relu, sigmoid, tanh"),
        ({"optimizer": "lion"}, "unknown optimizer"),
        ({"dtype": "float16"}, "unknown dtype"),
        ({"loss": "squared"}, "unknown loss for this task 'squared'; choose cross-entropy"),
        ({"hidden": (4, 0)}, "hidden layers"),
        ({"hidden": (4.5,)}, "hidden layers"),
        ({"hidden": (2,) * 64}, "fewer than 64"),
        ({"lr": 0.0}, "step size"),
        ({"lr": float("nan")}, "step size"),
        ({"batch_size": 0}, "batch size"),
        ({"momentum": 1.0}, "momentum"),
        ({"weight_decay": -1.0}, "weight decay"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"class_weight": "even"}, "unknown class_weight"),
        ({"class_weight": [1.0, 2.0]}, "class_weight: 3 finite numbers"),
        ({"init": {"parameters": np.zeros(3)}}, "do not fit layers"),
    ],
)
def test_bad_settings_are_explained(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        MlpTrainer(make_sources(), **options)


def test_bad_rules_tasks_states_and_rows_are_explained() -> None:
    with pytest.raises(InputError, match="finite mu above 0"):
        TheoryStep(mu=0.0, offset=1.0)
    with pytest.raises(InputError, match="this is a regression"):
        MlpTrainer(make_sources(classes=0), class_weight="balanced")
    adam, plain = (MlpTrainer(make_sources(), optimizer=name) for name in ("adam", "sgd"))
    with pytest.raises(InputError, match=r"no moment\.0, moment\.1"):
        adam.load(plain.save(plain.init(0)))
    with pytest.raises(InputError, match="do not fit layers"):
        MlpTrainer(make_sources(), hidden=()).load(plain.save(plain.init(0)))
    damaged = csr_matrix(np.ones((3, 2)))
    damaged.indices[0] = 99
    sources = make_sources(sparse=True, features=2)
    with pytest.raises(DataError, match="damaged"):
        trainer = MlpTrainer(sources)
        trainer.predict(trainer.init(0), damaged)


@pytest.mark.parametrize("sparse", [False, True])
def test_numbers_too_large_for_the_type_are_explained(sparse: bool) -> None:
    x, y = np.full((2, 1), 1e60), np.array([1.0, 2.0])
    huge = csr_matrix(x) if sparse else x
    sources = Sources.from_dict({"a": (huge, y)}, (huge, y), classes=0)
    with pytest.raises(DataError, match="some features are too large for float32"):
        MlpTrainer(sources)
    MlpTrainer(sources, dtype="float64")
    small = csr_matrix(x * 0 + 1) if sparse else x * 0 + 1
    logs = Sources.from_dict({"a": (small, y + 100)}, (small, y), classes=0)
    MlpTrainer(logs)
    with pytest.raises(DataError, match="some targets are too large"):
        MlpTrainer(logs, loss="exp-absolute")


@needs_native
def test_a_state_of_another_shape_never_reaches_the_library() -> None:
    small, large = (MlpTrainer(make_sources(), hidden=(size,)) for size in (3, 4))
    with pytest.raises(InputError, match="the kernel needs"):
        large.train([Job(small.init(0), uniform_mixture(2), 1, 0)])
