"""The arena of real tables: every method on the same rows, results kept line by line, and their page."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from mixtree.data.files import write_file
from mixtree.errors import DataError, InputError, MissingExtraError, TrainingError
from mixtree.experiments.arena import paired
from mixtree.experiments.arenareport import Section, markdown
from mixtree.experiments.parallel import Crew, quietly
from mixtree.experiments.rivals import RIVALS, Case, check_rival, cpu_seconds, predict
from mixtree.experiments.tables import (
    LOOKS,
    TABLES,
    VALIDATION_ROWS,
    RealTable,
    Split,
    available,
)
from mixtree.fitting.estimators import MixtureClassifier, MixtureRegressor

DEFAULT = "default"
"""The id of what ``mixtree fit`` does unless told otherwise."""
METHODS = (DEFAULT, *RIVALS)
OWN_ROWS = "own"
"""Of ``--n-val``: the number of target rows that each table was first measured with."""
FILE = "tables.jsonl"
PAGE = "tables.md"


@dataclass(frozen=True, slots=True)
class TableScore:
    """One method on one split of one table."""

    table: str
    rows: int
    """Target rows that the method was given."""
    split: int
    method: str
    score: float | None
    """On the test rows, in the metric's own direction; None where the method cannot do the task."""
    loss: float | None
    """The error: the score where smaller is better, else 1 − the score."""
    cpu: float
    """Seconds of CPU, of fit and prediction."""
    seconds: float
    tested: int
    note: str = ""

    @property
    def key(self) -> tuple[str, int, int, str]:
        """What is run once."""
        return self.table, self.rows, self.split, self.method


Key = tuple[str, int, int, str]


def default_predictions(table: RealTable, split: Split, *, seed: int) -> NDArray[np.float64]:
    """What our default model predicts for the test rows: the one place that says what the default is."""
    kind = MixtureClassifier if table.classes else MixtureRegressor
    # The metric is the table's; the verdict's references are no part of the fit.
    model = kind(metric=table.metric.name, reference="none", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = {"X_val": split.validation_x, "y_val": split.validation_y}
        model.fit(split.x, split.y, source=split.source, **given)
        found = model.predict_proba(split.test_x) if table.classes else model.predict(split.test_x)
    return np.asarray(found, dtype=np.float64)


# -- running ----------------------------------------------------------------------------------------------


def chosen_rows(table: RealTable, wanted: Sequence[int | str]) -> list[int]:
    """The numbers of target rows that are asked for and that the table allows."""
    found = [table.own_rows if count == OWN_ROWS else count for count in wanted or VALIDATION_ROWS]
    allowed = {*table.validation_rows(), table.own_rows}
    return [int(count) for count in dict.fromkeys(found) if count in allowed]


def runnable(methods: Sequence[str]) -> tuple[list[str], list[str]]:
    """The methods that can be run here, and in words why the others cannot."""
    found, missing = [], []
    for method in methods:
        if method not in METHODS:
            raise InputError(f"unknown method {method!r}; the methods are {', '.join(METHODS)}")
        try:
            if method != DEFAULT:
                check_rival(method)
            found.append(method)
        except (InputError, MissingExtraError) as error:
            missing.append(f"{method} is left out: {error}")
    return found, missing


def readable(tables: Sequence[RealTable]) -> tuple[list[RealTable], list[str]]:
    """The tables that can be read here, and in words why the others cannot."""
    why = {table.name: available(table) for table in tables}
    return [table for table in tables if not why[table.name]], [words for words in why.values() if words]


def play(
    file: Path,
    tables: Sequence[RealTable],
    methods: Sequence[str],
    *,
    splits: int,
    rows: Sequence[int | str],
    crew: Crew,
    say: Callable[[str], None],
) -> None:
    """Run what the file does not hold yet, and add every result as a line as soon as it is there.

    Parameters
    ----------
    file
        JSON lines.
    tables, methods
        What is run.
    splits
        How often the target is split anew.
    rows
        Numbers of target rows; all that are usual if there are none.
    crew
        Who works.
    say
        Told about every result.
    """
    done = {each.key for each in read_scores(file)}
    work = [
        key
        for table in tables
        for count in chosen_rows(table, rows)
        for split in range(splits)
        for key in [(table.name, count, split, method) for method in methods]
        if key not in done
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    say(f"{len(work)} runs to do")
    for number, result in enumerate(crew.run(play_one, work), 1):
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(result)) + "\n")
        shown = result.note or f"{result.score:.4f} in {result.cpu:.1f} s of CPU"
        say(f"{number} of {len(work)}: {result.table}, {result.rows} rows, {result.method}: {shown}")


def play_one(name: str, rows: int, number: int, method: str) -> TableScore:
    """One method on one split."""
    (table,) = (each for each in TABLES if each.name == name)
    split = table.split(rows, number)
    case = Case.of_frames(
        (split.x, split.y, split.source),
        (split.validation_x, split.validation_y),
        split.test_x,
        classes=table.classes,
        metric=table.metric,
        seed=number,
    )
    cpu, started, note = cpu_seconds(), time.perf_counter(), ""
    score = loss = None
    try:
        with quietly():
            if method == DEFAULT:
                predictions = default_predictions(table, split, seed=number)
            else:
                predictions = predict(method, case)
    except (InputError, TrainingError) as error:
        note = str(error)
    cpu, seconds = cpu_seconds() - cpu, time.perf_counter() - started
    if not note:
        score = table.metric(split.test_y, predictions)
        loss = 1.0 - score if table.metric.higher_is_better else score
    return TableScore(
        name, rows, number, method, score, loss, round(cpu, 2), round(seconds, 2), len(split.test_y), note
    )


def read_scores(file: Path) -> list[TableScore]:
    """All results of a file; the last of each run."""
    if not file.exists():
        return []
    found: dict[Key, TableScore] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            each = TableScore(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise DataError(f"{file}, line {number}: not a result of this command") from error
        found[each.key] = each
    return list(found.values())


# -- the page ---------------------------------------------------------------------------------------------

HEAD = """# Real tables

Written by `mixtree arena --tables --docs docs` from stored results. What the methods are, which rows
they get, and how the tables were divided: [rivals.md](../rivals.md).

"""


@dataclass(frozen=True, slots=True)
class MethodStanding:
    """One method over all tables."""

    method: str
    rank: float
    regret: float
    """Mean error above the best method's of the same table, as a share of it."""
    cpu: float
    """Geometric mean of seconds."""
    worse: tuple[str, ...]
    """Tables on which the default is surely better, by a paired 95 % interval over splits."""
    better: tuple[str, ...]
    tables: int


Losses = dict[tuple[str, int], dict[str, dict[int, TableScore]]]


def by_table(scores: Sequence[TableScore]) -> Losses:
    """Results by table and number of target rows, then method, then split."""
    found: Losses = {}
    for each in scores:
        if each.loss is not None:
            place = found.setdefault((each.table, each.rows), {})
            place.setdefault(each.method, {})[each.split] = each
    return found


def standings(scores: Sequence[TableScore]) -> list[MethodStanding]:
    """All methods, best mean rank first; several targets of one data set count as one in the means.

    Only splits that all methods of a table have are compared.
    """
    data = {table.name: table.data for table in TABLES}
    ranks: dict[str, dict[str, list[float]]] = {}
    regrets: dict[str, dict[str, list[float]]] = {}
    cpu: dict[str, list[float]] = {}
    sure: dict[str, tuple[list[str], list[str]]] = {}
    for (name, rows), methods in by_table(scores).items():
        losses = _common(methods)
        means = {method: float(each.mean()) for method, each in losses.items()}
        best = min(means.values())
        for method, rank in zip(means, stats.rankdata(list(means.values())), strict=True):
            ranks.setdefault(method, {}).setdefault(data[name], []).append(float(rank))
            regrets.setdefault(method, {}).setdefault(data[name], []).append(means[method] / best - 1.0)
            cpu.setdefault(method, []).extend(max(each.cpu, 0.01) for each in methods[method].values())
            worse, better = sure.setdefault(method, ([], []))
            if DEFAULT in losses and method != DEFAULT and len(losses[method]) > 1:
                _, low, high = paired(losses[method], losses[DEFAULT])
                worse += [f"{name} {rows}"] * (low > 0)
                better += [f"{name} {rows}"] * (high < 0)
    found = [
        MethodStanding(
            method,
            _mean_of_means(ranks[method]),
            _mean_of_means(regrets[method]),
            float(np.exp(np.mean(np.log(cpu[method])))),
            tuple(sure[method][0]),
            tuple(sure[method][1]),
            sum(map(len, ranks[method].values())),
        )
        for method in ranks
    ]
    return sorted(found, key=lambda each: each.rank)


def _mean_of_means(parts: dict[str, list[float]]) -> float:
    return float(np.mean([np.mean(part) for part in parts.values()]))


def _common(methods: dict[str, dict[int, TableScore]]) -> dict[str, NDArray[np.float64]]:
    """Every method's errors on the splits that all of them have."""
    splits = sorted(set.intersection(*(set(each) for each in methods.values())))
    if not splits:
        return {}
    return {name: np.array([each[split].loss for split in splits]) for name, each in methods.items()}


def page(scores: Sequence[TableScore]) -> str:
    """All results as Markdown."""
    looks = f"Looks at the confirm half so far: {len(LOOKS)} of 2"
    told = "".join(f"\n- {each}" for each in LOOKS)
    return HEAD + f"{looks}.{told}\n\n" + markdown(list(_sections(scores)))


def _sections(scores: Sequence[TableScore]) -> Iterator[Section]:
    for half in ("design", "confirm"):
        names = [table.name for table in TABLES if table.half == half]
        own = [each for each in scores if each.table in names]
        if not own:
            continue
        rows = [
            ["method", "tables", "mean rank", "error above the best", "CPU (s)", "default: better, worse"]
        ]
        for each in standings(own):
            against = "" if each.method == DEFAULT else f"{len(each.worse)}, {len(each.better)}"
            figures = f"{each.rank:.2f}", f"{100 * each.regret:.1f} %", f"{each.cpu:.1f}"
            rows.append([each.method, str(each.tables), *figures, against])
        words = (
            "A table counts once for every number of target rows. The error is the MAE, or 1 − AUROC; CPU of "
            "fit and prediction, geometric mean. Last: on how many tables the default is surely better and "
            "surely worse than the method, by paired 95 % intervals over splits."
        )
        yield f"{half.capitalize()} half", words, rows
        yield _scores_section(own, half)


def _scores_section(scores: Sequence[TableScore], half: str) -> Section:
    """Mean scores, one table a row and one method a column; beside the default its paired difference."""
    known = {table.name: table for table in TABLES}
    methods = [name for name in METHODS if any(each.method == name for each in scores)]
    rows = [["table", "target rows", "metric", "splits", *methods]]
    for (name, count), found in sorted(by_table(scores).items()):
        splits = set.intersection(*(set(each) for each in found.values()))
        cells = []
        for method in methods:
            own = [each for split, each in found.get(method, {}).items() if split in splits]
            if not own:
                cells.append("–")
                continue
            mean = float(np.mean([each.score for each in own if each.score is not None]))
            cpu = float(np.mean([each.cpu for each in own]))
            cells.append(f"{_figures(mean)} ({cpu:.1f} s)")
        rows.append([name, str(count), known[name].metric.name, str(len(splits)), *cells])
    words = "Mean score on the test rows, and mean seconds of CPU, over the splits that all methods have."
    return f"Scores, {half} half", words, rows


def _figures(score: float) -> str:
    return f"{score:.4f}" if abs(score) < 10 else f"{score:.1f}"


def write_page(docs: Path, scores: Sequence[TableScore]) -> Path:
    """Write results/tables.md of the documentation."""
    folder = docs / "results"
    folder.mkdir(parents=True, exist_ok=True)
    write_file(folder / PAGE, page(scores))
    return folder / PAGE
