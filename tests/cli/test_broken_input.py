"""Broken input, one kind per case: refused in one line, or worked with, said and right.

`python tests/cli/test_broken_input.py > docs/broken-input.md` writes the table for people from the cases.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import json
import random
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "broken-input.md"
FIT = [
    "fit", "train.csv", "--source-col", "state", "--label", "bought", "--val", "val.csv", "--test",
        "test.csv",
    "--model", "linear", "--budget", "4", "--steps", "1", "--study", "new", "--out", "new",
]  # fmt: skip
COLUMNS = ["state", "age", "income", "colour", "signup", "bought"]


def make_rows(count: int, seed: int, source: str | None = None) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        age, bought = draw.randint(18, 80), number % 2
        row = {
            "age": age + 10 * bought,
            "income": round(draw.uniform(1e4, 9e4), 2),
            "colour": draw.choice(["red", "green", "blue"]),
            "signup": f"2024-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}",
            "bought": "yes" if bought else "no",
        }
        rows.append({"state": source, **row} if source else row)
    return rows


class Tables:
    """The files of a case: rows that can be changed before they are written,
    and raw bytes instead of them."""

    def __init__(self) -> None:
        self.train = [row for n, name in enumerate(("fl", "ct", "oh")) for row in make_rows(20, n, name)]
        self.val, self.test = make_rows(20, 7), make_rows(20, 8)
        self.raw: dict[str, bytes] = {}

    def each(self, change: Callable[[dict[str, Any]], None], *parts: str) -> None:
        for part in parts or ("train", "val", "test"):
            for row in getattr(self, part):
                change(row)

    def drop(self, column: str, *parts: str) -> None:
        self.each(lambda row: row.pop(column), *parts)

    def add(self, column: str, value: Any, *parts: str) -> None:
        self.each(lambda row: row.update({column: value}), *parts)

    def text(self, part: str, **options: Any) -> str:
        rows = getattr(self, part)
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n", **options)
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def write(self, folder: Path) -> None:
        for part in ("train", "val", "test"):
            if getattr(self, part):
                (folder / f"{part}.csv").write_text(self.text(part), encoding="utf-8")
        for name, content in self.raw.items():
            (folder / name).write_bytes(content)


Change = Callable[[Tables], Any]


@dataclass(frozen=True)
class Case:
    """One kind of broken input: what is done to the tables and the command, and what must be said."""

    kind: str
    says: str
    """A pattern that the refusal or the warning matches."""
    change: Change = lambda tables: None
    args: list[str] = field(default_factory=list)
    command: list[str] | None = None
    like: Change | None = None
    """Tables that must give the very same model: the broken ones, mended by hand."""


def rename(old: str, new: str, *parts: str) -> Change:
    def change(tables: Tables) -> None:
        def one(row: dict[str, Any]) -> None:
            items = [(new if key == old else key, value) for key, value in row.items()]
            row.clear()
            row.update(items)

        tables.each(one, *(parts or ("train", "val", "test") if old != "state" else ("train",)))

    return change


def put(part: str, place: int, **values: Any) -> Change:
    return lambda tables: getattr(tables, part)[place].update(values)


def raw(name: str, make: Callable[[Tables], bytes]) -> Change:
    def change(tables: Tables) -> None:
        tables.raw[name] = make(tables)

    return change


def lines(part: str, change: Callable[[list[str]], None]) -> Change:
    def whole(tables: Tables) -> None:
        found = tables.text(part).splitlines()
        change(found)
        tables.raw[f"{part}.csv"] = ("\n".join(found) + "\n").encode()

    return whole


def only(part: str, keep: Callable[[dict[str, Any]], bool]) -> Change:
    return lambda tables: setattr(tables, part, [row for row in getattr(tables, part) if keep(row)])


def all_of(*changes: Change) -> Change:
    return lambda tables: [change(tables) for change in changes]


def number_label(tables: Tables) -> None:
    tables.each(lambda row: row.update(bought=row["age"] * 1.5))


def without(name: str) -> list[str]:
    place = FIT.index(name)
    return FIT[:place] + FIT[place + 2 :]


REFUSED = [
    # files
    Case("the training file does not exist", r"none\.csv: no such file; check the path",
         command=[FIT[0], "none.csv", *FIT[2:]]),
    Case("the validation file does not exist", r"nowhere\.csv: no such file", args=["--val", "nowhere.csv"]),
    Case("the test file does not exist", r"nowhere\.csv: no such file", args=["--test", "nowhere.csv"]),
    Case("a folder instead of a file", r"out: this is a folder", args=["--val", "out"]),
    Case("a file name that says nothing of the format", r"rows\.xyz: cannot tell what kind .*save it as CSV",
         raw("rows.xyz", lambda t: b"a,b\n"), ["--val", "rows.xyz"]),
    Case("an Excel file", r"val\.csv: the file is not CSV but a zip or Excel file.*save the sheet as CSV",
         raw("val.csv", lambda t: b"PK\x03\x04junk")),
    Case("an empty file", r"train\.csv: the file is empty", raw("train.csv", lambda t: b"")),
    Case("a training file with a header and no rows", r"train\.csv: there are column names but no rows",
         lines("train", lambda found: found.__delitem__(slice(1, None)))),
    Case("an empty validation file", r"val\.csv: there are column names but no rows",
         lines("val", lambda found: found.__delitem__(slice(1, None)))),
    Case("Latin-1 or Windows-1252 text", r"train\.csv: line 2 is not UTF-8 text.*iconv",
         raw("train.csv", lambda t: t.text("train").replace("red", "rød").replace("green", "rød")
             .replace("blue", "rød").encode("latin-1"))),
    Case("UTF-16 text", r"train\.csv: the file is not CSV but UTF-16 text",
         raw("train.csv", lambda t: t.text("train").encode("utf-16"))),
    Case("binary data", r"train\.csv: the file is not text",
         raw("train.csv", lambda t: b"state,age\n\x00\x01\x02")),
    Case("a row with too many values",
         r"train\.csv: line 4 has 8 values but there are 6 columns; mend the row",
         lines("train", lambda found: found.__setitem__(3, found[3] + ",9,9"))),
    Case("a row with too few values",
         r"train\.csv: line 4 has 2 values but there are 6 columns; mend the row",
         lines("train", lambda found: found.__setitem__(3, "fl,30"))),
    Case("a quote that is not closed", r"train\.csv: line \d+.*quote",
         lines("train", lambda found: found.__setitem__(3, 'fl,30,1.5,"red,2024-01-01,no'))),
    Case("two columns of one name", r"train\.csv: several columns are named 'age' \(line 1\)",
         lines("train", lambda found: found.__setitem__(0, "state,age,age,colour,signup,bought"))),
    Case("a damaged gzip file", r"val\.csv\.gz: the gzip file is damaged.*again",
         raw("val.csv.gz", lambda t: gzip.compress(t.text("val").encode(), mtime=0)[:60]),
         ["--val", "val.csv.gz"]),
    Case("a gzip file that is not named so",
         r"val\.csv: the file is not CSV but compressed with gzip: name it",
         raw("val.csv", lambda t: gzip.compress(t.text("val").encode(), mtime=0))),
    Case("a damaged Parquet file", r"val\.parquet: cannot be read as Parquet.*again",
         raw("val.parquet", lambda t: b"PAR1 and no more"), ["--val", "val.parquet"]),
    # columns
    Case("no label column in the training file", r"train\.csv: no label column 'bought'.*'bouhgt'",
         rename("bought", "bouhgt", "train")),
    Case("no label column in the validation file", r"val\.csv: no label column 'bought'",
         lambda t: t.drop("bought", "val")),
    Case("no source column", r"train\.csv: no source column 'region'; it has 'state'",
         args=["--source-col", "region"]),
    Case("rows without a source", r"train\.csv: source column 'state' is missing in 1 rows.*data row 3",
         put("train", 2, state="")),
    Case("an id as the source column", r"source column 'state' has 1,020 different values",
         lambda t: t.train.extend({**t.train[0], "state": f"id{n}"} for n in range(1017))),
    Case("the label is the source column", r"label and source cannot be the same column",
         args=["--label", "state"]),
    Case("a column to drop that is not there", r"no column 'agee' to drop; there are", args=["--drop",
         "agee"]),
    Case("the label is to be dropped", r"column 'bought' is needed and cannot be dropped",
         args=["--drop", "bought"]),
    Case("validation rows share no column with training rows", r"val\.csv has none of the feature columns",
         lambda t: [t.drop(name, "val") for name in ("age", "income", "colour", "signup")]),
    Case("the test file lacks a column that validation has", r"test\.csv: column 'age' is missing",
         lambda t: t.drop("age", "test")),
    Case("nothing to learn from: every column is constant", r"no column is left to learn from: .*'age'",
         lambda t: t.each(lambda row: row.update(age=1, income=2, colour="x", signup="2024-01-01"))),
    Case("nothing to learn from but row numbers", r"column 'age' is the only feature and numbers the rows",
         lambda t: [row.update(age=n, income=2, colour="x", signup="2024-01-01")
                    for n, row in enumerate(t.train + t.val + t.test)]),
    Case("text among the numbers of a validation column",
         r"val\.csv: column 'age' held numbers in training but 'old' is none; mend the value",
         put("val", 3, age="old")),
    # labels
    Case("no training row has a label", r"train\.csv: every row lacks the label 'bought'",
         lambda t: t.add("bought", "", "train")),
    Case("no validation row has a label", r"val\.csv: every row lacks the label 'bought'",
         lambda t: t.add("bought", "", "val")),
    Case("a source of which no row has a label",
         r"source 'ct' has no row with a label 'bought'; fill some in",
         lambda t: [row.update(bought="") for row in t.train if row["state"] == "ct"]),
    Case("all training labels are the same", r"label column 'bought': every training row has 'no'",
         lambda t: t.add("bought", "no", "train")),
    Case("a class in validation that no source has", r"val\.csv: label 'maybe' in column 'bought' is in no",
         put("val", 0, bought="maybe")),
    Case("an id as the label", r"label column 'bought' has 1,2\d\d different values, too many for classes",
         lambda t: t.train.extend({**t.train[0], "bought": f"id{n}"} for n in range(1200))),
    Case("text labels for a regression", r"label column 'bought': a regression needs numbers; found 'no'",
         args=["--task", "regression"]),
    Case("validation rows of one class, scored by AUROC",
         r"the validation rows: metric 'auroc' compares classes.*choose 'log-loss' or 'accuracy'",
         only("val", lambda row: row["bought"] == "no")),
    Case("a metric for numbers on classes",
         r"metric 'rmse' is for a regression, but this is a classification; choose one of accuracy",
         args=["--metric", "rmse"]),
    Case("class weights for a regression", r"class_weight is for classes; this is a regression", number_label,
         ["--class-weight", "balanced"]),
    # options
    Case("an unknown metric", r"unknown metric 'aucc'; for a classification there are", args=["--metric",
         "aucc"]),
    Case("an unknown policy", r"unknown algorithm 'magic'; the algorithms are", args=["--policy", "magic"]),
    Case("an unknown model", r"unknown model 'forest'; choose one of mlp, linear", args=["--model",
         "forest"]),
    Case("a model that cannot be saved",
         r"a model folder has no safe format for sklearn:RandomForestClassifier: fit it in Python",
         args=["--model", "sklearn:RandomForestClassifier"]),
    Case("a budget of 0", r"budget must be a whole number of at least 1; got 0", args=["--budget", "0"]),
    Case("a budget smaller than one node", r"budget of 4 steps is smaller than one node of 9.*--steps",
         args=["--steps", "9"]),
    Case("a step size of 0", r"lr must be a finite number above 0", args=["--lr", "0"]),
    Case("a batch size of 0", r"batch_size must be a whole number of at least 1", args=["--batch-size", "0"]),
    Case("a negative seed", r"seed must be a whole number of at least 0", args=["--seed", "-1"]),
    Case("no worker", r"workers must be a whole number of at least 1", args=["--workers", "0"]),
    Case("a time limit that is no duration", r"a duration looks like 90s, 10m or 2h; got 'soon'",
         args=["--time-limit", "soon"]),
    Case("a unit, objective or similar choice that there is not", r"unit is one of steps, samples",
         args=["--unit", "epochs"]),
    Case("ν that is neither a number nor auto", r"nu must be a finite number of at least 0, or 'auto'",
         args=["--nu", "much"]),
    Case("ρ out of range", r"rho must be a finite number above 0 and below 1; got 2", args=["--rho", "2"]),
    Case("an unknown return rule",
         r"returns \(--return\) is one of deepest, best; got 'first'", args=["--return", "first"]),
    Case("a least weight for an unknown source", r"unknown source 'tx'; the sources are 'ct', 'fl', 'oh'",
         args=["--min", "tx=0.1"]),
    Case("least weights of more than 1 in all", r"minimum weights sum to 1.4", args=["--min", "fl=0.7",
         "--min", "ct=0.7"]),
    Case("a weight out of range", r"minimum weight of 'fl' must lie between 0 and 1; got 2", args=["--min",
         "fl=2"]),
    Case("a weight that is no number", r"--min takes SRC=W with a number W", args=["--min", "fl=much"]),
    Case("a greatest weight where the policy cannot keep it",
         r"knows no maximum: leave it out \(--max\), or choose a policy that does: mixmatch-ch",
         args=["--policy", "mixmatch-bisect", "--max", "fl=0.2"]),
    Case("fewer passes than the budget needs", "so few passes over the sources' rows are 0 steps",
         args=["--max-passes", "0.01"]),
    Case("a source file without a name", r"--source takes NAME=FILE; got 'train\.csv'",
         command=["fit", "--source", "train.csv", *without("--source-col")[2:]]),
    Case("a source called target", r"a source cannot be called 'target'",
         lambda t: [row.update(state="target") for row in t.train if row["state"] == "oh"]),
    Case("a categorical column that is not there", r"no column 'shape' to take for categorical",
         args=["--categorical", "shape"]),
    Case("two files for one source", r"--source names 'fl' twice",
         command=["fit", "--source", "fl=train.csv", "--source", "fl=val.csv", *without("--source-col")[2:]]),
    Case("tables and files per source at once",
         r"give tables with --source-col, or --source NAME=FILE for each source, not both", args=["--source",
         "fl=train.csv"]),
    Case("no tables", r"no tables: give some with --source-col, or --source", command=["fit", *FIT[2:]]),
    Case("no source column named", r"which source is a row from\?.*--source-col",
         command=without("--source-col")),
    Case("no label named", r"say which column to predict: --label", command=without("--label")),
    Case("no validation rows named", r"give validation rows of the target.*--val.*--target",
         command=without("--val")),
    Case("no folder named", r"say where the model shall go: --out", command=without("--out")),
    Case("a validation share out of range", r"validation fraction must lie between 0 and 1; got 2",
         command=["fit", *FIT[1:6], "--target", "val.csv", "--val-frac", "2", *FIT[10:]]),
    Case("a target and a test file at once", r"leave out test \(--test\)",
         command=[*without("--val"), "--target", "val.csv"]),
    Case("a target of one row", r"val\.csv: 1 labelled rows cannot be split",
         lambda t: t.val.__delitem__(slice(1, None)),
         command=["fit", *FIT[1:6], "--target", "val.csv", *FIT[10:]]),
    Case("a target of one group", r"val\.csv: group column 'colour' has one group only",
         lambda t: t.add("colour", "red", "val"),
         command=["fit", *FIT[1:6], "--target", "val.csv", "--group-col", "colour", *FIT[10:]]),
    Case("a time column without times", r"val\.csv: time column 'colour' holds neither dates nor numbers",
         command=["fit", *FIT[1:6], "--target", "val.csv", "--time-col", "colour", *FIT[10:]]),
    # places
    Case("a folder for the model that is a file", r"--out val\.csv is a file: name a folder",
         args=["--out", "val.csv"]),
    Case("a study of this name stands there already",
         r"has a study 'fit' already: go on with it \(mixtree resume out fit\), choose another --out",
         args=["--study", "fit", "--out", "out"]),
    Case("a folder with the model of another study",
         r"--out out holds the model of study 'fit' \(auroc .*\), which would be replaced: choose another",
         args=["--storage", "new.db", "--out", "out"]),
    Case("a storage in memory", r"--storage sqlite:// is in memory and ends with the command: name a file",
         args=["--storage", "sqlite://"]),
    Case("a storage that is no database", r"val\.csv: file is not a database", args=["--storage", "val.csv"]),
    Case("a storage in a folder that is not there", r"there is no folder no; make it first",
         args=["--storage", "no/study.db"]),
    Case("a storage URL that is none", r"is no database URL", args=["--storage", "oracel://x/y"]),
    Case("a model to start from that is none", r"val\.csv is no model folder",
         args=["--init", "val.csv"]),
    Case("a model to start from that would be replaced", r"--init and --out are both out", args=["--init",
         "out", "--out", "out"]),
    # a file of options
    Case("a file of options that does not exist", r"options\.toml: no such file", command=["fit",
         "options.toml"]),
    Case("a file of options that is no TOML", r"options\.toml is not valid TOML.*line 1",
         raw("options.toml", lambda t: b"label: bought"), command=["fit", "options.toml"]),
    Case("an unknown key in a file of options", r"options\.toml: unknown key 'lable'; the keys are tables",
         raw("options.toml", lambda t: b'lable = "bought"'), command=["fit", "options.toml"]),
    Case("a wrong type in a file of options", r"options\.toml: budget must be a whole number; got 'many'",
         raw("options.toml", lambda t: b'budget = "many"'), command=["fit", "options.toml"]),
    # predict, resume, show, export
    Case("predict: a column is missing", r"val\.csv: the model needs column 'age'; the table has",
         lambda t: t.drop("age", "val"), command=["predict", "out", "val.csv", "-o", "p.csv"]),
    Case("predict: no model folder",
         r"nowhere is no model folder: it has no model\.json; make one with mixtree",
         command=["predict", "nowhere", "val.csv", "-o", "p.csv"]),
    Case("predict: damaged weights", r"weights\.safetensors is damaged",
         raw("out/weights.safetensors", lambda t: b"junk"), command=["predict", "out", "val.csv", "-o",
         "p.csv"]),
    Case("predict: damaged preprocessing", r"preprocessing\.json is damaged",
         raw("out/preprocessing/preprocessing.json", lambda t: b"{}"),
         command=["predict", "out", "val.csv", "-o", "p.csv"]),
    Case("predict: damaged metadata", r"model\.json is damaged", raw("out/model.json", lambda t: b"[1"),
         command=["predict", "out", "val.csv", "-o", "p.csv"]),
    Case("predict: a format that cannot be written", r"predictions are written as \.csv or \.parquet",
         command=["predict", "out", "val.csv", "-o", "p.xlsx"]),
    Case("predict: a folder that is not there", r"there is no folder no",
         command=["predict", "out", "val.csv", "-o", "no/p.csv"]),
    Case("predict: the predictions would replace the table", r"would replace the table val\.csv",
         command=["predict", "out", "val.csv", "-o", "val.csv"]),
    Case("predict: a column to keep that is not there", r"val\.csv has no column 'id' to keep",
         command=["predict", "out", "val.csv", "-o", "p.csv", "--keep", "id"]),
    Case("show: no study there", r"there is no study file nowhere", command=["show", "nowhere"]),
    Case("show: an unknown study", r"there is no study 'x' in out/study\.db; its studies: 'fit'",
         command=["show", "out", "x"]),
    Case("show: a file that is no study", r"val\.csv: file is not a database", command=["show", "val.csv"]),
    Case("resume: a smaller budget", r"it can be raised, not lowered to 2",
         command=["resume", "out", "--budget", "2"]),
    Case("export: an unknown format", r"unknown format 'xml'; choose one of json",
         command=["export", "out", "--format", "xml"]),
    Case("export: an ONNX model without a file", r"say where it shall go \(-o model\.onnx\)",
         command=["export", "out", "--format", "onnx"]),
    Case("compare: no repeats", r"--repeats must be 1 to 1,000; got 0",
         command=["compare", *without("--study")[1:-2], "--repeats", "0"]),
    Case("compare: an unknown algorithm", r"unknown algorithm 'best'",
         command=["compare", *without("--study")[1:-2], "--algorithms", "best"]),
]  # fmt: skip

CODES = {"red": ("007", "p"), "green": ("07", "q"), "blue": ("a", "r")}
"""Codes, and plain words that sort alike."""

WORKED = [
    Case("a constant column", r"warning: column 'unit' is dropped: it has one value only \('kg'\)",
         lambda t: t.add("unit", "kg"), like=lambda t: None),
    Case("a column without any value", r"warning: column 'note' is dropped: all its values are missing",
         lambda t: t.add("note", ""), like=lambda t: None),
    Case("a column of ids", r"warning: column 'id' is dropped: every value is different",
         lambda t: [row.update(id=f"x{n}") for n, row in enumerate(t.train + t.val + t.test)],
         like=lambda t: None),
    Case("a saved row index without a name", r"warning: the column without a name .* is dropped",
         lambda t: [row.update({"": n}) for n, row in enumerate(t.train + t.val + t.test)],
         like=lambda t: None),
    Case("dates as text", r"date: signup \(text, read as %Y-%m-%d\)"),
    Case("dates that may be day/month or month/day", r"warning: column 'signup': .* read as month/day",
         lambda t: t.each(lambda row: row.update(signup=f"{row['signup'][5:7]}/03/2024")),
         like=lambda t: t.each(lambda row: row.update(signup=f"2024-{row['signup'][5:7]}-03"))),
    Case("huge integers", r"numeric: age, income",
         lambda t: t.each(lambda row: row.update(age=row["age"] * 10**30))),
    Case("infinities",
         r"warning: column 'income' has infinite .* numbers in 1 training rows: they are taken for",
         put("train", 5, income="inf"), like=put("train", 5, income="")),
    Case("the words NA, NaN, null, None", r"numeric: age, income",
         all_of(put("train", 5, income="NA"), put("train", 6, income="null"), put("val", 1, income="NaN")),
         like=all_of(put("train", 5, income=""), put("train", 6, income=""), put("val", 1, income=""))),
    Case("missing values", r"numeric: age, income", put("train", 5, income="", colour="", signup="")),
    Case("a byte order mark", r"rows: ct 20, fl 20, oh 20",
         raw("train.csv", lambda t: t.text("train").encode("utf-8-sig")), like=lambda t: None),
    Case("spaces around names and values", r"categorical: colour",
         raw("train.csv", lambda t: t.text("train").replace(",", " , ").encode()), like=lambda t: None),
    Case("semicolons instead of commas", r"rows: ct 20, fl 20, oh 20",
         raw("train.csv", lambda t: t.text("train", delimiter=";").encode()), like=lambda t: None),
    Case("semicolons, and decimal commas", r"numeric: age, income",
         raw("train.csv", lambda t: t.text("train", delimiter=";").replace(".", ",").encode()),
         like=lambda t: None),
    Case("Windows line ends", r"rows: ct 20, fl 20, oh 20",
         raw("train.csv", lambda t: t.text("train").replace("\n", "\r\n").encode()), like=lambda t: None),
    Case("empty lines at the end", r"rows: ct 20, fl 20, oh 20",
         lines("train", lambda found: found.extend(["", ""])), like=lambda t: None),
    Case("a line break inside a quoted value", r"categorical: colour",
         lambda t: t.each(lambda row: row.update(colour=row["colour"].replace("e", "\n")))),
    Case("names that are not ASCII, or look like markup", r"numeric: Größe \[m²\], \[/bold\]",
         all_of(rename("age", "Größe [m²]"), rename("income", "[/bold]")),
         like=lambda t: None),
    Case("source names that are not ASCII, or look like markup", r"rows: \[red\] 20, fl 20, öst\|erreich 20",
         lambda t: [row.update(state={"ct": "[red]", "oh": "öst|erreich"}.get(row["state"], "fl"))
                    for row in t.train], like=lambda t: None),
    Case("training rows without a label", r"warning: 2 of 62 training rows have no \(finite\) label 'bought'",
         lambda t: t.train.extend([{**t.train[0], "bought": ""}] * 2), like=lambda t: None),
    Case("validation rows without a label", r"warning: 1 of 21 validation rows have no",
         lambda t: t.val.append({**t.val[0], "bought": ""}), like=lambda t: None),
    Case("a class that is missing in one source", r"warning: source 'ct' has no row of class 'yes'",
         lambda t: [row.update(bought="no") for row in t.train if row["state"] == "ct"]),
    Case("a source with one row", r"warning: source 'tx' has one row only",
         lambda t: t.train.append({**t.train[0], "state": "tx"})),
    Case("one source only", r"rows: fl 20; 20 validation", only("train", lambda row: row["state"] == "fl")),
    Case("a class that is missing in validation", r"warning: validation has no row of class 'yes'",
         only("val", lambda row: row["bought"] == "no"), ["--metric", "accuracy"]),
    Case("test rows of one class, scored by AUROC", r"warning: no test score: the test rows: metric 'auroc'",
         only("test", lambda row: row["bought"] == "no")),
    Case("a column that validation does not have", r"warning: column 'extra' is not in .*val\.csv: dropped",
         lambda t: [row.update(extra=n % 5) for n, row in enumerate(t.train)], like=lambda t: None),
    Case("a column that only validation has",
         r"warning: column 'extra' of .*val\.csv is in no training table: ign",
         lambda t: t.add("extra", 1, "val", "test"), like=lambda t: None),
    Case("a level that no training row has", r"categorical: colour", put("val", 0, colour="ultraviolet")),
    Case("a rare level", r"categorical: colour", put("train", 0, colour="ultraviolet")),
    Case("rows that stand in a source and in validation",
         r"warning: 2 of 20 validation rows also stand in source",
         lambda t: [t.val[n].update({k: v for k, v in t.train[n].items() if k != "state"}) for n in (0, 1)]),
    Case("numbers as classes", r"rows: ct 20, fl 20, oh 20",
         lambda t: t.each(lambda row: row.update(bought=int(row["bought"] == "yes"))), like=lambda t: None),
    Case("true and false as classes", r"rows: ct 20, fl 20, oh 20",
         lambda t: t.each(lambda row: row.update(bought=str(row["bought"] == "yes").lower())),
         like=lambda t: None),
    Case("codes with leading zeros beside other text", r"categorical: colour",
         lambda t: t.each(lambda row: row.update(colour=CODES[row["colour"]][0])),
         like=lambda t: t.each(lambda row: row.update(colour=CODES[row["colour"]][1]))),
]  # fmt: skip


def run(args: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command, in this process."""
    from mixtree import cli

    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["mixtree", *args]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
        code: Any = 0
    except SystemExit as stopped:
        code = stopped.code or 0
    finally:
        sys.argv = argv
    return int(code), out.getvalue(), err.getvalue()


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A folder in which a study has finished."""
    folder = tmp_path_factory.mktemp("earlier")
    Tables().write(folder)
    with contextlib.chdir(folder):
        assert run([*FIT, "--study", "fit", "--out", "out"])[0] == 0
    return folder


def prepared(earlier: Path, folder: Path, change: Change) -> None:
    shutil.copytree(earlier / "out", folder / "out")
    tables = Tables()
    change(tables)
    tables.write(folder)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.kind)
def test_refused_in_one_line_and_nothing_is_touched(case, earlier, tmp_path, monkeypatch):
    prepared(earlier, tmp_path, case.change)
    monkeypatch.chdir(tmp_path)
    before = hashes(tmp_path)
    code, out, err = run([*(case.command or FIT), *case.args])
    last = err.strip().splitlines()[-1]
    assert code == 2, err
    assert re.match(f"mixtree: .*{case.says}", last), last
    assert out == ""
    assert hashes(tmp_path) == before


@pytest.mark.parametrize("case", WORKED, ids=lambda case: case.kind)
def test_worked_with_said_and_right(case, tmp_path, monkeypatch):
    def fitted(name: str, change: Change) -> tuple[str, dict[str, Any]]:
        folder = tmp_path / name
        folder.mkdir()
        tables = Tables()
        change(tables)
        tables.write(folder)
        monkeypatch.chdir(folder)
        code, out, err = run([*FIT, *case.args, "--json"])
        assert code == 0, err
        assert run(["predict", "new", "test.csv", "-o", "p.csv"])[0] == 0
        return err, json.loads(out)

    said, found = fitted("broken", case.change)
    assert re.search(case.says, said), said
    assert sum(found["mixture"].values()) == pytest.approx(1)
    assert 0 <= found["val_score"] <= 1
    if case.like is not None:
        fitted("mended", case.like)
        model, mended = (tmp_path / name / "new" / "weights.safetensors" for name in ("broken", "mended"))
        assert model.read_bytes() == mended.read_bytes()


def test_there_are_at_least_forty_kinds():
    assert len({case.kind for case in REFUSED + WORKED}) >= 40


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page()


def page() -> str:
    """The table for people."""
    rows = [f"| {case.kind} | refused | {_said(case.says)} |" for case in REFUSED]
    for case in WORKED:
        verdict = "works, with a warning" if case.says.startswith("warning") else "works"
        words = _said(case.says) if case.says.startswith(("warning", "date")) else ""
        rows.append(f"| {case.kind} | {verdict} | {words} |")
    return INTRODUCTION + "\n".join(rows) + "\n"


def _said(pattern: str) -> str:
    """A pattern as a reader would write it."""
    plain = re.sub(r"\\(.)", r"\1", pattern.replace(".*", " … ").replace(r"\d+", "3").replace(r"\d\d", "00"))
    return " ".join(plain.removeprefix("warning: ").split()).strip("… ").replace("|", r"\|")


INTRODUCTION = """\
# Broken input

<!-- Made by `python tests/cli/test_broken_input.py > docs/broken-input.md`; a test checks it. -->

What becomes of input with something wrong in it. *Refused*: one line says what is wrong, where, and what to
do; the exit code is 2; files and earlier results stay as they are, to the byte. *Works*: a model is
fitted and predicts; where the table can be mended by hand, it is the very model of the mended table, and what
was changed or left out is said. Every row is a test.

| what is wrong | what happens | what is said (in part) |
| --- | --- | --- |
"""

if __name__ == "__main__":
    sys.stdout.write(page())
