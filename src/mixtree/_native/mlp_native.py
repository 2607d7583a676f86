"""The compiled kernel of the built-in linear models and MLPs, where the package was built with it.

With three hidden layers of 128 in float32 a step takes half the time it takes numpy over BLAS: one call
trains a whole node, products of these sizes run near the processor's peak, and updates are fused into them.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mixtree._native.mlp_numpy import (
    ACTIVATIONS,
    EPSILON,
    LOSSES,
    MOMENTS,
    SQUARE_MOMENTUM,
    Array,
    Network,
    Table,
)
from mixtree.errors import InputError

logger = logging.getLogger(__name__)

_TRAIN, _GRADIENT, _PREDICT = range(3)
_SUFFIX = {"darwin": ".dylib", "win32": ".dll"}.get(sys.platform, ".so")
LIBRARY = Path(__file__).with_name("_mlp" + _SUFFIX)

_WHOLE = ("task", "wide", "layers", "activation", "loss", "optimizer", "batch", "steps", "taken")
_REAL = ("momentum", "square_momentum", "epsilon", "decay", "clip")
_POINTERS = ("sizes", "order", "lr", "x", "indptr", "indices", "labels", "targets", "weights")
_CHANGED = ("parameters", "first", "second", "out")


class _Task(ctypes.Structure):
    """What one call computes: field by field the struct of the C file."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in _WHOLE),
        *((name, ctypes.c_double) for name in _REAL),
        *((name, ctypes.c_void_p) for name in (*_POINTERS, *_CHANGED)),
    ]


@cache
def _library() -> ctypes.CDLL | None:
    """The compiled library; None where the package was built without one."""
    if not LIBRARY.exists():
        return None
    try:
        library = ctypes.CDLL(str(LIBRARY))
    except OSError as error:
        logger.warning("the compiled kernel cannot be loaded (%s): numpy is used instead", error)
        return None
    library.mlp_task_size.restype = ctypes.c_int64
    library.mlp_run.restype = ctypes.c_int64
    library.mlp_run.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    if library.mlp_task_size() != ctypes.sizeof(_Task):
        logger.warning("the compiled kernel is of another version: numpy is used; install the package again")
        return None
    return library


def available() -> bool:
    """Whether the package was built with the compiled kernel."""
    return _library() is not None


def best_level() -> int:
    """The best instruction set of this machine that the library knows: 0 plain, 1 AVX2, 2 AVX-512."""
    return int(_loaded().mlp_best_level())


class NativeKernel:
    """The compiled kernel for one network and one table of rows.

    ``level`` chooses an instruction set (for tests); the best one of the machine is the default.
    """

    def __init__(self, network: Network, table: Table, level: int | None = None) -> None:
        self.network, self.table, self.level = network, table, level
        self._run, self._best = _loaded().mlp_run, best_level()
        self._sizes = np.array(network.sizes, dtype=np.int64)
        self._settings = {
            "wide": int(network.dtype == np.float64),
            "layers": len(network.sizes) - 1,
            "activation": ACTIVATIONS.index(network.activation),
            "loss": LOSSES.index(network.loss),
            "optimizer": list(MOMENTS).index(network.optimizer),
            "momentum": network.momentum,
            "square_momentum": SQUARE_MOMENTUM,
            "epsilon": EPSILON,
            "decay": network.weight_decay,
            "clip": network.clip_norm or 0.0,
            "sizes": self._sizes.ctypes.data,
        }
        labels = "labels" if network.loss == "cross-entropy" else "targets"
        self._rows = _pointers(x=table.x, weights=table.weight, **{labels: table.y})

    def __reduce__(self) -> tuple[Any, ...]:
        # Addresses mean nothing in another process.
        return NativeKernel, (self.network, self.table, self.level)

    def train(
        self, parameters: Array, moments: tuple[Array, ...], *, taken: int, order: Array, lr: Array
    ) -> None:
        steps, batch = order.shape
        for vector in moments:
            _check(vector, self.network.count, self.network.dtype)
        _check(order, steps * batch, np.dtype(np.int64))
        _check(lr, steps, np.dtype(np.float64))
        changed = dict(zip(("first", "second"), moments, strict=False))
        counts = {"batch": batch, "steps": steps, "taken": taken}
        self._call(_TRAIN, parameters, counts, self._rows | _pointers(order=order, lr=lr, **changed))

    def gradient(self, parameters: Array, rows: Array) -> Array:
        order, out = np.ascontiguousarray(rows, dtype=np.int64), np.empty_like(parameters)
        counts = {"batch": len(order), "steps": 1}
        self._call(_GRADIENT, parameters, counts, self._rows | _pointers(order=order, out=out))
        return out

    def predict(self, parameters: Array, x: Any) -> Array:
        out = np.empty((x.shape[0], self.network.sizes[-1]), self.network.dtype)
        order = np.arange(len(out), dtype=np.int64)
        self._call(_PREDICT, parameters, {"batch": len(out)}, _pointers(x=x, order=order, out=out))
        return out if self.network.loss == "cross-entropy" else out[:, 0]

    def _call(self, task: int, parameters: Array, counts: dict[str, int], pointers: dict[str, int]) -> None:
        _check(parameters, self.network.count, self.network.dtype)
        pointers["parameters"] = parameters.ctypes.data
        filled = ctypes.byref(_Task(task=task, **self._settings, **counts, **pointers))
        level = self._best if self.level is None else self.level
        memory = _working_memory(self._run(filled, level, None))
        self._run(filled, level, memory.ctypes.data)


class _Kept(threading.local):
    """What each thread keeps from one call to the next."""

    memory: NDArray[np.uint8] | None = None


_kept = _Kept()


def _working_memory(size: int) -> NDArray[np.uint8]:
    """At least so many bytes, kept per thread: fresh pages for every node would cost as much as a step."""
    memory = _kept.memory
    if memory is None or len(memory) < size:
        memory = _kept.memory = np.empty(size, dtype=np.uint8)
    return memory


def _check(array: Array, size: int, dtype: np.dtype[Any]) -> None:
    """The library trusts its pointers: what does not fit would be read or written beyond its end."""
    if array.size != size or array.dtype != dtype or not array.flags.c_contiguous:
        raise InputError(f"the kernel needs {size} contiguous {dtype}; got {array.size} {array.dtype}")


def _pointers(**arrays: Any) -> dict[str, int]:
    """Addresses of arrays; those of a sparse ``x`` are its values and where they are."""
    x = arrays.get("x")
    if x is not None and not isinstance(x, np.ndarray):
        arrays |= {"x": x.data, "indptr": x.indptr, "indices": x.indices}
    return {name: array.ctypes.data for name, array in arrays.items()}


def _loaded() -> ctypes.CDLL:
    library = _library()
    if library is None:
        raise InputError(
            "engine 'native' needs the compiled kernel, and the package was installed without one: "
            "install it again where a C compiler is found, or choose engine='numpy'"
        )
    return library
