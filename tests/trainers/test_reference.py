from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from mixtree.data.sources import Rows, Sources
from mixtree.errors import InputError
from mixtree.simplex import uniform_mixture
from mixtree.testing import check_trainer
from mixtree.trainer import Job, Trainer
from mixtree.trainers.reference import ReferenceState, ReferenceTrainer

ACTIVATIONS = ["relu", "sigmoid", "tanh"]
TASKS = [2, 3, 0]  # classes; 0 is a regression
LAYERS = [(), (6,), (5, 4)]


def problem(classes: int = 2, *, count: int = 40, width: int = 3, scale: float = 1.0) -> Sources:
    rng = np.random.default_rng(classes)

    def part(n: int) -> tuple[Any, Any]:
        y = rng.integers(0, classes, n) if classes else rng.standard_normal(n)
        return scale * rng.standard_normal((n, width)), y

    return Sources.from_dict({"a": part(count), "b": part(count // 2)}, part(10), classes=classes)


def loss(trainer: ReferenceTrainer, weights: Any, biases: Any, x: Any, y: Any) -> float:
    """The batch's mean loss, written down a second time."""
    functions = {"relu": lambda z: z * (z > 0), "sigmoid": lambda z: 1 / (1 + np.exp(-z)), "tanh": np.tanh}
    values = x
    for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        values = values @ weight + bias
        if layer < len(weights) - 1:
            values = functions[trainer.activation](values)
    if not trainer.sources.classes:
        return float(np.mean((values[:, 0] - y) ** 2))
    log_sum = np.log(np.exp(values).sum(axis=1))
    return float(np.mean(log_sum - values[np.arange(len(y)), y]))


def parameters(state: ReferenceState) -> list[Any]:
    return [*state.weights, *state.biases]


def job(trainer: ReferenceTrainer, state: ReferenceState, steps: int = 5, **options: Any) -> Any:
    return Job(state, uniform_mixture(2), steps, **{"seed": 3, **options})


@pytest.mark.parametrize("hidden", LAYERS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("classes", TASKS)
def test_gradients_agree_with_finite_differences(classes: int, activation: Any, hidden: Any) -> None:
    trainer = ReferenceTrainer(problem(classes), hidden=hidden, activation=activation)
    state = trainer.init(1)
    weights, biases = [w.copy() for w in state.weights], [b.copy() for b in state.biases]
    x, y = trainer.x[:8], trainer.y[:8]
    gradients = trainer.layer_gradients(weights, biases, x, y)
    assert len(gradients) == len(hidden) + 1
    step = 1e-6
    for arrays, which in ((weights, 0), (biases, 1)):
        for layer, array in enumerate(arrays):
            numeric = np.empty_like(array)
            for place in np.ndindex(array.shape):
                kept = array[place]
                array[place] = kept + step
                above = loss(trainer, weights, biases, x, y)
                array[place] = kept - step
                numeric[place] = (above - loss(trainer, weights, biases, x, y)) / (2 * step)
                array[place] = kept
            assert gradients[layer][which] == pytest.approx(numeric, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("hidden", LAYERS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("classes", TASKS)
def test_every_parameter_changes_in_training(classes: int, activation: Any, hidden: Any) -> None:
    trainer = ReferenceTrainer(problem(classes), hidden=hidden, activation=activation, lr=0.05)
    before = trainer.init(2)  # has no dead ReLU units, which would rightly stay as they are
    (after,) = trainer.train([job(trainer, before, steps=30)])
    changed = [one != two for one, two in zip(parameters(before), parameters(after), strict=True)]
    assert len(changed) == 2 * (len(hidden) + 1)
    assert all(each.all() for each in changed)


@pytest.mark.parametrize("classes", TASKS)
def test_training_is_plain_sgd(classes: int) -> None:
    trainer = ReferenceTrainer(problem(classes), hidden=(4,), lr=0.2, batch_size=5)
    state = trainer.init(0)
    (after,) = trainer.train([job(trainer, state, steps=3, seed=9, lr_scale=0.1)])
    rows, _ = trainer.sampler.draw(uniform_mixture(2), 15, seed=9, cursor=state.cursor)
    weights, biases = list(state.weights), list(state.biases)
    for batch in (rows[:5], rows[5:10], rows[10:]):
        gradients = trainer.layer_gradients(weights, biases, trainer.x[batch], trainer.y[batch])
        weights = [w - 0.02 * g for w, (g, _) in zip(weights, gradients, strict=True)]
        biases = [b - 0.02 * g for b, (_, g) in zip(biases, gradients, strict=True)]
    for one, two in zip([*weights, *biases], parameters(after), strict=True):
        assert one == pytest.approx(two, rel=1e-12)


def test_weight_decay_shrinks_the_weights() -> None:
    plain, decayed = (
        ReferenceTrainer(problem(), lr=0.1, batch_size=5, weight_decay=decay) for decay in (0.0, 0.5)
    )
    state = plain.init(0)
    one, two = (each.train([job(each, state, steps=1)])[0] for each in (plain, decayed))
    assert two.weights[0] == pytest.approx(one.weights[0] - 0.1 * 0.5 * state.weights[0])


@pytest.mark.parametrize("classes", TASKS)
def test_row_weights_multiply_the_loss_of_their_rows(classes: int) -> None:
    trainer = ReferenceTrainer(problem(classes), hidden=(4,), activation="tanh")
    state = trainer.init(0)
    x, y, weight = trainer.x[:6], trainer.y[:6], np.array([0.0, 0.5, 1.0, 2.0, 3.0, 0.0])
    weighted = trainer.layer_gradients(state.weights, state.biases, x, y, weight)
    # The mean of weight × loss, row by row.
    rows = [
        trainer.layer_gradients(state.weights, state.biases, x[i : i + 1], y[i : i + 1]) for i in range(6)
    ]
    for layer in range(2):
        for which in range(2):
            expected = sum(weight[i] * rows[i][layer][which] for i in range(6)) / 6
            assert weighted[layer][which] == pytest.approx(expected)


def test_rows_of_weight_zero_teach_nothing() -> None:
    plain = problem()
    silent = Sources(
        plain.names,
        (Rows(plain.rows[0].x, plain.rows[0].y, np.zeros(40)), plain.rows[1]),
        plain.validation,
        2,
    )
    trainer = ReferenceTrainer(silent)
    state = trainer.init(0)
    only_silent, both = trainer.train(
        [Job(state, np.array([1.0, 0.0]), 5, 0), Job(state, np.array([0.5, 0.5]), 5, 0)]
    )
    assert np.array_equal(only_silent.weights[0], state.weights[0])
    assert not np.array_equal(both.weights[0], state.weights[0])


def test_training_learns() -> None:
    rng = np.random.default_rng(0)

    def part(n: int) -> tuple[Any, Any]:
        x = rng.standard_normal((n, 2))
        return x, (x[:, 0] * x[:, 1] > 0).astype(int)  # no line separates it

    sources = Sources.from_dict({"a": part(500), "b": part(500)}, part(300), classes=2)
    trainer = ReferenceTrainer(sources, hidden=(16,), activation="tanh", lr=0.5)
    start = trainer.init(0)
    (end,) = trainer.train([job(trainer, start, steps=800)])
    before, after = trainer.evaluate([start, end])
    assert after.value < 0.25 < 0.6 < before.value


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("hidden", LAYERS)
@pytest.mark.parametrize("classes", TASKS)
def test_the_reference_keeps_every_promise_of_a_trainer(classes: int, hidden: Any, replacement: bool) -> None:
    trainer = ReferenceTrainer(problem(classes), hidden=hidden, lr=0.05, replacement=replacement)
    assert isinstance(trainer, Trainer)
    check_trainer(trainer, sources=2, rows=10)


def test_predictions_are_probabilities_or_numbers() -> None:
    for classes, shape in ((2, (10, 2)), (3, (10, 3)), (0, (10,))):
        trainer = ReferenceTrainer(problem(classes))
        (evaluation,) = trainer.evaluate([trainer.init(0)])
        assert evaluation.predictions is not None
        assert evaluation.predictions.shape == shape
        if classes:
            assert evaluation.predictions.sum(axis=1) == pytest.approx(np.ones(10))
        state = trainer.init(0)
        expected = loss(trainer, state.weights, state.biases, trainer.sources.validation.x,
                        trainer.sources.validation.y)  # fmt: skip
        assert evaluation.value == pytest.approx(expected)
        assert evaluation.standard_error > 0


def test_initial_weights_lie_within_one_over_root_fan_in() -> None:
    trainer = ReferenceTrainer(problem(width=16), hidden=(200, 50))
    state = trainer.init(5)
    assert [w.shape for w in state.weights] == [(16, 200), (200, 50), (50, 2)]
    for weight in state.weights:
        bound = 1 / np.sqrt(weight.shape[0])
        assert 0.9 * bound < np.abs(weight).max() <= bound
    assert not np.array_equal(state.weights[0], trainer.init(6).weights[0])


def test_sparse_features_give_the_same_numbers() -> None:
    dense = problem()
    sparse = Sources.from_dict(
        {name: (csr_matrix(p.x), p.y) for name, p in zip(dense.names, dense.rows, strict=True)},
        (csr_matrix(dense.validation.x), dense.validation.y),
        classes=2,
    )
    results = []
    for sources in (dense, sparse):
        trainer = ReferenceTrainer(sources)
        results.append(trainer.evaluate(trainer.train([job(trainer, trainer.init(0))]))[0].value)
    assert results[0] == results[1]


def test_the_targets_rows_are_one_more_source() -> None:
    trainer = ReferenceTrainer(problem(), batch_size=4)
    state = trainer.init(0)
    plain, target = trainer.train(
        [Job(state, uniform_mixture(2), 5, 1), Job(state, np.array([0.0, 0.0, 1.0]), 5, 1)]
    )
    assert plain.cursor.drawn[2] == 0
    assert target.cursor.drawn.tolist() == [0, 0, 20]


def test_without_replacement_the_cursor_travels_with_the_model() -> None:
    # 40 + 20 rows; two nodes of 5 batches of 4 on source "a" alone read every row of it exactly once.
    trainer = ReferenceTrainer(problem(), batch_size=4, replacement=False)
    seen: list[int] = []
    state = trainer.init(0)
    for seed in (1, 2):
        alone = Job(state, np.array([1.0, 0.0]), 5, seed)
        rows, _ = trainer.sampler.draw(alone.mixture, 20, seed=seed, cursor=state.cursor)
        seen += rows.tolist()
        (state,) = trainer.train([alone])
    assert sorted(seen) == list(range(40))
    assert trainer.sampler.epochs(state.cursor).tolist() == [1, 0, 0]


# Cross-entropy has bounded gradients: only a step size near the end of the number range overflows.
@pytest.mark.parametrize(("classes", "hidden", "lr"), [(0, (), 1e9), (0, (5,), 1e9), (2, (), 1e305)])
def test_divergence_is_an_outcome_without_warnings(classes: int, hidden: Any, lr: float) -> None:
    trainer = ReferenceTrainer(problem(classes, scale=1e3), hidden=hidden, lr=lr)
    state = trainer.init(0)
    for _ in range(8):
        (state,) = trainer.train([job(trainer, state, steps=50)])
    (evaluation,) = trainer.evaluate([state])
    assert not np.isfinite(evaluation.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "swish"}, "unknown activation 'swish'; choose relu, sigmoid, tanh"),
        ({"lr": 0.0}, "step size must be a finite number above 0"),
        ({"lr": -1.0}, "step size"),
        ({"lr": float("nan")}, "step size"),
        ({"batch_size": 0}, "batch size must be at least 1; got 0"),
        ({"hidden": (5, 0)}, "hidden"),
        ({"weight_decay": -1.0}, "weight decay"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ReferenceTrainer(problem(), **options)


@pytest.mark.parametrize("weights", [1, 4])
def test_a_mixture_must_fit_the_sources(weights: int) -> None:
    # K weights, or K + 1 with the target's rows: anything else is a mistake, not a mixture with zeros.
    trainer = ReferenceTrainer(problem())
    with pytest.raises(InputError, match=f"mixture has {weights} weights"):
        trainer.train([Job(trainer.init(0), uniform_mixture(weights), 2, 0)])
