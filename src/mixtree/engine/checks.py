"""What a search asks for, checked before it is trained: a search may be anybody's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import isfinite
from typing import Any

import numpy as np

from mixtree.data.sources import Sources
from mixtree.errors import InputError, SearchError
from mixtree.places import is_text
from mixtree.search import SearchBase
from mixtree.simplex import as_mixture
from mixtree.trainer import TrainerBase
from mixtree.tree import Path, Trial

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
        self.name, self._search = name, search
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
        if not isinstance(trials, list | tuple) or not all(isinstance(each, Trial) for each in trials):
            text = repr(trials)
            short = text if len(text) <= 80 else f"{text[:77]}…"
            raise SearchError(f"{self.name}.ask must return a list of Trial; got {short}")
        cost, paths = 0, set[Path]()
        on_target = False
        for trial in trials:
            self._check_trial(trial, known)
            path, weights = trial.path, len(trial.mixture)
            if path in paths or (path in known and path not in begun):
                raise SearchError(
                    f"{self.name} asked for node {path} twice: every trial needs a path of its own"
                )
            paths.add(path)
            cost += trial.steps if path not in known else 0
            if self._sources and weights != self._sources:
                on_target = True
                if weights != self._sources + 1 or self._search.on_target is False:
                    raise InputError(
                        f"{self.name} asked for a mixture of {weights} sources (node {path}), but the "
                        f"trainer has {self._sources}: build the search for {self._sources}"
                    )
        if self.budget is not None and spent + cost > self.budget:
            raise SearchError(
                f"{self.name} asked for {cost} more steps: {spent} of its {self.budget} are spent"
            )
        return ON_TARGET if on_target and self._search.on_target is None else None

    def _check_trial(self, trial: Trial, known: Collection[Path]) -> None:
        where = f"{self.name} asked for node {trial.path}"
        if isinstance(trial.steps, bool) or not isinstance(trial.steps, int | np.integer) or trial.steps < 1:
            raise SearchError(f"{where} with {trial.steps!r} steps: at least 1, and a whole number")
        if type(trial.path) is not tuple or any(type(index) is not int for index in trial.path):
            raise SearchError(f"{where}: a path is a tuple of plain whole numbers; seeds are made of it")
        number = isinstance(trial.lr_scale, int | float | np.number)
        if not number or not isfinite(trial.lr_scale) or trial.lr_scale <= 0:
            raise SearchError(f"{where} with a step size factor of {trial.lr_scale!r}: a number above 0")
        if not isinstance(trial.mixture, np.ndarray):
            raise SearchError(f"{where}: a mixture is a numpy array, not a {type(trial.mixture).__name__}")
        try:
            as_mixture(trial.mixture)
        except InputError as error:
            raise SearchError(f"{where}: {error}") from error
        parent = trial.path[:-1]
        if len(trial.path) > 1 and parent not in known:
            raise SearchError(f"{where}, but its parent {parent} was not asked for before")
