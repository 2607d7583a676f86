"""Mixtures that move while one model is trained: online gradient mixing and group DRO, by probes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mixtree.errors import InputError, SearchError
from mixtree.policies.peers.base import DIVISION, Division, Peer, filled
from mixtree.policies.script import Rounds
from mixtree.policies.setting import Setting
from mixtree.simplex import Mixture
from mixtree.tree import Node

Array = NDArray[np.float64]

_SHORTEST = 5  # steps of a probe, where the budget allows: single steps are mostly noise
_MEMORY = 0.5  # weight of the past in the running spread of scores


class ProbingPeer(Peer):
    """One model trained segment by segment; before each, a probe per source says where its weights move.

    Probes start from the current model, take a few steps on one source alone and are thrown away; each is
    scored, and α_i ∝ α_i·exp(rate × score_i / spread), where the spread of the scores is a running one. A
    segment trains on the mean of all α so far, with a little of uniform in it: one round's scores are noisy.
    The first segment is on uniform: probes of an untrained model only say which source is learned fastest.

    Budget: 40 % in probes, the rest in segments, which alone make the returned model. With ``decay`` the last
    half of that rest is one segment on the final mixture at 0.1 × the step size; without, no step is smaller.
    """

    default_rate: ClassVar[float] = 0.3

    def __init__(
        self,
        setting: Setting,
        *,
        decay: bool = False,
        rounds: int = 24,
        rate: float | None = None,
        floor: float = 0.05,
        division: Division = DIVISION,
    ) -> None:
        rate = self.default_rate if rate is None else rate
        if rounds < 1 or not rate > 0 or not 0 <= floor < 1:
            raise InputError(
                f"online mixing needs rounds ≥ 1, rate > 0, 0 ≤ floor < 1; got {rounds}, {rate}, {floor}"
            )
        if not decay:
            division = Division(division.search, 0.0, division.decay_lr)
        super().__init__(setting, division=division, options={"rounds": rounds, "rate": rate, "floor": floor})
        self._rate, self._floor = rate, floor
        probes = self._search_budget // self._sources
        self._rounds = min(max(probes // _SHORTEST, min(probes, 1)), rounds)
        self._probe = probes // self._rounds if self._rounds else 0
        train = setting.budget - self._rounds * self._probe * self._sources
        full = train - int(train * division.decay)
        self._rounds = min(self._rounds, full - 1)  # a segment has at least one step
        self._segment = full // (self._rounds + 1)
        self._first = full - self._rounds * self._segment

    @abstractmethod
    def _scores(self, seen: NDArray[Any] | None, probes: Sequence[Node]) -> Array:
        """A score per source, from the current model's predictions and the probes: more is more weight."""

    def search(self) -> Rounds:
        (node,) = yield [self._trial(self._uniform, self._first, phase="train")]
        mixture, mixtures = self._uniform, [self._uniform]
        logarithms, spread = np.zeros(self._sources), 0.0
        for number in range(self._rounds):
            if node.diverged:
                return
            self._last, after, seen = node, node.path, node.predictions
            alone = np.eye(self._sources)
            probes = yield [self._trial(each, self._probe, after=after, phase="probe") for each in alone]
            scores = self._scores(seen, probes)
            variance = float(scores.var())
            spread = variance if number == 0 else _MEMORY * spread + (1 - _MEMORY) * variance
            if spread > 0:
                logarithms += self._rate * (scores - scores.mean()) / spread**0.5
            mixtures.append(_softmax(logarithms))
            mixture = (1 - self._floor) * np.mean(mixtures, axis=0) + self._floor * self._uniform
            (node,) = yield [self._trial(mixture, self._segment, after=after, phase="train")]
        if not node.diverged:
            self._last = node
            yield from self._ending(mixture, node)

    def _ending(self, mixture: Mixture, node: Node) -> Rounds:
        left, decay = self.budget - self.spent, self._division.decay > 0
        if left:
            lr, phase = (self._division.decay_lr, "decay") if decay else (1.0, "train")
            (last,) = yield [self._trial(mixture, left, after=node.path, lr=lr, phase=phase)]
            self._last = node if last.diverged else last


class OnlineMixing(ProbingPeer):
    """Online gradient mixing: more weight to sources whose gradient agrees with the validation gradient.

    The drop in validation loss over a probe on source i is, to first order, the probe's length times the
    inner product of the two gradients: the quantity that DoGE's exponentiated gradient needs, from
    evaluations alone. Only the probes' differences matter, so a diverged probe counts as the worst one.

    Reference: Fan, Pagliardini, Jaggi, DoGE: Domain Reweighting with Generalization Estimation, 2024.
    """

    def _scores(self, seen: NDArray[Any] | None, probes: Sequence[Node]) -> Array:
        return -filled([probe.value for probe in probes])


class GroupDro(ProbingPeer):
    """Group DRO: more weight to the sources that the model fits worst, whatever the target.

    The published rule is α_i ∝ α_i·exp(rate × loss on source i). A search sees no loss on a source, so this
    is an approximation: how far a probe moves the predictions on the validation rows (root mean square). A
    source that is fitted has no gradient left and moves nothing; one that is not moves them. Unlike the loss
    it does not count noise in labels that no model could fit.

    Reference: Sagawa, Koh, Hashimoto, Liang, Distributionally Robust Neural Networks for Group Shifts, 2020.
    """

    uses_predictions = True
    default_rate = 0.1  # its scores never vanish as those of a good mixture do

    def _scores(self, seen: NDArray[Any] | None, probes: Sequence[Node]) -> Array:
        moved = []
        for probe in probes:
            after = probe.predictions
            if seen is None or after is None:
                raise SearchError(
                    "group-dro looks at predictions, and this model family gives none: choose another"
                )
            moved.append(inf if probe.diverged else float(np.sqrt(np.mean((after - seen) ** 2))))
        # A probe that diverged moved the furthest, but weight on its source would make the model diverge.
        return -filled([-each for each in moved])


def _softmax(logarithms: Array) -> Mixture:
    weights = np.exp(logarithms - logarithms.max())
    mixture: Mixture = weights / weights.sum()
    return mixture
