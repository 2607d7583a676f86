"""Every random draw comes from a study's seed and a node's path; nothing else is random."""

from __future__ import annotations

import numpy as np

from mixtree.errors import InputError

TRAIN, INIT, SPLIT = 0, 1, 2
"""What a stream is for: a node's training, the initial model, the cut of a node's cell."""


def derive_seed(seed: int, path: tuple[int, ...] = (), purpose: int = TRAIN) -> int:
    """A 64-bit seed of its own for (study seed, path, purpose).

    >>> derive_seed(0, (0, 1)) == derive_seed(0, (0, 1))
    True
    >>> derive_seed(0, (0, 1)) == derive_seed(0, (1, 0))
    False
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"a seed must be a whole number of at least 0; got {seed!r}")
    return int(np.random.SeedSequence(int(seed), spawn_key=(purpose, *path)).generate_state(1, np.uint64)[0])
