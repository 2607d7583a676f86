"""What an algorithm may know before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from mixtree.data.sources import Sources
from mixtree.metrics import Metric
from mixtree.policies.auto import AutoOptions
from mixtree.schedules import Schedule
from mixtree.search import SEGMENTS
from mixtree.simplex import Mixture


@dataclass(frozen=True, eq=False, slots=True)
class Setting:
    """What an algorithm may know before it starts.

    Parameters
    ----------
    names, sizes
        The sources' names and numbers of rows.
    budget
        Λ: SGD steps in all.
    steps
        λ: steps of a node, or a function of its height.
    seed
        Of what an algorithm draws.
    alpha
        α*: the target's true mixture, for ``genie``.
    minimum, maximum
        Bounds of the weights, for tree searches.
    options
        Of the tree search: ``nu``, ``rho``, ``optimism``, ``returns``, ``width``.
    data
        The rows, for algorithms that look at them before they start.
    batch_size
        Rows of a step.
    metric
        What the user wants to be good.
    use_target_rows
        Whether a policy that may train on the target's rows is allowed to.
    auto
        Options of the policy ``auto``.
    caps
        Most that a model may read of each source, the target's rows last, as shares of the budget.
    segments
        Parts of a long stage, each a node of its own.
    """

    names: tuple[str, ...]
    sizes: NDArray[Any]
    budget: int
    steps: int | Schedule
    seed: int = 0
    alpha: Mixture | None = None
    minimum: Sequence[float] | None = None
    maximum: Sequence[float] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    data: Sources | None = None
    batch_size: int = 50
    metric: Metric | None = None
    use_target_rows: bool = True
    auto: AutoOptions = field(default_factory=AutoOptions)
    caps: Mixture | None = None
    segments: int = SEGMENTS
