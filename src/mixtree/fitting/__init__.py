"""From tables or arrays to a judged model: options, preparing, the pipeline behind every door."""
