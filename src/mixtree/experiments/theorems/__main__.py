"""The command that regenerates docs/theory.md and its figures."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mixtree.experiments.theorems.document import check, regenerate


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m mixtree.experiments.theorems", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder for theory.md and figures/")
    parser.add_argument("--quick", action="store_true", help="tiny problems, seconds: to see that it runs")
    parser.add_argument("--check", type=Path, metavar="DIR", help="compare DIR/theory.md with a new run")
    arguments = parser.parse_args()
    if arguments.check is not None:
        found = check(arguments.check, quick=arguments.quick)
        print("\n".join(found) if found else "every number is reproduced within its tolerance")
        sys.exit(1 if found else 0)
    for path in regenerate(arguments.out, quick=arguments.quick):
        print(path)


if __name__ == "__main__":
    main()
