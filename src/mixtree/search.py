"""Ask and tell: the Search protocol, defaults for its optional parts, long stages in segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isfunction
from itertools import pairwise
from math import inf, isfinite
from types import MappingProxyType
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mixtree.errors import InputError
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Path, Segment, Tree, Trial

SEGMENTS, LEAST_SEGMENT = 20, 50
"""Parts of a long stage, and the fewest steps that one of them takes."""


def in_segments(trial: Trial, segments: int = SEGMENTS, *, stream: Path | None = None) -> list[Trial]:
    """A long stage as trials that continue one another, so that it can be watched, stopped and resumed.

    They train the model that the one trial would have trained.

    Parameters
    ----------
    trial
        The stage as one trial.
    segments
        Most of them; none is shorter than 50 steps.
    stream
        The path whose random numbers the stage uses, if stages above it are cut; by default its own.

    Returns
    -------
    list of Trial

    Examples
    --------
    >>> stage = Trial((3,), np.array([1.0]), 150)
    >>> [(each.path, each.steps) for each in in_segments(stage)]
    [((3,), 50), ((3, 0), 50), ((3, 0, 0), 50)]
    """
    count = max(1, min(segments, trial.steps // LEAST_SEGMENT))
    stream = trial.path if stream is None else stream
    if count == 1 and stream == trial.path:
        return [trial]
    edges = [trial.steps * number // count for number in range(count + 1)]
    return [
        Trial(
            (*trial.path, *(0,) * number),
            trial.mixture,
            after - before,
            trial.lr_scale,
            trial.phase,
            Segment(stream, before, trial.steps),
            None if number else trial.merged,
        )
        for number, (before, after) in enumerate(pairwise(edges))
    ]


STEP_SIZE = "step size"
"""The phase of trials that find out which step size is good."""


@runtime_checkable
class Search(Protocol):
    """A way to spend a budget: the paper's tree search, a baseline, a policy of one's own.

    A search is deterministic: the same tells give the same asks. That is what makes a study resumable.
    These three methods are enough. What only some searches have has a default in ``SearchBase``.

    Examples
    --------
    >>> from mixtree.policies.fixed import uniform
    >>> search = uniform(2, budget=40)
    >>> isinstance(search, Search)
    True
    >>> [(trial.path, trial.steps) for trial in search.ask()]
    [((), 40)]
    """

    def ask(self) -> list[Trial]:
        """The next round; empty when the search has finished."""

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        """The outcome of one trial of the round."""

    def best(self) -> Node:
        """The node to return if the search ended now."""


MOST_STEPS = 10**12
"""Of a budget: at a millionth of a second a step they would take eleven days."""


class SearchBase(ABC):
    """A search with a default for everything that is optional.

    ``as_search`` gives the same defaults to an object that has the three methods of ``Search`` only.

    Examples
    --------
    Two mixtures, as many steps of each; the better one is returned.

    >>> class Either(SearchBase):
    ...     def __init__(self):
    ...         self.nodes = []
    ...
    ...     def ask(self):
    ...         first = [Trial((0,), np.array([1.0, 0.0]), 20), Trial((1,), np.array([0.5, 0.5]), 20)]
    ...         return [] if self.nodes else first
    ...
    ...     def tell(self, trial, evaluation):
    ...         self.nodes.append(as_node(trial, evaluation))
    ...
    ...     def best(self):
    ...         return min(self.nodes, key=lambda node: node.value)
    >>> search = Either()
    >>> for number, trial in enumerate(search.ask()):
    ...     search.tell(trial, Evaluation(0.5 - 0.1 * number))
    >>> search.ask(), search.best().path
    ([], (1,))
    """

    budget: int = 0
    """SGD steps in all; 0 where the search sets no limit."""
    spent: int = 0
    """Steps that were asked for, and those charged before the first round."""
    charged: Mapping[str, int] = MappingProxyType({})
    """Steps that were spent before the first round, by what they were for."""
    tree: Tree | None = None
    """All nodes that it was told, if it keeps them; a study then keeps no second tree."""
    unspent: int = 0
    """Steps of the budget that it has decided to leave unspent."""
    rule: str = "best"
    """The rule that chooses the returned node, for reports."""
    notes: Sequence[str] = ()
    """What was decided on the way, in words."""
    starts_over: bool = False
    """At a raised budget it asks for none of its earlier rounds again."""
    uses_predictions: bool = False
    """``tell`` looks at predictions, so a study must store them to be resumable."""
    on_target: bool | None = None
    """Whether it may train on the target's own rows, source K+1. None: perhaps, and the study warns that
    values on those rows then say nothing."""
    needed: Callable[[Iterable[Path]], set[Path]] | None = None
    """``needed(paths)``: those whose models a later trial may continue or ``best`` return. None: all."""
    adopt: Callable[[Sequence[Node]], None] | None = None
    """``adopt(nodes)``: take over nodes of an earlier run with a smaller budget; they are charged, not asked
    for again. None: the study goes on with the same budget only."""
    chosen_from: Mapping[Path, Path] = MappingProxyType({})
    """Segments of stages whose best one was kept, not the last, and the paths of the stages."""
    unseen: NDArray[Any] | None = None
    """If the returned model was trained on the validation rows: its twins on folds predict these for them."""
    equally_good: Sequence[str] = ()
    """Mixtures that did as well as the chosen one, in words."""
    matching: Any = None
    """How the mixture was estimated from the rows, if it was."""

    @abstractmethod
    def ask(self) -> list[Trial]:
        """The next round; empty when the search has finished."""

    @abstractmethod
    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        """The outcome of one trial of the round."""

    @abstractmethod
    def best(self) -> Node:
        """The node to return if the search ended now."""

    def may_return(self, node: Node) -> bool:
        """Whether ``best`` may return the node; reports speak of the best of these."""
        return True

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked, as plain data; part of a study's fingerprint."""
        return {}


class Around(SearchBase):
    """A search around another one: every optional part that it does not have itself is the inner one's."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def ask(self) -> list[Trial]:
        return cast(list[Trial], self.inner.ask())

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        self.inner.tell(trial, evaluation)

    def best(self) -> Node:
        return cast(Node, self.inner.best())


def _of_inner(name: str) -> property:
    def get(search: Around) -> Any:
        default = getattr(SearchBase, name)
        found = getattr(search.inner, name, None)
        if found is not None:
            return found
        return default.__get__(search) if isfunction(default) else default

    return property(get)


for _name in vars(SearchBase).keys() - vars(Around).keys():
    if not _name.startswith("_"):
        setattr(Around, _name, _of_inner(_name))


class _WithDefaults(Around):
    """An object that has a search's three methods, with the defaults for what it lacks."""

    tree = None  # what it calls its tree may be anything


def as_search(search: Any) -> SearchBase:
    """The search with all its optional parts; an error says which of the three methods an object lacks."""
    if isinstance(search, SearchBase):
        return search
    if not isinstance(search, Search):
        raise InputError(f"{type(search).__name__} is not a Search: it needs ask, tell, best")
    return _WithDefaults(search)


def check_budget(budget: int) -> int:
    """A budget as a number of SGD steps, or an error that says why it is none."""
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
        raise InputError(f"the budget must be a whole number of SGD steps; got {budget!r}")
    if budget < 1:
        raise InputError(f"the budget must be at least 1 SGD step; got {budget}")
    if budget > MOST_STEPS:
        raise InputError(f"the budget must be at most {MOST_STEPS:,} SGD steps; got {budget}")
    return int(budget)


def as_node(trial: Trial, evaluation: Evaluation) -> Node:
    """A trial and what came of it as a node; a value that is not finite becomes +inf: diverged."""
    value = evaluation.value
    return Node(
        trial.path,
        trial.mixture,
        trial.steps,
        value if isfinite(value) else inf,
        evaluation.standard_error,
        trial.lr_scale,
        trial.phase,
        trial.segment,
        merged=trial.merged,
    )


ALL_DIVERGED = (
    "every model diverged (its validation loss is not finite): use a smaller step size, "
    "or scale the features (and the labels of a regression) to mean 0 and standard deviation 1"
)
