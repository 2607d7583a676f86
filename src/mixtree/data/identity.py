"""What tells functions and callable objects apart: a loss is another one, though it is a lambda again."""

from __future__ import annotations

import dis
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache, partial
from hashlib import blake2b
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""In the text of an object that has none of its own: another one in every process."""

_UNREAD = {"__module__", "__doc__", "__qualname__", "__dict__", "__weakref__", "__firstlineno__"}


def identity(thing: Any) -> str:
    """What tells a function, a class or a callable object from others: its name, and a digest of its doings.

    The digest is of code, constants, defaults, what a closure holds, and the settings and functions that are
    read as globals; of an object also its settings. What an installed package defines is known by its name
    alone. Another Python compiles to other code: a study with functions of one's own keeps to one version.

    >>> one, other = (lambda y: 2 * y), (lambda y: 3 * y)
    >>> identity(one) == identity(lambda y: 2 * y), identity(one) == identity(other), identity(re.sub)
    (True, False, 're.sub')
    """
    if _installed(thing):
        return _label(thing)
    total = blake2b(digest_size=6)
    for text in _told(thing, frozenset()):
        total.update(len(text).to_bytes(8, "little") + text)
    return f"{_label(thing)} #{total.hexdigest()}"


def _label(thing: Any) -> str:
    if isinstance(thing, partial):
        given = [*map(repr, filter(_is_number, thing.args))]
        given += [f"{name}={value!r}" for name, value in thing.keywords.items() if _is_number(value)]
        return f"partial({', '.join([_label(thing.func), *given])})"
    name = str(getattr(thing, "__qualname__", type(thing).__qualname__))
    return f"{thing.__module__}.{name}" if _installed(thing) else name


def _installed(thing: Any) -> bool:
    """Whether a package defines this function or class, under a name that says all of it."""
    name = str(getattr(thing, "__qualname__", "<"))
    if isinstance(thing, MethodType) or "<" in name:
        return False
    return _is_package(str(getattr(thing, "__module__", None)).partition(".")[0])


@cache
def _is_package(name: str) -> bool:
    if name in ("builtins", "mixtree") or (name in sys.stdlib_module_names and name != "__main__"):
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    return file is not None and file.startswith(
        (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    )


def _told(value: Any, within: frozenset[int]) -> Iterator[bytes]:
    """All that a thing is, piece by piece; ``within`` are the things that it was reached through."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        yield f"{type(value).__name__} {value!r}".encode()
        return
    yield _label(value).encode()
    if _installed(value) or id(value) in within:
        return
    within |= {id(value)}
    if isinstance(value, ModuleType):
        yield value.__name__.encode()
    elif isinstance(value, np.ndarray | np.generic) or _is_tensor(value):
        yield f"{value.dtype}{value.shape}".encode()
        if _is_tensor(value):  # numpy has no half of torch's types
            value = value.detach().cpu()
            value = value.double() if value.is_floating_point() else value
        array = np.asarray(value)
        yield repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
    elif isinstance(value, Mapping):
        yield from _all_told((each for pair in value.items() for each in pair), within)
    elif isinstance(value, list | tuple):
        yield from _all_told(value, within)
    elif isinstance(value, set | frozenset):
        yield from sorted(b"".join(_told(each, within)) for each in value)
    elif isinstance(value, partial):
        yield from _told((value.func, value.args, dict(sorted(value.keywords.items()))), within)
    elif isinstance(value, MethodType):
        yield from _told((value.__func__, value.__self__), within)
    elif isinstance(value, FunctionType):
        yield from _function(value, within)
    elif isinstance(value, type):
        functions = {name: getattr(each, "__func__", each) for name, each in vars(value).items()}
        yield from _all_told(value.__bases__, within)
        yield from _settings({name: each for name, each in functions.items() if name not in _UNREAD}, within)
    elif is_dataclass(value):
        yield from _told(type(value), within)
        yield from _settings({each.name: getattr(value, each.name) for each in fields(value)}, within)
    else:
        yield from _told(type(value), within)
        yield ADDRESS.sub("", repr(value)).encode()
        state = getattr(value, "state_dict", None)
        if state is not None and hasattr(
            value, "named_buffers"
        ):  # a torch module, whose repr shows no tensors
            yield from _told(state(), within)
        yield from _settings(getattr(value, "__dict__", {}), within)


def _all_told(values: Iterable[Any], within: frozenset[int]) -> Iterator[bytes]:
    for each in values:
        yield from _told(each, within)


def _settings(named: Mapping[str, Any], within: frozenset[int]) -> Iterator[bytes]:
    """Of attributes or globals those that are no state: what is private or a container may be a cache."""
    for name, value in sorted(named.items()):
        private = name.startswith("_") and not isinstance(value, FunctionType)
        if not private and name != "training" and _is_setting(value):
            yield from (name.encode(), *_told(value, within))


def _is_setting(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_setting, value))
    kinds = bool | int | float | complex | str | bytes | np.ndarray | np.generic
    known = value is None or isinstance(value, kinds) or is_dataclass(value)
    return known or _is_tensor(value) or callable(value)


def _is_tensor(value: Any) -> bool:
    return hasattr(type(value), "detach")


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _function(value: FunctionType, within: frozenset[int]) -> Iterator[bytes]:
    code = value.__code__
    read, written = _globals(code)
    yield from _code(code, value.__doc__)
    yield from _told((value.__defaults__, value.__kwdefaults__), within)
    for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
        with suppress(ValueError):  # of a name that has no value yet
            if name not in written:
                yield from (name.encode(), *_told(cell.cell_contents, within))
    known = {name: value.__globals__[name] for name in read - written if name in value.__globals__}
    yield from _settings(known, within)


def _globals(code: CodeType) -> tuple[set[str], set[str]]:
    """Globals that are read; names outside of the function that it gives new values: they count up, say."""
    read, written = set(), set()
    for each in dis.get_instructions(code):
        if each.opname == "LOAD_GLOBAL":
            read.add(each.argval)
        elif each.opname in ("STORE_GLOBAL", "STORE_DEREF"):
            written.add(each.argval)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            read, written = (one | two for one, two in zip((read, written), _globals(each), strict=True))
    return read, written


def _code(code: CodeType, doc: str | None) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_argcount, code.co_kwonlyargcount, code.co_names)).encode()
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _code(each, None)
        elif doc is None or each != doc:  # what a docstring says changes nothing
            yield from _told(each, frozenset())
