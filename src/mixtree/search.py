"""Ask and tell: the Search protocol and the paper's optimistic tree search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import inf, isfinite
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import numpy as np

from mixtree.bounds import Optimism, check_smoothness, default_rho
from mixtree.errors import InputError, SearchError, TrainingError
from mixtree.partition import Partition, is_random
from mixtree.schedules import Infeasible, Schedule, as_schedule, steps_at
from mixtree.seeds import SPLIT, check_seed, derive_seed
from mixtree.simplex import Cell, Mixture
from mixtree.trainer import Evaluation
from mixtree.tree import Frontier, Node, Path, Tree
from mixtree.values import value


@value
class Segment:
    """Which part of a longer stage a trial is."""

    stream: Path
    """Where the stage would be if no stage were cut: its random numbers come from that path."""
    before: int
    """Steps of the stage that are behind."""
    total: int
    """Steps of the whole stage."""


@value
class Trial:
    """Continue the model of ``path[:-1]`` on this mixture for so many steps."""

    path: Path
    mixture: Mixture
    steps: int
    lr_scale: float = 1.0
    phase: str = "search"
    segment: Segment | None = None


SEGMENTS, LEAST_SEGMENT = 20, 50
"""Parts of a long stage, and the fewest steps that one of them takes."""


def in_segments(trial: Trial, segments: int = SEGMENTS, *, stream: Path | None = None) -> list[Trial]:
    """A long stage as trials that continue one another, so that it can be watched, stopped and resumed.

    They train the model that the one trial would have trained, at ``stream`` if stages above it are cut.

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
        )
        for number, (before, after) in enumerate(pairwise(edges))
    ]


STEP_SIZE = "step size"
"""The phase of trials that find out which step size is good."""


@runtime_checkable
class Search(Protocol):
    """A way to spend a budget: the paper's tree search, a baseline, a policy of one's own.

    A search is deterministic: the same tells give the same asks. That is what makes a study resumable.
    What only some searches have is optional, found by name:

    - ``needed(paths) -> set`` — those of these paths whose models a later trial may continue, or ``best``
      return. A study keeps all models of a search without it.
    - ``budget``, ``rule`` — for reports; ``charged`` — steps spent before the first round, by purpose.
    - ``describe()`` — the settings that decide what is asked, as plain data; part of a study's fingerprint.
    - ``adopt(nodes)`` — take over nodes of an earlier run with a smaller budget: charged, not asked again.
      ``starts_over = True`` — at a raised budget it asks for none of its earlier rounds again.
    - ``uses_predictions = True`` — ``tell`` looks at predictions, so a study must store them to be resumable.
    """

    def ask(self) -> list[Trial]:
        """The next round; empty when the search has finished."""

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        """The outcome of one trial of the round."""

    def best(self) -> Node:
        """The node to return if the search ended now."""


def check_budget(budget: int) -> int:
    """A budget as a number of SGD steps, or an error that says why it is none."""
    if isinstance(budget, bool) or not isinstance(budget, int | np.integer):
        raise InputError(f"the budget must be a whole number of SGD steps; got {budget!r}")
    if budget < 1:
        raise InputError(f"the budget must be at least 1 SGD step; got {budget}")
    return int(budget)


def as_node(trial: Trial, evaluation: Evaluation) -> Node:
    """A trial and what came of it as a node; a value that is not finite becomes +inf: diverged."""
    value, segment = evaluation.value, trial.segment
    return Node(
        trial.path,
        trial.mixture,
        trial.steps,
        value if isfinite(value) else inf,
        evaluation.standard_error,
        trial.lr_scale,
        trial.phase,
        segment is not None and segment.before + trial.steps < segment.total,
    )


class Ledger:
    """The bookkeeping that searches share: which trials are out, what came back, what it cost."""

    def __init__(self, budget: int) -> None:
        self.budget = check_budget(budget)
        self.spent = 0
        self.tree = Tree()
        self.adopted: dict[Path, Node] = {}
        self._out: dict[Path, int] = {}  # trials that are out, and their places in the round
        self._round: list[Any] = []  # the round's nodes, each in its place once it has arrived

    def hand_out(self, trials: list[Trial]) -> list[Trial]:
        """Charge a round and remember that it is out."""
        cost, out, adopted = 0, {}, self.adopted
        for place, trial in enumerate(trials):
            out[trial.path] = place
            if not adopted or not self._is_paid(trial):
                cost += trial.steps
        if len(out) < len(trials):
            raise SearchError("a path was asked for twice in one round: every trial needs one of its own")
        if self.spent + cost > self.budget:
            raise SearchError(f"a round of {cost} steps does not fit: {self.spent} of {self.budget} spent")
        self.spent += cost
        self._out, self._round = out, [None] * len(trials)
        return trials

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Charge nodes of an earlier run that this search may never ask for; asked for, they are free."""
        for node in nodes:
            self.adopted[node.path] = node
            self.tree.add(node)
            self.spent += node.steps

    def _is_paid(self, trial: Trial) -> bool:
        node = self.adopted.get(trial.path)
        return node is not None and node.steps == trial.steps

    def check_ready(self) -> None:
        if self._out:
            raise SearchError(f"tell the outcome of {len(self._out)} trials before asking for the next round")

    def record(self, trial: Trial, evaluation: Evaluation) -> list[Node]:
        """The round's nodes, in the order they were asked for, once its last outcome has arrived; else none.

        So nothing depends on the order of arrival.
        """
        place = self._out.pop(trial.path, None)
        if place is None:
            raise SearchError(f"trial {trial.path} was not asked for, or was told before")
        self._round[place] = as_node(trial, evaluation)
        if self._out:
            return []
        for node in self._round:
            self.tree[node.path] = node
        return self._round

    @property
    def settled(self) -> bool:
        """No trial is out."""
        return not self._out


class Accounted:
    """A search that keeps its books in a ledger."""

    _ledger: Ledger

    @property
    def tree(self) -> Tree:
        return self._ledger.tree

    @property
    def budget(self) -> int:
        return self._ledger.budget

    @property
    def spent(self) -> int:
        return self._ledger.spent


def is_built_in(search: object) -> TypeGuard[Accounted]:
    """Whether it is one of this package's own, whose books are known to be right; a subclass may be not."""
    return isinstance(search, Accounted) and type(search).__module__.partition(".")[0] == "mixtree"


ALL_DIVERGED = (
    "every model diverged (its validation loss is not finite): use a smaller step size, "
    "or scale the features (and the labels of a regression) to mean 0 and standard deviation 1"
)


class TreeSearch(Accounted):
    """Optimistic tree search over a partition of the simplex (the paper's Algorithms 1 and 2).

    Each round expands the ``width`` leaves of smallest value − c·ν·ρ^h; every child continues its parent's
    model on its own cell's representative for steps(h) SGD steps. The budget is hard. With ``commit`` > 0
    that share of it, and what the search cannot use, continues the returned node's model on its mixture at
    ``commit_lr`` × the step size, in so many ``segments`` if it is long.

    A larger width asks for several leaves before it sees any of their children, so it may grow another tree;
    at one width the tree is always the same.
    """

    def __init__(
        self,
        root: Cell,
        partition: Partition,
        *,
        budget: int,
        steps: int | Schedule,
        nu: float | Literal["auto"] = 0.5,
        rho: float | None = None,
        optimism: float = 2.0,
        train_root: bool = True,
        returns: Literal["deepest", "best"] = "deepest",
        commit: float = 0.0,
        commit_lr: float = 0.1,
        width: int = 1,
        seed: int = 0,
        segments: int = SEGMENTS,
    ) -> None:
        self._ledger = Ledger(budget)
        self._steps = as_schedule(steps)
        # A schedule that has no number for the root or its children leaves no search: said now, not later.
        self._root_steps = steps_at(self._steps, 0) if train_root else 0
        self._child_steps = steps_at(self._steps, 1)
        self._rho = default_rho(len(root.representative)) if rho is None else rho
        self._check(nu, optimism, returns, commit, commit_lr, width)
        self._nu, self._optimism, self._returns = nu, optimism, returns
        self._commit_lr, self._width, self._seed = commit_lr, width, check_seed(seed)
        self._lowest, self._highest = inf, -inf
        self._partition, self._random = partition, is_random(partition)
        # Rounded first: 1000·(1 − 0.9) is a bit less than 100 in floating point.
        self._search_budget = int(round(budget * (1.0 - commit), 6))
        self._commit, self._segments = commit > 0, segments
        self._committing: list[Trial] = []  # what is left of the commit
        self._frontier = Frontier(Optimism(self.nu, self._rho, optimism=optimism))
        self._given_up: set[Path] = set()  # leaves that this budget cannot expand but a larger one could
        self._root = root
        self._cells: list[Cell | None] = []  # of the round's trials; None where there is nothing to expand
        self._leaders: dict[int, Node] = {}  # the best node of every height
        self._deepest = -1
        self._committed: Node | None = None
        self._stage: Literal["root", "grow", "commit"] = "root"
        self._train_root = train_root
        self._searched = 0
        self._settings: dict[str, Any] = {
            "search": "tree",
            "partition": getattr(partition, "__qualname__", repr(partition)),
            "root": root.representative.tolist(),
            "steps": [str(n) if isinstance(n, Infeasible) else n for n in map(self._steps, range(8))],
            "nu": nu,
            "rho": self._rho,
            "optimism": optimism,
            "train_root": train_root,
            "returns": returns,
            "commit": commit,
            "commit_lr": commit_lr,
            "width": width,
            "seed": seed,
        }
        # Without either it is the search that it was before stages were cut, and goes on with its studies.
        if self._commit and segments > 1:
            self._settings["segments"] = segments
        self.expanded: list[Path] = []
        """Paths in the order of their expansion."""

    def _check(
        self, nu: float | str, optimism: float, returns: str, commit: float, commit_lr: float, width: int
    ) -> None:
        if isinstance(nu, str) and nu != "auto":
            raise InputError(f"nu must be a number or 'auto'; got {nu!r}")
        check_smoothness(0.0 if isinstance(nu, str) else nu, self._rho, optimism)
        if returns not in ("deepest", "best"):
            raise InputError(f"the return rule must be 'deepest' or 'best'; got {returns!r}")
        if not 0 <= commit < 1:
            raise InputError(f"the commit share must be at least 0 and below 1; got {commit}")
        if not (isfinite(commit_lr) and commit_lr > 0):
            raise InputError(f"the commit step size factor must be a finite number above 0; got {commit_lr}")
        if width < 1:
            raise InputError(f"width must be at least 1; got {width}")

    @property
    def rule(self) -> str:
        """The rule that chose the returned node."""
        return f"commit of {self._returns}" if self._committed is not None else self._returns

    @property
    def nu(self) -> float:
        """ν now: the number that was given, or the spread of the finite values so far."""
        if isinstance(self._nu, str):
            return max(0.0, self._highest - self._lowest) if isfinite(self._lowest) else 0.0
        return self._nu

    def ask(self) -> list[Trial]:
        self._ledger.check_ready()
        if self._stage == "root":
            self._stage = "grow"
            if trials := self._ask_root():
                self._searched = sum(trial.steps for trial in trials)
                return self._ledger.hand_out(trials)
        if self._stage == "grow":
            if trials := self._ask_expansions():
                return self._ledger.hand_out(trials)
            self._stage = "commit"
            self._committing = self._commit_trials()
        if self._committing:
            return self._ledger.hand_out([self._committing.pop(0)])
        return []

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        for place, node in enumerate(self._ledger.record(trial, evaluation)):
            if node.phase == "commit":
                self._committed = None if node.diverged else node
                if node.diverged:
                    self._committing = []
                continue
            path, value, height = node.path, node.value, len(node.path)
            if value == inf:
                continue
            if value < self._lowest:
                self._lowest = value
            if value > self._highest:
                self._highest = value
            leader = self._leaders.get(height)
            if leader is None or value < leader.value:
                self._leaders[height] = node
                if height > self._deepest:
                    self._deepest = height
            cell = self._cells[place]
            if cell is not None:
                self._frontier.push(path, value, cell)

    def best(self) -> Node:
        return self._committed or self._chosen()

    def needed(self, paths: Iterable[Path]) -> set[Path]:
        """Whose model may a later trial continue, at a raised budget too, or which may be returned?"""
        asked, leaders = set(paths), self._leaders
        found = asked & self._frontier.paths
        if self._given_up:
            found |= asked & self._given_up
        if self._committed is not None:
            found |= asked & {self._committed.path}
        if self._returns == "best" and isinstance(self._nu, str):
            # A growing ν may make any height's best node the chosen one.
            found |= asked & {node.path for node in leaders.values()}
        elif leaders and (path := self._chosen().path) in asked:
            found.add(path)
        return found

    def adopt(self, nodes: Sequence[Node]) -> None:
        """Take over nodes of an earlier run with a smaller budget: charged, never expanded by themselves."""
        self._ledger.adopt(nodes)

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked; not the budget, which may be raised."""
        return dict(self._settings)

    def _ask_root(self) -> list[Trial]:
        root = self._root
        children = len(self._split((), root))
        first = self._root_steps + children * self._child_steps
        if children and first <= self._search_budget:
            if self._train_root:
                self._cells = [root]
                return [Trial((), root.representative, self._root_steps, phase="root")]
            return self._expand((), self._split((), root), self._child_steps)
        # Not even one expansion can be paid for: one model gets it all.
        self._cells = [None]
        return [Trial((), root.representative, self._search_budget or self.budget, phase="root")]

    def _ask_expansions(self) -> list[Trial]:
        if isinstance(self._nu, str):
            self._frontier.optimism = Optimism(self.nu, self._rho, optimism=self._optimism)
        trials: list[Trial] = []
        self._cells = []
        ledger, searched = self._ledger, self._searched
        # Adopted nodes are charged against the budget, but the search's own share is for its own nodes.
        limit = min(self._search_budget, ledger.budget - ledger.spent + searched)
        for _ in range(self._width):
            expansion = self._best_affordable(limit - searched)
            if not expansion:
                break
            searched += len(expansion) * expansion[0].steps
            trials += expansion
        self._searched = searched
        return trials

    def _best_affordable(self, left: int) -> list[Trial]:
        # What is left only shrinks, so a leaf that does not fit now is given up for good.
        while (leaf := self._frontier.pop()) is not None:
            path, cell = leaf
            cost = self._steps(len(path) + 1)
            # An expansion has at least two children: no leaf of this height fits.
            if isinstance(cost, Infeasible) or 2 * cost > left:
                self._given_up.update([path, *self._frontier.drop(len(path))])
                continue
            children = self._split(path, cell)
            if children and len(children) * cost <= left:
                return self._expand(path, children, cost)
            if children:
                self._given_up.add(path)
        return []

    def _split(self, path: Path, cell: Cell) -> Sequence[Cell]:
        return self._partition(cell, derive_seed(self._seed, path, SPLIT) if self._random else 0)

    def _expand(self, path: Path, children: Sequence[Cell], steps: int) -> list[Trial]:
        self.expanded.append(path)
        trials = []
        for index, cell in enumerate(children):
            self._cells.append(cell)
            trials.append(Trial((*path, index), cell.representative, steps))
        return trials

    def _commit_trials(self) -> list[Trial]:
        left = self.budget - self.spent
        if not self._commit or not self._leaders or left == 0:
            return []
        node = self._chosen()
        # An index that no cell's child has: the leaf can still be expanded when the budget is raised.
        index = max(2, len(node.mixture))
        while (*node.path, index) in self._ledger.adopted:
            index += 1
        path = (*node.path, index)
        commit = Trial(path, node.mixture, left, lr_scale=self._commit_lr, phase="commit")
        return in_segments(commit, self._segments)

    def _chosen(self) -> Node:
        if not self._leaders:
            if self.tree:
                raise TrainingError(ALL_DIVERGED)
            raise SearchError("nothing has been evaluated yet: ask, train and tell first")
        if self._returns == "deepest":
            return self._leaders[self._deepest]
        nu = self.nu
        return min(self._leaders.values(), key=lambda node: node.value + nu * self._rho**node.height)
