"""The same table through all doors gives the same objective values and weights, bit for bit."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd
import pytest
from sklearn.neural_network import MLPClassifier

from mixtree import (
    MixtureClassifier,
    MixtureRegressor,
    SearchBase,
    Setting,
    TreeSearch,
    fit,
    load,
    load_model,
)
from mixtree.cli import app
from mixtree.data.tables import TableSpec, load_tables
from mixtree.errors import InputError
from mixtree.experiments.contest import Contest
from mixtree.fitting.options import OPTIONS, make_options
from mixtree.fitting.pipeline import run_prepared
from mixtree.fitting.tables import prepare_tables, save_fit
from mixtree.metrics import as_metric
from mixtree.partition import bisect, simplex_root
from mixtree.seeds import derive_seed
from mixtree.trainer import Evaluation
from mixtree.tree import Node, Trial

QUICK: dict[str, Any] = {"budget": 48, "steps": 4, "batch_size": 10, "reference": "none"}


def frame(rows: int, seed: int, *, regression: bool) -> pd.DataFrame:
    """Numbers, some missing, and text; three sources."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    kind = rng.choice(["red", "green", "blue"], rows)
    score = x[:, 0] - x[:, 1] + (kind == "red") + rng.normal(size=rows)
    x[rng.random(rows) < 0.1, 1] = np.nan
    label = 200.0 + 30.0 * score if regression else np.where(score > 0, "yes", "no")
    return pd.DataFrame(
        {"a": x[:, 0], "b": x[:, 1], "kind": kind, "state": rng.choice(["ct", "fl", "oh"], rows), "y": label}
    )


def by_command(folder, **options: Any) -> Any:
    flags = [part for name, each in options.items() for part in (f"--{name.replace('_', '-')}", str(each))]
    words = ["train.csv", "--source-col", "state", "--label", "y", "--val", "val.csv", "--out", "model"]
    app(["fit", *map(str, [*words, *flags])], standalone_mode=False)
    return load(folder / "model" / "study.db", "fit")


def told(tree: Any) -> list[tuple[Any, str, list[str]]]:
    return [(node.path, node.value.hex(), [each.hex() for each in node.mixture]) for node in tree.values()]


@pytest.mark.parametrize("objective", ["loss", "metric"])
@pytest.mark.parametrize(
    ("regression", "metric", "policy"),
    [
        (False, "auroc", "mixmatch-bisect"),
        (False, "accuracy", "auto"),
        (False, "log-loss", "mixmatch-ch+commit"),
        (False, "f1", "uniform+decay"),
        (True, "rmse", "auto"),
        (True, "mae", "mixmatch-bisect"),
        (True, "squared-loss", "pooled"),
    ],
)
def test_all_doors_do_the_same(tmp_path, monkeypatch, regression, metric, policy, objective):
    monkeypatch.chdir(tmp_path)
    train, val = frame(90, 1, regression=regression), frame(40, 2, regression=regression)
    train.to_csv("train.csv", index=False)
    val.to_csv("val.csv", index=False)
    options = {**QUICK, "policy": policy, "metric": metric, "objective": objective, "model": "linear"}
    command = by_command(tmp_path, **options)

    kind = MixtureRegressor if regression else MixtureClassifier
    own = {name: each for name, each in options.items() if name != "model"}
    x, x_val = train[["a", "b", "kind"]], val[["a", "b", "kind"]]
    estimator = kind("linear", **own).fit(x, train.y, source=train.state, X_val=x_val, y_val=val.y)

    spec = TableSpec(tables="train.csv", source_col="state", label="y", val="val.csv")
    data = load_tables(spec)
    result = fit(data.problem_sources, **options)

    assert told(command.tree) == told(estimator.tree_) == told(result.tree)
    assert command.weights == estimator.mixture_ == result.weights
    np.testing.assert_allclose(
        load_model("model").scores(x_val), result.predict(data.problem_sources.validation.x), rtol=1e-5
    )

    # A comparison's runs have seeds of their own.
    contest = Contest.of([data], make_options(**options), algorithms=[policy])
    ((run,), _) = contest.run()
    seed = derive_seed(0, (crc32(policy.encode()),))
    same = run_prepared(prepare_tables(data, make_options(**options, seed=seed)), init_seed=0)
    assert (run.value, run.mixture) == (same.value, same.weights)


def test_estimators_take_the_options_of_a_fit():
    names = MixtureClassifier().get_params()
    assert OPTIONS.keys() - {"model", "seed"} <= names.keys()
    assert names["minimum"] is None and names["segments"] == OPTIONS["segments"].default
    with pytest.raises(TypeError, match="budgte"):
        MixtureRegressor(budgte=3)


class Halves(SearchBase):
    """A search of a user's own: two mixtures, and the better one."""

    budget = 20

    def __init__(self) -> None:
        self.found: list[Node] = []

    def ask(self) -> list[Trial]:
        weights = np.eye(3)
        return [] if self.found else [Trial((k,), weights[k], 10) for k in range(2)]

    def tell(self, trial: Trial, evaluation: Evaluation) -> None:
        self.found.append(Node(trial.path, trial.mixture, trial.steps, evaluation.value))

    def best(self) -> Node:
        return min(self.found, key=lambda node: node.value)


def own_search(setting: Setting) -> TreeSearch:
    root = simplex_root(len(setting.names))
    return TreeSearch(root, bisect, budget=setting.budget, steps=setting.steps, seed=setting.seed)


@pytest.mark.parametrize("policy", [Halves, own_search])
def test_a_search_of_ones_own_gets_all_that_an_id_gets(tmp_path, policy):
    """A verdict, a model that predicts, a folder that does so too; as an object or as what makes one."""
    data = load_tables(
        TableSpec(
            tables=frame(90, 1, regression=False),
            source_col="state",
            label="y",
            val=frame(60, 2, regression=False),
        )
    )
    policy = Halves() if policy is Halves else policy
    options = make_options(model="linear", steps=4, batch_size=10, policy=policy, budget=None)
    prepared = prepare_tables(data, options)
    assert prepared.chosen.budget == (20 if isinstance(policy, Halves) else 600)
    result = run_prepared(prepared)
    assert result.verdict is not None and result.verdict.comparison
    assert result.verdict.as_dict()["against"][0]["name"].startswith("uniform")
    about = save_fit(tmp_path / "model", data, prepared, result)
    assert about["policy"] == ("Halves" if isinstance(policy, Halves) else "own_search")
    rows = frame(10, 3, regression=False)
    found = load_model(tmp_path / "model").scores(rows)
    np.testing.assert_allclose(found, result.predict(data.preprocessor.transform(rows)), rtol=1e-5)


def test_what_a_search_of_ones_own_cannot_be(tmp_path):
    data = load_tables(
        TableSpec(
            tables=frame(90, 1, regression=False), source_col="state", label="y",
            val=frame(60, 2, regression=False),
        )
    ).problem_sources  # fmt: skip
    for options, message in (
        ({"policy": Halves(), "budget": 30}, "the search has a budget of 20 steps, and the fit one of 30"),
        ({"policy": Halves(), "nu": 0.5}, "policy 'Halves' knows no nu"),
        ({"policy": Halves(), "nested": True}, "a search of their own each: give a function"),
        ({"policy": lambda setting: 3, "budget": 20}, "int is not a Search"),
    ):
        with pytest.raises(InputError, match=message):
            fit(data, model="linear", batch_size=10, reference="none", **{"steps": 4, **options})
    nested = fit(
        data,
        model="linear",
        batch_size=10,
        budget=40,
        steps=4,
        policy=own_search,
        nested=True,
        reference="none",
    )
    assert nested.verdict.score.rows == 60


def heights(result: Any) -> dict[int, int]:
    return {len(path): node.steps for path, node in result.tree.items()}


def test_schedules_the_root_and_the_optimizer_are_options():
    data = load_tables(
        TableSpec(
            tables=frame(90, 1, regression=False), source_col="state", label="y",
            val=frame(60, 2, regression=False),
        )
    ).problem_sources  # fmt: skip
    common = {"model": "linear", "batch_size": 10, "budget": 100, "steps": 6, "reference": "none", "rho": 0.5}
    common["policy"] = "mixmatch-bisect"
    for schedule, wanted in (
        ("constant", [6, 6, 6]), ("linear", [6, 12, 18]), ("sqrt", [6, 9, 11]), ("geometric", [6, 12, 24]),
    ):  # fmt: skip
        seen = heights(fit(data, schedule=schedule, **common))
        assert [seen[height] for height in range(3) if height in seen] == wanted[: len(seen)]
        assert len(seen) > 2
    assert () not in fit(data, untrained_root=True, **common).tree
    with pytest.raises(InputError, match="Λ|steps"):
        fit(data, schedule="theory", **common)
    with pytest.raises(InputError, match="choose model 'linear'"):
        fit(data, schedule="theory", **{**common, "model": "mlp"})
    with pytest.raises(InputError, match="policy 'uniform' knows no schedule and untrained_root"):
        fit(data, schedule="linear", untrained_root=True, **{**common, "policy": "uniform", "rho": None})
    kept, reset = (
        fit(data, **{**common, "model": MLPClassifier((4,), random_state=0), "reset_optimizer": reset}).value
        for reset in (False, True)
    )
    assert kept != reset


def test_a_metric_of_ones_own_goes_through_the_same_doors(tmp_path):
    train, val = frame(90, 1, regression=True), frame(40, 2, regression=True)

    def off(y: Any, predictions: Any) -> float:
        return float(np.median(np.abs(y - predictions)))

    data = load_tables(TableSpec(tables=train, source_col="state", label="y", val=val))
    options = {**QUICK, "policy": "mixmatch-bisect", "objective": "metric"}
    metric = as_metric(off, classes=0, higher_is_better=False)
    result = fit(data.problem_sources, model="linear", metric=metric, **options)
    x, x_val = train[["a", "b", "kind"]], val[["a", "b", "kind"]]
    estimator = MixtureRegressor("linear", metric=metric, **options)
    estimator.fit(x, train.y, source=train.state, X_val=x_val, y_val=val.y)
    assert told(estimator.tree_) == told(result.tree)
