"""What a search asks for, checked before it is trained: a search may be anybody's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any

import numpy as np

from mixtree.data.allocation import has_target
from mixtree.data.sources import Sources
from mixtree.errors import InputError, SearchError
from mixtree.places import is_text
from mixtree.search import SearchBase
from mixtree.simplex import as_mixture
from mixtree.trainer import TrainerBase
from mixtree.tree import Merge, Path, Trial

CANNOT_MERGE = "this trainer cannot merge models (it has no merge): looks at merged models count as worst"
ON_TARGET = (
    "the search trains on the target's own validation rows (one weight more than there are sources): values "
    "on those rows no longer say how good such a model is"
)


def source_names(trainer: TrainerBase[Any]) -> tuple[str, ...]:
    """The names of a trainer's sources: those of its rows, or the ``names`` that it gives; else none."""
    names = trainer.sources.names if isinstance(trainer.sources, Sources) else trainer.names
    found = tuple(map(str, names)) if isinstance(names, list | tuple) else ()
    if not all(map(is_text, found)):
        raise InputError(f"a source's name must be text that UTF-8 can hold; the trainer's are {found!r}")
    return found


class Checked:
    """Refuses rounds that no study can carry out, in the name of the search that asked for them."""

    def __init__(self, search: SearchBase, trainer: TrainerBase[Any], *, name: str) -> None:
        self.name, self._search, self._trainer = name, search, trainer
        self._looks: set[Path] = set()
        self._sources = len(source_names(trainer))
        spent, before = search.spent, sum(dict(search.charged).values())
        if isinstance(spent, int) and spent > before:
            raise InputError(
                f"this {name} has been run already ({spent} steps are spent): make a new one for every run, "
                "and to resume a study too"
            )
        self.budget = search.budget if isinstance(search.budget, int) and search.budget > 0 else None

    def check(
        self, trials: Sequence[Trial], *, spent: int, known: Collection[Path], begun: Collection[Path]
    ) -> str | None:
        """A warning, if there is reason for one.

        ``known`` are the paths of all nodes so far, ``begun`` those of rounds that were begun before.
        """
        if not isinstance(trials, list | tuple) or any(not isinstance(each, Trial) for each in trials):
            text = repr(trials)
            short = text if len(text) <= 80 else f"{text[:77]}…"
            raise SearchError(f"{self.name}.ask must return a list of Trial; got {short}")
        cost, paths = 0, set[Path]()
        on_target = False
        for trial in trials:
            self._check_trial(trial, known)
            path = trial.path
            if path in paths or (path in known and path not in begun):
                raise SearchError(
                    f"{self.name} asked for node {path} twice: every trial needs a path of its own"
                )
            paths.add(path)
            if not trial.steps:
                self._looks.add(path)
            cost += trial.steps if path not in known else 0
            there = has_target(trial.mixture, self._sources) if self._sources else False
            if there is not False:
                on_target = True
                if there is None or self._search.on_target is False:
                    raise InputError(
                        f"{self.name} asked for a mixture of {len(trial.mixture)} sources (node {path}), but "
                        f"the trainer has {self._sources}: build the search for {self._sources}"
                    )
        if self.budget is not None and spent + cost > self.budget:
            raise SearchError(
                f"{self.name} asked for {cost} more steps: {spent} of its {self.budget} are spent"
            )
        if self._trainer.merge is None and not paths.isdisjoint(self._looks):
            return CANNOT_MERGE
        return ON_TARGET if on_target and self._search.on_target is None else None

    def _check_trial(self, trial: Any, known: Collection[Path]) -> None:
        # Thousands of nodes a second pass here: what is right is seen without numpy and without words.
        path, steps, mixture, scale = trial.path, trial.steps, trial.mixture, trial.lr_scale
        wrong = ""
        merged = trial.merged
        least = 1 if merged is None else 0
        if (type(steps) is not int and not isinstance(steps, np.integer)) or steps < least:
            wrong = f" with {steps!r} steps: at least {least}, and a whole number"
        elif merged is not None and (text := self._wrong_merge(merged, steps, known)):
            wrong = text
        elif merged is None and path and path[:-1] in self._looks:
            wrong = f", but its parent {path[:-1]} was only looked at: say what it merges"
        elif type(path) is not tuple or not _INT.issuperset(map(type, path)):
            wrong = ": a path is a tuple of plain whole numbers; seeds are made of it"
        elif not isinstance(scale, int | float | np.number) or not isfinite(scale) or scale <= 0:
            wrong = f" with a step size factor of {scale!r}: a number above 0"
        elif not isinstance(mixture, np.ndarray):
            wrong = f": a mixture is a numpy array, not a {type(mixture).__name__}"
        elif len(path) > 1 and path[:-1] not in known:
            wrong = f", but its parent {path[:-1]} was not asked for before"
        else:
            weights = mixture.tolist()
            if mixture.ndim == 1 and weights and min(weights) >= 0.0 and abs(sum(weights) - 1.0) < 1e-9:
                return
            try:
                as_mixture(mixture)
            except InputError as error:
                wrong = f": {error}"
        if wrong:
            raise SearchError(f"{self.name} asked for node {path}{wrong}")

    def _wrong_merge(self, merged: Any, steps: int | np.integer[Any], known: Collection[Path]) -> str:
        """What is wrong with the models that a trial starts from."""
        if not isinstance(merged, Merge) or not merged.paths or len(merged.paths) != len(merged.weights):
            return f": merged is a Merge of paths and as many weights; got {merged!r}"
        for path in merged.paths:
            if path not in known or path in self._looks:
                return f", which merges the model of {path}, and there is none"
        if not all(map(isfinite, merged.weights)) or abs(sum(merged.weights) - 1.0) > 1e-6:
            return f": the weights of merged models sum to 1; got {merged.weights}"
        if steps and self._trainer.merge is None:
            return ", which starts from merged models, and this trainer cannot merge any"
        return ""


_INT = frozenset([int])
