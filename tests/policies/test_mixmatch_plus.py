"""mixmatch+: a trunk, branches, a tree over what they merge to, a race, a commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError
from mixtree.policies.merging import BRANCH, LOOK, rank_correlation
from mixtree.policies.mixmatch_plus import MixmatchPlus
from mixtree.policies.registry import kinds_of, known_algorithms, make_search
from mixtree.policies.setting import PlusOptions, Setting
from mixtree.testing import check_search
from mixtree.trainer import Evaluation
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree import Trial

PROBLEM = synthetic(sources=3, rows=300, validation=200, features=4, seed=2)
BUDGET = 300


def setting(budget: int = BUDGET, sources: Sources = PROBLEM.sources, **options: Any) -> Setting:
    plus = PlusOptions(**({"looks": 16, "rounds": 1} | options))
    return Setting(sources.names, sources.sizes, budget, 10, seed=1, data=sources, plus=plus, segments=3)


def trainer(sources: Sources = PROBLEM.sources, **options: Any) -> MlpTrainer:
    return MlpTrainer(sources, **({"hidden": (), "batch_size": 20} | options))


def found(result: Any) -> list[Any]:
    return [
        (path, node.value.hex(), node.mixture.tobytes(), node.steps, node.phase)
        for path, node in result.tree.items()
    ]


def test_where_the_steps_go() -> None:
    search = MixmatchPlus(setting(looks=40))
    result = run(search, trainer(), keep_predictions=True)
    spent = result.spent
    assert (spent["trunk"], spent[BRANCH]) == (90, 90)
    assert sum(spent.values()) == BUDGET and LOOK not in spent
    looks = [node for node in result.tree.values() if node.look]
    # A probe, the tree's odd number of nodes, pooled.
    assert 39 <= len(looks) <= 42
    assert len({each.mixture.tobytes() for each in looks}) > 30
    assert result.node.phase == "decay" and result.rule == "mixmatch+"
    assert any(note.startswith("tree: 39 merged models") for note in result.notes)
    branches = [node for node in result.tree.values() if node.phase == BRANCH]
    assert {tuple(node.mixture) for node in branches} == {tuple(row) for row in np.eye(3)}
    streams = {node.segment.stream for node in branches if node.segment is not None}
    assert len(streams) == 1  # the same random numbers for all


def test_merged_scores_stand_for_trained_ones() -> None:
    """The tree's choice is nearer to the true mixture than uniform is, in the hull and with enough rows."""
    gaps = []
    for seed in range(4):
        problem = synthetic(sources=3, rows=2000, validation=4000, seed=seed)
        search = MixmatchPlus(setting(1000, problem.sources, arm=0.0, looks=64))
        result = run(search, trainer(problem.sources, batch_size=50), seed=seed)
        gaps.append(np.abs(result.node.mixture - problem.alpha).sum() - np.abs(1 / 3 - problem.alpha).sum())
    assert np.mean(gaps) < -0.2


class Stopping(MixmatchPlus):
    """Stops when it is asked for the n-th round."""

    stop = 0
    asked = 0

    def ask(self) -> list[Trial]:
        self.asked += 1
        if self.asked == self.stop:
            raise KeyboardInterrupt
        return super().ask()


def test_it_resumes_exactly_in_every_phase(tmp_path: Path) -> None:
    def make() -> Stopping:
        return Stopping(setting(rounds=2, tail=2))

    whole_search = make()
    whole = run(whole_search, trainer())
    first = {}
    seen = set()
    counted = make()
    while trials := counted.ask():
        phase = (trials[0].phase, len(trials) > 1)
        if phase not in seen:
            seen.add(phase)
            first[counted.asked] = phase
        for trial in trials:
            counted.tell(trial, Evaluation(float(np.abs(trial.mixture).max()), 0.1))
    assert {phase for phase, _ in first.values()} == {"trunk", BRANCH, LOOK, "race", "commit", "decay"}
    for number in first:
        stopped = make()
        stopped.stop = number + 1
        file = tmp_path / f"{number}.db"
        with pytest.raises(KeyboardInterrupt):
            run(stopped, trainer(), storage=file)
        again = run(make(), trainer(), storage=file, resume=True)
        assert found(again) == found(whole)
        assert np.array_equal(again.state.parameters, whole.state.parameters)
        assert again.notes == whole.notes


def test_workers_change_nothing(tmp_path: Path) -> None:
    whole = run(MixmatchPlus(setting()), trainer())
    parallel = run(MixmatchPlus(setting()), trainer(), workers=2, storage=tmp_path / "s.db")
    assert found(parallel) == found(whole)


def test_a_raised_budget_goes_on_from_the_longest_trained_model(tmp_path: Path) -> None:
    first = run(MixmatchPlus(setting()), trainer(), storage=tmp_path / "s.db")
    more = run(MixmatchPlus(setting(BUDGET + 100)), trainer(), storage=tmp_path / "s.db", resume=True)
    assert sum(more.spent.values()) <= BUDGET + 100
    assert more.trained_steps == first.trained_steps + 100
    assert np.array_equal(more.node.mixture, first.node.mixture)


def test_it_keeps_the_promises_of_searches() -> None:
    for options in ({}, {"rounds": 2}, {"arm": 0.0}, {"merged_start": False}, {"trunk": 0.0}, {"tail": 1}):
        check_search(lambda options=options: MixmatchPlus(setting(**options)), budget=BUDGET)  # type: ignore[misc]


class Alone(MlpTrainer):
    """Cannot merge."""

    merge: Any = None


def test_without_merging_uniform_and_pooled_race() -> None:
    uneven = synthetic(sources=3, rows=300, validation=100, features=4, seed=2).sources
    parts = tuple(part.take(np.arange(40 * (number + 1))) for number, part in enumerate(uneven.rows))
    sources = Sources(uneven.names, parts, uneven.validation, uneven.classes)
    result = run(MixmatchPlus(setting(sources=sources)), Alone(sources, hidden=(), batch_size=20))
    assert "models cannot be merged here: uniform and pooled race, without a tree" in result.notes
    assert "race" in result.spent and BRANCH not in result.spent
    assert sum(result.spent.values()) == BUDGET
    assert len(result.warnings) == 1 and "cannot merge models" in result.warnings[0]


def test_one_source_and_small_budgets_have_one_mixture() -> None:
    one = synthetic(sources=1, rows=100, validation=50, features=4, seed=2).sources
    result = run(MixmatchPlus(setting(sources=one)), trainer(one))
    assert sum(result.spent.values()) == BUDGET and result.mixture.tolist() == [1.0]
    few = run(MixmatchPlus(setting(20)), trainer())
    assert sum(few.spent.values()) == 20
    assert any("too few for branches" in note for note in few.notes)


def test_a_branch_that_diverges_leaves_the_race() -> None:
    def value(trial: Trial) -> float:
        return float("inf") if trial.phase == BRANCH and trial.mixture[1] == 1.0 else 1.0

    search = MixmatchPlus(setting())
    drive(search, value)
    assert "a branch diverged: uniform and pooled race, without a tree" in search.notes


def drive(search: MixmatchPlus, value: Callable[[Trial], float]) -> None:
    while trials := search.ask():
        for trial in trials:
            search.tell(trial, Evaluation(value(trial), 1e-6))


def test_it_tells_when_merged_losses_are_not_to_be_trusted() -> None:
    """Merged losses rank the race's mixtures one way, training the other way."""
    for sign, trusted in ((1.0, True), (-1.0, False)):

        def value(trial: Trial, sign: float = sign) -> float:
            told = float(trial.mixture @ [0.1, 0.5, 0.9])
            return told if trial.phase == LOOK else sign * told + 2.0

        uneven = Setting(("a", "b", "c"), np.array([10, 20, 70]), BUDGET, 10, plus=PlusOptions(looks=32))
        search = MixmatchPlus(uneven)
        drive(search, value)
        assert (search.trust >= 0.3) is trusted
        assert any("not to be trusted" in note for note in search.notes) is not trusted


def test_many_sources_share_weights_by_their_branches() -> None:
    problem = synthetic(sources=12, rows=60, validation=80, features=4, seed=3)
    search = MixmatchPlus(setting(1200, problem.sources, groups=4))
    result = run(search, trainer(problem.sources))
    assert "12 sources in 4 groups of alike branches" in search.notes
    looks = [node.mixture for node in result.tree.values() if node.look]
    assert all(len(np.unique(np.round(each, 9))) <= 4 for each in looks)
    assert np.isclose(result.mixture.sum(), 1.0)


def test_it_is_an_algorithm_like_others() -> None:
    assert isinstance(make_search("mixmatch+", setting()), MixmatchPlus)
    assert "mixmatch+" in known_algorithms(("a",))
    assert not kinds_of("mixmatch+")
    with pytest.raises(InputError, match="mixmatch-ch knows them"):
        make_search("mixmatch+", Setting(("a", "b"), np.array([1, 1]), 100, 10, minimum=(0.1, 0.1)))


@pytest.mark.parametrize(
    ("one", "two", "wanted"),
    [([1, 2, 3], [2, 4, 9], 1.0), ([1, 2, 3], [3, 2, 1], -1.0), ([1, 2, 3, 4], [1, 3, 2, 4], 0.8)],
)
def test_rank_correlations(one: list[float], two: list[float], wanted: float) -> None:
    assert rank_correlation(one, two) == wanted
    assert np.isnan(rank_correlation(one[:2], two[:2]))


def test_three_hundred_looks_take_less_than_a_second() -> None:
    problem = synthetic(sources=4, rows=200, validation=500, features=100, seed=4)
    model = trainer(problem.sources, hidden=(128, 128, 128), batch_size=50)
    run(MixmatchPlus(setting(100, problem.sources)), model)  # what is done once

    def seconds(looks: int) -> float:
        began = time.process_time()
        run(MixmatchPlus(setting(300, problem.sources, looks=looks)), model)
        return time.process_time() - began

    assert min(seconds(303) - seconds(3) for _ in range(2)) < 1.0


def linear(seed: int) -> tuple[Sources, np.ndarray]:
    """Linear regressions on the same x: w*(α) = Σ α_k w_k, and the target is a mixture of the three."""
    random = np.random.default_rng(seed)
    weights, alpha = random.standard_normal((3, 4)), random.dirichlet(np.ones(3))

    def rows(source: int, count: int) -> Rows:
        x = random.standard_normal((count, 4))
        return Rows(x, x @ weights[source] + 0.1 * random.standard_normal(count))

    counts = np.maximum(1, np.round(4000 * alpha).astype(int))
    parts = [rows(source, 4000) for source in range(3)]
    held = [rows(source, count) for source, count in enumerate(counts)]
    target = Rows(np.concatenate([each.x for each in held]), np.concatenate([each.y for each in held]))
    return Sources(("a", "b", "c"), tuple(parts), target, 0), counts / counts.sum()


def test_the_mixture_comes_to_the_true_one_as_the_budget_grows() -> None:
    """And is nearer to it than the published search's at every budget: ten seeds, paired."""
    means = []
    for budget in (150, 300, 800):
        gaps: dict[str, list[float]] = {"mixmatch+": [], "mixmatch-bisect": []}
        for seed in range(10):
            sources, alpha = linear(seed)
            model = MlpTrainer(sources, hidden=(), lr=0.03, batch_size=50)
            plus = PlusOptions(rounds=3, branches=0.6, arm=0.0, looks=300, optimism=0.1)
            own = Setting(
                sources.names, sources.sizes, budget, budget // 30, seed=seed, data=sources, plus=plus
            )
            for name, found in gaps.items():
                node = run(make_search(name, own), model, seed=seed).node
                found.append(float(np.abs(node.mixture - alpha).sum()))
        means.append(np.mean(gaps["mixmatch+"]))
        nearer = np.subtract(gaps["mixmatch-bisect"], gaps["mixmatch+"])
        assert nearer.mean() > 1.83 * nearer.std(ddof=1) / np.sqrt(10)  # 95 %, one-sided
    assert means[0] > means[1] > means[2]
