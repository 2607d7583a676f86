"""A comparison of algorithms on a user's tables: which of them, by which rules, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mixtree.data.sources import Problem, Sources
from mixtree.data.tables import TableData
from mixtree.data.typed import Layout
from mixtree.errors import InputError
from mixtree.events import Listener
from mixtree.experiments.comparison import Rules, Run, check_algorithm, compare, paired
from mixtree.experiments.rivals import RIVALS
from mixtree.fitting.options import OPTIONS, FitOptions
from mixtree.fitting.prepare import Prepared, flag_of, make_objective, make_setting, options_of
from mixtree.fitting.tables import prepare_tables
from mixtree.metrics import class_names
from mixtree.policies.registry import MIXMATCH
from mixtree.stats.selection import nested_folds
from mixtree.storage.base import Storage
from mixtree.trainers.registry import make_trainer
from mixtree.verdict import Difference
from mixtree.verdict.references import Extra, View, attribution

_ALONE = 10
"""Sources that are tried alone unless told."""


@dataclass(frozen=True, eq=False, slots=True)
class Contest:
    """Algorithms on the same tables at the same budget; one problem for each repeat."""

    options: FitOptions
    prepared: Prepared
    """What is common to all algorithms, of the first repeat."""
    problems: tuple[Problem, ...]
    algorithms: list[str]
    """The first one is compared with the others."""
    rules: Rules
    notes: list[str]
    labels: tuple[Any, ...]
    scored_on: str
    """Test rows, held-out rows, or validation rows."""
    layout: Layout
    """The columns of the tables, for rivals."""

    @classmethod
    def of(
        cls,
        data: Sequence[TableData],
        options: FitOptions,
        *,
        algorithms: Sequence[str] = (),
        first: str | None = None,
        reference: str | None = None,
        time_limit: float | None = None,
    ) -> Contest:
        """The comparison of these algorithms on tables of every repeat.

        Parameters
        ----------
        data
            The tables, read once for every repeat: with its own split of the target.
        options
            Of a fit, whose seed is that of the first repeat. Some may be known to some algorithms only.
        algorithms
            Ids; a few usual ones, if none is named.
        first
            The one that the others are compared with, by default the first of them.
        reference
            Baselines to add: uniform, all, none; by default those that go with the usual algorithms.
        time_limit
            Seconds for every run.

        Returns
        -------
        Contest
        """
        # What is common to all algorithms: options that only some of them know would decide on one of these.
        some = {name: each.default for name, each in OPTIONS.items() if each.known_to}
        kept = options.use_target_rows  # which auto knows
        common = replace(options, **{**some, "policy": "auto", "use_target_rows": kept})
        fits = [
            prepare_tables(each, replace(common, seed=options.seed + repeat))
            for repeat, each in enumerate(data)
        ]
        prepared, names = fits[0], data[0].problem_sources
        chosen = prepared.chosen
        found, told = _algorithms(list(algorithms), first, reference, options, names)
        setting = make_setting(prepared.sources, options, chosen)
        rules = Rules(
            chosen.budget,
            setting.steps,
            chosen.metric,
            setting.options,
            chosen.batch_size,
            objective=lambda problem: make_objective(options, chosen, problem.sources),
            use_target_rows=setting.use_target_rows,
            auto=setting.auto,
            minimum=setting.minimum,
            maximum=setting.maximum,
            caps=setting.caps,
            stop_early=options.stop_early,
            time_limit=time_limit,
        )
        tested = prepared.role == "test"
        judged = options.nested or all(each.judges is not None for each in fits)
        return cls(
            options,
            replace(prepared, chosen=replace(chosen, notes=chosen.notes[1:])),  # the first is of the policy
            tuple(problem for each in fits for problem in _problems(each)),
            found,
            rules,
            [*told, *_for_some(options, found)],
            tuple(data[0].classes or ()),
            "test rows" if tested else "held-out rows" if judged else "validation rows",
            data[0].preprocessor.layout,
        )

    @property
    def judged(self) -> bool:
        """Whether every repeat has rows that chose nothing."""
        return all(problem.test is not None for problem in self.problems)

    def check(self) -> None:
        """An error for an algorithm that cannot run."""
        for problem in self.problems:
            for algorithm in self.algorithms:
                check_algorithm(algorithm, self.rules, problem)

    @property
    def steps(self) -> int:
        """Of all runs; rivals have none."""
        searches = sum(algorithm not in RIVALS for algorithm in self.algorithms)
        return searches * len(self.problems) * self.rules.budget

    def run(
        self,
        *,
        workers: int | str = 1,
        listeners: Sequence[Listener] = (),
        storage: Storage | None = None,
        study: str = "",
    ) -> tuple[list[Run], dict[str, Difference]]:
        """All runs, and the first algorithm's score less the others', if there are rows for it.

        Parameters
        ----------
        workers
            Processes that train.
        listeners
            Are told the events of all runs.
        storage
            Keeps every run, so that the same comparison goes on where it was cut.
        study
            The first part of their names there.

        Returns
        -------
        tuple
            The runs, and differences by the other algorithms' ids.
        """

        def trainer(problem: Problem) -> Any:
            return make_trainer(self.prepared.options.model, problem.sources, self.prepared.model)

        predictions: dict[tuple[str, int], Any] = {}
        with class_names(self.labels or None, told=True):
            runs = compare(
                self.problems,
                self.algorithms,
                make_trainer=trainer,
                rules=self.rules,
                seed=self.options.seed,
                workers=workers,
                listeners=listeners,
                predictions=predictions,
                retry=True,
                storage=storage,
                study=study,
                layout=self.layout,
            )
        if not self.judged:
            return runs, {}
        scale = self.prepared.scale
        own = {place: scale.back(each) for place, each in predictions.items()}
        tests = [scale.rows_back(each.test) for each in self.problems if each.test is not None]
        return runs, paired(own, tests, self.prepared.metric, algorithms=self.algorithms)

    def happened(self, runs: Sequence[Run]) -> list[str]:
        """What the sources are worth, if that was asked for, and what went otherwise than planned."""
        return [*self._worth(runs), *_slowed(runs), *_stopped(runs)]

    def _worth(self, runs: Sequence[Run]) -> list[str]:
        """What each source is worth in the first algorithm's mixture of the first repeat, as in a fit."""
        if self.prepared.attribution is None or not runs[0].mixture:
            return []
        problem, names = self.problems[0], self.prepared.sources.names
        apart = problem.test is not None
        view = View(problem.sources.validation if problem.test is None else problem.test, apart)
        mixture = np.array([runs[0].mixture[name] for name in names])
        return attribution(Extra(self.prepared, runs[0].budget), mixture, view, self.prepared.metric)


def _problems(prepared: Prepared) -> list[Problem]:
    """What the algorithms are run on in a repeat: the rows, or those without each fold that scores."""
    sources, rows = prepared.sources, prepared.sources.validation
    if not prepared.nested:
        return [Problem("table", sources, prepared.judges)]
    folds = nested_folds(rows, sources.classes, prepared.seed)
    if folds is None:
        raise InputError(
            f"--nested: {len(rows)} validation rows, or those of a class, are too few to choose and to score"
        )
    return [
        Problem(
            "table",
            replace(sources, validation=rows.take(np.flatnonzero(folds != fold))),
            rows.take(np.flatnonzero(folds == fold)),
        )
        for fold in range(folds.max() + 1)
    ]


def _algorithms(
    named: list[str], first: str | None, reference: str | None, options: FitOptions, sources: Sources
) -> tuple[list[str], list[str]]:
    """What is compared, the one that the others are compared with first; and what is said of it."""
    notes: list[str] = []
    if not named:
        # Maximum weights only one tree search keeps.
        boxes = options.given("maximum", "max_passes")
        named = ["auto", "mixmatch-ch+commit" if boxes else "mixmatch-bisect+commit"]
        reference = reference or "default"
    found = [*([first] if first else []), *named]
    if reference in ("uniform", "all", "default"):
        found += ["uniform", "uniform+decay"]
    if reference in ("all", "default"):
        sizes = sources.sizes.tolist()
        largest = sorted(range(len(sizes)), key=lambda place: -sizes[place])[:_ALONE]
        if len(sources) > _ALONE:
            others = "--algorithms only:NAME+decay names others"
            notes.append(f"of the {len(sources)} sources the {_ALONE} largest are tried alone; {others}")
        found += ["pooled+decay", *(f"only:{sources.names[place]}+decay" for place in sorted(largest))]
        found += ["validation", "fine-tune"] if reference == "default" else ["validation+decay"]
    return list(dict.fromkeys(found)), notes


def _for_some(options: FitOptions, algorithms: list[str]) -> list[str]:
    """Which algorithms keep to options that not all know; an error where none does and one has to."""
    asked: dict[tuple[str, ...], list[str]] = {}
    for name in options.given():
        if not OPTIONS[name].known_to:
            continue
        flag = flag_of(OPTIONS[name])
        knowing = tuple(each for each in algorithms if each not in RIVALS and name in options_of(each))
        if not knowing and OPTIONS[name].binding:
            who = [each for each in MIXMATCH if name in options_of(each)]
            raise InputError(
                f"{flag}: none of the algorithms keeps to it; add one that does (--algorithms "
                f"{', '.join(who)}, each with or without +commit), or leave it out"
            )
        if len(knowing) < len(algorithms):
            asked.setdefault(knowing, []).append(flag)
    return [
        f"{', '.join(flags)}: for {', '.join(knowing)}; the others run without"
        if knowing
        else f"{', '.join(flags)}: for none of these algorithms"
        for knowing, flags in asked.items()
    ]


def _slowed(runs: Sequence[Run]) -> list[str]:
    """Which algorithms were trained with smaller steps, since they diverged with the usual ones."""
    found: dict[tuple[str, int], list[str]] = {}
    for name in dict.fromkeys(each.algorithm for each in runs):
        own = [each.lr_scale for each in runs if each.algorithm == name and not each.diverged]
        slow = [rate for rate in own if rate < 1.0]
        if slow:
            rates = " and ".join(f"{rate:g}" for rate in sorted(set(slow)))
            found.setdefault((rates, len(slow)), []).append(name)
    repeats = 1 + max(each.repeat for each in runs)
    return [
        f"trained at {rates} × the usual step size in {count} of {repeats} repeats, since larger ones "
        f"diverged: {', '.join(names)}; the steps until then come on top of the budget"
        for (rates, count), names in found.items()
    ]


def _stopped(runs: Sequence[Run]) -> list[str]:
    """Which algorithms the time limit ended."""
    found: dict[str, list[Run]] = {}
    for each in runs:
        if not each.finished:
            found.setdefault(each.algorithm, []).append(each)
    told = []
    for name, own in found.items():
        repeats, least = sum(each.algorithm == name for each in runs), min(map(_steps, own))
        told.append(
            f"the time limit ended {name} in {len(own)} of {repeats} repeats, after {least:,} of "
            f"{own[0].budget:,} steps at the earliest"
        )
    return told


def _steps(each: Run) -> int:
    return sum(each.spent.values())
