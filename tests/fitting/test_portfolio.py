import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import mixtree
from mixtree import MixtureClassifier, MixtureRegressor
from mixtree.cli import app
from mixtree.data.sources import Sources
from mixtree.data.typed import Layout
from mixtree.errors import DataError, InputError, MixtreeError
from mixtree.fitting.model_folder import load_model
from mixtree.fitting.options import make_options
from mixtree.fitting.portfolio import (
    POOLED,
    Crossed,
    Fitter,
    PortfolioTrainer,
    can_log,
    deficits,
    join_weights,
    near_twins,
    recipes_for,
)
from mixtree.fitting.prepare import model_of
from mixtree.metrics import as_metric
from mixtree.trainers.families import Constant


def part(count, seed, shift=0.0, *, numbers=False):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(size=count),
            "income": np.where(rng.random(count) < 0.1, np.nan, rng.normal(size=count)),
            "shop": rng.choice(["north", "south", "west"], count),
            "constant": 1.0,
        }
    )
    score = frame.age + (frame["shop"] == "north") + shift + 0.5 * rng.normal(size=count)
    return frame, (np.exp(score) if numbers else (score > 0.5).astype(int)).to_numpy()


def tables(*, numbers=False, target=60):
    sources = {"a": part(150, 0, numbers=numbers), "b": part(100, 1, 0.5, numbers=numbers)}
    return sources, part(target, 2, 1.0, numbers=numbers), part(80, 3, 1.0, numbers=numbers)


@pytest.fixture(scope="module")
def fitted():
    sources, val, test = tables()
    return mixtree.fit(sources, val, model="auto", effort="quick"), val, test


def test_frames_are_fitted_by_a_portfolio(fitted):
    result, _, test = fitted
    found = result.predict(test[0])
    assert found.shape == (80, 2)
    assert ((found[:, 1] > 0.5) == test[1]).mean() > 0.7
    assert list(result.spent) == ["lightgbm-source", "lightgbm-pooled", "linear-source", "linear-target"]
    assert result.verdict.differences[-1][0] == "lightgbm-pooled"
    words = "models fitted without a row predict it, joined by weights chosen on others"
    assert f"cross-fitted on 60 rows: {words}; settings and members were chosen on all" in (
        result.verdict.expectation
    )
    assert any("members, their weights" in note for note in result.verdict.notes)
    assert sum(result.weights.values()) == pytest.approx(1.0)


def test_the_same_seed_gives_the_same_portfolio(fitted):
    result, _, test = fitted
    sources, val, _ = tables()
    again = mixtree.fit(sources, val, effort="quick")  # auto is the default of frames
    assert np.array_equal(again.predict(test[0]), result.predict(test[0]))


def test_a_study_that_stopped_keeps_its_members(tmp_path):
    sources, val, test = tables()
    stopped = 0

    def stop(event):
        nonlocal stopped
        if type(event).__name__ == "NodeEvaluated" or "Evaluated" in type(event).__name__:
            stopped += 1
            if stopped == 2:
                raise KeyboardInterrupt

    place = tmp_path / "study.db"
    with pytest.raises(KeyboardInterrupt):
        mixtree.fit(sources, val, effort="quick", storage=place, listeners=[stop])
    resumed = mixtree.fit(sources, val, effort="quick", storage=place, resume=True)
    whole = mixtree.fit(sources, val, effort="quick")
    assert np.allclose(resumed.predict(test[0]), whole.predict(test[0]))


def test_a_regression_may_be_learnt_as_logarithms():
    sources, val, test = tables(numbers=True)
    result = mixtree.fit(sources, val, model="auto", effort="quick", metric="mae")
    assert "lightgbm-log" in result.spent
    assert any("positive and skewed" in note for note in result.notes)
    naive = np.abs(test[1] - np.median(val[1])).mean()
    assert np.abs(result.predict(test[0]) - test[1]).mean() < naive


def test_a_column_and_an_option_that_a_portfolio_does_not_know():
    sources, val, _ = tables()
    with pytest.raises(InputError, match="model 'auto' is a portfolio and knows no budget"):
        mixtree.fit(sources, val, model="auto", budget=100)
    with pytest.raises(InputError, match="effort is one of"):
        mixtree.fit(sources, val, model="auto", effort="none")


@pytest.mark.parametrize("rows", [4, 10])
def test_few_target_rows_and_a_source_of_one_class(rows):
    sources, val, test = tables(target=rows)
    sources["b"] = (sources["b"][0], np.ones(100, dtype=int))
    labels = np.arange(rows) % 2
    result = mixtree.fit(sources, (val[0], labels), model="auto", effort="quick")
    assert result.predict(test[0]).shape == (80, 2)


def test_a_category_never_seen_is_predicted():
    sources, val, test = tables()
    result = mixtree.fit(sources, val, model="auto", effort="quick")
    assert np.isfinite(result.predict(test[0].assign(shop="east"))).all()


def test_one_class_in_all_is_one_clear_sentence():
    sources, val, _ = tables()
    ones = {name: (x, np.zeros(len(x), dtype=int)) for name, (x, _) in sources.items()}
    with pytest.raises(MixtreeError):
        mixtree.fit(ones, (val[0], np.zeros(60, dtype=int)), model="auto", effort="quick")


def test_estimators_fit_portfolios_and_explain_them():
    sources, val, test = tables()
    x = pd.concat([x for x, _ in sources.values()], ignore_index=True)
    y = np.concatenate([y for _, y in sources.values()])
    state = np.repeat(["a", "b"], [150, 100])
    model = MixtureClassifier(effort="quick").fit(x, y, source=state, X_val=val[0], y_val=val[1])
    assert set(model.spent_) >= {"lightgbm-source", "linear-source"}
    found = model.explain_(*test, repeats=2)
    assert found[0].name in ("age", "shop")
    assert found[-1].value <= found[0].value and found[0].low < found[0].value < found[0].high
    noise = part(150, 0)[0], np.random.default_rng(0).integers(0, 2, 150)
    worth = model.explain_(*test, sources={"good": part(300, 5, 1.0), "noise": noise})
    assert [each.name for each in worth] == ["good", "noise"]
    assert worth[0].value > 0.05 > worth[1].value and worth[0].low < worth[0].value < worth[0].high
    with pytest.raises(InputError, match="one source only"):
        model.explain_(*test, sources={"good": part(300, 5, 1.0)})
    linear = MixtureClassifier("linear", budget=60, reference="none")
    with pytest.raises(InputError, match="attribution='loo'"):
        linear.fit(x, y, source=state).explain_(*test, sources={"good": noise})
    sources, val, test = tables(numbers=True)
    y = np.concatenate([y for _, y in sources.values()])
    model = MixtureRegressor(effort="quick").fit(x, y, source=state, X_val=val[0], y_val=val[1])
    assert model.predict(test[0]).shape == (80,)


def test_the_command_line_fits_shows_predicts_explains(tmp_path):
    sources, val, test = tables()
    pd.concat([x.assign(state=name, bought=y) for name, (x, y) in sources.items()]).to_csv(
        tmp_path / "s.csv", index=False
    )
    for name, (x, y) in {"v": val, "t": test}.items():
        x.assign(bought=y).to_csv(tmp_path / f"{name}.csv", index=False)

    def run(*words):
        told = CliRunner().invoke(app, [str(each) for each in words], catch_exceptions=False)
        assert told.exit_code == 0, told.output
        return told.output

    out = tmp_path / "model"
    flags = ("--source-col", "state", "--label", "bought", "--val", tmp_path / "v.csv", "--out", out)
    run("fit", tmp_path / "s.csv", *flags, "--effort", "quick")
    about = json.loads((out / "model.json").read_text())
    assert [each["name"] for each in about["members"]][:2] == ["lightgbm-source", "lightgbm-pooled"]
    assert "## Its members" in (out / "MODEL_CARD.md").read_text()
    shown = run("show", out)
    assert "rows read" in shown and "lightgbm-pooled" in shown
    assert json.loads(run("show", out, "--json"))["members"] == about["members"]
    run("predict", out, tmp_path / "t.csv", "-o", tmp_path / "p.csv")
    assert len(pd.read_csv(tmp_path / "p.csv")) == 80
    assert "age" in run("explain", out, tmp_path / "t.csv")
    by_source = run("explain", out, tmp_path / "t.csv", "--by", "source", "--json")
    assert {each["source"] for each in json.loads(by_source)} == {"a", "b"}
    run("resume", out)
    loaded = load_model(out)
    assert np.isfinite(loaded.scores(test[0])).all()
    with pytest.raises(InputError, match="a portfolio has no budget"):
        run("resume", out, "--budget", "99")


@pytest.mark.parametrize("door", ["fit", "estimator", "table"])
def test_the_worst_group_scores_at_every_door(tmp_path, door):
    sources, val, test = tables()
    x = pd.concat([x.assign(state=name) for name, (x, _) in sources.items()], ignore_index=True)
    y = np.concatenate([y for _, y in sources.values()])
    if door == "fit":
        result = mixtree.fit(
            sources, val, model="auto", effort="quick", metric="accuracy:worst:shop", test=test
        )
        predictions, score = result.predict(test[0]).argmax(axis=1), result.verdict.score
        shops = test[0]["shop"]
        worst = min(np.mean((predictions == test[1])[shops == each]) for each in set(shops))
        assert score.value == pytest.approx(worst) and score.low < worst < score.high <= 1.0
        with pytest.raises(InputError, match="no column 'street', whose worst value is to score"):
            mixtree.fit(sources, val, metric="worst:street")
    elif door == "estimator":
        model = MixtureClassifier(
            "linear", budget=60, metric="worst:shop", objective="metric", reference="none"
        )
        model.fit(x, y, source="state", X_val=val[0], y_val=val[1])
        assert model.metric_ == "auroc:worst:shop" and 0.0 < model.best_score_ <= 1.0
        model.fit(x, y, source="state")  # a part of the rows, with its own groups
        assert model.explain_(*test, repeats=1)[0].name == "age"
    else:
        x.assign(bought=y).to_csv(tmp_path / "s.csv", index=False)
        for name, (rows, labels) in {"v": val, "t": test}.items():
            rows.assign(bought=labels).to_csv(tmp_path / f"{name}.csv", index=False)
        flags = [
            "--source-col",
            "state",
            "--label",
            "bought",
            "--val",
            tmp_path / "v.csv",
            "--out",
            tmp_path / "m",
        ]
        flags += ["--metric", "worst:shop", "--effort", "quick", "--drop", "shop"]  # it need be no feature
        told = CliRunner().invoke(
            app, ["fit", str(tmp_path / "s.csv"), *map(str, flags)], catch_exceptions=False
        )
        assert told.exit_code == 0 and "auroc:worst:shop" in told.output
        run = CliRunner().invoke(app, ["explain", str(tmp_path / "m"), str(tmp_path / "t.csv")])
        assert run.exit_code == 0 and "age" in run.output


def test_weights_follow_how_surely_a_member_is_behind():
    metric, y = as_metric("mae", classes=0), np.linspace(0, 1, 50)
    rng = np.random.default_rng(0)
    good, bad = y + 0.1 * rng.normal(size=50), y + 3 * rng.normal(size=50)
    z = deficits(metric, y, [good, bad], 0)
    assert z[0] == 0.0
    assert z[1] > 4.0
    weights = join_weights(z, np.ones(2), 50)
    assert weights[0] > 0.95
    few = join_weights(np.array([0.0, 2.0]), np.ones(2), 4)
    many = join_weights(np.array([0.0, 2.0]), np.ones(2), 4000)
    assert few[1] > many[1]  # of few rows closer to equal


def test_rows_of_one_person_are_one_group():
    rng = np.random.default_rng(0)
    people = rng.normal(size=(20, 4))
    rows = np.column_stack([np.repeat(people, 3, axis=0), rng.normal(size=60)])
    assert np.array_equal(near_twins(rows), np.repeat(np.arange(0, 60, 3), 3))
    alone = rng.normal(size=(60, 5))
    assert np.array_equal(near_twins(alone), np.arange(60))


def test_only_positive_and_skewed_labels_can_be_logarithms():
    rng = np.random.default_rng(0)
    assert can_log(np.exp(rng.normal(size=500)))
    assert not can_log(rng.normal(size=500) + 10)
    assert not can_log(np.exp(rng.normal(size=500)) - 1)


def test_a_library_that_is_missing_is_told(monkeypatch):
    sources, val, test = tables()
    monkeypatch.setattr("mixtree.fitting.portfolio.has_catboost", lambda: False)
    result = mixtree.fit(sources, val, model="auto", time_limit=0.01)
    assert result.predict(test[0]).shape == (80, 2)
    assert len(result.spent) < 8  # the time limit joins what is ready
    x = pd.concat([x for x, _ in sources.values()], ignore_index=True)
    y = np.concatenate([y for _, y in sources.values()])
    with pytest.raises(ImportError, match="CatBoost needs optional packages"):
        MixtureClassifier("catboost").fit(x, y, X_val=val[0], y_val=val[1])


def test_two_target_rows_are_joined_and_one_is_refused():
    sources, val, test = tables(numbers=True, target=2)
    result = mixtree.fit(sources, val, model="auto", effort="quick")
    assert np.isfinite(result.node.value)  # a single row tells nothing of how sure a gap is
    assert np.isfinite(result.predict(test[0])).all()
    with pytest.raises(DataError, match="there is 1: give 2 or more"):
        mixtree.fit(sources, (val[0][:1], val[1][:1]), model="auto", effort="quick")


def test_no_row_of_weight_is_one_clear_sentence():
    sources, val, _ = tables()
    weightless = {name: (x, y, np.zeros(len(y))) for name, (x, y) in sources.items()}
    with pytest.raises(DataError, match="all rows of the sources have weight 0"):
        mixtree.fit(weightless, val, model="auto", effort="quick")


def fitter_of(rows, target, effort="normal"):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows + target, 3)).astype(np.float32)
    y = x[:, 0] + rng.normal(size=rows + target)
    sources = Sources.from_dict({"a": (x[:rows], y[:rows])}, (x[rows:], y[rows:]), classes=0)
    metric = as_metric("rmse", classes=0)
    return Fitter(sources, Layout.plain(3), metric, seed=0, effort=effort, network=None)


def test_few_target_rows_beside_many_of_the_sources_are_cross_fitted():
    fitter = fitter_of(3_500, 4)
    dear = replace(POOLED, family="extra-trees", target=1.0)
    assert fitter.cross_fit(dear).rows_read == 2 * 3_500 + 4  # two folds, each without half of the rows


def test_extra_trees_read_some_of_many_rows_and_all_of_the_target(monkeypatch):
    monkeypatch.setattr("mixtree.fitting.portfolio._MOST_DRAWN", 100)
    fitter = fitter_of(1_000, 20)
    seen = []
    monkeypatch.setattr(
        "mixtree.fitting.portfolio.fit_family",
        lambda family, table, y, weight, task: seen.append(weight) or Constant(np.zeros(1)),
    )
    fitter.member(replace(POOLED, family="extra-trees", target=1.0), np.arange(20))
    assert np.count_nonzero(seen[0][:1_000]) == 100
    assert seen[0][:1_000].sum() == pytest.approx(1_000)
    assert (seen[0][1_000:] == 1.0).all()


def test_thorough_has_more_members_and_more_and_smaller_steps():
    usual, thorough = fitter_of(200, 40), fitter_of(200, 40, "thorough")
    names = {each.name for each in recipes_for(thorough, "thorough")[0]}
    assert names - {each.name for each in recipes_for(usual, "normal")[0]} == {"catboost-target-5"}
    assert (thorough.tried[-1], thorough.task.work) == (2 * usual.tried[-1], 2)
    assert thorough.folds.max() > usual.folds.max()


def test_the_same_fit_of_catboost_is_the_same_file():
    fitter = fitter_of(200, 20)
    recipe = replace(POOLED, family="catboost")
    files = [fitter.member(recipe, np.arange(0)).fitted.arrays()["model"] for _ in range(2)]
    assert np.array_equal(*files)


def test_a_member_that_predicts_no_numbers_has_no_part():
    fitter = fitter_of(200, 20)
    y, member = fitter.sources.validation.y, fitter.pooled("linear")
    parts = [
        Crossed(replace(POOLED, name="good"), member, y + 0.1, 0.1, 1),
        Crossed(replace(POOLED, name="broken"), None, np.full(20, np.inf), np.nan, 1),
    ]
    joined = PortfolioTrainer(fitter.sources, fitter, ()).crossed(parts)
    assert np.allclose(joined, y + 0.1)


def test_many_classes_are_fitted_without_catboost():
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(60, 2)).astype(np.float32), np.arange(60) % 12) for _ in range(2)]
    sources = Sources.from_dict({"a": parts[0]}, parts[1], classes=12)
    metric = as_metric("log-loss", classes=12)
    fitter = Fitter(sources, Layout.plain(2), metric, seed=0, effort="normal", network=None)
    recipes, words = recipes_for(fitter, "normal")
    assert "catboost" not in {each.family for each in recipes}
    assert "it takes long with more than 10 classes" in words[0]
    assert {each.family for each in recipes_for(fitter, "normal", ("catboost",))[0]} == {"catboost"}


def test_effort_is_refused_where_no_portfolio_is_fitted() -> None:
    for more in ({"model": "mlp"}, {"budget": 60}):
        with pytest.raises(InputError, match="effort belongs to the portfolio"):
            model_of(make_options(effort="quick", **more), table=True)
