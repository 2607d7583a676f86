"""Model families by name, and users' own objects."""

from __future__ import annotations

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.linear_model import SGDClassifier
from xgboost import XGBClassifier

from mixtree import fit
from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.trainer import Job
from mixtree.trainers.registry import ModelOptions, make_trainer


@pytest.fixture(scope="module")
def sources():
    return synthetic(rows=60).sources


def torch_module():
    import torch

    return torch.nn.Linear(synthetic(rows=10).sources.features, synthetic(rows=10).sources.classes)


@pytest.mark.parametrize(
    "model",
    [
        "mlp",
        "linear",
        "lightgbm",
        "xgboost",
        "sklearn:SGDClassifier",
        "sklearn:GaussianNB",
        SGDClassifier(loss="log_loss"),
        LGBMClassifier(num_leaves=4),
        XGBClassifier(max_depth=2),
        torch_module,
    ],
    ids=lambda model: model if isinstance(model, str) else getattr(model, "__name__", type(model).__name__),
)
def test_every_family_trains_evaluates_and_predicts(sources, model):
    trainer = make_trainer(model, sources, ModelOptions(batch_size=10))
    mixture = np.full(len(sources), 1 / len(sources))
    (state,) = trainer.train([Job(trainer.init(0), mixture, 3, seed=1)])
    assert np.isfinite(trainer.evaluate([state])[0].value)
    scores = trainer.predict(state, sources.validation.x)
    assert scores.shape == (len(sources.validation), sources.classes)
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("forest", "unknown model 'forest'; choose one of mlp"),
        ("sklearn:Nothing", "sklearn:Nothing is no classifier; choose one of"),
        (3, "cannot train int"),
    ],
)
def test_what_cannot_be_trained_is_refused(sources, model, message):
    with pytest.raises(InputError, match=message):
        make_trainer(model, sources, ModelOptions())


@pytest.mark.parametrize(
    ("model", "options", "name"),
    [
        ("lightgbm", {"class_weight": "balanced"}, "class_weight"),
        ("xgboost", {"init": {}}, "init"),
        ("sklearn:SGDClassifier", {"lr": 0.1}, "lr"),
    ],
)
def test_options_without_effect_are_refused(sources, model, options, name):
    with pytest.raises(InputError, match=f"^{name} does not work with"):
        make_trainer(model, sources, ModelOptions(**options))


@pytest.mark.parametrize(
    "model", [LGBMClassifier(n_estimators=7, num_leaves=4), XGBClassifier(n_estimators=8)]
)
def test_an_estimator_keeps_the_number_of_trees_that_it_was_given(sources, model):
    result = fit(sources, model=model, policy="uniform", reference="none", holdout=0.0)
    fitted = result.state.fitted
    rounds = (
        fitted.booster_.current_iteration()
        if hasattr(fitted, "booster_")
        else fitted.get_booster().num_boosted_rounds()
    )
    assert rounds == model.n_estimators


def test_the_step_size_reaches_the_model(sources):
    assert make_trainer("mlp", sources, ModelOptions()).lr == 0.1
    assert make_trainer("linear", sources, ModelOptions(lr=0.3)).lr == 0.3


def test_a_torch_function_may_take_the_sizes(sources):
    torch = pytest.importorskip("torch")

    def sized(features, outputs):
        return torch.nn.Linear(features, outputs)

    trainer = make_trainer(sized, sources, ModelOptions())
    state = trainer.init(0)
    assert trainer.predict(state, sources.validation.x).shape == (len(sources.validation), sources.classes)
    with pytest.raises(InputError, match="takes nothing, or the numbers of features"):
        make_trainer(lambda features, outputs, more: None, sources, ModelOptions())


def test_a_module_of_images_is_fitted_and_judged():
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)

    def part(rows, shift):
        x = (random.standard_normal((rows, 1, 4, 4)) + shift).astype(np.float32)
        return x, (x.mean(axis=(1, 2, 3)) + 0.1 * random.standard_normal(rows) > shift).astype(int)

    def module():
        layers = torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(12, 2)
        return torch.nn.Sequential(*layers)

    result = fit({"a": part(200, 0.0), "b": part(200, 1.0)}, part(60, 0.5), model=module, budget=100)
    assert result.verdict is not None
    assert np.isfinite(result.verdict.score.value)
    assert np.isfinite(result.verdict.hull.p)
