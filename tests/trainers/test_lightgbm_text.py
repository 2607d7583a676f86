"""LightGBM's model files: what was cut or edited is refused before the library reads it."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import lightgbm
import numpy as np
import pytest

from mixtree.data.sources import Rows, Sources
from mixtree.data.synthetic import synthetic
from mixtree.errors import InputError
from mixtree.trainer import Job
from mixtree.trainers.boosting import LightGBMTrainer
from mixtree.trainers.lightgbm_text import check_lightgbm

CLASSES = synthetic(sources=2, rows=200, seed=1).sources


def regression(sources: Sources) -> Sources:
    def rows(part: Rows) -> Rows:
        return replace(part, y=np.asarray(part.x[:, 0], dtype=np.float64))

    return Sources(sources.names, tuple(map(rows, sources.rows)), rows(sources.validation), 0)


def trained(sources: Sources, **params: object) -> tuple[LightGBMTrainer, dict[str, np.ndarray]]:
    trainer = LightGBMTrainer(sources, params)
    state = trainer.train([Job(trainer.init(0), np.array([0.5, 0.5]), steps=3, seed=1)])[0]
    return trainer, trainer.save(state)


@pytest.fixture(scope="module")
def binary() -> tuple[LightGBMTrainer, dict[str, np.ndarray]]:
    return trained(CLASSES, num_leaves=7)


@pytest.mark.parametrize(
    ("sources", "params"),
    [
        (CLASSES, {}),
        (synthetic(sources=2, rows=200, classes=3, seed=1).sources, {}),
        (regression(CLASSES), {}),
        (regression(CLASSES), {"objective": "quantile", "alpha": 0.3}),
        (regression(CLASSES), {"linear_tree": True}),
        (regression(CLASSES), {"reg_sqrt": True}),
        (CLASSES, {"min_data_in_leaf": 10_000}),
        (CLASSES, {"monotone_constraints": [1] + [0] * 9}),
    ],
)
def test_what_the_library_wrote_is_loaded(sources: Sources, params: dict[str, object]) -> None:
    trainer, arrays = trained(sources, **params)
    state = trainer.load(arrays)
    assert state.model == arrays["model"].tobytes()
    assert trainer.predict(state, sources.validation.x).shape[0] == len(sources.validation)


def test_trees_of_categories_are_read() -> None:
    rng = np.random.default_rng(0)
    x = np.stack([rng.integers(0, 40, 400), rng.normal(size=400)], axis=1)
    params = {"objective": "binary", "cat_smooth": 0, "min_data_per_group": 1, "verbosity": -1}
    data = lightgbm.Dataset(x, x[:, 0] % 2, categorical_feature=[0])
    model = lightgbm.train(params, data, 3).model_to_string()
    check_lightgbm(model, features=2, outputs=1, objective="binary")
    for name in ("cat_boundaries", "threshold"):
        # As long as it was, so that the sizes fit.
        edited = re.sub(rf"(?<=\n{name}=)\S+", lambda found: "9" * len(found[0]), model, count=1)
        assert edited != model
        with pytest.raises(ValueError, match=f"{name}|categories"):
            check_lightgbm(edited, features=2, outputs=1, objective="binary")


def test_a_model_that_was_cut_anywhere_is_refused(
    binary: tuple[LightGBMTrainer, dict[str, np.ndarray]],
) -> None:
    trainer, arrays = binary
    model, draw = arrays["model"], random.Random(0)
    end = model.tobytes().index(b"end of parameters")
    for length in [len(model) // 2, *(draw.randrange(1, end) for _ in range(50))]:
        with pytest.raises(InputError, match="the lightgbm model is damaged or cut short"):
            trainer.load({**arrays, "model": model[:length]})


def in_tree(name: str, value: str) -> tuple[str, str]:
    return rf"(?<=\n){name}=.*", f"{name}={value}"


@pytest.mark.parametrize(
    ("pattern", "new"),
    [
        in_tree("split_feature", "99 0 0 0 0 0"),
        in_tree("split_feature", "-1 0 0 0 0 0"),
        in_tree("split_feature", "0 0 0"),
        in_tree("left_child", "0 -2 -1 4 -3 -4"),
        in_tree("left_child", "99 -2 -1 4 -3 -4"),
        in_tree("right_child", "-9 -1 -1 -1 -1 -1"),
        in_tree("leaf_value", "1 2 3"),
        in_tree("leaf_value", "x 0 0 0 0 0 0"),
        in_tree("internal_value", "0 0 0 0 0 1.2.3"),
        in_tree("decision_type", "1 1 1 1 1 1"),
        in_tree("num_leaves", "1000000"),
        in_tree("num_cat", "3"),
        (r"(?<=\n)shrinkage=1\n", "shrinkage=1\nstray\n"),
        (r"(?<=\n)shrinkage=1\n", "shrinkage=1\n=\n"),
        (r"num_class=1", "num_class=3"),
        (r"max_feature_idx=9", "max_feature_idx=99"),
        (r"objective=binary sigmoid:1", "objective=multiclass num_class:3"),
        (r"objective=binary sigmoid:1", "objective=binary sigmoid:x"),
        (r"Column_0 ", ""),
        (r"feature_infos=\S+", "feature_infos=[1:"),
        (r"\[header: 0\]", "[header 0]"),
        (r"pandas_categorical:null", "pandas_categorical:[["),
    ],
)
def test_an_edited_model_is_refused(
    binary: tuple[LightGBMTrainer, dict[str, np.ndarray]], pattern: str, new: str
) -> None:
    trainer, arrays = binary
    model = arrays["model"].tobytes().decode()
    header, _, rest = model.partition("\n\n")
    trees, mark, end = rest.partition("\nend of trees\n")
    trees, changes = re.subn(pattern, new, trees, count=1)
    others = [re.subn(pattern, new, part, count=1) for part in (header, end)] if not changes else []
    if others:
        (header, one), (end, two) = others
        assert one + two == 1
    else:  # as one would do who wants to harm: the sizes fit
        sizes = [len(each) for each in re.split(r"(?=Tree=\d)", f"{trees}\n")[1:]]
        header = re.sub("tree_sizes=.*", f"tree_sizes={' '.join(map(str, sizes))}", header)
    edited = f"{header}\n\n{trees}{mark}{end}".encode()
    with pytest.raises(InputError, match="the lightgbm model is damaged or cut short"):
        trainer.load({**arrays, "model": np.frombuffer(edited, dtype=np.uint8)})
