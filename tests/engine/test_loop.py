"""Studies that were interrupted, raised, moved to other data or robbed of their files."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixtree.data.sources import Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import Result, run
from mixtree.errors import (
    CheckpointError,
    InputError,
    SearchError,
    StorageError,
    StudyInterrupted,
    StudyLocked,
)
from mixtree.events import Event, NodeEvaluated, RoundAsked, StudyStarted, Warned
from mixtree.fitting.pipeline import load
from mixtree.partition import PARTITIONS
from mixtree.policies.commit import then_commit
from mixtree.policies.fixed import fixed, uniform
from mixtree.policies.registry import make_search
from mixtree.policies.setting import Setting
from mixtree.storage.memory import MemoryStorage
from mixtree.storage.sql import SqlStorage
from mixtree.trainer import Evaluation, Job
from mixtree.trainers.reference import ReferenceState, ReferenceTrainer
from mixtree.tree import Node, Trial
from mixtree.tree_search import TreeSearch

BUDGET = 75


class Stop(Exception):
    """Somebody pulls the plug."""


@cache
def sources() -> Sources:
    return synthetic(sources=3, rows=40, validation=30, test=5, features=4, seed=3).sources


class Trainer(ReferenceTrainer):
    """The reference trainer; it counts, and fails when told to."""

    def __init__(self, *, fail_at: int = 0, rows: Sources | None = None, **options: Any) -> None:
        options = {"hidden": (3,), "batch_size": 8, "replacement": False, **options}
        super().__init__(rows or sources(), **options)
        self.trained, self.fail_at = 0, fail_at

    def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
        for _ in jobs:
            self.trained += 1
            if self.trained == self.fail_at:
                raise Stop("the user's own error")
        return super().train(jobs)

    def describe(self) -> dict[str, Any]:
        return {"lr": self.lr, "layers": self.layers}


class Grouped(Trainer):
    """Jobs of one group disturb each other's numbers, as a batched engine's do in the last bits."""

    group = 3

    def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
        assert len(jobs) <= self.group
        return [
            replace(state, biases=tuple(bias + 1e-3 * len(jobs) for bias in state.biases))
            for state in super().train(jobs)
        ]


def search(budget: int = BUDGET, *, commit: float = 0.4, **options: Any) -> Any:
    partitioning = PARTITIONS["bisect"]
    settings = {"steps": 3, "width": 2, "nu": "auto", **options}
    mine = TreeSearch(partitioning.root(3), partitioning.split, budget=budget, **settings)
    return then_commit(mine, commit) if commit else mine


def rows_of(result: Result[Any]) -> list[tuple[Any, ...]]:
    """Every node, every bit."""
    return [
        (node.path, node.steps, node.phase, node.lr_scale, node.value.hex(), node.mixture.tobytes())
        for node in result.tree.values()
    ]


def assert_same(one: Result[Any], two: Result[Any]) -> None:
    assert rows_of(one) == rows_of(two)
    assert (one.node.path, one.rule, one.spent) == (two.node.path, two.rule, two.spent)
    assert one.budget == two.budget
    mine, other = Trainer().save(one.state), Trainer().save(two.state)
    assert {name: array.tobytes() for name, array in mine.items()} == {
        name: array.tobytes() for name, array in other.items()
    }


@cache
def undisturbed(grouped: bool = False, **options: Any) -> Result[Any]:
    return run(search(**options), Grouped() if grouped else Trainer())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[SqlStorage]:
    with closing(SqlStorage(tmp_path / "s.db")) as storage:
        yield storage


def stop_at(number: int, kind: type[Event] = NodeEvaluated) -> Callable[[Event], None]:
    """A listener that ends the study at the n-th new event of a kind."""
    seen = []

    def listen(event: Event) -> None:
        if isinstance(event, kind) and not getattr(event, "replayed", False):
            seen.append(event)
            if len(seen) == number:
                raise Stop

    return listen


def stopped(storage: Any, at: int, *, kind: type[Event] = NodeEvaluated, **options: Any) -> None:
    mine = options.pop("search", None) or search()
    with pytest.raises(Stop):
        run(mine, Trainer(), storage=storage, resume=True, listeners=[stop_at(at, kind)], **options)


def models_of(place: SqlStorage, study: str = "study") -> set[str]:
    folder = Path(str(place.checkpoints(study).url)) / study  # type: ignore[union-attr]
    return {file.name.removesuffix(".safetensors") for file in folder.iterdir()}


# -------------------------------------------------------------------------------------------- going on


NODES = 16


def test_the_study_is_worth_interrupting() -> None:
    assert len(undisturbed().tree) == NODES
    assert undisturbed().node.phase == "commit"
    assert undisturbed().unspent == 0


@pytest.mark.parametrize("at", [1, 2, 3, 5, 8, 11, 14, 15, NODES])
def test_stopped_after_any_node_a_study_ends_as_if_it_had_not_been(at: int, place: SqlStorage) -> None:
    stopped(place, at)
    assert place.load("study").status == "failed"
    assert_same(run(search(), Trainer(), storage=place, resume=True), undisturbed())


@pytest.mark.parametrize("kind", [RoundAsked, NodeEvaluated])
def test_stopped_again_and_again(kind: type[Event], place: SqlStorage) -> None:
    rounds = 0
    while True:
        try:
            result = run(search(), Trainer(), storage=place, resume=True, listeners=[stop_at(2, kind)])
        except Stop:
            rounds += 1
        else:
            break
    assert rounds > 2
    assert_same(result, undisturbed())


@pytest.mark.parametrize("at", [1, 2, 5, 9, NODES])
def test_without_files_lost_models_are_computed_again(at: int) -> None:
    storage = MemoryStorage()
    stopped(storage, at)
    result = run(search(), Trainer(), storage=storage, resume=True)
    assert_same(result, undisturbed())
    if at > 2:
        assert any("computed again" in warning for warning in result.warnings)


@pytest.mark.parametrize("at", [1, 4, 8, 15])
def test_an_error_in_the_trainer_is_loud_and_its_round_is_done_again(at: int, place: SqlStorage) -> None:
    with pytest.raises(Stop, match="the user's own error"):
        run(search(), Trainer(fail_at=at), storage=place)
    assert place.load("study").status == "failed"
    assert place.events("study")[-1].message == "Stop: the user's own error"
    pending = [each for each in place.nodes("study") if each.status == "pending"]
    done = len(place.nodes("study")) - len(pending)
    assert pending
    assert done < at <= done + len(pending)
    trainer = Trainer()
    assert_same(run(search(), trainer, storage=place, resume=True), undisturbed())
    assert trainer.trained == NODES - done


def test_what_is_done_is_not_done_twice(place: SqlStorage) -> None:
    stopped(place, 9)
    done = sum(each.status != "pending" for each in place.nodes("study"))
    trainer = Trainer()
    run(search(), trainer, storage=place, resume=True)
    assert trainer.trained == NODES - done
    trainer = Trainer()
    events: list[Event] = []
    again = run(search(), trainer, storage=place, resume=True, listeners=[events.append])
    assert trainer.trained == 0
    assert_same(again, undisturbed())
    evaluated = [event for event in events if isinstance(event, NodeEvaluated)]
    assert len(evaluated) == NODES
    assert all(event.replayed for event in evaluated)
    assert not any(isinstance(event, RoundAsked) for event in events)
    assert place.load("study").status == "finished"


def test_several_studies_in_one_file(place: SqlStorage) -> None:
    first = run(search(), Trainer(), storage=place, study="a")
    stopped(place, 5, study="b")
    assert_same(first, undisturbed())
    assert_same(load(place, "a", Trainer()), replace(first, study="a"))
    run(search(), Trainer(), storage=place, study="b", resume=True)
    with pytest.raises(StorageError, match=r"already has a study 'a': resume it \(resume=True\), delete it"):
        run(search(), Trainer(), storage=place, study="a")


def test_a_file_that_run_opens_is_closed_again(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    result = run(search(), Trainer(), storage=file)
    assert_same(result, undisturbed())
    assert not list(tmp_path.glob("x.db-*"))  # no journal: the file is whole
    assert_same(run(search(), Trainer(), storage=str(file), resume=True), result)


@pytest.mark.parametrize("name", ["", 5, None, "x" * 101])
def test_a_study_needs_a_name(name: Any, place: SqlStorage) -> None:
    with pytest.raises(InputError, match="a study's name is a text of 1 to 100 characters"):
        run(search(), Trainer(), storage=place, study=name)
    assert place.studies() == []


def test_stored_predictions_come_back(place: SqlStorage) -> None:
    class Reader(TreeSearch):
        uses_predictions = True
        seen: int = 0

        def tell(self, trial: Any, evaluation: Evaluation) -> None:
            assert evaluation.predictions is not None
            assert evaluation.predictions.shape == (30, 2)
            self.seen += 1
            super().tell(trial, evaluation)

    def make() -> Reader:
        partitioning = PARTITIONS["bisect"]
        return Reader(partitioning.root(3), partitioning.split, budget=BUDGET, steps=3)

    stopped(place, 7, search=make())
    mine = make()
    run(mine, Trainer(), storage=place, resume=True)
    assert mine.seen == len(mine.tree)


# -------------------------------------------------------------------- the same settings, the same data


def resume(place: Any, *, mine: Any = None, trainer: Any = None, **options: Any) -> Result[Any]:
    return run(mine or search(), trainer or Trainer(), storage=place, resume=True, **options)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mine": search(width=3)}, "search.width was 2, is 3"),
        ({"mine": search(commit=0.5)}, "search.commit was 0.4, is 0.5"),
        ({"mine": search(steps=4)}, r"search.steps was \[3, .*\], is \[4, .*\]"),
        ({"mine": uniform(3, budget=BUDGET)}, "search.type was 'ThenCommit', is 'Chain'"),
        ({"trainer": Trainer(lr=0.2)}, "trainer.lr was 0.1, is 0.2"),
        ({"trainer": Trainer(hidden=(5,))}, "trainer.layers was"),
        ({"seed": 1}, "seed was 0, is 1; init_seed was 0, is 1"),
        ({"init_seed": 4}, "init_seed was 0, is 4"),
        ({"objective": lambda evaluation: evaluation}, "objective was None, is .*lambda"),
    ],
)
def test_other_settings_are_refused_and_named(options: dict[str, Any], told: str, place: SqlStorage) -> None:
    stopped(place, 5)
    before = place.load("study"), len(place.nodes("study")), place.events("study")
    with pytest.raises(StorageError, match=rf"cannot go on with other settings \({told}.*: use the same"):
        resume(place, **options)
    after = place.load("study"), len(place.nodes("study")), place.events("study")
    assert (before[0].status, before[0].updated, before[1:]) == (after[0].status, after[0].updated, after[1:])
    assert_same(resume(place), undisturbed())


def test_settings_without_a_text_of_their_own_are_the_same_in_another_process(place: SqlStorage) -> None:
    bisect = PARTITIONS["bisect"]

    def make() -> TreeSearch:
        return TreeSearch(bisect.root(3), partial(bisect.split), budget=BUDGET, steps=3)

    stopped(place, 4, search=make())
    config = place.load("study").config
    assert "0x" not in str(config)
    resume(place, mine=make())


def changed_rows() -> Sources:
    rows = sources()
    first = rows.rows[0]
    x = first.x.copy()
    x[7, 2] += 1e-9
    return replace(rows, rows=(replace(first, x=x), *rows.rows[1:]))


def test_other_data_are_refused_unless_allowed(place: SqlStorage) -> None:
    stopped(place, 5)
    with pytest.raises(StorageError, match=r"started on other data \(.{8}, not .{8}\): bring the same rows"):
        resume(place, trainer=Trainer(rows=changed_rows()))
    result = resume(place, trainer=Trainer(rows=changed_rows()), allow_changed_data=True)
    assert len(result.tree) == NODES
    assert any(event.kind == "data" for event in place.events("study"))
    resume(place, trainer=Trainer(rows=changed_rows()))  # these are the study's data now


def test_on_changed_data_a_lost_model_is_not_replaced_by_another_one(place: SqlStorage) -> None:
    stopped(place, 5)
    place.checkpoints("study").clear()  # type: ignore[union-attr]
    x = sources().rows[0].x + 1.0
    shifted = replace(sources(), rows=(replace(sources().rows[0], x=x), *sources().rows[1:]))
    with pytest.raises(StorageError, match=r"was computed again and scored .* instead of .*other data"):
        resume(place, trainer=Trainer(rows=shifted), allow_changed_data=True)


# ------------------------------------------------------------------------------------- a larger budget


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("raised", [BUDGET + 1, 100, 200])
def test_without_a_commit_a_raised_budget_is_as_good_as_a_large_one(
    width: int, raised: int, place: SqlStorage
) -> None:
    make = partial(search, commit=0.0, width=width)
    run(make(), Trainer(), storage=place)
    trainer = Trainer()
    result = resume(place, mine=make(raised), trainer=trainer)
    expected = run(make(raised), Trainer())
    assert_same(result, expected)
    assert place.load("study").budget == raised
    assert place.events("study")[-2].message == f"the budget was raised from {BUDGET} to {raised} steps"
    assert trainer.trained < len(result.tree)


@pytest.mark.parametrize("raised", [BUDGET + 1, 80, 120, 200])
def test_with_a_commit_the_old_one_stays_charged(raised: int, place: SqlStorage) -> None:
    old = run(search(), Trainer(), storage=place)
    result = resume(place, mine=search(raised))
    assert result.spent["commit"] > old.spent["commit"]
    assert sum(result.spent.values()) == raised == sum(node.steps for node in result.tree.values())
    assert set(old.tree) < set(result.tree)
    assert result.node.phase == "commit"
    assert result.node.path != old.node.path
    assert result.spent["search"] >= old.spent["search"]
    statuses = {each.path: each.status for each in place.nodes("study") if each.status != "pending"}
    assert [path for path, status in statuses.items() if status == "superseded"] == [old.node.path]
    assert_same(load(place, "study", Trainer()), replace(result, tree=load(place, "study").tree))
    assert set(load(place, "study").tree) == set(result.tree)


RAISED = 150


@cache
def raised_undisturbed(**options: Any) -> Result[Any]:
    storage = MemoryStorage()
    run(search(**options), Trainer(), storage=storage)
    return run(search(RAISED, **options), Trainer(), storage=storage, resume=True)


@pytest.mark.parametrize("commit", [0.0, 0.4])
@pytest.mark.parametrize("at", [1, 2, 7, 13])
def test_the_raised_part_can_be_interrupted_too(commit: float, at: int, place: SqlStorage) -> None:
    run(search(commit=commit), Trainer(), storage=place)
    stopped(place, at, search=search(RAISED, commit=commit))
    with pytest.raises(InputError, match=r"no result yet \(it is failed\): resume it"):
        load(place, "study")
    result = resume(place, mine=search(RAISED, commit=commit))
    assert_same(result, raised_undisturbed(commit=commit))


def test_raised_twice(place: SqlStorage) -> None:
    run(search(), Trainer(), storage=place)
    resume(place, mine=search(100))
    stopped(place, 3, search=search(RAISED))
    result = resume(place, mine=search(RAISED))
    assert sum(result.spent.values()) == RAISED
    commits = [node for node in result.tree.values() if node.phase == "commit"]
    assert len(commits) == 3
    assert sum(each.status == "superseded" for each in place.nodes("study")) == 2
    storage = MemoryStorage()
    for budget in (BUDGET, 100, RAISED):
        expected = run(search(budget), Trainer(), storage=storage, resume=True)
    assert_same(result, expected)


@pytest.mark.parametrize("at", [1, 3, 4, 8, 13, NODES - 1, NODES])
def test_raised_before_it_had_finished(at: int, place: SqlStorage) -> None:
    # Stopped in the training of the at-th node: a round, or the commit, is begun and never finished.
    with pytest.raises(Stop):
        run(search(), Trainer(fail_at=at), storage=place)
    result = resume(place, mine=search(RAISED))
    fresh = run(search(RAISED), Trainer())
    assert_same(result, fresh)
    pending = [each.trial for each in place.nodes("study") if each.status == "pending"]
    assert all(trial.phase == "commit" for trial in pending)


@pytest.mark.parametrize("crash", ["supersede", "update"])
def test_killed_while_the_raised_budget_is_written_down(
    crash: str, place: SqlStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(search(), Trainer(), storage=place)

    def die(*_: Any, **changes: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if crash == "supersede":
            patch.setattr(place, "finish", die)
        else:
            update = place.update
            done = {"status": "running"}
            patch.setattr(place, "update", lambda name, **to: die() if to == done else update(name, **to))
        with pytest.raises(KeyboardInterrupt):
            resume(place, mine=search(RAISED))
    assert place.load("study").status == "raising"
    with pytest.raises(StorageError, match="it can be raised, not lowered"):
        resume(place)
    assert_same(resume(place, mine=search(RAISED)), raised_undisturbed())
    assert place.load("study").status == "finished"


def test_a_study_from_before_stages_were_cut_goes_on(place: SqlStorage, tmp_path: Path) -> None:
    """The tables had no column for segments, and settings did not speak of them."""
    stopped(place, 9, search=search(commit=0.0))
    place.close()
    with closing(sqlite3.connect(tmp_path / "s.db")) as plain:
        for table, column in (
            ("nodes", "segment"),
            ("nodes", "merged"),
            *(("studies", each) for each in ("sizes", "notes", "models")),
        ):
            plain.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        plain.execute("DROP TABLE verdicts")
        plain.execute("UPDATE mixtree SET value = '1'")
        plain.commit()
        (config,) = plain.execute("SELECT config FROM studies").fetchone()
    assert "segments" not in config
    with closing(SqlStorage(tmp_path / "s.db")) as again:
        assert_same(run(search(commit=0.0), Trainer(), storage=again, resume=True), undisturbed(commit=0.0))


def test_a_lowered_budget_is_refused(place: SqlStorage) -> None:
    run(search(), Trainer(), storage=place)
    with pytest.raises(StorageError, match="budget of 75 steps; it can be raised, not lowered to 74"):
        resume(place, mine=search(74))


RAISABLE = ["uniform", "uniform+decay", "only:source-0", "pooled+decay", "fine-tune", "successive-halving"]


@pytest.mark.parametrize("algorithm", RAISABLE)
def test_a_raised_baseline_goes_on_from_what_it_has_trained(algorithm: str, place: SqlStorage) -> None:
    def made(budget: int) -> Any:
        rows = sources()
        return make_search(algorithm, Setting(rows.names, rows.sizes, budget, 5, data=rows))

    first = run(made(200), Trainer(), storage=place)
    with pytest.raises(Stop):
        resume(place, mine=made(500), listeners=[stop_at(2)])
    raised = resume(place, mine=made(500))
    assert sum(raised.spent.values()) == 500
    assert set(first.tree) < set(raised.tree)
    full = [node for node in first.tree.values() if node.lr_scale == 1.0]
    stem = max(full, key=lambda node: first.tree.steps_behind[node.path])
    lineage = raised.tree.lineage(raised.node.path)
    assert stem.path in [node.path for node in lineage]
    calm = [node.steps for node in first.tree.values() if node.lr_scale < 1.0]
    if algorithm != "successive-halving":  # the end at smaller steps is left behind, and trained anew
        assert sum(node.steps for node in lineage) == 500 - sum(calm)
    again = resume(place, mine=made(500))
    assert_same(raised, again)


def test_importance_cannot_be_raised(place: SqlStorage) -> None:
    """Its classifier was trained for a share of the budget."""

    def made(budget: int) -> Any:
        rows = sources()
        return make_search("importance", Setting(rows.names, rows.sizes, budget, 5, data=rows))

    run(made(100), Trainer(), storage=place)
    with pytest.raises(
        StorageError, match=r"cannot go on with other settings \(charged.classifier was 10, is 20"
    ):
        resume(place, mine=made(200))


@pytest.mark.parametrize("width", [1, 2, 4])
def test_models_of_a_group_stay_those_of_their_group_at_a_raised_budget(width: int, tmp_path: Path) -> None:
    # At the larger budget the last round is wider, but its old nodes were not trained with the new ones.
    def raised(storage: SqlStorage, *, lose: bool) -> Result[Any]:
        make = partial(search, commit=0.0, width=width)
        run(make(30), Grouped(), storage=storage)
        with pytest.raises(Stop):
            resume(storage, mine=make(RAISED), trainer=Grouped(), listeners=[stop_at(4)])
        if lose:
            storage.checkpoints("study").clear()  # type: ignore[union-attr]
        return resume(storage, mine=make(RAISED), trainer=Grouped())

    results = []
    for number, lose in enumerate((False, True)):
        with closing(SqlStorage(tmp_path / f"{number}.db")) as storage:
            results.append(raised(storage, lose=lose))
    assert_same(*results)
    assert any("computed again" in warning for warning in results[1].warnings)


# ----------------------------------------------------------------------------------------- lost models


def damage(file: Path, how: str) -> None:
    if how == "missing":
        file.unlink()
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "truncated":
        file.write_bytes(file.read_bytes()[:-5])
    else:
        file.write_bytes(file.read_bytes()[:-5] + b"12345")


@pytest.mark.parametrize("how", ["missing", "empty", "truncated", "corrupt"])
@pytest.mark.parametrize("keep", ["all", "frontier"])
def test_damaged_models_are_computed_again(how: str, keep: Any, place: SqlStorage) -> None:
    stopped(place, 9, keep=keep)
    folder = Path(place.checkpoints("study").url) / "study"  # type: ignore[union-attr]
    for file in folder.iterdir():
        damage(file, how)
    events: list[Event] = []
    result = resume(place, keep=keep, listeners=[events.append])
    assert_same(result, undisturbed())  # nothing is charged twice
    told = [event.message for event in events if isinstance(event, Warned)]
    assert told
    assert all("was missing or damaged and was computed again" in message for message in told)
    assert result.warnings == tuple(told)
    assert [each.message for each in place.events("study") if each.kind == "warning"] == told


def test_one_lost_model_costs_its_own_lineage_only(place: SqlStorage) -> None:
    stopped(place, 9, keep="all")
    folder = Path(place.checkpoints("study").url) / "study"  # type: ignore[union-attr]
    leaves = [path for path in models_of(place) if path.count("-") == 2]
    damage(folder / f"{leaves[0]}.safetensors", "corrupt")
    trainer = Trainer()
    done = sum(each.status != "pending" for each in place.nodes("study"))
    result = resume(place, trainer=trainer, keep="all")
    assert_same(result, undisturbed())
    assert trainer.trained - (NODES - done) <= 1


def test_a_folder_deleted_while_the_study_runs(place: SqlStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mixtree.engine.models.MEMORY_LIMIT", 0)  # no model survives in memory
    folder = Path(place.where + ".checkpoints")
    rounds = []

    def delete(event: Event) -> None:
        if isinstance(event, RoundAsked):
            rounds.append(event)
            if len(rounds) in (3, 5):
                shutil.rmtree(folder)

    result = run(search(), Trainer(), storage=place, listeners=[delete])
    assert_same(result, undisturbed())
    assert result.warnings


def test_the_returned_model_is_computed_again_too(place: SqlStorage) -> None:
    run(search(), Trainer(), storage=place)
    place.checkpoints("study").clear()  # type: ignore[union-attr]
    with pytest.raises(CheckpointError, match="is missing .*; resume the study and it is computed again"):
        load(place, "study", Trainer())
    assert_same(resume(place), undisturbed())
    assert_same(load(place, "study", Trainer()), undisturbed())


def test_another_machines_numbers_are_not_mixed_in(place: SqlStorage) -> None:
    class OtherMachine(Trainer):
        def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
            nudged = (replace(job, lr_scale=job.lr_scale * (1 + 1e-12)) for job in jobs)
            return super().train(list(nudged))

    OtherMachine.__qualname__ = "Trainer"
    stopped(place, 9)
    place.checkpoints("study").clear()  # type: ignore[union-attr]
    with pytest.raises(
        StorageError, match=r"node .* was computed again and scored .* instead of .*: another machine"
    ):
        resume(place, trainer=OtherMachine())
    assert_same(resume(place), undisturbed())


def test_models_that_strayed_in_from_another_study_are_not_used(tmp_path: Path) -> None:
    # Two databases, one folder of models, one study name: a shared bucket, say.
    mine, other = (SqlStorage(tmp_path / f"{name}.db", checkpoints=tmp_path / "models") for name in "ab")
    with closing(mine), closing(other):
        stopped(mine, 9)
        run(search(), Trainer(lr=0.3), storage=other)
        assert_same(resume(mine), undisturbed())
        assert_same(resume(other, trainer=Trainer(lr=0.3)), run(search(), Trainer(lr=0.3)))


def test_the_same_study_writes_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for number in range(2):
        with closing(SqlStorage(tmp_path / f"{number}.db")) as storage:
            if number:
                stopped(storage, 7)
            resume(storage)
        folder = tmp_path / f"{number}.db.checkpoints"
        files.append({file.name: file.read_bytes() for file in folder.glob("study/*")})
    assert files[0] == files[1]


def test_a_group_is_computed_again_as_a_group(tmp_path: Path) -> None:
    make = partial(search, width=3)
    expected = run(make(), Grouped())
    for at in (4, 8, 12):
        with closing(SqlStorage(tmp_path / f"{at}.db")) as storage:
            with pytest.raises(Stop):
                run(make(), Grouped(), storage=storage, listeners=[stop_at(at)])
            storage.checkpoints("study").clear()  # type: ignore[union-attr]
            assert_same(resume(storage, mine=make(), trainer=Grouped()), expected)
            kept = models_of(storage)
        with closing(SqlStorage(tmp_path / f"{at}-whole.db")) as storage:
            run(make(), Grouped(), storage=storage)
            assert kept <= models_of(storage)  # what was computed on the way is gone again


# ---------------------------------------------------------------------------------- what stays on disk


def test_keep_all(place: SqlStorage) -> None:
    result = run(search(), Trainer(), storage=place, keep="all")
    assert models_of(place) == {"-".join(map(str, path)) or "root" for path in result.tree}


def test_keep_best(place: SqlStorage) -> None:
    result = run(search(), Trainer(), storage=place, keep="best")
    assert models_of(place) == {"-".join(map(str, result.node.path))}
    raised = resume(place, mine=search(RAISED), keep="best")  # all others are computed again
    assert_same(raised, raised_undisturbed())
    assert models_of(place) == {"-".join(map(str, raised.node.path))}


def test_keep_best_keeps_what_a_stopped_study_needs(place: SqlStorage) -> None:
    stopped(place, 9)
    run(search(), Trainer(), storage=place, resume=True, keep="best", time_limit=1e-9)
    assert len(models_of(place)) > 3
    result = resume(place, keep="best")
    assert_same(result, undisturbed())
    assert not result.warnings


def test_the_disk_holds_the_frontier(place: SqlStorage) -> None:
    mine = search(600, commit=0.0, width=1)
    most = []

    def count(event: Event) -> None:
        if isinstance(event, RoundAsked) and event.number > 2:
            leaves = sum((*path, 0) not in mine.tree for path in mine.tree)
            most.append((len(models_of(place)), leaves))

    result = run(mine, Trainer(), storage=place, listeners=[count])
    assert len(result.tree) > 190
    assert all(models <= leaves + 1 for models, leaves in most)
    kept = {tuple(map(int, name.split("-"))) for name in models_of(place)}
    assert mine.needed(kept) == kept


@pytest.mark.parametrize("at", [3, 9, 14])
def test_a_killed_study_leaves_no_litter(at: int, place: SqlStorage, tmp_path: Path) -> None:
    with closing(SqlStorage(tmp_path / "whole.db")) as storage:
        run(search(), Trainer(), storage=storage)
        expected = models_of(storage)
    stopped(place, at, keep="all")  # as if it had been killed before it could delete anything
    folder = Path(place.checkpoints("study").url) / "study"  # type: ignore[union-attr]
    (folder / "0.safetensors.123.tmp").write_bytes(b"half")
    resume(place)
    assert models_of(place) == expected


def test_memory_is_bounded_and_spilled_models_come_back(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("mixtree.engine.models.MEMORY_LIMIT", 2000)
    files = []

    def count(event: Event) -> None:
        files.append(len(list(tmp_path.glob("mixtree-*/study/*"))))

    result = run(search(600, commit=0.0), Trainer(), listeners=[count])
    monkeypatch.undo()
    assert max(files) > 50
    assert not list(tmp_path.iterdir())
    assert_same(result, run(search(600, commit=0.0), Trainer()))


# ------------------------------------------------------------------------------------------ time limit


class Clock:
    """Time passes only when something is trained: one second per step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("mixtree.engine.loop.time.monotonic", lambda: self.now)
        monkeypatch.setattr("mixtree.engine.executors.base.time.perf_counter", lambda: self.now)

    def trainer(self) -> Trainer:
        clock = self

        class Timed(Trainer):
            def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
                clock.now += sum(job.steps for job in jobs)
                return super().train(jobs)

        Timed.__qualname__ = "Trainer"
        return Timed()


@pytest.mark.parametrize("limit", [1, 10, 30, 44, 60])
def test_a_time_limit_ends_a_study_cleanly(limit: int, place: SqlStorage, monkeypatch: Any) -> None:
    clock = Clock(monkeypatch)
    result = run(search(), clock.trainer(), storage=place, time_limit=limit)
    assert result.reason == "the time limit was reached"
    assert clock.now <= max(limit, 3)  # the root is trained whatever the limit
    assert place.load("study").status == "stopped"
    assert not [each for each in place.nodes("study") if each.status == "pending"]
    assert_same(load(place, "study", Trainer()), replace(result, budget=BUDGET))
    whole = rows_of(undisturbed())
    assert rows_of(result) == whole[: len(result.tree)]
    assert_same(resume(place, trainer=clock.trainer()), undisturbed())


@pytest.mark.parametrize("limit", [120, 460])
def test_a_time_limit_ends_a_long_stage_within_a_segment(
    limit: int, place: SqlStorage, monkeypatch: Any
) -> None:
    clock = Clock(monkeypatch)
    result = run(uniform(3, budget=1000), clock.trainer(), storage=place, time_limit=limit)
    assert result.reason == "the time limit was reached"
    assert limit - 50 < clock.now == sum(result.spent.values()) <= limit
    assert result.trained_steps == clock.now
    whole = run(uniform(3, budget=1000), Trainer())
    assert_same(resume(place, mine=uniform(3, budget=1000)), whole)


def test_a_time_limit_that_is_not_reached(monkeypatch: Any) -> None:
    clock = Clock(monkeypatch)
    result = run(search(), clock.trainer(), time_limit=1000)
    assert_same(result, undisturbed())
    assert result.reason == "the search has finished"


def test_a_real_time_limit(place: SqlStorage) -> None:
    class Slow(Trainer):
        def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
            time.sleep(0.02 * len(jobs))
            return super().train(jobs)

    started = time.monotonic()
    result = run(search(30_000), Slow(), storage=place, time_limit=0.4)
    assert time.monotonic() - started < 10  # far from what its budget would take
    assert 0 < len(result.tree) < 40


# ---------------------------------------------------------------------------------------------- Ctrl-C


def interrupt_at(number: int, times: int = 1) -> Callable[[Event], None]:
    seen = []

    def listen(event: Event) -> None:
        if isinstance(event, RoundAsked):
            seen.append(event)
            if len(seen) == number:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)

    return listen


def test_control_c_stops_after_the_round_and_says_how_to_go_on(place: SqlStorage, caplog: Any) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(StudyInterrupted) as caught:
        run(search(), Trainer(), storage=place, listeners=[interrupt_at(3)])
    assert signal.getsignal(signal.SIGINT) is before
    done = place.nodes("study")
    assert len(done) == 7
    assert all(each.status != "pending" for each in done)
    assert str(caught.value) == (
        f"study 'study' stopped after 21 of 75 steps; run it again with storage={place.where!r}, "
        "study='study', resume=True and it goes on"
    )
    assert isinstance(caught.value, KeyboardInterrupt)
    assert "stopping after the current round; press Ctrl-C again to stop at once" in caplog.text
    assert place.load("study").status == "stopped"
    assert_same(resume(place), undisturbed())


def test_a_second_control_c_stops_at_once(place: SqlStorage) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        run(search(), Trainer(), storage=place, listeners=[interrupt_at(3, times=2)])
    assert not isinstance(caught.value, StudyInterrupted)
    assert signal.getsignal(signal.SIGINT) is before
    assert place.load("study").status == "stopped"
    assert [each.status == "pending" for each in place.nodes("study")] == [False] * 3 + [True] * 4
    assert_same(resume(place), undisturbed())


def test_control_c_in_the_last_round_is_too_late(place: SqlStorage) -> None:
    events: list[Event] = []
    run(search(), Trainer(), listeners=[events.append])
    rounds = sum(isinstance(event, RoundAsked) for event in events)
    assert_same(run(search(), Trainer(), storage=place, listeners=[interrupt_at(rounds)]), undisturbed())


def test_without_storage_control_c_says_that_nothing_is_left() -> None:
    with pytest.raises(StudyInterrupted, match="stopped after 9 of 75 steps; nothing was stored"):
        run(search(), Trainer(), listeners=[interrupt_at(2)])


def test_a_study_in_a_thread_leaves_control_c_alone() -> None:
    before = signal.getsignal(signal.SIGINT)
    results: list[Result[Any]] = []

    def work() -> None:
        results.append(run(search(), Trainer()))
        assert signal.getsignal(signal.SIGINT) is before

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert_same(results[0], undisturbed())


# ------------------------------------------------------------------------------- two at the same study


def test_a_study_that_is_running_is_refused_and_not_touched(place: SqlStorage, tmp_path: Path) -> None:
    refused = []

    def meddle(event: Event) -> None:
        if isinstance(event, RoundAsked) and event.number == 3:
            with closing(SqlStorage(tmp_path / "s.db")) as other:
                for budget in (BUDGET, RAISED):
                    with pytest.raises(StudyLocked, match="'study' in .*s.db is being run by another"):
                        run(search(budget), Trainer(), storage=other, resume=True)
                    refused.append(budget)

    result = run(search(), Trainer(), storage=place, listeners=[meddle])
    assert len(refused) == 2
    assert_same(result, undisturbed())
    assert place.load("study").budget == BUDGET
    assert place.events("study") == []


# ----------------------------------------------------------------------------- full, read-only, locked


def mounted(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if shutil.which("mount") is None:
        return False
    return subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own; only root may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not mounted(folder, "size=160k"):
        pytest.skip("only root may mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


@pytest.mark.parametrize("keep", ["all", "frontier"])
def test_a_full_disk_stops_the_study_and_room_lets_it_go_on(keep: Any, small_disk: Path) -> None:
    large = partial(search, 1500, commit=0.0)
    with pytest.raises(StorageError, match="No space left on device|disk is full|disk I/O error"):
        run(large(), Trainer(), storage=small_disk / "s.db", keep=keep)
    with pytest.raises(StorageError, match="No space left on device|disk is full|disk I/O error"):
        run(large(), Trainer(), storage=small_disk / "s.db", keep=keep, resume=True)
    remount(small_disk, "size=50m")
    result = run(large(), Trainer(), storage=small_disk / "s.db", keep=keep, resume=True)
    assert_same(result, run(large(), Trainer()))


def test_a_disk_that_turns_read_only(small_disk: Path, tmp_path: Path) -> None:
    remount(small_disk, "size=10m")

    def turn(event: Event) -> None:
        if isinstance(event, RoundAsked) and event.number == 3:
            remount(small_disk, "ro")

    # Models on that disk, the database elsewhere: files that are open for writing keep a disk writable.
    storage = SqlStorage(tmp_path / "s.db", checkpoints=small_disk)
    with closing(storage):
        with pytest.raises(StorageError, match="cannot write the checkpoint .*: Read-only file system"):
            run(search(), Trainer(), storage=storage, listeners=[turn])
        assert storage.load("study").status == "failed"
        remount(small_disk, "rw")
        assert_same(resume(storage), undisturbed())


def test_a_database_on_a_read_only_disk(small_disk: Path) -> None:
    remount(small_disk, "size=10m")
    run(search(), Trainer(), storage=small_disk / "s.db")
    remount(small_disk, "ro")
    with pytest.raises(StorageError, match=r"cannot (open|write to|lock) .*([Rr]ead-?only|unable to open)"):
        run(search(), Trainer(), storage=small_disk / "s.db", resume=True)
    assert load(small_disk / "s.db", "study").node.path == undisturbed().node.path  # it can still be read
    with pytest.raises(StorageError, match=r"cannot open .*(read-?only|unable to open)"):
        run(search(), Trainer(), storage=small_disk / "new.db")


def test_full_and_read_only_without_a_disk_of_its_own(place: SqlStorage, monkeypatch: Any) -> None:
    write = Path.write_bytes

    def refuse(path: Path, data: bytes) -> int:
        if path.name.startswith("0-"):
            raise OSError(28, "No space left on device")
        return write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", refuse)
        with pytest.raises(StorageError, match="cannot write the checkpoint .*: No space left on device"):
            run(search(), Trainer(), storage=place)
    assert place.load("study").status == "failed"
    assert_same(resume(place), undisturbed())


def test_a_database_that_is_locked_stops_the_study_and_it_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("mixtree.storage.sql._BUSY_SECONDS", 0.1)
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None)
    place = SqlStorage(tmp_path / "s.db")

    def lock(event: Event) -> None:
        if isinstance(event, RoundAsked) and event.number == 3:
            other.execute("BEGIN IMMEDIATE")

    with closing(place), closing(other):
        with pytest.raises(StorageError, match="cannot write to .*s.db: another process has held it locked"):
            run(search(), Trainer(), storage=place, listeners=[lock])
        other.rollback()
        assert place.load("study").status == "running"  # even that could not be written: it looks killed
        assert_same(resume(place), undisturbed())


# ------------------------------------------------------------------------------------------------ load


@pytest.mark.parametrize("name", ["file", "storage"])
def test_a_stored_study_can_be_loaded(name: str, tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    result = run(search(), Trainer(), storage=file, study="mine")
    place: Any = file if name == "file" else SqlStorage(file)
    found = load(place, "mine", Trainer())
    assert_same(found, result)
    assert (found.study, found.reason, found.weights) == ("mine", "finished", result.weights)
    plain = load(place, "mine")
    assert plain.state.keys() == Trainer().save(result.state).keys()
    assert np.array_equal(plain.state["weight.0"], result.state.weights[0])
    with pytest.raises(StorageError, match=r"there is no study 'other' in .*s.db; its studies: 'mine'"):
        load(place, "other")
    if name == "storage":
        place.close()


def test_a_study_without_a_result_cannot_be_loaded(place: SqlStorage) -> None:
    stopped(place, 5)
    with pytest.raises(InputError, match=r"study 'study' has no result yet \(it is failed\): resume it"):
        load(place, "study")


def test_a_study_without_files_cannot_be_loaded() -> None:
    storage = MemoryStorage()
    run(search(), Trainer(), storage=storage)
    with pytest.raises(InputError, match="stored without its models"):
        load(storage, "study")


def test_loading_shows_no_password() -> None:
    with pytest.raises(InputError, match="looks like the URL of a database") as refused:
        load("me:hunter2@host/base", "study")
    assert "hunter2" not in str(refused.value)


def test_loading_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no study file"):
        load(tmp_path / "none.db", "study")
    assert not list(tmp_path.iterdir())


# ------------------------------------------------------------------------------------- what is written


def test_a_round_is_written_before_it_runs(place: SqlStorage) -> None:
    class Looks(Trainer):
        def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
            pending = [each.trial for each in place.nodes("study") if each.status == "pending"]
            assert [trial.steps for trial in pending] == [job.steps for job in jobs]
            for trial, job in zip(pending, jobs, strict=True):
                assert np.array_equal(trial.mixture, job.mixture)
            return super().train(jobs)

    Looks.__qualname__ = "Trainer"
    assert_same(run(search(), Looks(), storage=place), undisturbed())


def test_diverged_nodes_are_stored_and_told_again(place: SqlStorage) -> None:
    bad = {undisturbed().tree[(1,)].value, undisturbed().tree[(0, 0)].value}

    def worse(evaluation: Evaluation) -> Evaluation:
        return replace(evaluation, value=float("nan") if evaluation.value in bad else evaluation.value)

    expected = run(search(), Trainer(), objective=worse)
    assert any(node.value == inf for node in expected.tree.values())
    with pytest.raises(Stop):
        run(search(), Trainer(), storage=place, objective=worse, listeners=[stop_at(8)])
    assert_same(resume(place, objective=worse), expected)


def test_a_search_that_asks_otherwise_the_second_time_is_found_out(place: SqlStorage) -> None:
    class Moody(TreeSearch):
        mood = 0.0

        def ask(self) -> Any:
            return [replace(trial, lr_scale=1.0 + self.mood) for trial in super().ask()]

    def make(mood: float) -> Moody:
        partitioning = PARTITIONS["bisect"]
        mine = Moody(partitioning.root(3), partitioning.split, budget=BUDGET, steps=3)
        mine.mood = mood
        return mine

    stopped(place, 5, search=make(0.0))
    with pytest.raises(StorageError, match=r"'study' cannot go on: node \(\) was asked for with 3 steps"):
        resume(place, mine=make(0.5))


def test_the_engine_of_a_study_is_used_again(place: SqlStorage) -> None:
    class Engine(Trainer):
        engine = "unknown"
        timed = "slow"

        def prepare(self, **_study: Any) -> None:
            if self.engine == "unknown":
                self.engine = self.timed

    first = Engine()
    with pytest.raises(Stop):
        run(search(), first, storage=place, listeners=[stop_at(3)])
    assert place.load("study").engine == "slow"
    second = Engine()
    second.timed = "fast"
    resume(place, trainer=second)
    assert second.engine == "slow"


def test_a_commit_that_is_started_from_a_chain_resumes(place: SqlStorage) -> None:
    chain = partial(fixed, [0.2, 0.3, 0.5], budget=20, decay=True)
    stopped(place, 1, search=chain())
    assert_same(resume(place, mine=chain()), run(chain(), Trainer()))


def test_storages_of_ones_own_work(tmp_path: Path) -> None:
    class Counting(MemoryStorage):
        finished = 0

        def finish(self, name: str, nodes: Sequence[Node]) -> None:
            self.finished += len(nodes)
            super().finish(name, nodes)

    storage = Counting()
    started: list[Event] = []
    run(search(), Trainer(), storage=storage, listeners=[started.append])
    assert storage.finished == NODES
    assert isinstance(started[0], StudyStarted)


class Chosen(Grouped):
    """Its group is that of its engine, which is settled when the study begins."""

    engine = "auto"

    @property
    def group(self) -> int | None:  # type: ignore[override]
        return {"batched": 3}.get(self.engine)

    def prepare(self, **_study: Any) -> None:
        if self.engine == "auto":
            self.engine = "batched"

    def train(self, jobs: Sequence[Job[ReferenceState]]) -> list[ReferenceState]:
        assert self.group == 3
        return super().train(jobs)


def test_groups_are_those_of_the_engine_in_use(tmp_path: Path) -> None:
    whole = undisturbed(grouped=True, width=4)
    assert_same(run(search(width=4), Chosen()), whole)
    place = tmp_path / "study.db"
    with pytest.raises(Stop):
        run(search(width=4), Chosen(fail_at=9), storage=place)
    assert_same(run(search(width=4), Chosen(), storage=place, resume=True), whole)


class Curious(TreeSearch):
    """A search of one's own that looks at predictions, and says so to nobody."""

    looked = False

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        self.looked |= evaluation.predictions is not None
        super().tell(trial, evaluation)


@pytest.mark.parametrize("stored", [False, True])
def test_predictions_that_are_not_stored_are_not_told(stored: bool, tmp_path: Path) -> None:
    partitioning = PARTITIONS["bisect"]
    curious = Curious(partitioning.root(3), partitioning.split, budget=60, steps=3)
    result = run(curious, Trainer(), storage=tmp_path / "study.db" if stored else None)
    assert not curious.looked
    assert list(result.tree) == list(curious.tree)


def test_a_search_that_says_what_it_needs_in_another_way() -> None:
    class Old(Curious):
        def needed(self, paths: Any) -> Any:
            return True

    partitioning = PARTITIONS["bisect"]
    with pytest.raises(SearchError, match=r"needed\(paths\) must return those of the paths"):
        run(Old(partitioning.root(3), partitioning.split, budget=60, steps=3), Trainer())
