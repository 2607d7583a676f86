"""How much the mixture that a default fit chooses depends on the seed: eight seeds on three tasks.

The mixtures of a race often do equally well, and the simplest of them wins. What this prints is how many
seeds agree on the kind of mixture, how far their weights are apart, and what that does to the score.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numpy as np

from mixtree.data.flights import flights
from mixtree.data.sources import Problem
from mixtree.data.synthetic import synthetic
from mixtree.experiments.tasks import tasks
from mixtree.fitting.pipeline import fit

SEEDS = range(8)


def problems() -> dict[str, Problem]:
    """The three tasks: a target in the hull, a new carrier, scans of digits."""
    digits = next(task for task in tasks("undertrained") if task.name.startswith("digits 0.9"))
    return {
        "synthetic, in the hull (K = 3)": synthetic(sources=3, validation=200, test=2000, seed=1),
        "flights, new carrier (K = 4)": flights(target="new", seed=0),
        "digits, four scanners (K = 4)": digits.load(200),
    }


def kind(notes: tuple[str, ...]) -> str:
    """The mixture that won the race, in words."""
    found = [note for note in notes if note.startswith("mixture: ")]
    return found[0].removeprefix("mixture: ").split(", the ")[0] if found else "no race"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, help="write results/seeds.md into this folder too")
    folder = parser.parse_args().docs
    rows = [
        "| task | seeds that agree | chosen | largest ℓ1 distance of two mixtures | score, mean ± sd |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, problem in problems().items():
        results = [fit(problem.sources, test=problem.test, seed=seed, reference="none") for seed in SEEDS]
        chosen = Counter(kind(result.notes) for result in results)
        mixtures = np.array([result.mixture[: len(problem.sources)] for result in results])
        apart = np.abs(mixtures[:, None] - mixtures[None]).sum(axis=2).max()
        verdicts = [result.verdict for result in results]
        scores = [each.score.value for each in verdicts if each is not None and each.score is not None]
        told = ", ".join(f"{what} {count}" for what, count in chosen.most_common())
        metric = verdicts[0].metric if verdicts[0] is not None else ""
        score = f"{metric} {np.mean(scores):.3f} ± {np.std(scores, ddof=1):.3f}"
        rows.append(
            f"| {name} | {chosen.most_common(1)[0][1]} of {len(SEEDS)} | {told} | {apart:.2f} | {score} |"
        )
    page = f"# Seeds\nWritten by `python benchmarks/seeds.py --docs docs`. {__doc__.splitlines()[0]}\n\n"
    text = page + "\n".join(rows) + "\n"
    print(text)
    if folder is not None:
        (folder / "results").mkdir(parents=True, exist_ok=True)
        (folder / "results" / "seeds.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
