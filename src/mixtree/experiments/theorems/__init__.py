"""The theorems, checked by experiment; ``python -m mixtree.experiments.theorems`` writes docs/theory.md."""
