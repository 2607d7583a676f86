"""Is the target a mixture of the sources at all? Hansen's J on joint moments, calibrated by simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from mixtree._native import compiled
from mixtree._native.threads import one_thread
from mixtree.data.sources import Rows, Sources
from mixtree.errors import InputError
from mixtree.estimate.moments import THIN, Prepared, Target, normal, prepare
from mixtree.estimate.solve import (
    Equations,
    Floats,
    Solution,
    mixed,
    nearest_in_hull,
    root_of,
    root_of_inverse,
)
from mixtree.simplex import Mixture

_POWER = 0.8  # with which a target worth knowing about must be found before "inside" is said
_SHARE = 0.5  # of such a target's rows that come from where no source is
_UNLIKE = (0.25, 1.0)  # squared distance of such a place: at least; and with one source, nothing to compare
_DRAWS = 200  # of targets outside, for the power
_KNOWN = 1_000  # degrees of freedom from which a scatter is known
_MANY = 1_000  # target rows from which their mean is taken to be normal
_CORNERS = 6  # of a hull whose faces are tried one by one
_FAR = 1e6  # squared distance of a corner from which products of corners lose too many digits
_SPARE = 2  # coordinates beyond the number of corners that are not worth leaving out
_FEW_DRAWS = 2  # per row: from there counting draws is faster than adding rows up
_STREAM = 1  # of the seed; 0 draws the sources' rows


@dataclass(frozen=True, slots=True)
class HullTest:
    """Whether some mixture of the sources explains the target's rows.

    Attributes
    ----------
    p
        p value of "the target is a mixture of the sources".
    inside
        False if the test rejects at its level; True if it does not although it would have found a target
        worth knowing about (``power`` ≥ 0.8); None if it cannot tell.
    statistic
        Hansen's J.
    df
        Its degrees of freedom, ``moments`` − (K − 1).
    moments
        How many moments are compared (q).
    rows_needed
        Where the test cannot tell: about how many target rows would decide it; None if no number of them
        would, because a source has too few rows.
    words
        The answer as a sentence.
    n
        The target's rows.
    power
        Chance to find a target worth knowing about; None where the test rejects.
    """

    p: float
    inside: bool | None
    statistic: float
    df: int
    moments: int
    rows_needed: int | None
    words: str
    n: int
    power: float | None


@one_thread()
def hull_test(
    sources: Sources,
    *,
    level: float = 0.05,
    moments: int | None = None,
    repetitions: int = 499,
    seed: int = 0,
) -> HullTest:
    """Test of p_te = Σ α_i p_i for some α on the simplex, by the joint moments of :func:`match_moments`.

    J is the squared distance of the target's means from the hull of the sources' means, in units of its
    noise. Textbook critical values assume many rows and an α away from the edge of the simplex. Here p comes
    from targets of the same size made of the sources' own rows in the proportions α̂, which keeps the level
    with 20 rows and 100 moments. Weights α̂_i that may be 0 are taken as 0 for that (the case in which J is
    largest), and one half of the source rows weighs the moments while the other half makes the targets.

    What "a target worth knowing about" means for the power: half of its rows come from a place as far from
    the sources' hull as a typical source is from the hull of the others.

    Parameters
    ----------
    sources
        The K sources and the validation rows, which stand for the target.
    level
        Chance to reject a target that is a mixture of the sources.
    moments
        The most moments compared; by default as :func:`match_moments`.
    repetitions
        Simulated targets; p is a multiple of 1 / (repetitions + 1).
    seed
        Draws rows and simulated targets.

    Returns
    -------
    HullTest
        p, the decision and the power.

    References
    ----------
    Hansen, Large Sample Properties of Generalized Method of Moments Estimators, Econometrica 1982; Andrews
    and Soares, Inference for Parameters Defined by Moment Inequalities, Econometrica 2010.

    Examples
    --------
    >>> from mixtree.data.synthetic import synthetic
    >>> hull_test(synthetic(hull="outside", test=1).sources).inside
    False
    """
    if not 0.0 < level < 1.0:
        raise InputError(f"level must lie between 0 and 1; got {level:g}")
    if repetitions < 1.0 / level - 1.0:
        raise InputError(f"at level {level:g} at least {int(np.ceil(1 / level)) - 1} repetitions are needed")
    prepared = prepare(sources, moments=moments, seed=seed)
    return hull_prepared(prepared, sources.validation, level=level, repetitions=repetitions, seed=seed)


def hull_prepared(
    prepared: Prepared,
    target: Rows | Target,
    *,
    level: float = 0.05,
    repetitions: int = 499,
    seed: int = 0,
    look_outside: bool = True,
    rows: int | None = None,
) -> HullTest:
    """As :func:`hull_test`, with the sources' part done before: for many targets of one set of sources.

    Parameters
    ----------
    prepared
        The sources' moments.
    target
        Labelled rows of the target, or what ``prepared.of`` made of them.
    level, repetitions, seed
        As for :func:`hull_test`.
    look_outside
        False computes no power: what is not rejected stays undecided.
    rows
        Half as many rows of a source, at the most, make simulated targets; None sets no limit.

    Returns
    -------
    HullTest
        p, the decision and the power.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_STREAM,)))
    given = prepared.of(target)
    equations, solution, target = given.equations, given.solution, given.rows
    alpha = solution.alpha
    # One half of the source rows weighs, the other makes targets: made of the first they would be too close.
    weigh, make = (replace(equations, covariances=half.covariances) for half in prepared.halves)
    root = root_of_inverse(weigh.noise(weigh.around(alpha)))
    distance = _Distance(root @ equations.means)
    statistic = float(distance((root @ equations.target)[None])[0])
    edge = distance.corners @ _towards_edge(solution, equations.n)
    noise = _noise(prepared, make, alpha, root, repetitions, rng, rows and rows // 2)
    simulated = distance(edge + noise)
    # If nothing varies, rounding must not decide between 0 and 0.
    p = float((1 + np.count_nonzero(simulated >= statistic - 1e-9)) / (repetitions + 1))
    unseen = 0
    if prepared.rare:
        # Two tests, a tenth of the level for the second: where it has power at all, it has plenty.
        unseen, chance = prepared.rare.in_target(target, alpha)
        p = min(1.0, p / 0.9, 10.0 * chance)
    # Sources of few rows hardly know how noisy they are: is much of the noise theirs?
    source_rows = prepared.rare.rows
    variances = alpha**2 / source_rows
    thin = bool(variances[source_rows < THIN].sum() > 0.1 * (1.0 / equations.n + variances.sum()))
    inside: bool | None = False if p <= level and not thin else None
    power, needed = None, None
    if p > level and look_outside and prepared.varies and not thin:
        place = (1.0 - level) * (len(simulated) - 1)
        critical = float(np.interp(place, np.arange(len(simulated)), np.sort(simulated)))
        power, needed = _power(equations, alpha, root, noise, critical, rng)
        inside = True if power >= _POWER else None
    words = _words(inside, p=p, n=len(target), power=power, needed=needed, unseen=unseen, thin=thin)
    df = max(0, len(root) - (len(alpha) - 1))
    return HullTest(p, inside, statistic, df, len(root), needed, words, len(target), power)


class _Distance:
    """Squared distances of points (rows) from the hull of K corners (columns)."""

    def __init__(self, corners: Floats) -> None:
        self.corners = corners
        self.inner, self.span = corners, None
        if len(corners) > corners.shape[1] + _SPARE:
            # Only what lies in the corners' span differs between mixtures: K coordinates instead of q.
            self.span, self.inner = np.linalg.qr(corners)
        self.middle = self.inner.mean(axis=1)
        self.around = np.ascontiguousarray((self.inner - self.middle[:, None]).T)

    def __call__(self, points: Floats) -> Floats:
        if self.span is None:
            return self._within(points)
        inner = points @ self.span
        outside = np.einsum("ij,ij->i", points, points) - np.einsum("ij,ij->i", inner, inner)
        return np.asarray(np.maximum(outside, 0.0) + self._within(inner))

    def _within(self, inner: Floats) -> Floats:
        if compiled.hull_distances is None or np.square(self.around).sum(axis=1).max() > _FAR:
            # By trying every face of the hull on all points at once. A point's nearest one lies inside some
            # face and is its foot on that face's plane. A foot that is inside its face is in the hull: the
            # nearest of those it is.
            if self.inner.shape[1] > _CORNERS:  # faces are 2^K − 1
                feet = np.stack([self.inner @ nearest_in_hull(self.inner, point) for point in inner])
                return np.asarray(np.square(feet - inner).sum(axis=1))
            nearest = np.square(inner[:, :, None] - self.inner).sum(axis=1).min(axis=1)  # of the corners
            for first, edges, foot in self.faces:
                gaps = inner - first
                weights = gaps @ foot
                gaps -= weights @ edges
                inside = (weights >= 0.0).all(axis=2) & (weights.sum(axis=2) <= 1.0)
                squared = np.where(inside, np.einsum("fij,fij->fi", gaps, gaps), np.inf)
                np.minimum(nearest, squared.min(axis=0), out=nearest)
            return np.asarray(nearest)
        nearest = np.empty(len(inner))
        compiled.hull_distances(
            self.around, np.ascontiguousarray(inner - self.middle), len(self.middle), nearest
        )
        return nearest

    @cached_property
    def faces(self) -> list[tuple[Floats, Floats, Floats]]:
        """All edges, all triangles …: a corner of each, the edges from there, what gives a foot's weights."""
        count, corners = self.inner.shape[1], self.inner.T
        found = []
        for size in range(2, count + 1):
            faces = np.array(list(combinations(range(count), size)))
            first = corners[faces[:, 0], None]
            edges = corners[faces[:, 1:]] - first
            if size > 2:
                inverse = np.linalg.pinv(edges)
            else:  # of a single edge e: eᵀ / ‖e‖²
                squared = np.einsum("fij,fij->f", edges, edges)[:, None, None]
                flat = edges.transpose(0, 2, 1)
                inverse = np.divide(flat, squared, where=squared > 0.0, out=np.zeros_like(flat))
            found.append((first, edges, inverse))
        return found


def _towards_edge(solution: Solution, n: float) -> Mixture:
    """α̂ with those weights at 0 that may be 0: J is largest there, so the level holds wherever α* is."""
    if len(solution.alpha) == 1:
        return solution.alpha
    # Generalised moment selection (Andrews and Soares 2010): a threshold that grows, but slower than √n.
    sure = solution.free > np.sqrt(np.log(max(n, 3.0)) * np.diag(solution.covariance))
    kept = np.where(sure, solution.alpha, 0.0)
    if kept.sum() <= 0.0:
        kept = (solution.alpha == solution.alpha.max()).astype(np.float64)
    edge: Mixture = kept / kept.sum()
    return edge


def _noise(
    prepared: Prepared,
    equations: Equations,
    alpha: Mixture,
    root: Floats,
    repetitions: int,
    rng: np.random.Generator,
    most: int | None,
) -> Floats:
    """How far targets of this size, made of source rows, fall from their mixture: (repetitions, q)."""
    q = len(root)
    n = max(1, round(equations.n))
    own = mixed(alpha**2 / equations.sizes, equations.covariances)
    noise: Floats = rng.standard_normal((repetitions, q)) @ root_of(own).T
    wider = _unsure(prepared, alpha, n, repetitions, rng)[:, None]
    if n > _MANY:
        noise += rng.standard_normal((repetitions, q)) @ root_of(equations.noise(alpha) - own).T
        return np.asarray(wider * noise @ root.T)
    counts = rng.multinomial(n, alpha / alpha.sum(), size=repetitions)
    centres = equations.means.T.copy()
    for i, (table, share, part) in enumerate(
        zip(prepared.tables, prepared.shares, prepared.parts[1], strict=True)
    ):
        half, weight = table[part][:most], normal(share[part][:most])
        # Around the whole source's mean, and as wide as a source is of which these are a few rows.
        wide = 1.0 / np.sqrt(max(1.0 - float(weight @ weight), 0.5))
        # Sums of counts[:, i] rows each, drawn with replacement by weight.
        each, size, total = counts[:, i], len(weight), int(counts[:, i].sum())
        alike = weight.min() == weight.max()
        rows = rng.integers(size, size=total) if alike else rng.choice(size, size=total, p=weight)
        if total < _FEW_DRAWS * size:  # each row by itself
            sums, some = np.zeros((len(each), half.shape[1])), each > 0
            sums[some] = np.add.reduceat(half[rows], (each.cumsum() - each)[some], axis=0)
        else:
            rows += np.repeat(np.arange(len(each)) * size, each)
            picks = np.bincount(rows, weights=np.ones(total), minlength=len(each) * size)
            sums = np.asarray(picks.reshape(len(each), size) @ half)
        noise += (wide / n) * sums
        centres[i] -= wide * (weight @ half)
    noise += (counts / n) @ centres - equations.means @ alpha
    return np.asarray(wider * noise @ root.T)


def _unsure(prepared: Prepared, alpha: Mixture, n: int, repetitions: int, rng: np.random.Generator) -> Floats:
    """Factors that make the noise Student's: few rows of a source hardly know how far they scatter.

    Degrees of freedom by Satterthwaite, from half of every source's rows, fewer where tails are heavy: the
    variance of a variance grows with the fourth moment.
    """
    rows = prepared.rare.rows
    noise, freedom = alpha / n + alpha**2 / rows, np.maximum(rows / 2.0 - 1.0, 1.0)
    together = float(noise.sum() ** 2 / (noise**2 / freedom).sum())
    if together > _KNOWN:
        return np.ones(repetitions)
    tails = []
    for table, part in zip(prepared.tables, prepared.parts[1], strict=True):
        squares = np.square(table[part] - table[part].mean(axis=0))
        tails.append(np.square(squares).mean(axis=0) / np.maximum(np.square(squares.mean(axis=0)), 1e-300))
    usual = float(np.sqrt(np.mean(np.square(tails))))  # the heaviest matter most
    together *= min(1.0, 2.0 / max(usual - 1.0, 1.0))
    # A stream of its own: what else is drawn stays the same.
    factors: Floats = np.sqrt(together / rng.spawn(1)[0].chisquare(together, repetitions))
    return factors


def _power(
    equations: Equations,
    alpha: Mixture,
    root: Floats,
    noise: Floats,
    critical: float,
    rng: np.random.Generator,
) -> tuple[float, int | None]:
    """Chance to find a target worth knowing about, and the target rows at which it would be 80 %."""
    fixed = float(alpha**2 @ (1.0 / equations.sizes))
    per_row = 1.0 / equations.n + fixed
    any_way = rng.standard_normal(len(root))
    # All of it lies in the span of the corners and one direction more: K + 1 coordinates instead of q.
    span, inner = np.linalg.qr(np.column_stack([root @ equations.means, any_way]))
    scatter = equations.covariances.reshape(len(alpha), -1) @ (root.T @ root).ravel() / equations.sizes
    targets = _targets_outside(inner, alpha, scatter, per_row, most=len(noise))
    gaps = noise @ span
    outside = np.maximum(np.einsum("ij,ij->i", noise, noise) - np.einsum("ij,ij->i", gaps, gaps), 0.0)
    each = max(1, _DRAWS // len(alpha))
    draws = [slice(i, i + each * len(targets), len(targets)) for i in range(len(targets))]

    def power(variance: float) -> float:
        """With targets of as many rows as make their means vary so much, relative to now."""
        wide = np.sqrt(variance)
        found = [
            distance(centre + wide * gaps[some]) > variance * (critical - outside[some])
            for (distance, centre), some in zip(targets, draws, strict=True)
        ]
        return float(np.mean(np.concatenate(found)))

    now = power(1.0)
    best, worst = max(1.01 * fixed / per_row, 1e-6), 1.0
    if now >= _POWER or best >= worst or power(best) < _POWER:
        return now, None
    while worst > 1.05 * best:
        middle = float(np.sqrt(best * worst))
        best, worst = (middle, worst) if power(middle) >= _POWER else (best, middle)
    return now, int(np.ceil(1.0 / (best * per_row - fixed)))


def _targets_outside(
    inner: Floats, alpha: Mixture, scatter: Floats, per_row: float, *, most: int
) -> list[tuple[_Distance, Floats]]:
    """For each source, ``most`` of them: the hull of the others, and the mean of a target half them, half it.

    Corners are the columns but the last, which is where to go if no source is away from the others.
    """
    corners, any_way = inner[:, :-1], inner[:, -1] / np.linalg.norm(inner[:, -1])
    least = np.sqrt(_UNLIKE[len(alpha) == 1] / per_row)
    targets = []
    for i in range(min(most, len(alpha))):
        kept = [k for k in range(len(alpha)) if k != i] or [i]
        others, rest = corners[:, kept], alpha[kept]
        rest = rest / rest.sum() if rest.sum() > 1e-9 else np.full(len(rest), 1.0 / len(rest))
        foot = others @ nearest_in_hull(others, corners[:, i])
        away = corners[:, i] - foot
        length = float(np.linalg.norm(away))
        # Sampling noise alone puts a source at a distance from the others; sources may also be all alike.
        far = max(float(np.sqrt(max(length**2 - scatter[i], 0.0))), float(least))
        place = foot + far * (away / length if length > 1e-9 else any_way)
        targets.append((_Distance(others), (1.0 - _SHARE) * (others @ rest) + _SHARE * place))
    return targets


def _words(
    inside: bool | None,
    *,
    p: float,
    n: int,
    power: float | None,
    needed: int | None,
    unseen: int,
    thin: bool,
) -> str:
    chance = f"{'p < 0.001' if p < 0.0005 else f'p = {p:.3f}'} on {n} target rows"
    if unseen:
        chance += f", {unseen} of them with a class or a value that no source has"
    if inside is False:
        return (
            f"No mixture of the sources reproduces the target ({chance}): what is missing can only come from"
            " the target's own rows."
        )
    if inside:
        return f"A mixture of the sources can serve this target, as far as its moments tell ({chance})."
    start = f"These rows cannot tell whether a mixture of the sources can serve the target ({chance}"
    if thin:
        return f"{start}): a source that matters has fewer than {THIN} rows."
    if power is None:
        return f"{start})."
    more = (
        f"about {needed} target rows would decide it"
        if needed is not None
        else "no number of target rows would decide it, the sources' own means are not known well enough"
    )
    return f"{start}; a target half outside would be noticed {power:.0%} of the time): {more}."
