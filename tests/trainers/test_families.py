import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

from mixtree.data.typed import Layout
from mixtree.trainers.families import (
    FAMILIES,
    CatBoost,
    Constant,
    ExtraTrees,
    LightGBM,
    Linear,
    Partial,
    Table,
    Task,
    family_name,
    fit_family,
    has_catboost,
    read_family,
)
from mixtree.trainers.forest import Forest

LAYOUT = Layout(("a", "b", "shop", "kind"), (-1, 2), ((3, 23), (23, 26)))
KINDS = [LightGBM, ExtraTrees, Linear, *([CatBoost] if has_catboost() else [])]


def rows(count=240, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((count, 26), dtype=np.float32)
    x[:, :2] = rng.normal(size=(count, 2))
    x[:, 2] = rng.random(count) < 0.1
    x[np.arange(count), 3 + rng.integers(0, 20, count)] = 1
    x[np.arange(count), 23 + rng.integers(0, 3, count)] = 1
    score = x[:, 0] + x[:, 23] + 0.3 * rng.normal(size=count)
    return x, score


@pytest.mark.parametrize("classes", [0, 2, 3])
@pytest.mark.parametrize("family", KINDS)
def test_a_family_learns_and_is_read_back_bit_for_bit(family, classes):
    x, score = rows()
    y = (
        score
        if not classes
        else np.digitize(score, np.quantile(score, [0.5] if classes == 2 else [0.3, 0.7]))
    )
    table = Table.of(x, LAYOUT).with_source(np.zeros(len(x), dtype=int), 2)
    task = Task(classes, "absolute" if family is LightGBM else "squared", trees=30)
    fitted = fit_family(family, table, y, np.ones(len(y)), task)
    found = fitted.predict(table)
    if classes:
        assert found.shape == (len(y), classes)
        assert np.allclose(found.sum(axis=1), 1.0)
        assert (found.argmax(axis=1) == y).mean() > 0.7
    else:
        assert np.corrcoef(found, y)[0, 1] > 0.8
    arrays = {name: np.array(array) for name, array in fitted.arrays().items()}
    again = read_family(family_name(fitted), arrays, table.take(np.arange(1)), task)
    assert np.array_equal(again.predict(table), found)


@pytest.mark.parametrize("family", KINDS)
def test_rows_that_lack_a_class_give_it_no_chance(family):
    x, score = rows()
    table, y = Table.of(x, LAYOUT), (score > 0).astype(int) * 2
    fitted = fit_family(family, table, y, np.ones(len(y)), Task(3, trees=10))
    assert isinstance(fitted, Partial)
    assert (fitted.predict(table)[:, 1] == 0).all()
    again = read_family(family_name(fitted), fitted.arrays(), table.take(np.arange(1)), Task(3))
    assert np.array_equal(again.predict(table), fitted.predict(table))
    one = fit_family(family, table, np.zeros(len(y), dtype=int), np.ones(len(y)), Task(3, trees=10))
    assert isinstance(one, Constant)
    assert (one.predict(table) == [1, 0, 0]).all()


def test_rows_of_no_weight_are_not_read():
    x, score = rows()
    y, table = (score > 0).astype(int), Table.of(x, LAYOUT)
    weight = (np.arange(len(y)) < 200).astype(float)
    first = fit_family(LightGBM, table, y, weight, Task(2, trees=10))
    other = np.where(weight > 0, y, 1 - y)
    second = fit_family(LightGBM, table, other, weight, Task(2, trees=10))
    assert np.array_equal(first.predict(table), second.predict(table))


@pytest.mark.parametrize("kind", [ExtraTreesClassifier, ExtraTreesRegressor])
def test_a_forest_predicts_as_scikit_learns_does(kind):
    x, score = rows()
    y = (score > 0).astype(int) if kind is ExtraTreesClassifier else score
    fitted = kind(n_estimators=5, random_state=0).fit(x, y)
    own = fitted.predict_proba(x) if kind is ExtraTreesClassifier else fitted.predict(x)[:, None]
    forest = Forest.of(fitted)
    assert np.allclose(forest.predict(x), own, atol=1e-6)
    damaged = dict(forest.arrays())
    damaged["left"] = np.where(damaged["left"] > 0, 10**6, damaged["left"])
    with pytest.raises(ValueError, match="outside"):
        Forest.from_arrays(damaged)


def test_every_family_is_known_by_its_name():
    assert set(FAMILIES) == {"lightgbm", "catboost", "extra-trees", "linear", "mlp", "constant"}
