"""The conformance suites pass what keeps its promises and catch what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from mixtree.partition import PARTITIONS, bisect, box_root, halve, simplex_root
from mixtree.policies.commit import then_commit
from mixtree.policies.fixed import fixed, uniform
from mixtree.simplex import BoxCell, SimplexCell, uniform_mixture, value
from mixtree.testing import check_partition, check_search, check_trainer
from mixtree.trainer import Evaluation, Job
from mixtree.tree import Node, Trial
from mixtree.tree_search import TreeSearch

# ----------------------------------------------------------------------------------- partitions


@pytest.mark.parametrize("name", sorted(PARTITIONS))
@pytest.mark.parametrize("sources", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_the_shipped_partitions_pass(name: str, sources: int, seed: int) -> None:
    check_partition(PARTITIONS[name].root(sources), PARTITIONS[name].split, depth=6, seed=seed)


@pytest.mark.parametrize("name", ["bisect", "delaunay", "halve"])
def test_the_shipped_partitions_pass_with_many_sources(name: str) -> None:
    check_partition(PARTITIONS[name].root(30), PARTITIONS[name].split, depth=8)


def scaled(cell: Any, factor: float, towards: int) -> SimplexCell:
    """The cell stretched (or shrunk) about one vertex."""
    vertices = cell.vertices
    return SimplexCell(vertices[towards] + factor * (vertices - vertices[towards]))


def overlapping(cell: Any, seed: int) -> Any:
    """Cuts the edge at one quarter from either side: the middle half belongs to both children."""
    vertices = cell.vertices
    left, right = vertices.copy(), vertices.copy()
    left[0] = 0.75 * vertices[0] + 0.25 * vertices[1]
    right[1] = 0.25 * vertices[0] + 0.75 * vertices[1]
    return SimplexCell(left), SimplexCell(right)


def gapped(cell: Any, seed: int) -> Any:
    """Leaves out the middle half."""
    vertices = cell.vertices
    left, right = vertices.copy(), vertices.copy()
    left[0] = 0.25 * vertices[0] + 0.75 * vertices[1]
    right[1] = 0.75 * vertices[0] + 0.25 * vertices[1]
    return SimplexCell(left), SimplexCell(right)


def reaching_out(cell: Any, seed: int) -> Any:
    left, right = bisect(cell)
    return scaled(left, 1.2, 2), right


def forgetful(cell: Any, seed: int, random: Any = np.random.default_rng(0)) -> Any:  # noqa: B008
    return halve(cell, int(random.integers(2**32)))


@value
class Shifted(SimplexCell):
    """A cell whose representative is no point of it."""

    @property
    def representative(self) -> Any:
        return np.array([0.98, 0.01, 0.01])


@value
class Heavy(SimplexCell):
    @property
    def representative(self) -> Any:
        return self.vertices.sum(axis=0)


@pytest.mark.parametrize(
    ("root", "partition", "message"),
    [
        (simplex_root(3), overlapping, "more than one of the children|overlap"),
        (simplex_root(3), gapped, "none of the children"),
        (simplex_root(3), reaching_out, "outside its parent|more than one|negative"),
        (simplex_root(3), lambda cell, seed: bisect(cell)[:1], "one child"),
        (box_root(20), forgetful, "the same seed gave other children"),
        (Shifted(np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]])), bisect, "outside its cell"),
        (Heavy(np.eye(3)), bisect, "does not sum to 1"),
        (BoxCell(np.array([-0.5, 0.0]), np.array([-0.2, 2.0])), halve, "negative"),
    ],
)
def test_broken_partitions_are_caught(root: Any, partition: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        for seed in range(5):
            check_partition(root, partition, seed=seed)


# -------------------------------------------------------------------------------------- searches


def tree_search(**options: Any) -> TreeSearch:
    partitioning = PARTITIONS["bisect"]
    return TreeSearch(
        partitioning.root(3), partitioning.split, **{"budget": 200, "steps": 10, "width": 2, **options}
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"width": 1},
        {"nu": "auto"},
        {"returns": "best"},
        {"train_root": False},
        {"budget": 5},
    ],
)
def test_the_tree_search_passes(options: dict[str, Any]) -> None:
    check_search(lambda: tree_search(**options), budget=options.get("budget", 200))
    check_search(lambda: then_commit(tree_search(**options)), budget=options.get("budget", 200))


class Wrapped:
    """A tree search with one thing wrong."""

    def __init__(self) -> None:
        self.inner: Any = tree_search()

    def ask(self) -> list[Trial]:
        return self.inner.ask()

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        self.inner.tell(trial, evaluation)

    def best(self) -> Node:
        return self.inner.best()


class Twisted(Wrapped):
    """Shows other trials than it means."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.changes, self.meant = changes, {}  # type: dict[str, Any], dict[int, Trial]

    def ask(self) -> list[Trial]:
        shown = []
        for trial in self.inner.ask():
            fake = replace(trial, **{name: change(trial) for name, change in self.changes.items()})
            self.meant[id(fake)] = trial
            shown.append(fake)
        return shown

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        self.inner.tell(self.meant[id(trial)], evaluation)


class Hasty(Wrapped):
    """Lets the first outcome that arrives decide."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Trial | None = None
        self.left = 3

    def ask(self) -> list[Trial]:
        self.left -= 1
        if self.left == 2:
            return [Trial((i,), uniform_mixture(3), 1) for i in range(2)]
        if self.left == 1 and self.first:
            return [Trial((*self.first.path, 0), uniform_mixture(3), 1)]
        return []

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        self.first = self.first or trial
        if trial is self.first and len(trial.path) == 1:
            self.node = Node(trial.path, trial.mixture, 1, evaluation.value)

    def best(self) -> Node:
        return self.node


class Blind(Wrapped):
    """Returns the last node, diverged or not."""

    def best(self) -> Node:
        return list(self.inner.tree.values())[-1]


class Inventive(Wrapped):
    def best(self) -> Node:
        return replace(self.inner.best(), path=(9, 9, 9))


class Restless(Wrapped):
    """Finishes, and then has one more idea."""

    finished = False

    def ask(self) -> list[Trial]:
        if not self.finished:
            trials = self.inner.ask()
            self.finished = not trials
            return trials
        return [Trial((7,), uniform_mixture(3), 1)]


class Idle(Wrapped):
    def ask(self) -> list[Trial]:
        return []

    def best(self) -> Node:
        return Node((), uniform_mixture(3), 1, 0.5)


class Returning(Wrapped):
    """Returns its rounds in another form."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.form = form

    def ask(self) -> Any:
        return self.form(self.inner.ask())


def test_a_search_may_return_tuples() -> None:
    check_search(lambda: Returning(tuple), budget=200)


class Needy(Wrapped):
    """Says in a way of its own which models it needs."""

    def __init__(self, needed: Any) -> None:
        super().__init__()
        self.needed = needed


class Doubled(Wrapped):
    """Asks for one path twice, within one round."""

    def ask(self) -> list[Trial]:
        return [Trial((0,), uniform_mixture(3), 1) for _ in range(2)]


class Stubborn(Wrapped):
    """Tries again and again when a model diverged, and counts none of it."""

    def __init__(self) -> None:
        self.tried, self.good = 0, 0
        self.node: Node | None = None

    def ask(self) -> list[Trial]:
        self.tried += 1
        return [] if self.good == 2 else [Trial((self.tried,), uniform_mixture(3), 1)]

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        if np.isfinite(evaluation.value):
            self.good += 1
            self.node = Node(trial.path, trial.mixture, 1, evaluation.value)

    def best(self) -> Node:
        assert self.node is not None
        return self.node


class Varying(Wrapped):
    """Its steps depend on something that is no tell."""

    made = 0

    def __init__(self) -> None:
        Varying.made += 1
        self.inner: Any = fixed(np.eye(3)[0], budget=5 + Varying.made % 2)


class Moody(Wrapped):
    """Its mixture depends on something that is no tell."""

    made = 0

    def __init__(self) -> None:
        Moody.made += 1
        self.inner: Any = fixed(np.eye(3)[Moody.made % 3], budget=5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: uniform(3, budget=201), "201 steps of a budget of 200"),
        (lambda: tree_search(budget=400), "of a budget of 200"),
        (lambda: Twisted(path=lambda trial: ()), "asked for twice"),
        (lambda: Twisted(path=lambda trial: (*trial.path, 5, 5)), "continues a model that does not exist"),
        (Doubled, r"ask: path \(0,\) was asked for twice"),
        (lambda: Returning(lambda trials: (each for each in trials)), "ask must .* list .*; got a generator"),
        (lambda: Returning(lambda trials: trials or None), "ask must return a list .*; got None"),
        (
            lambda: Returning(lambda trials: [(each.path, each.mixture) for each in trials]),
            "got|holds a tuple",
        ),
        (lambda: Twisted(path=lambda trial: list(trial.path)), "path must be a tuple of ints"),
        (lambda: Twisted(path=lambda trial: (*trial.path[:-1], np.int64(0))), "path must be a tuple of ints"),
        (lambda: Twisted(steps=lambda trial: 0), "int of at least 1; got 0"),
        (lambda: Twisted(steps=lambda trial: -3), "int of at least 1; got -3"),
        (lambda: Twisted(steps=lambda trial: 10.0), r"int of at least 1; got 10.0 \(float\)"),
        (lambda: Twisted(steps=lambda trial: np.int64(10)), r"int of at least 1; got .*10.* \(int64\)"),
        (lambda: Twisted(steps=lambda trial: True), r"int of at least 1; got True \(bool\)"),
        (lambda: Twisted(mixture=lambda trial: list(trial.mixture)), "must be an array with one number per"),
        (lambda: Twisted(mixture=lambda trial: trial.mixture[None]), "must be an array with one number per"),
        (lambda: Twisted(mixture=lambda trial: np.full(3, np.nan)), "does not sum to 1"),
        (Stubborn, "ask: the search asked for 201 steps of a budget of 200"),
        (Varying, "another number of steps the second time"),
        (lambda: Twisted(mixture=lambda trial: 2 * trial.mixture), "does not sum to 1"),
        (lambda: Twisted(mixture=lambda trial: np.array([1.5, -0.5, 0.0])), "negative weight"),
        (Hasty, "depends on the order in which a round's outcomes arrive"),
        (Blind, "a diverged node was returned"),
        (Inventive, "the returned node was never trained"),
        (Restless, "a finished search asked for more"),
        (Idle, "the search asked for nothing"),
        (Moody, "another mixture the second time"),
        (lambda: Needy(lambda paths: True), "needed must return a set"),
        (lambda: Needy(lambda paths: {(7, 7)}), "needed must return a set of some of its paths"),
        (lambda: Needy(lambda paths: set()), "was not needed, and trial .* continues it"),
        (lambda: Needy(lambda paths: {each for each in paths if len(each) == 1}), "was not needed"),
    ],
)
def test_broken_searches_are_caught(make: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_search(make, budget=200)


# -------------------------------------------------------------------------------------- trainers


class Walker:
    """A trainer by the book: a weight and a count of steps, moved by seeded noise and the mixture."""

    def init(self, seed: int) -> Any:
        return {"weight": np.random.default_rng(seed).standard_normal(4), "steps": np.array([0])}

    def train(self, jobs: Sequence[Job[Any]]) -> list[Any]:
        return [self.one(job) for job in jobs]

    def one(self, job: Job[Any]) -> Any:
        noise = np.random.default_rng(job.seed).standard_normal((job.steps, 4)).sum(axis=0)
        # The number of steps so far matters, as a momentum or a data cursor would.
        move = job.lr_scale * (noise + job.mixture[0]) / (1 + job.state["steps"])
        return {"weight": job.state["weight"] + move, "steps": job.state["steps"] + job.steps}

    def evaluate(self, states: Sequence[Any]) -> list[Evaluation]:
        return [Evaluation(float(state["weight"] @ state["weight"]), 0.1, np.zeros(5)) for state in states]

    def save(self, state: Any) -> dict[str, Any]:
        return dict(state)

    def load(self, arrays: Mapping[str, Any]) -> Any:
        return {name: np.array(array) for name, array in arrays.items()}


def test_a_trainer_by_the_book_passes() -> None:
    check_trainer(Walker(), sources=3, rows=5)
    check_trainer(Walker(), sources=1)


class Scalar(Walker):
    """Its state has a number without dimensions."""

    def init(self, seed: int) -> Any:
        return {**super().init(seed), "steps": np.array(0)}

    def describe(self) -> dict[str, Any]:
        return {"rate": 0.1, "layers": (3, 4), "name": None, "more": {"deep": [True]}}


def test_a_state_may_have_numbers_without_dimensions() -> None:
    check_trainer(Scalar(), sources=2)


class Saves(Walker):
    """Saves its state in another form."""

    def __init__(self, form: Any) -> None:
        self.form = form

    def save(self, state: Any) -> Any:
        return self.form(state)


class SavesLater(Walker):
    """A trained state has something that a fresh one has not."""

    def one(self, job: Job[Any]) -> Any:
        return {**super().one(job), "log": np.array(["a", "b"], dtype=object)}


COUNT = count()


class Described(Walker):
    def __init__(self, told: Any) -> None:
        self.told = told

    def describe(self) -> Any:
        return self.told() if callable(self.told) else self.told


class Trains(Walker):
    """Returns its states in another form."""

    def __init__(self, form: Any) -> None:
        self.form = form

    def train(self, jobs: Sequence[Job[Any]]) -> Any:
        return self.form(super().train(jobs))


class Evaluates(Walker):
    """Returns its evaluations in another form."""

    def __init__(self, form: Any) -> None:
        self.form = form

    def evaluate(self, states: Sequence[Any]) -> Any:
        return self.form(super().evaluate(states))


class ForgetfulInit(Walker):
    count = 0

    def init(self, seed: int) -> Any:
        self.count += 1
        return super().init(seed + self.count)


class InPlace(Walker):
    def one(self, job: Job[Any]) -> Any:
        job.state["weight"] += 1.0
        return {name: array.copy() for name, array in job.state.items()}


class UsesHiddenRandomness(Walker):
    random = np.random.default_rng(0)

    def one(self, job: Job[Any]) -> Any:
        return super().one(replace(job, seed=int(self.random.integers(2**32))))


class LooksAside(Walker):
    """A batched engine whose numbers depend on how many models train together."""

    def train(self, jobs: Sequence[Job[Any]]) -> list[Any]:
        trained = super().train(jobs)
        return [{**state, "weight": state["weight"] * (1 + 1e-15 * len(jobs))} for state in trained]


class ForgetsSteps(Walker):
    """Saves weights only: whatever else training needs is lost."""

    def save(self, state: Any) -> dict[str, Any]:
        return {"weight": state["weight"]}

    def load(self, arrays: Mapping[str, Any]) -> Any:
        return {"weight": np.array(arrays["weight"]), "steps": np.array([0])}


class Rounds(Walker):
    def save(self, state: Any) -> dict[str, Any]:
        return {**state, "weight": state["weight"]}

    def load(self, arrays: Mapping[str, Any]) -> Any:
        return {**super().load(arrays), "weight": arrays["weight"].astype(np.float32).astype(float)}


class Stingy(Walker):
    def evaluate(self, states: Sequence[Any]) -> list[Evaluation]:
        return super().evaluate(states)[:1]


class Infinite(Walker):
    def evaluate(self, states: Sequence[Any]) -> list[Evaluation]:
        return [Evaluation(float("inf")) for _ in states]


class Wavering(Walker):
    random = np.random.default_rng(0)

    def evaluate(self, states: Sequence[Any]) -> list[Evaluation]:
        return [Evaluation(float(self.random.random())) for _ in states]


class Short(Walker):
    def evaluate(self, states: Sequence[Any]) -> list[Evaluation]:
        return [replace(each, predictions=np.zeros(4)) for each in super().evaluate(states)]


class Deaf(Walker):
    """Some part of a job makes no difference."""

    def __init__(self, **ignored: Any) -> None:
        self.ignored = ignored

    def one(self, job: Job[Any]) -> Any:
        return super().one(replace(job, **self.ignored))


class Unscaled(Deaf):
    """It has no step size, and says so."""

    def __init__(self) -> None:
        super().__init__(lr_scale=1.0)

    def describe(self) -> dict[str, Any]:
        return {"step_size": None}


def test_a_trainer_without_a_step_size_passes_if_it_says_so() -> None:
    check_trainer(Unscaled(), sources=3, rows=5)


def test_with_one_source_the_mixture_need_not_matter() -> None:
    check_trainer(Deaf(mixture=np.ones(1)), sources=1)


@pytest.mark.parametrize(
    ("trainer", "message"),
    [
        (Deaf(mixture=np.full(3, 1 / 3)), "train ignores a job's mixture: two sources gave one model"),
        (Deaf(lr_scale=1.0), "train ignores a job's lr_scale; .* describe.. must say"),
        (Deaf(steps=6), "train ignores a job's steps"),
        (Deaf(state=Walker().init(0)), "train ignores a job's state: a model must go on"),
        (ForgetfulInit(), "init: the same seed gave another model"),
        (InPlace(), r"train changed its input \(weight\)"),
        (UsesHiddenRandomness(), "two results|depend on the jobs"),
        (LooksAside(), "depend on the jobs beside it"),
        (ForgetsSteps(), "training after save and load differs"),
        (Rounds(), r"load\(save\(state\)\) is not the state"),
        (Stingy(), "one evaluation per state"),
        (Infinite(), "not finite"),
        (Wavering(), "evaluating twice gave two values"),
        (Short(), "one row per validation row"),
        (Saves(lambda state: list(state.items())), "save must return a dict of numpy arrays; got a list"),
        (Saves(lambda state: {**state, "extra": [1.0]}), "save: 'extra' must be a numpy array; got a list"),
        (Saves(lambda state: {**state, "extra": 1.0}), "save: 'extra' must be a numpy array; got a float"),
        (Saves(lambda state: {**state, 0: np.ones(1)}), "save: arrays are named by texts; got 0"),
        (Saves(lambda state: {**state, "x": np.array([1j])}), "save: .* checkpoint file: .*numbers.*: x"),
        (Saves(lambda state: {**state, "__metadata__": np.ones(1)}), "save: .* checkpoint file: .*metadata"),
        (SavesLater(), "save: .* checkpoint file: .*numbers.*: log"),
        (Described(["lr", 0.1]), "describe must return a dict of plain data: .*; got a list"),
        (Described({1: 0.1}), r"describe must return .*, named by texts; got \[1\]"),
        (Described({"lr": np.ones(2)}), "describe must return a dict of plain data: .*ndarray"),
        (
            Described({"lr": {"f": print}}),
            "describe must return a dict of plain data: .*not JSON serializable",
        ),
        (Described(lambda: {"lr": next(COUNT)}), "describe must say the same each time, .*; lr was 0, is 1"),
        (Described({"lr": float("nan")}), "describe must say the same each time"),
        (Trains(lambda states: states[:-1]), "train must .* one state per job; 3 jobs gave 2"),
        (Trains(lambda states: states[1:]), "train must .* one state per job; 3 jobs gave 2"),
        (Trains(lambda states: states if len(states) > 1 else []), "one state per job; 1 jobs gave 0"),
        (Trains(iter), "train must return a list .*; got a list_iterator"),
        (Evaluates(lambda found: found if len(found) > 1 else []), "per state; 1 states gave 0"),
        (
            Evaluates(lambda found: (each for each in found)),
            "evaluate must return a list .*; got a generator",
        ),
        (Evaluates(lambda found: [each.value for each in found]), "each an Evaluation; got a float"),
    ],
)
def test_broken_trainers_are_caught(trainer: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_trainer(trainer, sources=3, rows=5)
