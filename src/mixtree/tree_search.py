"""The paper's optimistic tree search: Algorithms 1 and 2."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Any, Literal

from mixtree.bounds import Optimism, check_smoothness, default_rho
from mixtree.errors import InputError, SearchError, TrainingError
from mixtree.ledger import Ledger, LedgerSearch
from mixtree.partition import Partition, is_random
from mixtree.schedules import Infeasible, Schedule, as_schedule, steps_at
from mixtree.search import ALL_DIVERGED
from mixtree.seeds import SPLIT, check_seed, derive_seed
from mixtree.simplex import Cell
from mixtree.trainer import Evaluation
from mixtree.tree import Frontier, Node, Path, Trial


class TreeSearch(LedgerSearch):
    """Optimistic tree search over a partition of the simplex (the paper's Algorithms 1 and 2).

    Each round expands the ``width`` leaves of smallest value − c·ν·ρ^h; every child continues its parent's
    model on its own cell's representative for steps(h) SGD steps. The budget is hard. ``then_commit`` goes on
    with the returned model.

    Parameters
    ----------
    root
        The cell of all mixtures.
    partition
        Cuts a cell into its children.
    budget
        Λ: SGD steps in all.
    steps
        λ: steps of a node, or a function of its height h.
    nu, rho
        ν and ρ of the bound: values inside a cell at height h differ by at most ν·ρ^h. ``"auto"`` takes the
        spread of the values so far for ν; ρ is (√3/2)^{1/(K−1)} by default.
    optimism
        c: what the bound is multiplied by before it is subtracted from a value.
    train_root
        Whether the root is trained on its mixture, or is the initial model.
    returns
        ``"deepest"``: the best of the deepest nodes, as in the paper; ``"best"``: the node of smallest value
        plus ν·ρ^h.
    width
        Leaves that are expanded in one round. A larger width asks for several leaves before it sees any of
        their children, so it may grow another tree; at one width the tree is always the same.
    seed
        Of partitions that draw at random.

    References
    ----------
    Faw et al., *Mix and Match*, Algorithms 1 and 2.

    Examples
    --------
    >>> from mixtree.partition import bisect, simplex_root
    >>> search = TreeSearch(simplex_root(2), bisect, budget=30, steps=10)
    >>> [trial.path for trial in search.ask()]
    [()]
    """

    on_target = False

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
        width: int = 1,
        seed: int = 0,
    ) -> None:
        self._ledger = Ledger(budget)
        self._steps = as_schedule(steps)
        # A schedule that has no number for the root or its children leaves no search: said now, not later.
        self._root_steps = steps_at(self._steps, 0) if train_root else 0
        self._child_steps = steps_at(self._steps, 1)
        self._rho = default_rho(len(root.representative)) if rho is None else rho
        if isinstance(nu, str) and nu != "auto":
            raise InputError(f"nu must be a number or 'auto'; got {nu!r}")
        check_smoothness(0.0 if isinstance(nu, str) else nu, self._rho, optimism)
        if returns not in ("deepest", "best"):
            raise InputError(f"the return rule must be 'deepest' or 'best'; got {returns!r}")
        if width < 1:
            raise InputError(f"width must be at least 1; got {width}")
        self._nu, self._optimism, self._returns = nu, optimism, returns
        self._width, self._seed = width, check_seed(seed)
        self._lowest, self._highest = inf, -inf
        self._partition, self._random = partition, is_random(partition)
        self._frontier = Frontier(Optimism(self.nu, self._rho, optimism=optimism))
        self._given_up: set[Path] = set()  # leaves that this budget cannot expand but a larger one could
        self._root = root
        self._cells: list[Cell | None] = []  # of the round's trials; None where there is nothing to expand
        self._leaders: dict[int, Node] = {}  # the best node of every height
        self._deepest = -1
        self._begun = False
        self._train_root = train_root
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
            "width": width,
            "seed": seed,
        }
        self.expanded: list[Path] = []
        """Paths in the order of their expansion."""

    @property
    def rule(self) -> str:  # type: ignore[override]
        """The rule that chooses the returned node."""
        return self._returns

    @property
    def nu(self) -> float:
        """ν now: the number that was given, or the spread of the finite values so far."""
        if isinstance(self._nu, str):
            return max(0.0, self._highest - self._lowest) if isfinite(self._lowest) else 0.0
        return self._nu

    def ask(self) -> list[Trial]:
        self._ledger.check_ready()
        self._cells = []
        if not self._begun:
            self._begun = True
            return self._ledger.hand_out(self._first_round())
        if isinstance(self._nu, str):
            self._frontier.optimism = Optimism(self.nu, self._rho, optimism=self._optimism)
        trials: list[Trial] = []
        left = self.budget - self.spent
        for _ in range(self._width):
            expansion = self._best_affordable(left)
            if not expansion:
                break
            left -= sum(trial.steps for trial in expansion)
            trials += expansion
        return self._ledger.hand_out(trials)

    def _first_round(self) -> list[Trial]:
        root, children = self._root, self._split((), self._root)
        if not children or self._root_steps + len(children) * self._child_steps > self.budget:
            # Not even one expansion can be paid for: one model gets it all.
            self._cells = [None]
            return [Trial((), root.representative, self.budget, phase="root")]
        if self._train_root:
            self._cells = [root]
            return [Trial((), root.representative, self._root_steps, phase="root")]
        return self._expand((), children, self._child_steps)

    def _best_affordable(self, left: int) -> list[Trial]:
        """The children of the leaf of smallest bound among those that can be paid for."""
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

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        for place, node in enumerate(self._ledger.record(trial, evaluation)):
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
        if not self._leaders:
            if self.tree:
                raise TrainingError(ALL_DIVERGED)
            raise SearchError("nothing has been evaluated yet: ask, train and tell first")
        if self._returns == "deepest":
            return self._leaders[self._deepest]
        nu = self.nu
        return min(self._leaders.values(), key=lambda node: node.value + nu * self._rho**node.height)

    def needed(self, paths: Iterable[Path]) -> set[Path]:
        """Whose model may a later trial continue, at a raised budget too, or which may be returned?"""
        asked, leaders = set(paths), self._leaders
        found = asked & self._frontier.paths
        if self._given_up:
            found |= asked & self._given_up
        if self._returns == "best" and isinstance(self._nu, str):
            # A growing ν may make any height's best node the chosen one.
            found |= asked & {node.path for node in leaders.values()}
        elif leaders and (path := self.best().path) in asked:
            found.add(path)
        return found

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked; not the budget, which may be raised."""
        return dict(self._settings)
