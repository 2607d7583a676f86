"""How sure, and compared with what: honest scores, comparisons, the mixture's uncertainty, in words."""

from mixtree.estimate.uncertainty import (
    MixtureUncertainty,
    Weight,
    hull_words,
    interchangeable,
    mixture_uncertainty,
    shapley,
)
from mixtree.stats.intervals import (
    Difference,
    Repeat,
    Role,
    ScoreInterval,
    corrected,
    honest_score,
    paired_difference,
    repeated_difference,
)
from mixtree.stats.selection import CrossFit, cross_fitted, holdout, label_folds, out_of_fold
from mixtree.stats.selection_bias import Outlook, climbs, expected_optimism, ladder, optimism, outlook
from mixtree.verdict.sentences import (
    Advice,
    Curve,
    Verdict,
    learning_curve,
    make_verdict,
    no_verdict,
    rows_or_budget,
    without_source,
)

__all__ = [
    "Advice",
    "CrossFit",
    "Curve",
    "Difference",
    "MixtureUncertainty",
    "Outlook",
    "Repeat",
    "Role",
    "ScoreInterval",
    "Verdict",
    "Weight",
    "climbs",
    "corrected",
    "cross_fitted",
    "expected_optimism",
    "holdout",
    "honest_score",
    "hull_words",
    "interchangeable",
    "label_folds",
    "ladder",
    "learning_curve",
    "make_verdict",
    "mixture_uncertainty",
    "no_verdict",
    "optimism",
    "out_of_fold",
    "outlook",
    "paired_difference",
    "repeated_difference",
    "rows_or_budget",
    "shapley",
    "without_source",
]
