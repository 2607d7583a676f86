import time
from pathlib import Path

import pytest

from mixtree.data.synthetic import synthetic
from mixtree.planning.timing import measure
from mixtree.trainer import Evaluation


class Slow:
    """A trainer whose costs are known."""

    def __init__(self, grows: int = 0) -> None:
        self.grows = grows

    def init(self, seed):
        return 0

    def train(self, jobs):
        time.sleep(sum(job.steps * (0.002 + 1e-4 * self.grows * job.state) for job in jobs))
        return [job.state + job.steps for job in jobs]

    def evaluate(self, states):
        time.sleep(0.02 * len(states))
        return [Evaluation(1.0) for _ in states]

    def save(self, state):
        import numpy as np

        return {"w": np.zeros(1000 + self.grows * state, dtype=np.uint8)}

    def load(self, arrays):
        return len(arrays["w"]) - 1000


def test_steps_nodes_and_sizes_are_measured():
    pace = measure(Slow(grows=3), 3, seconds=0.1)
    # Sleeps are never shorter; on a busy machine they are longer.
    assert 0.0015 < pace.step_seconds < 0.02
    assert 0.015 < pace.node_seconds < 0.2
    assert pace.step_bytes == pytest.approx(3.0)
    assert abs(pace.model_bytes - 1000) <= 1
    assert 1e-4 < pace.step_growth < 2e-3
    assert pace.process_bytes is None or pace.process_bytes > 10**6


@pytest.mark.parametrize("sources", [1, 2])
def test_a_real_trainer_is_measured_and_left_as_it_was(sources, tmp_path, monkeypatch):
    from mixtree.trainers.mlp import MlpTrainer

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data = synthetic(sources=2, rows=60, features=3).sources
    if sources == 1:
        data = type(data)(data.names[:1], data.rows[:1], data.validation, data.classes)
    pace = measure(MlpTrainer(data, hidden=(), lr=0.1, batch_size=10), sources, seconds=0.02)
    assert pace.step_seconds > 0 and pace.node_seconds >= 0
    assert pace.model_bytes > 0 and pace.step_bytes == pace.step_growth == 0
    assert list(Path(tmp_path).iterdir()) == []
