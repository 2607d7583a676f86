"""The loss of any mixture, from looks at merged models."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mixtree.data.synthetic import synthetic
from mixtree.engine.study import run
from mixtree.errors import InputError
from mixtree.estimate.merged import last_looks, what_if
from mixtree.planning.certificate import certificate_of
from mixtree.policies.mixmatch_plus import MixmatchPlus
from mixtree.policies.registry import make_search
from mixtree.policies.setting import PlusOptions, Setting
from mixtree.storage.sql import open_storage
from mixtree.trainers.mlp import MlpTrainer
from mixtree.tree import Merge, Node

SOURCES = synthetic(sources=3, rows=300, validation=200, features=4, seed=2).sources


def setting(**options: Any) -> Setting:
    plus = PlusOptions(looks=40, **options)
    return Setting(SOURCES.names, SOURCES.sizes, 300, 10, seed=1, data=SOURCES, plus=plus)


def looks(count: int, sources: int, seed: int = 0) -> list[Node]:
    random = np.random.default_rng(seed)
    found = []
    for place in range(count):
        alpha = random.dirichlet(np.ones(sources))
        value = 1.0 + float(alpha @ np.arange(sources)) + float(alpha[0] * alpha[1])
        merged = Merge(((0,),), (1.0,))
        found.append(Node((999, place), alpha, 0, value, 0.1, phase="merged", merged=merged))
    return found


def test_a_quadratic_is_found_exactly() -> None:
    found = what_if(looks(40, 3), [0.2, 0.3, 0.5], sources=3)
    assert found.loss == pytest.approx(1.0 + 0.3 + 2 * 0.5 + 0.06)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.1)


def test_few_looks_at_many_sources_have_wider_intervals() -> None:
    rough = what_if(looks(60, 12), np.eye(12)[0], sources=12)
    exact = what_if(looks(400, 12), np.eye(12)[0], sources=12)
    assert 0 < exact.error < 1e-6 < rough.error
    assert rough.low < 1.0 < rough.high


def test_a_fit_answers_what_if_and_has_a_certificate(tmp_path: Path) -> None:
    with closing(open_storage(tmp_path / "s.db")) as place:
        result = run(MixmatchPlus(setting()), MlpTrainer(SOURCES, hidden=()), storage=place)
        seen = last_looks(result.tree.values())
        assert len({len(node.path) for node in seen}) > 2
        deepest = max(len(path) for node in seen if node.merged is not None for path in node.merged.paths)
        assert all(
            max(map(len, node.merged.paths)) == deepest for node in seen if node.merged is not None
        )  # of the third round only
        node = seen[5]
        asked = result.what_if(node.mixture)
        assert asked.low < node.value < asked.high
        assert abs(asked.loss - node.value) < 3 * asked.error + 1e-9
        named = dict(zip(SOURCES.names, node.mixture.tolist(), strict=True))
        assert result.what_if(named).loss == pytest.approx(asked.loss)
        with pytest.raises(InputError, match="no source 'x'"):
            result.what_if({"x": 1.0})
        sure = certificate_of(place, place.load("study"))
        assert sure is not None and sure.bound is not None and "merged loss" in sure.sentence
        assert sure.assumptions[0].startswith(
            "merging: merged losses rank as those of trained models do (merged"
        )


def test_without_looks_nothing_is_known() -> None:
    result = run(make_search("uniform", setting()), MlpTrainer(SOURCES, hidden=()))
    with pytest.raises(InputError, match="no looks at merged models"):
        result.what_if([1.0, 0.0, 0.0])
