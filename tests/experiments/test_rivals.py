import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from mixtree.data.preprocessing import Preprocessor
from mixtree.data.sources import Problem, Rows, Sources
from mixtree.errors import InputError, MissingExtraError
from mixtree.experiments import rivals
from mixtree.experiments.comparison import Rules, compare, paired
from mixtree.experiments.rivals import RIVALS, Case, check_rival, predict
from mixtree.metrics import AUROC, HAND_TILL, MAE
from mixtree.trainers.mlp import MlpTrainer

QUICK = ("lightgbm-pooled", "lightgbm-target", "linear-pooled", "linear-weighted", "stacked")
EXTRA = ("catboost-source", "gpboost")


def frames(kind: str, *, rows: int = 400, seed: int = 0):
    """Two sources and a target whose level is its own; a category, gaps, a level that only tests have."""
    random = np.random.default_rng(seed)
    source = random.choice(["a", "b", "target"], rows)
    x = random.normal(size=(rows, 3))
    colour = random.choice(["red", "blue"], rows)
    signal = 2 * x[:, 0] + (colour == "red") + 2.0 * (source == "target") + 0.3 * random.normal(size=rows)
    y = {"binary": signal > 1, "three": np.digitize(signal, [0, 2]), "number": signal}[kind]
    y = y.astype(float if kind == "number" else int)
    x[random.random(x.shape) < 0.05] = np.nan
    table = pl.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "x2": x[:, 2], "colour": colour}).fill_nan(None)
    own = np.flatnonzero(source == "target")
    first, rest = own[:60], own[60:]
    training = np.flatnonzero(source != "target")
    test = table[rest].with_columns(
        colour=pl.when(pl.int_range(len(rest)) == 0).then(pl.lit("green")).otherwise("colour")
    )
    return (table[training], y[training], source[training]), (table[first], y[first]), test, y[rest]


def case_of(kind: str) -> tuple[Case, np.ndarray]:
    training, own, test, y = frames(kind)
    metric = {"binary": AUROC, "three": HAND_TILL, "number": MAE}[kind]
    classes = {"binary": 2, "three": 3, "number": 0}[kind]
    return Case.of_frames(training, own, test, classes=classes, metric=metric), y


@pytest.mark.parametrize("kind", ["binary", "three", "number"])
@pytest.mark.parametrize("name", QUICK)
def test_rivals_learn(kind, name):
    case, y = case_of(kind)
    found = predict(name, case)
    assert found.shape == ((len(y),) if kind == "number" else (len(y), case.classes))
    constant = np.median(case.y[case.own]) if kind == "number" else None
    score = case.metric(y, found)
    if name.endswith("pooled"):  # the target's level is not that of the sources
        assert score < 3.0 if kind == "number" else score > 0.6
    else:
        assert score < case.metric(y, np.full(len(y), constant)) if kind == "number" else score > 0.8


@pytest.mark.parametrize("name", EXTRA)
def test_rivals_of_other_libraries_learn(name):
    pytest.importorskip(name.partition("-")[0])
    case, y = case_of("binary")
    assert case.metric(y, predict(name, case)) > 0.8
    case, y = case_of("number")
    assert case.metric(y, predict(name, case)) < 1.0


def test_the_weight_of_the_target_is_chosen_by_cross_validation(monkeypatch):
    case, y = case_of("number")
    weights = []

    def learner(case):
        def learn(rows, weight, at):
            own = case.source[rows] == case.target
            weights.append((float(weight[own].max()) if own.any() else 0.0, len(rows)))
            # Right with the target's rows at 20, wrong otherwise.
            return np.where(weights[-1][0] == 20.0, 0.0, 100.0) + np.zeros(len(at))

        return learn

    assert (rivals.weighted([learner], case) == 0.0).all()
    assert weights[-1] == (20.0, len(case.y))
    # One fit without the target's rows, five folds of each other weight, the last fit of all rows.
    assert len(weights) == 1 + 5 * (len(rivals.WEIGHTS) - 1) + 1


@pytest.mark.parametrize("name", ["lightgbm-weighted", "linear-weighted", "stacked"])
def test_target_rows_of_one_class_are_no_accident(name):
    training, own, test, y = frames("binary")
    ones = (own[0][:20], np.ones(20, dtype=int))
    found = predict(name, Case.of_frames(training, ones, test, classes=2, metric=AUROC))
    assert found.shape == (len(y), 2) and np.isfinite(found).all()


def test_the_source_column_gives_the_target_a_level_of_its_own():
    case, _ = case_of("number")
    wider = case.with_source()
    assert wider.categories == (3, 4)
    assert set(wider.x[case.own, -1]) == set(wider.x[case.test, -1]) == {2.0}


def test_encoded_rows_are_the_same_case_as_the_tables():
    training, own, test, y = frames("binary")
    preprocessor = Preprocessor.fit(training[0])
    x, validation, tested = (preprocessor.transform(part) for part in (training[0], own[0], test))
    rows = [Rows(x[training[2] == name], training[1][training[2] == name]) for name in ("a", "b")]
    problem = Problem("made", Sources(("a", "b"), tuple(rows), Rows(validation, own[1]), 2), Rows(tested, y))
    case = Case.of_problem(problem, preprocessor.layout, AUROC, test=problem.test, seed=0)
    order = np.argsort(training[2], kind="stable")
    plain = Case.of_frames(
        (training[0][order], training[1][order], training[2][order]), own, test, classes=2, metric=AUROC
    )
    assert case.categories == plain.categories
    assert np.array_equal(np.isnan(case.x), np.isnan(plain.x))
    assert np.array_equal(case.x[:, 3], plain.x[:, 3], equal_nan=True)
    assert np.array_equal(case.y, plain.y) and np.array_equal(case.source, plain.source)


def test_compare_judges_rivals_on_the_same_rows():
    training, own, test, y = frames("binary")
    preprocessor = Preprocessor.fit(training[0])
    x, validation, tested = (preprocessor.transform(part) for part in (training[0], own[0], test))
    rows = [Rows(x[training[2] == name], training[1][training[2] == name]) for name in ("a", "b")]
    problem = Problem("made", Sources(("a", "b"), tuple(rows), Rows(validation, own[1]), 2), Rows(tested, y))
    predictions = {}
    names = ["uniform", "lightgbm-pooled", "linear-pooled"]
    runs = compare(
        [problem, replace(problem)],
        names,
        make_trainer=lambda problem: MlpTrainer(problem.sources, lr=0.1),
        rules=Rules(40, 10, AUROC),
        predictions=predictions,
        layout=preprocessor.layout,
    )
    assert [each.algorithm for each in runs] == names * 2
    assert not any(each.diverged for each in runs)
    assert all(each.cpu >= 0 for each in runs)
    assert runs[1].test_score == AUROC(y, predictions["lightgbm-pooled", 0])
    against = paired(predictions, [problem.test] * 2, AUROC, algorithms=names)
    assert set(against) == {"lightgbm-pooled", "linear-pooled"}


def test_what_is_not_installed_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(rivals, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"catboost-source needs .*mixtree\[boosting\]"):
        check_rival("catboost-source")
    with pytest.raises(MissingExtraError, match=r"gpboost needs .*mixtree\[arena\]"):
        check_rival("gpboost")
    check_rival("linear-pooled")
    monkeypatch.setenv(rivals.AUTOGLUON, str(tmp_path))
    with pytest.raises(InputError, match="autogluon_env.sh"):
        check_rival("autogluon")


def test_gpboost_says_what_it_cannot_do():
    pytest.importorskip("gpboost")
    case, _ = case_of("three")
    with pytest.raises(InputError, match="gpboost knows two classes"):
        RIVALS["gpboost"](case)


def test_autogluon_gets_files_and_gives_predictions(monkeypatch, tmp_path):
    """A stand-in for its Python: it reads what AutoGluon would, and answers with the base rate."""
    case, y = case_of("binary")
    stand_in = tmp_path / "bin" / "python"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f"#!{sys.executable}\n"
        "import json, sys\nimport polars as pl\nfrom pathlib import Path\n"
        "folder = Path(sys.argv[2])\ntask = json.loads((folder / 'task.json').read_text())\n"
        "train, test = (pl.read_parquet(folder / f'{part}.parquet') for part in ('train', 'test'))\n"
        "levels = [train[name].unique().sort().to_list() for name in ('source', 'x3')]\n"
        f"seen = Path({str(tmp_path / 'seen.json')!r})\n"
        "seen.write_text(json.dumps([task, *levels, test.columns]))\n"
        "rate = train['label'].mean()\n"
        "pl.DataFrame({'0': [1 - rate] * len(test), '1': [rate] * len(test)})"
        ".write_parquet(folder / 'predictions.parquet')\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv(rivals.AUTOGLUON, str(tmp_path))
    found = predict("autogluon", case)
    assert found.shape == (len(y), 2)
    task, sources, colours, columns = json.loads(Path(tmp_path / "seen.json").read_text())
    assert task == {"metric": "roc_auc", "task": "binary", "seconds": 60}
    assert sources == ["a", "b", "target"] and colours == ["blue", "red"]
    assert columns == ["x0", "x1", "x2", "x3", "source"]
