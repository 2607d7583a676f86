"""What the nodes of a finished search say by themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mixtree.metrics import ACCURACY, AUROC, LOG_LOSS, Metric, as_metric
from mixtree.tree import Node
from mixtree.verdict import advice as advice_module
from mixtree.verdict import expected_optimism
from mixtree.verdict.advice import Looks, Models, advice, looks
from mixtree.verdict.sentences import Advice


def models(count: int, skill: list[float], rows: int = 200):
    """Labels, and models whose log-odds follow them as strongly as their skill says."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=rows)
    odds = np.outer(skill, 2.0 * y - 1.0) + rng.normal(size=(count, rows))
    p = 1.0 / (1.0 + np.exp(-odds))
    stack = np.stack([1.0 - p, p], axis=2)
    paths = [(0,) * place for place in range(count)]
    nodes = [
        Node(path, np.array([1.0]), 100, LOG_LOSS(y, each), LOG_LOSS.standard_error(y, each))
        for path, each in zip(paths, stack, strict=True)
    ]
    return y, dict(zip(paths, stack, strict=True)), nodes


def models_of(metric, y, predictions, nodes):
    return Models(metric, y, predictions, {node.path: node for node in nodes}, nodes, choose=LOG_LOSS)


def _alike(paths, nodes):
    return {path: replace(nodes[0], path=path, value=1.0) for path in paths}


def test_looking_often_at_equal_models_makes_something_up():
    y, predictions, nodes = models(30, [0.5] * 30)
    found = looks(models_of(AUROC, y, predictions, nodes), nodes)
    assert 0.02 < found.optimism < 0.1
    one = looks(models_of(AUROC, y, {(): predictions[()]}, nodes[:1]), nodes[:1])
    assert one.optimism == 0.0 and one.notes == ()
    assert looks(models_of(AUROC, y, {}, []), []).optimism is None


def test_new_bests_within_the_noise_are_not_counted():
    y, predictions, nodes = models(3, [0.1, 2.0, 1.8])
    (note,) = looks(models_of(AUROC, y, predictions, nodes), nodes).notes
    assert note.endswith("1 of 2 nodes after the first")


def test_a_model_that_still_improves_asks_for_budget():
    y, predictions, nodes = models(4, [0.1, 0.5, 0.8, 1.0])
    told = advice(models_of(AUROC, y, predictions, nodes), chooses=True, noise=0.0)
    (line,) = told.notes
    assert told.next_step.startswith("raise the budget: twice as much is expected to gain")
    assert "twice the target rows" in line and line.endswith("more budget is worth more")
    found = models_of(AUROC, y, predictions, nodes)
    (line,) = advice(found, chooses=False, noise=1.0).notes
    # The noise is that of a difference on the same rows, not the score's.
    error = AUROC.paired_error(y, predictions[nodes[3].path], predictions[nodes[1].path])
    assert found.noise() == error != AUROC.standard_error(y, predictions[nodes[3].path])
    assert "target rows" not in line and line.endswith(f"the noise is {error:.3f}")


def test_a_model_that_hardly_improves_is_told_so():
    y, predictions, nodes = models(4, [0.5, 0.55, 0.54, 0.55])
    (line,) = advice(models_of(AUROC, y, predictions, nodes), chooses=False, noise=0.0).notes
    assert "below the noise" in line


def test_where_nothing_is_known_of_differences_the_noise_is_the_scores():
    y, predictions, nodes = models(4, [0.1, 0.5, 0.8, 1.0])

    def mine(labels, each):
        return AUROC(labels, each)

    found = models_of(as_metric(mine, classes=2, higher_is_better=True), y, predictions, nodes)
    assert found.noise() is None
    (line,) = advice(found, chooses=False, noise=1.0).notes
    assert line.endswith("below the noise (1.000)")


@pytest.mark.parametrize("rows", [1, 8, 39])
def test_too_few_rows_or_models_are_no_curve(rows):
    y, predictions, nodes = models(2, [0.1, 0.5], rows=rows)
    assert advice(models_of(LOG_LOSS, y, predictions, nodes), chooses=True, noise=0.0) == Advice()


def test_a_users_metric_is_asked_for_no_more_than_is_needed():
    y, predictions, nodes = models(5, [0.1, 0.5, 0.8, 1.0, 0.2])
    asked = []

    def slow(labels, stack):
        asked.append(len(stack))
        return np.array([AUROC(labels, each) for each in stack])

    own = Metric("own", True, slow, "classification")
    known = {node.path: node for node in nodes}
    assert Models(own, y, predictions, known, nodes[:2], choose=LOG_LOSS).scores == {} and not asked
    found = Models(own, y, predictions, known, nodes[:3], choose=LOG_LOSS)
    assert asked == [3] and list(found.scores) == [(), (0,), (0, 0)]
    assert looks(found, nodes).optimism is None


def test_models_are_scored_once():
    y, predictions, nodes = models(5, [0.1, 0.5, 0.8, 1.0, 0.2])
    ranked = models_of(AUROC, y, predictions, nodes)
    assert ranked.scores == pytest.approx({path: AUROC(y, each) for path, each in predictions.items()})
    asked = []

    def counted(labels, stack):
        asked.append(len(stack))
        return AUROC.values(labels, stack)

    own = Metric("own", True, counted, "classification", AUROC.contributions, by_class=True)
    assert models_of(own, y, predictions, nodes).scores == pytest.approx(ranked.scores)
    assert sum(asked) == 5


def test_a_model_far_behind_was_not_beaten_by_luck():
    y, predictions, nodes = models(30, [0.5] * 15 + [0.0] * 15, rows=1_000)
    near = looks(models_of(AUROC, y, dict(list(predictions.items())[:15]), nodes[:15]), nodes)
    assert looks(models_of(AUROC, y, predictions, nodes), nodes).optimism == near.optimism > 0.0
    # Nor is it far behind one whose luck made it look sure.
    lucky = [replace(nodes[0], standard_error=0.0), *nodes[1:]]
    assert looks(models_of(AUROC, y, predictions, lucky), nodes).optimism > 0.5 * near.optimism
    # Without a standard error nobody knows what is far.
    unsure = [replace(node, standard_error=float("nan")) for node in nodes]
    assert looks(models_of(AUROC, y, predictions, unsure), nodes).optimism != near.optimism


def test_the_search_s_own_objective_chooses():
    y, predictions, nodes = models(12, [0.5] * 12)
    odds = np.array([0.3, 1.0, 3.0] * 4)  # the same rankings, but other losses
    told = {path: _sharper(each, by) for (path, each), by in zip(predictions.items(), odds, strict=True)}
    stack = list(told.values())
    same = _alike(told, nodes)
    found = Models(AUROC, y, told, same, nodes, choose=LOG_LOSS).optimism
    assert found == expected_optimism(AUROC, y, stack, objective=LOG_LOSS)
    assert found != expected_optimism(AUROC, y, stack)
    assert Models(AUROC, y, told, same, nodes, choose=AUROC).optimism == expected_optimism(AUROC, y, stack)


def _sharper(predictions, by):
    power = predictions**by
    return power / power.sum(axis=1, keepdims=True)


def test_a_sure_mistake_costs_the_same_in_every_score_of_a_curve():
    y, predictions, nodes = models(6, [0.1, 0.2, 0.3, 0.5, 0.8, 1.0])
    told = {path: each.astype(np.float32) for path, each in predictions.items()}
    for each in told.values():
        each[0] = np.eye(2)[1 - y[0]]  # a probability of 0, of which 32 bits make less than 64
    known = {node.path: replace(node, value=LOG_LOSS(y, told[node.path])) for node in nodes}
    found = Models(LOG_LOSS, y, told, known, nodes, choose=LOG_LOSS).scores
    assert found == pytest.approx({path: node.value for path, node in known.items()})


def test_of_many_models_the_latest_are_looked_at(monkeypatch):
    monkeypatch.setattr(advice_module, "_MOST", 3)
    y, predictions, nodes = models(6, [0.5] * 6)
    broken = predictions | {(0,) * 4: np.full((len(y), 2), np.nan)}
    found = models_of(AUROC, y, broken, nodes).latest()
    assert list(found) == [(0,) * 2, (0,) * 3, (0,) * 5]


def test_models_of_the_same_value_stay_in_their_order():
    y, predictions, nodes = models(9, [0.5] * 9)
    mixed = dict(sorted(predictions.items(), key=lambda each: hash(str(each[0]) + "x")))
    found = Models(AUROC, y, mixed, _alike(mixed, nodes), nodes, choose=LOG_LOSS)
    assert list(found.scores) == list(mixed)


def test_a_model_without_finite_predictions_is_not_scored():
    y, predictions, nodes = models(4, [0.1, 0.5, 0.8, 1.0])
    broken = predictions | {(0,): np.full((len(y), 2), np.nan)}
    found = models_of(AUROC, y, broken, nodes)
    assert list(found.scores) == [
        path for path in models_of(AUROC, y, predictions, nodes).scores if path != (0,)
    ]
    assert np.isfinite(found.optimism)


def test_advice_leaves_models_without_finite_predictions_out():
    y, predictions, nodes = models(6, [0.1, 0.5, 0.8, 1.0, 0.7, 0.6])
    broken = {(9, 9): np.full((len(y), 2), np.nan), **predictions}
    asked = []

    def strict(labels, given):
        assert np.isfinite(given).all()
        asked.append(len(labels))
        return ACCURACY(labels, given)

    own, known = as_metric(strict, classes=2, higher_is_better=True), _alike(broken, nodes)
    told = advice(Models(own, y, broken, known, nodes, choose=LOG_LOSS), chooses=True, noise=0.0)
    once = len(asked)
    assert told == advice(Models(own, y, predictions, known, nodes, choose=LOG_LOSS), chooses=True, noise=0.0)
    assert "twice the target rows" in told.notes[0] and len(asked) == 2 * once
    assert once <= 6 + 2 * 8  # the nodes of the curve, and at most two models on each of eight halves


def test_where_nothing_was_chosen_nothing_was_lucky():
    y, predictions, nodes = models(30, [0.5] * 30)
    known = {node.path: node for node in nodes}
    fixed = Models(AUROC, y, predictions, known, nodes, choose=None)
    assert looks(fixed, nodes) == Looks(None, ())
    assert fixed.scores == pytest.approx({path: AUROC(y, each) for path, each in predictions.items()})
    (line,) = advice(fixed, chooses=True, noise=0.0).notes
    assert "twice the budget" in line and "target rows" not in line
