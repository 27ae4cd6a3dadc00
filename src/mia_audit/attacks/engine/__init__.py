"""The likelihoods behind the attacks: pure functions of arrays."""
