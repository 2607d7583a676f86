"""Population based training of mixtures."""

from __future__ import annotations

import numpy as np

from mixtree.errors import InputError
from mixtree.policies.peers.base import DIVISION, Division, Peer
from mixtree.policies.script import Rounds
from mixtree.policies.setting import Setting
from mixtree.simplex import Mixture
from mixtree.tree import Node

_QUANTILE = 0.25  # of the population gives way to as many of the best
_RESAMPLE = 0.25  # chance that an explored mixture is drawn anew instead of perturbed
_SPREAD = 0.5  # standard deviation of a perturbed weight's logarithm


class Population(Peer):
    """A population of models on mixtures of their own; the worst quarter copies the best one and explores.

    After each generation a member of the worst quarter takes over the model of a random member of the best
    quarter, and its mixture with weights perturbed by random factors, or with chance 1/4 a new one. All
    others continue their own model. Budget: 40 % in the population; then the best member of the last
    generation is continued on its mixture, the last half of that at 0.1 × the step size.

    Reference: Jaderberg et al., Population Based Training of Neural Networks, 2017.
    """

    def __init__(
        self, setting: Setting, *, members: int = 8, generations: int = 6, division: Division = DIVISION
    ) -> None:
        if members < 2 or generations < 1:
            raise InputError(f"a population needs 2 members, 1 generation; got {members}, {generations}")
        super().__init__(setting, division=division, options={"members": members, "generations": generations})
        self._members = min(members, self._search_budget)
        self._generations = min(generations, self._search_budget // self._members) if self._members else 0

    def search(self) -> Rounds:
        if not self._generations:
            yield from self._finish(self._uniform)
            return
        random = self._random()
        steps = self._search_budget // (self._members * self._generations)
        drawn = random.dirichlet([1.0] * self._sources, self._members - 1)
        nodes = yield [self._trial(mixture, steps) for mixture in (self._uniform, *drawn)]
        for _ in range(self._generations - 1):
            starts = self._next_generation(nodes, random)
            if not starts:
                break
            nodes = yield [self._trial(mixture, steps, after=node.path) for mixture, node in starts]
        alive = [node for node in nodes if not node.diverged]
        if alive:
            best = min(alive, key=lambda node: node.value)
            yield from self._finish(best.mixture, best.path)
        else:
            yield from self._finish_best()

    def _next_generation(self, nodes: list[Node], random: np.random.Generator) -> list[tuple[Mixture, Node]]:
        """Mixtures and the nodes that are continued on them; none if every member has diverged."""
        order = sorted(range(len(nodes)), key=lambda member: nodes[member].value)
        few = max(1, int(len(nodes) * _QUANTILE))
        top = [nodes[member] for member in order[:few] if not nodes[member].diverged]
        if not top:
            return []
        worst = set(order[-few:]) if len(nodes) > 1 else set[int]()
        starts = []
        for member, node in enumerate(nodes):
            if member in worst or node.diverged:
                model = top[int(random.integers(len(top)))]
                starts.append((self._explored(model.mixture, random), model))
            else:
                starts.append((node.mixture, node))
        return starts

    def _explored(self, mixture: Mixture, random: np.random.Generator) -> Mixture:
        if random.random() < _RESAMPLE:
            return random.dirichlet([1.0] * self._sources)
        # The floor lets a weight that was drawn near 0 come back.
        weights = (mixture + 0.01) * np.exp(_SPREAD * random.standard_normal(self._sources))
        explored: Mixture = weights / weights.sum()
        return explored
