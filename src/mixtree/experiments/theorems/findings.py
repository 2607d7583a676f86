"""What an experiment hands to the document: sentences with their numbers, a table, a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mixtree.data.files import blank_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which the colour-blind can tell apart."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim of the theory, what was measured, and whether the two agree."""

    claim: str
    predicted: str
    measured: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Section:
    """One experiment of the document."""

    name: str
    title: str
    text: str
    findings: tuple[Finding, ...]
    draw: Callable[[], Figure]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def number(value: float, digits: int = 3) -> str:
    """A number for people: 0.123, 1.4e+07."""
    return f"{value:.{digits}g}"


def figure(panels: int, *, width: float = 4.4, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels side by side."""
    canvas = blank_figure(figsize=(width * panels, height), layout="constrained")
    axes = list(canvas.subplots(1, panels, squeeze=False)[0])
    for each in axes:
        each.grid(alpha=0.3)
    return canvas, axes
