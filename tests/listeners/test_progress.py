from __future__ import annotations

import io
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.console import Console

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.events import Event, NodeEvaluated, RoundAsked, StudyFinished, StudyStarted
from mixtree.listeners import progress
from mixtree.listeners.progress import ComparisonProgress, Pace, StudyProgress
from mixtree.partition import bisect, simplex_root
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.tree import Node
from mixtree.tree_search import TreeSearch


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    monkeypatch.setattr(Pace.__init__, "__defaults__", (clock,))
    return clock


def plain() -> Console:
    return Console(file=io.StringIO(), width=80)


def terminal(width: int = 120) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=width)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def drawn(bar: StudyProgress | ComparisonProgress) -> str:
    """The bar as it stands on the screen now."""
    with bar._console.capture() as capture:
        bar._console.print(bar._progress.get_renderable())
    return re.sub(r"\x1b\[[0-9;]*m", "", capture.get())


def evaluated(
    spent: int,
    value: float = 0.5,
    *,
    best: float = 0.25,
    depth: int = 1,
    steps: int = 10,
    replayed: bool = False,
) -> Event:
    node = Node((0,) * depth, np.array([0.5, 0.5]), steps, value)
    return NodeEvaluated("flights", node, spent, best, replayed)


def finished(spent: int) -> Event:
    return StudyFinished("flights", Node((), np.array([1.0]), 10, 0.25), spent, "the search has finished")


STARTED = StudyStarted("flights", 1000)
ROUND = RoundAsked("flights", 1, ())


def test_the_time_left_follows_from_the_mean_pace(clock):
    pace = Pace(clock)
    assert pace.remaining(100) is None
    pace.begin()
    assert pace.remaining(100) is None
    clock.now += 10
    pace.begin()  # only the first time counts
    pace.add(50)
    assert pace.remaining(100) == pytest.approx(20)
    clock.now += 5
    assert pace.remaining(100) == pytest.approx(15)
    clock.now += 50
    assert pace.remaining(100) == 0


def test_a_bar_shows_budget_best_depth_and_time_left(clock):
    bar = StudyProgress(console=terminal())
    for event in (STARTED, ROUND):
        bar(event)
    assert "0/1000 steps" in drawn(bar)
    assert "left" not in drawn(bar)
    clock.now += 60
    bar(evaluated(200, depth=3, steps=200))
    bar(evaluated(250, depth=2, steps=50))
    line = drawn(bar)
    for part in ("flights", "250/1000 steps", "best 0.25", "depth 3", "0:03:00 left"):
        assert part in line
    clock.now += 30
    assert "0:02:30 left" in drawn(bar)
    assert drawn(bar).count("\n") == 1


def test_a_resumed_study_starts_from_what_it_had_spent(clock):
    bar = StudyProgress(console=terminal())
    bar(STARTED)
    for spent in range(10, 510, 10):
        bar(evaluated(spent, replayed=True))
    assert "500/1000 steps" in drawn(bar)
    assert "left" not in drawn(bar)
    clock.now += 1000  # whatever time passes before the training begins
    bar(ROUND)
    clock.now += 10
    bar(evaluated(510, replayed=True))  # the other half of an interrupted round
    bar(evaluated(520, steps=10))
    assert "520/1000 steps" in drawn(bar)
    assert "0:08:00 left" in drawn(bar)  # 10 steps took 10 seconds


def test_the_best_value_can_be_shown_as_a_score():
    bar = StudyProgress(show=lambda value: f"AUROC {-value:.3f}", console=terminal())
    bar(STARTED)
    bar(evaluated(10, best=float("inf")))
    assert "AUROC" not in drawn(bar)
    bar(evaluated(20, best=-0.75))
    assert "AUROC 0.750, depth 1" in drawn(bar)


def test_names_are_not_markup_and_an_unknown_budget_has_no_end():
    bar = StudyProgress(console=terminal())
    bar(StudyStarted("[red]x{y}", 0))
    bar(ROUND)
    bar(evaluated(30))
    assert "[red]x{y}" in drawn(bar)
    assert " 30 steps" in drawn(bar)
    assert "left" not in drawn(bar)


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_a_bar_stays_on_one_line(width):
    bar = StudyProgress(console=terminal(width))
    for event in (StudyStarted("a-long-name-of-a-study", 123456), ROUND, evaluated(40000, best=0.123456)):
        bar(event)
    assert drawn(bar).count("\n") == 1


def test_a_live_bar_leaves_nothing_behind_even_after_an_error():
    console = terminal()
    with pytest.raises(KeyboardInterrupt), StudyProgress(console=console) as bar:
        bar(STARTED)
        bar(evaluated(10))
        raise KeyboardInterrupt
    text = written(console)
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is back
    assert text.rstrip().endswith("\x1b[2K")  # and the line is gone


def test_the_screen_is_redrawn_a_few_times_a_second_however_many_events_come(monkeypatch):
    console = terminal()
    draws = 0

    def count(*_: object) -> progress.Text:
        nonlocal draws
        draws += 1
        return progress.Text("")

    monkeypatch.setattr(progress._Remaining, "render", count)
    with StudyProgress(console=console) as bar:
        bar(STARTED)
        for spent in range(3000):
            bar(evaluated(spent))
    assert 1 <= draws < 300


def test_without_a_terminal_there_are_plain_lines_now_and_then(clock):
    console = plain()
    with StudyProgress(console=console, interval=30) as bar:
        bar(STARTED)
        bar(ROUND)
        for spent in range(10, 1010, 10):
            clock.now += 1
            bar(evaluated(spent, depth=spent // 100))
        bar(finished(1000))
    assert written(console).splitlines() == [
        "flights: 300/1000 steps, best 0.25, depth 3, 0:01:10 left",
        "flights: 600/1000 steps, best 0.25, depth 6, 0:00:40 left",
        "flights: 900/1000 steps, best 0.25, depth 9, 0:00:10 left",
        "flights: 1000/1000 steps, best 0.25, depth 10",
    ]


def test_a_comparison_counts_the_budgets_of_all_runs(clock):
    bar = ComparisonProgress(3000, console=terminal())
    assert "preparing data" in drawn(bar)
    for event in (STARTED, ROUND):
        bar.listen(event)
    clock.now += 9
    for event in (evaluated(900, steps=900), finished(900), StudyStarted("uniform", 1000)):
        bar.listen(event)
    line = drawn(bar)
    assert "uniform" in line
    assert "1000/3000 steps" in line
    assert "0:00:20 left" in line
    bar.listen(NodeEvaluated("uniform", Node((), np.array([1.0]), 500, 0.5), 500, 0.5))
    assert "1500/3000 steps" in drawn(bar)


def test_a_comparison_without_a_terminal_is_quiet():
    console = plain()
    with ComparisonProgress(3000, console=console) as bar:
        for event in (STARTED, ROUND, evaluated(900), finished(900)):
            bar(event)
    assert written(console) == ""


def test_nothing_but_plain_text_reaches_a_pipe():
    code = (
        "import numpy as np\n"
        "from mixtree.listeners.progress import StudyProgress\n"
        "from mixtree.events import NodeEvaluated, StudyFinished, StudyStarted\n"
        "from mixtree.tree import Node\n"
        "node = Node((), np.array([1.0]), 10, 0.5)\n"
        "with StudyProgress() as bar:\n"
        "    bar(StudyStarted('s', 10))\n"
        "    bar(NodeEvaluated('s', node, 10, 0.5))\n"
        "    bar(StudyFinished('s', node, 10, 'the search has finished'))\n"
        "print('done')\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "done\n"
    assert out.stderr == "s: 10/10 steps, best 0.5, depth 0\n"


def test_alone_it_is_there_from_a_study_s_start_to_its_end():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    bar = StudyProgress(console=console)
    seen = []

    def told(event):
        bar(event)
        seen.append(bar._progress.live.is_started)

    search = TreeSearch(simplex_root(2), bisect, budget=60, steps=5)
    run(
        search,
        ReferenceTrainer(synthetic(sources=2, rows=40, validation=20, test=1).sources),
        listeners=[told],
    )
    assert seen[0] is True
    assert all(seen[:-1])
    assert seen[-1] is False


def test_alone_it_goes_when_a_study_fails():
    class Broken(ReferenceTrainer):
        def evaluate(self, states):
            raise RuntimeError("no")

    bar = StudyProgress(console=Console(file=io.StringIO(), force_terminal=True, width=100))
    sources = synthetic(sources=2, rows=40, validation=20, test=1).sources
    with pytest.raises(RuntimeError, match="no"):
        run(TreeSearch(simplex_root(2), bisect, budget=60, steps=5), Broken(sources), listeners=[bar])
    assert not bar._progress.live.is_started


def test_of_a_study_that_is_over_no_time_is_left(clock):
    """Though steps were left unspent."""
    console = plain()
    bar = StudyProgress(console=console)
    for event in (STARTED, ROUND, evaluated(500)):
        bar(event)
    clock.now += 5.0
    bar(finished(500))
    assert written(console).strip().splitlines()[-1].endswith("500/1000 steps, best 0.25, depth 1")
