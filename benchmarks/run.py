"""All benchmarks: ``make bench``. Ratios come from interleaved runs in one process; no time is ever asserted.

Prints a table, writes results/latest.json (a list of {name, ratio, target, met}) and docs/results/speed.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
# The search comes first: its peak memory is the process's own, before anything else has grown it.
MODULES = ("search", "mlp", "torch_module", "storage", "tables", "portfolio")


def load(name: str):
    """The benchmark file of this name as a module; benchmarks are files, not a package."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


NOISE = 1 / 8
"""By so much a ratio differs from run to run on a shared machine: a target this near counts as met."""

INTRODUCTION = """# Speed: what was measured

Written by `make bench` (benchmarks/run.py). Ratios come from interleaved runs on one machine and compare
CPU times; the *tidy torch loop* is what a good user writes: one thread, indices drawn ahead, no needless
copies. From run to run a ratio differs by up to an eighth on such a machine: a target that is missed by less
counts as met, *within the noise*. The engines: [engines.md](../engines.md).

"""


def document(rows: list[dict]) -> str:
    """The page of results."""
    lines = ["| what | measured | target | met |", "| --- | --- | --- | --- |"]
    for row in rows:
        met = {True: "yes", False: "**no**", None: ""}[row.get("met")]
        if row.get("met") is False and abs(row["ratio"] / row["target"] - 1) <= NOISE:
            met = "within the noise"
        lines.append(f"| {row['name']} | {row['ratio']:.4g} | {row.get('target') or '–'} | {met} |")
    return INTRODUCTION + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", default=MODULES, help=f"which ones (default: {', '.join(MODULES)})"
    )
    chosen = parser.parse_args().names
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.path.insert(0, str(HERE))
    rows = []
    for name in chosen:
        for row in load(name).measure():
            rows.append(row)
            mark = {True: "met", False: "MISSED", None: ""}[row.get("met")]
            print(
                f"{row['name']:<70} {row['ratio']:>10.4g}  target {row.get('target') or '-':>8}  {mark}",
                flush=True,
            )
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    kept = []
    latest = results / "latest.json"
    if set(chosen) != set(MODULES) and latest.exists():
        names = {row["name"] for row in rows}
        kept = [row for row in json.loads(latest.read_text(encoding="utf-8")) if row["name"] not in names]
    latest.write_text(json.dumps(kept + rows, indent=1) + "\n", encoding="utf-8")
    page = HERE.parent / "docs" / "results" / "speed.md"
    page.write_text(document(kept + rows), encoding="utf-8")


if __name__ == "__main__":
    main()
