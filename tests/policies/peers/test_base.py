from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest

from mixtree.errors import InputError, MissingExtraError, SearchError
from mixtree.policies.peers.base import Division, Peer, filled, optional
from mixtree.policies.script import Rounds
from mixtree.trainer import Evaluation


class TwoThenBest(Peer):
    """Two single sources, then the better one."""

    def search(self) -> Rounds:
        self.order = []
        nodes = yield [self._trial(each, 20) for each in np.eye(self._sources)[:2]]
        self.order = [node.path for node in nodes]
        yield from self._finish_best()


def test_a_script_gets_its_nodes_in_the_order_asked_for(world: Any) -> None:
    search = TwoThenBest(world.setting(100))
    first, second = search.ask()
    with pytest.raises(SearchError, match="tell the outcome of 2"):
        search.ask()
    with pytest.raises(SearchError, match="nothing has been evaluated"):
        search.best()
    search.tell(second, Evaluation(0.1))
    search.tell(first, Evaluation(0.2))
    assert search.order == [(0,), (1,)]
    assert search.best().path == (1,)
    assert search.needed([(0,), (1,)]) == {(1,)}
    (final,) = search.ask()
    assert (final.path, final.steps, final.lr_scale, final.phase) == ((1, 0), 30, 1.0, "final")
    assert final.mixture.tolist() == [0, 1, 0]
    search.tell(final, Evaluation(0.3))
    assert search.best().path == (1, 0)  # the last, though another was lower
    (decay,) = search.ask()
    assert (decay.path, decay.steps, decay.lr_scale, decay.phase) == ((1, 0, 0), 30, 0.1, "decay")
    search.tell(decay, Evaluation(nan))
    assert search.best().path == (1, 0)
    assert search.ask() == []
    assert search.spent == search.budget == 100


def test_the_division_is_a_parameter(world: Any) -> None:
    search = TwoThenBest(world.setting(100), division=Division(search=0.5, decay=0.25, decay_lr=0.2))
    world.drive(search)
    assert [(trial.steps, trial.lr_scale) for trial in world.trials[2:]] == [(45, 1.0), (15, 0.2)]


@pytest.mark.parametrize("wrong", [{"search": 1.0}, {"decay": -0.1}, {"decay_lr": 0.0}, {"decay_lr": inf}])
def test_impossible_divisions(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        Division(**wrong)


def test_a_missing_package_says_how_to_get_it() -> None:
    with pytest.raises(MissingExtraError, match=r"^that feature needs .*mixtree\[peers\]"):
        optional("no_such_package", "that feature")


def test_filled() -> None:
    assert filled([inf, 2.0, nan, 1.0]).tolist() == [2.0, 2.0, 2.0, 1.0]
    assert filled([inf, inf]).tolist() == [0.0, 0.0]
