from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree.errors import InputError
from mixtree.seeds import INIT, SPLIT, TRAIN, derive_seed

PATHS = st.lists(st.integers(0, 60), max_size=200).map(tuple)


@given(st.integers(0, 2**63), PATHS)
def test_the_same_seed_and_path_give_the_same_stream(seed: int, path: tuple[int, ...]) -> None:
    derived = derive_seed(seed, path)
    assert derived == derive_seed(seed, path)
    assert 0 <= derived < 2**64
    assert derive_seed(np.int64(seed % 2**62), path) == derive_seed(seed % 2**62, path)


def test_every_seed_path_and_purpose_has_its_own_stream() -> None:
    paths = [path for depth in range(7) for path in product(range(2), repeat=depth)]
    seeds = [
        derive_seed(seed, path, use) for seed in range(4) for path in paths for use in (TRAIN, INIT, SPLIT)
    ]
    assert len(set(seeds)) == len(seeds) == 4 * 127 * 3


def test_streams_are_fixed_for_all_time() -> None:
    # A study that was stored must resume with the same numbers in any later version.
    assert derive_seed(5, (1, 0)) == 7475698446918014897
    assert derive_seed(0, (), INIT) == 15679895678524862347


@pytest.mark.parametrize("seed", [-1, 1.5, "7", None])
def test_what_is_no_seed(seed: Any) -> None:
    with pytest.raises(InputError, match="whole number of at least 0"):
        derive_seed(seed)
