"""Optuna's samplers as searches: tree-structured Parzen estimators and Gaussian processes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from mixtree.policies.peers.base import DIVISION, Division, Peer, optional
from mixtree.policies.peers.coordinates import EDGE, from_exponentials, to_exponentials
from mixtree.policies.script import Rounds
from mixtree.policies.setting import Setting

_SEEDS = 2**31  # Optuna's seeds are 32-bit
_MOST, _MOST_GP = 40, 20  # trials; a Gaussian process takes a good part of a second for each of them


class OptunaSearch(Peer):
    """Bayesian optimisation of the mixture by Optuna, one trial after the other.

    The mixture is α ∝ −log u for K parameters u in (0, 1), which makes uniform u uniform on the simplex; the
    first trial is uniform. A fresh trial starts from the initial model. A warm one continues the best model
    so far, and its plain loss is what Optuna is told: as models improve, late trials look better than early
    ones, which is what makes it look near the recent best ones. Budget: 40 % in trials of equal length; then
    the best model is continued on its mixture, the last half of that at 0.1 × the step size.

    References: Bergstra, Bardenet, Bengio, Kégl, Algorithms for Hyper-Parameter Optimization, 2011 (TPE);
    Snoek, Larochelle, Adams, Practical Bayesian Optimization of Machine Learning Algorithms, 2012 (Gaussian
    processes); Akiba et al., Optuna: A Next-generation Hyperparameter Optimization Framework, 2019.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        sampler: Literal["tpe", "gp"] = "tpe",
        warm: bool = False,
        division: Division = DIVISION,
    ) -> None:
        self._optuna = optional("optuna", f"optuna-{sampler}")
        if sampler == "gp":
            optional("torch", "optuna-gp", extra="torch")  # what Optuna's Gaussian process is written in
        super().__init__(setting, division=division, options={"sampler": sampler, "warm": warm})
        self._kind, self._warm = sampler, warm
        most = _MOST_GP if sampler == "gp" else _MOST
        self._count, self._steps = self._trial_plan(setting, most=most)

    def search(self) -> Rounds:
        if self._count:
            with self._silent():
                study = self._study()
        failed, worst = self._optuna.trial.TrialState.FAIL, None
        for _ in range(self._count):
            with self._silent():
                suggested = study.ask()
                names = [f"u{source}" for source in range(self._sources)]
                point = [suggested.suggest_float(name, EDGE, 1.0 - EDGE) for name in names]
            after = self._lowest.path if self._warm and self._lowest is not None else ()
            (node,) = yield [self._trial(from_exponentials(point), self._steps, after=after)]
            if not node.diverged:
                worst = node.value if worst is None else max(worst, node.value)
            with self._silent():
                # A failed trial is forgotten and its place may be tried again, so it counts as the worst.
                told = worst if node.diverged else node.value
                study.tell(suggested, told, state=failed if told is None else None)
        yield from self._finish_best()

    def _study(self) -> Any:
        samplers = self._optuna.samplers
        seed = self._seed % _SEEDS
        if self._kind == "gp":
            sampler = samplers.GPSampler(seed=seed)
        else:
            sampler = samplers.TPESampler(seed=seed, multivariate=True)
        study = self._optuna.create_study(sampler=sampler)  # in memory
        first = to_exponentials(self._uniform)
        study.enqueue_trial({f"u{source}": float(value) for source, value in enumerate(first)})
        return study

    @contextmanager
    def _silent(self) -> Iterator[None]:
        """Optuna without its log lines and its warnings that an interface may change one day."""
        logging = self._optuna.logging
        before = logging.get_verbosity()
        logging.set_verbosity(logging.ERROR)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", self._optuna.exceptions.ExperimentalWarning)
                yield
        finally:
            logging.set_verbosity(before)
