from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixtree._native import areas
from mixtree.metrics import HAND_TILL


@pytest.mark.parametrize("block", [1, 150, 400])
def test_ranking_in_blocks_changes_nothing(monkeypatch, block):
    rng = np.random.default_rng(4)
    y, stack = rng.integers(4, size=150), rng.integers(1, 6, size=(3, 150, 4)).astype(np.float64)
    stack /= stack.sum(axis=2, keepdims=True)
    whole = HAND_TILL.batch(y, stack)
    monkeypatch.setattr(areas, "_BLOCK", block)
    assert HAND_TILL.batch(y, stack).tobytes() == whole.tobytes()


@settings(max_examples=200, deadline=None)
@given(
    models=st.integers(1, 4),
    rows=st.integers(2, 60),
    levels=st.sampled_from([2, 5, 1_000_000]),
    single=st.booleans(),
    signs=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_scores_are_ranked_whatever_form_they_have(models, rows, levels, single, signs, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(levels, size=(models, rows)) / levels
    if signs:
        scores *= rng.choice([-1.0, 1.0], size=scores.shape)  # zeros of either sign among them
    scores = scores.astype(np.float32).astype(np.float64) if single else scores
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="raise"):
        patch.setattr(areas, "_WORTH_PACKING", 0)
        order = areas._order(scores * 1e-60 if seed % 2 and not single else scores)
    assert (np.sort(order, axis=1) == np.arange(rows)).all()
    assert (np.take_along_axis(scores, order, axis=1) == np.sort(scores, axis=1)).all()
