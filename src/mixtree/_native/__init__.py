"""Compiled code with the same in Python: arithmetic of nodes and areas, the MLP's kernel, BLAS threads."""
