"""PyXAB's X-armed bandits as searches, on the box of stick-breaking coordinates."""

from __future__ import annotations

from typing import Any, Literal

from mixtree.policies.peers.base import DIVISION, Division, Peer, optional
from mixtree.policies.peers.coordinates import from_sticks
from mixtree.policies.script import Rounds
from mixtree.policies.setting import Setting


class PyxabSearch(Peer):
    """A PyXAB algorithm that pulls mixtures: optimistic trees over a box, without the simplex's geometry.

    A pull is a trial from the initial model. Its reward is how much lower its loss is than the first
    trial's, as a share of that: the algorithms expect rewards on a scale of 1. A box is cut through its
    longest side; PyXAB's own cuts use the global random numbers. Budget: 40 % in pulls of equal length; then
    the best model is continued on its mixture, the last half of that at 0.1 × the step size.

    References: Bubeck, Munos, Stoltz, Szepesvári, X-Armed Bandits, 2011 (HOO); Azar, Lazaric, Brunskill,
    Online Stochastic Optimization under Correlated Bandit Feedback, 2014 (HCT); Munos, Optimistic
    Optimization of a Deterministic Function without the Knowledge of its Smoothness, 2011 (SOO);
    Li, Li, Honorio, Song, PyXAB: A Python Library for X-Armed Bandit and Online Blackbox Optimization
    Algorithms, 2023.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        algorithm: Literal["hoo", "hct", "soo"] = "hoo",
        division: Division = DIVISION,
    ) -> None:
        self._module = optional(f"PyXAB.algos.{algorithm.upper()}", f"pyxab-{algorithm}")
        self._cuts = optional("PyXAB.partition.Partition", f"pyxab-{algorithm}")
        super().__init__(setting, division=division, options={"algorithm": algorithm})
        self._algorithm = algorithm
        self._count, self._steps = self._trial_plan(setting)

    def search(self) -> Rounds:
        bandit: Any = self._bandit() if self._count else None
        first, worst = None, 0.0
        for turn in range(1, self._count + 1):
            point = bandit.pull(turn)
            (node,) = yield [self._trial(from_sticks(point), self._steps)]
            if not node.diverged:
                first = node.value if first is None else first
                reward = (first - node.value) / (abs(first) or 1.0)
                worst = min(worst, reward)
            bandit.receive_reward(turn, worst if node.diverged else reward)
        yield from self._finish_best()

    def _bandit(self) -> Any:
        shape = {"domain": [[0.0, 1.0]] * (self._sources - 1), "partition": _longest_side(self._cuts)}
        if self._algorithm == "hoo":
            return self._module.T_HOO(rounds=max(2, self._count), **shape)
        if self._algorithm == "hct":
            return self._module.HCT(**shape)
        return self._module.SOO(n=self._count, **shape)


def _longest_side(cuts: Any) -> Any:
    """PyXAB's binary partition, cut through the longest side instead of a random one."""

    class LongestSide(cuts.Partition):  # type: ignore[misc]
        def make_children(self, parent: Any, newlayer: bool = False) -> None:
            sides = parent.get_domain()
            longest = max(range(len(sides)), key=lambda side: sides[side][1] - sides[side][0])
            low, high = sides[longest]
            middle = (low + high) / 2
            children = []
            for index, part in enumerate(([low, middle], [middle, high])):
                domain = [*sides[:longest], part, *sides[longest + 1 :]]
                place = 2 * parent.get_index() - 1 + index
                children.append(
                    self.node(depth=parent.get_depth() + 1, index=place, parent=parent, domain=domain)
                )
            parent.update_children(children)
            if newlayer:
                self.node_list.append(children)
                self.depth += 1
            else:
                self.node_list[parent.get_depth() + 1] += children

    return LongestSide
