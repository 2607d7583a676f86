"""α* by maximum likelihood: a classifier tells the sources apart by (x, y), EM finds their shares."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from mixtree.data.sources import Rows, Sources
from mixtree.errors import InputError, TrainingError
from mixtree.estimate.moments import Prepared, prepare, share_of
from mixtree.estimate.solve import Estimate, Floats, Part, as_estimate, solve, summarise
from mixtree.simplex import Mixture, uniform_mixture

_ROWS, _FEWEST = 12_000, 300  # the classifier's: of all sources together, and of each at least
_SMALLEST = 1e-9  # probability that is distinguished from 0


def maximum_likelihood(
    sources: Sources, *, classifier: Any = None, moments: int | None = None, seed: int = 0
) -> Estimate:
    """The mixture under which the validation rows are most likely.

    A classifier learns which source a row (x, y) comes from. Its probabilities over the sources' shares are
    density ratios r_i(x, y), and the likelihood Σ log Σ_i α_i r_i is concave in α: EM finds its maximum. One
    more step calibrates that: the scores s_i = r_i / Σ_j α_j r_j near the maximum are averaged over held-out
    rows of every source (two folds), and α is solved from "mean score of the target = Σ α_i mean score of
    source i". That holds for any classifier; if it is right, the covariance is the inverse of the
    information matrix, as for maximum likelihood itself. The edge of the simplex:
    :mod:`mixtree.estimate.solve`.

    Parameters
    ----------
    sources
        The K sources and the validation rows, which stand for the target.
    classifier
        Any object with scikit-learn's ``fit`` and ``predict_proba``; a copy is fitted per fold. By default a
        multinomial logistic regression. Its columns are the functions x, y and x·y of
        :func:`mixtree.estimate.match_moments`.
    moments
        The most of these functions; by default up to 120.
    seed
        Draws rows where a source has more than are used.

    Returns
    -------
    Estimate
        α̂ with its covariance and intervals.

    Raises
    ------
    InputError
        If the classifier has no ``fit`` or no ``predict_proba``.
    TrainingError
        If its probabilities are not finite, or not one column per source.

    References
    ----------
    Saerens, Latinne, Decaestecker, Adjusting the Outputs of a Classifier to New a Priori Probabilities,
    Neural Computation 2002.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> problem = synthetic(alpha=[0.7, 0.2, 0.1], validation=400, test=1)
    >>> maximum_likelihood(problem.sources).alpha.round(1)
    array([0.7, 0.2, 0.1])
    """
    prepared = prepare(sources, moments=moments, seed=seed)
    return likely_prepared(Ratios.fit(prepared, classifier), sources.validation, names=sources.names)


def likely_prepared(ratios: Ratios, target: Rows, *, names: tuple[str, ...]) -> Estimate:
    """As :func:`maximum_likelihood`, with the sources' part done before: for many targets.

    Parameters
    ----------
    ratios
        The classifiers fitted to the sources.
    target
        Labelled rows of the target.
    names
        The sources' names, for notes.

    Returns
    -------
    Estimate
        α̂ with its covariance and intervals.
    """
    share = share_of(target)
    table = ratios.prepared.table(target)
    of_target = [model(table) for model in ratios.models]
    alpha = em(np.exp(np.mean(np.log(of_target), axis=0)), share)
    # Any mixture would do for the scores, the target's is best; half of uniform in it bounds them by 2 K.
    around = (alpha + uniform_mixture(len(names))) / 2.0

    def scores(values: Floats) -> Floats:
        # Their mean weighted by α is 1 in every row, so the last one follows from the others.
        return (values / (values @ around)[:, None])[:, : max(1, len(names) - 1)]

    summary = summarise(
        [
            Part.of(scores(values), share)
            for values, share in zip(ratios.of_sources, ratios.shares, strict=True)
        ]
    )
    equations = summary.equations(np.mean([scores(values) for values in of_target], axis=0), share)
    return as_estimate(
        solve(equations),
        method="maximum likelihood",
        n=len(target),
        names=names,
        notes=ratios.prepared.notes(names),
    )


def em(ratios: Floats, share: Floats, *, tolerance: float = 1e-7, rounds: int = 1000) -> Mixture:
    """argmax over the simplex of Σ_n s_n log Σ_i α_i r_i(n), by expectation–maximisation.

    Each round sets α_i to the average over rows of source i's share of the row, α_i r_i / Σ_j α_j r_j.

    Parameters
    ----------
    ratios
        Density ratios r, (rows, K).
    share
        Row weights s that sum to 1.
    tolerance
        Change of a weight at which the rounds stop.
    rounds
        The most rounds.

    Returns
    -------
    Mixture
        Weights (K,).

    Examples
    --------
    >>> em(np.array([[3.0, 1.0], [3.0, 1.0], [0.5, 2.0]]), np.full(3, 1 / 3)).round(2)
    array([0.72, 0.28])
    """
    alpha = uniform_mixture(ratios.shape[1])
    for _ in range(rounds):
        gain = (share / (ratios @ alpha)) @ ratios
        alpha, before = alpha * gain, alpha
        alpha /= alpha.sum()
        if np.abs(alpha - before).max() < tolerance:
            break
    return alpha


@dataclass(frozen=True, eq=False, slots=True)
class Ratios:
    """Density ratios p_i / p of the sources: fitted models, and their values on held-out source rows."""

    prepared: Prepared
    models: list[_Model]
    of_sources: list[Floats]
    shares: list[Floats]

    @classmethod
    def fit(cls, prepared: Prepared, classifier: Any = None) -> Ratios:
        """Two models, each fitted to one half of every source's rows and applied to the other."""
        cap = max(_FEWEST, _ROWS // len(prepared.tables))
        tables = [table[:cap] for table in prepared.tables]
        shares = [share[:cap] / max(float(share[:cap].sum()), _SMALLEST) for share in prepared.shares]
        # A shift and a linear map that make the functions uncorrelated: a logistic fit then needs few rounds.
        table = np.vstack(tables)
        spread, vectors = scipy.linalg.eigh(np.cov(table.T, ddof=0).reshape(table.shape[1], -1))
        used = spread >= 1e-6 * spread[-1]  # at least one, should all be constant
        whiten = table.mean(axis=0), vectors[:, used] / np.sqrt(np.maximum(spread[used], 1e-12))
        values = [np.empty((len(table), len(tables))) for table in tables]
        models = []
        for fold in (0, 1):
            held = [np.arange(len(table)) % 2 == fold for table in tables]
            # A source of one row has to be on both sides.
            learn = [~mask if len(mask) > 1 else np.ones(1, dtype=np.bool_) for mask in held]
            model = _Model.fit(
                [table[mask] for table, mask in zip(tables, learn, strict=True)],
                [share[mask] for share, mask in zip(shares, learn, strict=True)],
                whiten,
                classifier,
            )
            models.append(model)
            for value, table, mask in zip(values, tables, held, strict=True):
                value[mask] = model(table[mask]) if mask.any() else value[mask]
        return cls(prepared, models, values, shares)


@dataclass(frozen=True, eq=False, slots=True)
class _Model:
    """A fitted classifier seen as density ratios."""

    classifier: Any
    whiten: tuple[Floats, Floats]
    prior: Floats

    @classmethod
    def fit(
        cls, tables: list[Floats], shares: list[Floats], whiten: tuple[Floats, Floats], classifier: Any
    ) -> _Model:
        sizes = [len(table) for table in tables]
        if len(tables) == 1:
            return cls(None, whiten, np.ones(1))
        x = (np.vstack(tables) - whiten[0]) @ whiten[1]
        source = np.repeat(np.arange(len(tables)), sizes)
        weight = np.concatenate([share * len(share) / max(share.sum(), _SMALLEST) for share in shares])
        weighted = {} if np.ptp(weight) < 1e-9 else {"sample_weight": weight}
        if classifier is None:
            from sklearn.linear_model import LogisticRegression

            classifier = LogisticRegression(C=1.0, max_iter=100, tol=1e-3)
        model = copy.deepcopy(classifier)
        if not hasattr(model, "fit") or not hasattr(model, "predict_proba"):
            raise InputError(f"a source classifier needs fit and predict_proba; got {type(model).__name__}")
        with warnings.catch_warnings():
            # Without convergence or column names it is less precise, but still calibrated.
            warnings.simplefilter("ignore")
            fitted = model.fit(x, source, **weighted)
        return cls(fitted, whiten, np.array(sizes) / sum(sizes))

    def __call__(self, table: Floats) -> Floats:
        if self.classifier is None:
            return np.ones((len(table), 1))
        found = np.asarray(
            self.classifier.predict_proba((table - self.whiten[0]) @ self.whiten[1]), np.float64
        )
        if found.shape != (len(table), len(self.prior)) or not np.all(np.isfinite(found)):
            raise TrainingError(
                f"the source classifier gave probabilities of shape {found.shape}, or NaN; expected"
                f" {(len(table), len(self.prior))}: one finite column per source"
            )
        return np.maximum(found, _SMALLEST) / self.prior
