import matplotlib.figure
import numpy as np
import pytest

from mixtree.experiments import figures
from mixtree.experiments.comparison import Run
from mixtree.experiments.reproduce import Scored
from mixtree.experiments.specs import EXPERIMENTS
from mixtree.experiments.tuning import Point, Sweep


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_panel_has_at_most_eight_curves_and_none_twice(name):
    for halving in ("mixmatch-ch", "mixmatch-chp"):
        first, second = figures.panels(EXPERIMENTS[name], halving=halving)
        assert max(len(first), len(second)) <= 8 == len(figures._COLOURS) == len(set(figures._COLOURS))
        assert len({*first, *second}) == len(first) + len(second)
        assert halving in first
        assert {*first, *second} <= set(EXPERIMENTS[name].algorithms())


@pytest.fixture
def drawn(monkeypatch):
    """The last figure that was saved."""
    saved = []
    save = matplotlib.figure.Figure.savefig

    def remember(self, *arguments, **options):
        saved.append(self)
        save(self, *arguments, **options)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", remember)
    return saved


def runs(names, scores):
    return [
        Scored(Run(name, repeat, 0.0, 0.0, score, {}, budget, {}, 0.0), 0, (), {}, 0.0, 0.0)
        for name in names
        for budget in (300, 600)
        for repeat, score in enumerate(scores)
    ]


def test_points_are_means_with_one_standard_deviation(drawn, tmp_path):
    experiment = EXPERIMENTS["allstate"]
    scores = [0.80, 0.84, np.nan, 0.90]
    settings = {
        "one": ("mixmatch-chp", runs(["mixmatch-chp", "genie"], scores)),
        "two": ("mixmatch-ch", runs(["mixmatch-ch", "only:FL"], scores)),
    }
    file = tmp_path / "figure.png"
    figures.draw_budgets(experiment, settings, files=[file])
    assert file.stat().st_size > 1000
    axes = drawn[-1].axes
    assert [each.get_title() for each in axes] == ["one", "one", "two", "two"]
    labels = [text.get_text() for text in axes[0].get_legend().get_texts()]
    assert labels[0] == "mixmatch-chp"
    assert len(labels) == 7
    line, caps, (bars,) = axes[0].containers[0]
    assert list(line.get_ydata()) == pytest.approx([np.nanmean(scores)] * 2)
    for segment in bars.get_segments():
        assert np.ptp(segment[:, 1]) == pytest.approx(2 * np.nanstd(scores, ddof=1))


def test_step_sizes_at_which_models_diverge_are_left_out(drawn, tmp_path):
    experiment = EXPERIMENTS["allstate"]
    points = tuple(Point(lr, 0.5 + lr / 10, 0.01, 0, 0, 0, 0, int(lr > 2)) for lr in (0.27, 0.81, 2.43))
    names = [name for panel in figures.panels(experiment) for name in panel]
    sweeps = {name: Sweep(name, points, 0.81, "") for name in names}
    figures.draw_sweeps(experiment, sweeps, files=[tmp_path / "figure.png"])
    axes = drawn[-1].axes[0]
    assert axes.get_xscale() == "log"
    assert list(axes.containers[0].lines[0].get_xdata()) == [0.27, 0.81]
