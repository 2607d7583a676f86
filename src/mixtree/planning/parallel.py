"""Many workers: the width that keeps them busy, and what a study would take with any number of them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mixtree.errors import InputError

Trials = Sequence[float]
"""Seconds of the trials of one round."""


def width_for(workers: int, *, nodes: int, leaves: int, depth: int) -> tuple[int, float]:
    """The leaves per round for so many workers, and the share of them that a round then keeps busy.

    A round of ``width`` leaves has ``width`` × children trials. A search learns between rounds only, so it
    gets at least twice as many rounds as its tree is deep; what is beyond that number of workers idles.

    Parameters
    ----------
    workers
        Trials at a time.
    nodes, leaves
        Of the tree that the budget buys.
    depth
        Of that tree, if it grows evenly.

    Examples
    --------
    >>> width_for(8, nodes=201, leaves=101, depth=6)
    (4, 1.0)
    >>> width_for(64, nodes=201, leaves=101, depth=6)
    (8, 0.25)
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1; got {workers}")
    splits = max(1, nodes - leaves)
    children = max(1, round((nodes - 1) / splits))
    most = max(1, splits // (2 * max(1, depth)))
    width = min(math.ceil(workers / children), most)
    trials = width * children
    return width, trials / (workers * math.ceil(trials / workers))


@dataclass(frozen=True, slots=True)
class Replay:
    """A study as it would have run."""

    workers: int
    seconds: float
    busy: float
    """Share of the workers' time that trains."""


def replay(
    rounds: Sequence[Trials],
    workers: int,
    *,
    overhead: float = 0.0,
    between: float = 0.0,
    barrier: bool = True,
) -> Replay:
    """Discrete events: a worker that is free takes the next trial of its round.

    Parameters
    ----------
    rounds
        As recorded.
    workers
        Trials at a time.
    overhead
        Seconds that a trial takes beyond its training: sending, storing.
    between
        Seconds between two rounds: the search itself, and writing down.
    barrier
        A round begins when the one before it is over. Without, trials of later rounds begin at once, as if
        the search knew what to ask for: no asynchronous search can be faster.

    Returns
    -------
    Replay
        The time it takes, and how busy the workers are.

    Examples
    --------
    >>> replay([[1.0, 1.0], [1.0, 3.0]], 2)
    Replay(workers=2, seconds=4.0, busy=0.75)
    >>> replay([[1.0, 1.0], [1.0, 3.0]], 2, barrier=False).seconds
    4.0
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1; got {workers}")
    clock, trained = 0.0, 0.0
    free = [0.0] * min(workers, sum(map(len, rounds)))
    for trials in rounds:
        clock += between
        ends = clock
        for taken in trials:
            began = max(heapq.heappop(free), clock if barrier else 0.0)
            over = began + overhead + taken
            heapq.heappush(free, over)
            ends, trained = max(ends, over), trained + taken
        if barrier:
            clock = ends
    seconds = max(clock, *free, 0.0)
    return Replay(workers, seconds, trained / (workers * seconds) if seconds else 0.0)


def regrouped(rounds: Sequence[Trials], size: int) -> list[list[float]]:
    """The same trials in rounds of another size, in their order: a search of another width, in time only."""
    times = [taken for trials in rounds for taken in trials]
    return [times[at : at + size] for at in range(0, len(times), size)]
