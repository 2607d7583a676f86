"""What can go wrong, said for people: what happened, where, what to do."""

from __future__ import annotations

from mixtree.places import said


class MixtreeError(Exception):
    """Base of every error that mixtree raises on purpose; no URL in its message tells a password."""

    def __init__(self, *about: object) -> None:
        super().__init__(*(said(each) if isinstance(each, str) else each for each in about))


class InputError(MixtreeError, ValueError):
    """An argument, a mixture, a constraint or a setting that cannot work."""


class DataError(InputError):
    """Rows, labels or files that cannot be used as they are."""


class SearchError(MixtreeError):
    """A search used out of order, or one that cannot go on."""


class TrainingError(MixtreeError):
    """A trainer that failed, or a study in which every model diverged."""


class StorageError(MixtreeError):
    """A database or a checkpoint folder that cannot be used, or a study that is not in it."""


class CheckpointError(StorageError):
    """A checkpoint that is missing or damaged; its node can be computed again."""


class StudyLocked(StorageError):
    """Another process is running this study."""


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C was pressed; the study stopped after its round and can be resumed."""


class MissingExtraError(MixtreeError, ImportError):
    """A feature whose optional packages are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f"{feature} needs optional packages: pip install 'mixtree[{extra}]'")
