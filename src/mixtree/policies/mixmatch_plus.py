"""``mixmatch+``: the paper's tree search over merged branches, a race of its best leaves, a long commit."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from mixtree.errors import TrainingError
from mixtree.policies.auto import DECAY_RATE, LEAST_BUDGET, Measured
from mixtree.policies.merging import (
    BRANCH,
    CHOSEN,
    LOOKS,
    RANKED,
    Branches,
    Start,
    alike,
    grow,
    rank_correlation,
    tree_of_looks,
)
from mixtree.policies.script import Script
from mixtree.policies.setting import Setting
from mixtree.search import ALL_DIVERGED, in_segments
from mixtree.simplex import Mixture, uniform_mixture
from mixtree.tree import Node, Trial

POOLED, PROBE, EVEN, MORE = LOOKS - 1, LOOKS - 2, LOOKS - 3, LOOKS - 5
"""Beside the tree of looks: the pooled mixture, the trunk merged with itself (which tells whether models can
be merged), the uniform mixture where the tree has none, further ones counted down."""
APART = 0.1
"""ℓ1 distance from which two mixtures count as different."""


@dataclass(frozen=True, eq=False, slots=True)
class Candidate:
    """A mixture of the race, and the look at its merged model, if there is one."""

    name: str
    mixture: Mixture
    look: Node | None = None


class MixmatchPlus(Measured):
    """Mix&Match where a mixture need not be trained to be looked at.

    1. A trunk on the uniform mixture.
    2. From it one short branch per source.
    3. The tree search over merged branches: every node is a forward pass over the validation rows.
    4. A race of uniform, pooled and the tree's best leaves, really trained from their merged models; of those
       within one standard error of the best the simplest wins.
    5. The winner goes on with what is left, its last part at a tenth of the step size.

    Where models cannot be merged, uniform and pooled race from the trunk.
    """

    rule = "mixmatch+"
    on_target = False

    def __init__(self, setting: Setting, *, more: Mapping[str, Mixture] | None = None) -> None:
        """``more`` mixtures, by name, race with the tree's leaves."""
        super().__init__(
            setting.budget,
            data=setting.data,
            metric=setting.metric,
            width=len(setting.names),
            segments=setting.segments,
            watch=setting.plus.watch,
        )
        self._more = dict(more or {})
        self.setting, self.options = setting, setting.plus
        self._uniform = uniform_mixture(len(setting.names))
        self.equally_good: tuple[str, ...] = ()
        """The race's mixtures within one standard error of the best, in words."""
        self.trust = float("nan")
        """Rank correlation of the merged losses with those of the race."""

    def describe(self) -> dict[str, Any]:
        """The settings that decide what is asked."""
        plain = {name: getattr(self.options, name) for name in self.options.__dataclass_fields__}
        metric = None if self.setting.metric is None else self.setting.metric.name
        more = {name: mixture.tolist() for name, mixture in self._more.items()}
        settings = {"options": plain, "metric": metric, "segments": self._segments, "more": more}
        return {"search": "mixmatch+", **settings}

    def script(self) -> Script:
        if adopted := self._ledger.adopted:
            usable = [node for node in adopted.values() if not node.diverged and not node.look]
            if not usable:
                raise TrainingError(ALL_DIVERGED)
            behind = self.tree.steps_behind
            stem = max(usable, key=lambda node: (behind[node.path], -node.value))
            return (yield from self._commit(Start(stem.path), stem.mixture))
        trunk_steps = int(self.options.trunk * self.budget)
        each = int(self.options.branches * self.budget / self.options.rounds / self._width)
        if self._width == 1 or self.budget < LEAST_BUDGET or not each:
            if self._width > 1:
                self.notes.append(f"{self.budget} steps are too few for branches: uniform")
            return (yield from self._commit(Start(()), self._uniform))
        start = Start(())
        before: Node | None = None
        if trunk_steps:
            # To its end, though uniform may lead away from the target: branches start from what all learnt.
            for part in in_segments(
                self._trial((), self._uniform, trunk_steps, 1.0, "trunk"), self._segments
            ):
                (before,) = yield [part]
                if before.diverged:
                    return before
                if part.path:
                    self._useless.add(part.path[:-1])
            assert before is not None
            start = Start(before.path)
        candidates = yield from self._candidates(start, before, each)
        winner, mixture = yield from self._race(start, candidates)
        return (yield from self._commit(winner, mixture))

    def _candidates(
        self, start: Start, before: Node | None, steps: int
    ) -> Generator[list[Trial], list[Node], list[Candidate]]:
        """Uniform, pooled and leaves of the tree over merged models, simpler ones first."""
        sizes = self.setting.sizes
        simple = [Candidate("uniform", self._uniform), Candidate("pooled", sizes / sizes.sum())]
        if before is not None:
            trunk = Branches(start, ((start.path,),) * self._width, (before,) * self._width, self._width)
            (probe,) = yield [trunk.look((*start.path, PROBE), self._uniform)]
            if probe.diverged:
                self.notes.append("models cannot be merged here: uniform and pooled race, without a tree")
                return _apart(simple)
        for _ in range(self.options.rounds):
            branches = yield from grow(
                start, sources=self._width, steps=steps, tail=self.options.tail, rate=self._scale
            )
            if branches.diverged:
                self.notes.append("a branch diverged: uniform and pooled race, without a tree")
                return _apart(simple)
            known = None if before is None else self._known(before)
            groups = (
                np.eye(self._width) if known is None else alike(branches, known, most=self.options.groups)
            )
            if len(groups) < self._width:
                self.notes.append(f"{self._width} sources in {len(groups)} groups of alike branches")
            looks = yield from tree_of_looks(
                branches, groups, looks=self.options.looks, optimism=self.options.optimism
            )
            best = min(looks, key=lambda node: node.value)
            before, base = best, branches.start.path
            start = Start(best.path, best.merged)
        uniform = looks[0]
        if len(groups) < self._width:  # then the tree's root is even over groups
            (uniform,) = yield [branches.look((*base, EVEN), self._uniform)]
        others = {"pooled": (POOLED, simple[1].mixture)}
        others |= {name: (MORE - number, each) for number, (name, each) in enumerate(self._more.items())}
        further = yield [branches.look((*base, index), mixture) for index, mixture in others.values()]
        seen = [Candidate("uniform", self._uniform, uniform)]
        seen += [Candidate(name, node.mixture, node) for name, node in zip(others, further, strict=True)]
        return _apart([*seen, *self._leaves(looks)], count=len(seen) + self.options.leaves)

    def _leaves(self, looks: Sequence[Node]) -> list[Candidate]:
        """The look nearest to uniform of those that are as good as the best, the best, and the next ones."""
        ranked = sorted(
            (self._known(node) for node in looks if not node.diverged), key=lambda node: node.value
        )
        if not ranked:
            return []
        best = ranked[0]
        good = [node for node in ranked if node.value - best.value <= self._paired_error(best, node)]
        self.notes.append(f"tree: {len(looks)} merged models, {len(good)} of them as good as the best")
        near = min(good, key=lambda node: float(np.abs(node.mixture - self._uniform).sum()))
        return [
            Candidate("the leaf nearest to uniform", near.mixture, near),
            *(Candidate("a leaf of the tree", node.mixture, node) for node in ranked),
        ]

    def _race(
        self, start: Start, candidates: Sequence[Candidate]
    ) -> Generator[list[Trial], list[Node], tuple[Start, Mixture]]:
        """Train the candidates really; the simplest within one standard error of the best."""
        steps = int(self.options.arm * self.budget)
        if not steps or len(candidates) == 1:
            seen = [each for each in candidates if each.look is not None and not each.look.diverged]
            if not seen:
                return start, self._uniform
            best = min(seen, key=lambda each: each.look.value if each.look is not None else np.inf)
            return self._start(best, start), best.mixture
        starts = [self._start(each, start) for each in candidates]
        paths = [
            (*each.path, CHOSEN) if each.merged is not None else self._child(each.path, number)
            for number, each in enumerate(starts)
        ]
        outcomes = yield from self._settled(
            [(path, each.mixture) for path, each in zip(paths, candidates, strict=True)],
            steps,
            "race",
            merges=[each.merged for each in starts],
        )
        order = self._equally_good(outcomes)
        if not order:
            return start, self._uniform
        self._judge_trust(candidates, outcomes)
        pick = order[0]
        if self.trust < self.options.trust:
            pick = min(order, key=lambda place: outcomes[place].value)
        self.equally_good = tuple(candidates[place].name for place in order)
        others = f" (as good: {', '.join(self.equally_good[1:])})" if len(order) > 1 else ""
        self.notes.append(f"mixture: {candidates[pick].name}, of {len(candidates)} in a race{others}")
        return Start(outcomes[pick].path), candidates[pick].mixture

    def _judge_trust(self, candidates: Sequence[Candidate], outcomes: Sequence[Node]) -> None:
        pairs = [
            (each.look.value, node.value)
            for each, node in zip(candidates, outcomes, strict=True)
            if each.look is not None and isfinite(each.look.value) and isfinite(node.value)
        ]
        self.trust = rank_correlation(*zip(*pairs, strict=True)) if pairs else float("nan")
        if not isfinite(self.trust):
            return
        words = f"{RANKED} {self.trust:.2g}"
        if self.trust < self.options.trust:
            words += ": not to be trusted here, the winner of the race is taken"
        self.notes.append(words)

    def _start(self, candidate: Candidate, start: Start) -> Start:
        """Where a candidate's training begins."""
        if candidate.look is None or not self.options.merged_start:
            lineage = [node.path for node in self.tree.lineage(start.path) if not node.look]
            return Start(lineage[-1] if lineage else ())
        return Start(candidate.look.path, candidate.look.merged)

    def _commit(self, start: Start, mixture: Mixture) -> Script:
        """What is left, on one mixture; its last part at a tenth of the step size."""
        left = self.left
        last = int(self.options.decay * left)
        path = self._child(start.path, 10) if self.tree else ()
        # Not compared with what the race has come to: its calm end is better than many steps at full size.
        main = yield from self._stage(path, mixture, left - last, self._scale, "commit", merged=start.merged)
        if main.last.diverged or not last:
            return main.kept
        self._useless.update(path for path, node in self.tree.items() if node.phase == BRANCH)
        return (
            yield from self._stage(
                self._child(main.kept.path, 0),
                mixture,
                last,
                DECAY_RATE * self._scale,
                "decay",
                before=main.kept,
            )
        ).kept


def _apart(candidates: Sequence[Candidate], *, count: int = 2) -> list[Candidate]:
    """The first so many that differ from all before them."""
    kept: list[Candidate] = []
    for each in candidates:
        if len(kept) < count and all(np.abs(each.mixture - other.mixture).sum() > APART for other in kept):
            kept.append(each)
    return kept
