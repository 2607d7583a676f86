"""How sure, and compared with what: honest scores, comparisons, the mixture's uncertainty, in words."""

from mixtree.verdict.intervals import (
    Difference,
    Repeat,
    Role,
    ScoreInterval,
    corrected,
    honest_score,
    paired_difference,
    repeated_difference,
)
from mixtree.verdict.luck import Outlook, climbs, expected_optimism, ladder, optimism, outlook
from mixtree.verdict.mixture import (
    MixtureUncertainty,
    Weight,
    hull_words,
    interchangeable,
    mixture_uncertainty,
    shapley,
)
from mixtree.verdict.selection import CrossFit, cross_fitted, holdout, label_folds, out_of_fold
from mixtree.verdict.words import (
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
