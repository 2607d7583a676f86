"""What the nodes of a finished search say by themselves: optimism, and what more would bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from math import hypot, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.metrics import Metric
from mixtree.stats.choosing import (
    Chooser,
    all_finite,
    scores_by_terms,
    scores_of,
    scores_of_picked,
    terms_and_scores,
)
from mixtree.stats.selection_bias import chosen_again
from mixtree.tree import Node, Path
from mixtree.verdict import Advice, ladder, rows_or_budget

Floats = NDArray[np.float64]

_MOST = 200  # nodes
_BEHIND = 3.0  # standard errors of both values: a node so far behind was not beaten by luck
_REPEATS = 8
_CURVE = 3  # scores that make one
_FEWEST = 40  # rows: a quarter of them has to choose
_ROWS = 5_000  # from which the choice is as good as certain


@dataclass(frozen=True, slots=True)
class Looks:
    """What looking at the validation rows so often has done to the best value."""

    optimism: float | None
    notes: tuple[str, ...]


class Models:
    """What the models of a search predict for the rows that chose, and their scores, computed once.

    ``choose`` is the metric that the search minimises, None if nothing was chosen; ``nodes`` have its values,
    ``lineage`` are those that led to the returned model.
    """

    def __init__(
        self,
        metric: Metric,
        y: NDArray[np.generic],
        predictions: Mapping[Path, NDArray[Any]],
        nodes: Mapping[Path, Node],
        lineage: Sequence[Node],
        *,
        choose: Metric | None,
    ) -> None:
        self.metric, self.choose, self.y, self.lineage = metric, choose, y, lineage
        self._predictions, self._nodes = predictions, nodes
        self.optimism = float("nan")
        """Of the chosen node's score, expected from looking so often; NaN where it is not known."""
        self.scores: dict[Path, float] = {}
        """Of nodes that might have been chosen; of those that led to the returned one if they are a curve."""
        self._terms: dict[Path, Floats] = {}
        if choose is not None and choose.contributions is not None and metric.contributions is not None:
            self._choose_again(choose, nodes)
        led = self._finite([node.path for node in lineage if node.path in predictions])
        others = [path for path in led if path not in self.scores]
        if others and len(led) >= _CURVE:
            # A metric of the user's may take its time, or fail: it is asked for no more than is needed.
            scores = scores_of(metric, y, [predictions[path] for path in others])
            self.scores |= dict(zip(others, scores.tolist(), strict=True))

    def _choose_again(self, choose: Metric, nodes: Mapping[Path, Node]) -> None:
        known = [path for path in self._predictions if path in nodes]
        best = self._finite(sorted(known, key=lambda path: nodes[path].value), _MOST)
        best = [path for path in best if not _behind(nodes[path], nodes[best[0]])]
        if len(best) < 2 or len(self.y) < 2:
            self.optimism = 0.0 if best else float("nan")
            return
        models = [self._predictions[path] for path in best]
        again = chosen_again(self.metric, self.y, models, choose=choose)
        self.optimism = again.optimism
        chosen = [best[k] for k in again.places.tolist()]
        self.scores = dict(zip(chosen, again.scores.tolist(), strict=True))
        self._terms = dict(zip(chosen, again.terms, strict=True))

    def latest(self) -> dict[Path, NDArray[Any]]:
        """What the last models predict that predict numbers only."""
        paths = self._finite([path for path in self._predictions if path in self._nodes][::-1], _MOST)
        return {path: self._predictions[path] for path in paths[::-1]}

    def scores_on(
        self, parts: list[NDArray[np.bool_]], paths: Sequence[Path], picks: NDArray[np.intp]
    ) -> Floats:
        """Scores (parts, picks) of some of the paths' models, those picked for a part of the rows, on it.

        Of an area to first order, by what is known of it on all rows: with many classes, ranking the rows of
        every part anew took a third of the verdict's time.
        """
        used, places = np.unique(picks, return_inverse=True)
        few, places = [paths[k] for k in used.tolist()], places.reshape(picks.shape)
        if self.metric.adds_up:
            new = [path for path in few if path not in self._terms]
            if new:
                terms = terms_and_scores(self.metric, self.y, [self._predictions[path] for path in new])[0]
                self._terms |= dict(zip(new, terms, strict=True))
            terms = np.array([self._terms[path] for path in few])
            if np.isfinite(terms).all():
                labels = self.y.astype(np.intp) if self.metric.by_class else self.y
                found = scores_by_terms(self.metric, labels, terms, np.array(parts))
                return np.asarray(np.take_along_axis(found, places, axis=1))
        return scores_of_picked(self.metric, self.y, [self._predictions[path] for path in few], parts, places)

    def noise(self) -> float | None:
        """The standard error of what the later half of the training changed, as twice as much of it might.

        Of a difference on the same rows, most of whose noise both models share; None where it is not known.
        """
        led = [node for node in self.lineage if node.path in self.scores]
        if len(led) < 2 or self.metric.contributions is None:
            return None
        behind = dict(zip((node.path for node in self.lineage), self._totals(), strict=True))
        half = behind[led[-1].path] / 2.0
        before = min(led[:-1], key=lambda node: abs(behind[node.path] - half))
        error = self.metric.paired_error(
            self.y, self._predictions[led[-1].path], self._predictions[before.path]
        )
        return error if isfinite(error) and error > 0.0 else None

    def by_steps(self) -> dict[float, float]:
        """The scores on the way to the returned model, by the steps that each took."""
        return {
            total: self.scores[node.path]
            for total, node in zip(self._totals(), self.lineage, strict=True)
            if node.path in self.scores
        }

    def _totals(self) -> list[int]:
        return list(accumulate(node.steps for node in self.lineage))

    def _finite(self, paths: Sequence[Path], most: int | None = None) -> list[Path]:
        """The first of these whose models predict numbers only; the others are not looked at."""
        return list(islice((path for path in paths if all_finite(self._predictions[path])), most))


def _behind(node: Node, best: Node) -> bool:
    """Whether another draw of the rows would not have made this one the best; the luckiest looks too sure."""
    return node.value - best.value > _BEHIND * hypot(node.standard_error, best.standard_error)


def looks(models: Models, nodes: Sequence[Node]) -> Looks:
    """Expected optimism of the best node's score, and how many new bests were more than noise."""
    if models.choose is None:
        return Looks(None, ())
    selection_bias = models.optimism
    notes: tuple[str, ...] = ()
    finite = [node for node in nodes if isfinite(node.value)]
    if len(finite) > 1 and any(isfinite(node.standard_error) for node in finite):
        climbed = ladder([node.value for node in finite], [node.standard_error for node in finite])
        notes = (
            f"new bests that beat the old one by more than its standard error: {len(climbed) - 1} of "
            f"{len(finite) - 1} nodes after the first",
        )
    return Looks(selection_bias if isfinite(selection_bias) else None, notes)


def advice(models: Models, *, chooses: bool, noise: float, used_up: bool = True) -> Advice:
    """Whether more target rows or more budget promises more, by extrapolation.

    Rows, if choosing is all that they do (``chooses``): the score of what a quarter and a half of them
    choose, on the other half. Budget: the returned model's score after each training that led to it.
    ``noise`` is the score's, for where that of a difference is not known. A study that has not ``used_up``
    its budget does not need a larger one.
    """
    by_steps = models.by_steps()
    paired = models.noise()
    return rows_or_budget(
        models.metric,
        by_rows=_by_rows(models, models.choose) if chooses and models.choose is not None else None,
        by_steps=by_steps if used_up and len(by_steps) >= _CURVE else None,
        rows=len(models.y),
        noise=noise if paired is None else paired,
    )


def _by_rows(models: Models, choose: Metric) -> dict[float, float] | None:
    y = models.y
    if not _FEWEST <= len(y) <= _ROWS:
        return None
    latest = models.latest()
    if len(latest) < 2:
        return None
    paths, known, rng = list(latest), list(latest.values()), np.random.default_rng(0)
    half, quarter = len(y) // 2, len(y) // 4
    codes = np.unique(y, return_inverse=True)[1] if known[0].ndim == 2 else np.zeros(len(y), dtype=np.intp)
    pick_by, present = Chooser(choose, y, known), int(codes.max()) + 1
    choosing, held = list[NDArray[np.bool_]](), list[NDArray[np.bool_]]()
    for _ in range(_REPEATS):
        place = rng.permutation(len(y))
        few, many, rest = place < quarter, place < half, place >= half
        if all(np.bincount(codes[part], minlength=present).all() for part in (few, rest)):  # many has few
            choosing += [few, many]
            held.append(rest)
    if not held:
        return None
    picks = pick_by.scores(np.array(choosing)).argmax(axis=1).reshape(-1, 2)
    few_score, many_score = models.scores_on(held, paths, picks).mean(axis=0).tolist()
    return {quarter: few_score, half: many_score}
