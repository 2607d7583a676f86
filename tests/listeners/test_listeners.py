from __future__ import annotations

import json
import logging
import struct
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mixtree.engine.study import Result, run
from mixtree.errors import InputError, MissingExtraError, StorageError, StudyInterrupted
from mixtree.events import (
    Event,
    NodeDiverged,
    NodeEvaluated,
    RoundAsked,
    StudyFinished,
    StudyStarted,
    Warned,
)
from mixtree.listeners import JsonLines, MLflowListener, TensorBoardListener, log_events
from mixtree.listeners.text import as_json, describe
from mixtree.listeners.trackers import Curves
from mixtree.partition import PARTITIONS
from mixtree.trainer import Evaluation, Job
from mixtree.tree import Node, Trial
from mixtree.tree import Path as NodePath
from mixtree.tree_search import TreeSearch

GOAL = np.array([0.7, 0.2, 0.1])
SOURCES = ["UA", "B6", "E V"]
BUDGET = 400


class Trainer:
    """A model is the mixture it was trained on last; one corner of the simplex diverges."""

    def init(self, seed: int) -> Any:
        return np.zeros(3)

    def train(self, jobs: Sequence[Job[Any]]) -> list[Any]:
        return [job.mixture for job in jobs]

    def evaluate(self, states: Sequence[Any]) -> list[Evaluation]:
        return [
            Evaluation(inf if state[1] > 0.4 else float(np.abs(state - GOAL).sum()) + 0.1) for state in states
        ]

    def save(self, state: Any) -> dict[str, Any]:
        return {"mixture": np.array(state)}

    def load(self, arrays: Mapping[str, Any]) -> Any:
        return arrays["mixture"]


def study(*listeners: Any, budget: int = BUDGET, **options: Any) -> Result[Any]:
    bisect = PARTITIONS["bisect"]
    search = TreeSearch(bisect.root(3), bisect.split, budget=budget, steps=10)
    return run(search, Trainer(), listeners=listeners, **options)


class StopAfter:
    """A listener that ends the study by force at its n-th new node."""

    def __init__(self, nodes: int, error: BaseException) -> None:
        self.left, self.error = nodes, error

    def __call__(self, event: Event) -> None:
        if isinstance(event, NodeEvaluated) and not event.replayed:
            self.left -= 1
            if self.left < 0:
                raise self.error


@pytest.fixture(scope="module")
def whole() -> tuple[list[Event], Result[Any]]:
    """The events of an uninterrupted study, and its result."""
    events: list[Event] = []
    return events, study(events.append)


def node(path: NodePath = (0, 1), value: float = 0.5, **options: Any) -> Node:
    return Node(path, np.array([0.25, 0.75]), options.pop("steps", 10), value, **options)


ONE_OF_EACH: list[Event] = [
    StudyStarted("s", 100),
    StudyStarted("s", 100, spent=30),
    RoundAsked("s", 1, (Trial((), np.array([0.5, 0.5]), 10), Trial((0,), np.array([1.0, 0.0]), 20))),
    NodeEvaluated("s", node(), 10, 0.5),
    NodeEvaluated("s", node(value=inf, standard_error=nan), 20, inf, replayed=True),
    NodeDiverged("s", node(value=nan), "it diverged"),
    Warned("s", "a worker died"),
    StudyFinished("s", node(standard_error=0.01), 100, "the search has finished"),
]


# -- any callable ------------------------------------------------------------------------------------------


def test_any_callable_hears_every_event_in_order(whole):
    class Counting:
        heard = 0

        def hear(self, event: Event) -> None:
            self.heard += 1

    counting, seen = Counting(), []
    study(counting.hear, seen.append, lambda event: None)
    assert [type(event) for event in seen] == [type(event) for event in whole[0]]
    assert counting.heard == len(seen) > 50
    assert isinstance(seen[0], StudyStarted)
    assert isinstance(seen[-1], StudyFinished)


def test_an_exception_in_a_listener_stops_the_study_which_can_then_be_resumed(tmp_path, whole):
    place = tmp_path / "studies.db"
    with pytest.raises(ZeroDivisionError):
        study(StopAfter(5, ZeroDivisionError()), storage=place)
    seen: list[Event] = []
    result = study(seen.append, storage=place, resume=True)
    assert sum(isinstance(event, NodeEvaluated) and event.replayed for event in seen) >= 5
    assert [each.value for each in result.tree.values()] == [each.value for each in whole[1].tree.values()]


# -- logging -----------------------------------------------------------------------------------------------


def test_every_event_is_one_readable_line_at_its_level(caplog):
    logger = logging.getLogger("my.study")
    listener = log_events(logger, level=logging.INFO)
    with caplog.at_level(logging.DEBUG, logger="my.study"):
        for event in ONE_OF_EACH:
            listener(event)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "s: started with a budget of 100 steps",
        "s: started with a budget of 100 steps, 30 of them spent",
        "s: round 1: 2 nodes, 30 steps",
        "s: node (0, 1), search, 10 steps on [0.25 0.75]: 0.5; best 0.5, 10 steps spent",
        "s: node (0, 1), search, 10 steps on [0.25 0.75]: inf; best inf, 20 steps spent",
        "s: node (0, 1) diverged",
        "s: a worker died",
        "s: ended after 100 steps, the search has finished: node (0, 1) on [0.25 0.75], 0.5",
    ]
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO"] * 4 + ["DEBUG", "INFO", "WARNING", "INFO"]


def test_a_warning_is_not_logged_twice_by_default(caplog):
    with caplog.at_level(logging.INFO):
        result = study(log_events())
    warned = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == len(result.warnings) > 0
    assert {record.name for record in caplog.records} == {"mixtree.events", "mixtree.engine.reporting"}


def test_many_sources_do_not_fill_the_line():
    event = NodeEvaluated("s", Node((), np.full(100, 0.01), 10, 0.5), 10, 0.5)
    assert len(describe(event)) < 150
    assert "…" in describe(event)


# -- JSON lines --------------------------------------------------------------------------------------------


def strict(line: str) -> Any:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(line, parse_constant=refuse)


def read(path: Path) -> list[Any]:
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return [strict(line) for line in text.splitlines()]


def test_every_event_is_one_json_object(tmp_path):
    seen: list[Event] = []
    path = tmp_path / "events.jsonl"
    result = study(JsonLines(path), seen.append, study="ménage")
    rows = read(path)
    assert [row["event"] for row in rows] == [type(event).__name__ for event in seen]
    assert {row["study"] for row in rows} == {"ménage"}
    nodes = [row for row in rows if row["event"] == "NodeEvaluated"]
    for row, kept in zip(nodes, result.tree.values(), strict=True):
        assert row["node"]["path"] == list(kept.path)
        assert row["node"]["mixture"] == kept.mixture.tolist()
        assert row["node"]["value"] == (kept.value if isfinite(kept.value) else None)
        assert row["node"]["standard_error"] is None
    assert nodes[-1]["spent"] == sum(result.spent.values())
    assert any(row["node"]["value"] is None for row in nodes)
    assert rows[-1]["node"]["path"] == list(result.node.path)
    assert rows[-1]["best"] == result.value
    table = pl.read_ndjson(path, infer_schema_length=None)
    assert table.height == len(rows)
    assert table["best"].dtype == pl.Float64


def test_lines_are_there_before_the_study_goes_on(tmp_path):
    path = tmp_path / "events.jsonl"
    counts: list[int] = []
    study(JsonLines(path), lambda event: counts.append(len(read(path))), budget=60)
    assert counts == list(range(1, len(counts) + 1))


def test_a_resumed_study_appends_and_marks_what_it_repeats(tmp_path):
    path, place = tmp_path / "events.jsonl", tmp_path / "studies.db"
    with pytest.raises(ZeroDivisionError):
        study(JsonLines(path), StopAfter(5, ZeroDivisionError()), storage=place)
    before = path.read_bytes()
    result = study(JsonLines(path), storage=place, resume=True)
    assert path.read_bytes().startswith(before)
    nodes = [row for row in read(path) if row["event"] == "NodeEvaluated"]
    assert len({tuple(row["node"]["path"]) for row in nodes}) == len(result.tree)
    assert {row["replayed"] for row in nodes} == {False, True}


@pytest.mark.parametrize("torn", ['{"ev', '{"event": "NodeEval', '{"event": "NodeEvaluated", "node": {}'])
def test_a_torn_last_line_is_cut_off(tmp_path, torn):
    path = tmp_path / "events.jsonl"
    JsonLines(path)(ONE_OF_EACH[0])
    whole_line = path.read_text()
    path.write_text(whole_line + torn)
    JsonLines(path)(ONE_OF_EACH[1])
    assert path.read_text().startswith(whole_line)
    assert [row["spent"] for row in read(path)] == [0, 30]


@pytest.mark.parametrize("last", ["my notes", '{"event": "Mine"}'])
def test_what_others_wrote_is_left_alone(tmp_path, last):
    path = tmp_path / "events.jsonl"
    path.write_text(last)
    JsonLines(path)(ONE_OF_EACH[0])
    lines = path.read_text().splitlines()
    assert lines[0] == last
    assert strict(lines[1])["event"] == "StudyStarted"


def test_a_file_that_cannot_be_written_is_refused_at_once(tmp_path):
    with pytest.raises(StorageError, match="cannot write events to .*nowhere"):
        JsonLines(tmp_path / "nowhere" / "events.jsonl")


@given(st.floats(), st.floats(), st.lists(st.floats(), max_size=4), st.text())
def test_all_numbers_and_names_survive_json(value, best, weights, name):
    event = NodeEvaluated(name, Node((1,), np.array(weights), 10, value), 10, best)
    text = json.dumps(as_json(event), allow_nan=False)
    row = strict(text)
    assert row["study"] == name
    expected = [each if isfinite(each) else None for each in (value, best, *weights)]
    assert [row["node"]["value"], row["best"], *row["node"]["mixture"]] == expected


# -- curves ------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 20))
def test_a_curve_has_few_points_and_always_the_last(steps, points):
    curves, spent, drawn = Curves(sum(steps), points=points), 0, []
    for index, each in enumerate(steps):
        spent += each
        event = NodeEvaluated("s", node((0,) * index, 1 / (1 + index), steps=each), spent, 0.0)
        if row := curves.add(event):
            drawn.append((spent, row))
    last = curves.end(event.node)
    assert len(drawn) <= points + 1
    assert drawn[0][0] == steps[0]
    assert last["final/value"] == event.node.value
    row = drawn[-1][1] if drawn[-1][0] == spent else last
    assert row["depth"] == len(steps) - 1
    assert row["best"] == row["value"] == event.node.value
    assert row["spent/search"] == spent


def test_curves_know_phases_divergence_and_the_best_mixture():
    curves = Curves(100, sources=["a/b", "a b"])
    # 30 steps are charged before the first node.
    first = curves.add(NodeEvaluated("s", node((), 0.5), 40, 0.5))
    assert first["spent/before"] == 30
    assert first["spent/search"] == 10
    assert (first["mixture/0_a_b"], first["mixture/1_a_b"]) == (0.25, 0.75)
    second = curves.add(NodeEvaluated("s", node((0,), inf), 50, 0.5))
    assert second == {"depth": 1, "best": 0.5, "diverged": 1, "spent/search": 20, "spent/before": 30}
    third = curves.add(NodeEvaluated("s", node((0, 0), 0.4, phase="commit", steps=50), 100, 0.4))
    assert third["spent/commit"] == 50
    assert third["mixture/0_a_b"] == 0.25
    # A node that was charged before costs nothing.
    assert curves.add(NodeEvaluated("s", node((1,), 0.6), 100, 0.4)) == {}
    assert curves.end(node())["spent/search"] == 20


def test_a_curve_without_points_is_refused():
    with pytest.raises(InputError, match="at least 1 point"):
        Curves(100, points=0)


@pytest.mark.parametrize("more", [(), ("target fold 1", "target fold 2")])
def test_weights_are_called_after_the_sources(more):
    curves = Curves(100, sources=["UA", "E V", *more])
    own, rest = np.array([0.25, 0.75]), np.zeros(len(more))
    first = curves.add(NodeEvaluated("s", Node((), np.array([*own, *rest]), 10, 0.5), 10, 0.5))
    assert {name for name in first if name.startswith("mixture/")} == {"mixture/UA", "mixture/E_V"}
    # One weight more than there are sources is the target's own rows.
    last = curves.end(Node((0,), np.array([0.0, 0.0, *rest, 1.0]), 10, 0.4))
    weights = {name: weight for name, weight in last.items() if name.startswith("final/mixture/")}
    assert weights == {"final/mixture/UA": 0, "final/mixture/E_V": 0, "final/mixture/target": 1}


# -- TensorBoard -------------------------------------------------------------------------------------------

needs_tensorboard = pytest.mark.skipif(find_spec("tensorboardX") is None, reason="tensorboardX is missing")


def read_curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The points of an event folder as TensorBoard shows them: a restart hides what came from there on."""
    from tensorboardX.proto.event_pb2 import Event as Record
    from tensorboardX.proto.event_pb2 import SessionLog

    curves: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            record = Record.FromString(data[at + 12 : at + 12 + size])
            at += 12 + size + 4
            if record.session_log.status == SessionLog.START:
                curves = {
                    tag: [each for each in points if each[0] < record.step] for tag, points in curves.items()
                }
            for value in record.summary.value:
                curves.setdefault(value.tag, []).append((record.step, value.simple_value))
    return curves


def expected_curves(result: Result[Any]) -> dict[str, list[tuple[int, float]]]:
    low, height, phases = inf, 0, Counter()
    curves: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for spent, each in result.history:
        low, height = min(low, each.value), max(height, each.height)
        phases[each.phase] += each.steps
        numbers = {"value": each.value, "best": low, "depth": height}
        numbers |= {f"spent/{phase}": steps for phase, steps in phases.items()}
        for name, number in numbers.items():
            if isfinite(number):
                curves[name].append((spent, number))
    assert {"spent/root", "spent/search"} < set(curves)
    return curves


def assert_curves(curves: dict[str, list[tuple[int, float]]], result: Result[Any]) -> None:
    for name, points in expected_curves(result).items():
        assert [step for step, _ in curves[name]] == [step for step, _ in points]
        assert [number for _, number in curves[name]] == pytest.approx([number for _, number in points])
    spent = sum(result.spent.values())
    assert curves["final/value"] == [(spent, pytest.approx(result.value))]
    for name, weight in zip(["UA", "B6", "E_V"], result.mixture, strict=True):
        assert curves[f"final/mixture/{name}"] == [(spent, pytest.approx(weight))]
    lowest = min(result.tree.values(), key=lambda each: each.value)
    assert curves["mixture/UA"][-1][1] == pytest.approx(lowest.mixture[0])
    assert curves["diverged"][-1][1] == sum(each.diverged for each in result.tree.values())


@needs_tensorboard
def test_tensorboard_reads_the_curves(tmp_path):
    result = study(TensorBoardListener(tmp_path, sources=SOURCES), study="a/b")
    assert_curves(read_curves(tmp_path / "a%2Fb"), result)


@needs_tensorboard
def test_an_interrupted_study_goes_on_in_its_tensorboard_folder(tmp_path):
    logs, place = tmp_path / "logs", tmp_path / "studies.db"
    with TensorBoardListener(logs, sources=SOURCES) as board, pytest.raises(ZeroDivisionError):
        study(board, StopAfter(5, ZeroDivisionError()), storage=place)
    assert len(read_curves(logs / "study")["best"]) == 6
    result = study(TensorBoardListener(logs, sources=SOURCES), storage=place, resume=True)
    assert [path.name for path in logs.iterdir()] == ["study"]
    assert_curves(read_curves(logs / "study"), result)


@needs_tensorboard
def test_a_new_study_of_the_same_name_gets_a_folder_of_its_own(tmp_path):
    listener = TensorBoardListener(tmp_path, sources=SOURCES)
    results = [study(listener), study(listener, budget=100)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["study", "study-2"]
    for name, result in zip(["study", "study-2"], results, strict=True):
        assert_curves(read_curves(tmp_path / name), result)


@needs_tensorboard
def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write TensorBoard curves"):
        study(TensorBoardListener(tmp_path / "file"))


def test_without_tensorboard_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingExtraError, match=r"mixtree\[tensorboard\]"):
        TensorBoardListener(tmp_path)


# -- MLflow ------------------------------------------------------------------------------------------------

needs_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow is missing")
needs_alembic = pytest.mark.skipif(find_spec("alembic") is None, reason="MLflow's SQL storage needs alembic")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> str:
    """A tracking URI: a folder needs nothing but the package itself."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


def runs(uri: str, experiment: str = "mixtree") -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return sorted(found, key=lambda each: each.info.start_time)


def metrics(uri: str, each: Any) -> dict[str, list[tuple[int, float]]]:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    return {
        name: sorted((point.step, point.value) for point in client.get_metric_history(each.info.run_id, name))
        for name in each.data.metrics
    }


def assert_run(uri: str, each: Any, result: Result[Any]) -> None:
    assert each.info.status == "FINISHED"
    assert each.info.run_name == each.data.params["study"] == result.study
    assert each.data.tags["mixtree.reason"] == result.reason
    assert each.data.tags["mixtree.best"] == str(result.node.path)
    assert_curves(metrics(uri, each), result)


@needs_mlflow
def test_mlflow_has_one_run_per_study_with_its_curves(folder):
    listener = MLflowListener("exp", tracking_uri=folder, params={"seed": 7}, sources=SOURCES)
    results = [study(listener, study='it\'s "one"'), study(listener, study="two", budget=100)]
    stored = runs(folder, "exp")
    for each, result in zip(stored, results, strict=True):
        assert_run(folder, each, result)
        assert each.data.params == {"study": result.study, "budget": str(result.budget), "seed": "7"}


@needs_mlflow
def test_mlflow_knows_the_sources_names(folder):
    class Named(Trainer):
        names = SOURCES

    bisect = PARTITIONS["bisect"]
    search = TreeSearch(bisect.root(3), bisect.split, budget=100, steps=10)
    result = run(search, Named(), listeners=[MLflowListener(tracking_uri=folder)])
    (each,) = runs(folder)
    found = {name: weight for name, weight in each.data.metrics.items() if "final/mixture" in name}
    names = ["final/mixture/UA", "final/mixture/B6", "final/mixture/E_V"]
    assert found == dict(zip(names, result.mixture.tolist(), strict=True))


@needs_mlflow
@needs_alembic
@pytest.mark.filterwarnings("ignore")  # MLflow's own, on newer versions of SQLAlchemy
def test_mlflow_in_a_database(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    uri, place = f"sqlite:///{(tmp_path / 'mlflow.db').as_posix()}", tmp_path / "studies.db"
    with pytest.raises(ZeroDivisionError), MLflowListener(tracking_uri=uri, sources=SOURCES) as listener:
        study(listener, StopAfter(5, ZeroDivisionError()), storage=place)
    result = study(MLflowListener(tracking_uri=uri, sources=SOURCES), storage=place, resume=True)
    (each,) = runs(uri)
    assert_run(uri, each, result)


@needs_mlflow
@pytest.mark.skipif(find_spec("alembic") is not None, reason="alembic is there")
def test_without_mlflows_database_packages_the_extra_is_named(tmp_path):
    with pytest.raises(MissingExtraError, match=r"mixtree\[mlflow\]"):
        MLflowListener(tracking_uri=f"sqlite:///{(tmp_path / 'mlflow.db').as_posix()}")


@needs_mlflow
@pytest.mark.parametrize(
    ("error", "status"), [(ZeroDivisionError(), "FAILED"), (StudyInterrupted("stopped"), "KILLED")]
)
def test_an_interrupted_study_goes_on_in_its_mlflow_run(tmp_path, folder, error, status):
    place = tmp_path / "studies.db"
    with pytest.raises(type(error)), MLflowListener(tracking_uri=folder, sources=SOURCES) as listener:
        study(listener, StopAfter(5, error), storage=place)
    (stopped,) = runs(folder)
    assert stopped.info.status == status
    assert len(metrics(folder, stopped)["best"]) == 6
    result = study(MLflowListener(tracking_uri=folder, sources=SOURCES), storage=place, resume=True)
    (each,) = runs(folder)
    assert_run(folder, each, result)


@needs_mlflow
def test_points_that_were_lost_are_sent_again(tmp_path, folder):
    place = tmp_path / "studies.db"
    with pytest.raises(ZeroDivisionError):  # no context manager: only what went out before the error is there
        study(
            MLflowListener(tracking_uri=folder, sources=SOURCES),
            StopAfter(20, ZeroDivisionError()),
            storage=place,
        )
    (stopped,) = runs(folder)
    assert stopped.info.status == "RUNNING"
    assert len(metrics(folder, stopped)["best"]) < 20
    result = study(MLflowListener(tracking_uri=folder, sources=SOURCES), storage=place, resume=True)
    (each,) = runs(folder)
    assert_run(folder, each, result)


@needs_mlflow
def test_a_raised_budget_goes_on_in_the_same_run(tmp_path, folder):
    place = tmp_path / "studies.db"
    study(MLflowListener(tracking_uri=folder, sources=SOURCES), storage=place, budget=100)
    study(MLflowListener(tracking_uri=folder, sources=SOURCES), storage=place, budget=300, resume=True)
    (each,) = runs(folder)
    assert each.data.params["budget"] == "100"
    assert each.data.tags["mixtree.budget"] == "300"
    spent = [step for step, _ in metrics(folder, each)["best"]]
    assert spent == sorted(set(spent))
    assert 100 < spent[-1] <= 300


@needs_mlflow
def test_a_run_of_another_study_of_the_same_name_is_left_alone(tmp_path, folder):
    place = tmp_path / "studies.db"
    study(storage=place)
    other = MLflowListener(tracking_uri=folder)
    for event in (StudyStarted("study", 50), NodeEvaluated("study", node((), 9.0), 50, 9.0)):
        other(event)
    other(StudyFinished("study", node((), 9.0), 50, "the search has finished"))
    result = study(MLflowListener(tracking_uri=folder, sources=SOURCES), storage=place, resume=True)
    first, second = runs(folder)
    assert metrics(folder, first)["value"] == [(50, 9.0)]
    assert_run(folder, second, result)


@needs_mlflow
def test_points_are_sent_together(folder, monkeypatch):
    listener = MLflowListener(tracking_uri=folder)
    sizes: list[int] = []
    send = listener._client.log_batch

    def count(run_id: str, metrics: Sequence[Any] = (), **rest: Any) -> Any:
        sizes.append(len(metrics))
        return send(run_id, metrics=metrics, **rest)

    monkeypatch.setattr(listener._client, "log_batch", count)
    listener(StudyStarted("s", 5000))
    for index in range(500):
        listener(NodeEvaluated("s", node((index,)), 10 * (index + 1), 0.5))
    listener(StudyFinished("s", node(), 5000, "the search has finished"))
    assert len(sizes) <= 6  # one at the start, at most one a second, the rest at the end
    assert max(sizes) == 1000
    assert len(metrics(folder, runs(folder)[0])["value"]) == 500


@needs_mlflow
def test_a_tracking_place_that_mlflow_refuses_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with pytest.raises(StorageError, match="MLflow refused"):
        MLflowListener(tracking_uri="nonsense://nowhere")


def test_without_mlflow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"mixtree\[mlflow\]"):
        MLflowListener()
