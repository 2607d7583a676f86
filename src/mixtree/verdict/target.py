"""What a fit asks about its target: the hull test and the estimate of α*, in some milliseconds."""

from __future__ import annotations

import numpy as np

from mixtree.data.sources import Rows, Sources
from mixtree.estimate.hull import HullTest, hull_prepared
from mixtree.estimate.matching import Matching, match_prepared
from mixtree.estimate.moments import Target, prepare
from mixtree.estimate.solve import Estimate

# They may not take a tenth of the study's time: fewer rows and moments than their own defaults lengthen an
# interval by a few hundredths.
_MOMENTS, _ROWS, _FEWEST = 40, 1_500, 800
_FEW = 64  # moments of a policy's own that are as quick as finding fewer
_REPETITIONS = 99  # of the hull test: p in steps of 0.01, in a quarter of the time of its own default


def about_target(
    sources: Sources, *, seed: int, matching: Matching | None = None
) -> tuple[HullTest, Estimate | None]:
    """The hull test and the estimate of α* as a fit makes them: of few moments, rows and repetitions.

    What a policy has found out about the same sources (``matching``) is not computed again, unless it is of
    so many moments that fewer are quicker found.
    """
    target = sources.validation
    # Beside the target's few rows more of a source's add nothing.
    most = int(np.clip(3 * len(target), _FEWEST, _ROWS))
    if matching is not None and matching.prepared.used.sum() <= _FEW:
        moments = matching.prepared
    else:
        sizes = np.minimum(sources.sizes, most)
        wanted = max(_MOMENTS, 3 * len(sources))
        enough = sizes.min() >= 3 * wanted and sizes.sum() >= 20 * wanted
        moments = prepare(sources, moments=wanted if enough else None, rows=most, seed=seed)
    estimate = None
    given: Rows | Target = target
    if matching is not None and matching.sources.validation is target:
        estimate = matching.estimate
        given = matching.target if moments is matching.prepared else target
    elif len(target) > _ROWS:
        rng = np.random.default_rng(seed)
        given = target.take(np.sort(rng.choice(len(target), _ROWS, replace=False)))
    given = moments.of(given)
    if estimate is None and len(sources) > 1:
        estimate = match_prepared(moments, given, names=sources.names)
    return hull_prepared(moments, given, repetitions=_REPETITIONS, seed=seed, rows=most), estimate
