"""What tells functions and callable objects apart, in this process and in others."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mixtree.data.identity import identity

SHARPNESS, CALLS = 2.0, 0


def power(gamma: float) -> Callable[[float], float]:
    def inner(x: float) -> float:
        return x**gamma

    return inner


def sharpened() -> Callable[[float], float]:
    return lambda x: x**SHARPNESS


def counting() -> Callable[[float], float]:
    count = 0

    def inner(x: float) -> float:
        """Twice."""
        global CALLS
        nonlocal count
        count, CALLS = count + 1, CALLS + 1
        return 2 * x

    return inner


class Focal:
    """A loss with a setting, and with a state that is none."""

    def __init__(self, gamma: float) -> None:
        self.gamma, self._cache = gamma, [0.0]

    def __call__(self, x: float) -> float:
        return x**self.gamma

    def other(self, x: float) -> float:
        return x


class Steeper(Focal):
    def __call__(self, x: float) -> float:
        return 2.0 * x**self.gamma


PAIRS: dict[str, tuple[Any, Any]] = {
    "code": (lambda x: x + 1, lambda x: x - 1),
    "a constant": (lambda x: 2 * x, lambda x: 3 * x),
    "a constant inside": (lambda: lambda x: 2 * x, lambda: lambda x: 3 * x),
    "a function that is called": (lambda x: np.sin(x), lambda x: np.cos(x)),
    "a default": (lambda x, a=1: x * a, lambda x, a=2: x * a),
    "a closure": (power(1.0), power(2.0)),
    "an array in a closure": (power(np.ones(2)), power(np.arange(2.0))),  # type: ignore[arg-type]
    "arguments of a partial": (functools.partial(max, 1), functools.partial(max, 2)),
    "a setting of an object": (Focal(1.0), Focal(2.0)),
    "a method": (Focal(1.0).__call__, Focal(1.0).other),
    "a class": (Focal(1.0), Steeper(1.0)),
    "a set": (lambda x: x in {"a", "b"}, lambda x: x in {"a", "c"}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_is_told_apart(name: str) -> None:
    one, two = PAIRS[name]
    assert identity(one) == identity(one)
    assert identity(one) != identity(two)


def test_a_plain_global_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = identity(sharpened())
    assert identity(sharpened()) == before
    monkeypatch.setattr(sys.modules[__name__], "SHARPNESS", 3.0)
    assert identity(sharpened()) != before


def test_what_a_call_changes_does_not_count() -> None:
    function, loss = counting(), Focal(2.0)
    before = identity(function), identity(loss)
    function(1.0)
    loss._cache.append(1.0)
    assert (identity(function), identity(loss)) == before


def test_what_is_installed_goes_by_its_name() -> None:
    assert identity(np.mean) == "numpy.mean"
    assert identity(functools.reduce) == "_functools.reduce"
    assert identity(functools.partial(np.mean, axis=0)).startswith("partial(numpy.mean, axis=0) #")


def test_tensors_of_torch_count() -> None:
    torch = pytest.importorskip("torch")
    from torch.nn import functional

    assert identity(functional.mse_loss) == "torch.nn.functional.mse_loss"
    weights = [torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, each])) for each in (1.0, 1.0, 2.0)]
    assert identity(weights[0]) == identity(weights[1]) != identity(weights[2])
    half = [torch.tensor([1.0, each], dtype=torch.bfloat16) for each in (1.0, 2.0)]
    assert identity(lambda x: x * half[0]) != identity(lambda x: x * half[1])
    assert identity(power(half[0])) != identity(power(half[1]))  # type: ignore[arg-type]


def test_identities_do_not_depend_on_the_process() -> None:
    code = (
        "from mixtree.data.identity import identity\n"
        "import functools\n"
        "class C:\n    def __call__(self, x): return x in {'a', 'b', 'c', 'dd'}\n"
        "made = [lambda x: x in {'a', 'b', 'c', 'dd'}, C(), functools.partial(C(), 1), C().__call__]\n"
        "print([identity(each) for each in made])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
