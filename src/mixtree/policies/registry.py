"""Algorithms by the ids that every comparison knows: ``mixmatch-bisect+commit``, ``uniform+decay`` …"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mixtree.data.allocation import FOLDS, Allocation
from mixtree.data.folds import with_folds
from mixtree.data.sources import Sources
from mixtree.errors import InputError
from mixtree.estimate.covariates import importance_weighted, mmd_mixture
from mixtree.partition import PARTITIONS
from mixtree.policies import fixed as baselines
from mixtree.policies.auto import LEAST_TARGET_ROWS, Auto
from mixtree.policies.commit import ThenCommit, then_commit
from mixtree.policies.mixmatch_plus import MixmatchPlus
from mixtree.policies.peers import PEERS
from mixtree.policies.setting import Setting
from mixtree.search import SearchBase
from mixtree.simplex import as_mixture
from mixtree.tree_search import TreeSearch

MIXMATCH = {
    "mixmatch-ch": "halve",
    "mixmatch-chp": "halve_polytope",
    "mixmatch-dp": "delaunay",
    "mixmatch-bisect": "bisect",
}
PLUS = "mixmatch+"
COMMIT_SHARE = 0.5
CLASSIFIER_SHARE = 0.1
"""The part of the budget that trains importance weighting's domain classifier."""


def make_search(algorithm: str, setting: Setting) -> SearchBase:
    """The search behind an algorithm id.

    Parameters
    ----------
    algorithm
        An id, as ``auto`` or ``mixmatch-bisect+commit``.
    setting
        What it may know before it starts.

    Returns
    -------
    SearchBase

    Examples
    --------
    >>> import numpy as np
    >>> setting = Setting(("a", "b"), np.array([10, 30]), budget=40, steps=5)
    >>> make_search("pooled", setting).ask()[0].mixture
    array([0.25, 0.75])
    """
    name, suffix = _split(algorithm)
    if name in MIXMATCH and suffix in ("", "commit"):
        return _tree_search(MIXMATCH[name], setting, commit=suffix == "commit")
    if algorithm == "auto":
        return _auto(setting)
    if algorithm == PLUS:
        if setting.minimum is not None or setting.maximum is not None or setting.caps is not None:
            raise InputError(f"{PLUS}: leave out minimum, maximum and max_passes; mixmatch-ch knows them")
        return MixmatchPlus(setting)
    if setting.caps is not None and algorithm in PEERS:
        raise InputError(f"{algorithm} cannot limit passes over the rows: leave out max_passes")
    if algorithm in PEERS:
        return PEERS[algorithm](setting)
    if suffix == "commit":
        raise _unknown(algorithm, setting)
    if (setting.minimum is not None or setting.maximum is not None) and name not in ("validation", "genie"):
        raise InputError(
            f"{algorithm}: minimum and maximum weights bound a search, and this baseline's mixture is fixed; "
            f"leave them out or choose one of {', '.join(MIXMATCH)}"
        )
    search = _baseline(name, setting, decay=suffix == "decay")
    if search is None:
        raise _unknown(algorithm, setting)
    return search if setting.caps is None else search.within(setting.caps)


def _baseline(name: str, setting: Setting, *, decay: bool) -> baselines.Chain | None:
    count = len(setting.names)
    train: dict[str, Any] = {"budget": setting.budget, "segments": setting.segments}
    if name != "fine-tune":
        train["decay"] = decay
    if name == "uniform":
        return baselines.uniform(count, **train)
    if name == "pooled":
        if len(setting.sizes) != count:
            raise InputError(f"{name}: {len(setting.sizes)} source sizes but there are {count} sources")
        return baselines.pooled(setting.sizes, **train)
    if name == "validation":
        return baselines.validation(count, **train)
    if name == "mmd":
        return baselines.fixed(mmd_mixture(_data(setting, name), seed=setting.seed), **train)
    if name == "fine-tune" and not decay:
        return baselines.fine_tune(count, **train)
    if name == "importance":
        return baselines.importance(setting.sizes, steps=_classifier_steps(setting), **train)
    if name == "genie":
        alpha = setting.alpha if setting.alpha is None else as_mixture(setting.alpha, sources=count)
        return baselines.genie(alpha, **train)
    if name.startswith("only:"):
        source = name.removeprefix("only:")
        if source not in setting.names:
            known = ", ".join(map(repr, setting.names))
            raise InputError(f"{name}: unknown source {source!r}; the sources are {known}")
        return baselines.only(setting.names.index(source), count, **train)
    return None


def _split(algorithm: str) -> tuple[str, str]:
    """Name and suffix of an id; a source's own name may hold a "+"."""
    for suffix in ("commit", "decay"):
        if algorithm.endswith(f"+{suffix}"):
            return algorithm.removesuffix(f"+{suffix}"), suffix
    return algorithm, ""


def training_sources(algorithm: str, setting: Setting) -> Sources:
    """The sources that an algorithm trains on: as they are, with row weights, or with folds of the target.

    Parameters
    ----------
    algorithm
        Its id.
    setting
        With the rows as ``data``.

    Returns
    -------
    Sources

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> data = synthetic(sources=2, rows=40, validation=40, seed=0).sources
    >>> setting = Setting(data.names, data.sizes, budget=400, steps=20, data=data)
    >>> training_sources("uniform", setting) is data
    True
    >>> training_sources("auto", setting).names[2:]
    ('target fold 1', 'target fold 2')
    """
    data = _data(setting, algorithm)
    if algorithm == "auto" and _uses_folds(setting):
        return with_folds(data)
    if _split(algorithm)[0] != "importance":
        return data
    steps = _classifier_steps(setting)
    return importance_weighted(data, steps=steps, batch_size=setting.batch_size, seed=setting.seed)


def _auto(setting: Setting) -> Auto:
    if setting.minimum is not None or setting.maximum is not None:
        raise InputError(
            f"auto: minimum and maximum weights need a tree search; choose one of {', '.join(MIXMATCH)}"
        )
    _data(setting, "auto")
    return Auto(setting, folds=FOLDS if _uses_folds(setting) else 0)


def _uses_folds(setting: Setting) -> bool:
    rows = 0 if setting.data is None else len(setting.data.validation)
    return setting.use_target_rows and rows >= LEAST_TARGET_ROWS


def _classifier_steps(setting: Setting) -> int:
    return max(1, int(setting.budget * CLASSIFIER_SHARE))


def _data(setting: Setting, name: str) -> Sources:
    if setting.data is None:
        raise InputError(f"{name} looks at the sources' rows before it starts: give them in the setting")
    return setting.data


def kinds_of(algorithm: str) -> frozenset[str]:
    """Which kinds of policies an algorithm is of: ``tree``, and ``box`` of boxes; ``fixed``; ``auto``.

    >>> sorted(kinds_of("mixmatch-ch+commit")), sorted(kinds_of("uniform+decay")), sorted(kinds_of("pbt"))
    (['box', 'tree'], ['fixed'], [])
    """
    name, _ = _split(algorithm)
    if name in MIXMATCH:
        return frozenset({"tree", "box"} if MIXMATCH[name] == "halve" else {"tree"})
    if algorithm == "auto":
        return frozenset({"auto"})
    return frozenset(() if algorithm in (*PEERS, PLUS) else {"fixed"})


def known_algorithms(names: Sequence[str]) -> list[str]:
    """All ids for sources of these names."""
    mixing = [
        "uniform",
        "pooled",
        *(f"only:{name}" for name in names),
        "validation",
        "mmd",
        "importance",
        "genie",
    ]
    searches = [name + suffix for name in MIXMATCH for suffix in ("", "+commit")]
    return [
        "auto",
        PLUS,
        *searches,
        *(name + suffix for name in mixing for suffix in ("", "+decay")),
        "fine-tune",
    ]


def _tree_search(partition: str, setting: Setting, *, commit: bool) -> TreeSearch | ThenCommit:
    partitioning = PARTITIONS[partition]
    root = partitioning.root(len(setting.names), minimum=setting.minimum, maximum=_maximum(setting))
    search = TreeSearch(
        root,
        partitioning.split,
        budget=setting.budget,
        steps=setting.steps,
        seed=setting.seed,
        **setting.options,
    )
    return then_commit(search, COMMIT_SHARE, segments=setting.segments) if commit else search


def _maximum(setting: Setting) -> list[float] | None:
    """The greatest weights: those that were given, and those that the limit of passes allows."""
    given, caps = setting.maximum, setting.caps
    if caps is None:
        return None if given is None else list(given)
    most = Allocation.of(caps, len(setting.names)).sources
    if most.sum() < 1.0 - 1e-12:
        steps = int(
            round(most.sum() * setting.budget, 6)
        )  # a whole number may be a bit less in floating point
        raise InputError(
            f"so few passes over the sources' rows are {steps:,} steps, and the budget is "
            f"{setting.budget:,}: lower the budget, or allow more passes"
        )
    most = np.minimum(1.0, most / min(1.0, float(most.sum())))  # they may fit exactly, but for rounding
    return [float(each) for each in (most if given is None else np.minimum(most, given))]


def _unknown(algorithm: str, setting: Setting) -> InputError:
    return InputError(
        f"unknown algorithm {algorithm!r}; the algorithms are {', '.join(known_algorithms(setting.names))}; "
        f"peers to compare with: {', '.join(PEERS)}"
    )


def chooses(policy: str) -> bool:
    """Whether a policy looks at the validation rows at all: a fixed mixture does not."""
    name = policy.removesuffix("+decay")
    return not (name in ("uniform", "pooled", "genie") or name.startswith("only:"))
