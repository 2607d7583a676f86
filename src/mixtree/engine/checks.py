"""What a search asks for, checked before it is trained: a search may be anybody's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from mixtree.data.sources import Sources
from mixtree.errors import InputError, SearchError
from mixtree.places import is_text
from mixtree.search import Search, Trial, is_built_in
from mixtree.simplex import as_mixture
from mixtree.tree import Path
from mixtree.tree_search import TreeSearch


def source_names(trainer: object) -> tuple[str, ...]:
    """The names of a trainer's sources: those of its rows, or the ``names`` that it gives; else none."""
    sources = getattr(trainer, "sources", None)
    names = sources.names if isinstance(sources, Sources) else getattr(trainer, "names", ())
    found = tuple(map(str, names)) if isinstance(names, list | tuple) else ()
    if not all(map(is_text, found)):
        raise InputError(f"a source's name must be text that UTF-8 can hold; the trainer's are {found!r}")
    return found


def check_unused(search: Search) -> None:
    """A search remembers what it was told: every run needs a new one; resuming brings it up to date."""
    spent, before = getattr(search, "spent", 0), sum(dict(getattr(search, "charged", {})).values())
    if isinstance(spent, int) and spent > before:
        raise InputError(
            f"this {type(search).__name__} has been run already ({spent} steps are spent): make a new one "
            "for every run, and to resume a study too"
        )


class Checked:
    """Refuses rounds that no study can carry out; those of the built-in searches are known to be right."""

    def __init__(self, search: Search, trainer: object) -> None:
        self._name = type(search).__name__
        self._sources = len(source_names(trainer))
        self._tree_search = isinstance(search, TreeSearch)
        self._built_in = is_built_in(search)
        self.trusted = False
        """Whether nothing it asks for has to be looked at any more."""
        budget = getattr(search, "budget", None)
        self._budget = budget if isinstance(budget, int) and budget > 0 else None
        self.on_target = False
        """Whether the last round wants to train on the target's own rows, source K + 1."""

    def check(
        self, trials: Sequence[Trial], *, spent: int, known: Collection[Path], begun: Collection[Path]
    ) -> None:
        """``known`` are the paths of all nodes so far, ``begun`` those of rounds that were begun before."""
        self.trusted = self._built_in  # once its first round is known to fit the trainer
        if not isinstance(trials, list | tuple) or not all(isinstance(each, Trial) for each in trials):
            raise SearchError(f"{self._name}.ask must return a list of Trial; got {_short(trials)}")
        for trial in trials:
            self._check_weights(trial)
        if self._built_in:
            return
        paths = [trial.path for trial in trials]
        if len(set(paths)) < len(paths) or any(path in known and path not in begun for path in paths):
            twice = next(path for path in paths if paths.count(path) > 1 or path in known)
            raise SearchError(
                f"{self._name} asked for node {twice} twice: every trial needs a path of its own"
            )
        for trial in trials:
            self._check_trial(trial, known)
        cost = sum(trial.steps for trial in trials if trial.path not in known)
        if self._budget is not None and spent + cost > self._budget:
            raise SearchError(
                f"{self._name} asked for {cost} more steps: {spent} of its {self._budget} are spent"
            )

    def _check_weights(self, trial: Trial) -> None:
        weights = len(np.atleast_1d(trial.mixture))
        if not self._sources or weights == self._sources:
            return
        if self._built_in and not self._tree_search:  # a policy that knows what it does
            return
        self.on_target = weights == self._sources + 1 and not self._tree_search
        if self.on_target:
            return
        raise InputError(
            f"{self._name} asked for a mixture of {weights} sources (node {trial.path}), but the trainer has "
            f"{self._sources}: build the search for {self._sources}"
        )

    def _check_trial(self, trial: Trial, known: Collection[Path]) -> None:
        where = f"{self._name} asked for node {trial.path}"
        if isinstance(trial.steps, bool) or not isinstance(trial.steps, int | np.integer) or trial.steps < 1:
            raise SearchError(f"{where} with {trial.steps!r} steps: at least 1, and a whole number")
        if type(trial.path) is not tuple or any(type(index) is not int for index in trial.path):
            raise SearchError(f"{where}: a path is a tuple of plain whole numbers; seeds are made of it")
        number = isinstance(trial.lr_scale, int | float | np.number)
        if not number or not np.isfinite(trial.lr_scale) or trial.lr_scale <= 0:
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


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
