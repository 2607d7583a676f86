"""The table of attacks through Python: arrays, options, names and trainers that nobody should give."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from harness import SECRET, Attack, OwnError
from scipy import sparse

QUICK = {"model": "linear", "budget": 12, "steps": 3, "reference": "none", "holdout": 0.0}


def sound(rows: int = 40, seed: int = 0) -> tuple[Any, Any]:
    x = np.random.default_rng(seed).normal(size=(rows, 3))
    return x, (x[:, 0] > 0).astype(int)


def fitted(x: Any = None, y: Any = None, *, where: str = "a", **options: Any) -> Any:
    """A fit with these features or labels in one of its parts."""
    import mixtree

    parts = {"a": sound(seed=1), "b": sound(seed=2), "val": sound(20, seed=3)}
    old_x, old_y = parts[where]
    parts[where] = old_x if x is None else x, old_y if y is None else y
    val = parts.pop("val")
    return mixtree.fit(parts, val, **{**QUICK, **options})


def estimated(x: Any = None, y: Any = None, *, regression: bool = False, **options: Any) -> Any:
    """The same through an estimator."""
    import mixtree

    kind = mixtree.MixtureRegressor if regression else mixtree.MixtureClassifier
    options = {"estimator": "linear", "budget": 12, "steps": 3, "reference": "none", "holdout": 0.0} | options
    old_x, old_y = sound()
    source = np.array(["a", "b"] * 20)
    return kind(**options).fit(old_x if x is None else x, old_y if y is None else y, source=source)


def features() -> dict[str, Callable[[], Any]]:
    """Forty rows that are not three plain numbers each."""
    x = sound()[0]
    with_nan, with_inf = x.copy(), x.copy()
    with_nan[3, 1], with_inf[3, 1] = np.nan, np.inf
    ring: list[Any] = []
    ring.append(ring)
    return {
        "no columns": lambda: np.empty((40, 0)),
        "no rows": lambda: np.empty((0, 3)),
        "another number of rows": lambda: x[:7],
        "another number of columns": lambda: x[:, :2],
        "one dimension": lambda: x[:, 0],
        "no dimension": lambda: np.float64(1.0),
        "three dimensions": lambda: x[:, :, None],
        "nan": lambda: with_nan,
        "inf": lambda: with_inf,
        "1e308": lambda: x * 1e308,
        "complex": lambda: x + 1j,
        "masked": lambda: np.ma.masked_less(x, 0),
        "text": lambda: x.astype(str),
        "words": lambda: np.array([["a", "b", "c"]] * 40),
        "objects": lambda: np.array([[object()] * 3] * 40),
        "bytes": lambda: np.array([[b"\xff"] * 3] * 40),
        "dates": lambda: np.full((40, 3), np.datetime64("2024-01-01")),
        "truths": lambda: x > 0,
        "whole numbers of 64 bits": lambda: np.full((40, 3), 2**64 - 1, dtype=np.uint64),
        "endless whole numbers": lambda: [[2**2000] * 3] * 40,
        "half precision": lambda: x.astype(np.float16),
        "long doubles": lambda: x.astype(np.longdouble),
        "another byte order": lambda: x.astype(">f8"),
        "a generator": lambda: (row for row in x),
        "None": lambda: [None] * 40,
        "a dictionary": lambda: {"x": x},
        "a set": lambda: {1, 2, 3},
        "text alone": lambda: "forty rows",
        "ragged lists": lambda: [[1.0] * (n % 3 + 1) for n in range(40)],
        "a list in itself": lambda: ring,
        "a sparse matrix": lambda: sparse.csr_matrix(x),
        "a sparse matrix with nan": lambda: sparse.csr_array(with_nan),
        "a sparse matrix of complex numbers": lambda: sparse.csr_array(x + 1j),
        "structured rows": lambda: np.zeros(40, dtype=[("a", "f8"), ("b", "f8")]),
        "records of time": lambda: np.full((40, 3), np.timedelta64(5, "s")),
        "a function": lambda: sound,
    }


def labels() -> dict[str, Callable[[], Any]]:
    """Forty labels that are no classes 0 and 1."""
    y = sound()[1]
    return {
        "none": lambda: [],
        "fewer": lambda: y[:5],
        "two dimensions": lambda: np.stack([y, y], axis=1),
        "complex": lambda: y + 1j,
        "masked": lambda: np.ma.masked_equal(y, 0),
        "nan": lambda: np.where(y > 0, np.nan, 0.5),
        "inf": lambda: np.where(y > 0, np.inf, 0.5),
        "1e306": lambda: np.where(y > 0, 1e306, 0.5),
        "near 2**64": lambda: np.where(y > 0, 2**64 - 1, 2**64 - 2).astype(np.uint64),
        "endless": lambda: [2**2000 + int(each) for each in y],
        "negative": lambda: y - 5,
        "with a gap": lambda: y * 1000,
        "text": lambda: np.where(y > 0, "yes", "no"),
        "half characters": lambda: np.where(y > 0, "\udcff", "no"),
        "objects": lambda: [object() for _ in y],
        "mixed": lambda: ["a" if each else 1 for each in y],
        "lists": lambda: [[each] * (each + 1) for each in y.tolist()],
        "None": lambda: [None] * 40,
        "a generator": lambda: (each for each in y),
        "dates": lambda: np.full(40, np.datetime64("2024-01-01")),
        "bytes": lambda: np.array([b"a", b"b"] * 20),
        "one class": lambda: np.zeros(40, dtype=int),
        "as many classes as rows": lambda: np.arange(40),
        "a number": lambda: 5,
        "a dictionary": lambda: {"y": y},
    }


OPTIONS: dict[str, list[Any]] = {
    "model": ["", "none", 5, None, object(), "sklearn:", "sklearn:os", "../x", lambda: None],
    "policy": ["", "none", 5, "only:none", "uniform+none", object(), "\udcff", "^"],
    "metric": ["", "none", 5, object(), lambda y, p: None, lambda y, p: "x", "\udcff"],
    "budget": [0, -1, 1.5, 2**70, "5", float("nan"), True, [5]],
    "steps": [0, -1, 1.5, 2**70, "5", float("inf"), [5]],
    "batch_size": [0, -1, 1.5, 10**9, 2**70, "5", [5]],
    "lr": [0, -1, float("nan"), float("inf"), "x", 1e300, [1]],
    "seed": [-1, 1.5, 2**70, "x", None, [1]],
    "nu": [-1, float("nan"), "x", [1]],
    "rho": [-1, 0, 2, float("nan"), "x"],
    "minimum": [{"none": 0.5}, {"a": 2}, {"a": float("nan")}, "x", {"a": "x"}, {"a": 0.9, "b": 0.9}],
    "maximum": [{"none": 0.5}, {"a": -1}, {"a": 0.1, "b": 0.1}, 5],
    "class_weight": ["none", {0: -1}, {5: 1}, 5, {"\udcff": 1.0}],
    "objective": ["none", 5, object()],
    "unit": ["none", 5],
    "holdout": [-1, 2, float("nan"), "x"],
    "reference": ["none-such", 5, object()],
    "workers": [0, -1, 1.5, "x"],
    "time_limit": [-1, float("nan"), "x", "2h", [1]],
    "study": ["", 5, None, "\udcff", "x\0y"],
    "storage": [5, "", "none/x.db", "nonsense://x", "text.db", "other.db", "\udcff", object(), "postgresql://x:y:z"],
    "init": [5, "none", "text.db", {"w": np.zeros(3)}, object()],
    "listeners": [5, [5], [None]],
    "test": [5, (1, 2), (np.zeros((3, 9)), np.zeros(3)), ()],
    "classes": [-1, 1, 2**40, "x", 1.5],
    "none_such": [1],
    "width": [0, -1, 2**40, "x"],
    "max_passes": [-1, 0, float("nan"), "x"],
}  # fmt: skip

URLS = [
    f"me:{SECRET}@h/b", f"mysql://me:{SECRET}@h/b", f"postgres://me:{SECRET}@127.0.0.1:1/b",
    f"postgresql://me:{SECRET}@127.0.0.1:port/b", f"postgresql://127.0.0.1:1/b?password={SECRET}",
    f"nonsense://me:{SECRET}@h/b", f"sqlite:///none/x.db?password={SECRET}",
]  # fmt: skip
"""Places of studies that hold a secret."""


class Hostile:
    """A trainer of one number that does one thing wrong."""

    def __init__(self, wrong: str, result: Any) -> None:
        self.wrong, self.result = wrong, result

    def _made(self, method: str, sound: Any) -> Any:
        if self.wrong != method:
            return sound
        return self.result() if callable(self.result) else self.result

    def init(self, seed: int) -> Any:
        return self._made("init", 0.0)

    def train(self, jobs: Any) -> Any:
        return self._made("train", [0.0 for _ in jobs])

    def evaluate(self, states: Any) -> Any:
        from mixtree import Evaluation

        return self._made("evaluate", [Evaluation(0.5) for _ in states])

    def save(self, state: Any) -> Any:
        return self._made("save", {"x": np.array([0.0])})

    def load(self, arrays: Any) -> Any:
        return self._made("load", 0.0)


def own() -> Any:
    raise OwnError("no")


def searched(trainer: Any, **options: Any) -> Any:
    import mixtree
    from mixtree.partition import PARTITIONS

    bisect = PARTITIONS["bisect"]
    search = mixtree.TreeSearch(bisect.root(2), bisect.split, budget=8, steps=2)
    return mixtree.run(search, trainer, **options)


def predicted(rows: Any) -> Any:
    return fitted().predict(rows)


def all_calls(seed: int = 27) -> list[Attack]:
    """The whole table."""
    return list(_calls(random.Random(seed)))


def _calls(draw: random.Random) -> Iterator[Attack]:
    def attack(name: str, python: Callable[[], Any], must: str = "answer", *, stays: bool = False) -> Attack:
        return Attack("Python", name, python=python, must=must, stays=stays)

    for name, x in features().items():
        where = draw.choice(["a", "val"])
        yield attack(f"fit, features of {where}: {name}", lambda x=x, where=where: fitted(x(), where=where))
        yield attack(
            f"estimator, features: {name}", lambda x=x: estimated(x(), regression=draw.random() < 0.3)
        )
        yield attack(f"predict: {name}", lambda x=x: predicted(x()))
    for name, y in labels().items():
        where = draw.choice(["a", "val"])
        yield attack(f"fit, labels of {where}: {name}", lambda y=y, where=where: fitted(y=y(), where=where))
        yield attack(f"classifier, labels: {name}", lambda y=y: estimated(y=y()))
        yield attack(f"regressor, labels: {name}", lambda y=y: estimated(y=y(), regression=True))
    for option, values in OPTIONS.items():
        for value in values:
            # ascii: an object's address would not be the same twice.
            shown = ascii(value)[:30] if type(value) is not object and not callable(value) else "an object"
            yield attack(f"fit, {option}={shown}", partial(fitted, **{option: value}))
    for option in (
        "policy",
        "metric",
        "budget",
        "steps",
        "batch_size",
        "lr",
        "minimum",
        "study",
        "storage",
        "time_limit",
    ):
        for value in draw.sample(OPTIONS[option], 2):
            shown = ascii(value)[:30] if type(value) is not object and not callable(value) else "an object"
            yield attack(f"estimator, {option}={shown}", partial(estimated, **{option: value}))
    results: dict[str, Any] = {
        "None": None, "text": "x", "a number": 5, "an empty list": [], "too many": [0.0] * 99,
        "an error": own,
        "a generator": lambda: (each for each in ()), "half a character": "\udcff", "an object": object,
        "nan": float("nan"),
    }  # fmt: skip
    for method in ("train", "evaluate", "save", "load"):
        for name, result in results.items():
            storage = {"storage": "hostile.db"} if method in ("save", "load") else {}
            yield attack(
                f"a trainer whose {method} gives {name}",
                partial(searched, Hostile(method, result), **storage),
                stays=True,
            )

    def evaluations(value: Any, **more: Any) -> Any:
        from mixtree import Evaluation

        return [Evaluation(value, **more)] * 2

    for name, value in (
        ("nan", np.nan),
        ("None", None),
        ("text", "x"),
        ("complex", 1j),
        ("2**2000", 2**2000),
        ("an array", np.zeros(3)),
    ):
        yield attack(
            f"an evaluation of {name}",
            lambda value=value: searched(Hostile("evaluate", lambda: evaluations(value))),
        )
        yield attack(
            f"predictions of {name}",
            lambda value=value: searched(
                Hostile("evaluate", lambda: evaluations(0.5, predictions=value)),
                keep_predictions=True,
                storage="p.db",
            ),
            stays=True,
        )
    for name in ("\udcff", "", " ", "a\0b", "x" * 10_000, "\x1b[31m", 5, None, ("a",), 1.5, "..", "a\nb"):

        def named(name: Any = name) -> Any:
            import mixtree

            return mixtree.fit(
                {name: sound(seed=1), "b": sound(seed=2)}, sound(20, 3), **QUICK, storage="names.db"
            )

        yield attack(f"a source named {ascii(name)[:30]}", named)
    for name, sources in {
        "nothing": {}, "None": None, "a list": [sound()], "text": "x", "one array": {"a": sound()[0]},
        "three parts": {"a": (*sound(), 1)}, "None in it": {"a": None}, "itself": {"a": {"a": 1}},
    }.items():  # fmt: skip

        def mixed(sources: Any = sources) -> Any:
            import mixtree

            return mixtree.fit(sources, sound(20, 3), **QUICK)

        yield attack(f"sources: {name}", mixed)
    for name in ("text.db", "other.db", "empty.db", "none.db", "model", "mine", "", "\udcff", 5, None):

        def loaded(name: Any = name) -> Any:
            import mixtree

            return mixtree.load(name, "none")

        def model(name: Any = name) -> Any:
            import mixtree

            return mixtree.load_model(name)

        yield attack(f"load({ascii(name)})", loaded, "refuse")
        yield attack(f"load_model({ascii(name)})", model, "work" if name == "model" else "refuse")
    for url in URLS:

        def read(url: str = url) -> Any:
            import mixtree

            return mixtree.load(url, "none")

        shown = ascii(url.replace(SECRET, "…"))
        yield attack(f"load({shown})", read, "refuse")
        yield attack(f"fit, storage={shown}", partial(fitted, storage=url), "refuse")
