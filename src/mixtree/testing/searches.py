"""Conformance of searches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mixtree.search import Search, as_search
from mixtree.seeds import derive_seed
from mixtree.testing.found import is_int, kind, listed
from mixtree.trainer import Evaluation
from mixtree.tree import Trial


def check_search(make: Callable[[], Search], *, budget: int, seed: int = 0) -> None:
    """A search stays within its budget, continues only models that exist, and depends on tells alone.

    Parameters
    ----------
    make
        Returns the same search, untouched, each time.
    budget
        What it was given.
    seed
        Of the values that it is told.
    """

    def noise(trial: Trial) -> float:
        return float(np.random.default_rng(derive_seed(seed, trial.path)).random())

    first = _drive(make(), budget, noise)
    second = _drive(make(), budget, noise, backwards=True)
    assert [trial.path for trial in first] == [trial.path for trial in second], (
        "the search depends on the order in which a round's outcomes arrive, or on hidden randomness"
    )
    for one, two in zip(first, second, strict=True):
        assert np.array_equal(one.mixture, two.mixture), f"trial {one.path}: another mixture the second time"
        assert one.steps == two.steps, f"trial {one.path}: another number of steps the second time"
    search, finite = make(), first[0].path
    _drive(search, budget, lambda trial: 1.0 if trial.path == finite else float("nan"))
    assert search.best().path == finite, "best: a diverged node was returned though a finite one exists"


def _drive(
    search: Search, budget: int, value: Callable[[Trial], float], *, backwards: bool = False
) -> list[Trial]:
    """All that the search asks for."""
    seen: dict[tuple[int, ...], Trial] = {}
    needed, held = as_search(search).needed, set[tuple[int, ...]]()
    spent = 0
    while trials := _asked(search):
        for trial in trials:
            _check_trial(trial)
            above = trial.path[:-1]
            assert not above or above in seen, (
                f"ask: trial {trial.path} continues a model that does not exist"
            )
            assert needed is None or not above or above in held or trial.merged is not None, (
                f"needed: the model of {above} was not needed, and trial {trial.path} continues it"
            )
            for path in () if trial.merged is None else trial.merged.paths:
                assert path in seen and seen[path].steps, (
                    f"ask: trial {trial.path} merges the model of {path}, which was never trained"
                )
                assert needed is None or path in held, (
                    f"needed: the model of {path} was not needed, and trial {trial.path} merges it"
                )
            spent += trial.steps
            assert spent <= budget, f"ask: the search asked for {spent} steps of a budget of {budget}"
        for trial in trials:
            assert trial.path not in seen, f"ask: path {trial.path} was asked for twice"
            seen[trial.path] = trial
        for trial in reversed(trials) if backwards else trials:
            search.tell(trial, Evaluation(value(trial), 0.1))
        if needed is not None:
            asked = held.union(trial.path for trial in trials)
            held = needed(asked)
            assert isinstance(held, set) and held <= asked, "needed must return a set of some of its paths"
    assert seen, "ask: the search asked for nothing"
    best = search.best().path
    assert best in seen and seen[best].steps, "best: the returned node was never trained"
    assert needed is None or search.best().path in held, "needed: the returned model was not needed"
    assert not _asked(search), "ask: a finished search asked for more"
    return list(seen.values())


def _asked(search: Search) -> list[Trial]:
    # Anything else may be true when it is empty, or be used up by the first look at it.
    return listed(search.ask(), "ask must return a list of trials, an empty one at the end")


def _check_trial(trial: Trial) -> None:
    assert isinstance(trial, Trial), f"ask: a round is a list of Trial; it holds {kind(trial)}"
    path, steps, mixture = trial.path, trial.steps, trial.mixture
    # A numpy number is written in another way than an int, into seeds and into databases.
    assert isinstance(path, tuple) and all(is_int(index) for index in path), (
        f"ask: a trial's path must be a tuple of ints; got {path!r}"
    )
    assert is_int(steps) and steps >= (trial.merged is None), (
        f"ask: the steps of trial {path} must be an int of at least 1; got {steps!r} ({type(steps).__name__})"
    )
    assert isinstance(mixture, np.ndarray) and mixture.ndim == 1 and mixture.dtype.kind in "fiu", (
        f"ask: the mixture of trial {path} must be an array with one number per source; got {mixture!r}"
    )
    assert abs(mixture.sum() - 1) < 1e-9, f"ask: the mixture of trial {path} does not sum to 1: {mixture}"
    assert mixture.min() >= 0, f"ask: the mixture of trial {path} has a negative weight: {mixture}"
