"""A large CSV file made ready for training: time beside ``polars.read_csv``, and peak memory.

    python benchmarks/tables.py [--quick] [--json]

The file (1 GB; 50 MB with --quick) is generated in a temporary folder: numbers, text of few and of many
values, dates, gaps, a source and a label column. Each run is a process of its own, so that its peak of memory
is its own; a reading before and one after share out what else the machine does. Figures stand beside targets,
nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

SIZE, QUICK = 1_000_000_000, 50_000_000
TIMES, MEMORY = 20.0, 4.0  # × polars.read_csv, GB
SOURCES = ("east", "north", "south", "west")
_BLOCK, _ROW = 200_000, 200  # rows at a time, bytes of a row

Row = dict[str, Any]


def measure(*, size: int = SIZE) -> list[Row]:
    """Rows {name, ratio, target, met}: how often the time of polars.read_csv, and how many GB at most."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate(folder / "training.csv", size)
        generate(folder / "validation.csv", size // 1000, seed=1)
        runs = [_run(what, folder) for what in ("read", "load", "read")]
    reading = (runs[0]["seconds"] + runs[2]["seconds"]) / 2
    load = runs[1]
    ratio, peak = load["seconds"] / reading, load["peak"]
    what = f"CSV of {size / 1e9:g} GB, {load['rows']:,} rows -> {load['features']:,} features"
    return [
        {
            "name": f"{what}: time x polars.read_csv (at most)",
            "ratio": round(ratio, 2),
            "target": TIMES,
            "met": ratio <= TIMES,
            "seconds": {"polars.read_csv": round(reading, 2), "load_tables": round(load["seconds"], 2)},
        },
        {
            "name": f"{what}: peak memory in GB (at most)",
            "ratio": round(peak, 2),
            "target": MEMORY,
            "met": peak <= MEMORY,
        },
    ]


def generate(path: Path, size: int, *, seed: int = 0) -> None:
    """Writes a CSV file of about this size: mixed columns, five of them text, two of them dates."""
    rng = np.random.default_rng(seed)
    with path.open("wb") as file:
        while file.tell() < size:
            count = min(_BLOCK, (size - file.tell()) // _ROW + 1)
            _block(rng, count).write_csv(file, include_header=file.tell() == 0)


def _block(rng: np.random.Generator, count: int) -> pl.DataFrame:
    def pick(words: list[Any], shares: Any = None) -> pl.Series:
        return pl.Series(words)[rng.choice(len(words), count, p=shares)]

    def many(stem: str, kinds: int) -> pl.Series:
        return pl.Series([f"{stem}{n:05d}" for n in range(kinds)])[
            np.minimum(rng.zipf(1.2, count), kinds) - 1
        ]

    start = np.datetime64("2015-01-01", "us")
    seconds = rng.integers(0, 3000 * 86400, (2, count))
    moments = [pl.Series(start + part * np.timedelta64(1_000_000, "us")) for part in seconds]
    reals = {f"real{n}": np.round(rng.normal(n, 10.0 ** (n % 4), count), 4) for n in range(12)}
    return pl.DataFrame(
        {
            "source": pick(list(SOURCES), [0.15, 0.5, 0.3, 0.05]),
            "city": many("city ", 300),
            "product": many("item-", 20_000),
            "colour": pick(["red", "green", "blue", None, "violet"]),
            "member": rng.random(count) < 0.3,
            "day": moments[0].dt.date(),
            "moment": moments[1].dt.strftime("%Y-%m-%d %H:%M:%S"),
            **reals,
            **{f"count{n}": rng.integers(0, 10 ** (n + 1), count) for n in range(6)},
            "gap": pl.Series(np.round(rng.normal(size=count), 3)).set(
                pl.Series(rng.random(count) < 0.1), None
            ),
            "label": pl.Series(["no", "yes"])[(reals["real0"] + rng.normal(size=count) > 0).astype(int)],
        }
    )


def _run(what: str, folder: Path) -> Row:
    command = [sys.executable, __file__, "--run", what, str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result: Row = json.loads(done.stdout)
    return result


def _read(folder: Path) -> Row:
    return {"rows": pl.read_csv(folder / "training.csv").height}


def _load(folder: Path) -> Row:
    from mixtree.data.tables import TableSpec, load_tables

    data = load_tables(
        TableSpec(
            tables=folder / "training.csv",
            source_col="source",
            label="label",
            val=folder / "validation.csv",
        )
    )
    sources = data.problem_sources
    return {"rows": int(sources.sizes.sum()), "features": sources.features, "warnings": data.warnings}


def _timed(run: Callable[[Path], Row], folder: Path) -> Row:
    start = time.perf_counter()
    result = run(folder)
    seconds = time.perf_counter() - start
    # Kilobytes on Linux, bytes on macOS.
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        **result,
        "seconds": seconds,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a file of 50 MB, to try it")
    parser.add_argument("--json", action="store_true", help="print rows as JSON")
    parser.add_argument("--run", choices=["read", "load"], help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.run:
        print(json.dumps(_timed({"read": _read, "load": _load}[chosen.run], chosen.folder)))
        return
    rows = measure(size=QUICK if chosen.quick else SIZE)
    if chosen.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        verdict = "met" if row["met"] else "MISSED"
        print(f"{row['name']:<95} {row['ratio']:>6.3g}  target {row['target']:g}  {verdict}")


if __name__ == "__main__":
    main()
