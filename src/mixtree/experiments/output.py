"""A comparison on disk: CSV of every run, JSON of runs and summary, a figure."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from mixtree.data.files import blank_figure, write_csv, write_figure, write_file
from mixtree.errors import MissingExtraError
from mixtree.experiments.comparison import Run, Summary

_log = logging.getLogger(__name__)


def write_comparison(
    folder: Path,
    runs: Sequence[Run],
    summaries: Sequence[Summary],
    *,
    metric: str,
    title: str,
    rows: str = "test rows",
) -> list[Path]:
    """Write runs.csv, summary.csv, results.json and, with the extra ``plot``, scores.png."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / name for name in ("summary.csv", "runs.csv", "results.json", "scores.png")]
    write_csv(files[0], [_flat(asdict(each)) for each in summaries])
    write_csv(files[1], [_flat(asdict(each)) for each in runs])
    results = {"metric": metric, "runs": plain(runs), "summary": plain(summaries)}
    write_file(files[2], json.dumps(results, indent=1) + "\n")
    try:
        _write_figure(files[3], summaries, metric=metric, title=title, rows=rows)
    except MissingExtraError as error:
        _log.warning("%s is left out: %s", files.pop().name, error)
    return files


def plain(rows: Sequence[Run] | Sequence[Summary]) -> list[dict[str, Any]]:
    """Rows as JSON can hold them."""
    # JSON has no NaN: a score that does not exist is null.
    return [
        {
            key: None if isinstance(value, float) and not isfinite(value) else value
            for key, value in asdict(row).items()
        }
        for row in rows
    ]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat.update({f"{key}_{inner}": number for inner, number in value.items()})
        else:
            flat[key] = value
    return flat


def _write_figure(path: Path, summaries: Sequence[Summary], *, metric: str, title: str, rows: str) -> None:
    shown = [each for each in summaries if isfinite(each.score)]
    figure = blank_figure(figsize=(7.0, 0.8 + 0.32 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    for place, each in enumerate(reversed(shown)):
        colour = "tab:orange" if each.algorithm.startswith(("mixmatch", "default")) else "tab:blue"
        sd = each.sd if isfinite(each.sd) else 0.0
        axes.errorbar(each.score, place, xerr=sd, fmt="o", color=colour, capsize=3)
    axes.set_yticks(range(len(shown)), [each.algorithm for each in reversed(shown)])
    axes.set_xlabel(f"{metric} on {rows}, mean ± sd")
    axes.set_title(title)
    axes.grid(axis="x", alpha=0.3)
    write_figure(path, figure, dpi=150)
