from dataclasses import replace

import numpy as np
import pytest

from mixtree import fit
from mixtree.data.allocation import FOLDS
from mixtree.data.folds import fold_rows, with_folds
from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError, TrainingError
from mixtree.metrics import as_metric
from mixtree.policies.auto import MIXTURES
from mixtree.policies.registry import make_search, training_sources
from mixtree.policies.setting import AutoOptions, Setting
from mixtree.testing import check_search
from mixtree.trainer import Evaluation
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree import Node, Segment


def setting(problem, budget=400, **options):
    sources = problem.sources
    metric = as_metric("log-loss", classes=sources.classes) if sources.classes else None
    return Setting(sources.names, sources.sizes, budget, 20, data=sources, metric=metric, **options)


def carry_out(problem, budget=400, lr=0.1, hidden=(), **options):
    told = setting(problem, budget, **options)
    search = make_search("auto", told)
    trainer = MlpTrainer(training_sources("auto", told), hidden=hidden, lr=lr)
    return search, trainer, run(search, trainer, seed=1)


@pytest.fixture(scope="module")
def inside():
    return synthetic(rows=600, validation=200, test=3000, alpha=[0.85, 0.1, 0.05], seed=2)


@pytest.mark.parametrize("budget", [1, 7, 59, 60, 100, 401])
def test_it_keeps_the_rules_of_a_search_at_any_budget(inside, budget):
    check_search(lambda: make_search("auto", setting(inside, budget)), budget=budget)


def test_all_of_the_budget_is_spent_and_told(inside):
    search, _, result = carry_out(inside)
    assert sum(result.spent.values()) <= 400
    assert result.unspent < 400 * 0.1
    assert any(note.startswith("mixture:") for note in search.notes)


def test_it_finds_a_better_mixture_than_uniform_inside_the_hull(inside):
    _, trainer, result = carry_out(inside, budget=800)
    plain = MlpTrainer(inside.sources, hidden=())
    uniform = run(make_search("uniform+decay", setting(inside, 800)), plain, seed=1)
    loss, test = as_metric("log-loss", classes=2), inside.test
    ours = loss(test.y, trainer.predict(result.state, test.x))
    assert ours < loss(test.y, plain.predict(uniform.state, test.x))


def test_target_rows_are_trained_on_only_where_they_help_and_may_be():
    outside = synthetic(hull="outside", rows=600, validation=300, test=10, seed=4)
    _, _, result = carry_out(outside, budget=1000)
    assert result.node.phase == "target"
    assert sum(result.weights.values()) == pytest.approx(1)
    assert list(result.weights) == list(outside.sources.names)  # the mixture before the target's rows
    _, _, never = carry_out(outside, budget=1000, use_target_rows=False)
    assert never.node.phase == "decay"
    assert not {"target", "target folds"} & set(never.spent)


def test_a_model_tuned_on_the_target_rows_has_twins_that_never_saw_them():
    outside = synthetic(hull="outside", rows=600, validation=300, test=5000, seed=4)
    search, trainer, result = carry_out(outside, budget=1000)
    loss, validation, test = as_metric("log-loss", classes=2), outside.sources.validation, outside.test
    true = loss(test.y, trainer.predict(result.state, test.x))
    tuned_on = loss(validation.y, trainer.predict(result.state, validation.x))
    unseen = loss(validation.y, search.unseen)
    assert search.unseen.shape == (300, 2)
    assert tuned_on < unseen  # what it was trained on flatters it
    error = loss.standard_error(validation.y, search.unseen)
    assert abs(unseen - true) < 3 * error
    never, _, _ = carry_out(outside, budget=1000, use_target_rows=False)
    assert never.unseen is None


def test_folds_part_the_rows_and_are_never_reported(inside):
    validation = inside.sources.validation
    folds = fold_rows(validation, 2)
    assert sorted(np.concatenate(folds).tolist()) == list(range(len(validation)))
    shares = [validation.y[rows].mean() for rows in folds]
    assert abs(shares[0] - shares[1]) < 0.05
    assert len(with_folds(inside.sources)) == len(inside.sources) + FOLDS
    _, _, result = carry_out(inside)
    assert not any(name.startswith("target fold") for name in result.weights)
    assert sum(result.weights.values()) == pytest.approx(1)


def test_tiny_validation_sets_one_source_and_twenty_sources():
    for options in ({"validation": 12}, {"sources": 1, "alpha": [1.0]}, {"sources": 20, "rows": 60}):
        problem = synthetic(**{"rows": 200, "validation": 40, "test": 10, "seed": 5, **options})
        _, _, result = carry_out(problem, budget=200)
        assert np.isfinite(result.value)


def test_a_step_size_that_diverges_is_made_smaller():
    problem = synthetic(classes=0, rows=300, validation=60, test=10, seed=1)
    search, _, result = carry_out(problem, budget=300, lr=20.0)
    assert np.isfinite(result.value)
    assert not search.notes[0].endswith("× 1")


def test_single_class_validation_rows_do_not_break_it(inside):
    rows = inside.sources.validation
    one = Sources(inside.sources.names, inside.sources.rows, Rows(rows.x, np.zeros_like(rows.y)), 2)
    told = Setting(one.names, one.sizes, 200, 10, data=one, metric=as_metric("log-loss", classes=2))
    result = run(make_search("auto", told), MlpTrainer(training_sources("auto", told), hidden=()), seed=0)
    assert np.isfinite(result.value)


def test_bounds_on_weights_are_refused(inside):
    with pytest.raises(InputError, match="minimum and maximum"):
        make_search("auto", setting(inside, minimum=[0.1, 0.1, 0.1]))


def test_a_resumed_study_ends_the_same(inside, tmp_path):
    told = setting(inside)
    trainer = MlpTrainer(training_sources("auto", told), hidden=())
    whole = run(make_search("auto", told), trainer, seed=3)

    def stop(event):
        if getattr(event, "spent", 0) > 200:
            raise RuntimeError("stopped on the way")

    place = {"storage": tmp_path / "study.db", "study": "x", "seed": 3}
    with pytest.raises(RuntimeError, match="on the way"):
        run(make_search("auto", told), trainer, listeners=[stop], **place)
    resumed = run(make_search("auto", told), trainer, resume=True, **place)
    assert resumed.value == whole.value
    assert np.array_equal(resumed.state.parameters, whole.state.parameters)


@pytest.mark.parametrize("hull", ["inside", "outside"])
def test_a_raised_budget_goes_on_from_the_longest_trained_model(hull, tmp_path):
    problem = synthetic(hull=hull, rows=400, validation=200, test=10, seed=4)
    file = tmp_path / "study.db"

    def go(budget, **options):
        told = setting(problem, budget)
        trainer = MlpTrainer(training_sources("auto", told), hidden=())
        return run(make_search("auto", told), trainer, seed=1, storage=file, study="a", **options)

    first = go(400)
    second = go(900, resume=True)
    assert sum(second.spent.values()) <= 900
    assert sum(second.spent.values()) > 600
    assert set(first.tree) < set(second.tree)
    lineage = first.tree.lineage(first.node.path)
    kept = [node for node in lineage if node.phase not in ("target", "target folds")][-1]
    stem = [node for node in second.tree.lineage(second.node.path) if node.path in first.tree]
    assert stem[-1].path == kept.path  # the target's rows were tried on it, or it was returned
    third = go(1000, resume=True)
    assert len(third.tree) > len(second.tree)
    again = go(1000, resume=True)
    assert again.node.path == third.node.path
    assert again.spent == third.spent


def test_stopped_early_it_returns_no_model_that_was_trained_on_validation_rows():
    outside = synthetic(hull="outside", rows=600, validation=300, test=10, seed=4)
    search = make_search("auto", setting(outside, 1000))
    value = 1.0
    while trials := search.ask():
        for trial in trials:
            value *= 0.99  # later is better, on whatever rows
            search.tell(trial, Evaluation(value, 0.1))
        assert search.best().phase not in ("target", "target folds")
        if any(trial.phase == "target folds" for trial in trials):
            return
    raise AssertionError("it never came to the target's rows")


def test_everything_diverging_is_told():
    search = make_search("auto", setting(synthetic(rows=60, validation=30, test=10), 100))
    while trials := search.ask():
        for trial in trials:
            search.tell(trial, Evaluation(float("nan")))
    with pytest.raises(TrainingError, match="diverged"):
        search.best()


def told_by(problem, value_of, budget=400):
    """Drive auto with made-up losses; all trials, in the order they were asked for, and the search."""
    search = make_search("auto", setting(problem, budget))
    y, trials = problem.sources.validation.y, []
    while asked := search.ask():
        trials += asked
        for trial in asked:
            losses = value_of(trial)  # one, or every row's
            value = float(np.mean(losses))
            share = np.zeros(len(y)) + (np.exp(-losses) if np.isfinite(value) else 0.5)
            predictions = np.where(y[:, None] == np.arange(2), share[:, None], 1 - share[:, None])
            search.tell(trial, Evaluation(value, 0.001, predictions if problem.sources.classes else None))
    return trials, search


@pytest.mark.parametrize("after", [np.inf, 0.69])
def test_larger_steps_that_ruin_the_trunk_are_taken_back(inside, after):
    """Three times the step size looks best at first; then the model diverges, or is surely worse."""

    def value(trial):
        if trial.lr_scale == 3.0:
            return 0.4 if trial.phase == "step size" else after
        return 0.6 if trial.phase == "step size" else 0.3

    trials, search = told_by(inside, value)
    assert len({trial.path for trial in trials}) == len(trials)  # no path twice
    trunks = [trial for trial in trials if trial.phase == "trunk"]
    assert [trial.lr_scale for trial in trunks] == [3.0, 1.0]
    assert trunks[1].path[:-1] == (0,)  # on from the trial of that step size
    assert max(trial.lr_scale for trial in trials if trial.phase == "commit") == 1.0
    assert search.notes[0] == "step size: unchanged"


def test_a_trunk_that_diverges_twice_leaves_the_trial_and_smaller_steps(inside):
    trials, search = told_by(inside, lambda trial: np.inf if trial.phase == "trunk" else 0.5)
    assert len({trial.path for trial in trials}) == len(trials)
    assert [trial.lr_scale for trial in trials if trial.phase == "trunk"] == [1.0, 0.3]
    assert all(trial.lr_scale < 0.3 for trial in trials if trial.phase == "commit")
    assert not search.best().diverged


def test_an_exploded_commit_is_not_returned(inside):
    trials, search = told_by(inside, lambda trial: 40.0 if trial.phase == "commit" else 0.5)
    lineage = [node.phase for node in search.tree.lineage(search.best().path)]
    assert "commit" not in lineage
    told = [note for note in search.notes if "made it much worse" in note]
    again, end = "the long training made it much worse: begun again at", "the model before it is kept"
    assert len(told) > 2 and len(set(told)) == len(told)  # each says what came of it
    assert all(note.startswith(again) for note in told[:-1]) and told[-1].endswith(end)


def test_tuning_that_worsens_the_rows_it_was_trained_on_is_undone(inside):
    def value(trial):
        return {"target folds": 0.3, "target": 9.0}.get(trial.phase, 0.5)

    _, search = told_by(inside, value, budget=1000)
    assert "target" in search.tree.spent
    assert search.best().phase == "decay"
    assert search.unseen is None
    assert any("it was undone" in note for note in search.notes)


@pytest.mark.parametrize(("scale", "after"), [(1.0, 40.0), (3.0, 0.6)])
def test_a_raised_budget_does_not_go_on_from_a_model_that_was_undone(inside, scale, after):
    search = make_search("auto", setting(inside, 900))
    mixture = np.array([1 / 3, 1 / 3, 1 / 3, 0, 0])
    rows = [((0,), "step size", 20, 0.6), ((0, 0), "trunk", 80, 0.4), ((0, 0, 10), "commit", 300, after)]
    nodes = [Node(path, mixture, steps, value, 0.01, scale, phase) for path, phase, steps, value in rows]
    search.adopt(nodes)
    assert search.ask()[0].path[:-1] == (0, 0)


def test_a_tie_is_no_reason_to_undo_a_tuning(inside):
    """With accuracy as the objective values tie often; the loss decides."""

    def value(trial):
        return {"target folds": 0.3, "target": 0.3}.get(trial.phase, 0.5)

    search = make_search("auto", setting(inside, 1000))
    y = inside.sources.validation.y
    while asked := search.ask():
        for trial in asked:
            share = np.exp(-value(trial))
            predictions = np.where(y[:, None] == np.arange(2), share, 1 - share)
            search.tell(trial, Evaluation(-0.9, 0.01, predictions))  # the same accuracy, whatever happens
    assert search.best().phase == "target"


def test_rows_of_a_target_that_contradicts_the_sources_are_learned_at_the_usual_step_size():
    random = np.random.default_rng(0)

    def part(count, sign):
        x = random.normal(size=(count, 6))
        return x, (random.random(count) < 1 / (1 + np.exp(-sign * (2 * x[:, 0] + x[:, 1])))).astype(int)

    sources = {"a": part(2000, 1.0), "b": part(2000, 1.0)}
    result = fit(sources, part(300, -1.0), test=part(1000, -1.0), reference="none", budget=800, seed=1)
    assert any(note.startswith("step size: 0.") for note in result.notes)
    assert "step size on the target rows: the usual one, which helps them more" in result.notes
    assert sum(result.spent.values()) <= 800
    target = [node for node in result.tree.values() if node.phase == "target"]
    assert {node.lr_scale for node in target} <= {1.0, 0.1}
    assert result.verdict is not None
    assert result.verdict.score.value > 0.75  # 0.5 and less at the step size that suits the sources


def better_by(rows, errors, seed=0):
    """What each row gains, with a mean of so many of its standard errors."""
    noise = np.random.default_rng(seed).standard_normal(rows)
    return (noise - noise.mean()) / noise.std(ddof=1) + errors / np.sqrt(rows)


@pytest.mark.parametrize(
    ("errors", "outside", "tuned"),
    [(1.0, False, False), (1.0, True, True), (2.5, False, True), (0.3, True, False)],
)
def test_what_may_be_chance_is_enough_only_where_the_target_is_unlike_the_sources(errors, outside, tuned):
    """The benefit of tuning in standard errors, and whether a mixture of the sources explains the target."""
    hull = "outside" if outside else "inside"
    problem = synthetic(hull=hull, rows=800, validation=300, test=1, seed=7)
    gain = 0.1 * better_by(300, errors)

    def losses(trial):
        return 0.8 - gain if trial.phase in ("target folds", "target") else 0.8

    _, search = told_by(problem, losses, budget=1000)
    assert (search.best().phase == "target") == tuned
    assert ("which may be chance" in search.notes[-1]) == (not tuned)


@pytest.mark.parametrize(("errors", "kept"), [(0.5, True), (-1.5, True), (-3.0, False)])
def test_a_commit_that_is_surely_worse_is_taken_back(inside, errors, kept):
    gain = 0.05 * better_by(200, errors)

    def losses(trial):
        return 0.8 - gain if trial.phase in ("commit", "decay") else 0.8

    _, search = told_by(inside, losses)
    assert ("commit" in [node.phase for node in search.tree.lineage(search.best().path)]) == kept
    assert any("the long training made it worse" in note for note in search.notes) == (not kept)


@pytest.mark.parametrize(("budget", "decays"), [(10, False), (23, False), (24, True), (59, True)])
def test_an_end_is_decayed_only_where_that_can_be_measured(inside, budget, decays):
    trials, search = told_by(inside, lambda trial: 0.5, budget=budget)
    assert any(trial.phase == "decay" for trial in trials) == decays
    assert any(trial.phase == "end" for trial in trials) == decays
    assert search.spent == budget


def overfits():
    """180 rows in all, which a network soon knows by heart."""
    return synthetic(sources=3, rows=60, features=8, validation=200, test=10, seed=1)


def test_a_stage_that_overfits_is_ended_and_its_best_model_kept():
    problem = overfits()
    search, _, result = carry_out(problem, budget=4000, hidden=(32,), use_target_rows=False)
    assert result.unspent > 2000
    assert any(f"stopped early: {result.unspent:,} of 4,000 steps" in note for note in search.notes)
    best = min(result.tree.values(), key=lambda node: node.value)
    assert result.value <= best.value + best.standard_error
    plain = MlpTrainer(problem.sources, hidden=(32,))
    uniform = run(make_search("uniform", setting(problem, 4000)), plain, seed=1)
    assert uniform.unspent == 0 and uniform.trained_steps == 4000  # a baseline does what it is called
    assert uniform.value > result.value + 5 * best.standard_error


def test_an_absurd_budget_is_shared_out_like_one_that_a_model_can_use():
    problem = overfits()
    found = []
    for passes in (200, 20_000):
        budget = passes * int(problem.sources.sizes.sum()) // 50
        _, _, result = carry_out(problem, budget=budget, hidden=(32,), use_target_rows=False)
        chosen = [node for node in result.tree.values() if node.phase in ("step size", "trunk", "race")]
        found.append([(node.path, node.steps, node.value) for node in chosen])
    assert found[0] == found[1] and result.unspent > 0.5 * budget


def test_three_segments_in_a_row_that_are_surely_worse_end_a_stage(inside):
    """The best of its segments goes on, and what the stage had left is not spent."""
    values = [0.45, 0.42, 0.40, 0.46, 0.45, 0.39, 0.43, 0.44, 0.40, 0.38]

    def losses(trial):
        if trial.phase != "commit":
            return 0.5 if trial.phase != "decay" else 0.39
        return values[(0 if trial.segment is None else trial.segment.before) // (trial.steps - 1)]

    trials, search = told_by(inside, losses, budget=2500)
    commit = [trial for trial in trials if trial.phase == "commit"]
    assert len(commit) == 9  # the first two that were worse were followed by a better one
    ends = [trial for trial in trials if trial.phase == "decay"]
    assert ends[0].path[:-1] == commit[5].path
    assert "the long training was stopped early: more of it made the validation loss worse" in search.notes
    unspent = 2500 - sum(trial.steps for trial in trials)
    assert unspent > 300 and any(f"stopped early: {unspent:,} of 2,500 steps" in n for n in search.notes)
    paths = [trial.path for trial in commit]
    assert search.needed(paths) == {paths[5]}  # nobody goes on from the others


@pytest.mark.parametrize(("lr", "rate", "phase"), [(0.003, 1.0, "commit"), (1.0, 0.1, "decay")])
def test_whether_the_end_is_decayed_is_measured(lr, rate, phase):
    """Where training has not converged the full step size goes on; where steps are large, smaller ones."""
    problem = synthetic(rows=600, validation=400, test=10, seed=2)
    options = AutoOptions(rates=(1.0,))
    search, _, result = carry_out(problem, budget=600, lr=lr, use_target_rows=False, auto=options)
    tried = [node for node in result.tree.values() if node.phase == "end" or node.path[-1] % 100 == 12]
    assert {(node.phase, node.lr_scale) for node in tried} >= {("end", 1.0), ("decay", 0.1)}
    assert len({node.path[:-1] for node in tried if node.path[-1] % 100 in (11, 12)}) == 1  # from one model
    assert (result.node.phase, result.node.lr_scale) == (phase, rate)
    assert any(note.startswith("no decayed end") for note in search.notes) == (rate == 1.0)


@pytest.mark.parametrize(
    ("values", "errors", "winner", "others"),
    [
        ((0.50, 0.49, 0.48), 0.05, "uniform", ["by the sources' sizes", "estimated from the target's rows"]),
        ((0.60, 0.49, 0.48), 0.05, "by the sources' sizes", ["estimated from the target's rows"]),
        ((0.60, 0.59, 0.48), 0.05, "estimated from the target's rows", []),
        ((0.48, 0.49, 0.60), 0.05, "uniform", ["by the sources' sizes"]),
    ],
)
def test_of_mixtures_that_do_equally_well_the_simplest_is_taken(values, errors, winner, others):
    problem = synthetic(rows=600, validation=200, test=10, alpha=[0.85, 0.1, 0.05], seed=2)
    rows = problem.sources.rows
    uneven = (rows[0].take(np.arange(60)), rows[1].take(np.arange(150)), rows[2])
    problem = replace(problem, sources=replace(problem.sources, rows=uneven))
    search = make_search("auto", setting(problem, 800))
    arms = [arm.mixture for arm in search._arms()]
    assert len(arms) == 3
    noise = {place: better_by(200, 0.0, seed=place) for place in range(3)}

    def losses(trial):
        if trial.phase != "race":
            return 0.5
        place = min(range(3), key=lambda arm: np.abs(arms[arm] - trial.mixture[:3]).sum())
        return values[place] + errors * np.sqrt(200 / 2) * noise[place]

    trials, search = told_by(problem, losses, budget=800)
    (note,) = [each for each in search.notes if each.startswith("mixture: ")]
    assert note.startswith(f"mixture: {winner}, ")
    assert ("did equally well" in note) == bool(others)
    assert all(each in note for each in others) and list(search.equally_good[1:]) == others
    commit = next(trial for trial in trials if trial.phase == "commit")
    assert commit.mixture[:3] == pytest.approx(arms[list(MIXTURES.values()).index(winner)])


def test_after_a_commit_that_explodes_what_is_left_is_trained_with_smaller_steps(inside):
    def losses(trial):
        return np.inf if trial.phase == "commit" and trial.lr_scale == 1.0 else 0.5

    trials, search = told_by(inside, losses)
    commits = [trial for trial in trials if trial.phase == "commit"]
    assert [trial.lr_scale for trial in commits] == [1.0, 0.3]
    assert commits[0].path[:-1] == commits[1].path[:-1]
    assert "commit" in [node.phase for node in search.tree.lineage(search.best().path)]
    assert sum(trial.steps for trial in trials) <= 400


@pytest.mark.parametrize(("last", "path"), [(0.45, (0, 0, 10, 11)), (0.49, (0, 0))])
def test_a_raised_budget_does_not_go_on_from_a_commit_that_was_taken_back(inside, last, path):
    search = make_search("auto", setting(inside, 900))
    mixture = np.array([1 / 3, 1 / 3, 1 / 3, 0, 0])
    values = {(0,): ("step size", 20, 0.6), (0, 0): ("trunk", 80, 0.46)}
    values |= {(0, 0, 10): ("commit", 300, 0.6), (0, 0, 10, 11): ("decay", 100, last)}
    search.adopt(
        [
            Node(where, mixture, steps, value, 0.01, 1.0, phase)
            for where, (phase, steps, value) in values.items()
        ]
    )
    found = search.ask()[0].path[:-1]
    assert found == path


def adopted(problem, rows, *, unfinished=()):
    """What auto first asks for at a raised budget, given the nodes of an earlier run."""
    search = make_search("auto", setting(problem, 900))
    mixture = np.array([1 / 3, 1 / 3, 1 / 3, 0, 0])
    part = Segment((), 0, 10**6)  # of a stage that goes on
    search.adopt(
        [
            Node(path, mixture, steps, value, 0.01, rate, phase, part if row in unfinished else None)
            for row in rows
            for path, phase, steps, rate, value in [row]
        ]
    )
    return search.ask()[0]


TRUNK = [((0,), "step size", 20, 1.0, 0.6), ((0, 0), "trunk", 80, 1.0, 0.46)]


def test_a_raised_budget_goes_on_from_the_model_that_was_kept(inside):
    """The commit was taken back though its values do not tell: what was tried on the target's rows does."""
    rows = [
        *TRUNK,
        ((0, 0, 10), "commit", 300, 1.0, 0.6),
        ((0, 0, 10, 11), "decay", 100, 0.1, 0.47),
        ((0, 0, 20), "target folds", 10, 1.0, 0.5),
        ((0, 0, 31), "decay", 60, 0.1, 0.45),
    ]
    trial = adopted(inside, rows)
    assert trial.path[:-1] == (0, 0, 31)
    assert trial.lr_scale == pytest.approx(0.3)
    assert adopted(inside, rows[:-1]).path[:-1] == (0, 0)


@pytest.mark.parametrize(
    ("commit", "end", "stem"),
    [
        ([0.40, 0.42, 0.41], [], (0, 0, 10)),  # it was interrupted where it was past its best
        ([0.40, 0.42, 0.39], [], (0, 0, 10, 0, 0)),
        ([0.40, 0.47, 0.48], [((0, 0, 10, 12), 0.39)], (0, 0, 10, 12)),  # the end began at the best segment
        ([0.40, 0.38, 0.37], [((0, 0, 10, 0, 0, 12), 0.39)], (0, 0, 10, 0, 0, 12)),
        ([0.60, 0.65, 0.70], [((0, 0, 12), 0.39)], (0, 0, 12)),  # at the model before the commit
    ],
)
def test_a_raised_budget_goes_on_from_no_segment_that_was_left_behind(inside, commit, end, stem):
    rows = list(TRUNK)
    for number, value in enumerate(commit):
        rows.append(((0, 0, 10, *(0,) * number), "commit", 100, 1.0, value))
    rows += [(path, "decay", 20, 0.1, value) for path, value in end]
    assert adopted(inside, rows, unfinished=() if end else rows[2:]).path[:-1] == stem


def test_a_raised_budget_goes_on_from_the_race_though_the_trunk_was_longer(inside):
    """The trunk made it worse, and the race began before it."""
    rows = [*TRUNK, ((0, 1), "race", 10, 1.0, 0.5), ((0, 2), "race", 10, 1.0, 0.48)]
    assert adopted(inside, rows).path[:-1] == (0, 2)


def test_a_raised_budget_goes_on_from_the_winner_of_the_race_at_its_step_size(inside):
    rows = [
        *TRUNK,
        ((0, 0, 0), "race", 20, 1.0, 0.45),
        ((0, 0, 1), "race", 20, 1.0, 0.41),
        ((0, 0, 0, 0), "race", 10, 0.1, 0.44),
        ((0, 0, 1, 0), "race", 10, 0.1, 0.4),
    ]
    trial = adopted(inside, rows)
    assert trial.path[:-1] == (0, 0, 1, 0)
    assert trial.lr_scale == 1.0
    exploded = adopted(inside, [*rows, ((0, 0, 0, 0, 10), "commit", 300, 1.0, np.inf)])
    assert exploded.path[:-1] == (0, 0, 0, 0)
    assert exploded.lr_scale == pytest.approx(0.3)


def test_a_raised_budget_keeps_a_commit_whose_decay_exploded(inside):
    rows = [*TRUNK, ((0, 0, 10), "commit", 300, 1.0, 0.4), ((0, 0, 10, 11), "decay", 100, 0.1, np.inf)]
    assert adopted(inside, rows).path[:-1] == (0, 0, 10)


def with_tree(problem, budget=900):
    return setting(problem, budget=budget, auto=AutoOptions(tree_share=0.2, tree_looks=15))


def test_a_tree_over_merged_models_joins_the_race(inside):
    own = with_tree(inside)
    search = make_search("auto", own)
    result = run(search, MlpTrainer(training_sources("auto", own), hidden=()), seed=0)
    looks = [node for node in result.tree.values() if node.look]
    assert 15 <= len(looks) <= 21 and result.spent["branch"] == 180
    assert "tree: 15 mixtures looked at" in search.notes
    assert sum(result.spent.values()) <= 900
    races = [node for node in result.tree.values() if node.phase == "race" and node.merged is not None]
    assert len(races) >= 2  # every arm goes on from its merged model
    assert not result.node.look
    check_search(lambda: make_search("auto", with_tree(inside)), budget=900)


def test_a_study_with_a_tree_resumes_and_its_budget_can_be_raised(inside, tmp_path):
    def again(budget, **options):
        own = with_tree(inside, budget)
        trainer = MlpTrainer(training_sources("auto", own), hidden=())
        return run(make_search("auto", own), trainer, seed=0, storage=tmp_path / "s.db", **options)

    first = again(900)
    same = again(900, resume=True)
    assert [node.value for node in same.tree.values()] == [node.value for node in first.tree.values()]
    more = again(1100, resume=True)
    assert sum(more.spent.values()) <= 1100 and not more.node.look
    assert more.trained_steps > first.trained_steps


def test_short_branches_make_no_tree(inside):
    own = with_tree(inside, budget=300)
    result = run(make_search("auto", own), MlpTrainer(training_sources("auto", own), hidden=()), seed=0)
    assert "branch" not in result.spent
