from __future__ import annotations

import json

import numpy as np
import pytest
import safetensors.numpy
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Perceptron, SGDClassifier, SGDRegressor
from sklearn.metrics import hinge_loss, log_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import DataError, InputError, TrainingError
from mixtree.partition import PARTITIONS
from mixtree.testing import check_trainer
from mixtree.trainer import Job
from mixtree.trainers.reference import ReferenceTrainer
from mixtree.trainers.sklearn import PartialFitTrainer
from mixtree.tree_search import TreeSearch

EVEN = np.array([0.5, 0.5])


def problem(classes: int = 2, **options):
    return synthetic(
        sources=2, rows=120, validation=60, test=10, features=5, classes=classes, seed=3, **options
    ).sources


def logistic(**options) -> SGDClassifier:
    return SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, penalty=None, **options)


def after(trainer: PartialFitTrainer, steps: int = 10, *, lr_scale: float = 1.0, seed: int = 1):
    return trainer.train([Job(trainer.init(0), EVEN, steps, seed, lr_scale)])[0]


FAMILIES = {
    "logistic": (2, logistic()),
    "logistic, 3 classes": (3, logistic(average=True)),
    "svm, optimal rate": (2, SGDClassifier()),
    "svm, 3 classes": (3, SGDClassifier()),
    "perceptron": (2, Perceptron()),
    "naive bayes": (3, GaussianNB()),
    "bernoulli": (2, BernoulliNB()),
    "mlp adam": (3, MLPClassifier((8, 4))),
    "mlp momentum": (2, MLPClassifier((8,), solver="sgd", learning_rate="invscaling")),
    "one versus rest": (3, OneVsRestClassifier(SGDClassifier(loss="modified_huber"))),
    "linear regression": (0, SGDRegressor()),
    "mlp regression": (0, MLPRegressor(hidden_layer_sizes=(8,), learning_rate="adaptive", solver="sgd")),
    "pipeline": (2, make_pipeline(StandardScaler(), PCA(3, random_state=0), MLPClassifier((4,)))),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("replacement", [True, False])
def test_every_family_keeps_the_promises_of_a_trainer(family, replacement):
    classes, estimator = FAMILIES[family]
    trainer = PartialFitTrainer(problem(classes), estimator, batch_size=10, replacement=replacement)
    check_trainer(trainer, sources=2, rows=60)


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_numbers_only_and_read_only(family):
    classes, estimator = FAMILIES[family]
    trainer = PartialFitTrainer(problem(classes), estimator, batch_size=10)
    state = after(trainer)
    for array in trainer.save(state).values():
        assert array.dtype.kind in "biuf"
        assert array.ndim > 0
    for array in state.arrays.values():
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    stored = safetensors.numpy.save(trainer.save(state))
    again = trainer.save(trainer.load(safetensors.numpy.load(stored)))
    for name, array in trainer.save(state).items():
        np.testing.assert_array_equal(again[name], array)


def test_squared_error_agrees_with_the_reference():
    sources = problem(0)
    ours = PartialFitTrainer(
        sources,
        SGDRegressor(learning_rate="constant", eta0=0.02, penalty=None, shuffle=False),
        batch_size=1,
    )
    # scikit-learn's loss is half the squared error.
    reference = ReferenceTrainer(sources, lr=0.01, batch_size=1)
    start = reference.init(0)
    zero = type(start)((np.zeros((5, 1)),), (np.zeros(1),), start.cursor)
    expected = reference.train([Job(zero, EVEN, 50, 1)])[0]
    model = ours.fitted(after(ours, 50))
    np.testing.assert_allclose(model.coef_, expected.weights[0][:, 0], atol=1e-10)
    np.testing.assert_allclose(model.intercept_, expected.biases[0], atol=1e-10)


def test_logistic_regression_agrees_with_the_reference():
    sources = problem(2)
    ours = PartialFitTrainer(sources, logistic(shuffle=False), batch_size=1)
    # Two opposite softmax columns move their difference twice as fast as one logistic column moves.
    reference = ReferenceTrainer(sources, lr=0.025, batch_size=1)
    start = reference.init(0)
    zero = type(start)((np.zeros((5, 2)),), (np.zeros(2),), start.cursor)
    expected = reference.train([Job(zero, EVEN, 50, 1)])[0]
    state = after(ours, 50)
    model = ours.fitted(state)
    weights, biases = expected.weights[0], expected.biases[0]
    np.testing.assert_allclose(model.coef_[0], weights[:, 1] - weights[:, 0], atol=1e-10)
    np.testing.assert_allclose(model.intercept_, biases[1] - biases[0], atol=1e-10)
    values = ours.evaluate([state])[0].value, reference.evaluate([expected])[0].value
    np.testing.assert_allclose(*values, atol=1e-10)


def test_mlp_agrees_with_the_reference():
    sources = problem(3)
    mlp = MLPClassifier((4,), solver="sgd", momentum=0.0, alpha=0.0, learning_rate_init=0.1, shuffle=False)
    ours = PartialFitTrainer(sources, mlp, batch_size=300)
    reference = ReferenceTrainer(sources, hidden=(4,), lr=0.1, batch_size=300)
    first = after(ours, 1)
    start = ours.fitted(first)
    same = type(reference.init(0))(tuple(start.coefs_), tuple(start.intercepts_), first.cursor)
    expected = reference.train([Job(same, EVEN, 50, 7)])[0]
    model = ours.fitted(ours.train([Job(first, EVEN, 50, 7)])[0])
    for ours_weight, weight in zip(model.coefs_, expected.weights, strict=True):
        np.testing.assert_allclose(ours_weight, weight, atol=1e-10)


def test_batches_in_one_call_are_the_same_updates_as_one_call_each():
    sources = problem(3)
    trainer = PartialFitTrainer(sources, logistic(shuffle=False), batch_size=5)
    rows, _ = trainer.sampler.draw(EVEN, 50, seed=1, cursor=trainer.init(0).cursor)
    expected = logistic(shuffle=False)
    for batch in rows.reshape(10, 5):
        expected.partial_fit(trainer.rows.x[batch], trainer.rows.y[batch], classes=np.arange(3))
    np.testing.assert_allclose(trainer.fitted(after(trainer)).coef_, expected.coef_, atol=1e-12)


def test_a_step_of_an_mlp_is_one_gradient_step():
    trainer = PartialFitTrainer(problem(), MLPClassifier((4,)), batch_size=500)
    assert trainer.fitted(after(trainer, 3))._optimizer.t == 3


def test_models_of_one_seed_start_alike_whatever_their_first_job():
    # A step size that is next to nothing leaves the initial weights.
    trainer = PartialFitTrainer(problem(), MLPClassifier((4,), learning_rate_init=1e-300))
    one, two = (trainer.fitted(after(trainer, 2, seed=seed)).coefs_[0] for seed in (1, 2))
    other = trainer.train([Job(trainer.init(5), EVEN, 2, 1)])[0]
    np.testing.assert_allclose(one, two)
    assert not np.allclose(one, trainer.fitted(other).coefs_[0])


@pytest.mark.parametrize(
    "estimator",
    [
        logistic(),
        Perceptron(),
        MLPClassifier((4,), solver="sgd"),
        MLPClassifier((4,)),
        MLPClassifier((4,), solver="sgd", learning_rate="invscaling"),
    ],
)
def test_lr_scale_scales_the_step_size_and_leaves_no_trace(estimator):
    trainer = PartialFitTrainer(problem(), estimator, batch_size=10)
    name = trainer.describe()["step_size"]
    scaled = PartialFitTrainer(
        problem(), type(estimator)(**{**estimator.get_params(), name: 0.25 * trainer.lr}), batch_size=10
    )
    ours, theirs = after(trainer, lr_scale=0.25), after(scaled)
    np.testing.assert_array_equal(
        trainer.predict(ours, trainer.rows.x), scaled.predict(theirs, trainer.rows.x)
    )
    assert not np.array_equal(
        trainer.predict(ours, trainer.rows.x), trainer.predict(after(trainer), trainer.rows.x)
    )
    assert getattr(trainer.fitted(ours), name) == trainer.lr
    if hasattr(estimator, "solver"):
        assert trainer.fitted(ours)._optimizer.learning_rate_init == trainer.lr


def test_estimators_without_a_step_size_say_so():
    for estimator in (GaussianNB(), SGDClassifier()):
        trainer = PartialFitTrainer(problem(), estimator)
        assert trainer.describe()["step_size"] is None
        assert trainer.lr is None
        same = after(trainer), after(trainer, lr_scale=0.1)
        np.testing.assert_array_equal(*(trainer.predict(state, trainer.rows.x) for state in same))


def test_reset_optimizer_forgets_moments_but_not_weights():
    sources = problem()
    trainers = [
        PartialFitTrainer(sources, MLPClassifier((4,)), batch_size=10, reset_optimizer=reset)
        for reset in (False, True)
    ]
    first = after(trainers[0])
    kept, reset = (trainer.train([Job(first, EVEN, 3, 5)])[0] for trainer in trainers)
    assert [trainers[0].fitted(state)._optimizer.t for state in (kept, reset)] == [13, 3]
    sgd = PartialFitTrainer(sources, SGDClassifier(), batch_size=10, reset_optimizer=True)
    assert sgd.fitted(sgd.train([Job(after(sgd), EVEN, 3, 5)])[0]).t_ == 31


def test_transformers_see_the_rows_of_training_sources_only():
    sources = problem()
    far = Rows(sources.validation.x + 1000.0, sources.validation.y)
    trainer = PartialFitTrainer(
        Sources(sources.names, sources.rows, far, 2), make_pipeline(StandardScaler(), logistic())
    )
    model = trainer.fitted(after(trainer))
    mean = np.concatenate([part.x for part in sources.rows]).mean(axis=0)
    np.testing.assert_allclose(model[0].mean_, mean)
    assert list(model.named_steps) == ["standardscaler", "sgdclassifier"]
    np.testing.assert_allclose(
        model.predict_proba(far.x), trainer.evaluate([after(trainer)])[0].predictions, rtol=1e-12
    )


def test_sparse_rows_train_like_dense_ones():
    dense = problem()
    thin = Sources(
        dense.names,
        tuple(Rows(sparse.csr_matrix(part.x), part.y) for part in dense.rows),
        Rows(sparse.csr_matrix(dense.validation.x), dense.validation.y),
        2,
    )
    # scikit-learn gives the intercept of sparse rows a step size of its own.
    for estimator in (logistic(shuffle=False, fit_intercept=False), MLPClassifier((4,))):
        trainers = [PartialFitTrainer(each, estimator, batch_size=10) for each in (dense, thin)]
        one, two = (trainer.evaluate([after(trainer)])[0].predictions for trainer in trainers)
        np.testing.assert_allclose(one, two, rtol=1e-7)
    with pytest.raises(TrainingError, match="GaussianNB.partial_fit failed.*[Ss]parse"):
        after(PartialFitTrainer(thin, GaussianNB()))


def test_row_weights_reach_the_estimator():
    sources = problem()
    silenced = [Rows(part.x, part.y, (part.y == 1).astype(float)) for part in sources.rows]
    weighted = Sources(sources.names, tuple(silenced), sources.validation, 2)
    trainer = PartialFitTrainer(weighted, logistic(), batch_size=10)
    assert trainer.evaluate([after(trainer, 400)])[0].predictions[:, 1].min() > 0.5
    check_trainer(trainer, sources=2)
    twice = [Rows(part.x, part.y, np.full(len(part), 2.0)) for part in sources.rows]
    double = PartialFitTrainer(Sources(sources.names, tuple(twice), sources.validation, 2), logistic())
    plain = PartialFitTrainer(sources, logistic())
    one, two = double.fitted(after(double)), plain.fitted(after(plain, lr_scale=2.0))
    np.testing.assert_allclose(one.coef_, two.coef_)
    # One row a batch: some batches weigh nothing at all.
    assert trainer.epochs(after(PartialFitTrainer(weighted, logistic(), batch_size=1), 40)).sum() > 0


def test_weights_for_an_estimator_that_takes_none_are_refused():
    class Plain(ClassifierMixin, BaseEstimator):
        def partial_fit(self, X, y, classes=None):
            return self

    sources = problem()
    weighted = Sources(
        sources.names, tuple(Rows(p.x, p.y, np.ones(len(p))) for p in sources.rows), sources.validation, 2
    )
    with pytest.raises(DataError, match="takes none"):
        PartialFitTrainer(weighted, Plain())


def test_values_are_cross_entropy_hinge_or_error_rate():
    for classes in (2, 3):
        sources = problem(classes)
        y, labels = sources.validation.y, np.arange(classes)
        trainer = PartialFitTrainer(sources, logistic())
        evaluation = trainer.evaluate([after(trainer)])[0]
        assert np.isclose(evaluation.value, log_loss(y, evaluation.predictions, labels=labels))
        trainer = PartialFitTrainer(sources, SGDClassifier(loss="hinge", penalty=None))
        state = after(trainer)
        evaluation, model = trainer.evaluate([state])[0], trainer.fitted(state)
        scores = model.decision_function(sources.validation.x)
        assert np.isclose(evaluation.value, hinge_loss(y, scores, labels=labels))
        assert evaluation.standard_error > 0
        predictions = evaluation.predictions
        np.testing.assert_array_equal(predictions.argmax(axis=1), model.predict(sources.validation.x))
        np.testing.assert_allclose(predictions.sum(axis=1), 1.0)


class Majority(ClassifierMixin, BaseEstimator):
    """Predicts the most frequent label; knows labels only."""

    def __init__(self, note=None):
        self.note = note

    def partial_fit(self, X, y, classes=None):
        self.classes_ = getattr(self, "classes_", classes)
        self.counts_ = getattr(self, "counts_", 0) + np.bincount(y, minlength=len(self.classes_))
        if self.note:
            self.odd_ = {1, 2}
        return self

    def predict(self, X):
        return np.full(len(X), self.counts_.argmax())


def test_an_estimator_of_ones_own_with_labels_only_has_its_error_rate():
    sources = problem()
    trainer = PartialFitTrainer(sources, Majority(), batch_size=10)
    check_trainer(trainer, sources=2, rows=60)
    label = trainer.fitted(after(trainer)).counts_.argmax()
    assert np.isclose(trainer.evaluate([after(trainer)])[0].value, np.mean(sources.validation.y != label))


def test_an_attribute_that_cannot_be_saved_is_named():
    with pytest.raises(TrainingError, match="attribute 'odd_' is a builtins.set"):
        after(PartialFitTrainer(problem(), Majority(note="x")))


def test_loading_makes_objects_of_scikit_learn_only():
    trainer = PartialFitTrainer(problem(), MLPClassifier((4,)))
    arrays = trainer.save(after(trainer))
    text = arrays["attributes"].tobytes().decode()
    for module, name in (("subprocess", "Popen"), ("sklearn.utils", "np")):
        node = json.loads(text)
        node["_optimizer"]["object"] = [module, name]
        evil = {**arrays, "attributes": np.frombuffer(json.dumps(node).encode(), dtype=np.uint8)}
        state = trainer.load(evil)
        with pytest.raises(TrainingError, match="no class of scikit-learn"):
            trainer.predict(state, trainer.rows.x)


def test_a_fresh_model_predicts_every_class_alike():
    for estimator, value in ((logistic(), np.log(2)), (SGDClassifier(), 1.0)):
        trainer = PartialFitTrainer(problem(), estimator)
        evaluation = trainer.evaluate([trainer.init(0)])[0]
        np.testing.assert_array_equal(evaluation.predictions, np.full((60, 2), 0.5))
        assert np.isclose(evaluation.value, value)
    trainer = PartialFitTrainer(problem(0), SGDRegressor())
    np.testing.assert_array_equal(trainer.predict(trainer.init(0), np.ones((3, 5))), np.zeros(3))


@pytest.mark.parametrize(
    "estimator",
    [
        SGDRegressor(learning_rate="constant", eta0=1e300),
        MLPRegressor(hidden_layer_sizes=(4,), solver="sgd", learning_rate_init=1e8),
    ],
)
def test_a_diverged_model_is_worst_and_stays_diverged(estimator):
    trainer = PartialFitTrainer(problem(0), estimator)
    state = after(trainer, 50)
    again = trainer.load(trainer.save(trainer.train([Job(state, EVEN, 2, 9)])[0]))
    for each in (state, again):
        evaluation = trainer.evaluate([each])[0]
        assert evaluation.value == np.inf
        assert np.isnan(evaluation.predictions).all()


def test_unsuitable_estimators_and_settings_are_refused():
    with pytest.raises(InputError, match="LogisticRegression has no partial_fit"):
        PartialFitTrainer(problem(), LogisticRegression())
    with pytest.raises(InputError, match="MLPClassifier has no partial_fit"):
        PartialFitTrainer(problem(), MLPClassifier(solver="lbfgs"))
    with pytest.raises(InputError, match="regression, and SGDClassifier is no regressor"):
        PartialFitTrainer(problem(0), SGDClassifier())
    with pytest.raises(InputError, match="2 classes, and SGDRegressor is no classifier"):
        PartialFitTrainer(problem(), SGDRegressor())
    with pytest.raises(InputError, match="batch size"):
        PartialFitTrainer(problem(), SGDClassifier(), batch_size=0)
    with pytest.raises(TrainingError, match="partial_fit failed.*early_stopping"):
        after(PartialFitTrainer(problem(), SGDClassifier(early_stopping=True)))
    with pytest.raises(InputError, match="cannot be fitted"):
        PartialFitTrainer(problem(), make_pipeline(PCA(50), SGDClassifier()))


def test_target_rows_are_one_more_source():
    trainer = PartialFitTrainer(problem(), logistic(), batch_size=10)
    state = trainer.train([Job(trainer.init(0), np.array([0.0, 0.0, 1.0]), 12, 1)])[0]
    np.testing.assert_allclose(trainer.epochs(state), [0, 0, 2])


def test_describe_is_plain_data_that_tells_settings_apart():
    pipeline = make_pipeline(StandardScaler(with_mean=False), "passthrough", MLPClassifier((4, 4)))
    descriptions = [
        PartialFitTrainer(problem(), estimator).describe()
        for estimator in (pipeline, logistic(), logistic(random_state=3), SGDClassifier())
    ]
    texts = [json.dumps(each) for each in descriptions]
    assert texts[1] == texts[2]
    assert len(set(texts)) == 3
    assert descriptions[0]["transformers"][0]["parameters"]["with_mean"] is False


def test_a_study_finds_a_better_model_than_it_starts_from():
    sources = problem()
    trainer = PartialFitTrainer(sources, logistic(), batch_size=20)
    bisect = PARTITIONS["bisect"]
    result = run(TreeSearch(bisect.root(2), bisect.split, budget=100, steps=10), trainer)
    assert result.value < np.log(2) - 0.05
