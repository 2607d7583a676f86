"""The options that ``fit`` and ``compare`` share: as flags, as keys of a TOML file, as a resumed recipe."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import typer

from mixtree.errors import InputError
from mixtree.fitting.options import OPTIONS, RUNNING, FitOptions, Option

_DIGITS = 40
"""Of a whole number at the most: 1e999999999 would fill the memory."""
_MOST_BYTES = 1 << 20
"""Of a file of options."""
# A dot after a dot after a dot: what Python's parser makes of a long chain takes the square of its length.
_LONG_CHAIN = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""")


@dataclass(frozen=True, slots=True)
class Flag:
    """One option: its name in Python and TOML, its type, its help and the default that the help shows."""

    name: str
    kind: Any
    help: str
    default: str = ""
    """What happens without it, in words."""
    spelling: str = ""
    metavar: str | None = None

    @property
    def flag(self) -> str:
        return self.spelling or "--" + self.name.replace("_", "-")


DATA = (
    Flag("source", list[str], "One file per source, NAME=FILE; repeat it.", "none", metavar="NAME=FILE"),
    Flag(
        "source_col",
        str,
        "The column that says which source a row comes from.",
        "needed for TABLE…",
        metavar="COL",
    ),
    Flag("label", str, "The column to predict.", "required", metavar="COL"),
    Flag("val", Path, "The target's labelled validation rows.", "needed without --target", metavar="FILE"),
    Flag(
        "test", Path, "Labelled rows of the target that only the final score reads.", "none", metavar="FILE"
    ),
    Flag("target", Path, "The target's labelled rows, to be split by --val-frac.", "none", metavar="FILE"),
    Flag("val_frac", float, "Share of --target for validation; the rest is the test.", "0.3", metavar="F"),
    Flag("group_col", str, "Split --target by groups of this column.", "by label", metavar="COL"),
    Flag(
        "time_col", str, "Split --target by time: validation is the earlier part.", "by label", metavar="COL"
    ),
    Flag("drop", list[str], "A column to leave out; repeat it.", "none", metavar="COL"),
    Flag("categorical", list[str], "A column whose numbers are codes; repeat it.", "none", metavar="COL"),
    Flag("task", str, "auto, classification or regression.", "auto", metavar="T"),
)


def flag_of(option: Option) -> Flag:
    """An option of a fit as a flag."""
    kind = option.kind
    if kind is Mapping:
        kind = list[str]
    elif kind is object or (kind is float and option.choices):  # a number, or a word in its place
        kind = option.text
    metavar = option.metavar or "|".join(option.choices) or None
    return Flag(option.name, kind, option.help, option.without, option.flag, metavar)


FITTING = tuple(map(flag_of, OPTIONS.values()))
"""The options that decide what comes of a fit."""
RUNNING_FLAGS = tuple(map(flag_of, RUNNING.values()))
PLACE = (
    Flag("out", Path, "Folder for the model.", "required, but for --dry-run", metavar="DIR"),
    Flag("dry_run", bool, "Say what would be done, and do nothing."),
)
OUTPUT = (Flag("json", bool, "Print one JSON object on stdout."),)
VERBOSE = Flag("verbose", bool, "Print all notes, what was decided, and where the steps went.")
FIT = (*DATA, *FITTING, *RUNNING_FLAGS, *PLACE, *OUTPUT, VERBOSE)
"""The options of ``mixtree fit``."""

Values = dict[str, Any]


def command(function: Callable[[list[Path], Values], None], flags: Sequence[Flag]) -> Callable[..., None]:
    """A typer command with these flags; it calls the function with the tables and what the user gave."""

    def run(**given: Any) -> None:
        tables = given.pop("tables") or []
        # By identity: 0 equals False, but a budget of 0 was given and must be refused, not forgotten.
        chosen = {
            name: value
            for name, value in given.items()
            if value is not None and value is not False and value != []
        }
        function(tables, chosen)

    tables = typer.Argument(
        None,
        metavar="TABLE…",
        show_default="none, where --source names files",
        help="Tables with a source column; or one TOML file of options.",
    )
    parameters = [_parameter("tables", list[Path] | None, tables)]
    parameters += [_parameter(each.name, each.kind | None, _option(each)) for each in flags]
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _option(flag: Flag) -> Any:
    if flag.kind is bool:
        return typer.Option(False, flag.flag, help=flag.help, show_default="off")
    return typer.Option(
        None,
        flag.flag,
        help=flag.help,
        metavar=flag.metavar,
        show_default=flag.default or False,
        parser=whole if flag.kind is int else None,
    )


def whole(text: str | int) -> int:
    """A whole number, which may be written as 1e4.

    >>> whole("1e4"), whole("2.5e3"), whole("-7")
    (10000, 2500, -7)
    """
    try:
        number = Decimal(text)
        if number.is_finite() and number.adjusted() < _DIGITS and number == number.to_integral_value():
            return int(number)
    except InvalidOperation:
        pass
    raise typer.BadParameter(f"{str(text)!r} is not a whole number: write 10000, or 1e4")


def who_works(given: object) -> int | str:
    """A number of processes, or the text of a cluster, as ``--workers`` names them.

    >>> who_works("2"), who_works("ray")
    (2, 'ray')
    """
    text = str(given)
    if text.startswith("ray"):
        from mixtree.engine.executors import Cluster

        Cluster.parse(text)  # before anything is read or made
        return text
    count = whole(text)
    if count < 1:
        raise InputError(f"workers must be a whole number of at least 1; got {text}")
    return count


def with_config(tables: list[Path], given: Values, flags: Sequence[Flag]) -> tuple[list[Path], Values]:
    """The tables and options of a TOML file, overridden by what was given as flags."""
    if not (len(tables) == 1 and tables[0].suffix == ".toml"):
        return tables, given
    file = tables[0]
    try:
        if (size := file.stat().st_size) > _MOST_BYTES:
            raise InputError(f"{file}: {size:,} bytes are too many for options ({_MOST_BYTES:,} at the most)")
        text = file.read_text(encoding="utf-8")
        if _LONG_CHAIN.search(text):
            raise InputError(f"{file}: a key of more than 32 parts is no option")
        config = tomllib.loads(text)
    except FileNotFoundError as error:
        raise InputError(f"{file}: no such file; check the path") from error
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}; check its owner and mode") from error
    except ValueError as error:  # a number of 5,000 digits is none of tomllib's own
        raise InputError(f"{file} is not valid TOML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{file}: values in values in values, too deep for options") from error
    known = {flag.name: flag for flag in flags}
    known |= {flag.flag.removeprefix("--").replace("-", "_"): flag for flag in flags}
    found = [Path(str(each)) for each in _as_list(config.pop("tables", []))]
    values: Values = {}
    for key, value in config.items():
        flag = known.get(key.replace("-", "_"))
        if flag is None:
            names = ", ".join(each.flag.removeprefix("--") for each in flags)
            raise InputError(f"{file}: unknown key {key!r}; the keys are tables, {names}")
        values[flag.name] = _typed(file, key, value, flag)
    return found, {**values, **given}


def _typed(file: Path, key: str, value: Any, flag: Flag) -> Any:
    if flag.kind == list[str]:
        if isinstance(value, Mapping):  # source = {fl = "fl.csv"}, min = {fl = 0.1}
            return [f"{name}={each}" for name, each in value.items()]
        return [str(each) for each in _as_list(value)]
    if flag.name in ("nu", "time_limit", "workers"):
        return str(value)
    if flag.kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if flag.kind is int and isinstance(value, float) and value.is_integer():  # 1e4
        return int(value)
    wanted = str if flag.kind is Path else flag.kind
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise InputError(f"{file}: {key} must be {_WORDS[wanted]}; got {repr(value)[:120]}")
    return Path(value) if flag.kind is Path else value


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def pairs(given: Sequence[str] | None, flag: str) -> dict[str, str]:
    """NAME=VALUE texts as a dictionary."""
    found: dict[str, str] = {}
    for text in given or ():
        name, sign, value = text.rpartition("=") if flag in ("--min", "--max") else text.partition("=")
        if not sign or not name or not value:
            form = "SRC=W" if flag in ("--min", "--max") else "NAME=FILE"
            raise InputError(f"{flag} takes {form}; got {text!r}")
        if name in found:
            raise InputError(f"{flag} names {name!r} twice")
        found[name] = value
    return found


def weights(given: Sequence[str] | None, flag: str) -> dict[str, float]:
    """SRC=W texts as numbers."""
    found = pairs(given, flag)
    try:
        return {name: float(value) for name, value in found.items()}
    except ValueError as error:
        raise InputError(f"{flag} takes SRC=W with a number W: {error}") from error


def fit_options(values: Values) -> FitOptions:
    """The options that the flags name."""
    chosen = {}
    for name, option in OPTIONS.items():
        if name in values:
            chosen[name] = values[name]
            if option.kind is Mapping:
                chosen[name] = weights(values[name], option.flag)
            elif option.kind is float and isinstance(values[name], str):
                with suppress(ValueError):  # its check says what it has to be
                    chosen[name] = float(values[name])
    return FitOptions(**chosen)


def seconds(text: str | None) -> float | None:
    """A duration such as 90s, 10m, 2h or a number of seconds.

    >>> seconds("1.5m")
    90.0
    """
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    if not match or float(match[1]) <= 0:
        raise InputError(f"a duration looks like 90s, 10m or 2h; got {text!r}")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
