"""Other people's ways to find a mixture, written from their papers, behind the same Search protocol.

Each gets the same budget, is charged for every step, and divides it alike: 40 % to find a mixture, 60 % to
train on it, the last half of that at 0.1 × the step size (``Division``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from mixtree.policies.fixed import Chain, fixed
from mixtree.policies.setting import Setting
from mixtree.search import SearchBase

__all__ = ["PEERS", "target_source"]


def _made(place: str, setting: Setting, **options: Any) -> SearchBase:
    """The peer at ``module:class``, imported now: a study that uses none of them loads none."""
    module, name = place.split(":")
    make: Callable[..., SearchBase] = getattr(import_module(f"mixtree.policies.peers.{module}"), name)
    return make(setting, **options)


def target_source(setting: Setting, *, decay: bool = False) -> Chain:
    """Uniform over K + 1 sources, the validation rows being one more; ``decay``: the last half at 0.1×."""
    count = len(setting.names) + 1
    return fixed(np.full(count, 1.0 / count), budget=setting.budget, decay=decay)


PEERS: dict[str, Callable[[Setting], SearchBase]] = {
    "optuna-tpe": partial(_made, "optuna:OptunaSearch"),
    "optuna-tpe-warm": partial(_made, "optuna:OptunaSearch", warm=True),
    "optuna-gp": partial(_made, "optuna:OptunaSearch", sampler="gp"),
    "optuna-gp-warm": partial(_made, "optuna:OptunaSearch", sampler="gp", warm=True),
    "successive-halving": partial(_made, "halving:SuccessiveHalving"),
    "pbt": partial(_made, "population:Population"),
    "pyxab-hoo": partial(_made, "pyxab:PyxabSearch"),
    "pyxab-hct": partial(_made, "pyxab:PyxabSearch", algorithm="hct"),
    "pyxab-soo": partial(_made, "pyxab:PyxabSearch", algorithm="soo"),
    "online": partial(_made, "online:OnlineMixing"),
    "online+decay": partial(_made, "online:OnlineMixing", decay=True),
    "group-dro": partial(_made, "online:GroupDro"),
    "group-dro+decay": partial(_made, "online:GroupDro", decay=True),
    "mixmin": partial(_made, "mixmin:MixMin"),
    "regmix": partial(_made, "regmix:RegMix"),
    "target-source": target_source,
    "target-source+decay": partial(target_source, decay=True),
}
"""Searches by id."""
