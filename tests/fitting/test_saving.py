"""Models of ``mixtree.fit`` as folders."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.naive_bayes import GaussianNB

import mixtree
from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError
from mixtree.policies.fixed import uniform
from mixtree.trainers.reference import ReferenceTrainer

QUICK = {"model": "linear", "budget": 60, "steps": 20, "reference": "none"}


def parts(problem):
    rows = zip(problem.sources.names, problem.sources.rows, strict=True)
    return {name: (part.x, part.y) for name, part in rows}, problem.sources.validation


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_a_fit_of_arrays_is_saved(tmp_path, classes):
    sources, validation = parts(synthetic(classes=classes, rows=200, seed=1))
    if not classes:
        sources = {name: (x, 1000 + 50 * y) for name, (x, y) in sources.items()}
        validation = mixtree.Rows(validation.x, 1000 + 50 * validation.y)
    result = mixtree.fit(sources, validation, **QUICK)
    result.save(tmp_path / "model")
    model = mixtree.load_model(tmp_path / "model")
    assert model.classes == (list(range(classes)) or None)
    assert model.about["mixture"] == result.weights
    names = [f"x{place}" for place in range(validation.x.shape[1])]
    table = pd.DataFrame(validation.x, columns=names)
    np.testing.assert_allclose(model.scores(table), result.predict(validation.x), rtol=1e-5)


def test_frames_of_features_keep_their_names(tmp_path):
    sources, validation = parts(synthetic(rows=200, seed=1))
    names = [f"column {place}" for place in range(validation.x.shape[1])]
    frames = {name: (pd.DataFrame(x, columns=names), y) for name, (x, y) in sources.items()}
    table = pd.DataFrame(validation.x, columns=names)
    result = mixtree.fit(frames, (table, validation.y), **QUICK)
    result.save(str(tmp_path / "model"))
    model = mixtree.load_model(tmp_path / "model")
    shuffled = table[names[::-1]]
    np.testing.assert_allclose(model.scores(shuffled), result.predict(table), rtol=1e-5)


def test_what_no_folder_can_hold_says_so(tmp_path):
    sources, validation = parts(synthetic(rows=200, seed=1))
    thin = {name: (sparse.csr_array(x), y) for name, (x, y) in sources.items()}
    far = {name: (1e7 * x, y) for name, (x, y) in sources.items()}
    cases = [
        (
            mixtree.fit(sources, validation, **{**QUICK, "model": GaussianNB()}),
            "no safe format for GaussianNB",
        ),
        (mixtree.fit(thin, (sparse.csr_array(validation.x), validation.y), **QUICK), "no columns by name"),
        (mixtree.fit(far, (1e7 * validation.x, validation.y), **QUICK), "bring them to about size 1"),
    ]
    for result, message in cases:
        with pytest.raises(InputError, match=message):
            result.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    bare = run(uniform(3, budget=40), ReferenceTrainer(synthetic(rows=50).sources))
    with pytest.raises(InputError, match="no model to save"):
        bare.save(tmp_path / "model")
