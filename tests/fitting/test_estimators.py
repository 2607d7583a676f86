import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import check_estimator
from typer.testing import CliRunner

from mixtree.cli import app
from mixtree.data.synthetic import synthetic
from mixtree.errors import DataError, InputError
from mixtree.fitting.estimators import MixtureClassifier, MixtureRegressor, SourceRowsWarning
from mixtree.fitting.model_folder import load_model
from mixtree.metrics import AbsentClassWarning


@pytest.fixture(scope="module")
def problem():
    return synthetic(rows=300, validation=150, test=1000, alpha=[0.8, 0.1, 0.1], seed=3)


def flat(problem):
    rows = problem.sources.rows
    x, y = np.concatenate([part.x for part in rows]), np.concatenate([part.y for part in rows])
    return x, y, np.repeat(problem.sources.names, problem.sources.sizes)


def fitted(problem, **options):
    x, y, source = flat(problem)
    validation = problem.sources.validation
    model = MixtureClassifier("linear", budget=300, steps=10, **options)
    return model.fit(x, y, source=source, X_val=validation.x, y_val=validation.y)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [MixtureClassifier, MixtureRegressor])
def test_scikit_learns_own_checks(kind):
    # Which rows validate, and which a batch has, is drawn by row: two rows are not one of twice the weight.
    drawn = dict.fromkeys(
        [f"check_sample_weight_equivalence_on_{rows}_data" for rows in ("dense", "sparse")], "rows are drawn"
    )
    results = check_estimator(kind(budget=600), expected_failed_checks=drawn, on_fail=None, on_skip=None)
    failed = {each["check_name"]: str(each["exception"]) for each in results if each["status"] == "failed"}
    assert failed == {}
    assert len(results) > 40


def test_it_finds_the_mixture_and_says_what_it_did(problem):
    model = fitted(problem)
    assert set(model.mixture_) == set(problem.sources.names)
    assert sum(model.mixture_.values()) == pytest.approx(1)
    assert sum(model.spent_.values()) == model.history_[-1]["spent"] <= 300
    assert 0.5 < model.best_score_ <= 1
    verdict = model.verdict_
    assert (verdict.score.rows, verdict.score.optimistic) == (50, False)  # of 150, a third is held out
    assert [name.removesuffix("+decay") for name, _ in verdict.differences] == ["uniform"]
    assert model.predict_proba(problem.test.x).shape == (1000, 2)
    assert model.score(problem.test.x, problem.test.y) > 0.6


def test_baselines_are_trained_on_request(problem):
    model = fitted(problem, baselines=("uniform", "importance"))
    assert set(model.baselines_) == {"uniform", "importance"}
    assert all(0 < score <= 1 for score in model.baselines_.values())


def test_a_dictionary_of_sources_is_the_same(problem):
    x = {
        name: (rows.x, rows.y) for name, rows in zip(problem.sources.names, problem.sources.rows, strict=True)
    }
    validation = problem.sources.validation
    model = MixtureClassifier("linear", budget=300, steps=10).fit(x, X_val=validation.x, y_val=validation.y)
    assert model.mixture_ == fitted(problem).mixture_
    with pytest.raises(InputError, match="not both"):
        model.fit(x, validation.y)


def test_labels_of_any_kind(problem):
    x, y, source = flat(problem)
    validation = problem.sources.validation
    words = np.array(["no", "yes"])
    model = MixtureClassifier("linear", budget=60)
    model.fit(x, words[y], source=source, X_val=validation.x, y_val=words[validation.y])
    assert set(model.predict(problem.test.x)) <= {"no", "yes"}
    with pytest.raises(DataError, match="'maybe'"):
        model.fit(x, words[y], source=source, X_val=validation.x[:1], y_val=["maybe"])


def test_pandas_polars_numpy_and_sparse_agree(problem):
    x, y, source = flat(problem)
    names = [f"c{i}" for i in range(x.shape[1])]
    forms = [x, pd.DataFrame(x, columns=names), pl.DataFrame(x, schema=names)]
    scores = []
    for form in forms:
        model = MixtureClassifier("linear", budget=60).fit(form, y, source=source)
        scores.append(model.predict_proba(form))
    assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(scores[0], scores[2])
    thin = MixtureClassifier("linear", budget=60).fit(sparse.csr_array(x), y, source=source)
    assert thin.predict_proba(sparse.csr_array(x)).shape == (len(x), 2)


@pytest.mark.parametrize("estimator", ["linear", "xgboost", "lightgbm"])
def test_rows_are_predicted_alike_in_any_form(problem, estimator):
    x, y, source = flat(problem)
    x = np.where(np.abs(x) < 1.0, 0.0, x)
    options = {"budget": 40, "reference": "none", "random_state": 0}
    for fitted, other in ((sparse.csr_array(x), x), (x, sparse.csr_array(x))):
        model = MixtureClassifier(estimator, **options).fit(fitted, y, source=source)
        np.testing.assert_allclose(model.predict_proba(other), model.predict_proba(fitted), rtol=1e-5)


def test_sparse_rows_stay_sparse_when_predicting(monkeypatch):
    rng = np.random.default_rng(0)
    x = sparse.random_array((300, 2_000), density=0.005, format="csr", rng=rng)
    model = MixtureClassifier("linear", budget=60, reference="none").fit(x, rng.integers(0, 2, 300))
    expected = model.predict_proba(x[:5].toarray())
    with monkeypatch.context() as patch:
        for kind in (sparse.csr_array, sparse.csr_matrix):
            patch.setattr(kind, "toarray", None)
        found = pickle.loads(pickle.dumps(model)).predict_proba(x)
    np.testing.assert_array_equal(found[:5], expected)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_tables_with_text_columns_are_encoded(frame):
    random = np.random.default_rng(0)
    colour = random.choice(["red", "green", "blue"], 400)
    table = frame({"colour": colour, "size": random.normal(size=400)})
    y = (colour == "red").astype(int)
    model = MixtureClassifier("linear", budget=300).fit(table, y, source=random.choice(["a", "b"], 400))
    assert model.score(table, y) > 0.95


@pytest.mark.parametrize("estimator", ["lightgbm", "xgboost"])
def test_boosted_trees_are_pickled(problem, estimator):
    x, y, source = flat(problem)
    model = MixtureClassifier(estimator, budget=40, reference="none").fit(x, y, source=source)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(problem.test.x), model.predict_proba(problem.test.x))


def test_pickle_clone_and_no_training_rows_inside(problem):
    model = fitted(problem)
    data = pickle.dumps(model)
    again = pickle.loads(data)
    assert np.array_equal(again.predict_proba(problem.test.x), model.predict_proba(problem.test.x))
    with pytest.raises(NotFittedError):
        clone(model).predict(problem.test.x)
    large = synthetic(rows=20_000, validation=150, test=10, seed=3)
    assert len(pickle.dumps(fitted(large))) < 2 * len(data)


def test_a_time_limit_ends_the_study(problem):
    model = fitted(problem, time_limit=1e-6, baselines=("uniform",))
    assert sum(model.spent_.values()) < 300
    assert "time limit" in model.reason_
    assert any("time limit" in each for each in (str(model.verdict_), *model.verdict_.warnings))
    assert np.isnan(model.baselines_["uniform"])
    whole = fitted(problem, time_limit=1e6, baselines=("uniform",))
    assert sum(whole.spent_.values()) == sum(fitted(problem).spent_.values())
    assert np.isfinite(whole.baselines_["uniform"])
    for wrong in (-1.0, 0, float("nan"), "5", [1]):
        with pytest.raises(InputError, match="time limit"):
            fitted(problem, time_limit=wrong)


def test_pipeline_and_grid_search(problem):
    x, y, source = flat(problem)
    pipeline = make_pipeline(MinMaxScaler(), MixtureClassifier("linear", budget=60))
    pipeline.fit(x, y, mixtureclassifier__source=source)
    assert pipeline.predict(x).shape == y.shape
    grid = GridSearchCV(MixtureClassifier("linear", budget=60), {"lr": [0.01, 0.1]}, cv=2)
    with pytest.warns(SourceRowsWarning):
        grid.fit(x, y, source=source)
    assert grid.best_params_["lr"] in (0.01, 0.1)
    assert grid.score(problem.test.x, problem.test.y) > 0.5  # the target's own rows: no warning


@pytest.mark.parametrize("scoring", [None, "roc_auc"])
@pytest.mark.parametrize("piped", [False, True])
def test_a_cross_validation_says_that_it_scores_rows_of_the_sources(problem, scoring, piped):
    x, y, source = flat(problem)
    model = MixtureClassifier("linear", budget=60, reference="none")
    rows = problem.sources.validation
    given = {"source": source, "X_val": rows.x, "y_val": rows.y}
    if piped:
        model = make_pipeline(MinMaxScaler(), model)
        given = {f"mixtureclassifier__{name}": each for name, each in given.items()}
    with pytest.warns(SourceRowsWarning, match="rows of the sources, not of the target.*Split the target's"):
        cross_val_score(model, x, y, cv=2, scoring=scoring, params=given)


def test_a_cross_validation_of_one_source_or_of_the_targets_rows_is_fine(problem):
    x, y, source = flat(problem)
    model = MixtureClassifier("linear", budget=60, reference="none")
    assert len(cross_val_score(model, x, y, cv=2)) == 2  # rows of one kind only

    class OnTarget(ClassifierMixin, BaseEstimator):
        """The sources stay, the target's rows are split."""

        def fit(self, target, labels):
            self.model_ = clone(model).fit(x, y, source=source, X_val=target, y_val=labels)
            self.classes_ = self.model_.classes_
            return self

        def predict(self, target):
            return self.model_.predict(target)

    rows = problem.sources.validation
    assert cross_val_score(OnTarget(), rows.x, rows.y, cv=2).min() > 0.5


def test_other_models_behind_the_same_door(problem):
    x, y, source = flat(problem)
    model = MixtureClassifier(GaussianNB(), budget=60).fit(x, y, source=source)
    assert model.score(x, y) > 0.5


def test_one_class_is_answered_in_words():
    model = MixtureClassifier("linear").fit(np.zeros((4, 1)), ["a"] * 4)
    assert "one class only" in model.verdict_.sentence


def test_regression_in_the_units_of_y():
    problem = synthetic(classes=0, rows=400, validation=100, test=500, seed=1)
    x, y, source = flat(problem)
    model = MixtureRegressor("linear", budget=600).fit(x, 1000 + 50 * y, source=source)
    assert model.score(problem.test.x, 1000 + 50 * problem.test.y) > 0.1
    assert model.metric_ == "rmse"
    score, inside = model.verdict_.score, 1000 + 50 * problem.test.y
    error = np.sqrt(np.mean((model.predict(problem.test.x) - inside) ** 2))
    assert score.low < error < score.high  # in the units of y too


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": ["a"]}, "one source per row"),
        ({"X_val": np.zeros((2, 10))}, "y_val"),
    ],
)
def test_wrong_input_is_explained(problem, options, message):
    x, y, _ = flat(problem)
    with pytest.raises(DataError, match=message):
        MixtureClassifier("linear", budget=60).fit(x, y, **options)


def test_the_same_random_state_gives_the_same_model(problem):
    one, two = fitted(problem, random_state=5), fitted(problem, random_state=5)
    assert np.array_equal(one.predict_proba(problem.test.x), two.predict_proba(problem.test.x))


def test_scores_are_in_the_label_s_own_units():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = 1000 + 50 * (x[:, 0] + 0.1 * rng.normal(size=300))
    model = MixtureRegressor("linear", budget=200, baselines=("uniform",), reference="none").fit(
        x[:200], y[:200], source=np.arange(200) % 2, X_val=x[200:], y_val=y[200:]
    )
    error = float(np.sqrt(np.mean((model.predict(x[200:]) - y[200:]) ** 2)))
    assert 1.0 < error < 50.0
    assert model.best_score_ == pytest.approx(error, rel=0.5)  # some of those rows are held out
    assert 1.0 < model.baselines_["uniform"] < 50.0


def holed(*, rows=200):
    """A frame with missing numbers, its labels and its sources."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(rows, 3)), columns=["a", "b", "c"])
    y = (frame.a > 0).astype(int).to_numpy()
    return frame.mask(rng.random(frame.shape) < 0.1), y, np.where(np.arange(rows) % 2, "x", "y")


def quick(**options):
    return MixtureClassifier("linear", budget=60, reference="none", **options)


def test_missing_values_of_an_array_are_imputed_like_those_of_a_frame():
    frame, y, source = holed()
    table = quick().fit(frame, y, source=source, X_val=frame[:50], y_val=y[:50])
    X = frame.to_numpy()
    array = quick().fit(X, y, source=source, X_val=X[:50], y_val=y[:50])
    np.testing.assert_array_equal(array.predict_proba(X), table.predict_proba(frame))
    assert not hasattr(array, "feature_names_in_")
    with pytest.raises(ValueError, match="infinity"):
        array.predict(np.full((1, 3), np.inf))


@pytest.mark.parametrize("form", [pd.DataFrame, np.asarray])
def test_new_rows_may_lack_values_that_training_rows_have(form):
    frame, y, source = holed()
    full = frame.fillna(0.0)
    model = quick().fit(form(full), y, source=source, X_val=form(frame[:50]), y_val=y[:50])
    middle = frame[:5].fillna(full.median())
    np.testing.assert_allclose(model.predict_proba(form(frame[:5])), model.predict_proba(form(middle)))


def test_arrays_of_objects_with_text_are_tables():
    frame, y, source = holed()
    frame["b"] = np.where(y, "up", "down")
    X = frame.to_numpy()
    model = quick().fit(X, y, source=source, X_val=X[:50], y_val=y[:50])
    table = quick().fit(frame, y, source=source, X_val=frame[:50], y_val=y[:50])
    np.testing.assert_array_equal(model.predict_proba(X), table.predict_proba(frame))
    assert model.n_features_in_ == 3
    with pytest.raises(DataError, match="X has 2 columns, but fit had 3"):
        model.predict(X[:, :2])


def test_an_array_of_text_says_what_to_give_instead():
    with pytest.raises(DataError, match="X is an array of text.*DataFrame"):
        quick().fit([[1, "a"], [2, "b"]], [0, 1])


def test_the_order_of_the_rows_does_not_order_the_sources():
    frame, y, source = holed()
    order = np.argsort(source, kind="stable")
    one = quick().fit(frame, y, source=source, X_val=frame[:50], y_val=y[:50])
    two = quick().fit(frame.iloc[order], y[order], source=source[order], X_val=frame[:50], y_val=y[:50])
    assert list(one.mixture_) == list(two.mixture_) == ["x", "y"]
    assert one.mixture_ == two.mixture_


def test_the_order_of_a_dictionary_s_sources_changes_nothing(problem):
    rows, validation = problem.sources.rows, problem.sources.validation
    parts = {name: (part.x, part.y) for name, part in zip("cab", rows, strict=True)}
    one, two = (
        quick(policy="auto").fit(
            {name: parts[name] for name in order}, X_val=validation.x, y_val=validation.y
        )
        for order in ("cab", "bca")
    )
    assert list(one.mixture_) == list(two.mixture_) == ["a", "b", "c"]
    assert one.mixture_ == two.mixture_ and one.verdict_ == two.verdict_
    np.testing.assert_array_equal(one.predict_proba(validation.x), two.predict_proba(validation.x))


def test_absent_classes_are_warned_of_once_and_by_name():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.array(["No", "no", "yes"])[np.arange(300) % 3]
    seen = y != "No"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quick().fit(X, y, source=np.arange(300) % 2, X_val=X[seen], y_val=y[seen])
    told = [str(each.message) for each in caught if issubclass(each.category, AbsentClassWarning)]
    assert len(told) == 1
    assert "classes 'No' have no rows" in told[0]


def test_row_numbers_alone_are_refused():
    y = np.arange(60) % 2
    for rows in (np.arange(60)[:, None], pd.DataFrame({"id": np.arange(60)})):
        with pytest.raises(DataError, match="is the only feature and numbers the rows one by one"):
            MixtureClassifier(budget=10).fit(rows, y)


def test_a_frame_of_numbers_with_missing_values_is_imputed_and_missing_labels_are_refused():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["a", "b", "c"])
    y = (frame.a > 0).astype(int)
    holes = frame.mask(rng.random(frame.shape) < 0.1)
    source = pd.Series(np.where(np.arange(200) % 2, "x", "y"))
    options = {"budget": 100, "reference": "none"}
    model = MixtureClassifier("linear", **options).fit(
        holes, y, source=source, X_val=holes[:50], y_val=y[:50]
    )
    assert model.score(frame, y) > 0.7
    assert len(model.predict(holes)) == 200
    new = MixtureClassifier("linear", **options)
    with pytest.raises(DataError, match="source is missing in 5 of 200 rows"):
        new.fit(frame, y, source=source.mask(source.index < 5))
    with pytest.raises(DataError, match="source is missing in 1 of 200 rows"):
        new.fit(frame, y, source=["x"] * 199 + [float("nan")])
    with pytest.raises(DataError, match="y_val is missing in 2 of 50 rows"):
        new.fit(frame, y, source=source, X_val=frame[:50], y_val=y[:50].astype(object).mask(y[:50].index < 2))
    with pytest.raises(DataError, match="y is missing in 3 of 200 rows"):
        new.fit(holes, y.astype(float).mask(y.index < 3), source=source)


def test_what_fit_knows_the_estimator_knows(tmp_path):
    problem = synthetic(rows=100, validation=60, test=1, seed=1).sources
    given = {name: (rows.x, rows.y) for name, rows in zip(problem.names, problem.rows, strict=True)}
    target = {
        "X_val": problem.validation.x,
        "y_val": problem.validation.y[:, None],
    }  # as one column of a table
    options = {"estimator": "linear", "budget": 60, "reference": "none"}
    stored = {"storage": tmp_path / "s.db", "resume": True}
    first = MixtureClassifier(**options, **stored).fit(given, **target)
    again = MixtureClassifier(**options, **stored).fit(given, **target)
    assert again.best_score_ == first.best_score_
    never = MixtureClassifier(**options, use_target_rows="never").fit(given, **target)
    assert not any(phase.startswith("target") for phase in never.spent_)
    heavy = MixtureClassifier(**options, class_weight={1: 5.0}).fit(given, **target)
    assert heavy.best_score_ != first.best_score_
    for more, words in (
        ({"class_weight": {"no": 1.0}}, "'no' is no class; they are 0, 1"),
        ({"baselines": "uniform"}, "a tuple of names"),
        ({"baselines": ("unheard",)}, "unheard"),
        ({"use_target_rows": True}, "use_target_rows is one of"),
    ):
        with pytest.raises(InputError, match=words):
            MixtureClassifier(**options, **more).fit(given, **target)
    with pytest.raises(DataError, match="y_val needs its features"):
        MixtureClassifier(**options).fit(given, y_val=target["y_val"])


def test_frames_of_sources_are_matched_by_name():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "b": rng.normal(size=80), "c": ["u", "v"] * 40})
    y = (frame["a"] > 0).astype(int)
    options = {"estimator": "linear", "budget": 60, "reference": "none"}
    model = MixtureClassifier(**options).fit({"one": (frame, y), "two": (frame[["c", "b", "a"]], y)})
    assert model.score(frame, y) > 0.8
    with pytest.raises(DataError, match=r"a source and the first one have different columns \('b'\)"):
        MixtureClassifier(**options).fit({"one": (frame, y), "two": (frame[["c", "a"]], y)})


def test_a_pipelines_transformers_are_those_of_the_training_rows():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3))
    y = (x[:, 0] > 0).astype(int)
    model = MixtureClassifier(
        make_pipeline(MinMaxScaler((50, 90)), GaussianNB()), budget=60, reference="none", policy="uniform"
    ).fit(x, y, source=np.repeat(["a", "b"], 200), X_val=x[:100], y_val=y[:100])
    assert model.score(x, y) > 0.9


def test_validation_rows_that_are_source_rows_are_told_of():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(200, 5)), rng.integers(0, 2, 200)
    fitted = MixtureClassifier("linear", budget=20).fit(x, y, X_val=x[:150], y_val=y[:150])
    told = "150 of 150 validation rows also stand in source 'all' (the same features)"
    assert any(each.startswith(told) for each in fitted.verdict_.warnings)


@pytest.mark.parametrize(
    ("kind", "x", "y", "message"),
    [
        (MixtureRegressor, [[0.0], [1.0]] * 20, ["yes", "no"] * 20, "labels of a regression are numbers"),
        (MixtureClassifier, [[0.0], [1.0, 2.0]] * 20, [0, 1] * 20, "X must be a table"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_in_words(kind, x, y, message):
    with pytest.raises(DataError, match=message):
        kind(estimator="linear", budget=4).fit(x, y)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({}, "there are no sources"),
        ({"a": 3}, "source 'a': give .X, y."),
        ({"a": (np.ones((4, 1)), None)}, "source 'a': give .X, y."),
        ({"a": (iter([1.0]), [1])}, "X of source 'a': a list_iterator can be read only once"),
    ],
)
def test_sources_that_are_none_are_refused(parts, message):
    with pytest.raises(DataError, match=message):
        MixtureClassifier("linear", budget=40).fit(parts)


def test_sources_may_be_numbered_in_any_way():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = (x[:, 0] > 0).astype(int)
    source = [2**64 - 1 if each > 0 else -1 for each in x[:, 1]]
    model = MixtureClassifier("linear", budget=40, reference="none")
    assert set(model.fit(x, y, source=source, X_val=x, y_val=y).mixture_) == {"-1", str(2**64 - 1)}


def shop(rows=240, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "state": rng.choice(["fl", "ct", "target"], rows),
            "age": rng.normal(size=rows),
            "plan": rng.choice(["basic", "<b>full</b>"], rows),
        }
    )
    bought = frame.age + (frame.plan == "basic") + 0.3 * rng.normal(size=rows) > 0.5
    return frame, pd.Series(np.where(bought, "yes", "no"), name="bought")


def test_sources_are_named_by_a_column_and_the_target_s_rows_among_them():
    frame, y = shop()
    model = MixtureClassifier("linear", budget=60, reference="none", holdout=0.0)
    one = clone(model).fit(frame, y, source="state")
    assert set(one.mixture_) == {"fl", "ct"}
    assert list(one.feature_names_in_) == ["age", "plan"]
    assert not any("stand in" in each for each in one.verdict_.warnings)
    own = (frame.state == "target").to_numpy()
    rest = frame.drop(columns="state")
    other = clone(model).fit(rest[~own], y[~own], source=frame.state[~own], X_val=rest[own], y_val=y[own])
    for rows in (frame, rest):  # what is predicted may still have the column
        assert np.array_equal(one.predict_proba(rows), other.predict_proba(rest))
    with pytest.raises(DataError, match="'region' is to be a column of X, which has state, age, plan"):
        clone(model).fit(frame, y, source="region")
    with pytest.raises(InputError, match="given twice"):
        clone(model).fit(frame, y, source="state", X_val=rest, y_val=y)
    with pytest.raises(DataError, match="at least one other source"):
        clone(model).fit(frame[own], y[own], source="state")


def test_weights_of_rows(problem):
    x, y, source = flat(problem)
    rows = problem.sources.validation
    given = {"X_val": rows.x, "y_val": rows.y}
    model = MixtureClassifier("linear", budget=60, reference="none")
    plain = clone(model).fit(x, y, source=source, **given)
    alike = clone(model).fit(x, y, source=source, sample_weight=np.full(len(y), 3.0), **given)
    assert np.allclose(alike.predict_proba(rows.x), plain.predict_proba(rows.x), atol=1e-6)
    kept = np.arange(len(y)) % 3 > 0
    some = clone(model).fit(x, y, source=source, sample_weight=kept.astype(float), **given)
    without = clone(model).fit(x[kept], y[kept], source=source[kept], **given)
    assert np.allclose(some.predict_proba(rows.x), without.predict_proba(rows.x), atol=1e-6)
    heavy = clone(model).fit(x, y, source=source, sample_weight=np.where(y == 1, 20.0, 1.0), **given)
    assert heavy.predict_proba(rows.x)[:, 1].mean() > plain.predict_proba(rows.x)[:, 1].mean() + 0.1
    for wrong, message in (
        (0.0 * y, "is zero"),
        (0.5 - y, "at least 0"),
        (y[:5], "one number per row"),
    ):
        with pytest.raises(DataError, match=message):
            clone(model).fit(x, y, source=source, sample_weight=wrong, **given)


@pytest.mark.parametrize("estimator", ["auto", "linear"])
def test_a_saved_estimator_predicts_on_the_command_line(tmp_path, estimator):
    frame, y = shop()
    options = {"effort": "quick"} if estimator == "auto" else {"budget": 60}
    model = MixtureClassifier(estimator, reference="none", **options).fit(frame, y, source="state")
    model.save(tmp_path / "model")
    new, _ = shop(50, seed=1)
    loaded = load_model(tmp_path / "model")
    assert loaded.about["label"] == "bought"
    assert np.allclose(loaded.scores(new), model.predict_proba(new), atol=1e-6)
    assert list(loaded.predict(new)) == list(model.predict(new))
    new.to_csv(tmp_path / "new.csv", index=False)
    run = CliRunner().invoke
    found = run(
        app, ["predict", str(tmp_path / "model"), str(tmp_path / "new.csv"), "-o", str(tmp_path / "p.csv")]
    )
    assert found.exit_code == 0, found.output
    assert pd.read_csv(tmp_path / "p.csv").prediction.tolist() == list(model.predict(new))
    shown = run(app, ["show", str(tmp_path / "model")])
    assert shown.exit_code == 0, shown.output
    assert "saved from Python" in shown.output
    assert ("rows read" in shown.output) == (estimator == "auto")
    model.save(tmp_path / "model")  # in place of its own


def test_what_no_folder_can_hold_says_so(problem, tmp_path):
    x, y, source = flat(problem)
    own = MixtureClassifier(GaussianNB(), budget=60, reference="none").fit(x, y, source=source)
    with pytest.raises(InputError, match="no safe format for GaussianNB; it stays in memory"):
        own.save(tmp_path / "model")
    thin = MixtureClassifier("linear", budget=60, reference="none").fit(sparse.csr_array(x), y, source=source)
    with pytest.raises(InputError, match="sparse rows have no columns"):
        thin.save(tmp_path / "model")
    with pytest.raises(InputError, match="one class only"):
        MixtureClassifier("linear").fit(np.zeros((4, 1)), ["a"] * 4).save(tmp_path / "model")
    with pytest.raises(NotFittedError):
        MixtureClassifier().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_text_and_html_show_what_was_found():
    frame, y = shop()
    frame.state = frame.state.replace("fl", "<script>fl")
    model = MixtureClassifier(effort="quick", reference="none")
    assert repr(model) == "MixtureClassifier(effort='quick', reference='none')"
    assert "<dl" not in model._repr_html_()
    model.fit(frame, y, source="state")
    for words in ("verdict:", "mixture:", "members", "lightgbm-source", "<script>fl"):
        assert words in repr(model)
    page = model._repr_html_()
    found = page[page.index("<dl") :]
    for words in ("Expect auroc", "lightgbm-source", "&lt;script&gt;fl"):
        assert words in found
    assert "<script>fl" not in page


def test_folds_of_the_target_s_rows_need_no_warning():
    frame, y = shop()
    own = np.flatnonzero(frame.state == "target")
    everything = np.arange(len(frame))
    folds = [(np.setdiff1d(everything, own[held]), own[held]) for _, held in KFold(3).split(own)]
    model = MixtureClassifier("linear", budget=60, reference="none")
    scores = cross_val_score(model, frame, y, cv=folds, params={"source": "state"})
    assert len(scores) == 3 and min(scores) > 0.5
