"""Looks: merged models that are evaluated and neither trained nor kept."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import SearchError
from mixtree.policies.script import Script, Scripted
from mixtree.storage.sql import SqlStorage, open_storage
from mixtree.trainers.mlp import MlpTrainer
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.tree import Merge, Trial

SOURCES = synthetic(sources=2, rows=60, validation=40, features=3, seed=1).sources
EVEN = np.array([0.5, 0.5])
BRANCHES = ((0,), (1,))
WEIGHTS = (0.25, 0.5, 0.75)


class Looking(Scripted):
    """Two branches, three looks at what they merge to, training from the best of them."""

    def __init__(self, stop: int = 0) -> None:
        super().__init__(40)
        self.asked, self.stop = 0, stop

    def ask(self) -> list[Trial]:
        self.asked += 1
        if self.asked == self.stop:
            raise KeyboardInterrupt
        return super().ask()

    def script(self) -> Script:
        yield [Trial((), EVEN, 10)]
        yield [Trial(path, np.eye(2)[path[0]], 10) for path in BRANCHES]
        looks = yield [look((2 + place,), weight) for place, weight in enumerate(WEIGHTS)]
        best = min(looks, key=lambda node: node.value)
        (chosen,) = yield [Trial((*best.path, 0), best.mixture, 10, phase="commit", merged=best.merged)]
        return chosen


def look(path: tuple[int, ...], weight: float) -> Trial:
    mixture = np.array([weight, 1.0 - weight])
    return Trial(path, mixture, 0, phase="look", merged=Merge(BRANCHES, (weight, 1.0 - weight)))


def values(result: Any) -> dict[Any, Any]:
    return {path: (node.value.hex(), node.steps) for path, node in result.tree.items()}


@pytest.fixture(scope="module")
def whole() -> Any:
    return run(Looking(), MlpTrainer(SOURCES, hidden=(4,)))


def test_a_look_scores_the_merged_model_and_costs_nothing(whole: Any, tmp_path: Path) -> None:
    assert whole.spent == {"search": 30, "commit": 10}
    with closing(open_storage(tmp_path / "s.db")) as place:
        result = run(Looking(), MlpTrainer(SOURCES, hidden=(4,)), storage=place, keep="all")
        models = place.checkpoints("study")
        assert models is not None and models.count() == 4  # the trunk, two branches, the commit
        assert not models.exists((3,))
        trainer = MlpTrainer(SOURCES, hidden=(4,))
        states = [trainer.load(models.read(path)) for path in BRANCHES]
        merged = trainer.merge(states, WEIGHTS[::2])
        stored = {node.path: node for node in place.nodes("study")}
    assert result.tree[2,].value == trainer.evaluate([merged])[0].value
    assert [node.phase for node in result.tree.values() if node.look] == ["look"] * 3
    assert stored[3,].look and stored[3,].merged is not None and stored[3,].merged.weights == (0.5, 0.5)
    assert values(result) == values(whole)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("stop", [2, 3, 4, 5])
def test_a_study_with_looks_resumes_exactly(whole: Any, tmp_path: Path, stop: int, workers: int) -> None:
    if workers == 2 and stop != 4:
        return
    options: dict[str, Any] = {"storage": str(tmp_path / "s.db"), "workers": workers}
    with pytest.raises(KeyboardInterrupt):
        run(Looking(stop), MlpTrainer(SOURCES, hidden=(4,)), **options)
    result = run(Looking(), MlpTrainer(SOURCES, hidden=(4,)), resume=True, **options)
    assert values(result) == values(whole)
    assert np.array_equal(result.state.parameters, whole.state.parameters)


def test_lost_models_are_computed_again_before_they_are_merged(whole: Any, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Looking(4), MlpTrainer(SOURCES, hidden=(4,)), storage=tmp_path / "s.db")
    with closing(SqlStorage(tmp_path / "s.db")) as place:
        models = place.checkpoints("study")
        assert models is not None
        models.delete((1,))
    result = run(Looking(), MlpTrainer(SOURCES, hidden=(4,)), storage=tmp_path / "s.db", resume=True)
    assert values(result) == values(whole)
    assert any("computed again" in each for each in result.warnings)


def test_groups_of_trials_do_not_change_looks(whole: Any) -> None:
    trainer = MlpTrainer(SOURCES, hidden=(4,))
    trainer.group = 2  # type: ignore[misc]
    assert values(run(Looking(), trainer)) == values(whole)


class Alone(ReferenceTrainer):
    """A trainer that cannot merge."""

    merge: Any = None


class OnlyLooks(Scripted):
    """A look at the trunk, merged with itself."""

    def script(self) -> Script:
        (trunk,) = yield [Trial((), EVEN, 10)]
        (seen,) = yield [Trial((0,), EVEN, 0, merged=Merge(((),), (1.0,)))]
        self.seen = seen
        return trunk


def test_what_cannot_merge_scores_worst_and_says_so() -> None:
    search = OnlyLooks(20)
    result = run(search, Alone(SOURCES))
    assert search.seen.diverged
    assert "cannot merge models" in result.warnings[0]
    run(able := OnlyLooks(20), ReferenceTrainer(SOURCES))
    assert able.seen.value == pytest.approx(able.tree[()].value)


BAD = {
    "with 0 steps": Trial((0,), EVEN, 0),
    "there is none": Trial((0,), EVEN, 0, merged=Merge(((7,),), (1.0,))),
    "as many weights": Trial((0,), EVEN, 0, merged=Merge(((),), (0.5, 0.5))),
    "sum to 1": Trial((0,), EVEN, 0, merged=Merge(((),), (0.5,))),
}


@pytest.mark.parametrize("words", BAD)
def test_looks_that_nobody_can_take_are_refused(words: str) -> None:
    class Asks(Scripted):
        def script(self) -> Script:
            (trunk,) = yield [Trial((), EVEN, 10)]
            yield [BAD[words]]
            return trunk

    with pytest.raises(SearchError, match=words):
        run(Asks(20), MlpTrainer(SOURCES, hidden=()))


def test_a_look_has_no_model_to_continue() -> None:
    class Asks(Scripted):
        def script(self) -> Script:
            yield [Trial((), EVEN, 10)]
            (seen,) = yield [Trial((0,), EVEN, 0, merged=Merge(((),), (1.0,)))]
            yield [Trial((0, 0), EVEN, 5)]
            return seen

    with pytest.raises(SearchError, match="only looked at"):
        run(Asks(20), MlpTrainer(SOURCES, hidden=()))
