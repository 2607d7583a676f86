from mixtree.estimate.matching import match_moments as match_losses
