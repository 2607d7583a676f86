from mixtree.estimate.matching import match_moments as maximum_likelihood
