"""The theory as a calculator: every constant and bound of the paper, its misprints corrected.

What the numbers say is nearly always that no real budget is enough; they are a diagnostic, never a default.
Functions that estimate the constants of a data set live in ``mixtree.planning.constants``.
"""

from __future__ import annotations

from mixtree.schedules import Infeasible, Steps
from mixtree.theory.calculation import Calculation, NodeSteps, calculate, node_steps
from mixtree.theory.regret import (
    Dimension,
    height_reached,
    near_optimality,
    predicted_slope,
    regret_bound,
    regret_failure,
)
from mixtree.theory.sgd import (
    alpha_k,
    c1,
    c2,
    c_check,
    c_check_entries,
    c_hat,
    c_tilde,
    g0,
    log_c_check,
    log_c_hat,
    sgd_bound,
    sgd_failure,
    step_shift,
    step_size,
    v0,
)
from mixtree.theory.smoothness import (
    Constants,
    diameter_l1,
    diameter_l2,
    nu1,
    nu2,
    optimum_distance,
    optimum_spread,
    rho,
    rho2,
    value_spread,
)
from mixtree.theory.steps import (
    ClosedForm,
    TheorySchedule,
    steps_constant,
    steps_exponential,
    steps_failure,
    steps_full,
    theory_schedule,
)

__all__ = [
    "Calculation",
    "ClosedForm",
    "Constants",
    "Dimension",
    "Infeasible",
    "NodeSteps",
    "Steps",
    "TheorySchedule",
    "alpha_k",
    "c1",
    "c2",
    "c_check",
    "c_check_entries",
    "c_hat",
    "c_tilde",
    "calculate",
    "diameter_l1",
    "diameter_l2",
    "g0",
    "height_reached",
    "log_c_check",
    "log_c_hat",
    "near_optimality",
    "node_steps",
    "nu1",
    "nu2",
    "optimum_distance",
    "optimum_spread",
    "predicted_slope",
    "regret_bound",
    "regret_failure",
    "rho",
    "rho2",
    "sgd_bound",
    "sgd_failure",
    "step_shift",
    "step_size",
    "steps_constant",
    "steps_exponential",
    "steps_failure",
    "steps_full",
    "theory_schedule",
    "v0",
    "value_spread",
]
