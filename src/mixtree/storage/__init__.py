"""Where studies live: readable rows in a database, models in a folder of safetensors files."""
