"""Successive halving over mixtures."""

from __future__ import annotations

from mixtree.errors import InputError
from mixtree.policies.peers.base import DIVISION, Division, Peer
from mixtree.policies.script import Rounds
from mixtree.policies.setting import Setting
from mixtree.simplex import Mixture
from mixtree.tree import Path


class SuccessiveHalving(Peer):
    """Many mixtures that are trained for a little, the better half of them for longer, and so on.

    The candidates are uniform and draws from Dirichlet(1, …, 1). All rungs cost the same; a survivor
    continues its own model. Budget: 40 % in the rungs; then the last survivor is continued on its mixture,
    the last half of that at 0.1 × the step size.

    Reference: Jamieson, Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization,
    2016.
    """

    def __init__(
        self, setting: Setting, *, candidates: int = 16, keep: float = 0.5, division: Division = DIVISION
    ) -> None:
        if candidates < 1 or not 0 < keep < 1:
            raise InputError(
                f"successive halving needs candidates ≥ 1 and 0 < keep < 1; got {candidates}, {keep}"
            )
        super().__init__(setting, division=division, options={"candidates": candidates, "keep": keep})
        self._rungs = self._sizes(candidates, keep)
        # Fewer candidates where a rung could not give each of them a step.
        while self._rungs and self._rungs[0] > self._search_budget // len(self._rungs):
            self._rungs = self._rungs[1:]

    @staticmethod
    def _sizes(candidates: int, keep: float) -> list[int]:
        sizes = [candidates]
        while sizes[-1] > 2:
            sizes.append(min(max(2, round(sizes[-1] * keep)), sizes[-1] - 1))
        return sizes

    def search(self) -> Rounds:
        if not self._rungs:
            yield from self._finish(self._uniform)
            return
        random = self._random()
        share = self._search_budget // len(self._rungs)
        drawn = random.dirichlet([1.0] * self._sources, self._rungs[0] - 1)
        starts: list[tuple[Mixture, Path]] = [(self._uniform, ()), *((mixture, ()) for mixture in drawn)]
        for size in self._rungs:
            nodes = yield [self._trial(mixture, share // size, after=path) for mixture, path in starts[:size]]
            alive = sorted((node for node in nodes if not node.diverged), key=lambda node: node.value)
            starts = [(node.mixture, node.path) for node in alive]
            if not starts:
                break
        # The last rung's winner has had the longest training; an earlier model may be lower by luck only.
        yield from self._finish(*starts[0]) if starts else self._finish_best()
