"""What an algorithm may know before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from mixtree.data.sources import Sources
from mixtree.metrics import Metric
from mixtree.schedules import Schedule
from mixtree.search import SEGMENTS
from mixtree.simplex import Mixture

MANY_PASSES = 200
"""Over all rows, from which a budget deserves a remark."""


@dataclass(frozen=True, eq=False, slots=True)
class AutoOptions:
    """The shares of the budget and the rules of ``auto``; every one was measured in the arena."""

    rates: tuple[float, ...] = (1.0, 0.3, 3.0)
    rate_errors: float = 4.0
    """Another step size than the given one must be better by this many standard errors: a short trial favours
    large steps, and a wrong step size costs more than a wrong mixture."""
    end_share: float = 1 / 6
    """Of the end of the commit, for each of two trials: at the full step size and at the decayed one."""
    end_ahead: float = 0.7
    """Of what the loss has just gained, the part that is expected to be gained again in as many steps."""
    worse_errors: float = 1.0
    """Training with larger steps than the given ones is undone if it worsens the loss by this many."""
    rate_share: float = 0.015
    """Of the budget, for each step size that is tried."""
    rate_least: int = 20
    """That many steps at least, unless it were twice that share: a few steps say nothing."""
    further_rates: int = 2
    """How often a still smaller one is tried after the smallest was best. Never a larger one: a short trial
    cannot see what too large a step does in the long run."""
    trunk_share: float = 0.25
    arms: tuple[str, ...] = ("uniform", "pooled", "estimated")
    """The mixtures of the race, simpler ones first."""
    tree_share: float = 0.0
    """Of the budget, for branches whose merged models a tree search looks at: its best joins the race. 0: no
    tree, as measured in docs/results/mixmatch-plus.md."""
    tree_looks: int = 32
    arm_share: float = 0.03
    """Of the budget, for each mixture in the race."""
    decay_share: float = 0.25
    """Of what is left after the race, at a tenth of the step size."""
    commit_errors: float = 2.0
    """The commit with its decayed end is taken back if it worsens the loss by this many standard errors."""
    target_grid: tuple[float, ...] = (0.005, 0.01, 0.02, 0.04, 0.07)
    """Of the budget: how long a model may be tuned on the target's rows. Each length is tried on folds."""
    target_errors: tuple[float, float] = (0.5, 1.5)
    """Tuning must lower the cross-fitted loss by this many standard errors: where the hull test finds that no
    mixture of the sources is like the target, and where it does not. By chance the best of some lengths is
    better by one standard error, and each tuning in vain costs a little."""
    target_level: float = 0.2
    """Of that hull test."""
    target_veto: float = 1.0
    """And it must not worsen the cross-fitted metric by more than this many."""


@dataclass(frozen=True, eq=False, slots=True)
class PlusOptions:
    """The shares of the budget and the rules of ``mixmatch+``, measured in docs/results/mixmatch-plus.md."""

    trunk: float = 0.3
    """On the uniform mixture, before anything else: merging needs a common start."""
    branches: float = 0.3
    """For one branch per source, all rounds together."""
    rounds: int = 3
    """How often branches are trained and merged; later ones start from the merged model."""
    tail: int = 4
    """A branch's model is the mean of so many over its second half; 1 is the last one alone."""
    looks: int = 64
    """Nodes of each round's tree over merged models; they take no steps."""
    optimism: float = 0.5
    """c of that tree: merged losses are smooth, and ν is the spread of them all."""
    groups: int = 8
    """With more sources than that, those whose branches predict alike share a weight in the tree."""
    leaves: int = 2
    """Of the tree, in the race with uniform and pooled."""
    arm: float = 0.03
    """For each mixture in the race; 0: no race, the best leaf wins."""
    merged_start: bool = True
    """The race and the commit go on from merged models, not from the trunk: the branches' steps count."""
    decay: float = 0.5
    """Of what is left after the race, at a tenth of the step size."""
    watch: bool = False
    """End a commit that makes the model worse, and go back to its best segment."""
    trust: float = 0.3
    """Least rank correlation of the merged losses with those of the race."""


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
    plus
        Options of ``mixmatch+``.
    caps
        Most that a model may read of each source, the target's rows last, as shares of the budget.
    segments
        Parts of a long stage, each a node of its own.

    Examples
    --------
    >>> import numpy as np
    >>> Setting(("fl", "ct"), np.array([100, 300]), budget=400, steps=20).batch_size
    50
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
    plus: PlusOptions = field(default_factory=PlusOptions)
    caps: Mixture | None = None
    segments: int = SEGMENTS
