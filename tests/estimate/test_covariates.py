import numpy as np
import pytest
from scipy import sparse

from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.estimate.covariates import importance_weighted, mmd_mixture


def shifted(centres, target, rows=400, seed=0):
    random = np.random.default_rng(seed)

    def draw(centre, n):
        return Rows(random.normal(centre, 1.0, (n, 3)), random.integers(2, size=n))

    parts = tuple(draw(centre, rows) for centre in centres)
    owner = random.choice(len(centres), rows, p=target)
    x = np.array([random.normal(centres[k], 1.0, 3) for k in owner])
    validation = Rows(x, random.integers(2, size=rows))
    return Sources(tuple("abcdef"[: len(centres)]), parts, validation, 2)


def test_mmd_finds_the_mixture_where_x_tells_the_sources_apart():
    target = [0.7, 0.2, 0.1]
    alpha = mmd_mixture(shifted([-2.0, 0.0, 2.0], target))
    assert alpha == pytest.approx(target, abs=0.12)
    assert alpha.sum() == pytest.approx(1)
    assert alpha.min() >= 0


def test_mmd_cannot_see_what_x_does_not_show():
    errors = []
    for seed in range(4):
        problem = synthetic(informative=False, rows=800, validation=400, seed=seed)
        errors.append(np.abs(mmd_mixture(problem.sources) - problem.alpha).sum())
    assert np.mean(errors) > 0.3


def test_mmd_with_one_source_and_with_sparse_rows():
    sources = shifted([0.0], [1.0])
    assert mmd_mixture(sources) == pytest.approx([1.0])
    thin = Sources(
        sources.names,
        tuple(Rows(sparse.csr_array(part.x), part.y) for part in sources.rows),
        Rows(sparse.csr_array(sources.validation.x), sources.validation.y),
        2,
    )
    assert mmd_mixture(thin) == pytest.approx([1.0])


def test_importance_weights_favour_rows_like_the_target_and_have_mean_one():
    sources = shifted([-2.0, 2.0], [0.9, 0.1])
    weighted = importance_weighted(sources, steps=300, seed=1)
    first, second = (part.weights for part in weighted.rows)
    assert np.concatenate([first, second]).mean() == pytest.approx(1)
    assert first.mean() > 5 * second.mean()
    assert all(part.weight is None for part in sources.rows)


def test_importance_weights_are_even_without_a_shift():
    sources = shifted([0.0, 0.0], [0.5, 0.5])
    weights = np.concatenate([part.weights for part in importance_weighted(sources, steps=200).rows])
    assert weights.std() < 0.5


def test_the_classifier_needs_steps():
    with pytest.raises(InputError, match="at least one step"):
        importance_weighted(shifted([0.0], [1.0]), steps=0)
