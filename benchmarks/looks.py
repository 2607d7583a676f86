"""What looks at merged models cost: ``python benchmarks/looks.py``, CPU time, the best of four runs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mixtree import run
from mixtree.data.synthetic import synthetic
from mixtree.policies.mixmatch_plus import MixmatchPlus
from mixtree.policies.setting import PlusOptions, Setting
from mixtree.trainers.mlp import MlpTrainer


def seconds(work: Callable[[], object]) -> float:
    """The least CPU time of four runs."""
    found = []
    for _ in range(4):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def main() -> None:
    sources = synthetic(sources=4, rows=200, validation=500, features=100, seed=4).sources
    trainer = MlpTrainer(sources)
    states = [trainer.init(seed) for seed in range(16)]
    even = [1 / 16] * 16
    print(
        f"merging 16 models: {20 * seconds(lambda: [trainer.merge(states, even) for _ in range(50)]):.2f} ms"
    )
    forward = 20 * seconds(lambda: [trainer.evaluate(states[:1]) for _ in range(50)])
    print(f"a forward pass over 500 rows of 100 features, three layers of 128: {forward:.2f} ms")

    def study(looks: int, *, stored: bool) -> None:
        plus = PlusOptions(rounds=1, looks=looks)
        setting = Setting(sources.names, sources.sizes, 300, 10, data=sources, plus=plus)
        with tempfile.TemporaryDirectory() as folder:
            run(MixmatchPlus(setting), trainer, storage=Path(folder) / "s.db" if stored else None)

    for stored in (False, True):
        few, many = (
            seconds(lambda looks=looks, stored=stored: study(looks, stored=stored))  # type: ignore[misc]
            for looks in (3, 303)
        )
        print(f"300 looks {'into a file' if stored else 'in memory'}: {many - few:.2f} s")


if __name__ == "__main__":
    main()
