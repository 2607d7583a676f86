"""What runs a study: the loop, its executors, resuming, the models of its nodes."""
