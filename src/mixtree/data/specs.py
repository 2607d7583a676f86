"""Specs: which files hold the rows of a problem, and what their columns mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mixtree.data.labels import Label, Task
from mixtree.data.readers import names, plain_name
from mixtree.errors import InputError
from mixtree.places import is_text

Table: TypeAlias = Any
"""A file's path, or a table in memory that `as_frame` takes."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class TableSpec:
    """Which files hold the rows, and what their columns mean.

    ``tables``: one or several files with a ``source_col``, or ``{source name: file}``. The target's rows:
    either ``val``, and ``test`` if there is one, or a file ``target`` of which ``val_frac`` validates and the
    rest tests, stratified by label or split by ``group_col`` (which is no feature then) or ``time_col``.
    ``drop`` names columns to leave out, ``categorical`` those whose numbers are codes; ``classes`` puts the
    classes in order; ``groups``: the column of the target's rows
    whose worst value scores; ``rare_below``, ``max_levels`` and ``sparse`` are those of `Preprocessor.fit`.
    """

    tables: Mapping[str, Table] | Sequence[Table] | Table
    label: str
    source_col: str | None = None
    val: Table | None = None
    test: Table | None = None
    target: Table | None = None
    val_frac: float = 0.3
    group_col: str | None = None
    time_col: str | None = None
    drop: Sequence[str] = ()
    categorical: Sequence[str] = ()
    task: Literal["auto"] | Task = "auto"
    classes: Sequence[Label] | None = None
    rare_below: int | None = None
    max_levels: int = 1000
    sparse: bool | None = None
    groups: str | None = None

    def __post_init__(self) -> None:
        for name in ("label", "source_col", "group_col", "time_col"):
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, plain_name(value))
        for name in ("drop", "categorical"):
            object.__setattr__(self, name, tuple(map(plain_name, getattr(self, name))))
        named = isinstance(self.tables, Mapping)
        if not self.sources:
            raise InputError("there are no tables: give at least one file")
        for source, _ in self.sources:
            if source is not None and not is_text(source):
                raise InputError(
                    f"a source's name must be text that UTF-8 can hold; got {source!r}: rename it"
                )
        if named and self.source_col is not None:
            raise InputError("files are named by source already: leave out source_col (--source-col)")
        if not named and self.source_col is None:
            raise InputError(
                "which source is a row from? Name the column that says it (source_col, --source-col), or give"
                " one file per source ({name: file}, --source name=file)"
            )
        if (self.val is None) == (self.target is None):
            raise InputError(
                "give validation rows of the target: a file of their own (val, --val) or a file to be split"
                " (target, --target), one of the two"
            )
        if self.target is not None and self.test is not None:
            raise InputError("the rows of target that do not validate are the test: leave out test (--test)")
        if self.target is None and (self.group_col is not None or self.time_col is not None):
            raise InputError("group_col and time_col say how to split a target file: give target (--target)")
        if self.group_col is not None and self.time_col is not None:
            raise InputError("split by group or by time, not both: leave out group_col or time_col")
        if not 0 < self.val_frac < 1:
            raise InputError(f"the validation fraction must lie between 0 and 1; got {self.val_frac}")
        kept = [name for name in (self.label, self.source_col) if name is not None]
        if len(set(kept)) < len(kept):
            raise InputError(f"label and source cannot be the same column {self.label!r}")
        if set(kept) & set(self.drop):
            raise InputError(
                f"column {names(sorted(set(kept) & set(self.drop)))} is needed and cannot be dropped"
            )

    @property
    def sources(self) -> list[tuple[str | None, Table]]:
        """Source name (None: a column says it) and table, of every training table."""
        if isinstance(self.tables, Mapping):
            return list(self.tables.items())
        many = isinstance(self.tables, list | tuple)
        return [(None, table) for table in (self.tables if many else [self.tables])]
