"""The command that regenerates docs/theory.md and its figures."""

from __future__ import annotations

import argparse
from pathlib import Path

from mixtree.experiments.theorems.document import regenerate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mixtree.experiments.theorems", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for theory.md and figures/")
    parser.add_argument("--quick", action="store_true", help="tiny problems, seconds: to see that it runs")
    arguments = parser.parse_args()
    for path in regenerate(arguments.out, quick=arguments.quick):
        print(path)


if __name__ == "__main__":
    main()
