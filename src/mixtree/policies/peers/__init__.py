"""Other people's ways to find a mixture, written from their papers, behind the same Search protocol.

Each gets the same budget, is charged for every step, and divides it alike: 40 % to find a mixture, 60 % to
train on it, the last half of that at 0.1 × the step size (``Division``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from mixtree.policies.fixed import Chain, fixed
from mixtree.policies.peers.base import DIVISION, Division, Peer
from mixtree.policies.peers.halving import SuccessiveHalving
from mixtree.policies.peers.mixmin import MixMin
from mixtree.policies.peers.online import GroupDro, OnlineMixing
from mixtree.policies.peers.optuna import OptunaSearch
from mixtree.policies.peers.population import Population
from mixtree.policies.peers.pyxab import PyxabSearch
from mixtree.policies.peers.regmix import RegMix
from mixtree.policies.setting import Setting
from mixtree.search import SearchBase

__all__ = ["DIVISION", "PEERS", "Division", "Peer", "target_source"]


def target_source(setting: Setting, *, decay: bool = False) -> Chain:
    """Uniform over K + 1 sources, the validation rows being one more; ``decay``: the last half at 0.1×."""
    count = len(setting.names) + 1
    return fixed(np.full(count, 1.0 / count), budget=setting.budget, decay=decay)


PEERS: dict[str, Callable[[Setting], SearchBase]] = {
    "optuna-tpe": OptunaSearch,
    "optuna-tpe-warm": partial(OptunaSearch, warm=True),
    "optuna-gp": partial(OptunaSearch, sampler="gp"),
    "optuna-gp-warm": partial(OptunaSearch, sampler="gp", warm=True),
    "successive-halving": SuccessiveHalving,
    "pbt": Population,
    "pyxab-hoo": PyxabSearch,
    "pyxab-hct": partial(PyxabSearch, algorithm="hct"),
    "pyxab-soo": partial(PyxabSearch, algorithm="soo"),
    "online": OnlineMixing,
    "online+decay": partial(OnlineMixing, decay=True),
    "group-dro": GroupDro,
    "group-dro+decay": partial(GroupDro, decay=True),
    "mixmin": MixMin,
    "regmix": RegMix,
    "target-source": target_source,
    "target-source+decay": partial(target_source, decay=True),
}
"""Searches by id."""
