"""The target's mixture α* estimated directly from labelled rows, and a test whether there is one at all.

If the target is a mixture of the sources, p_te = Σ α*_i p_i as distributions of (x, y), then the mean of
*any* function of (x, y) on the target is the same mixture of its means on the sources. All that is here
solves such linear equations:

- :func:`match_moments` takes simple functions (x, y, x·y): closed form, quick, no model.
- :func:`maximum_likelihood` takes the functions that tell the sources apart best, those of a classifier.
- :func:`match_losses` takes the losses of models that a search has trained anyway.
- :func:`hull_test` asks whether the equations have a solution: outside the sources' hull they have none, and
  the estimates above mean little.
"""

from mixtree.estimate.hull import HullTest, hull_test
from mixtree.estimate.likelihood import maximum_likelihood
from mixtree.estimate.losses import match_losses
from mixtree.estimate.matching import match_moments
from mixtree.estimate.solve import Estimate

__all__ = ["Estimate", "HullTest", "hull_test", "match_losses", "match_moments", "maximum_likelihood"]
