"""What a fit asks about its target: the hull test and the estimate of α*, in a hundredth of a second."""

from __future__ import annotations

import numpy as np

from mixtree.data.sources import Sources
from mixtree.estimate.hull import HullTest, hull_prepared
from mixtree.estimate.matching import match_prepared
from mixtree.estimate.moments import prepare
from mixtree.estimate.solve import Estimate

# They may not take a tenth of the study's time: fewer rows and moments than their own defaults lengthen an
# interval by a few hundredths.
_MOMENTS, _ROWS, _FEWEST = 40, 1_500, 800
_REPETITIONS = 99  # of the hull test: p in steps of 0.01, in a quarter of the time of its own default


def about_target(sources: Sources, *, seed: int) -> tuple[HullTest, Estimate | None]:
    """The hull test and the estimate of α* as a fit makes them: of few moments, rows and repetitions."""
    target = sources.validation
    # Beside the target's few rows more of a source's add nothing.
    most = int(np.clip(3 * len(target), _FEWEST, _ROWS))
    sizes = np.minimum(sources.sizes, most)
    wanted = max(_MOMENTS, 3 * len(sources))
    enough = sizes.min() >= 3 * wanted and sizes.sum() >= 20 * wanted
    moments = prepare(sources, moments=wanted if enough else None, rows=most, seed=seed)
    if len(target) > _ROWS:
        rng = np.random.default_rng(seed)
        target = target.take(np.sort(rng.choice(len(target), _ROWS, replace=False)))
    given = moments.of(target)
    hull = hull_prepared(moments, given, repetitions=_REPETITIONS, seed=seed)
    return hull, match_prepared(moments, given, names=sources.names) if len(sources) > 1 else None
