import numpy as np
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from mixtree import fit
from mixtree.data.sources import Sources
from mixtree.errors import InputError, TrainingError
from mixtree.trainer import Job
from mixtree.trainers.estimator import EstimatorTrainer


def part(count, seed, *, numbers=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4))
    y = x[:, 0] + 0.5 * rng.normal(size=count)
    return x, y if numbers else (y > 0).astype(int)


SOURCES, VAL = {"a": part(200, 0), "b": part(100, 1)}, part(60, 2)


def test_pooled_predicts_what_the_library_does():
    model = LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1)
    result = fit(SOURCES, VAL, model=model, policy="pooled", reference="none")
    x, y = (np.concatenate([SOURCES[name][place] for name in "ab"]) for place in (0, 1))
    own = LGBMClassifier(n_estimators=20, verbose=-1, n_jobs=1).fit(x, y)
    assert np.array_equal(result.predict(VAL[0]), own.predict_proba(VAL[0]))


def test_rows_are_weighted_by_the_mixture():
    sources = {"a": part(200, 0, numbers=True), "b": part(100, 1, numbers=True)}
    result = fit(sources, part(60, 2, numbers=True), model=Ridge(), policy="uniform", reference="none")
    x, y = (np.concatenate([sources[name][place] for name in "ab"]) for place in (0, 1))
    scaled = (y - y.mean()) / y.std()
    own = Ridge().fit(x, scaled, sample_weight=np.repeat([0.75, 1.5], [200, 100]))
    assert np.allclose(result.predict(VAL[0]), own.predict(VAL[0]) * y.std() + y.mean())


@pytest.mark.parametrize(
    "model",
    [
        RandomForestClassifier(5),
        LogisticRegression(),
        SVC(),
        HistGradientBoostingClassifier(max_iter=5),
        KNeighborsClassifier(),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
)
def test_any_estimator_is_trained(model):
    result = fit(SOURCES, VAL, model=model, policy="uniform", reference="none")
    found = result.predict(VAL[0])
    assert found.shape == (60, 2)
    assert (found.argmax(axis=1) == VAL[1]).mean() > 0.7


def test_a_state_is_what_its_lineage_has_read():
    data = Sources.from_dict(SOURCES, VAL, classes=2)
    trainer = EstimatorTrainer(data, LogisticRegression())
    one = trainer.train([Job(trainer.init(0), np.array([1.0, 0.0]), 30, seed=1)])[0]
    two = trainer.train([Job(one, np.array([0.0, 1.0]), 30, seed=2)])[0]
    half = trainer.train([Job(trainer.init(0), np.array([0.5, 0.5]), 60, seed=3)])[0]
    assert np.allclose(trainer.predict(two, VAL[0]), trainer.predict(half, VAL[0]))
    again = trainer.load(trainer.save(two))
    assert np.array_equal(trainer.predict(again, VAL[0]), trainer.predict(two, VAL[0]))
    with pytest.raises(InputError, match="training rows are gone"):
        trainer.without_rows().load(trainer.save(two))


def test_the_number_of_trees_is_found_unless_it_is_given():
    found = fit(SOURCES, VAL, model=LGBMClassifier(verbose=-1, n_jobs=1), policy="pooled", reference="none")
    assert found.state.fitted.n_estimators in (50, 100, 200, 400)
    given = fit(
        {name: (x, x[:, 0]) for name, (x, _) in SOURCES.items()},
        (VAL[0], VAL[0][:, 0]),
        model=LGBMRegressor(n_estimators=7, verbose=-1),
        policy="pooled",
        reference="none",
    )
    assert given.state.fitted.n_estimators == 7


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(InputError, match="Ridge is no classifier"):
        fit(SOURCES, VAL, model=Ridge(), policy="pooled")
    with pytest.raises(TrainingError, match="fit failed"):
        fit(SOURCES, VAL, model=LogisticRegression(C=-1.0), policy="pooled")
