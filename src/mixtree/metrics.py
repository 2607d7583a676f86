"""Scores of predictions: losses, accuracy, F1, AUROC, Hand–Till, MAE …, for one model or a round of models.

Predictions are class probabilities (n, classes) for a classification and (n,) numbers for a regression;
a round of M models stacks them along a first axis. A model with a NaN or infinite prediction scores NaN.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mixtree._native.areas import Array, Floats, add_terms, areas
from mixtree.errors import DataError, InputError

Flags: TypeAlias = NDArray[np.bool_]
Batched: TypeAlias = Callable[[Array, Array], Floats]

_NOT_PROBABILITIES = 1e-2
"""How far from 1 the probabilities of a row may sum: half precision passes, logits do not."""


_CLASSES_NAMED = 5
"""Classes that a warning names; there may be hundreds."""

_names: ContextVar[Sequence[Any]] = ContextVar("_names", default=())
_notes: ContextVar[list[str] | None] = ContextVar("_notes", default=None)
"""Where classes without rows are noted; None: the user is warned of them."""


class AbsentClassWarning(UserWarning):
    """Some classes have no rows among the labels, so a metric leaves their pairs out."""


@contextmanager
def class_names(names: Sequence[Any] | None = None, *, told: bool = False) -> Iterator[None]:
    """Within it warnings and errors call class number k ``names[k]``, as the user does; None: as outside.

    ``told`` says that the user knows which classes have no rows: they are not warned of again.

    >>> with class_names(["no", "yes"]):
    ...     AUROC([1, 1], [[0.5, 0.5], [0.4, 0.6]])
    Traceback (most recent call last):
    mixtree.errors.DataError: metric 'auroc' compares classes, but all 2 labels are class 'yes': ...
    """
    tokens = _names.set(_names.get() if names is None else names), _notes.set([] if told else _notes.get())
    try:
        yield
    finally:
        _names.reset(tokens[0])
        _notes.reset(tokens[1])


@contextmanager
def absent_classes() -> Iterator[list[str]]:
    """Within it classes without rows are noted in the list that it gives, and not warned of."""
    notes: list[str] = []
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


class GroupedLabels(np.ndarray):
    """Labels that know the group of each row, for ``worst:COLUMN``; parts of them by index know it too.

    >>> y = GroupedLabels.of([0, 1, 1], ["north", "south", "north"])
    >>> y[np.array([2, 1])].groups.tolist(), (y + 1).groups is y.groups, np.sort(y).groups is None
    (['north', 'south'], True, True)
    """

    groups: NDArray[Any] | None = None
    """None where it was lost on the way: scoring such labels by group is an error."""

    @classmethod
    def of(cls, y: ArrayLike, groups: ArrayLike) -> GroupedLabels:
        """Labels and the groups of their rows."""
        labels, names = np.asarray(y).view(cls), np.asarray(groups).astype(str)
        if names.shape != labels.shape:
            raise DataError(f"{len(labels)} labels and {len(names)} groups: give one for each row")
        if len(different := np.unique(names)) > _MOST_GROUPS:
            raise DataError(
                f"a worst group of {len(different):,}: more than {_MOST_GROUPS} are no groups; choose a "
                "column of fewer values"
            )
        labels.groups = names
        return labels

    def __getitem__(self, index: Any) -> Any:
        return self._with(super().__getitem__(index), None if self.groups is None else self.groups[index])

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        found = super().__array_wrap__(array, context, return_scalar)
        return self._with(found, self.groups if np.shape(found) == self.shape else None)

    def astype(self, *given: Any, **named: Any) -> Any:
        """The same labels of another type."""
        return self._with(super().astype(*given, **named), self.groups)

    def _with(self, found: Any, groups: Any) -> Any:
        if isinstance(found, GroupedLabels):
            found.groups = groups
        return found


_MOST_GROUPS = 100


def as_labels(y: ArrayLike) -> Array:
    """Labels as an array, with their groups if they have some."""
    return y if isinstance(y, GroupedLabels) else np.asarray(y)


@dataclass(frozen=True, slots=True)
class Metric:
    """A named score with a direction: called with labels and one model's predictions it gives a float.

    Parameters
    ----------
    name
        Its name in reports and errors.
    higher_is_better
        Its direction.
    values
        The function: labels (n,) and finite predictions of M models → (M,) scores.
    task
        What it can score.
    contributions
        The rows' terms, (M, n): to first order the score moves with their mean, so that standard errors come
        from their spread. None makes standard errors NaN.
    by_class
        Whether the score moves with the sum of the terms' means per class instead.
    column
        Whose groups' worst score it is; labels must be `GroupedLabels` then.

    Examples
    --------
    >>> AUROC([0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.95, 0.05]])
    0.5
    """

    name: str
    higher_is_better: bool
    values: Batched
    task: Literal["classification", "regression", "any"] = "any"
    contributions: Batched | None = None
    by_class: bool = False
    column: str | None = None

    def __call__(self, y: ArrayLike, predictions: ArrayLike) -> float:
        """The score of one model."""
        return float(self.batch(y, _floats(predictions)[None])[0])

    def batch(self, y: ArrayLike, predictions: ArrayLike) -> Floats:
        """The scores (M,) of M models, each the same as it would be alone."""
        labels, stack, finite = self._checked(y, predictions)
        return _where(finite, stack, partial(self.values, labels))

    def standard_error(self, y: ArrayLike, predictions: ArrayLike) -> float:
        """The standard error of one model's score over the draw of the rows; NaN where it is not known."""
        return float(self.standard_errors(y, _floats(predictions)[None])[0])

    def standard_errors(self, y: ArrayLike, predictions: ArrayLike) -> Floats:
        """The standard errors (M,) of M models' scores."""
        labels, stack, finite = self._checked(y, predictions)
        return _where(finite, stack, lambda good: self._spread(labels, self._terms(labels, good)))

    def paired_error(self, y: ArrayLike, predictions: ArrayLike, others: ArrayLike) -> float:
        """The standard error of the difference between two models' scores on the same rows.

        Parameters
        ----------
        y
            Labels, (n,).
        predictions, others
            Both models' predictions.

        Returns
        -------
        float
            NaN where a prediction is not finite, or the metric's contributions are not known.
        """
        pair = _floats(predictions), _floats(others)
        if pair[0].shape != pair[1].shape:
            raise InputError(
                f"predictions of shapes {pair[0].shape} and {pair[1].shape} are not of the same rows"
            )
        labels, stack, finite = self._checked(y, np.stack(pair))
        if not finite.all():
            return float("nan")
        first, second = self._terms(labels, stack)
        return float(self._spread(labels, (first - second)[None])[0])

    @property
    def adds_up(self) -> bool:
        """Whether scores are made of the contributions, which else say only how scores move."""
        if self.by_class:
            return any(
                (self.values, self.contributions) == (each.values, each.contributions) for each in _AREAS
            )
        # A metric of the user's may be the mean of its terms on all rows and not on some of them.
        values: Any = self.values
        plain = isinstance(values, partial) and values.func is _row_mean
        return plain and values.keywords["rows"] is self.contributions

    def from_terms(self, y: Array, terms: Floats) -> Floats | None:
        """The scores of models whose contributions are known; None where those do not add up to them."""
        if not self.adds_up:
            return None
        if self.by_class:
            # Every pair of rows counts in the mean of either row's class.
            counts = np.bincount(y)
            shares = np.divide(0.5, counts, where=counts > 0, out=np.zeros(len(counts)))
            return np.asarray(terms @ shares[y])
        return np.asarray(terms.mean(axis=1))

    def signed(self, value: float) -> float:
        """The value as a search wants it, smaller is better: higher-is-better scores are negated."""
        return -value if self.higher_is_better else value

    def _checked(self, y: ArrayLike, predictions: ArrayLike) -> tuple[Array, Array, Flags]:
        """Labels, stacked predictions, and which models have finite predictions only."""
        labels, stack = (as_labels(y) if self.column else np.asarray(y)), _floats(predictions)
        wanted = {"classification": (3,), "regression": (2,), "any": (2, 3)}[self.task]
        if labels.ndim != 1 or stack.ndim not in wanted or stack.shape[1] != len(labels):
            form = "(rows,)" if self.task == "regression" else "(rows, classes)"
            raise InputError(
                f"metric {self.name!r}: labels of shape {labels.shape} and predictions of shape "
                f"{stack.shape[1:]} per model do not fit; predictions must be {form}"
            )
        if not len(labels):
            raise DataError(f"metric {self.name!r}: there are no rows to score")
        if self.task == "classification":
            what = f"metric {self.name!r}"
            labels = _class_labels(labels, stack.shape[2], what)
            with np.errstate(invalid="ignore", over="ignore"):
                total = np.einsum("mnc->mn", stack)
                off = np.abs(total - 1.0) > _NOT_PROBABILITIES
            known = np.isfinite(total)
            if (off & known).any():
                model, row = np.argwhere(off & known)[0]
                raise InputError(
                    f"{what} needs probabilities, but the predictions of row {row} sum to "
                    f"{total[model, row]:.4g}: apply a softmax to logits first"
                )
            return labels, stack, np.asarray(known.all(axis=1))
        return labels, stack, np.asarray(np.isfinite(stack).reshape(len(stack), -1).all(axis=1))

    def _terms(self, labels: Array, stack: Array) -> Floats:
        if self.contributions is None:
            return np.full(stack.shape[:2], np.nan)
        return self.contributions(labels, stack)

    def _spread(self, labels: Array, terms: Floats) -> Floats:
        if not self.by_class:
            return mean_and_error(terms)[1]
        parts = [mean_and_error(terms[:, labels == label])[1] ** 2 for label in np.unique(labels)]
        return np.asarray(np.sqrt(np.sum(parts, axis=0)), dtype=np.float64)


def row_losses(y: ArrayLike, predictions: ArrayLike, classes: int) -> Floats:
    """The loss of each row: cross-entropy −log p(y), or squared error (p − y)².

    A probability of zero counts as the smallest normal number of its type, so that its loss is finite.

    Parameters
    ----------
    y
        Labels, (n,).
    predictions
        Of one model, (n, classes) or (n,), or of M models, stacked along a first axis.
    classes
        How many there are; 0 in a regression.

    Returns
    -------
    array
        (n,) or (M, n).

    Examples
    --------
    >>> row_losses([1.0, 2.0], [1.0, 4.0], classes=0)
    array([0., 4.])
    """
    labels, given = np.asarray(y), _floats(predictions)
    form = (len(labels), classes) if classes else (len(labels),)
    if not len(labels) or given.shape not in (form, given.shape[:1] + form):
        raise InputError(f"predictions of shape {given.shape} do not fit: one model's must be {form}")
    stack = given.reshape(-1, *form)
    if classes:
        rows = _log_rows(_class_labels(labels, classes, "row losses"), stack)
    else:
        rows = _squared_rows(labels, stack)
    return rows.reshape(given.shape[: given.ndim - 1 if classes else None])


def mean_and_error(rows: ArrayLike) -> tuple[Floats, Floats]:
    """The mean over the last axis and its standard error sd/√n (NaN for a single row).

    >>> mean, error = mean_and_error([1.0, 2.0, 3.0])
    >>> float(mean), round(float(error), 4)
    (2.0, 0.5774)
    """
    terms = np.ascontiguousarray(rows, dtype=np.float64)
    n = terms.shape[-1]
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        mean = terms.mean(axis=-1)
        square = np.square(terms - mean[..., None]).sum(axis=-1)
        return mean, np.sqrt(np.divide(square, n * (n - 1.0)))


def worst_source(parts: Sequence[tuple[ArrayLike, ArrayLike]], metric: Metric) -> float:
    """The worst of a metric's values over sources, each given as (labels, predictions); NaN if one is NaN.

    >>> worst_source([([1.0, 2.0], [1.0, 2.0]), ([1.0, 2.0], [1.0, 5.0])], MAE)
    1.5
    """
    if not len(parts):
        raise InputError(f"the worst source by {metric.name!r} needs at least one source's predictions")
    values = []
    for number, (y, predictions) in enumerate(parts):
        try:
            values.append(metric(y, predictions))
        except InputError as error:
            raise type(error)(f"source {number}: {error}") from error
    return float(np.min(values) if metric.higher_is_better else np.max(values))


def mae_in_units(inverse: Callable[[Any], Any], *, name: str) -> Metric:
    """The mean absolute error after an elementwise ``inverse`` of the transformation of the labels.

    >>> mae_in_units(np.exp2, name="price")([0.0], [3.0])
    7.0
    """
    return _mean(name, False, partial(_absolute_rows, inverse=inverse), "regression")


def default_metric(classes: int) -> Metric:
    """The metric of a task for which none was chosen: AUROC for classes, RMSE for a regression."""
    return as_metric("auroc" if classes else "rmse", classes=classes)


def as_metric(
    metric: Metric | str | Callable[[Any, Any], float],
    *,
    classes: int,
    higher_is_better: bool | None = None,
    name: str | None = None,
) -> Metric:
    """The metric meant by a name, a metric, or a callable (labels, predictions) → number.

    Parameters
    ----------
    metric
        Which one.
    classes
        How many there are; 0 in a regression.
    higher_is_better
        The direction of a callable, unless it has an attribute of that name.
    name
        The name of a callable, unless its own will do.

    Returns
    -------
    Metric
        One that fits the task.

    Raises
    ------
    InputError
        If there is no such metric for the task, or a callable does not say its direction.

    Examples
    --------
    >>> as_metric("auroc", classes=2).name, as_metric("auc", classes=4).name
    ('auroc', 'hand-till')
    >>> as_metric("0.5*auroc + 0.5*accuracy", classes=2)([0, 1], [[0.9, 0.1], [0.6, 0.4]])
    0.75
    >>> y = GroupedLabels.of([1.0, 2.0, 3.0], ["north", "north", "south"])
    >>> as_metric("mae:worst:region", classes=0)(y, [1.0, 2.0, 5.0])
    2.0
    """
    if isinstance(metric, Metric):
        _check_task(metric, classes)
        return metric
    if isinstance(metric, str):
        if _WORST in metric:
            return _worst(metric, classes)
        if any(mark in metric for mark in "*+"):
            return _weighted_sum(metric, classes)
        plain = metric.lower().replace("_", "-")
        plain = _ALIASES.get(plain, plain)
        named = _NAMED[_task(classes)]
        if plain == "auroc" and classes > 2:
            return HAND_TILL
        if plain in named:
            return named[plain]
        for others in _NAMED.values():
            if plain in others:
                _check_task(others[plain], classes)
        raise InputError(
            f"unknown metric {metric!r}; for a {_task(classes)} there are {', '.join(sorted(named))}"
        )
    if not callable(metric):
        raise InputError(f"a metric is a name, a Metric or a function (labels, predictions); got {metric!r}")
    name = name or str(getattr(metric, "__name__", type(metric).__name__))
    better = getattr(metric, "higher_is_better", None) if higher_is_better is None else higher_is_better
    if better is None:
        raise InputError(
            f"metric {name!r} does not say its direction: use mixtree.metrics.as_metric({name}, "
            f"classes={classes}, higher_is_better=True), or False if smaller is better"
        )
    return Metric(name, bool(better), partial(_each, metric))


def group_column(metric: Any) -> str | None:
    """The column of which a metric scores the worst group; None of others.

    >>> group_column("auroc:worst:region"), group_column("auroc")
    ('region', None)
    """
    if isinstance(metric, Metric):
        return metric.column
    return metric.partition(_WORST)[2] if isinstance(metric, str) and _WORST in metric else None


_WORST = "worst:"


def _worst(text: str, classes: int) -> Metric:
    """``worst:COLUMN`` of the usual metric, ``METRIC:worst:COLUMN`` of another one."""
    before, _, column = text.partition(_WORST)
    if not column or (before and not before.endswith(":")):
        raise InputError(f"the worst group is worst:COLUMN or METRIC:worst:COLUMN; got {text!r}")
    inner = as_metric(before[:-1], classes=classes) if before else default_metric(classes)
    values = partial(_worst_values, inner=inner, column=column)
    name = f"{inner.name}:{_WORST}{column}"
    return Metric(name, inner.higher_is_better, values, inner.task, column=column)


def _worst_values(y: Array, stack: Array, *, inner: Metric, column: str) -> Floats:
    """By model the worst of the groups' scores; groups that have none, of one class say, are left out."""
    groups = y.groups if isinstance(y, GroupedLabels) else None
    if groups is None:
        raise DataError(f"metric 'worst:{column}': nothing says which group a row is of; give tables with it")
    labels, found, without = np.asarray(y), [], []
    for group in np.unique(groups):
        rows = groups == group
        try:
            found.append(inner.values(labels[rows], stack[:, rows]))
        except DataError:
            without.append(str(group))
    if not found:
        raise DataError(f"no group of column {column!r} has a {inner.name}: its rows are of one class")
    notes = _notes.get()
    if without and notes is not None:
        notes.append(
            f"{column} {', '.join(without[:_CLASSES_NAMED])}: no {inner.name} of one class, left out"
        )
    return np.asarray(np.min(found, axis=0) if inner.higher_is_better else np.max(found, axis=0))


def _weighted_sum(text: str, classes: int) -> Metric:
    """``0.5*auroc+0.5*accuracy``; a metric of which less is better is taken off where more of others is."""
    names = sorted(_NAMED[_task(classes)] | _ALIASES.keys(), key=len, reverse=True)
    term = re.compile(
        rf"\s*([+-]?)\s*(?:([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*\*\s*)?({'|'.join(names)})\s*(?=[+-]|$)"
    )
    plain, place, parts = text.lower().replace("_", "-"), 0, list[tuple[float, Metric]]()
    while place < len(plain):
        found = term.match(plain, place)
        if found is None or (parts and not found[1]):
            raise InputError(
                f"cannot read {text[place:].strip()!r} of the metric {text!r}: write a weighted sum as "
                f"0.5*{names[-1]}+0.5*{names[-2]}, of {', '.join(sorted(_NAMED[_task(classes)]))}"
            )
        weight = float(found[2] or 1.0) * (-1.0 if found[1] == "-" else 1.0)
        parts.append((weight, as_metric(found[3], classes=classes)))
        place = found.end()
    ways = {(weight > 0.0) == metric.higher_is_better for weight, metric in parts if weight}
    if len(ways) != 1:
        raise InputError(
            f"the terms of the metric {text!r} pull apart: add those of which more is better, take off those "
            "of which less is"
        )
    by_class = any(metric.by_class for _, metric in parts)
    known = all(metric.contributions is not None for _, metric in parts)
    return Metric(
        "".join(f"{weight:+g}*{metric.name}" for weight, metric in parts).removeprefix("+"),
        ways.pop(),
        partial(_sum_of, parts=tuple(parts), scores=True, by_class=by_class),
        "classification" if classes else "regression",
        partial(_sum_of, parts=tuple(parts), scores=False, by_class=by_class) if known else None,
        by_class,
    )


def _sum_of(
    y: Array, stack: Array, *, parts: Sequence[tuple[float, Metric]], scores: bool, by_class: bool
) -> Floats:
    """Scores (M,), or the rows' contributions (M, n), of a weighted sum."""
    if scores:
        return np.asarray(sum(weight * metric.values(y, stack) for weight, metric in parts))
    share = np.bincount(y)[y] / len(y) if by_class else np.ones(len(y))
    total = np.zeros(stack.shape[:2])
    for weight, metric in parts:
        assert metric.contributions is not None
        # A mean over all rows is the sum of the classes' means, by their shares.
        terms = metric.contributions(y, stack)
        total += weight * (terms if metric.by_class or not by_class else share * terms)
    return total


def check_metric(metric: Metric, y: ArrayLike, classes: int, *, where: str = "the validation rows") -> None:
    """Raise, before any training, if the metric cannot be computed on these labels.

    The metric is tried once on made-up predictions, a user's function too.

    Parameters
    ----------
    metric
        Which one.
    y
        Labels, (n,).
    classes
        How many there are; 0 in a regression.
    where
        How errors call the rows.

    Raises
    ------
    InputError
        If the metric is for another task.
    DataError
        If it fails on these labels.
    """
    _check_task(metric, classes)
    labels = as_labels(y)
    rng = np.random.default_rng(0)
    guess = rng.dirichlet(np.ones(classes), len(labels)) if classes else rng.permutation(labels)
    if metric is F1 and classes == 2 and not np.any(labels == 1):
        raise DataError(
            f"{where}: metric 'f1' scores class {_called(np.array([1]))}, and none of the {len(labels)} rows "
            "is of it: add some, or choose 'log-loss' or 'accuracy'"
        )
    try:
        metric(labels, guess)
    except InputError as error:
        raise type(error)(f"{where}: {error}") from error
    except Warning:
        raise
    except Exception as error:
        takes = (
            "; it is given labels (n,) and probabilities (n, classes): one that wants classes is "
            "lambda y, p: metric(y, p.argmax(axis=1))"
            if classes
            else ""
        )
        raise DataError(
            f"{where}: metric {metric.name!r} fails on their labels with made-up predictions of shape "
            f"{guess.shape} ({type(error).__name__}: {error}); correct it or choose another metric{takes}"
        ) from error


# ----------------------------------------------------------------------------------------------------- checks


def _floats(values: ArrayLike) -> Array:
    """Floats in row order: sums over rows then give the same bits for a model alone and in a round."""
    array = np.ascontiguousarray(values)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _where(finite: Flags, stack: Array, compute: Callable[[Array], Floats]) -> Floats:
    """The computed values of the models with finite predictions, NaN for the others."""
    if finite.all():
        return compute(stack)
    values = np.full(len(stack), np.nan)
    if finite.any():
        values[finite] = compute(stack[finite])
    return values


def _class_labels(y: Array, classes: int, what: str) -> Array:
    if y.dtype.kind not in "iu":
        raise DataError(f"{what}: labels must be whole numbers 0 … {classes - 1}, not {y.dtype}")
    if y.min() < 0 or y.max() >= classes:
        raise DataError(
            f"{what}: labels {y.min()} … {y.max()} but predictions for {classes} classes; "
            f"labels must lie in 0 … {classes - 1}"
        )
    return y.astype(np.intp, copy=False)


def _check_task(metric: Metric, classes: int) -> None:
    if metric.task != "any" and metric.task != _task(classes):
        raise InputError(
            f"metric {metric.name!r} is for a {metric.task}, but this is a {_task(classes)}; "
            f"choose one of {', '.join(sorted(_NAMED[_task(classes)]))}"
        )


def _task(classes: int) -> str:
    return "classification" if classes else "regression"


# -------------------------------------------------------------------------------------------- means over rows


def _log_rows(y: Array, stack: Array) -> Floats:
    models, n, classes = stack.shape
    chosen = stack.reshape(models, n * classes).take(np.arange(0, n * classes, classes) + y, axis=1)
    losses = -np.log(np.maximum(chosen, np.finfo(stack.dtype).tiny).astype(np.float64))
    # An infinite "probability" is a diverged model: never the best loss there is.
    return np.where(chosen < np.inf, losses, np.nan)


def _correct_rows(y: Array, stack: Array) -> Floats:
    return np.asarray(stack.argmax(axis=2) == y, dtype=np.float64)


def f1_parts(y: Array, stack: Array) -> tuple[Array, Floats, Floats, Floats]:
    """What is predicted (M, n); by model and class: its F1, 2·hits + misses + false alarms, and its share.

    A class that is neither there nor predicted has no share.
    """
    models, classes, predicted = stack.shape[0], stack.shape[2], stack.argmax(axis=2)
    places = predicted + classes * np.arange(models)[:, None]

    def counts(chosen: Array) -> Floats:
        return np.bincount(chosen, minlength=models * classes).reshape(models, classes).astype(np.float64)

    size = counts(places.ravel()) + np.bincount(y, minlength=classes)
    scores = np.divide(2.0 * counts(places[predicted == y]), size, out=np.zeros_like(size), where=size > 0)
    counted = size > 0
    if classes == 2:
        counted[:] = [False, True]
    return predicted, scores, size, counted / counted.sum(axis=1, keepdims=True)


def _f1_values(y: Array, stack: Array) -> Floats:
    _, scores, _, shares = f1_parts(y, stack)
    return np.asarray((scores * shares).sum(axis=1))


def _f1_terms(y: Array, stack: Array) -> Floats:
    """By how much a row more of its kind moves the score: 2·hits over hits + misses + false alarms."""
    predicted, scores, size, shares = f1_parts(y, stack)
    weight = np.divide(shares, size, out=np.zeros_like(size), where=size > 0)
    drag, truth = weight * scores, np.broadcast_to(y, predicted.shape)
    moved = 2.0 * (predicted == truth) * np.take_along_axis(weight, truth, axis=1)
    moved -= np.take_along_axis(drag, predicted, axis=1) + np.take_along_axis(drag, truth, axis=1)
    return np.asarray((scores * shares).sum(axis=1, keepdims=True) + len(y) * moved)


def _squared_rows(y: Array, stack: Array) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.square(stack.astype(np.float64) - y))


def _absolute_rows(y: Array, stack: Array, *, inverse: Callable[[Any], Any] | None = None) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        predicted, true = stack.astype(np.float64), np.asarray(y, dtype=np.float64)
        if inverse is not None:
            predicted, true = inverse(predicted), inverse(true)
        return np.abs(predicted - true)


def _row_mean(y: Array, stack: Array, *, rows: Batched) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(rows(y, stack).mean(axis=1))


def _rmse(y: Array, stack: Array) -> Floats:
    return np.sqrt(_row_mean(y, stack, rows=_squared_rows))


def _rmse_terms(y: Array, stack: Array) -> Floats:
    """Squared errors over 2·RMSE: the slope of the square root carries the mean's error over."""
    squares = _squared_rows(y, stack)
    with np.errstate(invalid="ignore", over="ignore"):
        root = 2.0 * np.sqrt(squares.mean(axis=1, keepdims=True))
        return np.asarray(np.divide(squares, root, out=np.zeros_like(squares), where=root != 0.0))


def _each(function: Callable[[Any, Any], float], y: Array, stack: Array) -> Floats:
    """A user's function, one model at a time."""
    values = [function(y, predictions) for predictions in stack]
    try:
        return np.array([float(value) for value in values])
    except (TypeError, ValueError) as error:
        raise InputError(f"a metric must return one number; it returned {values[0]!r}") from error


def _mean(name: str, higher: bool, rows: Batched, task: Literal["classification", "regression"]) -> Metric:
    return Metric(name, higher, partial(_row_mean, rows=rows), task, contributions=rows)


# ------------------------------------------------------------------------------------------------------ areas


def _called(numbers: NDArray[np.intp]) -> str:
    """The first of these classes by name, or by number where no names are known."""
    names = _names.get()
    shown = [repr(names[k]) if k < len(names) else str(k) for k in numbers[:_CLASSES_NAMED].tolist()]
    text = ", ".join(shown)
    return text if len(numbers) <= _CLASSES_NAMED else f"{text} … ({len(numbers)} in all)"


def _present(name: str, y: Array, classes: int) -> tuple[NDArray[np.intp], Array]:
    counts = np.bincount(y, minlength=classes)
    present = np.flatnonzero(counts)
    if len(present) < 2:
        raise DataError(
            f"metric {name!r} compares classes, but all {len(y)} labels are class {_called(present)}: "
            "add rows of another class, or choose 'log-loss' or 'accuracy'"
        )
    return present, counts[present]


def _two_classes(y: Array, stack: Array) -> Array:
    """How many rows either class has."""
    if stack.shape[2] != 2:
        raise InputError(f"metric 'auroc' is for two classes, not {stack.shape[2]}; choose 'hand-till'")
    return _present("auroc", y, 2)[1]


def _auroc_values(y: Array, stack: Array) -> Floats:
    counts = _two_classes(y, stack)
    return areas(stack[:, :, 1], y, 1, counts)[:, 0]


def _auroc_terms(y: Array, stack: Array) -> Floats:
    counts, terms = _two_classes(y, stack), np.zeros(stack.shape[:2])
    add_terms(terms, stack[:, :, 1], y, 1, counts)
    return terms


def _hand_till_values(y: Array, stack: Array) -> Floats:
    models, n, classes = stack.shape
    present, counts = _present("hand-till", y, classes)
    c = len(present)
    if c < classes:
        absent = np.setdiff1d(np.arange(classes), present)
        notes = _notes.get()
        note = (
            f"classes {_called(absent)} have no rows among the {n} labels: "
            "the Hand–Till AUROC is the mean over the pairs of the other classes"
        )
        if notes is None:
            warnings.warn(note, AbsentClassWarning, stacklevel=2)
        elif note not in notes:
            notes.append(note)
        y = np.searchsorted(present, y)
    pairs = np.stack([areas(stack[:, :, k], y, i, counts) for i, k in enumerate(present)], axis=1)
    pairs = pairs.reshape(models, c * c)
    pairs[:, :: c + 1] = 0.0
    return np.asarray(pairs.sum(axis=1) / (c * (c - 1)))


def _hand_till_terms(y: Array, stack: Array) -> Floats:
    present, counts = _present("hand-till", y, stack.shape[2])
    place, c = np.searchsorted(present, y), len(present)
    terms = np.zeros(stack.shape[:2])
    for column, label in enumerate(present):
        add_terms(terms, stack[:, :, label], place, column, counts)
    return terms / (c * (c - 1))


LOG_LOSS = _mean("log-loss", False, _log_rows, "classification")
ACCURACY = _mean("accuracy", True, _correct_rows, "classification")
F1 = Metric("f1", True, _f1_values, "classification", _f1_terms)
"""Of two classes the F1 of class 1, the last in their order; of more the mean over all classes (macro).

The most probable class counts as the prediction. It is scikit-learn's ``f1_score``, 0 where nothing is found.
"""
AUROC = Metric("auroc", True, _auroc_values, "classification", _auroc_terms, by_class=True)
HAND_TILL = Metric("hand-till", True, _hand_till_values, "classification", _hand_till_terms, by_class=True)
_AREAS = (AUROC, HAND_TILL)
SQUARED_LOSS = _mean("squared-loss", False, _squared_rows, "regression")
ABSOLUTE_LOSS = _mean("absolute-loss", False, _absolute_rows, "regression")
MAE = _mean("mae", False, _absolute_rows, "regression")
MAE_EXP = mae_in_units(np.exp, name="mae-exp")
RMSE = Metric("rmse", False, _rmse, "regression", _rmse_terms)

_NAMED: dict[str, dict[str, Metric]] = {
    "classification": {metric.name: metric for metric in (LOG_LOSS, ACCURACY, F1, AUROC, HAND_TILL)}
    | {"loss": LOG_LOSS},
    "regression": {metric.name: metric for metric in (SQUARED_LOSS, ABSOLUTE_LOSS, MAE, MAE_EXP, RMSE)}
    | {"loss": SQUARED_LOSS},
}
_ALIASES = {"auc": "auroc"}
NAMES = frozenset(name for named in _NAMED.values() for name in named)
"""Of all metrics that have one; other metrics are a user's."""
