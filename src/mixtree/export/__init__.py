"""The mixture for other trainers, the model for other programs."""
