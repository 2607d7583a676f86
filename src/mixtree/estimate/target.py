"""What a fit asks about its target: the hull test and the estimate of α*, in some milliseconds."""

from __future__ import annotations

import numpy as np

from mixtree._native.threads import one_thread
from mixtree.data.sources import Sources
from mixtree.estimate.hull import HullTest, hull_prepared
from mixtree.estimate.matching import Matching, match_prepared
from mixtree.estimate.moments import MOST_SOURCES, prepare
from mixtree.estimate.solve import Estimate

# A study should not wait for them: fewer rows than their own defaults lengthen an interval by a few
# hundredths. Fewer moments took half the time, and called a third of the targets outside inside.
ROWS = 1_500
"""Of a source, and of a target whose moments are not known yet, at the most."""
_FEWEST = 800
_REPETITIONS = 99  # of the hull test: p in steps of 0.01, in a quarter of the time of its own default


@one_thread()
def about_target(
    sources: Sources,
    *,
    seed: int,
    matching: Matching | None = None,
    rows: int | None = None,
    level: float = 0.05,
    look_outside: bool = True,
) -> tuple[HullTest, Estimate | None]:
    """The hull test and the estimate of α* as a fit makes them: of few rows and repetitions.

    Parameters
    ----------
    sources
        The sources and the validation rows, which stand for the target.
    seed
        Draws rows and the test's repetitions.
    matching
        What a policy has computed about the same sources; it is not computed again.
    rows
        Rows of a source at the most; by default three times the target's, but 800 to 1,500.
    level
        Of the hull test.
    look_outside
        False computes no power: the test rejects at its level, or leaves the question open.

    Returns
    -------
    tuple
        The hull test; the estimate of α*, or None for a single source or more than 300.
    """
    target = sources.validation
    if len(sources) > MOST_SOURCES:
        words = (
            f"With more than {MOST_SOURCES} sources it is not tested whether a mixture of them serves the "
            "target."
        )
        return HullTest(np.nan, None, np.nan, 0, 0, None, words, len(target), None), None
    # With few target rows, more of a source's rows add nothing.
    most = rows or int(np.clip(3 * len(target), _FEWEST, ROWS))
    moments = None if matching is None else matching.prepared
    if moments is None:
        moments = prepare(sources, rows=most, seed=seed)
    estimate, given = None, None
    if matching is not None and matching.sources.validation is target:
        estimate, given = matching.estimate, matching.target
    if given is None:
        if len(target) > ROWS:
            rng = np.random.default_rng(seed)
            target = target.take(np.sort(rng.choice(len(target), ROWS, replace=False)))
        given = moments.of(target)
    if estimate is None and len(sources) > 1:
        estimate = match_prepared(moments, given, names=sources.names)
    hull = hull_prepared(
        moments,
        given,
        level=level,
        repetitions=_REPETITIONS,
        seed=seed,
        look_outside=look_outside,
        rows=most,
    )
    return hull, estimate
