"""Who does the work of a round: this process, or several."""
