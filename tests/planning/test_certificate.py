import json
from dataclasses import replace
from math import hypot, inf, sqrt

import numpy as np
import pytest

from mixtree.bounds import default_rho
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run, stored_tree
from mixtree.errors import InputError
from mixtree.fitting.options import make_options
from mixtree.fitting.pipeline import fit
from mixtree.fitting.prepare import prepare
from mixtree.partition import bisect, simplex_root
from mixtree.planning.certificate import certificate, certificate_of
from mixtree.trainer import Evaluation, Job
from mixtree.tree import Node
from mixtree.tree_search import TreeSearch


def full_tree(change, *, depth, error=float("nan"), children=2, sources=3):
    """Every cell opened down to a height; the first child is better by change(h), the others worse by it."""
    tree = {(): Node((), np.full(sources, 1 / sources), 10, 1.0, error, phase="root")}
    level = [()]
    for height in range(depth):
        below = []
        for path in level:
            for index in range(children):
                value = tree[path].value + (-change(height) if index == 0 else change(height))
                child = (*path, index)
                tree[child] = Node(child, np.full(sources, 1 / sources), 10, value, error)
                below.append(child)
        level = below
    return tree


@pytest.mark.parametrize(("sources", "nu", "rho"), [(2, 0.3, 0.6), (3, 2.0, 0.8), (4, 0.01, 0.85)])
def test_known_smoothness_is_found_and_the_bound_is_the_sum_below_the_best_leaf(sources, nu, rho):
    tree = full_tree(lambda h: nu * rho**h, depth=5)
    found = certificate(tree, sources=sources)
    assert found.smoothness.rho_from == "fit"
    assert found.smoothness.nu == pytest.approx(nu)
    assert found.smoothness.rho == pytest.approx(rho)
    assert found.smoothness.edges == 62
    assert found.best == found.doubtful == (0,) * 5
    assert found.bound == pytest.approx(sum(nu * rho**h for h in range(5, 400)))
    assert found.noise == 0
    assert found.smoothness.training == pytest.approx(0.0)


def test_the_envelope_covers_every_change():
    sizes = [0.5, 0.1, 0.3, 0.05]
    smooth = certificate(full_tree(lambda h: sizes[h], depth=4), sources=4).smoothness
    assert all(smooth.nu * smooth.rho**h >= size - 1e-12 for h, size in enumerate(sizes))


def test_a_decay_faster_than_the_cells_own_is_not_believed():
    smooth = certificate(full_tree(lambda h: 0.1**h, depth=4), sources=3).smoothness
    assert smooth.rho_from == "cells"
    assert smooth.rho == pytest.approx(sqrt(0.5))


@pytest.mark.parametrize("change", [lambda h: 0.1, lambda h: 0.1 * 1.5**h])
def test_values_that_do_not_get_smoother_fall_back_on_the_theory(change):
    smooth = certificate(full_tree(change, depth=4), sources=3).smoothness
    assert (smooth.rho_from, smooth.rho) == ("theory", default_rho(3))


def test_two_heights_are_too_few_to_fit_a_decay():
    found = certificate(full_tree(lambda h: 0.5**h, depth=2), sources=2)
    assert (found.smoothness.rho_from, found.dimension) == ("theory", None)
    assert any("too few heights" in each for each in found.assumptions)


def test_noise_is_taken_out_of_the_changes_and_put_into_the_bound():
    error, nu, rho = 0.05, 0.4, 0.8
    clean = full_tree(lambda h: nu * rho**h, depth=4)
    noisy = full_tree(lambda h: hypot(nu * rho**h, error * sqrt(2)), depth=4, error=error)
    found = certificate(noisy, sources=3)
    assert found.smoothness.nu == pytest.approx(certificate(clean, sources=3).smoothness.nu)
    assert found.smoothness.rho == pytest.approx(rho)
    # Another leaf's value is uncertain against the returned one; the returned one is not against itself.
    reach = found.smoothness.reach(4)
    other = noisy[(0, 0, 0, 1)].value - reach - 2 * hypot(error, error)
    own = noisy[(0, 0, 0, 0)].value - reach
    assert found.bound == pytest.approx(noisy[(0, 0, 0, 0)].value - min(other, own))


def test_changes_within_the_noise_are_taken_as_they_are_and_said():
    found = certificate(full_tree(lambda h: 0.01, depth=3, error=0.1), sources=3)
    assert found.smoothness.noisy
    assert found.smoothness.nu >= 0.01
    assert found.bound > 2 * hypot(0.1, 0.1) - 0.06
    assert "more validation rows" in found.sentence and "not settled" in found.sentence


def test_equal_values_leave_nothing_to_gain():
    found = certificate(full_tree(lambda h: 0.0, depth=3), sources=3)
    assert (found.bound, found.smoothness.nu, found.smoothness.noisy) == (0.0, 0.0, False)
    assert "the same validation loss" in found.sentence and "does not learn" in found.sentence


def test_a_loss_cannot_be_better_than_its_floor():
    tree = full_tree(lambda h: 0.3 * 0.9**h, depth=2)
    free, floored = certificate(tree, sources=3), certificate(tree, sources=3, floor=0.0)
    assert free.bound > floored.bound == floored.value
    assert "not possible" in floored.sentence and "not possible" not in free.sentence


def test_training_that_siblings_share_is_told_apart():
    tree = full_tree(lambda h: 0.1, depth=3)
    drifting = {path: replace(node, value=node.value - 0.5 * len(path)) for path, node in tree.items()}
    assert certificate(drifting, sources=3).smoothness.training == pytest.approx(0.25 / (0.25 + 0.01))


def test_the_returned_node_need_not_be_the_best_and_a_commit_counts_as_what_it_continued():
    tree = full_tree(lambda h: 0.2 * 0.8**h, depth=4)
    plain, other = certificate(tree, sources=3), certificate(tree, sources=3, best=(1, 0, 0, 0))
    gap = tree[(1, 0, 0, 0)].value - tree[(0, 0, 0, 0)].value
    assert other.bound == pytest.approx(plain.bound + gap)
    commit = (1, 0, 0, 0, 3)
    tree[commit] = Node(commit, tree[()].mixture, 100, -5.0, phase="commit")
    assert certificate(tree, sources=3, best=commit) == other
    with pytest.raises(InputError, match="no node"):
        certificate(tree, sources=3, best=(7,))


def test_an_unopened_cell_near_the_root_is_the_doubtful_one():
    tree = full_tree(lambda h: 0.1 * 0.8**h, depth=4)
    opened = {path: replace(node, value=node.value + 0.1) for path, node in tree.items() if path[:1] == (0,)}
    hopeful = {(): tree[()], (1,): replace(tree[(1,)], value=0.9), **opened}
    found = certificate(hopeful, sources=3)
    assert found.doubtful == (1,)
    assert found.bound == pytest.approx(opened[(0, 0, 0, 0)].value - (0.9 - 0.1 * 0.8 / (1 - 0.8)))


def test_the_dimension_counts_near_optimal_cells():
    # Every cell is within reach of the best at every height: N_h = 2^h, so d = log 2 / log(1/ρ).
    found = certificate(full_tree(lambda h: 0.8**h, depth=4), sources=3)
    assert found.dimension == pytest.approx(np.log(2) / np.log(1 / 0.8), rel=1e-6)
    assert found.details[0].startswith("near-optimality dimension: about 3.1")
    assert [line.removeprefix("assumed: ") for line in found.details[1:]] == list(found.assumptions)
    shallow = certificate(full_tree(lambda h: 0.8**h, depth=2), sources=3)
    assert "not estimated" in shallow.details[0]


def test_a_cell_with_a_child_that_was_not_told_yet_counts_as_a_leaf():
    tree = full_tree(lambda h: 0.1 * 0.8**h, depth=3)
    del tree[(1, 0)]
    for path in [path for path in tree if path[:2] in ((1, 0), (1, 1)) and len(path) > 2]:
        del tree[path]
    # (1, 1) alone would say nothing of the cell (1, 0); both are within reach of (1,).
    tree[(1,)] = replace(tree[(1,)], value=0.5)
    tree[(1, 1)] = replace(tree[(1, 1)], value=5.0)
    found = certificate(tree, sources=3)
    assert found.doubtful == (1,)
    assert (found.best, found.smoothness.edges) == ((1,), 8)


def test_diverged_nodes_are_left_out_and_named():
    tree = full_tree(lambda h: 0.8**h, depth=4)
    tree[(1, 1)] = replace(tree[(1, 1)], value=inf)
    for path in [path for path in tree if path[:2] == (1, 1) and len(path) > 2]:
        del tree[path]
    found = certificate(tree, sources=3)
    assert found.smoothness.nu == pytest.approx(1.0)
    assert any("1 diverged" in each for each in found.assumptions)


def test_delaunay_is_named():
    tree = full_tree(lambda h: 0.8**h, depth=3, children=3)
    assert any(each.startswith("delaunay") for each in certificate(tree, sources=3).assumptions)


@pytest.mark.parametrize(
    ("tree", "sources", "words", "bound"),
    [
        ({}, 3, "nothing was tried", None),
        (full_tree(lambda h: 1.0, depth=0), 3, "one mixture was tried", None),
        (full_tree(lambda h: 1.0, depth=0, sources=1), 1, "one source", 0.0),
        (full_tree(lambda h: 1.0, depth=3, children=1), 3, "one mixture was tried", None),
        ({(index,): Node((index,), np.array(each), 10, 1.0 - index)
          for index, each in enumerate(([0.2, 0.8], [0.5, 0.5], [0.9, 0.1]))},
         2, "3 mixtures were tried", None),
        ({(index,): Node((index,), np.array(each), 10, 1.0, phase=phase)
          for index, (each, phase) in enumerate((([0.2, 0.8, 0.0], "race"), ([0.5, 0.5, 0.0], "race"),
                                                 ([0.0, 0.0, 1.0], "target folds")))},
         2, "2 mixtures were tried", None),  # the target's own rows are none
        ({path: replace(node, value=inf) for path, node in full_tree(lambda h: 1.0, depth=2).items()},
         3, "every model diverged", None),
        ({path: replace(node, value=inf if path else 1.0)
          for path, node in full_tree(lambda h: 1.0, depth=1).items()}, 3, "too few", None),
    ],
)  # fmt: skip
def test_where_nothing_can_be_said_it_says_why(tree, sources, words, bound):
    found = certificate(tree, sources=sources)
    assert words in found.sentence
    assert (found.bound, found.smoothness, found.details) == (bound, None, ())


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("auto", "mixtures were tried, but no cell"),
        ("uniform", "one mixture was tried"),
        ("uniform+decay", "one mixture was tried"),
        ("fine-tune", "one mixture was tried"),  # the target's own rows are none
        ("online", "mixtures were tried, but no cell"),
        ("pbt", "mixtures were tried, but no cell"),
        ("mixmin", "mixtures were tried, but no cell"),
    ],
)
def test_methods_that_cut_no_cells_get_words(policy, words):
    data = synthetic(rows=100, features=3, seed=1).sources
    result = fit(data, policy=policy, model="linear", budget=400, steps=10)
    found = certificate(result.tree, sources=3, best=result.node.path, floor=0.0)
    assert found.sentence.startswith("No certificate: ") and words in found.sentence
    assert (found.bound, found.best, found.value) == (None, result.node.path, result.value)


def test_nonsense_is_refused():
    with pytest.raises(InputError, match="at least one source"):
        certificate({}, sources=0)


@pytest.mark.parametrize("sources", [2, 3, 4])
def test_the_bound_holds_on_a_smooth_function_of_the_mixture(sources):
    rng = np.random.default_rng(sources)
    for _ in range(5):
        target = rng.dirichlet(np.ones(sources))
        search = TreeSearch(simplex_root(sources), bisect, budget=600, steps=5, nu=0.5)
        while trials := search.ask():
            for trial in trials:
                search.tell(trial, Evaluation(float(np.abs(trial.mixture - target).sum())))
        found = certificate(search.tree, sources=sources, best=search.best().path)
        assert search.best().value - found.bound <= 0.0  # the smallest value there is


def test_a_stored_study_has_a_certificate_and_a_baseline_has_words(tmp_path):
    from contextlib import closing

    from mixtree.storage.sql import open_storage

    data, file = synthetic(rows=200, features=4, seed=1).sources, tmp_path / "study.db"
    options = {"model": "linear", "budget": 400, "steps": 10, "storage": file}
    result = fit(data, policy="mixmatch-bisect+commit", study="tree", **options)
    fit(data, policy="uniform", study="flat", **options)
    with closing(open_storage(file)) as storage:
        record = storage.load("tree")
        found = certificate_of(storage, record)
        flat = certificate_of(storage, storage.load("flat"))
        assert flat.bound is None and "one mixture was tried" in flat.sentence
        assert found == certificate(
            stored_tree(storage.nodes("tree")), sources=3, best=record.best, floor=0.0
        )
    searched = [node for node in result.tree.lineage(result.node.path) if node.phase != "commit"]
    assert found.value == searched[-1].value
    assert found.bound > 0 and found.noise > 0
    assert found.sentence.startswith("If the validation loss")
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["bound"] == found.bound
    chain = certificate(fit(data, policy="uniform+decay", model="linear", budget=50).tree, sources=3)
    assert chain.bound is None and "No certificate" in chain.sentence


@pytest.mark.parametrize("seed", [0, 1])
def test_no_random_mixture_beats_a_real_run_by_more_than_its_bound(seed):
    data = synthetic(rows=300, features=5, validation=300, seed=seed).sources
    prepared = prepare(data, make_options(model="linear", policy="mixmatch-bisect", budget=600, steps=20))
    result, trainer = run(prepared.search, prepared.trainer, seed=seed), prepared.trainer
    found = certificate(result.tree, sources=3, best=result.node.path)
    start, mixtures = trainer.init(seed), np.random.default_rng(seed).dirichlet(np.ones(3), 30)
    jobs = [Job(start, alpha, result.trained_steps, number) for number, alpha in enumerate(mixtures)]
    others = [each.value for each in trainer.evaluate(trainer.train(jobs))]
    assert result.value - min(others) <= found.bound
