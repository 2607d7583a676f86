"""Comparisons of algorithms: the demo, the paper's experiments."""
