from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mixtree.data.sampling import Cursor, Sampler
from mixtree.errors import InputError
from mixtree.simplex import uniform_mixture

SEEDS = st.integers(0, 2**63)


def source_of(sampler: Sampler, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(sampler.offsets, rows, side="right") - 1


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("sources", [1, 2, 7, 100])
def test_sources_are_drawn_in_proportion(sources: int, replacement: bool) -> None:
    rng = np.random.default_rng(sources)
    sampler = Sampler(rng.integers(1, 50, sources), replacement=replacement)
    alpha = rng.dirichlet(np.ones(sources))
    count = 100_000
    rows, cursor = sampler.draw(alpha, count, seed=5, cursor=sampler.start(0))
    drawn = np.bincount(source_of(sampler, rows), minlength=sources)
    # Five standard deviations of a binomial count.
    assert (np.abs(drawn - count * alpha) <= 5 * np.sqrt(count * alpha * (1 - alpha)) + 1).all()
    assert np.array_equal(cursor.drawn, drawn)
    assert rows.min() >= 0
    assert rows.max() < sampler.sizes.sum()


@pytest.mark.parametrize("replacement", [True, False])
def test_rows_of_a_source_are_drawn_evenly(replacement: bool) -> None:
    sampler = Sampler([3, 5], replacement=replacement)
    rows, _ = sampler.draw(np.array([0.5, 0.5]), 60_000, seed=1, cursor=sampler.start(0))
    counts = np.bincount(rows, minlength=8)
    assert counts[:3] == pytest.approx(10_000, rel=0.06)
    assert counts[3:] == pytest.approx(6_000, rel=0.06)


@settings(deadline=None)
@given(st.data(), st.integers(1, 30), SEEDS, st.booleans())
def test_a_source_of_weight_zero_is_never_drawn(
    data: Any, sources: int, seed: int, replacement: bool
) -> None:
    used = data.draw(st.sets(st.integers(0, sources - 1), min_size=1))
    alpha = np.zeros(sources)
    alpha[sorted(used)] = np.random.default_rng(seed).dirichlet(np.ones(len(used)))
    sampler = Sampler(np.full(sources, 4), replacement=replacement)
    rows, cursor = sampler.draw(alpha, 500, seed=seed, cursor=sampler.start(0))
    assert set(source_of(sampler, rows).tolist()) <= used
    assert cursor.drawn[[k for k in range(sources) if k not in used]].sum() == 0


def test_rounding_never_reaches_a_last_source_of_weight_zero() -> None:
    alpha = np.append(np.full(10, 0.1), 0.0)  # sums to 1 − 1.1e-16
    sampler = Sampler(np.ones(11, dtype=np.int64))
    rows, _ = sampler.draw(alpha, 200_000, seed=3, cursor=sampler.start(0))
    assert rows.max() == 9


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), SEEDS, st.lists(st.integers(1, 40), max_size=5))
def test_every_epoch_without_replacement_is_a_permutation_across_nodes(
    sizes: list[int], seed: int, counts: list[int]
) -> None:
    sampler = Sampler(sizes, replacement=False)
    cursor = sampler.start(seed)
    read: list[int] = []
    for node, count in enumerate(counts):  # the cursor travels from node to node
        rows, cursor = sampler.draw(uniform_mixture(len(sizes)), count, seed=seed + node, cursor=cursor)
        read += rows.tolist()
    for k, size in enumerate(sizes):
        mine = [row - int(sampler.offsets[k]) for row in read if source_of(sampler, np.array([row]))[0] == k]
        assert len(mine) == cursor.drawn[k]
        for start in range(0, len(mine), size):
            epoch = mine[start : start + size]
            assert len(set(epoch)) == len(epoch)  # no row twice, even in an epoch that has not ended
            assert set(epoch) <= set(range(size))
    assert sampler.epochs(cursor) == pytest.approx(cursor.drawn / np.array(sizes))


def test_epochs_are_shuffled_anew_and_by_the_models_own_order() -> None:
    sampler = Sampler([100], replacement=False)
    one, _ = sampler.draw(np.ones(1), 200, seed=1, cursor=sampler.start(7))
    again, _ = sampler.draw(np.ones(1), 200, seed=2, cursor=sampler.start(7))
    other, _ = sampler.draw(np.ones(1), 200, seed=1, cursor=sampler.start(8))
    assert not np.array_equal(one[:100], one[100:])
    assert np.array_equal(one, again)  # the order is the model's, not the node's
    assert not np.array_equal(one, other)


@given(SEEDS, st.booleans())
def test_the_same_seed_draws_the_same_rows(seed: int, replacement: bool) -> None:
    sampler = Sampler([10, 20, 30], replacement=replacement)
    alpha = np.array([0.2, 0.3, 0.5])
    first, _ = sampler.draw(alpha, 50, seed=seed, cursor=sampler.start(0))
    second, _ = Sampler([10, 20, 30], replacement=replacement).draw(
        alpha, 50, seed=seed, cursor=sampler.start(0)
    )
    other, _ = sampler.draw(alpha, 50, seed=seed + 1, cursor=sampler.start(0))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


def test_drawing_changes_no_cursor() -> None:
    sampler = Sampler([10, 20], replacement=False)
    start = sampler.start(0)
    _, moved = sampler.draw(np.array([0.5, 0.5]), 8, seed=0, cursor=start)
    assert start.drawn.tolist() == [0, 0]
    assert moved.drawn.sum() == 8
    assert isinstance(moved, Cursor)


def test_a_shorter_mixture_leaves_out_the_last_sources() -> None:
    sampler = Sampler([5, 5, 5])
    rows, cursor = sampler.draw(np.array([0.5, 0.5]), 200, seed=0, cursor=sampler.start(0))
    assert rows.max() < 10
    assert cursor.drawn[2] == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sampler([]), "at least one row"),
        (lambda: Sampler([5, 0]), r"at least one row to draw from; got sizes \[5, 0\]"),
        (lambda: Sampler([[5]]), "at least one row"),
        (
            lambda: Sampler([5]).draw(np.array([0.5, 0.5]), 3, seed=0, cursor=Sampler([5]).start(0)),
            "has 2 weights but there are 1 sources",
        ),
    ],
)
def test_bad_input(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()
