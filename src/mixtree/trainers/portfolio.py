"""Several fitted models whose weighted mean predicts: a portfolio, as plain arrays too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree.data.plain import read
from mixtree.data.typed import Layout
from mixtree.errors import InputError
from mixtree.trainers.families import FAMILIES, Arrays, Fitted, Table, Task, family_name, read_family
from mixtree.trainers.rows import as_bytes, from_bytes

Array = NDArray[np.float64]

AUTO = "auto"
"""The name of a portfolio among the models."""

_ABOUT = {
    "sources": int,
    "classes": int,
    "members": [
        {
            "name": str,
            "family": set(FAMILIES),
            "column": bool,
            "scale": {"centre": float, "spread": float, "log": bool, "low": float, "high": float},
            "weight": float,
        }
    ],
}
_BEYOND = 1.0  # spreads that a prediction on the log scale may leave the labels' range by


@dataclass(frozen=True, slots=True)
class Units:
    """The scale on which a member learns a regression's labels: their logarithms or not, at size 1."""

    centre: float = 0.0
    spread: float = 1.0
    log: bool = False
    low: float = 0.0
    high: float = 0.0

    @classmethod
    def of(cls, y: NDArray[Any], *, log: bool) -> Units:
        """Of these labels."""
        values = np.log(y) if log else np.asarray(y, dtype=np.float64)
        centre, spread = float(values.mean()), float(values.std()) or 1.0
        ends = (values.min() - centre) / spread, (values.max() - centre) / spread
        return cls(centre, spread, log, float(ends[0]) - _BEYOND, float(ends[1]) + _BEYOND)

    def scaled(self, y: NDArray[Any]) -> Array:
        """Labels as the member learns them."""
        values = np.log(y) if self.log else np.asarray(y, dtype=np.float64)
        return np.asarray((values - self.centre) / self.spread)

    def back(self, values: Array) -> Array:
        """Predictions in the label's own units."""
        if not self.log:
            return values * self.spread + self.centre
        # The logarithm of what is far outside would be a number without end.
        return np.asarray(np.exp(np.clip(values, self.low, self.high) * self.spread + self.centre))


@dataclass(frozen=True, eq=False, slots=True)
class Member:
    """One model of a portfolio.

    Parameters
    ----------
    name
        Its own.
    fitted
        The model.
    column
        Whether where a row comes from is one of its features.
    units
        Of a regression's labels.
    """

    name: str
    fitted: Fitted
    column: bool
    units: Units

    def predict(self, plain: Table, target: Table) -> Array:
        """Class probabilities, or numbers in the label's own units.

        Parameters
        ----------
        plain
            The rows.
        target
            The same with the source as a column.
        """
        found = self.fitted.predict(target if self.column else plain)
        return found if found.ndim == 2 else self.units.back(found)


@dataclass(frozen=True, eq=False, slots=True)
class Portfolio:
    """Members and their weights, which add up to 1.

    Parameters
    ----------
    members
        Those of weight above 0.
    weights
        One for each.
    layout
        Where a table's columns are among the features.
    sources
        How many there were; the target's number where the source is a column.
    classes
        Of the labels; 0 in a regression.
    """

    members: tuple[Member, ...]
    weights: tuple[float, ...]
    layout: Layout
    sources: int
    classes: int

    def tables(self, x: Any) -> tuple[Table, Table]:
        """Rows of the target as members take them: without, and with the source as a column."""
        plain = Table.of(x, self.layout)
        return plain, plain.with_source(np.full(len(plain), self.sources), self.sources)

    def predict(self, x: Any) -> Array:
        """Class probabilities (n, classes), or numbers (n,), of rows of the target."""
        plain, target = self.tables(x)
        parts = zip(self.weights, self.members, strict=True)
        return np.asarray(sum(weight * member.predict(plain, target) for weight, member in parts))

    def arrays(self) -> Arrays:
        """All of it, as plain data."""
        members = [
            {
                "name": member.name,
                "family": family_name(member.fitted),
                "column": member.column,
                "scale": asdict(member.units),
                "weight": weight,
            }
            for member, weight in zip(self.members, self.weights, strict=True)
        ]
        about = {"sources": self.sources, "classes": self.classes, "members": members}
        saved = {"portfolio": from_bytes(json.dumps(about).encode())}
        saved |= {f"layout/{name}": array for name, array in self.layout.arrays().items()}
        for member in self.members:
            saved |= {f"{member.name}/{name}": array for name, array in member.fitted.arrays().items()}
        return saved

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], like: Any) -> Portfolio:
        """What `arrays` gave; ValueError where it is damaged.

        Parameters
        ----------
        arrays
            Of a portfolio.
        like
            Rows of the features that it takes; no more than one is looked at.
        """
        about = read(as_bytes(arrays["portfolio"]).decode(), _ABOUT)
        layout = Layout.from_arrays(_within(arrays, "layout"))
        self = cls((), (), layout, about["sources"], about["classes"])
        plain, target = self.tables(like[:1])
        members = []
        for each in about["members"]:
            name = each["name"]
            task, table = Task(about["classes"]), target if each["column"] else plain
            own = read_family(each["family"], _within(arrays, name), table, task)
            members.append(Member(name, own, each["column"], Units(**each["scale"])))
        weights = tuple(each["weight"] for each in about["members"])
        if not members or not np.isclose(sum(weights), 1.0):
            raise ValueError("the weights of its members do not add up to 1")
        return cls(tuple(members), weights, layout, about["sources"], about["classes"])


def _within(arrays: Mapping[str, NDArray[Any]], name: str) -> Arrays:
    """The arrays whose names begin with this one, by the rest of their names."""
    start = f"{name}/"
    return {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}


class PortfolioReader:
    """What predicts with a saved portfolio as a trainer predicts with its saved state.

    Parameters
    ----------
    like
        Rows of the features that the portfolio takes.
    """

    def __init__(self, like: Any) -> None:
        self.like = like

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> Portfolio:
        """The portfolio that was saved."""
        if "portfolio" not in arrays:
            raise InputError("these arrays are no portfolio's")
        return Portfolio.from_arrays(arrays, self.like)

    def predict(self, state: Portfolio, x: Any) -> Array:
        """Class probabilities (n, classes), or numbers (n,)."""
        return state.predict(x)
