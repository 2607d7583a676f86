"""Every random draw comes from a study's seed and a node's path; nothing else is random."""

from __future__ import annotations

from hashlib import blake2b
from operator import index
from struct import Struct

from mixtree._native import compiled
from mixtree.errors import InputError

_NO_KEY = blake2b(digest_size=8)
_AS_NUMBER = Struct("<Q").unpack

TRAIN, INIT, SPLIT = 0, 1, 2
"""What a stream is for: a node's training, the initial model, the cut of a node's cell."""


def check_seed(seed: int) -> int:
    """The seed as a plain number, or an error that says why it is none."""
    try:
        number = -1 if isinstance(seed, bool) else index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise InputError(f"a seed must be a whole number of at least 0; got {seed!r}")
    return number


def derive_seed(seed: int, path: tuple[int, ...] = (), purpose: int = TRAIN) -> int:
    """A 64-bit seed of its own for (study seed, path, purpose): a hash of all three.

    Parameters
    ----------
    seed
        The study's.
    path
        The node's, from the root ``()``.
    purpose
        ``TRAIN``, ``INIT`` or ``SPLIT``.

    Returns
    -------
    int
        Below 2⁶⁴.

    Examples
    --------
    >>> derive_seed(0, (0, 1)) == derive_seed(0, (0, 1))
    True
    >>> derive_seed(0, (0, 1)) == derive_seed(0, (1, 0))
    False
    """
    if compiled.derived is not None:
        quick = compiled.derived(seed, path, purpose)
        if quick is not None:
            return quick
    number = seed if type(seed) is int and seed >= 0 else check_seed(seed)
    # A hash of the whole key: streams of different keys are unrelated, and it costs a microsecond.
    key = _NO_KEY.copy()
    key.update(b"%d:%d:%a" % (number, purpose, path))
    derived: int = _AS_NUMBER(key.digest())[0]
    return derived
