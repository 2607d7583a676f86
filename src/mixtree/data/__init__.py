"""Sources, sampling, tables and problems with known answers."""
