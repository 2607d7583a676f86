"""The paper's optimistic tree search: Algorithms 1 and 2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Any, Literal

from mixtree.bounds import Optimism, check_smoothness, default_rho
from mixtree.errors import InputError, SearchError, TrainingError
from mixtree.partition import Partition, is_random
from mixtree.schedules import Infeasible, Schedule, as_schedule, steps_at
from mixtree.search import ALL_DIVERGED, SEGMENTS, Accounted, Ledger, Trial, in_segments
from mixtree.seeds import SPLIT, check_seed, derive_seed
from mixtree.simplex import Cell
from mixtree.trainer import Evaluation
from mixtree.tree import Frontier, Node, Path


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
