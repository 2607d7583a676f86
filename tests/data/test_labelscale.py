import numpy as np
import pytest

from mixtree.data.labelscale import LabelScale
from mixtree.data.sources import Rows, Sources
from mixtree.metrics import MAE, RMSE


def regression(centre=1000.0, spread=50.0):
    random = np.random.default_rng(0)
    parts = [Rows(random.normal(size=(40, 2)), centre + spread * random.normal(size=40)) for _ in range(3)]
    return Sources(("a", "b"), tuple(parts[:2]), parts[2], 0)


def test_labels_of_the_sources_get_mean_0_and_spread_1():
    sources = regression()
    scale = LabelScale.of(sources)
    labels = np.concatenate([part.y for part in scale.sources(sources).rows])
    assert labels.mean() == pytest.approx(0, abs=1e-9)
    assert labels.std() == pytest.approx(1)
    assert scale.back(scale.rows(sources.validation).y) == pytest.approx(sources.validation.y)


def test_the_validation_rows_do_not_decide_the_scale():
    sources = regression()
    other = Sources(sources.names, sources.rows, Rows(sources.validation.x, sources.validation.y * 9), 0)
    assert LabelScale.of(sources) == LabelScale.of(other)


@pytest.mark.parametrize("metric", [RMSE, MAE])
def test_metrics_are_in_the_labels_own_units(metric):
    sources = regression()
    scale = LabelScale.of(sources)
    y, guess = sources.validation.y, sources.validation.y + 7
    scaled_y, scaled_guess = ((each - scale.centre) / scale.spread for each in (y, guess))
    assert scale.metric(metric)(scaled_y, scaled_guess) == pytest.approx(7)
    direct = metric.standard_error(y, guess + np.arange(40))
    assert scale.metric(metric).standard_error(scaled_y, scaled_guess + np.arange(40) / scale.spread) == (
        pytest.approx(direct)
    )


def test_a_constant_label_and_a_classification_are_left_alone():
    flat = Rows(np.zeros((3, 1)), np.full(3, 5.0))
    assert LabelScale.of(Sources(("a",), (flat,), flat, 0)) == LabelScale(5.0, 1.0)
    classes = Rows(np.zeros((3, 1)), np.array([0, 1, 0]))
    assert LabelScale.of(Sources(("a",), (classes,), classes, 2)) == LabelScale()
