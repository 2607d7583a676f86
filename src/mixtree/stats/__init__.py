"""Intervals, paired comparisons, resampling and selection bias: numpy in, numbers out."""
