"""The constants of a data set: gradients against differences, bounds against what random probes find."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from scipy import sparse

from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.planning.constants import ConvexModel, estimate_constants
from mixtree.theory import Constants, optimum_distance

ALPHA = np.array([0.2, 0.5, 0.3])


def make_sources(classes, *, weighted=False, seed=0):
    sources = synthetic(sources=3, rows=60, features=3, classes=classes, seed=seed).sources
    if not weighted:
        return sources
    rng = np.random.default_rng(seed)
    rows = tuple(Rows(part.x, part.y, rng.uniform(0, 3, len(part))) for part in sources.rows)
    return Sources(sources.names, rows, sources.validation, classes)


@pytest.fixture(params=[0, 2, 3], ids=["squared error", "two classes", "three classes"])
def sources(request):
    return make_sources(request.param, weighted=request.param == 3)


@pytest.fixture
def model(sources):
    return ConvexModel(sources, l2=0.1)


@pytest.fixture
def point(model):
    return np.random.default_rng(1).standard_normal(model.shape)


def hessian(gradient, w, step=1e-5):
    columns = []
    for i in range(w.size):
        move = np.zeros(w.size)
        move[i] = step
        ahead, behind = gradient(w + move.reshape(w.shape)), gradient(w - move.reshape(w.shape))
        columns.append((ahead - behind).ravel() / (2 * step))
    return np.stack(columns)


def test_gradients_are_slopes_of_values(model, point):
    gradient = model.gradient(point, ALPHA)
    for i, j in np.ndindex(point.shape):
        move = np.zeros(point.shape)
        move[i, j] = 1e-6
        slope = (model.value(point + move, ALPHA) - model.value(point - move, ALPHA)) / 2e-6
        assert gradient[i, j] == pytest.approx(slope, rel=1e-5, abs=1e-6)


def test_a_mixture_of_losses_is_the_loss_of_the_mixture(model, point):
    vertices = [model.value(point, vertex) for vertex in np.eye(3)]
    assert model.value(point, ALPHA) == pytest.approx(ALPHA @ vertices)


def test_row_gradients_are_those_of_single_rows(sources, model, point):
    found = model.row_gradients(point)
    for row in (0, 61, 179):
        part, index = sources.rows[row // 60], row % 60
        one = Rows(part.x[[index]], part.y[[index]], part.weights[[index]])
        alone = ConvexModel(Sources(("one",), (one,), sources.validation, sources.classes), l2=0.1)
        assert found[row] == pytest.approx(float((alone.gradient(point, [1.0]) ** 2).sum()))
        curvature = np.linalg.eigvalsh(hessian(lambda w, alone=alone: alone.gradient(w, [1.0]), point))
        assert curvature[-1] <= model.row_curvature[row] * (1 + 1e-4)


def test_the_optimum_has_no_gradient(model):
    assert np.linalg.norm(model.gradient(model.optimum(ALPHA), ALPHA)) < 1e-8


def test_curvatures_are_between_mu_and_those_of_the_sources(model, point):
    for alpha in (ALPHA, [1.0, 0.0, 0.0]):
        eigenvalues = np.linalg.eigvalsh(hessian(lambda w, alpha=alpha: model.gradient(w, alpha), point))
        assert eigenvalues[0] >= model.strong_convexity() - 1e-5
        assert eigenvalues[-1] <= max(model.source_curvatures()) + 1e-4
    if model.classes:  # softmax has a direction in which it is flat
        assert eigenvalues[0] == pytest.approx(model.strong_convexity(), abs=1e-5)


def test_mu_of_squared_error_is_attained_at_a_source():
    model = ConvexModel(make_sources(0), l2=0.1)
    lowest = [
        np.linalg.eigvalsh(hessian(lambda w, v=v: model.gradient(w, v), np.zeros(model.shape)))[0]
        for v in np.eye(3)
    ]
    assert model.strong_convexity() == pytest.approx(min(lowest), rel=1e-6)


def test_noise_counts_only_rows_that_the_mixture_draws(model):
    alone = model.noise([1.0, 0.0, 0.0])
    assert alone == pytest.approx(model.row_gradients(model.optimum([1.0, 0.0, 0.0]))[:60].max())
    assert model.noise(ALPHA) == pytest.approx(model.row_gradients(model.optimum(ALPHA)).max())


@pytest.mark.parametrize("l2", [0.05, 2.0])
def test_the_truth_lies_between_optimistic_and_sound(sources, l2):
    estimate, model = estimate_constants(sources, l2=l2, samples=6), ConvexModel(sources, l2=l2)
    low, high = estimate.optimistic, estimate.sound
    assert low.beta == high.beta and low.mu == high.mu
    for field in fields(Constants):
        assert getattr(low, field.name) <= getattr(high, field.name) * (1 + 1e-12), field.name
    rng = np.random.default_rng(5)
    centre = model.optimum(np.full(3, 1 / 3))
    optima = []
    for alpha in rng.dirichlet(np.full(3, 0.4), size=8):
        w = model.optimum(alpha)
        optima.append((alpha, w))
        assert np.linalg.norm(w - centre) <= estimate.radius
        assert model.row_gradients(w).max() <= high.noise
        assert max(model.source_gradients(w)) <= high.lipschitz
    for (first, w), (second, v) in zip(optima, optima[1:], strict=False):
        distance = np.linalg.norm(w - v)
        assert high.beta * distance <= high.sigma
        assert distance <= high.diameter
        assert distance <= optimum_distance(np.abs(first - second).sum(), sigma=high.sigma, mu=high.mu)


def test_sgd_never_leaves_the_ball_of_d(sources):
    model = ConvexModel(sources, l2=0.3)
    start = np.full(model.shape, 2.0)
    estimate = estimate_constants(sources, l2=0.3, start=start, samples=3)
    rng, eta = np.random.default_rng(2), 1 / estimate.sound.beta
    goals = [model.optimum(vertex) for vertex in np.eye(3)]
    w, farthest = start, 0.0
    worst = int(model.row_gradients(model.optimum(np.full(3, 1 / 3))).argmax())
    for step in range(2000):
        row = (
            worst if step > 1000 else int(rng.integers(len(model.y)))
        )  # an adversary's stream is covered too
        scores = model.x[[row]] @ w
        if model.classes:
            odds = np.exp(scores - scores.max())
            slope = odds / odds.sum() - np.eye(model.classes)[model.y[[row]]]
        else:
            slope = 2 * (scores - model.y[row])
        w = w - eta * (model.weight[row] * model.x[[row]].T @ slope + model.l2 * w)
        farthest = max(farthest, *(float(np.linalg.norm(w - goal)) for goal in goals))
    assert farthest <= estimate.sound.diameter


def test_sparse_rows_give_the_same_constants():
    dense = make_sources(2)
    rows = tuple(Rows(sparse.csr_matrix(part.x), part.y) for part in dense.rows)
    held = Rows(sparse.csr_matrix(dense.validation.x), dense.validation.y)
    thin = Sources(dense.names, rows, held, 2)
    first, second = (estimate_constants(each, l2=0.2, samples=4) for each in (dense, thin))
    for name, low, high, _ in first.table():
        other = next(row for row in second.table() if row[0] == name)
        assert other[1:3] == pytest.approx((low, high), rel=1e-6)
    plain = ConvexModel(thin, l2=0.2, intercept=False)
    assert plain.shape == (3, 2)


def test_more_samples_only_raise_the_optimistic_side():
    sources = make_sources(2)
    few, many = (estimate_constants(sources, l2=0.1, samples=n, seed=3) for n in (3, 20))
    assert few.optimistic.sigma <= many.optimistic.sigma
    assert few.sound == many.sound


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"l2": 0.0}, "l2 must be a finite number above 0"),
        ({"l2": float("nan")}, "l2"),
        ({"samples": 0}, "at least 1"),
        ({"start": np.zeros((2, 2))}, r"shape \(4, 2\)"),
    ],
)
def test_settings_that_cannot_work(change, message):
    with pytest.raises(InputError, match=message):
        estimate_constants(make_sources(2), **{"l2": 0.1, **change})


def test_one_source_leaves_nothing_to_search():
    sources = make_sources(2)
    alone = Sources(sources.names[:1], sources.rows[:1], sources.validation, 2)
    with pytest.raises(InputError, match="sources .* at least 2"):
        estimate_constants(alone, l2=0.1)
