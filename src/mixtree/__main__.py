"""``python -m mixtree``: the same as the command ``mixtree``."""

from mixtree.cli import main

if __name__ == "__main__":
    main()
