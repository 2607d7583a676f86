"""The calculator against a second one, written from the statements in mpmath; and what it refuses."""

from __future__ import annotations

import inspect
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from mixtree import theory
from mixtree.engine.study import run
from mixtree.errors import InputError
from mixtree.partition import PARTITIONS, bisect, simplex_root
from mixtree.policies.commit import then_commit
from mixtree.schedules import geometric
from mixtree.theory import Constants, Dimension, Infeasible, TheorySchedule
from mixtree.trainer import Evaluation, Job
from mixtree.tree_search import TreeSearch

UNIT = Constants(beta=1.0, mu=1.0, lipschitz=1.0, sigma=1.0, noise=0.5, diameter=1.0, sources=3)


def two_points(r):
    """½(w − z)² with sources z = −r and z = +r: optima in [−r, r], gradients at most 2r."""
    return Constants(
        beta=1.0,
        mu=1.0,
        lipschitz=2 * r,
        sigma=math.sqrt(8) * r,
        noise=4 * r * r,
        diameter=2 * r,
        sources=2,
    )


# --- the second computation ---


@pytest.fixture(autouse=True)
def _digits():
    with mp.workdps(60):
        yield


class Reference:
    """Every constant from its statement, as plain mpmath."""

    def __init__(self, c: Constants, budget: float, d0sq: mpf) -> None:
        self.mu, self.G, self.D = mpf(c.mu), mpf(c.noise), mpf(c.diameter)
        self.B, self.Lam, self.d = mpf(c.beta), mpf(budget), mpf(d0sq)
        self.kappa = self.B / self.mu
        self.l8 = mpmath.log(self.Lam**8)
        self.E = 4096 * self.kappa**2 * self.l8
        self.G0 = max(self.E * self.d, 8 * self.G / self.mu**2)
        self.Ct = self.D * mpmath.sqrt(8 * self.B**2 * self.D**2 + 2 * self.G)
        self.c1 = self.G0 + 8 * self.Ct / (self.mu * self.Lam**6)
        self.c2 = 4 * mpmath.sqrt(2) / self.mu
        self.V0 = 8 * self.d * (4 * self.B**2 * self.d + self.G) / (1 + self.E)

    def entries(self):
        first = self.V0 / self.l8
        second = (8 * self.G * self.c2 + min(2 / self.E, mpf(1))) ** 2
        third = 64 * self.B**2 * self.c1**2 / ((1 + self.E) * self.l8) + 8 * self.G * self.c1 / self.l8
        return first, second, third**2

    def check(self):
        return max(self.entries())

    def hat(self, k: int):
        if k == 0:
            return self.check() * self.l8
        a = mpmath.fsum(mpf(1) / 2**i for i in range(1, k + 1))
        before, e1 = self.hat(k - 1), self.E + 1
        c = mpmath.fsum(
            [
                64 * self.B**2 * self.c1**2 * e1 ** (a - 2),
                64 * self.B**2 * self.c2**2 * self.l8 * before * e1**-a,
                8 * self.G * self.c1 * e1 ** (a - 1),
                8 * self.G * self.c2 * mpmath.sqrt(self.l8 * before),
            ]
        )
        return 2**k * c + self.V0 * e1 * (2 + self.E) ** (a - 1)

    def bound(self, t, k: int):
        """After t steps, that is w_t: the statement with t − 1 for t."""
        a = 1 - mpf(2) ** -(k + 1)
        fast = self.G0 / (t + self.E)
        drift = 8 * t * self.Ct / (self.mu * (t + self.E) * self.Lam**7)
        slow = 4 * mpmath.sqrt(2 * self.l8) * mpmath.sqrt(self.hat(k)) / (self.mu * (t + self.E) ** a)
        return fast + drift + slow

    def smallest(self, target, k: int):
        """The smallest t ≥ 1, by the last root of the bound; None where it never comes down."""
        if self.bound(mpf(1), k) <= target:
            return 1
        floor = 8 * self.Ct / (self.mu * self.Lam**7)
        if floor >= target:
            return None
        slow = 4 * mpmath.sqrt(2 * self.l8 * self.hat(k)) / self.mu
        rest, gap = self.G0 - floor * self.E, target - floor
        if k == 0:  # gap·s − slow·√s − rest = 0
            root = (slow + mpmath.sqrt(slow**2 + 4 * gap * rest)) / (2 * gap)
            return int(mpmath.ceil(root**2 - self.E))
        # In log s it is positive at t = 1, negative far out, and crosses zero once.
        a = 1 - mpf(2) ** -(k + 1)
        far = mpmath.log(2 * (abs(rest) / gap + (2 * slow / gap) ** (1 / a) + self.E))

        def excess(u):
            return (rest * mpmath.exp(-u) + slow * mpmath.exp(-a * u)) / gap - 1

        near = mpmath.log(1 + self.E)
        u = mpmath.findroot(excess, (near, far), solver="anderson", tol=mpf(10) ** -105, maxsteps=500)
        return int(mpmath.ceil(mpmath.exp(u) - self.E))


def smoothness_of(c: Constants):
    s3 = mpmath.sqrt(3)
    nu1 = (4 * mpf(c.sigma) * mpmath.sqrt(2 * c.sources) / (s3 * mpf(c.mu))) ** 2
    rho = (s3 / 2) ** (mpf(2) / (c.sources - 1))
    return nu1, rho, mpf(c.lipschitz) * mpmath.sqrt(nu1), mpmath.sqrt(rho)


def node_of(height: int, c: Constants):
    nu1, rho, _, _ = smoothness_of(c)
    if height == 0:
        return mpf(c.diameter) ** 2, nu1
    return 4 * nu1 * rho ** (height - 1), nu1 * rho**height


def close(value, expected):
    assert abs(mpf(value) - expected) <= mpf("1e-9") * abs(expected), (value, expected)


def grid():
    for kappa, sources, size, noise in itertools.product(
        [1.0, 17.5, 1e6], [2, 3, 50], [1e-4, 3e5], [0.0, 0.3]
    ):
        mu = 0.02 if sources == 3 else 1.0
        spread = (kappa * mu * size) ** 2
        yield Constants(
            beta=kappa * mu,
            mu=mu,
            lipschitz=3.7 * size,
            sigma=math.sqrt(spread * (1 + noise)),
            noise=noise * spread,
            diameter=1.9 * size,
            sources=sources,
        )


BUDGETS = [3.0, 10**4, 10**8, 1e12]


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_constants_of_sgd_agree(budget):
    for c, d0sq in itertools.product(grid(), [1e-12, 4e9]):
        ref, given = Reference(c, budget, mpf(d0sq)), {"budget": budget}
        close(theory.step_shift(c.kappa, **given), 4096 * mpf(c.kappa) ** 2 * ref.l8)
        close(theory.step_size(0, c, **given), 2 / (ref.mu * ref.E))
        close(theory.step_size(10**9, c, **given), 2 / (ref.mu * (10**9 + ref.E)))
        close(theory.g0(d0sq, c, **given), ref.G0)
        close(theory.c_tilde(c), ref.Ct)
        close(theory.c1(d0sq, c, **given), ref.c1)
        close(theory.c2(c.mu), ref.c2)
        close(theory.v0(d0sq, c, **given), ref.V0)
        close(theory.c_check(d0sq, c, **given), ref.check())
        close(theory.log_c_check(d0sq, c, **given), mpmath.log(ref.check()))
        for k in (0, 3):
            close(theory.c_hat(k, d0sq, c, **given), ref.hat(k))
            close(theory.log_c_hat(k, d0sq, c, **given), mpmath.log(ref.hat(k)))
            close(theory.alpha_k(k), mpmath.fsum(mpf(2) ** -i for i in range(1, k + 1)))


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_bound_of_the_final_iterate_agrees(budget):
    for c, d0sq in itertools.product(grid(), [1e-12, 4e9]):
        ref = Reference(c, budget, mpf(d0sq))
        for k, t in itertools.product((0, 3), (1, 12345, 10**18)):
            close(theory.sgd_bound(t, d0sq, c, budget=budget, k=k), ref.bound(mpf(t), k))
    close(theory.sgd_failure(7, budget=budget), 7 / mpf(budget) ** 8)
    close(theory.steps_failure(budget=budget), mpf(budget) ** -7)
    close(theory.regret_failure(budget=budget), mpf(budget) ** -3)


def test_smoothness_and_diameters_agree():
    for c in grid():
        nu1, rho, nu2, rho2 = smoothness_of(c)
        close(theory.nu1(sigma=c.sigma, mu=c.mu, sources=c.sources), nu1)
        close(theory.rho(c.sources), rho)
        close(theory.nu2(sigma=c.sigma, mu=c.mu, lipschitz=c.lipschitz, sources=c.sources), nu2)
        close(theory.rho2(c.sources), rho2)
        close(theory.optimum_distance(0.3, sigma=c.sigma, mu=c.mu), 2 * mpf(c.sigma) * mpf(0.3) / mpf(c.mu))
        for h in (0, 1, 7, 500):
            close(theory.optimum_spread(h, c), nu1 * rho**h)
            close(theory.value_spread(h, c), nu2 * rho2**h)
            half = mpmath.sqrt(3) / 2
            close(
                theory.diameter_l2(h, sources=c.sources),
                mpmath.sqrt(2) * half ** math.floor(mpf(h) / (c.sources - 1)),
            )
            close(
                theory.diameter_l1(h, sources=c.sources),
                mpmath.sqrt(2 * c.sources) * half ** (mpf(h) / (c.sources - 1) - 1),
            )


@pytest.mark.parametrize("budget", [3.0, 10**8, 1e12])
@pytest.mark.parametrize("k", [0, 2])
def test_the_steps_of_the_full_condition_agree_to_the_last_step(budget, k):
    problems = [*itertools.islice(grid(), 0, None, 5), two_points(1e-4), two_points(6e-5), two_points(1e-9)]
    kinds = set()
    for c, height in itertools.product(problems, (0, 1, 60)):
        d0sq, target = node_of(height, c)
        expected = Reference(c, budget, d0sq).smallest(target, k)
        found = theory.steps_full(height, c, budget=budget, k=k)
        if isinstance(found, int):
            assert found == expected < budget
            kinds.add("one" if found == 1 else "number")
        else:
            if expected is None or expected < 10**40:
                assert found.needed == expected
            else:
                close(found.needed, mpf(expected))
            assert expected is None or expected >= budget
            kinds.add("never" if expected is None else "too many")
    assert "too many" in kinds
    if budget == 3.0:
        assert "never" in kinds  # Λ^-7 is not small yet
    else:
        assert {"one", "number"} & kinds


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_closed_forms_agree(budget):
    for c, height in itertools.product(grid(), (1, 2, 90)):
        d0sq, target = node_of(height, c)
        ref = Reference(c, budget, d0sq)
        _, rho, _, _ = smoothness_of(c)
        k_hat = ref.D**2 / (d0sq * ref.Lam**6)
        numerator = mpmath.fsum(
            [
                4 * ref.E,
                64 * mpmath.sqrt(2) * ref.kappa * k_hat,
                16 * mpmath.sqrt(ref.E * k_hat) / ref.Lam**3,
                128 * ref.kappa * mpmath.sqrt(ref.l8),
                16 * mpmath.sqrt(2 * ref.E * ref.l8),
            ]
        )
        flat = theory.steps_constant(height, c, budget=budget)
        close(flat.formula, (numerator / (rho * mpmath.sqrt(1 + ref.E))) ** 2 - ref.E)
        steep = theory.steps_exponential(height, c, budget=budget)
        close(steep.formula, (4 * mpmath.sqrt(2 * ref.check()) * ref.l8 / (ref.mu * target)) ** 2 - ref.E)


@pytest.mark.parametrize("budget", BUDGETS)
def test_one_answer_has_the_numbers_of_each_function(budget):
    for c, height in itertools.product(itertools.islice(grid(), 0, None, 7), (0, 1, 60)):
        d0sq, target = node_of(height, c)
        ref = Reference(c, budget, d0sq)
        entries = ref.entries()
        for found, expected in zip(
            theory.c_check_entries(float(d0sq), c, budget=budget), entries, strict=True
        ):
            close(found, expected)
        node = theory.node_steps(height, c, budget=budget)
        needed = [ref.smallest(target, k) for k in range(4)]
        known = [each for each in needed if each is not None]
        assert (node.needed is None) == (not known)
        if known:
            close(node.needed, mpf(min(known)))
            close(needed[node.k], mpf(min(known)))
        assert node.largest == 1 + entries.index(max(entries))
        close(node.log_c_check, mpmath.log(max(entries)))
    found = theory.calculate(c, budget=budget, heights=1, steps=7, dimension=Dimension(0.5, 2.0))
    assert found.nodes == tuple(theory.node_steps(h, c, budget=budget) for h in range(2))
    nu1, _, nu2, _ = smoothness_of(c)
    close(found.derived["nu1"], nu1)
    close(found.derived["nu2"], nu2)
    close(found.derived["step_shift"], ref.E)
    close(found.derived["first_step_size"], 2 / (ref.mu * ref.E))
    args = {"budget": budget, "dimension": Dimension(0.5, 2.0), "rho2": theory.rho2(c.sources)}
    assert found.reached == theory.height_reached(7, **args)
    json.dumps(found.as_dict(), allow_nan=False)


def test_the_height_and_the_regret_agree():
    for d, scale, steps, budget in itertools.product(
        [0.0, 0.3, 2.5], [1.0, 7.5], [1, 50], [200, 10**6, 1e12]
    ):
        for ratio in (0.5, theory.rho2(50)):
            answer = theory.height_reached(steps, budget=budget, dimension=Dimension(d, scale), rho2=ratio)
            assert isinstance(answer, int)
            h = answer - 1
            q = mpf(ratio) ** -mpf(d)

            def cells(h, q=q, scale=scale, steps=steps):
                total = h + 1 if q == 1 else (q ** (h + 1) - 1) / (q - 1)
                return 2 * mpf(scale) * steps * total

            assert cells(h) > mpf(budget) - 2 * steps
            assert h == 0 or cells(h - 1) <= mpf(budget) - 2 * steps
            if mpf(ratio) ** h > mpf("1e-300"):
                close(theory.regret_bound(answer, nu2=3.0, rho2=ratio), 12 * mpf(ratio) ** h)
            else:  # no float is that small
                assert theory.regret_bound(answer, nu2=3.0, rho2=ratio) < 1e-290


@pytest.mark.parametrize("budget", [10**8, 1e12])
def test_the_height_agrees_where_the_steps_grow_with_it(budget):
    for d, ratio, growth in itertools.product([0.0, 1.3], [0.5, theory.rho2(50)], [1.01, 1.5]):
        steps = geometric(40, growth)
        found = theory.height_reached(steps, budget=budget, dimension=Dimension(d, 2.0), rho2=ratio)
        total, height = mpf(0), 0
        while True:
            total += 4 * steps(height) * mpf(ratio) ** (-mpf(d) * height)
            if total > mpf(budget) - 2 * steps(height + 1):
                break
            height += 1
        assert found == height + 1


@settings(max_examples=40, deadline=None)
@given(
    counts=st.lists(st.floats(1.0, 1e12), min_size=4, max_size=30),
    rho2=st.sampled_from([0.5, 0.9, theory.rho2(50)]),
)
def test_the_near_optimality_dimension_agrees(counts, rho2):
    with mp.workdps(60):
        logs, unit = [mpmath.log(mpf(each)) for each in counts], -mpmath.log(mpf(rho2))
        tail = list(range(len(counts) // 2, len(counts)))
        system = mpmath.matrix([[mpf(h) * unit, mpf(1)] for h in tail])
        right = mpmath.matrix([logs[h] for h in tail])
        slope = mpmath.lu_solve(system.T * system, system.T * right)[0]
        found = theory.near_optimality(counts, rho2=rho2)
        # Nearly equal counts cancel: what a float's rounding of them can move the slope by.
        slack = mpf("1e-9") * abs(slope) + mpf("1e-13") * max(1, *map(abs, logs)) / unit
        assert abs(mpf(found.d) - max(mpf(0), slope)) <= slack
        bounds = [mpmath.log(mpf(found.scale)) + mpf(found.d) * h * unit for h in range(len(counts))]
        gaps = [bound - log for bound, log in zip(bounds, logs, strict=True)]
        assert abs(min(gaps)) <= mpf("1e-9")


def test_the_predicted_slopes_agree():
    for d in (1e-6, 0.5, 49.0, 1e6):
        close(theory.predicted_slope(d, regime="constant"), -1 / mpf(d))
        close(theory.predicted_slope(d, regime="exponential"), -1 / (mpf(d) + 4))


def test_every_public_function_has_a_second_computation():
    here = Path(__file__).read_text(encoding="utf-8")
    second = here[here.index("# --- the second computation") : here.index("# --- what must hold")]
    functions = [name for name in theory.__all__ if inspect.isfunction(getattr(theory, name))]
    missing = [name for name in functions if f"theory.{name}(" not in second]
    assert missing == ["theory_schedule"]  # steps_full as a schedule; tested below


def test_numbers_that_no_float_holds_are_infinite_or_zero_not_errors():
    huge = Constants(
        beta=1e150, mu=1e-150, lipschitz=1e300, sigma=1e300, noise=1e300, diameter=1e300, sources=3
    )
    assert theory.nu1(sigma=1e300, mu=1e-150, sources=3) == math.inf
    assert theory.nu2(sigma=1e300, mu=1e-150, lipschitz=1.0, sources=3) == math.inf
    assert theory.c_hat(2, 1e300, huge, budget=1e12) == math.inf
    assert math.isfinite(theory.log_c_hat(2, 1e300, huge, budget=1e12))
    assert theory.sgd_bound(10**400, 1e300, huge, budget=1e12) == math.inf
    assert theory.diameter_l1(10**18, sources=2) == theory.diameter_l2(10**18, sources=2) == 0.0
    assert theory.regret_bound(10**18, nu2=1.0, rho2=0.5) == 0.0
    assert theory.step_size(10**400, UNIT, budget=10.0) == 0.0
    assert isinstance(theory.steps_full(10**9, huge, budget=1e12), Infeasible)


# --- what must hold of the numbers ---


def test_one_node_costs_about_ten_million_steps_in_the_best_case():
    form = theory.steps_constant(1, UNIT, budget=10**6)
    assert isinstance(form.steps, Infeasible)
    assert 8e6 < form.formula < 2e7
    assert form.steps.needed == math.ceil(form.formula)


@settings(max_examples=60, deadline=None)
@given(
    kappa=st.floats(1.0, 1e4),
    mu=st.floats(1e-6, 1e3),
    size=st.floats(1e-8, 1e4),
    noise=st.floats(0.0, 1.0),
    log_budget=st.floats(1.0, 14.0),
    height=st.integers(1, 40),
    sources=st.integers(2, 12),
)
def test_closed_forms_bracket_the_full_condition(kappa, mu, size, noise, log_budget, height, sources):
    spread = (kappa * mu * size) ** 2
    c = Constants(
        beta=kappa * mu,
        mu=mu,
        lipschitz=1.0,
        sigma=math.sqrt(spread * (1 + noise)),
        noise=noise * spread,
        diameter=size,
        sources=sources,
    )
    budget = 10**log_budget
    full = theory.steps_full(height, c, budget=budget)
    needed = full if isinstance(full, int) else full.needed
    steep = theory.steps_exponential(height, c, budget=budget)
    assert needed is None or needed >= math.floor(steep.formula * (1 - 1e-12))
    # The constant regime asks for E d0² ≥ 8𝒢/μ² and for V0 to be the largest: the two exclude each other.
    assert not theory.steps_constant(height, c, budget=budget).valid
    if needed is not None and needed < 10**40:
        target = theory.optimum_spread(height, c)
        start = 4 * theory.optimum_spread(height - 1, c)
        assert theory.sgd_bound(needed, start, c, budget=budget) <= target * (1 + 1e-9)
        if needed > 1:
            assert theory.sgd_bound(1, start, c, budget=budget) > target * (1 - 1e-9)


def test_whole_numbers_may_be_numpys():
    three, c = np.int64(3), replace(UNIT, sources=np.int64(3))
    for call in (
        lambda height, c: theory.optimum_spread(height, c),
        lambda height, c: theory.value_spread(height, c),
        lambda height, c: theory.diameter_l1(height, sources=c.sources),
        lambda height, c: theory.step_size(height, c, budget=1e6),
        lambda height, c: theory.sgd_bound(height, 1.0, c, budget=1e6, k=height),
        lambda height, c: theory.sgd_failure(height, budget=1e6),
        lambda height, c: theory.steps_full(height, c, budget=1e6, k=height),
        lambda height, c: theory.steps_constant(height, c, budget=1e6),
        lambda height, c: theory.steps_exponential(height, c, budget=1e6),
        lambda height, c: theory.nu2(sigma=1.0, mu=1.0, lipschitz=1.0, sources=c.sources),
        lambda height, c: theory.height_reached(
            height, budget=1e6, dimension=Dimension(0.5, 1.0), rho2=theory.rho2(c.sources)
        ),
    ):
        assert call(three, c) == call(3, UNIT)


def test_a_bound_that_rises_is_solved_at_its_start():
    # At κ = 10^6 and Λ = 3 the drift 8C̃/(μΛ^7) is 10^4 D²: one step is enough, many are not.
    d = 1e-12
    sigma = math.sqrt(20 * d * d * 3 / 64)  # ν1 = 20 D²
    c = Constants(beta=1e6, mu=1.0, lipschitz=1.0, sigma=sigma, noise=0.0, diameter=d, sources=2)
    target = theory.optimum_spread(0, c)
    assert theory.steps_full(0, c, budget=3.0) == 1
    assert theory.sgd_bound(1, d * d, c, budget=3.0) <= target
    assert all(theory.sgd_bound(10**n, d * d, c, budget=3.0) > target for n in (15, 17, 19, 40))


def test_small_units_are_where_the_theory_fits_a_budget():
    assert isinstance(theory.steps_full(1, two_points(1.0), budget=10**8, k=1), Infeasible)
    assert isinstance(theory.steps_full(1, two_points(1e-4), budget=10**8, k=1), int)
    assert isinstance(theory.steps_full(1, two_points(1e-6), budget=10**8, k=1), Infeasible)


def test_near_optimality_recovers_a_known_dimension():
    counts = [3.0 * 0.8 ** (-1.7 * h) for h in range(12)]
    found = theory.near_optimality(counts, rho2=0.8)
    assert found.d == pytest.approx(1.7)
    assert found.scale == pytest.approx(3.0)
    assert theory.near_optimality([1, 2, 2, 2, 2, 2, 2], rho2=0.5) == Dimension(0.0, 2.0)


def test_predicted_slopes_without_a_dimension():
    assert theory.predicted_slope(0.0, regime="exponential") == -0.25
    assert theory.predicted_slope(0.0, regime="constant") == -math.inf


def test_cells_keep_within_the_diameter_bounds():
    for sources in (2, 3, 6):
        cell, rng = simplex_root(sources), np.random.default_rng(sources)
        for height in range(40):
            assert cell.diameter(2) <= theory.diameter_l2(height, sources=sources) * (1 + 1e-9)
            assert cell.diameter(1) <= theory.diameter_l1(height, sources=sources) * (1 + 1e-9)
            cell = bisect(cell)[rng.integers(2)]


# --- nonsense and infeasibility ---


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mu": 0.0}, "mu .* above 0; got 0.0"),
        ({"mu": -1.0}, "mu .* above 0; got -1.0"),
        ({"mu": float("nan")}, "mu .* finite"),
        ({"beta": 0.5}, "κ = β/μ must be at least 1"),
        ({"beta": 0.0}, "beta .* above 0"),
        ({"lipschitz": 0.0}, "lipschitz"),
        ({"sigma": float("inf")}, "sigma"),
        ({"noise": -0.1}, "noise .* at least 0"),
        ({"noise": 1.1}, "cannot be below 𝒢"),
        ({"diameter": 0.0}, "diameter"),
        ({"diameter": True}, "diameter"),
        ({"sources": 1}, "sources .* at least 2; got 1"),
        ({"sources": 2.5}, "sources"),
    ],
)
def test_nonsense_constants_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(UNIT, **change)


@pytest.mark.parametrize("budget", [2, 2.0, 1, 0, -5, float("inf"), float("nan"), "many", None, 10**400])
def test_budgets_of_two_or_less_are_refused(budget):
    for call in (
        lambda: theory.step_shift(1.0, budget=budget),
        lambda: theory.g0(1.0, UNIT, budget=budget),
        lambda: theory.sgd_bound(1, 1.0, UNIT, budget=budget),
        lambda: theory.steps_full(1, UNIT, budget=budget),
        lambda: theory.steps_constant(1, UNIT, budget=budget),
        lambda: theory.height_reached(1, budget=budget, dimension=Dimension(1.0, 1.0), rho2=0.5),
        lambda: theory.regret_failure(budget=budget),
    ):
        with pytest.raises(InputError, match="budget Λ"):
            call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.step_shift(0.5, budget=10.0), "κ = β/μ .* at least 1"),
        (lambda: theory.nu1(sigma=1.0, mu=0.0, sources=3), "mu"),
        (lambda: theory.rho(1), "sources"),
        (lambda: theory.alpha_k(-1), "k must be"),
        (lambda: theory.c_hat(10**9, 1.0, UNIT, budget=10.0), "k must be at most 64"),
        (lambda: theory.steps_full(1, UNIT, budget=10.0, k=65), "k must be at most 64"),
        (lambda: theory.diameter_l1(10**400, sources=3), "height must be at most"),
        (lambda: theory.nu1(sigma=1.0, mu=1.0, sources=10**400), "sources .* at most"),
        (lambda: theory.near_optimality([1, "two", 3, 4], rho2=0.5), "each at least 1"),
        (lambda: Dimension(1e300, 1.0), "dimension d is at most"),
        (lambda: Dimension(1.0, 0.0), "constant C"),
        (
            lambda: theory.height_reached(lambda h: 2.5, budget=100, dimension=Dimension(1.0, 1.0), rho2=0.5),
            "steps at height 0",
        ),
        (lambda: theory.c_hat(1.5, 1.0, UNIT, budget=10.0), "k must be"),
        (lambda: theory.g0(0.0, UNIT, budget=10.0), "d0_squared"),
        (lambda: theory.sgd_bound(0, 1.0, UNIT, budget=10.0), "steps t must be"),
        (lambda: theory.steps_full(-1, UNIT, budget=10.0), "height"),
        (lambda: theory.steps_constant(0, UNIT, budget=10.0), "height .* at least 1"),
        (lambda: theory.regret_bound(0, nu2=1.0, rho2=0.5), "height"),
        (lambda: theory.regret_bound(2, nu2=1.0, rho2=1.0), "rho2 .* strictly between 0 and 1"),
        (lambda: theory.near_optimality([1, 2, 3, 4], rho2=1.5), "rho2"),
        (lambda: theory.near_optimality([1, 2], rho2=0.5), "at least 4 heights"),
        (lambda: theory.near_optimality([1, 0, 1, 1], rho2=0.5), "each at least 1"),
        (lambda: theory.predicted_slope(-1.0, regime="constant"), "dimension"),
        (lambda: theory.predicted_slope(1.0, regime="linear"), "regime"),
        (
            lambda: theory.height_reached(0, budget=100, dimension=Dimension(1.0, 1.0), rho2=0.5),
            "steps must be",
        ),
        (
            lambda: theory.height_reached(1, budget=100, dimension=Dimension(-1.0, 1.0), rho2=0.5),
            "dimension",
        ),
        (
            lambda: theory.height_reached(lambda h: 1, budget=1e12, dimension=Dimension(0.0, 1.0), rho2=0.5),
            "plain number",
        ),
    ],
)
def test_nonsense_is_refused_with_a_reason(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_infeasible_is_a_value_that_says_why():
    far = theory.steps_full(1, UNIT, budget=10**6)
    assert isinstance(far, Infeasible)
    assert far.height == 1
    assert "more than the budget Λ = 1e+06" in str(far)
    assert far.needed is not None and far.needed > 10**6
    never = theory.steps_full(1, replace(UNIT, diameter=1e6), budget=3)
    assert isinstance(never, Infeasible)
    assert never.needed is None
    assert "no number of steps is enough" in str(never)


def test_a_height_that_no_step_count_pays_ends_the_tree():
    def steps(height):
        return 10 if height < 4 else Infeasible(height, "too deep")

    dimension = Dimension(0.0, 1.0)
    assert theory.height_reached(steps, budget=10**9, dimension=dimension, rho2=0.5) == 4
    poor = theory.height_reached(steps, budget=29, dimension=dimension, rho2=0.5)
    assert isinstance(poor, Infeasible) and poor.needed == 30
    shallow = theory.height_reached(
        lambda h: Infeasible(h, "never"), budget=10**9, dimension=dimension, rho2=0.5
    )
    assert isinstance(shallow, Infeasible) and shallow.height == 0


def test_a_schedule_and_its_number_reach_the_same_height():
    for budget in (100, 12345, 10**7):
        dimension = Dimension(0.7, 2.0)
        by_number = theory.height_reached(9, budget=budget, dimension=dimension, rho2=0.8)
        by_schedule = theory.height_reached(lambda h: 9, budget=budget, dimension=dimension, rho2=0.8)
        assert by_number == by_schedule


# --- the schedule ---


def test_the_schedule_says_plainly_what_does_not_fit():
    with pytest.raises(InputError, match=r"cannot be run: λ\(0\) needs .* more than the budget Λ = 1e\+06"):
        theory.theory_schedule(UNIT, budget=10**6)
    with pytest.raises(InputError, match=r"λ\(0\) \+ 2λ\(1\) = \d+ steps"):
        theory.theory_schedule(two_points(1e-4), budget=30_000_000, k=1)
    with pytest.raises(InputError, match="budget"):
        theory.theory_schedule(UNIT, budget=2)


def test_the_schedule_has_no_number_where_the_theory_has_none():
    schedule = theory.theory_schedule(two_points(1e-4), budget=10**8, k=1)
    full = [theory.steps_full(h, two_points(1e-4), budget=10**8, k=1) for h in range(12)]
    assert [schedule(h) for h in range(12)] == full
    assert isinstance(schedule(3), int) and isinstance(schedule(10), Infeasible)
    assert schedule.deepest == 2
    assert TheorySchedule(UNIT, 10**6).deepest == -1


def grow(search):
    while trials := search.ask():
        for trial in trials:
            search.tell(trial, Evaluation(1.0 / (1 + len(trial.path))))


@pytest.mark.parametrize("commit", [0.0, 0.5])
def test_a_search_never_goes_where_the_schedule_has_no_number(commit):
    def steps(height):
        return 10 if height < 3 else Infeasible(height, f"nothing for height {height}")

    search = TreeSearch(simplex_root(3), bisect, budget=1000, steps=steps)
    search = then_commit(search, commit) if commit else search
    grow(search)
    searched = [node for node in search.tree.values() if node.phase != "commit"]
    assert max(node.height for node in searched) == 2
    assert all(node.steps == 10 for node in searched) and len(searched) == 7
    assert search.spent == (1000 if commit else 70)
    # The study's settings say it in words, and plain data they stay.
    assert search.describe()["steps"][2:4] == [10, "nothing for height 3"]
    json.dumps(search.describe())


@pytest.mark.parametrize("height", [0, 1])
def test_a_search_without_a_first_expansion_is_refused_with_the_reason(height):
    def steps(at):
        return Infeasible(at, "far too much") if at == height else 10

    with pytest.raises(InputError, match=f"no steps for height {height}: far too much"):
        TreeSearch(simplex_root(2), bisect, budget=1000, steps=steps)
    with pytest.raises(InputError, match=r"height 0: λ\(0\) needs"):
        TreeSearch(simplex_root(3), bisect, budget=10**6, steps=TheorySchedule(UNIT, 10**6))


def test_an_untrained_root_needs_no_steps():
    search = TreeSearch(
        simplex_root(2),
        bisect,
        budget=20,
        steps=lambda h: 10 if h else Infeasible(0, "none"),
        train_root=False,
    )
    grow(search)
    assert sorted(search.tree) == [(0,), (1,)]


class MeanTrainer:
    """½(w − z)² in one dimension, z = −r from source 0 and +r from source 1, with the theory's step sizes.

    w ← w − η_t(w − z_t) with η_t = 2/(t + E) unrolls to
    w_T = ((E−1)(E−2)·w_0 + 2 Σ_{t<T} (t+E−1) z_t) / ((T+E−1)(T+E−2)): a sum in blocks instead of a loop.
    """

    def __init__(self, r, target, *, shift, block=1 << 20):
        self.r, self.target, self.shift, self.block = r, target, shift, block

    def init(self, seed):
        return 0.0

    def draws(self, job):
        rng = np.random.default_rng(job.seed)
        for begin in range(0, job.steps, self.block):
            count = min(self.block, job.steps - begin)
            yield begin, np.where(rng.random(count) < job.mixture[0], -self.r, self.r)

    def train(self, jobs):
        return [self._train(job) for job in jobs]

    def _train(self, job):
        e, total = self.shift, 0.0
        for begin, z in self.draws(job):
            total += float((np.arange(begin, begin + len(z)) + (e - 1)) @ z)
        return ((e - 1) * (e - 2) * job.state + 2 * total) / ((job.steps + e - 1) * (job.steps + e - 2))

    def evaluate(self, states):
        return [Evaluation(0.5 * (w - self.target) ** 2) for w in states]

    def save(self, state):
        return {"w": np.array([state])}

    def load(self, arrays):
        return float(arrays["w"][0])


def test_the_unrolled_trainer_is_the_loop():
    trainer = MeanTrainer(0.5, 0.1, shift=777.7, block=64)
    job = Job(0.25, np.array([0.3, 0.7]), 1000, 5)
    w, t = job.state, 0
    for _, block in trainer.draws(job):
        for z in block:
            w -= 2 / (t + trainer.shift) * (w - z)
            t += 1
    assert t == 1000
    assert trainer.train([job])[0] == pytest.approx(w, rel=1e-12)


@pytest.mark.slow
def test_the_theory_runs_end_to_end_where_it_fits():
    r, budget = 1e-4, 10**8
    c = two_points(r)
    schedule = theory.theory_schedule(c, budget=budget, k=1)
    target = 0.3 * r  # w*(α) = r(α_1 − α_0): in the hull
    trainer = MeanTrainer(r, target, shift=theory.step_shift(1.0, budget=budget))
    smooth = {"nu2": theory.value_spread(0, c), "rho2": theory.rho2(2)}
    search = TreeSearch(
        PARTITIONS["bisect"].root(2),
        bisect,
        budget=budget,
        steps=schedule,
        nu=smooth["nu2"],
        rho=smooth["rho2"],
    )
    result = run(search, trainer, seed=3)
    assert [node.steps for node in result.tree.values()] == [schedule(len(path)) for path in result.tree]
    assert 3e7 < sum(result.spent.values()) <= budget
    assert result.tree.depth == schedule.deepest == 2
    # What the theory promises: every model within ν1ρ^h of its optimum, and the regret within its bound.
    for node in result.tree.values():
        away, optimum = math.sqrt(2 * node.value), r * (node.mixture[1] - node.mixture[0])
        gap = max(abs(target + away - optimum), abs(target - away - optimum))
        assert gap**2 <= theory.optimum_spread(node.height, c)
    # SGD really does far better: noise of variance (4/3)·Var(z)/T, the start forgotten like (E/T)².
    optimum, steps = r * (result.mixture[1] - result.mixture[0]), result.node.steps
    forgotten = 2 * r * (trainer.shift / steps) ** 2
    assert abs(result.state - optimum) <= forgotten + 6 * math.sqrt(4 / 3 * r * r / steps)
    regret = 0.5 * (r * (result.mixture[1] - result.mixture[0]) - target) ** 2
    reached = theory.height_reached(
        schedule, budget=budget, dimension=Dimension(0.0, 2.0), rho2=theory.rho2(2)
    )
    assert isinstance(reached, int)
    assert regret <= theory.regret_bound(reached, **smooth)
