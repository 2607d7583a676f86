"""Models whose checkpoints are gone are trained once more, and compared with what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mixtree.errors import CheckpointError, StorageError
from mixtree.trainer import Evaluation
from mixtree.tree import Path

if TYPE_CHECKING:
    from mixtree.engine.loop import Loop

NAMED = 10
"""As many recomputed models are reported one by one; more are only counted."""


def model(loop: Loop[Any], path: Path) -> Any:
    """A node's model, computed again if its checkpoint is gone."""
    try:
        return loop.models.get(path)
    except CheckpointError:
        recompute(loop, path)
        return loop.models.get(path)


def recompute(loop: Loop[Any], path: Path) -> None:
    """Train a lost model once more from its nearest stored ancestor; its steps are not charged again."""
    lost, again = [path], 0
    while lost:
        if lost[-1] not in loop.history.round_of:
            raise StorageError(f"the model of node {lost[-1]} is lost and no trial made it")
        (group,) = loop.groups([loop.history.trial(lost[-1])])
        done = loop.runner.run(group, fresh=() not in loop.history.round_of)
        if done.lost is not None:
            if done.lost in lost:
                raise StorageError(f"the models of nodes {lost} are lost, and each is made of another")
            lost.append(done.lost)
            continue
        lost.pop()
        again += 1
        for trial, measured in zip(group, done.evaluations, strict=True):
            compare(loop, trial.path, loop.value(measured))
    # Ancestors stay until the end: the next lost model may well go on from one of them.
    if loop.recomputed < NAMED:
        more = f" and {again - 1} before it" if again > 1 else ""
        loop.reporter.warn(f"the model of node {path}{more} was missing or damaged and was computed again")
    loop.recomputed += again


def compare(loop: Loop[Any], path: Path, again: Evaluation) -> None:
    """Refuse a node that was computed again and came out another one."""
    if path in loop.tree and loop.tree[path].value != again.value:
        raise StorageError(
            f"node {path} was computed again and scored {again.value!r} instead of "
            f"{loop.tree[path].value!r}: another machine, other package versions or other data; the "
            "study cannot go on exactly"
        )
