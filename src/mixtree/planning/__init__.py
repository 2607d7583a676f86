"""Before a run and after it: what a budget costs, timing, the certificate, constants of the theory."""
