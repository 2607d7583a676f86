"""What can spend a budget: the paper's searches, fixed mixtures, ``auto``, peers from the literature."""
