"""Problems with a known answer: sources that differ in a hidden group u, a target whose mixture is known.

A row is drawn as u → x → y. K sources have K + 1 groups; what is random below (m_u, A, a, R, R_u, b_u) is
drawn once per problem.

- **u**: source i has p_i(u) = c·[u = i] + (1 − c)/K on the first K groups (c is ``concentration``) and
  nothing on the last one. For c > 0 these K distributions are linearly independent: α* is unique.
- **x** given u: N(m_u, I), the same in every source. *Informative*: the m_u are random points at distance 2
  from the origin, so the p_i(x) differ. *Blind*: all m_u = 0, so p(x) is the same everywhere and only the
  labels tell the sources apart: matching x alone cannot find α*.
- **y** given x and u, the same everywhere: by the scores s = φ(x)·(R + R_u) + b_u. ``kind="logistic"`` has
  φ(x) = x (a linear model's loss is convex), ``kind="neural"`` a random layer φ(x) = tanh(xA + a).
  Classes: y ~ softmax(s), one score per class. Regression: y = s + noise. ``label_shift`` is the standard
  deviation of the b_u, which make label frequencies differ between sources beyond what x explains.

*In the hull* the target is p_te = Σ α*_i p_i. *Outside* it is half that and half rows of the last group,
which no source has: no α is right, and the problem's ``alpha`` is None.

A model sees x but not u. What it should predict, Σ_u p(u | x) p(y | x, u), depends on the p(u) it is trained
on, so the mixture matters; and training on α* minimises the target's own loss, whatever the model family.

Validation and test rows are drawn from p_te itself, not from the sources' rows. The constants, α*, every
source, validation and test each have their own random stream spawned from the seed: another size of one,
another hull or another α* leaves the sources bit for bit as they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mixtree.data.sources import Problem, Rows, Sources
from mixtree.errors import InputError
from mixtree.simplex import Mixture, as_mixture

_Floats = NDArray[np.float64]

_DISTANCE = 2.0  # of an informative group's mean from the origin
_COMMON, _OWN = 1.0, 2.0  # standard deviation of the scores that all groups share, and of a group's own
_HIDDEN = 32  # width of the teacher's random layer
_NOISE = 0.5  # standard deviation of a regression's noise
_OUTSIDE = 0.5  # share of the target that no source covers, outside the hull
_FAR = 0.5  # ℓ1 distance from uniform that a drawn α* keeps


def synthetic(
    *,
    sources: int = 3,
    rows: int | Sequence[int] = 2000,
    validation: int = 200,
    test: int = 10_000,
    features: int = 10,
    kind: Literal["logistic", "neural"] = "logistic",
    hull: Literal["inside", "outside"] = "inside",
    informative: bool = True,
    classes: int = 2,
    alpha: ArrayLike | None = None,
    concentration: float = 0.9,
    label_shift: float = 0.5,
    seed: int = 0,
) -> Problem:
    """A problem whose best mixture is known (``Problem.alpha``), or known not to exist outside the hull.

    ``rows`` is one number for all sources or one per source. ``classes`` is 2 or more, or 0 for a regression.
    ``alpha`` is drawn from Dirichlet(1/2, …, 1/2) unless given, and drawn again while it is so close to
    uniform that there would be little to find. The maths is at the top of this module.

    >>> problem = synthetic(sources=2, alpha=[0.25, 0.75], seed=1)
    >>> problem.alpha, problem.sources.sizes, problem.sources.validation.x.shape
    (array([0.25, 0.75]), array([2000, 2000]), (200, 10))
    """
    if kind not in ("logistic", "neural"):
        raise InputError(f"synthetic: unknown kind {kind!r}; choose 'logistic' or 'neural'")
    if hull not in ("inside", "outside"):
        raise InputError(f"synthetic: unknown hull {hull!r}; choose 'inside' or 'outside'")
    if classes < 0 or classes == 1:
        raise InputError(f"synthetic: classes must be 2 or more, or 0 for a regression; got {classes}")
    if not 0.0 < concentration <= 1.0:
        raise InputError(f"synthetic: concentration must lie in (0, 1]; got {concentration:g}")
    if not 0.0 <= label_shift < np.inf:
        raise InputError(f"synthetic: label_shift must be finite and at least 0; got {label_shift:g}")
    _check_counts(sources=sources, features=features, validation=validation, test=test)
    sizes = [rows] * sources if isinstance(rows, int | np.integer) else list(rows)
    if len(sizes) != sources:
        raise InputError(f"synthetic: rows has {len(sizes)} numbers but there are {sources} sources")
    _check_counts(**{f"rows of source {i}": size for i, size in enumerate(sizes)})
    if seed < 0:
        raise InputError(f"synthetic: the seed must not be negative; got {seed}")
    for_world, for_alpha, for_sources, for_validation, for_test = np.random.SeedSequence(seed).spawn(5)
    world = _World.draw(
        np.random.default_rng(for_world),
        groups=sources + 1,
        features=features,
        hidden=_HIDDEN if kind == "neural" else 0,
        informative=informative,
        classes=classes,
        label_shift=label_shift,
    )
    mixture = (
        _draw_alpha(sources, np.random.default_rng(for_alpha))
        if alpha is None
        else as_mixture(alpha, sources=sources)
    )
    # p(u) of every source (rows); the last group is never theirs.
    groups = np.full((sources, sources), (1.0 - concentration) / sources) + concentration * np.eye(sources)
    groups = np.hstack([groups, np.zeros((sources, 1))])
    target = mixture @ groups
    if hull == "outside":
        target = (1 - _OUTSIDE) * target + _OUTSIDE * np.eye(sources + 1)[-1]
    parts = [
        world.rows(size, p, np.random.default_rng(child))
        for size, p, child in zip(sizes, groups, for_sources.spawn(sources), strict=True)
    ]
    held = world.rows(validation, target, np.random.default_rng(for_validation))
    return Problem(
        f"synthetic-{kind}-{hull}-{'informative' if informative else 'blind'}-{sources}",
        Sources(tuple(f"source-{i}" for i in range(sources)), tuple(parts), held, classes),
        world.rows(test, target, np.random.default_rng(for_test)),
        mixture if hull == "inside" else None,
    )


@dataclass(frozen=True, eq=False, slots=True)
class _World:
    """p(x | u) and p(y | x, u), drawn once."""

    means: _Floats  # (groups, features)
    layer: tuple[_Floats, _Floats] | None  # A and a of the teacher's layer; None: x itself
    weights: _Floats  # (groups, inputs, outputs): R + R_u
    shifts: _Floats  # (groups, outputs): b_u
    classes: int

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        *,
        groups: int,
        features: int,
        hidden: int,
        informative: bool,
        classes: int,
        label_shift: float,
    ) -> _World:
        means = rng.standard_normal((groups, features))
        means *= _DISTANCE * informative / np.linalg.norm(means, axis=1, keepdims=True)
        layer = None
        if hidden:
            # Pre-activations of standard deviation about 1.5: well into the bend of tanh.
            layer = (
                rng.standard_normal((features, hidden)) * 1.5 / np.sqrt(features),
                rng.standard_normal(hidden),
            )
        inputs, outputs = hidden or features, max(classes, 1)
        common = rng.standard_normal((inputs, outputs)) * _COMMON
        own = rng.standard_normal((groups, inputs, outputs)) * _OWN
        shifts = rng.standard_normal((groups, outputs)) * label_shift
        return cls(means, layer, (common + own) / np.sqrt(inputs), shifts, classes)

    def rows(self, count: int, p: _Floats, rng: np.random.Generator) -> Rows:
        """So many rows of groups drawn with probabilities p."""
        u = rng.choice(len(p), size=count, p=p)
        x = self.means[u] + rng.standard_normal((count, self.means.shape[1]))
        inner = x if self.layer is None else np.tanh(x @ self.layer[0] + self.layer[1])
        scores = np.empty((count, self.shifts.shape[1]))
        for group in np.unique(u):
            members = u == group
            scores[members] = inner[members] @ self.weights[group] + self.shifts[group]
        if not self.classes:
            return Rows(x, scores[:, 0] + _NOISE * rng.standard_normal(count))
        # The largest of scores plus Gumbel noise is a draw from their softmax.
        return Rows(x, np.argmax(scores + rng.gumbel(size=scores.shape), axis=1).astype(np.int64))


def _draw_alpha(sources: int, rng: np.random.Generator) -> Mixture:
    while True:
        alpha: Mixture = rng.dirichlet(np.full(sources, 0.5))
        if sources == 1 or np.abs(alpha - 1.0 / sources).sum() >= _FAR:
            return alpha


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"synthetic: {name} must be at least 1; got {count}")
